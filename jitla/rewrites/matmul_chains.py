"""Order of multiplication in chains of matrix products, and extraction of common factors.

Chains are ordered by dynamic programming over costs that take sparsity into account.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from itertools import groupby
from math import inf
from typing import NamedTuple

from jitla.hops import Hop, make, substitute, topo
from jitla.rewrites import matmul_chains as orders
from jitla.rewrites.conditions import SWAP, is_plain_product, shared_nodes, turned
from jitla.rewrites.rule import Bound, Hook, Rule, RuleSet, Var, check, ops

#: Multiplications that take as long as reading or writing an element: products do many with each.
TOUCH = 16.0

Splits = dict[tuple[int, int], int]
Spans = dict[tuple[int, int], "Matrix"]


class Matrix(NamedTuple):
    """What matters of a factor: its size, and how many entries are stored; None: all."""

    rows: int
    columns: int
    stored: float | None = None

    @property
    def entries(self) -> float:
        """Entries that are read when it is read."""
        return float(self.rows * self.columns) if self.stored is None else self.stored

    @property
    def density(self) -> float:
        """Part of the elements that is stored."""
        return self.entries / max(self.rows * self.columns, 1)


Price = Callable[[Matrix, Matrix], float]


def product(left: Matrix, right: Matrix) -> Matrix:
    """Return what is known of a product; nonzeros of two sparse factors are taken to lie anywhere."""
    if left.stored is None or right.stored is None:
        return Matrix(left.rows, right.columns)
    hit = 1.0 - (1.0 - left.density * right.density) ** left.columns
    return Matrix(left.rows, right.columns, hit * left.rows * right.columns)


def price(left: Matrix, right: Matrix) -> float:
    """Return the multiplications that a product takes, and what moving its operands is worth in these."""
    pairs = left.rows * left.columns * right.columns * left.density * right.density
    return pairs + TOUCH * (left.entries + right.entries + product(left, right).entries)


def spans(factors: Sequence[Matrix]) -> Spans:
    """Return what is known of the product of every run of factors, whatever its order is."""
    found: Spans = {}
    for i, factor in enumerate(factors):
        found[i, i] = factor
        for j in range(i + 1, len(factors)):
            found[i, j] = product(found[i, j - 1], factors[j])
    return found


def cheapest(factors: Sequence[Matrix], price: Price = price) -> tuple[float, Splits]:
    """Return the least price of a chain, and for every run of factors where its last product splits it."""
    known = spans(factors)
    cost: dict[tuple[int, int], float] = {(i, i): 0.0 for i in range(len(factors))}
    split: Splits = {}
    for span in range(1, len(factors)):
        for i in range(len(factors) - span):
            j = i + span
            cost[i, j], split[i, j] = min(
                (cost[i, k] + cost[k + 1, j] + price(known[i, k], known[k + 1, j]), k) for k in range(i, j))
    return cost[0, len(factors) - 1], split


def price_of(factors: Sequence[Matrix], split: Splits, price: Price = price) -> float:
    """Return the price of a chain in a given order; infinite where no such order is."""
    known = spans(factors)

    def below(i: int, j: int) -> float:
        if i == j:
            return 0.0
        k = split.get((i, j))
        return inf if k is None else below(i, k) + below(k + 1, j) + price(known[i, k], known[k + 1, j])

    return below(0, len(factors) - 1)


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


def of_meta_chains(hop: Hop) -> int | None:
    """Return the bound of nonzeros that is known of `hop`."""
    return hop.meta.nnz


def order_products(roots: tuple[Hop, ...], hook: Hook, stored: Stored = of_meta_chains) -> tuple[Hop, ...]:
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
            _collect_chains(hop, False, shared, chain)
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


def _collect_chains(hop: Hop, turned: bool, shared: set[Hop], chain: Chain) -> None:
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
        _collect_chains(side, flipped, shared, chain)
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
    sizes = [_size(f, i, len(chain.factors), of_meta_chains) for i, f in enumerate(chain.factors)]
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
