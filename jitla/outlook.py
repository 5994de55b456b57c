"""How long a call of a function with loops takes at most, about, as far as instructions and sizes tell.

Knows: instructions of the interpreter, arrays, numbers. Must not know: syntax trees, what becomes of loops.
Receives functions and calls; returns seconds, without any of the heavy rooms.

It is a guess, and a high one: a loop goes on for as many turns as the longest axis has elements, or as the
largest integer says, one in it as the next. What comes of a wrong guess is only when something is prepared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain, islice
from math import inf, prod
from opcode import opmap
from time import perf_counter
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from jitla.callables import is_decorated
from jitla.internal import hide_module
from jitla.turning import loops_back, loops_of, reached

__all__ = ["Brief", "reckoned"]

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
        yield from _lengths(value, whole)
    for name in code.co_names:
        if issubclass(type(value := space.get(name)), (int, list, tuple, np.ndarray)):
            yield from _lengths(value, whole)
    yield from (value for value in code.co_consts if type(value) is int and 0 < value <= TURNS)


def _is_full(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018  (it raises where there is nothing)
    except ValueError:
        return False
    return True


def _lengths(value: Any, whole: bool) -> Iterator[float]:
    if isinstance(value, np.ndarray):
        yield from (value.size,) if whole else value.shape
    elif isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        yield max(int(value), 0)
    elif isinstance(value, (list, tuple, dict, set, range)):
        yield len(value)
    elif not isinstance(value, _SINGLE) and not callable(value):
        yield inf


hide_module(__name__)
