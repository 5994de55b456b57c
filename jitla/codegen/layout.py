"""How a kernel walks its operands: the machine's vectors, operand records, words of the block.

Knows: operand letters, strides, the argument block. Must not know: what is computed per element.
Receives kernel, form and geometry; returns `Operand` records and block words.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jitla.fusion import Form, Geometry, Kernel
from jitla.hops import Hop, Kind

HEADER = 8  # words before the operands
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
    """One word of the block: `letter` is c, b, s or v (scalar value); `role` is in, out or agg."""

    word: int
    hop: Hop
    letter: str
    role: str

    @property
    def dtype(self) -> np.dtype:
        """Element type in memory."""
        return self.hop.meta.dtype

    @property
    def walks(self) -> bool:
        """True if the operand has one element per iteration of the last dimension."""
        return self.letter in "cs"


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
        role = "agg" if hop.op.kind is Kind.AGG else "out"
        found.append(Operand(len(found), hop, next(letters), role))
    return tuple(found)


# Words of a kernel's geometry, after the kinds: INNER elements of the last dimension, BLOCKS units
# it is cut into, of STEP elements each; DEPTH of the parallel subtrees; ROWS reduced by "cols";
# then the inner byte stride of every operand, the outer sizes, the outer strides per array operand.
INNER, STEP, BLOCKS, DEPTH, ROWS, GEOMETRY = range(6)


def outer_rank(form: Form) -> int:
    """Return how many dimensions a unit number is split into, besides the blocks of the last one."""
    if form.mode == "full":
        return 0
    return form.ndim - 2 if form.mode == "cols" else form.ndim - 1


def geometry_words(
    ops: Sequence[Operand], form: Form, geometry: Geometry, head: Sequence[int]
) -> list[int]:
    """Return the geometry words; `head` are the first of them, in the order above."""
    strides = iter(geometry.strides)
    table = {op.word: next(strides) for op in ops if op.letter != "v"}
    skip = 1 if form.mode == "cols" else 0
    rank = outer_rank(form)
    words = list(head)
    words += [table[op.word][-1] if op.letter != "v" else 0 for op in ops]
    words += [table[op.word][0] if op.letter != "v" else 0 for op in ops] if skip else []
    words += geometry.dims[skip : skip + rank]
    for op in ops:
        if op.letter != "v":
            words += table[op.word][skip : skip + rank]
    return words


def steps_at(ops: Sequence[Operand]) -> int:
    """Return the geometry word where the inner strides begin."""
    return GEOMETRY


def row_steps_at(ops: Sequence[Operand]) -> int:
    """Return the geometry word where the strides over the reduced rows begin ("cols" only)."""
    return GEOMETRY + len(ops)


def outer_at(ops: Sequence[Operand], form: Form) -> int:
    """Return the geometry word where the outer sizes begin."""
    return GEOMETRY + len(ops) * (2 if form.mode == "cols" else 1)


def pack_block(
    ops: Sequence[Operand], entry: int, finish: int, units: int, grain: int, scratch: int,
    words: Sequence[int],
) -> bytes:
    """Return the argument block with empty operands."""
    n = len(ops)
    kinds = [int(op.letter == "v") for op in ops]
    size = HEADER + 2 * n + len(words)
    head = [entry, size, units, grain, finish, scratch, 0, n]
    return struct.pack(f"<{size}q", *head, *([0] * n), *kinds, *words)
