"""Replacements of callees in instrumented code: instrumented functions, and wrappers of foreign callables.

`InstrumentedTable` finds the instrumented version of a user's function. The subclasses of `Callee` wrap all
other callables: they end the open block or replace proxies by arrays as far as the callable requires it.
Apart from `hooks`, which find where control leaves traced operations: the callables reached there are a
subject of their own.
"""

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
    MISSING,
    NON_ARRAY_TYPES,
    NOT_ARRAY,
    SCALAR_TYPES,
    CodeCache,
    Instrumenter,
    is_instrumented,
    loops_in_python,
)
from jitla.introspection import ARRAY_PACKAGES, hide_module, is_decorated, is_installed, package_of
from jitla.tracing.callers import call_from, looks_at_caller
from jitla.tracing.frames import (
    BRIDGE,
    INTERNAL,
    LOCAL,
    USER,
    bridge,
    call_at,
    frame_kind,
    hide_function,
    mark,
    place_of,
    user_frame,
)
from jitla.tracing.indexing import ArrayReader
from jitla.tracing.lazy import LAZY, LazyArray, LazyScalar
from jitla.tracing.numba_ufuncs import record_or_call
from jitla.tracing.numpy_api.functions import FUNCTIONS, add_at, written_arrays
from jitla.tracing.numpy_api.linalg import zeros
from jitla.tracing.session import Session
from jitla.tracing.sparse.operations import record_sparse_call
from jitla.tracing.sparse.sparsify import apply_in_session
from jitla.tracing.user_types import CONTAINER_TYPES, SAFE_TYPES, may_run_user_code

SAFE_ITERABLES = frozenset({
    range, list, tuple, dict, set, frozenset, str, bytes, type({}.keys()), type({}.values()),
    type({}.items()), LazyArray, np.ndarray,
})
_BUILTIN_ITERABLES: tuple[Any, ...] = (
    [], (), {}, {}.values(), {}.items(), set(), "", "\xe9", b"", range(1), range(1 << 70))
_SAFE_ITERABLE_TYPES = SAFE_ITERABLES | SCALAR_TYPES | {
    LazyScalar, type(None), *(type(iter(each)) for each in _BUILTIN_ITERABLES)}

# Builtins that require a length or an iterator: a scalar has neither, and the error names its type.
_SEQUENCE_BUILTINS = frozenset({iter, len, next, reversed})

_UFUNC_OPERANDS = LAZY | {int, float}


class Callee:
    """Replacement of the callable `function` while `session` is active."""

    __slots__ = ("function", "session")

    def __init__(self, function: Any, session: Session) -> None:
        self.function = function
        self.session = session


class ForeignCall(Callee):
    """Call of untraced code: pending operations are computed before it, and no proxy escapes."""

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        result = record_sparse_call(self.session, self.function, args, kwargs)
        if result is NotImplemented:
            result = apply_in_session(self.session, self.function, args, kwargs)
        if result is NotImplemented:
            result = self.session.boundary.call_opaque(self.function, args, kwargs)
        return result


class NumbaCall(Callee):
    """Call of a function compiled with Numba: recorded if it is element-wise, else a foreign call."""

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        result = NotImplemented if kwargs else record_or_call(self.session, self.function, args)
        if result is NotImplemented:
            result = self.session.boundary.call_opaque(self.function, args, kwargs)
        return result


class AddAtCall(Callee):
    """Call of ``np.add.at``, recorded if a kernel can do it."""

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 3 and not kwargs and add_at(self.session, *args):
            return None
        return ForeignCall(self.function, self.session)(*args, **kwargs)


class NumpyCall(Callee):
    """Call of a NumPy function that writes no array but `out`."""

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        session, out = self.session, kwargs.get("out")
        if type(out) is LazyArray and len(kwargs) == 1 and _UFUNC_OPERANDS.issuperset(map(type, args)) \
                and type(self.function) is np.ufunc and len(args) == self.function.nin:
            # directly, without NumPy's search for overrides
            return out.__array_ufunc__(self.function, "__call__", *args, out=(out,))
        # With out=... NumPy returns arrays instead of scalars, an option that proxies do not receive.
        if out is ... or any(map(may_run_user_code, args)):
            return ForeignCall(self.function, session)(*args, **kwargs)
        for array in written_arrays(self.function, args, kwargs):
            if type(array) not in LAZY:
                session.memory.before_write(array)
        result = call_at(place_of(_getframe(1)), self.function, args, kwargs)
        return session.boundary.result(result, args, args) if type(result) is np.ndarray else result


