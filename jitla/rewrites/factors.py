"""Products of several cells: numbers and vectors are multiplied before matrices, sparse factors first.

Knows: sizes of factors, how many entries are stored where that is known. Must not know: kernels.
Receives roots; returns roots.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from itertools import groupby

from jitla.hops import Hop, make, substitute, topo
from jitla.rewrites.conditions import shared_nodes
from jitla.rewrites.pattern import Var, ops
from jitla.rewrites.rule import Hook, Rule, RuleSet, check

Stored = Callable[[Hop], int | None]


def of_meta(hop: Hop) -> int | None:
    """Return the bound of nonzeros that is known of `hop`."""
    return hop.meta.nnz


def order_factors(roots: tuple[Hop, ...], hook: Hook, stored: Stored = of_meta) -> tuple[Hop, ...]:
    """Return `roots` with products of three and more cells in the order that multiplies fewest entries."""
    shared = shared_nodes(roots)
    inner: set[Hop] = set()
    changed: dict[Hop, Hop] = {}
    for hop in reversed(topo(roots)):
        if hop.op.name == "multiply" and hop not in inner and hop.meta.dtype.kind == "f":
            factors: list[Hop] = []
            before = _collect(hop, shared, inner, factors, stored)
            after, least = _ordered(factors, stored)
            same = after.meta.shape == hop.meta.shape
            if len(factors) > 2 and same and least < before and hook(CELL_CHAIN, hop, after):
                check(CELL_CHAIN, hop, after)
                changed[hop] = after
    for hop in reversed([h for h in topo(roots) if h in changed]):
        roots = substitute(roots, {hop: changed[hop]})
    return roots


def _collect(hop: Hop, shared: set[Hop], inner: set[Hop], factors: list[Hop], stored: Stored) -> float:
    """Add the factors of a product to `factors`; return how many entries it multiplies."""
    entries = 0.0
    parts: list[Hop] = []
    for side in hop.inputs:
        if side.op.name == "multiply" and side not in shared and side.meta.dtype == hop.meta.dtype:
            inner.add(side)
            own: list[Hop] = []
            entries += _collect(side, shared, inner, own, stored)
            parts += own
        else:
            parts.append(side)
    factors += parts
    return entries + _entries(parts, hop.meta.size, stored)


def _entries(factors: list[Hop], size: int, stored: Stored) -> float:
    """Return how many entries of a product of `size` elements are not known to be zero."""
    known = [n for f in factors if f.meta.size == size and (n := stored(f)) is not None]
    return float(min([size, *known]))


def _ordered(factors: list[Hop], stored: Stored) -> tuple[Hop, float]:
    """Return the product of factors of one shape after the other, small shapes and sparse factors first."""
    def rank(hop: Hop) -> tuple[int, tuple[int, ...], float]:
        entries = stored(hop)
        return hop.meta.size, hop.meta.shape, hop.meta.size if entries is None else entries

    count = 0.0

    def times(left: list[Hop], right: list[Hop]) -> list[Hop]:
        nonlocal count
        made = make("multiply", (joined[tuple(left)], joined[tuple(right)]))
        both = left + right
        joined[tuple(both)] = made
        count += _entries(both, made.meta.size, stored)
        return both

    joined: dict[tuple[Hop, ...], Hop] = {(f,): f for f in factors}
    groups = [reduce(times, [[f] for f in same])
              for _, same in groupby(sorted(factors, key=rank), key=lambda f: f.meta.shape)]
    # what is largest takes the others in one by one, so that no two of these make a larger one
    whole = reduce(times, [groups[-1], *groups[:-1]])
    return joined[tuple(whole)], count


CELL_CHAIN = Rule(
    "cell-chain", ops.multiply(Var("A"), Var("B")), across=order_factors, exactness="relaxed",
    doc="numbers and vectors first, then sparse factors: fewer elements are multiplied; roundings differ, "
        "overflow of partial products may")

FACTORS = RuleSet([CELL_CHAIN])
