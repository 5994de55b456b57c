"""Classes of calls that are run plain at first: by kinds of arguments, time spent, and a bound on loops."""

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

from jitla.introspection.callables import is_decorated
from jitla.introspection.frames import hide_module
from jitla.profiling.loop_detector import (
    loops_back,
    loops_of,
    reached,
)

__all__ = [
    "Brief", "Bypass", "Cold", "FEW", "GRANT", "Payoff", "RUNNING", "SOME", "USUAL", "bits_of",
    "kind_of_argument", "kinds", "patience", "reckoned",
]


# What traces calls now.
RUNNING: set[Any] = set()
# Elements that are few, by their bits: see `Cold`; and those that are few for code without loops.
FEW, SOME = 18, 22
# Seconds of plain calls before one is traced: usually, where calls are brief, which tracing seldom makes
# quicker, and where what traces has to be loaded first.
SPENT_SECONDS, BRIEF_SPENT_SECONDS, LOADING_SPENT_SECONDS = 0.05, 0.5, 0.2
# Seconds that a brief call takes at most.
BRIEF_SECONDS = 5e-5
# Bytes of code that this is for: the first traced call of more takes as many times as long.
USUAL = 200
# Calls that are not timed after one that is.
GRANT = 31
# A text so long is a word, which may say what is to be done.
WORD = 24
# Times that calls which were being compared begin anew, for they met blocks without programs.
RETURNS = 3
# As many kinds of calls are kept apart.
MOST_KINDS = 256
_ndarray = np.ndarray
_VALUES = frozenset({bool, type(None)})
_CONTAINERS = frozenset({list, tuple})
_CODE = frozenset({FunctionType, ModuleType, type})  # their attributes are no data
# Elements of a collection, or attributes of an object, that are looked at.
HELD = 32
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


def patience(taken: float, length: int = 0, is_loaded: bool = True) -> float:
    """Return the seconds of plain calls, which take `taken` seconds each, before one is traced.

    `length` is that of the function's code; `is_loaded` says whether what traces has been loaded.
    """
    spent = BRIEF_SPENT_SECONDS if taken < BRIEF_SECONDS else SPENT_SECONDS
    return (spent if is_loaded else max(spent, LOADING_SPENT_SECONDS)) * max(length / USUAL, 1.0)


