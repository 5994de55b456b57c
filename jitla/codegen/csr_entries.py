"""The entries of compressed rows, row by row, as IR: where rows begin and end, which columns are known.

Knows: kinds of elements and indices, vectors. Must not know: what is done with entries.
Receives dtypes and lines; returns lines and functions.

Where rows begin is looked at row by row; columns by vectors: some hundred before any of them is used, or
those of a turn, at its beginning.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from jitla.codegen.indexing_code import bits_of, smaller, to_word

__all__ = [
    "AT_ONCE", "Around", "BLOCK", "NEAR_AHEAD", "by_rows", "by_rows_only", "column_of", "element_at",
    "fetched", "in_all_lanes", "loaded", "looked_at", "row_start", "run"]

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
