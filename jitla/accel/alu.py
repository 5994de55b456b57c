"""What the ALU computes.

Knows: five operations, how they wrap, and which shifts all implementations agree on. Must not know: streams.
Receives arrays; returns arrays of the same dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jitla.accel.isa import Alu, AluOp
from jitla.accel.spec import Memory, Spec
from jitla.errors import DeviceError

Array = NDArray[Any]
SHIFT = 15  # the largest amount, either way, that every implementation takes


def to_immediate(spec: Spec, value: float) -> int | None:
    """Return the field that stands for `value`, None if there is none and it must be loaded."""
    if spec.is_float:
        bits = int(np.float32(value).view(np.uint32))
        if np.float32(value) != value or bits & 0xFFFF:
            return None
        return int(np.uint16(bits >> 16).view(np.int16))
    whole = int(value)
    return whole if whole == value and -(1 << 15) <= whole < 1 << 15 else None


def from_immediate(spec: Spec, field: int) -> Array:
    """Return what the field of 16 bits stands for: an integer, or the upper half of a float's bits."""
    if spec.is_float:
        return np.array((field & 0xFFFF) << 16, np.uint32).view(np.float32)
    return np.array(field, spec.element(Memory.ACC).dtype)


def _shifted(values: Array, amount: Array) -> Array:
    """Arithmetic to the right; a negative amount to the left."""
    right: Array = values >> np.maximum(amount, 0).astype(values.dtype)
    left: Array = right << np.maximum(-amount, 0).astype(values.dtype)
    return left


_OPERATIONS: Mapping[AluOp, Callable[[Array, Array], Array]] = {
    AluOp.MIN: np.minimum, AluOp.MAX: np.maximum, AluOp.ADD: np.add, AluOp.SHR: _shifted,
    AluOp.MUL: np.multiply,
}


def refusal(spec: Spec, instruction: Alu) -> str | None:
    """Return why the machine has no such operation, or None."""
    if instruction.op is AluOp.MUL and spec.dialect == "strict":
        return "MUL is not in the strict dialect"
    if instruction.op is AluOp.SHR:
        if spec.is_float:
            return "floats are not shifted"
        if not instruction.use_imm and spec.dialect == "strict":
            return "shifts by a tensor are not in the strict dialect"
        if instruction.use_imm and abs(instruction.imm) > SHIFT and spec.dialect == "strict":
            return f"shifts are by at most {SHIFT}"
    return None


def apply(spec: Spec, instruction: Alu, first: Array, second: Array) -> Array:
    """Return op(first, second); integers wrap."""
    operand = second
    if instruction.op is AluOp.SHR and operand.size:
        bits = 8 * first.dtype.itemsize
        if int(operand.max()) >= bits or int(operand.min()) <= -bits:
            raise DeviceError(f"a shift by {bits} bits or more is not defined")
        operand = operand.astype(np.int64)
    with np.errstate(all="ignore"):  # the device says nothing of overflow and invalid operands
        return _OPERATIONS[instruction.op](first, operand)
