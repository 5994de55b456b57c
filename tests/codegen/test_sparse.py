"""Kernels over compressed rows: products, loops over stored positions, shares of threads."""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp

from jitla.codegen import Jit, Library, LlvmBackend, host_target
from jitla.codegen import sparse_kernels as csr
from jitla.codegen.csr_kernels import BLOCK
from jitla.codegen.kernel_abi import HEADER
from jitla.codegen.kernels.row import BOUND, PER_ROW
from jitla.codegen.sparse_kernels import CompressedRows, SparseThresholds, Stored
from jitla.hops import lookup

# Products of compressed rows: what SciPy says, on any number of threads, for any index.

# Rows and columns of matrices, and how many of their elements are stored: also rows longer than a block.
CASES = (
    (7, 5, 0.5), (300, 200, 0.1), (65, 1, 0.5), (1, 80, 0.4), (700, 900, 0.1), (0, 4, 1.0), (40, 3500, 0.02))
BACKEND = LlvmBackend()


@pytest.fixture(scope="module", params=[1, 3])
def loops(request: pytest.FixtureRequest) -> CompressedRows:
    return BACKEND.stored(request.param)._products


def matrix(m, n, density, dtype="f8", index="i4"):
    """Compressed rows of which some are empty, and one is full."""
    dense = np.random.default_rng(m).random((m, n)).astype(dtype)
    dense[np.random.default_rng(n).random((m, n)) >= density] = 0
    dense[m // 3:m // 2] = 0
    dense[m // 2:m // 2 + 1] = 1
    made = sp.csr_array(dense)
    return made.data, made.indices.astype(index), made.indptr.astype(index)


def test_cases_are_shared_among_threads_and_have_long_rows():
    assert max(m * n * d for m, n, d in CASES) > SparseThresholds.min_parallel_entries
    assert max(n for _, n, _ in CASES) > 3 * BLOCK


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("index", ["i4", "i8"])
def test_products_are_those_of_scipy(loops, case, dtype, index):
    m, n, density = case
    data, columns, starts = matrix(m, n, density, dtype, index)
    rows = sp.csr_array((data, columns, starts), shape=(m, n))
    rng = np.random.default_rng(0)
    bound = 2 * np.finfo(dtype).eps * max(m, n)
    for shape in ((), (1,), (3,), (16,), (37,)):
        x, y = (rng.random((k, *shape)).astype(dtype) for k in (n, m))
        kind = "product" if shape else "vector"
        found, wanted = loops.operator(f"csr_{kind}")(data, columns, starts, x), rows @ x
        assert found.dtype == wanted.dtype and found.shape == wanted.shape
        if shape:  # entry by entry, as SciPy
            assert found.tobytes() == wanted.tobytes()
        np.testing.assert_allclose(found, wanted, rtol=bound)
        loop, wanted = loops.operator(f"csr_transposed_{kind}"), rows.T @ y
        found = loop(data, columns, starts, y, width=n)
        assert found.dtype == wanted.dtype and found.shape == wanted.shape and found.flags.owndata
        np.testing.assert_allclose(found, wanted, rtol=bound)


def test_bits_do_not_depend_on_threads():
    data, columns, starts = matrix(700, 900, 0.1)
    x, y = (np.random.default_rng(k).random(n) for k, n in enumerate((900, 700)))
    for name, v, attrs in (("csr_vector", x, {}), ("csr_transposed_vector", y, {"width": 900})):
        found = [BACKEND.stored(t).operator(name)(data, columns, starts, v, **attrs) for t in (1, 2, 7)]
        assert found[0].tobytes() == found[1].tobytes() == found[2].tobytes()


def with_thresholds(loops, **changes):
    """Return the same loops with other thresholds."""
    return type(loops)(loops._jit, loops._launch, loops._threads, SparseThresholds(**changes))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("index", ["i4", "i8"])
@pytest.mark.parametrize("longest", [3, 9, 17, 140, 3000])
def test_sums_of_rows_have_the_bits_of_numpy(loops, dtype, index, longest):
    rng = np.random.default_rng(longest)
    lengths = np.where(rng.random(60) < 0.2, 0, rng.integers(0, longest, 60))
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(index)
    data = rng.normal(size=starts[-1]).astype(dtype) * (10.0 ** rng.integers(-3, 4, starts[-1])).astype(dtype)
    reference = lookup("csr_row_sums").ref
    loops = with_thresholds(loops, min_parallel_entries=0)
    for each in (data, data * dtype_of(data, 0), data * dtype_of(data, -0.0)):
        wanted = reference(each, starts)
        found = loops._row_sums(each, starts)
        assert found is not None and found.dtype == wanted.dtype
        assert found.tobytes() == wanted.tobytes()


def dtype_of(data, value):
    return data.dtype.type(value)


def test_sums_of_rows_that_overflow_are_told_by_numpy(loops):
    data, starts = np.full(40, 1e308), np.arange(0, 41, 10)
    assert loops._row_sums(data, starts) is None
    with pytest.warns(RuntimeWarning, match="overflow"):
        assert np.isinf(loops.operator("csr_row_sums")(data, starts)).all()


def test_sums_of_rows_that_begin_nowhere_are_left_to_the_reference(loops):
    loops = with_thresholds(loops, min_parallel_entries=0)
    for starts in ([0, 5, 3, 10], [0, 1 << 40, 10], [-4, 2, 10], [7, 3, 9, 1], [0, 5, 9]):
        assert loops._row_sums(np.ones(10), np.array(starts)) is None


def test_other_operands_are_cast_or_left_to_the_reference(loops):
    data, columns, starts = matrix(300, 200, 0.1)
    rows = sp.csr_array((data, columns, starts), shape=(300, 200))
    for x in (np.arange(200), np.ones(400)[::2], np.ones(200, "f4"), np.ones(200, "c16")):
        found, wanted = loops.operator("csr_vector")(data, columns, starts, x), rows @ x
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, rtol=1e-13)
    whole = np.arange(len(data))
    found = loops.operator("csr_transposed_vector")(whole, columns, starts, np.arange(300), width=200)
    assert found.dtype == whole.dtype
    assert np.array_equal(found, sp.csr_array((whole, columns, starts), shape=(300, 200)).T @ np.arange(300))


def test_columns_may_be_unsorted_and_repeated(loops):
    starts = np.array([0, 700, 700, 1400], "i4")
    columns = np.random.default_rng(0).integers(0, 50, 1400).astype("i4")
    data = np.random.default_rng(1).random(1400)
    rows = sp.csr_array((data, columns, starts), shape=(3, 50))
    x, y = np.random.default_rng(2).random(50), np.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(loops.operator("csr_vector")(data, columns, starts, x), rows @ x, rtol=1e-12)
    np.testing.assert_allclose(
        loops.operator("csr_transposed_vector")(data, columns, starts, y, width=50), rows.T @ y, rtol=1e-12)


@pytest.mark.parametrize("index", ["i4", "i8"])
@pytest.mark.parametrize("case", [(300, 200, 0.1), (1, 80, 0.4), (40, 3500, 0.02), (0, 4, 1.0)])
def test_shares_of_results_have_the_bits_of_scipy(case, index):
    thresholds = SparseThresholds(min_parallel_entries=0, min_cut_row_entries=1)
    m, n, density = case
    for dtype in ("f4", "f8"):
        data, columns, starts = matrix(m, n, density, dtype, index)
        rows = sp.csr_array((data, columns, starts), shape=(m, n))
        for shape in ((), (3,), (37,)):
            y = np.random.default_rng(0).random((m, *shape)).astype(dtype)
            for threads in (1, 2, 7):
                products = BACKEND.stored(threads, thresholds)._products
                found = products._in_ranges(data, columns, starts, y, n)
                assert found is None if not m else found.tobytes() == (rows.T @ y).tobytes()


@pytest.mark.parametrize("moved", [0, 3, 1500, -1])
def test_shares_of_results_want_columns_in_order(moved):
    columns, starts = np.arange(6000, dtype="i4") % 2000, np.arange(0, 6001, 2000, dtype="i4")
    data, y = np.random.default_rng(0).random(6000), np.array([1.0, 2.0, 3.0])
    columns[4000 + np.array([moved, moved - 700])] = columns[4000 + np.array([moved - 700, moved])]
    products = BACKEND.stored(3, SparseThresholds(min_parallel_entries=0, max_sampled_entries=0))._products
    assert products._in_ranges(data, columns, starts, y, 2000) is None
    wanted = sp.csr_array((data, columns, starts), shape=(3, 2000)).T @ y
    assert products._transposed(data, columns, starts, y[:, None], 2000).tobytes() == wanted.tobytes()
    assert csr._in_order(columns, starts[:2], 1999)
    assert csr._in_order(columns, starts[2:], 1999) == (moved == -1)  # the last lies behind what is looked at


def test_what_is_not_stored_is_not_multiplied(loops):
    data, columns, starts = np.array([2.0, 0.0]), np.array([1, 2], "i4"), np.array([0, 1, 2], "i4")
    found = loops.operator("csr_vector")(data, columns, starts, np.array([np.nan, 3.0, np.inf]))
    assert found[0] == 6 and np.isnan(found[1])
    found = loops.operator("csr_transposed_vector")(data, columns, starts, np.array([np.inf, 1.0]), width=4)
    assert found.tolist() == [0, np.inf, 0, 0]


def test_infinities_that_meet_say_nothing(loops):
    data, columns, starts = matrix(700, 900, 0.1)
    data[::50] = np.inf
    data[1::50] = -np.inf
    data[2::50] = 1e308
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for shape in ((), (3,)):
            found = loops.operator("csr_transposed_" + ("product" if shape else "vector"))(
                data, columns, starts, np.full((700, *shape), 100.0), width=900)
            assert np.isnan(found).any()


@pytest.mark.parametrize("wrong", [200, -1, 1 << 30])
def test_what_lies_outside_is_not_read(loops, wrong):
    data, columns, starts = matrix(300, 200, 0.1)
    x, y = np.random.default_rng(0).random((200, 5)), np.random.default_rng(0).random((300, 5))
    for at in (0, 77, len(columns) - 1):
        bad = columns.copy()
        bad[at] = wrong
        assert loops._vector(data, bad, starts, x[:, 0]) is None
        assert loops._product(data, bad, starts, x) is None
        assert loops._transposed(data, bad, starts, y[:, 0], 200) is None
        assert loops._transposed(data, bad, starts, y, 200) is None
    for at in (0, 5, 300):
        beyond = starts.copy()
        beyond[at] = max(wrong, 1 << 20) if wrong > 0 else wrong
        assert loops._vector(data, columns, beyond, x[:, 0]) is None
        assert loops._transposed(data, columns, beyond, y, 200) is None


# Loops over stored positions: what their references say, on any number of threads, for any index.

# Rows and columns of matrices, and how many of their elements are stored: also more than one thread's share.
STORED_CASES = ((7, 5, 0.5), (300, 200, 0.1), (65, 1, 0.5), (1, 80, 0.4), (700, 900, 0.1))


@pytest.fixture(scope="module", params=[1, 3])
def stored_loops(request: pytest.FixtureRequest) -> Stored:
    return BACKEND.stored(request.param)


def stored_matrix(m, n, density, dtype="f8", index="i4"):
    """Compressed rows of which some are empty and one is full."""
    dense = np.random.default_rng(m).random((m, n)).astype(dtype)
    dense[np.random.default_rng(n).random((m, n)) >= density] = 0
    dense[m // 2] = 1
    made = sp.csr_array(dense)
    return made.data, made.indices.astype(index), made.indptr.astype(index)


def test_some_cases_are_shared_among_threads():
    assert max(m * n * d for m, n, d in STORED_CASES) > SparseThresholds.min_parallel_entries


@pytest.mark.parametrize("case", STORED_CASES)
@pytest.mark.parametrize("index", ["i4", "i8"])
def test_elements_at_positions(stored_loops, case, index):
    m, n, density = case
    _, columns, starts = stored_matrix(m, n, density, index=index)
    for dtype in ("?", "i2", "f4", "f8", "c16"):
        x = np.random.default_rng(0).random((m, n)).astype(dtype)
        for given in (x, np.asfortranarray(x), x[::-1], np.repeat(x, 2, 1)[:, ::2]):
            found = stored_loops.operator("sampled")(given, starts, columns)
            wanted = lookup("sampled").ref(given, starts, columns)
            assert found.dtype == x.dtype and np.array_equal(found, wanted)
        line = x[:, 0]
        found = stored_loops.operator("by_row")(line, starts, columns)
        assert np.array_equal(found, lookup("by_row").ref(line, starts, columns))
        across = x[0] if len(x) else np.zeros(x.shape[1], x.dtype)
        found = stored_loops.operator("by_column")(across, columns)
        assert np.array_equal(found, lookup("by_column").ref(across, columns))


@pytest.mark.parametrize("case", STORED_CASES)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("depth", [0, 1, 3, 4, 8, 17, 100])
def test_products_at_positions(stored_loops, case, dtype, depth):
    m, n, density = case
    _, columns, starts = stored_matrix(m, n, density)
    rng = np.random.default_rng(depth)
    a, b = rng.random((m, depth)).astype(dtype), rng.random((depth, n)).astype(dtype).T
    found = stored_loops.operator("sampled_product")(a, b, starts, columns)
    wanted = lookup("sampled_product").ref(a.astype("f8"), b.astype("f8"), starts, columns)
    assert found.dtype == a.dtype
    np.testing.assert_allclose(found, wanted, rtol=(depth + 1) * np.finfo(dtype).eps)


def test_products_do_not_depend_on_threads():
    _, columns, starts = stored_matrix(700, 900, 0.1)
    a, b = (np.random.default_rng(k).random((n, 37)) for k, n in enumerate((700, 900)))
    found = [BACKEND.stored(t).operator("sampled_product")(a, b, starts, columns) for t in (1, 2, 7)]
    assert found[0].tobytes() == found[1].tobytes() == found[2].tobytes()


def test_columns_need_no_order(stored_loops):
    _, columns, starts = stored_matrix(300, 200, 0.1)
    mixed = np.concatenate([columns[a:b][::-1] for a, b in zip(starts, starts[1:], strict=False)])
    a, b = (np.random.default_rng(k).random((n, 9000)) for k, n in enumerate((300, 200)))
    found = stored_loops.operator("sampled_product")(a, b, starts, mixed)
    np.testing.assert_allclose(found, lookup("sampled_product").ref(a, b, starts, mixed), rtol=1e-12)


@pytest.mark.parametrize("wrong", [200, -1, 1 << 30])
def test_positions_outside_of_stored_entries_are_not_read(stored_loops, wrong):
    _, columns, starts = stored_matrix(300, 200, 0.1)
    x = np.random.default_rng(0).random((300, 200))
    bad = columns.copy()
    bad[77] = wrong
    assert stored_loops._sampled(x, starts, bad) is None
    assert stored_loops._sampled_product(x, x[:200].copy(), starts, bad) is None
    beyond = starts.copy()
    beyond[5] = max(wrong, 1 << 20) if wrong > 0 else wrong
    assert stored_loops._by_row(x[:, 0], beyond, columns) is None
    assert stored_loops._by_column(x[0], bad) is None


@pytest.mark.parametrize("index", ["i4", "i8"])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("depth", [1, 7, 8, 37, 100])
def test_tiles_change_no_bits(stored_loops, index, dtype, depth):
    _, columns, starts = stored_matrix(90, 300, 0.2, index=index)
    mixed = columns.copy()
    for row in range(0, 90, 3):  # some rows have their columns in another order
        np.random.default_rng(row).shuffle(mixed[starts[row]:starts[row + 1]])
    a, b = (np.random.default_rng(k).random((n, depth)).astype(dtype) for k, n in enumerate((90, 300)))
    found = set()
    for near, least in ((1 << 30, 1 << 30), (1 << 30, 0), (20 * 64, 0), (100 * 64, 0)):
        loops = with_thresholds(
            stored_loops, max_tile_bytes=near, min_tile_row_bytes=least, min_copy_reads=0)
        found.add(loops._sampled_product(a, b, starts, mixed).tobytes())
        bad = mixed.copy()
        for wrong in (300, -1, -300, 1 << 30):
            bad[1234] = wrong
            assert loops._sampled_product(a, b, starts, bad) is None
    assert len(found) == 1
    wanted = lookup("sampled_product").ref(a.astype("f8"), b.astype("f8"), starts, mixed)
    bound = (depth + 1) * np.finfo(dtype).eps
    np.testing.assert_allclose(np.frombuffer(found.pop(), dtype), wanted, rtol=bound)


def test_many_entries_are_cut_into_units_whatever_the_threads():
    _, columns, starts = stored_matrix(700, 900, 0.1)
    a, b = (np.random.default_rng(k).random((n, 37)) for k, n in enumerate((700, 900)))
    loops = BACKEND.stored(1, SparseThresholds(max_unit_entries=1000))
    found = loops.operator("sampled_product")(a, b, starts, columns)
    wanted = lookup("sampled_product").ref(a, b, starts, columns)
    np.testing.assert_allclose(found, wanted, rtol=1e-13)


def test_factors_may_differ_in_type(stored_loops):
    _, columns, starts = stored_matrix(300, 200, 0.1)
    a, b = np.random.default_rng(0).random((300, 9)).astype("f4"), np.random.default_rng(1).random((200, 9))
    found = stored_loops._sampled_product(a, b, starts, columns)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, lookup("sampled_product").ref(a, b, starts, columns), rtol=1e-14)


# Where units of a kernel over rows begin: by entries, whatever lies where rows should begin.

UNITS, HEIGHT, OPERAND = 8, 16, 3


@cache
def code() -> tuple[Library, Callable[..., int]]:
    text = f'target triple = "{host_target().triple}"\ndeclare i64 @llvm.umin.i64(i64, i64)\n'
    made = Jit().load(text + BOUND.replace("define internal i64 @bound", "define i64 @bound"), ("bound",))
    return made, ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, *[ctypes.c_int64] * 8)(
        made.addresses["bound"])


