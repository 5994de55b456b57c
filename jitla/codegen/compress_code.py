"""Elements that a mask keeps, as IR: how many there are in each unit, and the copy of them.

Knows: sizes of elements. Must not know: arrays, how many threads there are.
Receives sizes; returns modules with the entry @k.

Both run over units of `MASK_UNIT` elements. The copy is told where the results of every unit begin
and writes nowhere else, whatever the mask says meanwhile.
"""

from __future__ import annotations

from jitla.codegen.indexing_code import ENTRY, Carried, block_head, over_units, turns
from jitla.codegen.squeeze_code import squeezed, squeezing

__all__ = [
    "BOUNDS", "LONG", "MASK_UNIT", "SPARSE", "bit_by_bit", "compress_rows_text", "compress_text",
    "count_text", "one_by_one", "word_of_mask",
]

MASK_UNIT = 1 << 14
_TURN = 8
SPARSE = 16  # of so many elements less than one is kept: words of the mask are looked at first
_BARE = 256  # the same where elements are moved together
_WORDS, _LANES = 4, 32  # vectors of a turn of the count, and their bytes
LONG = 64  # elements of a long word of the mask
_AHEAD, _FAR_AHEAD = 2, 8  # long words between the one that is copied and the one whose rows are fetched
_FETCHED, _LINE = 4, 64  # of a row so many lines of the cache; what follows them is foreseen


def count_text(triple: str) -> str:
    """Return the module that counts what is true in every unit; operands: mask, counts."""
    vector = f"<{_LANES} x i8>"
    turn, total = "", "%c"
    for k in range(_WORDS):
        turn += (f"  %p{k} = getelementptr i8, ptr %mask, i64 %i{k}\n" if k else
                 "  %p0 = getelementptr i8, ptr %mask, i64 %i\n")
        turn += (f"  %x{k} = load {vector}, ptr %p{k}, align 1\n"
                 f"  %t{k} = icmp ne {vector} %x{k}, zeroinitializer\n"
                 f"  %b{k} = bitcast <{_LANES} x i1> %t{k} to i{_LANES}\n"
                 f"  %n{k} = call i{_LANES} @llvm.ctpop.i{_LANES}(i{_LANES} %b{k})\n"
                 f"  %w{k} = zext i{_LANES} %n{k} to i64\n"
                 f"  %c{k} = add i64 {total}, %w{k}\n")
        total = f"%c{k}"
        if k + 1 < _WORDS:
            turn += f"  %i{k + 1} = add i64 %i, {(k + 1) * _LANES}\n"
    one = """  %p = getelementptr i8, ptr %mask, i64 %j
  %x = load i8, ptr %p, align 1
  %t = icmp ne i8 %x, 0
  %w = zext i1 %t to i64
  %d.next = add i64 %d, %w
"""
    turn += f"  %c.next = add i64 {total}, 0\n"
    body = turns(("%from", "%to"), ("unit", "counted"), _WORDS * _LANES, turn, one,
                 [Carried("c", "i64", "0")], "", [Carried("d", "i64", "%c")]) + """counted:
  %at = getelementptr i64, ptr %counts, i64 %u
  store i64 %d, ptr %at, align 8
  br label %run
"""
    return (f'target triple = "{triple}"\ndeclare i{_LANES} @llvm.ctpop.i{_LANES}(i{_LANES})\n'
            f'{ENTRY}{block_head(("mask", "counts"), ("total",))}{over_units(body, MASK_UNIT)}')


