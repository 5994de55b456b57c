"""Plans and their steps, the division of rows into blocks and units, and the protocol of code generators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple, Protocol

import numpy as np

from jitla.classes import dataclass
from jitla.hops import Hop, Kind, const_value, topo

BLOCK_BYTES = 24 << 10  # of all rows of a block: stays in the first-level cache
MIN_BLOCK_ROWS = 8  # of a block, however long its rows are
ORDERED_BLOCK_BYTES = 256 << 10  # of a block whose rows are reduced in order: stays in the second-level cache
MIN_ORDERED_BLOCKS = 8  # of that kind, for threads to share
WIDE_BLOCK_BYTES = 192 << 10  # of a block that is multiplied with a wide matrix: second-level cache
MAX_WIDE_BLOCK_ROWS = 256  # of such a block, which also has at most a fourth of all rows
COLUMNWISE_BLOCK_BYTES = 256 << 10  # of a block with a matrix stored by columns: second-level cache
COLUMNWISE_BLOCK_ROWS = 128, 4096  # least and most of such a block
LONG_ROWS_BLOCK_BYTES, MAX_LONG_ROWS = 4 << 20, 96  # of a wide block of long rows: third-level cache
MIN_WIDE_BLOCK_ROWS = 16  # rows that each panel of the matrix is used for
PACKED_BLOCK_BYTES = 768 << 10  # of a wide block whose panels are packed once
MIN_PACKED_ROWS = 4 * MIN_WIDE_BLOCK_ROWS  # from which a matrix is packed into panels once
MAX_PANELS_BYTES = 32 << 20  # of all panels that are packed once
MAX_PANEL_ROW_BYTES = 192
WINDOW_BLOCKS, MIN_WINDOW_BLOCKS = 16, 8  # for threads to share; with fewer a window does not pay
MAX_CARRIED_BYTES = 8 << 20  # between the stages of a window: more does not stay in a cache
WINDOW_BLOCK_BYTES = 512 << 10  # of a block of a sliding window: stays in the second-level cache
MAX_UNITS = 64  # of work, each with its partial results, whatever the number of threads
MIN_UNIT_BYTES = 256 << 10  # of all rows of a unit,
MIN_BYTES_PER_PRIVATE_BYTE = 8  # and for each byte that a unit initialises and combines
MIN_STREAMED_BYTES = 32 << 20  # of a result that is written with non-temporal stores

#: Kinds of stage operands. `OPERAND`: number `value` of the row kernel, from byte `other` on, advancing by
#: `step` bytes per block (0 for scalars and what all rows read). `SCRATCH`: byte `value` of the thread's
#: memory. `PARTIAL`: the unit's partial result number `value`, at byte `other`. `SHARED`: byte `value` of the
#: memory that all threads read.
OPERAND, SCRATCH, PARTIAL, SHARED = range(4)
#: When a stage is run: on every block of rows, on the first one of every unit, or once, before all blocks.
EVERY_BLOCK, FIRST_BLOCK, BEFORE_BLOCKS = range(3)
FROM_PANELS, PACK_ONLY = 1, 2  # values of `Tile.panels`


def panel_bytes(matrix: tuple[int, ...], itemsize: int) -> int:
    """Return an upper bound on the bytes of a matrix packed into panels, the last of which may be partial."""
    depth, columns = matrix
    return depth * (columns * itemsize + MAX_PANEL_ROW_BYTES) + 2 * MAX_PANEL_ROW_BYTES


def prepacks_panels(rows: int, nbytes: int) -> bool:
    """Return whether a matrix that `rows` rows are multiplied with is packed into `nbytes` of panels once."""
    return 0 < nbytes <= MAX_PANELS_BYTES and rows >= MIN_PACKED_ROWS


def block_height(
    row_bytes: int, rows: int, wide: bool = False, ordered: bool = False, packed: bool = False,
    columnwise: bool = False,
) -> int:
    """Return the number of rows in a block, out of `rows` rows of `row_bytes` bytes in all values together.

    `wide`: rows are multiplied with more vectors than stay in registers; `packed`: all of those are in
    panels. `ordered`: blocks are added to a result in row order. `columnwise`: a matrix is stored column by
    column.
    """
    height = max(BLOCK_BYTES // max(row_bytes, 1), MIN_BLOCK_ROWS)
    if ordered:
        height = max(min(ORDERED_BLOCK_BYTES // max(row_bytes, 1), rows // MIN_ORDERED_BLOCKS), height)
    if columnwise:
        least, most = COLUMNWISE_BLOCK_ROWS
        height = min(max(COLUMNWISE_BLOCK_BYTES // max(row_bytes, 1), least), most)
    if wide:
        long = min(LONG_ROWS_BLOCK_BYTES // max(row_bytes, 1), MAX_LONG_ROWS)
        height = max(WIDE_BLOCK_BYTES // max(row_bytes, 1), long, MIN_WIDE_BLOCK_ROWS)
        if packed:
            height = max(PACKED_BLOCK_BYTES // max(row_bytes, 1), MIN_WIDE_BLOCK_ROWS)
        height = min(height, MAX_WIDE_BLOCK_ROWS, max(rows // 4, MIN_WIDE_BLOCK_ROWS))
    return min((height + MIN_BLOCK_ROWS // 2) // MIN_BLOCK_ROWS * MIN_BLOCK_ROWS, rows)


def window_height(row_bytes: int, rows: int, ahead: int) -> int:
    """Return the number of rows in a block whose stages read up to `ahead` rows beyond it."""
    height = WINDOW_BLOCK_BYTES // max(row_bytes, 1)
    if row_bytes * rows > WINDOW_BLOCK_BYTES:
        height = min(height, rows // WINDOW_BLOCKS)
    least = MIN_BLOCK_ROWS if row_bytes <= WINDOW_BLOCK_BYTES else 1
    return min(max(height & -MIN_BLOCK_ROWS, least, 2 * ahead), rows)


def is_window_profitable(row_bytes: int, carried_bytes: int, rows: int, ahead: int) -> bool:
    """Return whether there are rows enough for all threads, and those carried between blocks fit a cache."""
    height = window_height(row_bytes, rows, ahead)
    shared = row_bytes * rows <= WINDOW_BLOCK_BYTES or rows >= MIN_WINDOW_BLOCKS * height
    return shared and carried_bytes * (height + ahead) <= MAX_CARRIED_BYTES


def blocks_per_unit(blocks: int, block_bytes: int, private_bytes: int) -> int:
    """Return the number of blocks in a unit of work that reduces into, or copies, `private_bytes` of its own.

    Units have nearly equal sizes, so that threads end together. The result must not depend on the number of
    threads: partial results are combined per unit.
    """
    least = max(MIN_UNIT_BYTES, MIN_BYTES_PER_PRIVATE_BYTE * private_bytes) // block_bytes
    units = -(-blocks // min(max(-(-blocks // MAX_UNITS), least, 1), blocks))
    return -(-blocks // units)


class StageOperand(NamedTuple):
    """The address of one operand of a stage: its kind and an offset, see `OPERAND`."""

    kind: int
    value: int
    step: int = 0
    other: int = 0


class BlockStage(NamedTuple):
    """A kernel on one block of rows: argument blocks for full blocks and for the last one, and its operands.

    `when` is one of `EVERY_BLOCK`, `FIRST_BLOCK`, `BEFORE_BLOCKS`; stages of the last kind come first.
    `first` is the argument block for the first rows of all, if the stage continues a reduction in row order:
    then it and all stages behind it are run in the order of the blocks.
    """

    whole: bytes
    last: bytes
    places: tuple[StageOperand, ...]
    when: int = EVERY_BLOCK
    first: bytes = b""


class Combine(NamedTuple):
    """The reduction of one result of `size` bytes over the partial results of all units.

    A unit's partial result starts as zeros, at `offset` of its partial results. `block` is the argument block
    of the kernel ``operand = operand + partial``. Of a symmetric result with `mirrored` rows only the
    diagonal and the triangle above are added up; the other is copied from it.
    """

    block: bytes
    operand: int
    offset: int
    size: int
    mirrored: int = 0
    itemsize: int = 8


class EntryShares(NamedTuple):
    """How rows of a compressed matrix are shared out, so that units have about as many entries.

    Operand number `starts` - 1, of `itemsize` bytes an element, holds where the entries of `rows` rows begin;
    0 if there is none. Units consist of blocks of `height` rows.
    """

    starts: int = 0
    itemsize: int = 0
    height: int = 0
    rows: int = 0


class Blocking(NamedTuple):
    """How rows are divided into blocks and units, and the memory that threads need.

    There are `slots` slots of `slot_bytes`, one for each running thread; the stages' own scratch memory
    begins at `scratch_offset` of a slot. A unit has `partial_bytes` of partial results. All threads share
    `shared_bytes`.
    """

    blocks: int
    per_unit: int
    slots: int
    slot_bytes: int
    scratch_offset: int
    partial_bytes: int
    shared_bytes: int = 0
    shares: EntryShares = EntryShares()

    @property
    def units(self) -> int:
        """The number of units of work."""
        return -(-self.blocks // self.per_unit)


class Tile(NamedTuple):
    """A product of a block of rows with a matrix: sizes, and byte strides.

    `step` is the stride between rows and `along` the one within a row, `down` and `across` are those of the
    matrix, `apart` is the one between rows of the result, whose rows are contiguous. `adds`: add to
    the result. `upper`: skip what is far below the diagonal. `panels`: `FROM_PANELS` if the columns of the
    matrix are packed in panels, one behind the other; `PACK_ONLY` to pack them to where the result would be.
    `cold`: the matrix is in memory, not in the cache.
    """

    rows: int
    depth: int
    columns: int
    step: int
    along: int
    down: int
    across: int
    apart: int
    adds: int = 0
    upper: int = 0
    panels: int = 0
    cold: int = 0


class SparseProduct(NamedTuple):
    """Sizes of a product of compressed rows: rows, columns, `total` entries, `depth` vectors at once."""

    rows: int
    width: int
    total: int
    depth: int


class Pairs(NamedTuple):
    """Sizes and byte strides of products of small matrices, m x k times k x n: `outer` x `inner` pairs.

    `left` and `right` are the strides of the operands from pair to pair (outer, inner), from row to row and
    from column to column. Results are contiguous.
    """

    outer: int
    inner: int
    sizes: tuple[int, int, int]
    left: tuple[int, int, int, int]
    right: tuple[int, int, int, int]


MAX_NARROW_COLUMNS = 63  # vectors that rows are multiplied with at once; more are packed in panels

# Row lengths up to which several rows share a vector: of sums, of cells that call functions, of other cells.
MAX_SHORT_SUM, MAX_SHORT_FUNCTION, MAX_SHORT_CELL = 7, 31, 3
ARG_REDUCTIONS = ("argmin", "argmax")  # also forms of products: the index of every row's extreme
PAIRS = "pairs"  # the form of products of stacks of small matrices
#: Forms of products of compressed rows; operands: entries, column indices, row starts, vector.
COMPRESSED_FORMS = {"csr_vector": "dot", "csr_product": "dot", "csr_transposed_vector": "sum",
              "csr_transposed_product": "sum"}
COLUMNWISE_PREFIX = "upright-"  # prefix of the forms of products whose rows are stored column by column
ROWWISE_FORMS = ("scan", "join", *ARG_REDUCTIONS)  # without a vector: every row is mapped on its own


@dataclass(frozen=True, slots=True)
class Kernel:
    """A loop over `shape` that reads `inputs`, evaluates `body` in order and stores `outputs`.

    `body` holds cell hops of exactly `shape` and aggregates of them; aggregates are outputs and are not read
    inside the kernel. `inputs` are broadcast to `shape`, except `gather_tables`. `template` is "Cell" when no
    output is an aggregate, "Tally" if all are sums by label, else "MAgg".
    """

    template: str
    shape: tuple[int, ...]
    inputs: tuple[Hop, ...]
    body: tuple[Hop, ...]
    outputs: tuple[Hop, ...]


def gather_tables(body: Iterable[Hop]) -> frozenset[Hop]:
    """Return the operands of `body` that are indexed by value instead of iterated over."""
    return frozenset(h.inputs[0] for h in body if h.op.kind is Kind.TAKE)


def data_inputs(hop: Hop) -> tuple[Hop, ...]:
    """Return the operands whose elements `hop` needs, not only their shape."""
    return () if hop.op.name == "count" else hop.inputs


def reduces_rows(hop: Hop) -> bool:
    """Return whether `hop` is an aggregate over axis 0."""
    return hop.op.kind is Kind.AGG and 0 in hop.attr("axis")


@dataclass(frozen=True, slots=True)
class Call:
    """One NumPy call: `hop.op.ref(*hop.inputs, **hop.attrs)`; `reason` says why it is not in a kernel."""

    hop: Hop
    reason: str = ""

    @property
    def inputs(self) -> tuple[Hop, ...]:
        """Values the call reads; counting elements reads none."""
        return data_inputs(self.hop)

    @property
    def outputs(self) -> tuple[Hop, ...]:
        """The one value the call produces."""
        return (self.hop,)


@dataclass(frozen=True, slots=True)
class Product:
    """A product as one loop over the rows of a matrix, part of a `RowKernel`.

    Forms: "dot": one result per row, the inner product with `vector`. "sum": the sum of all rows, each
    weighted by its element of `vector`. "scan": running sums within every row. "join": rows of all operands
    side by side. "argmin", "argmax": the index of the extreme of every row. "pairs": every matrix of a stack
    times one of another stack, or the same one for all; "rows" are then the matrices along the first axis.
    Forms without a vector have the matrix in its place.

    `matrix` is the value whose rows are iterated over, with its axes exchanged if `transposed`. `vector` may
    be several, the columns of a narrow matrix: then "dot" yields a row of results per row, "sum" a row per
    column of the matrix. If `compressed`, `matrix` is the vector of the entries. `columnwise`: the matrix is
    contiguous along columns, so blocks of rows are read column by column.
    """

    form: str
    hop: Hop
    matrix: Hop
    transposed: bool
    vector: Hop
    columnwise: bool = False

    @property
    def inputs(self) -> tuple[Hop, ...]:
        """Values the loop reads."""
        if self.form in ROWWISE_FORMS:
            return tuple(dict.fromkeys(self.hop.inputs))
        return self.hop.inputs if self.compressed else (self.matrix, self.vector)

    @property
    def compressed(self) -> bool:
        """Whether the matrix is sparse, in compressed rows."""
        return self.hop.op.name in COMPRESSED_FORMS

    @property
    def columns(self) -> int:
        """The number of vectors that rows are multiplied with."""
        shape = self.vector.meta.shape if self.form not in (*ROWWISE_FORMS, PAIRS) else ()
        return shape[1] if len(shape) > 1 else 1

    @property
    def wide(self) -> bool:
        """Whether the vectors are packed in panels, as they do not stay in the cache."""
        return self.columns > MAX_NARROW_COLUMNS and not self.compressed

    @property
    def outputs(self) -> tuple[Hop, ...]:
        """The one value the loop produces."""
        return (self.hop,)


@dataclass(frozen=True, slots=True)
class RowKernel:
    """Loops that are run one after the other on blocks of rows, so that rows are read once.

    `axes` has for every input the axis its rows are along, None if every block reads all of it. `views` are
    computed by no loop: each is its operand with axes of length 1 inserted.
    """

    rows: int
    stages: tuple[Kernel | Product, ...]
    views: tuple[Hop, ...]
    inputs: tuple[Hop, ...]
    axes: tuple[int | None, ...]
    outputs: tuple[Hop, ...]

    @property
    def template(self) -> str:
        """Name of the template: "Outer" if rows are multiplied with a wide matrix, else "Row"."""
        wide = any(isinstance(s, Product) and s.wide for s in self.stages)
        return "Outer" if wide else "Row"

    @property
    def body(self) -> tuple[Hop, ...]:
        """All hops that are computed, operands first."""
        return tuple(h for s in self.stages for h in (s.body if isinstance(s, Kernel) else s.outputs))

    @property
    def ordered_outputs(self) -> tuple[Hop, ...]:
        """Results to which all rows are added in their order, block after block.

        None beside a wide product: sums are then sums of the blocks' partial sums, as totals always are.
        """
        reductions = tuple(h for h in self.outputs if reduces_rows(h) and h.meta.size > 1)
        return () if self.template == "Outer" else reductions

    @property
    def columnwise(self) -> bool:
        """Whether a matrix of which blocks of rows are read is stored column by column."""
        return any(isinstance(s, Product) and s.columnwise for s in self.stages)

    @property
    def shape(self) -> tuple[int, ...]:
        """The largest iteration space of a stage."""
        spaces = [s.shape if isinstance(s, Kernel) else _iteration_space(s) for s in self.stages]
        return max(spaces, key=prod)


def _iteration_space(product: Product) -> tuple[int, ...]:
    """Return the iteration space of the loop nest of a product."""
    if product.form == PAIRS:
        return product.hop.meta.shape
    if product.compressed:
        return product.hop.meta.shape if product.form == "dot" else product.vector.meta.shape
    shape = product.matrix.meta.shape
    return shape[::-1] if product.transposed else shape


@dataclass(frozen=True, slots=True)
class WindowKernel:
    """Stencil stages that are run one after the other on blocks of rows, with overlapping reads between them.

    `views` are slices of intermediate values. Every row of the results needs as many rows of a stage as its
    entry in `rates` says. A stage over more rows than that begins with the rows that later stages read beyond
    their own, and carries as many from block to block. `axes` are those of a `RowKernel`.
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
        """The iteration space of the results."""
        return self.stages[-1].shape

    @property
    def intermediates(self) -> tuple[Hop, ...]:
        """The values that one stage computes for a later one."""
        return tuple(h for s in self.stages[:-1] for h in s.outputs)

    @property
    def rows_per_result(self) -> dict[Hop, int]:
        """The number of rows of every value that one row of the results needs."""
        rows: dict[Hop, int] = {}
        for stage, rate in zip(self.stages, self.rates, strict=True):
            rows |= {h: max(rate, rows.get(h, 0)) for h in (*stage.inputs, *stage.outputs)}
        return rows

    def lookahead_rows(self, resize: Callable[[tuple[int, ...]], tuple[int, ...]] = tuple) -> int:
        """Return the largest number of rows that a stage computes beyond those of the results."""
        rows = resize(self.shape)[0]
        return max(resize(s.shape)[0] - n * rows for s, n in zip(self.stages, self.rates, strict=True))