class CreationCall(Callee):
    """Call of a NumPy function that creates an array, which is memory of this call."""

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        session = self.session
        if any(map(may_run_user_code, args)):
            return ForeignCall(self.function, session)(*args, **kwargs)
        if session.site.unroll_limit and self.function is np.zeros:
            zero_array = zeros(session, *args, **kwargs)
            if zero_array is not NotImplemented:
                return zero_array
        plain = session.boundary.plain(args)
        options = {k: session.boundary.plain(v) for k, v in kwargs.items()} if kwargs else kwargs
        return session.boundary.result(
            call_at(place_of(_getframe(1)), self.function, plain, options), args, plain)


# Methods of containers that compare elements.
_COMPARING_METHODS = frozenset({"sort", "index", "count", "remove"})
_SAFE_ARGUMENT_TYPES = SAFE_TYPES | {np.ndarray}


def _may_run_code(value: Any) -> bool:
    """Return whether hashing, comparing or calling `value` in a container's method may run user code."""
    return may_run_user_code(value) or type(value) is FunctionType


class ContainerCall(Callee):
    """Call of a method of a container or string, which may retain its arguments: proxies are replaced."""

    __slots__ = ()

    @bridge
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        function = self.function
        if self._runs(function, args, kwargs):
            return ForeignCall(function, self.session)(*args, **kwargs)
        plain = self.session.boundary.plain
        if not kwargs:
            return function(*plain(args))
        return function(*plain(args), **{k: plain(v) for k, v in kwargs.items()})

    def _runs(self, function: Any, args: Any, kwargs: Any) -> bool:
        if not _SAFE_ARGUMENT_TYPES.issuperset(map(type, args)) and any(map(_may_run_code, args)):
            return True
        if kwargs and any(map(_may_run_code, kwargs.values())):
            return True
        return function.__name__ in _COMPARING_METHODS and may_run_user_code(function.__self__)


class ManagedContext:
    """Context manager whose entry and exit are foreign calls."""

    __slots__ = ("manager", "session")

    def __init__(self, manager: Any, session: Session) -> None:
        self.manager = manager
        self.session = session

    def __enter__(self) -> Any:
        manager = self.manager
        return self.session.boundary.result(self._foreign(type(manager).__enter__, manager), (), ())

    def __exit__(self, *raised: Any) -> Any:
        manager = self.manager
        return self._foreign(type(manager).__exit__, manager, *raised)

    def _foreign(self, function: Any, *args: Any) -> Any:
        session = self.session
        session.boundary.materialise_escapes()
        if len(args) > 2:
            session.boundary.materialise_exception(args[2])
        LOCAL.session = None
        try:
            if looks_at_caller(function):
                return call_from(user_frame(), session, function, args, {})
            return function(*args)
        finally:
            LOCAL.session = session
            session.closer.update_error_state()


class BuiltinCall(Callee):
    """Call of a builtin that converts, compares or iterates its arguments, which may run user code."""

    __slots__ = ()

    @bridge
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if all(map(_is_safe_argument, args)) and all(map(_is_safe_argument, kwargs.values())):
            if args and type(args[0]) is LazyScalar and self.function in _SEQUENCE_BUILTINS:
                args = self.session.boundary.plain(args)  # an error, with NumPy's message
            return self.function(*args, **kwargs)
        return ForeignCall(self.function, self.session)(*args, **kwargs)


def _is_safe_argument(value: Any) -> bool:
    """Return whether a builtin with the argument `value` runs no user code that is not instrumented."""
    kind = type(value)
    if kind is FunctionType:
        return is_instrumented(value.__code__)
    if kind is MethodType:
        return type(value.__func__) is FunctionType and is_instrumented(value.__func__.__code__)
    if kind is BuiltinFunctionType:  # a method of an object may retain its arguments
        return type(value.__self__) is ModuleType
    return not may_run_user_code(value) or kind not in CONTAINER_TYPES and is_safe_iterable(value)


