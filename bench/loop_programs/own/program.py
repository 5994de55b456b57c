"""The record by which the files of this package name their programs."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Own(NamedTuple):
    """A function, its arguments by size, a size for 5 to 100 ms of plain Python, and a tiny size."""

    function: Callable[..., Any]
    make: Callable[[np.random.Generator, int], tuple[Any, ...]]
    size: int
    tiny: int
    decorated: tuple[str, ...] = ()  # helpers that are decorated like the function

    @property
    def name(self) -> str:
        """Name of the function."""
        return self.function.__name__

    def inputs(self, size: int) -> tuple[Any, ...]:
        """Return the arguments of a size, the same ones each time."""
        return self.make(np.random.default_rng(zlib.crc32(self.name.encode())), size)
