"""Cost-guided search over equivalent DAGs, component by component, within a bounded effort."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from heapq import heappop, heappush
from itertools import count
from math import inf
from time import thread_time
from typing import Protocol

from jitla.classes import dataclass
from jitla.concurrency import rest
from jitla.hops import Hop, Kind, leaf, substitute, topo, uses
from jitla.rewrites.conditions import borrows, owns
from jitla.rewrites.rule import Rule, RuleSet


@dataclass(frozen=True, slots=True)
class Effort:
    """How far a search goes: see `Config` for `bound`, `expansions` and `seconds`.

    DAGs that take less than `least` seconds are not searched, those with more operators than `largest` in
    parts. The first plan counts; where it is not `planned` anyway, as in parts, there is none unless a
    neighbour looks better.
    """

    bound: float = 1.05
    expansions: int = 60
    seconds: float = 0.02
    least: float = 100e-6
    largest: int = 12
    planned: bool = True


Roots = tuple[Hop, ...]
Edge = tuple[Hop, Hop]
LENT = 1 << 20  # slots from here on are those of values that parts are given


@dataclass(frozen=True, slots=True)
class Part:
    """A part as a DAG of its own: what others use of it, and the leaves that stand for what it is given."""

    outputs: Roots
    roots: Roots
    lent: Mapping[Hop, Hop]

    def returned(self, found: Roots) -> dict[Hop, Hop]:
        """Return what the outputs become when the part becomes `found`."""
        back = substitute(found, self.lent)
        return {old: new for old, new in zip(self.outputs, back, strict=True) if old is not new}


def cut(roots: Roots, weights: Mapping[Edge, int], largest: int) -> list[Part]:
    """Return the parts in which there are weighted edges, of at most `largest` operators each."""
    order = [h for h in topo(roots) if h.op.kind is not Kind.LEAF]
    clusters = _Clusters(order)
    edges = [(i, h) for h in order for i in dict.fromkeys(h.inputs) if i.op.kind is not Kind.LEAF]
    for one, other in sorted(edges, key=lambda e: -weights.get(e, 0)):
        clusters.join(one, other, largest)
    found = {clusters.of(h) for h in order if any(weights.get((i, h), 0) for i in h.inputs)}
    users = uses(roots)
    last_first = sorted(found, reverse=True)
    return [_part([order[n] for n in _bits(members)], users, roots) for members in last_first]


class _Clusters:
    """Disjoint convex sets of operators, as bits of their numbers."""

    def __init__(self, order: list[Hop]) -> None:
        self._number = {h: n for n, h in enumerate(order)}
        self._members = [1 << n for n in range(len(order))]
        self._below = [0] * len(order)  # what an operator depends on
        self._above = [0] * len(order)
        for n, hop in enumerate(order):
            for at in (self._number[i] for i in hop.inputs if i in self._number):
                self._below[n] |= self._below[at] | 1 << at
            for at in _bits(self._below[n]):
                self._above[at] |= 1 << n

    def of(self, hop: Hop) -> int:
        """Return the members of the set that `hop` is in."""
        return self._members[self._number[hop]]

    def join(self, one: Hop, other: Hop, largest: int) -> None:
        """Make one set of two, unless it were too large or not convex."""
        both = self.of(one) | self.of(other)
        below = above = 0
        for n in _bits(both):
            below |= self._below[n]
            above |= self._above[n]
        if both.bit_count() <= largest and not below & above & ~both:
            for n in _bits(both):
                self._members[n] = both


def _bits(members: int) -> Iterable[int]:
    while members:
        least = members & -members
        yield least.bit_length() - 1
        members ^= least


def _part(members: list[Hop], users: Mapping[Hop, list[Hop]], roots: Roots) -> Part:
    inside = set(members)
    outputs = tuple(h for h in members if h in roots or not inside.issuperset(users[h]))
    given = dict.fromkeys(
        i for h in members for i in h.inputs if i not in inside and i.op.kind is not Kind.LEAF)
    lent = {i: leaf(LENT + n, i.meta, "array" if i.meta.ndim else "scalar", i.line)
            for n, i in enumerate(given)}
    return Part(outputs, substitute(outputs, lent), {own: i for i, own in lent.items()})


Move = tuple[Rule, Mapping[Hop, Hop]]
CLEAR = 0.99  # part of the best price that a price may be to be a better one
MARGIN = 1.5  # how much longer than the plans before the next one may take


class Costs(Protocol):
    """What states cost, in seconds; infinite where a state may not stand for the roots given."""

    def floor(self, roots: Roots) -> float:
        """Return what no plan of `roots` goes below, or nearly; this is quick."""
        ...

    def guess(self, roots: Roots) -> float:
        """Return what is of use to compare neighbours; this is quick."""
        ...

    def price(self, roots: Roots) -> float:
        """Return what the plan of `roots` is predicted to take."""
        ...

    def ceiling(self, roots: Roots) -> float:
        """Return what `roots` take at most, or nearly; this is quick."""
        ...


@dataclass(slots=True)
class Outcome:
    """What a search found: roots, the rules on the way there, prices; what it looked at."""

    roots: Roots
    fired: tuple[Rule, ...] = ()
    before: float = inf
    after: float = inf
    expanded: int = 0
    priced: int = 0
    spent: bool = False

    def add(self, part: Outcome) -> None:
        """Take in what the search of a part did; what it costs says little of the whole."""
        self.fired += part.fired
        self.expanded += part.expanded
        self.priced += part.priced
        self.spent |= part.spent


@dataclass(slots=True)
class _State:
    """Roots, their floor, a guess, and what they cost as far as is known; the rules that led here."""

    roots: Roots
    floor: float
    guess: float
    cost: float
    path: tuple[Rule, ...]
    priced: bool = False


def moves(
    roots: Roots, rules: RuleSet, taken: frozenset[int], known: dict[Hop, tuple[Move, ...]] | None = None,
) -> Iterator[Move]:
    """Yield every way in which one substitution changes `roots`.

    Substitutions do not ask who else uses an operator, so what it may become is kept in `known`.
    """
    known = {} if known is None else known
    for hop in topo(roots):
        found = known.get(hop)
        if found is None:
            found = known[hop] = tuple(
                (rule, {hop: after}) for rule in rules.rooted(hop) for after in rule.candidates(hop, _nobody))
        yield from found
    for rule in rules.joint:
        assert rule.jointly is not None
        for joint in rule.jointly(roots, taken):
            yield rule, joint


def _nobody(hop: Hop) -> bool:
    """Say that an operator has no other user."""
    return False


def lengths(roots: Roots) -> frozenset[int]:
    """Return all lengths of axes of values below `roots`."""
    return frozenset(n for hop in topo(roots) for n in hop.meta.shape)


def improve(
    roots: Roots, rules: RuleSet, appraise: Callable[[Roots, Mapping[Hop, Hop]], Costs], effort: Effort,
    taken: frozenset[int] = frozenset(), clock: Callable[[], float] = thread_time,
) -> Outcome:
    """Return what the search comes to; a large DAG is searched part by part, users before what they use.

    What parts come to is taken only if the plan of the whole is cheaper.
    ``appraise(roots, lent)`` says what the states of a part cost; `lent` are its leaves that stand for values
    computed elsewhere.
    """
    if sum(h.op.kind is not Kind.LEAF for h in topo(roots)) <= effort.largest:
        if next(moves(roots, rules, taken), None) is None:
            return Outcome(roots)
        return search(roots, rules, appraise(roots, {}), effort, taken, clock)
    start = clock()
    whole = appraise(roots, {})
    if not rules or whole.ceiling(roots) < effort.least:
        return Outcome(roots)
    begun = clock()
    before = whole.price(roots)  # its plan is needed unless something better is found, which takes another
    planned = clock()
    end = start + effort.seconds - MARGIN * (planned - begun)
    found = Outcome(roots, spent=planned >= end)
    if not found.spent:
        found = _in_parts(roots, rules, appraise, replace(effort, planned=False), taken, clock, end)
    found.priced += 1
    found.before = found.after = before
    if found.fired:  # parts know nothing of what is fused across their borders
        after = whole.price(found.roots) if whole.floor(found.roots) < inf else inf
        found.priced += 1
        if after < CLEAR * before:
            found.after = after
        else:
            found.roots, found.fired = roots, ()
    return found


def _in_parts(
    roots: Roots, rules: RuleSet, appraise: Callable[[Roots, Mapping[Hop, Hop]], Costs], effort: Effort,
    taken: frozenset[int], clock: Callable[[], float], end: float,
) -> Outcome:
    """Search one part after the other, all until `end`."""
    whole = Outcome(roots)
    parts = cut(roots, _reach(moves(roots, rules, taken)), effort.largest)
    for n, part in enumerate(parts):
        left = end - clock()
        if left <= 0:
            whole.spent = True
            break
        share = replace(effort, seconds=left / (len(parts) - n))
        found = search(part.roots, rules, appraise(part.roots, part.lent), share, taken, clock)
        if found.fired:
            whole.roots = substitute(whole.roots, part.returned(found.roots))
        whole.add(found)
    return whole


def _reach(possible: Iterable[Move]) -> dict[tuple[Hop, Hop], int]:
    """Return how many substitutions look at both ends of an edge."""
    reach: dict[tuple[Hop, Hop], int] = {}
    for _, joint in possible:
        for hop in joint:
            for i in set(hop.inputs):
                reach[i, hop] = reach.get((i, hop), 0) + 1
    return reach


def search(
    roots: Roots, rules: RuleSet, costs: Costs, effort: Effort,
    taken: frozenset[int] = frozenset(), clock: Callable[[], float] = thread_time,
) -> Outcome:
    """Return the cheapest of the states found; `roots` if none is clearly cheaper."""
    return _Search(roots, rules, costs, effort, taken, clock).run()


@dataclass(slots=True)
class _Search:
    given: Roots
    rules: RuleSet
    costs: Costs
    effort: Effort
    taken: frozenset[int]
    clock: Callable[[], float]
    queue: list[tuple[float, int, _State]] = field(default_factory=list)
    later: list[tuple[float, int, _State]] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=count)
    slowest: float = 0.0  # seconds that pricing took at most
    end: float = inf
    seen: set[Roots] = field(default_factory=set)
    known: dict[Hop, tuple[Move, ...]] = field(default_factory=dict)
    found: Outcome = field(init=False)
    best: _State = field(init=False)

    def run(self) -> Outcome:
        self.seen.add(self.given)
        self.found = Outcome(self.given)
        if self.costs.ceiling(self.given) < self.effort.least:
            return self.found
        self.end = self.clock() + self.effort.seconds
        start = _State(self.given, self.costs.floor(self.given), self.costs.guess(self.given), 0.0, ())
        self.best = start
        if not self.effort.planned and not self._promising(start):
            return self.found
        self._price(start)
        self.found.before = self.found.after = start.cost
        if start.cost < self.effort.least:
            return self.found
        self._push(start)
        while self._more():
            self._step()
        self.found.roots, self.found.fired, self.found.after = (
            self.best.roots, self.best.path, self.best.cost)
        return self.found

    def _promising(self, start: _State) -> bool:
        """Say whether a neighbour is guessed to be better."""
        for _, joint in moves(start.roots, self.rules, self.taken, self.known):
            if self._late():
                break
            new = substitute(start.roots, joint)
            if self.costs.floor(new) < inf and self.costs.guess(new) < CLEAR * start.guess:
                return True
        return False

    def _more(self) -> bool:
        """Say whether there is a state to look at; when all are expanded, the unpriced ones are priced."""
        if self._late(MARGIN * self.slowest):
            return False
        wide = self.found.expanded < self.effort.expansions
        if wide and self.queue and self.queue[0][0] <= self.effort.bound * self.best.cost:
            return True
        self.found.spent |= not wide
        while self.later and not self._late(MARGIN * self.slowest):
            state = heappop(self.later)[2]
            if state.floor < self.best.cost and not state.priced:
                self._price(state)
                if self._is_best(state) and wide:
                    self._push(state)
                    return True
        return False

    def _step(self) -> None:
        """Expand the cheapest state, priced if it claims to be the best."""
        key, _, state = heappop(self.queue)
        if not state.priced:
            if key < CLEAR * self.best.cost:
                self._price(state)
                self._is_best(state)
                self._push(state)
                return
            heappush(self.later, (key, next(self.numbers), state))
        self.found.expanded += 1
        for rule, joint in moves(state.roots, self.rules, self.taken, self.known):
            if self._late():
                break
            new = substitute(state.roots, joint)
            if new not in self.seen:
                self.seen.add(new)
                self._meet(state, rule, new)

    def _meet(self, parent: _State, rule: Rule, new: Roots) -> None:
        """Keep a neighbour that is allowed and not too bad."""
        if not all(map(_as_fresh, self.given, new)):
            return
        floor = self.costs.floor(new)
        if floor < self.effort.bound * self.best.cost:
            guess = self.costs.guess(new)
            state = _State(new, floor, guess, parent.cost + guess - parent.guess, (*parent.path, rule))
            if not self._push(state):
                heappush(self.later, (state.cost, next(self.numbers), state))

    def _push(self, state: _State) -> bool:
        """Put the state where it is expanded from, if it is not too bad."""
        fair = state.cost < self.effort.bound * self.best.cost or state is self.best
        if fair:
            # Of states that cost the same the latest goes first: a way is followed before others begin.
            heappush(self.queue, (state.cost, -next(self.numbers), state))
        return fair

    def _late(self, more: float = 0.0) -> bool:
        """Say whether what takes so many seconds more would end too late."""
        rest()
        self.found.spent |= self.clock() + more > self.end
        return self.found.spent

    def _price(self, state: _State) -> None:
        start = self.clock()
        state.cost, state.priced = self.costs.price(state.roots), True
        self.slowest = max(self.slowest, self.clock() - start)
        self.found.priced += 1

    def _is_best(self, state: _State) -> bool:
        """Remember the state if it is clearly better than the best."""
        if state.cost < CLEAR * self.best.cost:
            self.best = state
            return True
        return False


def _as_fresh(old: Hop, new: Hop) -> bool:
    """Say whether `new` is as much memory of its own as `old` was."""
    return owns(new) or not owns(old) and (borrows(old) or not borrows(new))
