"""Products of compressed rows with vectors, as IR: row by vector, and rows summed with weights.

Knows: vectors of elements. Must not know: how rows are shared out.
Receives lanes and the kind of indices; returns the function @rows.

Elements that columns name are loaded one by one: no processor gathers them faster.
"""

from __future__ import annotations

import numpy as np

from jitla.codegen.csr_entries import (
    AT_ONCE,
    NEAR_AHEAD,
    Around,
    by_rows_only,
    column_of,
    element_at,
    fetched,
    in_all_lanes,
    loaded,
    run,
)
from jitla.codegen.lanes import Lanes

__all__ = ["rows_by_vector", "rows_summed"]

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
