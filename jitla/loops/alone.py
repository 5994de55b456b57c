"""Loops that Python keeps: whether they are over elements only, so that tracing has nothing to win in them.

Knows: syntax trees. Must not know: why a loop was refused.
Receives the tree of a function and what its names stand for; returns a truth value.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from itertools import islice
from types import ModuleType
from typing import Any

import numpy as np

from jitla.loops.names import ATTRIBUTES, assigned

# Functions that make no arrays.
_PLAIN = frozenset({"len", "int", "float", "bool", "range", "dict", "list", "set", "str", "tuple", "math.log",
                    "math.sqrt", "math.exp"})

_BUILT_IN = int, float, complex, str, bytes, set, frozenset, range
# How many values of a collection are looked at.
_LOOKED_AT = 8


def alone(function: ast.AST, given: Mapping[str, Any]) -> bool:
    """Say whether the outermost loops of a function read single elements of what is given, and no more."""
    axes = {name: value.ndim for name, value in given.items() if type(value) is np.ndarray}
    numbers = {name for name, value in given.items() if isinstance(value, (int, float, np.generic))}
    ways = (name for name, value in given.items() if _has_arrays(value))
    made = {*_made_of_more(function, axes), *ways}
    return all(_single(loop, axes, numbers) and made.isdisjoint(_names(loop))
               for loop in _outermost(function))


def _has_arrays(value: Any) -> bool:
    """Say whether a value may be the way to arrays: an object, or a collection that begins with one."""
    if isinstance(value, (list, tuple, dict)):
        return any(isinstance(each, np.ndarray)
                   for each in islice(value.values() if isinstance(value, dict) else value, _LOOKED_AT))
    return not (value is None or callable(value)
                or isinstance(value, (np.ndarray, np.generic, ModuleType, *_BUILT_IN)))


def _names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _made_of_more(function: ast.AST, axes: Mapping[str, int]) -> Iterator[str]:
    """Yield variables that may be arrays: made before loops, of arrays or by functions that are not known."""
    for node in ast.iter_child_nodes(function):
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
            calls = {ast.unparse(part.func) for part in ast.walk(node) if isinstance(part, ast.Call)}
            if calls - _PLAIN or _names(node) & {*axes} and not calls and not _shapes(node):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                yield from (name for target in targets for name in assigned(target))
        elif not isinstance(node, (ast.For, ast.While)):
            yield from _made_of_more(node, axes)


def _shapes(node: ast.AST) -> bool:
    """Say whether a statement asks for a length, or for an element."""
    return any(isinstance(part, ast.Subscript) or isinstance(part, ast.Attribute) and part.attr in ATTRIBUTES
               for part in ast.walk(node))


def _outermost(node: ast.AST) -> Iterator[ast.For | ast.While]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.For, ast.While)):
            yield child
        else:
            yield from _outermost(child)


def _single(loop: ast.For | ast.While, axes: Mapping[str, int], numbers: set[str]) -> bool:
    counters = {name for node in ast.walk(loop) if isinstance(node, ast.For)
                for name in assigned(node.target)}
    elements: set[int] = set()
    for node in ast.walk(loop):
        if isinstance(node, (ast.Slice, ast.MatMult, ast.AsyncFor, ast.Await)):
            return False
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            indices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            if axes.get(node.value.id) == len(indices):
                elements.add(id(node.value))
        elif isinstance(node, ast.Attribute) and node.attr in ATTRIBUTES \
                or isinstance(node, ast.Call) and ast.unparse(node.func) in ("len", "range"):
            elements.update(id(part) for part in ast.walk(node) if isinstance(part, ast.Name))
    whole = (node for node in ast.walk(loop) if isinstance(node, ast.Name) and id(node) not in elements)
    if any(node.id in axes for node in whole):
        return False
    return all(_of_numbers(node, elements, counters | numbers) for node in ast.walk(loop)
               if isinstance(node, ast.Call))


def _of_numbers(call: ast.Call, elements: set[int], numbers: set[str]) -> bool:
    """Say whether a function of a module is given numbers; of others nothing is asked."""
    match call.func:
        case ast.Attribute(value=ast.Name(id="math" | "cmath")) | ast.Name():
            return True
        case ast.Attribute(value=ast.Name(id="np" | "numpy")):
            return all(id(node) in elements or node.id in numbers for arg in call.args
                       for node in ast.walk(arg) if isinstance(node, ast.Name))
        case ast.Attribute(attr="append" | "add" | "get" | "pop" | "extend" | "setdefault"):
            return True
    return False
