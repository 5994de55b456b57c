"""Helpers of the tests of this package: layouts of leaves, exact comparison of results."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from jitla.fusion import Layout, layout_operands
from jitla.hops import Hop, evaluate, topo


def layouts_of(leaves: Sequence[Any]) -> dict[int, Layout]:
    """Layouts of the array leaves, by slot."""
    return {i: Layout(x.shape, x.strides) for i, x in enumerate(leaves) if isinstance(x, np.ndarray)}


def expected(roots: tuple[Hop, ...], leaves: Sequence[Any]) -> list[Any]:
    """What the interpreter makes of the roots, laid out as ufuncs do that cast while they read."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        order = topo(roots)
        values = dict(zip(order, evaluate(order, leaves), strict=True))
        for hop in order:
            given = layout_operands(hop)
            if hop.inputs:
                _relay(hop, [values[i] for i in given], values)
        return [values[r] for r in roots]


def _relay(hop: Hop, given: list[Any], values: dict[Hop, Any]) -> None:
    """Give the value of `hop` the layout it has when NumPy reads the uncast operands."""
    again = hop.op.ref(*given, **dict(hop.attrs))
    old = values[hop]
    if isinstance(again, np.ndarray) and again.shape == old.shape and again.dtype == old.dtype:
        values[hop] = again


def run(bound: Any, leaves: Sequence[Any]) -> tuple[Any, ...]:
    """Run a bound program without warnings."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return bound.run(list(leaves))


def difference(got: Any, want: Any) -> str:
    """Say how two results differ; empty if not at all."""
    if type(got) is not type(want):
        return f"type {type(got)} for {type(want)}"
    if isinstance(got, np.ndarray):
        for fact in ("shape", "dtype"):
            if getattr(got, fact) != getattr(want, fact):
                return f"{fact} {getattr(got, fact)} for {getattr(want, fact)}"
        steps = [(s, t) for n, s, t in zip(got.shape, got.strides, want.strides, strict=True) if n > 1]
        if got.size and any(s != t for s, t in steps):  # a step that is never taken means nothing
            return f"strides {got.strides} for {want.strides}"
    if not np.array_equal(_bits(got), _bits(want)):
        return f"values {got} for {want}"
    return ""


def _bits(value: Any) -> np.ndarray:
    """Bit patterns; NaNs are all alike, and of both zeros one is as good."""
    array = np.array(value)
    if array.dtype.kind == "f":  # any NaN is as good as another
        array = np.where(np.isnan(array), array.dtype.type(np.nan), array)
        return array.view(f"i{array.itemsize}")
    return array
