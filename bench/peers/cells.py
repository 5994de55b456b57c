"""Element-wise rows and sums of them: what memory bounds."""

from __future__ import annotations

import numpy as np
from numba import prange

from bench.peers.row import Array, Row, normals

LARGE = 20_000_000


def product_sum(x: Array, y: Array, z: Array) -> float:
    return (x * y * z).sum()


def product_sum_loop(x, y, z):
    total = x.dtype.type(0)
    for i in prange(x.size):
        total += x[i] * y[i] * z[i]
    return total


def fresh(a: Array, b: Array, c: Array, d: Array, e: Array) -> Array:
    return a * b + c * d - e


def fresh_loop(a, b, c, d, e):
    out = np.empty_like(a)
    for i in prange(a.size):
        out[i] = a[i] * b[i] + c[i] * d[i] - e[i]
    return out


def reused(out: Array, a: Array, b: Array, c: Array, d: Array, e: Array) -> None:
    out[:] = a * b + c * d - e


def reused_loop(out, a, b, c, d, e):
    for i in prange(a.size):
        out[i] = a[i] * b[i] + c[i] * d[i] - e[i]


def two_sums(x: Array, y: Array, z: Array) -> tuple[float, float]:
    return (x * y).sum(), (x * z).sum()


def two_sums_loop(x, y, z):
    first = second = 0.0
    for i in prange(x.size):
        first += x[i] * y[i]
        second += x[i] * z[i]
    return first, second


def fused_complex(a: Array, b: Array, c: Array) -> Array:
    return a * b + c


def fused_loop(a, b, c):
    out = np.empty_like(a)
    for i in prange(a.size):
        out[i] = a[i] * b[i] + c[i]
    return out


def integers(a: Array, b: Array, c: Array) -> Array:
    return a * b + (c ^ a)


def integers_loop(a, b, c):
    out = np.empty_like(a)
    for i in prange(a.size):
        out[i] = a[i] * b[i] + (c[i] ^ a[i])
    return out


def masked_sum(x: Array, y: Array) -> float:
    return np.where(x > y, x, 0.0).sum()


def masked_loop(x, y):
    total = 0.0
    for i in prange(x.size):
        total += x[i] if x[i] > y[i] else 0.0
    return total


def count(x: Array, y: Array) -> int:
    return np.count_nonzero(x > y)


def count_loop(x, y):
    found = 0
    for i in prange(x.size):
        found += x[i] > y[i]
    return found


def whole_numbers(rng: np.random.Generator, scale: float) -> list[Array]:
    return [rng.integers(-999, 999, int(LARGE * scale), dtype="i4") for _ in range(3)]


def complexes(rng: np.random.Generator, scale: float) -> list[Array]:
    return [v.view("c16") for v in normals(*[LARGE // 2] * 3)(rng, scale)]


ROWS = (
    Row("sum(x*y*z)", product_sum, normals(LARGE, LARGE, LARGE), numexpr="sum(x * y * z)",
        numba=product_sum_loop, array=lambda xp, x, y, z: (x * y * z).sum()),
    Row("a*b+c*d-e", fresh, normals(*[LARGE] * 5), numexpr="a * b + c * d - e", numba=fresh_loop,
        array=lambda xp, a, b, c, d, e: a * b + c * d - e),
    Row("out[:] = a*b+c*d-e", reused, normals(*[LARGE] * 6), writes=0, rereads=False, numba=reused_loop,
        numexpr=lambda ne, out, a, b, c, d, e: ne.evaluate("a * b + c * d - e", out=out),
        jax=lambda jax, out, a, b, c, d, e: a * b + c * d - e,
        torch=lambda torch, out, a, b, c, d, e: out.copy_(a * b + c * d - e)),
    Row("sum(x*y), sum(x*z)", two_sums, normals(LARGE, LARGE, LARGE), numba=two_sums_loop,
        numexpr=("sum(x * y)", "sum(x * z)"),
        array=lambda xp, x, y, z: ((x * y).sum(), (x * z).sum())),
    Row("sum(x*y*z) float32", product_sum, normals(LARGE, LARGE, LARGE, dtype="f4"),
        tolerance=1e-2, numexpr="sum(x * y * z)", numba=product_sum_loop,
        array=lambda xp, x, y, z: (x * y * z).sum()),
    Row("a*b+c*d-e float32", fresh, normals(*[LARGE] * 5, dtype="f4"), tolerance=1e-5,
        numexpr="a * b + c * d - e", numba=fresh_loop,
        array=lambda xp, a, b, c, d, e: a * b + c * d - e),
    Row("a*b+c complex", fused_complex, complexes, numexpr="a * b + c", numba=fused_loop,
        array=lambda xp, a, b, c: a * b + c),
    Row("a*b+(c^a) int32", integers, whole_numbers, numexpr="a * b + (c ^ a)", numba=integers_loop,
        array=lambda xp, a, b, c: a * b + (c ^ a)),
    Row("sum(where(x>y, x, 0))", masked_sum, normals(LARGE, LARGE), numba=masked_loop,
        numexpr="sum(where(x > y, x, 0.0))", array=lambda xp, x, y: xp.where(x > y, x, 0.0).sum()),
    Row("count_nonzero(x>y)", count, normals(LARGE, LARGE), numba=count_loop,
        numexpr="sum(where(x > y, 1, 0))", array=lambda xp, x, y: xp.count_nonzero(x > y)),
)
