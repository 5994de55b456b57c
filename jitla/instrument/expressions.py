"""Rewriting of expressions in instrumented functions, and the syntax-tree nodes that call hooks.

Hooks are methods of the tracer, called in place of operations of the user's code: operands, calls,
comprehensions, awaits. The usage of a value is a string of codes for the hook `lift`: the use of the value,
then the use of the result, and so on. The codes are ``l`` and ``r`` for left and right operands, ``[``
subscripted, ``.`` owner of an attribute, ``a`` argument of a pure function, ``e`` element of such an
argument, ``c`` container that is searched, ``k`` the same for a safe element, ``f`` converted to a number or
string, ``n`` asked for its length.
"""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Sequence
from types import FunctionType
from typing import Any, TypeVar

import numpy as np

from jitla.instrument.scope import (
    MISSING,
    NO_DEPENDENCIES,
    Dependencies,
    NameScope,
    StaticNames,
    find_safe_names,
    mangle,
    safety_dependencies,
    scalar_names,
)
from jitla.instrument.source import FRAME_ATTRIBUTES, FRAME_READERS, NO_LIMIT
from jitla.introspection import outer_frame_access_of

__all__ = [
    "AttributeTarget", "BARRIER", "CONSTANTS", "ExpressionRewriter", "HOOKS", "ItemTarget",
    "OperandRewriter", "PROXY", "ReadsFrame", "SCALAR_TYPES", "is_short_stencil_loop",
]


# --------------------------------------------------------------------------- nodes that call hooks


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


# --------------------------------------------------------------------------- expressions


MAX_COMBINED_ITERATIONS = 9


def is_short_stencil_loop(
    iterables: Sequence[ast.expr], body: Sequence[ast.AST], targets: Sequence[ast.expr] = ()
) -> bool:
    """Return whether loops over `iterables` have few iterations and combine neighbours, as stencils do.

    Such a body rolls arrays, or accumulates elements whose index depends on `targets`. The iterations are
    recorded into one block, which is compiled as one kernel.
    """
    names = {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}
    return all(0 < _trip_count(each) <= MAX_COMBINED_ITERATIONS for each in iterables) and any(
        _calls_roll(each) or _accumulates_neighbours(each, names) for part in body for each in ast.walk(part))


def _trip_count(iterable: ast.expr) -> int:
    """Return the trip count of a loop over a literal or a `range` of literals; 0 if it is unknown."""
    match iterable:
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            return len(elements) if all(map(_is_literal, elements)) else 0
        case ast.Call(func=ast.Name(id="range"), args=args, keywords=[]) if all(map(_is_literal, args)):
            try:
                return len(range(*map(ast.literal_eval, args)))
            except (TypeError, ValueError):
                return 0
    return 0


def _is_literal(node: ast.expr) -> bool:
    match node:
        case ast.Constant() | ast.UnaryOp(op=ast.USub(), operand=ast.Constant()):
            return True
        case ast.Tuple(elts=elements):
            return all(map(_is_literal, elements))
    return False


def _accumulates_neighbours(node: ast.AST, names: set[str]) -> bool:
    match node:
        case ast.AugAssign(target=ast.Name(), op=ast.Add() | ast.Sub(), value=value):
            return any(isinstance(each, ast.Subscript) and _is_neighbour_index(each.slice, names)
                       for each in ast.walk(value))
    return False


def _is_neighbour_index(index: ast.expr, names: set[str]) -> bool:
    """Return whether an index of several axes depends on `names`."""
    return isinstance(index, ast.Tuple) and any(
        isinstance(each, ast.Name) and each.id in names for each in ast.walk(index))


def _calls_roll(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(attr="roll") | ast.Name(id="roll")):
            return True
    return False


