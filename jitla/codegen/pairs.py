"""Products of many pairs of small matrices, as IR: one pair after the other, each in registers.

Knows: vectors, registers, where matrices lie. Must not know: where pairs come from, how they are shared out.
Receives sizes and strides; returns the text of a module whose entry is @k, and its argument blocks.

Lanes are columns of the right matrix; an element of the left one is in all of them. Lanes beyond the
last column repeat it, so that nothing is computed on anything but the user's data.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from jitla.codegen.layout import HEADER, Target
from jitla.codegen.pair_code import PairCode, PairMatrix
from jitla.fusion import Pairs

__all__ = ["lies", "pack_pairs", "pairs_text"]

OPERANDS = 3
SUMS = 12  # vectors of sums that are held at once,
GROUP = 3  # of so many vectors of columns at most, for so many rows
ROWS = 8
HELD = 10  # vectors of the right matrix that stay in registers while rows of the left one pass
UNROLLED = 256  # products of vectors that are written out; loops do more

Product = tuple[int, int, int]


def lies(strides: tuple[int, int], shape: tuple[int, int], size: int) -> str:
    """Return how a matrix lies: "c" row after row, "t" column after column, "r" rows apart, "s" else.

    Where there is one row, or one column, the stride says nothing.
    """
    (down, across), (rows, columns) = strides, shape
    near = columns == 1 or across == size
    if near and (rows == 1 or down == columns * size):
        return "c"
    if (rows == 1 or down == size) and (columns == 1 or across == rows * size):
        return "t"
    return "r" if near else "s"


def pack_pairs(entry: int, pairs: Pairs) -> bytes:
    """Return the argument block of the products of `pairs`."""
    words = [pairs.outer, pairs.inner, *pairs.left, *pairs.right]
    base = HEADER + 2 * OPERANDS
    block = [entry, base + len(words), 1, 1, 0, 0, 0, OPERANDS, *([0] * 2 * OPERANDS), *words]
    return struct.pack(f"<{len(block)}q", *block)


@cache
def pairs_text(dtype: np.dtype, sizes: Product, letters: str, target: Target) -> str:
    """Return the module of products of matrices of m times k elements with k times n.

    `letters` tell how the left ones and the right ones lie.
    """
    m, k, n = sizes
    code = PairCode(dtype, target)
    left = PairMatrix(code, "a", letters[0], (m, k), dtype.itemsize)
    right = PairMatrix(code, "b", letters[1], (k, n), dtype.itemsize)
    pair = _Pair(code, sizes, left, right)
    return f'target triple = "{target.triple}"\n' + _entry(code, left, right, pair.write) + code.declared()


class _Piece(NamedTuple):
    """`count` columns from column `at` on, in a vector of `width` elements."""

    at: int
    count: int  # type: ignore[assignment]  # tuples have a method of this name
    width: int


class _Pair:
    """The product of one pair: the left matrix lies at %a, the right one at %b, the result at %o."""

    def __init__(self, code: PairCode, sizes: Product, left: PairMatrix, right: PairMatrix) -> None:
        self.code, self.left, self.right = code, left, right
        self.m, self.k, self.n = sizes
        width, whole = code.most, self.n // code.most * code.most
        self.pieces = [_Piece(at, width, width) for at in range(0, whole, width)]
        if rest := self.n - whole:
            self.pieces.append(_Piece(whole, rest, 1 << (rest - 1).bit_length()))

    def write(self) -> None:
        """Write the product, column after column of vectors, and in these rows after rows."""
        sums = SUMS // self.code.lanes
        most = max(min(GROUP, sums // 4), 1)
        parts = -(-len(self.pieces) // most)
        unrolled = self.m * self.k * len(self.pieces) * self.code.lanes <= UNROLLED
        for g in range(parts):
            group = self.pieces[len(self.pieces) * g // parts:len(self.pieces) * (g + 1) // parts]
            blocks = -(-self.m // min(sums // len(group), ROWS))
            rows = [range(self.m * b // blocks, self.m * (b + 1) // blocks) for b in range(blocks)]
            held: dict[int, list[str]] = {}
            if unrolled and (blocks == 1 or self.k * len(group) * self.code.lanes <= HELD):
                held = {i: self._row("%b", i, group) for i in range(self.k)}
            for block in rows:
                self._store(block, group, self._written_out(block, group, held) if unrolled
                            else self._looped(block, group))

    def _row(self, base: str, i: int, group: Sequence[_Piece]) -> list[str]:
        """Write a row of the right matrix, counted from `base`."""
        return [self._piece(base, i, p) for p in group]

    def _piece(self, base: str, row: int, p: _Piece) -> str:
        """Write a vector of columns; their last one fills it."""
        code, each, lanes = self.code, self.code.lanes, self.code.lanes * p.width
        if p.count == p.width and (self.right.in_runs or p.width == 1):
            return code.load(self.right.at(base, row, p.at), lanes)
        parts = _halves(p.count) if self.right.in_runs else [(i, 1) for i in range(p.count)]
        found, filled = "poison", 0
        for begin, count in parts:
            part = code.load(self.right.at(base, row, p.at + begin), count * each)
            wide = code.pick(part, "poison", count * each,
                             [min(i, count * each - each + i % each) for i in range(lanes)])
            filled = begin * each
            found = wide if not filled else code.pick(
                found, wide, lanes, [i if i < filled else lanes + i - filled for i in range(lanes)])
        return found

    def _sums(self, rows: range, group: Sequence[_Piece]) -> list[tuple[int, int, int]]:
        """Return what is added up: by row, piece, and part of a complex number in the left matrix."""
        return [(i, p, part) for i in rows for p in range(len(group)) for part in range(self.code.lanes)]

    def _add(
        self, base: str, column: int, right: Sequence[str], group: Sequence[_Piece], rows: range,
        sums: Sequence[str],
    ) -> list[str]:
        """Write the products of a column of the left matrix with a row of the right one, added to sums."""
        code = self.code
        widest = max(p.width for p in group) * code.lanes
        spread = {}
        for i in rows:
            at = self.left.at(base, i, column)
            for part in range(code.lanes):
                spread[i, part] = code.spread(code.moved(at, part * code.size), widest)
        found = []
        for (i, p, part), before in zip(self._sums(rows, group), sums, strict=True):
            lanes = group[p].width * code.lanes
            x = spread[i, part]
            if lanes < widest:
                x = code.pick(x, "poison", widest, range(lanes))
            found.append(code.add_product(x, right[p], before, lanes))
        return found

    def _written_out(self, rows: range, group: Sequence[_Piece], held: dict[int, list[str]]) -> list[str]:
        sums = ["zeroinitializer"] * len(self._sums(rows, group))
        for i in range(self.k):
            sums = self._add("%a", i, held.get(i) or self._row("%b", i, group), group, rows, sums)
        return sums

    def _looped(self, rows: range, group: Sequence[_Piece]) -> list[str]:
        """Write a loop over the columns of the left matrix, and return the sums behind it."""
        code, tag = self.code, f"{rows.start}_{group[0].at}"
        kinds = [code.kind(group[p].width * code.lanes) for _, p, _ in self._sums(rows, group)]
        sums = [f"%sum{tag}.{s}" for s in range(len(kinds))]
        code.lines += [f"  br label %from{tag}", f"from{tag}:", f"  br label %loop{tag}", f"loop{tag}:"]
        head = len(code.lines)
        ends = self._add(f"%left{tag}", 0, self._row(f"%right{tag}", 0, group), group, rows, sums)
        phis = [f"  {s} = phi {kind} [ zeroinitializer, %from{tag} ], [ {e}, %loop{tag} ]"
                for s, kind, e in zip(sums, kinds, ends, strict=True)]
        for name, base, step in (("left", "%a", self.left.across), ("right", "%b", self.right.down)):
            phis.append(f"  %{name}{tag} = phi ptr [ {base}, %from{tag} ], [ %{name}{tag}.next, %loop{tag} ]")
            code.lines.append(f"  %{name}{tag}.next = getelementptr i8, ptr %{name}{tag}, i64 {step}")
        phis.append(f"  %i{tag} = phi i64 [ 0, %from{tag} ], [ %i{tag}.next, %loop{tag} ]")
        code.lines[head:head] = phis
        code.lines += [
            f"  %i{tag}.next = add i64 %i{tag}, 1", f"  %more{tag} = icmp ult i64 %i{tag}.next, {self.k}",
            f"  br i1 %more{tag}, label %loop{tag}, label %end{tag}", f"end{tag}:",
        ]
        return ends

    def _store(self, rows: range, group: Sequence[_Piece], sums: Sequence[str]) -> None:
        """Write the stores of what was added up, in parts of a power of two."""
        code, each = self.code, self.code.lanes
        for at in range(0, len(sums), each):
            i, p, _ = self._sums(rows, group)[at]
            piece = group[p]
            lanes = piece.width * each
            x = sums[at] if each == 1 else code.joined(sums[at], sums[at + 1], lanes)
            for begin, count in _halves(piece.count):
                part = x if count == piece.width else code.pick(
                    x, "poison", lanes, range(begin * each, (begin + count) * each))
                place = (i * self.n + piece.at + begin) * each * code.size
                code.store(part, code.moved("%o", place), count * each)


def _halves(count: int) -> list[tuple[int, int]]:
    """Share `count` neighbours out in powers of two, the largest first: where each begins, and it."""
    found, at = [], 0
    for bit in reversed(range(count.bit_length())):
        if count >> bit & 1:
            found.append((at, 1 << bit))
            at += 1 << bit
    return found


def _entry(code: PairCode, left: PairMatrix, right: PairMatrix, write: Callable[[], None]) -> str:
    """@k: `write` for every pair, the results one behind the other."""
    base = HEADER + 2 * OPERANDS
    steps = [f"{m.name}.{way}" for m in (left, right) for way in ("outer", "inner", "down", "across")]
    lines = [
        line for name, at, kind in (
            ("x", HEADER, "ptr"), ("y", HEADER + 1, "ptr"), ("out", HEADER + 2, "ptr"),
            *((word, base + i, "i64") for i, word in enumerate(("outer", "inner", *steps))))
        for line in (f"  %{name}.p = getelementptr i64, ptr %block, i64 {at}",
                     f"  %{name} = load {kind}, ptr %{name}.p, align 8")]
    write()
    body = "\n".join(code.lines)
    head = "\n".join([*lines, *left.scaled(), *right.scaled()])
    result = left.shape[0] * right.shape[1] * left.size
    return f"""define void @k(ptr %block, i64 %begin, i64 %end) nounwind {{
entry:
{head}
  %some.inner = icmp ne i64 %inner, 0
  %some.outer = icmp ne i64 %outer, 0
  %some = and i1 %some.inner, %some.outer
  br i1 %some, label %row, label %done
row:
  %r = phi i64 [ 0, %entry ], [ %r.next, %row.end ]
  %x.row = phi ptr [ %x, %entry ], [ %x.next, %row.end ]
  %y.row = phi ptr [ %y, %entry ], [ %y.next, %row.end ]
  %o.row = phi ptr [ %out, %entry ], [ %o.next, %row.end ]
  br label %pair
pair:
  %p = phi i64 [ 0, %row ], [ %p.next, %made ]
  %a = phi ptr [ %x.row, %row ], [ %a.next, %made ]
  %b = phi ptr [ %y.row, %row ], [ %b.next, %made ]
  %o = phi ptr [ %o.row, %row ], [ %o.next, %made ]
{body}
  br label %made
made:
  %a.next = getelementptr i8, ptr %a, i64 %a.inner
  %b.next = getelementptr i8, ptr %b, i64 %b.inner
  %o.next = getelementptr i8, ptr %o, i64 {result}
  %p.next = add i64 %p, 1
  %left = icmp ult i64 %p.next, %inner
  br i1 %left, label %pair, label %row.end
row.end:
  %x.next = getelementptr i8, ptr %x.row, i64 %a.outer
  %y.next = getelementptr i8, ptr %y.row, i64 %b.outer
  %r.next = add i64 %r, 1
  %more = icmp ult i64 %r.next, %outer
  br i1 %more, label %row, label %done
done:
  ret void
}}
"""
