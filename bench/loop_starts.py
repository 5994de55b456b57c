"""First calls of loops over elements: plain Python and decorated, each in a process of its own.

python -m bench.loop_starts [--later] [--rounds 9] [name ...]
"""

from __future__ import annotations

import argparse
import copy
import os
import signal
import struct
import sys
import time
from statistics import median
from typing import Any

import numpy as np

import jitla
from bench.element_loops import PROGRAMS, Program

BARS = {"kept": (1.05, 1e-3)}  # times a plain call, and seconds beside
BAR = (1.1, 30e-3)


def one_call(function: Any, args: tuple[Any, ...]) -> float:
    """Return the seconds of one call in a process of its own; it ends, and all that it has begun."""
    receiving, sending = os.pipe()
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        given = copy.deepcopy(args)
        start = time.perf_counter()
        function(*given)
        os.write(sending, struct.pack("d", time.perf_counter() - start))
        os.close(sending)
        time.sleep(60)  # until it is ended with what it has begun
        os._exit(0)
    os.close(sending)
    found = os.read(receiving, 8)
    os.close(receiving)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    if len(found) < 8:
        raise RuntimeError("a call has failed")
    return float(struct.unpack("d", found)[0])


def measure(program: Program, rounds: int) -> tuple[float, float]:
    """Return the medians of plain calls and of first decorated ones, which take turns."""
    args = program.make(np.random.default_rng(0))
    ways = [program.function, jitla.jit(program.function)]
    times: list[list[float]] = [[], []]
    for number in range(rounds + 1):
        for way in (0, 1) if number % 2 else (1, 0):
            times[way].append(one_call(ways[way], args))
    return median(times[0][1:]), median(times[1][1:])  # the first ones read files


def _doubled(x: Any) -> Any:
    for i in range(len(x)):
        x[i] = 2.0 * x[i]
    return x


def _counted(x: Any) -> Any:
    counts: dict[int, int] = {}
    for i in range(len(x)):
        counts[int(x[i])] = counts.get(int(x[i]), 0) + 1
    return counts


def main() -> int:
    """Measure, print the table and what is over its bar."""
    ask = argparse.ArgumentParser()
    ask.add_argument("names", nargs="*")
    ask.add_argument("--rounds", type=int, default=9)
    ask.add_argument("--later", action="store_true")
    asked = ask.parse_args()
    if asked.later:  # rooms are loaded then, and the file of the programs is read
        jitla.jit(_doubled)(np.ones(9))
        jitla.jit(_counted)(np.ones(9))
    chosen = [p for p in PROGRAMS if not asked.names or p.function.__name__ in asked.names]
    print(f"{'program':<20} {'kind':<7} {'plain ms':>9} {'first ms':>9} {'more ms':>8} {'allowed':>8}")
    late = []
    for program in chosen:
        name, (times, beside) = program.function.__name__, BARS.get(program.kind, BAR)
        plain, first = measure(program, asked.rounds)
        most = (times - 1.0) * plain + beside
        print(f"{name:<20} {program.kind:<7} {1e3 * plain:9.2f} {1e3 * first:9.2f} "
              f"{1e3 * (first - plain):8.2f} {1e3 * most:8.2f}{' over' if first - plain > most else ''}",
              flush=True)
        late += [name] if first - plain > most else []
    print(f"over the bar: {', '.join(late) or 'none'} ({len(late)} of {len(chosen)})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
