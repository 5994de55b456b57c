"""Explanations as text: what became of a function, with the user's own lines."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import Any

from jitla.errors import ConfigError
from jitla.explanations.advice import advice
from jitla.explanations.graph import (
    dot,
    mermaid,
)
from jitla.explanations.html import (
    document,
    fragment,
    preformatted,
)
from jitla.explanations.records import (
    Covered,
    FallbackRecord,
    FunctionRecord,
    KeptRecord,
    LoopRecord,
    NestRecord,
    bytes_text,
    duration,
)
from jitla.explanations.text import (
    DEEP,
    LEVELS,
    covered_lines,
    cut_lines,
    program_lines,
    recompilation_lines,
    runtime_lines,
    stage_levels,
    times,
)
from jitla.explanations.trace_events import timeline

__all__ = ["LEVELS", "Explanation", "coverage_table", "explanation"]

SCREEN = 6  # programs that are shown at first, those that took most; "all" shows every one
TRACE = ".trace.json"


class Explanation:
    """A readable account of what jitla made of a function.

    ``str(e)`` is its text, and what an interactive session shows; a notebook shows it with drawings.
    ``e.at("kernels")`` is the same at another level, see `jitla.explain`; the name of a stage is one, too.
    ``e.save("plan.html")`` writes a file of the kind that its name ends in.
    """

    def __init__(self, record: FunctionRecord, level: str = "plan",
                 deeper: Callable[[], FunctionRecord] | None = None) -> None:
        if level in DEEP and deeper is not None:
            record, deeper = deeper(), None
        known = dict.fromkeys([*LEVELS, *stage_levels(record)])
        if level not in known:
            raise ConfigError(f"level={level!r} is not possible; use one of {', '.join(map(repr, known))}")
        self.record = record
        self.level = level
        self._deeper = deeper

    def at(self, level: str) -> Explanation:
        """Return this explanation at another level."""
        return Explanation(self.record, level, self._deeper)

    def __str__(self) -> str:
        return "\n".join(_function(self.record, self.level)) + "\n"

    __repr__ = __str__

    def to_dict(self) -> dict[str, Any]:
        """Return all that is known, of dictionaries, tuples, text and numbers."""
        return asdict(self.record)

    def to_json(self, indent: int | None = None) -> str:
        """Return all that is known as JSON."""
        return json.dumps(self.to_dict(), indent=indent)

    def to_trace(self) -> str:
        """Return the runs that were timed as a timeline for ui.perfetto.dev and chrome://tracing."""
        return timeline(self.record)

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
        """Write to `file` what its name ends in: .html, .json, .trace.json (a timeline), .mmd, .dot or .txt.

        Raises
        ------
        ConfigError
            If it ends in something else.
        """
        kinds = {".html": self.to_html, TRACE: self.to_trace, ".json": self.to_json, ".mmd": self.to_mermaid,
                 ".dot": self.to_dot, ".txt": self.__str__}
        made = next((kinds[ending] for ending in kinds if str(file).endswith(ending)), None)
        if made is None:
            raise ConfigError(f"no explanation is saved as {str(file)!r}; use one of {', '.join(kinds)}")
        Path(file).write_text(made(), encoding="utf-8")

    def _texts(self) -> dict[str, str]:
        """Return the text of every level that has some of its own."""
        codes = any(p.codes for p in self.record.programs)
        levels = dict.fromkeys((*LEVELS[:-1], *stage_levels(self.record)))
        return {level: str(self.at(level)) for level in levels if level not in DEEP or codes}

    def _repr_html_(self) -> str:
        if self.level != "plan":  # who asks for a level wants to read that
            return preformatted(f"{self.record.name}: {self.level}", str(self))
        return fragment(self.record, self._texts())

    def _repr_pretty_(self, printer: object, cycle: bool) -> None:
        printer.text(str(self))  # type: ignore[attr-defined]


def explanation(
    record: FunctionRecord | Callable[[bool], FunctionRecord], level: str = "plan",
) -> Explanation:
    """Return the account of `record`, as far as `level` goes; it may be made, if asked with all code."""
    if isinstance(record, FunctionRecord):
        return Explanation(record, level)
    return Explanation(record(False), level, lambda: record(True))


def coverage_table(fallbacks: Iterable[FallbackRecord], loops: Iterable[LoopRecord] = ()) -> str:
    """Return what was done when it was met, and what was handed to NumPy, as tables, the most time first."""
    return "\n".join((*_loops(tuple(loops)), *_fallbacks(tuple(fallbacks)))) + "\n"


# --------------------------------------------------------------------------- parts of the text


