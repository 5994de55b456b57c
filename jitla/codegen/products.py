"""Products of a block of rows with a vector, as IR: rows by vector, and rows summed with weights.

Knows: argument blocks, vectors, tails under a mask. Must not know: how rows are cut into blocks.
Receives a form, a dtype and a target; returns the text of a module whose entry is @k.

Operands: rows (every row contiguous), the vector, the result. The order of every sum depends on the
length of the rows only, so results do not depend on how rows are cut.
"""

from __future__ import annotations

import struct

import numpy as np

from jitla.codegen.layout import HEADER, Target

__all__ = ["pack_product", "product_text"]

AT_ONCE = 4  # rows whose sums are kept in registers together
BATCH = 8  # rows added up before results are stored
OPERANDS = 3
AHEAD = 4096  # bytes: rows are read in turns, which hides from the processor that they are one run
SPAN = "ptr %x, ptr %v, ptr %out, i64 %i, i64 %n, i64 %step"
# Words of the geometry: rows, elements of a row, bytes from row to row.
ROWS, LENGTH, STEP = range(3)


def pack_product(entry: int, rows: int, length: int, step: int) -> bytes:
    """Return the argument block of a product with `rows` rows of `length` elements."""
    base = HEADER + 2 * OPERANDS
    words = [entry, base + 3, 1, 1, 0, 0, 0, OPERANDS, *([0] * 2 * OPERANDS), rows, length, step]
    return struct.pack(f"<{len(words)}q", *words)


def product_text(form: str, dtype: np.dtype, target: Target) -> str:
    """Return the module of the product `form` ("dot" or "sum") of `dtype`."""
    real = {"d": "double", "f": "float"}[dtype.char]
    width = target.lanes(dtype.itemsize)
    write = _dot if form == "dot" else _sum
    return f'target triple = "{target.triple}"\n' + write(_Words(real, dtype.itemsize, width))


class _Words:
    """Names of types and operations for one element type and vector width."""

    def __init__(self, real: str, size: int, width: int) -> None:
        self.real, self.size, self.width = real, size, width
        self.vector = f"<{width} x {real}>"
        self.code = f"v{width}{'f64' if size == 8 else 'f32'}"
        self.mask = f"<{width} x i1>"
        self.shift = width.bit_length() - 1

    def head(self) -> str:
        base = HEADER + 2 * OPERANDS
        return "".join(
            f"  %{name}.p = getelementptr i64, ptr %block, i64 {at}\n"
            f"  %{name} = load {kind}, ptr %{name}.p, align 8\n"
            for name, at, kind in (
                ("x", HEADER, "ptr"), ("v", HEADER + 1, "ptr"), ("out", HEADER + 2, "ptr"),
                ("rows", base + ROWS, "i64"), ("n", base + LENGTH, "i64"),
                ("step", base + STEP, "i64"))
        ) + (f"  %vectors = lshr i64 %n, {self.shift}\n  %rest = and i64 %n, {self.width - 1}\n"
             f"  %odd = icmp ne i64 %rest, 0\n  %whole = sub i64 %n, %rest\n")

    def tail_mask(self) -> str:
        """Lines of %mask, true for the first %rest lanes."""
        lanes = ", ".join(f"i64 {i}" for i in range(self.width))
        i64s = f"<{self.width} x i64>"
        return (f"  %rest.0 = insertelement {i64s} poison, i64 %rest, i64 0\n"
                f"  %rest.v = shufflevector {i64s} %rest.0, {i64s} poison, "
                f"<{self.width} x i32> zeroinitializer\n"
                f"  %mask = icmp ult {i64s} <{lanes}>, %rest.v\n")

    def masked(self, name: str, at: str) -> str:
        """Line that loads the lanes of %mask, zeros elsewhere."""
        return (f"  {name} = call {self.vector} @llvm.masked.load.{self.code}.p0(ptr align "
                f"{self.size} {at}, {self.mask} %mask, {self.vector} zeroinitializer)\n")

    def fma(self, name: str, a: str, b: str, c: str) -> str:
        """Line of ``a * b + c``, rounded once where the processor can."""
        v = self.vector
        return f"  {name} = call {v} @llvm.fmuladd.{self.code}({v} {a}, {v} {b}, {v} {c})\n"

    def fold(self, name: str, x: str) -> str:
        """Lines that add up the lanes of `x`, halves first."""
        text, width = "", self.width
        while width > 1:
            half = width // 2
            pair = f"<{width} x {self.real}> {x}, <{width} x {self.real}> poison"
            low = ", ".join(f"i32 {i}" for i in range(half))
            high = ", ".join(f"i32 {i + half}" for i in range(half))
            text += (f"  {name}.l{half} = shufflevector {pair}, <{half} x i32> <{low}>\n"
                     f"  {name}.h{half} = shufflevector {pair}, <{half} x i32> <{high}>\n"
                     f"  {name}.s{half} = fadd <{half} x {self.real}> {name}.l{half}, {name}.h{half}\n")
            x, width = f"{name}.s{half}", half
        return text + f"  {name} = extractelement <1 x {self.real}> {x}, i64 0\n"

    def declared(self) -> str:
        v = self.vector
        return (f"declare {v} @llvm.masked.load.{self.code}.p0(ptr, {self.mask}, {v})\n"
                f"declare void @llvm.masked.store.{self.code}.p0({v}, ptr, {self.mask})\n"
                f"declare {v} @llvm.fmuladd.{self.code}({v}, {v}, {v})\n"
                "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)\n"
                "declare i64 @llvm.umin.i64(i64, i64)\n")


