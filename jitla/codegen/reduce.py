"""Skeletons of kernels with aggregates: over everything, along rows, down columns.

Knows: NumPy's order of summation, partial results and how they meet. Must not know: ops of cells.
Receives a `Loop`; returns IR text of functions whose results do not depend on the threads.
"""

from __future__ import annotations

from collections.abc import Sequence

from jitla.codegen.cell import COLD, NEXT, Writer, block_of_unit, elements, entry, span
from jitla.codegen.layout import BATCH, DEPTH, INNER, ROWS, Loop, Operand, seek, word
from jitla.codegen.scalar import BOOL, COMBINE, LlvmBuilder, MathCall, Value, identity

LEAF = 128  # terms NumPy adds with eight accumulators before it halves
AHEAD = 2048  # bytes: the tree's short loops keep the processor from seeing what comes
RUN = "ptr %ops, ptr %steps, i64 %start, i64 %n, ptr %res"
COLUMN_SPAN = (
    "ptr %ops, ptr %steps, ptr %rowsteps, i64 %row, i64 %rows, i64 %start, i64 %count"
)


def paired(loop: Loop) -> bool:
    """Tell whether an aggregate is a sum of floats, whose terms meet in NumPy's pairwise tree."""
    return any(o.hop.op.name == "sum" and o.dtype.kind == "f" for o in loop.aggregates)


def initial(op: Operand) -> object:
    """Return the value NumPy's reduction starts from, where it shows in the result."""
    start = identity(op.hop.op.name, op.dtype)
    return 0.0 if op.hop.op.name == "sum" else start


def _combine(b: LlvmBuilder, op: Operand, x: Value, y: Value) -> Value:
    result: Value = getattr(b, COMBINE[op.hop.op.name])(x, y)
    return result


def _slots(lines: list[str], name: str, base: str, count: int, size: int) -> list[str]:
    """Write the addresses of `count` slots of `size` bytes from `base` on."""
    for k in range(count):
        lines.append(f"  %{name}{k} = getelementptr i8, ptr {base}, i64 {size * k}")
    return [f"%{name}{k}" for k in range(count)]


def _merge(loop: Loop, into: str, left: str, right: str, prefix: str) -> list[str]:
    """Return lines that combine all aggregates at `left` and `right` into `into`."""
    lines: list[str] = []
    b = LlvmBuilder(lines, 1, prefix=prefix)
    n = len(loop.aggregates)
    targets = _slots(lines, prefix + "i", into, n, 8)
    lefts = _slots(lines, prefix + "l", left, n, 8)
    rights = _slots(lines, prefix + "r", right, n, 8)
    for k, op in enumerate(loop.aggregates):
        x, y = b.load(lefts[k], op.dtype), b.load(rights[k], op.dtype)
        b.store(_combine(b, op, x, y), targets[k])
    return lines


def _finish(loop: Loop, result: str, pointers: Sequence[str]) -> list[str]:
    """Return lines that store the aggregates at `result` to `pointers`, with the initial value."""
    lines: list[str] = []
    b = LlvmBuilder(lines, 1, prefix="f")
    slots = _slots(lines, "fin", result, len(loop.aggregates), 8)
    for k, op in enumerate(loop.aggregates):
        start = b.const(initial(op), op.dtype)
        b.store(_combine(b, op, start, b.load(slots[k], op.dtype)), pointers[k])
    return lines


def _leaf(loop: Loop, math: MathCall) -> str:
    """Return @leaf: the aggregates of `n` elements from `start`, with one vector accumulator each."""
    lanes, aggs = loop.lanes, loop.aggregates
    w = Writer(loop, lanes, math)
    lines = w.lines
    lines += [
        "entry:", f"  %thin = icmp ult i64 %n, {lanes}", "  br i1 %thin, label %few, label %many", "few:",
    ]
    b = LlvmBuilder(lines, 1, prefix="o")
    for slot, op in zip(_slots(lines, "r", "%res", len(aggs), 8), aggs, strict=True):
        b.store(b.const(identity(op.hop.op.name, op.dtype), op.dtype), slot)
    lines += ["  br label %ran", "many:", f"  %count = lshr i64 %n, {lanes.bit_length() - 1}"]
    w.begin()
    starts = [w.b.const(identity(op.hop.op.name, op.dtype), op.dtype) for op in aggs]
    ends = elements(w, "many", starts, AHEAD if paired(loop) else 0)
    for k, slot in enumerate(_slots(lines, "g", "%res", len(aggs), 8)):
        _fold(w.b, aggs[k], ends[k], slot)
    body = "\n".join(lines)
    return f"""define internal void @leaf({RUN}) {{
{body}
  br label %ran
ran:
  %rest = and i64 %n, {lanes - 1}
  %odd = icmp ne i64 %rest, 0
  br i1 %odd, label %tail, label %ready
tail:
  %whole = sub i64 %n, %rest
  %behind = add i64 %start, %whole
  call void @tail(ptr %ops, ptr %steps, i64 %behind, i64 %rest, ptr %res)
  br label %ready
ready:
  ret void
}}
"""


