"""Timed runs as a timeline in the Trace Event format, for ui.perfetto.dev and chrome://tracing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from jitla.explanations.records import (
    FunctionRecord,
    ProgramRecord,
    TimedRunRecord,
)

__all__ = ["timeline"]

MICRO = 1e6
PROCESS = 1


def timeline(record: FunctionRecord) -> str:
    """Return the timeline as JSON: calls, programs with their steps, compilations, calls of NumPy."""
    events = [*_events(record)]
    begun = min((e["ts"] for e in events), default=0.0)
    threads = {t: at for at, t in enumerate(dict.fromkeys(e["tid"] for e in events), 1)}
    for event in events:
        event["ts"] = round(event["ts"] - begun, 3)
        event["tid"] = threads[event["tid"]]
    names = [{"ph": "M", "name": "process_name", "pid": PROCESS, "tid": 0, "args": {"name": record.name}}]
    return json.dumps({"traceEvents": [*names, *events], "displayTimeUnit": "ms"})


def _events(record: FunctionRecord) -> Iterator[dict[str, Any]]:
    main = next((lap.thread for p in record.programs for lap in p.laps), 0)
    if record.call is not None:
        yield _slice(record.name, "call", record.call.begun, record.call.seconds, main)
        for moment in record.call.moments:
            yield _slice(moment.name, "numpy", moment.begun, moment.seconds, moment.thread)
    for c in record.compilations:
        if c.seconds:
            thread = main if c.tier == "now" else -1
            yield _slice(f"compile {c.line.place}", "compile", c.ended - c.seconds, c.seconds, thread,
                         guard=c.guard, plans=c.plans, kernels=c.compiled)
    for program in record.programs:
        for lap in program.laps:
            yield from _lap(program, lap)


def _lap(program: ProgramRecord, lap: TimedRunRecord) -> Iterator[dict[str, Any]]:
    yield _slice(program.name, "program", lap.begun, lap.whole, lap.thread)
    at = lap.begun
    for (name, step), seconds in zip(program.named(), lap.seconds, strict=True):
        lines = dict.fromkeys(c.line.place for c in step.covers if c.line is not None)
        yield _slice(f"{name} {step.title}", step.kind, at, seconds, lap.thread,
                     lines=" ".join(lines), bytes=step.nbytes)
        at += seconds


def _slice(name: str, kind: str, begun: float, seconds: float, thread: int, **facts: Any) -> dict[str, Any]:
    return {"ph": "X", "name": name, "cat": kind, "ts": begun * MICRO, "dur": round(seconds * MICRO, 3),
            "pid": PROCESS, "tid": thread, "args": facts}
