"""What runs of programs took, as text: steps and lines, predicted beside measured; a call as a whole.

Knows: the records it is given and how to lay them out. Must not know: hops, plans, kernels.
Receives records; returns lines of text, the same for the same records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jitla.predictions import bytes_text, duration
from jitla.records import FunctionRecord, ProgramRecord, SourceLine, StepRecord

__all__ = ["aligned", "foreseen", "ran", "rate", "runtime_lines", "runtime_table", "times"]

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
