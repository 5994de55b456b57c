"""Rules that an instruction keeps or breaks by itself, so that every implementation agrees on what it does.

Knows: where implementations of the instruction set part. Must not know: other instructions.
Receives an instruction and the steps it takes; returns the rules it breaks.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from jitla.accel.alu import refusal
from jitla.accel.encoding import fields
from jitla.accel.isa import OPCODES, Alu, AluOp, Gemm, Instruction, Load, Store, dangling
from jitla.accel.spec import ADDRESS_BITS, Memory, Spec
from jitla.accel.steps import Steps, known_steps, operands

RESIDENT = 2048  # micro-ops on the chip: the smallest memory an implementation has
DISTANCE = 3  # among so many steps in a row, no two write one element
# Every rule, and what breaks it.
RULES: dict[str, str] = {
    "encoding": "a number does not fit into its field",
    "flags": "a token flag names no queue of the unit",
    "deadlock": "a unit waits for a token that never comes",
    "finish": "FINISH is missing, not last, takes tokens, or comes before something is done",
    "token-leak": "tokens stay in a queue at the end",
    "token-depth": "more than eight tokens can be in a queue",
    "race": "two units touch one element, one of them writes, and no token orders them",
    "unwritten": "what is read was never written",
    "overflow": "a transfer passes the end of a memory",
    "index": "a step names an element that its memory does not have",
    "stale-out": "what is stored was last written by a load or a reset",
    "shift": "a shift is by a tensor, or by more than fifteen",
    "dialect": "the machine does not have the operation",
    "padding": "zeros are loaded around something other than inputs",
    "uop-load": "micro-ops are loaded in more than one row",
    "hazard": "steps close to each other write one element, or one reads what another wrote",
    "resident-uops": "more micro-ops are on the chip than every implementation has room for",
    "transfer-size": "stream or micro-ops are larger than a transfer",
    "address-zero": "address zero is used",
    "alignment": "a buffer is not aligned to the elements it is addressed by",
    "region": "a transfer leaves its buffer, or writes into what is only read",
    "uop-source": "micro-ops are loaded from where there are none",
}


class Fault(NamedTuple):
    """A rule that is broken, and by which instruction; -1 for the stream as a whole."""

    rule: str
    at: int
    text: str

    def __str__(self) -> str:
        where = f"instruction {self.at}: " if self.at >= 0 else ""
        return f"{where}{self.rule}: {self.text}"


Broken = Iterator[tuple[str, str]]


def by_itself(spec: Spec, instruction: Instruction) -> Broken:
    """Yield rules that `instruction` breaks whatever micro-ops say."""
    for field in fields(spec, OPCODES[type(instruction)])[1:]:
        value = int(getattr(instruction, field.name))
        if not field.accepts(value):
            yield "encoding", f"{field.name}={value} has more than {field.width} bits"
    for name in dangling(instruction):
        yield "flags", name
    if isinstance(instruction, (Load, Store)) and not instruction.is_noop:
        yield from _transfer(spec, instruction)
    elif isinstance(instruction, Alu):
        refused = refusal(spec, instruction)
        if refused:
            yield "shift" if instruction.op is AluOp.SHR else "dialect", refused


def _transfer(spec: Spec, transfer: Load | Store) -> Broken:
    memory, element = transfer.memory, spec.element(transfer.memory)
    if isinstance(transfer, Store) != (memory is Memory.OUT):
        yield "dialect", f"{memory.name} is not what a {type(transfer).__name__.lower()} moves"
    if memory is Memory.ACC8 and spec.dialect != "extended":
        yield "dialect", "ACC8 is not in the dialect"
    if memory is not Memory.INP and transfer.count != transfer.x_size * transfer.y_size:
        yield "padding", f"of {memory.name}"
    if memory is Memory.UOP and transfer.y_size != 1:
        yield "uop-load", f"{transfer.y_size} rows"
    depth = spec.element(Memory.ACC if memory is Memory.ACC8 else memory).depth
    end = transfer.sram_base + transfer.count
    if end > depth:
        yield "overflow", f"{memory.name} has {depth} elements, and {end} are needed"
    if memory is Memory.UOP and end > RESIDENT:
        yield "resident-uops", f"{end} of {RESIDENT}"
    if transfer.dram_base == 0:
        yield "address-zero", f"{memory.name} is moved from or to address zero"
    last = transfer.dram_base + max(transfer.y_size - 1, 0) * transfer.x_stride + transfer.x_size
    if last * element.nbytes > 1 << ADDRESS_BITS:
        yield "region", "addresses have 32 bits"
    if isinstance(transfer, Store) and transfer.y_size > 1 and transfer.x_stride < transfer.x_size:
        yield "region", "rows that are stored overlap"


@lru_cache(maxsize=512)
def by_steps(spec: Spec, loop: Gemm | Alu, words: bytes) -> tuple[tuple[str, str], ...]:
    """Return rules that the steps of `loop`, an instruction made bare, break over micro-ops `words`."""
    return tuple(_by_steps(spec, loop, known_steps(spec, loop, words)))


def _by_steps(spec: Spec, instruction: Gemm | Alu, steps: Steps) -> Broken:
    for memory, indices in operands(instruction, steps):
        depth = spec.element(memory).depth
        if len(indices) and int(indices.max()) >= depth:
            yield "index", f"{memory.name} has {depth} elements, and {int(indices.max())} is named"
            return
    for apart in range(1, DISTANCE):
        if (steps.dst[apart:] == steps.dst[:-apart]).any():
            yield "hazard", f"steps {apart} apart write one element"
            return
    if isinstance(instruction, Alu) and _feeds_itself(instruction, steps):
        yield "hazard", "a step of the ALU reads what an earlier one of the instruction wrote"


def _feeds_itself(alu: Alu, steps: Steps) -> bool:
    """Whether an operand of a step is the destination of one before it."""
    order = np.argsort(steps.dst, kind="stable")
    sorted_dst = steps.dst[order]
    if (sorted_dst[1:] == sorted_dst[:-1]).any():
        return True  # the destination is an operand, too
    if alu.use_imm or not len(order):
        return False
    place = np.minimum(np.searchsorted(sorted_dst, steps.src), len(order) - 1)
    return bool(((sorted_dst[place] == steps.src) & (order[place] < np.arange(len(order)))).any())
