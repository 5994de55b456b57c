"""The code of functions that users call: it has the parameters of the plain function.

Tools ask a function for its parameters and their defaults, by ``__code__``, ``__defaults__`` and what
`inspect` makes of these. Code is compiled once for each number of parameters of each sort, and for tests of
their values; a function gets a copy with its names, and with what the code has of jitla as constants. So the
function can have the globals and cells of the plain function, and be given the code of that.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from functools import lru_cache
from textwrap import indent
from types import CodeType, FunctionType
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from jitla.call_classes import kind_of_argument
from jitla.internal import MARK

__all__ = ["OWN", "Link", "called_by", "code_of", "link_in", "names_in_code"]

#: What variables of the code itself begin with.
OWN = "_j"
# What the code means by names. These are constants of it, as it has the globals of the plain function, where
# the names may mean something else.
_MEANT: dict[str, Any] = {
    each.__name__: each for each in (type, int, len, str, float, complex, BaseException, RecursionError,
                                     np.ndarray, kind_of_argument)}
_CONSTANT, _LINK = "\0jitla ", "link"  # what stands for an object among the constants until there is code
_FILE = __file__ + MARK  # its frames are not counted

# What is called is put into a variable first: CPython 3.11 looks longer for methods than for attributes.
_CALL = """\
def make_wrapper({free}):
    def wrapper({parameters}):
        try:
            {body}
            return {call}
        except BaseException as {own}4:
            try:
                {own}4.__traceback__ = {own}0.state().traceback({own}4)
            except RecursionError:
                pass  # callers have the room for it
            raise
        {free}
    return wrapper
"""
_SUSPENDED = """\
def make_wrapper({free}):
    {head} wrapper({parameters}):
        try:
            {body}
            return {call}
        except BaseException as {own}4:
            {own}4.__traceback__ = {own}0.state().traceback({own}4)
            raise
        {free}
    return wrapper
"""
_SHORTCUT = """\
{own}1 = ({own}5 := {own}0.shortcut)()
"""
_TESTED = """\
if not {own}1.running and {own}1.process is {own}1.standing[0] \\
        and ({own}5 := {own}1.innermost)() is {own}1.local{same}:
    {tests}
    else:
        {own}3 = None
    if {own}3 is not None and {own}3.skip > 0:
        {own}3.skip -= 1
        return ({own}5 := {own}1.plain)({handed})
"""
_RENEW = """\
{own}g = {given}
{own}n = {named}
if not ({same}):
    ({own}5 := {own}1.renew)({own}0.state())
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
        self.state, self.shortcut = ref(state), ref(state.shortcut)
        state.shortcut.link = self


def link_in(code: CodeType) -> Link | None:
    """Return the link among the constants of code."""
    return next((each for each in code.co_consts if type(each) is Link), None)


def called_by(function: Any, code: CodeType) -> FunctionType:
    """Return a function with `code`, and with whatever else `function` has: its own code would do."""
    if type(function) is not FunctionType:
        return FunctionType(code, {"__name__": __name__})
    made = FunctionType(code, function.__globals__, function.__name__, function.__defaults__,
                        function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    made.__qualname__ = function.__qualname__  # errors of calls name it
    return made


class _Shape(NamedTuple):
    """How many parameters code has.

    `both` can be given by position, `ahead` of them by position only; the last `defaults` of them have
    defaults, as those have that are `optional` among the others. `rest`: whether there are ``*`` and ``**``.
    `kind`: flags of generators and coroutines; `free`: number of cells.
    """

    both: int
    ahead: int
    defaults: int
    optional: tuple[bool, ...]
    rest: tuple[bool, bool]
    kind: int
    free: int


_ANY = _Shape(0, 0, 0, (), (True, True), 0, 0)


def _shape_of(plain: FunctionType) -> _Shape:
    code, named = plain.__code__, plain.__kwdefaults__ or {}
    both, flags = code.co_argcount, code.co_flags
    optional = tuple([name in named for name in code.co_varnames[both:both + code.co_kwonlyargcount]])
    return _Shape(
        both, code.co_posonlyargcount, min(len(plain.__defaults__ or ()), both), optional,
        (bool(flags & inspect.CO_VARARGS), bool(flags & inspect.CO_VARKEYWORDS)),
        flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE), len(code.co_freevars))


def names_in_code(both: int, only: int) -> tuple[list[str], list[str]]:
    """Return what parameters are called in tests: those that go by position, and those by name only."""
    return [f"{OWN}p{n}" for n in range(both)], [f"{OWN}k{n}" for n in range(only)]


