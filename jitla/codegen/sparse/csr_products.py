"""IR of products with CSR matrices."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from jitla.codegen.indexing.gather import bits_of, smaller, to_word
from jitla.codegen.ir import Lanes

__all__ = [
    "AT_ONCE", "Around", "BLOCK", "NEAR_AHEAD", "by_rows", "by_rows_only", "column_of", "element_at",
    "fetched", "in_all_lanes", "loaded", "looked_at", "row_start", "rows_by_matrix", "rows_by_vector",
    "rows_summed", "run",
]


BLOCK = 512  # entries whose columns are looked at before they are used
AHEAD = 4096  # bytes of entries and columns that are fetched before they are needed
NEAR_AHEAD = 2048  # where they may be in a cache already: further off costs more than it gains
Around = Callable[[np.dtype, str], str]  # makes, of lines for a row, the function @rows
AT_ONCE = 8  # entries of a row, in two vectors
_TAKES = ("ptr %starts, i64 %rows, ptr %data, ptr %columns, i64 %total, i64 %most, ptr %x, ptr %out, "
          "i64 %depth")


def element_at(name: str, base: str, at: str, kind: str) -> str:
    """Line of the address of an element."""
    return f"  {name} = getelementptr {kind}, ptr {base}, i64 {at}\n"


def row_start(name: str, at: str, index: np.dtype) -> str:
    """Lines of the word %name: where the row number `at` begins."""
    bits = f"i{bits_of(index)}"
    return (element_at(f"%{name}.p", "%starts", at, bits)
            + f"  %{name}.i = load {bits}, ptr %{name}.p, align {index.itemsize}\n"
            + to_word(f"%{name}", f"%{name}.i", index))


def column_of(tag: str, at: str, index: np.dtype) -> str:
    """Lines of the word %c: the column of an entry, which is known to be one."""
    bits = f"i{bits_of(index)}"
    wide = f"  %c{tag} = add i64 %c.i{tag}, 0\n" if index.itemsize == 8 else \
        f"  %c{tag} = zext {bits} %c.i{tag} to i64\n"
    return (element_at(f"%c.p{tag}", "%columns", at, bits)
            + f"  %c.i{tag} = load {bits}, ptr %c.p{tag}, align {index.itemsize}\n" + wide)


def loaded(name: str, base: str, at: str, kind: str, size: int) -> str:
    """Lines that load an element, or a vector of them."""
    return element_at(f"{name}.p", base, at, kind.split()[-1].rstrip(">")) + \
        f"  {name} = load {kind}, ptr {name}.p, align {size}\n"


def fetched(entry: str = "%d.p", column: str = "%c.p", ahead: int = AHEAD) -> str:
    """Lines that fetch what comes behind an entry at an address, whose column is at another."""
    return "".join(
        f"  %h.{name} = getelementptr i8, ptr {at}, i64 {ahead}\n"
        f"  call void @llvm.prefetch.p0(ptr %h.{name}, i32 0, i32 3, i32 1)\n"
        for name, at in (("d", entry), ("c", column)))


def in_all_lanes(name: str, x: str, real: str, width: int) -> str:
    """Lines that put an element in all lanes of a vector."""
    vector = f"<{width} x {real}>"
    return (f"  {name}.0 = insertelement {vector} poison, {real} {x}, i64 0\n"
            f"  {name} = shufflevector {vector} {name}.0, {vector} poison, <{width} x i32> zeroinitializer\n")


def by_rows(index: np.dtype, body: str) -> str:
    """@rows: `body` for every row %i, with the entries %from up to %to, from label known to label next.

    It returns whether all indices are in order; it ends with the first that is not.
    """
    first = "  %ok = phi i64 [ %begin, %entry ], [ %ok.now, %next ]\n"
    looks = f"""  br i1 %right, label %bounded, label %lost
bounded:
  %beyond = icmp ugt i64 %to, %ok
  br i1 %beyond, label %look, label %known
look:
  %ahead = add i64 %ok, {BLOCK}
{smaller("%block", "%ahead", "%total")}  %short = icmp ult i64 %block, %to
  %ok.new = select i1 %short, i64 %to, i64 %block
  %fine = call i1 @within(ptr %columns, i64 %ok, i64 %ok.new, i64 %most)
  br i1 %fine, label %known, label %lost
known:
  %ok.now = phi i64 [ %ok, %bounded ], [ %ok.new, %look ]
