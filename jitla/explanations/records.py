"""Records that explanations are made of, and the predicted times in them."""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterator, Sequence
from os.path import basename

from jitla.classes import dataclass
from jitla.explanations.graph import NodeRecord

__all__ = [
    "ApartRecord", "COLD", "CallRecord", "CodeRecord", "CompilationRecord", "CostRecord", "Covered",
    "CutRecord", "FallbackRecord", "FiredRule", "FunctionRecord", "KeptRecord", "LapRecord", "LoopRecord",
    "Moment", "NestRecord", "ProgramRecord", "RivalRecord", "SourceLine", "StageRecord", "StepRecord",
    "StoredRecord", "VIEW", "bytes_text", "duration", "rival_line", "search_lines", "summary_line",
]


TERMS = ("read", "write", "work", "launch")


@dataclass(frozen=True, slots=True)
class RivalRecord:
    """The plan that came second: values it keeps in memory or computes anew, other than the one chosen.

    `terms` are what it costs more by what it is spent on, as in `TERMS`.
    """

    seconds: float
    keeps: tuple[str, ...]
    drops: tuple[str, ...]
    terms: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class CostRecord:
    """What the planner says of a plan; `fusion` is the rule it was made by, `rules` what others cost.

    `costs` has the terms of every step and its seconds. Counts are choices of values to keep in memory.
    `free` is what a plan without the limit of memory would cost and take, where it is another one.
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
    rival: RivalRecord | None = None
    peak: int = 0
    limit: int = 0
    free: tuple[float, int] | None = None

    @property
    def seconds(self) -> float:
        """What the plan is predicted to take."""
        return sum(c[-1] for c in self.costs)


def summary_line(cost: CostRecord) -> str:
    """Return one line: the plan, those of other rules in the same unit, its memory."""
    seconds = [cost.seconds, *(s for _, s in cost.rules)]
    unit, factor = _unit(max(seconds))
    chosen = "" if cost.fusion == "cost" else f" by the rule {cost.fusion!r}"
    words = [f"{seconds[0] * factor:.3g} {unit}{chosen}"]
    others = [f"{name} {s * factor:.3g}" for name, s in cost.rules]
    limit = f" of {bytes_text(cost.limit)}" if cost.limit else ""
    tail = [f"peak {bytes_text(cost.peak)}{limit}", *(["search ended early"] if cost.spent else [])]
    if others:
        words.append(f"other rules: {', '.join(others)}")
    return "predicted: " + "; ".join([*words, *tail])


def search_lines(cost: CostRecord, titles: Sequence[str]) -> Iterator[str]:
    """Return what every step costs, what the search has looked at, and what came second."""
    for title, terms in zip(titles, cost.costs, strict=True):
        parts = ", ".join(f"{name} {duration(s)}" for name, s in zip(TERMS, terms, strict=False) if s)
        yield f"{title:<3} {duration(terms[-1])}" + (f": {parts}" if parts else "")
    if cost.fusion != "cost":
        return
    where = _times(cost.partitions, "partition")
    yield (f"at least {duration(cost.bound)}; {_times(cost.kernels, 'kernel')} considered; "
           f"{_times(cost.points, 'value')} to keep in memory or not, in {where}")
    yield (f"plans: {cost.costed} costed, {cost.by_cost} skipped by cost, "
           f"{cost.by_structure} by structure" + ("; the budget ran out" if cost.spent else ""))
    if cost.free is not None:
        seconds, peak = cost.free
        yield (f"without memory_limit: {duration(seconds)}, which takes {bytes_text(peak)} "
               f"instead of {bytes_text(cost.peak)}")
    else:
        yield from _rival(cost)


def rival_line(cost: CostRecord) -> str:
    """Return one line on the plan that came second, and what it does otherwise; nothing if there was none."""
    if cost.rival is None:
        return ""
    words = [f"keeps {', '.join(cost.rival.keeps)}"] if cost.rival.keeps else []
    words += [f"does not keep {', '.join(cost.rival.drops)}"] if cost.rival.drops else []
    return f"second: {duration(cost.rival.seconds)}; it {' and '.join(words)}"


def _rival(cost: CostRecord) -> Iterator[str]:
    if cost.rival is None:
        yield "no other plan was costed"
        return
    yield rival_line(cost)
    terms = list(zip(TERMS, cost.rival.terms, strict=True))
    more = [f"{name} {duration(s)}" for name, s in terms if s > 0]
    less = [f"{name} {duration(-s)}" for name, s in terms if s < 0]
    some = [("more", more), ("less", less)]
    yield "   " + "; ".join(f"{word} {', '.join(parts)}" for word, parts in some if parts)


def duration(seconds: float) -> str:
    """Return seconds with three digits, in the unit that suits."""
    unit, factor = _unit(seconds)
    return f"{seconds * factor:.3g} {unit}" if seconds else "0 s"


def _times(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _unit(seconds: float) -> tuple[str, float]:
    units = (("s", 1.0), ("ms", 1e3), ("us", 1e6))
    return next((u for u in units if seconds * u[1] >= 1.0), ("ns", 1e9))


def bytes_text(nbytes: int) -> str:
    """Return bytes with three digits, in the unit that suits."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= factor:
            return f"{nbytes / factor:.3g} {unit}"
    return f"{nbytes} bytes"


