"""Large DAGs cut into parts that are searched one by one.

Knows: which edges substitutions reach across. Must not know: substitutions, costs.
Receives roots, and how many substitutions look at every edge; returns parts, users before what they use.

As in MetaFlow an edge is the more reluctantly cut the more substitutions look at both its ends. Edges are
taken in that order and join what they connect, as long as parts stay small, and convex: no path leaves a
part and comes back, so that what a part becomes cannot wait for itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from jitla.classes import dataclass
from jitla.hops import Hop, Kind, leaf, substitute, topo, uses

Roots = tuple[Hop, ...]
Edge = tuple[Hop, Hop]
LENT = 1 << 20  # slots from here on are those of values that parts are given


@dataclass(frozen=True, slots=True)
class Part:
    """A part as a DAG of its own: what others use of it, and the leaves that stand for what it is given."""

    outputs: Roots
    roots: Roots
    lent: Mapping[Hop, Hop]

    def returned(self, found: Roots) -> dict[Hop, Hop]:
        """Return what the outputs become when the part becomes `found`."""
        back = substitute(found, self.lent)
        return {old: new for old, new in zip(self.outputs, back, strict=True) if old is not new}


def cut(roots: Roots, weights: Mapping[Edge, int], largest: int) -> list[Part]:
    """Return the parts in which there are weighted edges, of at most `largest` operators each."""
    order = [h for h in topo(roots) if h.op.kind is not Kind.LEAF]
    clusters = _Clusters(order)
    edges = [(i, h) for h in order for i in dict.fromkeys(h.inputs) if i.op.kind is not Kind.LEAF]
    for one, other in sorted(edges, key=lambda e: -weights.get(e, 0)):
        clusters.join(one, other, largest)
    found = {clusters.of(h) for h in order if any(weights.get((i, h), 0) for i in h.inputs)}
    users = uses(roots)
    last_first = sorted(found, reverse=True)
    return [_part([order[n] for n in _bits(members)], users, roots) for members in last_first]


class _Clusters:
    """Disjoint convex sets of operators, as bits of their numbers."""

    def __init__(self, order: list[Hop]) -> None:
        self._number = {h: n for n, h in enumerate(order)}
        self._members = [1 << n for n in range(len(order))]
        self._below = [0] * len(order)  # what an operator depends on
        self._above = [0] * len(order)
        for n, hop in enumerate(order):
            for at in (self._number[i] for i in hop.inputs if i in self._number):
                self._below[n] |= self._below[at] | 1 << at
            for at in _bits(self._below[n]):
                self._above[at] |= 1 << n

    def of(self, hop: Hop) -> int:
        """Return the members of the set that `hop` is in."""
        return self._members[self._number[hop]]

    def join(self, one: Hop, other: Hop, largest: int) -> None:
        """Make one set of two, unless it were too large or not convex."""
        both = self.of(one) | self.of(other)
        below = above = 0
        for n in _bits(both):
            below |= self._below[n]
            above |= self._above[n]
        if both.bit_count() <= largest and not below & above & ~both:
            for n in _bits(both):
                self._members[n] = both


def _bits(members: int) -> Iterable[int]:
    while members:
        least = members & -members
        yield least.bit_length() - 1
        members ^= least


def _part(members: list[Hop], users: Mapping[Hop, list[Hop]], roots: Roots) -> Part:
    inside = set(members)
    outputs = tuple(h for h in members if h in roots or not inside.issuperset(users[h]))
    given = dict.fromkeys(
        i for h in members for i in h.inputs if i not in inside and i.op.kind is not Kind.LEAF)
    lent = {i: leaf(LENT + n, i.meta, "array" if i.meta.ndim else "scalar", i.line)
            for n, i in enumerate(given)}
    return Part(outputs, substitute(outputs, lent), {own: i for i, own in lent.items()})
