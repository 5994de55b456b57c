"""Frames that stand for the frame of the user's from which code is called that jitla does not see.

Python code can look at the frame that called it: at its variables, as `numexpr.evaluate` and
``DataFrame.query`` do, at its namespace, file, line and name. In a twin that frame is one of jitla's, and
variables of the twin's own frame are proxies. So the call is made from a frame that has the user's
namespace, file, line and name, and whose variables are those of the twin with arrays and numbers for
proxies, computed when they are asked for.
"""

from __future__ import annotations

import logging
import operator
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from inspect import CO_OPTIMIZED
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, GeneratorType, MethodType
from typing import Any

import numpy as np

from jitla.instrument import CodeCache
from jitla.introspection.frames import hidden, looks_at_frames
from jitla.tracing.frames import (
    INTERNAL,
    call_at,
    line_of,
    mark,
    place_of,
)

__all__ = ["CallerLocals", "call_from", "looks_at_caller"]

# The one name that code of such frames reads: (function, args, kwargs, the twin's frame, its session).
_CALL = ".call"
_CODE = compile("c[0](*c[1], **c[2])", "<caller>", "eval").replace(co_names=(_CALL,))
# By file, line, qualified name, and whether the frame is not counted (see `jitla.internal`).
_codes: dict[tuple[str, int, str, bool], CodeType] = {}
# NumPy's own functions look at no frames: Python code of it that does is of another class.
_NUMPY = frozenset({np.ufunc, type(np.sum)})
_PYTHON = frozenset({FunctionType, MethodType})
# They give no warnings themselves: only what they step through does.
_STEPPING = frozenset({list, tuple, iter, next})
_GIVEN = "stacklevel"
_WARN = 2  # the place of `stacklevel` among the arguments of `warnings.warn`


class CallerLocals(dict[str, Any]):
    """The variables of the user's frame that a call is made from, by name.

    Each is computed when it is asked for; code of the frame finds here what it calls.
    """

    __slots__ = ("_call",)

    _call: tuple[Any, ...]

    def fill(self) -> CallerLocals:
        """Compute all variables."""
        for name, value in self._variables():
            if not dict.__contains__(self, name):
                dict.__setitem__(self, name, self._call[4].plain(value))
        return self

    def _variables(self) -> list[tuple[str, Any]]:
        """Return the variables of the twin's frame that are the user's."""
        if dict.__contains__(self, _CALL):
            self._call = dict.pop(self, _CALL)
        frame: FrameType = self._call[3]
        names = frame.f_locals
        # Python's own names with a dot are of numbers; those that twins add are not.
        found = [(name, value) for name, value in names.items()
                 if name[:1] != "." or name[1:].isdigit()]
        if type(names) is dict and frame.f_code.co_flags & CO_OPTIMIZED:
            names.clear()  # before Python 3.13 a copy that the frame keeps: it must not hold arrays
        return found

    def __missing__(self, name: str) -> Any:
        found = [value for each, value in self._variables() if each == name]
        if name == _CALL:  # somebody, such as a debugger, looked at the variables before the call
            return self._call
        if not found:
            raise KeyError(name)
        value = self._call[4].plain(found.pop())
        dict.__setitem__(self, name, value)
        return value

    def __contains__(self, name: object) -> bool:
        names = [each for each, _ in self._variables()]
        return name in names or dict.__contains__(self, name)

    def get(self, name: str, default: Any = None) -> Any:
        """Return a variable, or `default`."""
        try:
            return self[name]
        except KeyError:
            return default

    def clear(self) -> None:
        """Forget what was computed: numexpr does that, so that no references stay behind."""
        self._variables()
        dict.clear(self)

    def copy(self) -> dict[str, Any]:
        """Return all variables."""
        return {**self}

    def __iter__(self) -> Iterator[str]:
        return dict.__iter__(self.fill())

    def __len__(self) -> int:
        return dict.__len__(self.fill())


