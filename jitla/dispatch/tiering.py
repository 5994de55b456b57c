"""Decides if a block is compiled at once or in the background while NumPy runs it, by predicted times."""

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

if TYPE_CHECKING:
    from jitla.tracing import Request, Site

__all__ = [
    "Tiers", "expected", "hurrying", "learn", "least", "loading", "numpy_seconds", "observe", "tell",
    "temporaries", "waiting",
]


# Seconds of a traced call, and of each of its operations.
TRACED, OPERATION_TRACED = 3e-6, 0.4e-6
# Seconds that compiling is thought to take until some was done: for a block, and for each operation.
BLOCK, OPERATION = 0.02, 0.002
LOADING = 0.3  # the compiler itself
# The same where an earlier process has left plan and machine code.
FOUND, OPERATION_FOUND, LOADING_FOUND = 0.003, 2e-4, 0.08


def numpy_seconds(request: Request) -> float:
    """Return what NumPy is predicted to take for a block."""
    hops = packages.hops
    order = [h for h in hops.topo(request.roots) if h.inputs]
    seconds: float = len(order) * hops.NUMPY_CALL_SECONDS + hops.numpy_seconds(order)
    return seconds


def least(request: Request) -> float:
    """Return the seconds that a traced call takes at least for a block, whatever is compiled for it."""
    hops = packages.hops
    order, machine = list(hops.topo(request.roots)), hops.REFERENCE_MACHINE
    made = [h for h in order if h.inputs]
    held = sum(h.meta.nbytes for h in {*request.roots, *order} if not h.inputs or h in request.roots)
    cells = sum(hops.flops(h) for h in made if h.op.kind is not hops.Kind.CALL)
    products = sum(hops.flops(h) for h in made if h.op.kind is hops.Kind.CALL)
    work: float = min(
        cost + max(machine.reading(held, held, threads), cells * machine.unit / threads
                   + products / machine.product)
        for threads, cost in ((1, 0.0), (machine.threads, machine.wake)))
    return TRACED + OPERATION_TRACED * len(made) + work


def temporaries(request: Request) -> float:
    """Return the bytes that NumPy's intermediates take at most, by when they are read last."""
    order = [h for h in packages.hops.topo(request.roots) if h.inputs]
    last = {i: at for at, h in enumerate(order) for i in h.inputs if i.inputs}
    results, alive, most = set(request.roots), 0.0, 0.0
    for at, hop in enumerate(order):
        if hop not in results:
            alive += hop.meta.size * hop.meta.dtype.itemsize
        most = max(most, alive)
        done = {i for i in hop.inputs if last.get(i) == at and i not in results}
        alive -= sum(i.meta.size * i.meta.dtype.itemsize for i in done)
    return most


def expected(request: Request, found: bool = False) -> float:
    """Return the seconds that compiling a block is thought to take, before there is any experience.

    `found`: an earlier process has done it.
    """
    block, operation = (FOUND, OPERATION_FOUND) if found else (BLOCK, OPERATION)
    return block + operation * len(packages.hops.topo(request.roots))


def loading(found: bool = False) -> float:
    """Return the seconds until the first program of a process can be made, if there was none."""
    return 0.0 if ENGINE.has_compiler else LOADING_FOUND if found else LOADING


# Limits of running a block by NumPy instead of compiling it: `TIMES` the compile time, `MANY` bytes of
# temporary arrays, `PART` of the free memory.
TIMES = 2.0
# Seconds of NumPy from which a block that an earlier process has compiled is worth loading the compiler,
# and, when that is there, waiting for.
HEAVY, LIGHT = 1.5e-2, 5e-4
MANY, PART, FEW = 256 << 20, 0.25, 1 << 20  # few bytes: nothing is looked up
# Least and largest part of its time in which the background thread works; the largest where an operation of
# NumPy takes `LONG` seconds and more. Between two operations the program waits until that thread yields.
LEAST, MOST, LONG = 0.06, 0.8, 4e-4
RENEWS = 0.4  # the same where a program for another magnitude runs
# Part of the processors that NumPy keeps busy where nothing is compiled behind it, and how many times longer
# than loading the compiler takes NumPy has run by then.
CROWDED, SURE = 0.7, 2.0
LATELY = 1.0  # seconds of NumPy for which it is seen how many processors it keeps busy
# Seconds after which whoever waits is told what for.
TELL = 1.0
# Programs that blocks wait for whose compile times are remembered.
CLASSES = 1024
# Weight of what was seen last in the ratio of what compiling took to what it was thought to.
NEWEST = 0.2

