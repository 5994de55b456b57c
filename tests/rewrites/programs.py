"""Random DAGs that have much to rewrite."""

from __future__ import annotations

import numpy as np

from jitla.hops import Hop, Meta, apply, const, leaf, make

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
