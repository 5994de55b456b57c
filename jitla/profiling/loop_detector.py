"""Loops in code: whether they go through elements, as far as instructions tell."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from opcode import opmap
from types import CodeType, FunctionType, ModuleType

from jitla.introspection.callables import (
    is_decorated,
    is_installed,
)

__all__ = ["DEEP", "computes_in_turn", "indexes_in_turn", "loops_back", "loops_of", "reached", "reaches",
           "runs_once"]

DEEP = 8  # functions that call the next
MANY = 64  # functions that are looked at

_JUMPS = frozenset(code for name, code in opmap.items() if "JUMP_BACKWARD" in name)
# Instructions that index, where they are told from others.
_INDEX = frozenset(opmap[name] for name in ("BINARY_SUBSCR", "STORE_SUBSCR") if "BINARY_SUBSCR" in opmap)
_CONSTANT, _EXTENDED, _CACHE, _TUPLE, _SLICE, _MASK, _COPY, _SWAP = (opmap.get(name, 0) for name in (
    "LOAD_CONST", "EXTENDED_ARG", "CACHE", "BUILD_TUPLE", "BUILD_SLICE", "COMPARE_OP", "COPY", "SWAP"))
_STORE = opmap["STORE_SUBSCR"]
# How many values instructions take that make one; None: as many as they say.
_TAKES: dict[int, int | None] = {opmap[name]: takes for name, takes in (
    ("LOAD_CONST", 0), ("LOAD_FAST", 0), ("LOAD_DEREF", 0), ("LOAD_GLOBAL", 0), ("LOAD_ATTR", 1),
    ("UNARY_NEGATIVE", 1), ("BINARY_OP", 2), ("BINARY_SUBSCR", 2), ("COMPARE_OP", 2), ("BUILD_SLICE", None),
    ("BUILD_TUPLE", None)) if name in opmap}
# What loops over elements have none of: products of matrices, "axis" as the name of an argument, calls for
# what they do, two slices in an index, a tuple that is gone through.
_POP, _CALL, _ITERATED = (opmap.get(name, -1) for name in ("POP_TOP", "CALL", "GET_ITER"))
_OPERATION, _PRODUCTS = opmap["BINARY_OP"], frozenset({4, 17})
_NAMES = frozenset(opmap[name] for name in ("LOAD_CONST", "KW_NAMES") if name in opmap)
_LEAVES = frozenset({opmap["RAISE_VARARGS"], opmap["RETURN_VALUE"]})  # the interpreter does what leads there


def indexes_in_turn(code: CodeType) -> bool:
    """Say whether `code` may have loops over elements: loops, in them indices but constants, slices, masks.

    Else the room that knows all about such loops, which takes long to load, would find none.
    """
    found, loops = code.co_code, list(loops_of(code))
    if not _INDEX or not loops:
        return bool(loops)
    return any(_indexes(code, found, *loop) for loop in loops)


def reaches(function: FunctionType, test: Callable[[CodeType], bool]) -> bool:
    """Say whether a test holds for `function`, functions in it, or those of the user's that it names."""
    return any(test(code) for each in reached(function) for code in _with_inner(each.__code__))


def reached(function: FunctionType) -> Iterator[FunctionType]:
    """Yield `function`, then those of the user's that it names, those that they name, and so on."""
    todo, seen = [function], {function.__code__}
    for each in todo:
        yield each
        for code in _with_inner(each.__code__):
            for named in _named(code, each.__globals__):
                if named.__code__ not in seen and len(seen) < MANY and not is_installed(
                        named.__code__.co_filename) and not is_decorated(named):
                    seen.add(named.__code__)
                    todo.append(named)


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _with_inner(each)


def _named(code: CodeType, space: dict[str, object]) -> Iterator[FunctionType]:
    """Yield functions that code names, and those of modules that it names."""
    for name in code.co_names:
        found = space.get(name)
        if type(found) is FunctionType:
            yield found
        elif issubclass(type(found), ModuleType) and not is_installed(
                found.__dict__.get("__file__") or "<frozen"):
            inside = (vars(found).get(each) for each in code.co_names)
            yield from (each for each in inside if type(each) is FunctionType)


def computes_in_turn(code: CodeType) -> bool:
    """Say whether loops in `code` may be over elements: one that indexes has nothing that whole arrays need.

    This only is for calls that are not traced yet: which loops are compiled, and why others are not, is found
    out when the room of loops is there.
    """
    found, loops = code.co_code, list(loops_of(code))
    if not _INDEX or not loops:
        return bool(loops)
    return any(_indexes(code, found, *loop) and not _has_arrays(code, *loop) for loop in loops)


