"""Loop programs as loaded machine code; a process that finds them on disk does not load the compiler."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np

from jitla.codegen.jit import Jit, Library
from jitla.loopir import LoopProgram, Outcome, StateLayout

__all__ = ["SYMBOL", "CompiledProgram", "load_program"]

SYMBOL = "program"  # of the function of a program


class CompiledProgram:
    """A program as loaded machine code: its address, the layout of its state, the library that owns it.

    `optimise` returns better code, if this was compiled quickly. `keys` are those of the objects that are
    kept on disk.
    """

    __slots__ = ("address", "layout", "library", "call", "optimise", "keys", "_program")

    def __init__(
        self, program: LoopProgram | Callable[[], LoopProgram], layout: StateLayout, library: Library,
        optimise: Callable[[], CompiledProgram] | None = None, keys: tuple[str, ...] = (),
    ) -> None:
        self._program, self.layout, self.library = program, layout, library
        self.optimise = optimise
        self.keys = keys
        self.address = library.addresses[SYMBOL]
        self.call = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)(self.address)

    @property
    def program(self) -> LoopProgram:
        """The program."""
        return self._program() if callable(self._program) else self._program

    def run(self, state: np.ndarray) -> Outcome:
        """Run the program on `state`, an array of `layout.size` words."""
        return Outcome.of_word(self.call(state.ctypes.data))


def load_program(
    program: Callable[[], LoopProgram], layout: StateLayout, keys: tuple[str, ...], jit: Jit,
) -> CompiledProgram | None:
    """Return a program whose objects are kept under `keys`; None if they are not."""
    library = jit.load_cached(keys, (SYMBOL,))
    return None if library is None else CompiledProgram(program, layout, library, keys=keys)
