"""What shows that an operation raised floating-point flags: its operands beside its value.

Knows: where NaN and infinities come from. Must not know: blocks, warnings, kernels.
Receives hops; returns hops that are true if flags were raised, and of which they tell.

A quiet NaN comes from NaN, a silent infinity from infinities.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from jitla.hops import DIVIDE, INVALID, OVERFLOW, Hop, Kind, apply, const

# Of these an infinite value of finite operands has overflown, or comes of dividing by zero.
_OVERFLOWING = frozenset({
    "add", "subtract", "multiply", "square", "exp", "exp2", "expm1", "sinh", "cosh", "cast"})
_DIVIDING = frozenset({"log", "log2", "log10", "log1p"})
# Of these either: it divided by zero if this operand is zero.
_EITHER = {"divide": 1, "reciprocal": 0, "power": 0}
_NAMED = _OVERFLOWING | _DIVIDING | _EITHER.keys() | {"sqrt"}


class Sign(NamedTuple):
    """A value that is true if entry `entry` raised `flags`; all of these if `exact`, else some of them."""

    entry: int
    flags: int
    exact: bool
    shown_by: Hop


def signs_of(entry: int, hop: Hop, flags: int) -> list[Sign] | None:
    """Return the signs of those `flags` that computing `hop` may have raised; None: it shows nothing."""
    if hop.meta.dtype.kind in "iu" and hop.op.name != "cast":
        return [Sign(entry, flags, False, _any(_bad_division(hop)))]
    if hop.op.name in ("logaddexp", "logaddexp2"):
        return None  # NumPy's loops compare NaNs in a way that raises flags
    if hop.meta.dtype.kind != "f" or any(i.meta.dtype.kind != "f" for i in hop.inputs):
        return None
    if hop.op.kind is not Kind.CELL:
        return [Sign(entry, flags, False, _of_whole(hop))]
    if hop.op.name == "power" and _flags_infinities(hop.meta.dtype):
        return None
    nan, inf = apply("isnan", hop), apply("isinf", hop)
    for given in hop.inputs:
        nan = apply("logical_and", nan, apply("logical_not", apply("isnan", given)))
        inf = apply("logical_and", inf, apply("isfinite", given))
    name = hop.op.name
    if name not in _NAMED or not hop.meta.shape:
        return [Sign(entry, flags, False, _any(apply("logical_or", nan, inf)))]
    shown = {INVALID: nan}
    if name in _OVERFLOWING:
        shown[OVERFLOW] = inf
    elif name in _DIVIDING:
        shown[DIVIDE] = inf
    elif name in _EITHER:
        divisor = apply("logical_not", hop.inputs[_EITHER[name]])
        shown[DIVIDE] = apply("logical_and", inf, divisor)
        shown[OVERFLOW] = apply("logical_and", inf, apply("logical_not", divisor))
    return [Sign(entry, bit, True, _any(at)) for bit, at in shown.items() if bit & flags]


@cache
def _flags_infinities(dtype: np.dtype) -> bool:
    """Say whether NumPy's powers of infinite exponents raise flags: its loops for some processors do."""
    with np.errstate(divide="raise", over="raise"):
        try:
            for base in (0.0, np.finfo(dtype).max):
                np.power(np.full(2, base, dtype), np.full(2, -np.inf if not base else np.inf, dtype))
        except FloatingPointError:
            return True
    return False


def _of_whole(hop: Hop) -> Hop:
    """Return whether a value made of many has NaN or an infinity that no operand has."""
    nan, inf = _any(apply("isnan", hop)), _any(apply("isinf", hop))
    for given in hop.inputs:
        nan = apply("logical_and", nan, apply("logical_not", _any(apply("isnan", given))))
        inf = apply("logical_or", inf, _any(apply("isinf", given)))
    return apply("logical_or", nan, inf)


def _bad_division(hop: Hop) -> Hop:
    """Return where integers are divided by zero, or the least one by -1."""
    divisor, dtype = hop.inputs[-1], hop.meta.dtype
    bad = apply("logical_not", divisor)
    if hop.op.name != "floor_divide" or dtype.kind == "u":
        return bad
    minus, least = const(-1, dtype), const(np.iinfo(dtype).min, dtype)
    beyond = apply("logical_and", apply("equal", divisor, minus), apply("equal", hop, least))
    return apply("logical_or", bad, beyond)


def _any(hop: Hop) -> Hop:
    axes = tuple(range(len(hop.meta.shape)))
    return apply("any", hop, axis=axes, keepdims=False) if axes else hop
