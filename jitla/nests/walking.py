"""Going through nests: what is in them, and the same with parts exchanged.

Knows: the kinds of nodes. Must not know: which changes are legal.
Receives nests, statements, values; returns these anew, or what was found in them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from jitla.errors import ScheduleError
from jitla.nests.index import Index, Ranges, replaced, variable
from jitla.nests.nodes import (
    Alloc,
    Apply,
    Buffer,
    Guard,
    Intrinsic,
    Invoke,
    Load,
    Loop,
    Nest,
    Number,
    Statement,
    Store,
    Update,
    Value,
    Window,
)

Body = tuple[Statement, ...]


class Access(NamedTuple):
    """An element that a statement reads or writes: within which loops, under which guards."""

    buffer: str
    at: tuple[Index, ...]
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
    """Yield what the statements read and write, in order."""
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
                yield from _of_windows(intrinsics[name], windows, loops, guards)


def _of_windows(
    intrinsic: Intrinsic, windows: tuple[Window, ...], loops: tuple[Loop, ...], guards: tuple[Guard, ...]
) -> Iterator[Access]:
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


def allocated(body: Body) -> Iterator[Buffer]:
    """Yield every buffer that is allocated."""
    for statement in body:
        if isinstance(statement, Alloc):
            yield statement.buffer
        elif isinstance(statement, (Loop, Guard)):
            yield from allocated(statement.body)


def buffers_of(nest: Nest) -> dict[str, Buffer]:
    """Return all buffers of a nest by name."""
    return {b.name: b for b in (*nest.inputs, *nest.outputs, *allocated(nest.body))}


def intrinsics_of(nest: Nest) -> dict[str, Intrinsic]:
    """Return the intrinsics of a nest by name."""
    return {i.name: i for i in nest.intrinsics}


def names_of(nest: Nest) -> set[str]:
    """Return all names of loops and buffers."""
    return {loop.name for loop in all_loops(nest.body)} | buffers_of(nest).keys()


def loop_at(nest: Nest, name: str) -> Loop:
    """Return the loop of that name."""
    for loop in all_loops(nest.body):
        if loop.name == name:
            return loop
    there = ", ".join(found.name for found in all_loops(nest.body)) or "none"
    raise ScheduleError("unknown-loop", f"there is no loop {name!r}; loops: {there}")


def path_to(body: Body, name: str) -> tuple[Loop, ...] | None:
    """Return the loops around loop `name`, outermost first, itself last; None if it is not there."""
    for statement in body:
        if isinstance(statement, (Loop, Guard)):
            own = (statement,) if isinstance(statement, Loop) else ()
            if own and own[0].name == name:
                return own
            below = path_to(statement.body, name)
            if below is not None:
                return own + below
    return None


def ranges_of(loops: tuple[Loop, ...]) -> Ranges:
    """Return the ranges of the variables of loops."""
    return {loop.name: (0, loop.extent - 1) for loop in loops}


def with_loop(body: Body, name: str, change: Callable[[Loop], Body]) -> Body:
    """Return `body` with loop `name` exchanged for what `change` makes of it."""
    found: list[Statement] = []
    for statement in body:
        if isinstance(statement, Loop) and statement.name == name:
            found += change(statement)
        elif isinstance(statement, (Loop, Guard)):
            found.append(replace(statement, body=with_loop(statement.body, name, change)))
        else:
            found.append(statement)
    return tuple(found)


def rebuilt(
    body: Body, index: Callable[[Index], Index] = lambda i: i, load: Callable[[Load], Value] = lambda x: x,
    statement: Callable[[Statement], Statement] = lambda s: s, name: Callable[[str], str] = lambda n: n,
) -> Body:
    """Return `body` with indices, loads, statements and names of loops exchanged, from the inside out."""
    found: list[Statement] = []
    for s in body:
        match s:
            case Store(_, at, value) | Update(_, at, _, value):
                made: Statement = replace(s, index=tuple(map(index, at)), value=revalued(value, index, load))
            case Loop(old, _, inner):
                made = replace(s, name=name(old), body=rebuilt(inner, index, load, statement, name))
            case Guard(at, _, inner):
                made = replace(s, index=index(at), body=rebuilt(inner, index, load, statement, name))
            case Invoke(_, windows):
                moved = [replace(w, index=tuple(map(index, w.index))) for w in windows]
                made = replace(s, windows=tuple(moved))
            case _:
                made = s
        found.append(statement(made))
    return tuple(found)


def revalued(value: Value, index: Callable[[Index], Index], load: Callable[[Load], Value]) -> Value:
    """Return `value` with its indices, then its loads exchanged."""
    match value:
        case Load(buffer, at):
            return load(Load(buffer, tuple(map(index, at))))
        case Apply(_, args):
            return replace(value, args=tuple([revalued(a, index, load) for a in args]))
        case Number():
            return value


def renamed(body: Body, by: Mapping[str, Index], names: Mapping[str, str] | None = None) -> Body:
    """Return `body` with variables exchanged for indices, and with loops, too, under other names."""
    loops = names or {}
    every = {**{old: variable(new) for old, new in loops.items()}, **by}
    return rebuilt(body, lambda i: replaced(i, every), name=lambda n: loops.get(n, n))


def fresh(taken: set[str], name: str) -> str:
    """Return a name like `name` that is not `taken` yet, and take it."""
    found, n = name, 2
    while found in taken:
        found, n = f"{name}{n}", n + 1
    taken.add(found)
    return found
