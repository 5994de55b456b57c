"""Collection of what is known of a decorated function: programs, counters, fallbacks, as records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import isfinite, isnan
from time import perf_counter, time
from typing import Any

from jitla.events import (
    Watch,
    usual,
)
from jitla.explanations.graph import NodeRecord
from jitla.explanations.html import counters
from jitla.explanations.records import (
    NEST,
    VIEW,
    ApartRecord,
    CallRecord,
    CodeRecord,
    CompilationRecord,
    CostRecord,
    Covered,
    CutRecord,
    FallbackRecord,
    FiredRule,
    FunctionRecord,
    KeptRecord,
    LapRecord,
    LoopRecord,
    Moment,
    NestRecord,
    ProgramRecord,
    RivalRecord,
    SourceLine,
    StageRecord,
    StepRecord,
    StoredRecord,
    duration,
)
from jitla.fusion import is_view
from jitla.hops import topo
from jitla.profiling.loop_detector import loops_back
from jitla.recompile import chosen_text, sized, traced
from jitla.rewrites import RULES, SUBSTITUTIONS
from jitla.tracing import Site


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
    if hop in verdict.flip_costs:
        more = verdict.flip_costs[hop]
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
        rival, peak, program.limit, found.unlimited)


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

    def _repr_html_(self) -> str:
        return counters({name: f"{value:g}" for name, value in self.items()})

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))


def stats_of(sites: Iterable[Site], failed: Sequence[str] = ()) -> Stats:
    """Add up the counters of all sites of a decorated function, and calls that `failed` before them."""
    total = Stats(calls=0, bypassed=0, plans=0, programs=0, kernels=0, forces=0, kernel_runs=0, numpy_calls=0,
                  materialised=0, fallbacks=0, failures=len(failed), kept=0, reused=0, kept_bytes=0,
                  waiting=0, loops=0, loops_waiting=0, loops_cold=0, loops_refused=0, loop_runs=0,
                  loops_left=0, planned=0, compiled=0, found=0)
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
        if nest.state == "refused" and (nest.plain or not nest.kinds):  # of those at sight calls are counted
            count = nest.plain or _calls(site)
            yield FallbackRecord(NEST, nest.line, count, nest.seconds, nest.reason)


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


def function_record(function: Callable[..., Any], sites: Iterable[Site], note: str = "", *,
                    assumed: bool = False, watch: Watch | None = None, codes: bool = False, given: str = "",
                    failed: Sequence[str] = ()) -> FunctionRecord:
    """Return all that is known of a decorated function; `note` says why nothing is compiled.

    `assumed`: nobody has measured this machine. `watch` is the call that was made to explain it. With
    `codes` what kernels were compiled from and to is written down, too, which takes a while. `given` is the
    class of a table among the arguments, `failed` are calls that failed before there was a site.
    """
    sites = tuple(sites)
    code = getattr(function, "__code__", None)
    place = SourceLine.at(code.co_filename, code.co_firstlineno) if code else SourceLine("?", 0)
    runs: Counter[Any] = Counter()
    for site in sites:
        runs.update(site.runs())
    lines = {p: found for site in sites for p, found in list(site.lines.items())}
    own = {id(bound): bound for site in sites for bound in site.bounds()}
    programs = tuple(
        program_record(p, n, *lines.get(p, (None, {})), own, codes) for p, n in runs.items()
        if hasattr(p, "plan"))
    name = getattr(function, "__qualname__", repr(function))
    return FunctionRecord(
        name, place, sum(_calls(s) for s in sites), programs, fallbacks_of(sites), note, loops_of(sites),
        kept_of(sites), nests_of(sites), sum(len(s.standbys) for s in sites), _compilations(sites),
        tuple(dict.fromkeys([*failed, *(text for s in sites for text in s.failures)])), assumed, _call(watch),
        given, code is not None and loops_back(code), _cuts(sites))


def _cuts(sites: tuple[Site, ...]) -> tuple[CutRecord, ...]:
    """Say where blocks ended because they had become long, in the order of lines."""
    found = sorted((line, cut) for site in sites for line, cut in list(site.cuts.items()))
    return tuple(CutRecord(SourceLine.at(*line), count, operations) for line, (count, operations) in found)


def clocks_of(sites: Iterable[Site]) -> list[Any]:
    """Return what times the programs of sites."""
    return [p.clock for site in sites for p in site.runs() if hasattr(p, "clock")]


def _call(watch: Watch | None) -> CallRecord | None:
    if watch is None:
        return None
    made = tuple(StoredRecord(*found, times=n) for found, n in Counter(watch.stored).items())
    return CallRecord(watch.begun, watch.seconds, tuple(Moment(*found) for found in watch.moments), made)


def _compilations(sites: tuple[Site, ...]) -> tuple[CompilationRecord, ...]:
    """Say which guards failed, and what was done; times are those of the clock that runs are timed by."""
    records = [r for j in {id(s.journal): s.journal for s in sites}.values() for r in j.records]
    offset = perf_counter() - time()
    return tuple(
        CompilationRecord(
            SourceLine.at(*r.line) if r.line else SourceLine("?", 0), str(r.guard), r.tier, r.plans,
            r.compiled, r.reused, r.nbytes, r.seconds, r.at + offset)
        for r in records)
