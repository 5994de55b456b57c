"""Hooks inside expressions: operators, calls, elements, awaits.

Knows: which expressions need a hook, and why. Must not know: statements, code objects.
Receives the syntax tree of expressions; rewrites it, keeping the order of evaluation.
"""

from __future__ import annotations

import ast
import sys
from types import FunctionType
from typing import TypeVar

from jitla.frame_readers import looks_beyond
from jitla.source.brief import is_brief
from jitla.source.inserts import hook, identity, placed
from jitla.source.operands import CONVERTING, DISPLAYS, OperandRewriter
from jitla.source.tame import NOTHING

__all__ = ["ExpressionRewriter", "ReadsFrame"]

Node = TypeVar("Node", bound=ast.expr)

# Names that read the variables of a frame, with the number of arguments from which they do not.
MAXIMUM = sys.maxsize
FRAME_READERS = {"locals": MAXIMUM, "vars": 1, "dir": 1, "eval": 2, "exec": 2}
FRAME_ATTRIBUTES = frozenset({"f_locals"})
# Builtins that ask their arguments for iterators.
ITERATING = frozenset({"enumerate", "reversed", "zip"})
SEQUENCES = (ast.Tuple, ast.List)
ASKING = frozenset({"isinstance", "issubclass"})
# How the names begin by which arrays hand out their memory or take part in others' operations.
PROTOCOL = "__array_"
# Called by name they may answer NotImplemented where the operator would ask the other operand.
OPERATORS = frozenset(
    f"__{kind}{name}__" for kind in ("", "r", "i") for name in (
        "add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "divmod", "pow", "lshift",
        "rshift", "and", "or", "xor", "eq", "ne", "lt", "le", "gt", "ge")
)  # fmt: skip
# In what functions that are made in a twin differ from the user's.
PARTS = frozenset({"__code__", "__closure__"})


class ReadsFrame(Exception):
    """The function looks at frames where a twin would show, or has others look at them; says by what."""


