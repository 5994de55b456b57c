"""A small run of the fuzzer of call structure, and the fuzzer tested against itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.call_fuzz.driver import differences, run_seeds
from tests.call_fuzz.program import generate
from tests.call_fuzz.runner import Difference, Snapshot, compare, first_difference, perform, plain
from tests.call_fuzz.shrink import shrink
from tests.fuzz import load

SEEDS = 100
PARTS = 4  # one of each variant
MODES = ("sync", "background", "auto")
# Programs that once differed, as text: what a seed draws changes with the generator.
ONCE_WRONG = sorted((Path(__file__).parent / "corpus").glob("*.txt"))
# Those that differ to this day; a name goes when its cause does.
STILL_WRONG: set[str] = set()


@pytest.fixture(autouse=True, scope="module")
def ready() -> None:
    load.prepare()  # before processes are forked


@pytest.mark.process
@pytest.mark.parametrize("part", range(PARTS))
def test_random_programs_do_the_same(part: int) -> None:
    step = SEEDS // PARTS
    found = list(run_seeds([(part * step, (part + 1) * step)], MODES))
    assert len(found) == step
    assert [(seed, str(Difference(*faults[0]))) for seed, faults in found if faults] == []


@pytest.mark.process
@pytest.mark.parametrize("path", [
    pytest.param(path, id=path.stem, marks=[pytest.mark.xfail] * (path.stem in STILL_WRONG))
    for path in ONCE_WRONG])
def test_programs_once_wrong_do_the_same(path: Path) -> None:
    assert differences(path.read_text(), MODES, "usual") == []


def test_programs_depend_on_their_seed_only() -> None:
    assert generate(7) == generate(7) != generate(8)


def test_plain_runs_do_not_differ(tmp_path: Path) -> None:
    for seed in range(30):
        path = tmp_path / f"plain_{seed}.py"
        path.write_text(generate(seed))
        assert first_difference("plain", perform(path, plain), perform(path, plain)) is None


WRONG = """
import numpy as np
LOG = []
KEPT = {}
class Box:
    pass
BOX = Box()
def log(*event):
    LOG.append(event)
@jit
def f(x):
    y = x * 2.0
    log(y.sum())
    return y
def main(n):
    KEPT['x'] = np.arange(4.0)
    BOX.a = f(KEPT['x'])
    return BOX.a + n
"""


def off_by_one(function: object) -> object:
    """A decorator that gets results wrong."""
    return lambda *given: function(*given) + 1  # type: ignore[operator]


@pytest.mark.timing
def test_what_is_wrong_is_found_and_its_program_made_small(tmp_path: Path) -> None:
    path = tmp_path / "wrong.py"

    def fails(text: str) -> bool:
        path.write_text(text)
        found = first_difference("wrong", perform(path, plain), perform(path, off_by_one))  # type: ignore[arg-type]
        return found is not None and found.kind == "value"

    assert fails(WRONG)
    small = shrink(WRONG, fails)
    assert len(small) < len(WRONG) / 2 and "log" not in small and "@jit" in small


def test_proxies_that_outlive_a_call_are_seen(tmp_path: Path) -> None:
    from jitla.tracing.lazy import LazyArray

    shot = Snapshot("anything")
    shot.walk("x", {"a": [LazyArray()]})
    assert "LEAK" in shot.finish()["x[str 'a'][0]"]


def test_all_modes_are_traced(tmp_path: Path) -> None:
    text = WRONG.replace("BOX.a + n", "f.stats()['calls'] if hasattr(f, 'stats') else 0")
    assert [each.kind for each in compare(text, "traced", tmp_path, ("sync",))] == ["value"]
