"""The planner: explores candidates, searches, and builds a plan, within limits of memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from heapq import heappop, heappush
from itertools import count
from math import inf, isinf
from typing import Any

from jitla.classes import dataclass
from jitla.fusion.bounds import cyclic
from jitla.fusion.candidates import CALL, LOOP, Candidate, Candidates
from jitla.fusion.cost_model import CostModel, peak_bytes
from jitla.fusion.enumeration import BUDGET, INSIDE, Found, Search
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
from jitla.fusion.partitions import Partition, keep_apart, partitions
from jitla.fusion.template_window import fuse_windows
from jitla.fusion.templates import CELL, MAGG, ROW, Facts, by_pairs, is_row_view, product_at
from jitla.hops import REFERENCE_MACHINE, Hop, Kind, Machine

MAX_KNOWN = 512  # partitions


@dataclass(frozen=True, slots=True)
class _Plan:
    """What was chosen, in numbers of the partition: values kept, results and bodies of kernels."""

    kept: int
    kernels: tuple[tuple[int, int], ...]
    spent: bool


class PartitionCache:
    """The plans of the partitions searched last, of programs of one machine and one set of options."""

    def __init__(self, limit: int = MAX_KNOWN) -> None:
        self.limit = limit
        self.hits = 0
        self._plans: OrderedDict[Hashable, _Plan] = OrderedDict()

    def __len__(self) -> int:
        return len(self._plans)

    def look(
        self, key: Hashable, order: Sequence[int], partition: Partition, kernels: Candidates,
    ) -> Found | None:
        """Return the plan known for `key`, if it is legal for these sizes."""
        known = self._plans.get(key)
        if known is None:
            return None
        self._plans.move_to_end(key)
        kept = _numbered(known.kept, order)
        memory = kernels.in_memory(kept)
        made = tuple(kernels.price(_numbered(results, order), _numbered(body, order), memory)
                     for results, body in known.kernels)
        seconds = sum(k.seconds for k in made)
        if isinf(seconds):
            return None
        self.hits += 1
        return Found(partition, seconds, kept, made, spent=known.spent, known=True)

    def keep(self, key: Hashable, order: Sequence[int], found: Found) -> None:
        """Remember a plan; the one used longest ago makes room."""
        at = {i: n for n, i in enumerate(order)}

        def own(values: int) -> int:
            return sum([1 << at[i] for i in members(values)])

        made = tuple((own(k.results), own(k.body)) for k in found.kernels)
        self._plans[key] = _Plan(own(found.chosen), made, found.spent)
        if len(self._plans) > self.limit:
            self._plans.popitem(last=False)


def _numbered(values: int, order: Sequence[int]) -> int:
    return sum([1 << order[n] for n in members(values)])


def key_of(partition: Partition, memo: Memo, kernels: Candidates) -> tuple[Hashable, list[int]]:
    """Return what the plan of a partition depends on, and its values in the order of their numbers there."""
    order = list(members(partition.values))
    number = {i: n for n, i in enumerate(order)}
    dims: dict[int, int] = {}
    sources: dict[int, int] = {}
    words: list[Hashable] = [
        kernels.near, kernels.rows, tuple(t.name for t in memo.templates),
        int(kernels.prices.footprint).bit_length()]
    for i in order:
        for o in members(memo.operands[i] & ~partition.values):
            if o not in number:
                number[o] = len(number)
                behind = memo.before[o] & partition.values
                words.append((
                    number[o], memo.computed >> o & 1, memo.values[o].op.kind is Kind.LEAF,
                    _place(memo.values[o], memo, dims), _first(memo.shared(1 << o), sources),
                    tuple(number[b] for b in members(behind))))
        hop = memo.values[i]
        words.append((
            hop.op.name, hop.attrs, memo.forced >> i & 1, i in partition.points, memo.views >> i & 1,
            tuple(number[memo.number[o]] for o in memo.inputs(hop)), _place(hop, memo, dims),
            tuple(number[o] for o in members((memo.loop[i] or 0) & partition.values)), memo.loop[i] is None,
            tuple(number[o] for o in members((memo.row[i] or 0) & partition.values)), memo.row[i] is None,
            _first(memo.shared(1 << i), sources)))
    return tuple(words), order


def _first(source: int, sources: dict[int, int]) -> int:
    return sources.setdefault(source, len(sources))


def _place(hop: Hop, memo: Memo, dims: dict[int, int]) -> Hashable:
    """Return dtype, sizes and strides of a value: which sizes are the same, all by powers of two."""
    shape, place = hop.meta.shape, memo.facts.layouts[hop]
    size = hop.meta.dtype.itemsize
    strides: Hashable = place == contiguous(shape, size) or tuple(
        (s > 0, s == size, abs(s).bit_length()) for s in place.strides)
    sizes = tuple((dims.setdefault(n, len(dims)), n.bit_length(), n == 1) for n in shape)
    return hop.meta.dtype.str, sizes, strides


def search_all(
    parts: Sequence[Partition], memo: Memo, kernels: Candidates, budget: float = inf,
    recall: PartitionCache | None = None,
) -> list[Found]:
    """Search every partition; those whose kernels would wait for each other are searched as one."""
    def search(part: Partition) -> Found:
        if recall is None or not part.points:
            return Search(part, memo, kernels, budget).run()
        key, order = key_of(part, memo, kernels)
        found = recall.look(key, order, part, kernels)
        if found is None:
            found = Search(part, memo, kernels, budget).run()
            recall.keep(key, order, found)
        return found

    found = [search(p) for p in parts]
    assert not any(isinf(f.seconds) for f in found), "no plan is legal"
    if not cyclic([c for f in found for c in f.kernels], kernels):
        return found
    several = [f for f in found if any(c.results & c.results - 1 for c in f.kernels)]
    values, points = 0, list[int]()
    for f in several:
        values |= f.partition.values
        points += f.partition.points
    whole = Partition(values, tuple(sorted(points, key=lambda i: (-kernels.write[i], i))))
    return [*(f for f in found if f not in several), Search(whole, memo, kernels, budget).run()]


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
        if isinstance(stage, Product) and stage.form in ROWWISE_FORMS:
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


MAX_TRIES = 400  # whole plans looked at, before the one that takes least is taken

Write = Callable[[Sequence[Candidate]], list[Step] | None]


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `nbytes` at a time, in plans for `roots`; `stored` of them go to memory that exists."""

    nbytes: int
    roots: tuple[Hop, ...]
    threads: int = 1
    stored: frozenset[Hop] = frozenset()

    def peak_bytes(self, steps: Sequence[Step]) -> float:
        """Return what a plan of `steps` takes; infinity if they wait for each other."""
        order = in_turn(steps, self.roots)
        made = {h for s in steps for h in s.outputs}
        known: set[Hop] = set()
        for step in order:
            if any(h in made and h not in known for h in step.inputs):
                return inf
            known.update(step.outputs)
        return peak_bytes(order, self.roots, self.threads, self.stored)


