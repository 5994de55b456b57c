"""Profiles kernel launches, tunes hot kernels in another process, and swaps in the faster schedule."""

from __future__ import annotations

import atexit
import subprocess
import threading
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import field
from functools import partial
from time import perf_counter
from typing import Any, Protocol
from weakref import WeakSet

from jitla.classes import dataclass
from jitla.concurrency import fork_safe_lock
from jitla.config import Config
from jitla.events import log
from jitla.process.resources import start_thread
from jitla.recompile import KernelKey, Launchable, TunableKernel
from jitla.tuner.kernel_search import measuring_options
from jitla.tuner.measurement import MeasurementUnavailable, python_command
from jitla.tuner.records import Records, parse
from jitla.tuner.transport import (
    Job,
    OperandMemory,
    Unsendable,
    packed_header,
    receive,
    send_job,
)

__all__ = ["BackgroundTuner", "SHARE"]

TIMED_RUN_INTERVAL = 16  # runs per timed run
PROBE_RUNS = 4  # timed runs before a kernel is judged too short
MIN_KERNEL_SECONDS = 20e-6  # shorter kernels gain nothing
#: Share of one processor that background tuning may take.
SHARE = 0.01
PROGRAM = (f"from jitla.tuner.throttle import limit_share; limit_share({SHARE}); "
           "from jitla.cli.tuning_workers import tune; tune()")


class JobQueue(Protocol):
    """Runs jobs one after the other in a background thread."""

    def submit(self, job: Callable[[], None], priority: float = 0.0) -> None:
        """Run `job` when no job of a higher priority waits."""


@dataclass(slots=True)
class KernelProfile:
    """The profile of a kernel: estimated total seconds, timed and counted runs, and its bindings.

    `is_candidate` is false once it is too short or was tuned.
    """

    seconds: float = 0.0
    timed: int = 0
    runs: int = 0
    is_candidate: bool = True
    bindings: WeakSet[ProfiledLaunch] = field(default_factory=WeakSet)


class ProfiledLaunch:
    """The launcher of one binding of a kernel: it profiles runs and is updated with a better schedule."""

    __slots__ = ("tuner", "choice", "profile", "executable", "__weakref__")

    def __init__(
        self, tuner: BackgroundTuner, choice: TunableKernel, profile: KernelProfile, executable: Launchable
    ) -> None:
        self.tuner, self.choice, self.profile, self.executable = tuner, choice, profile, executable
        profile.bindings.add(self)

    def __call__(self, block: bytes, *operands: Any) -> int:
        """Launch the kernel with its current block; `block` is the one of the original binding."""
        profile = self.profile
        block, launch = self.executable
        if not profile.is_candidate:
            return launch(block, *operands)
        profile.runs += 1
        if profile.runs % TIMED_RUN_INTERVAL:
            return launch(block, *operands)
        start = perf_counter()
        flags = launch(block, *operands)
        self.tuner.record_run(self, perf_counter() - start, operands)
        return flags


class BackgroundTuner:
    """The background tuner of one compiler: it profiles kernels and tunes hot ones, one at a time."""

    def __init__(self, config: Config, records: Records, block: Callable[[TunableKernel], Launchable],
                 background: JobQueue) -> None:
        self.config, self.records, self.block, self.background = config, records, block, background
        self.profiles: dict[KernelKey, KernelProfile] = {}
        self.threshold_seconds = config.tune_after_ms * 1e-3
        self.lock = fork_safe_lock()
        self.busy = False

    def profiled(self, choice: TunableKernel, executable: Launchable) -> Launchable:
        """Return an untuned kernel whose launcher profiles it."""
        profile = self.profiles.setdefault(choice.key, KernelProfile())
        return executable[0], ProfiledLaunch(self, choice, profile, executable)

    def record_run(self, run: ProfiledLaunch, seconds: float, operands: tuple[Any, ...]) -> None:
        """Record a timed run; start tuning once the kernel has run for `tune_after_ms`."""
        profile = run.profile
        profile.timed += 1
        profile.seconds += TIMED_RUN_INTERVAL * seconds
        shortest = MIN_KERNEL_SECONDS * TIMED_RUN_INTERVAL * profile.timed
        if profile.timed >= PROBE_RUNS and profile.seconds < shortest:
            profile.is_candidate = False
        elif profile.seconds >= self.threshold_seconds and not self.busy:
            self._start_tuning(run, operands)

    def _start_tuning(self, run: ProfiledLaunch, operands: tuple[Any, ...]) -> None:
        """Start a thread that tunes a kernel on a copy of its current operands."""
        with self.lock:
            if self.busy or not run.profile.is_candidate:
                return
            self.busy, run.profile.is_candidate = True, False
        try:
            memory = OperandMemory.copy_of(operands, run.choice.outputs)
            job = Job(run.choice.portable(), memory, run.choice.outputs, measuring_options(self.config))
            work = partial(copy_context().run, self._tune, run.choice.key, job)
            start_thread(threading.Thread(target=work, name="jitla tunes", daemon=True))
        except (Unsendable, RuntimeError) as error:  # RuntimeError: no more threads
            log.info("kernel not tuned: %s", error)
            self.busy = False

    def _tune(self, key: KernelKey, job: Job) -> None:
        try:
            line = _tune_in_process(job)
        except (MeasurementUnavailable, Unsendable, EOFError, OSError) as error:
            log.info("kernel not tuned: %s", error)
            line = ""
        finally:
            self.busy = False
        record = parse(line) if line else None
        if record is not None:
            self.records.learn(record)
            self.background.submit(partial(self._swap, key), priority=0.0)

    def _swap(self, key: KernelKey) -> None:
        """Rebuild every binding of a kernel with the recorded schedule; the next runs use it."""
        for launch in list(self.profiles[key].bindings):
            launch.executable = self.block(launch.choice)


def _tune_in_process(job: Job) -> str:
    """Run the tuning job in another process and return the line of its record."""
    with subprocess.Popen(python_command(PROGRAM), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL) as process:
        atexit.register(process.kill)
        try:
            assert process.stdin is not None and process.stdout is not None
            send_job(process.stdin, packed_header(job), job.memory)
            job.memory.parts.clear()
            return receive(process.stdout).decode()
        finally:
            process.kill()
            atexit.unregister(process.kill)
