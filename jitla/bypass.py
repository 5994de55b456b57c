"""The code of functions whose calls are left to the plain function: as few steps as there can be.

A decorated function begins with code that decides about each call. Where calls of some kind need not even be
noted for a while, it is given code in which a line tests for each such kind.
"""

from __future__ import annotations

import inspect
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from jitla.call_classes import (
    RUNNING,
    kind_of_argument,
)
from jitla.concurrency import relock
from jitla.config import PROCESS, Config, in_force, local
from jitla.parameters import OWN, Link, code_of, names_in_code

__all__ = ["MOST", "Shortcut", "test_of"]

MOST = 4  # patterns of arguments that have a line each
_MANY = 16  # parameters for which testing takes too long
_NEVER = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | inspect.CO_GENERATOR | inspect.CO_COROUTINE
# Packages whose classes are asked for their length in next to no time.
_TABLES = frozenset({"pandas", "polars"})
_ADMITTING = relock()


class Shortcut:
    """What one function's calls are tested for; it is the same when a copy of the function travels."""

    __slots__ = ("running", "process", "local", "standing", "innermost", "tables", "known",
                 "link", "code", "plain", "defaults", "named", "__weakref__", "_patterns", "_signature",
                 "t0", "t1", "t2", "t3")

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
                (self.process, self.local), self.running = in_force(), RUNNING
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
                if len(self._patterns) == MOST:
                    return None
                self._patterns.append(pattern)
            made: dict[int, Any] = {}
            setattr(self, f"t{self._patterns.index(pattern)}", made)
            self.code = code_of(self.plain, self.link, signature.tests(tuple(self._patterns)))
            wrapper.__code__ = self.code
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

    def kept(self, named: dict[str, Any]) -> dict[str, Any]:
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
            self.code = code_of(plain, self.link)
            wrapper = state.wrapper()
            if wrapper is not None:
                wrapper.__code__ = self.code
                wrapper.__defaults__, wrapper.__kwdefaults__ = self.defaults, self.named

    def _pattern(self, names: list[str], values: tuple[Any, ...]) -> tuple[str, ...]:
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
    if kind is str and said == (value,) and not value.startswith((OWN, "\0")):  # those mean something else
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
    place = f"{OWN}1.known[{known.index(thing)}]"
    return f"type({name}) is {place}" if simple else f"kind_of_argument({name}) == {place}"


def _test_of_class(name: str, kind: type, count: str, bits: int, known: list[Any]) -> str:
    """Return the test for tables or sparse matrices of a class, whose `count` has so many bits.

    That is the number of rows, or of what is stored. Columns and shapes take as long again to count, and
    differ less: calls on others are told when they are noted.
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
        self.in_code = sum(names_in_code(both, only), [])
        self.plain = plain
        self._positional = both
        self._odd = bool(code.co_flags & _NEVER) or len(self.names) > _MANY
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
