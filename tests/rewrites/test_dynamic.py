"""Statistics spelled out are NumPy's own, bit for bit; counts keep nothing alive."""

from __future__ import annotations

import numpy as np
import pytest

from jitla.hops import Meta, apply, evaluate, leaf, make, topo
from jitla.rewrites import RULES, simplify
from tests.rewrites.data import same_bits

STATISTICS = [("mean", {}), ("var", {}), ("var", {"ddof": 1}), ("std", {}), ("std", {"ddof": 1.5})]
EXACT = ["f8", "f4", "i1", "u1", "i2", "u2", "?"]
ALL = [*EXACT, "i4", "u4", "i8", "u8", "f2"]


def laid_out(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Random values in a random memory layout."""
    layout = rng.integers(0, 4)
    size = tuple(2 * n for n in shape) if layout == 2 else shape
    if dtype == "?":
        values = rng.random(size) < 0.5
    elif np.dtype(dtype).kind == "f":
        values = (rng.standard_normal(size) + rng.choice([0.0, 1e3])).astype(dtype)
    else:
        info = np.iinfo(dtype)
        values = rng.integers(max(info.min, -(2**31)), min(info.max, 2**31), size).astype(dtype)
    if layout == 1:
        return np.asfortranarray(values)
    if layout == 2:
        return values[tuple(slice(None, None, 2) for _ in shape)]
    return values[::-1] if layout == 3 and shape else values


def spelled_out(name: str, data: np.ndarray, axis: tuple[int, ...], keepdims: bool, extra: dict):
    hop = make(name, (leaf(0, Meta(data.shape, data.dtype)),), axis=axis, keepdims=keepdims, **extra)
    (after,) = simplify((hop,))
    assert name not in [h.op.name for h in topo((after,))]
    with np.errstate(all="ignore"):
        mine = evaluate((after,), [data])[0]
        numpys = getattr(np, name)(data, axis=axis, keepdims=keepdims, **extra)
    return mine, numpys


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize(("name", "extra"), STATISTICS)
def test_statistics_have_numpys_bits(name: str, extra: dict, dtype: str):
    rng = np.random.default_rng(5)
    for _ in range(60):
        shape = tuple(int(n) for n in rng.integers(2, 14, rng.integers(1, 4)))
        axis = tuple(i for i in range(len(shape)) if rng.random() < 0.6) or (0,)
        data = laid_out(rng, shape, dtype)
        mine, numpys = spelled_out(name, data, axis, bool(rng.random() < 0.3), extra)
        assert type(mine) is type(numpys) and same_bits(mine, numpys), (shape, axis, mine, numpys)


@pytest.mark.parametrize("dtype", EXACT)
@pytest.mark.parametrize(("name", "extra"), STATISTICS)
def test_statistics_of_large_operands_have_numpys_bits(name: str, extra: dict, dtype: str):
    rng = np.random.default_rng(6)
    for shape, axis in (((40000,), (0,)), ((200, 300), (0,)), ((200, 300), (1,)), ((200, 300), (0, 1)),
                        ((3, 9000), (1,)), ((9000, 3), (0,))):
        mine, numpys = spelled_out(name, laid_out(rng, shape, dtype), axis, False, extra)
        assert same_bits(mine, numpys), (shape, axis)


def test_large_float32_counts_divide_in_float64():
    """2**24 + 1 is no float32: the quotient must be NumPy's, by way of float64."""
    data = np.broadcast_to(np.float32(3), (2**24 + 1,))
    mine, numpys = spelled_out("mean", data, (0,), False, {})
    assert same_bits(mine, numpys)


def test_nan_and_inf_go_through():
    for special in (np.nan, np.inf, -0.0):
        data = np.full((3, 4), special)
        for name, extra in STATISTICS:
            mine, numpys = spelled_out(name, data, (0,), False, extra)
            assert same_bits(mine, numpys)


@pytest.mark.parametrize("dtype", ["i4", "i8", "f2"])
def test_strict_leaves_to_numpy_what_numpy_casts_in_pieces(dtype: str):
    hop = make("mean", (leaf(0, Meta((30,), np.dtype(dtype))),), axis=(0,), keepdims=False)
    assert simplify((hop,), RULES.at("strict")) == (hop,)


def test_strict_would_be_wrong_otherwise():
    """The counterexample: int64 values past 2**53, more than 8192 of them."""
    rng = np.random.default_rng(1)
    data = [rng.integers(-(2**62), 2**62, 30000) for _ in range(20)]
    assert any(d.mean() != d.astype(float).sum() / d.size for d in data)
    assert all(np.isclose(d.mean(), d.astype(float).sum() / d.size, rtol=1e-12) for d in data)


def test_a_count_does_not_keep_the_value_it_counts():
    x, y = leaf(0, Meta((30, 1), np.dtype("f8"))), leaf(1, Meta((40,), np.dtype("f8")))
    value = apply("exp", apply("subtract", x, y))
    (after,) = simplify((make("mean", (value,), axis=(0, 1), keepdims=False),))
    counted = [h.inputs[0] for h in topo((after,)) if h.op.name == "count"]
    assert counted and all(h in (x, y) for h in counted)
    data = [np.ones((30, 1)), np.zeros(40)]
    assert evaluate((after,), data)[0] == np.mean(np.exp(data[0] - data[1]))


def test_one_pass_over_the_operand_serves_mean_and_std():
    x = leaf(0, Meta((30, 40), np.dtype("f8")))
    mean = make("mean", (x,), axis=(0,), keepdims=True)
    std = make("std", (x,), axis=(0,), keepdims=True, ddof=0)
    after = simplify((mean, std))
    assert sum(h.op.name == "sum" for h in topo(after)) == 2
