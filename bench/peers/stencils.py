"""Rows of stencils: steps over grids, and a blurred image.

Knows: how NumPy and its peers write them. Must not know: how they are run.
Receives nothing; returns rows.
"""

from __future__ import annotations

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
    return banded(hl, step, x, y, (A.shape[1] - 2, A.shape[0] - 2))


def banded(hl: Any, last: Any, x: Any, y: Any, size: tuple[int, int]) -> Callable[[], Array]:
    """Compile for vectors and bands of rows; results are new."""
    band, row = hl.Var("band"), hl.Var("row")
    last.split(y, band, row, BAND, hl.TailStrategy.GuardWithIf).parallel(band)
    last.vectorize(x, LANES, hl.TailStrategy.GuardWithIf)
    last.compile_jit()
    return lambda: last.realize(list(size))


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
    return banded(hl, out, x, y, (A.shape[1] - 2, A.shape[0] - 2))


ROWS = (
    Row("Jacobi step 4000x4000", jacobi, normals((4000, 4000)), numba=jacobi_loop,
        halide=jacobi_halide, array=lambda xp, A: jacobi(A)),
    Row("heat in place 2000x2000, 10 steps", heat, normals((2000, 2000)), numba=heat_loop,
        jax=heat_jax, torch=heat_torch, torch_steps=STEPS, writes=0, passes=STEPS),
    Row("blur 3x3 of 3000x4000 float32", blur, normals((3000, 4000), dtype="f4"), numba=blur_loop,
        halide=blur_halide, array=lambda xp, A: blur(A), tolerance=1e-5),
)
