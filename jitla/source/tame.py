"""Which local names hold arrays and numbers only, provided that certain parameters do.

Knows: expressions whose value is an array or a number if their parts are. Must not know: hooks, arrays.
Receives a scope and its parameters; returns for each such name the parameters it rests on.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Mapping
from functools import reduce
from types import ModuleType

from jitla.source.scope import Binding, Scope
from jitla.source.static import MISSING, PLAIN_CALLS, Statics, plain_names

__all__ = ["Rests", "rests_on", "tame_names"]

# The parameters an expression rests on; None: it may be anything.
Rests = frozenset[str] | None
NOTHING: frozenset[str] = frozenset()
# Attributes of arrays that are arrays, numbers, or nothing that runs code.
ATTRIBUTES = frozenset({
    "shape", "size", "ndim", "dtype", "nbytes", "itemsize", "strides", "T", "mT", "real", "imag",
})  # fmt: skip
SAME_KIND = frozenset({"abs", "min", "max", "sum", "round", "divmod", "pow"})
ANSWERS = PLAIN_CALLS | {"isinstance", "issubclass", "callable"}
OBJECTS = frozenset({"object", "O", "object_"})


def tame_names(
    scope: Scope, parameters: Collection[str], statics: Statics
) -> dict[str, frozenset[str]]:
    """Return the tame names of `scope`, each with the parameters it rests on."""
    others = scope.captured | scope.globals | scope.nonlocals
    names = {  # in the order of the program: what a name rests on is mostly known before
        name: frozenset({name}) if name in parameters else NOTHING
        for name in scope.bindings if name not in others
    }
    changed = True
    while changed:
        changed = False
        for name, rested in list(names.items()):
            bindings: list[Binding] = list(scope.bindings[name])
            if name in parameters:
                bindings.remove(None)  # the argument
            rests = _all([rests_on(each, names, scope, statics) for each in bindings])
            if rests is None:
                del names[name]
            else:
                names[name] = rested | rests
            changed = changed or names.get(name) != rested
    return names


def rests_on(
    node: ast.AST | None, names: Mapping[str, frozenset[str]], scope: Scope, statics: Statics
) -> Rests:
    """Say which parameters `node` rests on if the tame names are `names`."""
    parts: Iterable[ast.AST | None]
    match node:
        case ast.Constant() | ast.JoinedStr() | ast.UnaryOp(op=ast.Not()):
            return NOTHING
        case ast.Name(id=name):
            if scope.resolve(name) == "local":
                return NOTHING if name in plain_names(scope, statics) else names.get(name)
            known = scope.resolve(name) == "global" and not statics.may_be_array(node, scope)
            return NOTHING if known else None
        case ast.BinOp(left=left, right=right):
            parts = (left, right)
        case ast.UnaryOp(operand=operand):
            parts = (operand,)
        case ast.Compare(left=left, comparators=others):
            parts = (left, *others)
        case ast.BoolOp(values=values):
            parts = values
        case ast.IfExp(body=body, orelse=orelse):
            parts = (body, orelse)
        case ast.Subscript(value=value, slice=key):
            parts = (value, *_keys(key))
        case ast.Attribute(value=value, attr=attr):
            if attr in ATTRIBUTES:
                return rests_on(value, names, scope, statics)
            path = statics.path(node, scope)
            return NOTHING if path and not statics.may_be_array(node, scope) else None
        case ast.Call():
            return _call(node, names, scope, statics)
        case _:
            return None
    return _all([rests_on(each, names, scope, statics) for each in parts])


def _all(parts: Iterable[Rests]) -> Rests:
    found = list(parts)
    if any(each is None for each in found):
        return None
    return reduce(frozenset.union, (each for each in found if each is not None), NOTHING)


def _keys(key: ast.expr) -> list[ast.expr]:
    match key:
        case ast.Slice(lower=lower, upper=upper, step=step):
            return [part for part in (lower, upper, step) if part is not None]
        case ast.Tuple(elts=elts):
            return [part for elt in elts for part in _keys(elt)]
    return [key]


def _call(
    node: ast.Call, names: Mapping[str, frozenset[str]], scope: Scope, statics: Statics
) -> Rests:
    if any(keyword.arg is None for keyword in node.keywords):
        return None
    arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
    given = [part for each in arguments for part in _given(each)]
    if any(map(_is_object, given)) or any(map(_is_record, arguments)):
        return None
    match node.func:
        case ast.Name(id=name) if name in ANSWERS and statics.is_builtin(name, scope):
            return NOTHING
        case ast.Name(id=name) if name in SAME_KIND and statics.is_builtin(name, scope):
            pass
        case _ if statics.is_numpy_call(node, scope):
            pass
        case ast.Attribute(attr="view") if not all(isinstance(each, ast.Constant) for each in given):
            return None  # it may be that of a subclass
        case ast.Attribute(value=value, attr=attr) if attr[0] != "_" and not _is_of_others(
            statics.value(value, scope)
        ):
            given.append(value)
        case _:
            return None
    return _all([rests_on(each, names, scope, statics) for each in given])


def _is_of_others(owner: object) -> bool:
    """Tell whether what is known of an owner says that its functions may make anything: sparse matrices."""
    if owner is MISSING:
        return False
    made_by = owner.__name__ if isinstance(owner, ModuleType) else type(owner).__module__
    return made_by.partition(".")[0] not in ("builtins", "cmath", "math", "numpy")


def _given(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, (ast.Tuple, ast.List)):
        return [part for elt in node.elts for part in _given(elt)]
    return [node]


def _is_record(node: ast.expr) -> bool:
    """Say whether `node` is a dtype with fields: records compare themselves in a way of their own."""
    match node:
        case ast.Constant(value=str(text)):
            return "," in text
        case ast.List(elts=[ast.Tuple(elts=[ast.Constant(value=str()), *_]), *_]) | ast.Dict():
            return True
    return False


def _is_object(node: ast.expr) -> bool:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Constant(value=str(name)):
            return name in OBJECTS
    return False
