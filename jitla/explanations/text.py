"""Explanations as text, by level of detail."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from jitla.explanations.records import (
    CodeRecord,
    CostRecord,
    CoveredOperator,
    CutRecord,
    FiredRule,
    FunctionRecord,
    ProgramRecord,
    SourceLine,
    StageRecord,
    StepRecord,
    bytes_text,
    duration,
    runner_up_line,
    search_lines,
    summary_line,
)

__all__ = [
    "CODE_LEVELS", "LEVELS", "MAX_LINES", "bandwidth_text", "count_text", "covered_lines", "cut_lines",
    "format_table", "predicted_seconds", "program_lines", "recompilation_lines", "runs_text",
    "runtime_lines", "runtime_table", "stage_levels",
]


BYTES_PER_GB = 1e9


def runtime_table(program: ProgramRecord) -> Iterator[str]:
    """Yield the predicted and measured times of every step and of every source line."""
    yield f"-- runtime, median of {count_text(program.timed, 'run')} that {_timed_verb(program)} timed"
    rows = [("step", "predicted", "measured", "ratio", "bytes", "rate")]
    for (name, step), predicted in zip(program.named(), predicted_seconds(program), strict=True):
        rows.append((name, *_time_cells(predicted, step.seconds), bytes_text(step.nbytes),
                     bandwidth_text(step) if step.seconds and step.nbytes else ""))
    rows.append(("all", *_time_cells(sum(predicted_seconds(program)), program.seconds), "", ""))
    yield from format_table(rows)
    by_line: list[tuple[str, ...]] = [("line", "predicted", "measured", "ratio", "share", "steps")]
    by_line += _line_rows(program)
    yield from format_table(by_line)
    if any("*" in row[-1] for row in by_line):
        yield "   * shared with other lines; the share of a line is an estimate, by predicted work and bytes"


def runs_text(program: ProgramRecord) -> str:
    """Return the number of runs of a program, and of sizes if there are several."""
    return count_text(program.runs, "run") + (f" of {program.sizes} sizes" if program.sizes > 1 else "")


def _timed_verb(program: ProgramRecord) -> str:
    return "was" if program.timed == 1 else "were"


def _line_rows(program: ProgramRecord) -> Iterator[tuple[str, ...]]:
    """Yield the times of the steps of every line; steps shared by several lines are listed at each."""
    steps_by_line: dict[SourceLine, list[int]] = {}
    for at, step in enumerate(program.steps):
        for line in dict.fromkeys(c.line for c in step.covers if c.line is not None):
            steps_by_line.setdefault(line, []).append(at)
    names, predicted = [name for name, _ in program.named()], predicted_seconds(program)
    for line in sorted(steps_by_line, key=lambda x: (x.file, x.line)):
        shared = {at for other, indices in steps_by_line.items() if other != line for at in indices}
        names_text = " ".join(names[at] + "*" * (at in shared) for at in steps_by_line[line])
        steps = [program.steps[at] for at in steps_by_line[line]]
        own_seconds = sum(step.seconds * step.share(line) for step in steps)
        yield (line.place, *_time_cells(sum(predicted[at] for at in steps_by_line[line]),
                                        sum(step.seconds for step in steps)),
               duration(own_seconds) if own_seconds else "", names_text)


def _time_cells(predicted: float, measured: float) -> tuple[str, str, str]:
    ratio = f"{measured / predicted:.2f}" if predicted and measured else ""
    return duration(predicted) if predicted else "", duration(measured) if measured else "", ratio


def runtime_lines(record: FunctionRecord) -> Iterator[str]:
    """Yield how the time of the explained call divides into programs, compilation, NumPy and Python."""
    call = record.call
    if call is None:
        return
    program_seconds = [lap.whole for p in record.programs for lap in p.laps if lap.begun >= call.begun]
    compile_seconds = [c.seconds for c in record.compilations if c.ended >= call.begun and c.tier == "now"]
    numpy_seconds = [m.seconds for m in call.moments]
    remaining = max(call.seconds - sum(program_seconds) - sum(compile_seconds) - sum(numpy_seconds), 0.0)
    yield f"== the call took {duration(call.seconds)}"
    yield from format_table([
        ("in programs", duration(sum(program_seconds)), count_text(len(program_seconds), "run")),
        ("compiling", duration(sum(compile_seconds)), count_text(len(compile_seconds), "time")),
        ("NumPy outside", duration(sum(numpy_seconds)), count_text(len(numpy_seconds), "call")),
        ("Python, tracing", duration(remaining), "")])


# --------------------------------------------------------------------------- parts of it


def predicted_seconds(program: ProgramRecord) -> list[float]:
    """Return the predicted seconds of every step."""
    return [0.0] * len(program.steps) if program.cost is None else [c[-1] for c in program.cost.costs]


def bandwidth_text(step: StepRecord) -> str:
    """Return the bandwidth of a step: its bytes divided by its time."""
    return f"{step.nbytes / step.seconds / BYTES_PER_GB:.3g} GB/s"


def format_table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Yield the rows of a table; the first and the last column are left-aligned, the others right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *middle, last in rows:
        cells = [f"{cell:>{width}}" for cell, width in zip(middle, widths[1:-1], strict=True)]
        yield "   " + "  ".join([f"{first:<{widths[0]}}", *cells, last]).rstrip()


def count_text(count: int, noun: str) -> str:
    """Return a count with its noun in singular or plural."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


