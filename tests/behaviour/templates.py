"""Programs for every template, every dtype and every kind of kernel, with arguments large enough to share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

UNARY = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "sinh", "cosh", "tanh",
    "arcsin", "arccos", "arctan", "arcsinh", "arccosh", "arctanh", "cbrt", "sqrt", "rint", "floor", "trunc",
)
REALS = ("f8", "f4")
WHOLE = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8")
DTYPES = (*REALS, *WHOLE, "?", "c16", "c8")


class Program(NamedTuple):
    """`fused`: products are added up, on some processors without rounding: bits depend on the level."""

    function: Callable[..., Any]
    arguments: tuple[np.ndarray, ...]
    fused: bool = False


def values(dtype: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Values of `dtype`, with a few special ones among floats."""
    rng, kind = np.random.default_rng(seed), np.dtype(dtype)
    if kind.kind == "b":
        return rng.random(shape) > 0.5
    if kind.kind in "iu":
        return rng.integers(1, 100, shape).astype(kind)
    if kind.kind == "c":
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(kind)
    made = rng.standard_normal(shape).astype(kind) * 4
    made.flat[:9] = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-30, 1e30]
    return made


def _cells(x, y):
    return x + y - y * x, x == y, np.maximum(x, y), np.where(x > y, x, y)


def _complex(x, y):
    return x + y - x.conj(), x == y, (x - y).real, x.imag * 2


def _bools(x, y):
    return x & y | ~x, x ^ y, (x | y).sum(), (x & y).any()


def _divided(x, y):
    return x // y, x % y, x / y, divmod(x, y)[0]


def _aggregates(x, y):
    return x.sum(), (x * y).sum(), x.max(), y.min(), np.count_nonzero(x > y)


def _directions(x):
    return x.sum(0), x.sum(1), x.max(0), x.min(1), x.mean(1), x.sum()


def _spread(x):
    return x.var(0), x.std(1), x.mean()


def _softmax(x):
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def _log_sum_exp(x):
    m = x.max(1)
    return m + np.log(np.exp(x - m[:, None]).sum(1))


def _standardised(x):
    return (x - x.mean(0)) / x.std(0)


def _scan(x):
    return np.cumsum(x, axis=1), np.cumsum(x, axis=0)


def _extremes(x):
    return x.argmin(1), x.argmax(1), x.argmin(), (x * x).argmax(1)


def _jacobi(a):
    return 0.25 * (a[1:-1, :-2] + a[1:-1, 2:] + a[:-2, 1:-1] + a[2:, 1:-1])


def _heat(a):
    for _ in range(4):
        a[1:-1, 1:-1] += 0.1 * (
            a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:] - 4.0 * a[1:-1, 1:-1])
    return a


def _blur(a):
    rows = (a[:-2] + a[1:-1] + a[2:]) / 3
    return (rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]) / 3


def _shift_in_place(x):
    x[1:] = 0.5 * (x[1:] + x[:-1])
    x[:-3] -= x[3:] * 0.25
    return x


def _strided(x):
    return x[::2, 1::3] * 2 + 1, x.T[::-1] - 1, (x[:, ::-1] * x).sum(1)


def _transposed(x, y):
    return x + y.T, (x * y.T).sum(0)


def _broadcast(x, row, column):
    return x * row + column, (x - row).sum(0), (x * column).max(1)


def _small_inner(x):
    return x * 2 + x[:, :1], x.sum(1), x.max(1)


def _mixed(f, g, i, b):
    return f + g, f * i, np.where(b, g, i), (b * f).sum(), i / 3


def _looked_up(table, index):
    return table[index], table[index].sum()


def _counted(index, weights):
    return np.bincount(index, weights, 50), np.bincount(index, minlength=60)


def _scattered(target, index, weights):
    np.add.at(target, index, weights)
    return target


def _histogram(x):
    return np.histogram(x, bins=40, range=(-3.0, 3.0))[0]


def _pairs(x, y):
    return np.arctan2(x, y), np.hypot(x, y), np.copysign(x, y), np.fmod(x, y), np.power(np.abs(x), y / 8)


def _powers(x):
    return x ** 2, x ** 3, x ** 4, x ** 0.5, x ** -1


def _loss(x, y):
    p = 1.0 / (1.0 + np.exp(-x))
    return -(y * np.log(p) + (1.0 - y) * np.log(1.0 - p)).sum() / x.size


def _weighted(x, w, v):
    return x.T @ (w * (x @ v))


