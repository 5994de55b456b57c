"""What aggregates combine values by, and what they start from.

Knows: names of aggregates, kinds of values. Must not know: IR.
Receives names and dtypes; returns verbs and values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jitla.codegen.vector import BOOL

COMBINE = {
    "sum": "add", "prod": "mul", "min": "minimum", "max": "maximum", "any": "or_", "all": "and_",
}


def identity(name: str, dtype: np.dtype) -> Any:
    """Return what the aggregate `name` starts from; -0.0 + x is x for every float x."""
    if name == "sum" and dtype.kind == "c":
        return complex(-0.0, -0.0)
    if name in ("sum", "any"):
        return -0.0 if dtype.kind == "f" else 0
    if name in ("prod", "all"):
        return 1
    sign = 1 if name == "min" else -1
    if dtype.kind == "f":
        return sign * np.inf
    if dtype == BOOL:
        return name == "min"
    return np.iinfo(dtype).max if name == "min" else np.iinfo(dtype).min
