"""Compilation of blocks: a call waits for the program, or NumPy runs the block while it is compiled."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Any

from jitla import packages
from jitla.compile_stats import CompilationDisabled, CompileStats, Reason, count_compilations
from jitla.config import current
from jitla.engine import (
    ENGINE,
    magnitude,
)
from jitla.events import Event, compile_log, log
from jitla.process.loading import RESOURCE_ERRORS
from jitla.tiering import policy

if TYPE_CHECKING:
    from jitla.tracing import Request, Site

__all__ = [
    "BlockCompiler", "compile_seconds", "learn", "loading_seconds", "log_record", "numpy_seconds", "observe",
    "program_seconds", "temporary_bytes", "waiting",
]


# Seconds of a traced call, and of each of its operations.
CALL_SECONDS, OPERATION_SECONDS = 3e-6, 0.4e-6
# Predicted seconds of compiling a block, for each operation, and of loading the compiler.
COMPILE_BLOCK_SECONDS, COMPILE_OPERATION_SECONDS, LOAD_SECONDS = 0.02, 0.002, 0.3
# The same where an earlier process has left plan and machine code.
STORED_BLOCK_SECONDS, STORED_OPERATION_SECONDS, LOAD_STORED_SECONDS = 0.003, 2e-4, 0.08
# Bytes of intermediates of NumPy, and share of the free memory, above which a call waits for the program; few
# bytes are not compared with the free memory.
MAX_TEMPORARY_BYTES, MAX_TEMPORARY_SHARE, MIN_TEMPORARY_BYTES = 256 << 20, 0.25, 1 << 20
NOTICE_SECONDS = 1.0  # that a call waits for the compiler, after which a line on standard error says so
MAX_PROGRAM_STATES = 1024  # of programs that blocks wait for
# Weight of the last compilation in the ratio of actual to predicted seconds, and limits of one ratio.
RATIO_WEIGHT, MIN_RATIO, MAX_RATIO = 0.2, 0.1, 10.0

START = perf_counter()  # times in the log are since then

Note = Callable[[str, CompileStats, Reason | None], None]


def numpy_seconds(request: Request) -> float:
    """Return the seconds that NumPy is predicted to take for a block."""
    hops = packages.hops
    order = [h for h in hops.topo(request.roots) if h.inputs]
    seconds: float = len(order) * hops.NUMPY_CALL_SECONDS + hops.numpy_seconds(order)
    return seconds


def program_seconds(request: Request) -> float:
    """Return the least seconds that a traced call takes for a block, by the roofline of the machine."""
    hops = packages.hops
    order, machine = list(hops.topo(request.roots)), hops.REFERENCE_MACHINE
    computed = [h for h in order if h.inputs]
    transferred = sum(h.meta.nbytes for h in {*request.roots, *order} if not h.inputs or h in request.roots)
    cells = sum(hops.flops(h) for h in computed if h.op.kind is not hops.Kind.CALL)
    products = sum(hops.flops(h) for h in computed if h.op.kind is hops.Kind.CALL)
    work: float = min(
        cost + max(machine.reading(transferred, transferred, threads), cells * machine.unit / threads
                   + products / machine.product)
        for threads, cost in ((1, 0.0), (machine.threads, machine.wake)))
    return CALL_SECONDS + OPERATION_SECONDS * len(computed) + work


def temporary_bytes(request: Request) -> float:
    """Return the most bytes that NumPy's intermediates take at one time."""
    order = [h for h in packages.hops.topo(request.roots) if h.inputs]
    last_reader = {i: at for at, h in enumerate(order) for i in h.inputs if i.inputs}
    results, live, most = set(request.roots), 0.0, 0.0
    for at, hop in enumerate(order):
        if hop not in results:
            live += hop.meta.size * hop.meta.dtype.itemsize
        most = max(most, live)
        freed = {i for i in hop.inputs if last_reader.get(i) == at and i not in results}
        live -= sum(i.meta.size * i.meta.dtype.itemsize for i in freed)
    return most


