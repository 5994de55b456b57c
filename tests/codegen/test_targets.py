"""The same bits on every level of the processor family; code for others is at least emitted."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from jitla.codegen import LlvmBackend, Target, host_target
from jitla.fusion import Form, Schedule
from jitla.hops import Meta, apply, leaf, make
from tests.codegen.driver import drive, kernel_of, run_cells
from tests.codegen.test_reduce import agg, run, values
from tests.codegen.test_scalar import samples

HOST = host_target()
V2 = Target(HOST.triple, "x86-64-v2", frozenset(), 16)
V3 = Target(HOST.triple, "x86-64-v3", frozenset({"avx2", "fma"}), 32)
V4 = Target(HOST.triple, "x86-64-v4", frozenset({"avx2", "fma", "avx512f"}), 64)
RUNS = [t for t in (V2, V3, V4) if t.features <= HOST.features]

pytestmark = pytest.mark.skipif("x86_64" not in HOST.triple, reason="levels of x86-64")


@pytest.fixture(params=RUNS, ids=lambda t: t.cpu)
def backend(request: pytest.FixtureRequest) -> LlvmBackend:
    return LlvmBackend(launch=drive, threads=1, target=request.param)


@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_cells_give_numpys_bits(backend: LlvmBackend, dtype: str) -> None:
    pool = samples(np.dtype(dtype), np.random.default_rng(1))
    x, y = (np.ascontiguousarray(g.ravel()) for g in np.meshgrid(pool, pool))
    a, b = (leaf(i, Meta(x.shape, x.dtype)) for i in range(2))
    names = ["remainder", "floor_divide", "fmod", "copysign", "divide"]
    roots = [apply(n, a, b) for n in names] + [apply(n, a) for n in ("rint", "floor", "trunc")]
    roots.append(make("cast", (a,), dtype=np.dtype("i8")))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = [getattr(np, n)(x, y) for n in names] + [np.rint(x), np.floor(x), np.trunc(x)]
        want.append(x.astype("i8"))
    got = [np.empty_like(w) for w in want]
    run_cells(roots, [x, y], got, backend=backend)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_array_equal(g, w)


@pytest.mark.parametrize("mode", ["full", "rows", "cols"])
@pytest.mark.parametrize("dtype", ["f8", "f4", "c16", "c8"])
def test_sums_give_numpys_bits(backend: LlvmBackend, dtype: str, mode: str) -> None:
    x = values(dtype, (37, 1001), np.random.default_rng(2))
    root = agg("sum", leaf(0, Meta(x.shape, x.dtype)), mode)
    (got,) = run([root], [x], mode, backend=backend)
    want = x.sum({"full": None, "rows": 1, "cols": 0}[mode])
    assert got.tobytes() == np.asarray(want).tobytes()


@pytest.mark.parametrize("dtype", ["c16", "c8"])
def test_complex_products_have_numpys_bits_on_every_level(dtype: str) -> None:
    """NumPy's loops for this processor round once or twice, whatever the code is for."""
    x, y = (values(dtype, (1001,), np.random.default_rng(n)) for n in (3, 4))
    a, b = (leaf(i, Meta(x.shape, x.dtype)) for i in range(2))
    roots = [apply("multiply", a, b), apply("divide", a, b), apply("absolute", a)]
    for target in RUNS:
        got = [np.empty_like(x), np.empty_like(x), np.empty_like(x.real)]
        run_cells(roots, [x, y], got, backend=LlvmBackend(launch=drive, threads=1, target=target))
        assert got[0].tobytes() == (x * y).tobytes()
        assert got[1].tobytes() == (x / y).tobytes()
        assert (np.abs(got[2] - abs(x)) <= 2 * np.spacing(abs(x))).all()


@pytest.mark.parametrize("fused", [False, True])
def test_complex_products_are_rounded_as_often_as_numpy_does(
    fused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jitla.codegen.module.fuses", lambda: fused)
    x, y = (values("c16", (1001,), np.random.default_rng(n)) for n in (3, 4))
    a, b = (leaf(i, Meta(x.shape, x.dtype)) for i in range(2))
    apart = np.empty_like(x)
    apart.real = x.real * y.real - x.imag * y.imag
    apart.imag = x.real * y.imag + x.imag * y.real
    for target in RUNS:
        got = np.empty_like(x)
        run_cells([apply("multiply", a, b)], [x, y], [got],
                  backend=LlvmBackend(launch=drive, threads=1, target=target))
        assert (got.tobytes() == apart.tobytes()) is not fused


def test_transcendentals_have_the_same_bits_on_every_level() -> None:
    x = np.random.default_rng(3).standard_normal(1000) * 20
    a = leaf(0, Meta(x.shape, x.dtype))
    roots = [apply(n, a) for n in ("exp", "tanh", "expm1")]
    found = set()
    for target in RUNS:
        outs = [np.empty_like(x) for _ in roots]
        run_cells(roots, [x], outs, backend=LlvmBackend(launch=drive, threads=1, target=target))
        found.add(b"".join(o.tobytes() for o in outs))
    assert len(found) == 1


@pytest.mark.parametrize("schedule", [Schedule(), Schedule(nontemporal=True)], ids=str)
def test_code_for_wider_vectors_is_emitted(schedule: Schedule) -> None:
    backend = LlvmBackend(launch=drive, threads=1, target=V4)
    z = leaf(0, Meta((9,), np.dtype("c16")))
    pairs = backend.compile(kernel_of([apply("divide", z, z)]), Form("cell", 1, "sc"), schedule)
    assert "<16 x double>" in pairs.text and len(pairs.object) > 500
    x = leaf(0, Meta((9,), np.dtype("f8")))
    kernel = kernel_of([apply("exp", apply("multiply", x, x))])
    executable = backend.compile(kernel, Form("cell", 1, "cc"), schedule)
    assert "<32 x double>" in executable.text and len(executable.object) > 500
