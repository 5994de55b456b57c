"""What is one kernel, which intermediates are written to memory, and full aggregates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import jitla
from jitla import runtime
from jitla.cli.demo_algorithms import hinge_search
from tests.behaviour.counting import assert_same, counts, during
from tests.fuzz.compare import leaves

# What fits in one kernel is one kernel, and only results are written to memory.

N = 20_000
RNG = np.random.default_rng(1)
A, B, C, D, E = (RNG.uniform(0.5, 2, N) for _ in range(5))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@jitla.jit
def two_sigmoids(a, b):
    return sigmoid(a) + sigmoid(b)


def test_a_helper_called_twice_is_one_kernel() -> None:
    assert_same(two_sigmoids.__wrapped__(A, B), two_sigmoids(A, B))
    done = during(two_sigmoids, lambda: two_sigmoids(A, B))
    assert (done.kernel_runs, done.numpy_calls, done.materialised) == (1, 0, 1)
    assert (counts(two_sigmoids).plans, counts(two_sigmoids).kernels) == (1, 1)


@jitla.jit
def chain(a, b, c, d, e):
    return a * b + c * d - e


@jitla.jit
def total(a, b, c):
    return (a * b * c).sum()


@jitla.jit
def moments(a, b):
    return (a * b).sum(), (a + b).max(), (a - b).min(), (a * a).mean()


@jitla.jit
def normalised(a):
    m = a.mean()
    return (a - m) / np.sqrt(((a - m) ** 2).mean())


@pytest.mark.parametrize(
    ("function", "given", "kernels", "temporaries"),
    [
        (chain, (A, B, C, D, E), 1, 0),
        (total, (A, B, C), 1, 0),
        (moments, (A, B), 1, 0),
        (normalised, (A,), 3, 0),
    ],
)
def test_few_kernels_and_temporaries(function, given, kernels, temporaries) -> None:
    assert_same(function.__wrapped__(*given), function(*given))
    done = during(function, lambda: function(*given))
    assert done.kernel_runs <= kernels
    results = sum(isinstance(r, np.ndarray) for _, r in leaves(function(*given), "result"))
    assert (done.materialised - results, done.fallbacks) == (temporaries, 0)
    assert done.numpy_calls <= 1  # the number of elements of a mean


def search(xw, xd, y, wd, dd):
    step = 0.0
    turns = 0
    while True:
        out = 1.0 - y * (xw + step * xd)
        sv = out > 0
        out = out * sv
        g = wd + step * dd - (out * y * xd).sum()
        h = dd + (xd * sv * xd).sum()
        step = step - g / h
        turns += 1
        if g * g / h <= 1e-14 or turns >= 20:
            break
    return step, turns


def test_newton_line_search_materialises_no_vector() -> None:
    jitted = jitla.jit(search)
    y = np.sign(RNG.standard_normal(N))
    given = (np.zeros(N), RNG.standard_normal(N) + y, y, 0.1, 2.0)
    assert_same(search(*given), jitted(*given))
    done = during(jitted, lambda: jitted(*given))
    assert (done.materialised, done.numpy_calls, done.fallbacks) == (0, 0, 0)
    assert done.kernel_runs == search(*given)[1]
    assert counts(jitted).plans <= 3


def test_the_demos_inner_loop_materialises_no_vector() -> None:
    algorithms = pytest.importorskip("jitla.cli.demo_algorithms")
    jitted = jitla.jit(algorithms.hinge_search)
    y = np.sign(RNG.standard_normal(N))
    given = (np.zeros(N), RNG.standard_normal(N) + y, y, 0.1, 2.0)
    assert_same(tuple(algorithms.hinge_search(*given)), tuple(jitted(*given)))
    done = during(jitted, lambda: jitted(*given))
    assert (done.materialised, done.numpy_calls, done.fallbacks) == (0, 0, 0)


def test_explain_names_the_users_lines() -> None:
    text = str(jitla.explain(chain, A, B, C, D, E))
    assert "return a * b + c * d - e" in text
    assert "test_fusion.py" in text


@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_bounds_order_the_axes_of_what_is_spread(dtype: str) -> None:
    spread, bound = np.broadcast_to(np.linspace(-4, 4, 5, dtype=dtype), (8, 5)), np.ones((5, 8)).T
    limited = jitla.jit(lambda a, b: (np.clip(a, -2, b), np.clip(a, -b, b)))
    for _ in range(3):
        made, plain = limited(spread, bound), limited.__wrapped__(spread, bound)
        assert_same(plain, made)
        assert [m.strides for m in made] == [p.strides for p in plain]


# Which intermediates are written to memory under which rule, counted where memory is handed out.

LONG = 100_000  # so that bools, too, are large enough for the memory that counts
LONG_RNG = np.random.default_rng(4)
LONG_A, LONG_B = LONG_RNG.uniform(2.0, 3.0, LONG), LONG_RNG.uniform(0.0, 1.0, LONG)
Y = np.sign(LONG_RNG.standard_normal(LONG))
SEARCH = (np.zeros(LONG), LONG_RNG.standard_normal(LONG) + Y, Y, 0.1, 2.0)


def allocations(call: Callable[[], Any]) -> int:
    """Arrays that were allocated during a call."""
    def handed_out() -> int:
        found = runtime.statistics()
        return found["fresh"] + found["reused"]

    before = handed_out()
    call()
    return handed_out() - before


@pytest.mark.parametrize(("rule", "vectors"), [
    ("none", 10), ("patterns", 4), ("no-redundancy", 2), ("all", 0), ("cost", 0)])
def test_vectors_of_the_line_search(rule: str, vectors: int) -> None:
    fast = jitla.jit(hinge_search, fusion=rule)
    turns = hinge_search(*SEARCH)[1]
    assert_same(tuple(hinge_search(*SEARCH)), tuple(fast(*SEARCH)))
    assert turns > 1 and allocations(lambda: fast(*SEARCH)) == vectors * turns
    assert counts(fast).failures == 0


def kept_search(Xw, Xd, y, wd, dd):
    """The line search, and what it made last."""
    step = 0.0
    evaluations = 0
    searching = True
    while searching:
        out = 1.0 - y * (Xw + step * Xd)
        sv = out > 0
        out = out * sv
        g = wd + step * dd - (out * y * Xd).sum()
        h = dd + (Xd * sv * Xd).sum()
        step = step - g / h
        evaluations += 1
        searching = g * g / h > 1e-10 and evaluations < 50
    return step, evaluations, out


def test_a_later_use_keeps_one_vector() -> None:
    fast = jitla.jit(kept_search)
    turns = kept_search(*SEARCH)[1]
    assert_same(kept_search(*SEARCH), fast(*SEARCH))
    assert allocations(lambda: fast(*SEARCH)) == turns


def consumers(A, B, s):
    C = A + s * B
    D = np.cumsum(C / 2, axis=0), np.cumsum(C - 1, axis=0)
    E = np.exp(C - 1)
    return *D, E


def consumers_and_value(A, B, s):
    C = A + s * B
    D = np.cumsum(C / 2, axis=0), np.cumsum(C - 1, axis=0)
    E = np.exp(C - 1)
    return C, *D, E


def cheap_twice(A, B, s):
    C = A + s * B
    return np.exp(C - C.max())


def dear_twice(A, B, s):
    C = np.exp(np.sin(A) + s * B)
    return C / C.sum()


@pytest.mark.parametrize(("function", "arrays"), [
    # C / 2 and C - 1 are for calls, which read memory; the exponential takes its own C - 1 on the way
    (consumers, 3),
    (consumers_and_value, 4),
    (cheap_twice, 1),  # computed again by its second reader
    (dear_twice, 2),   # read by it
])
def test_a_value_is_written_for_the_consumers_that_need_it(function, arrays: int) -> None:
    """Counted are the arrays that kernels write, results among them; a call's result is NumPy's."""
    fast = jitla.jit(function)
    assert_same(function(LONG_A, LONG_B, 0.5), fast(LONG_A, LONG_B, 0.5))
    assert allocations(lambda: fast(LONG_A, LONG_B, 0.5)) == arrays


def test_without_fusion_every_step_is_written() -> None:
    fast = jitla.jit(consumers, fusion="none")
    fast(LONG_A, LONG_B, 0.5)
    assert allocations(lambda: fast(LONG_A, LONG_B, 0.5)) == 6


# Totals of values with broadcast operands: NumPy's bits, one kernel, nothing in memory.

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
