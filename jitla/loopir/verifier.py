"""Verifier of the loop IR, and its interpreter."""

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
    allocated,
    buffers_of,
    carried,
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
    reach,
)

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


LAWS = {
    "one-name": "no two loops or buffers have one name",
    "extent": "loops have turns, buffers have elements",
    "unknown-buffer": "a buffer is allocated before it is used, and inputs are not written",
    "unknown-variable": "indices are made of the variables of the loops around them",
    "axes": "an index has one number for each axis",
    "out-of-bounds": "no index leaves its buffer",
    "dtype": "what is stored has the dtype of its buffer",
    "unknown-operator": "operators of values are cells of the op table",
    "dependent-turns": "turns of a loop that is not serial are independent",
    "intrinsic": "an intrinsic that is used is declared, and gets as many windows as it has operands",
}
_CELLS = frozenset(op.name for op in all_ops() if op.kind is Kind.CELL)
Buffers = Mapping[str, Buffer]


def verify(nest: Nest) -> None:
    """Raise `NestError` unless `nest` obeys all `LAWS`."""
    names = [loop.name for loop in all_loops(nest.body)] + [b.name for b in allocated(nest.body)]
    names += [b.name for b in (*nest.inputs, *nest.outputs)]
    twice = [name for name, times in Counter(names).items() if times > 1]
    _law("one-name", not twice, ", ".join(twice))
    for intrinsic in nest.intrinsics:
        own = Nest(intrinsic.name, (), intrinsic.operands, intrinsic.body)
        _Check(own).body(own.body, {b.name: b for b in own.outputs}, (), ())
    _Check(nest).body(nest.body, {b.name: b for b in (*nest.inputs, *nest.outputs)}, (), ())
    check_kinds(nest)


def check_kinds(nest: Nest) -> None:
    """Raise `NestError` if a loop is parallel, vectorised or bound whose turns are not independent."""
    buffers, intrinsics = buffers_of(nest), intrinsics_of(nest)

    def look(body: Body, around: tuple[Loop, ...]) -> None:
        for statement in body:
            if isinstance(statement, Loop):
                if statement.kind not in (LoopKind.SERIAL, LoopKind.UNROLLED):
                    why = carried(statement, around, buffers, intrinsics)
                    _law("dependent-turns", why is None, why or "")
                look(statement.body, (*around, statement))
            elif isinstance(statement, Guard):
                look(statement.body, around)

    look(nest.body, ())


def _law(law: str, holds: bool, text: str) -> None:
    if not holds:
        raise NestError(law, f"{LAWS[law]}, but {text}")


class _Check:
    """The laws of single statements."""

    def __init__(self, nest: Nest) -> None:
        self.intrinsics = intrinsics_of(nest)
        self.constant = {b.name for b in nest.inputs}
        for buffer in (*nest.inputs, *nest.outputs):
            _law("extent", min(buffer.shape, default=1) > 0, f"{buffer.name} has {buffer.shape}")

    def body(self, body: Body, buffers: Buffers, loops: tuple[Loop, ...], guards: tuple[Guard, ...]) -> None:
        """Check statements; what they allocate ends with them."""
        own = dict(buffers)
        for statement in body:
            self.statement(statement, own, loops, guards)

    def statement(
        self, statement: Statement, buffers: dict[str, Buffer], loops: tuple[Loop, ...],
        guards: tuple[Guard, ...],
    ) -> None:
        """Check one statement, and note what it allocates."""
        match statement:
            case Store(buffer, index, value) | Update(buffer, index, _, value):
                self.element(buffer, index, buffers, loops, guards, True)
                found = self.value(value, buffers, loops, guards)
                if isinstance(statement, Update):
                    found = _meant(statement.op, [buffers[buffer].dtype, found], {})
                _law("dtype", found == buffers[buffer].dtype, f"{buffer} gets {found}")
            case Loop(name, extent, inner):
                _law("extent", extent > 0, f"{name} has {extent} turns")
                self.body(inner, buffers, (*loops, statement), guards)
            case Guard(index, _, inner):
                self.variables(index, loops)
                self.body(inner, buffers, loops, (*guards, statement))
            case Alloc(buffer):
                _law("extent", min(buffer.shape, default=1) > 0, f"{buffer.name} has {buffer.shape}")
                buffers[buffer.name] = buffer
            case Invoke(name, windows):
                _law("intrinsic", name in self.intrinsics, f"{name} is not declared")
                operands = self.intrinsics[name].operands
                _law("intrinsic", len(operands) == len(windows), f"{name} has {len(operands)} operands")
                for operand, window in zip(operands, windows, strict=True):
                    self.element(window.buffer, window.index, buffers, loops, guards, False, operand.shape)
                    given = buffers[window.buffer].dtype
                    _law("dtype", given == operand.dtype, f"{name} gets {given} for {operand.name}")

    def variables(self, index: Index, loops: tuple[Loop, ...]) -> None:
        """Check that the variables of `index` are those of loops around it."""
        unknown = index.variables - {loop.name for loop in loops}
        _law("unknown-variable", not unknown, f"{', '.join(sorted(unknown))} is none")

    def element(
        self, name: str, index: tuple[Index, ...], buffers: Buffers, loops: tuple[Loop, ...],
        guards: tuple[Guard, ...], writes: bool, extent: tuple[int, ...] | None = None,
    ) -> None:
        """Check that there is such an element, or a window of them."""
        _law("unknown-buffer", name in buffers and not (writes and name in self.constant), name)
        shape = buffers[name].shape
        _law("axes", len(index) == len(shape), f"{name} has {len(shape)}, the index {len(index)}")
        for at, size, many in zip(index, shape, extent or (1,) * len(shape), strict=True):
            self.variables(at, loops)
            low, high = within(at, loops, guards)
            _law("out-of-bounds", low >= 0 and high + many - 1 < size,
                 f"{name}[{', '.join(map(str, index))}] reaches from {low} to {high + many - 1} of {size}")

    def value(
        self, value: Value, buffers: Buffers, loops: tuple[Loop, ...], guards: tuple[Guard, ...]
    ) -> np.dtype:
        """Check a value; return its dtype."""
        if isinstance(value, Load):
            self.element(value.buffer, value.index, buffers, loops, guards, False)
        elif isinstance(value, Apply):
            dtypes = [self.value(a, buffers, loops, guards) for a in value.args]
            found = _meant(value.op, dtypes, dict(value.attrs))
            _law("dtype", found == value.dtype, f"{value.op} of {dtypes} is {found}")
        return dtype_of(value, buffers)


def _meant(op: str, dtypes: list[np.dtype], attrs: dict[str, object]) -> np.dtype:
    _law("unknown-operator", op in _CELLS, f"{op} is none")
    return lookup(op).meta(tuple(Meta((), d) for d in dtypes), attrs).dtype


def within(index: Index, loops: tuple[Loop, ...], guards: tuple[Guard, ...]) -> tuple[int, int]:
    """Return what `index` is at least and at most, as far as loops and guards say."""
    low, high = reach(index, ranges_of(loops))
    has = dict(index.terms)
    for guard in guards:
        times = {has.get(atom, 0) // n for atom, n in guard.index.terms}
        if len(times) == 1 and (many := times.pop()) > 0:  # so many times what is guarded, and a rest
            rest = index + guard.index * -many
            high = min(high, (guard.below - 1) * many + reach(rest, ranges_of(loops))[1])
    return low, high
