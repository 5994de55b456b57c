"""Cost-guided best-first search over equivalent DAGs, within a budget of time and expansions.

States are DAGs, moves are single substitutions. A state is expanded if its predicted cost is below
`SearchBudget.bound` times the best one, so that moves may lead uphill (Jia et al., "TASO", SOSP 2019).
Large DAGs are partitioned into convex parts that are searched one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from heapq import heappop, heappush
from itertools import count
from math import inf
from time import thread_time
from typing import Protocol

from jitla.classes import dataclass
from jitla.hops import Hop, Kind, leaf, substitute, topo, uses
from jitla.rewrites.rule import Rule, RuleSet, may_alias_argument, owns_memory


@dataclass(frozen=True, slots=True)
class SearchBudget:
    """Limits of a search; `bound`, `expansions` and `seconds` are options of `Config`.

    DAGs predicted to take less than `min_seconds` are not searched; those with more than `max_operators`
    operators are partitioned. Without `price_start` the initial state is planned only if a neighbour is
    estimated to be cheaper. Planning counts as search time.
    """

    bound: float = 1.05
    expansions: int = 60
    seconds: float = 0.02
    min_seconds: float = 100e-6
    max_operators: int = 12
    price_start: bool = True


Roots = tuple[Hop, ...]
Edge = tuple[Hop, Hop]
FIRST_INPUT_SLOT = 1 << 20  # slots from here on belong to the leaves of parts


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a DAG as a separate DAG.

    `outputs` are the values of the part that others use, `roots` the same values in the separate DAG;
    `leaf_values` maps its leaves to the values they stand for.
    """

    outputs: Roots
    roots: Roots
    leaf_values: Mapping[Hop, Hop]

    def replacements(self, result: Roots) -> dict[Hop, Hop]:
        """Return the replacements of the outputs if `result` takes the place of the roots."""
        outputs = substitute(result, self.leaf_values)
        return {old: new for old, new in zip(self.outputs, outputs, strict=True) if old is not new}


def partition(roots: Roots, weights: Mapping[Edge, int], max_operators: int) -> list[Part]:
    """Return convex parts of at most `max_operators` operators that contain weighted edges.

    Edges are contracted greedily, heaviest first. The parts come users first.
    """
    order = [h for h in topo(roots) if h.op.kind is not Kind.LEAF]
    clusters = _ConvexClusters(order)
    edges = [(i, h) for h in order for i in dict.fromkeys(h.inputs) if i.op.kind is not Kind.LEAF]
    for first, second in sorted(edges, key=lambda e: -weights.get(e, 0)):
        clusters.join(first, second, max_operators)
    members_of_parts = {clusters.of(h) for h in order if any(weights.get((i, h), 0) for i in h.inputs)}
    users = uses(roots)
    last_first = sorted(members_of_parts, reverse=True)
    return [_make_part([order[n] for n in _bit_indices(members)], users, roots) for members in last_first]


class _ConvexClusters:
    """Disjoint convex sets of operators, as bit sets of operator numbers.

    A set is convex if no path between two members leaves it.
    """

    def __init__(self, order: list[Hop]) -> None:
        self._number = {h: n for n, h in enumerate(order)}
        self._members = [1 << n for n in range(len(order))]
        self._below = [0] * len(order)  # transitive operands
        self._above = [0] * len(order)  # transitive users
        for n, hop in enumerate(order):
            for at in (self._number[i] for i in hop.inputs if i in self._number):
                self._below[n] |= self._below[at] | 1 << at
            for at in _bit_indices(self._below[n]):
                self._above[at] |= 1 << n

    def of(self, hop: Hop) -> int:
        """Return the set that contains `hop`."""
        return self._members[self._number[hop]]

    def join(self, first: Hop, second: Hop, max_operators: int) -> None:
        """Merge two sets if the result is convex and not too large."""
        both = self.of(first) | self.of(second)
        below = above = 0
        for n in _bit_indices(both):
            below |= self._below[n]
            above |= self._above[n]
        if both.bit_count() <= max_operators and not below & above & ~both:
            for n in _bit_indices(both):
                self._members[n] = both


def _bit_indices(members: int) -> Iterable[int]:
    """Yield the positions of the bits that are set."""
    while members:
        least = members & -members
        yield least.bit_length() - 1
        members ^= least


