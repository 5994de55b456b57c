"""Primitives that take a reduction apart, and that give loops to an intrinsic.

Knows: operators with an element that changes nothing, how two nests are matched. Must not know: machines.
Receives a nest and the name of a loop; returns another nest, or raises `ScheduleError`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from jitla.nests.dependence import is_exact
from jitla.nests.index import Index, variable
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
    Scope,
    Statement,
    Store,
    Update,
    Value,
    Window,
)
from jitla.nests.splitting import checked, refuse
from jitla.nests.walking import (
    Body,
    all_loops,
    buffers_of,
    fresh,
    loop_at,
    names_of,
    path_to,
    with_loop,
)

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
