"""Chains of matrix products, multiplied in the order that takes least.

Knows: products of matrices, dense or of compressed rows, and of a matrix with a vector at either end;
transposes of products; columns times rows. Must not know: how a product is run.
Receives roots, and how many entries are stored of a value where that is known; returns roots.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import NamedTuple

from jitla.hops import Hop, make, substitute, topo
from jitla.rewrites import orders
from jitla.rewrites.conditions import SWAP, is_plain_product, shared_nodes, turned
from jitla.rewrites.orders import Matrix, Splits, cheapest, price_of
from jitla.rewrites.pattern import Bound, Var, ops
from jitla.rewrites.rule import Hook, Rule, RuleSet, check

Stored = Callable[[Hop], int | None]
WORTH = 0.9  # part of its price that a new order may have at most
# Products of compressed rows with a matrix and with a vector.
_SPARSE = frozenset({"csr_product", "csr_vector"})


class Factor(NamedTuple):
    """A factor of a chain: a matrix or vector, perhaps transposed; or compressed rows, by their arrays."""

    hop: Hop
    turned: bool = False
    rows: tuple[Hop, Hop, Hop] | None = None
    columns: int = 0


class Chain(NamedTuple):
    """A chain, the order it has now, and the products it consists of."""

    root: Hop
    factors: list[Factor]
    split: Splits
    inside: set[Hop]


def of_meta(hop: Hop) -> int | None:
    """Return the bound of nonzeros that is known of `hop`."""
    return hop.meta.nnz


def order_products(roots: tuple[Hop, ...], hook: Hook, stored: Stored = of_meta) -> tuple[Hop, ...]:
    """Return `roots` with every chain of products in its cheapest order."""
    refused: set[Hop] = set()
    while (found := _improvable(roots, refused, stored)) is not None:
        before, after = found
        check(MATMUL_CHAIN, before, after)
        if hook(MATMUL_CHAIN, before, after):
            roots = substitute(roots, {before: after})
        else:
            refused.add(before)
    return roots


def product_chains(roots: tuple[Hop, ...]) -> list[Chain]:
    """Return the chains of three and more factors, outermost first."""
    shared = shared_nodes(roots)
    inner: set[Hop] = set()
    found: list[Chain] = []
    for hop in reversed(topo(roots)):
        if hop not in inner and _is_product(hop):
            chain = Chain(hop, [], {}, set())
            _collect(hop, False, shared, chain)
            inner |= chain.inside
            if len(chain.factors) > 2:
                found.append(chain)
    return found


def _improvable(roots: tuple[Hop, ...], refused: set[Hop], stored: Stored) -> tuple[Hop, Hop] | None:
    """Return the end of a chain that could be cheaper, and what it becomes."""
    for chain in product_chains(roots):
        if chain.root not in refused:
            after = _reordered(chain, stored)
            if after is not None:
                return chain.root, after
    return None


# --------------------------------------------------------------------------- collecting


def _is_product(hop: Hop) -> bool:
    """Say whether `hop` is a float product of operands with one or two dimensions."""
    if hop.op.name in _SPARSE:
        return hop.meta.dtype.kind == "f" and hop.inputs[0].meta.dtype == hop.inputs[3].meta.dtype
    return hop.op.name == "matmul" and hop.meta.dtype.kind == "f" and \
        all(i.meta.ndim in (1, 2) for i in hop.inputs)


def _is_outer(hop: Hop) -> bool:
    """Say whether `hop` is a column times a row: every element is one product."""
    if hop.op.name != "multiply" or hop.meta.ndim != 2 or hop.meta.dtype.kind != "f":
        return False
    return _column_and_row(hop) is not None


def _column_and_row(hop: Hop) -> tuple[Hop, Hop] | None:
    """Return the operand with one column, and the one that all rows meet."""
    for column, row in (hop.inputs, hop.inputs[::-1]):
        one = column.meta.ndim == 2 and column.meta.shape == (hop.meta.shape[0], 1)
        if one and row.meta.shape in (hop.meta.shape[1:], (1, hop.meta.shape[1])) and 1 not in hop.meta.shape:
            return column, row
    return None


def _collect(hop: Hop, turned: bool, shared: set[Hop], chain: Chain) -> None:
    """Add the factors of the product `hop` to the chain, and where it splits them."""
    begin = len(chain.factors)
    sides = _sides(hop)
    at = begin
    for n, (side, joint) in enumerate(sides[::-1] if turned else sides):
        if n:
            at = len(chain.factors) - 1
        _open(side, joint, turned, shared, chain)
    chain.split[begin, len(chain.factors) - 1] = at


def _sides(hop: Hop) -> list[tuple[Hop | Factor, int]]:
    """Return the operands of a product, and the axis of each along which it sums."""
    if hop.op.name in _SPARSE:
        data, columns, starts, x = hop.inputs
        rows = Factor(data, rows=(data, columns, starts), columns=x.meta.shape[0])
        return [(rows, 1), (x, 0)]
    if hop.op.name == "multiply":
        found = _column_and_row(hop)
        assert found is not None
        column, row = found
        if row.meta.ndim == 1:
            row = make("expand_dims", (row,), row.line, axis=(0,))
        return [(column, 1), (row, 0)]
    return [(hop.inputs[0], 1), (hop.inputs[1], 0)]


def _open(side: Hop | Factor, joint: int, turned: bool, shared: set[Hop], chain: Chain) -> None:
    """Add the factors of an operand: a product, its transpose, or itself.

    A product is opened only if nothing else needs it, and only at a side where it is a matrix.
    """
    if isinstance(side, Factor):
        chain.factors.append(side)
        return
    passed = [side]
    flipped = turned
    while side.op.name == "transpose" and side.meta.ndim == 2 and side.attr("axes") == SWAP:
        side, flipped = side.inputs[0], not flipped
        passed.append(side)
        joint = 1 - joint
    product = _is_product(side) and not (flipped and side.op.name in _SPARSE) or _is_outer(side)
    if product and shared.isdisjoint(passed) and _joins(side, joint):
        chain.inside.update(passed)
        _collect(side, flipped, shared, chain)
    else:
        chain.factors.append(Factor(side, flipped and side.meta.ndim == 2))


def _joins(hop: Hop, joint: int) -> bool:
    """Say whether the operand of `hop` at the axis `joint` is a matrix there."""
    side = _sides(hop)[joint][0]
    return isinstance(side, Factor) or side.meta.ndim == 2


# --------------------------------------------------------------------------- ordering


def _reordered(chain: Chain, stored: Stored) -> Hop | None:
    """Return the cheapest order of a chain, or None if it is that already, or nearly."""
    sizes = [_size(f, i, len(chain.factors), stored) for i, f in enumerate(chain.factors)]
    if any(0 in s[:2] for s in sizes):
        return None
    least, split = cheapest(sizes, _price)
    if not least < WORTH * price_of(sizes, chain.split, _price):
        return None
    return _assemble(chain.factors, split, 0, len(sizes) - 1, chain.root)


def _price(left: Matrix, right: Matrix) -> float:
    """Return what a product takes; compressed rows can only be multiplied with what is dense behind them."""
    return inf if right.stored is not None else orders.price(left, right)


def well_ordered(chain: Chain, lengths: Mapping[int, int]) -> bool:
    """Say whether a chain is in a good order where the lengths of its factors are others."""
    sizes = [_size(f, i, len(chain.factors), of_meta) for i, f in enumerate(chain.factors)]
    now = [Matrix(lengths.get(s.rows, s.rows), lengths.get(s.columns, s.columns), s.stored) for s in sizes]
    if any(0 in s[:2] for s in now):
        return True
    return not cheapest(now, _price)[0] < WORTH * price_of(now, chain.split, _price)


def _size(factor: Factor, at: int, count: int, stored: Stored) -> Matrix:
    """Return what matters of a factor; a vector at an end is one row or column."""
    if factor.rows is not None:
        entries = stored(factor.hop)
        rows = factor.rows[2].meta.shape[0] - 1
        return Matrix(rows, factor.columns, float(factor.hop.meta.size if entries is None else entries))
    shape = factor.hop.meta.shape
    if len(shape) == 1:
        return Matrix(1, shape[0]) if at == 0 else Matrix(shape[0], 1)
    return Matrix(*shape[::-1 if factor.turned else 1])


def _assemble(factors: list[Factor], split: Splits, i: int, j: int, root: Hop) -> Hop:
    if i == j:
        factor = factors[i]
        return make("transpose", (factor.hop,), root.line, axes=SWAP) if factor.turned else factor.hop
    k = split[i, j]
    right = _assemble(factors, split, k + 1, j, root)
    rows = factors[i].rows if k == i else None
    if rows is not None:
        return make("csr_product" if right.meta.ndim == 2 else "csr_vector", (*rows, right), root.line)
    left = _assemble(factors, split, i, k, root)
    if left.meta.ndim == 2 and left.meta.shape[1] == 1:  # nothing is summed
        if right.meta.ndim == 1:
            left = make("squeeze", (left,), root.line, axis=(1,))
        return make("multiply", (left, right), root.line)
    return make("matmul", (left, right), root.line)


def vector_first(root: Hop, b: Bound) -> bool:
    """A is a vector, B a matrix."""
    return b["A"].meta.ndim == 1 and b["B"].meta.ndim == 2 and is_plain_product(root)


def turned_times_vector(root: Hop, b: Bound) -> Hop:
    """Build the product of the transposed matrix with the vector."""
    return make("matmul", (turned(b["B"]), b["A"]), root.line)


MATMUL_CHAIN = Rule(
    "matmul-chain", ops.matmul(Var("A"), Var("B")), across=order_products, exactness="rounding",
    doc="A @ (B @ v) takes far fewer operations than A @ B @ v; roundings differ, overflow, inf "
        "and NaN of partial products may")

CHAINS = RuleSet([
    Rule("vector-behind", ops.matmul(Var("A"), Var("B")), build=turned_times_vector, when=vector_first,
         exactness="rounding", doc="one form for both sides: v @ X is X.T @ v; the same sums"),
    MATMUL_CHAIN,
])
