"""NumPy programs on the accelerator: detection, placement, results, explanations, tuned tiles."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import jitla
from jitla import packages
from jitla.accel import (
    INTRINSICS,
    AluOp,
    Device,
    EpilogueOp,
    Layer,
    LayerFit,
    LayerStage,
    OperandSource,
    TensorIntrinsic,
    loops_of,
    preset,
    start_indices,
    tiling_values,
)
from jitla.engine import ENGINE
from jitla.hops import Meta, evaluate, leaf, make

# NumPy programs on the accelerator: found, placed, bit-identical, explained.

RNG = np.random.default_rng(11)
WIDE = np.int32


def bytes_(*shape: int) -> np.ndarray:
    return RNG.integers(-128, 128, shape, dtype=np.int8)


def ints(*shape: int) -> np.ndarray:
    return RNG.integers(-5000, 5000, shape, dtype=WIDE)


def dense(x, w, b):
    return np.clip((x.astype(np.int32) @ w.astype(np.int32) + b) >> 7, -128, 127).astype(np.int8)


def plain(x, w):
    return np.matmul(x, w, dtype=np.int32)


def batched(x, w):
    return (x.astype(np.int32) @ w.astype(np.int32)).astype(np.int16)


def turned(x, w):
    return x.astype(np.int32) @ w.T.astype(np.int32) - 7


def times(x, w):
    return ((x.astype(np.int32) @ w.astype(np.int32)) * 77 + 128) >> 8


def of_64_bits(x, w):
    return x.astype(np.int64) @ w.astype(np.int64) + 3


def residual(x, w, r):
    return np.maximum(x.astype(np.int32) @ w.astype(np.int32) + r, 0)


def taps(x, w):
    rows, columns = x.shape[1] - 2, x.shape[2] - 2
    total = 0
    for i in range(3):
        for j in range(3):
            part = x[:, i:i + rows, j:j + columns].astype(np.int32) @ w[i, j].astype(np.int32)
            total = total + part
    return np.maximum(total >> 8, 0).astype(np.int8)


def columns(x, w):
    seen = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2)).transpose(0, 1, 2, 4, 5, 3)
    n, h, c = seen.shape[:3]
    rows = seen.reshape(n * h * c, -1).astype(np.int32)
    return (rows @ w.reshape(-1, w.shape[-1]).astype(np.int32)).reshape(n, h, c, -1)


def padded(x, w):
    return taps(np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))), w)


def two_padded(x, w, v):
    return padded(padded(x, w), v)


def pooled(x):
    return x.reshape(len(x), 7, 2, 7, 2, -1).max(axis=(2, 4))


def averaged(x):
    return (x.astype(np.int32).sum(axis=(1, 2)) >> 6).astype(np.int8)


def network(x, w1, b1, w2, b2, w3):
    y = np.clip((taps_of(x, w1) + b1) >> 8, 0, 127).astype(np.int8)
    y = y.reshape(len(y), 6, 2, 6, 2, -1).max(axis=(2, 4))
    y = np.clip((taps_of(y, w2) + b2) >> 8, 0, 127).astype(np.int8)
    return y.reshape(len(y), -1).astype(np.int32) @ w3.astype(np.int32)


def perceptron(x, w, b, v):
    hidden = np.clip((x.astype(np.int32) @ w.astype(np.int32) + b) >> 7, 0, 127).astype(np.int8)
    return hidden.astype(np.int32) @ v.astype(np.int32)


def taps_of(x, w):
    rows, columns = x.shape[1] - 2, x.shape[2] - 2
    total = None
    for i in range(3):
        for j in range(3):
            part = x[:, i:i + rows, j:j + columns].astype(np.int32) @ w[i, j].astype(np.int32)
            total = part if total is None else total + part
    return total


def in_place(x, w):
    rows, columns = x.shape[1] - 2, x.shape[2] - 2
    total = np.zeros((len(x), rows, columns, w.shape[-1]), np.int32)
    for i in range(3):
        for j in range(3):
            total += x[:, i:i + rows, j:j + columns].astype(np.int32) @ w[i, j].astype(np.int32)
    total += 3
    np.maximum(total, 0, out=total)
    total >>= 8
    return total.astype(np.int8)


def from_the_first(x, w):
    rows, columns, total = x.shape[1] - 2, x.shape[2] - 2, None
    for i in range(3):
        for j in range(3):
            part = x[:, i:i + rows, j:j + columns].astype(np.int32) @ w[i, j].astype(np.int32)
            if total is None:
                total = part
            else:
                total += part
    return total


def seen(x):
    return np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2))


def einsum(x, w):
    return np.maximum(np.einsum("nhwcij,ijco->nhwo", seen(x), w, dtype=np.int32), 0)


def tensordot(x, w):
    return np.tensordot(seen(x).astype(np.int32), w.astype(np.int32), axes=((4, 5, 3), (0, 1, 2))) >> 3


def block(x, w, v):
    y = np.clip(padded(x, w), 0, 100)
    z = np.pad(y, ((0, 0), (1, 1), (1, 1), (0, 0)))
    return np.clip((taps_of(z, v) >> 7) + x, 0, 127).astype(np.int8)


PROGRAMS = {
    "dense": (dense, lambda: (bytes_(50, 70), bytes_(70, 33), ints(33)), 1),
    "plain": (plain, lambda: (bytes_(50, 70), bytes_(70, 33)), 1),
    "vector": (dense, lambda: (bytes_(70), bytes_(70, 33), ints(33)), 1),
    "batched": (batched, lambda: (bytes_(3, 20, 33), bytes_(3, 33, 18)), 1),
    "shared": (batched, lambda: (bytes_(3, 20, 33), bytes_(33, 18)), 1),
    "turned": (turned, lambda: (bytes_(20, 33), bytes_(18, 33)), 1),
    "times": (times, lambda: (bytes_(20, 33), bytes_(33, 18)), 1),
    "of_64_bits": (of_64_bits, lambda: (bytes_(20, 33), bytes_(33, 18)), 1),
    "residual": (residual, lambda: (bytes_(20, 33), bytes_(33, 18), ints(20, 18)), 1),
    "taps": (taps, lambda: (bytes_(2, 14, 14, 20), bytes_(3, 3, 20, 40)), 1),
    "in_place": (in_place, lambda: (bytes_(2, 9, 9, 20), bytes_(3, 3, 20, 17)), 1),
    "from_the_first": (from_the_first, lambda: (bytes_(2, 9, 9, 20), bytes_(3, 3, 20, 17)), 1),
    "einsum": (einsum, lambda: (bytes_(2, 9, 9, 20), bytes_(3, 3, 20, 17)), 1),
    "tensordot": (tensordot, lambda: (bytes_(2, 9, 9, 20), bytes_(3, 3, 20, 17)), 1),
    "block": (block, lambda: (bytes_(1, 7, 7, 20), bytes_(3, 3, 20, 20), bytes_(3, 3, 20, 20)), 2),
    "columns": (columns, lambda: (bytes_(2, 9, 9, 20), bytes_(3, 3, 20, 17)), 1),
    "padded": (padded, lambda: (bytes_(2, 12, 12, 20), bytes_(3, 3, 20, 40)), 1),
    "two_padded": (two_padded, lambda: (bytes_(2, 9, 9, 20), bytes_(3, 3, 20, 24), bytes_(3, 3, 24, 8)), 2),
    "pooled": (pooled, lambda: (bytes_(2, 14, 14, 32),), 1),
    "averaged": (averaged, lambda: (bytes_(3, 8, 8, 20),), 1),
    "perceptron": (perceptron, lambda: (bytes_(70, 40), bytes_(40, 33), ints(33), bytes_(33, 10)), 2),
    "network": (network, lambda: (bytes_(2, 14, 14, 5), bytes_(3, 3, 5, 20), ints(20), bytes_(3, 3, 20, 24),
                                  ints(24), bytes_(384, 10)), 4),
}


def parts_of(decorated) -> list:
    """Return what runs on the device, program by program."""
    sites = decorated.__jitla_state__.all_sites()
    return [h.attr("part") for s in sites for p in s.runs() for step in p.plan.steps
            for h in [getattr(step, "hop", None)] if h is not None and h.op.name == "offload"]


def same(found, wanted) -> bool:
    return np.array_equal(found, wanted) and found.dtype == wanted.dtype and found.strides == wanted.strides


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_a_program_is_bit_identical_on_the_device(name):
    function, data, units = PROGRAMS[name]
    given = data()
    with jitla.options(accelerator="vta-pynq", placement="forced"):
        decorated = jitla.jit(function)
        assert same(decorated(*given), function(*given))
        parts = parts_of(decorated)
        assert sum(len(p.group) for p in parts) == units
        assert all(p.runs and not p.refused for p in parts)
        assert not decorated.stats().failures


@pytest.mark.parametrize("name", ["taps", "in_place", "from_the_first", "columns", "einsum", "tensordot"])
def test_a_convolution_brings_its_pixels_once_however_it_is_written(name):
    function, _, _ = PROGRAMS[name]
    x, w = bytes_(1, 20, 20, 16), bytes_(3, 3, 16, 16)
    with jitla.options(accelerator="vta-pynq", placement="forced"):
        decorated = jitla.jit(function)
        assert same(decorated(x, w), function(x, w))
    (part,) = parts_of(decorated)
    (images,) = (r for r in part.last.program.regions if r.name.endswith("images"))
    assert images.nbytes == x.nbytes


def test_few_channels_are_put_together_at_the_host():
    x, w = bytes_(1, 20, 20, 3), bytes_(3, 3, 3, 16)
    with jitla.options(accelerator="vta-pynq", placement="forced"):
        decorated = jitla.jit(einsum)
        assert same(decorated(x, w), einsum(x, w))
    (part,) = parts_of(decorated)
    assert (part.last.stages[0].layer.rows.taps, part.last.stages[0].layer.channels) == (1, 27)


def written_before(x, w):
    part = x[1:4]
    x[2] = 5
    return part.astype(np.int32) @ w.astype(np.int32)


def written_through(x, w):
    part = x[1:4]
    part += 1
    windows = np.lib.stride_tricks.sliding_window_view(x, 2, axis=0)
    x[:2] = -3
    return np.einsum("nci,co->no", windows.astype(np.int32), w.astype(np.int32))


def returned(x, w):
    part = x[1:4]
    windows = np.lib.stride_tricks.sliding_window_view(x, 2, axis=0)
    part.astype(np.int32) @ w.astype(np.int32)
    return windows


def kept_zeros(x, w):
    total = np.zeros((5, 8), np.int32)
    other = total[1:3]
    total += x.astype(np.int32) @ w.astype(np.int32)
    other += 1
    return total


def zeros_of_a_row(x, w):
    total = np.zeros((5, 8), np.int32)
    total += np.ones(8, np.int32)
    total[0] = x[0].astype(np.int32) @ w.astype(np.int32)
    return total


@pytest.mark.parametrize("function", [written_before, written_through, returned, kept_zeros, zeros_of_a_row])
def test_what_waits_for_its_use_is_what_was_there(function):
    x, w = bytes_(5, 4), bytes_(4, 8)
    given, wanted = x.copy(), function(x, w)
    with jitla.options(accelerator="vta-pynq", placement="forced"):
        found = jitla.jit(function)(given, w)
    assert same(found, wanted) and np.array_equal(given, x)
    assert found.flags.writeable is wanted.flags.writeable
    assert (found.base is given) is (wanted.base is x)


def test_layers_that_follow_each_other_are_one_program():
    function, data, _ = PROGRAMS["network"]
    with jitla.options(accelerator="vta-pynq", placement="forced"):
        decorated = jitla.jit(function)
        decorated(*data())
        assert sorted(len(p.group) for p in parts_of(decorated)) == [4]


@pytest.mark.parametrize("given", [
    (ints(20, 30), bytes_(30, 8), ints(8)),  # not shown to be bytes
    (bytes_(20, 30).astype(np.uint8), bytes_(30, 8), ints(8)),
    (bytes_(20, 0), bytes_(0, 8), ints(8)),
], ids=["ints", "unsigned", "empty"])
def test_what_cannot_be_shown_to_fit_stays_at_the_host(given):
    with jitla.options(accelerator="vta-pynq", placement="forced"):
        decorated = jitla.jit(dense)
        assert same(decorated(*given), dense(*given))
        assert parts_of(decorated) == []


def test_numbers_the_device_has_not_are_left_to_numpy():
    def shifted(x, w, n):
        return (x.astype(np.int32) @ w.astype(np.int32)) >> n

    x, w = bytes_(20, 30), bytes_(30, 8)
    with jitla.options(accelerator="vta-pynq", placement="forced"):
        decorated = jitla.jit(shifted)
        for n in (3, 40, 20, -3):  # NumPy shifts by negative numbers as by large ones
            assert same(decorated(x, w, n), shifted(x, w, n))
        (part,) = parts_of(decorated)
        assert (part.runs, part.refused) == (2, 2)


def test_other_sizes_have_programs_of_their_own():
    with jitla.options(accelerator="vta-pynq", placement="forced"):
        decorated = jitla.jit(dense)
        for rows in (3, 17, 64, 65, 2, 5, 31):
            given = bytes_(rows, 40), bytes_(40, 20), ints(20)
            assert same(decorated(*given), dense(*given))


def test_cost_decides_where_it_is_not_forced():
    small, large = [(bytes_(n, n), bytes_(n, n), ints(n)) for n in (8, 384)]
    told = {}
    for name, given in (("small", small), ("large", large)):
        decorated = jitla.jit(dense, target="vta")
        assert same(decorated(*given), dense(*given))
        told[name] = str(jitla.explain(decorated, level="placement"))
    assert "->  host" in told["small"]
    assert "us simulated" in told["small"] and "us transfers" in told["small"]
    assert "->  vta-pynq" in told["large"]
    assert "simulated cycles at 100 MHz" in told["large"] and "gemm uop" in told["large"]
    assert "for what is done beside products" in told["large"] and "bound by" in told["large"]


@pytest.mark.parametrize("name", ["dense", "residual", "perceptron"])
def test_rows_are_shared_by_host_and_device(name):
    function, data, _ = PROGRAMS[name]
    given = data()
    with jitla.options(accelerator="vta-pynq", placement="split"):
        decorated = jitla.jit(function)
        assert same(decorated(*given), function(*given))
        parts = parts_of(decorated)
        assert parts and all(0 < p.meta.shape[0] < len(given[0]) and p.runs for p in parts)


def test_a_product_whose_rows_meet_is_not_split():
    given = bytes_(2, 8, 8, 20)

    def summed(x):
        return x.astype(np.int32).sum(axis=0)

    with jitla.options(accelerator="vta-pynq", placement="split"):
        decorated = jitla.jit(summed)
        assert same(decorated(given), summed(given))
        assert parts_of(decorated) == []


def test_results_in_other_orders_lie_as_numpys():
    x, w = np.asfortranarray(bytes_(20, 30)), bytes_(8, 30).T
    for given in ((x, w, ints(8)), (x[::2], w, ints(8)), (x, w, np.asfortranarray(ints(20, 8)))):
        with jitla.options(accelerator="vta-pynq", placement="forced"):
            assert same(jitla.jit(dense)(*given), dense(*given))
    turned = np.asfortranarray(bytes_(3, 6, 2, 4)), bytes_(3, 3, 4, 5)
    with jitla.options(accelerator="vta-pynq", placement="forced"):
        assert same(jitla.jit(padded)(*turned), padded(*turned))


def test_a_second_intrinsic_is_declared_found_and_run():
    """Sums of two arrays of bytes, which no other intrinsic makes: declared here, nothing else is told."""

    def lower(match):
        left, right = match.accesses(0)[0], match.accesses(1)[0]
        axes = match.axes["o"]
        count = int(np.prod([a.extent for a in axes]))
        layer = Layer(1, count, count, mode="sum",
                      steps=(EpilogueOp(AluOp.ADD, operand="right", form="full"),))

        def source(access):
            return OperandSource(((access.hop, start_indices(access)),),
                                 ((), (), (), (), loops_of(access, axes)),
                          (1, 1, 1, 1, count))

        return LayerFit(layer, {"images": source(left), "right": source(right)}, ((), (), (), (), axes), left)

    pairwise = TensorIntrinsic("pairwise", "out[o] = left[o] + right[o]", lower, "sums of pairs")
    device = Device(preset("vta-pynq"), (*INTRINSICS, pairwise))
    x, y = bytes_(9, 50), bytes_(9, 50)
    hops = [leaf(i, Meta(a.shape, a.dtype)) for i, a in enumerate((x, y))]
    wide = [make("cast", (h,), dtype=np.int32) for h in hops]
    root = make("cast", (make("maximum", (make("add", tuple(wide)), wide[0])),), dtype=np.int16)
    assert Device(preset("vta-pynq")).units((root,)) == []
    (unit,) = device.units((root,))
    assert unit.name == "pairwise maximum"
    part = device.part([unit])
    values = {hops[0]: x, hops[1]: y}
    found = part(*[values[i] for i in part.inputs])
    assert np.array_equal(found, evaluate((root,), (x, y))[0]) and not part.refused


def test_an_unknown_machine_is_named():
    with pytest.raises(jitla.ConfigError, match="vta-pinq"):
        jitla.jit(dense, target="vta-pinq")(bytes_(2, 2), bytes_(2, 2), ints(2))


def test_floats_run_on_the_machine_for_them():
    def layer(x, w, b):
        return np.maximum(x @ w + b, 0)

    given = [RNG.normal(size=s).astype(np.float32) for s in ((20, 30), (30, 8), (8,))]
    with jitla.options(accelerator="vta-f32", placement="forced"):
        decorated = jitla.jit(layer)
        assert np.allclose(decorated(*given), layer(*given), atol=1e-4)
        assert parts_of(decorated)
        strict = jitla.jit(layer, numerics="strict")
        assert same(strict(*given), layer(*given))
        assert parts_of(strict) == []


@pytest.mark.parametrize("axes", [([5], [0]), ([-4], [0]), ([0], [2])])
def test_axes_that_are_not_there_are_refused_as_numpy_does(axes):
    def sums(x, w):
        return np.tensordot(x.astype(WIDE), w.astype(WIDE), axes=axes)

    x, w = bytes_(2, 3, 4), bytes_(4, 3)
    with pytest.raises(IndexError, match="tuple index out of range"):
        sums(x, w)
    with pytest.raises(IndexError, match="tuple index out of range"):
        jitla.jit(sums, target="vta")(x, w)


# Tiles of layers on the accelerator: tuned on simulated cycles, chosen by records, the same results.

TILES_RNG = np.random.default_rng(1)


def dense_layer(x, w):
    return np.clip(x.astype(np.int32) @ w.astype(np.int32) >> 7, -128, 127).astype(np.int8)


@pytest.fixture
def kept(tmp_path):
    with jitla.options(cache_dir=str(tmp_path), disk_cache=True, progress=False, accelerator="vta-pynq",
                       placement="forced"):
        yield tmp_path
        ENGINE.use_tuning_session()


def test_tiles_are_tuned_on_cycles_and_records_choose_them(kept):
    x = TILES_RNG.integers(-9, 9, (48, 96)).astype(np.int8)
    w = TILES_RNG.integers(-9, 9, (96, 64)).astype(np.int8)
    f = jitla.jit(dense_layer, compile="sync")
    wanted = dense_layer(x, w)
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