BEGUN = perf_counter()  # times in the log are since then

Note = Callable[[str, CompileStats, Reason | None], None]


class _Local(threading.local):
    """Whether this thread waits for everything it asks for; since when it does, and for whom."""

    waits: bool = False
    hurries: bool = False  # and does not care what was spent so far
    since: float = 0.0
    name: str = ""


LOCAL = _Local()


class ProcessorLoad:
    """Seconds of late that NumPy took for blocks, nothing being compiled behind it; those of processors."""

    seconds = worked = 0.0


class Tiers:
    """What decides for one site; `ratio` of actual to expected compile times is everybody's."""

    ratio = 1.0

    def __init__(self, site: Site, config: Any, allowed: Callable[[], bool], finish: Any) -> None:
        self._site, self._config, self._allowed = site, config, allowed
        self._finish = finish
        self._alike: dict[Any, Any] = {}  # by what has one program: blocks that wait for it

    def compile(
        self, key: tuple[Any, ...], sizes: tuple[int, ...], layouts: Any, make: Callable[[], Request],
        note: Note,
    ) -> Any:
        """Return what runs a block: its program, if that is there or worth waiting for."""
        if self._config.compile == "sync" or LOCAL.waits:
            return self._now(key, sizes, layouts, make, note)
        found = self._present(key, sizes, layouts, make, note) or self._near(key, sizes, layouts, make, note)
        if found is not None:
            return found
        request, program_state = make(), self._alike_of((key, magnitude(layouts)))
        if program_state.on_disk is None:
            program_state.on_disk = self._config.compile == "auto" and ENGINE.has_plan(self._config, request)
        kept = program_state.on_disk
        cost = expected(request, True) if kept else Tiers.ratio * expected(request)
        if self._config.compile == "auto" and self._pays_at_once(request, cost, kept):
            return self._now(key, sizes, layouts, lambda: request, note)
        job = _Job(self, key, sizes, request, note, kept)
        due = cost if self._config.compile == "auto" else 0.0
        _keep_freed()
        standby = packages.tracing.InterimReplay(request, due, least(request), job, program_state)
        self._site.interim_replays.add(standby)
        note("none", CompileStats(), None)
        return standby

    def _alike_of(self, served: Any) -> Any:
        """Return what is known of blocks that wait for one program."""
        found = self._alike.get(served)
        if found is None or found.available:
            if len(self._alike) >= CLASSES:
                self._alike.clear()
            found = self._alike[served] = packages.tracing.ProgramState()
        return found

    def _present(
        self, key: tuple[Any, ...], sizes: tuple[int, ...], layouts: Any, make: Callable[[], Request],
        note: Note,
    ) -> Any:
        """Return the program if nothing has to be made for it; None if something has to, and may be."""
        with count_compilations(allowed=False) as made:
            try:
                bound, reason = ENGINE.bind(self._config, key, sizes, layouts, make)
                note("now", made, reason)
                return self._finish(bound, make)
            except CompilationDisabled as refused:
                reason = refused.reason  # not the exception: its traceback would keep the frames of users
        if not self._allowed():
            note("none", made, reason)
            raise CompilationDisabled
        return None

    def _near(
        self, key: tuple[Any, ...], sizes: tuple[int, ...], layouts: Any, make: Callable[[], Request],
        note: Note,
    ) -> Any:
        """Return the program for another magnitude, which is right for this one, too; None if there is none.

        The program that is best for this magnitude is planned behind it.
        """
        with count_compilations(allowed=False) as made:
            bound = ENGINE.bind_other_magnitude(self._config, key, sizes, layouts)
        if bound is None:
            return None
        note("now", made, None)
        bound = self._finish(bound, make)
        job = _Job(self, key, sizes, make(), note)
        ENGINE.background.submit(lambda: self._renew(job, bound), share=RENEWS)
        return bound

    def _renew(self, job: _Job, bound: Any) -> None:
        """Plan a block for its magnitude, and swap that in; for the thread that compiles."""
        if not current().recompile:
            return
        try:
            with count_compilations() as made:
                better, reason = job.bound()
        except Exception as error:
            self._site.note_failure(error)
            return
        self._site.replace_program(bound, better)
        job.note("behind", made, reason)

    def _now(
        self, key: tuple[Any, ...], sizes: tuple[int, ...], layouts: Any, make: Callable[[], Request],
        note: Note,
    ) -> Any:
        """Return the program; whoever asked waits for it."""
        outer = LOCAL.since, LOCAL.name
        LOCAL.since, LOCAL.name = LOCAL.since or perf_counter(), self._site.name
        try:
            with count_compilations(self._allowed()) as made:
                try:
                    bound, reason = ENGINE.bind(self._config, key, sizes, layouts, make)
                finally:
                    made.seconds = made.seconds or perf_counter() - LOCAL.since
            note("now", made, reason)
            return self._finish(bound, make)
        except CompilationDisabled as refused:
            note("none", made, refused.reason)
            raise
        finally:
            LOCAL.since, LOCAL.name = outer

    def _pays_at_once(self, request: Request, cost: float, kept: bool) -> bool:
        # What an earlier process has compiled is met again and again: loading is for all these times.
        most = (LIGHT if ENGINE.has_compiler else HEAVY) if kept else TIMES * (cost + loading())
        if numpy_seconds(request) > most:
            return True
        taken = temporaries(request)
        return taken > FEW and taken > min(MANY, PART * packages.runtime.free_memory())

    def is_time(self, times: float = 1.0, kept: bool = False) -> bool:
        """Return whether `times` the load time of the compiler was spent without it."""
        seconds = packages.tracing.InterimSeconds.replaying
        return LOCAL.hurries or self._config.compile == "background" or seconds >= times * loading(kept)

    def is_crowded(self) -> bool:
        """Say whether a thread that compiles behind a block would have no processor to itself."""
        if self._config.compile != "auto" or LOCAL.hurries or ENGINE.background.busy:
            return False
        return bool(ProcessorLoad.worked >= CROWDED * _processors() * ProcessorLoad.seconds > 0.0)

    def at_once(self, kept: bool) -> bool:
        """Say whether whoever runs a block once more waits for its program, not long if that is `kept`."""
        return self.is_time(kept=True) if kept else self.is_crowded() and self.is_time(SURE)

    def meanwhile(self, job: _Job, standby: Any) -> None:
        """Make the program of a block before it runs again; whoever runs it waits."""
        start = perf_counter()
        try:
            self.behind(job, standby, "now")
        finally:
            standby.program_state.requested = standby.compiled is not None
            packages.tracing.InterimSeconds.waiting += perf_counter() - start

    def behind(self, job: _Job, standby: Any, tier: str = "behind") -> None:
        """Make the program of a block that NumPy runs meanwhile; for the thread that compiles."""
        if not current().recompile or standby.compiled is not None:
            standby.program_state.requested = False
            return
        start = thread_time() + loading()
        try:
            with count_compilations() as made:
                bound, reason = job.bound()
        except RESOURCE_ERRORS as error:  # perhaps not for ever
            standby.postpone()
            self._site.note_failure(error)
            return
        except RecursionError:  # whoever waits for it has gone so deep: it is asked for again
            standby.program_state.requested = False
            return
        except Exception as error:
            packages.tracing.abandon_program(self._site, standby.program_state)
            self._site.note_failure(error)
            return
        if not job.kept:
            learn(job.request, thread_time() - start)
        self._site.replace_interim(standby, bound)
        job.note(tier, made, reason)


