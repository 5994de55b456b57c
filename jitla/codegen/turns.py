"""Sums down the columns of a matrix that threads add rows to in turn, instead of sharing its columns out.

Knows: NumPy's order is that of the rows, and memory is read fastest in whole rows. Must not know: what is
computed. Receives a `Loop` and its geometry; returns stages on blocks of rows.

Threads that have some columns each read parts of the same cache lines, and their processors fetch the
parts in between as well. So a thread has a block of rows read into its cache, and adds it to the sums
when those before have been: that takes it far less time than reading, which goes on meanwhile.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace

from jitla.codegen.layout import AGAIN, ARRAY, HEADER, Loop, geometry_words, pack_block
from jitla.fusion import OPERAND, Cut, Geometry, Place, Stage

__all__ = ["takes_turns", "touch_text", "turns"]

BLOCK_BYTES = 128 << 10  # of a block of rows: it stays in the second-level cache of its thread
BLOCKS = 96  # at least: less is in the outer cache, which parts of lines are read from at little cost
# Bytes of rows: adding shorter ones takes as long as reading them; of longer ones threads read whole
# pages of memory each.
LEAST_BYTES, MOST_BYTES = 64, 6144
ITEM_BYTES = 4  # of the narrowest elements: of others there are more than can be added up meanwhile
BODY = 4  # hops in bodies that take less time than reading what they need
SLOW = ("divide", "sqrt", "power", "floor_divide", "remainder")
LINE = 64  # bytes


def takes_turns(loop: Loop, geometry: Geometry) -> bool:
    """Tell whether threads take turns at adding rows to all sums of `loop`."""
    if loop.form.mode != "cols" or loop.rank or any(o.role == "out" for o in loop.operands):
        return False
    body = loop.kernel.body
    if len(body) > BODY + len(loop.aggregates) or any(
            h.op.transcendental or h.op.name in SLOW for h in body):
        return False
    rows, columns = geometry.dims
    sizes = [loop.operands[k].dtype.itemsize for k, _ in _matrices(loop, geometry)]
    return bool(sizes) and min(sizes) >= ITEM_BYTES and LEAST_BYTES <= columns * max(sizes) <= MOST_BYTES \
        and rows >= BLOCKS * _height(loop, geometry)


def _matrices(loop: Loop, geometry: Geometry) -> list[tuple[int, int]]:
    """Return which operands are matrices that are read along their rows, and how far these lie apart."""
    strides = iter(geometry.strides)
    found = []
    for k, op in enumerate(loop.operands):
        step = 0 if op.letter == "v" else next(strides)[0]
        if op.role == "in" and op.letter == "c" and step > 0:
            found.append((k, step))
    return found


def _height(loop: Loop, geometry: Geometry) -> int:
    """Return how many rows are read before they are added up."""
    sizes = [loop.operands[k].dtype.itemsize for k, _ in _matrices(loop, geometry)]
    return max(BLOCK_BYTES // (geometry.dims[-1] * sum(sizes)) & -8, 8)


def turns(
    loop: Loop, geometry: Geometry, head: Sequence[int], entries: tuple[int, int]
) -> tuple[list[Stage], Cut]:
    """Return the stages that read rows and add them up, by code at `entries`.

    `head` are the geometry's first words, of one thread.
    """
    rows, columns = geometry.dims
    height = _height(loop, geometry)
    blocks = -(-rows // height)
    rest = rows - (blocks - 1) * height
    stages = []
    for k, step in _matrices(loop, geometry):
        nbytes = columns * loop.operands[k].dtype.itemsize
        whole, last = (_touch(entries[0], n, nbytes, step) for n in (height, rest))
        stages.append(Stage(whole, last, (Place(OPERAND, k, height * step),)))

    def part(n: int, more: int) -> bytes:
        words = geometry_words(loop, replace(geometry, dims=(n, columns)), (*head[:-1], n), more)
        return pack_block(loop, entries[1], 0, (head[2], head[2], 0), 0, words)

    strides = iter(geometry.strides)
    steps = [0 if o.letter == "v" else next(strides)[0] * (o.role == "in") for o in loop.operands]
    places = tuple(Place(OPERAND, k, height * step) for k, step in enumerate(steps))
    stages.append(Stage(part(height, AGAIN), part(rest, AGAIN), places, first=part(height, 0)))
    return stages, Cut(blocks, 1, 0, 0, 0, 0)


def _touch(entry: int, rows: int, nbytes: int, step: int) -> bytes:
    """Return the argument block that reads so many rows."""
    if nbytes == step:
        rows, nbytes = 1, rows * nbytes
    words = [rows, nbytes, step]
    block = [entry, HEADER + 2 + len(words), 1, 1, 0, 0, 0, 1, 0, ARRAY, *words]
    return struct.pack(f"<{len(block)}q", *block)


def touch_text(triple: str) -> str:
    """Return the module whose entry @k reads a matrix, every line of it once, and does nothing with it."""
    words = "".join(
        f"  %{name}.at = getelementptr i64, ptr %block, i64 {HEADER + 2 + at}\n"
        f"  %{name} = load i64, ptr %{name}.at, align 8\n"
        for at, name in enumerate(("rows", "bytes", "step")))
    return f"""target triple = "{triple}"
define void @k(ptr %block, i64 %begin, i64 %end) nounwind {{
entry:
  %x.at = getelementptr i64, ptr %block, i64 {HEADER}
  %x = load ptr, ptr %x.at, align 8
{words}  %last = sub i64 %bytes, 1
  br label %row
row:
  %r = phi i64 [ 0, %entry ], [ %r.next, %over ]
  %base = phi ptr [ %x, %entry ], [ %base.next, %over ]
  br label %line
line:
  %i = phi i64 [ 0, %row ], [ %i.next, %line ]
  %at = getelementptr i8, ptr %base, i64 %i
  %found = load volatile i8, ptr %at, align 1
  %i.next = add i64 %i, {LINE}
  %more = icmp ult i64 %i.next, %bytes
  br i1 %more, label %line, label %over
over:
  %end.at = getelementptr i8, ptr %base, i64 %last
  %end.found = load volatile i8, ptr %end.at, align 1
  %base.next = getelementptr i8, ptr %base, i64 %step
  %r.next = add i64 %r, 1
  %again = icmp ult i64 %r.next, %rows
  br i1 %again, label %row, label %done
done:
  ret void
}}
"""