def _dot(w: _Words) -> str:
    """Every result is the sum over a row of its elements times the vector's."""
    some = "".join(_dot_rows(w, count) for count in (AT_ONCE, 1))
    return f"""{some}define void @k(ptr %block, i64 %begin, i64 %end) nounwind {{
entry:
{w.head()}  %several = sub i64 %rows, {AT_ONCE - 1}
  br label %many
many:
  %i = phi i64 [ 0, %entry ], [ %i.next, %do ]
  %more = icmp slt i64 %i, %several
  br i1 %more, label %do, label %single
do:
  call void @dot{AT_ONCE}(ptr %x, ptr %v, ptr %out, i64 %i, i64 %n, i64 %step)
  %i.next = add i64 %i, {AT_ONCE}
  br label %many
single:
  %j = phi i64 [ %i, %many ], [ %j.next, %one ]
  %left = icmp ult i64 %j, %rows
  br i1 %left, label %one, label %done
one:
  call void @dot1(ptr %x, ptr %v, ptr %out, i64 %j, i64 %n, i64 %step)
  %j.next = add i64 %j, 1
  br label %single
done:
  ret void
}}
{w.declared()}"""


def _dot_rows(w: _Words, count: int) -> str:
    """@dot: `count` results; every row has two accumulators, the tail goes to the first."""
    v, r, z = w.vector, w.real, "zeroinitializer"
    rows = range(count)
    starts = "".join(
        f"  %at{k} = add i64 %i, {k}\n  %skip{k} = mul i64 %at{k}, %step\n"
        f"  %x{k} = getelementptr i8, ptr %x, i64 %skip{k}\n" for k in rows)
    phis = "".join(
        f"  %a{k} = phi {v} [ {z}, %entry ], [ %a{k}.n, %body ]\n"
        f"  %b{k} = phi {v} [ {z}, %entry ], [ %b{k}.n, %body ]\n" for k in rows)
    step = "".join(
        f"  %p{k} = getelementptr {r}, ptr %x{k}, i64 %j\n"
        f"  %q{k} = getelementptr {r}, ptr %x{k}, i64 %j2\n"
        f"  %ahead{k} = getelementptr i8, ptr %p{k}, i64 {AHEAD}\n"
        f"  call void @llvm.prefetch.p0(ptr %ahead{k}, i32 0, i32 3, i32 1)\n"
        f"  %e{k} = load {v}, ptr %p{k}, align {w.size}\n"
        f"  %f{k} = load {v}, ptr %q{k}, align {w.size}\n"
        + w.fma(f"%a{k}.n", f"%e{k}", "%v0", f"%a{k}") + w.fma(f"%b{k}.n", f"%f{k}", "%v1", f"%b{k}")
        for k in rows)
    odd_phis = "".join(
        f"  %c{k} = phi {v} [ %a{k}, %loop ], [ %c{k}.n, %single ]\n" for k in rows)
    odd = "".join(
        f"  %s{k} = getelementptr {r}, ptr %x{k}, i64 %l\n"
        f"  %g{k} = load {v}, ptr %s{k}, align {w.size}\n"
        + w.fma(f"%c{k}.n", f"%g{k}", "%v2", f"%c{k}") for k in rows)
    last = _dot_ends(w, count)
    pair = 2 * w.width
    return f"""define internal void @dot{count}({SPAN}) nounwind {{
entry:
{starts}  %rest = and i64 %n, {w.width - 1}
  %whole = sub i64 %n, %rest
  %odd = icmp ne i64 %rest, 0
  %pairs = and i64 %n, -{pair}
{w.tail_mask()}  br label %loop
loop:
  %j = phi i64 [ 0, %entry ], [ %j.n, %body ]
{phis}  %more = icmp ult i64 %j, %pairs
  br i1 %more, label %body, label %odd.loop
body:
  %j2 = add i64 %j, {w.width}
  %pv0 = getelementptr {r}, ptr %v, i64 %j
  %pv1 = getelementptr {r}, ptr %v, i64 %j2
  %v0 = load {v}, ptr %pv0, align {w.size}
  %v1 = load {v}, ptr %pv1, align {w.size}
{step}  %j.n = add i64 %j, {pair}
  br label %loop
odd.loop:
  %l = phi i64 [ %pairs, %loop ], [ %l.n, %single ]
{odd_phis}  %last = icmp ult i64 %l, %whole
  br i1 %last, label %single, label %check
single:
  %pv2 = getelementptr {r}, ptr %v, i64 %l
  %v2 = load {v}, ptr %pv2, align {w.size}
{odd}  %l.n = add i64 %l, {w.width}
  br label %odd.loop
{last}  ret void
}}
"""


