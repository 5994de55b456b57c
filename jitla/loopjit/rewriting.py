"""Rewriting of functions with loops: compiled code may run any part of the iterations of each loop.

A loop becomes a loop over parts: before each part a `LoopRun` is asked with the variables that the loop
reads. It either runs iterations by compiled code, and returns the variables as they are then, or returns
None; after that Python runs the iterations of `part`, by the statements as they were written. Where nothing
observes when what the loop goes through is evaluated, `LoopSite.enter` is given it and the variables at once:
it returns the run, and the variables if compiled code has run iterations already.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeGuard

from jitla.classes import dataclass
from jitla.instrument import walk_tree

#: Exits that every program has: the part is done; the loop is done; it was left by ``break``.
PART_DONE, LOOP_DONE, LOOP_BROKEN = 0, 1, 2
#: Names of what programs are entered with beside variables: the first iteration and the end of a part, the
#: begin of ranges by number, arrays that are gone through by number. The position is that of the iteration.
BEGIN, LIMIT, POSITION, START, SEQUENCE = ".begin", ".limit", ".n", ".start", ".sequence"
#: Prefix of identifiers in the templates that become names with a dot, which no program has.
_HIDDEN = "jitla_hidden_"
FIELD_DOT = "__field__"  # instead of the dot in names of results that are attributes
UNASSIGNED_KEY = "\0loops unassigned"


class Unassigned:
    """Stands for the value of a variable that compiled code did not assign."""


@dataclass(frozen=True)
class RewrittenLoop:
    """A loop to rewrite: the constant that its `LoopSite` replaces, arguments, results, and terminal
    statements; and the number of arguments of `LoopSite.enter` before those, -1 if it is not called.
    """

    node: ast.For | ast.While
    key: str
    arguments: tuple[str, ...]
    results: tuple[str, ...]
    terminals: tuple[ast.stmt, ...]
    source_arguments: int = -1


# A loop ends by a deletion: CPython would report errors of a variable that is read behind an assignment at
# its line.
_FOR = """
hidden_out, hidden_run = {begin}
hidden_more = True
while hidden_more:
    if hidden_out is None:
        hidden_out = hidden_run.run(({arguments}))
    hidden_more = hidden_run.more
    if hidden_out is not None:
        {unpack} = hidden_out
        hidden_out = None
        hidden_ASSIGN
        if hidden_exit == {broken}:
            break
        hidden_TERMINALS
    for hidden_TARGET in hidden_run.part:
        hidden_BODY
    else:
        continue
    break
else:
    hidden_ORELSE
del hidden_run
"""

_WHILE = """
hidden_out, hidden_run = {begin}
hidden_more = True
while hidden_more:
    if hidden_out is None:
        hidden_out = hidden_run.run(({arguments}))
    hidden_more = hidden_run.more
    if hidden_out is not None:
        {unpack} = hidden_out
        hidden_out = None
        hidden_ASSIGN
        if hidden_exit == {broken}:
            break
        hidden_TERMINALS
    for hidden_count in hidden_run.part:
        if not hidden_TEST:
            hidden_run.finish(hidden_count)
            hidden_more = False
            break
        hidden_BODY
    else:
        continue
    if hidden_more:
        break
else:
    hidden_ORELSE
del hidden_run
"""


def rewrite(function: ast.AST, loops: Sequence[RewrittenLoop]) -> None:
    """Replace loops in the body of a function, in place."""
    replaced = {loop.node: _statements(loop) for loop in loops}
    for node in walk_tree(function):
        for field in ("body", "orelse", "finalbody"):
            body = getattr(node, field, None)
            if isinstance(body, list) and any(statement in replaced for statement in body):
                setattr(node, field,
                        [part for statement in body for part in replaced.get(statement, [statement])])


def _statements(loop: RewrittenLoop) -> list[ast.stmt]:
    node = loop.node
    arguments = "".join(f"{name}, " for name in loop.arguments)
    unpack = "".join(f"{_HIDDEN}new_{name.replace('.', FIELD_DOT)}, " for name in loop.results)
    template = (_FOR if isinstance(node, ast.For) else _WHILE).replace("hidden_", _HIDDEN)
    expressions: dict[str, ast.expr] = {"TEST": node.test} if isinstance(node, ast.While) else {
        "TARGET": node.target}
    text = template.format(
        begin=_beginning(loop, expressions, arguments), key=loop.key, arguments=arguments,
        unpack=f"{_HIDDEN}exit, {unpack}",
        broken=LOOP_BROKEN)
    tree = ast.parse(text.replace("\0", "\\0"))
    parts: dict[str, list[ast.stmt]] = {
        "ASSIGN": [_assignment(name) for name in loop.results] or [ast.Pass()],
        "TERMINALS": [_terminal(k, terminal) for k, terminal in enumerate(loop.terminals)],
        "BODY": node.body, "ORELSE": node.orelse or [ast.Pass()]}
    _Filling(parts, expressions).visit(tree)
    _place(tree, node, {id(part) for body in (node.body, node.orelse, *loop.terminals) for part in (
        body if isinstance(body, list) else [body])} | {id(part) for part in expressions.values()})
    return tree.body


def _beginning(loop: RewrittenLoop, expressions: dict[str, ast.expr], arguments: str) -> str:
    """Return the text that begins the run of a loop; `expressions` are those that its words stand for."""
    node = loop.node
    if loop.source_arguments >= 0:
        parts = () if isinstance(node, ast.While) else (
            node.iter.func, *node.iter.args) if isinstance(node.iter, ast.Call) \
            and loop.source_arguments > 1 else (node.iter,)
        words = "".join(f"{_word(part, expressions)}, " for part in parts)
        return f"'{loop.key}'.enter({words}{arguments})"
    if isinstance(node, ast.While):
        return f"None, '{loop.key}'.begin_while()"
    if _is_source_call(node.iter):
        return "None, " + _source_call(f"'{loop.key}'.begin_call", loop.key, node.iter, expressions)
    return f"None, '{loop.key}'.begin_over({_word(node.iter, expressions)})"


def count_source_arguments(node: ast.For | ast.While, rebound: Callable[[str], bool]) -> int:
    """Return the number of arguments of `LoopSite.enter` for what a loop goes through; -1 if it needs others.

    Variables are read before a range is made, so its function has to be the builtin one: `rebound` returns
    whether a name is another thing.
    """
    if isinstance(node, ast.While):
        return 0
    call = node.iter
    if not _is_source_call(call):
        return 1
    assert isinstance(call.func, ast.Name)
    if call.keywords or call.func.id not in ("range", "enumerate", "zip") or rebound(call.func.id) or any(
            _is_source_call(arg) and isinstance(arg.func, ast.Name) and arg.func.id in _NESTED
            for arg in call.args):
        return -1
    return 1 + len(call.args)


#: Functions whose calls within others are not done before the loop begins.
_NESTED = frozenset({"range", "zip", "enumerate", "reversed"})


def _is_source_call(node: ast.expr) -> TypeGuard[ast.Call]:
    """Return whether an expression is a call that may be what a loop goes through."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and all(
        keyword.arg == "strict" for keyword in node.keywords) and not any(
        isinstance(arg, ast.Starred) for arg in node.args)


