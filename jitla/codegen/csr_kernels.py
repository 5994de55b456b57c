"""IR of kernels over the stored entries of CSR matrices: products, and loops over entries."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from jitla.codegen.indexing.gather import (
    ENTRY,
    Carried,
    bits_of,
    block_head,
    counted_loop_ir,
    in_lanes,
    smaller,
    to_word,
    within,
)
from jitla.codegen.ir import Lanes
from jitla.codegen.kernels.row import halved, unit_begins
from jitla.codegen.target import Target

__all__ = [
    "AT_ONCE", "Around", "BLOCK", "NEAR_AHEAD", "OPERANDS", "SHARED", "STAGE_WORDS", "UNITS", "bounds_at",
    "by_rows", "by_rows_only", "column_of", "csr_text", "element_at", "entries_text", "fetched",
    "in_all_lanes", "index_at", "loaded", "looked_at", "ranges_text", "row_start", "row_sums_text",
    "rows_by_matrix", "rows_by_vector", "rows_summed", "run", "shares", "specialised_columns",
]


# --------------------------------------------------------------------------- products


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
        text += (_column_of_entry(f"{tag}{n}", f"%k{tag}", n, index)
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
        text += (_column_of_entry(f"{tag}{n}", f"%k{tag}", n, index)
                 + f"  %p{tag}{n} = extractelement {four.vector} {product}, i64 {n}\n"
                 + _adds(f"{tag}{n}", f"%c{tag}{n}", f"%p{tag}{n}", w))
    return text


def _column_of_entry(tag: str, first: str, n: int, index: np.dtype) -> str:
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
    """Return the lines for `columns` columns of a row; the operand of the row itself is in registers."""
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


# --------------------------------------------------------------------------- other kernels


def index_at(name: str, base: str, at: str, kind: np.dtype) -> str:
    """Lines that load an index as the word `name`."""
    bits = f"i{bits_of(kind)}"
    return (f"  {name}.p = getelementptr {bits}, ptr {base}, i64 {at}\n"
            f"  {name}.k = load {bits}, ptr {name}.p, align {kind.itemsize}\n"
            + to_word(name, f"{name}.k", kind))


def bounds_at(kind: np.dtype) -> str:
    """Lines that load where the entries of row %i begin and end, %from and %to; none if that is no run."""
    return f"""{index_at("%given", "%starts", "%i", kind)}  %after = add i64 %i, 1
{index_at("%last", "%starts", "%after", kind)}\
  %ordered = icmp ule i64 %given, %last
  %inside = icmp ule i64 %last, %total
  %run = and i1 %ordered, %inside
  %to = select i1 %run, i64 %last, i64 0
  %from = select i1 %run, i64 %given, i64 0
"""


SHARED = ("rows", "parts")  # words by which rows are shared out
UNITS = """  br label %units
units:
  %u = phi i64 [ %begin, %entry ], [ %u.next, %unit.end ]
  %u.more = icmp ult i64 %u, %end
  br i1 %u.more, label %unit, label %exit
unit:
  %u.next = add i64 %u, 1
  %first = call i64 @share(ptr %starts, i64 %rows, i64 %parts, i64 %u)
  %stop.found = call i64 @share(ptr %starts, i64 %rows, i64 %parts, i64 %u.next)
  %stop.known = icmp uge i64 %stop.found, %first
  br i1 %stop.known, label %shared, label %unshared
unshared:
  store atomic i64 1, ptr %fault monotonic, align 8
  br label %shared
shared:
  %stop = select i1 %stop.known, i64 %stop.found, i64 %first
"""


def shares(index: np.dtype) -> str:
    """@share(starts, rows, units, u): the first row of unit `u`, or where the last unit ends.

    Units have as many entries as can be. Where rows do not begin in order, units may end before they begin.
    """
    return f"""define internal i64 @share(ptr %starts, i64 %rows, i64 %units, i64 %u) nounwind {{
entry:
  %none = icmp eq i64 %u, 0
  %last = icmp uge i64 %u, %units
  %edge = or i1 %none, %last
  %whole = select i1 %none, i64 0, i64 %rows
  br i1 %edge, label %at, label %look
at:
  ret i64 %whole
look:
{index_at("%from", "%starts", "0", index)}{index_at("%to", "%starts", "%rows", index)}\
{unit_begins("%rows", "look", index_at("%there", "%starts", "%middle", index))}}}
"""


def entries_text(form: str, itemsize: int, index: np.dtype, triple: str) -> str:
    """Return the module that copies one element for every entry.

    Operands: elements, starts, columns, results, fault. Form "sampled": the element in the row and
    column of the entry, both axes as far apart as the words %down and %right say; "row": that of its row.
    """
    element = f"i{8 * itemsize}"
    copy = f"""  %e = load {element}, ptr %at, align {itemsize}
  %q = getelementptr {element}, ptr %out, i64 %k
  store {element} %e, ptr %q, align {itemsize}
