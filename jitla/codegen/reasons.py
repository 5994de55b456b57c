"""Which operators can be in a kernel's body.

Knows: what text can be written for. Must not know: plans, machine code. Receives hops; returns reasons.
"""

from __future__ import annotations

from collections.abc import Sequence

from jitla.codegen.division import result_dtype
from jitla.codegen.module import DIVISIONS, refuse_math
from jitla.codegen.scalar import LlvmBuilder
from jitla.codegen.span import emit_hop
from jitla.codegen.vector import Value, named, refuse
from jitla.errors import BackendError
from jitla.fusion import COMPRESSED
from jitla.hops import Hop, Kind

__all__ = ["reason_of"]


def _is_product(hop: Hop) -> bool:
    """Tell whether `hop` is a product there are loops for: of a matrix of floats, or of stacks."""
    if hop.op.name in COMPRESSED:
        data, columns, starts, x = (i.meta.dtype for i in hop.inputs)
        return data == x and data.char in "fd" and columns == starts and columns.char in "il"
    if hop.op.name == "cumsum":  # the running sums of every row
        matrix = hop.inputs[0].meta
        return matrix.ndim > 1 and hop.attr("axis") == matrix.ndim - 1 and \
            matrix.dtype == hop.meta.dtype and hop.meta.dtype.kind == "f"
    if hop.op.name in ("argmin", "argmax"):  # where every row has its extreme
        matrix = hop.inputs[0].meta
        return matrix.ndim > 1 and hop.attr("axis") == matrix.ndim - 1 and matrix.dtype.kind in "biuf"
    if hop.op.name in ("concatenate", "stack"):  # rows side by side
        return 1 < hop.meta.ndim == hop.attr("axis") + 1 and \
            all(i.meta.dtype == hop.meta.dtype for i in hop.inputs)
    ranks = tuple([i.meta.ndim for i in hop.inputs])
    kinds = {i.meta.dtype for i in (hop, *hop.inputs)}
    if hop.op.name not in ("matmul", "dot") or max(ranks) < 2 or not min(ranks) or len(kinds) > 1:
        return False
    stacked = max(ranks) > 2 and hop.op.name == "matmul" and hop.meta.dtype.kind != "b"
    return stacked or max(ranks) == 2 and hop.meta.dtype.kind == "f"


def _probe_math(b: LlvmBuilder, name: str, xs: Sequence[Value]) -> Value:
    if name not in (*DIVISIONS, "muladd"):
        refuse_math(name, xs[0].dtype)
    return Value(result_dtype(name, xs[0].dtype), "%math")


def reason_of(hop: Hop) -> str | None:
    """Return why `hop` cannot be in a kernel, or None.

    Dtypes, numbers of dimensions and attributes matter, sizes do not.
    """
    for dtype in (hop.meta.dtype, *(i.meta.dtype for i in hop.inputs)):
        reason = refuse(dtype)
        if reason:
            return reason
    if hop.op.kind is Kind.AGG:
        return _refuse_aggregate(hop)
    if hop.op.kind in (Kind.TAKE, Kind.TALLY):
        return None
    if hop.op.kind is not Kind.CELL:
        return None if _is_product(hop) else "not element-wise"
    b = LlvmBuilder([], 2, _probe_math)
    try:
        emit_hop(b, hop, [named(i.meta.dtype, f"%x{k}") for k, i in enumerate(hop.inputs)])
    except BackendError as error:
        return str(error)
    return None


def _refuse_aggregate(hop: Hop) -> str | None:
    if hop.op.name == "prod" and hop.meta.dtype.kind in "fc":
        return "NumPy multiplies floats one after the other"
    if hop.op.name in ("min", "max") and hop.meta.dtype.kind == "c":
        return "NumPy keeps the first of several NaNs, which differ in their other part"
    return None
