"""Output memory of programs: fresh arrays, ring buffers, and stores into the caller's arrays."""

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

# Slots of two leaves that overlap, and the distance of their first elements in longest strides; -1 if their
# strides or shapes differ.
Aliases = frozenset[tuple[int, int, int]]
Outs = tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class ExecutionOrder:
    """Steps in execution order; those from `first_store` on write into leaves, after all others.

    `direct`: values that a kernel writes straight into the leaf at a slot. `copied_back`: positions of roots
    that are copied into their leaf at the very end. `detached`: positions of roots that are views of memory
    about to be overwritten, copied before that. `delayed`: for some direct values, how many steps of the
    leaf's longest stride lie between an element written and the element read that it overwrites.
    """

    steps: tuple[Step, ...]
    first_store: int
    direct: Mapping[Hop, int]
    copied_back: tuple[int, ...]
    detached: tuple[int, ...]
    delayed: Mapping[Hop, int] = field(default_factory=dict)


def aliased_leaves(roots: Iterable[Hop]) -> dict[Hop, frozenset[int]]:
    """Return for every value the slots of the leaves whose memory it may alias."""
    slots: dict[Hop, frozenset[int]] = {}
    none: frozenset[int] = frozenset()
    for hop in topo(roots):
        if hop.op.name == "leaf":
            array = hop.attr("form") == "array"
            slots[hop] = frozenset((hop.attr("slot"),)) if array else none
        else:
            view = is_view(hop) and hop.meta.shape != ()
            slots[hop] = slots[hop.inputs[0]] if view else none
    return slots


def order_steps(
    plan: Plan, outs: Outs, aliases: Aliases, layouts: Mapping[int, Layout],
    places: Mapping[Hop, Layout],
) -> ExecutionOrder:
    """Decide which stores are direct, and order the kernels that make them last.

    `layouts` are those of the leaves by slot, `places` those of all values.
    """
    targets = {i: slot for i, slot in enumerate(outs) if slot is not None}
    if not targets:
        return ExecutionOrder(plan.steps, len(plan.steps), {}, (), ())
    sharing = _MemorySharing(plan, targets, aliases)
    direct = {
        plan.outputs[i]: slot for i, slot in targets.items()
        if sharing.can_store_directly(plan.outputs[i], slot) and _disjoint_elements(
            layouts[slot], plan.outputs[i].meta.dtype.itemsize)
    }
    direct = _walkable_stores(plan, direct, layouts, places, sharing)
    while (conflicting := sharing.find_conflict(direct)) is not None:
        del direct[conflicting]
    storing = [s for s in plan.steps if any(h in direct for h in s.outputs)]
    early = [s for s in plan.steps if not any(h in direct for h in s.outputs)]
    copied_back = tuple(i for i in targets if plan.outputs[i] not in direct)
    exposed = sharing.overlapping(targets.values())
    detached = tuple(
        i for i, root in enumerate(plan.outputs)
        if sharing.aliased_leaves[root] & exposed and (i not in copied_back or len(targets) > 1)
        and root not in direct
    )
    delayed = {h: n for h, slot in direct.items() if (n := sharing.read_distance(h, slot)) >= 0}
    return ExecutionOrder((*early, *storing), len(early), direct, copied_back, detached, delayed)


def can_delay_stores(form: Form, geometry: Geometry) -> bool:
    """Return whether rows are contiguous and visited in the order in which they are overwritten."""
    out = geometry.strides[-1]
    return form.mode == "cell" and form.inner[-1] == "c" and min(out) > 0 and \
        all(a >= b for a, b in zip(out, out[1:], strict=False))


def delay_bytes(layout: Layout, steps: int, itemsize: int) -> int:
    """Return the distance in bytes between views of a layout that begin `steps` longest strides apart."""
    spans = [(s, n) for n, s in zip(*layout, strict=True) if n > 1]
    longest = max(s for s, _ in spans)
    slab = sum(s * (n - 1) for s, n in spans if s != longest) + itemsize
    return (steps + 1) * longest - slab


