"""Decides which calls are traced, for each call class: warm-up, then comparison with the plain function.

A new call class is a `WarmUp` until the programs of its blocks are available; then it is a `TimedClass`,
whose traced and plain calls are timed from time to time.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, inf
from time import perf_counter
from typing import Any

from jitla.introspection import hide_module
from jitla.profiling.call_classes import (
    UNTIMED_CALLS,
    OnTimed,
)
from jitla.tracing.fallback import InterimSeconds, TracingBudget
from jitla.tracing.frames import LOCAL, hide_function
from jitla.tracing.session import run_traced, run_untraced
from jitla.tracing.site import ANNOTATED_CALLS

# Calls of at least this length are traced even if programs are missing: these are swapped in during the call.
LONG_CALL_SECONDS = 0.03
# Traced calls of a warm-up that may record new blocks, at most; number after which the plain function is
# timed.
MAX_WARMUP_TRACES, ENOUGH_TRACES = 3, 2
MAX_COST_RATIO = 1.1  # multiple of the plain function's seconds above which a traced call is too slow
RECHECK_GROWTH = 0.05  # share by which the spent seconds grow until it is checked again whether programs pay
UNTIMED_SECONDS = 1e-3  # seconds of plain calls until it is checked again whether programs are available


class WarmUp:
    """A call class in warm-up: programs of its blocks may be missing."""

    def __init__(self, elements: int, grow: OnTimed, spent: float = 0.0, plain: float = 0.0) -> None:
        self.elements = elements
        self.bypassed = False  # whether calls go to the plain function, as short ones do until programs exist
        self.calls = 0
        self.best = (0.0, 0.0)
        self.skip = self.granted = 0
        self.short: Any = None
        self._grow = grow
        self._spent = spent
        self._traces = 0
        self._long = True
        self._plain = plain  # seconds of the last plain call
        self._slow_waiting = 0  # blocks without a program when a traced call was too slow
        self._traced = 0.0  # seconds of the last traced call
        self._ran: list[tuple[Any, int]] = []  # and how often it ran each block without a program
        self._watched = 0.0  # traced seconds of calls: the remaining seconds are not attributed to blocks
        self._waiting = -1  # blocks without a program when it was last checked whether programs pay
        self._next = 0.0  # spent seconds at which that is checked again

    def weigh(
        self, site: Any, function: Callable[..., Any], instrumented: Callable[..., Any], args: tuple,
        kwargs: dict,
    ) -> Any:
        """Perform a call, traced or plain; with all programs available, the class becomes a `TimedClass`."""
        if self._traces and not site.interim_replays:
            return self._grow(self._plain).weigh(site, function, instrumented, args, kwargs)
        if LOCAL.timing:  # within a call that is timed as the plain function
            return run_untraced(site, function, args, kwargs)
        return self._time_call(site, function, instrumented, args, kwargs)

    def bypass(
        self, site: Any, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
    ) -> Any:
        """Call the plain function, as short calls do until programs are available."""
        skipped = self.granted - self.skip
        site.calls += skipped
        self.calls += skipped
        self.skip = self.granted = 0
        return self._time_call(site, function, None, args, kwargs, 1 + skipped)

    def _time_call(
        self, site: Any, function: Callable[..., Any], instrumented: Any, args: tuple, kwargs: dict,
        represented: int = 1,
    ) -> Any:
        """Perform and time a call that represents several; without an `instrumented` function it is plain."""
        traced = instrumented is not None and self._is_traced(len(site.interim_replays))
        counts = {id(each): each.count for each in list(site.interim_replays)} if traced else {}
        budget, start = TracingBudget(self._plain), perf_counter() - InterimSeconds.waiting
        try:
            if traced:
                self._traces += 1
                return run_traced(site, instrumented, args, kwargs, budget)
            self.calls += 1
            return run_untraced(site, function, args, kwargs)
        finally:
            taken = perf_counter() - InterimSeconds.waiting - start
            self._long = taken > LONG_CALL_SECONDS
            self._spent += represented * taken
            if traced:
                self._traced = taken
                self._watched += budget.traced_seconds or taken
                self._ran = [
                    (each, each.count - counts.get(id(each), 0)) for each in list(site.interim_replays)]
            else:
                self._plain = taken
                InterimSeconds.replaying += represented * taken
            self._judge(site, traced)

    def _judge(self, site: Any, traced: bool) -> None:
        """Request programs if that pays, and decide whether the next call is traced.

        Between two checks plain calls change nothing but the spent seconds.
        """
        if not traced and self._spent < self._next and len(site.interim_replays) == self._waiting:
            self._skip_calls(self._waiting, self._plain)
            return
        is_slow = 0.0 < self._plain * MAX_COST_RATIO < self._traced
        if is_slow and self._is_hopeless(site):
            self._grow(self._plain).choose_plain(site, self._traced, self._plain)
            return
        waiting = list(site.interim_replays)
        if traced and is_slow:
            self._slow_waiting = len(waiting)
        self._waiting, self._next = len(waiting), self._spent * (1 + RECHECK_GROWTH)
        if self._spent * self._share(site) >= sum([replay.request_after for replay in waiting]):
            site.request_programs(self._is_traced(len(waiting)))
        self._skip_calls(len(waiting), self._traced if traced else self._plain)

    def _is_hopeless(self, site: Any) -> bool:
        """Return whether programs will not make up for tracing, judged by the blocks of the last traced call.

        If so, these stop waiting for programs, for which other calls would wait as well.
        """
        if sum([each.program_seconds * count for each, count in self._ran]) < self._plain:
            return False
        for each, count in self._ran:
            if count:
                site.interim_replays.discard(each)
        return True

    def _skip_calls(self, waiting: int, taken: float) -> None:
        """Let calls go to the plain function, untimed for a while, if the next ones are not to be traced."""
        self.bypassed = waiting > 0 and not self._is_traced(waiting)
        if self.bypassed and not self._long:
            self.skip = self.granted = min(UNTIMED_CALLS, int(UNTIMED_SECONDS / max(taken, 1e-9)))

    def _share(self, site: Any) -> float:
        """Return the share of a plain call that programs may speed up, as far as is known."""
        if not self._plain or not self._traces:
            return 1.0
        numpy_seconds = sum(replay.numpy_seconds for replay in list(site.interim_replays)) / self._traces
        seen = min(self._plain, self._watched / self._traces)
        return min(numpy_seconds / seen, 1.0) if seen else 1.0

    def _is_traced(self, waiting: int) -> bool:
        """Return whether the next call is traced, while `waiting` blocks have no program."""
        if 0 < self._slow_waiting <= waiting:
            return False
        if self._long:
            return self._traces < ENOUGH_TRACES or self._plain > LONG_CALL_SECONDS
        return self._traces < MAX_WARMUP_TRACES and not waiting


# Timed calls per comparison: traced, plain.
TRACED_SAMPLES, PLAIN_SAMPLES = 6, 4
# Calls below this many seconds alternate: total numbers of (traced, plain) calls after each round. The
# first calls of a round find caches and memory in the state left by the other kind.
SHORT_CALL_SECONDS, ROUNDS = 1e-4, ((4, 0), (4, 6), (8, 6), (8, 12))
# Traced calls that are not timed because they make new plans, at most.
MAX_UNTIMED_CALLS = 16
# Calls above this many seconds are long.
MIN_LONG_SECONDS = 1e-3
# For a long call the plain function is not tried if it is estimated to take this multiple of the traced
# seconds. The relative error of the estimate, and the share of all seconds so far that trials may cost.
MAX_SLOWDOWN, ESTIMATE_ERROR, MAX_TRIAL_SHARE = 4.0, 0.25, 0.05
# Calls go to the plain function until the cost of the timed traced calls is this share of their time.
MAX_TIMING_SHARE = 0.04
# Successive traced calls that are too slow, while new blocks have no programs, before the class warms up
# again.
MAX_SLOW_IN_ROW = 2
# The plain function is chosen if it saves more than these seconds plus this share of its own time.
MIN_SAVED_SECONDS, MIN_SAVED_SHARE = 1.5e-6, 0.02
# A plain call below this many seconds is brief; after a timed one this many brief calls are not timed.
BRIEF_SECONDS, UNTIMED_PLAIN_CALLS = 2e-5, 31
# Calls until both kinds are timed again: at first, the same for long calls, and at most. Few long calls are
# timed, so that a single slow moment may have decided.
RECHECK_CALLS, LONG_RECHECK_CALLS, MAX_RECHECK_CALLS = 1 << 10, 1 << 5, 1 << 20
# The same after the plain function has suddenly become slow, and the seconds of such calls at most.
RETRY_CALLS, MAX_RETRY_SECONDS = 1 << 8, 0.1
# A plain call is slow above this multiple of the usual seconds plus these seconds.
SLOW_RATIO, SLOW_SECONDS = 4.0, 5e-5
# The plain function has become slow if at least this many slow calls, within a window of this many calls,
# take this multiple of the seconds that all calls of the window should take.
MIN_SLOW_CALLS, SLOW_WINDOW_CALLS, SLOW_TOTAL_RATIO = 3, 1 << 10, 8.0


class TimedClass:
    """A call class that is either traced or bypassed, as measured times of both kinds of calls decide."""

    __slots__ = ("elements", "bypassed", "short", "left", "calls", "best", "skip", "granted",
                 "_warm_up_again", "_checks", "_retry_calls", "_skipped", "_traced", "_plain", "_until",
                 "_limit", "_since", "_slow_calls", "_spent", "_numpy_seconds", "_long_seconds",
                 "_trial_seconds", "_was_bypassed", "_slow_in_row")

    def __init__(
        self, elements: int, plain: float = 0.0, again: Callable[[], Any] | None = None,
    ) -> None:
        self.elements = elements  # bits of their number
        self._warm_up_again = again  # makes the class a `WarmUp` once more
        self.bypassed = False
        self.left = 0  # calls still to be traced without timing
        self.calls = 0  # of the plain function
        self.best = (0.0, plain)  # minimum of the seconds: traced, plain
        self.skip = self.granted = 0  # untimed plain calls: remaining, of this number
        self.short: Any = None  # the shortcut that recognises calls of this class by their arguments alone
        self._checks, self._retry_calls = 0, RETRY_CALLS  # how often both were timed
        self._skipped = 0
        self._traced: list[float] = []
        self._plain: list[float] = []
        self._until = 0
        self._limit = 0.0
        self._since = self._slow_calls = 0
        self._spent = 0.0
        self._numpy_seconds = inf  # seconds that NumPy and SciPy would take for a call
        self._long_seconds = 0.0  # of long calls, about
        self._trial_seconds = 0.0  # of those, by tries
        self._slow_in_row = 0  # traced calls in a row that took too long while blocks had no programs
        self._was_bypassed: bool | None = None  # whether calls were bypassed before they were timed again

    def bypass(self, site: Any, function: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        """Call the plain function, as calls of this class do for now."""
        skipped = self.granted - self.skip
        site.calls += 1 + skipped
        self.calls += skipped
        self.skip = self.granted = 0
        start = perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            taken = perf_counter() - start
            self.calls += 1
            if taken > self._limit or self.calls >= self._until:
                self._check_plain(taken)
            elif taken < BRIEF_SECONDS:
                self.skip = self.granted = UNTIMED_PLAIN_CALLS

    def choose_plain(self, site: Any, traced: float, plain: float) -> None:
        """Choose the plain function, which is faster than tracing whatever is compiled."""
        self._traced, self._plain = [traced], [plain]
        self._warm_up_again = None
        self._decide(site)

    def weigh(
        self, site: Any, function: Callable[..., Any], instrumented: Callable[..., Any], args: tuple,
        kwargs: dict,
    ) -> Any:
        """Perform a call: traced, or one of those that are timed for the comparison."""
        if self.left > 0:
            self.left -= 1
            if site.interim_replays:
                return self._watched(site, instrumented, args, kwargs)
            return run_traced(site, instrumented, args, kwargs)
        if LOCAL.timing:  # within a call that is timed as the plain function
            return run_untraced(site, function, args, kwargs)
        if self._is_next_traced():
            return self._traced_call(site, instrumented, args, kwargs)
        return self._plain_call(site, function, args, kwargs)

    def _watched(self, site: Any, instrumented: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        """Trace a call while NumPy runs new blocks; if that is too slow, the class warms up again."""
        start = perf_counter() - InterimSeconds.waiting
        try:
            budget = TracingBudget(self.best[1] if self.best[1] < inf else 0.0)
            return run_traced(site, instrumented, args, kwargs, budget)
        finally:
            is_slow = perf_counter() - InterimSeconds.waiting - start > MAX_COST_RATIO * (self.best[1] or inf)
            self._slow_in_row = self._slow_in_row + 1 if is_slow else 0
            if self._slow_in_row == MAX_SLOW_IN_ROW:
                self._slow_in_row = 0
                if self._warm_up_again is not None:
                    self._warm_up_again()
                else:  # it has done so before: the times decide
                    self.left = 0

    def _is_next_traced(self) -> bool:
        traced, plain = len(self._traced), len(self._plain)
        if traced and 0.0 < MAX_SLOWDOWN * self.best[1] < min(self._traced):
            return False
        if traced and min(self._traced) > SHORT_CALL_SECONDS:
            return traced < TRACED_SAMPLES
        return next((traced < t for t, p in ROUNDS if traced < t or plain < p), False)

    def _traced_call(self, site: Any, instrumented: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        """Trace a call and record its time, unless it still makes new plans."""
        notes_before = site.annotated_calls
        long = bool(self._traced) and self._traced[-1] > MIN_LONG_SECONDS
        numpy_before = site.numpy_seconds() if long else 0.0
        start = perf_counter()
        result = run_traced(site, instrumented, args, kwargs, TracingBudget(self.best[1]))
        taken = perf_counter() - start
        makes_plans = site.annotated_calls > notes_before or 0 < notes_before <= ANNOTATED_CALLS
        self._skipped += makes_plans
        if not makes_plans or self._skipped >= MAX_UNTIMED_CALLS:
            self._traced.append(taken)
            if long:
                self._numpy_seconds = site.numpy_seconds() - numpy_before
            if min(self._traced) > MIN_LONG_SECONDS:
                self._long_seconds += taken
                if len(self._traced) >= TRACED_SAMPLES and (wait := self._calls_before_trial()):
                    self._decide(site, wait)
        return result

    def _calls_before_trial(self) -> int:
        """Return the number of long traced calls that have to pay for a trial of the plain function."""
        traced = min(self._traced)
        if not 0.0 <= self._numpy_seconds <= MAX_SLOWDOWN * traced:
            return self._recheck_after(traced)
        risk = max(self._numpy_seconds - traced, ESTIMATE_ERROR * self._numpy_seconds)
        return max(ceil(((self._trial_seconds + risk) / MAX_TRIAL_SHARE - self._long_seconds) / traced), 0)

    def _recheck_after(self, traced: float) -> int:
        """Return the number of calls until both kinds are timed again; traced calls take `traced` seconds."""
        first = LONG_RECHECK_CALLS if traced > MIN_LONG_SECONDS else RECHECK_CALLS
        return min(first << self._checks, MAX_RECHECK_CALLS)

    def _plain_call(self, site: Any, function: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        """Call the plain function and record its time; decorated functions that it calls are not timed."""
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
        if MIN_LONG_SECONDS < traced < inf:
            self._long_seconds += taken
            self._trial_seconds += max(taken - traced, 0.0)
            enough = taken > (1 + ESTIMATE_ERROR) * traced or self._calls_before_trial() > 0
        else:
            most = SLOW_RATIO * traced + SLOW_SECONDS
            enough = len(self._plain) > 1 and min(self._plain) > most
        if enough or len(self._plain) >= (PLAIN_SAMPLES if traced > SHORT_CALL_SECONDS else ROUNDS[-1][1]):
            self._decide(site)
        return result

    def _decide(self, site: Any, wait: int = 0) -> None:
        """Choose traced or plain calls until both are timed again; `wait`: number of traced calls, if not 0.

        Slow traced calls are no evidence if NumPy ran blocks in them: then the class warms up again.
        """
        if not self._traced:
            return  # another thread has decided
        traced, plain = min(self._traced), min(self._plain, default=inf)
        bypassed = traced - plain > MIN_SAVED_SECONDS + MIN_SAVED_SHARE * plain
        if bypassed and site.interim_replays and self._warm_up_again is not None:
            self._warm_up_again()
            return
        if self._was_bypassed is not None and bypassed is not self._was_bypassed:
            self._was_bypassed = None  # the next comparison decides
            self._reset_times()
            return
        self.best = traced, plain
        self.bypassed = self._was_bypassed = bypassed
        self._limit = SLOW_RATIO * plain + SLOW_SECONDS
        trial_seconds = sum(self._traced) - len(self._traced) * plain if self._plain else 0.0
        untimed = self._recheck_after(traced)
        self._until = self.calls + max(
            untimed, ceil(trial_seconds / (MAX_TIMING_SHARE * plain)) if 0.0 < plain < inf else 0)
        self.left = min(wait or untimed, untimed)
        if traced > MIN_LONG_SECONDS and not self.bypassed:
            self._long_seconds += self.left * traced
        if self.left == untimed:
            self._checks += 1
        self._reset_times()

    def _reset_times(self) -> None:
        """Clear the times that led to a decision."""
        self._traced, self._plain = [], []
        self._skipped = self._slow_calls = 0

    def _check_plain(self, taken: float) -> None:
        """Check whether the plain function still takes its usual time."""
        if taken > self._limit:
            if not self._slow_calls or self.calls - self._since > SLOW_WINDOW_CALLS:
                self._since, self._slow_calls, self._spent = self.calls - 1, 0, 0.0
            self._slow_calls += 1
            self._spent += taken
            traced, usual = [(self.calls - self._since) * seconds for seconds in self.best]
            if self._slow_calls >= MIN_SLOW_CALLS and self._spent > max(SLOW_TOTAL_RATIO * usual, traced):
                self.bypassed = False
                retries = int(MAX_RETRY_SECONDS / max(self.best[0], MIN_SAVED_SECONDS))
                self.left = min(self._retry_calls, max(retries, MIN_SLOW_CALLS))
                self._retry_calls = min(2 * self._retry_calls, MAX_RECHECK_CALLS)
                self._reset_times()
        if self.calls >= self._until and self.bypassed:
            self.bypassed = False
            self.left = 0
            self._reset_times()


hide_module(__name__, hide_function)
