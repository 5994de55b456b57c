"""Programs of the accelerator: machines, encoding of instructions, tokens, text."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from jitla.accel import (
    PRESETS,
    Alu,
    AluOp,
    DramAllocator,
    Finish,
    Gemm,
    Load,
    Memory,
    Opcode,
    Store,
    Unit,
    Uop,
    bits_of,
    check_encoding,
    decode,
    decode_one,
    decode_uops,
    disassemble,
    encode,
    encode_uops,
    fields,
    from_record,
    loads,
    preset,
    show,
    unit_of,
    uop_fields,
    verify,
)
from jitla.accel.program import Stream
from jitla.errors import ConfigError, DeviceError
from tests.accel.programs import random_spec
from tests.accel.reference import parse, tables
from tests.accel.streams import PYNQ, conv, matmul

# Machines: what follows from their configuration, and what cannot be built.

STANDARD = {"TARGET": "pynq", "HW_VER": "0.0.2", "LOG_INP_WIDTH": 3, "LOG_WGT_WIDTH": 3, "LOG_ACC_WIDTH": 5,
            "LOG_BATCH": 0, "LOG_BLOCK": 4, "LOG_UOP_BUFF_SIZE": 15, "LOG_INP_BUFF_SIZE": 15,
            "LOG_WGT_BUFF_SIZE": 18, "LOG_ACC_BUFF_SIZE": 17}


def test_the_standard_machine():
    spec = preset("vta-pynq")
    assert spec.record() == STANDARD
    assert spec.tag == "1x16_i8w8a32_15_15_18_17"
    found = {m.name: (e.shape, e.dtype.name, e.nbytes, e.depth, e.index_bits)
             for m, e in zip(Memory, spec.elements, strict=True)}
    assert found == {
        "UOP": ((1,), "uint32", 4, 8192, 13), "WGT": ((16, 16), "int8", 256, 1024, 10),
        "INP": ((1, 16), "int8", 16, 2048, 11), "ACC": ((1, 16), "int32", 64, 2048, 11),
        "OUT": ((1, 16), "int8", 16, 2048, 11), "ACC8": ((1, 16), "int8", 16, 2048, 11)}
    assert (spec.board.clock_mhz, spec.board.bus_bits, spec.macs_per_step) == (100, 64, 256)


def test_the_machine_with_floats_is_another_one():
    spec = preset("vta-f32")
    bits = {m.name: spec.element(m).index_bits for m in (Memory.INP, Memory.WGT, Memory.ACC)}
    assert bits == {"INP": 9, "WGT": 8, "ACC": 11}
    assert spec.element(Memory.WGT).nbytes == 1024
    assert {spec.element(m).dtype for m in (Memory.INP, Memory.WGT, Memory.ACC, Memory.OUT)} == {
        np.dtype(np.float32)}
    assert spec.record()["DIALECT"] == "float" and "DIALECT" not in STANDARD


@pytest.mark.parametrize("spec", PRESETS.values(), ids=PRESETS)
def test_presets_are_read_back(spec):
    check_encoding(spec)
    assert loads(spec.dumps(), spec.name) == spec
    assert loads(json.dumps(spec.record() | {"LOG_OUT_WIDTH": spec.log_inp_width, "LOG_BLOCK_IN": 4}),
                 spec.name) == spec


@pytest.mark.parametrize("record, message", [
    ({}, "missing keys"),
    (STANDARD | {"LOG_SPEED": 9}, "unknown keys.*LOG_SPEED"),
    (STANDARD | {"LOG_OUT_WIDTH": 5}, "LOG_OUT_WIDTH follows from LOG_INP_WIDTH"),
    (STANDARD | {"LOG_OUT_BUFF_SIZE": 17}, "LOG_OUT_BUFF_SIZE follows"),
    (STANDARD | {"TARGET": "moon"}, "TARGET is one of"),
    (STANDARD | {"DIALECT": "bird"}, "DIALECT is one of"),
    (STANDARD | {"LOG_INP_WIDTH": 2}, "8, 16 or 32 bits"),
    (STANDARD | {"LOG_ACC_WIDTH": 3, "LOG_INP_WIDTH": 4}, "at least as wide"),
    (STANDARD | {"DIALECT": "float"}, "floats have 32 bits"),
    (STANDARD | {"LOG_BLOCK": 9}, "blocks are"),
    (STANDARD | {"LOG_WGT_BUFF_SIZE": 8}, "WGT has at least two"),
])
def test_what_cannot_be_built(record, message):
    with pytest.raises(ConfigError, match=message):
        from_record(record)


def test_fields_must_fit_into_words():
    with pytest.raises(ConfigError, match="imm does not fit"):
        check_encoding(replace(preset("vta-pynq"), log_acc_buff_size=18, log_inp_buff_size=14,
                               log_wgt_buff_size=17))
    with pytest.raises(ConfigError, match="wgt_factor_in does not fit"):
        check_encoding(replace(preset("vta-pynq"), log_wgt_buff_size=19))


def test_not_a_configuration():
    for text in ("[]", "{", "3"):
        with pytest.raises(ConfigError):
            loads(text)
    with pytest.raises(ConfigError, match="unknown accelerator 'vta'"):
        preset("vta")


# Bits of instructions: the published table word for word, and back from bits on any machine.

MEMORY_TABLE = {"pop_prev": (3, 3), "pop_next": (4, 4), "push_prev": (5, 5), "push_next": (6, 6),
                "memory": (9, 7), "sram_base": (25, 10), "dram_base": (57, 26), "y_size": (79, 64),
                "x_size": (95, 80), "x_stride": (111, 96), "y_pad_0": (115, 112), "y_pad_1": (119, 116),
                "x_pad_0": (123, 120), "x_pad_1": (127, 124)}
LOOP_TABLE = {"pop_prev": (3, 3), "pop_next": (4, 4), "push_prev": (5, 5), "push_next": (6, 6),
              "reset": (7, 7), "uop_bgn": (20, 8), "uop_end": (34, 21), "iter_out": (48, 35),
              "iter_in": (62, 49),
              "dst_factor_out": (74, 64), "dst_factor_in": (85, 75), "src_factor_out": (96, 86),
              "src_factor_in": (107, 97)}
GEMM_TABLE = LOOP_TABLE | {"wgt_factor_out": (117, 108), "wgt_factor_in": (127, 118)}
ALU_TABLE = LOOP_TABLE | {"op": (110, 108), "use_imm": (111, 111), "imm": (127, 112)}
TABLES = {Opcode.LOAD: MEMORY_TABLE, Opcode.STORE: MEMORY_TABLE, Opcode.GEMM: GEMM_TABLE,
          Opcode.ALU: ALU_TABLE}
KINDS = {Opcode.LOAD: Load, Opcode.STORE: Store, Opcode.GEMM: Gemm, Opcode.ALU: Alu, Opcode.FINISH: Finish}

# bits written down by hand from the table of the standard machine, low word first
GOLDEN = [
    (Finish(), 0x3, 0x0),
    (Load(memory=Memory.INP, sram_base=1, dram_base=2, y_size=3, x_size=4, x_stride=5, y_pad_0=1, y_pad_1=2,
          x_pad_0=3, x_pad_1=4, push_next=True), 0x0000000008000540, 0x4321000500040003),
    (Store(sram_base=0xFFFF, dram_base=0xFFFFFFFF, x_size=1, x_stride=1, y_size=1, pop_prev=True,
           push_prev=True), 0x03FFFFFFFFFFFE29, 0x0000000100010001),
    (Gemm(uop_bgn=1, uop_end=2, iter_out=3, iter_in=4, dst_factor_out=1, dst_factor_in=1, src_factor_out=1,
          src_factor_in=1, wgt_factor_out=1, wgt_factor_in=1), 0x0008001800400102, 0x0040100200400801),
    (Gemm(reset=True, pop_next=True, uop_end=0x3FFF, iter_out=0x3FFF, iter_in=0x3FFF),
     0x7FFFFFFFFFE00092, 0x0),
    (Alu(op=AluOp.SHR, use_imm=True, imm=-1, uop_end=1, pop_prev=True, push_next=True), 0x000200080020004C,
     0xFFFFB00000000000),
    (Alu(op=AluOp.MAX, imm=0x7FFF, dst_factor_out=0x7FF, src_factor_in=0x7FF, iter_out=0, iter_in=0), 0x4,
     0x7FFF1FFE000007FF),
]


@pytest.mark.parametrize("instruction, low, high", GOLDEN)
def test_golden_words(instruction, low, high):
    assert [f"{int(w):016x}" for w in encode(PYNQ, [instruction])[0]] == [f"{low:016x}", f"{high:016x}"]
    assert decode(PYNQ, np.array([[low, high]], np.uint64)) == (instruction,)


@pytest.mark.parametrize("opcode", TABLES)
def test_the_places_of_fields_are_the_published_ones(opcode):
    found = {f.name: (f.low + f.width - 1, f.low) for f in fields(PYNQ, opcode)[1:]}
    assert found == TABLES[opcode]


def test_the_places_of_fields_in_micro_ops():
    assert [(f.name, f.low, f.width) for f in uop_fields(PYNQ)] == [("dst", 0, 11), ("src", 11, 11),
                                                                   ("wgt", 22, 10)]
    assert encode_uops(PYNQ, [Uop(1, 2, 3), Uop(2047, 2047, 1023)]).tolist() == [0x00C01001, 0xFFFFFFFF]


def test_the_machine_with_floats_leaves_bits_of_gemm_unused():
    last = fields(preset("vta-f32"), Opcode.GEMM)[-1]
    assert last.low + last.width == 64 + 56


def random_instruction(rng, spec):
    """An instruction with every field drawn from all values that fit."""
    opcode = Opcode(int(rng.integers(5)))
    values = {}
    for field in fields(spec, opcode)[1:]:
        low = -(1 << field.width - 1) if field.signed else 0
        value = int(rng.integers(low, low + (1 << field.width)))
        kinds = {"memory": lambda v: Memory(v % 6), "op": lambda v: AluOp(v % 5)}
        values[field.name] = kinds.get(field.name, bool if field.width == 1 else int)(value)
    return KINDS[opcode](**values)


def test_bits_come_back_as_they_were_on_any_machine():
    rng = np.random.default_rng(7)
    for _ in range(60):
        spec = random_spec(rng)
        stream = [random_instruction(rng, spec) for _ in range(40)]
        words = encode(spec, stream)
        assert decode(spec, words) == tuple(stream)
        assert np.array_equal(encode(spec, decode(spec, words)), words)
        uops = [Uop(*(int(rng.integers(1 << f.width)) for f in uop_fields(spec))) for _ in range(20)]
        assert decode_uops(spec, encode_uops(spec, uops)) == tuple(uops)


def test_bits_are_those_of_the_plain_interpreter():
    """Which works out places of its own from the standard keys."""
    rng = np.random.default_rng(8)
    names = {"memory": "id", "sram_base": "sram", "dram_base": "dram", "y_size": "y", "x_size": "x",
             "x_stride": "stride", "y_pad_0": "top", "y_pad_1": "bottom", "x_pad_0": "left",
             "x_pad_1": "right", "uop_bgn": "bgn", "uop_end": "end", "iter_out": "outer", "iter_in": "inner",
             "dst_factor_out": "do", "dst_factor_in": "di", "src_factor_out": "so", "src_factor_in": "si",
             "wgt_factor_out": "wo", "wgt_factor_in": "wi", "use_imm": "use"}
    for _ in range(40):
        spec = random_spec(rng)
        for _ in range(20):
            instruction = random_instruction(rng, spec)
            low, high = encode(spec, [instruction])[0].tolist()
            found = parse(spec.record(), low, high)
            assert len(tables(spec.record())) == 5
            for field in instruction.__dataclass_fields__:
                assert found[names.get(field, field)] == getattr(instruction, field), field


def test_what_does_not_fit_is_refused():
    with pytest.raises(DeviceError, match="Load.y_pad_0=16 has more than 4 bits"):
        bits_of(PYNQ, Load(memory=Memory.INP, y_pad_0=16))
    with pytest.raises(DeviceError, match="Alu.imm=32768"):
        bits_of(PYNQ, Alu(op=AluOp.ADD, use_imm=True, imm=32768))
    with pytest.raises(DeviceError, match="micro-op's wgt has more than 10 bits"):
        encode_uops(PYNQ, [Uop(0, 0, 1024)])


@pytest.mark.parametrize("bits", [5, 6, 7, 6 << 7, 7 << 7, (5 << 108) | 4])
def test_bits_that_mean_nothing_are_refused(bits):
    with pytest.raises(DeviceError):
        decode_one(PYNQ, bits)


# Tokens follow from what statements touch; micro-ops are loaded where they are not there.

SPEC = preset("vta-pynq")


def blank() -> tuple[Stream, DramAllocator]:
    layout = DramAllocator()
    for name, memory in (("x", Memory.INP), ("w", Memory.WGT), ("y", Memory.OUT)):
        element = SPEC.element(memory)
        layout.add(name, (64, *element.shape), element.dtype, "output" if name == "y" else "input")
    return Stream(SPEC, layout), layout


def at(layout: DramAllocator, name: str, memory: Memory) -> int:
    (region,) = [r for r in layout.regions if r.name == name]
    return region.address // SPEC.element(memory).nbytes


def turn(stream: Stream, layout: DramAllocator, slot: int, half: int) -> None:
    """Load, multiply, store, in one half of every memory."""
    base = half * 512
    stream.put(Load(memory=Memory.INP, sram_base=base, dram_base=at(layout, "x", Memory.INP) + 3 * slot,
                    x_size=3, x_stride=3), (), (("inp", half),))
    stream.put(Load(memory=Memory.WGT, sram_base=base, dram_base=at(layout, "w", Memory.WGT), x_size=1,
                    x_stride=1), (), (("wgt", half),))
    loop = {"iter_in": 3, "dst_factor_in": 1}
    stream.run([Uop(base)], Gemm(reset=True, **loop), (), (("acc", half),))
    stream.run([Uop(base, base, base)], Gemm(**loop, src_factor_in=1),
               (("inp", half), ("wgt", half), ("acc", half)), (("acc", half),))
    stream.put(Store(sram_base=base, dram_base=at(layout, "y", Memory.OUT) + 3 * slot, x_size=3, x_stride=3),
               (("acc", half),), (("dram", "y"),))


def flags(program, unit: Unit) -> list[str]:
    found = []
    for i in program.instructions:
        if unit_of(i) is unit:
            names = [n for n in ("pop_prev", "pop_next", "push_prev", "push_next") if getattr(i, n)]
            found.append(" ".join(names))
    return found


def test_a_program_keeps_all_rules_and_leaves_no_token():
    stream, layout = blank()
    for slot in range(5):
        turn(stream, layout, slot, slot % 2)
    assert verify(stream.finish()) == ()


def test_the_first_use_of_a_half_waits_for_nobody():
    stream, layout = blank()
    for slot in range(3):
        turn(stream, layout, slot, slot % 2)
    loads = flags(stream.finish(), Unit.LOAD)
    assert loads == ["", "push_next", "", "push_next", "pop_next", "push_next"]


def test_what_is_known_already_takes_no_token():
    stream, layout = blank()
    turn(stream, layout, 0, 0)
    place = ("acc", 0)
    for number in (1, 2):
        stream.run([Uop(0)], Alu(op=AluOp.ADD, use_imm=True, imm=number, iter_in=3, dst_factor_in=1,
                                 src_factor_in=1), (place,), (place,))
    waits = [f for f in flags(stream.finish(), Unit.COMPUTE) if "pop_next" in f]
    assert len(waits) == 1  # the first of them waits for the store, which the end knows of, too

def test_results_are_read_again_by_way_of_the_compute_unit():
    stream, layout = blank()
    turn(stream, layout, 0, 0)
    stream.fence()
    stream.put(Load(memory=Memory.INP, dram_base=at(layout, "y", Memory.OUT), x_size=3, x_stride=3),
               (("dram", "y"),), (("inp", 0),))
    stream.run([Uop(0)], Gemm(reset=True, iter_in=3, dst_factor_in=1), (), (("acc", 0),))
    stream.run([Uop(0)], Gemm(iter_in=3, dst_factor_in=1, src_factor_in=1), (("inp", 0), ("acc", 0)),
               (("acc", 0),))
    stream.put(Store(sram_base=0, dram_base=at(layout, "y", Memory.OUT) + 8, x_size=3, x_stride=3),
               (("acc", 0),), (("dram", "y"),))
    assert verify(stream.finish()) == ()


def test_micro_ops_are_kept_until_others_need_the_room():
    stream, layout = blank()
    loop = Gemm(reset=True)
    sets = [[Uop(k) for k in range(first, first + 700)] for first in (0, 700, 1300)]
    for uops in (sets[0], sets[1], sets[0], sets[2], sets[0]):
        stream.run(uops, loop, (), ("acc",))
    uop_statistics = stream.uop_statistics
    # the third set takes the room of the first
    assert (uop_statistics.requests, uop_statistics.hits, uop_statistics.misses) == (5, 1, 4)


# Streams as text: golden files, renewed with `python -m tests.accel.test_program`.

TEXT_FOLDER = Path(__file__).with_name("golden")
STREAMS = {"product_two_threads": matmul, "two_convolutions": conv,
           "product_of_floats": lambda: matmul(preset("vta-f32"), rows=8, depth=2)}


@pytest.mark.parametrize("name", STREAMS)
def test_streams_disassemble_to_the_golden_text(name):
    assert disassemble(STREAMS[name]()) == (TEXT_FOLDER / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("spec, instruction, text", [
    (preset("vta-f32"), Alu(op=AluOp.ADD, use_imm=True, imm=0x3F80, uop_end=1),
     "add 1.0, uop[0:1] x 1 x 1, acc +0 +0"),
    (preset("vta-extended"), Load(memory=Memory.ACC8, dram_base=256, x_size=2),
     "load acc[0:2] <- bytes 0x1000"),
    (PYNQ, Load(memory=Memory.INP, x_size=2, dram_base=256, x_pad_0=3),
     "load inp[0:5] <- 0x1000, zeros left 3"),
    (PYNQ, Store(x_size=2, y_size=3, x_stride=2, dram_base=256), "store out[0:6] -> 0x1000, 3 rows of 2"),
    (PYNQ, Store(x_size=1, dram_base=256, pop_next=True),
     "store out[0:1] -> 0x1000 pop_next of no queue"),
    (PYNQ, Alu(op=AluOp.MIN, uop_end=2, src_factor_in=3),
     "min acc, uop[0:2] x 1 x 1, acc +0 +0, src +0 +3"),
])
def test_single_instructions(spec, instruction, text):
    assert " ".join(show(spec, instruction).split()[1:]) == text


if __name__ == "__main__":
    TEXT_FOLDER.mkdir(exist_ok=True)
    for name, make in STREAMS.items():
        (TEXT_FOLDER / f"{name}.txt").write_text(disassemble(make()), encoding="utf-8")
