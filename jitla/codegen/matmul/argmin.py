"""Products of matrices whose rows are reduced at once, such as the nearest centre."""

from __future__ import annotations

from functools import cache

import numpy as np

from jitla.classes import dataclass
from jitla.codegen.ir import BOOL, Lanes, memory_type
from jitla.codegen.ir_elementwise import quiet
from jitla.codegen.matmul.packing import head
from jitla.codegen.target import Target

__all__ = ["Order", "extreme_text"]


INDEXED = 4  # bytes of an element that is as wide as an index into a stretch


@dataclass(frozen=True, slots=True)
class Order:
    """Elements of `dtype`: their type, and how the better of two is told."""

    dtype: np.dtype
    form: str
    width: int

    @property
    def element(self) -> str:
        """IR type of an element."""
        return memory_type(self.dtype)

    @property
    def vector(self) -> str:
        """IR type of a vector."""
        return self.lanes.vector

    @property
    def lanes(self) -> Lanes:
        """Names of types and of operations of floats."""
        return Lanes(self.element, self.dtype.itemsize, self.width)

    @property
    def floats(self) -> bool:
        """Whether elements may be NaN."""
        return self.dtype.kind == "f"

    @property
    def before(self) -> str:
        """Instruction that tells whether one element is better than another."""
        how = "lt" if self.form == "argmin" else "gt"
        return f"fcmp o{how}" if self.floats else f"icmp {'s' if self.dtype.kind == 'i' else 'u'}{how}"

    @property
    def equal(self) -> str:
        """Instruction that tells whether elements are the same."""
        return "fcmp oeq" if self.floats else "icmp eq"

    def better(self, name: str, x: str, y: str) -> str:
        """Lines of the better of two vectors; which one does not matter where there is NaN."""
        return (f"  {name}.b = {self.before} {self.vector} {x}, {y}\n"
                f"  {name} = select {self.lanes.mask} {name}.b, {self.vector} {x}, {self.vector} {y}\n")

    def load(self, name: str, at: str) -> str:
        """Lines that load a vector from element `at` of the row on."""
        return (f"  {name}.p = getelementptr {self.element}, ptr %row, i64 {at}\n"
                f"  {name} = load {self.vector}, ptr {name}.p, align {self.dtype.itemsize}\n")

    def nans(self, name: str, x: str, y: str, before: str) -> str:
        """Lines that add to a mask, an integer per lane, where one of two vectors has NaN."""
        mask = self.masks
        return (f"  {name}.b = fcmp uno {self.vector} {x}, {y}\n"
                f"  {name}.m = sext <{self.width} x i1> {name}.b to {mask}\n"
                f"  {name} = or {mask} {before}, {name}.m\n") if self.floats else ""

    @property
    def masks(self) -> str:
        """IR type of such a mask, and of indices into a stretch."""
        return f"<{self.width} x {self.index}>"

    @property
    def index(self) -> str:
        """IR type of an index into a stretch, as wide as an element."""
        return f"i{8 * self.dtype.itemsize}"

    @property
    def indexed(self) -> bool:
        """Whether lanes keep where they found their extreme."""
        return self.dtype.itemsize >= INDEXED

    def keep(self, name: str, x: str, at: str, y: str) -> str:
        """Lines of what lanes of a vector and its indices become, `y` and `{y}.i`, when they meet `x`."""
        v, mask = self.vector, self.lanes.mask
        return (f"  {name}.b = {self.before} {v} {x}, {y}\n"
                f"  {name} = select {mask} {name}.b, {v} {x}, {v} {y}\n"
                f"  {name}.i = select {mask} {name}.b, {self.masks} {at}, {self.masks} {y}.i\n")

    def first(self, name: str, x: str, i: str, y: str, j: str) -> str:
        """Lines of the better of two vectors with indices: of equal elements the one that comes first."""
        v, mask, masks = self.vector, self.lanes.mask, self.masks
        return (f"  {name}.l = {self.before} {v} {x}, {y}\n  {name}.e = {self.equal} {v} {x}, {y}\n"
                f"  {name}.s = icmp slt {masks} {i}, {j}\n"
                f"  {name}.es = and {mask} {name}.e, {name}.s\n"
                f"  {name}.b = or {mask} {name}.l, {name}.es\n"
                f"  {name} = select {mask} {name}.b, {v} {x}, {v} {y}\n"
                f"  {name}.i = select {mask} {name}.b, {masks} {i}, {masks} {j}\n")

    def places(self, name: str, at: str) -> str:
        """Lines of the indices into the stretch of a vector from element `at` of the row on."""
        lanes = ", ".join(f"{self.index} {i}" for i in range(self.width))
        begin = f"  {name}.far = sub i64 {at}, %c\n"
        narrow = f"  {name}.near = trunc i64 {name}.far to i32\n" if self.index == "i32" else \
            f"  {name}.near = add i64 {name}.far, 0\n"
        return begin + narrow + (
            f"  {name}.0 = insertelement {self.masks} poison, {self.index} {name}.near, i64 0\n"
            f"  {name}.v = shufflevector {self.masks} {name}.0, {self.masks} poison, "
            f"<{self.width} x i32> zeroinitializer\n  {name}.i = add {self.masks} {name}.v, <{lanes}>\n")