# Attributes of an array that are no arrays, and those that are arrays exactly if their owner is one.
METADATA_ATTRIBUTES = frozenset({
    "shape", "size", "ndim", "dtype", "nbytes", "itemsize", "strides", "flags", "__name__",
    "__class__", "__dict__", "__doc__", "__module__",
})  # fmt: skip
VIEW_ATTRIBUTES = frozenset({"T", "mT", "real", "imag"})
# Uses of a parameter that have to run no user code: all its operators, or only its subscripts.
ALL_OPERATORS, SUBSCRIPT = "+", "["
HEAP_TYPE_FLAG = 1 << 9
DISPLAYS = (ast.List, ast.Tuple, ast.Dict, ast.Set, ast.ListComp, ast.SetComp, ast.DictComp)


# Builtins that convert their arguments, and the usage that this is.
CONVERTING_BUILTINS = {"len": "n"} | dict.fromkeys(
    ("abs", "bool", "complex", "divmod", "float", "int", "pow", "range", "round"), "f")


class OperandRewriter(ast.NodeTransformer):
    """Rewrites operands and loads of attributes; `private` is the class that mangles names."""

    def __init__(
        self, scopes: dict[ast.AST, NameScope], root: NameScope, statics: StaticNames, private: str | None
    ) -> None:
        self.scopes = scopes
        self.current_scope = root
        self.statics = statics
        self.private = private
        self.usage = ""  # the usage of the value of the expression being rewritten
        # Of the function being rewritten: its scope, its safe names, and the uses of its parameters.
        self.body: NameScope | None = None
        self.safe_names: dict[str, frozenset[str]] = {}
        self.parameter_uses: dict[str, set[str]] = {}
        self.safety_flags: list[ast.Name] = []

    # -- facts about names ---------------------------------------------------------------------

    def holds_no_array(self, node: ast.AST) -> bool:
        """Return whether `node` certainly is no array: a constant, or a name of Python numbers."""
        if isinstance(node, ast.Name):
            scope = self.current_scope.owner()
            return node.id in scalar_names(scope, self.statics) and (
                self.current_scope is scope or node.id not in self.current_scope.bindings
            )
        return isinstance(node, (ast.Constant, ast.JoinedStr, ast.Lambda))

    def is_shared(self, name: str) -> bool:
        """Return whether other code can read `name` after the statement: a global or a cell."""
        return self.current_scope.owner().resolve(name) != "local"

    def is_foreign(self, node: ast.expr) -> bool:
        """Return whether `node` loads an object that may be an array without a proxy."""
        match node:
            case ast.Name(id=name):
                return self._is_foreign_name(node, name)
            case ast.Attribute(value=base, attr=attr):
                if attr in METADATA_ATTRIBUTES:
                    return False
                if self.statics.value(node, self.current_scope) is not MISSING:
                    return self.statics.may_be_array(node, self.current_scope)
                return attr not in VIEW_ATTRIBUTES or self.is_foreign(base)
            case ast.Subscript(value=base, slice=key):
                named = isinstance(key, ast.Constant) and isinstance(key.value, str)
                described = isinstance(base, ast.Attribute) and base.attr in METADATA_ATTRIBUTES
                return not described and (named or self.is_foreign(base))
            case ast.NamedExpr(value=value):
                return self.is_foreign(value)
            case ast.Call(func=ast.Name(id="getattr")):
                return True
            case ast.IfExp(body=body, orelse=orelse):
                return self.is_foreign(body) or self.is_foreign(orelse)
        return False

    def _is_foreign_name(self, node: ast.expr, name: str) -> bool:
        kind = self.current_scope.resolve(name)
        if kind == "local":
            return name in self.aliases(self.current_scope.owner()) and not self.holds_no_array(node)
        if kind == "global":
            return self.statics.may_be_array(node, self.current_scope)
        return kind in ("free", "cell")

    def aliases(self, scope: NameScope) -> frozenset[str]:
        """Return the local names of `scope` that are bound to a foreign object: `w = self.w`."""
        if scope.aliases is None:
            scope.aliases = frozenset()  # an alias of an alias is not followed
            aliases = set[str]()
            current_scope, self.current_scope = self.current_scope, scope
            for name, bindings in scope.bindings.items():
                if any(each is not None and self.is_foreign(each) for each in bindings):
                    aliases.add(name)
            self.current_scope = current_scope
            scope.aliases = frozenset(aliases)
        return scope.aliases

    # -- safety --------------------------------------------------------------------------------

    def begin_function(self, node: ast.AST, args: ast.arguments) -> None:
        """Begin the body of the function `node`, whose parameters can be checked on entry."""
        self.body, self.parameter_uses, self.safe_names, self.safety_flags = self.current_scope, {}, {}, []
        if not isinstance(node, ast.Lambda):
            names = [each.arg for each in (*args.posonlyargs, *args.args, *args.kwonlyargs)]
            local = [name for name in names if self.current_scope.resolve(name) == "local"]
            self.safe_names = find_safe_names(self.current_scope, local, self.statics)

    def safety_checks(self, at: ast.AST) -> list[ast.stmt]:
        """Return the statements that check the types of the parameters, for the uses found in the body."""
        operands = [name for name, uses in self.parameter_uses.items() if ALL_OPERATORS in uses]
        for flag in self.safety_flags:
            if flag.id in operands:
                flag.id = operands[0]
            flag.id = f".safe {flag.id}"
        others = [(name, "has_safe_uses", [_uses_tuple(uses, at)])
                  for name, uses in self.parameter_uses.items() if name not in operands]
        checks = [self._safety_check(name, check, [_name(name, at), *more], at)
                  for name, check, more in others]
        if operands:
            args = [_name(name, at) for name in operands]
            checks.insert(0, self._safety_check(operands[0], "are_safe", args, at))
        return checks

    def _safety_check(self, name: str, check: str, args: list[ast.expr], at: ast.AST) -> ast.stmt:
        flag = copy_position(ast.Name(f".safe {name}", ast.Store()), at)
        return copy_position(ast.Assign([flag], hook(check, args, at)), at)

    def dependencies(self, node: ast.expr) -> Dependencies:
        """Return the parameters that the safety of `node` depends on; None if it may be unsafe."""
        if self.current_scope is self.body:
            return safety_dependencies(node, self.safe_names, self.current_scope, self.statics)
        dependencies = safety_dependencies(node, {}, self.current_scope, self.statics)
        return dependencies if dependencies == NO_DEPENDENCIES else None

    def guard_by_type(self, test: ast.Name, use: str, fast: ast.expr, slow: ast.expr) -> ast.expr:
        """Return an expression that is `fast` if the type of `test` makes `use` safe, else `slow`."""
        dependencies = self.dependencies(test)
        if dependencies is None:
            if self.current_scope.resolve(test.id) != "local":
                return slow
            kind = copy_position(ast.Call(constant(type), [_name(test.id, test)], []), test)
            condition: ast.expr = copy_position(ast.Compare(kind, [ast.Is()], [constant(PROXY)]), test)
        elif not dependencies:
            return fast
        else:
            bindings = (self.body or self.current_scope).bindings[test.id]
            if dependencies != {test.id} or bindings != [None]:
                use = ALL_OPERATORS
            for name in dependencies:
                self.parameter_uses.setdefault(name, set()).add(use)
            # The operands of operators are checked together; `safety_checks` names the flag.
            condition = flag = copy_position(ast.Name(min(dependencies), ast.Load()), test)
            self.safety_flags.append(flag)
        return copy_position(ast.IfExp(condition, fast, slow), fast)

    # -- operands ------------------------------------------------------------------------------

    def operand(self, node: ast.expr, use: str) -> ast.expr:
        """Rewrite `node`, an operand with the given use; a foreign array becomes a proxy."""
        usage = use + self.usage
        match node:
            case ast.Name():
                return self._name_operand(node, usage)
            case ast.BinOp() | ast.UnaryOp(op=ast.USub() | ast.UAdd() | ast.Invert()):
                return self.visit_with_usage(node, usage)
            case ast.Compare(ops=[_]):
                return self.visit_with_usage(node, usage)
            case ast.Subscript() if not self.is_foreign(node):
                return self.visit_with_usage(node, usage)
            case ast.Attribute():
                return self.attribute(node, usage)
            case ast.Call() if self.statics.is_pure_call(node, self.current_scope):
                return self.visit_with_usage(node, usage)
            case ast.Call(func=ast.Name(id=name)) if (
                name in CONVERTING_BUILTINS and self.statics.is_safe_builtin(node.func, self.current_scope)
            ):
                return self.visit_with_usage(node, usage)
        if isinstance(node, DISPLAYS) and use not in "lrc" or self.dependencies(node) == NO_DEPENDENCIES:
            return self.visit_with_usage(node, "")
        return lift_call(self.visit_with_usage(node, ""), usage, node)

    def visit_with_usage(self, node: ast.expr, usage: str) -> ast.expr:
        """Rewrite `node`, whose value has the given usage."""
        outer, self.usage = self.usage, usage
        rewritten: ast.expr = self.visit(node)
        self.usage = outer
        return rewritten

    def _name_operand(self, node: ast.Name, usage: str) -> ast.expr:
        if self.holds_no_array(node):
            return self.visit_with_usage(node, "")
        name = self.visit_with_usage(node, "")
        if self._is_foreign_name(node, node.id):
            return lift_call(name, usage, node)
        use = SUBSCRIPT if usage == "[" or usage[0] == "n" else ALL_OPERATORS
        if self.current_scope.resolve(node.id) == "global":  # its type is known
            return name
        return self.guard_by_type(node, use, name, lift_call(name, usage, node))

    def attribute(self, node: ast.Attribute, usage: str) -> ast.expr:
        """Rewrite the load of an attribute, whose value has the given usage."""
        base, foreign = node.value, bool(usage) and self.is_foreign(node)
        path = self.statics.path(node, self.current_scope)
        if path and self.statics.value(node, self.current_scope) is not MISSING:
            node.value = self.visit_with_usage(base, "")
            return lift_call(node, usage, node) if foreign else node
        name = ast.Constant(mangle(node.attr, self.private))
        at = name_position(node)
        if isinstance(base, ast.Name) and not self._is_foreign_name(base, base.id) \
                and not self._is_class(base):
            plain = self.visit_with_usage(base, "")
            args: list[ast.expr] = [plain, name]
            slow = hook("attribute", args + [ast.Constant(usage)] * bool(usage), at)
            fast = copy_position(ast.Attribute(plain, node.attr, ast.Load()), node)
            use = ALL_OPERATORS if usage and not foreign else node.attr
            return self.guard_by_type(
                base, mangle(use, self.private), lift_call(fast, usage, node) if foreign else fast, slow)
        dependencies = self.dependencies(base)
        if dependencies == NO_DEPENDENCIES and not self._is_class(base):
            node.value = self.visit_with_usage(base, "")
            return node
        if isinstance(base, (ast.BinOp, ast.UnaryOp)):
            outer, self.usage = self.usage, usage
            node.value = self.operand(base, ".")
            self.usage = outer
            return node
        args = [self.visit_with_usage(base, ""), name] + [ast.Constant(usage)] * bool(usage)
        return hook("attribute", args, at)

    def key(self, node: ast.expr) -> ast.expr:
        """Rewrite the key of a subscript, which may be hashed, compared or converted to an integer."""
        match node:
            case ast.Tuple(elts=elts):
                node.elts = [self.key(each) for each in elts]
            case ast.Slice(lower=lower, upper=upper, step=step):
                node.lower = lower and self.visit_tested(lower)
                node.upper = upper and self.visit_tested(upper)
                node.step = step and self.visit_tested(step)
            case ast.Starred():
                return self.visit_with_usage(node, "")
            case _:
                return self.visit_tested(node)
        return node

    def _is_class(self, node: ast.expr) -> bool:
        # a class written in Python, whose attributes may be computed
        value = self.statics.value(node, self.current_scope)
        return isinstance(value, type) and bool(value.__flags__ & HEAP_TYPE_FLAG)

    def visit_tested(self, node: ast.expr) -> ast.expr:
        """Rewrite `node`, which Python tests for truth, hashes or compares: its class may run code."""
        match node:
            case ast.BoolOp(values=values):
                node.values = [self.visit_tested(each) for each in values]
                return node
            case ast.Compare() | ast.UnaryOp() | ast.BinOp() | ast.Constant() | ast.JoinedStr():
                return self.visit_with_usage(node, "")
            case ast.Name() if not self._is_foreign_name(node, node.id):
                name = self.visit_with_usage(node, "")
                if self.holds_no_array(node) or self.current_scope.resolve(node.id) == "global":
                    return name
                return self.guard_by_type(node, SUBSCRIPT, name, hook("flush_unless_safe", [name], node))
            case ast.Call() if self.statics.is_safe_builtin(node.func, self.current_scope):
                return self.visit_with_usage(node, "")
        dependencies = self.dependencies(node)
        value = self.visit_with_usage(node, "")
        if dependencies == NO_DEPENDENCIES or isinstance(node, DISPLAYS):
            return value
        return hook("flush_unless_safe", [value], node)


