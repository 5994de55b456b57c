"""From the syntax tree of a nest to the text of a function over memory and numbers.

Knows: what Python's statements and expressions over numbers and elements do. Must not know: compilers, calls.
Receives a nest and the kinds of what it reads; returns the text, or says why the interpreter keeps it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from jitla.loops.calls import CALLS, called
from jitla.loops.kinds import BITS, HELD, INTEGERS, RANGES, Refused
from jitla.loops.nests import Nest, again, leaves, stored_names, stored_places, summed
from jitla.loops.values import (
    COMPARED,
    EXACT,
    LARGEST,
    LONGEST,
    WIDE,
    Hard,
    Span,
    Value,
    Writer,
    held_by,
    number,
)

ROUNDS = 24
SMALL = 31  # bits of integers that bounds are computed of
PATIENCE = 4  # rounds after which the bits of a variable that still grows are not followed
SIZE = 40  # bits of lengths of arrays
_ZERO = {"i": "int64(0)", "d": "float64(0.0)", "s": "float32(0.0)", "b": "bool_(0)"}


@dataclass(frozen=True)
class Scalar:
    """What is known of a number that a nest is given: its kind, and bits of an integer of Python."""

    kind: str
    bits: int = WIDE


@dataclass(frozen=True)
class Array:
    """What is known of an array that a nest is given."""

    kind: str
    ndim: int
    contiguous: bool
    writeable: bool


# What a nest is given; of what is neither, the name of its type.
Given = Scalar | Array | str


@dataclass
class Variable:
    """A name that the nest assigns, or that holds a number."""

    kinds: frozenset[str]
    bits: int = 0
    positive: bool = True
    # What it may be between: as found in the round before, and in this one; None once it is not followed.
    span: Span = None
    spans: set[Span] | None = field(default_factory=set)

    def turn(self) -> bool:
        """Begin a round with what the last one has found; say whether that is new."""
        before, found = self.span, self.spans
        self.span = None
        if found and None not in found:
            lows, highs = zip(*sorted(each for each in found if each), strict=True)
            low, high = ", ".join(dict.fromkeys(lows)), ", ".join(dict.fromkeys(highs))
            low, high = f"min({low})" if ", " in low else low, f"max({high})" if ", " in high else high
            if len(low) + len(high) < LONGEST:
                self.span = low, high
        if found is not None:
            self.spans = set()
        return self.span != before

    @property
    def held(self) -> str:
        """What holds it."""
        return held_by(self.kinds) if self.kinds else "i"


class Translator(Writer):
    """Translates one nest; kinds of variables grow from round to round until nothing changes."""

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
                bits = min(what.bits, BITS.get(what.kind, WIDE))
                low = RANGES.get(what.kind, (-1, 0))[0]
                self.variables[name] = Variable(frozenset({what.kind}), bits, low == 0 and what.kind != "int")
        for name in nest.writes:
            self.variables.setdefault(name, Variable(frozenset()))

    def run(self) -> list[str]:
        """Return the lines of the nest."""
        for self.rounds in range(ROUNDS):
            self.begin_round()
            self.statement(self.nest.loop)
            spans = [variable.turn() for variable in self.variables.values()]
            if self.rounds > PATIENCE and any(spans):
                for variable, moved in zip(self.variables.values(), spans, strict=True):
                    if moved:
                        variable.span = variable.spans = None
            if not self.changed and not any(spans):
                if self.unknown:
                    raise Refused(f"{min(self.unknown)} has no value when it is read", self.nest.line)
                return self.both(self.lines)
        raise Refused("the kinds of its variables do not settle", self.nest.line)

    def begin_round(self) -> None:
        """Forget what was written."""
        self.lines, self._count, self.counters, self.changed = [], 0, 0, False
        self.unknown = set()
        self.definite = {name for name, what in self.given.items() if isinstance(what, Scalar)}
        for name in self.definite:
            variable = self.variables[name]
            known = variable.bits <= SMALL and variable.kinds <= INTEGERS
            text = f"float64(v_{name})"
            if variable.spans is not None:
                variable.spans.add((text, text) if known else None)

    def both(self, lines: list[str]) -> list[str]:
        """Return the lines with a faster way before them, for where all indices are in bounds for sure."""
        self.fast = True
        self.depth += 1
        self.begin_round()
        self.statement(self.nest.loop)
        self.depth -= 1
        made, proofs = self.lines, list(dict.fromkeys(self.proofs))
        if not proofs:
            return lines if not self.regions else made
        tests = [f"    fast = {proofs[0]}", *(f"    fast = fast and {each}" for each in proofs[1:])]
        return [*tests, "    if fast:", *made, "    else:", *("    " + line for line in lines)]

    # -- statements ----------------------------------------------------------------------------

    def statement(self, node: ast.stmt) -> None:
        """Translate a statement."""
        self.label = self.nest.labels[node]
        try:
            method = getattr(self, f"do_{type(node).__name__}")
            method(node)
        except Refused as refused:
            refused.line = refused.line or node.lineno
            raise

    def block(self, body: list[ast.stmt]) -> None:
        """Translate statements one step further in."""
        self.depth += 1
        start = len(self.lines)
        for each in body:
            self.statement(each)
        if len(self.lines) == start:
            self.put("pass")
        self.depth -= 1

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
        value = self.expression(node.value)
        summed_up = len(targets) == 1 and isinstance(targets[0], ast.Name) and targets[0].id in self.deferred
        value = self.calm(value) if summed_up else self.settled(value)
        if len(targets) > 1:
            value = replace(value, text=self.fresh(value.text))
        self.assign_all(targets, [value] * len(targets))

    def copied(self, node: ast.expr) -> Value:
        """Return the value of an expression that outlives what it was read from."""
        value = self.expression(node)
        tag = self.fresh(value.tag) if value.tag else ""
        return replace(value, text=self.fresh(value.text), tag=tag)

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
            name, place = self.place(node.target)
            left = self.load(name, place)
            store = name, place
        else:
            raise Refused("an attribute is assigned")
        value = self.operation(node.op, left, node.value)
        summed_up = isinstance(node.target, ast.Name) and node.target.id in self.deferred
        value = self.calm(value) if summed_up else self.settled(value)
        if store is None:
            self.assign(node.target, value)
        else:
            self.store(*store, value)

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
            places.append(self.place(target))
        texts = [self.united_with(target, value) if place is None else (self.element(place[0], value), "")
                 for target, place, value in zip(targets, places, values, strict=True)]
        for target, place, (text, code) in zip(targets, places, texts, strict=True):
            if place is not None:
                self.put(f"p_{place[0]}[{place[1]}] = {text}")
            else:
                assert isinstance(target, ast.Name)
                self.put(f"v_{target.id} = {text}")
                self.put(f"g_{target.id} = int64({code})")

    def united_with(self, target: ast.expr, value: Value) -> tuple[str, str]:
        """Return text and code of a value as the variable `target` holds it."""
        if not isinstance(target, ast.Name):
            raise Refused("an attribute or a part of a tuple is assigned")
        variable = self.variables[target.id]
        self.grow(variable, value)
        self.definite.add(target.id)
        return self.united(value, variable.kinds, variable.held) if value.kinds else (_ZERO[variable.held], "0")

    def assign(self, target: ast.expr, value: Value) -> None:
        """Assign to a name."""
        self.assign_all([target], [value])

    def grow(self, variable: Variable, value: Value) -> None:
        """Note that a variable may hold `value`, too."""
        before = variable.kinds, variable.bits, variable.positive
        variable.kinds |= value.kinds
        if value.kinds:
            if value.bits > variable.bits:
                variable.bits = value.bits if self.rounds <= PATIENCE else WIDE
            variable.positive = variable.positive and value.positive
            if variable.spans is not None:
                variable.spans.add(value.span)
        self.changed = self.changed or before != (variable.kinds, variable.bits, variable.positive)

    def do_If(self, node: ast.If) -> None:
        """Do one of two blocks."""
        self.put(f"if {self.test(node.test)}:")
        before = set(self.definite)
        self.block(node.body)
        first, self.definite = self.definite, before
        if node.orelse:
            self.put("else:")
            self.block(node.orelse)
        if leaves(node.body):
            return
        self.definite = first if leaves(node.orelse) else self.definite & first

    def do_While(self, node: ast.While) -> None:
        """Repeat a block as long as a test holds."""
        self.put("while True:")
        self.depth += 1
        self.put(f"if not {self.test(node.test)}: break")
        self.depth -= 1
        self.inside(node.body)

    def inside(self, body: list[ast.stmt]) -> None:
        """Translate the body of a loop: what it assigns may have been, or not."""
        before = set(self.definite)
        self.block(body)
        self.definite = before

    def do_For(self, node: ast.For) -> None:
        """Write a loop; one that can be done again first notes only whether anything is wrong."""
        if not self.fast or self.sticky or not again(node):
            self.counting(node)
            return
        kept = len(self.lines), self._count, self.counters, set(self.definite), len(self.proofs), self.depth
        try:
            restore = self.noted(node)
        except Hard:
            del self.lines[kept[0]:], self.proofs[kept[4]:]
            self._count, self.counters, self.definite, self.depth = kept[1], kept[2], set(kept[3]), kept[5]
            self.sticky, self.probes, self.deferred = False, [], set()
            self.counting(node)
            return
        self.counters, self.definite = kept[2], set(kept[3])
        self.put("if rare(bad):")
        self.depth += 1
        for line in restore:
            self.put(line)
        self.fast = False
        self.counting(node)
        self.fast = True
        self.depth -= 1
        self.regions += 1

    def noted(self, node: ast.For) -> list[str]:
        """Write a loop that only notes whether something is wrong; return what undoes it."""
        names = list(dict.fromkeys(stored_names(node)))
        self.sticky = True
        self.label = self.nest.labels[node]
        restore = [f"v_{name}, g_{name} = w_{name}, h_{name}" for name in names]
        for name in names:
            self.put(f"w_{name}, h_{name} = v_{name}, g_{name}")
        for target in stored_places(node):
            name, place = self.place(target)
            kept = self.fresh(f"p_{name}[{place}]")
            restore.insert(0, f"p_{name}[{place}] = {kept}")
        at = len(self.lines)
        self.counting(node)
        self.sticky = False
        indent = "    " * self.depth
        self.lines[at:at] = [f"{indent}bad = bool_(0)", *(f"{indent}{each} = 0.0" for each in self.probes)]
        for each in self.probes:
            self.put(f"bad = either(bad, {each} != {each})")
        self.probes = []
        return restore

    def counting(self, node: ast.For) -> None:
        """Count, or go through the elements of an array."""
        self.label = self.nest.labels[node]
        self.counters += 1
        later = (summed(node) if self.sticky else set()) - self.deferred
        self.deferred |= later
        k = self.counters
        assert isinstance(node.target, ast.Name)
        match node.iter:
            case ast.Call(func=ast.Name(id="range"), args=args) if "range" not in self.given \
                    and "range" not in self.variables and self.resolve("range") is range:
                value = self.counted(k, args)
            case ast.Name(id=name) if name in self.arrays and self.arrays[name].ndim == 1:
                array = self.arrays[name]
                self.begin(k, "int64(0)", f"d_{name}_0", "int64(1)")
                value = Value(f"p_{name}[c{k} * {self.stride(name, 0)}]", frozenset({array.kind}),
                              HELD[array.kind], "", BITS.get(array.kind, WIDE))
            case _:
                raise Refused(f"a loop over {ast.unparse(node.iter)}", element=False)
        before = set(self.definite)
        self.depth += 1
        if not value.text.startswith("c"):
            value = self.fetched(value)
        if self.variables[node.target.id].held != value.held and value.bits > EXACT:
            raise Refused("the variable of a loop holds other numbers, too")
        self.assign(node.target, value)
        self.depth -= 1
        self.inside(node.body)
        self.definite = before
        self.deferred -= later
        for name in sorted(later):
            variable = self.variables[name]
            if variable.kinds and variable.held in "ds":
                self.put(f"bad = either(bad, not (abs(v_{name}) <= {LARGEST[variable.held]}))")

    def begin(self, k: int, start: str, stop: str, step: str) -> None:
        """Write the head of a loop that counts; what is left of it the interpreter could do."""
        self.put(f"b{k} = {start}")
        self.put(f"e{k} = {stop}")
        self.put(f"s{k} = {step}")
        by = {"int64(1)": "", "int64(-1)": ", -1"}.get(step, f", s{k}")
        self.put(f"for c{k} in range(b{k}, e{k}{by}):")

    def counted(self, k: int, args: list[ast.expr]) -> Value:
        """Begin a loop over a range; return what its variable holds."""
        values = [self.integer(arg) for arg in args]
        if not 1 <= len(values) <= 3:
            raise Refused("a range of that many arguments")
        zero, one = number(0), number(1)
        start, stop, step = {1: (zero, *values, one), 2: (*values, one), 3: tuple(values)}[len(values)]
        if not step.text.startswith("int64("):
            self.bail(f"{step.text} == 0", hard=True)
        elif step.text == "int64(0)":
            raise Refused("a range without a step")
        for value in (start, stop):
            if value.bits >= WIDE - 1:
                self.bail(f"huge({value.text})", hard=True)
        self.begin(k, start.text, stop.text, step.text)
        up = step.positive and step.text.startswith("int64(")
        down = step.text.startswith("int64(-")
        # counting down ends before it stops, at -1 at the latest
        low = start.positive and up or down and (stop.positive or stop.text == "int64(-1)")
        span: Span = None
        if start.span and stop.span and (up or down):
            span = (start.span[0], f"({stop.span[1]} - 1.0)") if up else (f"({stop.span[0]} + 1.0)", start.span[1])
        bits = min(max(start.bits, stop.bits), WIDE - 1)
        return Value(f"c{k}", frozenset({"int"}), "i", "", bits, low, (), span if bits <= EXACT else None)

    # -- expressions ---------------------------------------------------------------------------

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
            case ast.Constant(value=value):
                return number(value)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=value)) if type(value) in (int, float):
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
            return Value(_ZERO[held], frozenset(), held)
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
            case ast.Attribute(value=ast.Name(id=name), attr=attr) if name not in self.variables and name not in self.given:
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
            return _ZERO[how]
        if how in "ds":
            if value.held == "d" and how == "s":
                text = self.fresh(f"float32({value.text})")
                self.bail(f"lost({value.text}, {text})")
                return text
            return f"float{64 if how == 'd' else 32}({self.held(value, 'd') if value.held == 'i' else value.text})"
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