STRETCH = 512  # elements, a multiple of the lanes
KEPT = 1 << 14  # elements whose indices are kept in lanes, a multiple of these
GROUP = 64  # elements that are compared with the extreme at once: a bit each
MOST_LANES = 32


@cache
def extreme_text(form: str, dtype: np.dtype, target: Target) -> str:
    """Return the module of `form`, "argmin" or "argmax", of rows of `dtype`: an index for every one."""
    of = Order(dtype, form, min(target.lanes(dtype.itemsize), MOST_LANES))
    same = f"{of.equal} {of.vector} %same.e, %same.what"
    searched = _stretch(of) + _search(of, "same", "%at", same)
    ways = f"[ %at, %{'ordered' if of.floats else 'over'} ]" if of.indexed else "[ %same.index, %same.hit ]"
    if of.floats:
        ways += ", [ %nan.index, %nan.hit ]"
    text = f"""define void @k(ptr %block, i64 %begin, i64 %end) nounwind {{
entry:
{head()}  %few = icmp ult i64 %n, {of.width}
  %last = sub i64 %n, {of.width}
  %rest = add i64 %n, 0
{of.lanes.tail_mask() if of.floats else ""}  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i.next, %found ]
  %row = phi ptr [ %x, %entry ], [ %row.next, %found ]
  %more = icmp ult i64 %i, %rows
  br i1 %more, label %go, label %done
go:
  br i1 %few, label %few.first, label %stretch
{_few(of)}{_kept(of) if of.indexed else searched}{
    _search(of, "nan", "%c", f"fcmp uno {of.vector} %nan.e, %nan.e") if of.floats else ""}found:
  %index = phi i64 [ %few.at, %few.loop ], {ways}
  %to = getelementptr i64, ptr %out, i64 %i
  store i64 %index, ptr %to, align 8
  %i.next = add i64 %i, 1
  %row.next = getelementptr i8, ptr %row, i64 %step
  br label %next
done:
  ret void
}}
declare i64 @llvm.cttz.i64(i64, i1)
{of.lanes.declared() if of.floats else "declare i64 @llvm.umin.i64(i64, i64)"}
"""
    return f'target triple = "{target.triple}"\n' + quiet(text, target.features)


def _few(of: Order) -> str:
    """Lines for rows shorter than a vector: floats in one, filled up with the first element.

    One by one LLVM chooses between floats by branches that nobody can foresee; not between integers.
    """
    if not of.floats:
        return _one_by_one(of)
    v = of.vector
    return f"""few.first:
  %few.e0 = load {of.element}, ptr %row, align {of.dtype.itemsize}
  %few.fill.0 = insertelement {v} poison, {of.element} %few.e0, i64 0
  %few.fill = shufflevector {v} %few.fill.0, {v} poison, <{of.width} x i32> zeroinitializer
  %few.e = call {v} @llvm.masked.load.{of.lanes.code}.p0(ptr align {of.dtype.itemsize} %row, {
      of.lanes.mask} %mask, {v} %few.fill)
{_folded(of, "%few.e", "%few.h")}  %few.same = fcmp oeq {v} %few.e, %few.h
  %few.same.bits = bitcast {of.lanes.mask} %few.same to i{of.width}
  %few.nan = fcmp uno {v} %few.e, %few.e
  %few.nan.bits = bitcast {of.lanes.mask} %few.nan to i{of.width}
  %few.real = icmp eq i{of.width} %few.nan.bits, 0
  %few.bits = select i1 %few.real, i{of.width} %few.same.bits, i{of.width} %few.nan.bits
  %few.many = zext i{of.width} %few.bits to i64
  %few.at = call i64 @llvm.cttz.i64(i64 %few.many, i1 true)
  br label %few.loop
few.loop:
  br label %found
"""


