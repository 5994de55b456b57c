"""Explanations as text, by level of detail."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from jitla.explanations.records import (
    CodeRecord,
    CostRecord,
    Covered,
    CutRecord,
    FiredRule,
    FunctionRecord,
    ProgramRecord,
    SourceLine,
    StageRecord,
    StepRecord,
    bytes_text,
    duration,
    rival_line,
    search_lines,
    summary_line,
)

__all__ = [
    "DEEP", "LEVELS", "LINES", "aligned", "covered_lines", "cut_lines", "foreseen", "program_lines",
    "ran", "rate", "recompilation_lines", "runtime_lines", "runtime_table", "stage_levels", "times",
]


GIGA = 1e9


def runtime_table(program: ProgramRecord) -> Iterator[str]:
    """Yield predicted and measured times of every step, and of every line of the user's program."""
    yield f"-- runtime, median of {times(program.timed, 'run')} that {_were(program)} timed"
    rows = [("step", "predicted", "measured", "ratio", "bytes", "rate")]
    for (name, step), predicted in zip(program.named(), foreseen(program), strict=True):
        rows.append((name, *_compared(predicted, step.seconds), bytes_text(step.nbytes),
                     rate(step) if step.seconds and step.nbytes else ""))
    rows.append(("all", *_compared(sum(foreseen(program)), program.seconds), "", ""))
    yield from aligned(rows)
    by_line: list[tuple[str, ...]] = [("line", "predicted", "measured", "ratio", "own part", "steps")]
    by_line += _by_line(program)
    yield from aligned(by_line)
    if any("*" in row[-1] for row in by_line):
        yield "   * with other lines; a line's own part of it is an estimate, by predicted work and bytes"


def ran(program: ProgramRecord) -> str:
    """Say how often a program ran, and with how many sizes if with several."""
    return times(program.runs, "run") + (f" of {program.sizes} sizes" if program.sizes > 1 else "")


def _were(program: ProgramRecord) -> str:
    return "was" if program.timed == 1 else "were"


def _by_line(program: ProgramRecord) -> Iterator[tuple[str, ...]]:
    """Yield what the steps of every line take; those that several lines share are named at each."""
    of: dict[SourceLine, list[int]] = {}
    for at, step in enumerate(program.steps):
        for line in dict.fromkeys(c.line for c in step.covers if c.line is not None):
            of.setdefault(line, []).append(at)
    names, predicted = [name for name, _ in program.named()], foreseen(program)
    for line in sorted(of, key=lambda x: (x.file, x.line)):
        shared = {at for other, found in of.items() if other != line for at in found}
        shown = " ".join(names[at] + "*" * (at in shared) for at in of[line])
        own = sum(program.steps[at].seconds * program.steps[at].share(line) for at in of[line])
        yield (line.place, *_compared(sum(predicted[at] for at in of[line]),
                                      sum(program.steps[at].seconds for at in of[line])),
               duration(own) if own else "", shown)


def _compared(predicted: float, measured: float) -> tuple[str, str, str]:
    ratio = f"{measured / predicted:.2f}" if predicted and measured else ""
    return duration(predicted) if predicted else "", duration(measured) if measured else "", ratio


def runtime_lines(record: FunctionRecord) -> Iterator[str]:
    """Yield what the call that was made to explain the function was spent on."""
    call = record.call
    if call is None:
        return
    inside = [lap.whole for p in record.programs for lap in p.laps if lap.begun >= call.begun]
    made = [c.seconds for c in record.compilations if c.ended >= call.begun and c.tier == "now"]
    other = [m.seconds for m in call.moments]
    rest = max(call.seconds - sum(inside) - sum(made) - sum(other), 0.0)
    yield f"== the call took {duration(call.seconds)}"
    yield from aligned([
        ("in programs", duration(sum(inside)), times(len(inside), "run")),
        ("compiling", duration(sum(made)), times(len(made), "time")),
        ("NumPy outside", duration(sum(other)), times(len(other), "call")),
        ("Python, tracing", duration(rest), "")])


# --------------------------------------------------------------------------- parts of it


def foreseen(program: ProgramRecord) -> list[float]:
    """Return the seconds that every step was predicted to take."""
    return [0.0] * len(program.steps) if program.cost is None else [c[-1] for c in program.cost.costs]


def rate(step: StepRecord) -> str:
    """Return how fast a step got through its bytes."""
    return f"{step.nbytes / step.seconds / GIGA:.3g} GB/s"


def aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Yield rows of a table; the first column and the last are flush left, the others right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *middle, last in rows:
        cells = [f"{cell:>{width}}" for cell, width in zip(middle, widths[1:-1], strict=True)]
        yield "   " + "  ".join([f"{first:<{widths[0]}}", *cells, last]).rstrip()


def times(count: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


#: Levels that every explanation has; stages of the pipeline that are not among them have one, too.
LEVELS = ("plan", "trace", "hops", "rewrites", "kernels", "cost", "llvm", "asm", "recompilations", "runtime",
          "all")
DEEP = ("llvm", "asm")  # these take a while to write down: they are made if asked for, and not in "all"
STEPS, LINES = 24, 8  # what the first screen has room for: steps of a program, lines of a step
_KERNEL = re.compile(r"\bK(\d+)\b")  # plans count kernels from 0


def stage_levels(record: FunctionRecord) -> list[str]:
    """Return the levels that stages of the pipeline give."""
    return list(dict.fromkeys(_group(s) for p in record.programs for s in p.stages))


def program_lines(program: ProgramRecord, number: int, level: str) -> Iterator[str]:
    """Return a program at a level."""
    facts = [
        ran(program), times(program.kernels, "kernel"),
        times(program.calls, "NumPy call"),
        f"{times(program.materialised, 'intermediate')} in memory",
        f"compiled in {duration(program.compile_seconds)}",
    ]
    yield f"== program {number}: {program.name}"
    yield f"   {', '.join(facts)}"
    if program.sizes > 1:
        yield "   shown are the sizes, and their times, of the last run that was timed"
    if level in ("trace", "all") and program.trace:
        yield "-- trace"
        yield from _trace(program.trace)
    planned = False
    for stage in program.stages:
        group = _group(stage)
        planned = planned or group == "plan"
        if level == group or level == "all" and group != "loops":
            yield from _stage(stage, program, short=level == "plan")
    if level in ("plan", "all") and not planned:
        yield "-- plan"
        yield from _steps(program, short=level == "plan")
    yield from _below(program, level)


def _below(program: ProgramRecord, level: str) -> Iterator[str]:
    """Yield what is beside the stages of the pipeline."""
    if level in ("kernels", "all"):
        yield from _kernels(program)
    if level in ("cost", "all") and program.cost is not None:
        yield "-- cost"
        yield from _cost(program, program.cost)
    if level in DEEP:
        for code in program.codes:
            yield from _code(code, level)
    if level in ("runtime", "all") and program.laps:
        yield from runtime_table(program)


def _stage(stage: StageRecord, program: ProgramRecord, short: bool) -> Iterator[str]:
    group = _group(stage)
    yield f"-- {stage.name}, made in {duration(stage.seconds)}"
    if stage.name in ("rewrites", "rewrites.static"):
        yield from _fired(program.fired)
    if group == "plan":
        yield from _steps(program, short)
    else:
        yield from _indented(stage.text)


def _fired(fired: tuple[FiredRule, ...]) -> Iterator[str]:
    if not fired:
        yield "   no rule fired"
    width = max((len(f.name) for f in fired), default=0)
    for f in sorted(fired, key=lambda f: (-f.count, f.name)):
        yield f"   {f.count:>3} x {f.name:<{width}}  {f.exactness:<8}  {f.doc}".rstrip()


def _steps(program: ProgramRecord, short: bool) -> Iterator[str]:
    """Yield every step with its lines; `short`: those that took most, and their first lines."""
    rows = [(name, step, predicted) for (name, step), predicted in
            zip(program.named(), foreseen(program), strict=True)]
    lines, left = (LINES if short else None), len(rows) - STEPS
    if short and left > 0:
        rows = sorted(sorted(rows, key=lambda row: -(row[1].seconds or row[2]))[:STEPS], key=rows.index)
    for on_numbers, group in groupby(rows, lambda row: row[1].on_numbers):
        together = list(group)
        if on_numbers and len(together) > 1:
            yield from _numbers(together, lines)
        else:
            for row in together:
                yield from _step(*row, lines)
    if short and left > 0:
        yield f"   {times(left, 'step')} that took less; level=\"all\" shows everything"
    if program.cost is not None:
        yield f"   {summary_line(program.cost)}"
        if program.cost.rival is not None:
            yield f"   {rival_line(program.cost)}"
    if program.laps:
        how = f"median of {program.timed} runs" if program.timed > 1 else "the first run"
        yield f"   measured: {duration(program.seconds)}, {how}"


def _step(name: str, step: StepRecord, predicted: float, most: int | None) -> Iterator[str]:
    facts = [step.title]
    if step.kind == "kernel":
        facts += [f"reads {step.reads}", f"writes {step.writes}"]
    if step.nonzeros:
        facts.append(step.nonzeros)
    facts += _taken(predicted, step.seconds)
    if step.nbytes:
        facts.append(bytes_text(step.nbytes) + (f" ({rate(step)})" if step.seconds else ""))
    reason = f"  ({step.reason})" if step.reason else ""
    yield f"   {name}  {', '.join(facts)}{reason}"
    if step.schedule:
        yield f"       {step.schedule}"
    yield from covered_lines(step.covers, most)


def _numbers(rows: list[tuple[str, StepRecord, float]], most: int | None) -> Iterator[str]:
    """Yield steps in a row that compute single numbers, together."""
    taken = _taken(sum(row[2] for row in rows), sum(row[1].seconds for row in rows))
    facts = [f"{len(rows)} numbers", *taken]
    yield f"   {rows[0][0]}-{rows[-1][0]}  {', '.join(facts)}"
    yield from covered_lines((covered for _, step, _ in rows for covered in step.covers), most)


def _taken(predicted: float, measured: float) -> list[str]:
    return [*([f"about {duration(predicted)}"] if predicted else []),
            *([f"took {duration(measured)}"] if measured else [])]


def _trace(recorded: tuple[Covered, ...]) -> Iterator[str]:
    """Yield what was recorded, below the line that asked for it."""
    for line, group in groupby(recorded, lambda c: c.line):
        yield f"   {line.place}  | {line.text}".rstrip(" |") if line else "   (no line)"
        yield from (f"       {c.op}" for c in group)


def covered_lines(covers: Iterable[Covered], most: int | None = None) -> Iterator[str]:
    """Group operators that stand together and come from one line; say how many `most` leaves out."""
    rows = [(line, " ".join(c.op for c in group)) for line, group in groupby(covers, lambda c: c.line)]
    left = 0 if most is None else max(len(rows) - most, 0)
    del rows[len(rows) - left:]
    places = [line.place if line else "" for line, _ in rows]
    width = max(map(len, places), default=0)
    for (line, operators), place in zip(rows, places, strict=True):
        text = f"  | {line.text}" if line and line.text else ""
        yield f"       {place:<{width}}  {operators}{text}"
    if left:
        yield f"       and {left} more"


def _kernels(program: ProgramRecord) -> Iterator[str]:
    """Yield what every loop does, and the function that runs the loops."""
    for stage in program.stages:
        if _group(stage) == "plan":
            yield "-- kernels"
            yield from _indented(_KERNEL.sub(lambda m: f"K{int(m[1]) + 1}", stage.text))
    if program.source:
        yield "-- program"
        yield from _indented(program.source)


def _cost(program: ProgramRecord, cost: CostRecord) -> Iterator[str]:
    yield from (f"   {row}" for row in search_lines(cost, [name for name, _ in program.named()]))
    yield from (f"   {apart.text}" for apart in program.apart)


def _code(code: CodeRecord, level: str) -> Iterator[str]:
    yield f"-- {level} of {code.kernel}, {code.form}"
    yield from _indented(code.text if level == "llvm" else code.assembly)


def recompilation_lines(record: FunctionRecord) -> Iterator[str]:
    """Yield what was met without a plan, why, and what was done."""
    yield f"== met without a plan: {times(len(record.compilations), 'time')}"
    for c in record.compilations:
        yield (f"   {c.line.place}  {c.guard}  ({c.tier}: {c.plans} plans, {c.compiled} compiled, "
               f"{c.reused} found, {duration(c.seconds)})")


def cut_lines(cuts: tuple[CutRecord, ...]) -> Iterator[str]:
    """Yield where blocks ended that nothing had asked for, the first of these places."""
    if not cuts:
        return
    most = max(cut.operations for cut in cuts)
    yield (f"== cut: {times(len(cuts), 'place')}, behind {times(most, 'operation')} at most; "
           "longer plans take long to find")
    width = max(len(cut.line.place) for cut in cuts[:LINES])
    for cut in cuts[:LINES]:
        text = f"  | {cut.line.text}" if cut.line.text else ""
        yield f"   behind {cut.line.place:<{width}}  {times(cut.count, 'time')}{text}"
    if len(cuts) > LINES:
        yield f"   and {len(cuts) - LINES} more"


# --------------------------------------------------------------------------- words


def _group(stage: StageRecord) -> str:
    return stage.name.partition(".")[0]


def _indented(text: str) -> Iterator[str]:
    for row in text.rstrip("\n").split("\n"):
        yield f"   {row}".rstrip()
