"""Loops folded into one instruction: which two are its own, and what its micro-ops spell out.

Knows: two loops, how indices advance, how far apart steps that meet must be. Must not know: layers.
Receives loops with the strides of three operands; returns micro-ops and the fields of the instruction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import permutations, product
from math import prod
from typing import Any, NamedTuple

from jitla.accel.isa import Uop
from jitla.errors import DeviceError

APART = 3  # steps between two that meet in one accumulator: its last value has to be there
MOST = 512  # micro-ops of one instruction, so that several such sets stay in their memory


class Loop(NamedTuple):
    """So many turns; by how much each of destination, source and weight advances in one."""

    extent: int
    dst: int
    src: int = 0
    wgt: int = 0


ONCE = Loop(1, 0)


class Folded(NamedTuple):
    """The instruction's loops, and offsets of its micro-ops."""

    outer: Loop
    inner: Loop
    uops: tuple[Uop, ...]

    def factors(self) -> dict[str, Any]:
        """Return the fields that the loops stand for."""
        return {
            "iter_out": self.outer.extent, "iter_in": self.inner.extent,
            "dst_factor_out": self.outer.dst, "dst_factor_in": self.inner.dst,
            "src_factor_out": self.outer.src, "src_factor_in": self.inner.src,
        }

    def weights(self) -> dict[str, Any]:
        """Return the fields for weights."""
        return {"wgt_factor_out": self.outer.wgt, "wgt_factor_in": self.inner.wgt}

    def at(self, dst: int, src: int = 0, wgt: int = 0) -> list[Uop]:
        """Return the micro-ops for operands that begin there."""
        return [Uop(dst + u.dst, src + u.src, wgt + u.wgt) for u in self.uops]


def merged(loops: Iterable[Loop]) -> list[Loop]:
    """Return the same walk with neighbours made one where the inner runs on into the outer."""
    made: list[Loop] = []
    for loop in loops:
        if loop.extent == 1:
            continue
        outer = made[-1] if made else None
        if outer is not None and outer[1:] == tuple(loop.extent * s for s in loop[1:]):
            made[-1] = Loop(outer.extent * loop.extent, *loop[1:])
        else:
            made.append(loop)
    return made


@lru_cache(maxsize=1024)
def fold(across: tuple[Loop, ...], along: tuple[Loop, ...] = ()) -> Folded:
    """Return the walk over all loops that takes fewest micro-ops.

    Steps of loops `across` are in different accumulators, those `along` add up in the same ones.
    """
    loops = [*merged(along), *merged(across)]
    best: tuple[int, Loop, Loop, tuple[Loop, ...]] | None = None
    for outer, inner in permutations([*loops, ONCE, ONCE], 2):
        rest = [x for x in loops if x is not outer and x is not inner]
        order = (outer, inner, *rest)
        count = prod(x.extent for x in rest)
        if apart(order) >= APART and (best is None or count < best[0]):
            best = count, outer, inner, tuple(rest)
    if best is None or best[0] > MOST:
        raise DeviceError(f"loops {loops} make no instruction: steps meet too soon, or too many micro-ops")
    return Folded(best[1], best[2], tuple(_spelled(best[3])))


def apart(order: Sequence[Loop]) -> int:
    """Return after how many steps one at the soonest meets the accumulator of an earlier one."""
    inside = 1
    for loop in reversed(order):
        if loop.dst == 0 and loop.extent > 1:
            return inside
        inside *= loop.extent
    return max(inside, APART)


def _spelled(loops: Sequence[Loop]) -> Iterable[Uop]:
    for at in product(*(range(x.extent) for x in loops)):
        yield Uop(*(sum(i * x[k] for i, x in zip(at, loops, strict=True)) for k in (1, 2, 3)))
