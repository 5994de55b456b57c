"""One traced call: its tape, its end, and the native methods of sessions."""

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
from jitla.introspection.recursion import call_with_room
from jitla.profiling.call_classes import RUNNING
from jitla.profiling.step_times import StepTimes
from jitla.tracing.callers import call_from
from jitla.tracing.fallback import Allowance, put_back, settle_locals
from jitla.tracing.force import BASE, EXIT, Store, TapeParts
from jitla.tracing.fp_warnings import Past, calm
from jitla.tracing.frames import (
    ROOT,
    mark,
    place_of,
    user_frame,
    user_frames,
    user_line,
    user_traceback,
)
from jitla.tracing.indexing import SUSPENDED, Bound
from jitla.tracing.lazy import LAZY, Lazy, LazyArray, LazyScalar, forget_metas, in_memory
from jitla.tracing.numba_ufuncs import is_numba, title_of
from jitla.tracing.numpy_api.functions import clear_reductions
from jitla.tracing.recorder import Dispatch, forget_inferred
from jitla.tracing.site import LINES_IN_LOOPS, Site
from jitla.tracing.sparse.lazy_sparse import has_large_sparse
from jitla.tracing.tape import (
    LAYOUTS,
    METAS,
    OWN_METAS,
    SIGHT,
    Layout,
    Learning,
    is_traced,
    layout_id,
)
from jitla.tracing.thread_state import LOCAL

# Operations that wait at most, but for those up to the next place where a block may end. The time of planning
# grows faster than they do, and what one more value in memory costs is little beside so many.
MOST_PENDING = 256
MAX_LAYOUTS = 1 << 14
# So many arrays from outside are kept before those that are gone elsewhere are looked for.
CROWD = 8
_ndarray = np.ndarray
_METHODS = frozenset({BuiltinFunctionType, MethodWrapperType})
# Results that are no proxies and hold none.
_ATOMS = frozenset({type(None), float, int, bool, str, np.ndarray, np.float64})
# Sessions under way: of calls, and of generators, which may never end.
_DRIVEN: WeakSet[Session] = WeakSet()


