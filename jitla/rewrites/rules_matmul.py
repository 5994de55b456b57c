"""Rewrite rules of matrix products, scaled products and traces."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce

import numpy as np

from jitla.hops import Hop, Kind, const, make, possible_flags
from jitla.rewrites.conditions import (
    column_of,
    constant_like,
    flat,
    is_column,
    is_row,
    shape_of_product,
    wide_float,
)
from jitla.rewrites.rule import AttrVar, Bound, Rest, Rule, RuleSet, Var, once, ops

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


S, X, Y = Var("S"), Var("X"), Var("Y")
MORE = Rest("more")
JOINED, OTHER = AttrVar("joined"), AttrVar("other")

# --------------------------------------------------------------------------- scaled and outer factors


def _over(op: str, x: Hop, y: Hop, root: Hop) -> Hop:
    return make(op, (x, y), root.line)


def less_to_scale(root: Hop, b: Bound) -> bool:
    """The product is smaller than the factor A."""
    return wide_float(b["A"]) and root.meta.size < b["A"].meta.size


def matrix_to_scale(root: Hop, b: Bound) -> bool:
    """A is a matrix, and the product is smaller."""
    return b["A"].meta.ndim == 2 and less_to_scale(root, b)


def other_is_smaller(root: Hop, b: Bound) -> bool:
    """A is a matrix, and B is smaller."""
    a, other = b["A"], b["B"].meta
    return a.meta.ndim == 2 and other.size < a.meta.size and other.ndim < 3 and wide_float(a)


def _is_number(root: Hop, b: Bound) -> bool:
    return not b["C"].meta.shape and bool(b["A"].meta.dtype == root.meta.dtype)


def rows_scaled(root: Hop, b: Bound) -> bool:
    """C is a column that scales the rows of A, and the product is smaller than A."""
    return matrix_to_scale(root, b) and is_column(b["C"], b["A"].meta.shape[0])


def columns_scaled(root: Hop, b: Bound) -> bool:
    """C is a row that scales the columns of A, or a number, and B is smaller than A."""
    return other_is_smaller(root, b) and (_is_number(root, b) or is_row(b["C"], b["A"].meta.shape[1]))


def columns_scaled_behind(root: Hop, b: Bound) -> bool:
    """C is a row that scales the columns of A, and the product is smaller than A."""
    return matrix_to_scale(root, b) and is_row(b["C"], b["A"].meta.shape[1])


def rows_scaled_behind(root: Hop, b: Bound) -> bool:
    """C is a column that scales the rows of A, or a number, and B is smaller than A."""
    return other_is_smaller(root, b) and (_is_number(root, b) or is_column(b["C"], b["A"].meta.shape[0]))


def scaled_product(op: str, root: Hop, b: Bound) -> Hop:
    """Build the product of A, and scale its rows."""
    made = make("matmul", (b["A"], b["B"]), root.line)
    return _over(op, made, b["C"] if made.meta.ndim == 2 else flat(b["C"]), root)


def scaled_right(op: str, root: Hop, b: Bound) -> Hop:
    """Build the product of A with scaled rows of B."""
    scale = flat(b["C"]) if b["C"].meta.ndim else b["C"]
    if b["B"].meta.ndim == 2 and scale.meta.ndim:
        scale = column_of(scale)
    return make("matmul", (b["A"], _over(op, b["B"], scale, root)), root.line)


def product_scaled(op: str, root: Hop, b: Bound) -> Hop:
    """Build the product with A, and scale its columns."""
    return _over(op, make("matmul", (b["B"], b["A"]), root.line), flat(b["C"]), root)


def scaled_left(op: str, root: Hop, b: Bound) -> Hop:
    """Build the product of scaled columns of B with A."""
    scale = flat(b["C"]) if b["C"].meta.ndim else b["C"]
    return make("matmul", (_over(op, b["B"], scale, root), b["A"]), root.line)


def _named(build: Callable[[str, Hop, Bound], Hop], op: str) -> Callable[[Hop, Bound], Hop]:
    return partial(build, op)


def number_and_less(root: Hop, b: Bound) -> bool:
    """S is one number, and the product is smaller than A."""
    return b["S"].meta.ndim == 0 and less_to_scale(root, b)


def outer_factor(root: Hop, b: Bound) -> bool:
    """A is a column and C a row, whose product is a matrix, in front of B."""
    a, c = b["A"].meta, b["C"].meta
    vectors = a.ndim == 2 and is_column(b["A"], a.shape[0]) and is_row(b["C"], c.size)
    return vectors and wide_float(b["A"]) and b["B"].meta.ndim in (1, 2)


def outer_factor_behind(root: Hop, b: Bound) -> bool:
    """A is a column and C a row, whose product is a matrix, behind B."""
    return outer_factor(root, b)


def outer_first(root: Hop, b: Bound) -> Hop:
    """Build the column, scaled by the product of the row with B."""
    inner = make("matmul", (flat(b["C"]), b["B"]), root.line)
    return make("multiply", (b["A"] if inner.meta.ndim else flat(b["A"]), inner), root.line)


def outer_last(root: Hop, b: Bound) -> Hop:
    """Build the row, scaled by the product of B with the column."""
    inner = make("matmul", (b["B"], flat(b["A"])), root.line)
    return make("multiply", (column_of(inner) if inner.meta.ndim else inner, flat(b["C"])), root.line)


def row_apart(root: Hop, b: Bound) -> bool:
    """C is a row, added to all rows of A, and the products are smaller than A."""
    a, c = b["A"].meta, b["B"].meta
    smaller = a.ndim == 2 and c.ndim in (1, 2) and root.meta.size + c.size < a.size
    return smaller and wide_float(b["A"]) and is_row(b["C"], a.shape[1])


def apart(op: str, root: Hop, b: Bound) -> Hop:
    """Build the product of A, and add that of the row, or subtract it."""
    products = (make("matmul", (x, b["B"]), root.line) for x in (b["A"], flat(b["C"])))
    return make(op, products, root.line)


_SCALES = (("scaled", "multiply"), ("divided", "divide"))
_SCALING = "applied to the smaller side; overflow and infinities of partial products may differ"
SCALED = RuleSet([
    *(Rule(f"{word}-rows-times", ops.matmul(once(getattr(ops, op)(A, C)), B),
           build=_named(scaled_product, op),
           when=rows_scaled, exactness="rounding", doc="rows of the product are scaled instead: " + _SCALING)
      for word, op in _SCALES),
    *(Rule(f"{word}-columns-times", ops.matmul(once(getattr(ops, op)(A, C)), B),
           build=_named(scaled_right, op),
           when=columns_scaled, exactness="rounding", doc="the other factor is scaled instead: " + _SCALING)
      for word, op in _SCALES),
    *(Rule(f"times-{word}-columns", ops.matmul(B, once(getattr(ops, op)(A, C))),
           build=_named(product_scaled, op),
           when=columns_scaled_behind, exactness="rounding",
           doc="columns of the product are scaled instead: " + _SCALING)
      for word, op in _SCALES),
    *(Rule(f"times-{word}-rows", ops.matmul(B, once(getattr(ops, op)(A, C))), build=_named(scaled_left, op),
           when=rows_scaled_behind, exactness="rounding",
           doc="the other factor is scaled instead: " + _SCALING)
      for word, op in _SCALES),
    *(Rule(f"{name}-times", ops.matmul(*(once(ops.add(A, A)), B)[::step]),
           ops.matmul(*(A, ops.add(B, B))[::step]), when=other_is_smaller, exactness="rounding",
           doc="the other factor is doubled instead: " + _SCALING)
      for name, step in (("doubled", 1), ("by-doubled", -1))),
    *(Rule(name, ops.matmul(*(once(ops.negative(A)), B)[::step]),
           ops.negative(ops.matmul(*(A, B)[::step])), when=less_to_scale, exactness="rounding",
           doc="the product has fewer signs to change; a zero may have another one")
      for name, step in (("neg-times", 1), ("times-neg", -1))),
    *(Rule(f"times-number-{place}", ops.matmul(*(once(ops.multiply(A, S)), B)[::step]),
           ops.multiply(ops.matmul(*(A, B)[::step]), S), when=number_and_less, exactness="relaxed",
           doc="the product has fewer elements; roundings differ, overflow may")
      for place, step in (("left", 1), ("right", -1))),
    *(Rule(f"over-number-{place}", ops.matmul(*(once(ops.divide(A, S)), B)[::step]),
           ops.divide(ops.matmul(*(A, B)[::step]), S), when=number_and_less, exactness="relaxed",
           doc="the product has fewer elements; roundings differ, overflow may")
      for place, step in (("left", 1), ("right", -1))),
    Rule("outer-times", ops.matmul(once(ops.multiply(A, C)), B), build=outer_first, when=outer_factor,
         exactness="rounding", doc="the row meets the other factor first, no matrix is made; partial "
                                   "products may overflow, infinities differ"),
    Rule("times-outer", ops.matmul(B, once(ops.multiply(A, C))), build=outer_last, when=outer_factor_behind,
         exactness="rounding", doc="the column meets the other factor first, no matrix is made; partial "
                                   "products may overflow, infinities differ"),
    *(Rule(f"centred-{word}-times", ops.matmul(once(getattr(ops, op)(A, C)), B), build=_named(apart, op),
           when=row_apart, exactness="relaxed",
           doc="two products, and no centred matrix; digits are lost where the row is large")
      for word, op in (("sum", "add"), ("difference", "subtract"))),
])


# --------------------------------------------------------------------------- slices and joined blocks


def rows_of_product(root: Hop, b: Bound) -> bool:
    """A is a matrix, B has no more dimensions, and slices are all that is asked for."""
    flat_enough = b["A"].meta.ndim == 2 and b["B"].meta.ndim in (1, 2)
    return flat_enough and all(item[0] == "s" for item in b["index"]) and wide_float(b["A"])


def product_of_slices(root: Hop, b: Bound) -> Hop:
    """Build the product of the rows and columns asked for."""
    rows, columns = (*b["index"], *[("s", None, None, None)] * 2)[:2]
    left, right = b["A"], b["B"]
    if rows[1:] != (None, None, None):
        left = make("getitem", (left,), root.line, index=(rows,))
    if len(b["index"]) > 1 and columns[1:] != (None, None, None):
        right = make("getitem", (right,), root.line, index=(("s", None, None, None), columns))
    return make("matmul", (left, right), root.line)


def _blocks(b: Bound, first: str = "X", more: str = "more") -> tuple[Hop, ...]:
    return (b[first], *b[more])


def joined_rows(root: Hop, b: Bound) -> bool:
    """Matrices stand one below the other, and the product is smaller than they are."""
    blocks = _blocks(b)
    below = b["joined"] == 0 and blocks[0].meta.ndim == 2 and len(blocks) < _MOST_BLOCKS
    return below and wide_float(b["B"]) and root.meta.size < sum(x.meta.size for x in blocks)


def joined_columns_behind(root: Hop, b: Bound) -> bool:
    """Matrices stand side by side, behind a vector."""
    blocks = _blocks(b)
    return b["joined"] == 1 and b["B"].meta.ndim == 1 and blocks[0].meta.ndim == 2 and wide_float(b["B"]) \
        and len(blocks) < _MOST_BLOCKS


def joined_columns(root: Hop, b: Bound) -> bool:
    """Matrices stand side by side, in front of what is smaller than they are."""
    blocks = _blocks(b)
    few = b["joined"] == 1 and 1 < len(blocks) < _MOST_BLOCKS and b["B"].meta.ndim in (1, 2)
    larger = max(root.meta.size, b["B"].meta.size)
    return few and wide_float(b["B"]) and larger < sum(x.meta.size for x in blocks)


def blocks_times(root: Hop, b: Bound) -> Hop:
    """Build the products of all blocks with B, one below the other."""
    made = [make("matmul", (x, b["B"]), root.line) for x in _blocks(b)]
    return make("concatenate", made, root.line, axis=0)


def times_blocks(root: Hop, b: Bound) -> Hop:
    """Build the products of B with all blocks, side by side."""
    made = [make("matmul", (b["B"], x), root.line) for x in _blocks(b)]
    return make("concatenate", made, root.line, axis=0)


def sum_of_blocks(root: Hop, b: Bound) -> Hop:
    """Build the sum of the products of each block with its part of B."""
    line, start = root.line, const(0, np.intp)
    found = []
    for x in _blocks(b):
        shape = (x.meta.shape[1], *b["B"].meta.shape[1:])
        found.append(make("matmul", (x, make("part", (b["B"], start), line, shape=shape)), line))
        start = make("add", (start, make("count", (x,), line, axis=(1,))), line)
    return reduce(lambda p, q: make("add", (p, q), line), found)


def blocks_match(root: Hop, b: Bound) -> bool:
    """Blocks side by side meet blocks of the same lengths one below the other."""
    left, right = _blocks(b), _blocks(b, "Y", "others")
    if b["joined"] != 1 or b["other"] != 0 or not 1 < len(left) == len(right) < _MOST_BLOCKS:
        return False
    lengths = all(x.meta.shape[1] == y.meta.shape[0] for x, y in zip(left, right, strict=True))
    return lengths and left[0].meta.ndim == 2 and wide_float(left[0])


def products_of_blocks(root: Hop, b: Bound) -> Hop:
    """Build the sum of the products of blocks."""
    pairs = zip(_blocks(b), _blocks(b, "Y", "others"), strict=True)
    products = [make("matmul", pair, root.line) for pair in pairs]
    return reduce(lambda p, q: make("add", (p, q), root.line), products)


_MOST_BLOCKS = 9
JOINED_BLOCKS = RuleSet([
    Rule("slice-of-product", ops.getitem(once(ops.matmul(A, B)), index=AttrVar("index")),
         build=product_of_slices,
         when=rows_of_product, exactness="rounding",
         doc="only the rows and columns that are read; BLAS takes another path, others do not warn"),
    Rule("joined-rows-times", ops.matmul(once(ops.concatenate(X, MORE, axis=JOINED)), B), build=blocks_times,
         when=joined_rows, exactness="rounding",
         doc="the product is joined, not the matrices; BLAS may take another path"),
    Rule("times-joined-columns", ops.matmul(B, once(ops.concatenate(X, MORE, axis=JOINED))),
         build=times_blocks,
         when=joined_columns_behind, exactness="rounding",
         doc="the products are joined, not the matrices; BLAS may take another path"),
    Rule("joined-times-joined", ops.matmul(once(ops.concatenate(X, MORE, axis=JOINED)),
                                           once(ops.concatenate(Y, Rest("others"), axis=OTHER))),
         build=products_of_blocks, when=blocks_match, exactness="relaxed",
         doc="block by block, nothing is joined; sums are added up in another order"),
    Rule("joined-columns-times", ops.matmul(once(ops.concatenate(X, MORE, axis=JOINED)), B),
         build=sum_of_blocks,
         when=joined_columns, exactness="relaxed",
         doc="every block meets its part of the other factor, nothing is joined; sums are added up in "
             "another order"),
])

SCALED_PRODUCTS = SCALED + JOINED_BLOCKS


V = Var("V")



def total_of_diagonal(root: Hop, b: Bound) -> Hop:
    """Build the sum of the diagonal."""
    return make("sum", (make("diagonal", (b["X"],), root.line),), root.line, axis=(0,), keepdims=False)


def matrices(root: Hop, b: Bound) -> bool:
    """A and B are matrices whose product is square, of integers that sums keep, or wide floats."""
    a, c = b["A"].meta, b["B"].meta
    square = a.ndim == c.ndim == 2 and a.shape[0] == c.shape[1] and min(a.shape) > 1
    kept = a.dtype.kind in "iu" and a.dtype.itemsize == np.dtype(np.intp).itemsize
    return bool(square and (kept or wide_float(b["A"])))


def sums_of_rows(root: Hop, b: Bound) -> Hop:
    """Build the sums of the products of rows of A with columns of B; transposes cancel where there are "
    "some."""
    a, c, line = b["A"], b["B"], root.line
    if a.op.name == "transpose" and c.op.name != "transpose":
        cells, axis = make("multiply", (a.inputs[0], c), line), 0
    else:
        turned = c.inputs[0] if c.op.name == "transpose" else make("transpose", (c,), line, axes=SWAP)
        cells, axis = make("multiply", (a, turned), line), 1
    return make("sum", (cells,), line, axis=(axis,), keepdims=False)


