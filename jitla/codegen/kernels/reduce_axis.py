"""Kernels that reduce along an axis: lines, columns, and ordered sums of columns by several threads."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace

from jitla.codegen.ir import BOOL, Value, memory_type, named
from jitla.codegen.ir_elementwise import LlvmBuilder, MathCall
from jitla.codegen.kernel_abi import (
    AGAIN,
    ARRAY,
    BATCH,
    COLD,
    HEADER,
    LINE,
    NEXT,
    PLAIN,
    ROWS,
    KernelLoop,
    Operand,
    block_of_unit,
    entry,
    geometry_words,
    pack_block,
    seek,
    word,
)
from jitla.codegen.kernels.body import BodyWriter, identity
from jitla.codegen.kernels.cell_layouts import across, apart, is_crosswise
from jitla.codegen.kernels.cell_layouts import chosen_crosswise as chosen
from jitla.codegen.kernels.reduce_all import (
    combined,
    finish,
    folded,
    initial,
    limits,
    paired,
    prefetched,
    tree,
)
from jitla.fusion import OPERAND, Blocking, BlockStage, Geometry, StageOperand
from jitla.hops import Hop

__all__ = ["reduces_by_row_blocks", "touch_text", "row_block_stages"]


LINES = "ptr %ops, ptr %steps, ptr %apart, i64 %start, i64 %n, ptr %res, i64 %count"


def rows_kernel(loop: KernelLoop, math: MathCall) -> str:
    """Return the functions of a kernel with aggregates along the rows; a unit is a row.

    Rows that NumPy does not halve are taken by one function, as many as lie evenly apart.
    """
    how = PLAIN if loop.calls else ""
    parts = _lines(loop, math, how)
    lines = entry(loop)
    lines[2:2] = [
        f"  %res = alloca [{len(loop.aggregates) * loop.slot} x i8], align 16",
        f"  %apart = alloca [{len(loop.operands)} x i64], align 16",
    ]
    lines += apart(loop)
    lines += [
        "  %some = icmp ult i64 %begin, %end", "  br i1 %some, label %unit, label %exit", "unit:",
        "  %u = phi i64 [ %begin, %entry ], [ %u.next, %next ]",
    ]
    seek(lines, loop, "%u")
    last = loop.rank - 1
    lines += [
        f"  %beside = sub i64 %size{last}, %at{last}", "  %ahead = sub i64 %end, %u",
        "  %many = call i64 @llvm.umin.i64(i64 %beside, i64 %ahead)",
    ]
    if paired(loop):
        parts += _leaf() + tree(loop, "leaf")
        lines += [
            f"  %short = icmp ule i64 %inner, {limits(loop)[0]}",
            "  br i1 %short, label %brief, label %long", "long:",
            "  call void @tree(ptr %ops, ptr %steps, i64 0, i64 %inner, ptr %res)",
        ]
        outs = []
        for k, op in enumerate(loop.aggregates):
            lines.append(f"  %out{k} = load ptr, ptr %op{op.word}, align 8")
            outs.append(f"%out{k}")
        lines += [*finish(loop, "%res", outs), "  br label %next", "brief:"]
    else:
        lines.append("  br label %brief\nbrief:")
    brief = "brief"
    if is_crosswise(loop):  # elements that fill no vector are added one by one, in all rows at once
        parts += across(loop, math, how)
        lines += chosen(loop, "%inner", "%many")
        brief = "along"
    done = f"[ %many, %{brief} ]" + (", [ 1, %long ]" if paired(loop) else "")
    done += ", [ %grouped, %across ]" * is_crosswise(loop)
    lines.append(
        "  call void @lines(ptr %ops, ptr %steps, ptr %apart, i64 0, i64 %inner, ptr null, i64 %many)")
    end = NEXT.replace("next:\n", f"next:\n  %rows = phi i64 {done}\n").replace(
        "%u.next = add i64 %u, 1", "%u.next = add i64 %u, %rows")
    return parts + "\n".join(lines) + "\n" + end + "  ret void\n}\n"


def _leaf() -> str:
    """Return @leaf, which takes a stretch of one row."""
    return f"""define internal void @leaf(ptr %ops, ptr %steps, i64 %start, i64 %n, ptr %res) {PLAIN}{{
entry:
  call void @lines(ptr %ops, ptr %steps, ptr %steps, i64 %start, i64 %n, ptr %res, i64 1)
  ret void
}}
"""


def _lines(loop: KernelLoop, math: MathCall, how: str) -> str:
    """Return @lines: the aggregates of `n` elements from `start`, of `count` rows.

    Of rows taken as a whole (without `res`) they go where they belong, else to `res`.
    """
    wide = BodyWriter(loop, loop.lanes, math)
    lines = wide.lines
    one = BodyWriter(loop, 1, math, lines=lines)
    one.b = LlvmBuilder(lines, 1, math, prefix="o")
    lines.append("entry:")
    _begin(wide, one)
    if loop.polynomials:
        lines += [f"  %kept{op.word} = alloca [{loop.lanes} x {memory_type(op.dtype)}], align 64"
                  for op in loop.operands if op.role != "in"]
    shift = loop.lanes.bit_length() - 1
    lines += [
        f"  %whole = and i64 %n, -{loop.lanes}", "  %some = icmp ne i64 %whole, 0",
        "  %rest = icmp ne i64 %whole, %n", "  %final = icmp eq ptr %res, null",
        f"  %vectors = lshr i64 %n, {shift}", "  br label %row", "row:",
        "  %r = phi i64 [ 0, %entry ], [ %r.next, %stored ]",
    ]
    arrays = [o for o in loop.operands if o.letter != "v"]
    for op in arrays:
        lines += [
            f"  %at{op.word} = phi ptr [ %p{op.word}, %entry ], [ %at{op.word}.next, %stored ]",
        ]
    fixed = _along(wide, arrays), _along(one, arrays)
    starts = [one.b.const(identity(o.hop.op.name, o.dtype), o.dtype) for o in loop.aggregates]
    wides = [wide.b.const(identity(o.hop.op.name, o.dtype), o.dtype) for o in loop.aggregates]
    lines += ["  br i1 %some, label %wide, label %joined"]
    ends = _turn(wide, "wide", ("row", "0", wides), "%whole", fixed[0], prefetched(loop))
    lines += ["wide.over:"]
    halved = [folded(wide.b, op, end) for op, end in zip(loop.aggregates, ends, strict=True)]
    lines += ["  br label %joined", "joined:"]
    for k in range(len(loop.aggregates)):
        lines += one.b.phi(f"%half{k}", (starts[k], "row"), (halved[k], "wide.over"))
    middle = [named(o.dtype, f"%half{k}") for k, o in enumerate(loop.aggregates)]
    lines += ["  br i1 %rest, label %one, label %summed"]
    if loop.polynomials:
        ends = _rest(wide, one, middle, fixed[0])
    else:
        ends = _turn(one, "one", ("joined", "%whole", middle), "%n", fixed[1], {})
    lines += ["one.over:", "  br label %summed", "summed:"]
    for k in range(len(loop.aggregates)):
        lines += one.b.phi(f"%all{k}", (middle[k], "joined"), (ends[k], "one.over"))
    _store(one, loop)
    for op in arrays:
        lines.append(f"  %at{op.word}.next = getelementptr i8, ptr %at{op.word}, i64 %by{op.word}")
    lines += [
        "  br label %stored", "stored:", "  %r.next = add i64 %r, 1",
        "  %more = icmp ult i64 %r.next, %count", "  br i1 %more, label %row, label %done",
        "done:", "  ret void", "}", "",
    ]
    return f"define internal void @lines({LINES}) {how}{{\n" + "\n".join(lines)


def _begin(wide: BodyWriter, one: BodyWriter) -> None:
    """Write where the first row lies in every operand, how far apart rows and elements are."""
    for op in wide.loop.operands:
        k = op.word
        if op.letter == "v":
            if op.aside:
                word(wide.lines, f"p{k}", "%ops", k, "ptr")
            else:
                wide.lines.append(f"  %p{k} = getelementptr i64, ptr %ops, i64 {k}")
            for w in (wide, one):
                w.fixed[op.hop] = w.b.splat(f"%p{k}", op.dtype)
            continue
        word(wide.lines, f"p{k}", "%ops", k, "ptr")
        word(wide.lines, f"by{k}", "%apart", k)
        if op.letter == "s":
            word(wide.lines, f"s{k}", "%steps", k)


def _along(w: BodyWriter, arrays: Sequence[Operand]) -> dict[Hop, Value]:
    """Write the loads of what has one element per row."""
    fixed = dict(w.fixed)
    for op in arrays:
        if op.role == "in" and op.letter == "b":
            fixed[op.hop] = w.b.splat(f"%at{op.word}", op.dtype)
    return fixed


def _turn(
    w: BodyWriter, label: str, begin: tuple[str, str, Sequence[Value]], end: str, fixed: dict[Hop, Value],
    ahead: dict[int, int],
) -> list[Value]:
    """Write the loop over the elements of a row from `begin` to `end`; return the aggregates."""
    before, first, accs = begin
    w.lines += [f"{label}:"]
    head = len(w.lines)
    w.lines.append(f"  %{label}.e = add i64 %start, %{label}.i")
    values = dict(fixed)
    for op in w.loop.operands:
        if op.role == "in" and op.walks:
            at = _element(w, op, label)
            values[op.hop] = w.read(op, at)
            if op.word in ahead:
                w.prefetch(op, at, ahead[op.word])
    w.body(values)
    phis = [f"  %{label}.i = phi i64 [ {first}, %{before} ], [ %{label}.next, %{label} ]"]
    ends = []
    for k, op in enumerate(w.loop.aggregates):
        name = f"%{label}.sofar{k}"
        ends.append(w.combine(op, named(op.dtype, name), values))
        phis += w.b.phi(name, (accs[k], before), (ends[k], label))
    for op in w.loop.operands:
        if op.role == "out":
            w.write(op, values[op.hop], _element(w, op, label))
    w.lines[head:head] = phis
    w.lines += [
        f"  %{label}.next = add i64 %{label}.i, {w.width}",
        f"  %{label}.more = icmp ult i64 %{label}.next, {end}",
        f"  br i1 %{label}.more, label %{label}, label %{label}.over",
    ]
    return ends


def _rest(wide: BodyWriter, one: BodyWriter, accs: Sequence[Value], fixed: dict[Hop, Value]) -> list[Value]:
    """Write what becomes of the elements behind whole vectors; return the aggregates.

    Functions take as long for one element as for a vector: these share one, which is then added up,
    and stored, element by element. The last of them fills it, so that no lane computes on anything but
    the user's data.
    """
    lines, outs = wide.lines, [o for o in wide.loop.operands if o.role == "out"]
    lines += ["one:", "  %one.e = add i64 %start, %whole", "  %one.count = sub i64 %n, %whole"]
    values = dict(fixed)
    for op in wide.loop.operands:
        if op.role == "in" and op.walks:
            values[op.hop] = wide.b.load_some(_element(wide, op, "one"), "%one.count", op.dtype)
    wide.body(values)
    for op in wide.loop.operands:
        if op.role != "in":
            wide.b.store(wide.term(op, values) if op.role == "agg" else values[op.hop], f"%kept{op.word}")
    lines += [
        "  br label %kept", "kept:", "  %kept.i = phi i64 [ 0, %one ], [ %kept.next, %kept ]",
    ]
    head, ends = len(lines), []
    phis: list[str] = []
    for k, op in enumerate(wide.loop.aggregates):
        at, name = _kept(lines, op), f"%kept.sofar{k}"
        ends.append(combined(one.b, op, named(op.dtype, name), one.b.load(at, op.dtype)))
        phis += one.b.phi(name, (accs[k], "one"), (ends[k], "kept"))
    if outs:
        lines.append("  %kept.e = add i64 %one.e, %kept.i")
    for op in outs:
        one.write(op, one.b.load(_kept(lines, op), op.dtype), _element(one, op, "kept"))
    lines[head:head] = phis
    lines += [
        "  %kept.next = add i64 %kept.i, 1", "  %kept.more = icmp ult i64 %kept.next, %one.count",
        "  br i1 %kept.more, label %kept, label %one.over",
    ]
    return ends


def _kept(lines: list[str], op: Operand) -> str:
    """Write the address of the element that is taken from the vector of `op`."""
    lines.append(
        f"  %kept.at{op.word} = getelementptr {memory_type(op.dtype)}, ptr %kept{op.word}, i64 %kept.i")
    return f"%kept.at{op.word}"


def _element(w: BodyWriter, op: Operand, label: str) -> str:
    """Write the address of the element of `op` that the loop is at."""
    at, k = f"%{label}.x{op.word}", op.word
    if op.letter == "c":
        w.lines.append(f"  {at} = getelementptr {memory_type(op.dtype)}, ptr %at{k}, i64 %{label}.e")
    else:
        w.lines += [
            f"  {at}.d = mul i64 %{label}.e, %s{k}",
            f"  {at} = getelementptr i8, ptr %at{k}, i64 {at}.d",
        ]
    return at


def _store(one: BodyWriter, loop: KernelLoop) -> None:
    """Write the stores of the aggregates, with what NumPy starts from if they are final."""
    flag = "  %final.v = insertelement <1 x i1> poison, i1 %final, i64 0"
    one.lines.append(flag)
    for k, op in enumerate(loop.aggregates):
        found = named(op.dtype, f"%all{k}")
        ready = combined(one.b, op, one.b.const(initial(op), op.dtype), found)
        one.lines += [
            f"  %slot{k} = getelementptr i8, ptr %res, i64 {loop.slot * k}",
            f"  %to{k} = select i1 %final, ptr %at{op.word}, ptr %slot{k}",
        ]
        one.b.store(one.b.select(Value(BOOL, "%final.v"), ready, found), f"%to{k}")


ROWS_AT_ONCE = 8
BODY_AT_ONCE = 24  # hops in them
# Bytes that rows lie apart: of nearer ones several are one stream, in one page they are one too many.
NEAR, PAGE = 200, 4096
PAIRED = 448  # bytes: rows that lie nearer are taken in pairs for a lone aggregate too
AHEAD = 2  # pairs of rows: how far in front of a pair memory is asked for
COLUMN_SPAN = (
    "ptr %ops, ptr %steps, ptr %rowsteps, i64 %row, i64 %rows, i64 %start, i64 %count"
)


def columns_kernel(loop: KernelLoop, math: MathCall) -> str:
    """Return the functions of a kernel with aggregates over the first dimension.

    A unit is a block of columns. Rows are added one after the other, as NumPy does; a batch at a
    time, so that sums stay in registers between rows and memory is still read along the rows.
    Columns that are no whole vector are taken once more with those before them, if that is harmless; if
    functions take most of the time, they are a vector of their own (of width 0).
    """
    lanes, slides, pads = loop.lanes, _slides(loop), _pads(loop)
    small = {0} if pads else {1, 2} if slides and lanes > 2 else {1}
    parts = _column_span(loop, "span", lanes, math, PLAIN if loop.calls else "")
    for width in sorted(small - {lanes}):
        parts += _column_span(loop, f"few{width}", width, math, PLAIN if width == 1 else "")
    lines = entry(loop)
    word(lines, "height", "%geo", ROWS)
    word(lines, "batch", "%geo", BATCH)
    lines.append(f"  %rowsteps = getelementptr i64, ptr %geo, i64 {loop.row_steps_at}")
    word(lines, "more", "%geo", loop.more_at)
    if slides:
        lines[2:2] = _rooms(loop)
    block_of_unit(lines, loop)
    lines += _padded(loop) if pads else _widths(loop, slides)
    fill = "\n".join(_fill(loop))
    passed = "ptr %steps, ptr %rowsteps, i64 %r, i64 %now"
    text = f"""  br label %begun
