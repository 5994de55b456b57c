"""Verifier of the loop IR, and its reference interpreter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jitla.errors import NestError
from jitla.hops import Kind, Meta, all_ops, lookup
from jitla.loopir.analysis import (
    Body,
    all_loops,
    allocated_buffers,
    buffers_of,
    carried_dependence,
    intrinsics_of,
    ranges_of,
)
from jitla.loopir.nodes import (
    Alloc,
    Apply,
    Buffer,
    Guard,
    Index,
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
    dtype_of,
    evaluate,
    value_range,
)

UNSET_BYTE = 0xA5  # fills memory that was not written


def run(nest: Nest, arrays: Mapping[str, Any], backwards: bool = False) -> dict[str, Any]:
    """Interpret a nest and return its outputs; `arrays` are the inputs, and initial values of outputs.

    `backwards` runs independent iterations in reverse order.
    """
    buffers: dict[str, Any] = {}
    for buffer in nest.inputs:
        buffers[buffer.name] = _checked_input(buffer, arrays)
    for buffer in nest.outputs:
        has_value = buffer.name in arrays
        buffers[buffer.name] = _checked_input(buffer, arrays).copy() if has_value else unset_array(buffer)
    with np.errstate(all="ignore"):
        _Interpreter(nest, backwards).body(nest.body, {}, buffers)
    return {b.name: buffers[b.name] for b in nest.outputs}


def _checked_input(buffer: Buffer, arrays: Mapping[str, Any]) -> Any:
    array = np.asarray(arrays[buffer.name])
    if array.shape != buffer.shape or array.dtype != buffer.dtype:
        raise NestError("operand", f"{buffer.name} is {array.dtype}{array.shape}")
    return array


def unset_array(buffer: Buffer) -> Any:
    """Return an array filled with `UNSET_BYTE`, which makes reads of unwritten memory visible."""
    size = int(np.prod(buffer.shape, dtype=np.int64)) * buffer.dtype.itemsize
    return np.full(size, UNSET_BYTE, np.uint8).view(buffer.dtype).reshape(buffer.shape)


class _Interpreter:
    """Interprets one nest; `at` are the values of loop variables, `arrays` the buffers by name."""

    def __init__(self, nest: Nest, backwards: bool) -> None:
        self.intrinsics = intrinsics_of(nest)
        self.backwards = backwards

    def body(self, body: Body, variables: dict[str, int], arrays: dict[str, Any]) -> None:
        """Run statements; their allocations end with them."""
        local = dict(arrays) if any(isinstance(s, Alloc) for s in body) else arrays
        for statement in body:
            self.statement(statement, variables, local)

    def statement(self, statement: Statement, variables: dict[str, int], arrays: dict[str, Any]) -> None:
        """Run one statement."""
        match statement:
            case Store(buffer, index, value):
                arrays[buffer][self.subscript(buffer, index, variables, arrays)] = self.value(value,
                    variables, arrays)
            case Update(buffer, index, op, value):
                position = self.subscript(buffer, index, variables, arrays)
                arrays[buffer][position] = lookup(op).ref(arrays[buffer][position],
                                                          self.value(value, variables, arrays))
            case Loop(name, extent, inner, kind):
                iterations = range(extent)
                if self.backwards and kind not in (LoopKind.SERIAL, LoopKind.UNROLLED):
                    iterations = iterations[::-1]
                for iteration in iterations:
                    variables[name] = iteration
                    self.body(inner, variables, arrays)
                del variables[name]
            case Guard(index, below, inner):
                if evaluate(index, variables) < below:
                    self.body(inner, variables, arrays)
            case Alloc(buffer):
                arrays[buffer.name] = unset_array(buffer)
            case Invoke(name, windows):
                intrinsic = self.intrinsics[name]
                parts = {}
                for operand, window in zip(intrinsic.operands, windows, strict=True):
                    start = self.subscript(window.buffer, window.index, variables, arrays)
                    section = tuple(slice(b, b + n) for b, n in zip(start, operand.shape, strict=True))
                    parts[operand.name] = arrays[window.buffer][section]
                self.body(intrinsic.body, {}, parts)

    def subscript(
        self, buffer: str, index: Sequence[Index], variables: dict[str, int], arrays: dict[str, Any]
    ) -> tuple[int, ...]:
        """Return the subscript of an element; raise `NestError` if it is out of bounds."""
        position = tuple([evaluate(i, variables) for i in index])
        if any(not 0 <= i < n for i, n in zip(position, arrays[buffer].shape, strict=True)):
            raise NestError("out-of-bounds", f"{buffer}{list(position)}, which has {arrays[buffer].shape}")
        return position

    def value(self, value: Value, variables: dict[str, int], arrays: dict[str, Any]) -> Any:
        """Return `value` as a NumPy scalar."""
        match value:
            case Load(buffer, index):
                return arrays[buffer][self.subscript(buffer, index, variables, arrays)]
            case Number(dtype, bits):
                return np.frombuffer(bits, dtype)[0]
            case Apply(op, args, _, attrs):
                return lookup(op).ref(*[self.value(a, variables, arrays) for a in args], **dict(attrs))


LAWS = {
    "one-name": "names of loops and buffers are unique",
    "extent": "loops and buffers are not empty",
    "unknown-buffer": "buffers are allocated before they are used, and inputs are not written",
    "unknown-variable": "indices contain variables of surrounding loops only",
    "axes": "an index has one component for each axis",
    "out-of-bounds": "indices are within their buffers",
    "dtype": "stored values have the dtype of their buffer",
    "unknown-operator": "operators of values are cells of the op table",
    "dependent-iterations": "iterations of a loop that is not serial are independent",
    "intrinsic": "an invoked intrinsic is declared, and gets one window per operand",
}
_CELLS = frozenset(op.name for op in all_ops() if op.kind is Kind.CELL)
Buffers = Mapping[str, Buffer]


def verify(nest: Nest) -> None:
    """Raise `NestError` unless `nest` satisfies all `LAWS`."""
    names = [loop.name for loop in all_loops(nest.body)] + [b.name for b in allocated_buffers(nest.body)]
    names += [b.name for b in (*nest.inputs, *nest.outputs)]
    duplicates = [name for name, times in Counter(names).items() if times > 1]
    _require("one-name", not duplicates, ", ".join(duplicates))
    for intrinsic in nest.intrinsics:
        declaration = Nest(intrinsic.name, (), intrinsic.operands, intrinsic.body)
        _Checker(declaration).body(declaration.body, {b.name: b for b in declaration.outputs}, (), ())
    _Checker(nest).body(nest.body, {b.name: b for b in (*nest.inputs, *nest.outputs)}, (), ())
    check_kinds(nest)


def check_kinds(nest: Nest) -> None:
    """Raise `NestError` if the iterations of a parallel, vectorised or bound loop depend on each other."""
    buffers, intrinsics = buffers_of(nest), intrinsics_of(nest)

    def visit(body: Body, around: tuple[Loop, ...]) -> None:
        for statement in body:
            if isinstance(statement, Loop):
                if statement.kind not in (LoopKind.SERIAL, LoopKind.UNROLLED):
                    dependence = carried_dependence(statement, around, buffers, intrinsics)
                    _require("dependent-iterations", dependence is None, dependence or "")
                visit(statement.body, (*around, statement))
            elif isinstance(statement, Guard):
                visit(statement.body, around)

    visit(nest.body, ())


def _require(law: str, holds: bool, text: str) -> None:
    if not holds:
        raise NestError(law, f"{LAWS[law]}, but {text}")


class _Checker:
    """Checks the laws that concern single statements."""

    def __init__(self, nest: Nest) -> None:
        self.intrinsics = intrinsics_of(nest)
        self.constant = {b.name for b in nest.inputs}
        for buffer in (*nest.inputs, *nest.outputs):
            _require("extent", min(buffer.shape, default=1) > 0, f"{buffer.name} has {buffer.shape}")

    def body(self, body: Body, buffers: Buffers, loops: tuple[Loop, ...], guards: tuple[Guard, ...]) -> None:
        """Check statements; their allocations end with them."""
        local = dict(buffers)
        for statement in body:
            self.statement(statement, local, loops, guards)

    def statement(
        self, statement: Statement, buffers: dict[str, Buffer], loops: tuple[Loop, ...],
        guards: tuple[Guard, ...],
    ) -> None:
        """Check one statement, and add a buffer that it allocates."""
        match statement:
            case Store(buffer, index, value) | Update(buffer, index, _, value):
                self.element(buffer, index, buffers, loops, guards, True)
                dtype = self.value(value, buffers, loops, guards)
                if isinstance(statement, Update):
                    dtype = _result_dtype(statement.op, [buffers[buffer].dtype, dtype], {})
                _require("dtype", dtype == buffers[buffer].dtype, f"{buffer} gets {dtype}")
            case Loop(name, extent, inner):
                _require("extent", extent > 0, f"{name} has {extent} iterations")
                self.body(inner, buffers, (*loops, statement), guards)
            case Guard(index, _, inner):
                self.variables(index, loops)
                self.body(inner, buffers, loops, (*guards, statement))
            case Alloc(buffer):
                _require("extent", min(buffer.shape, default=1) > 0, f"{buffer.name} has {buffer.shape}")
                buffers[buffer.name] = buffer
            case Invoke(name, windows):
                _require("intrinsic", name in self.intrinsics, f"{name} is not declared")
                operands = self.intrinsics[name].operands
                _require("intrinsic", len(operands) == len(windows), f"{name} has {len(operands)} operands")
                for operand, window in zip(operands, windows, strict=True):
                    self.element(window.buffer, window.index, buffers, loops, guards, False, operand.shape)
                    dtype_ = buffers[window.buffer].dtype
                    _require("dtype", dtype_ == operand.dtype, f"{name} gets {dtype_} for {operand.name}")

    def variables(self, index: Index, loops: tuple[Loop, ...]) -> None:
        """Check that the variables of `index` belong to the loops around it."""
        unknown = index.variables - {loop.name for loop in loops}
        _require("unknown-variable", not unknown, f"{', '.join(sorted(unknown))} is none")

    def element(
        self, name: str, index: tuple[Index, ...], buffers: Buffers, loops: tuple[Loop, ...],
        guards: tuple[Guard, ...], writes: bool, extent: tuple[int, ...] | None = None,
    ) -> None:
        """Check that an element, or a window of elements, is in bounds."""
        _require("unknown-buffer", name in buffers and not (writes and name in self.constant), name)
        shape = buffers[name].shape
        _require("axes", len(index) == len(shape), f"{name} has {len(shape)}, the index {len(index)}")
        for component, size, count in zip(index, shape, extent or (1,) * len(shape), strict=True):
            self.variables(component, loops)
            low, high = guarded_range(component, loops, guards)
            _require("out-of-bounds", low >= 0 and high + count - 1 < size,
                 f"{name}[{', '.join(map(str, index))}] reaches from {low} to {high + count - 1} of {size}")

    def value(
        self, value: Value, buffers: Buffers, loops: tuple[Loop, ...], guards: tuple[Guard, ...]
    ) -> np.dtype:
        """Check a value; return its dtype."""
        if isinstance(value, Load):
            self.element(value.buffer, value.index, buffers, loops, guards, False)
        elif isinstance(value, Apply):
            dtypes = [self.value(a, buffers, loops, guards) for a in value.args]
            dtype = _result_dtype(value.op, dtypes, dict(value.attrs))
            _require("dtype", dtype == value.dtype, f"{value.op} of {dtypes} is {dtype}")
        return dtype_of(value, buffers)


def _result_dtype(op: str, dtypes: list[np.dtype], attrs: dict[str, object]) -> np.dtype:
    _require("unknown-operator", op in _CELLS, f"{op} is none")
    return lookup(op).meta(tuple(Meta((), d) for d in dtypes), attrs).dtype


def guarded_range(index: Index, loops: tuple[Loop, ...], guards: tuple[Guard, ...]) -> tuple[int, int]:
    """Return lower and upper bounds of `index`, given the loops and guards around it."""
    low, high = value_range(index, ranges_of(loops))
    coefficients = dict(index.terms)
    for guard in guards:
        times = {coefficients.get(atom, 0) // n for atom, n in guard.index.terms}
        if len(times) == 1 and (factor := times.pop()) > 0:  # factor * guarded index + remaining terms
            remaining = index + guard.index * -factor
            high = min(high, (guard.below - 1) * factor + value_range(remaining, ranges_of(loops))[1])
    return low, high
