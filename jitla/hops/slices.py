"""Slices that leave out some elements at either end of an axis, or between: what stencils are made of.

Knows: the form of indices. Must not know: who reads a slice.
Receives a hop; returns what it leaves out of its operand.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from jitla.hops.node import Hop

#: Of one axis, how many elements are left out in front and behind; of a value, one for each.
Margins = tuple[tuple[int, int], ...]

WIDEST = 8  # elements left out at most


class Section(NamedTuple):
    """What a slice takes of an axis: every `step`-th element, but for `first` and `end` ones at its ends."""

    first: int
    end: int
    step: int

    def then(self, other: Section) -> Section:
        """Return what is left if `other` is taken of what this takes."""
        return Section(self.first + self.step * other.first, self.end + self.step * other.end,
                       self.step * other.step)

    @property
    def item(self) -> tuple[str, int | None, int | None, int | None]:
        """The item of an index that takes this."""
        return "s", self.first or None, -self.end or None, self.step if self.step > 1 else None


WHOLE = Section(0, 0, 1)


def taken_by(index: Iterable[tuple[Any, ...]]) -> list[Section] | None:
    """Return what the slices of an index take, counted from the ends of axes; None for others."""
    found = []
    for item in index:
        if item[0] != "s" or (step := 1 if item[3] is None else item[3]) < 1:
            return None
        first, end = item[1] or 0, item[2] or 0
        if first < 0 or end > 0 or item[2] == 0:
            return None
        found.append(Section(first, -end, step))
    return found


def sections(view: Hop) -> tuple[Section, ...] | None:
    """Return what the slice `view` takes of every axis of its operand; None if it is of another kind."""
    if view.op.name != "getitem" or 0 in view.meta.shape:
        return None
    found = taken_by(view.attr("index"))
    if found is None or any(max(s) > WIDEST for s in found):
        return None
    return (*found, *[WHOLE] * (view.inputs[0].meta.ndim - len(found)))


def margins(view: Hop) -> Margins | None:
    """Return what the slice `view` leaves out of its operand; None if it is none, or of another kind."""
    found = sections(view)
    if found is None or any(s.step != 1 for s in found):
        return None
    return tuple((s.first, s.end) for s in found)
