"""Every method gives every hop a number of nonzeros; the bound holds, the others are near."""

from __future__ import annotations

import numpy as np
import pytest

from jitla.hops import ESTIMATORS, Hop, Meta, apply, csr_sketch, estimate_nnz, evaluate, leaf, make
from tests.hops.test_nnz import counted
from tests.hops.test_sketch import sketch, skewed

F8 = np.dtype(float)
N = 120


def matrices() -> list[np.ndarray]:
    rng = np.random.default_rng(8)
    return [x * rng.random(x.shape) for x in (
        skewed(N, N, 0.8, 0.8, 6), skewed(N, N, 0.0, 0.5, 9), skewed(N, N, 0.3, 0.0, 4))]


def expressions(a: Hop, b: Hop, c: Hop) -> dict[str, Hop]:
    v = leaf(3, Meta((N,), F8, N))
    return {
        "product": apply("matmul", a, b), "chain": apply("matmul", apply("matmul", a, b), c),
        "gram": apply("matmul", make("transpose", [a], axes=(1, 0)), a),
        "times vector": apply("matmul", a, v), "cells": apply("multiply", a, apply("add", b, c)),
        "unary": apply("negative", apply("sqrt", a)), "dense": apply("cos", a),
        "not equal": apply("not_equal", a, b), "scaled": apply("multiply", a, v),
        "joined": apply("concatenate", a, b, axis=1), "stacked": apply("stack", a, b, axis=1),
        "reshaped": make("reshape", [a], shape=(N // 2, 2 * N)),
        "part": make("getitem", [a], index=(("s", 3, 70, None),)),
        "row": make("getitem", [a], index=(("i", 3),)),
        "row sums": apply("sum", a, axis=(1,), keepdims=False),
        "column maxima": apply("max", b, axis=(0,), keepdims=False),
        "all": apply("sum", a, axis=(0, 1), keepdims=False),
        "kept": apply("sum", a, axis=(0,), keepdims=True),
        "mean": apply("mean", a, axis=(1,), keepdims=False),
        "chosen": apply("where", apply("greater", a, b), b, c),
        "product of rows": apply("prod", a, axis=(1,), keepdims=False),
        "diagonal": apply("matmul", make("eye", [], n=N, m=N, k=0, dtype="f8"), a),
        "above it": apply("matmul", make("eye", [], n=N, m=N, k=1, dtype="f8"), a),
        "repeated": apply("matmul", make("broadcast_to", [v], shape=(N, N)), a),
    }


NAMES = tuple(expressions(*counted(matrices())))


@pytest.mark.parametrize("method", ESTIMATORS)
@pytest.mark.parametrize("name", NAMES)
def test_all_methods_know_all_operators(name: str, method: str) -> None:
    arrays = [*matrices(), np.ones(N)]
    leaves = counted(arrays[:3])
    hop = expressions(*leaves)[name]
    known = dict(zip(leaves, map(sketch, arrays[:3]), strict=True))
    (value,) = evaluate([hop], arrays)
    wanted = np.count_nonzero(value)
    for given in (None, known):
        numbers = estimate_nnz([hop], method, given)
        assert set(leaves[:1]) <= set(numbers) | set(leaves)
        assert all(0 <= n <= h.meta.size + 1e-6 for h, n in numbers.items())
        if method == "worst":
            assert numbers[hop] >= wanted
    if method == "weighted":
        assert numbers[hop] == pytest.approx(wanted, rel=0.6, abs=20)


def test_exact_where_structure_says_so() -> None:
    a, b, c = arrays = matrices()
    leaves = counted(arrays)
    hops = expressions(*leaves)
    known = dict(zip(leaves, map(sketch, arrays), strict=True))
    found = estimate_nnz(hops.values(), "mnc", known)
    for name, wanted in (
        ("row sums", np.count_nonzero(a.sum(1))), ("column maxima", np.count_nonzero(b.max(0))),
        ("joined", np.count_nonzero(a) + np.count_nonzero(b)), ("diagonal", np.count_nonzero(a)),
        ("reshaped", np.count_nonzero(a)), ("unary", np.count_nonzero(a)),
        ("part", np.count_nonzero(a[3:70])), ("dense", N * N),
    ):
        assert found[hops[name]] == pytest.approx(wanted), name


def test_skew_is_seen_by_sketches_only() -> None:
    arrays = matrices()
    leaves = counted(arrays)
    known = dict(zip(leaves, map(sketch, arrays), strict=True))
    hops = expressions(*leaves)
    a = arrays[0]
    wanted = np.count_nonzero(a.T @ a)
    off = {m: abs(estimate_nnz([hops["gram"]], m, known)[hops["gram"]] - wanted) for m in ESTIMATORS}
    assert off["weighted"] < off["meta"] < off["worst"]


def test_leaves_without_sketches_are_even() -> None:
    a, b = leaf(0, Meta((50, 60), F8, 150)), leaf(1, Meta((60, 70), F8, 210))
    product = apply("matmul", a, b)
    even = estimate_nnz([product], "meta")[product]
    assert even == pytest.approx(50 * 70 * (1 - (1 - 150 / 3000 * 210 / 4200) ** 60))
    assert estimate_nnz([product], "mnc")[product] == pytest.approx(even, rel=0.1)
    assert estimate_nnz([product], "worst")[product] == 50 * 70
    empty = csr_sketch(np.zeros(51, int), np.zeros(0, int), (50, 60))
    assert estimate_nnz([product], "mnc", {a: empty})[product] == 0