def _function(record: FunctionRecord, level: str) -> Iterator[str]:
    facts = [times(record.calls, "call"), times(len(record.programs), "program")]
    place = f"  ({record.line.place})" if record.line.place else ""
    yield f"{record.name}{place}  {', '.join(facts)}"
    if record.remark:
        yield f"   {record.remark}"
    shown = _shown(record) if level == "plan" else set(range(len(record.programs)))
    if level != "recompilations":
        for at in sorted(shown):
            yield ""
            yield from program_lines(record.programs[at], at + 1, level)
    if len(shown) < len(record.programs):
        more = times(len(record.programs) - len(shown), "program")
        yield f"\n{more} that took less; level=\"all\" shows everything"
    if record.waiting:
        yield f"   NumPy runs {times(record.waiting, 'block')} until their programs are there"
    if level == "recompilations" or level == "all" and record.compilations:
        yield ""
        yield from recompilation_lines(record)
    if level in ("runtime", "all") and record.call is not None:
        yield ""
        yield from runtime_lines(record)
    if level in ("plan", "all"):
        yield ""
        yield from _rest(record)


def _shown(record: FunctionRecord) -> set[int]:
    """Return the numbers of the programs that a screen has room for: those that took most."""
    taken = [p.runs * (p.seconds or (p.cost.seconds if p.cost else 0.0)) for p in record.programs]
    return set(sorted(range(len(taken)), key=lambda at: (-taken[at], at))[:SCREEN])


def _rest(record: FunctionRecord) -> Iterator[str]:
    """Yield what is in no program, and what to do about it."""
    if record.call is not None and record.call.stored:
        yield f"== sparse results: {len(record.call.stored)}"
        yield from (f"   S{at}  {made.text}" for at, made in enumerate(record.call.stored, 1))
    yield from cut_lines(record.cuts)
    yield from _nests(record.nests)
    yield from _kept(record.kept)
    yield from _loops(record.loops)
    yield from _fallbacks(record.fallbacks)
    found = advice(record)
    if found:
        yield "== for more speed"
        yield from (f"   {text}" for text in found)


def _loops(loops: tuple[LoopRecord, ...]) -> Iterator[str]:
    if not loops:
        return
    yield f"== done when met: {times(len(loops), 'place')}"
    for number, loop in enumerate(sorted(loops, key=lambda x: (-x.seconds, x.operation, x.line.place)), 1):
        facts = [loop.title or loop.operation]
        if loop.count:
            each = loop.seconds / loop.count
            facts += [times(loop.count, "run"), f"{bytes_text(loop.nbytes // loop.count)} each",
                      f"took {duration(each)} each"]
        if loop.by_numpy:
            facts.append(f"{times(loop.by_numpy, 'time')} by NumPy")
        yield f"   L{number}  {', '.join(facts)}"
        yield from covered_lines((Covered(loop.operation, loop.line),))


# What is said of a loop over elements in each state.
_STATES = {"trusted": "compiled", "waiting": "is being compiled", "tried": "compiled, is being checked",
           "cold": "left to Python so far", "refused": "left to Python"}

_SOON = "left to Python until calls have spent 5 ms in it, then compiled"


def _nests(nests: tuple[NestRecord, ...]) -> Iterator[str]:
    if nests:
        yield f"== loops over elements: {len(nests)}"
    for number, nest in enumerate(nests, 1):
        soon = nest.state == "cold" and nest.kinds  # it is known that it can be
        state = _SOON if soon else _STATES[nest.state]
        facts = [state + (f": {nest.reason}" if nest.reason else "")]
        if nest.plain and nest.seconds:
            facts.append(f"{times(nest.plain, 'run')} by Python, {duration(nest.seconds / nest.plain)} each")
        if nest.runs:
            facts.append(f"{times(nest.runs, 'run')} compiled, {duration(nest.compiled / nest.runs)} each")
        if nest.left:
            facts.append(f"{nest.left} finished by Python")
        yield f"   N{number}  {', '.join(facts)}"
        yield from covered_lines((Covered(nest.kinds and f"({nest.kinds})", nest.line),))


def _kept(kept: tuple[KeptRecord, ...]) -> Iterator[str]:
    if kept:
        yield f"== kept from run to run: {times(len(kept), 'value')}"
    for number, value in enumerate(kept, 1):
        facts = [value.title, f"made {times(value.made, 'time')}", f"used {times(value.used, 'time')}"]
        yield f"   V{number}  {', '.join((*facts, bytes_text(value.nbytes)))}"
        yield from covered_lines(value.covers)


def _fallbacks(fallbacks: tuple[FallbackRecord, ...]) -> Iterator[str]:
    if not fallbacks:
        yield "== handed to NumPy: nothing"
        return
    rows = sorted(fallbacks, key=lambda f: (-f.seconds, f.function, f.line.place))
    widths = [max(len(f.function) for f in rows), max(len(f.line.place) for f in rows)]
    yield f"== handed to NumPy: {times(len(rows), 'place')}"
    for f in rows:
        reason = f"  ({f.reason})" if f.reason else ""
        text = f"  | {f.line.text}" if f.line.text else ""
        yield (f"   {f.count:>5} x {f.function:<{widths[0]}}  {duration(f.seconds):>8}  "
               f"{f.line.place:<{widths[1]}}{text}{reason}").rstrip()