def _dot_ends(w: _Words, count: int) -> str:
    """Lines that add the tails of rows under a mask, fold the lanes and store."""
    v, r, rows = w.vector, w.real, range(count)
    tail = "".join(
        f"  %t{k} = getelementptr {r}, ptr %x{k}, i64 %whole\n" + w.masked(f"%h{k}", f"%t{k}")
        + w.fma(f"%d{k}.t", f"%h{k}", "%v3", f"%c{k}") for k in rows)
    ends = "".join(
        f"  %d{k} = phi {v} [ %c{k}, %check ], [ %d{k}.t, %tail ]\n" for k in rows)
    folds = "".join(
        f"  %sum{k}.v = fadd {v} %d{k}, %b{k}\n" + w.fold(f"%sum{k}", f"%sum{k}.v")
        + f"  %o{k} = getelementptr {r}, ptr %out, i64 %at{k}\n"
        f"  store {r} %sum{k}, ptr %o{k}, align {w.size}\n" for k in rows)
    return f"""check:
  br i1 %odd, label %tail, label %end
tail:
  %pv3 = getelementptr {r}, ptr %v, i64 %whole
{w.masked("%v3", "%pv3")}{tail}  br label %end
end:
{ends}{folds}"""


def _sum(w: _Words) -> str:
    """The results are the rows, each times its weight, added up; a batch of rows at a time."""
    batches = "".join(_sum_rows(w, count, fresh) for count in (BATCH, 1) for fresh in (False, True))
    fresh = f"call void @sum{BATCH}f(ptr %x, ptr %v, ptr %out, i64 0, i64 %n, i64 %step)"
    return f"""{batches}define void @k(ptr %block, i64 %begin, i64 %end) nounwind {{
entry:
{w.head()}  %full = icmp uge i64 %rows, {BATCH}
  br i1 %full, label %first, label %first.one
first:
  {fresh}
  br label %begun
first.one:
  call void @sum1f(ptr %x, ptr %v, ptr %out, i64 0, i64 %n, i64 %step)
  br label %begun
begun:
  %start = phi i64 [ {BATCH}, %first ], [ 1, %first.one ]
  %several = sub i64 %rows, {BATCH - 1}
  br label %many
many:
  %i = phi i64 [ %start, %begun ], [ %i.next, %do ]
  %more = icmp slt i64 %i, %several
  br i1 %more, label %do, label %single
do:
  call void @sum{BATCH}(ptr %x, ptr %v, ptr %out, i64 %i, i64 %n, i64 %step)
  %i.next = add i64 %i, {BATCH}
  br label %many
single:
  %j = phi i64 [ %i, %many ], [ %j.next, %one ]
  %left = icmp ult i64 %j, %rows
  br i1 %left, label %one, label %done
one:
  call void @sum1(ptr %x, ptr %v, ptr %out, i64 %j, i64 %n, i64 %step)
  %j.next = add i64 %j, 1
  br label %single
done:
  ret void
}}
{w.declared()}"""


