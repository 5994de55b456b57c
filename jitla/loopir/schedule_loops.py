"""Schedule primitives on loops: split, fuse, reorder, tile, vectorise, rfactor, tensorise.

Each is a function from nest to nest, which raises `ScheduleError` instead of changing a result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from jitla.errors import NestError, ScheduleError
from jitla.loopir.analysis import (
    Body,
    accesses,
    all_loops,
    allocated_buffers,
    buffers_of,
    carried_dependence,
    fresh_name,
    intrinsics_of,
    is_reorderable,
    loop_at,
    names_of,
    path_to,
    replace_loop,
    rewrite_body,
    substitute_variables,
)
from jitla.loopir.nodes import (
    Alloc,
    Apply,
    Buffer,
    Guard,
    Index,
    Intrinsic,
    Invoke,
    Load,
    Loop,
    LoopKind,
    Nest,
    Number,
    Scope,
    Statement,
    Store,
    Update,
    Value,
    Window,
    minimum,
    number,
    quotient,
    remainder,
    variable,
)
from jitla.loopir.verifier import verify

TAILS = ("masked", "shifted", "peeled")


def checked_nest(nest: Nest) -> Nest:
    """Return `nest` if it satisfies the laws of nests; else raise `ScheduleError`."""
    try:
        verify(nest)
    except NestError as error:
        raise ScheduleError(error.law, error.args[1]) from None
    return nest


def schedule_error(law: str, text: str) -> ScheduleError:
    """Return the error that a primitive raises."""
    return ScheduleError(law, text)


def split(nest: Nest, loop: str, factor: int, tail: str = "masked") -> Nest:
    """Split a loop: `loop`_o runs over blocks of `factor` iterations, `loop`_i within a block.

    If `factor` does not divide the extent, excess iterations are `masked`, the last block is `shifted`
    inwards so that it overlaps the previous one, or the remainder is `peeled` into a separate loop.
    """
    target = loop_at(nest, loop)
    if not 1 <= factor <= target.extent:
        raise schedule_error("factor", f"{loop} has {target.extent} iterations")
    if tail not in TAILS:
        raise schedule_error("tail", f"{tail!r} is not one of {', '.join(TAILS)}")
    names = names_of(nest)
    outer, inner = fresh_name(names, loop + "_o"), fresh_name(names, loop + "_i")
    blocks, remaining = divmod(target.extent, factor)
    block_start = variable(outer) * factor
    if not remaining or tail == "peeled":
        body: tuple[Loop, ...] = (_split_loops(target, outer, blocks, inner, factor,
                                               block_start + variable(inner)),)
        if remaining:
            body += (_peeled_loop(target, blocks * factor, remaining, fresh_name(names, loop + "_t"), names),)
    elif tail == "masked":
        index = block_start + variable(inner)
        inside = Guard(index, target.extent, substitute_variables(target.body, {loop: index}))
        body = (Loop(outer, blocks + 1, (Loop(inner, factor, (inside,)),), target.kind),)
    else:
        _require_idempotent(target, nest)
        index = minimum(block_start, target.extent - factor) + variable(inner)
        body = (_split_loops(target, outer, blocks + 1, inner, factor, index),)
    return checked_nest(replace(nest, body=replace_loop(nest.body, loop, lambda _: body)))


def _split_loops(target: Loop, outer: str, blocks: int, inner: str, factor: int, index: Index) -> Loop:
    inside = substitute_variables(target.body, {target.name: index})
    return Loop(outer, blocks, (Loop(inner, factor, inside),), target.kind)


def _peeled_loop(target: Loop, start: int, extent: int, name: str, names: set[str]) -> Loop:
    """Return the epilogue loop: a copy of the body, in which loops and buffers get fresh names."""
    loops = {x.name: fresh_name(names, x.name + "_t") for x in all_loops(target.body)}
    buffers = {b.name: fresh_name(names, b.name + "_t") for b in allocated_buffers(target.body)}
    body = substitute_variables(target.body, {target.name: variable(name) + start}, loops)
    return Loop(name, extent, rename_buffers(body, buffers), target.kind)


def rename_buffers(body: Body, names: dict[str, str]) -> Body:
    """Return `body` with buffers renamed."""
    def new_name(name: str) -> str:
        return names.get(name, name)

    def statement(s: object) -> object:
        match s:
            case Store() | Update():
                return replace(s, buffer=new_name(s.buffer))
            case Invoke():
                return replace(s, windows=tuple(replace(w, buffer=new_name(w.buffer)) for w in s.windows))
        if hasattr(s, "buffer"):
            return replace(s, buffer=replace(s.buffer, name=new_name(s.buffer.name)))  # type: ignore[type-var]
        return s

    return rewrite_body(body, load=lambda x: replace(x, buffer=new_name(x.buffer)),
                   statement=statement)  # type: ignore[arg-type]


def _require_idempotent(loop: Loop, nest: Nest) -> None:
    """Raise `ScheduleError` unless repeating iterations of `loop` stores the same values."""
    local = {b.name for b in allocated_buffers(loop.body)}
    outer_accesses = [a for a in accesses((loop,), intrinsics_of(nest)) if a.buffer not in local]
    written = {a.buffer for a in outer_accesses if a.writes}
    repeated = [a.buffer for a in outer_accesses if a.buffer in written and (a.update or not a.writes)]
    if repeated:
        raise schedule_error("done-twice",
                             f"{loop.name} updates {repeated[0]}: a shifted tail would do so twice")


def fuse(nest: Nest, outer: str, inner: str) -> Nest:
    """Fuse two perfectly nested loops into one, `outer`_`inner`."""
    outer_loop = loop_at(nest, outer)
    if len(outer_loop.body) != 1 or not isinstance(outer_loop.body[0],
                                                   Loop) or outer_loop.body[0].name != inner:
        raise schedule_error("not-perfect", f"{inner} is not perfectly nested in {outer}")
    inner_loop = outer_loop.body[0]
    if inner_loop.kind is not outer_loop.kind:
        raise schedule_error("kinds", f"{outer} is {outer_loop.kind.value}, {inner} {inner_loop.kind.value}")
    name = fresh_name(names_of(nest), f"{outer}_{inner}")
    position = variable(name)
    body = substitute_variables(inner_loop.body,
        {outer: quotient(position, inner_loop.extent) if outer_loop.extent > 1 else number(0),
                                inner: remainder(position, inner_loop.extent)})
    fused = Loop(name, outer_loop.extent * inner_loop.extent, body, outer_loop.kind)
    return checked_nest(replace(nest, body=replace_loop(nest.body, outer, lambda _: (fused,))))


def reorder(nest: Nest, *loops: str) -> Nest:
    """Reorder perfectly nested loops into the order `loops`, outermost first."""
    if len(set(loops)) != len(loops):
        raise schedule_error("order", "a loop is named twice")
    for name in loops:
        loop_at(nest, name)
    for last in range(len(loops) - 1, 0, -1):  # the innermost sinks first
        while True:
            path = path_to(nest.body, loops[last])
            assert path is not None
            path_names = [p.name for p in path]
            enclosed = [x.name for x in all_loops(path[-1].body) if x.name in loops[:last]]
            if not enclosed:
                break
            nest = _interchange(nest, path_names[-1])
    return checked_nest(nest)


def _interchange(nest: Nest, outer: str) -> Nest:
    """Interchange a loop with the one directly in it, if that preserves all dependences."""
    path = path_to(nest.body, outer)
    assert path is not None
    outer_loop, guards = path[-1], []
    body = outer_loop.body
    while len(body) == 1 and isinstance(body[0], Guard):
        guards.append(body[0])
        body = body[0].body
    if len(body) != 1 or not isinstance(body[0], Loop):
        raise schedule_error("not-perfect", f"{outer} contains more than one loop")
    inner = body[0]
    buffers, intrinsics = buffers_of(nest), intrinsics_of(nest)
    dependence = carried_dependence(outer_loop, path[:-1], buffers, intrinsics)
    if dependence and carried_dependence(inner, path, buffers, intrinsics, inside=(outer_loop,)):
        raise schedule_error("order-matters", f"{outer} and {inner.name} are not exchanged: {dependence}")
    inside = inner.body
    for guard in reversed(guards):
        inside = (replace(guard, body=inside),)
    interchanged = replace(inner, body=(replace(outer_loop, body=inside),))
    return replace(nest, body=replace_loop(nest.body, outer, lambda _: (interchanged,)))


def tile(nest: Nest, y: str, x: str, height: int, width: int, tail: str = "masked") -> Nest:
    """Tile two perfectly nested loops."""
    nest = split(split(nest, y, height, tail), x, width, tail)
    return reorder(nest, y + "_o", x + "_o", y + "_i", x + "_i")


def _with_kind(nest: Nest, loop: str, kind: LoopKind) -> Nest:
    """Return `nest` with another kind of a loop."""
    loop_at(nest, loop)
    return checked_nest(replace(nest, body=replace_loop(nest.body, loop, lambda x: (replace(x, kind=kind),))))


def vectorise(nest: Nest, loop: str) -> Nest:
    """Vectorise an innermost loop."""
    if next(all_loops(loop_at(nest, loop).body), None) is not None:
        raise schedule_error("not-innermost", f"there are loops in {loop}")
    return _with_kind(nest, loop, LoopKind.VECTORISED)


def unroll(nest: Nest, loop: str) -> Nest:
    """Unroll a loop completely."""
    return _with_kind(nest, loop, LoopKind.UNROLLED)


def parallel(nest: Nest, loop: str) -> Nest:
    """Distribute the iterations of a loop over threads."""
    return _with_kind(nest, loop, LoopKind.PARALLEL)


def bind(nest: Nest, loop: str) -> Nest:
    """Bind the iterations of a loop to threads of a device."""
    return _with_kind(nest, loop, LoopKind.BOUND)


#: Neutral elements of operators.
NEUTRAL_ELEMENTS = {"add": 0, "multiply": 1, "bitwise_or": 0, "bitwise_xor": 0, "bitwise_and": -1}


def rfactor(nest: Nest, loop: str, relaxed: bool = False) -> Nest:
    """Reduce every iteration of `loop` into a partial result; a second loop reduces these.

    The order of a sum changes, and with it the rounding of floats: only if `relaxed`.
    """
    path = path_to(nest.body, loop_at(nest, loop).name)
    assert path is not None
    root = path[0]
    update, around = _single_update(root)
    buffer = buffers_of(nest)[update.buffer]
    if loop in {name for i in update.index for name in i.variables}:
        raise schedule_error("no-reduction", f"{loop} is no loop over which {buffer.name} is reduced")
    if update.op not in NEUTRAL_ELEMENTS:
        raise schedule_error("no-neutral", f"nothing leaves a result of {update.op} as it is")
    if not relaxed and not is_reorderable(update.op, buffer.dtype):
        raise schedule_error("order-matters", f"{update.op} of {buffer.dtype} is rounded: relaxed only")
    names = names_of(nest)
    extent = next(x.extent for x in around if x.name == loop)
    partial = Buffer(fresh_name(names, f"{buffer.name}_part"), (extent, *buffer.shape), buffer.dtype,
                     Scope.CACHE)
    initialise = _loops_over(partial.shape, names,
        lambda at: Store(partial.name, at, _number(partial.dtype, NEUTRAL_ELEMENTS[update.op])))
    accumulate = replace_statement((root,), update, replace(
        update, buffer=partial.name, index=(variable(loop), *update.index)))
    combine = _loops_over(partial.shape, names, lambda at: Update(
        buffer.name, at[1:], update.op, Load(partial.name, at)))
    body: list[Statement] = []
    for s in nest.body:
        body += [Alloc(partial), initialise, *accumulate, combine] if s == root else [s]
    if len(body) == len(nest.body):
        raise schedule_error("not-outermost", f"the loops around {buffer.name} do not stand at the root")
    return checked_nest(replace(nest, body=tuple(body)))


def _number(dtype: np.dtype, value: int) -> Number:
    return Number(dtype, np.array(value).astype(dtype).tobytes())


def _loops_over(
    shape: Sequence[int], names_: set[str], make: Callable[[tuple[Index, ...]], Statement]
) -> Statement:
    """Return loops over `shape` around the statement that `make` returns for their variables."""
    names = [fresh_name(names_, f"p{a}") for a in range(len(shape))]
    body = make(tuple(map(variable, names)))
    for name, size in reversed(list(zip(names, shape, strict=True))):
        body = Loop(name, size, (body,))
    return body


def _single_update(root: Loop) -> tuple[Update, tuple[Loop, ...]]:
    """Return the only update in a loop nest, and the loops around it."""
    loops = []
    body: Body = (root,)
    while len(body) == 1 and isinstance(body[0], (Loop, Guard)):
        if isinstance(body[0], Loop):
            loops.append(body[0])
        body = body[0].body
    if len(body) != 1 or not isinstance(body[0], Update):
        raise schedule_error("no-reduction", f"{root.name} does not stand around one update alone")
    return body[0], tuple(loops)


def replace_statement(body: Body, old: Statement, new: Statement) -> Body:
    """Return `body` with one statement replaced by another."""
    statements = []
    for s in body:
        if s == old:
            statements.append(new)
        elif isinstance(s, (Loop, Guard)):
            statements.append(replace(s, body=replace_statement(s.body, old, new)))
        else:
            statements.append(s)
    return tuple(statements)


def tensorise(nest: Nest, loop: str, intrinsic: Intrinsic) -> Nest:
    """Replace `loop` and its body by an intrinsic whose declaration matches it."""
    target = loop_at(nest, loop)
    match = _IntrinsicMatcher(intrinsic, buffers_of(nest), {x.name for x in all_loops((target,))})
    match.bodies(intrinsic.body, (target,))
    windows = []
    for operand in intrinsic.operands:
        if operand.name not in match.windows:
            raise schedule_error("no-match", f"{intrinsic.name} has {operand.name}, which nothing stands for")
        windows.append(match.windows[operand.name])
    declared = {i.name: i for i in nest.intrinsics}
    if declared.setdefault(intrinsic.name, intrinsic) != intrinsic:
        raise schedule_error("intrinsic", f"there is another intrinsic {intrinsic.name}")
    body = replace_loop(nest.body, loop, lambda _: (Invoke(intrinsic.name, tuple(windows)),))
    return checked_nest(replace(nest, body=body, intrinsics=tuple(declared.values())))


class _IntrinsicMatcher:
    """Matches the declaration of an intrinsic with statements, and binds its loops and windows."""

    def __init__(self, intrinsic: Intrinsic, buffers: dict[str, Buffer], inside: set[str]) -> None:
        self.intrinsic = intrinsic
        self.operands = {b.name: b for b in intrinsic.operands}
        self.buffers = buffers
        self.inside = inside
        self.loops: dict[str, str] = {}
        self.windows: dict[str, Window] = {}

    def fail(self, reason: str) -> Exception:
        """Return the error for a mismatch."""
        return schedule_error("no-match", f"{self.intrinsic.name}: {reason}")

    def bodies(self, declared: Body, actual: Body) -> None:
        """Match two sequences of statements."""
        if len(declared) != len(actual):
            raise self.fail(f"{len(declared)} statements are meant, {len(actual)} are there")
        for a, b in zip(declared, actual, strict=True):
            self.statement(a, b)

    def statement(self, declared: Statement, actual: Statement) -> None:
        """Match two statements."""
        match declared, actual:
            case Loop(name, extent, body), Loop(other, size, inner):
                if extent != size:
                    raise self.fail(f"{name} has {extent} turns, {other} has {size}")
                self.loops[other] = name
                self.bodies(body, inner)
            case Store(buffer, index, value), Store(other, at, actual_value):
                self.element(buffer, index, other, at)
                self.value(value, actual_value)
            case Update(buffer, index, op, value), Update(other, at, other_op,
                                                          actual_value) if op == other_op:
                self.element(buffer, index, other, at)
                self.value(value, actual_value)
            case _:
                raise self.fail(f"{type(declared).__name__} is meant, {type(actual).__name__} is there")

    def value(self, declared: Value, actual: Value) -> None:
        """Match two values."""
        match declared, actual:
            case Load(buffer, index), Load(other, at):
                self.element(buffer, index, other, at)
            case Number(), Number() if declared == actual:
                pass
            case Apply(op, args, _, attrs), Apply(other_op, actual_args, _, other_attrs) if (op,
                attrs) == (other_op, other_attrs):
                for a, b in zip(args, actual_args, strict=True):
                    self.value(a, b)
            case _:
                raise self.fail("values differ")

    def element(self, operand: str, declared_index: tuple[Index, ...], buffer: str,
                actual_index: tuple[Index, ...]) -> None:
        """Match two elements: the window starts at the element for which all loops of the intrinsic are 0."""
        declared, actual = self.operands[operand], self.buffers[buffer]
        if len(declared_index) != len(actual_index) or (declared.dtype, declared.scope) != (actual.dtype,
                                                                                            actual.scope):
            raise self.fail(f"{operand} is a {declared.dtype} in {declared.scope.value}, {buffer} is "
                            f"a {actual.dtype} in {actual.scope.value}")
        names = {name: variable(other) for other, name in self.loops.items()}
        base = []
        for i, j in zip(declared_index, actual_index, strict=True):
            relative = Index((), i.constant)
            for atom, times in i.terms:
                relative = relative + (names[atom] if isinstance(atom, str) else Index(((atom, 1),))) * times
            start = j - relative
            if start.variables & self.inside:
                raise self.fail(f"{buffer}[{j}] is not where {operand}[{i}] is meant")
            base.append(start)
        window = Window(buffer, tuple(base))
        if self.windows.setdefault(operand, window) != window:
            raise self.fail(f"{operand} would be two windows")
