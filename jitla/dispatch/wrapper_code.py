"""Code objects of decorated functions: with the plain function's parameters, and a fast path that calls it.

Tools ask a function for its parameters and their defaults, by ``__code__``, ``__defaults__`` and what
`inspect` makes of these. Code is compiled once for each number of parameters of each sort; a function gets a
copy with its names, and with what the code has of jitla as constants. So the function can have the globals
and cells of the plain function, and be given the code of that.

The code begins with the fast path: after a plain call that was timed, a number of calls are plain without
being looked at, whatever their arguments are.
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

from jitla.concurrency import fork_safe_lock
from jitla.config import PROCESS_CONFIG, Config, configs_in_force, local_config
from jitla.introspection import BRIDGE_FILES, INTERNAL_MARK
from jitla.tiering.call_classes import RUNNING_SESSIONS

__all__ = [
    "FastPath", "Link", "OWN", "find_link", "function_with_code", "parameter_names", "wrapper_code",
]


#: What variables of the code itself begin with.
OWN = "_j"
# What the code means by names. These are constants of it, as it has the globals of the plain function, where
# the names may mean something else.
_CONSTANT_OBJECTS: dict[str, Any] = {
    each.__name__: each for each in (BaseException, RecursionError)}
_CONSTANT, _LINK = "\0jitla ", "link"  # what stands for an object among the constants until there is code
_FILE = __file__ + INTERNAL_MARK  # its frames are not counted

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
_FAST_PATH = """\
{own}1 = ({own}5 := {own}0.fast_path)()
{own}3 = {own}1.kind
if {own}3.skip > 0 and not {own}1.running and {own}1.process is {own}1.standing[0] \\
        and ({own}5 := {own}1.innermost)() is {own}1.local and {own}1.plain.__code__ is {own}1.body_of{same}:
    {own}3.skip -= 1
    return ({own}5 := {own}1.body)({handed})
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

    __slots__ = ("state", "fast_path", "called")

    def __init__(self, state: Any, called: Callable[..., Any]) -> None:
        self.called = called
        self.state: Callable[[], Any]
        self.fast_path: Callable[[], Any]
        if state is not None:
            self.__setstate__(state)

    def __reduce__(self) -> tuple[Any, ...]:
        # The state is set afterwards: it leads to functions that have this as a constant.
        return Link, (None, self.called), self.state()

    def __setstate__(self, state: Any) -> None:
        self.state, self.fast_path = ref(state), ref(state.fast_path)
        state.fast_path.link = self


def find_link(code: CodeType) -> Link | None:
    """Return the link among the constants of code."""
    return next((each for each in code.co_consts if type(each) is Link), None)


def function_with_code(function: Any, code: CodeType) -> FunctionType:
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


def parameter_names(both: int, only: int) -> tuple[list[str], list[str]]:
    """Return the names of parameters: of those that go by position, and of those by name only."""
    return [f"{OWN}p{n}" for n in range(both)], [f"{OWN}k{n}" for n in range(only)]


def wrapper_code(plain: Any, link: Link) -> CodeType:
    """Return code with the parameters of `plain` that does a call by `link`."""
    if type(plain) is not FunctionType:
        made = _code(_ANY)
        return made.replace(co_consts=tuple([_constant(each, link, {}) for each in made.co_consts]))
    code, shape = plain.__code__, _shape_of(plain)
    made = _code(shape)
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
        return link if name == _LINK else _CONSTANT_OBJECTS[name]
    return given.get(constant, constant)


