"""Programs as the runner sees them: a function and its arguments, decorated or not."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

Decorator = Callable[[Any], Any]


class Call(NamedTuple):
    """A function and the arguments of its calls."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class Mode:
    """A way to run a program: a decorator, and whether all functions of the module need it."""

    name: str
    decorate: Decorator | None = None
    all_helpers: bool = False  # Numba compiles calls of compiled functions only


@dataclass(frozen=True)
class Program:
    """A program of a suite; `load` reads its module anew and applies the decorator of a mode."""

    suite: str
    field: str
    name: str
    load: Callable[[Mode], Call]


def load_file(path: Path, name: str, folder: Path | None = None) -> ModuleType:
    """Return a module executed from a file under `name`; `folder` is searched for what it imports."""
    if folder is not None and str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def functions_of(module: ModuleType) -> list[str]:
    """Return the names of the plain functions that a module defines."""
    return [name for name, value in vars(module).items()
            if isinstance(value, FunctionType) and value.__module__ == module.__name__]


def decorate_in(module: ModuleType, entry: str, helpers: Iterable[str], mode: Mode) -> Callable[..., Any]:
    """Decorate the entry function and `helpers` in the namespace of their module; return the entry."""
    if mode.decorate is not None:
        for name in {*helpers, entry, *(functions_of(module) if mode.all_helpers else ())}:
            setattr(module, name, mode.decorate(getattr(module, name)))
    function: Callable[..., Any] = getattr(module, entry)
    return function
