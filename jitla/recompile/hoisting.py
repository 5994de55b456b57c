"""Choice of loop-invariant values of a block to hoist: to keep in memory from run to run.

A greedy search: it begins with all values that variant operators read. The largest is then replaced by its
inputs if the plan costs no more: an operator that fuses with others costs what it reads, so `X ** 2` within a
kernel is not hoisted, its column sums are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from jitla.fusion import CostModel, all_layouts, is_view
from jitla.hops import Hop, replace_by_leaves, topo
from jitla.recompile.pipeline import (
    STAGES,
    Draft,
    Tools,
)

MIN_SAVED_SECONDS, MIN_SAVED_SHARE = 4e-6, 0.05  # of a run: what hoisting has to save
# A set of fewer bytes is preferred if its cost is at most `MAX_COST_RATIO` times the best, or, if it has at
# most `LIGHTER_BYTES_SHARE` of the bytes, if it adds at most `MAX_LIGHTER_SHARE` of the cost without
# hoisting: hoisted values compete for the caches.
MAX_COST_RATIO, MAX_LIGHTER_SHARE, LIGHTER_BYTES_SHARE = 1.02, 0.15, 0.25
MAX_PLANS = 12

HoistedValues = tuple[Hop, ...]


def choose_hoisted(
    draft: Draft, tools: Tools, invariant_slots: Collection[int], candidates: Collection[Hop], max_bytes: int,
    ignore_costs: bool,
) -> HoistedValues:
    """Return which of `candidates` to hoist, where leaves in `invariant_slots` are invariant.

    They take at most `max_bytes`. With `ignore_costs` they need not save time.
    """
    invariant = InvariantValues(draft.roots, invariant_slots, frozenset(candidates))
    hoisted = invariant.frontier(draft.roots)
    while sum(h.meta.nbytes for h in hoisted) > max_bytes:
        hoisted = invariant.replaced_by_inputs(hoisted, max(hoisted, key=_bytes))
    if ignore_costs or not hoisted:
        return hoisted
    before = _seconds(draft, tools)
    hoisted, after = _cheapest(draft, tools, invariant, hoisted, before)
    return hoisted if before - after >= max(MIN_SAVED_SECONDS, MIN_SAVED_SHARE * before) else ()


class InvariantValues:
    """The invariant values of a DAG, and the candidates for hoisting among them."""

    def __init__(
        self, roots: tuple[Hop, ...], invariant_slots: Collection[int], candidates: frozenset[Hop],
    ) -> None:
        self._invariant: set[Hop] = set()
        self._reads_arrays: set[Hop] = set()  # those of them that depend on an array
        self._candidates = candidates
        for hop in topo(roots):
            slot = hop.attr("slot") if hop.op.name == "leaf" else None
            if slot in invariant_slots if slot is not None else all(i in self._invariant for i in hop.inputs):
                self._invariant.add(hop)
                if slot is not None and hop.meta.shape or any(i in self._reads_arrays for i in hop.inputs):
                    self._reads_arrays.add(hop)

    def frontier(self, roots: tuple[Hop, ...]) -> HoistedValues:
        """Return the values to hoist so that no other invariant value is computed for `roots`."""
        values: dict[Hop, None] = {}
        for hop in topo(roots):
            if hop not in self._invariant:
                values |= dict.fromkeys(self._inputs(hop))
        for hop in roots:
            if hop in self._invariant:
                values |= dict.fromkeys(self._stand_ins(hop))
        return tuple(values)

    def replaced_by_inputs(self, hoisted: HoistedValues, hop: Hop) -> HoistedValues:
        """Return `hoisted` with `hop` replaced by its invariant inputs."""
        remaining = (h for h in hoisted if h is not hop)
        return tuple(dict.fromkeys((*remaining, *self._inputs(hop))))

    def _inputs(self, hop: Hop) -> HoistedValues:
        return tuple(dict.fromkeys(h for i in hop.inputs if i in self._invariant for h in self._stand_ins(i)))

    def _stand_ins(self, hop: Hop) -> HoistedValues:
        """Return what to hoist for `hop`: itself, or the inputs of a view or of no candidate."""
        if hop not in self._reads_arrays or not hop.inputs:
            return ()
        if hop in self._candidates and not is_view(hop):
            return (hop,)
        return self._inputs(hop)


def _cheapest(
    draft: Draft, tools: Tools, invariant: InvariantValues, hoisted: HoistedValues, before: float,
) -> tuple[HoistedValues, float]:
    """Return the cheapest set found from `hoisted` on, and its seconds; `before`: without hoisting."""
    cost: Callable[[HoistedValues], float] = lambda values: _seconds(_with_leaves(draft, values), tools)  # noqa: E731
    best = cost(hoisted)
    tried = {frozenset(hoisted)}
    untried = sorted(hoisted, key=_bytes)
    while untried and len(tried) < MAX_PLANS:
        hop = untried.pop()
        alternative = invariant.replaced_by_inputs(hoisted, hop)
        if frozenset(alternative) in tried:
            continue
        tried.add(frozenset(alternative))
        seconds = cost(alternative)
        lighter = _total(alternative) <= LIGHTER_BYTES_SHARE * _total(hoisted)
        limit = max(best * MAX_COST_RATIO, best + MAX_LIGHTER_SHARE * before if lighter else 0.0)
        if seconds < best or seconds <= limit and _total(alternative) <= _total(hoisted):
            untried = sorted({*untried, *(set(alternative) - set(hoisted))}, key=_bytes)
            hoisted, best = alternative, seconds
    return hoisted, best


def _with_leaves(draft: Draft, hoisted: HoistedValues) -> Draft:
    """Return `draft` with the values `hoisted` as leaves in the layouts of NumPy's results."""
    first_slot = 1 + max((h.attr("slot") for h in topo(draft.roots) if h.op.name == "leaf"), default=0)
    places = all_layouts(hoisted, draft.layouts)
    slots = {h: first_slot + n for n, h in enumerate(hoisted)}
    layouts = {slot: places[h] for h, slot in slots.items() if h.meta.shape}
    return replace(draft, roots=replace_by_leaves(draft.roots, slots), layouts={**draft.layouts, **layouts})


def _seconds(draft: Draft, tools: Tools) -> float:
    """Return the predicted seconds of the plan of `draft`."""
    for stage in STAGES:
        draft = stage.run(draft, tools)
    assert draft.plan is not None
    prices = CostModel(tools.machine, all_layouts(draft.roots, draft.layouts))
    return sum(prices.step(step).total for step in draft.plan.steps)


def _bytes(hop: Hop) -> int:
    return hop.meta.nbytes


def _total(hoisted: HoistedValues) -> int:
    return sum(map(_bytes, hoisted))
