"""Make a differing module small: leave out definitions, statements, decorators; put parts in place of wholes."""

from __future__ import annotations

import ast
import copy
import time
from collections.abc import Callable

Change = Callable[[ast.Module], bool]  # of a tree, in place; whether anything came of it
Step = Callable[[ast.Module], list[Change]]
BODIES = ("body", "orelse", "handlers", "finalbody", "decorator_list")


def shrink(source: str, fails: Callable[[str], bool], seconds: float = 60.0) -> str:
    """Return the smallest source found in a time for which `fails` still holds."""
    end = time.monotonic() + seconds
    best, size = ast.unparse(ast.parse(source)), -1
    if not fails(best):
        return source
    while size != len(best) and time.monotonic() < end:
        size = len(best)
        for step in (_runs, _statements, _parts, _expressions):
            best = _descend(best, step, fails, end)
    return best


def _descend(source: str, step: Step, fails: Callable[[str], bool], end: float) -> str:
    """Take a step wherever it leads to something smaller that fails; go on behind the last place."""
    tree, at = ast.parse(source), 0
    changes = step(tree)
    while at < len(changes) and time.monotonic() < end:
        other = copy.deepcopy(tree)
        text = _text(other) if changes[at](other) else None
        if text is not None and len(text) < len(source) and fails(text):
            source, tree = text, ast.parse(text)
            changes = step(tree)
        else:
            at += 1
    return source


def _text(tree: ast.Module) -> str | None:
    for node in ast.walk(tree):
        for name in ("body", "finalbody", "handlers"):
            held = getattr(node, name, None)
            if held == [] and name == "body":
                node.body = [ast.Pass()]  # type: ignore[attr-defined]
        if isinstance(node, ast.Try) and not node.handlers and not node.finalbody:
            node.finalbody = [ast.Pass()]
            node.orelse = []
    try:
        text = ast.unparse(ast.fix_missing_locations(tree))
        compile(text, "small", "exec")
    except (SyntaxError, ValueError, AttributeError, TypeError):
        return None
    return None if text.count(".start()") > text.count(".join()") else text  # nobody waits for a thread


def _lists(tree: ast.Module) -> list[list[ast.AST]]:
    found = []
    for node in ast.walk(tree):
        for name in BODIES:
            held = getattr(node, name, None)
            if isinstance(held, list) and held:
                found.append(held)
    return found


def _runs(tree: ast.Module) -> list[Change]:
    """Leave out halves, quarters and eighths of all bodies."""
    def without(place: int, start: int, width: int) -> Change:
        def change(other: ast.Module) -> bool:
            del _lists(other)[place][start:start + width]
            return True

        return change

    found = []
    for place, body in enumerate(_lists(tree)):
        length = len(body)
        for width in sorted({length // 2, length // 4, length // 8} - {0, 1}, reverse=True):
            found += [without(place, start, width) for start in reversed(range(0, length, width))]
    return found


def _statements(tree: ast.Module) -> list[Change]:
    """Leave out one statement, handler or decorator."""
    def without(place: int, at: int) -> Change:
        def change(other: ast.Module) -> bool:
            del _lists(other)[place][at]
            return True

        return change

    return [without(place, at) for place, body in reversed(list(enumerate(_lists(tree))))
            for at in reversed(range(len(body))) if not (len(body) == 1 and isinstance(body[0], ast.Pass))]


def _parts(tree: ast.Module) -> list[Change]:
    """Put the body of a compound statement in its place."""
    def instead(place: int, at: int, name: str) -> Change:
        def change(other: ast.Module) -> bool:
            held = _lists(other)[place]
            held[at:at + 1] = getattr(held[at], name)
            return True

        return change

    return [instead(place, at, name) for place, body in enumerate(_lists(tree)) for at, line in enumerate(body)
            if isinstance(line, (ast.If, ast.For, ast.While, ast.Try, ast.With))
            for name in ("body", "orelse", "finalbody") if getattr(line, name, None)]


def _expressions(tree: ast.Module) -> list[Change]:
    """Put an operand in the place of an expression, or leave out an argument or element."""
    def operand(n: int, k: int) -> Change:
        def change(other: ast.Module) -> bool:
            target = _expression(other, n)
            return _replace(other, target, _operands(target)[k])

        return change

    def without(n: int, k: int) -> Change:
        def change(other: ast.Module) -> bool:
            del _elements(_expression(other, n))[k]
            return True

        return change

    found = []
    for n, node in enumerate([node for node in ast.walk(tree) if isinstance(node, ast.expr)]):
        found += [operand(n, k) for k in range(len(_operands(node)))]
        found += [without(n, k) for k in range(len(_elements(node)))]
    return found


def _operands(node: ast.AST) -> list[ast.AST]:
    return [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]


def _elements(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Call):
        return node.args
    return node.elts if isinstance(node, (ast.List, ast.Tuple)) else []


def _expression(tree: ast.Module, n: int) -> ast.expr:
    return [node for node in ast.walk(tree) if isinstance(node, ast.expr)][n]


def _replace(tree: ast.Module, old: ast.AST, new: ast.AST) -> bool:
    for node in ast.walk(tree):
        for name, held in ast.iter_fields(node):
            if held is old:
                setattr(node, name, new)
                return True
            if isinstance(held, list) and any(each is old for each in held):
                held[[each is old for each in held].index(True)] = new
                return True
    return False
