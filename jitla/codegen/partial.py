"""Partial results of aggregates over everything: where they lie, and how they meet.

Knows: NumPy's order of summation, tables of partial results. Must not know: loops, units, ops of cells.
Receives a `Loop`; returns lines of IR, or values in them.
"""

from __future__ import annotations

from collections.abc import Sequence

from jitla.codegen.layout import Loop, Operand
from jitla.codegen.monoids import COMBINE, identity
from jitla.codegen.scalar import LlvmBuilder
from jitla.codegen.vector import Value

LEAF = 128  # terms NumPy adds with eight accumulators before it halves
STRETCH = 512  # terms that are gathered at once where their order is free


def paired(loop: Loop) -> bool:
    """Tell whether an aggregate is a sum of floats, whose terms meet in NumPy's pairwise tree."""
    return any(o.hop.op.name == "sum" and o.dtype.kind in "fc" for o in loop.aggregates)


def multiple(loop: Loop) -> int:
    """Return of which number of elements the left part of a split is a multiple."""
    return 4 if any(o.dtype.kind == "c" for o in loop.aggregates) else 8


def initial(op: Operand) -> object:
    """Return the value NumPy's reduction starts from, where it shows in the result."""
    start = identity(op.hop.op.name, op.dtype)
    return 0.0 if op.hop.op.name == "sum" else start


def combined(b: LlvmBuilder, op: Operand, x: Value, y: Value) -> Value:
    """Write one step of the aggregate `op` between two partial results."""
    result: Value = getattr(b, COMBINE[op.hop.op.name])(x, y)
    return result


def slots(lines: list[str], name: str, base: str, count: int, size: int) -> list[str]:
    """Write the addresses of `count` slots of `size` bytes from `base` on."""
    for k in range(count):
        lines.append(f"  %{name}{k} = getelementptr i8, ptr {base}, i64 {size * k}")
    return [f"%{name}{k}" for k in range(count)]


def merged(loop: Loop, into: str, left: str, right: str, prefix: str) -> list[str]:
    """Return lines that combine all aggregates at `left` and `right` into `into`."""
    lines: list[str] = []
    b = LlvmBuilder(lines, 1, prefix=prefix)
    n = len(loop.aggregates)
    targets = slots(lines, prefix + "i", into, n, loop.slot)
    lefts = slots(lines, prefix + "l", left, n, loop.slot)
    rights = slots(lines, prefix + "r", right, n, loop.slot)
    for k, op in enumerate(loop.aggregates):
        x, y = b.load(lefts[k], op.dtype), b.load(rights[k], op.dtype)
        b.store(combined(b, op, x, y), targets[k])
    return lines


def finish(loop: Loop, result: str, pointers: Sequence[str]) -> list[str]:
    """Return lines that store the aggregates at `result` to `pointers`, with the initial value."""
    lines: list[str] = []
    b = LlvmBuilder(lines, 1, prefix="f")
    places = slots(lines, "fin", result, len(loop.aggregates), loop.slot)
    for k, op in enumerate(loop.aggregates):
        start = b.const(initial(op), op.dtype)
        b.store(combined(b, op, start, b.load(places[k], op.dtype)), pointers[k])
    return lines


def folded(b: LlvmBuilder, op: Operand, x: Value, prefix: str = "h") -> Value:
    """Write the reduction of a vector to one element: neighbours first, as NumPy does."""
    lines, k = b.lines, 0
    while b.width > 1:
        narrow = LlvmBuilder(lines, b.width // 2, prefix=f"{prefix}{op.word}.{k}.")
        even, odd = b.halves(x, narrow)
        x, b, k = combined(narrow, op, even, odd), narrow, k + 1
    return x


def limits(loop: Loop) -> tuple[int, int]:
    """Return how many elements a leaf takes at most, and of which number it takes multiples."""
    unit = multiple(loop)
    return (LEAF * unit // 8, unit) if paired(loop) else (STRETCH, loop.lanes)
