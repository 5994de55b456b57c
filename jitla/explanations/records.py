"""Record types of explanations, and the texts of times, sizes and predicted costs.

`Explanation.to_dict` converts the records, so field names are the keys of the JSON format.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterator, Sequence
from os.path import basename

from jitla.classes import dataclass
from jitla.explanations.graph import NodeRecord

__all__ = [
    "COLD_NOTE", "SCALAR_LOOP", "VIEW_REASON", "CallRecord", "CodeRecord", "CompilationRecord", "CostRecord",
    "CoveredOperator", "CutRecord", "FallbackRecord", "FiredRule", "FunctionRecord", "HoistedValueRecord",
    "ImmediateRunRecord", "NumPyCallRecord", "ProgramRecord", "RunnerUpRecord", "ScalarLoopRecord",
    "SeparationRecord", "SourceLine", "SparseResultRecord", "StageRecord", "StepRecord", "TimedRunRecord",
    "bytes_text", "duration", "runner_up_line", "search_lines", "summary_line",
]


COST_TERMS = ("read", "write", "work", "launch")


@dataclass(frozen=True, slots=True)
class RunnerUpRecord:
    """The second-best plan, as its differences from the chosen one.

    `keeps` and `drops` are values that only it, or only the chosen plan, materialises; `terms` are the
    additional seconds for each of `COST_TERMS`.
    """

    seconds: float
    keeps: tuple[str, ...]
    drops: tuple[str, ...]
    terms: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class CostRecord:
    """Predicted costs of a plan and statistics of the search for it.

    `fusion` is the fusion heuristic of the plan, `rules` the costs of plans by other heuristics. `costs` has
    the terms of every step and its seconds; `points` counts the values that may be materialised. `free` is
    the cost and the peak memory of the plan without a memory limit, if that is another one.
    """

    fusion: str
    costs: tuple[tuple[float, ...], ...]
    rules: tuple[tuple[str, float], ...] = ()
    bound: float = 0.0
    kernels: int = 0
    partitions: int = 0
    points: int = 0
    costed: int = 0
    by_cost: int = 0
    by_structure: int = 0
    spent: bool = False
    rival: RunnerUpRecord | None = None
    peak: int = 0
    limit: int = 0
    free: tuple[float, int] | None = None

    @property
    def seconds(self) -> float:
        """Predicted seconds of the plan."""
        return sum(c[-1] for c in self.costs)


def summary_line(cost: CostRecord) -> str:
    """Return one line: the cost of the plan, those of other heuristics in the same unit, its memory."""
    seconds = [cost.seconds, *(s for _, s in cost.rules)]
    unit, factor = _unit(max(seconds))
    chosen = "" if cost.fusion == "cost" else f" by the heuristic {cost.fusion!r}"
    words = [f"{seconds[0] * factor:.3g} {unit}{chosen}"]
    others = [f"{name} {s * factor:.3g}" for name, s in cost.rules]
    limit = f" of {bytes_text(cost.limit)}" if cost.limit else ""
    tail = [f"peak {bytes_text(cost.peak)}{limit}", *(["search ended early"] if cost.spent else [])]
    if others:
        words.append(f"heuristics: {', '.join(others)}")
    return "predicted: " + "; ".join([*words, *tail])


def search_lines(cost: CostRecord, titles: Sequence[str]) -> Iterator[str]:
    """Yield the predicted cost of every step, the statistics of the search, and the second-best plan."""
    for title, terms in zip(titles, cost.costs, strict=True):
        parts = ", ".join(f"{name} {duration(s)}" for name, s in zip(COST_TERMS, terms, strict=False) if s)
        yield f"{title:<3} {duration(terms[-1])}" + (f": {parts}" if parts else "")
    if cost.fusion != "cost":
        return
    where = count_text(cost.partitions, "partition")
    yield (f"at least {duration(cost.bound)}; {count_text(cost.kernels, 'kernel')} considered; "
           f"{count_text(cost.points, 'value')} to materialise or not, in {where}")
    yield (f"plans: {cost.costed} costed, {cost.by_cost} skipped by cost, "
           f"{cost.by_structure} by structure" + ("; the budget ran out" if cost.spent else ""))
    if cost.free is not None:
        seconds, peak = cost.free
        yield (f"without memory_limit: {duration(seconds)}, with {bytes_text(peak)} "
               f"instead of {bytes_text(cost.peak)}")
    else:
        yield from _runner_up(cost)


def runner_up_line(cost: CostRecord) -> str:
    """Return one line on the second-best plan and its differences; empty if there is none."""
    if cost.rival is None:
        return ""
    changes = [f"materialises {', '.join(cost.rival.keeps)}"] if cost.rival.keeps else []
    changes += [f"does not materialise {', '.join(cost.rival.drops)}"] if cost.rival.drops else []
    return f"second-best plan: {duration(cost.rival.seconds)}; it {' and '.join(changes)}"


def _runner_up(cost: CostRecord) -> Iterator[str]:
    if cost.rival is None:
        yield "no other plan was costed"
        return
    yield runner_up_line(cost)
    terms = list(zip(COST_TERMS, cost.rival.terms, strict=True))
    more = [f"{name} {duration(s)}" for name, s in terms if s > 0]
    less = [f"{name} {duration(-s)}" for name, s in terms if s < 0]
    some = [("more", more), ("less", less)]
    yield "   " + "; ".join(f"{word} {', '.join(parts)}" for word, parts in some if parts)


def duration(seconds: float) -> str:
    """Return seconds with three significant digits in a suitable unit."""
    unit, factor = _unit(seconds)
    return f"{seconds * factor:.3g} {unit}" if seconds else "0 s"


def count_text(count: int, noun: str) -> str:
    """Return a count with its noun in singular or plural."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _unit(seconds: float) -> tuple[str, float]:
    units = (("s", 1.0), ("ms", 1e3), ("us", 1e6))
    return next((u for u in units if seconds * u[1] >= 1.0), ("ns", 1e9))


