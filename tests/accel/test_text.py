"""Streams as text: golden files, renewed with `python -m tests.accel.test_text`."""

from __future__ import annotations

from pathlib import Path

import pytest

from jitla.accel import Alu, AluOp, Load, Memory, Store, disassemble, preset, show
from tests.accel.streams import PYNQ, conv, matmul

GOLDEN = Path(__file__).with_name("golden")
STREAMS = {"product_two_threads": matmul, "two_convolutions": conv,
           "product_of_floats": lambda: matmul(preset("vta-f32"), rows=8, depth=2)}


@pytest.mark.parametrize("name", STREAMS)
def test_streams(name):
    assert disassemble(STREAMS[name]()) == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


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
    GOLDEN.mkdir(exist_ok=True)
    for name, make in STREAMS.items():
        (GOLDEN / f"{name}.txt").write_text(disassemble(make()), encoding="utf-8")
