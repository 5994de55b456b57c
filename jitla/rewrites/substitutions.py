"""Candidate substitutions of the search, and the weights of the operators they replace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from jitla.hops import Hop, make, topo
from jitla.rewrites.conditions import SWAP, is_plain_product, shape_of_product, turned
from jitla.rewrites.rule import App, Bound, Rule, RuleSet, Var, ops

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


C = Var("C")

# --------------------------------------------------------------------------- orders, transposes


def matrix_between(root: Hop, b: Bound) -> bool:
    """B is a matrix, so that both orders of the three are products."""
    return b["B"].meta.ndim == 2 and shape_of_product(b["A"], b["B"]) is not None \
        and shape_of_product(b["B"], b["C"]) is not None


def both_are_matrices(root: Hop, b: Bound) -> bool:
    """A and B are float matrices that can be multiplied."""
    return b["A"].meta.ndim == b["B"].meta.ndim == 2 and shape_of_product(b["A"], b["B"]) is not None


def matrices_the_other_way(root: Hop, b: Bound) -> bool:
    """The operands are float matrices."""
    return root.meta.ndim == 2 and is_plain_product(root)


def product_of_turned(root: Hop, b: Bound) -> Hop:
    """Build the product of the transposed operands, which change places."""
    return make("matmul", (turned(b["B"]), turned(b["A"])), root.line)


def turned_product(root: Hop, b: Bound) -> Hop:
    """Build the transpose of the product of the transposed operands."""
    left, right = root.inputs
    return turned(make("matmul", (turned(right), turned(left)), root.line))


def vector_last(root: Hop, b: Bound) -> bool:
    """A is a matrix, B a vector."""
    return b["A"].meta.ndim == 2 and b["B"].meta.ndim == 1 and is_plain_product(root)


def vector_times_turned(root: Hop, b: Bound) -> Hop:
    """Build the product of the vector with the transposed matrix."""
    return make("matmul", (b["B"], turned(b["A"])), root.line)



ORDERS = RuleSet([
    Rule("vector-in-front", ops.matmul(A, B), build=vector_times_turned, when=vector_last,
         exactness="rounding", doc="the same sums; how the matrix lies decides what fuses"),
    Rule("product-to-the-right", ops.matmul(ops.matmul(A, B), C), ops.matmul(A, ops.matmul(B, C)),
         when=matrix_between, exactness="rounding", doc="another order; partial products may overflow"),
    Rule("product-to-the-left", ops.matmul(A, ops.matmul(B, C)), ops.matmul(ops.matmul(A, B), C),
         when=matrix_between, exactness="rounding", doc="another order; partial products may overflow"),
    Rule("t-of-product", ops.transpose(ops.matmul(A, B), axes=SWAP), build=product_of_turned,
         when=both_are_matrices, exactness="rounding", doc="the same sums; BLAS takes another path"),
    Rule("product-as-t", ops.matmul(ops.transpose(A, axes=SWAP), B), build=turned_product,
         when=matrices_the_other_way, exactness="rounding", doc="the same sums; BLAS takes another path"),
])

# --------------------------------------------------------------------------- distributivity


def alike(root: Hop, b: Bound) -> bool:
    """The sum is one of plain products of the same shape, whose other operands are alike, too."""
    products = [i for i in root.inputs if i.op.name == "matmul"]
    if len(products) != 2 or not all(map(is_plain_product, products)):
        return False
    if any(p.meta.shape != root.meta.shape for p in products):
        return False
    shapes = [tuple(o.meta.shape for o in p.inputs) for p in products]
    return shapes[0] == shapes[1]


def sum_of_alike(root: Hop, b: Bound) -> bool:
    """Both terms have the shape of the operand, and its product is a plain one."""
    return is_plain_product(root) and b["B"].meta.shape == b["C"].meta.shape


def row_off_matrix(root: Hop, b: Bound) -> bool:
    """A is a matrix, B a row of its columns' numbers, C a matrix or vector."""
    a, row = b["A"].meta, b["B"].meta
    return is_plain_product(root) and a.ndim == 2 and 1 not in a.shape and row.shape == a.shape[1:]


