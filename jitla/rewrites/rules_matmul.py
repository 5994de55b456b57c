"""Rewrite rules of matrix products: with sums, transposes, scaled, sliced or joined operands; diagonals."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce

import numpy as np

from jitla.hops import Hop, Kind, const, make, possible_flags
from jitla.rewrites.rule import (
    AttrVar,
    Bindings,
    Rule,
    RuleSet,
    Var,
    VarArgs,
    are_wide_floats,
    as_column,
    as_vector,
    build_zeros,
    is_column,
    is_row,
    ops,
    product_shape,
    single_use,
)

A, B, C = map(Var, "ABC")
AXIS = AttrVar("axis")
SWAP = (1, 0)
MIN_FUSED_DOT_ELEMENTS = 1 << 12  # elements: shorter vectors stay in the cache until BLAS reads them


def are_vectors_or_matrices(root: Hop, b: Bindings) -> bool:
    """A and B have one or two dimensions."""
    return all(b[v].meta.ndim in (1, 2) for v in "AB")


def are_real_floats(root: Hop, b: Bindings) -> bool:
    """A and B hold real floats: there is nothing to conjugate."""
    return bool(b["A"].meta.dtype.kind == "f")


def is_matrix_product(root: Hop, b: Bindings) -> bool:
    """A and B are matrices of at least 32 bits, and their product has several rows and columns."""
    a, c = b["A"].meta, b["B"].meta
    several = a.ndim == c.ndim == 2 and a.shape[0] > 1 and c.shape[1] > 1
    return bool(several and a.dtype.itemsize >= 4)


def multiply_sums(root: Hop, b: Bindings) -> Hop:
    """Build (column sums of A) @ (row sums of B), each only if the sum includes that axis."""
    left, right = b["A"], b["B"]
    if 0 in b["axis"]:
        left = make("sum", (left,), root.line, axis=(0,), keepdims=False)
    if 1 in b["axis"]:
        right = make("sum", (right,), root.line, axis=(1,), keepdims=False)
    return make("matmul", (left, right), root.line)


def is_rank_one(root: Hop, b: Bindings) -> bool:
    """A is a column and B a row: an outer product."""
    a, c = b["A"].meta, b["B"].meta
    return bool(a.ndim == c.ndim == 2 and a.shape[1] == 1)


def a_is_matrix(root: Hop, b: Bindings) -> bool:
    """A has two dimensions."""
    return bool(b["A"].meta.ndim == 2)


def is_column_times_scalar(root: Hop, b: Bindings) -> bool:
    """A is a column and B a vector of one element."""
    return b["B"].meta.shape == (1,) and b["A"].meta.ndim == 2 and b["A"].meta.dtype.kind in "biuf"


def are_long_computed_vectors(root: Hop, b: Bindings) -> bool:
    """A and B are long vectors of wide floats, and at least one is computed element-wise."""
    both = b["A"], b["B"]
    vectors = all(x.meta.ndim == 1 and x.meta.size >= MIN_FUSED_DOT_ELEMENTS and are_wide_floats(x)
                  and x.meta.dtype == root.meta.dtype for x in both)
    return vectors and any(x.op.kind is Kind.CELL for x in both)


def sum_products(root: Hop, b: Bindings) -> Hop:
    """Build the sum of the element-wise products."""
    return make("sum", (make("multiply", (b["A"], b["B"]), root.line),), root.line, axis=(0,), keepdims=False)


def scale_column(root: Hop, b: Bindings) -> Hop:
    """Build the column, scaled, as a vector."""
    return make("multiply", (as_vector(b["A"]), b["B"]), root.line)


def sums_no_terms(root: Hop, b: Bindings) -> bool:
    """The contracted axis is empty."""
    return bool(b["A"].meta.shape[-1] == 0)


def is_column_and_row(root: Hop, b: Bindings) -> bool:
    """A is a column and B a row, of wide floats."""
    a, c = b["A"].meta, b["B"].meta
    vectors = a.ndim == 2 and is_column(b["A"], a.shape[0]) and c.size > 1 and is_row(b["B"], c.size)
    return vectors and are_wide_floats(b["A"])


def multiply_vector_sums(root: Hop, b: Bindings) -> Hop:
    """Build the product of the vectors, each summed first if the sum includes its axis."""
    column, row = as_vector(b["A"]), as_vector(b["B"])
    if 0 in b["axis"]:
        column = make("sum", (column,), root.line, axis=(0,), keepdims=False)
    if 1 in b["axis"]:
        row = make("sum", (row,), root.line, axis=(0,), keepdims=False)
    return make("multiply", (column, row), root.line)


def is_product_plus_matrix(root: Hop, b: Bindings) -> bool:
    """A and B are float matrices with a product of several rows and columns, and C has its shape."""
    same = product_shape(b["A"], b["B"]) == b["C"].meta.shape == root.inputs[0].meta.shape
    return same and is_matrix_product(root, b) and are_wide_floats(b["A"])


def sum_separately(root: Hop, b: Bindings) -> Hop:
    """Build the sum, or difference, of two sums."""
    product = make("matmul", (b["A"], b["B"]), root.line)
    sums = (make("sum", (x,), root.line, axis=b["axis"], keepdims=False) for x in (product, b["C"]))
    return make(root.inputs[0].op.name, sums, root.line)


MATMUL_RULES = RuleSet([
    Rule("vdot-as-matmul", ops.vdot(A, B), ops.matmul(A, B), when=are_real_floats,
         exactness="rounding", doc="a canonical form for both; NumPy may call another BLAS routine"),
    Rule("dot-as-matmul", ops.dot(A, B), ops.matmul(A, B), when=are_vectors_or_matrices,
         exactness="rounding", doc="a canonical form for both; NumPy may call another BLAS routine"),
    Rule("outer-as-multiply", ops.matmul(A, B), ops.multiply(A, B), when=is_rank_one,
         exactness="rounding",
         doc="a product without a sum fuses with its users; BLAS turns -0.0 into 0.0"),
    Rule("dot-of-computed", ops.matmul(A, B), build=sum_products, when=are_long_computed_vectors,
         exactness="rounding",
         doc="one loop computes the vectors and sums their products; pairwise, no less accurate than BLAS"),
    Rule("sum-of-product", ops.sum(single_use(ops.matmul(A, B)), axis=AXIS, keepdims=False),
         build=multiply_sums, when=is_matrix_product, exactness="rounding",
         doc="sums of the factors instead of a matrix product; if a factor has inf or NaN, the result is "
             "one of inf, -inf, NaN; sums may overflow where single products do not"),
    Rule("t-of-product-of-ts",
         ops.transpose(single_use(ops.matmul(ops.transpose(A, axes=SWAP), ops.transpose(B, axes=SWAP))),
                       axes=SWAP),
         ops.matmul(B, A), exactness="rounding",
         doc="three transposes fewer; BLAS may add in another order"),
    Rule("product-with-one-column", ops.matmul(A, B), build=scale_column, when=is_column_times_scalar,
         exactness="rounding", doc="every sum has one term; BLAS turns -0.0 into 0.0"),
    Rule("product-over-nothing", ops.matmul(A, B), build=build_zeros, when=sums_no_terms,
         doc="an empty sum is zero"),
    Rule("sum-of-outer", ops.sum(single_use(ops.multiply(A, B)), axis=AXIS, keepdims=False),
         build=multiply_vector_sums, when=is_column_and_row, exactness="rounding",
         doc="sums of both vectors instead of all products; sums may overflow where single products do not"),
    *(Rule(f"sum-of-product-{word}",
           ops.sum(single_use(getattr(ops, op)(single_use(ops.matmul(A, B)), C)), axis=AXIS, keepdims=False),
           build=sum_separately, when=is_product_plus_matrix, exactness="rounding",
           doc="the two are summed separately, the product without being formed; partial sums may overflow")
      for word, op in (("plus", "add"), ("minus", "subtract"))),
    Rule("t-of-t-product", ops.transpose(single_use(ops.matmul(ops.transpose(A, axes=SWAP), B)), axes=SWAP),
         ops.matmul(ops.transpose(B, axes=SWAP), A), exactness="rounding",
         doc="a transpose fewer; BLAS may add in another order"),
    Rule("t-of-product-t", ops.transpose(single_use(ops.matmul(A, ops.transpose(B, axes=SWAP))), axes=SWAP),
         ops.matmul(B, ops.transpose(A, axes=SWAP)), when=a_is_matrix, exactness="rounding",
         doc="a transpose fewer; BLAS may add in another order"),
    *(Rule(f"t-of-gram-{where}", ops.transpose(ops.matmul(*factors), axes=SWAP), ops.matmul(*factors),
           exactness="rounding",
           doc="the product of a matrix with its transpose is symmetric, bit for bit if BLAS uses that")
      for where, factors in (("left", (ops.transpose(A, axes=SWAP), A)), ("right", (A, ops.transpose(A,
      axes=SWAP))))),
])


S, X, Y = Var("S"), Var("X"), Var("Y")
MORE = VarArgs("more")
CONCAT_AXIS, OTHER_CONCAT_AXIS = AttrVar("joined"), AttrVar("other")

# --------------------------------------------------------------------------- scaled and outer factors


def _apply(op: str, x: Hop, y: Hop, root: Hop) -> Hop:
    return make(op, (x, y), root.line)


def product_is_smaller(root: Hop, b: Bindings) -> bool:
    """A holds wide floats, and the product is smaller than A."""
    return are_wide_floats(b["A"]) and root.meta.size < b["A"].meta.size


def matrix_product_is_smaller(root: Hop, b: Bindings) -> bool:
    """A is a matrix of wide floats, and the product is smaller than A."""
    return b["A"].meta.ndim == 2 and product_is_smaller(root, b)


def other_factor_is_smaller(root: Hop, b: Bindings) -> bool:
    """A is a matrix of wide floats, and B is smaller than A."""
    a, other = b["A"], b["B"].meta
    return a.meta.ndim == 2 and other.size < a.meta.size and other.ndim < 3 and are_wide_floats(a)


def _is_scalar(root: Hop, b: Bindings) -> bool:
    return not b["C"].meta.shape and bool(b["A"].meta.dtype == root.meta.dtype)


def scales_rows_of_left(root: Hop, b: Bindings) -> bool:
    """C is a column that scales the rows of A, and the product is smaller than A."""
    return matrix_product_is_smaller(root, b) and is_column(b["C"], b["A"].meta.shape[0])


def scales_columns_of_left(root: Hop, b: Bindings) -> bool:
    """C is a row that scales the columns of A, or a scalar, and B is smaller than A."""
    return other_factor_is_smaller(root, b) and (_is_scalar(root, b) or is_row(b["C"], b["A"].meta.shape[1]))


def scales_columns_of_right(root: Hop, b: Bindings) -> bool:
    """C is a row that scales the columns of A, and the product is smaller than A."""
    return matrix_product_is_smaller(root, b) and is_row(b["C"], b["A"].meta.shape[1])


def scales_rows_of_right(root: Hop, b: Bindings) -> bool:
    """C is a column that scales the rows of A, or a scalar, and B is smaller than A."""
    return other_factor_is_smaller(root, b) and (
        _is_scalar(root, b) or is_column(b["C"], b["A"].meta.shape[0]))


def scale_product_rows(op: str, root: Hop, b: Bindings) -> Hop:
    """Build the product of A and B with its rows scaled."""
    product = make("matmul", (b["A"], b["B"]), root.line)
    return _apply(op, product, b["C"] if product.meta.ndim == 2 else as_vector(b["C"]), root)


def scale_right_factor(op: str, root: Hop, b: Bindings) -> Hop:
    """Build the product of A with B, whose rows are scaled."""
    scale = as_vector(b["C"]) if b["C"].meta.ndim else b["C"]
    if b["B"].meta.ndim == 2 and scale.meta.ndim:
        scale = as_column(scale)
    return make("matmul", (b["A"], _apply(op, b["B"], scale, root)), root.line)


def scale_product_columns(op: str, root: Hop, b: Bindings) -> Hop:
    """Build the product of B and A with its columns scaled."""
    return _apply(op, make("matmul", (b["B"], b["A"]), root.line), as_vector(b["C"]), root)


def scale_left_factor(op: str, root: Hop, b: Bindings) -> Hop:
    """Build the product of B, whose columns are scaled, with A."""
    scale = as_vector(b["C"]) if b["C"].meta.ndim else b["C"]
    return make("matmul", (_apply(op, b["B"], scale, root), b["A"]), root.line)


def _with_op(build: Callable[[str, Hop, Bindings], Hop], op: str) -> Callable[[Hop, Bindings], Hop]:
    return partial(build, op)


def is_scalar_and_product_smaller(root: Hop, b: Bindings) -> bool:
    """S is a scalar, and the product is smaller than A."""
    return b["S"].meta.ndim == 0 and product_is_smaller(root, b)


def is_outer_left_factor(root: Hop, b: Bindings) -> bool:
    """A is a column and C a row; their outer product is the left factor."""
    a, c = b["A"].meta, b["C"].meta
    vectors = a.ndim == 2 and is_column(b["A"], a.shape[0]) and is_row(b["C"], c.size)
    return vectors and are_wide_floats(b["A"]) and b["B"].meta.ndim in (1, 2)


def is_outer_right_factor(root: Hop, b: Bindings) -> bool:
    """A is a column and C a row; their outer product is the right factor."""
    return is_outer_left_factor(root, b)


def multiply_row_first(root: Hop, b: Bindings) -> Hop:
    """Build the column times the product of the row with B."""
    inner = make("matmul", (as_vector(b["C"]), b["B"]), root.line)
    return make("multiply", (b["A"] if inner.meta.ndim else as_vector(b["A"]), inner), root.line)


def multiply_column_first(root: Hop, b: Bindings) -> Hop:
    """Build the product of B with the column, times the row."""
    inner = make("matmul", (b["B"], as_vector(b["A"])), root.line)
    return make("multiply", (as_column(inner) if inner.meta.ndim else inner, as_vector(b["C"])), root.line)


def is_row_offset(root: Hop, b: Bindings) -> bool:
    """C is a row that is added to all rows of A, and B and the product are smaller than A."""
    a, c = b["A"].meta, b["B"].meta
    smaller = a.ndim == 2 and c.ndim in (1, 2) and root.meta.size + c.size < a.size
    return smaller and are_wide_floats(b["A"]) and is_row(b["C"], a.shape[1])


def distribute_row_offset(op: str, root: Hop, b: Bindings) -> Hop:
    """Build the product of A plus, or minus, the product of the row."""
    products = (make("matmul", (x, b["B"]), root.line) for x in (b["A"], as_vector(b["C"])))
    return make(op, products, root.line)


_SCALES = (("scaled", "multiply"), ("divided", "divide"))
_SCALING_DOC = "applied to the smaller operand; overflow and infinities of partial products may differ"
SCALING_RULES = RuleSet([
    *(Rule(f"{word}-rows-times", ops.matmul(single_use(getattr(ops, op)(A, C)), B),
           build=_with_op(scale_product_rows, op), when=scales_rows_of_left, exactness="rounding",
           doc="rows of the product are scaled instead: " + _SCALING_DOC)
      for word, op in _SCALES),
    *(Rule(f"{word}-columns-times", ops.matmul(single_use(getattr(ops, op)(A, C)), B),
           build=_with_op(scale_right_factor, op), when=scales_columns_of_left, exactness="rounding",
           doc="the other factor is scaled instead: " + _SCALING_DOC)
      for word, op in _SCALES),
    *(Rule(f"times-{word}-columns", ops.matmul(B, single_use(getattr(ops, op)(A, C))),
           build=_with_op(scale_product_columns, op),
           when=scales_columns_of_right, exactness="rounding",
           doc="columns of the product are scaled instead: " + _SCALING_DOC)
      for word, op in _SCALES),
    *(Rule(f"times-{word}-rows", ops.matmul(B, single_use(getattr(ops, op)(A, C))),
           build=_with_op(scale_left_factor, op), when=scales_rows_of_right, exactness="rounding",
           doc="the other factor is scaled instead: " + _SCALING_DOC)
      for word, op in _SCALES),
    *(Rule(f"{name}-times", ops.matmul(*(single_use(ops.add(A, A)), B)[::step]),
           ops.matmul(*(A, ops.add(B, B))[::step]), when=other_factor_is_smaller, exactness="rounding",
           doc="the other factor is doubled instead: " + _SCALING_DOC)
      for name, step in (("doubled", 1), ("by-doubled", -1))),
    *(Rule(name, ops.matmul(*(single_use(ops.negative(A)), B)[::step]),
           ops.negative(ops.matmul(*(A, B)[::step])), when=product_is_smaller, exactness="rounding",
           doc="the product has fewer elements to negate; the sign of a zero may differ")
      for name, step in (("neg-times", 1), ("times-neg", -1))),
    *(Rule(f"times-number-{place}", ops.matmul(*(single_use(ops.multiply(A, S)), B)[::step]),
           ops.multiply(ops.matmul(*(A, B)[::step]), S), when=is_scalar_and_product_smaller,
           exactness="relaxed", doc="the product has fewer elements; roundings differ, overflow may")
      for place, step in (("left", 1), ("right", -1))),
    *(Rule(f"over-number-{place}", ops.matmul(*(single_use(ops.divide(A, S)), B)[::step]),
           ops.divide(ops.matmul(*(A, B)[::step]), S), when=is_scalar_and_product_smaller,
           exactness="relaxed", doc="the product has fewer elements; roundings differ, overflow may")
      for place, step in (("left", 1), ("right", -1))),
    Rule("outer-times", ops.matmul(single_use(ops.multiply(A, C)), B), build=multiply_row_first,
         when=is_outer_left_factor, exactness="rounding",
         doc="the row is multiplied first, no matrix is formed; partial "
             "products may overflow, infinities differ"),
    Rule("times-outer", ops.matmul(B, single_use(ops.multiply(A, C))), build=multiply_column_first,
         when=is_outer_right_factor, exactness="rounding",
         doc="the column is multiplied first, no matrix is formed; partial "
             "products may overflow, infinities differ"),
    *(Rule(f"centred-{word}-times", ops.matmul(single_use(getattr(ops, op)(A, C)), B),
           build=_with_op(distribute_row_offset, op), when=is_row_offset, exactness="relaxed",
           doc="two products, and no centred matrix; cancellation loses digits if the row is large")
      for word, op in (("sum", "add"), ("difference", "subtract"))),
])


# --------------------------------------------------------------------------- slices and concatenated blocks


def is_sliced_product(root: Hop, b: Bindings) -> bool:
    """A is a matrix of wide floats, B a matrix or vector, and the index has slices only."""
    flat_enough = b["A"].meta.ndim == 2 and b["B"].meta.ndim in (1, 2)
    return flat_enough and all(item[0] == "s" for item in b["index"]) and are_wide_floats(b["A"])


def multiply_slices(root: Hop, b: Bindings) -> Hop:
    """Build the product of the sliced rows and columns."""
    rows, columns = (*b["index"], *[("s", None, None, None)] * 2)[:2]
    left, right = b["A"], b["B"]
    if rows[1:] != (None, None, None):
        left = make("getitem", (left,), root.line, index=(rows,))
    if len(b["index"]) > 1 and columns[1:] != (None, None, None):
        right = make("getitem", (right,), root.line, index=(("s", None, None, None), columns))
    return make("matmul", (left, right), root.line)


def _blocks(b: Bindings, first: str = "X", more: str = "more") -> tuple[Hop, ...]:
    """Return the operands of a concatenation."""
    return (b[first], *b[more])


def is_row_concatenation(root: Hop, b: Bindings) -> bool:
    """Matrices are concatenated vertically, and the product is smaller than they are."""
    blocks = _blocks(b)
    below = b["joined"] == 0 and blocks[0].meta.ndim == 2 and len(blocks) < _BLOCK_LIMIT
    return below and are_wide_floats(b["B"]) and root.meta.size < sum(x.meta.size for x in blocks)


def is_vector_times_column_concatenation(root: Hop, b: Bindings) -> bool:
    """Matrices are concatenated horizontally, and the left factor is a vector."""
    blocks = _blocks(b)
    vector_times_columns = b["joined"] == 1 and b["B"].meta.ndim == 1 and blocks[0].meta.ndim == 2
    return vector_times_columns and are_wide_floats(b["B"]) and len(blocks) < _BLOCK_LIMIT


def is_column_concatenation(root: Hop, b: Bindings) -> bool:
    """Matrices are concatenated horizontally; the other factor and the product are smaller than they are."""
    blocks = _blocks(b)
    few = b["joined"] == 1 and 1 < len(blocks) < _BLOCK_LIMIT and b["B"].meta.ndim in (1, 2)
    larger = max(root.meta.size, b["B"].meta.size)
    return few and are_wide_floats(b["B"]) and larger < sum(x.meta.size for x in blocks)


def multiply_row_blocks(root: Hop, b: Bindings) -> Hop:
    """Build the vertical concatenation of the products of all blocks with B."""
    products = [make("matmul", (x, b["B"]), root.line) for x in _blocks(b)]
    return make("concatenate", products, root.line, axis=0)


def multiply_column_blocks(root: Hop, b: Bindings) -> Hop:
    """Build the concatenation of the products of B with all blocks."""
    products = [make("matmul", (b["B"], x), root.line) for x in _blocks(b)]
    return make("concatenate", products, root.line, axis=0)


def sum_block_products(root: Hop, b: Bindings) -> Hop:
    """Build the sum of the products of each block with its part of B."""
    line, start = root.line, const(0, np.intp)
    products = []
    for x in _blocks(b):
        shape = (x.meta.shape[1], *b["B"].meta.shape[1:])
        products.append(make("matmul", (x, make("part", (b["B"], start), line, shape=shape)), line))
        start = make("add", (start, make("count", (x,), line, axis=(1,))), line)
    return reduce(lambda p, q: make("add", (p, q), line), products)


def block_lengths_match(root: Hop, b: Bindings) -> bool:
    """Horizontal blocks are multiplied by vertical blocks of the same lengths."""
    left, right = _blocks(b), _blocks(b, "Y", "others")
    if b["joined"] != 1 or b["other"] != 0 or not 1 < len(left) == len(right) < _BLOCK_LIMIT:
        return False
    lengths = all(x.meta.shape[1] == y.meta.shape[0] for x, y in zip(left, right, strict=True))
    return lengths and left[0].meta.ndim == 2 and are_wide_floats(left[0])


def multiply_matching_blocks(root: Hop, b: Bindings) -> Hop:
    """Build the sum of the products of corresponding blocks."""
    pairs = zip(_blocks(b), _blocks(b, "Y", "others"), strict=True)
    products = [make("matmul", pair, root.line) for pair in pairs]
    return reduce(lambda p, q: make("add", (p, q), root.line), products)


_BLOCK_LIMIT = 9
CONCATENATION_RULES = RuleSet([
    Rule("slice-of-product", ops.getitem(single_use(ops.matmul(A, B)), index=AttrVar("index")),
         build=multiply_slices,
         when=is_sliced_product, exactness="rounding",
         doc="only the rows and columns that are read; BLAS may add in another order, others do not warn"),
    Rule("joined-rows-times", ops.matmul(single_use(ops.concatenate(X, MORE, axis=CONCAT_AXIS)), B),
         build=multiply_row_blocks, when=is_row_concatenation, exactness="rounding",
         doc="the products are concatenated, not the matrices; BLAS may add in another order"),
    Rule("times-joined-columns", ops.matmul(B, single_use(ops.concatenate(X, MORE, axis=CONCAT_AXIS))),
         build=multiply_column_blocks,
         when=is_vector_times_column_concatenation, exactness="rounding",
         doc="the products are concatenated, not the matrices; BLAS may add in another order"),
    Rule("joined-times-joined",
         ops.matmul(single_use(ops.concatenate(X, MORE, axis=CONCAT_AXIS)), single_use(ops.concatenate(Y,
             VarArgs("others"), axis=OTHER_CONCAT_AXIS))),
         build=multiply_matching_blocks, when=block_lengths_match, exactness="relaxed",
         doc="block by block, without concatenation; the order of addition differs"),
    Rule("joined-columns-times", ops.matmul(single_use(ops.concatenate(X, MORE, axis=CONCAT_AXIS)), B),
         build=sum_block_products,
         when=is_column_concatenation, exactness="relaxed",
         doc="every block is multiplied by its part of the other factor, without concatenation; the order of "
             "addition differs"),
])

SCALING_AND_CONCATENATION_RULES = SCALING_RULES + CONCATENATION_RULES


V = Var("V")

# --------------------------------------------------------------------------- diagonals and traces


def sum_diagonal(root: Hop, b: Bindings) -> Hop:
    """Build the sum of the diagonal."""
    return make("sum", (make("diagonal", (b["X"],), root.line),), root.line, axis=(0,), keepdims=False)


def product_is_square(root: Hop, b: Bindings) -> bool:
    """A and B are matrices whose product is square, of native integers or wide floats."""
    a, c = b["A"].meta, b["B"].meta
    square = a.ndim == c.ndim == 2 and a.shape[0] == c.shape[1] and min(a.shape) > 1
    exact_integers = a.dtype.kind in "iu" and a.dtype.itemsize == np.dtype(np.intp).itemsize
    return bool(square and (exact_integers or are_wide_floats(b["A"])))


def sum_row_products(root: Hop, b: Bindings) -> Hop:
    """Build the sums of the products of rows of A with columns of B; existing transposes cancel."""
    a, c, line = b["A"], b["B"], root.line
    if a.op.name == "transpose" and c.op.name != "transpose":
        cells, axis = make("multiply", (a.inputs[0], c), line), 0
    else:
        transposed = c.inputs[0] if c.op.name == "transpose" else make("transpose", (c,), line, axes=SWAP)
        cells, axis = make("multiply", (a, transposed), line), 1
    return make("sum", (cells,), line, axis=(axis,), keepdims=False)


def is_silent_square_cell(root: Hop, b: Bindings) -> bool:
    """X is computed element-wise, from matrices of its shape and scalars, and raises no warning."""
    return _is_square_cell(b["X"]) and not possible_flags(b["X"])


def is_warning_square_cell(root: Hop, b: Bindings) -> bool:
    """X is computed element-wise, and NumPy may warn of elements off the diagonal."""
    return _is_square_cell(b["X"]) and bool(possible_flags(b["X"]))


def _is_square_cell(x: Hop) -> bool:
    shapes = {i.meta.shape for i in x.inputs}
    return x.op.kind is Kind.CELL and x.meta.shape in shapes and shapes <= {x.meta.shape, ()}


def apply_to_diagonals(root: Hop, b: Bindings) -> Hop:
    """Build the operator applied to the diagonals of the operands."""
    x = b["X"]
    parts = [make("diagonal", (i,), root.line) if i.meta.ndim else i for i in x.inputs]
    return make(x.op.name, parts, x.line, **dict(x.attrs))


def is_diagonal_scaling(root: Hop, b: Bindings) -> bool:
    """The diagonal holds wide floats, and the other factor is a vector or a matrix."""
    return are_wide_floats(b["V"]) and b["X"].meta.ndim in (1, 2)


def scale_rows(root: Hop, b: Bindings) -> Hop:
    """Build X with its rows scaled."""
    scale = b["V"] if b["X"].meta.ndim == 1 else as_column(b["V"])
    return make("multiply", (scale, b["X"]), root.line)


_NOT_ZERO_DOC = "; infinity and NaN stay in their rows and columns"
DIAGONAL_RULES = RuleSet([
    Rule("trace-as-sum", ops.trace(X), build=sum_diagonal, doc="as NumPy computes it"),
    Rule("diagonal-of-t", ops.diagonal(ops.transpose(X, axes=SWAP)), ops.diagonal(X),
         doc="transposition preserves the diagonal"),
    Rule("diagonal-of-product", ops.diagonal(single_use(ops.matmul(A, B))), build=sum_row_products,
         when=product_is_square, exactness="rounding",
         doc="n sums instead of n²; the order of addition differs, sums off the diagonal do not overflow"),
    Rule("diagonal-of-cells", ops.diagonal(X), build=apply_to_diagonals, when=is_silent_square_cell,
         doc="n elements instead of n²"),
    Rule("diagonal-of-warning-cells", ops.diagonal(X), build=apply_to_diagonals,
         when=is_warning_square_cell, exactness="relaxed",
         doc="n elements instead of n²; no warnings of the others, values are the same"),
    Rule("diagonal-of-diag", ops.diagonal(ops.diag(V)), V, doc="the two are inverse"),
    Rule("diag-times", ops.matmul(ops.diag(V), X), build=scale_rows, when=is_diagonal_scaling,
         exactness="rounding", doc="rows are scaled, no matrix is formed" + _NOT_ZERO_DOC),
    Rule("times-diag", ops.matmul(X, ops.diag(V)), ops.multiply(X, V), when=is_diagonal_scaling,
         exactness="rounding",
         doc="columns are scaled, no matrix is formed" + _NOT_ZERO_DOC),
    Rule("t-of-diag", ops.transpose(ops.diag(V), axes=SWAP), ops.diag(V),
         doc="a diagonal matrix is symmetric"),
])
