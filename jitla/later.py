"""Names that are loaded when somebody asks for them: of a room by its front door, and functions of one file.

A front door that loads all its room costs some tenths of a millisecond a file; a process that finds plans and
machine code on disk needs few of them. What is loaded late is imported, too, where types are checked, so that
ranks and reading order hold for it: the house tests compare both.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from jitla.loading import load

__all__ = ["door", "later"]


def door(package: str, **files: str) -> Callable[[str], Any]:
    """Return what looks up names of `package`; `files` say which names each of its files gives to others."""
    where = {name: file for file, names in files.items() for name in names.split()}

    def found(name: str) -> Any:
        file = where.get(name)
        if file is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(load(f"{package}.{file}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return found


def later(module: str, *names: str) -> list[Callable[..., Any]]:
    """Return what calls the functions `names` of `module`, which is loaded by the first call."""
    return [_called(module, name) for name in names]


def _called(module: str, name: str) -> Callable[..., Any]:
    known: list[Callable[..., Any]] = []

    def call(*args: Any, **kwargs: Any) -> Any:
        if not known:
            known.append(getattr(load(module), name))
        return known[0](*args, **kwargs)

    call.__name__ = call.__qualname__ = name
    return call
