"""The peak of a plan: what lies in memory at the same time, by hand."""

from __future__ import annotations

import numpy as np

from jitla.fusion import InterpretedBackend, Layout, peak_bytes, plan
from jitla.fusion.cost_model import (
    memory_owner,
    scratch_bytes,
)
from jitla.fusion.kernel import (
    Call,
    Kernel,
    RowKernel,
)
from jitla.hops import Hop, Meta, apply, leaf, make

F8 = np.dtype("f8")
N = 1000
SUPPORTS = InterpretedBackend().supports


def vector(slot: int) -> Hop:
    return leaf(slot, Meta((N,), F8))


def alone(hop: Hop) -> Kernel:
    return Kernel("Cell", hop.meta.shape, hop.inputs, (hop,), (hop,))


def test_values_end_with_their_last_reader():
    x = vector(0)
    a = apply("add", x, x)
    b = apply("multiply", a, a)
    c = apply("subtract", b, b)
    steps = [alone(a), alone(b), alone(c)]
    assert peak_bytes(steps, (c,)) == 2 * 8 * N
    assert peak_bytes(steps, (a, c)) == 3 * 8 * N


def test_leaves_scalars_and_what_is_stored_take_nothing():
    x = vector(0)
    a = apply("add", x, x)
    total = apply("sum", a, axis=(0,), keepdims=False)
    kernel = Kernel("MAgg", (N,), (x,), (a, total), (total,))
    assert peak_bytes([kernel], (total, x)) == 0
    assert peak_bytes([alone(a)], (a,), stored={a}) == 0


def test_rows_that_wait_lie_beside_what_is_live():
    x = vector(0)
    a = apply("add", x, x)
    b = apply("multiply", x, a)
    steps = [alone(a), alone(b)]
    assert peak_bytes(steps, (a, b), stored={b}) == 8 * N
    assert peak_bytes(steps, (a, b), stored={b}, waiting={b: 100}) == 8 * N + 100


def test_a_view_keeps_its_owner():
    x = leaf(0, Meta((10, 100), F8))
    a = apply("add", x, x)
    turned = make("transpose", (a,), axes=(1, 0))
    b = apply("multiply", turned, turned)
    assert memory_owner(turned) is a
    assert peak_bytes([alone(a), Call(turned), alone(b)], (b,)) == 2 * 8 * N
    # of a leaf it takes nothing
    view = make("transpose", (x,), axes=(1, 0))
    assert peak_bytes([Call(make("transpose", (x,), axes=(1, 0)))], (view,)) == 0


def test_a_result_asked_for_twice_is_two_arrays():
    a = apply("add", vector(0), vector(1))
    assert peak_bytes([alone(a)], (a, a)) == 2 * 8 * N


def test_other_sizes():
    a = apply("add", vector(0), vector(1))
    assert peak_bytes([alone(a)], (a,), resize=lambda shape: tuple(3 * n for n in shape)) == 3 * 8 * N


def row_kernel(rows: int) -> RowKernel:
    x, w = leaf(0, Meta((rows, 50), F8)), leaf(1, Meta((rows,), F8))
    v = leaf(2, Meta((50,), F8))
    inner = apply("multiply", w, apply("matmul", x, v))
    root = apply("matmul", make("transpose", (x,), axes=(1, 0)), inner)
    layouts = {0: Layout((rows, 50), (400, 8)), 1: Layout((rows,), (8,)), 2: Layout((50,), (8,))}
    found = plan((root,), layouts, lambda h: None if h.op.name == "matmul" else SUPPORTS(h))
    (kernel,) = [s for s in found.steps if isinstance(s, RowKernel)]
    return kernel


def test_scratch_of_a_row_kernel_does_not_grow_with_its_rows():
    small, large = (scratch_bytes(row_kernel(n), 2) for n in (50_000, 800_000))
    assert 0 < small <= large < 100_000
    assert scratch_bytes(row_kernel(50_000), 4) > small
