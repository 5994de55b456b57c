"""Plans: kernels, calls, schedules, the records of row kernels, and the protocol of backends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple, Protocol

import numpy as np

from jitla.classes import dataclass
from jitla.hops import Hop, Kind, const_value, topo

BLOCK_BYTES = 24 << 10  # of all rows of a block: they stay in the first-level cache
LEAST_HEIGHT = 8  # rows of a block, however long they are
TURN_BYTES = 256 << 10  # of all rows of a block, if threads take turns at its end: they stay in the second
TURNS = 8  # such blocks at least, for threads to share
WIDE_BYTES = 192 << 10  # of all rows of a block that meet a wide matrix: they stay in the second level
WIDE_ROWS = 256  # of such a block; a fourth of all rows at most, for threads to share
TALL_BYTES = 256 << 10  # of all rows of a block with a matrix that lies column by column: so do these
TALL_ROWS = 128, 4096  # of such a block
LONG_BYTES, LONG_ROWS = 4 << 20, 96  # of long rows: so many of them, while they stay in the third
WIDE_LEAST = 16  # rows that a panel of the matrix has to meet
PACKED_BYTES = 768 << 10  # of all rows of such a block, if panels are made once: lower ones do, too
PACKED_ROWS = 4 * WIDE_LEAST  # from so many rows on a matrix is copied into panels once,
MAX_PANELS = 32 << 20  # if these take no more bytes
PANEL_BYTES = 192  # of a panel's rows at most
WINDOWS, LEAST_WINDOWS = 16, 8  # blocks for threads to share, where rows are many; of fewer there is no use
MOST_KEPT = 8 << 20  # bytes that lie between stages: more is no longer near
WINDOW_BYTES = 512 << 10  # of all rows of a block with a window that slides: they stay in the second level
MAX_UNITS = 64  # so many partial results at most, whatever the number of threads
UNIT_BYTES = 256 << 10  # of all rows of a unit at least,
SHARE = 8  # and so many times what a unit adds up or copies before it begins
MIN_STREAMED_BYTES = 32 << 20  # results this large are written around the caches

#: What a stage's operand is: `OPERAND` of the row kernel number `value`, which moves `step` bytes per
#: block of rows (scalars and what all rows read move 0), from byte `other` on; `SCRATCH`, `value` bytes
#: into the thread's memory; `PARTIAL`, what the unit has added up of result number `value`, at `other`
#: of its partial results; `SHARED`, `value` bytes into memory that all threads read.
OPERAND, SCRATCH, PARTIAL, SHARED = range(4)
#: When a stage is run: on every block of rows, on the first one of every unit, once by one of the threads,
#: before all others.
EVERY_BLOCK, FIRST_BLOCK, BEFORE_BLOCKS = range(3)
FROM_PANELS, PACK_ONLY = 1, 2  # what is done with panels


def panel_bytes(matrix: tuple[int, ...], itemsize: int) -> int:
    """Return the bytes that a matrix takes in panels at most, the last of which may not be full."""
    depth, columns = matrix
    return depth * (columns * itemsize + PANEL_BYTES) + 2 * PANEL_BYTES


def is_packed_once(rows: int, nbytes: int) -> bool:
    """Tell whether matrices that all of `rows` rows meet are copied into panels, of so many bytes, once."""
    return 0 < nbytes <= MAX_PANELS and rows >= PACKED_ROWS


def block_height(
    row_bytes: int, rows: int, wide: bool = False, turns: bool = False, packed: bool = False,
    columnwise: bool = False,
) -> int:
    """Return how many of `rows` rows, of so many bytes in all values together, make a block.

    It is `wide` if its rows meet more vectors than stay in registers, all of them `packed` if these lie in
    panels; with `turns` blocks are added up one after the other; `columnwise` if a matrix lies so.
    """
    height = max(BLOCK_BYTES // max(row_bytes, 1), LEAST_HEIGHT)
    if turns:
        height = max(min(TURN_BYTES // max(row_bytes, 1), rows // TURNS), height)
    if columnwise:
        height = min(max(TALL_BYTES // max(row_bytes, 1), TALL_ROWS[0]), TALL_ROWS[1])
    if wide:
        long = min(LONG_BYTES // max(row_bytes, 1), LONG_ROWS)
        height = max(WIDE_BYTES // max(row_bytes, 1), long, WIDE_LEAST)
        if packed:
            height = max(PACKED_BYTES // max(row_bytes, 1), WIDE_LEAST)
        height = min(height, WIDE_ROWS, max(rows // 4, WIDE_LEAST))
    return min((height + LEAST_HEIGHT // 2) // LEAST_HEIGHT * LEAST_HEIGHT, rows)


def window_height(row_bytes: int, rows: int, ahead: int) -> int:
    """Return how many of `rows` rows make a block whose stages are read up to `ahead` rows further on."""
    height = WINDOW_BYTES // max(row_bytes, 1)
    if row_bytes * rows > WINDOW_BYTES:
        height = min(height, rows // WINDOWS)
    least = LEAST_HEIGHT if row_bytes <= WINDOW_BYTES else 1
    return min(max(height & -LEAST_HEIGHT, least, 2 * ahead), rows)


def has_windows(row_bytes: int, kept_bytes: int, rows: int, ahead: int) -> bool:
    """Tell whether rows are many enough to be shared out in such blocks, and what a block keeps is small."""
    height = window_height(row_bytes, rows, ahead)
    shared = row_bytes * rows <= WINDOW_BYTES or rows >= LEAST_WINDOWS * height
    return shared and kept_bytes * (height + ahead) <= MOST_KEPT


def blocks_per_unit(blocks: int, block_bytes: int, aside: int) -> int:
    """Return how many blocks make a unit, which adds up or copies `aside` bytes of its own.

    Units are nearly alike, so that threads end together. It must not depend on the number of threads.
    """
    least = max(UNIT_BYTES, SHARE * aside) // block_bytes
    units = -(-blocks // min(max(-(-blocks // MAX_UNITS), least, 1), blocks))
    return -(-blocks // units)


class StageOperand(NamedTuple):
    """Where a stage finds one of its operands."""

    kind: int
    value: int
    step: int = 0
    other: int = 0


class Stage(NamedTuple):
    """A kernel on one block of rows: its block for whole ones, for the last one, and its operands.

    `once` says when it is run: those that are run before all others come first. With `first`, its block for
    the first rows of all, it goes on from what earlier rows came to: it is run in turn, as all behind it are.
    """

    whole: bytes
    last: bytes
    places: tuple[StageOperand, ...]
    once: int = EVERY_BLOCK
    first: bytes = b""


class Combine(NamedTuple):
    """A result added up over rows, of `size` bytes: a unit's begins with zeros, at `offset` of its own.

    `block` is the kernel ``operand = operand + partial``, which makes one of all units'. Of a square
    of so many `mirrored` rows only what is on and above the diagonal is added up; the rest is the same.
    """

    block: bytes
    operand: int
    offset: int
    size: int
    mirrored: int = 0
    itemsize: int = 8


class EntryShares(NamedTuple):
    """Operand number `starts` - 1, of so many bytes each, says where the entries of `rows` rows begin.

    Units of blocks of `height` rows have about as many entries; 0 if there are none.
    """

    starts: int = 0
    itemsize: int = 0
    height: int = 0
    rows: int = 0


class Blocking(NamedTuple):
    """How rows are shared out: blocks of rows, how many make a unit, memory slots and their bytes.

    `spare` is where in a slot the stages' own scratch memory begins. All threads have `shared` bytes.
    """

    blocks: int
    per_unit: int
    slots: int
    room: int
    spare: int
    part: int
    shared: int = 0
    shares: EntryShares = EntryShares()

    @property
    def units(self) -> int:
        """Number of units."""
        return -(-self.blocks // self.per_unit)


class Tile(NamedTuple):
    """A product of a block of rows with a matrix: sizes, and bytes between neighbours.

    Of the rows `step` and `along` them, of the matrix `down` and `across`, and between rows of results,
    whose columns lie in one run. With `adds` results are added to what is there; with `upper` those far
    below the diagonal are left out. If `panels` is `FROM_PANELS`, the columns of the matrix lie in
    panels, one behind the other; if it is `PACK_ONLY`, only these are made, where the results would lie.
    A `cold` matrix lies in memory, not in the cache.
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
    """A product of compressed rows: how many, their columns, `total` entries, `depth` vectors at once."""

    rows: int
    width: int
    total: int
    depth: int


