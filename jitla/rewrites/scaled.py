"""Rewrites of products with factors that are made for them: scaled, outer, sliced, joined.

Canonical direction: what scales rows or columns is applied to the smaller side; only what is read is
multiplied; joined blocks are multiplied one by one. Must not know: kernels, BLAS. Returns `SCALED_PRODUCTS`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce

import numpy as np

from jitla.hops import Hop, const, make
from jitla.rewrites.conditions import column_of, flat, is_column, is_row, wide_float
from jitla.rewrites.pattern import AttrVar, Bound, Rest, Var, once, ops
from jitla.rewrites.rule import Rule, RuleSet

A, B, C, S, X, Y = map(Var, "ABCSXY")
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