def bytes_text(nbytes: int) -> str:
    """Return bytes with three significant digits in a suitable unit."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= factor:
            return f"{nbytes / factor:.3g} {unit}"
    return f"{nbytes} bytes"


#: Beginning of the note of a function that is not compiled yet because its calls took little time.
COLD_NOTE = "runs in NumPy: calls "
#: Name of an explicit loop in lists of fallbacks.
SCALAR_LOOP = "loop"
#: Reason of a step that only returns a view.
VIEW_REASON = "a view"
_NOTEBOOK_CELL = re.compile(r"<ipython-input-(\d+)-\w+>")


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A source line of the user's program."""

    file: str
    line: int
    text: str = ""

    @classmethod
    def at(cls, file: str, line: int) -> SourceLine:
        """Return line number `line` of `file` with its text, if the file can be read."""
        return cls(file, line, linecache.getline(file, line).strip())

    @property
    def place(self) -> str:
        """The line as ``file:number`` without folders, ``In[3]:2`` for notebook cells; empty if unknown."""
        if self.file == "?":
            return ""
        cell = _NOTEBOOK_CELL.fullmatch(self.file)
        return f"In[{cell[1]}]:{self.line}" if cell else f"{basename(self.file)}:{self.line}"


@dataclass(frozen=True, slots=True)
class CoveredOperator:
    """An operator that a step computes, and its source line, if known."""

    op: str
    line: SourceLine | None = None


@dataclass(frozen=True, slots=True)
class StepRecord:
    """A step of a plan: `kind` "kernel" or "call", `title` ("Cell 1000x60 float64").

    `reads` and `writes` count the arrays that a kernel accesses, `nbytes` their bytes; `reason` is why a call
    is not a kernel. `nnz` is an upper bound on the nonzeros of the result, None if there is none; `counted`
    the number counted in an explained call, None if not counted. `seconds` is the median of measured runs,
    0.0 without any. `shares` are the estimated shares of its time of the operators it `covers`. `schedule`
    is the chosen schedule and its origin, empty for the default.
    """

    kind: str
    title: str
    covers: tuple[CoveredOperator, ...] = ()
    reads: int = 0
    writes: int = 0
    reason: str = ""
    nbytes: int = 0
    nnz: int | None = None
    seconds: float = 0.0
    shares: tuple[float, ...] = ()
    counted: int | None = None
    schedule: str = ""

    @property
    def on_numbers(self) -> bool:
        """Whether this is a NumPy call on scalars."""
        scalar_only = " scalar" in self.title and not self.nbytes
        return self.kind == "call" and (self.reason == "scalar" or scalar_only)

    @property
    def nonzeros(self) -> str:
        """The bound and the count of the nonzeros of the result; empty without a bound."""
        if self.nnz is None:
            return ""
        counted = "" if self.counted is None else f", {self.counted} counted"
        return f"at most {self.nnz} nonzeros{counted}"

    def share(self, line: SourceLine) -> float:
        """Return the estimated share of its time that operators of `line` take."""
        return sum(s for s, c in zip(self.shares, self.covers, strict=False) if c.line == line)


