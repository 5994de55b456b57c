"""How calls of each kind are done as long as nothing but clocks is needed for that, and what kinds there are.

Knows: sizes and classes of arguments, clocks. Must not know: how calls are traced.
Receives calls; returns what they return, and how many there were.

Calls are alike if their arrays have as many elements, but for a factor below two, and their other arguments
are of the same kinds. Those on few elements are left to the plain function until they have taken so long that
it may pay to trace one: until then a program needs none of the heavy rooms.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from math import inf
from opcode import opmap
from time import perf_counter
from types import CodeType
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Bypass", "Cold", "FEW", "GRANT", "Payoff", "RUNNING", "USUAL", "indexes_in_turn",
           "kind_of_argument", "kinds", "loops_back", "patience"]

# What traces calls now.
RUNNING: set[Any] = set()
# Elements that are few, by their bits: see `Cold`.
FEW = 18
# Seconds of plain calls before one is traced, by the bits of the number of elements: up to so many.
PATIENCE = ((9, 2.0), (13, 0.5), (17, 0.1), (18, 0.05))
# Bytes of code that this is for: the first traced call of more takes as many times as long.
USUAL = 200
# Calls that are not timed after one that is.
GRANT = 31
# A text so long is a word, which may say what is to be done.
WORD = 24
# As many kinds of calls are kept apart.
MOST_KINDS = 256
_JUMPS = frozenset(code for name, code in opmap.items() if "JUMP_BACKWARD" in name)
# Instructions that index, where they are told from others, and those that make slices and constants.
_INDEX = frozenset(opmap[name] for name in ("BINARY_SUBSCR", "STORE_SUBSCR") if "BINARY_SUBSCR" in opmap)
_NO_ELEMENT = frozenset({opmap["BUILD_SLICE"], opmap["COMPARE_OP"]})
_CONSTANT, _EXTENDED, _CACHE, _TUPLE, _SLICE, _ATTRIBUTE, _GLOBAL = (opmap.get(name, 0) for name in (
    "LOAD_CONST", "EXTENDED_ARG", "CACHE", "BUILD_TUPLE", "BUILD_SLICE", "LOAD_ATTR", "LOAD_GLOBAL"))
_NEW_AXIS = "newaxis"
_ndarray = np.ndarray
_VALUES = frozenset({bool, type(None)})
_CONTAINERS = frozenset({list, tuple})
_FORMATS = ("csr", "csc", "coo")

Grow = Callable[[float], Any]  # given the seconds of a plain call, as far as they are known
Kinds = tuple[Callable[..., Any], Callable[..., Any]]  # which rise, and which are settled


class Bypass(NamedTuple):
    """Calls that the plain function served: elements from and to, how many, seconds of one, both ways."""

    low: int
    high: int
    calls: int
    plain: float
    traced: float


def patience(elements: int, length: int = 0) -> float:
    """Return the seconds of plain calls on so many elements, in bits, before one is traced.

    `length` is that of the function's code.
    """
    return next((seconds for most, seconds in PATIENCE if elements <= most), 0.0) * max(length / USUAL, 1.0)


class Cold:
    """Calls on few elements that nothing is known of yet: the plain function does them."""

    bypassed = True

    def __init__(self, elements: int, grow: Grow, left: float) -> None:
        self.elements = elements
        self.calls = 0
        self.best = (0.0, 0.0)
        self.skip = self.granted = 0
        self.short: Any = None
        self._left = left  # seconds of plain calls until one is traced
        self._least = inf  # of a plain call
        self._grow = grow

    def bypass(
        self, site: Any, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
    ) -> Any:
        """Call the plain function; when enough time went into that, the next call is traced."""
        seen = 1 + self.granted - self.skip
        if site is not None:
            site.calls += seen
        self.calls += seen
        self.skip = self.granted = 0
        start = perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            taken = perf_counter() - start
            self._left -= seen * taken
            self._least = min(self._least, taken)
            if self._left < 0.0:
                self._grow(self._least)
            elif taken * GRANT < self._left / 4:
                self.skip = self.granted = GRANT


class Payoff:
    """What one site knows of the kinds of its calls; `load` returns what those become that are not cold.

    `length` is that of the function's code.
    """

    def __init__(
        self, file: str, line: int, load: Callable[[], Kinds], kept: bool = False, length: int = 0,
    ) -> None:
        self.place = file, line
        self._length = length
        # Whether Python has to go through elements one by one, however many there are.
        self._kept = kept
        self.kinds: dict[Any, Any] = {}
        self._load = load
        self._calls = 0

    @property
    def calls(self) -> int:
        """Calls that the plain function served."""
        served: int = self._calls + self.skipped + sum(kind.calls for kind in list(self.kinds.values()))
        return served

    @property
    def cold(self) -> bool:
        """Whether no call was traced because all were on few elements."""
        kinds = list(self.kinds.values())
        return bool(kinds) and all(type(kind) is Cold for kind in kinds)

    @property
    def skipped(self) -> int:
        """Calls of these that were not even noted."""
        return sum(kind.granted - kind.skip for kind in list(self.kinds.values()))

    def of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the kind of a call."""
        elements = 0
        others: tuple[Any, ...] = ()
        for value in args:
            if type(value) is _ndarray:
                elements += value.size
            else:
                others += kind_of_argument(value)
        if kwargs:
            for name, value in kwargs.items():
                others += (name, *kind_of_argument(value))
        bits = elements.bit_length()
        key = (bits, others) if others else bits
        found = self.kinds.get(key)
        return self._meet(key, bits) if found is None else found

    def _meet(self, key: Any, bits: int) -> Any:
        if len(self.kinds) >= MOST_KINDS:
            self._calls = self.calls
            self.kinds.clear()
        return self.kinds.setdefault(key, self._begun(key, bits))

    def _begun(self, key: Any, bits: int) -> Any:
        """Return a kind that was not met before: on few elements, then rising, then compared."""
        def rise(spent: float = 0.0, plain: float = 0.0) -> Any:
            rising, settled = self._load()
            return self._next(key, rising(
                bits, lambda known: self._next(key, settled(bits, known)), spent, plain))

        few = min(bits, FEW) if self._kept else bits
        left = patience(few, self._length)
        return Cold(bits, lambda plain: rise(left, plain), left) if few <= FEW else rise()

    def _next(self, key: Any, kind: Any) -> Any:
        before = self.kinds.get(key)
        if before is not None:
            kind.calls += before.calls + before.granted - before.skip
            before.skip = 0
        self.kinds[key] = kind
        return kind

    @property
    def classes(self) -> Iterator[type]:
        """The classes of arguments of calls, other than arrays; in no order, some more than once."""
        for key in list(self.kinds):
            yield from (each for each in (key[1] if type(key) is tuple else ()) if isinstance(each, type))

    def bypasses(self) -> Iterator[Bypass]:
        """Yield what is left to the plain function now, or was."""
        for kind in list(self.kinds.values()):
            calls = kind.calls + kind.granted - kind.skip
            if calls and 0.0 < kind.best[1] < kind.best[0]:
                low, high = (1 << kind.elements) >> 1, (1 << kind.elements) - 1
                traced, plain = kind.best
                yield Bypass(low, high, calls, plain, traced)

    def clear(self) -> None:
        """Forget everything learnt."""
        self.kinds.clear()
        self._calls = 0


