"""Loop nests over elements, as they are written: where they are, and what they read and write.

Knows: syntax trees. Must not know: values, kinds, how code is made.
Receives the tree of a function; returns its nests, and the rule by which others are refused.
"""

from __future__ import annotations

import ast
from dataclasses import field

from jitla.classes import dataclass
from jitla.loops.kinds import Refused
from jitla.loops.lanes import Lanes, lanes, settled
from jitla.loops.names import EXITS, Loop, assigned, loads, named, read_outside, reads

SIMPLE = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Pass, ast.Break, ast.Continue)
EXPRESSIONS = (
    ast.Constant, ast.Name, ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.IfExp, ast.Subscript,
    ast.Tuple, ast.Attribute, ast.Call, ast.operator, ast.unaryop, ast.cmpop, ast.boolop,
    ast.expr_context, ast.Slice,
)
MOST_STATEMENTS = 200
# What makes a number of a row, as NumPy's functions and as methods.
REDUCING = frozenset({"sum", "max", "min"})
# Functions of Python that see all variables.
_ASKING = frozenset({"locals", "vars", "dir", "eval", "exec", "_getframe", "currentframe"})


@dataclass(eq=False)
class Nest:
    """One nest: its loop, the statements in it by number, the names it reads and assigns."""

    loop: Loop
    labels: dict[ast.AST, int] = field(default_factory=dict)
    # Names that it is given, those of the module that it reads, and those that it assigns.
    takes: tuple[str, ...] = ()
    globals: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    # Of those it assigns, the ones that are read outside of it, or when it runs again.
    live: tuple[str, ...] = ()
    # Its statements as those of lanes, if they are about slices.
    lanes: Lanes | None = None

    @property
    def line(self) -> int:
        """Where it begins."""
        return self.loop.lineno


@dataclass
class Found:
    """The nests of a function, and why other loops over elements are none."""

    nests: list[Nest]
    refused: list[tuple[int, str]]
    local: frozenset[str] = frozenset()
    free: frozenset[str] = frozenset()


def find(function: ast.AST, local: frozenset[str], free: frozenset[str]) -> Found:
    """Find the outermost nests over elements among the statements of a function.

    `local` are its variables, `free` those of functions around it.
    """
    found = Found([], [], local, free)
    body: list[ast.stmt] = function.body  # type: ignore[attr-defined]
    args = function.args  # type: ignore[attr-defined]
    given = (*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg)
    _search(body, {arg.arg for arg in given if arg is not None}, found)
    for nest in list(found.nests):
        others = read_outside(function, nest.loop)
        asked = not others.isdisjoint(_ASKING)
        nest.live = tuple(name for name in nest.writes if asked or name in others or name in nest.takes)
        if nest.lanes is not None and (asked or not settled(function, nest.lanes)):
            found.nests.remove(nest)
    return found


def _search(body: list[ast.stmt], bound: set[str], found: Found) -> set[str]:
    """Look for nests in `body`; return the names that surely have a value after it."""
    for statement in body:
        bound = _step(statement, bound, found)
    return bound


def _step(node: ast.stmt, bound: set[str], found: Found) -> set[str]:
    match node:
        case ast.For() | ast.While():
            _loop(node, bound, found)
            return bound
        case ast.If(body=body, orelse=orelse):
            first = _search(body, set(bound), found)
            second = _search(orelse, set(bound), found)
            return second if leaves(body) else first if leaves(orelse) else first & second
        case ast.With(items=items, body=body):
            taken = {n for item in items if item.optional_vars for n in assigned(item.optional_vars)}
            _search(body, bound | taken, found)
            return bound
        case ast.Try(body=body, handlers=handlers, orelse=orelse, finalbody=final):
            for part in (body, *(handler.body for handler in handlers), orelse, final):
                _search(part, set(bound), found)
            return bound
        case ast.Delete(targets=targets):
            return bound - {name for target in targets for name in assigned(target)}
        case ast.Assign(targets=targets):
            return bound | {name for target in targets for name in assigned(target)}
        case ast.AnnAssign(target=ast.Name(id=name), value=value) if value is not None:
            return bound | {name}
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return bound | {alias.asname or alias.name.partition(".")[0] for alias in names}
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return bound | {name}
    return bound


