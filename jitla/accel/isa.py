"""Instructions and micro-ops, immutable.

Knows: which fields there are, which unit runs what, which queues its flags name. Must not know: bits.
Receives field values; returns records that encoding, text, checks and simulators read.
"""

from __future__ import annotations

from dataclasses import replace
from enum import IntEnum
from typing import NamedTuple

from jitla.accel.spec import Memory
from jitla.classes import dataclass


class Opcode(IntEnum):
    """The three lowest bits of an instruction."""

    LOAD = 0
    STORE = 1
    GEMM = 2
    FINISH = 3
    ALU = 4


class AluOp(IntEnum):
    """What the ALU does to its destination, which is also its first operand."""

    MIN = 0
    MAX = 1
    ADD = 2
    SHR = 3
    MUL = 4


class Unit(IntEnum):
    """The three units with a queue of instructions each."""

    LOAD = 0
    COMPUTE = 1
    STORE = 2


class Queue(IntEnum):
    """The four queues of tokens, named by who pushes and who pops."""

    LOAD_TO_COMPUTE = 0
    COMPUTE_TO_LOAD = 1
    COMPUTE_TO_STORE = 2
    STORE_TO_COMPUTE = 3


class Uop(NamedTuple):
    """A micro-op: indices into the accumulator, the second operand (INP, or ACC in the ALU), the weights."""

    dst: int
    src: int = 0
    wgt: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Flags:
    """Tokens taken before and given after; "prev" is towards load, "next" towards store."""

    pop_prev: bool = False
    pop_next: bool = False
    push_prev: bool = False
    push_next: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Transfer(_Flags):
    """Rows between DRAM and a memory: there with a pitch, here dense. Indices and sizes in elements."""

    memory: Memory
    sram_base: int = 0
    dram_base: int = 0
    y_size: int = 1
    x_size: int = 0
    x_stride: int = 0
    y_pad_0: int = 0
    y_pad_1: int = 0
    x_pad_0: int = 0
    x_pad_1: int = 0

    @property
    def is_noop(self) -> bool:
        """Whether nothing but tokens moves."""
        return self.x_size == 0

    @property
    def width(self) -> int:
        """Elements of a row on the chip."""
        return self.x_pad_0 + self.x_size + self.x_pad_1

    @property
    def height(self) -> int:
        """Rows on the chip."""
        return self.y_pad_0 + self.y_size + self.y_pad_1

    @property
    def count(self) -> int:
        """Elements on the chip, zeros of the padding too."""
        return 0 if self.is_noop else self.width * self.height


@dataclass(frozen=True, slots=True, kw_only=True)
class Load(_Transfer):
    """Rows of DRAM into a memory, with rows and columns of zeros around them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Store(_Transfer):
    """The accumulator's low bits into rows of DRAM."""

    memory: Memory = Memory.OUT


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loop(_Flags):
    """Two loops around a range of micro-ops, whose indices advance by a factor of each loop."""

    reset: bool = False
    uop_bgn: int = 0
    uop_end: int = 0
    iter_out: int = 1
    iter_in: int = 1
    dst_factor_out: int = 0
    dst_factor_in: int = 0
    src_factor_out: int = 0
    src_factor_in: int = 0

    @property
    def steps(self) -> int:
        """Iterations of micro-ops."""
        return self.iter_out * self.iter_in * max(self.uop_end - self.uop_bgn, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemm(_Loop):
    """acc[dst] += inp[src] @ wgt[wgt].T at every step; with `reset`, acc[dst] = 0."""

    wgt_factor_out: int = 0
    wgt_factor_in: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Alu(_Loop):
    """acc[dst] = op(acc[dst], imm or acc[src]) at every step; the flag `reset` has no meaning."""

    op: AluOp
    use_imm: bool = False
    imm: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish(_Flags):
    """The end of the stream."""


Instruction = Load | Store | Gemm | Alu | Finish
OPCODES: dict[type[Instruction], Opcode] = {
    Load: Opcode.LOAD, Store: Opcode.STORE, Gemm: Opcode.GEMM, Alu: Opcode.ALU, Finish: Opcode.FINISH,
}
# Which queue a flag means, by unit: where there is none, the flag must not be set.
_POPS: dict[Unit, tuple[Queue | None, Queue | None]] = {
    Unit.LOAD: (None, Queue.COMPUTE_TO_LOAD),
    Unit.COMPUTE: (Queue.LOAD_TO_COMPUTE, Queue.STORE_TO_COMPUTE),
    Unit.STORE: (Queue.COMPUTE_TO_STORE, None),
}
_PUSHES: dict[Unit, tuple[Queue | None, Queue | None]] = {
    Unit.LOAD: (None, Queue.LOAD_TO_COMPUTE),
    Unit.COMPUTE: (Queue.COMPUTE_TO_LOAD, Queue.COMPUTE_TO_STORE),
    Unit.STORE: (Queue.STORE_TO_COMPUTE, None),
}


def unit_of(instruction: Instruction) -> Unit:
    """Return the unit whose queue fetch puts `instruction` into."""
    if isinstance(instruction, Store):
        return Unit.STORE
    if isinstance(instruction, Load) and instruction.memory in (Memory.INP, Memory.WGT):
        return Unit.LOAD
    return Unit.COMPUTE


def pops(instruction: Instruction) -> tuple[Queue, ...]:
    """Return the queues that a token is taken from before `instruction` starts."""
    prev, next_ = _POPS[unit_of(instruction)]
    return _named(prev, instruction.pop_prev, next_, instruction.pop_next)


def pushes(instruction: Instruction) -> tuple[Queue, ...]:
    """Return the queues that get a token once `instruction` is done."""
    prev, next_ = _PUSHES[unit_of(instruction)]
    return _named(prev, instruction.push_prev, next_, instruction.push_next)


def _named(prev: Queue | None, is_prev: bool, next_: Queue | None, is_next: bool) -> tuple[Queue, ...]:
    return tuple(queue for queue, is_set in ((prev, is_prev), (next_, is_next))
                 if is_set and queue is not None)


def dangling(instruction: Instruction) -> tuple[str, ...]:
    """Return the flags that name no queue of the instruction's unit."""
    unit = unit_of(instruction)
    names = {"pop_prev": _POPS[unit][0], "pop_next": _POPS[unit][1],
             "push_prev": _PUSHES[unit][0], "push_next": _PUSHES[unit][1]}
    return tuple(name for name, queue in names.items() if queue is None and getattr(instruction, name))


def without_tokens(instruction: Instruction) -> Instruction:
    """Return `instruction` with no flag set."""
    return replace(instruction, pop_prev=False, pop_next=False, push_prev=False, push_next=False)


def noop(unit: Unit, *, pop_prev: bool = False, pop_next: bool = False,
         push_prev: bool = False, push_next: bool = False) -> Instruction:
    """Return an instruction of `unit` that only moves tokens."""
    memory = {Unit.LOAD: Memory.INP, Unit.COMPUTE: Memory.UOP, Unit.STORE: Memory.OUT}[unit]
    kind = Store if unit is Unit.STORE else Load
    return kind(memory=memory, pop_prev=pop_prev, pop_next=pop_next, push_prev=push_prev, push_next=push_next)
