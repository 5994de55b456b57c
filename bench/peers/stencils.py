"""Rows of stencils: steps over grids, and a blurred image."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import prange

from bench.peers.row import Array, Row, normals

STEPS = 10
LANES = 8  # of Halide's vectors: two registers of float64
BAND = 32  # rows that a task of Halide does


def jacobi(A: Array) -> Array:
    return 0.25 * (A[1:-1, :-2] + A[1:-1, 2:] + A[:-2, 1:-1] + A[2:, 1:-1])


def jacobi_loop(A):
    m, n = A.shape
    out = np.empty((m - 2, n - 2))
    for i in prange(m - 2):
        for j in range(n - 2):
            out[i, j] = 0.25 * (A[i + 1, j] + A[i + 1, j + 2] + A[i, j + 1] + A[i + 2, j + 1])
    return out


def jacobi_halide(hl: Any, A: Array) -> Callable[[], Array]:
    given, (x, y), step = hl.Buffer(A), (hl.Var("x"), hl.Var("y")), hl.Func("jacobi")
    step[x, y] = 0.25 * (given[x, y + 1] + given[x + 2, y + 1] + given[x + 1, y] + given[x + 1, y + 2])
    return sliding(hl, step, [], x, y, shrunk(A, 2), A.dtype, LANES)


def shrunk(A: Array, border: int) -> tuple[int, ...]:
    """Return the shape of what is left without a border."""
    return tuple(n - border for n in A.shape)


def finished(
    hl: Any, last: Any, shape: tuple[int, ...], dtype: Any, schedule: Callable[[], Any]
) -> Callable[[], Array]:
    """Compile a pipeline scheduled by hand, or by Halide itself; the result is reused."""
    pipeline, target = hl.Pipeline(last), hl.get_jit_target_from_environment()
    if getattr(hl, "schedules_itself", False):
        last.set_estimates([(0, n) for n in reversed(shape)])
        wanted = hl.AutoschedulerParams("Adams2019", {"parallelism": str(os.cpu_count())})
        pipeline.apply_autoscheduler(target, wanted)
    else:
        schedule()
    pipeline.compile_jit(target)
    made = np.empty(shape, dtype)
    out = hl.Buffer(made)

    def run() -> Array:
        pipeline.realize(out)
        return made

    return run


def heat(A: Array) -> None:
    for _ in range(STEPS):
        A[1:-1, 1:-1] += 0.1 * (
            A[:-2, 1:-1] + A[2:, 1:-1] + A[1:-1, :-2] + A[1:-1, 2:] - 4.0 * A[1:-1, 1:-1])


def heat_loop(A):
    m, n = A.shape
    old, new = A, A.copy()
    for _ in range(STEPS):
        for i in prange(1, m - 1):
            for j in range(1, n - 1):
                new[i, j] = old[i, j] + 0.1 * (
                    old[i - 1, j] + old[i + 1, j] + old[i, j - 1] + old[i, j + 1] - 4.0 * old[i, j])
        old, new = new, old
    # an even number of steps ends in the array that was given


def heat_jax(jax: Any, A: Any) -> Any:
    def step(_: Any, A: Any) -> Any:
        inner = A[:-2, 1:-1] + A[2:, 1:-1] + A[1:-1, :-2] + A[1:-1, 2:] - 4.0 * A[1:-1, 1:-1]
        return A.at[1:-1, 1:-1].add(0.1 * inner)
    return jax.lax.fori_loop(0, STEPS, step, A)


def heat_torch(torch: Any, A: Any) -> None:
    A[1:-1, 1:-1] += 0.1 * (
        A[:-2, 1:-1] + A[2:, 1:-1] + A[1:-1, :-2] + A[1:-1, 2:] - 4.0 * A[1:-1, 1:-1])


def blur(A: Array) -> Array:
    rows = (A[:-2] + A[1:-1] + A[2:]) / 3
    return (rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]) / 3


def blur_loop(A):
    m, n = A.shape
    out = np.empty((m - 2, n - 2), A.dtype)
    ninth = A.dtype.type(1 / 9)
    for i in prange(m - 2):
        for j in range(n - 2):
            out[i, j] = ninth * (
                A[i, j] + A[i + 1, j] + A[i + 2, j] + A[i, j + 1] + A[i + 1, j + 1] + A[i + 2, j + 1]
                + A[i, j + 2] + A[i + 1, j + 2] + A[i + 2, j + 2])
    return out


def blur_halide(hl: Any, A: Array) -> Callable[[], Array]:
    given, x, y = hl.Buffer(A), hl.Var("x"), hl.Var("y")
    rows, out = hl.Func("rows"), hl.Func("blur")
    third = hl.f32(1 / 3)
    rows[x, y] = third * (given[x, y] + given[x, y + 1] + given[x, y + 2])
    out[x, y] = third * (rows[x, y] + rows[x + 1, y] + rows[x + 2, y])
    return sliding(hl, out, [], x, y, shrunk(A, 2), A.dtype, LANES)


def blur_whole(A: Array) -> Array:
    three = np.uint16(3)
    rows = (A[:, :-2] + A[:, 1:-1] + A[:, 2:]) // three
    return (rows[:-2] + rows[1:-1] + rows[2:]) // three


def blur_whole_loop(A):
    m, n = A.shape
    out = np.empty((m - 2, n - 2), A.dtype)
    three = np.uint32(3)
    for band in prange((m - 3) // BAND + 1):
        top = band * BAND
        rows = np.empty((3, n - 2), A.dtype)
        for i in range(top, min(top + BAND, m - 2) + 2):
            a, row = A[i], rows[i % 3]
            for j in range(n - 2):
                row[j] = (np.uint32(a[j]) + np.uint32(a[j + 1]) + np.uint32(a[j + 2])) // three
            if i >= top + 2:
                made = out[i - 2]
                for j in range(n - 2):
                    made[j] = (np.uint32(rows[0, j]) + np.uint32(rows[1, j]) + np.uint32(rows[2, j])) // three
    return out


def blur_whole_halide(hl: Any, A: Array) -> Callable[[], Array]:
    given, x, y = hl.Buffer(A), hl.Var("x"), hl.Var("y")
    rows, out, three = hl.Func("rows"), hl.Func("blur"), hl.u16(3)
    rows[x, y] = (given[x, y] + given[x + 1, y] + given[x + 2, y]) / three
    out[x, y] = (rows[x, y] + rows[x, y + 1] + rows[x, y + 2]) / three
    return sliding(hl, out, [rows], x, y, shrunk(A, 2), A.dtype, 32)


def sliding(
    hl: Any, last: Any, stages: list[Any], x: Any, y: Any, shape: tuple[int, ...], dtype: Any, lanes: int
) -> Callable[[], Array]:
    """Compile for vectors, and bands of rows in which stages keep what the next row reads."""
    def schedule() -> None:
        band, row = hl.Var("band"), hl.Var("row")
        last.split(y, band, row, BAND, hl.TailStrategy.GuardWithIf).parallel(band)
        last.vectorize(x, lanes, hl.TailStrategy.GuardWithIf)
        for stage in stages:
            stage.store_at(last, band).compute_at(last, row).vectorize(x, lanes)

    return finished(hl, last, shape, dtype, schedule)


def unsharp(A: Array) -> Array:
    near, half, more = np.float32(0.25), np.float32(0.5), np.float32(1.5)
    rows = near * A[:-2] + half * A[1:-1] + near * A[2:]
    blurred = near * rows[:, :-2] + half * rows[:, 1:-1] + near * rows[:, 2:]
    inner = A[1:-1, 1:-1]
    return inner + more * (inner - blurred)


def unsharp_loop(A):
    m, n = A.shape
    out = np.empty((m - 2, n - 2), A.dtype)
    near, half, more = np.float32(0.25), np.float32(0.5), np.float32(1.5)
    for i in prange(m - 2):
        rows = np.empty(n, A.dtype)
        for j in range(n):
            rows[j] = near * A[i, j] + half * A[i + 1, j] + near * A[i + 2, j]
        for j in range(n - 2):
            blurred = near * rows[j] + half * rows[j + 1] + near * rows[j + 2]
            out[i, j] = A[i + 1, j + 1] + more * (A[i + 1, j + 1] - blurred)
    return out


def unsharp_halide(hl: Any, A: Array) -> Callable[[], Array]:
    given, x, y = hl.Buffer(A), hl.Var("x"), hl.Var("y")
    rows, out = hl.Func("rows"), hl.Func("unsharp")
    near, half, more = hl.f32(0.25), hl.f32(0.5), hl.f32(1.5)
    rows[x, y] = near * given[x, y] + half * given[x, y + 1] + near * given[x, y + 2]
    blurred = near * rows[x, y] + half * rows[x + 1, y] + near * rows[x + 2, y]
    inner = given[x + 1, y + 1]
    out[x, y] = inner + more * (inner - blurred)
    return sliding(hl, out, [rows], x, y, shrunk(A, 2), A.dtype, 16)


def box(s: Array) -> Array:
    return (s[:-2, :-2] + s[:-2, 1:-1] + s[:-2, 2:] + s[1:-1, :-2] + s[1:-1, 1:-1] + s[1:-1, 2:]
            + s[2:, :-2] + s[2:, 1:-1] + s[2:, 2:])


def harris(A: Array) -> Array:
    two, twelfth, k = np.float32(2), np.float32(1 / 12), np.float32(0.04)
    x = twelfth * ((A[:-2, 2:] - A[:-2, :-2]) + two * (A[1:-1, 2:] - A[1:-1, :-2]) + (A[2:, 2:] - A[2:, :-2]))
    y = twelfth * ((A[2:, :-2] - A[:-2, :-2]) + two * (A[2:, 1:-1] - A[:-2, 1:-1]) + (A[2:, 2:] - A[:-2, 2:]))
    xx, yy, xy = box(x * x), box(y * y), box(x * y)
    return xx * yy - xy * xy - k * (xx + yy) * (xx + yy)


def harris_loop(A):
    m, n = A.shape[0] - 4, A.shape[1] - 4
    out = np.empty((m, n), A.dtype)
    two, twelfth, k = np.float32(2), np.float32(1 / 12), np.float32(0.04)
    for band in prange((m - 1) // BAND + 1):
        top = band * BAND
        kept = np.empty((3, 3, n + 2), A.dtype)  # of three rows, the products of gradients
        for i in range(top, min(top + BAND, m) + 2):
            xx, yy, xy = kept[0, i % 3], kept[1, i % 3], kept[2, i % 3]
            for j in range(n + 2):
                x = twelfth * (A[i, j + 2] - A[i, j] + two * (A[i + 1, j + 2] - A[i + 1, j])
                               + A[i + 2, j + 2] - A[i + 2, j])
                y = twelfth * (A[i + 2, j] - A[i, j] + two * (A[i + 2, j + 1] - A[i, j + 1])
                               + A[i + 2, j + 2] - A[i, j + 2])
                xx[j], yy[j], xy[j] = x * x, y * y, x * y
            if i >= top + 2:
                for j in range(n):
                    a = b = c = np.float32(0)
                    for d in range(3):
                        a += kept[0, d, j] + kept[0, d, j + 1] + kept[0, d, j + 2]
                        b += kept[1, d, j] + kept[1, d, j + 1] + kept[1, d, j + 2]
                        c += kept[2, d, j] + kept[2, d, j + 1] + kept[2, d, j + 2]
                    out[i - 2, j] = a * b - c * c - k * (a + b) * (a + b)
    return out


def harris_halide(hl: Any, A: Array) -> Callable[[], Array]:
    g, x, y = hl.Buffer(A), hl.Var("x"), hl.Var("y")
    two, twelfth, k = hl.f32(2), hl.f32(1 / 12), hl.f32(0.04)
    dx = twelfth * ((g[x + 2, y] - g[x, y]) + two * (g[x + 2, y + 1] - g[x, y + 1])
                    + (g[x + 2, y + 2] - g[x, y + 2]))
    dy = twelfth * ((g[x, y + 2] - g[x, y]) + two * (g[x + 1, y + 2] - g[x + 1, y])
                    + (g[x + 2, y + 2] - g[x + 2, y]))
    stages, sums = [], []
    for name, value in (("xx", dx * dx), ("yy", dy * dy), ("xy", dx * dy)):
        stage = hl.Func(name)
        stage[x, y] = value
        stages.append(stage)
        terms = [stage[x + i, y + j] for j in range(3) for i in range(3)]
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        sums.append(total)
    xx, yy, xy = sums
    out = hl.Func("harris")
    out[x, y] = xx * yy - xy * xy - k * (xx + yy) * (xx + yy)
    return sliding(hl, out, stages, x, y, shrunk(A, 4), A.dtype, 16)


def photograph(rng: np.random.Generator, scale: float) -> tuple[Array]:
    return (rng.integers(0, 1 << 14, (max(int(4000 * scale), 64), 6000)).astype("u2"),)


ROWS = (
    Row("Jacobi step 4000x4000", jacobi, normals((4000, 4000)), numba=jacobi_loop,
        halide=jacobi_halide, array=lambda xp, A: jacobi(A)),
    Row("heat in place 2000x2000, 10 steps", heat, normals((2000, 2000)), numba=heat_loop,
        jax=heat_jax, torch=heat_torch, torch_steps=STEPS, writes=0, passes=STEPS),
    Row("blur 3x3 of 3000x4000 float32", blur, normals((3000, 4000), dtype="f4"), numba=blur_loop,
        halide=blur_halide, array=lambda xp, A: blur(A), tolerance=1e-5),
    Row("blur 3x3 of 4000x6000 uint16", blur_whole, photograph, numba=blur_whole_loop,
        halide=blur_whole_halide),
    Row("unsharp mask of 4000x6000 float32", unsharp, normals((4000, 6000), dtype="f4"), numba=unsharp_loop,
        halide=unsharp_halide, array=lambda xp, A: unsharp(A), tolerance=1e-5),
    Row("Harris corners of 4000x6000 float32", harris, normals((4000, 6000), dtype="f4"), numba=harris_loop,
        halide=harris_halide, array=lambda xp, A: harris(A), tolerance=1e-4),
)
