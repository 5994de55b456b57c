"""What is known of decorated functions, as records: lines, steps, programs, fallbacks.

Knows: the standard library. Must not know: hops, plans, how records are shown.
Receives facts from the account; immutable, without addresses, the same for the same runs.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from dataclasses import dataclass
from os.path import basename

from jitla.graph import NodeRecord
from jitla.predictions import CostRecord

__all__ = [
    "Covered",
    "FallbackRecord",
    "FiredRule",
    "FunctionRecord",
    "KeptRecord",
    "LoopRecord",
    "NestRecord",
    "ProgramRecord",
    "SourceLine",
    "StageRecord",
    "StepRecord",
]


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
    nodes: tuple[NodeRecord, ...] = ()

    @property
    def kernels(self) -> int:
        """Number of steps that are kernels."""
        return sum(s.kind == "kernel" for s in self.steps)

    @property
    def calls(self) -> int:
        """Number of steps that are NumPy calls on arrays."""
        return sum(s.kind == "call" and s.reason != "scalar" for s in self.steps)

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
    nests: tuple[NestRecord, ...] = ()
    waiting: int = 0
    compilations: tuple[str, ...] = ()
