"""Substitutions for the search: factors of rows, columns and whole matrices move through products.

Knows: a number, a column or a row times a matrix beside a product. Must not know: which place is best.
Returns `WEIGHTS`. A product with weights is one of three matrices, one of them diagonal: that these may be
multiplied in any order is what chains of products rest on, too.
"""

from __future__ import annotations

from jitla.hops import Hop, make
from jitla.rewrites.conditions import shape_of_product, turned
from jitla.rewrites.pattern import Bound, Var, ops
from jitla.rewrites.rule import Rule, RuleSet

A, B, X, S = Var("A"), Var("B"), Var("X"), Var("S")
_MOVES = frozenset(("transpose", "expand_dims", "squeeze"))  # of a column or row: its elements stay in order
_DOC = "weights are multiplied where there are fewest elements; partial products may overflow elsewhere"


def role(weights: Hop, matrix: Hop) -> str | None:
    """Return what `weights` times `matrix` weighs: "all", its "rows" or "columns"; None if neither."""
    shape = weights.meta.shape
    if shape == ():
        return "all"
    if matrix.meta.ndim == 1:
        return "rows" if shape == matrix.meta.shape and shape != (1,) else None
    rows, columns = matrix.meta.shape
    if 1 in (rows, columns):
        return None
    if shape == (rows, 1):
        return "rows"
    return "columns" if shape in ((columns,), (1, columns)) else None


def as_vector(weights: Hop) -> Hop:
    """Return a column or a row as a vector."""
    while weights.op.name in _MOVES:
        weights = weights.inputs[0]
    if weights.meta.ndim < 2:
        return weights
    return make("squeeze", (weights,), weights.line, axis=(weights.meta.shape.index(1),))


def weighted(matrix: Hop, weights: Hop, rows: bool) -> Hop:
    """Return `matrix` with its rows, else its columns, multiplied by `weights`."""
    if weights.meta.ndim:
        weights = as_vector(weights)
        if rows and matrix.meta.ndim == 2:
            weights = make("expand_dims", (weights,), weights.line, axis=(1,))
    return make("multiply", (matrix, weights), matrix.line)


def left_is_weighted(root: Hop, b: Bound) -> bool:
    """Of the left operand, a matrix, rows or columns or everything is weighted."""
    fits = shape_of_product(b["X"], b["B"]) == root.meta.shape
    return fits and b["X"].meta.ndim == 2 and role(b["S"], b["X"]) is not None


def right_is_weighted(root: Hop, b: Bound) -> bool:
    """Of the right operand rows or columns or everything is weighted."""
    fits = shape_of_product(b["A"], b["X"]) == root.meta.shape
    return fits and b["A"].meta.ndim == 2 and role(b["S"], b["X"]) is not None


def product_is_weighted(root: Hop, b: Bound) -> bool:
    """Of the product of A, a matrix, with B, rows or columns or everything is weighted."""
    shape = shape_of_product(b["A"], b["B"])
    product = next((i for i in root.inputs if i.op.name == "matmul"), root)
    return shape == root.meta.shape and b["A"].meta.ndim == 2 and role(b["S"], product) is not None


def out_of_left(root: Hop, b: Bound) -> Hop:
    """Build the weighted product; weights of columns of the left operand weigh rows of the right one."""
    x, s, other = b["X"], b["S"], b["B"]
    if role(s, x) == "columns":
        return make("matmul", (x, weighted(other, s, rows=True)), root.line)
    return weighted(make("matmul", (x, other), root.line), s, rows=True)


def out_of_right(root: Hop, b: Bound) -> Hop:
    """Build the weighted product; weights of rows of the right operand weigh columns of the left one."""
    other, x, s = b["A"], b["X"], b["S"]
    if role(s, x) == "rows":
        return make("matmul", (weighted(other, s, rows=False), x), root.line)
    return weighted(make("matmul", (other, x), root.line), s, rows=False)


def into_product(root: Hop, b: Bound) -> Hop:
    """Build the product of which the operand with these rows or columns, or the smaller one, is weighted."""
    left, right, s = b["A"], b["B"], b["S"]
    product = make("matmul", (left, right), root.line)
    how = role(s, product)
    if how == "rows" or how == "all" and left.meta.size < right.meta.size:
        return make("matmul", (weighted(left, s, rows=True), right), root.line)
    return make("matmul", (left, weighted(right, s, rows=how == "all")), root.line)


def turned_cells(root: Hop, b: Bound) -> Hop:
    """Build the product of the transposed operands."""
    x, s = b["X"], b["S"]
    if s.meta.ndim == 1:
        s = make("expand_dims", (s,), root.line, axis=(1,))
    elif s.meta.ndim == 2:
        s = turned(s)
    return make("multiply", (turned(x), s), root.line)


def weighted_matrix(root: Hop, b: Bound) -> bool:
    """X is a matrix, S weighs its rows, its columns or everything."""
    fits = root.meta.dtype.kind == "f" and b["X"].meta.shape == root.inputs[0].meta.shape
    return fits and role(b["S"], b["X"]) is not None


WEIGHTS = RuleSet([
    Rule("weights-out-of-left", ops.matmul(ops.multiply(X, S), B), build=out_of_left,
         when=left_is_weighted, exactness="rounding", doc=_DOC),
    Rule("weights-out-of-right", ops.matmul(A, ops.multiply(X, S)), build=out_of_right,
         when=right_is_weighted, exactness="rounding", doc=_DOC),
    Rule("weights-into-product", ops.multiply(ops.matmul(A, B), S), build=into_product,
         when=product_is_weighted, exactness="rounding", doc=_DOC),
    Rule("t-of-weighted", ops.transpose(ops.multiply(X, S), axes=(1, 0)), build=turned_cells,
         when=weighted_matrix, doc="so that the weights stand beside what they meet"),
])
