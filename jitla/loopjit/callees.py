"""Functions of users that loops call: inlined helpers, and decorated functions called from loops."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from types import CodeType, FunctionType, ModuleType
from typing import Any

from jitla.classes import dataclass
from jitla.instrument import syntax_tree_of
from jitla.introspection import is_decorated, is_installed, package_of
from jitla.loopjit.detect import EXPRESSIONS, check, computed
from jitla.loopjit.types import Refused

__all__ = ["DEEPEST", "Helper", "Helpers", "LONGEST_WAY"]


_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def defined(function: ast.AST, code: CodeType) -> Iterator[tuple[ast.FunctionDef, CodeType]]:
    """Yield the functions that are defined in one and only called in it, with their code."""
    bound, called = bindings(function), {id(node.func) for node in ast.walk(function)
                                         if isinstance(node, ast.Call)}
    for node in _own(function):
        if not isinstance(node, ast.FunctionDef) or node.decorator_list or bound.count(node.name) != 1:
            continue
        if any(isinstance(each, ast.Name) and each.id == node.name and id(each) not in called
               for each in ast.walk(function)):
            continue
        found = [each for each in code.co_consts if isinstance(each, CodeType)
                 and (each.co_name, each.co_firstlineno) == (node.name, node.lineno)]
        if len(found) == 1:
            yield node, found[0]


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what is in a function, but not in functions and classes in it."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, _SCOPES):
            yield from _own(child)


def bindings(function: ast.AST) -> list[str]:
    """Return the names that are bound anywhere in a function, as often as they are."""
    found = []
    for node in ast.walk(function):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name) \
                    | ast.ExceptHandler(name=str() as name) | ast.MatchAs(name=str() as name) \
                    | ast.MatchStar(name=str() as name) | ast.MatchMapping(rest=str() as name):
                found.append(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name) \
                    if node is not function:
                found.append(name)
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                found += names
            case ast.alias():
                found.append((node.asname or node.name).partition(".")[0])
    return found


def called(
    function: FunctionType, tree: ast.AST, but: Sequence[ast.AST],
) -> list[tuple[ast.Call, FunctionType]]:
    """Return the calls in a tree, not in what is in `but`, of functions of the user's, as names are now."""
    local = {*bindings(tree), *function.__code__.co_freevars}
    found = []
    for node in _outside(tree, but):
        if isinstance(node, ast.Call):
            given = _named(node.func, function.__globals__, local)
            if type(given) is FunctionType and given is not function and is_users(given, function):
                found.append((node, given))
    return found


def _outside(node: ast.AST, but: Sequence[ast.AST]) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        if child not in but:
            yield from _outside(child, but)


def _named(node: ast.expr, space: dict[str, Any], local: set[str]) -> Any:
    """Return what a name of the module is, or a name in a module that it names."""
    match node:
        case ast.Name(id=name):
            return None if name in local else space.get(name)
        case ast.Attribute(value=value, attr=attr):
            module = _named(value, space, local)
            return vars(module).get(attr) if isinstance(module, ModuleType) else None
    return None


def is_users(given: FunctionType, caller: FunctionType) -> bool:
    """Say whether a function is of the program that calls it, and not decorated."""
    if is_decorated(given):
        return False
    return not is_installed(given.__code__.co_filename) or package_of(given) == package_of(caller)


class CalleeVersion:
    """Selects what a compiled function calls: the version of a callee with loops, or the callee itself."""

    __slots__ = ("loop_function",)

    def __init__(self, loop_function: Any) -> None:
        self.loop_function = loop_function

    def of(self, function: Any) -> Any:
        """Return the version of `function` if it is the function that was seen, and unchanged."""
        loops = self.loop_function
        return loops.version if function is loops.function and loops.is_current() else function


def handed(call: ast.Call, key: str) -> None:
    """Let a call in a tree select its callee by the object that `key` stands for."""
    asked = ast.Call(ast.Attribute(ast.Constant(key), "of", ast.Load()), [call.func], [])
    for node in (asked, asked.func, asked.func.value):  # type: ignore[attr-defined]
        ast.copy_location(node, call.func)
    call.func = asked


# Functions that call the next; statements that are written out for one call, those behind an ``if`` twice.
DEEPEST, LONGEST_WAY = 4, 40
_GENERATORS = 0x20 | 0x80 | 0x200


@dataclass(frozen=True)
class Helper:
    """A function that makes a number of numbers, as its code was."""

    function: FunctionType
    code: CodeType
    names: tuple[str, ...]
    body: tuple[ast.stmt, ...]


class Helpers:
    """The functions that the nests of one function may call, and why others are none."""

    def __init__(self, caller: FunctionType) -> None:
        self._caller = caller
        self._met: dict[int, tuple[Any, Helper | str]] = {}

    def of(self, function: Any) -> Helper | str:
        """Return what a function does, or what of it is not for nests."""
        _, known = self._met.get(id(function), (None, None))
        if known is None or isinstance(known, Helper) and function.__code__ is not known.code:
            try:
                made: Helper | str = _helper(function, self._caller)
            except Refused as refused:
                made = refused.reason
            self._met[id(function)] = function, made
        return self._met[id(function)][1]


def _helper(function: Any, caller: FunctionType) -> Helper:
    if type(function) is not FunctionType or not is_users(function, caller):
        raise Refused("")
    code = function.__code__
    source = None if code.co_flags & _GENERATORS or function.__closure__ else syntax_tree_of(function)
    if source is None or not isinstance(source.node, ast.FunctionDef):
        raise Refused("its text is not known, or it has variables of another function")
    args = source.node.args
    if args.vararg or args.kwarg or args.kwonlyargs:
        raise Refused("it takes any number of arguments, or named ones")
    for each in source.node.body:
        _allowed(each)
    names = tuple(arg.arg for arg in (*args.posonlyargs, *args.args))
    return Helper(function, code, names, tuple(source.node.body))


def _allowed(node: ast.stmt) -> None:
    """Refuse statements of a function that do more than to make a number."""
    match node:
        case ast.Expr(value=ast.Constant()) | ast.Pass():
            return
        case ast.If(test=test, body=body, orelse=orelse):
            _arithmetic(test)
            for each in (*body, *orelse):
                _allowed(each)
        case ast.Assign(targets=[ast.Name()], value=value) | ast.AugAssign(target=ast.Name(), value=value):
            _arithmetic(value)
        case ast.AnnAssign(target=ast.Name(), value=ast.expr() as value) \
                | ast.Return(value=ast.expr() as value):
            _arithmetic(value)
        case _:
            raise Refused(f"it has a {type(node).__name__.lower()} statement")


def _arithmetic(node: ast.expr) -> None:
    check(node)
    for part in computed(node):
        if not isinstance(part, EXPRESSIONS) or isinstance(part, (ast.Subscript, ast.Slice, ast.Tuple)):
            raise Refused("it has elements, or more than one number")
        if isinstance(part, ast.Name) and part.id.startswith("__"):
            raise Refused(f"{part.id} may be another name in a class")
