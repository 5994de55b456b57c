"""Cell kernels: layouts, strips of long bodies, delayed stores, tiles, rows taken crosswise."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import jitla
from jitla.codegen import LlvmBackend
from jitla.codegen.kernel_abi import lay_out
from jitla.codegen.kernels import body as strips
from jitla.codegen.kernels.cell import LATE_BYTES
from jitla.codegen.kernels.cell_layouts import is_crosswise
from jitla.fusion import Form, Geometry, Schedule, crosswise_limit
from jitla.hops import Hop, Meta, all_ops, apply, const, leaf, make
from jitla.recompile.schedule_choices import has_short_rows
from tests.codegen.driver import BACKEND, drive, kernel_of, run_cells
from tests.codegen.test_reduce import leaves_of, operand
from tests.codegen.test_reduce import run_with_form as run

# Every layout: ranks, strides, broadcasts, tails, in place, past the cache.

RNG = np.random.default_rng(3)
PLAIN = Schedule()
SCHEDULES = [PLAIN, Schedule(unroll=2), Schedule(nontemporal=True)]


def cell_leaves(arrays: list[object]) -> list[Hop]:
    """Return one leaf per array or NumPy scalar."""
    found = []
    for i, x in enumerate(arrays):
        dtype = np.asarray(x).dtype
        shape = x.shape if isinstance(x, np.ndarray) else ()
        found.append(leaf(i, Meta(shape, dtype), "array" if shape else "scalar"))
    return found


def ramp(*shape: int, dtype: str = "f8") -> np.ndarray:
    """Return random values of a shape."""
    if np.dtype(dtype).kind == "c":
        return (RNG.standard_normal(shape) + 1j * RNG.standard_normal(shape)).astype(dtype)
    return (RNG.standard_normal(shape) * 10).astype(dtype)


def check(arrays: list[object], schedule: Schedule = PLAIN, chunk: int = 0) -> None:
    """Compare ``a * b - c`` and ``a * b < c`` with NumPy."""
    a, b, c = arrays
    x, y, z = cell_leaves(arrays)
    product = apply("multiply", x, y)
    roots = [apply("subtract", product, z), apply("less", product, z)]
    want = [a * b - c, a * b < c]
    got = [np.empty_like(w) for w in want]
    run_cells(roots, arrays, got, schedule, chunk)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_array_equal(g, w)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize("dtype", ["f8", "f4", "i4", "i1", "c16", "c8"])
@pytest.mark.parametrize("n", [0, 1, 3, 8, 31, 64, 257, 8191, 8192, 8193, 20_000])
def test_one_dimension(n: int, dtype: str, schedule: Schedule) -> None:
    check([ramp(n, dtype=dtype) for _ in range(3)], schedule)
    check([ramp(n, dtype=dtype) for _ in range(3)], schedule, chunk=1)


@pytest.mark.parametrize("dtype", ["f8", "c16", "c8"])
@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize(
    "shape", [(1, 1), (7, 9), (3, 0), (0, 3), (5, 8200), (4, 3, 17), (2, 3, 4, 5)], ids=str)
def test_outer_dimensions_and_broadcasts(
    shape: tuple[int, ...], schedule: Schedule, dtype: str
) -> None:
    full = ramp(*shape, dtype=dtype)
    row = np.broadcast_to(ramp(shape[-1], dtype=dtype), shape)
    column = np.broadcast_to(ramp(*shape[:-1], 1, dtype=dtype), shape)
    check([full, row, column], schedule, chunk=2)
    check([column, full, np.dtype(dtype).type(0.25)], schedule)


@pytest.mark.parametrize("dtype", ["f8", "f4", "i1", "c16"])
@pytest.mark.parametrize("names", [["subtract"], ["subtract", "less", "multiply"], ["exp"]], ids=str)
@pytest.mark.parametrize("shape", [(300, 100), (41, 104), (700, 3), (9, 3001), (3, 50, 33)], ids=str)
def test_rows_past_the_cache(shape: tuple[int, ...], names: list[str], dtype: str) -> None:
    """Lines of memory that two rows share, of results that begin anywhere, and no byte around them."""
    if names == ["exp"] and dtype not in ("f8", "f4") or "less" in names and dtype == "c16":
        return
    x, row = ramp(*shape, dtype=dtype), ramp(shape[-1], dtype=dtype)
    a, b = cell_leaves([x, row])
    roots = [apply("exp", apply("subtract", a, b))] if names == ["exp"] else [apply(n, a, b) for n in names]
    plain = [np.empty(shape, r.meta.dtype) for r in roots]
    run_cells(roots, [x, row], plain)
    for shift, gap, chunk in ((0, 0, 0), (8, 0, 7), (40, 0, 0), (16, 5, 0), (16, 5, 3)):
        rooms = [np.full(shift + p.itemsize * (p.size // shape[-1]) * (shape[-1] + gap) + 64, 7, np.uint8)
                 for p in plain]
        outs = [r[shift:-64].view(p.dtype).reshape(*shape[:-1], shape[-1] + gap)[..., :shape[-1]]
                for r, p in zip(rooms, plain, strict=True)]
        run_cells(roots, [x, row], outs, Schedule(nontemporal=True), chunk)
        for out, want, room in zip(outs, plain, rooms, strict=True):
            np.testing.assert_array_equal(out, want)
            out.view(np.uint8)[...] = 7
            assert (room == 7).all()


def test_scalar_operands_of_every_kind() -> None:
    check([ramp(100), np.float64(1.5), np.float64(-2)])
    check([ramp(100, dtype="f4"), np.float32(1.5), ramp(100, dtype="f4")])
    check([ramp(100, dtype="i2"), np.int16(-3), np.int16(7)])
    check([ramp(100, dtype="c16"), np.complex128(1.5 - 2j), np.complex128(1j)])
    check([ramp(100, dtype="c8"), np.complex64(1.5 - 2j), ramp(100, dtype="c8")])
    x, y = ramp(100), np.True_
    got = np.empty(100)
    run_cells([apply("where", *cell_leaves([y, x, np.float64(1)]))], [y, x, np.float64(1)], [got])
    np.testing.assert_array_equal(got, x)


@pytest.mark.parametrize("dtype", ["f8", "c16", "c8"])
def test_strided_reversed_and_transposed_operands(dtype: str) -> None:
    wide = ramp(40, 60, dtype=dtype)
    turned = ramp(20, 40, dtype=dtype).T[:20][:, ::1][:, :20]
    check([wide[::2, ::3], wide[::-1, ::-1][:20, :20], turned])
    check([wide[:, ::-1], ramp(60, 40, dtype=dtype).T, wide])
    got = np.zeros((60, 40), dtype).T
    run_cells([apply("negative", *cell_leaves([wide]))], [wide], [got[:40, :60]])
    np.testing.assert_array_equal(got, -wide)
    comb = np.zeros((40, 180), dtype)
    run_cells([apply("negative", *cell_leaves([wide]))], [wide], [comb[:, ::3]])
    np.testing.assert_array_equal(comb[:, ::3], -wide)
    assert not comb[:, 1::3].any()


@pytest.mark.parametrize("dtype", ["f8", "f4", "i2", "u1", "?", "c16"])
@pytest.mark.parametrize("steps", [(2, 2), (2, 3), (-2, 2), (3, 1), (2, 1)])
def test_every_second_element(steps: tuple[int, int], dtype: str) -> None:
    for shape in ((5,), (64,), (1003,), (9000,), (3, 7), (4, 33), (6, 300)):
        parts = []
        for step in steps:
            inner = abs(step) * (shape[-1] - 1) + 1  # nothing lies behind the last element
            whole = (RNG.integers(0, 3, (*shape[:-1], inner)) * 1.5).astype(dtype)
            parts.append(whole[..., ::step])
        root = apply("logical_or" if dtype == "?" else "add", *cell_leaves(parts))
        want = parts[0] | parts[1] if dtype == "?" else parts[0] + parts[1]
        got = np.empty_like(want)
        run_cells([root], parts, [got])
        np.testing.assert_array_equal(got, want)


def test_outputs_stay_inside_their_memory() -> None:
    memory = np.full(300, 7.0)
    run_cells([apply("negative", *cell_leaves([ramp(101)]))], [ramp(101)], [memory[50:151]])
    assert (memory[:50] == 7).all() and (memory[151:] == 7).all()


@pytest.mark.parametrize("dtype", ["f8", "c16"])
@pytest.mark.parametrize("schedule", [PLAIN, Schedule(unroll=2)], ids=str)
@pytest.mark.parametrize("n", [5, 64, 10_001])
def test_in_place(n: int, schedule: Schedule, dtype: str) -> None:
    x, y = ramp(n, dtype=dtype), ramp(n, dtype=dtype)
    want = x * y
    run_cells([apply("multiply", *cell_leaves([x, y]))], [x, y], [x], schedule)
    np.testing.assert_array_equal(x, want)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize("shift", range(1, 9))
def test_unaligned_memory(shift: int, schedule: Schedule) -> None:
    def moved(n: int, by: int) -> np.ndarray:
        return np.empty(8 * n + by, np.uint8)[by:].view(np.float64)

    x, out = moved(1001, shift), moved(1001, 2 * shift)
    x[:] = ramp(1001)
    run_cells([apply("negative", *cell_leaves([x]))], [x], [out], schedule)
    np.testing.assert_array_equal(out, -x)


@pytest.mark.parametrize("dtype", ["c16", "c8"])
@pytest.mark.parametrize("n", [1, 5, 64, 1003])
def test_parts_beside_whole_numbers(n: int, dtype: str) -> None:
    z, x = ramp(n, dtype=dtype), ramp(n, dtype="f4")
    w, y = cell_leaves([z, x])
    roots = [apply("real", w), apply("absolute", w), apply("multiply", w, y), apply("isnan", w),
             apply("cast", y, dtype=np.dtype(dtype)), apply("conjugate", w)]
    want = [z.real, abs(z), z * x, np.isnan(z), x.astype(dtype), z.conj()]
    got = [np.empty(n, v.dtype) for v in want]
    run_cells(roots, [z, x], got)
    for g, v in zip(got, want, strict=True):
        assert g.tobytes() == v.tobytes()


def test_bools_are_any_nonzero_byte() -> None:
    odd = RNG.integers(0, 256, 77).astype(np.uint8).view(bool)
    got = np.empty(77, bool)
    run_cells([apply("logical_not", *cell_leaves([odd]))], [odd], [got])
    assert got.view(np.uint8).tobytes() == (odd.view(np.uint8) == 0).tobytes()


def test_constants_take_no_operand() -> None:
    x = ramp(33)
    got = np.empty(33)
    run_cells([apply("add", cell_leaves([x])[0], const(-0.1, "f8"))], [x], [got])
    np.testing.assert_array_equal(got, x - 0.1)


UNARY = [op.name for op in all_ops() if op.transcendental and op.arity == 1]


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("name", UNARY)
def test_transcendentals_agree_in_vectors_and_tails(name: str, dtype: str) -> None:
    for at in (0.7, 1.2e5):
        x = np.full(37, at, dtype)
        root = apply(name, *cell_leaves([x]))
        assert BACKEND.supports(root) is None
        got = np.empty_like(x)
        run_cells([root], [x], [got])
        with np.errstate(all="ignore"):
            want = getattr(np, name)(x)
        assert len(set(map(str, got.tolist()))) == 1
        np.testing.assert_allclose(got, want, rtol=4 * np.finfo(dtype).eps)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_tails_of_transcendentals_stay_in_place(schedule: Schedule) -> None:
    memory = np.full((5, 60), 7.0)
    wide = abs(ramp(5, 29)) + 1
    run_cells([apply("log", *cell_leaves([wide]))], [wide], [memory[:, 10:39]], schedule)
    np.testing.assert_allclose(memory[:, 10:39], np.log(wide), rtol=1e-15)
    assert (memory[:, :10] == 7).all() and (memory[:, 39:] == 7).all()
    out = np.zeros((5, 30))
    y = leaf(0, Meta((5, 15), wide.dtype))
    run_cells([apply("log", y)], [wide[:, ::2]], [out[:, ::2]], schedule)
    np.testing.assert_array_equal(out[:, ::2], memory[:, 10:39:2])
    assert not out[:, 1::2].any()


# Long bodies in strips: the bits of the body in one piece, for any length, layout and overlap.

STRIPS_RNG = np.random.default_rng(5)
NAMES = ("exp", "tanh", "sin", "log1p", "exp", "exp2", "cbrt", "expm1")


def _body(x: Hop, y: Hop) -> list[Hop]:
    """Return results of several functions, the first one ready early, and a choice by a mask made early."""
    early = apply("exp", apply("negative", x))
    mask = apply("less", early, y)
    total = early
    for name in NAMES:
        total = apply("add", apply(name, apply("multiply", total, y)), x)
    return [early, apply("where", mask, total, y), mask]


def _ran(
    arrays: list[np.ndarray], outs: list[np.ndarray], schedule: Schedule, chunk: int = 0,
) -> list[np.ndarray]:
    leaves = [leaf(i, Meta(a.shape, a.dtype), "array") for i, a in enumerate(arrays)]
    run_cells(_body(*leaves), arrays, outs, schedule, chunk)
    return outs


def _results(shape: tuple[int, ...], dtype: str) -> list[np.ndarray]:
    return [np.empty(shape, dtype), np.empty(shape, dtype), np.empty(shape, bool)]


def _arrays(shape: tuple[int, ...], dtype: str) -> list[np.ndarray]:
    return [STRIPS_RNG.uniform(0.05, 0.9, shape).astype(dtype) for _ in range(2)]


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize(
    "shape", [(0,), (1,), (7,), (8,), (333,), (2051,), (3, 5), (5, 64), (2, 700), (3, 2, 41)], ids=str)
def test_bits_are_those_of_one_piece(
    shape: tuple[int, ...], dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = _arrays(shape, dtype)
    turned = [arrays[0], np.repeat(arrays[1], 2, axis=-1)[..., ::2]]
    for given in (arrays, turned):
        for schedule in (Schedule(), Schedule(nontemporal=True)):
            got = _ran(given, _results(shape, dtype), schedule, chunk=1)
            with monkeypatch.context() as patch:
                patch.setattr(strips, "INSTRUCTIONS", 10**6)
                want = _ran(given, _results(shape, dtype), schedule)
            for g, w in zip(got, want, strict=True):
                assert g.tobytes() == w.tobytes()


def test_results_may_overwrite_operands() -> None:
    x, y = _arrays((3000,), "f8")
    want = _ran([x, y], _results((3000,), "f8"), Schedule())
    first, second, mask = x.copy(), y.copy(), np.empty(3000, bool)
    _ran([first, second], [first, second, mask], Schedule())
    for g, w in zip((first, second, mask), want, strict=True):
        np.testing.assert_array_equal(g, w)


def test_long_bodies_are_cut_and_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    cut: list[int] = []
    parts = strips.parts
    monkeypatch.setattr(strips, "parts", lambda loop: cut.append(len(found := parts(loop))) or found)
    x, y = _arrays((100,), "f8")
    _ran([x, y], _results((100,), "f8"), Schedule())
    out = np.empty(100)
    run_cells([apply("exp", leaf(0, Meta(x.shape, x.dtype), "array"))], [x], [out], Schedule(), 0)
    assert cut[0] > 2 and cut[-1] == 1


# Rows of cells: whole vectors, ends of rows, and results that overwrite what is still to be read.

DELAYED_BACKEND = LlvmBackend(launch=drive, threads=2)
DELAYED_RNG = np.random.default_rng(11)
CROSS = ((-1, 0), (1, 0), (0, -1), (0, 1))
SLANT = ((-1, -1), (1, 1), (0, 0))
ALONG = ((0, -1), (0, 1))


def inside(shape: Sequence[int], shift: Sequence[int]) -> tuple[slice, ...]:
    """Return where the inner part of an array lies, moved by `shift`."""
    return tuple(slice(1 + by, n - 1 + by) for by, n in zip(shift, shape, strict=True))


def run_delayed(shape: Sequence[int], shifts: Sequence[Sequence[int]], dtype: str, delayed: bool) -> None:
    """Compare the sum of shifted parts with NumPy's; if `delayed`, it goes into the array itself."""
    base = DELAYED_RNG.random(shape).astype(dtype)
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
    executable = DELAYED_BACKEND.compile(kernel, form, Schedule(delayed=delayed))
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


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Share kernels among threads that are too short for it."""
    monkeypatch.setattr(DELAYED_BACKEND, "serial_ns", 0)


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("delayed", [False, True])
@pytest.mark.parametrize("shifts", [CROSS, SLANT, ALONG])
@pytest.mark.parametrize("dtype", ["f8", "f4", "i2", "c16"])
def test_two_dimensions(dtype: str, shifts: Sequence[Sequence[int]], delayed: bool) -> None:
    for n in (3, 4, 5, 7, 20, 33, 100):
        for m in (3, 4, 5, 6, 9, 10, 18, 67):
            run_delayed((n, m), shifts, dtype, delayed)


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("delayed", [False, True])
def test_three_dimensions(delayed: bool) -> None:
    for n in (3, 5, 12, 60):
        for m in (3, 7, 12):
            run_delayed((n, 9, m), ((-1, 0, 0), (1, 1, 1), (0, -1, 0)), "f8", delayed)


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("n", [3, 10, 4097, 4098, 4099, 100_000])
def test_delayed_stores_in_one_dimension(n: int) -> None:
    run_delayed((n,), ((-1,), (1,)), "f8", delayed=True)


@pytest.mark.usefixtures("shared")
def test_wide_rows() -> None:
    for delayed in (False, True):
        run_delayed((6, 20_001), CROSS, "f8", delayed)


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize(("inner", "wanted"), [(1000, 8), (40_000, 8), (200_000, 5), (1_000_000, 1)])
def test_what_waits_in_all_bands_is_bounded(inner: int, wanted: int) -> None:
    shape, strides = (400, inner), (8 * inner, 8)
    leaves = [leaf(i, Meta(shape, np.dtype("f8"))) for i in range(2)]
    kernel = kernel_of([apply("add", *leaves)])
    executable = DELAYED_BACKEND.compile(kernel, Form("cell", 2, "ccc"), Schedule(delayed=True))
    geometry = Geometry(shape, (strides,) * 3, 8 * inner)
    block = executable.template(geometry)
    words = struct.unpack_from("6q", block)
    bands, scratch = words[2], words[5]
    assert bands == wanted
    assert scratch <= LATE_BYTES or bands == 1
    assert executable.scratch(geometry) == scratch


# Cells that read operands across their rows: NumPy's bits in whole and partial tiles, wherever they lie.

SHAPES = [(2, 3), (7, 9), (8, 16), (64, 33), (129, 130), (257, 511), (300, 1040), (1, 700), (523, 17)]


def added(A, B):
    return A + B.T


def mixed(A, B):
    return np.where(B.T > A, A * 2, B.T - A)


def symmetric(A, B):
    S = B[:min(B.shape), :min(B.shape)]
    return (S + S.T) * 0.5, S.T < S


def in_place(A, B):
    A += B.T
    return A * B.T


def apart(A, B):
    return A[::2, ::3] + B.T[::2, ::3]


FUNCTIONS = [added, mixed, symmetric, in_place, apart]


def same(function, fast, A, B):
    mine, theirs = A.copy("K"), A.copy("K")
    made, wanted = fast(mine, B), function(theirs, B)
    if not isinstance(wanted, tuple):
        made, wanted = (made,), (wanted,)
    for a, b in zip((*made, mine), (*wanted, theirs), strict=True):
        assert a.dtype == b.dtype and a.strides == b.strides and a.tobytes("A") == b.tobytes("A")


@pytest.mark.parametrize("dtype", ["f8", "f4", "i2", "u1", "c16"])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_bits_are_those_of_numpy(function, dtype):
    if dtype == "c16" and function in (mixed, symmetric) or dtype in ("i2", "u1") and function is in_place:
        dtype = "f8"
    rng = np.random.default_rng(1)
    fast = jitla.jit(function)
    for n, m in SHAPES:
        A, B = (rng.integers(0, 99, s).astype(dtype) for s in ((n, m), (m, n)))
        for _ in range(2):
            same(function, fast, A, B)
        same(function, fast, A, np.concatenate([B, B], axis=1)[:, 1:n + 1])
        same(function, fast, A, B[::-1, ::-1])
    assert fast.stats().failures == 0


def test_axes_exchanged_further_out():
    rng = np.random.default_rng(2)
    fast = jitla.jit(lambda A, B: A - B.transpose(0, 2, 1) * 2.0)
    last = jitla.jit(lambda A, B: A - B.transpose(2, 1, 0) * 2.0)
    for a, n, m in ((3, 40, 70), (17, 9, 1030), (2, 300, 8), (40, 1, 9)):
        A, B, C = rng.normal(size=(a, n, m)), rng.normal(size=(a, m, n)), rng.normal(size=(m, n, a))
        for _ in range(2):
            assert (fast(A, B) == A - B.transpose(0, 2, 1) * 2.0).all()
            assert (last(A, C) == A - C.transpose(2, 1, 0) * 2.0).all()
    assert fast.stats().failures == last.stats().failures == 0


def test_results_do_not_depend_on_the_threads():
    rng = np.random.default_rng(3)
    A, B = rng.normal(size=(1300, 900)), rng.normal(size=(900, 1300))
    fast = jitla.jit(added)
    for threads in (1, 2, 7):
        with jitla.options(num_threads=threads):
            for _ in range(2):
                assert (fast(A, B) == A + B.T).all()


# Rows that are taken crosswise have the bits of rows that are taken one by one.

ACROSS = Schedule(crosswise=True)


def along(name: str, x: Hop) -> Hop:
    """Reduce the rows of `x`."""
    return make(name, (x,), axis=(len(x.meta.shape) - 1,), keepdims=False)


def programs(x: Hop, y: Hop) -> dict[str, list[Hop]]:
    """Return roots by the kind of kernel that they make."""
    both, term = apply("subtract", x, y), apply("multiply", x, y)
    found = {"cells": [both], "extremes": [along("max", x), along("min", both)],
             "sums": [along("sum", term)], "sum and value": [along("sum", both), both]}
    if x.meta.dtype.kind == "f":
        found["functions"] = [apply("tanh", both)]
        found["turns"] = [apply("sin", apply("multiply", x, leaf(2, Meta((), x.meta.dtype), "scalar")))]
        found["functions and sum"] = [along("sum", apply("exp", both))]
    return found


@pytest.mark.parametrize(("dtype", "kind"), [
    ("f8", "row"), ("f4", "padded"), ("i8", "padded"), ("?", "column"), ("f8", "strided")])
def test_bits_are_those_of_rows_one_by_one(dtype: str, kind: str) -> None:
    rng = np.random.default_rng(5)
    for width, rows in ((2, 33), (7, 70), (9, 17), (40, 9)):
        first = "flat" if kind != "row" else "padded"
        arrays: list[Any] = [operand(each, dtype, (rows, width), rng) for each in (first, kind)]
        if dtype[0] == "f":
            arrays[0][0, 0], arrays[0][-1, 1], arrays[0][1, 0] = np.nan, np.inf, -0.0
        if dtype == "?":
            x, y = leaves_of(arrays)
            every = {"cells": [apply("logical_and", x, y)], "any": [along("any", apply("not_equal", x, y))]}
        else:
            every = programs(*leaves_of(arrays))
        scalar = np.dtype(dtype).type(1000)
        for name, roots in every.items():
            if kind == "strided" and name not in ("cells", "functions"):
                continue  # aggregates are not walked by rows then
            (_, wanted), *others = [
                run(roots, [*arrays, scalar], chunk, schedule=how)
                for how, chunk in ((Schedule(), 0), (ACROSS, 0), (ACROSS, 3), (ACROSS, 11))]
            for _, found in others:
                assert [a.tobytes() for a in found] == [a.tobytes() for a in wanted], (name, width, rows)


def test_which_kernels_have_code_for_short_rows() -> None:
    x, y = leaves_of([np.ones((50, 4)), np.ones(4)])
    roots = programs(x, y)
    rows, cell = Form("rows", 2, "ccb"), Form("cell", 2, "ccc")

    def across(name: str, form: Form, schedule: Schedule = ACROSS) -> bool:
        return is_crosswise(lay_out(kernel_of(roots[name]), form, schedule, BACKEND.jit.target))

    assert across("sums", rows) and across("cells", cell) and across("functions", cell)
    assert not across("cells", cell, Schedule()) and not across("cells", Form("cell", 1, "ccc"))
    most = [crosswise_limit(kernel_of(roots[n]), form) for n, form in (
        ("sums", rows), ("functions", cell), ("cells", cell), ("cells", Form("cell", 1, "ccc")))]
    assert most[1] > most[0] > most[2] > most[3] == 0
    text = BACKEND.compile(kernel_of(roots["functions"]), cell, ACROSS).text
    assert text.count("call void @across") == 1 and "call void @tail" in text


def test_plans_ask_for_it_where_rows_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, bool]] = []

    def noted(kernel: Any, form: Form, geometry: Any) -> bool:
        asked.append((geometry.dims[-1], has_short_rows(kernel, form, geometry)))
        return asked[-1][1]

    monkeypatch.setattr("jitla.recompile.binding.has_short_rows", noted)
    monkeypatch.setattr("jitla.recompile.row_binding.has_short_rows", noted)

    @jitla.jit(compile="sync")
    def classes(x: np.ndarray) -> Any:
        e = np.exp(x - x.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)

    for width in (2, 3, 4, 100):
        x = np.random.default_rng(width).normal(size=(900, width))
        np.testing.assert_allclose(classes(x), classes.__wrapped__(x), rtol=1e-14)
    assert (2, True) in asked and (3, True) in asked and not any(short for n, short in asked if n == 100)
    shown = jitla.explain(lambda x, y: (x - y) / y, np.ones((900, 3)), np.ones(3), level="llvm")
    assert ", several short rows to a vector" in str(shown)
    # one set of kernels for all short rows, one for longer ones
    assert classes.stats().planned <= 2
