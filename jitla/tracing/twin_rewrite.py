"""Hooks around statements: stores, deletions, loops, contexts, nested functions and classes.

Knows: which statements need a hook, and how to keep Python's order of evaluation.
Must not know: code objects, arrays. Receives the syntax tree of a function; returns it rewritten.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from jitla.tracing.twin_exprs import ExpressionRewriter
from jitla.tracing.twin_hooks import (
    INPLACE,
    at_line,
    barrier,
    constant,
    hook,
    hook_statement,
    key_of,
    placed,
    stores_attribute,
    stores_item,
)
from jitla.tracing.twin_scope import FunctionNode, Scope
from jitla.tracing.twin_static import Statics, mangle, plain_names

__all__ = ["rewrite"]

LEAVES = (ast.Return, ast.Raise, ast.Break, ast.Continue)
SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Delete)
Loop = ast.For | ast.AsyncFor | ast.While


class Rewriter(ExpressionRewriter):
    """Rewrites one function and all functions and classes inside it, in place."""

    def __init__(
        self, scopes: dict[ast.AST, Scope], root: Scope, statics: Statics, private: str | None
    ) -> None:
        super().__init__(scopes, root, statics)
        self.private = private
        self.loops: list[Loop] = []
        self.suspends = False  # inside a generator or coroutine
        self.temporaries = 0

    # -- functions and classes -----------------------------------------------------------------

    def body_of(self, node: FunctionNode) -> None:
        outer = self.here, self.loops, self.suspends
        self.here, self.loops = self.scopes[node], []
        self.suspends = self.here.yields or isinstance(node, ast.AsyncFunctionDef)
        if isinstance(node, ast.Lambda):
            node.body = self.visit(node.body)
        else:
            node.body = self.block(node.body)
        self.here, self.loops, self.suspends = outer

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        node.decorator_list = self.decorators(node.decorator_list)
        self.defaults(node.args)
        self.body_of(node)
        return node

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
            made = self.visit(statement)
            result.extend(made if isinstance(made, list) else [made])
        return result

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> list[ast.stmt]:
        return [barrier(node), node]

    visit_ImportFrom = visit_Import

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        # annotations inside functions are not evaluated
        if node.value is None:
            if not isinstance(node.target, ast.Name):
                node.target = self.parts(node.target)  # type: ignore[assignment]
        elif isinstance(node.target, ast.Name):
            node.value = self.kept(node.value, node.target.id)
        else:
            node.value = self.visit(node.value)
            node.target = self.target(node.target)  # type: ignore[assignment]
        return node

    # -- stores --------------------------------------------------------------------------------

    def visit_Assign(self, node: ast.Assign) -> ast.AST | list[ast.stmt]:
        if len(node.targets) == 1:
            match node.targets[0]:
                case ast.Attribute(value=obj, attr=attr) as target:
                    value, name = self.visit(node.value), self.name(attr)
                    args = [value, self.visit(obj), name]
                    return placed(ast.Expr(hook("setattr", args, _end(target))), node)
                case ast.Subscript(value=obj, slice=key) as target:
                    args = [self.visit(node.value), self.visit(obj), key_of(self.visit(key))]
                    return placed(ast.Expr(hook("setitem", args, target)), node)
        names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        node.value = self.kept(node.value, *names)
        node.targets = [self.target(target) for target in node.targets]
        unpacked = (t for t in node.targets if not isinstance(t, ast.Name))
        return [node, *self.keeps(unpacked, node)]

    def target(self, node: ast.expr) -> ast.expr:
        """Rewrite one target among several, or of a loop, context or unpacking."""
        match node:
            case ast.Tuple(elts=elts) | ast.List(elts=elts):
                node.elts = [self.target(each) for each in elts]
            case ast.Starred(value=value):
                node.value = self.target(value)
            case ast.Attribute(value=obj, attr=attr):
                return stores_attribute(self.visit(obj), mangle(attr, self.private), _end(node))
            case ast.Subscript(value=obj, slice=key):
                return stores_item(self.visit(obj), key_of(self.visit(key)), node)
        return node

    def keeps(self, targets: object, at: ast.AST) -> list[ast.stmt]:
        """Statements that keep the names just bound inside `targets`."""
        names = {
            each.id: None
            for target in targets  # type: ignore[attr-defined]
            for each in ast.walk(target)
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
        }
        return self.keep_names(list(names), at)

    def keep_names(self, names: list[str], at: ast.AST) -> list[ast.stmt]:
        return [
            placed(
                ast.Assign(
                    [placed(ast.Name(name, ast.Store()), at)],
                    hook("keep", [placed(ast.Name(name, ast.Load()), at)], at),
                ),
                at,
            )
            for name in names
            if self.needs_keep(name)
        ]

    def name(self, attr: str) -> ast.expr:
        return ast.Constant(mangle(attr, self.private))

    def visit_Delete(self, node: ast.Delete) -> list[ast.stmt]:
        return [made for target in node.targets for made in self.deletions(target, node)]

    def deletions(self, target: ast.expr, at: ast.Delete) -> list[ast.stmt]:
        match target:
            case ast.Tuple(elts=elts) | ast.List(elts=elts):
                return [made for each in elts for made in self.deletions(each, at)]
            case ast.Attribute(value=obj, attr=attr):
                args = [self.visit(obj), self.name(attr)]
                return [placed(ast.Expr(hook("delattr", args, _end(target))), at)]
            case ast.Subscript(value=obj, slice=key):
                args = [self.visit(obj), key_of(self.visit(key))]
                return [placed(ast.Expr(hook("delitem", args, target)), at)]
        return [placed(ast.Delete([target]), at)]

    # -- in-place operations -------------------------------------------------------------------

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST | list[ast.stmt]:
        function = constant(INPLACE[type(node.op)])
        rebinds = any(isinstance(each, ast.NamedExpr) for each in ast.walk(node.value))
        plain = self.is_plain(node.target)
        value = self.visit(node.value)
        match node.target:
            case ast.Name(id=name) as target:
                if plain:
                    node.value = value
                    return node
                old = placed(ast.Name(name, ast.Load()), target)
                new: ast.expr = hook("inplace", [function, old, value], node)
                if self.needs_keep(name):
                    new = hook("keep", [new], node)
                return placed(ast.Assign([target], new), node)
            case ast.Attribute(value=obj, attr=attr) as target:
                first, again, spent = self.twice(self.visit(obj), rebinds)
                old = placed(ast.Attribute(first, attr, ast.Load()), target)
                new = hook("inplace", [function, old, value], node)
                call = hook("setattr", [new, again, self.name(attr)], _end(target))
            case ast.Subscript(value=obj, slice=key) as target:
                first, again, spent = self.twice(self.visit(obj), rebinds)
                key, key_again, spent_key = self.twice(key_of(self.visit(key)), rebinds)
                old = placed(ast.Subscript(first, key, ast.Load()), target)
                new = hook("inplace", [function, old, value], node)
                call = hook("setitem", [new, again, key_again], target)
                spent = spent + spent_key
        done: list[ast.stmt] = [placed(ast.Expr(call), node)]
        if spent:
            done.append(placed(ast.Delete(spent), node))
        return done

    def twice(self, node: ast.expr, rebinds: bool) -> tuple[ast.expr, ast.expr, list[ast.expr]]:
        """Expressions for the first and the second use of `node`, and the temporaries to delete."""
        if not rebinds and self.is_stable(node):
            return node, node, []
        # a name no program can spell; a walrus target inside a comprehension would be another scope
        self.temporaries += 1
        name = f".jitla{self.temporaries}"
        first = placed(ast.NamedExpr(placed(ast.Name(name, ast.Store()), node), node), node)
        again = placed(ast.Name(name, ast.Load()), node)
        return first, again, [placed(ast.Name(name, ast.Del()), node)]

    def is_stable(self, node: ast.expr) -> bool:
        # evaluating it again right away gives the same object and has no effect
        match node:
            case ast.Constant():
                return True
            case ast.Name(id=name):
                return self.here.resolve(name) == "local"
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant()):
                return True
            case ast.Tuple(elts=elts):
                return all(self.is_stable(each) for each in elts)
            case ast.Call(func=ast.Constant(), args=args):  # a slice
                return all(self.is_stable(each) for each in args)
        return False

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
        return [hook_statement("edge", [], at)]

    def visit_For(self, node: ast.For) -> ast.AST:
        node.iter = hook("iterate", [self.visit(node.iter)], node.iter)
        return self.for_target(node)

    def visit_AsyncFor(self, node: ast.AsyncFor) -> ast.AST:
        node.iter = hook("awaits", [self.visit(node.iter)], node.iter)
        return self.for_target(node)

    def for_target(self, node: ast.For | ast.AsyncFor) -> ast.AST:
        keeps = self.keeps([node.target], at_line(node))
        node.target = self.target(node.target)
        return self.loop(node, keeps)

    def visit_While(self, node: ast.While) -> ast.AST:
        node.test = self.visit(node.test)
        return self.loop(node, [])

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
        node.subject = self.visit(node.subject)
        for case in node.cases:
            names = [name for each in ast.walk(case.pattern) for name in _captured(each)]
            case.guard = case.guard and self.visit(case.guard)
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


def _captured(pattern: ast.AST) -> list[str]:
    name = getattr(pattern, "rest", None) or getattr(pattern, "name", None)
    return [name] if isinstance(name, str) else []


def _end(node: ast.Attribute) -> ast.AST:
    # CPython gives a store to an attribute the line of the attribute's name
    at = ast.Pass()
    at.lineno = at.end_lineno = node.end_lineno or node.lineno
    same = at.lineno == node.lineno
    at.col_offset = node.col_offset if same else 0
    at.end_col_offset = node.end_col_offset or 0
    return at


def rewrite(
    node: FunctionNode, scopes: dict[ast.AST, Scope], statics: Statics, private: str | None
) -> None:
    """Insert the hooks into `node`, in place."""
    rewriter = Rewriter(scopes, scopes[node], statics, private)
    for scope in set(scopes.values()):
        # facts are read off the bindings, which the rewriting changes
        plain_names(scope, statics)
        rewriter.aliases(scope)
    rewriter.body_of(node)
