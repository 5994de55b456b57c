"""Chains of matrix products, multiplied in the order that takes the fewest operations.

Knows: products of two matrices, or of a matrix with a vector at either end. Must not know: how a
product is run. Receives roots; returns roots.
"""

from __future__ import annotations

from jitla.hops import Hop, make, substitute, topo
from jitla.rewrites.conditions import shared_nodes
from jitla.rewrites.pattern import Var, ops
from jitla.rewrites.rule import Hook, Rule, RuleSet, check

Split = dict[tuple[int, int], int]


def order_products(roots: tuple[Hop, ...], hook: Hook) -> tuple[Hop, ...]:
    """Return `roots` with every chain of products in its cheapest order."""
    refused: set[Hop] = set()
    while (found := _improvable(roots, refused)) is not None:
        before, after = found
        check(MATMUL_CHAIN, before, after)
        if hook(MATMUL_CHAIN, before, after):
            roots = substitute(roots, {before: after})
        else:
            refused.add(before)
    return roots


def _improvable(roots: tuple[Hop, ...], refused: set[Hop]) -> tuple[Hop, Hop] | None:
    """Return the end of a chain that could be cheaper, and what it becomes; outermost first."""
    shared = shared_nodes(roots)
    inner: set[Hop] = set()
    for hop in reversed(topo(roots)):
        if hop.op.name == "matmul" and hop not in inner and _fits(hop):
            factors = _factors(hop, shared, inner)
            after = _cheapest(hop, factors) if len(factors) > 2 and hop not in refused else hop
            if after is not hop:
                return hop, after
    return None


def _fits(hop: Hop) -> bool:
    """Say whether `hop` is a float product of operands with one or two dimensions."""
    return hop.meta.dtype.kind == "f" and all(i.meta.ndim in (1, 2) for i in hop.inputs)


def _factors(hop: Hop, shared: set[Hop], inner: set[Hop]) -> list[Hop]:
    """Return the factors of the chain that ends in `hop`; products on the way are added to `inner`.

    A product is opened only if nothing else needs it, and only at a side where it is a matrix.
    """
    left, right = hop.inputs
    found: list[Hop] = []
    for side, joint in ((left, 1), (right, 0)):
        joins = side.op.name == "matmul" and side.inputs[joint].meta.ndim == 2
        if joins and side not in shared and _fits(side):
            inner.add(side)
            found += _factors(side, shared, inner)
        else:
            found.append(side)
    return found


def _lengths(factors: list[Hop]) -> list[int]:
    """Return the n + 1 lengths of a chain of n factors; a vector at an end is one row or column."""
    first, last = factors[0].meta, factors[-1].meta
    rows = first.shape[0] if first.ndim == 2 else 1
    columns = last.shape[1] if last.ndim == 2 else 1
    return [rows, *(f.meta.shape[0] for f in factors[1:]), columns]


def _cheapest(hop: Hop, factors: list[Hop]) -> Hop:
    """Return the cheapest order of `factors`, or `hop` if it is that already."""
    d = _lengths(factors)
    n = len(factors)
    cost = {(i, i): 0 for i in range(n)}
    split: Split = {}
    for span in range(1, n):
        for i in range(n - span):
            j = i + span
            cost[i, j], split[i, j] = min(
                (cost[i, k] + cost[k + 1, j] + d[i] * d[k + 1] * d[j + 1], k) for k in range(i, j))
    if cost[0, n - 1] >= _cost(hop, set(factors)):
        return hop
    return _assemble(factors, split, 0, n - 1, hop)


def _cost(hop: Hop, factors: set[Hop]) -> int:
    """Return the multiplications that the order in the DAG takes."""
    if hop in factors:
        return 0
    left, right = hop.inputs
    own = left.meta.size * (right.meta.shape[1] if right.meta.ndim == 2 else 1)
    return own + _cost(left, factors) + _cost(right, factors)


def _assemble(factors: list[Hop], split: Split, i: int, j: int, root: Hop) -> Hop:
    if i == j:
        return factors[i]
    k = split[i, j]
    sides = (_assemble(factors, split, i, k, root), _assemble(factors, split, k + 1, j, root))
    return make("matmul", sides, root.line)


MATMUL_CHAIN = Rule(
    "matmul-chain", ops.matmul(Var("A"), Var("B")), across=order_products, exactness="rounding",
    doc="A @ (B @ v) takes far fewer operations than A @ B @ v; roundings differ, overflow, inf "
        "and NaN of partial products may")

CHAINS = RuleSet([MATMUL_CHAIN])
