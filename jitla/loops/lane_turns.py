"""The text of what a loop over slices does in its lanes, turn by turn.

Knows: lanes, which names are integers. Must not know: what is asked before, how all of it is undone.
Receives the lanes of a loop; writes lines.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from math import isfinite

from jitla.loops.kinds import Refused
from jitla.loops.lanes import COMPARISONS, Lanes, Place, whole
from jitla.loops.values import EXACT

# Lanes that are gone through together: what one waits for does not hold up the others.
ABREAST = 2
_LOUD = {ast.Add: "loud_add", ast.Sub: "loud_sub", ast.Mult: "loud_mul", ast.Div: "loud_div"}
_SIGNS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}
_COUNTED = 40  # bits of lengths


class LaneTurns:
    """Writes turns; arrays and numbers are as they were given."""

    def __init__(self, lanes: Lanes, line: int, integers: dict[str, int], boxes: dict[str, int]) -> None:
        self.lanes = lanes
        self.line = line
        # Of names that are given as integers, the bits; of arrays, the axes.
        self.integers = integers
        self.boxes = boxes
        self.target = lanes.target
        # Names that may hold integers at times.
        self.unsure = lanes.carried & {*integers}
        # Arrays cut in some way, by number: where their lanes begin.
        self.ways: dict[tuple[str, tuple[tuple[int, int | None], ...]], int] = {}
        self.lines: list[str] = []
        self.depth = 1

    def put(self, line: str) -> None:
        """Write a line."""
        self.lines.append("    " * self.depth + line)

    def taken(self) -> list[str]:
        """Return what was written, and forget it."""
        made, self.lines, self.depth = self.lines, [], 1
        return made

    def stride(self, name: str, axis: int) -> str:
        """Return how many elements it is to the next along an axis."""
        raise NotImplementedError

    # -- integers ----------------------------------------------------------------------------------

    def counted(self, node: ast.expr) -> tuple[str, int]:
        """Return the text of an integer, and how many bits it has at most."""
        match node:
            case ast.BinOp(left=left, op=op, right=right):
                (a, m), (b, n) = self.counted(left), self.counted(right)
                bits = m + n if isinstance(op, ast.Mult) else max(m, n) + 1
                if bits > EXACT:
                    raise Refused("an integer of too many bits", self.line, element=False)
                return f"({a} {_SIGNS[type(op)]} {b})", bits
            case ast.UnaryOp(operand=operand):
                text, bits = self.counted(operand)
                return f"(-{text})", bits
            case ast.Constant(value=int() as number):
                if number.bit_length() > _COUNTED:
                    raise Refused("an integer of too many bits", self.line, element=False)
                return f"int64({number})", number.bit_length()
            case ast.Subscript(value=ast.Attribute(value=ast.Name(id=name)),
                               slice=ast.Constant(value=int() as axis)) \
                    if 0 <= axis < self.boxes.get(name, 0):
                return f"d_{name}_{axis}", _COUNTED
            case ast.Name(id=name) if name == self.target:
                return "c1", _COUNTED
            case ast.Name(id=name) if name in self.integers:
                return f"v_{name}", self.integers[name]
        raise Refused(f"{ast.unparse(node)} is no integer that is known", self.line, element=False)

    def is_counted(self, node: ast.expr) -> bool:
        """Say whether an expression is made of integers only, none of them assigned in the loop."""
        match node:
            case ast.BinOp(left=left, op=op, right=right):
                return type(op) in _SIGNS and self.is_counted(left) and self.is_counted(right)
            case ast.UnaryOp(operand=operand):
                return self.is_counted(operand)
            case ast.Constant(value=number):
                return type(number) is int
            case ast.Name(id=name):
                return name == self.target or name in self.integers and name not in self.lanes.names
        return False

    def test(self, node: ast.expr) -> str:
        """Return the text of a question."""
        match node:
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return f"{self.counted(left)[0]} {COMPARISONS[type(op)]} {self.counted(right)[0]}"
            case ast.BoolOp(op=op, values=values):
                word = " and " if isinstance(op, ast.And) else " or "
                return word.join(f"({self.test(each)})" for each in values)
            case ast.UnaryOp(operand=operand):
                return f"not ({self.test(operand)})"
        raise Refused(f"{ast.unparse(node)} is asked", self.line, element=False)

    def turns(self, block: Callable[[], None]) -> None:
        """Write the loop over turns around a block."""
        args = self.lanes.turn.iter.args  # type: ignore[attr-defined]
        texts = [self.counted(arg)[0] for arg in args]
        if len(args) == 3 and whole(args[2]) in (1, -1):
            texts[2] = str(whole(args[2]))
        self.put(f"for c1 in range({', '.join(texts)}):")
        self.depth += 1
        self.put("pass")
        block()
        self.depth -= 1

    def choice(self, node: ast.If, block: Callable[[list[ast.stmt]], None]) -> None:
        """Write a branch that is the same in all lanes."""
        self.put(f"if {self.test(node.test)}:")
        for body in (node.body, node.orelse):
            self.depth += 1
            self.put("pass")
            block(body)
            self.depth -= 1
            if body is node.body:
                self.put("else:")

    # -- lanes -------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Find the names that may hold integers at times: Python's have no bounds, nor a zero below zero."""
        before = None
        while before != self.unsure:
            before = set(self.unsure)
            for node in ast.walk(self.lanes.turn):
                match node:
                    case ast.Assign(targets=targets, value=value) if not self.is_float(value):
                        self.unsure |= {each.id for each in targets if isinstance(each, ast.Name)}

    def is_float(self, node: ast.expr) -> bool:
        """Say whether an expression is a float, whichever turn it is."""
        match node:
            case ast.BinOp(left=left, op=op, right=right):
                return isinstance(op, ast.Div) or self.is_float(left) or self.is_float(right)
            case ast.UnaryOp(operand=operand):
                return self.is_float(operand)
            case ast.Constant(value=number):
                return type(number) is float
            case ast.Name(id=name):
                return name not in self.unsure and name not in self.integers and name != self.target
        return True

    def quick(self) -> list[str]:
        """Return the lines that do the lanes from `low` to `high`, and note whether anything was odd."""
        self.put("seen = int64(0)")
        for place in self.lanes.places.values():
            self.ways.setdefault((place.name, place.cuts), len(self.ways))
        for name in sorted(self.lanes.bare & {*self.boxes}):
            self.ways.setdefault((name, ()), len(self.ways))
        last = self.lanes.axes - 1
        for axis in range(last):
            self.put(f"for i{axis} in range({f'n{axis}' if axis else 'low, high'}):")
            self.depth += 1
        for (name, cuts), number in self.ways.items():
            firsts = [cut[0] for cut in cuts] or [0] * self.lanes.axes
            steps = [f"(i{axis} + int64({firsts[axis]})) * {self.stride(name, axis)}" for axis in range(last)]
            steps.append(f"int64({firsts[last]}) * {self.stride(name, last)}")
            self.put(f"w{number} = {' + '.join(steps)}")
        first, end = ("int64(0)", f"n{last}") if last else ("low", "high")
        self.put(f"whole = {end} - ({end} - {first}) % int64({ABREAST})")
        for count, bounds in ((ABREAST, f"{first}, whole, {ABREAST}"), (1, f"whole, {end}")):
            self.put(f"for i{last} in range({bounds}):")
            self.depth += 1
            self.lane(count)
            self.depth -= 1
        self.depth = 1
        self.put("if rare(raised(seen)): return int64(1)")
        self.put("return int64(0)")
        return self.taken()

    def lane(self, count: int) -> None:
        """Write what some lanes do that lie side by side."""
        last = self.lanes.axes - 1
        for number, (name, _) in enumerate(self.ways):
            for lane in range(count):
                place = f"(i{last} + int64({lane})) * {self.stride(name, last)}"
                self.put(f"o{number}_{lane} = w{number} + {place}")
        for name in sorted(self.lanes.names):
            for lane in range(count):
                self.put(f"x{lane}_{name} = {self.begun(name, lane)}")
        self.turns(lambda: self.block(self.lanes.turn.body, count))

    def begun(self, name: str, lane: int) -> str:
        """Return what a name holds before the first turn."""
        if name not in self.lanes.carried:
            return "float64(0.0)"
        return self.element(Place(name, (), None), lane) if name in self.boxes else f"float64(v_{name})"

    def block(self, body: list[ast.stmt], count: int) -> None:
        """Write statements, each for some lanes."""
        for place, node in enumerate(body):
            if isinstance(node, ast.If):
                self.choice(node, lambda inner: self.block(inner, count))
            elif isinstance(node, (ast.Assign, ast.AugAssign)):
                needed = {name for target in _targets(node) if isinstance(target, ast.Name)
                          for name in (target.id,) if not _needed(body[place + 1:], name)}
                for lane in range(count):
                    self.statement(node, lane, needed)

    def statement(self, node: ast.Assign | ast.AugAssign, lane: int, noted: set[str]) -> None:
        """Write a statement for one lane; what may not be needed is noted, so that it is computed."""
        if isinstance(node, ast.AugAssign):
            value = self.operation(node.op, node.target, node.value, lane)
        else:
            value = self.value(node.value, lane)
        self.put(f"y{lane} = {value}")
        for target in _targets(node):
            if isinstance(target, ast.Subscript):
                self.put(f"{self.element(self.lanes.places[target], lane)} = y{lane}")
            elif isinstance(target, ast.Name):
                self.put(f"x{lane}_{target.id} = y{lane}")
        if noted:
            self.put(f"seen = seen | bits_d(y{lane})")

    def element(self, place: Place, lane: int) -> str:
        """Return the text of an element."""
        start = f"o{self.ways[place.name, place.cuts]}_{lane}"
        if place.index is None:
            return f"p_{place.name}[{start}]"
        constant, axis = whole(place.index), self.lanes.axes
        index = self.counted(place.index)[0]
        if constant is not None and constant < 0:
            index = f"(d_{place.name}_{axis} - int64({-constant}))"
        return f"p_{place.name}[{start} + {index} * {self.stride(place.name, axis)}]"

    def value(self, node: ast.expr, lane: int) -> str:
        """Return the text of a value in one lane."""
        if self.is_counted(node):
            return f"float64({self.counted(node)[0]})"
        match node:
            case ast.BinOp(left=left, op=op, right=right):
                return self.operation(op, left, right, lane)
            case ast.UnaryOp(operand=operand):
                if not self.is_float(operand):
                    raise Refused("the negative of an integer", self.line, element=False)
                return f"(-{self.value(operand, lane)})"
            case ast.Constant(value=float() as number) if isfinite(number):
                return f"float64({number!r})"
            case ast.Subscript():
                return self.element(self.lanes.places[node], lane)
            case ast.Name(id=name) if name in self.lanes.names:
                return f"x{lane}_{name}"
            case ast.Name(id=name):
                return self.element(Place(name, (), None), lane) if name in self.boxes else f"v_{name}"
        raise Refused(f"{ast.unparse(node)} in a loop over slices", self.line, element=False)

    def operation(self, op: ast.operator, left: ast.expr, right: ast.expr, lane: int) -> str:
        """Return the text of an operation; integers that the loop assigns are no numbers of their own."""
        if not self.is_float(left) and not self.is_float(right) \
                and not (isinstance(op, ast.Div) and self.is_counted(left) and self.is_counted(right)):
            raise Refused("an operation of integers", self.line, element=False)
        return f"{_LOUD[type(op)]}({self.value(left, lane)}, {self.value(right, lane)})"


def _targets(node: ast.Assign | ast.AugAssign) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target]


def _needed(rest: list[ast.stmt], name: str) -> bool:
    """Say whether a value of that name is needed by one of the next statements, whatever is asked."""
    for node in rest:
        if isinstance(node, ast.If):
            if any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(node)):
                return False
        elif isinstance(node, (ast.Assign, ast.AugAssign)):
            if any(isinstance(part, ast.Name) and part.id == name
                   and (isinstance(part.ctx, ast.Load) or isinstance(node, ast.AugAssign))
                   for part in ast.walk(node)):
                return True
            if any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(node)):
                return False
    return False
