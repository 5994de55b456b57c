"""The kinds of nodes of a loop nest: all there are.

Knows: buffers, loops, statements, values. Must not know: how nests are changed, checked, printed or run.
Receives nothing; every file of this room makes and reads these records.

A nest is a sequence of statements over named buffers. Loops count from 0; where else elements lie is said
by their indices. An `Alloc` holds to the end of the sequence it stands in, and what is in the buffer is
unknown until it is stored. All sizes are numbers: a nest is a picture of one binding.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

import numpy as np

from jitla.classes import dataclass
from jitla.nests.index import Index


class Scope(Enum):
    """Where a buffer lies."""

    MEMORY = "memory"
    CACHE = "cache"
    REGISTER = "register"
    SCRATCHPAD = "scratchpad"  # of an accelerator: filled and emptied by its own instructions


class LoopKind(Enum):
    """How the turns of a loop are run; in all kinds but `SERIAL` and `UNROLLED` they are independent."""

    SERIAL = "serial"
    UNROLLED = "unrolled"
    PARALLEL = "parallel"
    VECTORISED = "vectorised"
    BOUND = "bound"  # to the threads of a device


@dataclass(frozen=True, slots=True)
class Buffer:
    """A named array of fixed shape."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    scope: Scope = Scope.MEMORY


# --------------------------------------------------------------------------- values


@dataclass(frozen=True, slots=True)
class Load:
    """One element of a buffer."""

    buffer: str
    index: tuple[Index, ...]


@dataclass(frozen=True, slots=True)
class Number:
    """A constant, by its bytes: NaN and the two zeros are told apart."""

    dtype: np.dtype
    bits: bytes


@dataclass(frozen=True, slots=True)
class Apply:
    """An element-wise operator of the op table; `dtype` is that of its value."""

    op: str
    args: tuple[Value, ...]
    dtype: np.dtype
    attrs: tuple[tuple[str, Any], ...] = ()


Value = Load | Number | Apply

# --------------------------------------------------------------------------- statements


@dataclass(frozen=True, slots=True)
class Store:
    """An element is set."""

    buffer: str
    index: tuple[Index, ...]
    value: Value


@dataclass(frozen=True, slots=True)
class Update:
    """An element becomes ``op(element, value)``: the order of turns is the order of the reduction."""

    buffer: str
    index: tuple[Index, ...]
    op: str
    value: Value


@dataclass(frozen=True, slots=True)
class Loop:
    """`body` for `name` from 0 to `extent`."""

    name: str
    extent: int
    body: tuple[Statement, ...]
    kind: LoopKind = LoopKind.SERIAL


@dataclass(frozen=True, slots=True)
class Guard:
    """`body` where `index` is less than `below`."""

    index: Index
    below: int
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Alloc:
    """A buffer of its own for what follows, anew in every turn."""

    buffer: Buffer


@dataclass(frozen=True, slots=True)
class Window:
    """The part of a buffer that an intrinsic works on: from `index` on, as large as it declares."""

    buffer: str
    index: tuple[Index, ...]


@dataclass(frozen=True, slots=True)
class Invoke:
    """An intrinsic run on windows."""

    intrinsic: str
    windows: tuple[Window, ...]


Statement = Store | Update | Loop | Guard | Alloc | Invoke


@dataclass(frozen=True, slots=True)
class Intrinsic:
    """An instruction of a machine, declared by the nest it stands for."""

    name: str
    operands: tuple[Buffer, ...]
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Nest:
    """What is computed: `outputs` from `inputs` by `body`; outputs begin with what is in them."""

    name: str
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    body: tuple[Statement, ...]
    intrinsics: tuple[Intrinsic, ...] = ()

    def intrinsic(self, name: str) -> Intrinsic:
        """Return the intrinsic of that name."""
        return next(i for i in self.intrinsics if i.name == name)


def dtype_of(value: Value, buffers: Mapping[str, Buffer]) -> np.dtype:
    """Return the dtype of a value."""
    return buffers[value.buffer].dtype if isinstance(value, Load) else value.dtype
