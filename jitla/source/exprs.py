"""Hooks inside expressions: calls, operands that may be foreign arrays, elements, awaits.

Knows: which expressions need a hook, and why. Must not know: statements, code objects.
Receives the syntax tree of expressions; rewrites it, keeping the order of evaluation.
"""

from __future__ import annotations

import ast
import sys

from jitla.source.inserts import HOOK, hook, identity, placed
from jitla.source.scope import Scope
from jitla.source.static import MISSING, Statics, plain_names

__all__ = ["ExpressionRewriter", "ReadsFrame"]

# Attributes of an array that are no array, and those that are one exactly if their owner is.
DESCRIPTIONS = frozenset({
    "shape", "size", "ndim", "dtype", "nbytes", "itemsize", "strides", "flags", "__name__",
    "__class__", "__dict__", "__doc__", "__module__",
})  # fmt: skip
VIEWS = frozenset({"T", "mT", "real", "imag"})
# Names that read the variables of a frame, with the number of arguments from which they do not.
MAXIMUM = sys.maxsize
FRAME_READERS = {"locals": MAXIMUM, "vars": 1, "dir": 1, "eval": 2, "exec": 2}
FRAME_ATTRIBUTES = frozenset({"_getframe", "currentframe", "f_locals"})
IDENTITY = (ast.Is, ast.IsNot, ast.In, ast.NotIn)
# How the names begin by which arrays hand out their memory or take part in others' operations.
PROTOCOL = "__array_"


class ReadsFrame(Exception):
    """The function looks at its own frame, where a twin would show."""


