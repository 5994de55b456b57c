"""Sessions: the state of one traced call, from its arguments to its result.

`run_traced` calls an instrumented function in a session, `run_generator` a generator function.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from sys import getrefcount
from time import perf_counter
from typing import Any
from weakref import WeakSet

import numpy as np

from jitla.introspection import call_with_stack_headroom, hide_module
from jitla.tiering.call_classes import RUNNING_SESSIONS
from jitla.tiering.generators import StepTimes
from jitla.tracing.boundary import MIN_RELEASE_COUNT, SUSPENDED_FRAMES, Boundary
from jitla.tracing.fallback import TracingBudget
from jitla.tracing.force import EXIT_PATH, LIST_REFS, BlockCloser, IterationBatcher
from jitla.tracing.fp_warnings import can_defer_warnings
from jitla.tracing.frames import LOCAL, ROOT, hide_function, mark, user_frames, user_traceback
from jitla.tracing.indexing import ArrayReader, ArrayWriter
from jitla.tracing.lazy import LAZY, LazyArray, LazyScalar, clear_operator_caches
from jitla.tracing.mutation import MemoryDependences
from jitla.tracing.numpy_api.functions import clear_reductions
from jitla.tracing.numpy_dispatch import NumpyDispatch
from jitla.tracing.open_tape import Tape
from jitla.tracing.recorder import TapeRecorder, clear_inference_caches
from jitla.tracing.site import ANNOTATE_WHOLE_CALLS, Site
from jitla.tracing.tape import LAYOUT_CACHE, LAYOUTS, METAS, OWN_METAS, AnnotatedTape, ExactLayout

MAX_LAYOUTS = 1 << 14
# Types of results that neither are nor contain proxies.
_PROXY_FREE_TYPES = frozenset({type(None), float, int, bool, str, np.ndarray, np.float64})
# Sessions of generators, which may never end.
_GENERATOR_SESSIONS: WeakSet[Session] = WeakSet()


class Session:
    """State of one call of a decorated function in one thread: the parts that record and run its operations.

    Proxies refer to their session. `tape` has the recorded operations; `closer` ends blocks and computes
    values; `memory` tracks what depends on arrays that may be written; `boundary` converts values that enter
    or leave traced code; `recorder` records operators and ufuncs, `reader` and `writer` parts of arrays,
    `dispatch` other calls of NumPy; `iterations` merges loop iterations into blocks. The parts are created
    once and never replaced, so that callers on hot paths may use them directly.
    """

    __slots__ = ("site", "ended", "tape", "closer", "memory", "boundary", "recorder", "reader", "writer",
                 "dispatch", "iterations", "__weakref__")

    def __init__(self, site: Site) -> None:
        self.site = site
        self.ended = False  # the call has ended, or continues untraced: nothing becomes lazy any more
        self.tape = tape = Tape(self)
        self.closer = closer = BlockCloser(self, site, tape)
        self.memory = memory = MemoryDependences(self, tape, closer)
        self.boundary = boundary = Boundary(self, site, closer, memory)
        self.recorder = recorder = TapeRecorder(self, tape, boundary)
        self.reader = reader = ArrayReader(self, site, tape, closer, boundary, recorder)
        self.writer = writer = ArrayWriter(self, site, tape, closer, memory, boundary, recorder)
        self.dispatch = NumpyDispatch(
            self, site, tape, closer, memory, boundary, recorder, reader, writer)
        self.iterations = IterationBatcher(site, tape)

    def begin(self) -> None:
        """Prepare for a call; the session is in `RUNNING_SESSIONS` or `_GENERATOR_SESSIONS` already."""
        if LAYOUT_CACHE.resetting:
            with LAYOUT_CACHE.lock:
                pass
        self.ended = False
        site, tape = self.site, self.tape
        if site.generation != LAYOUT_CACHE.generation:
            site.start_generation(LAYOUT_CACHE.generation)
        if site.frozen:
            site.retry_frozen()
        if site.annotated_calls > 0:
            self.closer.hits = 0 if site.annotated_calls < ANNOTATE_WHOLE_CALLS else -ANNOTATE_WHOLE_CALLS
            tape.lines = {}
            tape.ops = AnnotatedTape(tape.lines)
        elif tape.lines is not None:
            tape.lines = None
            tape.ops = []

    def clear_call_state(self) -> None:
        """Clear the state of the last call, so that the session can be reused; nothing is pending."""
        tape, closer = self.tape, self.closer
        memory, boundary = self.memory, self.boundary
        if self.writer.updates:
            self.writer.updates.clear()
        if boundary.foreigners:
            boundary.foreigners.clear()
        if memory.facts:
            memory.facts.clear()
        boundary.release_count = MIN_RELEASE_COUNT
        tape.immediate = False
        if tape.nodes:
            tape.reset()
        if closer.rematerialisable:
            closer.rematerialisable = []
        if memory.pending_matrices:
            memory.pending_matrices = []

    def continue_untraced(self) -> None:
        """Continue the call without tracing: replace all proxies that user code holds by their values."""
        self.closer.budget = None
        self.ended = True
        self.boundary.fill_slots()
        self.boundary.restore_values(user_frames())

    def settle_suspended(self, inner: Any) -> None:
        """Replace the proxies in the frame of `inner`, a suspended generator that continues untraced."""
        self.closer.budget = None
        self.ended = True
        self.boundary.fill_slots()
        frame = getattr(inner, SUSPENDED_FRAMES[type(inner)])
        if frame is not None:
            self.boundary.settle_locals(frame)

    def settle_failed_call(self, error: BaseException) -> None:
        """End a call that raised `error`: replace proxies that outlive it, as far as they can be computed."""
        boundary, memory = self.boundary, self.memory
        interrupt: BaseException | None = None
        failures = 0
        while boundary.slots:
            try:
                boundary.fill_slots()
            except Exception as failure:
                self.site.note_failure(failure)
                failures += 1
                LOCAL.session = None  # from now on NumPy computes values one by one
                if failures > 1:
                    boundary.slots.popitem()
            except BaseException as failure:  # an interrupt is raised again when all are filled
                interrupt = failure
        try:
            boundary.materialise_exception(error)
        except Exception as failure:
            self.site.note_failure(failure)
        boundary.foreigners.clear()
        memory.facts.clear()
        memory.hoisted.clear()
        if interrupt is not None:
            raise interrupt

    def end(self, result: Any) -> Any:
        """End the call, count it, and return `result` with values for proxies."""
        self.ended = True
        site, tape = self.site, self.tape
        memory, boundary = self.memory, self.boundary
        site.calls += 1
        if site.annotated_calls > 0:
            site.annotated_calls -= 1
        # Proxies and session refer to each other: without this the garbage collector would have to free
        # arrays.
        boundary.foreigners.clear()
        if memory.facts:
            memory.facts.clear()
        if len(tape.nodes) > len(tape.entered):
            self.closer.close(path=EXIT_PATH)
        if boundary.slots:
            boundary.fill_slots()
        kind = type(result)
        if kind in LAZY and result._v is not None:
            value = result._v
        else:
            value = result if kind in _PROXY_FREE_TYPES else boundary.plain(result)
        if memory.hoisted:
            memory.hoisted.clear()
        return value


def _count_idle_references() -> int:
    no_site: Any = None
    session = Session(no_site)
    under_way = {session}
    return getrefcount(session) if under_way else 0


# References to a session at the end of `run_traced` when no proxy refers to it: those of its parts, too.
_IDLE_REFERENCES = _count_idle_references()


def run_traced(
    site: Site, function: Callable[..., Any], args: tuple, kwargs: dict, budget: TracingBudget | None = None,
) -> Any:
    """Call an instrumented function, or one that needs no instrumentation, in a new session.

    With an `budget` the call continues untraced once tracing has cost more than that.
    """
    if LOCAL.shallow or not can_defer_warnings():
        return run_untraced(site, function, args, kwargs)
    try:
        session = site.idle.pop()
    except IndexError:
        session = Session(site)
    RUNNING_SESSIONS.add(session)
    outer = LOCAL.session
    try:
        if outer is not None:  # called within another traced call, by code that is not instrumented
            args, kwargs = outer.boundary.plain(args), outer.boundary.plain(kwargs)
        session.begin()
        session.closer.budget = budget
        LOCAL.session = session
        if kwargs:
            kwargs = {k: session.boundary.argument(v) for k, v in kwargs.items()}
        result = session.end(function(*session.boundary.arguments(args), **kwargs))
        LOCAL.session = outer
        session.clear_call_state()
        if getrefcount(session) == _IDLE_REFERENCES:
            site.idle.append(session)
        return result
    except BaseException as error:
        try:
            call_with_stack_headroom(session.settle_failed_call, error)
        finally:
            LOCAL.session = outer
        error.__traceback__ = user_traceback(error.__traceback__)
        raise
    finally:
        RUNNING_SESSIONS.discard(session)
        del session  # the traceback of an error keeps this frame alive
        if len(LAYOUTS) > MAX_LAYOUTS or len(METAS) > MAX_LAYOUTS:
            forget_sizes()


def run_untraced(site: Site, function: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
    """Call `function` without a session, such as where floating-point flags raise exceptions."""
    site.calls += 1
    outer = LOCAL.session
    try:
        if outer is not None:  # called within a traced call, by code that is not instrumented
            args, kwargs = outer.boundary.plain(args), outer.boundary.plain(kwargs)
            LOCAL.session = None
        return function(*args, **kwargs)
    except BaseException as error:
        error.__traceback__ = user_traceback(error.__traceback__)
        raise
    finally:
        LOCAL.session = outer


def run_loops(site: Site, args: tuple, kwargs: dict) -> Any:
    """Call the version of a function that compiles its loops over elements, without a session."""
    return run_untraced(site, site.loop_function.call, (args, kwargs), {})


def _step_untraced(inner: Any) -> Generator:
    """Run a generator or coroutine without a session; a generator itself."""
    step: Callable[..., Any] = inner.send
    sent: tuple = (None,)
    while True:
        outer, LOCAL.session = LOCAL.session, None
        try:
            value = step(*sent)
        except StopIteration as stop:
            return stop.value
        finally:
            LOCAL.session = outer
            sent = ()  # breaks the cycle between a thrown exception and this frame
        try:
            sent, step = ((yield value),), inner.send
        except BaseException as thrown:
            sent, step = (thrown,), inner.throw


def forget_sizes() -> None:
    """Drop all interned sizes and layouts, if no traced call is running; this bounds their memory."""
    before = LAYOUT_CACHE.generation
    LAYOUT_CACHE.reset(OWN_METAS, lambda: bool(RUNNING_SESSIONS) or len(_GENERATOR_SESSIONS) > 0)
    if LAYOUT_CACHE.generation != before:
        clear_operator_caches()
        clear_inference_caches()
        clear_reductions()


def run_generator(
    site: Site, function: Callable[..., Any], args: tuple, kwargs: dict, times: StepTimes | None = None,
) -> Generator:
    """Run a generator or coroutine function in a session that is active while its code runs.

    With `times` its steps are timed, and it continues without a session if they take too long.
    """
    if LOCAL.shallow or not can_defer_warnings():
        site.calls += 1
        return (yield from _step_untraced(function(*args, **kwargs)))
    session = Session(site)
    _GENERATOR_SESSIONS.add(session)
    session.begin()
    inner = function(
        *session.boundary.arguments(args),
        **{k: session.boundary.argument(v) for k, v in kwargs.items()},
    )
    step: Callable[..., Any] = inner.send
    sent: tuple = (None,)
    inside: Session | None = session
    count, seconds = 0, 0.0
    try:
        while True:
            outer = LOCAL.session
            RUNNING_SESSIONS.add(session)
            LOCAL.session = inside
            if inside is not None:
                inside.closer.update_error_state()
            start = perf_counter() if times is not None else 0.0
            try:
                value = step(*sent)
                if times is not None:
                    count, seconds = count + 1, seconds + perf_counter() - start
                    if seconds > times.max_traced_seconds(count):
                        session.settle_suspended(inner)
                        times.note_slow()
                        inside = times = None
            except StopIteration as stop:
                return session.end(stop.value)
            except BaseException as error:
                call_with_stack_headroom(session.settle_failed_call, error)
                error.__traceback__ = user_traceback(error.__traceback__)
                raise
            finally:
                LOCAL.session = outer
                RUNNING_SESSIONS.discard(session)
                sent = ()  # breaks the cycle between a thrown exception and this frame
            try:
                sent, step = ((yield value),), inner.send
            except BaseException as thrown:
                sent, step = (thrown,), inner.throw
    finally:
        _GENERATOR_SESSIONS.discard(session)  # only the garbage collector frees it: its parts refer to it
        if times is not None:
            times.note_traced(count, seconds)
            site.request_programs()


mark(run_traced.__code__, ROOT)
mark(run_untraced.__code__, ROOT)
mark(run_loops.__code__, ROOT)
mark(run_generator.__code__, ROOT)


_PROXY_SLOTS = ("_s", "_n", "_m", "_v", "_l", "_r")
_TAPE_SLOTS = ("owner", "ops", "nodes", "leaves", "scalars", "entered", "hole", "lines", "immediate", "views",
               "past", "positions", "tables", "extremes", "running")
_BOUNDARY_SLOTS = ("session", "foreigners", "release_count")
_NATIVE_METHODS = {**dict.fromkeys(("detach", "enter", "leave", "put", "repeats"), Tape),
                   "arguments": Boundary}


def install_native_methods(native: Any) -> bool:
    """Install the native methods if they support this Python; return whether they do."""
    objects = {f"py_{name}": getattr(owner, name) for name, owner in _NATIVE_METHODS.items()}
    objects |= {"py_argument": Boundary.argument, "array": LazyArray, "scalar": LazyScalar,
                "layouts": LAYOUTS, "minus": -1}
    numbers = {"entry": ExactLayout._fields.index("entry"), "min_release_count": MIN_RELEASE_COUNT,
               "list_references": LIST_REFS - 1}
    slots: dict[str, tuple[type, ...]] = dict.fromkeys(_PROXY_SLOTS, (LazyArray, LazyScalar))
    slots |= dict.fromkeys(_TAPE_SLOTS, (Tape,)) | dict.fromkeys(_BOUNDARY_SLOTS, (Boundary,))
    installed: bool = native.install(_NATIVE_METHODS, objects, numbers, slots)
    return installed


hide_module(__name__, hide_function)
