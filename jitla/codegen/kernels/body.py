"""Bodies of loops: reductions' monoids, spans of elements, strips."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

from jitla.classes import dataclass
from jitla.codegen.ir import BOOL, Value, memory_type, named
from jitla.codegen.ir_elementwise import LlvmBuilder, MathCall
from jitla.codegen.kernel_abi import COLD, KernelLoop, Operand, is_const, word
from jitla.codegen.vecmath.library import CALLING, family, length, some_far, supports
from jitla.errors import BackendError
from jitla.fusion import Kernel
from jitla.hops import Hop, Kind, OpSpec, const_value

COMBINE = {
    "sum": "add", "prod": "mul", "min": "minimum", "max": "maximum", "any": "or_", "all": "and_",
}


def identity(name: str, dtype: np.dtype) -> Any:
    """Return what the aggregate `name` starts from; -0.0 + x is x for every float x."""
    if name == "sum" and dtype.kind == "c":
        return complex(-0.0, -0.0)
    if name in ("sum", "any"):
        return -0.0 if dtype.kind == "f" else 0
    if name in ("prod", "all"):
        return 1
    sign = 1 if name == "min" else -1
    if dtype.kind == "f":
        return sign * np.inf
    if dtype == BOOL:
        return name == "min"
    return np.iinfo(dtype).max if name == "min" else np.iinfo(dtype).min


SPAN = "ptr %ops, ptr %steps, i64 %start, i64 %count, ptr %acc"


def emit_hop(b: LlvmBuilder, hop: Hop, values: list[Value]) -> Value:
    """Write the recipe of the cell `hop`."""
    return emit_cell(b, hop.op, hop.meta.dtype, dict(hop.attrs), values)


def emit_cell(
    b: LlvmBuilder, op: OpSpec, dtype: np.dtype, attrs: Mapping[str, Any], values: list[Value]
) -> Value:
    """Write the recipe of the cell `op`, whose value is of `dtype`."""
    result: Value | None = op.emit(b, *values, dict(attrs)) if op.emit else None
    if result is None:
        dtypes = ", ".join(str(v.dtype) for v in values)
        raise BackendError(f"{op.name} of {dtypes} has no recipe")
    return replace(result, dtype=dtype, fixed=all(v.fixed for v in values))


@dataclass(slots=True)
class BodyWriter:
    """The text of one inner loop over `width` elements at a time."""

    loop: KernelLoop
    width: int
    math: MathCall
    nontemporal: bool = False
    halves: bool = False  # of operands that are read with gaps, every second element is read
    lines: list[str] = field(default_factory=list)
    b: LlvmBuilder = field(init=False)
    fixed: dict[Hop, Value] = field(default_factory=dict)
    places: dict[Hop, str] = field(default_factory=dict)  # of operands in one run: where they were read last

    def __post_init__(self) -> None:
        self.b = LlvmBuilder(self.lines, self.width, self.math)
        self.b.calls = self.loop.calls
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
                if op.aside:
                    word(self.lines, at[1:], "%ops", op.word, "ptr")
                else:
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
            elif op.letter == "t":
                self.places[op.hop] = f"{at}.0"
            elif op.role == "in" and "b" not in varying:
                self.fixed[op.hop] = self.b.splat(f"{at}.0", op.dtype)

    def pointer(self, op: Operand, base: str, name: str = "q", index: str = "%i") -> str:
        """Write the address of element `index` of `op`, counted from `base`."""
        at = f"%{name}{op.word}"
        if op.letter == "c":
            kind = memory_type(op.dtype)
            self.lines.append(f"  {at} = getelementptr {kind}, ptr {base}, i64 {index}")
        else:
            self.lines.append(f"  {at}.d = mul i64 {index}, %s{op.word}")
            self.lines.append(f"  {at} = getelementptr i8, ptr {base}, i64 {at}.d")
        return at

    def read(self, op: Operand, at: str) -> Value:
        """Write the load of elements of `op` from address `at`."""
        if op.letter == "s" and self.halves:
            return self.b.every_second(at, op.dtype)
        if op.letter == "s":
            return self.b.gather(at, f"%s{op.word}", op.dtype)
        self.places[op.hop] = at
        return self.b.load(at, op.dtype)

    def write(self, op: Operand, x: Value, at: str) -> None:
        """Write the store of elements of `op` to address `at`."""
        if op.letter == "s":
            self.b.scatter(x, at, f"%s{op.word}")
        else:
            self.b.store(x, at, self.nontemporal and op.role == "out")

    def prefetch(self, op: Operand, at: str, ahead: int, name: str = "") -> None:
        """Write the request for the memory `ahead` bytes behind `at`."""
        self.lines += [
            f"  %{name}ahead{op.word} = getelementptr i8, ptr {at}, i64 {ahead}",
            f"  call void @llvm.prefetch.p0(ptr %{name}ahead{op.word}, i32 0, i32 3, i32 1)",
        ]

    def body(self, values: dict[Hop, Value]) -> None:
        """Write the kernel's cells; `values` holds the inputs and receives every cell."""
        for hop in self.loop.kernel.body:
            if hop.op.kind is Kind.TAKE:
                table, at = self.places[hop.inputs[0]], hop.inputs[1]
                positions = self.b.words(self.places[at], at.meta.dtype) if at in self.places else \
                    self.b.lanes(values[at])
                values[hop] = self.b.pick(table, positions, hop.meta.dtype)
            elif hop.op.kind is not Kind.AGG:
                values[hop] = emit_hop(self.b, hop, [values[i] for i in hop.inputs])

    def body_of_near(self, values: dict[Hop, Value]) -> str:
        """Write the cells with the short code of functions, and again for the few lanes it is not for.

        Return the label of the block that goes on; the first one is %loop, where there was no label yet.
        """
        self.b.far, before = [], dict(values)
        self.body(values)
        far, self.b.far = self.b.far, None
        if not far:
            return "loop"
        lines, some = some_far(far, self.width, self.b.fresh)
        self.lines += [*(f"  {line}" for line in lines), f"  br i1 {some}, label %far, label %met", "far:"]
        self.b.calls = True
        self.body(before)
        self.b.calls = self.loop.calls
        self.lines += ["  br label %met", "met:"]
        wanted = [o.hop for o in self.loop.operands if o.role == "out"]
        wanted += [o.hop.inputs[0] for o in self.loop.aggregates]
        for hop in dict.fromkeys(wanted):
            if values[hop] != before[hop]:
                name = self.b.fresh("met")
                self.lines += self.b.phi(name, (values[hop], "loop"), (before[hop], "far"))
                values[hop] = named(hop.meta.dtype, name)
        return "met"

    def term(self, op: Operand, values: dict[Hop, Value]) -> Value:
        """Write what the aggregate `op` is made of, in its dtype."""
        return self.b.cast(values[op.hop.inputs[0]], op.dtype)

    def combine(self, op: Operand, acc: Value, values: dict[Hop, Value]) -> Value:
        """Write one step of the aggregate `op`."""
        result: Value = getattr(self.b, COMBINE[op.hop.op.name])(acc, self.term(op, values))
        return result