@dataclass(frozen=True, slots=True)
class SeparationRecord:
    """A value that one step (`maker`, "K1") writes to memory for others, and why they are not fused."""

    value: str
    maker: str
    readers: tuple[str, ...]
    reason: str

    @property
    def text(self) -> str:
        """The record as one line."""
        steps = f"{self.maker} and {', '.join(self.readers)}"
        return f"{steps} are not fused, {self.value} is between them: {self.reason}"


@dataclass(frozen=True, slots=True)
class CodeRecord:
    """LLVM IR (`text`) and assembly of a kernel ("K1") for one memory access form of its arrays."""

    kernel: str
    form: str
    text: str
    assembly: str


@dataclass(frozen=True, slots=True)
class TimedRunRecord:
    """A timed run of a program: its start, and the seconds of its steps and of the whole."""

    begun: float
    seconds: tuple[float, ...]
    whole: float
    thread: int


@dataclass(frozen=True, slots=True)
class StageRecord:
    """The result of a compilation stage ("rewrites.static") as text, and the time it took."""

    name: str
    text: str
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class FiredRule:
    """A rewrite rule that fired `count` times."""

    name: str
    count: int
    doc: str = ""
    exactness: str = "exact"


@dataclass(frozen=True, slots=True)
class ProgramRecord:
    """A compiled block: the results of its stages, the rules that fired, its steps and their times.

    `materialised` counts the intermediates per run that are written to memory; `cost` is the planner's
    prediction. `laps` are the timed runs, `timed` the number of those with the sizes shown and `seconds`
    their median. `apart` lists unfused steps, `codes` the machine code, `source` the Python function that
    runs the steps. `sizes` is the number of distinct sizes; the record shows those of the last timed run.
    """

    name: str
    stages: tuple[StageRecord, ...] = ()
    fired: tuple[FiredRule, ...] = ()
    steps: tuple[StepRecord, ...] = ()
    runs: int = 0
    materialised: int = 0
    compile_seconds: float = 0.0
    cost: CostRecord | None = None
    nodes: tuple[NodeRecord, ...] = ()
    seconds: float = 0.0
    laps: tuple[TimedRunRecord, ...] = ()
    apart: tuple[SeparationRecord, ...] = ()
    trace: tuple[CoveredOperator, ...] = ()
    codes: tuple[CodeRecord, ...] = ()
    source: str = ""
    timed: int = 0
    sizes: int = 1

    @property
    def kernels(self) -> int:
        """Number of steps that are kernels."""
        return sum(s.kind == "kernel" for s in self.steps)

    @property
    def calls(self) -> int:
        """Number of steps that are NumPy calls on arrays."""
        return sum(s.kind == "call" and s.reason != VIEW_REASON and not s.on_numbers for s in self.steps)

    def named(self) -> Iterator[tuple[str, StepRecord]]:
        """Yield the steps with their names: "K1" is the first kernel, "C1" the first call."""
        numbers = {"kernel": 0, "call": 0}
        for step in self.steps:
            numbers[step.kind] += 1
            yield f"{step.kind[0].upper()}{numbers[step.kind]}", step


@dataclass(frozen=True, slots=True)
class FallbackRecord:
    """A NumPy function that was called outside of programs: where, how often, how long, why."""

    function: str
    line: SourceLine
    count: int
    seconds: float = 0.0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ImmediateRunRecord:
    """An operation on indices, masks or labels that a kernel runs immediately, outside of any plan.

    `count` runs took `seconds` and accessed `nbytes`; `by_numpy` counts the runs by NumPy, for lack of a
    kernel or of elements.
    """

    operation: str
    title: str
    line: SourceLine
    count: int
    by_numpy: int = 0
    seconds: float = 0.0
    nbytes: int = 0


