"""Operands of loops: the kinds that compiled code depends on, and arrays that share memory."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import numpy as np

from jitla.loopjit.objects import is_plain_object

#: Types of scalars that loops are compiled for.
SCALAR_TYPES = frozenset({
    float, bool, complex, np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32,
    np.uint64, np.float32, np.float64, np.complex64, np.complex128})
SMALL_BITS, LARGE_BITS = 31, 62  # of integers of Python: programs are compiled for small ones and larger ones
MAX_TUPLE = 8  # items of a tuple that is an operand
#: Types of objects that are constants of a program, which is compiled for each of them.
CONSTANTS = (FunctionType, BuiltinFunctionType, ModuleType, type, np.ufunc, str, np.dtype, type(None))


_DATA_OFFSET = object.__basicsize__  # of the data pointer in an array
_word_at = ctypes.c_size_t.from_address


def address_of(array: np.ndarray) -> int:
    """Return the address of the first element of an array; its attribute takes longer."""
    return _word_at(id(array) + _DATA_OFFSET).value


class ListItems(tuple[Any, ...]):
    """The items of a list of scalars that a loop reads only."""

    __slots__ = ()


def list_operand(value: Any) -> Any:
    """Return a short list of scalars as `ListItems`; anything else as it is."""
    if type(value) is list and len(value) <= MAX_TUPLE and all(
            type(item) is int or type(item) in SCALAR_TYPES for item in value):
        return ListItems(value)
    return value


def key_of(value: Any) -> Any:
    """Return what code depends on of a value: kinds of numbers, layouts of arrays, the identity of functions.
    """
    kind = type(value)
    if kind is np.ndarray:
        flags = value.flags
        shape = value.shape
        single = tuple([size == 1 for size in shape]) if 1 in shape else None
        return value.dtype, value.ndim, flags.writeable, flags.aligned, single
    if kind is int:
        bits = value.bit_length()
        bits = SMALL_BITS if bits <= SMALL_BITS else LARGE_BITS if bits <= LARGE_BITS else bits
        return int, value >= 0, bits
    if kind in SCALAR_TYPES:
        return kind
    if kind is ListItems:
        return (list, *map(key_of, value))
    if kind is tuple:
        return (tuple, *map(key_of, value)) if len(value) <= MAX_TUPLE else tuple
    if isinstance(value, CONSTANTS):
        return "constant", value if isinstance(value, str) else id(value)
    return kind if type(kind) is not type or is_plain_object(value) else (kind, "is no plain object")


def overlap_groups(arrays: Sequence[np.ndarray]) -> tuple[int, ...]:
    """Return a number for each array; arrays that may share memory have the same one."""
    if len(arrays) < 2:
        return (0,) * len(arrays)
    groups = list(range(len(arrays)))
    bounds = [memory_bounds(array) for array in arrays]
    for k, (begin, end) in enumerate(bounds):
        for other in range(k):
            first, last = bounds[other]
            if first < end and begin < last and groups[other] != groups[k]:
                old, new = groups[k], groups[other]
                groups = [new if group == old else group for group in groups]
    return tuple(groups)


def memory_bounds(array: np.ndarray) -> tuple[int, int]:
    """Return the addresses between which the elements of an array are."""
    begin = address_of(array)
    if array.flags.forc:
        return begin, begin + array.nbytes
    low, high = np.lib.array_utils.byte_bounds(array)
    return int(low), int(high)


def arrays_in(values: Sequence[Any]) -> list[np.ndarray]:
    """Return the arrays among values, those in short tuples included."""
    found: list[np.ndarray] = []
    for value in values:
        if type(value) is np.ndarray:
            found.append(value)
        elif type(value) is tuple and len(value) <= MAX_TUPLE:
            found += arrays_in(value)
    return found


def kind_text(key: Any) -> str:
    """Return a key of `key_of` as text: ``float64[:, :]``, ``int``."""
    match key:
        case np.dtype() as dtype, int(ndim), bool(), bool(), _:
            return f"{dtype}[{', '.join(':' * ndim)}]"
        case tuple((type() as kind, *_)):
            return kind.__name__
        case ("constant", *_):
            return "constant"
    return getattr(key, "__name__", str(key))
