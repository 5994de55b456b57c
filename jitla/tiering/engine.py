"""The states of a call class: which calls run plain or traced, and when programs are compiled for them.

`jitla.tiering.policy` has the states, their transitions and all thresholds.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from math import inf
from time import perf_counter, process_time
from typing import Any, Protocol

from jitla.introspection import hide_module
from jitla.tiering import policy
from jitla.tiering.ledger import Ledger

__all__ = ["CallClass", "FunctionProfile", "CallState", "Tracer", "WaitingBlock"]

MEASURED_SECONDS = 1e-3  # of a plain call, from which the processors that it keeps busy are measured
SMOOTHING = 1 / 16  # weight of a call that takes longer than the estimate of plain or traced seconds
#: Growth of plain seconds after which earlier losses are no evidence any more, and how often that may happen.
SLOWDOWN_RATIO, SLOWDOWN_SECONDS, MAX_RESETS = 4.0, 5e-5, 2


class CallState(Enum):
    """What the calls of a class run, and what they wait for."""

    PLAIN = "plain"
    RECORDING = "recording"
    WAITING = "waiting for programs"
    TRIAL = "trial"
    TRACED = "traced"
    CHECKING = "checking"


class WaitingBlock(Protocol):
    """A block that NumPy runs because it has no program yet."""

    count: int  # of runs
    best_seconds: float  # of a run by NumPy
    program_seconds: float  # of a run by the program, predicted
    is_dropped: bool  # nothing waits for its program any more

    @property
    def price(self) -> float:
        """The predicted seconds of compiling it."""

    @property
    def is_waiting(self) -> bool:
        """Whether a program may still become available."""

    def ask(self, priority: float = ...) -> None:
        """Request the program, unless that was done."""


class Tracer(Protocol):
    """What call classes need of the tracer and of the compiler, for one function."""

    @property
    def is_loaded(self) -> bool:
        """Whether the tracer is loaded and the function is instrumented."""

    @property
    def is_possible(self) -> bool:
        """Whether the function can be traced, as far as known."""

    @property
    def is_wanted(self) -> bool:
        """Whether calls may be traced: compiled loops do not take most of their time."""

    @property
    def has_loops(self) -> bool:
        """Whether the function, or one that it calls, has loops."""

    @property
    def crowding(self) -> float:
        """The seconds of wall time that a second of processor time takes the compiler."""

    @property
    def is_compiling(self) -> bool:
        """Whether the compile queue is at work."""

    @property
    def loading_price(self) -> float:
        """The seconds that loading the compiler takes; 0 if it is loaded."""

    @property
    def waited(self) -> float:
        """The seconds that calls of this process have waited for the compiler."""

    def begin_class(self, args: tuple[Any, ...], kwargs: dict[str, Any], bits: int) -> None:
        """Prepare for the first call of a class, on this many elements (in bits)."""

    def load(self) -> None:
        """Load the tracer and instrument the function in the background, unless that was begun."""

    def wait(self) -> None:
        """Wait until the compile queue is empty."""

    def run_traced(
        self, site: Any, instrumented: Any, args: tuple[Any, ...], kwargs: dict[str, Any], budget: Any,
    ) -> Any:
        """Perform a traced call, which goes on plain when `budget` is exhausted."""

    def run_plain(self, site: Any, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Perform a plain call."""

    def budget(self, plain: float, allowance: float) -> Any:
        """Return the budget of a traced call whose plain call takes `plain` seconds (0: unknown)."""


