"""The kernels of a program with what was made of them, which lives as long as the program.

Knows: which binding belongs to which kernel. Must not know: machine code, plans.
Receives kernels, bound shapes and layouts; returns argument blocks and what runs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jitla.fusion import (
    Executable,
    Form,
    Kernel,
    Layout,
    Operands,
    RowKernel,
    Schedule,
    Space,
    Values,
    WindowKernel,
)
from jitla.hops import Hop, Shape
from jitla.recompile.asked import RowTools
from jitla.recompile.choices import UNTUNED, Launch, Made
from jitla.recompile.rows import RowBinding
from jitla.recompile.windows import WindowBinding


@dataclass(slots=True)
class CellLoop:
    """A kernel over elements, with its code by form and schedule."""

    kernel: Kernel
    key: Any
    operands: Operands
    variants: dict[tuple[Form, Schedule], tuple[Executable, Launch]] = field(default_factory=dict)


@dataclass(slots=True)
class BlockLoop:
    """A kernel over blocks of rows, with all that its bindings run."""

    kernel: RowKernel | WindowKernel
    kept: list[Any] = field(default_factory=list)

    def block(
        self, shapes: Mapping[Shape, Shape], places: Mapping[Hop, Layout], tools: RowTools,
        chosen: Values = UNTUNED,
    ) -> Made | None:
        """Return the argument block and what runs it, knobs as `chosen`; None if rows do not lie right."""
        bound = self._bound(shapes, places, tools, chosen)
        made = bound.block()
        if made is not None:
            self.kept += bound.kept
        return made

    def space(self, shapes: Mapping[Shape, Shape], places: Mapping[Hop, Layout], tools: RowTools) -> Space:
        """Return what may be chosen of it, bound like this."""
        return self._bound(shapes, places, tools, UNTUNED).space()

    def _bound(
        self, shapes: Mapping[Shape, Shape], places: Mapping[Hop, Layout], tools: RowTools, chosen: Values,
    ) -> RowBinding | WindowBinding:
        if isinstance(self.kernel, RowKernel):
            return RowBinding(self.kernel, shapes, places, tools, chosen)
        return WindowBinding(self.kernel, shapes, places, tools, chosen)
