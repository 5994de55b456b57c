"""jitla against its peers on kernels at the limits of the machine, in one process, in turn.

Every contestant has the same number of threads, and gives NumPy's results before its time is taken.
Ratios are best peer over jitla within a round; a peer that is not installed or has no such row is "-".
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

from bench import tables
from bench.internal import machine
from bench.measure import contest, estimate
from bench.peers import ROWS
from bench.peers.contestants import MAKERS, Contestant, enter
from bench.peers.outcome import HEADER, PEERS, WIDTHS, Limits, Outcome, markdown, means, measured
from bench.peers.row import Row, differs

VARIABLES = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS", "HL_NUM_THREADS", "JITLA_NUM_THREADS", "NPROC",  # the last is XLA's
)
PACKAGES = ("numpy", "scipy", "llvmlite", "numba", "numexpr", "jax", "jaxlib", "torch", "halide")


def entered(
    outcome: Outcome, arguments: Sequence[object], names: Sequence[str],
) -> Iterator[tuple[str, Contestant]]:
    """Contestants whose results are NumPy's; why others are not among them is noted."""
    row = outcome.row
    reference = enter("numpy", row, arguments)
    assert reference is not None
    wanted = reference.results(row)
    outcome.read, outcome.written = row.bytes(arguments, wanted)
    outcome.work = row.work(*arguments) if row.work else 0.0
    for name in names:
        try:
            contestant = enter(name, row, arguments)
            wrong = differs(contestant.results(row), wanted, row.tolerance) if contestant else ""
        except Exception as error:  # what a peer cannot do is no end of the comparison
            outcome.notes[name] = f"{type(error).__name__}: {error}"[:300]
            continue
        if wrong:
            outcome.notes[name] = wrong
        elif contestant is not None:
            yield name, contestant


def run(
    row: Row, names: Sequence[str], rounds: int, scale: float, bench: machine.Bench,
) -> Outcome:
    """Check all contestants, then time them in turn, and behind jitla the machine itself."""
    rng = np.random.default_rng(5)
    limits: list[Limits] = []
    outcome = Outcome(row)
    calls = {name: c.call for name, c in entered(outcome, row.make(rng, scale), names)}
    taken = contest(calls, rounds, rng, {"jitla": lambda: limits.append(Limits(*machine.glance(bench)))})
    outcome.seconds = {name: estimate([t for t in ts if t == t]) for name, ts in taken.items()}
    outcome.least = {name: float(np.nanmin(ts)) for name, ts in taken.items()}
    if "jitla" in taken:
        outcome.share = outcome.of_limits([t for t in taken["jitla"] if t == t], limits)
    peers = {name: outcome.seconds[name].value for name in PEERS if name in taken}
    if peers and "jitla" in taken:
        outcome.best = min(peers, key=lambda name: peers[name])
        pairs = zip(taken[outcome.best], taken["jitla"], strict=True)
        outcome.ratio = estimate([p / j for p, j in pairs if p == p and j == j])
    return outcome


def environment(threads: int) -> None:
    """Begin this process anew where libraries would have other numbers of threads."""
    wanted = dict.fromkeys(VARIABLES, str(threads))
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, **wanted})


def versions() -> dict[str, str]:
    """Of Python and the packages that are there."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def chosen(only: str, long: bool) -> list[Row]:
    """Rows whose names contain one of the parts of `only`."""
    parts = only.lower().split(",")
    return [r for r in ROWS if any(p in r.name.lower() for p in parts) and (long or not r.long)]


def parsed() -> argparse.Namespace:
    """Options from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="parts of names of rows, separated by commas")
    parser.add_argument("--peers", default=",".join(PEERS), help="separated by commas")
    parser.add_argument("--scale", type=float, default=1.0, help="of the sizes")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--long", action="store_true", help="rows that take much time and memory, too")
    parser.add_argument("--markdown", type=Path, help="file for the table")
    return parser.parse_args()


def main() -> None:
    options = parsed()
    environment(options.threads)
    names = [n for n in MAKERS if n in options.peers.split(",") or n == "jitla"]
    bench = machine.prepare()
    limits = measured(bench, options.threads)
    print(f"{options.threads} threads, {options.rounds} rounds, sizes times {options.scale:g}: medians, and "
          f"ratios with 95 % interval\n{versions()}")
    print(tables.text_row(HEADER, WIDTHS))
    outcomes = []
    for row in chosen(options.only, options.long):
        outcomes.append(run(row, names, options.rounds, options.scale, bench))
        print(tables.text_row(outcomes[-1].cells(), WIDTHS), flush=True)
        gc.collect()
    limits = limits.or_better(measured(bench, options.threads))
    for o in outcomes:
        for name, note in o.notes.items():
            print(f"not shown: {o.row.name}, {name}: {note}")
    print("geometric means of peer ÷ jitla: ", {k: round(v, 2) for k, v in means(outcomes).items()})
    if options.markdown:
        options.markdown.write_text(markdown(outcomes) + "\n", encoding="utf-8")
    print(json.dumps({
        "bench": "kernels", "threads": options.threads, "scale": options.scale, "versions": versions(),
        "limits": vars(limits), "means": means(outcomes),
        "rows": {o.row.name: o.record() for o in outcomes},
    }))
    if any("jitla" in o.notes for o in outcomes):
        raise SystemExit("jitla is among what is not shown")


if __name__ == "__main__":
    main()
