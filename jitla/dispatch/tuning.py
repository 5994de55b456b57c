"""`jitla.tune`: searches faster schedules for the kernels of one call, on the arrays of that call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from threading import get_ident
from time import perf_counter
from typing import Any

from jitla import packages
from jitla.classes import dataclass
from jitla.config import Config, current
from jitla.dispatch.control import (
    call_traced,
    fresh_argument,
)
from jitla.dispatch.function_state import FunctionState
from jitla.engine import ENGINE
from jitla.errors import ConfigError
from jitla.explanations.records import duration
from jitla.fusion import Space, Values
from jitla.recompile import UNTUNED, KernelKey, Launchable, TunableKernel
from jitla.tuner.kernel_search import (
    KernelSearch,
    TunedKernel,
    measuring_options,
)
from jitla.tuner.measurement import MeasurementSettings
from jitla.tuner.model import Learner, Trees
from jitla.tuner.records import Records
from jitla.tuner.search import Settings
from jitla.tuner.transport import (
    Job,
    OperandMemory,
    Unsendable,
)

__all__ = ["TunedKernel", "Tuning", "tune"]

BUILT_IN: dict[str, Callable[..., Learner] | None] = {"smooth": None, "trees": Trees}
MIN_KERNEL_SECONDS = 20e-6  # seconds that a kernel takes; of a shorter one there is nothing to gain


class Tuning(tuple[TunedKernel, ...]):
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
class KernelTask:
    """A kernel of the call: what may be chosen of it, what it was run on, how long that took."""

    choice: TunableKernel
    space: Space
    operands: tuple[Any, ...] = ()
    seconds: float = 0.0
    runs: int = 0

    def job(self, config: Config) -> Job:
        """Return it as other processes run it; raise `Unsendable` if none can."""
        memory = OperandMemory.copy_of(self.operands, self.choice.outputs)
        return Job(self.choice.portable(), memory, self.choice.outputs,
                   measuring_options(config))


class TuningSession:
    """Runs kernels of the tuning thread with default schedules, and records their operands and times."""

    def __init__(self) -> None:
        self.tasks: dict[KernelKey, KernelTask] = {}
        self.owner = get_ident()
        self.chosen: dict[KernelKey, Values] = {}
        self.notes: dict[KernelKey, str] = {}

    def block(self, choice: TunableKernel) -> Launchable:
        """Return the untuned block of a kernel, and what runs and times it."""
        block, launch = choice.make(UNTUNED)
        if get_ident() != self.owner:
            return block, launch
        key = choice.key
        if key not in self.tasks:
            self.tasks[key] = KernelTask(choice, choice.space())
        return block, partial(self._run, self.tasks[key], launch)

    def _run(self, task: KernelTask, launch: Callable[..., int], block: bytes, *operands: Any) -> int:
        start = perf_counter()
        flags = launch(block, *operands)
        task.seconds += perf_counter() - start
        task.runs += 1
        if not task.operands and len(task.space.points) > 1:
            task.operands = operands
        return flags


def tune(state: FunctionState, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], trials: int,
         seconds: float, learner: str = "smooth",
         measurement: MeasurementSettings = MeasurementSettings()) -> Tuning:
    """Search schedules for the kernels of a call; nothing else compiles for this thread meanwhile."""
    settings = Settings(trials=trials, learner=_learner(learner))
    config = current().with_changes(state.changes)
    session = TuningSession()
    args, kwargs = tuple(map(fresh_argument, args)), {k: fresh_argument(v) for k, v in kwargs.items()}
    ENGINE.use_tuning_session(session)
    state.clear()
    try:
        call_traced(state, function, args, kwargs)
        records = ENGINE.schedule_records_to_extend(config)
        end = perf_counter() + seconds
        layers = [t for device in ENGINE.compiler(config).devices
                  if isinstance(device, packages.accel.Device) and device.layers
                  for t in packages.tuner.accel_layers.tune_layers(
                      device, records, settings, end, config.numerics == "relaxed")]
        return Tuning((*layers, *_search_kernels(
            session, records, config, settings, end - perf_counter(), measurement)))
    finally:
        ENGINE.use_tuning_session()
        state.clear()  # what was bound meanwhile knows nothing of what was found


def _learner(name: str) -> Callable[..., Learner] | None:
    """Return what learns scores; raise `ConfigError` if there is no such thing here."""
    if name in BUILT_IN:
        return BUILT_IN[name]
    if name != "lightgbm":
        there = ", ".join(map(repr, BUILT_IN))
        raise ConfigError(f"learner={name!r} is not possible; use {there} or 'lightgbm'")
    try:
        found: Callable[..., Learner] = packages.tuner.lightgbm_model.LightGbmTrees
    except ImportError as error:
        raise ConfigError(f"LightGBM is not here: pip install 'jitla[tuner]' ({error})") from error
    return found


def _search_kernels(
    session: TuningSession, records: Records, config: Config, settings: Settings, seconds: float,
    measurement: MeasurementSettings,
) -> Iterator[TunedKernel]:
    """Tune kernel by kernel; each may take the share of the time that it has of the call."""
    tasks = sorted(session.tasks.values(), key=lambda t: -t.seconds)
    worth = [t for t in tasks if t.operands and t.seconds / t.runs >= MIN_KERNEL_SECONDS]
    total = sum(t.seconds for t in worth)
    may_continue = True
    for task in tasks:
        each = task.seconds / max(task.runs, 1)
        space = task.space if config.numerics == "relaxed" else task.space.exact()
        try:
            why = "stopped" if not may_continue else "nothing to choose" if len(space.points) < 2 else \
                "too short" if task not in worth else ""
            job = None if why else task.job(config)
        except Unsendable as error:
            why, job = str(error), None
        if job is None:
            yield TunedKernel(task.choice.key, {}, each, each, 0, len(space.points), 0, why)
            continue
        trial = KernelSearch(task.choice.key, space, job, ENGINE.host(), seconds * task.seconds / total,
                             measurement=measurement)
        with trial:
            yield trial.run(settings, records)
        may_continue = not trial.interrupted
