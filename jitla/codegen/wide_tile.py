"""The tile of a product of rows with a panel of columns, as IR: its sums stay in registers.

Knows: vectors, registers. Must not know: where panels come from, how rows are shared out.
Receives lanes and the tile's height and width; returns a function.
"""

from __future__ import annotations

from jitla.codegen.lanes import Lanes

__all__ = ["TURNS", "tile"]

TURNS = 4  # elements of the rows per turn of the loop
TILE = "ptr %x, i64 %step, i64 %along, ptr %p, i64 %kc, ptr %o, i64 %apart, i1 %first, " \
    "i64 %far, ptr %soon, i64 %by"


def _step(
    w: Lanes, rows: int, vectors: int, tag: str, off: str, pointer: str, names: tuple[str, str]
) -> str:
    """Lines that add the products of one element of every row; `names` of sums before and after."""
    v, size, (before, after) = w.vector, w.width * w.size, names
    text = "".join(
        f"  %b{tag}{c}.p = getelementptr i8, ptr {pointer}, i64 {c * size}\n"
        f"  %b{tag}{c} = load {v}, ptr %b{tag}{c}.p, align {size}\n" for c in range(vectors))
    for r in range(rows):
        text += (f"  %e{tag}{r}.p = getelementptr i8, ptr %x{r}, i64 {off}\n"
                 f"  %e{tag}{r}.s = load {w.real}, ptr %e{tag}{r}.p, align {w.size}\n"
                 f"  %e{tag}{r}.0 = insertelement {v} poison, {w.real} %e{tag}{r}.s, i64 0\n"
                 f"  %e{tag}{r} = shufflevector {v} %e{tag}{r}.0, {v} poison, "
                 f"<{w.width} x i32> zeroinitializer\n")
        text += "".join(w.fma(f"%{after}{r}_{c}", f"%e{tag}{r}", f"%b{tag}{c}", f"%{before}{r}_{c}")
                        for c in range(vectors))
    return text


def _turns(w: Lanes, rows: int, vectors: int, fetches: bool) -> str:
    """Lines of one turn of the loop: some elements of every row, one after the other.

    If it `fetches`, what lies `far` behind its lines comes into the cache, whichever way the elements of a
    line go, along a row or across rows; and of what begins at `soon` a turn's share.
    """
    text, size = "", vectors * w.width * w.size
    if fetches:
        text = _fetch("%sp") + "".join(
            f"  %f{r} = getelementptr i8, ptr %x{r}, i64 %off{r % TURNS or ''}\n"
            f"  %g{r} = getelementptr i8, ptr %f{r}, i64 %far\n" + _fetch(f"%g{r}") for r in range(rows))
    for u in range(TURNS):
        names = ("a" if u == 0 else f"u{u - 1}x", "n" if u == TURNS - 1 else f"u{u}x")
        off = "%off" if u == 0 else f"%off{u}"
        text += f"  %pp{u} = getelementptr i8, ptr %pp, i64 {u * size}\n"
        text += _step(w, rows, vectors, f"u{u}_", off, f"%pp{u}", names)
    return "".join(f"  %off{u + 1} = add i64 %off{u or ''}, %along\n" for u in range(TURNS)) + text


def _fetch(at: str, writes: bool = False) -> str:
    return f"  call void @llvm.prefetch.p0(ptr {at}, i32 {int(writes)}, i32 3, i32 1)\n"


def tile(w: Lanes, rows: int, vectors: int, fetches: bool) -> str:
    """@tile: `rows` rows times one panel; sums are stored, or added to what is there."""
    cells = [(r, c) for r in range(rows) for c in range(vectors)]
    bytes_of, v = w.width * w.size, w.vector
    at = "".join(f"  %k{r} = mul i64 %step, {r}\n  %x{r} = getelementptr i8, ptr %x, i64 %k{r}\n"
                 f"  %q{r} = mul i64 %apart, {r}\n  %o{r} = getelementptr i8, ptr %o, i64 %q{r}\n"
                 for r in range(rows))

    asked = "".join(
        f"  %w{r}_{b} = getelementptr i8, ptr %o{r}, i64 {b}\n" + _fetch(f"%w{r}_{b}", True)
        for r in range(rows) for b in (0, vectors * bytes_of - 1)) if fetches else ""
    sums = "".join(f"  %a{r}_{c} = phi {v} [ zeroinitializer, %entry ], [ %n{r}_{c}, %body ]\n"
                   for r, c in cells)
    rest = "".join(f"  %r{r}_{c} = phi {v} [ %a{r}_{c}, %loop ], [ %m{r}_{c}, %one ]\n" for r, c in cells)
    places = "".join(f"  %d{r}_{c} = getelementptr i8, ptr %o{r}, i64 {c * bytes_of}\n" for r, c in cells)
    fresh = "".join(f"  store {v} %r{r}_{c}, ptr %d{r}_{c}, align {w.size}\n" for r, c in cells)
    added = "".join(f"  %h{r}_{c} = load {v}, ptr %d{r}_{c}, align {w.size}\n"
                    f"  %t{r}_{c} = fadd {v} %h{r}_{c}, %r{r}_{c}\n"
                    f"  store {v} %t{r}_{c}, ptr %d{r}_{c}, align {w.size}\n" for r, c in cells)
    return f"""define internal void @tile{vectors}_{rows}({TILE}) nounwind {{
entry:
{at}{asked}  %whole = and i64 %kc, -{TURNS}
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %k.next, %body ]
  %off = phi i64 [ 0, %entry ], [ %off{TURNS}, %body ]
  %pp = phi ptr [ %p, %entry ], [ %pp.next, %body ]
  %sp = phi ptr [ %soon, %entry ], [ %sp.next, %body ]
{sums}  %more = icmp slt i64 %k, %whole
  br i1 %more, label %body, label %odd
body:
{_turns(w, rows, vectors, fetches)}  %pp.next = getelementptr i8, ptr %pp, i64 {TURNS * vectors * bytes_of}
  %sp.next = getelementptr i8, ptr %sp, i64 %by
  %k.next = add i64 %k, {TURNS}
  br label %loop
odd:
  %l = phi i64 [ %k, %loop ], [ %l.next, %one ]
  %offl = phi i64 [ %off, %loop ], [ %offl.next, %one ]
  %pl = phi ptr [ %pp, %loop ], [ %pl.next, %one ]
{rest}  %left = icmp slt i64 %l, %kc
  br i1 %left, label %one, label %end
one:
{_step(w, rows, vectors, "z", "%offl", "%pl", ("r", "m"))}\
  %pl.next = getelementptr i8, ptr %pl, i64 {vectors * bytes_of}
  %offl.next = add i64 %offl, %along
  %l.next = add i64 %l, 1
  br label %odd
end:
{places}  br i1 %first, label %fresh, label %added
fresh:
{fresh}  ret void
added:
{added}  ret void
}}
"""
