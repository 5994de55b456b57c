"""Products with narrow matrices."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from jitla.classes import dataclass
from jitla.codegen.ir import Lanes, element_type, part_of
from jitla.codegen.ir_elementwise import quiet
from jitla.codegen.kernel_abi import HEADER
from jitla.codegen.matmul.argmin import Order
from jitla.codegen.matmul.packing import AHEAD, CACHE_LINE, SPAN, Pass, fetch_ahead, head
from jitla.codegen.target import Target
from jitla.fusion import Pairs

__all__ = [
    "PairCode", "PairMatrix", "lies", "pack_pairs", "pairs_text", "skinny_dot", "skinny_sum",
    "upright_text",
]


Step = int | str


class PairCode:
    """Lines of IR for vectors of one dtype; complex numbers are two lanes side by side."""

    def __init__(self, dtype: np.dtype, target: Target) -> None:
        part = part_of(dtype)
        self.real = element_type(part)
        self.size = part.itemsize
        self.lanes = 2 if dtype.kind == "c" else 1  # of an element
        self.most = max(target.lanes(dtype.itemsize), 1)  # elements of a vector
        self.is_float = part.kind == "f"
        self.lines: list[str] = []
        self._made = 0
        self._used: set[str] = set()

    def kind(self, lanes: int) -> str:
        """Return the type of a vector."""
        return f"<{lanes} x {self.real}>"

    def put(self, expression: str) -> str:
        """Write an instruction and return the name of its value."""
        self._made += 1
        name = f"%t{self._made}"
        self.lines.append(f"  {name} = {expression}")
        return name

    def moved(self, base: str, by: Step) -> str:
        """Write the address `by` bytes behind `base`."""
        return base if by == 0 else self.put(f"getelementptr i8, ptr {base}, i64 {by}")

    def load(self, at: str, lanes: int) -> str:
        """Write the load of neighbours."""
        return self.put(f"load {self.kind(lanes)}, ptr {at}, align {self.size}")

    def store(self, x: str, at: str, lanes: int) -> None:
        """Write the store of neighbours."""
        self.lines.append(f"  store {self.kind(lanes)} {x}, ptr {at}, align {self.size}")

    def pick(self, x: str, y: str, lanes: int, chosen: Sequence[int]) -> str:
        """Write a vector of the `chosen` lanes of `x` and, counted on, of `y`; both have `lanes`."""
        kind = self.kind(lanes)
        mask = ", ".join(f"i32 {c}" for c in chosen)
        return self.put(f"shufflevector {kind} {x}, {kind} {y}, <{len(chosen)} x i32> <{mask}>")

    def spread(self, at: str, lanes: int) -> str:
        """Write a vector of what lies at an address, in all lanes."""
        x = self.load(at, 1)
        return x if lanes == 1 else self.pick(x, "poison", 1, [0] * lanes)

    def add_product(self, x: str, y: str, z: str, lanes: int) -> str:
        """Write ``x * y + z``, of floats rounded once where the processor can."""
        kind = self.kind(lanes)
        if self.is_float:
            name = f"llvm.fmuladd.v{lanes}f{8 * self.size}"
            self._used.add(f"declare {kind} @{name}({kind}, {kind}, {kind})\n")
            return self.put(f"call {kind} @{name}({kind} {x}, {kind} {y}, {kind} {z})")
        return self.put(f"add {kind} {z}, " + self.put(f"mul {kind} {x}, {y}"))

    def joined(self, reals: str, imaginaries: str, lanes: int) -> str:
        """Write the complex numbers that products with real and with imaginary parts add up to."""
        kind = self.kind(lanes)
        turned = self.pick(imaginaries, "poison", lanes, [i ^ 1 for i in range(lanes)])
        less = self.put(f"fsub {kind} {reals}, {turned}")
        more = self.put(f"fadd {kind} {reals}, {turned}")
        return self.pick(less, more, lanes, [i + lanes * (i & 1) for i in range(lanes)])

    def declared(self) -> str:
        """Declarations of the intrinsics."""
        return "".join(sorted(self._used))


class PairMatrix:
    """Where the elements of one matrix of every pair lie; the names of its addresses begin with `name`."""

    def __init__(self, code: PairCode, name: str, letter: str, shape: tuple[int, int], size: int) -> None:
        rows, columns = shape
        self.code, self.name, self.shape, self.size = code, name, shape, size
        self.down: Step = {"c": columns * size, "t": size}.get(letter, f"%{name}.down")
        self.across: Step = {"c": size, "r": size, "t": rows * size}.get(letter, f"%{name}.across")
        self.in_runs = letter in "cr"

    def scaled(self) -> list[str]:
        """Return lines of how far rows and columns are from the first, where only the block knows."""
        return [f"  {step}.{i} = mul i64 {step}, {i}"
                for step, count in zip((self.down, self.across), self.shape, strict=True)
                if isinstance(step, str) for i in range(count)]

    def at(self, base: str, row: int, column: int) -> str:
        """Write the address of an element, counted from `base`."""
        fixed = 0
        for step, i in ((self.down, row), (self.across, column)):
            if isinstance(step, int):
                fixed += step * i
            elif i:
                base = self.code.moved(base, f"{step}.{i}")
        return self.code.moved(base, fixed)


OPERANDS = 3
SUMS = 12  # vectors of sums that are held at once: of `GROUP` vectors of columns at most, for `ROWS` rows
GROUP = 3
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


# Numbers of rows at once, the largest first, by number of vectors of columns: twelve sums are held at most.
ROWS_OF_DOT = {1: (8, 1), 2: (4, 1), 3: (4, 1)}
ELEMENTS_OF_SUM = {1: (8, 4, 1), 2: (6, 4, 1), 3: (4, 2, 1)}
SECOND_LEVEL = 2  # where the next block of rows is fetched to: the first level holds this one


@dataclass(frozen=True, slots=True)
class _Piece_skinny:
    """Columns that share a vector: `count` of its lanes, from column `at` on."""

    w: Lanes
    at: int
    count: int

    def load(self, name: str, at: str) -> str:
        """Line that loads the columns; other lanes are 0."""
        w = self.w
        if self.count == w.width:
            return f"  {name} = load {w.vector}, ptr {at}, align {w.size}\n"
        lanes = ", ".join(f"i1 {int(k < self.count)}" for k in range(w.width))
        return (f"  {name} = call {w.vector} @llvm.masked.load.{w.code}.p0(ptr align {w.size} {at}, "
                f"{w.mask} <{lanes}>, {w.vector} zeroinitializer)\n")

    def store(self, name: str, at: str) -> str:
        """Lines that store the columns, in parts of a power of two: masked stores are slow."""
        w, text, done = self.w, "", 0
        if self.count == w.width:
            return f"  store {w.vector} {name}, ptr {at}, align {w.size}\n"
        for part in (1 << b for b in reversed(range(w.shift)) if self.count >> b & 1):
            lanes = ", ".join(f"i32 {done + k}" for k in range(part))
            text += (f"  {name}.s{done} = shufflevector {w.vector} {name}, {w.vector} poison, "
                     f"<{part} x i32> <{lanes}>\n"
                     f"  {name}.p{done} = getelementptr {w.real}, ptr {at}, i64 {done}\n"
                     f"  store <{part} x {w.real}> {name}.s{done}, ptr {name}.p{done}, align {w.size}\n")
            done += part
        return text

    def spread(self, name: str, scalar: str) -> str:
        """Lines that put `scalar` in all lanes."""
        w = self.w
        return (f"  {name}.0 = insertelement {w.vector} poison, {w.real} {scalar}, i64 0\n"
                f"  {name} = shufflevector {w.vector} {name}.0, {w.vector} poison, "
                f"<{w.width} x i32> zeroinitializer\n")


def _groups(w: Lanes, columns: int) -> Iterator[tuple[int, tuple[_Piece_skinny, ...]]]:
    """Share the columns out: vectors that are held at once, as evenly as can be, and their first."""
    most, vectors = max(ROWS_OF_DOT), -(-columns // w.width)
    parts = -(-vectors // most)
    for k in range(parts):
        first, end = vectors * k // parts * w.width, vectors * (k + 1) // parts * w.width
        pieces = [_Piece_skinny(w, at, w.width) for at in range(0, end - first, w.width)]
        rest = columns % w.width
        if rest and end > columns:
            narrow = rest if rest & rest - 1 == 0 else w.width
            pieces[-1] = _Piece_skinny(Lanes(w.real, w.size, narrow), pieces[-1].at, rest)
        yield first, tuple(pieces)


def _passes(
    name: str, w: Lanes, columns: int, rows: Mapping[int, tuple[int, ...]],
    write: Callable[[str, _Pieces], str],
) -> tuple[list[Pass], str]:
    """Return the passes, which share a function where they differ in the place of columns only."""
    passes: list[Pass] = []
    written: dict[tuple[tuple[int, int], ...], str] = {}
    text = ""
    for first, pieces in _groups(w, columns):
        many = rows[len(pieces)]
        like = tuple((p.count, p.w.width) for p in pieces)
        if like not in written:
            mine = written[like] = f"{name}.{len(pieces)}.{pieces[-1].count}."
            text += "".join(
                write(f"{mine}{count}", _Pieces(w, pieces, columns, count)) for count in many)
        passes.append((written[like], many, first * w.size))
    rest = pieces[-1].w
    if rest.width != w.width:
        v = rest.vector
        text += f"declare {v} @llvm.fmuladd.{rest.code}({v}, {v}, {v})\n"
    return passes, text


@dataclass(frozen=True, slots=True)
class _Pieces:
    """The columns of one pass, for `rows` rows at once, or as many elements of all rows."""

    w: Lanes
    pieces: tuple[_Piece_skinny, ...]
    columns: int
    rows: int

    @property
    def elements_per_iteration(self) -> int:
        """Elements of a row that one iteration reads: of all rows together at least a cache line."""
        return max(CACHE_LINE // (self.rows * self.w.size), 1)

    def cells(self) -> Iterator[tuple[int, int, _Piece_skinny]]:
        """Rows times vectors."""
        for k in range(self.rows):
            for c, piece in enumerate(self.pieces):
                yield k, c, piece

    def starts(self) -> str:
        """Lines that find the rows, and what comes behind them."""
        return "".join(
            f"  %at{k} = add i64 %i, {k}\n  %skip{k} = mul i64 %at{k}, %step\n"
            f"  %x{k} = getelementptr i8, ptr %x, i64 %skip{k}\n" for k in range(self.rows)
        ) + (f"  %whole = sub i64 %n, {self.elements_per_iteration - 1}\n"
             f"  %all = mul i64 %step, {self.rows}\n  %further = add i64 %all, {AHEAD}\n"
             f"  %soon = getelementptr i8, ptr %x0, i64 %further\n")

    def ahead(self) -> str:
        """Lines that fetch as much of what comes next as this turn of the loop uses up."""
        if self.rows == 1:
            return ""
        return fetch_ahead(self.rows * self.w.size, self.elements_per_iteration)

    def spread(self, tag: str, k: int, at: str) -> str:
        """Lines that put element `at` of row `k` in all lanes, as often as there are widths."""
        text = (f"  %xp{tag}{k} = getelementptr {self.w.real}, ptr %x{k}, i64 {at}\n"
                f"  %xs{tag}{k} = load {self.w.real}, ptr %xp{tag}{k}, align {self.w.size}\n")
        for width in dict.fromkeys(p.w.width for p in self.pieces):
            piece = next(p for p in self.pieces if p.w.width == width)
            text += piece.spread(f"%xv{tag}{k}.{width}", f"%xs{tag}{k}")
        return text


def skinny_dot(w: Lanes, columns: int) -> tuple[list[Pass], str]:
    """Every row of results is the sum over a row of its elements times the matrix' rows."""
    return _passes("dot", w, columns, ROWS_OF_DOT, _dot)


