"""A program as a record: its stages, steps, lines, costs, times, and why steps share no loop.

Knows: programs, plans, verdicts of the planner. Must not know: sites, how anything is shown.
Receives programs; returns records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from math import isfinite, isnan
from typing import Any

from jitla.clocks import usual
from jitla.fusion import is_view
from jitla.graph import NodeRecord
from jitla.hops import topo
from jitla.predictions import CostRecord, RivalRecord, duration
from jitla.recompile import chosen_text, sized, traced
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


class _Lines:
    """Where the hops of a program come from in one function; programs are shared by functions."""

    def __init__(self, known: Mapping[Any, Any], program: Any) -> None:
        self._known = dict(known)
        self._own = set(known.values())
        for stage in program.stages:  # what becomes of a result has the line of that result
            for given, root in zip(program.given, stage.draft.roots, strict=True):
                if given in known:
                    self._known.setdefault(root, known[given])
        every = [*program.plan.outputs, *(root for stage in program.stages for root in stage.draft.roots)]
        self._reader = {i: hop for hop in reversed(topo(every)) for i in hop.inputs}
        # What rewrites made has the line of what it stands for, in the function that came first.
        self._moved: dict[Any, set[Any]] = {}
        for hop, line in known.items():
            for key in (hop.line, (hop.op.name, hop.line)):
                self._moved.setdefault(key, set()).add(line)

    def of(self, hop: Any) -> Any:
        """Return the line of `hop`, if it is known: what rewrites made has that of what reads it."""
        if not self._own:
            return hop.line
        if hop.op.name == "const":
            return None  # all functions share it
        may = self._options(hop)
        while True:
            found = self._options(hop)
            if len(found) == 1 and (found <= may or not may):
                return next(iter(found))
            if hop not in self._reader:
                return max(may, default=None)
            hop = self._reader[hop]

    def _options(self, hop: Any) -> set[Any]:
        """Return the lines that `hop` may have, as far as it tells itself."""
        if hop in self._known:
            return {self._known[hop]}
        return self._moved.get((hop.op.name, hop.line)) or self._moved.get(hop.line, set())


def program_record(
    program: Any, runs: int, first: Any, known: Mapping[Any, Any], own: Mapping[int, Any],
    codes: bool = False,
) -> ProgramRecord:
    """Return the record of one program, which may be shared: what one function makes of it.

    `first` is what that function bound it to first, `known` the lines of the hops of that, `own`
    all its bindings now, by id. Sizes are those of the one that was timed last. With `codes` what kernels
    were compiled from and to is written down, too.
    """
    timed = [lap for lap in list(program.clock.laps) if id(lap.binding and lap.binding()) in own]
    bound = timed[-1].binding() if timed else first
    hops = zip(topo(program.given), topo(traced(program, first)), strict=True)
    lines = _Lines({hop: known[asked] for hop, asked in hops if known.get(asked)}, program)
    now = sized(program, bound, lines.of)
    stages = tuple(StageRecord(s.name, s.text(), s.seconds) for s in now.stages)
    sizes = {tuple(b.dims.items()) for b in own.values() if b.program is program and hasattr(b, "dims")}
    alike = [lap for lap in timed if lap.binding() is bound]
    names, times = _names(now.plan), dict(zip(now.steps, usual(alike), strict=False))
    verdict = now.weigh()
    counts = {now.steps[at]: found for lap in alike for at, found in lap.counts.items()}
    steps = tuple(
        replace(_step(step, now.layouts, times.get(step, 0.0)), shares=shares,
                counted=counts.get(step),
                schedule=chosen_text(now.chosen[step]) if step in now.chosen else "")
        for step, shares in zip(now.plan.steps, verdict.shares, strict=True))
    roots = ", ".join(h.op.name for h in now.plan.outputs)
    rules = tuple(_fired(name, n) for name, n in Counter(program.fired).items())
    return ProgramRecord(
        roots, stages, rules, steps, runs, program.materialised, sum(s.seconds for s in stages),
        _cost(program, now.peak, verdict), tuple(_nodes(now.plan, names)),
        usual(alike)[-1] if alike else 0.0, tuple(_laps(now, timed)),
        tuple(_apart(now.plan, verdict, names)), tuple(_trace(now.given)),
        tuple(_codes(program)) if codes else (), program.script.source, len(alike), max(len(sizes), 1))


def _names(plan: Any) -> dict[Any, str]:
    """Return "K1" for the first kernel, "C1" for the first call, and so on."""
    counts, names = {"K": 0, "C": 0}, {}
    for step in plan.steps:
        kind = "K" if hasattr(step, "body") else "C"
        counts[kind] += 1
        names[step] = f"{kind}{counts[kind]}"
    return names


def _laps(now: Any, laps: Iterable[Any]) -> Iterator[LapRecord]:
    """Yield runs that were timed, their steps in the order of the plan."""
    at = {step: number for number, step in enumerate(now.steps)}
    order = [at[step] for step in now.plan.steps]
    for lap in laps:
        yield LapRecord(lap.begun, tuple(lap.seconds[i] for i in order), lap.whole, lap.thread)


def _codes(program: Any) -> Iterator[CodeRecord]:
    names = _names(program.plan)
    ordered = [names[step] for step in program.order.steps if hasattr(step, "body")]
    for at, form, text, assembly in program.codes():
        yield CodeRecord(ordered[at], form, text, assembly)


def _trace(given: Any) -> Iterator[Covered]:
    """Yield what was traced, in the order of its recording."""
    for hop in topo(given):
        if hop.op.name not in ("leaf", "const"):
            line = hop.line
            text = f"{hop.op.name} {_sizes(hop)} {hop.meta.dtype}"
            yield Covered(text, SourceLine.at(*line) if line else None)


def _sizes(hop: Any) -> str:
    return "x".join(map(str, hop.meta.shape)) or "scalar"


def _apart(plan: Any, verdict: Any, names: Mapping[Any, str]) -> Iterator[ApartRecord]:
    """Say of every value that one step leaves in memory for others why no loop does both."""
    for step in plan.steps:
        for hop in step.outputs:
            readers = [s for s in plan.steps if s is not step and hop in s.inputs]
            if not readers or not hop.meta.shape:
                continue
            yield ApartRecord(_value(hop), names[step], tuple(names[s] for s in readers),
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


def _nodes(plan: Any, names: Mapping[Any, str]) -> Iterator[NodeRecord]:
    """Yield the values of a plan; numbers that it is given are left out."""
    makers: dict[Any, str] = {}
    for step in plan.steps:
        for hop in getattr(step, "body", None) or (step.hop,):
            makers.setdefault(hop, names[step])
    shown = [h for h in topo(plan.outputs) if h.op.name != "leaf" or h.meta.shape]
    numbers = {hop: at for at, hop in enumerate(shown)}
    for hop in shown:
        line = hop.line
        said = SourceLine.at(*line) if line else None
        reads = tuple(numbers[h] for h in hop.inputs if h in numbers)
        yield NodeRecord(
            "array" if hop.op.name == "leaf" else hop.op.name, f"{_sizes(hop)} {hop.meta.dtype}",
            makers.get(hop, ""), reads, f"{said.place}  {said.text}" if said else "", hop in plan.outputs)


def _cost(program: Any, peak: int, found: Any) -> CostRecord:
    """Write down how the planner came to the plan of a program."""
    rival = None
    if found.runner_up is not None:
        *terms, more = found.runner_up.more
        keeps, drops = (tuple(_value(h) for h in some)
                        for some in (found.runner_up.keeps, found.runner_up.drops))
        rival = RivalRecord(found.seconds + more, keeps, drops, tuple(terms))
    return CostRecord(
        program.fusion, found.costs, tuple(found.rules.items()), found.bound, found.kernels,
        found.partitions, found.points, found.costed, found.by_cost, found.by_structure, found.spent,
        rival, peak, program.limit, found.free)


def _value(hop: Any) -> str:
    """Name a value by its operator, shape and line."""
    line = hop.line
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


def _step(step: Any, layouts: Mapping[int, Any], seconds: float) -> StepRecord:
    def covered(hop: Any) -> Covered:
        line = hop.line
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
