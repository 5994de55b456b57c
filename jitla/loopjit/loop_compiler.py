"""Compilation of loops: what names stand for, lowering, machine code, and the functions with rewritten loops.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import CellType, CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from jitla.errors import BackendError
from jitla.instrument import lambda_of, syntax_tree_of
from jitla.introspection import is_installed, package_of
from jitla.loopir import Allocate, ExitKind, LoopProgram, program_nodes
from jitla.loopjit import library
from jitla.loopjit.list_memory import ListCode
from jitla.loopjit.list_types import HEAP
from jitla.loopjit.liveness import names_stored
from jitla.loopjit.loop_functions import GENERATOR_FLAGS
from jitla.loopjit.loop_sites import LoopSite
from jitla.loopjit.native_entry import MISSING, make_entry
from jitla.loopjit.objects import is_plain_object, method_of
from jitla.loopjit.operands import arrays_in
from jitla.loopjit.records import (
    LoopTables,
    LoweringRecord,
    NameLog,
    RecordStore,
    constants_in,
    record_key,
    replay,
)
from jitla.loopjit.sources import Endless, Source
from jitla.loopjit.specialisations import MIN_ARENA_BYTES, LoopCode, Specialisation, State
from jitla.loopjit.state import NO_LISTS, ListKinds, read_results, state_writer
from jitla.loopjit.values import FieldsWanted, Helper, LocalFunction, LoweringRefused
from jitla.process.loading import lazy_functions
from jitla.runtime.entry_table import GuardRecord

if TYPE_CHECKING:
    from jitla.loopjit.lowering import LoweredLoop, lower_loop
    from jitla.loopjit.operand_values import entry_environment, lower_source
else:  # not where there are records of all loops
    [lower_loop] = lazy_functions("jitla.loopjit.lowering", "lower_loop")
    entry_environment, lower_source = lazy_functions(
        "jitla.loopjit.operand_values", "entry_environment", "lower_source")

MAX_LIST = 16  # items of a global list that are constants


class NameResolver:
    """Resolves names outside of a function, and notes what they stand for."""

    def __init__(
        self, function: FunctionType, constants: Sequence[Any] = (), assigned: frozenset[str] = frozenset(),
    ) -> None:
        self.function = function
        self.assigned = assigned  # names of the function that change in the loop
        self.log = NameLog(constants)
        self.assumptions: dict[tuple[int, str], tuple[Mapping[str, Any], str, Any]] = {}
        self.inlined: dict[FunctionType, tuple[CodeType, Any, Any]] = {}  # code and defaults
        self.cells: list[tuple[CellType, Any]] = []  # of variables of other functions, with their values
        self.lists: list[tuple[list[Any], tuple[Any, ...]]] = []  # with their items

    def global_name(self, name: str, function: FunctionType | None) -> Any:
        """Return the value of a global or builtin name."""
        value = self._global_name(name, function or self.function)
        self.log.note("global", function, name, value)
        return value

    def _global_name(self, name: str, owner: Any) -> Any:
        if name in owner.__code__.co_freevars:
            return self._free_variable(name, owner)
        space: Mapping[str, Any] = owner.__globals__
        if name not in space:
            self._note(space, name, MISSING)
            space = owner.__builtins__
        if name not in space:
            raise self._refusal(f"{name} is not defined")
        return self._note(space, name, space[name])

    def _free_variable(self, name: str, owner: FunctionType) -> Any:
        """Return a variable of the function around a helper; arrays and objects are left to Python."""
        if name in self.assigned and owner.__qualname__.startswith(f"{self.function.__qualname__}.<locals>."):
            raise self._refusal(f"a function that reads {name}, which the loop assigns")
        cell = (owner.__closure__ or ())[owner.__code__.co_freevars.index(name)]
        try:
            value = cell.cell_contents
        except ValueError as error:
            raise self._refusal(f"{name} has no value") from error
        if type(value) in (np.ndarray, list, dict, set):
            raise self._refusal(f"{name} is a variable of another function")
        self.cells.append((cell, value))
        return value

    def list_items(self, value: list[Any]) -> tuple[Any, ...]:
        """Return the items of a list, and note them."""
        if len(value) > MAX_LIST:
            raise self._refusal("a long list")
        items = tuple(value)
        self.lists.append((value, items))
        self.log.note("items", value, "", items)
        return items

    def forget_lists(self, count: int) -> None:
        """Keep the first `count` lists only: what used the others is left to Python."""
        del self.lists[count:]

    def method(self, kind: type, name: str) -> FunctionType | None:
        """Return the method of a class, and note it."""
        found = method_of(kind, name)
        for base in kind.__mro__:
            self._note(vars(base), name, vars(base).get(name, MISSING))
        return found

    def attribute(self, module: ModuleType, name: str) -> Any:
        """Return an attribute of a module."""
        space = vars(module)
        if name not in space:
            raise self._refusal(f"{module.__name__}.{name} is not defined")
        value = self._note(space, name, space[name])
        self.log.note("attribute", module, name, value)
        return value

    def note_inlined(self, function: FunctionType, inner: FunctionType) -> None:
        """Note the code and the defaults of a function that is inlined, as `function` or what it wraps."""
        self.inlined[inner] = inner.__code__, inner.__defaults__, inner.__kwdefaults__
        self.log.note("inlined", function, "", inner)

    def _refusal(self, reason: str) -> LoweringRefused:
        """Return the exception for a name that may stand for something else in another process."""
        self.log.is_complete = False
        return LoweringRefused(reason)

    def _note(self, space: Mapping[str, Any], name: str, value: Any) -> Any:
        self.assumptions[id(space), name] = space, name, value
        return value

    def helper(self, function: Any) -> Helper | None:
        """Return a function of the user's as one that is inlined, or None."""
        if type(function) is not FunctionType:
            return None
        inner = getattr(function, "__wrapped__", function)
        if type(inner) is not FunctionType or is_installed(inner.__code__.co_filename) \
                and package_of(inner) != package_of(self.function) and inner.__module__ != library.__name__:
            return None
        code = inner.__code__
        if code.co_flags & GENERATOR_FLAGS:
            raise self._refusal("a call of a generator")
        source = syntax_tree_of(inner) or lambda_of(inner)
        if source is None or not isinstance(source.node, (ast.FunctionDef, ast.Lambda)):
            raise self._refusal(f"the source of {inner.__name__} is not found")
        args = source.node.args
        if args.vararg or args.kwarg:
            raise self._refusal(f"{inner.__name__} takes any number of arguments")
        names = tuple(arg.arg for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs))
        positional = names[:len(args.posonlyargs) + len(args.args)]
        values = inner.__defaults__ or ()
        defaults = dict(zip(positional[len(positional) - len(values):], values, strict=True))
        defaults |= inner.__kwdefaults__ or {}
        self.note_inlined(function, inner)
        body = source.node.body
        return Helper(inner, names, defaults, tuple(body) if isinstance(body, list) else (
            ast.copy_location(ast.Return(body), body),), inner.__name__, code, frozenset(code.co_varnames))

    def guards(self) -> tuple[tuple[Any, ...], ...]:
        """Return what `is_current` compares as records for native code: kinds, objects and numbers."""
        spaces = [space for space, _, _ in self.assumptions.values()]
        if any(type(space) is not dict for space in spaces):
            return ((GuardRecord.CALL, self.is_current),)
        return (
            *((GuardRecord.NAME, *noted) for noted in self.assumptions.values()),
            *((GuardRecord.FUNCTION, function, *noted) for function, noted in self.inlined.items()),
            *((GuardRecord.CELL, *noted) for noted in self.cells),
            *((GuardRecord.LENGTH, value, len(items)) for value, items in self.lists),
            *((GuardRecord.ITEM, value, k, item) for value, items in self.lists
              for k, item in enumerate(items)))

    def is_current(self) -> bool:
        """Return whether all names still stand for the same; `guards` has to return the same conditions."""
        for space, name, value in self.assumptions.values():
            if space.get(name, MISSING) is not value:
                return False
        for value, items in self.lists:
            present = tuple(value)  # which other threads do not change
            if len(present) != len(items) or any(a is not c for a, c in zip(present, items, strict=True)):
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
    lists: ListKinds = NO_LISTS,
) -> tuple[LoweredLoop, NameResolver]:
    """Lower a loop for operands like `values`."""
    resolver = NameResolver(site.function, constants_in(values), names_stored(site.node))
    return lower_loop_of(site, values, source, groups, resolver, lists), resolver


