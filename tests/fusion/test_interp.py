"""Kernels evaluated over their merged walk are NumPy's results."""

from __future__ import annotations

import numpy as np

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
from jitla.hops import Meta, apply, leaf, make

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
