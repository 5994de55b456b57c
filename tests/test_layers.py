"""Tiles of layers on the accelerator: tuned on simulated cycles, chosen by records, the same results."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import jitla
from jitla import packages
from jitla.accel import LayerStage, tiling_values
from jitla.engine import ENGINE

RNG = np.random.default_rng(1)


def dense(x, w):
    return np.clip(x.astype(np.int32) @ w.astype(np.int32) >> 7, -128, 127).astype(np.int8)


@pytest.fixture
def kept(tmp_path):
    with jitla.options(cache_dir=str(tmp_path), disk_cache=True, progress=False, accelerator="vta-pynq",
                       placement="forced"):
        yield tmp_path
        ENGINE.use_tuning_session()


def test_tiles_are_tuned_on_cycles_and_records_choose_them(kept):
    x, w = RNG.integers(-9, 9, (48, 96)).astype(np.int8), RNG.integers(-9, 9, (96, 64)).astype(np.int8)
    f = jitla.jit(dense, compile="sync")
    wanted = dense(x, w)
    assert (f(x, w) == wanted).all()
    found = jitla.tune(f, x, w, trials=6)
    (layer,) = [t for t in found if t.key.kernel.startswith("layer ")]
    assert layer.trials == 6 and layer.seconds <= layer.untuned
    records = ENGINE.schedule_records(jitla.config.current())
    (device,) = ENGINE.compiler(jitla.config.current()).devices
    target = packages.tuner.accel_layers.target_of(device.spec)
    used = records.last(*layer.key, target)
    tiles = {**used.config, "filters": 1, "channels": 1, "threads": 1}
    assert tiles != used.config
    for config in (tiles, {**tiles, "filters": 99}):  # the last one is not legal, and not used
        records.add([replace(used, config=config, seconds=0.5, reference=1.0)])
        ENGINE.use_tuning_session()
        f.cache_clear()
        assert (f(x, w) == wanted).all()
        (device,) = ENGINE.compiler(jitla.config.current()).devices
        (ran,) = device.layers
        (tiling,) = device.program_of([LayerStage("out", ran, "images")]).tilings
        assert (tiling_values(tiling) == tiles) == (config is tiles)
