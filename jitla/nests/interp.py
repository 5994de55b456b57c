"""What a nest means: run by NumPy, one element after the other.

Knows: NumPy's operators, as the op table names them. Must not know: schedules, any machine.
Receives a nest and arrays; returns new arrays.

Turns are run in order; those that are said to be independent may be run backwards, which has to be the same.
Memory that nothing was stored to is filled with a pattern, in which no result should show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jitla.errors import NestError
from jitla.hops import lookup
from jitla.nests.index import Index, evaluate
from jitla.nests.nodes import (
    Alloc,
    Apply,
    Buffer,
    Guard,
    Invoke,
    Load,
    Loop,
    LoopKind,
    Nest,
    Number,
    Statement,
    Store,
    Update,
    Value,
)
from jitla.nests.walking import Body, intrinsics_of

UNSET = 0xA5  # every byte of memory that nothing was stored to


def run(nest: Nest, arrays: Mapping[str, Any], backwards: bool = False) -> dict[str, Any]:
    """Return the outputs; `arrays` are the inputs, and outputs if what is in them matters."""
    there: dict[str, Any] = {}
    for buffer in nest.inputs:
        there[buffer.name] = _given(buffer, arrays)
    for buffer in nest.outputs:
        given = buffer.name in arrays
        there[buffer.name] = _given(buffer, arrays).copy() if given else unset(buffer)
    with np.errstate(all="ignore"):
        _Run(nest, backwards).body(nest.body, {}, there)
    return {b.name: there[b.name] for b in nest.outputs}


def _given(buffer: Buffer, arrays: Mapping[str, Any]) -> Any:
    array = np.asarray(arrays[buffer.name])
    if array.shape != buffer.shape or array.dtype != buffer.dtype:
        raise NestError("operand", f"{buffer.name} is {array.dtype}{array.shape}")
    return array


def unset(buffer: Buffer) -> Any:
    """Return an array that nothing was stored to."""
    size = int(np.prod(buffer.shape, dtype=np.int64)) * buffer.dtype.itemsize
    return np.full(size, UNSET, np.uint8).view(buffer.dtype).reshape(buffer.shape)


class _Run:
    """One nest on its way; `at` are the loop variables, `there` the buffers by name."""

    def __init__(self, nest: Nest, backwards: bool) -> None:
        self.intrinsics = intrinsics_of(nest)
        self.backwards = backwards

    def body(self, body: Body, at: dict[str, int], there: dict[str, Any]) -> None:
        """Run statements; what they allocate ends with them."""
        own = dict(there) if any(isinstance(s, Alloc) for s in body) else there
        for statement in body:
            self.statement(statement, at, own)

    def statement(self, statement: Statement, at: dict[str, int], there: dict[str, Any]) -> None:
        """Run one statement."""
        match statement:
            case Store(buffer, index, value):
                there[buffer][self.place(buffer, index, at, there)] = self.value(value, at, there)
            case Update(buffer, index, op, value):
                place = self.place(buffer, index, at, there)
                there[buffer][place] = lookup(op).ref(there[buffer][place], self.value(value, at, there))
            case Loop(name, extent, inner, kind):
                turns = range(extent)
                if self.backwards and kind not in (LoopKind.SERIAL, LoopKind.UNROLLED):
                    turns = turns[::-1]
                for turn in turns:
                    at[name] = turn
                    self.body(inner, at, there)
                del at[name]
            case Guard(index, below, inner):
                if evaluate(index, at) < below:
                    self.body(inner, at, there)
            case Alloc(buffer):
                there[buffer.name] = unset(buffer)
            case Invoke(name, windows):
                intrinsic = self.intrinsics[name]
                parts = {}
                for operand, window in zip(intrinsic.operands, windows, strict=True):
                    begins = self.place(window.buffer, window.index, at, there)
                    cut = tuple(slice(b, b + n) for b, n in zip(begins, operand.shape, strict=True))
                    parts[operand.name] = there[window.buffer][cut]
                self.body(intrinsic.body, {}, parts)

    def place(
        self, buffer: str, index: Sequence[Index], at: dict[str, int], there: dict[str, Any]
    ) -> tuple[int, ...]:
        """Return where an element is."""
        found = tuple([evaluate(i, at) for i in index])
        if any(not 0 <= i < n for i, n in zip(found, there[buffer].shape, strict=True)):
            raise NestError("out-of-bounds", f"{buffer}{list(found)}, which has {there[buffer].shape}")
        return found

    def value(self, value: Value, at: dict[str, int], there: dict[str, Any]) -> Any:
        """Return the NumPy scalar that `value` is."""
        match value:
            case Load(buffer, index):
                return there[buffer][self.place(buffer, index, at, there)]
            case Number(dtype, bits):
                return np.frombuffer(bits, dtype)[0]
            case Apply(op, args, _, attrs):
                return lookup(op).ref(*[self.value(a, at, there) for a in args], **dict(attrs))
