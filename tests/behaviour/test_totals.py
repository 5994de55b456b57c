"""Totals of values with broadcast operands: NumPy's bits, one kernel, nothing in memory."""

from __future__ import annotations

import numpy as np
import pytest

import jitla
from tests.behaviour.counting import during

WIDTHS = [1, 2, 3, 7, 8, 9, 15, 16, 17, 100, 127, 128, 129, 1000]


@jitla.jit
def weighted(x, row, column):
    return (x * row).sum()


@jitla.jit
def spread(x, row, column):
    return ((x - row) ** 2).sum()


@jitla.jit
def furthest(x, row, column):
    return np.abs(x - row).max(), (x - column).min(), (x > row).any(), (x != column).all()


@jitla.jit
def by_column(x, row, column):
    return (x * column).sum()


@jitla.jit
def all_at_once(x, row, column):
    d = (x - row) * column
    return d.sum(), (d * d).sum(), d.max(), d


@jitla.jit
def window(x, row, column):
    return (x[::2, 1:] * row[1:]).sum()


@jitla.jit
def bare(x, row, column):
    return x[:, ::2].sum()


FUNCTIONS = [weighted, spread, furthest, by_column, all_at_once, window]


def arrays(dtype: str, rows: int, width: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(rows * 1000 + width)
    shapes = (rows, width), (width,), (rows, 1)
    if dtype == "?":
        return tuple(rng.integers(0, 2, s).astype(bool) for s in shapes)
    return tuple((rng.standard_normal(s) * 10.0 ** rng.integers(-2, 3, s)).astype(dtype) for s in shapes)


def bits(value: object) -> list[tuple[object, ...]]:
    values = value if isinstance(value, tuple) else (value,)
    return [(type(v), np.asarray(v).dtype, np.asarray(v).strides, np.asarray(v).tobytes())
            for v in values]


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "i4"])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_bits_for_every_width(function, dtype: str) -> None:
    for width in WIDTHS:
        for rows in (2, 41):
            given = arrays(dtype, rows, width)
            assert bits(function(*given)) == bits(function.__wrapped__(*given)), (rows, width)


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_threads_do_not_show(threads: int) -> None:
    given = arrays("f8", 9_001, 67)
    with jitla.options(num_threads=threads):
        for function in FUNCTIONS:
            assert bits(function(*given)) == bits(function.__wrapped__(*given)), function.__name__


def test_comparisons_of_bools() -> None:
    given = arrays("?", 30, 7)
    check = jitla.jit(lambda x, row, column: ((x & row).any(), (x | column).all(), (x ^ row).sum()))
    assert bits(check(*given)) == bits(check.__wrapped__(*given))


@pytest.mark.parametrize("function", [weighted, spread, by_column], ids=lambda f: f.__name__)
def test_one_pass_writes_nothing(function) -> None:
    given = arrays("f8", 300, 40)
    function(*given)
    done = during(function, lambda: function(*given))
    assert (done.kernel_runs, done.numpy_calls, done.materialised) == (1, 0, 0)


def test_a_total_of_strided_memory_is_numpys() -> None:
    given = arrays("f8", 300, 41)
    assert bits(bare(*given)) == bits(bare.__wrapped__(*given))
    assert during(bare, lambda: bare(*given)).kernel_runs == 0


@pytest.mark.parametrize("dtype", ["f8", "f4", "c16", "i8"])
@pytest.mark.parametrize("shape", [(9000, 33), (33, 9000), (7, 11)])
def test_totals_of_unaligned_memory_are_numpys(dtype: str, shape: tuple[int, ...]) -> None:
    """NumPy copies it piece by piece, and adds up each piece for itself."""
    @jitla.jit
    def totals(x):
        some = x.sum(), np.sum(x, axis=0), x.mean(axis=1), x.var(), np.std(x, axis=-1)
        return *some, (x * 2).sum(), x[1:].sum()

    aligned = (np.random.default_rng(0).random(shape) * 10).astype(dtype)
    x = np.zeros(aligned.nbytes + 1, "u1")[1:].view(dtype).reshape(shape)
    x[...] = aligned
    for given in (aligned, x, aligned, x):
        assert bits(totals(given)) == bits(totals.__wrapped__(given))
