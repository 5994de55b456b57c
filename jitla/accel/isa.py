"""The instruction set of the accelerator: instructions, their binary encoding, and ALU semantics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jitla.accel.spec import ADDRESS_BITS, AccelSpec, Memory
from jitla.classes import dataclass
from jitla.errors import ConfigError, DeviceError


class Opcode(IntEnum):
    """The operation code: the three lowest bits of an instruction."""

    LOAD = 0
    STORE = 1
    GEMM = 2
    FINISH = 3
    ALU = 4


class AluOp(IntEnum):
    """The ALU operations; the destination is also the first operand."""

    MIN = 0
    MAX = 1
    ADD = 2
    SHR = 3
    MUL = 4


class Unit(IntEnum):
    """The three units, each with an instruction queue."""

    LOAD = 0
    COMPUTE = 1
    STORE = 2


class Queue(IntEnum):
    """The four token queues, named by producer and consumer."""

    LOAD_TO_COMPUTE = 0
    COMPUTE_TO_LOAD = 1
    COMPUTE_TO_STORE = 2
    STORE_TO_COMPUTE = 3


class Uop(NamedTuple):
    """A micro-op: indices of accumulator, second operand (INP, or ACC for the ALU) and weights."""

    dst: int
    src: int = 0
    wgt: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _TokenFlags:
    """The token flags: pops before, pushes after execution; "prev" is towards load, "next" towards store."""

    pop_prev: bool = False
    pop_next: bool = False
    push_prev: bool = False
    push_next: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Transfer(_TokenFlags):
    """A 2-D transfer between DRAM (strided) and a scratchpad (dense); indices and sizes are in elements."""

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
        """Whether it only moves tokens."""
        return self.x_size == 0

    @property
    def width(self) -> int:
        """Elements of a row in the scratchpad."""
        return self.x_pad_0 + self.x_size + self.x_pad_1

    @property
    def height(self) -> int:
        """Rows in the scratchpad."""
        return self.y_pad_0 + self.y_size + self.y_pad_1

    @property
    def count(self) -> int:
        """Elements in the scratchpad, padding included."""
        return 0 if self.is_noop else self.width * self.height


@dataclass(frozen=True, slots=True, kw_only=True)
class Load(_Transfer):
    """A load of DRAM rows into a scratchpad, padded with rows and columns of zeros."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Store(_Transfer):
    """A store of the low bits of accumulators to DRAM rows."""

    memory: Memory = Memory.OUT


