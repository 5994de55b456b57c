"""A part of a program cut by rows: the first of them elsewhere, the rest at the host.

Knows: how to make a DAG for fewer rows. Must not know: any device.
Receives a part of a DAG with its inputs; returns the same value, joined of two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jitla.errors import InternalError
from jitla.hops import Hop, leaf, make, substitute, topo
from jitla.recompile.resize import rebuild


def split_rows(out: Hop, inputs: Sequence[Hop], rows: int, by_rows: Sequence[bool],
               offered: Callable[[Hop], Any]) -> Hop | None:
    """Return `out` with its first `rows` made by what is `offered` for them; None if there is nothing.

    `by_rows` says of which inputs the rows are cut, too.
    """
    total = out.meta.shape[0]
    own = {h: leaf(i, h.meta, "array" if h.meta.shape else "scalar") for i, h in enumerate(inputs)}
    (whole,) = substitute((out,), own)
    head, tail = (_of_rows(whole, total, n) for n in (rows, total - rows))
    part = offered(head) if head is not None else None
    if part is None or head is None or tail is None:
        return None
    given = {h.attr("slot"): h for h in topo((tail,)) if h.op.name == "leaf"}
    rest = {given[i]: _rows(h, rows, total) if cut else h
            for i, (h, cut) in enumerate(zip(inputs, by_rows, strict=True)) if i in given}
    (last,) = substitute((tail,), rest)
    slots = [h.attr("slot") for h in part.inputs]
    first = make("offload", [_rows(inputs[i], 0, rows) if by_rows[i] else inputs[i] for i in slots], out.line,
                 part=part)
    return make("concatenate", (first, last), out.line, axis=0)


def _rows(hop: Hop, start: int, stop: int) -> Hop:
    return make("getitem", (hop,), hop.line, index=(("s", start, stop, None),))


def _of_rows(whole: Hop, total: int, rows: int) -> Hop | None:
    """Return the DAG for another number of rows; None if other sizes are the same as theirs."""
    sizes = {n for h in topo((whole,)) for n in h.meta.shape}
    sizes |= {n for h in topo((whole,)) for k, v in h.attrs if k == "shape" for n in v}
    try:
        (made,) = rebuild((whole,), {n: n for n in sizes} | {total: rows})
    except (InternalError, ValueError, IndexError):
        return None
    return made if made.meta.shape == (rows, *whole.meta.shape[1:]) else None