def gapped(loop: KernelLoop) -> list[Operand]:
    """Return the operands that are read with gaps, if there is code for every second element of all."""
    found = [o for o in loop.operands if o.letter == "s" and o.role == "in"]
    fit = loop.lanes > 1 and not loop.polynomials and all(o.dtype.kind != "c" for o in found)
    return found if fit else []


def chosen(loop: KernelLoop, name: str, args: str, usual: str) -> str:
    """Return a function that calls @halves if all that is read with gaps is every second element."""
    lines: list[str] = []
    total = "true"
    for op in gapped(loop):
        word(lines, f"s{op.word}", "%steps", op.word)
        lines += [f"  %second{op.word} = icmp eq i64 %s{op.word}, {2 * op.dtype.itemsize}",
                  f"  %all{op.word} = and i1 {total}, %second{op.word}"]
        total = f"%all{op.word}"
    text = "\n".join(lines)
    return f"""define internal void @{name}({args}) {COLD}{{
entry:
{text}
  br i1 {total}, label %second, label %any
second:
  call void @halves({args})
  ret void
any:
  call void @{usual}({args})
  ret void
}}
"""


def spans(loop: KernelLoop, math: MathCall, how: str) -> str:
    """Return @span for whole vectors; several of every second element lie in one register."""
    if not gapped(loop):
        return span(loop, "span", loop.lanes, math, how=how)
    both = span(loop, "every", loop.lanes, math, how=how) + span(
        loop, "halves", loop.lanes, math, how=how, halves=True)
    return both + chosen(loop, "span", SPAN, "every")


