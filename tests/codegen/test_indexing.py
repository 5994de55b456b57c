"""Loops over indices, masks and labels: NumPy's bits, or a refusal."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from jitla.codegen import LlvmBackend, lacking, level_target
from jitla.codegen.indexing.kernels import MOST, Indexed, IndexThresholds, Located
from tests.codegen.test_backend import RUNS

# Loops that read, keep, count and add up where indices, masks and labels say: NumPy's bits, or nothing.

# Around the turns, blocks, units of the loops, and where several threads begin.
SIZES = (1, 9, 64, 1025, 16384, IndexThresholds.min_parallel_elements + 17, 100_003)
INDICES = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8")
ELEMENTS = ("?", "u1", "i2", "f4", "f8", "c16", "M8[s]")
BACKEND = LlvmBackend()


@pytest.fixture(scope="module", params=[1, 3])
def loops(request: pytest.FixtureRequest) -> Indexed:
    return BACKEND.indexed(request.param)


def identical(found, wanted):
    """Same bytes, dtype, shape and strides, in memory of its own."""
    assert type(found) is np.ndarray and found.dtype == wanted.dtype
    assert (found.shape, found.strides) == (wanted.shape, wanted.strides)
    assert found.tobytes() == wanted.tobytes()
    assert (found.flags.owndata, found.flags.writeable) == (wanted.flags.owndata, wanted.flags.writeable)


def table_of(kind, shape, rng):
    """An array of any dtype; booleans are 0 and 1 in memory."""
    count = int(np.prod(shape))
    if kind == "?":
        return (rng.random(shape) < 0.5).reshape(shape)
    return rng.integers(0, 255, count * np.dtype(kind).itemsize, "u1").view(kind).reshape(shape)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", INDICES)
def test_elements_of_a_table(loops, kind, size):
    rng = np.random.default_rng(size)
    for length in (1, 5, 128, 300):
        table = rng.random(length)
        least = -min(length, 128) if kind[0] == "i" else 0
        index = rng.integers(least, min(length, 127), size).astype(kind)
        identical(loops.take(table, index), table[index])
        index[index < 0] = 0
        identical(loops.take(table, index), table[index])


@pytest.mark.parametrize("kind", ELEMENTS)
def test_elements_of_every_size(loops, kind):
    rng = np.random.default_rng(0)
    for shape in ((100,), (100, 1), (100, 3), (100, 2, 2), (100, 7, 5)):
        table, mask = table_of(kind, shape, rng), rng.random(100) < 0.5
        for rows in ((1000,), (10, 100), (1, 50), (50, 1)):
            index = rng.integers(-100, 100, rows)
            identical(loops.take(table, index), table[index])
        identical(loops.compress(table, mask), table[mask])


@pytest.mark.parametrize("kind", INDICES)
def test_an_index_that_names_nothing_is_left_to_numpy(loops, kind):
    for size in (5, 3000, 100_000):
        below = ((100, -101), (3, -4)) if kind[0] == "i" else ()
        for length, bad in ((100, 100), (100, 127), (1, 1), *below):
            index = np.zeros(size, kind)
            for at in (0, size // 2, size - 1):
                index[:] = 0
                index[at] = bad
                assert loops.take(np.ones(length), index) is None
                assert loops.take(np.ones((length, 3)), index) is None


def test_large_unsigned_indices_wrap_as_in_numpy(loops):
    table, index = np.arange(5.0), np.array([2**64 - 1, 0, 2**64 - 5], "u8")
    identical(loops.take(table, index), table[index])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("share", [0.0, 0.002, 0.1, 0.5, 0.9, 1.0])
def test_what_a_mask_keeps(loops, size, share):
    rng = np.random.default_rng(size)
    mask = rng.random(size) < share
    for kind in ("u1", "i2", "f4", "f8", "c16"):
        x = table_of(kind, (size,), rng)
        identical(loops.compress(x, mask), x[mask])
    clustered = np.sort(mask)
    identical(loops.compress(x, clustered), x[clustered])
    for kind, width in (("u1", 3), ("f8", 3), ("f4", 50)):
        rows = table_of(kind, (size, width), rng)
        identical(loops.compress(rows, mask), rows[mask])
        identical(loops.compress(rows, clustered), rows[clustered])
    if size % 3 == 0:
        square, part = x.reshape(3, -1), mask.reshape(3, -1)
        identical(loops.compress(square, part), square[part])


@pytest.mark.parametrize("make", [
    lambda x: x[::2], lambda x: x[::-1], lambda x: x.astype(">f8"), lambda x: x.astype(object),
    lambda x: x.view(np.recarray), lambda x: x.tolist(), lambda x: np.asfortranarray(x.reshape(4, -1)),
    lambda x: np.frombuffer(b"x" + x.tobytes(), "u1")[1:].view("f8"), lambda x: x[:0],
])
def test_other_arrays_are_left_to_numpy(loops, make):
    x = make(np.arange(64.0))
    mask = np.ones(np.shape(x), bool)
    assert loops.compress(x, mask) is None or np.asarray(x).flags.c_contiguous and len(x) == 4
    assert loops.take(x, np.zeros(5, int)) is None
    assert loops.histogram(x, 3, None) is None
    assert loops.bincount(np.zeros(np.shape(x), int).ravel(), x, 0) is None
    assert loops.add_at(x, np.zeros(len(x), int), np.ones(1)) is False if isinstance(x, np.ndarray) else True


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", INDICES[:-1])
def test_bincount_gives_numpys_counts(loops, kind, size):
    rng = np.random.default_rng(size)
    for bins in (1, 6, 100, 1023, 1025, 70_000):
        labels = rng.integers(0, min(bins, np.iinfo(kind).max), size).astype(kind)
        for minlength in (0, 1, 6, bins, bins + 3):
            found, wanted = loops.bincount(labels, None, minlength), np.bincount(labels, None, minlength)
            if len(wanted) <= 1 << 16 or found is not None:  # a table of so many would not be worth it
                identical(found, wanted)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["f8", "f4", "?", "i1", "u2", "i4", "u4"])
def test_weights_are_added_in_order(loops, kind, size):
    rng = np.random.default_rng(size)
    weights = (rng.standard_normal(size) * 10.0 ** rng.integers(-9, 9, size)).astype("f8")
    weights = (weights > 0) if kind == "?" else weights.astype(kind) if kind[0] == "f" else \
        rng.integers(np.iinfo(kind).min, np.iinfo(kind).max, size, kind)
    for bins in (1, 6, 1000):
        labels = rng.integers(0, bins, size)
        for minlength in (0, bins):
            found = loops.bincount(labels, weights, minlength)
            if found is None:  # sums of such integers may not be exact
                assert size * 2.0 ** (8 * weights.itemsize) >= 2**53
            else:
                identical(found, np.bincount(labels, weights, minlength))


def test_labels_without_a_place_are_left_to_numpy(loops):
    for labels in ([0, -1], [-5], [2**62], [2**63 - 1]):
        many = np.array(labels * 40_000)
        assert loops.bincount(many, None, 0) is None
        assert loops.bincount(many, None, 4) is None
        assert loops.bincount(many, many * 0.5, 4) is None
    assert loops.bincount(np.array([0, 1], "u8"), None, 0) is None
    assert loops.bincount(np.zeros((2, 2), int), None, 0) is None
    assert loops.bincount(np.zeros(2, int), np.zeros(3), 0) is None


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["f8", "f4"])
def test_histograms(loops, kind, size):
    rng = np.random.default_rng(size)
    uniform = rng.random(size).astype(kind)
    edged = (rng.integers(0, 11, size) / 10).astype(kind)
    wild = (rng.standard_normal(size) * 1e3).astype(kind)
    wild[::7] = np.inf
    wild[::11] = -np.inf
    wild[::13] = np.nan
    for x in (uniform, edged, edged.reshape(1, -1), wild):
        for bins in (1, 2, 3, 10, 100, 1000):
            for ends in ((0, 1), (0.0, 1.0), (0.1, 0.7), (-0.3, 2.0), (0.2, 0.2 + 1e-6), [-1e3, 1e3]):
                found = loops.histogram(x, bins, ends)
                if found is None:  # so many bins have no width
                    with pytest.raises(ValueError, match="Too many bins"):
                        np.histogram(x, bins, ends)
                    continue
                wanted, edges = np.histogram(x, bins, ends)
                identical(found[0], wanted)
                identical(found[1], edges)
    if size > 2 and kind == "f8":
        found = loops.histogram(uniform, 17, (np.float64(0.25), np.float64(0.75)))
        identical(found[0], np.histogram(uniform, 17, (0.25, 0.75))[0])
    for x in (uniform, edged):
        found = loops.histogram(x, 10, None)
        if x.min() == x.max():
            assert found is None
        else:
            identical(found[0], np.histogram(x, 10)[0])
            identical(found[1], np.histogram(x, 10)[1])


def test_edges_are_the_callers_to_change(loops):
    x = np.random.default_rng(0).random(3000)
    for ends in ((0, 1), (0.0, 1.0), (False, 1), (0, 1)):
        counts, edges = loops.histogram(x, 7, ends)
        identical(edges, np.histogram(x, 7, ends)[1])
        identical(counts, np.histogram(x, 7, ends)[0])
        edges[:] = counts[:] = 5


def test_values_next_to_edges_are_where_numpy_puts_them(loops):
    for kind in ("f8", "f4"):
        for bins, ends in ((10, (0.0, 1.0)), (7, (0.1, 0.9)), (1000, (-3.0, 5.0)), (49, (1e-3, 1e3))):
            edges = np.histogram_bin_edges(np.zeros(0, kind), bins, ends).astype(kind)
            x = np.concatenate([edges, np.nextafter(edges, kind == "f8" and np.inf or np.float32(np.inf)),
                                np.nextafter(edges, edges.dtype.type(-np.inf))]).astype(kind)
            identical(loops.histogram(x, bins, ends)[0], np.histogram(x, bins, ends)[0])
            identical(loops.histogram(x, bins, None)[0], np.histogram(x, bins)[0])
            few = np.random.default_rng(bins).uniform(*ends, 9000).astype(kind)
            few[::700] = np.resize(x, len(few[::700]))  # some blocks have such values, some have none
            identical(loops.histogram(few, bins, ends)[0], np.histogram(few, bins, ends)[0])
            far = few + few.dtype.type(1e11 if kind == "f8" else 1e2)  # edges are rounded more than values
            identical(loops.histogram(far, bins, None)[0], np.histogram(far, bins)[0])


@pytest.mark.parametrize("ends", [(1.0, 0.0), (0.0, np.inf), (np.nan, 1.0), (2.0, 2.0), (-1.7e308, 1.7e308)])
def test_ranges_that_are_none_are_left_to_numpy(loops, ends):
    assert loops.histogram(np.linspace(0.0, 3.0, 99), 5, ends) is None
    assert loops.histogram(np.full(99, np.nan), 5, None) is None
    assert loops.histogram(np.linspace(0.0, 3.0, 99), 0, (0.0, 1.0)) is None
    assert loops.histogram(np.linspace(0.0, 3.0, 99), 60_000, (1.0, 1.0 + 1e-15)) is None


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["f8", "f4", "i8", "i4", "u1"])
def test_values_added_where_indices_say(loops, kind, size):
    rng = np.random.default_rng(size)
    for length in (1, 7, min(1000, 4 * size)):
        for index in ("i8", "u2", "i1"):
            near = min(length, 100)
            where = rng.integers(-near if index[0] == "i" else 0, near, size).astype(index)
            start = (rng.random(length) * 100).astype(kind)
            for values in ((rng.random(size) * 100).astype(kind), np.array(3, kind)):
                found, wanted = start.copy(), start.copy()
                assert loops.add_at(found, where, values) is (length <= 4 * size)
                np.add.at(wanted, where, values)
                assert length > 4 * size or found.tobytes() == wanted.tobytes()


def test_large_targets_are_left_to_numpy():
    loops = BACKEND.indexed(1, thresholds=IndexThresholds(max_table_elements=100))
    where = np.arange(100)
    assert loops.add_at(np.zeros(100), where, np.array(1.0))
    target = np.zeros(101)
    assert not loops.add_at(target, where, np.array(1.0)) and not target.any()


# Floats are added in several runs, however few there are.
IN_RUNS = IndexThresholds(min_parallel_floats=0)


def sums_of(threads, target, where, given, ordered=False):
    """What every way to add up leaves, on so many threads."""
    loops = BACKEND.indexed(threads, ordered, IN_RUNS)
    found = target.copy()
    assert loops.add_at(found, where, given)
    sums = [found]
    if where.dtype != np.uint64 and where.min() >= 0 and given.ndim:
        sums += [loops.bincount(where, given, m) for m in (0, len(target))] + [loops.bincount(where, None, 0)]
    return sums


@pytest.mark.parametrize("kind", ["f8", "f4", "i4", "u1"])
@pytest.mark.parametrize("length", [1, 7, 1000, 5003])
def test_runs_are_added_up_in_a_fixed_order(kind, length):
    rng = np.random.default_rng(length)
    size = 100_003
    for index in ("i8", "i2", "u4"):
        where = rng.integers(-length if index[0] == "i" else 0, length, size).astype(index)
        values = (rng.random(size) * 100).astype(kind)
        target = (rng.random(length) * 100).astype(kind)
        for labels in (where, np.abs(where) % length):
            for given in (values, values[:1].reshape(())):
                wanted = target.copy()
                np.add.at(wanted, labels, given)
                first, *others = (sums_of(threads, target, labels, given) for threads in (1, 2, 3, 7))
                for each in others:
                    assert [x.tobytes() for x in each] == [x.tobytes() for x in first]
                bound = size * np.finfo(kind).eps if kind[0] == "f" else 0
                np.testing.assert_allclose(first[0], wanted, rtol=bound)
                ordered = sums_of(2, target, labels, given, True)
                assert ordered[0].tobytes() == wanted.tobytes()
                for found in ordered[1:3]:
                    identical(found, np.bincount(labels, given, length))
                for found in (*ordered[3:], *first[3:]):
                    identical(found, np.bincount(labels))


def test_runs_keep_what_is_not_rounded():
    rng = np.random.default_rng(3)
    where = rng.integers(0, 90, 50_001)
    zeros = np.full(100, -0.0)
    for threads in (1, 2):
        loops = BACKEND.indexed(threads, thresholds=IN_RUNS)
        for given in (np.zeros(50_001), np.full(50_001, -0.0), rng.integers(-99, 99, 50_001) * 0.5):
            found, wanted = zeros.copy(), zeros.copy()
            assert loops.add_at(found, where, given)
            np.add.at(wanted, where, given)
            assert found.tobytes() == wanted.tobytes()
            identical(loops.bincount(where, given, 0), np.bincount(where, given))
        big = np.where(rng.random(50_001) < 0.5, -1e308, 1e308)
        odd = np.where(rng.random(50_001) < 0.001, np.nan, np.where(rng.random(50_001) < 0.01, np.inf, 1.0))
        for given in (big, odd, np.where(odd == 1, -np.inf, odd)):  # infinities depend on the order
            found = zeros.copy()
            if loops.add_at(found, where, given):
                wanted = zeros.copy()
                np.add.at(wanted, where, given)
                np.testing.assert_array_equal(found, wanted)
            else:
                assert found.tobytes() == zeros.tobytes()
            np.testing.assert_array_equal(loops.bincount(where, given, 0), np.bincount(where, given))


def test_an_index_that_names_nothing_in_some_run_leaves_the_target():
    rng = np.random.default_rng(4)
    where, values = rng.integers(0, 1000, 50_003), rng.random(50_003)
    for at in (0, 13_000, 50_002):
        for bad in (1000, -1001, 2**62, -2**63):
            wrong = where.copy()
            wrong[at] = bad
            target = rng.random(1000)
            before = target.copy()
            for threads in (1, 3):
                assert not BACKEND.indexed(threads, thresholds=IN_RUNS).add_at(target, wrong, values)
                assert target.tobytes() == before.tobytes()


@pytest.mark.parametrize("kind", ["?", "u1", "i1"])
def test_bytes_that_bytes_name(loops, kind):
    rng = np.random.default_rng(6)
    for length in (1, 2, 17, 128, 255, 256, 300):
        table = table_of(kind, (length,), rng)
        for size in (1, 15, 16, 63, 64, 65, 127, 129, 1000, 100_003):
            image = rng.integers(0, min(length, 256), size, "u1")
            identical(loops.take(table, image), table[image])
            identical(loops.take(table.reshape(-1, 1), image), table.reshape(-1, 1)[image])
            if length < 256:
                for at in (0, size // 2, size - 1):
                    wrong = image.copy()
                    wrong[at] = rng.integers(length, 256)
                    assert loops.take(table, wrong) is None
    every = np.arange(256, dtype="u1").reshape(16, 16)
    identical(loops.take(table, every), table[every])


@pytest.mark.skipif(not RUNS, reason="levels of x86-64")
@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_every_shuffle_looks_up_and_keeps_the_same(level):
    target = level_target(level)
    if lacking(target):
        pytest.skip("this processor has none")
    loops = LlvmBackend(launch=BACKEND.launch, threads=1, target=target).indexed(1)
    rng = np.random.default_rng(7)
    table, image = rng.integers(0, 256, 256, "u1"), rng.integers(0, 256, 5003, "u1")
    identical(loops.take(table, image), table[image])
    identical(loops.take(table[:200], image % 200), table[image % 200])
    assert loops.take(table[:200], image) is None
    for kind, share in itertools.product(("u1", "i2", "f4", "f8", "c16"), (0.002, 0.5)):
        x, mask = table_of(kind, (33_003,), rng), rng.random(33_003) < share
        identical(loops.compress(x, mask), x[mask])


def test_what_lies_apart_is_added_too(loops):
    rng = np.random.default_rng(8)
    table, where = rng.random((40, 3)), rng.integers(-40, 40, (5000, 2))
    given = rng.standard_normal((5000, 4))
    for target in (table[:, 1], table[:, 1].copy()):
        for index in (where[:, 0], where[:, 1].copy()):
            for values in (given[:, 3], given[:, 0].copy(), given[7, 2].reshape(())):
                before, wanted = table.copy(), target.copy()
                np.add.at(wanted, index, values)
                assert loops.add_at(target, index, values)
                assert target.tobytes() == wanted.tobytes()
                assert np.array_equal(table[:, [0, 2]], before[:, [0, 2]])
    half, bad = np.zeros(80)[::2], np.full(5000, 40)
    assert not loops.add_at(half, bad, given[:, 0]) and not half.any()
    for target, index, values in ((half[::-1], where[:, 0], given[:, 0]), (half, where[::-1, 0], given[:, 0]),
                                  (half, where[:, 0], given[::-1, 0]), (half, where, given[:, :2])):
        assert not loops.add_at(target, index, values)  # NumPy may go the other way
    assert not half.any()


def test_what_cannot_be_added_leaves_the_target_as_it_was(loops):
    target, index = np.arange(10.0), np.arange(3000) % 10
    before = target.copy()
    bad = index.copy()
    bad[2999] = 10
    most = np.full(3000, 1e308)
    assert not loops.add_at(target, bad, np.ones(3000))
    assert not loops.add_at(target, -1 - bad, np.ones(3000))
    assert not loops.add_at(target, index, most)  # NumPy may warn
    assert not loops.add_at(target, index, np.where(np.arange(3000) // 10 % 2, np.inf, -np.inf))
    assert not loops.add_at(target, index, target[:1].reshape(()))
    assert not loops.add_at(target, index, np.ones(3000, "f4"))
    assert not loops.add_at(target, index, np.ones(2999))
    whole = np.zeros(3000, np.int64)
    assert not loops.add_at(whole, whole, np.ones(3000, np.int64))
    assert np.array_equal(target, before) and not whole.any()
    target.flags.writeable = False
    assert not loops.add_at(target, index, np.ones(3000))


@pytest.mark.skipif(not RUNS, reason="levels of x86-64")
def test_other_processors_of_the_family_give_the_same_bits():
    rng = np.random.default_rng(5)
    x, table = rng.random(5000), rng.random(77)
    labels, mask = rng.integers(0, 77, 5000), rng.random(5000) < 0.3
    for target in RUNS:
        loops = LlvmBackend(launch=BACKEND.launch, threads=1, target=target).indexed(1)
        identical(loops.take(table, labels.astype("u1")), table[labels])
        identical(loops.compress(x, mask), x[mask])
        identical(loops.bincount(labels, x, 0), np.bincount(labels, x))
        identical(loops.bincount(labels, None, 0), np.bincount(labels))
        identical(loops.histogram(x, 10, (0.0, 1.0))[0], np.histogram(x, 10, (0.0, 1.0))[0])


@pytest.mark.parametrize("kind", ["f4", "f8", "i8", "u8"])
@pytest.mark.parametrize("shape", [(1, 5), (300, 1), (40, 7), (3, 1000), (50, 4100), (70, 5, 31)], ids=str)
def test_running_sums_down_columns(loops, shape, kind):
    x = np.random.default_rng(4).normal(size=shape) * 1000
    x[0].flat[0] = -0.0
    identical(loops.running(x.astype(kind)), np.cumsum(x.astype(kind), axis=0))


def test_running_sums_that_numpy_does(loops):
    x = np.ones((30, 40))
    for other in (x.T, x[:, ::2], x.astype("f2"), x.astype("i4"), x[0], x[:0], x > 0, [[1.0, 2.0]]):
        assert loops.running(other) is None
    x[3, 2], x[9, 2] = np.inf, -np.inf  # invalid: there is a warning
    assert loops.running(x) is None


# Positions that masks and indices stand for, and the extremes of labels: NumPy's, or nothing.

LOCATED_SIZES = (1, 7, 8, 63, 64, 65, 1025, 16384, 16385, 100_003)


@pytest.fixture(scope="module", params=[1, 3])
def located_loops(request: pytest.FixtureRequest) -> Located:
    return LlvmBackend().indexed(request.param)


@pytest.mark.parametrize("size", LOCATED_SIZES)
@pytest.mark.parametrize("kept", [0.0, 0.001, 0.03, 0.5, 0.97, 1.0])
def test_where_a_mask_is_true(located_loops, size, kept):
    mask = np.random.default_rng(size).random(size) < kept
    found = located_loops.positions(mask, size)
    assert found.dtype == np.int32 and np.array_equal(found, np.flatnonzero(mask))


@pytest.mark.parametrize("kind", INDICES)
@pytest.mark.parametrize("size", LOCATED_SIZES)
def test_which_elements_indices_name(located_loops, kind, size):
    rng = np.random.default_rng(size)
    for least in (0, -100 if kind[0] == "i" else 0):
        index = rng.integers(least, 100, size).astype(kind)
        found = located_loops.positions(index, 100)
        assert found.dtype == np.int32 and np.array_equal(found, np.arange(100)[index])
        index[size // 2] = 100
        assert located_loops.positions(index, 100) is None


def test_keys_that_are_left_to_numpy(located_loops):
    mask = np.ones(64, bool)
    for key, length in ((mask, 63), (mask.reshape(8, 8), 64), (mask[::2], 32), (np.ones(5), 5),
                        (np.zeros(0, int), 5), (np.zeros(5, int), 0), (np.zeros(5, int), MOST + 1)):
        assert located_loops.positions(key, length) is None
    assert located_loops.bounds(np.ones(3)) is None and located_loops.bounds(np.zeros(3, "u8")) is None
    assert located_loops.bounds(np.zeros(0, int)) is None
    assert located_loops.bounds(np.array([3, -1, 9])) == (-1, 9)


@pytest.mark.parametrize("target", RUNS, ids=lambda t: t.cpu)
def test_positions_on_every_processor(target):
    backend = LlvmBackend(target=target)
    rng = np.random.default_rng(0)
    for kept in (0.01, 0.5):
        mask = rng.random(40_000) < kept
        assert np.array_equal(backend.indexed(2).positions(mask, 40_000), np.flatnonzero(mask))
