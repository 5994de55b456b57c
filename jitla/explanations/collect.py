"""Collects the records of a decorated function from its sites: programs, counters, fallbacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import isfinite, isnan
from time import perf_counter, time
from typing import Any

from jitla.events import (
    CallWatch,
    median_seconds,
)
from jitla.explanations.graph import NodeRecord
from jitla.explanations.records import (
    SCALAR_LOOP,
    VIEW_REASON,
    CallRecord,
    CodeRecord,
    CompilationRecord,
    CostRecord,
    CoveredOperator,
    CutRecord,
    FallbackRecord,
    FiredRule,
    FunctionRecord,
    HoistedValueRecord,
    ImmediateRunRecord,
    NumPyCallRecord,
    ProgramRecord,
    RunnerUpRecord,
    ScalarLoopRecord,
    SeparationRecord,
    SourceLine,
    SparseResultRecord,
    StageRecord,
    StepRecord,
    TimedRunRecord,
    duration,
)
from jitla.explanations.rendering import counters
from jitla.fusion import is_view
from jitla.hops import topo
from jitla.loopir import show_program
from jitla.recompile import schedule_text, traced_roots, view_program
from jitla.rewrites import RULES, SUBSTITUTIONS
from jitla.tiering.loop_detector import has_loops
from jitla.tracing import Site


class _LineLookup:
    """Source lines of the hops of a program in one function; functions share programs.

    Hops that rewrites made take the line of a hop with the same provenance, or of the hop that reads them.
    """

    def __init__(self, lines: Mapping[Any, Any], program: Any) -> None:
        self._lines = dict(lines)
        self._own = set(lines.values())
        for stage in program.stages:  # the rewritten form of a result has the line of the result
            for given, root in zip(program.traced_roots, stage.draft.roots, strict=True):
                if given in lines:
                    self._lines.setdefault(root, lines[given])
        every = [*program.plan.outputs, *(root for stage in program.stages for root in stage.draft.roots)]
        self._reader = {i: hop for hop in reversed(topo(every)) for i in hop.inputs}
        # Hops made by rewrites have the line of the original hop in the first function of the program.
        self._lines_of_rewritten: dict[Any, set[Any]] = {}
        for hop, line in lines.items():
            for key in (hop.line, (hop.op.name, hop.line)):
                self._lines_of_rewritten.setdefault(key, set()).add(line)

    def of(self, hop: Any) -> Any:
        """Return the line of `hop`, if known."""
        if not self._own:
            return hop.line
        if hop.op.name == "const":
            return None  # all functions share it
        options = self._options(hop)
        while True:
            narrower = self._options(hop)
            if len(narrower) == 1 and (narrower <= options or not options):
                return next(iter(narrower))
            if hop not in self._reader:
                return max(options, default=None)
            hop = self._reader[hop]

    def _options(self, hop: Any) -> set[Any]:
        """Return the lines that `hop` may have, by its own provenance."""
        if hop in self._lines:
            return {self._lines[hop]}
        rewritten = self._lines_of_rewritten
        return rewritten.get((hop.op.name, hop.line)) or rewritten.get(hop.line, set())


def program_record(
    program: Any, runs: int, first: Any, lines_by_hop: Mapping[Any, Any], own: Mapping[int, Any],
    codes: bool = False,
) -> ProgramRecord:
    """Return the record of one program, which functions may share, as used by one function.

    `first` is the function's first binding of it, `lines_by_hop` the lines of its hops, `own` all its current
    bindings by id. Sizes are those of the last timed binding. With `codes` the record has LLVM IR and
    assembly.
    """
    timed = [lap for lap in list(program.clock.laps) if id(lap.binding and lap.binding()) in own]
    bound = timed[-1].binding() if timed else first
    hops = zip(topo(program.traced_roots), topo(traced_roots(program, first)), strict=True)
    lines = _LineLookup(
        {hop: lines_by_hop[first_hop] for hop, first_hop in hops if lines_by_hop.get(first_hop)}, program)
    view = view_program(program, bound, lines.of)
    stages = tuple(StageRecord(s.name, s.text(), s.seconds) for s in view.stages)
    sizes = {tuple(b.dims.items()) for b in own.values() if b.program is program and hasattr(b, "dims")}
    same_size = [lap for lap in timed if lap.binding() is bound]
    names = _step_names(view.plan)
    times = dict(zip(view.steps, median_seconds(same_size), strict=False))
    comparison = view.explain_plan()
    counts = {view.steps[at]: found for lap in same_size for at, found in lap.counts.items()}
    steps = tuple(
        replace(_step(step, view.layouts, times.get(step, 0.0)), shares=shares,
                counted=counts.get(step),
                schedule=schedule_text(view.chosen[step]) if step in view.chosen else "")
        for step, shares in zip(view.plan.steps, comparison.shares, strict=True))
    roots = ", ".join(h.op.name for h in view.plan.outputs)
    rules = tuple(_fired(name, n) for name, n in Counter(program.fired).items())
    return ProgramRecord(
        roots, stages, rules, steps, runs, program.materialised, sum(s.seconds for s in stages),
        _cost(program, view.peak, comparison), tuple(_node_records(view.plan, names)),
        median_seconds(same_size)[-1] if same_size else 0.0, tuple(_timed_runs(view, timed)),
        tuple(_separations(view.plan, comparison, names)), tuple(_trace(view.traced_roots)),
        tuple(_codes(program)) if codes else (), program.script.source, len(same_size), max(len(sizes), 1))


def _step_names(plan: Any) -> dict[Any, str]:
    """Return "K1" for the first kernel, "C1" for the first call, and so on."""
    counts, names = {"K": 0, "C": 0}, {}
    for step in plan.steps:
        kind = "K" if hasattr(step, "body") else "C"
        counts[kind] += 1
        names[step] = f"{kind}{counts[kind]}"
    return names


def _timed_runs(now: Any, laps: Iterable[Any]) -> Iterator[TimedRunRecord]:
    """Yield the timed runs, their steps in the order of the plan."""
    index = {step: number for number, step in enumerate(now.steps)}
    order = [index[step] for step in now.plan.steps]
    for lap in laps:
        yield TimedRunRecord(lap.begun, tuple(lap.seconds[i] for i in order), lap.whole, lap.thread)


def _codes(program: Any) -> Iterator[CodeRecord]:
    names = _step_names(program.plan)
    ordered = [names[step] for step in program.order.steps if hasattr(step, "body")]
    for at, form, text, assembly in program.codes():
        yield CodeRecord(ordered[at], form, text, assembly)


def _trace(given: Any) -> Iterator[CoveredOperator]:
    """Yield the traced operations in the order of recording."""
    for hop in topo(given):
        if hop.op.name not in ("leaf", "const"):
            line = hop.line
            text = f"{hop.op.name} {_sizes(hop)} {hop.meta.dtype}"
            yield CoveredOperator(text, SourceLine.at(*line) if line else None)


def _sizes(hop: Any) -> str:
    return "x".join(map(str, hop.meta.shape)) or "scalar"


def _separations(plan: Any, verdict: Any, names: Mapping[Any, str]) -> Iterator[SeparationRecord]:
    """Yield, for every value between two steps, why these are not fused."""
    for step in plan.steps:
        for hop in step.outputs:
            readers = [s for s in plan.steps if s is not step and hop in s.inputs]
            if not readers or not hop.meta.shape:
                continue
            yield SeparationRecord(_value(hop), names[step], tuple(names[s] for s in readers),
                              _separation(hop, step, readers, verdict, plan.outputs))


def _separation(hop: Any, step: Any, readers: list[Any], verdict: Any, outputs: Any) -> str:
    """Return why `step`, which computes `hop`, is not fused with `readers`."""
    calls = [s for s in (step, *readers) if not hasattr(s, "body")]
    if calls:
        call = calls[0]
        why = call.reason or "NumPy runs it"
        return f"{call.hop.op.name} is a call of NumPy: {why}"
    if hop in verdict.flip_costs:
        extra_seconds = verdict.flip_costs[hop]
        if isnan(extra_seconds):
            return "one loop is possible, but too many plans would have to be compared to predict its cost"
        if isfinite(extra_seconds):
            if extra_seconds > 0:
                return f"one loop for both takes {duration(extra_seconds)} more"
            return "one loop for both is not faster"
    if hop in outputs:
        return "it is a result, which is in memory anyway, and one loop for both is predicted to be slower"
    return "one loop is impossible: the next step needs all elements first"


def _node_records(plan: Any, names: Mapping[Any, str]) -> Iterator[NodeRecord]:
    """Yield the values of a plan, without scalar inputs."""
    step_of: dict[Any, str] = {}
    for step in plan.steps:
        for hop in getattr(step, "body", None) or (step.hop,):
            step_of.setdefault(hop, names[step])
    shown = [h for h in topo(plan.outputs) if h.op.name != "leaf" or h.meta.shape]
    numbers = {hop: at for at, hop in enumerate(shown)}
    for hop in shown:
        line = hop.line
        source = SourceLine.at(*line) if line else None
        reads = tuple(numbers[h] for h in hop.inputs if h in numbers)
        yield NodeRecord(
            "array" if hop.op.name == "leaf" else hop.op.name, f"{_sizes(hop)} {hop.meta.dtype}",
            step_of.get(hop, ""), reads, f"{source.place}  {source.text}" if source else "",
            hop in plan.outputs)


def _cost(program: Any, peak: int, verdict: Any) -> CostRecord:
    """Return the costs of a program's plan and the statistics of the search for it."""
    rival = None
    if verdict.runner_up is not None:
        *terms, more = verdict.runner_up.more
        keeps, drops = (tuple(_value(h) for h in values)
                        for values in (verdict.runner_up.keeps, verdict.runner_up.drops))
        rival = RunnerUpRecord(verdict.seconds + more, keeps, drops, tuple(terms))
    return CostRecord(
        program.fusion, verdict.costs, tuple(verdict.rules.items()), verdict.bound, verdict.kernels,
        verdict.partitions, verdict.points, verdict.costed, verdict.by_cost, verdict.by_structure,
        verdict.spent, rival, peak, program.limit, verdict.unlimited)