def leaves(body: list[ast.stmt]) -> bool:
    """Say whether what follows `body` is not reached from its end."""
    last = body[-1] if body else None
    if isinstance(last, ast.If):
        return leaves(last.body) and leaves(last.orelse)
    return isinstance(last, (ast.Return, ast.Raise, ast.Break, ast.Continue))


def _loop(loop: Loop, bound: set[str], found: Found) -> None:
    """Take a loop as a nest, or look for nests inside of it."""
    if not _elements(loop):
        if (made := lanes(loop)) is not None and (nest := _laned(loop, made, bound, found)) is not None:
            found.nests.append(nest)
            return
        inside = bound | ({*assigned(loop.target)} if isinstance(loop, ast.For) else set())
        _search(loop.body, inside, found)
        return
    try:
        found.nests.append(_nest(loop, bound, found))
    except Refused as refused:
        before = len(found.nests)
        inside = bound | ({*assigned(loop.target)} if isinstance(loop, ast.For) else set())
        _search(loop.body, inside, found)
        if len(found.nests) == before:
            found.refused.append((refused.line, refused.reason))


def _laned(loop: Loop, made: Lanes, bound: set[str], found: Found) -> Nest | None:
    """Return a nest of lanes, if all that it begins with has a value."""
    read = [name for name in dict.fromkeys(reads(loop)) if name not in made.fresh]
    takes = tuple(name for name in read if name in found.local or name in found.free)
    if not made.names | {made.target} <= found.local or not {*takes} <= bound | found.free \
            or not made.carried <= {*takes} or any(name.startswith("__") for name in read):
        return None
    return Nest(loop, {loop: 1}, takes, tuple(n for n in read if n not in takes), (made.target,), lanes=made)


def _elements(loop: Loop) -> bool:
    """Say whether an array is indexed inside of `loop`, not sliced only."""
    return any(isinstance(node, ast.Subscript) and _one(_parts(node.slice)) for node in ast.walk(loop))


def _one(parts: list[ast.expr]) -> bool:
    """Say whether indices change from turn to turn, and begin with one, or have no slice."""
    if any(isinstance(part, ast.Slice) for part in parts):
        return not isinstance(parts[0], (ast.Slice, ast.Constant))
    return not all(isinstance(part, ast.Constant) for part in parts)


def _parts(index: ast.expr) -> list[ast.expr]:
    return index.elts if isinstance(index, ast.Tuple) else [index]


def _nest(loop: Loop, bound: set[str], found: Found) -> Nest:
    nest = Nest(loop)
    _number(loop, nest, 0)
    if len(nest.labels) > MOST_STATEMENTS:
        raise Refused("it has too many statements", loop.lineno)
    if _whole(loop):
        raise Refused("a slice", loop.lineno)
    written = {node.id for node in ast.walk(loop) if isinstance(node, ast.Name) and not loads(node)}
    writes = [node.id for node in ast.walk(loop) if isinstance(node, ast.Name) and node.id in written]
    if not written <= found.local:
        raise Refused(f"{min(written - found.local)} is no variable of the function alone", loop.lineno)
    takes: dict[str, None] = {}
    outside: dict[str, None] = {}
    for name in reads(loop):
        if name.startswith("__"):
            raise Refused(f"{name} may be another name in a class", loop.lineno)
        if name in found.free or name in found.local and name in bound:
            takes[name] = None
        elif name not in found.local:
            outside[name] = None
        elif name not in written:
            raise Refused(f"{name} may have no value yet", loop.lineno)
    for name in named(loop):
        if name in found.free or name in found.local:
            raise Refused(f"what is in the variable {name} is called, or has attributes", loop.lineno)
    nest.takes, nest.globals, nest.writes = tuple(takes), tuple(outside), tuple(dict.fromkeys(writes))
    return nest


