"""IR of scatters: histograms, sums by label, and running sums."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from jitla.codegen.indexing.gather import (
    ENTRY,
    Carried,
    block_head,
    counted_loop_ir,
    function,
    in_lanes,
    near_place,
    over_units,
    repeated,
    smaller,
    to_word,
    wrapped,
)
from jitla.codegen.ir import element_type, memory_type

__all__ = [
    "BANKS", "Binned", "HISTOGRAM_BANKS", "SCALE", "binned", "histogram_text", "merge_text",
    "running_text", "spread_text",
]


BANKS = 4  # rows that counts in turn go to: of two that are alike the second would wait for the first
_TURN = 4
_SOME = 1 << 8  # indices that are looked at closely after one that has to be
_ARGS = "ptr %table, ptr %beside, i64 %stride, ptr %index, ptr %values, i64 %length"


def spread_text(
    index: np.dtype, target: np.dtype, value: np.dtype | None, single: bool, wraps: bool, banks: int,
    triple: str, vector_bytes: int,
) -> str:
    """Return the module that adds values of dtype `value` to elements of `target`.

    There is a `single` value, or one for every index; if it has no dtype, ones are added. If it `wraps`,
    negative indices count from the end. A unit has as many rows as there are `banks`, `stride` elements
    apart. Operands: target, rows but for the first, indices, values, fault.
    """
    element = element_type(target)
    only = _given("", "0", target, value) if single and value is not None else ""

    def added(tag: str, at: str, place: str, bank: int) -> str:
        lines = "" if single or value is None else _given(tag, at, target, value)
        given = "1" if value is None else "%v" if single else f"%v{tag}"
        return lines + _add(tag, place, bank, given, target)

    def step(tag: str, at: str, turn: int) -> str:
        return near_place(tag, at, index) + f"""  %ok{tag} = icmp ult i64 %w{tag}, %most
  br i1 %ok{tag}, label %known{tag}, label %odd{tag}
odd{tag}:
  ret i64 {at}
known{tag}:
""" + added(tag, at, f"%w{tag}", turn % banks)

    rows = "".join(f"  %row{k} = mul i64 %stride, {k}\n"
                   f"  %table{k} = getelementptr {element}, ptr %beside, i64 %row{k}\n"
                   for k in range(1, banks))
    loop = counted_loop_ir(("%from", "%to"), ("entry", "done"), _TURN, *repeated(step, _TURN))
    fast = (f"define internal i64 @fast({_ARGS}, i64 %most, i64 %from, i64 %to) nounwind {{\nentry:\n"
            f"{only}{rows}{loop}done:\n  ret i64 %to\n}}\n")
    slow = wrapped(_ARGS, index, added("c", "%i", "%place", 0), only) if wraps else ""
    clear = _vectors("@clear(ptr %row", target, vector_bytes, _zero(target))
    head = block_head(("target", "rows", "index", "values", "fault"),
                      ("total", "each", "length", "most", "stride"))
    body = _own(element, banks, wraps) + (_WRAPS if wraps else "") + _LOST
    return (f'target triple = "{triple}"\n{clear}{fast}{slow}'
            f"{ENTRY}{head}{over_units(body)}")


def _own(element: str, banks: int, wraps: bool) -> str:
    """Lines that find and clear the rows of unit %u: those beside its first one lie behind %beside."""
    return f"""  %own = mul i64 %u, {banks}
  %own.last = sub i64 %own, 1
  %skip = mul i64 %own.last, %stride
  %beside = getelementptr {element}, ptr %rows, i64 %skip
  %head = icmp eq i64 %u, 0
  %table = select i1 %head, ptr %target, ptr %beside
  %first = zext i1 %head to i64
  %first.at = mul i64 %first, %stride
  %last.at = mul i64 {banks}, %stride
  call void @clear(ptr %beside, i64 %first.at, i64 %last.at)
  br label %several
several:
  %b = phi i64 [ %from, %unit ]{", [ %b.next, %odd ]" * wraps}
  %stop = call i64 @fast({_ARGS}, i64 %most, i64 %b, i64 %to)
  %whole = icmp eq i64 %stop, %to
  br i1 %whole, label %run, label %{"odd" if wraps else "lost"}
"""


# Where an index is not near, @slow does some, then @fast goes on.
_WRAPS = f"""odd:
  %b.far = add i64 %stop, {_SOME}
{smaller("%b.next", "%b.far", "%to")}\
  %known = call i1 @slow({_ARGS}, i64 %stop, i64 %b.next)
  br i1 %known, label %several, label %lost