def lower_loop_of(
    site: LoopSite, values: Sequence[Any], source: Source, groups: Sequence[int], resolver: NameResolver,
    lists: ListKinds = NO_LISTS,
) -> LoweredLoop:
    """Lower a loop for operands like `values`; `resolver` looks names up."""
    code = site.function.__code__
    count = len(arrays_in(values))
    return lower_loop(
        site.node, lambda b, types: entry_environment(b, site.names, values, groups[:count], lists, types),
        None if isinstance(source, Endless) else lambda b, types: lower_source(
            b, groups[count:], source, lists, types),
        site.kept, frozenset((*code.co_varnames, *code.co_cellvars)), resolver, site.function.__name__,
        {name: LocalFunction(node, name) for name, node in site.local_functions.items()})


def compile_specialisation(
    site: LoopSite, specialisation: Specialisation, values: Sequence[Any], source: Source,
    groups: tuple[int, ...], compile_program: CompileProgram,
    later: Callable[[Callable[[], None]], None] = lambda job: None, records: RecordStore | None = None,
    load_program: Callable[..., Any] = lambda *args: None, load_entry: Callable[[], int] | None = None,
) -> None:
    """Compile a loop for operands like `values`, or refuse it.

    `later` runs the jobs that optimise its code, load native entry by `load_entry`, and write its record. If
    there is one from another process, `load_program` loads its code.
    """
    if specialisation.state is not State.QUEUED:  # two threads requested it, or the parent of a fork, too
        return
    if not is_recordable(site, values, source):
        records = None
    key = None if records is None else record_key(site, values, source, groups)
    record = None if records is None else records.find(key)
    if record is not None and _use_record(site, specialisation, values, record, load_program):
        _load_entry(specialisation, load_entry, later)
        return
    resolver = NameResolver(site.function, constants_in(values), names_stored(site.node))
    try:
        lists = ListKinds(dict(specialisation.observed), specialisation.pairs)
        lowered = lower_loop_of(site, values, source, groups, resolver, lists)
        compiled = compile_program(lowered.program)
    except FieldsWanted as wanted:
        site.wanted_fields |= dict.fromkeys(wanted.fields)
        site.is_outdated = True
        specialisation.refuse(wanted.reason, wanted.line)
        return
    except LoweringRefused as refused:
        specialisation.refuse(refused.reason, refused.line)
        if records is not None:
            records.put(key, resolver.log, refused.reason, refused.line)
        return
    except BackendError as error:
        specialisation.refuse(str(error))
        return
    program = lowered.program
    numbers = {id(statement): k for k, statement in enumerate(site.terminals)}
    tables = LoopTables(
        compiled.layout, tuple((point.kind.value, point.line, point.reason) for point in program.exits),
        {number: numbers[id(statement)] for number, statement in lowered.terminals.items()},
        lowered.values, lowered.results,
        tuple(k for k, group in enumerate(groups) if f"group {group}" in lowered.written),
        program.raises or any(point.kind is ExitKind.UNDO for point in program.exits),
        MIN_ARENA_BYTES if any(isinstance(node, Allocate) for node in program_nodes(program.body)) else 0,
        program.raises)
    lists_of_code = None
    if lists.observed or HEAP in compiled.layout.places:
        records = None
        lists_of_code = ListCode(lowered.list_types, tuple(value for value, _ in resolver.lists),
                                 HEAP in compiled.layout.places)
    _use_code(site, specialisation, tables, compiled, resolver, lists_of_code)
    specialisation.is_quick = compiled.optimise is not None
    if records is not None:
        def write() -> None:
            assert records is not None
            code = specialisation.code
            if code is not None:
                records.put_code(key, resolver.log, tables, code.owner.keys, program)

        specialisation.on_checked = lambda: later(write)
    specialisation.state = State.COMPILED
    if compiled.optimise is not None:
        later(lambda: _optimise(specialisation, compiled.optimise))
    _load_entry(specialisation, load_entry, later)


