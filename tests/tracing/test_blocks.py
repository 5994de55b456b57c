"""Programs of blocks: literals, length, their Python code, blocks that wait for one program."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jitla
from jitla.config import TracingThresholds
from jitla.engine import ENGINE
from jitla.hops import evaluate
from jitla.instrument import statements as stretch
from jitla.rewrites import RULES
from jitla.tiering import policy
from jitla.tracing.fallback import Replay, _Writer, replay_function

# Literals of the user's code in plans: rules for them fire, other values get other programs.

SPECIAL = np.array([[0.0, -0.0, np.nan, np.inf, -np.inf, 1.0], [-1.5, 5e-324, -1e-310, 1.7e308, 3.0, -7.0]])


def times_one(x):
    return np.sqrt(np.sqrt(x) * 1) + 1.0 * x


def over_one(x):
    return np.sqrt(np.sqrt(x) / 1.0)


def less_nothing(x):
    return np.sqrt(np.sqrt(x) - 0)


def to_the_first(x):
    return np.sqrt(np.power(x, 1.0))


def negated(x):
    return np.sqrt(np.sqrt(x) * -1)


def halved(x):
    return np.sqrt(x / 2)


def doubled(x):
    return np.sqrt(2 * x)


def plus_minus_zero(x):
    return np.sqrt(np.sqrt(x) + -0.0)


def through_helper(x):
    return np.sqrt(times(np.sqrt(x)))


def times(x):
    return x * 1


def plus_zero(x):
    return np.copysign(1.0, x + 0.0)


def times_zero(x):
    return x * 0


FIRES = {
    times_one: "mul-by-one", over_one: "div-by-one", less_nothing: "sub-zero", negated: "mul-by-minus-one",
    halved: "div-by-power-of-two", doubled: "double-as-sum", plus_minus_zero: "add-zero",
    through_helper: "mul-by-one",
}


def fired() -> tuple[str, ...]:
    """Return the rules that fired in the program compiled last."""
    with jitla.options() as config:
        return ENGINE.compiler(config).programs()[-1].fired


def same(x: np.ndarray, y: np.ndarray) -> bool:
    signs = np.array_equal(np.signbit(x) & (x == x), np.signbit(y) & (y == y))
    return x.dtype == y.dtype and np.array_equal(x, y, equal_nan=x.dtype.kind == "f") and signs


@pytest.mark.parametrize("dtype", ["f8", "i2"])
@pytest.mark.parametrize("function", [*FIRES, plus_zero, times_zero, to_the_first])
def test_results_are_numpys(function, dtype: str):
    fast = jitla.jit(function, compile="sync")
    with np.errstate(all="ignore"):
        given = SPECIAL.astype(dtype)
        for _ in range(3):
            assert same(fast(given), function(given))
        assert same(fast(given[:1]), function(given[:1]))


@pytest.mark.parametrize("function", FIRES)
def test_rules_for_literals_fire(function):
    with np.errstate(invalid="ignore"):
        jitla.jit(function, compile="sync")(np.full((7, 9), 4.0))
    assert FIRES[function] in fired()


@pytest.mark.parametrize("function", [plus_zero, times_zero])
def test_what_is_not_exact_stays(function):
    jitla.jit(function, compile="sync")(np.full((5, 11), 4.0))
    assert not {"add-zero", "mul-by-zero"} & set(fired())


def scaled(x, k):
    return np.sqrt(x * k)


def by_turns(x, once, k):
    y = np.sqrt(x) * 1 if once else np.sqrt(x) * k
    return np.sqrt(y)


def powers(x):
    for k in range(1, 5):
        x = x * k + 1.0
    return x


def test_values_of_variables_are_no_literals():
    x = np.arange(1.0, 14.0)
    fast = jitla.jit(scaled, compile="sync")
    for k in (1, 2, 1.0, 0, 0.5, 1):
        assert same(fast(x, k), scaled(x, k))
        assert "mul-by-one" not in fired()
    assert same(jitla.jit(powers, compile="sync")(x), powers(x))


def test_the_same_operations_with_another_value_get_another_program():
    """A line with a literal and a variable: its tape is the same, whichever it is."""
    x = np.arange(1.0, 15.0)
    fast = jitla.jit(by_turns, compile="sync")
    assert same(fast(x, True, 3), by_turns(x, True, 3)) and "mul-by-one" in fired()
    for once, k in [(False, 3), (True, 3), (False, 1), (False, 2), (True, 1)]:
        assert same(fast(x, once, k), by_turns(x, once, k))
    assert "mul-by-one" not in fired()
    assert fast.stats()["programs"] == 2


def test_no_lines_are_needed_for_what_was_met_before():
    """Other sizes come when lines are not noted any more: the literal is still one."""
    fast = jitla.jit(times_one, compile="sync")
    for n in (10, 11, 12, 13, 14, 15):
        x = np.arange(1.0, n)
        for _ in range(5):
            assert same(fast(x), times_one(x))
    assert fast.stats()["programs"] == 1


def test_without_rewrites_there_are_none():
    x = np.full((3, 13), 4.0)
    with jitla.options(rewrites=False):
        fast = jitla.jit(times_one, compile="sync")
        assert same(fast(x), times_one(x))
    with jitla.options(rewrites=False) as config:
        assert ENGINE.compiler(config).programs()[-1].fired == ()


def test_numbers_that_rules_ask_for():
    matched_numbers = RULES.at("strict").matched_numbers
    assert {1, -1, 2} <= matched_numbers["multiply"] and 0 not in matched_numbers["multiply"]
    assert matched_numbers["divide"] == {0.5, 1, 2.0} and 0.0 in matched_numbers["subtract"]
    assert "sin" not in matched_numbers


# Blocks end before they become long, or keep much memory, and explanations say where.

MOST = 24
LINES = ("z = x * 0.5 - y", "x = x * 0.9999 - z", "y = y * 0.5 + z")


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Blocks are long when they have two dozen operations: plans of hundreds take seconds."""
    monkeypatch.setattr(stretch, "MIN_OPERATIONS", MOST // 4)
    with jitla.options(thresholds=TracingThresholds(max_pending_operations=MOST)):
        yield


def function(folder: Path, name: str, lines: list[str]) -> Any:
    """Define ``f(x, y)`` of these lines in a file."""
    file = folder / f"{name}.py"
    body = "".join(f"    {line}\n" for line in lines)
    file.write_text(f"import numpy as np\n\n\ndef f(x, y):\n{body}    return x.sum(), y\n")
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.f


def agrees(plain: Any, decorated: Any) -> None:
    x, y = np.linspace(0.0, 1.0, 64), np.full(64, 1e-3)
    for mine, theirs in zip(decorated(x, y), plain(x, y), strict=True):
        assert type(mine) is type(theirs) and np.array_equal(mine, theirs)


@pytest.mark.usefixtures("brief")
def test_long_functions_have_few_plans(tmp_path: Path) -> None:
    plain = function(tmp_path, "repeating", [*LINES * 40])
    decorated = jitla.jit(plain, compile="sync")
    agrees(plain, decorated)
    agrees(plain, decorated)
    record = jitla.explain(decorated).record
    assert max(len(p.trace) for p in record.programs) <= 2 * MOST
    runs = {len(p.trace): p.runs for p in record.programs}
    assert len(runs) <= 3 < max(runs.values())  # all blocks but the first and the last have one plan


@pytest.mark.usefixtures("brief")
def test_lines_that_do_not_repeat_are_cut_too(tmp_path: Path) -> None:
    lines = [f"x = x * {1 + k / 1e4} + y{' * x' * (k % 3)}" for k in range(40)]
    plain = function(tmp_path, "changing", lines)
    decorated = jitla.jit(plain, compile="sync")
    agrees(plain, decorated)
    record = jitla.explain(decorated).record
    assert record.cuts and max(len(p.trace) for p in record.programs) <= 2 * MOST


@pytest.mark.usefixtures("brief")
def test_explain_says_where_a_block_was_cut(tmp_path: Path) -> None:
    plain = function(tmp_path, "told", [*LINES * 6])
    decorated = jitla.jit(plain, compile="sync")
    agrees(plain, decorated)
    explanation = jitla.explain(decorated)
    (cut,) = explanation.record.cuts
    assert cut.line.text in LINES and cut.count == 1 and MOST - 8 < cut.operations < 2 * MOST
    text = str(explanation)
    assert f"== cut: 1 place, after at most {cut.operations} operations" in text
    assert f"after {cut.line.place}" in text and cut.line.text in text
    assert cut.line.place in explanation.to_html()


@pytest.mark.usefixtures("brief")
def test_short_functions_are_not_cut(tmp_path: Path) -> None:
    decorated = jitla.jit(function(tmp_path, "short", [*LINES * 3]), compile="sync")
    decorated(np.ones(64), np.ones(64))
    (program,) = jitla.explain(decorated).record.programs
    assert len(program.trace) > 12 and not jitla.explain(decorated).record.cuts


@pytest.mark.usefixtures("brief")
def test_arrays_for_one_block_do_not_pile_up(tmp_path: Path) -> None:
    thresholds = TracingThresholds(
        max_pending_operations=MOST, min_counted_bytes=0, max_entered_bytes=4 * 64 * 8)
    lines = ["x = x * np.sort(y)", "x = x + np.ones(x.shape)"] * 8
    plain = function(tmp_path, "held", lines)
    decorated = jitla.jit(plain, compile="sync")
    with jitla.options(thresholds=thresholds):
        agrees(plain, decorated)
    assert sum(p.runs for p in jitla.explain(decorated).record.programs) >= 3


# Blocks as Python code: each value is computed once, read where it is there, and dropped after that.


def tapes(function, *arguments):
    """Return the requests that a call makes, with leaves and scalars of each run."""
    found = []
    run = Replay.run

    def noted(self, leaves):
        found.append((self.request, list(leaves)))
        return run(self, leaves)

    f = jitla.jit(function, compile="background")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ENGINE, "_compilers", {})
        patch.setattr(ENGINE.background, "submit", lambda job, priority=0.0: None)
        patch.setattr(Replay, "run", noted)
        f(*arguments)
    return found


