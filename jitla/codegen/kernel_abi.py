"""The binary interface of kernels: layouts of operands, sizes, and units of work."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from jitla.classes import dataclass
from jitla.codegen.ir import part_of
from jitla.codegen.target import Target
from jitla.fusion import Form, Geometry, Kernel, Schedule
from jitla.hops import Hop, Kind

BYTE = np.dtype(np.uint8)
HEADER = 8  # words before the operands
# Kinds of operands: where an array's elements lie, a scalar, where a scalar larger than a word lies.
ARRAY, VALUE, ADDRESS = range(3)
#: Bit of block word 7 that asks for the GIL to be released whatever the number of units.
RELEASE_GIL = 1 << 32
# Attributes of functions that run once per thousands of elements, and of those that many others call. For
# these `optnone` would spare a tenth of compiling, and cost sums of short rows and columns a third of speed.
COLD, PLAIN = "cold ", "noinline "
BLOCK = 4096  # elements of the last dimension that make one unit, when it is longer


@dataclass(frozen=True, slots=True)
class Operand:
    """One word of the block: `letter` is one of `Form`'s or v (scalar value).

    `role` is in, out, agg or tally.
    """

    word: int
    hop: Hop
    letter: str
    role: str

    @property
    def dtype(self) -> np.dtype:
        """Element type in memory; aggregates of bools are held as bytes of 0 and 1."""
        found = self.hop.meta.dtype
        return BYTE if self.role == "agg" and found == np.dtype(bool) else found

    @property
    def aside(self) -> bool:
        """True if it is a scalar larger than a word, which then holds its address."""
        return self.kind == ADDRESS

    @property
    def kind(self) -> int:
        """What the launcher puts into the word."""
        return kind_of(self.dtype if self.letter == "v" else None)

    @property
    def walks(self) -> bool:
        """True if the operand has one element per iteration of the last dimension."""
        return self.letter in "cs"


def kind_of(scalar: np.dtype | None) -> int:
    """Return what the launcher puts into the word of an array (None) or of a `scalar` of this dtype."""
    if scalar is None:
        return ARRAY
    return ADDRESS if scalar.itemsize > 8 else VALUE


def is_const(hop: Hop) -> bool:
    """Tell whether `hop` is a literal of the code."""
    return hop.op.name == "const"


def operands(kernel: Kernel, form: Form) -> tuple[Operand, ...]:
    """Return the operands of `kernel` in launch order."""
    letters = iter(form.inner)
    found: list[Operand] = []
    for hop in kernel.inputs:
        if not is_const(hop):
            letter = "v" if hop.meta.shape == () else next(letters)
            found.append(Operand(len(found), hop, letter, "in"))
    for hop in kernel.outputs:
        role = {Kind.AGG: "agg", Kind.TALLY: "tally"}.get(hop.op.kind, "out")
        letter = next(letters)
        if letter == "b" and not (role == "agg" and form.mode != "cols"):
            letter = "s"  # an output without extent: its stride is a number like any other
        found.append(Operand(len(found), hop, letter, role))
    return tuple(found)


# Words of a kernel's geometry, after the kinds: INNER elements of the last dimension, BLOCKS units
# it is cut into, of STEP elements each ("full": INNER elements in all, STEP of them per row); DEPTH
# of the parallel subtrees ("full") or BATCH of rows taken at once ("cols"); ROWS reduced by "cols";
# then the inner byte stride of every operand, its stride over the reduced rows ("cols" only),
# the outer sizes, and the outer strides of every array operand; at the end whether results hold what
# rows before these came to, and rows are in the cache, if it is AGAIN ("cols" only).
INNER, STEP, BLOCKS, DEPTH, ROWS, GEOMETRY = range(6)
BATCH = DEPTH
AGAIN = 2


@dataclass(frozen=True, slots=True)
class KernelLoop:
    """A kernel in one layout, ready to be written: `lanes` elements per vector.

    Transcendentals are written once, as functions, if it `calls`.
    """

    kernel: Kernel
    form: Form
    schedule: Schedule
    target: Target
    operands: tuple[Operand, ...]
    lanes: int
    calls: bool = False

    @property
    def polynomials(self) -> bool:
        """True if a cell of the kernel is a transcendental function."""
        return any(h.op.transcendental for h in self.kernel.body)

    @property
    def rank(self) -> int:
        """How many dimensions a unit or row number is split into: all but the last, or reduced."""
        return self.form.ndim - (2 if self.form.mode == "cols" else 1)

    @property
    def gathers(self) -> bool:
        """True if the flat order of a total is not that of all operands in memory."""
        letters = {o.letter for o in self.operands if o.role == "in"}
        return self.form.mode == "full" and (self.form.ndim > 1 or not letters <= {"c", "v", "t"})

    @property
    def aggregates(self) -> tuple[Operand, ...]:
        """Operands that receive an aggregate."""
        return tuple(o for o in self.operands if o.role == "agg")

    @property
    def slot(self) -> int:
        """Bytes that each aggregate has in tables of partial results."""
        return max((8, *(o.dtype.itemsize for o in self.aggregates)))

    @property
    def geometry_at(self) -> int:
        """Word of the block where the geometry begins."""
        return HEADER + 2 * len(self.operands)

    @property
    def row_steps_at(self) -> int:
        """Geometry word where the strides over the reduced rows begin ("cols" only)."""
        return GEOMETRY + len(self.operands)

    @property
    def outer_at(self) -> int:
        """Geometry word where the outer sizes begin."""
        return GEOMETRY + len(self.operands) * (2 if self.form.mode == "cols" else 1)

    @property
    def more_at(self) -> int:
        """Geometry word that tells whether rows were added up before ("cols" only)."""
        arrays = sum(o.letter != "v" for o in self.operands)
        return self.outer_at + self.rank * (arrays + 1)


def geometry_words(
    loop: KernelLoop, geometry: Geometry, head: Sequence[int], more: int = 0
) -> list[int]:
    """Return the geometry words; `head` are the first of them, in the order above, `more` the last."""
    strides = iter(geometry.strides)
    none = (0,) * loop.form.ndim
    table = [none if op.letter == "v" else next(strides) for op in loop.operands]
    skip = int(loop.form.mode == "cols")
    words = [*head, *(t[-1] for t in table)]
    if skip:
        words += [t[0] for t in table]
    words += geometry.dims[skip : skip + loop.rank]
    for op, t in zip(loop.operands, table, strict=True):
        if op.letter != "v":
            words += t[skip : skip + loop.rank]
    return [*words, int(more)] if skip else words


def pack_block(
    loop: KernelLoop, entry: int, finish: int, cut: tuple[int, int, int], flags: int, words: Sequence[int]
) -> bytes:
    """Return the argument block with empty operands; `cut` is units, grain, bytes of scratch."""
    n = len(loop.operands)
    kinds = [op.kind for op in loop.operands]
    size = HEADER + 2 * n + len(words)
    units, grain, scratch = cut
    head = [entry, size, units, grain, finish, scratch, 0, n | flags]
    return struct.pack(f"<{size}q", *head, *([0] * n), *kinds, *words)


def hints(nanoseconds: float, release: bool, threads: int = 0) -> int:
    """High bits of block word 7: the estimated time, whether to `release` the GIL at any rate.

    At most `threads` threads take part, 0 for as many as is usual. A block without hints (0) is run
    as if it were long.
    """
    microseconds = min(max(int(nanoseconds / 1000), 1), (1 << 21) - 1)
    return min(threads, 511) << 54 | microseconds << 33 | (RELEASE_GIL if release else 0)


def word(lines: list[str], name: str, base: str, index: int, kind: str = "i64") -> str:
    """Write the load of word `index` behind `base` and return its name."""
    lines.append(f"  %{name}.at = getelementptr i64, ptr {base}, i64 {index}")
    lines.append(f"  %{name} = load {kind}, ptr %{name}.at, align 8")
    return f"%{name}"


def copy_operands(lines: list[str], loop: KernelLoop) -> None:
    """Write the copy of the block's operands to %ops, whose pointers `seek` then moves."""
    for op in loop.operands:
        value = word(lines, f"base{op.word}", "%words", op.word)
        lines.append(f"  %op{op.word} = getelementptr i64, ptr %ops, i64 {op.word}")
        lines.append(f"  store i64 {value}, ptr %op{op.word}, align 8")
    at, arrays = loop.outer_at, [o for o in loop.operands if o.letter != "v"]
    for d in range(loop.rank):
        word(lines, f"size{d}", "%geo", at + d)
        for k, op in enumerate(arrays):
            word(lines, f"step{op.word}.{d}", "%geo", at + loop.rank * (k + 1) + d)


