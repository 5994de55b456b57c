"""Primitives that change loops where they stand: cut in two, joined, exchanged, run otherwise.

Knows: which of them keep what a nest computes, to the bit. Must not know: where values are computed.
Receives a nest and names of loops; returns another nest, or raises `ScheduleError` with the reason.
"""

from __future__ import annotations

from dataclasses import replace

from jitla.errors import NestError, ScheduleError
from jitla.nests.dependence import carried
from jitla.nests.index import Index, least, number, quotient, rest, variable
from jitla.nests.laws import verify
from jitla.nests.nodes import Guard, Invoke, Loop, LoopKind, Nest, Store, Update
from jitla.nests.walking import (
    Body,
    accesses,
    all_loops,
    allocated,
    buffers_of,
    fresh,
    intrinsics_of,
    loop_at,
    names_of,
    path_to,
    rebuilt,
    renamed,
    with_loop,
)

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
