"""Generators and coroutines of decorated functions run by the mode whose steps take less time."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import jitla
from jitla.tiering import generators as steps
from jitla.tiering.generators import (
    DECISION_INTERVAL,
    PLAIN_COUNT,
    SPENT_SECONDS,
    TRIAL_COUNT,
    StepTimes,
)


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    made = Clock()
    monkeypatch.setattr(steps, "perf_counter", made)
    yield made


def run(times: StepTimes, clock: Clock, seconds: float, count: int = 4) -> None:
    """Run a plain generator, whose steps take so many seconds."""
    def body():
        for k in range(count):
            clock.now += seconds
            yield k

    assert list(times.run_plain(body(), lambda steps: steps.close())) == [*range(count)]


def never() -> bool:
    return False


def test_the_first_generators_are_plain_until_they_have_taken_long_enough(clock: Clock) -> None:
    times = StepTimes()
    for _ in range(PLAIN_COUNT + 2):
        assert not times.is_next_traced(never)
        run(times, clock, 1e-6)
    run(times, clock, SPENT_SECONDS)
    for _ in range(20):  # one of them has taken long: the more of them have to come first
        if times.is_next_traced(never):
            break
        run(times, clock, 1e-6)
    assert times.count > PLAIN_COUNT + 3


def measured(clock: Clock, plain: float, traced: float) -> StepTimes:
    times = StepTimes()
    while not times.is_next_traced(never):
        run(times, clock, plain)
    times.note_traced(4, 1.0)  # blocks were met
    assert times.is_next_traced(never) and not times.is_next_traced(lambda: True)
    for _ in range(TRIAL_COUNT):
        assert times.is_next_traced(never) and times.is_timed()
        times.note_traced(4, 4 * traced)
    return times


@pytest.mark.parametrize(("traced", "wanted"), [(5e-3, True), (2e-2, False), (0.99e-2, False)])
def test_the_faster_way_is_kept_for_a_while(clock: Clock, traced: float, wanted: bool) -> None:
    times = measured(clock, 1e-2, traced)
    ways = [times.is_next_traced(never) for _ in range(DECISION_INTERVAL)]
    assert ways == [wanted] * DECISION_INTERVAL
    assert not times.is_next_traced(never)  # the plain one is timed again


def test_what_may_take_long_is_tried_after_many(clock: Clock) -> None:
    times = StepTimes()
    for _ in range(10):
        run(times, clock, 1.0)
        assert not times.is_next_traced(never)


def test_a_traced_generator_that_takes_too_long_ends_the_trial(clock: Clock) -> None:
    times = measured(clock, 1e-3, 1e-4)
    assert times.max_traced_seconds(4) == np.inf  # nothing is known of plain ones now
    times = StepTimes()
    while not times.is_next_traced(never):
        run(times, clock, 1e-3)
    assert 4e-3 < times.max_traced_seconds(4) < 0.1
    times.note_slow()
    assert [times.is_next_traced(never) for _ in range(DECISION_INTERVAL)] == [False] * DECISION_INTERVAL


def walk(x: Any, n: int) -> Any:
    held = [x * 2]
    for k in range(n):
        x = np.sqrt(x * x + k)
        held.append(x + 1)
        got = yield x
        if got is not None:
            x = x + got
    return held, x.sum()


def talk(function: Any, *args: Any) -> list[Any]:
    """Send, throw and close as a caller may; return what was seen."""
    seen: list[Any] = []
    first = function(*args)
    seen += [next(first), first.send(2.0), next(first)]
    try:
        first.throw(ValueError("now"))
    except ValueError as error:
        seen.append(str(error))
    other = function(*args)
    next(other)
    other.close()
    third = function(*args)
    try:
        while True:
            seen.append(next(third))
    except StopIteration as stop:
        seen.extend(stop.value[0])
        seen.append(stop.value[1])
    return seen


@pytest.mark.parametrize("allowed", [None, 0.0])
def test_results_are_those_of_the_plain_generator(monkeypatch: pytest.MonkeyPatch, allowed: Any) -> None:
    """Each way, and changing it in the middle of a traced one, gives what plain Python gives."""
    monkeypatch.setattr(steps, "SPENT_SECONDS", 0.0)
    monkeypatch.setattr(steps, "PLAIN_PER_SECOND", 0.0)
    if allowed is not None:
        monkeypatch.setattr(StepTimes, "max_traced_seconds", lambda self,
                            count: allowed if count > 1 else np.inf)
    x = np.linspace(0.0, 1.0, 5000)
    wanted = talk(walk, x, 6)
    f = jitla.jit(walk, compile="auto")
    for _ in range(12):
        found = talk(f, x, 6)
        assert len(found) == len(wanted)
        for a, b in zip(found, wanted, strict=True):
            assert type(a) is type(b)
            assert np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b or abs(a - b) < 1e-9 * abs(b)
    assert f.stats()["failures"] == 0
    times, *_ = f.__jitla_state__.steps.values()
    assert times._has_met_blocks


def test_coroutines_are_judged_too() -> None:
    @jitla.jit(compile="auto")
    async def doubled(x):
        return x * 2

    for _ in range(5):
        with pytest.raises(StopIteration) as stop:
            doubled(np.ones(3)).send(None)
        assert np.array_equal(stop.value.value, np.full(3, 2.0))
    (times,) = doubled.__jitla_state__.steps.values()
    assert times.count >= PLAIN_COUNT


def test_with_sync_generators_are_traced() -> None:
    f = jitla.jit(walk, compile="sync")
    assert len(list(f(np.ones(50), 3))) == 3
    assert not f.__jitla_state__.steps


def test_a_generator_is_given_no_pending_values_of_its_caller() -> None:
    held: list[Any] = []

    def keep(x: Any) -> list[Any]:
        held.append(x)
        return [x + 1]

    @jitla.jit(compile="sync")
    def chained(x):
        yield from keep(x)

    @jitla.jit(compile="sync")
    def outer(x):
        warnings.simplefilter("error")  # from here on nothing is traced
        return [each for _, each in enumerate(chained(x))]

    for _ in range(2):
        with warnings.catch_warnings():
            assert np.array_equal(outer(np.ones(3))[0], np.full(3, 2.0))
    assert [type(each) for each in held] == [np.ndarray] * 2