def bounds(starts: np.ndarray, operand: int = OPERAND) -> list[int]:
    """Return with which block of rows units begin, and where the last one ends."""
    rows = len(starts) - 1
    blocks = -(-rows // HEIGHT)
    block = np.zeros(HEADER + OPERAND, np.int64)
    block[HEADER + OPERAND - 1] = starts.ctypes.data
    per = -(-blocks // UNITS)
    return [code()[1](block.ctypes.data, UNITS, blocks, per, operand, starts.itemsize, HEIGHT, rows, u)
            for u in range(UNITS + 1)]


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("where", [slice(0, 64), slice(1000, 1064), slice(1987, None), slice(7, 8)])
def test_units_have_about_as_many_entries(where, index):
    lengths = np.full(2001, 3)
    lengths[where] = 1000
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(index)
    found = bounds(starts)
    assert found[0] == 0 and found[-1] == -(-2001 // HEIGHT) and found == sorted(found)
    weight = starts.astype(np.int64) + PER_ROW * np.arange(len(starts))
    at = weight[np.minimum(np.array(found) * HEIGHT, 2001)]
    largest = np.diff(weight[np.minimum(np.arange(0, 2001 + HEIGHT, HEIGHT), 2001)]).max()
    assert np.diff(at).max() <= weight[-1] // UNITS + largest


def test_without_entries_units_have_as_many_blocks():
    assert bounds(np.zeros(1601, np.int32), 0) == [min(13 * u, 100) for u in range(UNITS + 1)]


@pytest.mark.parametrize("seed", range(4))
def test_every_block_is_some_units_whatever_lies_there(seed):
    starts = np.random.default_rng(seed).integers(-1 << 62, 1 << 62, 1601)
    found = bounds(starts)
    assert found[0] == 0 and found[-1] == 100
    assert all(0 <= b <= 100 for b in found)
