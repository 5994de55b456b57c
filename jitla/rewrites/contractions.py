"""Order of contractions: chains of matrix and element-wise products, and the expansion of `einsum` and norms.

Matrix chains are parenthesised by dynamic programming over the runs of factors, O(n³), with costs that
take sparsity into account (Cormen et al., "Introduction to Algorithms", matrix-chain multiplication).
Factors of element-wise products are sorted, smallest and sparsest first.

The contraction order of `einsum` with several operands is found by dynamic programming over their subsets,
minimising floating-point operations and memory accesses; see Smith and Gray, "opt_einsum", Journal of Open
Source Software 3(26), 2018. Contractions and norms are expanded into products and sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import groupby
from math import inf, prod
from typing import NamedTuple

from jitla.hops import Hop, make, parse_subscripts, substitute, topo
from jitla.rewrites.rule import (
    SWAP,
    App,
    AttrVar,
    Bindings,
    Hook,
    Rule,
    RuleSet,
    Var,
    check_type_unchanged,
    is_float_product,
    ops,
    shared_nodes,
    transposed,
)

# --------------------------------------------------------------------------- chains of products


#: Multiplications that take as long as reading or writing one element.
MULTIPLICATIONS_PER_ACCESS = 16.0

Splits = dict[tuple[int, int], int]
RunSizes = dict[tuple[int, int], "FactorSize"]


class FactorSize(NamedTuple):
    """Dimensions of a factor and its expected number of nonzeros; None for a dense factor."""

    rows: int
    columns: int
    nonzeros: float | None = None

    @property
    def entries(self) -> float:
        """Number of stored entries."""
        return float(self.rows * self.columns) if self.nonzeros is None else self.nonzeros

    @property
    def density(self) -> float:
        """Stored entries divided by elements."""
        return self.entries / max(self.rows * self.columns, 1)


PriceFunction = Callable[[FactorSize, FactorSize], float]


def product_size(left: FactorSize, right: FactorSize) -> FactorSize:
    """Return the size of a product; nonzeros of sparse factors are assumed to be uniformly distributed."""
    if left.nonzeros is None or right.nonzeros is None:
        return FactorSize(left.rows, right.columns)
    filled = 1.0 - (1.0 - left.density * right.density) ** left.columns
    return FactorSize(left.rows, right.columns, filled * left.rows * right.columns)


def product_price(left: FactorSize, right: FactorSize) -> float:
    """Return the cost of a product in multiplications, memory accesses included."""
    pairs = left.rows * left.columns * right.columns * left.density * right.density
    accesses = left.entries + right.entries + product_size(left, right).entries
    return pairs + MULTIPLICATIONS_PER_ACCESS * accesses


def run_sizes(factors: Sequence[FactorSize]) -> RunSizes:
    """Return the size of the product of every run of factors, independent of the order."""
    sizes: RunSizes = {}
    for i, factor in enumerate(factors):
        sizes[i, i] = factor
        for j in range(i + 1, len(factors)):
            sizes[i, j] = product_size(sizes[i, j - 1], factors[j])
    return sizes


def cheapest_order(
    factors: Sequence[FactorSize], price: PriceFunction = product_price,
) -> tuple[float, Splits]:
    """Return the minimum cost of a chain, and the split point of every run of factors in that order."""
    sizes = run_sizes(factors)
    cost: dict[tuple[int, int], float] = {(i, i): 0.0 for i in range(len(factors))}
    split: Splits = {}
    for span in range(1, len(factors)):
        for i in range(len(factors) - span):
            j = i + span
            cost[i, j], split[i, j] = min(
                (cost[i, k] + cost[k + 1, j] + price(sizes[i, k], sizes[k + 1, j]), k) for k in range(i, j))
    return cost[0, len(factors) - 1], split


def order_price(
    factors: Sequence[FactorSize], split: Splits, price: PriceFunction = product_price,
) -> float:
    """Return the cost of a chain in the order given by `split`; infinite if that is no complete order."""
    sizes = run_sizes(factors)

    def below(i: int, j: int) -> float:
        if i == j:
            return 0.0
        k = split.get((i, j))
        return inf if k is None else below(i, k) + below(k + 1, j) + price(sizes[i, k], sizes[k + 1, j])

    return below(0, len(factors) - 1)


NonzeroBound = Callable[[Hop], int | None]


def nonzeros_bound(hop: Hop) -> int | None:
    """Return the upper bound on the nonzeros of `hop`, if one is known."""
    return hop.meta.nnz


def order_factors(
    roots: tuple[Hop, ...], hook: Hook, nonzeros: NonzeroBound = nonzeros_bound,
) -> tuple[Hop, ...]:
    """Return `roots` with element-wise products of three or more factors in their cheapest order."""
    shared = shared_nodes(roots)
    inner: set[Hop] = set()
    changed: dict[Hop, Hop] = {}
    for hop in reversed(topo(roots)):
        if hop.op.name == "multiply" and hop not in inner and hop.meta.dtype.kind == "f":
            factors: list[Hop] = []
            before = _collect_factors(hop, shared, inner, factors, nonzeros)
            after, least = _multiply_in_order(factors, nonzeros)
            same_shape = after.meta.shape == hop.meta.shape
            if len(factors) > 2 and same_shape and least < before and hook(CELL_CHAIN_RULE, hop, after):
                check_type_unchanged(CELL_CHAIN_RULE, hop, after)
                changed[hop] = after
    for hop in reversed([h for h in topo(roots) if h in changed]):
        roots = substitute(roots, {hop: changed[hop]})
    return roots


def _collect_factors(
    hop: Hop, shared: set[Hop], inner: set[Hop], factors: list[Hop], nonzeros: NonzeroBound,
) -> float:
    """Append the factors of a product to `factors`; return the number of entries it multiplies."""
    entries = 0.0
    factors_here: list[Hop] = []
    for side in hop.inputs:
        if side.op.name == "multiply" and side not in shared and side.meta.dtype == hop.meta.dtype:
            inner.add(side)
            side_factors: list[Hop] = []
            entries += _collect_factors(side, shared, inner, side_factors, nonzeros)
            factors_here += side_factors
        else:
            factors_here.append(side)
    factors += factors_here
    return entries + _multiplied_entries(factors_here, hop.meta.size, nonzeros)


def _multiplied_entries(factors: list[Hop], size: int, nonzeros: NonzeroBound) -> float:
    """Return an upper bound on the nonzero entries of a product of `size` elements."""
    bounds = [n for f in factors if f.meta.size == size and (n := nonzeros(f)) is not None]
    return float(min([size, *bounds]))


def _multiply_in_order(factors: list[Hop], nonzeros: NonzeroBound) -> tuple[Hop, float]:
    """Return the product of `factors`, small shapes and sparse factors first, and the entries multiplied."""
    def rank(hop: Hop) -> tuple[int, tuple[int, ...], float]:
        entries = nonzeros(hop)
        return hop.meta.size, hop.meta.shape, hop.meta.size if entries is None else entries

    count = 0.0

    def multiply(left: list[Hop], right: list[Hop]) -> list[Hop]:
        nonlocal count
        product = make("multiply", (products[tuple(left)], products[tuple(right)]))
        run = left + right
        products[tuple(run)] = product
        count += _multiplied_entries(run, product.meta.size, nonzeros)
        return run

    products: dict[tuple[Hop, ...], Hop] = {(f,): f for f in factors}
    groups = [reduce(multiply, [[f] for f in members])
              for _, members in groupby(sorted(factors, key=rank), key=lambda f: f.meta.shape)]
    # the largest group is multiplied by the others one by one: products of two small ones may be larger
    whole = reduce(multiply, [groups[-1], *groups[:-1]])
    return products[tuple(whole)], count


CELL_CHAIN_RULE = Rule(
    "cell-chain", ops.multiply(Var("A"), Var("B")), whole_dag=order_factors, exactness="relaxed",
    doc="scalars and vectors first, then sparse factors: fewer elements are multiplied; roundings differ, "
        "overflow of partial products may")

CELL_CHAIN_RULES = RuleSet([CELL_CHAIN_RULE])


#: A chain is reordered if the new order costs less than this fraction of the old one.
MAX_COST_RATIO = 0.9
#: Products of a compressed sparse row (CSR) matrix with a matrix and with a vector.
_SPARSE_PRODUCTS = frozenset({"csr_product", "csr_vector"})


class Factor(NamedTuple):
    """A factor of a chain: a dense matrix or vector, possibly transposed, or a CSR matrix.

    `rows` holds the data, column and row-start arrays of a CSR matrix, `columns` its number of columns.
    """

    hop: Hop
    transposed: bool = False
    rows: tuple[Hop, Hop, Hop] | None = None
    columns: int = 0


class Chain(NamedTuple):
    """A chain of matrix products: its factors, its current order, and the inner products and transposes."""

    root: Hop
    factors: list[Factor]
    split: Splits
    inner_products: set[Hop]


def order_chains(
    roots: tuple[Hop, ...], hook: Hook, nonzeros: NonzeroBound = nonzeros_bound,
) -> tuple[Hop, ...]:
    """Return `roots` with every chain of matrix products in its cheapest order."""
    refused: set[Hop] = set()
    while (improvement := _find_improvement(roots, refused, nonzeros)) is not None:
        before, after = improvement
        check_type_unchanged(MATMUL_CHAIN_RULE, before, after)
        if hook(MATMUL_CHAIN_RULE, before, after):
            roots = substitute(roots, {before: after})
        else:
            refused.add(before)
    return roots


def find_matmul_chains(roots: tuple[Hop, ...]) -> list[Chain]:
    """Return the chains of three or more factors, outermost first."""
    shared = shared_nodes(roots)
    inner: set[Hop] = set()
    chains: list[Chain] = []
    for hop in reversed(topo(roots)):
        if hop not in inner and _is_product(hop):
            chain = Chain(hop, [], {}, set())
            _collect_product(hop, False, shared, chain)
            inner |= chain.inner_products
            if len(chain.factors) > 2:
                chains.append(chain)
    return chains


def _find_improvement(
    roots: tuple[Hop, ...], refused: set[Hop], nonzeros: NonzeroBound,
) -> tuple[Hop, Hop] | None:
    """Return the root of a chain with a cheaper order, and its replacement."""
    for chain in find_matmul_chains(roots):
        if chain.root not in refused:
            after = _reorder(chain, nonzeros)
            if after is not None:
                return chain.root, after
    return None


# --------------------------------------------------------------------------- collecting


def _is_product(hop: Hop) -> bool:
    """Return whether `hop` is a float matrix product of operands with one or two dimensions."""
    if hop.op.name in _SPARSE_PRODUCTS:
        return hop.meta.dtype.kind == "f" and hop.inputs[0].meta.dtype == hop.inputs[3].meta.dtype
    return hop.op.name == "matmul" and hop.meta.dtype.kind == "f" and \
        all(i.meta.ndim in (1, 2) for i in hop.inputs)


def _is_outer(hop: Hop) -> bool:
    """Return whether `hop` is an outer product: a column times a row."""
    if hop.op.name != "multiply" or hop.meta.ndim != 2 or hop.meta.dtype.kind != "f":
        return False
    return _column_and_row(hop) is not None


def _column_and_row(hop: Hop) -> tuple[Hop, Hop] | None:
    """Return the operands of an outer product, the column first; None if it is not one."""
    for column, row in (hop.inputs, hop.inputs[::-1]):
        is_column = column.meta.ndim == 2 and column.meta.shape == (hop.meta.shape[0], 1)
        is_row = row.meta.shape in (hop.meta.shape[1:], (1, hop.meta.shape[1]))
        if is_column and is_row and 1 not in hop.meta.shape:
            return column, row
    return None


def _collect_product(hop: Hop, transposed: bool, shared: set[Hop], chain: Chain) -> None:
    """Append the factors of the product `hop` to the chain, and record its split point."""
    begin = len(chain.factors)
    operands = _product_operands(hop)
    at = begin
    for index, (side, contracted_axis) in enumerate(operands[::-1] if transposed else operands):
        if index:
            at = len(chain.factors) - 1
        _expand_operand(side, contracted_axis, transposed, shared, chain)
    chain.split[begin, len(chain.factors) - 1] = at


def _product_operands(hop: Hop) -> list[tuple[Hop | Factor, int]]:
    """Return the operands of a product, each with its contracted axis."""
    if hop.op.name in _SPARSE_PRODUCTS:
        data, columns, starts, x = hop.inputs
        rows = Factor(data, rows=(data, columns, starts), columns=x.meta.shape[0])
        return [(rows, 1), (x, 0)]
    if hop.op.name == "multiply":
        operands = _column_and_row(hop)
        assert operands is not None
        column, row = operands
        if row.meta.ndim == 1:
            row = make("expand_dims", (row,), row.line, axis=(0,))
        return [(column, 1), (row, 0)]
    return [(hop.inputs[0], 1), (hop.inputs[1], 0)]


def _expand_operand(
    side: Hop | Factor, contracted_axis: int, transposed: bool, shared: set[Hop], chain: Chain,
) -> None:
    """Append the factors of an operand: those of a product or of its transpose, or the operand itself.

    A product is expanded only if it has no other user, and only where its own operand is a matrix.
    """
    if isinstance(side, Factor):
        chain.factors.append(side)
        return
    visited = [side]
    is_transposed = transposed
    while side.op.name == "transpose" and side.meta.ndim == 2 and side.attr("axes") == SWAP:
        side, is_transposed = side.inputs[0], not is_transposed
        visited.append(side)
        contracted_axis = 1 - contracted_axis
    transposed_sparse = is_transposed and side.op.name in _SPARSE_PRODUCTS
    is_product = _is_product(side) and not transposed_sparse or _is_outer(side)
    if is_product and shared.isdisjoint(visited) and _is_matrix_operand(side, contracted_axis):
        chain.inner_products.update(visited)
        _collect_product(side, is_transposed, shared, chain)
    else:
        chain.factors.append(Factor(side, is_transposed and side.meta.ndim == 2))


def _is_matrix_operand(hop: Hop, contracted_axis: int) -> bool:
    """Return whether the operand of `hop` that has the axis `contracted_axis` of its result is a matrix."""
    side = _product_operands(hop)[contracted_axis][0]
    return isinstance(side, Factor) or side.meta.ndim == 2


# --------------------------------------------------------------------------- ordering


def _reorder(chain: Chain, nonzeros: NonzeroBound) -> Hop | None:
    """Return the chain in its cheapest order, or None if the current one is nearly as cheap."""
    sizes = [_factor_size(f, i, nonzeros) for i, f in enumerate(chain.factors)]
    if any(0 in s[:2] for s in sizes):
        return None
    least, split = cheapest_order(sizes, _chain_price)
    if not least < MAX_COST_RATIO * order_price(sizes, chain.split, _chain_price):
        return None
    return _assemble(chain.factors, split, 0, len(sizes) - 1, chain.root)


def _chain_price(left: FactorSize, right: FactorSize) -> float:
    """Return the cost of a product; infinite if the right factor is sparse, which no kernel supports."""
    return inf if right.nonzeros is not None else product_price(left, right)


def is_well_ordered(chain: Chain, lengths: Mapping[int, int]) -> bool:
    """Return whether the order of a chain is nearly the cheapest with axis lengths replaced by `lengths`."""
    sizes = [_factor_size(f, i, nonzeros_bound) for i, f in enumerate(chain.factors)]
    now = [FactorSize(lengths.get(s.rows, s.rows), lengths.get(s.columns, s.columns), s.nonzeros)
           for s in sizes]
    if any(0 in s[:2] for s in now):
        return True
    least, _ = cheapest_order(now, _chain_price)
    return not least < MAX_COST_RATIO * order_price(now, chain.split, _chain_price)


def _factor_size(factor: Factor, index: int, nonzeros: NonzeroBound) -> FactorSize:
    """Return the size of a factor; a vector is a row at the front of the chain and a column at its end."""
    if factor.rows is not None:
        entries = nonzeros(factor.hop)
        rows = factor.rows[2].meta.shape[0] - 1
        return FactorSize(rows, factor.columns, float(factor.hop.meta.size if entries is None else entries))
    shape = factor.hop.meta.shape
    if len(shape) == 1:
        return FactorSize(1, shape[0]) if index == 0 else FactorSize(shape[0], 1)
    return FactorSize(*shape[::-1 if factor.transposed else 1])


def _assemble(factors: list[Factor], split: Splits, i: int, j: int, root: Hop) -> Hop:
    """Build the product of the factors `i` to `j` in the order given by `split`."""
    if i == j:
        factor = factors[i]
        return make("transpose", (factor.hop,), root.line, axes=SWAP) if factor.transposed else factor.hop
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


def is_vector_matrix_product(root: Hop, b: Bindings) -> bool:
    """A is a vector, B a matrix."""
    return b["A"].meta.ndim == 1 and b["B"].meta.ndim == 2 and is_float_product(root)


def multiply_vector_last(root: Hop, b: Bindings) -> Hop:
    """Build the product of the transposed matrix with the vector."""
    return make("matmul", (transposed(b["B"]), b["A"]), root.line)


MATMUL_CHAIN_RULE = Rule(
    "matmul-chain", ops.matmul(Var("A"), Var("B")), whole_dag=order_chains, exactness="rounding",
    doc="A @ (B @ v) takes far fewer operations than A @ B @ v; roundings differ, overflow, inf "
        "and NaN of partial products may")

CHAIN_RULES = RuleSet([
    Rule("vector-behind", ops.matmul(Var("A"), Var("B")), build=multiply_vector_last,
         when=is_vector_matrix_product, exactness="rounding",
         doc="a canonical form for both sides: v @ X is X.T @ v; the same sums"),
    MATMUL_CHAIN_RULE,
])


X, Y, Z = Var("X"), Var("Y"), Var("Z")
AXIS, KEEPDIMS, ORDER = AttrVar("axis"), AttrVar("keepdims"), AttrVar("order")


def _is_float(hop: Hop) -> bool:
    return hop.meta.dtype.kind == "f" and hop.meta.dtype.itemsize >= 4


# --------------------------------------------------------------------------- norms


def is_axis_norm(root: Hop, b: Bindings) -> bool:
    """X holds floats, and the norm is a 1-, 2- or maximum norm along given axes, or of a vector."""
    vector = b["axis"] is None and b["X"].meta.ndim == 1 and b["order"] in (1, math.inf)
    return _is_float(b["X"]) and (vector or b["axis"] is not None) and b["order"] in (None, 1, 2, math.inf)


def is_full_norm(root: Hop, b: Bindings) -> bool:
    """X holds floats, and the norm is the 2-norm of all elements."""
    return _is_float(b["X"]) and b["axis"] is None and b["order"] in (None, 2)


def expand_norm(root: Hop, b: Bindings) -> Hop:
    """Build the sum of absolute values, their maximum, or the root of the sum of squares."""
    x, line = b["X"], root.line
    axis = tuple(range(x.meta.ndim)) if b["axis"] is None else b["axis"]
    options = {"axis": axis, "keepdims": b["keepdims"]}
    if b["order"] in (1, math.inf):
        return make("sum" if b["order"] == 1 else "max", (make("absolute", (x,), line),), line, **options)
    return make("sqrt", (make("sum", (make("square", (x,), line),), line, **options),), line)


_NORM_PATTERN: App = ops.norm(X, order=ORDER, axis=AXIS, keepdims=KEEPDIMS)
NORM_RULES = RuleSet([
    Rule("norm-over-axes", _NORM_PATTERN, build=expand_norm, when=is_axis_norm,
         doc="NumPy's algorithm, bit for bit, in operators that fuse"),
    Rule("norm-of-all", _NORM_PATTERN, build=expand_norm, when=is_full_norm, exactness="rounding",
         doc="pairwise sum of squares, which fuses; NumPy calls a BLAS product"),
])

# --------------------------------------------------------------------------- einsum


def can_expand(root: Hop, b: Bindings) -> bool:
    """The operands are floats without repeated labels or broadcasting; the contraction has an expansion."""
    terms, result = parse_subscripts(root.attr("subscripts"))
    distinct = all(len(set(labels)) == len(labels) for labels in (*terms, result))
    lengths = {pair for labels, x in zip(terms, root.inputs, strict=True)
               for pair in zip(labels, x.meta.shape, strict=True)}
    consistent = len(lengths) == len(set("".join(terms)))
    plain = distinct and consistent and all(map(_is_float, root.inputs))
    return plain and _contraction_kind(terms, result) is not None


def _contraction_kind(terms: tuple[str, ...], result: str) -> str | None:
    """Return the expansion of a contraction; None if there is none.

    "product": a matrix product; "stacks": a batched matrix product; "matrices": a matrix product of folded
    operands; "cells": an element-wise product over the labels of one operand, then a sum.
    """
    labels_used = set("".join(terms))
    summed = labels_used - set(result)
    if len(terms) == 2 and len(summed) == 1:
        (label,) = summed
        left, right = terms
        no_other_common = label in left and label in right and not (set(left) & set(right)) - summed
        if no_other_common and max(len(left), len(right)) == 2:
            return "product"
        if label in left and label in right and _batch_labels(left, right, result) is not None:
            return "stacks"
    if len(terms) == 2 and _result_operands(terms, result) is not None:
        return "matrices"
    if not summed and len(terms) == 1:
        return None
    covered = any(set(labels) == labels_used for labels in terms)
    return "cells" if covered or not summed and len(terms) == 2 else None


def _result_operands(terms: tuple[str, ...], result: str) -> tuple[int, int] | None:
    """Return which operand has the leading labels of the result and which the trailing ones; None if mixed.

    All other labels must be common and summed. The result then is a matrix product of the operands, each
    reshaped to a matrix.
    """
    for first, second in ((0, 1), (1, 0)):
        rows, columns = ([c for c in labels if c in result] for labels in (terms[first], terms[second]))
        common = set(terms[first]) & set(terms[second])
        if rows and columns and common and set(terms[0]) | set(terms[1]) == common | set(result) \
                and common.isdisjoint(result) and set(result[:len(rows)]) == set(rows) \
                and set(result[len(rows):]) == set(columns):
            return first, second
    return None


def _batch_labels(left: str, right: str, result: str) -> tuple[str, bool] | None:
    """Return the batch labels of a batched matrix product, and whether the operands are swapped.

    All batch labels belong to both operands, or all to one of them. The last two labels of the result are
    the rows of one operand's matrices and the columns of the other's.
    """
    stack, (row, column) = result[:-2], tuple(result[-2:]) if len(result) > 2 else ("", "")
    swapped = row in right and row not in left
    first, second = (right, left) if swapped else (left, right)
    if not stack or row not in first or row in second or column not in second or column in first:
        return None
    ranks = {len(labels) - 2 for labels in (first, second)}
    return (stack, swapped) if ranks <= {0, len(stack)} else None


def expand_einsum(root: Hop, b: Bindings) -> Hop:
    """Build matrix products, or element-wise products and their sum, with the axes of the result."""
    terms, result = parse_subscripts(root.attr("subscripts"))
    if _contraction_kind(terms, result) == "product":
        return _build_product(root, terms, result)
    if _contraction_kind(terms, result) == "stacks":
        return _build_batched_product(root, terms, result)
    if _contraction_kind(terms, result) == "matrices":
        return _build_folded_product(root, terms, result)
    space = max(terms, key=len)
    if set(space) != set("".join(terms)):
        space = result
    cells = [_align_axes(x, labels, space) for x, labels in zip(root.inputs, terms, strict=True)]
    result_hop = reduce(lambda x, y: make("multiply", (x, y), root.line), cells)
    axis = tuple(i for i, label in enumerate(space) if label not in result)
    if axis:
        result_hop = make("sum", (result_hop,), root.line, axis=axis, keepdims=False)
    return _permute(result_hop, "".join(label for label in space if label in result), result)


def _build_product(root: Hop, terms: tuple[str, ...], result: str) -> Hop:
    """Build a matrix or vector product."""
    left, right = terms
    x, y = root.inputs
    (label,) = set(left) - set(result)
    if right.replace(label, "") + left.replace(label, "") == result and len(result) == 2:
        left, right, x, y = right, left, y, x
    x = _permute(x, left, left.replace(label, "") + label)
    y = _permute(y, right, label + right.replace(label, ""))
    return make("matmul", (x, y), root.line)


def _build_batched_product(root: Hop, terms: tuple[str, ...], result: str) -> Hop:
    """Build a batched matrix product."""
    left, right = terms
    x, y = root.inputs
    (label,) = set(left) & set(right) - set(result)
    batch = _batch_labels(left, right, result)
    assert batch is not None
    stack, swapped = batch
    if swapped:
        left, right, x, y = right, left, y, x
    x = _permute(x, left, (stack if len(left) > 2 else "") + result[-2] + label)
    y = _permute(y, right, (stack if len(right) > 2 else "") + label + result[-1])
    return make("matmul", (x, y), root.line)


def _build_folded_product(root: Hop, terms: tuple[str, ...], result: str) -> Hop:
    """Build a product of operands reshaped to matrices, and unfold the result."""
    sides = _result_operands(terms, result)
    assert sides is not None
    (left, x), (right, y) = ((terms[n], root.inputs[n]) for n in sides)
    larger = left if x.meta.size >= y.meta.size else right  # keeps its axis order, to avoid a copy
    summed = "".join(c for c in larger if c not in result)
    rows, columns = result[:len(left) - len(summed)], result[len(left) - len(summed):]
    x = _fold_to_matrix(_permute(x, left, rows + summed), len(rows))
    y = _fold_to_matrix(_permute(y, right, summed + columns), len(summed))
    product = make("matmul", (x, y), root.line)
    return product if root.meta.ndim == 2 else make("reshape", (product,), root.line, shape=root.meta.shape)


def _fold_to_matrix(x: Hop, first: int) -> Hop:
    """Return `x` reshaped to a matrix: its `first` leading axes, and the others."""
    if x.meta.ndim == 2:
        return x
    shape = x.meta.shape
    return make("reshape", (x,), x.line, shape=(math.prod(shape[:first]), math.prod(shape[first:])))


def _align_axes(x: Hop, labels: str, space: str) -> Hop:
    """Return `x` with its axes in the order of `space`, ready to broadcast along the missing ones."""
    ordered = "".join(label for label in space if label in labels)
    x = _permute(x, labels, ordered)
    leading = space.index(ordered[0]) if ordered else len(space)  # broadcasting inserts leading axes
    new = tuple(i - leading for i in range(leading, len(space)) if space[i] not in labels)
    return make("expand_dims", (x,), x.line, axis=new) if new and ordered else x


def _permute(x: Hop, labels: str, wanted: str) -> Hop:
    """Return `x`, whose axes have `labels`, with its axes in the order `wanted`."""
    axes = tuple(labels.index(label) for label in wanted)
    return x if labels == wanted else make("transpose", (x,), x.line, axes=axes)


EINSUM_RULES = RuleSet([
    Rule(f"einsum-of-{name}", ops.einsum(*operands), build=expand_einsum, when=can_expand,
         exactness="rounding",
         doc="BLAS products or a fused loop; NumPy adds sequentially, starting from a zero that turns -0.0 "
             "into 0.0")
    for name, operands in (("one", (X,)), ("two", (X, Y)), ("three", (X, Y, Z)))
])

NORM_AND_EINSUM_RULES = NORM_RULES + EINSUM_RULES


MAX_OPERANDS = 6
#: A contraction path is used if it costs less than this fraction of NumPy's single loop nest.
MAX_PATH_COST_RATIO = 0.5


class _Contraction(NamedTuple):
    """An einsum: the labels of its operands and of its result, and the length of each label."""

    terms: tuple[str, ...]
    result: str
    lengths: dict[str, int]

    def remaining_labels(self, members: int) -> str:
        """Return the labels of the product of a set of operands, in the order of first occurrence."""
        inside = [labels for n, labels in enumerate(self.terms) if members >> n & 1]
        outside = [labels for n, labels in enumerate(self.terms) if not members >> n & 1]
        needed = set(self.result).union(*outside)
        return "".join(dict.fromkeys(c for labels in inside for c in labels if c in needed))

    def iteration_count(self, labels: str) -> int:
        """Return the trip count of a loop nest over the labels."""
        return prod(self.lengths[c] for c in set(labels))


class _Path(NamedTuple):
    """The cost of a contraction path for a set of operands, and the two subsets that are contracted last."""

    cost: float
    parts: tuple[int, int] | None = None


def _parse_contraction(root: Hop) -> _Contraction | None:
    """Return the contraction; None if lengths are 0 or inconsistent, or an operand has a label twice."""
    terms, result = parse_subscripts(root.attr("subscripts"))
    lengths: dict[str, int] = {}
    for labels, operand in zip(terms, root.inputs, strict=True):
        for label, n in zip(labels, operand.meta.shape, strict=True):
            if lengths.setdefault(label, n) != n or n == 0:
                return None
    return _Contraction(terms, result, lengths) if all(len(set(t)) == len(t) for t in terms) else None


def _cheapest_paths(contraction: _Contraction) -> dict[int, _Path]:
    """Return the cheapest path for every non-empty set of operands, a bit set."""
    count = len(contraction.terms)
    best = {1 << n: _Path(0.0) for n in range(count)}
    for members in sorted(range(1, 1 << count), key=int.bit_count):
        if members not in best:
            best[members] = min(_Path(
                best[part].cost + best[members ^ part].cost + _pair_cost(contraction, part, members ^ part),
                (part, members ^ part)) for part in _bipartitions(members))
    return best


def _bipartitions(members: int) -> Iterator[int]:
    """Yield, for every split of a set in two, the part with the first member."""
    first = members & -members
    part = members
    while part := (part - 1) & members:
        if part & first:
            yield part


def _pair_cost(contraction: _Contraction, one: int, other: int) -> float:
    """Return the cost of contracting two sets of operands, in multiplications."""
    loops = contraction.remaining_labels(one) + contraction.remaining_labels(other)
    result = contraction.remaining_labels(one | other)
    written = contraction.iteration_count(result)
    return contraction.iteration_count(loops) + MULTIPLICATIONS_PER_ACCESS * written


def has_cheaper_path(root: Hop, b: Bindings) -> bool:
    """The operands are floats, and pairwise contraction costs far less than a single loop nest."""
    if root.meta.dtype.kind != "f" or root.meta.dtype.itemsize < 4:
        return False
    contraction = _parse_contraction(root)
    if contraction is None:
        return False
    every = (1 << len(contraction.terms)) - 1
    naive = float(len(contraction.terms) * contraction.iteration_count("".join(contraction.terms)))
    return _cheapest_paths(contraction)[every].cost < MAX_PATH_COST_RATIO * naive


def contract_pairwise(root: Hop, b: Bindings) -> Hop:
    """Build einsums of two operands along the cheapest contraction path."""
    contraction = _parse_contraction(root)
    assert contraction is not None
    paths = _cheapest_paths(contraction)

    def build_product_of(members: int, labels: str) -> Hop:
        parts = paths[members].parts
        if parts is None:
            return root.inputs[members.bit_length() - 1]
        part_labels = [contraction.remaining_labels(part) if paths[part].parts
                       else contraction.terms[part.bit_length() - 1] for part in parts]
        pair = [build_product_of(*each) for each in zip(parts, part_labels, strict=True)]
        return make("einsum", pair, root.line, subscripts=f"{','.join(part_labels)}->{labels}")

    return build_product_of((1 << len(contraction.terms)) - 1, contraction.result)


CONTRACTION_PATH_RULES = RuleSet([
    Rule(f"einsum-path-of-{count}", ops.einsum(*[Var(f"X{n}") for n in range(count)]),
         build=contract_pairwise, when=has_cheaper_path, exactness="rounding",
         doc="two operands at a time in the cheapest order, instead of one loop nest over all labels; "
             "roundings differ, overflow of partial sums may")
    for count in range(3, MAX_OPERANDS + 1)
])
