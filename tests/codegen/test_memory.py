"""The memory handler: alignment, reuse, resize, pickles, threads, limits; `empty`."""

import pickle
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tests.runtime.kernels  # noqa: F401  (loads the native run time)
from jitla import runtime

F8 = np.dtype("f8")
MB = 1 << 20


@pytest.fixture(autouse=True)
def _nothing_kept():
    runtime.set_reuse_limit(0)
    runtime.set_reuse_limit(64 * MB)
    yield
    runtime.set_reuse_limit(256 * MB)


def handler(array: np.ndarray) -> str:
    return np._core.multiarray.get_handler_name(array)


@pytest.mark.parametrize("nbytes", [65536, 65537, 100_000, MB, 4 * MB - 1, 4 * MB, 33 * MB + 5])
def test_large_arrays_are_aligned_own_their_data_and_can_be_filled(nbytes: int) -> None:
    a = runtime.empty((nbytes,), np.dtype("u1"))
    assert a.ctypes.data % 64 == 0 and a.flags.owndata and a.flags.c_contiguous
    assert a.flags.writeable and a.flags.aligned and a.base is None and type(a) is np.ndarray
    assert handler(a) == "jitla"
    a[:] = 255
    assert a.min() == 255


def test_small_arrays_are_numpys() -> None:
    assert handler(runtime.empty((10, 10), F8)) == "default_allocator"
    assert handler(np.empty(100_000)) == "default_allocator"


def test_counters_and_reuse() -> None:
    before = runtime.statistics()
    a = runtime.empty((MB,), F8)
    now = runtime.statistics()
    assert now["in_use"] - before["in_use"] == 8 * MB and now["fresh"] == before["fresh"] + 1
    where = a.ctypes.data
    del a
    assert runtime.statistics()["held"] == 8 * MB
    b = runtime.empty((MB - 1000,), F8)
    assert b.ctypes.data == where and runtime.statistics()["held"] == 0
    assert runtime.statistics()["reused"] == before["reused"] + 1
    del b
    c = runtime.empty((MB // 2,), F8)  # would waste half
    assert c.ctypes.data != where


def test_the_list_is_bounded() -> None:
    arrays = [runtime.empty((MB,), F8) for _ in range(12)]
    arrays += [runtime.empty((65536 + 4096 * i,), np.dtype("u1")) for i in range(200)]
    del arrays
    now = runtime.statistics()
    assert now["held"] <= 64 * MB and now["entries"] <= 64
    runtime.set_reuse_limit(0)
    assert runtime.statistics()["held"] == 0 and runtime.statistics()["entries"] == 0
    a = runtime.empty((MB,), F8)
    del a
    assert runtime.statistics()["held"] == 0


def test_a_block_over_the_limit_is_given_back() -> None:
    a = runtime.empty((9 * MB,), F8)
    del a
    assert runtime.statistics()["held"] == 0


def test_resize() -> None:
    a = runtime.empty((20_000,), F8)
    a[:] = np.arange(20_000)
    a.resize((300_000,), refcheck=False)
    assert (a[:20_000] == np.arange(20_000)).all() and not a[20_000:].any()
    a.resize((100,), refcheck=False)
    assert (a == np.arange(100)).all() and a.ctypes.data % 64 == 0
    a.resize((0,), refcheck=False)
    a.resize((2_000_000,), refcheck=False)
    assert not a[1:].any()


def test_pickles_and_copies() -> None:
    a = runtime.empty((50_000,), F8)
    a[:] = np.arange(50_000)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert (pickle.loads(pickle.dumps(a, protocol)) == a).all()
    assert (a.copy() == a).all()
    view = memoryview(a)
    del a
    assert np.asarray(view)[49_999] == 49_999


def test_zeroed_memory_is_zero_when_reused() -> None:
    dirty = runtime.empty((20_000,), F8)
    dirty[:] = 1
    del dirty
    assert not any(runtime.empty((20_000,), np.dtype("O")))


@pytest.mark.threads
def test_threads_free_the_arrays_of_others() -> None:
    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(400):
            a = runtime.empty((int(rng.integers(8192, 40_000)),), F8)
            a[0] = a[-1] = seed
            with lock:
                shelf.append((seed, a))
                other = shelf.pop(int(rng.integers(len(shelf))))
            bad.extend([other[0]] if other[1][0] != other[0] or other[1][-1] != other[0] else [])

    shelf: list[tuple[int, np.ndarray]] = []
    bad: list[int] = []
    lock = threading.Lock()
    workers = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert not bad
    before = runtime.statistics()["in_use"]
    n = sum((a.nbytes + 4095) // 4096 * 4096 for _, a in shelf)
    shelf.clear()
    assert before - runtime.statistics()["in_use"] == n


def test_huge_requests_fail_cleanly_and_the_handler_is_set_back() -> None:
    with pytest.raises(MemoryError):
        runtime.empty((1 << 58,), F8)
    for shape in [(1 << 62, 8), (-1,), (1 << 40, 1 << 40), (-3, 100_000)]:
        with pytest.raises(ValueError):
            runtime.empty(shape, F8)
    assert handler(np.empty(100_000)) == "default_allocator"


@pytest.mark.parametrize("args", [
    (), ((3,),), (3, F8), ([3], F8), ((3,), "f8"), ((3,), np.float64), ((3,), F8, 0),
    ((3,), F8, (0,), 1), (("x",), F8), ((2.0,), F8), ((1,) * 65, F8), ((3,), None),
])
def test_wrong_arguments_are_refused(args: tuple[object, ...]) -> None:
    with pytest.raises((TypeError, ValueError)):
        runtime.allocator()(*args)


@pytest.mark.parametrize("axes", [(0,), (0, 0), (0, 2), (1, -1), (0, 1, 2), (-1, -2)])
def test_axes_must_be_a_permutation(axes: tuple[int, ...]) -> None:
    with pytest.raises(ValueError):
        runtime.empty_ordered((200, 300), F8, axes)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_layouts_are_numpys(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.sampled_from([0, 1, 2, 3, 9, 40]), max_size=4)))
    axes = tuple(data.draw(st.permutations(range(len(shape)))))
    dtype = np.dtype(data.draw(st.sampled_from(["f8", "f4", "?", "c16", "i2"])))
    got = runtime.empty_ordered(shape, dtype, axes)
    # NumPy's way to such an array: an empty_like of one whose axes lie in this order
    order = np.argsort(axes)
    like = np.empty([2] * len(shape), dtype).transpose(tuple(order))
    want = np.empty_like(like, shape=shape)
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    assert got.flags.owndata and got.base is None
    assert (got.strides, got.flags.c_contiguous, got.flags.f_contiguous) == (
        want.strides, want.flags.c_contiguous, want.flags.f_contiguous)
    assert runtime.empty(shape, dtype).strides == np.empty(shape, dtype).strides


def test_numpy_integers_as_sizes() -> None:
    assert runtime.empty((np.int64(3), True), F8).shape == (3, 1)