def span(
    loop: KernelLoop, name: str, width: int, math: MathCall, nontemporal: bool = False, how: str = "",
    halves: bool = False,
) -> str:
    """Return a function that runs the body `count` times on `width` elements from `start` on.

    Aggregates are taken from `acc` and left there, a slot per lane; `count` is at least 1.
    """
    w = BodyWriter(loop, width, math, nontemporal, halves)
    w.lines.append("entry:")
    w.begin()
    accs = []
    ahead = prefetch_bytes(loop)
    for k, op in enumerate(loop.aggregates):
        w.lines.append(f"  %acc{k} = getelementptr i8, ptr %acc, i64 {loop.slot * width * k}")
        accs.append(w.b.load(f"%acc{k}", op.dtype))
    for k, end in enumerate(elements(w, "entry", accs, ahead if width > 1 else None)):
        w.b.store(end, f"%acc{k}")
    body = "\n".join(w.lines)
    return f"define internal void @{name}({SPAN}) {how}{{\n{body}\n  ret void\n}}\n"


def prefetch_bytes(loop: KernelLoop) -> dict[int, int]:
    """Return the prefetch distance in bytes of each prefetched operand, by operand number."""
    ahead = loop.schedule.ahead
    return {o.word: ahead for o in loop.operands if ahead and o.role == "in" and o.letter in "cf"}


def elements(
    w: BodyWriter, before: str, accs: Sequence[Value], ahead: Mapping[int, int] | None = None
) -> list[Value]:
    """Write the loop over `count` vectors after block `before`; return the aggregates behind it.

    `ahead` tells for some operands how many bytes in front of the loop memory is asked for; without,
    the processor guesses.
    """
    w.lines += [f"  %total = mul i64 %count, {w.width}", "  br label %loop", "loop:"]
    head = len(w.lines)
    values = dict(w.fixed)
    for op in w.loop.operands:
        if op.role == "in" and op.walks:
            at = w.pointer(op, f"%p{op.word}")
            values[op.hop] = w.read(op, at)
            if ahead and op.word in ahead:
                w.prefetch(op, at, ahead[op.word])
    last = w.body_of_near(values)
    phis, ends = [f"  %i = phi i64 [ 0, %{before} ], [ %i.next, %{last} ]"], []
    for k, op in enumerate(w.loop.aggregates):
        ends.append(w.combine(op, named(op.dtype, f"%sofar{k}"), values))
        phis += w.b.phi(f"%sofar{k}", (accs[k], before), (ends[k], last))
    for op in w.loop.operands:
        if op.role == "out":
            w.write(op, values[op.hop], w.pointer(op, f"%p{op.word}"))
    w.lines[head:head] = phis
    w.lines += [
        f"  %i.next = add i64 %i, {w.width}", "  %more = icmp ult i64 %i.next, %total",
        "  br i1 %more, label %loop, label %done", "done:",
    ]
    return ends


