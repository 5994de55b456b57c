"""Roll-back of parts that compiled code has run: arrays get the elements back that they had before.

Other threads may change other elements of the same arrays meanwhile, as when each works on a range of
indices. Then the part runs again on copies of the arrays, and the elements that differ from those before it
are the ones that it has changed: only these are restored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from threading import active_count
from typing import Any

import numpy as np

from jitla.introspection import hide_module
from jitla.loopir import read_memory
from jitla.loopjit.operands import MAX_TUPLE, address_of

MAX_COPIED_BYTES = 1 << 30  # of the memory that arrays are in, from first to last element
_ALIGNMENT = 64
_ITEMS_OF_BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}

#: Arrays that a program may change, each with a copy of its elements before the part.
Saved = Sequence[tuple[np.ndarray, np.ndarray]]
#: Runs a part again with other arrays: with the operands, and the arrays that the loop goes through.
Rerun = Callable[[tuple[Any, ...], Sequence[np.ndarray]], object]


def has_other_threads() -> bool:
    """Return whether other threads may work on the same arrays."""
    return active_count() > 1


def restore(saved: Saved) -> None:
    """Give arrays all elements back."""
    _copy_all([(array, before, None) for array, before in saved])


def restore_changed(saved: Saved, after: Sequence[np.ndarray]) -> None:
    """Give arrays the elements back in which copies `after` the part differ from those before it."""
    _copy_all([(array, before, differs(before, copy))
               for (array, before), copy in zip(saved, after, strict=True)])


def _copy_all(copies: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray | None]]) -> None:
    """Copy arrays, or their elements where a mask holds, to others; also if a signal raises an error."""
    try:
        _copy_each(copies)
    except BaseException:  # else arrays have elements of different iterations
        _copy_each(copies)
        raise


def _copy_each(copies: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray | None]]) -> None:
    for target, source, mask in copies:
        if mask is None:
            np.copyto(target, source)
        else:
            np.copyto(target, source, where=mask)


def differs(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return which elements of two arrays have different bits."""
    if a.dtype.kind == "c":
        either: np.ndarray = np.logical_or(differs(a.real, b.real), differs(a.imag, b.imag))
        return either
    bits = _ITEMS_OF_BITS[a.dtype.itemsize]
    result: np.ndarray = a.view(bits) != b.view(bits)
    return result


def undo(
    saved: Saved, written: Sequence[int], values: tuple[Any, ...], arrays: Sequence[np.ndarray],
    through: Sequence[np.ndarray], rerun: Rerun,
) -> list[np.ndarray]:
    """Undo a part beside other threads; return the arrays of `saved` as the part has left them.

    `written` are the numbers of the arrays whose memory it may change; the last of `arrays` are those that
    the loop goes `through`.
    """
    copies = copied(arrays, written)
    if copies is None:
        after = [array.copy(order="K") for array, _ in saved]
        restore(saved)
        return after
    by_identity = {id(array): copy for array, copy in zip(arrays, copies, strict=True)}
    for array, before in saved:
        np.copyto(by_identity[id(array)], before)
    remaining = iter(copies)
    rerun(tuple(_replaced(value, remaining) for value in values), copies[len(arrays) - len(through):])
    after = [by_identity[id(array)] for array, _ in saved]
    restore_changed(saved, after)
    return after


def _replaced(value: Any, arrays: Iterator[np.ndarray]) -> Any:
    """Return an operand with the next ones of `arrays` for its arrays, in the order of `arrays_in`."""
    if type(value) is np.ndarray:
        return next(arrays)
    if type(value) is tuple and len(value) <= MAX_TUPLE:
        return tuple(_replaced(item, arrays) for item in value)
    return value


def copied(arrays: Sequence[np.ndarray], written: Sequence[int]) -> list[np.ndarray] | None:
    """Return arrays with copies of those that are `written`, which have the same strides and overlaps.

    None if the memory that they are in is too large.
    """
    spans = sorted((*_span(arrays[k]), k) for k in set(written) if arrays[k].size)
    merged: list[tuple[int, int, list[int]]] = []
    for low, high, k in spans:
        if merged and low < merged[-1][1]:
            first, last, members = merged[-1]
            merged[-1] = first, max(last, high), [*members, k]
        else:
            merged.append((low, high, [k]))
    if sum(high - low for low, high, _ in merged) > MAX_COPIED_BYTES:
        return None
    result = list(arrays)
    for low, high, members in merged:
        memory = np.empty(high - low + 2 * _ALIGNMENT, np.uint8)
        begin = (low - address_of(memory)) % _ALIGNMENT  # copies are aligned like the arrays
        memory[begin:begin + high - low] = read_memory(low, np.dtype(np.uint8), (high - low,), (1,))
        for k in members:
            array, offset = arrays[k], address_of(arrays[k]) - low + begin
            result[k] = np.ndarray(array.shape, array.dtype, memory, offset, array.strides)
    return result


def _span(array: np.ndarray) -> tuple[int, int]:
    """Return the addresses of the first byte of an array and behind its last one."""
    low, high = np.lib.array_utils.byte_bounds(array)
    return int(low), int(high)


hide_module(__name__)
