"""The states of call classes: which calls run plain or traced, with a simulated clock and compiler."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from jitla.tiering import engine, policy
from jitla.tiering.engine import CallClass, CallState, FunctionProfile
from jitla.tiering.ledger import Ledger, ProcessLedger


class World:
    """One function whose calls take known seconds: plain, recorded, and traced with programs.

    Compiling takes `compiling` seconds from the request on, loading the tracer `loading`.
    """

    def __init__(
        self, plain: float, traced: float, recorded: float | None = None, compiling: float = 0.05,
        loading: float = 0.0, predicted: float | None = None, processors: float = 1.0,
    ) -> None:
        self.now = 0.0
        self.plain, self.traced = plain, traced
        self.recorded = 1.2 * plain + 2e-3 if recorded is None else recorded
        self.replayed = 1.02 * plain + 1e-5  # of a recorded call whose blocks are known
        self.compiling, self.loading = compiling, loading
        self.predicted = traced if predicted is None else predicted  # seconds of a call with programs
        self.processors = processors
        self.numpy_share = 0.9  # of the plain seconds, that NumPy takes for the block
        self.block: Any = None
        self.ready_at: float | None = None  # when the program is available
        self.loaded_at: float | None = None if loading else 0.0
        self.is_possible = self.is_wanted = True
        self.has_loops = False
        self.crowding, self.loading_price, self.waited, self.waits = 1.0, 0.0, 0.0, 0
        self.log: list[str] = []
        self.seconds: list[float] = []
        self.site: Any = SimpleNamespace(
            interim_replays=set(), annotated_calls=0, calls=0, is_planning=lambda notes: False,
            numpy_seconds=lambda: self.now)
        self.process = ProcessLedger(lambda: self.now)
        self.profile = FunctionProfile(self, 1)
        self.kind = CallClass(10, self.profile, Ledger(self.process))

    # what call classes ask of the tracer

    @property
    def is_loaded(self) -> bool:
        return self.loaded_at is not None and self.now >= self.loaded_at

    def begin_class(self, args: Any, kwargs: Any, bits: int) -> None:
        pass

    def load(self) -> None:
        assert self.loaded_at is None, "the tracer is loaded once"
        self.loaded_at = self.now + self.loading

    @property
    def is_compiling(self) -> bool:
        return not self.is_loaded and self.loaded_at is not None or (
            self.ready_at is not None and self.now < self.ready_at)

    def wait(self) -> None:
        self.waits += 1
        self.now = max(self.loaded_at or 0.0, self.ready_at or 0.0)

    def budget(self, plain: float, allowance: float) -> Any:
        return SimpleNamespace(plain=plain, allowance=allowance, traced_seconds=0.0)

    def run_traced(self, site: Any, instrumented: Any, args: Any, kwargs: Any, budget: Any) -> None:
        if self.ready_at is not None and self.now >= self.ready_at:
            site.interim_replays.clear()
            taken, name = self.traced, "t"
        else:
            if self.block is None:
                self.block = self._new_block()
                site.interim_replays.add(self.block)
            self.block.count += 1
            taken, name = self.recorded if self.block.count == 1 else self.replayed, "r"
        if budget is not None and budget.plain and taken > budget.plain + budget.allowance:
            budget.traced_seconds = taken  # it goes on plain at the deadline, and takes not much longer
            taken = budget.plain + budget.allowance + 0.1 * budget.plain
        self._spend(name, taken)

    def _new_block(self) -> Any:
        world = self

        class Block:
            count, is_dropped = 0, False
            best_seconds, price = world.numpy_share * world.plain, world.compiling
            program_seconds = max(world.predicted - (1 - world.numpy_share) * world.plain, 0.0)

            @property
            def is_waiting(self) -> bool:
                return world.ready_at is None or world.now < world.ready_at

            def ask(self, priority: float = 0.0) -> None:
                if world.ready_at is None:
                    world.log.append("c")
                    world.ready_at = world.now + world.compiling

        return Block()

    def run_plain(self, site: Any, function: Any, args: Any, kwargs: Any) -> None:
        self._spend("p", self.plain)

    def _spend(self, name: str, taken: float) -> None:
        self.log.append(name)
        self.seconds.append(taken)
        self.now += taken

    # what the tests do

    def call(self, count: int = 1) -> World:
        """Call the function as the dispatcher and the fast path do."""
        for _ in range(count):
            kind = self.kind
            if kind.skip > 0:
                kind.skip -= 1
                self._spend("p", self.plain)
            elif kind.bypassed:
                kind.bypass(self.site, lambda: self._spend("p", self.plain), (), {})
            else:
                kind.weigh(self.site, None, None, (), {})  # type: ignore[arg-type]
        return self

    def call_for(self, seconds: float) -> World:
        """Call the function until calls have taken this long."""
        end = self.now + seconds
        while self.now < end:
            self.call()
        return self

    @property
    def excess(self) -> float:
        """The seconds that calls took beyond plain ones, without those that were faster."""
        return sum(max(each - self.plain, 0.0) for each in self.seconds)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[World]]:
    """The clock of the world that was created last."""
    worlds: list[World] = []
    create = World.__init__

    def register(self: World, *args: Any, **options: Any) -> None:
        worlds.append(self)
        create(self, *args, **options)

    monkeypatch.setattr(World, "__init__", register)
    monkeypatch.setattr(engine, "perf_counter", lambda: worlds[-1].now)
    monkeypatch.setattr(engine, "process_time", lambda: worlds[-1].now * worlds[-1].processors)
    yield worlds


def test_the_first_calls_are_plain_and_the_faster_traced_ones_take_over() -> None:
    world = World(5e-3, 1e-3).call_for(1.0)
    text = "".join(world.log)
    assert text.startswith("pp") and text.index("r") < text.index("c") < text.index("t")
    assert world.kind.state is CallState.TRACED and text.endswith("t" * 50)
    assert world.now - 1.0 < 0.01 and len(text) > 500  # of 200 plain calls


def test_the_tracer_is_loaded_in_the_background_once_plain_calls_have_taken_long_enough() -> None:
    world = World(1e-3, 1e-4, loading=0.2)
    threshold = policy.weight(1.0) * policy.LOADING_SECONDS
    world.call_for(0.9 * threshold)
    assert world.loaded_at is None
    world.call_for(0.2 * threshold)
    assert world.loaded_at is not None and set(world.log) == {"p"}
    world.call_for(0.5)
    assert world.kind.state is CallState.TRACED


def test_loops_are_looked_for_once_plain_calls_have_taken_long_enough() -> None:
    world = World(1e-4, 1e-3).call_for(0.9 * policy.PREPARE_SECONDS)
    assert not world.profile.is_search_due()
    world.call_for(0.1)
    assert world.profile.is_search_due()


def test_calls_of_functions_that_live_by_their_loops_stay_plain() -> None:
    world = World(5e-3, 1e-3)
    world.is_wanted = False
    assert set(world.call_for(1.0).log) == {"p"}
    world.is_wanted = True
    world.call_for(10.0)
    assert world.kind.state is CallState.TRACED


def test_recorded_calls_of_functions_with_loops_have_to_be_allowed() -> None:
    world = World(0.2, 0.02)
    world.has_loops = True
    needed = (policy.LOOP_RISK * world.plain - policy.REGRET_SECONDS) / policy.REGRET_SHARE
    assert set(world.call_for(0.9 * needed).log) == {"p"}
    world.call_for(0.5 * needed)
    assert world.kind.state is CallState.TRACED


def test_time_that_no_program_saves_is_no_gain() -> None:
    world = World(1e-3, 9.9e-4, predicted=1e-4)
    world.replayed = 1.5e-3
    world.numpy_share = 0.3  # of the plain seconds: the rest of a call is not traced
    world.call_for(20.0)
    assert "c" not in world.log and world.kind.losses == policy.MAX_LOSSES


def test_functions_that_cannot_be_traced_stay_plain() -> None:
    world = World(5e-3, 1e-3)
    world.is_possible = False
    assert set(world.call_for(5.0).log) == {"p"}


def test_brief_calls_are_never_traced_and_hardly_timed() -> None:
    world = World(2e-6, 1e-6).call_for(1.0)
    assert set(world.log) == {"p"} and world.kind.granted > 50


def test_programs_that_would_save_too_little_are_not_compiled() -> None:
    world = World(5e-3, 1e-3, predicted=4.9e-3).call_for(20.0)
    assert "c" not in world.log and world.kind.losses >= 2
    assert world.log.count("r") == policy.MAX_RECORDINGS * world.kind.losses


def test_programs_are_compiled_once_plain_calls_have_taken_long_enough() -> None:
    world = World(5e-3, 1e-3, compiling=2.0)
    worth = policy.weight(1.0) * 2.0 / 0.8
    world.call_for(0.9 * worth)
    assert "c" not in world.log
    world.call_for(0.2 * worth)
    assert "c" in world.log


def test_a_trial_that_loses_is_repeated_after_four_times_as_long_and_three_times_at_most() -> None:
    world = World(5e-3, 6e-3, predicted=1e-3).call_for(100.0)
    assert world.kind.losses == policy.MAX_LOSSES and world.kind.bypassed
    trials = [k for k, each in enumerate(world.log) if each == "t"]
    assert len(trials) <= policy.TRIAL_CALLS * policy.MAX_LOSSES and trials[-1] < len(world.log) / 2
    assert world.kind.best[0] > world.kind.best[1] > 0.0


def test_a_recorded_call_ends_at_its_deadline() -> None:
    world = World(5e-3, 1e-3, recorded=10.0)
    world.replayed = 10.0
    world.call_for(50.0)
    assert max(world.seconds) < 0.1 and world.kind.losses == policy.MAX_LOSSES
    assert world.excess <= policy.REGRET_SHARE * world.now + policy.REGRET_SECONDS + 3 * 0.1 * world.plain


def test_plain_calls_that_keep_all_processors_busy_are_not_disturbed() -> None:
    world = World(0.02, 5e-3, processors=2.0, loading=0.1).call_for(0.7 * policy.LOADING_SECONDS)
    assert world.loaded_at is None and not world.waits
    world.call_for(2.0)
    assert world.kind.state is CallState.TRACED and world.waits == 2  # for the tracer, and for the program


def test_traced_calls_that_become_slower_than_plain_ones_are_given_up() -> None:
    world = World(5e-3, 1e-3).call_for(1.0)
    world.traced = 8e-3
    world.call_for(5.0)
    assert world.kind.bypassed and "".join(world.log).endswith("p" * 100)


def test_traced_calls_stay_if_plain_ones_became_slower_too() -> None:
    world = World(5e-3, 1e-3).call_for(1.0)
    world.plain, world.traced = 0.05, 0.01
    world.call_for(5.0)
    assert world.kind.state is CallState.TRACED and not world.kind.losses


def test_calls_that_record_nothing_are_judged() -> None:
    world = World(1e-3, 2e-3)
    world.ready_at = 0.0  # there are no blocks
    world.site.is_planning = lambda notes: True
    world.call_for(3.0)
    assert world.kind.losses and world.log.count("t") <= policy.MAX_LOSSES * (
        policy.TRIAL_CALLS + policy.MAX_UNCOUNTED_CALLS)


def test_both_are_compared_again_after_more_and_more_calls() -> None:
    world = World(1e-3, 5e-4).call_for(10.0)
    checks = [k for k, each in enumerate(world.log) if each == "p"][-2 * policy.CHECK_CALLS:]
    assert len(world.log) - checks[-1] > 2000
    assert world.excess <= policy.REGRET_SHARE * world.now + policy.REGRET_SECONDS


def test_plain_calls_that_take_far_longer_all_at_once_get_another_trial() -> None:
    world = World(5e-3, 6e-3, predicted=1e-3).call_for(100.0)
    assert world.kind.losses == policy.MAX_LOSSES
    world.plain = 0.1
    world.call_for(2000.0)
    assert world.kind.state is CallState.TRACED


def test_brief_calls_do_not_hide_those_of_a_class_that_is_traced() -> None:
    world = World(5e-3, 1e-3).call_for(1.0)
    assert world.kind.state is CallState.TRACED
    brief = CallClass(3, world.profile, Ledger(world.process))
    for _ in range(100):
        brief.bypass(world.site, lambda: world._spend("p", 1e-6), (), {})
        assert brief.skip == 0
    world.traced = 9e-3
    world.call_for(5.0)  # it is given up
    brief.bypass(world.site, lambda: world._spend("p", 1e-6), (), {})
    assert brief.skip > 0


def test_a_first_call_that_is_predicted_to_be_long_is_traced_at_once() -> None:
    world = World(5.0, 1.0)
    world.profile = FunctionProfile(world, 1 << 10)
    world.kind = CallClass(30, world.profile, Ledger(world.process))
    world.ready_at = 0.0  # its blocks waited for their programs
    world.site.numpy_seconds = lambda: 5.0 * len(world.log)
    world.call(5)
    assert world.log == ["t"] * 5 and world.kind.state is CallState.TRACED


def test_errors_of_calls_leave_the_state_right() -> None:
    world = World(5e-3, 1e-3)

    def fail(*_: Any) -> None:
        world.now += world.plain
        raise ValueError("of the user")

    with pytest.raises(ValueError, match="of the user"):
        world.kind.bypass(world.site, fail, (), {})
    world.call_for(0.1)
    run, world.run_traced = world.run_traced, fail  # type: ignore[method-assign]
    for _ in range(100):
        with suppress(ValueError):
            world.call()
    world.run_traced = run  # type: ignore[method-assign]
    world.call_for(3.0)
    assert world.log[-1] in ("p", "t")


@pytest.mark.parametrize("seed", range(100))
def test_the_loss_is_bounded_and_every_class_ends_in_one_variant(seed: int) -> None:
    rng = random.Random(seed)
    plain = 10.0 ** rng.uniform(-5, 0)
    world = World(
        plain, plain * 10.0 ** rng.uniform(-1.5, 1), recorded=plain * 10.0 ** rng.uniform(0, 2),
        compiling=10.0 ** rng.uniform(-3, 0.5), loading=rng.choice([0.0, 0.1]),
        predicted=plain * 10.0 ** rng.uniform(-1.5, 0.5), processors=rng.choice([1.0, 2.0]))
    total = min(max(40.0, 300 * plain), 20_000 * plain)
    world.call_for(total)
    overshoot = 0.1 * plain * policy.MAX_LOSSES + 2 * policy.TRIAL_CALLS * plain
    assert world.excess <= policy.REGRET_SHARE * world.now + policy.REGRET_SECONDS + overshoot
    last = world.log[-len(world.log) // 4:]
    main = max("pt", key=last.count)
    assert last.count(main) >= 0.97 * len(last)


@pytest.mark.parametrize("seed", range(40))
def test_calls_take_at_most_twice_as_long_as_by_the_better_variant(seed: int) -> None:
    rng = random.Random(seed)
    plain = 10.0 ** rng.uniform(-3, -1)
    traced = plain * 10.0 ** rng.uniform(-1.5, 1)
    world = World(plain, traced, recorded=plain + 0.01, compiling=10.0 ** rng.uniform(-3, 0.5), loading=0.1)
    world.call_for(30.0)
    best = min(plain, traced) * len(world.seconds)
    fixed = world.compiling + world.loading + policy.RECORDING_SECONDS + 4 * plain + policy.REGRET_SECONDS
    assert world.now <= 2.0 * best + fixed
