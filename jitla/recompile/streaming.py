"""Which results of a loop over elements go around the caches.

Knows: forms, sizes of results. Must not know: programs, machine code.
Receives the operands of a kernel, how it walks over them, and the slots it overwrites; returns yes or no.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import prod

from jitla.fusion import STREAMED, Form, Layout, Operands
from jitla.hops import Hop, Kind


def may_stream(operands: Operands, form: Form, overwritten: Collection[int]) -> bool:
    """Tell whether results are contiguous and not read on the way: what was just read is in the cache."""
    cells = _cells(operands)
    letters = form.inner[len(operands.inputs):]
    if not cells or any(letters[i] != "c" for i in cells):
        return False
    return not any(h.op.name == "leaf" and h.attr("slot") in overwritten for h in operands.inputs)


def streams(
    operands: Operands, form: Form, overwritten: Collection[int], places: Mapping[Hop, Layout],
) -> bool:
    """Tell whether results may go around the caches, and are too large for these."""
    if not may_stream(operands, form, overwritten):
        return False
    outputs = operands.outputs
    return max(prod(places[outputs[i]].shape) * outputs[i].meta.dtype.itemsize
               for i in _cells(operands)) >= STREAMED


def _cells(operands: Operands) -> list[int]:
    return [i for i, h in enumerate(operands.outputs) if h.op.kind is not Kind.AGG]
