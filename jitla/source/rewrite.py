"""Hooks around statements: loops, contexts, returns, nested functions and classes.

Knows: which statements need a hook. Must not know: code objects, arrays.
Receives the syntax tree of a function; rewrites it in place.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from jitla.source.brief import is_brief
from jitla.source.inserts import at_line, barrier, hook, hook_statement, placed
from jitla.source.scope import FunctionNode, Scope
from jitla.source.static import Statics, plain_names
from jitla.source.stores import StoreRewriter
from jitla.source.stretch import Stretch

__all__ = ["rewrite"]

LEAVES = (ast.Return, ast.Raise, ast.Break, ast.Continue)
SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Delete)
Loop = ast.For | ast.AsyncFor | ast.While


class _Rewriter(StoreRewriter):
    """Rewrites one function and all functions and classes inside it, in place."""

    def __init__(
        self, scopes: dict[ast.AST, Scope], root: Scope, statics: Statics, private: str | None
    ) -> None:
        super().__init__(scopes, root, statics, private)
        self.loops: list[Loop] = []
        self.brief: set[Loop] = set()  # whose turns stay together
        self.stretch = Stretch()
        self.suspends = False  # inside a generator or coroutine

    # -- functions and classes -----------------------------------------------------------------

    def body_of(self, node: FunctionNode) -> None:
        outer = self.here, self.loops, self.suspends
        asked = self.body, self.tame, self.uses, self.flags
        self.here, self.loops = self.scopes[node], []
        self.begin(node, node.args)
        self.suspends = self.here.yields or isinstance(node, ast.AsyncFunctionDef)
        if isinstance(node, ast.Lambda):
            node.body = self.visit(node.body)
        else:
            described = ast.get_docstring(node, clean=False) is not None
            keeps = self.keep_arguments(node.args, at_line(node.body[0]))
            body = self.block(node.body)
            asks = self.questions(at_line(_first(node.body)))
            node.body = [*body[:described], *keeps, *asks, *body[described:]]
        self.here, self.loops, self.suspends = outer
        self.body, self.tame, self.uses, self.flags = asked

    def keep_arguments(self, args: ast.arguments, at: ast.AST) -> list[ast.stmt]:
        """Statements that keep the arguments that functions inside can reach."""
        given = (*args.posonlyargs, *args.args, args.vararg, *args.kwonlyargs, args.kwarg)
        return self.keep_names([each.arg for each in given if each is not None], at)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        node.decorator_list = self.decorators(node.decorator_list)
        self.defaults(node.args)
        self.body_of(node)
        if node.name == "__array__":
            self.hand_out(node)
        return node

    def hand_out(self, node: ast.AST) -> None:
        # NumPy calls it, in the midst of what is traced, and takes nothing but an ndarray
        for each in ast.walk(node):
            if isinstance(each, ast.Return) and each.value is not None:
                each.value = hook("keep", [each.value], each.value)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        self.defaults(node.args)
        self.body_of(node)
        return node

    def defaults(self, args: ast.arguments) -> None:
        args.defaults = [self.default(each) for each in args.defaults]
        args.kw_defaults = [each and self.default(each) for each in args.kw_defaults]

    def default(self, node: ast.expr) -> ast.expr:
        # a default outlives the statement as a cell does
        plain = self.is_plain(node)
        value: ast.expr = self.visit(node)
        return value if plain else hook("keep", [value], node)

    def decorators(self, nodes: list[ast.expr]) -> list[ast.expr]:
        return [
            self.visit(node)
            if self.statics.is_safe_builtin(node, self.here)
            else self.callee(node)
            for node in nodes
        ]

    def visit_ClassDef(self, node: ast.ClassDef) -> list[ast.stmt]:
        node.decorator_list = self.decorators(node.decorator_list)
        node.bases = [self.visit(base) for base in node.bases]
        node.keywords = [self.visit(keyword) for keyword in node.keywords]
        outer = self.here, self.loops, self.private, self.suspends
        self.here, self.loops, self.private, self.suspends = self.scopes[node], [], node.name, False
        node.body = self.block(node.body)
        self.here, self.loops, self.private, self.suspends = outer
        # making a class runs its metaclass
        return [barrier(at_line(node)), node]

    def block(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        """Rewrite a sequence of statements."""
        result: list[ast.stmt] = []
        for statement in body:
            ends = isinstance(statement, SIMPLE) and self.stretch.ends_with(statement)
            made = self.visit(statement)
            result.extend(made if isinstance(made, list) else [made])
            if ends:
                result.append(hook_statement("pause", [], at_line(statement)))
        return result

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> list[ast.stmt]:
        return [barrier(node), node]

    visit_ImportFrom = visit_Import

    # -- loops and contexts --------------------------------------------------------------------

    def loop(self, node: Loop, prefix: list[ast.stmt]) -> ast.AST:
        self.loops.append(node)
        body = [*prefix, *self.block(node.body)]
        if not isinstance(node.body[-1], LEAVES):
            body += self.edge(node, node.body[-1])
        node.body = body
        self.loops.pop()
        node.orelse = self.block(node.orelse)
        return node

    def edge(self, loop: Loop, last: ast.stmt) -> list[ast.stmt]:
        # a line of its own would show in debuggers and coverage: the last line if it surely ran
        at = at_line(last if isinstance(last, SIMPLE) else loop)
        if isinstance(loop, ast.AsyncFor):
            return [hook_statement("awaits", [ast.Constant(None)], at), *self.plain_edge(at)]
        return self.plain_edge(at)

    def plain_edge(self, at: ast.AST) -> list[ast.stmt]:
        return [] if self.loops[-1] in self.brief else [hook_statement("edge", [], at)]

    def visit_For(self, node: ast.For) -> ast.AST:
        if is_brief([node.iter], node.body, [node.target]):
            self.brief.add(node)
        node.iter = self.opened(hook("iterate", [self.visit(node.iter)], node.iter), node.target)
        return self.for_target(node)

    def visit_AsyncFor(self, node: ast.AsyncFor) -> ast.AST:
        node.iter = hook("awaits", [self.visit(node.iter)], node.iter)
        return self.for_target(node)

    def for_target(self, node: ast.For | ast.AsyncFor) -> ast.AST:
        keeps = self.keeps([node.target], at_line(node))
        node.target = self.target(node.target)
        return self.loop(node, keeps)

    def visit_While(self, node: ast.While) -> ast.AST:
        node.test = self.calm(node.test)
        return self.loop(node, [])

    def visit_If(self, node: ast.If) -> ast.AST:
        node.test = self.calm(node.test)
        node.body, node.orelse = self.block(node.body), self.block(node.orelse)
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        node.test = self.calm(node.test)
        node.msg = node.msg and self.visit(node.msg)
        return node

    def visit_Continue(self, node: ast.Continue) -> list[ast.stmt]:
        return [*self.edge_before(node), node]

    def edge_before(self, node: ast.Continue) -> list[ast.stmt]:
        made = self.plain_edge(node)
        if isinstance(self.loops[-1], ast.AsyncFor):
            made.insert(0, hook_statement("awaits", [ast.Constant(None)], node))
        return made

    def visit_With(self, node: ast.With) -> ast.AST:
        node.body = self.contexts(node, "enter") + self.block(node.body)
        return node

    def visit_AsyncWith(self, node: ast.AsyncWith) -> ast.AST:
        keeps = self.contexts(node, "awaits")
        # leaving the context awaits too, however the body ends
        flush = hook_statement("awaits", [ast.Constant(None)], at_line(node))
        body = keeps + self.block(node.body)
        node.body = [placed(ast.Try(body, [], [], [flush]), node.body[0])]
        return node

    def contexts(self, node: ast.With | ast.AsyncWith, name: str) -> list[ast.stmt]:
        keeps: list[ast.stmt] = []
        for item in node.items:
            manager = item.context_expr
            item.context_expr = hook(name, [self.visit(manager)], manager)
            if item.optional_vars is not None:
                keeps += self.keeps([item.optional_vars], at_line(node))
                item.optional_vars = self.target(item.optional_vars)
        return keeps

    # -- the rest ------------------------------------------------------------------------------

    def visit_Match(self, node: ast.Match) -> ast.AST:
        node.subject = self.calm(node.subject)
        for case in node.cases:
            names = [name for each in ast.walk(case.pattern) for name in _captured(each)]
            case.guard = case.guard and self.calm(case.guard)
            case.body = self.keep_names(names, at_line(case.body[0])) + self.block(case.body)
        return node

    def visit_Return(self, node: ast.Return) -> ast.AST:
        if node.value is None:
            return node
        plain = self.is_plain(node.value)
        node.value = self.visit(node.value)
        if self.suspends and not plain:
            # what a generator or coroutine returns leaves through whoever resumes it
            node.value = hook("yields", [node.value], node.value)
        return node


def _first(body: Sequence[ast.stmt]) -> ast.stmt:
    """First statement that a debugger stops at."""
    silent = (ast.Global, ast.Nonlocal)
    found = (
        each for each in body
        if not isinstance(each, silent)
        and not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
    )  # fmt: skip
    return next(found, body[0])


def _captured(pattern: ast.AST) -> list[str]:
    name = getattr(pattern, "rest", None) or getattr(pattern, "name", None)
    return [name] if isinstance(name, str) else []


def rewrite(
    node: FunctionNode, scopes: dict[ast.AST, Scope], statics: Statics, private: str | None
) -> None:
    """Insert the hooks into `node`, in place."""
    rewriter = _Rewriter(scopes, scopes[node], statics, private)
    for scope in set(scopes.values()):
        # facts are read off the bindings, which the rewriting changes
        plain_names(scope, statics)
        rewriter.aliases(scope)
    rewriter.body_of(node)
