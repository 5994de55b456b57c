"""What would make a function faster: what stands in the way, where, and what to do about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from jitla.explanations.records import (
    COLD,
    NEST,
    FallbackRecord,
    FunctionRecord,
    ProgramRecord,
    duration,
)

__all__ = ["advice"]

OFTEN, BRIEF = 100, 20e-6  # runs, and seconds of one, of blocks that are hardly worth being begun
MOST = 6  # pieces of advice
CHANGES = 8  # compilations because of one guard, from which on that is worth a word
LITTLE = 0.01  # part of all time up to which a call that is handed to NumPy is not worth a word
MAIN = 0.5  # part of a program's time from which on one call of NumPy matters
# How notes end that say all that can be done.
COMPLETE = ("methods", "generator", "function of Python", "SciPy itself", "disable is on")
#: By the word that a reason has: what can be done about a call that is not traced.
CURES = (
    ("whole calls", "is faster in NumPy: hand it more data at a time, or decorate what calls it"),
    ("not in the op table", "ends its block: docs/supported.md lists what can stay in one"),
    ("not in this form", "is traced with other arguments or dtypes: see docs/supported.md"),
)
#: By guard: what can be done against compiling again and again.
STEADY = {
    "dtype": "hand it arrays of one dtype", "layout": "hand it arrays that lie alike in memory",
    "rank": "hand it arrays of as many axes", "scalar kind": "hand it numbers of one type",
    "scalar value": "bind numbers that differ from call to call to names", "options": "keep the options",
    "attribute": "keep arguments such as axis from changing",
}


def advice(record: FunctionRecord) -> tuple[str, ...]:
    """Return what to change for more speed."""
    found = [*_all(record)]
    return tuple(text for _, text in sorted(found, key=lambda each: -each[0])[:MOST])


def _all(record: FunctionRecord) -> Iterator[tuple[float, str]]:
    """Yield advice with the seconds it is about, as far as these are known."""
    told = _plain(record)
    if told:
        yield 1.0, told
    little = LITTLE * _spent(record)
    for f in record.fallbacks:
        if f.seconds >= little and f.function != NEST:  # the nest itself is told of
            yield f.seconds, _fallback(f, record.turns)
    for program in record.programs:
        yield from _products(program)
        if program.runs >= OFTEN and 0.0 < program.seconds < BRIEF:
            yield program.seconds * program.runs, _brief(record, program)
    for nest in record.nests:
        if nest.state == "refused":
            yield nest.seconds, (f"{nest.line.place}: the loop over elements stays Python's ({nest.reason}); "
                                 "see docs/loops.md for what is compiled")
        elif nest.state == "cold":
            yield nest.seconds, (
                f"{nest.line.place}: the loop over elements is compiled once calls have spent some "
                f"milliseconds in it: call {record.name} as it is used, then explain it")
    if record.waiting:
        yield 0.0, ("blocks are left to NumPy until they have taken as long as compiling does: "
                    "f.compile(...) makes ready, compile=\"sync\" waits")
    changes = Counter(c.guard.partition(":")[0].partition(" of ")[0] for c in record.compilations)
    for guard, count in changes.items():
        if count >= CHANGES and guard in STEADY:
            yield 0.0, f"met without a plan {count} times because of another {guard}: {STEADY[guard]}"
    if record.failures:
        yield 0.0, f"no program could be made of a block ({record.failures[0]}): please report it"
    if record.assumed and record.programs:
        yield 0.0, "times are predicted for an assumed machine: python -m jitla calibrate measures this one"


def _spent(record: FunctionRecord) -> float:
    """Return the seconds that are known to have gone into calls, without compiling."""
    parts = sum(p.seconds * p.runs for p in record.programs) + sum(x.seconds for x in record.loops)
    parts += sum(f.seconds for f in record.fallbacks) + sum(n.seconds + n.compiled for n in record.nests)
    if record.call is None or all(n.state != "cold" for n in record.nests):
        return parts
    rest = record.call.seconds - sum(c.seconds for c in record.compilations)  # Python's, in the nests
    return max(parts, rest)


def _plain(record: FunctionRecord) -> str:
    """Say what to do where calls are not traced, or nothing came of that; nothing where all is well."""
    note = record.note
    cold = note.startswith(COLD)
    if record.given and cold and record.programs:
        return (f"how much a {record.given} holds is not seen, so that calls with one are traced late: "
                "hand the function arrays")
    if record.given and (cold or not note and not record.programs):
        return (f"a {record.given} does its own arithmetic: take its arrays, as in table[\"x\"].to_numpy(), "
                "and work on these, or hand the function these")
    if not note and record.turns and record.calls and record.remark:
        return ("Python does loops over single elements one by one: write them with whole arrays "
                "(np.where, masks), or over indices, for i in range(len(x)): see docs/loops.md")
    if not note or note.endswith(COMPLETE):
        return ""
    if "source" in note:
        return "the function's source was not found: define it in a file, or in a cell of a notebook"
    if "looks at frames" in note or "frames, by" in note or "frame, by" in note:
        return "what reads frames or the function's own variables runs as it is: do that outside of it"
    if "compile=" in note:
        return "compile=\"off\" runs plain NumPy: leave it out"
    if cold:
        return ("calls on few elements, or without loops, are traced once they have taken some time, "
                "two seconds at most: hand it more data at a time; compile=\"sync\" traces every call")
    return "calls are too short to be traced: hand it more data at a time, or decorate what calls it"


def _fallback(f: FallbackRecord, turns: bool) -> str:
    cure = next((text for word, text in CURES if word in f.reason), "is run by NumPy: see docs/supported.md")
    if turns and f.count > 1 and "op table" in f.reason:
        cure += "; or move it out of the loop"
    return f"{f.line.place}: {f.function} took {duration(f.seconds)} and {cure}"


def _brief(record: FunctionRecord, program: ProgramRecord) -> str:
    covered = (c.line for step in program.steps for c in step.covers if c.line is not None)
    return (f"{next(covered, record.line).place}: a block of {duration(program.seconds)} ran {program.runs} "
            "times, as long as Python takes around it: one operation on all of it, such as on rows of a "
            "matrix, takes less")


def _products(program: ProgramRecord) -> Iterator[tuple[float, str]]:
    """Yield what products take that are NumPy's own in any case."""
    for step in program.steps:
        if step.kind == "call" and step.seconds > MAIN * program.seconds > 0.0 and "matmul" in step.title:
            line = next((f"{c.line.place}: " for c in step.covers if c.line is not None), "")
            yield step.seconds * program.runs, (
                f"{line}{step.title} is most of the time and BLAS's own: only fewer or smaller products"
                f"{', or float32,' if 'float64' in step.title else ''} make it faster")