class FunctionProfile:
    """The seconds of plain calls of a function, which decide when its loops and the tracer are prepared."""

    __slots__ = ("tracer", "spent", "running", "is_recursive", "traced", "_operations", "_is_loading")

    def __init__(self, tracer: Tracer, operations: int = 0) -> None:
        self.tracer = tracer
        self.spent = 0.0
        self.running = 0  # plain calls that have not returned
        self.is_recursive = False  # whether there were several at a time
        self.traced: set[CallClass] = set()  # classes whose calls are traced
        self._operations = operations  # of its code, on whole arrays
        self._is_loading = False

    def add(self, seconds: float) -> None:
        """Add the seconds of plain calls."""
        self.spent += seconds

    def is_search_due(self) -> bool:
        """Return whether plain calls have taken so long that loops are looked for."""
        return self.spent >= policy.PREPARE_SECONDS

    def load(self, plain: float, crowding: float) -> bool:
        """Return whether the tracer is loaded; begin to load it if that is worth it."""
        if self.tracer.is_loaded:
            return True
        if not self._is_loading and policy.is_worth_loading(self.spent, plain, crowding):
            self._is_loading = True
            self.tracer.load()
        return False

    def predicted_seconds(self, bits: int) -> float:
        """Return the seconds that the first call on this many elements (in bits) is predicted to take."""
        return policy.ELEMENT_SECONDS * self._operations * float(1 << bits) if bits else 0.0

    def clear(self) -> None:
        """Discard the profile."""
        self.spent = 0.0
        self.traced.clear()