"""
_LOST = """lost:
  store atomic i64 1, ptr %fault monotonic, align 8
  br label %exit
"""


def _zero(target: np.dtype) -> Callable[[str, str, str], str]:
    """Return what clears elements: what is added to a float of either sign and leaves it is -0.0."""
    element, size = element_type(target), target.itemsize
    zero = "-0.0" if target.kind == "f" else "0"
    return lambda tag, at, kind: (
        f"  %z{tag} = getelementptr {element}, ptr %row, i64 {at}\n"
        f"  store {kind} {zero if kind == element else f'splat ({element} {zero})'}, ptr %z{tag}, "
        f"align {size}\n")


def _vectors(head: str, target: np.dtype, vector_bytes: int, step: Callable[[str, str, str], str]) -> str:
    """Return the function that does `step` for elements %from to %to, of a tag, the place and the type."""
    lanes, element = vector_bytes // target.itemsize, element_type(target)
    turn, one = step("v", "%i", f"<{lanes} x {element}>"), step("s", "%j", element)
    loop = counted_loop_ir(("%from", "%to"), ("entry", "done"), lanes, turn, one)
    return (f"define internal void {head}, i64 %from, i64 %to) nounwind {{\nentry:\n{loop}"
            "done:\n  ret void\n}\n")


def _given(tag: str, at: str, target: np.dtype, value: np.dtype) -> str:
    """Lines of %v: the value for an index, as what it is added to."""
    kind, to = memory_type(value), element_type(target)
    lines = (f"  %h{tag} = getelementptr {kind}, ptr %values, i64 {at}\n"
             f"  %g{tag} = load {kind}, ptr %h{tag}, align {value.itemsize}\n")
    if value.kind == "b":
        return lines + f"  %b{tag} = icmp ne i8 %g{tag}, 0\n  %v{tag} = zext i1 %b{tag} to {to}\n"
    if kind == to:
        return lines + f"  %v{tag} = bitcast {kind} %g{tag} to {to}\n"
    if value.kind == "f":
        return lines + f"  %v{tag} = fpext {kind} %g{tag} to {to}\n"
    return lines + to_word(f"%v{tag}", f"%g{tag}", value)


def _add(tag: str, place: str, bank: int, given: str, target: np.dtype) -> str:
    """Lines that add a value to what is at a place of a row."""
    element, size, add = element_type(target), target.itemsize, "fadd" if target.kind == "f" else "add"
    return f"""  %p{tag} = getelementptr {element}, ptr %table{bank or ""}, i64 {place}
  %x{tag} = load {element}, ptr %p{tag}, align {size}
  %y{tag} = {add} {element} %x{tag}, {given}
  store {element} %y{tag}, ptr %p{tag}, align {size}
"""


def merge_text(target: np.dtype, triple: str, vector_bytes: int) -> str:
    """Return the module that adds rows to a target, one after the other; operands: target, rows."""
    element, size, add = element_type(target), target.itemsize, "fadd" if target.kind == "f" else "add"

    def summed(tag: str, at: str, kind: str) -> str:
        return f"""  %p{tag} = getelementptr {element}, ptr %target, i64 {at}
  %q{tag} = getelementptr {element}, ptr %row, i64 {at}
  %x{tag} = load {kind}, ptr %p{tag}, align {size}
  %y{tag} = load {kind}, ptr %q{tag}, align {size}
  %z{tag} = {add} {kind} %x{tag}, %y{tag}
  store {kind} %z{tag}, ptr %p{tag}, align {size}
"""

    head = block_head(("target", "rows"), ("total", "each", "count", "stride"))
    body = f"""  br label %rows.all
rows.all:
  %r = phi i64 [ 0, %unit ], [ %r.next, %one ]
  %r.more = icmp ult i64 %r, %count
  br i1 %r.more, label %one, label %run
one:
  %r.next = add i64 %r, 1
  %skip = mul i64 %r, %stride
  %row = getelementptr {element}, ptr %rows, i64 %skip
  call void @sum(ptr %target, ptr %row, i64 %from, i64 %to)
  br label %rows.all
