"""What is known of the values that a nest reads: their classes, and what nests may know of them.

Knows: arrays and numbers. Must not know: syntax, machine code.
Receives values as Python has them; returns what compiled code depends on, and descriptions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jitla.loops.given import Array, Given, Scalar
from jitla.loops.kinds import BY_CHAR, ITEM, KIND_OF

# Of the flags of arrays; those that compiled code depends on.
CONTIGUOUS, ALIGNED, WRITEABLE = 0x1, 0x100, 0x400
FLAGS = CONTIGUOUS | ALIGNED | WRITEABLE
_ndarray = np.ndarray
_BITS = (31, 62, 63)
LARGE = "an integer of more than 64 bits"


def signature(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return what compiled code depends on of `values`."""
    found: list[Any] = []
    for value in values:
        kind = type(value)
        if kind is _ndarray:
            found.append((value.dtype, value.ndim, value.flags.num & FLAGS))
        elif kind is int:
            bits = value.bit_length()
            found.append(bits > 31 if bits <= 62 else bits)
        else:
            found.append(kind)
    return tuple(found)


def described(value: Any) -> Given:
    """Say what a nest may know of a value."""
    kind = type(value)
    if kind is _ndarray:
        return _array(value) or f"an array of {value.dtype}"
    if kind is int:
        bits = next((bits for bits in _BITS if value.bit_length() <= bits), 0)
        return Scalar("int", bits) if bits else LARGE
    if kind in KIND_OF:
        return Scalar(KIND_OF[kind])
    return f"a {kind.__name__}"


def _array(value: np.ndarray) -> Array | None:
    kind = BY_CHAR.get(value.dtype.char)
    flags = value.flags.num
    if kind is None or not value.dtype.isnative or not flags & ALIGNED or not value.ndim:
        return None
    if any(stride % ITEM[kind] for stride in value.strides):
        return None
    return Array(kind, value.ndim, bool(flags & CONTIGUOUS), bool(flags & WRITEABLE))
