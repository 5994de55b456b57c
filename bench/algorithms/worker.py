"""One system on one case, in a process of its own."""

from __future__ import annotations

import gc
import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bench.algorithms.cases import Case, iterations, objective, work
from bench.algorithms.systems import Entered, NotHere, enter

STATUS, MARK = Path("/proc/self/status"), Path("/proc/self/clear_refs")
LEAST, MOST, TOLD = 3, 100_000, 200  # calls that are made, and how many of them are written down
NEAR = 1.1  # times the steady time: full speed


def memory(key: str) -> int:
    """Return what the system says of this process: "VmRSS" is now, "VmHWM" the most since the mark."""
    lines = STATUS.read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(key))


def timed(entered: Entered) -> tuple[float, Any]:
    """Return the seconds of a call, by the clock of the system if it has one, and what it returns."""
    start = time.perf_counter()
    result = entered.call()
    taken = time.perf_counter() - start
    return (entered.clock() if entered.clock else taken), result


def called(entered: Entered, seconds: float) -> tuple[list[float], list[int], Any]:
    """Call again and again, for `seconds`; return the times, the memory after the first and at last."""
    gc.collect()
    MARK.write_text("5")
    before, begun = memory("VmRSS"), time.perf_counter()
    first, result = timed(entered)
    times, peaks = [first], [memory("VmHWM") - before]
    while len(times) < MOST and (len(times) < LEAST or time.perf_counter() - begun < seconds):
        taken, result = timed(entered)
        times.append(taken)
    peaks.append(memory("VmHWM") - before)
    return times, peaks, result


def steady(times: list[float]) -> float:
    """Return the median of the later half of the calls, the first call never among them."""
    return median(times[max(len(times) // 2, 1):] or times)


def until_full_speed(times: list[float]) -> float:
    """Return how many seconds went by until a call began that was as fast as later ones."""
    near, passed = NEAR * steady(times), 0.0
    for taken in times:
        if taken <= near:
            return passed
        passed += taken
    return passed


def summary(times: list[float]) -> dict[str, Any]:
    """Return what is kept of the times."""
    return {
        "first": times[0], "steady": steady(times), "least": min(times),
        "to_full_speed": until_full_speed(times),
        "count": len(times), "total": sum(times), "times": [float(f"{t:.4g}") for t in times[:TOLD]],
    }


def measured(case: Case, system: str, seconds: float) -> dict[str, Any]:
    """Return what is found out about `system` on `case`."""
    task = work(case)
    begun = time.perf_counter()
    entered = enter(system, case.script, task.plain, task.arguments)
    ready = time.perf_counter() - begun
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        times, peaks, result = called(entered, seconds)
    found = summary(times) | {
        "objective": objective(result), "iterations": iterations(result), "import": ready,
        "peak_first": peaks[0], "peak": peaks[1], "changed": entered.changed,
        "argument_bytes": sum(a.nbytes for a in task.arguments if isinstance(a, np.ndarray)),
        "warnings": len(told), **entered.counters(),
    }
    entered.close()
    return found


def attempt(function: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what `function` does, or why it could not."""
    try:
        return function()
    except (NotHere, ImportError) as error:
        return {"absent": f"{type(error).__name__}: {error}"[:300]}
    except Exception as error:  # what a peer cannot do is no end of the comparison
        return {"failed": f"{type(error).__name__}: {error}".strip()[:600]}


def main() -> None:
    wanted = json.loads(sys.argv[1])
    case = Case(**wanted["case"])
    print(json.dumps(attempt(lambda: measured(case, wanted["system"], wanted["seconds"]))), flush=True)


if __name__ == "__main__":
    main()
