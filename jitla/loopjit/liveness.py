"""Liveness and definite assignment of local variables at the loops of a function, on its syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from jitla.classes import dataclass
from jitla.instrument import walk_tree

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.GeneratorExp)
Names = frozenset[str]
Loop = ast.For | ast.While


@dataclass(frozen=True)
class LoopLiveness:
    """Names that are live at the header of a loop and behind it, and those that certainly have values before
    it.
    """

    at_header: Names
    behind: Names
    assigned: Names


def names_read(node: ast.AST) -> Names:
    """Return all names that are read, or deleted, in a tree."""
    return frozenset(part.id for part in walk_tree(node)
                     if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Store))


def names_bound(target: ast.expr) -> Iterator[str]:
    """Yield the names that a target assigns for sure."""
    match target:
        case ast.Name(id=name):
            yield name
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            for element in elements:
                yield from names_bound(element)
        case ast.Starred(value=value):
            yield from names_bound(value)


def analyse(function: ast.FunctionDef) -> dict[Loop, LoopLiveness]:
    """Return the liveness at all loops of a function that are not in functions within it."""
    analysis = _Analysis(function)
    analysis.block(function.body, frozenset())
    arguments = function.args
    parameters = [arg.arg for arg in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    parameters += [arg.arg for arg in (arguments.vararg, arguments.kwarg) if arg is not None]
    assigned: dict[Loop, Names] = {}
    _assigned(function.body, frozenset(parameters), assigned)
    return {loop: LoopLiveness(analysis.at_header[loop], analysis.behind[loop], assigned[loop])
            for loop in analysis.at_header if loop in assigned}


class _Analysis:
    """Backward analysis; names that functions within the function read are live everywhere."""

    def __init__(self, function: ast.FunctionDef) -> None:
        inner = [node for node in walk_tree(function) if isinstance(node, _SCOPES) and node is not function]
        self.captured: Names = frozenset[str]().union(*map(names_read, inner))
        self.everything = names_read(function)
        self.at_header: dict[Loop, Names] = {}
        self.behind: dict[Loop, Names] = {}
        self._jumps: list[tuple[Names, Names]] = []

    def block(self, body: Sequence[ast.stmt], live: Names) -> Names:
        for node in reversed(body):
            live = self.statement(node, live) | self.captured
        return live

    def statement(self, node: ast.stmt, live: Names) -> Names:
        match node:
            case ast.Assign(targets=targets, value=value):
                return self._assign(targets, live) | names_read(value)
            case ast.AnnAssign(target=target, value=value):
                return live if value is None else self._assign([target], live) | names_read(value)
            case ast.AugAssign(target=target, value=value):
                own = frozenset(names_bound(target))
                return live | own | names_read(target) | names_read(value)
            case ast.If(test=test, body=body, orelse=orelse):
                return names_read(test) | self.block(body, live) | self.block(orelse, live)
            case ast.For():
                return self._loop(node, live) | names_read(node.iter)
            case ast.While():
                return self._loop(node, live)
            case ast.Break():
                return self._jumps[-1][0]
            case ast.Continue():
                return self._jumps[-1][1]
            case ast.Return(value=value):
                return names_read(value) if value is not None else frozenset()
            case ast.Raise():
                return names_read(node)
            case ast.Expr() | ast.Pass() | ast.Assert() | ast.Delete() | ast.Global() | ast.Nonlocal():
                return live | names_read(node)
            case ast.FunctionDef() | ast.ClassDef() | ast.Import() | ast.ImportFrom():
                return live | names_read(node)
            case ast.With(items=items, body=body):
                before = self.block(body, live) | live  # a manager may suppress an exception
                for part in walk_tree(node):
                    if part in self.at_header and isinstance(part, (ast.For, ast.While)):
                        self.at_header[part] |= live
                return before.union(*(names_read(item) for item in items))
        return self._opaque(node, live)

    def _opaque(self, node: ast.stmt, live: Names) -> Names:
        """Return what is live before a statement that exceptions may leave in its midst: nothing is killed.
        """
        for part in walk_tree(node):
            if isinstance(part, (ast.For, ast.While)):
                self.at_header[part] = self.behind[part] = self.everything
        return live | names_read(node) | self._targets(node)

    @staticmethod
    def _targets(node: ast.stmt) -> Names:
        return frozenset(part.target.id for part in walk_tree(node)
                         if isinstance(part, ast.AugAssign) and isinstance(part.target, ast.Name))

    @staticmethod
    def _assign(targets: Sequence[ast.expr], live: Names) -> Names:
        killed = frozenset(name for target in targets for name in names_bound(target))
        return (live - killed) | frozenset[str]().union(*map(names_read, targets))

    def _loop(self, node: Loop, live: Names) -> Names:
        ended = self.block(node.orelse, live)
        header = ended | (names_read(node.test) if isinstance(node, ast.While) else frozenset())
        while True:
            self._jumps.append((live, header))
            inside = self.block(node.body, header)
            self._jumps.pop()
            if isinstance(node, ast.For):
                inside = self._assign([node.target], inside)
            if inside <= header:
                break
            header |= inside
        self.at_header[node], self.behind[node] = header, live | ended
        return header


def _assigned(body: Sequence[ast.stmt], names: Names, loops: dict[Loop, Names]) -> Names:
    """Note the names that have values before each loop; return those that have values behind statements."""
    for node in body:
        match node:
            case ast.Assign(targets=targets):
                names |= frozenset(name for target in targets for name in names_bound(target))
            case ast.AnnAssign(target=target, value=ast.expr()) | ast.AugAssign(target=target):
                names |= frozenset(names_bound(target))
            case ast.If(body=then, orelse=otherwise):
                one, other = _assigned(then, names, loops), _assigned(otherwise, names, loops)
                names = other if _leaves(then) else one if _leaves(otherwise) else one & other
            case ast.For(target=target):
                names -= _deleted(node)
                loops[node] = names
                _assigned(node.body, names | frozenset(names_bound(target)), loops)
                _assigned(node.orelse, names, loops)
            case ast.While():
                names -= _deleted(node)
                loops[node] = names
                _assigned(node.body, names, loops)
                _assigned(node.orelse, names, loops)
            case ast.With(items=items, body=inner):
                bound = frozenset(name for item in items if item.optional_vars is not None
                                  for name in names_bound(item.optional_vars))
                _assigned(inner, names | bound, loops)
            case ast.Try():
                names -= _deleted(node)
                for part in (node.body, node.orelse, node.finalbody, *(h.body for h in node.handlers)):
                    _assigned(part, names, loops)
            case ast.Delete(targets=targets):
                names -= frozenset(target.id for target in targets if isinstance(target, ast.Name))
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                names |= {name}
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                names |= {(alias.asname or alias.name).partition(".")[0] for alias in aliases}
    return names


def _deleted(node: ast.AST) -> Names:
    """Return all names that are deleted in a tree, by handlers of exceptions too."""
    handlers = frozenset(
        part.name for part in walk_tree(node) if isinstance(part, ast.ExceptHandler) and part.name)
    return handlers | frozenset(part.id for part in walk_tree(node)
                                if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Del))


def _leaves(body: Sequence[ast.stmt]) -> bool:
    return bool(body) and isinstance(body[-1], (ast.Return, ast.Raise, ast.Break, ast.Continue))


def comprehension_names(node: ast.AST) -> Names:
    """Return all names that are variables of comprehensions in a tree, and nothing else."""
    inner: set[int] = set()
    names: set[str] = set()
    for part in ast.walk(node):
        if isinstance(part, ast.comprehension):
            found = [name for name in ast.walk(part.target) if isinstance(name, ast.Name)]
            inner.update(map(id, found))
            names.update(name.id for name in found)
    return frozenset(names) - frozenset(
        part.id for part in ast.walk(node)
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store) and id(part) not in inner)


def names_stored(node: ast.AST) -> Names:
    """Return all names that are assigned in a tree."""
    return frozenset(part.id for part in walk_tree(node)
                     if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store))


def names_read_by_item(loop: ast.AST) -> frozenset[str]:
    """Return the names that a loop only reads items of: lists with these names do not change in it."""
    items: set[int] = set()
    names: dict[str, list[int]] = {}
    for node in walk_tree(loop):
        match node:
            case ast.Subscript(value=ast.Name(), ctx=ast.Load()):
                items.add(id(node.value))
            case ast.For(iter=ast.Name()) if node is not loop:
                items.add(id(node.iter))
            case ast.Compare(comparators=others):
                items.update(id(other) for other in others)
            case ast.Call(func=ast.Name(id="len" | "enumerate" | "zip" | "sum" | "min" | "max"), args=args):
                items.update(map(id, args))
            case ast.Name(id=name):
                names.setdefault(name, []).append(id(node))
    return frozenset(name for name, places in names.items() if items.issuperset(places))
