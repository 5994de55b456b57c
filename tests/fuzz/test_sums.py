"""Sums and means have NumPy's bits, whatever the shape, layout, dtype and number of threads."""

from __future__ import annotations

import warnings

import pytest

from tests.fuzz.sums import THREADS, cases, differences

CASES = list(cases(504))


@pytest.mark.parametrize("part", range(24))
@pytest.mark.parametrize("threads", THREADS)
def test_sums_have_numpys_bits(part: int, threads: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wrong = {case: found for case in CASES[part::24] if (found := differences(case, threads))}
    assert wrong == {}
