"""Rows of stencils over grids of two and three axes, and of a pyramid of images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit, prange

from bench.peers.row import Array, Row, normals
from bench.peers.stencils import LANES, finished, sliding


def heat_cube(A: Array) -> Array:
    c = A[1:-1, 1:-1, 1:-1]
    return (0.125 * (A[2:, 1:-1, 1:-1] - 2.0 * c + A[:-2, 1:-1, 1:-1])
            + 0.125 * (A[1:-1, 2:, 1:-1] - 2.0 * c + A[1:-1, :-2, 1:-1])
            + 0.125 * (A[1:-1, 1:-1, 2:] - 2.0 * c + A[1:-1, 1:-1, :-2]) + c)


def heat_cube_loop(A):
    p, m, n = A.shape
    out = np.empty((p - 2, m - 2, n - 2))
    for i in prange(p - 2):
        for j in range(m - 2):
            for k in range(n - 2):
                c = A[i + 1, j + 1, k + 1]
                out[i, j, k] = (
                    0.125 * (A[i + 2, j + 1, k + 1] - 2.0 * c + A[i, j + 1, k + 1])
                    + 0.125 * (A[i + 1, j + 2, k + 1] - 2.0 * c + A[i + 1, j, k + 1])
                    + 0.125 * (A[i + 1, j + 1, k + 2] - 2.0 * c + A[i + 1, j + 1, k]) + c)
    return out


def heat_cube_halide(hl: Any, A: Array) -> Callable[[], Array]:
    g, x, y, z = hl.Buffer(A), *map(hl.Var, "xyz")
    out, c, eighth = hl.Func("heat"), hl.Buffer(A)[x + 1, y + 1, z + 1], hl.f64(0.125)
    out[x, y, z] = (eighth * (g[x + 1, y + 1, z + 2] - 2.0 * c + g[x + 1, y + 1, z])
                    + eighth * (g[x + 1, y + 2, z + 1] - 2.0 * c + g[x + 1, y, z + 1])
                    + eighth * (g[x + 2, y + 1, z + 1] - 2.0 * c + g[x, y + 1, z + 1]) + c)
    return planes(hl, out, x, z, tuple(n - 2 for n in A.shape), A.dtype)


def planes(hl: Any, last: Any, x: Any, z: Any, shape: tuple[int, ...], dtype: Any) -> Callable[[], Array]:
    """Compile for vectors along rows, and planes that threads share."""
    return finished(
        hl, last, shape, dtype, lambda: last.parallel(z).vectorize(x, LANES, hl.TailStrategy.GuardWithIf))


def fields(ex: Array, ey: Array, hz: Array) -> tuple[Array, Array, Array]:
    """One step of a wave in two dimensions, but for the edges."""
    ey = ey[1:-1] - 0.5 * (hz[1:] - hz[:-1])
    ex = ex[:, 1:-1] - 0.5 * (hz[:, 1:] - hz[:, :-1])
    inner = ex[1:-1, 1:] - ex[1:-1, :-1] + ey[1:, 1:-1] - ey[:-1, 1:-1]
    return ex, ey, hz[1:-1, 1:-1] - 0.7 * inner


def fields_loop(ex, ey, hz):
    m, n = hz.shape
    new_x, new_y, new_z = np.empty((m, n - 1)), np.empty((m - 1, n)), np.empty((m - 2, n - 2))
    for i in prange(m):
        for j in range(n - 1):
            new_x[i, j] = ex[i, j + 1] - 0.5 * (hz[i, j + 1] - hz[i, j])
        if i < m - 1:
            for j in range(n):
                new_y[i, j] = ey[i + 1, j] - 0.5 * (hz[i + 1, j] - hz[i, j])
    for i in prange(m - 2):
        for j in range(n - 2):
            new_z[i, j] = hz[i + 1, j + 1] - 0.7 * (
                new_x[i + 1, j + 1] - new_x[i + 1, j] + new_y[i + 1, j + 1] - new_y[i, j + 1])
    return new_x, new_y, new_z


def diffusion(A: Array, weight: Array) -> Array:
    """Horizontal diffusion with limited fluxes, as in models of the weather."""
    lap = 4.0 * A[1:-1, 1:-1] - (A[2:, 1:-1] + A[:-2, 1:-1] + A[1:-1, 2:] + A[1:-1, :-2])
    down, along = lap[1:, 1:-1] - lap[:-1, 1:-1], lap[1:-1, 1:] - lap[1:-1, :-1]
    down = np.where(down * (A[2:-1, 2:-2] - A[1:-2, 2:-2]) > 0, 0, down)
    along = np.where(along * (A[2:-2, 2:-1] - A[2:-2, 1:-2]) > 0, 0, along)
    return A[2:-2, 2:-2] - weight * (down[1:] - down[:-1] + along[:, 1:] - along[:, :-1])


@njit(fastmath=True, inline="always")
def _lap(A, i, j, k):
    return 4.0 * A[i, j, k] - (A[i + 1, j, k] + A[i - 1, j, k] + A[i, j + 1, k] + A[i, j - 1, k])


@njit(fastmath=True, inline="always")
def _flux(A, i, j, k, di, dj):
    found = _lap(A, i + di, j + dj, k) - _lap(A, i, j, k)
    return 0.0 if found * (A[i + di, j + dj, k] - A[i, j, k]) > 0 else found


def diffusion_loop(A, weight):
    m, n, p = weight.shape
    out = np.empty((m, n, p))
    for i in prange(m):
        for j in range(n):
            for k in range(p):
                out[i, j, k] = A[i + 2, j + 2, k] - weight[i, j, k] * (
                    _flux(A, i + 2, j + 2, k, 1, 0) - _flux(A, i + 1, j + 2, k, 1, 0)
                    + _flux(A, i + 2, j + 2, k, 0, 1) - _flux(A, i + 2, j + 1, k, 0, 1))
    return out


def diffusion_halide(hl: Any, A: Array, weight: Array) -> Callable[[], Array]:
    g, w, x, y, z = hl.Buffer(A), hl.Buffer(weight), *map(hl.Var, "xyz")
    lap, down, along, out = map(hl.Func, ("lap", "down", "along", "diffusion"))
    lap[x, y, z] = 4.0 * g[x, y, z] - (g[x, y, z + 1] + g[x, y, z - 1] + g[x, y + 1, z] + g[x, y - 1, z])
    flux = lap[x, y, z + 1] - lap[x, y, z]
    down[x, y, z] = hl.select(flux * (g[x, y, z + 1] - g[x, y, z]) > 0, hl.f64(0), flux)
    flux = lap[x, y + 1, z] - lap[x, y, z]
    along[x, y, z] = hl.select(flux * (g[x, y + 1, z] - g[x, y, z]) > 0, hl.f64(0), flux)
    out[x, y, z] = g[x, y + 2, z + 2] - w[x, y, z] * (
        down[x, y + 2, z + 2] - down[x, y + 2, z + 1] + along[x, y + 2, z + 2] - along[x, y + 1, z + 2])
    return planes(hl, out, x, z, weight.shape, A.dtype)


def level(A: Array) -> Array:
    """An image of half the size, smoothed before."""
    near, half, quarter = np.float32(0.25), np.float32(0.5), np.float32(0.25)
    rows = near * A[:-2] + half * A[1:-1] + near * A[2:]
    b = near * rows[:, :-2] + half * rows[:, 1:-1] + near * rows[:, 2:]
    return quarter * (b[:-1:2, :-1:2] + b[1::2, :-1:2] + b[:-1:2, 1::2] + b[1::2, 1::2])


def pyramid(A: Array) -> Array:
    return level(level(A))


@njit(parallel=True, fastmath=True)
def _level_loop(A):
    m, n = (A.shape[0] - 2) // 2, (A.shape[1] - 2) // 2
    out = np.empty((m, n), A.dtype)
    near, half, quarter = np.float32(0.25), np.float32(0.5), np.float32(0.25)
    for i in prange(m):
        for j in range(n):
            total = np.float32(0)
            for y in range(2 * i, 2 * i + 2):
                for x in range(2 * j, 2 * j + 2):
                    total += near * (near * A[y, x] + half * A[y + 1, x] + near * A[y + 2, x])
                    total += half * (near * A[y, x + 1] + half * A[y + 1, x + 1] + near * A[y + 2, x + 1])
                    total += near * (near * A[y, x + 2] + half * A[y + 1, x + 2] + near * A[y + 2, x + 2])
            out[i, j] = quarter * total
    return out


def pyramid_loop(A):
    return _level_loop(_level_loop(A))


def pyramid_halide(hl: Any, A: Array) -> Callable[[], Array]:
    x, y = hl.Var("x"), hl.Var("y")
    near, half, quarter = hl.f32(0.25), hl.f32(0.5), hl.f32(0.25)
    stages: list[Any] = []
    g: Any = hl.Buffer(A)
    for n in range(2):
        rows, b, made = (hl.Func(f"{name}{n}") for name in ("rows", "smooth", "level"))
        rows[x, y] = near * g[x, y] + half * g[x, y + 1] + near * g[x, y + 2]
        b[x, y] = near * rows[x, y] + half * rows[x + 1, y] + near * rows[x + 2, y]
        made[x, y] = quarter * (b[2 * x, 2 * y] + b[2 * x, 2 * y + 1] + b[2 * x + 1, 2 * y]
                                + b[2 * x + 1, 2 * y + 1])
        stages += [rows, made]
        g = made
    shape = tuple(((n - 2) // 2 - 2) // 2 for n in A.shape)
    return sliding(hl, stages.pop(), stages, x, y, shape, A.dtype, 16)


def weather(rng: np.random.Generator, scale: float) -> tuple[Array, Array]:
    m = max(int(256 * scale), 16)
    return rng.random((m + 4, 260, 160)), rng.random((m, 256, 160))


def waves(rng: np.random.Generator, scale: float) -> tuple[Array, Array, Array]:
    m, n = max(int(3000 * scale), 16), 3000
    return rng.random((m, n + 1)), rng.random((m + 1, n)), rng.random((m, n))


ROWS = (
    Row("heat in three dimensions, 256 cubed", heat_cube, normals((256, 256, 256)), numba=heat_cube_loop,
        halide=heat_cube_halide, array=lambda xp, A: heat_cube(A)),
    Row("fields of a wave 3000x3000", fields, waves, numba=fields_loop,
        array=lambda xp, *given: fields(*given)),
    Row("horizontal diffusion 256x256x160", diffusion, weather, numba=diffusion_loop,
        halide=diffusion_halide),
    Row("pyramid of two levels of 4002x6002", pyramid, normals((4002, 6002), dtype="f4"), numba=pyramid_loop,
        halide=pyramid_halide, array=lambda xp, A: pyramid(A), tolerance=1e-5),
)
