"""Rewrites of matrix products by their shapes, of transposed products, and of sums of products.

Canonical direction: products get smaller, sums come first, transposes go away. Must not know: kernels, BLAS,
chains of products. Returns `MATRICES`.
"""

from __future__ import annotations

from jitla.hops import Hop, Kind, make
from jitla.rewrites.conditions import (
    constant_like,
    flat,
    is_column,
    is_row,
    shape_of_product,
    wide_float,
)
from jitla.rewrites.pattern import AttrVar, Bound, Var, once, ops
from jitla.rewrites.rule import Rule, RuleSet

A, B, C = map(Var, "ABC")
AXIS = AttrVar("axis")
SWAP = (1, 0)
LONG = 1 << 12  # elements: shorter vectors stay in the cache until BLAS reads them


def both_vectors_or_matrices(root: Hop, b: Bound) -> bool:
    """A and B have one or two dimensions."""
    return all(b[v].meta.ndim in (1, 2) for v in "AB")


def real_vectors(root: Hop, b: Bound) -> bool:
    """A and B hold floats: there is nothing to conjugate."""
    return bool(b["A"].meta.dtype.kind == "f")


def true_matrices(root: Hop, b: Bound) -> bool:
    """A and B have two dimensions, their product several rows and columns, and sums have room."""
    a, c = b["A"].meta, b["B"].meta
    several = a.ndim == c.ndim == 2 and a.shape[0] > 1 and c.shape[1] > 1
    return bool(several and a.dtype.itemsize >= 4)


def sums_multiplied(root: Hop, b: Bound) -> Hop:
    """Build (column sums of A) @ (row sums of B), as far as the axes summed over ask for them."""
    left, right = b["A"], b["B"]
    if 0 in b["axis"]:
        left = make("sum", (left,), root.line, axis=(0,), keepdims=False)
    if 1 in b["axis"]:
        right = make("sum", (right,), root.line, axis=(1,), keepdims=False)
    return make("matmul", (left, right), root.line)


def rank_one(root: Hop, b: Bound) -> bool:
    """A is a column and B a row: every element of the product is one product."""
    a, c = b["A"].meta, b["B"].meta
    return bool(a.ndim == c.ndim == 2 and a.shape[1] == 1)


def a_is_matrix(root: Hop, b: Bound) -> bool:
    """A has two dimensions."""
    return bool(b["A"].meta.ndim == 2)


def one_column(root: Hop, b: Bound) -> bool:
    """A is a column and B a single number in one dimension."""
    return b["B"].meta.shape == (1,) and b["A"].meta.ndim == 2 and b["A"].meta.dtype.kind in "biuf"


def computed_vectors(root: Hop, b: Bound) -> bool:
    """A and B are long vectors of wide floats, and element by element at least one is computed."""
    both = b["A"], b["B"]
    vectors = all(x.meta.ndim == 1 and x.meta.size >= LONG and wide_float(x)
                  and x.meta.dtype == root.meta.dtype for x in both)
    return vectors and any(x.op.kind is Kind.CELL for x in both)


def summed_products(root: Hop, b: Bound) -> Hop:
    """Build the sum of the products of elements."""
    return make("sum", (make("multiply", (b["A"], b["B"]), root.line),), root.line, axis=(0,), keepdims=False)


def column_times_number(root: Hop, b: Bound) -> Hop:
    """Build the column, scaled, as a vector."""
    return make("multiply", (flat(b["A"]), b["B"]), root.line)


def empty_sums(root: Hop, b: Bound) -> bool:
    """There is nothing to add up."""
    return bool(b["A"].meta.shape[-1] == 0)


def no_terms(root: Hop, b: Bound) -> Hop:
    """Build zeros."""
    return constant_like(root, 0)


def column_and_row(root: Hop, b: Bound) -> bool:
    """A is a column and B a row, of wide floats."""
    a, c = b["A"].meta, b["B"].meta
    vectors = a.ndim == 2 and is_column(b["A"], a.shape[0]) and c.size > 1 and is_row(b["B"], c.size)
    return vectors and wide_float(b["A"])


def sums_of_outer(root: Hop, b: Bound) -> Hop:
    """Build the product of the sums, as far as the axes summed over ask for them."""
    column, row = flat(b["A"]), flat(b["B"])
    if 0 in b["axis"]:
        column = make("sum", (column,), root.line, axis=(0,), keepdims=False)
    if 1 in b["axis"]:
        row = make("sum", (row,), root.line, axis=(0,), keepdims=False)
    return make("multiply", (column, row), root.line)