class Pairs(NamedTuple):
    """Products of small matrices, m times k elements with k times n: `outer` times `inner` pairs.

    Bytes between neighbours of the `left` ones, and of the `right` ones: from pair to pair, outer and
    inner, from row to row, and from column to column. Results lie one behind the other.
    """

    outer: int
    inner: int
    sizes: tuple[int, int, int]
    left: tuple[int, int, int, int]
    right: tuple[int, int, int, int]


MAX_NARROW_COLUMNS = 63  # vectors that rows are multiplied with at once; more are met in panels

# Elements of rows that share vectors with rows beside them: of sums, cells that call functions, others.
SHORT, SHORT_OF_FUNCTIONS, SHORT_OF_CELLS = 7, 31, 3
ARG_REDUCTIONS = ("argmin", "argmax")  # forms of products that find where rows have their extremes
PAIRS = "pairs"  # the form of products of stacks of small matrices
#: Products of compressed rows and their forms; operands: entries, columns, where rows begin, vector.
COMPRESSED_FORMS = {"csr_vector": "dot", "csr_product": "dot", "csr_transposed_vector": "sum",
              "csr_transposed_product": "sum"}
COLUMNWISE_PREFIX = "upright-"  # prefix of the forms of products whose rows are stored column by column
ROWWISE_FORMS = ("scan", "join", *ARG_REDUCTIONS)  # those that make rows of rows, without a vector


