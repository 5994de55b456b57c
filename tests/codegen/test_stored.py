"""Loops over stored positions: what their references say, on any number of threads, for any index."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from jitla.codegen import LlvmBackend
from jitla.codegen.sparse import kernels as stored
from jitla.codegen.sparse.kernels import (
    SERIAL,
    Stored,
)
from jitla.hops import lookup

# Rows and columns of matrices, and how many of their elements are stored: also more than one thread's share.
CASES = ((7, 5, 0.5), (300, 200, 0.1), (65, 1, 0.5), (1, 80, 0.4), (700, 900, 0.1))
BACKEND = LlvmBackend()


@pytest.fixture(scope="module", params=[1, 3])
def loops(request: pytest.FixtureRequest) -> Stored:
    return BACKEND.stored(request.param)


def matrix(m, n, density, dtype="f8", index="i4"):
    """Compressed rows of which some are empty and one is full."""
    dense = np.random.default_rng(m).random((m, n)).astype(dtype)
    dense[np.random.default_rng(n).random((m, n)) >= density] = 0
    dense[m // 2] = 1
    made = sp.csr_array(dense)
    return made.data, made.indices.astype(index), made.indptr.astype(index)


def test_some_cases_are_shared_among_threads():
    assert max(m * n * d for m, n, d in CASES) > SERIAL


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("index", ["i4", "i8"])
def test_elements_at_positions(loops, case, index):
    m, n, density = case
    _, columns, starts = matrix(m, n, density, index=index)
    for dtype in ("?", "i2", "f4", "f8", "c16"):
        x = np.random.default_rng(0).random((m, n)).astype(dtype)
        for given in (x, np.asfortranarray(x), x[::-1], np.repeat(x, 2, 1)[:, ::2]):
            found = loops.operator("sampled")(given, starts, columns)
            wanted = lookup("sampled").ref(given, starts, columns)
            assert found.dtype == x.dtype and np.array_equal(found, wanted)
        line = x[:, 0]
        found = loops.operator("by_row")(line, starts, columns)
        assert np.array_equal(found, lookup("by_row").ref(line, starts, columns))
        across = x[0] if len(x) else np.zeros(x.shape[1], x.dtype)
        found = loops.operator("by_column")(across, columns)
        assert np.array_equal(found, lookup("by_column").ref(across, columns))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("depth", [0, 1, 3, 4, 8, 17, 100])
def test_products_at_positions(loops, case, dtype, depth):
    m, n, density = case
    _, columns, starts = matrix(m, n, density)
    rng = np.random.default_rng(depth)
    a, b = rng.random((m, depth)).astype(dtype), rng.random((depth, n)).astype(dtype).T
    found = loops.operator("sampled_product")(a, b, starts, columns)
    wanted = lookup("sampled_product").ref(a.astype("f8"), b.astype("f8"), starts, columns)
    assert found.dtype == a.dtype
    np.testing.assert_allclose(found, wanted, rtol=(depth + 1) * np.finfo(dtype).eps)


def test_products_do_not_depend_on_threads():
    _, columns, starts = matrix(700, 900, 0.1)
    a, b = (np.random.default_rng(k).random((n, 37)) for k, n in enumerate((700, 900)))
    found = [BACKEND.stored(t).operator("sampled_product")(a, b, starts, columns) for t in (1, 2, 7)]
    assert found[0].tobytes() == found[1].tobytes() == found[2].tobytes()


def test_columns_need_no_order(loops):
    _, columns, starts = matrix(300, 200, 0.1)
    mixed = np.concatenate([columns[a:b][::-1] for a, b in zip(starts, starts[1:], strict=False)])
    a, b = (np.random.default_rng(k).random((n, 9000)) for k, n in enumerate((300, 200)))
    found = loops.operator("sampled_product")(a, b, starts, mixed)
    np.testing.assert_allclose(found, lookup("sampled_product").ref(a, b, starts, mixed), rtol=1e-12)


@pytest.mark.parametrize("wrong", [200, -1, 1 << 30])
def test_what_lies_outside_is_not_read(loops, wrong):
    _, columns, starts = matrix(300, 200, 0.1)
    x = np.random.default_rng(0).random((300, 200))
    bad = columns.copy()
    bad[77] = wrong
    assert loops._sampled(x, starts, bad) is None
    assert loops._sampled_product(x, x[:200].copy(), starts, bad) is None
    beyond = starts.copy()
    beyond[5] = max(wrong, 1 << 20) if wrong > 0 else wrong
    assert loops._by_row(x[:, 0], beyond, columns) is None
    assert loops._by_column(x[0], bad) is None


@pytest.mark.parametrize("index", ["i4", "i8"])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("depth", [1, 7, 8, 37, 100])
def test_tiles_change_no_bits(loops, monkeypatch, index, dtype, depth):
    _, columns, starts = matrix(90, 300, 0.2, index=index)
    mixed = columns.copy()
    for row in range(0, 90, 3):  # some rows have their columns in another order
        np.random.default_rng(row).shuffle(mixed[starts[row]:starts[row + 1]])
    a, b = (np.random.default_rng(k).random((n, depth)).astype(dtype) for k, n in enumerate((90, 300)))
    found = set()
    for near, least in ((1 << 30, 1 << 30), (1 << 30, 0), (20 * 64, 0), (100 * 64, 0)):
        monkeypatch.setattr(stored, "NEAR", near)
        monkeypatch.setattr(stored, "PER_TILE", least)
        monkeypatch.setattr(stored, "PER_COPY", 0)
        found.add(loops._sampled_product(a, b, starts, mixed).tobytes())
        bad = mixed.copy()
        for wrong in (300, -1, -300, 1 << 30):
            bad[1234] = wrong
            assert loops._sampled_product(a, b, starts, bad) is None
    assert len(found) == 1
    wanted = lookup("sampled_product").ref(a.astype("f8"), b.astype("f8"), starts, mixed)
    bound = (depth + 1) * np.finfo(dtype).eps
    np.testing.assert_allclose(np.frombuffer(found.pop(), dtype), wanted, rtol=bound)


def test_many_entries_are_cut_into_units_whatever_the_threads(monkeypatch):
    _, columns, starts = matrix(700, 900, 0.1)
    monkeypatch.setattr(stored, "UNIT", 1000)
    a, b = (np.random.default_rng(k).random((n, 37)) for k, n in enumerate((700, 900)))
    found = BACKEND.stored(1).operator("sampled_product")(a, b, starts, columns)
    wanted = lookup("sampled_product").ref(a, b, starts, columns)
    np.testing.assert_allclose(found, wanted, rtol=1e-13)


def test_factors_may_differ_in_type(loops):
    _, columns, starts = matrix(300, 200, 0.1)
    a, b = np.random.default_rng(0).random((300, 9)).astype("f4"), np.random.default_rng(1).random((200, 9))
    found = loops._sampled_product(a, b, starts, columns)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, lookup("sampled_product").ref(a, b, starts, columns), rtol=1e-14)
