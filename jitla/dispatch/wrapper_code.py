"""Code objects of decorated functions: with the plain function's parameters, and a fast path that calls it.

Tools ask a function for its parameters and their defaults, by ``__code__``, ``__defaults__`` and what
`inspect` makes of these. Code is compiled once for each number of parameters of each sort, and for tests of
their values; a function gets a copy with its names, and with what the code has of jitla as constants. So the
function can have the globals and cells of the plain function, and be given the code of that.

A decorated function begins with code that decides about each call. Calls of classes that are left to the
plain function for a while are recognised by tests at the start of other code.
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

from jitla.concurrency import fork_safe_lock
from jitla.config import PROCESS_CONFIG, Config, configs_in_force, local_config
from jitla.introspection import BRIDGE_FILES, INTERNAL_MARK
from jitla.tiering.call_classes import RUNNING_SESSIONS, argument_class

__all__ = [
    "FastPath", "Link", "MAX_PATTERNS", "OWN", "argument_test", "find_link", "function_with_code",
    "parameter_names", "wrapper_code",
]


#: What variables of the code itself begin with.
OWN = "_j"
# What the code means by names. These are constants of it, as it has the globals of the plain function, where
# the names may mean something else.
_CONSTANT_OBJECTS: dict[str, Any] = {
    each.__name__: each for each in (type, int, len, str, float, complex, BaseException, RecursionError,
                                     np.ndarray, argument_class)}
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
"""
_TESTED = """\
if not {own}1.running and {own}1.process is {own}1.standing[0] \\
        and ({own}5 := {own}1.innermost)() is {own}1.local and {own}1.plain.__code__ is {own}1.body_of{same}:
    {tests}
    else:
        {own}3 = None
    if {own}3 is not None and {own}3.skip > 0:
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
    """Return what parameters are called in tests: those that go by position, and those by name only."""
    return [f"{OWN}p{n}" for n in range(both)], [f"{OWN}k{n}" for n in range(only)]


def wrapper_code(plain: Any, link: Link, tests: str = "") -> CodeType:
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
        return link if name == _LINK else _CONSTANT_OBJECTS[name]
    return given.get(constant, constant)


@lru_cache(maxsize=256)
def _code(shape: _Shape, tests: str) -> CodeType:
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
    body = _FAST_PATH * bool(tests or same)
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


MAX_PATTERNS = 4  # patterns of arguments that have a line each
_MAX_PARAMETERS = 16  # parameters for which testing takes too long
_UNSUPPORTED_FLAGS = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | inspect.CO_GENERATOR | inspect.CO_COROUTINE
# Packages whose classes are asked for their length in next to no time.
_TABLES = frozenset({"pandas", "polars"})
_ADMITTING = fork_safe_lock()


class FastPath:
    """What one function's calls are tested for; it is the same when a copy of the function travels."""

    __slots__ = ("running", "process", "local", "standing", "innermost", "tables", "known",
                 "link", "code", "plain", "body", "body_of", "defaults", "named", "__weakref__", "_patterns",
                 "_signature", "t0", "t1", "t2", "t3")

    def __init__(self, plain: Any) -> None:
        self.running: Any = True  # no kind of calls is known yet
        self.process: Config | None = None
        self.local: Config | None = None
        # here: code that travels takes nothing else along
        self.standing, self.innermost = PROCESS_CONFIG, local_config
        # By pattern, and then by the bits of the number of elements: the kind of calls.
        self.tables: dict[tuple[str, ...], dict[int, Any]] = {}
        self.known: list[Any] = []
        self.link: Link
        self.code: CodeType  # of the function that users call, but in recursions
        self.plain = plain
        # What runs plain calls: the function or its version with compiled loops; the code that it is made of.
        self.body, self.body_of = plain, getattr(plain, "__code__", None)
        # The defaults of the plain function, as they were seen last.
        self.defaults = getattr(plain, "__defaults__", None)
        self.named = getattr(plain, "__kwdefaults__", None)
        self._patterns: list[tuple[str, ...]] = []
        self._signature = _Signature(plain) if type(plain) is FunctionType else None
        self.t0 = self.t1 = self.t2 = self.t3 = {}  # type: dict[int, Any]

    def admit(
        self, wrapper: Any, kind: Any, args: tuple[Any, ...], kwargs: dict[str, Any],
    ) -> None:
        """Let calls like this one, which are of `kind`, be tested for in the code of `wrapper`."""
        with _ADMITTING:
            if not self.holds():
                self.forget()
                (self.process, self.local), self.running = configs_in_force(), RUNNING_SESSIONS
            kind.short = self.tables
            signature = self._signature
            values = None if signature is None else signature.values(args, kwargs)
            if signature is None or values is None:
                return
            table = self._table(signature, wrapper, self._pattern(signature.in_code, values))
            if table is not None:
                elements = sum([value.size for value in values if type(value) is np.ndarray])
                table[elements.bit_length()] = kind

    def _table(
        self, signature: _Signature, wrapper: Any, pattern: tuple[str, ...],
    ) -> dict[int, Any] | None:
        """Return the kinds of calls with this pattern, which `wrapper` has a line for from now on."""
        if pattern not in self.tables:
            if pattern not in self._patterns:
                if len(self._patterns) == MAX_PATTERNS:
                    return None
                self._patterns.append(pattern)
            made: dict[int, Any] = {}
            setattr(self, f"t{self._patterns.index(pattern)}", made)
            self.code = wrapper_code(self.plain, self.link, signature.tests(tuple(self._patterns)))
            wrapper.__code__ = self.code
            self.tables[pattern] = made
        return self.tables[pattern]

    def holds(self) -> bool:
        """Say whether the options are those that the kinds of calls belong to."""
        process, local = configs_in_force()
        return process is self.process and local is self.local

    def forget(self) -> None:
        """Let no call be left to the plain function unnoted."""
        self.running, self.process = True, None
        self.t0 = self.t1 = self.t2 = self.t3 = {}
        self.tables = {}

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
            self._patterns, self.known, self._signature = [], [], _Signature(plain)
            self.code = wrapper_code(plain, self.link)
            wrapper = state.wrapper()
            if wrapper is not None:
                wrapper.__code__ = self.code
                wrapper.__defaults__, wrapper.__kwdefaults__ = self.defaults, self.named

    def _pattern(self, names: list[str], values: tuple[Any, ...]) -> tuple[str, ...]:
        return tuple(
            argument_test(name, value, self.known) for name, value in zip(names, values, strict=True))


