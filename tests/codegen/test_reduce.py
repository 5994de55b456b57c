"""Aggregates have NumPy's bits for any shape, dtype and axis; as a script: a long search."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from jitla.codegen import LlvmBackend
from jitla.fusion import Form, Geometry, Schedule
from jitla.hops import Hop, Meta, apply, leaf, make
from tests.codegen.driver import BACKEND, drive, kernel_of, letter

DTYPES = ["f8", "f4", "i8", "u8", "i4", "u2", "?", "c16", "c8"]


def agg(name: str, x: Hop, mode: str) -> Hop:
    """Reduce `x` over everything, the last or the first axis."""
    rank = len(x.meta.shape)
    axis = {"full": tuple(range(rank)), "rows": (rank - 1,), "cols": (0,)}[mode]
    return make(name, (x,), axis=axis, keepdims=False)


def run(
    roots: list[Hop], arrays: list, mode: str, chunk: int = 0, backend: LlvmBackend = BACKEND
) -> list[np.ndarray]:
    """Return what one kernel computes for `roots` over `arrays`, by slot."""
    kernel = kernel_of(roots)
    shape = kernel.shape
    outs = [np.full(r.meta.shape, 99).astype(r.meta.dtype) for r in roots]
    operands = [arrays[h.attr("slot")] for h in kernel.inputs if h.op.name == "leaf"]
    views = [np.broadcast_to(a, shape) for a in operands if isinstance(a, np.ndarray)]
    strides, letters = [v.strides for v in views], "".join(map(letter, views))
    for root, out in zip(roots, outs, strict=True):
        whole = out.shape == shape
        tail = {"full": (0,) * len(shape), "rows": (*out.strides, 0), "cols": (0, *out.strides)}
        strides.append(out.strides if whole else tail[mode])
        letters += "c" if whole or mode == "cols" else "b"
    if mode == "full" and len(shape) > 1:
        strides = [s[-1:] for s in strides]
        shape = (int(np.prod(shape)),)
    executable = backend.compile(kernel, Form(mode, len(shape), letters), Schedule())
    template = executable.template(Geometry(shape, tuple(strides)))
    drive(template, *operands, *(np.atleast_1d(o) for o in outs), chunk=chunk)
    return outs


def values(dtype: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Return values whose sums show the order of the additions."""
    kind = np.dtype(dtype)
    if kind.kind == "c":
        return (values("f8", shape, rng) + 1j * values("f8", shape, rng)).astype(kind)
    if kind.kind == "f":
        return (rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 4, shape)).astype(kind)
    if kind.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    info = np.iinfo(kind)
    return rng.integers(info.min, info.max, shape, kind, endpoint=True)


def search(count: int, seed: int) -> int:
    """Compare `count` random reductions with NumPy and return how many differ."""
    rng = np.random.default_rng(seed)
    wrong = 0
    for _ in range(count):
        name = str(rng.choice(["sum", "sum", "sum", "min", "max", "prod", "any", "all"]))
        mode = str(rng.choice(["full", "rows", "cols"]))
        dtype = str(rng.choice(DTYPES))
        if name in ("sum", "prod") and dtype in ("i4", "u2", "?"):
            dtype = "i8"
        if name in ("any", "all"):
            dtype = "?"
        if name == "prod" and dtype in ("f8", "f4"):
            dtype = "u8"
        if np.dtype(dtype).kind == "c":
            name = "sum"
        least = int(name in ("min", "max"))
        x = values(dtype, _shape(mode, least, rng), rng)
        root = agg(name, leaf(0, Meta(x.shape, x.dtype)), mode)
        (got,) = run([root], [x], mode, chunk=int(rng.integers(0, 3)))
        want = getattr(np, name)(x, axis=root.attr("axis"))
        if got.tobytes() != np.asarray(want).tobytes():
            wrong += 1
            sys.stderr.write(f"{name} {mode} {dtype} {x.shape}\n")
    return wrong


