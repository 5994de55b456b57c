"""What programs mean: against NumPy, against a plain interpreter, in every order of the units."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from jitla.accel import (
    PAGE,
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
    noop,
    preset,
    run,
    to_immediate,
    verify,
)
from jitla.errors import DeviceError
from tests.accel.programs import faults_of, random_spec
from tests.accel.reference import interpret, interpret_other
from tests.accel.streams import PYNQ, conv, conv_expected, matmul, matmul_data, matmul_expected


@pytest.mark.parametrize("seed", range(0, 60, 6))
def test_random_programs(seed):
    """Six by six; `python -m tests.accel.programs` runs ten thousand."""
    faults = {n: found for n in range(seed, seed + 6) if (found := faults_of(n))}
    assert not faults


@pytest.mark.parametrize("machine", ["vta-pynq", "vta-ultra96", "vta-extended"])
@pytest.mark.parametrize("rows, blocks, depth, tile, chunk", [
    (16, 2, 4, 8, 2), (8, 1, 2, 4, 1), (24, 4, 6, 8, 3)])
def test_products(machine, rows, blocks, depth, tile, chunk):
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
