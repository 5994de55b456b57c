"""What binding a row kernel asks of those who have the backend.

Knows: the records of row kernels. Must not know: backends, how blocks of rows are cut.
Receives kernels, products and stages; returns argument blocks and what runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from jitla.fusion import (
    Combine,
    Cut,
    Entries,
    Executable,
    Form,
    Kernel,
    Pairs,
    Schedule,
    Stage,
    Tile,
)
from jitla.recompile.choices import Launch, Made, Tuning

if TYPE_CHECKING:
    from jitla.nests import Nest


class Nested(Protocol):
    """A loop nest that runs."""

    @property
    def text(self) -> str:
        """What it was made of."""
        ...

    def into(self, arrays: Mapping[str, np.ndarray]) -> int:
        """Run it on its inputs and outputs, by name; return the floating-point flags it raised."""
        ...


class RowTools(Protocol):
    """What binding a kernel asks for; `cores` are the threads that share it, `tuning` chooses knobs.

    `threads` are those of loops over elements, 0: as many as is usual.
    """

    threads: int
    cores: int
    tuning: Tuning | None

    def executable(
        self, kernel: Kernel, key: Any, form: Form, schedule: Schedule
    ) -> tuple[Executable, Launch]:
        """Machine code for one variant of a kernel, and what runs it."""
        ...

    def nest(self, nest: Nest, steps: Mapping[str, tuple[int, ...]]) -> Nested:
        """Machine code for a loop nest, whose inputs and outputs have `steps` as strides."""
        ...

    def assembly(self, text: str) -> str:
        """Return the assembly language that the text of an executable is compiled to."""
        ...

    def product(
        self, form: str, dtype: np.dtype, columns: int
    ) -> Callable[[int, int, int, int], bytes]:
        """Return what makes the argument block for rows, of a length, bytes apart, and of vectors."""
        ...

    def wide(self, dtype: np.dtype, fetches: bool) -> Callable[[Tile], bytes]:
        """Return what makes the argument block of a product with a wide matrix; it `fetches` rows."""
        ...

    def pairs(self, dtype: np.dtype, pairs: Pairs) -> Callable[[Pairs], bytes]:
        """Return what makes the argument block of products of small matrices that lie like `pairs`."""
        ...

    def compressed(
        self, form: str, dtype: np.dtype, index: np.dtype, columns: int
    ) -> Callable[[Entries], bytes]:
        """Return what makes the argument block of a product over compressed rows."""
        ...

    def rows_block(
        self, scalars: tuple[np.dtype | None, ...], stages: list[Stage], combines: list[Combine], cut: Cut,
        nanoseconds: float,
    ) -> Made:
        """Return the argument block of the whole, and what runs it."""
        ...
