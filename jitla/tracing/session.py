"""Sessions: the state of one traced call, from its arguments to its result.

`run_traced` calls an instrumented function in a session, `run_generator` a generator function. The methods
on the hottest paths have native twins, which `install_native_methods` puts in place of Python's.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from sys import getrefcount
from time import perf_counter
from types import BuiltinFunctionType, MethodWrapperType
from typing import Any
from weakref import WeakSet

import numpy as np

from jitla.hops import FlagsRaised
from jitla.introspection import call_with_stack_headroom
from jitla.profiling.call_classes import RUNNING_SESSIONS
from jitla.profiling.step_times import StepTimes
from jitla.tracing.callers import call_from
from jitla.tracing.fallback import TracingBudget, restore_values, settle_locals
from jitla.tracing.force import EXIT_PATH, LIST_REFS, LeafWrite, TapeParts
from jitla.tracing.fp_warnings import EntryHistory, can_defer_warnings
from jitla.tracing.frames import (
    ROOT,
    mark,
    place_of,
    user_frame,
    user_frames,
    user_line,
    user_traceback,
)
from jitla.tracing.indexing import SUSPENDED_FRAMES, ProxyMethod
from jitla.tracing.lazy import (
    LAZY,
    Lazy,
    LazyArray,
    LazyScalar,
    clear_operator_caches,
    proxy_in_memory,
)
from jitla.tracing.numba_ufuncs import describe, is_numba
from jitla.tracing.numpy_api.functions import clear_reductions
from jitla.tracing.recorder import NumpyDispatch, clear_inference_caches
from jitla.tracing.site import ANNOTATE_WHOLE_CALLS, Site
from jitla.tracing.sparse.lazy_sparse import has_large_sparse
from jitla.tracing.tape import (
    LAYOUT_CACHE,
    LAYOUTS,
    METAS,
    OWN_METAS,
    AnnotatedTape,
    ExactLayout,
    is_traceable,
    layout_id,
)
from jitla.tracing.thread_state import LOCAL

MAX_LAYOUTS = 1 << 14
# Proxies of arrays from outside above which those that nothing else refers to are released.
MIN_RELEASE_COUNT = 8
_ndarray = np.ndarray
_BUILTIN_METHOD_TYPES = frozenset({BuiltinFunctionType, MethodWrapperType})
# Types of results that neither are nor contain proxies.
_PROXY_FREE_TYPES = frozenset({type(None), float, int, bool, str, np.ndarray, np.float64})
# Sessions of generators, which may never end.
_GENERATOR_SESSIONS: WeakSet[Session] = WeakSet()


class Session(NumpyDispatch):
    """State of one call of a decorated function in one thread.

    The tape: `ops` (entries), `nodes` (the proxy of each entry), `leaves` and `scalars` (operands in
    memory, by slot), `entered` (proxies of leaves and scalars), `views` (entries that are views: parent,
    method, arguments). `foreigners` maps ids of arrays from outside to their proxies. `immediate`: each
    entry is computed at once, since floating-point errors may raise. `past` has the origins of
    rematerialised entries. `slots` are places outside the frames of user code that hold proxies.
    """

    __slots__ = ("site", "ops", "nodes", "leaves", "scalars", "entered", "rematerialisable", "stored",
                 "lines", "hole", "hits", "foreigners", "slots", "views", "past", "immediate",
                 "release_count", "ended", "positions", "tables", "extremes", "hoisted", "memory_facts",
                 "last_iteration", "updates", "budget", "running", "running_store", "raised_flags",
                 "__weakref__")

    def __init__(self, site: Site) -> None:
        self.site = site
        self.lines: dict[int, Any] | None = None
        self.ops: list[tuple] = []
        self.nodes: list[Any] = []
        self.leaves: list[np.ndarray] = []
        self.scalars: list[Any] = []
        self.entered: list[Lazy] = []
        self.rematerialisable: list[Lazy] = []
        self.stored: list[Any] = []
        self.views: dict[int, tuple[Lazy, Any, tuple]] = {}
        self.past: dict[int, EntryHistory] = {}
        self.positions: dict[tuple[int, int], tuple[np.ndarray, LazyArray]] = {}
        self.tables: dict[int, LazyArray] = {}
        self.extremes: dict[int, tuple[int, int]] = {}
        self.hoisted: dict[Any, Any] = {}
        self.memory_facts: dict[int, Any] = {}
        # Of the last loop iteration after which the block stayed open: tape, number of such iterations,
        # length.
        self.last_iteration: tuple[list[tuple], int, int] = [], 0, 0
        self.updates: dict[int, tuple[int, ...]] = {}
        self.immediate = False
        self.hole = object()
        self.hits = 0
        self.foreigners: dict[int, LazyArray] = {}
        # By place: the container (None: an attribute of an object), getter and setter of the place.
        self.slots: dict[tuple, tuple[Any, Callable[[], Any], Callable[[Any], None]]] = {}
        self.release_count = MIN_RELEASE_COUNT
        self.ended = False  # the call has ended, or continues untraced: nothing becomes lazy any more
        self.budget: TracingBudget | None = None
        # The tape that is being run, its store, and the floating-point flags that its run raised.
        self.running: TapeParts | None = None
        self.running_store: LeafWrite | None = None
        self.raised_flags: FlagsRaised | None = None

    def begin(self) -> None:
        """Prepare for a call; the session is in `RUNNING_SESSIONS` or `_GENERATOR_SESSIONS` already."""
        if LAYOUT_CACHE.resetting:
            with LAYOUT_CACHE.lock:
                pass
        self.ended = False
        site = self.site
        if site.generation != LAYOUT_CACHE.generation:
            site.start_generation(LAYOUT_CACHE.generation)
        if site.frozen:
            site.retry_frozen()
        if site.annotated_calls > 0:
            self.hits = 0 if site.annotated_calls < ANNOTATE_WHOLE_CALLS else -ANNOTATE_WHOLE_CALLS
            self.lines = {}
            self.ops = AnnotatedTape(self.lines)
        elif self.lines is not None:
            self.lines = None
            self.ops = []

    def clear_call_state(self) -> None:
        """Clear the state of the last call, so that the session can be reused; nothing is pending."""
        if self.updates:
            self.updates.clear()
        if self.foreigners:
            self.foreigners.clear()
        if self.memory_facts:
            self.memory_facts.clear()
        self.release_count = MIN_RELEASE_COUNT
        self.immediate = False
        if self.nodes:
            self.reset()
        if self.rematerialisable:
            self.rematerialisable = []
        if self.stored:
            self.stored = []

    def arguments(self, values: tuple) -> tuple:
        """Return the proxies of values that can be traced, and the other values themselves."""
        find, foreigners = LAYOUT_CACHE.find, self.foreigners
        proxies: list[Any] = []
        for value in values:
            if type(value) is not _ndarray:
                proxies.append(value)
            elif (found := find(value)) and (key := id(value)) not in foreigners:
                foreigners[key] = proxy = LazyArray()
                proxy._s = self
                proxy._n = -1
                proxy._v = value
                proxy._l, proxy._m = found
                proxies.append(proxy)
            else:
                proxies.append(self.argument(value))
        if len(foreigners) > MIN_RELEASE_COUNT:
            self.release_count = MIN_RELEASE_COUNT + 2 * len(foreigners)
        return tuple(proxies)

    def argument(self, value: Any) -> Any:
        """Return the proxy of an argument that can be traced, else the argument itself."""
        if type(value) is _ndarray and not self.ended:
            ids = LAYOUT_CACHE.find(value)
            if ids is not None:
                layout, meta = ids
                foreigners = self.foreigners
                key = id(value)
                if key in foreigners and foreigners[key]._l == layout:
                    return foreigners[key]
                array = foreigners[key] = LazyArray()
                array._s = self
                array._n = -1
                array._v = value
                array._l = layout
                array._m = meta
                if len(foreigners) > self.release_count:
                    self.release_foreigners()
                return array
            if value.ndim and is_traceable(value.shape, value.dtype):
                proxy = self.foreign(value)
                if proxy is not None and value.base is None:
                    LAYOUT_CACHE.add(value)
                return value if proxy is None else proxy
        return value

    def flush(self) -> None:
        """Close the block if it holds operations."""
        if len(self.nodes) > len(self.entered):
            self.close()

    def close_long_block(self) -> None:
        """Close the block because it is long, unless the site unrolls loop iterations to longer blocks."""
        if len(self.ops) >= self.site.unroll_limit:
            self.site.note_cut(user_line(), len(self.nodes) - len(self.entered))
            self.flush()

    def fill_slots(self) -> None:
        """Replace the proxies in attributes and containers by their values."""
        slots = self.slots
        while slots:
            filled = list(slots.items())
            for _, (container, read, write) in filled:
                current = read()
                if type(current) in LAZY:
                    write(self.value(current))
                elif container is not None:
                    self.plain(container)  # the proxy may be elsewhere in its container by now
            # Only now: an interrupt must not leave slots unfilled. Interrupting code may have added some.
            if len(slots) == len(filled):
                slots.clear()
            for key, _ in filled if slots else ():
                slots.pop(key, None)

    def continue_untraced(self) -> None:
        """Continue the call without tracing: replace all proxies that user code holds by their values."""
        self.budget = None
        self.ended = True
        self.fill_slots()
        restore_values(self, user_frames())

    def settle_suspended(self, inner: Any) -> None:
        """Replace the proxies in the frame of `inner`, a suspended generator that continues untraced."""
        self.budget = None
        self.ended = True
        self.fill_slots()
        frame = getattr(inner, SUSPENDED_FRAMES[type(inner)])
        if frame is not None:
            settle_locals(self, frame, frozenset())

    def settle_failed_call(self, error: BaseException) -> None:
        """End a call that raised `error`: replace proxies that outlive it, as far as they can be computed."""
        interrupt: BaseException | None = None
        failures = 0
        while self.slots:
            try:
                self.fill_slots()
            except Exception as failure:
                self.site.note_failure(failure)
                failures += 1
                LOCAL.session = None  # from now on NumPy computes values one by one
                if failures > 1:
                    self.slots.popitem()
            except BaseException as failure:  # an interrupt is raised again when all are filled
                interrupt = failure
        try:
            self.materialise_exception(error)
        except Exception as failure:
            self.site.note_failure(failure)
        self.foreigners.clear()
        self.memory_facts.clear()
        self.hoisted.clear()
        if interrupt is not None:
            raise interrupt

    def materialise_exception(self, error: BaseException | None) -> None:
        """Replace proxies in an exception and in its causes and contexts by their values."""
        seen: set[int] = set()
        while error is not None and id(error) not in seen:
            seen.add(id(error))
            args = self.plain(error.args)
            if args is not error.args:
                error.args = args
            self.plain(error.__dict__)
            if type(getattr(error, "obj", None)) in LAZY:  # the object of an AttributeError
                error.obj = self.plain(error.obj)  # type: ignore[attr-defined]
            error = error.__cause__ or error.__context__

    def materialise_escapes(self) -> None:
        """Prepare for code that is not instrumented: do pending reads, replace proxies outside of frames."""
        self.flush()
        self.compute_readers()
        self.fill_slots()
        self.hoisted.clear()  # values of slots may be hoisted ones

    def call_opaque(self, function: Any, args: tuple, kwargs: dict) -> Any:
        """Call a function that is not instrumented: with values for proxies, after all pending reads."""
        self.materialise_escapes()
        plain = self.plain(args)
        options = {k: self.plain(v) for k, v in kwargs.items()}
        if type(function) in _BUILTIN_METHOD_TYPES and type(function.__self__) in SUSPENDED_FRAMES:
            self.plain(function.__self__)  # its code is resumed outside of the session
        frame = user_frame()
        call: Callable[..., Any] | None = None
        if has_large_sparse(function, plain, self.site.thresholds.min_counted_sparse_entries):
            call = partial(self.site.call_counted, place_of(frame))
        elif is_numba(function):
            call = partial(self.site.call_compiled, describe(function), place_of(frame))
        LOCAL.session = None
        try:
            if call is None:
                result = call_from(frame, self, function, plain, options)
            else:
                result = call(function, plain, options)
        finally:
            LOCAL.session = self
            self._refresh_layouts((*args, *kwargs.values()))
            self.update_error_state()
        return self.result(result, args, plain)

    def _refresh_layouts(self, args: tuple) -> None:
        """Read the layouts of arrays passed to opaque code again: it may have reshaped or resized them."""
        for argument in args:
            proxy = argument.__self__ if type(argument) is ProxyMethod else argument
            if type(proxy) is LazyArray and proxy._v is not None and layout_id(proxy._v) != proxy._l:
                self.refresh_layout(proxy)

    def release_foreigners(self) -> None:
        """Drop the proxies of arrays from outside that nothing else refers to."""
        foreigners = self.foreigners
        for key in _unreferenced(foreigners):
            del foreigners[key]
        self.release_count = MIN_RELEASE_COUNT + 2 * len(foreigners)

    def refresh_layout(self, array: LazyArray) -> None:
        """Read the layout of an array in memory again, after an assignment to its shape or dtype."""
        self.close()
        array._l = layout_id(array._v)
        array._m = LAYOUTS[array._l].meta

    def end(self, result: Any) -> Any:
        """End the call, count it, and return `result` with values for proxies."""
        self.ended = True
        site = self.site
        site.calls += 1
        if site.annotated_calls > 0:
            site.annotated_calls -= 1
        # Proxies and session refer to each other: without this the garbage collector would have to free
        # arrays.
        self.foreigners.clear()
        if self.memory_facts:
            self.memory_facts.clear()
        if len(self.nodes) > len(self.entered):
            self.close(path=EXIT_PATH)
        if self.slots:
            self.fill_slots()
        kind = type(result)
        if kind in LAZY and result._v is not None:
            value = result._v
        else:
            value = result if kind in _PROXY_FREE_TYPES else self.plain(result)
        if self.hoisted:
            self.hoisted.clear()
        return value


def _references(proxies: dict[int, LazyArray]) -> list[tuple[int, int, int]]:
    return [(key, getrefcount(p), getrefcount(p._v)) for key, p in proxies.items()]


def _unreferenced(proxies: dict[int, LazyArray]) -> list[int]:
    """Return the keys of proxies that only `proxies` refers to, and whose arrays only they refer to."""
    return [key for key, p, v in _references(proxies) if p <= _BASELINE[0] and v <= _BASELINE[1]]


def _count_baseline() -> tuple[int, int]:
    proxies = {0: proxy_in_memory(None, np.empty(1), layout_id(np.empty(1)))}
    return _references(proxies)[0][1:]


_BASELINE = _count_baseline()


def _count_idle_references() -> int:
    session = object()
    under_way = {session}
    return getrefcount(session) if under_way else 0


# References to a session at the end of `run_traced` when no proxy refers to it.
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
            args, kwargs = outer.plain(args), outer.plain(kwargs)
        session.begin()
        session.budget = budget
        LOCAL.session = session
        if kwargs:
            kwargs = {k: session.argument(v) for k, v in kwargs.items()}
        result = session.end(function(*session.arguments(args), **kwargs))
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
            args, kwargs = outer.plain(args), outer.plain(kwargs)
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
        *session.arguments(args),
        **{k: session.argument(v) for k, v in kwargs.items()},
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
                inside.update_error_state()
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
        if times is not None:
            times.note_traced(count, seconds)
            site.request_programs(True)


mark(run_traced.__code__, ROOT)
mark(run_untraced.__code__, ROOT)
mark(run_loops.__code__, ROOT)
mark(run_generator.__code__, ROOT)


_PROXY_SLOTS = ("_s", "_n", "_m", "_v", "_l", "_r")
_SESSION_SLOTS = ("ops", "nodes", "leaves", "scalars", "entered", "hole", "foreigners", "release_count",
                "lines", "immediate", "views", "past", "positions", "tables", "extremes", "running")
_NATIVE_METHODS = ("arguments", "detach", "enter", "leave", "put", "repeats", "argument")


def install_native_methods(native: Any) -> bool:
    """Install the native methods if they support this Python; return whether they do."""
    objects = {f"py_{name}": getattr(Session, name) for name in _NATIVE_METHODS}
    objects |= {"array": LazyArray, "scalar": LazyScalar, "layouts": LAYOUTS, "minus": -1}
    numbers = {"entry": ExactLayout._fields.index("entry"), "min_release_count": MIN_RELEASE_COUNT,
               "list_references": LIST_REFS - 1}
    slots = dict.fromkeys(_PROXY_SLOTS, (LazyArray, LazyScalar)) | dict.fromkeys(_SESSION_SLOTS, (Session,))
    installed: bool = native.install(Session, objects, numbers, slots)
    return installed
