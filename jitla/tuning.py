"""Tuning a function: its kernels are run with other schedules, on the arrays of one call.

Knows: which kernels a call runs, how their results are compared. Must not know: how a search goes on.
Receives a function, arguments and budgets; returns what was found, which later calls use.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from threading import get_ident
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from jitla.config import Config, current
from jitla.errors import BackendError, ScheduleError
from jitla.fusion import Point, Space, Values
from jitla.gate import GATE
from jitla.predictions import duration
from jitla.recompilation import Spec, call_traced
from jitla.recompile import UNTUNED, Choice, Key, Made
from jitla.state import State
from jitla.tuner import Found, Record, Records, Settings, Stopwatch, search

__all__ = ["Tuned", "Tuning", "tune"]

TRIALS, SECONDS = 64, 30.0
LEAST = 20e-6  # seconds that a kernel takes; of a shorter one there is nothing to gain
CONFIRM = 60  # turns of the best and the untuned one, after the search: what chose it does not count
Array = np.ndarray[Any, Any]


class Tuned(NamedTuple):
    """One kernel: what runs it best, seconds of that and untuned, what was tried, and why nothing was."""

    key: Key
    chosen: Values
    seconds: float
    untuned: float
    trials: int
    points: int
    refused: int
    note: str = ""


class Tuning(tuple[Tuned, ...]):
    """What was found for every kernel, the one that took longest first; ``str()`` is a table."""

    def __str__(self) -> str:
        lines = [f"{'kernel':10}  {'untuned':>9}  {'tuned':>9}  {'of':>6}  schedule"]
        for t in self:
            how = ", ".join(f"{k}={v}" for k, v in t.chosen.items() if v != "") or "as untuned"
            how += f"   # {t.note}" if t.note else ""
            lines.append(f"{t.key.kernel[:10]}  {duration(t.untuned):>9}  {duration(t.seconds):>9}  "
                         f"{f'{t.trials}/{t.points}':>6}  {how}")
        return "\n".join(lines if self else ["no kernel ran"]) + "\n"

    __repr__ = __str__


@dataclass(slots=True)
class Task:
    """A kernel of the call: how to make it, what it was run on, how long that took."""

    key: Key
    outputs: int
    space: Space
    make: Callable[[Values], Made]
    operands: tuple[Any, ...] = ()
    seconds: float = 0.0
    runs: int = 0
    results: list[Array] = field(default_factory=list)

    def ready(self) -> str:
        """Give it results of its own to write to; return why it cannot be tuned, or nothing."""
        given, results = self.operands[:-self.outputs], self.operands[-self.outputs:]
        arrays = [x for x in given if isinstance(x, np.ndarray)]
        if any(np.may_share_memory(r, x) for r in results for x in arrays):
            return "it writes where it reads"
        self.results = [r.copy("K") for r in results]
        if any(a.strides != b.strides for a, b in zip(results, self.results, strict=True)):
            return "its results lie apart"
        return ""

    def runner(self, values: Values) -> Callable[[], int]:
        """Return what runs it with knobs chosen like this."""
        block, launch = self.make(values)
        return partial(launch, block, *self.operands[:-self.outputs], *self.results)


class Session:
    """Runs the kernels of the thread that tunes untuned, and remembers what they were run on."""

    def __init__(self) -> None:
        self.tasks: dict[Key, Task] = {}
        self.owner = get_ident()
        self.chosen: dict[Key, Values] = {}
        self.said: dict[Key, str] = {}

    def block(self, choice: Choice) -> Made:
        """Return the untuned block of a kernel, and what runs and times it."""
        block, launch = choice.make(UNTUNED)
        if get_ident() != self.owner:
            return block, launch
        key = choice.key
        if key not in self.tasks:
            self.tasks[key] = Task(key, choice.outputs, choice.space(), choice.make)
        return block, partial(self._run, self.tasks[key], launch)

    def _run(self, task: Task, launch: Callable[..., int], block: bytes, *operands: Any) -> int:
        start = perf_counter()
        flags = launch(block, *operands)
        task.seconds += perf_counter() - start
        task.runs += 1
        if not task.operands and len(task.space.points) > 1:
            task.operands = operands
        return flags


def tune(state: State, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], trials: int,
         seconds: float) -> Tuning:
    """Search schedules for the kernels of a call; nothing else compiles for this thread meanwhile."""
    config = current().with_changes(state.changes)
    session = Session()
    args, kwargs = tuple(map(_own, args)), {k: _own(v) for k, v in kwargs.items()}
    GATE.renew(session)
    state.clear()
    try:
        call_traced(state, function, args, kwargs)
        records = GATE.records(config, new=True)
        return Tuning(_searched(session, records, config, trials, seconds))
    finally:
        GATE.renew()
        state.clear()  # what was bound meanwhile knows nothing of what was found


def _own(value: Any) -> Any:
    """Return an argument that the call may write into."""
    return value.make() if isinstance(value, Spec) else deepcopy(value)


def _searched(session: Session, records: Records, config: Config, trials: int,
              seconds: float) -> Iterator[Tuned]:
    """Tune kernel by kernel; each may take the share of the time that it has of the call."""
    tasks = sorted(session.tasks.values(), key=lambda t: -t.seconds)
    worth = [t for t in tasks if t.operands and t.seconds / t.runs >= LEAST]
    total = sum(t.seconds for t in worth)
    going = True
    for task in tasks:
        each = task.seconds / max(task.runs, 1)
        space = task.space if config.numerics == "relaxed" else task.space.exact()
        why = "stopped" if not going else "nothing to choose" if len(space.points) < 2 else \
            "too short" if task not in worth else task.ready()
        if why:
            yield Tuned(task.key, {}, each, each, 0, len(space.points), 0, why)
            continue
        trial = _Trial(task, space, seconds * task.seconds / total)
        found = search(space, trial.measure, Settings(trials=trials), history=None,
                       warm=_warm(records, task, space), observe=trial.tell, going=trial.going)
        going = not found.interrupted
        yield trial.finish(found, records)


def _warm(records: Records, task: Task, space: Space) -> list[Point]:
    """Return what was best for other sizes of the kernel, as far as it is legal here."""
    near = records.near(task.key.kernel, task.key.shape, GATE.host())
    return [p for r in near if (p := space.nearest(r.config)) is not None]


class _Trial:
    """The search for one kernel: measures, compares results with those of the untuned one, reports."""

    def __init__(self, task: Task, space: Space, seconds: float) -> None:
        self.task, self.space = task, space
        self.end = perf_counter() + seconds
        self.watch = Stopwatch(task.runner(UNTUNED))
        self.expected = [r.copy("K") for r in task.results]
        self.refused = 0

    def going(self) -> bool:
        """Tell whether there is time left."""
        return perf_counter() < self.end

    def measure(self, point: Point) -> float | None:
        """Return the seconds of a point; None if it does not compute the same."""
        if point == self.space.default:
            return self.watch.once
        try:
            run = self.task.runner(self.space.values(point))
        except (BackendError, ScheduleError):
            self.refused += 1
            return None
        if not self._agrees(run):
            self.refused += 1
            return None
        return self.watch.time(run).ratio * self.watch.once

    def _agrees(self, run: Callable[[], int]) -> bool:
        """Tell whether it gives the untuned results: to the bit, or nearly, where sums may go another way."""
        for result in self.task.results:
            result.view(np.uint8).fill(255) if result.flags.c_contiguous else result.fill(0)
        run()
        exact = len(self.space.points) == len(self.task.space.exact().points)
        return all(_same(a, b, exact) for a, b in zip(self.task.results, self.expected, strict=True))

    def tell(self, found: Found) -> None:
        """Show how far the search is."""
        if current().progress and sys.stderr is not None and found.best is not None:
            best = found.best[1] / self.watch.once
            sys.stderr.write(f"\rjitla: tuning {self.task.key.kernel[:10]}: {len(found.points)} of "
                             f"{len(self.space.points)} schedules, best {best:.2f} of untuned ")

    def finish(self, found: Found, records: Records) -> Tuned:
        """Time the best and the untuned one once more, and write down what was measured."""
        if current().progress and sys.stderr is not None and found.points:
            sys.stderr.write("\n")
        point = found.best[0] if found.best is not None else self.space.default
        make = partial(Record, self.task.key.kernel, self.task.key.shape, GATE.host())
        every = [make(self.space.values(p), c, self.watch.once)
                 for p, c in zip(found.points, found.costs, strict=True) if c is not None]
        untuned = self.watch.once
        seconds, noise, chosen = untuned, 0.0, self.space.values(self.space.default)
        if point != self.space.default:
            timing = self.watch.time(self.task.runner(self.space.values(point)), CONFIRM)
            seconds, untuned, noise, chosen = *timing, self.space.values(point)
        last = make(chosen, seconds, untuned, noise, True)
        records.add([*every, last])
        size = len(self.space.points)
        if not last.counts:
            return Tuned(self.task.key, {}, untuned, untuned, len(found.points), size, self.refused,
                         "" if point == self.space.default else "no better than noise")
        return Tuned(self.task.key, chosen, seconds, untuned, len(found.points), size, self.refused)


def _same(made: Array, expected: Array, exact: bool) -> bool:
    if not exact and made.dtype.kind in "fc":
        return bool(np.allclose(made, expected, rtol=1e-4 if made.dtype.itemsize < 8 else 1e-9,
                                equal_nan=True))
    return made.tobytes("A") == expected.tobytes("A")
