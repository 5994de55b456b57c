"""Scope analysis of a function, static resolution of its globals, and inference of safe expressions.

An expression is safe if its operators run no user code: its value is an array, a number or a string. The
safety of a local variable may depend on parameters, whose types are checked on entry to the function.
"""

from __future__ import annotations

import ast
import builtins
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import field
from functools import reduce
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import numpy as np

from jitla.classes import dataclass
from jitla.instrument.source import FunctionNode

__all__ = [
    "Assumptions", "Binding", "Dependencies", "FunctionNode", "MISSING", "NOT_ARRAY", "NameScope",
    "StaticNames",
    "analyse_scopes", "assumptions_hold", "find_safe_names", "loops_in_python", "mangle",
    "safety_dependencies", "scalar_names",
]


Binding = ast.expr | None  # None: an unknown value
ESCAPING = frozenset({"function", "generator"})


@dataclass(eq=False)
class NameScope:
    """Names of one scope; `captured` are those that a nested function may read later."""

    kind: str  # function, class, comprehension, generator (a generator expression that may escape)
    parent: NameScope | None
    outer_free: frozenset[str] = frozenset()
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    globals: set[str] = field(default_factory=set)
    nonlocals: set[str] = field(default_factory=set)
    loads: set[str] = field(default_factory=set)
    captured: set[str] = field(default_factory=set)
    children: list[NameScope] = field(default_factory=list)
    yields: bool = False
    scalar_names_memo: frozenset[str] | None = None  # memo of `scalar_names`
    aliases: frozenset[str] | None = None

    def resolve(self, name: str) -> str:
        """Return the kind of variable that `name` is here: local, cell, free, global or class."""
        if name in self.globals:
            return "global"
        if name in self.nonlocals:
            return "free"
        if name in self.bindings:
            if self.kind == "class":
                return "class"
            return "cell" if name in self.captured else "local"
        if self.parent is None:
            return "free" if name in self.outer_free else "global"
        if self.kind in ("comprehension", "generator"):
            return self.parent.resolve(name)
        parent: NameScope | None = self.parent
        while parent is not None and parent.kind == "class":
            parent = parent.parent
        assert parent is not None, "the root is a function"
        kind = parent.resolve(name)
        if self.kind == "class":
            return "class"  # a class body looks into its own namespace first
        return "free" if kind in ("local", "cell") else kind

    def owner(self) -> NameScope:
        """Return the nearest scope that is no comprehension: where `:=` binds."""
        scope = self
        while scope.kind in ("comprehension", "generator") and scope.parent is not None:
            scope = scope.parent
        return scope


