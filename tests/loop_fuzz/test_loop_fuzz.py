"""Some programs of the fuzzer of loops."""

from __future__ import annotations

import pytest

from tests.loop_fuzz.generate import generate
from tests.loop_fuzz.runner import plan_of, run


@pytest.mark.parametrize("forced", [False, True])
@pytest.mark.filterwarnings("ignore")
def test_random_programs(forced):
    runs = 0
    for seed in range(20):
        report = run(generate(seed), plan_of(seed, 0.1, forced))
        assert not report.crashes, (seed, report.crashes[0])
        assert not report.differences, (seed, report.differences[0])
        runs += report.runs
    assert runs
