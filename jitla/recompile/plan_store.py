"""Plans as JSON text and back, for other processes, and the protocol of stores (on disk: `DiskPlanStore`).

Hops of the request are referred to by number; only those made by rewrites are written. A plan that is not
equal after reading it back is not stored.
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


class PlanStore(Protocol):
    """A store of texts between processes; it never fails."""

    def get(self, words: str) -> bytes | None:
        """Return the text of `words`, or None."""
        ...

    def put(self, words: str, text: bytes) -> None:
        """Store `text` under `words`."""
        ...


class PlanRequest(Protocol):
    """What a program is made for: roots, layouts of leaves, slots of results, aliasing."""

    @property
    def roots(self) -> tuple[Hop, ...]: ...

    @property
    def layouts(self) -> Mapping[int, tuple[tuple[int, ...], tuple[int, ...]]]: ...

    @property
    def outs(self) -> tuple[int | None, ...]: ...

    @property
    def aliases(self) -> frozenset[tuple[int, int, int]]: ...


class StoredPlan(NamedTuple):
    """What a program is made of; `traced_roots` are the roots before rewrites."""

    plan: Plan
    traced_roots: tuple[Hop, ...]
    expansion: Expansion | None
    found_by_search: bool


def hop_numbers(request: PlanRequest, hops: Collection[Hop]) -> list[int]:
    """Return the numbers of those of `hops` that `request` consists of."""
    return [n for n, hop in enumerate(topo(request.roots)) if hop in hops]


def serialise_plan(request: PlanRequest, plan_data: StoredPlan, environment: str) -> bytes:
    """Return the text of a plan made in `environment`; raise `NotSerialisable` if it does not round-trip."""
    writer = HopRows(request.roots, _RECORDS)
    request_rows = len(writer.rows)
    plan = plan_data.plan.steps, plan_data.plan.outputs
    fields = [writer.encode(part) for part in (
        plan, plan_data.traced_roots, plan_data.expansion, plan_data.found_by_search)]
    text = json.dumps([environment, writer.rows[request_rows:], *fields], separators=(",", ":")).encode()
    if parse_plan(request, text, environment) != plan_data:
        raise NotSerialisable("a plan is not the same when it is read")
    return text


def parse_plan(request: PlanRequest, text: bytes, environment: str) -> StoredPlan | None:
    """Return the plan of a text; None if it was made in another environment, or is damaged."""
    try:
        made_in, rows, *fields = json.loads(text)
        if made_in != environment:
            return None
        hops = hops_from_rows(rows, request.roots)
        plan, roots, expansion, found_by_search = (decode_value(part, hops, _RECORDS) for part in fields)
    except (ArithmeticError, AttributeError, InternalError, LookupError, TypeError, ValueError):
        return None
    plan_data = StoredPlan(Plan(*plan), roots, expansion, found_by_search)
    return plan_data if _matches_request(request, plan_data) else None


def _matches_request(request: PlanRequest, plan_data: StoredPlan) -> bool:
    """Return whether a plan computes values of the shapes and dtypes requested."""
    return len(plan_data.plan.outputs) == len(request.roots) and all(
        output.meta.shape == root.meta.shape and (output.meta.dtype == root.meta.dtype or out is not None)
        for output, root, out in zip(plan_data.plan.outputs, request.roots, request.outs, strict=True))
