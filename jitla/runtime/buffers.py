"""Memory for outputs: new ordinary ndarrays, large ones from the native memory handler.

Knows: NumPy's memory handlers, strides. Must not know: kernels, llvmlite.
Receives shapes and dtypes; returns uninitialised arrays that own their data.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from jitla.runtime.entry import builtin, native
from jitla.runtime.processors import memory

__all__ = ["Buffers", "plain_empty"]

#: Most that is kept for reuse: the smaller of this many bytes and this share of the memory.
KEEP_BYTES, KEEP_SHARE = 256 << 20, 0.1

Maker = Callable[..., np.ndarray]


class Buffers:
    """The native memory handler of this process."""

    def __init__(self, addresses: Mapping[str, int], layout: Mapping[str, Any]) -> None:
        self._names = layout["counters"]
        self._words = (ctypes.c_int64 * len(self._names)).from_address(addresses["jitla_memory"])
        self.hold = native(addresses["jitla_hold"], result=ctypes.c_int32)
        self.drop = native(addresses["jitla_drop"])
        self.trim = native(addresses["jitla_trim"])
        self.limit(int(min(KEEP_BYTES, KEEP_SHARE * memory())))
        capsule = ctypes.pythonapi.PyCapsule_New
        capsule.restype, capsule.argtypes = ctypes.py_object, (ctypes.c_void_p,) * 3
        self.capsule = capsule(addresses["jitla_handler"], addresses["jitla_capsule_name"], None)
        # arrays and contexts hold references of their own; the native code's is never given back
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.capsule))
        ctypes.c_void_p.from_address(addresses["jitla_capsule"]).value = id(self.capsule)
        self.empty: Maker = builtin("empty", addresses["jitla_empty"], _DOC)

    def limit(self, nbytes: int) -> None:
        """Keep at most `nbytes` of freed blocks."""
        self._words[0] = nbytes
        self.trim()

    def counters(self) -> dict[str, int]:
        """Bytes that may be kept, are kept, are in use; blocks reused, fresh, kept."""
        return dict(zip(self._names, self._words, strict=True))


_DOC = "empty(shape, dtype[, axes]): a new array; `axes` from slowest to fastest."


def plain_empty(shape: tuple[int, ...], dtype: np.dtype, axes: tuple[int, ...] = ()) -> np.ndarray:
    """What the native `empty` does, without native code."""
    if not axes or axes == tuple(range(len(shape))):
        return np.empty(shape, dtype)
    # empty_like follows the order of a prototype's strides, and the result owns its data
    small = (2,) * len(shape)
    strides = [0] * len(shape)
    for position, axis in enumerate(reversed(axes)):
        strides[axis] = 1 << position
    prototype = np.ndarray(small, np.uint8, bytearray(prod(small)), strides=strides)
    return np.empty_like(prototype, dtype=dtype, order="K", shape=shape)