"""
    add_up = _vectors("@sum(ptr %target, ptr %row", target, vector_bytes, summed)
    return f'target triple = "{triple}"\n{add_up}{ENTRY}{head}{over_units(body)}'


_AT_ONCE = 2  # vectors of one turn
_FIRST = """  %bytes = mul i64 %n, {size}
  call void @llvm.memcpy.p0.p0.i64(ptr align {size} %there, ptr align {size} %here, i64 %bytes, i1 false)
"""


def _odd(kind: str, size: int, add: str) -> str:
    """Lines from label rest: elements of a row that are no whole vectors."""
    return f"""rest:
  %j = phi i64 [ %i, %vectors ], [ %j.next, %one ]
  %left = icmp ult i64 %j, %n
  br i1 %left, label %one, label %joined
one:
  %op = getelementptr {kind}, ptr %from, i64 %j
  %oq = getelementptr {kind}, ptr %above, i64 %j
  %ot = getelementptr {kind}, ptr %to, i64 %j
  %o = load {kind}, ptr %op, align {size}
  %u = load {kind}, ptr %oq, align {size}
  %t = {add} {kind} %u, %o
  store {kind} %t, ptr %ot, align {size}
  %j.next = add i64 %j, 1
  br label %rest
"""


def running_text(dtype: np.dtype, triple: str, vector_bytes: int) -> str:
    """Return the module for `dtype`; operands: a matrix, the result; rows, columns, those of a unit."""
    kind, size = element_type(dtype), dtype.itemsize
    lanes = _AT_ONCE * vector_bytes // size
    vector, add = f"<{lanes} x {kind}>", "fadd" if dtype.kind == "f" else "add"
    return f"""target triple = "{triple}"
{ENTRY}{block_head(("x", "out"), ("rows", "columns", "each"))}\
  %first = mul i64 %begin, %each
  %far = mul i64 %end, %each
{smaller("%last", "%far", "%columns")}\
  %n = sub i64 %last, %first
  %part = urem i64 %n, {lanes}
  %whole = sub i64 %n, %part
  %here = getelementptr {kind}, ptr %x, i64 %first
  %there = getelementptr {kind}, ptr %out, i64 %first
{_FIRST.format(size=size)}\
  br label %down
down:
  %r = phi i64 [ 1, %entry ], [ %r.next, %joined ]
  %above = phi ptr [ %there, %entry ], [ %to, %joined ]
  %before = phi ptr [ %here, %entry ], [ %from, %joined ]
  %more = icmp ult i64 %r, %rows
  br i1 %more, label %row, label %exit
row:
  %to = getelementptr {kind}, ptr %above, i64 %columns
  %from = getelementptr {kind}, ptr %before, i64 %columns
  br label %vectors
vectors:
  %i = phi i64 [ 0, %row ], [ %i.next, %vector ]
  %wide = icmp ult i64 %i, %whole
  br i1 %wide, label %vector, label %rest
vector:
  %vp = getelementptr {kind}, ptr %from, i64 %i
  %vq = getelementptr {kind}, ptr %above, i64 %i
  %vt = getelementptr {kind}, ptr %to, i64 %i
  %v = load {vector}, ptr %vp, align {size}
  %w = load {vector}, ptr %vq, align {size}
  %s = {add} {vector} %w, %v
  store {vector} %s, ptr %vt, align {size}
  %i.next = add i64 %i, {lanes}
  br label %vectors
{_odd(kind, size, add)}joined:
  %r.next = add i64 %r, 1
  br label %down
exit:
  ret void
}}
"""


HISTOGRAM_BANKS = 4
#: What the operand `scale` holds: the range's width, the number of bins, bins per width, how far from a
#: bin's middle a value may be found that is surely in it, places before the first bin and behind the last.
SCALE = ("width", "number", "rate", "reach", "before", "behind")
_BLOCK = 512  # values whose bins are found at once
_STATE = "ptr %x, ptr %ends, ptr %scale, i64 %bins, ptr %found"
_ALL = "i64 %from, i64 %to"


def histogram_text(element: np.dtype, ratio: np.dtype, triple: str, vector_bytes: int) -> str:
    """Return the module for values of dtype `element`, whose place in the range is found as a `ratio`.

    Operands: values, the range's ends and the edges of the bins (`element`), `SCALE` (`ratio`), and for
    every unit `HISTOGRAM_BANKS` tables of three counts more than there are bins. Instead of the outer
    edges there are infinities, which nothing is moved across, and two more: of what is outside.
    """
    lanes = vector_bytes // 8
    kind, scaled = element_type(element), element_type(ratio)
    head = block_head(("x", "ends", "edges", "scale", "tables"), ("total", "each", "bins", "stride"))
    return f"""target triple = "{triple}"
{_declared(scaled, lanes)}{_near(element, ratio, lanes)}{_exact(element, ratio, lanes)}\
{function(f"@quick(ptr %found, ptr %table, i64 %row, {_ALL})", _quick, HISTOGRAM_BANKS, _banks())}\
{function(f"@careful(ptr %x, ptr %found, ptr %edges, ptr %table, i64 %row, {_ALL})",
          _careful(element), HISTOGRAM_BANKS, _banks())}\
{ENTRY}  %found = alloca [{_BLOCK} x i32], align 64
{head}  %row = add i64 %bins, 3
{over_units(_BLOCKS.replace("double", kind))}"""


_BLOCKS = f"""  %own = mul i64 %u, %stride
  %table = getelementptr i64, ptr %tables, i64 %own
  br label %blocks
