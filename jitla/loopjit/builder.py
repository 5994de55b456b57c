"""Builder of loop programs: variables, statements under construction, and exits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from jitla.classes import dataclass
from jitla.loopir import assigned_in, is_pure, variables_of_value
from jitla.loopir import program as ir
from jitla.loopjit.values import INT64_HIGH, INT64_LOW, IS_OBJECT, Abstract, Arr, Num


@dataclass(eq=False)
class Edge:
    """A place in a list of statements where a path joins others; `statements` convert variables there."""

    statements: list[Any]


class ProgramBuilder:
    """Collects the statements of a program; lists of statements are frozen at the end.

    Values and checks that a list of statements has already are not computed again (local value numbering),
    until a variable that they depend on is assigned.
    """

    def __init__(self) -> None:
        self.scalars: dict[str, ir.ScalarVariable] = {}
        self.views: dict[str, ir.ViewVariable] = {}
        #: The memory of views that the program is entered with, by the names of views.
        self.origins: dict[str, str] = {}
        self.exits: list[ir.ExitPoint] = [
            ir.ExitPoint(ir.ExitKind.PART, 0, "the part is done"),
            ir.ExitPoint(ir.ExitKind.FINAL, 0, "the loop is done"),
            ir.ExitPoint(ir.ExitKind.FINAL, 0, "the loop is left by break")]
        self._undo: dict[tuple[int, str], int] = {}
        self.statements: list[Any] = []
        #: For each list that is open: temporaries by value, and checks that have passed.
        self._numbered: list[dict[ir.Value, ir.Value | None]] = [{}]
        #: For each list that is open: the values with numbers that depend on a variable.
        self._dependent: list[dict[str, list[ir.Value]]] = [{}]
        self.line = 0  # of the user's statement that is lowered
        self.allocations = 0  # of arrays in this statement
        self._count = 0

    # -- variables ----------------------------------------------------------------------------

    def scalar(self, name: str, dtype: np.dtype) -> ir.Read:
        """Declare the scalar variable `name`, and return its value."""
        self.scalars[name] = ir.ScalarVariable(name, dtype)
        return ir.Read(name, dtype)

    def view(self, name: str, dtype: np.dtype, ndim: int) -> str:
        """Declare the view variable `name`."""
        self.views[name] = ir.ViewVariable(name, dtype, ndim)
        return name

    def enter_with(self, view: str, array: Arr) -> None:
        """Note which memory a view has that the program is entered with."""
        (self.origins[view],) = array.origins - {IS_OBJECT}

    def fresh(self, stem: str) -> str:
        """Return an unused name, as `is_fresh` knows it."""
        self._count += 1
        return f"{stem}.{self._count}"

    # -- statements ---------------------------------------------------------------------------

    def emit(self, statement: ir.Statement | Edge) -> None:
        """Append a statement."""
        self.statements.append(statement)
        if not isinstance(statement, (Edge, ir.Check, ir.StoreElement)):
            self._forget(assigned_in((statement,)))

    def _forget(self, names: frozenset[str]) -> None:
        """Drop the numbers of values that depend on variables, which are assigned now."""
        for numbered, dependent in zip(self._numbered, self._dependent, strict=True):
            for name in names & dependent.keys():
                for value in dependent.pop(name):
                    numbered.pop(value, None)

    def _number(self, value: ir.Value, known: ir.Value | None) -> None:
        """Note that a value is computed, or that a check has passed, until a variable of it is assigned."""
        self._numbered[-1][value] = known
        for name in set(variables_of_value(value)):
            self._dependent[-1].setdefault(name, []).append(value)

    @contextmanager
    def into(self, statements: list[Any]) -> Iterator[list[Any]]:
        """Append to `statements` instead."""
        outer, self.statements = self.statements, statements
        self._numbered.append({})
        self._dependent.append({})
        try:
            yield statements
        finally:
            self.statements = outer
            self._numbered.pop()
            self._dependent.pop()

    def assign(self, name: str, value: ir.Value) -> ir.Read:
        """Assign to a scalar variable, and return its value."""
        read = self.scalar(name, ir.dtype_of_value(value))
        if value != read:
            self.emit(ir.Assign(name, value))
        return read

    def temporary(self, value: ir.Value, stem: str = "t") -> ir.Value:
        """Return a value that is computed once, here."""
        if isinstance(value, ir.Number):
            return value
        known = self._numbered[-1].get(value)
        if known is None:
            known = self.assign(self.fresh(stem), value)
            if is_pure(value):
                self._number(value, known)
        return known

    def evaluated(self, value: Num) -> Num:
        """Return a number whose value and tag are computed once, here."""
        tag = value.tag if value.tag is None else self.temporary(value.tag)
        return Num(value.kinds, self.temporary(value.value), tag, value.low, value.high, value.known)

    # -- exits --------------------------------------------------------------------------------

    def undo(self, reason: str) -> int:
        """Return the exit by which Python has to do the iteration, for `reason` at this line."""
        key = (self.line, reason)
        if key not in self._undo:
            self._undo[key] = len(self.exits)
            self.exits.append(ir.ExitPoint(ir.ExitKind.UNDO, self.line, reason))
        return self._undo[key]

    def final(self, reason: str) -> int:
        """Return a new exit that ends the loop, for `reason` at this line."""
        self.exits.append(ir.ExitPoint(ir.ExitKind.FINAL, self.line, reason))
        return len(self.exits) - 1

    def check(self, test: ir.Value, reason: str) -> None:
        """Leave the iteration to Python if `test` holds."""
        if test in self._numbered[-1]:
            return
        self.emit(ir.Check(test, self.undo(reason)))
        if is_pure(test):
            self._number(test, None)

    def leave(self, reason: str) -> None:
        """Leave the iteration to Python."""
        self.emit(ir.Leave(self.undo(reason)))


class LoweringContext(Protocol):
    """The lowering as functions and methods see it: the builder of its program."""

    @property
    def b(self) -> ProgramBuilder:
        """The builder."""
        ...

    def operate(self, op: str, left: Abstract, right: Abstract) -> Abstract:
        """Return the result of a binary operator."""
        ...


def is_fresh(name: str) -> bool:
    """Return whether a name is one of `ProgramBuilder.fresh`; names of user variables end by a dtype."""
    return name.rpartition(".")[2].isdigit()


def freeze(statements: list[Any]) -> tuple[ir.Statement, ...]:
    """Return statements with edges replaced by their conversions, as immutable nodes."""
    frozen: list[ir.Statement] = []
    for statement in statements:
        match statement:
            case Edge(inner):
                frozen.extend(freeze(inner))
            case ir.If(test, then, otherwise):
                frozen.append(ir.If(test, freeze(then), freeze(otherwise)))  # type: ignore[arg-type]
            case ir.For():
                frozen.append(replace(statement, body=freeze(statement.body)))  # type: ignore[arg-type]
            case ir.Repeat(label, body):
                frozen.append(ir.Repeat(label, freeze(body)))  # type: ignore[arg-type]
            case ir.Block(label, body):
                frozen.append(ir.Block(label, freeze(body)))  # type: ignore[arg-type]
            case _:
                frozen.append(statement)
    return tuple(frozen)


# --------------------------------------------------------------------------- shorthands for integer values


def apply(op: str, *args: ir.Value, dtype: Any = None) -> ir.Apply:
    """Return the operator `op` of the op table applied to values; `dtype` of the result is that of the first.
    """
    return ir.Apply(op, args, np.dtype(dtype) if dtype is not None else ir.dtype_of_value(args[0]))


def cast(value: ir.Value, dtype: np.dtype) -> ir.Value:
    """Return `value` converted as ``astype`` does."""
    if ir.dtype_of_value(value) == dtype:
        return value
    if isinstance(value, ir.Number):
        with suppress(FloatingPointError), np.errstate(all="raise"):  # else it is left to run time
            return ir.Number(dtype, np.frombuffer(value.bits, value.dtype).astype(dtype).tobytes())
    return ir.Apply("cast", (value,), dtype, (("dtype", dtype),))


def integer_constant(value: ir.Value) -> int | None:
    """Return the integer that a value is, or None."""
    if isinstance(value, ir.Number) and value.dtype == ir.INT64:
        return int(np.frombuffer(value.bits, np.int64)[0])
    return None


def plus(a: ir.Value, b: ir.Value) -> ir.Value:
    """Return the sum of two int64 values that cannot overflow."""
    x, y = integer_constant(a), integer_constant(b)
    if x is not None and y is not None:
        return ir.constant(x + y)
    return a if y == 0 else b if x == 0 else apply("add", a, b)


def minus(a: ir.Value, b: ir.Value) -> ir.Value:
    """Return the difference of two int64 values that cannot overflow."""
    x, y = integer_constant(a), integer_constant(b)
    if x is not None and y is not None:
        return ir.constant(x - y)
    return a if y == 0 else ir.constant(0) if a == b else apply("subtract", a, b)


def times(a: ir.Value, b: ir.Value) -> ir.Value:
    """Return the product of two int64 values that cannot overflow."""
    x, y = integer_constant(a), integer_constant(b)
    if x is not None and y is not None:
        return ir.constant(x * y)
    return a if y == 1 else b if x == 1 else apply("multiply", a, b)


def quotient(a: ir.Value, divisor: int) -> ir.Value:
    """Return an int64 divided by a positive constant, rounded down."""
    known = integer_constant(a)
    return ir.constant(known // divisor) if known is not None else apply(
        "floor_divide", a, ir.constant(divisor))


def compare(op: str, a: ir.Value, b: ir.Value) -> ir.Value:
    """Return a comparison: ``less``, ``equal`` and so on."""
    return ir.Apply(op, (a, b), ir.BOOL)


def choose(test: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
    """Return `a` where `test` holds, else `b`."""
    return a if a == b else ir.Apply("where", (test, a, b), ir.dtype_of_value(a))


def either(a: ir.Value, b: ir.Value) -> ir.Value:
    """Return whether one of two bools holds."""
    return ir.Apply("bitwise_or", (a, b), ir.BOOL)


def both(a: ir.Value, b: ir.Value) -> ir.Value:
    """Return whether both of two bools hold."""
    return ir.Apply("bitwise_and", (a, b), ir.BOOL)


def negated(a: ir.Value) -> ir.Value:
    """Return whether a bool does not hold."""
    return ir.Apply("logical_not", (a,), ir.BOOL)


def out_of_bounds(index: ir.Value, extent: ir.Value) -> ir.Value:
    """Return whether an int64 is negative or at least `extent`: one unsigned comparison."""
    return compare("greater_equal", cast(index, np.dtype(np.uint64)), cast(extent, np.dtype(np.uint64)))


def clamp_bounds(low: int, high: int) -> tuple[int, int] | None:
    """Return bounds if they are those of an int64, else None."""
    return (low, high) if low >= INT64_LOW and high <= INT64_HIGH else None