# How notes begin of calls that nothing was spent on yet.
COLD = "runs in NumPy: calls "
# What coverage calls a loop over elements that Python keeps.
NEST = "loop over elements"
VIEW = "a view"  # why a step is no kernel that moves nothing
_CELL = re.compile(r"<ipython-input-(\d+)-\w+>")


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of the user's program."""

    file: str
    line: int
    text: str = ""

    @classmethod
    def at(cls, file: str, line: int) -> SourceLine:
        """Return line number `line` of `file` with its text, if that can be read."""
        return cls(file, line, linecache.getline(file, line).strip())

    @property
    def place(self) -> str:
        """The line as ``file:number``, without folders; that of a cell as ``In[3]:2``; nothing if unknown."""
        if self.file == "?":
            return ""
        cell = _CELL.fullmatch(self.file)
        return f"In[{cell[1]}]:{self.line}" if cell else f"{basename(self.file)}:{self.line}"


@dataclass(frozen=True, slots=True)
class Covered:
    """An operator that a step computes, and the user's line that asked for it, if known."""

    op: str
    line: SourceLine | None = None


@dataclass(frozen=True, slots=True)
class StepRecord:
    """A step of a plan: `kind` "kernel" or "call", `title` ("Cell 1000x60 float64").

    `reads` and `writes` count the arrays a kernel touches, of `nbytes` together; `reason` says why a call
    is no kernel. `nnz`: how many elements of its result are other than 0 at most, None if maybe all;
    `counted`: how many were when a call was explained, None if nobody has looked. `seconds` are measured,
    the median of some runs; 0.0 where it never was. `shares` are estimates of the parts of its time that go
    to what it `covers`. `schedule` says what was chosen for it by whom, nothing if it runs as usual.
    """

    kind: str
    title: str
    covers: tuple[Covered, ...] = ()
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
        """Whether NumPy only computes a number from numbers: what that takes is the call itself."""
        alone = " scalar" in self.title and not self.nbytes
        return self.kind == "call" and (self.reason == "scalar" or alone)

    @property
    def nonzeros(self) -> str:
        """How many elements of the result are other than 0: at most, and counted; nothing if maybe all."""
        if self.nnz is None:
            return ""
        counted = "" if self.counted is None else f", {self.counted} were"
        return f"at most {self.nnz} other than 0{counted}"

    def share(self, line: SourceLine) -> float:
        """Estimate what part of its time goes to operators of `line`."""
        return sum(s for s, c in zip(self.shares, self.covers, strict=False) if c.line == line)


@dataclass(frozen=True, slots=True)
class ApartRecord:
    """A value that one step (`maker`, "K1") writes to memory and others read: why they are no one loop."""

    value: str
    maker: str
    readers: tuple[str, ...]
    reason: str

    @property
    def text(self) -> str:
        """Say so in a line."""
        return f"{self.maker} and {', '.join(self.readers)} are apart, {self.value} between: {self.reason}"


@dataclass(frozen=True, slots=True)
class CodeRecord:
    """What a kernel ("K1") was compiled from and to, for one way of walking over its arrays (`form`)."""

    kernel: str
    form: str
    text: str
    assembly: str


@dataclass(frozen=True, slots=True)
class LapRecord:
    """One run of a program that was timed: when it began, the seconds of its steps and of all of it."""

    begun: float
    seconds: tuple[float, ...]
    whole: float
    thread: int


@dataclass(frozen=True, slots=True)
class StageRecord:
    """What a stage of the pipeline made: `name` ("rewrites.static"), its text, its time."""

    name: str
    text: str
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class FiredRule:
    """A rewrite that fired `count` times."""

    name: str
    count: int
    doc: str = ""
    exactness: str = "exact"


