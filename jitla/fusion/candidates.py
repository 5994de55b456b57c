"""Legal kernels for a set of results, the stages of row kernels, and their cost."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from itertools import chain, combinations
from math import inf, isinf
from typing import NamedTuple

from jitla.fusion.cost_model import Cost, CostModel
from jitla.fusion.iteration import breaks_at_rows, iteration_space, row_space
from jitla.fusion.kernel import MIN_BLOCK_ROWS, Kernel
from jitla.fusion.memo import Closures, Compatibility, Memo, RowAccess, members
from jitla.fusion.templates import CELL, MAGG, TALLY
from jitla.hops import Hop, Kind, Shape


class StageTraffic(NamedTuple):
    """Traffic between the stages of a row kernel: seconds for rereading and for leaving values in the cache.

    `spilled_bytes` are those of the values left there, `input_bytes` those of arrays read row by row.
    `stages` is the number of stages, approximately.
    """

    reread_seconds: float
    spill_seconds: float
    spilled_bytes: int
    input_bytes: int
    stages: int


class StageCosts:
    """Cost of running stages on blocks of rows, beyond what each stage reads, writes and computes."""

    def __init__(self, memo: Memo, cost_model: CostModel, compatibility: Compatibility) -> None:
        self._memo, self._cost_model, self._compatibility = memo, cost_model, compatibility
        self.wide = memo.set(h for h in memo.values if memo.row_operands[memo.number[h]] is not None
                              and memo.is_wide_product(memo.number[h])) if compatibility.with_rows else 0
        self._traffic_memo: dict[int, StageTraffic] = {}
        self._depths: dict[int, int] = {}
        self._nbytes = [h.meta.nbytes for h in memo.values]
        #: By number of rows: the values with it along axis 0, and those with it along any axis.
        self._rows_to_values: dict[int, tuple[int, int]] = {}

    def start_seconds(self, results: int, body: int) -> float:
        """Return the seconds for starting the stages of a row kernel at every block of rows."""
        traffic, rows = self.traffic(body), self._memo.row_counts[results.bit_length() - 1]
        nbytes = traffic.input_bytes + traffic.spilled_bytes + self._row_bytes(results, rows)
        return self._cost_model.stage_starts(
            traffic.stages, rows, nbytes, bool(body & self.wide), bool(results & self._compatibility.ordered))

    def _row_bytes(self, values: int, rows: int) -> int:
        """Return the bytes of the values among `values` that have `rows` rows along axis 0."""
        return sum([self._nbytes[i] for i in members(values & self._values_with_rows(rows)[0])])

    def _values_with_rows(self, rows: int) -> tuple[int, int]:
        """Return the values of length `rows` along axis 0, and those of that length along any axis."""
        masks = self._rows_to_values.get(rows)
        if masks is None:
            shapes = [h.meta.shape for h in self._memo.values]
            masks = self._rows_to_values[rows] = (
                sum([1 << i for i, s in enumerate(shapes) if s[:1] == (rows,)]),
                sum([1 << i for i, s in enumerate(shapes) if rows in s]))
        return masks

    def min_start_seconds(self, value: int, body: int, needs: int) -> float:
        """Return the least seconds for starting the stages of any row kernel with `value` as a result.

        It computes at least `body` and reads at least `needs`.
        """
        memo = self._memo
        rows = memo.row_counts[value]
        nbytes = self._row_bytes(1 << value, rows) + sum(
            [self._nbytes[i] for i in members(needs & self._values_with_rows(rows)[1])])
        depth = self._min_depth(body)
        return min([self._cost_model.stage_starts(depth, rows, nbytes, wide, ordered)
                    for wide, ordered in self._height_classes(1 << value, body)])

    def _min_depth(self, body: int) -> int:
        """Return the least number of dependent stages in a row kernel that computes `body`."""
        depth = self._depths.get(body)
        if depth is None:
            memo, stage = self._memo, dict[int, int]()
            for i in members(body):
                loop = memo.loop_operands[i] or 0
                stage[i] = max([stage[o] + (not loop >> o & 1) for o in members(memo.operands[i] & body)],
                               default=0)
            depth = self._depths[body] = max(stage.values()) + 1
        return depth

    def has_fixed_height(self, results: int, body: int) -> bool:
        """Return whether no other result of a row kernel makes its blocks higher."""
        return len(self._height_classes(results, body)) == 1

    def _height_classes(self, results: int, body: int) -> list[tuple[bool, bool]]:
        """Return the (wide, ordered) arguments of `block_height` possible for kernels with `results`."""
        wide, ordered = self.wide, self._compatibility.ordered
        if body & wide or results & ordered:
            return [(bool(body & wide), bool(results & ordered))]
        same = self._compatibility.row_values[self._memo.row_counts[results.bit_length() - 1]]
        classes = [(False, False)]
        if same & wide:
            classes.append((True, False))
        if same & ordered and not body & self._compatibility.partial_sums:
            classes.append((False, True))
        return classes

    def traffic(self, body: int) -> StageTraffic:
        """Return the traffic between the stages of a row kernel over `body`."""
        traffic = self._traffic_memo.get(body)
        if traffic is None:
            traffic = self._traffic_memo[body] = self._compute_traffic(body)
        return traffic

    def _compute_traffic(self, body: int) -> StageTraffic:
        memo = self._memo
        again, passes = self._cost_model.cached_reads, self._cost_model.cached_writes
        stage: dict[int, int] = {}
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        for i in members(body):
            at, loop, operands = 0, memo.loop_operands[i] or 0, memo.operands[i]
            for o in members(operands & body):
                after = stage[o] if loop >> o & 1 else stage[o] + 1
                if after > at:
                    at = after
            stage[i] = at
            for o in members(operands & memo.arrays):
                latest = last.get(o)
                if latest is None:
                    first[o] = last[o] = at
                elif at > latest:
                    last[o] = at
                elif at < first[o]:
                    first[o] = at
        read, write, nbytes, input_bytes = 0.0, 0.0, 0, 0
        with_rows = self._values_with_rows(memo.row_counts[body.bit_length() - 1])[1]
        for o, at in last.items():
            if o not in stage and with_rows >> o & 1:
                input_bytes += self._nbytes[o]
            if at > (stage[o] if o in stage else first[o]):
                read += again(memo.values[o])
                if o in stage:
                    write += passes(memo.values[o])
                    nbytes += self._nbytes[o]
        spilled = sum([1 << o for o, at in last.items() if at > stage.get(o, at)])
        separate = [i for i in members(body & self._compatibility.aggregates) if memo.operands[i] & spilled]
        return StageTraffic(read, write, nbytes, input_bytes, max(stage.values()) + 1 + len(separate))


MAX_ARRAYS = 24  # distinct arrays one loop reads: beyond, pointers spill and streams compete
MAX_BODY = 2_000  # operations in one loop: bounds the time that LLVM takes
MAX_STAGE_BYTES = 1 << 20  # per thread, between the stages of a row kernel: more do not stay in its cache
MAX_WIDE_STAGE_BYTES = 16 << 20  # the same with a wide matrix: better in the last-level cache than in memory
MAX_RECOMPUTE_CHOICES = 5  # values in memory that a kernel may recompute; up to that, all subsets are tried
LOOP, ROW, CALL = "loop", "row", "call"


class Candidate(NamedTuple):
    """A kernel or a call that produces `results`; `form` is LOOP, ROW or CALL.

    An illegal one has no `cost` and infinite `seconds`. `read` and `work` are the seconds that all threads
    together spend reading and computing, including losses at ends of rows and blocks; 0 for a call.
    """

    results: int
    body: int
    form: str
    cost: Cost | None
    seconds: float = inf
    read: float = 0.0
    work: float = 0.0


class Candidates:
    """The cheapest kernel for any set of results, memoised.

    `in_cache`: kernels are stages of a row kernel, whose values stay in the cache.
    """

    def __init__(
        self, memo: Memo, cost_model: CostModel, with_rows: bool = True, in_cache: bool = False,
    ) -> None:
        self.memo = memo
        self.cost_model = cost_model
        self.with_rows = with_rows
        self.in_cache = in_cache
        self.evaluated = 0
        self.limit = inf  # kernels evaluated, after which values in memory are never recomputed
        self._best: dict[tuple[int, int], Candidate] = {}
        self._evaluated: dict[tuple[int, int], Candidate] = {}
        self._excluded: set[tuple[int, int]] = set()
        self._inputs: dict[int, int] = {}
        self._prerequisites: dict[int, int] = {}
        self._row_end_seconds: tuple[dict[int, float], dict[int, float]] = {0: 0.0}, {0: 0.0}
        self._row_ends = self._row_end_groups()
        self._seconds: tuple[dict[int, float], ...] = {}, {}, {}
        self._source_seconds: dict[int, float] = {}
        self._touched_sources: dict[int, tuple[int, int]] = {}
        self._numpy_order: dict[Hashable, bool] = {}
        values = memo.values
        self.closures = Closures(memo, with_rows)
        closures = self.closures
        self.fusable_operands, self.closure = closures.fusable_operands, closures.closure
        self.with_ancestors, self.reachable = closures.with_ancestors, closures.reachable
        self.work = [cost_model.work(h) if memo.computed >> i & 1 else 0.0 for i, h in enumerate(values)]
        self.read, self.write = \
            self._transfer_seconds(cost_model.cached_reads, cost_model.cached_writes) if in_cache else \
            self._transfer_seconds(cost_model.reads, cost_model.writes)
        self.launch = 0.0 if in_cache else cost_model.machine.launch
        self.min_launch = 0.0 if in_cache else min(self.launch, cost_model.machine.call)
        self.compatibility = Compatibility(memo, with_rows)
        self._row_access = RowAccess(memo)
        self.stages = StageCosts(memo, cost_model, self.compatibility)
        #: The seconds for reading every array once, by its memory number.
        self.seconds_per_source = [inf] * len(values)
        for i in members(memo.arrays):  # reading a view may be cheaper than reading its base
            at = memo.source_set(1 << i).bit_length() - 1
            self.seconds_per_source[at] = min(self.seconds_per_source[at], self.read[i])

    def _row_end_groups(self) -> list[tuple[int, int]]:
        """Return, by iteration space, its values and those whose loops end at every row."""
        spaces: dict[Shape, int] = {}
        ends = self.memo.set(h for h in self.memo.values if breaks_at_rows(h))
        for i, hop in enumerate(self.memo.values):
            space = row_space(hop)
            if space:
                spaces[space] = spaces.get(space, 0) | 1 << i
        return [(values, values & ends) for values in spaces.values()]

    def _transfer_seconds(self, *costs: Callable[[Hop], float]) -> tuple[list[float], ...]:
        """Return the seconds that each of `costs` gives for moving every array."""
        memo = self.memo
        return tuple(
            [p(h) if memo.arrays >> i & 1 else 0.0 for i, h in enumerate(memo.values)] for p in costs)

    def exclude(self, candidates: Iterable[Candidate]) -> None:
        """Rule out kernels that cannot be divided into loops over blocks of rows."""
        for c in candidates:
            self._excluded.add((c.results, c.body))
            self._evaluated.pop((c.results, c.body), None)
        self._best.clear()

    def in_memory(self, chosen: int) -> int:
        """Return all values that are in memory if the `chosen` ones are: views come with their operands."""
        memo = self.memo
        memory = chosen | memo.forced | ~memo.computed & (1 << len(memo.values)) - 1
        for i in members(memo.views):
            if memo.operands[i] & ~memory == 0:
                memory |= 1 << i
        return memory

    def best(self, results: int, memory: int) -> Candidate:
        """Return the cheapest kernel that computes `results` and may read `memory`."""
        key = results, memory & self.reachable(results)
        candidate = self._best.get(key)
        if candidate is None:
            candidate = self._best[key] = self._cheapest(results, memory, *self.closure(results, memory))
        return candidate

    def best_below(self, results: int, memory: int, seconds: float) -> Candidate | None:
        """Return `best` if it is legal and takes less than `seconds`, else None."""
        key = results, memory & self.reachable(results)
        candidate = self._best.get(key)
        if candidate is None:
            body, optional = self.closure(results, memory)
            read = self.read_seconds(self.inputs(body) & ~(optional & self.memo.arrays))
            if self._lower_bound(results, body, read) >= seconds:
                return None
            candidate = self._best[key] = self._cheapest(results, memory, body, optional)
        return candidate if candidate.seconds < seconds else None

    def _cheapest(self, results: int, memory: int, body: int, optional: int) -> Candidate:
        """Return the cheapest kernel that computes `body` and reads or recomputes the `optional` values."""
        best = self.evaluate(results, body, memory)
        optional &= self.memo.arrays
        if not optional or self.evaluated > self.limit:
            return best
        least = self.read_seconds(self.inputs(body) & ~optional)
        if self._lower_bound(results, body, least) >= best.seconds:
            return best
        choices = [i for i in members(optional)
                   if self._lower_bound(
                       results, body | self.closure(1 << i, memory)[0], least) < best.seconds]
        if len(choices) > MAX_RECOMPUTE_CHOICES:
            return self._extend_greedily(best, choices, memory)
        for some in chain.from_iterable(combinations(choices, n) for n in range(1, len(choices) + 1)):
            extra = sum(1 << i for i in some)
            wider, _ = self.closure(results | extra, memory & ~extra)
            if self._lower_bound(results, wider, self.read_seconds(self.inputs(wider))) < best.seconds:
                candidate = self.evaluate(results, wider, memory)
                if candidate.seconds < best.seconds:
                    best = candidate
        return best

    def _lower_bound(self, results: int, body: int, read: float) -> float:
        """Return the least seconds of a kernel that computes `body` and reads for `read` seconds."""
        return self.cost_model.kernel(
            read, self.write_seconds(results), self.work_seconds(body), 0 if self.in_cache else 1)

    def _extend_greedily(self, best: Candidate, choices: list[int], memory: int) -> Candidate:
        """Add the values to recompute one by one, as long as the kernel gets cheaper."""
        extra = 0
        for i in reversed(choices):
            wider, _ = self.closure(best.results | extra | 1 << i, memory & ~(extra | 1 << i))
            candidate = self.evaluate(best.results, wider, memory)
            if candidate.seconds < best.seconds:
                best, extra = candidate, extra | 1 << i
        return best

    def kernel_keys(self, value: int) -> list[tuple[str, int]]:
        """Return the kinds of kernel that can compute `value`, each with its space or row count."""
        memo = self.memo
        keys = [] if memo.loop_operands[value] is None else [(LOOP, memo.spaces[value])]
        with_row = self.with_rows and memo.row_operands[value] is not None
        return [*keys, (ROW, memo.row_counts[value])] if with_row else keys

    def prerequisites(self, body: int) -> int:
        """Return all values that must be computed before `body`."""
        values = self._prerequisites.get(body)
        if values is None:
            values = self._prerequisites[body] = self.with_ancestors(self.inputs(body))
        return values

    # ------------------------------------------------------------------ cost

    def inputs(self, body: int) -> int:
        """Return the values that a kernel over `body` reads."""
        operands = self._inputs.get(body)
        if operands is None:
            operands = 0
            for i in members(body):
                operands |= self.memo.operands[i]
            operands = self._inputs[body] = operands & ~body
        return operands

    def evaluate(self, results: int, body: int, memory: int) -> Candidate:
        """Return the cheapest form of the kernel over `body`; an illegal one costs infinitely much."""
        key = results, body
        candidate = self._evaluated.get(key)
        if candidate is None:
            self.evaluated += 1
            candidate = self._evaluated[key] = self._evaluate(results, body)
        if candidate.cost is not None and self.inputs(body) & ~memory:
            return Candidate(results, body, candidate.form, None)
        return candidate

    def _evaluate(self, results: int, body: int) -> Candidate:
        inputs = self.inputs(body)
        if self.prerequisites(body) & results:
            return Candidate(results, body, LOOP, None)
        form, terms = LOOP, None
        if self.is_legal_loop(results, body, inputs):
            terms = self.terms(results, body, LOOP)
        elif self.with_rows and (results, body) not in self._excluded and \
                self.is_legal_row(results, body, inputs):
            form, terms = ROW, self.terms(results, body, ROW)
        overhead = 0.0 if terms is None else self.overhead_seconds(results, body, form)
        cost = None if terms is None else self._cost(terms, overhead)
        if body == results and results & (results - 1) == 0:
            value = results.bit_length() - 1
            if self.memo.loop_operands[value] is None or cost is None:
                seconds = self.cost_model.call(self.memo.values[value])
                if cost is None or seconds <= cost.total:
                    called = Cost(0.0, 0.0, 0.0, seconds, seconds)
                    return Candidate(results, results, CALL, called, seconds)
        if terms is None or cost is None:
            return Candidate(results, body, form, None)
        return Candidate(results, body, form, cost, cost.total, terms[0], terms[2] + overhead)

    def cost(self, terms: tuple[float, float, float], results: int, body: int, form: str) -> Cost:
        """Return the cost of a kernel with these read, write and compute `terms`, with its overhead."""
        return self._cost(terms, self.overhead_seconds(results, body, form))

    def _cost(self, terms: tuple[float, float, float], overhead: float) -> Cost:
        return self.cost_model.terms(terms[0], terms[1], terms[2] + overhead, 0 if self.in_cache else 1)

    def overhead_seconds(self, results: int, body: int, form: str) -> float:
        """Return the seconds that a kernel loses at row ends, and a row kernel at every block."""
        row_ends = self.row_end_seconds(body, form)
        return row_ends + self.stages.start_seconds(results, body) if form == ROW else row_ends

    def min_start_seconds(self, value: int, body: int, needs: int) -> float:
        """Return the least seconds for starting the stages of any kernel with `value` as a result.

        It computes at least `body` and reads at least `needs`. A loop has no stages.
        """
        is_row = self.memo.row_counts[value] and not self.has_one_space(body)
        return self.stages.min_start_seconds(value, body, needs) if is_row else 0.0

    def max_height_gain(self, kernel: Candidate) -> float:
        """Return the most seconds that a row kernel could save in higher blocks, with further results."""
        results, body = kernel.results, kernel.body
        if self.stages.has_fixed_height(results, body):
            return 0.0
        busy = self.write_seconds(results) + self.stages.traffic(body).spill_seconds
        busy += max(kernel.read, kernel.work)
        saved = min(self.stages.start_seconds(results, body), busy)
        return saved + self.idle_seconds(busy) - self.idle_seconds(busy - saved)

    def row_end_seconds(self, body: int, form: str = ROW) -> float:
        """Return the seconds that a kernel over `body` loses at the ends of rows.

        For a row kernel this is a lower bound: loops over more values lose no less than separate stages do.
        """
        as_stages = form == ROW
        cache = self._row_end_seconds[as_stages]
        seconds = cache.get(body)
        if seconds is None:
            relevant = 0  # without the values that lose nothing
            for values, ends in self._row_ends:
                if body & ends:
                    relevant |= body & values
            seconds = cache.get(relevant)
            if seconds is None:
                seconds = cache[relevant] = self.cost_model.row_ends(self.memo.hops(relevant), as_stages)
            cache[body] = seconds
        return seconds

    def seconds_as_stage(self, loop: Candidate) -> float:
        """Return the seconds of a loop, with the losses at the ends of rows that it would have as stages."""
        overhead_seconds = self.row_end_seconds(loop.body, LOOP)
        saved = overhead_seconds - self.row_end_seconds(loop.body)
        if not saved or isinf(loop.seconds):
            return loop.seconds
        busy = self.write_seconds(loop.results) + max(loop.read, loop.work)
        return loop.seconds - saved - self.idle_seconds(busy) + self.idle_seconds(busy - saved)

    def terms(self, results: int, body: int, form: str) -> tuple[float, float, float] | None:
        """Return the read, write and compute seconds of a legal kernel, without overhead.

        Row kernels also reread and leave values in the cache between stages; None if these do not fit there.
        """
        reread, spill, nbytes, *_ = self.stages.traffic(body) if form == ROW else (0.0, 0.0, 0)
        most = MAX_WIDE_STAGE_BYTES if body & self.stages.wide else MAX_STAGE_BYTES
        if nbytes and MIN_BLOCK_ROWS * nbytes > most * self.memo.row_counts[results.bit_length() - 1]:
            return None
        write = self.write_seconds(results) + spill
        return self.read_seconds(self.inputs(body)) + reread, write, self.work_seconds(body)

    def read_seconds(self, inputs: int) -> float:
        """Return the seconds for reading the arrays among `inputs` once."""
        cache = self._seconds[0]
        seconds = cache.get(inputs)
        if seconds is None:
            seconds = cache[inputs] = sum([self.read[i] for i in self.memo.distinct_arrays(inputs)])
        return seconds

    def write_seconds(self, results: int) -> float:
        """Return the seconds for writing `results` once."""
        cache = self._seconds[2]
        seconds = cache.get(results)
        if seconds is None:
            seconds = cache[results] = sum([self.write[i] for i in members(results)])
        return seconds

    def source_read_seconds(self, sources: int) -> float:
        """Return the seconds for reading a set of arrays, given by their memory numbers, once."""
        seconds = self._source_seconds.get(sources)
        if seconds is None:
            seconds = self._source_seconds[sources] = sum(
                [self.seconds_per_source[x] for x in members(sources)])
        return seconds

    def touched_sources(self, body: int) -> tuple[int, int]:
        """Return the memory numbers of the arrays that a kernel over `body` reads, and `body` itself."""
        touched = self._touched_sources.get(body)
        if touched is None:
            touched = self._touched_sources[body] = self.memo.source_set(self.inputs(body)), body
        return touched

    def idle_seconds(self, busy: float) -> float:
        """Return the elapsed time of a kernel beyond the time all its threads are busy."""
        return 0.0 if self.in_cache else self.cost_model.elapsed(busy) - busy

    def work_seconds(self, body: int) -> float:
        """Return the seconds for computing `body` once."""
        cache = self._seconds[1]
        seconds = cache.get(body)
        if seconds is None:
            seconds = cache[body] = sum([self.work[i] for i in members(body)])
        return seconds

    # ------------------------------------------------------------------ legality

    def is_legal_loop(self, results: int, body: int, inputs: int) -> bool:
        """Return whether one loop computes `body`: one space, one kind of reduction, NumPy's order."""
        memo = self.memo
        if not self.has_one_space(body):
            return False
        if (inputs & memo.arrays).bit_count() > MAX_ARRAYS or body.bit_count() > MAX_BODY:
            return False
        if body & self.compatibility.tallies:
            return self._is_legal_tally(results, body)
        if not body & self.compatibility.aggregates:
            return True
        reductions = memo.hops(body & self.compatibility.aggregates)
        if any(not MAGG.merge(reductions[0], other) for other in reductions[1:]):
            return False
        if any(not MAGG.merge(a, b) for a, b in combinations(reductions[1:], 2)):
            return False
        return self._has_numpy_order(results, body, inputs, memo.spaces[body.bit_length() - 1])

    def _is_legal_tally(self, results: int, body: int) -> bool:
        """Return whether a loop computes only sums by the same labels, over contiguous operands."""
        memo, tallies = self.memo, body & self.compatibility.tallies
        if results != tallies or body & self.compatibility.aggregates:
            return False
        first, *rest = memo.hops(tallies)
        return all(TALLY.merge(first, other) for other in rest) and \
            TALLY.walk(self.loop_kernel(results, body), memo.facts.layouts) is not None

    def has_one_space(self, body: int) -> bool:
        """Return whether `body` has one iteration space and no barrier; if not, no superset has."""
        memo = self.memo
        if body & ~self.compatibility.loop_values.get(memo.spaces[body.bit_length() - 1], 0):
            return False
        for i in members(body & self.compatibility.barriers):
            if memo.operands[i] & body & ~(memo.loop_operands[i] or 0):
                return False
        return True

    def _has_numpy_order(self, results: int, body: int, inputs: int, space: int) -> bool:
        """Return whether the loop adds up in NumPy's order; that depends on its layouts only."""
        memo = self.memo
        key = space, *(frozenset([memo.layout_numbers[i] for i in members(some & memo.arrays)]) for some in (
            inputs, results & ~self.compatibility.aggregates)), frozenset([
                (memo.layout_numbers[i], memo.layout_numbers[memo.operands[i].bit_length() - 1],
                 memo.values[i].attrs)
                for i in members(results & self.compatibility.aggregates)])
        is_numpy_order = self._numpy_order.get(key)
        if is_numpy_order is None:
            kernel = self.loop_kernel(results, body)
            is_numpy_order = self._numpy_order[key] = MAGG.walk(kernel, memo.facts.layouts) is not None
        return is_numpy_order

    def is_legal_row(self, results: int, body: int, inputs: int) -> bool:
        """Return whether a row kernel computes `body`: no operand read by rows may also be read whole."""
        memo = self.memo
        rows = memo.row_counts[body.bit_length() - 1]
        if results & memo.views or body & ~self.compatibility.row_values.get(rows, 0):
            return False
        if body.bit_count() > MAX_BODY or (inputs & memo.arrays).bit_count() > MAX_ARRAYS:
            return False
        if body & self.compatibility.ordered and body & self.compatibility.partial_sums:
            return False  # ordered reductions need small blocks, partial sums restart in every unit
        if results == body and body & body - 1 == 0 and memo.is_better_unfused(body.bit_length() - 1):
            return False  # BLAS is faster for one product alone, NumPy for one copy
        for i in members(body & self._row_access.barriers):
            if memo.operands[i] & body & ~(memo.row_operands[i] or 0):
                return False
        across = whole = 0
        for i in members(body & self._row_access.others):
            across |= self._row_access.across[i]
            whole |= self._row_access.whole[i]
        others = across | whole
        if across & whole or others & body:
            return False
        return not any([self._row_access.along[o] & body for o in members(others)]) if others else True

    def loop_kernel(self, results: int, body: int) -> Kernel:
        """Return the loop over `body` as a `Kernel`."""
        memo = self.memo
        hops = memo.hops(body)
        inside = set(hops)
        inputs = dict.fromkeys(i for h in hops for i in h.inputs if i not in inside)
        outputs = tuple(memo.hops(results))
        last = next((h for kind in (Kind.AGG, Kind.TALLY) for h in outputs if h.op.kind is kind), outputs[0])
        name = memo.loop_templates[memo.number[last]] or CELL.name
        return Kernel(name, iteration_space(hops[0]), tuple(inputs), tuple(hops), outputs)