def is_safe_iterable(value: Any) -> bool:
    """Return whether iteration over `value` runs no untraced user code."""
    kind = type(value)
    if kind in _SAFE_ITERABLE_TYPES or kind is FunctionType:
        return True
    if kind is zip or kind is enumerate:
        return all(map(is_safe_iterable, value.__reduce__()[1]))
    if kind is map:
        return getattr(value.__reduce__()[1][0], "__func__", None) is ArrayReader.element
    return kind is GeneratorType and is_instrumented(value.gi_code)


_ArrayFunction = type(np.sum)
_SUSPENDING = CO_GENERATOR | CO_COROUTINE


class FunctionEntry(NamedTuple):
    """The instrumented code of one function and its assumptions, without a reference to the function."""

    owner: ref[FunctionType]
    original_code: CodeType
    defaults: tuple[Any, ...] | None
    # The instrumented code (None: the function itself), and the indices of its cells in the closure.
    code: CodeType | None
    cell_indices: tuple[int, ...]
    # The instrumented function, if it has no cells and does not keep the original alive.
    unbound: FunctionType | None
    is_traceable: bool
    # The state of a decorated function, which refers to the function.
    state: ref[Any] | None
    # Assumptions (namespace, name, expected object); None stands for the globals of the function.
    assumptions: list[tuple[Mapping[str, Any] | None, str, Any]]


class InstrumentedTable:
    """Cache of instrumented functions for one hook object, by identity of the original function."""

    def __init__(self, hooks: Any, proxy: type) -> None:
        self._instrumenter = Instrumenter(hooks, is_pure, proxy)
        self._entries: dict[int, FunctionEntry] = {}
        self._runs: CodeCache[bool] = CodeCache(_is_never_instrumented)  # code that is instrumented
        # Top-level names of packages that decorate functions: they count as user code even if installed.
        self._decorated: set[str] = set()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, function: FunctionType, decorated: bool = False) -> Callable[..., Any] | None:
        """Return the instrumented version of a function for its current globals; None if there is none."""
        if decorated:
            self._decorated.update({package_of(function)} - ARRAY_PACKAGES)
        code = function.__code__
        entry = self._entries.get(id(function))
        if entry is None or entry.owner() is not function or entry.original_code is not code \
                or entry.defaults is not function.__defaults__ or _is_stale(entry.assumptions, function):
            if is_instrumented(code):  # instrumented functions have no entry
                return function
            entry = self._add_entry(function)
        state = entry.state and entry.state()
        if state is not None:
            return self._decorated_callee(function, state)
        session = LOCAL.session
        if session is not None and session.ended:  # the call goes on untraced
            return None
        if not entry.is_traceable:
            return None
        if entry.code is None:
            return function
        return entry.unbound or self._bind_cells(function, entry)

    def reason(self, function: FunctionType) -> str:
        """Return the reason why a user's function cannot be instrumented."""
        return self._instrumenter.reason(function)

    def uninstrumented(self, part: Any) -> Any:
        """Return the original of `part` if it is instrumented code of an inner function, else `part`."""
        return self._instrumenter.uninstrumented(part)

    def runs_in(self, frame: FrameType | None) -> bool:
        """Return whether the innermost code of `frame` that does not belong to jitla is instrumented.

        Signal handlers, ``__del__`` and callbacks are not: they may run during an operation.
        """
        while frame is not None and frame_kind(frame.f_code) in (INTERNAL, BRIDGE):
            frame = frame.f_back
        return frame is not None and self._runs.get(frame.f_code) is not None

    def _add_entry(self, function: FunctionType) -> FunctionEntry:
        key, entries = id(function), self._entries

        def forget(owner: ref[FunctionType]) -> None:
            entry = entries.get(key)
            if entry is not None and entry.owner is owner:  # the id may have a new owner
                del entries[key]

        owner = ref(function, forget)
        state = _state_of(function)
        if state is not None:
            code, defaults = function.__code__, function.__defaults__
            new_entry = FunctionEntry(owner, code, defaults, None, (), None, True, ref(state), [])
        else:
            new_entry = self._instrument(function, owner)
        entries[key] = new_entry
        return new_entry

    def _decorated_callee(self, wrapper: FunctionType, state: Any) -> Callable[..., Any] | None:
        """Return the callee for a decorated function that traced code calls in its session; None: no proxies.

        It is the instrumented function itself, so that a recursion has one frame per level, as in plain code.
        The entry point that users call is needed before the first call, for loops over elements, where each
        call has a separate session, in calls that go on untraced, and where users have set other defaults.
        """
        plain = state.function
        if _suspends(plain):  # it may resume when this session has ended, so that it must not get proxies
            return None
        loop_state, session = state.loop_function, LOCAL.session
        if not state.is_tracing_loaded or session is not None and session.ended \
                or wrapper.__defaults__ is not plain.__defaults__ \
                or wrapper.__kwdefaults__ is not plain.__kwdefaults__ or loop_state is not None \
                and not loop_state.traced and (session is None or session.site.call_classes is not None):
            entry_point: Callable[..., Any] = state.dispatching_copy(wrapper)
            return entry_point
        return self.get(plain) if state.instrumented else None

    def _instrument(self, function: FunctionType, owner: ref[FunctionType]) -> FunctionEntry:
        package = package_of(function)
        library = package in ARRAY_PACKAGES or is_installed(function.__code__.co_filename) and \
            package not in self._decorated
        instrumented = None if library else self._instrumenter.instrument(function)
        if instrumented is None:
            return FunctionEntry(
                owner, function.__code__, function.__defaults__, None, (), None, False, None, [])
        code = instrumented.__code__
        mark(code, USER)
        for each in _with_inner(code):
            self._runs.put(each, True)
        own = function.__globals__
        assumptions = [(None if space is own else space, name, expected)
                   for space, name, expected in self._instrumenter.assumptions_of(function)]
        if instrumented is function:
            return FunctionEntry(
                owner, function.__code__, function.__defaults__, None, (), None, True, None, assumptions)
        names = function.__code__.co_freevars
        cell_indices = tuple(names.index(name) for name in code.co_freevars)
        return FunctionEntry(
            owner, function.__code__, function.__defaults__, code, cell_indices,
            None if names or function.__kwdefaults__ or not _has_module_globals(function) else instrumented,
            True, None, assumptions)

    def _bind_cells(self, function: FunctionType, entry: FunctionEntry) -> FunctionType:
        """Bind instrumented code to the cells of `function`, which may refer to `function` itself."""
        assert entry.code is not None
        cells = function.__closure__ or ()
        closure = tuple([cells[i] for i in entry.cell_indices])
        instrumented = FunctionType(
            entry.code, function.__globals__, function.__name__, function.__defaults__, closure)
        instrumented.__kwdefaults__ = function.__kwdefaults__
        instrumented.__qualname__ = function.__qualname__
        return instrumented


