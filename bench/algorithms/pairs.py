"""Whole algorithms on little data, decorated and plain in turn in one process, when all is compiled.

python -m bench.algorithms.pairs [--rows 1e2,1e3,1e4] [--only GLM] [--page docs/reports/benchmarks-small.md]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import jitla
from bench import tables
from bench.algorithms.cases import Case, cases, work
from bench.algorithms.host import machine
from bench.measure import Estimate, estimate, repeats, seconds, settle

PAIRS, LEAST = 15, 2e-3  # in each process, of batches that take at least so many seconds
WARM, SETTLE = 2.5, 5.0  # seconds of calls before, and that background compilation is waited for at most
IDLE, POLL = 1.0, 0.05  # seconds without a new plan or module that count as the end of it, and between looks
PART = 0.05  # that a call may take longer
HEAD = """# Whole algorithms on little data

Decorated algorithms of `bench/algorithms` on few rows, compared with the plain functions: calls alternate in
one process, after {warm:g} seconds of calls and when nothing is being compiled, each after a pause and an
untimed call. Ratios are medians of the pairs of {processes} processes, with the 95 % bootstrap interval. The
last column is the share of calls that jitla left to the plain function.
{machine}

```sh
python -m bench.algorithms.pairs
```

{summary}

"""


def wait_for_compilation(fast: Any) -> None:
    """Wait until a decorated function has got no new plan or module for `IDLE` seconds, at most `SETTLE`."""
    begun = changed = time.perf_counter()
    before: tuple[float, ...] = ()
    while (now := time.perf_counter()) - changed < IDLE and now - begun < SETTLE:
        stats = fast.stats()
        counters = stats.planned, stats.compiled, stats.found, stats.waiting, stats.loops_waiting
        if counters != before:
            before, changed = counters, now
        time.sleep(POLL)


def measured(case: Case) -> dict[str, Any]:
    """Return the seconds of calls of both kinds, in pairs, and how many calls were left to NumPy."""
    made = work(case)
    fast, begun = jitla.jit(made.plain), time.perf_counter()
    while time.perf_counter() - begun < WARM:
        fast(*made.arguments)
    wait_for_compilation(fast)
    ways = [lambda: made.plain(*made.arguments), lambda: fast(*made.arguments)]
    times = [repeats(way, LEAST) for way in ways]
    before, taken = fast.stats(), []
    for turn in range(PAIRS):
        order = (0, 1) if turn % 2 == 0 else (1, 0)
        found = {}
        for k in order:
            settle()
            ways[k]()  # not timed: it wakes threads, and finds caches as the other way has left them
            found[k] = seconds(ways[k], times[k])
        taken.append((found[0], found[1]))
    after = fast.stats()
    return {"taken": taken, "left": (after.bypassed - before.bypassed) / max(after.calls - before.calls, 1)}


def run(chosen: list[Case], processes: int, budget: float, file: Path) -> None:
    """Measure what the file does not have yet."""
    if not file.exists():
        file.write_text(json.dumps({"machine": machine()}) + "\n", encoding="utf-8")
    have, start = {key for key, _ in records(file)}, time.monotonic()
    for number in range(processes):
        for case in chosen:
            if (case, number) in have or time.monotonic() - start > budget:
                continue
            told = subprocess.run(
                [sys.executable, "-m", "bench.algorithms.pairs", "--one", json.dumps(case.record())],
                capture_output=True, text=True, check=True).stdout
            line = {"case": case.record(), "process": number, **json.loads(told.splitlines()[-1])}
            with file.open("a", encoding="utf-8") as out:
                out.write(json.dumps(line) + "\n")


def records(file: Path) -> Iterator[tuple[tuple[Case, int], dict[str, Any]]]:
    """Yield what a file has: case and process, and what was measured."""
    for line in file.read_text(encoding="utf-8").splitlines()[1:]:
        found = json.loads(line)
        yield (Case(**found["case"]), found["process"]), found


def ratios(file: Path) -> dict[Case, tuple[float, Estimate, float]]:
    """Return for each case the seconds of a plain call, the ratio, and which part of calls was left alone."""
    taken: dict[Case, list[dict[str, Any]]] = {}
    for (case, _), found in records(file):
        taken.setdefault(case, []).append(found)
    return {
        case: (float(np.median([a for each in found for a, _ in each["taken"]])),
               estimate([b / a for each in found for a, b in each["taken"]]),
               float(np.mean([each["left"] for each in found])))
        for case, found in taken.items()}


def page(found: Mapping[Case, tuple[float, Estimate, float]], file: Path) -> str:
    """Return the page: a summary, and a line for each case."""
    behind = [case for case, (_, ratio, _) in found.items() if ratio.low > 1 + PART]
    faster = sum(ratio.high < 1 for _, ratio, _ in found.values())
    summary = (f"{len(found) - len(behind)} of {len(found)} are not shown to be slower than plain by more "
               f"than {PART:.0%}; {faster} are shown to be faster.")
    counts = Counter(case for (case, _), _ in records(file)).values()
    processes = " or ".join(map(str, sorted(set(counts))))  # some cases may have been run more often
    where = json.loads(file.read_text(encoding="utf-8").splitlines()[0])["machine"]
    rows = []
    for case, (plain, ratio, left) in sorted(found.items(), key=lambda item: -item[1][1].value):
        name = f"{case.script}, {case.rows:,} rows"
        rows.append([name, f"{plain * 1e3:,.3g}", ratio.show(), f"{left:.0%}"])
    head = HEAD.format(warm=WARM, processes=processes, summary=summary, machine=where)
    return head + tables.markdown(("case", "plain, ms", "decorated / plain", "left to NumPy"), rows) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.algorithms.pairs", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default="1e2,1e3,1e4", help="with commas between")
    parser.add_argument("--only", default="", help="part of the names of cases")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--budget", type=float, default=float("inf"), help="seconds for all of this")
    parser.add_argument("--file", type=Path, default=Path("pairs.jsonl"))
    parser.add_argument("--page", type=Path, help="is written, too")
    parser.add_argument("--one", help="a case as JSON, measured in this process")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measured(Case(**json.loads(options.one)))))
        return
    every = cases([int(float(n)) for n in options.rows.split(",")], ["float64"], [0.01], False)
    run([c for c in every if options.only.lower() in c.key.lower()], options.processes, options.budget,
        options.file)
    written = page(ratios(options.file), options.file)
    print(written)
    if options.page:
        options.page.write_text(written, encoding="utf-8")


if __name__ == "__main__":
    main()
