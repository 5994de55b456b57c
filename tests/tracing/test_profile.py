"""Profiles of calls: which are traced, which are left to the plain function, and for how long."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable
from math import inf
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.lib.stride_tricks import sliding_window_view

import jitla
from jitla.dispatch import tiering as tiers
from jitla.profiling import call_classes as cold
from jitla.profiling.call_classes import (
    MAX_CALL_CLASSES,
    MAX_COLD_BITS,
    REFERENCE_CODE_BYTES,
    CallClasses,
    ColdCallClass,
    seconds_before_tracing,
)
from jitla.profiling.loop_detector import is_loop_free
from jitla.tracing import fallback as retreat
from jitla.tracing import profile as onset
from jitla.tracing import profile as payoff
from jitla.tracing.fallback import (
    CHECK_INTERVAL_SECONDS,
    MAX_COST_RATIO,
    MAX_EXTRA_SECONDS,
    MAX_NEW_BLOCKS,
    MIN_NEW_BLOCK_SECONDS,
    MIN_RECHECK_SECONDS,
    TracingBudget,
)
from jitla.tracing.force import ClosedBlock
from jitla.tracing.frames import LOCAL
from jitla.tracing.profile import (
    MAX_SLOWDOWN,
    MAX_TRIAL_SHARE,
    MAX_UNTIMED_CALLS,
    RECHECK_CALLS,
    RETRY_CALLS,
    ROUNDS,
    SLOW_WINDOW_CALLS,
    TimedClass,
)
from jitla.tracing.site import ANNOTATED_CALLS, Site
from tests.tracing.sameness import same

# Which calls are left to the plain function, when that is looked at again, and that nothing runs twice.
#
# The clock is the tests': it moves when a call is traced, or the plain function runs, and by nothing else.

X = np.arange(10.0)
TRACED_SAMPLES, PLAIN_SAMPLES = ROUNDS[-1]  # of short calls
LEARNT = MAX_UNTIMED_CALLS + TRACED_SAMPLES  # calls after which the plain function is tried, at the latest
LOOKS = 2 * (TRACED_SAMPLES + PLAIN_SAMPLES)  # calls of both looks after which short calls go the other way
SETTLED = LEARNT + PLAIN_SAMPLES  # and after which it is known which way is faster


class Clock:
    """A clock that tells how many seconds calls took: each, traced or plain."""

    def __init__(self, traced: float, plain: float) -> None:
        self.traced, self.plain = traced, plain
        self.now = 0.0
        self.ways: list[str] = []

    def tick(self) -> None:
        """Note that a function's body runs, and let it take its time."""
        way = "plain" if LOCAL.session is None and not self.tracing else "traced"
        self.ways.append(way)
        self.now += self.plain if way == "plain" else self.traced

    tracing = False


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock of which traced calls take ten microseconds, plain ones two."""
    made = Clock(1e-5, 2e-6)
    run = payoff.run_traced

    def traced(*given: Any) -> Any:
        outer, made.tracing = made.tracing, True
        try:
            return run(*given)
        finally:
            made.tracing = outer

    monkeypatch.setattr(payoff, "perf_counter", lambda: made.now)
    monkeypatch.setattr(payoff, "run_traced", traced)
    monkeypatch.setattr(CallClasses, "_new_class", lambda self, key, bits: TimedClass(bits))
    monkeypatch.setattr(payoff, "UNTIMED_PLAIN_CALLS", 0)
    monkeypatch.setattr(tiers, "TIMES", -1.0)  # programs are there before they run
    return made


def ticking(clock: Clock, **options: Any) -> Callable[..., Any]:
    """A decorated function that tells the clock how it runs."""
    @jitla.jit(**{"compile": "auto", **options})
    def doubled(x: Any, *more: Any, **others: Any) -> Any:
        clock.tick()
        return x * 2.0

    return doubled


def ways(clock: Clock, function: Callable[..., Any], count: int, *args: Any) -> set[str]:
    """Return which ways `count` calls go."""
    before = len(clock.ways)
    for _ in range(count):
        function(*args)
    assert len(clock.ways) == before + count  # each runs once
    return set(clock.ways[before:])


def test_calls_that_are_slower_traced_are_left_to_the_plain_function(clock: Clock) -> None:
    f = ticking(clock)
    assert ways(clock, f, ANNOTATED_CALLS + ROUNDS[0][0], X) == {"traced"}
    ways(clock, f, SETTLED, X)
    assert ways(clock, f, 100, X) == {"plain"}
    assert (f(X) == X * 2.0).all() and type(f(X)) is np.ndarray
    assert f.stats().calls == len(clock.ways) and f.stats().bypassed == clock.ways.count("plain")


def test_calls_that_are_faster_traced_stay_traced(clock: Clock) -> None:
    clock.plain = 1e-5
    f = ticking(clock)
    ways(clock, f, SETTLED, X)
    assert clock.ways.count("plain") == PLAIN_SAMPLES
    assert ways(clock, f, RECHECK_CALLS - SETTLED, X) == {"traced"}
    assert f.stats().bypassed == PLAIN_SAMPLES


def test_two_calls_that_take_far_longer_plain_are_enough(clock: Clock) -> None:
    clock.plain = 1e-3
    f = ticking(clock)
    ways(clock, f, SETTLED + 100, X)
    assert clock.ways.count("plain") == 2


@pytest.fixture
def foreseen(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that NumPy is foreseen to take for one call."""
    seconds, all_calls = [1.0], [0.0]

    def by_numpy(site: Site) -> float:  # asked before a call and after it
        all_calls[0] += seconds[0]
        return all_calls[0]

    monkeypatch.setattr(Site, "numpy_seconds", by_numpy)
    return seconds