def within(
    limit: Limit, partitions: Sequence[Partition], memo: Memo, kernels: Candidates, write: Write,
) -> list[Step] | None:
    """Return the steps of the cheapest plan below `limit`, else of the one with the least peak.

    `write` makes steps of the kernels of all partitions; None if one of them cannot be written.
    """
    choices = [_Choices(p, memo, kernels) for p in partitions]

    def look(at: Sequence[int]) -> tuple[float, list[Step] | None]:
        steps = write([c for some, i in zip(choices, at, strict=True) for c in some.kernels(i)])
        return (inf, None) if steps is None else (limit.peak_bytes(steps), steps)

    least, best = look([c.sparing for c in choices])
    start = (0,) * len(choices)
    waiting = [(sum(c.seconds(0) for c in choices), start, 0)]
    for _ in range(MAX_TRIES):
        if not waiting:
            break
        seconds, at, turn = heappop(waiting)
        taken, steps = look(at)
        if taken <= limit.nbytes:
            return steps
        if taken < least:
            least, best = taken, steps
        for k in range(turn, len(choices)):  # from `turn` on: every combination is made once
            if at[k] + 1 < len(choices[k].tried):
                more = choices[k].seconds(at[k] + 1) - choices[k].seconds(at[k])
                heappush(waiting, (seconds + more, (*at[:k], at[k] + 1, *at[k + 1:]), k))
    return best


