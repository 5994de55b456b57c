"""Instructions and micro-ops as bits, both ways, by one table of fields.

Knows: where each field lies, which follows from the machine. Must not know: what instructions do.
Receives records or words; returns words (two of 64 bits, little-endian) or records.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jitla.accel.isa import OPCODES, AluOp, Instruction, Opcode, Uop
from jitla.accel.spec import ADDRESS_BITS, Memory, Spec
from jitla.errors import ConfigError, DeviceError

Words = NDArray[np.uint64]  # (instructions, 2)
UopWords = NDArray[np.uint32]
IMMEDIATE_BITS = 16
ITERATION_BITS = 14
WORD = 64
INSTRUCTION_BYTES = 16


class Field(NamedTuple):
    """Bits `low` to `low + width - 1` of an instruction or a micro-op."""

    name: str
    low: int
    width: int
    signed: bool = False

    def accepts(self, value: int) -> bool:
        """Whether `value` fits."""
        lowest = -(1 << self.width - 1) if self.signed else 0
        return lowest <= value < lowest + (1 << self.width)

    def extract(self, bits: int) -> int:
        """Return the field's value in `bits`."""
        value = bits >> self.low & (1 << self.width) - 1
        return value - (1 << self.width) if self.signed and value >> self.width - 1 else value


_COMMON = (("opcode", 3), ("pop_prev", 1), ("pop_next", 1), ("push_prev", 1), ("push_next", 1))
_CONVERT: dict[str, Any] = {
    **dict.fromkeys(("pop_prev", "pop_next", "push_prev", "push_next", "reset", "use_imm"), bool),
    "memory": Memory, "op": AluOp,
}
_KINDS: dict[Opcode, type[Instruction]] = {opcode: kind for kind, opcode in OPCODES.items()}


def _words_of(spec: Spec, opcode: Opcode) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """Names and widths of the fields in the first and the second word."""
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


def _placed(spec: Spec, fields: Iterable[tuple[str, int]], low: int, end: int) -> Iterable[Field]:
    """Fields side by side from bit `low`; a word ends at `end`."""
    for name, width in fields:
        yield Field(name, low, width, signed=name == "imm")
        low += width
        if low > end:
            raise ConfigError(f"accelerator {spec.name!r}: {name} does not fit; take smaller memories")


@lru_cache(maxsize=256)
def fields(spec: Spec, opcode: Opcode) -> tuple[Field, ...]:
    """Return the fields of instructions with `opcode`; the second word starts a fresh field."""
    first, second = _words_of(spec, opcode)
    return (*_placed(spec, first, 0, WORD), *_placed(spec, second, WORD, 2 * WORD))


@lru_cache(maxsize=64)
def uop_fields(spec: Spec) -> tuple[Field, ...]:
    """Return the fields of a micro-op; its source names an element of INP or of ACC."""
    acc, inp, wgt = (spec.element(m).index_bits for m in (Memory.ACC, Memory.INP, Memory.WGT))
    return tuple(_placed(spec, (("dst", acc), ("src", max(acc, inp)), ("wgt", wgt)), 0, 32))


def check(spec: Spec) -> None:
    """Raise ConfigError if some field of the machine's instructions does not fit."""
    for opcode in Opcode:
        fields(spec, opcode)
    uop_fields(spec)


def bits_of(spec: Spec, instruction: Instruction) -> int:
    """Return the 128 bits of `instruction`."""
    opcode = OPCODES[type(instruction)]
    bits = int(opcode)
    for field in fields(spec, opcode)[1:]:
        value = int(getattr(instruction, field.name))
        if not field.accepts(value):
            raise DeviceError(f"{type(instruction).__name__}.{field.name}={value} has more than "
                              f"{field.width} bits")
        bits |= (value & (1 << field.width) - 1) << field.low
    return bits


def encode(spec: Spec, instructions: Iterable[Instruction]) -> Words:
    """Return the words of `instructions`, two a row, the low one first."""
    mask = (1 << WORD) - 1
    rows = [(bits & mask, bits >> WORD) for bits in (bits_of(spec, i) for i in instructions)]
    return np.array(rows, np.uint64).reshape(-1, 2)


def decode_one(spec: Spec, bits: int) -> Instruction:
    """Return the instruction whose 128 bits are `bits`."""
    code = bits & 7
    if code > max(Opcode):
        raise DeviceError(f"there is no instruction with opcode {code}")
    kind = _KINDS[Opcode(code)]
    values = {field.name: field.extract(bits) for field in fields(spec, Opcode(code))[1:]}
    try:
        return kind(**{name: _CONVERT.get(name, int)(value) for name, value in values.items()})
    except ValueError as error:  # an id of a memory or an operation that does not exist
        raise DeviceError(f"{kind.__name__}: {error}") from error


def decode(spec: Spec, words: Words) -> tuple[Instruction, ...]:
    """Return the instructions of `words`."""
    return tuple(decode_one(spec, int(low) | int(high) << WORD) for low, high in words.tolist())


def encode_uops(spec: Spec, uops: Iterable[Uop]) -> UopWords:
    """Return the words of `uops`."""
    table = uop_fields(spec)
    columns = np.array(list(uops), np.int64).reshape(-1, len(table))
    words = np.zeros(len(columns), np.int64)
    for field, column in zip(table, columns.T, strict=True):
        if len(column) and not (field.accepts(int(column.min())) and field.accepts(int(column.max()))):
            raise DeviceError(f"a micro-op's {field.name} has more than {field.width} bits")
        words |= column << field.low
    return words.astype(np.uint32)


def uop_columns(spec: Spec, words: UopWords) -> NDArray[np.int64]:
    """Return destinations, sources and weights of micro-ops, one row each."""
    wide = np.asarray(words, np.uint32).astype(np.int64)
    return np.stack([wide >> field.low & (1 << field.width) - 1 for field in uop_fields(spec)])


def decode_uops(spec: Spec, words: UopWords) -> tuple[Uop, ...]:
    """Return the micro-ops of `words`."""
    return tuple(Uop(*column) for column in uop_columns(spec, words).T.tolist())
