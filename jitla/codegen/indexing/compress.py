"""IR of compressing reads: selection by a mask, and positions of nonzeros."""

from __future__ import annotations

from jitla.codegen.indexing.gather import ENTRY, Carried, block_head, counted_loop_ir, over_units
from jitla.codegen.target import Target

__all__ = [
    "BOUNDS", "LONG", "MASK_UNIT", "SPARSE", "bit_by_bit", "compress_rows_text", "compress_text",
    "count_text", "one_by_one", "positions_text", "squeezed", "squeezed_lanes", "squeezing",
    "word_of_mask",
]


_BYTES = 64  # of a vector
#: What a processor must have, by the bytes of an element.
_NEEDED = {1: "avx512vbmi2", 2: "avx512vbmi2", 4: "avx512f", 8: "avx512f"}


def squeezed_lanes(itemsize: int, target: Target) -> int:
    """Return how many elements are moved together at once; 0 if the processor has nothing for it."""
    return _BYTES // itemsize if _NEEDED.get(itemsize) in target.features else 0


def squeezing(itemsize: int, lanes: int) -> str:
    """Declarations that `squeezed` needs."""
    vector, code = f"<{lanes} x i{8 * itemsize}>", f"v{lanes}i{8 * itemsize}"
    return (f"declare {vector} @llvm.experimental.vector.compress.{code}({vector}, <{lanes} x i1>, "
            f"{vector})\ndeclare i{lanes} @llvm.ctpop.i{lanes}(i{lanes})\n")


def squeezed(itemsize: int, lanes: int, tag: str, i: str, j: str) -> str:
    """Lines that write what the mask keeps of %x from `i` on to %out from `j` on; %j`tag` is behind it.

    A whole vector is written: what is behind %j`tag` may be anything.
    """
    element = f"i{8 * itemsize}"
    vector, code = f"<{lanes} x {element}>", f"v{lanes}{element}"
    word = f"add i64 %n{tag}, 0" if lanes == 64 else f"zext i{lanes} %n{tag} to i64"
    return (f"  %p{tag} = getelementptr {element}, ptr %x, i64 {i}\n"
            f"  %v{tag} = load {vector}, ptr %p{tag}, align {itemsize}\n"
            f"  %m{tag} = getelementptr i8, ptr %mask, i64 {i}\n"
            f"  %b{tag} = load <{lanes} x i8>, ptr %m{tag}, align 1\n"
            f"  %t{tag} = icmp ne <{lanes} x i8> %b{tag}, zeroinitializer\n"
            f"  %s{tag} = call {vector} @llvm.experimental.vector.compress.{code}({vector} %v{tag}, "
            f"<{lanes} x i1> %t{tag}, {vector} poison)\n"
            f"  %q{tag} = getelementptr {element}, ptr %out, i64 {j}\n"
            f"  store {vector} %s{tag}, ptr %q{tag}, align {itemsize}\n"
            f"  %k{tag} = bitcast <{lanes} x i1> %t{tag} to i{lanes}\n"
            f"  %n{tag} = call i{lanes} @llvm.ctpop.i{lanes}(i{lanes} %k{tag})\n"
            f"  %w{tag} = {word}\n"
            f"  %j{tag} = add i64 {j}, %w{tag}\n")


