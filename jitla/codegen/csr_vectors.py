"""Products of compressed rows with vectors, as IR: row by vector, and rows summed with weights.

Knows: vectors of elements. Must not know: how rows are shared out.
Receives lanes and the kind of indices; returns the function @rows.

Elements that columns name are loaded one by one: no processor gathers them faster.
"""

from __future__ import annotations

import numpy as np

from jitla.codegen.csr_entries import (
    AT_ONCE,
    Around,
    by_rows,
    column_of,
    element_at,
    fetched,
    in_all_lanes,
    loaded,
    run,
)
from jitla.codegen.lanes import Lanes

__all__ = ["rows_by_vector", "rows_summed"]

_FETCHED = fetched("%da.p", "%c.pa0")  # behind the first entry of a turn


def rows_by_vector(w: Lanes, index: np.dtype) -> str:
    """@rows: an element for every row; the order of its sum depends on how many entries there are only."""
    four = Lanes(w.real, w.size, AT_ONCE // 2)
    turn = _dot(four, w, index, "a", "0", "%s") + _dot(four, w, index, "b", str(AT_ONCE // 2), "%u")
    turn += _FETCHED
    one = (column_of("", "%j", index) + loaded("%e", "%x", "%c", w.real, w.size)
           + loaded("%f", "%data", "%j", w.real, w.size)
           + f"  %t.next = call {w.real} @llvm.fmuladd.{_code(w)}({w.real} %f, {w.real} %e, {w.real} %t)\n")
    held = (f"  %s = phi {four.vector} [ zeroinitializer, %ready ], [ %s.next, %turn ]\n"
            f"  %u = phi {four.vector} [ zeroinitializer, %ready ], [ %u.next, %turn ]\n",
            f"  %all = phi {four.vector} [ %both, %joined ], [ %both.next, %half ]\n",
            f"  %t = phi {w.real} [ %sum, %folded ], [ %t.next, %one ]\n")
    body = run(turn, _dot(four, w, index, "h", "0", "%both"), one, held,
               f"  %both = fadd {four.vector} %s, %u\n", four.fold("%sum", "%all"))
    body += element_at("%o", "%out", "%i", w.real) + (
        f"  store {w.real} %t, ptr %o, align {w.size}\n  br label %next\n")
    return (f"declare {four.vector} @llvm.fmuladd.{four.code}({four.vector}, {four.vector}, {four.vector})\n"
            f"declare {w.real} @llvm.fmuladd.{_code(w)}({w.real}, {w.real}, {w.real})\n"
            + by_rows(index, body))


def _dot(four: Lanes, w: Lanes, index: np.dtype, tag: str, skip: str, held: str) -> str:
    """Lines that add products of some entries, from number `skip` after %k on, to the lanes of `held`."""
    text = f"  %k{tag} = add i64 %k, {skip}\n" + loaded(f"%d{tag}", "%data", f"%k{tag}", four.vector, w.size)
    for n in range(four.width):
        before = "poison" if n == 0 else f"%x{tag}{n - 1}"
        text += (_entry(f"{tag}{n}", f"%k{tag}", n, index)
                 + loaded(f"%e{tag}{n}", "%x", f"%c{tag}{n}", w.real, w.size)
                 + f"  %x{tag}{n} = insertelement {four.vector} {before}, {w.real} %e{tag}{n}, i64 {n}\n")
    return text + four.fma(f"{held}.next", f"%d{tag}", f"%x{tag}{four.width - 1}", held)


def rows_summed(w: Lanes, index: np.dtype, around: Around = by_rows) -> str:
    """@rows: every row times its element of x is added to out."""
    four = Lanes(w.real, w.size, AT_ONCE // 2)
    turn = _spread(four, w, index, "a", "0") + _spread(four, w, index, "b", str(AT_ONCE // 2))
    turn += _FETCHED
    one = (column_of("", "%j", index) + loaded("%f", "%data", "%j", w.real, w.size)
           + f"  %q = fmul {w.real} %f, %xe\n" + _adds("", "%c", "%q", w))
    before = loaded("%xe", "%x", "%i", w.real, w.size) + in_all_lanes("%xv", "%xe", w.real, four.width)
    half = _spread(four, w, index, "h", "0")
    return around(index, before + run(turn, half, one) + "  br label %next\n")


def _spread(four: Lanes, w: Lanes, index: np.dtype, tag: str, skip: str) -> str:
    """Lines that add some entries times %xv, from number `skip` after %k on, to elements of out, in order."""
    text = f"  %k{tag} = add i64 %k, {skip}\n" + loaded(f"%d{tag}", "%data", f"%k{tag}", four.vector, w.size)
    text += f"  %p{tag} = fmul {four.vector} %d{tag}, %xv\n"
    for n in range(four.width):
        text += (_entry(f"{tag}{n}", f"%k{tag}", n, index)
                 + f"  %p{tag}{n} = extractelement {four.vector} %p{tag}, i64 {n}\n"
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
