"""What states of a search cost: the planner's prediction, and a bound that takes no plan.

Knows: plans are made of roots, where NumPy's results lie. Must not know: rules, how a search goes.
Receives roots that may stand for those given; returns seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from math import inf

from jitla.classes import dataclass
from jitla.fusion import (
    Layout,
    Plan,
    Prices,
    Recall,
    all_layouts,
    contiguous,
    forecast,
    is_view,
    result_of,
    seen_operands,
)
from jitla.hops import Hop, Kind, Machine, topo

Roots = tuple[Hop, ...]


@dataclass(frozen=True, slots=True)
class Terms:
    """What plans depend on besides the roots, and which of these go to memory that exists."""

    layouts: Mapping[int, Layout]
    supports: Callable[[Hop], str | None]
    machine: Machine
    templates: Collection[str]
    fusion: str
    limit: int
    recall: Recall | None


class Appraisals:
    """Prices of the states of a search, part by part, and the plans that were made for them."""

    def __init__(self, roots: Roots, outs: Sequence[int | None], terms: Terms) -> None:
        self._terms = terms
        self._places = all_layouts(roots, terms.layouts)
        self._whole = roots, frozenset(i for i, out in enumerate(outs) if out is not None)
        self._made: Appraisal | None = None

    def of(self, part: Roots, lent: Mapping[Hop, Hop]) -> Appraisal:
        """Return the prices of what may stand for a part; its leaves `lent` lie as the values they are."""
        if part == self._whole[0]:
            self._made = Appraisal(*self._whole, self._terms)
            return self._made
        given = {own.attr("slot"): self._places[value] for own, value in lent.items()}
        return Appraisal(part, frozenset(), replace(self._terms, layouts={**self._terms.layouts, **given}))

    def plan(self, roots: Roots) -> Plan | None:
        """Return the plan of all roots, if it was made."""
        return self._made.plans.get(roots) if self._made is not None else None


class Appraisal:
    """Prices of what may stand for `given`: results lie where they do there, unless they are `stored`."""

    def __init__(self, given: Roots, stored: frozenset[int], terms: Terms) -> None:
        self._terms = terms
        self._stored = stored
        self._known: dict[Roots, float] = {}
        self.plans: dict[Roots, Plan] = {}
        self._places = all_layouts(given, terms.layouts)
        self._prices = Prices(terms.machine, self._places)
        self._wanted = {i: self._places[r] for i, r in enumerate(given) if i not in stored}
        self._least: dict[Hop, tuple[float, float]] = {}

    def floor(self, roots: Roots) -> float:
        """Return the least that reading leaves, computing and writing results takes, each once.

        What is only looked at in another order is neither read nor written.
        """
        hops = topo(roots)
        for hop in hops:
            if hop not in self._places:
                self._places[hop] = self._place(hop)
        if any(self._places[roots[i]] != place for i, place in self._wanted.items()):
            return inf
        read = {_viewed(i) for h in hops if h.inputs and not is_view(h) for i in h.inputs}
        terms = [self._once(h) for h in hops if h.inputs or h in read]
        written = sum(self._written(r) for r in set(roots) if r.inputs and not is_view(r))
        return written + max(sum(t[0] for t in terms), sum(t[1] for t in terms))

    def guess(self, roots: Roots) -> float:
        """Return what all operators take one by one, matrices on their way into products written and read."""
        hops = topo(roots)
        operands = {i for h in hops if h.op.name == "matmul" for i in map(_viewed, h.inputs) if i.inputs}
        kept = {i for i in operands if i.meta.ndim == 2 and i.op.kind is Kind.CELL}
        written = sum(map(self._prices.writes, kept.union(r for r in roots if r.inputs)))
        return written + sum(map(self._prices.reads, kept)) + sum(sum(self._once(h)) for h in hops)

    def _place(self, hop: Hop) -> Layout:
        shape = hop.meta.shape
        if shape == () or hop.op.kind is Kind.LEAF:
            given = self._terms.layouts.get(hop.attr("slot")) if hop.op.name == "leaf" and shape else None
            return given or contiguous(shape, hop.meta.dtype.itemsize)
        return result_of(hop, shape, dict(hop.attrs), [self._places[i] for i in seen_operands(hop)])

    def _once(self, hop: Hop) -> tuple[float, float]:
        """Return the seconds of reading a leaf, and of computing anything else."""
        found = self._least.get(hop)
        if found is None:
            if hop.op.kind is Kind.LEAF:
                found = self._prices.reads(hop), 0.0
            elif is_view(hop):
                found = 0.0, 0.0
            else:
                alone = self._prices.call(hop) if hop.op.kind is Kind.CALL else inf
                found = 0.0, min(self._prices.work(hop), alone)
            self._least[hop] = found
        return found

    def _written(self, root: Hop) -> float:
        """Return the seconds of writing a result, as far as the call that may make it does not do so."""
        seconds = self._prices.writes(root)
        if root.op.kind is Kind.CALL:
            seconds = min(seconds, max(self._prices.call(root) - self._prices.work(root), 0.0))
        return seconds

    def price(self, roots: Roots) -> float:
        """Return what the plan of `roots` is predicted to take."""
        found = self._known.get(roots)
        if found is None:
            t = self._terms
            stored = {roots[i] for i in self._stored}
            self.plans[roots], found = forecast(
                roots, t.layouts, t.supports, t.machine, t.templates, t.fusion, t.limit, stored, t.recall)
            self._known[roots] = found
        return found

    def ceiling(self, roots: Roots) -> float:
        """Return what the calls take, one after the other, that NumPy does it with."""
        return sum(map(self._prices.call, topo(roots)))


def _viewed(hop: Hop) -> Hop:
    while is_view(hop):
        hop = hop.inputs[0]
    return hop
