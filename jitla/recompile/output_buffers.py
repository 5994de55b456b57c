"""Output memory of programs: fresh arrays, rings of buffers, and stores into arrays of users."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from functools import partial
from typing import Any

import numpy as np

from jitla.classes import dataclass
from jitla.fusion import (
    Call,
    Form,
    Geometry,
    Kernel,
    Layout,
    Plan,
    Step,
    contiguous,
    gather_tables,
    is_view,
    operands,
    walk,
)
from jitla.hops import Hop, Kind, RingWidths, Shape, has_exact_flags, possible_flags, topo

# Slots of two leaves that overlap, and how many steps of their longest stride they begin apart; -1 if they
# are not the same view but for that.
Aliases = frozenset[tuple[int, int, int]]
Outs = tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Order:
    """Steps in running order; those from `late` on write into leaves and come after all others.

    `direct`: values a kernel writes straight into the leaf at a slot. `through`: positions of roots
    that are copied into their leaf at the very end. `detached`: positions of roots that are views of
    memory about to be overwritten, to be copied before that. `delayed`: of some direct values, how
    many steps of the leaf's longest stride away they read what they overwrite.
    """

    steps: tuple[Step, ...]
    late: int
    direct: Mapping[Hop, int]
    through: tuple[int, ...]
    detached: tuple[int, ...]
    delayed: Mapping[Hop, int] = field(default_factory=dict)


def reach(roots: Iterable[Hop]) -> dict[Hop, frozenset[int]]:
    """Return for every value the slots of the leaves whose memory it may share."""
    found: dict[Hop, frozenset[int]] = {}
    nothing: frozenset[int] = frozenset()
    for hop in topo(roots):
        if hop.op.name == "leaf":
            array = hop.attr("form") == "array"
            found[hop] = frozenset((hop.attr("slot"),)) if array else nothing
        else:
            view = is_view(hop) and hop.meta.shape != ()
            found[hop] = found[hop.inputs[0]] if view else nothing
    return found


def order_steps(
    plan: Plan, outs: Outs, aliases: Aliases, layouts: Mapping[int, Layout],
    places: Mapping[Hop, Layout],
) -> Order:
    """Decide which stores are direct, and put the kernels that make them last.

    `layouts` are those of the leaves by slot, `places` those of all values.
    """
    targets = {i: slot for i, slot in enumerate(outs) if slot is not None}
    if not targets:
        return Order(plan.steps, len(plan.steps), {}, (), ())
    shared = _Sharing(plan, targets, aliases)
    direct = {
        plan.outputs[i]: slot for i, slot in targets.items()
        if shared.able(plan.outputs[i], slot) and _disjoint_elements(
            layouts[slot], plan.outputs[i].meta.dtype.itemsize)
    }
    direct = _that_walk(plan, direct, layouts, places, shared)
    while (wrong := shared.conflict(direct)) is not None:
        del direct[wrong]
    late = [s for s in plan.steps if any(h in direct for h in s.outputs)]
    early = [s for s in plan.steps if not any(h in direct for h in s.outputs)]
    through = tuple(i for i in targets if plan.outputs[i] not in direct)
    exposed = shared.overlapping(targets.values())
    detached = tuple(
        i for i, root in enumerate(plan.outputs)
        if shared.reach[root] & exposed and (i not in through or len(targets) > 1)
        and root not in direct
    )
    delayed = {h: far for h, slot in direct.items() if (far := shared.far(h, slot)) >= 0}
    return Order((*early, *late), len(early), direct, through, detached, delayed)


def delays(form: Form, geometry: Geometry) -> bool:
    """Tell whether rows are walked in the order in which they are overwritten, and hold whole runs."""
    out = geometry.strides[-1]
    return form.mode == "cell" and form.inner[-1] == "c" and min(out) > 0 and \
        all(a >= b for a, b in zip(out, out[1:], strict=False))


def farthest(layout: Layout, reach: int, itemsize: int) -> int:
    """Return how many bytes away views of this layout begin, of which a `reach` is known."""
    spans = [(s, n) for n, s in zip(*layout, strict=True) if n > 1]
    longest = max(s for s, _ in spans)
    slab = sum(s * (n - 1) for s, n in spans if s != longest) + itemsize
    return (reach + 1) * longest - slab


def _disjoint_elements(layout: Layout, itemsize: int) -> bool:
    """Tell whether no two elements of the array share memory."""
    end = itemsize
    for stride, n in sorted((abs(s), n) for n, s in zip(*layout, strict=True) if n != 1):
        if stride < end:
            return False
        end += stride * (n - 1)
    return True


def _that_walk(
    plan: Plan, direct: dict[Hop, int], layouts: Mapping[int, Layout], places: Mapping[Hop, Layout],
    shared: _Sharing,
) -> dict[Hop, int]:
    """Keep the stores whose kernel can walk over the leaf as well as over a fresh result, late if need be."""
    kept: dict[Hop, int] = {}
    for step in plan.steps:
        mine = {h: direct[h] for h in step.outputs if h in direct}
        if isinstance(step, Kernel) and mine:
            stored = {h: layouts[slot] for h, slot in mine.items()}
            found = walk(operands(step), step.shape, places, stored)
            late = any(shared.far(h, slot) >= 0 for h, slot in mine.items())
            if found is not None and (not late or delays(*found)):
                kept |= mine
    return kept


class _Sharing:
    """Who reads which leaf's memory, and when."""

    def __init__(self, plan: Plan, targets: Mapping[int, int], aliases: Aliases) -> None:
        self.plan = plan
        self.targets = targets
        self.pairs = {(a, b) for a, b, _ in aliases} | {(b, a) for a, b, _ in aliases}
        self.reaches = {(a, b): r for a, b, r in aliases} | {(b, a): r for a, b, r in aliases}
        self.reach = reach(plan.outputs)
        self.maker = {h: s for s in plan.steps for h in s.outputs}

    def overlapping(self, slots: Iterable[int]) -> frozenset[int]:
        """Slots whose memory changes when `slots` are written."""
        slots = set(slots)
        return frozenset(slots | {b for a, b in self.pairs if a in slots})

    def able(self, root: Hop, slot: int) -> bool:
        """Tell whether the kernel that makes `root` may write it to `slot` while it runs, soon or late."""
        step = self.maker.get(root)
        if not isinstance(step, Kernel) or root.op.kind in (Kind.AGG, Kind.TALLY):
            return False
        if self.plan.outputs.count(root) > 1 or self._read_later(root, step):
            return False
        changed = self.overlapping((slot,))
        if any(t in changed and t != slot for t in self.targets.values()):
            return False
        touched = [h for h in step.inputs if self.reach[h] & changed]
        if any(h in gather_tables(step.body) or h.op.name != "leaf" or h.meta.shape != step.shape
               for h in touched):
            return False
        return all(h.attr("slot") == slot for h in touched) or self.far(root, slot) >= 0

    def far(self, root: Hop, slot: int) -> int:
        """Return how far from where its results go the kernel that makes `root` reads that memory.

        -1 if nowhere else, or if it cannot store late: that takes one result, whose flags say all.
        """
        step = self.maker[root]
        assert not isinstance(step, Call), "NumPy stores nothing directly"
        changed = self.overlapping((slot,))
        others = [h.attr("slot") for h in step.inputs if self.reach[h] & changed and h.attr("slot") != slot]
        raising = [h for h in step.body if possible_flags(h)]
        if len(step.outputs) > 1 or any(h.op.transcendental for h in step.body) or \
                not all(map(has_exact_flags, raising)):
            return -1
        reaches = [self.reaches.get((slot, k), -1) for k in others]
        return -1 if min(reaches, default=-1) < 0 else max(reaches)

    def _read_later(self, root: Hop, step: Step) -> bool:
        return any(root in s.inputs for s in self.plan.steps if s is not step)

    def conflict(self, direct: Mapping[Hop, int]) -> Hop | None:
        """Return a direct store that another step would notice, or None."""
        late = [s for s in self.plan.steps if any(h in direct for h in s.outputs)]
        for at, step in enumerate(late):
            mine = [h for h in step.outputs if h in direct]
            for hop in mine:
                changed = self.overlapping((direct[hop],))
                if any(self.reach[i] & changed for s in late[at + 1:] for i in s.inputs):
                    return hop
            for other in self.plan.steps:
                waits = any(i in step.outputs for i in other.inputs)
                if waits and not any(o is other for o in late):
                    return mine[0]
        return None


