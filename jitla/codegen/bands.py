"""The skeleton of rows of cells: several rows that lie evenly apart, one after the other.

Knows: rows begin anywhere in a cache line, and most are no whole number of vectors. Must not know: what
is computed, units, the block. Receives a `Loop`; returns IR text of functions that run some of its rows.
"""

from __future__ import annotations

from jitla.codegen.layout import COLD, Loop, word
from jitla.codegen.scalar import MathCall
from jitla.codegen.span import Writer
from jitla.codegen.vector import Value
from jitla.hops import Hop

BAND = "ptr %ops, ptr %steps, ptr %apart, i64 %start, i64 %len, i64 %count"


def bands(loop: Loop, math: MathCall) -> str:
    """Return @band, which runs `len` elements from `start` of `count` rows, `apart` bytes each."""
    args = "ptr %ops, ptr %steps, ptr %apart, i64 %start, i64 %len, i64 %count"
    text = f"""define internal void @band({BAND}) {COLD}{{
entry:
  %wide = icmp uge i64 %len, {loop.lanes}
  br i1 %wide, label %vectors, label %elements
vectors:
  call void @wide({args})
  ret void
elements:
  call void @narrow({args})
  ret void
}}
"""
    return _rows(loop, "wide", loop.lanes, math) + _rows(loop, "narrow", 1, math) + text


def apart(loop: Loop) -> list[str]:
    """Return lines that write %apart: how many bytes the rows of every operand lie apart."""
    lines: list[str] = []
    for op in loop.operands:
        step = "0" if op.letter == "v" else f"%step{op.word}.{loop.rank - 1}"
        lines += [
            f"  %apart{op.word} = getelementptr i64, ptr %apart, i64 {op.word}",
            f"  store i64 {step}, ptr %apart{op.word}, align 8",
        ]
    return lines


def _rows(loop: Loop, name: str, width: int, math: MathCall) -> str:
    """Return a function that takes rows of at least `width` elements in vectors of so many.

    The last vector of a row ends where the row does. What it begins with is computed twice, by it and
    by the vector before: it is read before anything is stored, so that rows may be overwritten.
    """
    w = Writer(loop, width, math)
    w.lines.append("entry:")
    w.begin(varying="b")
    arrays = [o for o in loop.operands if o.letter != "v"]
    for op in arrays:
        word(w.lines, f"by{op.word}", "%apart", op.word)
    w.lines += [
        f"  %last = sub i64 %len, {width}", "  %before = icmp ne i64 %last, 0", "  br label %row", "row:",
        "  %r = phi i64 [ 0, %entry ], [ %r.next, %stored ]",
    ]
    for op in arrays:
        k, first = op.word, f"%p{op.word}.0" if op.letter == "b" else f"%p{op.word}"
        w.lines.append(f"  %at{k} = phi ptr [ {first}, %entry ], [ %at{k}.next, %stored ]")
    fixed = dict(w.fixed)
    for op in arrays:
        if op.letter == "b":
            fixed[op.hop] = w.b.splat(f"%at{op.word}", op.dtype)
    ends = _vector(w, fixed, "last", "%last")
    w.lines += [
        "  br i1 %before, label %loop, label %stored", "loop:",
        "  %i = phi i64 [ 0, %row ], [ %i.next, %loop ]",
    ]
    _store(w, _vector(w, fixed, "some", "%i"), "some", "%i")
    w.lines += [
        f"  %i.next = add i64 %i, {width}", "  %more = icmp ult i64 %i.next, %last",
        "  br i1 %more, label %loop, label %stored", "stored:",
    ]
    _store(w, ends, "last", "%last")
    for op in arrays:
        w.lines.append(f"  %at{op.word}.next = getelementptr i8, ptr %at{op.word}, i64 %by{op.word}")
    body = "\n".join(w.lines)
    return f"""define internal void @{name}({BAND}) {{
{body}
  %r.next = add i64 %r, 1
  %again = icmp ult i64 %r.next, %count
  br i1 %again, label %row, label %done
done:
  ret void
}}
"""


def _vector(w: Writer, fixed: dict[Hop, Value], name: str, index: str) -> dict[Hop, Value]:
    """Write loads and cells of the elements from `index` on; return every value."""
    values = dict(fixed)
    for op in w.loop.operands:
        if op.role == "in" and op.walks:
            values[op.hop] = w.read(op, w.pointer(op, f"%at{op.word}", name, index))
    w.body(values)
    return values


def _store(w: Writer, values: dict[Hop, Value], name: str, index: str) -> None:
    """Write the stores of the elements from `index` on."""
    for op in w.loop.operands:
        if op.role == "out":
            w.write(op, values[op.hop], w.pointer(op, f"%at{op.word}", f"{name}.to", index))