def _number(node: ast.stmt, nest: Nest, depth: int) -> None:
    """Give the statements numbers, outside in and in order; refuse what has no place in a nest."""
    nest.labels[node] = len(nest.labels) + 1
    match node:
        case ast.For(target=target, iter=source, body=body, orelse=orelse):
            if not isinstance(target, ast.Name):
                raise Refused("the target of a loop is no name", node.lineno)
            check(source)
            _body(body, orelse, nest, depth + 1)
        case ast.While(test=test, body=body, orelse=orelse):
            check(test)
            if not _moves(node):
                raise Refused("a loop that only something else could end", node.lineno)
            _body(body, orelse, nest, depth + 1)
        case ast.If(test=test, body=body, orelse=orelse):
            check(test)
            for each in (*body, *orelse):
                _number(each, nest, depth)
        case ast.Assign() | ast.AugAssign() | ast.AnnAssign():
            check(node)
            if isinstance(node, ast.AnnAssign) and node.value is None:
                raise Refused("an annotation without a value", node.lineno)
        case ast.Expr(value=ast.Constant()):
            pass
        case ast.Expr(value=ast.Call(func=called)):
            raise Refused(f"{ast.unparse(called)}(...) is called for what it does", node.lineno)
        case _ if not isinstance(node, (*SIMPLE, *EXITS)):
            raise Refused(f"a {type(node).__name__.lower()} statement", node.lineno)


def _moves(loop: ast.While) -> bool:
    """Say whether a loop assigns something that it asks for: else it waits, for another thread maybe."""
    asked = [loop.test, *(node.test for node in ast.walk(loop) if isinstance(node, ast.If))]
    names = {part.id for test in asked for part in ast.walk(test) if isinstance(part, ast.Name)}
    return any(isinstance(part, ast.Name) and part.id in names
               for node in ast.walk(loop) if isinstance(node, (ast.Name, ast.Subscript))
               and isinstance(node.ctx, ast.Store) for part in ast.walk(node))


def _body(body: list[ast.stmt], orelse: list[ast.stmt], nest: Nest, depth: int) -> None:
    if orelse:
        raise Refused("a loop with else", orelse[0].lineno)
    for each in body:
        _number(each, nest, depth)


def reduction(node: ast.AST) -> tuple[str, ast.expr] | None:
    """Return how a number is made of a row, and of which: or of the products of two."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(), attr=how), args=[operand], keywords=[]) \
                | ast.Call(func=ast.Attribute(value=operand, attr=how), args=[], keywords=[]):
            rows = [operand]
            if how == "sum" and isinstance(operand, ast.BinOp) and isinstance(operand.op, ast.Mult):
                rows = [operand.left, operand.right]
            kinds = {type(each) for each in rows}
            if how in REDUCING and ast.Subscript in kinds and kinds <= {ast.Subscript, ast.Name}:
                return how, operand
    return None


def check(node: ast.AST) -> None:
    """Refuse expressions that are no arithmetic of elements."""
    reduced = {id(part) for each in ast.walk(node) if reduction(each) for part in ast.walk(each)}
    for part in ast.walk(node):
        if isinstance(part, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
            continue
        line = getattr(part, "lineno", getattr(node, "lineno", 0))
        if isinstance(part, ast.Slice) and (
                part.step is not None or id(part) not in reduced and not _row(node)):
            raise Refused("a slice", line)
        if not isinstance(part, EXPRESSIONS):
            raise Refused(f"{type(part).__name__} is no arithmetic of numbers", line)
        if isinstance(part, ast.MatMult):
            raise Refused("a matrix product", line)
        if isinstance(part, (ast.Is, ast.IsNot, ast.In, ast.NotIn)):
            raise Refused("a question of identity or membership", line)
        if isinstance(part, ast.Call) and (part.keywords or not _plain(part.func) and not reduction(part)):
            raise Refused(f"a call of {ast.unparse(part.func)}", line)
        if isinstance(part, ast.Constant) and type(part.value) not in (int, float, bool):
            raise Refused(f"the constant {part.value!r} is no number", line)


def _row(node: ast.AST) -> bool:
    """Say whether a statement stores a row of an array."""
    targets = node.targets[:1] if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return any(isinstance(part, ast.Slice) for target in targets if isinstance(target, ast.Subscript)
               for part in _parts(target.slice))


def _whole(loop: Loop) -> bool:
    """Say whether a loop stores rows only, and reads no elements: there tracing has something to win."""
    places = [node for node in ast.walk(loop)
              if isinstance(node, ast.Subscript) and not isinstance(node.value, ast.Attribute)]
    sliced = [any(isinstance(part, ast.Slice) for part in _parts(place.slice)) for place in places]
    return all(sliced) and bool(sliced)


def _plain(called: ast.expr) -> bool:
    """Say whether what is called is a name, or an attribute of one."""
    if isinstance(called, ast.Attribute):
        called = called.value
    return isinstance(called, ast.Name)
