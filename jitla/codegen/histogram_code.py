"""Counts of values in bins of one width, as IR.

Knows: how NumPy finds the bin of a value, rounding and all. Must not know: arrays, threads.
Receives the dtypes; returns a module with the entry @k.

NumPy scales what lies in the range, cuts it off to an integer, and moves it by one bin where the edges
say otherwise. A block of values is scaled by one product instead, rounded otherwise; only where one of
them comes so near to an edge that this could matter, the block is done as NumPy does it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from jitla.codegen.indexing_code import (
    ENTRY,
    Carried,
    block_head,
    function,
    in_lanes,
    over_units,
    smaller,
    turns,
)
from jitla.codegen.vector import element_type

__all__ = ["HISTOGRAM_BANKS", "SCALE", "histogram_text"]

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
    loop = turns(("%from", "%to"), ("entry", "done"), lanes, turn, "", [most])
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

    loop = turns(("%from", "%to"), ("entry", "done"), lanes, guess("v", "%i", lanes), guess("s", "%j", 0))
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
