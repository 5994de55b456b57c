"""The contract between planning and code: plans, their steps, and what a backend offers.

Knows: what a kernel computes, over which iteration space. Must not know: any backend, how a plan was found.
Receives hops; returned by `plan`, read by recompile and the backends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import Any, Protocol

import numpy as np

from jitla.classes import dataclass
from jitla.fusion.blocks import Combine, Cut, Entries, Pairs, Stage, Tile
from jitla.hops import Hop, Kind

NARROW = 63  # vectors that rows are multiplied with at once; more are met in panels

# Elements of rows that share vectors with rows beside them: of sums, cells that call functions, others.
SHORT, SHORT_OF_FUNCTIONS, SHORT_OF_CELLS = 7, 31, 3
EXTREMES = ("argmin", "argmax")  # forms of products that find where rows have their extremes
PAIRS = "pairs"  # the form of products of stacks of small matrices
#: Products of compressed rows and their forms; operands: entries, columns, where rows begin, vector.
COMPRESSED = {"csr_vector": "dot", "csr_product": "dot", "csr_transposed_vector": "sum",
              "csr_transposed_product": "sum"}
UPRIGHT = "upright-"  # in front of the forms of products of, or with, rows that lie column by column
ALONE = ("scan", "join", *EXTREMES)  # those that make rows of rows, without a vector


@dataclass(frozen=True, slots=True)
class Kernel:
    """A loop over `shape` that reads `inputs`, evaluates `body` in order and stores `outputs`.

    `body` holds cell hops of exactly `shape` and aggregates of them; aggregates are outputs and are
    not read inside the kernel. `inputs` are broadcast to `shape`, except `tables`. `template` is "Cell"
    when no output is an aggregate, else "MAgg"; "Tally" if all are sums by label.
    """

    template: str
    shape: tuple[int, ...]
    inputs: tuple[Hop, ...]
    body: tuple[Hop, ...]
    outputs: tuple[Hop, ...]


def tables(body: Iterable[Hop]) -> frozenset[Hop]:
    """Return the operands of `body` that are no arrays over its space: elements anywhere may be read."""
    return frozenset(h.inputs[0] for h in body if h.op.kind is Kind.TAKE)


def data_inputs(hop: Hop) -> tuple[Hop, ...]:
    """Return the operands whose elements `hop` needs, not only their shape."""
    return () if hop.op.name == "count" else hop.inputs


def over_rows(hop: Hop) -> bool:
    """Tell whether `hop` is an aggregate in which rows meet."""
    return hop.op.kind is Kind.AGG and 0 in hop.attr("axis")


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


@dataclass(frozen=True, slots=True)
class Product:
    """A product as one loop over the rows of a matrix, part of a `RowKernel`.

    `form` "dot": one result per row, its elements times `vector` added up. "sum": the rows, each
    times its element of `vector`, added up. "scan": the running sums of every row; there is no vector,
    the matrix stands for it. "join": the rows of all operands side by side, copied one operand after
    the other. "argmin", "argmax": where every row has its extreme, an index each. `matrix` is the
    value whose rows are meant; it lies in memory as they do, or with its axes exchanged (`turned`).
    `vector` may be several, the columns of a narrow matrix: then "dot" makes a row of results per row,
    "sum" a row per column of the matrix. "pairs": every matrix of a stack times one of another stack, or
    the same for all; "rows" are then the matrices along the first axis. Of a `compressed` matrix, `matrix`
    is the vector of its entries. With `columnwise` neighbours in a column are neighbours in memory, not
    those in a row: blocks of rows are walked column by column.
    """

    form: str
    hop: Hop
    matrix: Hop
    turned: bool
    vector: Hop
    columnwise: bool = False

    @property
    def inputs(self) -> tuple[Hop, ...]:
        """Values the loop reads."""
        if self.form in ALONE:
            return tuple(dict.fromkeys(self.hop.inputs))
        return self.hop.inputs if self.compressed else (self.matrix, self.vector)

    @property
    def compressed(self) -> bool:
        """Whether only some elements of the matrix are there, row by row."""
        return self.hop.op.name in COMPRESSED

    @property
    def columns(self) -> int:
        """With how many vectors rows are multiplied."""
        shape = self.vector.meta.shape if self.form not in (*ALONE, PAIRS) else ()
        return shape[1] if len(shape) > 1 else 1

    @property
    def wide(self) -> bool:
        """Whether rows meet the vectors in panels, as these do not stay in the cache."""
        return self.columns > NARROW and not self.compressed

    @property
    def outputs(self) -> tuple[Hop, ...]:
        """The one value it makes."""
        return (self.hop,)


@dataclass(frozen=True, slots=True)
class RowKernel:
    """Loops that are run one after the other on blocks of rows, so that rows are read once.

    `axes` says for every input along which of its axes the rows lie, None where all blocks read all
    of it. `views` are made by no loop: each is its operand with axes of length 1 put in. `rows` is
    the number of rows.
    """

    rows: int
    stages: tuple[Kernel | Product, ...]
    views: tuple[Hop, ...]
    inputs: tuple[Hop, ...]
    axes: tuple[int | None, ...]
    outputs: tuple[Hop, ...]

    @property
    def template(self) -> str:
        """Name of the template: "Outer" if rows meet a wide matrix."""
        wide = any(isinstance(s, Product) and s.wide for s in self.stages)
        return "Outer" if wide else "Row"

    @property
    def body(self) -> tuple[Hop, ...]:
        """All hops that are computed, operands first."""
        return tuple(h for s in self.stages for h in (s.body if isinstance(s, Kernel) else s.outputs))

    @property
    def in_turn(self) -> tuple[Hop, ...]:
        """Results to which all rows are added in their order, block after block.

        Beside a wide product they are sums of every block's, and totals always are.
        """
        found = tuple(h for h in self.outputs if over_rows(h) and h.meta.size > 1)
        return () if self.template == "Outer" else found

    @property
    def columnwise(self) -> bool:
        """Whether a matrix of which blocks of rows are read lies column by column."""
        return any(isinstance(s, Product) and s.columnwise for s in self.stages)

    @property
    def shape(self) -> tuple[int, ...]:
        """The largest space that a loop runs over."""
        spaces = [s.shape if isinstance(s, Kernel) else _space(s) for s in self.stages]
        return max(spaces, key=prod)


def _space(product: Product) -> tuple[int, ...]:
    if product.form == PAIRS:
        return product.hop.meta.shape
    if product.compressed:
        return product.hop.meta.shape if product.form == "dot" else product.vector.meta.shape
    shape = product.matrix.meta.shape
    return shape[::-1] if product.turned else shape


@dataclass(frozen=True, slots=True)
class WindowKernel:
    """Cells that are run one after the other on blocks of rows, and read each other's some rows further on.

    `views` are slices of what stages make. To every row of the results belong as many of a stage as `rates`
    say. A stage over more rows than those begins with the ones that the later stages read beyond theirs, and
    keeps as many from block to block. `axes` are those of a `RowKernel`.
    """

    rows: int
    stages: tuple[Kernel, ...]
    rates: tuple[int, ...]
    views: tuple[Hop, ...]
    inputs: tuple[Hop, ...]
    axes: tuple[int | None, ...]
    outputs: tuple[Hop, ...]

    @property
    def template(self) -> str:
        """Name of the template."""
        return "Window"

    @property
    def body(self) -> tuple[Hop, ...]:
        """All hops that are computed, operands first."""
        return tuple(h for s in self.stages for h in s.body)

    @property
    def shape(self) -> tuple[int, ...]:
        """The space of the results."""
        return self.stages[-1].shape

    @property
    def inner(self) -> tuple[Hop, ...]:
        """What stages make for later ones."""
        return tuple(h for s in self.stages[:-1] for h in s.outputs)

    @property
    def rate(self) -> dict[Hop, int]:
        """The rows of every value that belong to one of the results."""
        found: dict[Hop, int] = {}
        for stage, rate in zip(self.stages, self.rates, strict=True):
            found |= {h: max(rate, found.get(h, 0)) for h in (*stage.inputs, *stage.outputs)}
        return found

    def ahead(self, resize: Callable[[tuple[int, ...]], tuple[int, ...]] = tuple) -> int:
        """Return how many rows more than belong to the results a stage makes at most."""
        rows = resize(self.shape)[0]
        return max(resize(s.shape)[0] - n * rows for s, n in zip(self.stages, self.rates, strict=True))


Step = Kernel | RowKernel | WindowKernel | Call


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps in execution order; `outputs` are the roots, in the order asked for."""

    steps: tuple[Step, ...]
    outputs: tuple[Hop, ...]


