"""Schedule primitives that move where buffers are computed, and `apply_schedule` for schedule texts."""

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
    allocated_buffers,
    buffers_of,
    conflicting_buffer,
    fresh_name,
    intrinsics_of,
    loop_at,
    names_of,
    path_to,
    ranges_of,
    replace_loop,
    rewrite_body,
    rewrite_value,
    substitute_variables,
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
    remainder,
    split_index,
    substitute_index,
    value_range,
    variable,
)
from jitla.loopir.schedule_loops import (
    bind,
    checked_nest,
    fuse,
    parallel,
    rename_buffers,
    reorder,
    rfactor,
    schedule_error,
    split,
    tensorise,
    tile,
    unroll,
    vectorise,
)
from jitla.loopir.verifier import guarded_range


class Region(NamedTuple):
    """A box in a buffer: first element, extents, and the axes along which it may exceed the buffer."""

    base: tuple[Index, ...]
    extent: tuple[int, ...]
    exceeds: tuple[bool, ...]


def enclosing_region(
    accesses_: Iterable[Access], shape: Sequence[int], around: tuple[Loop, ...],
    guards: tuple[Guard, ...] = ()
) -> Region:
    """Return the smallest inferred region of a buffer of `shape` that contains all `accesses_`.

    It may depend on the variables of the loops `around`.
    """
    accesses_ = tuple(accesses_)
    axes = [_axis_bounds(axis, accesses_, size, around) for axis, size in enumerate(shape)]
    exceeds = [guarded_range(base, around, guards)[1] + count > size
            for (base, count), size in zip(axes, shape, strict=True)]
    return Region(tuple(b for b, _ in axes), tuple(n for _, n in axes), tuple(exceeds))


def _axis_bounds(axis: int, accesses_: tuple[Access, ...], size: int,
                 around: tuple[Loop, ...]) -> tuple[Index, int]:
    """Return the first index and the extent of the accesses along `axis`; the whole axis if unknown."""
    fixed = frozenset(loop.name for loop in around)
    bases: set[Index] = set()
    low, high = [], []
    for access in accesses_:
        inner = frozenset(x.name for x in access.loops) - fixed
        parts = split_index(access.subscript[axis], inner)
        if parts is None:
            return number(0), size
        bases.add(parts[0])
        ends = value_range(parts[1], ranges_of(access.loops))
        low.append(ends[0])
        high.append(ends[1] + (access.extent[axis] - 1 if access.extent else 0))
    if len(bases) != 1 or max(high) - min(low) + 1 >= size:
        return number(0), size
    return bases.pop() + min(low), max(high) - min(low) + 1


class ComputeStage(NamedTuple):
    """A statement that computes buffers: loops, of which `axes` iterate over the buffers' axes, and a store.

    `body` is the innermost body: the stores to `buffers`, and private registers.
    """

    loops: tuple[Loop, ...]
    axes: tuple[str, ...]
    store: Store | Update
    body: Body
    buffers: tuple[str, ...]


class StagedSequence(NamedTuple):
    """The sequence that allocates a buffer, partitioned into stages, statements between, and readers."""

    stages: tuple[ComputeStage, ...]
    between: Body
    readers: Body


def _rewrite_sequence(nest: Nest, name: str, change: Callable[[Body], Body]) -> Nest:
    """Return `nest` with the sequence that allocates buffer `name` mapped by `change`."""
    if name in {b.name for b in (*nest.inputs, *nest.outputs)}:
        raise schedule_error("not-inner", f"{name} is an operand, which cannot be moved")
    rewritten = []

    def visit(body: Body) -> Body:
        if any(isinstance(s, Alloc) and s.buffer.name == name for s in body):
            rewritten.append(name)
            return change(body)
        return tuple(replace(s, body=visit(s.body)) if isinstance(s, (Loop, Guard)) else s for s in body)

    result = replace(nest, body=visit(nest.body))
    if not rewritten:
        raise schedule_error("unknown-buffer", f"there is no buffer {name!r}")
    return checked_nest(result)