class _Job:
    """What a standby asks for, once."""

    def __init__(
        self, tiers: Tiers, key: tuple[Any, ...], sizes: tuple[int, ...], request: Request, note: Note,
        kept: bool = False,
    ) -> None:
        self.tiers, self.key, self.sizes, self.request, self.note = tiers, key, sizes, request, note
        self.kept = kept  # an earlier process has made the program

    def bound(self) -> tuple[Any, Reason | None]:
        """Return the program, made now, and why others of its class did not suit."""
        tiers = self.tiers
        found, reason = ENGINE.bind(
            tiers._config, self.key, self.sizes, self.request.layouts, lambda: self.request)
        return tiers._finish(found, lambda: self.request), reason

    def saw(self, seconds: float, worked: float) -> None:
        """Take note of what a run of NumPy took, and of how long processors worked meanwhile."""
        if ENGINE.background.busy:
            return
        load = ProcessorLoad
        if load.seconds > LATELY:
            load.seconds, load.worked = load.seconds / 2, load.worked / 2
        load.seconds, load.worked = load.seconds + seconds, load.worked + worked

    def before(self, standby: Any) -> None:
        """Make the program before the block runs again, where that is better than behind it."""
        tiers = self.tiers
        if not standby.requested and tiers._allowed() and tiers.at_once(self.kept):
            standby.program_state.requested = True
            tiers.meanwhile(self, standby)

    def ask(self, standby: Any, again: bool) -> None:
        """Have the program made behind what runs, unless that was asked, or `before` is to do it."""
        if standby.requested:
            ENGINE.background.ensure_thread()
        elif not self.tiers._allowed() or again and (self.kept or self.tiers.is_crowded()):
            return
        elif self.tiers.is_time(kept=self.kept):
            standby.program_state.requested = True
            soon = self.tiers._config.compile == "background"
            share = 1.0 if soon else min(max(MOST * standby.seconds_per_operation / LONG, LEAST), MOST)
            ENGINE.background.submit(lambda: self.tiers.behind(self, standby), soon, share)