class Session(Dispatch):
    """State of one call of a decorated function in one thread."""

    __slots__ = ("site", "ops", "nodes", "leaves", "scalars", "entered", "ghosts", "stored", "lines", "hole",
                 "hits", "foreigners", "slots", "views", "past", "attentive", "crowd", "over",
                 "positions", "tables", "extremes", "kept", "known", "turn", "updates",
                 "allowance", "running", "storing", "hit", "__weakref__")

    def __init__(self, site: Site) -> None:
        self.site = site
        self.lines: dict[int, Any] | None = None
        self.ops: list[tuple] = []
        self.nodes: list[Any] = []
        self.leaves: list[np.ndarray] = []
        self.scalars: list[Any] = []
        self.entered: list[Lazy] = []
        self.ghosts: list[Lazy] = []
        self.stored: list[Any] = []
        self.views: dict[int, tuple[Lazy, Any, tuple]] = {}
        self.past: dict[int, Past] = {}
        self.positions: dict[tuple[int, int], tuple[np.ndarray, LazyArray]] = {}
        self.tables: dict[int, LazyArray] = {}
        self.extremes: dict[int, tuple[int, int]] = {}
        self.kept: dict[Any, Any] = {}
        self.known: dict[int, Any] = {}
        # The tape at the end of the last turn of a loop that stayed open, how many had, and its length.
        self.turn: tuple[list[tuple], int, int] = [], 0, 0
        self.updates: dict[int, tuple[int, ...]] = {}
        self.attentive = False
        self.hole = object()
        self.hits = 0
        self.foreigners: dict[int, LazyArray] = {}
        # By place: the container (None: an object), how to read the place, how to write it.
        self.slots: dict[tuple, tuple[Any, Callable[[], Any], Callable[[Any], None]]] = {}
        self.crowd = CROWD
        self.over = False  # the call has ended, or goes on plain: nothing becomes lazy any more
        self.allowance: Allowance | None = None
        # The tape that is being run, the store that belongs to it, and the flags that it raised.
        self.running: TapeParts | None = None
        self.storing: Store | None = None
        self.hit: FlagsRaised | None = None

    def begin(self) -> None:
        """Make ready for a call that has been noted as under way."""
        if SIGHT.resetting:
            with SIGHT.lock:
                pass
        self.over = False
        site = self.site
        if site.generation != SIGHT.generation:
            site.outdate(SIGHT.generation)
        if site.frozen:
            site.thaw()
        if site.learning > 0:
            self.hits = 0 if site.learning < LINES_IN_LOOPS else -LINES_IN_LOOPS
            self.lines = {}
            self.ops = Learning(self.lines)
        elif self.lines is not None:
            self.lines = None
            self.ops = []

    def rest(self) -> None:
        """Forget what the call has left, so that the next one can be served; nothing is pending."""
        if self.updates:
            self.updates.clear()
        if self.foreigners:
            self.foreigners.clear()
        if self.known:
            self.known.clear()
        self.crowd = CROWD
        self.attentive = False
        if self.nodes:
            self.reset()
        if self.ghosts:
            self.ghosts = []
        if self.stored:
            self.stored = []

    def arguments(self, values: tuple) -> tuple:
        """Return what `argument` makes of each value."""
        find, foreigners = SIGHT.find, self.foreigners
        made: list[Any] = []
        for value in values:
            if type(value) is not _ndarray:
                made.append(value)
            elif (found := find(value)) and (key := id(value)) not in foreigners:
                foreigners[key] = proxy = LazyArray()
                proxy._s = self
                proxy._n = -1
                proxy._v = value
                proxy._l, proxy._m = found
                made.append(proxy)
            else:
                made.append(self.argument(value))
        if len(foreigners) > CROWD:
            self.crowd = CROWD + 2 * len(foreigners)
        return tuple(made)

    def argument(self, value: Any) -> Any:
        """Return the proxy of an argument that can be traced, else the argument."""
        if type(value) is _ndarray and not self.over:
            found = SIGHT.find(value)
            if found is not None:
                layout, meta = found
                foreigners = self.foreigners
                key = id(value)
                if key in foreigners and foreigners[key]._l == layout:
                    return foreigners[key]
                made = foreigners[key] = LazyArray()
                made._s = self
                made._n = -1
                made._v = value
                made._l = layout
                made._m = meta
                if len(foreigners) > self.crowd:
                    self.release()
                return made
            if value.ndim and is_traced(value.shape, value.dtype):
                proxy = self.foreign(value)
                if proxy is not None and value.base is None:
                    SIGHT.see(value)
                return value if proxy is None else proxy
        return value

    def flush(self) -> None:
        """Close the block if it holds operations."""
        if len(self.nodes) > len(self.entered):
            self.close()

    def cut(self) -> None:
        """Close a block because it has become long, if that many turns of loops need not stay together."""
        if len(self.ops) >= self.site.unrolls:
            self.site.note_cut(user_line(), len(self.nodes) - len(self.entered))
            self.flush()

    def fill_slots(self) -> None:
        """Write ndarrays into the attributes and containers that hold proxies."""
        slots = self.slots
        while slots:
            given = list(slots.items())
            for _, (held, read, write) in given:
                found = read()
                if type(found) in LAZY:
                    write(self.value(found))
                elif held is not None:
                    self.plain(held)  # the proxy may have moved inside its container
            # Not before: an interrupt leaves none that is not filled. Interrupting code may have added some.
            if len(slots) == len(given):
                slots.clear()
            for place, _ in given if slots else ():
                slots.pop(place, None)

    def retreat(self) -> None:
        """Go on without tracing: what the user holds is in memory, and nothing becomes lazy any more."""
        self.allowance = None
        self.over = True
        self.fill_slots()
        put_back(self, user_frames())

    def leave_suspended(self, inner: Any) -> None:
        """Leave no proxies in the frame of `inner`, a suspended generator that goes on untraced."""
        self.allowance = None
        self.over = True
        self.fill_slots()
        frame = getattr(inner, SUSPENDED[type(inner)])
        if frame is not None:
            settle_locals(self, frame, frozenset())

    def abandon(self, error: BaseException) -> None:
        """End a call that failed: what outlives it holds no proxies, as far as they can be computed."""
        interrupt: BaseException | None = None
        failures = 0
        while self.slots:
            try:
                self.fill_slots()
            except Exception as another:
                self.site.failed(another)
                failures += 1
                LOCAL.session = None  # from now on values are computed one by one, by NumPy
                if failures > 1:
                    self.slots.popitem()
            except BaseException as another:  # an interrupt waits until all are filled
                interrupt = another
        try:
            self.mend(error)
        except Exception as another:
            self.site.failed(another)
        self.foreigners.clear()
        self.known.clear()
        self.kept.clear()
        if interrupt is not None:
            raise interrupt

    def mend(self, error: BaseException | None) -> None:
        """Put what proxies stand for into an exception and those it came from."""
        seen: set[int] = set()
        while error is not None and id(error) not in seen:
            seen.add(id(error))
            args = self.plain(error.args)
            if args is not error.args:
                error.args = args
            self.plain(error.__dict__)
            if type(getattr(error, "obj", None)) in LAZY:  # an AttributeError says whose
                error.obj = self.plain(error.obj)  # type: ignore[attr-defined]
            error = error.__cause__ or error.__context__

    def hand_over(self) -> None:
        """Make the world fit for code that jitla does not see: no pending reads, no proxies outside."""
        self.flush()
        self.settle_ghosts()
        self.fill_slots()
        self.kept.clear()  # what the slots needed may have been kept

    def outside(self, function: Any, args: tuple, kwargs: dict) -> Any:
        """Call what jitla does not see into: pending reads are done first, proxies stay inside."""
        self.hand_over()
        plain = self.plain(args)
        options = {k: self.plain(v) for k, v in kwargs.items()}
        if type(function) in _METHODS and type(function.__self__) in SUSPENDED:
            self.plain(function.__self__)  # its code goes on, outside of the session
        frame = user_frame()
        call: Callable[..., Any] | None = None
        if has_large_sparse(function, plain):
            call = partial(self.site.counted, place_of(frame))
        elif is_numba(function):
            call = partial(self.site.compiled, title_of(function), place_of(frame))
        LOCAL.session = None
        try:
            if call is None:
                result = call_from(frame, self, function, plain, options)
            else:
                result = call(function, plain, options)
        finally:
            LOCAL.session = self
            self._look_again((*args, *kwargs.values()))
            self.attend()
        return self.result(result, args, plain)

    def _look_again(self, args: tuple) -> None:
        """Read the shapes of arrays that foreign code was given: it may have set or resized them."""
        for each in args:
            proxy = each.__self__ if type(each) is Bound else each
            if type(proxy) is LazyArray and proxy._v is not None and layout_id(proxy._v) != proxy._l:
                self.relabel(proxy)

    def release(self) -> None:
        """Let go of arrays from outside that nobody else refers to."""
        foreigners = self.foreigners
        for key in _unseen(foreigners):
            del foreigners[key]
        self.crowd = CROWD + 2 * len(foreigners)

    def relabel(self, array: LazyArray) -> None:
        """Read the layout of an array in memory anew after its shape or dtype was assigned."""
        self.close()
        array._l = layout_id(array._v)
        array._m = LAYOUTS[array._l].meta

    def end(self, result: Any) -> Any:
        """End the call and count it."""
        self.over = True
        site = self.site
        site.calls += 1
        if site.learning > 0:
            site.learning -= 1
        # Proxies and session refer to each other: memory must not wait for the garbage collector.
        self.foreigners.clear()
        if self.known:
            self.known.clear()
        if len(self.nodes) > len(self.entered):
            self.close(path=EXIT)
        if self.slots:
            self.fill_slots()
        kind = type(result)
        if kind in LAZY and result._v is not None:
            made = result._v
        else:
            made = result if kind in _ATOMS else self.plain(result)
        if self.kept:
            self.kept.clear()
        return made


