"""The twins of users' functions: made once, kept while right, bound to the function that is called.

Knows: which functions are library code, how long a twin is right. Must not know: sessions, arrays, hooks.
Receives functions; returns their twins, or None where jitla must not look inside.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from inspect import CO_COROUTINE, CO_GENERATOR
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from jitla.callables import ARRAYS, is_decorated, is_installed, package_of
from jitla.source import IMMUTABLE, MISSING, NOT_ARRAY, PerCode, Twins, is_twin, loops_in_python
from jitla.tracing.frames import BRIDGE, INTERNAL, USER, kind_of, mark
from jitla.tracing.functions import FUNCTIONS
from jitla.tracing.thread_state import LOCAL

_ArrayFunction = type(np.sum)
_SUSPENDING = CO_GENERATOR | CO_COROUTINE


class Entry(NamedTuple):
    """What is known of one function; nothing in it keeps the function alive."""

    owner: ref[FunctionType]
    made_of: CodeType
    defaults: tuple[Any, ...] | None
    # The code to run and where its cells are; None: the function itself.
    code: CodeType | None
    places: tuple[int, ...]
    # A twin without cells of its function can be kept, too, unless it would keep the function.
    twin: FunctionType | None
    sees: bool
    # What belongs to it if it is decorated, and refers to it: not kept alive either.
    state: ref[Any] | None
    # Where the namespace is that of the function, None stands for it.
    watched: list[tuple[Mapping[str, Any] | None, str, Any]]


class TwinTable:
    """The twins made for one hook object, by function."""

    def __init__(self, hooks: Any, proxy: type) -> None:
        self._made = Twins(hooks, known, proxy)
        self._entries: dict[int, Entry] = {}
        self._runs: PerCode[bool] = PerCode(_runs_not)  # what runs in a session
        # Top names of the packages that decorate functions of theirs: they are the user's code,
        # wherever they are installed.
        self._decorated: set[str] = set()

    def __len__(self) -> int:
        return len(self._entries)

    def of(self, function: FunctionType, decorated: bool = False) -> Callable[..., Any] | None:
        """Return the twin of a user's function as the globals are now; None if there is none."""
        if decorated:
            self._decorated.update({package_of(function)} - ARRAYS)
        code = function.__code__
        entry = self._entries.get(id(function))
        if entry is None or entry.owner() is not function or entry.made_of is not code \
                or entry.defaults is not function.__defaults__ or _is_stale(entry.watched, function):
            if is_twin(code):  # twins are not entered
                return function
            entry = self._enter(function)
        state = entry.state and entry.state()
        if state is not None:
            return self._inside(function, state)
        if not entry.sees:
            return None
        if entry.code is None:
            return function
        return entry.twin or self._bound(function, entry)

    def reason(self, function: FunctionType) -> str:
        """Say why a user's function has no twin."""
        return self._made.reason(function)

    def bare(self, part: Any) -> Any:
        """Return the code or the closure that a function made in a twin has where nothing is traced."""
        return self._made.bare(part)

    def runs_in(self, frame: FrameType | None) -> bool:
        """Say whether the innermost code of `frame` that is not jitla's own is instrumented.

        Handlers of signals, ``__del__`` and callbacks are not: they may run in the midst of an operation.
        """
        while frame is not None and kind_of(frame.f_code) in (INTERNAL, BRIDGE):
            frame = frame.f_back
        return frame is not None and self._runs.get(frame.f_code) is not None

    def _enter(self, function: FunctionType) -> Entry:
        key, entries = id(function), self._entries

        def forget(owner: ref[FunctionType]) -> None:
            entry = entries.get(key)
            if entry is not None and entry.owner is owner:  # the id may have a new owner
                del entries[key]

        owner = ref(function, forget)
        state = _state_of(function)
        if state is not None:
            code, defaults = function.__code__, function.__defaults__
            made = Entry(owner, code, defaults, None, (), None, True, ref(state), [])
        else:
            made = self._instrumented(function, owner)
        entries[key] = made
        return made

    def _inside(self, wrapper: FunctionType, state: Any) -> Callable[..., Any] | None:
        """Return what traced code calls instead of a decorated function, in its own session.

        That is the twin itself: one frame for each level of a recursion, as in plain code. Where more has to
        be decided, it is like what users call: before the first call, for loops over elements, where each
        call has a session of its own, and where users have given it other defaults.
        """
        plain = state.function
        if _suspends(plain):  # it may go on when this session has ended, so it is given no proxies
            return None
        looping, session = state.looping, LOCAL.session
        if state.tracing is None or wrapper.__defaults__ is not plain.__defaults__ \
                or wrapper.__kwdefaults__ is not plain.__kwdefaults__ or looping is not None \
                and not looping.traced and (session is None or session.site.payoff is not None):
            entrance: Callable[..., Any] = state.entrance(wrapper)
            return entrance
        return self.of(plain) if state.twin else None

    def _instrumented(self, function: FunctionType, owner: ref[FunctionType]) -> Entry:
        package = package_of(function)
        library = package in ARRAYS or is_installed(function.__code__.co_filename) and \
            package not in self._decorated
        twin = None if library else self._made.instrument(function)
        if twin is None:
            return Entry(owner, function.__code__, function.__defaults__, None, (), None, False, None, [])
        code = twin.__code__
        mark(code, USER)
        for each in _with_inner(code):
            self._runs.put(each, True)
        own = function.__globals__
        watched = [(None if space is own else space, name, expected)
                   for space, name, expected in self._made.watched(function)]
        if twin is function:
            return Entry(owner, function.__code__, function.__defaults__, None, (), None, True, None, watched)
        names = function.__code__.co_freevars
        places = tuple(names.index(name) for name in code.co_freevars)
        return Entry(
            owner, function.__code__, function.__defaults__, code, places,
            None if names or function.__kwdefaults__ or not _lasts(function) else twin, True, None, watched)

    def _bound(self, function: FunctionType, entry: Entry) -> FunctionType:
        """Bind the code of a twin to the cells of `function`, which may refer to `function` itself."""
        assert entry.code is not None
        cells = function.__closure__ or ()
        closure = tuple([cells[i] for i in entry.places])
        twin = FunctionType(
            entry.code, function.__globals__, function.__name__, function.__defaults__, closure)
        twin.__kwdefaults__ = function.__kwdefaults__
        twin.__qualname__ = function.__qualname__
        return twin


