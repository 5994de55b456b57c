"""Traversal of loop nests, and dependences between statements."""

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
    Rest,
    Statement,
    Store,
    Update,
    Value,
    Window,
    reach,
    replaced,
    variable,
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


#: Operators whose order does not matter, not even to a bit: those of whole numbers, which wrap.
EXACT = {"add": "iu", "multiply": "iu", "minimum": "iub", "maximum": "iub", "bitwise_and": "iub",
         "bitwise_or": "iub", "bitwise_xor": "iub", "logical_and": "b", "logical_or": "b"}


def is_exact(op: str, dtype: np.dtype) -> bool:
    """Tell whether a reduction by `op` may be done in any order."""
    return dtype.kind in EXACT.get(op, "")


def carried(
    loop: Loop, around: tuple[Loop, ...], buffers: Mapping[str, Buffer],
    intrinsics: Mapping[str, Intrinsic], inside: tuple[Loop, ...] = (),
) -> str | None:
    """Return why turns of `loop` are not independent, None if they are.

    `around` are the loops outside it, in which a turn is fixed; `inside` are those of them that are not.
    """
    own = {b.name for b in allocated(loop.body)}
    found = [a for a in accesses((loop,), intrinsics, around) if a.buffer not in own]
    fixed = frozenset(a.name for a in around) - {a.name for a in inside}
    written = {a.buffer for a in found if a.writes}
    for one, other in _pairs(found, written):
        if _commute(one, other, buffers):
            continue
        if not _never_meet(one, other, loop.name, fixed):
            at = ", ".join(map(str, one.at))
            return f"elements {one.buffer}[{at}] of two turns of {loop.name} may be the same"
    return None


def _pairs(found: list[Access], written: set[str]) -> Iterable[tuple[Access, Access]]:
    """Return all pairs of accesses of the same buffer, one of which writes."""
    for one, other in product(found, repeat=2):
        if one.writes and one.buffer == other.buffer and one.buffer in written:
            yield one, other


def _commute(one: Access, other: Access, buffers: Mapping[str, Buffer]) -> bool:
    """Tell whether both are updates that may change places."""
    same = one.update is not None and one.update == other.update
    return same and is_exact(str(one.update), buffers[one.buffer].dtype)


def _never_meet(one: Access, other: Access, name: str, fixed: frozenset[str]) -> bool:
    """Tell whether the elements differ wherever the turns of `name` do."""
    here, there = ranges_of(one.loops), ranges_of(other.loops)
    for atom in _virtual(one.at, name) or {name}:
        if not any(_apart(i, j, atom, fixed, here, there, k, m) for i, j, k, m in zip(
                one.at, other.at, one.extent or (1,) * len(one.at),
                other.extent or (1,) * len(other.at), strict=True)):
            return False
    return True


def _virtual(index: tuple[Index, ...], name: str) -> set[Atom]:
    """Return a quotient and a rest of the loop variable, which together are it."""
    atoms = {a for i in index for a, _ in i.terms}
    for atom in atoms:
        if isinstance(atom, Quotient) and atom.of.single == name and Rest(atom.of, atom.by) in atoms:
            return {atom, Rest(atom.of, atom.by)}
    return set()


def _apart(
    one: Index, other: Index, atom: Atom, fixed: frozenset[str], here: Ranges, there: Ranges,
    many: int, more: int,
) -> bool:
    """Tell whether ``one != other`` along this axis wherever `atom` differs between the two."""
    mine, its = dict(one.terms), dict(other.terms)
    step = mine.pop(atom, 0)
    if not step or its.pop(atom, 0) != step:
        return False
    low, high = one.plus - other.plus, one.plus - other.plus
    for key in mine.keys() | its.keys():
        names = frozenset({key}) if isinstance(key, str) else key.of.variables
        a, b = mine.get(key, 0), its.get(key, 0)
        if names <= fixed and a == b:
            continue
        first = sorted(a * e for e in (reach(Index(((key, 1),)), here) if a else (0, 0)))
        second = sorted(b * e for e in (reach(Index(((key, 1),)), there) if b else (0, 0)))
        low, high = low + first[0] - second[1], high + first[1] - second[0]
    # windows reach further: of `one` up to many - 1 elements, of `other` up to more - 1
    low, high = low - (more - 1), high + (many - 1)
    begins, ends = reach(Index(((atom, 1),)), here)
    most = ends - begins
    # differences of the atom are -most ... -1 and 1 ... most; none may make up for the rest
    return not any(low <= -step * d <= high for d in (*_near(low, high, step, most),))


def _near(low: int, high: int, step: int, most: int) -> Iterable[int]:
    """Return the differences of a variable that could make up for `low` to `high`."""
    ends = sorted((-low / step, -high / step))
    first, last = max(int(np.floor(ends[0])), -most), min(int(np.ceil(ends[1])), most)
    return [d for d in range(first, last + 1) if d]


def conflict(
    first: Body, second: Body, intrinsics: Mapping[str, Intrinsic], besides: Collection[str]
) -> str | None:
    """Return a buffer that one of two sequences writes and the other touches, `besides` some."""
    one: dict[str, bool] = {}
    for access in accesses(first, intrinsics):
        one[access.buffer] = access.writes or one.get(access.buffer, False)
    for access in accesses(second, intrinsics):
        if access.buffer not in besides and access.buffer in one and (access.writes or one[access.buffer]):
            return access.buffer
    return None
