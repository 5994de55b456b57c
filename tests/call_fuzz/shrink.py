"""Make a differing module small: leave out definitions, statements, decorators; put parts in place of wholes."""

from __future__ import annotations

import ast
import copy
import time
from collections.abc import Callable, Iterator

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


def _descend(
    source: str, step: Callable[[ast.Module], Iterator[ast.Module]], fails: Callable[[str], bool], end: float,
) -> str:
    """Take a step wherever it leads to something smaller that fails; begin again after the place of the last one."""
    at, found = 0, True
    while found and time.monotonic() < end:
        found = False
        for n, tree in enumerate(step(ast.parse(source))):
            if n < at:
                continue
            if time.monotonic() > end:
                break
            text = _text(tree)
            if text is not None and len(text) < len(source) and fails(text):
                source, at, found = text, n, True
                break
        else:
            if at:
                at, found = 0, True
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
    return text


def _lists(tree: ast.Module) -> list[list[ast.AST]]:
    found = []
    for node in ast.walk(tree):
        for name in BODIES:
            held = getattr(node, name, None)
            if isinstance(held, list) and held:
                found.append(held)
    return found


def _runs(tree: ast.Module) -> Iterator[ast.Module]:
    """Leave out halves, quarters and eighths of all bodies."""
    for place, body in enumerate(_lists(tree)):
        length = len(body)
        for width in {length // 2, length // 4, length // 8} - {0, 1}:
            for start in range(0, length, width):
                other = copy.deepcopy(tree)
                del _lists(other)[place][start:start + width]
                yield other


def _statements(tree: ast.Module) -> Iterator[ast.Module]:
    """Leave out one statement, handler or decorator."""
    for place, body in reversed(list(enumerate(_lists(tree)))):
        for at in reversed(range(len(body))):
            if len(body) == 1 and isinstance(body[0], ast.Pass):
                continue
            other = copy.deepcopy(tree)
            del _lists(other)[place][at]
            yield other


def _parts(tree: ast.Module) -> Iterator[ast.Module]:
    """Put the body of a compound statement in its place."""
    for place, body in enumerate(_lists(tree)):
        for at, line in enumerate(body):
            for name in ("body", "orelse", "finalbody"):
                inner = getattr(line, name, None)
                if isinstance(line, (ast.If, ast.For, ast.While, ast.Try, ast.With)) and inner:
                    other = copy.deepcopy(tree)
                    held = _lists(other)[place]
                    held[at:at + 1] = getattr(held[at], name)
                    yield other


def _expressions(tree: ast.Module) -> Iterator[ast.Module]:
    """Put an operand in the place of an expression, or leave out an argument or element."""
    count = sum(1 for node in ast.walk(tree) if isinstance(node, ast.expr))
    for n in range(count):
        node = _expression(tree, n)
        options = len([c for c in ast.iter_child_nodes(node) if isinstance(c, ast.expr)])
        for k in range(options):
            other = copy.deepcopy(tree)
            target = _expression(other, n)
            child = [c for c in ast.iter_child_nodes(target) if isinstance(c, ast.expr)][k]
            if _replace(other, target, child):
                yield other
        if isinstance(node, (ast.Call, ast.List, ast.Tuple)):
            for k in range(len(node.args if isinstance(node, ast.Call) else node.elts)):
                other = copy.deepcopy(tree)
                target = _expression(other, n)
                del (target.args if isinstance(target, ast.Call) else target.elts)[k]  # type: ignore[attr-defined]
                yield other


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