def _references(proxies: dict[int, LazyArray]) -> list[tuple[int, int, int]]:
    return [(key, getrefcount(p), getrefcount(p._v)) for key, p in proxies.items()]


def _unseen(proxies: dict[int, LazyArray]) -> list[int]:
    """Return the keys of proxies that only `proxies` refers to and whose arrays only they refer to."""
    return [key for key, p, v in _references(proxies) if p <= _ALONE[0] and v <= _ALONE[1]]


def _alone() -> tuple[int, int]:
    proxies = {0: in_memory(None, np.empty(1), layout_id(np.empty(1)))}
    return _references(proxies)[0][1:]


_ALONE = _alone()


def _unheld() -> int:
    session = object()
    under_way = {session}
    return getrefcount(session) if under_way else 0


# References to a session in `run` when no proxy is left that refers to it.
_UNHELD = _unheld()


def run(
    site: Site, function: Callable[..., Any], args: tuple, kwargs: dict, allowance: Allowance | None = None,
) -> Any:
    """Call `function` (a twin or a function that needs none) in a session of its own.

    With an `allowance` the call goes on without tracing if that costs more.
    """
    if LOCAL.shallow or not calm():
        return untraced(site, function, args, kwargs)
    try:
        session = site.idle.pop()
    except IndexError:
        session = Session(site)
    RUNNING.add(session)
    outer = LOCAL.session
    try:
        if outer is not None:  # called by code that runs in the midst of another traced call
            args, kwargs = outer.plain(args), outer.plain(kwargs)
        session.begin()
        session.allowance = allowance
        LOCAL.session = session
        if kwargs:
            kwargs = {k: session.argument(v) for k, v in kwargs.items()}
        result = session.end(function(*session.arguments(args), **kwargs))
        LOCAL.session = outer
        session.rest()
        if getrefcount(session) == _UNHELD:
            site.idle.append(session)
        return result
    except BaseException as error:
        try:
            call_with_room(session.abandon, error)
        finally:
            LOCAL.session = outer
        error.__traceback__ = user_traceback(error.__traceback__)
        raise
    finally:
        RUNNING.discard(session)
        del session  # this frame lives as long as an error's traceback
        if len(LAYOUTS) > MAX_LAYOUTS or len(METAS) > MAX_LAYOUTS:
            forget_sizes()