def _sibling_buffers(body: Body, buffer: Buffer, nest: Nest) -> tuple[Buffer, ...]:
    """Return `buffer` and the buffers of equal shape, allocated beside it and computed by the same loops."""
    allocated = {s.buffer.name: s.buffer for s in body if isinstance(s, Alloc)}
    siblings = {buffer.name: buffer}
    for statement in body:
        written = {a.buffer for a in accesses((statement,), intrinsics_of(nest)) if a.writes}
        if buffer.name in written:
            siblings |= {n: b for n, b in allocated.items() if n in written and b.shape == buffer.shape}
    return tuple(siblings.values())


def _partition(body: Body, buffers: tuple[Buffer, ...], nest: Nest) -> StagedSequence:
    """Partition a sequence into the stages that compute buffers, and their readers; else raise."""
    intrinsics, buffer = intrinsics_of(nest), buffers[0]
    names = tuple(b.name for b in buffers)
    stages: list[ComputeStage] = []
    between: list[Statement] = []
    readers: list[Statement] = []
    passed: list[Statement] = []  # statements that the stages are moved past
    for statement in body:
        touching = [a for a in accesses((statement,), intrinsics) if a.buffer in names]
        if isinstance(statement, Alloc) and statement.buffer in buffers:
            continue
        if any(a.writes for a in touching):
            if readers:
                raise schedule_error("not-pure", f"{buffer.name} is written after it was read")
            stages.append(_parse_stage(statement, buffer, names))
        elif touching:
            readers.append(statement)
        else:
            (readers if readers else between).append(statement)
            if stages and not readers:
                passed.append(statement)
    stage_statements = tuple(w for s in stages for w in _stage_statements(s))
    conflict = conflicting_buffer(stage_statements, (*passed, *readers), intrinsics, names)
    if conflict:
        raise schedule_error("overwritten",
                             f"{conflict} changes between where {buffer.name} is made and read")
    return StagedSequence(tuple(stages), tuple(between), tuple(readers))


def _parse_stage(statement: Statement, buffer: Buffer, names: tuple[str, ...]) -> ComputeStage:
    """Return the stage of a statement that computes all elements of a buffer: loops around one store."""
    loops: list[Loop] = []
    body: Body = (statement,)
    while len(body) == 1 and isinstance(body[0], Loop):
        loops.append(body[0])
        body = body[0].body
    local = {s.buffer.name for s in body if isinstance(s, Alloc)}
    stores = [s for s in body if isinstance(s, (Store, Update)) and s.buffer in names]
    if not stores or len({s.buffer for s in stores}) < len(stores) or not all(
            isinstance(s, Alloc) or isinstance(s, (Store, Update)) and s.buffer in local or s in stores
            for s in body):
        raise schedule_error("not-pure", f"{buffer.name} is not made by loops around one store")
    store = stores[0]
    indices = [a.subscript for a in accesses(body, {}) if a.buffer in names]
    if any(index != store.index for index in indices):
        raise schedule_error("not-pure", f"elements of {buffer.name} depend on each other")
    axes = tuple(i.single_variable or "" for i in store.index)
    extents = {loop.name: loop.extent for loop in loops}
    if len(set(axes)) != len(axes) or tuple(extents.get(a, 0) for a in axes) != buffer.shape:
        raise schedule_error("not-pure", f"elements of {buffer.name} and iterations do not correspond")
    if isinstance(store, Store) and len(loops) != len(axes):
        raise schedule_error("not-pure", f"elements of {buffer.name} are stored several times")
    return ComputeStage(tuple(loops), axes, store, body, names)


def _stage_statements(stage: ComputeStage) -> Body:
    body = stage.body
    for loop in reversed(stage.loops):
        body = (replace(loop, body=body),)
    return body