#: Levels that every explanation has; other compilation stages have a level of their name, too.
LEVELS = ("plan", "trace", "hops", "rewrites", "kernels", "cost", "llvm", "asm", "recompilations", "runtime",
          "all")
#: Levels that take long to produce: made on request only, and not part of "all".
CODE_LEVELS = ("llvm", "asm")
MAX_STEPS, MAX_LINES = 24, 8  # at level "plan": steps of a program, lines of a step
_KERNEL_NAME = re.compile(r"\bK(\d+)\b")  # plans number kernels from 0, explanations from 1


def stage_levels(record: FunctionRecord) -> list[str]:
    """Return the levels of the compilation stages."""
    return list(dict.fromkeys(_group(s) for p in record.programs for s in p.stages))


def program_lines(program: ProgramRecord, number: int, level: str) -> Iterator[str]:
    """Yield the text of a program at a level."""
    facts = [
        runs_text(program), count_text(program.kernels, "kernel"),
        count_text(program.calls, "NumPy call"),
        f"{count_text(program.materialised, 'intermediate')} in memory",
        f"compiled in {duration(program.compile_seconds)}",
    ]
    yield f"== program {number}: {program.name}"
    yield f"   {', '.join(facts)}"
    if program.sizes > 1:
        yield "   sizes and times are those of the last timed run"
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
    yield from _remaining_levels(program, level)


def _remaining_levels(program: ProgramRecord, level: str) -> Iterator[str]:
    """Yield the levels that are not compilation stages."""
    if level in ("kernels", "all"):
        yield from _kernels(program)
    if level in ("cost", "all") and program.cost is not None:
        yield "-- cost"
        yield from _cost(program, program.cost)
    if level in CODE_LEVELS:
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
    """Yield every step with its lines; if `short`, only the slowest steps and their first lines."""
    rows = [(name, step, predicted) for (name, step), predicted in
            zip(program.named(), predicted_seconds(program), strict=True)]
    lines, left = (MAX_LINES if short else None), len(rows) - MAX_STEPS
    if short and left > 0:
        rows = sorted(sorted(rows, key=lambda row: -(row[1].seconds or row[2]))[:MAX_STEPS], key=rows.index)
    for on_numbers, group in groupby(rows, lambda row: row[1].on_numbers):
        together = list(group)
        if on_numbers and len(together) > 1:
            yield from _scalar_steps(together, lines)
        else:
            for row in together:
                yield from _step(*row, lines)
    if short and left > 0:
        yield f"   {count_text(left, 'step')} that took less; level=\"all\" shows all"
    if program.cost is not None:
        yield f"   {summary_line(program.cost)}"
        if program.cost.rival is not None:
            yield f"   {runner_up_line(program.cost)}"
    if program.laps:
        how = f"median of {program.timed} runs" if program.timed > 1 else "the first run"
        yield f"   measured: {duration(program.seconds)}, {how}"


