"""What loops lose at the ends of rows, which they cannot run on over.

Knows: shapes, kinds of hops. Must not know: how values lie in memory, plans.
Receives the hops of a kernel; returns seconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import NamedTuple

from jitla.hops import Hop, Kind, Shape, flops

BEGIN = 65.0  # additions that beginning a row takes in a loop that cannot run on over the end of one
STEP = 64  # bytes that such a loop handles at a time; functions take as long for a rest of them
SINGLE = 3.0  # additions that an element of the rest takes where it is handled alone, beside functions


def iteration(hop: Hop) -> Shape:
    """Return the shape a loop that computes `hop` runs over."""
    return hop.inputs[0].meta.shape if hop.op.kind in (Kind.AGG, Kind.TALLY) else hop.meta.shape


def ended(hop: Hop) -> Shape:
    """Return the space of the loops that lose something at the ends of rows with `hop`, or ()."""
    space = iteration(hop) if hop.op.kind in (Kind.CELL, Kind.AGG) else ()
    return space if len(space) > 1 else ()


def ends_rows(hop: Hop) -> bool:
    """Tell whether a loop over the `ended` space of `hop` cannot run on over the ends of rows for it."""
    space = ended(hop)
    return bool(space) and (_reduces(hop, space) or _broadcasts(hop, space))


def _reduces(hop: Hop, space: Shape) -> bool:
    return hop.op.kind is Kind.AGG and len(hop.attr("axis")) < len(space)


def _broadcasts(hop: Hop, space: Shape) -> bool:
    return hop.op.kind is Kind.CELL and any(i.meta.shape not in (space, ()) for i in hop.inputs)


class _End(NamedTuple):
    """What a hop does to loops over `space`: whether rows end them, and what is lost there by each way.

    `begin` for every row, `rest` behind whole vectors, `single` where elements of the rest are added up.
    """

    space: Shape
    broadcasts: bool
    reduces: bool
    begin: float
    rest: float
    single: float


class Ends:
    """Losses where an addition of all threads together takes `unit` seconds."""

    def __init__(self, unit: float) -> None:
        self._unit = unit
        self._known: dict[Hop, _End] = {}

    def lost(self, hops: Iterable[Hop], apart: bool = False) -> float:
        """Return the seconds that loops over `hops` lose; `apart`: what reduces may be loops of its own.

        A loop starts anew at every row if it broadcasts an array, twice if it reduces rows, too. What is
        left of a row behind whole vectors is one more vector to functions; in reductions, to others, an
        element at a time. More hops never lose less: bounds depend on it.
        """
        lost = 0.0
        found: dict[Shape, list[tuple[Hop, _End]]] = {}
        for hop in hops:
            end = self._known.get(hop) or self._end(hop)
            if end.space:
                found.setdefault(end.space, []).append((hop, end))
        for some in found.values():
            reduces = broadcasts = False
            for _, e in some:
                reduces |= e.reduces
                broadcasts |= e.broadcasts
            if not reduces and not broadcasts:
                continue
            begun = 1.0 if broadcasts else 0.0
            for loop in _linked(some) if reduces else ():
                if any([e.reduces for e in loop]):
                    lost += sum([e.single for e in loop])
                    if any([e.broadcasts for e in loop]) and not apart:
                        begun = 2.0
            lost += begun * some[0][1].begin + sum([e.rest for _, e in some])
        return lost

    def _end(self, hop: Hop) -> _End:
        space = ended(hop)
        if not space:
            found = _End((), False, False, 0.0, 0.0, 0.0)
        else:
            rows, length, whole = prod(space[:-1]), space[-1], max(STEP // hop.meta.dtype.itemsize, 1)
            left = length % whole
            more = flops(hop) / max(length, 1) * (whole - left) if left and hop.op.transcendental else 0.0
            single = 0.0 if hop.op.transcendental else SINGLE * left * rows
            found = _End(space, _broadcasts(hop, space), _reduces(hop, space), *(
                n * self._unit for n in (BEGIN * rows, more, single)))
        self._known[hop] = found
        return found


def _linked(some: Iterable[tuple[Hop, _End]]) -> list[list[_End]]:
    """Put together what hops of one space, operands first, have at the ends of rows, if some read others."""
    parts: list[list[_End]] = []
    at: dict[Hop, int] = {}
    for hop, end in some:
        mine = sorted({at[i] for i in hop.inputs if i in at})
        at[hop] = len(parts)
        parts.append([end])
        for part in mine:
            parts[-1] += parts[part]
            parts[part] = []
        if mine:
            for h, part in at.items():
                if part in mine:
                    at[h] = len(parts) - 1
    return [ends for ends in parts if ends]