Step = Kernel | RowKernel | WindowKernel | Call


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps in execution order; `outputs` are the roots, in the order of the request."""

    steps: tuple[Step, ...]
    outputs: tuple[Hop, ...]


@dataclass(frozen=True, slots=True)
class Schedule:
    """How a kernel is run: `threads` (0 = all), `unroll` vectors per step, `nontemporal` output stores.

    `delayed`: the one result may overwrite an operand, as stores lag behind loads by a distance that the
    geometry gives. `crosswise`: rows may be so short that several of them fill a vector. `part`: vectors use
    one in `part` of the processor's lanes. `ahead`: prefetch distance in bytes, 0 for the default.
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

    `mode`: "cell" (no aggregate), "full" (aggregate over everything, by the flat index), "rows" (aggregate
    over the last dimension, one result per row), "cols" (aggregate over the first dimension), "tally" (sums
    by label). `ndim` counts merged dimensions. `inner` has one letter per array operand (array inputs, then
    array outputs, in kernel order): "c" contiguous in the last dimension, "b" broadcast there (stride 0), "s"
    any other stride, "t" a table, such as the results of a "tally"; the geometry has the number of their
    elements as strides.

    "full" with all arrays in flat order has one dimension and the letters "c", aggregates "b". Else the
    dimensions are those that all arrays agree on, and an array has "f" if it is in flat order (all results
    are), "r" if it is one row of contiguous elements that is repeated (stride 0 in every dimension but the
    last), or "c", "b", "s" as above, with any strides further out.
    """

    mode: str
    ndim: int
    inner: str


def crosswise_limit(kernel: Kernel, form: Form) -> int:
    """Return the greatest row length for which elements of several rows are to fill one vector; 0 for never.

    Shorter rows fill no vector, or leave a remainder, which costs most where functions take long.
    """
    if form.ndim < 2 or form.mode not in ("cell", "rows"):
        return 0
    if form.mode == "rows":
        return MAX_SHORT_SUM
    return MAX_SHORT_FUNCTION if any(h.op.transcendental for h in kernel.body) else MAX_SHORT_CELL


@dataclass(frozen=True, slots=True)
class Geometry:
    """Sizes and byte strides of one binding: `dims`, and for each array operand its strides over them.

    `alias_distance` is for delayed stores: the greatest distance in bytes between an element and the operands
    it overwrites.
    """

    dims: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]
    alias_distance: int = 0


class Executable(Protocol):
    """A compiled kernel: size-generic machine code."""

    @property
    def text(self) -> str:
        """The source text it was compiled from."""
        ...

    def template(self, geometry: Geometry, more: bool = False) -> bytes:
        """Return the argument block for `launch`, complete but for the operands.

        With `more` results hold a partial reduction of earlier rows, and those of a form "cols" are added to
        it.
        """
        ...

    def scratch(self, geometry: Geometry) -> int:
        """Return the bytes of scratch memory that a run needs beside its results."""
        ...


class Backend(Protocol):
    """The protocol of code generators."""

    name: str
    templates: tuple[str, ...]

    def supports(self, hop: Hop) -> str | None:
        """Return None if `hop` (cell, aggregate, product) can be in a kernel's body, else the reason."""
        ...

    def compile(self, kernel: Kernel, form: Form, schedule: Schedule) -> Executable:
        """Return machine code for `kernel` in layout `form`, from the cache where possible."""
        ...

    def nest(self, nest: Any, threads: int, *, steps: Mapping[str, tuple[int, ...]]) -> Any:
        """Return machine code for a loop nest (`jitla.loopir`), run on up to `threads` threads.

        `steps` are the strides of its inputs and outputs.
        """
        ...

    def assembly(self, text: str) -> str:
        """Return the assembly language that the source text of an executable is compiled to."""
        ...

    def product(
        self, form: str, dtype: np.dtype, columns: int
    ) -> Callable[[int, int, int, int], bytes]:
        """Return a function that builds the argument block of a product.

        Its arguments are the number of rows, their length and two byte strides. The other operand has
        `columns`, and rows that are the last stride apart. The form "pack" copies strided rows of `columns`
        elements into contiguous memory: its strides are those between rows and between columns.
        """
        ...

    def wide(self, dtype: np.dtype, fetches: bool = False) -> Callable[[Tile], bytes]:
        """Return a function that builds the argument block of a product with a wide matrix.

        `fetches`: rows come from memory and are prefetched.
        """
        ...

    def pairs(self, dtype: np.dtype, pairs: Pairs) -> Callable[[Pairs], bytes]:
        """Return a function that builds the argument block of products of small matrices like `pairs`."""
        ...

    def compressed(
        self, form: str, dtype: np.dtype, index: np.dtype, columns: int
    ) -> Callable[[SparseProduct], bytes]:
        """Return a function that builds the argument block of a product of compressed rows.

        They are multiplied with `columns` vectors.
        """
        ...

    def stored(self, threads: int) -> Any:
        """Return the operators on stored positions, on up to `threads` threads; 0 for the default number."""
        ...

    def rows(
        self, scalars: Sequence[np.dtype | None], stages: Sequence[BlockStage],
        combines: Sequence[Combine], cut: Blocking, threads: int, nanoseconds: float,
    ) -> bytes:
        """Return the argument block for `launch` that runs stages on blocks of rows.

        `scalars` are the dtypes of the scalars among the operands, None for arrays.
        """
        ...

    @property
    def launch(self) -> Callable[..., int]:
        """`launch(template, *operands)`: run a kernel on ndarrays and scalars, return the FP flags raised."""
        ...