@dataclass(frozen=True, slots=True)
class Schedule:
    """How a kernel is run: `threads` (0 = all), `unroll` vectors per step, `nontemporal` output stores.

    With `delayed` stores its one result may overwrite what it is computed from elsewhere, as far as the
    geometry says. `crosswise`: rows may be so short that several of them are to fill a vector. Vectors have
    one in `part` of the processor's lanes; memory is asked for `ahead` bytes early, 0: as is usual.
    """

    threads: int = 0
    unroll: int = 1
    nontemporal: bool = False
    delayed: bool = False
    crosswise: bool = False
    part: int = 1
    ahead: int = 0


@dataclass(frozen=True, slots=True)
class Form:
    """The layout variant a kernel is compiled for, after merging dimensions.

    `mode`: "cell" (no aggregate), "full" (aggregate over everything, by the flat index),
    "rows" (aggregate over the last dimension, one result per row), "cols" (aggregate over the
    first dimension), "tally" (sums by label). `ndim` counts merged dimensions. `inner` has one letter
    per array operand (array inputs, then array outputs, in kernel order): "c" contiguous in the last
    dimension, "b" broadcast there (stride 0), "s" any other stride, "t" a table, as results of a "tally"
    are; in the geometry the strides of these are how many elements they have.

    "full" with all arrays in flat order has one dimension and the letters "c", aggregates "b". Else
    the dimensions are those that all arrays agree on, and an array has "f" if it lies in flat order
    (all results do), "r" if it is one row of contiguous elements, the same all over (stride 0
    in every dimension but the last), or "c", "b", "s" as above, with any strides further out.
    """

    mode: str
    ndim: int
    inner: str