def compress_text(itemsize: int, lanes: int, triple: str) -> str:
    """Return the module for elements of `itemsize` bytes: a power of two, at most 16.

    So many `lanes` are moved together; 0: one after the other.
    """
    turn, place = "", "%j"
    steps = range(0, max(_TURN, lanes), max(lanes, 1))
    for k in steps:
        step = squeezed(itemsize, lanes, f"{k}", f"%i{k}", place) if lanes else \
            _step(itemsize, f"{k}", f"%i{k}", place)
        turn += f"  %i{k} = add i64 %i, {k}\n" + step
        place = f"%j{k}"
    head = block_head(("x", "mask", "starts", "out"), ("total", "size"))
    copies = _COPIES.format(
        element=f"i{8 * itemsize}", itemsize=itemsize, turn=turn, place=place,
        sparse=_BARE if lanes else SPARSE, count=steps.stop, word=f"i{8 * steps.stop}",
        single=_step(itemsize, "s", "%ri", "%rj"))
    declared = _MEMCPY + (squeezing(itemsize, lanes) if lanes else "")
    loop = over_units(_STARTS + copies, MASK_UNIT)
    return f'target triple = "{triple}"\n{declared}{ENTRY}{head}{loop}'


def _step(itemsize: int, tag: str, i: str, j: str) -> str:
    """Lines that write element `i` to place `j`, which the next one has, too, unless it is kept."""
    element, align = f"i{8 * itemsize}", min(itemsize, 8)
    return (f"  %p{tag} = getelementptr {element}, ptr %x, i64 {i}\n"
            f"  %v{tag} = load {element}, ptr %p{tag}, align {align}\n"
            f"  %q{tag} = getelementptr {element}, ptr %out, i64 {j}\n"
            f"  store {element} %v{tag}, ptr %q{tag}, align {align}\n"
            f"  %m{tag} = getelementptr i8, ptr %mask, i64 {i}\n"
            f"  %b{tag} = load i8, ptr %m{tag}, align 1\n"
            f"  %t{tag} = icmp ne i8 %b{tag}, 0\n"
            f"  %w{tag} = zext i1 %t{tag} to i64\n"
            f"  %j{tag} = add i64 {j}, %w{tag}\n")


_MEMCPY = "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)\n"

# What is kept of a unit goes from %begun to %ended.
BOUNDS = """  %begun.p = getelementptr i64, ptr %starts, i64 %u
  %begun = load i64, ptr %begun.p, align 8
  %ended.p = getelementptr i64, ptr %starts, i64 %u.next
  %ended = load i64, ptr %ended.p, align 8
"""

# Nothing or all of it is done at once.
_STARTS = BOUNDS + """  %kept = sub i64 %ended, %begun
  %length = sub i64 %to, %from
  %some = icmp ne i64 %kept, 0
  br i1 %some, label %much, label %run
much:
  %all = icmp eq i64 %kept, %length
  br i1 %all, label %whole, label %mixed
"""

# All results of a unit that are not copied at once; a place is written only if it is one of the unit's.
_COPIES = """whole:
  %whole.p = getelementptr {element}, ptr %x, i64 %from
  %whole.q = getelementptr {element}, ptr %out, i64 %begun
  %whole.n = mul i64 %kept, {itemsize}
  call void @llvm.memcpy.p0.p0.i64(ptr align 1 %whole.q, ptr align 1 %whole.p, i64 %whole.n, i1 false)
  br label %run
mixed:
  %dozens = mul i64 %kept, {sparse}
  %sparse = icmp ult i64 %dozens, %length
  br label %turns
turns:
  %i = phi i64 [ %from, %mixed ], [ %i.next, %turn ], [ %i.next, %look ]
  %j = phi i64 [ %begun, %mixed ], [ {place}, %turn ], [ %j, %look ]
  %i.next = add i64 %i, {count}
  %j.far = add i64 %j, {count}
  %i.more = icmp ule i64 %i.next, %to
  %j.more = icmp ule i64 %j.far, %ended
  %more = and i1 %i.more, %j.more
  br i1 %more, label %which, label %rest
which:
  br i1 %sparse, label %look, label %turn
look:
  %word.p = getelementptr i8, ptr %mask, i64 %i
  %word = load {word}, ptr %word.p, align 1
  %none = icmp eq {word} %word, 0
  br i1 %none, label %turns, label %turn
turn:
{turn}  br label %turns
rest:
  %ri = phi i64 [ %i, %turns ], [ %ri.next, %one ]
  %rj = phi i64 [ %j, %turns ], [ %js, %one ]
  %ri.more = icmp ult i64 %ri, %to
  %rj.more = icmp ult i64 %rj, %ended
  %r.more = and i1 %ri.more, %rj.more
  br i1 %r.more, label %one, label %run
one:
{single}  %ri.next = add i64 %ri, 1
  br label %rest
"""