MASK_UNIT = 1 << 14
_TURN = 8
SPARSE = 16  # words of the mask are tested first where less than one of as many elements is kept
_BARE = 256  # the same where elements are moved together
_WORDS, _LANES = 4, 32  # vectors of a turn of the count, and their bytes
LONG = 64  # elements of a long word of the mask
_AHEAD, _FAR_AHEAD = 2, 8  # long words between the one that is copied and the one whose rows are fetched
_FETCHED, _LINE = 4, 64  # cache lines of a row that are prefetched, and their bytes


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
    body = counted_loop_ir(("%from", "%to"), ("unit", "counted"), _WORDS * _LANES, turn, one,
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


  # elements of a short word of the mask


def positions_text(triple: str) -> str:
    """Return the module that writes where a mask keeps elements, as words of 32 bits.

    Operands: mask, starts, result.
    """
    lanes = f"<{_TURN} x i32>"
    nearest = ", ".join(f"i64 {_nearest(word)}" for word in range(1 << _TURN))
    body = _POSITIONS.format(
        lanes=lanes, turn=_TURN, sparse=SPARSE, long=LONG, word=word_of_mask("lw", "%li"),
        bit=bit_by_bit("%li", _put("b", "%bi", "%bj"), "looks"),
        rest=one_by_one("turns", _put("r", "%ri", "%rj")))
    return f"""target triple = "{triple}"
declare i{_TURN} @llvm.ctpop.i{_TURN}(i{_TURN})
declare i{LONG} @llvm.cttz.i{LONG}(i{LONG}, i1)
@kept = internal constant [{1 << _TURN} x i64] [{nearest}], align 64
{ENTRY}{block_head(("mask", "starts", "out"), ("total",))}{over_units(BOUNDS + body, MASK_UNIT)}"""


def _put(tag: str, i: str, j: str) -> str:
    """Lines that write the position `i` to place `j`."""
    return (f"  %{tag}.low = trunc i64 {i} to i32\n  %{tag}.to = getelementptr i32, ptr %out, i64 {j}\n"
            f"  store i32 %{tag}.low, ptr %{tag}.to, align 4\n")


# Where little is kept, long words of the mask are taken apart bit by bit; else the numbers of the bits of
# short ones are looked up. A place is written only if it is one of the unit's.
_POSITIONS = """  %kept = sub i64 %ended, %begun
  %length = sub i64 %to, %from
  %dozens = mul i64 %kept, {sparse}
  %sparse = icmp ult i64 %dozens, %length
  br i1 %sparse, label %looks, label %turns
looks:
  %li = phi i64 [ %from, %unit ], [ %li.next, %bits ]
  %lj = phi i64 [ %begun, %unit ], [ %bj, %bits ]
  %li.next = add i64 %li, {long}
  %l.more = icmp ule i64 %li.next, %to
  br i1 %l.more, label %look, label %turns
look:
{word}  br label %bits
bits:
  %bw = phi i{long} [ %lw, %look ], [ %bw.next, %bit ]
  %bj = phi i64 [ %lj, %look ], [ %bj.next, %bit ]
{bit}turns:
  %i = phi i64 [ %from, %unit ], [ %li, %looks ], [ %i.next, %turn ]
  %j = phi i64 [ %begun, %unit ], [ %lj, %looks ], [ %j.next, %turn ]
  %i.next = add i64 %i, {turn}
  %j.far = add i64 %j, {turn}
  %i.more = icmp ule i64 %i.next, %to
  %j.more = icmp ule i64 %j.far, %ended
  %more = and i1 %i.more, %j.more
  br i1 %more, label %turn, label %rest
turn:
  %p = getelementptr i8, ptr %mask, i64 %i
  %bytes = load <{turn} x i8>, ptr %p, align 1
  %bits.of = icmp ne <{turn} x i8> %bytes, zeroinitializer
  %word = bitcast <{turn} x i1> %bits.of to i{turn}
  %wide = zext i{turn} %word to i64
  %row = getelementptr i64, ptr @kept, i64 %wide
  %few = load <{turn} x i8>, ptr %row, align 8
  %near = zext <{turn} x i8> %few to {lanes}
  %low = trunc i64 %i to i32
  %first = insertelement {lanes} poison, i32 %low, i64 0
  %base = shufflevector {lanes} %first, {lanes} poison, {lanes} zeroinitializer
  %there = add {lanes} %base, %near
  %q = getelementptr i32, ptr %out, i64 %j
  store {lanes} %there, ptr %q, align 4
  %count = call i{turn} @llvm.ctpop.i{turn}(i{turn} %word)
  %step = zext i{turn} %count to i64
  %j.next = add i64 %j, %step
  br label %turns
{rest}"""


def _nearest(word: int) -> int:
    """Return the numbers of the bits of `word`, a byte each, the lowest first."""
    return int.from_bytes(bytes(k for k in range(_TURN) if word >> k & 1), "little")