def _state_of(function: FunctionType) -> Any:
    """Return the state of a decorated function; None if it is not decorated, or an alias of the plain one."""
    state = function.__dict__["__jitla_state__"] if is_decorated(function) else None
    return None if state is None or state.plain_reason else state


def _suspends(function: Any) -> bool:
    return bool(function.__code__.co_flags & _SUSPENDING) if type(function) is FunctionType else True


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    """Yield `code` and all code objects nested in it."""
    yield code
    for constant in code.co_consts:
        if type(constant) is CodeType:
            yield from _with_inner(constant)


def _is_never_instrumented(code: CodeType) -> bool:
    return False


def _has_module_globals(function: FunctionType) -> bool:
    """Return whether the globals of a function are those of a loaded module, which stays alive anyway."""
    module = sys.modules.get(function.__globals__.get("__name__", ""))
    return getattr(module, "__dict__", None) is function.__globals__


def _is_stale(
    assumptions: list[tuple[Mapping[str, Any] | None, str, Any]], function: FunctionType,
) -> bool:
    for space, name, expected in assumptions:
        value = (function.__globals__ if space is None else space).get(name, MISSING)
        if value is not expected and not (expected is NOT_ARRAY and isinstance(value, NON_ARRAY_TYPES)):
            return True
    return False


def is_pure(function: Any) -> bool:
    """Return whether a callable only reads its array arguments, so that calls of it need no hook."""
    kind = type(function)
    if kind is np.ufunc:
        return not loops_in_python(function)
    return kind is _ArrayFunction and function in FUNCTIONS


hide_module(__name__, hide_function)
