"""Pieces of IR shared by the loops that read or write where indices say.

Knows: the argument block, loops over units and elements, integers of every size. Must not know: what is
done with elements.
Receives names and dtypes; returns lines and functions of IR.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from jitla.codegen.layout import HEADER

__all__ = [
    "ENTRY", "Carried", "bits_of", "block_head", "by_blocks", "function", "in_lanes", "most_of",
    "near_place", "over_units", "pack_indexed", "repeated", "smaller", "to_word", "turns", "within",
    "wrapped"]

ENTRY = "define void @k(ptr %block, i64 %begin, i64 %end) nounwind {\nentry:\n"
_BLOCK = 1024  # indices that are looked at twice, and stay in the first cache between


def bits_of(dtype: np.dtype) -> int:
    """Return how many bits an element has in memory."""
    return 8 * dtype.itemsize


def pack_indexed(
    entry: int, operands: int, words: Sequence[int], units: int, grain: int, flags: int
) -> bytes:
    """Return the argument block of a loop over `units`, all of whose operands are arrays."""
    base = HEADER + 2 * operands
    block = [entry, base + len(words), units, grain, 0, 0, 0, operands | flags,
             *([0] * 2 * operands), *words]
    return struct.pack(f"<{len(block)}q", *block)


def block_head(operands: Sequence[str], words: Sequence[str]) -> str:
    """Lines that load pointers to `operands` and the words behind them, under these names."""
    base = HEADER + 2 * len(operands)
    named = [(name, HEADER + k, "ptr") for k, name in enumerate(operands)]
    named += [(name, base + k, "i64") for k, name in enumerate(words)]
    return "".join(
        f"  %{name}.w = getelementptr i64, ptr %block, i64 {at}\n"
        f"  %{name} = load {kind}, ptr %{name}.w, align 8\n" for name, at, kind in named)


class Carried(NamedTuple):
    """A value that a loop hands on: its name without %, its type, what it is at first.

    A turn of the loop leaves it in `{name}.next`.
    """

    name: str
    kind: str
    first: str


def over_units(body: str, each: str | int = "%each") -> str:
    """Lines of a loop over units, the last of a function; unit %u is `each` elements, %from to %to.

    `body` goes on to the block `run` for the next unit, or to `exit`.
    """
    return f"""  br label %units
units:
  %u = phi i64 [ %begin, %entry ], [ %u.next, %run ]
  %u.more = icmp ult i64 %u, %end
  br i1 %u.more, label %unit, label %exit
unit:
  %u.next = add i64 %u, 1
  %u.from = mul i64 %u, {each}
  %u.far = mul i64 %u.next, {each}
{smaller("%from", "%u.from", "%total")}{smaller("%to", "%u.far", "%total")}\
{body}run:
  br label %units
exit:
  ret void
}}
"""


def turns(
    ends: tuple[str, str], places: tuple[str, str], width: int, turn: str, one: str,
    carried: Sequence[Carried] = (), joined: str = "", singly: Sequence[Carried] = (),
) -> str:
    """Lines of a loop between two `ends`: `turn` for `width` elements from %i on, then `one` for %j.

    It is entered from the first of two blocks `places` and goes on to the second. Turns hand on what
    is `carried`, to the lines `joined` last; single elements what is handed on `singly`.
    """
    begin, end = ends
    after, done = places

    def phis(values: Sequence[Carried], block: str, body: str) -> str:
        return "".join(f"  %{c.name} = phi {c.kind} [ {c.first}, %{block} ], "
                       f"[ %{c.name}.next, %{body}.end ]\n" for c in values)

    return f"""  br label %turns
turns:
  %i = phi i64 [ {begin}, %{after} ], [ %i.next, %turn.end ]
{phis(carried, after, "turn")}  %i.next = add i64 %i, {width}
  %i.more = icmp ule i64 %i.next, {end}
  br i1 %i.more, label %turn, label %joined
turn:
{turn}  br label %turn.end
turn.end:
  br label %turns
joined:
{joined}  br label %rest
rest:
  %j = phi i64 [ %i, %joined ], [ %j.next, %one.end ]
{phis(singly, "joined", "one")}  %j.more = icmp ult i64 %j, {end}
  br i1 %j.more, label %one, label %{done}
