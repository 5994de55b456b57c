"""Traversal and rewriting of loop nests, and dependence analysis."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import numpy as np

from jitla.errors import ScheduleError
from jitla.loopir.nodes import (
    Alloc,
    Apply,
    Atom,
    Buffer,
    Guard,
    Index,
    Intrinsic,
    Invoke,
    Load,
    Loop,
    Nest,
    Number,
    Quotient,
    Ranges,
    Remainder,
    Statement,
    Store,
    Update,
    Value,
    Window,
    substitute_index,
    value_range,
    variable,
)

Body = tuple[Statement, ...]


class Access(NamedTuple):
    """A read or write of an element, with the loops and guards around it."""

    buffer: str
    subscript: tuple[Index, ...]
    writes: bool
    loops: tuple[Loop, ...]
    guards: tuple[Guard, ...]
    update: str | None = None  # the operator, if it is the target of an update
    extent: tuple[int, ...] | None = None  # of a window: how many elements along every axis


def loads(value: Value) -> Iterator[Load]:
    """Yield the elements that `value` is computed from."""
    if isinstance(value, Load):
        yield value
    elif isinstance(value, Apply):
        for arg in value.args:
            yield from loads(arg)


def accesses(
    body: Body, intrinsics: Mapping[str, Intrinsic], loops: tuple[Loop, ...] = (),
    guards: tuple[Guard, ...] = (),
) -> Iterator[Access]:
    """Yield all accesses of the statements, in order."""
    for statement in body:
        match statement:
            case Store(buffer, index, value) | Update(buffer, index, _, value):
                for load in loads(value):
                    yield Access(load.buffer, load.index, False, loops, guards)
                op = statement.op if isinstance(statement, Update) else None
                yield Access(buffer, index, True, loops, guards, op)
            case Loop(_, _, inner):
                yield from accesses(inner, intrinsics, (*loops, statement), guards)
            case Guard(_, _, inner):
                yield from accesses(inner, intrinsics, loops, (*guards, statement))
            case Invoke(name, windows):
                yield from _window_accesses(intrinsics[name], windows, loops, guards)


def _window_accesses(
    intrinsic: Intrinsic, windows: tuple[Window, ...], loops: tuple[Loop, ...], guards: tuple[Guard, ...]
) -> Iterator[Access]:
    """Yield the accesses of an intrinsic's windows; a written window counts as read, too."""
    written = {a.buffer for a in accesses(intrinsic.body, {}) if a.writes}
    for operand, window in zip(intrinsic.operands, windows, strict=True):
        # a window that is written counts as read too: what an intrinsic does inside is its own
        yield Access(window.buffer, window.index, False, loops, guards, None, operand.shape)
        if operand.name in written:
            yield Access(window.buffer, window.index, True, loops, guards, None, operand.shape)


def all_loops(body: Body) -> Iterator[Loop]:
    """Yield every loop, outer ones first."""
    for statement in body:
        if isinstance(statement, (Loop, Guard)):
            if isinstance(statement, Loop):
                yield statement
            yield from all_loops(statement.body)


def allocated_buffers(body: Body) -> Iterator[Buffer]:
    """Yield every buffer that is allocated."""
    for statement in body:
        if isinstance(statement, Alloc):
            yield statement.buffer
        elif isinstance(statement, (Loop, Guard)):
            yield from allocated_buffers(statement.body)


def buffers_of(nest: Nest) -> dict[str, Buffer]:
    """Return all buffers of a nest by name."""
    return {b.name: b for b in (*nest.inputs, *nest.outputs, *allocated_buffers(nest.body))}


def intrinsics_of(nest: Nest) -> dict[str, Intrinsic]:
    """Return the intrinsics of a nest by name."""
    return {i.name: i for i in nest.intrinsics}


def names_of(nest: Nest) -> set[str]:
    """Return the names of all loops and buffers."""
    return {loop.name for loop in all_loops(nest.body)} | buffers_of(nest).keys()


def loop_at(nest: Nest, name: str) -> Loop:
    """Return the loop called `name`; raise `ScheduleError` if there is none."""
    for loop in all_loops(nest.body):
        if loop.name == name:
            return loop
    names = ", ".join(loop_.name for loop_ in all_loops(nest.body)) or "none"
    raise ScheduleError("unknown-loop", f"there is no loop {name!r}; loops: {names}")


