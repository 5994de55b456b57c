"""Substitutions of the cost-guided search: rules whose benefit depends on sizes and layouts.

Weights (scaled rows, columns or whole matrices) move in and out of products, products are reordered,
transposed, distributed and factored, and products with a common operand are merged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from jitla.hops import Hop, make, topo
from jitla.rewrites.rule import (
    SWAP,
    App,
    Bindings,
    Rule,
    RuleSet,
    Var,
    is_float_product,
    ops,
    product_shape,
    transposed,
)

A, B, X, S = Var("A"), Var("B"), Var("X"), Var("S")
#: Operators that preserve the order of the elements of a column or row.
_ORDER_PRESERVING_OPS = frozenset(("transpose", "expand_dims", "squeeze"))
_WEIGHTS_DOC = "weights are applied to the fewest elements; partial products may overflow elsewhere"


def weight_axis(weights: Hop, matrix: Hop) -> str | None:
    """Return the part of `matrix` that `weights` scale: "all", "rows" or "columns"; None if neither."""
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
    while weights.op.name in _ORDER_PRESERVING_OPS:
        weights = weights.inputs[0]
    if weights.meta.ndim < 2:
        return weights
    return make("squeeze", (weights,), weights.line, axis=(weights.meta.shape.index(1),))


def apply_weights(matrix: Hop, weights: Hop, rows: bool) -> Hop:
    """Return `matrix` with its rows, or else its columns, multiplied by `weights`."""
    if weights.meta.ndim:
        weights = as_vector(weights)
        if rows and matrix.meta.ndim == 2:
            weights = make("expand_dims", (weights,), weights.line, axis=(1,))
    return make("multiply", (matrix, weights), matrix.line)


def left_is_weighted(root: Hop, b: Bindings) -> bool:
    """The left operand is a matrix X whose rows, columns or elements are scaled by S."""
    fits = product_shape(b["X"], b["B"]) == root.meta.shape
    return fits and b["X"].meta.ndim == 2 and weight_axis(b["S"], b["X"]) is not None


def right_is_weighted(root: Hop, b: Bindings) -> bool:
    """The right operand is a matrix X whose rows, columns or elements are scaled by S."""
    fits = product_shape(b["A"], b["X"]) == root.meta.shape
    return fits and b["A"].meta.ndim == 2 and weight_axis(b["S"], b["X"]) is not None


def product_is_weighted(root: Hop, b: Bindings) -> bool:
    """A is a matrix, and the rows, columns or elements of its product with B are scaled by S."""
    shape = product_shape(b["A"], b["B"])
    product = next((i for i in root.inputs if i.op.name == "matmul"), root)
    return shape == root.meta.shape and b["A"].meta.ndim == 2 and weight_axis(b["S"], product) is not None


def move_weights_out_of_left(root: Hop, b: Bindings) -> Hop:
    """Build the scaled product; weights of columns of the left operand become weights of right rows."""
    x, s, other = b["X"], b["S"], b["B"]
    if weight_axis(s, x) == "columns":
        return make("matmul", (x, apply_weights(other, s, rows=True)), root.line)
    return apply_weights(make("matmul", (x, other), root.line), s, rows=True)


def move_weights_out_of_right(root: Hop, b: Bindings) -> Hop:
    """Build the scaled product; weights of rows of the right operand become weights of left columns."""
    other, x, s = b["A"], b["X"], b["S"]
    if weight_axis(s, x) == "rows":
        return make("matmul", (apply_weights(other, s, rows=False), x), root.line)
    return apply_weights(make("matmul", (other, x), root.line), s, rows=False)


def move_weights_into_product(root: Hop, b: Bindings) -> Hop:
    """Build the product with the weights applied to one operand, to the smaller one if either will do."""
    left, right, s = b["A"], b["B"], b["S"]
    product = make("matmul", (left, right), root.line)
    weighted_axis = weight_axis(s, product)
    if weighted_axis == "rows" or weighted_axis == "all" and left.meta.size < right.meta.size:
        return make("matmul", (apply_weights(left, s, rows=True), right), root.line)
    return make("matmul", (left, apply_weights(right, s, rows=weighted_axis == "all")), root.line)


def transpose_weighted(root: Hop, b: Bindings) -> Hop:
    """Build the element-wise product of the transposed operands."""
    x, s = b["X"], b["S"]
    if s.meta.ndim == 1:
        s = make("expand_dims", (s,), root.line, axis=(1,))
    elif s.meta.ndim == 2:
        s = transposed(s)
    return make("multiply", (transposed(x), s), root.line)


def is_weighted_matrix(root: Hop, b: Bindings) -> bool:
    """X is a matrix whose rows, columns or elements are scaled by S."""
    fits = root.meta.dtype.kind == "f" and b["X"].meta.shape == root.inputs[0].meta.shape
    return fits and weight_axis(b["S"], b["X"]) is not None


WEIGHT_SUBSTITUTIONS = RuleSet([
    Rule("weights-out-of-left", ops.matmul(ops.multiply(X, S), B), build=move_weights_out_of_left,
         when=left_is_weighted, exactness="rounding", doc=_WEIGHTS_DOC),
    Rule("weights-out-of-right", ops.matmul(A, ops.multiply(X, S)), build=move_weights_out_of_right,
         when=right_is_weighted, exactness="rounding", doc=_WEIGHTS_DOC),
    Rule("weights-into-product", ops.multiply(ops.matmul(A, B), S), build=move_weights_into_product,
         when=product_is_weighted, exactness="rounding", doc=_WEIGHTS_DOC),
    Rule("t-of-weighted", ops.transpose(ops.multiply(X, S), axes=(1, 0)), build=transpose_weighted,
         when=is_weighted_matrix, doc="exposes the weights to the product that reads the transpose"),
])


C = Var("C")

# --------------------------------------------------------------------------- orders, transposes


def both_orders_are_products(root: Hop, b: Bindings) -> bool:
    """B is a matrix, so that both orders of the three factors are valid."""
    return b["B"].meta.ndim == 2 and product_shape(b["A"], b["B"]) is not None \
        and product_shape(b["B"], b["C"]) is not None


def both_are_matrices(root: Hop, b: Bindings) -> bool:
    """A and B are float matrices that can be multiplied."""
    return b["A"].meta.ndim == b["B"].meta.ndim == 2 and product_shape(b["A"], b["B"]) is not None


def is_matrix_product(root: Hop, b: Bindings) -> bool:
    """The operands are float matrices."""
    return root.meta.ndim == 2 and is_float_product(root)


def multiply_transposes(root: Hop, b: Bindings) -> Hop:
    """Build the product of the transposed operands in reverse order."""
    return make("matmul", (transposed(b["B"]), transposed(b["A"])), root.line)


def transpose_product(root: Hop, b: Bindings) -> Hop:
    """Build the transpose of the product of the transposed operands in reverse order."""
    left, right = root.inputs
    return transposed(make("matmul", (transposed(right), transposed(left)), root.line))


def is_matrix_vector_product(root: Hop, b: Bindings) -> bool:
    """A is a matrix, B a vector."""
    return b["A"].meta.ndim == 2 and b["B"].meta.ndim == 1 and is_float_product(root)


def multiply_vector_first(root: Hop, b: Bindings) -> Hop:
    """Build the product of the vector with the transposed matrix."""
    return make("matmul", (b["B"], transposed(b["A"])), root.line)



ORDER_SUBSTITUTIONS = RuleSet([
    Rule("vector-in-front", ops.matmul(A, B), build=multiply_vector_first, when=is_matrix_vector_product,
         exactness="rounding", doc="the same sums; the layout of the matrix decides what fuses"),
    Rule("product-to-the-right", ops.matmul(ops.matmul(A, B), C), ops.matmul(A, ops.matmul(B, C)),
         when=both_orders_are_products, exactness="rounding",
         doc="another order; partial products may overflow"),
    Rule("product-to-the-left", ops.matmul(A, ops.matmul(B, C)), ops.matmul(ops.matmul(A, B), C),
         when=both_orders_are_products, exactness="rounding",
         doc="another order; partial products may overflow"),
    Rule("t-of-product", ops.transpose(ops.matmul(A, B), axes=SWAP), build=multiply_transposes,
         when=both_are_matrices, exactness="rounding", doc="the same sums; BLAS may add in another order"),
    Rule("product-as-t", ops.matmul(ops.transpose(A, axes=SWAP), B), build=transpose_product,
         when=is_matrix_product, exactness="rounding", doc="the same sums; BLAS may add in another order"),
])

# --------------------------------------------------------------------------- distributivity


def products_have_same_shapes(root: Hop, b: Bindings) -> bool:
    """Both terms are float products of the same shape, with operands of the same shapes."""
    products = [i for i in root.inputs if i.op.name == "matmul"]
    if len(products) != 2 or not all(map(is_float_product, products)):
        return False
    if any(p.meta.shape != root.meta.shape for p in products):
        return False
    shapes = [tuple(o.meta.shape for o in p.inputs) for p in products]
    return shapes[0] == shapes[1]


def terms_have_same_shape(root: Hop, b: Bindings) -> bool:
    """B and C have the same shape, and the product is a float product."""
    return is_float_product(root) and b["B"].meta.shape == b["C"].meta.shape


def is_row_offset(root: Hop, b: Bindings) -> bool:
    """A is a matrix, B a row that is added to its rows, C a matrix or vector."""
    a, row = b["A"].meta, b["B"].meta
    return is_float_product(root) and a.ndim == 2 and 1 not in a.shape and row.shape == a.shape[1:]


def _distributive_rules(name: str) -> list[Rule]:
    """Return the rules that distribute products over `name`, "add" or "subtract", and factor them out."""
    term: Callable[..., App] = getattr(ops, name)
    plus = "plus" if name == "add" else "minus"
    doc = "one product instead of two, or the reverse; overflow and rounding differ"
    return [
        Rule(f"common-left-{plus}", term(ops.matmul(A, B), ops.matmul(A, C)), ops.matmul(A, term(B, C)),
             when=products_have_same_shapes, exactness="relaxed", doc=doc),
        Rule(f"common-right-{plus}", term(ops.matmul(B, A), ops.matmul(C, A)), ops.matmul(term(B, C), A),
             when=products_have_same_shapes, exactness="relaxed", doc=doc),
        Rule(f"left-over-{plus}", ops.matmul(A, term(B, C)), term(ops.matmul(A, B), ops.matmul(A, C)),
             when=terms_have_same_shape, exactness="relaxed", doc=doc),
        Rule(f"right-over-{plus}", ops.matmul(term(B, C), A), term(ops.matmul(B, A), ops.matmul(C, A)),
             when=terms_have_same_shape, exactness="relaxed", doc=doc),
        Rule(f"row-{plus}-in-product", ops.matmul(term(A, B), C), term(ops.matmul(A, C), ops.matmul(B, C)),
             when=is_row_offset, exactness="relaxed",
             doc="the matrix with a row added to its rows need not be formed; cancellation may differ"),
    ]


def is_sum_of_large_product(root: Hop, b: Bindings) -> bool:
    """All elements of a product of float matrices are summed; the contracted axis is the shortest."""
    a, c = b["A"].meta, b["B"].meta
    return root.meta.shape == () and both_are_matrices(root, b) and a.shape[1] < min(a.shape[0], c.shape[1])


def sum_gram_products(root: Hop, b: Bindings) -> Hop:
    """Build sum((A.T @ A) * (B @ B.T))."""
    left, right = b["A"], b["B"]
    pairs = (transposed(left), left), (right, transposed(right))
    grams = [make("matmul", pair, root.line) for pair in pairs]
    return make("sum", (make("multiply", grams, root.line),), root.line, axis=(0, 1), keepdims=False)


DISTRIBUTIVE_SUBSTITUTIONS = RuleSet([
    *_distributive_rules("add"), *_distributive_rules("subtract"),
    Rule("squares-of-product", ops.sum(ops.square(ops.matmul(A, B))), build=sum_gram_products,
         when=is_sum_of_large_product, exactness="relaxed",
         doc="two small products instead of a large one; cancellation in them loses digits"),
])

# --------------------------------------------------------------------------- merged products


#: Rows or columns of both products together: with more, BLAS is bound by arithmetic, not by memory.
MAX_MERGED_LENGTH = 64


def merge_products(roots: tuple[Hop, ...], used_lengths: frozenset[int]) -> Iterator[Mapping[Hop, Hop]]:
    """Yield replacements of two products with a common operand by slices of one product.

    The merged length must not be in `used_lengths`: programs bind sizes by axis length, so that a new length
    must not coincide with a traced one. Roots own their memory and become copies of their slices.
    """
    products = [h for h in topo(roots) if h.op.name == "matmul" and is_float_product(h) and h.meta.ndim == 2]
    for n, first in enumerate(products):
        for second in products[n + 1:]:
            for common in (0, 1):
                if first.inputs[common] is second.inputs[common] and first not in topo((second,)):
                    joint = _merge_pair(first, second, common, used_lengths)
                    if joint is not None:
                        yield {h: _copy(part) if h in roots else part for h, part in joint.items()}


def _copy(part: Hop) -> Hop:
    """Return a copy of `part`."""
    return make("cast", (part,), part.line, dtype=part.meta.dtype)


def _merge_pair(
    first: Hop, second: Hop, common: int, used_lengths: frozenset[int],
) -> Mapping[Hop, Hop] | None:
    """Return the replacements of two products by slices of one; operand number `common` is the same."""
    axis = 1 - common
    first_own, second_own = first.inputs[axis], second.inputs[axis]
    length = first_own.meta.shape[axis] + second_own.meta.shape[axis]
    if length in used_lengths or length > MAX_MERGED_LENGTH or first_own is second_own:
        return None
    if 1 in (first_own.meta.shape[axis], second_own.meta.shape[axis]):
        return None
    concatenated = make("concatenate", (first_own, second_own), first.line, axis=axis)
    operands = (first.inputs[common], concatenated) if common == 0 else (concatenated, first.inputs[common])
    merged = make("matmul", operands, first.line)
    cut = first_own.meta.shape[axis]
    parts = []
    for bounds in (("s", None, cut, None), ("s", cut, None, None)):
        all_elements = ("s", None, None, None)
        index = (bounds, all_elements)[::-1 if axis else 1]
        parts.append(make("getitem", (merged,), first.line, index=index))
    return dict(zip((first, second), parts, strict=True))


MERGE_SUBSTITUTIONS = RuleSet([
    Rule("products-side-by-side", ops.matmul(A, B), joint=merge_products, exactness="rounding",
         doc="with few rows or columns BLAS is bound by reading and packing the common operand, which is now "
             "read once; the same sums, BLAS may add in another order"),
])

SUBSTITUTIONS = ORDER_SUBSTITUTIONS + WEIGHT_SUBSTITUTIONS + DISTRIBUTIVE_SUBSTITUTIONS + MERGE_SUBSTITUTIONS