def _restricted_stage(
    stage: ComputeStage, base: Sequence[Index], extent: Sequence[int], exceeds: Sequence[bool],
    shape: Sequence[int],
    storage: Callable[[int, Index], Index] = lambda axis, index: index,
) -> Statement:
    """Return the stage restricted to a region of its buffer; `storage` maps indices in it to storage."""
    positions = {name: base[a] + variable(name) for a, name in enumerate(stage.axes)}
    storage_index = tuple(storage(a, variable(name)) for a, name in enumerate(stage.axes))

    def load(element: Load) -> Value:
        return replace(element, index=storage_index) if element.buffer in stage.buffers else element

    def redirect(s: Statement) -> Statement:
        if isinstance(s, (Store, Update)) and s.buffer in stage.buffers:
            return replace(s, index=storage_index)
        return s

    body = rewrite_body(substitute_variables(stage.body, positions), load=load, statement=redirect)
    for a, name in enumerate(stage.axes):
        if exceeds[a]:
            body = (Guard(base[a] + variable(name), shape[a], body),)
    sizes = dict(zip(stage.axes, extent, strict=True))
    for loop in reversed(stage.loops):
        body = (replace(loop, extent=sizes.get(loop.name, loop.extent), body=body),)
    return body[0]


def compute_inline(nest: Nest, buffer: str) -> Nest:
    """Inline `buffer`: compute its elements where they are read."""
    buffers = buffers_of(nest)

    def change(body: Body) -> Body:
        parts = _partition(body, (buffers[buffer],), nest)
        if len(parts.stages) != 1 or isinstance(parts.stages[0].store, Update) or \
                len(parts.stages[0].body) > 1:
            raise schedule_error("not-pure", f"{buffer} is not the value of one expression")
        stage = parts.stages[0]
        if any(isinstance(s, Invoke) and buffer in [w.buffer for w in s.windows]
               for s in _leaf_statements(parts.readers)):
            raise schedule_error("intrinsic", f"an intrinsic reads {buffer} from memory")

        def load(element: Load) -> Value:
            if element.buffer != buffer:
                return element
            by = dict(zip(stage.axes, element.index, strict=True))
            return rewrite_value(stage.store.value, lambda i: substitute_index(i, by), lambda x: x)

        return (*parts.between, *rewrite_body(parts.readers, load=load))

    return _rewrite_sequence(nest, buffer, change)


def _leaf_statements(body: Body) -> list[Statement]:
    leaves: list[Statement] = []
    for s in body:
        leaves += _leaf_statements(s.body) if isinstance(s, (Loop, Guard)) else [s]
    return leaves


def compute_at(nest: Nest, buffer: str, loop: str, scope: str = "cache") -> Nest:
    """Compute in every iteration of `loop` exactly the region of `buffer` that it reads."""
    buffers = buffers_of(nest)

    def change(body: Body) -> Body:
        siblings = _sibling_buffers(body, buffers[buffer], nest)
        partition = _partition(body, siblings, nest)
        consumer, needed = _consumed_region(partition, siblings, loop, nest)
        stages = [_restricted_stage(s, needed.base, needed.extent, needed.exceeds, buffers[buffer].shape)
                  for s in partition.stages]
        allocations = [Alloc(replace(b, shape=needed.extent, scope=Scope(scope))) for b in siblings]
        inside = (*allocations, *stages, *_relocate_buffers(consumer.body, siblings, needed.base))
        return (*partition.between, *replace_loop(
            partition.readers, loop, lambda x: (replace(x, body=inside),)))

    loop_at(nest, loop)
    return _rewrite_sequence(nest, buffer, change)


def _consumed_region(partition: StagedSequence, siblings: tuple[Buffer, ...], loop: str,
                     nest: Nest) -> tuple[Loop,
    Region]:
    """Return the loop at which buffers are to be computed, and the region that it reads."""
    path, inside, outside = _read_accesses(partition, siblings, loop, nest)
    if outside:
        raise schedule_error("used-outside", f"{outside[0].buffer} is read outside {loop}, too")
    return path[-1], enclosing_region(inside, siblings[0].shape, path)