begun:
  %without = icmp eq i64 %height, 0
  %begins = icmp eq i64 %more, 0
  %none = and i1 %without, %begins
  %blanks = select i1 %none, i64 %len, i64 0
  br label %fill
fill:
  %j = phi i64 [ 0, %begun ], [ %j.next, %filled ]
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
  br i1 %going, label %go, label %over
go:
  call void @pass(ptr %ops, {passed}, i64 %from, i64 %vectors, i64 %width)
  br i1 %odd, label %rest.go, label %ready
rest.go:
  call void @pass(ptr %restops, {passed}, i64 %restfrom, i64 %restcount, i64 %restwidth)
  br label %ready
ready:
  %r.next = add i64 %r, %now
  br label %rows
over:
"""
    end = "\n".join(_kept_columns(loop)) if slides else "  br label %next"
    last = NEXT.replace("  br label %next\n", "", 1)
    return parts + _pass(loop, small) + "\n".join(lines) + f"\n{text}{end}\n{last}  ret void\n}}\n"


def _slides(loop: KernelLoop) -> bool:
    """Tell whether columns may be computed twice: nothing is stored but sums, and these in one run."""
    return all(o.role == "in" or o.role == "agg" and o.letter == "c" for o in loop.operands)


def _pads(loop: KernelLoop) -> bool:
    """Tell whether columns that are no whole vector are a vector whose other lanes repeat the last one."""
    return loop.polynomials and _slides(loop) and all(o.letter in "cbv" for o in loop.operands)


def _rooms(loop: KernelLoop) -> list[str]:
    """Return lines that make room for the sums of the last vector, and for its operands."""
    lines = [f"  %restops = alloca [{len(loop.operands)} x i64], align 16"]
    for op in loop.aggregates:
        room = f"[{loop.lanes} x {memory_type(op.dtype)}]"
        lines.append(f"  %room{op.word} = alloca {room}, align 64")
    return lines


def _widths(loop: KernelLoop, slides: bool) -> list[str]:
    """Return lines that say how the columns of a unit are cut into vectors, and the rest of them."""
    shift = loop.lanes.bit_length() - 1
    lines = [f"  %large = icmp uge i64 %len, {loop.lanes}"]
    if slides and loop.lanes > 2:
        lines += [
            "  %pair = icmp uge i64 %len, 2", "  %less = zext i1 %pair to i64",
            f"  %shift = select i1 %large, i64 {shift}, i64 %less",
        ]
    else:
        lines.append(f"  %shift = select i1 %large, i64 {shift}, i64 0")
    lines += [
        "  %vectors = lshr i64 %len, %shift", "  %width = shl i64 1, %shift",
        "  %whole = shl i64 %vectors, %shift", "  %rest = sub i64 %len, %whole",
        "  %behind = add i64 %from, %whole", "  %odd = icmp ne i64 %rest, 0",
    ]
    if not slides:
        return [
            *lines, "  %restops = getelementptr i8, ptr %ops, i64 0",
            "  %restfrom = add i64 %behind, 0", "  %restcount = add i64 %rest, 0",
            "  %restwidth = add i64 1, 0",
        ]
    lines += [
        "  %end.of = add i64 %from, %len", "  %restfrom = sub i64 %end.of, %width",
        "  %restcount = add i64 1, 0", "  %restwidth = add i64 %width, 0",
        "  %over.first = sub i64 %width, %rest", *_apart(loop),
    ]
    for op in loop.aggregates:
        lines += _so_far(op)
    return lines


def _padded(loop: KernelLoop) -> list[str]:
    """Return lines that cut the columns of a unit into vectors, and take the rest of them by themselves."""
    shift = loop.lanes.bit_length() - 1
    lines = [
        f"  %vectors = lshr i64 %len, {shift}", f"  %width = add i64 {loop.lanes}, 0",
        f"  %whole = shl i64 %vectors, {shift}", "  %rest = sub i64 %len, %whole",
        "  %restfrom = add i64 %from, %whole", "  %behind = add i64 %restfrom, 0",
        "  %odd = icmp ne i64 %rest, 0", "  %restcount = add i64 %rest, 0", "  %restwidth = add i64 0, 0",
        "  %over.first = add i64 0, 0", *_apart(loop), "  %known = icmp ne i64 %more, 0",
        "  %takes = and i1 %known, %odd", "  br i1 %takes, label %taken, label %untaken", "taken:",
    ]
    b = LlvmBuilder(lines, loop.lanes, prefix="f")
    for op in loop.aggregates:
        k = op.word
        lines += [
            f"  %there{k} = add i64 %now{k}, %skip{k}", f"  %there{k}.p = inttoptr i64 %there{k} to ptr",
        ]
        b.store(b.load_some(f"%there{k}.p", "%rest", op.dtype), f"%room{k}")
    return [*lines, "  br label %untaken", "untaken:"]


def _apart(loop: KernelLoop) -> list[str]:
    """Return lines that write %restops: sums of the last columns go where there is room for a vector."""
    lines: list[str] = []
    for op in loop.operands:
        k = op.word
        value = word(lines, f"now{k}", "%ops", k)
        if op.role == "agg":
            value = f"%before{k}"
            lines += [
                f"  %skip{k} = mul i64 %restfrom, {op.dtype.itemsize}",
                f"  %room{k}.int = ptrtoint ptr %room{k} to i64",
                f"  {value} = sub i64 %room{k}.int, %skip{k}",
            ]
        lines += [
            f"  %restop{k} = getelementptr i64, ptr %restops, i64 {k}",
            f"  store i64 {value}, ptr %restop{k}, align 8",
        ]
    return lines


def _so_far(op: Operand) -> list[str]:
    """Return lines that copy what the columns of the last vector came to before, if they are taken twice."""
    k, size = op.word, op.dtype.itemsize
    return [
        f"  %there{k} = add i64 %now{k}, %skip{k}", f"  %there{k}.p = inttoptr i64 %there{k} to ptr",
        f"  %wide{k} = mul i64 %width, {size}", f"  %known{k} = icmp ne i64 %more, 0",
        f"  %taken{k} = and i1 %known{k}, %odd", f"  %copied{k} = select i1 %taken{k}, i64 %wide{k}, i64 0",
        f"  call void @llvm.memcpy.p0.p0.i64(ptr %room{k}, ptr %there{k}.p, i64 %copied{k}, i1 false)",
    ]


def _kept_columns(loop: KernelLoop) -> list[str]:
    """Return lines that store the sums of the columns that are no whole vector."""
    lines = [
        "  %some.rest = xor i1 %none, true", "  %keeps = and i1 %odd, %some.rest",
        "  %over.count = select i1 %keeps, i64 %rest, i64 0",
        "  br label %keep", "keep:", "  %m = phi i64 [ 0, %over ], [ %m.next, %kept ]",
        "  %keeping = icmp ult i64 %m, %over.count", "  br i1 %keeping, label %kept, label %next",
        "kept:", "  %m.from = add i64 %over.first, %m", "  %m.to = add i64 %behind, %m",
    ]
    b = LlvmBuilder(lines, 1, prefix="k")
    for op in loop.aggregates:
        k, kind = op.word, memory_type(op.dtype)
        lines += [
            f"  %kf{k} = getelementptr {kind}, ptr %room{k}, i64 %m.from",
            f"  %kp{k} = load ptr, ptr %op{k}, align 8",
            f"  %kt{k} = getelementptr {kind}, ptr %kp{k}, i64 %m.to",
        ]
        b.store(b.load(f"%kf{k}", op.dtype), f"%kt{k}")
    return [*lines, "  %m.next = add i64 %m, 1", "  br label %keep"]


def _pass(loop: KernelLoop, small: set[int]) -> str:
    """Return @pass, which runs the function for vectors of `width`; of none, nothing."""
    names = {width: f"few{width}" for width in sorted(small)} | {loop.lanes: "span"}
    cases = " ".join(f"i64 {width}, label %w{width}" for width in names)
    args = "ptr %ops, ptr %steps, ptr %rowsteps, i64 %row, i64 %rows, i64 %start, i64 %count"
    runs = "".join(
        f"w{width}:\n  call void @{name}({args})\n  ret void\n" for width, name in names.items())
    return f"""define internal void @pass({COLUMN_SPAN}, i64 %width) {COLD}{{
entry:
  %empty = icmp eq i64 %count, 0
  br i1 %empty, label %nothing, label %some
some:
  switch i64 %width, label %nothing [ {cases} ]
{runs}nothing:
  ret void
}}
"""


def _fill(loop: KernelLoop) -> list[str]:
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


def _column_span(loop: KernelLoop, name: str, width: int, math: MathCall, how: str) -> str:
    """Return a function that adds `rows` rows from `row` on to `count` vectors of columns from `start` on.

    With a `width` of 0 they are `count` columns, fewer than a vector has. Several rows are taken
    at once, each by loads of its own: the processor then sees as many streams through memory that go
    straight on.
    """
    w = BodyWriter(loop, width or loop.lanes, math)
    w.lines.append("entry:")
    w.begin(varying="b")
    for op in _moving(loop):
        word(w.lines, f"y{op.word}", "%rowsteps", op.word)
    word(w.lines, "more", "%rowsteps", loop.more_at - loop.row_steps_at)
    several = _at_once(loop) if not how else 1
    w.lines.append(f"  %total = mul i64 %count, {width}")
    some = "" if width else "%count"
    if several == 1:
        w.lines.append("  br label %one")
        _rows(w, "one", 1, ("0", "entry"), "%rows", some)
    else:
        alone = len(loop.aggregates) == 1
        pairs = 0 if width != loop.lanes else PAIRED if alone else PAGE
        _most(w, several, pairs)
        w.lines.append("  br i1 %any, label %several, label %between")
        _rows(w, "several", several, ("0", "entry"), "%most", some)
        w.lines += ["  br label %between", "between:"]
        if pairs:
            w.lines.append("  br i1 %paired, label %pair, label %rest")
            _rows(w, "pair", 2, ("0", "between"), "%reached", some, 0 if alone else AHEAD)
            w.lines += ["  br label %rest", "rest:"]
        w.lines += [
            "  %left = icmp ne i64 %reached, %rows", "  br i1 %left, label %one, label %done",
        ]
        _rows(w, "one", 1, ("%reached", "rest" if pairs else "between"), "%rows", some)
    w.lines += ["  br label %done", "done:", "  ret void", "}", ""]
    return f"define internal void @{name}({COLUMN_SPAN}) {how}{{\n" + "\n".join(w.lines)


def _most(w: BodyWriter, several: int, pairs: int) -> None:
    """Write of how many rows `several` are taken at once: of none, if they would share pages of memory.

    In the cache they may.

    These are taken one by one, or in pairs if they lie less than `pairs` bytes apart: aggregates are
    read and written half as often then.
    """
    read = [o for o in _moving(w.loop) if o.role == "in" and o.letter == "c"]
    step = f"%y{read[0].word}" if read else "0"
    w.lines += [
        f"  %from.near = sub i64 {step}, {NEAR}", f"  %paged = icmp ult i64 %from.near, {PAGE - NEAR}",
        f"  %far = icmp ne i64 %more, {AGAIN}", "  %mixed = and i1 %paged, %far",
        f"  %part = urem i64 %rows, {several}", "  %wholes = sub i64 %rows, %part",
        "  %most = select i1 %mixed, i64 0, i64 %wholes", "  %any = icmp ne i64 %most, 0",
        f"  %close = icmp ult i64 {step}, {pairs}", "  %even.mask = select i1 %close, i64 -2, i64 0",
        "  %even = and i64 %rows, %even.mask",
        "  %reached = select i1 %mixed, i64 %even, i64 %most",
        "  %some.even = icmp ne i64 %even, 0", "  %paired = and i1 %mixed, %some.even",
    ]


def _at_once(loop: KernelLoop) -> int:
    """Return how many rows are taken at once: of long bodies one, which keep the processor busy."""
    return max(1, min(ROWS_AT_ONCE, BODY_AT_ONCE // len(loop.kernel.body)))


def _moving(loop: KernelLoop) -> list[Operand]:
    return [o for o in loop.operands if o.letter != "v" and o.role != "agg"]


def _rows(
    w: BodyWriter, label: str, several: int, start: tuple[str, str], end: str, some: str, ahead: int = 0
) -> None:
    """Write the loop over rows from `start`, a value and its block, to `end`, and over their columns.

    These are `some`, or whole vectors. Memory is asked for `ahead` turns before.
    """
    moving, wide = _moving(w.loop), f"<{w.width} x i1>"
    w.lines += [
        f"{label}:", f"  %{label}.r = phi i64 [ {start[0]}, %{start[1]} ], "
        f"[ %{label}.r.next, %{label}.end ]",
        f"  %{label}.row = add i64 %row, %{label}.r",
        f"  %{label}.before = or i64 %{label}.row, %more",
        f"  %{label}.first = icmp eq i64 %{label}.before, 0",
        f"  %{label}.fresh.0 = insertelement {wide} poison, i1 %{label}.first, i64 0",
        f"  %{label}.fresh = shufflevector {wide} %{label}.fresh.0, {wide} poison, "
        f"<{w.width} x i32> zeroinitializer",
    ]
    for op in moving:
        k = op.word
        base = f"%p{k}.0" if op.letter == "b" else f"%p{k}"
        w.lines += [
            f"  %{label}.d{k} = mul i64 %{label}.row, %y{k}",
            f"  %{label}.0.p{k} = getelementptr i8, ptr {base}, i64 %{label}.d{k}",
        ]
    bases = [_bases(w, moving, label, u) for u in range(several)]
    w.lines += [
        f"  br label %{label}.loop", f"{label}.loop:",
        f"  %{label}.i = phi i64 [ 0, %{label} ], [ %{label}.i.next, %{label}.loop ]",
    ]
    if ahead:
        _fetch(w, moving, label, several, ahead)
    ats = [_at(w, op, f"%p{op.word}", label, "sum") for op in w.loop.aggregates]
    sums = []
    for op, at in zip(w.loop.aggregates, ats, strict=True):
        begin = w.b.const(initial(op), op.dtype)
        sums.append(w.b.select(Value(BOOL, f"%{label}.fresh"), begin, w.read(op, at)))
    for u, found in enumerate(bases):
        sums = _row_step(w, found, sums, (label, f"{u}.x"), some)
    for op, at, total in zip(w.loop.aggregates, ats, sums, strict=True):
        w.write(op, total, at)
    w.lines += [
        f"  %{label}.i.next = add i64 %{label}.i, {w.width}",
        f"  %{label}.more = icmp ult i64 %{label}.i.next, %total",
        f"  br i1 %{label}.more, label %{label}.loop, label %{label}.end", f"{label}.end:",
        f"  %{label}.r.next = add i64 %{label}.r, {several}",
        f"  %{label}.lower = icmp ult i64 %{label}.r.next, {end}",
        f"  br i1 %{label}.lower, label %{label}, label %{label}.over", f"{label}.over:",
    ]


def _fetch(w: BodyWriter, moving: Sequence[Operand], label: str, several: int, ahead: int) -> None:
    """Write the request for as much of later rows as is read of these: in one run, which is soon foreseen."""
    for op in moving:
        if op.role != "in" or op.letter != "c":
            continue
        k, size, name = op.word, several * op.dtype.itemsize, f"%{label}.ahead{op.word}"
        w.lines += [
            f"  {name}.far = mul i64 %y{k}, {several * ahead}",
            f"  {name}.used = mul i64 %{label}.i, {size}",
            f"  {name}.sum = add i64 {name}.far, {name}.used",
            f"  {name} = getelementptr i8, ptr %{label}.0.p{k}, i64 {name}.sum",
        ]
        for at in range(0, size * w.width, LINE):
            w.lines += [
                f"  {name}.{at} = getelementptr i8, ptr {name}, i64 {at}",
                f"  call void @llvm.prefetch.p0(ptr {name}.{at}, i32 0, i32 3, i32 1)",
            ]


Bases = dict[Operand, "str | Value"]


def _bases(w: BodyWriter, moving: Sequence[Operand], label: str, ahead: int) -> Bases:
    """Write where the row `ahead` of the first lies in every operand; of those along it, its element."""
    found: Bases = {}
    for op in moving:
        at = f"%{label}.{ahead}.p{op.word}"
        if ahead:
            before = f"%{label}.{ahead - 1}.p{op.word}"
            w.lines.append(f"  {at} = getelementptr i8, ptr {before}, i64 %y{op.word}")
        found[op] = w.b.splat(at, op.dtype) if op.letter == "b" else at
    return found


def _at(w: BodyWriter, op: Operand, base: str, label: str, name: str) -> str:
    """Write the address of the columns that the loop is at."""
    at = f"%{label}.{name}{op.word}"
    if op.letter == "c":
        kind = memory_type(op.dtype)
        w.lines.append(f"  {at} = getelementptr {kind}, ptr {base}, i64 %{label}.i")
    else:
        w.lines += [
            f"  {at}.d = mul i64 %{label}.i, %s{op.word}",
            f"  {at} = getelementptr i8, ptr {base}, i64 {at}.d",
        ]
    return at


def _row_step(
    w: BodyWriter, bases: Bases, sums: list[Value], names: tuple[str, str], some: str
) -> list[Value]:
    """Write loads, body and stores of one row and return the new sums."""
    values = dict(w.fixed)
    ats: dict[Operand, str] = {}
    for op, base in bases.items():
        if isinstance(base, Value):
            values[op.hop] = base
            continue
        ats[op] = _at(w, op, base, *names)
        if op.role == "in":
            values[op.hop] = w.b.load_some(ats[op], some, op.dtype) if some else w.read(op, ats[op])
    w.body(values)
    ends = [w.combine(op, so_far, values) for op, so_far in zip(w.loop.aggregates, sums, strict=True)]
    for op, at in ats.items():
        if op.role == "out":
            w.write(op, values[op.hop], at)
    return ends


BLOCK_BYTES = 128 << 10  # of a block of rows: it stays in the second-level cache of its thread
BLOCKS = 96  # at least: less is in the outer cache, which parts of lines are read from at little cost
# Bytes of rows: adding shorter ones takes as long as reading them; of longer ones threads read whole
# pages of memory each.
LEAST_BYTES, MOST_BYTES = 64, 6144
ITEM_BYTES = 4  # of the narrowest elements: of others there are more than can be added up meanwhile
BODY = 4  # hops in bodies that take less time than reading what they need
SLOW = ("divide", "sqrt", "power", "floor_divide", "remainder")
TURNS_LINE = 64  # bytes


def reduces_by_row_blocks(loop: KernelLoop, geometry: Geometry) -> bool:
    """Return whether threads add blocks of rows to all sums of `loop`, one after the other."""
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


def _matrices(loop: KernelLoop, geometry: Geometry) -> list[tuple[int, int]]:
    """Return which operands are matrices that are read along their rows, and how far these lie apart."""
    strides = iter(geometry.strides)
    found = []
    for k, op in enumerate(loop.operands):
        step = 0 if op.letter == "v" else next(strides)[0]
        if op.role == "in" and op.letter == "c" and step > 0:
            found.append((k, step))
    return found


def _height(loop: KernelLoop, geometry: Geometry) -> int:
    """Return how many rows are read before they are added up."""
    sizes = [loop.operands[k].dtype.itemsize for k, _ in _matrices(loop, geometry)]
    return max(BLOCK_BYTES // (geometry.dims[-1] * sum(sizes)) & -8, 8)


def row_block_stages(
    loop: KernelLoop, geometry: Geometry, head: Sequence[int], entries: tuple[int, int]
) -> tuple[list[BlockStage], Blocking]:
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
        stages.append(BlockStage(whole, last, (StageOperand(OPERAND, k, height * step),)))

    def part(n: int, more: int) -> bytes:
        words = geometry_words(loop, replace(geometry, dims=(n, columns)), (*head[:-1], n), more)
        return pack_block(loop, entries[1], 0, (head[2], head[2], 0), 0, words)

    strides = iter(geometry.strides)
    steps = [0 if o.letter == "v" else next(strides)[0] * (o.role == "in") for o in loop.operands]
    places = tuple(StageOperand(OPERAND, k, height * step) for k, step in enumerate(steps))
    stages.append(BlockStage(part(height, AGAIN), part(rest, AGAIN), places, first=part(height, 0)))
    return stages, Blocking(blocks, 1, 0, 0, 0, 0)


def _touch(entry: int, rows: int, nbytes: int, step: int) -> bytes:
    """Return the argument block that reads `rows` rows."""
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
  %i.next = add i64 %i, {TURNS_LINE}
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