def _one_by_one(of: Order) -> str:
    """Lines that look at one element after the other."""
    kind = of.element
    return f"""few.first:
  %few.e0 = load {kind}, ptr %row, align {of.dtype.itemsize}
  br label %few.loop
few.loop:
  %few.j = phi i64 [ 1, %few.first ], [ %few.j.next, %few.one ]
  %few.best = phi {kind} [ %few.e0, %few.first ], [ %few.best.next, %few.one ]
  %few.at = phi i64 [ 0, %few.first ], [ %few.at.next, %few.one ]
  %few.more = icmp ult i64 %few.j, %n
  br i1 %few.more, label %few.one, label %found
few.one:
  %few.p = getelementptr {kind}, ptr %row, i64 %few.j
  %few.e = load {kind}, ptr %few.p, align {of.dtype.itemsize}
  %few.less = {of.before} {kind} %few.e, %few.best
  %few.best.next = select i1 %few.less, {kind} %few.e, {kind} %few.best
  %few.at.next = select i1 %few.less, i64 %few.j, i64 %few.at
  %few.j.next = add i64 %few.j, 1
  br label %few.loop
"""


def _kept(of: Order) -> str:
    """Lines of the loop over stretches whose lanes keep where they found the best one."""
    w, masks = of.width, of.masks
    return f"""stretch:
  %c = phi i64 [ 0, %go ], [ %c.next, %again ]
  %sofar = phi {of.element} [ {"0.0" if of.floats else "0"}, %go ], [ %best, %again ]
  %begun = phi i64 [ 0, %go ], [ %at, %again ]
  %c.far = add i64 %c, {KEPT}
  %c.end = call i64 @llvm.umin.i64(i64 %c.far, i64 %n)
  %c.last = sub i64 %c.end, {w}
  %c.first = call i64 @llvm.umin.i64(i64 %c, i64 %last)
{of.load("%v0", "%c.first")}{of.places("%v0", "%c.first")}{
    of.nans("%u0", "%v0", "%v0", "zeroinitializer")}  %j0 = add i64 %c, {w}
  %i0 = add {masks} %v0.i, splat ({of.index} {w})
  %d0.i = sub {masks} %v0.i, splat ({of.index} {w})
  br label %pairs
{_kept_vectors(of)}over:
  %far.i = add {masks} %b.i, splat ({of.index} {w})
{of.first("%both", "%s", "%s.i", "%b", "%far.i")}{_first_lane(of)}{_any_nan(of)
    }  %h = extractelement {of.vector} %all, i64 0
  %hi = extractelement {masks} %all.i, i64 0
  %hi.far = {"sext i32 %hi to i64" if of.index == "i32" else "add i64 %hi, 0"}
  %here = add i64 %c, %hi.far
  %begins = icmp eq i64 %c, 0
  %less = {of.before} {of.element} %h, %sofar
  %take = or i1 %begins, %less
  %best = select i1 %take, {of.element} %h, {of.element} %sofar
  %at = select i1 %take, i64 %here, i64 %begun
  %c.next = add i64 %c, {KEPT}
  %further = icmp ult i64 %c.next, %n
  br i1 %further, label %again, label %found
again:
  br label %stretch
"""


