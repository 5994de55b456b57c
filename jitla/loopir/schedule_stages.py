"""Schedule primitives on stages: compute_at, store_at, caches, inference of bounds."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from jitla.loopir.analysis import (
    Access,
    Body,
    accesses,
    all_loops,
    allocated,
    buffers_of,
    conflict,
    fresh,
    intrinsics_of,
    loop_at,
    names_of,
    path_to,
    ranges_of,
    rebuilt,
    renamed,
    revalued,
    with_loop,
)
from jitla.loopir.nodes import (
    Alloc,
    Buffer,
    Guard,
    Index,
    Intrinsic,
    Invoke,
    Load,
    Loop,
    LoopKind,
    Nest,
    Scope,
    Statement,
    Store,
    Update,
    Value,
    number,
    parted,
    reach,
    replaced,
    rest,
    variable,
)
from jitla.loopir.schedule_loops import (
    bind,
    checked,
    fuse,
    parallel,
    rebuffered,
    refuse,
    reorder,
    rfactor,
    split,
    tensorise,
    tile,
    unroll,
    vectorise,
)
from jitla.loopir.verifier import within


class Region(NamedTuple):
    """Where a part of a buffer begins, its extents, and along which axes it may leave the buffer."""

    base: tuple[Index, ...]
    extent: tuple[int, ...]
    over: tuple[bool, ...]


def region(
    found: Iterable[Access], shape: Sequence[int], around: tuple[Loop, ...], guards: tuple[Guard, ...] = ()
) -> Region:
    """Return the part of a buffer of `shape` that holds all elements `found`.

    `around` are the loops in which it is fixed.
    """
    found = tuple(found)
    axes = [_along(axis, found, size, around) for axis, size in enumerate(shape)]
    over = [within(base, around, guards)[1] + many > size
            for (base, many), size in zip(axes, shape, strict=True)]
    return Region(tuple(b for b, _ in axes), tuple(n for _, n in axes), tuple(over))


def _along(axis: int, found: tuple[Access, ...], size: int, around: tuple[Loop, ...]) -> tuple[Index, int]:
    fixed = frozenset(loop.name for loop in around)
    bases: set[Index] = set()
    low, high = [], []
    for access in found:
        inner = frozenset(x.name for x in access.loops) - fixed
        parts = parted(access.at[axis], inner)
        if parts is None:
            return number(0), size
        bases.add(parts[0])
        ends = reach(parts[1], ranges_of(access.loops))
        low.append(ends[0])
        high.append(ends[1] + (access.extent[axis] - 1 if access.extent else 0))
    if len(bases) != 1 or max(high) - min(low) + 1 >= size:
        return number(0), size
    return bases.pop() + min(low), max(high) - min(low) + 1


class Stage(NamedTuple):
    """A statement that makes buffers: its loops, of which `axes` walk their axes, and a store.

    `body` is what the loops stand around: the stores, and what they take from registers of their own.
    """

    loops: tuple[Loop, ...]
    axes: tuple[str, ...]
    store: Store | Update
    body: Body
    made: tuple[str, ...]


class Parts(NamedTuple):
    """The sequence a buffer is allocated in: what comes before it, its stages, others, all readers."""

    stages: tuple[Stage, ...]
    between: Body
    readers: Body


def _in_sequence(nest: Nest, name: str, change: Callable[[Body], Body]) -> Nest:
    """Exchange the sequence in which buffer `name` is allocated for what `change` makes of it."""
    if name in {b.name for b in (*nest.inputs, *nest.outputs)}:
        raise refuse("not-inner", f"{name} is an operand, and lies where it lies")
    done = []

    def look(body: Body) -> Body:
        if any(isinstance(s, Alloc) and s.buffer.name == name for s in body):
            done.append(name)
            return change(body)
        return tuple(replace(s, body=look(s.body)) if isinstance(s, (Loop, Guard)) else s for s in body)

    made = replace(nest, body=look(nest.body))
    if not done:
        raise refuse("unknown-buffer", f"there is no buffer {name!r}")
    return checked(made)


def _mates(body: Body, buffer: Buffer, nest: Nest) -> tuple[Buffer, ...]:
    """Return a buffer and those of its shape that are allocated beside it and made by the same loops."""
    beside = {s.buffer.name: s.buffer for s in body if isinstance(s, Alloc)}
    found = {buffer.name: buffer}
    for statement in body:
        written = {a.buffer for a in accesses((statement,), intrinsics_of(nest)) if a.writes}
        if buffer.name in written:
            found |= {n: b for n, b in beside.items() if n in written and b.shape == buffer.shape}
    return tuple(found.values())


def _parts(body: Body, buffers: tuple[Buffer, ...], nest: Nest) -> Parts:
    """Tell apart what makes buffers and what reads them; refuse what is neither."""
    intrinsics, buffer = intrinsics_of(nest), buffers[0]
    names = tuple(b.name for b in buffers)
    stages: list[Stage] = []
    between: list[Statement] = []
    readers: list[Statement] = []
    passed: list[Statement] = []  # what the stages are moved past
    for statement in body:
        found = [a for a in accesses((statement,), intrinsics) if a.buffer in names]
        if isinstance(statement, Alloc) and statement.buffer in buffers:
            continue
        if any(a.writes for a in found):
            if readers:
                raise refuse("not-pure", f"{buffer.name} is written after it was read")
            stages.append(_stage(statement, buffer, names))
        elif found:
            readers.append(statement)
        else:
            (readers if readers else between).append(statement)
            if stages and not readers:
                passed.append(statement)
    made = tuple(w for s in stages for w in _written(s))
    clash = conflict(made, (*passed, *readers), intrinsics, names)
    if clash:
        raise refuse("overwritten", f"{clash} changes between where {buffer.name} is made and read")
    return Parts(tuple(stages), tuple(between), tuple(readers))


def _stage(statement: Statement, buffer: Buffer, names: tuple[str, ...]) -> Stage:
    """Take a statement apart that makes all of a buffer: loops, and one store."""
    loops: list[Loop] = []
    body: Body = (statement,)
    while len(body) == 1 and isinstance(body[0], Loop):
        loops.append(body[0])
        body = body[0].body
    own = {s.buffer.name for s in body if isinstance(s, Alloc)}
    stores = [s for s in body if isinstance(s, (Store, Update)) and s.buffer in names]
    if not stores or len({s.buffer for s in stores}) < len(stores) or not all(
            isinstance(s, Alloc) or isinstance(s, (Store, Update)) and s.buffer in own or s in stores
            for s in body):
        raise refuse("not-pure", f"{buffer.name} is not made by loops around one store")
    store = stores[0]
    again = [a.at for a in accesses(body, {}) if a.buffer in names]
    if any(at != store.index for at in again):
        raise refuse("not-pure", f"elements of {buffer.name} depend on each other")
    axes = tuple(i.single or "" for i in store.index)
    extents = {loop.name: loop.extent for loop in loops}
    if len(set(axes)) != len(axes) or tuple(extents.get(a, 0) for a in axes) != buffer.shape:
        raise refuse("not-pure", f"not every element of {buffer.name} is made by a turn of its own")
    if isinstance(store, Store) and len(loops) != len(axes):
        raise refuse("not-pure", f"elements of {buffer.name} are stored several times")
    return Stage(tuple(loops), axes, store, body, names)


def _written(stage: Stage) -> Body:
    made = stage.body
    for loop in reversed(stage.loops):
        made = (replace(loop, body=made),)
    return made


def _partly(
    stage: Stage, base: Sequence[Index], extent: Sequence[int], over: Sequence[bool], shape: Sequence[int],
    at: Callable[[int, Index], Index] = lambda axis, index: index,
) -> Statement:
    """Return the stage for a part of its buffer; `at` says where element number `index` of it lies."""
    places = {name: base[a] + variable(name) for a, name in enumerate(stage.axes)}
    here = tuple(at(a, variable(name)) for a, name in enumerate(stage.axes))

    def load(found: Load) -> Value:
        return replace(found, index=here) if found.buffer in stage.made else found

    def stored(s: Statement) -> Statement:
        if isinstance(s, (Store, Update)) and s.buffer in stage.made:
            return replace(s, index=here)
        return s

    body = rebuilt(renamed(stage.body, places), load=load, statement=stored)
    for a, name in enumerate(stage.axes):
        if over[a]:
            body = (Guard(base[a] + variable(name), shape[a], body),)
    sizes = dict(zip(stage.axes, extent, strict=True))
    for loop in reversed(stage.loops):
        body = (replace(loop, extent=sizes.get(loop.name, loop.extent), body=body),)
    return body[0]


def compute_inline(nest: Nest, buffer: str) -> Nest:
    """Compute an element of `buffer` wherever it is read."""
    there = buffers_of(nest)

    def change(body: Body) -> Body:
        parts = _parts(body, (there[buffer],), nest)
        if len(parts.stages) != 1 or isinstance(parts.stages[0].store, Update) or \
                len(parts.stages[0].body) > 1:
            raise refuse("not-pure", f"{buffer} is not the value of one expression")
        stage = parts.stages[0]
        if any(isinstance(s, Invoke) and buffer in [w.buffer for w in s.windows]
               for s in _leaves(parts.readers)):
            raise refuse("intrinsic", f"an intrinsic reads {buffer} from memory")

        def load(found: Load) -> Value:
            if found.buffer != buffer:
                return found
            by = dict(zip(stage.axes, found.index, strict=True))
            return revalued(stage.store.value, lambda i: replaced(i, by), lambda x: x)

        return (*parts.between, *rebuilt(parts.readers, load=load))

    return _in_sequence(nest, buffer, change)


def _leaves(body: Body) -> list[Statement]:
    found: list[Statement] = []
    for s in body:
        found += _leaves(s.body) if isinstance(s, (Loop, Guard)) else [s]
    return found


def compute_at(nest: Nest, buffer: str, loop: str, scope: str = "cache") -> Nest:
    """Compute in every turn of `loop` the region of `buffer` that it reads, and no more."""
    there = buffers_of(nest)

    def change(body: Body) -> Body:
        mates = _mates(body, there[buffer], nest)
        parts = _parts(body, mates, nest)
        found, part = _needed(parts, mates, loop, nest)
        made = [_partly(s, part.base, part.extent, part.over, there[buffer].shape) for s in parts.stages]
        local = [Alloc(replace(b, shape=part.extent, scope=Scope(scope))) for b in mates]
        inside = (*local, *made, *_all_moved(found.body, mates, part.base))
        return (*parts.between, *with_loop(
            parts.readers, loop, lambda x: (replace(x, body=inside),)))

    loop_at(nest, loop)
    return _in_sequence(nest, buffer, change)


def _needed(parts: Parts, mates: tuple[Buffer, ...], loop: str, nest: Nest) -> tuple[Loop, Region]:
    """Return the loop at which buffers are to be computed, and the region that it reads."""
    path, inside, outside = _reads(parts, mates, loop, nest)
    if outside:
        raise refuse("used-outside", f"{outside[0].buffer} is read outside {loop}, too")
    return path[-1], region(inside, mates[0].shape, path)


def _reads(
    parts: Parts, mates: tuple[Buffer, ...], loop: str, nest: Nest
) -> tuple[tuple[Loop, ...], list[Access], list[Access]]:
    """Return the loops around `loop` and itself, the elements of buffers read in it, and others."""
    names = [b.name for b in mates]
    path = path_to(nest.body, loop)
    if path_to(parts.readers, loop) is None or path is None:
        raise refuse("no-use", f"{loop} does not read {names[0]}")
    found = [a for a in accesses(nest.body, intrinsics_of(nest)) if a.buffer in names]
    stages = {x.name for s in parts.stages for x in s.loops}
    reads = [a for a in found if not stages & {x.name for x in a.loops}]
    inside = [a for a in reads if loop in {x.name for x in a.loops}]
    if not inside:
        raise refuse("no-use", f"{loop} does not read {names[0]}")
    return path, inside, [a for a in reads if a not in inside]


def moved(
    body: Body, buffer: str, base: Sequence[Index], name: str = "",
    at: Callable[[int, Index], Index] = lambda axis, index: index,
) -> Body:
    """Return `body` with the elements of `buffer` where they lie in a part of it, called `name`."""
    def place(index: tuple[Index, ...]) -> tuple[Index, ...]:
        return tuple(at(a, i - b) for a, (i, b) in enumerate(zip(index, base, strict=True)))

    def load(found: Load) -> Value:
        return Load(name or buffer, place(found.index)) if found.buffer == buffer else found

    def statement(s: Statement) -> Statement:
        if isinstance(s, (Store, Update)) and s.buffer == buffer:
            return replace(s, buffer=name or buffer, index=place(s.index))
        if isinstance(s, Invoke):
            return replace(s, windows=tuple(
                replace(w, buffer=name or buffer, index=place(w.index)) if w.buffer == buffer else w
                for w in s.windows))
        return s

    return rebuilt(body, load=load, statement=statement)


def _all_moved(
    body: Body, mates: tuple[Buffer, ...], base: Sequence[Index],
    at: Callable[[int, Index], Index] = lambda axis, index: index,
) -> Body:
    for mate in mates:
        body = moved(body, mate.name, base, at=at)
    return body


def store_at(nest: Nest, buffer: str, outer: str, loop: str, ring: bool = False) -> Nest:
    """Keep `buffer` over the turns of `outer`, and compute in those of `loop` what is new in each.

    With `ring` only as much is kept as a turn reads: what is new takes the place of what is oldest.
    """
    there = buffers_of(nest)

    def change(body: Body) -> Body:
        mates = _mates(body, there[buffer], nest)
        parts = _parts(body, mates, nest)
        path, inside, before = _reads(parts, mates, loop, nest)
        inner, part = path[-1], region(inside, there[buffer].shape, path)
        holder, whole = _needed(parts, mates, outer, nest)
        if inner not in holder.body or inner.kind not in (LoopKind.SERIAL, LoopKind.UNROLLED):
            raise refuse("not-in-order", f"{loop} does not stand, turn after turn, directly in {outer}")
        axis, step = _slides(part, whole, loop, buffer)
        kept = part.extent[axis] - step
        if before:
            _begins_with(region(before, there[buffer].shape, path[:-1]), whole, axis, kept, buffer)
        shape = list(whole.extent)
        if ring:
            shape[axis] = part.extent[axis]

        def at(a: int, index: Index) -> Index:
            return rest(index, part.extent[axis]) if ring and a == axis else index

        def steady(a: int, index: Index) -> Index:
            return at(a, index + (variable(loop) * step + kept if a == axis else 0))

        size = there[buffer].shape
        taken = names_of(nest)
        first = [_copied(_partly(s, whole.base, _with(whole.extent, axis, kept), whole.over, size, at), taken)
                 for s in parts.stages]
        bases = [b + variable(loop) * step + kept if a == axis else b for a, b in enumerate(whole.base)]
        new = [_partly(s, bases, _with(whole.extent, axis, step), whole.over, size, steady)
               for s in parts.stages]
        local = [Alloc(replace(b, shape=tuple(shape), scope=Scope.CACHE)) for b in mates]
        turns = replace(inner, body=(*new, *_all_moved(inner.body, mates, whole.base, at)))
        body = (*local, *first, *(
            turns if s == inner else _all_moved((s,), mates, whole.base, at)[0] for s in holder.body))
        return (*parts.between, *with_loop(parts.readers, outer, lambda x: (replace(x, body=body),)))

    loop_at(nest, loop)
    loop_at(nest, outer)
    return _in_sequence(nest, buffer, change)


def _begins_with(early: Region, whole: Region, axis: int, kept: int, buffer: str) -> None:
    """Refuse unless what is read before the turns begin is made by then."""
    skipped = early.base[axis] - whole.base[axis]
    if skipped.terms or skipped.plus < 0 or skipped.plus + early.extent[axis] > kept:
        raise refuse("used-outside", f"{buffer} is read before the turns that make it")


def _with(extent: Sequence[int], axis: int, size: int) -> list[int]:
    return [size if a == axis else n for a, n in enumerate(extent)]


def _slides(part: Region, whole: Region, loop: str, buffer: str) -> tuple[int, int]:
    """Return along which axis a region moves with the turns of `loop`, and how far: all else stays."""
    found = []
    for axis, (near, far) in enumerate(zip(part.base, whole.base, strict=True)):
        way = near - far
        if way.terms or way.plus:
            found.append((axis, way))
        elif part.extent[axis] != whole.extent[axis]:
            raise refuse("no-sliding", f"what {loop} reads of {buffer} does not move evenly")
    if len(found) != 1 or found[0][1].plus or [a for a, _ in found[0][1].terms] != [loop]:
        raise refuse("no-sliding", f"what {loop} reads of {buffer} does not move along one axis")
    axis, step = found[0][0], found[0][1].terms[0][1]
    if not 0 < step < part.extent[axis]:
        raise refuse("no-sliding", f"turns of {loop} read nothing of {buffer} that another has read")
    return axis, step


def _copied(statement: Statement, taken: set[str]) -> Statement:
    """Return a copy whose loops and buffers have names of their own."""
    names = {x.name: fresh(taken, x.name + "_first") for x in all_loops((statement,))}
    buffers = {b.name: fresh(taken, b.name + "_first") for b in allocated((statement,))}
    return rebuffered(renamed((statement,), {}, names), buffers)[0]


def cache_read(nest: Nest, buffer: str, loop: str, scope: str = "cache", name: str = "") -> Nest:
    """Copy the region of `buffer` that every turn of `loop` reads, and read the copy."""
    return _cached(nest, buffer, loop, Scope(scope), name, False)


def cache_write(nest: Nest, buffer: str, loop: str, scope: str = "cache", name: str = "") -> Nest:
    """Let every turn of `loop` write to a copy of its region of `buffer`, which is put back at its end."""
    return _cached(nest, buffer, loop, Scope(scope), name, True)


def _cached(nest: Nest, buffer: str, loop: str, scope: Scope, name: str, writes: bool) -> Nest:
    path = path_to(nest.body, loop_at(nest, loop).name)
    there = buffers_of(nest)
    assert path is not None
    if buffer not in there:
        raise refuse("unknown-buffer", f"there is no buffer {buffer!r}")
    found = [a for a in accesses((path[-1],), intrinsics_of(nest), path[:-1]) if a.buffer == buffer]
    if not found:
        raise refuse("no-use", f"{loop} does not touch {buffer}")
    if not writes and any(a.writes for a in found):
        raise refuse("overwritten", f"{loop} writes {buffer}: a copy would not show it")
    if writes and not any(a.writes for a in found):
        raise refuse("no-use", f"{loop} does not write {buffer}")
    part = region(found, there[buffer].shape, path)
    taken = names_of(nest)
    local = Buffer(fresh(taken, name or f"{buffer}_{scope.value}"), part.extent, there[buffer].dtype, scope)
    body = moved(path[-1].body, buffer, part.base, local.name)
    if not writes or not _covers(path[-1].body, buffer, part, found):
        body = (_copy(local, there[buffer], part, taken, True), *body)
    if writes:
        body = (*body, _copy(local, there[buffer], part, taken, False))
    inside = (Alloc(local), *body)
    return checked(replace(nest, body=with_loop(
        nest.body, loop, lambda x: (replace(x, body=inside),))))


def _covers(body: Body, buffer: str, part: Region, found: Sequence[Access]) -> bool:
    """Tell whether the first thing that is done to a region is to store all of it."""
    first = next(a for a in found)
    if first.update or not first.writes or first.guards or first.extent or any(part.over):
        return False
    own = {x.name: x.extent for x in all_loops(body)}
    axes = [(i - b).single for i, b in zip(first.at, part.base, strict=True)]
    sizes = [own.get(a or "", 1 if not (i - b).terms else 0) for a, i, b in zip(
        axes, first.at, part.base, strict=True)]
    named = [a for a in axes if a]
    return tuple(sizes) == part.extent and len(set(named)) == len(named)


def _copy(local: Buffer, far: Buffer, part: Region, taken: set[str], reads: bool) -> Statement:
    """Return the loops that copy a region, in or out."""
    names = [fresh(taken, f"{local.name}_{a}") for a in range(len(local.shape))]
    here = tuple(map(variable, names))
    there = tuple(b + i for b, i in zip(part.base, here, strict=True))
    made: Statement = Store(local.name, here, Load(far.name, there)) if reads else \
        Store(far.name, there, Load(local.name, here))
    for a, name in enumerate(names):
        if part.over[a]:
            made = Guard(there[a], far.shape[a], (made,))
    for name, size in reversed(list(zip(names, local.shape, strict=True))):
        made = Loop(name, size, (made,))
    return made


PRIMITIVES: dict[str, Callable[..., Nest]] = {f.__name__: f for f in (
    split, fuse, reorder, tile, vectorise, unroll, parallel, bind, compute_inline, compute_at, store_at,
    cache_read, cache_write, rfactor, tensorise)}


def scheduled(
    nest: Nest, schedule: str, relaxed: bool = False, intrinsics: Mapping[str, Intrinsic] | None = None,
) -> Nest:
    """Return `nest` after the lines of a schedule; names of loops and buffers are written as they are."""
    for line in schedule.splitlines():
        if line.strip():
            nest = _applied(nest, line.strip(), relaxed, intrinsics or {})
    return nest


def _applied(nest: Nest, line: str, relaxed: bool, intrinsics: Mapping[str, Intrinsic]) -> Nest:
    try:
        call = ast.parse(line, mode="eval").body
    except SyntaxError:
        raise refuse("no-primitive", line) from None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) \
            or call.func.id not in PRIMITIVES:
        raise refuse("no-primitive", f"{line}; there are {', '.join(PRIMITIVES)}")
    words: list[Any] = [_word(a) for a in call.args]
    named = {str(k.arg): _word(k.value) for k in call.keywords}
    if call.func.id == "rfactor":
        named["relaxed"] = relaxed
    if call.func.id == "tensorise" and len(words) == 2:
        if words[1] not in intrinsics:
            raise refuse("intrinsic", f"{words[1]} is not declared")
        words[1] = intrinsics[words[1]]
    try:
        return PRIMITIVES[call.func.id](nest, *words, **named)
    except TypeError as error:
        raise refuse("no-primitive", f"{line}: {error}") from None


def _word(node: ast.expr) -> Any:
    if isinstance(node, ast.Name):
        return node.id
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise refuse("no-primitive", ast.unparse(node)) from None
