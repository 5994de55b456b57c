"""What the comparison of kernels takes for the least possible time."""

from __future__ import annotations

import pytest

pytest.importorskip("numba")  # rows of the comparison are written with it

from bench.peers.outcome import Limits

READING, COPYING, ISSUING = 30e9, 50e9, 40e9
LIMITS = Limits(READING, COPYING, ISSUING)


def test_what_is_only_read_takes_as_long_as_reading() -> None:
    assert LIMITS.seconds(3e9, 0, 0) == pytest.approx(0.1)


def test_a_copy_takes_as_long_as_it_was_measured_to() -> None:
    assert LIMITS.seconds(1e9, 1e9, 0) == pytest.approx(2e9 / COPYING)


def test_little_that_is_written_changes_little() -> None:
    # before, a twentieth of writing let everything move at the rate of copies
    none, some = LIMITS.seconds(4e9, 0, 0), LIMITS.seconds(4e9, 0.2e9, 0)
    assert none < some < 1.02 * none


def test_writing_behind_reading_never_gains_time() -> None:
    duplex = Limits(READING, 3 * READING, ISSUING)
    assert duplex.seconds(1e9, 1e9, 0) == pytest.approx(1e9 / READING)


def test_work_counts_where_it_takes_longer() -> None:
    assert LIMITS.seconds(1e9, 0, 8e9) == pytest.approx(8e9 / ISSUING)
    assert LIMITS.seconds(3e9, 0, 1e9) == pytest.approx(0.1)
