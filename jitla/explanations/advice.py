"""Advice on making a function faster, derived from its records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from jitla.explanations.records import (
    COLD_NOTE,
    SCALAR_LOOP,
    FallbackRecord,
    FunctionRecord,
    ProgramRecord,
    duration,
)

__all__ = ["advice"]

#: Blocks with at least this many runs, each below this time, are reported: Python takes as long around them.
MIN_BRIEF_RUNS, MAX_BRIEF_SECONDS = 100, 20e-6
MAX_ADVICE = 6
MIN_GUARD_CHANGES = 8  # compilations because of the same guard
MIN_TIME_SHARE = 0.01  # share of the time of all calls from which on a fallback is reported
DOMINANT_TIME_SHARE = 0.5  # share of a program's time from which on a matrix product is reported
#: Endings of notes that already say all there is to do.
FINAL_NOTES = ("generator", "not a Python function", "nested too deep", "SciPy itself", "disable is on")
#: Advice on a fallback, by a phrase of its reason.
FALLBACK_ADVICE = (
    ("whole calls", "is faster in NumPy: pass more data at a time, or decorate the caller"),
    ("not in the op table", "ends its block: docs/supported.md lists what can stay in one"),
    ("not in this form", "is traced with other arguments or dtypes: see docs/supported.md"),
)
#: Advice against repeated compilation, by guard.
GUARD_ADVICE = {
    "dtype": "pass arrays of the same dtype", "layout": "pass arrays with the same memory order",
    "rank": "pass arrays with the same number of axes", "scalar kind": "pass scalars of the same type",
    "scalar value": "bind numbers that change from call to call to variables",
    "options": "do not change the options", "attribute": "do not change arguments such as axis",
}


def advice(record: FunctionRecord) -> tuple[str, ...]:
    """Return suggestions for more speed, most expensive problem first."""
    candidates = [*_candidates(record)]
    return tuple(text for _, text in sorted(candidates, key=lambda candidate: -candidate[0])[:MAX_ADVICE])


def _candidates(record: FunctionRecord) -> Iterator[tuple[float, str]]:
    """Yield suggestions with the seconds they concern, as far as known."""
    text = _untraced_advice(record)
    if text:
        yield 1.0, text
    min_seconds = MIN_TIME_SHARE * _call_seconds(record)
    for f in record.fallbacks:
        if f.seconds >= min_seconds and f.function != SCALAR_LOOP:  # loops are reported below
            yield f.seconds, _fallback_advice(f, record.turns)
    for program in record.programs:
        yield from _product_advice(program)
        if program.runs >= MIN_BRIEF_RUNS and 0.0 < program.seconds < MAX_BRIEF_SECONDS:
            yield program.seconds * program.runs, _brief_block_advice(record, program)
    for nest in record.nests:
        if nest.state == "refused":
            yield nest.seconds, (f"{nest.line.place}: Python runs the loop ({nest.reason}); "
                                 "see docs/loops.md for what is compiled")
        elif nest.state == "cold":
            yield nest.seconds, (
                f"{nest.line.place}: the loop is compiled once Python has spent 2 ms in it: "
                f"call {record.name} as usual, then explain it")
    if record.waiting:
        yield 0.0, ("NumPy runs blocks until they have taken as long as compiling does: "
                    "f.compile(...) compiles ahead, compile=\"sync\" waits")
    changes = Counter(c.guard.partition(":")[0].partition(" of ")[0] for c in record.compilations)
    for guard, count in changes.items():
        if count >= MIN_GUARD_CHANGES and guard in GUARD_ADVICE:
            yield 0.0, f"recompiled {count} times because of another {guard}: {GUARD_ADVICE[guard]}"
    if record.failures:
        yield 0.0, f"a block could not be compiled ({record.failures[0]}): please report it"
    if record.assumed and record.programs:
        yield 0.0, "times are predicted for an assumed machine: python -m jitla calibrate measures this one"


def _call_seconds(record: FunctionRecord) -> float:
    """Return the seconds spent in calls, as far as known, without compilation."""
    parts = sum(p.seconds * p.runs for p in record.programs) + sum(x.seconds for x in record.loops)
    parts += sum(f.seconds for f in record.fallbacks) + sum(n.seconds + n.compiled for n in record.nests)
    if record.call is None or all(n.state != "cold" for n in record.nests):
        return parts
    # includes loops that Python ran
    outside_compilation = record.call.seconds - sum(c.seconds for c in record.compilations)
    return max(parts, outside_compilation)


def _untraced_advice(record: FunctionRecord) -> str:
    """Return advice if calls are not traced, or tracing recorded nothing; empty if there is no problem."""
    note = record.note
    cold = note.startswith(COLD_NOTE)
    if record.given and cold and record.programs:
        return (f"the size of a {record.given} is unknown, so that calls with one are traced late: "
                "pass arrays instead")
    if record.given and (cold or not note and not record.programs):
        return (f"a {record.given} does its own arithmetic: use its arrays, as in table[\"x\"].to_numpy(), "
                "inside of the function or as arguments")
    if not note and record.turns and record.calls and record.remark:
        return "Python runs its loops: see docs/loops.md for what is compiled"
    if not note or note.endswith(FINAL_NOTES):
        return ""
    if "source" in note:
        return "the function's source was not found: define it in a file, or in a cell of a notebook"
    if "looks at frames" in note or "frames, by" in note or "frame, by" in note:
        return "functions that read frames or their local variables are not compiled: do that outside"
    if "compile=" in note:
        return "compile=\"off\" runs plain NumPy: leave it out"
    if cold:
        return ("calls are traced once they have taken some hundredths of a second in total: "
                "pass more data at a time, or call it more often; compile=\"sync\" traces every call")
    return "calls are too short to be traced: pass more data at a time, or decorate the caller"


def _fallback_advice(f: FallbackRecord, has_loops: bool) -> str:
    """Return the advice on one fallback."""
    default = "is run by NumPy: see docs/supported.md"
    remedy = next((text for word, text in FALLBACK_ADVICE if word in f.reason), default)
    if has_loops and f.count > 1 and "op table" in f.reason:
        remedy += "; or move it out of the loop"
    return f"{f.line.place}: {f.function} took {duration(f.seconds)} and {remedy}"


def _brief_block_advice(record: FunctionRecord, program: ProgramRecord) -> str:
    """Return the advice on a short block that runs often."""
    covered = (c.line for step in program.steps for c in step.covers if c.line is not None)
    return (f"{next(covered, record.line).place}: a block of {duration(program.seconds)} ran {program.runs} "
            "times, and the Python code around it takes as long: one operation on all the data, such as on "
            "the rows of a matrix, is faster")


def _product_advice(program: ProgramRecord) -> Iterator[tuple[float, str]]:
    """Yield the advice on matrix products that dominate a program."""
    for step in program.steps:
        dominant = step.seconds > DOMINANT_TIME_SHARE * program.seconds > 0.0
        if dominant and step.kind == "call" and "matmul" in step.title:
            line = next((f"{c.line.place}: " for c in step.covers if c.line is not None), "")
            yield step.seconds * program.runs, (
                f"{line}{step.title} takes most of the time and runs in BLAS: only fewer or smaller products"
                f"{', or float32,' if 'float64' in step.title else ''} are faster")
