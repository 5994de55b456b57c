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
    return hop.inputs[0].meta.shape if hop.op.kind is Kind.AGG else hop.meta.shape


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
            reduces, broadcasts = any([e.reduces for _, e in some]), any([e.broadcasts for _, e in some])
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
        space = iteration(hop) if hop.op.kind in (Kind.CELL, Kind.AGG) else ()
        if len(space) < 2:
            found = _End((), False, False, 0.0, 0.0, 0.0)
        else:
            rows, length, whole = prod(space[:-1]), space[-1], max(STEP // hop.meta.dtype.itemsize, 1)
            left = length % whole
            more = flops(hop) / max(length, 1) * (whole - left) if left and hop.op.transcendental else 0.0
            single = 0.0 if hop.op.transcendental else SINGLE * left * rows
            reduces = hop.op.kind is Kind.AGG and len(hop.attr("axis")) < len(space)
            broadcasts = hop.op.kind is Kind.CELL and any(
                i.meta.shape not in (space, ()) for i in hop.inputs)
            found = _End(space, broadcasts, reduces, *(
                n * self._unit for n in (BEGIN * rows, more, single)))
        self._known[hop] = found
        return found


def _linked(some: Iterable[tuple[Hop, _End]]) -> list[list[_End]]:
    """Put together what hops of one space, operands first, have at the ends of rows, if some read others."""
    parts: list[tuple[set[Hop], list[_End]]] = []
    for hop, end in some:
        mine = [p for p in parts if not p[0].isdisjoint(hop.inputs)]
        parts = [p for p in parts if p not in mine]
        parts.append(({hop}.union(*(p[0] for p in mine)), [end, *(e for p in mine for e in p[1])]))
    return [ends for _, ends in parts]