blocks:
  %b = phi i64 [ %from, %unit ], [ %b.to, %quick ], [ %b.to, %careful ]
  %b.more = icmp ult i64 %b, %to
  br i1 %b.more, label %some, label %run
some:
  %b.far = add i64 %b, {_BLOCK}
{smaller("%b.to", "%b.far", "%to")}  %n = sub i64 %b.to, %b
  %at = getelementptr double, ptr %x, i64 %b
  %whole = icmp eq i64 %n, {_BLOCK}
  br i1 %whole, label %guess, label %careful
guess:
  %sure = call i1 @near(ptr %at, ptr %ends, ptr %scale, i64 %bins, ptr %found, i64 0, i64 %n)
  br i1 %sure, label %quick, label %careful
quick:
  call void @quick(ptr %found, ptr %table, i64 %row, i64 0, i64 %n)
  br label %blocks
careful:
  call void @exact(ptr %at, ptr %ends, ptr %scale, i64 %bins, ptr %found, i64 0, i64 %n)
  call void @careful(ptr %at, ptr %found, ptr %edges, ptr %table, i64 %row, i64 0, i64 %n)
  br label %blocks
"""


def _declared(scaled: str, lanes: int) -> str:
    vector, code = f"<{lanes} x {scaled}>", f"v{lanes}{'f64' if scaled == 'double' else 'f32'}"
    return (f"declare {vector} @llvm.floor.{code}({vector})\ndeclare {vector} @llvm.fabs.{code}({vector})\n"
            f"declare <{lanes} x i32> @llvm.umin.v{lanes}i32(<{lanes} x i32>, <{lanes} x i32>)\n")


def _constants(element: np.dtype, ratio: np.dtype, lanes: int) -> str:
    """Lines that load what values are compared with and scaled by; names with .v have it in all lanes."""
    kind, scaled = element_type(element), element_type(ratio)
    values = [("first", kind, "ends", 0, element), ("last", kind, "ends", 1, element)]
    values += [(name, scaled, "scale", k, ratio) for k, name in enumerate(SCALE)]
    text = "".join(f"  %{name}.p = getelementptr {of}, ptr %{source}, i64 {at}\n"
                   f"  %{name} = load {of}, ptr %{name}.p, align {dtype.itemsize}\n"
                   + in_lanes(f"%{name}.v", f"%{name}", of, lanes) for name, of, source, at, dtype in values)
    numbers = (("all", "add i32 %bins32, 0"), ("top", "sub i32 %bins32, 1"), ("beyond", "add i32 %bins32, 1"))
    return text + "  %bins32 = trunc i64 %bins to i32\n" + "".join(
        f"  %{name} = {how}\n{in_lanes(f'%{name}.v', f'%{name}', 'i32', lanes)}" for name, how in numbers)


def _near(element: np.dtype, ratio: np.dtype, lanes: int) -> str:
    """@near: write the bins of values, that of nothing for those outside; are all far from an edge?"""
    kind, scaled = element_type(element), element_type(ratio)
    w, t, ints, bits = (f"<{lanes} x {of}>" for of in (kind, scaled, "i32", "i1"))
    code = f"v{lanes}{'f64' if scaled == 'double' else 'f32'}"
    half = f"splat ({scaled} 0.5)"
    turn = f"""  %p = getelementptr {kind}, ptr %x, i64 %i
  %v = load {w}, ptr %p, align {element.itemsize}
  %o = fsub {w} %v, %first.v
  %e = {"bitcast" if kind == scaled else "fpext"} {w} %o to {t}
  %y = fmul {t} %e, %rate.v
  %y.low = fcmp ogt {t} %y, %before.v
  %z = select {bits} %y.low, {t} %y, {t} %before.v
  %z.high = fcmp olt {t} %z, %behind.v
  %place = select {bits} %z.high, {t} %z, {t} %behind.v
  %whole = call {t} @llvm.floor.{code}({t} %place)
  %part = fsub {t} %place, %whole
  %off = fsub {t} %part, {half}
  %far = call {t} @llvm.fabs.{code}({t} %off)
  %farther = fcmp ogt {t} %far, %most
  %most.next = select {bits} %farther, {t} %far, {t} %most
  %signed = fptosi {t} %whole to {ints}
  %bin = call {ints} @llvm.umin.v{lanes}i32({ints} %signed, {ints} %all.v)
  %q = getelementptr i32, ptr %found, i64 %i
  store {ints} %bin, ptr %q, align 4
