"""Call classes: calls with similar arguments, which run the plain function until tracing may pay off.

Classes are keyed by types and size classes (bits) of arguments. A class with few elements is cold until
enough time was spent in it; then `jitla.tracing.profile` compares traced with plain calls.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import chain, islice
from math import inf, prod
from opcode import opmap
from time import perf_counter
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from jitla.introspection import hide_module, is_decorated
from jitla.profiling.loop_detector import (
    any_reachable,
    has_element_loops,
    has_loops,
    loop_ranges,
    reachable_functions,
)

__all__ = [
    "ShortCalls", "Bypass", "ColdCallClass", "MAX_COLD_BITS", "UNTIMED_CALLS", "CallClasses",
    "RUNNING_SESSIONS", "MAX_COLD_BITS_LOOP_FREE", "REFERENCE_CODE_BYTES", "element_bits",
    "argument_class", "sparse_classes", "seconds_before_tracing", "estimate_call_seconds",
]


# Tracing sessions in progress.
RUNNING_SESSIONS: set[Any] = set()
# Bit lengths up to which elements are few (see `ColdCallClass`), with loops and without.
MAX_COLD_BITS, MAX_COLD_BITS_LOOP_FREE = 18, 22
# Plain calls before one is traced: normally, for brief calls, which tracing seldom speeds up, and before the
# tracing modules are imported.
SPENT_SECONDS, BRIEF_SPENT_SECONDS, LOADING_SPENT_SECONDS = 0.05, 0.5, 0.2
# Longest brief call.
MAX_BRIEF_CALL_SECONDS = 5e-5
# Code size that these bounds are for: the cost of a first traced call is proportional to the size.
REFERENCE_CODE_BYTES = 200
# Untimed calls after each timed one.
UNTIMED_CALLS = 31
# Strings up to this length may be modes and are keyed by value.
MAX_WORD_LENGTH = 24
# Restarts of a comparison that recorded blocks without programs.
MAX_RESTARTS = 3
# Upper bound on the call classes of a site.
MAX_CALL_CLASSES = 256
_ndarray = np.ndarray
_KEYED_BY_VALUE = frozenset({bool, type(None)})
_CONTAINERS = frozenset({list, tuple})
_NON_DATA_TYPES = frozenset({FunctionType, ModuleType, type})  # their attributes are no data
# Items of a container, or attributes of an object, that are inspected.
MAX_INSPECTED_ITEMS = 32
_SPARSE_FORMATS = ("csr", "csc", "coo")

OnTimed = Callable[[float], Any]  # called with the seconds of a plain call, if known
ClassFactories = tuple[Callable[..., Any], Callable[..., Any]]  # of advancing and of settled classes


class Bypass(NamedTuple):
    """Plain calls of one class: range of elements, number of calls, seconds of a plain and a traced call."""

    low: int
    high: int
    calls: int
    plain: float
    traced: float


def seconds_before_tracing(taken: float, length: int = 0, is_loaded: bool = True) -> float:
    """Return the seconds of plain calls, each of `taken` seconds, before one is traced.

    `length` is that of the function's code; `is_loaded`: whether the tracing modules are imported.
    """
    spent = BRIEF_SPENT_SECONDS if taken < MAX_BRIEF_CALL_SECONDS else SPENT_SECONDS
    return (spent if is_loaded else max(spent, LOADING_SPENT_SECONDS)) * max(length / REFERENCE_CODE_BYTES,
                                                                             1.0)


class ColdCallClass:
    """A call class with few elements and without measurements: the plain function runs its calls."""

    def __init__(self, elements: int, advance: Callable[[float, float], Any], length: int) -> None:
        self.elements = elements
        self.bypassed = True
        self.calls = 0
        self.best = (0.0, 0.0)
        self.skip = self.granted = 0
        self.short: Any = None
        self._length = length  # of the function's code
        self._spent = 0.0  # seconds of plain calls
        self._min_seconds = inf  # of a plain call
        self._advance = advance

    def bypass(
        self, site: Any, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
    ) -> Any:
        """Call the plain function; once enough time was spent in such calls, the next one is weighed."""
        count = 1 + self.granted - self.skip
        if site is not None:
            site.calls += count
        self.calls += count
        self.skip = self.granted = 0
        start = perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            seconds = perf_counter() - start
            self._spent += count * seconds
            self._min_seconds = min(self._min_seconds, seconds)
            remaining = seconds_before_tracing(self._min_seconds, self._length,
                                               "jitla.tracing" in sys.modules) - self._spent
            if remaining < 0.0:
                self.bypassed = False  # the tracing modules are imported in the next call, not in this one
            elif seconds * UNTIMED_CALLS < remaining / 4:
                self.skip = self.granted = UNTIMED_CALLS

    def weigh(
        self, site: Any, function: Callable[..., Any], instrumented: Any, args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Run the first call that is not left to the plain function."""
        return self._advance(self._spent, self._min_seconds).weigh(site, function, instrumented, args, kwargs)


