"""Renderings of explanations: as text by level of detail, as an HTML page, and as a timeline of timed runs.

The page is one self-contained file without scripts, for light and dark themes. The timeline is in the Trace
Event format, for ui.perfetto.dev and chrome://tracing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import groupby
from typing import Any

from jitla.explanations.advice import advice
from jitla.explanations.graph import svg
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
    TimedRunRecord,
    bytes_text,
    count_text,
    duration,
    runner_up_line,
    search_lines,
    summary_line,
)

__all__ = [
    "CODE_LEVELS", "LEVELS", "MAX_LINES", "bandwidth_text", "counters", "covered_lines",
    "cut_lines", "document", "format_table", "fragment", "predicted_seconds", "preformatted",
    "program_lines", "recompilation_lines", "runs_text", "runtime_lines", "runtime_table", "stage_levels",
    "timeline",
]


# --------------------------------------------------------------------------- text


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


#: Levels that every explanation has; other compilation stages have a level of their name, too.
LEVELS = ("plan", "trace", "hops", "rewrites", "kernels", "loops", "cost", "llvm", "asm", "recompilations",
          "runtime", "all")
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


# --------------------------------------------------------------------------- HTML


MAX_LEVEL_CHARACTERS = 200_000
MAX_STEP_ROWS = 100  # of a program

STYLE = """
.jitla { font: 14px/1.45 system-ui, sans-serif; color: #1b1b1f; background: #ffffff; padding: 12px 16px; }
.jitla h3 { margin: 4px 0 8px; font-size: 16px; } .jitla h4 { margin: 14px 0 4px; font-size: 14px; }
.jitla code, .jitla pre { font: 12px/1.4 ui-monospace, monospace; }
.jitla pre { overflow-x: auto; background: #f4f4f6; padding: 8px; border-radius: 6px; }
.jitla table { border-collapse: collapse; } .jitla .muted { color: #66666e; }
.jitla th, .jitla td { text-align: left; padding: 2px 12px 2px 0; vertical-align: top;
  background: transparent; color: inherit; }
.jitla .program { display: flex; flex-wrap: wrap; gap: 8px 24px; align-items: flex-start; }
.jitla .steps { flex: 1 1 360px; }
.jitla .steps td:nth-child(n+3):nth-child(-n+5) { white-space: nowrap; }
.jitla .drawing { overflow-x: auto; max-width: 100%; } .jitla ul { margin: 4px 0; padding-left: 20px; }
.jitla summary { cursor: pointer; margin: 6px 0; }
@media (prefers-color-scheme: dark) {
  .jitla { color: #e6e6ea; background: #17171b; } .jitla pre { background: #232329; }
  .jitla .muted { color: #a0a0aa; } }
""".strip()


def document(record: FunctionRecord, texts: Mapping[str, str]) -> str:
    """Return a complete HTML document."""
    return ("<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\">"
            f"<title>{escape(record.name)}</title>"
            "<style>:root { color-scheme: light dark; } body { margin: 0; }</style></head>\n"
            f"<body>\n{fragment(record, texts)}</body>\n</html>\n")


def fragment(record: FunctionRecord, texts: Mapping[str, str]) -> str:
    """Return the part that a notebook shows: drawings, steps, and the texts of all levels, folded."""
    rows = [f"<style>{STYLE}</style>", '<div class="jitla">',
            f"<h3><code>{escape(record.name)}</code> <span class=\"muted\">{escape(record.place)}"
            "</span></h3>"]
    if record.remark:
        rows.append(f"<p>{escape(record.remark)}</p>")
    for number, program in enumerate(record.programs, 1):
        rows += _html_program(program, number, opened=number == 1)
    if record.call is not None and record.call.stored:
        rows += ["<h4>sparse results</h4><ul>",
                 *(f"<li>{escape(result.text)}</li>" for result in record.call.stored), "</ul>"]
    rows += _html_fallbacks(record)
    suggestions = advice(record)
    if suggestions:
        items = (f"<li>{escape(text)}</li>" for text in suggestions)
        rows += ["<h4>for more speed</h4><ul>", *items, "</ul>"]
    rows += [f"<details><summary>{escape(level)}</summary>"
             f"<pre>{escape(_truncate(text, level))}</pre></details>"
             for level, text in texts.items()]
    return "\n".join([*rows, "</div>"]) + "\n"


def _truncate(text: str, level: str) -> str:
    """Return the leading lines of `text` that fit `MAX_LEVEL_CHARACTERS`."""
    if len(text) <= MAX_LEVEL_CHARACTERS:
        return text
    end = text.rindex("\n", 0, MAX_LEVEL_CHARACTERS) + 1
    return text[:end] + f"... print(e.at({level!r})) shows all of it\n"


def counters(values: Mapping[str, str]) -> str:
    """Return a table of names and values; zeros are folded."""
    def table(some: Mapping[str, str]) -> str:
        return "<table>" + "".join(
            f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>" for name, value in some.items()
        ) + "</table>"

    used = {name: value for name, value in values.items() if value != "0"}
    unused = {name: value for name, value in values.items() if value == "0"}
    return (f"<style>{STYLE}</style>\n<div class=\"jitla\">{table(used)}"
            f"<details><summary>0</summary>{table(unused)}</details></div>\n")


def preformatted(title: str, text: str) -> str:
    """Return `text` as a preformatted HTML block with a title."""
    return (f"<style>{STYLE}</style>\n<div class=\"jitla\"><h3>{escape(title)}</h3>\n"
            f"<pre>{escape(text)}</pre></div>\n")


def _html_program(program: ProgramRecord, number: int, opened: bool) -> Iterator[str]:
    predicted = f", predicted {duration(program.cost.seconds)}" if program.cost else ""
    predicted += f", measured {duration(program.seconds)}" if program.laps else ""
    yield f"<details{' open' if opened else ''}><summary>program {number}: {escape(program.name)} "
    yield (f'<span class="muted">{runs_text(program)}, {count_text(program.kernels, "kernel")}, '
           f'{count_text(program.calls, "NumPy call")}{predicted}</span></summary>')
    drawing = svg(program.nodes)
    if program.nodes and not drawing:
        drawing = f'<p class="muted">{len(program.nodes)} values are too many to draw</p>'
    yield f'<div class="program"><div class="drawing">{drawing}</div>'
    titles = ("step", "what", "predicted", "measured", "bytes", "lines")
    yield f'<div class="steps"><table><tr>{"".join(f"<th>{title}</th>" for title in titles)}</tr>'
    for at, (name, step) in enumerate(program.named()):
        if at == MAX_STEP_ROWS:
            yield f'<tr><td></td><td class="muted">and {len(program.steps) - MAX_STEP_ROWS} more</td></tr>'
            break
        seconds = program.cost.costs[at][-1] if program.cost else 0.0
        yield (f"<tr><td>{name}</td><td>{escape(step.title)}{_html_reason(step)}{_html_nonzeros(step)}</td>"
               f"<td>{duration(seconds) if seconds else ''}</td>"
               f"<td>{duration(step.seconds) if step.seconds else ''}</td>"
               f"<td>{bytes_text(step.nbytes) if step.nbytes else ''}</td><td>{_html_lines(step)}</td></tr>")
    yield "</table>"
    runner_up = runner_up_line(program.cost) if program.cost else ""
    notes = [*([runner_up] if runner_up else []), *(apart.text for apart in program.apart)]
    if notes:
        yield f'<ul class="muted">{"".join(f"<li>{escape(text)}</li>" for text in notes)}</ul>'
    yield "</div></div></details>"


def _html_nonzeros(step: StepRecord) -> str:
    return f' <span class="muted">{step.nonzeros}</span>' if step.nonzeros else ""


def _html_reason(step: StepRecord) -> str:
    return f' <span class="muted">({escape(step.reason)})</span>' if step.reason else ""


def _html_lines(step: StepRecord) -> str:
    lines = list(dict.fromkeys(c.line for c in step.covers if c.line is not None))
    more = f'<span class="muted">and {len(lines) - MAX_LINES} more</span>'
    return "<br>".join([*map(_html_source, lines[:MAX_LINES]), *([more] if len(lines) > MAX_LINES else [])])


def _html_source(line: SourceLine) -> str:
    return f'<span class="muted">{escape(line.place)}</span> <code>{escape(line.text)}</code>'


def _html_fallbacks(record: FunctionRecord) -> Iterator[str]:
    yield "<h4>handed to NumPy</h4>"
    if not record.fallbacks:
        yield '<p class="muted">nothing</p>'
        return
    yield "<table><tr><th>times</th><th>function</th><th>took</th><th>line</th><th>why</th></tr>"
    for f in sorted(record.fallbacks, key=lambda f: (-f.seconds, f.function, f.line.place)):
        yield (f"<tr><td>{f.count}</td><td><code>{escape(f.function)}</code></td>"
               f"<td>{duration(f.seconds)}</td><td>{_html_source(f.line)}</td><td>{escape(f.reason)}</td></tr>")
    yield "</table>"


# --------------------------------------------------------------------------- timeline


MICROSECONDS = 1e6
PROCESS_ID = 1


def timeline(record: FunctionRecord) -> str:
    """Return the timeline as JSON: calls, programs with their steps, compilations, calls of NumPy."""
    events = [*_trace_events(record)]
    begun = min((e["ts"] for e in events), default=0.0)
    threads = {t: at for at, t in enumerate(dict.fromkeys(e["tid"] for e in events), 1)}
    for event in events:
        event["ts"] = round(event["ts"] - begun, 3)
        event["tid"] = threads[event["tid"]]
    names = [{"ph": "M", "name": "process_name", "pid": PROCESS_ID, "tid": 0, "args": {"name": record.name}}]
    return json.dumps({"traceEvents": [*names, *events], "displayTimeUnit": "ms"})


def _trace_events(record: FunctionRecord) -> Iterator[dict[str, Any]]:
    main = next((lap.thread for p in record.programs for lap in p.laps), 0)
    if record.call is not None:
        yield _trace_slice(record.name, "call", record.call.begun, record.call.seconds, main)
        for moment in record.call.moments:
            yield _trace_slice(moment.name, "numpy", moment.begun, moment.seconds, moment.thread)
    for c in record.compilations:
        if c.seconds:
            thread = main if c.tier == "now" else -1
            yield _trace_slice(f"compile {c.line.place}", "compile", c.ended - c.seconds, c.seconds, thread,
                         guard=c.guard, plans=c.plans, kernels=c.compiled)
    for program in record.programs:
        for lap in program.laps:
            yield from _run_slices(program, lap)


def _run_slices(program: ProgramRecord, lap: TimedRunRecord) -> Iterator[dict[str, Any]]:
    yield _trace_slice(program.name, "program", lap.begun, lap.whole, lap.thread)
    at = lap.begun
    for (name, step), seconds in zip(program.named(), lap.seconds, strict=True):
        lines = dict.fromkeys(c.line.place for c in step.covers if c.line is not None)
        yield _trace_slice(f"{name} {step.title}", step.kind, at, seconds, lap.thread,
                     lines=" ".join(lines), bytes=step.nbytes)
        at += seconds


def _trace_slice(
    name: str, kind: str, begun: float, seconds: float, thread: int, **facts: Any,
) -> dict[str, Any]:
    return {"ph": "X", "name": name, "cat": kind, "ts": begun * MICROSECONDS,
            "dur": round(seconds * MICROSECONDS, 3), "pid": PROCESS_ID, "tid": thread, "args": facts}
