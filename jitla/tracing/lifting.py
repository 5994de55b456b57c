"""What values become before a twin uses them, so that no operation on them escapes the tracer.

Knows: which values run code of users where they are read, iterated or compared. Must not know: blocks, which
callables are traced. Receives operands, iterables and attributes from twins; returns what stands for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import FunctionType
from typing import Any

import numpy as np

from jitla.tracing.array import LAZY, LazyArray, LazyScalar
from jitla.tracing.callees import SAFE_ITERABLES, Foreign, is_tame
from jitla.tracing.compressed import recorded
from jitla.tracing.frames import bridge
from jitla.tracing.kinds import CONTAINERS, STEPPING, TAME, getter_of, is_wild, runs_code, still
from jitla.tracing.session import Session
from jitla.tracing.sparsified import Sparsified
from jitla.tracing.stored import LazySparse
from jitla.tracing.thread_state import LOCAL
from jitla.tracing.wild import wild

_ARRAYS = LAZY | {np.ndarray}
_STANDING = LAZY | {LazySparse}  # these may stand for objects that are somewhere
_SEQUENCES = frozenset({tuple, list, LazyArray, np.ndarray, str})


class Lifting:
    """The part of the hooks that makes values ready for their uses."""

    def call(self, f: Any) -> Any:
        """Return what is called instead of `f`."""
        raise NotImplementedError

    def keep(self, value: Any) -> Any:
        """Return what is stored in a global or closure variable: never a proxy."""
        session = LOCAL.session
        return settle_value(value) if session is None else session.plain(value)

    def item(self, value: Any) -> Any:
        """Return an element of a comprehension: never a proxy."""
        session = LOCAL.session
        return settle_value(value) if session is None else session.plain(value)

    def term(self, value: Any) -> Any:
        """Return an element of a comprehension that is added to others at once: arrays may be proxies."""
        return value if type(value) is LazyArray else self.item(value)

    def hashed(self, value: Any) -> Any:
        """Return an element of a set or a key, which is hashed and compared: that may run code."""
        return self.calm(self.item(value))

    def same(self, a: Any, b: Any) -> bool:
        """Do ``a is b``: a proxy of an array in memory is that array."""
        if a is b:
            return True
        kinds = type(a), type(b)
        if _STANDING.isdisjoint(kinds):
            return False
        return _object(a, kinds[0]) is _object(b, kinds[1])

    def iterate(self, iterable: Any) -> Any:
        """Return the iterable of a loop; unknown ones may run any code at each step."""
        return self._steps(iterable, _stepped)

    def opened(self, iterable: Any) -> Any:
        """Return the iterable of a loop that unpacks its elements: those of users run code then."""
        session = LOCAL.session
        if session is None or type(iterable) not in (list, tuple) or _SEQUENCES.issuperset(
            map(type, iterable)
        ):
            return iterable
        return map(self.calm, iterable)

    def foreign(self, function: Any) -> Any:
        """Return what is called instead of `function`, which runs code jitla does not see."""
        session = LOCAL.session
        return function if session is None else Foreign(function, session)

    def tame(self, *values: Any) -> bool:
        """Say whether operators of these parameters run no code of users."""
        return TAME.issuperset(map(type, values)) or all(
            type(v) in TAME or type(v) is np.ndarray and not v.dtype.hasobject for v in values)

    def still(self, value: Any, uses: tuple[str, ...]) -> bool:
        """Say whether a parameter runs no code when it is asked for attributes, or subscripted (``[``)."""
        kind = type(value)
        if kind in CONTAINERS:
            return uses == ("[",)
        return kind in TAME or kind is np.ndarray or "[" not in uses and still(kind, uses)

    def lift(self, value: Any, ways: str) -> Any:
        """Return an operand: as a proxy if it is an array, as `Wild` if it may run code of users.

        `ways` says how it is used: see where the twins are made.
        """
        kind = type(value)
        if kind in TAME:
            return value
        session = LOCAL.session
        if session is None:
            return value
        if kind is np.ndarray:
            if value.dtype.hasobject:
                return wild(value, ways, self)
            return value if ways[0] == "e" else session.argument(value)
        if kind in CONTAINERS:
            way = ways[0]
            if ways == "[" or way in "aen." or (
                way == "k" and (kind not in (list, tuple) or not is_wild(value))
            ):
                return value
            return value if way not in "[c" and not is_wild(value) else wild(value, ways, self)
        if kind in STEPPING and ways[0] in "ae":
            session.hand_over()
            return value  # NumPy asks whether it is a sequence
        return wild(value, ways, self) if is_wild(value) else value

    @bridge
    def attribute(self, obj: Any, name: str, ways: str = "") -> Any:
        """Return ``obj.name``, ready for its uses."""
        if type(obj) is LazyArray:
            return getattr(obj, name)
        session = LOCAL.session
        if session is None:
            return getattr(obj, name)
        kind = type(obj)
        if kind is np.ndarray:
            value = getattr(session.argument(obj), name)
        elif name == "T" and (turned := recorded(session, "transpose", (obj,), {})) is not NotImplemented:
            value = turned
        elif kind is LazySparse or kind is Sparsified or not runs_code(obj, kind, name):
            value = getattr(obj, name)
        else:
            getter = getter_of(kind, name)
            if type(getter) is FunctionType:
                value = self.call(getter)(obj)
            else:
                value = Foreign(getattr, session)(obj, name)
        return self.lift(value, ways) if ways else value

    @bridge
    def _get(self, obj: Any, name: str, *default: Any) -> Any:
        try:
            session = LOCAL.session
            if session is not None and type(obj) in _ARRAYS and str(name).startswith("__"):
                return getattr(session.plain(obj), name)  # not what proxies have for Python
            return self.attribute(obj, name)
        except AttributeError:
            if not default:
                raise
            return default[0]

    @bridge
    def _has(self, obj: Any, name: str) -> bool:
        return self._get(obj, name, LOCAL) is not LOCAL

    def calm(self, value: Any) -> Any:
        """Return what Python asks for its truth, or to be compared: nothing is pending if that runs code."""
        if type(value) not in TAME:
            session = LOCAL.session
            if session is not None and type(value) not in CONTAINERS and is_wild(value):
                session.hand_over()
        return value

    def asked(self, value: Any) -> Any:
        """Return the class, or classes, that Python asks about an object: metaclasses may answer."""
        if type(value) is not type and is_wild(value):
            session = LOCAL.session
            if session is not None:
                session.hand_over()
        return value

    def spread(self, value: Any) -> Any:
        """Return what is unpacked as arguments or elements beside others."""
        return self._steps(value, lambda given, session: Foreign(list, session)(given))

    def alone(self, value: Any) -> Any:
        """Return what is unpacked as all arguments: since Python 3.14 no length is asked for then."""
        return self._steps(value, lambda given, session: Foreign(tuple, session)(given))

    def _steps(self, value: Any, foreign: Callable[[Any, Session], Any]) -> Any:
        """Return what is iterated over: what `foreign` makes of `value` if its steps may run any code."""
        session = LOCAL.session
        if session is None or type(value) in SAFE_ITERABLES:
            return value
        if is_tame(value):
            return value if type(value) is not LazyScalar else session.plain(value)
        if not hasattr(type(value), "__iter__") and not hasattr(type(value), "__getitem__"):
            return value
        return foreign(value, session)

    def mapping(self, value: Any) -> Any:
        """Return what is unpacked as keywords or items."""
        session = LOCAL.session
        if session is None or type(value) is dict or not hasattr(type(value), "keys"):
            return value
        return Foreign(dict, session)(value)


def _stepped(iterable: Iterable[Any], session: Session) -> Iterator[Any]:
    steps = Foreign(iter, session)(iterable)
    while True:
        session.hand_over()
        LOCAL.session = None
        try:
            value = next(steps)
        except StopIteration:
            return
        finally:
            LOCAL.session = session
            session.attend()
        yield value


def settle_value(value: Any) -> Any:
    """Return what a value stands for where no session is under way: suspended frames may hold proxies."""
    return value._s.value(value) if type(value) in LAZY else value


def _object(value: Any, kind: type) -> Any:
    """Return the object that `value` stands for, if it stands for one that is somewhere."""
    if kind is LazySparse:
        return value if value._made is None else value._made
    if kind in LAZY:
        if value._v is not None:
            return value._v
        if kind is LazyScalar and value.dtype == bool:  # there are only two of them
            return value._s.value(value)
    return value
