"""Substitutions for the search: products in other orders, transposed, merged, factored, distributed.

Knows: what may stand for what. Must not know: which is cheaper, that is what the search finds out; nor which
rules always pay. Returns `SUBSTITUTIONS`, which lead both ways where both may help.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from jitla.hops import Hop, make, topo
from jitla.rewrites.conditions import SWAP, is_plain_product, shape_of_product, turned
from jitla.rewrites.pattern import App, Bound, Var, ops
from jitla.rewrites.rule import Rule, RuleSet
from jitla.rewrites.weights import WEIGHTS

A, B, C = Var("A"), Var("B"), Var("C")

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
