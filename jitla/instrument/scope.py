"""Scopes of names, what is known of names statically, and variables that hold arrays only."""

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

__all__ = [
    "Assumptions", "Binding", "FunctionNode", "MISSING", "NOT_ARRAY", "Rests", "Scope", "Statics",
    "analyse", "holds", "loops_in_python", "mangle", "plain_names", "rests_on", "tame_names",
]


FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Binding = ast.expr | None  # None: bound to something unknown
ESCAPING = frozenset({"function", "generator"})


@dataclass(eq=False)
class Scope:
    """Names of one scope; `captured` are those a nested function can reach after this statement."""

    kind: str  # function, class, comprehension, generator (a generator expression that may escape)
    parent: Scope | None
    outer_free: frozenset[str] = frozenset()
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    globals: set[str] = field(default_factory=set)
    nonlocals: set[str] = field(default_factory=set)
    loads: set[str] = field(default_factory=set)
    captured: set[str] = field(default_factory=set)
    children: list[Scope] = field(default_factory=list)
    yields: bool = False
    plain: frozenset[str] | None = None  # filled by who needs them first
    aliases: frozenset[str] | None = None

    def resolve(self, name: str) -> str:
        """Say what `name` is here: local, cell, free, global or class."""
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
        parent: Scope | None = self.parent
        while parent is not None and parent.kind == "class":
            parent = parent.parent
        assert parent is not None, "the root is a function"
        kind = parent.resolve(name)
        if self.kind == "class":
            return "class"  # a class body looks into its own namespace first
        return "free" if kind in ("local", "cell") else kind

    def owner(self) -> Scope:
        """Nearest scope that is no comprehension: where `:=` binds."""
        scope = self
        while scope.kind in ("comprehension", "generator") and scope.parent is not None:
            scope = scope.parent
        return scope


class _Builder(ast.NodeVisitor):
    def __init__(self, outer_free: Collection[str]) -> None:
        self.scopes: dict[ast.AST, Scope] = {}
        self.here = Scope("function", None, frozenset(outer_free))
        self.consumed: set[ast.AST] = set()

    def record(self, name: str, value: Binding) -> None:
        self.here.bindings.setdefault(name, []).append(value)

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
                elif elts and _calls(value, "enumerate"):
                    values[0] = value  # the counter, recognised by the call
                for elt, each in zip(elts, values, strict=True):
                    self.bind(elt, each)
            case ast.Starred(value=inner):
                self.bind(inner, None)
            case _:
                self.visit(target)

    def inside(self, node: ast.AST, kind: str) -> Scope:
        scope = Scope(kind, self.here)
        self.here.children.append(scope)
        self.scopes[node] = scope
        return scope

    def root(self, node: FunctionNode) -> None:
        self.scopes[node] = self.here
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
        self.here, outer = self.inside(node, "function"), self.here
        self.body_of(node)
        self.here = outer

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = function

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for part in (*node.decorator_list, *node.bases, *node.keywords):
            self.visit(part)
        self.record(node.name, None)
        self.here, outer = self.inside(node, "class"), self.here
        for statement in node.body:
            self.visit(statement)
        self.here = outer

    def comprehension_scope(self, node: ast.AST) -> None:
        generators: list[ast.comprehension] = node.generators  # type: ignore[attr-defined]
        escapes = isinstance(node, ast.GeneratorExp) and node not in self.consumed
        self.visit(generators[0].iter)
        self.here, outer = self.inside(node, "generator" if escapes else "comprehension"), self.here
        for i, generator in enumerate(generators):
            if i:
                self.visit(generator.iter)
            self.bind(generator.target, _counted(generator))
            for condition in generator.ifs:
                self.visit(condition)
        for name in ("elt", "key", "value"):
            if hasattr(node, name):
                self.visit(getattr(node, name))
        self.here = outer

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = comprehension_scope

    def visit_Call(self, node: ast.Call) -> None:
        # a generator that is the only argument of a call is taken to be used up by it
        if len(node.args) == 1 and isinstance(node.args[0], ast.GeneratorExp):
            self.consumed.add(node.args[0])
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self.here.loads.add(node.id)
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
            self.here.loads.add(node.target.id)
            left = ast.Name(node.target.id, ast.Load())
            self.record(node.target.id, ast.BinOp(left, node.op, node.value))
        else:
            self.visit(node.target)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        self.here.owner().bindings.setdefault(node.target.id, []).append(node.value)

    def for_loop(self, node: ast.For | ast.AsyncFor) -> None:
        self.visit(node.iter)
        self.bind(node.target, _counted(node))
        for statement in (*node.body, *node.orelse):
            self.visit(statement)

    visit_For = visit_AsyncFor = for_loop

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self.record(node.name, None)
        self.generic_visit(node)

    def imported(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            self.record(alias.asname or alias.name.partition(".")[0], None)

    visit_Import = visit_ImportFrom = imported

    def visit_Global(self, node: ast.Global) -> None:
        self.here.globals.update(node.names)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        self.here.nonlocals.update(node.names)

    def captures(self, node: ast.MatchAs | ast.MatchStar) -> None:
        if node.name:
            self.record(node.name, None)
        self.generic_visit(node)

    visit_MatchAs = visit_MatchStar = captures

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        if node.rest:
            self.record(node.rest, None)
        self.generic_visit(node)

    def yielding(self, node: ast.Yield | ast.YieldFrom) -> None:
        self.here.owner().yields = True
        self.generic_visit(node)

    visit_Yield = visit_YieldFrom = yielding


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


def _counted(loop: ast.For | ast.AsyncFor | ast.comprehension) -> Binding:
    # the iterable stands for its elements where they are counters
    unpacked = isinstance(loop.target, (ast.Tuple, ast.List))
    counts = _calls(loop.iter, "enumerate") if unpacked else _calls(loop.iter, "range")
    return loop.iter if counts else None


def _calls(node: ast.AST | None, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def _close(scope: Scope) -> tuple[set[str], set[str]]:
    # names used but not bound here; and those of them used by functions, which may run later
    uses, hard = scope.loads | scope.nonlocals, set[str]()
    for child in scope.children:
        inner_uses, inner_hard = _close(child)
        uses |= inner_uses
        hard |= inner_uses if child.kind in ESCAPING else inner_hard
    if scope.kind == "class":
        return uses, hard | scope.nonlocals
    own = scope.bindings.keys() - scope.nonlocals
    scope.captured = hard & (own - scope.globals)
    return uses - own, hard - own


def analyse(node: FunctionNode, outer_free: Collection[str]) -> dict[ast.AST, Scope]:
    """Scopes of the function `node`, whose own free variables are `outer_free`."""
    builder = _Builder(outer_free)
    builder.root(node)
    _close(builder.here)
    return builder.scopes


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