def padded_tail(loop: KernelLoop) -> str:
    """Return @tail for fewer elements than a vector has, by one run of @span on copies.

    Bodies with polynomials are long: this spares a second one. The last element fills the vector,
    so that no lane computes on anything but the user's data.
    """
    n, lanes = len(loop.operands), loop.lanes
    lines = [f"  %{name}.2 = alloca [{n} x i64], align 16" for name in ("ops", "steps")]
    fill: list[str] = []
    drain: list[str] = []
    for op in loop.operands:
        k, size = op.word, op.dtype.itemsize
        value = word(lines, f"v{k}", "%ops", k)
        lines.append(f"  %to{k} = getelementptr i64, ptr %ops.2, i64 {k}")
        if op.walks:
            word(lines, f"step{k}", "%steps", k)
            lines += [
                f"  %copy{k} = alloca [{lanes} x i{8 * size}], align 64",
                f"  %from{k} = inttoptr i64 {value} to ptr",
                f"  %s{k} = getelementptr i64, ptr %steps.2, i64 {k}",
                f"  store i64 {size}, ptr %s{k}, align 8",
                f"  store ptr %copy{k}, ptr %to{k}, align 8",
            ]
            _copy_element(drain if op.role == "out" else fill, op)
        else:
            lines.append(f"  store i64 {value}, ptr %to{k}, align 8")
    return "\n".join([
        f"define internal void @tail({SPAN}) {COLD}{{", "entry:", *lines,
        "  %last = sub i64 %count, 1", "  br label %fill", "fill:",
        "  %i = phi i64 [ 0, %entry ], [ %i.next, %fill ]",
        "  %j = call i64 @llvm.umin.i64(i64 %i, i64 %last)", "  %at = add i64 %start, %j", *fill,
        "  %i.next = add i64 %i, 1", f"  %filling = icmp ult i64 %i.next, {lanes}",
        "  br i1 %filling, label %fill, label %run", "run:",
        "  call void @span(ptr %ops.2, ptr %steps.2, i64 0, i64 1, ptr null)",
        "  br label %drain", "drain:", "  %o = phi i64 [ 0, %run ], [ %o.next, %drain ]",
        "  %out = add i64 %start, %o", *drain, "  %o.next = add i64 %o, 1",
        "  %draining = icmp ult i64 %o.next, %count",
        "  br i1 %draining, label %drain, label %done", "done:", "  ret void", "}", "",
    ])


def _copy_element(lines: list[str], op: Operand) -> None:
    """Write the copy of one element into the vector's memory, or out of it."""
    k, kind, out = op.word, f"i{8 * op.dtype.itemsize}", op.role == "out"
    at, lane = ("%out", "%o") if out else ("%at", "%i")
    lines += [
        f"  %far{k}.d = mul i64 {at}, %step{k}",
        f"  %far{k} = getelementptr i8, ptr %from{k}, i64 %far{k}.d",
        f"  %near{k} = getelementptr {kind}, ptr %copy{k}, i64 {lane}",
    ]
    source, target = (f"%near{k}", f"%far{k}") if out else (f"%far{k}", f"%near{k}")
    lines += [
        f"  %element{k} = load {kind}, ptr {source}, align 1",
        f"  store {kind} %element{k}, ptr {target}, align 1",
    ]


INSTRUCTIONS = 155  # of functions in a strip: a processor looks so far ahead that turns of it overlap
WAITING = 2  # times as much count those that may have to call another
BYTES = 16_384  # of what strips hand on
LONGEST = 512  # elements that are run through at once


def parts(loop: KernelLoop) -> list[tuple[Hop, ...]]:
    """Return the strips of the body, in order; one, if it is not to be cut."""
    body = loop.kernel.body
    if not loop.calls or any(h.op.kind in (Kind.TAKE, Kind.AGG) for h in body):
        return [body]
    place = _placed(body)
    found = [tuple(h for h in body if place[h] == k) for k in range(max(place.values()) + 1)]
    return [strip for strip in found if strip]


def _placed(body: tuple[Hop, ...]) -> dict[Hop, int]:
    """Return the strip of every cell: functions fill them in order, cells go along with what they read."""
    place: dict[Hop, int] = {}
    last, filled = 0, 0
    seen: set[tuple[str, Hop]] = set()
    for hop in body:
        place[hop] = max((place[i] for i in hop.inputs if i in place), default=-1)
        if not hop.op.transcendental:
            continue
        key = (family(hop.op.name), hop.inputs[0])
        many = 0 if key in seen else _instructions(hop)
        if filled and filled + many > INSTRUCTIONS:
            last, filled, seen = last + 1, 0, set()
        filled += many
        seen.add(key)
        place[hop] = last
    for hop in reversed(body):
        if place[hop] < 0:  # of operands only: where it is read first
            readers = [place[h] for h in body if hop in h.inputs]
            place[hop] = min(readers, default=last)
    return place


def _instructions(hop: Hop) -> int:
    """Return how long the function of `hop` is; what has no code of its own here is called."""
    name, dtype = hop.op.name, hop.meta.dtype
    if not supports(name, dtype, defines=True):
        return INSTRUCTIONS
    return length(name, dtype) * (WAITING if name in CALLING else 1)