def code_of(plain: Any, link: Link, tests: str = "") -> CodeType:
    """Return code with the parameters of `plain` that does a call by `link`, unless `tests` find its kind."""
    if type(plain) is not FunctionType:
        made = _code(_ANY, "")
        return made.replace(co_consts=tuple([_constant(each, link, {}) for each in made.co_consts]))
    code, shape = plain.__code__, _shape_of(plain)
    made = _code(shape, tests)
    count = shape.both + len(shape.optional) + sum(shape.rest)
    names = code.co_varnames[:count]
    given = dict(zip(made.co_varnames[:count], names, strict=True)) if shape.optional else {}
    return made.replace(
        co_name=code.co_name, co_qualname=code.co_qualname, co_firstlineno=code.co_firstlineno,
        co_varnames=(*names, *made.co_varnames[count:]), co_freevars=code.co_freevars,
        co_consts=tuple([_constant(each, link, given) for each in made.co_consts]))


def _constant(constant: Any, link: Link, given: dict[str, str]) -> Any:
    """Return what a constant stands for; names of keywords in it are replaced by those that are given."""
    if type(constant) is tuple:
        return tuple([_constant(each, link, given) for each in constant])
    if type(constant) is not str:
        return constant
    if constant.startswith(_CONSTANT):
        name = constant.removeprefix(_CONSTANT)
        return link if name == _LINK else _MEANT[name]
    return given.get(constant, constant)


@lru_cache(maxsize=256)
def _code(shape: _Shape, tests: str) -> CodeType:
    """Return code of this shape, in which names stand for constants."""
    own, (both, ahead, defaults, optional, rest, kind, free) = OWN, shape
    ways, only = names_in_code(both, len(optional))
    listed = [name + " = None" * (n >= both - defaults) for n, name in enumerate(ways)]
    listed[ahead:ahead] = ["/"] * (ahead > 0)
    listed += [f"*{own}a"] * rest[0] or ["*"] * bool(only)
    listed += [name + " = None" * has for name, has in zip(only, optional, strict=True)]
    listed += [f"**{own}w"] * rest[1]
    # Those that are the defaults are not handed on: they are not what the caller gave.
    given = _tuple(ways[:both - defaults])
    for n in range(both - defaults, both):
        given = f"{_tuple(ways[:n + 1])} if {ways[n]} is not {own}1.defaults[{n - both}] else {given}"
    if rest[0]:
        given = f"({''.join(name + ', ' for name in ways)}*{own}a,) if {own}a else {given}"
    named = "{" + ", ".join(f"{name!r}: {name}" for name in only) + "}"
    named = f"({own}5 := {own}1.kept)({named})" if any(optional) else named
    if rest[1]:
        named = f"{{**{named}, **{own}w}}" if only else f"{own}w"
    # Whether defaults are those that were seen last; where there are none of a sort, none are handed on.
    same = " and ".join([f"{own}1.plain.__defaults__ is {own}1.defaults"] * bool(defaults)
                        + [f"{own}1.plain.__kwdefaults__ is {own}1.named"] * any(optional))
    body = _SHORTCUT * bool(tests or same)
    if tests:
        body += _TESTED.replace("{tests}", indent(tests, "    ").strip()).replace(
            "{same}", f" and {same}" if same else "").replace(
            "{handed}", ", ".join([*ways, *[f"{name}={name}" for name in only]]))
    if same:
        body += _RENEW.replace("{given}", given).replace("{named}", named).replace("{same}", same)
        given, named = f"{own}g", f"{own}n"
    call = f"({own}5 := {own}0.called)({own}0, {given}, {named})"
    if kind:
        call = f"(yield from {call})" if kind == inspect.CO_GENERATOR else f"await {call}"
    text = (_SUSPENDED if kind else _CALL).format(
        own=own, parameters=", ".join(listed), call=call, free=", ".join(f"{own}f{n}" for n in range(free)),
        head="async def" if kind == inspect.CO_COROUTINE else "def",
        body=indent((body or "pass").replace("{own}", own), " " * 12).strip())
    return _compiled(text)


def _tuple(names: list[str]) -> str:
    return "(" + "".join(f"{name}, " for name in names) + ")"


def _compiled(text: str) -> CodeType:
    """Return the code of the inner function in `text`, in which names stand for constants."""
    tree = _Constants().visit(ast.parse(text))
    inner = tree.body[0].body[0]
    begin = OWN + "c"
    found = {each.id: each.id.removeprefix(begin) for each in ast.walk(inner)
             if isinstance(each, ast.Name) and each.id.startswith(begin)} | {OWN + "0": _LINK}
    inner.body[:0] = [ast.Assign([ast.Name(name, ast.Store())], ast.Constant(_CONSTANT + meant))
                      for name, meant in found.items()]
    code = compile(ast.fix_missing_locations(tree), _FILE, "exec")
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
        return ast.copy_location(ast.Name(f"{OWN}c{node.id}", node.ctx), node) if node.id in _MEANT else node