def compress_rows_text(triple: str) -> str:
    """Return the module for rows of any number of bytes."""
    lines = range(_FETCHED)
    sizes = "".join(
        f"  %line{k} = call i64 @llvm.umin.i64(i64 {k * _LINE}, i64 %size.last)\n" for k in lines)
    fetches = "".join(
        f"  %f.p{k} = getelementptr i8, ptr %f.p, i64 %line{k}\n"
        f"  call void @llvm.prefetch.p0(ptr %f.p{k}, i32 0, i32 3, i32 1)\n" for k in lines)
    body = BOUNDS + _ROWS.format(
        sizes=sizes, fetches=fetches, sparse=SPARSE, long=LONG, ahead=_AHEAD * LONG,
        far=_FAR_AHEAD * LONG, word=word_of_mask("w", "%i"), coming=word_of_mask("f.w", "%ahead"),
        bit=bit_by_bit("%i", _copy("b", "%bi", "%bj"), "words"),
        rest=one_by_one("words", _copy("r", "%ri", "%rj")))
    head = block_head(("x", "mask", "starts", "out"), ("total", "size"))
    return f'target triple = "{triple}"\n{_MEMCPY}{_OF_WORDS}{ENTRY}{head}{over_units(body, MASK_UNIT)}'


def bit_by_bit(at: str, kept: str, behind: str) -> str:
    """Lines of %bits that do what is `kept` with row %bi for every bit of %bw; its word begins at row `at`.

    %bj counts them: no more are done than the unit has places for. Then comes the block `behind`.
    """
    return f"""  %b.any = icmp ne i{LONG} %bw, 0
  %b.room = icmp ult i64 %bj, %ended
  %b.more = and i1 %b.any, %b.room
  br i1 %b.more, label %bit, label %{behind}
bit:
  %bn = call i{LONG} @llvm.cttz.i{LONG}(i{LONG} %bw, i1 true)
  %bi = add i64 {at}, %bn
{kept}  %bj.next = add i64 %bj, 1
  %bw.less = sub i{LONG} %bw, 1
  %bw.next = and i{LONG} %bw, %bw.less
  br label %bits
"""


def one_by_one(before: str, kept: str) -> str:
    """Lines that do what is `kept` with each row %ri that is, from %i of the block `before` on.

    Its place is %rj. Then comes %run.
    """
    return f"""rest:
  %ri = phi i64 [ %i, %{before} ], [ %ri.next, %next ]
  %rj = phi i64 [ %j, %{before} ], [ %rj.next, %next ]
  %ri.more = icmp ult i64 %ri, %to
  %rj.more = icmp ult i64 %rj, %ended
  %r.more = and i1 %ri.more, %rj.more
  br i1 %r.more, label %one, label %run
one:
  %m = getelementptr i8, ptr %mask, i64 %ri
  %m.x = load i8, ptr %m, align 1
  %t = icmp ne i8 %m.x, 0
  br i1 %t, label %copy, label %next
copy:
{kept}  br label %next
next:
  %m.one = zext i1 %t to i64
  %rj.next = add i64 %rj, %m.one
  %ri.next = add i64 %ri, 1
  br label %rest
"""