def straight(x, y):
    return (x * 2.0 + y).sum() - (y / x).max(axis=0)


def shared(x, y):
    a = x + y
    b = a * a
    c = np.exp(-b)  # is read after a was read last
    d = a - 3.0
    return d / c, (b @ b.T).mean(), np.where(d > c, d, c)


def deep(x, y):
    for _ in range(40):
        x = x * 0.5 + y
    return x


def kinds(x, y):
    return (x > y).any(axis=1), x.astype("f4") // 2, ~(x < 1), abs(-x), np.arctan2(x, y), (x > 0) * y


@pytest.mark.parametrize("function", [straight, shared, deep, kinds])
def test_the_code_is_what_the_operators_mean(function) -> None:
    x, y = np.random.default_rng(0).random((2, 6, 6)) + 0.5
    found = tapes(function, x, y)
    assert found
    for request, leaves in found:
        made = replay_function(*request.tape)(leaves)
        for value, wanted in zip(made, evaluate(request.roots, leaves), strict=True):
            assert type(value) is type(wanted) and value.dtype == wanted.dtype
            assert np.array_equal(value, wanted)
            assert getattr(value, "strides", ()) == getattr(wanted, "strides", ())


def test_values_are_dropped_when_they_were_read_last() -> None:
    ((request, _),) = tapes(shared, *np.ones((2, 6, 6)))
    text = _Writer(*request.tape).source()
    deleted = {name for line in text.splitlines() if line.strip().startswith("del ")
               for name in line.replace(",", " ").split()[1:]}
    kept = text.rpartition("return ")[2]
    assert deleted and not any(name in kept for name in deleted)