"""
    return _rows(index, "", first, looks + body)


def by_rows_only(index: np.dtype, body: str) -> str:
    """@rows: like `by_rows`, but `body` looks at columns, and goes to label lost where one names nothing."""
    kind = f"i{bits_of(index)}"
    most = "  %most.i = add i64 %most, 0\n" if kind == "i64" else f"  %most.i = trunc i64 %most to {kind}\n"
    lasts = "".join(in_all_lanes(f"%lasts{n}", "%greatest", kind, n) for n in (AT_ONCE, AT_ONCE // 2))
    once = f"{most}  %greatest = sub {kind} %most.i, 1\n{lasts}"
    return _rows(index, once, "", f"  br i1 %right, label %known, label %lost\nknown:\n{body}")


def _rows(index: np.dtype, once: str, first: str, body: str) -> str:
    """@rows: lines that are done `once`; for every row, phis that come `first`, and `body` from %right on."""
    return f"""define internal i1 @rows({_TAKES}) nounwind {{
entry:
{row_start("begin", "0", index)}{once}  br label %each
each:
  %i = phi i64 [ 0, %entry ], [ %i.next, %next ]
  %from = phi i64 [ %begin, %entry ], [ %to, %next ]
{first}  %more = icmp ult i64 %i, %rows
  br i1 %more, label %row, label %done
row:
  %i.next = add i64 %i, 1
{row_start("to", "%i.next", index)}  %up = icmp ule i64 %from, %to
  %near = icmp ule i64 %to, %total
  %right = and i1 %up, %near
{body}next:
  br label %each
done:
  ret i1 true
lost:
  ret i1 false
}}
"""


def looked_at(label: str, at: str, count: int, index: np.dtype) -> str:
    """Lines that go to `label` if the columns of `count` entries are below %most, else to label lost.

    A sign shows in a column that is not, or in what is left from it to the last.
    """
    kind, v = f"i{bits_of(index)}", f"%v.{label}"
    vector, lasts = (f"<{count} x {kind}>", f"%lasts{count}") if count > 1 else (kind, "%greatest")
    text = (element_at(f"{v}.p", "%columns", at, kind)
            + f"  {v} = load {vector}, ptr {v}.p, align {index.itemsize}\n"
            f"  {v}.left = sub {vector} {lasts}, {v}\n  {v}.seen = or {vector} {v}, {v}.left\n")
    if count == 1:
        text += f"  {v}.bad = icmp slt {kind} {v}.seen, 0\n"
    else:
        text += (f"  {v}.signs = icmp slt {vector} {v}.seen, zeroinitializer\n"
                 f"  {v}.bits = bitcast <{count} x i1> {v}.signs to i{count}\n"
                 f"  {v}.bad = icmp ne i{count} {v}.bits, 0\n")
    return text + f"  br i1 {v}.bad, label %lost, label %{label}\n"


def run(
    turn: str, last: str, half: str, one: str, held: tuple[str, str, str, str] = ("", "", "", ""),
    joined: str = "", between: str = "", index: np.dtype | None = None,
) -> str:
    """Lines of a loop over a row: `turn` for AT_ONCE entries from %k on. What is left of a row that has so
    many is the end of its `last` ones, from %l.first on, of which %l.done are done: entries that end by one
    branch are foreseen better than by three. Else `half` is for half as many, if there are, and `one` for
    each %j that is left.

    It begins at label ready; the `held` values of the loop, of what comes after `last` and after `half`, at
    labels gathered and folded, and of the loop over single entries are phis; `joined` comes before `half`,
    `between` after it. It goes on at label ended. Columns of type `index` are looked at before their turn.
    """
    def looks(label: str, at: str, count: int) -> str:
        return f"  br label %{label}\n" if index is None else looked_at(label, at, count, index)

    return f"""  br label %ready
ready:
  br label %turns
turns:
  %k = phi i64 [ %from, %ready ], [ %k.next, %turn ]
{held[0]}  %k.next = add i64 %k, {AT_ONCE}
  %k.more = icmp ule i64 %k.next, %to
  br i1 %k.more, label %turn.look, label %left
turn.look:
{looks("turn", "%k", AT_ONCE)}turn:
{turn}  br label %turns
left:
  %k.all = icmp eq i64 %k, %to
  br i1 %k.all, label %gathered, label %some
some:
  %k.long = icmp ugt i64 %k, %from
  br i1 %k.long, label %last.look, label %gathered
