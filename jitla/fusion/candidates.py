"""Kernels that may be in a plan: which values one computes to make its results, and what that costs.

Knows: the memo table, prices, when a kernel is a legal one. Must not know: which results belong together.
Receives sets of results and of values in memory; returns the cheapest legal kernel for them.

Bodies follow from the values in memory: an operand that is not there has to be computed in the kernel
of everyone who reads it, one that is there may be, if that is cheaper than reading it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, combinations
from math import inf

from jitla.fusion.blocks import LEAST_HEIGHT
from jitla.fusion.kernel import Kernel
from jitla.fusion.memo import Memo, members
from jitla.fusion.price import Cost, Prices
from jitla.fusion.templates import CELL, MAGG
from jitla.hops import Kind

MAX_ARRAYS = 24  # distinct arrays one loop reads: beyond, pointers spill and streams compete
MAX_BODY = 200  # hops in one loop: bounds compile time
MAX_ROOM = 1 << 20  # bytes per thread between the stages of a row kernel: more do not stay in its cache
MAX_CHOICES = 5  # values in memory that a kernel may compute anew: all subsets of so many are tried
LOOP, ROW, CALL = "loop", "row", "call"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A kernel or a call that makes `results`; `form` is LOOP, ROW or CALL. `cost` is None if illegal."""

    results: int
    body: int
    form: str
    cost: Cost | None

    @property
    def seconds(self) -> float:
        """What it costs, infinite if it is not legal."""
        return inf if self.cost is None else self.cost.total