@dataclass(frozen=True, slots=True)
class Kernel:
    """A loop over `shape` that reads `inputs`, evaluates `body` in order and stores `outputs`.

    `body` holds cell hops of exactly `shape` and aggregates of them; aggregates are outputs and are
    not read inside the kernel. `inputs` are broadcast to `shape`, except `gather_tables`. `template` is
    "Cell" when no output is an aggregate, else "MAgg"; "Tally" if all are sums by label.
    """

    template: str
    shape: tuple[int, ...]
    inputs: tuple[Hop, ...]
    body: tuple[Hop, ...]
    outputs: tuple[Hop, ...]


def gather_tables(body: Iterable[Hop]) -> frozenset[Hop]:
    """Return the operands of `body` that are no arrays over its space: elements anywhere may be read."""
    return frozenset(h.inputs[0] for h in body if h.op.kind is Kind.TAKE)


def data_inputs(hop: Hop) -> tuple[Hop, ...]:
    """Return the operands whose elements `hop` needs, not only their shape."""
    return () if hop.op.name == "count" else hop.inputs


def reduces_rows(hop: Hop) -> bool:
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
        if self.form in ROWWISE_FORMS:
            return tuple(dict.fromkeys(self.hop.inputs))
        return self.hop.inputs if self.compressed else (self.matrix, self.vector)

    @property
    def compressed(self) -> bool:
        """Whether only some elements of the matrix are there, row by row."""
        return self.hop.op.name in COMPRESSED_FORMS

    @property
    def columns(self) -> int:
        """With how many vectors rows are multiplied."""
        shape = self.vector.meta.shape if self.form not in (*ROWWISE_FORMS, PAIRS) else ()
        return shape[1] if len(shape) > 1 else 1

    @property
    def wide(self) -> bool:
        """Whether rows meet the vectors in panels, as these do not stay in the cache."""
        return self.columns > MAX_NARROW_COLUMNS and not self.compressed

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
        found = tuple(h for h in self.outputs if reduces_rows(h) and h.meta.size > 1)
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


def crosswise_limit(kernel: Kernel, form: Form) -> int:
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
        """Return machine code for a loop nest (`jitla.loopir`), run on up to `threads` threads.

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
    ) -> Callable[[SparseProduct], bytes]:
        """Return what makes the argument block of a product over compressed rows with so many `columns`."""
        ...

    def stored(self, threads: int) -> Any:
        """Return the operators at stored positions, on up to `threads` threads; 0: as is usual."""
        ...

    def rows(
        self, scalars: Sequence[np.dtype | None], stages: Sequence[Stage],
        combines: Sequence[Combine], cut: Blocking, threads: int, nanoseconds: float,
    ) -> bytes:
        """Argument block for `launch` that runs stages on blocks of rows.

        `scalars` are the dtypes of the scalars among the operands, None for arrays.
        """
        ...

    @property
    def launch(self) -> Callable[..., int]:
        """`launch(template, *operands)`: run a kernel on ndarrays and scalars; the flags it raised."""
        ...


Key = tuple[Any, ...]


def structure(plan: Plan) -> dict[str, int]:
    """Count the steps of `plan` by template."""
    count = Counter("Call" if isinstance(s, Call) else s.template for s in plan.steps)
    names = ("Cell", "MAgg", "Row", "Outer", "Window", "Call")
    return {name: count[name] for name in names if name in ("Cell", "MAgg", "Call") or count[name]}


def structure_key(kernel: Kernel) -> Key:
    """Return what the code of `kernel` depends on besides form and schedule: no size is in it."""
    number: dict[Hop, int] = {}
    words: list[Any] = [kernel.template]
    for hop in kernel.inputs:
        number[hop] = len(number)
        kind = hop.attr("bits") if hop.op.name == "const" else hop.meta.shape == ()
        words.append((kind, hop.meta.dtype.str))
    for hop in kernel.body:
        number[hop] = len(number)
        attrs = () if hop.op.kind is Kind.AGG else tuple((k, str(v)) for k, v in hop.attrs)
        words.append((hop.op.name, hop.meta.dtype.str, attrs, tuple(number[i] for i in hop.inputs)))
    words.append(tuple(number[h] for h in kernel.outputs))
    return tuple(words)


def format_plan(plan: Plan) -> str:
    """Write `plan` down: one line per step, the body of each kernel indented below it."""
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
    words = [names[i] for i in hop.inputs] + [f"{k}={v}" for k, v in hop.attrs]
    shape = "x".join(map(str, hop.meta.shape)) or "scalar"
    return f"{names[hop]} = {hop.op.name}({', '.join(words)})  {shape} {hop.meta.dtype}"


def _leaf_name(hop: Hop) -> str:
    if hop.op.name == "const":
        return repr(const_value(hop).item())
    return f"${hop.attr('slot')}" if hop.op.name == "leaf" else f"?{hop.op.name}"
