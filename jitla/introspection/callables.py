"""Callables: the function behind a method, partial call or object, and kinds that cannot be traced."""

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
    "ARRAY_PACKAGES", "reject_coroutine", "unwrap_callable", "check_arguments", "table_class_name",
    "is_decorated", "is_installed", "untraceable_reason",
    "package_of",
]

#: Packages whose functions run unchanged, decorated or not.
ARRAY_PACKAGES = frozenset({"numpy", "scipy"})
_OWN_DIRECTORY = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# The standard library is in the folder of `os`; importing `sysconfig` takes long.
_LIBRARIES = tuple({_OWN_DIRECTORY, os.path.dirname(os.__file__), *site.getsitepackages()})
# Folders of installed packages anywhere: of the user, or of another environment on the path.
_PACKAGE_FOLDERS = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))


def is_installed(filename: str) -> bool:
    """Return whether a file belongs to a library or to jitla, not to the program."""
    return filename.startswith((*_LIBRARIES, "<frozen")) or any(folder in filename
                                                                for folder in _PACKAGE_FOLDERS)


def is_decorated(function: Any) -> bool:
    """Return whether `function` was returned by `jit`, and is no `functools.wraps` wrapper of one.

    `functools.wraps` copies all attributes of a function, including the state of a decorated one.
    """
    if type(function) is not FunctionType:
        return False
    state = function.__dict__.get("__jitla_state__")
    return state is not None and bool(state.belongs_to(function))


def package_of(function: FunctionType) -> str:
    """Return the name of the package that `function` belongs to; all its functions count as the user's."""
    module = str(function.__module__)
    package = module.partition(".")[0]
    # jitla's own decorated functions are example programs
    return module if package == __name__.partition(".")[0] else package


def unwrap_callable(target: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Return the function that `target` calls, and the positional and keyword arguments that it adds."""
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    while True:
        if isinstance(target, partial):
            args, kwargs = (*target.args, *args), {**target.keywords, **kwargs}
            target = target.func
        elif isinstance(target, MethodType):
            args, target = (target.__self__, *args), target.__func__
        elif isinstance(target, property) and target.fget is not None:
            target = target.fget
        elif _has_python_call(target):
            args, target = (target, *args), type(target).__call__
        else:
            return target, args, kwargs


def _has_python_call(target: Any) -> bool:
    """Return whether `target` is an object whose class defines `__call__` in Python."""
    is_plain = isinstance(target, (FunctionType, type)) or hasattr(target, "__jitla_state__")
    return not is_plain and isinstance(inspect.getattr_static(type(target), "__call__", None), FunctionType)


def check_arguments(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Raise `TypeError` with a hint if a method is called without its object.

    ``m.f.explain(x)`` reaches the function of the class, without `m`.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # built-in functions may have none
        return
    first = next(iter(signature.parameters), "")
    if first not in ("self", "cls"):
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        name = function.__qualname__
        raise TypeError(
            f"{name}: {error}; of a method, write jitla.explain(object.{function.__name__}, ...), "
            f"or {name}.explain(object, ...) and {name}.compile(object, ...)") from None


def reject_coroutine(function: Callable[..., Any]) -> None:
    """Raise `TraceError` if only an event loop can run `function`."""
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise TraceError(f"{getattr(function, '__qualname__', function)} runs in an event loop: "
                         "await a call of it, then explain it without arguments")


def table_class_name(values: Iterable[Any]) -> str:
    """Return the class name of the first value (or class) that is a table: it has `to_numpy`."""
    classes = (value if isinstance(value, type) else type(value) for value in values)
    return next((cls.__name__ for cls in classes if hasattr(cls, "to_numpy")), "")


def untraceable_reason(function: Any) -> str:
    """Return why `function` cannot be traced, given its kind; empty for Python functions."""
    if inspect.isasyncgenfunction(function):
        return "runs in NumPy: it is an asynchronous generator"
    if not isinstance(function, FunctionType):
        return "runs in NumPy: it is not a Python function"
    if function.__module__ and function.__module__.partition(".")[0] in ARRAY_PACKAGES:
        return "runs in NumPy: it is a function of NumPy or SciPy itself"
    return ""