@dataclass(frozen=True, slots=True, kw_only=True)
class _UopLoop(_TokenFlags):
    """Two nested loops over a range of micro-ops; indices advance by a factor per iteration of each loop."""

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
        """The number of executed micro-ops."""
        return self.iter_out * self.iter_in * max(self.uop_end - self.uop_bgn, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemm(_UopLoop):
    """A matrix product loop: acc[dst] += inp[src] @ wgt[wgt].T; with `reset`, acc[dst] = 0."""

    wgt_factor_out: int = 0
    wgt_factor_in: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Alu(_UopLoop):
    """An ALU loop: acc[dst] = op(acc[dst], imm or acc[src]); the flag `reset` has no meaning."""

    op: AluOp
    use_imm: bool = False
    imm: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish(_TokenFlags):
    """The end of the instruction stream."""


Instruction = Load | Store | Gemm | Alu | Finish
OPCODES: dict[type[Instruction], Opcode] = {
    Load: Opcode.LOAD, Store: Opcode.STORE, Gemm: Opcode.GEMM, Alu: Opcode.ALU, Finish: Opcode.FINISH,
}
# The (prev, next) queues of a unit's pop flags; None: the flag must not be set.
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
    """Return the unit that executes `instruction`."""
    if isinstance(instruction, Store):
        return Unit.STORE
    if isinstance(instruction, Load) and instruction.memory in (Memory.INP, Memory.WGT):
        return Unit.LOAD
    return Unit.COMPUTE


def pops(instruction: Instruction) -> tuple[Queue, ...]:
    """Return the queues that `instruction` pops a token from before it starts."""
    prev, next_ = _POPS[unit_of(instruction)]
    return _set_queues(prev, instruction.pop_prev, next_, instruction.pop_next)


def pushes(instruction: Instruction) -> tuple[Queue, ...]:
    """Return the queues that `instruction` pushes a token to when it is done."""
    prev, next_ = _PUSHES[unit_of(instruction)]
    return _set_queues(prev, instruction.push_prev, next_, instruction.push_next)


def _set_queues(prev: Queue | None, prev_set: bool, next_: Queue | None, next_set: bool) -> tuple[Queue, ...]:
    return tuple(queue for queue, is_set in ((prev, prev_set), (next_, next_set))
                 if is_set and queue is not None)


def unconnected_flags(instruction: Instruction) -> tuple[str, ...]:
    """Return the set flags that have no queue at the instruction's unit."""
    unit = unit_of(instruction)
    names = {"pop_prev": _POPS[unit][0], "pop_next": _POPS[unit][1],
             "push_prev": _PUSHES[unit][0], "push_next": _PUSHES[unit][1]}
    return tuple(name for name, queue in names.items() if queue is None and getattr(instruction, name))


def noop(unit: Unit, *, pop_prev: bool = False, pop_next: bool = False,
         push_prev: bool = False, push_next: bool = False) -> Instruction:
    """Return an instruction of `unit` that only moves tokens."""
    memory = {Unit.LOAD: Memory.INP, Unit.COMPUTE: Memory.UOP, Unit.STORE: Memory.OUT}[unit]
    kind = Store if unit is Unit.STORE else Load
    return kind(memory=memory, pop_prev=pop_prev, pop_next=pop_next, push_prev=push_prev, push_next=push_next)


Words = NDArray[np.uint64]  # (instructions, 2)
UopWords = NDArray[np.uint32]
IMMEDIATE_BITS = 16
ITERATION_BITS = 14
WORD_BITS = 64
INSTRUCTION_BYTES = 16


class Field(NamedTuple):
    """A bit field of an instruction or micro-op: bits `low` to `low + width - 1`."""

    name: str
    low: int
    width: int
    signed: bool = False

    def accepts(self, value: int) -> bool:
        """Return whether `value` fits into the field."""
        lowest = -(1 << self.width - 1) if self.signed else 0
        return lowest <= value < lowest + (1 << self.width)

    def extract(self, bits: int) -> int:
        """Return the value of the field in `bits`."""
        value = bits >> self.low & (1 << self.width) - 1
        return value - (1 << self.width) if self.signed and value >> self.width - 1 else value


_COMMON = (("opcode", 3), ("pop_prev", 1), ("pop_next", 1), ("push_prev", 1), ("push_next", 1))
_CONVERT: dict[str, Any] = {
    **dict.fromkeys(("pop_prev", "pop_next", "push_prev", "push_next", "reset", "use_imm"), bool),
    "memory": Memory, "op": AluOp,
}
_KINDS: dict[Opcode, type[Instruction]] = {opcode: kind for kind, opcode in OPCODES.items()}


def _words_of(spec: AccelSpec, opcode: Opcode) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """Return names and widths of the fields in the first and the second word."""
    uop, acc, inp, wgt = (spec.element(m).index_bits for m in
                          (Memory.UOP, Memory.ACC, Memory.INP, Memory.WGT))
    if opcode is Opcode.FINISH:
        return [*_COMMON], []
    if opcode in (Opcode.LOAD, Opcode.STORE):
        first = [("memory", 3), ("sram_base", 16), ("dram_base", ADDRESS_BITS)]
        second = [("y_size", 16), ("x_size", 16), ("x_stride", 16),
                  ("y_pad_0", 4), ("y_pad_1", 4), ("x_pad_0", 4), ("x_pad_1", 4)]
        return [*_COMMON, *first], second
    first = [("reset", 1), ("uop_bgn", uop), ("uop_end", uop + 1),
             ("iter_out", ITERATION_BITS), ("iter_in", ITERATION_BITS)]
    second = [("dst_factor_out", acc), ("dst_factor_in", acc)]
    if opcode is Opcode.GEMM:
        second += [("src_factor_out", inp), ("src_factor_in", inp),
                   ("wgt_factor_out", wgt), ("wgt_factor_in", wgt)]
    else:
        second += [("src_factor_out", acc), ("src_factor_in", acc),
                   ("op", 3), ("use_imm", 1), ("imm", IMMEDIATE_BITS)]
    return [*_COMMON, *first], second


def _place_fields(spec: AccelSpec, fields: Iterable[tuple[str, int]], low: int, end: int) -> Iterable[Field]:
    """Yield adjacent fields from bit `low`; raise `ConfigError` beyond bit `end`."""
    for name, width in fields:
        yield Field(name, low, width, signed=name == "imm")
        low += width
        if low > end:
            raise ConfigError(f"accelerator {spec.name!r}: {name} does not fit; take smaller memories")


@lru_cache(maxsize=256)
def fields(spec: AccelSpec, opcode: Opcode) -> tuple[Field, ...]:
    """Return the fields of instructions with `opcode`; no field spans both words."""
    first, second = _words_of(spec, opcode)
    return (*_place_fields(spec, first, 0, WORD_BITS), *_place_fields(spec, second, WORD_BITS, 2 * WORD_BITS))


@lru_cache(maxsize=64)
def uop_fields(spec: AccelSpec) -> tuple[Field, ...]:
    """Return the fields of a micro-op; its source is an index of INP or ACC."""
    acc, inp, wgt = (spec.element(m).index_bits for m in (Memory.ACC, Memory.INP, Memory.WGT))
    return tuple(_place_fields(spec, (("dst", acc), ("src", max(acc, inp)), ("wgt", wgt)), 0, 32))


def check_encoding(spec: AccelSpec) -> None:
    """Raise `ConfigError` if the instruction fields of a machine do not fit into their words."""
    for opcode in Opcode:
        fields(spec, opcode)
    uop_fields(spec)


def bits_of(spec: AccelSpec, instruction: Instruction) -> int:
    """Return the encoding of `instruction` as a 128-bit integer."""
    opcode = OPCODES[type(instruction)]
    bits = int(opcode)
    for field in fields(spec, opcode)[1:]:
        value = int(getattr(instruction, field.name))
        if not field.accepts(value):
            raise DeviceError(f"{type(instruction).__name__}.{field.name}={value} has more than "
                              f"{field.width} bits")
        bits |= (value & (1 << field.width) - 1) << field.low
    return bits


def encode(spec: AccelSpec, instructions: Iterable[Instruction]) -> Words:
    """Encode `instructions` as rows of two words, the low one first."""
    mask = (1 << WORD_BITS) - 1
    rows = [(bits & mask, bits >> WORD_BITS) for bits in (bits_of(spec, i) for i in instructions)]
    return np.array(rows, np.uint64).reshape(-1, 2)


def decode_one(spec: AccelSpec, bits: int) -> Instruction:
    """Decode one instruction from its 128 bits."""
    code = bits & 7
    if code > max(Opcode):
        raise DeviceError(f"there is no instruction with opcode {code}")
    kind = _KINDS[Opcode(code)]
    values = {field.name: field.extract(bits) for field in fields(spec, Opcode(code))[1:]}
    try:
        return kind(**{name: _CONVERT.get(name, int)(value) for name, value in values.items()})
    except ValueError as error:  # an invalid id of a memory or an operation
        raise DeviceError(f"{kind.__name__}: {error}") from error


def decode(spec: AccelSpec, words: Words) -> tuple[Instruction, ...]:
    """Decode the instructions of `words`."""
    return tuple(decode_one(spec, int(low) | int(high) << WORD_BITS) for low, high in words.tolist())


def encode_uops(spec: AccelSpec, uops: Iterable[Uop]) -> UopWords:
    """Encode `uops` as words."""
    table = uop_fields(spec)
    columns = np.array(list(uops), np.int64).reshape(-1, len(table))
    words = np.zeros(len(columns), np.int64)
    for field, column in zip(table, columns.T, strict=True):
        if len(column) and not (field.accepts(int(column.min())) and field.accepts(int(column.max()))):
            raise DeviceError(f"a micro-op's {field.name} has more than {field.width} bits")
        words |= column << field.low
    return words.astype(np.uint32)


def uop_columns(spec: AccelSpec, words: UopWords) -> NDArray[np.int64]:
    """Return destinations, sources and weights of micro-ops as three rows."""
    wide = np.asarray(words, np.uint32).astype(np.int64)
    return np.stack([wide >> field.low & (1 << field.width) - 1 for field in uop_fields(spec)])


def decode_uops(spec: AccelSpec, words: UopWords) -> tuple[Uop, ...]:
    """Decode the micro-ops of `words`."""
    return tuple(Uop(*column) for column in uop_columns(spec, words).T.tolist())


Array = NDArray[Any]
MAX_SHIFT = 15  # the largest shift, either way, that all implementations support


def to_immediate(spec: AccelSpec, value: float) -> int | None:
    """Return the immediate field for `value`; None if it is not representable and has to be loaded."""
    if spec.is_float:
        bits = int(np.float32(value).view(np.uint32))
        if np.float32(value) != value or bits & 0xFFFF:
            return None
        return int(np.uint16(bits >> 16).view(np.int16))
    integer = int(value)
    return integer if integer == value and -(1 << 15) <= integer < 1 << 15 else None


def from_immediate(spec: AccelSpec, field: int) -> Array:
    """Return the value of a 16-bit immediate: an integer, or the upper half of a float's bits."""
    if spec.is_float:
        return np.array((field & 0xFFFF) << 16, np.uint32).view(np.float32)
    return np.array(field, spec.element(Memory.ACC).dtype)


def _shift(values: Array, amount: Array) -> Array:
    """Shift right arithmetically, or left by negative amounts."""
    right: Array = values >> np.maximum(amount, 0).astype(values.dtype)
    left: Array = right << np.maximum(-amount, 0).astype(values.dtype)
    return left


_OPERATIONS: Mapping[AluOp, Callable[[Array, Array], Array]] = {
    AluOp.MIN: np.minimum, AluOp.MAX: np.maximum, AluOp.ADD: np.add, AluOp.SHR: _shift,
    AluOp.MUL: np.multiply,
}


def refusal(spec: AccelSpec, instruction: Alu) -> str | None:
    """Return the reason that the machine lacks an operation; None if it has it."""
    if instruction.op is AluOp.MUL and spec.dialect == "strict":
        return "MUL is not in the strict dialect"
    if instruction.op is AluOp.SHR:
        if spec.is_float:
            return "floats are not shifted"
        if not instruction.use_imm and spec.dialect == "strict":
            return "shifts by a tensor are not in the strict dialect"
        if instruction.use_imm and abs(instruction.imm) > MAX_SHIFT and spec.dialect == "strict":
            return f"shifts are by at most {MAX_SHIFT}"
    return None


def apply_alu(instruction: Alu, first: Array, second: Array) -> Array:
    """Compute op(first, second); integers wrap around."""
    operand = second
    if instruction.op is AluOp.SHR and operand.size:
        bits = 8 * first.dtype.itemsize
        if int(operand.max()) >= bits or int(operand.min()) <= -bits:
            raise DeviceError(f"a shift by {bits} bits or more is undefined")
        operand = operand.astype(np.int64)
    with np.errstate(all="ignore"):  # the device ignores overflow and invalid operands
        return _OPERATIONS[instruction.op](first, operand)
