"""Which part of a buffer the statements of a loop read: bounds inference.

Knows: indices, ranges of loops. Must not know: what is done with a region.
Receives accesses; returns for every axis where the part begins, and how long it is.

Where an index mixes variables so that no beginning can be told, the whole axis is the part.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from jitla.nests.index import Index, number, parted, reach
from jitla.nests.laws import within
from jitla.nests.nodes import Guard, Loop
from jitla.nests.walking import Access, ranges_of


class Region(NamedTuple):
    """Where a part of a buffer begins, its extents, and along which axes it may leave the buffer."""

    base: tuple[Index, ...]
    extent: tuple[int, ...]
    over: tuple[bool, ...]


def region(
    found: Iterable[Access], shape: Sequence[int], around: tuple[Loop, ...], guards: tuple[Guard, ...] = ()
) -> Region:
    """Return the part of a buffer of `shape` that holds all elements `found`.

    `around` are the loops in which it is fixed.
    """
    found = tuple(found)
    axes = [_along(axis, found, size, around) for axis, size in enumerate(shape)]
    over = [within(base, around, guards)[1] + many > size
            for (base, many), size in zip(axes, shape, strict=True)]
    return Region(tuple(b for b, _ in axes), tuple(n for _, n in axes), tuple(over))


def _along(axis: int, found: tuple[Access, ...], size: int, around: tuple[Loop, ...]) -> tuple[Index, int]:
    fixed = frozenset(loop.name for loop in around)
    bases: set[Index] = set()
    low, high = [], []
    for access in found:
        inner = frozenset(x.name for x in access.loops) - fixed
        parts = parted(access.at[axis], inner)
        if parts is None:
            return number(0), size
        bases.add(parts[0])
        ends = reach(parts[1], ranges_of(access.loops))
        low.append(ends[0])
        high.append(ends[1] + (access.extent[axis] - 1 if access.extent else 0))
    if len(bases) != 1 or max(high) - min(low) + 1 >= size:
        return number(0), size
    return bases.pop() + min(low), max(high) - min(low) + 1
