"""The `Explanation` object of `jitla.explain`, and the text of its default level."""

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
from jitla.explanations.records import (
    CoveredOperator,
    FallbackRecord,
    FunctionRecord,
    HoistedValueRecord,
    ImmediateRunRecord,
    ScalarLoopRecord,
    bytes_text,
    count_text,
    duration,
)
from jitla.explanations.rendering import (
    CODE_LEVELS,
    LEVELS,
    covered_lines,
    cut_lines,
    document,
    fragment,
    preformatted,
    program_lines,
    recompilation_lines,
    runtime_lines,
    stage_levels,
    timeline,
)

__all__ = ["LEVELS", "Explanation", "coverage_table", "explanation"]

MAX_PROGRAMS = 6  # at level "plan"
TRACE_SUFFIX = ".trace.json"


class Explanation:
    """A report on how jitla compiled and ran a function.

    ``str(e)`` is its text, which interactive sessions show; notebooks show it with drawings.
    ``e.at("kernels")`` is the same at another level, see `jitla.explain`; names of compilation stages are
    levels, too. ``e.save("plan.html")`` writes a file in the format of its suffix.
    """

    def __init__(self, record: FunctionRecord, level: str = "plan",
                 deeper: Callable[[], FunctionRecord] | None = None) -> None:
        if level in CODE_LEVELS and deeper is not None:
            record, deeper = deeper(), None
        levels = dict.fromkeys([*LEVELS, *stage_levels(record)])
        if level not in levels:
            raise ConfigError(f"level={level!r} is not possible; use one of {', '.join(map(repr, levels))}")
        self.record = record
        self.level = level
        self._deeper = deeper

    def at(self, level: str) -> Explanation:
        """Return this explanation at another level."""
        return Explanation(self.record, level, self._deeper)

    def __str__(self) -> str:
        return "\n".join(_function_lines(self.record, self.level)) + "\n"

    __repr__ = __str__

    def to_dict(self) -> dict[str, Any]:
        """Return all records as dictionaries, tuples, strings and numbers."""
        return asdict(self.record)

    def to_json(self, indent: int | None = None) -> str:
        """Return all records as JSON."""
        return json.dumps(self.to_dict(), indent=indent)

    def to_trace(self) -> str:
        """Return the timed runs as a timeline for ui.perfetto.dev and chrome://tracing."""
        return timeline(self.record)

    def to_mermaid(self) -> str:
        """Return a Mermaid flow chart of each program."""
        return "\n".join(mermaid(program.nodes) for program in self.record.programs)

    def to_dot(self) -> str:
        """Return a Graphviz graph of each program."""
        return "\n".join(dot(program.nodes) for program in self.record.programs)

    def to_html(self) -> str:
        """Return a self-contained HTML page with drawings and every level, folded."""
        return document(self.record, self._texts())

    def save(self, file: str | PathLike[str]) -> None:
        """Write `file` in the format of its suffix: .html, .json, .trace.json, .mmd, .dot or .txt.

        Raises
        ------
        ConfigError
            If the suffix is another one.
        """
        kinds = {".html": self.to_html, TRACE_SUFFIX: self.to_trace, ".json": self.to_json,
                 ".mmd": self.to_mermaid, ".dot": self.to_dot, ".txt": self.__str__}
        writer = next((kinds[ending] for ending in kinds if str(file).endswith(ending)), None)
        if writer is None:
            raise ConfigError(f"cannot save an explanation as {str(file)!r}; use one of {', '.join(kinds)}")
        Path(file).write_text(writer(), encoding="utf-8")

    def _texts(self) -> dict[str, str]:
        """Return the texts of all levels but "all"; machine code only if it is in the record."""
        codes = any(p.codes for p in self.record.programs)
        levels = dict.fromkeys((*LEVELS[:-1], *stage_levels(self.record)))
        return {level: str(self.at(level)) for level in levels if level not in CODE_LEVELS or codes}

    def _repr_html_(self) -> str:
        if self.level != "plan":
            return preformatted(f"{self.record.name}: {self.level}", str(self))
        return fragment(self.record, self._texts())

    def _repr_pretty_(self, printer: object, cycle: bool) -> None:
        printer.text(str(self))  # type: ignore[attr-defined]


def explanation(
    record: FunctionRecord | Callable[[bool], FunctionRecord], level: str = "plan",
) -> Explanation:
    """Return the explanation of `record`, or of what `record(with_machine_code)` returns."""
    if isinstance(record, FunctionRecord):
        return Explanation(record, level)
    return Explanation(record(False), level, lambda: record(True))


def coverage_table(fallbacks: Iterable[FallbackRecord], loops: Iterable[ImmediateRunRecord] = ()) -> str:
    """Return tables of the operations that ran immediately or in NumPy, slowest first."""
    return "\n".join((*_immediate_runs(tuple(loops)), *_fallbacks(tuple(fallbacks)))) + "\n"


# --------------------------------------------------------------------------- parts of the text


def _function_lines(record: FunctionRecord, level: str) -> Iterator[str]:
    facts = [count_text(record.calls, "call"), count_text(len(record.programs), "program")]
    place = f"  ({record.line.place})" if record.line.place else ""
    yield f"{record.name}{place}  {', '.join(facts)}"
    if record.remark:
        yield f"   {record.remark}"
    shown = _programs_shown(record) if level == "plan" else set(range(len(record.programs)))
    if level != "recompilations":
        for at in sorted(shown):
            yield ""
            yield from program_lines(record.programs[at], at + 1, level)
    if len(shown) < len(record.programs):
        more = count_text(len(record.programs) - len(shown), "program")
        yield f"\n{more} that took less; level=\"all\" shows all"
    if record.waiting:
        yield f"   NumPy runs {count_text(record.waiting, 'block')} until they are compiled"
    if level == "recompilations" or level == "all" and record.compilations:
        yield ""
        yield from recompilation_lines(record)
    if level in ("runtime", "all") and record.call is not None:
        yield ""
        yield from runtime_lines(record)
    if level == "loops":
        yield from _loop_programs(record.nests)
    if level in ("plan", "all"):
        yield ""
        yield from _outside_programs(record)