def compile_seconds(request: Request, is_stored: bool = False) -> float:
    """Return the predicted seconds of compiling a block; `is_stored`: an earlier process has done it."""
    block, operation = (STORED_BLOCK_SECONDS, STORED_OPERATION_SECONDS) if is_stored \
        else (COMPILE_BLOCK_SECONDS, COMPILE_OPERATION_SECONDS)
    return block + operation * len(packages.hops.topo(request.roots))


def loading_seconds(is_stored: bool = False) -> float:
    """Return the seconds that loading the compiler takes; 0 if it is loaded."""
    return 0.0 if ENGINE.has_compiler else LOAD_STORED_SECONDS if is_stored else LOAD_SECONDS


class _WaitingCall(threading.local):
    """Whether this thread waits for all programs; since when it waits, and for which function."""

    waits: bool = False
    since: float = 0.0
    name: str = ""


LOCAL = _WaitingCall()


class BlockCompiler:
    """Compiles the blocks of one site.

    `ratio` is that of actual to predicted compile seconds in this process.
    """

    ratio = 1.0

    def __init__(self, site: Site, config: Any, allowed: Callable[[], bool], finish: Any) -> None:
        self._site, self._config, self._allowed = site, config, allowed
        self._finish = finish
        self._program_states: dict[Any, Any] = {}  # by key of the program that blocks wait for

    def compile(
        self, key: tuple[Any, ...], sizes: tuple[int, ...], layouts: Any, make: Callable[[], Request],
        note: Note,
    ) -> Any:
        """Return what runs a block: its program, if that is there or worth waiting for, or an interim replay.
        """
        if self._config.compile == "sync" or LOCAL.waits:
            return self._compile_now(key, sizes, layouts, make, note)
        program = self._available(key, sizes, layouts, make, note) \
            or self._of_other_magnitude(key, sizes, layouts, make, note)
        if program is not None:
            return program
        request, program_state = make(), self._program_state((key, magnitude(layouts)))
        if program_state.on_disk is None:
            program_state.on_disk = self._config.compile == "auto" and ENGINE.has_plan(self._config, request)
        is_stored = program_state.on_disk
        if self._config.compile == "auto" and self._waits_for(request, is_stored):
            start = perf_counter()
            try:
                return self._compile_now(key, sizes, layouts, lambda: request, note)
            finally:
                packages.tracing.InterimSeconds.waiting += perf_counter() - start
        job = _Job(self, key, sizes, request, note, is_stored)
        _retain_freed_memory()
        replay = packages.tracing.InterimReplay(request, program_seconds(request), job, program_state)
        self._site.interim_replays.add(replay)
        note("none", CompileStats(), None)
        return replay

    def _program_state(self, key: Any) -> Any:
        """Return the state of the program that blocks with this key wait for."""
        state = self._program_states.get(key)
        if state is None or state.available:
            if len(self._program_states) >= MAX_PROGRAM_STATES:
                self._program_states.clear()
            state = self._program_states[key] = packages.tracing.ProgramState()
        return state

    def _available(
        self, key: tuple[Any, ...], sizes: tuple[int, ...], layouts: Any, make: Callable[[], Request],
        note: Note,
    ) -> Any:
        """Return the program if nothing has to be compiled; None if something has to, and may be."""
        with count_compilations(allowed=False) as stats:
            try:
                bound, reason = ENGINE.bind(self._config, key, sizes, layouts, make)
                note("now", stats, reason)
                return self._finish(bound, make)
            except CompilationDisabled as refused:
                reason = refused.reason  # not the exception: its traceback would keep the frames of users
        if not self._allowed():
            note("none", stats, reason)
            raise CompilationDisabled
        return None

    def _of_other_magnitude(
        self, key: tuple[Any, ...], sizes: tuple[int, ...], layouts: Any, make: Callable[[], Request],
        note: Note,
    ) -> Any:
        """Return the program for another magnitude, which is right for this one, too; None if there is none.

        The program that is best for this magnitude is planned in the background.
        """
        with count_compilations(allowed=False) as stats:
            bound = ENGINE.bind_other_magnitude(self._config, key, sizes, layouts)
        if bound is None:
            return None
        note("now", stats, None)
        bound = self._finish(bound, make)
        job = _Job(self, key, sizes, make(), note)
        ENGINE.background.submit(lambda: self._replan(job, bound), priority=1.0)
        return bound

    def _replan(self, job: _Job, bound: Any) -> None:
        """Plan a block for its magnitude, and replace the program; in the background thread."""
        if not current().recompile:
            return
        try:
            with count_compilations() as stats:
                better, reason = job.bind()
        except Exception as error:
            self._site.note_failure(error)
            return
        self._site.replace_program(bound, better)
        job.note("behind", stats, reason)

    def _compile_now(
        self, key: tuple[Any, ...], sizes: tuple[int, ...], layouts: Any, make: Callable[[], Request],
        note: Note,
    ) -> Any:
        """Return the program; the call waits for it."""
        outer = LOCAL.since, LOCAL.name
        LOCAL.since, LOCAL.name = LOCAL.since or perf_counter(), self._site.name
        try:
            with count_compilations(self._allowed()) as stats:
                try:
                    bound, reason = ENGINE.bind(self._config, key, sizes, layouts, make)
                finally:
                    stats.seconds = stats.seconds or perf_counter() - LOCAL.since
            note("now", stats, reason)
            return self._finish(bound, make)
        except CompilationDisabled as refused:
            note("none", stats, refused.reason)
            raise
        finally:
            LOCAL.since, LOCAL.name = outer

    def _waits_for(self, request: Request, is_stored: bool) -> bool:
        """Return whether the call waits for the program of a block: by time, or by memory of intermediates.

        The prediction for a block is bounded by the seconds of the plain call, if these are known.
        """
        session = packages.tracing.LOCAL.session
        budget = None if session is None else session.closer.budget
        predicted = numpy_seconds(request)
        if budget is not None and budget.plain:
            predicted = min(predicted, budget.plain)
        if policy.waits_for_block(predicted, self.price(request, is_stored) + loading_seconds(is_stored)):
            return True
        nbytes = temporary_bytes(request)
        return nbytes > MIN_TEMPORARY_BYTES and nbytes > min(
            MAX_TEMPORARY_BYTES, MAX_TEMPORARY_SHARE * packages.runtime.free_memory())

    def price(self, request: Request, is_stored: bool) -> float:
        """Return the predicted seconds of compiling a block, with the compiler loaded."""
        return compile_seconds(request, True) if is_stored else BlockCompiler.ratio * compile_seconds(request)

    def is_worth_compiling(self, job: _Job, spent: float, saved_share: float) -> bool:
        """Return whether to compile a block for which NumPy has taken `spent` seconds."""
        return self._allowed() and (
            self._config.compile == "background"
            or policy.is_worth_compiling(spent, saved_share, job.price + loading_seconds(job.is_stored),
                                         ENGINE.background.crowding))

    def request(self, job: _Job, replay: Any, priority: float) -> None:
        """Have the program of a block compiled in the background, unless that was requested."""
        if replay.requested:
            ENGINE.background.ensure_thread()
        elif self._allowed():
            replay.program_state.requested = True
            if self._config.compile == "background":
                priority = policy.URGENT_PRIORITY
            ENGINE.background.submit(lambda: self._compile_in_background(job, replay), priority)

    def _compile_in_background(self, job: _Job, replay: Any) -> None:
        """Compile the program of a block that NumPy runs meanwhile; in the background thread."""
        if not current().recompile or replay.compiled is not None:
            replay.program_state.requested = False
            return
        start = thread_time() + loading_seconds()
        try:
            with count_compilations() as stats:
                bound, reason = job.bind()
        except RESOURCE_ERRORS as error:  # may be possible later
            job.penalty = 2.0 * max(job.penalty, replay.program_state.numpy_seconds)
            replay.program_state.requested = False
            self._site.note_failure(error)
            return
        except RecursionError:  # too deep for this stack: it is requested again
            replay.program_state.requested = False
            return
        except Exception as error:
            packages.tracing.abandon_program(self._site, replay.program_state)
            self._site.note_failure(error)
            return
        if not job.is_stored:
            learn(job.block, thread_time() - start)
        self._site.replace_interim(replay, bound)
        job.note("behind", stats, reason)


