"""Rates, levels of memory, and the machine as a record."""

from __future__ import annotations

import json
from math import inf

import pytest

from jitla.hops import REFERENCE_MACHINE, Machine, MemoryLevel, Rate, machine_from_record


def test_threads_add_up_to_what_all_reach() -> None:
    rate = Rate(10.0, 25.0)
    assert [rate.at(n) for n in (1, 2, 3, 8)] == [10.0, 20.0, 25.0, 25.0]


def test_fewer_threads_do_less() -> None:
    one = REFERENCE_MACHINE.with_threads(1)
    assert one.threads == 1 and one.product == REFERENCE_MACHINE.product / 2
    assert one.reading(1e6, 1e9) == REFERENCE_MACHINE.reading(1e6, 1e9, threads=1)
    assert one.reading(1e6, 1e9) > REFERENCE_MACHINE.reading(1e6, 1e9)
    assert REFERENCE_MACHINE.with_threads(0) is REFERENCE_MACHINE
    assert REFERENCE_MACHINE.with_threads(REFERENCE_MACHINE.threads) is REFERENCE_MACHINE


def test_more_than_there_are_do_no_more() -> None:
    many = REFERENCE_MACHINE.with_threads(8)
    assert many.product == REFERENCE_MACHINE.product and many.concurrent_threads == REFERENCE_MACHINE.threads
    assert many.reading(1e6, 1e9) == REFERENCE_MACHINE.reading(1e6, 1e9)
    one = many.with_threads(1)
    assert one.concurrent_threads == 1 and one.product == REFERENCE_MACHINE.product / 2


@pytest.mark.parametrize("verb", ["reading", "writing"])
def test_what_was_used_long_ago_is_far_away(verb: str) -> None:
    seconds = [getattr(REFERENCE_MACHINE, verb)(1e6, 4.0**k) for k in range(20)]
    assert seconds == sorted(seconds) and seconds[-1] > 2.5 * seconds[0]


def test_levels_are_passed_gradually() -> None:
    near, _, memory = REFERENCE_MACHINE.levels
    assert REFERENCE_MACHINE.reading(1e6, near.capacity / 16) == pytest.approx(1e6 / near.read.all)
    assert REFERENCE_MACHINE.reading(1e6, 1e12) == pytest.approx(1e6 / memory.read.all)
    steps = [REFERENCE_MACHINE.reading(1.0, 2.0**(k / 8)) for k in range(80, 240)]
    assert max(b / a for a, b in zip(steps, steps[1:], strict=False)) < 1.2


def test_a_machine_is_a_record() -> None:
    text = json.dumps(REFERENCE_MACHINE.record())
    assert machine_from_record(json.loads(text)) == REFERENCE_MACHINE
    assert isinstance(REFERENCE_MACHINE, Machine) and REFERENCE_MACHINE.levels[-1].capacity == inf


@pytest.mark.parametrize("change", [
    {"threads": 0}, {"unit": -1.0}, {"unit": "fast"}, {"levels": []}, {"stream": [1.0]}, {"more": 1.0},
    {"levels": [{"name": "near"}]},
])
def test_what_is_no_machine_is_refused(change: dict[str, object]) -> None:
    with pytest.raises((ValueError, TypeError, KeyError)):
        machine_from_record(REFERENCE_MACHINE.record() | change)


def test_a_missing_constant_is_refused() -> None:
    record = REFERENCE_MACHINE.record()
    del record["launch"]
    with pytest.raises(TypeError):
        machine_from_record(record)


def test_a_machine_of_one_level_has_one_speed() -> None:
    flat = REFERENCE_MACHINE._replace(levels=(MemoryLevel("all", inf, Rate(1.0, 2.0), Rate(1.0, 1.0)),))
    assert flat.reading(10.0, 1.0) == flat.reading(10.0, 1e12) == 5.0
    assert flat.writing(10.0, 1e12) == 10.0
