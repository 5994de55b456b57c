"""Tunes hot kernels in a background process and swaps in the result."""

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
from jitla.concurrency import relock
from jitla.config import Config
from jitla.events import log
from jitla.process.resources import start
from jitla.recompile import Choice, Key, Made
from jitla.tuner.kernel_search import alone
from jitla.tuner.measurement import (
    Lost,
    command,
)
from jitla.tuner.records import Records, parse
from jitla.tuner.transport import (
    Job,
    Memory,
    Unsendable,
    head_of,
    receive,
    send_job,
)

__all__ = ["Hot", "SHARE"]

EVERY = 16  # runs of which one is timed
PROBED = 4  # timed runs after which it is known whether a kernel is too short
LEAST = 20e-6  # seconds that a kernel takes; of a shorter one there is nothing to gain
#: Part of a processor that tuning in the background takes: the program comes first.
SHARE = 0.01
PROGRAM = (f"from jitla.tuner.throttle import slowly; slowly({SHARE}); "
           "from jitla.cli.tuning_workers import tune; tune()")
SWAP = 0.2  # part of the time in which what was found is compiled


class Background(Protocol):
    """Runs jobs one after the other in a background thread."""

    def submit(self, job: Callable[[], None], soon: bool = False, share: float = 1.0) -> None:
        """Run `job` after those that were asked for before, in a `share` of the time."""


@dataclass(slots=True)
class Heat:
    """How long a kernel has run, about; whether that still counts; and what runs it."""

    seconds: float = 0.0
    timed: int = 0
    runs: int = 0
    counts: bool = True
    everywhere: WeakSet[Run] = field(default_factory=WeakSet)


class Run:
    """Runs one binding of a kernel, as was found best so far."""

    __slots__ = ("hot", "choice", "heat", "made", "__weakref__")

    def __init__(self, hot: Hot, choice: Choice, heat: Heat, made: Made) -> None:
        self.hot, self.choice, self.heat, self.made = hot, choice, heat, made
        heat.everywhere.add(self)

    def __call__(self, block: bytes, *operands: Any) -> int:
        """Run it once; what it is given as its block is the one that it was bound with."""
        heat = self.heat
        block, launch = self.made
        if not heat.counts:
            return launch(block, *operands)
        heat.runs += 1
        if heat.runs % EVERY:
            return launch(block, *operands)
        start = perf_counter()
        flags = launch(block, *operands)
        self.hot.ran(self, perf_counter() - start, operands)
        return flags


class Hot:
    """The kernels of one compiler: which are worth tuning, and the one that is tuned now."""

    def __init__(self, config: Config, records: Records, block: Callable[[Choice], Made],
                 background: Background) -> None:
        self.config, self.records, self.block, self.background = config, records, block, background
        self.heats: dict[Key, Heat] = {}
        self.after = config.tune_after_ms * 1e-3
        self.lock = relock()
        self.busy = False

    def watched(self, choice: Choice, made: Made) -> Made:
        """Return what runs a kernel untuned, and takes note of how long that takes."""
        heat = self.heats.setdefault(choice.key, Heat())
        return made[0], Run(self, choice, heat, made)

    def ran(self, run: Run, seconds: float, operands: tuple[Any, ...]) -> None:
        """Take note of one run in so many; ask for better schedules if that was long enough by now."""
        heat = run.heat
        heat.timed += 1
        heat.seconds += EVERY * seconds
        if heat.timed >= PROBED and heat.seconds < LEAST * EVERY * heat.timed:
            heat.counts = False
        elif heat.seconds >= self.after and not self.busy:
            self._ask(run, operands)

    def _ask(self, run: Run, operands: tuple[Any, ...]) -> None:
        """Have a kernel tuned on a copy of what it was just run on."""
        with self.lock:
            if self.busy or not run.heat.counts:
                return
            self.busy, run.heat.counts = True, False
        try:
            memory = Memory.of(operands, run.choice.outputs)
            job = Job(run.choice.parcel(), memory, run.choice.outputs, alone(self.config))
            work = partial(copy_context().run, self._tune, run.choice.key, job)
            start(threading.Thread(target=work, name="jitla tunes", daemon=True))
        except (Unsendable, RuntimeError) as error:  # RuntimeError: no more threads
            log.info("a kernel is not tuned: %s", error)
            self.busy = False

    def _tune(self, key: Key, job: Job) -> None:
        try:
            line = _asked(job)
        except (Lost, Unsendable, EOFError, OSError) as error:
            log.info("a kernel is not tuned: %s", error)
            line = ""
        finally:
            self.busy = False
        found = parse(line) if line else None
        if found is not None:
            self.records.learn(found)
            self.background.submit(partial(self._swap, key), share=SWAP)

    def _swap(self, key: Key) -> None:
        """Run a kernel by what was found, wherever it is bound, from its next run on."""
        for run in list(self.heats[key].everywhere):
            run.made = self.block(run.choice)


def _asked(job: Job) -> str:
    """Return the record that another process has written down, which tunes while the program goes on."""
    with subprocess.Popen(command(PROGRAM), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL) as process:
        atexit.register(process.kill)
        try:
            assert process.stdin is not None and process.stdout is not None
            send_job(process.stdin, head_of(job), job.memory)
            job.memory.parts.clear()
            return receive(process.stdout).decode()
        finally:
            process.kill()
            atexit.unregister(process.kill)
