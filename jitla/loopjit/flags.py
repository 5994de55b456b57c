"""Floating-point flags: which values and statements may raise one that NumPy warns of."""

from __future__ import annotations

from typing import Any

import numpy as np

from jitla.loopir import program as ir

_QUIET = frozenset({"less", "less_equal", "greater", "greater_equal", "equal", "not_equal", "bitwise_and",
                    "bitwise_or", "bitwise_xor", "logical_not", "where", "negative", "absolute", "maximum",
                    "minimum", "cast", "positive", "copysign", "invert", "floor", "ceil", "trunc", "rint",
                    "isnan", "isinf", "isfinite", "signbit", "sign"})


def may_raise_flags(nodes: list[Any]) -> bool:
    """Return whether nodes of a program may raise a floating-point flag that NumPy warns of."""
    for part in nodes:
        if isinstance(part, (ir.InnerLoop, ir.Dot, ir.Foreign)):
            return True
        if isinstance(part, ir.Apply) and part.op not in _QUIET and (
                part.dtype.kind in "fc" or part.op in ("floor_divide", "remainder", "fmod", "divide")):
            return True
        if isinstance(part, ir.Apply) and part.op == "cast" and (
                part.dtype.kind in "iu" and ir.dtype_of_value(part.args[0]).kind == "f"
                or part.dtype == np.float32):
            return True
    return False
