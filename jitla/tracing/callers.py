"""Substitutes for user frames, from which code that is not instrumented is called.

Python code can inspect the frame of its caller: the variables, as `numexpr.evaluate` and
``DataFrame.query`` do, globals, file, line and name. In an instrumented function the caller is a frame of
jitla, and the variables of the function are proxies. Such a call is therefore made from a frame with the
user's globals, file, line and name, whose variables are those of the instrumented function with values for
proxies, computed on access.
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
from jitla.introspection import frame_access_of, hidden_code, hide_module
from jitla.tracing.frames import (
    INTERNAL,
    call_at,
    hide_function,
    line_of,
    mark,
    place_of,
)

__all__ = ["CallerLocals", "call_from", "looks_at_caller"]

# The only name that the code of these frames reads: (function, args, kwargs, instrumented frame, session).
_CALL = ".call"
_CODE = compile("c[0](*c[1], **c[2])", "<caller>", "eval").replace(co_names=(_CALL,))
# By file, line, qualified name, and whether the frame is not counted (see `jitla.internal`).
_codes: dict[tuple[str, int, str, bool], CodeType] = {}
# Types of NumPy functions, which do not inspect frames; those that do are plain Python functions.
_NUMPY_FUNCTION_TYPES = frozenset({np.ufunc, type(np.sum)})
_PYTHON_FUNCTION_TYPES = frozenset({FunctionType, MethodType})
# Builtins that give no warnings themselves, but call iterators that may.
_ITERATING = frozenset({list, tuple, iter, next})
_STACKLEVEL = "stacklevel"
_STACKLEVEL_INDEX = 2  # the position of `stacklevel` among the arguments of `warnings.warn`


class CallerLocals(dict[str, Any]):
    """The local variables of a substitute frame, by name, computed on access.

    The code of the frame reads the function to call from here as well.
    """

    __slots__ = ("_call",)

    _call: tuple[Any, ...]

    def fill(self) -> CallerLocals:
        """Compute the values of all variables."""
        for name, value in self._variables():
            if not dict.__contains__(self, name):
                dict.__setitem__(self, name, self._call[4].boundary.plain(value))
        return self

    def _variables(self) -> list[tuple[str, Any]]:
        """Return the variables of the instrumented frame that are the user's."""
        if dict.__contains__(self, _CALL):
            self._call = dict.pop(self, _CALL)
        frame: FrameType = self._call[3]
        names = frame.f_locals
        # Names with a dot: Python's are followed by a number, those of the instrumentation are not.
        variables = [(name, value) for name, value in names.items()
                 if name[:1] != "." or name[1:].isdigit()]
        if type(names) is dict and frame.f_code.co_flags & CO_OPTIMIZED:
            names.clear()  # before Python 3.13 a copy that the frame keeps: it must not hold arrays
        return variables

    def __missing__(self, name: str) -> Any:
        values = [value for each, value in self._variables() if each == name]
        if name == _CALL:  # a debugger, for example, has read the variables before the call
            return self._call
        if not values:
            raise KeyError(name)
        value = self._call[4].boundary.plain(values.pop())
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
        """Drop the computed values, as numexpr does to leave no references."""
        self._variables()
        dict.clear(self)

    def copy(self) -> dict[str, Any]:
        """Return all variables."""
        return {**self}

    def __iter__(self) -> Iterator[str]:
        return dict.__iter__(self.fill())

    def __len__(self) -> int:
        return dict.__len__(self.fill())


def _fill_first(name: str) -> Callable[..., Any]:
    """Return the dict method `name`, preceded by the computation of all variables."""
    method = getattr(dict, name)

    def call(self: CallerLocals, *args: Any) -> Any:
        self.fill()
        return method(self, *args)

    return call


for _name in ("keys", "values", "items", "pop", "popitem", "setdefault", "__delitem__", "__eq__", "__ne__",
              "__or__", "__ror__", "__reversed__", "__repr__"):
    setattr(CallerLocals, _name, _fill_first(_name))


