"""The inner loop around a kernel's body, and the skeleton of kernels without aggregates.

Knows: the order of loads, body and stores; vectors, tails, stores past the cache. Must not know: ops.
Receives a `Loop`; returns IR text of functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from jitla.codegen.layout import (
    BLOCKS, INNER, STEP, Loop, Operand, copy_operands, is_const, seek, word,
)
from jitla.codegen.scalar import COMBINE, LlvmBuilder, MathCall, Value, memory_type
from jitla.errors import BackendError
from jitla.hops import Hop, Kind, const_value

COLD = "noinline optnone "  # runs once per thousands of elements: compile it fast
SPAN = "ptr %ops, ptr %steps, i64 %start, i64 %count, ptr %acc"


def emit_hop(b: LlvmBuilder, hop: Hop, values: list[Value]) -> Value:
    """Write the recipe of the cell `hop`."""
    result = hop.op.emit(b, *values, dict(hop.attrs)) if hop.op.emit else None
    if result is None:
        dtypes = ", ".join(str(i.meta.dtype) for i in hop.inputs)
        raise BackendError(f"{hop.op.name} of {dtypes} has no recipe")
    return Value(hop.meta.dtype, result.text)


@dataclass(slots=True)
class Writer:
    """The text of one inner loop over `width` elements at a time."""

    loop: Loop
    width: int
    math: MathCall
    nontemporal: bool = False
    lines: list[str] = field(default_factory=list)
    b: LlvmBuilder = field(init=False)
    fixed: dict[Hop, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.b = LlvmBuilder(self.lines, self.width, self.math)
        for hop in self.loop.kernel.inputs:
            if is_const(hop):
                self.fixed[hop] = self.b.const(const_value(hop), hop.meta.dtype)

    def begin(self, varying: str = "") -> None:
        """Write what precedes the loop: start pointers, operands that do not vary in it.

        `varying` are letters of operands that the loop itself has to read.
        """
        for op in self.loop.operands:
            at = f"%p{op.word}"
            if op.letter == "v":
                self.lines.append(f"  {at} = getelementptr i64, ptr %ops, i64 {op.word}")
                self.fixed[op.hop] = self.b.splat(at, op.dtype)
                continue
            word(self.lines, f"p{op.word}.0", "%ops", op.word, "ptr")
            if op.letter == "s":
                word(self.lines, f"s{op.word}", "%steps", op.word)
                self.lines.append(f"  %d{op.word} = mul i64 %start, %s{op.word}")
                self.lines.append(f"  {at} = getelementptr i8, ptr {at}.0, i64 %d{op.word}")
            elif op.letter == "c":
                kind = memory_type(op.dtype)
                self.lines.append(f"  {at} = getelementptr {kind}, ptr {at}.0, i64 %start")
            elif op.role == "in" and "b" not in varying:
                self.fixed[op.hop] = self.b.splat(f"{at}.0", op.dtype)

    def pointer(self, op: Operand, base: str, name: str = "q") -> str:
        """Write the address of element %i of `op`, counted from `base`."""
        at = f"%{name}{op.word}"
        if op.letter == "c":
            kind = memory_type(op.dtype)
            self.lines.append(f"  {at} = getelementptr {kind}, ptr {base}, i64 %i")
        else:
            self.lines.append(f"  {at}.d = mul i64 %i, %s{op.word}")
            self.lines.append(f"  {at} = getelementptr i8, ptr {base}, i64 {at}.d")
        return at

    def read(self, op: Operand, at: str) -> Value:
        """Write the load of elements of `op` from address `at`."""
        if op.letter == "s":
            return self.b.gather(at, f"%s{op.word}", op.dtype)
        return self.b.load(at, op.dtype)

    def write(self, op: Operand, x: Value, at: str) -> None:
        """Write the store of elements of `op` to address `at`."""
        if op.letter == "s":
            self.b.scatter(x, at, f"%s{op.word}")
        else:
            self.b.store(x, at, self.nontemporal and op.role == "out")

    def prefetch(self, op: Operand, at: str, ahead: int) -> None:
        """Write the request for the memory `ahead` bytes behind `at`."""
        self.lines += [
            f"  %ahead{op.word} = getelementptr i8, ptr {at}, i64 {ahead}",
            f"  call void @llvm.prefetch.p0(ptr %ahead{op.word}, i32 0, i32 3, i32 1)",
        ]

    def body(self, values: dict[Hop, Value]) -> None:
        """Write the kernel's cells; `values` holds the inputs and receives every cell."""
        for hop in self.loop.kernel.body:
            if hop.op.kind is not Kind.AGG:
                values[hop] = emit_hop(self.b, hop, [values[i] for i in hop.inputs])

    def combine(self, op: Operand, acc: Value, values: dict[Hop, Value]) -> Value:
        """Write one step of the aggregate `op`."""
        x = self.b.cast(values[op.hop.inputs[0]], op.dtype)
        result: Value = getattr(self.b, COMBINE[op.hop.op.name])(acc, x)
        return result