def lift_call(node: ast.expr, usage: str, at: ast.expr) -> ast.expr:
    """Return a call of the hook that lifts `node`, with the given usage."""
    return hook("lift", [node, ast.Constant(usage)], at)


def _name(name: str, at: ast.AST) -> ast.expr:
    return copy_position(ast.Name(name, ast.Load()), at)


def _uses_tuple(uses: set[str], at: ast.AST) -> ast.expr:
    return copy_position(ast.Tuple([ast.Constant(use) for use in sorted(uses)], ast.Load()), at)


Node = TypeVar("Node", bound=ast.expr)

# Builtins that request iterators of their arguments.
ITERATING_BUILTINS = frozenset({"enumerate", "reversed", "zip"})
SEQUENCE_TARGETS = (ast.Tuple, ast.List)
CLASS_CHECKS = frozenset({"isinstance", "issubclass"})
# Prefix of the methods by which arrays export their memory or take part in foreign operations.
PROTOCOL_PREFIX = "__array_"
# Called by name they may return NotImplemented where the operator would try the other operand.
OPERATOR_METHODS = frozenset(
    f"__{kind}{name}__" for kind in ("", "r", "i") for name in (
        "add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "divmod", "pow", "lshift",
        "rshift", "and", "or", "xor", "eq", "ne", "lt", "le", "gt", "ge")
)  # fmt: skip
# Attributes in which functions defined in an instrumented one differ from the user's.
CODE_ATTRIBUTES = frozenset({"__code__", "__closure__"})