def test_long_calls_are_tried_if_numpy_is_foreseen_to_be_about_as_fast(
    clock: Clock, foreseen: list[float]
) -> None:
    clock.traced, clock.plain, foreseen[0] = 1.0, 0.5, 0.6
    f = ticking(clock)
    ways(clock, f, SETTLED + ANNOTATED_CALLS, X)
    assert ways(clock, f, 100, X) == {"plain"}


def test_long_calls_are_never_tried_if_numpy_is_foreseen_to_be_far_slower(
    clock: Clock, foreseen: list[float]
) -> None:
    clock.traced, clock.plain, foreseen[0] = 1.0, 0.5, 1.01 * MAX_SLOWDOWN
    assert ways(clock, ticking(clock), 3 * RECHECK_CALLS, X) == {"traced"}


def test_values_that_numpy_would_have_no_room_for_are_never_tried(clock: Clock) -> None:
    clock.traced = 1.0

    @jitla.jit(compile="auto")
    def f(x: Any) -> Any:
        clock.tick()
        return (x[:, None] * x).sum()

    x = np.zeros(20_000)
    for _ in range(SETTLED):
        assert f(x) == 0.0
    assert set(clock.ways) == {"traced"}


@pytest.mark.parametrize(("plain", "foresees"), [(1.2, 0.9), (1.9, 1.9), (10.0, 0.9), (1.05, 1.5)])
def test_tries_of_long_calls_take_a_small_part_of_all(
    clock: Clock, foreseen: list[float], plain: float, foresees: float
) -> None:
    clock.traced, clock.plain, foreseen[0] = 1.0, plain, foresees
    f = ticking(clock)
    ways(clock, f, 2000, X)
    tried = clock.ways.count("plain")
    assert 0 < tried and tried * (plain - 1.0) <= MAX_TRIAL_SHARE * clock.now
    first = clock.ways.index("plain")
    assert plain > 2 or plain - 1.0 <= 2 * MAX_TRIAL_SHARE * max(first, 2.5)