def path_to(body: Body, name: str) -> tuple[Loop, ...] | None:
    """Return the loops around loop `name`, outermost first, itself last; None if it is missing."""
    for statement in body:
        if isinstance(statement, (Loop, Guard)):
            path = (statement,) if isinstance(statement, Loop) else ()
            if path and path[0].name == name:
                return path
            below = path_to(statement.body, name)
            if below is not None:
                return path + below
    return None


def ranges_of(loops: tuple[Loop, ...]) -> Ranges:
    """Return the ranges of the variables of `loops`."""
    return {loop.name: (0, loop.extent - 1) for loop in loops}


def replace_loop(body: Body, name: str, change: Callable[[Loop], Body]) -> Body:
    """Return `body` with loop `name` replaced by the statements that `change` returns for it."""
    statements: list[Statement] = []
    for statement in body:
        if isinstance(statement, Loop) and statement.name == name:
            statements += change(statement)
        elif isinstance(statement, (Loop, Guard)):
            statements.append(replace(statement, body=replace_loop(statement.body, name, change)))
        else:
            statements.append(statement)
    return tuple(statements)


def rewrite_body(
    body: Body, index: Callable[[Index], Index] = lambda i: i, load: Callable[[Load], Value] = lambda x: x,
    statement: Callable[[Statement], Statement] = lambda s: s, name: Callable[[str], str] = lambda n: n,
) -> Body:
    """Return `body` with indices, loads, statements and loop names mapped, innermost first."""
    statements: list[Statement] = []
    for old_statement in body:
        match old_statement:
            case Store(_, at, value) | Update(_, at, _, value):
                rewritten: Statement = replace(old_statement, index=tuple(map(index, at)),
                                               value=rewrite_value(value, index, load))
            case Loop(old, _, inner):
                rewritten = replace(old_statement, name=name(old),
                                    body=rewrite_body(inner, index, load, statement, name))
            case Guard(at, _, inner):
                rewritten = replace(old_statement, index=index(at),
                                    body=rewrite_body(inner, index, load, statement, name))
            case Invoke(_, windows):
                windows_ = [replace(w, index=tuple(map(index, w.index))) for w in windows]
                rewritten = replace(old_statement, windows=tuple(windows_))
            case _:
                rewritten = old_statement
        statements.append(statement(rewritten))
    return tuple(statements)


def rewrite_value(value: Value, index: Callable[[Index], Index], load: Callable[[Load], Value]) -> Value:
    """Return `value` with its indices, then its loads mapped."""
    match value:
        case Load(buffer, at):
            return load(Load(buffer, tuple(map(index, at))))
        case Apply(_, args):
            return replace(value, args=tuple([rewrite_value(a, index, load) for a in args]))
        case Number():
            return value


def substitute_variables(body: Body, indices: Mapping[str, Index],
                         names: Mapping[str, str] | None = None) -> Body:
    """Return `body` with variables replaced by indices, and loops renamed by `names`."""
    loops = names or {}
    substitutions = {**{old: variable(new) for old, new in loops.items()}, **indices}
    return rewrite_body(body, lambda i: substitute_index(i, substitutions), name=lambda n: loops.get(n, n))


def fresh_name(taken: set[str], name: str) -> str:
    """Return a name like `name` that is not in `taken`, and add it there."""
    candidate, n = name, 2
    while candidate in taken:
        candidate, n = f"{name}{n}", n + 1
    taken.add(candidate)
    return candidate


#: Reductions whose order does not affect a bit, with the kinds of dtype: those of integers, which wrap.
REORDERABLE_KINDS = {"add": "iu", "multiply": "iu", "minimum": "iub", "maximum": "iub", "bitwise_and": "iub",
         "bitwise_or": "iub", "bitwise_xor": "iub", "logical_and": "b", "logical_or": "b"}


def is_reorderable(op: str, dtype: np.dtype) -> bool:
    """Return whether a reduction by `op` gives the same bits in any order."""
    return dtype.kind in REORDERABLE_KINDS.get(op, "")


def carried_dependence(
    loop: Loop, around: tuple[Loop, ...], buffers: Mapping[str, Buffer],
    intrinsics: Mapping[str, Intrinsic], inside: tuple[Loop, ...] = (),
) -> str | None:
    """Return a description of a dependence between iterations of `loop`, None if they are independent.

    `around` are the loops outside it, whose variables are equal in both iterations, except those of `inside`.
    """
    local = {b.name for b in allocated_buffers(loop.body)}
    all_accesses = [a for a in accesses((loop,), intrinsics, around) if a.buffer not in local]
    fixed = frozenset(a.name for a in around) - {a.name for a in inside}
    written = {a.buffer for a in all_accesses if a.writes}
    for one, other in _pairs(all_accesses, written):
        if _commute(one, other, buffers):
            continue
        if not _are_disjoint(one, other, loop.name, fixed):
            subscript = ", ".join(map(str, one.subscript))
            return f"elements {one.buffer}[{subscript}] of two iterations of {loop.name} may be the same"
    return None


