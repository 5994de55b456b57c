"""The contract between planning and code: plans, their steps, and what a backend offers.

Knows: what a kernel computes, over which iteration space. Must not know: any backend, how a plan was found.
Receives hops; returned by `plan`, read by recompile and the backends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from jitla.hops import Hop


@dataclass(frozen=True, slots=True)
class Kernel:
    """A loop over `shape` that reads `inputs`, evaluates `body` in order and stores `outputs`.

    `body` holds cell hops of exactly `shape` and aggregates of them; aggregates are outputs and are
    not read inside the kernel. `inputs` are broadcast to `shape`. `template` is "Cell" when no
    output is an aggregate, else "MAgg".
    """

    template: str
    shape: tuple[int, ...]
    inputs: tuple[Hop, ...]
    body: tuple[Hop, ...]
    outputs: tuple[Hop, ...]


def data_inputs(hop: Hop) -> tuple[Hop, ...]:
    """Return the operands whose elements `hop` needs, not only their shape."""
    return () if hop.op.name == "count" else hop.inputs


@dataclass(frozen=True, slots=True)
class Call:
    """One NumPy call: `hop.op.ref(*hop.inputs, **hop.attrs)`; `reason` says why it is no kernel."""

    hop: Hop
    reason: str = ""

    @property
    def inputs(self) -> tuple[Hop, ...]:
        """Values the call reads; counting elements reads none."""
        return data_inputs(self.hop)

    @property
    def outputs(self) -> tuple[Hop, ...]:
        """The one value the call makes."""
        return (self.hop,)


Step = Kernel | Call


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps in execution order; `outputs` are the roots, in the order asked for."""

    steps: tuple[Step, ...]
    outputs: tuple[Hop, ...]


@dataclass(frozen=True, slots=True)
class Schedule:
    """How a kernel is run: `threads` (0 = all), `unroll` vectors per step, `nontemporal` output stores."""

    threads: int = 0
    unroll: int = 1
    nontemporal: bool = False


@dataclass(frozen=True, slots=True)
class Form:
    """The layout variant a kernel is compiled for, after merging dimensions.

    `mode`: "cell" (no aggregate), "full" (aggregate over everything, by the flat index),
    "rows" (aggregate over the last dimension, one result per row), "cols" (aggregate over the
    first dimension). `ndim` counts merged dimensions. `inner` has one letter per array operand
    (array inputs, then array outputs, in kernel order): "c" contiguous in the last dimension,
    "b" broadcast there (stride 0), "s" any other stride.

    "full" with all arrays in flat order has one dimension and the letters "c", aggregates "b". Else
    the dimensions are those that all arrays agree on, and an array has "f" if it lies in flat order
    (all results do), "r" if it is one row of contiguous elements, the same all over (stride 0
    in every dimension but the last), or "c", "b", "s" as above, with any strides further out.
    """

    mode: str
    ndim: int
    inner: str


@dataclass(frozen=True, slots=True)
class Geometry:
    """Sizes and byte strides of one binding: `dims`, and per array operand its strides over them."""

    dims: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]


class Executable(Protocol):
    """A compiled kernel: size-generic machine code."""

    text: str

    def template(self, geometry: Geometry) -> bytes:
        """Argument block for `launch`, everything filled in but the operands."""
        ...


class Backend(Protocol):
    """Something that can run kernels."""

    name: str

    def supports(self, hop: Hop) -> str | None:
        """None if `hop` (cell or aggregate) can be in a kernel's body, else the reason why not."""
        ...

    def compile(self, kernel: Kernel, form: Form, schedule: Schedule) -> Executable:
        """Machine code for `kernel` in layout `form`, from the cache where possible."""
        ...

    @property
    def launch(self) -> Callable[..., int]:
        """`launch(template, *operands)`: run a kernel on ndarrays and scalars; the flags it raised."""
        ...