@cache
def _processors() -> int:
    """Return how many processors there are, whatever threads are there by now."""
    return packages.runtime.processors()


@cache
def _keep_freed() -> None:
    """See to it, once, that NumPy need not fetch from the system what memory it has just given back."""
    packages.runtime.retain_freed_memory()


def learn(request: Request, seconds: float) -> None:
    """Take note of what compiling took."""
    seen = min(max(seconds / expected(request), 0.1), 10.0)
    Tiers.ratio += NEWEST * (seen - Tiers.ratio)


@contextmanager
def waiting() -> Iterator[None]:
    """Compile at once whatever this thread asks for in the ``with`` block."""
    outer, LOCAL.waits = LOCAL.waits, True
    try:
        yield
    finally:
        LOCAL.waits = outer


@contextmanager
def hurrying() -> Iterator[None]:
    """Let what this thread asks for in the ``with`` block be compiled, whether it pays or not."""
    outer, LOCAL.hurries = LOCAL.hurries, True
    try:
        yield
    finally:
        LOCAL.hurries = outer


def observe(event: Event) -> None:
    """Take an event of the compiler: remember it, and tell whoever waits long for it."""
    ENGINE.recorder.record(event)
    if LOCAL.since and perf_counter() - LOCAL.since > TELL:
        seconds, LOCAL.since = perf_counter() - LOCAL.since, float("inf")
        if current().progress and sys.stderr is not None:
            sys.stderr.write(f"jitla: compiling {LOCAL.name} takes longer than {seconds:.0f} s\n")
        log.info("compiling %s takes longer than %.0f s", LOCAL.name, seconds)


ENGINE.observe = observe  # compilers tell who waits for them, too


def tell(name: str, record: Any) -> None:
    """Write down what was made for a block, in the log of compilations."""
    if not (record.plans or record.compiled):
        return
    place = "{}:{}".format(*record.line) if record.line else "?"
    line = (f"{record.seconds * 1e3:8.1f} ms  {record.tier:<6}  {name}  {place}  "
            f"{record.operations} operations, "
            f"{record.plans} plans, {record.compiled} kernels compiled, {record.nbytes} bytes, "
            f"{record.reused} found  ({record.guard})")
    compile_log.info("%s", line)
    if current().log == "compile" and sys.stderr is not None:
        sys.stderr.write(f"jitla {perf_counter() - BEGUN:8.3f} s {line}\n")
