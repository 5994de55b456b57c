"""Bytes that a table of 256 names, as IR: many at once, by shuffles of vectors.

Knows: which processors shuffle bytes. Must not know: arrays, how many threads there are.
Receives a processor; returns a module with the entry @k.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jitla.codegen.indexing_code import (
    ENTRY,
    block_head,
    by_blocks,
    near_place,
    over_units,
    turns,
    within,
)
from jitla.codegen.layout import Target

__all__ = ["BYTES", "LOOKUP_UNIT", "Shuffle", "lookup_text", "shuffle_of"]

BYTES = 256  # that there are
LOOKUP_UNIT = 1 << 15
_ROW = 16  # bytes that a shuffle chooses from
_ROWS = 8  # rows for bytes of one half: a byte of the other one counts as negative
_TURN = 2  # vectors
_BYTE = np.dtype(np.uint8)
_ARGS = "ptr %table, ptr %index, ptr %out"


class Shuffle(NamedTuple):
    """An instruction: for every byte of a vector the one of its row of 16 that its low bits say.

    It gives 0 for bytes whose highest bit is set.
    """

    lanes: int
    name: str


_SHUFFLES = {
    "avx512bw": Shuffle(64, "llvm.x86.avx512.pshuf.b.512"), "avx2": Shuffle(32, "llvm.x86.avx2.pshuf.b"),
    "ssse3": Shuffle(16, "llvm.x86.ssse3.pshuf.b.128"),
}


def shuffle_of(target: Target) -> Shuffle | None:
    """Return the widest that the processor is known to have."""
    return next((s for feature, s in _SHUFFLES.items() if feature in target.features), None)


def lookup_text(shuffle: Shuffle, checked: bool, triple: str) -> str:
    """Return the module for a table of `BYTES` bytes; if `checked`, a word tells of those beyond a bound.

    A table has 16 rows of a shuffle. Bytes of one half meet all its rows, less 16 from one to the next,
    until they are negative: so each meets the rows up to its own. These hold what they differ in from
    the row before, and all that a byte met cancels out but its own row.
    """
    lanes = shuffle.lanes
    vector, row = f"<{lanes} x i8>", f"<{_ROW} x i8>"
    all_lanes = ", ".join(f"i32 {k % _ROW}" for k in range(lanes))
    tables = "".join(
        f"  %r{k} = getelementptr i8, ptr %table, i64 {_ROW * k}\n"
        f"  %t{k} = load {row}, ptr %r{k}, align 1\n"
        f"  %e{k} = xor {row} %t{k}, {f'%t{k - 1}' if k % _ROWS else 'zeroinitializer'}\n"
        f"  %d{k} = shufflevector {row} %e{k}, {row} poison, <{lanes} x i32> <{all_lanes}>\n"
        for k in range(2 * _ROWS))
    one = near_place("", "%j", _BYTE) + """  %p = getelementptr i8, ptr %table, i64 %w
  %x = load i8, ptr %p, align 1
  %q = getelementptr i8, ptr %out, i64 %j
  store i8 %x, ptr %q, align 1
"""
    turn = "".join(_vector(f"v{u}_", u * lanes, shuffle) for u in range(_TURN))
    loop = turns(("%from", "%to"), ("entry", "done"), _TURN * lanes, turn, one)
    head = block_head(("table", "index", "out", "fault"), ("total", "most"))
    body = by_blocks(_ARGS, slow=False) if checked else \
        f"  call void @fast({_ARGS}, i64 %from, i64 %to)\n  br label %run\n"
    return f"""target triple = "{triple}"
declare {vector} @{shuffle.name}({vector}, {vector})
declare {vector} @llvm.ssub.sat.v{lanes}i8({vector}, {vector})
{within(_BYTE, lanes) if checked else ""}\
define internal void @fast({_ARGS}, i64 %from, i64 %to) nounwind {{
entry:
{tables}{loop}done:
  ret void
}}
{ENTRY}{head}{over_units(body, LOOKUP_UNIT)}"""


def _vector(tag: str, skip: int, shuffle: Shuffle) -> str:
    """Lines that look up the vector that lies `skip` bytes behind element %i."""
    vector = f"<{shuffle.lanes} x i8>"
    less, turned = (f"splat (i8 {number})" for number in (_ROW, -BYTES // 2))
    text = (f"  %{tag}i = add i64 %i, {skip}\n"
            f"  %{tag}n = getelementptr i8, ptr %index, i64 %{tag}i\n"
            f"  %{tag}a0 = load {vector}, ptr %{tag}n, align 1\n"
            f"  %{tag}b0 = xor {vector} %{tag}a0, {turned}\n")
    found = "zeroinitializer"
    for k in range(_ROWS):
        for half, first in (("a", 0), ("b", _ROWS)):
            at = f"%{tag}{half}{k}"
            text += (f"  %{tag}s{half}{k} = call {vector} @{shuffle.name}({vector} %d{first + k}, "
                     f"{vector} {at})\n"
                     f"  %{tag}x{half}{k} = xor {vector} {found}, %{tag}s{half}{k}\n"
                     f"  %{tag}{half}{k + 1} = call {vector} @llvm.ssub.sat.v{shuffle.lanes}i8("
                     f"{vector} {at}, {vector} {less})\n")
            found = f"%{tag}x{half}{k}"
    return text + (f"  %{tag}q = getelementptr i8, ptr %out, i64 %{tag}i\n"
                   f"  store {vector} {found}, ptr %{tag}q, align 1\n")
