"""Decorates the functions of a package while its modules are imported.

Once a module has been executed, each function that it defines is replaced by the decorated one, in the
module, in its classes, and in tables that are variables of these: functions are compared with what they
have. What is imported from it afterwards is decorated. Functions that a module has wrapped by then stay as
they are there: what calls them is decorated. Left out are tests and their helpers, vendored packages that are
about other libraries than NumPy, asynchronous generators, and functions that were not made from a file of the
package, such as those of dataclasses.
"""

from __future__ import annotations

import inspect
import operator
import os
import sys
from collections.abc import Callable, Sequence
from functools import cached_property
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import jitla

_PARTS = frozenset({"tests", "conftest", "_test_common"})
#: Helpers of tests, build tools and vendored packages; names are those below the package.
LEFT_OUT = (
    "_lib._testutils", "_lib._docscrape", "_lib._pep440", "_lib._uarray", "_lib.uarray",
    "_lib.array_api_compat", "_lib.array_api_extra",
    "externals", "utils._testing", "utils._mocking", "utils.estimator_checks", "_build_utils",
    "__check_build",
)
#: What pytest looks for in packages, and asks for the number of parameters of its code.
_HOOKS = frozenset({"setup_module", "teardown_module"})

#: Where functions are looked up that have been put there while a module was executed.
TABLES = (("_lib._array_api", "xp_capabilities_table"),)

DEPTH = 3  # of tables in tables

#: All decorated functions of the process.
DECORATED: list[Any] = []


class DecoratingLoader(SourceFileLoader):
    """Executes a module, then decorates what it has defined."""

    options: dict[str, Any]
    folder: str

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module and decorate its functions."""
        super().exec_module(module)
        decorate_module(module, self.options, self.folder)


class Finder:
    """Finds the modules of one package, to be decorated with the given options of `jitla.jit`."""

    def __init__(self, package: str, options: dict[str, Any]) -> None:
        self.package = package
        self.options = options
        self.folder = ""

    def find_spec(self, name: str, path: Sequence[str] | None = None,
                  target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the spec that the import system would find, with a loader that decorates."""
        if name.partition(".")[0] != self.package or is_left_out(name):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and type(spec.loader) is SourceFileLoader:
            spec.loader = DecoratingLoader(spec.loader.name, spec.loader.path)
            spec.loader.options = self.options
            spec.loader.folder = self._folder(spec.loader.path)
        return spec

    def _folder(self, path: str) -> str:
        """Return the folder of the whole package, of which the first module is imported first."""
        self.folder = self.folder or os.path.dirname(path) + os.sep
        return self.folder


def start_decorating(package: str, options: dict[str, Any]) -> None:
    """From now on modules of `package` are decorated when they are imported; none may be there yet."""
    there = [name for name in sys.modules if name.partition(".")[0] == package]
    if there:
        raise RuntimeError(f"{package} has been imported before: {there[:3]}")
    sys.meta_path.insert(0, Finder(package, options))


def is_left_out(name: str) -> bool:
    """Say whether a module stays as it is."""
    below = name.partition(".")[2]
    return not _PARTS.isdisjoint(name.split(".")) or \
        any(below == each or below.startswith(f"{each}.") for each in LEFT_OUT)


class Source(NamedTuple):
    """A module, and the folder of the package that it is of."""

    module: str
    folder: str

    def has(self, function: Any) -> bool:
        """Say whether the package has written the text of `function`, for this module."""
        return type(function) is FunctionType and function.__module__ == self.module \
            and function.__name__ not in _HOOKS and not hasattr(function, "__jitla_state__") \
            and not inspect.isasyncgenfunction(function) \
            and function.__code__.co_filename.startswith(self.folder)


def decorate_module(module: ModuleType, options: dict[str, Any], folder: str) -> None:
    """Decorate the functions that `module` defines by files in `folder`, and the methods of its classes."""
    made: dict[FunctionType, Any] = {}  # a function may have several names

    def decorated(function: FunctionType) -> Any:
        if function not in made:
            made[function] = jitla.jit(function, **options)
            DECORATED.append(made[function])
        return made[function]

    _decorate(module, Source(module.__name__, folder), decorated, set())
    _fill(module, Source(module.__name__, folder), made)
    for place, name in TABLES:
        table = getattr(sys.modules.get(f"{module.__name__.partition('.')[0]}.{place}"), name, {})
        table.update({made[function]: table[function] for function in made if function in table})


def _decorate(owner: Any, source: Source, decorated: Callable[[FunctionType], Any], seen: set[type]) -> None:
    for name, value in list(vars(owner).items()):
        if isinstance(value, type):
            if value.__module__ == source.module and value not in seen:
                seen.add(value)
                _decorate(value, source, decorated, seen)
            continue
        made = _replaced(value, source, decorated)
        if made is not value:
            setattr(owner, name, made)


def _replaced(value: Any, source: Source, decorated: Callable[[FunctionType], Any]) -> Any:
    """Return what stands for `value`: decorated if it is a function of `source`, or what has one inside."""
    if type(value) is FunctionType:
        return decorated(value) if source.has(value) else value
    if type(value) in (staticmethod, classmethod):
        return type(value)(decorated(value.__func__)) if source.has(value.__func__) else value
    if type(value) is property and source.has(value.fget):
        return property(decorated(value.fget), value.fset, value.fdel, value.__doc__)
    if type(value) is cached_property and source.has(value.func):
        value.func = decorated(value.func)
    return value


def _fill(owner: Any, source: Source, made: dict[FunctionType, Any],
          seen: frozenset[type] = frozenset()) -> None:
    """Put decorated functions into the tables of a module and of its classes."""
    for name, value in list(vars(owner).items()):
        if name.startswith("__"):
            continue
        if isinstance(value, type) and value.__module__ == source.module and value not in seen:
            _fill(value, source, made, seen | {value})
        elif type(value) in (dict, list, tuple):
            filled = _filled(value, made)
            if filled is not value:
                setattr(owner, name, filled)


def _filled(value: Any, made: dict[FunctionType, Any], depth: int = DEPTH) -> Any:
    """Return `value` with decorated functions in the place of plain ones; lists and dicts stay themselves."""
    if type(value) is FunctionType:
        return made.get(value, value)
    if depth and type(value) is dict:
        value.update({key: _filled(each, made, depth - 1) for key, each in value.items()})
    elif depth and type(value) is list:
        value[:] = [_filled(each, made, depth - 1) for each in value]
    elif depth and type(value) is tuple:
        filled = tuple(_filled(each, made, depth - 1) for each in value)
        return value if all(map(operator.is_, filled, value)) else filled
    return value
