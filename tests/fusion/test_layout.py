"""Predicted strides are NumPy's, for operands in any layout, with 0 to 5 dimensions of any length."""

from __future__ import annotations

import random

import numpy as np
import pytest

import jitla
from jitla.fusion import Layout, all_layouts
from jitla.fusion.layout import (
    cast_layout,
    reduced_layout,
    result_layout,
)
from jitla.hops import Meta, leaf, make


def operand(rng: random.Random, shape: tuple[int, ...]) -> np.ndarray:
    """An array that broadcasts to `shape`."""
    axes = list(range(len(shape)))
    rng.shuffle(axes)
    back = tuple(np.argsort(axes)) if axes else ()
    short = tuple(1 if rng.random() < 0.4 else n for n in shape)
    match rng.choice("CFSRTTBP"):
        case "C":
            return np.ones(shape)
        case "F":
            return np.ones(shape, order="F")
        case "S" if all(shape):
            return np.ones(tuple(2 * n for n in shape))[tuple(slice(None, None, 2) for _ in shape)]
        case "R":
            step = tuple(slice(None, None, rng.choice((1, -1))) for _ in shape)
            return np.ones(shape)[step]
        case "T":
            return np.ones([shape[i] for i in axes]).transpose(back)
        case "B":
            return np.broadcast_to(np.ones(short), shape)
    return np.ones(short, order=rng.choice("CF"))


def of(array: np.ndarray) -> Layout:
    return Layout(array.shape, array.strides)


FUNCTIONS = {
    1: [(np.negative, True)],
    2: [(np.add, True), (np.less, True)],
    3: [(np.clip, True), (lambda c, x, y: np.where(c, x, y), False)],
}


@pytest.mark.parametrize("seed", range(20))
def test_strides_are_numpys(seed):
    rng = random.Random(seed)
    for _ in range(250):
        shape = tuple(rng.choice((0, 1, 2, 3, 4, 1, 2, 3)) for _ in range(rng.randint(0, 5)))
        arrays = [operand(rng, shape) for _ in range(rng.randint(1, 3))]
        if rng.random() < 0.3 and arrays[-1].size:
            arrays[-1] = arrays[-1][(0,) * rng.randint(0, arrays[-1].ndim)]
        function, ufunc = rng.choice(FUNCTIONS[len(arrays)])
        result = np.asarray(function(*arrays))
        places = [(Layout(np.shape(x), getattr(x, "strides", ())), 8) for x in arrays]
        layout = result_layout(result.shape, result.itemsize, places, ufunc)
        assert layout == of(result), [of(np.asarray(x)) for x in arrays]


@pytest.mark.parametrize("seed", range(20))
def test_strides_of_casts_and_reductions(seed):
    rng = random.Random(seed)
    for _ in range(250):
        shape = tuple(rng.choice((0, 1, 2, 3, 4)) for _ in range(rng.randint(1, 5)))
        array = operand(rng, shape)
        assert cast_layout(array.shape, 4, of(array), 8) == of(array.astype("f4")), of(array)
        axis = tuple(sorted(rng.sample(range(array.ndim), rng.randint(0, array.ndim))))
        keepdims = rng.random() < 0.5
        result = np.asarray(np.add.reduce(array, axis=axis, keepdims=keepdims))
        assert reduced_layout(of(array), 8, axis, keepdims) == of(result), (axis, of(array))


@pytest.mark.parametrize("name, attrs", [
    ("transpose", {"axes": (1, 0)}), ("flip", {"axis": (0,)}), ("reshape", {"shape": (12,)}),
    ("reshape", {"shape": (2, 6)}), ("ravel", {}), ("expand_dims", {"axis": (1,)}),
    ("broadcast_to", {"shape": (2, 3, 4)}), ("getitem", {"index": (("e",), ("s", None, None, 2))}),
])
@pytest.mark.parametrize("order", ["C", "F", "sliced"])
def test_strides_of_views(name, attrs, order):
    whole = np.ones((6, 8))
    array = whole[::2, ::2] if order == "sliced" else np.ones((3, 4), order=order)
    hop = make(name, (leaf(0, Meta(array.shape, array.dtype)),), **attrs)
    assert all_layouts((hop,), {0: of(array)})[hop] == of(hop.op.ref(array, **attrs))


def test_a_scalar_that_is_spread_out_has_all_axes():
    scalar = leaf(0, Meta((), np.dtype("f8")))
    spread_out = make("broadcast_to", (scalar,), shape=(3, 2))
    assert all_layouts((spread_out,), {})[spread_out] == Layout((3, 2), (0, 0))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_a_difference_of_equals_is_cast_where_it_may_be_left_out(dtype):
    def nothing(X, w):
        return (X - X) * w[:, None]

    fast = jitla.jit(numerics="relaxed")(nothing)
    X, w = np.ones((30, 20), dtype), np.ones(30)
    assert np.array_equal(fast(X, w), nothing(X, w))
    assert fast.stats().failures == 0


@pytest.mark.parametrize("seed", range(8))
def test_strides_of_running_sums(seed):
    rng = random.Random(seed)
    for _ in range(250):
        shape = tuple(rng.choice((0, 1, 2, 3, 4)) for _ in range(rng.randint(1, 4)))
        x, axis = np.broadcast_to(operand(rng, shape), shape), rng.randrange(len(shape))
        name = rng.choice(("cumsum", "cumprod"))
        hop = make(name, (leaf(0, Meta(shape, x.dtype)),), axis=axis)
        found = all_layouts((hop,), {0: of(x)})[hop]
        assert found.strides == getattr(np, name)(x, axis=axis).strides, (x.strides, axis)


@pytest.mark.parametrize("dtype", ["?", "u1", "i4", "i8", "f4"])
def test_running_sums_of_repeated_rows_lie_as_numpys(dtype):
    @jitla.jit
    def sums(x):
        return np.cumsum(x, axis=0), x.cumsum(axis=-1), np.cumsum(x * x, axis=0), x.cumsum()

    row = np.arange(50).astype(dtype)
    turned = np.asfortranarray(np.ones((4, 5), dtype))
    for x in (np.broadcast_to(row, (4, 50)), np.broadcast_to(row[:, None], (50, 3)), turned):
        for found, wanted in zip(sums(x), sums.__wrapped__(x), strict=True):
            assert (found.strides, found.dtype) == (wanted.strides, wanted.dtype)
            assert np.array_equal(found, wanted)