last.look:
  %l.first = sub i64 %to, {AT_ONCE}
  %l.done = sub i64 %k, %l.first
{looks("last", "%l.first", AT_ONCE)}last:
{last}  br label %gathered
gathered:
  %k.then = phi i64 [ %k, %left ], [ %k, %some ], [ %to, %last ]
{held[1]}{joined}  %k.half = add i64 %k.then, {AT_ONCE // 2}
  %k.some = icmp ule i64 %k.half, %to
  br i1 %k.some, label %half.look, label %folded
half.look:
{looks("half", "%k.then", AT_ONCE // 2)}half:
{half}  br label %folded
folded:
  %k.rest = phi i64 [ %k.then, %gathered ], [ %k.half, %half ]
{held[2]}{between}  br label %rest
rest:
  %j = phi i64 [ %k.rest, %folded ], [ %j.next, %one ]
{held[3]}  %j.more = icmp ult i64 %j, %to
  br i1 %j.more, label %one.look, label %ended
one.look:
{looks("one", "%j", 1)}one:
  %j.next = add i64 %j, 1
{one}  br label %rest
ended:
"""


# Entries of a turn: the letter of their names, the number of the first, lanes that they are added to.
_PARTS = (("a", 0, "%s"), ("b", AT_ONCE // 2, "%u"))
_FETCHED = fetched("%da.p", "%c.pa0", NEAR_AHEAD)  # behind the first entry of a turn


def rows_by_vector(w: Lanes, index: np.dtype) -> str:
    """@rows: an element for every row; the order of its sum depends on how many entries there are only."""
    four = Lanes(w.real, w.size, AT_ONCE // 2)
    turn = "".join(_dot(four, w, index, tag, "%k", skip, held, f"{held}.next") for tag, skip, held in _PARTS)
    last = "".join(_dot(four, w, index, f"l{tag}", "%l.first", skip, held, f"{held}.last", done=True)
                   for tag, skip, held in _PARTS)
    one = (column_of("", "%j", index) + loaded("%e", "%x", "%c", w.real, w.size)
           + loaded("%f", "%data", "%j", w.real, w.size)
           + f"  %t.next = call {w.real} @llvm.fmuladd.{_code(w)}({w.real} %f, {w.real} %e, {w.real} %t)\n")
    held = ("".join(f"  {s} = phi {four.vector} [ zeroinitializer, %ready ], [ {s}.next, %turn ]\n"
                    for _, _, s in _PARTS),
            "".join(f"  {s}.all = phi {four.vector} [ {s}, %left ], [ {s}, %some ], [ {s}.last, %last ]\n"
                    for _, _, s in _PARTS),
            f"  %all = phi {four.vector} [ %both, %gathered ], [ %both.next, %half ]\n",
            f"  %t = phi {w.real} [ %sum, %folded ], [ %t.next, %one ]\n")
    half = _dot(four, w, index, "h", "%k.then", 0, "%both", "%both.next")
    body = run(turn + _FETCHED, last, half, one, held,
               f"  %both = fadd {four.vector} %s.all, %u.all\n", four.fold("%sum", "%all"), index)
    body += element_at("%o", "%out", "%i", w.real) + (
        f"  store {w.real} %t, ptr %o, align {w.size}\n  br label %next\n")
    return (f"declare {four.vector} @llvm.fmuladd.{four.code}({four.vector}, {four.vector}, {four.vector})\n"
            f"declare {w.real} @llvm.fmuladd.{_code(w)}({w.real}, {w.real}, {w.real})\n"
            + by_rows_only(index, body))


def _dot(
    four: Lanes, w: Lanes, index: np.dtype, tag: str, first: str, skip: int, held: str, found: str,
    done: bool = False,
) -> str:
    """Lines that add products of some entries, from number `skip` after `first` on, to lanes of `held`.

    If some are `done`, they are taken for zeros.
    """
    text = f"  %k{tag} = add i64 {first}, {skip}\n"
    text += loaded(f"%d{tag}", "%data", f"%k{tag}", four.vector, w.size)
    for n in range(four.width):
        before = "poison" if n == 0 else f"%x{tag}{n - 1}"
        text += (_entry(f"{tag}{n}", f"%k{tag}", n, index)
                 + loaded(f"%e{tag}{n}", "%x", f"%c{tag}{n}", w.real, w.size)
                 + f"  %x{tag}{n} = insertelement {four.vector} {before}, {w.real} %e{tag}{n}, i64 {n}\n")
    factors = f"%d{tag}", f"%x{tag}{four.width - 1}"
    if done:
        text += _undone(four, tag, skip) + "".join(_kept(four, tag, x) for x in factors)
        factors = f"{factors[0]}.kept", f"{factors[1]}.kept"
    return text + four.fma(found, *factors, held)


def _undone(four: Lanes, tag: str, skip: int) -> str:
    """Lines of the mask of lanes, from number `skip` of a turn on, that are not among the first %l.done."""
    bits = 8 * four.size
    lanes = ", ".join(f"i{bits} {skip + n}" for n in range(four.width))
    number = f"  %n{tag} = " + ("add i64 %l.done, 0\n" if bits == 64 else f"trunc i64 %l.done to i{bits}\n")
    return number + in_all_lanes(f"%m{tag}", f"%n{tag}", f"i{bits}", four.width) + \
        f"  %u{tag} = icmp sge <{four.width} x i{bits}> <{lanes}>, %m{tag}\n"


def _kept(four: Lanes, tag: str, x: str) -> str:
    """Line that puts zeros into lanes of `x` that are done."""
    return f"  {x}.kept = select {four.mask} %u{tag}, {four.vector} {x}, {four.vector} zeroinitializer\n"


def rows_summed(w: Lanes, index: np.dtype, around: Around | None = None) -> str:
    """@rows: every row times its element of x is added to out; 0.0 is, too, where an entry is done.

    What is `around` looks at columns, if there is such.
    """
    four = Lanes(w.real, w.size, AT_ONCE // 2)
    turn = "".join(_spread(four, w, index, tag, "%k", skip) for tag, skip, _ in _PARTS)
    last = "".join(_spread(four, w, index, f"l{tag}", "%l.first", skip, done=True) for tag, skip, _ in _PARTS)
    one = (column_of("", "%j", index) + loaded("%f", "%data", "%j", w.real, w.size)
           + f"  %q = fmul {w.real} %f, %xe\n" + _adds("", "%c", "%q", w))
    before = loaded("%xe", "%x", "%i", w.real, w.size) + in_all_lanes("%xv", "%xe", w.real, four.width)
    half = _spread(four, w, index, "h", "%k.then", 0)
    body = run(turn + _FETCHED, last, half, one, index=None if around else index)
    return (around or by_rows_only)(index, f"{before}{body}  br label %next\n")


def _spread(
    four: Lanes, w: Lanes, index: np.dtype, tag: str, first: str, skip: int, done: bool = False
) -> str:
    """Lines that add some entries times %xv, from number `skip` after `first` on, to out, in order."""
    text = f"  %k{tag} = add i64 {first}, {skip}\n"
    text += loaded(f"%d{tag}", "%data", f"%k{tag}", four.vector, w.size)
    text += f"  %p{tag} = fmul {four.vector} %d{tag}, %xv\n"
    text += _undone(four, tag, skip) + _kept(four, tag, f"%p{tag}") if done else ""
    product = f"%p{tag}.kept" if done else f"%p{tag}"
    for n in range(four.width):
        text += (_entry(f"{tag}{n}", f"%k{tag}", n, index)
                 + f"  %p{tag}{n} = extractelement {four.vector} {product}, i64 {n}\n"
                 + _adds(f"{tag}{n}", f"%c{tag}{n}", f"%p{tag}{n}", w))
    return text


def _entry(tag: str, first: str, n: int, index: np.dtype) -> str:
    """Lines of %c, the column of entry number `n` from `first` on."""
    return f"  %k{tag} = add i64 {first}, {n}\n" + column_of(tag, f"%k{tag}", index)


def _code(w: Lanes) -> str:
    return "f64" if w.size == 8 else "f32"


def _adds(tag: str, at: str, x: str, w: Lanes) -> str:
    """Lines that add `x` to an element of out."""
    return (loaded(f"%o{tag}", "%out", at, w.real, w.size)
            + f"  %s{tag} = fadd {w.real} %o{tag}, {x}\n"
            f"  store {w.real} %s{tag}, ptr %o{tag}.p, align {w.size}\n")


def rows_by_matrix(
    dots: bool, w: Lanes, index: np.dtype, columns: int, around: Around = by_rows
) -> str:
    """@rows: for every entry, a row of x, times it, is added to a row of out: its own, with `dots`."""
    own, other = ("%out", "%x") if dots else ("%x", "%out")
    depth = str(columns or "%depth")
    before = f"  %own = mul i64 %i, {depth}\n" + element_at("%mine", own, "%own", w.real)
    entry = (column_of("", "%k", index) + loaded("%d", "%data", "%k", w.real, w.size) + fetched()
             + f"  %skip = mul i64 %c, {depth}\n" + element_at("%far", other, "%skip", w.real))
    return around(index, _held(dots, w, columns, before, entry) if columns else _any(dots, w, before, entry))


def _any(dots: bool, w: Lanes, before: str, entry: str) -> str:
    """Lines for any number of columns: rows of results are in memory."""
    source, target = ("%far", "%mine") if dots else ("%mine", "%far")
    zeros = f"""  %bytes = mul i64 %depth, {w.size}
  call void @llvm.memset.p0.i64(ptr align {w.size} %mine, i8 0, i64 %bytes, i1 false)
""" if dots else ""

    def step(tag: str, at: str, kind: str, factor: str) -> str:
        return (loaded(f"%y{tag}", source, at, kind, w.size) + loaded(f"%o{tag}", target, at, kind, w.size)
                + f"  %m{tag} = fmul {kind} %y{tag}, {factor}\n  %s{tag} = fadd {kind} %o{tag}, %m{tag}\n"
                f"  store {kind} %s{tag}, ptr %o{tag}.p, align {w.size}\n")

    return f"""{before}{zeros}  br label %entries
entries:
  %k = phi i64 [ %from, %known ], [ %k.next, %rest ]
  %left = icmp ult i64 %k, %to
  br i1 %left, label %one, label %next
one:
  %k.next = add i64 %k, 1
{entry}{in_all_lanes("%dv", "%d", w.real, w.width)}  br label %vectors
vectors:
  %j = phi i64 [ 0, %one ], [ %j.next, %vector ]
  %j.next = add i64 %j, {w.width}
  %some = icmp ule i64 %j.next, %depth
  br i1 %some, label %vector, label %rest
vector:
{step("v", "%j", w.vector, "%dv")}  br label %vectors
rest:
  %l = phi i64 [ %j, %vectors ], [ %l.next, %single ]
  %few = icmp ult i64 %l, %depth
  br i1 %few, label %single, label %entries
single:
  %l.next = add i64 %l, 1
{step("s", "%l", w.real, "%d")}  br label %rest
"""


def _pieces(w: Lanes, columns: int) -> list[tuple[int, int]]:
    """Share columns out: the first of each vector, or part of one, and how many it has."""
    found, at, width = [], 0, w.width
    while at < columns:
        while width > columns - at:
            width //= 2
        found.append((at, width))
        at += width
    return found


def _held(dots: bool, w: Lanes, columns: int, before: str, entry: str) -> str:
    """Lines for so many columns: the row's own, of out or of x, is in registers."""
    pieces = [(at, width, f"<{width} x {w.real}>") for at, width in _pieces(w, columns)]
    first = step = held = kept = ""
    for width in dict.fromkeys(width for _, width, _ in pieces):
        step += in_all_lanes(f"%d{width}", "%d", w.real, width)
    for at, width, kind in pieces:
        step += loaded(f"%o{at}", "%far", str(at), kind, w.size)
        if dots:
            held += f"  %s{at} = phi {kind} [ zeroinitializer, %known ], [ %s.next{at}, %one ]\n"
            step += (f"  %m{at} = fmul {kind} %o{at}, %d{width}\n"
                     f"  %s.next{at} = fadd {kind} %s{at}, %m{at}\n")
            kept += element_at(f"%q{at}", "%mine", str(at), w.real)
            kept += f"  store {kind} %s{at}, ptr %q{at}, align {w.size}\n"
        else:
            first += loaded(f"%mine{at}", "%mine", str(at), kind, w.size)
            step += (f"  %m{at} = fmul {kind} %mine{at}, %d{width}\n  %n{at} = fadd {kind} %o{at}, %m{at}\n"
                     f"  store {kind} %n{at}, ptr %o{at}.p, align {w.size}\n")
    return f"""{before}{first}  br label %entries
entries:
  %k = phi i64 [ %from, %known ], [ %k.next, %one ]
{held}  %left = icmp ult i64 %k, %to
  br i1 %left, label %one, label %ended
one:
  %k.next = add i64 %k, 1
{entry}{step}  br label %entries
ended:
{kept}  br label %next
"""
