"""Plans as text, and back: what a later process finds need not be planned again.

Hops of the draft are told by number; only those that rewrites made are written down. What is read is what was
written: a plan that does not come back as it was is not kept at all.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol

from jitla.errors import InternalError
from jitla.fusion import (
    Call,
    Expansion,
    Kernel,
    Plan,
    Product,
    ReductionOrder,
    RowKernel,
    WindowKernel,
)
from jitla.hops import Hop, HopRows, NotSerialisable, decode_value, hops_from_rows, topo

_RECORDS: Mapping[str, type] = {
    **{c.__name__: c for c in (Call, Kernel, Product, RowKernel, WindowKernel)}, "Way": ReductionOrder}


class Shelf(Protocol):
    """Keeps texts from process to process; never fails."""

    def get(self, words: str) -> bytes | None:
        """Return what is kept under `words`."""
        ...

    def put(self, words: str, text: bytes) -> None:
        """Keep `text`."""
        ...


class Asked(Protocol):
    """What a program is asked for: hops, how leaves lie, where results go, what overlaps."""

    @property
    def roots(self) -> tuple[Hop, ...]: ...

    @property
    def layouts(self) -> Mapping[int, tuple[tuple[int, ...], tuple[int, ...]]]: ...

    @property
    def outs(self) -> tuple[int | None, ...]: ...

    @property
    def aliases(self) -> frozenset[tuple[int, int, int]]: ...


class Kept(NamedTuple):
    """What a program is made of: `given` are the roots as planning began with them."""

    plan: Plan
    given: tuple[Hop, ...]
    spelling: Expansion | None
    searched: bool


def numbers_of(asked: Asked, hops: Collection[Hop]) -> list[int]:
    """Return the numbers of those of `hops` that `asked` consists of."""
    return [n for n, hop in enumerate(topo(asked.roots)) if hop in hops]


def written(asked: Asked, kept: Kept, here: str) -> bytes:
    """Return the text of a plan made `here`; raise `NotSerialisable` if it does not come back from that."""
    writer = HopRows(asked.roots, _RECORDS)
    known = len(writer.rows)
    plan = kept.plan.steps, kept.plan.outputs
    told = [writer.encode(part) for part in (plan, kept.given, kept.spelling, kept.searched)]
    text = json.dumps([here, writer.rows[known:], *told], separators=(",", ":")).encode()
    if read(asked, text, here) != kept:
        raise NotSerialisable("a plan is not the same when it is read")
    return text


def read(asked: Asked, text: bytes, here: str) -> Kept | None:
    """Return the plan that was written down; None if it was made elsewhere, or is not to be understood."""
    try:
        place, rows, *told = json.loads(text)
        if place != here:
            return None
        hops = hops_from_rows(rows, asked.roots)
        plan, given, spelling, searched = (decode_value(part, hops, _RECORDS) for part in told)
    except (ArithmeticError, AttributeError, InternalError, LookupError, TypeError, ValueError):
        return None
    found = Kept(Plan(*plan), given, spelling, searched)
    return found if _answers(asked, found) else None


def _answers(asked: Asked, kept: Kept) -> bool:
    """Tell whether a plan makes values like those asked for."""
    return len(kept.plan.outputs) == len(asked.roots) and all(
        made.meta.shape == root.meta.shape and (made.meta.dtype == root.meta.dtype or out is not None)
        for made, root, out in zip(kept.plan.outputs, asked.roots, asked.outs, strict=True))
