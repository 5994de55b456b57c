"""Products of compressed rows with vectors, as IR: row by vector, and rows summed with weights.

Knows: vectors of elements. Must not know: how rows are shared out.
Receives lanes and the kind of indices; returns the function @rows.

Elements that columns name are loaded one by one: no processor gathers them faster.
"""

from __future__ import annotations

import numpy as np

from jitla.codegen.csr_entries import (
    AT_ONCE,
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


def rows_by_vector(w: Lanes, index: np.dtype) -> str:
    """@rows: an element for every row; the order of its sum depends on how many entries there are only."""
    four = Lanes(w.real, w.size, AT_ONCE)
    turn = loaded("%d", "%data", "%k", four.vector, w.size)
    for n in range(AT_ONCE):
        before = "poison" if n == 0 else f"%x{n - 1}"
        turn += (_entry(n, index) + loaded(f"%e{n}", "%x", f"%c{n}", w.real, w.size)
                 + f"  %x{n} = insertelement {four.vector} {before}, {w.real} %e{n}, i64 {n}\n")
    turn += fetched("0") + four.fma("%s.next", "%d", f"%x{AT_ONCE - 1}", "%s")
    one = (column_of("", "%j", index) + loaded("%e", "%x", "%c", w.real, w.size)
           + loaded("%f", "%data", "%j", w.real, w.size)
           + f"  %t.next = call {w.real} @llvm.fmuladd.{_code(w)}({w.real} %f, {w.real} %e, {w.real} %t)\n")
    held = (f"  %s = phi {four.vector} [ zeroinitializer, %ready ], [ %s.next, %turn ]\n",
            f"  %t = phi {w.real} [ %sum, %joined ], [ %t.next, %one ]\n")
    body = run(turn, one, held, four.fold("%sum", "%s")) + element_at("%o", "%out", "%i", w.real) + (
        f"  store {w.real} %t, ptr %o, align {w.size}\n  br label %next\n")
    return (f"declare {four.vector} @llvm.fmuladd.{four.code}({four.vector}, {four.vector}, {four.vector})\n"
            f"declare {w.real} @llvm.fmuladd.{_code(w)}({w.real}, {w.real}, {w.real})\n"
            + by_rows(index, body))


def rows_summed(w: Lanes, index: np.dtype) -> str:
    """@rows: every row times its element of x is added to out."""
    four = Lanes(w.real, w.size, AT_ONCE)
    turn = loaded("%d", "%data", "%k", four.vector, w.size) + f"  %p = fmul {four.vector} %d, %xv\n"
    for n in range(AT_ONCE):
        turn += (_entry(n, index) + f"  %p{n} = extractelement {four.vector} %p, i64 {n}\n"
                 + _adds(f"{n}", f"%c{n}", f"%p{n}", w))
    turn += fetched("0")
    one = (column_of("", "%j", index) + loaded("%f", "%data", "%j", w.real, w.size)
           + f"  %q = fmul {w.real} %f, %xe\n" + _adds("", "%c", "%q", w))
    before = loaded("%xe", "%x", "%i", w.real, w.size) + in_all_lanes("%xv", "%xe", w.real, AT_ONCE)
    return by_rows(index, before + run(turn, one) + "  br label %next\n")


def _entry(n: int, index: np.dtype) -> str:
    """Lines of %c, the column of entry number `n` from %k on."""
    return f"  %k{n} = add i64 %k, {n}\n" + column_of(f"{n}", f"%k{n}", index)


def _code(w: Lanes) -> str:
    return "f64" if w.size == 8 else "f32"


def _adds(tag: str, at: str, x: str, w: Lanes) -> str:
    """Lines that add `x` to an element of out."""
    return (loaded(f"%o{tag}", "%out", at, w.real, w.size)
            + f"  %s{tag} = fadd {w.real} %o{tag}, {x}\n"
            f"  store {w.real} %s{tag}, ptr %o{tag}.p, align {w.size}\n")