def _distributed(name: str) -> list[Rule]:
    """Return the rules by which products are distributed over `name`, and factored out of it."""
    term: Callable[..., App] = getattr(ops, name)
    plus = "plus" if name == "add" else "minus"
    doc = "one product instead of two, or the other way round; overflow and rounding differ"
    return [
        Rule(f"common-left-{plus}", term(ops.matmul(A, B), ops.matmul(A, C)), ops.matmul(A, term(B, C)),
             when=alike, exactness="relaxed", doc=doc),
        Rule(f"common-right-{plus}", term(ops.matmul(B, A), ops.matmul(C, A)), ops.matmul(term(B, C), A),
             when=alike, exactness="relaxed", doc=doc),
        Rule(f"left-over-{plus}", ops.matmul(A, term(B, C)), term(ops.matmul(A, B), ops.matmul(A, C)),
             when=sum_of_alike, exactness="relaxed", doc=doc),
        Rule(f"right-over-{plus}", ops.matmul(term(B, C), A), term(ops.matmul(B, A), ops.matmul(C, A)),
             when=sum_of_alike, exactness="relaxed", doc=doc),
        Rule(f"row-{plus}-in-product", ops.matmul(term(A, B), C), term(ops.matmul(A, C), ops.matmul(B, C)),
             when=row_off_matrix, exactness="relaxed",
             doc="a matrix with a row added to its rows need not be formed; cancellation may differ"),
    ]


def product_of_matrices(root: Hop, b: Bound) -> bool:
    """Everything is summed, of a product of float matrices longer than their common side is."""
    a, c = b["A"].meta, b["B"].meta
    return root.meta.shape == () and both_are_matrices(root, b) and a.shape[1] < min(a.shape[0], c.shape[1])


def sum_of_grams(root: Hop, b: Bound) -> Hop:
    """Build sum((A.T @ A) * (B @ B.T))."""
    left, right = b["A"], b["B"]
    grams = [make("matmul", pair, root.line) for pair in ((turned(left), left), (right, turned(right)))]
    return make("sum", (make("multiply", grams, root.line),), root.line, axis=(0, 1), keepdims=False)


SUMS_OF_PRODUCTS = RuleSet([
    *_distributed("add"), *_distributed("subtract"),
    Rule("squares-of-product", ops.sum(ops.square(ops.matmul(A, B))), build=sum_of_grams,
         when=product_of_matrices, exactness="relaxed",
         doc="two small products instead of a large one; what cancels in them is lost"),
])

# --------------------------------------------------------------------------- products side by side


BESIDE = 64  # rows or columns of both together: with more, BLAS's time goes to multiplying


def merged(roots: tuple[Hop, ...], taken: frozenset[int]) -> Iterator[Mapping[Hop, Hop]]:
    """Yield what two products with a common matrix become: slices of one product.

    Lengths in `taken` have a meaning already, and programs are bound to lengths by what they mean. A result
    is memory of its own, so it becomes a copy of its slice.
    """
    products = [h for h in topo(roots) if h.op.name == "matmul" and is_plain_product(h) and h.meta.ndim == 2]
    for n, first in enumerate(products):
        for second in products[n + 1:]:
            for common in (0, 1):
                if first.inputs[common] is second.inputs[common] and first not in topo((second,)):
                    joint = _joined(first, second, common, taken)
                    if joint is not None:
                        yield {h: _copied(part) if h in roots else part for h, part in joint.items()}


def _copied(part: Hop) -> Hop:
    return make("cast", (part,), part.line, dtype=part.meta.dtype)


def _joined(first: Hop, second: Hop, common: int, taken: frozenset[int]) -> Mapping[Hop, Hop] | None:
    """Return both products, whose operand number `common` is the same, as slices of one."""
    axis = 1 - common
    one, other = first.inputs[axis], second.inputs[axis]
    length = one.meta.shape[axis] + other.meta.shape[axis]
    if length in taken or length > BESIDE or one is other:
        return None
    if 1 in (one.meta.shape[axis], other.meta.shape[axis]):
        return None
    beside = make("concatenate", (one, other), first.line, axis=axis)
    operands = (first.inputs[common], beside) if common == 0 else (beside, first.inputs[common])
    whole = make("matmul", operands, first.line)
    cut = one.meta.shape[axis]
    parts = []
    for bounds in (("s", None, cut, None), ("s", cut, None, None)):
        every = ("s", None, None, None)
        parts.append(make("getitem", (whole,), first.line, index=(bounds, every)[::-1 if axis else 1]))
    return dict(zip((first, second), parts, strict=True))


MERGED = RuleSet([
    Rule("products-side-by-side", ops.matmul(A, B), jointly=merged, exactness="rounding",
         doc="few rows or columns: the common operand, for which BLAS waits then, is read and packed once; "
             "the same sums, BLAS may add otherwise"),
])

SUBSTITUTIONS = ORDERS + WEIGHTS + SUMS_OF_PRODUCTS + MERGED
