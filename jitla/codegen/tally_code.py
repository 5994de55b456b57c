"""Sums by label, as IR: counts and weights; and the extremes of labels.

Knows: kinds of indices and weights. Must not know: arrays, how many threads there are.
Receives dtypes; returns modules with the entry @k.

Every unit is a run of the labels with a table of its own, which the caller adds up: that is exact for
whole numbers. Floats are added in the order of the array, by one unit. A label that has no place sets a
word to 1 and is counted nowhere.
"""

from __future__ import annotations

import numpy as np

from jitla.codegen.indexing_code import ENTRY, bits_of, block_head, smaller, to_word
from jitla.codegen.vector import element_type

__all__ = ["BANKS", "bounds_text", "tally_text", "weigh_text"]

BANKS = 4  # tables that labels in turn go to: of two that are alike the second would wait for the first

_RUN = f"""  br label %units
units:
  %u = phi i64 [ %begin, %entry ], [ %u.next, %run ]
  %u.more = icmp ult i64 %u, %end
  br i1 %u.more, label %unit, label %exit
unit:
  %u.next = add i64 %u, 1
  %u.from = mul i64 %u, %each
  %u.far = mul i64 %u.next, %each
{smaller("%from", "%u.from", "%total")}{smaller("%to", "%u.far", "%total")}"""


def _label(tag: str, at: str, index: np.dtype, bound: str) -> str:
    """Lines that read a label: %w its word, %ok whether it has a place."""
    kind = f"i{bits_of(index)}"
    return (f"  %n{tag} = getelementptr {kind}, ptr %index, i64 {at}\n"
            f"  %k{tag} = load {kind}, ptr %n{tag}, align {index.itemsize}\n"
            f"{to_word(f'%w{tag}', f'%k{tag}', index)}"
            f"  %ok{tag} = icmp ult i64 %w{tag}, {bound}\n")


def bounds_text(index: np.dtype, triple: str, vector_bytes: int) -> str:
    """Return the module that finds the extremes of every unit; operands: indices, least, greatest."""
    kind, lanes = f"i{bits_of(index)}", 2 * vector_bytes // index.itemsize
    vector, code = f"<{lanes} x {kind}>", f"v{lanes}{kind}"
    sign = "u" if index.kind == "u" and index.itemsize < 8 else "s"
    names = (("least", f"{sign}min"), ("most", f"{sign}max"))
    declared = "".join(f"declare {vector} @llvm.{f}.{code}({vector}, {vector})\n"
                       f"declare {kind} @llvm.{f}.{kind}({kind}, {kind})\n"
                       f"declare {kind} @llvm.vector.reduce.{f}.{code}({vector})\n" for _, f in names)
    spread = "".join(f"  %{n}.1 = insertelement {vector} poison, {kind} %first, i64 0\n"
                     f"  %{n}.0 = shufflevector {vector} %{n}.1, {vector} poison, <{lanes} x i32> "
                     "zeroinitializer\n" for n, _ in names)
    phis = "".join(f"  %{n} = phi {vector} [ %{n}.0, %some ], [ %{n}.next, %vector ]\n" for n, _ in names)
    steps = "".join(f"  %{n}.next = call {vector} @llvm.{f}.{code}({vector} %{n}, {vector} %x)\n"
                    for n, f in names)
    joins = "".join(f"  %{n}.all = call {kind} @llvm.vector.reduce.{f}.{code}({vector} %{n})\n"
                    for n, f in names)
    ones = "".join(f"  %{n}.s = phi {kind} [ %{n}.all, %joined ], [ %{n}.t, %one ]\n" for n, _ in names)
    more = "".join(f"  %{n}.t = call {kind} @llvm.{f}.{kind}({kind} %{n}.s, {kind} %y)\n" for n, f in names)
    ends = "".join(f"{to_word(f'%{n}.w', f'%{n}.s', index)}"
                   f"  %{n}.p = getelementptr i64, ptr %{n}s, i64 %u\n"
                   f"  store i64 %{n}.w, ptr %{n}.p, align 8\n" for n, _ in names)
    return f"""target triple = "{triple}"
{declared}{ENTRY}{block_head(("index", "leasts", "mosts"), ("total", "each"))}{_RUN}\
  %any = icmp ult i64 %from, %to
  br i1 %any, label %some, label %run
some:
  %first.p = getelementptr {kind}, ptr %index, i64 %from
  %first = load {kind}, ptr %first.p, align {index.itemsize}
{spread}  br label %vectors
vectors:
  %i = phi i64 [ %from, %some ], [ %i.next, %vector ]
{phis}  %i.next = add i64 %i, {lanes}
  %more = icmp ule i64 %i.next, %to
  br i1 %more, label %vector, label %joined
vector:
  %p = getelementptr {kind}, ptr %index, i64 %i
  %x = load {vector}, ptr %p, align {index.itemsize}
{steps}  br label %vectors
joined:
{joins}  br label %rest
rest:
  %j = phi i64 [ %i, %joined ], [ %j.next, %one ]
{ones}  %left = icmp ult i64 %j, %to
  br i1 %left, label %one, label %found
one:
  %q = getelementptr {kind}, ptr %index, i64 %j
  %y = load {kind}, ptr %q, align {index.itemsize}
{more}  %j.next = add i64 %j, 1
  br label %rest
found:
{ends}  br label %run
run:
  br label %units
exit:
  ret void
}}
"""