# Blocks of other sizes that wait for the same program.


def totals(x: np.ndarray, sizes: tuple[int, ...]) -> list[float]:
    return [float((x[:n] * 7.125 - 1.5).sum()) for n in sizes]


@pytest.mark.parametrize("fails", [False, True])
def test_what_one_program_serves_waits_together(monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    jobs: list[Callable[[], None]] = []
    monkeypatch.setattr(ENGINE, "_compilers", {})
    monkeypatch.setattr(policy, "LONG_SECONDS", 0.0)  # the first call is traced
    monkeypatch.setattr(ENGINE.background, "submit", lambda job, priority=0.0: jobs.append(job))
    monkeypatch.setattr(policy, "WAIT_RATIO", float("inf"))
    monkeypatch.setattr(policy, "is_worth_compiling", lambda *given: False)
    f, x = jitla.jit(totals, compile="auto"), np.ones(400_000)
    f(x, (300_000, 310_000))
    (site,) = f.__jitla_state__.all_sites()
    first, other = site.interim_replays
    state = first.program_state
    assert state is other.program_state
    assert state.numpy_seconds == pytest.approx(first.numpy_seconds + other.numpy_seconds)
    first.ask()
    other.ask()
    assert len(jobs) == 1 and other.requested
    with monkeypatch.context() as broken:
        if fails:
            broken.setattr(ENGINE, "bind", lambda *given: 1 / 0)
        jobs[0]()
    assert not site.interim_replays and state.available is not fails and state.abandoned is fails
    assert (first.compiled is None) is fails and other.compiled is None
    with jitla.options(compile="auto"):
        assert f(x, (300_000, 310_000, 320_000)) == totals(x, (300_000, 310_000, 320_000))
    assert not site.interim_replays and len(jobs) == 1
