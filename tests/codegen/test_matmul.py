"""Products of blocks of rows, wide and narrow matrices, pairs of small matrices; argmin of rows."""

from __future__ import annotations

import numpy as np
import pytest

import jitla
from jitla.codegen import LlvmBackend
from jitla.codegen.matmul.argmin import GROUP, KEPT, STRETCH, extreme_text
from jitla.codegen.matmul.narrow import lies
from jitla.fusion import (
    COLUMNWISE_PREFIX,
    FROM_PANELS,
    PACK_ONLY,
    Layout,
    Tile,
    pair_strides,
    panel_bytes,
)
from jitla.recompile import row_binding as binding
from tests.codegen.driver import BACKEND, drive
from tests.codegen.test_backend import RUNS, V4

# Products of a block of rows: exact where NumPy is, tails, distances between rows, order of sums.

SHAPES = [(1, 1), (1, 8), (2, 3), (3, 4), (4, 5), (5, 15), (7, 16), (8, 17), (9, 31), (33, 100), (4, 0)]


@pytest.fixture(scope="module")
def llvm() -> LlvmBackend:
    return BACKEND


def run(llvm, form, X, v, out):
    """Run a product; what "sum" adds to begins with zeros."""
    columns = v.shape[1] if v.ndim > 1 else 1
    made = llvm.product(form, X.dtype, columns)
    if form == "sum":
        out[...] = 0.0
    llvm.launch(made(len(X), X.shape[1], X.strides[0], v.strides[0]), X, v, out)
    return out


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("gap", [0, 3])
@pytest.mark.parametrize("shape", SHAPES)
def test_whole_numbers_are_exact(llvm, shape, gap, dtype):
    rng = np.random.default_rng(shape[1])
    m, n = shape
    X = rng.integers(-9, 9, (m, n + gap)).astype(dtype)[:, :n]
    v, p = rng.integers(-9, 9, n).astype(dtype), rng.integers(-9, 9, m).astype(dtype)
    room = np.full(m + 2, 7.0, dtype)
    assert (run(llvm, "dot", X, v, room[1:-1]) == X @ v).all() and room[0] == room[-1] == 7.0
    room = np.full(n + 2, 7.0, dtype)
    assert (run(llvm, "sum", X, p, room[1:-1]) == X.T @ p).all() and room[0] == room[-1] == 7.0
    # of columns: added to what is there, and written over it
    room = np.full(m + 2, 7.0, dtype)
    assert (run(llvm, "across", X, v, room[1:-1]) == X @ v + 7).all() and room[0] == room[-1] == 7.0
    room = np.full(n + 2, 7.0, dtype)
    assert (run(llvm, "down", X, p, room[1:-1]) == X.T @ p).all() and room[0] == room[-1] == 7.0


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("gap", [0, 3])
@pytest.mark.parametrize("shape", SHAPES)
def test_running_sums_have_numpys_bits(llvm, shape, gap, dtype):
    m, n = shape
    X = np.random.default_rng(n).standard_normal((m, n + gap)).astype(dtype)[:, :n]
    X[:, :1] = -0.0
    room = np.full((m + 2, n), 7.0, dtype)
    run(llvm, "scan", X, np.ones(1, dtype), room[1:-1])
    assert room[1:-1].tobytes() == np.cumsum(X, axis=1).tobytes() and (room[[0, -1]] == 7.0).all()


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("columns", [*range(2, 18), 20, 23, 24, 25, 31, 33, 47, 63])
def test_whole_numbers_are_exact_with_several_vectors(llvm, columns, dtype):
    rng = np.random.default_rng(columns)
    for m, n in SHAPES:
        X = rng.integers(-9, 9, (m, n + 1)).astype(dtype)[:, :n]
        V = rng.integers(-9, 9, (n, columns + columns % 3)).astype(dtype)[:, :columns]
        P = rng.integers(-9, 9, (m, columns + columns % 2)).astype(dtype)[:, :columns]
        room = np.full((m + 2, columns), 7.0, dtype)
        assert (run(llvm, "dot", X, V, room[1:-1]) == X @ V).all()
        assert (room[[0, -1]] == 7.0).all()
        room = np.full((n + 2, columns), 7.0, dtype)
        assert (run(llvm, "sum", X, P, room[1:-1]) == X.T @ P).all()
        assert (room[[0, -1]] == 7.0).all()