def _kept_vectors(of: Order) -> str:
    """Lines of the loops over a stretch's vectors: pairs that share their indices, then single ones."""
    w, v, masks = of.width, of.vector, of.masks

    def pair(x: str, begin: str, at: str, before: str = "stretch", turn: str = "pair") -> str:
        return (f"  %{x} = phi {v} [ {begin}, %{before} ], [ %{x}.next, %{turn} ]\n"
                f"  %{x}.i = phi {masks} [ {at}, %{before} ], [ %{x}.next.i, %{turn} ]\n")

    def mask(x: str, begin: str, before: str = "stretch", turn: str = "pair") -> str:
        return f"  %{x} = phi {masks} [ {begin}, %{before} ], [ %{x}.next, %{turn} ]\n" if of.floats else ""

    return f"""pairs:
  %j = phi i64 [ %j0, %stretch ], [ %j.next, %pair ]
  %e0.i = phi {masks} [ %i0, %stretch ], [ %e0.next, %pair ]
{pair("a", "%v0", "%v0.i")}{pair("b", "%v0", "%d0.i")}{mask("u", "%u0")}  %j.next = add i64 %j, {2 * w}
  %two = icmp ule i64 %j.next, %c.end
  br i1 %two, label %pair, label %singles
pair:
  %j1 = add i64 %j, {w}
  %e0.next = add {masks} %e0.i, splat ({of.index} {2 * w})
{of.load("%e0", "%j")}{of.load("%e1", "%j1")}{of.keep("%a.next", "%e0", "%e0.i", "%a")}{
    of.keep("%b.next", "%e1", "%e0.i", "%b")}{of.nans("%u.next", "%e0", "%e1", "%u")}  br label %pairs
singles:
  %l = phi i64 [ %j, %pairs ], [ %l.next, %single ]
{pair("s", "%a", "%a.i", "pairs", "single")}{mask("t", "%u", "pairs", "single")
    }  %one = icmp ult i64 %l, %c.end
  br i1 %one, label %single, label %over
single:
  %l.at = call i64 @llvm.umin.i64(i64 %l, i64 %c.last)
{of.load("%e2", "%l.at")}{of.places("%e2", "%l.at")}{of.keep("%s.next", "%e2", "%e2.i", "%s")}{
    of.nans("%t.next", "%e2", "%e2", "%t")}  %l.next = add i64 %l, {w}
  br label %singles
"""


def _first_lane(of: Order) -> str:
    """Lines that put the best of the lanes of %both, and of equal ones the first, into %all."""
    text, apart, x = "", of.width // 2, "%both"
    while apart:
        lanes = ", ".join(f"i32 {i ^ apart}" for i in range(of.width))
        other = f"%all.r{apart}"
        for part, kind in (("", of.vector), (".i", of.masks)):
            text += (f"  {other}{part} = shufflevector {kind} {x}{part}, {kind} poison, "
                     f"<{of.width} x i32> <{lanes}>\n")
        made = "%all" if apart == 1 else f"%all.f{apart}"
        text += of.first(made, x, f"{x}.i", other, f"{other}.i")
        x, apart = made, apart // 2
    return text


def _stretch(of: Order) -> str:
    """Lines of the loop over stretches, which leave the best element and where the first such begins.

    None is NaN: floats are wide.
    """
    w, v, kind = of.width, of.vector, of.element
    return f"""stretch:
  %c = phi i64 [ 0, %go ], [ %c.next, %again ]
  %sofar = phi {kind} [ 0, %go ], [ %best, %again ]
  %begun = phi i64 [ 0, %go ], [ %at, %again ]
  %c.far = add i64 %c, {STRETCH}
  %c.end = call i64 @llvm.umin.i64(i64 %c.far, i64 %n)
  %c.last = sub i64 %c.end, {w}
  %c.first = call i64 @llvm.umin.i64(i64 %c, i64 %last)
{of.load("%v0", "%c.first")}  %j0 = add i64 %c, {w}
  br label %pairs
pairs:
  %j = phi i64 [ %j0, %stretch ], [ %j.next, %pair ]
  %a = phi {v} [ %v0, %stretch ], [ %a.next, %pair ]
  %b = phi {v} [ %v0, %stretch ], [ %b.next, %pair ]
  %j.next = add i64 %j, {2 * w}
  %two = icmp ule i64 %j.next, %c.end
  br i1 %two, label %pair, label %singles
pair:
  %j1 = add i64 %j, {w}
{of.load("%e0", "%j")}{of.load("%e1", "%j1")}{of.better("%a.next", "%e0", "%a")}{
    of.better("%b.next", "%e1", "%b")}  br label %pairs
singles:
  %l = phi i64 [ %j, %pairs ], [ %l.next, %single ]
  %s = phi {v} [ %a, %pairs ], [ %s.next, %single ]
  %one = icmp ult i64 %l, %c.end
  br i1 %one, label %single, label %over
single:
  %l.at = call i64 @llvm.umin.i64(i64 %l, i64 %c.last)
{of.load("%e2", "%l.at")}{of.better("%s.next", "%e2", "%s")}  %l.next = add i64 %l, {w}
  br label %singles
over:
{of.better("%both", "%s", "%b")}{_folded(of, "%both", "%all")}  %h = extractelement {v} %all, i64 0
  %begins = icmp eq i64 %c, 0
  %less = {of.before} {kind} %h, %sofar
  %take = or i1 %begins, %less
  %best = select i1 %take, {kind} %h, {kind} %sofar
  %at = select i1 %take, i64 %c, i64 %begun
  %c.next = add i64 %c, {STRETCH}
  %further = icmp ult i64 %c.next, %n
{_no_better(of)}again:
  br label %stretch
"""