def _read_accesses(
    partition: StagedSequence, siblings: tuple[Buffer, ...], loop: str, nest: Nest
) -> tuple[tuple[Loop, ...], list[Access], list[Access]]:
    """Return the loops down to `loop`, the reads of buffers inside it, and the other reads."""
    names = [b.name for b in siblings]
    path = path_to(nest.body, loop)
    if path_to(partition.readers, loop) is None or path is None:
        raise schedule_error("no-use", f"{loop} does not read {names[0]}")
    all_accesses = [a for a in accesses(nest.body, intrinsics_of(nest)) if a.buffer in names]
    stages = {x.name for s in partition.stages for x in s.loops}
    reads = [a for a in all_accesses if not stages & {x.name for x in a.loops}]
    inside = [a for a in reads if loop in {x.name for x in a.loops}]
    if not inside:
        raise schedule_error("no-use", f"{loop} does not read {names[0]}")
    return path, inside, [a for a in reads if a not in inside]


def relocate_buffer(
    body: Body, buffer: str, base: Sequence[Index], name: str = "",
    storage: Callable[[int, Index], Index] = lambda axis, index: index,
) -> Body:
    """Return `body` with accesses of `buffer` redirected to a region that starts at `base`, called `name`."""
    def relocated(index: tuple[Index, ...]) -> tuple[Index, ...]:
        return tuple(storage(a, i - b) for a, (i, b) in enumerate(zip(index, base, strict=True)))

    def load(element: Load) -> Value:
        return Load(name or buffer, relocated(element.index)) if element.buffer == buffer else element

    def statement(s: Statement) -> Statement:
        if isinstance(s, (Store, Update)) and s.buffer == buffer:
            return replace(s, buffer=name or buffer, index=relocated(s.index))
        if isinstance(s, Invoke):
            return replace(s, windows=tuple(
                replace(w, buffer=name or buffer, index=relocated(w.index)) if w.buffer == buffer else w
                for w in s.windows))
        return s

    return rewrite_body(body, load=load, statement=statement)


def _relocate_buffers(
    body: Body, siblings: tuple[Buffer, ...], base: Sequence[Index],
    storage: Callable[[int, Index], Index] = lambda axis, index: index,
) -> Body:
    for sibling in siblings:
        body = relocate_buffer(body, sibling.name, base, storage=storage)
    return body


def store_at(nest: Nest, buffer: str, outer: str, loop: str, ring: bool = False) -> Nest:
    """Keep `buffer` across the iterations of `outer`, and compute in each of `loop` only new elements.

    This is a sliding window. With `ring` the buffer has the extent that one iteration reads: new elements
    overwrite the oldest ones.
    """
    buffers = buffers_of(nest)

    def change(body: Body) -> Body:
        siblings = _sibling_buffers(body, buffers[buffer], nest)
        partition = _partition(body, siblings, nest)
        path, inside, earlier = _read_accesses(partition, siblings, loop, nest)
        inner, window = path[-1], enclosing_region(inside, buffers[buffer].shape, path)
        outer_loop, total = _consumed_region(partition, siblings, outer, nest)
        if inner not in outer_loop.body or inner.kind not in (LoopKind.SERIAL, LoopKind.UNROLLED):
            raise schedule_error("not-in-order", f"{loop} is not a serial loop directly in {outer}")
        axis, step = _sliding_axis(window, total, loop, buffer)
        overlap = window.extent[axis] - step
        if earlier:
            _require_prologue(enclosing_region(earlier, buffers[buffer].shape, path[:-1]), total, axis,
                              overlap, buffer)
        shape = list(total.extent)
        if ring:
            shape[axis] = window.extent[axis]

        def storage(a: int, index: Index) -> Index:
            return remainder(index, window.extent[axis]) if ring and a == axis else index

        def steady(a: int, index: Index) -> Index:
            return storage(a, index + (variable(loop) * step + overlap if a == axis else 0))

        size = buffers[buffer].shape
        names = names_of(nest)
        prologue = [_fresh_copy(_restricted_stage(s, total.base, _with_extent(total.extent, axis, overlap),
                                                  total.exceeds, size, storage), names)
                 for s in partition.stages]
        bases = [b + variable(loop) * step + overlap if a == axis else b for a, b in enumerate(total.base)]
        steady_stages = [_restricted_stage(s, bases, _with_extent(total.extent, axis, step), total.exceeds,
                                           size, steady)
               for s in partition.stages]
        allocations = [Alloc(replace(b, shape=tuple(shape), scope=Scope.CACHE)) for b in siblings]
        loop_body = replace(inner,
                            body=(*steady_stages,
                                  *_relocate_buffers(inner.body, siblings, total.base, storage)))
        body = (*allocations, *prologue, *(
            loop_body if s == inner else _relocate_buffers((s,), siblings, total.base, storage)[0]
            for s in outer_loop.body))
        return (*partition.between,
                *replace_loop(partition.readers, outer, lambda x: (replace(x, body=body),)))

    loop_at(nest, loop)
    loop_at(nest, outer)
    return _rewrite_sequence(nest, buffer, change)


