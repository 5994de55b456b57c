"""IR of gathers and table lookups with bounds checks, and the loop skeletons that indexing kernels share."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from jitla.codegen.kernel_abi import HEADER
from jitla.codegen.target import Target

__all__ = [
    "BYTES", "Carried", "ENTRY", "LOOKUP_UNIT", "Shuffle", "TAKE_UNIT", "bits_of", "block_head",
    "bounds_text", "by_blocks", "function", "in_lanes", "lookup_text", "most_of", "near_place",
    "over_units", "pack_indexed", "places_text", "repeated", "shuffle_of", "smaller", "take_rows_text",
    "take_text", "to_word", "counted_loop_ir", "within", "wrapped",
]


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


def counted_loop_ir(
    ends: tuple[str, str], places: tuple[str, str], width: int, turn: str, one: str,
    carried: Sequence[Carried] = (), joined: str = "", singly: Sequence[Carried] = (),
) -> str:
    """Return the IR of a loop between two `ends`: `turn` for `width` elements from %i on, then `one` for %j.

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
    body = counted_loop_ir(("%from", "%to"), ("entry", "done"), count, *repeated(step, count))
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
    loop = counted_loop_ir(
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
    loop = counted_loop_ir(
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


TAKE_UNIT = 1 << 14  # indices of one unit
_ARGS = "ptr %table, ptr %index, ptr %out, i64 %length, i64 %size"
_TURN = 8  # elements of one turn of the loop
_HEAD = block_head(("table", "index", "out", "fault"), ("length", "most", "total", "size"))


def take_text(itemsize: int, index: np.dtype, triple: str, vector_bytes: int) -> str:
    """Return the module for elements of `itemsize` bytes: a power of two, at most 16."""
    element, align = f"i{8 * itemsize}", min(itemsize, 8)

    def copied(tag: str, at: str, place: str) -> str:
        return (f"  %p{tag} = getelementptr {element}, ptr %table, i64 {place}\n"
                f"  %x{tag} = load {element}, ptr %p{tag}, align {align}\n"
                f"  %q{tag} = getelementptr {element}, ptr %out, i64 {at}\n"
                f"  store {element} %x{tag}, ptr %q{tag}, align {align}\n")

    def step(tag: str, at: str, turn: int) -> str:
        return near_place(tag, at, index) + copied(tag, at, f"%w{tag}")

    fast = function(f"@fast({_ARGS}, i64 %from, i64 %to)", step, _TURN)
    slow = wrapped(_ARGS, index, copied("c", "%i", "%place"))
    return _module(fast + slow, index, triple, vector_bytes)


def take_rows_text(index: np.dtype, triple: str, vector_bytes: int) -> str:
    """Return the module for rows of any number of bytes."""
    def copied(tag: str, at: str, place: str) -> str:
        return (f"  %skip{tag} = mul i64 {place}, %size\n"
                f"  %p{tag} = getelementptr i8, ptr %table, i64 %skip{tag}\n"
                f"  %into{tag} = mul i64 {at}, %size\n"
                f"  %q{tag} = getelementptr i8, ptr %out, i64 %into{tag}\n"
                f"  call void @llvm.memcpy.p0.p0.i64(ptr align 1 %q{tag}, ptr align 1 %p{tag}, i64 %size, "
                "i1 false)\n")

    def step(tag: str, at: str, turn: int) -> str:
        return near_place(tag, at, index) + copied(tag, at, f"%w{tag}")

    fast = function(f"@fast({_ARGS}, i64 %from, i64 %to)", step, 1)
    slow = wrapped(_ARGS, index, copied("c", "%i", "%place"))
    declared = "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)\n"
    return _module(declared + fast + slow, index, triple, vector_bytes)


def places_text(index: np.dtype, triple: str, vector_bytes: int) -> str:
    """Return the module that writes which elements of the table are meant, from 0 on, as 32 bits."""
    kind, lanes = f"i{bits_of(index)}", 2 * vector_bytes // index.itemsize
    step = {8: "trunc", 4: "bitcast"}.get(index.itemsize, "zext")

    def narrowed(tag: str, at: str, of: str, to: str) -> str:
        return (f"  %p{tag} = getelementptr {kind}, ptr %index, i64 {at}\n"
                f"  %x{tag} = load {of}, ptr %p{tag}, align {index.itemsize}\n"
                f"  %y{tag} = {step} {of} %x{tag} to {to}\n"
                f"  %q{tag} = getelementptr i32, ptr %out, i64 {at}\n"
                f"  store {to} %y{tag}, ptr %q{tag}, align 4\n")

    loop = counted_loop_ir(("%from", "%to"), ("entry", "done"), lanes,
                           narrowed("v", "%i", f"<{lanes} x {kind}>", f"<{lanes} x i32>"),
                           narrowed("s", "%j", kind, "i32"))
    fast = f"""define internal void @fast({_ARGS}, i64 %from, i64 %to) nounwind {{
entry:
{loop}done:
  ret void
}}
"""
    slow = wrapped(_ARGS, index, """  %near = trunc i64 %place to i32
  %q = getelementptr i32, ptr %out, i64 %i
  store i32 %near, ptr %q, align 4
""")
    return _module(fast + slow, index, triple, vector_bytes)


def _module(functions: str, index: np.dtype, triple: str, vector_bytes: int) -> str:
    body = by_blocks(_ARGS, slow=True)
    return (f'target triple = "{triple}"\n{within(index, vector_bytes)}{functions}'
            f"{ENTRY}{_HEAD}{over_units(body, TAKE_UNIT)}")


BYTES = 256  # that there are
LOOKUP_UNIT = 1 << 15
_ROW = 16  # bytes that a shuffle chooses from
_ROWS = 8  # rows for bytes of one half: a byte of the other one counts as negative
_LOOKUP_CODE_TURN = 2  # vectors
_BYTE = np.dtype(np.uint8)
_LOOKUP_CODE_ARGS = "ptr %table, ptr %index, ptr %out"


class Shuffle(NamedTuple):
    """An instruction: for every byte of a vector the one of its row of 16 that its low bits say.

    It gives 0 for bytes whose highest bit is set.
    """

    lanes: int
    name: str


_SHUFFLES = {
    "avx512bw": Shuffle(64, "llvm.x86.avx512.pshuf.b.512"), "avx2": Shuffle(32, "llvm.x86.avx2.pshuf.b"),
    "ssse3": Shuffle(16, "llvm.x86.ssse3.pshuf.b.128"),
}


def shuffle_of(target: Target) -> Shuffle | None:
    """Return the widest that the processor is known to have."""
    return next((s for feature, s in _SHUFFLES.items() if feature in target.features), None)


def lookup_text(shuffle: Shuffle, checked: bool, triple: str) -> str:
    """Return the module for a table of `BYTES` bytes; if `checked`, a word tells of those beyond a bound.

    A table has 16 rows of a shuffle. Bytes of one half meet all its rows, less 16 from one to the next,
    until they are negative: so each meets the rows up to its own. These hold what they differ in from
    the row before, and all that a byte met cancels out but its own row.
    """
    lanes = shuffle.lanes
    vector, row = f"<{lanes} x i8>", f"<{_ROW} x i8>"
    all_lanes = ", ".join(f"i32 {k % _ROW}" for k in range(lanes))
    tables = "".join(
        f"  %r{k} = getelementptr i8, ptr %table, i64 {_ROW * k}\n"
        f"  %t{k} = load {row}, ptr %r{k}, align 1\n"
        f"  %e{k} = xor {row} %t{k}, {f'%t{k - 1}' if k % _ROWS else 'zeroinitializer'}\n"
        f"  %d{k} = shufflevector {row} %e{k}, {row} poison, <{lanes} x i32> <{all_lanes}>\n"
        for k in range(2 * _ROWS))
    one = near_place("", "%j", _BYTE) + """  %p = getelementptr i8, ptr %table, i64 %w
  %x = load i8, ptr %p, align 1
  %q = getelementptr i8, ptr %out, i64 %j
  store i8 %x, ptr %q, align 1
"""
    turn = "".join(_vector(f"v{u}_", u * lanes, shuffle) for u in range(_LOOKUP_CODE_TURN))
    loop = counted_loop_ir(("%from", "%to"), ("entry", "done"), _LOOKUP_CODE_TURN * lanes, turn, one)
    head = block_head(("table", "index", "out", "fault"), ("total", "most"))
    body = by_blocks(_LOOKUP_CODE_ARGS, slow=False) if checked else \
        f"  call void @fast({_LOOKUP_CODE_ARGS}, i64 %from, i64 %to)\n  br label %run\n"
    return f"""target triple = "{triple}"
declare {vector} @{shuffle.name}({vector}, {vector})
declare {vector} @llvm.ssub.sat.v{lanes}i8({vector}, {vector})
{within(_BYTE, lanes) if checked else ""}\
define internal void @fast({_LOOKUP_CODE_ARGS}, i64 %from, i64 %to) nounwind {{
entry:
{tables}{loop}done:
  ret void
}}
{ENTRY}{head}{over_units(body, LOOKUP_UNIT)}"""


def _vector(tag: str, skip: int, shuffle: Shuffle) -> str:
    """Lines that look up the vector that lies `skip` bytes behind element %i."""
    vector = f"<{shuffle.lanes} x i8>"
    less, turned = (f"splat (i8 {number})" for number in (_ROW, -BYTES // 2))
    text = (f"  %{tag}i = add i64 %i, {skip}\n"
            f"  %{tag}n = getelementptr i8, ptr %index, i64 %{tag}i\n"
            f"  %{tag}a0 = load {vector}, ptr %{tag}n, align 1\n"
            f"  %{tag}b0 = xor {vector} %{tag}a0, {turned}\n")
    found = "zeroinitializer"
    for k in range(_ROWS):
        for half, first in (("a", 0), ("b", _ROWS)):
            at = f"%{tag}{half}{k}"
            text += (f"  %{tag}s{half}{k} = call {vector} @{shuffle.name}({vector} %d{first + k}, "
                     f"{vector} {at})\n"
                     f"  %{tag}x{half}{k} = xor {vector} {found}, %{tag}s{half}{k}\n"
                     f"  %{tag}{half}{k + 1} = call {vector} @llvm.ssub.sat.v{shuffle.lanes}i8("
                     f"{vector} {at}, {vector} {less})\n")
            found = f"%{tag}x{half}{k}"
    return text + (f"  %{tag}q = getelementptr i8, ptr %out, i64 %{tag}i\n"
                   f"  store {vector} {found}, ptr %{tag}q, align 1\n")


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
{counted_loop_ir(("%from", "%to"), ("some", "found"), lanes, turn, one,
       [Carried(n, vector, "%first.v") for n, _ in names], joined,
       [Carried(f"{n}.s", kind, f"%{n}.all") for n, _ in names])}\
found:
{ends}  br label %run
"""
    head = block_head(("index", "leasts", "mosts"), ("total", "each"))
    return f'target triple = "{triple}"\n{declared}{ENTRY}{head}{over_units(body)}'