class _Choices:
    """All choices of points of a partition, the cheapest first."""

    def __init__(self, partition: Partition, memo: Memo, kernels: Candidates) -> None:
        self._search = Search(partition, memo, kernels, kernels.priced + BUDGET, prune=False)
        found = self._search.run()
        self.tried = sorted((s, c) for c, s in found.tried.items() if not isinf(s))
        self.sparing = min(range(len(self.tried)), key=lambda i: self.tried[i][1].bit_count())

    def seconds(self, at: int) -> float:
        """What choice number `at` costs."""
        return self.tried[at][0]

    def kernels(self, at: int) -> tuple[Candidate, ...]:
        """The kernels of choice number `at`."""
        return self._search.arrange(self.tried[at][1])[1]


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


def kept(rule: str, memo: Memo) -> int:
    """Return the computed values that `rule` keeps in memory."""
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
    """Return the casts that are part of the operators which read them, as NumPy casts on the way."""
    found = memo.set(h for h in memo.hops(memo.computed) if h.op.name == "cast" and h.meta.shape)
    return sum(1 << i for i in members(found) if all(
        (memo.loop[u] or 0) >> i & 1 for u in members(memo.users[i])))


def _inner(pattern: Pattern, at: int, memo: Memo) -> int:
    """Return the values inside the pattern that ends in value `at`; none if it does not match."""
    found = _match(pattern, at, memo)
    return 0 if found is None else found & ~(1 << at)


def _match(pattern: str | Pattern, at: int, memo: Memo) -> int | None:
    if isinstance(pattern, str):
        return 0
    hop = memo.values[at]
    if hop.op.name != pattern[0] or not memo.computed >> at & 1:
        return None
    operands = [memo.number[i] for i in hop.inputs if i in memo.number]
    turns = [operands, operands[::-1]] if hop.op.commutes else [operands]
    for turn in turns:
        if len(turn) == len(pattern) - 1:
            parts = [_part(p, o, at, memo) for p, o in zip(pattern[1:], turn, strict=True)]
            if None not in parts:
                return sum(p for p in parts if p is not None) | 1 << at
    return None


def _part(pattern: str | Pattern, operand: int, user: int, memo: Memo) -> int | None:
    """Match an operand; one inside the pattern has one reader, who may compute it."""
    if isinstance(pattern, str):
        return 0
    alone = memo.users[operand] == 1 << user and memo.fusable(user) >> operand & 1
    return _match(pattern, operand, memo) if alone else None


MAX_TURNS = 4  # searches in which row kernels are chosen that turn out not to be loops over blocks of rows


@dataclass(frozen=True, slots=True)
class Chosen:
    """A plan, how its partitions were searched, and all kernels that were considered."""

    plan: Plan
    found: list[Found]
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
    recall: PartitionCache | None = None,
) -> Plan:
    """Choose which hops share a loop; `layouts` are those of the array leaves, by slot.

    `fusion` is "cost" for the cheapest plan, or the name of a rule of thumb. With `limit` the plan takes
    at most so many bytes, if there is one; the roots `stored` go to memory that exists. `recall` knows
    plans of parts of earlier DAGs, planned for the same machine, and takes in those of this one.
    """
    return choose(roots, layouts, backend_supports, machine, templates, fusion, limit, stored, recall).plan


