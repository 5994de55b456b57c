"""The pieces inserted into a twin: calls of hooks, and targets that store through a hook."""

from __future__ import annotations

import ast
import functools
import operator
from typing import Any, TypeVar

import numpy as np

__all__ = ["BARRIER", "CONSTANTS", "HOOKS", "NUMBERS", "PROXY", "AttributeTarget", "ItemTarget"]

N = TypeVar("N", bound=ast.AST)
# Something foreign to call: a call of it flushes whatever a foreign call flushes, and does nothing.
BARRIER = functools.partial(int)

# Of these an in-place operation makes another object; operators run no code but Python's and NumPy's.
NUMBERS = frozenset({int, float, bool, complex, str, *(np.dtype(c).type for c in "?bhilBHILfdFD")})
_NAMES = {BARRIER: "barrier", NUMBERS: "numbers"}


class ItemTarget:
    """What `obj[key]` becomes where it is one target among several: stores through the hook."""

    __slots__ = ("_hook", "_obj", "_key")

    def __init__(self, hook: Any, obj: Any, key: Any) -> None:
        self._hook = hook
        self._obj = obj
        self._key = key

    def _store(self, value: Any) -> None:
        self._hook.setitem(value, self._obj, self._key)

    value = property(None, _store)


class AttributeTarget(ItemTarget):
    """What `obj.name` becomes where it is one target among several."""

    __slots__ = ()

    def _store(self, value: Any) -> None:
        self._hook.setattr(value, self._obj, self._key)

    value = property(None, _store)


# Objects a twin needs without a name the user could shadow: the compiler sees the string, the code
# object gets the value. They are hashable, so that code objects stay hashable.
CONSTANTS: dict[str, Any] = {
    f"\0jitla {value.__name__}": value
    for value in (
        slice, type, ItemTarget, AttributeTarget,
        operator.iadd, operator.isub, operator.imul, operator.imatmul, operator.itruediv,
        operator.ifloordiv, operator.imod, operator.ipow, operator.ilshift, operator.irshift,
        operator.iand, operator.ior, operator.ixor,
    )
} | {"\0jitla barrier": BARRIER, "\0jitla numbers": NUMBERS}  # fmt: skip
# The object whose methods are the hooks, known to who makes the twins. It is no variable: the frame of a twin
# has the variables of the user's function.
HOOKS = "\0jitla hooks"
# The class of proxies, whose operators run no code of users; known to who makes the twins.
PROXY = "\0jitla proxy"

INPLACE = {
    ast.Add: operator.iadd, ast.Sub: operator.isub, ast.Mult: operator.imul,
    ast.MatMult: operator.imatmul, ast.Div: operator.itruediv, ast.FloorDiv: operator.ifloordiv,
    ast.Mod: operator.imod, ast.Pow: operator.ipow, ast.LShift: operator.ilshift,
    ast.RShift: operator.irshift, ast.BitAnd: operator.iand, ast.BitOr: operator.ior,
    ast.BitXor: operator.ixor,
}  # fmt: skip


def constant(value: Any) -> ast.expr:
    """Node that becomes one of the objects of `CONSTANTS`, the class of proxies, or the hooks."""
    if value is PROXY or value is HOOKS:
        return ast.Constant(value)
    return ast.Constant(f"\0jitla {_NAMES.get(value) or value.__name__}")


def hook(name: str, args: list[ast.expr], at: ast.AST) -> ast.Call:
    """Call of the hook `name`, with the source position of `at`."""
    # all on the first line: the call of a method gets the line where its name ends
    owner = first_line(constant(HOOKS), at)
    function = first_line(ast.Attribute(owner, name, ast.Load()), at)
    return placed(ast.Call(function, args, []), at)


def identity(node: ast.Compare) -> ast.expr:
    """Rewrite ``a is b`` where both may be arrays: an array and its proxy are one object."""
    match node:
        case ast.Compare(left=ast.Constant()) | ast.Compare(comparators=[ast.Constant()]):
            return node
        case ast.Compare(left=left, ops=[ast.Is()], comparators=[right]):
            return hook("same", [left, right], node)
        case ast.Compare(left=left, ops=[ast.IsNot()], comparators=[right]):
            return placed(ast.UnaryOp(ast.Not(), hook("same", [left, right], node)), node)
    return node


def hook_statement(name: str, args: list[ast.expr], at: ast.AST) -> ast.stmt:
    """Statement that calls the hook `name`."""
    return placed(ast.Expr(hook(name, args, at)), at)


def barrier(at: ast.AST) -> ast.stmt:
    """Statement that flushes as a call of something foreign does."""
    call = ast.Call(hook("call", [constant(BARRIER)], at), [], [])
    return placed(ast.Expr(placed(call, at)), at)


def key_of(index: ast.expr) -> ast.expr:
    """Expression of the key of a subscript: slices are built by a call of `slice`."""
    match index:
        case ast.Slice(lower=lower, upper=upper, step=step):
            parts = [part or ast.Constant(None) for part in (lower, upper, step)]
            return placed(ast.Call(constant(slice), parts, []), index)
        case ast.Tuple(elts=elts):
            return placed(ast.Tuple([key_of(elt) for elt in elts], ast.Load()), index)
    return index


def stores_item(obj: ast.expr, key: ast.expr, at: ast.AST) -> ast.expr:
    """Target that stores into `obj[key]` through the hook."""
    return _target(ItemTarget, obj, key, at)


def stores_attribute(obj: ast.expr, name: str, at: ast.AST) -> ast.expr:
    """Target that stores into `obj.name` through the hook."""
    return _target(AttributeTarget, obj, ast.Constant(name), at)


def _target(kind: type, obj: ast.expr, key: ast.expr, at: ast.AST) -> ast.expr:
    made = ast.Call(constant(kind), [constant(HOOKS), obj, key], [])
    return placed(ast.Attribute(placed(made, at), "value", ast.Store()), at)


def first_line(node: N, at: ast.AST) -> N:
    """Give `node` a position at the beginning of `at`."""
    node.lineno = node.end_lineno = at.lineno  # type: ignore[attr-defined]
    node.col_offset = at.col_offset  # type: ignore[attr-defined]
    node.end_col_offset = node.col_offset + 1  # type: ignore[attr-defined]
    return node


def at_line(node: ast.AST) -> ast.AST:
    """Position on the first line of `node`, without its body."""
    return first_line(ast.Pass(), node)


def name_line(node: ast.Attribute) -> ast.AST:
    """Position of the name of an attribute: CPython gives stores to it that line."""
    at = ast.Pass()
    at.lineno = at.end_lineno = node.end_lineno or node.lineno
    same = at.lineno == node.lineno
    at.col_offset = node.col_offset if same else 0
    at.end_col_offset = node.end_col_offset or 0
    return at


def placed(node: N, at: ast.AST) -> N:
    """Give `node` the position of `at`, and to those of its operands that have none."""
    operands: list[ast.expr] = []
    match node:
        case ast.Call(func=called, args=given):
            operands = [called, *given]
        case ast.Tuple(elts=operands) | ast.Compare(comparators=operands):
            pass
    for each in operands:
        if not hasattr(each, "lineno"):
            ast.copy_location(each, at)
    return ast.copy_location(node, at)