"""
    place = "" if form == "row" else f"""{index_at("%column", "%columns", "%k", index)}\
  %known = icmp ult i64 %column, %width
  br i1 %known, label %found, label %lost
found:
  %across = mul i64 %column, %right
"""
    across = "0" if form == "row" else "%across"
    names = ("x", "starts", "columns", "out", "fault")
    found = "one" if form == "row" else "found"
    lost = "" if form == "row" else """lost:
  store atomic i64 1, ptr %fault monotonic, align 8
  br label %entries
"""
    more = "" if form == "row" else ", [ %k.next, %lost ]"
    return f"""target triple = "{triple}"
{shares(index)}{ENTRY}{block_head(names, ("width", "total", "down", "right", *SHARED))}\
{UNITS}  br label %each
each:
  %i = phi i64 [ %first, %shared ], [ %i.next, %entries ]
  %more = icmp ult i64 %i, %stop
  br i1 %more, label %row, label %unit.end
row:
  %i.next = add i64 %i, 1
  %below = mul i64 %i, %down
  %line = getelementptr i8, ptr %x, i64 %below
{bounds_at(index)}  br i1 %run, label %entries, label %broken
broken:
  store atomic i64 1, ptr %fault monotonic, align 8
  br label %entries
entries:
  %k = phi i64 [ %from, %row ], [ %from, %broken ], [ %k.next, %{found} ]{more}
  %left = icmp ult i64 %k, %to
  br i1 %left, label %one, label %each
one:
  %k.next = add i64 %k, 1
{place}  %at = getelementptr i8, ptr %line, i64 {across}
{copy}  br label %entries
{lost}unit.end:
  br label %units
