"""Kernels: evaluation over their merged iteration space, predicted layouts of results."""

from __future__ import annotations

import random

import numpy as np
import pytest

import jitla
from jitla.fusion import (
    Form,
    InterpretedBackend,
    Kernel,
    Layout,
    Schedule,
    all_layouts,
    geometry,
    run_kernel,
)
from jitla.fusion.layout import cast_layout, reduced_layout, result_layout
from jitla.hops import Meta, apply, leaf, make

# Kernels evaluated over their merged walk are NumPy's results.

F8 = np.dtype("f8")


def test_form_and_geometry_of_a_sum_of_columns():
    x, row = leaf(0, Meta((30, 40), F8)), leaf(1, Meta((40,), F8))
    cell = apply("subtract", x, row)
    found = apply("sum", cell, axis=(0,), keepdims=False)
    kernel = Kernel("MAgg", (30, 40), (x, row), (cell, found), (found,))
    form, walk = geometry(kernel, kernel.shape, all_layouts((found,), {}))
    assert form == Form("cols", 2, "ccc")
    assert walk.dims == (30, 40) and walk.strides == ((320, 8), (0, 8), (0, 8))


def test_cells_merge_to_one_dimension():
    x, y = leaf(0, Meta((3, 1, 4), F8)), leaf(1, Meta((3, 1, 4), F8))
    cell = apply("add", x, y)
    kernel = Kernel("Cell", (3, 1, 4), (x, y), (cell,), (cell,))
    form, walk = geometry(kernel, kernel.shape, all_layouts((cell,), {}))
    assert form == Form("cell", 1, "ccc") and walk.dims == (12,)
    turned = {0: Layout((3, 1, 4), (8, 8, 24)), 1: Layout((3, 1, 4), (8, 8, 24))}
    form, walk = geometry(kernel, kernel.shape, all_layouts((cell,), turned))
    assert form == Form("cell", 1, "ccc") and walk.dims == (12,)


def test_run_kernel_and_launch_agree():
    x, y = leaf(0, Meta((30, 40), F8)), leaf(1, Meta((30, 1), F8))
    cell = apply("multiply", x, y)
    found = apply("sum", cell, axis=(1,), keepdims=True)
    kernel = Kernel("MAgg", (30, 40), (x, y), (cell, found), (found,))
    a, b = np.random.default_rng(0).random((30, 40)), np.random.default_rng(1).random((30, 1))
    want = (a * b).sum(axis=1, keepdims=True)
    assert run_kernel(kernel, {x: a, y: b})[found].tobytes() == want.tobytes()
    form, walk = geometry(kernel, kernel.shape, all_layouts((found,), {}))
    backend = InterpretedBackend()
    out = np.empty((30, 1))
    backend.launch(backend.compile(kernel, form, Schedule()).template(walk), a, b, out)
    assert out.tobytes() == want.tobytes()


def test_sums_by_label_of_elements_at_positions():
    n = Meta((6,), np.dtype("i4"))
    table, group, at = leaf(0, Meta((9,), F8)), leaf(1, Meta((9,), np.dtype("i8"))), leaf(2, n)
    values, labels = make("take", (table, at)), make("take", (group, at))
    cell = apply("multiply", values, values)
    found = make("bincount", (labels, cell), shape=(4,))
    counts = make("bincount", (labels,), shape=(4,))
    kernel = Kernel("Tally", (6,), (table, group, at), (values, labels, cell, found, counts), (found, counts))
    x, g, i = np.arange(9.0) / 3, np.arange(9) % 4, np.array([8, 0, 3, 3, 5, 1], "i4")
    want = np.bincount(g[i], x[i] ** 2, 4), np.bincount(g[i], minlength=4)
    ran = run_kernel(kernel, {table: x, group: g, at: i})
    form, walk = geometry(kernel, kernel.shape, all_layouts((found, counts), {}))
    assert form == Form("tally", 1, "ttctt") and walk.strides[-1] == (4,)
    backend = InterpretedBackend()
    outs = np.empty(4), np.empty(4, np.intp)
    backend.launch(backend.compile(kernel, form, Schedule()).template(walk), x, g, i, *outs)
    for out, hop, wanted in zip(outs, (found, counts), want, strict=True):
        assert out.tobytes() == ran[hop].tobytes() == wanted.tobytes()


# Predicted strides are NumPy's, for operands in any layout, with 0 to 5 dimensions of any length.


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
