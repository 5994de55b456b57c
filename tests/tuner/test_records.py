"""Measurements beside a reference, and the records made of them."""

from __future__ import annotations

import pytest

from jitla.tuner.measurement import Stopwatch
from jitla.tuner.records import Record, Records

# Times beside a reference: disturbances do not count, halves that differ are noise.


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


# Records survive broken lines and other versions, and only what was verified and is faster may run.


def record(seconds=0.5, **given):
    return Record(**{"kernel": "k", "shape": (10, 20), "target": "t", "config": {"height": 8},
                     "seconds": seconds, "reference": 1.0, "noise": 0.01, "verified": True, **given})


def test_lines_come_back_as_they_were():
    lines: list[str] = []
    kept = Records(append=lines.append)
    kept.add([record(), record(0.9, config={"stores": "around"})])
    again = Records("".join(lines))
    assert again.best("k", (10, 20), "t") == record(0.9, config={"stores": "around"})
    assert len(again) == 2 and again.skipped == 0


def test_broken_lines_are_skipped():
    good = record().line()
    broken = ["{", "[1]", "null", good[:40], good.replace('"v":2', '"v":99'), good.replace('"k"', "5"),
              good.replace("0.5", '"x"'), good.replace("0.5", "NaN"), good.replace(":8", ":[8]"),
              good.replace('"verified":true', '"verified":1'), "\x00"]
    kept = Records("\n".join([*broken, good.strip()]))
    assert len(kept) == 1 and kept.skipped == len(broken)


def test_only_verified_gains_beyond_noise_count():
    def best(*records):
        kept = Records()
        kept.add(records)
        return kept.best("k", (10, 20), "t")

    assert best(record()) is not None
    assert best(record(verified=False)) is None
    assert best(record(0.99)) is None
    assert best(record(0.9, noise=0.06)) is None
    assert best(record(), record(1.0)) is None, "the last tuning says that nothing is gained"
    assert best(record(shape=(10, 21))) is None and best(record(target="other")) is None


def test_the_nearest_sizes_come_first():
    kept = Records()
    kept.add([record(shape=(1000, 20)), record(shape=(20, 20)), record(shape=(10, 20), verified=False)])
    assert [r.shape for r in kept.near("k", (10, 20), "t")] == [(20, 20), (1000, 20)]