def _filled(name: str) -> Callable[..., Any]:
    """Return the method of dictionaries of that name, which all variables are computed before."""
    method = getattr(dict, name)

    def call(self: CallerLocals, *args: Any) -> Any:
        self.fill()
        return method(self, *args)

    return call


for _name in ("keys", "values", "items", "pop", "popitem", "setdefault", "__delitem__", "__eq__", "__ne__",
              "__or__", "__ror__", "__reversed__", "__repr__"):
    setattr(CallerLocals, _name, _filled(_name))


def call_from(
    frame: FrameType, session: Any, function: Callable[..., Any], args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Call `function` from a frame that stands for `frame`, which is that of a twin."""
    kind = type(function)
    if kind in _NUMPY:
        return call_at(place_of(frame), function, args, kwargs)
    while kind is partial:
        args, kwargs = (*function.args, *args), {**function.keywords, **kwargs}  # type: ignore[attr-defined]
        function = function.func  # type: ignore[attr-defined]
        kind = type(function)
    looks = counts = False
    if function is warnings.warn:
        args, kwargs = _one_higher(args, kwargs)
    elif kind in _PYTHON:
        plain: Any = function.__func__ if kind is MethodType else function  # type: ignore[attr-defined]
        if type(plain) is FunctionType:
            looks, counts = _looks(plain)
    elif function in _STEPPING if kind is type else kind is BuiltinFunctionType and (
            function in _STEPPING or type(function.__self__) is GeneratorType):  # type: ignore[attr-defined]
        counts = True
    names = CallerLocals()
    dict.__setitem__(names, _CALL, (function, args, kwargs, frame, session))
    if looks:
        # What is not read again in the twin must be computed before `function` can write what it comes from.
        names.fill()
    return eval(_code(frame, counts), frame.f_globals, names)


def _code(frame: FrameType, uncounted: bool) -> CodeType:
    """Return the code of a frame that stands for `frame`; it may be passed over by those who count frames."""
    own = frame.f_code
    key = own.co_filename, line_of(frame), own.co_qualname, uncounted
    found = _codes.get(key)
    if found is None:
        found = _CODE.replace(
            co_filename=key[0], co_firstlineno=key[1], co_name=own.co_name, co_qualname=key[2])
        found = _codes[key] = hidden(found) if uncounted else found
        mark(found, INTERNAL)
    return found


def _looks(function: FunctionType) -> tuple[bool, bool]:
    """Say whether a function looks at the frame of its caller, and whether it counts frames to give a line.

    Who counts frames for a warning or a message, and looks at nothing else, is not to count the frame that
    stands for the twin's beside the twin's own.
    """
    code = function.__code__
    found = _KNOWN.get(code)
    if found is None:
        looks = bool(looks_at_frames(function))
        counts = not looks and (code.co_filename == logging.__file__ or _mentions(code))
        found = _KNOWN.put(code, (looks, counts))
    return found


def looks_at_caller(function: Any) -> bool:
    """Say whether a function, if it is one of Python, looks at the frame of its caller."""
    return type(function) is FunctionType and _looks(function)[0]


_KNOWN: CodeCache[tuple[bool, bool]] = CodeCache(lambda code: (False, False))


def _mentions(code: CodeType) -> bool:
    """Say whether code gives warnings, or names the argument that says how many frames are counted."""
    if "warn" in code.co_names or _GIVEN in (*code.co_names, *code.co_varnames, *code.co_freevars):
        return True
    return any(_GIVEN in each if type(each) is tuple else type(each) is CodeType and _mentions(each)
               for each in code.co_consts)


def _one_higher(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of `warnings.warn` where one frame more stands between line and caller."""
    level = args[_WARN] if len(args) > _WARN else kwargs.get(_GIVEN, 1)
    try:
        level = max(operator.index(level), 2 if kwargs.get("skip_file_prefixes") else 1)
    except TypeError:
        return args, kwargs  # an error, in the right words
    if level < 2:
        return args, kwargs
    if len(args) > _WARN:
        return (*args[:_WARN], level + 1, *args[_WARN + 1:]), kwargs
    return args, {**kwargs, _GIVEN: level + 1}