def _require_prologue(earlier: Region, total: Region, axis: int, overlap: int, buffer: str) -> None:
    """Raise `ScheduleError` if elements are read before the loop that the prologue does not compute."""
    skipped = earlier.base[axis] - total.base[axis]
    if skipped.terms or skipped.constant < 0 or skipped.constant + earlier.extent[axis] > overlap:
        raise schedule_error("used-outside", f"{buffer} is read before the iterations that compute it")


def _with_extent(extent: Sequence[int], axis: int, size: int) -> list[int]:
    return [size if a == axis else n for a, n in enumerate(extent)]


def _sliding_axis(window: Region, total: Region, loop: str, buffer: str) -> tuple[int, int]:
    """Return the axis along which a region moves with the iterations of `loop`, and its step."""
    moving = []
    for axis, (start, total_start) in enumerate(zip(window.base, total.base, strict=True)):
        distance = start - total_start
        if distance.terms or distance.constant:
            moving.append((axis, distance))
        elif window.extent[axis] != total.extent[axis]:
            raise schedule_error("no-sliding", f"the region of {buffer} that {loop} reads does not slide")
    if len(moving) != 1 or moving[0][1].constant or [a for a, _ in moving[0][1].terms] != [loop]:
        raise schedule_error(
            "no-sliding", f"the region of {buffer} that {loop} reads does not slide along one axis")
    axis, step = moving[0][0], moving[0][1].terms[0][1]
    if not 0 < step < window.extent[axis]:
        raise schedule_error("no-sliding", f"iterations of {loop} read disjoint regions of {buffer}")
    return axis, step


def _fresh_copy(statement: Statement, names_taken: set[str]) -> Statement:
    """Return a copy of `statement` whose loops and buffers have fresh names."""
    names = {x.name: fresh_name(names_taken, x.name + "_first") for x in all_loops((statement,))}
    buffers = {b.name: fresh_name(names_taken, b.name + "_first") for b in allocated_buffers((statement,))}
    return rename_buffers(substitute_variables((statement,), {}, names), buffers)[0]


def cache_read(nest: Nest, buffer: str, loop: str, scope: str = "cache", name: str = "") -> Nest:
    """Copy the region of `buffer` that every iteration of `loop` reads, and read the copy."""
    return _cache_region(nest, buffer, loop, Scope(scope), name, False)


def cache_write(nest: Nest, buffer: str, loop: str, scope: str = "cache", name: str = "") -> Nest:
    """Redirect writes of every iteration of `loop` to a copy of its region, which is written back."""
    return _cache_region(nest, buffer, loop, Scope(scope), name, True)


def _cache_region(nest: Nest, buffer: str, loop: str, scope: Scope, name: str, writes: bool) -> Nest:
    path = path_to(nest.body, loop_at(nest, loop).name)
    buffers = buffers_of(nest)
    assert path is not None
    if buffer not in buffers:
        raise schedule_error("unknown-buffer", f"there is no buffer {buffer!r}")
    touching = [a for a in accesses((path[-1],), intrinsics_of(nest), path[:-1]) if a.buffer == buffer]
    if not touching:
        raise schedule_error("no-use", f"{loop} does not touch {buffer}")
    if not writes and any(a.writes for a in touching):
        raise schedule_error("overwritten", f"{loop} writes {buffer}: a copy would not show it")
    if writes and not any(a.writes for a in touching):
        raise schedule_error("no-use", f"{loop} does not write {buffer}")
    needed = enclosing_region(touching, buffers[buffer].shape, path)
    names = names_of(nest)
    local = Buffer(fresh_name(names, name or f"{buffer}_{scope.value}"), needed.extent, buffers[buffer].dtype,
                   scope)
    body = relocate_buffer(path[-1].body, buffer, needed.base, local.name)
    if not writes or not _overwrites_region(path[-1].body, buffer, needed, touching):
        body = (_copy_loops(local, buffers[buffer], needed, names, True), *body)
    if writes:
        body = (*body, _copy_loops(local, buffers[buffer], needed, names, False))
    inside = (Alloc(local), *body)
    return checked_nest(replace(nest, body=replace_loop(
        nest.body, loop, lambda x: (replace(x, body=inside),))))