def _make_part(members: list[Hop], users: Mapping[Hop, list[Hop]], roots: Roots) -> Part:
    """Return the part with these operators; operands from outside become leaves."""
    inside = set(members)
    outputs = tuple(h for h in members if h in roots or not inside.issuperset(users[h]))
    external = dict.fromkeys(
        i for h in members for i in h.inputs if i not in inside and i.op.kind is not Kind.LEAF)
    leaves = {i: leaf(FIRST_INPUT_SLOT + n, i.meta, "array" if i.meta.ndim else "scalar", i.line)
              for n, i in enumerate(external)}
    return Part(outputs, substitute(outputs, leaves), {own: i for i, own in leaves.items()})


Move = tuple[Rule, Mapping[Hop, Hop]]
#: A state is better if it costs less than this fraction of the best cost.
IMPROVEMENT_RATIO = 0.99
#: Expected time of the next pricing, relative to the slowest one so far.
PRICING_TIME_FACTOR = 1.5


class Costs(Protocol):
    """Cost model of a search, in seconds; infinite if a state must not replace the initial roots."""

    def floor(self, roots: Roots) -> float:
        """Return an approximate lower bound on the cost of a plan of `roots`; cheap to compute."""
        ...

    def guess(self, roots: Roots) -> float:
        """Return an estimate that ranks neighbouring states; cheap to compute."""
        ...

    def price(self, roots: Roots) -> float:
        """Return the predicted cost of the plan of `roots`; makes the plan."""
        ...

    def ceiling(self, roots: Roots) -> float:
        """Return an approximate upper bound on the cost of `roots`; cheap to compute."""
        ...


@dataclass(slots=True)
class SearchResult:
    """Result of a search: the best roots, the rules that lead there, costs, and counters of the search.

    `before` and `after` are predicted seconds; `exhausted` is set if a limit of the budget ended the search.
    """

    roots: Roots
    fired: tuple[Rule, ...] = ()
    before: float = inf
    after: float = inf
    expanded: int = 0
    priced: int = 0
    exhausted: bool = False

    def add(self, part: SearchResult) -> None:
        """Add the rules and counters of the search of a part; its costs say little about the whole."""
        self.fired += part.fired
        self.expanded += part.expanded
        self.priced += part.priced
        self.exhausted |= part.exhausted


@dataclass(slots=True)
class _State:
    """A search state: roots, bounds on their cost, and the rules applied so far.

    `cost` is an estimate until the state is `priced`.
    """

    roots: Roots
    floor: float
    guess: float
    cost: float
    path: tuple[Rule, ...]
    priced: bool = False


def moves(
    roots: Roots, rules: RuleSet, used_lengths: frozenset[int],
    memo: dict[Hop, tuple[Move, ...]] | None = None,
) -> Iterator[Move]:
    """Yield every move from `roots`: a substitution and the replacements it makes.

    Substitutions do not depend on the users of an operator, so `memo` holds the moves of each operator.
    """
    memo = {} if memo is None else memo
    for hop in topo(roots):
        alternatives = memo.get(hop)
        if alternatives is None:
            alternatives = memo[hop] = tuple(
                (rule, {hop: after}) for rule in rules.rules_for(hop)
                for after in rule.candidates(hop, _never_shared))
        yield from alternatives
    for rule in rules.joint:
        assert rule.joint is not None
        for joint in rule.joint(roots, used_lengths):
            yield rule, joint


def _never_shared(hop: Hop) -> bool:
    """Treat every operator as having a single user."""
    return False


def axis_lengths(roots: Roots) -> frozenset[int]:
    """Return the lengths of all axes of all values that `roots` are computed from."""
    return frozenset(n for hop in topo(roots) for n in hop.meta.shape)