def kind_of_argument(value: Any) -> tuple[Any, ...]:
    """Say of an argument what the time of a call may depend on: bits of sizes, words, else its type."""
    kind = type(value)
    if kind is int:
        return (kind, value.bit_length())
    if kind is _ndarray:
        return (kind, value.size.bit_length())
    if kind is str:
        return (value,) if len(value) <= WORD else (kind,)
    if kind in _VALUES:
        return (value,)
    if kind in _CONTAINERS:
        held = sum(each.size for each in value[:8] if type(each) is _ndarray)
        return (kind, len(value).bit_length(), held.bit_length())
    scipy = sys.modules.get("scipy.sparse")
    if scipy is not None and kind in kinds(scipy):
        stored = getattr(getattr(value, "data", None), "size", 0)
        return (kind, stored.bit_length(), *[int(n).bit_length() for n in value.shape])
    return (kind,)


@lru_cache(maxsize=4)
def kinds(scipy: Any) -> frozenset[type]:
    """Return the classes of SciPy that are recorded."""
    return frozenset(getattr(scipy, f"{f}_{k}") for f in _FORMATS for k in ("array", "matrix"))


def indexes_in_turn(code: CodeType) -> bool:
    """Say whether `code` may have loops over elements: loops, in them indices but constants, slices, masks.

    Else the room that knows all about such loops, which takes long to load, would find none.
    """
    found, loops = code.co_code, list(_loops(code))
    if not _INDEX or not loops:
        return bool(loops)
    return any(
        found[at] in _INDEX and not _is_fixed(code, at - 2)
        for first, last in loops for at in range(max(first, 2), last, 2))


def _loops(code: CodeType) -> Iterator[tuple[int, int]]:
    """Yield where loops begin and end, about."""
    found, distance = code.co_code, 0
    for at in range(0, len(found), 2):
        distance = distance << 8 | found[at + 1]
        if found[at] in _JUMPS:
            yield at + 2 - 2 * distance, at
        if found[at] != _EXTENDED:
            distance = 0


def _is_fixed(code: CodeType, at: int) -> bool:
    """Say whether the instruction makes an index that is a slice, a mask, or a constant written as one."""
    while at > 0 and code.co_code[at] == _CACHE:
        at -= 2
    kind, number = code.co_code[at:at + 2]
    if kind == _TUPLE:
        return _is_tuple(code, at)
    if kind != _CONSTANT or at and code.co_code[at - 2] == _EXTENDED:
        return kind in _NO_ELEMENT
    value = code.co_consts[number]
    return type(value) is str or type(value) is int and value >= 0


def _is_tuple(code: CodeType, at: int) -> bool:
    """Say whether the instruction makes a tuple of constants, slices between constants, and new axes."""
    wanted = 1  # values that are still to be made
    while wanted and at >= 0:
        kind, number = code.co_code[at:at + 2]
        if at and code.co_code[at - 2] == _EXTENDED:
            return False
        if kind in (_TUPLE, _SLICE):
            wanted += number - 1
        elif kind == _ATTRIBUTE:
            if _NEW_AXIS not in (code.co_names[n] for n in (number, number >> 1) if n < len(code.co_names)):
                return False
        elif kind in (_CONSTANT, _GLOBAL):
            wanted -= 1
        elif kind != _CACHE:
            return False
        at -= 2
    return not wanted


def loops_back(code: CodeType) -> bool:
    """Say whether there is a loop in `code`, by its instructions."""
    return next(_loops(code), None) is not None