def _multinomial(x, p, v):
    q = p * (x @ v)
    return x.T @ (q - p * q.sum(1, keepdims=True))


def _nearest(x, c):
    return ((x[:, None, :] - c[None]) ** 2).sum(-1).argmin(1)


def _nearest_by_product(x, c):
    return ((x * x).sum(1)[:, None] - 2 * x @ c.T + (c * c).sum(1)).argmin(1)


def _attention(q, k, v):
    s = q @ k.T / 8.0
    e = np.exp(s - s.max(1, keepdims=True))
    return (e / e.sum(1, keepdims=True)) @ v


def _outer(x, u, v):
    return (x * (u @ v.T)).sum(), np.log(1.0 + np.abs(u @ v.T)).sum()


def _complex_products(x, y):
    return x * y + x, (x * y).sum(), x / y


def _unary(name: str) -> Callable[..., Any]:
    function = getattr(np, name)

    def program(x):
        return function(x), function(x * 0.5).sum()

    return program


def programs() -> dict[str, Program]:
    """The programs by name."""
    n, shape = (40_000,), (300, 211)
    a, b = (values("f8", shape, k) for k in (1, 2))
    tame = np.random.default_rng(3).standard_normal(shape)
    index = np.random.default_rng(4).integers(0, 50, n)
    made = {
        "directions": Program(_directions, (tame,)), "spread": Program(_spread, (tame,)),
        "softmax": Program(_softmax, (tame,)), "log-sum-exp": Program(_log_sum_exp, (tame,)),
        "standardised": Program(_standardised, (tame,)), "scan": Program(_scan, (tame,)),
        "extremes": Program(_extremes, (tame,)), "extremes f4": Program(_extremes, (tame.astype("f4"),)),
        "extremes i4": Program(_extremes, (values("i4", shape),)),
        "jacobi": Program(_jacobi, (tame,)), "heat": Program(_heat, (tame,)),
        "blur": Program(_blur, (tame.astype("f4"),)), "shift": Program(_shift_in_place, (tame.ravel(),)),
        "strided": Program(_strided, (tame,)), "transposed": Program(_transposed, (tame, tame.T.copy())),
        "broadcast": Program(_broadcast, (tame, tame[0], tame[:, :1])),
        "small inner": Program(_small_inner, (tame.ravel()[:60_000].reshape(-1, 3),)),
        "mixed": Program(_mixed, (a, a.astype("f4"), values("i2", shape), values("?", shape))),
        "looked up": Program(_looked_up, (tame[0], index % 211)),
        "counted": Program(_counted, (index, tame.ravel()[:40_000])),
        "scattered": Program(_scattered, (np.zeros(50), index, tame.ravel()[:40_000])),
        "histogram": Program(_histogram, (tame,)), "pairs": Program(_pairs, (a, b)),
        "powers": Program(_powers, (a,)), "loss": Program(_loss, (tame, (tame > 0) * 1.0)),
        "divided": Program(_divided, (a, b)),
        "divided f4": Program(_divided, (a.astype("f4"), b.astype("f4"))),
        "weighted": Program(_weighted, (tame, tame[:, 0].copy(), tame[0].copy()), True),
        "multinomial": Program(_multinomial, (tame, tame[:, :5].copy(), tame[:211, :5].copy()), True),
        "nearest": Program(_nearest, (tame[:, :20].copy(), tame[:9, :20].copy())),
        "nearest by product": Program(_nearest_by_product, (tame[:, :20].copy(), tame[:9, :20].copy()), True),
        "attention": Program(_attention, tuple(tame[:, k:k + 64].copy() for k in (0, 64, 128)), True),
        "outer": Program(_outer, (tame, tame[:, :6].copy(), tame[:211, :6].copy()), True),
    }
    for dtype in DTYPES:
        x, y = values(dtype, n, 5), values(dtype, n, 6)
        kind = {"c": _complex, "b": _bools}.get(np.dtype(dtype).kind, _cells)
        made[f"cells {dtype}"] = Program(kind, (x, y))
        if dtype != "?":
            made[f"sums {dtype}"] = Program(
                _complex_products if kind is _complex else _aggregates, (x, y), kind is _complex)
    for dtype in WHOLE:
        made[f"divided {dtype}"] = Program(_divided, (values(dtype, n, 5), values(dtype, n, 6)))
    for name in UNARY:
        for dtype in REALS:
            made[f"{name} {dtype}"] = Program(_unary(name), (values(dtype, n, 7),))
    return made
