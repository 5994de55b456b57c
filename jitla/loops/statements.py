"""Statements but loops, as lines of text.

Knows: what Python's assignments and branches do. Must not know: loops, rounds.
Receives syntax trees of statements; writes lines, and notes what variables may hold.
"""

from __future__ import annotations

import ast
from dataclasses import replace

from jitla.loops.again import stored_names, turns_since
from jitla.loops.arithmetic import COMPARED
from jitla.loops.elements import ZERO
from jitla.loops.expressions import Expressions
from jitla.loops.given import Variable
from jitla.loops.kinds import INTEGERS, Refused
from jitla.loops.nests import leaves
from jitla.loops.values import WIDE, Value, whole

# Bits that integers have at most that are only counted up or down by so much, and begin with fewer.
COUNTED, MOST_STEP = WIDE - 1, 16
PATIENCE = 4  # rounds after which the bits of a variable that still grows are not followed


class Statements(Expressions):
    """Translates statements."""

    def statement(self, node: ast.stmt) -> None:
        """Translate a statement."""
        self.label = self.nest.labels[node]
        try:
            method = getattr(self, f"do_{type(node).__name__}")
            method(node)
        except Refused as refused:
            refused.line = refused.line or node.lineno
            raise

    def block(self, body: list[ast.stmt], aside: bool = False) -> None:
        """Translate statements one step further in; `aside` if only one of two blocks is done."""
        self.depth += 1
        start, before, unsure = len(self.lines), dict(self.known), self.unsure
        self.unsure = unsure or aside
        for each in body:
            self.statement(each)
        if len(self.lines) == start:
            self.put("pass")
        self.depth -= 1
        self.unsure = unsure
        self.leave(before)

    def do_Pass(self, node: ast.Pass) -> None:
        """Do nothing."""

    def do_Expr(self, node: ast.Expr) -> None:
        """Do nothing: it is a constant."""

    def do_Break(self, node: ast.Break) -> None:
        """Leave a loop."""
        self.put("break")

    def do_Continue(self, node: ast.Continue) -> None:
        """Go on with a loop."""
        self.put("continue")

    def do_Return(self, node: ast.stmt) -> None:
        """Let the interpreter go on here."""
        if self.quick:
            self.put(f"if rare(raised(seen)): {self.leaving}")
        self.put(f"return @{self.label}@")

    do_Raise = do_Return

    def do_Assign(self, node: ast.Assign) -> None:
        """Assign to names and elements."""
        targets = node.targets
        if len(targets) == 1 and isinstance(targets[0], ast.Tuple):
            values = node.value.elts if isinstance(node.value, ast.Tuple) else []
            if len(values) != len(targets[0].elts):
                raise Refused("a value is taken apart")
            self.assign_all(targets[0].elts, [self.settled(self.copied(value)) for value in values])
            return
        value = self.rooted(node, self.expression(node.value))
        match targets:
            case [ast.Name(id=name)] if self.quick and name in self.needs.extremes \
                    and node not in self.needs.needed and value.held in "ds" and value.kinds:
                value = replace(value, text=self.own(f"hidden_{value.held}({value.text})"))
        if len(targets) > 1:
            value = replace(value, text=self.fresh(value.text))
        self.assign_all(targets, [value] * len(targets))

    def do_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Assign to a name; what its annotation says is nothing to Python."""
        assert node.value is not None
        self.assign_all([node.target], [self.settled(self.expression(node.value))])

    def do_AugAssign(self, node: ast.AugAssign) -> None:
        """Do an operation in place: of numbers it makes new ones."""
        if isinstance(node.target, ast.Name):
            left = self.read(node.target.id)
            store = None
        elif isinstance(node.target, ast.Subscript):
            name, place = self.place(node.target, stored=True)
            left = self.load(name, place)
            store = name, place
        else:
            raise Refused("an attribute is assigned")
        value = self.stepped(node, left) or self.rooted(
            node, self.summed(node, left) or self.operation(node.op, left, node.value))
        if store is None:
            self.assign(node.target, value)
        else:
            self.store(*store, value)

    def rooted(self, node: ast.stmt, value: Value) -> Value:
        """Return what a statement assigns; of what is needed for sure the flags are asked for later."""
        return self.calm(value) if self.quick and node in self.needs.needed else self.settled(value)

    def stepped(self, node: ast.AugAssign, left: Value) -> Value | None:
        """Return what a count becomes: one that begins small does not overflow in years."""
        match node:
            case ast.AugAssign(target=ast.Name(id=name), op=ast.Add() | ast.Sub() as op,
                               value=ast.Constant(value=int() as step)) if 0 < step <= MOST_STEP:
                variable = self.variables[name]
                if variable.base < COUNTED and left.kinds in ({"int"}, {"i8"}):
                    up = isinstance(op, ast.Add)
                    text = self.fresh(f"{left.text} {'+' if up else '-'} int64({step})")
                    beyond = "INF" if up else "(-INF)"  # the other bound is what it is assigned elsewhere
                    return Value(text, left.kinds, "i", "", COUNTED, left.positive and up, (),
                                 (beyond, beyond), counted=True)
        return None

    def summed(self, node: ast.AugAssign, left: Value) -> Value | None:
        """Return what a sum of small integers becomes that has too few turns to overflow."""
        if not isinstance(node.target, ast.Name) or not isinstance(node.op, (ast.Add, ast.Sub)) \
                or self.variables[node.target.id].base >= COUNTED or left.kinds not in ({"int"}, {"i8"}):
            return None
        right = self.expression(node.value)
        name = type(node.op).__name__
        turns = turns_since(self.around, node.target.id)
        if turns is None or not right.kinds or right.held != "i" or right.bits + turns > COUNTED \
                or set(self.pairs(name, left, right).values()) != left.kinds:
            return self.binary(name, left, right)
        up = isinstance(node.op, ast.Add)
        text = self.fresh(f"{left.text} {'+' if up else '-'} {right.text}")
        return Value(text, left.kinds, "i", "", COUNTED,
                     left.positive and right.positive and up, counted=True)

    def assign_all(self, targets: list[ast.expr], values: list[Value]) -> None:
        """Assign to several targets, once nothing can fail any more."""
        names = {target.id for target in targets if isinstance(target, ast.Name)}
        places: list[tuple[str, str] | None] = []
        for target in targets:
            if not isinstance(target, ast.Subscript):
                places.append(None)
                continue
            used = {n.id for n in ast.walk(target) if isinstance(n, ast.Name)}
            if used & names:
                raise Refused("an index is assigned by the statement that uses it")
            places.append(self.place(target, stored=True))
        texts = [self.united_with(target, value) if place is None else (self.element(place[0], value), "")
                 for target, place, value in zip(targets, places, values, strict=True)]
        self.flush()
        for target, place, (text, code) in zip(targets, places, texts, strict=True):
            if place is not None:
                self.put(f"p_{place[0]}[{place[1]}] = {text}")
                self.forget("p_")
            else:
                assert isinstance(target, ast.Name)
                self.put(f"v_{target.id} = {text}")
                self.put(f"g_{target.id} = int64({code})")
                self.forget(f"_{target.id}")

    def united_with(self, target: ast.expr, value: Value) -> tuple[str, str]:
        """Return text and code of a value as the variable `target` holds it."""
        if not isinstance(target, ast.Name):
            raise Refused("an attribute or a part of a tuple is assigned")
        variable = self.variables[target.id]
        if not self.turning(target.id):  # it may be left over from another part of the outermost loop
            value = replace(value, span=whole(value.span))
        self.grow(variable, value)
        self.definite.add(target.id)
        if not value.kinds:
            return ZERO[variable.held], "0"
        return self.united(value, variable.kinds, variable.held)

    def turning(self, name: str) -> bool:
        """Say whether a variable is the one that the outermost loop counts with, and nothing else."""
        loop = self.nest.loop
        return isinstance(loop, ast.For) and isinstance(loop.target, ast.Name) and name == loop.target.id \
            and list(stored_names(loop)).count(name) == 1

    def assign(self, target: ast.expr, value: Value) -> None:
        """Assign to a name."""
        self.assign_all([target], [value])

    def grow(self, variable: Variable, value: Value) -> None:
        """Note that a variable may hold `value`, too."""
        before = variable.kinds, variable.bits, variable.positive, variable.base
        if not value.counted:
            variable.base = max(variable.base, value.bits)
        variable.kinds |= value.kinds
        if value.kinds:
            if value.bits > variable.bits:
                variable.bits = value.bits if self.rounds <= PATIENCE else WIDE
            variable.positive = variable.positive and value.positive
            if variable.spans is not None:
                variable.spans.add(value.span)
        self.changed = self.changed or before != (
            variable.kinds, variable.bits, variable.positive, variable.base)

    def do_If(self, node: ast.If) -> None:
        """Do one of two blocks."""
        if self.quick and self.parted(node):
            return
        test = self.test(node.test)
        self.flush()
        self.put(f"if {test}:")
        before = set(self.definite)
        self.block(node.body, True)
        first, self.definite = self.definite, before
        if node.orelse:
            self.put("else:")
            self.block(node.orelse, True)
        if leaves(node.body):
            return
        self.definite = first if leaves(node.orelse) else self.definite & first

    def parted(self, node: ast.If) -> bool:
        """Assign a float that is of several kinds where a comparison holds: the kind by one of its own.

        Else compilers compute both by what was compared, where one instruction takes the larger number.
        """
        match node:
            case ast.If(test=ast.Compare(left=left, ops=[op], comparators=[right]), orelse=[],
                        body=[ast.Assign(targets=[ast.Name(id=name) as target],
                                         value=ast.Name() | ast.Constant() as source)]):
                variable = self.variables[name]
            case _:
                return False
        if len(variable.kinds) < 2 or variable.held != "d" or variable.kinds & INTEGERS \
                or type(op).__name__ not in COMPARED \
                or isinstance(source, ast.Name) and source.id not in self.definite:
            return False
        a, b = (self.settled(self.copied(each)) for each in (left, right))
        if a.held != "d" or b.held != "d" or not a.kinds or not b.kinds:
            return False
        test = self.compare(type(op).__name__, a, b).text
        same = self.compare(type(op).__name__, replace(a, text=self.own(f"hidden_d({a.text})")), b).text
        definite = set(self.definite)
        text, code = self.united_with(target, self.settled(self.expression(source)))
        code = self.own(f"int64({code})")
        self.flush()
        self.put(f"if {test}: v_{name} = {text}")
        self.put(f"if {same}: g_{name} = {code}")
        self.forget(f"_{name}")
        self.definite = definite
        return True