def _pairs(all_accesses: list[Access], written: set[str]) -> Iterable[tuple[Access, Access]]:
    """Yield all pairs of accesses of one buffer of which the first writes."""
    for one, other in product(all_accesses, repeat=2):
        if one.writes and one.buffer == other.buffer and one.buffer in written:
            yield one, other


def _commute(one: Access, other: Access, buffers: Mapping[str, Buffer]) -> bool:
    """Return whether both accesses are updates that may be reordered."""
    same = one.update is not None and one.update == other.update
    return same and is_reorderable(str(one.update), buffers[one.buffer].dtype)


def _are_disjoint(one: Access, other: Access, name: str, fixed: frozenset[str]) -> bool:
    """Return whether the two accesses touch different elements in any two iterations of loop `name`."""
    ranges, other_ranges = ranges_of(one.loops), ranges_of(other.loops)
    for atom in _quotient_and_remainder(one.subscript, name) or {name}:
        if not any(_differ_along_axis(i, j, atom, fixed, ranges, other_ranges, k, m) for i, j, k, m in zip(
                one.subscript, other.subscript, one.extent or (1,) * len(one.subscript),
                other.extent or (1,) * len(other.subscript), strict=True)):
            return False
    return True


def _quotient_and_remainder(index: tuple[Index, ...], name: str) -> set[Atom]:
    """Return a quotient and a remainder in `index` that together determine the loop variable, if any."""
    atoms = {a for i in index for a, _ in i.terms}
    for atom in atoms:
        if isinstance(atom, Quotient) and atom.of.single_variable == name and Remainder(atom.of,
                                                                                        atom.by) in atoms:
            return {atom, Remainder(atom.of, atom.by)}
    return set()


def _differ_along_axis(
    one: Index, other: Index, atom: Atom, fixed: frozenset[str], ranges: Ranges, other_ranges: Ranges,
    count: int, other_count: int,
) -> bool:
    """Return whether ``one != other`` along this axis for any two different values of `atom`.

    `count` and `other_count` are the numbers of elements that the windows span. All other terms are bounded
    by intervals; no difference of the atom may make up for them.
    """
    terms, other_terms = dict(one.terms), dict(other.terms)
    step = terms.pop(atom, 0)
    if not step or other_terms.pop(atom, 0) != step:
        return False
    low, high = one.constant - other.constant, one.constant - other.constant
    for key in terms.keys() | other_terms.keys():
        names = frozenset({key}) if isinstance(key, str) else key.of.variables
        a, b = terms.get(key, 0), other_terms.get(key, 0)
        if names <= fixed and a == b:
            continue
        first = sorted(a * e for e in (value_range(Index(((key, 1),)), ranges) if a else (0, 0)))
        second = sorted(b * e for e in (value_range(Index(((key, 1),)), other_ranges) if b else (0, 0)))
        low, high = low + first[0] - second[1], high + first[1] - second[0]
    # windows extend further: by count - 1 elements, and by other_count - 1
    low, high = low - (other_count - 1), high + (count - 1)
    begins, ends = value_range(Index(((atom, 1),)), ranges)
    max_distance = ends - begins
    # the atom differs by -most ... -1 or 1 ... most; no difference may compensate the other terms
    return not any(low <= -step * d <= high
                   for d in (*_compensating_distances(low, high, step, max_distance),))


def _compensating_distances(low: int, high: int, step: int, max_distance: int) -> Iterable[int]:
    """Return the nonzero differences of a variable that make up for a difference from `low` to `high`."""
    ends = sorted((-low / step, -high / step))
    first, last = max(int(np.floor(ends[0])), -max_distance), min(int(np.ceil(ends[1])), max_distance)
    return [d for d in range(first, last + 1) if d]


def conflicting_buffer(
    first: Body, second: Body, intrinsics: Mapping[str, Intrinsic], besides: Collection[str]
) -> str | None:
    """Return a buffer, not in `besides`, that one of two sequences writes and the other accesses."""
    one: dict[str, bool] = {}
    for access in accesses(first, intrinsics):
        one[access.buffer] = access.writes or one.get(access.buffer, False)
    for access in accesses(second, intrinsics):
        if access.buffer not in besides and access.buffer in one and (access.writes or one[access.buffer]):
            return access.buffer
    return None
