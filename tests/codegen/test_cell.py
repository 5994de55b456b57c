"""Cell kernels over every layout: ranks, strides, broadcasts, tails, in place, past the cache."""

from __future__ import annotations

import numpy as np
import pytest

from jitla.fusion import Schedule
from jitla.hops import Hop, Meta, all_ops, apply, const, leaf
from tests.codegen.driver import BACKEND, run_cells

RNG = np.random.default_rng(3)
PLAIN = Schedule()
SCHEDULES = [PLAIN, Schedule(unroll=2), Schedule(nontemporal=True)]


def leaves_of(arrays: list[object]) -> list[Hop]:
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
    x, y, z = leaves_of(arrays)
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
    a, b = leaves_of([x, row])
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
    run_cells([apply("where", *leaves_of([y, x, np.float64(1)]))], [y, x, np.float64(1)], [got])
    np.testing.assert_array_equal(got, x)


@pytest.mark.parametrize("dtype", ["f8", "c16", "c8"])
def test_strided_reversed_and_transposed_operands(dtype: str) -> None:
    wide = ramp(40, 60, dtype=dtype)
    turned = ramp(20, 40, dtype=dtype).T[:20][:, ::1][:, :20]
    check([wide[::2, ::3], wide[::-1, ::-1][:20, :20], turned])
    check([wide[:, ::-1], ramp(60, 40, dtype=dtype).T, wide])
    got = np.zeros((60, 40), dtype).T
    run_cells([apply("negative", *leaves_of([wide]))], [wide], [got[:40, :60]])
    np.testing.assert_array_equal(got, -wide)
    comb = np.zeros((40, 180), dtype)
    run_cells([apply("negative", *leaves_of([wide]))], [wide], [comb[:, ::3]])
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
        root = apply("logical_or" if dtype == "?" else "add", *leaves_of(parts))
        want = parts[0] | parts[1] if dtype == "?" else parts[0] + parts[1]
        got = np.empty_like(want)
        run_cells([root], parts, [got])
        np.testing.assert_array_equal(got, want)


def test_outputs_stay_inside_their_memory() -> None:
    memory = np.full(300, 7.0)
    run_cells([apply("negative", *leaves_of([ramp(101)]))], [ramp(101)], [memory[50:151]])
    assert (memory[:50] == 7).all() and (memory[151:] == 7).all()


@pytest.mark.parametrize("dtype", ["f8", "c16"])
@pytest.mark.parametrize("schedule", [PLAIN, Schedule(unroll=2)], ids=str)
@pytest.mark.parametrize("n", [5, 64, 10_001])
def test_in_place(n: int, schedule: Schedule, dtype: str) -> None:
    x, y = ramp(n, dtype=dtype), ramp(n, dtype=dtype)
    want = x * y
    run_cells([apply("multiply", *leaves_of([x, y]))], [x, y], [x], schedule)
    np.testing.assert_array_equal(x, want)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize("shift", range(1, 9))
def test_unaligned_memory(shift: int, schedule: Schedule) -> None:
    def moved(n: int, by: int) -> np.ndarray:
        return np.empty(8 * n + by, np.uint8)[by:].view(np.float64)

    x, out = moved(1001, shift), moved(1001, 2 * shift)
    x[:] = ramp(1001)
    run_cells([apply("negative", *leaves_of([x]))], [x], [out], schedule)
    np.testing.assert_array_equal(out, -x)


@pytest.mark.parametrize("dtype", ["c16", "c8"])
@pytest.mark.parametrize("n", [1, 5, 64, 1003])
def test_parts_beside_whole_numbers(n: int, dtype: str) -> None:
    z, x = ramp(n, dtype=dtype), ramp(n, dtype="f4")
    w, y = leaves_of([z, x])
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
    run_cells([apply("logical_not", *leaves_of([odd]))], [odd], [got])
    assert got.view(np.uint8).tobytes() == (odd.view(np.uint8) == 0).tobytes()


def test_constants_take_no_operand() -> None:
    x = ramp(33)
    got = np.empty(33)
    run_cells([apply("add", leaves_of([x])[0], const(-0.1, "f8"))], [x], [got])
    np.testing.assert_array_equal(got, x - 0.1)


UNARY = [op.name for op in all_ops() if op.transcendental and op.arity == 1]


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("name", UNARY)
def test_transcendentals_agree_in_vectors_and_tails(name: str, dtype: str) -> None:
    for at in (0.7, 1.2e5):
        x = np.full(37, at, dtype)
        root = apply(name, *leaves_of([x]))
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
    run_cells([apply("log", *leaves_of([wide]))], [wide], [memory[:, 10:39]], schedule)
    np.testing.assert_allclose(memory[:, 10:39], np.log(wide), rtol=1e-15)
    assert (memory[:, :10] == 7).all() and (memory[:, 39:] == 7).all()
    out = np.zeros((5, 30))
    y = leaf(0, Meta((5, 15), wide.dtype))
    run_cells([apply("log", y)], [wide[:, ::2]], [out[:, ::2]], schedule)
    np.testing.assert_array_equal(out[:, ::2], memory[:, 10:39:2])
    assert not out[:, 1::2].any()
