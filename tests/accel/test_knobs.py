"""The space of a layer's tilings: its default is what runs, all of its points are programs."""

from __future__ import annotations

import numpy as np

from jitla.accel import (
    Layer,
    LayerStage,
    SlidingWindow,
    compile_layer,
    cycles,
    knobs,
    preset,
    tiling_values,
    to_tiling,
)
from jitla.accel.lowering import assemble

SPEC = preset("vta-pynq")
LAYER = Layer(1, 32, 32, SlidingWindow(8, 3, 1, 1, 1, 1), SlidingWindow(8, 3, 1, 1, 1, 1))


def test_the_default_is_the_tiling_that_runs():
    space = knobs(LAYER, SPEC)
    made = compile_layer(SPEC, LAYER)
    assert to_tiling(space.values(space.default)) == made.tilings[0]
    assert tiling_values(made.tilings[0]) == space.values(space.default)
    assert cycles(LAYER, SPEC, made.tilings[0]) == made.timing.cycles


def test_tilings_differ_in_cycles_and_not_in_results():
    space = knobs(LAYER, SPEC)
    rng = np.random.default_rng(0)
    arrays = {"images": rng.integers(-9, 9, LAYER.input_shape),
              "out.weights": rng.integers(-9, 9, LAYER.weight_shape)}
    expected = compile_layer(SPEC, LAYER).run(arrays)
    costs = set()
    for _ in range(4):
        tiling = to_tiling(space.values(space.random(rng)))
        costs.add(cycles(LAYER, SPEC, tiling))
        made = assemble(SPEC, [LayerStage("out", LAYER, "images")], [tiling])
        assert np.array_equal(made.run(arrays), expected)
    assert len(costs) > 1 and None not in costs
    assert len({len(space.traits(space.values(p))) for p in space.points[:9]}) == 1