one:
{one}  br label %one.end
one.end:
  %j.next = add i64 %j, 1
  br label %rest
"""


def repeated(step: Callable[[str, str, int], str], count: int) -> tuple[str, str]:
    """Lines of a turn of `count` elements, and of one: `step` of a tag, the element and its turn."""
    turn = "".join((f"  %i{k} = add i64 %i, {k}\n" if k else "") + step(f"{k}", f"%i{k}" if k else "%i", k)
                   for k in range(count))
    return turn, step("s", "%j", 0)


def function(head: str, step: Callable[[str, str, int], str], count: int, before: str = "") -> str:
    """Return the function `head` that does `step` for elements %from to %to, in turns of `count`."""
    body = turns(("%from", "%to"), ("entry", "done"), count, *repeated(step, count))
    return f"define internal void {head} nounwind {{\nentry:\n{before}{body}done:\n  ret void\n}}\n"


def by_blocks(args: str, slow: bool) -> str:
    """Lines that do a unit by blocks of indices: @fast where all are near, else @slow, if there is one.

    Both functions get `args` and the ends of the block. Where @slow says no, the word %fault is set.
    """
    other, lines = ("slow", f"""slow:
  %b.known = call i1 @slow({args}, i64 %b, i64 %b.to)
  br i1 %b.known, label %good, label %lost
good:
  br label %blocks
""") if slow else ("lost", "")
    return f"""  br label %blocks
blocks:
  %b = phi i64 [ %from, %unit ], [ %b.to, %fast ]{", [ %b.to, %good ]" * slow}
  %b.more = icmp ult i64 %b, %to
  br i1 %b.more, label %look, label %run
look:
  %b.far = add i64 %b, {_BLOCK}
{smaller("%b.to", "%b.far", "%to")}\
  %b.near = call i1 @within(ptr %index, i64 %b, i64 %b.to, i64 %most)
  br i1 %b.near, label %fast, label %{other}
fast:
  call void @fast({args}, i64 %b, i64 %b.to)
  br label %blocks
{lines}lost:
  store atomic i64 1, ptr %fault monotonic, align 8
  br label %exit
"""


def wrapped(args: str, index: np.dtype, step: str, before: str = "") -> str:
    """@slow: `step` for element %i and its %place, which counts from the end where it is negative.

    It ends with 0 as soon as an index names nothing. Among `args` are %index and %length. The lines
    `before` come once.
    """
    return f"""define internal i1 @slow({args}, i64 %from, i64 %to) nounwind {{
entry:
{before}\
  br label %each
each:
  %i = phi i64 [ %from, %entry ], [ %i.next, %found ]
  %more = icmp ult i64 %i, %to
  br i1 %more, label %one, label %done
one:
{_loaded("", "%i", index)}\
{to_word("%w", "%k", index)}\
  %negative = icmp slt i64 %w, 0
  %turned = add i64 %w, %length
  %place = select i1 %negative, i64 %turned, i64 %w
  %known = icmp ult i64 %place, %length
  br i1 %known, label %found, label %lost
found:
{step}\
  %i.next = add i64 %i, 1
  br label %each
done:
  ret i1 true
lost:
  ret i1 false
}}
"""


def _loaded(tag: str, at: str, index: np.dtype) -> str:
    kind = f"i{bits_of(index)}"
    return (f"  %n{tag} = getelementptr {kind}, ptr %index, i64 {at}\n"
            f"  %k{tag} = load {kind}, ptr %n{tag}, align {index.itemsize}\n")


def near_place(tag: str, at: str, index: np.dtype) -> str:
    """Lines of %w: the word of an index that is known to be no less than 0."""
    wide = f"  %w{tag} = add i64 %k{tag}, 0\n" if index.itemsize == 8 else \
        f"  %w{tag} = zext i{bits_of(index)} %k{tag} to i64\n"
    return _loaded(tag, at, index) + wide


def in_lanes(name: str, x: str, kind: str, lanes: int) -> str:
    """Lines that put a number in all lanes."""
    vector = f"<{lanes} x {kind}>"
    return (f"  {name}.1 = insertelement {vector} poison, {kind} {x}, i64 0\n"
            f"  {name} = shufflevector {vector} {name}.1, {vector} poison, <{lanes} x i32> "
            "zeroinitializer\n")


def smaller(name: str, x: str, y: str) -> str:
    """Lines of the smaller of two words."""
    return f"  {name}.c = icmp ult i64 {x}, {y}\n  {name} = select i1 {name}.c, i64 {x}, i64 {y}\n"


def to_word(name: str, x: str, dtype: np.dtype) -> str:
    """Line that makes a word of index `x` of `dtype`, as a cast to the dtype of sizes does."""
    if dtype.itemsize == 8:
        return f"  {name} = add i64 {x}, 0\n"
    return f"  {name} = {'zext' if dtype.kind == 'u' else 'sext'} i{bits_of(dtype)} {x} to i64\n"


def most_of(dtype: np.dtype, length: int) -> int:
    """Return the bound below which an index of `dtype`, taken for unsigned, needs no more looks."""
    return length if dtype.itemsize == 8 else min(length, 1 << bits_of(dtype) - (dtype.kind == "i"))


def within(dtype: np.dtype, vector_bytes: int) -> str:
    """@within(index, from, to, most): are all of these indices below `most`, taken for unsigned ones?"""
    return _long_within(vector_bytes) if dtype.itemsize == 8 else _short_within(dtype, vector_bytes)


def _long_within(vector_bytes: int) -> str:
    """@within for words, of which processors find no greatest: a sign shows in them or in what is left."""
    lanes = 2 * vector_bytes // 8
    vector, code = f"<{lanes} x i64>", f"v{lanes}i64"
    loop = turns(
        ("%from", "%to"), ("entry", "done"), lanes,
        f"""  %p = getelementptr i64, ptr %index, i64 %i
  %x = load {vector}, ptr %p, align 8
  %left = sub {vector} %lasts, %x
  %seen = or {vector} %x, %left
  %signs.next = or {vector} %signs, %seen
