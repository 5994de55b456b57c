"""Legal kernels for a set of results, their stages, and their cost."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from itertools import chain, combinations
from math import inf, isinf
from typing import NamedTuple

from jitla.concurrency import rest
from jitla.fusion.cost_model import Cost, CostModel
from jitla.fusion.iteration import ended, ends_rows, iteration
from jitla.fusion.kernel import LEAST_HEIGHT, Kernel
from jitla.fusion.memo import Cones, Links, Mates, Memo, members
from jitla.fusion.templates import CELL, MAGG, TALLY
from jitla.hops import Hop, Kind, Shape


class Passed(NamedTuple):
    """Seconds for reading anew, and for leaving in the cache, what the stages of a row kernel share.

    `nbytes` are those of what is left there, `given` of arrays read by rows; how many `stages`, about.
    """

    again: float
    passed: float
    nbytes: int
    given: int
    stages: int


class Stages:
    """What the stages of row kernels take beside what every one of them reads, writes and computes."""

    def __init__(self, memo: Memo, prices: CostModel, mates: Mates) -> None:
        self._memo, self._prices, self._mates = memo, prices, mates
        self.wide = memo.set(h for h in memo.values if memo.row[memo.number[h]] is not None
                              and memo.is_wide(memo.number[h])) if mates.by_rows else 0
        self._shared: dict[int, Passed] = {}
        self._depths: dict[int, int] = {}
        self._nbytes = [h.meta.nbytes for h in memo.values]
        #: The values that lie by so many rows, and those that have them along any axis.
        self._lying: dict[int, tuple[int, int]] = {}

    def beginning(self, results: int, body: int) -> float:
        """Return the seconds for beginning the stages of a row kernel at every block of rows."""
        passed, rows = self.passed(body), self._memo.rows[results.bit_length() - 1]
        nbytes = passed.given + passed.nbytes + self._by_rows(results, rows)
        return self._prices.begins(
            passed.stages, rows, nbytes, bool(body & self.wide), bool(results & self._mates.turns))

    def _by_rows(self, values: int, rows: int) -> int:
        """Return the bytes of the values that lie by so many rows."""
        return sum([self._nbytes[i] for i in members(values & self._lies(rows)[0])])

    def _lies(self, rows: int) -> tuple[int, int]:
        found = self._lying.get(rows)
        if found is None:
            shapes = [h.meta.shape for h in self._memo.values]
            found = self._lying[rows] = (sum([1 << i for i, s in enumerate(shapes) if s[:1] == (rows,)]),
                                         sum([1 << i for i, s in enumerate(shapes) if rows in s]))
        return found

    def least(self, value: int, body: int, needs: int) -> float:
        """Return the least that beginning takes in a row kernel for `value`, whatever else it makes.

        It computes `body` and reads `needs` in any case.
        """
        memo = self._memo
        rows = memo.rows[value]
        nbytes = self._by_rows(1 << value, rows) + sum(
            [self._nbytes[i] for i in members(needs & self._lies(rows)[1])])
        depth = self._depth(body)
        return min([self._prices.begins(depth, rows, nbytes, wide, turns)
                    for wide, turns in self._heights(1 << value, body)])

    def _depth(self, body: int) -> int:
        """Return how many stages at least follow on each other in a row kernel that computes `body`."""
        found = self._depths.get(body)
        if found is None:
            memo, stage = self._memo, dict[int, int]()
            for i in members(body):
                loop = memo.loop[i] or 0
                stage[i] = max([stage[o] + (not loop >> o & 1) for o in members(memo.operands[i] & body)],
                               default=0)
            found = self._depths[body] = max(stage.values()) + 1
        return found

    def is_settled(self, results: int, body: int) -> bool:
        """Tell whether no other result of a row kernel makes its blocks higher."""
        return len(self._heights(results, body)) == 1

    def _heights(self, results: int, body: int) -> list[tuple[bool, bool]]:
        """Return what may decide how high the blocks of a kernel are that makes `results`, and maybe more."""
        wide, turns = self.wide, self._mates.turns
        if body & wide or results & turns:
            return [(bool(body & wide), bool(results & turns))]
        same = self._mates.rows[self._memo.rows[results.bit_length() - 1]]
        found = [(False, False)]
        if same & wide:
            found.append((True, False))
        if same & turns and not body & self._mates.sums:
            found.append((False, True))
        return found

    def passed(self, body: int) -> Passed:
        """Return what the stages of a row kernel over `body` share."""
        found = self._shared.get(body)
        if found is None:
            found = self._shared[body] = self._pass(body)
        return found

    def _pass(self, body: int) -> Passed:
        memo = self._memo
        again, passes = self._prices.again, self._prices.passes
        stage: dict[int, int] = {}
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        for i in members(body):
            at, loop, operands = 0, memo.loop[i] or 0, memo.operands[i]
            for o in members(operands & body):
                after = stage[o] if loop >> o & 1 else stage[o] + 1
                if after > at:
                    at = after
            stage[i] = at
            for o in members(operands & memo.arrays):
                known = last.get(o)
                if known is None:
                    first[o] = last[o] = at
                elif at > known:
                    last[o] = at
                elif at < first[o]:
                    first[o] = at
        read, write, nbytes, given = 0.0, 0.0, 0, 0
        lies = self._lies(memo.rows[body.bit_length() - 1])[1]
        for o, at in last.items():
            if o not in stage and lies >> o & 1:
                given += self._nbytes[o]
            if at > (stage[o] if o in stage else first[o]):
                read += again(memo.values[o])
                if o in stage:
                    write += passes(memo.values[o])
                    nbytes += self._nbytes[o]
        left = sum([1 << o for o, at in last.items() if at > stage.get(o, at)])
        apart = [i for i in members(body & self._mates.aggregates) if memo.operands[i] & left]
        return Passed(read, write, nbytes, given, max(stage.values()) + 1 + len(apart))


MAX_ARRAYS = 24  # distinct arrays one loop reads: beyond, pointers spill and streams compete
MAX_BODY = 2_000  # operations in one loop: bounds the time that LLVM takes
MAX_ROOM = 1 << 20  # bytes per thread between the stages of a row kernel: more do not stay in its cache
WIDE_ROOM = 16 << 20  # the same if they meet a wide matrix: better in the last cache than in memory
MAX_CHOICES = 5  # values in memory that a kernel may compute anew: all subsets of so many are tried
LOOP, ROW, CALL = "loop", "row", "call"


class Candidate(NamedTuple):
    """A kernel or a call that makes `results`; `form` is LOOP, ROW or CALL.

    `cost` is None and `seconds` infinite if it is not legal. `read` and `work` are the seconds that all
    threads together read and compute, and lose at ends of rows and blocks, of a call none.
    """

    results: int
    body: int
    form: str
    cost: Cost | None
    seconds: float = inf
    read: float = 0.0
    work: float = 0.0


class Candidates:
    """The cheapest kernel for every set of results asked for, each found once.

    `near`: they are stages of a row kernel, whose values are passed on in the cache.
    """

    def __init__(self, memo: Memo, prices: CostModel, rows: bool = True, near: bool = False) -> None:
        self.memo = memo
        self.prices = prices
        self.rows = rows
        self.near = near
        self.priced = 0
        self.limit = inf  # so many priced, everything that is in memory is read
        self._best: dict[tuple[int, int], Candidate] = {}
        self._priced: dict[tuple[int, int], Candidate] = {}
        self._forbidden: set[tuple[int, int]] = set()
        self._inputs: dict[int, int] = {}
        self._waits: dict[int, int] = {}
        self._lost: tuple[dict[int, float], dict[int, float]] = {0: 0.0}, {0: 0.0}
        self._ends = self._ended()
        self._sums: tuple[dict[int, float], ...] = {}, {}, {}
        self._by_source: dict[int, float] = {}
        self._touches: dict[int, tuple[int, int]] = {}
        self._walks: dict[Hashable, bool] = {}
        values = memo.values
        self.cones = Cones(memo, rows)
        self.take, self.grow, self.below = self.cones.take, self.cones.grow, self.cones.below
        self.reach = self.cones.reach
        self.work = [prices.work(h) if memo.computed >> i & 1 else 0.0 for i, h in enumerate(values)]
        self.read, self.write = self._moves(prices.again, prices.passes) if near else \
            self._moves(prices.reads, prices.writes)
        self.launch = 0.0 if near else prices.machine.launch
        self.least_launch = 0.0 if near else min(self.launch, prices.machine.call)
        self.mates = Mates(memo, rows)
        self._links = Links(memo)
        self.stages = Stages(memo, prices, self.mates)
        #: The seconds for reading every array, by its number, once.
        self.source_read = [inf] * len(values)
        for i in members(memo.arrays):  # a view may be nearer than what it is of
            at = memo.shared(1 << i).bit_length() - 1
            self.source_read[at] = min(self.source_read[at], self.read[i])

    def _ended(self) -> list[tuple[int, int]]:
        """For every space return the values of its loops, and those that end them behind every row."""
        spaces: dict[Shape, int] = {}
        ends = self.memo.set(h for h in self.memo.values if ends_rows(h))
        for i, hop in enumerate(self.memo.values):
            space = ended(hop)
            if space:
                spaces[space] = spaces.get(space, 0) | 1 << i
        return [(values, values & ends) for values in spaces.values()]

    def _moves(self, *prices: Callable[[Hop], float]) -> tuple[list[float], ...]:
        """For every value, ask what reading it costs, and what writing it costs."""
        memo = self.memo
        return tuple(
            [p(h) if memo.arrays >> i & 1 else 0.0 for i, h in enumerate(memo.values)] for p in prices)

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

    def best(self, results: int, memory: int) -> Candidate:
        """Return the cheapest kernel that makes `results`, with `memory` to read from."""
        key = results, memory & self.reach(results)
        found = self._best.get(key)
        if found is None:
            found = self._best[key] = self._cheapest(results, memory, *self.grow(results, memory))
        return found

    def gains(self, results: int, memory: int, seconds: float) -> Candidate | None:
        """Return `best` if that is legal and takes less than so long, None if it does not."""
        key = results, memory & self.reach(results)
        found = self._best.get(key)
        if found is None:
            body, optional = self.grow(results, memory)
            read = self.reading(self.inputs(body) & ~(optional & self.memo.arrays))
            if self._floor(results, body, read) >= seconds:
                return None
            found = self._best[key] = self._cheapest(results, memory, body, optional)
        return found if found.seconds < seconds else None

    def _cheapest(self, results: int, memory: int, body: int, optional: int) -> Candidate:
        """Compute `body`, which must be computed; then also what is `optional`, where that may be cheaper."""
        best = self.price(results, body, memory)
        optional &= self.memo.arrays
        if not optional or self.priced > self.limit:
            return best
        least = self.reading(self.inputs(body) & ~optional)
        if self._floor(results, body, least) >= best.seconds:
            return best
        choices = [i for i in members(optional)
                   if self._floor(results, body | self.grow(1 << i, memory)[0], least) < best.seconds]
        if len(choices) > MAX_CHOICES:
            return self._improved(best, choices, memory)
        for some in chain.from_iterable(combinations(choices, n) for n in range(1, len(choices) + 1)):
            extra = sum(1 << i for i in some)
            wider, _ = self.grow(results | extra, memory & ~extra)
            if self._floor(results, wider, self.reading(self.inputs(wider))) < best.seconds:
                found = self.price(results, wider, memory)
                if found.seconds < best.seconds:
                    best = found
        return best

    def _floor(self, results: int, body: int, read: float) -> float:
        """Return what a kernel that computes at least `body` and reads at least so long does not go below."""
        return self.prices.kernel(read, self.writing(results), self.working(body), 0 if self.near else 1)

    def _improved(self, best: Candidate, choices: list[int], memory: int) -> Candidate:
        """Take in one value after the other as long as that helps."""
        extra = 0
        for i in reversed(choices):
            wider, _ = self.grow(best.results | extra | 1 << i, memory & ~(extra | 1 << i))
            found = self.price(best.results, wider, memory)
            if found.seconds < best.seconds:
                best, extra = found, extra | 1 << i
        return best

    def groups(self, value: int) -> list[tuple[str, int]]:
        """Return what the other results of a kernel that makes `value` have in common with it."""
        memo = self.memo
        found = [] if memo.loop[value] is None else [(LOOP, memo.spaces[value])]
        return [*found, (ROW, memo.rows[value])] if self.rows and memo.row[value] is not None else found

    def waits(self, body: int) -> int:
        """Return everything that has to be there before `body` is computed."""
        found = self._waits.get(body)
        if found is None:
            found = self._waits[body] = self.below(self.inputs(body))
        return found

    # ------------------------------------------------------------------ prices

    def inputs(self, body: int) -> int:
        """Return what a kernel over `body` reads."""
        found = self._inputs.get(body)
        if found is None:
            found = 0
            for i in members(body):
                found |= self.memo.operands[i]
            found = self._inputs[body] = found & ~body
        return found

    def price(self, results: int, body: int, memory: int) -> Candidate:
        """Return the cheapest form of the kernel over `body`; one that is not legal costs infinitely much."""
        key = results, body
        found = self._priced.get(key)
        if found is None:
            self.priced += 1
            found = self._priced[key] = self._price(results, body)
        if found.cost is not None and self.inputs(body) & ~memory:
            return Candidate(results, body, found.form, None)
        return found

    def _price(self, results: int, body: int) -> Candidate:
        rest()
        inputs = self.inputs(body)
        if self.waits(body) & results:
            return Candidate(results, body, LOOP, None)
        form, terms = LOOP, None
        if self.is_loop(results, body, inputs):
            terms = self.terms(results, body, LOOP)
        elif self.rows and (results, body) not in self._forbidden and self.is_row(results, body, inputs):
            form, terms = ROW, self.terms(results, body, ROW)
        more = 0.0 if terms is None else self.lost(results, body, form)
        cost = None if terms is None else self._cost(terms, more)
        if body == results and results & (results - 1) == 0:
            at = results.bit_length() - 1
            if self.memo.loop[at] is None or cost is None:
                seconds = self.prices.call(self.memo.values[at])
                if cost is None or seconds <= cost.total:
                    called = Cost(0.0, 0.0, 0.0, seconds, seconds)
                    return Candidate(results, results, CALL, called, seconds)
        if terms is None or cost is None:
            return Candidate(results, body, form, None)
        return Candidate(results, body, form, cost, cost.total, terms[0], terms[2] + more)

    def cost(self, terms: tuple[float, float, float], results: int, body: int, form: str) -> Cost:
        """Price a kernel that reads, writes and computes so long; add what ends of rows and blocks cost."""
        return self._cost(terms, self.lost(results, body, form))

    def _cost(self, terms: tuple[float, float, float], lost: float) -> Cost:
        return self.prices.terms(terms[0], terms[1], terms[2] + lost, 0 if self.near else 1)

    def lost(self, results: int, body: int, form: str) -> float:
        """Return the seconds that a kernel loses at ends of rows, and of a row kernel of blocks."""
        lost = self.losing(body, form)
        return lost + self.stages.beginning(results, body) if form == ROW else lost

    def least_beginning(self, value: int, body: int, needs: int) -> float:
        """Return the least seconds for beginning the stages of a kernel for `value`, whatever else it makes.

        It computes `body` and reads `needs` in any case. A loop has no stages.
        """
        is_row = self.memo.rows[value] and not self.is_one_space(body)
        return self.stages.least(value, body, needs) if is_row else 0.0

    def higher(self, kernel: Candidate) -> float:
        """Return the seconds that a row kernel may spare in higher blocks, as other results may make them."""
        results, body = kernel.results, kernel.body
        if self.stages.is_settled(results, body):
            return 0.0
        busy = self.writing(results) + self.stages.passed(body).passed + max(kernel.read, kernel.work)
        spared = min(self.stages.beginning(results, body), busy)
        return spared + self.slack(busy) - self.slack(busy - spared)

    def losing(self, body: int, form: str = ROW) -> float:
        """Return the seconds that a kernel over `body` loses at the ends of rows.

        Kernels over more lose no less than stages of rows do.
        """
        apart = form == ROW
        known = self._lost[apart]
        found = known.get(body)
        if found is None:
            some = 0  # what loses nothing does not matter
            for values, ends in self._ends:
                if body & ends:
                    some |= body & values
            found = known.get(some)
            if found is None:
                found = known[some] = self.prices.ends(self.memo.hops(some), apart)
            known[body] = found
        return found

    def in_rows(self, loop: Candidate) -> float:
        """Return the seconds of a loop without what it loses more at the ends of rows than stages do."""
        lost = self.losing(loop.body, LOOP)
        spared = lost - self.losing(loop.body)
        if not spared or isinf(loop.seconds):
            return loop.seconds
        busy = self.writing(loop.results) + max(loop.read, loop.work)
        return loop.seconds - spared - self.slack(busy) + self.slack(busy - spared)

    def terms(self, results: int, body: int, form: str) -> tuple[float, float, float] | None:
        """Return how long a legal kernel reads, writes and computes, but for the ends of rows.

        Stages of a row kernel read again, and pass on, in the cache; None if they pass on too much.
        """
        again, passed, nbytes, *_ = self.stages.passed(body) if form == ROW else (0.0, 0.0, 0)
        most = WIDE_ROOM if body & self.stages.wide else MAX_ROOM
        if nbytes and LEAST_HEIGHT * nbytes > most * self.memo.rows[results.bit_length() - 1]:
            return None
        write = self.writing(results) + passed
        return self.reading(self.inputs(body)) + again, write, self.working(body)

    def reading(self, inputs: int) -> float:
        """Return the seconds for reading the arrays among `inputs` once."""
        known = self._sums[0]
        found = known.get(inputs)
        if found is None:
            found = known[inputs] = sum([self.read[i] for i in self.memo.sources(inputs)])
        return found

    def writing(self, results: int) -> float:
        """Return the seconds for writing `results` once."""
        known = self._sums[2]
        found = known.get(results)
        if found is None:
            found = known[results] = sum([self.write[i] for i in members(results)])
        return found

    def reading_sources(self, sources: int) -> float:
        """Return the seconds for reading a set of arrays, by their numbers, once."""
        found = self._by_source.get(sources)
        if found is None:
            found = self._by_source[sources] = sum([self.source_read[x] for x in members(sources)])
        return found

    def touches(self, body: int) -> tuple[int, int]:
        """Return the numbers of the arrays that a kernel over `body` reads, and `body`."""
        found = self._touches.get(body)
        if found is None:
            found = self._touches[body] = self.memo.shared(self.inputs(body)), body
        return found

    def slack(self, busy: float) -> float:
        """Return how much longer a kernel takes than its threads are all busy."""
        return 0.0 if self.near else self.prices.busy(busy) - busy

    def working(self, body: int) -> float:
        """Return the seconds for computing `body` once."""
        known = self._sums[1]
        found = known.get(body)
        if found is None:
            found = known[body] = sum([self.work[i] for i in members(body)])
        return found

    # ------------------------------------------------------------------ legality

    def is_loop(self, results: int, body: int, inputs: int) -> bool:
        """Tell whether one loop computes `body`: one space, one kind of reduction, NumPy's order."""
        memo = self.memo
        if not self.is_one_space(body):
            return False
        if (inputs & memo.arrays).bit_count() > MAX_ARRAYS or body.bit_count() > MAX_BODY:
            return False
        if body & self.mates.tallies:
            return self._is_tally(results, body)
        if not body & self.mates.aggregates:
            return True
        reductions = memo.hops(body & self.mates.aggregates)
        if any(not MAGG.merge(reductions[0], other) for other in reductions[1:]):
            return False
        if any(not MAGG.merge(a, b) for a, b in combinations(reductions[1:], 2)):
            return False
        return self._is_walked(results, body, inputs, memo.spaces[body.bit_length() - 1])

    def _is_tally(self, results: int, body: int) -> bool:
        """Tell whether a loop makes nothing but sums by the same labels, of which there are all in a run."""
        memo, tallies = self.memo, body & self.mates.tallies
        if results != tallies or body & self.mates.aggregates:
            return False
        first, *rest = memo.hops(tallies)
        return all(TALLY.merge(first, other) for other in rest) and \
            TALLY.walk(self.kernel(results, body), memo.facts.layouts) is not None

    def is_one_space(self, body: int) -> bool:
        """Tell whether `body` is of one space, no border in it: if it is not, nothing with more is."""
        memo = self.memo
        if body & ~self.mates.loops.get(memo.spaces[body.bit_length() - 1], 0):
            return False
        for i in members(body & self.mates.borders):
            if memo.operands[i] & body & ~(memo.loop[i] or 0):
                return False
        return True

    def _is_walked(self, results: int, body: int, inputs: int, space: int) -> bool:
        """Tell whether the loop adds up in NumPy's order; that depends on the layouts that there are."""
        memo = self.memo
        key = space, *(frozenset([memo.lies[i] for i in members(some & memo.arrays)]) for some in (
            inputs, results & ~self.mates.aggregates)), frozenset([
                (memo.lies[i], memo.lies[memo.operands[i].bit_length() - 1], memo.values[i].attrs)
                for i in members(results & self.mates.aggregates)])
        found = self._walks.get(key)
        if found is None:
            kernel = self.kernel(results, body)
            found = self._walks[key] = MAGG.walk(kernel, memo.facts.layouts) is not None
        return found

    def is_row(self, results: int, body: int, inputs: int) -> bool:
        """Tell whether `body` is computed row by row; what is read by rows must not be read whole."""
        memo = self.memo
        if results & memo.views or body & ~self.mates.rows.get(memo.rows[body.bit_length() - 1], 0):
            return False
        if body.bit_count() > MAX_BODY or (inputs & memo.arrays).bit_count() > MAX_ARRAYS:
            return False
        if body & self.mates.turns and body & self.mates.sums:
            return False  # blocks that take turns are small, sums of several are begun anew
        if results == body and body & body - 1 == 0 and memo.is_better_alone(body.bit_length() - 1):
            return False  # a product alone is for BLAS, a copy alone for NumPy
        for i in members(body & self._links.borders):
            if memo.operands[i] & body & ~(memo.row[i] or 0):
                return False
        across = whole = 0
        for i in members(body & self._links.others):
            across |= self._links.across[i]
            whole |= self._links.whole[i]
        others = across | whole
        if across & whole or others & body:
            return False
        return not any([self._links.along[o] & body for o in members(others)]) if others else True

    def kernel(self, results: int, body: int) -> Kernel:
        """Write a loop down."""
        memo = self.memo
        hops = memo.hops(body)
        inside = set(hops)
        inputs = dict.fromkeys(i for h in hops for i in h.inputs if i not in inside)
        outputs = tuple(memo.hops(results))
        last = next((h for kind in (Kind.AGG, Kind.TALLY) for h in outputs if h.op.kind is kind), outputs[0])
        name = memo.loops[memo.number[last]] or CELL.name
        return Kernel(name, iteration(hops[0]), tuple(inputs), tuple(hops), outputs)
