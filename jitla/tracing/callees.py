"""What takes the place of a callee in a twin: it hands over, guards or wraps around the real one.

Knows: what kinds of foreign code may do to memory. Must not know: which callee is of which kind.
Receives callables and a session; returns callables with the same meaning.
"""

from __future__ import annotations

from sys import _getframe
from types import FunctionType, GeneratorType
from typing import Any

import numpy as np

from jitla.source import NUMBERS, is_twin
from jitla.tracing.array import LAZY, LazyArray, LazyScalar
from jitla.tracing.callers import call_from, looks_at_caller
from jitla.tracing.compiled import through
from jitla.tracing.compressed import recorded
from jitla.tracing.frames import bridge, user_frame
from jitla.tracing.functions import written
from jitla.tracing.kinds import CONTAINERS, TAME, is_wild
from jitla.tracing.places import call_at, place_of
from jitla.tracing.scatters import add_at
from jitla.tracing.session import Session
from jitla.tracing.sparsified import analysed
from jitla.tracing.terms import zeros
from jitla.tracing.thread_state import LOCAL

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
        made = recorded(self.session, self.function, args, kwargs)
        if made is NotImplemented:
            made = analysed(self.session, self.function, args, kwargs)
        return self.session.outside(self.function, args, kwargs) if made is NotImplemented else made


class Numba(Callee):
    """A function that the user has compiled with Numba: traced through, or called with finished arrays."""

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        made = NotImplemented if kwargs else through(self.session, self.function, args)
        return self.session.outside(self.function, args, kwargs) if made is NotImplemented else made


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
        for array in written(self.function, args, kwargs):
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
        if session.site.unrolls and self.function is np.zeros:
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
        session.hand_over()
        if len(args) > 2:
            session.mend(args[2])
        LOCAL.session = None
        try:
            if looks_at_caller(function):
                return call_from(user_frame(), session, function, args, {})
            return function(*args)
        finally:
            LOCAL.session = session
            session.attend()


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
