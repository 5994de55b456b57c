"""Random operands for rewrites, and what counts as the same result."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from jitla.hops import Hop, evaluate, start_recording, stop_recording, take_flags, topo

SPECIAL = [0.0, -0.0, np.nan, np.inf, -np.inf, 1.0, -1.0, 0.5, 5e-324, -1e-310, 1.7e308, -3e38]
EXTREME_OPS = {"min", "max", "maximum", "minimum", "fmax", "fmin", "clip"}


def operand(hop: Hop, rng: np.random.Generator, special: bool) -> np.ndarray:
    """A random value for a leaf; half of it special values if asked for."""
    shape, dtype = hop.meta.shape, hop.meta.dtype
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        small = rng.integers(max(info.min, -9), 10, shape).astype(dtype)
        wide = rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
        return np.where(rng.random(shape) < 0.5, small, wide) if special else small
    if dtype.kind == "c":
        made = np.empty(shape, dtype)
        made.real, made.imag = (_reals(made.real.dtype, shape, rng, special) for _ in range(2))
        return made
    return _reals(dtype, shape, rng, special)


def _reals(
    dtype: np.dtype, shape: tuple[int, ...], rng: np.random.Generator, special: bool
) -> np.ndarray:
    values = rng.standard_normal(shape) * (4.0 if special else 1.0)
    if special:
        values = np.where(rng.random(shape) < 0.3, rng.choice(SPECIAL, shape), values)
    with np.errstate(all="ignore"):
        return np.asarray(values).astype(dtype)


def operands(roots: Iterable[Hop], rng: np.random.Generator, special: bool) -> list[Any]:
    """Values for all leaves below `roots`, by slot."""
    leaves = {h.attr("slot"): h for h in topo(roots) if h.op.name == "leaf"}
    size = max(leaves, default=-1) + 1
    return [operand(leaves[s], rng, special) if s in leaves else None for s in range(size)]


def values(roots: tuple[Hop, ...], given: list[Any]) -> list[Any]:
    """What the roots evaluate to, warnings being no matter here."""
    with np.errstate(all="ignore"):
        return evaluate(roots, given)


def same_bits(x: Any, y: Any, zeros: bool = True) -> bool:
    """Equal shape, dtype and bits; any NaN equals any NaN; without `zeros` their sign is free."""
    x, y = np.asarray(x), np.asarray(y)
    if x.shape != y.shape or x.dtype != y.dtype:
        return False
    if x.dtype.kind == "c":
        return same_bits(x.real, y.real, zeros) and same_bits(x.imag, y.imag, zeros)
    equal = (x == y) | ((x != x) & (y != y))
    if zeros and x.dtype.kind == "f":
        equal &= (np.signbit(x) == np.signbit(y)) | (x != x)
    return bool(np.all(equal))


def grain(roots: tuple[Hop, ...]) -> float:
    """Relative size of the largest roundings on the way to `roots`: those of the narrowest floats."""
    kinds = {h.meta.dtype for h in topo(roots)}
    return max((float(np.finfo(kind).eps) for kind in kinds if kind.kind in "fc"), default=0.0)


def close(x: Any, y: Any, eps: float = 0.0) -> bool:
    """Equal but for roundings, which may have been those of narrower floats, of relative size `eps`.

    What is left of larger numbers has their roundings.
    """
    x, y = np.asarray(x), np.asarray(y)
    if x.shape != y.shape or x.dtype != y.dtype or x.dtype.kind in "biu":
        return same_bits(x, y)
    eps = max(eps, float(np.finfo(x.dtype).eps))
    most = max(1.0, float(np.abs(x[np.isfinite(x)]).max(initial=0.0)))
    return bool(np.allclose(x, y, rtol=1e3 * eps, atol=1e3 * eps * most, equal_nan=True))


def signs_matter(roots: tuple[Hop, ...]) -> bool:
    """NumPy itself leaves the sign of a zero open in extremes."""
    return not any(h.op.name in EXTREME_OPS for h in topo(roots))


def evaluate_with_flags(roots: tuple[Hop, ...], given: list) -> tuple[list, int]:
    """Return the values of the roots, and the floating-point flags that NumPy raises for them."""
    token = start_recording()
    try:
        take_flags()
        return evaluate(roots, given), take_flags()
    finally:
        stop_recording(token)
