"""How a kernel walks its operands: the machine's vectors, operand records, words of the block.

Knows: operand letters, strides, the argument block. Must not know: what is computed per element.
Receives kernel, form and geometry; returns `Operand` records and block words.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from jitla.classes import dataclass
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
PART = ";;; a part of level {}\n"  # begins a further module in a text, with LLVM's level for it
BLOCK = 4096  # elements of the last dimension that make one unit, when it is longer


@dataclass(frozen=True, slots=True)
class Target:
    """The processor code is made for: `triple`, `cpu`, `features` (names), native vector bytes."""

    triple: str
    cpu: str
    features: frozenset[str]
    vector_bytes: int

    @property
    def feature_string(self) -> str:
        """Features as LLVM wants them."""
        return ",".join("+" + f for f in sorted(self.features))

    def lanes(self, itemsize: int) -> int:
        """Elements of `itemsize` bytes in one native vector."""
        return self.vector_bytes // itemsize


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
class Loop:
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
    loop: Loop, geometry: Geometry, head: Sequence[int], more: int = 0
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
    loop: Loop, entry: int, finish: int, cut: tuple[int, int, int], flags: int, words: Sequence[int]
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


def copy_operands(lines: list[str], loop: Loop) -> None:
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


def seek(lines: list[str], loop: Loop, row: str) -> None:
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