SMALL_COPY = 1 << 16  # bytes for which NumPy has memory at hand


def maker(
    empty: Callable[..., np.ndarray], dtype: np.dtype, place: Layout, view: bool = False
) -> Callable[[], np.ndarray]:
    """Return what makes a fresh array that lies as `place` says; a 0-d result gets one element.

    If it is a `view`, another array owns its memory.
    """
    if view:
        owner = maker(empty, dtype, place)
        return lambda: owner()[...]
    if place.shape == ():
        return partial(np.empty, 1, dtype)
    if place == contiguous(place.shape, dtype.itemsize):
        return partial(empty, place.shape, dtype)
    # of two axes with one stride, the one of length 1 lies further in
    axes = sorted(range(len(place.shape)), key=lambda i: (-place.strides[i], place.shape[i] == 1))
    return partial(empty, place.shape, dtype, tuple(axes))


def copied(empty: Callable[..., np.ndarray], array: np.ndarray) -> np.ndarray:
    """Return a copy that lies as `array` does; a large one in memory that is used again."""
    if array.nbytes <= SMALL_COPY and array.flags.c_contiguous:
        return array.copy()
    axes = sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis]))
    copy = empty(array.shape, array.dtype, tuple(axes))
    copy[...] = array
    return copy


Index = tuple[slice, ...]
Moves = tuple[tuple[Index, Index], ...]


