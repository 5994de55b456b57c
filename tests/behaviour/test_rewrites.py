"""Rewrites in programs as users write them: each family fires, and results are NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import jitla
from tests.behaviour.counting import assert_same
from tools.rules_table import families

RNG = np.random.default_rng(4)
M, N, K = 60, 40, 30
A, B, C = (RNG.standard_normal(shape) for shape in ((M, K), (K, N), (M, N)))
S = RNG.standard_normal((N, N))
u, v, w = (RNG.standard_normal(n) for n in (M, N, K))
I, J = (RNG.integers(-9, 9, (M, N)) for _ in range(2))  # noqa: E741
P, Q = (RNG.random((M, N)) < 0.5 for _ in range(2))
Z = C + 1j * C[::-1]
F = C.astype("f4")

# By family: programs, and the rules that fire in them at numerics="relaxed", all of them or some.
PROGRAMS: dict[str, list[tuple[Callable[..., Any], tuple[Any, ...], str]]] = {
    "signs": [
        (lambda x, y: -(-x * y), (C, v), "product-with-neg neg-of-neg"),
        (lambda x, y: x - (-y), (C, v), "sub-of-neg"),
        (lambda x, y: np.abs(x - y) * np.abs(y), (C, C[::-1]), "product-of-abs"),
        (lambda x: np.abs((x * x).sum(axis=0)), (C,), "abs-of-positive"),
        (lambda x: np.abs(-x), (C,), "abs-of-neg"),
        (lambda x: np.cos(-x) / -(x * x + 2), (C,), "cos-of-neg quotient-by-neg"),
        (lambda x: np.fabs(x) - 1, (C,), "fabs-as-abs"),
    ],
    "products": [
        (lambda x: (x * x).sum() + (x**2).max(), (C,), "product-with-itself"),
        (lambda x: x**3 + x**4, (C,), "power-three power-four"),
    ],
    "extremes": [
        (lambda x, y: np.maximum(-x, -y), (C, C[::-1]), "maximum-of-negs"),
        (lambda x: np.maximum(x, -x), (C,), "maximum-of-self-and-neg"),
        (lambda x, y: np.maximum(np.sqrt(np.abs(x)), np.sqrt(np.exp(y))), (C, C[::-1]), "maximum-of-roots"),
        (lambda x: np.floor(np.rint(x)), (C,), "floor-of-whole"),
    ],
    "logic": [
        (lambda x, y: ~(x > 0) & ~(y > 0), (C, C[::-1]), "and-of-nots greater-as-less bitand-as-and"),
        (lambda p, q: ~(p & q) | ~q, (P, Q), "or-of-nots"),
    ],
    "whole": [
        (lambda p, q: (p * q).sum(), (P, Q), "multiply-of-bools"),
        (lambda p, q: np.maximum(p, q), (P, Q), "maximum-of-bools"),
        (lambda i, j: i * j + i * (j - i), (I, J), "factor-out-whole"),
        (lambda i, j: (i + j) - j, (I, J), "difference-of-sum"),
    ],
    "comparisons": [
        (lambda x: (np.isnan(x) | np.isinf(x)).sum(), (C,), "nan-or-inf"),
        (lambda x: np.isnan(np.abs(x)).any(), (C,), "isnan-of-abs"),
        (lambda x, y: (x < y) | (x == y), (C, C[::-1]), "less-or-equal"),
        (lambda x: (x != x).any(), (C,), "unequal-to-itself"),
        (lambda i: np.isfinite(i) & (i > 2), (I,), "isfinite-of-whole"),
    ],
    "choices": [
        (lambda x, p: np.where(~p, x, -x), (C, P), "where-of-not"),
        (lambda x, y, p: np.where(p, -x, -y), (C, C[::-1], P), "choice-of-negs"),
        (lambda x, y, p: np.where(p, np.where(p, x, y), y + 1), (C, C[::-1], P), "choice-in-first-branch"),
        (lambda p, i, j: np.where(p, i.astype("f8"), j.astype("f8")), (P, I, J), "choice-of-casts"),
    ],
    "casts": [
        (lambda z: np.abs(np.conj(z)), (Z,), "abs-of-conjugate"),
        (lambda f: (f + f).astype("f8").astype("f4") * 2, (F,), "cast-of-cast"),
    ],
    "moves": [
        (lambda x: ((x + 1).T.T * 2).sum(), (C,), "t-of-t t-in-order"),
        (lambda x: ((x + 1).reshape(-1).reshape(x.shape[1], -1) * 2), (C,), "reshape-of-reshape"),
        (lambda x: (x * 2)[1:][:-1] + 1, (C,), "slice-of-slice"),
        (lambda x: (x * 2).ravel() + np.ravel(x + 1), (C,), "ravel-as-reshape"),
    ],
    "rolls": [
        (lambda x: np.roll(np.roll(x + 1, 1, 0), 2, 1) * 2 + x, (C,), "roll-of-roll"),
        (lambda x: np.roll(x, 1, 0) + np.roll(x, -1, 0) - 2 * x, (C,), "rolls-of-ring"),
    ],
    "aggregates": [
        (lambda x: (x + 1).T.sum(axis=0), (C,), "sum-of-t"),
        (lambda x: (x * 2).max(axis=0).max(), (C,), "max-of-max"),
        (lambda x: (x + 1).sum(axis=0).sum(), (C,), "total-of-sum"),
    ],
    "orderings": [
        (lambda x, y: np.sqrt(((x - y) ** 2).sum(axis=1)).max(), (C, v), "max-of-sqrt"),
        (lambda x: (-x).min() + np.exp(x).max(), (C,), "min-of-neg max-of-exp"),
        (lambda x: np.argmax(-(x * 2), axis=1), (C,), "argmax-of-neg"),
        (lambda x: not (~(x > 0)).all(), (C,), "all-of-not"),
        (lambda x: (x * 2).reshape(-1).max() + (x * 3).reshape(-1).sum(), (C,),
         "max-of-reshape total-of-reshape"),
        (lambda f: (f * 2).astype("f8").min(), (F,), "min-of-cast"),
    ],
    "blocks": [
        (lambda x, y: np.concatenate([x, y]).sum(), (C, S), "total-of-joined"),
        (lambda x, y: np.hstack([x, y * 2]).max(axis=1), (C, A), "max-of-joined"),
        (lambda x: x[:0].sum(axis=0) + (x[:0] * 2).sum(axis=0), (C,), "sum-over-nothing"),
    ],
    "matrices": [
        (lambda a, b: (a @ b).sum(axis=1), (A, B), "sum-of-product"),
        (lambda a, b, c: (a @ b - c).sum(), (A, B, C), "sum-of-product-minus"),
        (lambda x, y: np.outer(x, y).sum(axis=0), (u, v), "sum-of-outer"),
        (lambda x, b: (b @ (x - 1).T).T @ (x[0] + 1), (C, S), "t-of-product-t"),
    ],
    "chains": [
        (lambda a, b, x: a @ b @ x, (A, B, v), "matmul-chain"),
        (lambda x, a, b: (x @ (a - 1)) @ b, (u, A, B), "vector-behind"),
    ],
    "paths": [
        (lambda a, b, x: np.einsum("ij,jk,k->i", a, b, x), (A, B, v), "einsum-path-of-3"),
    ],
    "scaled": [
        (lambda x, y, z: (x * y[:, None]) @ z, (C, u, v), "scaled-rows-times"),
        (lambda x, y, z: (x / y) @ z, (C, v * v + 1, v), "divided-columns-times"),
        (lambda x, y: y @ (x * y[:, None]), (C, u), "times-scaled-rows"),
        (lambda x, y: (-x) @ y, (C, v), "neg-times"),
        (lambda x, y, z: np.outer(x, y) @ z, (u, v, v), "outer-times"),
        (lambda x, y, z: (x @ y)[:3] * z, (A, B, v), "slice-of-product"),
        (lambda x, y, z: np.vstack([x, y]) @ z, (C, S, v), "joined-rows-times"),
        (lambda x, k, r, z: np.hstack([x, k @ r]) @ z, (C, A, B, RNG.standard_normal(2 * N)),
         "joined-columns-times"),
        (lambda x, s, z: (x * s) @ z, (C[:9], 2.5, S[:, :20].copy()), "times-number-left"),
        (lambda x, z: (x - x.mean(0)) @ z, (C, v), "centred-difference-times"),
    ],
    "diagonals": [
        (lambda a, b: np.trace(a @ b), (C, C.T.copy()), "trace-as-sum diagonal-of-product"),
        (lambda a, b: np.diag(a @ b) * 2, (C, C.T.copy()), "diagonal-of-product"),
        (lambda x, y: np.diag(x * 2) @ y, (v, S), "diag-times"),
        (lambda x, y: y @ np.diag(x * 2), (v, S), "times-diag"),
        (lambda s: (s * 2).trace() + np.trace(np.abs(s)), (S,),
         "diagonal-of-warning-cells diagonal-of-cells"),
    ],
    "reals": [
        (lambda x, y, z: x / y + z / y, (C, v, C[::-1].copy()), "sum-over-divisor"),
        (lambda x, y: np.exp(x) * np.exp(y), (C, C[::-1] / 2), "product-of-exps"),
        (lambda x, y: np.log(np.exp(x) + np.exp(y)), (C, C[::-1]), "log-of-exps"),
        (lambda x: np.linalg.norm(x, axis=1) ** 2, (C,), "square-of-root"),
        (lambda x, p: (x * p.astype("f8")).sum(), (C, P), "mask-as-choice"),
        (lambda x, y: ((x[:, None] - y[None]) ** 2).sum(-1), (C, S), "squared-distances"),
        (lambda x, s, t: (x * s / t).sum(), (C, 2.5, 1.5), "scale-and-divide"),
        (lambda x, y: np.argmin(x - y[:, None], axis=1), (C, u), "argmin-of-shifted-difference"),
    ],
    "sums": [(lambda a, b: np.einsum("ij,jk->ik", a, b) * 2, (A, B), "einsum-of-two")],
    "statistics": [
        (lambda x: (x - x.mean(axis=0)) / x.std(axis=0), (C,), "mean-spelled-out std-spelled-out")],
    "slices": [(lambda x, y: (lambda d: d[1:] - d[:-1])(x * y), (C, v), "slice-of-cells")],
}
CASES = [(family, *case) for family, cases in PROGRAMS.items() for case in cases]


def fired(function: Any) -> set[str]:
    """Return the names of the rewrites that explain shows."""
    return {rule.name for program in jitla.explain(function).record.programs for rule in program.fired}


@pytest.mark.parametrize(("family", "function", "arguments", "names"), CASES, ids=[c[0] for c in CASES])
def test_rules_fire_in_traced_programs(family, function, arguments, names):
    jitted = jitla.jit(function, compile="sync", numerics="relaxed")
    wanted = function(*arguments)
    for _ in range(2):
        assert_same(wanted, jitted(*arguments), 10)
    assert set(names.split()) <= fired(jitted)
    assert set(names.split()) & {rule.name for rule in families()[family][1]}


def test_every_family_is_there():
    """Those of sparse matrices have tests of their own."""
    assert set(PROGRAMS) | {"stored"} == set(families())


@pytest.mark.parametrize("level", ["strict", "numpy"])
@pytest.mark.parametrize("family", PROGRAMS)
def test_levels_choose_the_rules(family, level):
    function, arguments, _ = PROGRAMS[family][0]
    jitted = jitla.jit(function, compile="sync", numerics=level)
    wanted, found = function(*arguments), jitted(*arguments)
    if level == "strict":
        assert np.array_equal(wanted, found, equal_nan=True)
    else:
        assert_same(wanted, found)
    known = {r.name: r.exactness for _, members in families().values() for r in members}
    allowed = {"strict": {"exact"}, "numpy": {"exact", "rounding"}}[level]
    assert {known[name] for name in fired(jitted)} <= allowed


def test_a_rule_that_moves_a_result_in_memory_is_left_out_alone():
    def turned(a, b, x):
        return np.exp((a @ (b - 1).T).T), np.negative(-x)

    jitted = jitla.jit(turned, compile="sync")
    (wanted, _), (found, _) = turned(S, C, C), jitted(S, C, C)
    assert found.strides == wanted.strides and np.allclose(found, wanted, rtol=1e-12)
    assert fired(jitted) == {"neg-of-neg"}


def test_rules_can_be_left_out():
    with jitla.options(without_rules="sum-of-product, total-of-sum"):
        jitted = jitla.jit(lambda a, b: (a @ b).sum(), compile="sync")
        jitted(A, B)
        assert "sum-of-product" not in fired(jitted)
    with jitla.options(without_rules="sum-of-products"):
        with pytest.raises(jitla.ConfigError, match="no rewrite is called sum-of-products"):
            jitla.jit(lambda a: a + 1, compile="sync")(A)


def windows_and_writes(image, filters):
    seen = np.lib.stride_tricks.sliding_window_view(image, (3, 3))
    maps = np.einsum("ijab,abk->ijk", seen, filters)
    image += 1.0
    later = np.einsum("ijab,abk->ijk", seen, filters)
    image[2:, 1:] = image[:-2, :-1] * 2.0
    return maps, later, seen[3].sum(), (seen * 2.0)[0]


@pytest.mark.parametrize("numerics", ["numpy", "strict"])
def test_windows_are_of_the_memory_they_are_taken_of(numerics):
    """Sums of products over windows are products of matrices, whatever is written between them."""
    image, filters = np.sin(np.arange(99.0).reshape(9, 11)), np.cos(np.arange(36.0).reshape(3, 3, 4))
    jitted = jitla.jit(windows_and_writes, compile="sync", numerics=numerics)
    for _ in range(3):
        mine, yours = image.copy(), image.copy()
        wanted, got = windows_and_writes(mine, filters), jitted(yours, filters)
        assert_same(wanted, got, 10)
        assert_same(mine, yours)
    assert ("einsum-of-two" in fired(jitted)) == (numerics == "numpy")


def written_windows(x):
    seen = np.lib.stride_tricks.sliding_window_view(x, 2, writeable=True)
    seen += 1.0
    return x * 2.0, seen.sum()


def test_windows_that_are_written_to_are_numpys():
    for _ in range(2):
        jitted = jitla.jit(written_windows, compile="sync")
        assert_same(written_windows(np.arange(6.0)), jitted(np.arange(6.0)))


def pooled(x):
    n, r, c, k = x.shape
    blocks = (x * 1.0).reshape(n, r // 2, 2, c // 2, 2, k)
    return blocks.max(axis=(2, 4)), blocks.min(axis=(2, 4), keepdims=True), x.max(axis=1)


@pytest.mark.parametrize("order", ["C", "F"])
def test_extremes_of_few_are_numpys_with_zeros_and_nans(order):
    """Pooling joins a few slices, each in one pass."""
    values = np.array([0.0, -0.0, 1.0, -1.0, np.nan, 0.0, -0.0])
    x = np.asarray(values[np.random.default_rng(5).integers(0, 7, (5, 8, 10, 70))], order=order)
    jitted = jitla.jit(pooled, compile="sync")
    for _ in range(2):
        for wanted, got in zip(pooled(x), jitted(x), strict=True):
            assert_same(np.nan_to_num(wanted, nan=7.0), np.nan_to_num(got, nan=7.0))
            assert wanted.strides == got.strides
    assert "max-of-few" in fired(jitted)