@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_vectors_are_packed_from_wherever_they_lie(llvm, dtype):
    V = np.arange(24.0).astype(dtype).reshape(6, 4)
    for W in (V, V.T, V[::-1, ::2], np.broadcast_to(V[0], (6, 4)), V[:, 1:2], V[:0]):
        out = np.full(W.shape, 7.0, dtype)
        made = llvm.product("pack", W.dtype, W.shape[1])
        llvm.launch(made(*W.shape, *W.strides), W, W, out)
        assert (out == W).all()


@pytest.mark.parametrize("columns", [2, 5, 11, 40])
def test_a_row_of_results_does_not_depend_on_its_neighbours(llvm, columns):
    rng = np.random.default_rng(columns)
    X, V = rng.normal(size=(11, 29)), rng.normal(size=(29, columns))
    whole = run(llvm, "dot", X, V, np.empty((11, columns)))
    alone = [run(llvm, "dot", X[i:i + 1], V, np.empty((1, columns)))[0] for i in range(11)]
    assert (whole == alone).all()


@pytest.mark.parametrize("form", ["dot", "sum"])
def test_a_row_does_not_depend_on_its_neighbours(llvm, form):
    rng = np.random.default_rng(1)
    X, v = rng.normal(size=(11, 29)), rng.normal(size=29)
    if form == "dot":
        whole = run(llvm, form, X, v, np.empty(11))
        alone = [run(llvm, form, X[i:i + 1], v, np.empty(1))[0] for i in range(11)]
        assert whole.tolist() == alone
    else:
        weights = rng.normal(size=11)
        whole = run(llvm, form, X, weights, np.empty(29))
        half = run(llvm, form, X[:, :13], weights, np.empty(13))
        assert whole[:12].tolist() == half[:12].tolist()


def test_errors_stay_within_the_bound_of_a_sum(llvm):
    rng = np.random.default_rng(2)
    X, v = rng.normal(size=(40, 1000)), rng.normal(size=1000)
    exact = (X.astype(np.longdouble) * v).sum(axis=1)
    bound = 1000 * np.finfo(float).eps * (np.abs(X) * np.abs(v)).sum(axis=1)
    assert (np.abs(run(llvm, "dot", X, v, np.empty(40)) - exact) <= bound / 8).all()


# Products of a block of rows with a wide matrix: exact where NumPy is, edges of panels, order of sums.

WIDE_SHAPES = [(1, 1, 1), (1, 7, 64), (4, 4, 24), (5, 3, 12), (3, 8, 8), (7, 300, 13), (9, 513, 65),
               (4, 0, 5), (33, 257, 100), (8, 256, 16), (6, 2, 17), (0, 5, 70)]


def run_wide(llvm, A, B, out, adds=0, fetches=False):
    made = llvm.wide(A.dtype, fetches)
    tile = Tile(*A.shape, B.shape[1], *A.strides, *B.strides, out.strides[0], adds, cold=fetches)
    llvm.launch(made(tile), A, B, out)
    return out


def layouts(X):
    """The same values, lying otherwise."""
    gap = np.zeros((X.shape[0], X.shape[1] + 3), X.dtype)
    gap[:, :X.shape[1]] = X
    return [X, np.asfortranarray(X), gap[:, :X.shape[1]], np.ascontiguousarray(X[:, ::-1])[:, ::-1]]


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("shape", WIDE_SHAPES)
def test_wide_products_of_whole_numbers_are_exact(llvm, shape, dtype):
    rng = np.random.default_rng(shape[1])
    m, k, n = shape
    X = rng.integers(-9, 9, (m, k)).astype(dtype)
    Y = rng.integers(-9, 9, (k, n)).astype(dtype)
    for A in layouts(X):
        for B in layouts(Y):
            room = np.full((m + 2, n + 2), 7.0, dtype)
            out = room[1:-1, 1:-1]
            assert (run_wide(llvm, A, B, out) == X @ Y).all()
            assert (run_wide(llvm, A, B, out, adds=1) == 2 * (X @ Y)).all()
            assert (room[[0, -1]] == 7.0).all() and (room[:, [0, -1]] == 7.0).all()


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("shape", WIDE_SHAPES)
def test_what_is_fetched_ahead_changes_nothing(llvm, shape, dtype):
    rng = np.random.default_rng(shape[0])
    m, k, n = shape
    X, Y = rng.normal(size=(m, k)).astype(dtype), rng.normal(size=(k, n)).astype(dtype)
    for A in layouts(X):
        for B in layouts(Y):
            for adds in (0, 1):
                given, out = (run_wide(llvm, A, B, np.ones((m, n), dtype), adds, f) for f in (False, True))
                assert (out == given).all()