class CallClasses:
    """The call classes of one site; `load` returns the constructors of the classes that follow cold ones.

    `length` is that of the function's code; `once`: it has no loops.
    """

    def __init__(
        self, file: str, line: int, load: Callable[[], ClassFactories], has_element_loops: bool = False,
        length: int = 0,
        once: bool = False,
    ) -> None:
        self.place = file, line
        self._length = length
        self._few_bits = MAX_COLD_BITS_LOOP_FREE if once else MAX_COLD_BITS
        # Whether the interpreter loops over elements.
        self._has_element_loops = has_element_loops
        self.kinds: dict[Any, Any] = {}
        self._load = load
        self._calls = 0

    @property
    def calls(self) -> int:
        """The number of calls that the plain function ran."""
        served: int = self._calls + self.skipped + sum(kind.calls for kind in list(self.kinds.values()))
        return served

    @property
    def is_cold(self) -> bool:
        """Whether no call was traced because all had few elements."""
        kinds = list(self.kinds.values())
        return bool(kinds) and all(type(kind) is ColdCallClass for kind in kinds)

    @property
    def skipped(self) -> int:
        """The number of plain calls that were not recorded individually."""
        return sum(kind.granted - kind.skip for kind in list(self.kinds.values()))

    def class_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
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
        return self._add_class(key, element_bits(args, kwargs)) if call_class is None else call_class

    def _add_class(self, key: Any, bits: int) -> Any:
        if len(self.kinds) >= MAX_CALL_CLASSES:
            self._calls = self.calls
            self.kinds.clear()
        return self.kinds.setdefault(key, self._new_class(key, bits))

    def _new_class(self, key: Any, bits: int) -> Any:
        """Return a new call class: cold if it has few elements, then advancing, then settled."""
        def rise(spent: float = 0.0, plain: float = 0.0, returns: int = MAX_RESTARTS) -> Any:
            rising, settled = self._load()
            again = (lambda: rise(0.0, plain, returns - 1)) if returns else None
            return self._replace_class(key, rising(
                bits, lambda known: self._replace_class(key, settled(bits, known, again)), spent, plain))

        counted_bits = min(bits, self._few_bits) if self._has_element_loops else bits
        return ColdCallClass(bits, rise, self._length) if counted_bits <= self._few_bits else rise()

    def _replace_class(self, key: Any, kind: Any) -> Any:
        previous = self.kinds.get(key)
        if previous is not None:
            kind.calls += previous.calls + previous.granted - previous.skip
            previous.skip = 0
        self.kinds[key] = kind
        return kind

    @property
    def classes(self) -> Iterator[type]:
        """The types of arguments other than arrays, in no order and with repetitions."""
        for key in list(self.kinds):
            yield from (part for part in (key[1] if type(key) is tuple else ()) if isinstance(part, type))

    def bypasses(self) -> Iterator[Bypass]:
        """Yield the classes for which the plain function was faster."""
        for kind in list(self.kinds.values()):
            calls = kind.calls + kind.granted - kind.skip
            if calls and 0.0 < kind.best[1] < kind.best[0]:
                low, high = (1 << kind.elements) >> 1, (1 << kind.elements) - 1
                traced, plain = kind.best
                yield Bypass(low, high, calls, plain, traced)

    def clear(self) -> None:
        """Forget all classes."""
        self.kinds.clear()
        self._calls = 0


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


#: Longest short call: preparation for the next calls may wait until there are any.
SHORT_CALL_SECONDS = 0.3
#: Time in calls after which loops are looked for: as long as that takes.
LOOK_AFTER_SECONDS = 5e-3
# Estimates for an instruction in a loop (mostly on array elements), and for a call.
SECONDS_PER_INSTRUCTION, SECONDS_PER_CALL = 3e-8, 2e-7
ARRAY_STATEMENT_FACTOR = 10  # how many times as long instructions take in loops over slices
# Constants up to this may be trip counts; larger ones are masks, primes, seeds.
MAX_TRIP_COUNT_CONSTANT = 1 << 20
_FOR_ITER, _CALL, _CACHE = (opmap.get(name, -1) for name in ("FOR_ITER", "CALL", "CACHE"))
# Depth and seconds per iteration of each loop.
Loops = tuple[tuple[int, float], ...]
# Types whose values are no trip counts.
_UNITERABLE_TYPES = (float, complex, str, bytes, bool, type(None), np.generic, ModuleType, FunctionType, type,
                     slice)


