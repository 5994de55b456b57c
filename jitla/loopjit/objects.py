"""Objects of classes of the user's in loops: which attributes methods use, and what reads and stores do."""

from __future__ import annotations

import ast
from functools import lru_cache
from types import FunctionType
from typing import Any

from jitla.instrument import syntax_tree_of

MAX_METHODS = 32  # that methods call, each other included


class OpaqueField:
    """Stands for the value of an attribute whose reads or stores may do more."""


def calls_methods(loop: ast.AST) -> bool:
    """Return whether a loop calls a method of a name."""
    return any(isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
               and isinstance(node.func.value, ast.Name) for node in ast.walk(loop))


def method_of(kind: type, name: str) -> FunctionType | None:
    """Return the method of a class, or None if the attribute is something else."""
    for base in kind.__mro__:
        found = vars(base).get(name)
        if found is not None:
            return found if type(found) is FunctionType else None
    return None


def is_plain_field(kind: type, name: str) -> bool:
    """Return whether an attribute of the objects of a class is read and stored in their dictionaries only."""
    if any(getattr(kind, hook) is not getattr(object, hook) for hook in ("__getattribute__", "__setattr__")):
        return False
    return not any(name in vars(base) for base in kind.__mro__)


@lru_cache(1024)
def function_names(kind: type) -> frozenset[str]:
    """Return the names of the functions and properties of a class."""
    return frozenset(name for base in kind.__mro__ for name, value in vars(base).items()
                     if hasattr(value, "__get__"))


def is_plain_object(value: Any) -> bool:
    """Return whether attributes of an object are in its dictionary, and none of them hides a method."""
    kind: Any = type(value)
    fields = getattr(value, "__dict__", None)
    own: Any = kind.__getattribute__
    return type(kind) is type and own is object.__getattribute__ and type(fields) is dict \
        and function_names(kind).isdisjoint(fields)


def fields_of_parameter(body: list[ast.stmt], parameter: str) -> tuple[set[str], set[str]]:
    """Return the attributes that statements use of a parameter, and the methods that they call of it."""
    fields: set[str] = set()
    methods: set[str] = set()
    nodes = [node for statement in body for node in ast.walk(statement)]
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) \
                and node.value.id == parameter:
            (methods if id(node) in called else fields).add(node.attr)
    return fields, methods


def fields_of_method(kind: type, name: str) -> list[str]:
    """Return the attributes that a method, and the methods that it calls of the same object, use."""
    found: set[str] = set()
    pending = [name]
    seen: set[str] = set()
    while pending and len(seen) < MAX_METHODS:
        method = pending.pop()
        function = method_of(kind, method)
        if method in seen or function is None:
            continue
        seen.add(method)
        source = syntax_tree_of(function)
        if source is None or not isinstance(source.node, ast.FunctionDef):
            continue
        args = [*source.node.args.posonlyargs, *source.node.args.args]
        if args:
            fields, methods = fields_of_parameter(source.node.body, args[0].arg)
            found |= {field for field in fields if is_plain_field(kind, field)}
            pending += methods
    return sorted(found)


def stored_field(value: Any, name: str, missing: Any) -> Any:
    """Return an attribute that a loop may assign, `missing` if there is none yet."""
    if not is_plain_object(value) or not is_plain_field(type(value), name):
        return OpaqueField
    return value.__dict__.get(name, missing)
