"""What stands before a compiled nest while it is trusted: a builtin made of machine code.

Knows: addresses of Python's functions, what slots hold. Must not know: instructions, syntax trees.
Receives a kernel's code and the text of a door; returns what is called instead of Python's way.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from jitla.loops.call import Code
from jitla.loops.door import ELSE, FINISH, FUNCTIONS, KERNEL, RUNS, TIME
from jitla.runtime import builtin


class Slots(np.ndarray):
    """The memory that a door reads; its own attributes keep what it points to."""

    kept: list[Any]


class Door:
    """A builtin that runs compiled code for values of one kind, and asks another for those of others."""

    def __init__(self, code: Code, objects: Sequence[Any], loaded: tuple[Any, int],
                 finish: Callable[[tuple[Any, ...]], Any]) -> None:
        library, address = loaded
        self._code = code
        self._finish = finish
        slots = np.zeros(FINISH + 1 + len(FUNCTIONS) + len(objects), np.int64).view(Slots)
        # whoever is in the builtin while the door is shut still needs all of it
        slots.kept = [library, code, *objects, self._finished]
        slots[KERNEL], slots[FINISH] = code.address, id(slots.kept[-1])
        slots[FINISH + 1:] = [*_functions(), *map(id, objects)]
        self._slots = slots
        self.ask: Callable[..., Any] = builtin("nest", address, "Run a nest.", slots)

    def before(self, other: Callable[..., Any]) -> Callable[..., Any]:
        """Let `other` be asked about all other values; return what is to be asked first."""
        self._slots.kept.append(other)
        self._slots[ELSE] = id(other)
        return self.ask

    @property
    def runs(self) -> int:
        """How often it has run compiled code."""
        return int(self._slots[RUNS])

    @property
    def seconds(self) -> float:
        """How long that took."""
        return 1e-9 * int(self._slots[TIME])

    def _finished(self, memory: bytes) -> Any:
        """Unpack what compiled code left where Python has to go on."""
        label = int.from_bytes(memory[-8:], "little", signed=True)
        return self._finish(self._code.unpacked(label, memory, 0))


@cache
def _functions() -> list[int]:
    """Return the addresses of the functions that doors call."""
    found = []
    for name in FUNCTIONS:
        function = ctypes.CDLL(None).clock_gettime if name == "clock" else getattr(ctypes.pythonapi, name)
        address = ctypes.cast(function, ctypes.c_void_p).value
        assert address is not None
        found.append(address)
    return found
