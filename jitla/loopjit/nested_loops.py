"""Loops within loops: over ranges, arrays, lists and tuples, and ``while`` loops."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import cache
from typing import Any

from jitla.instrument import walk_tree
from jitla.loopir import program as ir
from jitla.loopjit import arrays, lists, scalars, selections
from jitla.loopjit.builder import (
    apply,
    compare,
    minus,
    negated,
    plus,
    times,
)
from jitla.loopjit.flow import Environment, Meeting, meet, widened
from jitla.loopjit.flow import convert as convert_variable
from jitla.loopjit.lowering_state import LoopTarget
from jitla.loopjit.statements import MAX_ROUNDS, StatementLowering
from jitla.loopjit.values import (
    MAX_EXTENT,
    Abstract,
    Arr,
    Elementwise,
    Iterated,
    ListOf,
    LoweringRefused,
    Num,
    Ranged,
    Tup,
    describe,
    number,
    of_kind,
    same_representation,
)

MAX_UNROLLED = 8  # iterations of a loop over a tuple


class Lowering(StatementLowering):
    """Lowers statements and expressions of a loop, loops within it included."""

    def loop(
        self, node: ast.For | ast.While, body: Callable[[LoopTarget], None],
        wrap: Callable[[str, list[Any]], ir.Statement], ends_at_header: bool = True,
    ) -> None:
        """Lower a loop: its body again and again until the kinds at the header no longer change.

        `body` lowers an iteration, and `wrap` makes the statement. A loop that does not end at its header is
        left by jumps only.
        """
        entry, path = dict(self.env), (node, self.scope)
        names = assigned_names(node) | self.stored_fields
        allocations = self.b.allocations
        before = self.headers.get(path)
        header = entry if before is None else self._header(names, [entry, {**entry, **before}])
        state = self.b.line, self.conditional, self.final_edges
        for _ in range(MAX_ROUNDS):
            self.b.line, self.conditional, _ = state
            self.b.allocations = allocations  # origins of arrays have the same names in each round
            self.final_edges = []
            label, block = self.b.fresh("loop"), self.b.fresh("block")
            target = LoopTarget(Meeting.empty(), ir.Break(block), Meeting.empty(), ir.Continue(label),
                                normal=self.b.fresh("ended"))
            self.env, self.reachable = dict(header), True
            self.targets.append(target)
            try:
                with self.b.into([]) as statements:
                    body(target)
                    if self.reachable:
                        target.next_iteration.reach(self.b, self.env)
            finally:
                self.targets.pop()
            following = self._header(names, [entry, *(env for _, env in target.next_iteration.edges)])
            if all(same_representation(header.get(name), following.get(name)) for name in names):
                break
            header = {name: widened(header[name], value) if name in header and name in names else value
                      for name, value in following.items()}
        else:
            raise LoweringRefused("the kinds of variables that do not settle")
        self.final_edges = [*state[2], *self.final_edges]
        self.headers[path] = {name: header[name] for name in names if name in header}
        for edge, env in [(None, entry), *target.next_iteration.edges]:
            with self.b.into(self.b.statements if edge is None else edge.statements):
                for name in names & header.keys():
                    if env.get(name) is not header[name]:
                        convert_variable(self.b, env.get(name), header[name])
        ended = target.ended
        with self.b.into([]) as whole:
            with self.b.into([]) as looping:
                self.b.emit(wrap(label, statements))
                if ends_at_header:
                    ended.reach(self.b, header)
            self.b.emit(ir.Block(target.normal, looping))  # type: ignore[arg-type]
            self.continue_from(ended)
            if self.reachable:
                self.block(node.orelse)
            if self.reachable:
                target.end.reach(self.b, self.env)
        self.b.emit(ir.Block(block, whole))  # type: ignore[arg-type]
        self.continue_from(target.end)

    def _header(self, names: frozenset[str], envs: list[Environment]) -> Environment:
        """Return the variables at a header that paths lead to; only those with `names` may differ."""
        merged = meet([{name: env[name] for name in names & env.keys()} for env in envs], self.scope, self.b)
        return {**{name: value for name, value in envs[0].items() if name not in names}, **merged}

    def while_loop(self, node: ast.While) -> None:
        """Lower a ``while`` loop."""
        def body(target: LoopTarget) -> None:
            test = self.test_of_loop(node.test)
            if scalars.static_truth(test) is not True:
                with self.b.into([]) as leave:
                    target.ended.reach(self.b, self.env)
                    self.b.emit(ir.Break(target.normal))
                self.b.emit(ir.If(negated(test), leave))  # type: ignore[arg-type]
            self.block(node.body)

        self.loop(node, body, lambda label, statements: ir.Repeat(
            label, statements), ends_at_header=False)  # type: ignore[arg-type]

    def counted_loop(self, node: ast.For) -> None:
        """Lower a ``for`` loop over a range, an array, a tuple, or these enumerated, zipped or reversed."""
        source = self.expression(node.iter)
        if isinstance(source, Tup) or isinstance(source, Iterated) and self._is_unrolled(source):
            self.unrolled(node, source)
            return
        source = self.settled_source(source)
        if has_live_list(source):
            self.list_loop(node, source)
            return
        if isinstance(source, Ranged):
            step = scalars.constant_integer(source.step)
            if step:
                self.range_loop(node, source, step)
                return
        count, item = self.iteration(source)
        name = self.b.fresh("i")

        def body(target: LoopTarget) -> None:
            index = of_kind("int", self.b.scalar(name, ir.INT64), 0, MAX_EXTENT)
            self.assign(node.target, item(index))
            self.block(node.body)

        count = self.b.temporary(count)
        self.loop(node, body, lambda label, statements: ir.For(
            label, name, arrays.ZERO, count, 1, statements))  # type: ignore[arg-type]

    def list_loop(self, node: ast.For, source: Abstract) -> None:
        """Lower a loop over lists, which may get longer or shorter meanwhile."""
        name = self.b.fresh("i")
        self.b.assign(name, arrays.ZERO)

        def body(target: LoopTarget) -> None:
            count, item = self.iteration(source)
            index = self.b.temporary(self.b.scalar(name, ir.INT64))
            with self.b.into([]) as leave:
                target.ended.reach(self.b, self.env)
                self.b.emit(ir.Break(target.normal))
            self.b.emit(ir.If(compare("greater_equal", index, count), leave))  # type: ignore[arg-type]
            self.b.assign(name, plus(index, arrays.ONE))
            self.assign(node.target, item(of_kind("int", index, 0, MAX_EXTENT)))
            self.block(node.body)

        self.loop(node, body, lambda label, statements: ir.Repeat(
            label, statements), ends_at_header=False)  # type: ignore[arg-type]

    def range_loop(self, node: ast.For, source: Ranged, step: int) -> None:
        """Lower a loop over a range with a constant step."""
        low, high = (source.start.low, source.stop.high - 1) if step > 0 else \
            (source.stop.low + 1, source.start.high)
        name = self.b.fresh("i")

        def body(target: LoopTarget) -> None:
            self.assign(node.target, of_kind("int", self.b.scalar(name, ir.INT64), low, max(low, high)))
            self.block(node.body)

        begin, end = self.b.temporary(source.start.value), self.b.temporary(source.stop.value)
        self.loop(node, body, lambda label, statements: ir.For(
            label, name, begin, end, step, statements))  # type: ignore[arg-type]

    def _is_unrolled(self, source: Iterated) -> bool:
        return all(isinstance(part, Tup) for part in source.parts)

    def unrolled(self, node: ast.For, source: Tup | Iterated) -> None:
        """Lower a loop over a tuple iteration by iteration."""
        if isinstance(source, Iterated):
            parts = [part.items for part in source.parts if isinstance(part, Tup)]
            if source.function == "enumerate":
                start = scalars.constant_integer(source.start) if source.start is not None else 0
                if start is None:
                    raise LoweringRefused("an enumerate with a start that is no constant")
                items = tuple(Tup((number(start + k), item)) for k, item in enumerate(parts[0]))
            elif source.function == "reversed":
                items = parts[0][::-1]  # type: ignore[assignment]
            else:
                items = tuple(Tup(tuple(row)) for row in zip(*parts, strict=False))
        else:
            items = source.items  # type: ignore[assignment]
        if len(items) > MAX_UNROLLED:
            self.list_loop(node, lists.make(self, items, self.class_name()))
            return
        settled = [self.settled(item) for item in items]  # iterations may assign what items are read of
        label, end = self.b.fresh("unrolled"), Meeting.empty()
        with self.b.into([]) as statements:
            for item in settled:
                if not self.reachable:
                    break
                once, following = self.b.fresh("once"), Meeting.empty()
                self.targets.append(LoopTarget(end, ir.Break(label), following, ir.Break(once)))
                try:
                    with self.b.into([]) as body:
                        self.assign(node.target, item)
                        self.block(node.body)
                        if self.reachable:
                            following.reach(self.b, self.env)
                finally:
                    self.targets.pop()
                self.b.emit(ir.Block(once, body))  # type: ignore[arg-type]
                self.continue_from(following)
            if self.reachable:
                self.block(node.orelse)
            if self.reachable:
                end.reach(self.b, self.env)
        self.b.emit(ir.Block(label, statements))  # type: ignore[arg-type]
        self.continue_from(end)

    def settled_source(self, source: Abstract) -> Abstract:
        """Return what a loop goes through, read once."""
        match source:
            case Tup():
                return lists.make(self, source.items, self.class_name())
            case ListOf():
                return lists.require_list(self.b, ListOf(
                    self.b.temporary(source.handle), source.lists, source.may_be_unbound))
            case Iterated(function, parts, start):
                return Iterated(function, tuple(self.settled_source(part) for part in parts),
                                None if start is None else self.b.evaluated(start))
            case Ranged() | Arr() | Elementwise():
                return self.settled(source)
        raise LoweringRefused(f"a loop over {describe(source)}")

    def iteration(self, source: Abstract) -> tuple[ir.Value, Callable[[Num], Abstract]]:
        """Return the number of items of what a loop goes through, and the function from index to item."""
        match source:
            case Arr():
                if not source.ndim:
                    raise LoweringRefused("a loop over an array without axes")
                return source.shape[0], lambda index: selections.subscript(self.b, source, [index])
            case ListOf():
                return lists.length(self.b, source).value, lambda index: lists.item(self.b, source, index)
            case Ranged(start, stop, step):
                constant = scalars.constant_integer(step)
                if not constant:
                    return self.stepped(source)
                span = apply("subtract", stop.value, start.value) if constant > 0 else \
                    apply("subtract", start.value, stop.value)
                distance = apply("maximum", span, arrays.ZERO)
                size = abs(constant)
                count = distance if size == 1 else apply(
                    "floor_divide", plus(distance, ir.constant(size - 1)), ir.constant(size))
                ends = (start.low, stop.high - 1) if constant > 0 else (stop.low + 1, start.high)
                return count, lambda index: of_kind(
                    "int", plus(start.value, times(index.value, ir.constant(constant))), *ends)
            case Iterated("zip strict", parts, _):
                counts, items = zip(*map(self.iteration, parts), strict=True)
                for other in counts[1:]:
                    self.b.check(compare("not_equal", counts[0], other), "sequences of different lengths")
                return counts[0], lambda index: Tup(tuple(item(index) for item in items))
            case Iterated("enumerate", (inner,), first):
                length, item = self.iteration(inner)
                begin = first or number(0)
                return length, lambda index: Tup((scalars.binary(self.b, "Add", index, begin), item(index)))
            case Iterated("zip", parts, _):
                counts, items = zip(*map(self.iteration, parts), strict=True)
                least: ir.Value = counts[0]
                for other in counts[1:]:
                    least = apply("minimum", least, other)
                return least, lambda index: Tup(tuple(item(index) for item in items))
            case Iterated("reversed", (inner,), _):
                length, item = self.iteration(inner)
                last = self.b.temporary(minus(length, arrays.ONE))
                return length, lambda index: item(of_kind(
                    "int", apply("subtract", last, index.value), 0, MAX_EXTENT))
        raise LoweringRefused(f"a loop over {describe(source)}")

    def stepped(self, source: Ranged) -> tuple[ir.Value, Callable[[Num], Abstract]]:
        """Return length and items of a range whose step is a variable that is positive."""
        start, step = self.b.evaluated(source.start), self.b.evaluated(source.step)
        if step.low <= 0:
            self.b.check(compare("less_equal", step.value, arrays.ZERO), "a step that is not positive")
        distance = apply("maximum", apply("subtract", source.stop.value, start.value), arrays.ZERO)
        count = apply("floor_divide", plus(distance, apply("subtract", step.value, arrays.ONE)), step.value)
        return self.b.temporary(count), lambda index: of_kind(
            "int", plus(start.value, times(index.value, step.value)), start.low, source.stop.high - 1)


def has_live_list(source: Abstract) -> bool:
    """Return whether a loop goes through a list, which may change meanwhile."""
    return isinstance(source, ListOf) or isinstance(source, Iterated) and any(
        map(has_live_list, source.parts))


@cache
def assigned_names(node: ast.AST) -> frozenset[str]:
    """Return the names that statements in a loop assign."""
    return frozenset(part.id for part in walk_tree(node) if isinstance(part, ast.Name)
                     and isinstance(part.ctx, ast.Store))
