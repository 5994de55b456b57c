"""Views of a simulated run: SVG, a trace for Perfetto or chrome://tracing, and a text timeline."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

import numpy as np

from jitla.accel.isa import (
    Queue,
    Unit,
    pops,
    pushes,
    unit_of,
)
from jitla.accel.program import show
from jitla.accel.timing_sim import (
    ProgramTiming,
    activity_of,
)

WIDTH, ROW_HEIGHT, LEFT, TOP = 1000, 34, 70, 26  # of the picture, in pixels
LEGEND = 20
MIN_TICKS = 4  # minimum number, on the time axis
FETCH_ROW = 0
ROWS = ("fetch", *(unit.name.lower() for unit in Unit))
COLOURS = {"fetch": "#d8c27a", "load inp": "#4c8bc0", "load wgt": "#7fb2d9", "load uop": "#b9a3d0",
           "load acc": "#8f78b8", "load acc8": "#8f78b8", "gemm": "#3f9b63", "reset": "#a5d6b4",
           "alu": "#e0a33a", "store out": "#c7584f", "wait": "#bbbbbb", "finish": "#444444"}
MERGE_PIXELS = 0.4  # gap below which spans of one kind are drawn as one


class Span(NamedTuple):
    """An activity of the unit in `row` from cycle `begin` to `end`."""

    row: int
    begin: int
    end: int
    kind: str


def _spans(timing: ProgramTiming, first: int, last: int) -> Iterator[Span]:
    """Yield the spans between two cycles, clipped, unit by unit."""
    spans = [Span(FETCH_ROW, begin, end, "fetch") for begin, end in timing.fetches]
    for unit in Unit:
        spans += [Span(FETCH_ROW + 1 + unit, int(timing.begin[at]), int(timing.end[at]),
                       activity_of(timing.program.instructions[at])) for at in timing.of_unit(unit).tolist()]
    for span in spans:
        if span.begin < last and span.end > first:
            yield span._replace(begin=max(span.begin, first), end=min(span.end, last))


def _merge_spans(spans: Iterator[Span], gap: float) -> Iterator[Span]:
    """Merge adjacent spans of one unit and kind, to keep pictures of long runs small."""
    current: Span | None = None
    for span in spans:
        if current is None:
            current = span
        elif (span.row, span.kind) == (current.row, current.kind) and span.begin - current.end <= gap:
            current = current._replace(end=span.end)
        else:
            yield current
            current = span
    if current is not None:
        yield current


def svg(timing: ProgramTiming, first: int = 0, last: int | None = None) -> str:
    """Return an SVG picture of the cycles from `first` to `last`: a row for fetch and each unit."""
    stop = max(timing.cycles if last is None else min(last, timing.cycles), first + 1)
    scale = WIDTH / (stop - first)
    height = TOP + ROW_HEIGHT * len(ROWS) + 2 * LEGEND
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 10}" height="{height}" '
             'font-family="sans-serif" font-size="11">',
             f'<text x="{LEFT}" y="14">{escape(_title(timing, first, stop))}</text>']
    for row, name in enumerate(ROWS):
        y = TOP + ROW_HEIGHT * row
        parts.append(f'<text x="4" y="{y + ROW_HEIGHT / 2 + 4:g}">{name}</text>')
        parts.append(f'<rect x="{LEFT}" y="{y + 3}" width="{WIDTH}" height="{ROW_HEIGHT - 6}" '
                     'fill="#f4f4f4"/>')
    kinds: dict[str, None] = {}
    for span in _merge_spans(_spans(timing, first, stop), MERGE_PIXELS / scale):
        kinds[span.kind] = None
        parts.append(_bar(span, first, scale))
    parts += [*_axis(first, stop, scale), *_legend(list(kinds)), "</svg>"]
    return "\n".join(parts) + "\n"


def _title(timing: ProgramTiming, first: int, last: int) -> str:
    return (f"{timing.program.spec.name}: cycles {first} to {last} of {timing.cycles} simulated, "
            f"array {timing.utilisation:.1%} used")


def _bar(span: Span, first: int, scale: float) -> str:
    x, width = LEFT + (span.begin - first) * scale, max((span.end - span.begin) * scale, 0.3)
    return (f'<rect x="{x:.2f}" y="{TOP + ROW_HEIGHT * span.row + 3}" width="{width:.2f}" '
            f'height="{ROW_HEIGHT - 6}" '
            f'fill="{COLOURS[span.kind]}"><title>{span.kind}, cycles {span.begin} to {span.end}</title>'
            '</rect>')


def _axis(first: int, last: int, scale: float) -> Iterator[str]:
    step = 10 ** (len(str(last - first)) - 1)
    if (last - first) // step < MIN_TICKS:
        step = max(step // 5, 1)
    y = TOP + ROW_HEIGHT * len(ROWS) + 12
    for tick in range(-(-first // step) * step, last + 1, step):
        yield f'<text x="{LEFT + (tick - first) * scale:.2f}" y="{y}" fill="#666666">{tick}</text>'


def _legend(kinds: list[str]) -> Iterator[str]:
    y = TOP + ROW_HEIGHT * len(ROWS) + LEGEND
    for place, kind in enumerate(kinds):
        x = LEFT + place * 95
        yield f'<rect x="{x}" y="{y}" width="12" height="12" fill="{COLOURS[kind]}"/>'
        yield f'<text x="{x + 16}" y="{y + 10}">{kind}</text>'


def perfetto(timing: ProgramTiming) -> str:
    """Return a JSON trace: a thread per unit, an arrow per token; a cycle is a microsecond."""
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": timing.program.spec.name}}]
    events += [{"ph": "M", "name": "thread_name", "pid": 1, "tid": row, "args": {"name": name}}
               for row, name in enumerate(ROWS)]
    events += [{"ph": "X", "name": "fetch", "pid": 1, "tid": FETCH_ROW, "ts": begin, "dur": end - begin}
               for begin, end in timing.fetches]
    for unit in Unit:
        events += [_slice(timing, unit, at) for at in timing.of_unit(unit).tolist()]
    events += _arrows(timing)
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms",
                       "otherData": {"unit": "a microsecond here is a simulated cycle"}})


def _slice(timing: ProgramTiming, unit: Unit, at: int) -> dict[str, Any]:
    instruction, begin = timing.program.instructions[at], int(timing.begin[at])
    return {"ph": "X", "name": activity_of(instruction), "pid": 1, "tid": FETCH_ROW + 1 + unit, "ts": begin,
            "dur": int(timing.end[at]) - begin,
            "args": {"at": at, "text": " ".join(show(timing.program.spec, instruction).split())}}


def _arrows(timing: ProgramTiming) -> Iterator[dict[str, Any]]:
    """Yield arrows from the n-th push of a token queue to its n-th pop."""
    if timing.serial:
        return
    instructions = timing.program.instructions
    rows = [FETCH_ROW + 1 + unit_of(i) for i in instructions]
    for queue in Queue:
        pushed = [at for at, i in enumerate(instructions) if queue in pushes(i)]
        popped = [at for at, i in enumerate(instructions) if queue in pops(i)]
        for number, (producer, consumer) in enumerate(zip(pushed, popped, strict=False)):
            common = {"name": queue.name.lower(), "cat": "token", "pid": 1, "id": f"{queue.name}{number}"}
            yield {**common, "ph": "s", "tid": rows[producer], "ts": max(int(timing.end[producer]) - 1, 0)}
            yield {**common, "ph": "f", "bp": "e", "tid": rows[consumer], "ts": int(timing.begin[consumer])}


def text_timeline(timing: ProgramTiming, width: int = 64) -> list[str]:
    """Return a text timeline, a line per unit: busy most of a cell (#), some of it (+), or idle."""
    lines = []
    step = max(timing.cycles, 1) / width
    for unit in Unit:
        busy = np.zeros(width)
        for at in timing.of_unit(unit):
            begin, end = timing.begin[at] / step, timing.end[at] / step
            cells = np.arange(width)
            busy += np.clip(np.minimum(cells + 1, end) - np.maximum(cells, begin), 0, None)
        marks = "".join("#" if b > 0.5 else "+" if b > 0.02 else " " for b in busy)
        lines.append(f"{unit.name.lower():8}|{marks}|")
    return lines