def _shape(mode: str, least: int, rng: np.random.Generator) -> tuple[int, ...]:
    def size() -> int:
        return max(least, int(rng.integers(0, rng.choice([10, 140, 1500]))))

    if mode == "full":
        return (int(10 ** rng.uniform(0, 5.5)) - 1 + least,)
    shape = (size(), size()) if rng.random() < 0.7 else (size() % 30 + least, size() % 30, size())
    # A single column is one contiguous run: planned as "full".
    if mode == "cols":
        return (*shape[:-1], max(shape[-1], 2))
    return tuple(max(s, least) for s in shape)


@pytest.mark.parametrize("seed", range(4))
def test_bits_are_numpys(seed: int) -> None:
    assert search(150, seed) == 0


@pytest.mark.parametrize("n", [
    0, 1, 3, 4, 5, 7, 8, 9, 63, 64, 65, 68, 127, 128, 129, 136, 1023, 32_767, 32_768, 100_003,
])
@pytest.mark.parametrize("dtype", ["f8", "f4", "c16", "c8"])
def test_sum_around_the_splits(n: int, dtype: str) -> None:
    x = values(dtype, (n,), np.random.default_rng(n))
    (got,) = run([agg("sum", leaf(0, Meta((n,), x.dtype)), "full")], [x], "full", chunk=1)
    assert got.tobytes() == x.sum().tobytes()


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("n", [*range(129, 145), 255, 256, 257, *range(505, 530), 1000, 1031, 4099])
def test_leaves_side_by_side_are_leaves_one_by_one(n: int, dtype: str) -> None:
    x = values(dtype, (n,), np.random.default_rng(n))
    at = leaf(0, Meta(x.shape, x.dtype))
    for roots in ([agg("sum", at, "full")], [agg("sum", at, "full"), agg("max", at, "full")]):
        got = run(roots, [x], "full")
        assert got[0].tobytes() == x.sum().tobytes()
        assert len(roots) == 1 or got[1] == x.max()
    stored, total = run([make("negative", (at,)), agg("sum", make("negative", (at,)), "full")], [x], "full")
    assert stored.tobytes() == (-x).tobytes()
    assert total.tobytes() == (-x).sum().tobytes()


@pytest.mark.parametrize("dtype", ["f8", "c16", "c8"])
@pytest.mark.parametrize("mode", ["full", "rows", "cols"])
def test_negative_zeros_and_empty_runs(mode: str, dtype: str) -> None:
    for shape in [(3, 5), (0, 4), (4, 0), (9, 200)]:
        x = np.full(shape, complex(-0.0, -0.0) if dtype[0] == "c" else -0.0, dtype)
        (got,) = run([agg("sum", leaf(0, Meta(shape, x.dtype)), mode)], [x], mode)
        want = x.sum(axis={"full": None, "rows": 1, "cols": 0}[mode])
        assert got.tobytes() == np.asarray(want).tobytes(), (mode, shape)


@pytest.mark.parametrize("mode", ["full", "rows", "cols"])
@pytest.mark.parametrize("shape", [(3, 7), (50, 129), (260, 100), (2, 70_000)])
def test_complex_sums_beside_other_aggregates(shape: tuple[int, ...], mode: str) -> None:
    rng = np.random.default_rng(5)
    x, y = values("c16", shape, rng), values("c8", shape, rng)
    a, b = (leaf(i, Meta(shape, v.dtype)) for i, v in enumerate((x, y)))
    product = apply("multiply", a, b)
    above = apply("greater", product, a)
    roots = [
        agg("any", above, mode), agg("sum", product, mode), product, agg("sum", b, mode),
        agg("max", apply("imag", a), mode), above, apply("real", product),
    ]
    got = run(roots, [x, y], mode)
    axis = {"full": None, "rows": 1, "cols": 0}[mode]
    p = x * y
    want = [(p > x).any(axis), p.sum(axis), p, y.sum(axis), x.imag.max(axis), p > x, p.real]
    for g, w in zip(got, want, strict=True):
        assert g.tobytes() == np.asarray(w).tobytes()


