"""``%load_ext jitla``: commands of notebooks and of IPython.

Knows: what IPython hands to a magic, what the public interface offers. Must not know: rooms.
Receives the rest of a line, and a cell; returns what is shown.
"""

from __future__ import annotations

import ast
from typing import Any

from jitla.api import coverage, explain, recompilations
from jitla.config import configure, current
from jitla.decorating import decorate
from jitla.errors import ConfigError

__all__ = ["load_ipython_extension"]

USAGE = """%jitla explain FUNCTION [LEVEL]   what became of a decorated function
%jitla stats FUNCTION             what it has done, in numbers
%jitla coverage                   what decorated functions handed to NumPy
%jitla recompilations FUNCTION    what was compiled for it when, and why
%jitla recompile on|off|status    whether anything new is compiled; NumPy does what has no program
%%jitla [OPTION=VALUE ...]        decorate the functions that the cell defines"""

_NOT_SET = object()


class Text(str):
    """Text that a notebook shows as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def load_ipython_extension(ipython: Any) -> None:
    """Add the magic ``jitla`` to a running IPython; called by ``%load_ext jitla``."""
    def jitla(line: str, cell: str | None = None) -> Any:
        return _line(ipython, line.split()) if cell is None else _cell(ipython, line.split(), cell)

    jitla.__doc__ = USAGE
    ipython.register_magic_function(jitla, "line_cell", "jitla")


def _line(ipython: Any, words: list[str]) -> Any:
    match words:
        case ["explain", name]:
            return explain(_function(ipython, name))
        case ["explain", name, level]:
            return explain(_function(ipython, name), level=level)
        case ["stats", name]:
            return _function(ipython, name).stats()
        case ["coverage"]:
            return Text(coverage())
        case ["recompilations", name]:
            return recompilations(_function(ipython, name))
        case ["recompile", "on" | "off" | "status" as word]:
            return _recompile(word)
        case []:
            return Text(USAGE)
    raise ConfigError(f"there is no %jitla {' '.join(words)}; use\n{USAGE}")


def _recompile(word: str) -> Text:
    """Let new programs be compiled in this process, or not; say how it is."""
    on = current().recompile if word == "status" else configure(recompile=word == "on").recompile
    return Text("recompilation is on: what is new is compiled" if on else
                "recompilation is off: programs that are there run, NumPy does what is new")


def _function(ipython: Any, name: str) -> Any:
    """Return the decorated function that `name` stands for in the notebook, attributes included."""
    first, *rest = name.split(".")
    found = ipython.user_ns.get(first)
    for attribute in rest:
        found = getattr(found, attribute, None)
    if not hasattr(found, "__jitla_state__"):
        raise ConfigError(
            f"{name} is no decorated function; put @jitla.jit above it, or %%jitla above its cell")
    return found


def _cell(ipython: Any, words: list[str], cell: str) -> None:
    """Run a cell whose functions are decorated; its lines and its results stay as they are."""
    options = dict(_option(word) for word in words)
    current().with_changes(options)
    once = _Once(options)
    ipython.ast_transformers.append(once)
    told = vars(ipython).get("showtraceback", _NOT_SET)
    ipython.showtraceback = lambda *args, **kwargs: None  # the cell around this one shows it
    try:
        ipython.run_cell(cell).raise_error()
    finally:
        if told is _NOT_SET:
            del ipython.showtraceback
        else:
            ipython.showtraceback = told
        if once in ipython.ast_transformers:
            ipython.ast_transformers.remove(once)


class _Once(ast.NodeTransformer):
    """Decorates the functions of the first module that it meets: cells that this one runs stay plain."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._met = False

    def visit_Module(self, node: ast.Module) -> ast.Module:
        if not self._met:
            self._met = True
            decorate(node, None, self._options)
        return node


def _option(word: str) -> tuple[str, Any]:
    name, equals, value = word.partition("=")
    if not equals:
        raise ConfigError(f"{word} is no option; use %%jitla [OPTION=VALUE ...]")
    return name, value