"""
    most = Carried("most", t, "zeroinitializer")
    loop = counted_loop_ir(("%from", "%to"), ("entry", "done"), lanes, turn, "", [most])
    return f"""define internal i1 @near({_STATE}, {_ALL}) nounwind {{
entry:
{_constants(element, ratio, lanes)}{loop}done:
  %beside = fcmp ogt {t} %most, %reach.v
  %besides = bitcast {bits} %beside to i{lanes}
  %sure = icmp eq i{lanes} %besides, 0
  ret i1 %sure
}}
"""


def _exact(element: np.dtype, ratio: np.dtype, lanes: int) -> str:
    """@exact: write NumPy's first guess at the bins; of what is outside, one nobody looks at."""
    kind, scaled = element_type(element), element_type(ratio)

    def guess(tag: str, at: str, width: int) -> str:
        mark = ".v" if width else ""
        w, t, ints, bit = (f"<{width} x {of}>" if width else of for of in (kind, scaled, "i32", "i1"))
        return f"""  %p{tag} = getelementptr {kind}, ptr %x, i64 {at}
  %v{tag} = load {w}, ptr %p{tag}, align {element.itemsize}
  %ge{tag} = fcmp oge {w} %v{tag}, %first{mark}
  %le{tag} = fcmp ole {w} %v{tag}, %last{mark}
  %in{tag} = and {bit} %ge{tag}, %le{tag}
  %y{tag} = select {bit} %in{tag}, {w} %v{tag}, {w} %first{mark}
  %o{tag} = fsub {w} %y{tag}, %first{mark}
  %e{tag} = {"bitcast" if kind == scaled else "fpext"} {w} %o{tag} to {t}
  %f{tag} = fdiv {t} %e{tag}, %width{mark}
  %h{tag} = fmul {t} %f{tag}, %number{mark}
  %i{tag} = fptosi {t} %h{tag} to {ints}
  %m{tag} = icmp slt {ints} %i{tag}, %top{mark}
  %c{tag} = select {bit} %m{tag}, {ints} %i{tag}, {ints} %top{mark}
  %k{tag} = select {bit} %in{tag}, {ints} %c{tag}, {ints} %beyond{mark}
  %q{tag} = getelementptr i32, ptr %found, i64 {at}
  store {ints} %k{tag}, ptr %q{tag}, align 4
"""

    loop = counted_loop_ir(("%from", "%to"), ("entry", "done"), lanes, guess("v", "%i", lanes),
                           guess("s", "%j", 0))
    return (f"define internal void @exact({_STATE}, {_ALL}) nounwind {{\nentry:\n"
            f"{_constants(element, ratio, lanes)}{loop}done:\n  ret void\n}}\n")


def _banks() -> str:
    """Lines of the tables that values in turn are counted in."""
    return "".join(f"  %bank{k} = mul i64 %row, {k}\n"
                   f"  %table{k} = getelementptr i64, ptr %table, i64 %bank{k}\n"
                   for k in range(HISTOGRAM_BANKS))


def _guess(tag: str, at: str) -> str:
    """Lines of %g: the bin that was found for a value."""
    return f"""  %gp{tag} = getelementptr i32, ptr %found, i64 {at}
  %g32{tag} = load i32, ptr %gp{tag}, align 4
  %g{tag} = zext i32 %g32{tag} to i64
"""


