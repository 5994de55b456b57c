"""The skeleton of rows of cells: several rows that lie evenly apart, one after the other.

Knows: rows begin anywhere in a cache line, and most are no whole number of vectors. Must not know: what
is computed, units, the block. Receives a `Loop`; returns IR text of functions that run some of its rows.
"""

from __future__ import annotations

from jitla.codegen.layout import COLD, Loop, Operand, word
from jitla.codegen.scalar import MathCall
from jitla.codegen.span import Writer, chosen, early, gapped
from jitla.codegen.vector import Value, memory_type
from jitla.hops import Hop

BAND = "ptr %ops, ptr %steps, ptr %apart, i64 %start, i64 %len, i64 %count"
#: What else @band is handed if beside its own rows it copies others, of results: where the first lies and
#: goes, its elements, how far apart they go, how many elements behind its own it is, and how many bytes
#: from there the memory lies that is needed next.
BESIDE = ", ptr %from, ptr %to, i64 %long, i64 %far, i64 %lag, i64 %ahead"
# The C library's memcpy moves rows of this length in microcode, at half the speed on some processors. The
# last vector ends where the row does: what lies in two is stored twice.
COPY = """define internal void @copy(ptr %to, ptr %from, i64 %bytes) {
entry:
  %long = icmp uge i64 %bytes, 32
  br i1 %long, label %loop, label %short
loop:
  %i = phi i64 [ 0, %entry ], [ %i.next, %loop ]
  %near = getelementptr i8, ptr %from, i64 %i
  %far = getelementptr i8, ptr %to, i64 %i
  %some = load <32 x i8>, ptr %near, align 1
  store <32 x i8> %some, ptr %far, align 1
  %i.next = add i64 %i, 32
  %behind = add i64 %i, 64
  %more = icmp ule i64 %behind, %bytes
  br i1 %more, label %loop, label %rest
rest:
  %last = sub i64 %bytes, 32
  %near.last = getelementptr i8, ptr %from, i64 %last
  %far.last = getelementptr i8, ptr %to, i64 %last
  %end = load <32 x i8>, ptr %near.last, align 1
  store <32 x i8> %end, ptr %far.last, align 1
  ret void
short:
  %any = icmp ne i64 %bytes, 0
  br i1 %any, label %single, label %done
single:
  %k = phi i64 [ 0, %short ], [ %k.next, %single ]
  %near.k = getelementptr i8, ptr %from, i64 %k
  %far.k = getelementptr i8, ptr %to, i64 %k
  %byte = load i8, ptr %near.k, align 1
  store i8 %byte, ptr %far.k, align 1
  %k.next = add i64 %k, 1
  %again = icmp ult i64 %k.next, %bytes
  br i1 %again, label %single, label %done
done:
  ret void
}
"""


def bands(loop: Loop, math: MathCall) -> str:
    """Return @band, which runs `len` elements from `start` of `count` rows, `apart` bytes each.

    If results are stored late, it also stores as many rows that were computed before, if they may be
    overwritten up to `lag` elements, a whole number of vectors, before the one that is computed.
    """
    args = BAND + (BESIDE if loop.schedule.delayed else "")
    text = f"""define internal void @band({args}) {COLD}{{
entry:
  %wide = icmp uge i64 %len, {loop.lanes}
  br i1 %wide, label %vectors, label %elements
vectors:
  call void @{"vectors" if gapped(loop) else "wide"}({args})
  ret void
elements:
  call void @narrow({args})
  ret void
}}
"""
    both = _rows(loop, "wide", loop.lanes, math) + _rows(loop, "narrow", 1, math)
    if gapped(loop):
        text += chosen(loop, "vectors", args, "wide")
        both += _rows(loop, "halves", loop.lanes, math, halves=True)
    return (COPY if loop.schedule.delayed else "") + both + text


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


