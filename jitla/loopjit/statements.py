"""Translation of statements in loops, rows of arrays included."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from jitla.loopjit.arithmetic import COMPARED
from jitla.loopjit.dataflow import stored_names, update_count_bits
from jitla.loopjit.detect import chain, leaves, reduction
from jitla.loopjit.expressions import ZERO, Expressions
from jitla.loopjit.types import INTEGERS, WIDE, Refused, TypedNumber, Variable, whole

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
                    and node not in self.needs.needed and value.storage in "ds" and value.kinds:
                value = replace(value, text=self.own(f"hidden_{value.storage}({value.text})"))
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

    def rooted(self, node: ast.stmt, value: TypedNumber) -> TypedNumber:
        """Return what a statement assigns; of what is needed for sure the flags are asked for later."""
        return self.without_steps(value) if self.quick and node in self.needs.needed else self.settled(value)

    def stepped(self, node: ast.AugAssign, left: TypedNumber) -> TypedNumber | None:
        """Return what a count becomes: one that begins small does not overflow in years."""
        match node:
            case ast.AugAssign(target=ast.Name(id=name), op=ast.Add() | ast.Sub() as op,
                               value=ast.Constant(value=int() as step)) if 0 < step <= MOST_STEP:
                variable = self.variables[name]
                if variable.base < COUNTED and left.kinds in ({"int"}, {"i8"}):
                    up = isinstance(op, ast.Add)
                    text = self.fresh(f"{left.text} {'+' if up else '-'} int64({step})")
                    beyond = "INF" if up else "(-INF)"  # the other bound is what it is assigned elsewhere
                    return TypedNumber(text, left.kinds, "i", "", COUNTED, left.positive and up, (),
                                       (beyond, beyond), counted=True)
        return None

    def summed(self, node: ast.AugAssign, left: TypedNumber) -> TypedNumber | None:
        """Return what a sum of small integers becomes that has too few turns to overflow."""
        if not isinstance(node.target, ast.Name) or not isinstance(node.op, (ast.Add, ast.Sub)) \
                or self.variables[node.target.id].base >= COUNTED or left.kinds not in ({"int"}, {"i8"}):
            return None
        right = self.expression(node.value)
        name = type(node.op).__name__
        turns = update_count_bits(self.around, node.target.id)
        if turns is None or not right.kinds or right.storage != "i" or right.bits + turns > COUNTED \
                or set(self.pairs(name, left, right).values()) != left.kinds:
            return self.binary(name, left, right)
        up = isinstance(node.op, ast.Add)
        text = self.fresh(f"{left.text} {'+' if up else '-'} {right.text}")
        return TypedNumber(text, left.kinds, "i", "", COUNTED,
                           left.positive and right.positive and up, counted=True)

    def assign_all(self, targets: list[ast.expr], values: list[TypedNumber]) -> None:
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

    def united_with(self, target: ast.expr, value: TypedNumber) -> tuple[str, str]:
        """Return text and code of a value as the variable `target` holds it."""
        if not isinstance(target, ast.Name):
            raise Refused("an attribute or a part of a tuple is assigned")
        variable = self.variables[target.id]
        if not self.turning(target.id):  # it may be left over from another part of the outermost loop
            value = replace(value, span=whole(value.span))
        self.grow(variable, value)
        self.definite.add(target.id)
        if not value.kinds:
            return ZERO[variable.storage], "0"
        return self.united(value, variable.kinds, variable.storage)

    def turning(self, name: str) -> bool:
        """Say whether a variable is the one that the outermost loop counts with, and nothing else."""
        loop = self.nest.loop
        return isinstance(loop, ast.For) and isinstance(loop.target, ast.Name) and name == loop.target.id \
            and list(stored_names(loop)).count(name) == 1

    def assign(self, target: ast.expr, value: TypedNumber) -> None:
        """Assign to a name."""
        self.assign_all([target], [value])

    def grow(self, variable: Variable, value: TypedNumber) -> None:
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
        if len(variable.kinds) < 2 or variable.storage != "d" or variable.kinds & INTEGERS \
                or type(op).__name__ not in COMPARED \
                or isinstance(source, ast.Name) and source.id not in self.definite:
            return False
        a, b = (self.settled(self.copied(each)) for each in (left, right))
        if a.storage != "d" or b.storage != "d" or not a.kinds or not b.kinds:
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


_DONE = {"Add", "Sub", "Mult", "Div"}
_FLOAT = frozenset({"f8"})
_NUMBERS = INTEGERS | {"float", "f8", "f4"}


class Row(NamedTuple):
    """A row or column: its array, and texts of its first position, its step, its length."""

    name: str
    start: str
    step: str
    length: str


# Returns an element of a row, given the text of the number of it.
Each = Callable[[str], TypedNumber]


def _places(node: ast.AST) -> Iterator[tuple[ast.expr, list[ast.expr]]]:
    """Yield all that is indexed in an expression or statement, and by what; not rows that become numbers."""
    if reduction(node):
        return
    if isinstance(node, ast.Subscript):
        array, indices = chain(node)
        yield array, indices
        for index in indices:
            yield from _places(index)
    else:
        for child in ast.iter_child_nodes(node):
            yield from _places(child)


class Rows(Statements):
    """Translates statements that store a row."""

    # Whether what is indexed by less than its axes is a row just now.
    rowing = False

    def do_Assign(self, node: ast.Assign) -> None:
        """Assign to names, elements, or a row."""
        target = node.targets[0]
        if not self.over_rows(node):
            return super().do_Assign(node)
        if len(node.targets) > 1 or not isinstance(target, ast.Subscript):
            raise Refused("a row is assigned with others", element=False)
        self.stored(self.row(target, True), target, None, node.value)

    def do_AugAssign(self, node: ast.AugAssign) -> None:
        """Do an operation in place: of a number, or of each element of a row."""
        if not self.over_rows(node):
            return super().do_AugAssign(node)
        if not isinstance(node.target, ast.Subscript):
            raise Refused("an array is made", element=False)
        self.stored(self.row(node.target, True), node.target, node.op, node.value)

    def over_rows(self, node: ast.AST) -> bool:
        """Say whether a part of a statement is about rows: sliced, or with an index less than axes."""
        return any(any(isinstance(each, ast.Slice) for each in indices)
                   or len(indices) == self._axes(array) - 1 for array, indices in _places(node))

    def _axes(self, node: ast.expr) -> int:
        known = self.arrays.get(node.id) if isinstance(node, ast.Name) else None
        return known.ndim if known is not None else 0

    def place_of(self, node: ast.Subscript) -> tuple[str, list[ast.expr]]:
        """Return array and indices of an element, or of a row, which has a slice of all at its end."""
        array, indices = chain(node)
        if len(indices) != self._axes(array) - 1 or not self.rowing:
            return super().place_of(node)
        assert isinstance(array, ast.Name)
        return array.id, [*indices, ast.Slice()]

    def row(self, node: ast.Subscript, stored: bool = False) -> Row:
        """Return where a row lies, after its indices were checked."""
        if isinstance(node.value, ast.Subscript) and any(
                isinstance(each, ast.Slice) for each in chain(node.value)[1]):
            raise Refused("a slice of a slice", element=False)
        if all(self.over_rows(place) for place in ast.walk(self.nest.loop)
               if isinstance(place, ast.Subscript) and self._axes(chain(place)[0])):
            raise Refused("rows, and no elements", element=False)
        self.rowing = True
        name, indices = self.place_of(node)
        self.rowing = False
        array = self.arrays[name]
        if array.kind != "f8":
            raise Refused(f"a row of {array.kind}", element=False)
        if stored and not array.writeable:
            raise Refused(f"{name} is read-only", element=False)
        axis = next((k for k, each in enumerate(indices) if isinstance(each, ast.Slice)), None)
        if axis is None or sum(isinstance(each, ast.Slice) for each in indices) != 1:
            raise Refused("a slice of several axes", element=False)
        part = indices[axis]
        assert isinstance(part, ast.Slice)
        length = f"d_{name}_{axis}"
        low, high = self.end(part.lower, length, "int64(0)"), self.end(part.upper, length, length)
        values = {k: self.integer(each, " as an index") for k, each in enumerate(indices) if k != axis}
        if stored:
            self.written.add(name)
            if self.quick:
                bounds = {k: self.bounds(value, f"d_{name}_{k}") for k, value in values.items()}
                bounds[axis] = "0.0", f"(float64({length}) - 1.0)"
                self.boxes.setdefault(name, []).append([bounds[k] for k in range(array.ndim)])
        places = [f"{self.index(value, f'd_{name}_{k}')} * {self.stride(name, k)}"
                  for k, value in values.items()]
        step = self.stride(name, axis)
        start = self.fresh(" + ".join([*places, f"{low} * {step}"]))
        return Row(name, start, f"int64({step})", self.fresh(f"max(int64(0), {high} - {low})"))

    def end(self, node: ast.expr | None, length: str, default: str) -> str:
        """Return where a slice begins or ends: what is beyond the array is its end."""
        if node is None:
            return default
        value = self.integer(node, " in a slice")
        inside = f"min({value.text}, {length})"
        if value.positive:
            return self.fresh(inside)
        return self.fresh(f"max(int64(0), {value.text} + {length}) if {value.text} < 0 else {inside}")

    def stored(self, row: Row, target: ast.Subscript, op: ast.operator | None, node: ast.expr) -> None:
        """Store what an expression makes of each element; where NumPy would complain nothing is stored."""
        rows: list[Row] = []
        made = self.each(node, rows)
        if op is not None:
            if type(op).__name__ not in _DONE:
                raise Refused(f"{type(op).__name__} of rows", element=False)
            made = self.paired(type(op).__name__, lambda y: self.load(row.name, _at(row, y)), made)
        for other in rows:
            self.bail(f"{other.length} != {row.length}", hard=True)
            places = ", ".join(f"where(p_{each.name}) + int64(8) * {each.start}, {each.step}"
                               for each in (row, other))
            self.bail(f"tangled({places}, {row.length})", hard=True)
        if op is not None or not rows:  # elements that lie at one place are one after the other
            self.bail(f"{row.step} == 0", hard=True)
        self.flush()
        if not self.quick and (op is not None or isinstance(node, (ast.BinOp, ast.UnaryOp))):
            self.through(row, made, False)
        self.through(row, made, True)
        self.forget("p_")

    def through(self, row: Row, made: Each, stores: bool) -> None:
        """Write the loop that computes each element; it stores them, or looks what is wrong first."""
        self._count += 1
        y, before, unsure = f"y{self._count}", dict(self.known), self.unsure
        self.put(f"for {y} in range({row.length}):")
        self.depth += 1
        self.known, self.unsure = {}, False
        value = made(y)
        text = self.own(value.text)
        if not stores:
            self.settled(value)
            self.flush()
        elif self.quick:
            self.settled(value)
        if stores:
            self.pending.clear()
            self.put(f"p_{row.name}[{_at(row, y)}] = float64({text})")
        self.depth -= 1
        self.known, self.unsure = before, unsure

    def each(self, node: ast.expr, rows: list[Row]) -> Each:
        """Return what makes an element of an expression; note rows that it reads, compute numbers once."""
        if not self.over_rows(node):
            return self.number_in(node)
        match node:
            case ast.Subscript():
                row = self.row(node)
                rows.append(row)
                return lambda y: self.load(row.name, _at(row, y))
            case ast.BinOp(left=left, op=op, right=right) if type(op).__name__ in _DONE:
                first = self.each(left, rows)
                return self.paired(type(op).__name__, first, self.each(right, rows))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                one = self.each(operand, rows)
                return lambda y: self.unary("USub", one(y))
        raise Refused(f"{ast.unparse(node)} of rows", element=False)

    def number_in(self, node: ast.expr) -> Each:
        """Return what makes an element of a number: itself, as NumPy takes it among elements."""
        value = self.settled(self.copied(node))
        if not value.kinds <= _NUMBERS:
            raise Refused("a value that is no number among rows", element=False)
        if self.quick and value.storage in "ds":
            self.see(value)  # there may be no element that needs it
        text = self.converted(value, "d") if value.storage == "i" else value.text
        found = TypedNumber(self.own(f"float64({text})"), _FLOAT, "d")
        return lambda y: found

    def paired(self, name: str, left: Each, right: Each) -> Each:
        """Return what makes an element of an operation of two."""
        def operation(y: str) -> TypedNumber:
            a, b = left(y), right(y)
            if name == "Div":  # of what became infinite a ratio does not tell
                b = self.settled(b)
            return self.step(name, a, b, {("f8", "f8"): "f8"}, (a.text, b.text, "d"))
        return operation


def _at(row: Row, y: str) -> str:
    return f"{row.start} + {y} * {row.step}"