class ExpressionRewriter(ast.NodeTransformer):
    """Rewrites expressions in place; `here` is the scope being rewritten."""

    def __init__(self, scopes: dict[ast.AST, Scope], root: Scope, statics: Statics) -> None:
        self.scopes = scopes
        self.here = root
        self.statics = statics

    # -- what is known about a name ------------------------------------------------------------

    def is_plain(self, node: ast.AST) -> bool:
        """Whether `node` certainly holds no array: a constant or a name of Python numbers."""
        if isinstance(node, ast.Name):
            scope = self.here.owner()
            return node.id in plain_names(scope, self.statics) and (
                self.here is scope or node.id not in self.here.bindings
            )
        return isinstance(node, (ast.Constant, ast.JoinedStr, ast.Lambda))

    def needs_keep(self, name: str) -> bool:
        """Whether what is stored into `name` can be reached after the statement by other code."""
        return self.here.owner().resolve(name) != "local"

    def is_foreign(self, node: ast.expr) -> bool:
        """Whether `node` loads something that may be an array no hook has seen."""
        match node:
            case ast.Name(id=name):
                return self._is_foreign_name(node, name)
            case ast.Attribute(value=base, attr=attr):
                if attr in DESCRIPTIONS:
                    return False
                if self.statics.value(node, self.here) is not MISSING:
                    return self.statics.may_be_array(node, self.here)
                return attr not in VIEWS or self.is_foreign(base)
            case ast.Subscript(value=base, slice=key):
                named = isinstance(key, ast.Constant) and isinstance(key.value, str)
                described = isinstance(base, ast.Attribute) and base.attr in DESCRIPTIONS
                return not described and (named or self.is_foreign(base))
            case ast.NamedExpr(value=value):
                return self.is_foreign(value)
            case ast.Call(func=ast.Name(id="getattr")):
                return True
            case ast.IfExp(body=body, orelse=orelse):
                return self.is_foreign(body) or self.is_foreign(orelse)
        return False

    def _is_foreign_name(self, node: ast.expr, name: str) -> bool:
        kind = self.here.resolve(name)
        if kind == "local":
            return name in self.aliases(self.here.owner()) and not self.is_plain(node)
        if kind == "global":
            return self.statics.may_be_array(node, self.here)
        return kind in ("free", "cell")

    def aliases(self, scope: Scope) -> frozenset[str]:
        """Local names of `scope` that are bound to something foreign as it is: `w = self.w`."""
        if scope.aliases is None:
            scope.aliases = frozenset()  # an alias of an alias is not followed
            found = set[str]()
            here, self.here = self.here, scope
            for name, bindings in scope.bindings.items():
                if any(each is not None and self.is_foreign(each) for each in bindings):
                    found.add(name)
            self.here = here
            scope.aliases = frozenset(found)
        return scope.aliases

    # -- operands ------------------------------------------------------------------------------

    def operand(self, node: ast.expr) -> ast.expr:
        """Rewrite `node`, an operand; a foreign array becomes lazy."""
        foreign = self.is_foreign(node)
        rewritten: ast.expr = self.visit(node)
        return hook("lift", [rewritten], node) if foreign else rewritten

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        node.left = self.operand(node.left)
        node.right = self.operand(node.right)
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        inverts = isinstance(node.op, ast.Not)
        node.operand = self.visit(node.operand) if inverts else self.operand(node.operand)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        if all(isinstance(op, IDENTITY) for op in node.ops):
            return identity(self.parts(node))
        node.left = self.operand(node.left)
        node.comparators = [self.operand(each) for each in node.comparators]
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        flat = isinstance(node.value, ast.Attribute) and node.value.attr == "flat" \
            and isinstance(node.ctx, ast.Load)
        if isinstance(node.ctx, ast.Load):
            node.value = self.operand(node.value)
        else:
            node.value = self.visit(node.value)
        node.slice = self.visit(node.slice)
        if flat and not isinstance(node.slice, (ast.Constant, ast.Slice)):
            # a flat iterator takes nothing but ndarrays for arrays of indices
            node.slice = hook("keep", [node.slice], node.slice)
        return node

    # -- calls ---------------------------------------------------------------------------------

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if self.statics.is_known_call(node, self.here):
            node.args = [self.operand(each) for each in node.args]
            for keyword in node.keywords:
                keyword.value = self.operand(keyword.value)
            return node
        if self.statics.is_safe_builtin(node.func, self.here):
            return self.parts(node)
        optimised = isinstance(node.func, ast.Attribute) and not (
            any(isinstance(each, ast.Starred) for each in node.args)
            or any(keyword.arg is None for keyword in node.keywords)
        )
        if optimised and node.func.end_lineno != node.lineno:
            # CPython gives the call of a method the line of the method's name
            node.lineno = node.func.end_lineno or node.lineno
            node.col_offset = max((node.func.end_col_offset or 0) - 1, 0)
        node.func = self.callee(node.func, len(node.args))
        node.args = [self.visit(each) for each in node.args]
        node.keywords = [self.visit(each) for each in node.keywords]
        return node

    def callee(self, function: ast.expr, arguments: int = 0) -> ast.expr:
        """Rewrite what is called with so many positional arguments."""
        if isinstance(function, ast.Attribute) and function.attr not in FRAME_ATTRIBUTES \
                and not function.attr.startswith(PROTOCOL):
            function.value = self.operand(function.value)
        elif not (
            # given a namespace or an object these do not look at the frame
            isinstance(function, ast.Name)
            and arguments >= FRAME_READERS.get(function.id, MAXIMUM)
            and self.here.resolve(function.id) == "global"
        ):
            function = self.visit(function)
        return hook("call", [function], function)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        reads = node.id in FRAME_READERS or node.id in FRAME_ATTRIBUTES
        if node.id == HOOK or reads and self.here.resolve(node.id) in ("global", "class"):
            raise ReadsFrame(node.id)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if node.attr in FRAME_ATTRIBUTES:
            raise ReadsFrame(node.attr)
        node.value = self.visit(node.value)
        if node.attr.startswith(PROTOCOL):
            # asked for by name it is that of the array, not that of what stands for it
            node.value = hook("keep", [node.value], node.value)
        return node

    # -- elements of comprehensions ------------------------------------------------------------

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp) -> ast.expr:
        awaits = self._enter_generators(node, node.generators)
        node.elt = self._element(node.elt, awaits)
        self.here = self.here.parent or self.here
        return node

    visit_ListComp = visit_SetComp = visit_GeneratorExp = _comprehension

    def visit_DictComp(self, node: ast.DictComp) -> ast.expr:
        awaits = self._enter_generators(node, node.generators)
        node.key = self._element(node.key, awaits)
        node.value = self._element(node.value, awaits)
        self.here = self.here.parent or self.here
        return node

    def _enter_generators(self, node: ast.AST, generators: list[ast.comprehension]) -> bool:
        scope = self.scopes[node]
        for i, generator in enumerate(generators):
            iterable = self.visit(generator.iter)
            name = "awaits" if generator.is_async else "iterate"
            generator.iter = hook(name, [iterable], generator.iter)
            if i == 0:
                self.here = scope
            generator.target = self.target(generator.target)
            generator.ifs = [self.visit(each) for each in generator.ifs]
        return any(generator.is_async for generator in generators)

    def _element(self, node: ast.expr, awaits: bool) -> ast.expr:
        plain = self.is_plain(node)
        node = self.visit(node)
        if not plain:
            node = hook("item", [node], node)
        # the next step of an asynchronous iterable lets other tasks run
        return hook("awaits", [node], node) if awaits else node

    def target(self, node: ast.expr) -> ast.expr:
        """Rewrite a target of a store; statements say how."""
        raise NotImplementedError

    # -- control that leaves the frame ---------------------------------------------------------

    def visit_Await(self, node: ast.Await) -> ast.expr:
        node.value = hook("awaits", [self.visit(node.value)], node.value)
        return node

    def visit_Yield(self, node: ast.Yield) -> ast.expr:
        value = placed(ast.Constant(None), node) if node.value is None else self.visit(node.value)
        node.value = hook("yields", [value], node)
        return node

    def visit_YieldFrom(self, node: ast.YieldFrom) -> ast.expr:
        node.value = hook("yields", [self.visit(node.value)], node.value)
        return node

    def visit_NamedExpr(self, node: ast.NamedExpr) -> ast.expr:
        node.value = self.kept(node.value, node.target.id)
        return node

    def kept(self, value: ast.expr, *names: str) -> ast.expr:
        """Rewrite `value`, which is stored into `names`."""
        plain = self.is_plain(value)
        value = self.visit(value)
        if plain or not any(self.needs_keep(name) for name in names):
            return value
        return hook("keep", [value], value)

    def parts(self, node: ast.expr) -> ast.expr:
        """Rewrite the parts of an expression that needs no hook itself."""
        return ast.NodeTransformer.generic_visit(self, node)  # type: ignore[return-value]
