"""Elements that are compared with each other, as IR: the better of two vectors, and where it was found.

Knows: vectors, how elements of a dtype are compared. Must not know: rows, how they are walked.
Receives names of values; returns lines.
"""

from __future__ import annotations

import numpy as np

from jitla.classes import dataclass
from jitla.codegen.lanes import Lanes
from jitla.codegen.vector import memory_type

__all__ = ["Order"]

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