def minimise_cost(
    roots: Roots, rules: RuleSet, appraise: Callable[[Roots, Mapping[Hop, Hop]], Costs], budget: SearchBudget,
    used_lengths: frozenset[int] = frozenset(), clock: Callable[[], float] = thread_time,
) -> SearchResult:
    """Return the cheapest equivalent of `roots` found within the budget; large DAGs are searched in parts.

    The results of parts are accepted only if the plan of the whole DAG is cheaper, because parts do not
    see fusion across their borders. ``appraise(roots, leaf_values)`` returns the cost model for the states
    of a part; `leaf_values` maps its leaves to values computed elsewhere.
    """
    if sum(h.op.kind is not Kind.LEAF for h in topo(roots)) <= budget.max_operators:
        if next(moves(roots, rules, used_lengths), None) is None:
            return SearchResult(roots)
        return search(roots, rules, appraise(roots, {}), budget, used_lengths, clock)
    start = clock()
    whole = appraise(roots, {})
    if not rules or whole.ceiling(roots) < budget.min_seconds:
        return SearchResult(roots)
    pricing_start = clock()
    before = whole.price(roots)  # this plan is used unless the search finds a better state
    pricing_end = clock()
    end = start + budget.seconds - PRICING_TIME_FACTOR * (pricing_end - pricing_start)
    result = SearchResult(roots, exhausted=pricing_end >= end)
    if not result.exhausted:
        part_budget = replace(budget, price_start=False)
        result = _search_parts(roots, rules, appraise, part_budget, used_lengths, clock, end)
    result.priced += 1
    result.before = result.after = before
    if result.fired:
        after = whole.price(result.roots) if whole.floor(result.roots) < inf else inf
        result.priced += 1
        if after < IMPROVEMENT_RATIO * before:
            result.after = after
        else:
            result.roots, result.fired = roots, ()
    return result


def _search_parts(
    roots: Roots, rules: RuleSet, appraise: Callable[[Roots, Mapping[Hop, Hop]], Costs], budget: SearchBudget,
    used_lengths: frozenset[int], clock: Callable[[], float], end: float,
) -> SearchResult:
    """Search the parts one after the other until `end`, sharing the remaining time equally."""
    whole = SearchResult(roots)
    parts = partition(roots, _edge_weights(moves(roots, rules, used_lengths)), budget.max_operators)
    for index, part in enumerate(parts):
        remaining = end - clock()
        if remaining <= 0:
            whole.exhausted = True
            break
        share = replace(budget, seconds=remaining / (len(parts) - index))
        result = search(part.roots, rules, appraise(part.roots, part.leaf_values), share, used_lengths, clock)
        if result.fired:
            whole.roots = substitute(whole.roots, part.replacements(result.roots))
        whole.add(result)
    return whole


def _edge_weights(possible: Iterable[Move]) -> dict[tuple[Hop, Hop], int]:
    """Return the number of moves whose replaced operator is the user of an edge."""
    weights: dict[tuple[Hop, Hop], int] = {}
    for _, joint in possible:
        for hop in joint:
            for i in set(hop.inputs):
                weights[i, hop] = weights.get((i, hop), 0) + 1
    return weights


def search(
    roots: Roots, rules: RuleSet, costs: Costs, budget: SearchBudget,
    used_lengths: frozenset[int] = frozenset(), clock: Callable[[], float] = thread_time,
) -> SearchResult:
    """Return the cheapest state found from `roots`; `roots` if none is clearly cheaper."""
    return _Search(roots, rules, costs, budget, used_lengths, clock).run()


