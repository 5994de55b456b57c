"""A call of compiled code: numbers and addresses are packed, and what comes back is unpacked.

Knows: addresses, memory of arrays. Must not know: when compiled code is called.
Receives values as Python has them; returns where the loop ended, and values as Python would have them.
"""

from __future__ import annotations

import ctypes
from time import perf_counter
from typing import Any

import numpy as np

from jitla.loops.kernel import Kernel
from jitla.loops.kinds import BY_CODE
from jitla.loops.versions import Nothing


class Code:
    """A compiled kernel, ready to be called."""

    __slots__ = ("address", "kernel", "seconds", "writes", "_call", "_items", "_free", "_library", "_names")

    def __init__(self, kernel: Kernel, writes: tuple[str, ...], library: Any, address: int) -> None:
        self.kernel = kernel
        self.writes = writes
        self.address = address
        self.seconds = 0.0  # that the last call took, without packing
        self._library = library  # the code lives as long as this does
        pointers = [ctypes.c_void_p] * (4 + len(kernel.arrays))
        self._call = ctypes.CFUNCTYPE(ctypes.c_int, *pointers)(address)
        self._items = tuple(np.dtype(name).itemsize for name in kernel.pointers)
        only = tuple(name for name in kernel.takes if name not in kernel.gives)
        self._names = kernel.gives, only
        # Memory that is not in use.
        self._free: list[tuple[Any, int]] = []

    def __call__(self, given: dict[str, Any]) -> tuple[Any, ...]:
        """Run the code; return the number of the statement to go on with, the variables, the counters."""
        try:
            memory, address = self._free.pop()
        except IndexError:
            memory, address = self._memory()
        pointers = self._packed(given, memory)
        start = perf_counter()
        self._call(address, address + 8, address + 16, address + 16, *pointers)
        self.seconds = perf_counter() - start
        label = ctypes.c_int64.from_address(address).value
        found = self.unpacked(label, memory, 16)
        self._free.append((memory, address))
        return found

    def _packed(self, given: dict[str, Any], memory: Any) -> list[int]:
        """Write numbers and lengths where the code reads them; return addresses of arrays."""
        kernel = self.kernel
        takes, truths = kernel.takes, kernel.truths
        packed: list[Any] = []
        for name in self._names[0]:
            packed += (given[name] if name in takes else 0, 0)
        packed += (0,) * (3 * kernel.counters)
        packed += [given[name] for name in self._names[1]]
        for place, name in truths:
            packed[place] = bool(given[name])  # those of NumPy cannot be packed
        pointers = []
        for name, item in zip(kernel.arrays, self._items, strict=True):
            array = given[name]
            pointers.append(array.ctypes.data)
            for length, stride in zip(array.shape, array.strides, strict=True):
                packed += (length, stride // item)
        kernel.packing.pack_into(memory, 16, *packed)
        return pointers

    def _memory(self) -> tuple[Any, int]:
        memory = ctypes.create_string_buffer(self.kernel.packing.size + 24)
        return memory, ctypes.addressof(memory)

    def unpacked(self, label: int, memory: Any, offset: int) -> tuple[Any, ...]:
        """Return the number of the statement to go on with, the variables, the counters."""
        kernel = self.kernel
        back = kernel.unpacking.unpack_from(memory, offset)
        count = 2 * len(kernel.gives)
        values = {}
        for name, value, code in zip(kernel.gives, back[:count:2], back[1:count:2], strict=True):
            values[name] = BY_CODE[code](value) if code else Nothing
        return label, *(values.get(name, Nothing) for name in self.writes), *back[count:]
