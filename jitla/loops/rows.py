"""Statements over one row or column of an array, as loops in the text of the nest around them.

Knows: slices, that NumPy does one operation after the other over all elements. Must not know: loops around.
Receives syntax trees of statements; writes lines.

Only additions, subtractions, products and quotients of float64 are done here: each element is computed as
NumPy does it, in any order.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import NamedTuple

from jitla.loops.kinds import INTEGERS, Refused
from jitla.loops.names import chain
from jitla.loops.nests import reduction
from jitla.loops.statements import Statements
from jitla.loops.values import Value

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
Each = Callable[[str], Value]


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
        if self.quick and value.held in "ds":
            self.see(value)  # there may be no element that needs it
        text = self.held(value, "d") if value.held == "i" else value.text
        found = Value(self.own(f"float64({text})"), _FLOAT, "d")
        return lambda y: found

    def paired(self, name: str, left: Each, right: Each) -> Each:
        """Return what makes an element of an operation of two."""
        def made(y: str) -> Value:
            a, b = left(y), right(y)
            if name == "Div":  # of what became infinite a ratio does not tell
                b = self.settled(b)
            return self.step(name, a, b, {("f8", "f8"): "f8"}, (a.text, b.text, "d"))
        return made


def _at(row: Row, y: str) -> str:
    return f"{row.start} + {y} * {row.step}"