@dataclass(frozen=True, slots=True)
class ProgramRecord:
    """A compiled block: its stages, rules, steps, and what running it came to.

    `materialised` counts values per run that are written to memory without being results; `cost` is
    what the planner predicted. `laps` are the runs that were timed, `timed` of them with these sizes:
    `seconds` is the median of those. `apart` says why steps share no loop, `codes` what was compiled,
    `source` is the Python function that runs the steps. It runs with so many `sizes`; all is said of those
    that were timed last.
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
    laps: tuple[LapRecord, ...] = ()
    apart: tuple[ApartRecord, ...] = ()
    trace: tuple[Covered, ...] = ()
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
        return sum(s.kind == "call" and s.reason != VIEW and not s.on_numbers for s in self.steps)

    def named(self) -> Iterator[tuple[str, StepRecord]]:
        """Yield the steps with their names: "K1" is the first kernel, "C1" the first call."""
        numbers = {"kernel": 0, "call": 0}
        for step in self.steps:
            numbers[step.kind] += 1
            yield f"{step.kind[0].upper()}{numbers[step.kind]}", step


@dataclass(frozen=True, slots=True)
class FallbackRecord:
    """A NumPy function that was called on finished values: where, how often, how long, why."""

    function: str
    line: SourceLine
    count: int
    seconds: float = 0.0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class LoopRecord:
    """What indices, masks or labels at one line said, done when it was met by a loop that is in no plan.

    `count` runs of it took `seconds` and met `nbytes`; `by_numpy` times there was no loop for it, or
    too little to do.
    """

    operation: str
    title: str
    line: SourceLine
    count: int
    by_numpy: int = 0
    seconds: float = 0.0
    nbytes: int = 0


@dataclass(frozen=True, slots=True)
class NestRecord:
    """An explicit loop over elements: `state` ("trusted": compiled code runs it), `reason` if Python does.

    `kinds` are those of what it is given. `plain` runs by Python took `seconds`, `runs` of compiled code
    `compiled`; `left` of them ended where Python had to go on.
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


@dataclass(frozen=True, slots=True)
class KeptRecord:
    """A value that stays the same from run to run: `made` times computed, `used` times found in memory."""

    title: str
    covers: tuple[Covered, ...]
    made: int
    used: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class CutRecord:
    """A line behind which blocks ended because they had become long: how often, how many operations."""

    line: SourceLine
    count: int
    operations: int


@dataclass(frozen=True, slots=True)
class CompilationRecord:
    """One time that a block met no plan: the guard that failed, what was done, when, and how long it took."""

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
class Moment:
    """What NumPy was called for outside of programs while somebody watched: when, and in which thread."""

    name: str
    begun: float
    seconds: float
    thread: int


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A sparse matrix that was made `times` times: how many of its elements `most` are entries, and are."""

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
    """A call that was watched: when it began, how long it took, what NumPy was called for in it.

    `stored` are the sparse matrices it made, those that are alike once.
    """

    begun: float
    seconds: float
    moments: tuple[Moment, ...] = ()
    stored: tuple[StoredRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class FunctionRecord:
    """All that is known of a decorated function; `note` says why nothing is compiled, if so.

    `waiting` blocks are run by NumPy for now; `compilations` say what was compiled when, and why.
    `failures` are blocks that no program could be made for; `assumed`: nobody has measured this machine;
    `call` is the one that was made to explain it; `given`: the class of a table among its arguments, whose
    arithmetic is its own; `turns`: there are loops in it. `cuts` are ends of blocks that nothing asked for.
    """

    name: str
    line: SourceLine
    calls: int = 0
    programs: tuple[ProgramRecord, ...] = ()
    fallbacks: tuple[FallbackRecord, ...] = ()
    note: str = ""
    loops: tuple[LoopRecord, ...] = ()
    kept: tuple[KeptRecord, ...] = ()
    nests: tuple[NestRecord, ...] = ()
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
        """Where the function is, and how often it was called."""
        called = f"{self.calls} call{'' if self.calls == 1 else 's'}"
        return f"{self.line.place}, {called}" if self.line.place else called

    @property
    def remark(self) -> str:
        """What to know before anything else: why nothing is compiled, or was so far."""
        if self.call is not None and self.programs and self.note.startswith(COLD):
            return "was compiled for this call; others run in NumPy until they have taken long enough"
        if self.given and not self.programs and (not self.note or self.note.startswith(COLD)):
            return f"runs in NumPy: arithmetic of a {self.given} is its own, and nothing else was asked for"
        if self.note or self.programs or self.fallbacks or self.waiting or self.loops or self.nests:
            return self.note
        if not self.calls:
            return ("has not been called: explain(f, *arguments) does that; "
                    "jitla.spec(sizes) may stand for arrays")
        if self.turns:
            return "nothing was compiled: its loops asked for no work on arrays, or it ended before"
        return ("nothing was compiled: it asked for no work on arrays, or for SciPy's on small matrices, "
                "or it ended before")