def turn(shifts: tuple[int, ...], widths: RingWidths) -> Index:
    """Return the part of a ring's base that is the ring rolled by `shifts`."""
    return tuple([slice(front - n, -(back + n) or None)
                  for n, (front, back) in zip(shifts, widths, strict=True)])


def room(empty: Callable[..., np.ndarray], place: Layout, ring: Hop) -> Callable[[], np.ndarray]:
    """Return what makes an array for a copy that lies as `place` says, with room for its edges around it."""
    widths = ring.attr("widths")
    whole = tuple([n + front + back for n, (front, back) in zip(place.shape, widths, strict=True)])
    made = maker(empty, ring.meta.dtype, Layout(whole, place.strides))
    middle = turn((0,) * len(whole), widths)
    return lambda: made()[middle]


def edges(shape: Shape, widths: RingWidths) -> Callable[[np.ndarray], None]:
    """Return what adds the edges to a ring of `shape`."""
    moves: list[tuple[Index, Index]] = []
    for axis, (n, (front, back)) in enumerate(zip(shape, widths, strict=True)):
        # axes before this one have their edges, those behind have none
        inner = [slice(f, f + m) for m, (f, _) in list(zip(shape, widths, strict=True))[axis + 1:]]
        for to in _runs(n, front, back):
            moves.append(tuple((*[slice(None)] * axis, part, *inner) for part in to))  # type: ignore[arg-type]
    return partial(_move, tuple(moves))


def _runs(n: int, front: int, back: int) -> list[tuple[slice, slice]]:
    """Return which elements of an axis become which others, as few at a time as repeat."""
    found = []
    for end in range(front, 0, -n):
        first = max(end - n, 0)
        found.append((slice(first, end), slice(first + n, end + n)))
    for first in range(front + n, front + n + back, n):
        end = min(first + n, front + n + back)
        found.append((slice(first, end), slice(first - n, end - n)))
    return found


def _move(moves: Moves, ring: np.ndarray) -> None:
    whole: Any = ring.base
    for to, of in moves:
        whole[to] = whole[of]


def ring_of(array: np.ndarray, ring: np.ndarray, add: Callable[[np.ndarray], None]) -> np.ndarray:
    """Copy `array` into a new ring."""
    ring[...] = array
    add(ring)
    return ring