@pytest.mark.parametrize("columns", [5, 24, 64, 131])
def test_a_result_depends_on_its_row_and_its_column_only(llvm, columns):
    rng = np.random.default_rng(columns)
    A, B = rng.normal(size=(11, 700)), rng.normal(size=(700, columns))
    whole = run_wide(llvm, A, B, np.empty((11, columns)))
    for i in range(11):
        assert (run_wide(llvm, A[i:i + 1], B, np.empty((1, columns)))[0] == whole[i]).all()
    for j in range(columns):
        assert (run_wide(llvm, A, B[:, j:j + 1], np.empty((11, 1)))[:, 0] == whole[:, j]).all()


def test_sums_are_as_good_as_those_of_blas(llvm):
    rng = np.random.default_rng(3)
    A, B = rng.normal(size=(20, 900)), rng.normal(size=(900, 70))
    exact = A.astype(np.longdouble) @ B.astype(np.longdouble)
    bound = 900 * 2.0**-53 * (np.abs(A) @ np.abs(B))
    assert (np.abs(run_wide(llvm, A, B, np.empty((20, 70))) - exact) <= bound).all()


def test_infinities_meet_no_zeros_of_padding():
    llvm = LlvmBackend()
    A, B = np.full((5, 3), np.inf), np.full((3, 66), 2.0)
    out = np.empty((5, 66))
    made = llvm.wide(A.dtype)
    tile = Tile(5, 3, 66, *A.strides, *B.strides, out.strides[0])
    assert llvm.launch(made(tile), A, B, out) == 0  # no flag
    assert (out == np.inf).all()


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("shape", WIDE_SHAPES)
def test_panels_that_are_made_once(llvm, shape, dtype):
    rng = np.random.default_rng(shape[2])
    m, k, n = shape
    A, Y = rng.normal(size=(m, k)).astype(dtype), rng.normal(size=(k, n)).astype(dtype)
    made = llvm.wide(A.dtype)
    for B in layouts(Y):
        size = panel_bytes((k, n), A.itemsize)
        room = np.full(size + 64, 77, np.uint8)
        panels = room[8:8 + size]  # wherever it lies
        llvm.launch(made(Tile(0, k, n, 0, 0, *B.strides, 0, panels=PACK_ONLY)), B, B, panels)
        assert (room[:8] == 77).all() and (room[8 + size:] == 77).all()
        given = run_wide(llvm, A, B, np.empty((m, n), dtype))
        out = np.empty((m, n), dtype)
        tile = Tile(*A.shape, n, *A.strides, 0, 0, out.strides[0], panels=FROM_PANELS)
        llvm.launch(made(tile), A, panels, out)
        assert (out == given).all()


# Products of pairs of small matrices: exact where NumPy is, edges of vectors, matrices that lie anyhow.

DTYPES = ["f8", "f4", "c16", "c8", "i8", "i4", "u2", "i1"]
SIZES = [(1, 1, 1), (2, 2, 2), (3, 3, 3), (4, 4, 4), (3, 4, 1), (1, 5, 7), (5, 6, 3), (9, 2, 13), (7, 16, 5),
         (16, 16, 16), (16, 1, 1), (33, 4, 4), (3, 32, 11)]
COUNT = 5


def layout(X):
    return Layout(X.shape, X.strides)


def run_pairs(llvm, A, B, out):
    pairs = pair_strides(layout(A), layout(B), layout(out), out.itemsize)
    made = llvm.pairs(A.dtype, pairs)
    llvm.launch(made(pairs), A, B, out)
    return out


def numbers(rng, shape, dtype):
    found = rng.integers(-9, 9, shape)
    return (found + 1j * rng.integers(-9, 9, shape) if dtype[0] == "c" else found).astype(dtype)