def _sum_rows(w: _Words, count: int, fresh: bool) -> str:
    """@sum: add `count` weighted rows to the results; `fresh` ones begin with nothing."""
    v, r, rows = w.vector, w.real, range(count)
    starts = "".join(
        f"  %row{k} = add i64 %i, {k}\n  %skip{k} = mul i64 %row{k}, %step\n"
        f"  %x{k} = getelementptr i8, ptr %x, i64 %skip{k}\n"
        f"  %w{k}.p = getelementptr {r}, ptr %v, i64 %row{k}\n"
        f"  %w{k}.s = load {r}, ptr %w{k}.p, align {w.size}\n"
        f"  %w{k}.0 = insertelement {v} poison, {r} %w{k}.s, i64 0\n"
        f"  %w{k} = shufflevector {v} %w{k}.0, {v} poison, <{w.width} x i32> zeroinitializer\n"
        for k in rows)

    def chain(tag: str, at: str, masked: bool) -> str:
        """Lines from the results so far to %end of `tag`."""
        text, last = f"  %o{tag} = getelementptr {r}, ptr %out, i64 {at}\n", f"%s{tag}"
        if fresh:
            last = "zeroinitializer"
        elif masked:
            text += w.masked(last, f"%o{tag}")
        else:
            text += f"  {last} = load {v}, ptr %o{tag}, align {w.size}\n"
        for k in rows:
            text += f"  %p{tag}{k} = getelementptr {r}, ptr %x{k}, i64 {at}\n"
            if masked:
                text += w.masked(f"%e{tag}{k}", f"%p{tag}{k}")
            else:
                text += f"  %e{tag}{k} = load {v}, ptr %p{tag}{k}, align {w.size}\n"
            text += w.fma(f"%a{tag}{k}", f"%e{tag}{k}", f"%w{k}", last)
            last = f"%a{tag}{k}"
        if masked:
            return text + (f"  call void @llvm.masked.store.{w.code}.p0({v} {last}, ptr align {w.size} "
                           f"%o{tag}, {w.mask} %mask)\n")
        return text + f"  store {v} {last}, ptr %o{tag}, align {w.size}\n"

    name = f"sum{count}{'f' if fresh else ''}"
    return f"""define internal void @{name}({SPAN}) nounwind {{
entry:
{starts}  %rest = and i64 %n, {w.width - 1}
  %whole = sub i64 %n, %rest
  %odd = icmp ne i64 %rest, 0
{w.tail_mask()}  br label %loop
loop:
  %j = phi i64 [ 0, %entry ], [ %j.n, %body ]
  %more = icmp ult i64 %j, %whole
  br i1 %more, label %body, label %check
body:
{chain("", "%j", False)}  %j.n = add i64 %j, {w.width}
  br label %loop
check:
  br i1 %odd, label %tail, label %end
tail:
{chain("t", "%whole", True)}  br label %end
end:
  ret void
}}
"""
