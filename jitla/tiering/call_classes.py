"""Call classes: the calls of one function with similar arguments, keyed by kinds and size classes (bits)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from math import prod
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from jitla.introspection import hide_module
from jitla.tiering.engine import CallClass, FunctionProfile

__all__ = [
    "Bypass", "CallClasses", "MAX_CALL_CLASSES", "RUNNING_SESSIONS", "argument_class", "element_bits",
    "sparse_classes",
]


# Tracing sessions in progress.
RUNNING_SESSIONS: set[Any] = set()
# Strings up to this length may be modes and are keyed by value.
MAX_WORD_LENGTH = 24
# Upper bound on the call classes of a site.
MAX_CALL_CLASSES = 256
_ndarray = np.ndarray
_KEYED_BY_VALUE = frozenset({bool, type(None)})
_CONTAINERS = frozenset({list, tuple})
_NON_DATA_TYPES = frozenset({FunctionType, ModuleType, type})  # their attributes are no data
# Items of a container, or attributes of an object, that are inspected.
MAX_INSPECTED_ITEMS = 32
_SPARSE_FORMATS = ("csr", "csc", "coo")


class Bypass(NamedTuple):
    """Plain calls of one class: range of elements, number of calls, seconds of a plain and a traced call."""

    low: int
    high: int
    calls: int
    plain: float
    traced: float


class CallClasses:
    """The call classes of one function, defined at `place`, under one set of options."""

    def __init__(self, profile: FunctionProfile, place: tuple[str, int] = ("", 0)) -> None:
        self.place = place
        self.profile = profile
        self.kinds: dict[Any, CallClass] = {}
        self._calls = self._loop_calls = 0  # of classes that were dropped

    @property
    def all_calls(self) -> int:
        """The number of calls that ran plain or with compiled loops, as far as they were recorded."""
        return self._calls + self._loop_calls + sum(
            kind.calls + kind.loop_calls for kind in list(self.kinds.values()))

    @property
    def calls(self) -> int:
        """The number of calls that ran plain."""
        return self._calls + self.skipped + sum(kind.calls for kind in list(self.kinds.values()))

    @property
    def is_cold(self) -> bool:
        """Whether no call was traced so far."""
        kinds = list(self.kinds.values())
        return bool(kinds) and all(kind.is_cold for kind in kinds)

    @property
    def skipped(self) -> int:
        """The number of plain calls that were not recorded individually."""
        return sum(kind.granted - kind.skip for kind in list(self.kinds.values()))

    def class_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallClass:
        """Return the class of a call."""
        elements = 0
        key_parts: tuple[Any, ...] = ()
        for value in args:
            if type(value) is _ndarray:
                elements += value.size
            else:
                key_parts += argument_class(value)
        if kwargs:
            for name, value in kwargs.items():
                key_parts += (name, *argument_class(value))
        bits = elements.bit_length()
        key = (bits, key_parts) if key_parts else bits
        call_class = self.kinds.get(key)
        return self._add_class(key, args, kwargs) if call_class is None else call_class

    def _add_class(self, key: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallClass:
        if len(self.kinds) >= MAX_CALL_CLASSES:
            self._calls, self._loop_calls = self.calls, self.all_calls - self.calls + self.skipped
            self.kinds.clear()
            self.profile.traced.clear()
        bits = element_bits(args, kwargs)
        self.profile.tracer.begin_class(args, kwargs, bits)
        return self.kinds.setdefault(key, CallClass(bits, self.profile))

    @property
    def classes(self) -> Iterator[type]:
        """The types of arguments other than arrays, in no order and with repetitions."""
        for key in list(self.kinds):
            yield from (part for part in (key[1] if type(key) is tuple else ()) if isinstance(part, type))

    def bypasses(self) -> Iterator[Bypass]:
        """Yield the classes for which the plain function was faster."""
        for kind in list(self.kinds.values()):
            calls = kind.calls + kind.granted - kind.skip
            traced, plain = kind.best
            if calls and 0.0 < plain < traced:
                low, high = (1 << kind.elements) >> 1, (1 << kind.elements) - 1
                yield Bypass(low, high, calls, plain, traced)

    def clear(self) -> None:
        """Discard all classes."""
        self.kinds.clear()
        self._calls = self._loop_calls = 0
        self.profile.clear()


def element_bits(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Return the bit length of the number of elements in the arguments, including in containers."""
    return sum(map(_element_count, (*args, *kwargs.values()))).bit_length()


def _element_count(value: Any) -> int:
    """Return the number of elements of an array, sparse matrix, table, or container of arrays."""
    kind = type(value)
    if kind is _ndarray:
        return int(value.size)
    if kind in _CONTAINERS or kind is dict:
        # copied first: another thread may change a dictionary meanwhile
        items = list(islice(value.values() if kind is dict else value, MAX_INSPECTED_ITEMS))
        return sum([item.size for item in items if type(item) is _ndarray])
    if hasattr(kind, "to_numpy"):
        return prod(_table_shape(value) or (0,))
    scipy = sys.modules.get("scipy.sparse")
    if scipy is not None and kind in sparse_classes(scipy):
        return int(value.nnz)
    try:
        attributes = object.__getattribute__(value, "__dict__")  # a class may answer by code of its own
    except AttributeError:
        return 0
    return 0 if type(attributes) is not dict or kind in _NON_DATA_TYPES else _element_count(attributes)


def _table_shape(table: Any) -> tuple[int, ...]:
    shape = getattr(table, "shape", ())
    return tuple([n for n in shape if type(n) is int]) if type(shape) is tuple else ()


def argument_class(value: Any) -> tuple[Any, ...]:
    """Return the key of an argument, which its call's time may depend on: type and bit length, or value."""
    kind = type(value)
    if kind is int:
        return (kind, value.bit_length())
    if kind is _ndarray:
        return (kind, value.size.bit_length())
    if kind is str:
        return (value,) if len(value) <= MAX_WORD_LENGTH else (kind,)
    if kind in _KEYED_BY_VALUE:
        return (value,)
    if kind in _CONTAINERS:
        return (kind, len(value).bit_length(), _element_count(value).bit_length())
    if hasattr(kind, "to_numpy"):
        return (kind, *[n.bit_length() for n in _table_shape(value)])
    scipy = sys.modules.get("scipy.sparse")
    if scipy is not None and kind in sparse_classes(scipy):
        entries = getattr(getattr(value, "data", None), "size", 0)
        return (kind, entries.bit_length(), *[int(n).bit_length() for n in value.shape])
    return (kind,)


@lru_cache(maxsize=4)
def sparse_classes(scipy: Any) -> frozenset[type]:
    """Return SciPy's sparse classes that are recorded."""
    return frozenset(getattr(scipy, f"{f}_{k}") for f in _SPARSE_FORMATS for k in ("array", "matrix"))


hide_module(__name__)
