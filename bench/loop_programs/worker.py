"""One program in one mode, called for some seconds; its command line is SUITE NAME MODE FOLDER SECONDS.

The plain mode leaves the expected results in the folder; results of other modes are compared with them at
every call. Seconds are wall time; CPU time of the process is measured beside, as it suffers less from other
processes.
"""

from __future__ import annotations

import copy
import json
import pickle
import random
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import numpy as np

from bench.loop_programs.comparison import BITS, DIFFERENT, LABELS, compare
from bench.loop_programs.program import Mode, Program
from bench.loop_programs.suites import find_program

EXPECTED = "expected.pickle"
MODES = ("plain", "jitla", "sync", "njit")
MIN_CALLS = 3
MAX_PLAIN_SECONDS, MAX_NJIT_SECONDS, AFTER_SECONDS = 0.6, 0.4, 0.3
MAX_WALL = 3.0  # times the seconds of calls, with comparing and restoring in between
FASTER = 1.5  # than plain: what counts as compiled code
SHOWN_CALLS = 200
WINDOWS = (1.0, 4.0)  # seconds of calls


@dataclass
class Expected:
    """What a plain call returns, and what it leaves in arguments that it modifies, by their positions."""

    result: Any
    modified: dict[int, Any]
    seconds: float = 0.0  # median of a plain call
    cpu: float = 0.0


@dataclass
class Calls:
    """Seconds of calls, when each began, and the worst difference of a result or an argument."""

    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)
    difference: int = BITS
    first_different: int | None = None  # number of the call


def mode_of(name: str) -> Mode:
    """Return a mode by its name; compilers are imported only where they are used."""
    if name == "plain":
        return Mode(name)
    if name == "njit":
        import numba  # noqa: PLC0415
        return Mode(name, numba.njit, all_helpers=True)
    import jitla  # noqa: PLC0415
    return Mode(name, jitla.jit(compile="sync") if name == "sync" else jitla.jit)


def restore(arguments: list[Any], saved: tuple[Any, ...], modified: Iterable[int]) -> None:
    """Give modified arguments their first values again, arrays in place."""
    for i in modified:
        if isinstance(arguments[i], np.ndarray):
            np.copyto(arguments[i], saved[i])
        else:
            arguments[i] = copy.deepcopy(saved[i])


