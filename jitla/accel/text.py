"""Streams as text, one instruction a line.

Knows: how each instruction is written. Must not know: bits, or how instructions run.
Receives a program or instructions; returns text, the same for equal programs.
"""

from __future__ import annotations

from collections.abc import Iterator

from jitla.accel.alu import from_immediate
from jitla.accel.encoding import decode_uops
from jitla.accel.isa import (
    Alu,
    Finish,
    Gemm,
    Instruction,
    Load,
    Queue,
    Store,
    dangling,
    pops,
    pushes,
    unit_of,
)
from jitla.accel.program import Program
from jitla.accel.spec import Memory, Spec

PLACE = 88  # the column where tokens begin
_OTHER_END = {  # of a queue, seen from the unit that pops, and from the one that pushes
    Queue.LOAD_TO_COMPUTE: ("load", "compute"), Queue.COMPUTE_TO_LOAD: ("compute", "load"),
    Queue.COMPUTE_TO_STORE: ("compute", "store"), Queue.STORE_TO_COMPUTE: ("store", "compute"),
}


def disassemble(program: Program) -> str:
    """Return the micro-ops and the stream of `program` as text."""
    spec = program.spec
    head = [f"; {spec.name} {spec.tag}: {len(program.instructions)} instructions, "
            f"{len(program.uops)} micro-ops at {program.uop_address:#x}"]
    regions = [f"; {r.role} {r.name}: {r.dtype}{list(r.shape)} at {r.address:#x}" for r in program.regions]
    uops = [f"uop {at}: acc[{u.dst}] src[{u.src}] wgt[{u.wgt}]"
            for at, u in enumerate(decode_uops(spec, program.uops))]
    lines = [f"{at:5} {show(spec, i)}" for at, i in enumerate(program.instructions)]
    return "\n".join([*head, *regions, *uops, *lines]) + "\n"


def show(spec: Spec, instruction: Instruction) -> str:
    """Return one instruction as text: its unit, what it does, its tokens."""
    line = f"{unit_of(instruction).name.lower():7} {_body(spec, instruction)}"
    tokens = " ".join(_tokens(instruction))
    return f"{line:{PLACE}}{' ' if tokens else ''}{tokens}".rstrip()


def _tokens(instruction: Instruction) -> Iterator[str]:
    for queue in pops(instruction):
        yield f"pop {_OTHER_END[queue][0]}"
    for queue in pushes(instruction):
        yield f"push {_OTHER_END[queue][1]}"
    for name in dangling(instruction):
        yield f"{name} of no queue"


def _body(spec: Spec, instruction: Instruction) -> str:
    match instruction:
        case Load() | Store() if instruction.is_noop:
            return f"nop {instruction.memory.name.lower()}"
        case Load():
            return (f"load {_chip(instruction)} <- {_dram(spec, instruction)}{_rows(instruction)}"
                    f"{_pads(instruction)}")
        case Store():
            return f"store {_chip(instruction)} -> {_dram(spec, instruction)}{_rows(instruction)}"
        case Gemm():
            factors = _factors(instruction)
            return f"gemm{' reset' if instruction.reset else ''} {_loops(instruction)}, {factors}"
        case Alu():
            second = f" {from_immediate(spec, instruction.imm)}" if instruction.use_imm else " acc"
            return f"{instruction.op.name.lower()}{second}, {_loops(instruction)}, {_factors(instruction)}"
        case Finish():
            return "finish"


def _chip(transfer: Load | Store) -> str:
    memory = Memory.ACC if transfer.memory is Memory.ACC8 else transfer.memory
    return f"{memory.name.lower()}[{transfer.sram_base}:{transfer.sram_base + transfer.count}]"


def _dram(spec: Spec, transfer: Load | Store) -> str:
    size = spec.element(transfer.memory).nbytes
    bytes_of = "bytes " if transfer.memory is Memory.ACC8 else ""
    return f"{bytes_of}{transfer.dram_base * size:#x}"


def _rows(transfer: Load | Store) -> str:
    if transfer.y_size == 1 or transfer.x_stride == transfer.x_size:
        return "" if transfer.y_size == 1 else f", {transfer.y_size} rows of {transfer.x_size}"
    return f", {transfer.y_size} rows of {transfer.x_size} every {transfer.x_stride}"


def _pads(load: Load) -> str:
    pads = {"top": load.y_pad_0, "bottom": load.y_pad_1, "left": load.x_pad_0, "right": load.x_pad_1}
    named = [f"{name} {count}" for name, count in pads.items() if count]
    return f", zeros {' '.join(named)}" if named else ""


def _loops(loop: Gemm | Alu) -> str:
    return f"uop[{loop.uop_bgn}:{loop.uop_end}] x {loop.iter_out} x {loop.iter_in}"


def _factors(loop: Gemm | Alu) -> str:
    """How far each operand advances in the outer and in the inner loop."""
    parts = [f"acc +{loop.dst_factor_out} +{loop.dst_factor_in}"]
    if isinstance(loop, Gemm) and not loop.reset:
        parts += [f"inp +{loop.src_factor_out} +{loop.src_factor_in}",
                  f"wgt +{loop.wgt_factor_out} +{loop.wgt_factor_in}"]
    elif isinstance(loop, Alu) and not loop.use_imm:
        parts.append(f"src +{loop.src_factor_out} +{loop.src_factor_in}")
    return ", ".join(parts)
