"""Loops over elements: plain Python, decorated, and compiled by hand with Numba, side by side.

python -m bench.loops [name ...]
"""

from __future__ import annotations

import argparse
import copy
import gc
import math
import sys
import time
from statistics import geometric_mean, median
from typing import Any

import numba
import numpy as np

import jitla
from bench.element_loops import PROGRAMS, Program

SPAN = 0.08  # seconds that each way is measured at least
BAR = 0.9  # of the speed of Numba by hand
WAIT = 120.0  # seconds until a loop has to be compiled
CALLS, STEADY = 500, 0.5  # calls after which small loops are compiled, too; seconds they may take


def described(value: Any) -> Any:
    """Return all that can be seen of a result."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.strides, value.tobytes()
    if isinstance(value, (tuple, list)):
        return type(value).__name__, [described(each) for each in value]
    return type(value).__name__, repr(value)


def timed(function: Any, args: tuple[Any, ...]) -> tuple[float, Any]:
    """Return the seconds of a call on copies of `args`, and all that came of it."""
    given = copy.deepcopy(args)
    start = time.perf_counter()
    result = function(*given)
    return time.perf_counter() - start, (described(result), described(given))


def measure(program: Program) -> dict[str, Any]:
    """Measure one program."""
    args = program.make(np.random.default_rng(0))
    plain, fast = program.function, jitla.jit(program.function)
    wanted = timed(plain, args)[1]
    once = median(timed(plain, args)[0] for _ in range(3))
    gc.collect()  # what compilers left in this process is no program's
    first, found = timed(fast, args)
    same = found == wanted
    since = time.perf_counter()
    while time.perf_counter() - since < WAIT:
        same &= timed(fast, args)[1] == wanted
        stats = fast.stats()
        steady = stats["calls"] > CALLS or time.perf_counter() - since > STEADY
        if not stats["loops_waiting"] and stats["calls"] > 8 and steady:
            break
    by_hand: Any = numba.njit(plain) if program.numba else None
    try:
        begin = time.perf_counter()
        if by_hand is not None:
            by_hand(*copy.deepcopy(args))
        compiling = time.perf_counter() - begin
    except Exception:
        by_hand = None
    times: dict[str, list[float]] = {"plain": [], "fast": [], "numba": []}
    begin = time.perf_counter()
    while time.perf_counter() - begin < 3 * SPAN or len(times["plain"]) < 5:
        for name, function in (("plain", plain), ("fast", fast), ("numba", by_hand)):
            if function is not None:
                for _ in range(1 if name == "plain" else 4):
                    times[name].append(timed(function, args)[0])
    same &= timed(fast, args)[1] == wanted
    least = {name: min(found, default=math.nan) for name, found in times.items()}
    return {"name": plain.__name__, "kind": program.kind, "same": same, "once": once, "first": first,
            "compiling": compiling if by_hand is not None else math.nan, **least, "stats": fast.stats()}


def shown(row: dict[str, Any]) -> str:
    """Return a row of the table."""
    stats = row["stats"]
    return (f"{row['name']:<20} {row['kind']:<7} {1e3 * row['plain']:9.2f} {1e3 * row['first']:9.2f} "
            f"{1e3 * row['fast']:9.3f} {1e3 * row['numba']:9.3f} {row['plain'] / row['fast']:8.1f} "
            f"{row['numba'] / row['fast']:6.2f} {1e3 * (row['first'] - allowed(row) * row['once']):8.1f} "
            f"{stats['loops']:3.0f}/{stats['loops_refused']:.0f} {'same' if row['same'] else 'DIFFERS'}")


def allowed(row: dict[str, Any]) -> float:
    """Return how often a plain call a first call may take, besides some milliseconds."""
    return 1.05 if row["kind"] == "kept" else 1.1


def summary(rows: list[dict[str, Any]]) -> list[str]:
    """Return what the table comes to: programs beyond each bar."""
    late = [row["name"] for row in rows if row["first"] > allowed(row) * row["once"] + (
        1e-3 if row["kind"] == "kept" else 30e-3)]
    behind = [row["name"] for row in rows if row["numba"] < BAR * row["fast"]]
    slower = [row["name"] for row in rows if row["fast"] > 1.05 * row["plain"]]
    return [f"{what}: {', '.join(names) or 'none'}" for what, names in (
        ("first call beyond 1.1 of plain and 30 ms, kept by Python 1.05 and 1 ms", late),
        (f"below {BAR} of Numba by hand", behind), ("slower than plain", slower))]


def main() -> int:
    """Measure, print the table and what it comes to."""
    ask = argparse.ArgumentParser()
    ask.add_argument("names", nargs="*")
    asked = ask.parse_args()
    chosen = [p for p in PROGRAMS if not asked.names or p.function.__name__ in asked.names]
    jitla.jit(lambda x: x * 2.0 + 1.0)(np.ones(100_000))  # what is loaded once is no program's
    begun, given = jitla.jit(PROGRAMS[0].function), PROGRAMS[0].make(np.random.default_rng(1))
    timed(begun, given)
    while begun.stats()["loops_waiting"]:  # until the compiler is loaded
        timed(begun, given)
    print(f"{'program':<20} {'kind':<7} {'plain ms':>9} {'first ms':>9} {'jitla ms':>9} {'numba ms':>9} "
          f"{'speedup':>8} {'/numba':>6} {'1st over':>8} loops")
    rows = []
    for program in chosen:
        rows.append(measure(program))
        print(shown(rows[-1]), flush=True)
    for kind in ("scalar", "mixed", "kept"):
        ratios = [row["plain"] / row["fast"] for row in rows if row["kind"] == kind]
        if ratios:
            print(f"{kind}: {geometric_mean(ratios):.2f} times as fast as plain, least {min(ratios):.2f}")
    print(*summary(rows), sep="\n")
    return not all(row["same"] for row in rows)


if __name__ == "__main__":
    sys.exit(main())
