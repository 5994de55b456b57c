"""Rewrites of what is only asked for at the stored positions of a sparse matrix.

Knows: which elements an element of a result needs. Must not know: where positions come from.
Returns `STORED`.

They hold for every value at the positions asked for. The others are not computed and do not warn.
"""

from __future__ import annotations

from jitla.hops import Hop, Kind, make
from jitla.rewrites.pattern import Bound, Var, ops
from jitla.rewrites.rule import Rule, RuleSet

X, A, B, STARTS, COLUMNS = map(Var, ("X", "A", "B", "STARTS", "COLUMNS"))
SWAP = (1, 0)


def _at(x: Hop, shape: tuple[int, ...], b: Bound, root: Hop) -> Hop:
    """Return what `x`, broadcast to `shape`, has at the positions."""
    starts, columns, line = b["STARTS"], b["COLUMNS"], root.line
    if x.meta.size == 1:
        return x if x.meta.shape == () else make("reshape", (x,), line, shape=())
    if x.meta.shape == shape:
        return make("sampled", (x, starts, columns), line)
    if x.meta.shape[-1] == 1:
        return make("by_row", (make("reshape", (x,), line, shape=shape[:1]), starts, columns), line)
    return make("by_column", (make("reshape", (x,), line, shape=shape[1:]), columns), line)


def element_wise(root: Hop, b: Bound) -> bool:
    """X is computed element by element, and an operand of its shape or a line of it stays an array."""
    x = b["X"]
    return x.op.kind is Kind.CELL and any(i.meta.size > 1 for i in x.inputs)


def cell_of_samples(root: Hop, b: Bound) -> Hop:
    """Build the operation on what its operands have at the positions."""
    x = b["X"]
    return make(x.op.name, tuple(_at(i, x.meta.shape, b, root) for i in x.inputs), x.line, **dict(x.attrs))


def repeated(root: Hop, b: Bound) -> bool:
    """X is more than one element, repeated."""
    return bool(b["X"].meta.size > 1)


def line_of_samples(root: Hop, b: Bound) -> Hop:
    """Build what the repeated values have at the positions."""
    return _at(b["X"], root.inputs[0].meta.shape, b, root)


def float_product(root: Hop, b: Bound) -> bool:
    """A and B are matrices of floats."""
    return all(b[n].meta.ndim == 2 and b[n].meta.dtype.kind == "f" for n in "AB")


def product_at(root: Hop, b: Bound) -> Hop:
    """Build the products of rows of A with columns of B."""
    right, line = b["B"], root.line
    rows = right.inputs[0] if right.op.name == "transpose" else make("transpose", (right,), line, axes=SWAP)
    return make("sampled_product", (b["A"], rows, b["STARTS"], b["COLUMNS"]), line)


STORED = RuleSet([
    Rule("sampled-of-cell", ops.sampled(X, STARTS, COLUMNS), build=cell_of_samples, when=element_wise,
         doc="an element needs the elements at its place only"),
    Rule("sampled-of-broadcast", ops.sampled(ops.broadcast_to(X), STARTS, COLUMNS), build=line_of_samples,
         when=repeated, doc="the line that is repeated has them all"),
    Rule("sampled-of-matmul", ops.sampled(ops.matmul(A, B), STARTS, COLUMNS), build=product_at,
         when=float_product, exactness="rounding",
         doc="the whole may be far larger than what is read of it; terms are added in another order"),
])
