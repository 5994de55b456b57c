"""Sums down columns that threads add rows to in turn have NumPy's bits, whatever lies in a block of rows."""

from __future__ import annotations

import numpy as np
import pytest

from jitla.codegen import LlvmBackend
from jitla.codegen.kernels import reduce_axis as turns
from jitla.codegen.kernels.row import OWN
from jitla.fusion import Form, Geometry, Schedule
from jitla.hops import Hop, Meta, apply, leaf, make
from tests.codegen.driver import kernel_of, letter

RNG = np.random.default_rng(11)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "BLOCKS", 3)
    monkeypatch.setattr(turns, "BLOCK_BYTES", 1 << 14)


def summed(x: Hop, name: str = "sum") -> Hop:
    return make(name, (x,), axis=(0,), keepdims=False)


def run(roots: list[Hop], arrays: list, threads: int) -> tuple[list[np.ndarray], bool]:
    """Return what a kernel computes, and whether its threads take turns."""
    backend = LlvmBackend(threads=threads)
    backend.serial_ns = 0
    kernel = kernel_of(roots)
    outs = [np.full(r.meta.shape, 99).astype(r.meta.dtype) for r in roots]
    given = [arrays[h.attr("slot")] for h in kernel.inputs]
    views = [np.broadcast_to(a, kernel.shape) for a in given if isinstance(a, np.ndarray)]
    form = Form("cols", 2, "".join(map(letter, views)) + "c" * len(outs))
    strides = [v.strides for v in views] + [(0, *o.strides) for o in outs]
    executable = backend.compile(kernel, form, Schedule())
    block = executable.template(Geometry(kernel.shape, tuple(strides)))
    backend.launch(block, *given, *outs)
    plain = LlvmBackend(threads=1).compile(kernel, form, Schedule()).template(
        Geometry(kernel.shape, tuple(strides)))
    return outs, len(block) > len(plain) + 8 * OWN


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "c16"])
@pytest.mark.parametrize("shape", [(6000, 17), (3001, 100), (700, 300), (5000, 50)], ids=str)
def test_sums_in_turn(shape: tuple[int, int], dtype: str, threads: int) -> None:
    x = (RNG.standard_normal(shape) * 10.0 ** RNG.integers(-3, 4, shape)).astype(dtype)
    a = leaf(0, Meta(shape, x.dtype))
    (found, *_), turned = run([summed(a)], [x], threads)
    assert turned == (threads > 1)
    np.testing.assert_array_equal(found, x.sum(axis=0))


@pytest.mark.parametrize("threads", [2, 3])
def test_bodies_and_operands_of_every_kind(threads: int) -> None:
    x = RNG.standard_normal((3001, 103))[:, :101]  # rows with a gap behind them
    m, w, y = RNG.standard_normal(101), RNG.standard_normal((3001, 1)), RNG.standard_normal((3001, 101))
    arrays = [x, m, w, np.float64(0.75), y]
    a, b, c, d, e = (leaf(i, Meta(np.shape(v), v.dtype), "array" if np.shape(v) else "scalar")
                     for i, v in enumerate(arrays))
    far = apply("subtract", a, b)
    for roots, wanted in (
        ([summed(apply("square", far))], [((x - m) ** 2).sum(0)]),
        ([summed(apply("multiply", a, c)), summed(a, "max")], [(x * w).sum(0), x.max(0)]),
        ([summed(apply("multiply", a, d)), summed(e, "min")], [(x * 0.75).sum(0), y.min(0)]),
    ):
        found, turned = run(roots, arrays, threads)
        assert turned
        for f, want in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(f, want)


def test_columns_are_shared_out_where_turns_do_not_pay() -> None:
    for shape, dtype in (((900, 101), "f8"), ((60_000, 3), "f8"), ((6000, 2000), "f4"), ((60_000, 90), "i1")):
        x = (RNG.standard_normal(shape) * 50).astype(dtype)
        a = leaf(0, Meta(shape, x.dtype))
        root = summed(apply("negative", a), "max")
        (found, *_), turned = run([root], [x], 2)
        assert not turned or shape[0] == 900
        np.testing.assert_array_equal(found, (-x).max(0))
    x = RNG.standard_normal((6000, 50))
    found, turned = run([summed(apply("exp", leaf(0, Meta(x.shape, x.dtype))))], [x], 2)
    assert not turned
    np.testing.assert_allclose(found[0], np.exp(x).sum(0), rtol=1e-14)