exit:
  ret void
}}
"""


OPERANDS = ("data", "columns", "starts", "x", "out", "fault")
MOST_BYTES = 256  # of rows of results that are held in registers
STAGE_WORDS = ("rows", "width", "total", "depth")
_REAL = {4: "float", 8: "double"}


@cache
def csr_text(form: str, dtype: np.dtype, index: np.dtype, target: Target, columns: int = 0) -> str:
    """Return the module of one product; `columns` is `depth`, or 0 for any.

    "dot": the rows times a vector; "dots": times a matrix of `depth` columns; "sum" and "sums": the
    rows, each times its element, or its row, of x, added up in what the results hold.
    """
    w = Lanes(_REAL[dtype.itemsize], dtype.itemsize, target.lanes(dtype.itemsize))
    vectors = {"dot": rows_by_vector, "sum": rows_summed}
    body = vectors[form](w, index) if form in vectors else \
        within(index, target.vector_bytes) + rows_by_matrix(form == "dots", w, index, columns)
    return f"""target triple = "{target.triple}"
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
{body}{_rows_entry_ir(form, w, index)}{_stage(form, w)}"""


def specialised_columns(columns: int, dtype: np.dtype) -> int:
    """Return the number of columns that code is specialised for: `columns`, or 0 for any number."""
    return columns if 1 < columns <= MOST_BYTES // dtype.itemsize else 0


def _rows_entry_ir(form: str, w: Lanes, index: np.dtype) -> str:
    """@k: a unit is a share of the rows; sums have results of their own for each, %apart bytes."""
    mine = f"""  %o.skip = mul i64 %u, %apart
  %out.u = getelementptr i8, ptr %out, i64 %o.skip
  call void @llvm.memset.p0.i64(ptr align {w.size} %out.u, i8 0, i64 %apart, i1 false)
  %x.skip = mul i64 %first, %depth
{element_at("%x.u", "%x", "%x.skip", w.real)}"""
    if form in ("dot", "dots"):
        mine = f"""  %o.skip = mul i64 %first, %depth
{element_at("%out.u", "%out", "%o.skip", w.real)}{element_at("%x.u", "%x", "0", w.real)}"""
    words = (*STAGE_WORDS[1:], "apart", "most", "all.rows", "parts")
    return f"""{shares(index)}define void @k(ptr %block, i64 %begin, i64 %end) nounwind {{
entry:
{block_head(OPERANDS, words)}  br label %units
units:
  %u = phi i64 [ %begin, %entry ], [ %u.next, %share ], [ %u.next, %bad ]
  %u.more = icmp ult i64 %u, %end
  br i1 %u.more, label %unit, label %exit
unit:
  %u.next = add i64 %u, 1
  %first = call i64 @share(ptr %starts, i64 %all.rows, i64 %parts, i64 %u)
  %stop = call i64 @share(ptr %starts, i64 %all.rows, i64 %parts, i64 %u.next)
  %shared = icmp uge i64 %stop, %first
  br i1 %shared, label %share, label %bad
share:
  %rows = sub i64 %stop, %first
{element_at("%starts.u", "%starts", "%first", f"i{bits_of(index)}")}{mine}{_called(".u")}\
  br i1 %fine, label %units, label %bad
bad:
  store atomic i64 1, ptr %fault monotonic, align 8
  br label %units
exit:
  ret void
}}
"""


def _called(tag: str) -> str:
    return (f"  %fine = call i1 @rows(ptr %starts{tag}, i64 %rows, ptr %data, ptr %columns, i64 %total, "
            f"i64 %most, ptr %x{tag}, ptr %out{tag}, i64 %depth)\n")


def _stage(form: str, w: Lanes) -> str:
    """@stage: one block of rows. If something is out of order, its results are no numbers."""
    count = "width" if form in ("sum", "sums") else "rows"
    return f"""define void @stage(ptr %block, i64 %begin, i64 %end) nounwind {{
entry:
{block_head(OPERANDS[:-1], (*STAGE_WORDS, "most"))}{_called("")}  br i1 %fine, label %exit, label %bad
bad:
  %lost = mul i64 %{count}, %depth
  %lost.bytes = mul i64 %lost, {w.size}
  call void @llvm.memset.p0.i64(ptr align {w.size} %out, i8 -1, i64 %lost.bytes, i1 false)
  br label %exit
exit:
  ret void
}}
"""


_WORDS = ("width", "total", "depth", "rows", "parts")


@cache
def ranges_text(several: bool, dtype: np.dtype, index: np.dtype, target: Target, columns: int = 0) -> str:
    """Return the module of the rows, each times its element of x, or its row if `several`, added up.

    `columns` is `depth`, or 0 for any.
    """
    w = Lanes(_REAL[dtype.itemsize], dtype.itemsize, target.lanes(dtype.itemsize))
    rows = rows_by_matrix(False, w, index, columns, _by_ranges) if several else \
        rows_summed(w, index, _by_ranges)
    return f"""target triple = "{target.triple}"
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
{_among(index, target.vector_bytes)}{_place(index)}{rows}{_ranges_entry_ir(w)}"""


def _among(index: np.dtype, vector_bytes: int) -> str:
    """@among(index, from, to, low, span): are all of these indices at `low`, or less than `span` beyond?"""
    lanes, kind = vector_bytes // index.itemsize, f"i{bits_of(index)}"
    vector, mask = f"<{lanes} x {kind}>", f"<{lanes} x i1>"
    narrow = "add i64 {}, 0" if kind == "i64" else f"trunc i64 {{}} to {kind}"
    loop = counted_loop_ir(
        ("%from", "%to"), ("entry", "done"), lanes,
        f"""  %p = getelementptr {kind}, ptr %index, i64 %i
  %x = load {vector}, ptr %p, align {index.itemsize}
  %x.own = sub {vector} %x, %lows
  %x.off = icmp uge {vector} %x.own, %spans
  %wrong.next = or {mask} %wrong, %x.off
""",
        f"""  %q = getelementptr {kind}, ptr %index, i64 %j
  %y = load {kind}, ptr %q, align {index.itemsize}
  %y.own = sub {kind} %y, %low.k
  %y.off = icmp uge {kind} %y.own, %span.k
  %bad.next = or i1 %bad, %y.off
""",
        [Carried("wrong", mask, "zeroinitializer")],
        f"  %first = call i1 @llvm.vector.reduce.or.v{lanes}i1({mask} %wrong)\n",
        [Carried("bad", "i1", "%first")])
    return f"""declare i1 @llvm.vector.reduce.or.v{lanes}i1({mask})
