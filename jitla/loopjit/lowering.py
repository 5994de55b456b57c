"""Lowering of Python loops to loop programs, by abstract interpretation of their syntax trees.

Statements are lowered in order while the kinds of all variables are followed; loops are lowered again until
the kinds at their headers no longer change. A statement that cannot be lowered leaves the iteration to
Python if it is conditional, and refuses the loop otherwise.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence

from jitla.classes import dataclass
from jitla.loopir import fuse_loops
from jitla.loopir import program as ir
from jitla.loopjit import arrays, scalars
from jitla.loopjit.bounds import hoist_checks
from jitla.loopjit.builder import (
    ProgramBuilder,
    apply,
    both,
    compare,
    freeze,
    plus,
    times,
)
from jitla.loopjit.flags import may_raise_flags
from jitla.loopjit.flow import Environment, Meeting, copy_view, meet, widened
from jitla.loopjit.flow import convert as convert_variable
from jitla.loopjit.inlining import names_of_fixed_lists
from jitla.loopjit.list_types import HEAP, HEAP_END, ListTypes
from jitla.loopjit.lowering_state import LoopTarget, Resolver
from jitla.loopjit.nested_loops import Lowering
from jitla.loopjit.rewriting import (
    BEGIN,
    LIMIT,
    LOOP_BROKEN,
    LOOP_DONE,
    PART_DONE,
    POSITION,
    SEQUENCE,
    START,
)
from jitla.loopjit.statements import MAX_ROUNDS
from jitla.loopjit.values import (
    MAX_EXTENT,
    TAG_DTYPE,
    Abstract,
    Arr,
    Conflict,
    ListOf,
    LocalFunction,
    LoweringRefused,
    Num,
    Tup,
    Union,
    of_kind,
    same_representation,
)

MAX_NODES = 8_500  # of a program: machine code of as many takes about two seconds


def has_list(value: Abstract) -> bool:
    """Return whether a value is a list, or has one."""
    if isinstance(value, Union):
        return any(map(has_list, value.options))
    return isinstance(value, Tup) and (value.is_list or any(map(has_list, value.items)))


@dataclass(frozen=True)
class LoweredLoop:
    """A loop as a program, and how its variables are those of Python.

    `values` are the variables that the program is entered with, `results` those that it gives back, both as
    they are at the header. `written` are the names of arrays whose memory it may change. `terminals` are
    statements that Python does after the final exit with their number.
    """

    program: ir.LoopProgram
    values: dict[str, Abstract]
    results: dict[str, Abstract]
    written: frozenset[str]
    terminals: dict[int, ast.stmt]
    list_types: ListTypes


NO_FUNCTIONS: Mapping[str, LocalFunction] = {}
#: Returns the variables that a loop is entered with; the value of what a ``for`` loop goes through.
EntryVariables = Callable[[ProgramBuilder, ListTypes], Environment]
SourceOfLoop = Callable[[ProgramBuilder, ListTypes], Abstract]


def lower_loop(
    node: ast.For | ast.While, entry: EntryVariables, source: SourceOfLoop | None, kept: frozenset[str],
    local_names: frozenset[str], resolver: Resolver, name: str,
    local_functions: Mapping[str, LocalFunction] = NO_FUNCTIONS,
) -> LoweredLoop:
    """Lower a loop of a function.

    `entry` returns the variables that it is entered with, held in variables of their names; `source` what a
    ``for`` loop goes through. `kept` are the names whose values are needed at the header or behind the loop.
    """
    types = ListTypes()
    for _ in range(MAX_ROUNDS):
        version = types.version
        try:
            lowered = _lower_once(node, entry, source, kept, local_names, resolver, name, types,
                                  local_functions)
        except LoweringRefused:
            if types.version == version:
                raise
            continue
        if types.version == version:
            return lowered
    raise LoweringRefused("the kinds of items of lists that do not settle")


def _lower_once(
    node: ast.For | ast.While, entry: EntryVariables, source: SourceOfLoop | None, kept: frozenset[str],
    local_names: frozenset[str], resolver: Resolver, name: str, types: ListTypes,
    local_functions: Mapping[str, LocalFunction],
) -> LoweredLoop:
    """Lower a loop with the present types of lists, which may get wider."""
    version = types.version
    low = Lowering(resolver, types)
    low.local_names = low.outer_names = local_names
    low.local_functions = local_functions
    low.fixed_lists = names_of_fixed_lists(node.body) - kept
    b = low.b
    given = entry(b, types)
    low.fields = frozenset(key for key in given if "." in key)
    low.stored_fields = low.fields & kept
    for array, _ in array_variables(Tup(tuple(given.values()))):
        b.enter_with(array.view, array)
    low.global_arrays = {key: value for key, value in given.items() if key not in local_names}
    position = of_kind("int", b.scalar(POSITION, ir.INT64), 0, MAX_EXTENT)
    header = {**given}
    for _ in range(MAX_ROUNDS):
        low.env, low.reachable, low.final_edges = dict(header), True, []
        target = LoopTarget(Meeting.empty(), ir.Break(""), Meeting.empty(), ir.Continue(".main"), LOOP_BROKEN)
        low.targets = [target]
        with b.into([]) as prelude:
            item = None if source is None else low.iteration(source(b, types))[1]
        with b.into([]) as statements:
            if isinstance(node, ast.For):
                assert item is not None
                low.assign(node.target, item(position))
            else:
                test = low.test_of_loop(node.test)
                if scalars.static_truth(test) is not True:
                    low.branch(test, lambda: None, lambda: low.leave_for_good(LOOP_DONE))
            low.block(node.body)
            if low.reachable:
                target.next_iteration.reach(b, low.env)
        following = _main_header(low, given, header, target, kept)
        if all(same_representation(header.get(key), following.get(key)) for key in following):
            break
        header = {key: widened(header[key], value) if key in header else value
                  for key, value in following.items()}
    else:
        raise LoweringRefused("the kinds of variables that do not settle")
    if low.without_items is not None and types.version == version:
        raise low.without_items
    results = {key: header[key] for key in kept if key in header}
    for key, value in results.items():
        if isinstance(value, Conflict):
            raise LoweringRefused(f"{key}: {value.reason}")
        if has_list(value):
            raise LoweringRefused(f"{key} is a list")
    edges = [(edge, env, True) for edge, env in target.next_iteration.edges]
    edges += [(edge, env, False) for _, env, edge in low.final_edges]
    for edge, env, continues in edges:
        with b.into(edge.statements):
            for key, value in results.items():
                if env.get(key) is not value:
                    convert_variable(b, env.get(key), value)
            if continues:
                retain(b, [found for value in results.values() for found in array_variables(value)])
    main = ir.For(".main", POSITION, b.scalar(BEGIN, ir.INT64), b.scalar(LIMIT, ir.INT64), 1,
                  statements)  # type: ignore[arg-type]
    body = hoist_checks(freeze([*prelude, main, ir.Leave(PART_DONE)]))
    return _finished(low, node, name, body, given, header, results)


def _main_header(low: Lowering, given: Environment, header: Environment, target: LoopTarget,
                 kept: frozenset[str]) -> Environment:
    """Return the variables at the header of the outermost loop, those of its final exits included."""
    envs = [given, *(env for _, env in target.next_iteration.edges), *(env for _, env, _ in low.final_edges)]
    merged = meet([restrict(env, kept) for env in envs], "", low.b)
    for key, value in merged.items():
        conflict = conflict_in(value)
        if conflict is not None:
            raise LoweringRefused(f"{key}: {conflict.reason}")
    return {**{key: value for key, value in header.items() if key not in kept}, **merged}


def conflict_in(value: Abstract) -> Conflict | None:
    """Return a value, or an item of a tuple, that no program holds."""
    if isinstance(value, (Tup, Union)):
        parts = value.items if isinstance(value, Tup) else value.options
        return next((found for found in map(conflict_in, parts) if found is not None), None)
    return value if isinstance(value, Conflict) else None


#: An array variable, and whether it has a value; None: for sure.
Held = tuple[Arr, ir.Value | None]


def array_variables(value: Abstract) -> list[Held]:
    """Return the array variables that hold a value, those of its items and options included."""
    match value:
        case Arr():
            return [(value, None if value.tag is None else compare(
                "not_equal", value.tag, ir.constant(0, TAG_DTYPE)))]
        case Tup(items):
            return [held for item in items for held in array_variables(item)]
        case Union(options):
            return [(array, test if has_value is None else both(test, has_value))
                    for k, option in enumerate(options) for test in [value.is_option(k)]
                    for array, has_value in array_variables(option)]
    return []


def retain(b: ProgramBuilder, variables: Sequence[Held]) -> None:
    """Move the memory of arrays that were made in the iteration before, and are still used, to this
    iteration's.

    Two variables that share such memory would not afterwards: Python goes on then.
    """
    made = [(array, test) for array, test in variables
            if any(origin.startswith(arrays.ALLOCATED) for origin in array.origins)]
    for array, test in made:
        bound = Arr(array.view, array.dtype, array.ndim, array.origins)
        expires: ir.Value = ir.Expires(array.view)
        if test is not None:
            expires = both(expires, test)
        with b.into([]) as moved:
            for other, has_value in made:
                if other is not array and other.may_share_memory(array):
                    shares = both(_begins_below(array, other), _begins_below(other, array))
                    b.check(shares if has_value is None else both(shares, has_value),
                            "two variables share an array made in another iteration")
            copy = arrays.materialise(b, arrays.elementwise(b, bound))
            copy_view(b, array.view, copy)
        b.emit(ir.If(expires, moved))  # type: ignore[arg-type]


def _begins_below(a: Arr, c: Arr) -> ir.Value:
    """Return whether the memory of an array begins below the end of that of another."""
    length = times(ir.Extent(c.view, 0), apply("absolute", ir.Stride(c.view, 0)))
    return compare("less_equal", ir.Pointer(a.view), plus(ir.Pointer(c.view), length))


def restrict(env: Environment, names: frozenset[str]) -> Environment:
    """Return the variables with these names."""
    return {name: value for name, value in env.items() if name in names}


def _finished(low: Lowering, node: ast.For | ast.While, name: str, body: tuple[ir.Statement, ...],
              given: Environment, header: Environment, results: Environment) -> LoweredLoop:
    """Return the lowered loop with its program."""
    b = low.b
    values = {key: header[key] for key in header}
    parameters = [BEGIN, LIMIT]
    parameters += [name for name in b.scalars if name.startswith(START)]
    for value in values.values():
        parameters += variables_of(value)
    parameters += [view for view in (*b.views, *b.scalars) if view.startswith(SEQUENCE)]
    parameters += [name for name in (HEAP, HEAP_END) if name in b.scalars]
    names = list(dict.fromkeys(parameters))
    kept = [POSITION, *(variable for value in results.values() for variable in variables_of(value))]
    nodes = ir.program_nodes(body)
    if len(nodes) > MAX_NODES:
        raise LoweringRefused(f"a program of more than {MAX_NODES} nodes, which takes long to compile")
    used = ir.variables_in(nodes)
    program = ir.LoopProgram(
        name, tuple(scalar for scalar in b.scalars.values() if scalar.name in used or scalar.name in names
                    or scalar.name in kept),
        tuple(view for view in b.views.values() if view.name in used or view.name in names
              or view.name in kept),
        tuple(names), tuple(dict.fromkeys(kept)), body, tuple(b.exits),
        tuple(variable for key in sorted(low.written & values.keys())
              for variable in variables_of(values[key])
              if variable in b.views),
        origins=tuple((view, origin) for view, origin in b.origins.items() if view in names),
        raises=may_raise_flags(nodes))
    return LoweredLoop(fuse_loops(program), values, results, frozenset(low.written),
                       {exit_number: terminal for terminal in low.terminals
                        for exit_number in [low.terminal_exits[terminal.lineno, terminal.col_offset]]},
                       low.list_types)


def variables_of(value: Abstract) -> list[str]:
    """Return the names of the variables that hold a value."""
    match value:
        case Num(value=ir.Read(name), tag=tag):
            return [name, *([tag.name] if isinstance(tag, ir.Read) else [])]
        case Arr(view, tag=tag):
            return [view, *([tag.name] if isinstance(tag, ir.Read) else [])]
        case ListOf(handle=ir.Read(name)):
            return [name]
        case Tup(items):
            return [name for item in items for name in variables_of(item)]
        case Union(options, ir.Read(name)):
            return [name, *(name for option in options for name in variables_of(option))]
    return []
