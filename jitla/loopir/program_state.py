"""State of loop programs: scalars and views of NumPy arrays written to, and read from, its words."""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from jitla.classes import dataclass
from jitla.errors import NestError
from jitla.loopir.program import INT64, LoopProgram, state_layout

__all__ = ["Outcome", "core_axes", "find_ufunc", "pack_state", "read_memory", "unpack_state"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The exit by which a program was left, and the floating-point flags raised meanwhile.

    Machine code returns it in one word: the exit in the low 32 bits, above them bit 0 "divide by zero",
    bit 1 "overflow", bit 2 "invalid"; without `LoopProgram.raises` the flags are 0.
    """

    exit: int
    divide: bool = False
    overflow: bool = False
    invalid: bool = False

    @classmethod
    def of_word(cls, word: int) -> Outcome:
        """Decode the word that machine code returns."""
        flags = word >> 32
        return cls(word & 0xFFFFFFFF, bool(flags & 1), bool(flags & 2), bool(flags & 4))


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
    address: int, dtype: np.dtype, shape: tuple[int, ...] = (), strides: tuple[int, ...] = ()
) -> np.ndarray:
    """Return the memory at `address` as an array, without a copy."""
    if 0 in shape:
        return np.empty(shape, dtype)
    low = sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if s < 0)
    high = sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if s > 0)
    size = high - low + dtype.itemsize
    data: Any = (ctypes.c_char * size).from_address(address + low)
    return np.ndarray(shape, dtype, data, -low, strides)


def find_ufunc(name: str) -> np.ufunc | None:
    """Return the ufunc of NumPy, or of SciPy if that is imported, called `name`, or None.

    Those of `np.linalg` are there under the names of its compiled module.
    """
    for module in ("numpy._core.umath", "numpy.linalg._umath_linalg", "scipy.special"):
        ufunc = getattr(sys.modules.get(module), name, None)
        if isinstance(ufunc, np.ufunc):
            return ufunc
    return None


def core_axes(ufunc: np.ufunc) -> tuple[list[str], list[list[str]]]:
    """Return the core dimensions of a generalised ufunc in the order of `dims`, and those of each operand."""
    signature = ufunc.signature or ""
    axes = [re.findall(r"\w+", group) for group in re.findall(r"\(([^)]*)\)", signature)]
    return list(dict.fromkeys(name for operand in axes for name in operand)), axes
