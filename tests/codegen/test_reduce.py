"""Aggregates and totals have NumPy's bits; `python -m tests.codegen.test_reduce` is a long search."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from jitla.codegen import LlvmBackend
from jitla.codegen.kernels import reduce_axis as turns
from jitla.codegen.kernels.row import OWN
from jitla.fusion import Form, Geometry, Layout, Schedule, all_layouts, geometry
from jitla.hops import Hop, Meta, apply, leaf, make
from tests.codegen.driver import BACKEND, drive, kernel_of, letter

# Aggregates have NumPy's bits for any shape, dtype and axis; as a script: a long search.

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


# Totals of values with broadcast and strided operands have NumPy's bits; as a script: a long search.

ROWS = ["flat", "row", "column", "padded", "strided", "flipped", "turned", "scalar"]
WIDTHS = [1, 2, 3, 7, 8, 9, 15, 16, 17, 100, 127, 128, 129, 511, 512, 513, 1000]
TOTALS = {"f8": ["sum", "sum", "min", "max"], "f4": ["sum", "sum", "min", "max"],
          "c16": ["sum"], "c8": ["sum"], "i8": ["sum", "prod", "min"],
          "u2": ["min", "max"], "?": ["any", "all"]}
# NumPy's fused products of complex64 do not take negative strides; its plain ones round differently.
COMBINE = {"c8": ["add", "subtract"], "?": ["logical_and", "not_equal"], "u2": ["add", "maximum"]}


def operand(kind: str, dtype: str, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
    """Return an array (or scalar) that broadcasts to `shape` and lies in memory as `kind` says."""
    width = shape[-1]
    match kind:
        case "row":
            return values(dtype, (width,), rng)
        case "column":
            return values(dtype, (*shape[:-1], 1), rng)
        case "padded":
            return values(dtype, (*shape[:-1], width + 3), rng)[..., :width]
        case "strided":
            return values(dtype, (2 * shape[0], *shape[1:-1], 2 * width), rng)[::2, ..., ::2]
        case "flipped":
            return values(dtype, shape, rng)[..., ::-1]
        case "turned":
            return values(dtype, shape[::-1], rng).T
        case "scalar":
            return values(dtype, (1,), rng)[0]
    return values(dtype, shape, rng)


def leaves_of(arrays: list[Any]) -> list[Hop]:
    """Return the leaves that stand for `arrays`."""
    return [leaf(i, Meta(np.shape(a), a.dtype), "array" if np.shape(a) else "scalar")
            for i, a in enumerate(arrays)]


def total(name: str, x: Hop) -> Hop:
    """Reduce `x` over everything."""
    return make(name, (x,), axis=tuple(range(len(x.meta.shape))), keepdims=False)


def run_with_form(
    roots: list[Hop], arrays: list[Any], chunk: int = 0, backend: LlvmBackend = BACKEND,
    schedule: Schedule = Schedule(),
) -> tuple[Form, list[np.ndarray]]:
    """Return the layout variant of one kernel for `roots`, and what it computes."""
    kernel = kernel_of(roots)
    known = {i: Layout(a.shape, a.strides) for i, a in enumerate(arrays) if np.shape(a)}
    layouts = all_layouts(roots, known)
    found = geometry(kernel, kernel.shape, layouts)
    assert found is not None
    form, walk = found
    outs = []
    for root in roots:
        shape, strides = layouts[root]
        size = root.meta.dtype.itemsize
        place = np.empty(int(np.prod(shape)) * size + 1, np.uint8)[1:]  # aligned to nothing
        outs.append(np.ndarray(shape, root.meta.dtype, place, strides=strides))
    given = [arrays[h.attr("slot")] for h in kernel.inputs if h.op.name == "leaf"]
    executable = backend.compile(kernel, form, schedule)  # owns the code
    drive(executable.template(walk), *given, *(o.reshape(1) if not o.shape else o for o in outs), chunk=chunk)
    return form, outs


def compare(
    dtype: str, shape: tuple[int, ...], kinds: list[str], name: str, cell: bool, chunk: int,
    rng: np.random.Generator,
) -> bool:
    """Tell whether a total (and, if `cell`, the value itself) is NumPy's."""
    arrays = [operand(kind, dtype, shape, rng) for kind in kinds]
    names = [str(rng.choice(COMBINE.get(dtype, ["add", "multiply"]))) for _ in arrays[1:]]
    hops = leaves_of(arrays)
    hop, want = hops[0], arrays[0]
    for op, h, a in zip(names, hops[1:], arrays[1:], strict=True):
        hop, want = apply(op, hop, h), getattr(np, op)(want, a)
    if hop.meta.shape != shape:
        return True
    roots = [total(name, hop), *([hop] if cell else [])]
    _, got = run_with_form(roots, arrays, chunk)
    same = got[0].tobytes() == np.asarray(getattr(np, name)(want)).tobytes()
    return same and (not cell or got[1].tobytes() == want.tobytes())