class Cold:
    """Calls on few elements that nothing is known of yet: the plain function does them."""

    def __init__(self, elements: int, grow: Callable[[float, float], Any], length: int) -> None:
        self.elements = elements
        self.bypassed = True
        self.calls = 0
        self.best = (0.0, 0.0)
        self.skip = self.granted = 0
        self.short: Any = None
        self._length = length  # of the function's code
        self._spent = 0.0  # seconds of plain calls
        self._least = inf  # of a plain call
        self._grow = grow

    def bypass(
        self, site: Any, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
    ) -> Any:
        """Call the plain function; when enough time went into that, the next call is weighed."""
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
            self._spent += seen * taken
            self._least = min(self._least, taken)
            left = patience(self._least, self._length, "jitla.tracing" in sys.modules) - self._spent
            if left < 0.0:
                self.bypassed = False  # what it takes to trace is not loaded at the end of a call
            elif taken * GRANT < left / 4:
                self.skip = self.granted = GRANT

    def weigh(
        self, site: Any, function: Callable[..., Any], twin: Any, args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Do the first call that is not left to the plain function."""
        return self._grow(self._spent, self._least).weigh(site, function, twin, args, kwargs)


class Payoff:
    """What one site knows of the kinds of its calls; `load` returns what those become that are not cold.

    `length` is that of the function's code, which does everything `once` if it has no loops.
    """

    def __init__(
        self, file: str, line: int, load: Callable[[], Kinds], kept: bool = False, length: int = 0,
        once: bool = False,
    ) -> None:
        self.place = file, line
        self._length = length
        self._few = SOME if once else FEW
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
        return self._meet(key, bits_of(args, kwargs)) if found is None else found

    def _meet(self, key: Any, bits: int) -> Any:
        if len(self.kinds) >= MOST_KINDS:
            self._calls = self.calls
            self.kinds.clear()
        return self.kinds.setdefault(key, self._begun(key, bits))

    def _begun(self, key: Any, bits: int) -> Any:
        """Return a kind that was not met before: on few elements, then rising, then compared."""
        def rise(spent: float = 0.0, plain: float = 0.0, returns: int = RETURNS) -> Any:
            rising, settled = self._load()
            again = (lambda: rise(0.0, plain, returns - 1)) if returns else None
            return self._next(key, rising(
                bits, lambda known: self._next(key, settled(bits, known, again)), spent, plain))

        few = min(bits, self._few) if self._kept else bits
        return Cold(bits, rise, self._length) if few <= self._few else rise()

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


def bits_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Return the bits of the number of elements that a call is given, in whatever holds them."""
    return sum(map(_elements, (*args, *kwargs.values()))).bit_length()


def _elements(value: Any) -> int:
    """Return how many elements an argument has: an array, a sparse matrix, a table, what holds arrays."""
    kind = type(value)
    if kind is _ndarray:
        return int(value.size)
    if kind in _CONTAINERS or kind is dict:
        # listed at once: another thread may change a dictionary meanwhile
        held = list(islice(value.values() if kind is dict else value, HELD))
        return sum([each.size for each in held if type(each) is _ndarray])
    if hasattr(kind, "to_numpy"):
        return prod(_lengths(value) or (0,))
    scipy = sys.modules.get("scipy.sparse")
    if scipy is not None and kind in kinds(scipy):
        return int(value.nnz)
    try:
        own = object.__getattribute__(value, "__dict__")  # a class may answer by code of its own
    except AttributeError:
        return 0
    return 0 if type(own) is not dict or kind in _CODE else _elements(own)


def _lengths(table: Any) -> tuple[int, ...]:
    shape = getattr(table, "shape", ())
    return tuple([n for n in shape if type(n) is int]) if type(shape) is tuple else ()


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
        return (kind, len(value).bit_length(), _elements(value).bit_length())
    if hasattr(kind, "to_numpy"):
        return (kind, *[n.bit_length() for n in _lengths(value)])
    scipy = sys.modules.get("scipy.sparse")
    if scipy is not None and kind in kinds(scipy):
        stored = getattr(getattr(value, "data", None), "size", 0)
        return (kind, stored.bit_length(), *[int(n).bit_length() for n in value.shape])
    return (kind,)


@lru_cache(maxsize=4)
def kinds(scipy: Any) -> frozenset[type]:
    """Return the classes of SciPy that are recorded."""
    return frozenset(getattr(scipy, f"{f}_{k}") for f in _FORMATS for k in ("array", "matrix"))


#: Seconds of a call that is short: whatever is prepared for the next ones may wait until there are any.
SHORT = 0.3
#: Seconds of calls after which something is prepared.
ENOUGH = 1e-3
# Seconds of an instruction in a loop, of elements of arrays mostly, and of a call.
INSTRUCTION, CALL = 3e-8, 2e-7
# Constants up to this may say how many turns there are; larger ones are masks, primes, seeds.
TURNS = 1 << 20
_ITERATES, _CALLS, _CACHE = (opmap.get(name, -1) for name in ("FOR_ITER", "CALL", "CACHE"))
# Of loops how deep they are, and the seconds of a turn.
Loops = tuple[tuple[int, float], ...]
# What has no turns of its own.
_SINGLE = (float, complex, str, bytes, bool, type(None), np.generic, ModuleType, FunctionType, type, slice)


class Brief:
    """Calls of one function by the plain function, as long as they are short and nothing is prepared.

    Once there are some, and they take their time, `prepare` is called at the beginning of the next. Where the
    loops do not count, no call is one.
    """

    bypassed = True
    skip = 0

    def __init__(self, function: FunctionType, counts: bool, prepare: Callable[[], None]) -> None:
        self.calls = 0
        self._function = function
        self._code = function.__code__
        self._loops = _known(function) if counts else ()
        self._spent = 0.0
        self._prepare: Callable[[], None] | None = prepare

    def has(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Say whether a call will be short."""
        function = self._function
        return function.__code__ is self._code and reckoned(self._loops, function, args, kwargs) <= SHORT

    def of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Brief:
        """Return the kind of a call."""
        if self._prepare is not None and self._spent >= ENOUGH:
            prepare, self._prepare = self._prepare, None
            prepare()
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
            self._spent += perf_counter() - start


def reckoned(
    loops: Loops, function: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any],
) -> float:
    """Return the seconds that a call may take; infinity where that is not known."""
    if not loops:
        return inf
    turns = sorted(_turns(function, args, kwargs), reverse=True)
    if not turns or turns[0] == inf:
        return inf
    seconds = 0.0
    for depth, taken in loops:
        some = turns[:depth]
        seconds += taken * prod(some) * turns[0] ** (depth - len(some))
    return seconds


def _known(function: FunctionType) -> Loops:
    """Return the loops of a function; none where it has others that nothing is known of, or calls such."""
    code, space = function.__code__, function.__globals__
    if any(loops_back(each.__code__) for each in islice(reached(function), 1, None)) \
            or any(is_decorated(space.get(name)) for name in code.co_names):
        return ()
    return _loops(code)


def _loops(code: CodeType) -> Loops:
    """Return of each loop how deep it is and the seconds of a turn; none if one has no end that is known."""
    found = code.co_code
    ends: dict[int, int] = {}
    for first, last in loops_of(code):
        if not 0 <= first < len(found) or found[first] != _ITERATES:
            return ()
        ends[first] = max(ends.get(first, 0), last)
    if any(isinstance(each, CodeType) and loops_back(each) for each in code.co_consts):
        return ()
    made = []
    for first, last in ends.items():
        parts = found[first:last:2]
        taken = INSTRUCTION * sum(part != _CACHE for part in parts) + CALL * parts.count(_CALLS)
        made.append((sum(a <= first < b for a, b in ends.items()), taken))
    return tuple(made)


def _turns(function: FunctionType, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[float]:
    """Yield lengths and integers that a call sees; infinity for what is not known."""
    code, space = function.__code__, function.__globals__
    cells = (cell.cell_contents for cell in function.__closure__ or () if _is_full(cell))
    whole = "size" in code.co_names
    for value in chain(args, kwargs.values(), function.__defaults__ or (), cells):
        yield from _lengths_outlook(value, whole)
    for name in code.co_names:
        if issubclass(type(value := space.get(name)), (int, list, tuple, np.ndarray)):
            yield from _lengths_outlook(value, whole)
    yield from (value for value in code.co_consts if type(value) is int and 0 < value <= TURNS)


def _is_full(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018  (it raises where there is nothing)
    except ValueError:
        return False
    return True


def _lengths_outlook(value: Any, whole: bool) -> Iterator[float]:
    if isinstance(value, np.ndarray):
        yield from (value.size,) if whole else value.shape
    elif isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        yield max(int(value), 0)
    elif isinstance(value, (list, tuple, dict, set, range)):
        yield len(value)
    elif not isinstance(value, _SINGLE) and not callable(value):
        yield inf


hide_module(__name__)
