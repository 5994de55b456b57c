"""The notebook extension: magic commands, cells whose functions are decorated, and scripts run likewise."""

from __future__ import annotations

import ast
import inspect
import shlex
from collections.abc import Collection, Mapping
from types import FunctionType
from typing import Any

from jitla.api import coverage, explain, jit, recompilations
from jitla.config import configure, current
from jitla.errors import ConfigError, JitlaError

__all__ = ["decorate", "functions", "load_ipython_extension"]


def functions(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    """Return the functions of a module's outermost level by name, methods as ``Class.method``."""
    found = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    for owner in tree.body:
        if isinstance(owner, ast.ClassDef):
            found |= {f"{owner.name}.{node.name}": node for node in owner.body
                      if isinstance(node, ast.FunctionDef)}
    return found


def decorate(tree: ast.Module, names: Collection[str] | None = None,
             options: Mapping[str, str | int | bool] | None = None) -> ast.Module:
    """Put ``jitla.jit`` below all decorators of the functions called `names`, all but methods if None.

    Lines and columns stay as they are. Functions that `jit` decorates already stay as well.
    """
    for name, function in functions(tree).items():
        chosen = "." not in name if names is None else name in names
        if chosen and not any(map(_is_jit, function.decorator_list)):
            function.decorator_list.append(_jit(options or {}, function))
    return tree


def _is_jit(decorator: ast.expr) -> bool:
    """Tell whether a decorator is written as ``jit``, ``jitla.jit``, or a call of these."""
    named = decorator.func if isinstance(decorator, ast.Call) else decorator
    return (named.attr if isinstance(named, ast.Attribute) else getattr(named, "id", "")) == "jit"


def _jit(options: Mapping[str, str | int | bool], at: ast.FunctionDef) -> ast.expr:
    """Return ``__import__("jitla").jit(**options)``: no name of the program can stand in its way."""
    module = ast.Call(ast.Name("__import__", ast.Load()), [ast.Constant("jitla")], [])
    words = [ast.keyword(name, ast.Constant(value)) for name, value in options.items()]
    made = ast.Call(ast.Attribute(module, "jit", ast.Load()), [], words)
    for node in ast.walk(made):
        ast.copy_location(node, at)
    return made


USAGE = """%jitla explain FUNCTION [LEVEL]   what became of a decorated function; of a call: FUNCTION(...)
%jitla stats [FUNCTION]           what it has done, in numbers; without one, a line for each in the notebook
%jitla coverage                   what decorated functions handed to NumPy
%jitla recompilations FUNCTION    what was compiled for it when, and why
%jitla recompile on|off|status    whether anything new is compiled; NumPy does what has no program
%%jitla [OPTION=VALUE ...]        decorate the functions that the cell defines"""

# What is told of each function; `stats` of one tells more.
_NUMBERS = ("calls", "bypassed", "programs", "kernel_runs", "fallbacks")
_NOT_SET = object()


class Text(str):
    """Text that a notebook shows as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def load_ipython_extension(ipython: Any) -> None:
    """Add the magic ``jitla`` to a running IPython; called by ``%load_ext jitla``."""
    def jitla(line: str, cell: str | None = None) -> Any:
        try:
            return _line(ipython, line) if cell is None else _cell(ipython, line, cell)
        except JitlaError as wrong:  # what the line says is wrong, and where that was found is of no use
            told = f"{type(wrong).__name__}: {wrong}"
            raise _shown_as(wrong, [told]).with_traceback(None) from None

    jitla.__doc__ = USAGE
    ipython.register_magic_function(jitla, "line_cell", "jitla")


def _shown_as(error: BaseException, lines: list[str]) -> BaseException:
    """Let IPython show `error` by `lines`, if it can carry them."""
    if hasattr(error, "__dict__"):
        error._render_traceback_ = lambda: lines  # type: ignore[attr-defined]
    return error


def _line(ipython: Any, line: str) -> Any:
    match line.split():
        case ["explain", _, *_]:
            return _explained(ipython, line.strip().removeprefix("explain").strip())
        case ["stats"]:
            return _numbers(ipython)
        case ["stats", name]:
            return _function(ipython, name).stats()
        case ["coverage"]:
            return Text(coverage())
        case ["recompilations", name]:
            return recompilations(_function(ipython, name))
        case ["recompile", "on" | "off" | "status" as word]:
            return _recompile(word)
        case [] | ["help" | "-h" | "--help"]:
            return Text(USAGE)
    raise ConfigError(f"there is no %jitla {line}; use\n{USAGE}")


def _numbers(ipython: Any) -> Text:
    """Return a table of what the decorated functions of the notebook have done."""
    functions: dict[str, Any] = {
        name: value for name, value in list(ipython.user_ns.items())
        if isinstance(value, FunctionType) and hasattr(value, "__jitla_state__")}
    rows = [(name, function.stats()) for name, function in functions.items()]
    if not rows:
        return Text("no function of this notebook is decorated")
    wide = max(len(name) for name, _ in rows)
    lines = [" " * wide + "".join(f"  {each:>11}" for each in _NUMBERS)]
    lines += [f"{name:{wide}}" + "".join(f"  {stats[each]:11}" for each in _NUMBERS) for name, stats in rows]
    return Text("\n".join(lines))


def _explained(ipython: Any, text: str) -> Any:
    """Explain what `text` names or calls; a level may follow."""
    target, _, level = text.rpartition(" ")
    if not target or not level.isidentifier():
        target, level = text, "plan"
    try:
        tree = ast.parse(target.strip(), mode="eval")
    except SyntaxError:
        raise ConfigError(f"there is no %jitla explain {text}; use\n{USAGE}") from None
    call = tree.body
    if not isinstance(call, ast.Call):
        return explain(_function(ipython, target.strip()), level=level)
    call.args.insert(0, call.func)
    call.func = ast.copy_location(ast.Name("__jitla_explain__", ast.Load()), call)
    names = {**ipython.user_ns, "__jitla_explain__": lambda f, *args, **kwargs: explain(
        f, *args, level=level, **kwargs)}
    return eval(compile(tree, "<%jitla explain>", "eval"), names)


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


def _cell(ipython: Any, line: str, cell: str) -> None:
    """Run a cell whose functions are decorated; its lines, results and errors stay as they are."""
    options = dict(_option(word) for word in shlex.split(line))
    jit(**options)
    once, shown = _Once(options), _Shown(ipython)
    ipython.ast_transformers.append(once)
    try:
        with shown:
            result = ipython.run_cell(cell)
    finally:
        if once in ipython.ast_transformers:
            ipython.ast_transformers.remove(once)
    error = result.error_before_exec or result.error_in_exec
    if error is None:
        return
    if isinstance(error, SyntaxError):  # IPython shows these in a way of its own, with what led to them
        raise _shown_as(CellSyntaxError(str(error)), shown.lines) from None
    raise _shown_as(error, shown.lines) if shown.lines else error


class CellSyntaxError(Exception):
    """What is below ``%%jitla`` is no Python."""


class _Shown:
    """Takes what IPython would show of an error in a ``with`` block: the cell around shows it, once."""

    def __init__(self, ipython: Any) -> None:
        self._ipython = ipython
        self._own: dict[str, Any] = {}
        self.lines: list[str] = []

    def __enter__(self) -> None:
        self._own = {name: vars(self._ipython).get(name, _NOT_SET) for name in ("_showtraceback",)}
        self._ipython._showtraceback = self._take

    def _take(self, kind: Any, value: Any, lines: Any) -> None:
        self.lines = lines if isinstance(lines, list) else str(lines).split("\n")

    def __exit__(self, *error: object) -> None:
        for name, value in self._own.items():
            if value is _NOT_SET:
                delattr(self._ipython, name)
            else:
                setattr(self._ipython, name, value)


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
    known = list(inspect.signature(jit).parameters)[1:]
    if not equals or name not in known:
        raise ConfigError(f"{word} is no option; use %%jitla [OPTION=VALUE ...] with {', '.join(known)}")
    return name, value
