"""What a decorated function has done, added up: statistics, coverage, records for explain.

Knows: sites, programs and their stages. Must not know: how anything is compiled or shown.
Receives sites; returns counters and records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from jitla.graph import NodeRecord
from jitla.hops import place, topo
from jitla.predictions import CostRecord, RivalRecord, duration
from jitla.records import (
    Covered,
    FallbackRecord,
    FiredRule,
    FunctionRecord,
    KeptRecord,
    LoopRecord,
    NestRecord,
    ProgramRecord,
    SourceLine,
    StageRecord,
    StepRecord,
)
from jitla.rewrites import RULES, SUBSTITUTIONS
from jitla.tracing import Site

# By the state of a loop over elements: where it is counted.
_COUNTED = {"trusted": "loops", "waiting": "loops_waiting", "tried": "loops_waiting",
            "cold": "loops_cold", "refused": "loops_refused"}


class Stats(dict[str, float]):
    """Counters of a decorated function, as a mapping and as attributes.

    `calls` of the function; `bypassed`, those of them that the plain function served; `plans`, exact
    blocks known now; `programs` in use; `kernels` in them; `forces`, blocks run; `kernel_runs`;
    `numpy_calls` inside programs; `materialised`, vector values written to fresh memory by programs;
    `fallbacks`, NumPy calls outside of programs; `failures`, blocks that NumPy ran because no program
    could be made; `kept`, values computed to be used in later runs of a block, `reused`, how often they were,
    `kept_bytes`, the most that a call has held of them; `loops` over elements that compiled code runs,
    `loops_waiting` to be compiled or checked, `loops_cold`, not worth it so far, `loops_refused`, left to
    Python; `loop_runs` of compiled code, `loops_left`, those of them that Python finished;
    `waiting`, blocks that NumPy runs until their programs are there; `planned`, plans made for it,
    `compiled`, modules of machine code, and `found`, how often such were there already.
    """

    def __getattr__(self, name: str) -> float:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __str__(self) -> str:
        return "  ".join(f"{name} {value:g}" for name, value in self.items())


def stats_of(sites: Iterable[Site]) -> Stats:
    """Add up the counters of all sites of a decorated function."""
    total = Stats(calls=0, bypassed=0, plans=0, programs=0, kernels=0, forces=0, kernel_runs=0, numpy_calls=0,
                  materialised=0, fallbacks=0, failures=0, kept=0, reused=0, kept_bytes=0, waiting=0,
                  loops=0, loops_waiting=0, loops_cold=0, loops_refused=0, loop_runs=0, loops_left=0,
                  planned=0, compiled=0, found=0)
    sites = tuple(sites)
    for journal in {id(site.journal): site.journal for site in sites}.values():
        total["planned"] += journal.planned
        total["compiled"] += journal.compiled
        total["found"] += journal.reused
    for site in sites:
        runs = site.runs()
        total["calls"] += _calls(site)
        total["bypassed"] += site.payoff.calls if site.payoff else 0
        total["plans"] += len(site.exact)
        total["waiting"] += len(site.standbys)
        total["programs"] += len(runs)
        total["fallbacks"] += sum(f.count for f in site.fallbacks.values())
        total["failures"] += len(site.failures)
        total["kept"] += sum(part.made for part in list(site.parts.values()))
        total["reused"] += sum(part.used for part in list(site.parts.values()))
        total["kept_bytes"] = max(total["kept_bytes"], site.most_kept)
        for record in nests_of((site,)):
            total[_COUNTED[record.state]] += 1
            total["loop_runs"] += record.runs
            total["loops_left"] += record.left
        for program, count in runs.items():
            total["kernels"] += program.kernels
            total["forces"] += count
            total["kernel_runs"] += count * program.kernels
            total["numpy_calls"] += count * program.calls
            total["materialised"] += count * program.written
    return total


def _calls(site: Site) -> int:
    """Return the calls of a site, those included that were not noted."""
    return site.calls + (site.payoff.skipped if site.payoff else 0)


def fallbacks_of(sites: Iterable[Site]) -> tuple[FallbackRecord, ...]:
    """Return what the sites handed to NumPy: whole calls, and calls in them."""
    sites = tuple(sites)
    return (*(record for site in sites for record in (*_bypasses(site), *_by_python(site))), *(
        FallbackRecord(name, SourceLine.at(file, line), f.count, f.seconds, f.reason)
        for site in sites for (name, file, line), f in list(site.fallbacks.items())
    ))


def _bypasses(site: Site) -> Iterator[FallbackRecord]:
    """Yield the calls that the plain function served because it is faster."""
    for found in site.payoff.bypasses() if site.payoff else ():
        on = f"{found.low} to {found.high} elements" if found.high else "no arrays"
        yield FallbackRecord(
            site.name, SourceLine.at(*site.payoff.place), found.calls, found.calls * found.plain,
            f"whole calls, on {on}: {duration(found.plain)} each, traced {duration(found.traced)}")


def _by_python(site: Site) -> Iterator[FallbackRecord]:
    """Yield the loops over elements that Python runs."""
    for nest in nests_of((site,)):
        if nest.state == "refused" and nest.plain:
            yield FallbackRecord("loop over elements", nest.line, nest.plain, nest.seconds, nest.reason)


def nests_of(sites: Iterable[Site]) -> tuple[NestRecord, ...]:
    """Return what became of explicit loops over elements."""
    return tuple(
        NestRecord(SourceLine.at(r.file, r.line), r.state, r.reason, r.kinds, r.plain, r.runs, r.left,
                   r.seconds, r.compiled)
        for site in sites if site.looping is not None for r in site.looping.records())


def loops_of(sites: Iterable[Site]) -> tuple[LoopRecord, ...]:
    """Return what was done by loops that are in no plan, or could have been."""
    return tuple(
        LoopRecord(name, x.title, SourceLine.at(file, line), x.count, x.by_numpy, x.seconds, x.nbytes)
        for site in sites for (name, file, line), x in list(site.loops.items())
    )


def kept_of(sites: Iterable[Site]) -> tuple[KeptRecord, ...]:
    """Return the values that were kept from run to run, the one used most first."""
    parts = [part for site in sites for part in list(site.parts.values()) if part.made]
    return tuple(_kept(part) for part in sorted(parts, key=lambda part: -part.used))


def _kept(part: Any) -> KeptRecord:
    name, shape, lines = part.description()
    sizes = "x".join(map(str, shape)) or "scalar"
    covers = tuple(Covered(op, SourceLine.at(*line) if line else None) for op, line in lines)
    return KeptRecord(f"{name} {sizes}", covers, part.made, part.used, part.nbytes)


def function_record(function: Callable[..., Any], sites: Iterable[Site],
                    note: str = "") -> FunctionRecord:
    """Return all that is known of a decorated function; `note` says why nothing is compiled."""
    sites = tuple(sites)
    code = getattr(function, "__code__", None)
    place = SourceLine.at(code.co_filename, code.co_firstlineno) if code else SourceLine("?", 0)
    runs: Counter[Any] = Counter()
    for site in sites:
        runs.update(site.runs())
    lines = {p: found for site in sites for p, found in list(site.lines.items())}
    programs = tuple(
        program_record(p, n, lines.get(p, {})) for p, n in runs.items() if hasattr(p, "plan"))
    name = getattr(function, "__qualname__", repr(function))
    return FunctionRecord(name, place, sum(_calls(s) for s in sites), programs, fallbacks_of(sites),
                          note, loops_of(sites), kept_of(sites), nests_of(sites),
                          sum(len(s.standbys) for s in sites), _compilations(sites))


def _compilations(sites: tuple[Site, ...]) -> tuple[str, ...]:
    """Say which guards failed, and what was done."""
    records = [r for j in {id(s.journal): s.journal for s in sites}.values() for r in j.records]
    return tuple(
        f"{SourceLine.at(*r.line).place if r.line else '?'}  {r.guard}  ({r.tier}: {r.plans} plans, "
        f"{r.compiled} compiled, {r.reused} found, {duration(r.seconds)})" for r in records)


class _Lines:
    """Where the hops of a program come from in one function; programs are shared by functions."""

    def __init__(self, known: Mapping[Any, Any]) -> None:
        self._known = known
        # A rewritten hop has the line that its original had in the function that came first.
        self._moved = {hop.line: line for hop, line in known.items() if hop.line is not None}
        self._told = {f"  # {place(a)}": f"  # {place(b)}" for a, b in self._moved.items()}

    def of(self, hop: Any) -> Any:
        """Return the line of `hop`, if it is known."""
        return self._known.get(hop) or self._moved.get(hop.line, hop.line)

    def told(self, text: str) -> str:
        """Return the text of a stage with these lines in it."""
        rows = (row.rpartition("  # ") for row in text.split("\n"))
        return "\n".join(head + self._told.get(mark + end, mark + end) for head, mark, end in rows)


def program_record(program: Any, runs: int, known: Mapping[Any, Any]) -> ProgramRecord:
    """Return the record of one program; `known` has the lines of its hops in the function asked about."""
    lines = _Lines(known)
    stages = tuple(StageRecord(s.name, lines.told(s.text()), s.seconds) for s in program.stages)
    steps = tuple(_step(s, lines) for s in program.plan.steps)
    roots = ", ".join(h.op.name for h in program.plan.outputs)
    rules = tuple(_fired(name, n) for name, n in Counter(program.fired).items())
    seconds = sum(s.seconds for s in stages)
    return ProgramRecord(
        roots, stages, rules, steps, runs, program.materialised, seconds, _cost(program, lines),
        tuple(_nodes(program.plan, lines)))


def _nodes(plan: Any, lines: _Lines) -> Iterator[NodeRecord]:
    """Yield the values of a plan; numbers that it is given are left out."""
    makers: dict[Any, str] = {}
    counts = {"K": 0, "C": 0}
    for step in plan.steps:
        kind = "K" if hasattr(step, "body") else "C"
        counts[kind] += 1
        for hop in step.body if kind == "K" else (step.hop,):
            makers.setdefault(hop, f"{kind}{counts[kind]}")
    shown = [h for h in topo(plan.outputs) if h.op.name != "leaf" or h.meta.shape]
    numbers = {hop: at for at, hop in enumerate(shown)}
    for hop in shown:
        line = lines.of(hop)
        said = SourceLine.at(*line) if line else None
        reads = tuple(numbers[h] for h in hop.inputs if h in numbers)
        sizes = "x".join(map(str, hop.meta.shape)) or "scalar"
        yield NodeRecord(
            "array" if hop.op.name == "leaf" else hop.op.name, f"{sizes} {hop.meta.dtype}",
            makers.get(hop, ""), reads, f"{said.place}  {said.text}" if said else "", hop in plan.outputs)


def _cost(program: Any, lines: _Lines) -> CostRecord:
    """Ask the planner how it came to the plan of a program."""
    found = program.weigh()
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
    sizes = "x".join(map(str, hop.meta.shape)) or "scalar"
    return f"{hop.op.name} {sizes}" + (f" of {SourceLine.at(*line).place}" if line else "")


def _step(step: Any, lines: _Lines) -> StepRecord:
    def covered(hop: Any) -> Covered:
        line = lines.of(hop)
        return Covered(hop.op.name, SourceLine.at(*line) if line else None)

    if hasattr(step, "body"):
        sizes = "x".join(map(str, step.shape)) or "scalar"
        title = f"{step.template} {sizes} {step.body[-1].meta.dtype}"
        reads = sum(h.meta.shape != () for h in step.inputs)
        writes = sum(h.meta.shape != () for h in step.outputs)
        return StepRecord("kernel", title, tuple(map(covered, step.body)), reads, writes)
    hop = step.hop
    sizes = "x".join(map(str, hop.meta.shape)) or "scalar"
    reason = str(hop.attr("part")) if hop.op.name == "offload" else step.reason
    return StepRecord("call", f"{hop.op.name} {sizes} {hop.meta.dtype}", (covered(hop),), reason=reason)


def _fired(name: str, count: int) -> FiredRule:
    known = {rule.name: rule for rule in RULES + SUBSTITUTIONS}.get(name)
    return FiredRule(name, count, known.doc, known.exactness) if known else FiredRule(name, count)
