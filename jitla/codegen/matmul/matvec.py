"""Products of a block of rows with one vector, as IR: rows by vector, and rows summed with weights.

Operands: rows (every row contiguous), the vector, the result, to which "sum" adds. The order of every
sum depends on the length of the rows only, so results do not depend on how rows are cut.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from jitla.codegen.ir import Lanes
from jitla.codegen.matmul.argmin import extreme_text
from jitla.codegen.matmul.narrow import (
    skinny_dot,
    skinny_sum,
    upright_text,
)
from jitla.codegen.matmul.packing import (
    AHEAD,
    SHARE,
    SPAN,
    by_rows,
    fetch_ahead,
    next_block,
    next_rows,
    pack_text,
)
from jitla.codegen.target import Target
from jitla.fusion import COLUMNWISE_PREFIX

__all__ = ["product_text"]

AT_ONCE = 4  # short rows whose sums are kept in registers together
SHORT = 512  # bytes: longer rows are read one after the other, as processors foresee it
BATCH = 8  # rows added up before results are stored
CHAINS = 4  # running sums at once: each waits for its last addition


@cache
def product_text(form: str, dtype: np.dtype, columns: int, target: Target) -> str:
    """Return the module of the product `form` of `dtype` with `columns` vectors.

    "dot": results per row; "sum": rows added to the results; "across", "down": the same, added to results
    and instead of them, for columns of a block of rows; "pack": a copy, row after row; "scan": the running
    sums of every row, which has no vector; "argmin", "argmax": an index per row, likewise. What follows
    `COLUMNWISE_PREFIX` is done where narrow rows lie column by column.
    """
    if form.startswith(COLUMNWISE_PREFIX):
        return upright_text(form.removeprefix(COLUMNWISE_PREFIX), dtype, columns, target)
    if form in ("argmin", "argmax"):
        return extreme_text(form, dtype, target)
    real = {"d": "double", "f": "float"}[dtype.char]
    w = Lanes(real, dtype.itemsize, target.lanes(dtype.itemsize))
    if form == "pack":
        text = pack_text(w)
    elif form == "scan":
        text = "".join(_scan_rows(w, count) for count in (CHAINS, 1)) + by_rows(w, [("scan", (CHAINS, 1), 0)])
    elif columns > 1:
        passes, text = (skinny_dot if form == "dot" else skinny_sum)(w, columns)
        text += by_rows(w, passes, elements=form == "sum")
    elif form in ("dot", "across"):
        text = "".join(_dot_rows(w, count, form == "across") for count in (AT_ONCE, 1))
        text += by_rows(w, [("dot", (AT_ONCE, 1), 0)], SHORT if form == "dot" else 0)
    else:
        text = "".join(_sum_rows(w, count, form == "down") for count in (BATCH, 1))
        text += by_rows(w, [("sum", (BATCH, 1), 0)], emptied=form == "down")
    return f'target triple = "{target.triple}"\n' + text + w.declared()


def _dot_rows(w: Lanes, count: int, adds: bool) -> str:
    """@dot: `count` results, which it adds or writes; a row has two accumulators, the tail goes to the first.

    What comes next is fetched in one run, not in as many as there are rows at once: processors look
    no further than a page, and only along few runs.
    """
    v, r, z = w.vector, w.real, "zeroinitializer"
    rows, pair = range(count), 2 * w.width
    starts = "".join(
        f"  %at{k} = add i64 %i, {k}\n  %skip{k} = mul i64 %at{k}, %step\n"
        f"  %x{k} = getelementptr i8, ptr %x, i64 %skip{k}\n" for k in rows)
    phis = "".join(
        f"  %a{k} = phi {v} [ {z}, %entry ], [ %a{k}.n, %body ]\n"
        f"  %b{k} = phi {v} [ {z}, %entry ], [ %b{k}.n, %body ]\n" for k in rows)
    step = "".join(
        f"  %p{k} = getelementptr {r}, ptr %x{k}, i64 %j\n"
        f"  %q{k} = getelementptr {r}, ptr %x{k}, i64 %j2\n"
        + ("" if adds else f"  %ahead{k} = getelementptr i8, ptr %next, i64 {k * pair * w.size}\n"
           f"  call void @llvm.prefetch.p0(ptr %ahead{k}, i32 0, i32 3, i32 1)\n") +
        f"  %e{k} = load {v}, ptr %p{k}, align {w.size}\n"
        f"  %f{k} = load {v}, ptr %q{k}, align {w.size}\n"
        + w.fma(f"%a{k}.n", f"%e{k}", "%v0", f"%a{k}") + w.fma(f"%b{k}.n", f"%f{k}", "%v1", f"%b{k}")
        for k in rows)
    odd_phis, odd = _dot_odd(w, count)
    last = _dot_ends(w, count, adds)
    return f"""define internal void @dot{count}({SPAN}) nounwind {{
entry:
{starts}  %rest = and i64 %n, {w.width - 1}
  %whole = sub i64 %n, %rest
  %odd = icmp ne i64 %rest, 0
  %pairs = and i64 %n, -{pair}
  %all = mul i64 %step, {count if count > 1 else 0}
  %further = add i64 %all, {AHEAD}
  %soon = getelementptr i8, ptr %x0, i64 %further
{w.tail_mask()}  br label %loop
loop:
  %j = phi i64 [ 0, %entry ], [ %j.n, %body ]
{phis}  %more = icmp ult i64 %j, %pairs
  br i1 %more, label %body, label %odd.loop
body:
  %j2 = add i64 %j, {w.width}
  %pv0 = getelementptr {r}, ptr %v, i64 %j
  %pv1 = getelementptr {r}, ptr %v, i64 %j2
  %v0 = load {v}, ptr %pv0, align {w.size}
  %v1 = load {v}, ptr %pv1, align {w.size}
  %passed = mul i64 %j, {count * w.size}
  %next = getelementptr i8, ptr %soon, i64 %passed
{next_block(w, 1, count) if adds else ""}{step}  %j.n = add i64 %j, {pair}
  br label %loop
odd.loop:
  %l = phi i64 [ %pairs, %loop ], [ %l.n, %single ]
{odd_phis}  %last = icmp ult i64 %l, %whole
  br i1 %last, label %single, label %check
single:
  %pv2 = getelementptr {r}, ptr %v, i64 %l
  %v2 = load {v}, ptr %pv2, align {w.size}
{odd}  %l.n = add i64 %l, {w.width}
  br label %odd.loop
{last}  ret void
}}
"""


def _dot_odd(w: Lanes, count: int) -> tuple[str, str]:
    """Sums when one vector of every row is left, and the lines that add it."""
    v, rows = w.vector, range(count)
    odd_phis = "".join(
        f"  %c{k} = phi {v} [ %a{k}, %loop ], [ %c{k}.n, %single ]\n" for k in rows)
    return odd_phis, "".join(
        f"  %s{k} = getelementptr {w.real}, ptr %x{k}, i64 %l\n"
        f"  %g{k} = load {v}, ptr %s{k}, align {w.size}\n"
        + w.fma(f"%c{k}.n", f"%g{k}", "%v2", f"%c{k}") for k in rows)


def _dot_ends(w: Lanes, count: int, adds: bool) -> str:
    """Lines that add the tails of rows under a mask, fold the lanes and store, or add to what is there."""
    v, r, rows = w.vector, w.real, range(count)
    tail = "".join(
        f"  %t{k} = getelementptr {r}, ptr %x{k}, i64 %whole\n" + w.masked(f"%h{k}", f"%t{k}")
        + w.fma(f"%d{k}.t", f"%h{k}", "%v3", f"%c{k}") for k in rows)
    ends = "".join(
        f"  %d{k} = phi {v} [ %c{k}, %check ], [ %d{k}.t, %tail ]\n" for k in rows)
    folds = "".join(
        f"  %sum{k}.v = fadd {v} %d{k}, %b{k}\n" + w.fold(f"%sum{k}", f"%sum{k}.v")
        + f"  %o{k} = getelementptr {r}, ptr %out, i64 %at{k}\n"
        + (f"  %so.far{k} = load {r}, ptr %o{k}, align {w.size}\n"
           f"  %with{k} = fadd {r} %so.far{k}, %sum{k}\n" if adds else "")
        + f"  store {r} {f'%with{k}' if adds else f'%sum{k}'}, ptr %o{k}, align {w.size}\n" for k in rows)
    return f"""check:
  br i1 %odd, label %tail, label %end
