"""From chosen kernels to the steps of a plan.

Knows: the records of kernels, in which order steps run. Must not know: prices, why a kernel was chosen.
Receives the memo table and candidates; returns steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from jitla.fusion.candidates import CALL, LOOP, Candidate, Candidates
from jitla.fusion.kernel import ALONE, PAIRS, Call, Kernel, Product, RowKernel, Step, data_inputs
from jitla.fusion.memo import Memo, members
from jitla.fusion.pairs import by_pairs
from jitla.fusion.rows import is_row_view, product_at
from jitla.hops import Hop

PlanStages = Callable[[Sequence[Hop], frozenset[Hop], Mapping[Hop, Product]], list[Step]]


def step_of(candidate: Candidate, kernels: Candidates, plan_stages: PlanStages) -> Step | None:
    """Write one candidate down; None if its rows cannot be computed by loops over blocks of rows."""
    memo = kernels.memo
    if candidate.form == CALL:
        hop = memo.hops(candidate.results)[0]
        return Call(hop, memo.facts.reason(hop) or "order of summation")
    if candidate.form == LOOP:
        return kernels.kernel(candidate.results, candidate.body)
    return _row_kernel(candidate, memo, plan_stages)


def _row_kernel(candidate: Candidate, memo: Memo, plan_stages: PlanStages) -> RowKernel | None:
    """Write a row kernel down: its stages are products and the loops planned for all between them."""
    body = memo.hops(candidate.body)
    rows = memo.rows[candidate.results.bit_length() - 1]
    inside = frozenset(body)
    outputs = tuple(memo.hops(candidate.results))
    products = {h: p for h in body if (p := product_at(h, memo.facts)) is not None}
    given = frozenset(i for h in body for i in memo.inputs(h) if i not in inside)
    asked = dict.fromkeys((*outputs, *(i for p in products.values() for i in p.inputs if i in inside)))
    stages: list[Kernel | Product] = []
    views: list[Hop] = []
    for step in in_turn([*products.values(), *plan_stages(tuple(asked), given, products)], outputs):
        if isinstance(step, (Kernel, Product)):
            stages.append(step)
        elif isinstance(step, Call) and is_row_view(step.hop):
            views.append(step.hop)
        else:
            return None
    inputs = tuple(dict.fromkeys(
        i for s in (*stages, *(Call(v) for v in views)) for i in s.inputs if i in given))
    axes = tuple(_axis(i, rows, stages, views) for i in inputs)
    return None if -1 in axes else RowKernel(rows, tuple(stages), tuple(views), inputs, axes, outputs)


def _axis(
    value: Hop, rows: int, stages: Iterable[Kernel | Product], views: Iterable[Hop]
) -> int | None:
    """Return along which axis of an input the rows lie, None if every block reads all of it.

    -1 if it is read in several ways.
    """
    found: set[int | None] = set()
    for stage in stages:
        if isinstance(stage, Product) and stage.form in ALONE:
            found |= {0} if value in stage.inputs else set()
        elif isinstance(stage, Product) and stage.form == PAIRS:
            if value in stage.inputs:
                found.add(0 if by_pairs(value, stage.hop) else None)
        elif isinstance(stage, Product) and stage.compressed:
            if value in stage.inputs:
                by_rows = value is stage.inputs[2] or value is stage.vector and stage.form == "sum"
                found.add(0 if by_rows else None)
        elif isinstance(stage, Product):
            if value is stage.matrix:
                found.add(1 if stage.turned else 0)
            if value is stage.vector:
                found.add(0 if stage.form == "sum" else None)
        elif value in stage.inputs:
            by_rows = value.meta.ndim == len(stage.shape) and value.meta.shape[:1] == (rows,)
            found.add(0 if by_rows else None)
    found |= {0 for v in views if value in v.inputs}
    return found.pop() if len(found) == 1 else -1


def calls_for(memo: Memo, values: int) -> list[Call]:
    """Return the NumPy calls that make `values`."""
    return [Call(h, memo.facts.reason(h)) for h in memo.hops(values)]


def in_turn(steps: Iterable[Step | Product], roots: Sequence[Hop]) -> list[Any]:
    """Return the steps that `roots` need, operands first, values used soon after they are made.

    What a call reads through a view that nobody planned is a call, too.
    """
    makes: dict[Hop, Step | Product] = {h: s for s in steps for h in s.outputs}
    for step in list(makes.values()):
        _add_views(step, makes)
    order: list[Step | Product] = []
    seen: set[int] = set()
    stack = [(makes[r], False) for r in reversed(roots) if r in makes]
    while stack:
        step, done = stack.pop()
        if done:
            order.append(step)
        elif id(step) not in seen:
            seen.add(id(step))
            stack.append((step, True))
            stack += [(makes[i], False) for i in reversed(step.inputs) if i in makes]
    return order


def _add_views(step: Step | Product, makes: dict[Hop, Step | Product]) -> None:
    if not isinstance(step, Call):
        return
    for operand in data_inputs(step.hop):
        if operand not in makes and operand.op.name == "transpose":
            makes[operand] = Call(operand, "not element-wise")


def uncovered(memo: Memo, kernels: Sequence[Candidate]) -> int:
    """Return the computed values that no kernel makes and only a call can."""
    made = 0
    for candidate in kernels:
        made |= candidate.results
    found = 0
    for i in members(memo.computed & ~made):
        if memo.is_call(i) and memo.values[i] not in memo.made:
            found |= 1 << i
    return found