def _turns(step: str, count: int, first: str = "", last: str = "") -> str:
    """Lines of a loop over %from to %to: `step` has @t for a tag, @i for the element, @b for its bank."""
    def one(tag: str, at: str, bank: int) -> str:
        return step.replace("@t", tag).replace("@i", at).replace("@b", str(bank))

    turn = "".join((f"  %i{k} = add i64 %i, {k}\n" if k else "") + one(f"{k}", f"%i{k}" if k else "%i", k)
                   for k in range(count))
    return f"""{first}  br label %turns
turns:
  %i = phi i64 [ %from, %unit ], [ %i.next, %turn ]
  %bad = phi i1 [ false, %unit ], [ %bad.turn, %turn ]
  %i.next = add i64 %i, {count}
  %more = icmp ule i64 %i.next, %to
  br i1 %more, label %turn, label %rest
turn:
{turn}{_joined(count)}  br label %turns
rest:
  %j = phi i64 [ %i, %turns ], [ %j.next, %one ]
  %bad.r = phi i1 [ %bad, %turns ], [ %bad.one, %one ]
  %left = icmp ult i64 %j, %to
  br i1 %left, label %one, label %done
one:
{one("s", "%j", 0)}  %not.s = xor i1 %oks, true
  %bad.one = or i1 %bad.r, %not.s
  %j.next = add i64 %j, 1
  br label %rest
done:
{last}  br i1 %bad.r, label %lost, label %run
lost:
  store atomic i64 1, ptr %fault monotonic, align 8
  br label %run
run:
  br label %units
exit:
  ret void
}}
"""


def _joined(count: int) -> str:
    """Lines of %bad.turn: whether one of the elements of a turn has no place."""
    text, known = "", "%ok0"
    for k in range(1, count):
        text += f"  %all{k} = and i1 {known}, %ok{k}\n"
        known = f"%all{k}"
    return text + f"  %not = xor i1 {known}, true\n  %bad.turn = or i1 %bad, %not\n"


def tally_text(index: np.dtype, banks: int, triple: str) -> str:
    """Return the module that counts labels; every unit has `banks` tables of `bins` and one more.

    Operands: labels, tables, a word for faults.
    """
    step = f"""{_label("@t", "@i", index, "%bins")}\
  %z@t = select i1 %ok@t, i64 %w@t, i64 %bins
  %p@t = getelementptr i64, ptr %table@b, i64 %z@t
  %c@t = load i64, ptr %p@t, align 8
  %d@t = add i64 %c@t, 1
  store i64 %d@t, ptr %p@t, align 8
"""
    tables = "  %own = mul i64 %u, %stride\n  %table = getelementptr i64, ptr %tables, i64 %own\n"
    for k in range(BANKS):
        shift = f"  %bank{k} = mul i64 %row, {k % banks}\n"
        tables += f"{shift}  %table{k} = getelementptr i64, ptr %table, i64 %bank{k}\n"
    head = block_head(("index", "tables", "fault"), ("total", "each", "bins", "stride"))
    return (f'target triple = "{triple}"\n{ENTRY}{head}{_RUN}  %row = add i64 %bins, 1\n'
            f"{tables}{_turns(step, BANKS)}")


def weigh_text(index: np.dtype, weight: np.dtype, triple: str) -> str:
    """Return the module that adds up weights by label: floats as doubles, others as words.

    Operands: labels, weights, tables of `bins` and one more, a word for faults.
    """
    floating = weight.kind == "f"
    kind = element_type(weight) if floating else f"i{bits_of(weight)}"
    total, add = ("double", "fadd") if floating else ("i64", "add")
    step = f"""{_label("@t", "@i", index, "%bins")}\
  %z@t = select i1 %ok@t, i64 %w@t, i64 %bins
  %g@t = getelementptr {kind}, ptr %weights, i64 @i
  %h@t = load {kind}, ptr %g@t, align {weight.itemsize}
{_widened("%x@t", "%h@t", weight)}\
  %p@t = getelementptr {total}, ptr %table, i64 %z@t
  %c@t = load {total}, ptr %p@t, align 8
  %d@t = {add} {total} %c@t, %x@t
  store {total} %d@t, ptr %p@t, align 8
"""
    head = block_head(("index", "weights", "tables", "fault"), ("total", "each", "bins", "stride"))
    table = ("  %own = mul i64 %u, %stride\n"
             "  %table = getelementptr i64, ptr %tables, i64 %own\n")
    return f'target triple = "{triple}"\n{ENTRY}{head}{_RUN}{table}{_turns(step, BANKS)}'


def _widened(name: str, x: str, dtype: np.dtype) -> str:
    """Lines that make a word or a double of an element as it lies in memory."""
    if dtype.kind == "b":
        return f"  {name}.b = icmp ne i8 {x}, 0\n  {name} = zext i1 {name}.b to i64\n"
    if dtype.kind == "f":
        return f"  {name} = {'fpext float' if dtype.itemsize == 4 else 'bitcast double'} {x} to double\n"
    return to_word(name, x, dtype)
