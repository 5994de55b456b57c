"""Every legal plan of a small DAG, from the definitions of the templates: `python -m tests.fusion.every`.

A step is a call, or a kernel: a set of values it computes, and of these the ones it writes. What is
legal is said here anew, as the docstrings of `Template`, `Kernel` and `RowKernel` say it. Results that
read nothing in common share a loop only where related ones would wait for each other: a plan is right if
it costs no more than the best without such loops, and no less than the best of all.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator, Sequence
from itertools import combinations
from math import inf
from typing import NamedTuple

from jitla.fusion import (
    CELL,
    MAGG,
    CostModel,
    Facts,
    Kernel,
    all_layouts,
    data_inputs,
    geometry,
    reduces_rows,
)
from jitla.fusion.candidates import Candidates
from jitla.fusion.enumeration import partitions
from jitla.fusion.memo import (
    Memo,
    members,
)
from jitla.fusion.planner import search_all
from jitla.fusion.templates import (
    MIN_ORDERED_BYTES,
    is_row_view,
    iteration_space,
    product_of,
    row_links,
    rows_of,
)
from jitla.hops import REFERENCE_MACHINE, Hop, Kind
from tests.fusion.dags import joined_dag, random_dag

Values = frozenset[Hop]
TIE = 1e-9  # of costs: what differs by less differs by rounding


class Step(NamedTuple):
    """Something that makes `results` once `needs` are there."""

    results: Values
    needs: Values
    seconds: float


def read_by(hop: Hop, facts: Facts) -> tuple[Hop, ...]:
    """Return the values that `hop` reads: a product reads the matrix behind a transpose."""
    product = product_of(hop, facts)
    return product.inputs if product is not None else data_inputs(hop)


def readers_end(body: Values, facts: Facts) -> Values:
    """Return the values of `body` that nothing in it reads."""
    return body - {o for h in body for o in read_by(h, facts)}


def is_loop(body: Values, results: Values, order: Sequence[Hop], facts: Facts) -> bool:
    """One loop: element-wise hops and aggregates over one space, in NumPy's order; aggregates end it."""
    if len({iteration_space(h) for h in body}) != 1 or any(facts.reason(h) for h in body):
        return False
    aggregates = [h for h in body if h.op.kind is Kind.AGG]
    for h in body:
        for o in set(h.inputs) & body:
            if o.op.kind is not Kind.CELL or o.meta.shape != iteration_space(h):
                return False
    if any(not MAGG.merge(a, b) for a, b in combinations(aggregates, 2)):
        return False
    if not aggregates:
        return True
    hops = [h for h in order if h in body]
    inputs = tuple(dict.fromkeys(o for h in hops for o in h.inputs if o not in body))
    outputs = tuple(h for h in order if h in results)
    name = MAGG.name if any(h.op.kind is Kind.AGG for h in outputs) else CELL.name
    kernel = Kernel(name, iteration_space(hops[0]), inputs, tuple(hops), outputs)
    return geometry(kernel, kernel.shape, facts.layouts) is not None


def by_rows(hop: Hop, facts: Facts) -> int:
    """Return over how many rows `hop` is computed: an aggregate has to add up in NumPy's order.

    Where that is one row after the other, it goes on from block to block.
    """
    if hop.op.kind is Kind.AGG:
        kernel = Kernel(MAGG.name, iteration_space(hop), hop.inputs, (hop,), (hop,))
        walked = geometry(kernel, kernel.shape, facts.layouts)
        if walked is None or goes_on(hop, facts) and walked[0].mode != "cols":
            return 0
    return rows_of(hop, facts)


def goes_on(hop: Hop, facts: Facts) -> bool:
    """Tell whether blocks of rows are added to `hop` in turn: no product with a wide matrix is in them."""
    large = hop.inputs[0].meta.nbytes >= MIN_ORDERED_BYTES
    return reduces_rows(hop) and large and not facts.wide.get(hop.inputs[0], False)


def sums_blocks(hop: Hop, facts: Facts) -> bool:
    """Tell whether several blocks of rows make a partial result, or meet a wide matrix."""
    product = product_of(hop, facts)
    return product is not None and (product.form == "sum" or product.wide)