def word_of_mask(name: str, at: str) -> str:
    """Lines that make the bits of the long word of the mask at row `at`."""
    return (f"  %{name}.p = getelementptr i8, ptr %mask, i64 {at}\n"
            f"  %{name}.x = load <{LONG} x i8>, ptr %{name}.p, align 1\n"
            f"  %{name}.t = icmp ne <{LONG} x i8> %{name}.x, zeroinitializer\n"
            f"  %{name} = bitcast <{LONG} x i1> %{name}.t to i{LONG}\n")


def _copy(tag: str, i: str, j: str) -> str:
    """Lines that copy row `i` to row `j` of the result."""
    return (f"  %{tag}.skip = mul i64 {i}, %size\n"
            f"  %{tag}.from = getelementptr i8, ptr %x, i64 %{tag}.skip\n"
            f"  %{tag}.into = mul i64 {j}, %size\n"
            f"  %{tag}.to = getelementptr i8, ptr %out, i64 %{tag}.into\n"
            f"  call void @llvm.memcpy.p0.p0.i64(ptr align 1 %{tag}.to, ptr align 1 %{tag}.from, "
            f"i64 %size, i1 false)\n")


_OF_WORDS = f"""declare i{LONG} @llvm.cttz.i{LONG}(i{LONG}, i1)
declare i64 @llvm.umin.i64(i64, i64)
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
"""

# Long words of the mask are taken apart bit by bit. The rows that a word some way ahead keeps are asked
# for meanwhile: where they lie is nothing that the processor could foresee.
_ROWS = """  %size.last = sub i64 %size, 1
{sizes}  %kept = sub i64 %ended, %begun
  %length = sub i64 %to, %from
  %dozens = mul i64 %kept, {sparse}
  %sparse = icmp ult i64 %dozens, %length
  %distance = select i1 %sparse, i64 {far}, i64 {ahead}
  br label %words
words:
  %i = phi i64 [ %from, %unit ], [ %i.next, %bits ], [ %i.next, %whole ]
  %j = phi i64 [ %begun, %unit ], [ %bj, %bits ], [ %j.all, %whole ]
  %i.next = add i64 %i, {long}
  %i.more = icmp ule i64 %i.next, %to
  br i1 %i.more, label %look, label %rest
look:
{word}  %all = icmp eq i{long} %w, -1
  %j.all = add i64 %j, {long}
  %j.room = icmp ule i64 %j.all, %ended
  %at.once = and i1 %all, %j.room
  br i1 %at.once, label %whole, label %foresee
whole:
  %whole.skip = mul i64 %i, %size
  %whole.from = getelementptr i8, ptr %x, i64 %whole.skip
  %whole.into = mul i64 %j, %size
  %whole.to = getelementptr i8, ptr %out, i64 %whole.into
  %whole.n = mul i64 %size, {long}
  call void @llvm.memcpy.p0.p0.i64(ptr align 1 %whole.to, ptr align 1 %whole.from, i64 %whole.n, i1 false)
  br label %words
foresee:
  %ahead = add i64 %i, %distance
  %ahead.end = add i64 %ahead, {long}
  %is.ahead = icmp ule i64 %ahead.end, %to
  br i1 %is.ahead, label %coming, label %bits
coming:
{coming}  br label %fetches
fetches:
  %fw = phi i{long} [ %f.w, %coming ], [ %fw.next, %fetch ]
  %f.any = icmp ne i{long} %fw, 0
  br i1 %f.any, label %fetch, label %bits
fetch:
  %fn = call i{long} @llvm.cttz.i{long}(i{long} %fw, i1 true)
  %fi = add i64 %ahead, %fn
  %f.skip = mul i64 %fi, %size
  %f.p = getelementptr i8, ptr %x, i64 %f.skip
{fetches}  %fw.less = sub i{long} %fw, 1
  %fw.next = and i{long} %fw, %fw.less
  br label %fetches
bits:
  %bw = phi i{long} [ %w, %foresee ], [ %w, %fetches ], [ %bw.next, %bit ]
  %bj = phi i64 [ %j, %foresee ], [ %j, %fetches ], [ %bj.next, %bit ]
{bit}{rest}"""