def span(loop: Loop, name: str, width: int, math: MathCall, nontemporal: bool = False) -> str:
    """Return a function that runs the body `count` times on `width` elements from `start` on.

    Aggregates are taken from `acc` and left there, 8 bytes per lane; `count` is at least 1.
    """
    w = Writer(loop, width, math, nontemporal)
    w.lines.append("entry:")
    w.begin()
    accs = []
    for k, op in enumerate(loop.aggregates):
        w.lines.append(f"  %acc{k} = getelementptr i8, ptr %acc, i64 {8 * width * k}")
        accs.append(w.b.load(f"%acc{k}", op.dtype))
    for k, end in enumerate(elements(w, "entry", accs)):
        w.b.store(end, f"%acc{k}")
    body = "\n".join(w.lines)
    return f"define internal void @{name}({SPAN}) {{\n{body}\n  ret void\n}}\n"


def elements(w: Writer, before: str, accs: Sequence[Value], ahead: int = 0) -> list[Value]:
    """Write the loop over `count` vectors after block `before`; return the aggregates behind it.

    `ahead` is how many bytes in front of the loop memory is asked for; 0: the processor guesses.
    """
    w.lines += [f"  %total = mul i64 %count, {w.width}", "  br label %loop", "loop:"]
    head = len(w.lines)
    values = dict(w.fixed)
    for op in w.loop.operands:
        if op.role == "in" and op.walks:
            at = w.pointer(op, f"%p{op.word}")
            values[op.hop] = w.read(op, at)
            if ahead and op.letter == "c":
                w.prefetch(op, at, ahead)
    w.body(values)
    phis, ends = [f"  %i = phi i64 [ 0, %{before} ], [ %i.next, %loop ]"], []
    for k, op in enumerate(w.loop.aggregates):
        ends.append(w.combine(op, Value(op.dtype, f"%sofar{k}"), values))
        pair = f"[ {accs[k].text}, %{before} ], [ {ends[k].text}, %loop ]"
        phis.append(f"  %sofar{k} = phi {w.b.type(op.dtype)} {pair}")
    for op in w.loop.operands:
        if op.role == "out":
            w.write(op, values[op.hop], w.pointer(op, f"%p{op.word}"))
    w.lines[head:head] = phis
    w.lines += [
        f"  %i.next = add i64 %i, {w.width}", "  %more = icmp ult i64 %i.next, %total",
        "  br i1 %more, label %loop, label %done", "done:",
    ]
    return ends


def calls(width: int, length: str, start: str) -> str:
    """Return lines that run `length` elements from `start`: vectors, then one by one.

    The code goes on in block %ready.
    """
    return f"""  %vectors = lshr i64 {length}, {width.bit_length() - 1}
  %rest = and i64 {length}, {width - 1}
  %whole = sub i64 {length}, %rest
  %behind = add i64 {start}, %whole
  %wide = icmp ne i64 %vectors, 0
  br i1 %wide, label %run, label %ran
run:
  call void @span(ptr %ops, ptr %steps, i64 {start}, i64 %vectors, ptr null)
  br label %ran
ran:
  %odd = icmp ne i64 %rest, 0
  br i1 %odd, label %tail, label %ready
tail:
  call void @tail(ptr %ops, ptr %steps, i64 %behind, i64 %rest, ptr null)
  br label %ready
ready:
"""


def entry(loop: Loop) -> list[str]:
    """Return the first lines of a kernel: %words, %geo, %steps, %ops with the operands."""
    n = len(loop.operands)
    lines = [
        f"define void @k(ptr %block, i64 %begin, i64 %end) {'' if loop.rank else COLD}{{", "entry:",
        f"  %ops = alloca [{n} x i64], align 16",
        "  %words = getelementptr i64, ptr %block, i64 8",
        f"  %geo = getelementptr i64, ptr %block, i64 {loop.geometry_at}",
        "  %steps = getelementptr i64, ptr %geo, i64 5",
    ]
    word(lines, "inner", "%geo", INNER)
    word(lines, "step", "%geo", STEP)
    word(lines, "blocks", "%geo", BLOCKS)
    copy_operands(lines, loop)
    return lines