def is_by_rows(body: Values, results: Values, facts: Facts) -> bool:
    """Loops over blocks of rows: every value has the same rows, and is read by rows or not made inside."""
    rows = {by_rows(h, facts) for h in body}
    if any(goes_on(h, facts) for h in body) and any(sums_blocks(h, facts) for h in body):
        return False
    if len(rows) != 1 or 0 in rows or any(is_row_view(h) for h in results):
        return False
    ways: dict[Hop, set[str]] = {}
    for h in body:
        product = product_of(h, facts)
        for o in read_by(h, facts):
            if o.meta.shape != ():
                turned = product is not None and product.transposed and o is product.matrix
                way = "across" if turned else "along" if o in row_links(h, facts) else "whole"
                ways.setdefault(o, set()).add(way)
    for o, found in ways.items():
        made = product_of(o, facts)
        if len(found) > 1 or o in body and (
                found != {"along"} or reduces_rows(o) or made is not None and made.form == "sum"):
            return False
    return True


class Every:
    """All legal steps of a DAG, and the cheapest plan made of them."""

    def __init__(self, roots: Sequence[Hop], kernels: Candidates) -> None:
        self.memo, self.kernels = kernels.memo, kernels
        self.facts = kernels.memo.facts
        self.order = [h for h in self.memo.values if h.inputs]
        self.roots = frozenset(h for h in roots if h.inputs)
        self.steps: dict[Hop, list[Step]] = {h: [] for h in self.order}
        for step in (*self._calls(), *self._kernels()):
            for h in step.results:
                self.steps[h].append(step)
        for some in self.steps.values():
            some.sort(key=lambda s: s.seconds)
        self.best, self.related = inf, True

    def _calls(self) -> Iterator[Step]:
        """NumPy makes what no loop can make alone; for one operator that could be a loop it is not asked."""
        for h in self.order:
            alone = frozenset([h])
            if not self.facts.reason(h) and is_loop(alone, alone, self.order, self.facts):
                continue
            seconds = self.kernels.cost_model.call(h)
            needs = frozenset(o for o in data_inputs(h) if o.inputs)
            yield Step(frozenset([h]), needs & set(self.order), seconds)

    def _kernels(self) -> Iterator[Step]:
        hops = [h for h in self.order if not self.facts.reason(h) or by_rows(h, self.facts)]
        for n in range(1, len(hops) + 1):
            for some in combinations(hops, n):
                body = frozenset(some)
                if len({by_rows(h, self.facts) for h in body}) == 1 or \
                        len({iteration_space(h) for h in body}) == 1:
                    yield from self._written(body)

    def _written(self, body: Values) -> Iterator[Step]:
        totals = {h for h in body if h.op.kind is Kind.AGG and not by_rows(h, self.facts)}
        ends = readers_end(body, self.facts) | totals
        needs = frozenset(o for h in body for o in read_by(h, self.facts) if o.inputs) - body
        behind = self._below(needs)
        inner = [h for h in body if h not in ends]
        for n in range(len(inner) + 1):
            for more in combinations(inner, n):
                results = ends.union(more)
                if behind & results:
                    continue
                form = "loop" if is_loop(body, results, self.order, self.facts) else \
                    "row" if is_by_rows(body, results, self.facts) else ""
                if form:
                    made, values = self.memo.set(results), self.memo.set(body)
                    terms = self.kernels.terms(made, values, form)
                    if terms is not None:
                        yield Step(results, needs, self.kernels.cost(terms, made, values, form).total)

    def _below(self, hops: Values) -> Values:
        found = set(hops)
        stack = list(hops)
        while stack:
            new = [o for o in stack.pop().inputs if o not in found]
            found.update(new)
            stack += new
        return frozenset(found)

    def run(self, related: bool = True) -> float:
        """Return the seconds of the cheapest plan; with `related`, of those of loops over related results."""
        self.best, self.related = inf, related
        self._choose(self.roots, frozenset(), (), 0.0)
        return self.best

    def _choose(self, needed: Values, made: Values, steps: tuple[Step, ...], cost: float) -> None:
        if cost >= self.best * (1 - 1e-12):
            return
        open_ = needed - made
        if not open_:
            if self._runs(steps) and (not self.related or self._related(steps, made)):
                self.best = cost
            return
        last = max(open_, key=self.memo.number.__getitem__)
        for step in self.steps[last]:
            if not step.results & made:
                self._choose(needed | step.needs, made | step.results, (*steps, step), cost + step.seconds)

    def _related(self, steps: Sequence[Step], made: Values) -> bool:
        """Tell whether kernels have results that read arrays in common, if only by way of other results."""
        parts: list[tuple[set[Hop], set[object]]] = []
        for h in made:
            spaces = {("loop", iteration_space(h))} if not self.facts.reason(h) else set()
            if by_rows(h, self.facts):
                spaces.add(("rows", by_rows(h, self.facts)))
            own, touched = {h}, {(s, self._memory(o)) for s in spaces for o in self._touched(h, made)}
            for part in [p for p in parts if p[1] & touched]:
                parts.remove(part)
                own |= part[0]
                touched |= part[1]
            parts.append((own, touched))
        return all(any(s.results <= own for own, _ in parts) for s in steps)

    def _memory(self, hop: Hop) -> Hop:
        return hop.inputs[0] if is_row_view(hop) else hop

    def _touched(self, hop: Hop, made: Values) -> Values:
        """Return what a kernel for `hop` alone computes, and the arrays it reads."""
        found, stack = {hop}, [hop]
        while stack:
            h = stack.pop()
            for o in read_by(h, self.facts):
                loop = not self.facts.reason(h) and o.op.kind is Kind.CELL and \
                    o.meta.shape == iteration_space(h)
                rows = by_rows(h, self.facts) and by_rows(o, self.facts) == by_rows(h, self.facts)
                if o.meta.shape != () and o not in found:
                    found.add(o)
                    linked = rows and o in row_links(h, self.facts)
                    if o not in made and (loop and not self.facts.reason(o) or linked):
                        stack.append(o)
        return frozenset(found)

    def _runs(self, steps: Sequence[Step]) -> bool:
        """Tell whether some order of the steps makes everything before it is read."""
        known: Values = frozenset()
        left = list(steps)
        while ready := [s for s in left if s.needs <= known]:
            known = known.union(*(s.results for s in ready))
            left = [s for s in left if s not in ready]
        return not left