class CallClass:
    """Calls of one function with similar arguments: its state, and the times that decide about it.

    `bypassed` says whether the next call is plain. After a timed one, `skip` more calls of the function, of
    whatever class, are neither looked at nor timed; they are counted as calls of this class.
    """

    __slots__ = ("elements", "bypassed", "calls", "loop_calls", "skip", "granted", "best", "state",
                 "plain", "traced", "ledger", "losses", "profile", "_timed", "_next", "_blocks",
                 "_saved_share", "_requested", "_restarts", "_recordings", "_trials", "_uncounted", "_left",
                 "_interval", "_charged", "_floor", "_resets", "_processors", "_untimed", "_skipped")

    def __init__(self, elements: int, profile: FunctionProfile, ledger: Ledger | None = None) -> None:
        self.elements = elements  # bits of their number
        self.profile = profile
        self.bypassed = not policy.is_long(profile.predicted_seconds(elements))
        self.calls = self.loop_calls = 0  # plain, and with compiled loops
        self.skip = self.granted = 0  # calls that are not timed: left, and granted at the last timed one
        self.best = 0.0, 0.0  # seconds of the last comparison: traced, plain
        self.state = CallState.PLAIN
        self.plain = self.traced = 0.0  # seconds of a call; 0: unknown
        self.ledger = ledger or Ledger()
        self.losses = 0
        self._timed = 0  # plain calls
        self._next = 0.0  # spent seconds before which a plain class is not tried
        self._blocks: list[WaitingBlock] = []  # that a recorded call ran by NumPy
        self._saved_share = 0.0  # of the plain seconds, that their programs are predicted to save
        self._requested = False
        self._restarts = self._recordings = self._uncounted = 0
        self._trials: list[float] = []  # seconds of the calls of a trial, or of plain calls of a check
        self._left, self._interval = policy.FIRST_CHECK_CALLS, policy.FIRST_CHECK_CALLS  # calls until a check
        self._charged = 0.0  # to the ledger since calls are traced
        self._floor, self._resets = inf, 0  # plain seconds at the last loss
        self._processors = 0.0  # that plain calls keep busy
        self._untimed = self._skipped = 0  # traced calls that are not timed: left, and granted

    @property
    def is_cold(self) -> bool:
        """Whether no call was traced so far."""
        return self.state is CallState.PLAIN and not self.losses

    # -- plain calls --------------------------------------------------------------------------

    def bypass(
        self, site: Any, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
        is_plain: bool = True,
    ) -> Any:
        """Perform a plain call, by a `function` that is the one written by the user, or has compiled loops.
        """
        count = 1 + self.granted - self.skip
        self.skip = self.granted = 0
        if site is not None:
            site.calls += count
        if is_plain:
            self.calls += count
        else:
            self.loop_calls += count
        is_measured = self.plain > MEASURED_SECONDS and self._timed < policy.TIMED_CALLS
        worked = process_time() if is_measured else 0.0
        profile = self.profile
        profile.running += 1
        if profile.running > 1:
            profile.is_recursive = True
        start = perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            seconds = perf_counter() - start
            profile.running -= 1
            if is_measured and not self.profile.tracer.is_compiling:
                self._processors = max(self._processors, (process_time() - worked) / seconds)
            self._add_plain(seconds, count)

    def _add_plain(self, seconds: float, count: int) -> None:
        """Account for a timed plain call, and for untimed ones before it; begin what is due."""
        self._timed += 1
        self.ledger.spent += count * seconds
        self.profile.add(count * seconds)
        self.plain = _estimate(self.plain, seconds)
        if self.state is CallState.WAITING:
            self._wait()
        elif self.ledger.spent >= self._next:
            self._advance()
        # Calls that are not looked at may be of any class.
        if self.bypassed and not self.profile.traced:
            self.skip = self.granted = policy.untimed_calls(
                seconds, self._timed, self.profile.is_recursive)

    def _advance(self) -> None:
        """Have the next call recorded if that is worth it."""
        tracer = self.profile.tracer
        if self.losses >= policy.MAX_LOSSES:
            self._reset_losses()
            return
        if not (tracer.is_possible and tracer.is_wanted):
            self._next = policy.PENALTY_GROWTH * self.ledger.spent
            return
        risk = policy.LOOP_RISK * self.plain if tracer.has_loops else 0.0
        if not policy.may_trial(self.ledger.allowance(), self.losses, risk):
            return
        if not self.profile.load(self.plain, self._crowding):
            self._let_compile()
        elif policy.is_worth_recording(self.ledger.spent, self.plain):
            self.state, self.bypassed = CallState.RECORDING, False
            self._recordings = 0

    @property
    def _is_crowding(self) -> bool:
        """Whether plain calls keep all processors busy."""
        return self._processors > policy.CROWDED_PROCESSORS

    @property
    def _crowding(self) -> float:
        """The seconds that a second of processor time takes the compiler."""
        return max(self.profile.tracer.crowding, inf if self._is_crowding else 1.0)

    def _let_compile(self) -> None:
        """Wait for the compiler if library threads of the next call would compete with it for processors.

        Such threads wait for each other by spinning: a call may take many times as long.
        """
        tracer = self.profile.tracer
        if self._is_crowding and tracer.is_compiling:
            tracer.wait()  # no loss: the price of compiling was weighed against what calls have taken

    def _reset_losses(self) -> None:
        """Allow one more trial if plain calls take far longer than they did when trials lost."""
        if self.plain > SLOWDOWN_RATIO * self._floor + SLOWDOWN_SECONDS and self._resets < MAX_RESETS:
            self._resets += 1
            self._floor, self.losses = self.plain, policy.MAX_LOSSES - 1

    def _wait(self) -> None:
        """Request the programs of the recorded blocks once that is worth it; begin the trial with them."""
        waiting = [block for block in self._blocks if block.is_waiting]
        if not waiting:
            self._begin_trial()
            return
        tracer = self.profile.tracer
        price = sum(block.price for block in waiting) + tracer.loading_price
        if not self._requested and policy.is_worth_compiling(
                self.ledger.spent, self._saved_share, price, self._crowding):
            self._requested = True
            for block in waiting:
                block.ask(self._saved_share / price)
            self._let_compile()

    def _begin_trial(self) -> None:
        self.state, self.bypassed = CallState.TRIAL, False
        self._blocks, self._trials, self._uncounted = [], [], 0

    # -- traced calls -------------------------------------------------------------------------

    def weigh(
        self, site: Any, function: Callable[..., Any], instrumented: Callable[..., Any],
        args: tuple[Any, ...], kwargs: dict[str, Any],
    ) -> Any:
        """Perform a call that is not bypassed: traced, or plain for a check."""
        state = self.state
        if state is CallState.TRACED:
            if self._untimed > 0:
                self._untimed -= 1
                self._left -= 1
                return self.profile.tracer.run_traced(site, instrumented, args, kwargs, None)
            return self._run_traced(site, instrumented, args, kwargs)
        if state is CallState.CHECKING:
            return self._check(site, function, args, kwargs)
        if not self.profile.tracer.is_wanted:  # loops were found since
            self.state, self.bypassed = CallState.PLAIN, True
            return self.bypass(site, function, args, kwargs)
        return self._try(site, instrumented, args, kwargs)

    def _try(self, site: Any, instrumented: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Perform a recorded call, or one of a trial, until its deadline."""
        tracer = self.profile.tracer
        counts = {id(block): block.count for block in list(site.interim_replays)}
        notes, predicted = site.annotated_calls, 0.0 if self.plain else site.numpy_seconds()
        budget = tracer.budget(self.plain, max(self.ledger.allowance(), 0.0))
        start = perf_counter() - tracer.waited
        try:
            return tracer.run_traced(site, instrumented, args, kwargs, budget)
        finally:
            taken = perf_counter() - tracer.waited - start
            self.ledger.spent += taken
            if self.plain:
                self.ledger.lose(taken - self.plain)
            else:
                predicted = site.numpy_seconds() - predicted
            blocks = [block for block in list(site.interim_replays)
                      if block.count > counts.get(id(block), 0)]
            if budget.traced_seconds:
                self._lose(blocks, taken)
            elif blocks:
                runs = [block.count - counts.get(id(block), 0) for block in blocks]
                numpy = sum(n * block.best_seconds for n, block in zip(runs, blocks, strict=True))
                programs = sum(n * block.program_seconds for n, block in zip(runs, blocks, strict=True))
                self._record(blocks, taken, numpy, programs)
            elif site.is_planning(notes) and self._uncounted < policy.MAX_UNCOUNTED_CALLS:
                self.state = CallState.TRIAL  # the next call decides: this one has made new plans
                self._uncounted += 1
            else:
                self._judge(taken, predicted)

    def _record(self, blocks: list[Any], taken: float, numpy: float, programs: float) -> None:
        """Wait for the programs of blocks that take `numpy` now, if these are predicted to save enough.

        A traced call takes `programs` for the blocks then, and as long as now for all else. A first recorded
        call takes more, for building blocks: of a long call the plain seconds tell how much more.
        """
        self._recordings += 1
        plain = self.plain or taken
        is_first = self._recordings == 1
        if is_first and plain < policy.LONG_RECORDING_SECONDS:
            self.state, self.bypassed = CallState.RECORDING, False
            return
        predicted = max((min(plain, taken) if is_first else taken) - numpy, 0.0) + programs
        if policy.is_gain(predicted, plain) and self._restarts <= policy.MAX_RESTARTS:
            self._restarts += 1
            self._blocks, self._requested = blocks, False
            self._saved_share = 1.0 - predicted / plain
            self.state, self.bypassed = CallState.WAITING, True
            self._wait()
        elif self._recordings < policy.MAX_RECORDINGS and self._restarts <= policy.MAX_RESTARTS:
            self.state, self.bypassed = CallState.RECORDING, False
        else:
            self._lose(blocks, taken)

    def _judge(self, taken: float, predicted: float) -> None:
        """Adopt traced calls, or go back to plain ones, once trials are clear."""
        self.state = CallState.TRIAL
        if not self.plain:  # the first call was long, and is compared with what NumPy is predicted to take
            if not policy.is_gain(taken, predicted):
                self.state, self.bypassed = CallState.PLAIN, True
                return
            self.plain = predicted
        self._trials.append(taken)
        best, count = min(self._trials), len(self._trials)
        if count < policy.TRIAL_CALLS and not (
                policy.is_clear(best, self.plain) and (best < self.plain or count > 1)):
            return
        if policy.is_gain(best, self.plain):
            self.best = best, self.plain
            self.state, self.traced, self._charged = CallState.TRACED, best, 0.0
            self.profile.traced.add(self)
            self._left = self._interval = policy.FIRST_CHECK_CALLS
        else:
            self._lose([], best)

    def _lose(self, blocks: list[Any], traced: float) -> None:
        """Go back to plain calls after a loss; `blocks` that wait for programs do not any more."""
        for block in blocks:
            block.is_dropped = True
        self.best = traced, self.plain or inf
        self.losses += 1
        self.profile.traced.discard(self)
        self.state, self.bypassed = CallState.PLAIN, True
        self._floor = self.plain or inf
        self._next = policy.PENALTY_GROWTH * self.ledger.spent
        self._blocks, self._trials, self._uncounted = [], [], 0

    def _run_traced(self, site: Any, instrumented: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Perform a timed call of a class that is traced."""
        tracer = self.profile.tracer
        start = perf_counter()
        try:
            return tracer.run_traced(site, instrumented, args, kwargs, None)
        finally:
            taken = perf_counter() - start
            self._left -= 1
            self.ledger.spent += taken * (1 + self._skipped)
            self._skipped = 0
            self.traced = _estimate(self.traced, taken)
            excess = taken - self.plain
            if excess > 0.0:
                self.ledger.lose(excess)
                self._charged += excess
            if self._left <= 0 or excess > 0.0 and self.ledger.allowance() < 0.0:
                self._reconsider(site, excess > 0.0)
            else:
                self._untimed = policy.untimed_calls(taken, policy.TIMED_CALLS) if excess < 0.0 else 0
                self._skipped = self._untimed

    def _reconsider(self, site: Any, is_slow: bool) -> None:
        """Time plain calls again, or wait for programs of new blocks that have made traced calls slow."""
        blocks = [block for block in list(site.interim_replays) if block.is_waiting]
        if is_slow and blocks and self._restarts < policy.MAX_RESTARTS:
            self._restarts += 1
            self._blocks, self._requested = blocks, True
            self._saved_share = 1.0
            self.state, self.bypassed = CallState.WAITING, True
            price = sum(block.price for block in blocks)
            for block in blocks:
                block.ask(1.0 / max(price, 1e-6))
        elif is_slow or policy.CHECK_CALLS * (self.plain - self.traced) <= self.ledger.allowance():
            self.state, self._trials = CallState.CHECKING, []
        else:
            self._left = self._interval

    def _check(
        self, site: Any, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
    ) -> Any:
        """Perform a plain call, to compare it with traced ones."""
        start = perf_counter()
        try:
            return self.profile.tracer.run_plain(site, function, args, kwargs)
        finally:
            taken = perf_counter() - start
            self.calls += 1
            self.ledger.spent += taken
            self._trials.append(taken)
            if len(self._trials) >= policy.CHECK_CALLS:
                self._compare(min(self._trials))

    def _compare(self, plain: float) -> None:
        """Decide by the seconds of the plain calls of a check."""
        self.best = self.traced, plain
        self.plain = plain
        if policy.is_gain(plain, self.traced):
            self._lose([], self.traced)
            return
        self.ledger.lose(policy.CHECK_CALLS * (plain - self.traced))
        self.ledger.forgive(self._charged)  # plain calls would have taken as long
        self._charged = 0.0
        self._interval *= 4
        self.state, self._left, self._trials = CallState.TRACED, self._interval, []


def _estimate(estimate: float, seconds: float) -> float:
    """Return the estimate of the seconds of a call after one more: that is the least, or grows slowly."""
    if not estimate or seconds < estimate:
        return seconds
    return estimate + SMOOTHING * (seconds - estimate)


hide_module(__name__)
