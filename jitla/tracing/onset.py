"""How calls of a new kind begin: plain, or traced while NumPy runs the blocks, until programs are there.

Knows: clocks, which blocks wait for programs. Must not know: how two ways are compared later.
Receives calls, and the two ways to do them; returns what they return.

Calls on few elements are not even traced before they have taken so long that it may pay (`jitla.cold`). Of
others the first is traced: its blocks are met, and swapped within it where that pays. Until all programs are
there short calls are left to the plain function, long ones are traced. The plain function says what is long,
for a traced call in which NumPy runs many small blocks may take several times as long. Then calls are left to
the plain function until more programs are there. Where a traced call would take longer than a plain one even
if all had programs, none are waited for.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

from jitla.cold import GRANT, Grow
from jitla.tracing.replay import Patience
from jitla.tracing.retreat import Allowance
from jitla.tracing.session import run, untraced
from jitla.tracing.thread_state import LOCAL

# Seconds from which on a call is traced even if its programs are not there: they are swapped in.
LONG = 0.03
# Traced calls that may meet new blocks, at most; those after which the plain function is timed.
MEETINGS, ENOUGH = 3, 2
DEARER = 1.1  # times the plain function's seconds that a traced call may take, so that others are traced
LOOK = 0.05  # part of the seconds spent, after which it is looked again whether programs pay
UNSEEN = 1e-3  # seconds of plain calls that go by until it is looked again whether programs are there


class Rising:
    """Calls whose blocks may wait for their programs."""

    def __init__(self, elements: int, grow: Grow, spent: float = 0.0, plain: float = 0.0) -> None:
        self.elements = elements
        self.bypassed = False  # while short calls wait
        self.calls = 0
        self.best = (0.0, 0.0)
        self.skip = self.granted = 0
        self.short: Any = None
        self._grow = grow
        self._spent = spent
        self._meetings = 0
        self._long = True
        self._plain = plain  # seconds of the plain function, when it was called last
        self._dear = 0  # blocks that waited when a traced call took too long
        self._traced = 0.0  # seconds of the last traced call, and how often it ran blocks that wait
        self._ran: list[tuple[Any, int]] = []
        self._watched = 0.0  # seconds of calls as far as they were traced: the rest of them is not known
        self._waiting = -1  # blocks that waited when it was last asked whether programs pay
        self._next = 0.0  # seconds spent at which that is asked again

    def weigh(
        self, site: Any, function: Callable[..., Any], twin: Callable[..., Any], args: tuple, kwargs: dict,
    ) -> Any:
        """Do a call one way or the other; when all programs are there, both ways are compared."""
        if self._meetings and not site.standbys:
            return self._grow(self._plain).weigh(site, function, twin, args, kwargs)
        if LOCAL.timing:  # within a call that is timed as the plain function
            return untraced(site, function, args, kwargs)
        return self._timed(site, function, twin, args, kwargs)

    def bypass(
        self, site: Any, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
    ) -> Any:
        """Call the plain function, as short calls do until programs are there."""
        gone = self.granted - self.skip
        site.calls += gone
        self.calls += gone
        self.skip = self.granted = 0
        return self._timed(site, function, None, args, kwargs, 1 + gone)

    def _timed(
        self, site: Any, function: Callable[..., Any], twin: Any, args: tuple, kwargs: dict, seen: int = 1,
    ) -> Any:
        """Do a call that stands for `seen` of them; without a `twin` it is not traced."""
        traced = twin is not None and self._is_traced(len(site.standbys))
        before = {id(each): each.count for each in list(site.standbys)} if traced else {}
        allowance, start = Allowance(self._plain), perf_counter() - Patience.making
        try:
            if traced:
                self._meetings += 1
                return run(site, twin, args, kwargs, allowance)
            self.calls += 1
            return untraced(site, function, args, kwargs)
        finally:
            taken = perf_counter() - Patience.making - start
            self._long = taken > LONG
            self._spent += seen * taken
            if traced:
                self._traced = taken
                self._watched += allowance.traced or taken
                self._ran = [(each, each.count - before.get(id(each), 0)) for each in list(site.standbys)]
            else:
                self._plain = taken
                Patience.seconds += seen * taken
            self._judge(site, traced)

    def _judge(self, site: Any, traced: bool) -> None:
        """Ask for programs if that pays; say which way the next call goes.

        Between two such looks nothing changes by plain calls but the seconds that were spent.
        """
        if not traced and self._spent < self._next and len(site.standbys) == self._waiting:
            self._leave(self._waiting, self._plain)
            return
        dear = 0.0 < self._plain * DEARER < self._traced
        if dear and self._is_hopeless(site):
            self._grow(self._plain).leave(site, self._traced, self._plain)
            return
        waiting = list(site.standbys)
        if traced and dear:
            self._dear = len(waiting)
        self._waiting, self._next = len(waiting), self._spent * (1 + LOOK)
        if self._spent * self._share(site) >= sum([standby.due for standby in waiting]):
            site.hurry(self._is_traced(len(waiting)))
        self._leave(len(waiting), self._traced if traced else self._plain)

    def _is_hopeless(self, site: Any) -> bool:
        """Say whether programs will not make up for tracing, by the blocks that the last traced call ran.

        Then these wait for their programs no longer, for which other calls would wait, too.
        """
        if sum([each.least * count for each, count in self._ran]) < self._plain:
            return False
        for each, count in self._ran:
            if count:
                site.standbys.discard(each)
        return True

    def _leave(self, waiting: int, taken: float) -> None:
        """Leave calls to the plain function if the next ones are not to be traced."""
        self.bypassed = waiting > 0 and not self._is_traced(waiting)
        if self.bypassed and not self._long:
            self.skip = self.granted = min(GRANT, int(UNSEEN / max(taken, 1e-9)))

    def _share(self, site: Any) -> float:
        """Return the part of a plain call that programs may make quicker, as far as is known."""
        if not self._plain or not self._meetings:
            return 1.0
        spent = sum(standby.spent for standby in list(site.standbys)) / self._meetings
        seen = min(self._plain, self._watched / self._meetings)
        return min(spent / seen, 1.0) if seen else 1.0

    def _is_traced(self, waiting: int) -> bool:
        """Say whether the next call is traced, while so many blocks wait for their programs."""
        if 0 < self._dear <= waiting:
            return False
        if self._long:
            return self._meetings < ENOUGH or self._plain > LONG
        return self._meetings < MEETINGS and not waiting