def is_recordable(site: LoopSite, values: Sequence[Any], source: Source) -> bool:
    """Return whether a record says enough of operands: not of lists, objects, and functions around the loop.
    """
    return not (source.lists or site.local_functions or site.wanted_fields or any(
        type(value) is list or is_plain_object(value) for value in values))


def _use_code(site: LoopSite, specialisation: Specialisation, tables: LoopTables, compiled: Any,
              resolver: NameResolver, lists: ListCode | None = None) -> None:
    """Have a loop run by compiled code from now on."""
    layout, results = tables.layout, tables.results
    specialisation.code = LoopCode(
        compiled.call, layout.size, layout.places, layout.arena, tables.exits, tables.terminals,
        state_writer(tables.values, site.names, layout.places),
        lambda state, arrays, memory=None: read_results(results, state, layout.places, arrays, memory),
        compiled,
        tables.raises, 0 if lists is not None or site.has_objects else getattr(compiled, "address", 0),
        tables.values, results, resolver.guards(),
        None if lists is not None or site.has_objects else make_entry, lists)
    specialisation.written, specialisation.undo = tables.written, tables.undo or lists is not None
    specialisation.arena_bytes = tables.arena_bytes
    specialisation.is_current = resolver.is_current


def _use_record(
    site: LoopSite, specialisation: Specialisation, values: Sequence[Any], record: LoweringRecord,
    load_program: Callable[..., Any],
) -> bool:
    """Refuse a loop, or use code that has passed its check, as an earlier process did; return whether so."""
    resolver = NameResolver(site.function, constants_in(values), names_stored(site.node))
    if not replay(record.steps, resolver, LoweringRefused):
        return False
    if record.tables is None:
        specialisation.refuse(record.reason, record.line)
        return True
    compiled = load_program(record.read_program, record.tables.layout, record.keys)
    if compiled is None:
        return False
    _use_code(site, specialisation, record.tables, compiled, resolver)
    specialisation.state = State.READY
    return True


def _load_entry(
    specialisation: Specialisation, load_entry: Callable[[], int] | None,
    later: Callable[[Callable[[], None]], None],
) -> None:
    """Have the code of native entry loaded; without it Python enters the program."""
    def load(load_entry: Callable[[], int]) -> None:
        try:
            specialisation.entry_address = load_entry()
        except BackendError as error:
            specialisation.entry_refusal = str(error)

    if load_entry is None:
        specialisation.entry_refusal = "native entry is not loaded"
    else:
        later(lambda: load(load_entry))


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
        lower_specialisation(site, values, source, groups,
                             ListKinds(specialisation.observed, specialisation.pairs))
    except LoweringRefused as refused:
        specialisation.refuse(refused.reason, refused.line)