@dataclass(frozen=True, slots=True)
class ScalarLoopRecord:
    """An explicit loop: its `state` ("trusted": compiled code runs it), and the `reason` if Python runs it.

    `kinds` are the types of its inputs. `plain` iterations by Python took `seconds`, `runs` of compiled code,
    many iterations each, `compiled` seconds. `left` times an iteration was left to Python, last for the
    reason `failure`. `text` is the compiled loop program.
    """

    line: SourceLine
    state: str
    reason: str = ""
    kinds: str = ""
    plain: int = 0
    runs: int = 0
    left: int = 0
    seconds: float = 0.0
    compiled: float = 0.0
    failure: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class HoistedValueRecord:
    """A loop-invariant value that is kept between runs: computed `made` times, reused `used` times."""

    title: str
    covers: tuple[CoveredOperator, ...]
    made: int
    used: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class CutRecord:
    """A line after which long blocks were split: how often, and after how many operations."""

    line: SourceLine
    count: int
    operations: int


@dataclass(frozen=True, slots=True)
class CompilationRecord:
    """A block without a plan: the guard that failed, what was compiled, when, and how long it took."""

    line: SourceLine
    guard: str
    tier: str
    plans: int
    compiled: int
    reused: int
    nbytes: int
    seconds: float
    ended: float


@dataclass(frozen=True, slots=True)
class NumPyCallRecord:
    """A NumPy call outside of programs during an explained call: its start, duration and thread."""

    name: str
    begun: float
    seconds: float
    thread: int


@dataclass(frozen=True, slots=True)
class SparseResultRecord:
    """A sparse result that was made `times` times: its elements, its entries, and their bound `most`."""

    title: str
    elements: int
    most: int
    entries: int
    times: int = 1

    @property
    def text(self) -> str:
        """Say so in a line."""
        bound = f" of at most {self.most}" if self.most > self.entries else ""
        part = self.entries / self.elements if self.elements else 0.0
        again = f", {self.times} times" if self.times > 1 else ""
        return f"{self.title}, {self.entries}{bound} entries ({part:.3g} of all elements){again}"


@dataclass(frozen=True, slots=True)
class CallRecord:
    """An explained call: its start and duration, the NumPy calls in it (`moments`).

    `stored` are its sparse results, equal ones once.
    """

    begun: float
    seconds: float
    moments: tuple[NumPyCallRecord, ...] = ()
    stored: tuple[SparseResultRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class FunctionRecord:
    """Everything known about a decorated function; `note` is why nothing is compiled.

    `waiting` counts the blocks that NumPy runs until they are compiled, `failures` lists those that could not
    be compiled. `assumed`: the machine has not been calibrated. `call` is the explained call. `given` is the
    class of a table among the arguments, whose arithmetic is not traced. `turns`: the function has loops.
    `cuts` are the places where long blocks were split.
    """

    name: str
    line: SourceLine
    calls: int = 0
    programs: tuple[ProgramRecord, ...] = ()
    fallbacks: tuple[FallbackRecord, ...] = ()
    note: str = ""
    loops: tuple[ImmediateRunRecord, ...] = ()
    kept: tuple[HoistedValueRecord, ...] = ()
    nests: tuple[ScalarLoopRecord, ...] = ()
    waiting: int = 0
    compilations: tuple[CompilationRecord, ...] = ()
    failures: tuple[str, ...] = ()
    assumed: bool = False
    call: CallRecord | None = None
    given: str = ""
    turns: bool = False
    cuts: tuple[CutRecord, ...] = ()

    @property
    def place(self) -> str:
        """The place of the function and its number of calls."""
        called = f"{self.calls} call{'' if self.calls == 1 else 's'}"
        return f"{self.line.place}, {called}" if self.line.place else called

    @property
    def remark(self) -> str:
        """The reason why nothing is compiled, or has been so far; empty if something is."""
        if self.call is not None and self.programs and self.note.startswith(COLD_NOTE):
            return "was compiled for this call; other calls run in NumPy until they have taken long enough"
        if self.given and not self.programs and (not self.note or self.note.startswith(COLD_NOTE)):
            return f"runs in NumPy: arithmetic of a {self.given} is not traced, and there was nothing else"
        if self.note or self.programs or self.fallbacks or self.waiting or self.loops or self.nests:
            return self.note
        if not self.calls:
            return ("has not been called: explain(f, *arguments) calls it; "
                    "jitla.spec(sizes) can stand for arrays")
        if self.turns:
            return "nothing was compiled: its loops have no operations on arrays, or it ended before them"
        return ("nothing was compiled: it has no operations on arrays, or SciPy's on small matrices, "
                "or it ended before them")