class Candidates:
    """The cheapest kernel for every set of results asked for, each found once.

    `near`: they are stages of a row kernel, whose values are passed on in the cache.
    """

    def __init__(self, memo: Memo, prices: Prices, rows: bool = True, near: bool = False) -> None:
        self.memo = memo
        self.prices = prices
        self.rows = rows
        self.near = near
        self.priced = 0
        self._best: dict[tuple[int, int], Candidate] = {}
        self._priced: dict[tuple[int, int], Candidate] = {}
        self._forbidden: set[tuple[int, int]] = set()
        self._inputs: dict[int, int] = {}
        self._links: dict[int, tuple[int, int]] = {}
        values = memo.values
        self.take = [memo.fusable(i) if rows else memo.loop[i] or 0 for i in range(len(values))]
        self.work = [prices.work(h) if memo.computed >> i & 1 else 0.0 for i, h in enumerate(values)]
        self.again = [prices.again(h) if memo.arrays >> i & 1 else 0.0 for i, h in enumerate(values)]
        self.passes = [prices.passes(h) if memo.arrays >> i & 1 else 0.0 for i, h in enumerate(values)]
        if near:
            self.read = self.again
            self.write = self.passes
        else:
            self.read = [prices.reads(h) if memo.arrays >> i & 1 else 0.0 for i, h in enumerate(values)]
            self.write = [prices.writes(h) if memo.arrays >> i & 1 else 0.0 for i, h in enumerate(values)]
        self.aggregates = memo.set(h for h in values if h.op.kind is Kind.AGG)

    def forbid(self, candidates: Iterable[Candidate]) -> None:
        """Rule out kernels that turned out not to be made of loops over blocks of rows."""
        for c in candidates:
            self._forbidden.add((c.results, c.body))
            self._priced.pop((c.results, c.body), None)
        self._best.clear()

    def in_memory(self, chosen: int) -> int:
        """Return all values that lie in memory if the `chosen` ones do: views come with their operands."""
        memo = self.memo
        found = chosen | memo.forced | ~memo.computed & (1 << len(memo.values)) - 1
        for i in members(memo.views):
            if memo.operands[i] & ~found == 0:
                found |= 1 << i
        return found

    def below(self, values: int) -> int:
        """Return everything in front of `values`, themselves included."""
        found = values
        for i in members(values):
            found |= self.memo.before[i]
        return found

    def best(self, results: int, memory: int) -> Candidate:
        """Return the cheapest kernel that makes `results`, with `memory` to read from."""
        key = results, memory & self.below(results)
        if key not in self._best:
            self._best[key] = self._cheapest(results, memory)
        return self._best[key]

    def _cheapest(self, results: int, memory: int) -> Candidate:
        body, optional = self.grow(results, memory)
        best = self.price(results, body, memory)
        choices = [i for i in members(optional) if self.memo.arrays >> i & 1]
        if len(choices) > MAX_CHOICES:
            return self._improved(best, choices, memory)
        for some in chain.from_iterable(combinations(choices, n) for n in range(1, len(choices) + 1)):
            extra = sum(1 << i for i in some)
            wider, _ = self.grow(results | extra, memory & ~extra)
            found = self.price(results, wider, memory)
            if found.seconds < best.seconds:
                best = found
        return best

    def _improved(self, best: Candidate, choices: list[int], memory: int) -> Candidate:
        """Take in one value after the other as long as that helps."""
        extra = 0
        for i in reversed(choices):
            wider, _ = self.grow(best.results | extra | 1 << i, memory & ~(extra | 1 << i))
            found = self.price(best.results, wider, memory)
            if found.seconds < best.seconds:
                best, extra = found, extra | 1 << i
        return best

    def grow(self, results: int, memory: int) -> tuple[int, int]:
        """Return what has to be computed for `results`, and the values in memory that could be."""
        body, optional = results, 0
        stack = list(members(results))
        while stack:
            take = self.take[stack.pop()] & ~body
            optional |= take & memory
            new = take & ~memory
            body |= new
            stack += members(new)
        return body, optional & ~body

    def groups(self, value: int) -> list[tuple[str, int]]:
        """Return what the other results of a kernel that makes `value` have in common with it."""
        memo = self.memo
        found = [] if memo.loop[value] is None else [(LOOP, memo.spaces[value])]
        return [*found, (ROW, memo.rows[value])] if self.rows and memo.row[value] is not None else found

    # ------------------------------------------------------------------ prices

    def inputs(self, body: int) -> int:
        """Return what a kernel over `body` reads."""
        if body not in self._inputs:
            found = 0
            for i in members(body):
                found |= self.memo.operands[i]
            self._inputs[body] = found & ~body
        return self._inputs[body]

    def price(self, results: int, body: int, memory: int) -> Candidate:
        """Return the cheapest form of the kernel over `body`; no terms if none is legal."""
        key = results, body
        if key not in self._priced:
            self.priced += 1
            self._priced[key] = self._price(results, body)
        found = self._priced[key]
        if found.cost is not None and self.inputs(body) & ~memory:
            return Candidate(results, body, found.form, None)
        return found

    def _price(self, results: int, body: int) -> Candidate:
        inputs = self.inputs(body)
        found = Candidate(results, body, LOOP, None)
        if self.below(inputs) & results:
            return found
        if self.is_loop(results, body, inputs):
            found = Candidate(results, body, LOOP, self._terms(results, body, inputs))
        elif self.rows and (results, body) not in self._forbidden and self.is_row(results, body, inputs):
            again, passed, nbytes = self._passed(body)
            if LEAST_HEIGHT * nbytes <= MAX_ROOM * self.memo.rows[results.bit_length() - 1]:
                found = Candidate(results, body, ROW, self._terms(results, body, inputs, again, passed, True))
        if body == results and results & (results - 1) == 0:
            at = results.bit_length() - 1
            if self.memo.loop[at] is None or found.cost is None:
                seconds = self.prices.call(self.memo.values[at])
                if seconds <= found.seconds:
                    return Candidate(results, body, CALL, Cost(0.0, 0.0, 0.0, seconds, seconds))
        return found

    def _terms(
        self, results: int, body: int, inputs: int, again: float = 0.0, passed: float = 0.0,
        apart: bool = False,
    ) -> Cost:
        return self.prices.terms(
            sum(self.read[i] for i in self.memo.sources(inputs)) + again,
            sum(self.write[i] for i in members(results)) + passed,
            sum(self.work[i] for i in members(body)) + self.prices.ends(self.memo.hops(body), apart),
            0 if self.near else 1)

    def _passed(self, body: int) -> tuple[float, float, int]:
        """Return the seconds for reading anew, and for leaving in the cache, what stages share; its bytes."""
        memo = self.memo
        stage: dict[int, int] = {}
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        for i in members(body):
            loop = memo.loop[i] or 0
            stage[i] = max((stage[o] + (0 if loop >> o & 1 else 1)
                            for o in members(memo.operands[i] & body)), default=0)
            for o in members(memo.operands[i] & memo.arrays):
                last[o] = max(last.get(o, 0), stage[i])
                first[o] = min(first.get(o, stage[i]), stage[i])
        read, write, nbytes = 0.0, 0.0, 0
        for o, at in last.items():
            begun = stage.get(o, first[o])
            if at > begun:
                read += self.again[o]
                if body >> o & 1:
                    write += self.passes[o]
                    nbytes += memo.values[o].meta.nbytes
        return read, write, nbytes

    # ------------------------------------------------------------------ legality

    def is_loop(self, results: int, body: int, inputs: int) -> bool:
        """Tell whether one loop computes `body`: one space, one kind of reduction, NumPy's order."""
        memo = self.memo
        if len({memo.spaces[i] for i in members(body)}) > 1:
            return False
        for i in members(body):
            take = memo.loop[i]
            if take is None or memo.operands[i] & body & ~take:
                return False
        if (inputs & memo.arrays).bit_count() > MAX_ARRAYS or body.bit_count() > MAX_BODY:
            return False
        reductions = memo.hops(body & self.aggregates)
        if any(not MAGG.merge(reductions[0], other) for other in reductions[1:]):
            return False
        if any(not MAGG.merge(a, b) for a, b in combinations(reductions[1:], 2)):
            return False
        return not reductions or MAGG.walk(self.kernel(results, body), memo.facts.layouts) is not None

    def is_row(self, results: int, body: int, inputs: int) -> bool:
        """Tell whether `body` is computed row by row; what is read by rows must not be read whole."""
        memo = self.memo
        if results & memo.views or len({memo.rows[i] for i in members(body)}) > 1:
            return False
        if body.bit_count() > MAX_BODY or (inputs & memo.arrays).bit_count() > MAX_ARRAYS:
            return False
        along, across, whole = 0, 0, 0
        for i in members(body):
            take = memo.row[i]
            if take is None or memo.operands[i] & body & ~take:
                return False
            if i not in self._links:
                self._links[i] = memo.links(i)
            first, second = self._links[i]
            along, across = along | first, across | second
            whole |= memo.operands[i] & memo.arrays & ~(first | second)
        return not (along & across | along & whole | across & whole | (across | whole) & body)

    def kernel(self, results: int, body: int) -> Kernel:
        """Write a loop down."""
        memo = self.memo
        hops = memo.hops(body)
        inside = set(hops)
        inputs = dict.fromkeys(i for h in hops for i in h.inputs if i not in inside)
        outputs = tuple(memo.hops(results))
        name = MAGG.name if any(h.op.kind is Kind.AGG for h in outputs) else CELL.name
        return Kernel(name, _space(hops[0]), tuple(inputs), tuple(hops), outputs)


def _space(hop):
    return hop.inputs[0].meta.shape if hop.op.kind is Kind.AGG else hop.meta.shape
