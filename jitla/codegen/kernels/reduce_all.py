"""Kernels that reduce all elements, in NumPy's pairwise order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from jitla.codegen.ir import Value, memory_type, named
from jitla.codegen.ir_elementwise import LlvmBuilder, MathCall
from jitla.codegen.kernel_abi import (
    COLD,
    DEPTH,
    GEOMETRY,
    HEADER,
    INNER,
    PLAIN,
    STEP,
    KernelLoop,
    Operand,
    word,
)
from jitla.codegen.kernels.body import COMBINE, BodyWriter, elements, identity, prefetch_bytes, span

LEAF = 128  # terms NumPy adds with eight accumulators before it halves
STRETCH = 512  # terms that are gathered at once where their order is free


def paired(loop: KernelLoop) -> bool:
    """Tell whether an aggregate is a sum of floats, whose terms meet in NumPy's pairwise tree."""
    return any(o.hop.op.name == "sum" and o.dtype.kind in "fc" for o in loop.aggregates)


def multiple(loop: KernelLoop) -> int:
    """Return of which number of elements the left part of a split is a multiple."""
    return 4 if any(o.dtype.kind == "c" for o in loop.aggregates) else 8


def initial(op: Operand) -> object:
    """Return the value NumPy's reduction starts from, where it shows in the result."""
    start = identity(op.hop.op.name, op.dtype)
    return 0.0 if op.hop.op.name == "sum" else start


def combined(b: LlvmBuilder, op: Operand, x: Value, y: Value) -> Value:
    """Write one step of the aggregate `op` between two partial results."""
    result: Value = getattr(b, COMBINE[op.hop.op.name])(x, y)
    return result


def slots(lines: list[str], name: str, base: str, count: int, size: int) -> list[str]:
    """Write the addresses of `count` slots of `size` bytes from `base` on."""
    for k in range(count):
        lines.append(f"  %{name}{k} = getelementptr i8, ptr {base}, i64 {size * k}")
    return [f"%{name}{k}" for k in range(count)]


def merged(loop: KernelLoop, into: str, left: str, right: str, prefix: str) -> list[str]:
    """Return lines that combine all aggregates at `left` and `right` into `into`."""
    lines: list[str] = []
    b = LlvmBuilder(lines, 1, prefix=prefix)
    n = len(loop.aggregates)
    targets = slots(lines, prefix + "i", into, n, loop.slot)
    lefts = slots(lines, prefix + "l", left, n, loop.slot)
    rights = slots(lines, prefix + "r", right, n, loop.slot)
    for k, op in enumerate(loop.aggregates):
        x, y = b.load(lefts[k], op.dtype), b.load(rights[k], op.dtype)
        b.store(combined(b, op, x, y), targets[k])
    return lines


def finish(loop: KernelLoop, result: str, pointers: Sequence[str]) -> list[str]:
    """Return lines that store the aggregates at `result` to `pointers`, with the initial value."""
    lines: list[str] = []
    b = LlvmBuilder(lines, 1, prefix="f")
    places = slots(lines, "fin", result, len(loop.aggregates), loop.slot)
    for k, op in enumerate(loop.aggregates):
        start = b.const(initial(op), op.dtype)
        b.store(combined(b, op, start, b.load(places[k], op.dtype)), pointers[k])
    return lines


