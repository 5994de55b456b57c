"""Operands that do not lie in one run, laid out for a stretch of a total's flat order at a time.

Knows: rows, their repetition and their gaps, buffers of a few hundred elements. Must not know: ops.
Receives a `Loop`; returns IR text around a leaf that sees every operand as one contiguous run.
"""

from __future__ import annotations

from dataclasses import replace

from jitla.codegen.layout import GEOMETRY, HEADER, STEP, Loop, Operand, word
from jitla.codegen.vector import memory_type

WRAP = 512  # elements of the longest row that is kept with its beginning repeated behind its end
FILL = "ptr %ops, ptr %geo, i64 %row, i64 %column, i64 %n"
RUN = "ptr %ops, ptr %steps, i64 %start, i64 %n, ptr %res"

# %ops has three words per operand here: where the leaf finds element 0, the operand itself, its buffer.


def gathered(loop: Loop) -> tuple[Operand, ...]:
    """Return the operands that are laid out in buffers."""
    return tuple(o for o in loop.operands if o.role == "in" and o.letter in "rcbs")


def flattened(loop: Loop) -> Loop:
    """Return the loop that the leaf runs: every array is one contiguous run."""
    flat = (replace(o, letter="c") if o.letter in "frcbs" and o.role != "agg" else o
            for o in loop.operands)
    return replace(loop, operands=tuple(flat))


def frame(loop: Loop, limit: int) -> list[str]:
    """Return lines that write %ops for stretches of up to `limit` elements, short rows repeated."""
    n = len(loop.operands)
    lines = [
        f"  %ops = alloca [{3 * n} x i64], align 16",
        f"  %geo = getelementptr i64, ptr %block, i64 {loop.geometry_at}",
        f"  %steps = getelementptr i64, ptr %geo, i64 {GEOMETRY}",
    ]
    for op in loop.operands:
        k = op.word
        value = word(lines, f"given{k}", "%block", HEADER + k)
        for at in (k, n + k):
            lines.append(f"  %ops{at} = getelementptr i64, ptr %ops, i64 {at}")
            lines.append(f"  store i64 {value}, ptr %ops{at}, align 8")
    length = word(lines, "length", "%geo", STEP)
    lines += [
        f"  %wraps = icmp ule i64 {length}, {WRAP}", f"  %around = add i64 {length}, {limit}",
        "  %ahead = select i1 %wraps, i64 %around, i64 0",
    ]
    for op in gathered(loop):
        k, spare = op.word, loop.target.lanes(op.dtype.itemsize)
        size = limit + spare + (WRAP if op.letter == "r" else 0)
        lines += [
            f"  %buffer{k} = alloca [{size} x {memory_type(op.dtype)}], align 64",
            f"  %buffer{k}.at = getelementptr i64, ptr %ops, i64 {2 * n + k}",
            f"  store ptr %buffer{k}, ptr %buffer{k}.at, align 8",
        ]
        if op.letter == "r":
            lines.append(f"  call void @fill{k}(ptr %ops, ptr %geo, i64 0, i64 0, i64 %ahead)")
    return lines


def gather(loop: Loop) -> str:
    """Return @gathered, which runs @leaf on a stretch of the flat order, and what it calls."""
    n = len(loop.operands)
    lines = [
        f"  %geo = getelementptr i64, ptr %steps, i64 -{GEOMETRY}",
    ]
    length = word(lines, "length", "%geo", STEP)
    lines += [
        f"  %row = udiv i64 %start, {length}", f"  %whole = mul i64 %row, {length}",
        "  %column = sub i64 %start, %whole", "  %last = add i64 %column, %n",
        f"  %inside = icmp ule i64 %last, {length}", f"  %wraps = icmp ule i64 {length}, {WRAP}",
        "  %repeated = or i1 %inside, %wraps", "  %back = sub i64 0, %start",
    ]
    for op in gathered(loop):
        k = op.word
        word(lines, f"own{k}", "%ops", n + k, "ptr")
        word(lines, f"buffer{k}", "%ops", 2 * n + k, "ptr")
        at = _found(lines, loop, op)
        lines += [
            f"  %zero{k} = getelementptr {memory_type(op.dtype)}, ptr {at}, i64 %back",
            f"  %op{k} = getelementptr i64, ptr %ops, i64 {k}",
            f"  store ptr %zero{k}, ptr %op{k}, align 8",
        ]
    text = "".join(_fill(loop, op) for op in gathered(loop))
    body = "\n".join(lines)
    return f"""{text}define internal void @gathered({RUN}) {{
entry:
{body}
  call void @leaf(ptr %ops, ptr %steps, i64 %start, i64 %n, ptr %res)
  ret void
}}
"""


def _found(lines: list[str], loop: Loop, op: Operand) -> str:
    """Write the address of the stretch of `op`: where it lies, if in one run, else its buffer."""
    k, kind = op.word, memory_type(op.dtype)
    fill = f"  call void @fill{k}(ptr %ops, ptr %geo, i64 %row, i64 %column, i64 %n)"
    if op.letter in "bs":
        lines.append(fill)
        return f"%buffer{k}"
    test = "repeated" if op.letter == "r" else "inside"
    lines += [f"  br i1 %{test}, label %direct{k}, label %copy{k}", f"direct{k}:"]
    if op.letter == "r":
        line = f"%line{k}"
        lines.append(f"  {line} = select i1 %wraps, ptr %buffer{k}, ptr %own{k}")
    else:
        line = _line(lines, loop, op, f"%own{k}", "%row")
    lines += [
        f"  %there{k} = getelementptr {kind}, ptr {line}, i64 %column", f"  br label %ready{k}",
        f"copy{k}:", fill, f"  br label %ready{k}", f"ready{k}:",
        f"  %found{k} = phi ptr [ %there{k}, %direct{k} ], [ %buffer{k}, %copy{k} ]",
    ]
    return f"%found{k}"