def _rows(loop: Loop, name: str, width: int, math: MathCall, halves: bool = False) -> str:
    """Return a function that takes rows of at least `width` elements in vectors of so many.

    The last vector of a row ends where the row does. What it begins with is computed twice, by it and
    by the vector before: it is read before anything is stored, so that rows may be overwritten.
    """
    w = Writer(loop, width, math, halves=halves)
    w.lines.append("entry:")
    w.begin(varying="b")
    arrays, late = [o for o in loop.operands if o.letter not in "vt"], loop.schedule.delayed
    for op in arrays:
        word(w.lines, f"by{op.word}", "%apart", op.word)
    w.lines += [
        f"  %last = sub i64 %len, {width}", "  %before = icmp ne i64 %last, 0", "  br label %row", "row:",
        "  %r = phi i64 [ 0, %entry ], [ %r.next, %stored ]",
    ]
    for op in arrays:
        k, first = op.word, f"%p{op.word}.0" if op.letter == "b" else f"%p{op.word}"
        w.lines.append(f"  %at{k} = phi ptr [ {first}, %entry ], [ %at{k}.next, %stored ]")
    if late:
        w.lines += [f"  %{k} = phi ptr [ %{v}, %entry ], [ %{k}.next, %stored ]"
                    for k, v in (("ready", "from"), ("home", "to"))]
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
    if late:
        w.lines += _beside(arrays[-1], width)
    w.lines += [
        f"  %i.next = add i64 %i, {width}", "  %more = icmp ult i64 %i.next, %last",
        "  br i1 %more, label %loop, label %stored", "stored:",
    ]
    if late:
        w.lines.append("  %run = phi i64 [ 0, %row ], [ %i.next, %loop ]")
    _store(w, ends, "last", "%last")
    if late:
        w.lines += _rest(arrays[-1])
    for op in arrays:
        w.lines.append(f"  %at{op.word}.next = getelementptr i8, ptr %at{op.word}, i64 %by{op.word}")
    body = "\n".join(w.lines)
    return f"""define internal void @{name}({BAND}{BESIDE if late else ""}) {{
{body}
  %r.next = add i64 %r, 1
  %again = icmp ult i64 %r.next, %count
  br i1 %again, label %row, label %done
done:
  ret void
}}
"""


def _beside(out: Operand, width: int) -> list[str]:
    """Return the copy of the vector that now may be overwritten; none yet: of one onto itself."""
    kind, size = memory_type(out.dtype), out.dtype.itemsize
    vec = f"<{width * size} x i8>"
    return [
        "  %free = icmp uge i64 %i, %lag", "  %i.before = sub i64 %i, %lag",
        "  %c = select i1 %free, i64 %i.before, i64 %i", "  %there = select i1 %free, ptr %home, ptr %ready",
        f"  %c.from = getelementptr {kind}, ptr %ready, i64 %c",
        f"  %c.to = getelementptr {kind}, ptr %there, i64 %c",
        f"  %c.some = load {vec}, ptr %c.from, align 1", f"  store {vec} %c.some, ptr %c.to, align 1",
        f"  %c.next = getelementptr {kind}, ptr %home, i64 %i",
        "  %c.ahead = getelementptr i8, ptr %c.next, i64 %ahead",
        "  call void @llvm.prefetch.p0(ptr %c.ahead, i32 0, i32 3, i32 1)",
    ]


def _rest(out: Operand) -> list[str]:
    """Return the copy of what is left of a row, and the move to the next one."""
    kind, size = memory_type(out.dtype), out.dtype.itemsize
    return [
        "  %begun = call i64 @llvm.umax.i64(i64 %run, i64 %lag)", "  %copied = sub i64 %begun, %lag",
        f"  %d.from = getelementptr {kind}, ptr %ready, i64 %copied",
        f"  %d.to = getelementptr {kind}, ptr %home, i64 %copied", "  %left = sub i64 %long, %copied",
        f"  %left.bytes = mul i64 %left, {size}",
        "  call void @copy(ptr %d.to, ptr %d.from, i64 %left.bytes)",
        f"  %ready.next = getelementptr i8, ptr %ready, i64 %by{out.word}",
        "  %home.next = getelementptr i8, ptr %home, i64 %far",
    ]


def _vector(w: Writer, fixed: dict[Hop, Value], name: str, index: str) -> dict[Hop, Value]:
    """Write loads and cells of the elements from `index` on; return every value."""
    values, ahead = dict(fixed), early(w.loop)
    for op in w.loop.operands:
        if op.role == "in" and op.walks:
            at = w.pointer(op, f"%at{op.word}", name, index)
            values[op.hop] = w.read(op, at)
            if index == "%i" and op.word in ahead:
                w.prefetch(op, at, ahead[op.word])
    w.body(values)
    return values


def _store(w: Writer, values: dict[Hop, Value], name: str, index: str) -> None:
    """Write the stores of the elements from `index` on."""
    for op in w.loop.operands:
        if op.role == "out":
            w.write(op, values[op.hop], w.pointer(op, f"%at{op.word}", f"{name}.to", index))
