"""The IPython extension, with the magics ``%jitla`` and ``%%jitla``; decorates functions in syntax trees."""

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

__all__ = ["decorate_functions", "load_ipython_extension", "top_level_functions"]


def top_level_functions(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    """Return the top-level functions of a module by name, methods as ``Class.method``."""
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    for class_node in tree.body:
        if isinstance(class_node, ast.ClassDef):
            functions |= {f"{class_node.name}.{node.name}": node for node in class_node.body
                      if isinstance(node, ast.FunctionDef)}
    return functions


def decorate_functions(tree: ast.Module, names: Collection[str] | None = None,
             options: Mapping[str, str | int | bool] | None = None) -> ast.Module:
    """Add ``jitla.jit`` as innermost decorator to the functions `names`; to all but methods if None.

    Lines and columns are unchanged. Functions that are decorated with `jit` already are skipped.
    """
    for name, function in top_level_functions(tree).items():
        chosen = "." not in name if names is None else name in names
        if chosen and not any(map(_is_jit_decorator, function.decorator_list)):
            function.decorator_list.append(_jit_decorator(options or {}, function))
    return tree


def _is_jit_decorator(decorator: ast.expr) -> bool:
    """Return whether a decorator is ``jit``, ``jitla.jit``, or a call of these."""
    function = decorator.func if isinstance(decorator, ast.Call) else decorator
    return (function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")) == "jit"


def _jit_decorator(options: Mapping[str, str | int | bool], function: ast.FunctionDef) -> ast.expr:
    """Return ``__import__("jitla").jit(**options)``, which no name of the program can shadow."""
    module = ast.Call(ast.Name("__import__", ast.Load()), [ast.Constant("jitla")], [])
    keywords = [ast.keyword(name, ast.Constant(value)) for name, value in options.items()]
    call = ast.Call(ast.Attribute(module, "jit", ast.Load()), [], keywords)
    for node in ast.walk(call):
        ast.copy_location(node, function)
    return call


USAGE = """%jitla explain FUNCTION [LEVEL]   explain a decorated function, or a call of it: FUNCTION(...)
%jitla stats [FUNCTION]           counters of a function, or of all decorated functions of the notebook
%jitla coverage                   operations of decorated functions that ran in NumPy
%jitla recompilations FUNCTION    what was compiled for a function, when and why
%jitla recompile on|off|status    whether new code is compiled; NumPy runs what is not compiled
%%jitla [OPTION=VALUE ...]        decorate the functions that the cell defines"""

#: Counters in the table of all functions.
_STATS_COLUMNS = ("calls", "bypassed", "programs", "kernel_runs", "fallbacks")
_NOT_SET = object()


class Text(str):
    """Text that a notebook shows without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def load_ipython_extension(ipython: Any) -> None:
    """Register the magic ``jitla`` in a running IPython; called by ``%load_ext jitla``."""
    def jitla(line: str, cell: str | None = None) -> Any:
        try:
            return _run_line_magic(ipython, line) if cell is None else _run_cell(ipython, line, cell)
        except JitlaError as error:  # an error in the line: the traceback is of no use
            message = f"{type(error).__name__}: {error}"
            raise _with_shown_lines(error, [message]).with_traceback(None) from None

    jitla.__doc__ = USAGE
    ipython.register_magic_function(jitla, "line_cell", "jitla")


def _with_shown_lines(error: BaseException, lines: list[str]) -> BaseException:
    """Return `error`, which IPython will render as `lines` if the error accepts attributes."""
    if hasattr(error, "__dict__"):
        error._render_traceback_ = lambda: lines  # type: ignore[attr-defined]
    return error


def _run_line_magic(ipython: Any, line: str) -> Any:
    """Run one ``%jitla`` line and return its result."""
    match line.split():
        case ["explain", _, *_]:
            return _explain_target(ipython, line.strip().removeprefix("explain").strip())
        case ["stats"]:
            return _stats_table(ipython)
        case ["stats", name]:
            return _decorated_function(ipython, name).stats()
        case ["coverage"]:
            return Text(coverage())
        case ["recompilations", name]:
            return recompilations(_decorated_function(ipython, name))
        case ["recompile", "on" | "off" | "status" as word]:
            return _switch_recompilation(word)
        case [] | ["help" | "-h" | "--help"]:
            return Text(USAGE)
    raise ConfigError(f"there is no %jitla {line}; use\n{USAGE}")


def _stats_table(ipython: Any) -> Text:
    """Return a table of the counters of the decorated functions of the notebook."""
    functions: dict[str, Any] = {
        name: value for name, value in list(ipython.user_ns.items())
        if isinstance(value, FunctionType) and hasattr(value, "__jitla_state__")}
    rows = [(name, function.stats()) for name, function in functions.items()]
    if not rows:
        return Text("this notebook has no decorated functions")
    width = max(len(name) for name, _ in rows)
    lines = [" " * width + "".join(f"  {column:>11}" for column in _STATS_COLUMNS)]
    lines += [f"{name:{width}}" + "".join(f"  {stats[column]:11}" for column in _STATS_COLUMNS)
              for name, stats in rows]
    return Text("\n".join(lines))


def _explain_target(ipython: Any, text: str) -> Any:
    """Explain the function or the call in `text`, which may end in a level."""
    target, _, level = text.rpartition(" ")
    if not target or not level.isidentifier():
        target, level = text, "plan"
    try:
        tree = ast.parse(target.strip(), mode="eval")
    except SyntaxError:
        raise ConfigError(f"there is no %jitla explain {text}; use\n{USAGE}") from None
    call = tree.body
    if not isinstance(call, ast.Call):
        return explain(_decorated_function(ipython, target.strip()), level=level)
    call.args.insert(0, call.func)
    call.func = ast.copy_location(ast.Name("__jitla_explain__", ast.Load()), call)
    names = {**ipython.user_ns, "__jitla_explain__": lambda f, *args, **kwargs: explain(
        f, *args, level=level, **kwargs)}
    return eval(compile(tree, "<%jitla explain>", "eval"), names)


def _switch_recompilation(word: str) -> Text:
    """Switch recompilation in this process on or off, or query it; return the state as text."""
    on = current().recompile if word == "status" else configure(recompile=word == "on").recompile
    return Text("recompilation is on: new code is compiled" if on else
                "recompilation is off: compiled code runs, NumPy runs the rest")


def _decorated_function(ipython: Any, name: str) -> Any:
    """Return the decorated function `name` of the notebook; the name may have attributes."""
    first, *rest = name.split(".")
    value = ipython.user_ns.get(first)
    for attribute in rest:
        value = getattr(value, attribute, None)
    if not hasattr(value, "__jitla_state__"):
        raise ConfigError(
            f"{name} is not a decorated function; put @jitla.jit above it, or %%jitla above its cell")
    return value


def _run_cell(ipython: Any, line: str, cell: str) -> None:
    """Run a cell with its functions decorated; its lines, results and errors are unchanged."""
    options = dict(_parse_option(word) for word in shlex.split(line))
    jit(**options)
    transformer, captured = _DecorateFirstModule(options), _CapturedTraceback(ipython)
    ipython.ast_transformers.append(transformer)
    try:
        with captured:
            result = ipython.run_cell(cell)
    finally:
        if transformer in ipython.ast_transformers:
            ipython.ast_transformers.remove(transformer)
    error = result.error_before_exec or result.error_in_exec
    if error is None:
        return
    if isinstance(error, SyntaxError):  # IPython renders these specially, with the causing exceptions
        raise _with_shown_lines(CellSyntaxError(str(error)), captured.lines) from None
    raise _with_shown_lines(error, captured.lines) if captured.lines else error


class CellSyntaxError(Exception):
    """The cell below ``%%jitla`` has a syntax error."""


class _CapturedTraceback:
    """Captures the traceback that IPython would show for an error in a ``with`` block.

    The outer cell shows it instead, once.
    """

    def __init__(self, ipython: Any) -> None:
        self._ipython = ipython
        self._saved: dict[str, Any] = {}
        self.lines: list[str] = []

    def __enter__(self) -> None:
        self._saved = {name: vars(self._ipython).get(name, _NOT_SET) for name in ("_showtraceback",)}
        self._ipython._showtraceback = self._capture

    def _capture(self, kind: Any, value: Any, lines: Any) -> None:
        self.lines = lines if isinstance(lines, list) else str(lines).split("\n")

    def __exit__(self, *error: object) -> None:
        for name, value in self._saved.items():
            if value is _NOT_SET:
                delattr(self._ipython, name)
            else:
                setattr(self._ipython, name, value)


class _DecorateFirstModule(ast.NodeTransformer):
    """Decorates the functions of the first module it visits; cells that this one runs are not decorated."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._visited = False

    def visit_Module(self, node: ast.Module) -> ast.Module:
        if not self._visited:
            self._visited = True
            decorate_functions(node, None, self._options)
        return node


def _parse_option(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    options = list(inspect.signature(jit).parameters)[1:]
    if not equals or name not in options:
        raise ConfigError(
            f"{text} is not an option; use %%jitla [OPTION=VALUE ...] with {', '.join(options)}")
    return name, value
