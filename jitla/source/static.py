"""What is known about names before the function runs: builtins, modules, known callables.

Knows: the globals at the time a twin is made. Must not know: hooks, how code is rewritten.
Receives expressions; returns the objects they stand for, and what was assumed to say so.
"""

from __future__ import annotations

import ast
import builtins
import inspect
from collections.abc import Callable, Collection, Mapping
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import numpy as np

from jitla.source.scope import Binding, Scope

__all__ = ["MISSING", "NOT_ARRAY", "Assumptions", "Statics", "holds", "loops_in_python",
           "mangle", "plain_names"]

MISSING: Any = type("MISSING", (), {})()
NOT_ARRAY: Any = type("NOT_ARRAY", (), {})()
Assumptions = dict[tuple[str, ...], Any]

# Builtins that neither keep an array, nor run code that could write to one, nor look behind a proxy.
SAFE_BUILTINS = frozenset({
    "abs", "bool", "callable", "classmethod", "complex", "divmod", "enumerate", "float", "int",
    "isinstance", "issubclass", "len", "pow", "property", "range", "reversed",
    "round", "slice", "staticmethod", "super", "zip",
})  # fmt: skip
PLAIN_CALLS = frozenset({"len", "int", "float", "bool", "str", "range", "enumerate", "complex"})
# Functions of NumPy that may return anything.
CALLING_BACK = frozenset({
    "load", "vectorize", "frompyfunc", "fromfunction", "apply_along_axis", "apply_over_axes",
    "piecewise", "fromiter",
})  # fmt: skip
# Modules of NumPy for subclasses of arrays.
SUBCLASSES = ("numpy.ma", "numpy.rec", "numpy._core.records", "numpy.matrixlib")
IMMUTABLE = (
    int, float, complex, str, bytes, bool, type(None), type, ModuleType, FunctionType,
    BuiltinFunctionType, np.ufunc, np.dtype, np.generic,
)  # fmt: skip


class Statics:
    """Names resolved through the globals of a function; remembers every assumption it made."""

    def __init__(
        self,
        namespace: Mapping[str, Any],
        builtin: Mapping[str, Any],
        known: Callable[[Any], bool],
    ) -> None:
        self.namespace = namespace
        self.builtin = builtin
        self.known = known
        self.assumed: Assumptions = {}

    def is_builtin(self, name: str, scope: Scope) -> bool:
        """Whether `name` means Python's builtin of that name in `scope`."""
        if scope.resolve(name) != "global" or name in self.namespace:
            return False
        value = self.builtin.get(name, MISSING)
        if value is MISSING or value is not getattr(builtins, name, None):
            return False
        self.assumed[name,] = value
        return True

    def path(self, node: ast.expr, scope: Scope) -> tuple[str, ...]:
        """Names of a dotted expression that starts at a global, else ()."""
        names: list[str] = []
        while isinstance(node, ast.Attribute):
            names.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or scope.resolve(node.id) != "global":
            return ()
        return (node.id, *reversed(names))

    def value(self, node: ast.expr, scope: Scope) -> Any:
        """Object that a global or an attribute of a module stands for, else MISSING."""
        path = self.path(node, scope)
        return look_up(path, self.namespace, self.builtin) if path else MISSING

    def may_be_array(self, node: ast.expr, scope: Scope) -> bool:
        """Whether a global, or an attribute of a global, may hold an array when it is read."""
        path = self.path(node, scope)
        value = look_up(path, self.namespace, self.builtin) if path else MISSING
        if not isinstance(value, IMMUTABLE):
            return True
        self.assumed.setdefault(path, NOT_ARRAY)
        return False

    def is_plain_class(self, node: ast.expr, scope: Scope) -> bool:
        """Whether `node` is a class that answers itself for nothing."""
        value = self.value(node, scope)
        if type(value) is type:
            self.assumed[self.path(node, scope)] = value
        return type(value) is type

    def is_known_call(self, node: ast.Call, scope: Scope) -> bool:
        """Whether the callee is a known pure function, called without an output array."""
        function = self.value(node.func, scope)
        if not (_computes(function) or self.known(function)):
            return False
        if any(isinstance(each, ast.Starred) for each in node.args):
            return False
        if any(keyword.arg in (None, "out") for keyword in node.keywords):
            return False
        if len(node.args) > positional_inputs(function):
            return False
        self.assumed[self.path(node.func, scope)] = function
        return True

    def is_numpy_call(self, node: ast.Call, scope: Scope) -> bool:
        """Whether the callee is a function of NumPy whose result holds what it was given."""
        function = self.value(node.func, scope)
        module = getattr(function, "__module__", None)
        name = getattr(function, "__name__", "load")
        if not isinstance(module, str) or name in CALLING_BACK or _makes_subclass(function, module):
            found = isinstance(function, np.ufunc)
        else:
            found = callable(function) and module.partition(".")[0] == "numpy"
        if found:
            self.assumed[self.path(node.func, scope)] = function
        return found

    def is_safe_builtin(self, node: ast.expr, scope: Scope) -> bool:
        """Whether `node` is a builtin that needs no hook when it is called."""
        return (
            isinstance(node, ast.Name)
            and node.id in SAFE_BUILTINS
            and self.is_builtin(node.id, scope)
        )


