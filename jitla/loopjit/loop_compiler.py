"""Compilation of loops: what names stand for, lowering, machine code, and the functions with rewritten loops.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from jitla.errors import BackendError
from jitla.instrument import lambda_of, syntax_tree_of
from jitla.introspection import is_installed, package_of
from jitla.loopir import Allocate, ExitKind, LoopProgram, program_nodes
from jitla.loopjit.loop_functions import GENERATOR_FLAGS
from jitla.loopjit.loop_sites import MIN_ARENA_BYTES, LoopCode, LoopSite, Specialisation, State
from jitla.loopjit.lowering import Helper, LoweredLoop, lower_loop
from jitla.loopjit.operands import arrays_in
from jitla.loopjit.sources import Endless, Source
from jitla.loopjit.state import SourceLowering, entry_environment, read_results, state_writer
from jitla.loopjit.values import LoweringRefused

MISSING = object()
MAX_LIST = 16  # items of a global list that are constants


class NameResolver:
    """Resolves names outside of a function, and notes what they stand for."""

    def __init__(self, function: FunctionType) -> None:
        self.function = function
        self.assumptions: dict[tuple[int, str], tuple[Mapping[str, Any], str, Any]] = {}
        self.inlined: dict[FunctionType, tuple[CodeType, Any, Any]] = {}  # code and defaults
        self.cells: list[tuple[CellType, Any]] = []  # of variables of other functions, with their values
        self.lists: list[tuple[list[Any], tuple[Any, ...]]] = []  # with their items

    def global_name(self, name: str, function: FunctionType | None) -> Any:
        """Return the value of a global or builtin name."""
        owner: Any = function or self.function
        if name in owner.__code__.co_freevars:
            return self._free_variable(name, owner)
        space: Mapping[str, Any] = owner.__globals__
        if name not in space:
            self._note(space, name, MISSING)
            space = owner.__builtins__
        if name not in space:
            raise LoweringRefused(f"{name} is not defined")
        return self._note(space, name, space[name])

    def _free_variable(self, name: str, owner: FunctionType) -> Any:
        """Return a variable of the function around a helper; arrays and objects are left to Python."""
        cell = (owner.__closure__ or ())[owner.__code__.co_freevars.index(name)]
        try:
            value = cell.cell_contents
        except ValueError as error:
            raise LoweringRefused(f"{name} has no value") from error
        if type(value) in (np.ndarray, list, dict, set):
            raise LoweringRefused(f"{name} is a variable of another function")
        self.cells.append((cell, value))
        return value

    def list_items(self, value: list[Any]) -> tuple[Any, ...]:
        """Return the items of a list, and note them."""
        if len(value) > MAX_LIST:
            raise LoweringRefused("a long list")
        items = tuple(value)
        self.lists.append((value, items))
        return items

    def attribute(self, module: ModuleType, name: str) -> Any:
        """Return an attribute of a module."""
        space = vars(module)
        if name not in space:
            raise LoweringRefused(f"{module.__name__}.{name} is not defined")
        return self._note(space, name, space[name])

    def _note(self, space: Mapping[str, Any], name: str, value: Any) -> Any:
        self.assumptions[id(space), name] = space, name, value
        return value

    def helper(self, function: Any) -> Helper | None:
        """Return a function of the user's as one that is inlined, or None."""
        if type(function) is not FunctionType:
            return None
        inner = getattr(function, "__wrapped__", function)
        if type(inner) is not FunctionType or is_installed(inner.__code__.co_filename) \
                and package_of(inner) != package_of(self.function):
            return None
        code = inner.__code__
        if code.co_flags & GENERATOR_FLAGS:
            raise LoweringRefused("a call of a generator")
        source = syntax_tree_of(inner) or lambda_of(inner)
        if source is None or not isinstance(source.node, (ast.FunctionDef, ast.Lambda)):
            raise LoweringRefused(f"the source of {inner.__name__} is not found")
        args = source.node.args
        if args.vararg or args.kwarg:
            raise LoweringRefused(f"{inner.__name__} takes any number of arguments")
        names = tuple(arg.arg for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs))
        positional = names[:len(args.posonlyargs) + len(args.args)]
        values = inner.__defaults__ or ()
        defaults = dict(zip(positional[len(positional) - len(values):], values, strict=True))
        defaults |= inner.__kwdefaults__ or {}
        self.inlined[inner] = code, inner.__defaults__, inner.__kwdefaults__
        body = source.node.body
        return Helper(inner, names, defaults, tuple(body) if isinstance(body, list) else (
            ast.copy_location(ast.Return(body), body),))

    def is_current(self) -> bool:
        """Return whether all names still stand for the same."""
        for space, name, value in self.assumptions.values():
            if space.get(name, MISSING) is not value:
                return False
        for value, items in self.lists:
            if len(value) != len(items) or any(a is not c for a, c in zip(value, items, strict=True)):
                return False
        return all(function.__code__ is code and function.__defaults__ is defaults
                   and function.__kwdefaults__ is keywords
                   for function, (code, defaults, keywords) in self.inlined.items()) and all(
            _contents(cell) is value for cell, value in self.cells)


