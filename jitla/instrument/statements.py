"""Rewriting of statements in instrumented functions, and where they may be split."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Sequence

from jitla.instrument.expressions import DISPLAYS, ExpressionRewriter, is_brief, lifted
from jitla.instrument.hook_nodes import (
    INPLACE,
    NUMBERS,
    at_line,
    barrier,
    constant,
    hook,
    hook_statement,
    key_of,
    name_line,
    placed,
    stores_attribute,
    stores_item,
)
from jitla.instrument.scope import FunctionNode, Scope, Statics, mangle, plain_names

__all__ = ["StoreRewriter", "Stretch", "rewrite"]


LONG = 48  # operations that a stretch has at least
_OPERATIONS = (ast.BinOp, ast.UnaryOp, ast.Compare, ast.Call, ast.Subscript, ast.AugAssign)


class Stretch:
    """Counts the operations of a function's statements."""

    def __init__(self) -> None:
        self.operations = 0
        self.last = ""

    def ends_with(self, statement: ast.stmt) -> bool:
        """Count `statement`; tell whether a stretch ends after it."""
        self.operations += sum(isinstance(node, _OPERATIONS) for node in ast.walk(statement))
        if self.operations < LONG:
            return False
        text = ast.unparse(statement)
        if self.last and text != self.last and self.operations < 2 * LONG:
            return False
        self.operations, self.last = 0, text
        return True


# What is written once in a twin: it has code of its own, binds a name, or hands over to other code.
_ONCE = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.NamedExpr,
         ast.Await, ast.Yield, ast.YieldFrom)


