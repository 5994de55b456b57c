"""Expressions over numbers and elements, as lines of text.

Knows: what Python's expressions do, what names stand for. Must not know: statements.
Receives syntax trees of expressions; writes lines that compute them, and returns values.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from jitla.loops.ahead import SIZE
from jitla.loops.arithmetic import COMPARED
from jitla.loops.calls import CALLS, called
from jitla.loops.elements import ZERO, Elements
from jitla.loops.helpers import DEEPEST, LONGEST_WAY, Helper
from jitla.loops.kinds import INTEGERS, Refused
from jitla.loops.values import Value, number


class Expressions(Elements):
    """Translates expressions; what variables may hold is known of the round before."""

    def test(self, node: ast.expr) -> str:
        """Return the text of the truth of an expression; what need not be computed is not."""
        match node:
            case ast.BoolOp(op=op, values=values):
                self._count += 1
                name = f"t{self._count}"
                self.put(f"{name} = bool_({self.test(values[0])})")
                self.others(name, isinstance(op, ast.And), values[1:])
                return name
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return f"(not {self.test(operand)})"
        return self.truth(self.expression(node))

    def others(self, name: str, both: bool, values: list[ast.expr]) -> None:
        """Compute the rest of ``and`` or ``or``, as far as needed."""
        self.put(f"if {name}:" if both else f"if not {name}:")
        before, since, unsure = dict(self.known), len(self.pending), self.unsure
        self.depth += 1
        self.unsure = True
        test = self.test(values[0])
        self.unsure = unsure
        self.flush(since)
        self.put(f"{name} = bool_({test})")
        if values[1:]:
            self.others(name, both, values[1:])
        self.depth -= 1
        self.leave(before)

    def expression(self, node: ast.expr) -> Value:
        """Translate an expression."""
        match node:
            case ast.Constant(value=bool() | int() | float() as value):
                return number(value)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)) \
                    if type(value) is not bool:
                return number(-value)
            case ast.Name(id=name):
                return self.read(name)
            case ast.BinOp(left=left, op=op, right=right):
                return self.folded(node) or self.operation(op, self.expression(left), right)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return Value(self.fresh(f"not {self.test(operand)}"), frozenset({"bool"}), "b", "", 1, True)
            case ast.UnaryOp(op=op, operand=operand):
                return self.unary(type(op).__name__, self.expression(operand))
            case ast.Compare():
                return self.comparison(node)
            case ast.BoolOp():
                return self.logic(node)
            case ast.IfExp(test=test, body=first, orelse=second):
                return self.choose(
                    self.test(test), lambda: self.expression(first), lambda: self.expression(second))
            case ast.Subscript():
                return self.subscript(node)
            case ast.Call(func=func, args=args):
                return self.call(func, args)
            case ast.Attribute():
                return self.attribute(node)
        raise Refused(f"{type(node).__name__} is no arithmetic of numbers")

    def folded(self, node: ast.BinOp) -> Value | None:
        """Return the value of an operation of two small constants."""
        match node:
            case ast.BinOp(left=ast.Constant(value=a), op=ast.Pow(), right=ast.Constant(value=b)) \
                    if type(a) is type(b) is int and 0 <= a <= 10 and 0 <= b < 60:
                return number(a ** b)
            case ast.BinOp(left=ast.Constant(value=a), op=ast.LShift(), right=ast.Constant(value=b)) \
                    if type(a) is type(b) is int and 0 <= a <= 10 and 0 <= b < 60:
                return number(a << b)
            case ast.BinOp(left=ast.BinOp() as inner, op=ast.Sub(), right=ast.Constant(value=b)) \
                    if type(b) is int:
                made = self.folded(inner)
                if made is not None:
                    return number(int(made.text[6:-1]) - b)
        return None

    def operation(self, op: ast.operator, left: Value, node: ast.expr) -> Value:
        """Do an operation of two operands."""
        name = type(op).__name__
        if name == "Pow" and left.kinds and left.kinds <= INTEGERS:
            if not (isinstance(node, ast.Constant) and node.value in (1, 2, 3, 4)
                    and type(node.value) is int):
                raise Refused("a power of an integer")
            value = left if node.value > 1 else self.binary("Mult", left, number(1))
            for _ in range(node.value - 1):
                value = self.binary("Mult", value, left)
            return value
        return self.binary(name, left, self.expression(node))

    def comparison(self, node: ast.Compare) -> Value:
        """Compare, once or in a chain."""
        left = self.expression(node.left)
        names = [type(op).__name__ for op in node.ops]
        if not set(names) <= COMPARED:
            raise Refused("a question of identity or membership")
        if len(names) == 1:
            right = self.expression(node.comparators[0])
            if self.quick and node in self.needs.compared:
                left, right = self.calm(left), self.calm(right)
            return self.compare(names[0], left, right)
        return self.chain(left, list(zip(names, node.comparators, strict=True)))

    def chain(self, left: Value, rest: list[tuple[str, ast.expr]]) -> Value:
        """Compare in a chain: what comes after the first that does not hold is not computed."""
        (name, node), *others = rest
        right = self.settled(self.copied(node))
        first = self.compare(name, left, right)
        return self.choose(first.text, lambda: self.chain(right, others), lambda: first) if others else first

    def logic(self, node: ast.BoolOp) -> Value:
        """Return the operand that decides."""
        first = self.settled(self.copied(node.values[0]))
        rest = node.values[1:]
        other = rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
        takes = self.truth(first)
        test = takes if isinstance(node.op, ast.Or) else f"not {takes}"
        return self.choose(test, lambda: first, lambda: self.expression(other))

    def copied(self, node: ast.expr) -> Value:
        """Return the value of an expression that outlives what it was read from."""
        value = self.expression(node)
        tag = self.fresh(value.tag) if value.tag else ""
        return replace(value, text=self.fresh(value.text), tag=tag)

    def read(self, name: str) -> Value:
        """Return the value of a variable."""
        if self.within is not None:
            return self.scope[name] if name in self.scope else self.outside(name)
        variable = self.variables.get(name)
        if variable is None:
            if name in self.given:
                what = "an array" if name in self.arrays else self.given[name]
                raise Refused(f"{name} is {what}", element=False)
            return self.outside(name)
        if name not in self.definite:
            self.bail(f"g_{name} == 0", hard=True)
        counts = next((turns.value for turns in reversed(self.turns) if turns.name == name), None)
        if counts is not None:
            return replace(counts, text=f"v_{name}")
        tag = f"g_{name}" if len(variable.kinds) > 1 else ""
        held = variable.held
        if not variable.kinds:
            self.unknown.add(name)
            return Value(ZERO[held], frozenset(), held)
        return Value(
            f"v_{name}", variable.kinds, held, tag, variable.bits, variable.positive, (), variable.span)

    def outside(self, name: str) -> Value:
        """Return what a name is that the nest was not given: a constant of the module."""
        found = self.resolve(name, self.within)
        if type(found) in (int, float, bool):
            return number(found)
        raise Refused(f"{name} is {type(found).__name__}", element=False)

    def attribute(self, node: ast.Attribute) -> Value:
        """Return a length of an array, or a number of a module."""
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=attr) \
                    if name in self.arrays and self.within is None:
                if attr == "size":
                    text = " * ".join(f"d_{name}_{k}" for k in range(self.arrays[name].ndim))
                    return Value(f"({text})", frozenset({"int"}), "i", "", SIZE, True)
                if attr == "ndim":
                    return number(self.arrays[name].ndim)
            case ast.Attribute(value=ast.Name(id=name), attr=attr) \
                    if not self.is_held(name):
                found = self.resolve(f"{name}.{attr}", self.within)
                if type(found) in (int, float, bool):
                    return number(found)
        raise Refused(f"{ast.unparse(node)} is no number", element=False)

    def call(self, func: ast.expr, args: list[ast.expr]) -> Value:
        """Call one of the functions whose results are known."""
        name = ast.unparse(func)
        if self.is_held(name.partition(".")[0]):
            raise Refused(f"{name} is called")
        found = self.resolve(name, self.within)
        if isinstance(found, Helper):
            return self.done_here(found, name, args)
        if found is len and self.within is None:
            match args:
                case [ast.Name(id=array)] if array in self.arrays:
                    return self.length(array, 0)
                case [ast.Name(id=array)] if array in self.given:
                    raise Refused(f"{array} is {self.given[array]}", element=False)
            raise Refused("a length of what is no array", element=False)
        try:
            known = found in CALLS
        except TypeError:
            known = False
        if not known:
            raise Refused(f"a call of {name}", element=False)
        return called(self, found, name, [self.settled(self.expression(arg)) for arg in args])

    def is_held(self, name: str) -> bool:
        """Say whether a name is that of a variable, or of what a nest is given."""
        return name in self.scope if self.within is not None else name in self.variables or name in self.given

    def done_here(self, helper: Helper, name: str, args: list[ast.expr]) -> Value:
        """Do what a function does with numbers, in the statement that calls it."""
        if len(args) != len(helper.names) or any(isinstance(arg, ast.Starred) for arg in args):
            raise Refused(f"a call of {name} with {len(args)} arguments", element=False)
        values = [self.settled(self.expression(arg)) for arg in args]
        outer = self.scope, self.within, self.indexing, self.way
        self.scope, self.within = dict(zip(helper.names, values, strict=True)), helper.function
        self.indexing, self.way = False, [*self.way, 0]
        try:
            if len(self.way) > DEEPEST:
                raise Refused(f"a call of {name}: functions call each other too deep", element=False)
            return self.returned(name, helper.body)
        finally:
            self.scope, self.within, self.indexing, self.way = outer

    def returned(self, name: str, body: Sequence[ast.stmt]) -> Value:
        """Return what statements of a function return; what is behind an ``if`` is done on both ways."""
        for at, node in enumerate(body):
            self.way[-1] += 1
            if self.way[-1] > LONGEST_WAY:
                raise Refused(f"a call of {name}: it has too many ways", element=False)
            match node:
                case ast.Return(value=ast.expr() as value):
                    return self.expression(value)
                case ast.If(test=test, body=first, orelse=second):
                    ways = [partial(self.on_way, name, [*way, *body[at + 1:]]) for way in (first, second)]
                    return self.choose(self.test(test), *ways)
                case ast.Assign(targets=[ast.Name(id=to)], value=value) \
                        | ast.AnnAssign(target=ast.Name(id=to), value=ast.expr() as value):
                    self.scope[to] = self.settled(self.expression(value))
                case ast.AugAssign(target=ast.Name(id=to), op=op, value=value):
                    self.scope[to] = self.settled(self.operation(op, self.read(to), value))
        raise Refused(f"a call of {name}: it may return nothing", element=False)

    def on_way(self, name: str, body: Sequence[ast.stmt]) -> Value:
        """Return what statements return that may not be reached."""
        outer, self.scope = self.scope, dict(self.scope)
        try:
            return self.returned(name, body)
        finally:
            self.scope = outer

    def subscript(self, node: ast.Subscript) -> Value:
        """Read an element, or a length."""
        match node:
            case ast.Subscript(value=ast.Attribute(value=ast.Name(id=name), attr="shape"),
                               slice=ast.Constant(value=axis)) if name in self.arrays:
                if type(axis) is not int or not 0 <= axis < self.arrays[name].ndim:
                    raise Refused("a length that the array does not have")
                return self.length(name, axis)
        return self.steady(node) or self.load(*self.place(node))
