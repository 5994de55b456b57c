"""The skeleton of kernels with aggregates down the columns.

Knows: NumPy's order, row after row. Must not know: what is computed.
Receives a `Loop`; returns IR text of functions whose results do not depend on the threads.
"""

from __future__ import annotations

from collections.abc import Sequence

from jitla.codegen.layout import AGAIN, BATCH, COLD, PLAIN, ROWS, Loop, Operand, word
from jitla.codegen.partial import initial
from jitla.codegen.scalar import LlvmBuilder, MathCall
from jitla.codegen.sizes import LINE
from jitla.codegen.span import Writer
from jitla.codegen.units import NEXT, block_of_unit, entry
from jitla.codegen.vector import BOOL, Value, memory_type

ROWS_AT_ONCE = 8
BODY_AT_ONCE = 24  # hops in them
# Bytes that rows lie apart: of nearer ones several are one stream, in one page they are one too many.
NEAR, PAGE = 200, 4096
PAIRED = 448  # bytes: rows that lie nearer are taken in pairs for a lone aggregate too
AHEAD = 2  # pairs of rows: how far in front of a pair memory is asked for
COLUMN_SPAN = (
    "ptr %ops, ptr %steps, ptr %rowsteps, i64 %row, i64 %rows, i64 %start, i64 %count"
)


def columns_kernel(loop: Loop, math: MathCall) -> str:
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
    end = "\n".join(_kept(loop)) if slides else "  br label %next"
    last = NEXT.replace("  br label %next\n", "", 1)
    return parts + _pass(loop, small) + "\n".join(lines) + f"\n{text}{end}\n{last}  ret void\n}}\n"


def _slides(loop: Loop) -> bool:
    """Tell whether columns may be computed twice: nothing is stored but sums, and these in one run."""
    return all(o.role == "in" or o.role == "agg" and o.letter == "c" for o in loop.operands)


def _pads(loop: Loop) -> bool:
    """Tell whether columns that are no whole vector are a vector whose other lanes repeat the last one."""
    return loop.polynomials and _slides(loop) and all(o.letter in "cbv" for o in loop.operands)


def _rooms(loop: Loop) -> list[str]:
    """Return lines that make room for the sums of the last vector, and for its operands."""
    lines = [f"  %restops = alloca [{len(loop.operands)} x i64], align 16"]
    for op in loop.aggregates:
        room = f"[{loop.lanes} x {memory_type(op.dtype)}]"
        lines.append(f"  %room{op.word} = alloca {room}, align 64")
    return lines


def _widths(loop: Loop, slides: bool) -> list[str]:
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


def _padded(loop: Loop) -> list[str]:
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


def _apart(loop: Loop) -> list[str]:
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


def _kept(loop: Loop) -> list[str]:
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


def _pass(loop: Loop, small: set[int]) -> str:
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
    """Return a function that adds `rows` rows from `row` on to `count` vectors of columns from `start` on.

    With a `width` of 0 they are `count` columns, fewer than a vector has. Several rows are taken
    at once, each by loads of its own: the processor then sees as many streams through memory that go
    straight on.
    """
    w = Writer(loop, width or loop.lanes, math)
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


def _most(w: Writer, several: int, pairs: int) -> None:
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


def _at_once(loop: Loop) -> int:
    """Return how many rows are taken at once: of long bodies one, which keep the processor busy."""
    return max(1, min(ROWS_AT_ONCE, BODY_AT_ONCE // len(loop.kernel.body)))


def _moving(loop: Loop) -> list[Operand]:
    return [o for o in loop.operands if o.letter != "v" and o.role != "agg"]


def _rows(
    w: Writer, label: str, several: int, start: tuple[str, str], end: str, some: str, ahead: int = 0
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


def _fetch(w: Writer, moving: Sequence[Operand], label: str, several: int, ahead: int) -> None:
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


def _bases(w: Writer, moving: Sequence[Operand], label: str, ahead: int) -> Bases:
    """Write where the row `ahead` of the first lies in every operand; of those along it, its element."""
    found: Bases = {}
    for op in moving:
        at = f"%{label}.{ahead}.p{op.word}"
        if ahead:
            before = f"%{label}.{ahead - 1}.p{op.word}"
            w.lines.append(f"  {at} = getelementptr i8, ptr {before}, i64 %y{op.word}")
        found[op] = w.b.splat(at, op.dtype) if op.letter == "b" else at
    return found


def _at(w: Writer, op: Operand, base: str, label: str, name: str) -> str:
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
    w: Writer, bases: Bases, sums: list[Value], names: tuple[str, str], some: str
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