class ExpressionRewriter(OperandRewriter):
    """Rewrites expressions in place."""

    # -- operators -----------------------------------------------------------------------------

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        node.left = self.operand(node.left, "l")
        node.right = self.operand(node.right, "r")
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        if isinstance(node.op, ast.Not):
            node.operand = self.calm(node.operand)
        else:
            node.operand = self.operand(node.operand, "l")
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        if all(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops):
            return identity(self.parts(node))
        if len(node.ops) > 1:
            # in a chain an operand is the right one first and then the left one
            node.left = self.calm(node.left)
            node.comparators = [self.calm(each) for each in node.comparators]
            return node
        if isinstance(node.ops[0], (ast.In, ast.NotIn)):
            way = "k" if self.rests(node.left) == NOTHING else "c"
            node.left = self.used(node.left, "")
            node.comparators = [self.operand(node.comparators[0], way)]
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
            node.value = self.used(node.value, "")
        node.slice = self.key(node.slice)
        if flat and not isinstance(node.slice, (ast.Constant, ast.Slice)):
            # a flat iterator takes nothing but ndarrays for arrays of indices
            node.slice = hook("keep", [node.slice], node.slice)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        tested = [self.calm(each) for each in node.values[:-1]]
        node.values = [*tested, self.visit(node.values[-1])]
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        node.test = self.calm(node.test)
        node.body = self.visit(node.body)
        node.orelse = self.visit(node.orelse)
        return node

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.expr:
        node.value = self.operand(node.value, "f")
        node.format_spec = node.format_spec and self.visit(node.format_spec)
        return node

    def visit_Starred(self, node: ast.Starred) -> ast.expr:
        if isinstance(node.ctx, ast.Load):
            node.value = self.spread(node.value)
        return node

    def spread(self, node: ast.expr, how: str = "spread") -> ast.expr:
        """Rewrite `node`, whose elements are taken by ``*``; `how` names the hook."""
        made: ast.expr = self.visit(node)
        return made if isinstance(node, DISPLAYS) else hook(how, [made], node)

    def positional(self, nodes: list[ast.expr]) -> list[ast.expr]:
        """Rewrite positional arguments; of ``*x`` alone a tuple is made, of others a list first."""
        match nodes:
            case [ast.Starred(value=value) as alone]:
                alone.value = self.spread(value, "alone")
                return nodes
        return [self.visit(each) for each in nodes]

    def visit_Dict(self, node: ast.Dict) -> ast.expr:
        for i, (key, value) in enumerate(zip(node.keys, node.values, strict=True)):
            node.keys[i] = key and self.calm(key)
            node.values[i] = self.visit(value) if key else self.mapping(value)
        return node

    def visit_Set(self, node: ast.Set) -> ast.expr:
        node.elts = [self.visit(e) if isinstance(e, ast.Starred) else self.calm(e) for e in node.elts]
        return node

    def mapping(self, node: ast.expr) -> ast.expr:
        """Rewrite `node`, whose items are taken by ``**``."""
        made: ast.expr = self.visit(node)
        return made if isinstance(node, DISPLAYS) else hook("mapping", [made], node)

    # -- calls ---------------------------------------------------------------------------------

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if self.statics.is_known_call(node, self.here):
            node.args = [self.argument(each) for each in node.args]
            for keyword in node.keywords:
                keyword.value = self.argument(keyword.value)
            return node
        if self.statics.is_safe_builtin(node.func, self.here):
            return self.builtin(node)
        self.shown(node.func)
        optimised = isinstance(node.func, ast.Attribute) and not (
            any(isinstance(each, ast.Starred) for each in node.args)
            or any(keyword.arg is None for keyword in node.keywords)
        )
        if optimised and node.func.end_lineno != node.lineno:
            # CPython gives the call of a method the line of the method's name
            node.lineno = node.func.end_lineno or node.lineno
            node.col_offset = max((node.func.end_col_offset or 0) - 1, 0)
        summed = self.sums_turns(node)
        node.func = self.callee(node.func, len(node.args))
        if summed is None:
            node.args = self.positional(node.args)
        else:
            node.args = [self.comprehension(summed, "term")]
        for keyword in node.keywords:
            visit = self.visit if keyword.arg else self.mapping
            keyword.value = visit(keyword.value)
        return node

    def shown(self, function: ast.expr) -> None:
        """Raise `ReadsFrame` where what is called looks further up the stack than at its caller."""
        called = self.statics.value(function, self.here)
        if type(called) is FunctionType and (found := looks_beyond(called)):
            name = called.__qualname__
            raise ReadsFrame(f"{name}, which it calls, looks at frames of the stack, by {found}")

    def sums_turns(self, node: ast.Call) -> ast.ListComp | ast.GeneratorExp | None:
        """Return what the builtin `sum` adds up if those are a few arrays that are best seen together."""
        match node:
            case ast.Call(func=ast.Name(id="sum"), args=[ast.ListComp() | ast.GeneratorExp() as terms],
                          keywords=[]):
                brief = is_brief([part.iter for part in terms.generators], [terms.elt])
                return terms if brief and self.statics.is_builtin("sum", self.here) else None
        return None

    def argument(self, node: ast.expr) -> ast.expr:
        """Rewrite an argument of a known function."""
        if isinstance(node, (ast.List, ast.Tuple)):
            node.elts = [self.element(each) for each in node.elts]
            return node
        return self.operand(node, "a")

    def element(self, node: ast.expr) -> ast.expr:
        """Rewrite an element of a sequence of arrays: it stays what it is."""
        return self.visit(node) if isinstance(node, ast.Starred) else self.operand(node, "e")

    def builtin(self, node: ast.Call) -> ast.expr:
        """Rewrite the call of a builtin that needs no hook, but for code that its arguments run."""
        assert isinstance(node.func, ast.Name)
        name = node.func.id
        for i, each in enumerate(node.args):
            if name in CONVERTING and not isinstance(each, ast.Starred):
                node.args[i] = self.operand(each, CONVERTING[name])
            elif name in ASKING and i == 1:
                node.args[i] = self.asked(each)
            elif name in ITERATING and not isinstance(each, ast.Starred):
                node.args[i] = self.calm(each)
            else:
                node.args[i] = self.visit(each)
        node.keywords = [self.visit(each) for each in node.keywords]
        return node

    def asked(self, node: ast.expr) -> ast.expr:
        """Rewrite the classes that an object is asked for: those of users may answer themselves."""
        match node:
            case ast.Tuple(elts=elts):
                node.elts = [self.asked(each) for each in elts]
                return node
            case ast.Starred(value=value):
                node.value = self.asked(value)
                return node
            case ast.Name() | ast.Attribute() if self.statics.is_plain_class(node, self.here):
                return self.used(node, "")
        return hook("asked", [self.used(node, "")], node)

    def callee(self, function: ast.expr, arguments: int = 0) -> ast.expr:
        """Rewrite what is called with so many positional arguments."""
        if not (
            # given a namespace or an object these do not look at the frame
            isinstance(function, ast.Name)
            and arguments >= FRAME_READERS.get(function.id, MAXIMUM)
            and self.here.resolve(function.id) == "global"
        ):
            function = self.visit(function)
        return hook("call", [function], function)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        reads = node.id in FRAME_READERS or node.id in FRAME_ATTRIBUTES
        if reads and self.here.resolve(node.id) in ("global", "class"):
            raise ReadsFrame(f"it reads variables of its frame, by {node.id}")
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if node.attr in FRAME_ATTRIBUTES:
            raise ReadsFrame(f"it reads variables of frames, by {node.attr}")
        if isinstance(node.ctx, ast.Load):
            return self.attribute(node, self.ways)
        node.value = self.visit(node.value)
        return node

    def attribute(self, node: ast.Attribute, ways: str) -> ast.expr:
        """Rewrite the load of an attribute."""
        if node.attr.startswith(PROTOCOL) or node.attr in OPERATORS:
            # asked for by name it is that of the array, not that of what stands for it
            node.value = hook("keep", [self.used(node.value, "")], node.value)
            return node
        if node.attr in PARTS:
            return hook("bare", [super().attribute(node, "")], node)
        return super().attribute(node, ways)

    # -- elements of comprehensions ------------------------------------------------------------

    def comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp, how: str = "item",
    ) -> ast.expr:
        """Rewrite a comprehension; `how` names the hook for its elements."""
        awaits = self._enter_generators(node, node.generators)
        node.elt = self._element(node.elt, awaits, "hashed" if isinstance(node, ast.SetComp) else how)
        self.here = self.here.parent or self.here
        return node

    visit_ListComp = visit_SetComp = visit_GeneratorExp = comprehension

    def visit_DictComp(self, node: ast.DictComp) -> ast.expr:
        awaits = self._enter_generators(node, node.generators)
        node.key = self._element(node.key, awaits, "hashed")
        node.value = self._element(node.value, awaits, "item")
        self.here = self.here.parent or self.here
        return node

    def _enter_generators(self, node: ast.AST, generators: list[ast.comprehension]) -> bool:
        scope = self.scopes[node]
        for i, generator in enumerate(generators):
            iterable = self.visit(generator.iter)
            if i == 0 and scope.kind == "generator":  # it may be stepped through after the call
                iterable = hook("keep", [iterable], generator.iter)
            name = "awaits" if generator.is_async else "iterate"
            generator.iter = self.opened(hook(name, [iterable], generator.iter), generator.target)
            if i == 0:
                self.here = scope
            generator.target = self.target(generator.target)
            generator.ifs = [self.calm(each) for each in generator.ifs]
        return any(generator.is_async for generator in generators)

    def opened(self, iterable: ast.expr, target: ast.expr) -> ast.expr:
        """The iterable of a loop, which unpacks its elements if the target says so."""
        return hook("opened", [iterable], iterable) if isinstance(target, SEQUENCES) else iterable

    def _element(self, node: ast.expr, awaits: bool, how: str) -> ast.expr:
        plain = self.is_plain(node)
        node = self.visit(node)
        if not plain:
            node = hook(how, [node], node)
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

    def parts(self, node: Node) -> Node:
        """Rewrite the parts of an expression that needs no hook itself."""
        return ast.NodeTransformer.generic_visit(self, node)  # type: ignore[return-value]