def seek(lines: list[str], loop: KernelLoop, row: str) -> None:
    """Write the move of %ops to outer index number `row`."""
    if not loop.rank:
        return
    rest = row
    for d in range(loop.rank - 1, 0, -1):
        lines.append(f"  %at{d} = urem i64 {rest}, %size{d}")
        lines.append(f"  %rest{d} = udiv i64 {rest}, %size{d}")
        rest = f"%rest{d}"
    lines.append(f"  %at0 = add i64 {rest}, 0")
    for op in loop.operands:
        if op.letter == "v":
            continue
        total = f"%base{op.word}"
        for d in range(loop.rank):
            name = f"%move{op.word}.{d}"
            lines.append(f"  {name}.m = mul i64 %at{d}, %step{op.word}.{d}")
            lines.append(f"  {name} = add i64 {total}, {name}.m")
            total = name
        lines.append(f"  store i64 {total}, ptr %op{op.word}, align 8")


MAX_LANES = 64
SHORT = 64  # elements of rows
SHORTEST = {"exp"}  # transcendentals of few instructions
# Those whose instructions mostly wait for the one before: two registers of AVX-512 at a time instead of one
# take 1.1 to 1.35 times less, alone; those of erf and log1p do not fit then, and take more.
CHAINED = {"arccosh", "arcsinh", "float_power", "log_expit", "logaddexp", "logaddexp2", "power"}
LINE = 64  # bytes
COLUMNS = 1024  # most columns of one unit
STRIP = 2048  # bytes of a row of the smallest unit: of less, threads would fetch each other's cache lines
WIDE, HIGH = 512, 128  # columns and rows of a tile: pages in use are few enough, and much of each is used
KEPT = 384  # lines that the first-level cache holds besides others,
PAGE, MEETING = 4096, 32  # bytes apart: these many of them do not meet in the same places of it


