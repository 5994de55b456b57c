"""The inner loop around a kernel's body: loads, cells, aggregates, stores.

Knows: the order of these and how operands step. Must not know: units, the block, any op.
Receives a `Loop`; returns IR text of functions that run some elements of the last dimension.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

from jitla.classes import dataclass
from jitla.codegen.layout import COLD, Loop, Operand, is_const, word
from jitla.codegen.monoids import COMBINE
from jitla.codegen.scalar import LlvmBuilder, MathCall
from jitla.codegen.vecmath import some_far
from jitla.codegen.vector import Value, memory_type, named
from jitla.errors import BackendError
from jitla.hops import Hop, Kind, OpSpec, const_value
from jitla.rests import rest

SPAN = "ptr %ops, ptr %steps, i64 %start, i64 %count, ptr %acc"


def emit_hop(b: LlvmBuilder, hop: Hop, values: list[Value]) -> Value:
    """Write the recipe of the cell `hop`."""
    return emit_cell(b, hop.op, hop.meta.dtype, dict(hop.attrs), values)


def emit_cell(
    b: LlvmBuilder, op: OpSpec, dtype: np.dtype, attrs: Mapping[str, Any], values: list[Value]
) -> Value:
    """Write the recipe of the cell `op`, whose value is of `dtype`."""
    rest()
    result: Value | None = op.emit(b, *values, dict(attrs)) if op.emit else None
    if result is None:
        dtypes = ", ".join(str(v.dtype) for v in values)
        raise BackendError(f"{op.name} of {dtypes} has no recipe")
    return replace(result, dtype=dtype, fixed=all(v.fixed for v in values))


@dataclass(slots=True)
class Writer:
    """The text of one inner loop over `width` elements at a time."""

    loop: Loop
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


def gapped(loop: Loop) -> list[Operand]:
    """Return the operands that are read with gaps, if there is code for every second element of all."""
    found = [o for o in loop.operands if o.letter == "s" and o.role == "in"]
    fit = loop.lanes > 1 and not loop.polynomials and all(o.dtype.kind != "c" for o in found)
    return found if fit else []


def chosen(loop: Loop, name: str, args: str, usual: str) -> str:
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


def spans(loop: Loop, math: MathCall, how: str) -> str:
    """Return @span for whole vectors; several of every second element lie in one register."""
    if not gapped(loop):
        return span(loop, "span", loop.lanes, math, how=how)
    both = span(loop, "every", loop.lanes, math, how=how) + span(
        loop, "halves", loop.lanes, math, how=how, halves=True)
    return both + chosen(loop, "span", SPAN, "every")


def span(
    loop: Loop, name: str, width: int, math: MathCall, nontemporal: bool = False, how: str = "",
    halves: bool = False,
) -> str:
    """Return a function that runs the body `count` times on `width` elements from `start` on.

    Aggregates are taken from `acc` and left there, a slot per lane; `count` is at least 1.
    """
    w = Writer(loop, width, math, nontemporal, halves)
    w.lines.append("entry:")
    w.begin()
    accs = []
    ahead = early(loop)
    for k, op in enumerate(loop.aggregates):
        w.lines.append(f"  %acc{k} = getelementptr i8, ptr %acc, i64 {loop.slot * width * k}")
        accs.append(w.b.load(f"%acc{k}", op.dtype))
    for k, end in enumerate(elements(w, "entry", accs, ahead if width > 1 else None)):
        w.b.store(end, f"%acc{k}")
    body = "\n".join(w.lines)
    return f"define internal void @{name}({SPAN}) {how}{{\n{body}\n  ret void\n}}\n"


def early(loop: Loop) -> dict[int, int]:
    """Return for which operands memory is asked for early, and how many bytes, as the schedule says."""
    ahead = loop.schedule.ahead
    return {o.word: ahead for o in loop.operands if ahead and o.role == "in" and o.letter in "cf"}


def elements(
    w: Writer, before: str, accs: Sequence[Value], ahead: Mapping[int, int] | None = None
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


def padded_tail(loop: Loop) -> str:
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
