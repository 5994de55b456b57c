"""Verifier of loop programs: names, dtypes, numbers of indices, labels and exits."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import cast

import numpy as np

from jitla.errors import InternalError, NestError
from jitla.hops import Kind, Meta, lookup
from jitla.loopir import program as ir
from jitla.loopir.program_state import core_axes, find_ufunc

__all__ = ["PROGRAM_LAWS", "verify_program"]

PROGRAM_LAWS = {
    "one-name": "variables have different names, and labels other ones than those around them",
    "unknown-variable": "variables are declared, scalars and views each where they are expected",
    "dtype": "values have the dtypes that their users expect",
    "axes": "an index has one component for each axis of its view, and a view a map for each axis",
    "unknown-operator": "operators are cells of the op table, and checked operations and routines exist",
    "label": "a jump is inside its loop or block, and `Continue` jumps to a loop",
    "exit": "exits are numbers of exit points, and the body ends by one",
}
_CHECKED_OPERANDS = {"add": 2, "sub": 2, "mul": 2, "neg": 1, "shl": 2, "floordiv": 2, "mod": 2, "cast": 1}
_ROUTINE = re.compile(r"(\w+)\.([?\w]*->[?\w]+)")
_C_FUNCTION = re.compile(r"[a-z]\w*")


def verify_program(program: ir.LoopProgram) -> None:
    """Raise `NestError` unless `program` satisfies all `PROGRAM_LAWS`."""
    _Checker(program).check()


def _require(law: str, holds: bool, text: str) -> None:
    if not holds:
        raise NestError(law, f"{PROGRAM_LAWS[law]}, but {text}")


class _Checker:
    """Checks one program; `labels` are those around, each with whether it is one of a loop."""

    def __init__(self, program: ir.LoopProgram) -> None:
        self.program = program
        self.scalars = {s.name: s for s in program.scalars}
        self.views = {v.name: v for v in program.views}
        self.labels: dict[str, bool] = {}

    def check(self) -> None:
        """Check declarations and statements."""
        program = self.program
        variables: list[ir.ScalarVariable | ir.ViewVariable] = [*program.scalars, *program.views]
        twice = [name for name, times in Counter(v.name for v in variables).items() if times > 1]
        _require("one-name", not twice, ", ".join(twice))
        for name in (*program.parameters, *program.results):
            _require("unknown-variable", name in self.scalars or name in self.views, f"there is no {name}")
        for name in program.written:
            known = name in self.views and name in program.parameters
            _require("unknown-variable", known, f"{name} is no view among the parameters")
        for name, _ in program.origins:
            known = name in self.views and name in program.parameters
            _require("unknown-variable", known, f"{name} is no view among the parameters")
        for variable in variables:
            fits = variable.dtype.char in "?bBhHiIlLqQfdFD" and variable.dtype.isnative
            _require("dtype", fits, f"{variable.name} is {variable.dtype}")
        self.body(program.body)
        _require("exit", not falls_through(program.body), "control reaches its end")

    def body(self, body: Sequence[ir.Statement]) -> None:
        """Check statements."""
        for statement in body:
            self.statement(statement)

    def statement(self, statement: ir.Statement) -> None:
        """Check one statement."""
        match statement:
            case ir.Assign(name, value):
                self.equal(name, self.scalar(name).dtype, self.value(value))
            case ir.StoreElement(view, index, value):
                self.element(view, index)
                self.equal(view, self.view(view).dtype, self.value(value))
            case ir.BindView():
                self.bind(statement)
            case ir.BindMemory(name, address, shape, strides):
                ndim = self.view(name).ndim
                _require("axes", len(shape) == len(strides) == ndim, f"{name} gets {len(shape)}")
                self.words((address, *shape, *strides))
            case ir.Allocate(name, shape, _, number):
                _require("axes", len(shape) == self.view(name).ndim, f"{name} gets {len(shape)}")
                self.words(shape)
                self.exit(number)
            case ir.If(test, then, otherwise):
                self.equal("a branch", ir.BOOL, self.value(test))
                self.body(then)
                self.body(otherwise)
            case ir.For(label, name, begin, end, step, body):
                self.equal(name, ir.INT64, self.scalar(name).dtype)
                self.words((begin, end))
                _require("dtype", step != 0, f"{label} has step 0")
                self.inside(label, body, True)
            case ir.Repeat(label, body):
                self.inside(label, body, True)
            case ir.Block(label, body):
                self.inside(label, body, False)
            case ir.Break(label):
                _require("label", label in self.labels, f"there is no {label} around")
            case ir.Continue(label):
                _require("label", self.labels.get(label, False), f"there is no loop {label} around")
            case ir.Check(test, number):
                self.equal("a check", ir.BOOL, self.value(test))
                self.exit(number)
            case ir.Leave(number):
                self.exit(number)
            case ir.InnerLoop():
                self.inner_loop(statement)
            case ir.Dot():
                self.dot(statement)
            case ir.Sort(kind, values, length, indices, number):
                _require("unknown-operator", kind in ("quicksort", "stable"), f"a sort that is {kind}")
                self.operand(values)
                if indices is not None:
                    self.equal("indices", ir.INT64, self.operand(indices))
                self.words((length,))
                self.exit(number)

    def inside(self, label: str, body: Sequence[ir.Statement], loop: bool) -> None:
        """Check the statements of a loop or block."""
        _require("one-name", label not in self.labels, f"{label} is around {label}")
        self.labels[label] = loop
        self.body(body)
        del self.labels[label]

    def bind(self, statement: ir.BindView) -> None:
        """Check a view of a view."""
        name, source = self.view(statement.name), self.view(statement.source)
        self.equal(name.name, name.dtype, source.dtype)
        _require("axes", len(statement.axes) == name.ndim, f"{name.name} gets {len(statement.axes)}")
        points = [axis for axis, _ in statement.points]
        # an axis may be split into several
        mapped = {axis.axis for axis in statement.axes if axis.axis is not None}
        _require("axes", sorted((*points, *mapped)) == list(range(source.ndim)),
                 f"{source.name} is read along {(*points, *mapped)}")
        self.words([value for _, value in statement.points])
        for axis in statement.axes:
            self.words((axis.begin, axis.length, axis.step))

    def inner_loop(self, statement: ir.InnerLoop) -> None:
        """Check the operands of a ufunc's inner loop."""
        match = _ROUTINE.fullmatch(statement.routine)
        ufunc = find_ufunc(match[1]) if match else None
        _require("unknown-operator", match is not None and ufunc is not None and match[2] in ufunc.types,
                 f"there is no {statement.routine}")
        assert match is not None and ufunc is not None
        dtypes = [np.dtype(char) for char in match[2].replace("->", "")]
        found = [self.operand(o) for o in statement.operands]
        _require("dtype", dtypes == found, f"{statement.routine} gets {', '.join(map(str, found))}")
        core, axes = core_axes(ufunc)
        steps = ufunc.nargs + sum(map(len, axes))
        _require("axes", len(statement.dims) == 1 + len(core) and len(statement.steps) == steps,
                 f"{statement.routine} gets {len(statement.dims)} sizes and {len(statement.steps)} steps")
        self.words((*statement.dims, *statement.steps))

    def dot(self, statement: ir.Dot) -> None:
        """Check the operands of a `dot` function."""
        for operand in (statement.a, statement.b, statement.out):
            self.equal("dot", statement.dtype, self.operand(operand))
        self.words((statement.a_step, statement.b_step, statement.length))

    def operand(self, operand: ir.Operand) -> np.dtype:
        """Check an operand of a routine; return its dtype."""
        if isinstance(operand, ir.Address):
            self.element(operand.view, operand.index)
            return self.view(operand.view).dtype
        return self.scalar(operand.name).dtype

    # -- values ---------------------------------------------------------------------------------

    def value(self, value: ir.Value) -> np.dtype:
        """Check a value; return its dtype."""
        match value:
            case ir.Number(dtype, bits):
                _require("dtype", len(bits) == dtype.itemsize, f"a {dtype} has {len(bits)} bytes")
                return dtype
            case ir.Read(name, dtype):
                self.equal(name, self.scalar(name).dtype, dtype)
                return dtype
            case ir.Element(view, index, dtype):
                self.element(view, index)
                self.equal(view, self.view(view).dtype, dtype)
                return dtype
            case ir.Extent(view, axis) | ir.Stride(view, axis):
                _require("axes", 0 <= axis < self.view(view).ndim, f"{view} has no axis {axis}")
                return ir.INT64
            case ir.Expires(view):
                self.view(view)
                return value.dtype
            case ir.Pointer(view, index):
                self.view(view)
                if index:
                    self.element(view, index)
                return ir.INT64
            case ir.Checked():
                return self.checked(value)
            case ir.Foreign(function, args):
                _require("unknown-operator", bool(_C_FUNCTION.fullmatch(function)), function)
                for arg in args:
                    self.equal(function, value.dtype, self.value(arg))
                return value.dtype
            case ir.Apply():
                return self.apply(value)

    def checked(self, value: ir.Checked) -> np.dtype:
        """Check arithmetic that leaves the program."""
        _require("unknown-operator", value.op in _CHECKED_OPERANDS, f"checked {value.op} is none")
        dtypes = [self.value(a) for a in value.args]
        _require("dtype", len(dtypes) == _CHECKED_OPERANDS[value.op], f"{value.op} of {len(dtypes)}")
        kinds = "biuf" if value.op == "cast" else "iu"
        _require("dtype", value.dtype.kind in kinds, f"checked {value.op} to {value.dtype}")
        for dtype in dtypes:
            if value.op == "cast":
                _require("dtype", dtype.kind in kinds, f"checked cast of {dtype}")
            else:
                self.equal(value.op, value.dtype, dtype)
        self.exit(value.exit)
        return value.dtype

    def apply(self, value: ir.Apply) -> np.dtype:
        """Check an operator of the op table; operands may have any dtypes, as it casts them."""
        dtypes = tuple([self.value(a) for a in cast(tuple[ir.Value, ...], value.args)])
        try:
            op = lookup(value.op)
        except KeyError:
            op = None
        _require("unknown-operator", op is not None and op.kind is Kind.CELL, f"{value.op} is none")
        assert op is not None
        _require("unknown-operator", op.arity in (None, len(dtypes)), f"{op.name} of {len(dtypes)} operands")
        attrs = dict(value.attrs)
        try:
            operands = op.resolve(dtypes, attrs)
            result = op.meta(tuple(Meta((), d) for d in operands), attrs).dtype
        except (InternalError, KeyError, TypeError) as error:
            raise NestError("dtype", f"{op.name} of {', '.join(map(str, dtypes))}: {error}") from error
        self.equal(op.name, value.dtype, result)
        return value.dtype

    # -- names and dtypes -----------------------------------------------------------------------

    def scalar(self, name: str) -> ir.ScalarVariable:
        """Return a scalar variable."""
        _require("unknown-variable", name in self.scalars, f"there is no scalar {name}")
        return self.scalars[name]

    def view(self, name: str) -> ir.ViewVariable:
        """Return a view variable."""
        _require("unknown-variable", name in self.views, f"there is no view {name}")
        return self.views[name]

    def element(self, view: str, index: Sequence[ir.Value]) -> None:
        """Check an index of a view."""
        _require("axes", len(index) == self.view(view).ndim, f"{view} gets {len(index)}")
        self.words(index)

    def words(self, values: Sequence[ir.Value]) -> None:
        """Check values that have to be int64."""
        for value in values:
            self.equal("an index", ir.INT64, self.value(value))

    def equal(self, what: str, expected: np.dtype, actual: np.dtype) -> None:
        """Check that two dtypes are equal."""
        _require("dtype", expected == actual, f"{what} is {expected} and gets {actual}")

    def exit(self, number: int) -> None:
        """Check the number of an exit."""
        _require("exit", 0 <= number < len(self.program.exits), f"there is no exit {number}")


def falls_through(body: Sequence[ir.Statement]) -> bool:
    """Return whether control may reach the end of `body`."""
    return not any(map(_ends, body))


def _ends(statement: ir.Statement) -> bool:
    """Return whether control never gets behind a statement."""
    match statement:
        case ir.Leave() | ir.Break() | ir.Continue():
            return True
        case ir.If(_, then, otherwise):
            return not falls_through(then) and not falls_through(otherwise)
        case ir.Repeat(label, body):
            return not _breaks(label, body)
        case ir.Block(label, body):
            return not falls_through(body) and not _breaks(label, body)
    return False


def _breaks(label: str, body: Sequence[ir.Statement]) -> bool:
    """Return whether a `Break` of `label` is in `body`."""
    for statement in body:
        match statement:
            case ir.Break(target) if target == label:
                return True
            case ir.If(_, then, otherwise) if _breaks(label, then) or _breaks(label, otherwise):
                return True
            case ir.For() | ir.Repeat() | ir.Block() if _breaks(label, statement.body):
                return True
    return False
