"""What instrumented code calls instead of functions: instrumented ones, and wrappers of foreign ones."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from inspect import CO_COROUTINE, CO_GENERATOR
from sys import _getframe
from types import (
    BuiltinFunctionType,
    CodeType,
    FrameType,
    FunctionType,
    GeneratorType,
    MethodType,
    ModuleType,
)
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from jitla.instrument import (
    IMMUTABLE,
    MISSING,
    NOT_ARRAY,
    NUMBERS,
    PerCode,
    Twins,
    is_twin,
    loops_in_python,
)
from jitla.introspection.callables import (
    ARRAYS,
    is_decorated,
    is_installed,
    package_of,
)
from jitla.tracing.callers import call_from, looks_at_caller
from jitla.tracing.frames import (
    BRIDGE,
    INTERNAL,
    USER,
    bridge,
    call_at,
    kind_of,
    mark,
    place_of,
    user_frame,
)
from jitla.tracing.lazy import LAZY, LazyArray, LazyScalar
from jitla.tracing.numba_ufuncs import through
from jitla.tracing.numpy_api.functions import FUNCTIONS, add_at, written_arrays
from jitla.tracing.numpy_api.linalg import zeros
from jitla.tracing.session import Session
from jitla.tracing.sparse.products import record_sparse_call
from jitla.tracing.sparse.sparsify import apply_in_session
from jitla.tracing.thread_state import LOCAL
from jitla.tracing.user_types import CONTAINERS, TAME, is_wild

SAFE_ITERABLES = frozenset({
    range, list, tuple, dict, set, frozenset, str, bytes, type({}.keys()), type({}.values()),
    type({}.items()), LazyArray, np.ndarray,
})
_HELD: tuple[Any, ...] = (
    [], (), {}, {}.values(), {}.items(), set(), "", "\xe9", b"", range(1), range(1 << 70))
_TAME = SAFE_ITERABLES | NUMBERS | {LazyScalar, type(None), *(type(iter(held)) for held in _HELD)}

# Builtins that ask for a length or for steps: a scalar has neither, and the error names its type.
_SEQUENTIAL = frozenset({iter, len, next, reversed})

_PROXIES = LAZY | {int, float}


class Callee:
    """What stands for `function` while `session` is open."""

    __slots__ = ("function", "session")

    def __init__(self, function: Any, session: Session) -> None:
        self.function = function
        self.session = session


class Foreign(Callee):
    """A callable jitla does not see into: pending reads are done first, proxies stay inside."""

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        made = record_sparse_call(self.session, self.function, args, kwargs)
        if made is NotImplemented:
            made = apply_in_session(self.session, self.function, args, kwargs)
        return self.session.call_opaque(self.function, args, kwargs) if made is NotImplemented else made


class Numba(Callee):
    """A function that the user has compiled with Numba: traced through, or called with finished arrays."""

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        made = NotImplemented if kwargs else through(self.session, self.function, args)
        return self.session.call_opaque(self.function, args, kwargs) if made is NotImplemented else made


class Adder(Callee):
    """``np.add.at``, which a loop of ours may do."""

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 3 and not kwargs and add_at(self.session, *args):
            return None
        return Foreign(self.function, self.session)(*args, **kwargs)


class Guarded(Callee):
    """A NumPy callable: it may write only where `out` says so."""

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        session, out = self.session, kwargs.get("out")
        if type(out) is LazyArray and len(kwargs) == 1 and _PROXIES.issuperset(map(type, args)) \
                and type(self.function) is np.ufunc and len(args) == self.function.nin:
            # as NumPy would, which looks for others to ask
            return out.__array_ufunc__(self.function, "__call__", *args, out=(out,))
        # With out=... it answers with arrays where scalars are usual, which proxies are not told.
        if out is ... or any(map(is_wild, args)):
            return Foreign(self.function, session)(*args, **kwargs)
        for array in written_arrays(self.function, args, kwargs):
            if type(array) not in LAZY:
                session.before_write(array)
        result = call_at(place_of(_getframe(1)), self.function, args, kwargs)
        return session.result(result, args, args) if type(result) is np.ndarray else result


class Creator(Callee):
    """A NumPy function that makes a new array: the result is memory of this call."""

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        session = self.session
        if any(map(is_wild, args)):
            return Foreign(self.function, session)(*args, **kwargs)
        if session.site.unroll_limit and self.function is np.zeros:
            made = zeros(session, *args, **kwargs)
            if made is not NotImplemented:
                return made
        plain = session.plain(args)
        options = {k: session.plain(v) for k, v in kwargs.items()} if kwargs else kwargs
        return session.result(
            call_at(place_of(_getframe(1)), self.function, plain, options), args, plain)


# Methods of containers that compare what is in them.
_COMPARING = frozenset({"sort", "index", "count", "remove"})
_CALM = TAME | {np.ndarray}


def _may_run(value: Any) -> bool:
    """Say whether a container that is given `value` may run code of users: to hash, compare or order."""
    return is_wild(value) or type(value) is FunctionType


class Contained(Callee):
    """A method of a container or string: it keeps values, so it is given no proxies."""

    __slots__ = ()

    @bridge
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        function = self.function
        if self._runs(function, args, kwargs):
            return Foreign(function, self.session)(*args, **kwargs)
        plain = self.session.plain
        if not kwargs:
            return function(*plain(args))
        return function(*plain(args), **{k: plain(v) for k, v in kwargs.items()})

    def _runs(self, function: Any, args: Any, kwargs: Any) -> bool:
        if not _CALM.issuperset(map(type, args)) and any(map(_may_run, args)):
            return True
        if kwargs and any(map(_may_run, kwargs.values())):
            return True
        return function.__name__ in _COMPARING and is_wild(function.__self__)


class Managed:
    """A context manager that runs code jitla does not see, on entry and on exit."""

    __slots__ = ("manager", "session")

    def __init__(self, manager: Any, session: Session) -> None:
        self.manager = manager
        self.session = session

    def __enter__(self) -> Any:
        manager = self.manager
        return self.session.result(self._foreign(type(manager).__enter__, manager), (), ())

    def __exit__(self, *raised: Any) -> Any:
        manager = self.manager
        return self._foreign(type(manager).__exit__, manager, *raised)

    def _foreign(self, function: Any, *args: Any) -> Any:
        session = self.session
        session.materialise_escapes()
        if len(args) > 2:
            session.materialise_exception(args[2])
        LOCAL.session = None
        try:
            if looks_at_caller(function):
                return call_from(user_frame(), session, function, args, {})
            return function(*args)
        finally:
            LOCAL.session = session
            session.update_error_state()


class Consumer(Callee):
    """A builtin that asks its arguments to convert, compare or step: those of users may run any code."""

    __slots__ = ()

    @bridge
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if all(map(_is_known, args)) and all(map(_is_known, kwargs.values())):
            if args and type(args[0]) is LazyScalar and self.function in _SEQUENTIAL:
                args = self.session.plain(args)  # an error, in the right words
            return self.function(*args, **kwargs)
        return Foreign(self.function, self.session)(*args, **kwargs)


def _is_known(value: Any) -> bool:
    """Say whether a builtin that is given `value` runs no code of users that jitla does not see."""
    kind = type(value)
    if kind is FunctionType:
        return is_twin(value.__code__)
    if kind is MethodType:
        return type(value.__func__) is FunctionType and is_twin(value.__func__.__code__)
    if kind is BuiltinFunctionType:  # a method of an object may keep what it is given
        return type(value.__self__) is ModuleType
    return not is_wild(value) or kind not in CONTAINERS and is_tame(value)


def is_tame(value: Any) -> bool:
    """Say whether iterating over `value` runs no code but Python's, the tracer's and a twin's."""
    kind = type(value)
    if kind in _TAME or kind is FunctionType:
        return True
    if kind is zip or kind is enumerate:
        return all(map(is_tame, value.__reduce__()[1]))
    if kind is map:
        return getattr(value.__reduce__()[1][0], "__func__", None) is Session.element
    return kind is GeneratorType and is_twin(value.gi_code)


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