def square_cells(root: Hop, b: Bound) -> bool:
    """X is computed element by element, from matrices of its shape and single numbers; nothing can be "
    "warned of."""
    return _cells(b["X"]) and not possible_flags(b["X"])


def cells_that_warn(root: Hop, b: Bound) -> bool:
    """X is computed element by element, and NumPy may warn of elements beside the diagonal."""
    return _cells(b["X"]) and bool(possible_flags(b["X"]))


def _cells(x: Hop) -> bool:
    shapes = {i.meta.shape for i in x.inputs}
    return x.op.kind is Kind.CELL and x.meta.shape in shapes and shapes <= {x.meta.shape, ()}


def cells_of_diagonals(root: Hop, b: Bound) -> Hop:
    """Build the operation on the diagonals of the operands."""
    x = b["X"]
    parts = [make("diagonal", (i,), root.line) if i.meta.ndim else i for i in x.inputs]
    return make(x.op.name, parts, x.line, **dict(x.attrs))


def scaling_rows(root: Hop, b: Bound) -> bool:
    """The diagonal is of wide floats, and meets a vector or a matrix."""
    return wide_float(b["V"]) and b["X"].meta.ndim in (1, 2)


def rows_times(root: Hop, b: Bound) -> Hop:
    """Build X with its rows scaled."""
    scale = b["V"] if b["X"].meta.ndim == 1 else column_of(b["V"])
    return make("multiply", (scale, b["X"]), root.line)