def _disjoint_elements(layout: Layout, itemsize: int) -> bool:
    """Return whether no two elements of the array overlap in memory."""
    end = itemsize
    for stride, n in sorted((abs(s), n) for n, s in zip(*layout, strict=True) if n != 1):
        if stride < end:
            return False
        end += stride * (n - 1)
    return True


def _walkable_stores(
    plan: Plan, direct: dict[Hop, int], layouts: Mapping[int, Layout], places: Mapping[Hop, Layout],
    sharing: _MemorySharing,
) -> dict[Hop, int]:
    """Return the stores whose kernel can write into the leaf in one pass, delayed if necessary."""
    walkable: dict[Hop, int] = {}
    for step in plan.steps:
        stores = {h: direct[h] for h in step.outputs if h in direct}
        if isinstance(step, Kernel) and stores:
            stored = {h: layouts[slot] for h, slot in stores.items()}
            walked = walk(operands(step), step.shape, places, stored)
            delayed = any(sharing.read_distance(h, slot) >= 0 for h, slot in stores.items())
            if walked is not None and (not delayed or can_delay_stores(*walked)):
                walkable |= stores
    return walkable


class _MemorySharing:
    """Which steps read the memory of which leaves."""

    def __init__(self, plan: Plan, targets: Mapping[int, int], aliases: Aliases) -> None:
        self.plan = plan
        self.targets = targets
        self.pairs = {(a, b) for a, b, _ in aliases} | {(b, a) for a, b, _ in aliases}
        self.distances = {(a, b): r for a, b, r in aliases} | {(b, a): r for a, b, r in aliases}
        self.aliased_leaves = aliased_leaves(plan.outputs)
        self.producer = {h: s for s in plan.steps for h in s.outputs}

    def overlapping(self, slots: Iterable[int]) -> frozenset[int]:
        """Return the slots whose memory changes when `slots` are written."""
        slots = set(slots)
        return frozenset(slots | {b for a, b in self.pairs if a in slots})

    def can_store_directly(self, root: Hop, slot: int) -> bool:
        """Return whether the kernel that computes `root` may write it to `slot` while running."""
        step = self.producer.get(root)
        if not isinstance(step, Kernel) or root.op.kind in (Kind.AGG, Kind.TALLY):
            return False
        if self.plan.outputs.count(root) > 1 or self._is_read_later(root, step):
            return False
        changed = self.overlapping((slot,))
        if any(t in changed and t != slot for t in self.targets.values()):
            return False
        touched = [h for h in step.inputs if self.aliased_leaves[h] & changed]
        if any(h in gather_tables(step.body) or h.op.name != "leaf" or h.meta.shape != step.shape
               for h in touched):
            return False
        return all(h.attr("slot") == slot for h in touched) or self.read_distance(root, slot) >= 0

    def read_distance(self, root: Hop, slot: int) -> int:
        """Return how far from its stores the kernel of `root` reads the stored memory, in longest strides.

        -1 if it reads it nowhere else, or if the kernel cannot delay stores: that takes a single result,
        whose flags are exact.
        """
        step = self.producer[root]
        assert not isinstance(step, Call), "NumPy stores nothing directly"
        changed = self.overlapping((slot,))
        other_slots = [h.attr("slot") for h in step.inputs
                       if self.aliased_leaves[h] & changed and h.attr("slot") != slot]
        raising = [h for h in step.body if possible_flags(h)]
        if len(step.outputs) > 1 or any(h.op.transcendental for h in step.body) or \
                not all(map(has_exact_flags, raising)):
            return -1
        distances = [self.distances.get((slot, k), -1) for k in other_slots]
        return -1 if min(distances, default=-1) < 0 else max(distances)

    def _is_read_later(self, root: Hop, step: Step) -> bool:
        return any(root in s.inputs for s in self.plan.steps if s is not step)

    def find_conflict(self, direct: Mapping[Hop, int]) -> Hop | None:
        """Return a direct store that would change an input of another step, or None."""
        storing = [s for s in self.plan.steps if any(h in direct for h in s.outputs)]
        for n, step in enumerate(storing):
            stored = [h for h in step.outputs if h in direct]
            for hop in stored:
                changed = self.overlapping((direct[hop],))
                if any(self.aliased_leaves[i] & changed for s in storing[n + 1:] for i in s.inputs):
                    return hop
            for reader in self.plan.steps:
                waits = any(i in step.outputs for i in reader.inputs)
                if waits and not any(o is reader for o in storing):
                    return stored[0]
        return None


