"""Which variable a name means in each scope of a function's syntax tree.

Knows: Python's scoping rules and simple facts about bindings. Must not know: hooks, code objects.
Receives the syntax tree of one function; returns a `Scope` per function, class and comprehension.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from dataclasses import field

from jitla.classes import dataclass

__all__ = ["Binding", "FunctionNode", "Scope", "analyse"]

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
