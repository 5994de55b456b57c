"""The functional and the timing simulator: results against NumPy and an interpreter, cycles."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from jitla.accel import (
    BOARD,
    COSTS,
    HLS,
    IDEAL,
    PAGE,
    PRESETS,
    RTL,
    AccelProgram,
    Alu,
    AluOp,
    DramAllocator,
    Finish,
    Gemm,
    Load,
    Memory,
    Store,
    Unit,
    Uop,
    encode_uops,
    from_immediate,
    from_words,
    load_dump,
    measure,
    noop,
    perfetto,
    preset,
    run,
    save_dump,
    svg,
    to_immediate,
    verify,
)
from jitla.errors import DeviceError
from tests.accel.programs import faults_of, random_spec
from tests.accel.reference import interpret, interpret_other
from tests.accel.streams import PYNQ, conv, conv_expected, matmul, matmul_data, matmul_expected

# What programs mean: against NumPy, against a plain interpreter, in every order of the units.


@pytest.mark.parametrize("seed", range(0, 60, 6))
def test_random_programs(seed):
    """Six by six; `python -m tests.accel.programs` runs ten thousand."""
    faults = {n: found for n in range(seed, seed + 6) if (found := faults_of(n))}
    assert not faults


@pytest.mark.parametrize("machine", ["vta-pynq", "vta-ultra96", "vta-extended"])
@pytest.mark.parametrize("rows, blocks, depth, tile, chunk", [
    (16, 2, 4, 8, 2), (8, 1, 2, 4, 1), (24, 4, 6, 8, 3)])
def test_products_are_numpys_in_every_order_of_units(machine, rows, blocks, depth, tile, chunk):
    program = matmul(preset(machine), rows, blocks, depth, tile, chunk)
    data = matmul_data(program, np.random.default_rng(rows))
    for order in permutations(range(3)):
        outcome = run(program, program.image(data), order)
        assert np.array_equal(program.view(outcome.image, "C"), matmul_expected(data))
    steps = rows * blocks * depth
    counted = outcome.counters
    assert (counted.gemm_steps, counted.alu_steps) == (steps, 3 * rows * blocks)
    assert counted.inp_load_bytes == rows * depth * 16
    assert counted.wgt_load_bytes == blocks * depth * 256 * (rows // tile)
    assert (counted.out_store_bytes, counted.acc_load_bytes) == (rows * blocks * 16, 0)
    assert counted.uop_load_bytes == 4 * len(program.uops)
    assert outcome.tokens == (0, 0, 0, 0)


def test_two_convolutions_without_the_host_in_between():
    rng = np.random.default_rng(3)
    program = conv()
    data = {"x": rng.integers(-128, 128, (6, 7, 1, 16)).astype(np.int8),
            "k": rng.integers(-40, 40, (9, 16, 16)).astype(np.int8)}
    image = program.image(data)
    before = image.copy()
    outcome = run(program, image, shuffle=rng)
    assert np.array_equal(program.view(outcome.image, "y"), conv_expected(data["x"], data["k"]))
    assert np.array_equal(image, before)  # the image given stays as it is


def test_floats_are_those_of_the_plain_interpreter():
    program = matmul(preset("vta-f32"))
    data = matmul_data(program, np.random.default_rng(5))
    found = program.view(run(program, program.image(data)).image, "C")
    exact = program.view(interpret(program.spec.record(), program.words, program.image(data)), "C")
    assert np.array_equal(found, exact)
    assert np.allclose(found, matmul_expected(data), rtol=1e-4, atol=1e-4)


def test_whole_numbers_in_floats_are_exact():
    """Addresses, loops and tokens of the machine with floats, apart from rounding."""
    program = matmul(preset("vta-f32"))
    rng = np.random.default_rng(6)
    data = {name: rng.integers(-100, 100, program.region(name).shape) for name in ("A", "B")}
    found = program.view(run(program, program.image(data)).image, "C")
    assert np.array_equal(found, matmul_expected(data | {"A": data["A"].astype(np.float64)}))


def tiny(*instructions, spec=PYNQ, uops=(Uop(0, 1), Uop(1, 2), Uop(2, 3))) -> tuple[AccelProgram, np.ndarray]:
    """A program over four accumulators, loaded from and stored to DRAM; returns it with its image."""
    lay = DramAllocator()
    size = spec.element(Memory.ACC).nbytes
    table = lay.add("uops", (len(uops),), np.uint32, "constant")
    before = lay.add("before", (4, spec.batch, spec.block), spec.element(Memory.ACC).dtype, "input")
    after = lay.add("after", (4, spec.batch, spec.block), spec.element(Memory.OUT).dtype, "output")
    out = spec.element(Memory.OUT).nbytes
    stream = [
        Load(memory=Memory.UOP, dram_base=table.address // 4, x_size=len(uops), x_stride=len(uops)),
        Load(memory=Memory.ACC, dram_base=before.address // size, x_size=4, x_stride=4), *instructions]
    stream[-1] = replace(stream[-1], push_next=True)
    stream += [Store(dram_base=after.address // out, x_size=4, x_stride=4, pop_prev=True, push_prev=True),
               replace(noop(Unit.COMPUTE), pop_next=True), Finish()]
    program = AccelProgram(spec, tuple(stream), encode_uops(spec, uops), table.address, tuple(lay.regions))
    return program, program.image()


CORNERS = np.array([0, 1, -1, 127, 128, -128, -129, 255, 256, 2**15, -2**15, 2**31 - 1, -2**31, 2**30, 77,
                    -78], np.int32)


@pytest.mark.parametrize("op, imm", [
    *[(AluOp.SHR, n) for n in (-15, -8, -1, 0, 1, 8, 15)],
    *[(op, n) for op in (AluOp.MIN, AluOp.MAX, AluOp.ADD, AluOp.MUL)
      for n in (-32768, -1, 0, 1, 300, 32767)]])
def test_immediates_wrap_and_are_cut_off_as_numpy_does(op, imm):
    program, image = tiny(Alu(op=op, use_imm=True, imm=imm, uop_end=1), spec=preset("vta-extended"))
    program.view(image, "before")[...] = CORNERS
    shifted = CORNERS >> imm if imm >= 0 else CORNERS << -imm
    with np.errstate(all="ignore"):
        expected = {AluOp.MIN: np.minimum(CORNERS, imm), AluOp.MAX: np.maximum(CORNERS, imm),
                    AluOp.ADD: CORNERS + np.int32(imm), AluOp.MUL: CORNERS * np.int32(imm),
                    AluOp.SHR: shifted if op is AluOp.SHR else None}[op]
    after = program.view(run(program, image).image, "after")
    assert np.array_equal(after[0, 0], expected.astype(np.int8))
    assert np.array_equal(after[1, 0], CORNERS.astype(np.int8))


@pytest.mark.parametrize("op", AluOp)
def test_two_operands(op):
    program, image = tiny(Alu(op=op, uop_end=3), spec=preset("vta-extended"))
    before = program.view(image, "before")
    rng = np.random.default_rng(int(op))
    before[...] = rng.integers(-(2**31), 2**31, before.shape)
    if op is AluOp.SHR:
        before[1:] = rng.integers(-31, 32, before[1:].shape)
    exact = interpret(program.spec.record(), program.words, image)
    assert np.array_equal(run(program, image).image, exact)


def test_a_step_reads_what_an_earlier_one_wrote():
    """Which no implementation is asked to do, and the plain meaning is one after the other."""
    down = (Uop(1, 0), Uop(2, 1), Uop(3, 2), Uop(0, 3))
    program, image = tiny(Alu(op=AluOp.ADD, uop_end=4, iter_in=2), uops=down)
    program.view(image, "before")[...] = np.arange(1, 65).reshape(4, 1, 16)
    assert np.array_equal(run(program, image).image,
                          interpret(PYNQ.record(), program.words, image))


@pytest.mark.parametrize("top", [0, 1, 7, 15])
@pytest.mark.parametrize("left", [0, 2, 15])
def test_zeros_around_a_tile(top, left):
    lay = DramAllocator()
    source = lay.add("x", (5, 6, 4), np.int32, "input")
    spec = replace(PYNQ, log_block=2, log_acc_buff_size=15, log_inp_buff_size=12, log_wgt_buff_size=13)
    load = Load(memory=Memory.ACC, dram_base=source.address // 16 + 7, y_size=3, x_size=4, x_stride=6,
                y_pad_0=top, y_pad_1=15 - top, x_pad_0=left, x_pad_1=15 - left)
    after = lay.add("y", (18, 19, 4), np.int8, "output")
    stream = (load, replace(noop(Unit.COMPUTE), push_next=True),
              Store(dram_base=after.address // 4, x_size=18 * 19, x_stride=18 * 19, pop_prev=True,
                    push_prev=True), replace(noop(Unit.COMPUTE), pop_next=True), Finish())
    program = AccelProgram(spec, stream, regions=tuple(lay.regions))
    values = np.arange(120).reshape(5, 6, 4) + 1
    image = program.image({"x": values})
    expected = np.pad(values[1:4, 1:5], ((top, 15 - top), (left, 15 - left), (0, 0)))
    assert np.array_equal(program.view(run(program, image).image, "y"), expected)


def test_long_sums_wrap_and_stay_exact():
    """More terms than a float of 32 bits can count, and inputs of 16 bits."""
    for widths in ((3, 3), (4, 4), (4, 3)):
        spec = replace(PYNQ, log_inp_width=widths[0], log_wgt_width=widths[1],
                       log_inp_buff_size=12 + widths[0], log_wgt_buff_size=15 + widths[1])
        program = matmul(spec, rows=4, blocks=1, depth=96, tile=4, chunk=96, threads=1, shift=15)
        data = matmul_data(program, np.random.default_rng(1))
        data = {k: np.where(v > 0, np.iinfo(v.dtype).min, v) for k, v in data.items()}
        image = program.image(data)
        assert np.array_equal(run(program, image).image,
                              interpret(spec.record(), program.words, image))


def test_rows_that_are_stored_over_each_other():
    program, image = tiny(Alu(op=AluOp.ADD, use_imm=True, imm=0, uop_end=1))
    at = next(n for n, i in enumerate(program.instructions) if isinstance(i, Store))
    stream = list(program.instructions)
    stream[at] = replace(stream[at], y_size=2, x_size=2, x_stride=1)
    program = replace(program, instructions=tuple(stream))
    program.view(image, "before")[...] = np.arange(64).reshape(4, 1, 16)
    assert np.array_equal(run(program, image).image, interpret(PYNQ.record(), program.words, image))


def test_programs_come_back_from_their_words():
    program = matmul()
    again = from_words(program.spec, program.words, program.uops, program.uop_address, program.regions)
    assert again.instructions == program.instructions
    data = matmul_data(program, np.random.default_rng(0))
    assert np.array_equal(run(again, again.image(data)).image, run(program, program.image(data)).image)
    assert program.region("A").address == PAGE
    with pytest.raises(DeviceError, match="unknown region 'D'"):
        program.region("D")


def test_immediates():
    floats = preset("vta-f32")
    for value in (0.0, -0.0, 1.0, -2.5, 0.25, 3.0e38, 6.0, float("inf")):
        field = to_immediate(floats, value)
        if field is None:
            assert value == 3.0e38  # not a number of eight bits
            continue
        assert -(1 << 15) <= field < 1 << 15
        assert float(from_immediate(floats, field)) == value
    assert to_immediate(floats, 0.1) is None
    assert to_immediate(PYNQ, 127.0) == 127 and to_immediate(PYNQ, 0.5) is None
    assert to_immediate(PYNQ, 32768) is None and to_immediate(PYNQ, -32768) == -32768
    assert from_immediate(PYNQ, -5) == -5 and from_immediate(PYNQ, -5).dtype == np.int32


def test_any_machine_multiplies():
    """Batches, blocks and widths of all kinds."""
    rng = np.random.default_rng(11)
    for _ in range(12):
        spec = random_spec(rng, "strict")
        uops = encode_uops(spec, [Uop(0, 0, 0), Uop(1, 1, 1)])
        lay = DramAllocator()
        inp, wgt, out = (spec.element(m) for m in (Memory.INP, Memory.WGT, Memory.OUT))
        a = lay.add("a", (2, *inp.shape), inp.dtype, "input")
        b = lay.add("b", (2, *wgt.shape), wgt.dtype, "constant")
        c = lay.add("c", (2, *out.shape), out.dtype, "output")
        u = lay.add("u", (2,), np.uint32, "constant")
        stream = (
            Load(memory=Memory.UOP, dram_base=u.address // 4, x_size=2, x_stride=2),
            Load(memory=Memory.INP, dram_base=-(-a.address // inp.nbytes), x_size=2, x_stride=2),
            Load(memory=Memory.WGT, dram_base=-(-b.address // wgt.nbytes), x_size=2, x_stride=2,
                 push_next=True),
            Gemm(uop_end=2, pop_prev=True, push_next=True),
            Store(dram_base=-(-c.address // out.nbytes), x_size=2, x_stride=2, pop_prev=True,
                  push_prev=True),
            replace(noop(Unit.COMPUTE), pop_next=True), Finish())
        program = AccelProgram(spec, stream, uops, u.address, tuple(lay.regions))
        image = program.image()
        image[a.address:c.address] = rng.integers(0, 256, c.address - a.address)
        image = np.concatenate([image, np.zeros(1 << 16, np.uint8)])
        assert np.array_equal(run(program, image).image, interpret(spec.record(), program.words, image))


SIZES = [dict(rows=16, blocks=2, depth=4, tile=8, chunk=2), dict(rows=8, blocks=3, depth=2, tile=4, chunk=1),
         dict(rows=6, blocks=1, depth=3, tile=3, chunk=3, threads=1)]


def differing(program: AccelProgram, image: np.ndarray) -> list[str]:
    """Implementations in hardware on which `program` does something else."""
    expected, config = run(program, image).image, program.spec.record()
    return [which for which in ("hls", "chisel")
            if not np.array_equal(interpret_other(config, program.words, image, which), expected)]


@pytest.mark.parametrize("program", [*(matmul(**sizes) for sizes in SIZES), conv(4, 5)])
def test_programs_that_keep_the_rules_are_the_same_on_every_implementation(program):
    rng = np.random.default_rng(9)
    image = program.image({region.name: rng.integers(-128, 128, region.shape) for region in program.regions
                           if region.role in ("input", "constant") and region.name != "uops"})
    assert verify(program) == () and differing(program, image) == []


@pytest.mark.parametrize("instructions, rule", [
    ([noop(Unit.COMPUTE)], "stale-out"),
    ([Alu(op=AluOp.MUL, use_imm=True, imm=3, uop_end=3)], "dialect"),
    ([Alu(op=AluOp.SHR, use_imm=True, imm=-20, uop_end=3)], "shift"),
    ([Alu(op=AluOp.SHR, uop_end=2)], "shift"),
    ([Gemm(reset=True, uop_end=3)], "stale-out"),
])
def test_programs_that_break_a_rule_are_not(instructions, rule):
    """The rules are about something: where one is broken, implementations part."""
    program, image = tiny(*instructions, spec=preset("vta-extended"))
    program.view(image, "before")[...] = np.arange(64).reshape(4, 1, 16) % 11 - 5
    assert differing(program, image)
    strict = replace(program, spec=PYNQ)
    assert rule in {fault.rule for fault in verify(strict)}


# Simulated time: closed forms, bounds, waiting, pictures and files.

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
def test_cycles_are_between_the_busiest_unit_and_serial_execution(program, costs):
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
