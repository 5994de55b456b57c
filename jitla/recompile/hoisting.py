"""Which values that stay the same from run to run of a block are worth keeping in memory.

The values that something else reads are tried first: all of them. One that is large is then exchanged
for what it is computed from, if the plan costs no more: a loop that fuses with others costs what it
reads, so `X ** 2` in one is not kept, its column sums are.
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

LEAST, SHARE = 4e-6, 0.05  # seconds of a run, and the part of it, that keeping has to save
# A plan that keeps less is as good up to so many times the cost, or, if it keeps a small part of the bytes,
# up to such a share of the cost without: what is kept has to stay in caches that others use, too.
ALIKE, LIGHT, SMALL_PART = 1.02, 0.15, 0.25
MOST_PLANS = 12

Keeping = tuple[Hop, ...]


def worth_keeping(
    draft: Draft, tools: Tools, same: Collection[int], named: Collection[Hop], room: int, all_of_them: bool,
) -> Keeping:
    """Return which of `named` to keep, where leaves in the slots `same` stay the same.

    They take at most `room` bytes. With `all_of_them` costs do not matter.
    """
    steady = Steady(draft.roots, same, frozenset(named))
    found = steady.read(draft.roots)
    while sum(h.meta.nbytes for h in found) > room:
        found = steady.below(found, max(found, key=_bytes))
    if all_of_them or not found:
        return found
    before = _seconds(draft, tools)
    found, after = _least(draft, tools, steady, found, before)
    return found if before - after >= max(LEAST, SHARE * before) else ()


class Steady:
    """The values of a DAG that stay the same, and which of them may be kept."""

    def __init__(self, roots: tuple[Hop, ...], same: Collection[int], named: frozenset[Hop]) -> None:
        self._steady: set[Hop] = set()
        self._read: set[Hop] = set()  # of these, those that an array in memory is read for
        self._named = named
        for hop in topo(roots):
            slot = hop.attr("slot") if hop.op.name == "leaf" else None
            if slot in same if slot is not None else all(i in self._steady for i in hop.inputs):
                self._steady.add(hop)
                if slot is not None and hop.meta.shape or any(i in self._read for i in hop.inputs):
                    self._read.add(hop)

    def read(self, roots: tuple[Hop, ...]) -> Keeping:
        """Return what to keep so that nothing else which stays the same is computed for `roots`."""
        found: dict[Hop, None] = {}
        for hop in topo(roots):
            if hop not in self._steady:
                found |= dict.fromkeys(self._inputs(hop))
        for hop in roots:
            if hop in self._steady:
                found |= dict.fromkeys(self._kept(hop))
        return tuple(found)

    def below(self, kept: Keeping, hop: Hop) -> Keeping:
        """Return `kept` with `hop` exchanged for what it is computed from."""
        others = (h for h in kept if h is not hop)
        return tuple(dict.fromkeys((*others, *self._inputs(hop))))

    def _inputs(self, hop: Hop) -> Keeping:
        return tuple(dict.fromkeys(h for i in hop.inputs if i in self._steady for h in self._kept(i)))

    def _kept(self, hop: Hop) -> Keeping:
        """Return what stands for `hop`: itself, or what it is a view or a nameless part of."""
        if hop not in self._read or not hop.inputs:
            return ()
        if hop in self._named and not is_view(hop):
            return (hop,)
        return self._inputs(hop)


def _least(
    draft: Draft, tools: Tools, steady: Steady, found: Keeping, before: float,
) -> tuple[Keeping, float]:
    """Return what to keep, begun with `found`, and the predicted seconds of a run; `before`: without."""
    cost: Callable[[Keeping], float] = lambda kept: _seconds(_with(draft, kept), tools)  # noqa: E731
    best = cost(found)
    tried = {frozenset(found)}
    left = sorted(found, key=_bytes)
    while left and len(tried) < MOST_PLANS:
        hop = left.pop()
        other = steady.below(found, hop)
        if frozenset(other) in tried:
            continue
        tried.add(frozenset(other))
        seconds = cost(other)
        lighter = _total(other) <= SMALL_PART * _total(found)
        most = max(best * ALIKE, best + LIGHT * before if lighter else 0.0)
        if seconds < best or seconds <= most and _total(other) <= _total(found):
            left = sorted({*left, *(set(other) - set(found))}, key=_bytes)
            found, best = other, seconds
    return found, best


def _with(draft: Draft, kept: Keeping) -> Draft:
    """Return `draft` with `kept` as leaves, which lie as NumPy's results do."""
    first = 1 + max((h.attr("slot") for h in topo(draft.roots) if h.op.name == "leaf"), default=0)
    places = all_layouts(kept, draft.layouts)
    slots = {h: first + n for n, h in enumerate(kept)}
    layouts = {slot: places[h] for h, slot in slots.items() if h.meta.shape}
    return replace(draft, roots=replace_by_leaves(draft.roots, slots), layouts={**draft.layouts, **layouts})


def _seconds(draft: Draft, tools: Tools) -> float:
    """Return what the plan of `draft` is predicted to take."""
    for stage in STAGES:
        draft = stage.run(draft, tools)
    assert draft.plan is not None
    prices = CostModel(tools.machine, all_layouts(draft.roots, draft.layouts))
    return sum(prices.step(step).total for step in draft.plan.steps)


def _bytes(hop: Hop) -> int:
    return hop.meta.nbytes


def _total(kept: Keeping) -> int:
    return sum(map(_bytes, kept))