def _overwrites_region(body: Body, buffer: str, needed: Region, touching: Sequence[Access]) -> bool:
    """Return whether all of a region is overwritten before any of it is read."""
    first = next(a for a in touching)
    if first.update or not first.writes or first.guards or first.extent or any(needed.exceeds):
        return False
    extents = {x.name: x.extent for x in all_loops(body)}
    axes = [(i - b).single_variable for i, b in zip(first.subscript, needed.base, strict=True)]
    sizes = [extents.get(a or "", 1 if not (i - b).terms else 0) for a, i, b in zip(
        axes, first.subscript, needed.base, strict=True)]
    axis_loops = [a for a in axes if a]
    return tuple(sizes) == needed.extent and len(set(axis_loops)) == len(axis_loops)


def _copy_loops(local: Buffer, far: Buffer, needed: Region, names_taken: set[str], reads: bool) -> Statement:
    """Return the loops that copy a region in (`reads`) or out."""
    names = [fresh_name(names_taken, f"{local.name}_{a}") for a in range(len(local.shape))]
    local_index = tuple(map(variable, names))
    far_index = tuple(b + i for b, i in zip(needed.base, local_index, strict=True))
    statement: Statement = Store(local.name, local_index, Load(far.name, far_index)) if reads else \
        Store(far.name, far_index, Load(local.name, local_index))
    for a, name in enumerate(names):
        if needed.exceeds[a]:
            statement = Guard(far_index[a], far.shape[a], (statement,))
    for name, size in reversed(list(zip(names, local.shape, strict=True))):
        statement = Loop(name, size, (statement,))
    return statement


PRIMITIVES: dict[str, Callable[..., Nest]] = {f.__name__: f for f in (
    split, fuse, reorder, tile, vectorise, unroll, parallel, bind, compute_inline, compute_at, store_at,
    cache_read, cache_write, rfactor, tensorise)}


def apply_schedule(
    nest: Nest, schedule: str, relaxed: bool = False, intrinsics: Mapping[str, Intrinsic] | None = None,
) -> Nest:
    """Return `nest` after the primitives of a schedule, one per line; loops and buffers are bare names."""
    for line in schedule.splitlines():
        if line.strip():
            nest = _apply_line(nest, line.strip(), relaxed, intrinsics or {})
    return nest


def _apply_line(nest: Nest, line: str, relaxed: bool, intrinsics: Mapping[str, Intrinsic]) -> Nest:
    try:
        call = ast.parse(line, mode="eval").body
    except SyntaxError:
        raise schedule_error("no-primitive", line) from None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) \
            or call.func.id not in PRIMITIVES:
        raise schedule_error("no-primitive", f"{line}; there are {', '.join(PRIMITIVES)}")
    words: list[Any] = [_argument(a) for a in call.args]
    keywords = {str(k.arg): _argument(k.value) for k in call.keywords}
    if call.func.id == "rfactor":
        keywords["relaxed"] = relaxed
    if call.func.id == "tensorise" and len(words) == 2:
        if words[1] not in intrinsics:
            raise schedule_error("intrinsic", f"{words[1]} is not declared")
        words[1] = intrinsics[words[1]]
    try:
        return PRIMITIVES[call.func.id](nest, *words, **keywords)
    except TypeError as error:
        raise schedule_error("no-primitive", f"{line}: {error}") from None


def _argument(node: ast.expr) -> Any:
    if isinstance(node, ast.Name):
        return node.id
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise schedule_error("no-primitive", ast.unparse(node)) from None
