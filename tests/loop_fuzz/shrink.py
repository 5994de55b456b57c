"""Smaller programs with the same difference: statements and parts of expressions are taken away."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator


def shrink(text: str, fails: Callable[[str], bool]) -> str:
    """Return a smaller text that still fails."""
    tree = ast.parse(text)
    place = last = 0
    while True:
        length = len(ast.unparse(tree))
        number = -1
        for number, candidate in enumerate(_candidates(tree)):
            if number < place:
                continue
            try:
                new = ast.unparse(ast.fix_missing_locations(candidate))
                compile(new, "<shrunk>", "exec")
            except (ValueError, SyntaxError, RecursionError, AttributeError, TypeError):
                continue
            if len(new) < length and fails(new):
                tree = ast.parse(new)
                place = last = number
                break
        else:
            if not last:
                return ast.unparse(tree)
            place = last = 0


def _candidates(tree: ast.Module) -> Iterator[ast.Module]:
    """Yield trees with one change each: those that take away most first."""
    nodes = _nodes(tree)
    for number, node in enumerate(nodes):
        for name in ("body", "orelse"):
            body = getattr(node, name, None)
            if not isinstance(body, list):
                continue
            for k, statement in enumerate(body):
                yield _changed(
                    tree, number, lambda other, name=name, k=k: _delete(getattr(other, name), k)
                )
                if isinstance(statement, (ast.If, ast.For, ast.While)) and not isinstance(
                    node, ast.Module
                ):
                    yield _changed(
                        tree, number, lambda other, name=name, k=k: _hoist(getattr(other, name), k)
                    )
            if name == "orelse" and body:
                yield _changed(tree, number, lambda other: setattr(other, "orelse", []))
    for number, node in enumerate(nodes):
        for field, value in ast.iter_fields(node):
            values = value if isinstance(value, list) else [value]
            for k, part in enumerate(values):
                if not isinstance(part, ast.expr):
                    continue
                for child in range(
                    len([c for c in ast.walk(part) if isinstance(c, ast.expr)])
                    if _size(part) < 60
                    else 6
                ):
                    if child:
                        yield _changed(
                            tree,
                            number,
                            lambda other, field=field, k=k, child=child: _replace(
                                other, field, k, child
                            ),
                        )
                if not isinstance(part, (ast.Constant, ast.Name)):
                    for constant in (0, 1):
                        yield _changed(
                            tree,
                            number,
                            lambda other, field=field, k=k, constant=constant: _set(
                                other, field, k, ast.Constant(constant)
                            ),
                        )


def _nodes(tree: ast.Module) -> list[ast.AST]:
    """Return the nodes of the last function."""
    return [node for node in ast.walk(tree.body[-1]) if not isinstance(node, ast.arguments)]


def _size(node: ast.AST) -> int:
    return sum(1 for _ in ast.walk(node))


def _changed(tree: ast.Module, number: int, change: Callable[[ast.AST], None]) -> ast.Module:
    other = copy.deepcopy(tree)
    change(_nodes(other)[number])
    return other


def _delete(body: list[ast.stmt], k: int) -> None:
    del body[k]


def _hoist(body: list[ast.stmt], k: int) -> None:
    statement = body[k]
    assert isinstance(statement, (ast.If, ast.For, ast.While))
    body[k : k + 1] = [*statement.body, *statement.orelse]


def _set(node: ast.AST, field: str, k: int, new: ast.expr) -> None:
    value = getattr(node, field)
    if isinstance(value, list):
        value[k] = new
    else:
        setattr(node, field, new)


def _replace(node: ast.AST, field: str, k: int, child: int) -> None:
    value = getattr(node, field)
    part = value[k] if isinstance(value, list) else value
    parts = [c for c in ast.walk(part) if isinstance(c, ast.expr)]
    _set(node, field, k, parts[child])
