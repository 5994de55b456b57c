"""From the syntax tree of a nest to the lines of a function over memory and numbers.

Knows: what Python's statements do, what can be done again. Must not know: compilers, calls.
Receives a nest and the kinds of what it reads; returns lines, or says why the interpreter keeps it.
"""

from __future__ import annotations

import ast
from dataclasses import replace

from jitla.loops.expressions import ZERO, Expressions
from jitla.loops.given import Scalar, Variable
from jitla.loops.kinds import BITS, HELD, INTEGERS, Refused
from jitla.loops.nests import again, leaves, stored_names, stored_places, summed
from jitla.loops.values import EXACT, LARGEST, WIDE, Hard, Span, Value, number

ROUNDS = 24
SMALL = 31  # bits of integers that bounds are computed of
PATIENCE = 4  # rounds after which the bits of a variable that still grows are not followed


class Translator(Expressions):
    """Translates one nest; kinds of variables grow from round to round until nothing changes."""

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
        if not value.kinds:
            return ZERO[variable.held], "0"
        return self.united(value, variable.kinds, variable.held)

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
            span = start.span[0], f"({stop.span[1]} - 1.0)"
            if down:
                span = f"({stop.span[0]} + 1.0)", start.span[1]
        bits = min(max(start.bits, stop.bits), WIDE - 1)
        return Value(f"c{k}", frozenset({"int"}), "i", "", bits, low, (), span if bits <= EXACT else None)