def _dot(name: str, of: _Pieces) -> str:
    cells = list(of.cells())

    def step(tag: str, at: str, pointer: str, before: str, after: str) -> str:
        text = ""
        for c, p in enumerate(of.pieces):
            text += f"  %vp{tag}{c} = getelementptr {of.w.real}, ptr {pointer}, i64 {p.at}\n"
            text += p.load(f"%v{tag}{c}", f"%vp{tag}{c}")
        for k in range(of.rows):
            text += of.spread(tag, k, at)
            text += "".join(p.w.fma(f"%{after}{k}_{c}", f"%xv{tag}{k}.{p.w.width}", f"%v{tag}{c}",
                                    f"%{before}{k}_{c}") for c, p in enumerate(of.pieces))
        return text

    turns = ""
    for u in range(of.elements_per_iteration):
        after = "n" if u == of.elements_per_iteration - 1 else f"u{u}x"
        turns += f"  %j{u} = add i64 %j, {u}\n" + step(
            f"u{u}_", f"%j{u}", "%pv" if u == 0 else f"%pv{u}", "a" if u == 0 else f"u{u - 1}x", after)
        turns += f"  %pv{u + 1} = getelementptr i8, ptr {'%pv' if u == 0 else f'%pv{u}'}, i64 %apart\n"
    sums = "".join(f"  %a{k}_{c} = phi {p.w.vector} [ zeroinitializer, %entry ], [ %n{k}_{c}, %body ]\n"
                   for k, c, p in cells)
    rest = "".join(f"  %r{k}_{c} = phi {p.w.vector} [ %a{k}_{c}, %loop ], [ %m{k}_{c}, %one ]\n"
                   for k, c, p in cells)
    ends = "".join(
        f"  %row{k} = mul i64 %at{k}, {of.columns}\n" for k in range(of.rows)) + "".join(
        f"  %oi{k}_{c} = add i64 %row{k}, {p.at}\n"
        f"  %o{k}_{c} = getelementptr {of.w.real}, ptr %out, i64 %oi{k}_{c}\n"
        + p.store(f"%r{k}_{c}", f"%o{k}_{c}") for k, c, p in cells)
    return f"""define internal void @{name}({SPAN}) nounwind {{
entry:
{of.starts()}  br label %loop
loop:
  %j = phi i64 [ 0, %entry ], [ %j.next, %body ]
  %pv = phi ptr [ %v, %entry ], [ %pv{of.elements_per_iteration}, %body ]
{sums}  %more = icmp slt i64 %j, %whole
  br i1 %more, label %body, label %odd
body:
{of.ahead()}{turns}  %j.next = add i64 %j, {of.elements_per_iteration}
  br label %loop
odd:
  %l = phi i64 [ %j, %loop ], [ %l.next, %one ]
  %pl = phi ptr [ %pv, %loop ], [ %pl.next, %one ]
{rest}  %left = icmp slt i64 %l, %n
  br i1 %left, label %one, label %end
one:
{step("r", "%l", "%pl", "r", "m")}  %pl.next = getelementptr i8, ptr %pl, i64 %apart
  %l.next = add i64 %l, 1
  br label %odd
end:
{ends}  ret void
}}
"""