def stack_layouts(X):
    """The same stack, lying otherwise."""
    gap = np.zeros((len(X), X.shape[1], X.shape[2] + 3), X.dtype)
    gap[:, :, :X.shape[2]] = X
    far = np.zeros((len(X), 2 * X.shape[1], 2 * X.shape[2]), X.dtype)
    far[:, ::2, ::2] = X[:, ::-1, ::-1]
    return [X, np.ascontiguousarray(X.transpose(0, 2, 1)).transpose(0, 2, 1), gap[:, :, :X.shape[2]],
            far[:, ::2, ::2][:, ::-1, ::-1], np.asfortranarray(X), np.broadcast_to(X[1], X.shape)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", SIZES)
def test_pair_products_of_whole_numbers_are_exact(llvm, sizes, dtype):
    m, k, n = sizes
    rng = np.random.default_rng(m + k + n)
    lefts = stack_layouts(numbers(rng, (COUNT, m, k), dtype))
    rights = stack_layouts(numbers(rng, (COUNT, k, n), dtype))
    chosen = [(i, 0) for i in range(6)] + [(0, j) for j in range(1, 6)] if dtype == "f8" else [(0, 0)]
    for i, j in [*chosen, (1, 1), (3, 3)]:
        room = np.full((COUNT + 2, m, n), 7, dtype)
        assert (run_pairs(llvm, lefts[i], rights[j], room[1:-1]) == lefts[i] @ rights[j]).all()
        assert (room[[0, -1]] == 7).all()


@pytest.mark.parametrize("dtype", ["f8", "c8", "i2"])
def test_stacks_of_stacks_and_lone_matrices(llvm, dtype):
    rng = np.random.default_rng(1)
    A, B = numbers(rng, (4, 6, 3, 5), dtype), numbers(rng, (4, 6, 5, 2), dtype)
    for X, Y in ((A, B), (A[:, ::-1], B), (A[::-1], B), (A[0, 0], B), (A, B[0, 0]), (A[0], B), (A, B[:, :1]),
                 (A[:, :1], B[:1]), (A[0, 0, 0], B), (A, B[0, 0, :, 0]), (A.swapaxes(2, 3), A)):
        wanted = X @ Y
        assert (run_pairs(llvm, X, Y, np.full(wanted.shape, 7, dtype)) == wanted).all()


def test_stacks_that_no_two_loops_reach():
    X = np.zeros((4, 6, 5, 3, 3))
    out = layout(X)
    assert pair_strides(layout(X), layout(X), out, 8) is not None
    assert pair_strides(layout(X), layout(X[:, :, :1]), out, 8) is None
    assert pair_strides(layout(X), layout(X), layout(X.copy("F")), 8) is None


def test_infinities_and_nans_are_those_of_numpy(llvm):
    rng = np.random.default_rng(2)
    values = np.array([0.0, -0.0, 1.0, np.inf, -np.inf, np.nan, -3.0])
    for sizes in ((2, 2, 2), (3, 3, 3), (4, 4, 5), (2, 9, 3)):
        m, k, n = sizes
        A, B = rng.choice(values, (200, m, k)), rng.choice(values, (200, k, n))
        A[::3], B[::4] = 0.0, -0.0
        with np.errstate(all="ignore"):
            wanted = np.zeros((200, m, n))
            for i in range(k):
                wanted += A[:, :, i, None] * B[:, i, None, :]
        made = run_pairs(llvm, A, B, np.empty((200, m, n)))
        same = (made == wanted) & (np.signbit(made) == np.signbit(wanted)) | np.isnan(made) & np.isnan(wanted)
        assert same.all()


def test_a_pair_does_not_depend_on_its_neighbours(llvm):
    rng = np.random.default_rng(3)
    A, B = rng.normal(size=(9, 7, 13)), rng.normal(size=(9, 13, 6))
    whole = run_pairs(llvm, A, B, np.empty((9, 7, 6)))
    for i in range(9):
        assert (run_pairs(llvm, A[i:i + 1], B[i:i + 1], np.empty((1, 7, 6)))[0] == whole[i]).all()


def test_how_a_matrix_lies():
    assert lies((32, 8), (3, 4), 8) == "c" and lies((8, 24), (3, 4), 8) == "t"
    assert lies((40, 8), (3, 4), 8) == "r" and lies((40, 16), (3, 4), 8) == "s" == lies((0, 0), (3, 4), 8)
    assert lies((99, 8), (1, 4), 8) == "c" and lies((8, 99), (3, 1), 8) == "c"
    assert lies((99, 24), (1, 4), 8) == "s" and lies((24, 99), (4, 1), 8) == "r"


# Narrow rows that lie column by column: products like those row by row, NumPy's indices of extremes.

NARROW_DTYPES = ["f8", "f4"]
ROWS = [1, 3, 7, 8, 9, 17, 31, 33, 67]
rng = np.random.default_rng(11)


@pytest.fixture(scope="module", params=[None, *RUNS], ids=lambda t: t.cpu if t else "host")
def narrow_llvm(request: pytest.FixtureRequest) -> LlvmBackend:
    return LlvmBackend(launch=drive, threads=1, target=request.param) if request.param else BACKEND


@pytest.mark.parametrize("dtype", NARROW_DTYPES)
def test_products_have_the_bits_of_those_row_by_row(narrow_llvm, dtype):
    for rows in ROWS:
        for length, columns in ((1, 2), (8, 9), (27, 32)):
            X = rng.normal(size=(rows, length + 2)).astype(dtype)[:, 1:1 + length]
            V = rng.normal(size=(length, columns + 1)).astype(dtype)[:, :columns]
            sizes = rows, length, X.strides[0], V.strides[0]
            along, down = np.empty((rows, columns), dtype), np.full((columns * rows + 2,), 7, dtype)
            made, other = (
                narrow_llvm.product(form, X.dtype, columns) for form in ("dot", COLUMNWISE_PREFIX + "dot"))
            narrow_llvm.launch(made(*sizes), X, V, along)
            narrow_llvm.launch(other(*sizes), X, V, down[1:-1])
            assert (down[1:-1].reshape(columns, rows).T == along).all(), (rows, length, columns)
            assert down[0] == down[-1] == 7


@pytest.mark.parametrize("form", ["argmin", "argmax"])
@pytest.mark.parametrize("dtype", NARROW_DTYPES)
def test_the_first_extreme_and_the_first_nan(narrow_llvm, dtype, form):
    for rows in ROWS:
        for columns in (1, 2, 5, 32):
            X = rng.integers(-2, 3, (rows, columns)).astype(dtype)
            X[rng.random(X.shape) < 0.2] = np.nan
            X[rng.random(X.shape) < 0.1] = np.inf
            room, lying = np.full(rows + 2, -7, np.intp), np.asfortranarray(X)
            made = narrow_llvm.product(COLUMNWISE_PREFIX + form, X.dtype, 1)
            narrow_llvm.launch(made(rows, columns, 0, 0), lying, lying, room[1:-1])
            assert room[1:-1].tolist() == getattr(X, form)(axis=1).tolist()
            assert room[0] == room[-1] == -7


def nearest(X, C):
    D = (X ** 2).sum(axis=1)[:, None] - 2 * X @ C.T + (C ** 2).sum(axis=1)
    return D.argmin(axis=1), D.min(axis=1)


def odds(X, C):
    P = X @ C.T
    return P.max(axis=1, keepdims=True), (P * P + 1.0).sum(axis=1)


def scores(X, C):
    P = X @ C.T
    return P, P.argmax(axis=1)


def even(X, C):
    return (X @ C.T + 1.0).sum(axis=1)


@pytest.mark.parametrize(("function", "centres", "upright"), [
    (nearest, 10, True), (odds, 5, True), (nearest, 40, False), (scores, 10, False), (even, 8, False)])
def test_values_that_only_rows_are_asked_of_lie_so(monkeypatch, function, centres, upright):
    found = []
    whole = binding.column_major_values
    monkeypatch.setattr(binding, "column_major_values", lambda *a: found.append(whole(*a)) or found[-1])
    X, C = rng.normal(size=(9001, 12)), rng.normal(size=(centres, 12))
    X[5000, 3] = np.nan
    made = jitla.jit(function, compile="sync")(X, C)
    assert any(found) == upright
    for got, wanted in zip(made, function(X, C), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-10)


# Where rows have their extremes: NumPy's indices at every length, for ties, zeros, NaN and infinities.

EXTREMES_DTYPES = ["f8", "f4", *(kind + size for kind in "iu" for size in "8421"), "?"]
LENGTHS = [*range(1, 36), *(n + d for n in (GROUP, STRETCH, 2 * STRETCH) for d in (-1, 0, 1, 5))]
extremes_rng = np.random.default_rng(8)


@pytest.fixture(scope="module", params=[None, *RUNS], ids=lambda t: t.cpu if t else "host")
def extremes_llvm(request: pytest.FixtureRequest) -> LlvmBackend:
    return LlvmBackend(launch=drive, threads=1, target=request.param) if request.param else BACKEND


def check(llvm, X):
    """Compare both forms with NumPy's, and see that nothing else is written."""
    for form in ("argmin", "argmax"):
        room = np.full(len(X) + 2, -7, np.intp)
        made = llvm.product(form, X.dtype, 1)
        llvm.launch(made(len(X), X.shape[1], X.strides[0], 0), X, X, room[1:-1])
        assert room[1:-1].tolist() == getattr(X, form)(axis=1).tolist(), (form, X.dtype, X.shape)
        assert room[0] == room[-1] == -7


@pytest.mark.parametrize("dtype", EXTREMES_DTYPES)
def test_every_length(extremes_llvm, dtype):
    for n in LENGTHS:
        X = np.abs(extremes_rng.normal(0.0, 50.0, (6, n + n % 3))).astype(dtype)[:, :n]
        check(extremes_llvm, X)
        check(extremes_llvm, X[:1])


@pytest.mark.parametrize("dtype", EXTREMES_DTYPES)
def test_the_first_of_several(extremes_llvm, dtype):
    for n in LENGTHS:
        check(extremes_llvm, extremes_rng.integers(0, 3, (9, n)).astype(dtype))
        check(extremes_llvm, np.ones((2, n), dtype))


@pytest.mark.parametrize("dtype", EXTREMES_DTYPES)
def test_wherever_it_is(extremes_llvm, dtype):
    for n in (3, 9, 33, 70, STRETCH + 3):
        least = np.ones((n, n), dtype)
        np.fill_diagonal(least, 0)
        check(extremes_llvm, least)
        check(extremes_llvm, (1 - least.astype("i1")).astype(dtype))


@pytest.mark.parametrize("dtype", ["i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1"])
def test_the_limits_of_integers(extremes_llvm, dtype):
    info = np.iinfo(dtype)
    for n in (2, 5, 40, 600):
        X = np.full((3, n), info.max, dtype)
        X[1] = info.min
        X[2, n // 2] = info.min
        check(extremes_llvm, X)


@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_the_first_nan_wins(extremes_llvm, dtype):
    for n in LENGTHS:
        X = extremes_rng.normal(size=(n + 3, n)).astype(dtype)
        X[np.arange(n), np.arange(n)] = np.nan
        X[np.arange(n), np.arange(n)[::-1]] = -np.nan
        X[n], X[n + 1] = np.nan, -np.inf
        X[n + 1, -1] = np.nan
        check(extremes_llvm, X)


@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_zeros_are_equal_and_infinities_numbers(extremes_llvm, dtype):
    for n in LENGTHS:
        X = np.zeros((6, n), dtype)
        X[0, n // 2:] = -0.0
        X[1, :n // 2] = -0.0
        X[2], X[3] = np.inf, -np.inf
        X[4, n // 2], X[5, n // 2] = -np.inf, np.inf
        check(extremes_llvm, X)


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "u4"])
def test_stretches_whose_indices_are_kept(extremes_llvm, dtype):
    for n in (KEPT - 1, KEPT, KEPT + 1, 2 * KEPT + 3):
        X = np.full((8, n), 3, dtype)
        for i, at in enumerate((0, KEPT - 2, KEPT - 1, KEPT, n - 1)):
            X[i, at % n] = 1
            X[i, (at + 5) % n] = 5
        X[5, [7, -1]] = 1, 1
        X[6, [n // 3, n // 2]] = 5, 5
        if dtype[0] == "f":
            X[7, [n // 2, n - 1]] = np.nan, np.nan
        check(extremes_llvm, X)


@pytest.mark.parametrize("form", ["argmin", "argmax"])
def test_code_for_wider_vectors_is_emitted(form):
    far = LlvmBackend(launch=drive, threads=1, target=V4)
    for dtype in EXTREMES_DTYPES:
        assert len(far.jit.compile(extreme_text(form, np.dtype(dtype), V4))) > 500, dtype