def _counted(tag: str, at: str, bank: int) -> str:
    """Lines that count one more in a bin."""
    return f"""  %tp{tag} = getelementptr i64, ptr %table{bank}, i64 {at}
  %tc{tag} = load i64, ptr %tp{tag}, align 8
  %td{tag} = add i64 %tc{tag}, 1
  store i64 %td{tag}, ptr %tp{tag}, align 8
"""


def _quick(tag: str, at: str, bank: int) -> str:
    """Lines that count a value where the first guess says."""
    return _guess(tag, at) + _counted(tag, f"%g{tag}", bank)


def _careful(element: np.dtype) -> Callable[[str, str, int], str]:
    """Return what counts the value whose first guess is in %found, where the edges say it is."""
    kind, size = element_type(element), element.itemsize
    return lambda tag, at, bank: f"""{_guess(tag, at)}\
  %xp{tag} = getelementptr {kind}, ptr %x, i64 {at}
  %xv{tag} = load {kind}, ptr %xp{tag}, align {size}
  %ep{tag} = getelementptr {kind}, ptr %edges, i64 %g{tag}
  %e0{tag} = load {kind}, ptr %ep{tag}, align {size}
  %eq{tag} = getelementptr {kind}, ptr %ep{tag}, i64 1
  %e1{tag} = load {kind}, ptr %eq{tag}, align {size}
  %lt{tag} = fcmp olt {kind} %xv{tag}, %e0{tag}
  %gt{tag} = fcmp oge {kind} %xv{tag}, %e1{tag}
  %dn{tag} = zext i1 %lt{tag} to i64
  %up{tag} = zext i1 %gt{tag} to i64
  %g1{tag} = sub i64 %g{tag}, %dn{tag}
  %g2{tag} = add i64 %g1{tag}, %up{tag}
{_counted(tag, f"%g2{tag}", bank)}"""


_DOUBLE = np.dtype(np.float64)


class Binned(NamedTuple):
    """Operands of the loop: `edges` as NumPy returns them, the others as `histogram_code` has them."""

    edges: np.ndarray
    ends: np.ndarray
    guards: np.ndarray
    scale: np.ndarray


def binned(x: np.ndarray, bins: int, ends: Any) -> Binned | None:
    """Return what ``np.histogram(x, bins, ends)`` counts by."""
    if ends is None:
        return _between(x.dtype, bins, x.min(), x.max(), x.dtype)
    found = _kept(x.dtype, bins, *ends)
    if found is None:
        return None
    edges = found.edges.copy()  # the caller's to change
    return found._replace(edges=edges if found.edges.flags.owndata else edges.view())


@lru_cache(16, typed=True)
def _kept(dtype: np.dtype, bins: int, least: Any, most: Any) -> Binned | None:
    """Return the bins of a range that is given, which calls in a loop have in common."""
    return _between(dtype, bins, least, most, _DOUBLE)


def _between(dtype: np.dtype, bins: int, least: Any, most: Any, ratio: np.dtype) -> Binned | None:
    found = least, most
    if not all(map(np.isfinite, found)) or not least < most:
        return None
    if max(map(abs, map(float, found))) > float(np.finfo(dtype).max) / 4:
        return None
    first, last = dtype.type(least), dtype.type(most)
    width = ratio.type(most) - ratio.type(least)
    if not first < last:
        return None
    try:
        edges = np.histogram_bin_edges(np.empty(0, dtype), bins, found)
    except ValueError:
        return None  # bins of no width
    if edges.dtype != dtype:
        return None
    inf = dtype.type(np.inf)
    guards = np.concatenate([edges[:-1], np.array([inf, -inf, inf], dtype)])
    guards[0] = -inf
    scale = _scale(bins, width, max(map(abs, map(float, found))), dtype)
    return Binned(edges, np.array([first, last]), guards, scale)


def _scale(bins: int, width: Any, most: float, dtype: np.dtype) -> np.ndarray:
    """Return `SCALE` for a range of this width, whose ends are at most so far from zero.

    A place in the range is off by a few roundings, an edge by some of its own.
    """
    info = np.finfo(dtype)
    near = bins * float(info.eps) * 16 * (1 + most / float(width))
    clear = near < 0.25 and float(width) / bins > float(info.tiny) / float(info.eps)
    rate, reach = (bins / float(width), 0.5 - near) if clear else (1.0, -1.0)
    return np.array([width, bins, rate, reach, -1.5, bins + 0.5], type(width))