Key = tuple[Any, ...]


def structure(plan: Plan) -> dict[str, int]:
    """Count the steps of `plan` by template."""
    count = Counter("Call" if isinstance(s, Call) else s.template for s in plan.steps)
    names = ("Cell", "MAgg", "Row", "Outer", "Window", "Call")
    return {name: count[name] for name in names if name in ("Cell", "MAgg", "Call") or count[name]}


def structure_key(kernel: Kernel) -> Key:
    """Return a key of all that the code of `kernel` depends on besides form and schedule, without sizes."""
    number: dict[Hop, int] = {}
    key: list[Any] = [kernel.template]
    for hop in kernel.inputs:
        number[hop] = len(number)
        kind = hop.attr("bits") if hop.op.name == "const" else hop.meta.shape == ()
        key.append((kind, hop.meta.dtype.str))
    for hop in kernel.body:
        number[hop] = len(number)
        attrs = () if hop.op.kind is Kind.AGG else tuple((k, str(v)) for k, v in hop.attrs)
        key.append((hop.op.name, hop.meta.dtype.str, attrs, tuple(number[i] for i in hop.inputs)))
    key.append(tuple(number[h] for h in kernel.outputs))
    return tuple(key)


def format_plan(plan: Plan) -> str:
    """Return `plan` as text: one line per step, the body of each kernel indented below it."""
    inside = {h for s in plan.steps for h in (s.outputs if isinstance(s, Call) else s.body)}
    names: dict[Hop, str] = {}
    for hop in topo(plan.outputs):
        names[hop] = _leaf_name(hop) if hop not in inside else f"%{len(names)}"
    lines: list[str] = []
    kernels = 0
    for step in plan.steps:
        if isinstance(step, (Kernel, RowKernel, WindowKernel)):
            lines += _kernel_lines(f"K{kernels}", step, names)
            kernels += 1
        else:
            reason = f"   # {step.reason}" if step.reason else ""
            lines.append(f"call  {_expression(step.hop, names)}{reason}")
    lines.append("return " + ", ".join(names[r] for r in plan.outputs))
    return "\n".join(lines)


def _kernel_lines(title: str, kernel: Kernel | RowKernel | WindowKernel, names: dict[Hop, str]) -> list[str]:
    shape = "x".join(map(str, kernel.shape))
    reads = ", ".join(names[h] for h in kernel.inputs)
    writes = ", ".join(names[h] for h in kernel.outputs)
    head = f"{title} {kernel.template} {shape}  ({reads}) -> ({writes})"
    return [head, *("  " + _expression(h, names) for h in kernel.body)]


def _expression(hop: Hop, names: dict[Hop, str]) -> str:
    arguments = [names[i] for i in hop.inputs] + [f"{k}={v}" for k, v in hop.attrs]
    shape = "x".join(map(str, hop.meta.shape)) or "scalar"
    return f"{names[hop]} = {hop.op.name}({', '.join(arguments)})  {shape} {hop.meta.dtype}"


def _leaf_name(hop: Hop) -> str:
    if hop.op.name == "const":
        return repr(const_value(hop).item())
    return f"${hop.attr('slot')}" if hop.op.name == "leaf" else f"?{hop.op.name}"