@lru_cache(maxsize=256)
def _code(shape: _Shape) -> CodeType:
    """Return code of this shape, in which names stand for constants."""
    own, (both, ahead, defaults, optional, rest, kind, free) = OWN, shape
    ways, only = parameter_names(both, len(optional))
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
    named = f"({own}5 := {own}1.without_defaults)({named})" if any(optional) else named
    if rest[1]:
        named = f"{{**{named}, **{own}w}}" if only else f"{own}w"
    # Whether defaults are those that were seen last; where there are none of a sort, none are handed on.
    same = " and ".join([f"{own}1.plain.__defaults__ is {own}1.defaults"] * bool(defaults)
                        + [f"{own}1.plain.__kwdefaults__ is {own}1.named"] * any(optional))
    handed = [*ways, *[f"*{own}a"] * rest[0], *[f"{name}={name}" for name in only], *[f"**{own}w"] * rest[1]]
    body = "" if kind or shape is _ANY else _FAST_PATH.replace(
        "{same}", f" and {same}" if same else "").replace("{handed}", ", ".join(handed))
    if same:
        body += (not body) * "{own}1 = ({own}5 := {own}0.fast_path)()\n" + _RENEW.replace(
            "{given}", given).replace("{named}", named).replace("{same}", same)
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
    """Gives names that mean objects of `_CONSTANT_OBJECTS` to variables of the code's own."""

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.ExceptHandler:
        """Let `node` name its class by a constant."""
        assert isinstance(node.type, ast.Name)
        node.type = ast.copy_location(ast.Constant(_CONSTANT + node.type.id), node.type)
        self.generic_visit(node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.Name:
        """Return the variable for `node`."""
        if node.id not in _CONSTANT_OBJECTS:
            return node
        return ast.copy_location(ast.Name(f"{OWN}c{node.id}", node.ctx), node)


_ADMITTING = fork_safe_lock()


class _NoClass:
    """Stands for the class of calls before there is one."""

    __slots__ = ()
    skip = 0


_NO_CLASS = _NoClass()


class FastPath:
    """The plain calls of one function that need not be looked at; it is the same when a copy travels.

    `kind` is the class of the last timed call, which has the number of these calls.
    """

    __slots__ = ("running", "process", "local", "standing", "innermost", "kind", "link", "code", "plain",
                 "body", "body_of", "defaults", "named", "__weakref__")

    def __init__(self, plain: Any) -> None:
        self.running: Any = RUNNING_SESSIONS
        self.process: Config | None = None
        self.local: Config | None = None
        # here: code that travels takes nothing else along
        self.standing, self.innermost = PROCESS_CONFIG, local_config
        self.kind: Any = _NO_CLASS
        self.link: Link
        self.code: CodeType  # of the function that users call, but in recursions
        self.plain = plain
        # What runs plain calls, the function or its version with compiled loops, and the code it was made of.
        self.body, self.body_of = plain, getattr(plain, "__code__", None)
        # The defaults of the plain function, as they were seen last.
        self.defaults = getattr(plain, "__defaults__", None)
        self.named = getattr(plain, "__kwdefaults__", None)

    def admit(self, kind: Any, body: Any) -> None:
        """Let the next calls, of which `kind` has the number, run `body` at once."""
        with _ADMITTING:
            (self.process, self.local), self.running = configs_in_force(), RUNNING_SESSIONS
            self.body, self.body_of = body, getattr(self.plain, "__code__", None)
            self.kind = kind

    def holds(self) -> bool:
        """Return whether the options are those that the class of calls belongs to."""
        process, local = configs_in_force()
        return process is self.process and local is self.local

    def forget(self) -> None:
        """Let no call run before it was looked at."""
        self.kind, self.process = _NO_CLASS, None

    def without_defaults(self, named: dict[str, Any]) -> dict[str, Any]:
        """Return arguments by name without those that are the defaults."""
        usual = self.named or {}
        return {k: v for k, v in named.items() if k not in usual or v is not usual[k]}

    def renew(self, state: Any) -> None:
        """Let the function that users call have the defaults that the plain function has by now."""
        plain = self.plain
        with _ADMITTING:
            self.defaults, self.named = plain.__defaults__, plain.__kwdefaults__
            self.forget()
            self.code = wrapper_code(plain, self.link)
            wrapper = state.wrapper()
            if wrapper is not None:
                wrapper.__code__ = self.code
                wrapper.__defaults__, wrapper.__kwdefaults__ = self.defaults, self.named


BRIDGE_FILES.add(__file__)
