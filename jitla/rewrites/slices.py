"""Slices of a value that are combined with each other: sliced is what the value is computed from.

Knows: slices that leave out some elements at either end of an axis. Must not know: kernels, memory.
Receives roots; returns roots.

A kernel that reads its operands in several places computes some elements several times. What it then does
without is the value in memory, written and read again: the better choice where the cells are few.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from jitla.hops import (
    Hop,
    Kind,
    Margins,
    Section,
    expressible,
    flops,
    make,
    margins,
    may_raise,
    sections,
    substitute,
    topo,
    uses,
)
from jitla.rewrites.pattern import Var, ops
from jitla.rewrites.rule import Hook, Rule, RuleSet, check

# Additions that are made for every byte that is not written and read: measured of values that stay in a
# cache, and of larger ones.
PER_BYTE, PER_FAR_BYTE, FAR = 1.8, 3.0, 4 << 20
MOST_SIZES = 256  # small shapes for which it is looked what slices leave out


class _Found(NamedTuple):
    """A value, the slices of it, and the cells it consists of."""

    value: Hop
    slices: Mapping[Hop, Margins]
    cells: frozenset[Hop]


def slice_operands(roots: tuple[Hop, ...], hook: Hook) -> tuple[Hop, ...]:
    """Return `roots` with slices of cells made cells of slices, where that is cheaper."""
    refused: set[Hop] = set()
    while (found := _improvable(roots, refused)) is not None:
        refused.add(found.value)
        after = {view: _pushed(found, view) for view in found.slices}
        for view, cell in after.items():
            check(SLICED, view, cell)
        if all([hook(SLICED, view, cell) for view, cell in after.items()]):
            roots = substitute(roots, after)
    return roots


def _improvable(roots: tuple[Hop, ...], refused: set[Hop]) -> _Found | None:
    """Return the first value, operands first, whose slices could be cheaper."""
    users = uses(roots)
    for hop in topo(roots):
        if hop.op.kind is Kind.CELL and hop.meta.shape and hop not in roots and hop not in refused:
            found = _sliced(hop, users, roots)
            if found is not None and _pays(found) and _misses_nothing(found):
                return found
    return None


def _sliced(hop: Hop, users: Mapping[Hop, Sequence[Hop]], roots: Sequence[Hop]) -> _Found | None:
    """Return the cells of `hop` and its slices if it is used for nothing but cells of these."""
    slices: dict[Hop, Margins] = {}
    for view in users[hop]:
        cut = margins(view)
        if cut is None or view in roots or not all(map(expressible, users[view])):
            return None
        slices[view] = cut
    cells: set[Hop] = set()
    stack = [hop]
    while stack:
        cell = stack.pop()
        if cell.op.kind is not Kind.CELL or cell.meta.shape == ():
            continue
        if not expressible(cell) or cell.op.transcendental or _looks_at_places(cell):
            return None
        cells.add(cell)
        stack += cell.inputs
    alone = all(c is hop or c not in roots and cells.issuperset(users[c]) for c in cells)
    return _Found(hop, slices, frozenset(cells)) if slices and alone else None


def _looks_at_places(cell: Hop) -> bool:
    """Say whether NumPy may cast an element by where it lies: a float that no integer holds."""
    whole = cell.op.name == "cast" and cell.meta.dtype.kind in "iu"
    return whole and cell.inputs[0].meta.dtype.kind in "fc"


def _pays(found: _Found) -> bool:
    """Say whether computing some elements several times takes less than writing and reading all once."""
    meta = found.value.meta
    work = sum(flops(c) for c in found.cells) / meta.size * (len(found.slices) - 1)
    return work <= (PER_FAR_BYTE if meta.nbytes >= FAR else PER_BYTE) * meta.dtype.itemsize


def _misses_nothing(found: _Found) -> bool:
    """Say whether NumPy could warn of no element that no slice has."""
    if not any(map(may_raise, found.cells)):
        return True
    cuts = list(found.slices.values())
    ranges = []
    for axis in zip(*cuts, strict=True):
        least = max(first + last for first, last in axis) + 1
        # from here on, what lies between the margins of all is in every slice, and no size is different
        ranges.append(range(least, max(f for f, _ in axis) + max(e for _, e in axis) + 2))
    sizes = list(product(*ranges)) if np.prod([len(r) for r in ranges]) <= MOST_SIZES else []
    return bool(sizes) and all(_covered(cuts, shape) for shape in sizes)


def _covered(cuts: Sequence[Margins], shape: tuple[int, ...]) -> bool:
    """Say whether every element of an array of `shape` is in one of its slices."""
    seen = np.zeros(shape, bool)
    for cut in cuts:
        seen[tuple(slice(first, n - last) for (first, last), n in zip(cut, shape, strict=True))] = True
    return bool(seen.all())


def _pushed(found: _Found, view: Hop) -> Hop:
    """Build the cells of `view`, on slices of what the value is computed from."""
    shape, cut = found.value.meta.shape, found.slices[view]
    operands = {i for c in found.cells for i in c.inputs}
    made: dict[Hop, Hop] = {}
    for hop in topo((found.value,)):
        if hop in found.cells:
            made[hop] = make(hop.op.name, [made[i] for i in hop.inputs], hop.line, **dict(hop.attrs))
        elif hop in operands:
            made[hop] = _cut(hop, shape, cut)
    return made[found.value]


def _cut(hop: Hop, shape: tuple[int, ...], cut: Margins) -> Hop:
    """Build the part of `hop`, an operand of cells of `shape`, that the slice needs of it."""
    mine = hop.meta.shape
    behind = len(shape) - len(mine)
    own = [(0, 0) if n != all_ else c for n, all_, c in zip(mine, shape[behind:], cut[behind:], strict=True)]
    if not any(map(any, own)):
        return hop
    inner = sections(hop)
    taken = [Section(*c, 1) for c in own]
    if inner is not None:  # a slice of a slice
        taken = [s.then(t) for s, t in zip(inner, taken, strict=True)]
        hop = hop.inputs[0]
    return make("getitem", (hop,), hop.line, index=tuple(s.item for s in taken))


SLICED = Rule(
    "slice-of-cells", ops.getitem(Var("X")), across=slice_operands,
    doc="few cells are computed anew for every slice rather than written to memory and read again")

SLICES = RuleSet([SLICED])