def _line(lines: list[str], loop: Loop, op: Operand, base: str, row: str) -> str:
    """Write the address of row number `row` of `op`."""
    if op.letter == "r":
        return base
    k, rank = op.word, loop.rank
    table = loop.outer_at + rank * (1 + [o for o in loop.operands if o.letter != "v"].index(op))
    for d in range(rank - 1, -1, -1):
        at = row
        if d:
            size = word(lines, f"size{k}.{d}", "%geo", loop.outer_at + d)
            at = f"%at{k}.{d}"
            lines += [f"  {at} = urem i64 {row}, {size}", f"  {at}.up = udiv i64 {row}, {size}"]
            row = f"{at}.up"
        step = word(lines, f"step{k}.{d}", "%geo", table + d)
        lines += [
            f"  %move{k}.{d} = mul i64 {at}, {step}",
            f"  %base{k}.{d} = getelementptr i8, ptr {base}, i64 %move{k}.{d}",
        ]
        base = f"%base{k}.{d}"
    return base


def _fill(loop: Loop, op: Operand) -> str:
    """Return @fill: copy `n` elements of `op` to its buffer, from `column` of `row` on."""
    n, k, kind = len(loop.operands), op.word, memory_type(op.dtype)
    head: list[str] = []
    base = word(head, "own", "%ops", n + k, "ptr")
    word(head, "to", "%ops", 2 * n + k, "ptr")
    word(head, "length", "%geo", STEP)
    word(head, "step", "%geo", GEOMETRY + k)
    piece: list[str] = []
    line = _line(piece, loop, op, base, "%r")
    copy = {"b": _splat, "s": _stride}.get(op.letter, _run)
    width = loop.target.lanes(op.dtype.itemsize)
    return f"""define internal void @fill{k}({FILL}) {{
entry:
{chr(10).join(head)}
  %some = icmp ne i64 %n, 0
  br i1 %some, label %piece, label %exit
piece:
  %r = phi i64 [ %row, %entry ], [ %r.next, %copied ]
  %c = phi i64 [ %column, %entry ], [ 0, %copied ]
  %done = phi i64 [ 0, %entry ], [ %done.next, %copied ]
{chr(10).join(piece)}
  %ahead = sub i64 %length, %c
  %left = sub i64 %n, %done
  %count = call i64 @llvm.umin.i64(i64 %ahead, i64 %left)
  %into = getelementptr {kind}, ptr %to, i64 %done
{copy(line, kind, width)}
copied:
  %done.next = add i64 %done, %count
  %r.next = add i64 %r, 1
  %more = icmp ult i64 %done.next, %n
  br i1 %more, label %piece, label %exit
exit:
  ret void
}}
"""


def _splat(line: str, kind: str, width: int) -> str:
    """Return code that stores one element `count` times, in vectors: the next piece covers what is over."""
    vector = f"<{width} x {kind}>"
    return f"""  %one = load {kind}, ptr {line}, align 1
  %first = insertelement {vector} poison, {kind} %one, i64 0
  %all = shufflevector {vector} %first, {vector} poison, <{width} x i32> zeroinitializer
  br label %store
store:
  %j = phi i64 [ 0, %piece ], [ %j.next, %store ]
  %target = getelementptr {kind}, ptr %into, i64 %j
  store {vector} %all, ptr %target, align 1
  %j.next = add i64 %j, {width}
  %again = icmp ult i64 %j.next, %count
  br i1 %again, label %store, label %copied"""


def _stride(line: str, kind: str, width: int) -> str:
    """Return code that copies `count` elements that lie %step bytes apart."""
    return f"""  %skip = mul i64 %c, %step
  %from = getelementptr i8, ptr {line}, i64 %skip
  br label %element
element:
  %j = phi i64 [ 0, %piece ], [ %j.next, %element ]
  %source.d = mul i64 %j, %step
  %source = getelementptr i8, ptr %from, i64 %source.d
  %target = getelementptr {kind}, ptr %into, i64 %j
  %x = load {kind}, ptr %source, align 1
  store {kind} %x, ptr %target, align 1
  %j.next = add i64 %j, 1
  %again = icmp ult i64 %j.next, %count
  br i1 %again, label %element, label %copied"""


def _run(line: str, kind: str, width: int) -> str:
    """Return code that copies `count` neighbours; the last vector overlaps the one before it."""
    vector = f"<{width} x {kind}>"
    return f"""  %from = getelementptr {kind}, ptr {line}, i64 %c
  %short = icmp ult i64 %count, {width}
  %last = sub i64 %count, {width}
  br i1 %short, label %element, label %vector
vector:
  %v = phi i64 [ 0, %piece ], [ %v.next, %vector ]
  %v.at = call i64 @llvm.umin.i64(i64 %v, i64 %last)
  %v.source = getelementptr {kind}, ptr %from, i64 %v.at
  %v.target = getelementptr {kind}, ptr %into, i64 %v.at
  %v.x = load {vector}, ptr %v.source, align 1
  store {vector} %v.x, ptr %v.target, align 1
  %v.next = add i64 %v, {width}
  %v.again = icmp ult i64 %v.next, %count
  br i1 %v.again, label %vector, label %copied
element:
  %j = phi i64 [ 0, %piece ], [ %j.next, %element ]
  %source = getelementptr {kind}, ptr %from, i64 %j
  %target = getelementptr {kind}, ptr %into, i64 %j
  %x = load {kind}, ptr %source, align 1
  store {kind} %x, ptr %target, align 1
  %j.next = add i64 %j, 1
  %again = icmp ult i64 %j.next, %count
  br i1 %again, label %element, label %copied"""
