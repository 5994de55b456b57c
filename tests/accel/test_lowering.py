"""Layers as instruction streams: results, tilings, loops folded into instructions."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from jitla.accel import (
    AluOp,
    EpilogueOp,
    Layer,
    LayerStage,
    Load,
    Memory,
    SlidingWindow,
    Store,
    compile_layer,
    compile_stages,
    cycles,
    disassemble,
    knobs,
    preset,
    tiling_values,
    to_tiling,
    verify,
)
from jitla.accel.layer import (
    MIN_ACCUMULATOR_DISTANCE,
    FoldedLoops,
    StridedLoop,
    Tiling,
    accumulator_distance,
    block_counts,
    fits,
    fold_loops,
    merge_loops,
)
from jitla.accel.lowering import assemble
from jitla.errors import DeviceError
from tests.accel.layers import STORED, arrays, fault, layer, wanted

# Layers as streams: bit-identical to NumPy, no rule broken, waits hidden; one stream as text.

PYNQ = preset("vta-pynq")
GOLDEN = Path(__file__).parent / "golden" / "convolution.txt"
CUT = (EpilogueOp(AluOp.SHR, 8), EpilogueOp(AluOp.MAX, 0), EpilogueOp(AluOp.MIN, 127))


@pytest.mark.parametrize("seed", range(24))
def test_a_random_layer_is_what_numpy_makes_of_it(seed):
    assert fault(seed) == ""


def conv(size: int, channels: int, filters: int) -> Layer:
    window = SlidingWindow(size, 3, 1, 1, 1, 1)
    return Layer(1, channels, filters, window, window, steps=CUT)


def test_a_blocked_convolution_with_two_virtual_threads_as_text():
    """Parts of the buffers by turns, tokens in order, loops over places in the instruction."""
    made = conv(8, 32, 64)
    stream = assemble(PYNQ, [LayerStage("out", made, "images")], [Tiling(1, 8, 8, 1, 1, 2)])
    text = disassemble(stream.program)
    assert text == GOLDEN.read_text(encoding="utf-8")
    assert verify(stream.program) == ()


@pytest.mark.parametrize("made", [conv(14, 64, 64), Layer(300, 256, 64, steps=CUT)])
def test_two_threads_hide_what_one_waits_for(made):
    one, two = (compile_layer(PYNQ, made, threads) for threads in (1, 2))
    assert two.timing.cycles < one.timing.cycles
    assert two.timing.cycles <= two.serial_cycles


def test_a_tile_that_is_one_too_large_does_not_fit():
    made = Layer(4096, 16, 16)
    blocks = block_counts(made, PYNQ)
    assert fits(Tiling(2048, 1, 1, 1, 1, 1), made, blocks, PYNQ)
    assert not fits(Tiling(2049, 1, 1, 1, 1, 1), made, blocks, PYNQ)
    assert fits(Tiling(1024, 1, 1, 1, 1, 2), made, blocks, PYNQ)
    assert not fits(Tiling(1025, 1, 1, 1, 1, 2), made, blocks, PYNQ)


def test_layers_follow_each_other_on_the_device():
    rng = np.random.default_rng(3)
    first, second = conv(12, 20, 40), conv(12, 40, 24)
    pool = Layer(1, 40, 40, SlidingWindow(12, 2, 2), SlidingWindow(12, 2, 2), mode="max")
    small = Layer(1, 40, 24, SlidingWindow(6, 3), SlidingWindow(6, 3), steps=CUT, stored=4)
    for stages in ([first, second], [first, pool, small]):
        made = compile_stages(PYNQ, [LayerStage(f"u{i}", x, f"u{i - 1}" if i else "images")
                          for i, x in enumerate(stages)])
        assert verify(made.program) == ()
        assert [r.role for r in made.program.regions].count("output") == 1
        data, values, given = {}, None, {}
        for i, each in enumerate(stages):
            data = arrays(rng, each)
            if values is not None:
                data["images"] = values
            else:
                given["images"] = data["images"]
            given |= {f"u{i}.{k}": v for k, v in data.items() if k != "images"}
            values = wanted(each, data)
        assert np.array_equal(made.run(given), values)


def test_a_layer_begins_while_the_one_before_still_stores():
    made = conv(14, 64, 64)
    both = compile_stages(PYNQ, [LayerStage("u0", made, "images"), LayerStage("u1", made, "u0")])
    assert verify(both.program) == ()
    region = next(r for r in both.program.regions if r.name == "u0")
    inside = range(region.address // 16, region.end // 16)
    steps = list(enumerate(both.program.instructions))
    stored = max(both.timing.end[i] for i, s in steps if isinstance(s, Store) and s.dram_base in inside)
    read = min(both.timing.begin[i] for i, s in steps
               if isinstance(s, Load) and s.memory is Memory.INP and s.dram_base in inside)
    weights = next(r for r in both.program.regions if r.name == "u1.weights")
    loaded = min(both.timing.begin[i] for i, s in steps
                 if isinstance(s, Load) and s.memory is Memory.WGT and s.dram_base * 256 == weights.address)
    assert loaded < read < stored
    assert both.timing.cycles < 2 * compile_stages(PYNQ, [LayerStage("u0", made, "images")]).timing.cycles


@pytest.mark.parametrize("machine", ["vta-ultra96", "vta-extended"])
def test_other_machines_have_other_streams_and_the_same_results(machine):
    rng = np.random.default_rng(5)
    made = Layer(20, 40, 30, steps=(EpilogueOp(AluOp.MUL, 77), EpilogueOp(AluOp.SHR, 9)), stored=2)
    data = arrays(rng, made)
    stream = compile_layer(preset(machine), made)
    assert verify(stream.program) == ()
    found = stream.run({"images": data["images"], "out.weights": data["weights"]})
    assert np.array_equal(found, wanted(made, data))


def test_floats_run_on_the_machine_for_them():
    rng = np.random.default_rng(7)
    spec = preset("vta-f32")
    made = Layer(37, 50, 20,
                 steps=(EpilogueOp(AluOp.ADD, operand="bias", form="channel"), EpilogueOp(AluOp.MAX, 0.0)))
    x, w = rng.normal(size=made.input_shape), rng.normal(size=made.weight_shape)
    bias = rng.normal(size=(1, 20)).astype(np.float32)
    stream = compile_layer(spec, made)
    assert verify(stream.program) == ()
    given = {"images": x, "out.weights": w, "out.bias": bias}
    found = stream.run({k: v.astype(np.float32) for k, v in given.items()})
    expected = np.maximum(x[:, :, 0, 0] @ w[:, 0, 0] + bias, 0)
    assert np.allclose(found[:, :, 0, 0], expected, atol=1e-4)


def test_a_drawn_layer_has_an_expected_dtype():
    made = layer(np.random.default_rng(0))
    assert wanted(made, arrays(np.random.default_rng(0), made)).dtype == STORED[made.stored]


# The space of a layer's tilings: its default is what runs, all of its points are programs.

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


# Loops folded into an instruction walk as they did, and do not meet too soon.


def visited(loops) -> list[tuple[int, int, int]]:
    found = []
    for at in product(*(range(x.extent) for x in loops)):
        found.append(tuple(sum(i * x[k] for i, x in zip(at, loops, strict=True)) for k in (1, 2, 3)))
    return found


def steps(folded: FoldedLoops) -> list[tuple[int, int, int]]:
    return [tuple(a * folded.outer[k] + b * folded.inner[k] + u[k - 1] for k in (1, 2, 3))
            for a in range(folded.outer.extent) for b in range(folded.inner.extent) for u in folded.uops]


@pytest.mark.parametrize("seed", range(20))
def test_a_fold_visits_what_its_loops_visit(seed):
    rng = np.random.default_rng(seed)
    across, size = [], 1
    for n in rng.integers(1, 6, 3)[::-1]:
        across.insert(0, StridedLoop(int(n), size, int(rng.integers(0, 9)), int(rng.integers(0, 3))))
        size *= int(n)
    along = [StridedLoop(int(n), 0, int(rng.integers(0, 9)), int(rng.integers(0, 9)))
             for n in rng.integers(1, 4, 2)]
    if size < MIN_ACCUMULATOR_DISTANCE:
        return
    made = fold_loops(tuple(across), tuple(along))
    assert sorted(steps(made)) == sorted(visited([*across, *along]))
    last: dict[int, int] = {}
    for at, (dst, _, _) in enumerate(steps(made)):
        assert at - last.get(dst, -MIN_ACCUMULATOR_DISTANCE) >= MIN_ACCUMULATOR_DISTANCE
        last[dst] = at


def test_fewest_micro_ops_are_spelled_out():
    made = fold_loops((StridedLoop(4, 56), StridedLoop(7, 8, 9), StridedLoop(8, 1, 1)),
                      (StridedLoop(3, 0, 9, 1), StridedLoop(3, 0, 1, 3)))
    assert len(made.uops) == 36  # the two longest loops are the instruction's
    assert {made.outer.extent, made.inner.extent} == {7, 8}


def test_neighbours_become_one_loop():
    assert merge_loops([StridedLoop(4, 8, 8), StridedLoop(8, 1, 1), StridedLoop(1, 5)]) \
        == [StridedLoop(32, 1, 1)]
    assert merge_loops([StridedLoop(4, 8, 9), StridedLoop(8, 1, 1)]) \
        == [StridedLoop(4, 8, 9), StridedLoop(8, 1, 1)]


def test_accumulators_that_meet_too_soon_are_refused():
    with pytest.raises(DeviceError, match="written again too soon"):
        fold_loops((StridedLoop(2, 1),), (StridedLoop(9, 0, 1),))
    assert accumulator_distance((StridedLoop(9, 0, 1), StridedLoop(2, 1))) == 2