define internal i1 @among(ptr %index, i64 %from, i64 %to, i64 %low, i64 %span) nounwind {{
entry:
  %low.k = {narrow.format("%low")}
  %span.k = {narrow.format("%span")}
{in_lanes("%lows", "%low.k", kind, lanes)}{in_lanes("%spans", "%span.k", kind, lanes)}{loop}done:
  %ok = xor i1 %bad, true
  ret i1 %ok
}}
"""


def _place(index: np.dtype) -> str:
    """@place(columns, from, to, least): the first entry whose column is no less, where they are in order."""
    return f"""define internal i64 @place(ptr %columns, i64 %from, i64 %to, i64 %least) nounwind {{
entry:
{halved("entry", "%from", "%to", "%least", index_at("%there", "%columns", "%middle", index))}}}
"""


def _by_ranges(index: np.dtype, body: str) -> str:
    """@rows: `body` for every row %i, with its entries %from up to %to of columns from %low up to %high.

    What two units look for in a row they find at one place: an entry that no range takes is some unit's
    that it does not belong to.
    """
    return f"""define internal i1 @rows(ptr %starts, i64 %rows, ptr %data, ptr %columns, i64 %total, ptr %x,
                           ptr %out, i64 %depth, i64 %low, i64 %high, i64 %width) nounwind {{
entry:
  %lowest = icmp eq i64 %low, 0
  %highest = icmp eq i64 %high, %width
  %span = sub i64 %high, %low
{row_start("begin", "0", index)}  br label %each
each:
  %i = phi i64 [ 0, %entry ], [ %i.next, %next ]
  %row.from = phi i64 [ %begin, %entry ], [ %row.to, %next ]
  %more = icmp ult i64 %i, %rows
  br i1 %more, label %row, label %done
row:
  %i.next = add i64 %i, 1
{row_start("row.to", "%i.next", index)}  %up = icmp ule i64 %row.from, %row.to
  %near = icmp ule i64 %row.to, %total
  %right = and i1 %up, %near
  br i1 %right, label %bounded, label %lost
bounded:
  %low.until = select i1 %lowest, i64 %row.from, i64 %row.to
  %high.since = select i1 %highest, i64 %row.to, i64 %row.from
  %from = call i64 @place(ptr %columns, i64 %row.from, i64 %low.until, i64 %low)
  %to = call i64 @place(ptr %columns, i64 %high.since, i64 %row.to, i64 %high)
  %ordered = icmp ule i64 %from, %to
  br i1 %ordered, label %look, label %lost
look:
  %fine = call i1 @among(ptr %columns, i64 %from, i64 %to, i64 %low, i64 %span)
  br i1 %fine, label %known, label %lost
known:
{body}next:
  br label %each
done:
  ret i1 true
lost:
  ret i1 false
}}
"""


def _ranges_entry_ir(w: Lanes) -> str:
    """@k: a unit is a range of columns."""
    return f"""define void @k(ptr %block, i64 %begin, i64 %end) nounwind {{
entry:
{block_head(OPERANDS, _WORDS)}  br label %units
units:
  %u = phi i64 [ %begin, %entry ], [ %u.next, %unit ], [ %u.next, %bad ]
  %u.more = icmp ult i64 %u, %end
  br i1 %u.more, label %unit, label %exit
unit:
  %u.next = add i64 %u, 1
  %low.all = mul i64 %u, %width
  %low = udiv i64 %low.all, %parts
  %high.all = mul i64 %u.next, %width
  %high = udiv i64 %high.all, %parts
  %skip = mul i64 %low, %depth
{element_at("%out.u", "%out", "%skip", w.real)}  %span = sub i64 %high, %low
  %cells = mul i64 %span, %depth
  %bytes = mul i64 %cells, {w.size}
  call void @llvm.memset.p0.i64(ptr align {w.size} %out.u, i8 0, i64 %bytes, i1 false)
  %fine = call i1 @rows(ptr %starts, i64 %rows, ptr %data, ptr %columns, i64 %total, ptr %x, ptr %out,
                        i64 %depth, i64 %low, i64 %high, i64 %width)
  br i1 %fine, label %units, label %bad
bad:
  store atomic i64 1, ptr %fault monotonic, align 8
  br label %units
exit:
  ret void
}}
"""


_ABREAST, _LEAF = 8, 128  # running sums, and elements, of a leaf of NumPy's tree

_NAMES = ("data", "starts", "out", "fault")


def _first() -> str:
    """Return what NumPy's sums of less than eight elements begin with, which differs by its version."""
    minus = np.signbit(np.add.reduceat(np.full(3, -0.0), [0])[0])
    return "-0.0" if minus else "0.0"


def _folded(real: str, half: int, name: str) -> str:
    """Lines that add lanes of %r of `half` pairs to their neighbours; the results are `name`."""
    wide = f"<{2 * half} x {real}>"
    pick = [", ".join(f"i32 {2 * k + odd}" for k in range(half)) for odd in (0, 1)]
    lines = "".join(
        f"  {name}.{side} = shufflevector {wide} %r{2 * half}, {wide} poison, <{half} x i32> <{lanes}>\n"
        for side, lanes in zip("lr", pick, strict=True))
    return lines + f"  {name} = fadd <{half} x {real}> {name}.l, {name}.r\n"