def skinny_sum(w: Lanes, columns: int) -> tuple[list[Pass], str]:
    """The elements of a row times a row of weights are added to the results, element by element.

    Some elements' results are held while all rows pass: what is "at once" here are elements.
    """
    return _passes("sum", w, columns, ELEMENTS_OF_SUM, _sum)


def _sum(name: str, of: _Pieces) -> str:
    row, size = of.columns * of.w.size, of.w.size
    cells = list(of.cells())
    places = "".join(f"  %at{k} = add i64 %i, {k}\n  %skip{k} = mul i64 %at{k}, {row}\n"
                     for k in range(of.rows)) + "".join(
        f"  %oi{k}_{c} = add i64 %skip{k}, {p.at * size}\n"
        f"  %o{k}_{c} = getelementptr i8, ptr %out, i64 %oi{k}_{c}\n" for k, c, p in cells)
    before = "".join(p.load(f"%b{k}_{c}", f"%o{k}_{c}") for k, c, p in cells)
    sums = "".join(f"  %a{k}_{c} = phi {p.w.vector} [ %b{k}_{c}, %entry ], [ %n{k}_{c}, %body ]\n"
                   for k, c, p in cells)
    weights = "".join(f"  %vp{c} = getelementptr i8, ptr %pv, i64 {p.at * size}\n"
                      + p.load(f"%v{c}", f"%vp{c}") for c, p in enumerate(of.pieces))
    added = "".join(
        f"  %x{k} = getelementptr i8, ptr %px, i64 {k * size}\n" + of.spread("", k, "0")
        + "".join(p.w.fma(f"%n{k}_{c}", f"%xv{k}.{p.w.width}", f"%v{c}", f"%a{k}_{c}")
                  for c, p in enumerate(of.pieces)) for k in range(of.rows))
    stored = "".join(p.store(f"%a{k}_{c}", f"%o{k}_{c}") for k, c, p in cells)
    return f"""define internal void @{name}({SPAN}) nounwind {{
entry:
{places}{before}  %first = mul i64 %i, {size}
  %x.first = getelementptr i8, ptr %x, i64 %first
  %share = mul i64 %first, %n
  %soon.x = getelementptr i8, ptr %x, i64 %beyond
  %soon = getelementptr i8, ptr %soon.x, i64 %share
  br label %loop
loop:
  %r = phi i64 [ 0, %entry ], [ %r.next, %body ]
  %px = phi ptr [ %x.first, %entry ], [ %px.next, %body ]
  %pv = phi ptr [ %v, %entry ], [ %pv.next, %body ]
  %ps = phi ptr [ %soon, %entry ], [ %ps.next, %body ]
{sums}  %more = icmp slt i64 %r, %n
  br i1 %more, label %body, label %end
body:
  call void @llvm.prefetch.p0(ptr %ps, i32 0, i32 {SECOND_LEVEL}, i32 1)
{weights}{added}  %px.next = getelementptr i8, ptr %px, i64 %step
  %pv.next = getelementptr i8, ptr %pv, i64 %apart
  %ps.next = getelementptr i8, ptr %ps, i64 {of.rows * size}
  %r.next = add i64 %r, 1
  br label %loop
end:
{stored}  ret void
}}
"""


