"""Rolls of one value that cells read: slices of one copy that has opposite edges around it.

Knows: rolls, cells. Must not know: kernels, memory.
Receives roots; returns roots.

Every roll is a copy of its own otherwise, made by NumPy. The copy that takes their place is an element-wise
operator, so kernels make it, together with what it is a copy of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from jitla.hops import Hop, Kind, Widths, expressible, is_turn, make, topo, uses
from jitla.rewrites.conditions import owns
from jitla.rewrites.pattern import AttrVar, Bound, Var, ops
from jitla.rewrites.rule import Hook, Rule, RuleSet, check

MOST = 1.5  # elements of a copy with its edges, over those without


def rolled_once(root: Hop, b: Bound) -> Hop:
    """Build the roll that does what the two do one after the other."""
    shifts = tuple(m + n for m, n in zip(b["inner"], b["shifts"], strict=True))
    return make("roll", (b["X"],), root.line, shifts=shifts)


def ring_rolls(roots: tuple[Hop, ...], hook: Hook) -> tuple[Hop, ...]:
    """Return `roots` with rolls that cells read made parts of a copy with edges."""
    turned: dict[Hop, Hop] = {}
    for base, rolls in _rolls(roots).items():
        ring = _ring(base, rolls)
        if ring is None:
            continue
        after = {r: make("roll", (ring,), r.line, shifts=r.attr("shifts")) for r in rolls}
        for roll, view in after.items():
            check(RINGED, roll, view)
        if all([hook(RINGED, roll, view) for roll, view in after.items()]):
            turned |= after
    return _rebuilt(roots, turned) if turned else roots


def _rolls(roots: tuple[Hop, ...]) -> dict[Hop, list[Hop]]:
    """Return the rolls that nobody but cells reads, by what is rolled.

    One by nothing would be the same as what is rolled, and cells of both might be no cells in the end.
    """
    users = uses(roots)
    found: dict[Hop, list[Hop]] = {}
    for hop in topo(roots):
        turns = hop.op.name == "roll" and any(hop.attr("shifts")) and not is_turn(hop)
        if turns and hop not in roots and all(map(_reads, users[hop])):
            found.setdefault(hop.inputs[0], []).append(hop)
    return found


def _reads(user: Hop) -> bool:
    """Tell whether a kernel reads what `user` does element by element."""
    return user.op.kind is Kind.CELL and user.op.name != "ring" and expressible(user)


def _ring(base: Hop, rolls: Sequence[Hop]) -> Hop | None:
    """Build the copy that all `rolls` of `base` are parts of; None where edges are too much of it.

    With an axis of length 1 results could lie in another order.
    """
    shape = base.meta.shape
    along = list(zip(*(r.attr("shifts") for r in rolls), strict=True))
    widths: Widths = tuple((max(0, *each), max(0, *(-s for s in each))) for each in along)
    whole = prod(n + sum(pair) for n, pair in zip(shape, widths, strict=True))
    if min(shape) < 2 or whole > MOST * base.meta.size:
        return None
    ring = make("ring", (base,), rolls[0].line, widths=widths)
    return ring if expressible(ring) else None


def _rebuilt(roots: tuple[Hop, ...], turned: Mapping[Hop, Hop]) -> tuple[Hop, ...]:
    """Return `roots` with rolls `turned`; cells find in the copy what was rolled, too, if it lies alike."""
    middle = {}
    for roll, view in turned.items():
        base = roll.inputs[0]
        if base.op.kind is Kind.LEAF or owns(base):
            middle[base] = make("roll", view.inputs, roll.line, shifts=(0,) * base.meta.ndim)
    new: dict[Hop, Hop] = {}

    def done(hop: Hop) -> Hop:
        stack = [hop]
        while stack:
            top = stack[-1]
            waiting = [i for i in _operands(top) if i not in new]
            if top in new or not waiting:
                stack.pop()
                if top not in new:
                    inputs = [new[i] for i in _operands(top)]
                    same = all(a is b for a, b in zip(inputs, top.inputs, strict=True))
                    new[top] = top if same else make(top.op.name, inputs, top.line, **dict(top.attrs))
            else:
                stack += waiting
        return new[hop]

    def _operands(hop: Hop) -> list[Hop]:
        seen = [turned.get(i, i) for i in hop.inputs]
        return [middle.get(i, i) for i in seen] if _reads(hop) else seen

    return tuple([done(r) for r in roots])


RINGED = Rule(
    "rolls-of-ring", ops.roll(Var("X")), across=ring_rolls,
    doc="rolls that cells read are parts of one copy that has opposite edges around it")

ROLLS = RuleSet([
    Rule("roll-of-roll", ops.roll(ops.roll(Var("X"), shifts=AttrVar("inner")), shifts=AttrVar("shifts")),
         build=rolled_once, doc="shifts add up"),
])
RINGS = RuleSet([RINGED])