def _pairwise(real: str, size: int) -> str:
    """@pairwise: the sum of `n` elements in NumPy's order."""
    wide = f"<{_ABREAST} x {real}>"
    folds = "".join(_folded(real, half, f"%r{half}") for half in (4, 2, 1))
    return f"""define internal {real} @pairwise(ptr %a, i64 %n) nounwind {{
entry:
  %short = icmp ult i64 %n, {_ABREAST}
  br i1 %short, label %few, label %some
some:
  %leaf = icmp ule i64 %n, {_LEAF}
  br i1 %leaf, label %many, label %tree
many:
  %begun = load {wide}, ptr %a, align {size}
  br label %turns
turns:
  %i = phi i64 [ {_ABREAST}, %many ], [ %i.next, %turn ]
  %r{_ABREAST} = phi {wide} [ %begun, %many ], [ %r.next, %turn ]
  %i.next = add i64 %i, {_ABREAST}
  %more = icmp ule i64 %i.next, %n
  br i1 %more, label %turn, label %fold
turn:
  %p = getelementptr {real}, ptr %a, i64 %i
  %v = load {wide}, ptr %p, align {size}
  %r.next = fadd {wide} %r{_ABREAST}, %v
  br label %turns
fold:
{folds}  %total = extractelement <1 x {real}> %r1, i64 0
  br label %few
few:
  %from = phi i64 [ 0, %entry ], [ %i, %fold ]
  %begin = phi {real} [ {_first()}, %entry ], [ %total, %fold ]
  br label %rest
rest:
  %j = phi i64 [ %from, %few ], [ %j.next, %one ]
  %t = phi {real} [ %begin, %few ], [ %t.next, %one ]
  %left = icmp ult i64 %j, %n
  br i1 %left, label %one, label %done
one:
  %q = getelementptr {real}, ptr %a, i64 %j
  %x = load {real}, ptr %q, align {size}
  %t.next = fadd {real} %t, %x
  %j.next = add i64 %j, 1
  br label %rest
done:
  ret {real} %t
tree:
  %half = lshr i64 %n, 1
  %whole = and i64 %half, {-_ABREAST}
  %other = sub i64 %n, %whole
  %b = getelementptr {real}, ptr %a, i64 %whole
  %low = call {real} @pairwise(ptr %a, i64 %whole)
  %high = call {real} @pairwise(ptr %b, i64 %other)
  %both = fadd {real} %low, %high
  ret {real} %both
}}
"""


def row_sums_text(dtype: np.dtype, index: np.dtype, triple: str) -> str:
    """Return the module that adds up the entries of every row; the sum of none is 0.

    Operands: entries, where rows begin, results, fault; words: `total` entries, and how rows are shared.
    """
    real, size = _REAL[dtype.itemsize], dtype.itemsize
    return f"""target triple = "{triple}"
{shares(index)}{_pairwise(real, size)}{ENTRY}{block_head(_NAMES, ("total", *SHARED))}\
{UNITS}  br label %each
each:
  %i = phi i64 [ %first, %shared ], [ %i.next, %summed ]
  %more = icmp ult i64 %i, %stop
  br i1 %more, label %row, label %unit.end
row:
  %i.next = add i64 %i, 1
{bounds_at(index)}  br i1 %run, label %known, label %broken
broken:
  store atomic i64 1, ptr %fault monotonic, align 8
  br label %known
known:
  %n = sub i64 %to, %from
  %some = icmp ne i64 %n, 0
  br i1 %some, label %begun, label %summed
begun:
  %p = getelementptr {real}, ptr %data, i64 %from
  %x = load {real}, ptr %p, align {size}
  %several = icmp ugt i64 %n, 1
  br i1 %several, label %others, label %summed
others:
  %m = sub i64 %n, 1
  %q = getelementptr {real}, ptr %p, i64 1
  %sum = call {real} @pairwise(ptr %q, i64 %m)
  %added = fadd {real} %x, %sum
  br label %summed
summed:
  %result = phi {real} [ 0.0, %known ], [ %x, %begun ], [ %added, %others ]
  %o = getelementptr {real}, ptr %out, i64 %i
  store {real} %result, ptr %o, align {size}
  br label %each
unit.end:
  br label %units
exit:
  ret void
}}
"""