def _fold(b: LlvmBuilder, op: Operand, x: Value, target: str) -> None:
    """Write the reduction of a vector to one element: neighbours first, as NumPy does."""
    lines, k = b.lines, 0
    while b.width > 1:
        narrow = LlvmBuilder(lines, b.width // 2, prefix=f"h{op.word}.{k}.")
        even, odd = b.halves(x, narrow)
        x, b, k = _combine(narrow, op, even, odd), narrow, k + 1
    b.store(x, target)


def _tree(loop: Loop) -> str:
    """Return @tree: like @leaf, for any `n`, in NumPy's order."""
    n = len(loop.aggregates)
    merge = "\n".join(_merge(loop, "%res", "%res", "%right", "m"))
    return f"""define internal void @tree({RUN}) {{
entry:
  %right = alloca [{n} x i64], align 16
  %small = icmp ule i64 %n, {LEAF}
  br i1 %small, label %one, label %two
one:
  call void @leaf(ptr %ops, ptr %steps, i64 %start, i64 %n, ptr %res)
  ret void
two:
  %half = lshr i64 %n, 1
  %first = and i64 %half, -8
  %behind = add i64 %start, %first
  %second = sub i64 %n, %first
  call void @tree(ptr %ops, ptr %steps, i64 %start, i64 %first, ptr %res)
  call void @tree(ptr %ops, ptr %steps, i64 %behind, i64 %second, ptr %right)
{merge}
  ret void
}}
"""


def _parts(loop: Loop, math: MathCall) -> tuple[str, str]:
    """Return the functions below a kernel and the name of the one that reduces a run."""
    text = span(loop, "tail", 1, math) + _leaf(loop, math)
    return (text + _tree(loop), "tree") if paired(loop) else (text, "leaf")


def full_kernel(loop: Loop, math: MathCall) -> str:
    """Return the functions of a kernel with aggregates over everything.

    A unit is one subtree DEPTH splits below the root; its results go to the scratch memory, and
    @fin combines neighbours upwards.
    """
    parts, reducer = _parts(loop, math)
    n = len(loop.aggregates)
    head: list[str] = []
    word(head, "inner", "%geo", INNER)
    word(head, "depth", "%geo", DEPTH)
    word(head, "scratch", "%block", 6, "ptr")
    return f"""{parts}define void @k(ptr %block, i64 %begin, i64 %end) {COLD}{{
entry:
  %ops = getelementptr i64, ptr %block, i64 8
  %geo = getelementptr i64, ptr %block, i64 {loop.geometry_at}
  %steps = getelementptr i64, ptr %geo, i64 5
{chr(10).join(head)}
  %some = icmp ult i64 %begin, %end
  br i1 %some, label %unit, label %exit
unit:
  %u = phi i64 [ %begin, %entry ], [ %u.next, %found ]
  br label %descend
descend:
  %level = phi i64 [ %depth, %unit ], [ %below, %deeper ]
  %start = phi i64 [ 0, %unit ], [ %start.next, %deeper ]
  %n = phi i64 [ %inner, %unit ], [ %n.next, %deeper ]
  %there = icmp eq i64 %level, 0
  br i1 %there, label %found, label %deeper
deeper:
  %below = sub i64 %level, 1
  %half = lshr i64 %n, 1
  %first = and i64 %half, -8
  %behind = add i64 %start, %first
  %second = sub i64 %n, %first
  %bits = lshr i64 %u, %below
  %right = trunc i64 %bits to i1
  %start.next = select i1 %right, i64 %behind, i64 %start
  %n.next = select i1 %right, i64 %second, i64 %first
  br label %descend
found:
  %offset = mul i64 %u, {8 * n}
  %res = getelementptr i8, ptr %scratch, i64 %offset
  call void @{reducer}(ptr %ops, ptr %steps, i64 %start, i64 %n, ptr %res)
  %u.next = add i64 %u, 1
  %again = icmp ult i64 %u.next, %end
  br i1 %again, label %unit, label %exit
exit:
  ret void
}}
{_finish_kernel(loop)}"""


def _finish_kernel(loop: Loop) -> str:
    """Return @fin: combine the units' results two by two, then store them."""
    n = len(loop.aggregates)
    lines: list[str] = []
    word(lines, "units", "%block", 2)
    word(lines, "scratch", "%block", 6, "ptr")
    outs = [word(lines, f"out{k}", "%block", 8 + o.word, "ptr") for k, o in enumerate(loop.aggregates)]
    merge = "\n".join(_merge(loop, "%into", "%left", "%right", "m"))
    finish = "\n".join(_finish(loop, "%scratch", outs))
    return f"""define void @fin(ptr %block) {COLD}{{
entry:
{chr(10).join(lines)}
  br label %level
level:
  %count = phi i64 [ %units, %entry ], [ %pairs, %level.end ]
  %several = icmp ugt i64 %count, 1
  br i1 %several, label %pair.begin, label %done
pair.begin:
  %pairs = lshr i64 %count, 1
  br label %pair
pair:
  %i = phi i64 [ 0, %pair.begin ], [ %i.next, %pair ]
  %to = mul i64 %i, {8 * n}
  %from = mul i64 %i, {16 * n}
  %into = getelementptr i8, ptr %scratch, i64 %to
  %left = getelementptr i8, ptr %scratch, i64 %from
  %right = getelementptr i8, ptr %left, i64 {8 * n}
{merge}
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, %pairs
  br i1 %more, label %pair, label %level.end
level.end:
  br label %level
done:
{finish}
  ret void
}}
"""


def rows_kernel(loop: Loop, math: MathCall) -> str:
    """Return the functions of a kernel with aggregates along the last dimension; a unit is a row."""
    parts, reducer = _parts(loop, math)
    lines = entry(loop)
    lines.insert(2, f"  %res = alloca [{len(loop.aggregates)} x i64], align 16")
    lines += [
        "  %some = icmp ult i64 %begin, %end", "  br i1 %some, label %unit, label %exit", "unit:",
        "  %u = phi i64 [ %begin, %entry ], [ %u.next, %next ]",
    ]
    seek(lines, loop, "%u")
    lines.append(f"  call void @{reducer}(ptr %ops, ptr %steps, i64 0, i64 %inner, ptr %res)")
    outs = []
    for k, op in enumerate(loop.aggregates):
        lines.append(f"  %out{k} = load ptr, ptr %op{op.word}, align 8")
        outs.append(f"%out{k}")
    lines += _finish(loop, "%res", outs)
    return parts + "\n".join(lines) + "\n" + NEXT + "  ret void\n}\n"


def columns_kernel(loop: Loop, math: MathCall) -> str:
    """Return the functions of a kernel with aggregates over the first dimension.

    A unit is a block of columns. Rows are added one after the other, as NumPy does; a batch at a
    time, so that sums stay in registers between rows and memory is still read along the rows.
    """
    wide = _column_span(loop, "span", loop.lanes, math)
    parts = wide + _column_span(loop, "tail", 1, math)
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


def _column_span(loop: Loop, name: str, width: int, math: MathCall) -> str:
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
            f"  %yd{k} = mul i64 %row, %y{k}", f"  %py{k} = getelementptr i8, ptr {base}, i64 %yd{k}",
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
        pair = f"[ {accs[k].text}, %loop ], [ {ends[k].text}, %down ]"
        w.lines.insert(head, f"  %sofar{k} = phi {w.b.type(op.dtype)} {pair}")
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
    return f"define internal void @{name}({COLUMN_SPAN}) {{\n" + "\n".join(w.lines)


def _row_step(w: Writer, moving: Sequence[Operand]) -> list[Value]:
    """Write loads, body and stores of one row and return the new accumulators."""
    values = dict(w.fixed)
    for op in moving:
        if op.role == "in":
            at = f"%at{op.word}"
            values[op.hop] = w.b.splat(at, op.dtype) if op.letter == "b" else w.read(op, at)
    w.body(values)
    ends = [
        w.combine(op, Value(op.dtype, f"%sofar{k}"), values)
        for k, op in enumerate(w.loop.aggregates)
    ]
    for op in moving:
        if op.role == "out":
            w.write(op, values[op.hop], f"%at{op.word}")
    return ends
