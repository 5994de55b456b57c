"""Expressions over numbers and elements, as lines of text.

Knows: what Python's expressions do, where elements lie, what may be read. Must not know: statements.
Receives syntax trees of expressions; writes lines that compute them, and returns values.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from jitla.loops.calls import CALLS, called
from jitla.loops.given import Array, Given, Scalar, Variable, variable
from jitla.loops.kinds import BITS, HELD, INTEGERS, RANGES, Refused
from jitla.loops.nests import Nest
from jitla.loops.values import COMPARED, WIDE, Value, Writer, number

SIZE = 40  # bits of lengths of arrays
ZERO = {"i": "int64(0)", "d": "float64(0.0)", "s": "float32(0.0)", "b": "bool_(0)"}


class Expressions(Writer):
    """Translates expressions; what variables may hold is known of the round before."""

    def __init__(self, nest: Nest, given: Mapping[str, Given], resolve: Callable[[str], Any]) -> None:
        super().__init__()
        self.nest = nest
        self.given = given
        # What a name outside of the function stands for; whoever is asked makes sure that it stays so.
        self.resolve = resolve
        self.variables: dict[str, Variable] = {}
        self.arrays: dict[str, Array] = {}
        self.written: set[str] = set()
        self.definite: set[str] = set()
        self.counters = 0
        self.changed = False
        self.rounds = 0
        # Whether indices are not checked that were proven to be in bounds before the loop; how.
        self.fast = False
        self.proofs: list[str] = []
        self.regions = 0
        # Sums that are looked at once they are complete.
        self.deferred: set[str] = set()
        # Variables that were read before it is known what they may hold.
        self.unknown: set[str] = set()
        for name, what in given.items():
            if isinstance(what, Array):
                self.arrays[name] = what
                if name in nest.writes:
                    raise Refused(f"{name} is an array, and is assigned", nest.line, element=False)
            elif isinstance(what, Scalar):
                self.variables[name] = variable(what)
        for name in nest.writes:
            self.variables.setdefault(name, Variable(frozenset()))

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
        self.depth += 1
        self.put(f"{name} = bool_({self.test(values[0])})")
        if values[1:]:
            self.others(name, both, values[1:])
        self.depth -= 1

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
            return self.compare(names[0], left, self.expression(node.comparators[0]))
        values = [left, *(self.settled(self.expression(each)) for each in node.comparators)]
        if any(isinstance(part, (ast.Subscript, ast.Call, ast.BinOp)) for part in node.comparators[1:]):
            raise Refused("a chain of comparisons of more than numbers")
        made = [self.compare(name, a, b) for name, a, b in zip(names, values, values[1:], strict=False)]
        kinds = frozenset().union(*(each.kinds for each in made))
        if len(kinds) > 1:
            raise Refused("a chain of comparisons of Python's and NumPy's numbers")
        return Value(self.fresh(" and ".join(each.text for each in made)), kinds, "b", "", 1, True)

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
        variable = self.variables.get(name)
        if variable is None:
            if name in self.given:
                what = "an array" if name in self.arrays else self.given[name]
                raise Refused(f"{name} is {what}", element=False)
            return self.outside(name)
        if name not in self.definite:
            self.bail(f"g_{name} == 0", hard=True)
        tag = f"g_{name}" if len(variable.kinds) > 1 else ""
        held = variable.held
        if not variable.kinds:
            self.unknown.add(name)
            return Value(ZERO[held], frozenset(), held)
        return Value(
            f"v_{name}", variable.kinds, held, tag, variable.bits, variable.positive, (), variable.span)

    def outside(self, name: str) -> Value:
        """Return what a name is that the nest was not given: a constant of the module."""
        found = self.resolve(name)
        if type(found) in (int, float, bool):
            return number(found)
        raise Refused(f"{name} is {type(found).__name__}", element=False)

    def attribute(self, node: ast.Attribute) -> Value:
        """Return a length of an array, or a number of a module."""
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=attr) if name in self.arrays:
                if attr == "size":
                    text = " * ".join(f"d_{name}_{k}" for k in range(self.arrays[name].ndim))
                    return Value(f"({text})", frozenset({"int"}), "i", "", SIZE, True)
                if attr == "ndim":
                    return number(self.arrays[name].ndim)
            case ast.Attribute(value=ast.Name(id=name), attr=attr) \
                    if name not in self.variables and name not in self.given:
                found = self.resolve(f"{name}.{attr}")
                if type(found) in (int, float, bool):
                    return number(found)
        raise Refused(f"{ast.unparse(node)} is no number", element=False)

    def call(self, func: ast.expr, args: list[ast.expr]) -> Value:
        """Call one of the functions whose results are known."""
        name = ast.unparse(func)
        if name.partition(".")[0] in (*self.variables, *self.given):
            raise Refused(f"{name} is called")
        found = self.resolve(name)
        if found is len:
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

    # -- elements ------------------------------------------------------------------------------

    def subscript(self, node: ast.Subscript) -> Value:
        """Read an element, or a length."""
        match node:
            case ast.Subscript(value=ast.Attribute(value=ast.Name(id=name), attr="shape"),
                               slice=ast.Constant(value=axis)) if name in self.arrays:
                if type(axis) is not int or not 0 <= axis < self.arrays[name].ndim:
                    raise Refused("a length that the array does not have")
                return self.length(name, axis)
        return self.load(*self.place(node))

    def length(self, name: str, axis: int) -> Value:
        """Return how long an array is along an axis."""
        text = f"d_{name}_{axis}"
        bound = f"float64({text})"
        return Value(text, frozenset({"int"}), "i", "", SIZE, True, (), (bound, bound))

    def place(self, node: ast.Subscript) -> tuple[str, str]:
        """Return array and position of an element, after its indices were checked."""
        indices: list[ast.expr] = []
        inner: ast.expr = node
        while isinstance(inner, ast.Subscript):
            part = inner.slice
            indices = [*(part.elts if isinstance(part, ast.Tuple) else [part]), *indices]
            inner = inner.value
        if not isinstance(inner, ast.Name) or inner.id not in self.arrays:
            raise Refused(f"{ast.unparse(inner)} is no array", element=False)
        name = inner.id
        if len(indices) != self.arrays[name].ndim:
            raise Refused(f"{ast.unparse(node)} is no element", element=False)
        parts = []
        for axis, index in enumerate(indices):
            place = self.index(self.integer(index, " as an index"), f"d_{name}_{axis}")
            stride = self.stride(name, axis)
            parts.append(place if stride == "1" else f"{place} * {stride}")
        return name, self.fresh(" + ".join(parts))

    def index(self, value: Value, length: str) -> str:
        """Return the position that an index means along an axis."""
        if not value.kinds:
            return "int64(0)"
        place = value.text
        if self.fast and value.span and not value.span[0].startswith("-"):
            low, high = value.span
            self.proofs += [f"{low} >= 0.0", f"{high} < float64({length})"]
            return place
        if not value.positive:
            place = self.fresh(f"{place} + {length} if {place} < 0 else {place}")
        self.bail(f"outside({place}, {length})", hard=True)
        return place

    def stride(self, name: str, axis: int) -> str:
        """Return the text of the elements from one position to the next."""
        array = self.arrays[name]
        return "1" if array.contiguous and axis == array.ndim - 1 else f"s_{name}_{axis}"

    def integer(self, node: ast.expr, where: str = "") -> Value:
        """Return a value that counts."""
        value = self.settled(self.expression(node))
        if not value.kinds <= INTEGERS:
            raise Refused(f"a {min(value.kinds - INTEGERS)}{where} where an integer is needed", element=False)
        return value

    def load(self, name: str, place: str) -> Value:
        """Read an element."""
        kind = self.arrays[name].kind
        bits = BITS.get(kind, WIDE)
        return self.fetched(Value(f"p_{name}[{place}]", frozenset({kind}), HELD[kind], "", bits))

    def fetched(self, value: Value) -> Value:
        """Return an element as what holds its kind."""
        kind = value.kind
        text = {"i": f"int64({value.text})", "b": f"({value.text} != 0)"}.get(value.held, value.text)
        positive = kind in RANGES and RANGES[kind][0] == 0
        return replace(value, text=self.fresh(text), positive=positive)

    def element(self, name: str, value: Value) -> str:
        """Return the text of `value` as an element; where NumPy would complain the interpreter goes on."""
        array = self.arrays[name]
        self.written.add(name)
        if not array.writeable:
            raise Refused(f"{name} is read-only")
        kind, how = array.kind, HELD[array.kind]
        if not value.kinds:
            return ZERO[how]
        if how in "ds":
            if value.held == "d" and how == "s":
                text = self.fresh(f"float32({value.text})")
                self.bail(f"lost({value.text}, {text})")
                return text
            text = self.held(value, "d") if value.held == "i" else value.text
            return f"float{64 if how == 'd' else 32}({text})"
        if how == "b":
            return f"uint8({value.text} != 0)" if value.held != "b" else f"uint8({value.text})"
        text = value.text
        if value.held in "ds":
            self.bail(f"not (abs({text}) < 9007199254740992.0)", hard=True)
            text = self.fresh(f"int64({text})")
            value = Value(text, value.kinds, "i", "", 53)
        elif value.held == "b":
            text = f"int64({text})"
        if value.kinds != {kind} or value.held != how:
            self.in_range(text, kind, value)
        return f"{'u' if kind[0] == 'u' else ''}int{8 * int(kind[1])}({text})"

    def store(self, name: str, place: str, value: Value) -> None:
        """Write an element."""
        text = self.element(name, value)
        self.put(f"p_{name}[{place}] = {text}")
