"""What all workers found, added up, and kept in a file so that a long run goes on where it was.

The file has a line for each program, written when the program is done: however a run ends, what it counted
is what has run.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

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
        self.undrawn: list[tuple[int, int]] = []
        self.kernels: set[str] = set()
        self.done: list[tuple[int, int]] = []
        self.before = 0.0  # seconds of earlier runs
        self.began = time.monotonic()
        self._lock = threading.Lock()
        self._file: TextIO | None = None
        if state:
            self._resume(Path(state), {"mode": kernels})

    def _resume(self, path: Path, head: dict) -> None:
        """Count what was written; a last line that is not whole is of a program that was not counted."""
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        whole = [line for line in lines if line.endswith("\n")]
        if whole and json.loads(whole[0]) != head:
            raise SystemExit(f"{path} is of another run: {whole[0].strip()}")
        for record in map(json.loads, whole[1:]):
            self.before = record["after"]
            self._count(record)
        if len(whole) < max(len(lines), 1):
            path.write_text("".join(whole) or json.dumps(head) + "\n")
        self._file = path.open("a")

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
        """Take note of one program."""
        if record["faults"]:
            call, threads, kind, text = record["faults"][0]
            record = {**record, "failed": (kind, f"call {call}, {threads} threads: {text}")}
        self._note({k: v for k, v in record.items() if k != "faults"})

    def crash(self, seed: int, text: str) -> None:
        """Take note of a process that ended before its program did."""
        self._note({"seed": seed, "failed": ("crash", text)})

    def skip(self, first: int, last: int, text: str) -> None:
        """Take note of programs that are none: NumPy or SciPy does not end while they are drawn."""
        self._note({"undrawn": (first, last), "why": text})

    def _note(self, record: dict) -> None:
        with self._lock:
            if self._file is not None:
                self._file.write(json.dumps({**record, "after": round(self._seconds(), 3)}) + "\n")
                self._file.flush()
            if "failed" in record:
                sys.stdout.write(f"{record['seed']}: {' '.join(record['failed'][1].split())[:300]}\n")
                sys.stdout.flush()
            self._count(record)

    def _count(self, record: dict) -> None:
        if "undrawn" in record:
            first, last = record["undrawn"]
            self.undrawn.append((first, last))
            self.done = _joined(self.done, first, last)
            return
        for name in COUNTED:
            self.counts[name] += record.get(name, 0)
        for name, value in record.get("counted", {}).items():
            self.counts[f"jit {name}"] += value
        self.kernels.update(record.get("kernels", ()))
        seed = record["seed"]
        if "failed" in record:
            kind, text = record["failed"]
            self.kinds[kind] += 1
            self.failing.append((seed, text))
        self.counts["programs"] += 1
        self.done = _joined(self.done, seed, seed + 1)

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
        if self.undrawn:
            count = sum(last - first for first, last in self.undrawn)
            lines.append(f"{count} not drawn, where NumPy or SciPy alone does not come to an end: "
                         + " ".join(f"{first}:{last}" for first, last in self.undrawn))
        return "\n".join(lines)


def _joined(ranges: list[tuple[int, int]], at: int, end: int) -> list[tuple[int, int]]:
    """Return ranges with one more in them."""
    found: list[tuple[int, int]] = []
    for first, last in sorted([*ranges, (at, end)]):
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(last, found[-1][1])
        else:
            found.append((first, last))
    return found