class _Job:
    """The compilation of one block, which its interim replay requests."""

    def __init__(
        self, compiler: BlockCompiler, key: tuple[Any, ...], sizes: tuple[int, ...], block: Request,
        note: Note, is_stored: bool = False,
    ) -> None:
        self.compiler, self.key, self.sizes, self.block, self.note = compiler, key, sizes, block, note
        self.is_stored = is_stored  # an earlier process has compiled the program
        self.penalty = 0.0  # seconds that the price grows by after failures for lack of resources

    @property
    def price(self) -> float:
        """The predicted seconds of compiling the block, with the compiler loaded."""
        return self.penalty + self.compiler.price(self.block, self.is_stored)

    def is_worth_compiling(self, spent: float, saved_share: float) -> bool:
        """Return whether to compile the block now, for which NumPy has taken `spent` seconds."""
        return self.compiler.is_worth_compiling(self, spent, saved_share)

    def ask(self, replay: Any, priority: float) -> None:
        """Request the program for `replay`."""
        self.compiler.request(self, replay, priority)

    def bind(self) -> tuple[Any, Reason | None]:
        """Return the program, compiled now, and why others of its class did not suit."""
        compiler = self.compiler
        bound, reason = ENGINE.bind(
            compiler._config, self.key, self.sizes, self.block.layouts, lambda: self.block)
        return compiler._finish(bound, lambda: self.block), reason


