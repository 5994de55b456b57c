"""Products of a block of rows with a narrow matrix, as IR: a row of results per row, and rank-one sums.

Knows: vectors, registers. Must not know: argument blocks, how rows are cut into blocks.
Receives lanes and the number of columns; returns passes over the rows, and the functions they call.

Lanes are neighbouring columns; an element of the rows is in all of them. Several rows times several
vectors of columns stay in registers; what does not fit there is done in further passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from jitla.classes import dataclass
from jitla.codegen.lanes import Lanes
from jitla.codegen.passes import AHEAD, CACHE_LINE, SPAN, Pass, fetch_ahead

__all__ = ["skinny_dot", "skinny_sum"]

# Rows at once for so many vectors of columns, and fewer, for what is left: twelve sums are held at most.
ROWS_OF_DOT = {1: (8, 1), 2: (4, 1), 3: (4, 1)}
ELEMENTS_OF_SUM = {1: (8, 4, 1), 2: (6, 4, 1), 3: (4, 2, 1)}
SECOND_LEVEL = 2  # where the next block of rows is fetched to: the first level holds this one


@dataclass(frozen=True, slots=True)
class _Piece:
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


def _groups(w: Lanes, columns: int) -> Iterator[tuple[int, tuple[_Piece, ...]]]:
    """Share the columns out: vectors that are held at once, as evenly as can be, and their first."""
    most, vectors = max(ROWS_OF_DOT), -(-columns // w.width)
    parts = -(-vectors // most)
    for k in range(parts):
        first, end = vectors * k // parts * w.width, vectors * (k + 1) // parts * w.width
        pieces = [_Piece(w, at, w.width) for at in range(0, end - first, w.width)]
        rest = columns % w.width
        if rest and end > columns:
            narrow = rest if rest & rest - 1 == 0 else w.width
            pieces[-1] = _Piece(Lanes(w.real, w.size, narrow), pieces[-1].at, rest)
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
    pieces: tuple[_Piece, ...]
    columns: int
    rows: int

    @property
    def turns(self) -> int:
        """Elements of a row that one turn of the loop takes: of all rows, a cache line at least."""
        return max(CACHE_LINE // (self.rows * self.w.size), 1)

    def cells(self) -> Iterator[tuple[int, int, _Piece]]:
        """Rows times vectors."""
        for k in range(self.rows):
            for c, piece in enumerate(self.pieces):
                yield k, c, piece

    def starts(self) -> str:
        """Lines that find the rows, and what comes behind them."""
        return "".join(
            f"  %at{k} = add i64 %i, {k}\n  %skip{k} = mul i64 %at{k}, %step\n"
            f"  %x{k} = getelementptr i8, ptr %x, i64 %skip{k}\n" for k in range(self.rows)
        ) + (f"  %whole = sub i64 %n, {self.turns - 1}\n"
             f"  %all = mul i64 %step, {self.rows}\n  %further = add i64 %all, {AHEAD}\n"
             f"  %soon = getelementptr i8, ptr %x0, i64 %further\n")

    def ahead(self) -> str:
        """Lines that fetch as much of what comes next as this turn of the loop uses up."""
        if self.rows == 1:
            return ""
        return fetch_ahead(self.rows * self.w.size, self.turns)

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
    for u in range(of.turns):
        after = "n" if u == of.turns - 1 else f"u{u}x"
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
  %pv = phi ptr [ %v, %entry ], [ %pv{of.turns}, %body ]
{sums}  %more = icmp slt i64 %j, %whole
  br i1 %more, label %body, label %odd
body:
{of.ahead()}{turns}  %j.next = add i64 %j, {of.turns}
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
