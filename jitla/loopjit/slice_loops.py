"""Loops over slices of arrays: lanes that run independently, in several threads."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from math import isfinite
from struct import Struct
from typing import Any

from jitla.loopjit.detect import COMPARISONS, DetectedNest, LaneLoop, LaneSubscript, whole
from jitla.loopjit.translator import LoopKernel, lengths
from jitla.loopjit.types import CODES, EXACT, Array, Given, Refused, Scalar, Variable, variable

# Parts that lanes are cut into: some more than threads, as these are not equally fast. Of lanes that lie side
# by side a part has some.
PARTS, BESIDE = 16, 16
# Statements of a turn in one lane that take a microsecond; microseconds that are worth cutting; those that a
# job can say.
STATEMENTS, WORTH, MOST = 1000, 50, (1 << 21) - 1


def shares(lanes: LaneLoop, box: Sequence[str], parameters: str) -> list[str]:
    """Return the lines that have `quick` done by all threads, and ask whether processors noted anything."""
    count = sum(isinstance(node, (ast.Assign, ast.AugAssign)) for node in ast.walk(lanes.turn))
    least = 1 if lanes.axes > 1 else BESIDE
    return [
        f"cost = min(({' * '.join(box)}) * int64({count}) // int64({STATEMENTS}), int64({MOST}))",
        f"grain = max(n0 // int64({PARTS}), int64({least})) if cost > int64({WORTH}) else n0",
        f"shared(quick, n0, grain, cost, {parameters})",
        "odd = rare(raised(int64(0)))",
    ]


def extent(name: str, axis: int, cut: tuple[int, int | None]) -> str:
    """Return the text of how many places a cut leaves of an axis."""
    first, last = cut
    if last is not None and last >= 0:
        return f"int64({last - first})"
    return f"(d_{name}_{axis} - int64({first - (last or 0)}))"


# Lanes that are gone through together: what one waits for does not hold up the others.
ABREAST = 2
_LOUD = {ast.Add: "loud_add", ast.Sub: "loud_sub", ast.Mult: "loud_mul", ast.Div: "loud_div"}
_SIGNS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}
_COUNTED = 40  # bits of lengths


class LaneLoopWriter:
    """Writes the loop around the lanes; arrays and numbers are as they were given."""

    def __init__(self, lanes: LaneLoop, line: int, integers: dict[str, int], boxes: dict[str, int]) -> None:
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

    def iterate(self, block: Callable[[], None]) -> None:
        """Write the loop over iterations around a block."""
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
        self.iterate(lambda: self.block(self.lanes.turn.body, count))

    def begun(self, name: str, lane: int) -> str:
        """Return what a name holds before the first turn."""
        if name not in self.lanes.carried:
            return "float64(0.0)"
        return self.element(LaneSubscript(name, (), None),
                            lane) if name in self.boxes else f"float64(v_{name})"

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

    def element(self, place: LaneSubscript, lane: int) -> str:
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
                return self.element(LaneSubscript(name, (), None),
                                    lane) if name in self.boxes else f"v_{name}"
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


MOST_ROOM = 1 << 25  # elements of an array that are kept at most
_STOP = "return int64(1)"


def laned(nest: DetectedNest, given: Mapping[str, Given], resolve: Callable[[str], Any]) -> LoopKernel:
    """Translate a nest of lanes for what it is given."""
    assert nest.lanes is not None
    if resolve("range") is not range or "range" in given:
        raise Refused("a range that is none", nest.line, element=False)
    return Laned(nest, nest.lanes, given).kernel()


class Laned(LaneLoopWriter):
    """Writes the text of one nest."""

    def __init__(self, nest: DetectedNest, lanes: LaneLoop, given: Mapping[str, Given]) -> None:
        self.arrays = {name: what for name, what in given.items() if isinstance(what, Array)}
        self.scalars = {name: what for name, what in given.items() if isinstance(what, Scalar)}
        super().__init__(
            lanes, nest.line, {name: what.bits for name, what in self.scalars.items() if what.kind == "int"},
            {name: what.ndim for name, what in self.arrays.items()})
        for name, what in given.items():
            self.fits(name, what)

    def fits(self, name: str, what: Given) -> None:
        """Refuse what lanes are not made of."""
        axes = {self.lanes.axes + (place.index is not None)
                for place in self.lanes.places.values() if place.name == name}
        if name in self.lanes.bare and isinstance(what, Array):
            axes.add(self.lanes.axes)
        match what:
            case Array(kind="f8", ndim=ndim) if axes <= {ndim}:
                if name in self.lanes.stored and not what.writeable:
                    raise Refused(f"{name} is read-only", self.line)
            case Scalar(kind="float" | "f8") if not axes:
                pass
            case Scalar(kind="int", bits=bits) if not axes and bits <= 31:
                pass
            case _:
                raise Refused(f"{name} is {_shown(what)}, in a loop over slices", self.line, element=False)

    # -- the kernel ------------------------------------------------------------------------------

    def kernel(self) -> LoopKernel:
        """Return it."""
        self.settle()
        quick = self.quick()
        takes = tuple(self.scalars)
        only = "".join("q" if name in self.integers else "d" for name in takes)
        sizes = "q" * sum(2 * what.ndim for what in self.arrays.values())
        places = {name: 2 + index for index, name in enumerate(takes)}
        first = [f"v_{name} = {'I' if name in self.integers else 'F'}[{places[name]}]" for name in takes]
        first += lengths(self.arrays, 2 + len(takes))
        parameters = "I, F" + "".join(f", p_{name}" for name in self.arrays)
        head = ["    " + line for line in [*first, *self.extents()]]
        text = "\n".join([f"def quick({parameters}, low, high):", *head, *quick,
                          f"def kernel({parameters}):", "    I[0] = int64(0)", "    I[1] = int64(0)", *head,
                          *self.shape_checks(), *self.done(parameters), ""])
        variables = {name: variable(what) for name, what in self.scalars.items()}
        variables[self.target] = Variable(frozenset({"int"}))
        stored = tuple(sorted(self.lanes.stored))
        return LoopKernel(
            text, ("float64",) * len(self.arrays), tuple(self.arrays), stored, takes, (self.target,), 0,
            (), Struct("=qq" + only + sizes), Struct("=qq"), variables, places)

    # -- before anything is done -----------------------------------------------------------------

    def extents(self) -> list[str]:
        """Return the lines that say how many lanes there are along each axis."""
        place = next(p for node, p in self.lanes.places.items()
                     if isinstance(node.ctx, ast.Store) and p.index is not None)
        return [f"n{axis} = {extent(place.name, axis, cut)}" for axis, cut in enumerate(place.cuts)]

    def shape_checks(self) -> list[str]:
        """Return the lines that stop where lanes are not as many everywhere, or arrays share memory."""
        made = [f"n{axis} < int64(1)" for axis in range(self.lanes.axes)]
        for place in {(p.name, p.cuts): p for p in self.lanes.places.values()}.values():
            for axis, cut in enumerate(place.cuts or ((0, None),) * self.lanes.axes):
                first, last = cut
                if last is not None and last >= 0:
                    made.append(f"d_{place.name}_{axis} < int64({max(first, last)})")
                made.append(f"{extent(place.name, axis, cut)} != n{axis}")
        for name in sorted(self.lanes.bare & {*self.arrays}):
            made += [f"d_{name}_{axis} != n{axis}" for axis in range(self.lanes.axes)]
        self.put(f"if {' or '.join(dict.fromkeys(made))}: {_STOP}")
        self.apart()
        self.dry()
        return self.taken()

    def apart(self) -> None:
        """Write what stops where an array that is written shares memory with another, or with itself."""
        pairs = [(a, b) for a, b in combinations(sorted(self.arrays), 2) if self.lanes.stored & {a, b}]
        for name in sorted({name for pair in pairs for name in pair}):
            ways = [f"(d_{name}_{axis} - int64(1)) * s_{name}_{axis}"
                    for axis in range(self.arrays[name].ndim)]
            for word, extreme, more in (("low", "min", 0), ("high", "max", 1)):
                total = " + ".join(f"{extreme}(int64(0), {way})" for way in ways)
                self.put(f"{word}_{name} = where(p_{name}) + int64(8) * ({total} + int64({more}))")
        for a, b in pairs:
            self.put(f"if not (high_{a} <= low_{b} or high_{b} <= low_{a}): {_STOP}")
        for name in sorted(name for name in self.lanes.stored if not self.arrays[name].contiguous):
            for i, j in combinations(range(self.arrays[name].ndim), 2):
                one, two = (f"abs(s_{name}_{k}) >= max(int64(1), abs(s_{name}_{m})) * d_{name}_{m}"
                            for k, m in ((i, j), (j, i)))
                self.put(f"if not ({one} or {two}): {_STOP}")

    def dry(self) -> None:
        """Write all turns without what they do: indices only."""
        for name in sorted(self.lanes.stored):
            self.put(f"least_{name} = int64(1)")
            self.put(f"most_{name} = int64(0)")
            self.put(f"early_{name} = {name in self.lanes.bare}")
        self.put("risky = False")
        for name in sorted(self.lanes.names):
            self.put(f"number_{name} = {name in self.lanes.carried and name not in self.boxes}")
        self.iterate(lambda: self.dry_block(self.lanes.turn.body))
        for name in sorted(self.lanes.stored):
            self.put(f"early_{name} = early_{name} or risky")

    def dry_block(self, body: list[ast.stmt]) -> None:
        """Write which elements statements read and store."""
        if body is self.lanes.turn.body:
            self.put("I[0] = c1")
            self.put(f"I[1] = int64({CODES['int']})")
        for node in body:
            match node:
                case ast.If():
                    self.choice(node, self.dry_block)
                case ast.Assign(targets=targets, value=value):
                    self.dry_read(value)
                    number = self.number(value)
                    for target in targets:
                        self.dry_store(target, number)
                case ast.AugAssign(target=target, op=op, value=value):
                    self.dry_read(value)
                    self.dry_read(target)
                    self.dry_store(target, self.number(ast.BinOp(target, op, value)))

    def dry_index(self, place: LaneSubscript) -> None:
        """Write the index of a place, which stops where it counts from the end, or is beyond it."""
        if place.index is None:
            self.put("x = int64(0)")
            return
        length = f"d_{place.name}_{self.lanes.axes}"
        constant = whole(place.index)
        if constant is not None and constant < 0:
            self.put(f"x = {length} - int64({-constant})")
        else:
            self.put(f"x = {self.counted(place.index)[0]}")
        self.put(f"if outside(x, {length}): {_STOP}")

    def number(self, node: ast.expr) -> str:
        """Return the text that says whether a value is a number: by zero it is an error of Python's."""
        match node:
            case ast.BinOp(left=left, op=op, right=right):
                both = _both(self.number(left), self.number(right))
                if isinstance(op, ast.Div) and both != "False":
                    self.put(f"risky = risky or {both}")
                return both
            case ast.UnaryOp(operand=operand):
                return self.number(operand)
            case ast.Name(id=name) if name in self.lanes.names:
                return f"number_{name}"
            case ast.Name(id=name) if name not in self.boxes:
                return "True"
            case ast.Constant():
                return "True"
        return "False"

    def dry_read(self, node: ast.expr) -> None:
        """Write what is asked of all elements that an expression reads."""
        for part in ast.walk(node):
            if isinstance(part, ast.Subscript) and part in self.lanes.places:
                place = self.lanes.places[part]
                self.dry_index(place)
                name = place.name
                if name in self.lanes.stored:
                    self.put(f"early_{name} = early_{name} or x < least_{name} or x > most_{name}")

    def dry_store(self, target: ast.expr, number: str) -> None:
        """Write what is asked of an element that is stored, or which name is a number now."""
        if not isinstance(target, ast.Subscript):
            self.put(f"number_{target.id} = {number}")  # type: ignore[attr-defined]
            return
        place = self.lanes.places[target]
        self.dry_index(place)
        name = place.name
        least, most = f"least_{name}", f"most_{name}"
        self.put(f"early_{name} = early_{name} or {least} <= {most} and (x < {least} - int64(1)"
                 f" or x > {most} + int64(1))")
        self.put(f"some = {least} <= {most}")
        self.put(f"{least} = min({least}, x) if some else x")
        self.put(f"{most} = max({most}, x) if some else x")

    # -- doing it ----------------------------------------------------------------------------------

    def done(self, parameters: str) -> list[str]:
        """Return the lines that keep what has to be kept, do all lanes, and undo them if anything was odd."""
        names = sorted(self.lanes.stored)
        released = [f"release(k_{name})" for name in names]
        for name in names:
            self.put(f"z_{name} = {' * '.join(self.box(name))} if early_{name} else int64(0)")
        self.put(f"if {' or '.join(f'z_{name} > int64({MOST_ROOM})' for name in names)}: {_STOP}")
        for name in names:
            self.put(f"k_{name} = spare(p_{name}, z_{name} + int64(1))")
        self.put(f"lacking = {' or '.join(f'nowhere(k_{name})' for name in names)}")
        self.put("if lacking:")
        self.lines += ["        " + line for line in (*released, _STOP)]
        for name in names:
            self.moved(name, "{room} = {element}")
        self.put("quiet()")
        for line in shares(self.lanes, max(map(self.box, names), key=len), parameters):
            self.put(line)
        self.put("if odd:")
        self.depth += 1
        for name in names:
            self.moved(name, "{element} = {room}")
        self.put("I[1] = int64(0)")
        self.depth -= 1
        for line in released:
            self.put(line)
        self.put("return odd")
        return self.taken()

    def box(self, name: str) -> list[str]:
        """Return how long that is along each axis what is stored in an array."""
        axes = self.lanes.axes
        return [*(f"n{axis}" for axis in range(axes)),
                *(f"d_{name}_{axis}" for axis in range(axes, self.arrays[name].ndim))]

    def moved(self, name: str, how: str) -> None:
        """Write what moves the elements of an array that lanes may store, there or back."""
        before = self.depth
        self.put(f"if early_{name}:")
        self.depth += 1
        self.put("y = int64(0)")
        cuts = self.cuts(name)
        box = self.box(name)
        steps = []
        for axis, length in enumerate(box):
            first = cuts[axis][0] if axis < len(cuts) else 0
            steps.append(f"(x{axis} + int64({first})) * {self.stride(name, axis)}")
            self.put(f"for x{axis} in range({length}):")
            self.depth += 1
        self.put(how.format(room=f"k_{name}[y]", element=f"p_{name}[{' + '.join(steps)}]"))
        self.put("y += int64(1)")
        self.depth = before

    def cuts(self, name: str) -> tuple[tuple[int, int | None], ...]:
        """Return how an array that is stored is cut."""
        return next(place.cuts for node, place in self.lanes.places.items()
                    if place.name == name and isinstance(node.ctx, ast.Store))

    def stride(self, name: str, axis: int) -> str:
        """Return how many elements it is to the next along an axis."""
        array = self.arrays[name]
        return "int64(1)" if array.contiguous and axis == array.ndim - 1 else f"s_{name}_{axis}"


def _both(one: str, two: str) -> str:
    """Return the text of whether both hold."""
    if "False" in (one, two):
        return "False"
    return two if one == "True" else one if two == "True" else f"({one} and {two})"


def _shown(what: Given) -> str:
    return what if isinstance(what, str) else what.kind