def product_and_more(root: Hop, b: Bound) -> bool:
    """A and B are true matrices of floats, and C has the shape of their product."""
    same = shape_of_product(b["A"], b["B"]) == b["C"].meta.shape == root.inputs[0].meta.shape
    return same and true_matrices(root, b) and wide_float(b["A"])


def sums_apart(root: Hop, b: Bound) -> Hop:
    """Build the sum, or difference, of two sums."""
    product = make("matmul", (b["A"], b["B"]), root.line)
    sums = (make("sum", (x,), root.line, axis=b["axis"], keepdims=False) for x in (product, b["C"]))
    return make(root.inputs[0].op.name, sums, root.line)


MATRICES = RuleSet([
    Rule("vdot-as-matmul", ops.vdot(A, B), ops.matmul(A, B), when=real_vectors,
         exactness="rounding", doc="one form for both; NumPy may call another BLAS routine"),
    Rule("dot-as-matmul", ops.dot(A, B), ops.matmul(A, B), when=both_vectors_or_matrices,
         exactness="rounding", doc="one form for both; NumPy may call another BLAS routine"),
    Rule("outer-as-multiply", ops.matmul(A, B), ops.multiply(A, B), when=rank_one,
         exactness="rounding",
         doc="a product without a sum fuses with its users; BLAS makes -0.0 into 0.0"),
    Rule("dot-of-computed", ops.matmul(A, B), build=summed_products, when=computed_vectors,
         exactness="rounding",
         doc="one loop computes vectors and adds up their products; pairwise, no less exact than BLAS"),
    Rule("sum-of-product", ops.sum(once(ops.matmul(A, B)), axis=AXIS, keepdims=False),
         build=sums_multiplied, when=true_matrices, exactness="rounding",
         doc="sums of the factors instead of a matrix product; where a factor holds inf or NaN the "
             "result is one of inf, -inf, NaN, and sums may overflow where single products do not"),
    Rule("t-of-product-of-ts",
         ops.transpose(once(ops.matmul(ops.transpose(A, axes=SWAP), ops.transpose(B, axes=SWAP))),
                       axes=SWAP),
         ops.matmul(B, A), exactness="rounding",
         doc="three transposes less; BLAS takes another path"),
    Rule("product-with-one-column", ops.matmul(A, B), build=column_times_number, when=one_column,
         exactness="rounding", doc="every sum has one term; BLAS makes -0.0 into 0.0"),
    Rule("product-over-nothing", ops.matmul(A, B), build=no_terms, when=empty_sums,
         doc="sums without terms are zero"),
    Rule("sum-of-outer", ops.sum(once(ops.multiply(A, B)), axis=AXIS, keepdims=False), build=sums_of_outer,
         when=column_and_row, exactness="rounding",
         doc="sums of both vectors instead of all products; sums may overflow where single products do not"),
    *(Rule(f"sum-of-product-{word}", ops.sum(once(getattr(ops, op)(once(ops.matmul(A, B)), C)), axis=AXIS,
                                             keepdims=False),
           build=sums_apart, when=product_and_more, exactness="rounding",
           doc="each is summed for itself, the product without being made; partial sums may overflow")
      for word, op in (("plus", "add"), ("minus", "subtract"))),
    Rule("t-of-t-product", ops.transpose(once(ops.matmul(ops.transpose(A, axes=SWAP), B)), axes=SWAP),
         ops.matmul(ops.transpose(B, axes=SWAP), A), exactness="rounding",
         doc="a transpose less; BLAS takes another path"),
    Rule("t-of-product-t", ops.transpose(once(ops.matmul(A, ops.transpose(B, axes=SWAP))), axes=SWAP),
         ops.matmul(B, ops.transpose(A, axes=SWAP)), when=a_is_matrix, exactness="rounding",
         doc="a transpose less; BLAS takes another path"),
    *(Rule(f"t-of-gram-{where}", ops.transpose(ops.matmul(*factors), axes=SWAP), ops.matmul(*factors),
           exactness="rounding",
           doc="the product of a matrix with its transpose is symmetric, to the bit if BLAS "
                                     "makes it so")
      for where, factors in (("left", (ops.transpose(A, axes=SWAP), A)), ("right", (A, ops.transpose(A,
      axes=SWAP))))),
])