def crosswise(kernel: Kernel, form: Form) -> int:
    """Return up to how many elements of a row are computed together with those of the rows beside it.

    So many fill no vector, or leave a part of one over: that costs most where functions take long.
    """
    if form.ndim < 2 or form.mode not in ("cell", "rows"):
        return 0
    if form.mode == "rows":
        return SHORT
    return SHORT_OF_FUNCTIONS if any(h.op.transcendental for h in kernel.body) else SHORT_OF_CELLS


@dataclass(frozen=True, slots=True)
class Geometry:
    """Sizes and byte strides of one binding: `dims`, and per array operand its strides over them.

    If stores are delayed: what an element is computed from lies at most `apart` bytes from it, as far as
    it is overwritten.
    """

    dims: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]
    apart: int = 0


class Executable(Protocol):
    """A compiled kernel: size-generic machine code."""

    @property
    def text(self) -> str:
        """What it was compiled from."""
        ...

    def template(self, geometry: Geometry, more: bool = False) -> bytes:
        """Argument block for `launch`, everything filled in but the operands.

        With `more` results hold what earlier rows came to, and those of a form "cols" are added to it.
        """
        ...

    def scratch(self, geometry: Geometry) -> int:
        """Bytes that a run takes beside its results."""
        ...


class Backend(Protocol):
    """Something that can run kernels."""

    name: str
    templates: tuple[str, ...]

    def supports(self, hop: Hop) -> str | None:
        """None if `hop` (cell, aggregate, product) can be in a kernel's body, else the reason why not."""
        ...

    def compile(self, kernel: Kernel, form: Form, schedule: Schedule) -> Executable:
        """Machine code for `kernel` in layout `form`, from the cache where possible."""
        ...

    def nest(self, nest: Any, threads: int, *, steps: Mapping[str, tuple[int, ...]]) -> Any:
        """Return machine code for a loop nest (`jitla.nests`), run on up to `threads` threads.

        `steps` are the strides of its inputs and outputs.
        """
        ...

    def assembly(self, text: str) -> str:
        """Return the assembly language that the text of an executable is compiled to."""
        ...

    def product(
        self, form: str, dtype: np.dtype, columns: int
    ) -> Callable[[int, int, int, int], bytes]:
        """Return what makes the argument block of a product: of rows, their length, bytes apart.

        With what the matrix is multiplied has `columns`, and rows that are the last number of bytes
        apart. The form "pack" copies rows of `columns` that lie anyhow into one run: of these, their
        length, and the bytes between rows and between columns.
        """
        ...

    def wide(self, dtype: np.dtype, fetches: bool = False) -> Callable[[Tile], bytes]:
        """Return what makes the argument block of a product with a wide matrix.

        If it `fetches`, rows come from memory, and are asked for before they are needed.
        """
        ...

    def pairs(self, dtype: np.dtype, pairs: Pairs) -> Callable[[Pairs], bytes]:
        """Return what makes the argument block of products of small matrices that lie like `pairs`."""
        ...

    def compressed(
        self, form: str, dtype: np.dtype, index: np.dtype, columns: int
    ) -> Callable[[Entries], bytes]:
        """Return what makes the argument block of a product over compressed rows with so many `columns`."""
        ...

    def stored(self, threads: int) -> Any:
        """Return the operators at stored positions, on up to `threads` threads; 0: as is usual."""
        ...

    def rows(
        self, scalars: Sequence[np.dtype | None], stages: Sequence[Stage],
        combines: Sequence[Combine], cut: Cut, threads: int, nanoseconds: float,
    ) -> bytes:
        """Argument block for `launch` that runs stages on blocks of rows.

        `scalars` are the dtypes of the scalars among the operands, None for arrays.
        """
        ...

    @property
    def launch(self) -> Callable[..., int]:
        """`launch(template, *operands)`: run a kernel on ndarrays and scalars; the flags it raised."""
        ...
