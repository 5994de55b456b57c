"""What is known of a block that was closed: how it is run, and how long NumPy and SciPy would take.

Knows: bytes and operations, roughly. Must not know: plans, machines, sessions.
Receives blocks; returns records, and seconds by which it is decided what is worth a try, never what is right.
"""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from jitla.hops import NUMPY_CALL
from jitla.tracing.keeping import Watch, work_of
from jitla.tracing.literals import is_same
from jitla.tracing.tape import LEAF, SCALAR, Block, hops_of

NOTHING = np.empty(0)  # stands for arrays that were read

MOST_BYTES = 1 << 28  # of one value: what makes larger ones is not worth a try
NEVER = 1e9  # seconds


class Closed:
    """How one exact block is run: its bound program and what happens to each proxy."""

    __slots__ = ("bound", "roots", "alive", "places", "views", "ghosts", "watch", "fixed", "entries", "metas",
                 "_foreseen")

    def __init__(
        self, bound: Any, roots: tuple[int, ...], views: tuple[int, ...], ghosts: tuple[int, ...],
        fixed: dict[int, Any],
    ) -> None:
        self.bound = bound
        self.roots = roots
        # Entries that somebody may hold proxies of.
        self.alive = (*roots, *views, *ghosts)
        # For each root: its position, entry and layout, once the program has run.
        self.places: tuple[tuple[int, int, int], ...] = ()
        self.views = views
        self.ghosts = ghosts
        # What finds and keeps values that stay the same from run to run, if there may be some.
        self.watch: Watch | None = None
        # Scalars, by number, that the program takes for literals.
        self.fixed = tuple(fixed.items())
        self.entries: tuple[Any, ...] = ()
        self.metas: tuple[int, ...] = ()  # of the entries
        self._foreseen = -1.0

    def fits(self, scalars: list[Any]) -> bool:
        """Say whether the literals of the program are what the scalars are."""
        for number, value in self.fixed:
            given = scalars[number]
            if given is not value and not is_same(given, value):  # constants of code are the same objects
                return False
        return True

    @property
    def foreseen(self) -> float:
        """Seconds that NumPy and SciPy would take for it: found when asked for, most blocks run once."""
        if self._foreseen < 0.0:
            leaves = sum(entry[0] == LEAF for entry in self.entries)
            block = Block(self.entries, self.metas, [NOTHING] * leaves, [], {}, hops=[])
            calls = sum(entry[0] > SCALAR for entry in self.entries)
            most = max((h.meta.nbytes for h in hops_of(block)), default=0)
            self._foreseen = NEVER if most > MOST_BYTES else work_of(block) + NUMPY_CALL * calls
        return self._foreseen

    def foresee(self, measured: float) -> None:
        """Take what NumPy took for what it will take, if it has run."""
        if measured < inf:
            self._foreseen = measured

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
