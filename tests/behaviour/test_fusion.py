"""What fits in one kernel is one kernel, and only results are written to memory."""

from __future__ import annotations

import numpy as np
import pytest

import jitla
from tests.behaviour.counting import assert_same, counts, during
from tests.fuzz.compare import leaves

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
