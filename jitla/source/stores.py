"""Hooks at stores: assignments of every kind, deletions, in-place operations.

Knows: which targets need a hook, and how to keep Python's order of evaluation.
Must not know: loops, functions, code objects. Receives statements that store; returns others.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable

from jitla.source.exprs import ExpressionRewriter
from jitla.source.inserts import (
    INPLACE,
    NUMBERS,
    constant,
    hook,
    key_of,
    name_line,
    placed,
    stores_attribute,
    stores_item,
)
from jitla.source.operands import DISPLAYS, lifted
from jitla.source.scope import Scope
from jitla.source.static import Statics, mangle

__all__ = ["StoreRewriter"]

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