class ShortCalls:
    """Calls of one function by the plain function, as long as they are short, before loops are looked for.
    """

    bypassed = True
    skip = 0

    def __init__(self, function: FunctionType) -> None:
        self.calls = 0
        self._function = function
        self._code = function.__code__
        self._loops = _estimable_loops(function)
        self._has_loops = any_reachable(function, has_loops)
        self._has_element_loops = any_reachable(function, has_element_loops)
        self.spent = 0.0  # seconds

    def is_due(self) -> bool:
        """Return whether calls have taken so long that loops are looked for."""
        return self.spent >= LOOK_AFTER_SECONDS

    def has(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Return whether a call is estimated to be short."""
        function = self._function
        if not self._has_loops or function.__code__ is not self._code:
            return False
        seconds = estimate_call_seconds(self._loops, function, args, kwargs)
        if self._has_element_loops:
            return seconds <= SHORT_CALL_SECONDS
        return element_bits(args, kwargs) <= MAX_COLD_BITS and (
            seconds == inf or ARRAY_STATEMENT_FACTOR * seconds <= SHORT_CALL_SECONDS)

    def class_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ShortCalls:
        """Return the call class, which is this object."""
        return self

    def bypass(
        self, site: Any, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any],
    ) -> Any:
        """Call the plain function."""
        self.calls += 1
        start = perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            self.spent += perf_counter() - start


def estimate_call_seconds(
    loops: Loops, function: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any],
) -> float:
    """Return an upper estimate of the seconds of a call from trip counts; infinity if unknown."""
    if not loops:
        return inf
    trip_counts = sorted(_possible_trip_counts(function, args, kwargs), reverse=True)
    if not trip_counts or trip_counts[0] == inf:
        return inf
    seconds = 0.0
    for depth, iteration_seconds in loops:
        nested = trip_counts[:depth]
        seconds += iteration_seconds * prod(nested) * trip_counts[0] ** (depth - len(nested))
    return seconds


def _estimable_loops(function: FunctionType) -> Loops:
    """Return the loops of a function; none if it reaches other loops or decorated functions."""
    code, space = function.__code__, function.__globals__
    if any(has_loops(callee.__code__) for callee in islice(reachable_functions(function), 1, None)) \
            or any(is_decorated(space.get(name)) for name in code.co_names):
        return ()
    return _loop_costs(code)


def _loop_costs(code: CodeType) -> Loops:
    """Return depth and seconds per iteration of each loop; none if a trip count is unknown."""
    bytecode = code.co_code
    ends: dict[int, int] = {}
    for first, last in loop_ranges(code):
        if not 0 <= first < len(bytecode) or bytecode[first] != _FOR_ITER:
            return ()
        ends[first] = max(ends.get(first, 0), last)
    if any(isinstance(each, CodeType) and has_loops(each) for each in code.co_consts):
        return ()
    costs = []
    for first, last in ends.items():
        opcodes = bytecode[first:last:2]
        seconds = SECONDS_PER_INSTRUCTION * sum(opcode != _CACHE
            for opcode in opcodes) + SECONDS_PER_CALL * opcodes.count(_CALL)
        costs.append((sum(a <= first < b for a, b in ends.items()), seconds))
    return tuple(costs)


def _possible_trip_counts(function: FunctionType, args: tuple[Any, ...],
                          kwargs: Mapping[str, Any]) -> Iterator[float]:
    """Yield lengths and integers that may be trip counts; infinity for unknown ones."""
    code, space = function.__code__, function.__globals__
    cells = (cell.cell_contents for cell in function.__closure__ or () if _is_full(cell))
    whole = "size" in code.co_names
    for value in chain(args, kwargs.values(), function.__defaults__ or (), cells):
        yield from _possible_lengths(value, whole)
    for name in code.co_names:
        if issubclass(type(value := space.get(name)), (int, list, tuple, np.ndarray)):
            yield from _possible_lengths(value, whole)
    yield from (value for value in code.co_consts if type(value) is int
                and 0 < value <= MAX_TRIP_COUNT_CONSTANT)


def _is_full(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018  (it raises where there is nothing)
    except ValueError:
        return False
    return True


def _possible_lengths(value: Any, whole: bool) -> Iterator[float]:
    if isinstance(value, np.ndarray):
        yield from (value.size,) if whole else value.shape
    elif isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        yield max(int(value), 0)
    elif isinstance(value, (list, tuple, dict, set, range)):
        yield len(value)
    elif not isinstance(value, _UNITERABLE_TYPES) and not callable(value):
        yield inf


hide_module(__name__)
