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
from jitla.hops import Meta, apply, leaf

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
