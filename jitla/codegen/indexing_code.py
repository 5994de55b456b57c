"""Pieces of IR shared by the loops that read or write where indices say.

Knows: the argument block, integers of every size. Must not know: what is done with elements.
Receives names and dtypes; returns lines and functions of IR.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from jitla.codegen.layout import HEADER

__all__ = [
    "BLOCK_OF_INDICES", "ENTRY", "bits_of", "block_head", "most_of", "pack_indexed", "smaller", "to_word",
    "within"]

ENTRY = "define void @k(ptr %block, i64 %begin, i64 %end) nounwind {\nentry:\n"
BLOCK_OF_INDICES = 1024  # they are looked at twice, and stay in the first cache between


def bits_of(dtype: np.dtype) -> int:
    """Return how many bits an element has in memory."""
    return 8 * dtype.itemsize


def pack_indexed(
    entry: int, operands: int, words: Sequence[int], units: int, grain: int, flags: int
) -> bytes:
    """Return the argument block of a loop over `units`, all of whose operands are arrays."""
    base = HEADER + 2 * operands
    block = [entry, base + len(words), units, grain, 0, 0, 0, operands | flags,
             *([0] * 2 * operands), *words]
    return struct.pack(f"<{len(block)}q", *block)


def block_head(operands: Sequence[str], words: Sequence[str]) -> str:
    """Lines that load pointers to `operands` and the words behind them, under these names."""
    base = HEADER + 2 * len(operands)
    named = [(name, HEADER + k, "ptr") for k, name in enumerate(operands)]
    named += [(name, base + k, "i64") for k, name in enumerate(words)]
    return "".join(
        f"  %{name}.w = getelementptr i64, ptr %block, i64 {at}\n"
        f"  %{name} = load {kind}, ptr %{name}.w, align 8\n" for name, at, kind in named)


def smaller(name: str, x: str, y: str) -> str:
    """Lines of the smaller of two words."""
    return f"  {name}.c = icmp ult i64 {x}, {y}\n  {name} = select i1 {name}.c, i64 {x}, i64 {y}\n"


def to_word(name: str, x: str, dtype: np.dtype) -> str:
    """Line that makes a word of index `x` of `dtype`, as a cast to the dtype of sizes does."""
    if dtype.itemsize == 8:
        return f"  {name} = add i64 {x}, 0\n"
    return f"  {name} = {'zext' if dtype.kind == 'u' else 'sext'} i{bits_of(dtype)} {x} to i64\n"


def most_of(dtype: np.dtype, length: int) -> int:
    """Return the bound below which an index of `dtype`, taken for unsigned, needs no more looks."""
    return length if dtype.itemsize == 8 else min(length, 1 << bits_of(dtype) - (dtype.kind == "i"))


def within(dtype: np.dtype, vector_bytes: int) -> str:
    """@within(index, from, to, most): are all of these indices below `most`, taken for unsigned ones?"""
    lanes, kind = 2 * vector_bytes // dtype.itemsize, f"i{bits_of(dtype)}"
    vector, code = f"<{lanes} x {kind}>", f"v{lanes}{kind}"
    wide = "add i64 %greatest, 0" if dtype.itemsize == 8 else f"zext {kind} %greatest to i64"
    return f"""declare {vector} @llvm.umax.{code}({vector}, {vector})
declare {kind} @llvm.umax.{kind}({kind}, {kind})
declare {kind} @llvm.vector.reduce.umax.{code}({vector})
define internal i1 @within(ptr %index, i64 %from, i64 %to, i64 %most) nounwind {{
entry:
  br label %vectors
vectors:
  %i = phi i64 [ %from, %entry ], [ %i.next, %vector ]
  %top = phi {vector} [ zeroinitializer, %entry ], [ %top.next, %vector ]
  %i.next = add i64 %i, {lanes}
  %more = icmp ule i64 %i.next, %to
  br i1 %more, label %vector, label %joined
vector:
  %p = getelementptr {kind}, ptr %index, i64 %i
  %x = load {vector}, ptr %p, align {dtype.itemsize}
  %top.next = call {vector} @llvm.umax.{code}({vector} %top, {vector} %x)
  br label %vectors
joined:
  %first = call {kind} @llvm.vector.reduce.umax.{code}({vector} %top)
  br label %rest
rest:
  %j = phi i64 [ %i, %joined ], [ %j.next, %one ]
  %greatest = phi {kind} [ %first, %joined ], [ %greatest.next, %one ]
  %left = icmp ult i64 %j, %to
  br i1 %left, label %one, label %done
one:
  %q = getelementptr {kind}, ptr %index, i64 %j
  %y = load {kind}, ptr %q, align {dtype.itemsize}
  %greatest.next = call {kind} @llvm.umax.{kind}({kind} %greatest, {kind} %y)
  %j.next = add i64 %j, 1
  br label %rest
done:
  %wide = {wide}
  %ok = icmp ult i64 %wide, %most
  ret i1 %ok
}}
"""