def long_span(
    loop: KernelLoop, name: str, math: MathCall, how: str, nontemporal: bool = False,
) -> str:
    """Return @`name`, which runs the body on whole vectors; a long one strip by strip.

    Results are stored by the last strip: where they overwrite operands, nobody reads these any more.
    """
    strips = parts(loop)
    if len(strips) < 2:
        return span(loop, name, loop.lanes, math, nontemporal, how) if nontemporal else spans(loop, math, how)
    held = _handed(loop, strips)
    outs = [o for o in loop.operands if o.role == "out"]
    between = [Operand(len(loop.operands) + k, hop, "c", "out") for k, hop in enumerate(held)]
    text, calls = "", ""
    for k, strip in enumerate(strips):
        final = k == len(strips) - 1
        read = {i for h in strip for i in h.inputs} | ({o.hop for o in outs} if final else set())
        ops = [o for o in loop.operands if o.role == "in" and o.hop in read]
        ops += [replace(o, role="in") for o in between if o.hop in read and o.hop not in strip]
        ops += outs if final else [o for o in between if o.hop in strip]
        kernel = Kernel("Cell", loop.kernel.shape, loop.kernel.inputs, strip, tuple(o.hop for o in ops))
        part = replace(loop, kernel=kernel, operands=tuple(ops), calls=False)
        text += span(part, f"{name}.{k}", loop.lanes, math, nontemporal and final, "noinline ")
        calls += f"  call void @{name}.{k}(ptr %ops.2, ptr %steps.2, i64 %at, i64 %n, ptr null)\n"
    return text + _driver(loop, name, between, calls, how)


def _handed(loop: KernelLoop, strips: list[tuple[Hop, ...]]) -> list[Hop]:
    """Return the cells that a later strip reads, or stores as results."""
    results = {o.hop for o in loop.operands if o.role == "out"}
    held: list[Hop] = []
    for k, strip in enumerate(strips[:-1]):
        later = {i for s in strips[k + 1:] for h in s for i in h.inputs} | results
        held += [h for h in strip if h in later]
    return held


def _driver(loop: KernelLoop, name: str, between: list[Operand], calls: str, how: str) -> str:
    """Return the function that calls the strips, block by block, with memory for what they hand on."""
    n, many = len(loop.operands), len(loop.operands) + len(between)
    size = sum(o.dtype.itemsize for o in between)
    turns = max(min(BYTES // max(size, 1), LONGEST) // loop.lanes, 1)
    lines = [f"  %{table}.2 = alloca [{many} x i64], align 16" for table in ("ops", "steps")]
    for table in ("ops", "steps"):
        for k in range(n):
            lines += [
                f"  %{table}{k} = getelementptr i64, ptr %{table}, i64 {k}",
                f"  %{table}{k}.v = load i64, ptr %{table}{k}, align 8",
                f"  %{table}{k}.to = getelementptr i64, ptr %{table}.2, i64 {k}",
                f"  store i64 %{table}{k}.v, ptr %{table}{k}.to, align 8",
            ]
    moved = []
    for op in between:
        kind = memory_type(op.dtype)
        lines += [f"  %room{op.word} = alloca [{turns * loop.lanes} x {kind}], align 64",
                  f"  %room{op.word}.to = getelementptr i64, ptr %ops.2, i64 {op.word}"]
        moved += [f"  %back{op.word} = getelementptr {kind}, ptr %room{op.word}, i64 %before",
                  f"  store ptr %back{op.word}, ptr %room{op.word}.to, align 8"]
    return "\n".join([
        f"define internal void @{name}({SPAN}) {how}{{", "entry:", *lines, "  br label %block", "block:",
        "  %b = phi i64 [ 0, %entry ], [ %b.next, %block ]", "  %left = sub i64 %count, %b",
        f"  %n = call i64 @llvm.umin.i64(i64 %left, i64 {turns})", f"  %done = mul i64 %b, {loop.lanes}",
        "  %at = add i64 %start, %done", "  %before = sub i64 0, %at", *moved, calls.rstrip("\n"),
        f"  %b.next = add i64 %b, {turns}", "  %more = icmp ult i64 %b.next, %count",
        "  br i1 %more, label %block, label %ready", "ready:", "  ret void", "}", "",
    ])
