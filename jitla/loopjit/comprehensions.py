"""Comprehensions as loops that append to a list: their variables get names that no program has."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable
from functools import lru_cache

MAX_CACHED = 512


@lru_cache(MAX_CACHED)
def as_loop(node: ast.ListComp | ast.GeneratorExp) -> tuple[ast.stmt, str, frozenset[str]]:
    """Return the loop, the name of the list, and the names that the loop assigns."""
    name = f"list.{node.lineno}.{node.col_offset}"

    def append(element: ast.expr) -> ast.stmt:
        method = ast.Attribute(ast.Name(name, ast.Load()), "append", ast.Load())
        return ast.Expr(ast.Call(method, [element], []))

    statement, names = _loop(node, append)
    return statement, name, names


@lru_cache(MAX_CACHED)
def as_search(node: ast.GeneratorExp, is_any: bool) -> tuple[list[ast.stmt], str, frozenset[str]]:
    """Return the statements of ``any`` or ``all`` of a generator with one loop, the name of the result, and
    the names that they assign.
    """
    name = f"search.{node.lineno}.{node.col_offset}"

    def assign(value: bool) -> ast.stmt:
        return ast.copy_location(ast.Assign([ast.copy_location(ast.Name(name, ast.Store()), node)],
                                            ast.copy_location(ast.Constant(value), node)), node)

    def decide(element: ast.expr) -> ast.stmt:
        test = element if is_any else ast.UnaryOp(ast.Not(), element)
        return ast.If(test, [assign(is_any), ast.copy_location(ast.Break(), node)], [])

    statement, names = _loop(node, decide)
    return [assign(not is_any), statement], name, names


def _loop(node: ast.ListComp | ast.GeneratorExp,
          use: Callable[[ast.expr], ast.stmt]) -> tuple[ast.stmt, frozenset[str]]:
    """Return the loop over the items of a comprehension, each used by a statement."""
    place = f"{node.lineno}.{node.col_offset}"
    targets = {part.id for generator in node.generators for part in ast.walk(generator.target)
               if isinstance(part, ast.Name)}
    renaming = _Renaming({name: f"{name}.{place}" for name in targets})
    statement = use(renaming.visit(copy.deepcopy(node.elt)))
    for k, generator in reversed(list(enumerate(node.generators))):
        for test in reversed(generator.ifs):
            statement = ast.If(renaming.visit(copy.deepcopy(test)), [statement], [])
        source = copy.deepcopy(generator.iter)
        statement = ast.For(renaming.visit(copy.deepcopy(generator.target)),
                            renaming.visit(source) if k else source, [statement], [])
    for part in ast.walk(statement):
        if isinstance(part, (ast.expr, ast.stmt)) and not hasattr(part, "lineno"):
            ast.copy_location(part, node)
    return statement, frozenset(renaming.names.values())


class _Renaming(ast.NodeTransformer):
    """Gives names other names."""

    def __init__(self, names: dict[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        """Rename a use of a name."""
        node.id = self.names.get(node.id, node.id)
        return node