VECTORS = 2  # of rows at once, which share an element of the matrix
ABREAST = 4  # vectors of rows that are searched at once: each waits for its last comparison
REGISTERS = {True: 9, False: 5}  # columns whose sums are held at once, with 32 registers and with 16
MANY_REGISTERS = "avx512vl"


@cache
def upright_text(form: str, dtype: np.dtype, columns: int, target: Target) -> str:
    """Return the module of `form`: "dot" with `columns` columns, "argmin" or "argmax" of rows."""
    real = {"d": "double", "f": "float"}[dtype.char]
    w = Lanes(real, dtype.itemsize, target.lanes(dtype.itemsize))
    if form == "dot":
        text = _dot_upright(w, columns, REGISTERS[MANY_REGISTERS in target.features]) + w.declared()
    else:
        text = _extreme(Order(dtype, form, w.width)) + "declare i64 @llvm.umin.i64(i64, i64)\n"
        text = quiet(text, target.features)
    return f'target triple = "{target.triple}"\n' + text


def _dot_upright(w: Lanes, columns: int, most: int) -> str:
    """@k: every column of results is the sum over the columns of rows times an element of the matrix."""
    parts = -(-columns // most)
    bounds = [columns * k // parts for k in range(parts + 1)]
    counts = [b - a for a, b in zip(bounds, bounds[1:], strict=False)]
    text = "".join(_tile(w, count) for count in dict.fromkeys(counts))
    calls = "".join(
        f"  %v{k} = getelementptr i8, ptr %v, i64 {bounds[k] * w.size}\n"
        f"  %o.far{k} = mul i64 %column, {bounds[k]}\n"
        f"  %o{k} = getelementptr i8, ptr %out, i64 %o.far{k}\n"
        f"  call void @tile{count}(ptr %x.at, ptr %v{k}, ptr %o{k}, i64 %r, i64 %n, i64 %step, i64 %apart, "
        f"i64 %column)\n" for k, count in enumerate(counts))
    scalar = w.real
    return text + f"""declare {scalar} @llvm.fmuladd.f{8 * w.size}({scalar}, {scalar}, {scalar})
define void @k(ptr %block, i64 %begin, i64 %end) nounwind {{
entry:
{head()}  %column = mul i64 %rows, {w.size}
  %few = icmp ult i64 %rows, {VECTORS * w.width}
  %last = sub i64 %rows, {VECTORS * w.width}
  br i1 %few, label %singles, label %tiles
tiles:
  %i = phi i64 [ 0, %entry ], [ %i.next, %tiles ]
  %r = call i64 @llvm.umin.i64(i64 %i, i64 %last)
  %skip = mul i64 %r, %step
  %x.at = getelementptr i8, ptr %x, i64 %skip
{calls}  %i.next = add i64 %i, {VECTORS * w.width}
  %more = icmp ult i64 %i.next, %rows
  br i1 %more, label %tiles, label %done
{_one_by_one(w, columns)}done:
  ret void
}}
"""


def _one_by_one(w: Lanes, columns: int) -> str:
    """Lines that make the results of fewer rows than a tile has."""
    scalar = w.real
    return f"""singles:
  %s = phi i64 [ 0, %entry ], [ %s.next, %row.end ]
  %s.more = icmp ult i64 %s, %rows
  br i1 %s.more, label %row, label %done
row:
  %c = phi i64 [ 0, %singles ], [ %c.next, %element.end ]
  %c.more = icmp ult i64 %c, {columns}
  br i1 %c.more, label %element, label %row.end
element:
  %j = phi i64 [ 0, %row ], [ %j.next, %add ]
  %sum = phi {scalar} [ 0.0, %row ], [ %sum.next, %add ]
  %j.more = icmp ult i64 %j, %n
  br i1 %j.more, label %add, label %element.end
add:
  %xs.far = mul i64 %s, %step
  %xs.row = getelementptr i8, ptr %x, i64 %xs.far
  %xs.p = getelementptr {scalar}, ptr %xs.row, i64 %j
  %xs = load {scalar}, ptr %xs.p, align {w.size}
  %vs.far = mul i64 %j, %apart
  %vs.row = getelementptr i8, ptr %v, i64 %vs.far
  %vs.p = getelementptr {scalar}, ptr %vs.row, i64 %c
  %vs = load {scalar}, ptr %vs.p, align {w.size}
  %sum.next = call {scalar} @llvm.fmuladd.f{8 * w.size}({scalar} %xs, {scalar} %vs, {scalar} %sum)
  %j.next = add i64 %j, 1
  br label %element
element.end:
  %os.far = mul i64 %c, %column
  %os.column = getelementptr i8, ptr %out, i64 %os.far
  %os = getelementptr {scalar}, ptr %os.column, i64 %s
  store {scalar} %sum, ptr %os, align {w.size}
  %c.next = add i64 %c, 1
  br label %row
row.end:
  %s.next = add i64 %s, 1
  br label %singles
"""


def _tile(w: Lanes, columns: int) -> str:
    """@tile: `columns` columns of as many rows as `VECTORS` vectors have lanes, from row %r on.

    A square of elements is turned in registers, so that a vector has one element of each row.
    """
    v, groups, size = w.vector, range(VECTORS), w.size
    cells = [(g, c) for g in groups for c in range(columns)]
    starts = "".join(
        f"  %skip{k} = mul i64 %step, {k}\n  %x{k} = getelementptr i8, ptr %x, i64 %skip{k}\n"
        for k in range(VECTORS * w.width))
    ahead = "".join(
        f"  %line{b} = getelementptr i8, ptr %next, i64 {b}\n"
        f"  call void @llvm.prefetch.p0(ptr %line{b}, i32 0, i32 3, i32 1)\n"
        for b in range(0, VECTORS * w.width * w.width * size, CACHE_LINE))
    body, pv = _squares(w, columns)
    odd = _odd(w, columns)
    sums = "".join(f"  %a{g}_{c} = phi {v} [ zeroinitializer, %entry ], [ %a{g}_{c}.n, %body ]\n"
                   for g, c in cells)
    rest = "".join(f"  %a{g}_{c}.r = phi {v} [ %a{g}_{c}, %loop ], [ %a{g}_{c}.m, %one ]\n"
                   for g, c in cells)
    stored = "".join(
        f"  %of{g}_{c} = mul i64 %column, {c}\n"
        f"  %oc{g}_{c} = getelementptr i8, ptr %out, i64 %of{g}_{c}\n"
        f"  %or{g}_{c} = add i64 %r, {g * w.width}\n"
        f"  %op{g}_{c} = getelementptr {w.real}, ptr %oc{g}_{c}, i64 %or{g}_{c}\n"
        f"  store {v} %a{g}_{c}.r, ptr %op{g}_{c}, align {size}\n" for g, c in cells)
    return f"""define internal void @tile{columns}(ptr %x, ptr %v, ptr %out, i64 %r, i64 %n, i64 %step,
                                            i64 %apart, i64 %column) nounwind {{
entry:
{starts}  %whole = and i64 %n, -{w.width}
  %all = mul i64 %step, {VECTORS * w.width}
  %further = add i64 %all, {AHEAD}
  %soon = getelementptr i8, ptr %x, i64 %further
  br label %loop
loop:
  %j = phi i64 [ 0, %entry ], [ %j.next, %body ]
  %pv = phi ptr [ %v, %entry ], [ {pv}, %body ]
{sums}  %more = icmp ult i64 %j, %whole
  br i1 %more, label %body, label %odd
body:
  %used = mul i64 %j, {VECTORS * w.width * size}
  %next = getelementptr i8, ptr %soon, i64 %used
{ahead}{body}  %j.next = add i64 %j, {w.width}
  br label %loop
odd:
  %l = phi i64 [ %j, %loop ], [ %l.next, %one ]
  %pl = phi ptr [ %pv, %loop ], [ %pl.next, %one ]
{rest}  %left = icmp ult i64 %l, %n
  br i1 %left, label %one, label %end
one:
{odd}  %pl.next = getelementptr i8, ptr %pl, i64 %apart
  %l.next = add i64 %l, 1
  br label %odd
end:
{stored}  ret void
}}
"""


def _squares(w: Lanes, columns: int) -> tuple[str, str]:
    """Lines that add as many elements of each row as a vector has lanes, and where the matrix goes on."""
    body, pv = "", "%pv"
    for g in range(VECTORS):
        for k in range(w.width):
            row = g * w.width + k
            body += (f"  %p{row} = getelementptr {w.real}, ptr %x{row}, i64 %j\n"
                     f"  %e{g}.0.{k} = load {w.vector}, ptr %p{row}, align {w.size}\n")
        body += _turned(w, g)
    for u in range(w.width):
        before, after = (f".u{u - 1}" if u else ""), (f".u{u}" if u < w.width - 1 else ".n")
        elements = [f"%e{g}.{w.shift}.{u}" for g in range(VECTORS)]
        body += _column(w, columns, pv, f"u{u}", elements, before, after)
        body += f"  %pv{u} = getelementptr i8, ptr {pv}, i64 %apart\n"
        pv = f"%pv{u}"
    return body, pv


def _odd(w: Lanes, columns: int) -> str:
    """Lines that add one element of each row."""
    odd = ""
    for g in range(VECTORS):
        last = "poison"
        for k in range(w.width):
            row = g * w.width + k
            odd += (f"  %q{row} = getelementptr {w.real}, ptr %x{row}, i64 %l\n"
                    f"  %f{row} = load {w.real}, ptr %q{row}, align {w.size}\n"
                    f"  %g{row} = insertelement {w.vector} {last}, {w.real} %f{row}, i64 {k}\n")
            last = f"%g{row}"
    elements = [f"%g{g * w.width + w.width - 1}" for g in range(VECTORS)]
    return odd + _column(w, columns, "%pl", "o", elements, ".r", ".m")


def _turned(w: Lanes, g: int) -> str:
    """Lines that turn the square of elements of group `g`: %e`g`.0.row to %e`g`.`shift`.column."""
    text, n = "", w.width
    for level in range(w.shift):
        apart = 1 << level
        for k in range(n):
            low, high = f"%e{g}.{level}.{k & ~apart}", f"%e{g}.{level}.{k | apart}"
            lanes = [(i if k & apart == 0 else i | apart) if i & apart == 0 else
                     (n + (i & ~apart) if k & apart == 0 else n + i) for i in range(n)]
            text += (f"  %e{g}.{level + 1}.{k} = shufflevector {w.vector} {low}, {w.vector} {high}, "
                     f"<{n} x i32> <{', '.join(f'i32 {i}' for i in lanes)}>\n")
    return text


def _column(w: Lanes, columns: int, at: str, tag: str, elements: list[str], before: str, after: str) -> str:
    """Lines that add one element of each row times a row of the matrix to the sums."""
    text = ""
    for c in range(columns):
        name = f"%m{tag}_{c}"
        text += (f"  {name}.p = getelementptr {w.real}, ptr {at}, i64 {c}\n"
                 f"  {name}.s = load {w.real}, ptr {name}.p, align {w.size}\n"
                 f"  {name}.0 = insertelement {w.vector} poison, {w.real} {name}.s, i64 0\n"
                 f"  {name} = shufflevector {w.vector} {name}.0, {w.vector} poison, "
                 f"<{w.width} x i32> zeroinitializer\n")
        text += "".join(w.fma(f"%a{g}_{c}{after}", x, name, f"%a{g}_{c}{before}")
                        for g, x in enumerate(elements))
    return text


def _extreme(of: Order) -> str:
    """@k: for every row where it has its extreme, the first of several, a NaN before all others."""
    return "".join(_search(of, count) for count in (ABREAST, 1)) + _one(of) + f"""
define void @k(ptr %block, i64 %begin, i64 %end) nounwind {{
entry:
{head()}  %column = mul i64 %rows, {of.dtype.itemsize}
  %many = icmp uge i64 %rows, {ABREAST * of.width}
  %some = icmp uge i64 %rows, {of.width}
  %last.many = sub i64 %rows, {ABREAST * of.width}
  %last.some = sub i64 %rows, {of.width}
  br i1 %many, label %wide, label %less
wide:
  %i = phi i64 [ 0, %entry ], [ %i.next, %wide ]
  %r = call i64 @llvm.umin.i64(i64 %i, i64 %last.many)
  call void @search{ABREAST}(ptr %x, ptr %out, i64 %r, i64 %n, i64 %column)
  %i.next = add i64 %i, {ABREAST * of.width}
  %i.more = icmp ult i64 %i.next, %rows
  br i1 %i.more, label %wide, label %done
less:
  br i1 %some, label %vector, label %singles
vector:
  %k = phi i64 [ 0, %less ], [ %k.next, %vector ]
  %q = call i64 @llvm.umin.i64(i64 %k, i64 %last.some)
  call void @search1(ptr %x, ptr %out, i64 %q, i64 %n, i64 %column)
  %k.next = add i64 %k, {of.width}
  %k.more = icmp ult i64 %k.next, %rows
  br i1 %k.more, label %vector, label %done
singles:
  %s = phi i64 [ 0, %less ], [ %s.next, %single ]
  %s.more = icmp ult i64 %s, %rows
  br i1 %s.more, label %single, label %done
single:
  call void @one(ptr %x, ptr %out, i64 %s, i64 %n, i64 %column)
  %s.next = add i64 %s, 1
  br label %singles
done:
  ret void
}}
"""


_SEARCH = "ptr %x, ptr %out, i64 %r, i64 %n, i64 %column"


def _kept(of: Order, tag: str, kind: str, mask: str) -> str:
    """Lines of %stay: what was found is no worse than the element, or is NaN, and this one is not first."""
    worse = {"fcmp olt": "fcmp oge", "fcmp ogt": "fcmp ole"}[of.before]
    return (f"  %less{tag} = {worse} {kind} %e{tag}, %b{tag}\n"
            f"  %nan{tag} = fcmp uno {kind} %b{tag}, %b{tag}\n"
            f"  %stay{tag} = or {mask} %less{tag}, %nan{tag}\n")


def _search(of: Order, count: int) -> str:
    """@search: the rows of `count` vectors."""
    v, masks, size = of.vector, of.masks, of.dtype.itemsize
    ways = range(count)

    def load(k: int, name: str, column: str) -> str:
        return (f"  {name}.p = getelementptr {of.element}, ptr {column}, i64 {k * of.width}\n"
                f"  {name} = load {v}, ptr {name}.p, align {size}\n")

    phis = "".join(
        f"  %b{k} = phi {v} [ %first{k}, %entry ], [ %b{k}.next, %turn ]\n"
        f"  %at{k} = phi {masks} [ zeroinitializer, %entry ], [ %at{k}.next, %turn ]\n" for k in ways)
    turn = "".join(
        load(k, f"%e{k}", "%here") + _kept(of, str(k), v, of.lanes.mask)
        + f"  %b{k}.next = select {of.lanes.mask} %stay{k}, {v} %b{k}, {v} %e{k}\n"
          f"  %at{k}.next = select {of.lanes.mask} %stay{k}, {masks} %at{k}, {masks} %places\n" for k in ways)
    word = f"<{of.width} x i64>"
    ends = "".join(
        (f"  %w{k} = zext {masks} %at{k} to {word}\n" if of.index != "i64" else
         f"  %w{k} = add {word} %at{k}, zeroinitializer\n")
        + f"  %o.at{k} = add i64 %r, {k * of.width}\n  %o{k} = getelementptr i64, ptr %out, i64 %o.at{k}\n"
          f"  store {word} %w{k}, ptr %o{k}, align 8\n" for k in ways)
    return f"""define internal void @search{count}({_SEARCH}) nounwind {{
entry:
  %begin = getelementptr {of.element}, ptr %x, i64 %r
{"".join(load(k, f"%first{k}", "%begin") for k in ways)}  br label %loop
loop:
  %c = phi i64 [ 1, %entry ], [ %c.next, %turn ]
  %so.far = phi ptr [ %begin, %entry ], [ %here, %turn ]
  %places = phi {masks} [ splat ({of.index} 1), %entry ], [ %places.next, %turn ]
{phis}  %more = icmp ult i64 %c, %n
  br i1 %more, label %turn, label %end
turn:
  %here = getelementptr i8, ptr %so.far, i64 %column
{turn}  %places.next = add {masks} %places, splat ({of.index} 1)
  %c.next = add i64 %c, 1
  br label %loop
end:
{ends}  ret void
}}
"""


def _one(of: Order) -> str:
    """@one: one row, element by element."""
    kind, size = of.element, of.dtype.itemsize
    return f"""define internal void @one({_SEARCH}) nounwind {{
entry:
  %begin = getelementptr {kind}, ptr %x, i64 %r
  %first = load {kind}, ptr %begin, align {size}
  br label %loop
loop:
  %c = phi i64 [ 1, %entry ], [ %c.next, %turn ]
  %so.far = phi ptr [ %begin, %entry ], [ %here, %turn ]
  %b = phi {kind} [ %first, %entry ], [ %b.next, %turn ]
  %at = phi i64 [ 0, %entry ], [ %at.next, %turn ]
  %more = icmp ult i64 %c, %n
  br i1 %more, label %turn, label %end
turn:
  %here = getelementptr i8, ptr %so.far, i64 %column
  %e = load {kind}, ptr %here, align {size}
{_kept(of, "", kind, "i1")}  %b.next = select i1 %stay, {kind} %b, {kind} %e
  %at.next = select i1 %stay, i64 %at, i64 %c
  %c.next = add i64 %c, 1
  br label %loop
end:
  %o = getelementptr i64, ptr %out, i64 %r
  store i64 %at, ptr %o, align 8
  ret void
}}
"""
