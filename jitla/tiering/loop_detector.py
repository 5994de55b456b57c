"""Detection of loops over elements in byte code, conservatively."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from opcode import opmap
from types import CodeType, FunctionType, ModuleType

from jitla.introspection import is_decorated, is_installed, nested_codes

__all__ = [
    "MAX_CALL_DEPTH", "any_reachable", "has_element_loops", "has_loops", "loop_ranges", "reachable_functions",
]

MAX_CALL_DEPTH = 8  # of functions with loops that functions call
MAX_FUNCTIONS = 64  # inspected by `reachable_functions`

_BACKWARD_JUMPS = frozenset(code for name, code in opmap.items() if "JUMP_BACKWARD" in name)
# Indexing instructions; empty where they are no separate opcodes.
_INDEXING_OPCODES = frozenset(opmap[name] for name in ("BINARY_SUBSCR", "STORE_SUBSCR")
                              if "BINARY_SUBSCR" in opmap)
_CONSTANT, _EXTENDED, _CACHE, _TUPLE, _SLICE, _MASK, _COPY, _SWAP = (opmap.get(name, 0) for name in (
    "LOAD_CONST", "EXTENDED_ARG", "CACHE", "BUILD_TUPLE", "BUILD_SLICE", "COMPARE_OP", "COPY", "SWAP"))
_STORE_SUBSCR = opmap["STORE_SUBSCR"]
# Operand counts of instructions that push one value; None: the instruction's argument.
_OPERAND_COUNTS: dict[int, int | None] = {opmap[name]: takes for name, takes in (
    ("LOAD_CONST", 0), ("LOAD_FAST", 0), ("LOAD_DEREF", 0), ("LOAD_GLOBAL", 0), ("LOAD_ATTR", 1),
    ("UNARY_NEGATIVE", 1), ("BINARY_OP", 2), ("BINARY_SUBSCR", 2), ("COMPARE_OP", 2), ("BUILD_SLICE", None),
    ("BUILD_TUPLE", None)) if name in opmap}
# Signs of operations on whole arrays: matrix products, a keyword "axis", calls whose result is dropped, two
# slices in an index, iteration over a tuple.
_POP_TOP, _CALL, _GET_ITER = (opmap.get(name, -1) for name in ("POP_TOP", "CALL", "GET_ITER"))
_BINARY_OP, _MATMUL_ARGUMENTS = opmap["BINARY_OP"], frozenset({4, 17})
_CONSTANT_OPCODES = frozenset(opmap[name] for name in ("LOAD_CONST", "KW_NAMES") if name in opmap)
_EXIT_OPCODES = frozenset({opmap["RAISE_VARARGS"], opmap["RETURN_VALUE"]})  # code before them is interpreted


def any_reachable(function: FunctionType, test: Callable[[CodeType], bool]) -> bool:
    """Return whether `test` holds for a code object of a function reachable from `function`."""
    return any(test(code) for reachable in reachable_functions(function)
               for code in nested_codes(reachable.__code__))


def reachable_functions(function: FunctionType) -> Iterator[FunctionType]:
    """Yield `function`, and the user functions that it names, transitively."""
    worklist, visited = [function], {function.__code__}
    for current in worklist:
        yield current
        for code in nested_codes(current.__code__):
            for callee in _named_functions(code, current.__globals__):
                if callee.__code__ not in visited and len(visited) < MAX_FUNCTIONS and not is_installed(
                        callee.__code__.co_filename) and not is_decorated(callee):
                    visited.add(callee.__code__)
                    worklist.append(callee)


def _named_functions(code: CodeType, space: dict[str, object]) -> Iterator[FunctionType]:
    """Yield the functions that `code` names, directly or as attributes of modules."""
    for name in code.co_names:
        value = space.get(name)
        if type(value) is FunctionType:
            yield value
        elif issubclass(type(value), ModuleType) and not is_installed(
                value.__dict__.get("__file__") or "<frozen"):
            attributes = (vars(value).get(each) for each in code.co_names)
            yield from (each for each in attributes if type(each) is FunctionType)


def has_element_loops(code: CodeType) -> bool:
    """Return whether `code` has loops that index elements and contain no operations on whole arrays.

    Only for calls that are not traced yet: the scalar loop compiler decides which loops are compiled.
    """
    bytecode, loops = code.co_code, list(loop_ranges(code))
    if not _INDEXING_OPCODES or not loops:
        return bool(loops)
    return any(_has_element_index(code, bytecode, *loop) and not _has_array_operations(code, *loop)
               for loop in loops)


def _has_element_index(code: CodeType, bytecode: bytes, first: int, last: int) -> bool:
    return any(bytecode[at] in _INDEXING_OPCODES and not _is_array_index(code, at - 2)
               or bytecode[at] == _STORE_SUBSCR
               and _ends_in_scalar_index(bytecode, _producer(bytecode, at - 2))
               for at in range(max(first, 2), last, 2))


def _ends_in_scalar_index(bytecode: bytes, at: int) -> bool:
    """Return whether the instruction at `at` builds an index of slices with a scalar at its end."""
    return bytecode[at] == _TUPLE and _slice_count(bytecode, at) == bytecode[at + 1] - 1 > 0 \
        and bytecode[_producer(bytecode, at - 2)] not in (_SLICE, _CONSTANT)


def _has_array_operations(code: CodeType, first: int, last: int) -> bool:
    """Return whether a loop has operations on whole arrays; those after an exit do not count."""
    bytecode, has_any = code.co_code, _iterates_constant_tuple(code, first)
    for at in range(max(first, 0), last, 2):
        kind, number = bytecode[at], bytecode[at + 1]
        if kind in _EXIT_OPCODES:
            return False
        constant = code.co_consts[number] if kind in _CONSTANT_OPCODES else ()
        has_any |= kind == _BINARY_OP and number in _MATMUL_ARGUMENTS
        has_any |= type(constant) is tuple and "axis" in constant
        has_any |= kind == _POP_TOP and bytecode[_producer(bytecode, at - 2)] == _CALL
        has_any |= kind == _TUPLE and _slice_count(bytecode, at) > 1
    return has_any


def _iterates_constant_tuple(code: CodeType, first: int) -> bool:
    """Return whether the loop that starts near `first` iterates over a constant tuple."""
    bytecode = code.co_code
    at = next((at for at in range(max(first - 4, 2), first + 4, 2) if bytecode[at] == _GET_ITER), 2)
    return bytecode[at] == _GET_ITER and bytecode[at - 2] == _CONSTANT and type(
        code.co_consts[bytecode[at - 1]]) is tuple


def _slice_count(bytecode: bytes, at: int) -> int:
    """Return how many items of the tuple built at `at` are slices, as far as known."""
    parts, count, at = bytecode[at + 1], 0, _producer(bytecode, at - 2)
    while parts and at > 0:
        count += bytecode[at] == _SLICE
        parts, at = parts - 1, _producer(bytecode, _previous_value(bytecode, at))
    return count


def loop_ranges(code: CodeType) -> Iterator[tuple[int, int]]:
    """Yield approximate offsets of the first and last instruction of each loop."""
    bytecode, distance = code.co_code, 0
    for at in range(0, len(bytecode), 2):
        distance = distance << 8 | bytecode[at + 1]
        if bytecode[at] in _BACKWARD_JUMPS:
            yield at + 2 - 2 * distance, at
        if bytecode[at] != _EXTENDED:
            distance = 0


def _is_array_index(code: CodeType, at: int) -> bool:
    """Return whether the instruction builds an index that is, or begins with, a slice, mask or constant."""
    bytecode = code.co_code
    at = _producer(bytecode, at)
    if bytecode[at] == _SWAP:  # an augmented assignment: the load was checked
        return True
    while bytecode[at] == _COPY and at > 0:
        at = _producer(bytecode, at - 2)
    if bytecode[at] == _TUPLE:
        parts, at = bytecode[at + 1], at - 2
        for _ in range(parts - 1):
            at = _previous_value(bytecode, at)
        at = _producer(bytecode, at)
    elif bytecode[at] == _MASK:
        return True
    if at < 0 or bytecode[at] == _SLICE:
        return at >= 0
    kind, number = bytecode[at:at + 2]
    if kind != _CONSTANT or at and bytecode[at - 2] == _EXTENDED:
        return False
    value = code.co_consts[number]
    value = value[0] if type(value) is tuple and value else value
    return value is None or type(value) in (str, type(...)) or type(value) is int and value >= 0


def _producer(bytecode: bytes, at: int) -> int:
    """Return the offset of the instruction at or before `at`, inline caches skipped."""
    while at > 0 and bytecode[at] == _CACHE:
        at -= 2
    return at


def _previous_value(bytecode: bytes, at: int) -> int:
    """Return the offset before the value that the instruction at `at` produces; negative if unknown."""
    needed = 1
    while needed and (at := _producer(bytecode, at)) > 0:
        operands = _OPERAND_COUNTS.get(bytecode[at], -1)
        if operands == -1 or bytecode[at - 2] == _EXTENDED:
            return -1
        needed += (bytecode[at + 1] if operands is None else operands) - 1
        at -= 2
    return at


def has_loops(code: CodeType) -> bool:
    """Return whether there is a loop in `code`, or in functions and comprehensions in it."""
    return next(loop_ranges(code), None) is not None or any(
        has_loops(inner) for inner in code.co_consts if isinstance(inner, CodeType))
