"""Bits of instructions: the published table word for word, and back from bits on any machine."""

from __future__ import annotations

import numpy as np
import pytest

from jitla.accel import (
    Alu,
    AluOp,
    Finish,
    Gemm,
    Load,
    Memory,
    Opcode,
    Store,
    Uop,
    bits_of,
    decode,
    decode_one,
    decode_uops,
    encode,
    encode_uops,
    fields,
    preset,
    uop_fields,
)
from jitla.errors import DeviceError
from tests.accel.programs import random_spec
from tests.accel.reference import parse, tables

PYNQ = preset("vta-pynq")
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
