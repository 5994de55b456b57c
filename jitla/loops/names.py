"""Names in loops over elements: which are read, assigned, called.

Knows: syntax trees. Must not know: what may be in a nest, values.
Receives trees; yields names, and nodes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

Loop = ast.For | ast.While
# Where they are reached, the interpreter goes on.
EXITS = (ast.Return, ast.Raise)
ATTRIBUTES = frozenset({"shape", "size", "ndim"})


def assigned(target: ast.expr) -> Iterator[str]:
    """Yield the names that a target assigns."""
    match target:
        case ast.Name(id=name):
            yield name
        case ast.Tuple(elts=elts) | ast.List(elts=elts):
            for each in elts:
                yield from assigned(each)
        case ast.Starred(value=value):
            yield from assigned(value)


def computed(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all that is in a loop but what only the interpreter does: where it is left."""
    yield node
    if not isinstance(node, EXITS):
        for child in ast.iter_child_nodes(node):
            yield from computed(child)


def loads(node: ast.Name) -> bool:
    """Say whether a name is read."""
    return isinstance(node.ctx, ast.Load)


def named(loop: Loop) -> Iterator[str]:
    """Yield the names of functions and modules."""
    for node in computed(loop):
        match node:
            case ast.Call(func=ast.Name(id=name)):
                yield name
            case ast.Attribute(value=ast.Name(id=name), attr=attr) if attr not in ATTRIBUTES:
                yield name


def reads(loop: Loop) -> Iterator[str]:
    """Yield the names that are read for what they hold; not those of functions and modules."""
    nodes = list(computed(loop))
    others = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    others |= {id(node.value) for node in nodes
               if isinstance(node, ast.Attribute) and node.attr not in ATTRIBUTES}
    others |= {id(node.annotation) for node in nodes if isinstance(node, ast.AnnAssign)}
    for node in nodes:
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
        elif isinstance(node, ast.Name) and loads(node) and id(node) not in others:
            yield node.id


def read_outside(node: ast.AST, loop: Loop) -> set[str]:
    """Return the names that a function reads, or deletes, outside of a loop, or where it leaves it."""
    if node is loop:
        outs = (each for each in ast.walk(loop) if isinstance(each, EXITS))
        return {part.id for each in outs for part in ast.walk(each)
                if isinstance(part, ast.Name) and loads(part)}
    found: set[str] = set()
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store):
        found.add(node.id)
    elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        found.add(node.target.id)
    return found.union(*(read_outside(child, loop) for child in ast.iter_child_nodes(node)))


def chain(node: ast.expr) -> tuple[ast.expr, list[ast.expr]]:
    """Return what is indexed, once or in turn, and all its indices."""
    indices: list[ast.expr] = []
    while isinstance(node, ast.Subscript):
        part = node.slice
        indices = [*(part.elts if isinstance(part, ast.Tuple) else [part]), *indices]
        node = node.value
    return node, indices
