"""The code of functions whose calls are left to the plain function: as few steps as there can be.

Knows: parameters, and which tests tell calls of one kind from others. Must not know: clocks, tracing, plans.
Receives functions that users call, and calls that were left to the plain function; gives the functions code.

A decorated function begins with code for any arguments. Where calls of some kind need not even be noted for a
while, it is given code with the parameters of the plain function, in which a line tests for each such kind.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any
from weakref import ref

import numpy as np

from jitla.cold import RUNNING, kind_of_argument
from jitla.config import PROCESS, Config, in_force, local
from jitla.locks import relock

__all__ = ["MOST", "Shortcut", "dispatching", "test_of"]

MOST = 4  # patterns of arguments that have a line each
_MANY = 16  # parameters for which testing takes too long
_NEVER = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | inspect.CO_GENERATOR | inspect.CO_COROUTINE
# What the code means by names; all others of its own begin with `_OWN`. These are constants of it, as it has
# the globals of the plain function, where the names may mean something else.
_MEANT: dict[str, Any] = {
    each.__name__: each for each in (type, int, len, str, float, complex, BaseException, RecursionError,
                                     np.ndarray, kind_of_argument)}
_OWN = "_j"
_CONSTANT, _LINK = "\0jitla ", "link"  # what stands for an object among the constants until there is code
# Packages whose classes are asked for their length in next to no time.
_TABLES = frozenset({"pandas", "polars"})
_ADMITTING = relock()

# What is called is put into a variable first: CPython 3.11 looks longer for methods than for attributes.
_TEXT = """\
def made({free}):
    def wrapper({parameters}):
        try:
{body}
            return ({own}5 := {own}0.called)({own}0, {general})
        except BaseException as {own}4:
            try:
                {own}4.__traceback__ = {own}0.state().traceback({own}4)
            except RecursionError:
                pass  # callers have the room for it
            raise
        {free}
    return wrapper
"""
_BODY = """\
            {own}1 = ({own}5 := {own}0.shortcut)()
            if not {own}1.running and {own}1.process is {own}1.standing[0] \\
                    and ({own}5 := {own}1.innermost)() is {own}1.local:
                {tests}
                else:
                    {own}3 = None
                if {own}3 is not None and {own}3.skip > 0:
                    {own}3.skip -= 1
                    return ({own}5 := {own}1.plain)({handed})
