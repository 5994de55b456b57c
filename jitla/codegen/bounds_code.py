"""The least and the greatest index of every unit, as IR.

Knows: kinds of indices. Must not know: arrays, how many threads there are.
Receives a dtype; returns a module with the entry @k.
"""

from __future__ import annotations

import numpy as np

from jitla.codegen.indexing_code import (
    ENTRY,
    Carried,
    bits_of,
    block_head,
    in_lanes,
    over_units,
    to_word,
    turns,
)

__all__ = ["bounds_text"]


def bounds_text(index: np.dtype, triple: str, vector_bytes: int) -> str:
    """Return the module that finds the extremes of every unit; operands: indices, least, greatest."""
    kind, lanes = f"i{bits_of(index)}", 2 * vector_bytes // index.itemsize
    vector, code = f"<{lanes} x {kind}>", f"v{lanes}{kind}"
    sign = "u" if index.kind == "u" and index.itemsize < 8 else "s"
    names = (("least", f"{sign}min"), ("most", f"{sign}max"))
    declared = "".join(f"declare {vector} @llvm.{f}.{code}({vector}, {vector})\n"
                       f"declare {kind} @llvm.{f}.{kind}({kind}, {kind})\n"
                       f"declare {kind} @llvm.vector.reduce.{f}.{code}({vector})\n" for _, f in names)
    turn, one = (f"  %{p} = getelementptr {kind}, ptr %index, i64 {at}\n"
                 f"  %{x} = load {of}, ptr %{p}, align {index.itemsize}\n"
                 for p, x, at, of in (("p", "x", "%i", vector), ("q", "y", "%j", kind)))
    joined = ends = ""
    for n, f in names:
        turn += f"  %{n}.next = call {vector} @llvm.{f}.{code}({vector} %{n}, {vector} %x)\n"
        one += f"  %{n}.s.next = call {kind} @llvm.{f}.{kind}({kind} %{n}.s, {kind} %y)\n"
        joined += f"  %{n}.all = call {kind} @llvm.vector.reduce.{f}.{code}({vector} %{n})\n"
        ends += (f"{to_word(f'%{n}.w', f'%{n}.s', index)}"
                 f"  %{n}.p = getelementptr i64, ptr %{n}s, i64 %u\n"
                 f"  store i64 %{n}.w, ptr %{n}.p, align 8\n")
    body = f"""  %any = icmp ult i64 %from, %to
  br i1 %any, label %some, label %run
some:
  %first.p = getelementptr {kind}, ptr %index, i64 %from
  %first = load {kind}, ptr %first.p, align {index.itemsize}
{in_lanes("%first.v", "%first", kind, lanes)}\
{turns(("%from", "%to"), ("some", "found"), lanes, turn, one,
       [Carried(n, vector, "%first.v") for n, _ in names], joined,
       [Carried(f"{n}.s", kind, f"%{n}.all") for n, _ in names])}\
found:
{ends}  br label %run
"""
    head = block_head(("index", "leasts", "mosts"), ("total", "each"))
    return f'target triple = "{triple}"\n{declared}{ENTRY}{head}{over_units(body)}'