def _folded(of: Order, x: str, name: str) -> str:
    """Lines that put the best of the lanes of `x` into all lanes of `name`: of vectors, not one by one."""
    text, apart, v = "", of.width // 2, of.vector
    while apart:
        lanes = ", ".join(f"i32 {i ^ apart}" for i in range(of.width))
        text += (f"  {name}.r{apart} = shufflevector {v} {x}, {v} poison, <{of.width} x i32> <{lanes}>\n")
        made = name if apart == 1 else f"{name}.f{apart}"
        text += of.better(made, x, f"{name}.r{apart}")
        x, apart = made, apart // 2
    return text


def _any_nan(of: Order) -> str:
    """Lines that look for the first NaN of a stretch if it has one."""
    if not of.floats:
        return ""
    return (f"  %nans = icmp slt {of.masks} %t, zeroinitializer\n"
            f"  %nans.bits = bitcast <{of.width} x i1> %nans to i{of.width}\n"
            f"  %some.nan = icmp ne i{of.width} %nans.bits, 0\n"
            "  br i1 %some.nan, label %nan, label %ordered\nordered:\n")


def _no_better(of: Order) -> str:
    """Lines that go on to the next stretch, if there is one, and bools may be better there."""
    if of.dtype != BOOL:
        return "  br i1 %further, label %again, label %same\n"
    return (f"  %open = icmp ne i8 %best, {int(of.form == 'argmax')}\n"
            "  %on = and i1 %further, %open\n  br i1 %on, label %again, label %same\n")


def _search(of: Order, name: str, start: str, test: str) -> str:
    """Lines that find the first element from `start` on for which `test` holds: there is one."""
    what = ""
    if name == "same":
        what = (f"  %same.one = insertelement {of.vector} poison, {of.element} %best, i64 0\n"
                f"  %same.what = shufflevector {of.vector} %same.one, {of.vector} poison, "
                f"<{of.width} x i32> zeroinitializer\n")
    return f"""{name}:
{what}  br label %{name}.group
{name}.group:
  %{name}.g = phi i64 [ {start}, %{name} ], [ %{name}.g.next, %{name}.none ]
  %{name}.from = call i64 @llvm.umin.i64(i64 %{name}.g, i64 %last)
  %{name}.far = add i64 %{name}.from, {GROUP}
  %{name}.end = call i64 @llvm.umin.i64(i64 %{name}.far, i64 %n)
  br label %{name}.part
{name}.part:
  %{name}.q = phi i64 [ %{name}.from, %{name}.group ], [ %{name}.q.next, %{name}.part ]
  %{name}.bits = phi i64 [ 0, %{name}.group ], [ %{name}.bits.next, %{name}.part ]
  %{name}.l = call i64 @llvm.umin.i64(i64 %{name}.q, i64 %last)
{of.load(f"%{name}.e", f"%{name}.l")}  %{name}.hits = {test}
  %{name}.few = bitcast <{of.width} x i1> %{name}.hits to i{of.width}
  %{name}.many = zext i{of.width} %{name}.few to i64
  %{name}.shift = sub i64 %{name}.l, %{name}.from
  %{name}.moved = shl i64 %{name}.many, %{name}.shift
  %{name}.bits.next = or i64 %{name}.bits, %{name}.moved
  %{name}.q.next = add i64 %{name}.q, {of.width}
  %{name}.more = icmp ult i64 %{name}.q.next, %{name}.end
  br i1 %{name}.more, label %{name}.part, label %{name}.whole
{name}.whole:
  %{name}.some = icmp ne i64 %{name}.bits.next, 0
  br i1 %{name}.some, label %{name}.hit, label %{name}.none
{name}.none:
  %{name}.g.next = add i64 %{name}.from, {GROUP}
  br label %{name}.group
{name}.hit:
  %{name}.in = call i64 @llvm.cttz.i64(i64 %{name}.bits.next, i1 true)
  %{name}.index = add i64 %{name}.from, %{name}.in
  br label %found
"""
