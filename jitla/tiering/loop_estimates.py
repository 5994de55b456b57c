"""Upper estimates of the seconds of a call from the trip counts that its arguments and constants allow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, islice
from math import inf, prod
from opcode import opmap
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from jitla.introspection import is_decorated
from jitla.tiering.loop_detector import has_loops, loop_ranges, reachable_functions

__all__ = ["count_operations", "estimable_loops", "estimate_call_seconds"]

# Estimates for an instruction in a loop (mostly on array elements), and for a call.
SECONDS_PER_INSTRUCTION, SECONDS_PER_CALL = 3e-8, 2e-7
# Constants up to this may be trip counts; larger ones are masks, primes, seeds.
MAX_TRIP_COUNT_CONSTANT = 1 << 20
_FOR_ITER, _CALL, _CACHE = (opmap.get(name, -1) for name in ("FOR_ITER", "CALL", "CACHE"))
_OPERATIONS = frozenset({opmap.get("BINARY_OP", -1), _CALL})
# Depth and seconds per iteration of each loop.
Loops = tuple[tuple[int, float], ...]
# Types whose values are no trip counts.
_UNITERABLE_TYPES = (float, complex, str, bytes, bool, type(None), np.generic, ModuleType, FunctionType, type,
                     slice)


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


def estimable_loops(function: FunctionType) -> Loops:
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


def count_operations(code: CodeType) -> int:
    """Return the number of operators and calls in `code`."""
    return sum(opcode in _OPERATIONS for opcode in code.co_code[::2])
