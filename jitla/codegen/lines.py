"""The skeleton of kernels with aggregates along the rows.

Knows: rows lie some bytes apart, most are short. Must not know: what is computed.
Receives a `Loop`; returns IR text of functions whose results do not depend on the threads.
"""

from __future__ import annotations

from collections.abc import Sequence

from jitla.codegen.bands import apart
from jitla.codegen.crosswise import across, chosen, is_crosswise
from jitla.codegen.layout import PLAIN, Loop, Operand, seek, word
from jitla.codegen.monoids import identity
from jitla.codegen.partial import combined, finish, folded, initial, limits, paired
from jitla.codegen.reduce import prefetched, tree
from jitla.codegen.scalar import LlvmBuilder, MathCall
from jitla.codegen.span import Writer
from jitla.codegen.units import NEXT, entry
from jitla.codegen.vector import BOOL, Value, memory_type, named
from jitla.hops import Hop

LINES = "ptr %ops, ptr %steps, ptr %apart, i64 %start, i64 %n, ptr %res, i64 %count"


def rows_kernel(loop: Loop, math: MathCall) -> str:
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


def _lines(loop: Loop, math: MathCall, how: str) -> str:
    """Return @lines: the aggregates of `n` elements from `start`, of `count` rows.

    Of rows taken as a whole (without `res`) they go where they belong, else to `res`.
    """
    wide = Writer(loop, loop.lanes, math)
    lines = wide.lines
    one = Writer(loop, 1, math, lines=lines)
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


def _begin(wide: Writer, one: Writer) -> None:
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


def _along(w: Writer, arrays: Sequence[Operand]) -> dict[Hop, Value]:
    """Write the loads of what has one element per row."""
    fixed = dict(w.fixed)
    for op in arrays:
        if op.role == "in" and op.letter == "b":
            fixed[op.hop] = w.b.splat(f"%at{op.word}", op.dtype)
    return fixed


def _turn(
    w: Writer, label: str, begin: tuple[str, str, Sequence[Value]], end: str, fixed: dict[Hop, Value],
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


def _rest(wide: Writer, one: Writer, accs: Sequence[Value], fixed: dict[Hop, Value]) -> list[Value]:
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


def _element(w: Writer, op: Operand, label: str) -> str:
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


def _store(one: Writer, loop: Loop) -> None:
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
