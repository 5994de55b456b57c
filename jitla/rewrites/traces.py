"""Rewrites of diagonals: of products, sums and transposes; of products with diagonal matrices.

Canonical direction: a trace is the sum of a diagonal, a diagonal is asked of the operands,
a diagonal matrix is
never made. Must not know: kernels. Returns `DIAGONALS`.
"""

from __future__ import annotations

import numpy as np

from jitla.hops import Hop, Kind, make, may_raise
from jitla.rewrites.conditions import column_of, wide_float
from jitla.rewrites.pattern import Bound, Var, once, ops
from jitla.rewrites.rule import Rule, RuleSet

X, A, B, V = map(Var, "XABV")
SWAP = (1, 0)


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
    return _cells(b["X"]) and not may_raise(b["X"])


def cells_that_warn(root: Hop, b: Bound) -> bool:
    """X is computed element by element, and NumPy may warn of elements beside the diagonal."""
    return _cells(b["X"]) and bool(may_raise(b["X"]))


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