@cache
def _retain_freed_memory() -> None:
    """Have the allocator keep memory that NumPy frees, once per process, against page faults."""
    packages.runtime.retain_freed_memory()


def learn(request: Request, seconds: float) -> None:
    """Record the seconds that compiling a block took."""
    ratio = min(max(seconds / compile_seconds(request), MIN_RATIO), MAX_RATIO)
    BlockCompiler.ratio += RATIO_WEIGHT * (ratio - BlockCompiler.ratio)


@contextmanager
def waiting() -> Iterator[None]:
    """Let this thread wait for all programs in the ``with`` block."""
    outer, LOCAL.waits = LOCAL.waits, True
    try:
        yield
    finally:
        LOCAL.waits = outer


def observe(event: Event) -> None:
    """Record an event of the compiler, and report a long wait for it."""
    ENGINE.recorder.record(event)
    if LOCAL.since and perf_counter() - LOCAL.since > NOTICE_SECONDS:
        seconds, LOCAL.since = perf_counter() - LOCAL.since, float("inf")
        if current().progress and sys.stderr is not None:
            sys.stderr.write(f"jitla: compiling {LOCAL.name} takes longer than {seconds:.0f} s\n")
        log.info("compiling %s takes longer than %.0f s", LOCAL.name, seconds)


ENGINE.observe = observe  # compilers report to the calls that wait for them, too


def log_record(name: str, record: Any) -> None:
    """Log what was compiled for a block."""
    if not (record.plans or record.compiled):
        return
    place = "{}:{}".format(*record.line) if record.line else "?"
    line = (f"{record.seconds * 1e3:8.1f} ms  {record.tier:<6}  {name}  {place}  "
            f"{record.operations} operations, "
            f"{record.plans} plans, {record.compiled} kernels compiled, {record.nbytes} bytes, "
            f"{record.reused} found  ({record.guard})")
    compile_log.info("%s", line)
    if current().log == "compile" and sys.stderr is not None:
        sys.stderr.write(f"jitla {perf_counter() - START:8.3f} s {line}\n")