class _ScopeBuilder(ast.NodeVisitor):
    """Builds the scopes of a function and of the functions, classes and comprehensions inside it."""

    def __init__(self, outer_free: Collection[str]) -> None:
        self.scopes: dict[ast.AST, NameScope] = {}
        self.current_scope = NameScope("function", None, frozenset(outer_free))
        self.consumed: set[ast.AST] = set()

    def record(self, name: str, value: Binding) -> None:
        self.current_scope.bindings.setdefault(name, []).append(value)

    def bind(self, target: ast.expr, value: Binding) -> None:
        match target:
            case ast.Name(id=name):
                self.record(name, value)
            case ast.Tuple(elts=elts) | ast.List(elts=elts):
                values: list[Binding] = [None] * len(elts)
                if (
                    isinstance(value, (ast.Tuple, ast.List))
                    and len(value.elts) == len(elts)
                    and not any(isinstance(e, ast.Starred) for e in (*elts, *value.elts))
                ):
                    values = list(value.elts)
                elif elts and _is_call_of(value, "enumerate"):
                    values[0] = value  # the counter: the call stands for its elements
                for elt, each in zip(elts, values, strict=True):
                    self.bind(elt, each)
            case ast.Starred(value=inner):
                self.bind(inner, None)
            case _:
                self.visit(target)

    def child_scope(self, node: ast.AST, kind: str) -> NameScope:
        scope = NameScope(kind, self.current_scope)
        self.current_scope.children.append(scope)
        self.scopes[node] = scope
        return scope

    def root(self, node: FunctionNode) -> None:
        self.scopes[node] = self.current_scope
        self.body_of(node)

    def body_of(self, node: FunctionNode) -> None:
        args = node.args
        for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg):
            if arg is not None:
                self.record(arg.arg, None)
        for parameter in getattr(node, "type_params", ()):
            self.record(parameter.name, None)
        for part in node.body if isinstance(node.body, list) else [node.body]:
            self.visit(part)

    def function(self, node: FunctionNode) -> None:
        for part in _evaluated_outside(node):
            self.visit(part)
        if not isinstance(node, ast.Lambda):
            self.record(node.name, None)
        self.current_scope, outer = self.child_scope(node, "function"), self.current_scope
        self.body_of(node)
        self.current_scope = outer

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = function

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for part in (*node.decorator_list, *node.bases, *node.keywords):
            self.visit(part)
        self.record(node.name, None)
        self.current_scope, outer = self.child_scope(node, "class"), self.current_scope
        for statement in node.body:
            self.visit(statement)
        self.current_scope = outer

    def comprehension_scope(self, node: ast.AST) -> None:
        generators: list[ast.comprehension] = node.generators  # type: ignore[attr-defined]
        escapes = isinstance(node, ast.GeneratorExp) and node not in self.consumed
        self.visit(generators[0].iter)
        kind = "generator" if escapes else "comprehension"
        self.current_scope, outer = self.child_scope(node, kind), self.current_scope
        for i, generator in enumerate(generators):
            if i:
                self.visit(generator.iter)
            self.bind(generator.target, _counter_binding(generator))
            for condition in generator.ifs:
                self.visit(condition)
        for name in ("elt", "key", "value"):
            if hasattr(node, name):
                self.visit(getattr(node, name))
        self.current_scope = outer

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = comprehension_scope

    def visit_Call(self, node: ast.Call) -> None:
        # a generator that is the only argument of a call is assumed to be consumed by it
        if len(node.args) == 1 and isinstance(node.args[0], ast.GeneratorExp):
            self.consumed.add(node.args[0])
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self.current_scope.loads.add(node.id)
        else:
            self.record(node.id, None)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            self.bind(target, node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)
        self.visit(node.annotation)
        self.bind(node.target, node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.visit(node.value)
        if isinstance(node.target, ast.Name):
            self.current_scope.loads.add(node.target.id)
            left = ast.Name(node.target.id, ast.Load())
            self.record(node.target.id, ast.BinOp(left, node.op, node.value))
        else:
            self.visit(node.target)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        self.current_scope.owner().bindings.setdefault(node.target.id, []).append(node.value)

    def for_loop(self, node: ast.For | ast.AsyncFor) -> None:
        self.visit(node.iter)
        self.bind(node.target, _counter_binding(node))
        for statement in (*node.body, *node.orelse):
            self.visit(statement)

    visit_For = visit_AsyncFor = for_loop

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self.record(node.name, None)
        self.generic_visit(node)

    def import_statement(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            self.record(alias.asname or alias.name.partition(".")[0], None)

    visit_Import = visit_ImportFrom = import_statement

    def visit_Global(self, node: ast.Global) -> None:
        self.current_scope.globals.update(node.names)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        self.current_scope.nonlocals.update(node.names)

    def match_capture(self, node: ast.MatchAs | ast.MatchStar) -> None:
        if node.name:
            self.record(node.name, None)
        self.generic_visit(node)

    visit_MatchAs = visit_MatchStar = match_capture

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        if node.rest:
            self.record(node.rest, None)
        self.generic_visit(node)

    def yield_expression(self, node: ast.Yield | ast.YieldFrom) -> None:
        self.current_scope.owner().yields = True
        self.generic_visit(node)

    visit_Yield = visit_YieldFrom = yield_expression


def _evaluated_outside(node: FunctionNode) -> Iterator[ast.AST]:
    if not isinstance(node, ast.Lambda):
        yield from node.decorator_list
        if node.returns is not None:
            yield node.returns
    yield from node.args.defaults
    yield from (default for default in node.args.kw_defaults if default is not None)
    args = node.args
    for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg):
        if arg is not None and arg.annotation is not None:
            yield arg.annotation


def _counter_binding(loop: ast.For | ast.AsyncFor | ast.comprehension) -> Binding:
    # the binding of a loop's target: the iterable stands for its elements if these are counters
    unpacked = isinstance(loop.target, (ast.Tuple, ast.List))
    counts = _is_call_of(loop.iter, "enumerate") if unpacked else _is_call_of(loop.iter, "range")
    return loop.iter if counts else None


def _is_call_of(node: ast.AST | None, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def _resolve_captures(scope: NameScope) -> tuple[set[str], set[str]]:
    # set `captured`; return the names used but not bound here, and those of them that functions use, which
    # may run later
    uses, deferred = scope.loads | scope.nonlocals, set[str]()
    for child in scope.children:
        inner_uses, inner_deferred = _resolve_captures(child)
        uses |= inner_uses
        deferred |= inner_uses if child.kind in ESCAPING else inner_deferred
    if scope.kind == "class":
        return uses, deferred | scope.nonlocals
    own = scope.bindings.keys() - scope.nonlocals
    scope.captured = deferred & (own - scope.globals)
    return uses - own, deferred - own


def analyse_scopes(node: FunctionNode, outer_free: Collection[str]) -> dict[ast.AST, NameScope]:
    """Return the scopes in the function `node`, by node; `outer_free` are the free variables of `node`."""
    builder = _ScopeBuilder(outer_free)
    builder.root(node)
    _resolve_captures(builder.current_scope)
    return builder.scopes


MISSING: Any = type("MISSING", (), {})()
NOT_ARRAY: Any = type("NOT_ARRAY", (), {})()
Assumptions = dict[tuple[str, ...], Any]

# Builtins that neither retain an array, nor run code that could write it, nor distinguish it from its proxy.
SAFE_BUILTINS = frozenset({
    "abs", "bool", "callable", "classmethod", "complex", "divmod", "enumerate", "float", "int",
    "isinstance", "issubclass", "len", "pow", "property", "range", "reversed",
    "round", "slice", "staticmethod", "super", "zip",
})  # fmt: skip
SCALAR_BUILTINS = frozenset({"len", "int", "float", "bool", "str", "range", "enumerate", "complex"})
# Functions of NumPy whose results depend on code or files of the user.
CALLBACK_FUNCTIONS = frozenset({
    "load", "vectorize", "frompyfunc", "fromfunction", "apply_along_axis", "apply_over_axes",
    "piecewise", "fromiter",
})  # fmt: skip
# Modules of NumPy that define subclasses of arrays.
SUBCLASS_MODULES = ("numpy.ma", "numpy.rec", "numpy._core.records", "numpy.matrixlib")
NON_ARRAY_TYPES = (
    int, float, complex, str, bytes, bool, type(None), type, ModuleType, FunctionType,
    BuiltinFunctionType, np.ufunc, np.dtype, np.generic,
)  # fmt: skip


class StaticNames:
    """Resolves names through the globals of a function, and records every assumption about them.

    `is_pure` tells which callables only read their array arguments.
    """

    def __init__(
        self,
        namespace: Mapping[str, Any],
        builtin: Mapping[str, Any],
        is_pure: Callable[[Any], bool],
    ) -> None:
        self.namespace = namespace
        self.builtin = builtin
        self.is_pure = is_pure
        self.assumed: Assumptions = {}

    def is_builtin(self, name: str, scope: NameScope) -> bool:
        """Return whether `name` is Python's builtin of that name in `scope`."""
        if scope.resolve(name) != "global" or name in self.namespace:
            return False
        value = self.builtin.get(name, MISSING)
        if value is MISSING or value is not getattr(builtins, name, None):
            return False
        self.assumed[name,] = value
        return True

    def path(self, node: ast.expr, scope: NameScope) -> tuple[str, ...]:
        """Return the names of a dotted expression that starts at a global, else ()."""
        names: list[str] = []
        while isinstance(node, ast.Attribute):
            names.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or scope.resolve(node.id) != "global":
            return ()
        return (node.id, *reversed(names))

    def value(self, node: ast.expr, scope: NameScope) -> Any:
        """Return the object that a global or an attribute of a module is bound to, else MISSING."""
        path = self.path(node, scope)
        return look_up(path, self.namespace, self.builtin) if path else MISSING

    def may_be_array(self, node: ast.expr, scope: NameScope) -> bool:
        """Return whether a global, or an attribute of a global, may hold an array when it is read."""
        path = self.path(node, scope)
        value = look_up(path, self.namespace, self.builtin) if path else MISSING
        if not isinstance(value, NON_ARRAY_TYPES):
            return True
        self.assumed.setdefault(path, NOT_ARRAY)
        return False

    def is_plain_class(self, node: ast.expr, scope: NameScope) -> bool:
        """Return whether `node` is a class without a metaclass of users: instance checks run no code."""
        value = self.value(node, scope)
        if type(value) is type:
            self.assumed[self.path(node, scope)] = value
        return type(value) is type

    def is_pure_call(self, node: ast.Call, scope: NameScope) -> bool:
        """Return whether the callee only reads its arguments, and is called without an output array."""
        function = self.value(node.func, scope)
        if not (_is_compiled_ufunc(function) or self.is_pure(function)):
            return False
        if any(isinstance(each, ast.Starred) for each in node.args):
            return False
        if any(keyword.arg in (None, "out") for keyword in node.keywords):
            return False
        if len(node.args) > max_input_arguments(function):
            return False
        self.assumed[self.path(node.func, scope)] = function
        return True

    def is_numpy_call(self, node: ast.Call, scope: NameScope) -> bool:
        """Return whether the callee is a NumPy function whose result is as safe as its arguments."""
        function = self.value(node.func, scope)
        module = getattr(function, "__module__", None)
        name = getattr(function, "__name__", "load")
        if not isinstance(module, str) or name in CALLBACK_FUNCTIONS or _makes_subclass(function, module):
            is_numpy = isinstance(function, np.ufunc)
        else:
            is_numpy = callable(function) and module.partition(".")[0] == "numpy"
        if is_numpy:
            self.assumed[self.path(node.func, scope)] = function
        return is_numpy

    def is_safe_builtin(self, node: ast.expr, scope: NameScope) -> bool:
        """Return whether `node` is a builtin that needs no hook when it is called."""
        return (
            isinstance(node, ast.Name)
            and node.id in SAFE_BUILTINS
            and self.is_builtin(node.id, scope)
        )


def _makes_subclass(function: Any, module: str) -> bool:
    """Return whether the result may be an array of a subclass, which may define operators."""
    if isinstance(function, type):
        return issubclass(function, np.ndarray) and function is not np.ndarray
    return module.startswith(SUBCLASS_MODULES) or function in (np.asmatrix, np.bmat)


def _is_compiled_ufunc(function: Any) -> bool:
    return isinstance(function, np.ufunc) and not loops_in_python(function)


def loops_in_python(ufunc: np.ufunc) -> bool:
    """Return whether a ufunc was made from a Python function: it has loops for objects only."""
    return ufunc.ntypes < 2 and all(set(types) <= set("O->") for types in ufunc.types)


def look_up(
    path: tuple[str, ...], namespace: Mapping[str, Any], builtin: Mapping[str, Any]
) -> Any:
    """Return the object at `path`, whose owners all are modules, else MISSING."""
    value = namespace.get(path[0], MISSING)
    if value is MISSING:
        value = builtin.get(path[0], MISSING)
    for name in path[1:]:
        # attributes of other objects may be computed by user code
        if not isinstance(value, ModuleType):
            return MISSING
        value = vars(value).get(name, MISSING)
    return value


def assumptions_hold(
    assumed: Assumptions, namespace: Mapping[str, Any], builtin: Mapping[str, Any]
) -> bool:
    """Return whether the assumptions of instrumented code still hold."""
    for path, expected in assumed.items():
        value = look_up(path, namespace, builtin)
        if expected is NOT_ARRAY:
            if not isinstance(value, NON_ARRAY_TYPES):
                return False
        elif value is not expected:
            return False
    return True


def max_input_arguments(function: Any) -> int:
    """Return the number of positional arguments of `function` before an output array."""
    if isinstance(function, np.ufunc):
        return function.nin
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return 2  # without a signature: an output array is the third argument or a later one
    return names.index("out") if "out" in names else len(names) + 255


def scalar_names(scope: NameScope, statics: StaticNames) -> frozenset[str]:
    """Return the local names that only hold Python numbers, strings, booleans or None.

    They are a greatest fixed point: names that are bound to others are removed until none is left.
    """
    if scope.scalar_names_memo is None:
        if scope.kind == "class":
            names = set[str]()
        else:
            names = scope.bindings.keys() - scope.captured - scope.globals - scope.nonlocals
        while True:
            remaining = {
                name
                for name in names
                if all(_is_scalar(each, names, scope, statics) for each in scope.bindings[name])
            }
            if remaining == names:
                break
            names = remaining
        scope.scalar_names_memo = frozenset(names)
    return scope.scalar_names_memo


def _is_scalar(value: Binding, names: Collection[str], scope: NameScope, statics: StaticNames) -> bool:
    match value:
        case ast.Constant() | ast.JoinedStr() | ast.UnaryOp(op=ast.Not()):
            return True
        case ast.Name(id=name):
            return name in names
        case ast.BinOp(left=left, right=right):
            parts = [left, right]
        case ast.UnaryOp(operand=operand):
            parts = [operand]
        case ast.Compare(left=left, comparators=others):
            parts = [left, *others]
        case ast.IfExp(body=body, orelse=orelse):
            parts = [body, orelse]
        case ast.Call(func=ast.Name(id=name)):
            return name in SCALAR_BUILTINS and statics.is_builtin(name, scope)
        case _:
            return False
    return all(_is_scalar(part, names, scope, statics) for part in parts)


def mangle(name: str, private: str | None) -> str:
    """Return `name` mangled as CPython does inside the class `private`."""
    if private is None or not name.startswith("__") or name.endswith("__") or "." in name:
        return name
    private = private.lstrip("_")
    return f"_{private}{name}" if private else name


# The parameters that have to be safe for an expression to be safe; None: it may be unsafe all the same.
Dependencies = frozenset[str] | None
NO_DEPENDENCIES: frozenset[str] = frozenset()
# Attributes of arrays whose values are safe.
SAFE_ATTRIBUTES = frozenset({
    "shape", "size", "ndim", "dtype", "nbytes", "itemsize", "strides", "T", "mT", "real", "imag",
})  # fmt: skip
SAFE_IF_ARGUMENTS_ARE = frozenset({"abs", "min", "max", "sum", "round", "divmod", "pow"})
SAFE_RESULTS = SCALAR_BUILTINS | {"isinstance", "issubclass", "callable"}
OBJECT_DTYPE_NAMES = frozenset({"object", "O", "object_"})


def find_safe_names(
    scope: NameScope, parameters: Collection[str], statics: StaticNames
) -> dict[str, frozenset[str]]:
    """Return the safe names of `scope`, each with the parameters it depends on: a fixed point."""
    others = scope.captured | scope.globals | scope.nonlocals
    names = {  # in program order: the dependencies of a name mostly precede it
        name: frozenset({name}) if name in parameters else NO_DEPENDENCIES
        for name in scope.bindings if name not in others
    }
    changed = True
    while changed:
        changed = False
        for name, previous in list(names.items()):
            bindings: list[Binding] = list(scope.bindings[name])
            if name in parameters:
                bindings.remove(None)  # the argument
            added = _union([safety_dependencies(each, names, scope, statics) for each in bindings])
            if added is None:
                del names[name]
            else:
                names[name] = previous | added
            changed = changed or names.get(name) != previous
    return names


def safety_dependencies(
    node: ast.AST | None, names: Mapping[str, frozenset[str]], scope: NameScope, statics: StaticNames
) -> Dependencies:
    """Return the parameters that the safety of `node` depends on if the safe names are `names`."""
    parts: Iterable[ast.AST | None]
    match node:
        case ast.Constant() | ast.JoinedStr() | ast.UnaryOp(op=ast.Not()):
            return NO_DEPENDENCIES
        case ast.Name(id=name):
            if scope.resolve(name) == "local":
                return NO_DEPENDENCIES if name in scalar_names(scope, statics) else names.get(name)
            is_safe = scope.resolve(name) == "global" and not statics.may_be_array(node, scope)
            return NO_DEPENDENCIES if is_safe else None
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
            parts = (value, *_key_parts(key))
        case ast.Attribute(value=value, attr=attr):
            if attr in SAFE_ATTRIBUTES:
                return safety_dependencies(value, names, scope, statics)
            path = statics.path(node, scope)
            return NO_DEPENDENCIES if path and not statics.may_be_array(node, scope) else None
        case ast.Call():
            return _call_dependencies(node, names, scope, statics)
        case _:
            return None
    return _union([safety_dependencies(each, names, scope, statics) for each in parts])


def _union(parts: Iterable[Dependencies]) -> Dependencies:
    dependencies = list(parts)
    if any(each is None for each in dependencies):
        return None
    return reduce(frozenset.union, (each for each in dependencies if each is not None), NO_DEPENDENCIES)


def _key_parts(key: ast.expr) -> list[ast.expr]:
    match key:
        case ast.Slice(lower=lower, upper=upper, step=step):
            return [part for part in (lower, upper, step) if part is not None]
        case ast.Tuple(elts=elts):
            return [part for elt in elts for part in _key_parts(elt)]
    return [key]


def _call_dependencies(
    node: ast.Call, names: Mapping[str, frozenset[str]], scope: NameScope, statics: StaticNames
) -> Dependencies:
    if any(keyword.arg is None for keyword in node.keywords):
        return None
    arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
    parts = [part for each in arguments for part in _flatten(each)]
    if any(map(_is_object_dtype, parts)) or any(map(_is_record_dtype, arguments)):
        return None
    match node.func:
        case ast.Name(id=name) if name in SAFE_RESULTS and statics.is_builtin(name, scope):
            return NO_DEPENDENCIES
        case ast.Name(id=name) if name in SAFE_IF_ARGUMENTS_ARE and statics.is_builtin(name, scope):
            pass
        case _ if statics.is_numpy_call(node, scope):
            pass
        case ast.Attribute(attr="view") if not all(isinstance(each, ast.Constant) for each in parts):
            return None  # the argument may be a subclass of arrays
        case ast.Attribute(value=value, attr=attr) if attr[0] != "_" and not _is_foreign_owner(
            statics.value(value, scope)
        ):
            parts.append(value)
        case _:
            return None
    return _union([safety_dependencies(each, names, scope, statics) for each in parts])


def _is_foreign_owner(owner: object) -> bool:
    """Return whether the functions of an owner may return unsafe objects, such as sparse matrices."""
    if owner is MISSING:
        return False
    origin = owner.__name__ if isinstance(owner, ModuleType) else type(owner).__module__
    return origin.partition(".")[0] not in ("builtins", "cmath", "math", "numpy")


def _flatten(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, (ast.Tuple, ast.List)):
        return [part for elt in node.elts for part in _flatten(elt)]
    return [node]


def _is_record_dtype(node: ast.expr) -> bool:
    """Return whether `node` is a dtype with fields, whose comparison is not that of numbers."""
    match node:
        case ast.Constant(value=str(text)):
            return "," in text
        case ast.List(elts=[ast.Tuple(elts=[ast.Constant(value=str()), *_]), *_]) | ast.Dict():
            return True
    return False


def _is_object_dtype(node: ast.expr) -> bool:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Constant(value=str(name)):
            return name in OBJECT_DTYPE_NAMES
    return False
