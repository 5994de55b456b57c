"""Random DAGs with much to rewrite, random operands, and comparison of results."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from jitla.hops import (
    Hop,
    Meta,
    apply,
    const,
    evaluate,
    leaf,
    make,
    start_recording,
    stop_recording,
    take_flags,
    topo,
)

# Operands and comparison

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


# Random DAGs

UNARY = ["negative", "absolute", "square", "positive", "floor", "rint", "sqrt", "exp", "isnan", "logical_not",
         "conjugate", "sign", "fabs", "isinf", "isfinite", "cos", "log", "real", "imag", "invert"]
BINARY = ["add", "subtract", "multiply", "divide", "maximum", "minimum", "fmax", "less", "greater", "equal",
          "greater_equal", "logical_and", "logical_or", "power", "logical_xor", "less_equal", "not_equal",
          "fmin"]
BITS = ["bitwise_and", "bitwise_or", "bitwise_xor"]
NUMBERS = [0.0, -0.0, 1.0, -1.0, 2.0, 0.5, 3.0, 4.0]
AGGREGATES = ["sum", "prod", "min", "max", "any", "all"]
STATISTICS = ["mean", "var", "std"]
DTYPES = ["f8", "f8", "f4", "i4", "i8", "b1", "c16"]


def random_roots(rng: np.random.Generator) -> tuple[Hop, ...]:
    """One to three results of a program of some twenty operators on square and flat operands."""
    n = int(rng.integers(2, 7))
    shapes = [(n, n), (n, n), (n,), (n, 1), ()]
    pool = [leaf(i, Meta(s, np.dtype(rng.choice(DTYPES)))) for i, s in enumerate(shapes)]
    for _ in range(int(rng.integers(5, 25))):
        hop = step(rng, pool)
        if hop is not None and hop.meta.size <= 400 and not may_raise(hop):
            pool.append(hop)
    made = pool[len(shapes):] or pool
    return tuple(made[-1 - int(i)] for i in rng.integers(0, min(4, len(made)), int(rng.integers(1, 4))))


def may_raise(hop: Hop) -> bool:
    """Integers to negative integer powers are an error that depends on values."""
    return hop.op.name == "power" and hop.meta.dtype.kind in "iu"


def step(rng: np.random.Generator, pool: list[Hop]) -> Hop | None:
    """One more operator on what there is, None where NumPy refuses."""
    x, y, z = (pool[int(i)] for i in rng.integers(max(0, len(pool) - 8), len(pool), 3))
    try:
        match rng.integers(0, 11):
            case 0 | 1:
                return apply(str(rng.choice(UNARY)), x)
            case 2 | 3:
                return apply(str(rng.choice(BINARY)), x, y)
            case 4:
                return apply(str(rng.choice(BINARY)), *numbered(rng, x))
            case 5:
                return moved(rng, x)
            case 6:
                return aggregated(rng, x)
            case 7:
                op = str(rng.choice(["matmul", "matmul", "dot", *BITS]))
                return apply(op, x, y)
            case 8:
                condition = x if x.meta.dtype == bool else apply("logical_not", x)
                return apply("where", condition, y, z)
            case 9:
                return joined_or_cut(rng, x, y)
            case 10:
                return searched(rng, x)
    except (TypeError, ValueError):
        return None
    return None


def joined_or_cut(rng: np.random.Generator, x: Hop, y: Hop) -> Hop | None:
    """Blocks, slices, diagonals."""
    if not x.meta.ndim:
        return None
    axis = int(rng.integers(x.meta.ndim))
    match rng.integers(0, 3):
        case 0:
            return apply("concatenate", *[x, y, x][:int(rng.integers(2, 4))], axis=axis)
        case 1:
            cut = ("s", *[(None, 1), (None, -1), (1, None), (1, -1)][int(rng.integers(4))], None)
            return make("getitem", (x,), index=(("s", None, None, None),) * axis + (cut,))
    if x.meta.ndim == 1:
        return make("diag", (x,))
    return apply(str(rng.choice(["trace", "diagonal"])), x) if x.meta.ndim == 2 else None


def searched(rng: np.random.Generator, x: Hop) -> Hop | None:
    """Places of extremes, which nearly equal elements may exchange: of integers and signs."""
    if x.meta.dtype.kind == "f":
        x = apply("rint", x)
    if not x.meta.size or x.meta.dtype.kind not in "biuf" or not x.meta.ndim:
        return None
    axis = [None, *range(x.meta.ndim)][int(rng.integers(x.meta.ndim + 1))]
    return make(str(rng.choice(["argmin", "argmax"])), (x,), axis=axis, keepdims=bool(rng.random() < 0.2))


def numbered(rng: np.random.Generator, x: Hop) -> tuple[Hop, Hop]:
    dtype = np.dtype("i8") if x.meta.dtype == bool else x.meta.dtype
    return x, const(rng.choice(NUMBERS), dtype)


def moved(rng: np.random.Generator, x: Hop) -> Hop:
    match rng.integers(0, 4):
        case 0:
            return make("transpose", (x,), axes=tuple(int(i) for i in rng.permutation(x.meta.ndim)))
        case 1:
            return make("reshape", (x,), shape=(x.meta.size,))
        case 2:
            wider = {"f": ["f8", "f4"], "c": ["c16", "c8"]}.get(x.meta.dtype.kind, ["f8", "f4", "i8", "c16"])
            return make("cast", (x,), dtype=np.dtype(rng.choice(wider)))
    return make("flip", (x,), axis=(0,)) if x.meta.ndim else x


def aggregated(rng: np.random.Generator, x: Hop) -> Hop:
    op = str(rng.choice(AGGREGATES + STATISTICS))
    axis = tuple(int(i) for i in range(x.meta.ndim) if rng.random() < 0.7)
    return apply(op, x, axis=axis, keepdims=bool(rng.random() < 0.3))
