"""Rewriting of statements in instrumented functions: stores, loops, contexts, and ends of blocks."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Sequence

from jitla.instrument.expressions import (
    DISPLAYS,
    INPLACE,
    SCALAR_TYPES,
    ExpressionRewriter,
    attribute_target,
    barrier,
    constant,
    copy_position,
    first_line_of,
    hook,
    hook_statement,
    is_short_stencil_loop,
    item_target,
    key_expression,
    lift_call,
    name_position,
)
from jitla.instrument.scope import FunctionNode, NameScope, StaticNames, mangle, scalar_names

__all__ = ["StoreRewriter", "SplitPoints", "rewrite"]


MIN_OPERATIONS = 48
_OPERATION_NODES = (ast.BinOp, ast.UnaryOp, ast.Compare, ast.Call, ast.Subscript, ast.AugAssign)


class SplitPoints:
    """Places split points in straight-line code: counts the operations since the last one."""

    def __init__(self) -> None:
        self.operations = 0
        self.last = ""

    def is_at_split(self, statement: ast.stmt) -> bool:
        """Count `statement`; return whether a split point follows it.

        A repetition of the statement at the last split point is preferred: blocks of unrolled code are equal.
        """
        self.operations += sum(isinstance(node, _OPERATION_NODES) for node in ast.walk(statement))
        if self.operations < MIN_OPERATIONS:
            return False
        text = ast.unparse(statement)
        if self.last and text != self.last and self.operations < 2 * MIN_OPERATIONS:
            return False
        self.operations, self.last = 0, text
        return True


# Expressions that instrumented code must not contain twice: they have a code object, bind a name, or suspend.
_NOT_REPEATABLE = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.NamedExpr,
         ast.Await, ast.Yield, ast.YieldFrom)


class StoreRewriter(ExpressionRewriter):
    """Rewrites statements that store or delete."""

    def __init__(
        self, scopes: dict[ast.AST, NameScope], root: NameScope, statics: StaticNames, private: str | None
    ) -> None:
        super().__init__(scopes, root, statics, private)
        self._temporaries = 0

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        # annotations inside functions are not evaluated
        if node.value is None:
            if not isinstance(node.target, ast.Name):
                node.target = self.visit_children(node.target)
        elif isinstance(node.target, ast.Name):
            node.value = self.visit_stored(node.value, node.target.id)
        else:
            node.value = self.visit(node.value)
            node.target = self.target(node.target)  # type: ignore[assignment]
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST | list[ast.stmt]:
        if len(node.targets) == 1:
            match node.targets[0]:
                case ast.Attribute(value=obj, attr=attr) as target:
                    value, name = self.visit(node.value), self._attribute_name(attr)
                    args = [value, self.visit(obj), name]
                    return copy_position(ast.Expr(hook("setattr", args, name_position(target))), node)
                case ast.Subscript(value=obj, slice=key) as target:
                    args = [self.visit(node.value), self.visit(obj), key_expression(self.key(key))]
                    return copy_position(ast.Expr(hook("setitem", args, target)), node)
        names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        value, node.value = node.value, self.visit_stored(node.value, *names)
        if any(isinstance(each, (ast.Tuple, ast.List)) for each in node.targets):
            node.value = self.unpacked_value(value, node.value)
        node.targets = [self.target(target) for target in node.targets]
        unpacked = (t for t in node.targets if not isinstance(t, ast.Name))
        return [node, *self.materialised_targets(unpacked, node)]

    def unpacked_value(self, value: ast.expr, rewritten: ast.expr) -> ast.expr:
        """Return `rewritten`, made from `value`, with a hook: unpacking it may run code of its class."""
        return rewritten if isinstance(rewritten, DISPLAYS) else hook("iterate", [rewritten], value)

    def target(self, node: ast.expr) -> ast.expr:
        """Rewrite one of several targets, or that of a loop, context or unpacking."""
        match node:
            case ast.Tuple(elts=elts) | ast.List(elts=elts):
                node.elts = [self.target(each) for each in elts]
            case ast.Starred(value=value):
                node.value = self.target(value)
            case ast.Attribute(value=obj, attr=attr):
                return attribute_target(self.visit(obj), mangle(attr, self.private), name_position(node))
            case ast.Subscript(value=obj, slice=key):
                return item_target(self.visit(obj), key_expression(self.key(key)), node)
        return node

    def materialised_targets(self, targets: Iterable[ast.AST], at: ast.AST) -> list[ast.stmt]:
        """Return the statements that materialise the shared names bound inside `targets`."""
        names = {
            each.id: None
            for target in targets
            for each in ast.walk(target)
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
        }
        return self.materialise_names(list(names), at)

    def materialise_names(self, names: list[str], at: ast.AST) -> list[ast.stmt]:
        """Return the statements that materialise the values of those of `names` that are shared."""
        return [
            copy_position(
                ast.Assign(
                    [copy_position(ast.Name(name, ast.Store()), at)],
                    hook("materialise", [copy_position(ast.Name(name, ast.Load()), at)], at),
                ),
                at,
            )
            for name in names
            if self.is_shared(name)
        ]

    def _attribute_name(self, attr: str) -> ast.expr:
        return ast.Constant(mangle(attr, self.private))

    def visit_Delete(self, node: ast.Delete) -> list[ast.stmt]:
        return [statement for target in node.targets for statement in self._delete_statements(target, node)]

    def _delete_statements(self, target: ast.expr, at: ast.Delete) -> list[ast.stmt]:
        match target:
            case ast.Tuple(elts=elts) | ast.List(elts=elts):
                return [statement for each in elts for statement in self._delete_statements(each, at)]
            case ast.Attribute(value=obj, attr=attr):
                args = [self.visit(obj), self._attribute_name(attr)]
                return [copy_position(ast.Expr(hook("delattr", args, name_position(target))), at)]
            case ast.Subscript(value=obj, slice=key):
                args = [self.visit(obj), key_expression(self.key(key))]
                return [copy_position(ast.Expr(hook("delitem", args, target)), at)]
        return [copy_position(ast.Delete([target]), at)]

    # -- in-place operations -------------------------------------------------------------------

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST | list[ast.stmt]:
        function = constant(INPLACE[type(node.op)])
        rebinds = any(isinstance(each, ast.NamedExpr) for each in ast.walk(node.value))
        plain = self.holds_no_array(node.target)
        again = None if any(isinstance(each, _NOT_REPEATABLE) for each in ast.walk(node.value)) \
            else copy.deepcopy(node.value)
        value = self.visit(node.value)
        match node.target:
            case ast.Name(id=name) as target:
                if plain:
                    node.value = value
                    return node
                old: ast.expr = copy_position(ast.Name(name, ast.Load()), target)
                new: ast.expr = hook("inplace", [function, old, value], node)
                if self.is_shared(name):
                    new = hook("materialise", [new], node)
                assignment = copy_position(ast.Assign([target], new), node)
                return assignment if again is None else self._guard_by_scalar_type(node, again, assignment)
            case ast.Attribute(value=obj, attr=attr) as target:
                first, again, spent = self._evaluate_once(self.visit(obj), rebinds)
                old = hook("attribute", [first, self._attribute_name(attr)], name_position(target))
                new = hook("inplace", [function, old, value], node)
                call = hook("setattr", [new, again, self._attribute_name(attr)], name_position(target))
            case ast.Subscript(value=obj, slice=key) as target:
                first, again, spent = self._evaluate_once(self.visit(obj), rebinds)
                key, key_again, spent_key = self._evaluate_once(key_expression(self.key(key)), rebinds)
                old = copy_position(ast.Subscript(lift_call(first, "[", target), key, ast.Load()), target)
                new = hook("inplace", [function, old, value], node)
                call = hook("setitem", [new, again, key_again], target)
                spent = spent + spent_key
        statements: list[ast.stmt] = [copy_position(ast.Expr(call), node)]
        if spent:
            statements.append(copy_position(ast.Delete(spent), node))
        return statements

    def _guard_by_scalar_type(self, node: ast.AugAssign, value: ast.expr, other: ast.stmt) -> ast.stmt:
        # numbers need no hook, so that warnings come from the user's line; `other` handles all else
        assert isinstance(node.target, ast.Name)
        name = node.target.id
        if self.is_shared(name):
            return other
        node.value = self.operand(value, "r")
        operand = copy_position(ast.Name(name, ast.Load()), node)
        kind = copy_position(ast.Call(constant(type), [operand], []), node)
        is_scalar = copy_position(ast.Compare(kind, [ast.In()], [constant(SCALAR_TYPES)]), node)
        return copy_position(ast.If(is_scalar, [node], [other]), node)

    def _evaluate_once(self, node: ast.expr, rebinds: bool) -> tuple[ast.expr, ast.expr, list[ast.expr]]:
        # return expressions of the first and the second use of `node`, and the temporaries to delete
        if not rebinds and self._is_stable(node):
            return node, node, []
        # a name that is no identifier; a walrus target inside a comprehension would be in another scope
        self._temporaries += 1
        name = f".jitla{self._temporaries}"
        first = copy_position(ast.NamedExpr(copy_position(ast.Name(name, ast.Store()), node), node), node)
        again = copy_position(ast.Name(name, ast.Load()), node)
        return first, again, [copy_position(ast.Name(name, ast.Del()), node)]

    def _is_stable(self, node: ast.expr) -> bool:
        # whether evaluating it twice in succession gives the same object without side effects
        match node:
            case ast.Constant():
                return True
            case ast.Name(id=name):
                return self.current_scope.resolve(name) == "local"
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant()):
                return True
            case ast.Tuple(elts=elts):
                return all(self._is_stable(each) for each in elts)
            case ast.Call(func=ast.Constant(), args=args):  # a slice
                return all(self._is_stable(each) for each in args)
        return False


JUMP_STATEMENTS = (ast.Return, ast.Raise, ast.Break, ast.Continue)
SIMPLE_STATEMENTS = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Delete)
Loop = ast.For | ast.AsyncFor | ast.While


class _Rewriter(StoreRewriter):
    """Rewrites one function and all functions and classes inside it, in place."""

    def __init__(
        self, scopes: dict[ast.AST, NameScope], root: NameScope, statics: StaticNames, private: str | None
    ) -> None:
        super().__init__(scopes, root, statics, private)
        self.loops: list[Loop] = []
        self.combined_loops: set[Loop] = set()  # loops whose iterations are one block
        self.split_points = SplitPoints()
        self.is_suspendable = False  # inside a generator or coroutine

    # -- functions and classes -----------------------------------------------------------------

    def body_of(self, node: FunctionNode) -> None:
        outer = self.current_scope, self.loops, self.is_suspendable
        outer_checks = self.body, self.safe_names, self.parameter_uses, self.safety_flags
        self.current_scope, self.loops = self.scopes[node], []
        self.begin_function(node, node.args)
        self.is_suspendable = self.current_scope.yields or isinstance(node, ast.AsyncFunctionDef)
        if isinstance(node, ast.Lambda):
            node.body = self.visit(node.body)
        else:
            described = ast.get_docstring(node, clean=False) is not None
            arguments = self.materialise_arguments(node.args, first_line_of(node.body[0]))
            body = self.block(node.body)
            checks = self.safety_checks(first_line_of(_first_visible(node.body)))
            node.body = [*body[:described], *arguments, *checks, *body[described:]]
        self.current_scope, self.loops, self.is_suspendable = outer
        self.body, self.safe_names, self.parameter_uses, self.safety_flags = outer_checks

    def materialise_arguments(self, args: ast.arguments, at: ast.AST) -> list[ast.stmt]:
        """Return the statements that materialise the arguments that inner functions can read."""
        names = (*args.posonlyargs, *args.args, args.vararg, *args.kwonlyargs, args.kwarg)
        return self.materialise_names([each.arg for each in names if each is not None], at)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        node.decorator_list = self.decorators(node.decorator_list)
        self.defaults(node.args)
        self.body_of(node)
        if node.name == "__array__":
            self.materialise_returns(node)
        return node

    def materialise_returns(self, node: ast.AST) -> None:
        # NumPy calls `__array__` during traced operations, and accepts only an ndarray
        for each in ast.walk(node):
            if isinstance(each, ast.Return) and each.value is not None:
                each.value = hook("materialise", [each.value], each.value)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        self.defaults(node.args)
        self.body_of(node)
        return node

    def defaults(self, args: ast.arguments) -> None:
        args.defaults = [self.default(each) for each in args.defaults]
        args.kw_defaults = [each and self.default(each) for each in args.kw_defaults]

    def default(self, node: ast.expr) -> ast.expr:
        # a default outlives the statement, as the value of a cell does
        plain = self.holds_no_array(node)
        value: ast.expr = self.visit(node)
        return value if plain else hook("materialise", [value], node)

    def decorators(self, nodes: list[ast.expr]) -> list[ast.expr]:
        return [
            self.visit(node)
            if self.statics.is_safe_builtin(node, self.current_scope)
            else self.callee(node)
            for node in nodes
        ]

    def visit_ClassDef(self, node: ast.ClassDef) -> list[ast.stmt]:
        node.decorator_list = self.decorators(node.decorator_list)
        node.bases = [self.visit(base) for base in node.bases]
        node.keywords = [self.visit(keyword) for keyword in node.keywords]
        outer = self.current_scope, self.loops, self.private, self.is_suspendable
        self.current_scope, self.loops = self.scopes[node], []
        self.private, self.is_suspendable = node.name, False
        node.body = self.block(node.body)
        self.current_scope, self.loops, self.private, self.is_suspendable = outer
        # creating a class runs its metaclass
        return [barrier(first_line_of(node)), node]

    def block(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        """Rewrite a sequence of statements."""
        result: list[ast.stmt] = []
        for statement in body:
            ends = isinstance(statement, SIMPLE_STATEMENTS) and self.split_points.is_at_split(statement)
            rewritten = self.visit(statement)
            result.extend(rewritten if isinstance(rewritten, list) else [rewritten])
            if ends:
                result.append(hook_statement("split_point", [], first_line_of(statement)))
        return result

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> list[ast.stmt]:
        return [barrier(node), node]

    visit_ImportFrom = visit_Import

    # -- loops and contexts --------------------------------------------------------------------

    def loop(self, node: Loop, prefix: list[ast.stmt]) -> ast.AST:
        self.loops.append(node)
        body = [*prefix, *self.block(node.body)]
        if not isinstance(node.body[-1], JUMP_STATEMENTS):
            body += self.iteration_end(node, node.body[-1])
        node.body = body
        self.loops.pop()
        node.orelse = self.block(node.orelse)
        return node

    def iteration_end(self, loop: Loop, last: ast.stmt) -> list[ast.stmt]:
        # a separate line would show in debuggers and coverage: that of the last statement if it surely ran
        at = first_line_of(last if isinstance(last, SIMPLE_STATEMENTS) else loop)
        if isinstance(loop, ast.AsyncFor):
            return [hook_statement("await_value", [ast.Constant(None)], at), *self.synchronous_end(at)]
        return self.synchronous_end(at)

    def synchronous_end(self, at: ast.AST) -> list[ast.stmt]:
        return [] if self.loops[-1] in self.combined_loops else [hook_statement("end_iteration", [], at)]

    def visit_For(self, node: ast.For) -> ast.AST:
        if is_short_stencil_loop([node.iter], node.body, [node.target]):
            self.combined_loops.add(node)
        node.iter = self.unpacked_iterable(hook("iterate", [self.visit(node.iter)], node.iter), node.target)
        return self.for_target(node)

    def visit_AsyncFor(self, node: ast.AsyncFor) -> ast.AST:
        node.iter = hook("await_value", [self.visit(node.iter)], node.iter)
        return self.for_target(node)

    def for_target(self, node: ast.For | ast.AsyncFor) -> ast.AST:
        materialised_targets = self.materialised_targets([node.target], first_line_of(node))
        node.target = self.target(node.target)
        return self.loop(node, materialised_targets)

    def visit_While(self, node: ast.While) -> ast.AST:
        node.test = self.visit_tested(node.test)
        return self.loop(node, [])

    def visit_If(self, node: ast.If) -> ast.AST:
        node.test = self.visit_tested(node.test)
        node.body, node.orelse = self.block(node.body), self.block(node.orelse)
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        node.test = self.visit_tested(node.test)
        node.msg = node.msg and self.visit(node.msg)
        return node

    def visit_Continue(self, node: ast.Continue) -> list[ast.stmt]:
        return [*self.end_before_continue(node), node]

    def end_before_continue(self, node: ast.Continue) -> list[ast.stmt]:
        hooks = self.synchronous_end(node)
        if isinstance(self.loops[-1], ast.AsyncFor):
            hooks.insert(0, hook_statement("await_value", [ast.Constant(None)], node))
        return hooks

    def visit_With(self, node: ast.With) -> ast.AST:
        node.body = self.contexts(node, "enter_context") + self.block(node.body)
        return node

    def visit_AsyncWith(self, node: ast.AsyncWith) -> ast.AST:
        materialised_targets = self.contexts(node, "await_value")
        # leaving the context awaits as well, however the body ends
        flush = hook_statement("await_value", [ast.Constant(None)], first_line_of(node))
        body = materialised_targets + self.block(node.body)
        node.body = [copy_position(ast.Try(body, [], [], [flush]), node.body[0])]
        return node

    def contexts(self, node: ast.With | ast.AsyncWith, name: str) -> list[ast.stmt]:
        materialised_targets: list[ast.stmt] = []
        for item in node.items:
            manager = item.context_expr
            item.context_expr = hook(name, [self.visit(manager)], manager)
            if item.optional_vars is not None:
                materialised_targets += self.materialised_targets([item.optional_vars], first_line_of(node))
                item.optional_vars = self.target(item.optional_vars)
        return materialised_targets

    # -- other statements ----------------------------------------------------------------------

    def visit_Match(self, node: ast.Match) -> ast.AST:
        node.subject = self.visit_tested(node.subject)
        for case in node.cases:
            names = [name for each in ast.walk(case.pattern) for name in _captured_names(each)]
            case.guard = case.guard and self.visit_tested(case.guard)
            case.body = self.materialise_names(names, first_line_of(case.body[0])) + self.block(case.body)
        return node

    def visit_Return(self, node: ast.Return) -> ast.AST:
        if node.value is None:
            return node
        plain = self.holds_no_array(node.value)
        node.value = self.visit(node.value)
        if self.is_suspendable and not plain:
            # the result of a generator or coroutine goes to the code that resumes it
            node.value = hook("yield_value", [node.value], node.value)
        return node


def _first_visible(body: Sequence[ast.stmt]) -> ast.stmt:
    """Return the first statement that a debugger stops at."""
    silent = (ast.Global, ast.Nonlocal)
    visible = (
        each for each in body
        if not isinstance(each, silent)
        and not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
    )  # fmt: skip
    return next(visible, body[0])


def _captured_names(pattern: ast.AST) -> list[str]:
    name = getattr(pattern, "rest", None) or getattr(pattern, "name", None)
    return [name] if isinstance(name, str) else []


def rewrite(
    node: FunctionNode, scopes: dict[ast.AST, NameScope], statics: StaticNames, private: str | None
) -> None:
    """Insert the hooks into `node`, in place."""
    rewriter = _Rewriter(scopes, scopes[node], statics, private)
    for scope in set(scopes.values()):
        # computed before the rewriting, which changes the bindings
        scalar_names(scope, statics)
        rewriter.aliases(scope)
    rewriter.body_of(node)