def choose(
    roots: Sequence[Hop], layouts: Mapping[int, Layout], backend_supports: Callable[[Hop], str | None],
    machine: Machine, templates: Collection[str], fusion: str, limit: int = 0,
    stored: Collection[Hop] = (), recall: PartitionCache | None = None,
) -> Chosen:
    """Return what `plan` does, with all that led to it."""
    roots = tuple(roots)
    facts = Facts(backend_supports, all_layouts(roots, layouts))
    prices = CostModel(machine, facts.layouts)
    memo = Memo(roots, facts, templates=[t for t in TEMPLATES if t.name in templates])
    most = Limit(limit, roots, machine.threads, frozenset(stored)) if limit and fusion == "cost" else None
    steps, found, kernels = _plan(memo, prices, BUDGET, fusion=fusion, limit=most, recall=recall)
    order = in_turn(steps, roots)
    if fusion == "cost" and ROW.name in templates and not limit:
        order = fuse_windows(order, roots, prices)
    return Chosen(Plan(tuple(order), roots), found, kernels)


def _plan(
    memo: Memo, prices: CostModel, budget: float, near: bool = False, fusion: str = "cost",
    limit: Limit | None = None, recall: PartitionCache | None = None,
) -> tuple[list[Step], list[Found], Candidates]:
    """Return steps, in no particular order, for all values of `memo` that are not made otherwise."""
    kernels = Candidates(memo, prices, near=near)

    def stages(roots: Sequence[Hop], given: frozenset[Hop], made: Mapping[Hop, Product]) -> list[Step]:
        inside = Memo(roots, memo.facts, given, made, (CELL, MAGG))
        return _plan(inside, prices, INSIDE, near=True, recall=recall)[0]

    def write(every: Sequence[Candidate]) -> list[Step] | None:
        made = [step_of(candidate, kernels, stages) for candidate in every]
        if None in made:
            kernels.forbid(c for c, step in zip(every, made, strict=True) if step is None)
            return None
        return [*[s for s in made if s is not None], *calls_for(memo, uncovered(memo, every))]

    for turn in count():
        if turn == MAX_TURNS:
            kernels = Candidates(memo, prices, rows=False, near=near)
        found: list[Found] = []
        if fusion == "cost":
            found = search_all(partitions(memo, kernels), memo, kernels, budget, recall)
        every = best_of(found, kernels) if fusion == "cost" else by_rule(fusion, kernels)
        steps = write(every)
        if steps is not None and limit is not None and limit.peak_bytes(steps) > limit.nbytes:
            steps = within(limit, [f.partition for f in found], memo, kernels, write)
        if steps is not None:
            return steps, found, kernels
        recall = None  # what it knows has just been chosen
    raise AssertionError("count ends")


def best_of(found: Sequence[Found], kernels: Candidates) -> list[Candidate]:
    """Return the kernels found; where a search ended early, those of a rule of thumb if they cost less."""
    best = [c for f in found for c in f.kernels]
    if any(f.spent for f in found):
        forced = kernels.memo.forced
        for rule in RULES:
            other = by_rule(rule, kernels)
            kernels.memo.forced = forced  # what a rule has to keep in memory is its own
            if sum(c.seconds for c in other) < sum(c.seconds for c in best):
                best = other
    return best


def by_rule(rule: str, kernels: Candidates) -> list[Candidate]:
    """Return the kernels of a rule of thumb: each has one result."""
    memo = kernels.memo
    points = kept(rule, memo)
    keep_apart(memo, kernels, points)
    memory = kernels.in_memory(points)
    found: list[Candidate] = []
    for i in members(memo.computed & memory & ~memo.views):
        if not memo.is_call(i):
            body, _ = kernels.grow(1 << i, memory)
            found.append(kernels.price(1 << i, body, memory))
    return found
