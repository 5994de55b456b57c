"""Explanations as text: what became of a function, with the user's own lines.

Knows: the records it is given and how to lay them out. Must not know: hops, rules, plans, kernels.
Receives records; returns an `Explanation`, the same text for the same records.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from os.path import basename

from jitla.errors import ConfigError
from jitla.predictions import CostRecord, bytes_text, duration, search_lines, summary_line

__all__ = [
    "LEVELS",
    "Covered",
    "Explanation",
    "FallbackRecord",
    "FiredRule",
    "FunctionRecord",
    "KeptRecord",
    "LoopRecord",
    "ProgramRecord",
    "SourceLine",
    "StageRecord",
    "StepRecord",
    "coverage_table",
    "explanation",
]

LEVELS = ("hops", "rewrites", "plan", "cost", "all")


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
        """The line as ``file:number``, without folders."""
        return f"{basename(self.file)}:{self.line}"


@dataclass(frozen=True, slots=True)
class Covered:
    """An operator that a step computes, and the user's line that asked for it, if known."""

    op: str
    line: SourceLine | None = None


@dataclass(frozen=True, slots=True)
class StepRecord:
    """A step of a plan: `kind` "kernel" or "call", `title` ("Cell 1000x60 float64").

    `reads` and `writes` count the arrays a kernel touches; `reason` says why a call is no kernel.
    """

    kind: str
    title: str
    covers: tuple[Covered, ...] = ()
    reads: int = 0
    writes: int = 0
    reason: str = ""


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
    what the planner predicted.
    """

    name: str
    stages: tuple[StageRecord, ...] = ()
    fired: tuple[FiredRule, ...] = ()
    steps: tuple[StepRecord, ...] = ()
    runs: int = 0
    materialised: int = 0
    compile_seconds: float = 0.0
    cost: CostRecord | None = None

    @property
    def kernels(self) -> int:
        """Number of steps that are kernels."""
        return sum(s.kind == "kernel" for s in self.steps)

    @property
    def calls(self) -> int:
        """Number of steps that are NumPy calls on arrays."""
        return sum(s.kind == "call" and s.reason != "scalar" for s in self.steps)


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
class KeptRecord:
    """A value that stays the same from run to run: `made` times computed, `used` times found in memory."""

    title: str
    covers: tuple[Covered, ...]
    made: int
    used: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class FunctionRecord:
    """All that is known of a decorated function; `note` says why nothing is compiled, if so.

    `waiting` blocks are run by NumPy for now; `compilations` say what was compiled when, and why.
    """

    name: str
    line: SourceLine
    calls: int = 0
    programs: tuple[ProgramRecord, ...] = ()
    fallbacks: tuple[FallbackRecord, ...] = ()
    note: str = ""
    loops: tuple[LoopRecord, ...] = ()
    kept: tuple[KeptRecord, ...] = ()
    waiting: int = 0
    compilations: tuple[str, ...] = ()


class Explanation:
    """A readable account of what jitla made of a function.

    ``str(e)`` is its text, and what an interactive session shows. ``e.at("plan")`` is the same at
    another level: "hops", "rewrites", "plan", "cost", "all", or the name of a stage.
    """

    def __init__(self, record: FunctionRecord, level: str = "plan") -> None:
        known = [*LEVELS, *dict.fromkeys(_group(s) for p in record.programs for s in p.stages)]
        if level not in known:
            wanted = ", ".join(map(repr, dict.fromkeys(known)))
            raise ConfigError(f"level={level!r} is not possible; use one of {wanted}")
        self.record = record
        self.level = level

    def at(self, level: str) -> Explanation:
        """Return this explanation at another level."""
        return Explanation(self.record, level)

    def __str__(self) -> str:
        return "\n".join(_function(self.record, self.level)) + "\n"

    __repr__ = __str__

    def _repr_pretty_(self, printer: object, cycle: bool) -> None:
        printer.text(str(self))  # type: ignore[attr-defined]


def explanation(record: FunctionRecord, level: str = "plan") -> Explanation:
    """Return the account of `record`, as far as `level` goes."""
    return Explanation(record, level)


def coverage_table(fallbacks: Iterable[FallbackRecord], loops: Iterable[LoopRecord] = ()) -> str:
    """Return what was done when it was met, and what was handed to NumPy, as tables, the most time first."""
    return "\n".join((*_loops(tuple(loops)), *_fallbacks(tuple(fallbacks)))) + "\n"


# --------------------------------------------------------------------------- parts of the text


def _function(record: FunctionRecord, level: str) -> Iterator[str]:
    facts = [_times(record.calls, "call"), _times(len(record.programs), "program")]
    yield f"{record.name}  ({record.line.place})  {', '.join(facts)}"
    if record.note:
        yield f"   {record.note}"
    for number, program in enumerate(record.programs, 1):
        yield ""
        yield from _program(program, number, level)
    if record.waiting:
        yield f"   NumPy runs {_times(record.waiting, 'block')} until their programs are there"
    if level == "all" and record.compilations:
        yield ""
        yield f"== met without a plan: {_times(len(record.compilations), 'time')}"
        yield from (f"   {line}" for line in record.compilations)
    if level in ("plan", "all"):
        yield ""
        yield from _kept(record.kept)
        yield from _loops(record.loops)
        yield from _fallbacks(record.fallbacks)


def _program(program: ProgramRecord, number: int, level: str) -> Iterator[str]:
    facts = [
        _times(program.runs, "run"), _times(program.kernels, "kernel"),
        _times(program.calls, "NumPy call"),
        f"{_times(program.materialised, 'intermediate')} in memory",
        f"compiled in {duration(program.compile_seconds)}",
    ]
    yield f"== program {number}: {program.name}"
    yield f"   {', '.join(facts)}"
    planned = False
    for stage in program.stages:
        group = _group(stage)
        if group == "plan":
            planned = True
        if level in (group, "all"):
            yield from _stage(stage, program)
    if level in ("plan", "all") and not planned:
        yield "-- plan"
        yield from _steps(program)
    if level in ("cost", "all") and program.cost is not None:
        yield "-- cost"
        yield from _cost(program, program.cost)


def _stage(stage: StageRecord, program: ProgramRecord) -> Iterator[str]:
    group = _group(stage)
    yield f"-- {stage.name}  {duration(stage.seconds)}"
    if stage.name in ("rewrites", "rewrites.static"):
        yield from _fired(program.fired)
    if group == "plan":
        yield from _steps(program)
    else:
        yield from _indented(stage.text)


def _fired(fired: tuple[FiredRule, ...]) -> Iterator[str]:
    if not fired:
        yield "   no rule fired"
    width = max((len(f.name) for f in fired), default=0)
    for f in sorted(fired, key=lambda f: (-f.count, f.name)):
        yield f"   {f.count:>3} x {f.name:<{width}}  {f.exactness:<8}  {f.doc}".rstrip()


def _steps(program: ProgramRecord) -> Iterator[str]:
    for at, (name, step) in enumerate(_named(program.steps)):
        facts = [step.title]
        if step.kind == "kernel":
            facts += [f"reads {step.reads}", f"writes {step.writes}"]
        if program.cost is not None and program.cost.costs[at][-1] > 0.0:
            facts.append(f"about {duration(program.cost.costs[at][-1])}")
        reason = f"  ({step.reason})" if step.reason else ""
        yield f"   {name}  {', '.join(facts)}{reason}"
        yield from _covered(step.covers)
    if program.cost is not None:
        yield f"   {summary_line(program.cost)}"


def _named(steps: tuple[StepRecord, ...]) -> Iterator[tuple[str, StepRecord]]:
    numbers = {"kernel": 0, "call": 0}
    for step in steps:
        numbers[step.kind] += 1
        yield f"{step.kind[0].upper()}{numbers[step.kind]}", step


def _cost(program: ProgramRecord, cost: CostRecord) -> Iterator[str]:
    titles = [name for name, _ in _named(program.steps)]
    yield from (f"   {row}" for row in search_lines(cost, titles))


def _covered(covers: tuple[Covered, ...]) -> Iterator[str]:
    """Group operators that stand together and come from one line."""
    groups = groupby(covers, lambda c: c.line)
    rows = [(line, " ".join(c.op for c in group)) for line, group in groups]
    places = [line.place if line else "" for line, _ in rows]
    width = max(map(len, places), default=0)
    for (line, operators), place in zip(rows, places, strict=True):
        text = f"  | {line.text}" if line and line.text else ""
        yield f"       {place:<{width}}  {operators}{text}"


def _loops(loops: tuple[LoopRecord, ...]) -> Iterator[str]:
    if not loops:
        return
    yield f"== done when met: {_times(len(loops), 'place')}"
    for number, loop in enumerate(sorted(loops, key=lambda x: (-x.seconds, x.operation, x.line.place)), 1):
        facts = [loop.title or loop.operation]
        if loop.count:
            each = loop.seconds / loop.count
            facts += [_times(loop.count, "run"), f"{bytes_text(loop.nbytes // loop.count)} each",
                      f"took {duration(each)} each"]
        if loop.by_numpy:
            facts.append(f"{_times(loop.by_numpy, 'time')} by NumPy")
        yield f"   L{number}  {', '.join(facts)}"
        yield from _covered((Covered(loop.operation, loop.line),))


def _kept(kept: tuple[KeptRecord, ...]) -> Iterator[str]:
    if kept:
        yield f"== kept from run to run: {_times(len(kept), 'value')}"
    for number, value in enumerate(kept, 1):
        facts = [value.title, f"made {_times(value.made, 'time')}", f"used {_times(value.used, 'time')}"]
        yield f"   V{number}  {', '.join((*facts, bytes_text(value.nbytes)))}"
        yield from _covered(value.covers)


def _fallbacks(fallbacks: tuple[FallbackRecord, ...]) -> Iterator[str]:
    if not fallbacks:
        yield "== handed to NumPy: nothing"
        return
    rows = sorted(fallbacks, key=lambda f: (-f.seconds, f.function, f.line.place))
    widths = [max(len(f.function) for f in rows), max(len(f.line.place) for f in rows)]
    yield f"== handed to NumPy: {_times(len(rows), 'place')}"
    for f in rows:
        reason = f"  ({f.reason})" if f.reason else ""
        text = f"  | {f.line.text}" if f.line.text else ""
        yield (f"   {f.count:>5} x {f.function:<{widths[0]}}  {duration(f.seconds):>8}  "
               f"{f.line.place:<{widths[1]}}{text}{reason}").rstrip()


# --------------------------------------------------------------------------- words


def _group(stage: StageRecord) -> str:
    return stage.name.partition(".")[0]


def _indented(text: str) -> Iterator[str]:
    for row in text.rstrip("\n").split("\n"):
        yield f"   {row}".rstrip()


def _times(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
