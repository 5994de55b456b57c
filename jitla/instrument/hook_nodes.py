"""Syntax-tree nodes that call hooks: methods of the tracer in place of operations of the user's code."""

from __future__ import annotations

import ast
import functools
import operator
from typing import Any, TypeVar

import numpy as np

__all__ = ["BARRIER", "CONSTANTS", "HOOKS", "SCALAR_TYPES", "PROXY", "AttributeTarget", "ItemTarget"]

AnyNode = TypeVar("AnyNode", bound=ast.AST)
# A foreign callable without effect: calling it flushes pending operations as every foreign call does.
BARRIER = functools.partial(int)

# Immutable types: an in-place operation makes a new object, and operators run only code of Python and NumPy.
SCALAR_TYPES = frozenset({int, float, bool, complex, str, *(np.dtype(c).type for c in "?bhilBHILfdFD")})
_CONSTANT_NAMES = {BARRIER: "barrier", SCALAR_TYPES: "numbers"}


class ItemTarget:
    """Replacement of `obj[key]` as one of several assignment targets: stores through the hook."""

    __slots__ = ("_hook", "_obj", "_key")

    def __init__(self, hook: Any, obj: Any, key: Any) -> None:
        self._hook = hook
        self._obj = obj
        self._key = key

    def _store(self, value: Any) -> None:
        self._hook.setitem(value, self._obj, self._key)

    value = property(None, _store)


class AttributeTarget(ItemTarget):
    """Replacement of `obj.name` as one of several assignment targets."""

    __slots__ = ()

    def _store(self, value: Any) -> None:
        self._hook.setattr(value, self._obj, self._key)

    value = property(None, _store)


# Objects that instrumented code uses without a name that the user could shadow: the compiler sees the string,
# and the code object gets the value. They are hashable, so that code objects stay hashable.
CONSTANTS: dict[str, Any] = {
    f"\0jitla {value.__name__}": value
    for value in (
        slice, type, ItemTarget, AttributeTarget,
        operator.iadd, operator.isub, operator.imul, operator.imatmul, operator.itruediv,
        operator.ifloordiv, operator.imod, operator.ipow, operator.ilshift, operator.irshift,
        operator.iand, operator.ior, operator.ixor,
    )
} | {"\0jitla barrier": BARRIER, "\0jitla numbers": SCALAR_TYPES}  # fmt: skip
# Placeholder of the object whose methods are the hooks, replaced when the tree is compiled. It is a constant,
# not a variable: the frame of an instrumented function has exactly the variables of the user's function.
HOOKS = "\0jitla hooks"
# Placeholder of the class of proxies, whose operators run no user code.
PROXY = "\0jitla proxy"

INPLACE = {
    ast.Add: operator.iadd, ast.Sub: operator.isub, ast.Mult: operator.imul,
    ast.MatMult: operator.imatmul, ast.Div: operator.itruediv, ast.FloorDiv: operator.ifloordiv,
    ast.Mod: operator.imod, ast.Pow: operator.ipow, ast.LShift: operator.ilshift,
    ast.RShift: operator.irshift, ast.BitAnd: operator.iand, ast.BitOr: operator.ior,
    ast.BitXor: operator.ixor,
}  # fmt: skip


def constant(value: Any) -> ast.expr:
    """Return the node of one of the objects of `CONSTANTS`, of the class of proxies, or of the hooks."""
    if value is PROXY or value is HOOKS:
        return ast.Constant(value)
    return ast.Constant(f"\0jitla {_CONSTANT_NAMES.get(value) or value.__name__}")


def hook(name: str, args: list[ast.expr], at: ast.AST) -> ast.Call:
    """Return a call of the hook `name`, with the source position of `at`."""
    # all on the first line: CPython gives the call of a method the line where its name ends
    owner = place_at_start(constant(HOOKS), at)
    function = place_at_start(ast.Attribute(owner, name, ast.Load()), at)
    return copy_position(ast.Call(function, args, []), at)


