"""The skeleton of kernels with aggregates down the columns.

Knows: NumPy's order, row after row. Must not know: what is computed.
Receives a `Loop`; returns IR text of functions whose results do not depend on the threads.
"""

from __future__ import annotations

from collections.abc import Sequence

from jitla.codegen.cell import NEXT, block_of_unit, entry
from jitla.codegen.layout import BATCH, PLAIN, ROWS, Loop, Operand, word
from jitla.codegen.reduce import initial
from jitla.codegen.scalar import LlvmBuilder, MathCall
from jitla.codegen.span import Writer
from jitla.codegen.vector import BOOL, Value, named

COLUMN_SPAN = (
    "ptr %ops, ptr %steps, ptr %rowsteps, i64 %row, i64 %rows, i64 %start, i64 %count"
)


def columns_kernel(loop: Loop, math: MathCall) -> str:
    """Return the functions of a kernel with aggregates over the first dimension.

    A unit is a block of columns. Rows are added one after the other, as NumPy does; a batch at a
    time, so that sums stay in registers between rows and memory is still read along the rows.
    """
    wide = _column_span(loop, "span", loop.lanes, math, PLAIN if loop.calls else "")
    parts = wide + _column_span(loop, "tail", 1, math, PLAIN)
    lines = entry(loop)
    word(lines, "height", "%geo", ROWS)
    word(lines, "batch", "%geo", BATCH)
    lines.append(f"  %rowsteps = getelementptr i64, ptr %geo, i64 {loop.row_steps_at}")
    block_of_unit(lines, loop)
    lines += [
        f"  %vectors = lshr i64 %len, {loop.lanes.bit_length() - 1}",
        f"  %rest = and i64 %len, {loop.lanes - 1}", "  %whole = sub i64 %len, %rest",
        "  %behind = add i64 %from, %whole", "  %wide = icmp ne i64 %vectors, 0",
        "  %odd = icmp ne i64 %rest, 0",
    ]
    fill = "\n".join(_fill(loop))
    span_args = "ptr %ops, ptr %steps, ptr %rowsteps, i64 %r, i64 %now"
    text = f"""  %none = icmp eq i64 %height, 0
  %blanks = select i1 %none, i64 %len, i64 0
  br label %fill
fill:
  %j = phi i64 [ 0, %unit ], [ %j.next, %filled ]
  %filling = icmp ult i64 %j, %blanks
  br i1 %filling, label %filled, label %rows
filled:
{fill}
  %j.next = add i64 %j, 1
  br label %fill
rows:
  %r = phi i64 [ 0, %fill ], [ %r.next, %ready ]
  %ahead = sub i64 %height, %r
  %now = call i64 @llvm.umin.i64(i64 %ahead, i64 %batch)
  %going = icmp ne i64 %now, 0
  br i1 %going, label %go, label %next
go:
  br i1 %wide, label %run, label %ran
run:
  call void @span({span_args}, i64 %from, i64 %vectors)
  br label %ran
ran:
  br i1 %odd, label %tail, label %ready
tail:
  call void @tail({span_args}, i64 %behind, i64 %rest)
  br label %ready
ready:
  %r.next = add i64 %r, %now
  br label %rows
"""
    return parts + "\n".join(lines) + "\n" + text + NEXT.replace("  br label %next\n", "", 1) + \
        "  ret void\n}\n"


def _fill(loop: Loop) -> list[str]:
    """Return lines that store the initial values of column %from + %j."""
    lines = ["  %column = add i64 %from, %j"]
    b = LlvmBuilder(lines, 1, prefix="z")
    for op in loop.aggregates:
        k = op.word
        word(lines, f"zs{k}", "%steps", k)
        lines += [
            f"  %zp{k} = load ptr, ptr %op{k}, align 8", f"  %zd{k} = mul i64 %column, %zs{k}",
            f"  %zq{k} = getelementptr i8, ptr %zp{k}, i64 %zd{k}",
        ]
        b.store(b.const(initial(op), op.dtype), f"%zq{k}")
    return lines


