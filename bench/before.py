"""This jitla against another checkout of it on the rows of `bench.kernels`: run times, and first calls.

Each checkout has a process of its own, with an empty cache. They run in turns, one waits while the other
runs: what else the machine does meets both. A first call traces, plans and compiles the kernels of its row;
other rows that were compiled before it in the process are the same for both.

git archive COMMIT | tar -x -C FOLDER; python -m bench.before FOLDER [--only softmax,blur] [--scale 0.1]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import jitla
from bench.peers import ROWS

HERE = Path(__file__).resolve().parent.parent
LEAST = 0.002  # seconds: shorter calls are made several times in a row


class Side:
    """A process that imports jitla from a folder, and rows from here."""

    def __init__(self, folder: Path, cache: str) -> None:
        room = Path(tempfile.mkdtemp(dir=cache))
        (room / "bench").symlink_to(HERE / "bench")
        (room / "jitla").symlink_to(folder / "jitla")
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "bench.before", "--serve"], cwd=room, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(room), "JITLA_CACHE_DIR": str(room / "cache")})

    def ask(self, *what: Any) -> Any:
        """Send a question and wait for the answer."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def end(self) -> None:
        """Let the process end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def serve() -> None:
    """Answer: names of rows, seconds of a first call, seconds of a call."""
    rows = {row.name: row for row in ROWS if not row.long}
    call: Callable[[], object] = list
    for line in sys.stdin:
        what, *rest = json.loads(line)
        answer: Any = list(rows)
        if what == "row":
            row = rows[rest[0]]
            given = row.make(np.random.default_rng(5), rest[1])
            fast = jitla.jit(row.plain, compile="sync")
            call = lambda fast=fast, given=given: fast(*given)  # noqa: E731
            answer = _seconds(call, 1)
            call()
        elif what == "call":
            once = _seconds(call, 1)
            answer = _seconds(call, max(1, int(LEAST / once)))
        print(json.dumps(answer), flush=True)


def _seconds(call: Callable[[], object], times: int) -> float:
    start = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - start) / times


def compared(sides: list[Side], name: str, scale: float, rounds: int) -> dict[str, list[float]]:
    """Return seconds of first calls, and the medians and leasts of calls, [other, this]."""
    first = [side.ask("row", name, scale) for side in sides]
    taken = [[side.ask("call") for side in sides] for _ in range(rounds)]
    columns = list(zip(*taken, strict=True))
    return {"first": first, "median": [median(c) for c in columns], "least": [min(c) for c in columns]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--only", default="")
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--serve", action="store_true")
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    found: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as cache:
        sides = [Side(options.folder.resolve(), cache), Side(HERE, cache)]
        names = [set(side.ask("rows")) for side in sides]
        parts = options.only.lower().split(",")
        for name in sorted(names[0] & names[1]):
            if any(p in name.lower() for p in parts):
                found[name] = compared(sides, name, options.scale, options.rounds)
                cells = [f"{k} {old * 1e3:9.3f} {new * 1e3:9.3f} {new / old:6.2f}"
                         for k, (old, new) in found[name].items()]
                print(f"{name:40}", *cells, flush=True)
        for side in sides:
            side.end()
    for kind in ("first", "median", "least"):
        ratios = [new / old for old, new in (r[kind] for r in found.values())]
        print(f"this ÷ other, {kind}: median of {len(ratios)} rows {median(ratios):.3f}, "
              f"from {min(ratios):.2f} to {max(ratios):.2f}")
    print(json.dumps({"bench": "before", "scale": options.scale, "rows": found}))


if __name__ == "__main__":
    main()