def _contents(cell: CellType) -> Any:
    """Return the value of a variable of an enclosing function; `MISSING` if it has none."""
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


# --------------------------------------------------------------------------- compilation

CompileProgram = Callable[[LoopProgram], Any]


def lower_specialisation(
    site: LoopSite, values: Sequence[Any], source: Source, groups: Sequence[int],
) -> tuple[LoweredLoop, NameResolver]:
    """Lower a loop for operands like `values`."""
    resolver = NameResolver(site.function)
    code = site.function.__code__
    count = len(arrays_in(values))
    lowered = lower_loop(
        site.node, lambda b: entry_environment(b, site.names, values, groups[:count]),
        None if isinstance(source, Endless) else lambda b: SourceLowering(b, groups[count:]).lower(source),
        site.kept, frozenset((*code.co_varnames, *code.co_cellvars)), resolver, site.function.__name__)
    return lowered, resolver


def compile_specialisation(
    site: LoopSite, specialisation: Specialisation, values: Sequence[Any], source: Source,
    groups: tuple[int, ...], compile_program: CompileProgram,
    later: Callable[[Callable[[], None]], None] = lambda job: None,
) -> None:
    """Compile a loop for operands like `values`, or refuse it; `later` runs the job that optimises its code.
    """
    if specialisation.state is not State.QUEUED:  # two threads requested it, or the parent of a fork, too
        return
    try:
        lowered, resolver = lower_specialisation(site, values, source, groups)
        compiled = compile_program(lowered.program)
    except LoweringRefused as refused:
        specialisation.refuse(refused.reason, refused.line)
        return
    except BackendError as error:
        specialisation.refuse(str(error))
        return
    program, layout = lowered.program, compiled.layout
    numbers = {id(statement): k for k, statement in enumerate(site.terminals)}
    specialisation.code = LoopCode(
        compiled.call, layout.size, layout.places, layout.arena,
        tuple((point.kind.value, point.line, point.reason) for point in program.exits),
        {number: numbers[id(statement)] for number, statement in lowered.terminals.items()},
        state_writer(lowered.values, site.names, layout.places),
        lambda state, arrays: read_results(lowered.results, state, layout.places, arrays), compiled,
        program.raises)
    specialisation.written = tuple(
        k for k, group in enumerate(groups) if f"group {group}" in lowered.written)
    specialisation.undo = program.raises or any(
        point.kind is ExitKind.UNDO for point in program.exits)
    specialisation.arena_bytes = MIN_ARENA_BYTES if any(
        isinstance(node, Allocate) for node in program_nodes(program.body)) else 0
    specialisation.is_current = resolver.is_current
    specialisation.is_quick = compiled.optimise is not None
    specialisation.state = State.COMPILED
    if compiled.optimise is not None:
        later(lambda: _optimise(specialisation, compiled.optimise))


def _optimise(specialisation: Specialisation, optimise: Callable[[], Any]) -> None:
    """Replace code that was compiled quickly; if that fails, it stays."""
    if specialisation.state is State.REFUSED:
        return
    try:
        better = optimise()
    except BackendError as error:
        specialisation.keep_quick_code(str(error))
    else:
        specialisation.replace_code(better.call, better)


@contextmanager
def lowering_at_once(sites: Iterable[LoopSite]) -> Iterator[None]:
    """Lower loops that Python runs inside the ``with`` block, to know whether they can be compiled."""
    found = list(sites)
    for site in found:
        site.preview = _preview
    try:
        yield
    finally:
        for site in found:
            site.preview = None


def _preview(site: LoopSite, specialisation: Specialisation, values: Sequence[Any], source: Source,
             groups: tuple[int, ...]) -> None:
    """Refuse a loop that cannot be lowered."""
    try:
        lower_specialisation(site, values, source, groups)
    except LoweringRefused as refused:
        specialisation.refuse(refused.reason, refused.line)
