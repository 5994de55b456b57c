"""`python -m tests.fuzz --seeds A:B --jobs N --time SECONDS`: run random programs, count, show.

Knows: generate, runner, shrink. Programs run in processes of their own, a few hundred in each, so
that one that brings its process down is found, and named, like any other difference.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from queue import Empty, Queue

CHUNK = 250
HANGS = 120.0


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    found = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Differential fuzzer")
    found.add_argument("--seeds", default="0:20000", help="range of programs, A:B")
    found.add_argument("--jobs", type=int, default=2, help="processes at once")
    found.add_argument("--time", type=float, default=float("inf"), help="stop after so many seconds")
    found.add_argument("--plain", action="store_true", help="plain against plain: tests the fuzzer")
    found.add_argument("--show", action="store_true", help="print the programs")
    found.add_argument("--shrink", type=int, default=0, help="make the first N failing ones small")
    found.add_argument("--out", default=".fuzz", help="folder for failing programs")
    found.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return found


def work(first: int, last: int, plain: bool) -> None:
    """Run programs; one line of JSON at the start and at the end of each."""
    from tests.fuzz import load
    from tests.fuzz.generate import generate
    from tests.fuzz.runner import run

    load.PLAIN = plain
    for seed in range(first, last):
        faulthandler.dump_traceback_later(HANGS, exit=True)
        say({"start": seed})
        report = run(generate(seed), f"fuzz-{seed}")
        say(
            {
                "seed": seed,
                "calls": report.calls,
                "raised": report.raised,
                "compiled": report.compiled,
                "undefined": report.undefined,
                "rounding": report.rounding,
                "counted": report.counted,
                "faults": [(call, threads, fault.kind, str(fault)) for call, threads, fault in report.faults],
            }
        )
    faulthandler.cancel_dump_traceback_later()


def say(record: dict) -> None:
    """Write one line."""
    sys.stdout.write(json.dumps(record) + "\n")
    sys.stdout.flush()


class Tally:
    """What all workers found."""

    def __init__(self, out: Path, limit: float) -> None:
        self.out, self.limit = out, time.monotonic() + limit
        self.counts: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        self.failing: list[tuple[int, str]] = []
        self.lock = threading.Lock()
        self.began = time.monotonic()

    def add(self, record: dict) -> None:
        """Count one program."""
        with self.lock:
            self.counts["programs"] += 1
            for name in ("calls", "raised", "compiled", "undefined", "rounding"):
                self.counts[name] += record[name]
            for name, value in record["counted"].items():
                if isinstance(value, (int, float)):
                    self.counts[f"jit {name}"] += value
            if record["faults"]:
                call, threads, kind, text = record["faults"][0]
                self._fail(record["seed"], kind, f"call {call}, {threads} threads: {text}")

    def crash(self, seed: int, text: str) -> None:
        """Count a process that ended before its program did."""
        with self.lock:
            self.counts["programs"] += 1
            self._fail(seed, "crash", text)

    def _fail(self, seed: int, kind: str, text: str) -> None:
        self.kinds[kind] += 1
        self.failing.append((seed, text))
        line = " ".join(text.split())
        sys.stdout.write(f"{seed}: {line[:300]}\n")
        sys.stdout.flush()

    def summary(self) -> str:
        """Return the counts as text."""
        took, c = time.monotonic() - self.began, self.counts
        share = 100 * c["compiled"] / max(c["programs"], 1)
        lines = [
            f"{c['programs']} programs in {took:.0f} s ({c['programs'] / took:.1f}/s), {c['calls']} calls,"
            f" {c['raised']} raised; {share:.0f} % compiled a kernel",
            f"{c['rounding']} calls differ by rounding only, {c['undefined']} left out (undefined cast)",
            "  ".join(f"{n[4:]} {v:g}" for n, v in c.items() if n.startswith("jit ")),
            f"{len(self.failing)} differences  "
            + "  ".join(f"{k}: {n}" for k, n in self.kinds.most_common()),
        ]
        return "\n".join(lines)


def drive(chunks: Queue, tally: Tally, plain: bool) -> None:
    """Run chunks of programs in worker processes until none or no time is left."""
    while time.monotonic() < tally.limit:
        try:
            first, last = chunks.get_nowait()
        except Empty:
            return
        while first < last and time.monotonic() < tally.limit:
            first = one_worker(first, last, tally, plain)


def one_worker(first: int, last: int, tally: Tally, plain: bool) -> int:
    """Run one process; return the first program it did not finish, or `last`."""
    command = [
        sys.executable,
        "-X",
        "faulthandler",
        "-m",
        "tests.fuzz",
        "--worker",
        "--seeds",
        f"{first}:{last}",
    ]
    process = subprocess.Popen(
        command + ["--plain"] * plain, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    errors: list[str] = []
    listener = threading.Thread(target=lambda: errors.extend(process.stderr or []), daemon=True)
    listener.start()
    started = first - 1
    for line in process.stdout or []:
        record = json.loads(line)
        if "start" in record:
            started = record["start"]
            continue
        tally.add(record)
        first = record["seed"] + 1
        if time.monotonic() > tally.limit:
            process.kill()
            return last
    process.wait()
    listener.join(5)
    if process.returncode and first <= started:
        tally.crash(started, f"exit {process.returncode}: {''.join(errors)[-1500:]}")
        return started + 1
    return last


def keep(tally: Tally, smaller: int) -> None:
    """Write every failing program as a pytest file, the first ones made small."""
    from tests.fuzz.generate import generate
    from tests.fuzz.runner import run
    from tests.fuzz.shrink import as_test, shrink

    tally.out.mkdir(exist_ok=True)
    for n, (seed, text) in enumerate(sorted(tally.failing)):
        source, name = generate(seed), f"fuzz-{seed}"
        if n < smaller and "exit" not in text[:5]:
            wanted = [fault.kind for _, _, fault in run(source, name).faults][:1]

            def fails(other: str, wanted: list[str] = wanted, name: str = name) -> bool:
                try:
                    return [f.kind for _, _, f in run(other, name).faults][:1] == wanted
                except Exception:
                    return False

            source = shrink(source, fails)
        said = text.replace("\\", "/").replace('"""', "'''")
        (tally.out / f"test_{seed}.py").write_text(as_test(source, name, said))


def main() -> int:
    """Run what the command line asks for."""
    given = parser().parse_args()
    first, last = map(int, given.seeds.split(":"))
    if given.worker:
        work(first, last, given.plain)
        return 0
    if given.show:
        from tests.fuzz.generate import generate

        sys.stdout.write("\n\n".join(generate(seed) for seed in range(first, last)))
        return 0
    tally, chunks = Tally(Path(given.out), given.time), Queue()
    for at in range(first, last, CHUNK):
        chunks.put((at, min(at + CHUNK, last)))
    drivers = [threading.Thread(target=drive, args=(chunks, tally, given.plain)) for _ in range(given.jobs)]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join()
    if tally.failing:
        keep(tally, given.shrink)
    sys.stdout.write(tally.summary() + "\n")
    return bool(tally.failing)


if __name__ == "__main__":
    sys.exit(main())
