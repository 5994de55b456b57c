"""Schedule primitives on loops: split, fuse, reorder, tile, vectorise, rfactor, tensorise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from jitla.errors import NestError, ScheduleError
from jitla.loopir.analysis import (
    Body,
    accesses,
    all_loops,
    allocated,
    buffers_of,
    carried,
    fresh,
    intrinsics_of,
    is_exact,
    loop_at,
    names_of,
    path_to,
    rebuilt,
    renamed,
    with_loop,
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
    least,
    number,
    quotient,
    rest,
    variable,
)
from jitla.loopir.verifier import verify

TAILS = ("masked", "shifted", "peeled")


def checked(nest: Nest) -> Nest:
    """Return `nest` if it obeys the laws of nests."""
    try:
        verify(nest)
    except NestError as error:
        raise ScheduleError(error.law, error.args[1]) from None
    return nest


def refuse(law: str, text: str) -> ScheduleError:
    """Return the error that a primitive raises."""
    return ScheduleError(law, text)


def split(nest: Nest, loop: str, factor: int, tail: str = "masked") -> Nest:
    """Make two loops of one: `loop`_o over blocks of `factor` turns, `loop`_i within a block.

    If blocks do not come out even, turns that are too many are `masked`, the last block is `shifted`
    inwards over turns that the one before has done, or the rest is `peeled` off as a loop of its own.
    """
    found = loop_at(nest, loop)
    if not 1 <= factor <= found.extent:
        raise refuse("factor", f"{loop} has {found.extent} turns")
    if tail not in TAILS:
        raise refuse("tail", f"{tail!r} is none of {', '.join(TAILS)}")
    taken = names_of(nest)
    outer, inner = fresh(taken, loop + "_o"), fresh(taken, loop + "_i")
    whole, left = divmod(found.extent, factor)
    at = variable(outer) * factor
    if not left or tail == "peeled":
        body: tuple[Loop, ...] = (_nested(found, outer, whole, inner, factor, at + variable(inner)),)
        if left:
            body += (_peeled(found, whole * factor, left, fresh(taken, loop + "_t"), taken),)
    elif tail == "masked":
        index = at + variable(inner)
        inside = Guard(index, found.extent, renamed(found.body, {loop: index}))
        body = (Loop(outer, whole + 1, (Loop(inner, factor, (inside,)),), found.kind),)
    else:
        _only_stores(found, nest)
        index = least(at, found.extent - factor) + variable(inner)
        body = (_nested(found, outer, whole + 1, inner, factor, index),)
    return checked(replace(nest, body=with_loop(nest.body, loop, lambda _: body)))


def _nested(found: Loop, outer: str, many: int, inner: str, factor: int, index: Index) -> Loop:
    inside = renamed(found.body, {found.name: index})
    return Loop(outer, many, (Loop(inner, factor, inside),), found.kind)


def _peeled(found: Loop, start: int, left: int, name: str, taken: set[str]) -> Loop:
    """Return the loop over what is left: a copy, so what it contains gets names of its own."""
    loops = {x.name: fresh(taken, x.name + "_t") for x in all_loops(found.body)}
    buffers = {b.name: fresh(taken, b.name + "_t") for b in allocated(found.body)}
    body = renamed(found.body, {found.name: variable(name) + start}, loops)
    return Loop(name, left, rebuffered(body, buffers), found.kind)


def rebuffered(body: Body, names: dict[str, str]) -> Body:
    """Return `body` with buffers under other names."""
    def of(name: str) -> str:
        return names.get(name, name)

    def statement(s: object) -> object:
        match s:
            case Store() | Update():
                return replace(s, buffer=of(s.buffer))
            case Invoke():
                return replace(s, windows=tuple(replace(w, buffer=of(w.buffer)) for w in s.windows))
        if hasattr(s, "buffer"):
            return replace(s, buffer=replace(s.buffer, name=of(s.buffer.name)))  # type: ignore[type-var]
        return s

    return rebuilt(body, load=lambda x: replace(x, buffer=of(x.buffer)),
                   statement=statement)  # type: ignore[arg-type]


def _only_stores(loop: Loop, nest: Nest) -> None:
    """Refuse to do turns twice that do not store the same then."""
    own = {b.name for b in allocated(loop.body)}
    found = [a for a in accesses((loop,), intrinsics_of(nest)) if a.buffer not in own]
    written = {a.buffer for a in found if a.writes}
    again = [a.buffer for a in found if a.buffer in written and (a.update or not a.writes)]
    if again:
        raise refuse("done-twice", f"{loop.name} updates {again[0]}: a shifted tail would do so twice")


def fuse(nest: Nest, outer: str, inner: str) -> Nest:
    """Make one loop, `outer`_`inner`, of two, the inner of which is all there is in the outer."""
    found = loop_at(nest, outer)
    if len(found.body) != 1 or not isinstance(found.body[0], Loop) or found.body[0].name != inner:
        raise refuse("not-perfect", f"{inner} is not all there is in {outer}")
    below = found.body[0]
    if below.kind is not found.kind:
        raise refuse("kinds", f"{outer} is {found.kind.value}, {inner} {below.kind.value}")
    name = fresh(names_of(nest), f"{outer}_{inner}")
    at = variable(name)
    body = renamed(below.body, {outer: quotient(at, below.extent) if found.extent > 1 else number(0),
                                inner: rest(at, below.extent)})
    made = Loop(name, found.extent * below.extent, body, found.kind)
    return checked(replace(nest, body=with_loop(nest.body, outer, lambda _: (made,))))


def reorder(nest: Nest, *loops: str) -> Nest:
    """Give loops that stand directly in one another the order `loops`, outermost first."""
    if len(set(loops)) != len(loops):
        raise refuse("order", "a loop is named twice")
    for name in loops:
        loop_at(nest, name)
    for last in range(len(loops) - 1, 0, -1):  # the innermost sinks first
        while True:
            path = path_to(nest.body, loops[last])
            assert path is not None
            here = [p.name for p in path]
            below = [x.name for x in all_loops(path[-1].body) if x.name in loops[:last]]
            if not below:
                break
            nest = _exchanged(nest, here[-1])
    return checked(nest)


def _exchanged(nest: Nest, outer: str) -> Nest:
    """Exchange a loop with the one that is all there is in it, if that keeps every order that matters."""
    path = path_to(nest.body, outer)
    assert path is not None
    found, guards = path[-1], []
    body = found.body
    while len(body) == 1 and isinstance(body[0], Guard):
        guards.append(body[0])
        body = body[0].body
    if len(body) != 1 or not isinstance(body[0], Loop):
        raise refuse("not-perfect", f"{outer} holds more than one loop")
    inner = body[0]
    buffers, intrinsics = buffers_of(nest), intrinsics_of(nest)
    why = carried(found, path[:-1], buffers, intrinsics)
    if why and carried(inner, path, buffers, intrinsics, inside=(found,)):
        raise refuse("order-matters", f"{outer} and {inner.name} are not exchanged: {why}")
    inside = inner.body
    for guard in reversed(guards):
        inside = (replace(guard, body=inside),)
    made = replace(inner, body=(replace(found, body=inside),))
    return replace(nest, body=with_loop(nest.body, outer, lambda _: (made,)))


def tile(nest: Nest, y: str, x: str, height: int, width: int, tail: str = "masked") -> Nest:
    """Cut two loops that stand directly in one another into tiles."""
    nest = split(split(nest, y, height, tail), x, width, tail)
    return reorder(nest, y + "_o", x + "_o", y + "_i", x + "_i")


def _run_as(nest: Nest, loop: str, kind: LoopKind) -> Nest:
    loop_at(nest, loop)
    return checked(replace(nest, body=with_loop(nest.body, loop, lambda x: (replace(x, kind=kind),))))


def vectorise(nest: Nest, loop: str) -> Nest:
    """Run the turns of an innermost loop side by side."""
    if next(all_loops(loop_at(nest, loop).body), None) is not None:
        raise refuse("not-innermost", f"there are loops in {loop}")
    return _run_as(nest, loop, LoopKind.VECTORISED)


def unroll(nest: Nest, loop: str) -> Nest:
    """Write the turns of a loop one after the other."""
    return _run_as(nest, loop, LoopKind.UNROLLED)


def parallel(nest: Nest, loop: str) -> Nest:
    """Share the turns of a loop out among threads."""
    return _run_as(nest, loop, LoopKind.PARALLEL)


def bind(nest: Nest, loop: str) -> Nest:
    """Give every turn of a loop to a thread of a device."""
    return _run_as(nest, loop, LoopKind.BOUND)


#: What changes nothing, by operator.
NEUTRAL = {"add": 0, "multiply": 1, "bitwise_or": 0, "bitwise_xor": 0, "bitwise_and": -1}


def rfactor(nest: Nest, loop: str, relaxed: bool = False) -> Nest:
    """Let every turn of `loop` reduce into a result of its own; these are reduced at the end.

    The order of a sum changes, and with it the rounding of floats: only `relaxed`.
    """
    path = path_to(nest.body, loop_at(nest, loop).name)
    assert path is not None
    top = path[0]
    update, around = _only_update(top)
    buffer = buffers_of(nest)[update.buffer]
    if loop in {name for i in update.index for name in i.variables}:
        raise refuse("no-reduction", f"{loop} is no loop over which {buffer.name} is reduced")
    if update.op not in NEUTRAL:
        raise refuse("no-neutral", f"nothing leaves a result of {update.op} as it is")
    if not relaxed and not is_exact(update.op, buffer.dtype):
        raise refuse("order-matters", f"{update.op} of {buffer.dtype} is rounded: relaxed only")
    taken = names_of(nest)
    extent = next(x.extent for x in around if x.name == loop)
    part = Buffer(fresh(taken, f"{buffer.name}_part"), (extent, *buffer.shape), buffer.dtype, Scope.CACHE)
    first = _over(part.shape, taken, lambda at: Store(part.name, at, _number(part.dtype, NEUTRAL[update.op])))
    own = with_statement((top,), update, replace(
        update, buffer=part.name, index=(variable(loop), *update.index)))
    last = _over(part.shape, taken, lambda at: Update(
        buffer.name, at[1:], update.op, Load(part.name, at)))
    body: list[Statement] = []
    for s in nest.body:
        body += [Alloc(part), first, *own, last] if s == top else [s]
    if len(body) == len(nest.body):
        raise refuse("not-outermost", f"the loops around {buffer.name} do not stand at the root")
    return checked(replace(nest, body=tuple(body)))


def _number(dtype: np.dtype, value: int) -> Number:
    return Number(dtype, np.array(value).astype(dtype).tobytes())


def _over(
    shape: Sequence[int], taken: set[str], made: Callable[[tuple[Index, ...]], Statement]
) -> Statement:
    names = [fresh(taken, f"p{a}") for a in range(len(shape))]
    body = made(tuple(map(variable, names)))
    for name, size in reversed(list(zip(names, shape, strict=True))):
        body = Loop(name, size, (body,))
    return body


def _only_update(top: Loop) -> tuple[Update, tuple[Loop, ...]]:
    """Return the one update that loops stand around, and these loops."""
    loops = []
    body: Body = (top,)
    while len(body) == 1 and isinstance(body[0], (Loop, Guard)):
        if isinstance(body[0], Loop):
            loops.append(body[0])
        body = body[0].body
    if len(body) != 1 or not isinstance(body[0], Update):
        raise refuse("no-reduction", f"{top.name} does not stand around one update alone")
    return body[0], tuple(loops)


def with_statement(body: Body, old: Statement, new: Statement) -> Body:
    """Return `body` with one statement exchanged for another."""
    found = []
    for s in body:
        if s == old:
            found.append(new)
        elif isinstance(s, (Loop, Guard)):
            found.append(replace(s, body=with_statement(s.body, old, new)))
        else:
            found.append(s)
    return tuple(found)


def tensorise(nest: Nest, loop: str, intrinsic: Intrinsic) -> Nest:
    """Give `loop` and all in it to an intrinsic that is declared by just such loops."""
    found = loop_at(nest, loop)
    match = _Match(intrinsic, buffers_of(nest), {x.name for x in all_loops((found,))})
    match.bodies(intrinsic.body, (found,))
    windows = []
    for operand in intrinsic.operands:
        if operand.name not in match.windows:
            raise refuse("no-match", f"{intrinsic.name} has {operand.name}, which nothing stands for")
        windows.append(match.windows[operand.name])
    known = {i.name: i for i in nest.intrinsics}
    if known.setdefault(intrinsic.name, intrinsic) != intrinsic:
        raise refuse("intrinsic", f"there is another intrinsic {intrinsic.name}")
    body = with_loop(nest.body, loop, lambda _: (Invoke(intrinsic.name, tuple(windows)),))
    return checked(replace(nest, body=body, intrinsics=tuple(known.values())))


class _Match:
    """An intrinsic laid over statements: which loops and windows stand for its own."""

    def __init__(self, intrinsic: Intrinsic, buffers: dict[str, Buffer], inside: set[str]) -> None:
        self.intrinsic = intrinsic
        self.operands = {b.name: b for b in intrinsic.operands}
        self.buffers = buffers
        self.inside = inside
        self.loops: dict[str, str] = {}
        self.windows: dict[str, Window] = {}

    def fail(self, why: str) -> Exception:
        """Return the error that says why there is no match."""
        return refuse("no-match", f"{self.intrinsic.name}: {why}")

    def bodies(self, mine: Body, there: Body) -> None:
        """Match sequences."""
        if len(mine) != len(there):
            raise self.fail(f"{len(mine)} statements are meant, {len(there)} are there")
        for a, b in zip(mine, there, strict=True):
            self.statement(a, b)

    def statement(self, mine: Statement, there: Statement) -> None:
        """Match two statements."""
        match mine, there:
            case Loop(name, extent, body), Loop(other, size, inner):
                if extent != size:
                    raise self.fail(f"{name} has {extent} turns, {other} has {size}")
                self.loops[other] = name
                self.bodies(body, inner)
            case Store(buffer, index, value), Store(other, at, given):
                self.element(buffer, index, other, at)
                self.value(value, given)
            case Update(buffer, index, op, value), Update(other, at, same, given) if op == same:
                self.element(buffer, index, other, at)
                self.value(value, given)
            case _:
                raise self.fail(f"{type(mine).__name__} is meant, {type(there).__name__} is there")

    def value(self, mine: Value, there: Value) -> None:
        """Match two values."""
        match mine, there:
            case Load(buffer, index), Load(other, at):
                self.element(buffer, index, other, at)
            case Number(), Number() if mine == there:
                pass
            case Apply(op, args, _, attrs), Apply(same, given, _, others) if (op, attrs) == (same, others):
                for a, b in zip(args, given, strict=True):
                    self.value(a, b)
            case _:
                raise self.fail("values differ")

    def element(self, operand: str, mine: tuple[Index, ...], buffer: str, there: tuple[Index, ...]) -> None:
        """Match two elements: the window begins where the loops of the intrinsic are all 0."""
        declared, given = self.operands[operand], self.buffers[buffer]
        if len(mine) != len(there) or (declared.dtype, declared.scope) != (given.dtype, given.scope):
            raise self.fail(f"{operand} is a {declared.dtype} in {declared.scope.value}, {buffer} is "
                            f"a {given.dtype} in {given.scope.value}")
        names = {name: variable(other) for other, name in self.loops.items()}
        base = []
        for i, j in zip(mine, there, strict=True):
            own = Index((), i.plus)
            for atom, times in i.terms:
                own = own + (names[atom] if isinstance(atom, str) else Index(((atom, 1),))) * times
            left = j - own
            if left.variables & self.inside:
                raise self.fail(f"{buffer}[{j}] is not where {operand}[{i}] is meant")
            base.append(left)
        window = Window(buffer, tuple(base))
        if self.windows.setdefault(operand, window) != window:
            raise self.fail(f"{operand} would be two windows")
