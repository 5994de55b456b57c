"""Rewrites of what is only asked for at the stored positions of a sparse matrix.

Knows: which elements an element of a result needs, when all of them take less time than some.
Must not know: where positions come from.
Returns `STORED`.

They hold for every value at the positions asked for. The others are not computed and do not warn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jitla.hops import REFERENCE, Hop, Kind, flops, make, substitute, uses
from jitla.rewrites.pattern import Bound, Var, ops
from jitla.rewrites.rule import Hook, Rule, RuleSet, check

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


def turnable(root: Hop, b: Bound) -> bool:
    """X is computed element by element, or repeats a line, and none of its operands is transposed."""
    x = b["X"]
    return x.meta.ndim == 2 and (x.op.kind is Kind.CELL or x.op.name == "broadcast_to")


def sample_of_turned(root: Hop, b: Bound) -> Hop:
    """Build the elements of X with its operands transposed."""
    x = b["X"]
    inputs = tuple(_turned(i, x.line) for i in x.inputs)
    attrs = dict(x.attrs) | ({"shape": x.meta.shape[::-1]} if x.op.name == "broadcast_to" else {})
    return make("sampled", (make(x.op.name, inputs, x.line, **attrs), b["STARTS"], b["COLUMNS"]), root.line)


def _turned(x: Hop, line: Any) -> Hop:
    """Return the transposed of `x`, which takes part in a result of two dimensions."""
    if x.meta.ndim == 0:
        return x
    if x.meta.ndim == 1:
        return make("reshape", (x,), line, shape=(x.meta.size, 1))
    if x.op.name == "transpose":
        return x.inputs[0]
    return make("transpose", (x,), line, axes=SWAP)


# --------------------------------------------------------------------------- products at positions


def sample_products(roots: tuple[Hop, ...], hook: Hook) -> tuple[Hop, ...]:
    """Return `roots` with products that are asked for at stored positions only computed there.

    A product is formed where something else needs all of it, and where that is cheaper.
    """
    made: dict[Hop, Hop] = {}
    users = uses(roots)
    for product in [h for h in users if h.op.name == "matmul" and _is_of_matrices(h)]:
        samples = _samples(product, users, roots)
        if samples and _costs_less(product, samples):
            for sample in samples:
                after = _product_at(sample)
                check(SAMPLED_PRODUCT, sample, after)
                if hook(SAMPLED_PRODUCT, sample, after):
                    made[sample] = after
    return substitute(roots, made) if made else roots


def _is_of_matrices(product: Hop) -> bool:
    return all(i.meta.ndim == 2 and i.meta.dtype.kind == "f" for i in product.inputs)


def _samples(product: Hop, users: Mapping[Hop, Sequence[Hop]], roots: tuple[Hop, ...]) -> list[Hop]:
    """Return what asks for elements of `product` only; nothing if something asks for it all."""
    found: list[Hop] = []
    for view in (product, *(u for u in users[product] if _swaps(u))):
        asking = [u for u in users[view] if u is not view and not (view is product and _swaps(u))]
        if view in roots or any(u.op.name != "sampled" or u.inputs[0] is not view for u in asking):
            return []
        found += asking
    return list(dict.fromkeys(found))


def _swaps(hop: Hop) -> bool:
    return hop.op.name == "transpose" and hop.attr("axes") == SWAP


def _costs_less(product: Hop, samples: list[Hop]) -> bool:
    """Tell whether elements of `product` are computed one by one in less time than all of them.

    BLAS takes less for each, but a product has to be written to new memory and read again.
    """
    (rows, depth), columns = product.inputs[0].meta.shape, product.inputs[1].meta.shape[1]
    size, machine = product.meta.dtype.itemsize, REFERENCE
    flat = 2.0 * rows * columns * depth * size / 8 / machine.product
    whole = rows * columns * size
    formed = flat + whole * machine.fault + machine.writing(whole, whole) + machine.reading(whole, whole)
    apart = sum(flops(_product_at(s)) * size / 8 - flops(s) for s in samples)
    return apart * machine.unit < formed


def _product_at(sample: Hop) -> Hop:
    """Return the products that `sample` asks for: of rows of one factor with columns of the other."""
    product, starts, columns = sample.inputs
    if _swaps(product):  # (A @ B).T is B.T @ A.T
        across, down = product.inputs[0].inputs
        return make("sampled_product", (_turned(down, sample.line), across, starts, columns), sample.line)
    left, right = product.inputs
    return make("sampled_product", (left, _turned(right, sample.line), starts, columns), sample.line)


SAMPLED_PRODUCT = Rule(
    "sampled-of-matmul", ops.sampled(ops.matmul(A, B), STARTS, COLUMNS), across=sample_products,
    exactness="rounding",
    doc="the whole may be far larger than what is read of it; terms are added in another order")
STORED = RuleSet([
    Rule("sampled-of-cell", ops.sampled(X, STARTS, COLUMNS), build=cell_of_samples, when=element_wise,
         doc="an element needs the elements at its place only"),
    Rule("sampled-of-broadcast", ops.sampled(ops.broadcast_to(X), STARTS, COLUMNS), build=line_of_samples,
         when=repeated, doc="the line that is repeated has them all"),
    Rule("sampled-of-t", ops.sampled(ops.transpose(X, axes=SWAP), STARTS, COLUMNS), build=sample_of_turned,
         when=turnable, doc="operands are transposed, which moves nothing"),
    SAMPLED_PRODUCT,
])