def _indexes(code: CodeType, found: bytes, first: int, last: int) -> bool:
    return any(found[at] in _INDEX and not _is_fixed(code, at - 2)
               or found[at] == _STORE and _ends_moving(found, _made(found, at - 2))
               for at in range(max(first, 2), last, 2))


def _ends_moving(found: bytes, at: int) -> bool:
    """Say whether the instruction at `at` makes an index of slices and, at its end, something else."""
    return found[at] == _TUPLE and _slices(found, at) == found[at + 1] - 1 > 0 \
        and found[_made(found, at - 2)] not in (_SLICE, _CONSTANT)


def _has_arrays(code: CodeType, first: int, last: int) -> bool:
    """Say whether a loop has what only whole arrays need; one that is left within may have it there."""
    found, some = code.co_code, _is_over_tuple(code, first)
    for at in range(max(first, 0), last, 2):
        kind, number = found[at], found[at + 1]
        if kind in _LEAVES:
            return False
        names = code.co_consts[number] if kind in _NAMES else ()
        some |= kind == _OPERATION and number in _PRODUCTS or type(names) is tuple and "axis" in names
        some |= kind == _POP and found[_made(found, at - 2)] == _CALL
        some |= kind == _TUPLE and _slices(found, at) > 1
    return some


def _is_over_tuple(code: CodeType, first: int) -> bool:
    """Say whether the loop that begins about there goes through a constant tuple."""
    found = code.co_code
    at = next((at for at in range(max(first - 4, 2), first + 4, 2) if found[at] == _ITERATED), 2)
    return found[at] == _ITERATED and found[at - 2] == _CONSTANT and type(
        code.co_consts[found[at - 1]]) is tuple


def _slices(found: bytes, at: int) -> int:
    """Return how many parts of the tuple made at `at` are slices, as far as that is known."""
    parts, count, at = found[at + 1], 0, _made(found, at - 2)
    while parts and at > 0:
        count += found[at] == _SLICE
        parts, at = parts - 1, _made(found, _behind(found, at))
    return count


def loops_of(code: CodeType) -> Iterator[tuple[int, int]]:
    """Yield where loops begin and end, about."""
    found, distance = code.co_code, 0
    for at in range(0, len(found), 2):
        distance = distance << 8 | found[at + 1]
        if found[at] in _JUMPS:
            yield at + 2 - 2 * distance, at
        if found[at] != _EXTENDED:
            distance = 0


def _is_fixed(code: CodeType, at: int) -> bool:
    """Say whether the instruction makes an index that is, or begins with, a slice, a mask, or a constant."""
    found = code.co_code
    at = _made(found, at)
    if found[at] == _SWAP:  # what was read there before is written
        return True
    while found[at] == _COPY and at > 0:
        at = _made(found, at - 2)
    if found[at] == _TUPLE:
        parts, at = found[at + 1], at - 2
        for _ in range(parts - 1):
            at = _behind(found, at)
        at = _made(found, at)
    elif found[at] == _MASK:
        return True
    if at < 0 or found[at] == _SLICE:
        return at >= 0
    kind, number = found[at:at + 2]
    if kind != _CONSTANT or at and found[at - 2] == _EXTENDED:
        return False
    value = code.co_consts[number]
    value = value[0] if type(value) is tuple and value else value
    return value is None or type(value) in (str, type(...)) or type(value) is int and value >= 0


def _made(found: bytes, at: int) -> int:
    """Return where the instruction is that ends at `at` or before."""
    while at > 0 and found[at] == _CACHE:
        at -= 2
    return at


def _behind(found: bytes, at: int) -> int:
    """Return what is before the value that the instruction at `at` makes; less than 0: that is not known."""
    missing = 1
    while missing and (at := _made(found, at)) > 0:
        takes = _TAKES.get(found[at], -1)
        if takes == -1 or found[at - 2] == _EXTENDED:
            return -1
        missing += (found[at + 1] if takes is None else takes) - 1
        at -= 2
    return at


def loops_back(code: CodeType) -> bool:
    """Say whether there is a loop in `code`, functions and comprehensions in it included."""
    return next(loops_of(code), None) is not None or any(
        loops_back(inner) for inner in code.co_consts if isinstance(inner, CodeType))


def runs_once(function: FunctionType, known: frozenset[CodeType] = frozenset()) -> bool:
    """Say whether no loop is in `function`, nor in functions of Python that it names but NumPy's.

    What methods do is not seen. Functions that call each other go round.
    """
    code = function.__code__
    if code in known or len(known) > DEEP or loops_back(code):
        return False
    named = (function.__globals__.get(name) for name in code.co_names)
    # of one that is decorated, too
    plain = (each.__dict__.get("__wrapped__", each) for each in named if type(each) is FunctionType)
    return all(runs_once(each, known | {code}) for each in plain
               if type(each) is FunctionType and str(each.__module__).partition(".")[0] != "numpy")