SMALL_COPY_BYTES = 1 << 16  # NumPy caches memory of small arrays itself


def array_factory(
    empty: Callable[..., np.ndarray], dtype: np.dtype, layout: Layout, view: bool = False
) -> Callable[[], np.ndarray]:
    """Return a function that allocates an array of the given layout; a 0-d result gets one element.

    If `view`, the array does not own its memory.
    """
    if view:
        owner = array_factory(empty, dtype, layout)
        return lambda: owner()[...]
    if layout.shape == ():
        return partial(np.empty, 1, dtype)
    if layout == contiguous(layout.shape, dtype.itemsize):
        return partial(empty, layout.shape, dtype)
    # of two axes with equal strides, the one of length 1 is the inner one
    axes = sorted(range(len(layout.shape)), key=lambda i: (-layout.strides[i], layout.shape[i] == 1))
    return partial(empty, layout.shape, dtype, tuple(axes))


def copy_array(empty: Callable[..., np.ndarray], array: np.ndarray) -> np.ndarray:
    """Return a copy with the axis order of `array`, in reused memory if it is large."""
    if array.nbytes <= SMALL_COPY_BYTES and array.flags.c_contiguous:
        return array.copy()
    axes = sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis]))
    copy = empty(array.shape, array.dtype, tuple(axes))
    copy[...] = array
    return copy


Index = tuple[slice, ...]
Moves = tuple[tuple[Index, Index], ...]


def rolled_index(shifts: tuple[int, ...], widths: RingWidths) -> Index:
    """Return the index of the part of a ring's base that equals the ring rolled by `shifts`."""
    return tuple([slice(front - n, -(back + n) or None)
                  for n, (front, back) in zip(shifts, widths, strict=True)])


def ring_factory(empty: Callable[..., np.ndarray], layout: Layout, ring: Hop) -> Callable[[], np.ndarray]:
    """Return a function that allocates an array of the given layout with space for its edges around it."""
    widths = ring.attr("widths")
    full_shape = tuple([n + front + back for n, (front, back) in zip(layout.shape, widths, strict=True)])
    whole_array = array_factory(empty, ring.meta.dtype, Layout(full_shape, layout.strides))
    middle = rolled_index((0,) * len(full_shape), widths)
    return lambda: whole_array()[middle]


def edge_filler(shape: Shape, widths: RingWidths) -> Callable[[np.ndarray], None]:
    """Return a function that fills the edges of a ring of `shape`."""
    moves: list[tuple[Index, Index]] = []
    for axis, (n, (front, back)) in enumerate(zip(shape, widths, strict=True)):
        # the edges of axes before this one are filled, those of later ones are not
        inner = [slice(f, f + m) for m, (f, _) in list(zip(shape, widths, strict=True))[axis + 1:]]
        for target in _edge_copies(n, front, back):
            moves.append(tuple((*[slice(None)] * axis, part, *inner) for part in target))  # type: ignore[arg-type]
    return partial(_copy_edges, tuple(moves))


def _edge_copies(n: int, front: int, back: int) -> list[tuple[slice, slice]]:
    """Return pairs of slices to copy along an axis, each at most one period long."""
    copies = []
    for end in range(front, 0, -n):
        first = max(end - n, 0)
        copies.append((slice(first, end), slice(first + n, end + n)))
    for first in range(front + n, front + n + back, n):
        end = min(first + n, front + n + back)
        copies.append((slice(first, end), slice(first - n, end - n)))
    return copies


def _copy_edges(moves: Moves, ring: np.ndarray) -> None:
    whole: Any = ring.base
    for target, source in moves:
        whole[target] = whole[source]


def filled_ring(array: np.ndarray, ring: np.ndarray, fill_edges: Callable[[np.ndarray], None]) -> np.ndarray:
    """Copy `array` into a new ring, and fill its edges."""
    ring[...] = array
    fill_edges(ring)
    return ring