def test_a_slow_moment_decides_about_few_long_calls(clock: Clock, foreseen: list[float]) -> None:
    clock.traced, clock.plain, foreseen[0] = 1.0, 5.0, 0.6
    f = ticking(clock)
    while "plain" not in clock.ways:
        f(X)
    clock.plain = 0.5
    before = len(clock.ways)
    while clock.ways[-10:] != ["plain"] * 10:
        f(X)
    assert len(clock.ways) - before < RECHECK_CALLS // 2  # what the slow try has lost is made up for first
    clock.plain = 100.0
    ways(clock, f, payoff.MIN_SLOW_CALLS, X)
    clock.plain = 0.5
    ways(clock, f, payoff.MIN_SLOW_CALLS + 2 * (TRACED_SAMPLES + PLAIN_SAMPLES), X)
    assert ways(clock, f, 20, X) == {"plain"}


def test_sizes_of_sparse_matrices_belong_to_the_kind() -> None:
    kinds = CallClasses("", 0, tuple)
    small, large, wide = (sp.random_array(shape, density=d, format="csr", rng=1)
                          for shape, d in (((20, 20), 0.1), ((20, 20), 0.9), ((20, 200), 0.01)))
    found = [kinds.class_of((x,), {}) for x in (small, large, wide, small.copy())]
    assert len(set(map(id, found))) == 3 and found[3] is found[0]
    assert kinds.class_of((sp.coo_array(small),), {}) not in found


