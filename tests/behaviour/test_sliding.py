"""Aggregates over windows and blocks as stencils: bits and strides are NumPy's, no window is written."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import jitla
from tests.behaviour.counting import during
from tests.behaviour.test_windows import same

RNG = np.random.default_rng(12)
Array = np.ndarray
sliding = np.lib.stride_tricks.sliding_window_view
WEIGHTS = RNG.random((3, 3))


def box(a: Array) -> Array:
    return sliding(a, (3, 3)).sum(axis=(-2, -1))


def means(a: Array) -> Array:
    return sliding(a, (5, 2)).mean(axis=(2, 3))


def weighted(a: Array) -> Array:
    return (sliding(a, (3, 3)) * WEIGHTS).sum(axis=(-2, -1))


def extremes(a: Array) -> Array:
    return sliding(a, (2, 4)).max(axis=(-1, -2)) - sliding(a, (2, 4)).min(axis=(-1, -2))


def every_second(a: Array) -> Array:
    return sliding(a, (3, 3))[::2, ::2].max(axis=(-2, -1))


def along_columns(a: Array) -> Array:
    return sliding(a, 9, axis=0).sum(axis=-1)


def long_rows(a: Array) -> Array:
    return sliding(a, 17, axis=1).sum(axis=-1)


def separable(a: Array) -> Array:
    return sliding(sliding(a * 2, 3, axis=0).sum(axis=-1), 3, axis=1).sum(axis=-1)


def several(a: Array) -> Array:
    return sliding(a, (3, 3)).sum(axis=2).prod(axis=-1)


def spread(a: Array) -> Array:
    return sliding(a, (3, 2)).std(axis=(-2, -1))


def pooled(a: Array) -> Array:
    return a.reshape(a.shape[0] // 2, 2, a.shape[1] // 3, 3).max(axis=(1, 3))


def pooled_sums(a: Array) -> Array:
    return (a + 1).reshape(a.shape[0] // 2, 2, a.shape[1] // 3, 3).sum(axis=(1, 3))


WINDOWS = (box, means, weighted, extremes, every_second, along_columns, long_rows, separable, several)
LAYOUTS: tuple[Callable[[Array], Array], ...] = (
    lambda a: a, np.asfortranarray, lambda a: a[::-1], lambda a: np.repeat(a, 2, 1)[:, ::2],
    lambda a: a.T.copy().T)


@pytest.mark.parametrize("program", (*WINDOWS, pooled, pooled_sums), ids=lambda f: f.__name__)
def test_bits_are_numpys_however_arrays_lie(program):
    fast = jitla.jit(program, compile="sync")
    for dtype in ("f8", "f4"):
        for lie in LAYOUTS:
            a = lie((RNG.standard_normal((40, 66)) * 10.0 ** RNG.integers(-3, 4, (40, 66))).astype(dtype))
            same(fast(a), program(a))
    same(fast(a[:20, :60]), program(a[:20, :60]))


def test_deviations_of_windows():
    a = RNG.standard_normal((40, 66))
    same(jitla.jit(spread, compile="sync")(a), spread(a))


@pytest.mark.parametrize("dtype", ("?", "u1", "i4", "c16", "f2"))
def test_other_dtypes(dtype):
    a = RNG.integers(0, 50, (30, 42)).astype(dtype)
    for program in (box, means, pooled):
        same(jitla.jit(program, compile="sync")(a), program(a))
    holes = jitla.jit(lambda m: sliding(m, (3, 3)).any(axis=(-2, -1)) & ~sliding(m, (3, 3)).all(axis=(2, 3)))
    same(holes(a > 40), holes.__wrapped__(a > 40))


@pytest.mark.parametrize("program", (box, means, weighted, extremes, separable, pooled))
def test_no_window_is_written(program):
    a = RNG.random((200, 300))
    fast = jitla.jit(program, compile="sync")
    fast(a)
    counted = during(fast, lambda: fast(a))
    assert (counted.materialised, counted.fallbacks, counted.kernel_runs) == (1, 0, 1)  # the result


def test_zeros_keep_their_signs():
    a = np.full((12, 12), -0.0)
    for program in (box, along_columns, extremes, pooled):
        same(jitla.jit(program, compile="sync")(a), program(a))


def test_rows_of_sliced_windows_are_those_that_are_left():
    def program(a):
        return sliding(a, 9, axis=0)[::2].max(axis=(0, -1)), sliding(a, (3, 2))[::3, ::2].sum(axis=(0, 2, 3))

    a = RNG.random((22, 37))
    same(jitla.jit(program, compile="sync")(a), program(a))


def test_windows_of_another_length_are_others():
    def sums(a, n):
        return sliding(a, n).sum(axis=-1)

    def blocks(a, n):
        return a.reshape(-1, n, a.shape[1]).sum(axis=1)

    x, a = RNG.random(3000), RNG.random((240, 50))
    for program, given in ((sums, x), (blocks, a)):
        fast = jitla.jit(program, compile="sync")
        for n in (3, 5, 8, 12, 3, 60, 120):
            same(fast(given, n), program(given, n))


def test_an_array_that_lies_otherwise_is_added_up_in_another_order():
    def pool(b):
        return b.sum(axis=(1, 3))

    fast = jitla.jit(pool, compile="sync")
    a = RNG.standard_normal((24, 3, 30, 4))
    for b in (a, a.transpose(2, 1, 0, 3), a.copy().swapaxes(1, 3), np.asfortranarray(a), a[:, ::-1],
              np.broadcast_to(a[:, :1], a.shape)):
        same(fast(b), pool(b))


def test_overflow_is_said_to_be_that_of_a_reduction():
    a = np.full((20, 20), 1e308)
    with pytest.warns(RuntimeWarning, match="overflow encountered in reduce"):
        found = jitla.jit(box, compile="sync")(a)
    assert np.isinf(found).all()


def test_windows_stay_views_that_nobody_may_write():
    def view(a):
        w = sliding(a, 3)
        total = w.sum(axis=-1)
        return w, total

    a = RNG.random(50)
    w, total = jitla.jit(view, compile="sync")(a)
    assert np.shares_memory(w, a) and not w.flags.writeable
    same(total, view(a)[1])

    def write(a):
        w = sliding(a * 2, 3)
        w += 1

    with pytest.raises(ValueError, match="read-only"):
        jitla.jit(write, compile="sync")(a)


def test_windows_see_what_is_written_below_them():
    def later(a):
        w = sliding(a, 3)
        before = w.sum(axis=-1)
        a[5] = 100.0
        return before, w.sum(axis=-1)

    a, b = np.arange(20.0), np.arange(20.0)
    same(jitla.jit(later, compile="sync")(a), later(b))


def test_some_turns_of_a_loop_over_a_large_array_are_one_pass():
    def steps(a, n):
        for _ in range(n):
            a = 0.25 * (a[1:-1, :-2] + a[1:-1, 2:] + a[:-2, 1:-1] + a[2:, 1:-1])
        return a

    a = RNG.random((1100, 1100))
    fast = jitla.jit(steps, compile="sync")
    same(fast(a, 6), steps(a, 6))
    assert during(fast, lambda: same(fast(a, 6), steps(a, 6))).kernel_runs == 2
    small = a[:90, :90]  # these stay in a cache from turn to turn
    assert during(fast, lambda: same(fast(small, 6), steps(small, 6))).kernel_runs == 6


def test_some_turns_that_work_cell_by_cell_are_one_pass():
    def horner(x, factors):
        y = np.zeros_like(x)
        for factor in factors:
            y = y * x + factor
        return y

    x = RNG.random(1 << 17)
    fast = jitla.jit(horner, compile="sync")
    for count in (5, 5, 5, 8):  # the turn that is left over does not keep later ones apart
        factors = list(RNG.random(count))
        same(fast(x, factors), horner(x, factors))
    assert during(fast, lambda: same(fast(x, factors), horner(x, factors))).kernel_runs == 2
    small = x[:100]
    assert during(fast, lambda: same(fast(small, factors), horner(small, factors))).kernel_runs == 8


def test_turns_that_have_nothing_to_do_with_each_other_are_blocks():
    def apart(a):
        total = 0.0
        for k in range(4):
            total = max(total, float((a[1:] - a[:-1] * k).max()))
        b = a
        for k in range(4):
            b = a[1:] - a[:-1] * k
        return total, b

    a = RNG.random((1100, 1100))
    fast = jitla.jit(apart, compile="sync")
    found, wanted = fast(a), apart(a)
    assert found[0] == wanted[0]
    same(found[1], wanted[1])