def find_expected(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Expected:
    """Call the plain function once for its results and side effects."""
    used = copy.deepcopy(arguments)
    seed()
    result = copy.deepcopy(function(*used))
    return Expected(result, {
        i: used[i] for i, value in enumerate(arguments) if compare(value, used[i]) != BITS})


def seed() -> None:
    """Seed the global generators that some programs draw from."""
    random.seed(1)
    np.random.seed(1)


def call_repeatedly(
    function: Callable[..., Any], arguments: tuple[Any, ...], expected: Expected, seconds: float,
    min_calls: int = MIN_CALLS,
) -> Calls:
    """Call a function for some seconds; arguments are compared and restored between calls, untimed."""
    saved, current = copy.deepcopy(arguments), list(arguments)
    calls, spent, begin = Calls(), 0.0, time.perf_counter()
    while len(calls.seconds) < min_calls or (
            spent < seconds and time.perf_counter() - begin < MAX_WALL * seconds):
        seed()
        cpu, start = time.process_time(), time.perf_counter()
        result = function(*current)
        stop, cpu_stop = time.perf_counter(), time.process_time()
        calls.seconds.append(stop - start)
        calls.cpu.append(cpu_stop - cpu)
        calls.starts.append(start - begin)
        spent += stop - start
        difference = max([compare(expected.result, result), *(
            compare(expected.modified.get(i, saved[i]), value) for i, value in enumerate(current))])
        del result
        if difference == DIFFERENT and calls.first_different is None:
            calls.first_different = len(calls.seconds) - 1
        calls.difference = max(calls.difference, difference)
        restore(current, saved, expected.modified)
    return calls


def compiled_after(calls: Calls, plain: float, plain_cpu: float) -> float | None:
    """Return the seconds to the first of two calls in a row that are FASTER than plain, if there are any.

    CPU time decides; wall time does, too, if the program is FASTER in the end, perhaps on several threads.
    """
    parallel = steady(calls.seconds) * FASTER <= plain
    fast = [cpu * FASTER <= plain_cpu or (parallel and wall * FASTER <= plain)
            for wall, cpu in zip(calls.seconds, calls.cpu, strict=True)]
    for i, this in enumerate(fast):
        if this and (i + 1 == len(fast) or fast[i + 1]):
            return calls.starts[i]
    return None


def steady(times: list[float]) -> float:
    """Return the median of the last third."""
    return median(times[-max(1, len(times) // 3):])


@dataclass(frozen=True)
class Plain:
    """Seconds and CPU seconds of a plain call, measured before and after the calls of a mode.

    Other processes come and go: speed-ups are against the geometric mean, the time to compiled code is
    against the lesser.
    """

    seconds: tuple[float, ...]
    cpu: tuple[float, ...]


def summarize(calls: Calls, reference: Plain) -> dict[str, Any]:
    """Return the figures of a mode against plain calls."""
    plain, plain_cpu = geometric_mean(reference.seconds), geometric_mean(reference.cpu)
    total = np.cumsum(calls.seconds)
    count = np.arange(1, len(total) + 1)
    figures: dict[str, Any] = {
        "calls": len(total), "first": calls.seconds[0],
        "compiled": compiled_after(calls, min(reference.seconds), min(reference.cpu)),
        "steady": steady(calls.seconds), "steady_cpu": steady(calls.cpu),
        "same": LABELS[calls.difference], "first_different": calls.first_different,
        "plain": reference.seconds, "plain_cpu": reference.cpu,
        **{name: [round(s, 7) for s in getattr(calls, name)[:SHOWN_CALLS]]
           for name in ("seconds", "cpu", "starts")}}
    figures["speedup_steady"] = plain / figures["steady"]
    figures["speedup_cpu"] = plain_cpu / max(figures["steady_cpu"], 1e-7)
    for window in WINDOWS:
        inside = int(np.searchsorted(total, window)) + 1  # with the call that ends the window
        whole = inside <= len(total)
        inside = min(inside, len(total))
        if whole or window == WINDOWS[0]:
            figures[f"speedup_{window:.0f}s"] = float(inside * plain / total[inside - 1])
        if window == WINDOWS[0]:
            figures["regret"] = max(0.0, float((total - count * plain)[:inside].max()))
    return figures


def measure(program: Program, mode_name: str, folder: Path, seconds: float) -> dict[str, Any]:
    """Measure a program in a mode, and return its figures."""
    plain_mode = Mode("plain")
    if mode_name == "plain":
        call = program.load(plain_mode)
        expected = find_expected(*call)
        calls = call_repeatedly(*call, expected, min(seconds, MAX_PLAIN_SECONDS))
        expected.seconds, expected.cpu = median(calls.seconds), median(calls.cpu)
        (folder / EXPECTED).write_bytes(pickle.dumps(expected))
        return {"calls": len(calls.seconds), "median": expected.seconds, "cpu": expected.cpu,
                "same": LABELS[calls.difference],
                "seconds": [round(s, 7) for s in calls.seconds[:SHOWN_CALLS]]}
    expected = pickle.loads((folder / EXPECTED).read_bytes())
    call = program.load(mode_of(mode_name))
    limit = min(seconds, MAX_NJIT_SECONDS) if mode_name == "njit" else seconds
    if mode_name == "njit":
        first = call_repeatedly(*call, expected, 0.0, 1)
        calls = call_repeatedly(*call, expected, limit)
        figures = summarize(calls, Plain((expected.seconds,), (expected.cpu,)))
        figures["compile_seconds"] = max(0.0, first.seconds[0] - figures["steady"])
        return figures
    calls = call_repeatedly(*call, expected, limit)
    stats = getattr(call.function, "stats", None)
    counters = dict(stats()) if stats is not None else {}
    # again, as other processes may slow the machine down in the meantime
    after = call_repeatedly(*program.load(plain_mode), expected, AFTER_SECONDS, 2)
    reference = Plain((expected.seconds, median(after.seconds)), (expected.cpu, median(after.cpu)))
    return {**summarize(calls, reference),
            "stats": {k: v for k, v in counters.items() if isinstance(v, (int, float)) and v}}


def main(suite: str, name: str, mode: str, folder: str, seconds: str) -> None:
    """Measure and leave the figures, or the error, in a file of the folder."""
    try:
        figures = measure(find_program(suite, name), mode, Path(folder), float(seconds))
    except Exception as error:
        lines = str(error).strip().splitlines()
        figures = {"failed": f"{type(error).__name__}: {' '.join(lines)[:300]}"}
    (Path(folder) / f"{mode}.json").write_text(json.dumps(figures), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