def test_the_more_code_there_is_the_later_it_is_traced() -> None:
    assert seconds_before_tracing(1e-3) == seconds_before_tracing(1e-3, REFERENCE_CODE_BYTES // 2) > 0.0
    assert seconds_before_tracing(1e-3,
                                  3 * REFERENCE_CODE_BYTES) == pytest.approx(3 * seconds_before_tracing(1e-3))


@pytest.mark.parametrize("given", [(), (np.ones(3),), (np.ones(1 << 17),), (3, "name", [1.0])])
def test_calls_are_traced_once_plain_ones_have_taken_long_enough_whatever_they_are_given(
    monkeypatch: pytest.MonkeyPatch, given: tuple[Any, ...],
) -> None:
    now = [0.0]
    monkeypatch.setattr(cold, "perf_counter", lambda: now[0])

    def plain_seconds(taken: float) -> float:
        kind, begun = CallClasses("", 0, tuple).class_of(given, {}), now[0]
        assert type(kind) is ColdCallClass
        while kind.bypassed:
            now[0] += kind.skip * taken
            kind.skip = 0
            kind.bypass(None, lambda *_: now.__setitem__(0, now[0] + taken), given, {})
        return now[0] - begun

    for taken in (1e-5, 1e-3, 0.02):
        patience = seconds_before_tracing(taken)
        assert 0.999 * patience <= plain_seconds(taken) <= 1.3 * patience + taken
    assert seconds_before_tracing(1e-5) > seconds_before_tracing(1e-3) < seconds_before_tracing(1e-3,
        is_loaded=False)


def shown(x: Any) -> Any:
    return np.abs(sliding_window_view(x, 1)[:, 0])  # NumPy's has loops over axes


def shown_twice(x: Any) -> Any:
    return shown(x) + shown(x)


def shown_often(x: Any) -> Any:
    for _ in range(3):
        x = shown(x)
    return x


def shown_by_another(x: Any) -> Any:
    return shown_often(x) + shown_by_another(x)


def test_what_is_done_once_is_not_traced_in_its_first_call() -> None:
    assert is_loop_free(shown) and is_loop_free(shown_twice)
    assert not is_loop_free(shown_often) and not is_loop_free(shown_by_another)
    for function, left in ((shown_twice, 1), (shown_often, 0)):
        f = jitla.jit(function, compile="auto")
        f(np.ones(1 << MAX_COLD_BITS))
        assert f.stats().bypassed == left, function


@pytest.mark.parametrize(
    "options", [{"compile": "sync"}, {"strict": True}, {"verify": True}, {"memory_limit": "1GB"}])
def test_some_options_have_every_call_traced(clock: Clock, options: dict[str, Any]) -> None:
    f = jitla.jit(**options)(lambda x: x * 2.0)
    with jitla.options(compile=options.get("compile", "auto")):
        for _ in range(SETTLED + 10):
            f(X)
    assert f.stats().bypassed == 0 and f.stats().kernel_runs == SETTLED + 10


@pytest.mark.parametrize("traced, returns, wanted", [
    (3e-6, 1, "waits"), (3e-6, 0, "timed again"), (2.1e-6, 1, "as before")])
def test_calls_that_meet_new_blocks_wait_for_their_programs_if_they_take_longer(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, traced: float, returns: int, wanted: str,
) -> None:
    waited: list[str] = []

    def run(*given: Any) -> None:
        clock.now += traced

    monkeypatch.setattr(payoff, "run_traced", run)
    kind = TimedClass(4, 0.0, (lambda: waited.append("waits")) if returns else None)
    kind.best, kind.left = (1e-6, 2e-6), 100
    site = SimpleNamespace(interim_replays=set())
    kind.weigh(site, len, len, (), {})
    site.interim_replays.add("a block")
    kind.weigh(site, len, len, (), {})
    assert (kind.left, waited) == (98, [])
    kind.weigh(site, len, len, (), {})
    assert (kind.left, waited) == {
        "waits": (97, ["waits"]), "timed again": (0, []), "as before": (97, [])}[wanted]


def test_calls_of_another_kind_are_looked_at_for_themselves(clock: Clock) -> None:
    f = ticking(clock)
    ways(clock, f, SETTLED, X)
    assert ways(clock, f, 5, np.arange(15.0)) == {"plain"}  # as many elements, but for a factor below 2
    for other in ((np.arange(100.0),), (X, 3), (X, "word"), (X, [X]), (X, None)):
        assert ways(clock, f, ANNOTATED_CALLS, *other) == {"traced"}
        ways(clock, f, SETTLED, *other)
        assert ways(clock, f, 5, *other) == {"plain"}
    assert ways(clock, f, 5, X, 2) == {"plain"}  # a number of as many bits
    assert ways(clock, f, 5, X) == {"plain"}


def test_keywords_belong_to_the_kind(clock: Clock) -> None:
    f = ticking(clock)
    ways(clock, f, SETTLED, X)
    f(X, power=3)
    assert clock.ways[-1] == "traced"


def test_both_ways_are_timed_again_after_a_while(clock: Clock) -> None:
    f = ticking(clock)
    ways(clock, f, SETTLED, X)
    clock.traced = 1e-6
    while clock.ways[-1] == "plain":
        f(X)
    assert len(clock.ways) in range(RECHECK_CALLS, RECHECK_CALLS + SETTLED + 2)
    ways(clock, f, LOOKS, X)
    assert ways(clock, f, 2 * RECHECK_CALLS - 1, X) == {"traced"}
    clock.traced = 1e-5
    ways(clock, f, LOOKS + RECHECK_CALLS, X)
    assert ways(clock, f, 100, X) == {"plain"}


def test_a_slow_moment_does_not_turn_short_calls_round(clock: Clock) -> None:
    f = ticking(clock)
    ways(clock, f, SETTLED, X)
    while clock.ways[-1] == "plain":
        f(X)
    clock.plain = 1.5e-5  # another program has the processor
    ways(clock, f, TRACED_SAMPLES + PLAIN_SAMPLES - 1, X)
    clock.plain = 2e-6
    ways(clock, f, TRACED_SAMPLES + PLAIN_SAMPLES, X)
    assert ways(clock, f, 100, X) == {"plain"}


def test_both_ways_are_timed_by_turns(clock: Clock) -> None:
    f = ticking(clock)
    ways(clock, f, ANNOTATED_CALLS + ROUNDS[0][0], X)
    ways(clock, f, SETTLED, X)
    first = clock.ways.index("plain")
    assert clock.ways[first - 4 : first + 16] == (["traced"] * 4 + ["plain"] * 6) * 2


def test_a_plain_function_that_takes_far_longer_all_at_once_is_traced_again(clock: Clock) -> None:
    f = ticking(clock)
    ways(clock, f, SETTLED + 2 * SLOW_WINDOW_CALLS, X)
    clock.plain = 1.0
    assert ways(clock, f, payoff.MIN_SLOW_CALLS, X) == {"plain"}
    assert ways(clock, f, RETRY_CALLS, X) == {"traced"}


def test_single_long_calls_change_nothing(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payoff, "RECHECK_CALLS", 1 << 12)
    f = ticking(clock)
    ways(clock, f, SETTLED, X)
    for _ in range(5):
        clock.plain = 5e-3  # another program had the processor
        f(X)
        clock.plain = 2e-6
        assert ways(clock, f, 600, X) == {"plain"}


def test_times_of_calls_that_make_plans_do_not_count(clock: Clock) -> None:
    f = ticking(clock)
    clock.traced = 1e-9  # of those that learn
    ways(clock, f, ANNOTATED_CALLS, X)
    clock.traced = 1e-5
    ways(clock, f, SETTLED, X)
    assert ways(clock, f, 5, X) == {"plain"}


def test_decorated_functions_that_a_timed_plain_call_calls_are_not_timed(clock: Clock) -> None:
    inner = ticking(clock)

    @jitla.jit(compile="auto")
    def outer(x: Any) -> Any:
        clock.tick()
        return inner(x) + inner(x)

    while "plain" not in clock.ways:
        assert inner.stats().calls == 0
        outer(X)
    assert clock.ways[-3:] == ["plain"] * 3 and clock.ways.count("plain") == 3
    assert not LOCAL.timing and inner.stats().bypassed == 0
    for _ in range(30):
        outer(X)
    assert ways(clock, inner, 5, X) == {"plain"}  # it has found out by itself


def test_explain_and_coverage_tell_what_was_left_to_the_plain_function(clock: Clock) -> None:
    f = ticking(clock)
    ways(clock, f, SETTLED + 100, X)
    row = "doubled  .*test_profile.py:.*whole calls, on 8 to 15 elements: 2 us each, traced 10 us"
    for text in (str(jitla.explain(f)), jitla.coverage()):
        assert any(re.search(row, line) for line in text.split("\n")), text
    f.cache_clear()
    assert f.stats().bypassed == 0 and "whole calls" not in str(jitla.explain(f))


def test_errors_come_through_and_leave_nothing_behind(clock: Clock) -> None:
    @jitla.jit(compile="auto")
    def f(x: Any, k: int) -> Any:
        clock.tick()
        if k < 0:
            raise ValueError(k)
        return x[k]

    for k in [3, -1] * SETTLED:
        if k < 0:
            with pytest.raises(ValueError, match="-1") as caught:
                f(X, k)
            files = {entry.path.name for entry in caught.traceback}
            assert files == {"test_profile.py"}
        else:
            assert f(X, k) == 3.0
    assert clock.ways[-2] == "plain" and not LOCAL.timing and LOCAL.session is None


def test_kinds_are_bounded() -> None:
    known = CallClasses("file", 1, tuple)
    for n in range(3 * MAX_CALL_CLASSES):
        known.class_of((f"{n}",), {})
    assert len(known.kinds) <= MAX_CALL_CLASSES


@pytest.mark.threads
def test_threads_decide_together(clock: Clock) -> None:
    f = ticking(clock)
    wrong: list[Any] = []

    def work() -> None:
        for n in range(300):
            x = np.arange(1.0, 2.0 + n % 40)
            if not (f(x) == x * 2.0).all():
                wrong.append(x)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and f.stats().calls == 1200 and f.stats().bypassed > 0


PROGRAMS = {
    "methods": """
class Model:
    def __init__(self): self.w = np.arange(6.0); self.n = 0
    @jit
    def step(self, x):
        self.n += 1
        self.w -= 0.1 * x
        return self.w.sum() * self.n
model = Model()
def f(a, b): return [model.step(a) for _ in range(40)], model.w.copy(), model.n
def state(): return model
""",
    "closures": """
def make():
    return array((6,), 'f8', 'C', 'normal', 1), array((6,), 'f8', 'C', 'normal', 2)
def f(a, b):
    count = 0
    @jit
    def g(x):
        nonlocal count
        count += 1
        return x * b + count
    return [g(a) for _ in range(40)], count
""",
    "in place": """
@jit
def g(x, y):
    x += y
    x[1:] *= 0.5
    return x
def f(a, b):
    return [g(a, b) is a for _ in range(40)], a
""",
    "recursion": """
@jit
def g(x, n):
    return x if n == 0 else g(x * 0.5 + 1.0, n - 1) + x
def f(a, b): return [g(a, 5) for _ in range(40)]
""",
    "generators": """
@jit
def g(x):
    for k in range(3): yield x * k
def f(a, b): return [list(g(a)) for _ in range(40)]
""",
    "callbacks": """
@jit
def h(x): return x + 1.0
@jit
def g(x, y): return sorted([x, y], key=lambda v: float(h(v).sum()))[0] - h(y)
def f(a, b): return [g(a, b) for _ in range(40)]
""",
    "warnings": """
@jit
def g(x): return np.sqrt(x - 100.0)
def f(a, b): return [g(a) for _ in range(40)]
""",
    "sizes": """
@jit
def g(x): return (x * x).sum() + x[::2].sum()
def f(a, b): return [g(np.arange(1.0, 2.0 + n % 23)) for n in range(400)]
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_the_same_whichever_way_calls_go(name: str) -> None:
    with jitla.options(compile="auto"):
        same(PROGRAMS[name], calls=3)


def test_what_numpy_took_for_a_block_is_what_it_is_foreseen_to_take() -> None:
    made = ClosedBlock(None, (), (), (), {})
    made.set_numpy_seconds(inf)  # it has not run
    assert made.numpy_seconds == 0.0
    made.set_numpy_seconds(0.25)
    assert made.numpy_seconds == 0.25


# Tests of `jitla.tracing.profile`: calls of a new kind.


class Block:
    """A block that waits for its program."""

    def __init__(
        self, program_seconds: float = 0.0, request_after: float = 1e9, numpy_seconds: float = 0.0,
    ) -> None:
        self.program_seconds, self.request_after = program_seconds, request_after
        self.numpy_seconds, self.count = numpy_seconds, 0


@pytest.mark.parametrize("plain, traced, wanted", [
    (0.008, 0.05, "ttppppp"), (0.04, 0.043, "ttptttt"), (0.04, 0.05, "ttptppp")])
def test_long_calls_are_traced_while_that_does_not_take_much_longer(
        monkeypatch: pytest.MonkeyPatch, plain: float, traced: float, wanted: str) -> None:
    done: list[str] = []

    def call(way: str, seconds: float) -> Any:
        def act(*given: Any) -> None:
            done.append(way)
            clock[0] += seconds
        return act

    clock = [0.0]
    monkeypatch.setattr(onset, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(onset, "run_traced", call("t", traced))
    monkeypatch.setattr(onset, "run_untraced", call("p", plain))
    kind = onset.WarmUp(10, pytest.fail)
    site = SimpleNamespace(interim_replays=[Block()], request_programs=pytest.fail)
    for _ in range(7):
        kind.weigh(site, len, len, (), {})
    assert "".join(done) == wanted


def test_short_calls_that_wait_are_noted_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]

    def run_untraced(*given: Any) -> None:
        clock[0] += onset.UNTIMED_SECONDS / 10.5

    monkeypatch.setattr(onset, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(onset, "run_untraced", run_untraced)
    monkeypatch.setattr(onset, "run_traced", run_untraced)
    site = SimpleNamespace(interim_replays=[Block()], request_programs=lambda again: None, calls=0)
    kind = onset.WarmUp(10, pytest.fail)
    kind.weigh(site, len, len, (), {})
    assert kind.bypassed and kind.skip == kind.granted == 10
    kind.skip -= 7  # calls that went by
    kind.bypass(site, len, (), {})
    assert (kind.calls, site.calls, kind.skip) == (8, 7, 10)  # `run_untraced` counts its own
    assert kind._spent == pytest.approx(9 * onset.UNTIMED_SECONDS / 10.5)
    site.interim_replays.clear()
    kind.bypass(site, len, (), {})
    assert not kind.bypassed and not kind.skip


@pytest.mark.parametrize(("program_seconds", "left"), [(1.1e-3, True), (0.9e-3, False)])
def test_blocks_that_cannot_make_up_for_tracing_wait_no_longer(
        monkeypatch: pytest.MonkeyPatch, program_seconds: float, left: bool) -> None:
    clock, block = [0.0], Block(program_seconds)

    def traced(*given: Any) -> None:
        clock[0] += 2e-2
        block.count += 10

    monkeypatch.setattr(onset, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(onset, "run_traced", traced)
    site = SimpleNamespace(interim_replays={block}, request_programs=pytest.fail, calls=0)
    found = TimedClass(10)
    kind = onset.WarmUp(10, lambda plain: found, 0.0, 1e-2)  # a plain call takes half as long
    kind.weigh(site, len, len, (), {})
    assert found.bypassed is left and (block in site.interim_replays) is not left
    assert found.best == ((2e-2, 1e-2) if left else (0.0, 0.0))
    assert kind.bypassed is not left


@pytest.mark.parametrize(("ended", "asked"), [(0.0, 0.5), (2e-3, 0.1)])
def test_time_that_no_program_saves_asks_for_none(
        monkeypatch: pytest.MonkeyPatch, ended: float, asked: float) -> None:
    """Of a call that soon went on plain only the beginning tells what part programs save."""
    clock, hurried = [0.0], []

    def run_untraced(*given: Any) -> None:
        clock[0] += 1e-2
        if isinstance(given[-1], TracingBudget):
            given[-1].traced_seconds = ended

    monkeypatch.setattr(onset, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(onset, "run_untraced", run_untraced)
    monkeypatch.setattr(onset, "run_traced", run_untraced)
    blocks = Block(request_after=0.05, numpy_seconds=1e-3)  # a tenth of a call
    site = SimpleNamespace(
        interim_replays=[blocks], request_programs=lambda again: hurried.append(round(clock[0], 6)))
    kind = onset.WarmUp(10, pytest.fail)
    for _ in range(50):
        kind.weigh(site, len, len, (), {})
    assert hurried[0] == pytest.approx(asked, abs=0.02)


# Calls whose tracing costs more than it can give go on plain.

MANY = 1 << 19  # elements: not left to the plain function at first


def held(*names: str) -> list[type]:
    """Return the types of the locals of `f`, whatever they pretend to be."""
    frame = sys._getframe(1)
    while frame.f_code.co_name != "f":
        frame = frame.f_back
    found = frame.f_locals
    return [object.__getattribute__(found[name], "__class__") for name in names]


def test_locals_are_arrays_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    over = SimpleNamespace(
        traced_seconds=0.0, check_at=0.0, add_new_block=lambda *_: None, is_exhausted=lambda site: True)
    monkeypatch.setattr(onset, "TracingBudget", lambda plain: over)
    kinds = []

    @jitla.jit(compile="auto")
    def f(x: np.ndarray) -> tuple[np.ndarray, float]:
        y = x * 2
        def inner() -> np.ndarray:
            return y + 1
        kept = [y - 1, y]
        total = float(y.sum())
        z = y + total
        kinds.append(held("x", "y", "z"))
        kinds.append(type(kept) is list and kept[1] is y)
        y += 1
        x[0] = kept[0][1]
        return z - inner() * y, total

    x, same = np.arange(float(MANY)), np.arange(float(MANY))
    found = f(x)
    assert kinds == [[np.ndarray] * 3, True]
    kinds.clear()
    wanted = f.__wrapped__(same)
    assert found[1] == wanted[1] and found[0].tobytes() == wanted[0].tobytes() and (x == same).all()


def test_sizes_that_differ_in_every_turn_are_not_planned_for() -> None:
    @jitla.jit(compile="auto")
    def solve(L: np.ndarray, b: np.ndarray) -> np.ndarray:
        x = np.zeros_like(b)
        for i in range(len(b)):
            x[i] = (b[i] - L[i, :i] @ x[:i]) / L[i, i]
        return x

    n = 1 + int(MANY**0.5)
    L, b = np.tri(n) + n * np.eye(n), np.ones(n)
    assert solve(L, b).tobytes() == solve.__wrapped__(L, b).tobytes()
    assert solve.stats().plans < n // 2


@pytest.mark.parametrize(("saved", "is_exhausted"), [(0.0, True), (1.0, False)])
def test_what_ends_an_allowance(monkeypatch: pytest.MonkeyPatch, saved: float, is_exhausted: bool) -> None:
    clock, numpy = [100.0], [0.0]
    for name in ("perf_counter", "thread_time"):
        monkeypatch.setattr(retreat, name, lambda: clock[0])
    site = SimpleNamespace(numpy_seconds=lambda: numpy[0], interim_replays=[])
    known, other = TracingBudget(1.0), TracingBudget(0.0)
    assert known.check_at == pytest.approx(100.0 + MAX_COST_RATIO + MAX_EXTRA_SECONDS)
    for _ in range(2 * MAX_NEW_BLOCKS):
        other.add_new_block((1, 2), 0.0)
    other.add_new_block((3, 4), 2 * MIN_NEW_BLOCK_SECONDS)
    assert other.check_at == 100.0 + CHECK_INTERVAL_SECONDS
    other.add_new_block((1, 2), 2 * MIN_NEW_BLOCK_SECONDS)
    assert other.check_at == 0.0 and not other.is_exhausted(site)  # from now on it is compared with NumPy
    clock[0] += 1.5 * MIN_RECHECK_SECONDS
    numpy[0] += saved
    other.add_new_block((1, 2), 2 * MIN_NEW_BLOCK_SECONDS)
    assert other.check_at < clock[0] and other.is_exhausted(site) is is_exhausted
    clock[0] = 100.0 + MAX_COST_RATIO + 2 * MAX_EXTRA_SECONDS
    assert known.is_exhausted(site)


@pytest.mark.parametrize(("program_seconds", "later", "programs", "is_exhausted"), [
    (6e-6, 0.03, [], True), (2e-6, 0.03, [], False), (6e-6, 0.015, [], False),
    (6e-6, 0.03, [object()], False)])
def test_where_the_plain_function_is_not_known_blocks_tell(
    monkeypatch: pytest.MonkeyPatch, program_seconds: float, later: float, programs: list[object],
    is_exhausted: bool,
) -> None:
    clock = [100.0]
    monkeypatch.setattr(retreat, "perf_counter", lambda: clock[0])
    budget = TracingBudget(0.0)
    block = SimpleNamespace(
        numpy_seconds=0.01, best_seconds=1e-5, program_seconds=program_seconds, count=1000)
    site = SimpleNamespace(interim_replays=[block], fallbacks={}, bound_programs=lambda: [block, *programs])
    clock[0] += later
    assert budget.is_exhausted(site) is is_exhausted and budget.check_at == clock[0] + CHECK_INTERVAL_SECONDS