@pytest.mark.parametrize("mode", ["full", "rows", "cols"])
@pytest.mark.parametrize("shape", [(3, 7), (50, 129), (260, 100), (2, 70_000)])
def test_several_aggregates_and_cells_in_one_pass(shape: tuple[int, ...], mode: str) -> None:
    rng = np.random.default_rng(5)
    x, y = values("f8", shape, rng), values("f8", shape, rng)
    a, b = (leaf(i, Meta(shape, x.dtype)) for i in range(2))
    product = apply("multiply", a, b)
    above = apply("greater", product, a)
    roots = [
        agg("sum", product, mode), product, agg("max", a, mode), agg("any", above, mode),
        agg("sum", make("cast", (above,), dtype=np.dtype(np.int64)), mode), above,
    ]
    got = run(roots, [x, y], mode)
    axis = {"full": None, "rows": 1, "cols": 0}[mode]
    p = x * y
    want = [p.sum(axis), p, x.max(axis), (p > x).any(axis), (p > x).sum(axis), p > x]
    for g, w in zip(got, want, strict=True):
        assert g.tobytes() == np.asarray(w).tobytes()


@pytest.mark.parametrize("mode", ["full", "rows", "cols"])
@pytest.mark.parametrize("name", ["min", "max"])
def test_nan_wins(name: str, mode: str) -> None:
    for at in (0, 5, 12, 40):
        x = values("f8", (3, 41), np.random.default_rng(6))
        x[1, at] = np.nan
        (got,) = run([agg(name, leaf(0, Meta(x.shape, x.dtype)), mode)], [x], mode)
        axis = {"full": None, "rows": 1, "cols": 0}[mode]
        np.testing.assert_array_equal(got, getattr(x, name)(axis))


@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_chunks_do_not_change_the_result(dtype: str) -> None:
    x = values(dtype, (300_000,), np.random.default_rng(7))
    root = agg("sum", leaf(0, Meta(x.shape, x.dtype)), "full")
    results = {run([root], [x], "full", chunk)[0].tobytes() for chunk in (0, 1, 2, 5)}
    assert results == {x.sum().tobytes()}


@pytest.mark.parametrize("mode", ["rows", "cols"])
@pytest.mark.parametrize("shape", [(3, 7), (50, 129), (4, 5, 300), (70, 2)])
def test_broadcast_strided_and_scalar_operands(shape: tuple[int, ...], mode: str) -> None:
    rng = np.random.default_rng(9)
    wide = values("f8", (*shape[:-1], 2 * shape[-1]), rng)[..., ::2]
    row, column = values("f8", shape[-1:], rng), values("f8", (*shape[:-1], 1), rng)
    arrays = [wide, row, column, np.float64(1.25)]
    leaves = [leaf(i, Meta(np.shape(a), np.dtype("f8")), "array" if np.shape(a) else "scalar")
              for i, a in enumerate(arrays)]
    x, r, c, s = leaves
    product = apply("multiply", apply("add", x, r), apply("multiply", c, s))
    got = run([agg("sum", product, mode), agg("min", product, mode)], arrays, mode)
    want = (wide + row) * (column * np.float64(1.25))
    axis = {"rows": -1, "cols": 0}[mode]
    for g, w in zip(got, (want.sum(axis), want.min(axis)), strict=True):
        assert g.tobytes() == w.tobytes()


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "c16"])
@pytest.mark.parametrize("mode", ["rows", "cols"])
def test_every_small_size(mode: str, dtype: str) -> None:
    """Whole vectors, what is over, several rows at once and the last ones of them."""
    rng = np.random.default_rng(12)
    for n in (2, 3, 4, 5, 7, 8, 9, 11, 15, 16, 17, 31, 33, 64, 65, 127, 128, 129, 1025):
        for height in (1, 2, 7, 8, 9, 17):
            x, y = values(dtype, (height, n), rng), values(dtype, (height, n), rng)
            a, b = (leaf(i, Meta(x.shape, x.dtype)) for i in range(2))
            (got,) = run([agg("sum", apply("add", a, b), mode)], [x, y], mode, chunk=2)
            assert got.tobytes() == (x + y).sum({"rows": 1, "cols": 0}[mode]).tobytes(), (height, n)


