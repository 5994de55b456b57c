"""Turns of a loop that work on what the turn before made, cell by cell or as stencils: a few are one block.

Knows: entries of the tape, how large arrays are. Must not know: how blocks are closed, plans.
Receives a session at the end of a loop's body; returns whether its block goes on.

Other turns are blocks of their own, so that all have one plan. Of a large array every turn would be read
from memory and written to it; turns in one block pass rows on in the cache, or cells in registers.
"""

from __future__ import annotations

from typing import Any

from jitla.tracing import frames
from jitla.tracing.array import LazyArray
from jitla.tracing.signature import NBYTES
from jitla.tracing.tape import CELLS, LEAF, OP_ID, SCALAR, Entry, split

Session = Any  # the session whose block it is

MOST_TURNS = 4  # that are one block: with more, what is computed anew at the edges grows
LEAST_BYTES = 8 << 20  # of an array: smaller ones stay in a cache from turn to turn
LEAST_SLICES = 2
# The same of cells; entries that a block of such turns has at most: what is longer compiles longer, and is
# bound by arithmetic rather than by memory.
LEAST_OF_CELLS, MOST_OF_CELLS = 1 << 20, 48
PATIENCE = 2  # first turns in a row that nothing went on from; the last turn of a loop is one now and then
_GETITEM = OP_ID["getitem"]


def goes_on(session: Session) -> bool:
    """Tell whether the next turn of a loop belongs to the open block, too."""
    node = session.nodes[-1]
    if type(node) is not LazyArray or NBYTES[node._m] < LEAST_OF_CELLS:
        return False
    ops = session.ops
    known, turns, begin = session.turn
    if known is not ops:
        turns = begin = 0
    if turns + 1 >= MOST_TURNS or len(ops) == begin or node._v is not None or \
            not _pays(session, begin, turns > 0, NBYTES[node._m]):
        return False
    place, apart = frames.path(), session.site.apart
    if place is None:
        return False
    if turns:
        apart.pop(place, None)
    elif apart.get(place, 0) >= PATIENCE:
        return False
    else:
        apart[place] = apart.get(place, 0) + 1  # until a second turn reads what the first has made
    session.turn = ops, turns + 1, len(ops)
    return True


def _pays(session: Session, begin: int, again: bool, size: int) -> bool:
    """Tell whether a turn that makes `size` bytes had better not be a block of its own."""
    return size >= LEAST_BYTES and _is_stencil(session, begin, again) or _is_chain(session.ops, begin, again)


def _is_chain(ops: list[Entry], begin: int, again: bool) -> bool:
    """Tell whether a turn is a few cells; `again`: of what is pending."""
    cells = [entry for entry in ops[begin:] if entry[0] not in (LEAF, SCALAR)]
    made = {at for at, entry in enumerate(ops[:begin]) if entry[0] not in (LEAF, SCALAR)}
    return (2 * len(ops) - begin <= MOST_OF_CELLS and all(CELLS[entry[0]] for entry in cells)
            and (not again or any(not made.isdisjoint(split(entry)[0]) for entry in cells)))


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