def _column_span(loop: Loop, name: str, width: int, math: MathCall, how: str) -> str:
    """Return a function that adds `rows` rows from `row` on to `count` columns from `start` on."""
    w = Writer(loop, width, math)
    w.lines.append("entry:")
    w.begin(varying="b")
    moving = [o for o in loop.operands if o.letter != "v" and o.role != "agg"]
    for op in moving:
        k = op.word
        word(w.lines, f"y{k}", "%rowsteps", k)
        base = f"%p{k}.0" if op.letter == "b" else f"%p{k}"
        w.lines += [
            f"  %yd{k} = mul i64 %row, %y{k}",
            f"  %py{k} = getelementptr i8, ptr {base}, i64 %yd{k}",
        ]
    w.lines += [
        f"  %total = mul i64 %count, {width}", "  %first = icmp eq i64 %row, 0",
        f"  %fresh.0 = insertelement <{width} x i1> poison, i1 %first, i64 0",
        f"  %fresh = shufflevector <{width} x i1> %fresh.0, <{width} x i1> poison, "
        f"<{width} x i32> zeroinitializer",
        "  br label %loop", "loop:",
        "  %i = phi i64 [ 0, %entry ], [ %i.next, %down.end ]",
    ]
    ats = [w.pointer(op, f"%p{op.word}", "g") for op in loop.aggregates]
    accs = []
    for op, at in zip(loop.aggregates, ats, strict=True):
        start = w.b.const(initial(op), op.dtype)
        accs.append(w.b.select(Value(BOOL, "%fresh"), start, w.read(op, at)))
    bases = {op: f"%py{op.word}" if op.letter == "b" else w.pointer(op, f"%py{op.word}", "x")
             for op in moving}
    w.lines += ["  br label %down", "down:", "  %r = phi i64 [ 0, %loop ], [ %r.next, %down ]"]
    head = len(w.lines)
    ends = _row_step(w, moving)
    for k, op in enumerate(loop.aggregates):
        w.lines[head:head] = w.b.phi(f"%sofar{k}", (accs[k], "loop"), (ends[k], "down"))
    for op, base in bases.items():
        k = op.word
        pair = f"[ {base}, %loop ], [ %at{k}.next, %down ]"
        w.lines.insert(head, f"  %at{k} = phi ptr {pair}")
        w.lines.append(f"  %at{k}.next = getelementptr i8, ptr %at{k}, i64 %y{k}")
    w.lines += [
        "  %r.next = add i64 %r, 1", "  %lower = icmp ult i64 %r.next, %rows",
        "  br i1 %lower, label %down, label %down.end", "down.end:",
    ]
    for op, at, end in zip(loop.aggregates, ats, ends, strict=True):
        w.write(op, end, at)
    w.lines += [
        f"  %i.next = add i64 %i, {width}", "  %more = icmp ult i64 %i.next, %total",
        "  br i1 %more, label %loop, label %done", "done:", "  ret void", "}", "",
    ]
    return f"define internal void @{name}({COLUMN_SPAN}) {how}{{\n" + "\n".join(w.lines)


def _row_step(w: Writer, moving: Sequence[Operand]) -> list[Value]:
    """Write loads, body and stores of one row and return the new accumulators."""
    values = dict(w.fixed)
    for op in moving:
        if op.role == "in":
            at = f"%at{op.word}"
            values[op.hop] = w.b.splat(at, op.dtype) if op.letter == "b" else w.read(op, at)
    w.body(values)
    ends = [
        w.combine(op, named(op.dtype, f"%sofar{k}"), values)
        for k, op in enumerate(w.loop.aggregates)
    ]
    for op in moving:
        if op.role == "out":
            w.write(op, values[op.hop], f"%at{op.word}")
    return ends
