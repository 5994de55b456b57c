"""Times beside a reference: disturbances do not count, halves that differ are noise."""

from __future__ import annotations

import pytest

from jitla.tuner.measurement import Stopwatch
from jitla.tuner.records import Record


class Clock:
    """A clock that only moves when something runs."""

    now = 0.0

    def __call__(self):
        return self.now

    def run(self, *seconds):
        """Return what takes so many seconds, in turn."""
        calls = iter(range(1 << 20))

        def take():
            self.now += seconds[next(calls) % len(seconds)]
        return take


def test_ratio_of_leasts():
    clock = Clock()
    watch = Stopwatch(clock.run(1.0), clock)
    timing = watch.time(clock.run(0.5, 0.5, 0.9, 0.5, 0.5, 2.0, 0.5))
    assert timing.ratio == pytest.approx(0.5) and timing.noise == pytest.approx(0.0)


def test_what_differs_from_turn_to_turn_is_noise():
    clock = Clock()
    watch = Stopwatch(clock.run(1.0), clock)
    assert watch.time(clock.run(0.5, 1.0)).noise == pytest.approx(1.0)


def test_a_single_turn_tells_a_ratio_and_that_nothing_is_known_of_noise():
    clock = Clock()
    timing = Stopwatch(clock.run(1.0), clock).time(clock.run(0.5), rounds=1)
    assert timing.ratio == pytest.approx(0.5)
    assert not Record("k", (), "t", {}, timing.seconds, timing.reference, timing.noise, True).is_usable


def test_what_is_far_slower_is_run_twice_only():
    clock = Clock()
    watch = Stopwatch(clock.run(1.0), clock)
    before = clock.now
    assert watch.time(clock.run(50.0)).seconds == 50.0
    assert clock.now - before == 150.0


def test_a_short_run_that_had_to_wait_twice_is_run_again():
    clock = Clock()
    watch = Stopwatch(clock.run(1e-4), clock)
    assert watch.time(clock.run(*[5e-5] + [4e-3] * 2 + [5e-5] * 2000)).ratio == pytest.approx(0.5)
