"""Kernels that wait for each other: each reads, maybe through others, what the other one makes.

Knows: candidates. Must not know: why they were put together.
Receives kernels; tells whether no order of them is possible.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from math import inf

from jitla.fusion.candidates import Candidate, Candidates
from jitla.fusion.memo import members


def closes(groups: Sequence[Candidate], at: int, wider: Candidate, kernels: Candidates) -> bool:
    """Tell whether a group would wait for itself by way of others if it were `wider`."""
    needs = kernels.waits(wider.body)
    left = [g for k, g in enumerate(groups) if k != at and g.results & g.results - 1]
    while near := [g for g in left if g.results & needs]:
        left = [g for g in left if not g.results & needs]
        for g in near:
            needs |= kernels.waits(g.body)
    return bool(needs & wider.results)


def cyclic(groups: Sequence[Candidate], kernels: Candidates) -> bool:
    """Tell whether kernels with several results wait for each other."""
    return bool(_waiting(groups, kernels))


def _waiting(groups: Sequence[Candidate], kernels: Candidates) -> list[Candidate]:
    """Return the kernels with several results that some others in a circle wait for, or that are in it."""
    left = [g for g in groups if g.results & g.results - 1]
    while len(left) > 1:
        pending = 0
        for g in left:
            pending |= g.results
        still = [g for g in left if kernels.waits(g.body) & pending]
        if len(still) == len(left):
            return left
        left = still
    return []


def untangled(
    groups: Sequence[Candidate], kernels: Candidates, memory: int, most: float,
) -> tuple[float, tuple[Candidate, ...]] | None:
    """Return the cheapest kernels for the same results that no order is impossible of, below `most`.

    Of those in a circle, one has to compute what it would read of another, or of what waits for that.
    """
    best: tuple[float, tuple[Candidate, ...]] | None = None

    def part(some: tuple[Candidate, ...], readable: tuple[int, ...]) -> None:
        nonlocal best
        seconds = sum([g.seconds for g in some])
        if seconds >= (most if best is None else best[0]):
            return
        circle = _waiting(some, kernels)
        if not circle:
            best = seconds, some
        for first, second in permutations(circle, 2):
            behind = sum([1 << i for i in members(kernels.inputs(first.body))
                          if kernels.below(1 << i) & second.results])
            if behind and first in some:
                at = some.index(first)
                less = readable[at] & ~behind
                anew = kernels.best(first.results, less)
                if anew.seconds < inf:
                    part((*some[:at], anew, *some[at + 1:]), (*readable[:at], less, *readable[at + 1:]))

    part(tuple(groups), (memory,) * len(groups))
    return best