tail:
  %pv3 = getelementptr {r}, ptr %v, i64 %whole
{w.masked("%v3", "%pv3")}{tail}  br label %end
end:
{ends}{folds}"""


def _sum_rows(w: Lanes, count: int, columns: bool) -> str:
    """@sum: add `count` weighted rows to the results; they may be `columns`, which go on behind a block."""
    v, r, rows = w.vector, w.real, range(count)
    starts = "".join(
        f"  %row{k} = add i64 %i, {k}\n  %skip{k} = mul i64 %row{k}, %step\n"
        f"  %x{k} = getelementptr i8, ptr %x, i64 %skip{k}\n"
        f"  %w{k}.p = getelementptr {r}, ptr %v, i64 %row{k}\n"
        f"  %w{k}.s = load {r}, ptr %w{k}.p, align {w.size}\n"
        f"  %w{k}.0 = insertelement {v} poison, {r} %w{k}.s, i64 0\n"
        f"  %w{k} = shufflevector {v} %w{k}.0, {v} poison, <{w.width} x i32> zeroinitializer\n"
        for k in rows)

    def chain(tag: str, at: str, masked: bool) -> str:
        """Lines from the results so far to %end of `tag`."""
        text, last = f"  %o{tag} = getelementptr {r}, ptr %out, i64 {at}\n", f"%s{tag}"
        if masked:
            text += w.masked(last, f"%o{tag}")
        else:
            text += f"  {last} = load {v}, ptr %o{tag}, align {w.size}\n"
        for k in rows:
            text += f"  %p{tag}{k} = getelementptr {r}, ptr %x{k}, i64 {at}\n"
            if masked:
                text += w.masked(f"%e{tag}{k}", f"%p{tag}{k}")
            else:
                text += f"  %e{tag}{k} = load {v}, ptr %p{tag}{k}, align {w.size}\n"
            text += w.fma(f"%a{tag}{k}", f"%e{tag}{k}", f"%w{k}", last)
            last = f"%a{tag}{k}"
        if masked:
            return text + (f"  call void @llvm.masked.store.{w.code}.p0({v} {last}, ptr align {w.size} "
                           f"%o{tag}, {w.mask} %mask)\n")
        return text + f"  store {v} {last}, ptr %o{tag}, align {w.size}\n"

    ahead = "" if count == 1 else fetch_ahead(count * w.size // SHARE, w.width)
    fetch = next_block(w, 0, count) if columns else ahead
    return f"""define internal void @sum{count}({SPAN}) nounwind {{
entry:
{starts}  %rest = and i64 %n, {w.width - 1}
  %whole = sub i64 %n, %rest
  %odd = icmp ne i64 %rest, 0
{next_rows(SHARE)}{w.tail_mask()}  br label %loop
loop:
  %j = phi i64 [ 0, %entry ], [ %j.n, %body ]
  %more = icmp ult i64 %j, %whole
  br i1 %more, label %body, label %check
body:
{fetch}{chain("", "%j", False)}  %j.n = add i64 %j, {w.width}
  br label %loop
check:
  br i1 %odd, label %tail, label %end
tail:
{chain("t", "%whole", True)}  br label %end
end:
  ret void
}}
"""


def _scan_rows(w: Lanes, count: int) -> str:
    """@scan: `count` rows of running sums, which begin with the zero that changes nothing.

    Sums wait for each other, so that few loads are under way; the lines of the next rows are fetched.
    """
    r, rows, unroll = w.real, range(count), 64 // w.size
    starts = "".join(
        f"  %at{k} = add i64 %i, {k}\n  %skip{k} = mul i64 %at{k}, %step\n"
        f"  %x{k} = getelementptr i8, ptr %x, i64 %skip{k}\n"
        f"  %before{k} = mul i64 %at{k}, %n\n"
        f"  %o{k} = getelementptr {r}, ptr %out, i64 %before{k}\n" for k in rows)
    fetch = "".join(
        f"  %{p}f{k} = getelementptr {r}, ptr %{p}{k}, i64 %j\n"
        f"  %{p}g{k} = getelementptr i8, ptr %{p}f{k}, i64 %far.{p}\n"
        f"  call void @llvm.prefetch.p0(ptr %{p}g{k}, i32 {int(p == 'o')}, i32 3, i32 1)\n"
        for k in rows for p in "xo")
    heads = [f"  %a{k} = phi {r} [ -0.0, %entry ], [ %a{k}.{unroll}, %line ]\n" for k in rows]
    ends = [f"  %b{k} = phi {r} [ %a{k}, %loop ], [ %b{k}.1, %body ]\n" for k in rows]
    line = "".join(_scan_step(w, "a", k, u, "%j") for u in range(unroll) for k in rows)
    body = "".join(_scan_step(w, "b", k, 0, "%l") for k in rows)
    return f"""define internal void @scan{count}({SPAN}) nounwind {{
entry:
{starts}  %far.x = mul i64 %step, {count}
  %far.o = mul i64 %n, {count * w.size}
  br label %loop
loop:
  %j = phi i64 [ 0, %entry ], [ %j.n, %line ]
{"".join(heads)}  %j.n = add i64 %j, {unroll}
  %whole = icmp ule i64 %j.n, %n
  br i1 %whole, label %line, label %rest
line:
{fetch}{line}  br label %loop
rest:
  %l = phi i64 [ %j, %loop ], [ %l.n, %body ]
{"".join(ends)}  %more = icmp ult i64 %l, %n
  br i1 %more, label %body, label %end
body:
{body}  %l.n = add i64 %l, 1
  br label %rest
end:
  ret void
}}
"""


def _scan_step(w: Lanes, name: str, row: int, ahead: int, at: str) -> str:
    """Lines that add the element `ahead` of `at` to the running sum of a row, and store it."""
    r, sofar, e = w.real, f"%{name}{row}", f"{name}{row}.{ahead}"
    before = f"{sofar}.{ahead}" if ahead else sofar
    return (f"  %at.{e} = add i64 {at}, {ahead}\n"
            f"  %p.{e} = getelementptr {r}, ptr %x{row}, i64 %at.{e}\n"
            f"  %e.{e} = load {r}, ptr %p.{e}, align {w.size}\n"
            f"  {sofar}.{ahead + 1} = fadd {r} {before}, %e.{e}\n"
            f"  %q.{e} = getelementptr {r}, ptr %o{row}, i64 %at.{e}\n"
            f"  store {r} {sofar}.{ahead + 1}, ptr %q.{e}, align {w.size}\n")