def _step(name: str, step: StepRecord, predicted: float, most: int | None) -> Iterator[str]:
    facts = [step.title]
    if step.kind == "kernel":
        facts += [f"reads {step.reads}", f"writes {step.writes}"]
    if step.nonzeros:
        facts.append(step.nonzeros)
    facts += _time_texts(predicted, step.seconds)
    if step.nbytes:
        facts.append(bytes_text(step.nbytes) + (f" ({bandwidth_text(step)})" if step.seconds else ""))
    reason = f"  ({step.reason})" if step.reason else ""
    yield f"   {name}  {', '.join(facts)}{reason}"
    if step.schedule:
        yield f"       {step.schedule}"
    yield from covered_lines(step.covers, most)


def _scalar_steps(rows: list[tuple[str, StepRecord, float]], most: int | None) -> Iterator[str]:
    """Yield one line for consecutive steps that compute scalars."""
    times_text = _time_texts(sum(row[2] for row in rows), sum(row[1].seconds for row in rows))
    facts = [f"{len(rows)} scalars", *times_text]
    yield f"   {rows[0][0]}-{rows[-1][0]}  {', '.join(facts)}"
    yield from covered_lines((covered for _, step, _ in rows for covered in step.covers), most)


def _time_texts(predicted: float, measured: float) -> list[str]:
    return [*([f"about {duration(predicted)}"] if predicted else []),
            *([f"took {duration(measured)}"] if measured else [])]


def _trace(recorded: tuple[CoveredOperator, ...]) -> Iterator[str]:
    """Yield the recorded operations, grouped by source line."""
    for line, group in groupby(recorded, lambda c: c.line):
        yield f"   {line.place}  | {line.text}".rstrip(" |") if line else "   (no line)"
        yield from (f"       {c.op}" for c in group)


def covered_lines(covers: Iterable[CoveredOperator], most: int | None = None) -> Iterator[str]:
    """Yield the operators, consecutive ones of the same line together; at most `most` lines."""
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
    """Yield the body of every kernel, and the function that runs them."""
    for stage in program.stages:
        if _group(stage) == "plan":
            yield "-- kernels"
            yield from _indented(_KERNEL_NAME.sub(lambda m: f"K{int(m[1]) + 1}", stage.text))
    if program.source:
        yield "-- program"
        yield from _indented(program.source)


def _cost(program: ProgramRecord, cost: CostRecord) -> Iterator[str]:
    yield from (f"   {row}" for row in search_lines(cost, [name for name, _ in program.named()]))
    yield from (f"   {apart.text}" for apart in program.apart)


def _code(code: CodeRecord, level: str) -> Iterator[str]:
    yield f"-- {level} of {code.kernel}, {code.form}"
    yield from _indented(code.text if level == "llvm" else code.assembly)


_TIER_TEXTS = {"now": "before the run", "behind": "in the background", "none": "not compiled"}


def recompilation_lines(record: FunctionRecord) -> Iterator[str]:
    """Yield the blocks without a plan, the guards that failed, and what was compiled."""
    yield f"== recompilations: {len(record.compilations)}"
    for c in record.compilations:
        tier = _TIER_TEXTS.get(c.tier, c.tier)
        yield (f"   {c.line.place}  {c.guard}  ({tier}: {c.plans} plans, {c.compiled} compiled, "
               f"{c.reused} found, {duration(c.seconds)})")


def cut_lines(cuts: tuple[CutRecord, ...]) -> Iterator[str]:
    """Yield the first places where long blocks were split."""
    if not cuts:
        return
    most = max(cut.operations for cut in cuts)
    yield (f"== cut: {count_text(len(cuts), 'place')}, after at most {count_text(most, 'operation')}; "
           "planning longer blocks takes too long")
    width = max(len(cut.line.place) for cut in cuts[:MAX_LINES])
    for cut in cuts[:MAX_LINES]:
        text = f"  | {cut.line.text}" if cut.line.text else ""
        yield f"   after {cut.line.place:<{width}}  {count_text(cut.count, 'time')}{text}"
    if len(cuts) > MAX_LINES:
        yield f"   and {len(cuts) - MAX_LINES} more"


# --------------------------------------------------------------------------- words


def _group(stage: StageRecord) -> str:
    return stage.name.partition(".")[0]


def _indented(text: str) -> Iterator[str]:
    for row in text.rstrip("\n").split("\n"):
        yield f"   {row}".rstrip()