class StoreRewriter(ExpressionRewriter):
    """Rewrites statements that store; `private` is the class that mangles names here."""

    def __init__(
        self, scopes: dict[ast.AST, Scope], root: Scope, statics: Statics, private: str | None
    ) -> None:
        super().__init__(scopes, root, statics, private)
        self._temporaries = 0

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        # annotations inside functions are not evaluated
        if node.value is None:
            if not isinstance(node.target, ast.Name):
                node.target = self.parts(node.target)
        elif isinstance(node.target, ast.Name):
            node.value = self.kept(node.value, node.target.id)
        else:
            node.value = self.visit(node.value)
            node.target = self.target(node.target)  # type: ignore[assignment]
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST | list[ast.stmt]:
        if len(node.targets) == 1:
            match node.targets[0]:
                case ast.Attribute(value=obj, attr=attr) as target:
                    value, name = self.visit(node.value), self._name(attr)
                    args = [value, self.visit(obj), name]
                    return placed(ast.Expr(hook("setattr", args, name_line(target))), node)
                case ast.Subscript(value=obj, slice=key) as target:
                    args = [self.visit(node.value), self.visit(obj), key_of(self.key(key))]
                    return placed(ast.Expr(hook("setitem", args, target)), node)
        names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        value, node.value = node.value, self.kept(node.value, *names)
        if any(isinstance(each, (ast.Tuple, ast.List)) for each in node.targets):
            node.value = self.unpacked(value, node.value)
        node.targets = [self.target(target) for target in node.targets]
        unpacked = (t for t in node.targets if not isinstance(t, ast.Name))
        return [node, *self.keeps(unpacked, node)]

    def unpacked(self, value: ast.expr, made: ast.expr) -> ast.expr:
        """`made`, rewritten from `value`, which is unpacked: that may run code of its class."""
        return made if isinstance(made, DISPLAYS) else hook("iterate", [made], value)

    def target(self, node: ast.expr) -> ast.expr:
        """Rewrite one target among several, or of a loop, context or unpacking."""
        match node:
            case ast.Tuple(elts=elts) | ast.List(elts=elts):
                node.elts = [self.target(each) for each in elts]
            case ast.Starred(value=value):
                node.value = self.target(value)
            case ast.Attribute(value=obj, attr=attr):
                return stores_attribute(self.visit(obj), mangle(attr, self.private), name_line(node))
            case ast.Subscript(value=obj, slice=key):
                return stores_item(self.visit(obj), key_of(self.key(key)), node)
        return node

    def keeps(self, targets: Iterable[ast.AST], at: ast.AST) -> list[ast.stmt]:
        """Statements that keep the names just bound inside `targets`."""
        names = {
            each.id: None
            for target in targets
            for each in ast.walk(target)
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
        }
        return self.keep_names(list(names), at)

    def keep_names(self, names: list[str], at: ast.AST) -> list[ast.stmt]:
        """Statements that keep the variables just bound."""
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

    def _name(self, attr: str) -> ast.expr:
        return ast.Constant(mangle(attr, self.private))

    def visit_Delete(self, node: ast.Delete) -> list[ast.stmt]:
        return [made for target in node.targets for made in self._deletions(target, node)]

    def _deletions(self, target: ast.expr, at: ast.Delete) -> list[ast.stmt]:
        match target:
            case ast.Tuple(elts=elts) | ast.List(elts=elts):
                return [made for each in elts for made in self._deletions(each, at)]
            case ast.Attribute(value=obj, attr=attr):
                args = [self.visit(obj), self._name(attr)]
                return [placed(ast.Expr(hook("delattr", args, name_line(target))), at)]
            case ast.Subscript(value=obj, slice=key):
                args = [self.visit(obj), key_of(self.key(key))]
                return [placed(ast.Expr(hook("delitem", args, target)), at)]
        return [placed(ast.Delete([target]), at)]

    # -- in-place operations -------------------------------------------------------------------

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST | list[ast.stmt]:
        function = constant(INPLACE[type(node.op)])
        rebinds = any(isinstance(each, ast.NamedExpr) for each in ast.walk(node.value))
        plain = self.is_plain(node.target)
        again = None if any(isinstance(each, _ONCE) for each in ast.walk(node.value)) \
            else copy.deepcopy(node.value)
        value = self.visit(node.value)
        match node.target:
            case ast.Name(id=name) as target:
                if plain:
                    node.value = value
                    return node
                old: ast.expr = placed(ast.Name(name, ast.Load()), target)
                new: ast.expr = hook("inplace", [function, old, value], node)
                if self.needs_keep(name):
                    new = hook("keep", [new], node)
                made = placed(ast.Assign([target], new), node)
                return made if again is None else self._of_numbers(node, again, made)
            case ast.Attribute(value=obj, attr=attr) as target:
                first, again, spent = self._twice(self.visit(obj), rebinds)
                old = hook("attribute", [first, self._name(attr)], name_line(target))
                new = hook("inplace", [function, old, value], node)
                call = hook("setattr", [new, again, self._name(attr)], name_line(target))
            case ast.Subscript(value=obj, slice=key) as target:
                first, again, spent = self._twice(self.visit(obj), rebinds)
                key, key_again, spent_key = self._twice(key_of(self.key(key)), rebinds)
                old = placed(ast.Subscript(lifted(first, "[", target), key, ast.Load()), target)
                new = hook("inplace", [function, old, value], node)
                call = hook("setitem", [new, again, key_again], target)
                spent = spent + spent_key
        done: list[ast.stmt] = [placed(ast.Expr(call), node)]
        if spent:
            done.append(placed(ast.Delete(spent), node))
        return done

    def _of_numbers(self, node: ast.AugAssign, value: ast.expr, other: ast.stmt) -> ast.stmt:
        # of numbers the operation is done as it is, where its line is; `other` is done of all else
        assert isinstance(node.target, ast.Name)
        name = node.target.id
        if self.needs_keep(name):
            return other
        node.value = self.operand(value, "r")
        kind = placed(ast.Call(constant(type), [placed(ast.Name(name, ast.Load()), node)], []), node)
        asked = placed(ast.Compare(kind, [ast.In()], [constant(NUMBERS)]), node)
        return placed(ast.If(asked, [node], [other]), node)

    def _twice(self, node: ast.expr, rebinds: bool) -> tuple[ast.expr, ast.expr, list[ast.expr]]:
        # expressions for the first and the second use of `node`, and the temporaries to delete
        if not rebinds and self._is_stable(node):
            return node, node, []
        # a name no program can spell; a walrus target inside a comprehension would be another scope
        self._temporaries += 1
        name = f".jitla{self._temporaries}"
        first = placed(ast.NamedExpr(placed(ast.Name(name, ast.Store()), node), node), node)
        again = placed(ast.Name(name, ast.Load()), node)
        return first, again, [placed(ast.Name(name, ast.Del()), node)]

    def _is_stable(self, node: ast.expr) -> bool:
        # evaluating it again right away gives the same object and has no effect
        match node:
            case ast.Constant():
                return True
            case ast.Name(id=name):
                return self.here.resolve(name) == "local"
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant()):
                return True
            case ast.Tuple(elts=elts):
                return all(self._is_stable(each) for each in elts)
            case ast.Call(func=ast.Constant(), args=args):  # a slice
                return all(self._is_stable(each) for each in args)
        return False


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