def argument_test(name: str, value: Any, known: list[Any]) -> str:
    """Return the test for arguments of the kind of `value`; `known` are objects that tests refer to."""
    kind = type(value)
    if kind is np.ndarray:
        return f"type({name}) is ndarray"
    said = argument_class(value)
    if value is None or kind is bool:
        return f"{name} is {value}"
    if kind is int:
        return f"type({name}) is int and {name}.bit_length() == {value.bit_length()}"
    if kind is str and said == (value,) and not value.startswith((OWN, "\0")):  # those mean something else
        return f"type({name}) is str and {name} == {value!r}"
    if kind in (float, complex):
        return f"type({name}) is {kind.__name__}"
    simple = said == (kind,) and kind is not str
    package = kind.__module__.partition(".")[0]
    if said[1:] and (package in _TABLES or package == "scipy"):
        count = f"len({name})" if package in _TABLES else f"{name}.data.size"
        return _size_test(name, kind, count, said[1], known)
    thing = kind if simple else said
    if thing not in known:
        known.append(thing)
    place = f"{OWN}1.known[{known.index(thing)}]"
    return f"type({name}) is {place}" if simple else f"argument_class({name}) == {place}"


def _size_test(name: str, kind: type, count: str, bits: int, known: list[Any]) -> str:
    """Return the test for data frames or sparse matrices of a class whose `count` has `bits` bits.

    `count` is the expression of the number of rows, or of stored entries. Columns and shapes are not tested:
    they would double the cost of the test, and they vary less. A call that differs only in these is assigned
    to its class when it is next recorded.
    """
    if kind not in known:
        known.append(kind)
    return f"type({name}) is {OWN}1.known[{known.index(kind)}] and {count}.bit_length() == {bits}"


class _Signature:
    """The parameters of a plain function, as far as code can have them."""

    def __init__(self, plain: FunctionType) -> None:
        code = plain.__code__
        both, only = code.co_argcount, code.co_kwonlyargcount
        self.names = code.co_varnames[:both + only]
        self.in_code = sum(parameter_names(both, only), [])
        self.plain = plain
        self._positional = both
        self._odd = bool(code.co_flags & _UNSUPPORTED_FLAGS) or len(self.names) > _MAX_PARAMETERS
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

    def tests(self, patterns: tuple[tuple[str, ...], ...]) -> str:
        """Return the lines that look for the kind of a call."""
        lines = []
        for number, pattern in enumerate(patterns):
            sizes = " + ".join(f"{name}.size" for name, test in zip(self.in_code, pattern, strict=True)
                               if test.endswith(" is ndarray")) or "0"
            lines.append(f"{'elif' if number else 'if'} {' and '.join(pattern) or 'True'}:\n"
                         f"    {OWN}3 = {OWN}1.t{number}.get(({sizes}).bit_length())\n")
        return "".join(lines)


BRIDGE_FILES.add(__file__)
