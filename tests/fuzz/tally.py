"""What all workers found, added up, and kept in a file so that a long run goes on where it was.

Knows: the records that workers write. Must not know: programs, jitla.
Receives records; returns what is left to run, and a summary.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

EVERY = 20.0  # seconds between two writes of the state
COUNTED = ("calls", "raised", "compiled", "undefined", "rounding", "text", "real")


class Tally:
    """Programs run, kernels made, differences found."""

    def __init__(
        self, out: Path, limit: float = float("inf"), state: str = "", kernels: str = "reuse"
    ) -> None:
        self.out, self.limit = out, time.monotonic() + limit
        self.counts: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        self.failing: list[tuple[int, str]] = []
        self.kernels: set[str] = set()
        self.done: list[tuple[int, int]] = []
        self.before = 0.0  # seconds of earlier runs
        self.began = self._saved = time.monotonic()
        self._file, self._mode = Path(state) if state else None, kernels
        self._lock = threading.Lock()
        if self._file and self._file.exists():
            self._resume(json.loads(self._file.read_text()))

    def _resume(self, kept: dict) -> None:
        if kept["mode"] != self._mode:
            raise SystemExit(f"{self._file} is of another run: {kept['mode']}")
        self.counts.update(kept["counts"])
        self.kinds.update(kept["kinds"])
        self.failing = [(seed, text) for seed, text in kept["failing"]]
        self.kernels = set(kept["kernels"])
        self.done = [(first, last) for first, last in kept["done"]]
        self.before = kept["seconds"]

    def left(self, first: int, last: int, chunk: int) -> Iterator[tuple[int, int]]:
        """Yield ranges of programs that have not run yet; they start at multiples of `chunk`."""
        for start in range(first - first % chunk, last, chunk):
            at, end = max(start, first), min(start + chunk, last)
            for a, b in self.done:
                if a <= at < b:
                    at = b
            if at < end:
                yield at, end

    def over(self) -> bool:
        """Say whether the time is over."""
        return time.monotonic() > self.limit

    def add(self, record: dict) -> None:
        """Count one program."""
        with self._lock:
            for name in COUNTED:
                self.counts[name] += record[name]
            for name, value in record["counted"].items():
                self.counts[f"jit {name}"] += value
            self.kernels.update(record["kernels"])
            if record["faults"]:
                call, threads, kind, text = record["faults"][0]
                self._fail(record["seed"], kind, f"call {call}, {threads} threads: {text}")
            self._finish(record["seed"])

    def crash(self, seed: int, text: str) -> None:
        """Count a process that ended before its program did."""
        with self._lock:
            self._fail(seed, "crash", text)
            self._finish(seed)

    def _fail(self, seed: int, kind: str, text: str) -> None:
        self.kinds[kind] += 1
        self.failing.append((seed, text))
        sys.stdout.write(f"{seed}: {' '.join(text.split())[:300]}\n")
        sys.stdout.flush()

    def _finish(self, seed: int) -> None:
        self.counts["programs"] += 1
        self.done = _joined(self.done, seed)
        if time.monotonic() > self._saved + EVERY:
            self.save()

    def save(self) -> None:
        """Write the state, whole or not at all."""
        self._saved = time.monotonic()
        if self._file is None:
            return
        kept = {
            "mode": self._mode, "seconds": self._seconds(), "done": self.done, "counts": self.counts,
            "kinds": self.kinds, "failing": self.failing, "kernels": sorted(self.kernels),
        }
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps(kept))
        new.replace(self._file)

    def _seconds(self) -> float:
        return self.before + time.monotonic() - self.began

    def summary(self) -> str:
        """Return the counts as text."""
        took, c = self._seconds(), self.counts
        programs = max(c["programs"], 1)
        lines = [
            f"{c['programs']} programs in {took:.0f} s ({c['programs'] / took:.1f}/s), {c['calls']} calls,"
            f" {c['raised']} raised",
            f"{c['compiled']} programs ran kernels ({100 * c['compiled'] / programs:.0f} %,"
            f" {c['compiled'] / took:.1f}/s): {c['jit kernel_runs']:g} runs of {len(self.kernels)} distinct"
            " kernels",
            f"{c['text']} texts of functions, each with several sets of arguments; {c['real']} programs with"
            " kernels of the level users get, the others of LLVM's level 0",
            f"{c['rounding']} calls differ by rounding only, {c['undefined']} left out (undefined cast)",
            "  ".join(f"{n[4:]} {v:g}" for n, v in c.items() if n.startswith("jit ")),
            f"{len(self.failing)} differences  "
            + "  ".join(f"{k}: {n}" for k, n in self.kinds.most_common()),
        ]
        return "\n".join(lines)


def _joined(ranges: list[tuple[int, int]], seed: int) -> list[tuple[int, int]]:
    """Return ranges with one more number in them."""
    found: list[tuple[int, int]] = []
    for first, last in sorted([*ranges, (seed, seed + 1)]):
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(last, found[-1][1])
        else:
            found.append((first, last))
    return found
