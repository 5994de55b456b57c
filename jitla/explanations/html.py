"""Explanations as an HTML page: one self-contained file without scripts, for light and dark themes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape

from jitla.explanations.advice import advice
from jitla.explanations.graph import svg
from jitla.explanations.records import (
    FunctionRecord,
    ProgramRecord,
    SourceLine,
    StepRecord,
    bytes_text,
    duration,
    runner_up_line,
)
from jitla.explanations.text import (
    MAX_LINES,
    count_text,
    runs_text,
)

__all__ = ["counters", "document", "fragment", "preformatted"]

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
        rows += _program(program, number, opened=number == 1)
    if record.call is not None and record.call.stored:
        rows += ["<h4>sparse results</h4><ul>",
                 *(f"<li>{escape(result.text)}</li>" for result in record.call.stored), "</ul>"]
    rows += _fallbacks(record)
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


def _program(program: ProgramRecord, number: int, opened: bool) -> Iterator[str]:
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
        yield (f"<tr><td>{name}</td><td>{escape(step.title)}{_reason(step)}{_nnz(step)}</td>"
               f"<td>{duration(seconds) if seconds else ''}</td>"
               f"<td>{duration(step.seconds) if step.seconds else ''}</td>"
               f"<td>{bytes_text(step.nbytes) if step.nbytes else ''}</td><td>{_lines(step)}</td></tr>")
    yield "</table>"
    runner_up = runner_up_line(program.cost) if program.cost else ""
    notes = [*([runner_up] if runner_up else []), *(apart.text for apart in program.apart)]
    if notes:
        yield f'<ul class="muted">{"".join(f"<li>{escape(text)}</li>" for text in notes)}</ul>'
    yield "</div></div></details>"


def _nnz(step: StepRecord) -> str:
    return f' <span class="muted">{step.nonzeros}</span>' if step.nonzeros else ""


def _reason(step: StepRecord) -> str:
    return f' <span class="muted">({escape(step.reason)})</span>' if step.reason else ""


def _lines(step: StepRecord) -> str:
    lines = list(dict.fromkeys(c.line for c in step.covers if c.line is not None))
    more = f'<span class="muted">and {len(lines) - MAX_LINES} more</span>'
    return "<br>".join([*map(_source, lines[:MAX_LINES]), *([more] if len(lines) > MAX_LINES else [])])


def _source(line: SourceLine) -> str:
    return f'<span class="muted">{escape(line.place)}</span> <code>{escape(line.text)}</code>'


def _fallbacks(record: FunctionRecord) -> Iterator[str]:
    yield "<h4>handed to NumPy</h4>"
    if not record.fallbacks:
        yield '<p class="muted">nothing</p>'
        return
    yield "<table><tr><th>times</th><th>function</th><th>took</th><th>line</th><th>why</th></tr>"
    for f in sorted(record.fallbacks, key=lambda f: (-f.seconds, f.function, f.line.place)):
        yield (f"<tr><td>{f.count}</td><td><code>{escape(f.function)}</code></td>"
               f"<td>{duration(f.seconds)}</td><td>{_source(f.line)}</td><td>{escape(f.reason)}</td></tr>")
    yield "</table>"
