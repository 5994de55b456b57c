"""Explanations as text: what became of a function, with the user's own lines.

Knows: the records it is given and how to lay them out. Must not know: hops, rules, plans, kernels.
Receives records; returns an `Explanation`, the same text for the same records.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import groupby
from os import PathLike
from pathlib import Path
from typing import Any

from jitla.errors import ConfigError
from jitla.graph import dot, mermaid
from jitla.page import document, fragment
from jitla.predictions import CostRecord, bytes_text, duration, search_lines, summary_line
from jitla.records import (
    Covered,
    FallbackRecord,
    FiredRule,
    FunctionRecord,
    KeptRecord,
    LoopRecord,
    NestRecord,
    ProgramRecord,
    StageRecord,
)

__all__ = ["LEVELS", "Explanation", "coverage_table", "explanation"]

LEVELS = ("hops", "rewrites", "plan", "cost", "all")


class Explanation:
    """A readable account of what jitla made of a function.

    ``str(e)`` is its text, and what an interactive session shows; a notebook shows it with drawings.
    ``e.at("plan")`` is the same at another level: "hops", "rewrites", "plan", "cost", "all", or the name of
    a stage. ``e.save("plan.html")`` writes a file of the kind that its name ends in.
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

    def to_dict(self) -> dict[str, Any]:
        """Return all that is known, of dictionaries, tuples, text and numbers."""
        return asdict(self.record)

    def to_json(self, indent: int | None = None) -> str:
        """Return all that is known as JSON."""
        return json.dumps(self.to_dict(), indent=indent)

    def to_mermaid(self) -> str:
        """Return a flow chart for Mermaid of each program, one after the other."""
        return "\n".join(mermaid(program.nodes) for program in self.record.programs)

    def to_dot(self) -> str:
        """Return a graph for Graphviz of each program, one after the other."""
        return "\n".join(dot(program.nodes) for program in self.record.programs)

    def to_html(self) -> str:
        """Return a page with drawings, and every level folded; it needs nothing but itself."""
        return document(self.record, self._texts())

    def save(self, file: str | PathLike[str]) -> None:
        """Write to `file` what its name ends in: .html, .json, .mmd, .dot or .txt.

        Raises
        ------
        ConfigError
            If it ends in something else.
        """
        kinds = {".html": self.to_html, ".json": self.to_json, ".mmd": self.to_mermaid, ".dot": self.to_dot,
                 ".txt": self.__str__}
        ending = Path(file).suffix
        if ending not in kinds:
            raise ConfigError(f"no explanation is saved as {str(file)!r}; use one of {', '.join(kinds)}")
        Path(file).write_text(kinds[ending](), encoding="utf-8")

    def _texts(self) -> dict[str, str]:
        """Return the text of every level that has some of its own."""
        stages = (_group(s) for p in self.record.programs for s in p.stages)
        return {level: str(self.at(level)) for level in dict.fromkeys((*LEVELS[:-1], *stages))}

    def _repr_html_(self) -> str:
        return fragment(self.record, self._texts())

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
        yield from _nests(record.nests)
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
        if level == group or level == "all" and group != "loops":
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
    for at, (name, step) in enumerate(program.named()):
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


def _cost(program: ProgramRecord, cost: CostRecord) -> Iterator[str]:
    titles = [name for name, _ in program.named()]
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


# What is said of a loop over elements in each state.
_STATES = {"trusted": "compiled", "waiting": "is being compiled", "tried": "compiled, is being checked",
           "cold": "left to Python so far", "refused": "left to Python"}


def _nests(nests: tuple[NestRecord, ...]) -> Iterator[str]:
    if nests:
        yield f"== loops over elements: {len(nests)}"
    for number, nest in enumerate(nests, 1):
        facts = [_STATES[nest.state] + (f": {nest.reason}" if nest.reason else "")]
        if nest.plain and nest.seconds:
            facts.append(f"{_times(nest.plain, 'run')} by Python, {duration(nest.seconds / nest.plain)} each")
        if nest.runs:
            facts.append(f"{_times(nest.runs, 'run')} compiled, {duration(nest.compiled / nest.runs)} each")
        if nest.left:
            facts.append(f"{nest.left} finished by Python")
        yield f"   N{number}  {', '.join(facts)}"
        yield from _covered((Covered(nest.kinds and f"({nest.kinds})", nest.line),))


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
