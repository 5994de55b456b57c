"""Frames of jitla that stand between a user's function and its caller, and are not counted as either.

A warning with ``stacklevel=2`` belongs to the line that called the function which gives it, and `logging`
reports the line that logs. Both walk up the stack, and both pass over frames of Python's import system,
which they know by two words in the name of the file. Code of jitla that is called between two functions of
users gets these words appended to the name of its file, so that it is passed over, too. What comes before
them is the path of the file: tracebacks of jitla's own failures say where they happened, and `linecache`
finds the lines by the module.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

__all__ = ["MARK", "hide", "hide_module", "hidden"]

#: What the name of a file ends in whose frames are not counted.
MARK = " (internal, as importlib._bootstrap)"


def hidden(code: CodeType) -> CodeType:
    """Return `code`, and the code inside of it, with a name of the file for which it is not counted."""
    if code.co_filename.endswith(MARK):
        return code
    inside = tuple([hidden(each) if isinstance(each, CodeType) else each for each in code.co_consts])
    return code.replace(co_filename=code.co_filename + MARK, co_consts=inside)


def hide(function: FunctionType) -> None:
    """Let frames of `function`, and of functions that it defines, not be counted."""
    function.__code__ = hidden(function.__code__)


def hide_module(name: str, each: Callable[[FunctionType], None] = hide) -> None:
    """Do so for all functions and methods that the module of that name defines."""
    for value in list(vars(sys.modules[name]).values()):
        if isinstance(value, type) and value.__module__ == name:
            for part in list(vars(value).values()):
                _hide(part, name, each)
        else:
            _hide(value, name, each)


def _hide(value: Any, name: str, each: Callable[[FunctionType], None]) -> None:
    if isinstance(value, (classmethod, staticmethod)):
        value = value.__func__
    elif isinstance(value, property):
        value = value.fget
    if isinstance(value, FunctionType) and value.__module__ == name:
        each(value)