def _state_of(function: FunctionType) -> Any:
    """Return what belongs to a decorated function; None: it is none, or the plain one by another name."""
    state = function.__dict__["__jitla_state__"] if is_decorated(function) else None
    return None if state is None or state.bare else state


def _suspends(function: Any) -> bool:
    return bool(function.__code__.co_flags & _SUSPENDING) if type(function) is FunctionType else True


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    """`code` and the code of what is defined in it."""
    yield code
    for constant in code.co_consts:
        if type(constant) is CodeType:
            yield from _with_inner(constant)


def _runs_not(code: CodeType) -> bool:
    return False


def _lasts(function: FunctionType) -> bool:
    """Say whether the globals of a function are those of a module, so that whoever has them keeps nothing."""
    module = sys.modules.get(function.__globals__.get("__name__", ""))
    return getattr(module, "__dict__", None) is function.__globals__


def _is_stale(
    watched: list[tuple[Mapping[str, Any] | None, str, Any]], function: FunctionType,
) -> bool:
    for space, name, expected in watched:
        found = (function.__globals__ if space is None else space).get(name, MISSING)
        if found is not expected and not (expected is NOT_ARRAY and isinstance(found, IMMUTABLE)):
            return True
    return False


def known(function: Any) -> bool:
    """Say whether a callable reads its array arguments only, so that a call of it needs no hook."""
    kind = type(function)
    if kind is np.ufunc:
        return not loops_in_python(function)
    return kind is _ArrayFunction and function in FUNCTIONS