def has_float_sum(kernel: Kernel) -> bool:
    """Tell whether a sum of `kernel` depends on the order of its terms."""
    return any(h.op.name == "sum" and h.meta.dtype.kind in "fc" for h in kernel.outputs)


def accumulators(kernel: Kernel) -> int:
    """Return how many partial sums NumPy keeps: eight, and it counts both parts of complex numbers."""
    sums = [h for h in kernel.outputs if h.op.name == "sum"]
    return 4 if any(h.meta.dtype.kind == "c" for h in sums) else 8


def lay_out(kernel: Kernel, form: Form, schedule: Schedule, target: Target) -> KernelLoop:
    """Choose the vector length of `kernel`."""
    hops = (*kernel.inputs, *kernel.body)
    widest = max(_width(h) for h in hops)
    # Two vectors of a polynomial at a time: one alone leaves the processor waiting for its chain; four
    # of the shortest, whose values then still fit into registers.
    names = {h.op.name for h in kernel.body if h.op.transcendental}
    chains = 4 if names == SHORTEST and widest == 8 else 2 if names else 1
    if form.mode == "cell" and names & CHAINED and "avx512f" in target.features:
        chains = 4
    if chains == 1 and form.mode in ("cell", "tally"):
        # Whole vectors of the narrow operands, as far as the wide ones then fit into registers.
        narrowest = min(_width(h) for h in (*kernel.inputs, *kernel.outputs) if h.meta.shape)
        chains = min(widest // narrowest, 8 if len(kernel.body) <= 3 else 4)
        if form.ndim > 1 and kernel.shape[-1] >= SHORT and "s" not in form.inner:
            chains = max(chains, 2)  # rows of such kernels are read in many places: fewer turns
    lanes = max(target.lanes(widest) * max(chains, schedule.unroll) // schedule.part, 1)
    if form.mode in ("full", "rows"):
        # NumPy's pairwise sum keeps eight accumulators; without one more chains hide the latency.
        # Rows shorter than a few of these would be left to the loop over single elements.
        many = 4 if form.mode == "full" or kernel.shape[-1] >= SHORT else 1
        usual = accumulators(kernel) if has_float_sum(kernel) else many * target.lanes(widest)
        lanes = usual * schedule.unroll  # more partial sums are added up in another order
    ops = operands(kernel, form)
    return KernelLoop(kernel, form, schedule, target, ops, min(lanes, MAX_LANES))


def _width(hop: Hop) -> int:
    """Return the bytes of one lane."""
    return part_of(hop.meta.dtype).itemsize


def column_step(inner: int, workers: int, itemsize: int) -> int:
    """Return how many columns make a unit: as many units as share the work evenly."""
    blocks = -(-inner // COLUMNS)
    blocks += -blocks % workers
    blocks = max(1, min(blocks, inner * itemsize // STRIP))
    step, line = -(-inner // blocks), max(1, LINE // itemsize)
    return max(1, min(step + -step % line, inner))


def is_tiled(loop: KernelLoop) -> bool:
    """Tell whether cells may read an operand across its rows."""
    crossed = any(o.role == "in" and o.letter == "s" for o in loop.operands)
    return loop.form.mode == "cell" and loop.rank > 0 and crossed and not loop.polynomials \
        and not loop.schedule.delayed


def tile_sizes(loop: KernelLoop, geometry: Geometry) -> tuple[int, int, int]:
    """Return columns and rows of a tile, and columns of the smaller ones.

    If no operand's neighbours lie in different rows of the walk, or if the lines that a row reads stay near
    until the next one, tiles are whole rows, or parts of one.
    """
    strides = iter(geometry.strides)
    walked = [(o, next(strides)) for o in loop.operands if o.letter != "v"]
    columns = max(geometry.dims[-1], 1)
    turned = [s[-1] for o, s in walked if o.role == "in" and 0 < abs(s[-2]) < abs(s[-1])]
    if not any(columns > (MEETING if s % PAGE == 0 else KEPT) for s in turned):
        step = BLOCK if columns >= 2 * BLOCK else columns
        return step, max(1, BLOCK // step), step
    narrow = max(loop.lanes, *map(line_of, (o for o in loop.operands if o.role == "out")))
    return min(max(WIDE, narrow), columns), HIGH, narrow


def line_of(op: Operand) -> int:
    """Return how many elements share a line."""
    return LINE // op.dtype.itemsize


def calls(width: int, length: str, start: str) -> str:
    """Return lines that run `length` elements from `start`: vectors, then one by one.

    The code goes on in block %ready.
    """
    return f"""  %vectors = lshr i64 {length}, {width.bit_length() - 1}
  %rest = and i64 {length}, {width - 1}
  %whole = sub i64 {length}, %rest
  %behind = add i64 {start}, %whole
  %wide = icmp ne i64 %vectors, 0
  br i1 %wide, label %run, label %ran
run:
  call void @span(ptr %ops, ptr %steps, i64 {start}, i64 %vectors, ptr null)
  br label %ran
ran:
  %odd = icmp ne i64 %rest, 0
  br i1 %odd, label %tail, label %ready
tail:
  call void @tail(ptr %ops, ptr %steps, i64 %behind, i64 %rest, ptr null)
  br label %ready
ready:
"""


def entry(loop: KernelLoop, how: str = "") -> list[str]:
    """Return the first lines of a kernel: %words, %geo, %steps, %ops with the operands."""
    n = len(loop.operands)
    how = how or (PLAIN if loop.rank else COLD)
    lines = [
        f"define void @k(ptr %block, i64 %begin, i64 %end) {how}{{", "entry:",
        f"  %ops = alloca [{n} x i64], align 16",
        "  %words = getelementptr i64, ptr %block, i64 8",
        f"  %geo = getelementptr i64, ptr %block, i64 {loop.geometry_at}",
        "  %steps = getelementptr i64, ptr %geo, i64 5",
    ]
    word(lines, "inner", "%geo", INNER)
    word(lines, "step", "%geo", STEP)
    word(lines, "blocks", "%geo", BLOCKS)
    copy_operands(lines, loop)
    return lines


def block_of_unit(lines: list[str], loop: KernelLoop) -> None:
    """Write the loop head over units: moves %ops, sets %from and %len in the last dimension."""
    lines += [
        "  %some = icmp ult i64 %begin, %end", "  br i1 %some, label %unit, label %exit", "unit:",
        "  %u = phi i64 [ %begin, %entry ], [ %u.next, %next ]",
    ]
    cut = "%u"
    if loop.rank:
        lines += ["  %row = udiv i64 %u, %blocks", "  %cut = urem i64 %u, %blocks"]
        seek(lines, loop, "%row")
        cut = "%cut"
    lines += [
        f"  %from = mul i64 {cut}, %step", "  %left = sub i64 %inner, %from",
        "  %len = call i64 @llvm.umin.i64(i64 %left, i64 %step)",
    ]


NEXT = """  br label %next
next:
  %u.next = add i64 %u, 1
  %again = icmp ult i64 %u.next, %end
  br i1 %again, label %unit, label %exit
exit:
"""
