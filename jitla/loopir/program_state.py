"""State of loop programs: scalars and views of NumPy arrays written to, and read from, its words."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np

from jitla.errors import NestError
from jitla.loopir.program import INT64, LoopProgram, state_layout

__all__ = ["pack_state", "read_memory", "unpack_state"]


def pack_state(
    program: LoopProgram, values: Mapping[str, Any], arena: np.ndarray | None = None
) -> np.ndarray:
    """Return the state of `program` for `values`: a number for each scalar, an array for each view.

    The arrays and `arena` have to outlive the state. Results without a value get zeros.
    """
    layout = state_layout(program)
    state = np.zeros(layout.size, INT64)
    scalars = {s.name: s for s in program.scalars}
    views = {v.name: v for v in program.views}
    for name, value in values.items():
        word = layout.places[name]
        if name in scalars:
            data = np.asarray(value, scalars[name].dtype).tobytes()
            state.view(np.uint8)[8 * word : 8 * word + len(data)] = np.frombuffer(data, np.uint8)
            continue
        view = views[name]
        if value.dtype != view.dtype or value.ndim != view.ndim:
            raise NestError("operand", f"{name} is {value.dtype} with {value.ndim} axes")
        state[word : word + 1 + 2 * view.ndim] = (value.ctypes.data, *value.shape, *value.strides)
    if arena is not None:
        state[layout.arena : layout.arena + 2] = arena.ctypes.data, arena.ctypes.data + arena.nbytes
    return state


def unpack_state(program: LoopProgram, state: np.ndarray) -> dict[str, Any]:
    """Return the results of `program`: a NumPy scalar for each scalar, a copied array for each view."""
    layout = state_layout(program)
    views = {v.name: v for v in program.views}
    dtypes = {s.name: s.dtype for s in program.scalars}
    results: dict[str, Any] = {}
    for name in program.results:
        word = layout.places[name]
        if name in dtypes:
            data = state.view(np.uint8)[8 * word : 8 * word + dtypes[name].itemsize]
            results[name] = np.frombuffer(data.tobytes(), dtypes[name])[0]
            continue
        view = views[name]
        words = [int(w) for w in state[word : word + 1 + 2 * view.ndim]]
        shape, strides = tuple(words[1 : 1 + view.ndim]), tuple(words[1 + view.ndim :])
        results[name] = read_memory(words[0], view.dtype, shape, strides).copy()
    return results


def read_memory(
    address: int, dtype: np.dtype, shape: tuple[int, ...], strides: tuple[int, ...]
) -> np.ndarray:
    """Return the memory at `address` as an array, without a copy."""
    if 0 in shape:
        return np.empty(shape, dtype)
    low = sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if s < 0)
    high = sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if s > 0)
    data = (ctypes.c_char * (high - low + dtype.itemsize)).from_address(address + low)
    return np.ndarray(shape, dtype, data, -low, strides)
