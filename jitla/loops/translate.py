"""From the syntax tree of a nest to the lines of a function over memory and numbers.

Knows: what loops do, which can be done again. Must not know: compilers, calls.
Receives a nest and the kinds of what it reads; returns lines, or says why the interpreter keeps it.
"""

from __future__ import annotations

import ast

from jitla.loops.again import again, stored_names, stored_places, summed
from jitla.loops.given import Scalar
from jitla.loops.kinds import BITS, HELD, INTEGERS, Refused
from jitla.loops.statements import PATIENCE, Statements
from jitla.loops.values import EXACT, LARGEST, WIDE, Hard, Span, Value, number

ROUNDS = 24
SMALL = 31  # bits of integers that bounds are computed of


class Translator(Statements):
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
        self.unknown, self.known, self.pending = set(), {}, []
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

    def do_While(self, node: ast.While) -> None:
        """Repeat a block as long as a test holds."""
        self.put("while True:")
        self.known = {}
        self.depth += 1
        test = self.test(node.test)
        self.flush()
        self.put(f"if not {test}: break")
        self.depth -= 1
        self.inside(node.body)

    def inside(self, body: list[ast.stmt]) -> None:
        """Translate the body of a loop: what it assigns may have been, or not."""
        before = set(self.definite)
        self.block(body)
        self.definite, self.known = before, {}

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
            self.known, self.pending = {}, []
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
        self.flush()
        self.known = {}
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
