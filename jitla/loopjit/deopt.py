"""The version of a function whose nests may be left to compiled code, and taken up again anywhere.

A nest that compiled code does not finish goes on in Python at the very statement that it could not do:
nothing of that statement has been done then, everything before it has.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from jitla.loopjit.detect import DetectedNest

AT, FOUND = ".at", ".found"
# Texts that become objects.
RANGE, TUPLE, NOTHING = "\0loops range", "\0loops tuple", "\0loops nothing"


class Nothing:
    """Stands for the value of a variable that compiled code did not assign."""


CONSTANTS: dict[str, Any] = {RANGE: range, TUPLE: tuple, NOTHING: Nothing}


def replace(function: ast.AST, nests: Sequence[DetectedNest], takes: Sequence[Sequence[str]]) -> None:
    """Put the choice between both ways before each nest, in place; `takes` is what each is asked with."""
    made = {nest.loop: _choice(number, nest, names)
            for number, (nest, names) in enumerate(zip(nests, takes, strict=True))}
    for node in list(ast.walk(function)):
        for name in ("body", "orelse", "finalbody"):
            body = getattr(node, name, None)
            if isinstance(body, list) and any(each in made for each in body):
                setattr(node, name, [part for each in body for part in made.get(each, [each])])


def nest_placeholder(number: int) -> str:
    """Return the constant that stands for the entry of nest `number` until the code object is made."""
    return f"\0loops nest {number}"


def _choice(number: int, nest: DetectedNest, takes: Sequence[str]) -> list[ast.stmt]:
    """Return the statements that a nest becomes."""
    at = nest.loop
    placeholder = nest_placeholder(number)
    ask = ast.Attribute(_constant(placeholder), "ask", ast.Load())
    call = ast.Call(ask, [_name(each) for each in takes], [])
    done = ast.Call(ast.Attribute(_constant(placeholder), "done", ast.Load()), [_name(FOUND)], [])
    count = sum(isinstance(node, ast.For) for node in nest.labels)
    outs = [f".{name}" for name in nest.writes]
    parts = [AT, *outs, *(f".{letter}{k + 1}" for k in range(count) for letter in "ces")]
    targets: list[ast.expr] = [_name(each, ast.Store()) for each in parts]
    ended = [*_taken(targets, nest.writes), *Resumed(nest).whole()] if nest.lanes is None else []
    first = ast.Subscript(_name(FOUND), ast.Constant(0), ast.Load())
    living: list[ast.expr] = [_name(AT, ast.Store()), *(_name(f".{name}", ast.Store()) for name in nest.live)]
    compiled = _taken(living, nest.live)
    if ended:  # of lanes all is done, or nothing
        compiled = [ast.If(first, ended, compiled)]
    finish = ast.If(
        ast.Compare(_name(FOUND), [ast.IsNot()], [ast.Constant(None)]),
        [ast.Assign([_name(FOUND, ast.Store())], done)], [])
    plain = ast.Try([nest.loop], [], [], [finish])
    is_done = ast.Compare(
        ast.Attribute(_name(FOUND), "__class__", ast.Load()), [ast.Is()], [_constant(TUPLE)])
    made: list[ast.stmt] = [ast.Assign([_name(FOUND, ast.Store())], call), ast.If(is_done, compiled, [plain])]
    for each in made:
        _place(each, at)
    return made


def _taken(targets: list[ast.expr], names: Sequence[str]) -> list[ast.stmt]:
    """Return the statements that take what came back apart, and assign variables that have a value."""
    made: list[ast.stmt] = [ast.Assign([ast.Tuple(targets, ast.Store())], _name(FOUND))]
    for name in names:
        differs = ast.Compare(_name(f".{name}"), [ast.IsNot()], [_constant(NOTHING)])
        made.append(ast.If(differs, [ast.Assign([_name(name, ast.Store())], _name(f".{name}"))], []))
    return made


def _name(name: str, context: ast.expr_context | None = None) -> ast.Name:
    return ast.Name(name, context or ast.Load())


def _constant(value: Any) -> ast.Constant:
    return ast.Constant(value)


def _place(node: ast.AST, at: ast.stmt) -> None:
    """Give new nodes the first line of `at`; those that have a place keep it."""
    if isinstance(node, (ast.expr, ast.stmt, ast.excepthandler)):
        if hasattr(node, "lineno"):
            return  # and so has all that is in it
        node.lineno = node.end_lineno = at.lineno
        node.col_offset, node.end_col_offset = at.col_offset, at.col_offset + 1
    for child in ast.iter_child_nodes(node):
        _place(child, node if isinstance(node, ast.stmt) else at)


class Resumed:
    """Builds the statements that take up a nest at the statement whose number is `.at`."""

    def __init__(self, nest: DetectedNest) -> None:
        self.labels = nest.labels
        self.loop = nest.loop
        loops = sorted((n for n in nest.labels if isinstance(n, ast.For)), key=nest.labels.__getitem__)
        self.counters: dict[ast.AST, int] = {loop: k for k, loop in enumerate(loops, 1)}

    def whole(self) -> list[ast.stmt]:
        """Return the statements: what is left of one iteration, then the loop as it was written."""
        loop, label = self.loop, self.labels[self.loop]
        if isinstance(loop, ast.While):
            test = ast.If(self.reached({label}), [self.reset(), ast.If(
                ast.UnaryOp(ast.Not(), loop.test), [ast.Break()], [])], [])
            once: ast.stmt = ast.For(
                _name(".once", ast.Store()), _constant((0,)), [test, *self.block(loop.body)],
                [ast.While(loop.test, loop.body, [])])
            return [once]
        k = self.counters[loop]
        following = ast.BinOp(_name(f".c{k}"), ast.Add(), _name(f".s{k}"))
        rest = self.remaining(loop, following)
        first = ast.For(_name(".once", ast.Store()), _constant((0,)), self.block(loop.body),
                        [ast.For(loop.target, rest, loop.body, [])])
        return [ast.If(self.reached({label}), [loop], [first])]

    def remaining(self, loop: ast.For, start: ast.expr) -> ast.expr:
        """Return what a loop still has to go through, from `start` on."""
        k = self.counters[loop]
        if isinstance(loop.iter, ast.Name):
            return ast.Subscript(loop.iter, ast.Slice(start, None, None), ast.Load())
        return ast.Call(_constant(RANGE), [start, _name(f".e{k}"), _name(f".s{k}")], [])

    def inside(self, nodes: Sequence[ast.AST]) -> set[int]:
        """Return the numbers of all statements in `nodes`."""
        return {self.labels[n] for each in nodes for n in ast.walk(each) if n in self.labels}

    def reached(self, labels: set[int]) -> ast.expr:
        """Return the test whether the statement to go on with is one of `labels`."""
        return ast.Compare(_name(AT), [ast.In()], [_constant(tuple(sorted(labels)))])

    def reset(self) -> ast.stmt:
        """Return the statement after which all statements are done."""
        return ast.Assign([_name(AT, ast.Store())], _constant(0))

    def block(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        """Return the statements of a block, each behind its guard."""
        return [self.guarded(each) for each in body]

    def guarded(self, node: ast.stmt) -> ast.stmt:
        """Return a statement that is skipped as long as the one to go on with is not reached."""
        label = self.labels[node]
        test = self.reached({0} | self.inside([node]))
        going = ast.Compare(_name(AT), [ast.Eq()], [_constant(0)])
        start = ast.If(self.reached({label}), [self.reset()], [])
        match node:
            case ast.If(test=condition, body=body, orelse=orelse):
                inner = ast.IfExp(going, condition, self.reached(self.inside(body)))
                return ast.If(test, [start, ast.If(inner, self.block(body), self.block(orelse))], [])
            case ast.While(test=condition, body=body):
                inner = ast.IfExp(going, condition, _constant(True))
                return ast.If(test, [start, ast.While(inner, self.block(body), [])], [])
            case ast.For(target=target, iter=source, body=body):
                k = self.counters[node]
                fresh = self.reached({0, label})
                source = ast.IfExp(fresh, source, self.remaining(node, _name(f".c{k}")))
                assert isinstance(target, ast.Name)
                take = ast.If(going, [ast.Assign([target], _name(f".i{k}"))], [])
                loop = ast.For(_name(f".i{k}", ast.Store()), source, [take, *self.block(body)], [])
                return ast.If(test, [start, loop], [])
        # not by a statement: CPython 3.11 would report an unbound name of the next line as one of that
        reset = ast.NamedExpr(_name(AT, ast.Store()), ast.Constant(0))
        return ast.If(ast.BoolOp(ast.And(), [test, ast.UnaryOp(ast.Not(), reset)]), [node], [])