class Compared(NamedTuple):
    """Operators of a DAG; seconds of its plan, of the best of related results, and of the best of all."""

    operators: int
    planned: float
    related: float
    every: float

    @property
    def dearer(self) -> bool:
        """Tell whether the search has missed a plan."""
        return self.planned > self.related * (1 + TIE)

    @property
    def cheaper(self) -> bool:
        """Tell whether a plan has been missed here."""
        return self.planned < self.every * (1 - TIE)


def compare(seed: int, most: int) -> Compared | None:
    """Plan a random DAG both ways; None if it is larger."""
    rng = random.Random(seed)
    roots, layouts = rng.choice((random_dag, joined_dag))(rng, rng.randint(2, most))
    facts = Facts(lambda hop: None, all_layouts(roots, layouts))
    memo = Memo(roots, facts)
    operators = memo.computed.bit_count()
    if not 2 <= operators <= most:
        return None
    kernels = Candidates(memo, CostModel(REFERENCE_MACHINE, facts.layouts))
    found = search_all(partitions(memo, kernels), memo, kernels)
    made = 0
    for f in found:
        for c in f.kernels:
            made |= c.results
    planned = sum(f.seconds for f in found) + sum(
        kernels.cost_model.call(memo.values[i]) for i in members(memo.computed & ~made) if memo.is_call(i))
    every = Every(roots, kernels)
    related = every.run()
    below = planned < related * (1 - TIE)
    return Compared(operators, planned, related, every.run(related=False) if below else related)


def main() -> int:
    """Compare as many DAGs as asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dags", type=int, default=1000)
    parser.add_argument("--operators", type=int, default=8)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()
    done: list[Compared] = []
    gaps: list[tuple[int, Compared]] = []
    seed = given.first
    while len(done) < given.dags:
        found = compare(seed, given.operators)
        if found is not None:
            done.append(found)
            if found.dearer or found.cheaper:
                gaps.append((seed, found))
        seed += 1
    unrelated = sum(c.planned < c.related * (1 - TIE) for c in done)
    sys.stdout.write(
        f"{len(done)} DAGs of {sum(c.operators for c in done) / len(done):.1f} operators: {len(gaps)} gaps; "
        f"{unrelated} plans with a loop of unrelated results\n  {gaps[:20]}\n")
    return bool(gaps)


if __name__ == "__main__":
    sys.exit(main())
