"""Builds the plan of a DAG by fusion search or a fixed fusion rule, with a plan cache and a memory limit."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from heapq import heappop, heappush
from itertools import count
from math import inf, isinf
from typing import Any

from jitla.classes import dataclass
from jitla.fusion.bounds import has_cycle
from jitla.fusion.candidates import CALL, LOOP, Candidate, Candidates
from jitla.fusion.cost_model import CostModel, peak_bytes
from jitla.fusion.enumeration import (
    BUDGET,
    STAGE_BUDGET,
    EnumerationResult,
    Partition,
    Search,
    partitions,
    store_until_legal,
)
from jitla.fusion.kernel import (
    PAIRS,
    ROWWISE_FORMS,
    Call,
    Kernel,
    Plan,
    Product,
    RowKernel,
    Step,
    data_inputs,
)
from jitla.fusion.layout import Layout, all_layouts, contiguous
from jitla.fusion.memo import TEMPLATES, Memo, members
from jitla.fusion.template_window import fuse_windows
from jitla.fusion.templates import CELL, MAGG, ROW, Facts, has_own_matrices, is_row_view, product_of
from jitla.hops import REFERENCE_MACHINE, Hop, Kind, Machine

MAX_CACHED_PARTITIONS = 512


@dataclass(frozen=True, slots=True)
class _CachedPlan:
    """A cached plan, in numbers relative to its partition: stored values, results and bodies of kernels."""

    stored: int
    kernels: tuple[tuple[int, int], ...]
    budget_exhausted: bool


class PartitionCache:
    """An LRU cache of the plans of partitions, for programs of one machine and one set of options."""

    def __init__(self, limit: int = MAX_CACHED_PARTITIONS) -> None:
        self.limit = limit
        self.hits = 0
        self._plans: OrderedDict[Hashable, _CachedPlan] = OrderedDict()

    def __len__(self) -> int:
        return len(self._plans)

    def lookup(
        self, key: Hashable, order: Sequence[int], partition: Partition, kernels: Candidates,
    ) -> EnumerationResult | None:
        """Return the plan cached for `key`, None on a miss, or if it is illegal for these sizes."""
        cached = self._plans.get(key)
        if cached is None:
            return None
        self._plans.move_to_end(key)
        stored = _renumber(cached.stored, order)
        memory = kernels.in_memory(stored)
        candidates = tuple(kernels.evaluate(_renumber(results, order), _renumber(body, order), memory)
                     for results, body in cached.kernels)
        seconds = sum(k.seconds for k in candidates)
        if isinf(seconds):
            return None
        self.hits += 1
        return EnumerationResult(
            partition, seconds, stored, candidates, budget_exhausted=cached.budget_exhausted,
            from_cache=True)

    def store(self, key: Hashable, order: Sequence[int], result: EnumerationResult) -> None:
        """Cache a plan; evict the least recently used one beyond the limit."""
        position = {i: n for n, i in enumerate(order)}

        def renumber(values: int) -> int:
            return sum([1 << position[i] for i in members(values)])

        kernel_sets = tuple((renumber(k.results), renumber(k.body)) for k in result.kernels)
        self._plans[key] = _CachedPlan(renumber(result.chosen), kernel_sets, result.budget_exhausted)
        if len(self._plans) > self.limit:
            self._plans.popitem(last=False)


def _renumber(values: int, order: Sequence[int]) -> int:
    return sum([1 << order[n] for n in members(values)])


def partition_key(partition: Partition, memo: Memo, kernels: Candidates) -> tuple[Hashable, list[int]]:
    """Return a key of all that the plan of a partition depends on, and its values in key order."""
    order = list(members(partition.values))
    number = {i: n for n, i in enumerate(order)}
    dims: dict[int, int] = {}
    sources: dict[int, int] = {}
    key: list[Hashable] = [
        kernels.in_cache, kernels.with_rows, tuple(t.name for t in memo.templates),
        int(kernels.cost_model.footprint).bit_length()]
    for i in order:
        for o in members(memo.operands[i] & ~partition.values):
            if o not in number:
                number[o] = len(number)
                ancestors = memo.ancestors[o] & partition.values
                key.append((
                    number[o], memo.computed >> o & 1, memo.values[o].op.kind is Kind.LEAF,
                    _layout_key(memo.values[o], memo, dims), _source_number(memo.source_set(1 << o), sources),
                    tuple(number[b] for b in members(ancestors))))
        hop = memo.values[i]
        key.append((
            hop.op.name, hop.attrs, memo.forced >> i & 1, i in partition.points, memo.views >> i & 1,
            tuple(number[memo.number[o]] for o in memo.inputs(hop)), _layout_key(hop, memo, dims),
            tuple(number[o] for o in members((memo.loop_operands[i] or 0) & partition.values)),
            memo.loop_operands[i] is None,
            tuple(number[o] for o in members((memo.row_operands[i] or 0) & partition.values)),
            memo.row_operands[i] is None,
            _source_number(memo.source_set(1 << i), sources)))
    return tuple(key), order


def _source_number(source: int, sources: dict[int, int]) -> int:
    return sources.setdefault(source, len(sources))


def _layout_key(hop: Hop, memo: Memo, dims: dict[int, int]) -> Hashable:
    """Return dtype, sizes and strides of a value: sizes by identity and power of two."""
    shape, layout = hop.meta.shape, memo.facts.layouts[hop]
    size = hop.meta.dtype.itemsize
    strides: Hashable = layout == contiguous(shape, size) or tuple(
        (s > 0, s == size, abs(s).bit_length()) for s in layout.strides)
    sizes = tuple((dims.setdefault(n, len(dims)), n.bit_length(), n == 1) for n in shape)
    return hop.meta.dtype.str, sizes, strides


def search_all(
    parts: Sequence[Partition], memo: Memo, kernels: Candidates, budget: float = inf,
    partition_cache: PartitionCache | None = None,
) -> list[EnumerationResult]:
    """Search every partition; those whose kernels depend on each other in a cycle are searched as one."""
    def search(part: Partition) -> EnumerationResult:
        if partition_cache is None or not part.points:
            return Search(part, memo, kernels, budget).run()
        key, order = partition_key(part, memo, kernels)
        result = partition_cache.lookup(key, order, part, kernels)
        if result is None:
            result = Search(part, memo, kernels, budget).run()
            partition_cache.store(key, order, result)
        return result

    results = [search(p) for p in parts]
    assert not any(isinf(f.seconds) for f in results), "no plan is legal"
    if not has_cycle([c for f in results for c in f.kernels], kernels):
        return results
    joined = [f for f in results if any(c.results & c.results - 1 for c in f.kernels)]
    values, points = 0, list[int]()
    for f in joined:
        values |= f.partition.values
        points += f.partition.points
    union = Partition(values, tuple(sorted(points, key=lambda i: (-kernels.write[i], i))))
    return [*(f for f in results if f not in joined), Search(union, memo, kernels, budget).run()]


PlanStages = Callable[[Sequence[Hop], frozenset[Hop], Mapping[Hop, Product]], list[Step]]


def make_step(candidate: Candidate, kernels: Candidates, plan_stages: PlanStages) -> Step | None:
    """Return the step of a candidate; None if its row kernel cannot be made of loops over blocks of rows."""
    memo = kernels.memo
    if candidate.form == CALL:
        hop = memo.hops(candidate.results)[0]
        return Call(hop, memo.facts.reason(hop) or "order of summation")
    if candidate.form == LOOP:
        return kernels.loop_kernel(candidate.results, candidate.body)
    return _row_kernel(candidate, memo, plan_stages)


def _row_kernel(candidate: Candidate, memo: Memo, plan_stages: PlanStages) -> RowKernel | None:
    """Return a row kernel; its stages are products, and the loops planned for all values between them."""
    body = memo.hops(candidate.body)
    rows = memo.row_counts[candidate.results.bit_length() - 1]
    inside = frozenset(body)
    outputs = tuple(memo.hops(candidate.results))
    products = {h: p for h in body if (p := product_of(h, memo.facts)) is not None}
    external = frozenset(i for h in body for i in memo.inputs(h) if i not in inside)
    wanted = dict.fromkeys((*outputs, *(i for p in products.values() for i in p.inputs if i in inside)))
    stages: list[Kernel | Product] = []
    views: list[Hop] = []
    planned = plan_stages(tuple(wanted), external, products)
    for step in execution_order([*products.values(), *planned], outputs):
        if isinstance(step, (Kernel, Product)):
            stages.append(step)
        elif isinstance(step, Call) and is_row_view(step.hop):
            views.append(step.hop)
        else:
            return None
    inputs = tuple(dict.fromkeys(
        i for s in (*stages, *(Call(v) for v in views)) for i in s.inputs if i in external))
    axes = tuple(_row_axis(i, rows, stages, views) for i in inputs)
    return None if -1 in axes else RowKernel(rows, tuple(stages), tuple(views), inputs, axes, outputs)


def _row_axis(
    value: Hop, rows: int, stages: Iterable[Kernel | Product], views: Iterable[Hop]
) -> int | None:
    """Return the axis of an input that rows are along, None if blocks read all of it, -1 if ambiguous."""
    axes: set[int | None] = set()
    for stage in stages:
        if isinstance(stage, Product) and stage.form in ROWWISE_FORMS:
            axes |= {0} if value in stage.inputs else set()
        elif isinstance(stage, Product) and stage.form == PAIRS:
            if value in stage.inputs:
                axes.add(0 if has_own_matrices(value, stage.hop) else None)
        elif isinstance(stage, Product) and stage.compressed:
            if value in stage.inputs:
                by_rows = value is stage.inputs[2] or value is stage.vector and stage.form == "sum"
                axes.add(0 if by_rows else None)
        elif isinstance(stage, Product):
            if value is stage.matrix:
                axes.add(1 if stage.transposed else 0)
            if value is stage.vector:
                axes.add(0 if stage.form == "sum" else None)
        elif value in stage.inputs:
            by_rows = value.meta.ndim == len(stage.shape) and value.meta.shape[:1] == (rows,)
            axes.add(0 if by_rows else None)
    axes |= {0 for v in views if value in v.inputs}
    return axes.pop() if len(axes) == 1 else -1


def calls_for(memo: Memo, values: int) -> list[Call]:
    """Return the NumPy calls that compute `values`."""
    return [Call(h, memo.facts.reason(h)) for h in memo.hops(values)]


def execution_order(steps: Iterable[Step | Product], roots: Sequence[Hop]) -> list[Any]:
    """Return the steps that `roots` need, operands first, in depth-first order: values are used soon.

    A view that a call reads and no step computes becomes a call, too.
    """
    producers: dict[Hop, Step | Product] = {h: s for s in steps for h in s.outputs}
    for step in list(producers.values()):
        _add_views(step, producers)
    order: list[Step | Product] = []
    seen: set[int] = set()
    stack = [(producers[r], False) for r in reversed(roots) if r in producers]
    while stack:
        step, done = stack.pop()
        if done:
            order.append(step)
        elif id(step) not in seen:
            seen.add(id(step))
            stack.append((step, True))
            stack += [(producers[i], False) for i in reversed(step.inputs) if i in producers]
    return order


def _add_views(step: Step | Product, producers: dict[Hop, Step | Product]) -> None:
    if not isinstance(step, Call):
        return
    for operand in data_inputs(step.hop):
        if operand not in producers and operand.op.name == "transpose":
            producers[operand] = Call(operand, "not element-wise")


def uncovered(memo: Memo, kernels: Sequence[Candidate]) -> int:
    """Return the computed values that no kernel computes and only a call can."""
    covered = 0
    for candidate in kernels:
        covered |= candidate.results
    calls = 0
    for i in members(memo.computed & ~covered):
        if memo.is_call(i) and memo.values[i] not in memo.external:
            calls |= 1 << i
    return calls


MAX_PLANS_TRIED = 400  # under a memory limit, before the one with the least peak is taken

StepWriter = Callable[[Sequence[Candidate]], list[Step] | None]


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """A limit of `nbytes` at a time; the roots in `stored` are written into existing memory."""

    nbytes: int
    roots: tuple[Hop, ...]
    threads: int = 1
    stored: frozenset[Hop] = frozenset()

    def peak_bytes(self, steps: Sequence[Step]) -> float:
        """Return the peak memory of a plan of `steps`; infinity if they depend on each other in a cycle."""
        order = execution_order(steps, self.roots)
        computed = {h for s in steps for h in s.outputs}
        available: set[Hop] = set()
        for step in order:
            if any(h in computed and h not in available for h in step.inputs):
                return inf
            available.update(step.outputs)
        return peak_bytes(order, self.roots, self.threads, self.stored)


def plan_within_limit(
    limit: MemoryLimit, partitions: Sequence[Partition], memo: Memo, kernels: Candidates, write: StepWriter,
) -> list[Step] | None:
    """Return the steps of the cheapest plan within `limit`, else of the one with the least peak.

    `write` makes steps of the kernels of all partitions; it returns None if one of them is not possible.

    Combinations of the partitions' choices are tried best first, each once.
    """
    choices = [_Choices(p, memo, kernels) for p in partitions]

    def evaluate(at: Sequence[int]) -> tuple[float, list[Step] | None]:
        steps = write([c for choice, i in zip(choices, at, strict=True) for c in choice.kernels(i)])
        return (inf, None) if steps is None else (limit.peak_bytes(steps), steps)

    least_peak, best = evaluate([c.least_stored for c in choices])
    start = (0,) * len(choices)
    waiting = [(sum(c.seconds(0) for c in choices), start, 0)]
    for _ in range(MAX_PLANS_TRIED):
        if not waiting:
            break
        seconds, at, first = heappop(waiting)
        peak, steps = evaluate(at)
        if peak <= limit.nbytes:
            return steps
        if peak < least_peak:
            least_peak, best = peak, steps
        for k in range(first, len(choices)):  # from `first` on, so that every combination occurs once
            if at[k] + 1 < len(choices[k].choices):
                added = choices[k].seconds(at[k] + 1) - choices[k].seconds(at[k])
                heappush(waiting, (seconds + added, (*at[:k], at[k] + 1, *at[k + 1:]), k))
    return best


class _Choices:
    """All choices of points of a partition, the cheapest first."""

    def __init__(self, partition: Partition, memo: Memo, kernels: Candidates) -> None:
        self._search = Search(partition, memo, kernels, kernels.evaluated + BUDGET, prune=False)
        result = self._search.run()
        self.choices = sorted((s, c) for c, s in result.costs.items() if not isinf(s))
        self.least_stored = min(range(len(self.choices)), key=lambda i: self.choices[i][1].bit_count())

    def seconds(self, at: int) -> float:
        """Return the cost of choice number `at`."""
        return self.choices[at][0]

    def kernels(self, at: int) -> tuple[Candidate, ...]:
        """Return the kernels of choice number `at`."""
        return self._search.arrange(self.choices[at][1])[1]


RULES = ("none", "patterns", "all", "no-redundancy")

Pattern = tuple["str | Pattern", ...]
ANY = "?"
PATTERNS: tuple[Pattern, ...] = (
    ("add", ANY, ("multiply", ANY, ANY)),
    ("subtract", ANY, ("multiply", ANY, ANY)),
    ("matmul", ANY, ("matmul", ANY, ANY)),
    ("matmul", ANY, ("multiply", ANY, ("matmul", ANY, ANY))),
    ("matmul", ANY, ("subtract", ("matmul", ANY, ANY), ANY)),
    ("sum", ("multiply", ANY, ANY)),
    ("sum", ("multiply", ("multiply", ANY, ANY), ANY)),
    ("sum", ("multiply", ANY, ("log", ANY))),
    ("sum", ("square", ("subtract", ANY, ANY))),
    ("sum", ("power", ("subtract", ANY, ANY), ANY)),
    ("divide", ANY, ("add", ANY, ("exp", ("negative", ANY)))),
    ("multiply", ANY, ("divide", ANY, ("add", ANY, ("exp", ("negative", ANY))))),
)


def values_stored_by_rule(rule: str, memo: Memo) -> int:
    """Return the computed values that a fusion rule stores in memory."""
    if rule == "all":
        return 0
    if rule == "no-redundancy":
        return sum(1 << i for i in members(memo.computed) if memo.users[i].bit_count() > 1)
    inside = 0
    if rule == "patterns":
        for i in sorted(members(memo.computed), reverse=True):
            if not inside >> i & 1:
                inside |= max((_inner(pattern, i, memo) for pattern in PATTERNS), key=int.bit_count)
    return memo.computed & ~inside & ~_casts(memo)


def _casts(memo: Memo) -> int:
    """Return the casts that count as part of the operators reading them, as ufuncs cast their operands."""
    casts = memo.set(h for h in memo.hops(memo.computed) if h.op.name == "cast" and h.meta.shape)
    return sum(1 << i for i in members(casts) if all(
        (memo.loop_operands[u] or 0) >> i & 1 for u in members(memo.users[i])))


def _inner(pattern: Pattern, at: int, memo: Memo) -> int:
    """Return the values inside the pattern that ends in value `at`; none if it does not match."""
    matched = _match(pattern, at, memo)
    return 0 if matched is None else matched & ~(1 << at)


def _match(pattern: str | Pattern, at: int, memo: Memo) -> int | None:
    if isinstance(pattern, str):
        return 0
    hop = memo.values[at]
    if hop.op.name != pattern[0] or not memo.computed >> at & 1:
        return None
    operands = [memo.number[i] for i in hop.inputs if i in memo.number]
    orders = [operands, operands[::-1]] if hop.op.commutes else [operands]
    for order in orders:
        if len(order) == len(pattern) - 1:
            matches = [_match_operand(p, o, at, memo) for p, o in zip(pattern[1:], order, strict=True)]
            if None not in matches:
                return sum(p for p in matches if p is not None) | 1 << at
    return None


def _match_operand(pattern: str | Pattern, operand: int, user: int, memo: Memo) -> int | None:
    """Match an operand; an inner one has no other reader and can be fused."""
    if isinstance(pattern, str):
        return 0
    alone = memo.users[operand] == 1 << user and memo.fusable(user) >> operand & 1
    return _match(pattern, operand, memo) if alone else None


MAX_REPLANS = 4  # searches that chose illegal row kernels, before planning without row kernels


@dataclass(frozen=True, slots=True)
class PlanChoice:
    """A plan, the results of the search of its partitions, and all kernels that were considered."""

    plan: Plan
    results: list[EnumerationResult]
    kernels: Candidates


def plan(
    roots: Sequence[Hop],
    layouts: Mapping[int, Layout],
    backend_supports: Callable[[Hop], str | None],
    machine: Machine = REFERENCE_MACHINE,
    templates: Collection[str] = ("Cell", "MAgg", "Row"),
    fusion: str = "cost",
    limit: int = 0,
    stored: Collection[Hop] = (),
    partition_cache: PartitionCache | None = None,
) -> Plan:
    """Return the plan of `roots`; `layouts` are those of the array leaves, by slot.

    `fusion` is "cost" for the cheapest plan, or the name of a heuristic rule. With `limit` the plan needs at
    most that many bytes, if there is such a plan; the roots `stored` are written into existing memory.
    `partition_cache` has plans of parts of earlier DAGs for the same machine, and is updated.
    """
    return choose_plan(
        roots, layouts, backend_supports, machine, templates, fusion, limit, stored, partition_cache).plan


def choose_plan(
    roots: Sequence[Hop], layouts: Mapping[int, Layout], backend_supports: Callable[[Hop], str | None],
    machine: Machine, templates: Collection[str], fusion: str, limit: int = 0,
    stored: Collection[Hop] = (), partition_cache: PartitionCache | None = None,
) -> PlanChoice:
    """Return the plan of `plan` with the search that led to it."""
    roots = tuple(roots)
    facts = Facts(backend_supports, all_layouts(roots, layouts))
    cost_model = CostModel(machine, facts.layouts)
    memo = Memo(roots, facts, templates=[t for t in TEMPLATES if t.name in templates])
    memory_limit = None
    if limit and fusion == "cost":
        memory_limit = MemoryLimit(limit, roots, machine.threads, frozenset(stored))
    steps, results, kernels = _plan(
        memo, cost_model, BUDGET, fusion=fusion, limit=memory_limit, partition_cache=partition_cache)
    order = execution_order(steps, roots)
    if fusion == "cost" and ROW.name in templates and not limit:
        order = fuse_windows(order, roots, cost_model)
    return PlanChoice(Plan(tuple(order), roots), results, kernels)


def _plan(
    memo: Memo, cost_model: CostModel, budget: float, in_cache: bool = False, fusion: str = "cost",
    limit: MemoryLimit | None = None, partition_cache: PartitionCache | None = None,
) -> tuple[list[Step], list[EnumerationResult], Candidates]:
    """Return steps, in no particular order, for all values of `memo` that are not computed externally."""
    kernels = Candidates(memo, cost_model, in_cache=in_cache)

    def stages(
        roots: Sequence[Hop], materialised: frozenset[Hop], external: Mapping[Hop, Product],
    ) -> list[Step]:
        stage_memo = Memo(roots, memo.facts, materialised, external, (CELL, MAGG))
        return _plan(stage_memo, cost_model, STAGE_BUDGET, in_cache=True, partition_cache=partition_cache)[0]

    def write(candidates: Sequence[Candidate]) -> list[Step] | None:
        steps = [make_step(candidate, kernels, stages) for candidate in candidates]
        if None in steps:
            kernels.exclude(c for c, step in zip(candidates, steps, strict=True) if step is None)
            return None
        return [*[s for s in steps if s is not None], *calls_for(memo, uncovered(memo, candidates))]

    for attempt in count():
        if attempt == MAX_REPLANS:
            kernels = Candidates(memo, cost_model, with_rows=False, in_cache=in_cache)
        results: list[EnumerationResult] = []
        if fusion == "cost":
            results = search_all(partitions(memo, kernels), memo, kernels, budget, partition_cache)
        candidates = best_kernels(results, kernels) if fusion == "cost" else kernels_by_rule(fusion, kernels)
        steps = write(candidates)
        if steps is not None and limit is not None and limit.peak_bytes(steps) > limit.nbytes:
            steps = plan_within_limit(limit, [f.partition for f in results], memo, kernels, write)
        if steps is not None:
            return steps, results, kernels
        partition_cache = None  # it has the illegal plan by now
    raise AssertionError("count ends")


def best_kernels(results: Sequence[EnumerationResult], kernels: Candidates) -> list[Candidate]:
    """Return the kernels found; where the budget ran out, those of a heuristic rule if they cost less."""
    best = [c for f in results for c in f.kernels]
    if any(f.budget_exhausted for f in results):
        forced = kernels.memo.forced
        for rule in RULES:
            other = kernels_by_rule(rule, kernels)
            kernels.memo.forced = forced  # a rule must not leave values forced into memory
            if sum(c.seconds for c in other) < sum(c.seconds for c in best):
                best = other
    return best


def kernels_by_rule(rule: str, kernels: Candidates) -> list[Candidate]:
    """Return the kernels of a heuristic rule: each has one result."""
    memo = kernels.memo
    points = values_stored_by_rule(rule, memo)
    store_until_legal(memo, kernels, points)
    memory = kernels.in_memory(points)
    candidates: list[Candidate] = []
    for i in members(memo.computed & memory & ~memo.views):
        if not memo.is_call(i):
            body, _ = kernels.closure(1 << i, memory)
            candidates.append(kernels.evaluate(1 << i, body, memory))
    return candidates