@dataclass(slots=True)
class _Search:
    """State of one search: a queue of states to expand, and states deferred until all are expanded."""

    initial: Roots
    rules: RuleSet
    costs: Costs
    budget: SearchBudget
    used_lengths: frozenset[int]
    clock: Callable[[], float]
    queue: list[tuple[float, int, _State]] = field(default_factory=list)
    deferred: list[tuple[float, int, _State]] = field(default_factory=list)
    sequence: Iterator[int] = field(default_factory=count)
    slowest_pricing: float = 0.0  # seconds
    end: float = inf
    seen: set[Roots] = field(default_factory=set)
    move_memo: dict[Hop, tuple[Move, ...]] = field(default_factory=dict)
    result: SearchResult = field(init=False)
    best: _State = field(init=False)

    def run(self) -> SearchResult:
        """Run the search and return its result."""
        self.seen.add(self.initial)
        self.result = SearchResult(self.initial)
        if self.costs.ceiling(self.initial) < self.budget.min_seconds:
            return self.result
        self.end = self.clock() + self.budget.seconds
        start = _State(self.initial, self.costs.floor(self.initial), self.costs.guess(self.initial), 0.0, ())
        self.best = start
        if not self.budget.price_start and not self._has_promising_neighbour(start):
            return self.result
        self._price(start)
        self.result.before = self.result.after = start.cost
        if start.cost < self.budget.min_seconds:
            return self.result
        self._enqueue(start)
        while self._has_next():
            self._expand_next()
        self.result.roots, self.result.fired, self.result.after = (
            self.best.roots, self.best.path, self.best.cost)
        return self.result

    def _has_promising_neighbour(self, start: _State) -> bool:
        """Return whether a neighbour is estimated to be clearly cheaper."""
        for _, joint in moves(start.roots, self.rules, self.used_lengths, self.move_memo):
            if self._is_out_of_time():
                break
            new = substitute(start.roots, joint)
            if self.costs.floor(new) < inf and self.costs.guess(new) < IMPROVEMENT_RATIO * start.guess:
                return True
        return False

    def _has_next(self) -> bool:
        """Return whether there is a state to expand; once the queue is empty, price deferred states."""
        if self._is_out_of_time(PRICING_TIME_FACTOR * self.slowest_pricing):
            return False
        within_expansions = self.result.expanded < self.budget.expansions
        if within_expansions and self.queue and self.queue[0][0] <= self.budget.bound * self.best.cost:
            return True
        self.result.exhausted |= not within_expansions
        while self.deferred and not self._is_out_of_time(PRICING_TIME_FACTOR * self.slowest_pricing):
            state = heappop(self.deferred)[2]
            if state.floor < self.best.cost and not state.priced:
                self._price(state)
                if self._update_best(state) and within_expansions:
                    self._enqueue(state)
                    return True
        return False

    def _expand_next(self) -> None:
        """Expand the cheapest state; price it first if its estimate is the best."""
        estimate, _, state = heappop(self.queue)
        if not state.priced:
            if estimate < IMPROVEMENT_RATIO * self.best.cost:
                self._price(state)
                self._update_best(state)
                self._enqueue(state)
                return
            heappush(self.deferred, (estimate, next(self.sequence), state))
        self.result.expanded += 1
        for rule, joint in moves(state.roots, self.rules, self.used_lengths, self.move_memo):
            if self._is_out_of_time():
                break
            new = substitute(state.roots, joint)
            if new not in self.seen:
                self.seen.add(new)
                self._consider(state, rule, new)

    def _consider(self, parent: _State, rule: Rule, new: Roots) -> None:
        """Enqueue or defer a neighbour if it is valid and its lower bound is within the cost bound."""
        if not all(map(_preserves_ownership, self.initial, new)):
            return
        floor = self.costs.floor(new)
        if floor < self.budget.bound * self.best.cost:
            guess = self.costs.guess(new)
            state = _State(new, floor, guess, parent.cost + guess - parent.guess, (*parent.path, rule))
            if not self._enqueue(state):
                heappush(self.deferred, (state.cost, next(self.sequence), state))

    def _enqueue(self, state: _State) -> bool:
        """Enqueue the state for expansion if its cost is within the bound; return whether it is."""
        promising = state.cost < self.budget.bound * self.best.cost or state is self.best
        if promising:
            # Among states of equal cost the newest comes first (depth first).
            heappush(self.queue, (state.cost, -next(self.sequence), state))
        return promising

    def _is_out_of_time(self, more: float = 0.0) -> bool:
        """Return whether `more` seconds of work would exceed the time limit."""
        self.result.exhausted |= self.clock() + more > self.end
        return self.result.exhausted

    def _price(self, state: _State) -> None:
        start = self.clock()
        state.cost, state.priced = self.costs.price(state.roots), True
        self.slowest_pricing = max(self.slowest_pricing, self.clock() - start)
        self.result.priced += 1

    def _update_best(self, state: _State) -> bool:
        """Make the state the best one if it is clearly cheaper; return whether it is."""
        if state.cost < IMPROVEMENT_RATIO * self.best.cost:
            self.best = state
            return True
        return False


def _preserves_ownership(old: Hop, new: Hop) -> bool:
    """Return whether `new` may alias no memory that `old` could not."""
    if owns_memory(new) or owns_memory(old):
        return owns_memory(new)
    return may_alias_argument(old) or not may_alias_argument(new)