_NOT_ZERO = "; infinity and NaN stay in their rows and columns"
DIAGONALS = RuleSet([
    Rule("trace-as-sum", ops.trace(X), build=total_of_diagonal, doc="as NumPy computes it"),
    Rule("diagonal-of-t", ops.diagonal(ops.transpose(X, axes=SWAP)), ops.diagonal(X),
         doc="it stays where it is"),
    Rule("diagonal-of-product", ops.diagonal(once(ops.matmul(A, B))), build=sums_of_rows, when=matrices,
         exactness="rounding",
         doc="n sums instead of n²; terms are added up in another order, sums beside the diagonal do not "
             "overflow"),
    Rule("diagonal-of-cells", ops.diagonal(X), build=cells_of_diagonals, when=square_cells,
         doc="n elements instead of n²"),
    Rule("diagonal-of-warning-cells", ops.diagonal(X), build=cells_of_diagonals,
         when=cells_that_warn, exactness="relaxed",
         doc="n elements instead of n²; nobody warns of the others, values are the same"),
    Rule("diagonal-of-diag", ops.diagonal(ops.diag(V)), V, doc="what it was made of"),
    Rule("diag-times", ops.matmul(ops.diag(V), X), build=rows_times, when=scaling_rows, exactness="rounding",
         doc="rows are scaled, no matrix is made" + _NOT_ZERO),
    Rule("times-diag", ops.matmul(X, ops.diag(V)), ops.multiply(X, V), when=scaling_rows,
         exactness="rounding",
         doc="columns are scaled, no matrix is made" + _NOT_ZERO),
    Rule("t-of-diag", ops.transpose(ops.diag(V), axes=SWAP), ops.diag(V), doc="it is symmetric"),
])
