"""Checks of bounds in loops, made once before the loop where indices are linear in its variable.

A check that leaves the iteration to Python may be made earlier than the access: the iteration is undone, and
done by Python, in any case. A loop that may be left keeps its checks, as it may end before the index is
reached.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from jitla.loopir import assigned_in, may_leave
from jitla.loopir import program as ir
from jitla.loopjit.builder import (
    apply,
    compare,
    integer_constant,
    minus,
    out_of_bounds,
    plus,
    times,
)

#: A linear index: what is multiplied with the loop variable, and the rest.
Linear = tuple[int, ir.Value]
_UINT64 = np.dtype(np.uint64)
Body = tuple[ir.Statement, ...]


def hoist_checks(body: Body) -> Body:
    """Return statements with checks of bounds moved before the loops that they are in."""
    moved: list[ir.Statement] = []
    for statement in body:
        match statement:
            case ir.For():
                inner = hoist_checks(statement.body)
                before, inner = _split(statement, inner)
                if before:
                    op = "less" if statement.step > 0 else "greater"
                    moved.append(ir.If(compare(op, statement.begin, statement.end),
                                       tuple(dict.fromkeys(before))))
                moved.append(replace(statement, body=inner))
            case ir.Repeat() | ir.Block():
                moved.append(replace(statement, body=hoist_checks(statement.body)))
            case ir.If():
                moved.append(replace(statement, then=hoist_checks(statement.then),
                                     otherwise=hoist_checks(statement.otherwise)))
            case _:
                moved.append(statement)
    return tuple(moved)


def _split(loop: ir.For, body: Body) -> tuple[list[ir.Statement], Body]:
    """Return the checks that are made before a loop, and its body without them."""
    if may_leave(body, loop.label) or not (_is_simple(loop.begin) and _is_simple(loop.end)):
        return [], body
    changed = assigned_in(body) | {loop.name}
    scope = _Scope(loop.name, changed)
    before: list[ir.Statement] = []
    kept: list[ir.Statement] = []
    for statement in body:
        found = scope.bounds_of(statement) if isinstance(statement, ir.Check) else None
        if found is None:
            kept.append(statement)
            scope.note(statement)
            continue
        assert isinstance(statement, ir.Check)
        (factor, rest), size = found
        for at in dict.fromkeys((loop.begin, _last(loop)) if factor else (loop.begin,)):
            index = plus(times(at, ir.constant(factor)), rest) if factor else rest
            before.append(ir.Check(out_of_bounds(index, size), statement.exit))
    return before, tuple(kept)


def _is_simple(value: ir.Value) -> bool:
    """Return whether an end of a loop may be computed again."""
    return isinstance(value, (ir.Read, ir.Number, ir.Extent))


def _last(loop: ir.For) -> ir.Value:
    """Return the last value of the variable of a loop that has iterations."""
    if loop.step in (1, -1):
        return minus(loop.end, ir.constant(loop.step))
    span = minus(loop.end, loop.begin) if loop.step > 0 else minus(loop.begin, loop.end)
    steps = apply("floor_divide", minus(span, ir.constant(1)), ir.constant(abs(loop.step)))
    return plus(loop.begin, times(steps, ir.constant(loop.step)))


class _Scope:
    """The scalars of the body of a loop, as linear functions of its variable."""

    def __init__(self, variable: str, changed: frozenset[str]) -> None:
        self._changed = changed
        self._known: dict[str, Linear] = {variable: (1, ir.constant(0))}

    def note(self, statement: ir.Statement) -> None:
        """Follow a statement of the body: an assignment may make a variable linear, others make it unknown.
        """
        linear = self.linear(statement.value) if isinstance(statement, ir.Assign) else None
        for name in assigned_in((statement,)):
            self._known.pop(name, None)
        if linear is not None and isinstance(statement, ir.Assign):
            self._known[statement.name] = linear

    def bounds_of(self, check: ir.Check) -> tuple[Linear, ir.Value] | None:
        """Return index and size of a check of bounds, if both can be computed before the loop."""
        match check.test:
            case ir.Apply("greater_equal", (ir.Apply("cast", (index,), a), ir.Apply("cast", (size,), c))) \
                    if a == c == _UINT64 and self._is_invariant(size):
                linear = self.linear(index)
                return None if linear is None else (linear, size)
            case ir.Apply("greater_equal", (ir.Number(_, bits), ir.Apply("cast", (size,), c))) \
                    if c == _UINT64 and self._is_invariant(size):
                return (0, ir.Number(ir.INT64, bits)), size
        return None

    def linear(self, value: ir.Value) -> Linear | None:
        """Return an int64 as a linear function of the variable of the loop."""
        match value:
            case ir.Read(name, dtype) if name in self._known and dtype == ir.INT64:
                return self._known[name]
            case ir.Apply("add" | "subtract" as op, (x, y), dtype) if dtype == ir.INT64:
                a, c = self.linear(x), self.linear(y)
                if a is None or c is None:
                    return None
                combine: Callable[[ir.Value, ir.Value], ir.Value] = plus if op == "add" else minus
                return a[0] + c[0] if op == "add" else a[0] - c[0], combine(a[1], c[1])
            case ir.Apply("multiply", (x, y), dtype) if dtype == ir.INT64:
                for one, other in ((x, y), (y, x)):
                    factor, linear = integer_constant(other), self.linear(one)
                    if factor is not None and linear is not None and abs(factor) < 1 << 16:
                        return linear[0] * factor, times(linear[1], other)
        return (0, value) if self._is_invariant(value) and ir.dtype_of_value(value) == ir.INT64 else None

    def _is_invariant(self, value: ir.Value) -> bool:
        """Return whether a value is the same in all iterations, and can be computed before the loop."""
        match value:
            case ir.Number():
                return True
            case ir.Read(name):
                return name not in self._changed
            case ir.Extent(view):
                return view not in self._changed
            case ir.Apply("add" | "subtract" | "multiply" | "minimum" | "maximum", args):
                return all(map(self._is_invariant, args))
        return False
