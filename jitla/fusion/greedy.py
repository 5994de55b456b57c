"""A provisional choice of plan: fuse whatever may be fused, once, without recomputing anything.

Knows: templates, borders between loops, what a value written to memory costs. Must not know: backends.
Receives roots, leaf layouts and the backend's verdicts; returns a `Plan`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from jitla.fusion.graph import Graph
from jitla.fusion.kernel import Call, Kernel, Plan, Step
from jitla.fusion.layout import Layout
from jitla.fusion.results import all_layouts
from jitla.fusion.rows import row_kernels
from jitla.fusion.templates import CELL, MAGG, Facts, iteration, template_of
from jitla.hops import Hop, Kind

MAX_ARRAYS = 24  # distinct arrays one loop reads: beyond, pointers spill and streams compete
MAX_BODY = 200  # hops in one loop: bounds compile time


def plan(
    roots: Sequence[Hop],
    layouts: Mapping[int, Layout],
    backend_supports: Callable[[Hop], str | None],
    machine: object = None,
) -> Plan:
    """Choose which hops share a loop; `layouts` are those of the array leaves, by slot."""
    roots = tuple(roots)
    facts = Facts(backend_supports, all_layouts(roots, layouts))
    rows = row_kernels(roots, facts, lambda *inner: _steps(Graph(inner[0], facts, *inner[1:])))
    graph = Graph(roots, facts, made={h: kernel for kernel in rows for h in kernel.outputs})
    return Plan(_in_order([*rows, *_steps(graph)], roots), roots)


def _steps(graph: Graph) -> list[Step]:
    """Return steps, in no particular order, for all of `graph` but what row kernels make."""
    _sink(graph)
    steps: list[Step] = []
    for hops in graph.groups():
        for part in _parts(hops, graph):
            steps += _close(part, graph)
    calls = [h for h in graph.order if graph.is_call(h) and h not in graph.made]
    return steps + [Call(h, graph.facts.reason(h)) for h in calls]


# ------------------------------------------------------------------------------ borders


def _sink(graph: Graph) -> None:
    """Move cells that only later loops use into those loops, where that saves memory traffic."""
    for hop in reversed(graph.order):
        users = graph.users[hop]
        if hop.op.kind is not Kind.CELL or graph.is_given(hop) or graph.is_call(hop):
            continue
        if hop in graph.roots or not users:
            continue
        lowest = min(graph.level[u] for u in users)
        if lowest == graph.level[hop] or not all(graph.joins(u, hop) for u in users):
            continue
        if _cost_of_sinking(hop, graph) <= 2 * hop.meta.nbytes:
            graph.level[hop] = lowest


def _cost_of_sinking(hop: Hop, graph: Graph) -> int:
    """Bytes moved because the later loop computes `hop` itself: its arrays are read there."""
    cost = 0
    for operand in dict.fromkeys(hop.inputs):
        if operand.meta.shape != hop.meta.shape:
            continue
        if graph.is_given(operand) or not graph.together(hop, operand):
            cost += operand.meta.nbytes
        elif _stays(operand, graph):
            cost += 3 * operand.meta.nbytes  # would have to be written too, for a like saving
    return cost


def _stays(hop: Hop, graph: Graph) -> bool:
    """Tell whether a cell is needed in its own loop and nowhere in memory so far."""
    users = graph.users[hop]
    here = [u for u in users if graph.together(u, hop)]
    written = hop in graph.roots or len(here) < len(users)
    return not written and len(here) > 1


# ------------------------------------------------------------------------------ one group


def _parts(hops: list[Hop], graph: Graph) -> list[list[Hop]]:
    """Split a group into loops that share an array or a value, each of bounded size."""
    parent: dict[Hop, Hop] = {}

    def find(hop: Hop) -> Hop:
        while parent.setdefault(hop, hop) is not hop:
            parent[hop] = hop = parent[parent[hop]]
        return hop

    for hop in hops:
        for operand in hop.inputs:
            if operand.meta.shape != ():
                parent[find(operand)] = find(hop)
    found: dict[Hop, list[Hop]] = {}
    for hop in hops:
        found.setdefault(find(hop), []).append(hop)
    return [chunk for part in found.values() for chunk in _chunks(part)]


def _chunks(hops: list[Hop]) -> list[list[Hop]]:
    """Cut a part, operands first, where it would read too many arrays or grow too long."""
    chunks: list[list[Hop]] = [[]]
    inside: set[Hop] = set()
    arrays: set[Hop] = set()
    for hop in hops:
        new = {i for i in hop.inputs if i.meta.shape != () and i not in inside}
        if len(arrays | new) > MAX_ARRAYS or len(chunks[-1]) >= MAX_BODY:
            chunks.append([])
            inside, arrays = set(), {i for i in hop.inputs if i.meta.shape != ()}
        arrays |= new
        chunks[-1].append(hop)
        inside.add(hop)
    return chunks


def _close(part: list[Hop], graph: Graph) -> list[Step]:
    """Turn a part into steps: aggregates first with the cells they need, then the other cells.

    A later step of a part may read what an earlier one writes, never the other way round: the cells
    in front of an aggregate are taken with all that is in front of them.
    """
    loops: list[list[Hop]] = []
    left = list(part)
    late: list[Hop] = []
    for bucket in _buckets(part):
        body, failed = _grow(bucket, left, graph)
        late += failed
        if body:
            loops.append(body)
            left = [h for h in left if h not in set(body)]
    cells = [h for h in left if h.op.kind is Kind.CELL]
    if cells and loops and _runs(joined := _sorted(loops[-1] + cells, graph), graph):
        loops[-1] = joined
    elif cells:
        loops.append(cells)
    return [_kernel(body, graph) for body in loops] + _close_late(late, graph)


def _buckets(hops: Iterable[Hop]) -> list[list[Hop]]:
    """Aggregates by what may share a loop, the largest set first."""
    found: list[list[Hop]] = []
    for hop in hops:
        if hop.op.kind is Kind.AGG:
            for bucket in found:
                if all(MAGG.merge(other, hop) for other in bucket):
                    bucket.append(hop)
                    break
            else:
                found.append([hop])
    return sorted(found, key=len, reverse=True)


def _grow(bucket: list[Hop], left: list[Hop], graph: Graph) -> tuple[list[Hop], list[Hop]]:
    """Return the largest loop found for the aggregates of `bucket`, and those that do not fit."""
    body: set[Hop] = set()
    failed: list[Hop] = []
    free = set(left)
    for hop in bucket:
        wider = body | _cone(hop, free, graph)
        if _runs(_sorted(wider, graph), graph):
            body = wider
        else:
            failed.append(hop)
    return _sorted(body, graph), failed


def _cone(hop: Hop, free: set[Hop], graph: Graph) -> set[Hop]:
    """Return `hop` and everything of `free` that its loop has to compute."""
    cone = {hop}
    stack = [hop]
    while stack:
        for operand in stack.pop().inputs:
            if operand in free and operand not in cone:
                cone.add(operand)
                stack.append(operand)
    return cone


def _close_late(late: list[Hop], graph: Graph) -> list[Step]:
    """Aggregates split off: they read their operand from memory, in a loop if that runs, else by NumPy."""
    steps: list[Step] = []
    for bucket in _buckets(late):
        body, failed = _grow(bucket, [], graph)
        if body:
            steps.append(_kernel(body, graph))
        steps += [Call(h, "order of summation") for h in failed]
    return steps


def _runs(body: list[Hop], graph: Graph) -> bool:
    """Tell whether a loop over `body` gives NumPy's bits."""
    return template_of(body[-1]).walk(_kernel(body, graph), graph.facts.layouts) is not None


