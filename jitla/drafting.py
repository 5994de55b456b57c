"""A program as a record: its stages, steps, lines, costs, times, and why steps share no loop.

Knows: programs, plans, verdicts of the planner. Must not know: sites, how anything is shown.
Receives programs; returns records.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from math import isfinite, isnan
from typing import Any

from jitla.fusion import is_view
from jitla.graph import NodeRecord
from jitla.hops import place, topo
from jitla.predictions import CostRecord, RivalRecord, duration
from jitla.recompile import chosen_text
from jitla.records import (
    VIEW,
    ApartRecord,
    CodeRecord,
    Covered,
    FiredRule,
    LapRecord,
    ProgramRecord,
    SourceLine,
    StageRecord,
    StepRecord,
)
from jitla.rewrites import RULES, SUBSTITUTIONS

_PLACE = re.compile(r"[^ ]+:\d+")


class _Lines:
    """Where the hops of a program come from in one function; programs are shared by functions."""

    def __init__(self, known: Mapping[Any, Any], outputs: Iterable[Any]) -> None:
        self._known = known
        self._own = set(known.values())
        self._places = {place(line) for line in self._own if line is not None}
        self._reader = {i: hop for hop in topo(outputs) for i in hop.inputs}
        # A rewritten hop has the line that its original had in the function that came first.
        self._moved = {hop.line: line for hop, line in known.items() if hop.line is not None}
        self._told = {f"  # {place(a)}": f"  # {place(b)}" for a, b in self._moved.items()}

    def of(self, hop: Any) -> Any:
        """Return the line of `hop`, if it is known: what rewrites made has that of what reads it."""
        found = self._known.get(hop) or self._moved.get(hop.line, hop.line)
        while self._own and found not in self._own and hop in self._reader:
            hop = self._reader[hop]
            found = self._known.get(hop) or self._moved.get(hop.line, hop.line)
        return found

    def told(self, text: str) -> str:
        """Return the text of a stage with these lines in it."""
        rows = (row.rpartition("  # ") for row in text.split("\n"))
        return "\n".join((head + self._ending(head, mark, end)).rstrip() for head, mark, end in rows)

    def _ending(self, head: str, mark: str, end: str) -> str:
        """Return what stands at the end of a row, but for lines of other functions, and for constants.

        These are shared by all functions.
        """
        if not mark or not self._own or not _PLACE.fullmatch(end):
            return mark + end
        told = self._told.get(mark + end, mark + end)
        return "" if ") const(" in head or told.removeprefix("  # ") not in self._places else told


def program_record(program: Any, runs: int, known: Mapping[Any, Any], codes: bool = False) -> ProgramRecord:
    """Return the record of one program; `known` has the lines of its hops in the function asked about.

    With `codes` what its kernels were compiled from and to is written down, too.
    """
    lines = _Lines(known, program.plan.outputs)
    stages = tuple(StageRecord(s.name, lines.told(s.text()), s.seconds) for s in program.stages)
    names, times = _names(program.plan), _times(program)
    verdict = program.weigh()
    counts = {program.order.steps[at]: found for at, found in dict(program.clock.counts).items()}
    steps = tuple(
        replace(_step(step, lines, program.layouts, times.get(step, 0.0)), shares=shares,
                counted=counts.get(step),
                schedule=chosen_text(program.chosen[step]) if step in program.chosen else "")
        for step, shares in zip(program.plan.steps, verdict.shares, strict=True))
    roots = ", ".join(h.op.name for h in program.plan.outputs)
    rules = tuple(_fired(name, n) for name, n in Counter(program.fired).items())
    seconds = sum(s.seconds for s in stages)
    laps = tuple(_laps(program))
    made = tuple(_codes(program)) if codes else ()
    return ProgramRecord(
        roots, stages, rules, steps, runs, program.materialised, seconds, _cost(program, verdict, lines),
        tuple(_nodes(program.plan, lines, names)), program.clock.seconds()[-1] if laps else 0.0, laps,
        tuple(_apart(program.plan, verdict, lines, names)), tuple(_trace(program, lines)), made,
        program.script.source)


def _names(plan: Any) -> dict[Any, str]:
    """Return "K1" for the first kernel, "C1" for the first call, and so on."""
    counts, names = {"K": 0, "C": 0}, {}
    for step in plan.steps:
        kind = "K" if hasattr(step, "body") else "C"
        counts[kind] += 1
        names[step] = f"{kind}{counts[kind]}"
    return names


def _times(program: Any) -> dict[Any, float]:
    """Return the seconds that were measured, by step."""
    found = program.clock.seconds()
    return dict(zip(program.order.steps, found, strict=False))


def _laps(program: Any) -> Iterator[LapRecord]:
    """Yield the runs that were timed, their steps in the order of the plan."""
    at = {step: number for number, step in enumerate(program.order.steps)}
    order = [at[step] for step in program.plan.steps]
    for lap in list(program.clock.laps):
        yield LapRecord(lap.begun, tuple(lap.seconds[i] for i in order), lap.whole, lap.thread)


def _codes(program: Any) -> Iterator[CodeRecord]:
    names = _names(program.plan)
    ordered = [names[step] for step in program.order.steps if hasattr(step, "body")]
    for at, form, text, assembly in program.codes():
        yield CodeRecord(ordered[at], form, text, assembly)


def _trace(program: Any, lines: _Lines) -> Iterator[Covered]:
    """Yield what was traced, in the order of its recording."""
    for hop in topo(program.given):
        if hop.op.name not in ("leaf", "const"):
            line = lines.of(hop)
            text = f"{hop.op.name} {_sizes(hop)} {hop.meta.dtype}"
            yield Covered(text, SourceLine.at(*line) if line else None)


def _sizes(hop: Any) -> str:
    return "x".join(map(str, hop.meta.shape)) or "scalar"


def _apart(plan: Any, verdict: Any, lines: _Lines, names: Mapping[Any, str]) -> Iterator[ApartRecord]:
    """Say of every value that one step leaves in memory for others why no loop does both."""
    for step in plan.steps:
        for hop in step.outputs:
            readers = [s for s in plan.steps if s is not step and hop in s.inputs]
            if not readers or not hop.meta.shape:
                continue
            yield ApartRecord(_value(hop, lines), names[step], tuple(names[s] for s in readers),
                              _separation(hop, step, readers, verdict, plan.outputs))


def _separation(hop: Any, step: Any, readers: list[Any], verdict: Any, outputs: Any) -> str:
    """Say why `step`, which makes `hop`, is in no loop with `readers`."""
    calls = [s for s in (step, *readers) if not hasattr(s, "body")]
    if calls:
        call = calls[0]
        why = call.reason or "NumPy does it"
        return f"{call.hop.op.name} is a call of NumPy: {why}"
    if hop in verdict.open:
        more = verdict.open[hop]
        if isnan(more):
            return "one loop may do both, but too many plans would have to be compared to say for how much"
        if isfinite(more):
            return f"one loop for both takes {duration(more)} more" if more > 0 else "one loop takes no less"
    if hop in outputs:
        return "it is a result, which is in memory anyway, and one loop for both is predicted to take longer"
    return "no loop can do both: every element is needed before the next step begins"


def _nodes(plan: Any, lines: _Lines, names: Mapping[Any, str]) -> Iterator[NodeRecord]:
    """Yield the values of a plan; numbers that it is given are left out."""
    makers: dict[Any, str] = {}
    for step in plan.steps:
        for hop in getattr(step, "body", None) or (step.hop,):
            makers.setdefault(hop, names[step])
    shown = [h for h in topo(plan.outputs) if h.op.name != "leaf" or h.meta.shape]
    numbers = {hop: at for at, hop in enumerate(shown)}
    for hop in shown:
        line = lines.of(hop)
        said = SourceLine.at(*line) if line else None
        reads = tuple(numbers[h] for h in hop.inputs if h in numbers)
        yield NodeRecord(
            "array" if hop.op.name == "leaf" else hop.op.name, f"{_sizes(hop)} {hop.meta.dtype}",
            makers.get(hop, ""), reads, f"{said.place}  {said.text}" if said else "", hop in plan.outputs)


def _cost(program: Any, found: Any, lines: _Lines) -> CostRecord:
    """Write down how the planner came to the plan of a program."""
    rival = None
    if found.runner_up is not None:
        *terms, more = found.runner_up.more
        keeps, drops = (tuple(_value(h, lines) for h in some)
                        for some in (found.runner_up.keeps, found.runner_up.drops))
        rival = RivalRecord(found.seconds + more, keeps, drops, tuple(terms))
    return CostRecord(
        program.fusion, found.costs, tuple(found.rules.items()), found.bound, found.kernels,
        found.partitions, found.points, found.costed, found.by_cost, found.by_structure, found.spent,
        rival, program.peak(), program.limit, found.free)


def _value(hop: Any, lines: _Lines) -> str:
    """Name a value by its operator, shape and line."""
    line = lines.of(hop)
    return f"{hop.op.name} {_sizes(hop)}" + (f" of {SourceLine.at(*line).place}" if line else "")


def _moved(step: Any, layouts: Mapping[int, Any]) -> int:
    """Return the bytes of all arrays that a step reads and writes; a matrix and its transpose are one."""
    total: int = 0
    turned: dict[tuple[int, Any, Any], Counter[Any]] = {}
    for hop in {*step.inputs, *step.outputs}:
        place = layouts.get(hop.attr("slot")) if hop.op.name == "leaf" else None
        if place is None or hop.meta.ndim < 2:
            total += hop.meta.nbytes if hop.meta.shape else 0
        else:
            walked = tuple(zip(place.strides, place.shape, strict=True))
            key = hop.meta.nbytes, hop.meta.dtype, tuple(sorted(walked))
            turned.setdefault(key, Counter())[walked] += 1
    return total + sum(key[0] * max(found.values()) for key, found in turned.items())


def _step(step: Any, lines: _Lines, layouts: Mapping[int, Any], seconds: float) -> StepRecord:
    def covered(hop: Any) -> Covered:
        line = lines.of(hop)
        return Covered(hop.op.name, SourceLine.at(*line) if line else None)

    nbytes = _moved(step, layouts)
    nnz = [h.meta.nnz for h in step.outputs if h.meta.nnz is not None]
    known = min(nnz) if nnz else None
    if hasattr(step, "body"):
        sizes = "x".join(map(str, step.shape)) or "scalar"
        title = f"{step.template} {sizes} {step.body[-1].meta.dtype}"
        reads = sum(h.meta.shape != () for h in step.inputs)
        writes = sum(h.meta.shape != () for h in step.outputs)
        covers = tuple(map(covered, step.body))
        return StepRecord("kernel", title, covers, reads, writes, "", nbytes, known, seconds)
    hop = step.hop
    reason = str(hop.attr("part")) if hop.op.name == "offload" else step.reason
    if is_view(hop):
        reason, nbytes = VIEW, 0
    return StepRecord("call", f"{hop.op.name} {_sizes(hop)} {hop.meta.dtype}", (covered(hop),), 0, 0, reason,
                      nbytes, known, seconds)


def _fired(name: str, count: int) -> FiredRule:
    known = {rule.name: rule for rule in RULES + SUBSTITUTIONS}.get(name)
    return FiredRule(name, count, known.doc, known.exactness) if known else FiredRule(name, count)