def rewrite_identity(node: ast.Compare) -> ast.expr:
    """Rewrite ``a is b`` where both may be arrays: an array and its proxy are one object."""
    match node:
        case ast.Compare(left=ast.Constant()) | ast.Compare(comparators=[ast.Constant()]):
            return node
        case ast.Compare(left=left, ops=[ast.Is()], comparators=[right]):
            return hook("is_same", [left, right], node)
        case ast.Compare(left=left, ops=[ast.IsNot()], comparators=[right]):
            return copy_position(ast.UnaryOp(ast.Not(), hook("is_same", [left, right], node)), node)
    return node


def hook_statement(name: str, args: list[ast.expr], at: ast.AST) -> ast.stmt:
    """Return a statement that calls the hook `name`."""
    return copy_position(ast.Expr(hook(name, args, at)), at)


def barrier(at: ast.AST) -> ast.stmt:
    """Return a statement that flushes pending operations as a foreign call does."""
    call = ast.Call(hook("call", [constant(BARRIER)], at), [], [])
    return copy_position(ast.Expr(copy_position(call, at)), at)


def key_expression(index: ast.expr) -> ast.expr:
    """Return the expression of a subscript's key: slices are built by a call of `slice`."""
    match index:
        case ast.Slice(lower=lower, upper=upper, step=step):
            parts = [part or ast.Constant(None) for part in (lower, upper, step)]
            return copy_position(ast.Call(constant(slice), parts, []), index)
        case ast.Tuple(elts=elts):
            return copy_position(ast.Tuple([key_expression(elt) for elt in elts], ast.Load()), index)
    return index


def item_target(obj: ast.expr, key: ast.expr, at: ast.AST) -> ast.expr:
    """Return a target that stores into `obj[key]` through the hook."""
    return _target(ItemTarget, obj, key, at)


def attribute_target(obj: ast.expr, name: str, at: ast.AST) -> ast.expr:
    """Return a target that stores into `obj.name` through the hook."""
    return _target(AttributeTarget, obj, ast.Constant(name), at)


def _target(kind: type, obj: ast.expr, key: ast.expr, at: ast.AST) -> ast.expr:
    call = ast.Call(constant(kind), [constant(HOOKS), obj, key], [])
    return copy_position(ast.Attribute(copy_position(call, at), "value", ast.Store()), at)


def place_at_start(node: AnyNode, at: ast.AST) -> AnyNode:
    """Give `node` a position at the beginning of `at`."""
    node.lineno = node.end_lineno = at.lineno  # type: ignore[attr-defined]
    node.col_offset = at.col_offset  # type: ignore[attr-defined]
    node.end_col_offset = node.col_offset + 1  # type: ignore[attr-defined]
    return node


def first_line_of(node: ast.AST) -> ast.AST:
    """Return a node with the position of the first line of `node`, without its body."""
    return place_at_start(ast.Pass(), node)


def name_position(node: ast.Attribute) -> ast.AST:
    """Return a node with the position of an attribute's name: CPython gives stores to it that line."""
    at = ast.Pass()
    at.lineno = at.end_lineno = node.end_lineno or node.lineno
    is_one_line = at.lineno == node.lineno
    at.col_offset = node.col_offset if is_one_line else 0
    at.end_col_offset = node.end_col_offset or 0
    return at


def copy_position(node: AnyNode, at: ast.AST) -> AnyNode:
    """Give `node`, and those of its operands that have none, the position of `at`."""
    operands: list[ast.expr] = []
    match node:
        case ast.Call(func=function, args=args):
            operands = [function, *args]
        case ast.Tuple(elts=operands) | ast.Compare(comparators=operands):
            pass
    for each in operands:
        if not hasattr(each, "lineno"):
            ast.copy_location(each, at)
    return ast.copy_location(node, at)