def _source_call(begin: str, key: str, call: ast.Call, expressions: dict[str, ast.expr]) -> str:
    """Return the text of ``begin(function, arguments)`` for a call, where calls among the arguments are
    `nested`.
    """
    parts = [_word(call.func, expressions)]
    for arg in call.args:
        if _is_source_call(arg) and isinstance(arg.func, ast.Name) and arg.func.id in _NESTED:
            parts.append(_source_call(f"'{key}'.nested", key, arg, expressions))
        else:
            parts.append(_word(arg, expressions))
    parts += [f"{keyword.arg}={_word(keyword.value, expressions)}" for keyword in call.keywords]
    return f"{begin}({', '.join(parts)})"


def _word(node: ast.expr, expressions: dict[str, ast.expr]) -> str:
    """Return a new word that stands for an expression."""
    word = f"EXPRESSION{len(expressions)}"
    expressions[word] = node
    return f"{_HIDDEN}{word}"


def _assignment(name: str) -> ast.stmt:
    """Return the statement that assigns a result, a variable or an attribute, if the compiled code has
    assigned it.
    """
    hidden = f".new_{name.replace('.', FIELD_DOT)}"
    test = ast.Compare(ast.Name(hidden, ast.Load()), [ast.IsNot()], [ast.Constant(UNASSIGNED_KEY)])
    owner, _, field = name.partition(".")
    target = ast.Attribute(ast.Name(owner, ast.Load()), field, ast.Store()) if field else ast.Name(
        name, ast.Store())
    return ast.If(test, [ast.Assign([target], ast.Name(hidden, ast.Load()))], [])


def _terminal(number: int, statement: ast.stmt) -> ast.stmt:
    """Return the statement that does a terminal statement if the loop was left by it."""
    test = ast.Compare(ast.Name(".exit", ast.Load()), [ast.Eq()], [ast.Constant(-1 - number)])
    return ast.If(test, [statement], [])


class _Filling(ast.NodeTransformer):
    """Puts statements and expressions for the words of a template, and gives hidden names their dot."""

    def __init__(self, parts: Mapping[str, list[ast.stmt]], expressions: dict[str, ast.expr]) -> None:
        self._parts = parts
        self._expressions = expressions

    def visit_Expr(self, node: ast.Expr) -> Any:
        """Return the statements that a word stands for; they are not visited."""
        if isinstance(node.value, ast.Name):
            return self._parts[node.value.id.removeprefix(_HIDDEN)]
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> Any:
        """Return the expression that a word stands for, or a hidden name."""
        if not node.id.startswith(_HIDDEN):
            return node
        word = node.id.removeprefix(_HIDDEN)
        return self._expressions.get(word) or ast.Name(f".{word}", node.ctx)


def _place(node: ast.AST, at: ast.stmt, kept: set[int]) -> None:
    """Give new nodes the first line of `at`; those of the program keep their places."""
    if id(node) in kept:
        return
    if isinstance(node, (ast.expr, ast.stmt, ast.excepthandler)):
        node.lineno = node.end_lineno = at.lineno
        node.col_offset, node.end_col_offset = at.col_offset, at.col_offset + 1
    for child in ast.iter_child_nodes(node):
        _place(child, at, kept)


CONSTANTS: dict[str, Any] = {UNASSIGNED_KEY: Unassigned}