def _makes_subclass(function: Any, module: str) -> bool:
    """Say whether the result may be an array of a subclass, which has operators of its own."""
    if isinstance(function, type):
        return issubclass(function, np.ndarray) and function is not np.ndarray
    return module.startswith(SUBCLASSES) or function in (np.asmatrix, np.bmat)


def _computes(function: Any) -> bool:
    return isinstance(function, np.ufunc) and not loops_in_python(function)


def loops_in_python(ufunc: np.ufunc) -> bool:
    """Say whether a ufunc was made of a Python function: it has loops for objects only."""
    return ufunc.ntypes < 2 and all(set(types) <= set("O->") for types in ufunc.types)


def look_up(
    path: tuple[str, ...], namespace: Mapping[str, Any], builtin: Mapping[str, Any]
) -> Any:
    """Object at `path`, going through modules only, else MISSING."""
    value = namespace.get(path[0], MISSING)
    if value is MISSING:
        value = builtin.get(path[0], MISSING)
    for name in path[1:]:
        # other objects may run code when asked for an attribute
        if not isinstance(value, ModuleType):
            return MISSING
        value = vars(value).get(name, MISSING)
    return value


def holds(
    assumed: Assumptions, namespace: Mapping[str, Any], builtin: Mapping[str, Any]
) -> bool:
    """Say whether everything assumed when a twin was made is still so."""
    for path, expected in assumed.items():
        value = look_up(path, namespace, builtin)
        if expected is NOT_ARRAY:
            if not isinstance(value, IMMUTABLE):
                return False
        elif value is not expected:
            return False
    return True


def positional_inputs(function: Any) -> int:
    """How many arguments `function` takes by position before it comes to an output array."""
    if isinstance(function, np.ufunc):
        return function.nin
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return 2  # every NumPy function without a signature has its output, if any, at place 3 or later
    return names.index("out") if "out" in names else len(names) + 255


def plain_names(scope: Scope, statics: Statics) -> frozenset[str]:
    """Local names that only ever hold Python numbers, strings, booleans or None."""
    if scope.plain is None:
        if scope.kind == "class":
            names = set[str]()
        else:
            names = scope.bindings.keys() - scope.captured - scope.globals - scope.nonlocals
        while True:
            kept = {
                name
                for name in names
                if all(_plain(each, names, scope, statics) for each in scope.bindings[name])
            }
            if kept == names:
                break
            names = kept
        scope.plain = frozenset(names)
    return scope.plain


def _plain(value: Binding, names: Collection[str], scope: Scope, statics: Statics) -> bool:
    match value:
        case ast.Constant() | ast.JoinedStr() | ast.UnaryOp(op=ast.Not()):
            return True
        case ast.Name(id=name):
            return name in names
        case ast.BinOp(left=left, right=right):
            parts = [left, right]
        case ast.UnaryOp(operand=operand):
            parts = [operand]
        case ast.Compare(left=left, comparators=rest):
            parts = [left, *rest]
        case ast.IfExp(body=body, orelse=orelse):
            parts = [body, orelse]
        case ast.Call(func=ast.Name(id=name)):
            return name in PLAIN_CALLS and statics.is_builtin(name, scope)
        case _:
            return False
    return all(_plain(part, names, scope, statics) for part in parts)


def mangle(name: str, private: str | None) -> str:
    """Spell `name` as CPython stores it inside the class `private`."""
    if private is None or not name.startswith("__") or name.endswith("__") or "." in name:
        return name
    private = private.lstrip("_")
    return f"_{private}{name}" if private else name
