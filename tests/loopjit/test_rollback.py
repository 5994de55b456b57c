"""Roll-back of parts: elements that other threads change meanwhile keep their values."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from jitla.loopjit import rollback
from jitla.loopjit.loop_sites import LoopRun
from tests.loopjit.compiled import loop_function


def ranges(a, b, begin, end, seen):
    for i in range(begin, end):
        a[i] = 0.5 * a[i] + 1.0
        if i == 7:
            seen.append(i)
        b[i] = a[i] / (i - 9)
    return i


@pytest.fixture
def other_thread(monkeypatch):
    """Return a list of arrays whose last elements another thread changes whenever compiled code has run."""
    arrays: list[np.ndarray] = []
    enter = LoopRun._enter
    counts = []

    def run(self, *args):
        result = enter(self, *args)
        for array in arrays:
            array[-1] += 1
        counts.append(1)
        return result

    monkeypatch.setattr(LoopRun, "_enter", run)
    monkeypatch.setattr(rollback, "has_other_threads", lambda: True)
    return arrays, counts


def test_elements_of_other_threads_stay(other_thread):
    """Parts are undone for the check, for a statement that no program has, and for a division by zero."""
    arrays, counts = other_thread
    fast = loop_function(ranges)
    for call in range(8):
        a, b = np.zeros(13), np.zeros(13)
        wanted_a, wanted_b = a.copy(), b.copy()
        with np.errstate(all="ignore"):
            ranges(wanted_a, wanted_b, 0, 12, [])
        arrays[:], counts[:] = [a, b], []
        with np.errstate(divide="ignore" if call % 2 else "warn"):
            if call % 2:
                fast.version(a, b, 0, 12, [])
            else:
                with pytest.warns(RuntimeWarning, match="divide by zero"):
                    fast.version(a, b, 0, 12, [])
        assert (a[:-1] == wanted_a[:-1]).all() and (b[:-1] == wanted_b[:-1]).all()
        assert a[-1] == b[-1] == len(counts)
    assert sum(record.runs for record in fast.records())


def test_copies_have_the_strides_and_overlaps_of_arrays():
    base = np.arange(60.0)
    arrays = [base[10:50].reshape(5, 8)[:, ::-2], base[20:40], np.zeros(3), base[5:0:-1],
              as_strided(base, (4, 4), (8, 8)), base[:0]]
    copies = rollback.copied(arrays, [0, 1, 3, 4, 5])
    assert copies is not None and copies[2] is arrays[2]
    for array, copy in zip(arrays, copies, strict=True):
        assert array.strides == copy.strides and array.shape == copy.shape and (array == copy).all()
    for k, array in enumerate(arrays):
        for other, copy in zip(arrays[:k], copies[:k], strict=True):
            assert np.shares_memory(array, other) == np.shares_memory(copies[k], copy)
    for k in (0, 1, 3, 4):
        assert not np.shares_memory(base, copies[k])
        copies[k][...] = -1.0
    assert (base == np.arange(60.0)).all()
    assert rollback.copied([as_strided(base, (2,), (1 << 40,))], [0]) is None


@pytest.mark.parametrize("dtype", ["f8", "f4", "c16", "c8", "i1", "u2", "?"])
def test_elements_with_other_bits_are_restored(dtype):
    before = np.array([0, 1, 1, 0, 1], dtype)
    after = np.array([0, 1, 0, 1, 1], dtype)
    array = np.array([1, 0, 1, 1, 0], dtype)  # another thread has changed all
    rollback.restore_changed([(array, before)], [after])
    assert array.tolist() == np.array([1, 0, 1, 0, 0], dtype).tolist()


def test_zeros_with_other_signs_and_numbers_that_are_none_have_bits():
    zeros = np.array([0.0, -0.0, np.nan])
    assert rollback.differs(zeros, np.array([-0.0, -0.0, np.nan])).tolist() == [True, False, False]