def _value(hop: Any) -> str:
    """Return the name of a value: its operator, shape and line."""
    line = hop.line
    return f"{hop.op.name} {_sizes(hop)}" + (f" of {SourceLine.at(*line).place}" if line else "")


def _bytes_accessed(step: Any, layouts: Mapping[int, Any]) -> int:
    """Return the bytes of all arrays that a step reads and writes; a matrix and its transpose are one."""
    total: int = 0
    accesses: dict[tuple[int, Any, Any], Counter[Any]] = {}
    for hop in {*step.inputs, *step.outputs}:
        layout = layouts.get(hop.attr("slot")) if hop.op.name == "leaf" else None
        if layout is None or hop.meta.ndim < 2:
            total += hop.meta.nbytes if hop.meta.shape else 0
        else:
            axes = tuple(zip(layout.strides, layout.shape, strict=True))
            key = hop.meta.nbytes, hop.meta.dtype, tuple(sorted(axes))
            accesses.setdefault(key, Counter())[axes] += 1
    return total + sum(key[0] * max(counts.values()) for key, counts in accesses.items())


def _step(step: Any, layouts: Mapping[int, Any], seconds: float) -> StepRecord:
    def covered(hop: Any) -> CoveredOperator:
        line = hop.line
        return CoveredOperator(hop.op.name, SourceLine.at(*line) if line else None)

    nbytes = _bytes_accessed(step, layouts)
    nnz = [h.meta.nnz for h in step.outputs if h.meta.nnz is not None]
    nnz_bound = min(nnz) if nnz else None
    if hasattr(step, "body"):
        sizes = "x".join(map(str, step.shape)) or "scalar"
        title = f"{step.template} {sizes} {step.body[-1].meta.dtype}"
        reads = sum(h.meta.shape != () for h in step.inputs)
        writes = sum(h.meta.shape != () for h in step.outputs)
        covers = tuple(map(covered, step.body))
        return StepRecord("kernel", title, covers, reads, writes, "", nbytes, nnz_bound, seconds)
    hop = step.hop
    reason = str(hop.attr("part")) if hop.op.name == "offload" else step.reason
    if is_view(hop):
        reason, nbytes = VIEW_REASON, 0
    return StepRecord("call", f"{hop.op.name} {_sizes(hop)} {hop.meta.dtype}", (covered(hop),), 0, 0, reason,
                      nbytes, nnz_bound, seconds)


