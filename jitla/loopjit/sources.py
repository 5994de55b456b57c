"""What loops go through: ranges, arrays, and these enumerated or zipped, as parts between two positions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from jitla.loopjit.operands import SMALL_BITS, key_of

MAX_ITERATIONS = 1 << 62


class Endless:
    """The iterations of a ``while`` loop."""

    lists: tuple[list[Any], ...] = ()
    arrays: tuple[np.ndarray, ...] = ()
    starts: tuple[int, ...] = ()
    key: Any = "while"
    length = MAX_ITERATIONS

    def part(self, begin: int, end: int) -> Iterable[Any]:
        """Return as many items as there are iterations from one position to another."""
        return range(end - begin)


class Range:
    """A range."""

    lists: tuple[list[Any], ...] = ()
    arrays: tuple[np.ndarray, ...] = ()
    starts: tuple[int, ...]
    length: int
    key: Any

    def __init__(self, values: range) -> None:
        self.values = values
        self.starts = (values.start,)
        self.length = len(values)
        start, stop, step = values.start, values.stop, values.step
        least = (start if start < stop else stop) + (step < 0)
        bits = (start | stop if start >= 0 <= stop else abs(start) | abs(stop)).bit_length()
        # of the begin it matters whether one, or two, may be subtracted
        self.key = "range", step, -1 if least < 0 else least if least < 2 else 2, bits <= SMALL_BITS, \
            bits <= 2 * SMALL_BITS

    def part(self, begin: int, end: int) -> Iterable[Any]:
        """Return the numbers from one position to another."""
        return self.values[begin:end]


class Items:
    """An array, along its first axis."""

    starts: tuple[int, ...] = ()
    lists: tuple[list[Any], ...] = ()
    arrays: tuple[np.ndarray, ...]
    length: int
    key: Any

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.arrays = (array,)
        self.length = len(array)
        self.key = "items", key_of(array)

    def part(self, begin: int, end: int) -> Iterable[Any]:
        """Return the items from one position to another."""
        return self.array[begin:end]


class LiveItems:
    """A list, which may get longer or shorter while it is gone through."""

    starts: tuple[int, ...] = ()
    arrays: tuple[np.ndarray, ...] = ()
    key: Any = "list"

    def __init__(self, values: list[Any]) -> None:
        self.values = values
        self.lists = (values,)

    @property
    def length(self) -> int:
        """The number of items, as it is now."""
        return len(self.values)

    def part(self, begin: int, end: int) -> Iterable[Any]:
        """Return the items from one position to another, as they are when they are reached."""
        items: Any = iter(self.values)
        items.__setstate__(begin)
        return islice(items, end - begin)


class Enumerated:
    """An ``enumerate`` object."""

    arrays: tuple[np.ndarray, ...]
    starts: tuple[int, ...]
    lists: tuple[list[Any], ...]
    key: Any

    def __init__(self, inner: Source, start: int) -> None:
        self.inner, self.start = inner, start
        self.arrays, self.starts, self.lists = inner.arrays, inner.starts, inner.lists
        self.key = "enumerate", start, inner.key

    @property
    def length(self) -> int:
        """The number of pairs, as it is now."""
        return self.inner.length

    def part(self, begin: int, end: int) -> Iterable[Any]:
        """Return the pairs from one position to another."""
        return zip(range(self.start + begin, self.start + end), self.inner.part(begin, end), strict=False)


class Zipped:
    """A ``zip`` object."""

    arrays: tuple[np.ndarray, ...]
    starts: tuple[int, ...]
    lists: tuple[list[Any], ...]
    key: Any

    def __init__(self, parts: Sequence[Source]) -> None:
        self.parts = parts
        self.arrays = tuple(array for part in parts for array in part.arrays)
        self.starts = tuple(start for part in parts for start in part.starts)
        self.lists = tuple(values for part in parts for values in part.lists)
        self.key = ("zip", *(part.key for part in parts))

    @property
    def length(self) -> int:
        """The number of tuples, as it is now."""
        return min(part.length for part in self.parts)

    def part(self, begin: int, end: int) -> Iterable[Any]:
        """Return the tuples from one position to another."""
        return zip(*(part.part(begin, end) for part in self.parts), strict=False)


Source = Endless | Range | Items | LiveItems | Enumerated | Zipped


class Nested(NamedTuple):
    """A call among the arguments of another, which is not done yet."""

    function: Any
    args: tuple[Any, ...]
    options: dict[str, Any]

    def done(self) -> Any:
        """Return the result of the call."""
        return self.function(*map(plain_argument, self.args), **self.options)


def may_wait(function: Any, args: tuple[Any, ...]) -> bool:
    """Return whether nothing observes when a call is done: it is of a builtin function, for ranges, lists and
    arrays.
    """
    return any(function is each for each in (range, zip, enumerate, reversed)) and all(
        type(arg) in (int, np.ndarray, list, range, Nested) or isinstance(arg, np.integer) for arg in args)


def plain_argument(value: Any) -> Any:
    """Return an argument, with the call that it is done."""
    return value.done() if type(value) is Nested else value


def _range_source(values: range) -> Range | None:
    """Return a range as a source; None for one of more numbers than a program counts."""
    ends = values.start, values.stop, values.step
    return Range(values) if all(-MAX_ITERATIONS < end < MAX_ITERATIONS for end in ends) else None


def source_of(iterable: Any) -> Source | None:
    """Return what a loop over `iterable` goes through; None if it is nothing that code can go through."""
    if type(iterable) is Nested:
        return source_of_call(iterable.function, iterable.args, iterable.options)
    if type(iterable) is range:
        return _range_source(iterable)
    if type(iterable) is np.ndarray and iterable.ndim:
        return Items(iterable)
    if type(iterable) is list:
        return LiveItems(iterable)
    return None


def source_of_call(function: Any, args: tuple[Any, ...],
                   options: Mapping[str, Any] | None = None) -> Source | None:
    """Return what a loop over ``function(*args, **options)`` goes through, or None."""
    if function is reversed and len(args) == 1 and not options and (
            type(args[0]) is not Nested or args[0].function is range):
        value = plain_argument(args[0])
        return _range_source(value[::-1]) if type(value) is range else source_of(value[::-1]) \
            if type(value) is np.ndarray and value.ndim else None
    if options and (function is not zip or options.keys() != {"strict"}):
        return None
    if function is range and all(type(arg) is int or isinstance(arg, np.integer) for arg in args) \
            and 1 <= len(args) <= 3 and not (len(args) == 3 and args[2] == 0):
        return _range_source(range(*args))
    if function is enumerate and (len(args) == 1 or len(args) == 2 and type(args[1]) is int):
        inner = source_of(args[0])
        return None if inner is None else Enumerated(inner, args[1] if len(args) == 2 else 0)
    if function is zip and args:
        parts = [part for part in map(source_of, args) if part is not None]
        if len(parts) < len(args) or options and options.get("strict") and len({x.length for x in parts}) > 1:
            return None
        return Zipped(parts)
    return None