def search_broadcast_totals(count: int, seed: int) -> int:
    """Compare `count` random totals with NumPy and return how many differ."""
    rng = np.random.default_rng(seed)
    wrong = 0
    for _ in range(count):
        dtype = str(rng.choice(list(TOTALS)))
        width = int(rng.choice(WIDTHS)) if rng.random() < 0.8 else int(rng.integers(1, 3000))
        rows = int(10 ** rng.uniform(0, 4)) if width < 20 else int(10 ** rng.uniform(0, 2.3))
        shape = (rows, width) if rng.random() < 0.8 else (int(rng.integers(1, 5)), rows, width)
        kinds = [str(k) for k in rng.choice(ROWS, int(rng.integers(2, 5)))]
        name = str(rng.choice(TOTALS[dtype]))
        cell, chunk = bool(rng.random() < 0.3), int(rng.integers(0, 3))
        if not compare(dtype, shape, kinds, name, cell, chunk, rng):
            wrong += 1
            sys.stderr.write(f"{name} {dtype} {shape} {kinds} {cell} {chunk}\n")
    return wrong


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.filterwarnings("ignore:overflow")
def test_totals_bits_are_numpys(seed: int) -> None:
    assert search_broadcast_totals(60, seed) == 0


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("kind", ["row", "column", "padded", "strided"])
def test_every_width_of_a_row(kind: str, dtype: str) -> None:
    rng = np.random.default_rng(3)
    for width in WIDTHS:
        for rows in (1, 2, 5, 67):
            assert compare(dtype, (rows, width), ["flat", kind], "sum", False, 1, rng), (width, rows)


@pytest.mark.parametrize("kinds, form", [
    (["flat", "row"], Form("full", 2, "frb")),
    (["padded", "column"], Form("full", 2, "cbb")),
    (["turned", "flat", "scalar"], Form("full", 2, "sfb")),
    (["flat", "flat"], Form("full", 1, "ccb")),
])
def test_form_of_a_total(kinds: list[str], form: Form) -> None:
    rng = np.random.default_rng(4)
    arrays = [operand(kind, "f8", (30, 40), rng) for kind in kinds]
    hops = leaves_of(arrays)
    hop = apply("add", hops[0], hops[1])
    for other in hops[2:]:
        hop = apply("add", hop, other)
    found, _ = run_with_form([total("sum", hop)], arrays)
    assert found == form


def test_neighbouring_dimensions_are_joined() -> None:
    rng = np.random.default_rng(5)
    x, y = values("f8", (5, 6, 7), rng), values("f8", (6, 7), rng)
    a, b = leaves_of([x, y])
    found, (got,) = run_with_form([total("sum", apply("multiply", a, b))], [x, y])
    assert found == Form("full", 2, "frb")
    assert got.tobytes() == (x * y).sum().tobytes()
    z = values("f8", (1, 6, 1), rng)
    a, c = leaves_of([x, z])
    found, (got,) = run_with_form([total("sum", apply("multiply", a, c))], [x, z])
    assert found == Form("full", 3, "fbb")
    assert got.tobytes() == (x * z).sum().tobytes()


def test_nothing_is_read_behind_the_operands() -> None:
    """Rows in front of memory that cannot be read."""
    import ctypes
    import mmap

    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 2 * page)
    raw = np.frombuffer(memory, np.uint8)
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mprotect"):
        pytest.skip("no page protection")
    for dtype in ("f8", "f4", "i8", "u2"):
        for width in (3, 7, 9, 100):
            size = np.dtype(dtype).itemsize
            row = np.ndarray((width,), dtype, raw, page - width * size)
            thin = np.ndarray((1, 1), dtype, raw, page - size)
            row[:] = 3
            x = np.ones((40, width), dtype)
            for other in (row, np.broadcast_to(thin, (40, 1))):
                a, b = leaves_of([x, other])
                root = total("max", apply("add", a, b))
                libc.mprotect(ctypes.c_void_p(raw.ctypes.data + page), page, 0)
                try:
                    _, (got,) = run_with_form([root], [x, other])
                finally:
                    libc.mprotect(ctypes.c_void_p(raw.ctypes.data + page), page, 3)
                assert got == 4


# Sums down columns to which threads add rows in a fixed order

RNG = np.random.default_rng(11)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "BLOCKS", 3)
    monkeypatch.setattr(turns, "BLOCK_BYTES", 1 << 14)


def summed(x: Hop, name: str = "sum") -> Hop:
    return make(name, (x,), axis=(0,), keepdims=False)


def run_ordered(roots: list[Hop], arrays: list, threads: int) -> tuple[list[np.ndarray], bool]:
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


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "c16"])
@pytest.mark.parametrize("shape", [(6000, 17), (3001, 100), (700, 300), (5000, 50)], ids=str)
def test_sums_in_turn(shape: tuple[int, int], dtype: str, threads: int) -> None:
    x = (RNG.standard_normal(shape) * 10.0 ** RNG.integers(-3, 4, shape)).astype(dtype)
    a = leaf(0, Meta(shape, x.dtype))
    (found, *_), turned = run_ordered([summed(a)], [x], threads)
    assert turned == (threads > 1)
    np.testing.assert_array_equal(found, x.sum(axis=0))


@pytest.mark.usefixtures("small")
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
        found, turned = run_ordered(roots, arrays, threads)
        assert turned
        for f, want in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(f, want)


@pytest.mark.usefixtures("small")
def test_columns_are_shared_out_where_turns_do_not_pay() -> None:
    for shape, dtype in (((900, 101), "f8"), ((60_000, 3), "f8"), ((6000, 2000), "f4"), ((60_000, 90), "i1")):
        x = (RNG.standard_normal(shape) * 50).astype(dtype)
        a = leaf(0, Meta(shape, x.dtype))
        root = summed(apply("negative", a), "max")
        (found, *_), turned = run_ordered([root], [x], 2)
        assert not turned or shape[0] == 900
        np.testing.assert_array_equal(found, (-x).max(0))
    x = RNG.standard_normal((6000, 50))
    found, turned = run_ordered([summed(apply("exp", leaf(0, Meta(x.shape, x.dtype))))], [x], 2)
    assert not turned
    np.testing.assert_allclose(found[0], np.exp(x).sum(0), rtol=1e-14)


if __name__ == "__main__":
    COUNT = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    sys.exit(search(COUNT, seed=11) + search_broadcast_totals(COUNT, seed=11) > 0)
