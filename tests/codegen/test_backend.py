"""What the LLVM backend accepts, how it cuts kernels into units, and code for other processor levels."""

from __future__ import annotations

import struct
import warnings

import numpy as np
import pytest

from jitla.codegen import LlvmBackend, Target, host_target
from jitla.fusion import Form, Geometry, Kernel, Schedule
from jitla.hops import Meta, apply, leaf, make
from tests.codegen.driver import BACKEND, drive, kernel_of, run_cells
from tests.codegen.test_elementwise import samples
from tests.codegen.test_reduce import agg, run, values

# What the backend accepts, how it cuts kernels into units, and that code depends on no size.

ONE = Schedule()


def words(template: bytes) -> tuple[int, ...]:
    """Return the block's words."""
    return struct.unpack(f"<{len(template) // 8}q", template)


def square_plus(n: int, slots: tuple[int, int] = (0, 1)) -> Kernel:
    """Return the kernel of ``x * x + y`` over `n` elements."""
    x, y = (leaf(s, Meta((n,), np.dtype("f8"))) for s in slots)
    return kernel_of([apply("add", apply("multiply", x, x), y)])


def test_supports_says_why_not() -> None:
    def reason(name: str, source: str, **attrs: object) -> str | None:
        x = leaf(0, Meta((4,), np.dtype(source)))
        return BACKEND.supports(make(name, (x,), **attrs))

    assert reason("negative", "f8") is None
    assert reason("exp", "f8") is None
    assert "float16" in str(reason("negative", "f2"))
    assert "no kernels" in str(reason("negative", "g"))
    assert reason("negative", "c16") is None
    assert "no recipe" in str(reason("exp", "c8"))
    assert "no recipe" in str(reason("cast", "c16", dtype=np.dtype("f8")))
    assert reason("sum", "c8", axis=(0,), keepdims=False) is None
    assert "first of several NaNs" in str(reason("max", "c16", axis=(0,), keepdims=False))
    assert "one after the other" in str(reason("prod", "c8", axis=(0,), keepdims=False))
    assert "byte-swapped" in str(reason("cast", ">f8", dtype=np.dtype("f8")))
    assert "uint32" in str(reason("cast", "f8", dtype=np.dtype("u4")))
    assert "spacing" in str(reason("spacing", "f8"))
    assert reason("sum", "f8", axis=(0,), keepdims=False) is None
    assert reason("prod", "i8", axis=(0,), keepdims=False) is None
    assert "one after the other" in str(reason("prod", "f8", axis=(0,), keepdims=False))


def test_code_depends_on_neither_sizes_nor_leaves() -> None:
    form = Form("cell", 1, "ccc")
    a = BACKEND.compile(square_plus(100), form, ONE)
    b = BACKEND.compile(square_plus(7777, (3, 9)), form, ONE)
    assert a.text == b.text and a.object is b.object