def _fired(name: str, count: int) -> FiredRule:
    rule = {rule.name: rule for rule in RULES + SUBSTITUTIONS}.get(name)
    return FiredRule(name, count, rule.doc, rule.exactness) if rule else FiredRule(name, count)


#: Counter by the state of an explicit loop.
_COUNTER_BY_STATE = {"trusted": "loops", "waiting": "loops_waiting", "tried": "loops_waiting",
            "cold": "loops_cold", "refused": "loops_refused"}


class Stats(dict[str, float]):
    """Counters of a decorated function, as a mapping and as attributes.

    `calls` of the function; `bypassed`, those that ran the plain function; `plans`, exact blocks known now;
    `programs` in use; `kernels` in them; `forces`, blocks run; `kernel_runs`; `numpy_calls` inside programs;
    `materialised`, vector values written to fresh memory by programs; `fallbacks`, NumPy calls outside of
    programs; `failures`, blocks that could not be compiled and ran in NumPy; `kept`, hoisted values computed
    for later runs of a block, `reused`, how often they were used, `kept_bytes`, the most memory that a call
    used for them; `loops`, explicit loops that compiled code runs, `loops_waiting`, to be compiled or
    checked, `loops_cold`, not worth compiling so far, `loops_refused`, run by Python; `loop_runs` of
    compiled code, `loops_left`, how often an iteration was left to Python; `waiting`, blocks that NumPy runs
    until they are compiled; `planned`, plans made, `compiled`, modules of machine code compiled, and
    `found`, those found in memory or on disk.
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
    """Return the sums of the counters of all sites; `failed` are calls that failed before there was one."""
    total = Stats(calls=0, bypassed=0, plans=0, programs=0, kernels=0, forces=0, kernel_runs=0, numpy_calls=0,
                  materialised=0, fallbacks=0, failures=len(failed), kept=0, reused=0, kept_bytes=0,
                  waiting=0, loops=0, loops_waiting=0, loops_cold=0, loops_refused=0, loop_runs=0,
                  loops_left=0, planned=0, compiled=0, found=0)
    sites = tuple(sites)
    for recompilation_log in {id(site.recompilation_log): site.recompilation_log for site in sites}.values():
        total["planned"] += recompilation_log.planned
        total["compiled"] += recompilation_log.compiled
        total["found"] += recompilation_log.reused
    for site in sites:
        runs = site.runs()
        total["calls"] += _calls(site)
        total["bypassed"] += site.call_classes.calls if site.call_classes else 0
        total["plans"] += len(site.exact)
        total["waiting"] += sum(not replay.is_dropped for replay in list(site.interim_replays))
        total["programs"] += len(runs)
        total["fallbacks"] += sum(f.count for f in site.fallbacks.values())
        total["failures"] += len(site.failures)
        total["kept"] += sum(part.computations for part in list(site.parts.values()))
        total["reused"] += sum(part.uses for part in list(site.parts.values()))
        total["kept_bytes"] = max(total["kept_bytes"], site.most_kept)
        for record in scalar_loops_of((site,)):
            total[_COUNTER_BY_STATE[record.state]] += 1
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
    """Return the number of calls of a site, including those that the profile skipped."""
    return site.calls + (site.call_classes.skipped if site.call_classes else 0)


def fallbacks_of(sites: Iterable[Site]) -> tuple[FallbackRecord, ...]:
    """Return what ran in NumPy: whole calls, explicit loops, and NumPy calls outside of programs."""
    sites = tuple(sites)
    first = (r for site in sites for r in (*_bypass_records(site), *_scalar_loop_fallbacks(site)))
    return (*first, *(
        FallbackRecord(name, SourceLine.at(file, line), f.count, f.seconds, f.reason)
        for site in sites for (name, file, line), f in list(site.fallbacks.items())
    ))


def _bypass_records(site: Site) -> Iterator[FallbackRecord]:
    """Yield the call classes for which the plain function runs because it is faster."""
    for bypass in site.call_classes.bypasses() if site.call_classes else ():
        on = f"{bypass.low} to {bypass.high} elements" if bypass.high else "no arrays"
        yield FallbackRecord(
            site.name, SourceLine.at(*site.call_classes.place), bypass.calls, bypass.calls * bypass.plain,
            f"whole calls, on {on}: {duration(bypass.plain)} each, traced {duration(bypass.traced)}")


def _scalar_loop_fallbacks(site: Site) -> Iterator[FallbackRecord]:
    """Yield the explicit loops that Python runs, with the iterations of each."""
    for nest in scalar_loops_of((site,)):
        if nest.state == "refused" and (nest.plain or not nest.kinds):  # of one without a profile: the calls
            count = nest.plain or _calls(site)
            yield FallbackRecord(SCALAR_LOOP, nest.line, count, nest.seconds, nest.reason)


def scalar_loops_of(sites: Iterable[Site], texts: bool = False) -> tuple[ScalarLoopRecord, ...]:
    """Return the records of the explicit loops; with `texts` they have their loop programs."""
    return tuple(
        ScalarLoopRecord(SourceLine.at(r.file, r.line), r.state, r.reason, r.kinds, r.plain, r.runs, r.left,
                         r.seconds, r.compiled, r.failure,
                         show_program(r.program) if texts and r.program is not None else "")
        for site in sites if site.loop_function is not None for r in site.loop_function.records())


def immediate_runs_of(sites: Iterable[Site]) -> tuple[ImmediateRunRecord, ...]:
    """Return the operations that kernels ran immediately, or NumPy in their place."""
    return tuple(
        ImmediateRunRecord(name, x.title, SourceLine.at(file, line), x.count, x.by_numpy, x.seconds, x.nbytes)
        for site in sites for (name, file, line), x in list(site.loops.items())
    )


def hoisted_values_of(sites: Iterable[Site]) -> tuple[HoistedValueRecord, ...]:
    """Return the hoisted values, most used first."""
    parts = [part for site in sites for part in list(site.parts.values()) if part.computations]
    return tuple(_hoisted_value(part) for part in sorted(parts, key=lambda part: -part.uses))


def _hoisted_value(part: Any) -> HoistedValueRecord:
    name, shape, lines = part.description()
    sizes = "x".join(map(str, shape)) or "scalar"
    covers = tuple(CoveredOperator(op, SourceLine.at(*line) if line else None) for op, line in lines)
    return HoistedValueRecord(f"{name} {sizes}", covers, part.computations, part.uses, part.nbytes)


def function_record(function: Callable[..., Any], sites: Iterable[Site], note: str = "", *,
                    assumed: bool = False, watch: CallWatch | None = None, codes: bool = False,
                    given: str = "",
                    failed: Sequence[str] = ()) -> FunctionRecord:
    """Return the record of a decorated function; `note` is why nothing is compiled.

    `assumed`: the machine has not been calibrated. `watch` is the explained call. With `codes` the record has
    LLVM IR and assembly, which takes a while. `given` is the class of a table among the arguments, `failed`
    are calls that failed before there was a site.
    """
    sites = tuple(sites)
    code = getattr(function, "__code__", None)
    place = SourceLine.at(code.co_filename, code.co_firstlineno) if code else SourceLine("?", 0)
    runs: Counter[Any] = Counter()
    for site in sites:
        runs.update(site.runs())
    lines = {p: found for site in sites for p, found in list(site.lines.items())}
    own = {id(bound): bound for site in sites for bound in site.bound_programs()}
    programs = tuple(
        program_record(p, n, *lines.get(p, (None, {})), own, codes) for p, n in runs.items()
        if hasattr(p, "plan"))
    name = getattr(function, "__qualname__", repr(function))
    return FunctionRecord(
        name, place, sum(_calls(s) for s in sites), programs, fallbacks_of(sites), note,
        immediate_runs_of(sites), hoisted_values_of(sites), scalar_loops_of(sites, texts=True),
        sum(len(s.interim_replays) for s in sites), _compilations(sites),
        tuple(dict.fromkeys([*failed, *(text for s in sites for text in s.failures)])), assumed, _call(watch),
        given, code is not None and has_loops(code), _cut_records(sites))


def _cut_records(sites: tuple[Site, ...]) -> tuple[CutRecord, ...]:
    """Return the places where long blocks were split, in the order of lines."""
    cuts = sorted((line, cut) for site in sites for line, cut in list(site.cuts.items()))
    return tuple(CutRecord(SourceLine.at(*line), count, operations) for line, (count, operations) in cuts)


def clocks_of(sites: Iterable[Site]) -> list[Any]:
    """Return the clocks of the programs of sites."""
    return [p.clock for site in sites for p in site.runs() if hasattr(p, "clock")]


def _call(watch: CallWatch | None) -> CallRecord | None:
    if watch is None:
        return None
    results = tuple(SparseResultRecord(*fields, times=n) for fields, n in Counter(watch.stored).items())
    moments = tuple(NumPyCallRecord(*fields) for fields in watch.moments)
    return CallRecord(watch.begun, watch.seconds, moments, results)


def _compilations(sites: tuple[Site, ...]) -> tuple[CompilationRecord, ...]:
    """Return the failed guards and what was compiled; times are those of `perf_counter`, as for runs."""
    logs = {id(s.recompilation_log): s.recompilation_log for s in sites}
    records = [record for log in logs.values() for record in log.records]
    offset = perf_counter() - time()
    return tuple(
        CompilationRecord(
            SourceLine.at(*r.line) if r.line else SourceLine("?", 0), str(r.guard), r.tier, r.plans,
            r.compiled, r.reused, r.nbytes, r.seconds, r.at + offset)
        for r in records)
