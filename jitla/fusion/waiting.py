"""Kernels that wait for each other: each reads, maybe through others, what the other one makes.

Knows: candidates. Must not know: why they were put together.
Receives kernels; tells whether no order of them is possible.
"""

from __future__ import annotations

from collections.abc import Sequence

from jitla.fusion.candidates import Candidate, Candidates


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
    several = [g for g in groups if g.results & g.results - 1]
    if len(several) < 2:
        return False
    left = [(kernels.waits(g.body), g.results) for g in several]
    while left:
        pending = 0
        for _, results in left:
            pending |= results
        still = [(needs, results) for needs, results in left if needs & pending]
        if len(still) == len(left):
            return True
        left = still
    return False
