"""Kinds of scalars: what Python and NumPy make of operations on them.

Knows: the types of numbers, and what each operation of Python returns for them. Must not know: loops.
Receives kinds; returns kinds, asked of Python and NumPy themselves.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

# The type of each kind of number that a loop may be compiled for.
TYPES: dict[str, type] = {
    "int": int, "float": float, "bool": bool, "b1": np.bool_, "i1": np.int8, "i2": np.int16,
    "i4": np.int32, "i8": np.int64, "u1": np.uint8, "u2": np.uint16, "u4": np.uint32,
    "f4": np.float32, "f8": np.float64,
}
KIND_OF = {made: kind for kind, made in TYPES.items()}
# Numbers that say which kind a variable holds; 0 says that it was not assigned.
CODES = {kind: code for code, kind in enumerate(TYPES, 1)}
BY_CODE = dict(enumerate(TYPES.values(), 1))
# What a number is held in: i a 64-bit integer, d and s floats, b a truth value.
HELD = {kind: "i" for kind in ("int", "i1", "i2", "i4", "i8", "u1", "u2", "u4")} | {
    "float": "d", "f8": "d", "f4": "s", "bool": "b", "b1": "b"}
RANGES = {kind: (int(np.iinfo(TYPES[kind]).min), int(np.iinfo(TYPES[kind]).max))
          for kind in ("i1", "i2", "i4", "i8", "u1", "u2", "u4")}
BITS = {kind: max(high.bit_length(), 1) for kind, (_, high) in RANGES.items()} | {
    "bool": 1, "b1": 1, "int": 63}
INTEGERS = frozenset(kind for kind, held in HELD.items() if held == "i")
TRUTHS = frozenset({"bool", "b1"})
PYTHON = frozenset({"int", "float", "bool"})
# Elements of arrays: the characters of their types. Others of the same size are other types.
BY_CHAR = {np.dtype(TYPES[kind]).char: kind for kind in TYPES if kind not in PYTHON}
ITEM = {kind: np.dtype(TYPES[kind]).itemsize for kind in TYPES if kind not in PYTHON}

OPERATORS: dict[str, Callable[..., Any]] = {
    "Add": operator.add, "Sub": operator.sub, "Mult": operator.mul, "Div": operator.truediv,
    "FloorDiv": operator.floordiv, "Mod": operator.mod, "Pow": operator.pow,
    "BitAnd": operator.and_, "BitOr": operator.or_, "BitXor": operator.xor,
    "LShift": operator.lshift, "RShift": operator.rshift,
    "Lt": operator.lt, "LtE": operator.le, "Gt": operator.gt, "GtE": operator.ge,
    "Eq": operator.eq, "NotEq": operator.ne,
    "USub": operator.neg, "UAdd": operator.pos, "Invert": operator.invert, "Abs": abs,
}


class Refused(Exception):
    """A loop that Python has to run: why, and at which line."""

    def __init__(self, reason: str, line: int = 0, element: bool = True) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line
        # Whether it still may be a loop over elements, not one over whole arrays.
        self.element = element


@cache
def result(name: str, *kinds: str) -> str:
    """Return the kind that an operation makes of numbers of `kinds`."""
    try:
        with np.errstate(all="ignore"):
            made = OPERATORS[name](*(TYPES[kind](1) for kind in kinds))
    except TypeError as error:
        raise Refused(f"Python raises TypeError: {error}") from error
    found = KIND_OF.get(type(made))
    if found is None:
        raise Refused(f"{name} of {' and '.join(kinds)} is a {type(made).__name__}")
    return found
