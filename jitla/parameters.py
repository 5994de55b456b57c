"""The first code of functions that users call: it has the parameters of the plain function.

Tools ask a function for its parameters and their defaults, by ``__code__``, ``__defaults__`` and what
`inspect` makes of these. Code is compiled once for each number of parameters of each sort; a function gets a
copy with its names.
"""

from __future__ import annotations

import inspect
from functools import lru_cache
from types import CellType, CodeType, FunctionType
from typing import Any

from jitla.internal import hidden

__all__ = ["has_parameters", "initial_code", "same_defaults", "with_parameters"]

_CALL = """\
        try:
            {prepare}
            return called({own}0, {own}1, {own}2, {handed})
        except BaseException as {own}e:
            {own}e.__traceback__ = {own}2.traceback({own}e)
            raise
"""
_YIELD = """\
        {prepare}
        return (yield from generated({own}0, {own}2, {handed}))
"""
_AWAIT = """\
        {prepare}
        return await awaited({own}0, {own}2, {handed})
"""
_RENEW = """\
{own}g = {given}
            {own}n = {named}
            if not ({same}):
                {own}1.renew({own}2)"""
_OWN = "_j"


def has_parameters(function: Any) -> bool:
    """Say whether the parameters of a function are known."""
    return type(function) is FunctionType and not function.__code__.co_flags & inspect.CO_ASYNC_GENERATOR


def with_parameters(
    plain: FunctionType, file: str, space: dict[str, Any], shortcut: Any, state: Any,
) -> FunctionType:
    """Return a function with the parameters of `plain` that hands calls on to what is in `space`."""
    cells = CellType(plain), CellType(shortcut), CellType(state)
    made = FunctionType(initial_code(plain, file), space, plain.__name__, plain.__defaults__, cells)
    made.__kwdefaults__ = plain.__kwdefaults__
    return made


def initial_code(plain: FunctionType, file: str) -> CodeType:
    """Return code with the parameters of `plain`, as if it were in `file`."""
    code = plain.__code__
    flags, both, only = code.co_flags, code.co_argcount, code.co_kwonlyargcount
    kind = flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE)
    named = plain.__kwdefaults__ or {}
    names = code.co_varnames
    optional = tuple([name in named for name in names[both:both + only]])
    rest = bool(flags & inspect.CO_VARARGS), bool(flags & inspect.CO_VARKEYWORDS)
    made = _code(
        both, code.co_posonlyargcount, min(len(plain.__defaults__ or ()), both), optional, rest, kind)
    count = both + only + sum(rest)
    given = dict(zip(made.co_varnames[:count], names[:count], strict=True))
    return made.replace(
        co_filename=hidden_name(file), co_name=code.co_name, co_qualname=code.co_qualname,
        co_firstlineno=code.co_firstlineno, co_varnames=(*names[:count], *made.co_varnames[count:]),
        co_consts=tuple([_renamed(each, given) for each in made.co_consts]) if only else made.co_consts)


def same_defaults(own: str, by_place: bool, by_name: bool) -> str:
    """Return the test whether defaults are those that were seen last; names that are not the user's begin so.

    Where there are none of a sort, code has none that it could hand on.
    """
    tests = [f"{own}0.__defaults__ is {own}1.defaults"] * by_place
    return " and ".join(tests + [f"{own}0.__kwdefaults__ is {own}1.named"] * by_name)


@lru_cache(maxsize=64)
def hidden_name(file: str) -> str:
    """Return the name that a file has in code whose frames are not counted."""
    return hidden(compile("", file, "exec")).co_filename  # itself, if it is one


def _renamed(constant: Any, given: dict[str, str]) -> Any:
    """Return a constant with the names of keywords in it replaced."""
    if type(constant) is tuple:
        return tuple([_renamed(each, given) for each in constant])
    return given.get(constant, constant) if type(constant) is str else constant


@lru_cache(maxsize=256)
def _code(
    both: int, ahead: int, defaults: int, optional: tuple[bool, ...], rest: tuple[bool, bool], kind: int,
) -> CodeType:
    """Return code with so many parameters.

    `both` can be given by position, `ahead` of them by position only; the last `defaults` of them have
    defaults, as those have that are `optional` among the others. `rest`: whether there are ``*`` and ``**``.
    """
    own = _OWN
    ways = [f"{own}p{n}" for n in range(both)]
    only = [f"{own}k{n}" for n in range(len(optional))]
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
    named = f"{own}1.kept({named})" if any(optional) else named
    if rest[1]:
        named = f"{{**{named}, **{own}w}}" if only else f"{own}w"
    simple = not defaults and not any(optional)
    prepare = "pass" if simple else _RENEW.format(
        own=own, given=given, named=named, same=same_defaults(own, bool(defaults), any(optional)))
    handed = f"{given}, {named}" if simple else f"{own}g, {own}n"
    body, head = _CALL, "def"
    if kind:
        body, head = (_YIELD, "def") if kind == inspect.CO_GENERATOR else (_AWAIT, "async def")
        prepare = prepare.replace("\n    ", "\n")
    text = f"def made({own}0, {own}1, {own}2):\n    {head} wrapper({', '.join(listed)}):\n" + body.format(
        own=own, prepare=prepare, handed=handed) + f"        {own}1\n    return wrapper\n"
    space: dict[str, Any] = {}
    exec(compile(text, __file__, "exec"), space)
    made: CodeType = space["made"](None, None, None).__code__
    return made


def _tuple(names: list[str]) -> str:
    return "(" + "".join(f"{name}, " for name in names) + ")"
