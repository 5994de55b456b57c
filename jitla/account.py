"""What a decorated function has done, added up: statistics, coverage, records for explain.

Knows: sites, programs and their stages. Must not know: how anything is compiled or shown.
Receives sites; returns counters and records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from time import perf_counter, time
from typing import Any

from jitla.clocks import Watch
from jitla.drafting import program_record
from jitla.page import counters
from jitla.predictions import duration
from jitla.records import (
    NEST,
    CallRecord,
    CompilationRecord,
    Covered,
    CutRecord,
    FallbackRecord,
    FunctionRecord,
    KeptRecord,
    LoopRecord,
    Moment,
    NestRecord,
    SourceLine,
    StoredRecord,
)
from jitla.tracing import Site
from jitla.turning import loops_back

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