"""


class Link:
    """What the code of functions that users call has of jitla: the function's state, and what does a call.

    Nothing is kept alive: code objects are unknown to the garbage collector. The function keeps its state.
    """

    __slots__ = ("state", "shortcut", "called")

    def __init__(self, state: Any, called: Callable[..., Any]) -> None:
        self.called = called
        self.state: Callable[[], Any]
        self.shortcut: Callable[[], Any]
        if state is not None:
            self.__setstate__(state)

    def __reduce__(self) -> tuple[Any, ...]:
        # The state is set afterwards: it leads to functions that have this as a constant.
        return Link, (None, self.called), self.state()

    def __setstate__(self, state: Any) -> None:
        if state.shortcut is None:
            state.shortcut = Shortcut(state.function)
        self.state, self.shortcut = ref(state), ref(state.shortcut)


def dispatching(plain: FunctionType, shortcut: Shortcut, link: Link) -> tuple[FunctionType, FunctionType]:
    """Return the function that users call instead of the plain one, and one that keeps its first code.

    They have the globals and cells of the plain function: the first can be given code of it.
    """
    shortcut.link = link
    shortcut.code = code = _linked(_general_code(len(plain.__code__.co_freevars)), link)
    space, name, cells = plain.__globals__, plain.__name__, plain.__closure__
    made = FunctionType(code, space, name, plain.__defaults__, cells)
    made.__kwdefaults__ = plain.__kwdefaults__
    return made, FunctionType(code, space, name, None, cells)


class Shortcut:
    """What one function's calls are tested for; it is the same when a copy of the function travels."""

    __slots__ = ("running", "process", "local", "standing", "innermost", "tables", "known",
                 "link", "code", "plain", "__weakref__", "_patterns", "_signature", "t0", "t1", "t2", "t3")

    def __init__(self, plain: Any) -> None:
        self.running: Any = True  # no kind of calls is known yet
        self.process: Config | None = None
        self.local: Config | None = None
        self.standing, self.innermost = PROCESS, local  # here: code that travels takes nothing else along
        # By pattern, and then by the bits of the number of elements: the kind of calls.
        self.tables: dict[tuple[str, ...], dict[int, Any]] = {}
        self.known: list[Any] = []
        self.link: Link
        self.code: CodeType  # of the function that users call, but in recursions
        self.plain = plain
        self._patterns: list[tuple[str, ...]] = []
        self._signature = _Signature(plain) if type(plain) is FunctionType else None
        self.t0 = self.t1 = self.t2 = self.t3 = {}  # type: dict[int, Any]

    def __reduce__(self) -> tuple[Any, ...]:
        return Shortcut, (self.plain,)

    def admit(
        self, wrapper: Any, kind: Any, args: tuple[Any, ...], kwargs: dict[str, Any],
    ) -> None:
        """Let calls like this one, which are of `kind`, be tested for in the code of `wrapper`."""
        with _ADMITTING:
            if not self.holds():
                self.forget()
                (self.process, self.local), self.running = in_force(), RUNNING
            kind.short = self.tables
            signature = self._signature
            values = None if signature is None else signature.values(args, kwargs)
            if signature is None or values is None:
                return
            table = self._table(signature, wrapper, self._pattern(signature.names, values))
            if table is not None:
                elements = sum([value.size for value in values if type(value) is np.ndarray])
                table[elements.bit_length()] = kind

    def _table(
        self, signature: _Signature, wrapper: Any, pattern: tuple[str, ...],
    ) -> dict[int, Any] | None:
        """Return the kinds of calls with this pattern, which `wrapper` has a line for from now on."""
        if pattern not in self.tables:
            if pattern not in self._patterns:
                if len(self._patterns) == MOST:
                    return None
                self._patterns.append(pattern)
            made: dict[int, Any] = {}
            setattr(self, f"t{self._patterns.index(pattern)}", made)
            self.code = signature.give(wrapper, tuple(self._patterns), self.link)
            self.tables[pattern] = made
        return self.tables[pattern]

    def holds(self) -> bool:
        """Say whether the options are those that the kinds of calls belong to."""
        process, local = in_force()
        return process is self.process and local is self.local

    def forget(self) -> None:
        """Let no call be left to the plain function unnoted."""
        self.running, self.process = True, None
        self.t0 = self.t1 = self.t2 = self.t3 = {}
        self.tables = {}

    def trimmed(self, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return arguments without those that are the defaults."""
        assert self._signature is not None
        return self._signature.trimmed(args, named)

    def _pattern(self, names: tuple[str, ...], values: tuple[Any, ...]) -> tuple[str, ...]:
        return tuple(test_of(name, value, self.known) for name, value in zip(names, values, strict=True))


def test_of(name: str, value: Any, known: list[Any]) -> str:
    """Return the test for arguments of the kind of `value`; `known` are objects that tests refer to."""
    kind = type(value)
    if kind is np.ndarray:
        return f"type({name}) is ndarray"
    said = kind_of_argument(value)
    if value is None or kind is bool:
        return f"{name} is {value}"
    if kind is int:
        return f"type({name}) is int and {name}.bit_length() == {value.bit_length()}"
    if kind is str and said == (value,):
        return f"type({name}) is str and {name} == {value!r}"
    if kind in (float, complex):
        return f"type({name}) is {kind.__name__}"
    simple = said == (kind,) and kind is not str
    package = kind.__module__.partition(".")[0]
    if said[1:] and (package in _TABLES or package == "scipy"):
        count = f"len({name})" if package in _TABLES else f"{name}.data.size"
        return _test_of_class(name, kind, count, said[1], known)
    thing = kind if simple else said
    if thing not in known:
        known.append(thing)
    place = f"{_OWN}1.known[{known.index(thing)}]"
    return f"type({name}) is {place}" if simple else f"kind_of_argument({name}) == {place}"


def _test_of_class(name: str, kind: type, count: str, bits: int, known: list[Any]) -> str:
    """Return the test for tables or sparse matrices of a class, whose `count` has so many bits.

    That is the number of rows, or of what is stored. Columns and shapes take as long again to count, and
    differ less: calls on others are told when they are noted.
    """
    if kind not in known:
        known.append(kind)
    return f"type({name}) is {_OWN}1.known[{known.index(kind)}] and {count}.bit_length() == {bits}"


class _Signature:
    """The parameters of a plain function, as far as code can have them."""

    def __init__(self, plain: FunctionType) -> None:
        code = plain.__code__
        both, only = code.co_argcount, code.co_kwonlyargcount
        self.names = code.co_varnames[:both + only]
        self.plain = plain
        self._positional, self._ahead = both, code.co_posonlyargcount
        self._odd = bool(code.co_flags & _NEVER) or len(self.names) > _MANY or any(
            name in _MEANT or name.startswith(_OWN) for name in self.names)
        self._defaults = plain.__defaults__ or ()
        self._named = plain.__kwdefaults__ or {}

    def values(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
        """Return the values of all parameters in a call that went well; None: code cannot have them."""
        plain = self.plain
        if self._odd or (plain.__defaults__ or ()) is not self._defaults \
                or (plain.__kwdefaults__ or {}) is not self._named and self._named:
            return None
        first = self._positional - len(self._defaults)
        found = dict(zip(self.names[first:self._positional], self._defaults, strict=True)) | self._named
        found |= dict(zip(self.names, args, strict=False)) | kwargs
        return tuple(found[name] for name in self.names) if len(found) == len(self.names) else None

    def trimmed(self, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return arguments without those that are the defaults: they are not what the caller gave."""
        n, defaults = len(args), self._defaults
        first = n - len(defaults)
        while n > first and args[n - 1] is defaults[n - 1 - first]:
            n -= 1
        return args[:n], {k: v for k, v in named.items() if k not in self._named or v is not self._named[k]}

    def give(self, wrapper: Any, patterns: tuple[tuple[str, ...], ...], link: Link) -> CodeType:
        """Give `wrapper` the code for `patterns`, and return it."""
        simple = not self._defaults and not self._named
        code = _linked(_code(self.names, self._positional, self._ahead, patterns, len(self._defaults),
                             tuple(self._named), simple, len(self.plain.__code__.co_freevars)), link)
        # Its old code takes any arguments: defaults mean nothing to it.
        wrapper.__defaults__, wrapper.__kwdefaults__ = self.plain.__defaults__, self.plain.__kwdefaults__
        wrapper.__code__ = code
        return code


@lru_cache(maxsize=256)
def _code(
    names: tuple[str, ...], positional: int, ahead: int, patterns: tuple[tuple[str, ...], ...], defaults: int,
    named: tuple[str, ...], simple: bool, free: int,
) -> CodeType:
    """Return the code of a function with such parameters."""
    tests = ""
    for number, pattern in enumerate(patterns):
        sizes = " + ".join(f"{name}.size" for name, test in zip(names, pattern, strict=True)
                           if test.endswith(" is ndarray")) or "0"
        tests += (f"{'elif' if number else 'if'} {' and '.join(pattern) or 'True'}:\n"
                  f"                    {_OWN}3 = {_OWN}1.t{number}.get(({sizes}).bit_length())\n"
                  "                ")
    ways, only = names[:positional], names[positional:]
    listed = [name + " = None" * (number >= positional - defaults) for number, name in enumerate(ways)]
    listed[ahead:ahead] = ["/"] * (ahead > 0)
    listed += ["*"] * bool(only) + [name + " = None" * (name in named) for name in only]
    given = "(" + "".join(f"{name}, " for name in ways) + ")"
    by_name = "{" + ", ".join(f"{name!r}: {name}" for name in only) + "}"
    return _compiled(
        ", ".join(listed),
        _BODY.format(own=_OWN, tests=tests.rstrip(),
                     handed=", ".join([*ways, *[f"{name}={name}" for name in only]])),
        f"{given}, {by_name}" if simple else f"*{_OWN}1.trimmed({given}, {by_name})", free)


@lru_cache(maxsize=256)
def _general_code(free: int) -> CodeType:
    """Return code for any arguments."""
    return _compiled("*args, **kwargs", "", "args, kwargs", free)


def _compiled(parameters: str, body: str, general: str, free: int) -> CodeType:
    """Return the code of a function with so many cells, which `_linked` gives its constants."""
    text = _TEXT.format(own=_OWN, parameters=parameters, body=body, general=general,
                        free=", ".join(f"{_OWN}f{i}" for i in range(free)))
    tree = _Constants().visit(ast.parse(text))
    inner = tree.body[0].body[0]
    found = {each.id: each.id.removeprefix(_OWN + "c") for each in ast.walk(inner)
             if isinstance(each, ast.Name) and each.id.startswith(_OWN + "c")} | {_OWN + "0": _LINK}
    inner.body[:0] = [ast.Assign([ast.Name(name, ast.Store())], ast.Constant(_CONSTANT + meant))
                      for name, meant in found.items()]
    code = compile(ast.fix_missing_locations(tree), __file__, "exec")
    for _ in range(2):
        code = next(each for each in code.co_consts if isinstance(each, CodeType))
    return code


class _Constants(ast.NodeTransformer):
    """Gives names that mean objects of `_MEANT` to variables of the code's own."""

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.ExceptHandler:
        """Let `node` name its class by a constant."""
        assert isinstance(node.type, ast.Name)
        node.type = ast.copy_location(ast.Constant(_CONSTANT + node.type.id), node.type)
        self.generic_visit(node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.Name:
        """Return the variable for `node`."""
        return ast.copy_location(ast.Name(f"{_OWN}c{node.id}", node.ctx), node) if node.id in _MEANT else node


def _linked(code: CodeType, link: Link) -> CodeType:
    """Return `code` with its constants."""
    meant = {_CONSTANT + name: each for name, each in _MEANT.items()} | {_CONSTANT + _LINK: link}
    return code.replace(co_consts=tuple([
        meant.get(each, each) if type(each) is str else each for each in code.co_consts]))
