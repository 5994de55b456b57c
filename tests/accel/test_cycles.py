"""Simulated time: closed forms, bounds, waiting, pictures and files."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest

from jitla.accel import (
    BOARD,
    COSTS,
    HLS,
    IDEAL,
    PRESETS,
    RTL,
    AccelProgram,
    Alu,
    AluOp,
    Finish,
    Gemm,
    Load,
    Memory,
    Store,
    Unit,
    Uop,
    encode_uops,
    load_dump,
    measure,
    noop,
    perfetto,
    preset,
    run,
    save_dump,
    svg,
)
from jitla.errors import DeviceError
from tests.accel.reference import interpret
from tests.accel.streams import PYNQ, conv, matmul, matmul_data

PROGRAMS = {"product": matmul(), "long product": matmul(rows=64, depth=16, tile=16, chunk=4),
            "one thread": matmul(threads=1), "convolutions": conv(), "ultra96": matmul(preset("vta-ultra96"))}
FETCH = 16 + 2  # cycles until one instruction is there, of a stream of one


def cycles_of(*instructions, costs=RTL, spec=PYNQ) -> np.ndarray:
    """Cycles of each instruction from its begin to its end."""
    timing = measure(AccelProgram(spec, instructions, encode_uops(spec, [Uop(0)])), costs)
    return timing.end - timing.begin


@pytest.mark.parametrize("instruction, cycles", [
    (noop(Unit.LOAD), 2), (Finish(), 2),
    (Gemm(uop_end=3, iter_out=5, iter_in=7), 3 * 5 * 7 + 7),
    (Gemm(reset=True, uop_end=3, iter_out=5, iter_in=7), 3 * 5 * 7 + 7),
    (Alu(op=AluOp.MAX, use_imm=True, uop_end=4, iter_in=10), 40 + 7),
    (Alu(op=AluOp.MAX, uop_end=4, iter_in=10), 80 + 7),
    # sixteen bytes are two beats of eight; the first burst of a load finds the channel idle
    (Load(memory=Memory.INP, dram_base=256, x_size=3, x_stride=3), 16 + 6),
    (Load(memory=Memory.INP, dram_base=256, y_size=4, x_size=1, x_stride=9), 16 + 2 + 3 * (1 + 2)),
    (Load(memory=Memory.INP, dram_base=256, y_size=2, x_size=1, x_stride=9, x_pad_0=15, x_pad_1=15), 4 + 60),
    # a burst ends at a multiple of 256 beats, 2048 bytes: here after one element, and 128 later
    (Load(memory=Memory.INP, dram_base=255, x_size=130, x_stride=130), 16 + 2 + (1 + 256) + (1 + 2)),
    (Load(memory=Memory.WGT, dram_base=16, x_size=1, x_stride=1), 16 + 32),
    (Load(memory=Memory.ACC, dram_base=64, x_size=2, x_stride=2), 16 + 16),
    (Load(memory=Memory.UOP, dram_base=1025, x_size=4, x_stride=4), 16 + 3),  # a beat is cut at both ends
    (Store(dram_base=256, x_size=5, x_stride=5), 6 + 5 * 3),
    (Store(dram_base=256, y_size=3, x_size=2, x_stride=5), 3 * 6 + 6 * 3),
])
def test_instructions_alone(instruction, cycles):
    program = AccelProgram(PYNQ, (instruction,), encode_uops(PYNQ, [Uop(0)]))
    timing = measure(program)
    assert int(timing.end[0] - timing.begin[0]) == cycles
    assert timing.begin[0] == FETCH
    assert timing.cycles == FETCH + cycles


def test_other_boards_and_costs():
    alu = Alu(op=AluOp.MAX, use_imm=True, uop_end=4, iter_in=10)
    assert cycles_of(alu, costs=HLS) == [80 + 7]
    load = Load(memory=Memory.INP, dram_base=256, x_size=40, x_stride=40)
    assert cycles_of(load, costs=BOARD) == [50 + 80]
    assert cycles_of(load, spec=preset("vta-ultra96")) == [16 + 40]
    # bursts of at most 16 beats: five of eight elements
    assert cycles_of(load, spec=replace(PYNQ, target="de10nano")) == [16 + 80 + 4]


def test_fetch_reads_a_burst_and_hands_out_one_a_cycle():
    timing = measure(AccelProgram(PYNQ, (noop(Unit.COMPUTE),) * 300))
    arrived = 16 + 256  # 128 instructions of two beats
    assert timing.fetched[:128].tolist() == list(range(arrived, arrived + 128))
    assert timing.fetched[128] == arrived + 127 + 16 + 256  # when all of them are handed out
    assert [end - begin for begin, end in timing.fetches] == [16 + 256, 16 + 256, 16 + 2 * 44]
    assert timing.fetch_time.busy == 3 * 16 + 600 and timing.fetch_time.channel == 3 * 16


def test_reads_wait_for_each_other_by_rank():
    """A load of inputs and one of accumulators at once: inputs are served first, the other queues."""
    long = Load(memory=Memory.WGT, dram_base=16, x_size=8, x_stride=8)
    acc = Load(memory=Memory.ACC, dram_base=64, x_size=1, x_stride=1)
    timing = measure(AccelProgram(PYNQ, (long, acc)))
    assert timing.begin.tolist() == [20, 21]
    assert timing.end.tolist() == [20 + 16 + 256, 20 + 16 + 256 + 1 + 8]


@pytest.mark.parametrize("costs", COSTS.values(), ids=COSTS)
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_bounds(program, costs):
    pipelined, serial = measure(program, costs), measure(program, costs, serial=True)
    work = pipelined.end - pipelined.begin
    assert max(pipelined.unit_time(unit).busy for unit in Unit) <= pipelined.cycles <= serial.cycles
    assert serial.cycles <= int((serial.end - serial.begin).sum()) + serial.unit_time(Unit.COMPUTE).idle.get(
        "fetch", 0) + int(serial.fetched[0])
    assert (serial.begin[1:] >= serial.end[:-1]).all()
    assert (work >= 0).all()
    for timing in (pipelined, serial):
        for time in (timing.fetch_time, *map(timing.unit_time, Unit)):
            assert time.busy + sum(time.idle.values()) == timing.cycles
            assert 0 <= time.channel <= time.busy
    assert costs is IDEAL or pipelined.roofline.attained <= pipelined.roofline.roof


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_without_memory_the_time_is_that_of_computing(program):
    steps = sum(i.steps * (1 if isinstance(i, Gemm) or i.use_imm else 2)
                for i in program.instructions if isinstance(i, (Gemm, Alu)))
    assert measure(program, IDEAL).cycles == steps


def test_two_threads_hide_latency():
    sizes = dict(rows=128, depth=32, blocks=4, tile=32, chunk=4)
    one, two = measure(matmul(threads=1, **sizes)), measure(matmul(threads=2, **sizes))
    assert two.cycles < one.cycles < measure(matmul(threads=1, **sizes), serial=True).cycles
    assert one.gemm_steps == two.gemm_steps and two.utilisation > one.utilisation


def test_more_tokens_never_make_it_faster():
    program = matmul(rows=64, depth=8)
    before = measure(program).cycles
    stream = list(program.instructions)
    gemms = [at for at, i in enumerate(stream) if isinstance(i, Gemm) and not i.reset]
    for at in gemms[1:3]:  # the store unit waits for a product, for no reason
        stream[at:at] = [replace(noop(Unit.COMPUTE), push_next=True),
                         replace(noop(Unit.STORE), pop_prev=True)]
    assert measure(replace(program, instructions=tuple(stream))).cycles >= before


def test_a_roofline():
    roof = measure(matmul(rows=64, depth=16, tile=16, chunk=4)).roofline
    assert roof.peak == 256 and roof.roof == pytest.approx(roof.intensity * 8) and roof.bound == "memory"
    wide = measure(matmul(preset("vta-ultra96"), rows=512, blocks=4, depth=16, tile=128, chunk=4))
    assert wide.roofline.bound == "compute" and wide.roofline.roof == 256


def test_the_record_of_a_run():
    timing = measure(matmul())
    summary = json.loads(json.dumps(timing.summary()))
    assert summary["simulated cycles"] == timing.cycles
    assert summary["simulated seconds"] == timing.cycles / 100e6 == timing.seconds
    counted = run(timing.program, timing.program.image(matmul_data(timing.program, np.random.default_rng(0))))
    assert summary["bytes read"] == (counted.counters.inp_load_bytes + counted.counters.wgt_load_bytes
                                     + counted.counters.uop_load_bytes)
    assert summary["bytes written"] == counted.counters.out_store_bytes
    assert timing.gemm_steps == counted.counters.gemm_steps
    text = str(timing)
    assert "simulated cycles at 100 MHz" in text and "load_to_compute" in text and "bound by memory" in text


def test_deadlocks_are_named():
    program = AccelProgram(PYNQ, (replace(noop(Unit.LOAD), pop_next=True), Finish()))
    with pytest.raises(DeviceError, match="deadlock: 1 instructions never run"):
        measure(program)
    assert measure(program, serial=True).cycles > 0  # no token is looked at


def test_many_commands_wait_for_room():
    """A queue has 512: fetch stands still until the unit goes on, and nothing is lost."""
    stream = (Gemm(uop_end=1, iter_out=5000),) + (noop(Unit.COMPUTE),) * 700 + (Finish(),)
    timing = measure(AccelProgram(PYNQ, stream, encode_uops(PYNQ, [Uop(0)])))
    assert timing.fetched[600] > timing.end[0]
    assert timing.cycles >= 5007 + 701 * 2


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_pictures(program):
    timing = measure(program)
    root = ET.fromstring(svg(timing))
    bars = [e for e in root.iter() if e.tag.endswith("rect") and list(e)]
    assert len(bars) >= 3
    assert all(float(b.get("x")) + float(b.get("width")) <= 70 + 1000 + 0.5 for b in bars)
    ticks = [e for e in root.iter() if e.get("fill") == "#666666"]
    assert 4 <= len(ticks) <= 21
    part = ET.fromstring(svg(timing, timing.cycles // 2, timing.cycles // 2 + 100))
    assert f"cycles {timing.cycles // 2} to {timing.cycles // 2 + 100}" in "".join(part.itertext())
    trace = json.loads(perfetto(timing))["traceEvents"]
    slices = [e for e in trace if e["ph"] == "X"]
    assert len(slices) == len(program.instructions) + len(timing.fetches)
    assert max(e["ts"] + e["dur"] for e in slices) == timing.cycles
    arrows = {e["id"]: e for e in trace if e["ph"] == "s"}
    for end in (e for e in trace if e["ph"] == "f"):
        assert arrows[end["id"]]["ts"] < end["ts"]
    assert json.loads(perfetto(measure(program, serial=True)))


def test_pictures_of_long_runs_stay_small():
    timing = measure(AccelProgram(PYNQ, (noop(Unit.COMPUTE),) * 5000))
    assert timing.cycles >= 10_000
    assert len(svg(timing)) < 20_000  # one bar for thousands of waits


@pytest.mark.parametrize("spec", PRESETS.values(), ids=PRESETS)
def test_a_dump_can_be_replayed_elsewhere(spec, tmp_path):
    program = matmul(spec)
    image = program.image(matmul_data(program, np.random.default_rng(2)))
    place = save_dump(tmp_path / "product.npz", program, image)
    with np.load(place, allow_pickle=False) as entries:  # as somebody would who has only the file
        replayed = interpret(json.loads(str(entries["config"])), entries["instructions"], entries["dram"])
        assert np.array_equal(replayed, entries["expected"])
        assert entries["instructions"].dtype == np.uint64 and entries["instructions"].shape[1] == 2
    found = load_dump(place)
    assert found.program.instructions == program.instructions and found.program.spec == spec
    assert found.program.regions == program.regions
    assert np.array_equal(run(found.program, found.image).image, found.expected)


@pytest.mark.parametrize("tile, blocks, chunk", [(32, 16, 2), (8, 4, 1), (16, 8, 2), (64, 4, 2), (64, 16, 1)])
def test_utilisation_follows_from_beats_and_steps(tile, blocks, chunk):
    """What one more chunk takes where nothing but beats and steps takes time: the slower of both decides."""
    costs = replace(IDEAL, beat=1)

    def per_chunk(serial: bool) -> float:
        few, many = (measure(matmul(rows=tile, blocks=blocks, depth=count * chunk, tile=tile, chunk=chunk),
                             costs, serial).cycles for count in (20, 60))
        return (many - few) / 40

    steps, beats = tile * blocks * chunk, 2 * tile * chunk + 32 * blocks * chunk
    fetched = 3 * 2  # two loads and a product, two beats each, on the same channel
    assert per_chunk(serial=False) == pytest.approx(max(steps, beats + fetched), rel=0.01)
    assert per_chunk(serial=True) == pytest.approx(steps + beats + fetched / 2, abs=fetched)