@pytest.mark.parametrize("n", [33, 100, 300, 2500])
def test_columns_are_shared_out(n: int) -> None:
    """With two threads, of which the units of a matrix are known."""
    backend = LlvmBackend(launch=drive, threads=2)
    x = values("f8", (900, n), np.random.default_rng(n))
    root = agg("sum", leaf(0, Meta(x.shape, x.dtype)), "cols")
    for chunk in (0, 1):
        (got,) = run([root], [x], "cols", chunk, backend)
        assert got.tobytes() == x.sum(0).tobytes()


@pytest.mark.parametrize("mode", ["full", "rows", "cols"])
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_transcendentals_under_aggregates(dtype: str, mode: str) -> None:
    x = abs(values(dtype, (9, 131), np.random.default_rng(10))) + 1
    a = leaf(0, Meta(x.shape, x.dtype))
    logs = apply("sin", apply("log", a))
    total, cells = run([agg("sum", logs, mode), logs], [x], mode)
    np.testing.assert_allclose(cells, np.sin(np.log(x)), rtol=1e-5, atol=1e-6)
    axis = {"full": None, "rows": 1, "cols": 0}[mode]
    assert total.tobytes() == np.asarray(cells.sum(axis)).tobytes()


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("mode", ["rows", "cols"])
def test_transcendentals_of_every_small_size(dtype: str, mode: str) -> None:
    """What is left behind whole vectors is added up element by element, whatever is read beside it."""
    rng = np.random.default_rng(13)
    axis = {"rows": 1, "cols": 0}[mode]
    for n in (2, 3, 4, 5, 6, 7, 8, 9, 10, 15, 16, 17, 21):
        x, z, b = (values(d, (5, n), rng) for d in (dtype, "c16", "?"))
        a, c, d = (leaf(i, Meta(v.shape, v.dtype)) for i, v in enumerate((x, z, b)))
        wave = apply("sin", a)
        some = apply("multiply", apply("multiply", wave, c), d)
        above = apply("greater", wave, apply("real", c))
        roots = [agg("sum", some, mode), agg("any", above, mode), agg("max", wave, mode), wave, some]
        total, found, most, waves, cells = run(roots, [x, z, b], mode)
        np.testing.assert_allclose(waves, np.sin(x), rtol=1e-5, atol=1e-6)
        assert cells.tobytes() == (waves * z * b).tobytes(), n
        assert total.tobytes() == cells.sum(axis).tobytes(), n
        assert found.tobytes() == (waves > z.real).any(axis).tobytes(), n
        assert most.tobytes() == waves.max(axis).tobytes(), n


if __name__ == "__main__":
    sys.exit(search(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000, seed=11) > 0)


FUNCTIONS = {"fmod": "f", "remainder": "fiu", "floor_divide": "fiu", "expm1": "f", "tan": "f", "cast": "f"}


@pytest.mark.parametrize("mode", ["rows", "cols"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_in_aggregates_of_few_columns(name: str, mode: str) -> None:
    """Lines shorter than the machine's vectors use narrower ones, functions do not."""
    rng = np.random.default_rng(5)
    for dtype in (d for d in ("f8", "f4", "i8", "u8", "i4") if d[0] in FUNCTIONS[name]):
        for shape in ((9, 1), (9, 2), (9, 4), (40, 3), (40, 5), (40, 8), (9, 12)):
            x, y = (rng.uniform(1, 50, shape).astype(dtype) for _ in range(2))
            a, b = (leaf(i, Meta(shape, np.dtype(dtype)), "array") for i in range(2))
            if name == "cast":
                some, wanted = make("cast", (a,), dtype=np.dtype("i8")), x.astype("i8")
            else:
                count = getattr(np, name).nin
                some, wanted = apply(name, *(a, b)[:count]), getattr(np, name)(*(x, y)[:count])
            root = make("cast", (some,), dtype=np.dtype("f8"))
            root = apply("add", root, apply("sin", root))
            (out,) = run([agg("max", root, mode)], [x, y], mode)
            wanted = wanted.astype("f8")
            wanted = (wanted + np.sin(wanted)).max(-1 if mode == "rows" else 0)
            np.testing.assert_allclose(out, wanted, rtol=1e-4)
