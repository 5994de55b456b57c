"""Records survive broken lines and other versions, and only what was verified and is faster may run."""

from __future__ import annotations

from jitla.tuner.records import Record, Records


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