def block_of_unit(lines: list[str], loop: Loop) -> None:
    """Write the loop head over units: moves %ops, sets %from and %len in the last dimension."""
    lines += [
        "  %some = icmp ult i64 %begin, %end", "  br i1 %some, label %unit, label %exit", "unit:",
        "  %u = phi i64 [ %begin, %entry ], [ %u.next, %next ]",
    ]
    cut = "%u"
    if loop.rank:
        lines += ["  %row = udiv i64 %u, %blocks", "  %cut = urem i64 %u, %blocks"]
        seek(lines, loop, "%row")
        cut = "%cut"
    lines += [
        f"  %from = mul i64 {cut}, %step", "  %left = sub i64 %inner, %from",
        "  %len = call i64 @llvm.umin.i64(i64 %left, i64 %step)",
    ]


NEXT = """  br label %next
next:
  %u.next = add i64 %u, 1
  %again = icmp ult i64 %u.next, %end
  br i1 %again, label %unit, label %exit
exit:
"""


def cell_kernel(loop: Loop, math: MathCall) -> str:
    """Return the functions of a kernel without aggregates."""
    lines = entry(loop)
    block_of_unit(lines, loop)
    parts = [span(loop, "span", loop.lanes, math), span(loop, "tail", 1, math)]
    if streams(loop):
        parts += [span(loop, "stream", loop.lanes, math, nontemporal=True), _stream_line(loop)]
        lines.append("  call void @line(ptr %ops, ptr %steps, i64 %from, i64 %len)")
        end = NEXT + "  call void @llvm.x86.sse.sfence()\n"
        return "".join(parts) + "\n".join(lines) + f"\n{end}  ret void\n}}\n"
    text = "\n".join(lines) + "\n" + calls(loop.lanes, "%len", "%from")
    return "".join(parts) + text + NEXT + "  ret void\n}\n"


def streams(loop: Loop) -> bool:
    """Tell whether outputs are stored past the cache."""
    fit = all(o.letter == "c" for o in loop.operands if o.role == "out")
    return fit and loop.schedule.nontemporal and loop.target.triple.startswith("x86_64")


def _stream_line(loop: Loop) -> str:
    """Return @line: elements up to an aligned address, then aligned vectors if all outputs agree."""
    outs = [o for o in loop.operands if o.role == "out"]
    lines: list[str] = []
    apart = []
    for op in outs:
        size, k = op.dtype.itemsize, op.word
        word(lines, f"o{k}", "%ops", k)
        lines += [
            f"  %d{k} = mul i64 %from, {size}", f"  %a{k} = add i64 %o{k}, %d{k}",
            f"  %n{k} = sub i64 0, %a{k}", f"  %m{k} = and i64 %n{k}, {loop.lanes * size - 1}",
            f"  %e{k} = udiv i64 %m{k}, {size}", f"  %b{k} = mul i64 %e{k}, {size}",
            f"  %x{k} = xor i64 %b{k}, %m{k}", f"  %y{k} = xor i64 %e{k}, %e{outs[0].word}",
        ]
        apart += [f"%x{k}", f"%y{k}"]
    total = "0"
    for i, name in enumerate(apart):
        lines.append(f"  %apart{i} = or i64 {total}, {name}")
        total = f"%apart{i}"
    first, shift = outs[0].word, loop.lanes.bit_length() - 1
    checks = "\n".join(lines)
    return f"""define internal void @line(ptr %ops, ptr %steps, i64 %from, i64 %len) {COLD}{{
entry:
{checks}
  %agree = icmp eq i64 {total}, 0
  %peel.a = select i1 %agree, i64 %e{first}, i64 0
  %peel = call i64 @llvm.umin.i64(i64 %peel.a, i64 %len)
  %main = add i64 %from, %peel
  %long = sub i64 %len, %peel
  %peels = icmp ne i64 %peel, 0
  br i1 %peels, label %first, label %second
first:
  call void @tail(ptr %ops, ptr %steps, i64 %from, i64 %peel, ptr null)
  br label %second
second:
  %v = lshr i64 %long, {shift}
  %stream = icmp ne i64 %v, 0
  %go = and i1 %stream, %agree
  br i1 %go, label %streamed, label %plain
streamed:
  call void @stream(ptr %ops, ptr %steps, i64 %main, i64 %v, ptr null)
  %did = shl i64 %v, {shift}
  br label %plain
plain:
  %skip = phi i64 [ 0, %second ], [ %did, %streamed ]
  %here = add i64 %main, %skip
  %length = sub i64 %long, %skip
{calls(loop.lanes, "%length", "%here")}  ret void
}}
"""
