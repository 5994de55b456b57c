"""Loops: how they count, and what their variables may hold.

Knows: what Python's loops do. Must not know: rounds, which loops can be done again.
Receives syntax trees of loops; writes lines.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from jitla.loops.again import stored_names
from jitla.loops.ahead import SIZE, Turns
from jitla.loops.kinds import BITS, HELD, PYTHON, Refused
from jitla.loops.needs import LEAVING
from jitla.loops.reductions import Reductions
from jitla.loops.values import EXACT, FROM, STOP, TO, WIDE, Span, Value, endless, number

# Bits of what a loop begins or ends with: more are asked for.
MOST = EXACT - 5


class Range(NamedTuple):
    """What a loop counts through, and what its variable holds."""

    start: str
    stop: str
    step: str
    value: Value


class Counting(Reductions):
    """Translates loops."""

    def do_While(self, node: ast.While) -> None:
        """Repeat a block as long as a test holds."""
        self.put("while True:")
        self.known = {}
        self.depth += 1
        test = self.test(node.test)
        self.flush()
        self.put(f"if not {test}: break")
        self.depth -= 1
        self.inside(node, None)

    def inside(self, loop: ast.For | ast.While, bits: int | None) -> None:
        """Translate the body of a loop: what it assigns may have been, or not."""
        before, unsure = set(self.definite), self.unsure
        self.unsure = False
        self.doubts.append(unsure or isinstance(loop, ast.While))
        self.around.append((loop, bits))
        try:
            self.block(loop.body)
        finally:
            self.doubts.pop()
            self.around.pop()
        self.definite, self.known, self.unsure = before, {}, unsure
        if self.quick:
            for name in self.needs.after.get(loop, ()):
                variable = self.variables[name]
                if variable.held in "ds" and not variable.kinds <= PYTHON:
                    self.put(f"seen = seen | bits_{variable.held}(v_{name})")

    def counting(self, node: ast.For) -> None:
        """Count, or go through the elements of an array; of the outermost loop, through a part only."""
        self.label = self.nest.labels[node]
        self.counters += 1
        k = self.counters
        assert isinstance(node.target, ast.Name)
        part = FROM, TO
        if node is self.nest.loop:
            found = self.part(k, node)
        else:
            # where it begins something may be wrong before anything is done
            sticky, self.sticky = self.sticky, False
            found, part = self.source(k, node), (f"b{k}", f"e{k}")
            self.begin(k, found)
            self.sticky = sticky
        with self.ahead(k, node, found):
            self.turn(k, node, found, part)

    @contextmanager
    def ahead(self, k: int, node: ast.For, found: Range) -> Iterator[None]:
        """Write what can be asked once for all turns of an inner loop before it."""
        assert isinstance(node.target, ast.Name)
        if not self.quick or node is self.nest.loop or not found.value.text.startswith("c"):
            yield
            return
        stored = list(stored_names(node))
        name = node.target.id
        if stored.count(name) > 1 or self.variables[name].kinds != {"int"}:
            name = ""
        plain = not any(isinstance(part, LEAVING) for part in ast.walk(node))
        turns = Turns(k, name, found.value, frozenset(stored), len(self.lines), self.depth,
                      len(self.doubts), plain, found.step.startswith("int64(-"))
        self.turns.append(turns)
        try:
            yield
        finally:
            self.turns.pop()
        self.lines[turns.line:turns.line] = turns.lines(self.leaving)

    def turn(self, k: int, node: ast.For, found: Range, part: tuple[str, str]) -> None:
        """Write a loop that counts: its head, and what is done in each turn."""
        assert isinstance(node.target, ast.Name)
        self.count(k, found.step, part)
        before = set(self.definite)
        self.depth += 1
        value = found.value if found.value.text.startswith("c") else self.fetched(found.value)
        if self.variables[node.target.id].held != value.held and value.bits > EXACT:
            raise Refused("the variable of a loop holds other numbers, too")
        self.assign(node.target, value)
        self.depth -= 1
        self.inside(node, found.value.bits + 1 if found.value.text.startswith("c") else SIZE)
        self.definite = before

    def part(self, k: int, node: ast.For) -> Range:
        """Return what the outermost loop goes through; it is computed elsewhere, once."""
        kept = self.lines
        self.lines = []
        found = self.source(k, node)
        self.lines, self.pending, self.known = kept, [], {}
        self.put(f"e{k} = {STOP}")
        self.put(f"s{k} = STEP")
        low, high = (f"float64({FROM})", f"float64({TO} - 1)")
        if found.step.startswith("int64(-"):
            low, high = (f"float64({TO} + 1)", f"float64({FROM})")
        value = found.value
        return found._replace(value=replace(value, span=(low, high) if value.span else None))

    def source(self, k: int, node: ast.For) -> Range:
        """Return what a loop goes through."""
        match node.iter:
            case ast.Call(func=ast.Name(id="range"), args=args) if "range" not in self.given \
                    and "range" not in self.variables and self.resolve("range") is range:
                return self.counted(k, args, self.quick and node is not self.nest.loop)
            case ast.Name(id=name) if name in self.arrays and self.arrays[name].ndim == 1:
                array = self.arrays[name]
                value = Value(f"p_{name}[c{k} * {self.stride(name, 0)}]", frozenset({array.kind}),
                              HELD[array.kind], "", BITS.get(array.kind, WIDE))
                return Range("int64(0)", f"d_{name}_0", "int64(1)", value)
        raise Refused(f"a loop over {ast.unparse(node.iter)}", element=False)

    def begin(self, k: int, found: Range) -> None:
        """Keep where a loop is to begin and to end; what is left of it the interpreter could do."""
        self.flush()
        self.put(f"b{k} = {found.start}")
        self.put(f"e{k} = {found.stop}")
        self.put(f"s{k} = {found.step}")

    def count(self, k: int, step: str, part: tuple[str, str]) -> None:
        """Write the head of a loop that counts."""
        self.flush()
        self.known = {}
        by = {"int64(1)": "", "int64(-1)": ", -1"}.get(step, f", s{k}")
        self.put(f"for c{k} in range({part[0]}, {part[1]}{by}):")

    def counted(self, k: int, args: list[ast.expr], inner: bool) -> Range:
        """Return what a range counts through."""
        values = [self.integer(arg) for arg in args]
        if not 1 <= len(values) <= 3:
            raise Refused("a range of that many arguments")
        zero, one = number(0), number(1)
        start, stop, step = {1: (zero, *values, one), 2: (*values, one), 3: tuple(values)}[len(values)]
        if not step.text.startswith("int64("):
            self.bail(f"{step.text} == 0", hard=True)
        elif step.text == "int64(0)":
            raise Refused("a range without a step")
        for value in (start, stop, step):
            if inner and value.bits > MOST:
                self.bail(f"beyond({value.text}, int64({1 << SIZE}))", hard=True)
            elif value.bits >= WIDE - 1:
                self.bail(f"huge({value.text})", hard=True)
        up = step.positive and step.text.startswith("int64(")
        down = step.text.startswith("int64(-")
        # counting down ends before it stops, at -1 at the latest
        low = start.positive and up or down and (stop.positive or stop.text == "int64(-1)")
        span: Span = None
        if start.span and stop.span and not endless(start.span) and not endless(stop.span) and (up or down):
            span = start.span[0], f"({stop.span[1]} - 1.0)"
            if down:
                span = f"({stop.span[0]} + 1.0)", start.span[1]
        elif inner and (up or down):
            span = f"float64(b{k})", f"(float64(e{k}) - 1.0)"
            if down:
                span = f"(float64(e{k}) + 1.0)", f"float64(b{k})"
        most = [min(value.bits, WIDE - 1) if value.bits <= MOST or not inner else SIZE + 1
                for value in (start, stop)]
        bits = max(most)
        value = Value(f"c{k}", frozenset({"int"}), "i", "", bits, low, (), span if bits <= EXACT else None)
        return Range(start.text, stop.text, step.text, value)