class ReadsFrame(Exception):
    """A function reads frames, or calls functions that do, so that instrumentation would be visible."""


class ExpressionRewriter(OperandRewriter):
    """Rewrites expressions in place."""

    # -- operators -----------------------------------------------------------------------------

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        node.left = self.operand(node.left, "l")
        node.right = self.operand(node.right, "r")
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        if isinstance(node.op, ast.Not):
            node.operand = self.visit_tested(node.operand)
        else:
            node.operand = self.operand(node.operand, "l")
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        if all(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops):
            return rewrite_identity(self.visit_children(node))
        if len(node.ops) > 1:
            # in a chain an operand is first the right and then the left one
            node.left = self.visit_tested(node.left)
            node.comparators = [self.visit_tested(each) for each in node.comparators]
            return node
        if isinstance(node.ops[0], (ast.In, ast.NotIn)):
            use = "k" if self.dependencies(node.left) == NO_DEPENDENCIES else "c"
            node.left = self.visit_with_usage(node.left, "")
            node.comparators = [self.operand(node.comparators[0], use)]
            return node
        node.left = self.operand(node.left, "l")
        node.comparators = [self.operand(node.comparators[0], "r")]
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        flat = isinstance(node.value, ast.Attribute) and node.value.attr == "flat" \
            and isinstance(node.ctx, ast.Load)
        if isinstance(node.ctx, ast.Load):
            node.value = self.operand(node.value, "[")
        else:
            node.value = self.visit_with_usage(node.value, "")
        node.slice = self.key(node.slice)
        if flat and not isinstance(node.slice, (ast.Constant, ast.Slice)):
            # a flat iterator accepts only ndarrays as arrays of indices
            node.slice = hook("materialise", [node.slice], node.slice)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        tested = [self.visit_tested(each) for each in node.values[:-1]]
        node.values = [*tested, self.visit(node.values[-1])]
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        node.test = self.visit_tested(node.test)
        node.body = self.visit(node.body)
        node.orelse = self.visit(node.orelse)
        return node

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.expr:
        node.value = self.operand(node.value, "f")
        node.format_spec = node.format_spec and self.visit(node.format_spec)
        return node

    def visit_Starred(self, node: ast.Starred) -> ast.expr:
        if isinstance(node.ctx, ast.Load):
            node.value = self.visit_starred_value(node.value)
        return node

    def visit_starred_value(self, node: ast.expr, hook_name: str = "star_elements") -> ast.expr:
        """Rewrite `node`, whose elements ``*`` unpacks; `hook_name` is the name of the hook."""
        rewritten: ast.expr = self.visit(node)
        return rewritten if isinstance(node, DISPLAYS) else hook(hook_name, [rewritten], node)

    def positional(self, nodes: list[ast.expr]) -> list[ast.expr]:
        """Rewrite positional arguments; CPython makes a tuple of ``*x`` alone, and a list first of others."""
        match nodes:
            case [ast.Starred(value=value) as starred]:
                starred.value = self.visit_starred_value(value, "star_arguments")
                return nodes
        return [self.visit(each) for each in nodes]

    def visit_Dict(self, node: ast.Dict) -> ast.expr:
        for i, (key, value) in enumerate(zip(node.keys, node.values, strict=True)):
            node.keys[i] = key and self.visit_tested(key)
            node.values[i] = self.visit(value) if key else self.visit_mapping_value(value)
        return node

    def visit_Set(self, node: ast.Set) -> ast.expr:
        node.elts = [self.visit(e) if isinstance(e, ast.Starred) else self.visit_tested(e) for e in node.elts]
        return node

    def visit_mapping_value(self, node: ast.expr) -> ast.expr:
        """Rewrite `node`, whose items ``**`` unpacks."""
        rewritten: ast.expr = self.visit(node)
        return rewritten if isinstance(node, DISPLAYS) else hook("star_mapping", [rewritten], node)

    # -- calls ---------------------------------------------------------------------------------

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if self.statics.is_pure_call(node, self.current_scope):
            node.args = [self.argument(each) for each in node.args]
            for keyword in node.keywords:
                keyword.value = self.argument(keyword.value)
            return node
        if self.statics.is_safe_builtin(node.func, self.current_scope):
            return self.builtin(node)
        self.check_callee(node.func)
        optimised = isinstance(node.func, ast.Attribute) and not (
            any(isinstance(each, ast.Starred) for each in node.args)
            or any(keyword.arg is None for keyword in node.keywords)
        )
        if optimised and node.func.end_lineno != node.lineno:
            # CPython gives the call of a method the line of the method's name
            node.lineno = node.func.end_lineno or node.lineno
            node.col_offset = max((node.func.end_col_offset or 0) - 1, 0)
        summed = self.summed_terms(node)
        node.func = self.callee(node.func, len(node.args))
        if summed is None:
            node.args = self.positional(node.args)
        else:
            node.args = [self.comprehension(summed, "summand")]
        for keyword in node.keywords:
            visit = self.visit if keyword.arg else self.visit_mapping_value
            keyword.value = visit(keyword.value)
        return node

    def check_callee(self, function: ast.expr) -> None:
        """Raise `ReadsFrame` if the callee reads frames beyond that of its caller."""
        called = self.statics.value(function, self.current_scope)
        if type(called) is FunctionType and (reader := outer_frame_access_of(called)):
            name = called.__qualname__
            raise ReadsFrame(f"{name}, which it calls, looks at frames of the stack, by {reader}")

    def summed_terms(self, node: ast.Call) -> ast.ListComp | ast.GeneratorExp | None:
        """Return the argument of the builtin `sum` if it adds up few arrays, which belong into one block."""
        match node:
            case ast.Call(func=ast.Name(id="sum"), args=[ast.ListComp() | ast.GeneratorExp() as terms],
                          keywords=[]):
                is_short = is_short_stencil_loop([part.iter for part in terms.generators], [terms.elt])
                return terms if is_short and self.statics.is_builtin("sum", self.current_scope) else None
        return None

    def argument(self, node: ast.expr) -> ast.expr:
        """Rewrite an argument of a pure function."""
        if isinstance(node, (ast.List, ast.Tuple)):
            node.elts = [self.element(each) for each in node.elts]
            return node
        return self.operand(node, "a")

    def element(self, node: ast.expr) -> ast.expr:
        """Rewrite an element of a sequence of arrays, which does not become a proxy."""
        return self.visit(node) if isinstance(node, ast.Starred) else self.operand(node, "e")

    def builtin(self, node: ast.Call) -> ast.expr:
        """Rewrite the call of a builtin that needs hooks only for arguments that may run code."""
        assert isinstance(node.func, ast.Name)
        name = node.func.id
        for i, each in enumerate(node.args):
            if name in CONVERTING_BUILTINS and not isinstance(each, ast.Starred):
                node.args[i] = self.operand(each, CONVERTING_BUILTINS[name])
            elif name in CLASS_CHECKS and i == 1:
                node.args[i] = self.class_argument(each)
            elif name in ITERATING_BUILTINS and not isinstance(each, ast.Starred):
                node.args[i] = self.visit_tested(each)
            else:
                node.args[i] = self.visit(each)
        node.keywords = [self.visit(each) for each in node.keywords]
        return node

    def class_argument(self, node: ast.expr) -> ast.expr:
        """Rewrite the second argument of `isinstance` or `issubclass`: metaclasses of users may run code."""
        match node:
            case ast.Tuple(elts=elts):
                node.elts = [self.class_argument(each) for each in elts]
                return node
            case ast.Starred(value=value):
                node.value = self.class_argument(value)
                return node
            case ast.Name() | ast.Attribute() if self.statics.is_plain_class(node, self.current_scope):
                return self.visit_with_usage(node, "")
        return hook("class_argument", [self.visit_with_usage(node, "")], node)

    def callee(self, function: ast.expr, arguments: int = 0) -> ast.expr:
        """Rewrite the callee of a call with the given number of positional arguments."""
        if not (
            # with a namespace or an object as an argument they do not read the frame
            isinstance(function, ast.Name)
            and arguments >= FRAME_READERS.get(function.id, NO_LIMIT)
            and self.current_scope.resolve(function.id) == "global"
        ):
            function = self.visit(function)
        return hook("call", [function], function)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        reads = node.id in FRAME_READERS or node.id in FRAME_ATTRIBUTES
        if reads and self.current_scope.resolve(node.id) in ("global", "class"):
            raise ReadsFrame(f"it reads variables of its frame, by {node.id}")
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if node.attr in FRAME_ATTRIBUTES:
            raise ReadsFrame(f"it reads variables of frames, by {node.attr}")
        if isinstance(node.ctx, ast.Load):
            return self.attribute(node, self.usage)
        node.value = self.visit(node.value)
        return node

    def attribute(self, node: ast.Attribute, usage: str) -> ast.expr:
        """Rewrite the load of an attribute."""
        if node.attr.startswith(PROTOCOL_PREFIX) or node.attr in OPERATOR_METHODS:
            # requested by name it is that of the array, not that of its proxy
            node.value = hook("materialise", [self.visit_with_usage(node.value, "")], node.value)
            return node
        if node.attr in CODE_ATTRIBUTES:
            return hook("uninstrumented", [super().attribute(node, "")], node)
        return super().attribute(node, usage)

    # -- elements of comprehensions ------------------------------------------------------------

    def comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp, hook_name: str = "element",
    ) -> ast.expr:
        """Rewrite a comprehension; `hook_name` is the name of the hook for its elements."""
        awaits = self._enter_generators(node, node.generators)
        is_set = isinstance(node, ast.SetComp)
        node.elt = self._element(node.elt, awaits, "hashed_element" if is_set else hook_name)
        self.current_scope = self.current_scope.parent or self.current_scope
        return node

    visit_ListComp = visit_SetComp = visit_GeneratorExp = comprehension

    def visit_DictComp(self, node: ast.DictComp) -> ast.expr:
        awaits = self._enter_generators(node, node.generators)
        node.key = self._element(node.key, awaits, "hashed_element")
        node.value = self._element(node.value, awaits, "element")
        self.current_scope = self.current_scope.parent or self.current_scope
        return node

    def _enter_generators(self, node: ast.AST, generators: list[ast.comprehension]) -> bool:
        scope = self.scopes[node]
        for i, generator in enumerate(generators):
            iterable = self.visit(generator.iter)
            if i == 0 and scope.kind == "generator":  # it may be iterated over after the call
                iterable = hook("materialise", [iterable], generator.iter)
            name = "await_value" if generator.is_async else "iterate"
            generator.iter = self.unpacked_iterable(hook(name, [iterable], generator.iter), generator.target)
            if i == 0:
                self.current_scope = scope
            generator.target = self.target(generator.target)
            generator.ifs = [self.visit_tested(each) for each in generator.ifs]
        return any(generator.is_async for generator in generators)

    def unpacked_iterable(self, iterable: ast.expr, target: ast.expr) -> ast.expr:
        """Return the iterable of a loop, with a hook if the target unpacks its elements."""
        if isinstance(target, SEQUENCE_TARGETS):
            return hook("unpacked_elements", [iterable], iterable)
        return iterable

    def _element(self, node: ast.expr, awaits: bool, hook_name: str) -> ast.expr:
        plain = self.holds_no_array(node)
        node = self.visit(node)
        if not plain:
            node = hook(hook_name, [node], node)
        # the next step of an asynchronous iterable lets other tasks run
        return hook("await_value", [node], node) if awaits else node

    def target(self, node: ast.expr) -> ast.expr:
        """Rewrite a target of a store; see `StoreRewriter`."""
        raise NotImplementedError

    # -- suspension ----------------------------------------------------------------------------

    def visit_Await(self, node: ast.Await) -> ast.expr:
        node.value = hook("await_value", [self.visit(node.value)], node.value)
        return node

    def visit_Yield(self, node: ast.Yield) -> ast.expr:
        value = copy_position(ast.Constant(None), node) if node.value is None else self.visit(node.value)
        node.value = hook("yield_value", [value], node)
        return node

    def visit_YieldFrom(self, node: ast.YieldFrom) -> ast.expr:
        node.value = hook("yield_value", [self.visit(node.value)], node.value)
        return node

    def visit_NamedExpr(self, node: ast.NamedExpr) -> ast.expr:
        node.value = self.visit_stored(node.value, node.target.id)
        return node

    def visit_stored(self, value: ast.expr, *names: str) -> ast.expr:
        """Rewrite `value`, which is stored into `names`."""
        plain = self.holds_no_array(value)
        value = self.visit(value)
        if plain or not any(self.is_shared(name) for name in names):
            return value
        return hook("materialise", [value], value)

    def visit_children(self, node: Node) -> Node:
        """Rewrite the subexpressions of an expression that needs no hook itself."""
        return ast.NodeTransformer.generic_visit(self, node)  # type: ignore[return-value]