""",
        """  %q = getelementptr i64, ptr %index, i64 %j
  %y = load i64, ptr %q, align 8
  %y.left = sub i64 %last, %y
  %y.seen = or i64 %y, %y.left
  %sign.next = or i64 %sign, %y.seen
""",
        [Carried("signs", vector, "zeroinitializer")],
        f"  %first = call i64 @llvm.vector.reduce.or.{code}({vector} %signs)\n",
        [Carried("sign", "i64", "%first")])
    return f"""declare i64 @llvm.vector.reduce.or.{code}({vector})
define internal i1 @within(ptr %index, i64 %from, i64 %to, i64 %most) nounwind {{
entry:
  %last = sub i64 %most, 1
{in_lanes("%lasts", "%last", "i64", lanes)}{loop}done:
  %ok = icmp sge i64 %sign, 0
  ret i1 %ok
}}
"""


def _short_within(dtype: np.dtype, vector_bytes: int) -> str:
    """@within for indices that have a greatest one in vectors."""
    lanes, kind = 2 * vector_bytes // dtype.itemsize, f"i{bits_of(dtype)}"
    vector, code = f"<{lanes} x {kind}>", f"v{lanes}{kind}"
    wide = f"zext {kind} %greatest to i64"
    loop = turns(
        ("%from", "%to"), ("entry", "done"), lanes,
        f"""  %p = getelementptr {kind}, ptr %index, i64 %i
  %x = load {vector}, ptr %p, align {dtype.itemsize}
  %top.next = call {vector} @llvm.umax.{code}({vector} %top, {vector} %x)
""",
        f"""  %q = getelementptr {kind}, ptr %index, i64 %j
  %y = load {kind}, ptr %q, align {dtype.itemsize}
  %greatest.next = call {kind} @llvm.umax.{kind}({kind} %greatest, {kind} %y)
""",
        [Carried("top", vector, "zeroinitializer")],
        f"  %first = call {kind} @llvm.vector.reduce.umax.{code}({vector} %top)\n",
        [Carried("greatest", kind, "%first")])
    return f"""declare {vector} @llvm.umax.{code}({vector}, {vector})
declare {kind} @llvm.umax.{kind}({kind}, {kind})
declare {kind} @llvm.vector.reduce.umax.{code}({vector})
define internal i1 @within(ptr %index, i64 %from, i64 %to, i64 %most) nounwind {{
entry:
{loop}done:
  %wide = {wide}
  %ok = icmp ult i64 %wide, %most
  ret i1 %ok
}}
"""