def _programs_shown(record: FunctionRecord) -> set[int]:
    """Return the indices of the slowest programs."""
    taken = [p.runs * (p.seconds or (p.cost.seconds if p.cost else 0.0)) for p in record.programs]
    return set(sorted(range(len(taken)), key=lambda at: (-taken[at], at))[:MAX_PROGRAMS])


def _outside_programs(record: FunctionRecord) -> Iterator[str]:
    """Yield everything outside of programs, and the advice."""
    if record.call is not None and record.call.stored:
        yield f"== sparse results: {len(record.call.stored)}"
        yield from (f"   S{at}  {result.text}" for at, result in enumerate(record.call.stored, 1))
    yield from cut_lines(record.cuts)
    yield from _scalar_loops(record.nests)
    yield from _hoisted_values(record.kept)
    yield from _immediate_runs(record.loops)
    yield from _fallbacks(record.fallbacks)
    suggestions = advice(record)
    if suggestions:
        yield "== for more speed"
        yield from (f"   {text}" for text in suggestions)


def _immediate_runs(loops: tuple[ImmediateRunRecord, ...]) -> Iterator[str]:
    if not loops:
        return
    yield f"== run immediately: {count_text(len(loops), 'place')}"
    for number, loop in enumerate(sorted(loops, key=lambda x: (-x.seconds, x.operation, x.line.place)), 1):
        facts = [loop.title or loop.operation]
        if loop.count:
            each = loop.seconds / loop.count
            facts += [count_text(loop.count, "run"), f"{bytes_text(loop.nbytes // loop.count)} each",
                      f"took {duration(each)} each"]
        if loop.by_numpy:
            facts.append(f"{count_text(loop.by_numpy, 'time')} by NumPy")
        yield f"   L{number}  {', '.join(facts)}"
        yield from covered_lines((CoveredOperator(loop.operation, loop.line),))


#: Texts of the states of explicit loops.
_STATE_TEXTS = {"trusted": "compiled", "waiting": "is being compiled", "tried": "compiled, being checked",
                "cold": "run by Python so far", "refused": "left to Python"}
_COLD_STATE_TEXT = "run by Python until it has spent 2 ms in it, then compiled"


def _scalar_loops(nests: tuple[ScalarLoopRecord, ...]) -> Iterator[str]:
    if nests:
        yield f"== loops: {len(nests)}"
    for number, nest in enumerate(nests, 1):
        compilable = nest.state == "cold" and nest.kinds  # it can be compiled
        state = _COLD_STATE_TEXT if compilable else _STATE_TEXTS[nest.state]
        facts = [state + (f": {nest.reason}" if nest.reason else "")]
        if nest.plain and nest.seconds:
            each = duration(nest.seconds / nest.plain)
            facts.append(f"{count_text(nest.plain, 'iteration')} by Python, {each} each")
        if nest.runs:
            each = duration(nest.compiled / nest.runs)
            facts.append(f"{count_text(nest.runs, 'part')} by compiled code, {each} each")
        if nest.failure and not nest.reason:
            times = f"{count_text(nest.left, 'time')}, " if nest.left else ""
            facts.append(f"iterations left to Python {times}last for {nest.failure}")
        yield f"   N{number}  {', '.join(facts)}"
        yield from covered_lines((CoveredOperator(nest.kinds and f"({nest.kinds})", nest.line),))


def _loop_programs(nests: tuple[ScalarLoopRecord, ...]) -> Iterator[str]:
    """Yield the programs that explicit loops are compiled to."""
    for number, nest in enumerate(nests, 1):
        yield ""
        yield f"== loop N{number}  {nest.line.place}"
        yield from (f"   {row}".rstrip() for row in (nest.text or "no program").rstrip("\n").split("\n"))


def _hoisted_values(values: tuple[HoistedValueRecord, ...]) -> Iterator[str]:
    if values:
        yield f"== kept between runs: {count_text(len(values), 'value')}"
    for number, value in enumerate(values, 1):
        facts = [value.title, f"computed {count_text(value.made, 'time')}",
                 f"used {count_text(value.used, 'time')}"]
        yield f"   V{number}  {', '.join((*facts, bytes_text(value.nbytes)))}"
        yield from covered_lines(value.covers)


def _fallbacks(fallbacks: tuple[FallbackRecord, ...]) -> Iterator[str]:
    if not fallbacks:
        yield "== handed to NumPy: nothing"
        return
    rows = sorted(fallbacks, key=lambda f: (-f.seconds, f.function, f.line.place))
    widths = [max(len(f.function) for f in rows), max(len(f.line.place) for f in rows)]
    yield f"== handed to NumPy: {count_text(len(rows), 'place')}"
    for f in rows:
        reason = f"  ({f.reason})" if f.reason else ""
        text = f"  | {f.line.text}" if f.line.text else ""
        yield (f"   {f.count:>5} x {f.function:<{widths[0]}}  {duration(f.seconds):>8}  "
               f"{f.line.place:<{widths[1]}}{text}{reason}").rstrip()