def folded(b: LlvmBuilder, op: Operand, x: Value, prefix: str = "h") -> Value:
    """Write the reduction of a vector to one element: neighbours first, as NumPy does."""
    lines, k = b.lines, 0
    while b.width > 1:
        narrow = LlvmBuilder(lines, b.width // 2, prefix=f"{prefix}{op.word}.{k}.")
        even, odd = b.halves(x, narrow)
        x, b, k = combined(narrow, op, even, odd), narrow, k + 1
    return x


def limits(loop: KernelLoop) -> tuple[int, int]:
    """Return how many elements a leaf takes at most, and of which number it takes multiples."""
    unit = multiple(loop)
    return (LEAF * unit // 8, unit) if paired(loop) else (STRETCH, loop.lanes)


WRAP = 512  # elements of the longest row that is kept with its beginning repeated behind its end
FILL = "ptr %ops, ptr %geo, i64 %row, i64 %column, i64 %n"
RUN = "ptr %ops, ptr %steps, i64 %start, i64 %n, ptr %res"

# %ops has three words per operand here: where the leaf finds element 0, the operand itself, its buffer.


def gathered(loop: KernelLoop) -> tuple[Operand, ...]:
    """Return the operands that are laid out in buffers."""
    return tuple(o for o in loop.operands if o.role == "in" and o.letter in "rcbs")


def flattened(loop: KernelLoop) -> KernelLoop:
    """Return the loop that the leaf runs: every array is one contiguous run."""
    flat = (replace(o, letter="c") if o.letter in "frcbs" and o.role != "agg" else o
            for o in loop.operands)
    return replace(loop, operands=tuple(flat))


def frame(loop: KernelLoop, limit: int) -> list[str]:
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


def gather(loop: KernelLoop) -> str:
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


def _found(lines: list[str], loop: KernelLoop, op: Operand) -> str:
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


def _line(lines: list[str], loop: KernelLoop, op: Operand, base: str, row: str) -> str:
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


def _fill(loop: KernelLoop, op: Operand) -> str:
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


REGISTERS = 8  # that accumulators may take
BYTES = 8  # of an element of all operands: where more is read, memory is what leaves wait for
LONG = {2: 16, 4: 6}  # hops of the longest body that is written so often, and again for what is left over


def leaves_at_once(loop: KernelLoop) -> int:
    """Return the number of leaves read at once; one if cells are stored: their order may matter."""
    read = sum(op.dtype.itemsize for op in loop.operands if op.role == "in" and op.walks)
    # where elements of a table lie, the processor guesses only if they are read one after the other
    read += BYTES if any(op.letter == "t" for op in loop.operands) else 0
    if loop.calls or read > BYTES or any(op.role == "out" for op in loop.operands):
        return 1
    each = sum(-(-loop.lanes * op.dtype.itemsize // loop.target.vector_bytes) for op in loop.aggregates)
    fit = [n for n, most in LONG.items() if n * each <= REGISTERS and len(loop.kernel.body) <= most]
    return max(fit, default=1)


def abreast(loop: KernelLoop, math: MathCall, ahead: Mapping[int, int]) -> str:
    """Return @abreast, which does the work of @tree where that has `leaves_at_once` leaves, or returns 0.

    The first leaf is the shortest: the others take what they have more of behind the common loop.
    """
    many, aggs = leaves_at_once(loop), loop.aggregates
    far = {word: many * distance for word, distance in ahead.items()}
    w = BodyWriter(loop, loop.lanes, math)
    lines = w.lines
    lines.append("entry:")
    lines += [f"  %res{k} = alloca [{len(aggs) * loop.slot} x i8], align 16" for k in range(1, many)]
    froms, sizes = _halved(lines, loop, many)
    w.begin()
    starts = [w.b.const(identity(op.hop.op.name, op.dtype), op.dtype) for op in aggs]
    lines += ["  br label %loop", "loop:"]
    head, ends = len(lines), []
    phis = ["  %i = phi i64 [ 0, %begin ], [ %i.next, %loop ]"]
    for k in range(many):
        sofar = [named(op.dtype, f"%sofar{k}.{n}") for n, op in enumerate(aggs)]
        lines.append(f"  %at{k} = add i64 %i, {froms[k]}")
        ends.append(_step(w, f"a{k}.", f"%at{k}", sofar, far))
        for start, name, end in zip(starts, sofar, ends[k], strict=True):
            phis += w.b.phi(name.text, (start, "begin"), (end, "loop"))
    lines[head:head] = phis
    lines += [
        f"  %i.next = add i64 %i, {w.width}", f"  %more = icmp ult i64 %i.next, {sizes[0]}",
        "  br i1 %more, label %loop, label %over0", "over0:",
    ]
    _fold(w, 0, ends[0], "%res")
    for k in range(1, many):
        _fold(w, k, _rest(w, k, froms[k], sizes[k], ends[k]), f"%res{k}")
    return _text(loop, many, lines, froms[-1], sizes[-1])


def _halved(lines: list[str], loop: KernelLoop, many: int) -> tuple[list[str], list[str]]:
    """Write where the leaves begin and how long they are; go on in %begin if there are `many`."""
    limit, unit = limits(loop)
    froms, sizes, shortest = ["0"], ["%n"], "%n"
    while len(sizes) < many:
        shortest, pairs = sizes[0], list(zip(froms, sizes, strict=True))
        froms, sizes = [], []
        for start, size in pairs:
            name = f"{len(pairs)}.{len(sizes)}"
            lines += [
                f"  %half{name} = lshr i64 {size}, 1", f"  %left{name} = and i64 %half{name}, -{unit}",
                f"  %right{name} = sub i64 {size}, %left{name}",
                f"  %behind{name} = add i64 {start}, %left{name}",
            ]
            froms += [start, f"%behind{name}"]
            sizes += [f"%left{name}", f"%right{name}"]
    lines += [
        f"  %parted = icmp ugt i64 {shortest}, {limit}", f"  %short = icmp ule i64 {sizes[-1]}, {limit}",
        "  %fits = and i1 %parted, %short", "  br i1 %fits, label %begin, label %not", "not:", "  ret i1 0",
        "begin:",
    ]
    return froms, sizes


def _step(w: BodyWriter, name: str, index: str, sofar: Sequence[Value],
          ahead: Mapping[int, int]) -> list[Value]:
    """Write loads and cells of one vector from element `index` on; return the aggregates with it."""
    values = dict(w.fixed)
    for op in w.loop.operands:
        if op.role == "in" and op.walks:
            at = w.pointer(op, f"%p{op.word}", name, index)
            values[op.hop] = w.read(op, at)
            if op.word in ahead:
                w.prefetch(op, at, ahead[op.word], name)
    w.body(values)
    return [w.combine(op, x, values) for op, x in zip(w.loop.aggregates, sofar, strict=True)]


def _rest(w: BodyWriter, k: int, start: str, size: str, sofar: Sequence[Value]) -> list[Value]:
    """Write the vectors of leaf `k` behind the common loop; return its aggregates, in %over`k`."""
    before = f"over{k - 1}"
    w.lines += [f"  br label %test{k}", f"test{k}:"]
    head = len(w.lines)
    found = [named(op.dtype, f"%rest{k}.{n}") for n, op in enumerate(w.loop.aggregates)]
    w.lines += [
        f"  %room{k} = sub i64 {size}, %i{k}", f"  %whole{k} = icmp uge i64 %room{k}, {w.width}",
        f"  br i1 %whole{k}, label %one{k}, label %over{k}", f"one{k}:",
        f"  %from{k} = add i64 %i{k}, {start}",
    ]
    ends = _step(w, f"b{k}.", f"%from{k}", found, {})
    w.lines += [f"  %i{k}.next = add i64 %i{k}, {w.width}", f"  br label %test{k}", f"over{k}:"]
    phis = [f"  %i{k} = phi i64 [ %i.next, %{before} ], [ %i{k}.next, %one{k} ]"]
    for x, name, end in zip(sofar, found, ends, strict=True):
        phis += w.b.phi(name.text, (x, before), (end, f"one{k}"))
    w.lines[head:head] = phis
    return found


def _fold(w: BodyWriter, k: int, found: Sequence[Value], into: str) -> None:
    """Write the aggregates of leaf `k` to their slots."""
    aggs = w.loop.aggregates
    places = slots(w.lines, f"slot{k}.", into, len(aggs), w.loop.slot)
    for n, (op, x, place) in enumerate(zip(aggs, found, places, strict=True)):
        one = LlvmBuilder(w.lines, 1, prefix=f"w{k}.{n}.")
        one.store(folded(w.b, op, x, f"h{k}."), place)


def _text(loop: KernelLoop, many: int, lines: list[str], start: str, size: str) -> str:
    """Return the function: `lines`, the elements behind the vectors of the last leaf, the halves' sums."""
    step, results = 1, ["%res", *(f"%res{k}" for k in range(1, many))]
    merges: list[str] = []
    while step < many:
        for k in range(0, many, 2 * step):
            merges += merged(loop, results[k], results[k], results[k + step], f"m{step}.{k}.")
        step *= 2
    return f"""define internal i1 @abreast({RUN}) {{
{chr(10).join(lines)}
  %odd = and i64 {size}, {loop.lanes - 1}
  %some = icmp ne i64 %odd, 0
  br i1 %some, label %tail, label %ready
tail:
  %end = add i64 {start}, {size}
  %back = sub i64 %end, %odd
  %there = add i64 %start, %back
  call void @tail(ptr %ops, ptr %steps, i64 %there, i64 %odd, ptr {results[-1]})
  br label %ready
ready:
{chr(10).join(merges)}
  ret i1 1
}}
"""


AHEAD = 1024  # bytes, of a lone stream in short loops; measured to slow down several streams
FAR = 1536  # bytes, if the loop looks for extremes as well and reads less at a time


def prefetched(loop: KernelLoop) -> dict[int, int]:
    """Return for which operand memory is asked for early, and how many bytes."""
    if loop.schedule.ahead:
        return prefetch_bytes(loop)
    streams = [o for o in loop.operands if o.role == "in" and o.letter in "csf"]
    lone = paired(loop) and len(streams) == 1 and streams[0].letter in "cf"
    extremes = any(o.hop.op.name in ("min", "max") for o in loop.aggregates)
    return {streams[0].word: FAR if extremes else AHEAD} if lone else {}


def _leaf(loop: KernelLoop, math: MathCall, ahead: dict[int, int]) -> str:
    """Return @leaf: the aggregates of `n` elements from `start`, one vector accumulator each."""
    lanes, aggs = loop.lanes, loop.aggregates
    w = BodyWriter(loop, lanes, math)
    lines = w.lines
    lines += [
        "entry:", f"  %thin = icmp ult i64 %n, {lanes}",
        "  br i1 %thin, label %few, label %many", "few:",
    ]
    b = LlvmBuilder(lines, 1, prefix="o")
    for slot, op in zip(slots(lines, "r", "%res", len(aggs), loop.slot), aggs, strict=True):
        b.store(b.const(identity(op.hop.op.name, op.dtype), op.dtype), slot)
    lines += ["  br label %ran", "many:", f"  %count = lshr i64 %n, {lanes.bit_length() - 1}"]
    w.begin()
    starts = [w.b.const(identity(op.hop.op.name, op.dtype), op.dtype) for op in aggs]
    ends = elements(w, "many", starts, ahead)
    for k, slot in enumerate(slots(lines, "g", "%res", len(aggs), loop.slot)):
        one = LlvmBuilder(lines, 1, prefix=f"w{k}.")
        one.store(folded(w.b, aggs[k], ends[k]), slot)
    body = "\n".join(lines)
    how = PLAIN if loop.calls else ""
    return f"""define internal void @leaf({RUN}) {how}{{
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


def tree(loop: KernelLoop, leaf: str, many: int = 1) -> str:
    """Return @tree: like `leaf`, for any `n`; in NumPy's order, where the order matters.

    So `many` leaves are left to @abreast, if it takes them.
    """
    n = len(loop.aggregates)
    limit, unit = limits(loop)
    merge = "\n".join(merged(loop, "%res", "%res", "%right", "m"))
    several = f"""  %few = icmp ule i64 %n, {limit * many}
  br i1 %few, label %side, label %halves
side:
  %done = call i1 @abreast(ptr %ops, ptr %steps, i64 %start, i64 %n, ptr %res)
  br i1 %done, label %ready, label %halves
ready:
  ret void
"""
    return f"""define internal void @tree({RUN}) {PLAIN}{{
entry:
  %right = alloca [{n * loop.slot} x i8], align 16
  %small = icmp ule i64 %n, {limit}
  br i1 %small, label %one, label %two
one:
  call void @{leaf}(ptr %ops, ptr %steps, i64 %start, i64 %n, ptr %res)
  ret void
two:
{several if many > 1 else "  br label %halves"}
halves:
  %half = lshr i64 %n, 1
  %first = and i64 %half, -{unit}
  %behind = add i64 %start, %first
  %second = sub i64 %n, %first
  call void @tree(ptr %ops, ptr %steps, i64 %start, i64 %first, ptr %res)
  call void @tree(ptr %ops, ptr %steps, i64 %behind, i64 %second, ptr %right)
{merge}
  ret void
}}
"""


def _parts(loop: KernelLoop, math: MathCall) -> tuple[str, str]:
    """Return the functions below a kernel and the name of the one that reduces a run."""
    flat = flattened(loop) if loop.gathers else loop
    text = span(flat, "tail", 1, math, how=COLD) + _leaf(flat, math, prefetched(loop))
    if loop.gathers:
        return text + gather(loop) + tree(loop, "gathered"), "tree"
    if not paired(loop) or loop.schedule.unroll > 1:  # what has more partial sums has them throughout
        return text, "leaf"
    if leaves_at_once(loop) > 1:
        text += abreast(loop, math, prefetched(loop))
    return text + tree(loop, "leaf", leaves_at_once(loop)), "tree"


def _operands(loop: KernelLoop) -> list[str]:
    """Return lines that write %ops, %geo and %steps of a kernel over everything."""
    if loop.gathers:
        return frame(loop, limits(loop)[0])
    return [
        "  %ops = getelementptr i64, ptr %block, i64 8",
        f"  %geo = getelementptr i64, ptr %block, i64 {loop.geometry_at}",
        "  %steps = getelementptr i64, ptr %geo, i64 5",
    ]


def full_kernel(loop: KernelLoop, math: MathCall) -> str:
    """Return the functions of a kernel with aggregates over everything.

    A unit is one subtree DEPTH splits below the root; its results go to the scratch memory, and
    @fin combines neighbours upwards.
    """
    parts, reducer = _parts(loop, math)
    n = len(loop.aggregates)
    head = _operands(loop)
    word(head, "inner", "%geo", INNER)
    word(head, "depth", "%geo", DEPTH)
    word(head, "scratch", "%block", 6, "ptr")
    return f"""{parts}define void @k(ptr %block, i64 %begin, i64 %end) {COLD}{{
entry:
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
  %first = and i64 %half, -{multiple(loop)}
  %behind = add i64 %start, %first
  %second = sub i64 %n, %first
  %bits = lshr i64 %u, %below
  %right = trunc i64 %bits to i1
  %start.next = select i1 %right, i64 %behind, i64 %start
  %n.next = select i1 %right, i64 %second, i64 %first
  br label %descend
found:
  %offset = mul i64 %u, {loop.slot * n}
  %res = getelementptr i8, ptr %scratch, i64 %offset
  call void @{reducer}(ptr %ops, ptr %steps, i64 %start, i64 %n, ptr %res)
  %u.next = add i64 %u, 1
  %again = icmp ult i64 %u.next, %end
  br i1 %again, label %unit, label %exit
exit:
  ret void
}}
{_finish_kernel(loop)}"""


def _finish_kernel(loop: KernelLoop) -> str:
    """Return @fin: combine the units' results two by two, then store them."""
    n = len(loop.aggregates)
    lines: list[str] = []
    word(lines, "units", "%block", 2)
    word(lines, "scratch", "%block", 6, "ptr")
    outs = [
        word(lines, f"out{k}", "%block", HEADER + o.word, "ptr")
        for k, o in enumerate(loop.aggregates)
    ]
    merge = "\n".join(merged(loop, "%into", "%left", "%right", "m"))
    ready = "\n".join(finish(loop, "%scratch", outs))
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
  %to = mul i64 %i, {loop.slot * n}
  %from = mul i64 %i, {2 * loop.slot * n}
  %into = getelementptr i8, ptr %scratch, i64 %to
  %left = getelementptr i8, ptr %scratch, i64 %from
  %right = getelementptr i8, ptr %left, i64 {loop.slot * n}
{merge}
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, %pairs
  br i1 %more, label %pair, label %level.end
level.end:
  br label %level
done:
{ready}
  ret void
}}
"""
