"""Rows of cells: whole vectors, ends of rows, and results that overwrite what is still to be read."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import pytest

from jitla.codegen import LlvmBackend
from jitla.codegen.kernels.cell import LATE_BYTES
from jitla.fusion import Form, Geometry, Schedule
from jitla.hops import Meta, apply, leaf
from tests.codegen.driver import drive, kernel_of

BACKEND = LlvmBackend(launch=drive, threads=2)
RNG = np.random.default_rng(11)
CROSS = ((-1, 0), (1, 0), (0, -1), (0, 1))
SLANT = ((-1, -1), (1, 1), (0, 0))
ALONG = ((0, -1), (0, 1))


def inside(shape: Sequence[int], shift: Sequence[int]) -> tuple[slice, ...]:
    """Return where the inner part of an array lies, moved by `shift`."""
    return tuple(slice(1 + by, n - 1 + by) for by, n in zip(shift, shape, strict=True))


def run(shape: Sequence[int], shifts: Sequence[Sequence[int]], dtype: str, delayed: bool) -> None:
    """Compare the sum of shifted parts with NumPy's; if `delayed`, it goes into the array itself."""
    base = RNG.random(shape).astype(dtype)
    parts = [base[inside(shape, s)] for s in shifts]
    leaves = [leaf(i, Meta(p.shape, p.dtype)) for i, p in enumerate(parts)]
    want, root = parts[0], leaves[0]
    for part, hop in zip(parts[1:], leaves[1:], strict=True):
        want, root = want + part, apply("add", root, hop)
    around = base.copy()
    out = base[inside(shape, (0,) * len(shape))] if delayed else np.empty_like(want)
    at = out.ctypes.data
    apart = max(abs(p.ctypes.data - at) for p in parts) if delayed else 0
    kernel = kernel_of([root])
    form = Form("cell", len(shape), "c" * (len(parts) + 1))
    executable = BACKEND.compile(kernel, form, Schedule(delayed=delayed))
    walk = Geometry(out.shape, tuple(a.strides for a in (*parts, out)), apart)
    drive(executable.template(walk), *[parts[h.attr("slot")] for h in kernel.inputs], out, chunk=1)
    np.testing.assert_array_equal(out, want if not delayed else kept(around, shifts))
    if delayed:
        around[inside(shape, (0,) * len(shape))] = out
        np.testing.assert_array_equal(base, around)


def kept(base: np.ndarray, shifts: Sequence[Sequence[int]]) -> np.ndarray:
    """Return the sum of the shifted parts of `base`."""
    total = base[inside(base.shape, shifts[0])]
    for shift in shifts[1:]:
        total = total + base[inside(base.shape, shift)]
    return total


@pytest.fixture(autouse=True)
def shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Share kernels among threads that are too short for it."""
    monkeypatch.setattr(BACKEND, "serial_ns", 0)


@pytest.mark.parametrize("delayed", [False, True])
@pytest.mark.parametrize("shifts", [CROSS, SLANT, ALONG])
@pytest.mark.parametrize("dtype", ["f8", "f4", "i2", "c16"])
def test_two_dimensions(dtype: str, shifts: Sequence[Sequence[int]], delayed: bool) -> None:
    for n in (3, 4, 5, 7, 20, 33, 100):
        for m in (3, 4, 5, 6, 9, 10, 18, 67):
            run((n, m), shifts, dtype, delayed)


@pytest.mark.parametrize("delayed", [False, True])
def test_three_dimensions(delayed: bool) -> None:
    for n in (3, 5, 12, 60):
        for m in (3, 7, 12):
            run((n, 9, m), ((-1, 0, 0), (1, 1, 1), (0, -1, 0)), "f8", delayed)


@pytest.mark.parametrize("n", [3, 10, 4097, 4098, 4099, 100_000])
def test_one_dimension(n: int) -> None:
    run((n,), ((-1,), (1,)), "f8", delayed=True)


def test_wide_rows() -> None:
    for delayed in (False, True):
        run((6, 20_001), CROSS, "f8", delayed)


@pytest.mark.parametrize(("inner", "wanted"), [(1000, 8), (40_000, 8), (200_000, 5), (1_000_000, 1)])
def test_what_waits_in_all_bands_is_bounded(inner: int, wanted: int) -> None:
    shape, strides = (400, inner), (8 * inner, 8)
    leaves = [leaf(i, Meta(shape, np.dtype("f8"))) for i in range(2)]
    kernel = kernel_of([apply("add", *leaves)])
    executable = BACKEND.compile(kernel, Form("cell", 2, "ccc"), Schedule(delayed=True))
    geometry = Geometry(shape, (strides,) * 3, 8 * inner)
    block = executable.template(geometry)
    words = struct.unpack_from("6q", block)
    bands, scratch = words[2], words[5]
    assert bands == wanted
    assert scratch <= LATE_BYTES or bands == 1
    assert executable.scratch(geometry) == scratch
