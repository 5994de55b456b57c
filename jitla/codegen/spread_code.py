"""Values counted or added up where indices say, as IR.

Knows: kinds of indices and values. Must not know: arrays, how many threads there are.
Receives dtypes; returns modules with the entry @k.

A unit is a run of the indices. It has rows of its own to add to, which it fills with zeros before and
which are added to the target afterwards, in turn; the first row of all is the target itself. A word is
set to 1 where an index names nothing; the target is then of no use.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from jitla.codegen.indexing_code import (
    ENTRY,
    block_head,
    near_place,
    over_units,
    repeated,
    smaller,
    to_word,
    turns,
    wrapped,
)
from jitla.codegen.vector import element_type, memory_type

__all__ = ["BANKS", "merge_text", "spread_text"]

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
    loop = turns(("%from", "%to"), ("entry", "done"), _TURN, *repeated(step, _TURN))
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
    loop = turns(("%from", "%to"), ("entry", "done"), lanes, turn, one)
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
