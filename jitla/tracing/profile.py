"""Which calls are traced: warm-up of new kinds of calls, and comparison with the plain function."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, inf
from time import perf_counter
from typing import Any

from jitla.profiling.call_classes import (
    GRANT,
    Grow,
)
from jitla.tracing.fallback import Allowance, Patience
from jitla.tracing.session import run_traced, run_untraced
from jitla.tracing.site import LEARNING
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
            return run_untraced(site, function, args, kwargs)
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
                return run_traced(site, twin, args, kwargs, allowance)
            self.calls += 1
            return run_untraced(site, function, args, kwargs)
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


# Calls that are timed while they are traced, and while they are not.
TRACED, PLAIN = 6, 4
# Calls below so many seconds go by turns: so many traced in all, so many plain. The first of each turn find
# caches and memory as the other way left them.
QUICK, TURNS = 1e-4, ((4, 0), (4, 6), (8, 6), (8, 12))
# Calls that may go by until no new plan is made.
PATIENCE = 16
# Seconds from which on a call is long.
PAYOFF_LONG = 1e-3
# Of a long call the plain function is not tried if it is foreseen to take so many times as long; what is
# foreseen may be wrong by so much of it, and tries may take such a part of all seconds so far.
HOPELESS, DOUBT, TRIED = 4.0, 0.25, 0.05
# Calls go to the plain function until what timing them traced has cost is such a part of their time.
TRY = 0.04
# Traced calls in a row that take so many times what plain ones do, while new blocks have no programs.
ROWED = 2
# It pays to leave calls to the plain function from so many seconds, and such a part of them, on.
LEAST, SHARE = 1.5e-6, 0.02
# A plain call is brief, and is timed only once in so many then, the first not counted.
BRIEF, PAYOFF_GRANT = 2e-5, 31
# Calls until both are timed again: at first, if they are long, and at most. Few long ones are timed, and a
# slow moment must not decide about seconds of them.
REST, LONG_REST, MOST = 1 << 10, 1 << 5, 1 << 20
# The same where the plain function all at once takes far longer, and seconds of such calls at most.
UNSURE, AGAIN = 1 << 8, 0.1
# A plain call is long from so many times the usual, and so many seconds, on.
TIMES, SECONDS = 4.0, 5e-5
# Some long calls in a row of so many are too many if they take so many times what all of them should.
SOME, ROW, UNEVEN = 3, 1 << 10, 8.0


class Kind:
    """Calls that are alike: which way they go, and the times that say so."""

    __slots__ = ("elements", "bypassed", "short", "left", "calls", "best", "skip", "granted", "_again",
                 "_looks", "_unsure", "_skipped", "_traced", "_plain", "_until", "_limit", "_since", "_longs",
                 "_spent", "_foreseen", "_seconds", "_lost", "_before", "_dear", "_waited")

    def __init__(
        self, elements: int, plain: float = 0.0, again: Callable[[], Any] | None = None,
    ) -> None:
        self.elements = elements  # bits of their number
        self._again = again  # what lets calls rise once more
        self.bypassed = False
        self.left = 0  # calls that are traced without being timed
        self.calls = 0  # of the plain function
        self.best = (0.0, plain)  # least seconds: traced, plain
        self.skip = self.granted = 0  # calls that need not be timed: left of how many
        self.short: Any = None  # where calls like these are known by their arguments alone
        self._looks, self._unsure = 0, UNSURE  # how often both were timed
        self._skipped = 0
        self._traced: list[float] = []
        self._plain: list[float] = []
        self._until = 0
        self._limit = 0.0
        self._since = self._longs = 0
        self._spent = 0.0
        self._foreseen = inf  # seconds that NumPy and SciPy would take for a call
        self._seconds = 0.0  # of long calls, about
        self._lost = 0.0  # of those, by tries
        self._dear = 0  # traced calls in a row that took too long while blocks had no programs
        self._waited = False  # for what calls will be faster with
        self._before: bool | None = None  # whether calls were bypassed before they were timed again

    def bypass(self, site: Any, function: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        """Call the plain function, as calls of this kind do for now."""
        gone = self.granted - self.skip
        site.calls += 1 + gone
        self.calls += gone
        self.skip = self.granted = 0
        start = perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            taken = perf_counter() - start
            self.calls += 1
            if taken > self._limit or self.calls >= self._until:
                self._look(taken)
            elif taken < BRIEF:
                self.skip = self.granted = PAYOFF_GRANT

    def leave(self, site: Any, traced: float, plain: float) -> None:
        """Leave calls to the plain function, which takes less time than tracing whatever is compiled."""
        self._traced, self._plain = [traced], [plain]
        self._again = None
        self._decide(site)

    def weigh(
        self, site: Any, function: Callable[..., Any], twin: Callable[..., Any], args: tuple, kwargs: dict,
    ) -> Any:
        """Do a call that is traced, or is one of those that tell which way is faster."""
        if self.left > 0:
            self.left -= 1
            if site.standbys:
                return self._watched(site, twin, args, kwargs)
            return run_traced(site, twin, args, kwargs)
        if LOCAL.timing:  # within a call that is timed as the plain function
            return run_untraced(site, function, args, kwargs)
        if self._is_next_traced():
            return self._traced_call(site, twin, args, kwargs)
        return self._plain_call(site, function, args, kwargs)

    def _watched(self, site: Any, twin: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        """Trace a call while NumPy runs new blocks; calls wait for their programs if that takes too long."""
        start = perf_counter() - Patience.making
        try:
            allowance = Allowance(self.best[1] if self.best[1] < inf else 0.0)
            return run_traced(site, twin, args, kwargs, allowance)
        finally:
            dear = perf_counter() - Patience.making - start > DEARER * (self.best[1] or inf)
            self._dear = self._dear + 1 if dear else 0
            if self._dear == ROWED:
                self._dear = 0
                if self._again is not None:
                    self._again()
                else:  # that happened before: the times decide
                    self.left = 0

    def _is_next_traced(self) -> bool:
        traced, plain = len(self._traced), len(self._plain)
        if traced and 0.0 < HOPELESS * self.best[1] < min(self._traced):
            return False
        if traced and min(self._traced) > QUICK:
            return traced < TRACED
        return next((traced < t for t, p in TURNS if traced < t or plain < p), False)

    def _traced_call(self, site: Any, twin: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        """Trace a call and time it, unless plans are still being made."""
        before = site.learning
        long = bool(self._traced) and self._traced[-1] > PAYOFF_LONG
        ahead = site.by_numpy() if long else 0.0
        start = perf_counter()
        result = run_traced(site, twin, args, kwargs, Allowance(self.best[1]))
        taken = perf_counter() - start
        learns = site.learning > before or 0 < before <= LEARNING
        self._skipped += learns
        if not learns or self._skipped >= PATIENCE:
            self._traced.append(taken)
            if long:
                self._foreseen = site.by_numpy() - ahead
            if min(self._traced) > PAYOFF_LONG:
                self._seconds += taken
                if len(self._traced) >= TRACED and (wait := self._wait()):
                    self._decide(site, wait)
        return result

    def _wait(self) -> int:
        """Return how many traced calls have to come before the plain function may be tried: long calls."""
        traced = min(self._traced)
        if not 0.0 <= self._foreseen <= HOPELESS * traced:
            return self._rest(traced)
        risk = max(self._foreseen - traced, DOUBT * self._foreseen)
        return max(ceil(((self._lost + risk) / TRIED - self._seconds) / traced), 0)

    def _rest(self, traced: float) -> int:
        """Return after how many calls, of so many seconds traced, both ways are timed again."""
        first = LONG_REST if traced > PAYOFF_LONG else REST
        return min(first << self._looks, MOST)

    def _plain_call(self, site: Any, function: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        """Call the plain function and time it; what it calls is not timed by itself."""
        LOCAL.timing = True
        try:
            start = perf_counter()
            result = run_untraced(site, function, args, kwargs)
            taken = perf_counter() - start
        finally:
            LOCAL.timing = False
        self.calls += 1
        self._plain.append(taken)
        traced = min(self._traced, default=inf)
        if PAYOFF_LONG < traced < inf:
            self._seconds += taken
            self._lost += max(taken - traced, 0.0)
            enough = taken > (1 + DOUBT) * traced or self._wait() > 0
        else:
            most = TIMES * traced + SECONDS
            enough = len(self._plain) > 1 and min(self._plain) > most
        if enough or len(self._plain) >= (PLAIN if traced > QUICK else TURNS[-1][1]):
            self._decide(site)
        return result

    def _decide(self, site: Any, wait: int = 0) -> None:
        """Settle which way calls go until both are timed again; `wait`: traced, so many of them.

        Traced calls that are slower say nothing of later ones if NumPy ran blocks in them: those rise again.
        """
        if not self._traced:
            return  # another thread has decided
        traced, plain = min(self._traced), min(self._plain, default=inf)
        bypassed = traced - plain > LEAST + SHARE * plain
        if bypassed and site.standbys and self._again is not None:
            self._again()
            return
        if bypassed and site.awaited and not self._waited:
            self._waited, self.left, site.awaited = True, min(site.awaited, REST), 0
            self._begin()
            return
        if self._before is not None and bypassed is not self._before:
            self._before = None  # the next look decides
            self._begin()
            return
        self.best = traced, plain
        self.bypassed = self._before = bypassed
        self._limit = TIMES * plain + SECONDS
        tries = sum(self._traced) - len(self._traced) * plain if self._plain else 0.0
        rest = self._rest(traced)
        self._until = self.calls + max(rest, ceil(tries / (TRY * plain)) if 0.0 < plain < inf else 0)
        self.left = min(wait or rest, rest)
        if traced > PAYOFF_LONG and not self.bypassed:
            self._seconds += self.left * traced
        if self.left == rest:
            self._looks += 1
        self._begin()

    def _begin(self) -> None:
        """Forget the times that led to a decision."""
        self._traced, self._plain = [], []
        self._skipped = self._longs = 0

    def _look(self, taken: float) -> None:
        """See whether the plain function still takes what it did."""
        if taken > self._limit:
            if not self._longs or self.calls - self._since > ROW:
                self._since, self._longs, self._spent = self.calls - 1, 0, 0.0
            self._longs += 1
            self._spent += taken
            traced, usual = [(self.calls - self._since) * seconds for seconds in self.best]
            if self._longs >= SOME and self._spent > max(UNEVEN * usual, traced):
                self.bypassed = False
                self.left = min(self._unsure, max(int(AGAIN / max(self.best[0], LEAST)), SOME))
                self._unsure = min(2 * self._unsure, MOST)
                self._begin()
        if self.calls >= self._until and self.bypassed:
            self.bypassed = False
            self.left = 0
            self._begin()
