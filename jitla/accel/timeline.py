"""A simulated run as a picture: SVG to look at, and a trace for Perfetto or chrome://tracing.

Knows: how spans of time are drawn. Must not know: how they came about.
Receives a `Timing`; returns text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

from jitla.accel.isa import Queue, Unit, pops, pushes, unit_of
from jitla.accel.text import show
from jitla.accel.timing import Timing, kind_of

WIDTH, ROW, LEFT, TOP = 1000, 34, 70, 26  # of the picture, in pixels
LEGEND = 20
COLOURS = {"load inp": "#4c8bc0", "load wgt": "#7fb2d9", "load uop": "#b9a3d0", "load acc": "#8f78b8",
           "load acc8": "#8f78b8", "gemm": "#3f9b63", "reset": "#a5d6b4", "alu": "#e0a33a",
           "store out": "#c7584f", "wait": "#bbbbbb", "finish": "#444444"}
MERGE = 0.4  # pixels: spans of one kind that are closer are drawn as one


class Span(NamedTuple):
    """Something a unit does from cycle `begin` to `end`."""

    unit: Unit
    begin: int
    end: int
    kind: str


def _spans(timing: Timing, first: int, last: int) -> Iterator[Span]:
    """Spans between two cycles, cut to them, unit by unit."""
    for unit in Unit:
        for at in timing.of_unit(unit).tolist():
            begin, end = max(int(timing.begin[at]), first), min(int(timing.end[at]), last)
            if begin < end:
                yield Span(unit, begin, end, kind_of(timing.program.instructions[at]))


def _merged(spans: Iterator[Span], gap: float) -> Iterator[Span]:
    """Neighbours of one unit and kind as one, so that long runs stay small pictures."""
    current: Span | None = None
    for span in spans:
        if current is None:
            current = span
        elif (span.unit, span.kind) == (current.unit, current.kind) and span.begin - current.end <= gap:
            current = current._replace(end=span.end)
        else:
            yield current
            current = span
    if current is not None:
        yield current


def svg(timing: Timing, first: int = 0, last: int | None = None) -> str:
    """Return the picture of the cycles from `first` to `last`: a row for each unit."""
    stop = max(timing.cycles if last is None else min(last, timing.cycles), first + 1)
    scale = WIDTH / (stop - first)
    height = TOP + ROW * len(Unit) + 2 * LEGEND
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 10}" height="{height}" '
             'font-family="sans-serif" font-size="11">',
             f'<text x="{LEFT}" y="14">{escape(_title(timing, first, stop))}</text>']
    for unit in Unit:
        y = TOP + ROW * unit
        parts.append(f'<text x="4" y="{y + ROW / 2 + 4:g}">{unit.name.lower()}</text>')
        parts.append(f'<rect x="{LEFT}" y="{y + 3}" width="{WIDTH}" height="{ROW - 6}" fill="#f4f4f4"/>')
    kinds: dict[str, None] = {}
    for span in _merged(_spans(timing, first, stop), MERGE / scale):
        kinds[span.kind] = None
        parts.append(_bar(span, first, scale))
    parts += [*_axis(first, stop, scale), *_legend(list(kinds)), "</svg>"]
    return "\n".join(parts) + "\n"


def _title(timing: Timing, first: int, last: int) -> str:
    return (f"{timing.program.spec.name}: cycles {first} to {last} of {timing.cycles} simulated, "
            f"array {timing.utilisation:.1%} used")


def _bar(span: Span, first: int, scale: float) -> str:
    x, width = LEFT + (span.begin - first) * scale, max((span.end - span.begin) * scale, 0.3)
    return (f'<rect x="{x:.2f}" y="{TOP + ROW * span.unit + 3}" width="{width:.2f}" height="{ROW - 6}" '
            f'fill="{COLOURS[span.kind]}"><title>{span.kind}, cycles {span.begin} to {span.end}</title>'
            '</rect>')


def _axis(first: int, last: int, scale: float) -> Iterator[str]:
    step = 10 ** (len(str(last - first)) - 1)
    y = TOP + ROW * len(Unit) + 12
    for tick in range(-(-first // step) * step, last + 1, step):
        yield f'<text x="{LEFT + (tick - first) * scale:.2f}" y="{y}" fill="#666666">{tick}</text>'


def _legend(kinds: list[str]) -> Iterator[str]:
    y = TOP + ROW * len(Unit) + LEGEND
    for place, kind in enumerate(kinds):
        x = LEFT + place * 95
        yield f'<rect x="{x}" y="{y}" width="12" height="12" fill="{COLOURS[kind]}"/>'
        yield f'<text x="{x + 16}" y="{y + 10}">{kind}</text>'


def perfetto(timing: Timing) -> str:
    """Return the trace in JSON: a thread for each unit, an arrow for each token; a cycle is a microsecond."""
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": timing.program.spec.name}}]
    for unit in Unit:
        events.append({"ph": "M", "name": "thread_name", "pid": 1, "tid": int(unit),
                       "args": {"name": unit.name.lower()}})
        for at in timing.of_unit(unit).tolist():
            events.append(_slice(timing, unit, at))
    events += _arrows(timing)
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms",
                       "otherData": {"unit": "a microsecond here is a simulated cycle"}})


def _slice(timing: Timing, unit: Unit, at: int) -> dict[str, Any]:
    instruction, begin = timing.program.instructions[at], int(timing.begin[at])
    return {"ph": "X", "name": kind_of(instruction), "pid": 1, "tid": int(unit), "ts": begin,
            "dur": int(timing.end[at]) - begin,
            "args": {"at": at, "text": " ".join(show(timing.program.spec, instruction).split())}}


def _arrows(timing: Timing) -> Iterator[dict[str, Any]]:
    """From whom a token was given to whom it was taken by: the n-th to the n-th."""
    if timing.serial:
        return
    instructions = timing.program.instructions
    units = [int(unit_of(i)) for i in instructions]
    for queue in Queue:
        given = [at for at, i in enumerate(instructions) if queue in pushes(i)]
        taken = [at for at, i in enumerate(instructions) if queue in pops(i)]
        for number, (giver, taker) in enumerate(zip(given, taken, strict=False)):
            common = {"name": queue.name.lower(), "cat": "token", "pid": 1, "id": f"{queue.name}{number}"}
            yield {**common, "ph": "s", "tid": units[giver], "ts": max(int(timing.end[giver]) - 1, 0)}
            yield {**common, "ph": "f", "bp": "e", "tid": units[taker], "ts": int(timing.begin[taker])}