def call_from(
    frame: FrameType, session: Any, function: Callable[..., Any], args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Call `function` from a substitute for `frame`, the frame of an instrumented function."""
    kind = type(function)
    if kind in _NUMPY_FUNCTION_TYPES:
        return call_at(place_of(frame), function, args, kwargs)
    while kind is partial:
        args, kwargs = (*function.args, *args), {**function.keywords, **kwargs}  # type: ignore[attr-defined]
        function = function.func  # type: ignore[attr-defined]
        kind = type(function)
    reads_frame = counts_frames = False
    if function is warnings.warn:
        args, kwargs = _with_stacklevel(args, kwargs)
    elif kind in _PYTHON_FUNCTION_TYPES:
        python_function: Any = function.__func__ if kind is MethodType else function  # type: ignore[attr-defined]
        if type(python_function) is FunctionType:
            reads_frame, counts_frames = _frame_use(python_function)
    elif function in _ITERATING if kind is type else kind is BuiltinFunctionType and (
            function in _ITERATING or type(function.__self__) is GeneratorType):  # type: ignore[attr-defined]
        counts_frames = True
    names = CallerLocals()
    dict.__setitem__(names, _CALL, (function, args, kwargs, frame, session))
    if reads_frame:
        # Pending values must be computed before `function` can overwrite their operands.
        names.fill()
    return eval(_frame_code(frame, counts_frames), frame.f_globals, names)


def _frame_code(frame: FrameType, uncounted: bool) -> CodeType:
    """Return the code of a substitute for `frame`; `uncounted`: code that counts frames skips it."""
    own = frame.f_code
    key = own.co_filename, line_of(frame), own.co_qualname, uncounted
    code = _codes.get(key)
    if code is None:
        code = _CODE.replace(
            co_filename=key[0], co_firstlineno=key[1], co_name=own.co_name, co_qualname=key[2])
        code = _codes[key] = hidden_code(code) if uncounted else code
        mark(code, INTERNAL)
    return code


def _frame_use(function: FunctionType) -> tuple[bool, bool]:
    """Return whether a function inspects its caller's frame, and whether it only counts frames for a line.

    Functions that only count frames, for a warning or a message, must not count the substitute in addition
    to the frame of the instrumented function.
    """
    code = function.__code__
    cached = _FRAME_USES.get(code)
    if cached is None:
        reads_frame = bool(frame_access_of(function))
        counts_frames = not reads_frame and (code.co_filename == logging.__file__ or _gives_warnings(code))
        cached = _FRAME_USES.put(code, (reads_frame, counts_frames))
    return cached


def looks_at_caller(function: Any) -> bool:
    """Return whether a function is a Python function that inspects the frame of its caller."""
    return type(function) is FunctionType and _frame_use(function)[0]


_FRAME_USES: CodeCache[tuple[bool, bool]] = CodeCache(lambda code: (False, False))


def _gives_warnings(code: CodeType) -> bool:
    """Return whether code mentions `warn` or the argument `stacklevel`."""
    if "warn" in code.co_names or _STACKLEVEL in (*code.co_names, *code.co_varnames, *code.co_freevars):
        return True
    return any(
        _STACKLEVEL in each if type(each) is tuple else type(each) is CodeType and _gives_warnings(each)
        for each in code.co_consts)


def _with_stacklevel(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of `warnings.warn` for a call with one more frame on the stack."""
    level = args[_STACKLEVEL_INDEX] if len(args) > _STACKLEVEL_INDEX else kwargs.get(_STACKLEVEL, 1)
    try:
        level = max(operator.index(level), 2 if kwargs.get("skip_file_prefixes") else 1)
    except TypeError:
        return args, kwargs  # `warnings.warn` raises the error
    if level < 2:
        return args, kwargs
    if len(args) > _STACKLEVEL_INDEX:
        return (*args[:_STACKLEVEL_INDEX], level + 1, *args[_STACKLEVEL_INDEX + 1:]), kwargs
    return args, {**kwargs, _STACKLEVEL: level + 1}


hide_module(__name__, hide_function)
