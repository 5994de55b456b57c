"""Copies that have their opposite edges around them, so that rolls of them are views.

Knows: how far edges reach. Must not know: programs, kernels.
Receives shapes, widths and what allocates memory; returns arrays, and what adds their edges.

A ring is the middle of a larger array, its base. Whoever writes the middle adds the edges afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from jitla.fusion import Layout
from jitla.hops import Hop, Shape, Widths
from jitla.recompile.fresh import maker

Index = tuple[slice, ...]
Moves = tuple[tuple[Index, Index], ...]


def turn(shifts: tuple[int, ...], widths: Widths) -> Index:
    """Return the part of a ring's base that is the ring rolled by `shifts`."""
    return tuple([slice(front - n, -(back + n) or None)
                  for n, (front, back) in zip(shifts, widths, strict=True)])


def room(empty: Callable[..., np.ndarray], place: Layout, ring: Hop) -> Callable[[], np.ndarray]:
    """Return what makes an array for a copy that lies as `place` says, with room for its edges around it."""
    widths = ring.attr("widths")
    whole = tuple([n + front + back for n, (front, back) in zip(place.shape, widths, strict=True)])
    made = maker(empty, ring.meta.dtype, Layout(whole, place.strides))
    middle = turn((0,) * len(whole), widths)
    return lambda: made()[middle]


def edges(shape: Shape, widths: Widths) -> Callable[[np.ndarray], None]:
    """Return what adds the edges to a ring of `shape`."""
    moves: list[tuple[Index, Index]] = []
    for axis, (n, (front, back)) in enumerate(zip(shape, widths, strict=True)):
        # axes before this one have their edges, those behind have none
        inner = [slice(f, f + m) for m, (f, _) in list(zip(shape, widths, strict=True))[axis + 1:]]
        for to in _runs(n, front, back):
            moves.append(tuple((*[slice(None)] * axis, part, *inner) for part in to))  # type: ignore[arg-type]
    return partial(_move, tuple(moves))


def _runs(n: int, front: int, back: int) -> list[tuple[slice, slice]]:
    """Return which elements of an axis become which others, as few at a time as repeat."""
    found = []
    for end in range(front, 0, -n):
        first = max(end - n, 0)
        found.append((slice(first, end), slice(first + n, end + n)))
    for first in range(front + n, front + n + back, n):
        end = min(first + n, front + n + back)
        found.append((slice(first, end), slice(first - n, end - n)))
    return found


def _move(moves: Moves, ring: np.ndarray) -> None:
    whole: Any = ring.base
    for to, of in moves:
        whole[to] = whole[of]


def ring_of(array: np.ndarray, ring: np.ndarray, add: Callable[[np.ndarray], None]) -> np.ndarray:
    """Copy `array` into a new ring."""
    ring[...] = array
    add(ring)
    return ring