def _sorted(hops: Iterable[Hop], graph: Graph) -> list[Hop]:
    return sorted(hops, key=graph.place.__getitem__)


def _kernel(body: Sequence[Hop], graph: Graph) -> Kernel:
    """Write down the loop over `body`: what it reads from outside, what others need of it."""
    inside = set(body)
    inputs = dict.fromkeys(i for h in body for i in h.inputs if i not in inside)
    outputs = tuple(
        h for h in body
        if h in graph.roots or h.op.kind is Kind.AGG or any(u not in inside for u in graph.users[h])
    )
    name = MAGG.name if any(h.op.kind is Kind.AGG for h in outputs) else CELL.name
    return Kernel(name, iteration(body[0]), tuple(inputs), tuple(body), outputs)


# ------------------------------------------------------------------------------ order of steps


@dataclass(slots=True)
class _Visit:
    step: Step
    done: bool


def _in_order(steps: Iterable[Step], roots: Sequence[Hop]) -> tuple[Step, ...]:
    """Order steps so that operands come first and values are used soon after they are made."""
    makes = {h: s for s in steps for h in s.outputs}
    order: list[Step] = []
    seen: set[int] = set()
    stack = [_Visit(makes[r], False) for r in reversed(roots) if r in makes]
    while stack:
        visit = stack.pop()
        if visit.done:
            order.append(visit.step)
        elif id(visit.step) not in seen:
            seen.add(id(visit.step))
            stack.append(_Visit(visit.step, True))
            stack += [_Visit(makes[i], False) for i in reversed(visit.step.inputs) if i in makes]
    return tuple(order)
