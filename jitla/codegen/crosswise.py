"""Short rows crosswise: a vector holds the same element of several rows, not several elements of one.

Knows: rows lie evenly apart, and few elements of a row fill no vector. Must not know: what is computed,
units. Receives a `Loop`; returns IR text of a function whose results are those of the rows one by one.
"""

from __future__ import annotations

from collections.abc import Sequence

from jitla.codegen.layout import Loop, Operand, word
from jitla.codegen.monoids import identity
from jitla.codegen.partial import combined, initial
from jitla.codegen.scalar import MathCall
from jitla.codegen.span import Writer
from jitla.codegen.vector import Value, named
from jitla.fusion import crosswise
from jitla.hops import Kind

ACROSS = "ptr %ops, ptr %steps, ptr %apart, i64 %n, i64 %count"


def is_crosswise(loop: Loop) -> bool:
    """Tell whether there is to be code for rows that are short."""
    fits = loop.schedule.crosswise and loop.rank > 0 and loop.lanes > 1 and not loop.schedule.delayed
    return fits and all(o.letter in "vcbs" for o in loop.operands) \
        and all(h.op.kind is not Kind.TAKE for h in loop.kernel.body)


def chosen(loop: Loop, length: str, rows: str) -> list[str]:
    """Return lines that go to %across for %grouped of `rows` rows if they are short, else to %along.

    Elements that fill vectors are added up by lanes: rows that have such are not short.
    """
    most = crosswise(loop.kernel, loop.form)
    most = min(most, loop.lanes - 1) if loop.aggregates else most
    return [
        f"  %grouped = and i64 {rows}, -{loop.lanes}", "  %any = icmp ne i64 %grouped, 0",
        f"  %few = icmp ule i64 {length}, {most}", "  %crossed = and i1 %few, %any",
        "  br i1 %crossed, label %across, label %along", "across:",
        f"  call void @across(ptr %ops, ptr %steps, ptr %apart, i64 {length}, i64 %grouped)",
        "  br label %next", "along:",
    ]


def across(loop: Loop, math: MathCall, how: str) -> str:
    """Return @across: all of `count` rows of `n` elements, as many of them at once as a vector has lanes."""
    w = Writer(loop, loop.lanes, math)
    lines, arrays = w.lines, [o for o in loop.operands if o.letter != "v"]
    lines += ["entry:", "  %start = add i64 0, 0"]
    w.begin(varying="b")
    for op in arrays:
        word(lines, f"by{op.word}", "%apart", op.word)
    starts = [w.b.const(identity(o.hop.op.name, o.dtype), o.dtype) for o in loop.aggregates]
    lines += ["  br label %row", "row:", "  %r = phi i64 [ 0, %entry ], [ %r.next, %stored ]"]
    lines += [f"  %at{o.word} = phi ptr [ %p{o.word}.0, %entry ], [ %at{o.word}.next, %stored ]"
              for o in arrays]
    for op in arrays:
        if op.role == "in" and op.letter == "b":
            w.fixed[op.hop] = w.b.gather(f"%at{op.word}", f"%by{op.word}", op.dtype)
    lines += ["  br label %loop", "loop:"]
    for op, found in zip(loop.aggregates, _elements(w, arrays, starts), strict=True):
        ready = combined(w.b, op, w.b.const(initial(op), op.dtype), found)
        w.b.scatter(ready, f"%at{op.word}", f"%by{op.word}")
    lines += ["  br label %stored", "stored:"]
    for op in arrays:
        lines += [f"  %jump{op.word} = mul i64 %by{op.word}, {loop.lanes}",
                  f"  %at{op.word}.next = getelementptr i8, ptr %at{op.word}, i64 %jump{op.word}"]
    body = "\n".join(lines)
    return f"""define internal void @across({ACROSS}) {how}{{
{body}
  %r.next = add i64 %r, {loop.lanes}
  %again = icmp ult i64 %r.next, %count
  br i1 %again, label %row, label %done
done:
  ret void
}}
"""


def _elements(w: Writer, arrays: Sequence[Operand], starts: Sequence[Value]) -> list[Value]:
    """Write the loop over the elements of rows side by side; return the aggregates, in %summed."""
    head, values = len(w.lines), dict(w.fixed)
    for op in arrays:
        if op.role == "in" and op.walks:
            at = w.pointer(op, f"%at{op.word}")
            values[op.hop] = w.b.gather(at, f"%by{op.word}", op.dtype)
    last = w.body_of_near(values)
    phis, ends = [f"  %i = phi i64 [ 0, %row ], [ %i.next, %{last} ]"], []
    for k, op in enumerate(w.loop.aggregates):
        ends.append(w.combine(op, named(op.dtype, f"%sofar{k}"), values))
        phis += w.b.phi(f"%sofar{k}", (starts[k], "row"), (ends[k], last))
    for op in arrays:
        if op.role == "out":
            w.b.scatter(values[op.hop], w.pointer(op, f"%at{op.word}"), f"%by{op.word}")
    w.lines[head:head] = phis
    w.lines += [
        "  %i.next = add i64 %i, 1", "  %more = icmp ult i64 %i.next, %n",
        "  br i1 %more, label %loop, label %summed", "summed:",
    ]
    return ends