def test_block_words() -> None:
    backend = LlvmBackend(launch=drive, threads=2)
    executable = backend.compile(square_plus(100), Form("cell", 1, "ccc"), ONE)
    small = words(executable.template(Geometry((100,), ((8,),) * 3)))
    assert small[1] == len(small) and small[2:6] == (1, 1, 0, 0) and small[7] % 2**32 == 3
    assert small[8:14] == (0,) * 6
    large = words(executable.template(Geometry((10_000_000,), ((8,),) * 3)))
    assert large[2] > 1000 and 6 <= -(-large[2] // large[3]) <= 8


def test_scalars_are_marked() -> None:
    x, y = leaf(0, Meta((9,), np.dtype("f4"))), leaf(1, Meta((), np.dtype("f4")), "scalar")
    kernel = kernel_of([apply("multiply", x, y)])
    executable = BACKEND.compile(kernel, Form("cell", 1, "cc"), ONE)
    block = words(executable.template(Geometry((9,), ((4,), (4,)))))
    kinds = block[8 + 3 : 8 + 6]
    scalar_at = [h.meta.shape for h in kernel.inputs].index(())
    assert sorted(kinds) == [0, 0, 1] and kinds[scalar_at] == 1


@pytest.mark.parametrize("n", [0, 5, 100_000, 5_000_000])
def test_units_of_a_sum_depend_on_its_size_only(n: int) -> None:
    x = leaf(0, Meta((n,), np.dtype("f8")))
    kernel = kernel_of([make("sum", (x,), axis=(0,), keepdims=False)])
    blocks = []
    for threads in (1, 2, 7):
        backend = LlvmBackend(launch=drive, threads=threads)
        executable = backend.compile(kernel, Form("full", 1, "cb"), ONE)
        blocks.append(words(executable.template(Geometry((n,), ((8,), (0,))))))
        assert blocks[-1][4] != 0
    assert len({(b[2], b[5], b[12:]) for b in blocks}) == 1


def test_schedule_caps_the_threads() -> None:
    backend = LlvmBackend(launch=drive, threads=2)
    executable = backend.compile(square_plus(8), Form("cell", 1, "ccc"), Schedule(threads=1))
    block = words(executable.template(Geometry((10_000_000,), ((8,),) * 3)))
    assert block[3] == block[2]


def test_native_launch_runs_kernels_on_all_threads() -> None:
    backend = LlvmBackend()
    rng = np.random.default_rng(8)
    for n in (10, 3_000_000):
        x, y, out = rng.standard_normal(n), rng.standard_normal(n), np.empty(n)
        kernel = square_plus(n)
        executable = backend.compile(kernel, Form("cell", 1, "ccc"), ONE)
        operands = [(x, y)[h.attr("slot")] for h in kernel.inputs]
        backend.launch(executable.template(Geometry((n,), ((8,),) * 3)), *operands, out)
        assert (out == x * x + y).all()
        leaf_x = leaf(0, Meta((n,), x.dtype))
        kernel = kernel_of([make("sum", (leaf_x,), axis=(0,), keepdims=False)])
        total = np.empty(1)
        executable = backend.compile(kernel, Form("full", 1, "cb"), ONE)
        backend.launch(executable.template(Geometry((n,), ((8,), (0,)))), x, total)
        assert total[0] == x.sum()


# Levels of the processor family: the same bits on each; code for others is at least emitted.

HOST = host_target()
V2 = Target(HOST.triple, "x86-64-v2", frozenset(), 16)
V3 = Target(HOST.triple, "x86-64-v3", frozenset({"avx2", "fma"}), 32)
V4 = Target(HOST.triple, "x86-64-v4", frozenset({"avx2", "fma", "avx512f"}), 64)
RUNS = [t for t in (V2, V3, V4) if t.features <= HOST.features]


@pytest.fixture(params=RUNS, ids=lambda t: t.cpu)
def backend(request: pytest.FixtureRequest) -> LlvmBackend:
    return LlvmBackend(launch=drive, threads=1, target=request.param)


@pytest.mark.skipif("x86_64" not in HOST.triple, reason="levels of x86-64")
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


@pytest.mark.skipif("x86_64" not in HOST.triple, reason="levels of x86-64")
@pytest.mark.parametrize("mode", ["full", "rows", "cols"])
@pytest.mark.parametrize("dtype", ["f8", "f4", "c16", "c8"])
def test_sums_give_numpys_bits(backend: LlvmBackend, dtype: str, mode: str) -> None:
    x = values(dtype, (37, 1001), np.random.default_rng(2))
    root = agg("sum", leaf(0, Meta(x.shape, x.dtype)), mode)
    (got,) = run([root], [x], mode, backend=backend)
    want = x.sum({"full": None, "rows": 1, "cols": 0}[mode])
    assert got.tobytes() == np.asarray(want).tobytes()


@pytest.mark.skipif("x86_64" not in HOST.triple, reason="levels of x86-64")
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


@pytest.mark.skipif("x86_64" not in HOST.triple, reason="levels of x86-64")
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


@pytest.mark.skipif("x86_64" not in HOST.triple, reason="levels of x86-64")
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


@pytest.mark.skipif("x86_64" not in HOST.triple, reason="levels of x86-64")
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
