"""Slices that leave out some elements at either end of an axis: what stencils are made of.

Knows: the form of indices. Must not know: who reads a slice.
Receives a hop; returns what it leaves out of its operand.
"""

from __future__ import annotations

from jitla.hops.node import Hop

#: Of one axis, how many elements are left out in front and behind; of a value, one for each.
Margins = tuple[tuple[int, int], ...]

WIDEST = 8  # elements left out at most


def margins(view: Hop) -> Margins | None:
    """Return what the slice `view` leaves out of its operand; None if it is none, or of another kind."""
    if view.op.name != "getitem" or 0 in view.meta.shape:
        return None
    found = []
    for item in view.attr("index"):
        if item[0] != "s" or item[3] not in (None, 1):
            return None
        first, end = item[1] or 0, item[2] or 0
        if not 0 <= first <= WIDEST or not -WIDEST <= end <= 0 or item[2] == 0:
            return None
        found.append((first, -end))
    return (*found, *[(0, 0)] * (view.inputs[0].meta.ndim - len(found)))