def untraced(site: Site, function: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
    """Call `function` without a session: a floating-point flag may be an exception at its line."""
    site.calls += 1
    outer = LOCAL.session
    try:
        if outer is not None:  # called by code that runs in the midst of a traced call
            args, kwargs = outer.plain(args), outer.plain(kwargs)
            LOCAL.session = None
        return function(*args, **kwargs)
    except BaseException as error:
        error.__traceback__ = user_traceback(error.__traceback__)
        raise
    finally:
        LOCAL.session = outer


def looped(site: Site, args: tuple, kwargs: dict) -> Any:
    """Call a function for its loops over elements, without a session."""
    return untraced(site, site.looping.call, (args, kwargs), {})


def _stepped(inner: Any) -> Generator:
    """Run a generator or coroutine without a session."""
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
            sent = ()  # an exception that was thrown would keep this frame, which would keep it
        try:
            sent, step = ((yield value),), inner.send
        except BaseException as thrown:
            sent, step = (thrown,), inner.throw


def forget_sizes() -> None:
    """Forget the sizes seen so far, if no traced call is under way; they would grow for ever."""
    before = SIGHT.generation
    SIGHT.reset(OWN_METAS, lambda: bool(RUNNING) or len(_DRIVEN) > 0)
    if SIGHT.generation != before:
        forget_metas()
        forget_inferred()
        clear_reductions()


def drive(
    site: Site, function: Callable[..., Any], args: tuple, kwargs: dict, times: StepTimes | None = None,
) -> Generator:
    """Run a generator (or coroutine) function in a session that is in force while its code runs.

    With `times` its steps are timed, and it goes on without a session if they take too long.
    """
    if LOCAL.shallow or not calm():
        site.calls += 1
        return (yield from _stepped(function(*args, **kwargs)))
    session = Session(site)
    _DRIVEN.add(session)
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
            RUNNING.add(session)
            LOCAL.session = inside
            if inside is not None:
                inside.attend()
            start = perf_counter() if times is not None else 0.0
            try:
                value = step(*sent)
                if times is not None:
                    count, seconds = count + 1, seconds + perf_counter() - start
                    if seconds > times.allowed(count):
                        session.leave_suspended(inner)
                        times.note_dear()
                        inside = times = None
            except StopIteration as stop:
                return session.end(stop.value)
            except BaseException as error:
                call_with_room(session.abandon, error)
                error.__traceback__ = user_traceback(error.__traceback__)
                raise
            finally:
                LOCAL.session = outer
                RUNNING.discard(session)
                sent = ()  # an exception that was thrown would keep this frame, which would keep it
            try:
                sent, step = ((yield value),), inner.send
            except BaseException as thrown:
                sent, step = (thrown,), inner.throw
    finally:
        if times is not None:
            times.note_traced(count, seconds)
            site.hurry(True)


mark(run.__code__, ROOT)
mark(untraced.__code__, ROOT)
mark(looped.__code__, ROOT)
mark(drive.__code__, ROOT)


_OF_PROXIES = ("_s", "_n", "_m", "_v", "_l", "_r")
_OF_SESSIONS = ("ops", "nodes", "leaves", "scalars", "entered", "hole", "foreigners", "crowd",
                "lines", "attentive", "views", "past", "positions", "tables", "extremes", "running")
_QUICK_METHODS = ("arguments", "detach", "enter", "leave", "put", "repeats", "argument")


def quicken(native: Any) -> bool:
    """Install the native methods, unless this Python is not what they expect; whether they are."""
    objects = {f"py_{name}": getattr(Session, name) for name in _QUICK_METHODS}
    objects |= {"array": LazyArray, "scalar": LazyScalar, "layouts": LAYOUTS, "minus": -1}
    numbers = {"entry": Layout._fields.index("entry"), "crowd": CROWD, "held": BASE - 1}
    slots = dict.fromkeys(_OF_PROXIES, (LazyArray, LazyScalar)) | dict.fromkeys(_OF_SESSIONS, (Session,))
    installed: bool = native.install(Session, objects, numbers, slots)
    return installed
