"""What is known of a block that was closed: how it is run, and how long NumPy and SciPy would take.

Knows: bytes and operations, roughly. Must not know: plans, machines, sessions.
Receives blocks; returns records, and seconds by which it is decided what is worth a try, never what is right.
"""

from __future__ import annotations

from typing import Any

from jitla.hops import bytes_of, flops
from jitla.tracing.keeping import Watch
from jitla.tracing.tape import SCALAR, Block, hops_of

# Seconds of a byte, an operation of numbers, and a call.
BYTE, FLOP, CALL = 5e-11, 5e-11, 1e-6
MOST_BYTES = 1 << 28  # of one value: what makes larger ones is not worth a try
NEVER = 1e9  # seconds


def foreseen(block: Block) -> tuple[float, float]:
    """Return the seconds of all operations, and those with the calls that do them one by one."""
    hops = hops_of(block)
    work = sum(BYTE * bytes_of(h) + FLOP * flops(h) for h in hops)
    calls = sum(entry[0] > SCALAR for entry in block.entries)
    most = max((h.meta.nbytes for h in hops), default=0)
    return work, NEVER if most > MOST_BYTES else work + CALL * calls


class Closed:
    """How one exact block is run: its bound program and what happens to each proxy."""

    __slots__ = ("bound", "roots", "places", "views", "ghosts", "watch", "foreseen",
                 "metas")

    def __init__(
        self, bound: Any, roots: tuple[int, ...], views: tuple[int, ...], ghosts: tuple[int, ...]
    ) -> None:
        self.bound = bound
        self.roots = roots
        # For each root: its position, entry and layout, once the program has run.
        self.places: tuple[tuple[int, int, int], ...] = ()
        self.views = views
        self.ghosts = ghosts
        # What finds and keeps values that stay the same from run to run, if there may be some.
        self.watch: Watch | None = None
        self.foreseen = 0.0  # seconds that NumPy and SciPy would take for it
        self.metas: tuple[int, ...] = ()  # of the entries

    @property
    def runs(self) -> int:
        """How often it has run."""
        if self.bound is None:
            return 0
        main = None if self.watch is None else self.watch.main
        count: int = self.bound.count + (0 if main is None else main.count)
        return count

    def stop_watching(self, site: Any) -> None:
        """Run the block as it is from now on."""
        if self.watch is not None:
            site.count_past(self.watch.main)
            self.watch = None
