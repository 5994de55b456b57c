"""Turns of a loop that are stencils of what the turn before made: a few of them are one block.

Knows: entries of the tape, how large arrays are. Must not know: how blocks are closed, plans.
Receives a session at the end of a loop's body; returns whether its block goes on.

Other turns are blocks of their own, so that all have one plan. Of a large array every turn would be read
from memory and written to it; turns in one block are stages that pass rows on in the cache.
"""

from __future__ import annotations

from typing import Any

from jitla.tracing import frames
from jitla.tracing.array import LazyArray
from jitla.tracing.signature import NBYTES
from jitla.tracing.tape import CELLS, LEAF, OP_ID, SCALAR

Session = Any  # the session whose block it is

MOST_TURNS = 4  # that are one block: with more, what is computed anew at the edges grows
LEAST_BYTES = 8 << 20  # of an array: smaller ones stay in a cache from turn to turn
LEAST_SLICES = 2
_GETITEM = OP_ID["getitem"]


def goes_on(session: Session) -> bool:
    """Tell whether the next turn of a loop belongs to the open block, too."""
    node = session.nodes[-1]
    if type(node) is not LazyArray or NBYTES[node._m] < LEAST_BYTES:
        return False
    ops = session.ops
    known, turns, begin = session.turn
    if known is not ops:
        turns = begin = 0
    if turns + 1 >= MOST_TURNS or len(ops) == begin or node._v is not None or \
            not _is_stencil(session, begin, turns > 0):
        return False
    place = frames.path()
    if turns:
        session.turn = ops, turns + 1, len(ops)
    elif place not in session.site.apart:
        session.turn = ops, 1, len(ops)
        session.site.apart.add(place)  # until a second turn reads what the first has made
    else:
        return False
    if turns == 1:
        session.site.apart.discard(place)
    return True


def _is_stencil(session: Session, begin: int, again: bool) -> bool:
    """Tell whether all that a turn recorded is cells over slices; `again`: of what is pending."""
    slices, leaf = 0, 0
    for at, entry in enumerate(session.ops):
        op = entry[0]
        if op == LEAF:
            slices += at >= begin and not again and session.leaves[leaf].base is not None
            leaf += 1
        elif at >= begin and op == _GETITEM:
            slices += 1
        elif at >= begin and op != SCALAR and not CELLS[op]:
            return False
    return slices >= LEAST_SLICES
