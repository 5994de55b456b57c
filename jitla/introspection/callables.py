"""What users call a function: methods, partial calls and objects have one behind them."""

from __future__ import annotations

import inspect
import os
import site
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import FunctionType, MethodType
from typing import Any

from jitla.errors import TraceError

__all__ = [
    "ARRAYS", "awaited", "behind", "check_arguments", "foreign", "is_decorated", "is_installed", "kind_note",
    "package_of",
]

#: Packages whose own functions run as they are, decorated or not.
ARRAYS = frozenset({"numpy", "scipy"})
_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# The library lies where its module `os` does; `sysconfig` knows as much, and takes long to load.
_LIBRARIES = tuple({_OWN, os.path.dirname(os.__file__), *site.getsitepackages()})
# Folders of installed packages wherever they are: a user's own, those of another environment on the path.
_FOLDERS = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))


def is_installed(filename: str) -> bool:
    """Say whether a file is of a library, or of jitla, and not of the program that uses them."""
    return filename.startswith((*_LIBRARIES, "<frozen")) or any(folder in filename for folder in _FOLDERS)


def is_decorated(function: Any) -> bool:
    """Return whether `function` is what `jit` returned, not a wrapper that `functools.wraps` made of it.

    `functools.wraps` copies all attributes of a function, the state of a decorated one among them.
    """
    if type(function) is not FunctionType:
        return False
    state = function.__dict__.get("__jitla_state__")
    return state is not None and bool(state.belongs_to(function))


def package_of(function: FunctionType) -> str:
    """Return the package whose functions are all the user's if this one is."""
    module = str(function.__module__)
    package = module.partition(".")[0]
    # what is decorated here are programs that are shown
    return module if package == __name__.partition(".")[0] else package


def behind(given: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Return the function that `given` calls, and what it passes to it before and beside other arguments."""
    first: tuple[Any, ...] = ()
    named: dict[str, Any] = {}
    while True:
        if isinstance(given, partial):
            first, named = (*given.args, *first), {**given.keywords, **named}
            given = given.func
        elif isinstance(given, MethodType):
            first, given = (given.__self__, *first), given.__func__
        elif isinstance(given, property) and given.fget is not None:
            given = given.fget
        elif _calls_function(given):
            first, given = (given, *first), type(given).__call__
        else:
            return given, first, named


def _calls_function(given: Any) -> bool:
    """Tell whether `given` is an object of a class that says itself, in Python, what calling it does."""
    is_plain = isinstance(given, (FunctionType, type)) or hasattr(given, "__jitla_state__")
    return not is_plain and isinstance(inspect.getattr_static(type(given), "__call__", None), FunctionType)


def check_arguments(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Raise `TypeError` if a method is called without its object, and say what to do; else nothing.

    ``m.f.explain(x)`` reaches the function of the class, and `m` is lost.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # something that is built in may have none
        return
    first = next(iter(signature.parameters), "")
    if first not in ("self", "cls"):
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as wrong:
        name = function.__qualname__
        raise TypeError(
            f"{name}: {wrong}; of a method, write jitla.explain(object.{function.__name__}, ...), "
            f"or {name}.explain(object, ...) and {name}.compile(object, ...)") from None


def awaited(function: Callable[..., Any]) -> None:
    """Raise `TraceError` if only a loop of events can run `function`."""
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise TraceError(f"{getattr(function, '__qualname__', function)} runs in a loop of events: "
                         "await a call of it, then explain it without arguments")


def foreign(values: Iterable[Any]) -> str:
    """Return the name of the class of the first value, or class, that has arrays but is none: a table's."""
    classes = (value if isinstance(value, type) else type(value) for value in values)
    return next((each.__name__ for each in classes if hasattr(each, "to_numpy")), "")


def kind_note(function: Any) -> str:
    """Say why nothing of `function` can be traced, from what it is; nothing for functions of Python."""
    if inspect.isasyncgenfunction(function):
        return "runs in NumPy: it is an asynchronous generator"
    if not isinstance(function, FunctionType):
        return "runs in NumPy: it is no function of Python"
    if function.__module__ and function.__module__.partition(".")[0] in ARRAYS:
        return "runs in NumPy: it is a function of NumPy or SciPy itself"
    return ""
