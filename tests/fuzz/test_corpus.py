"""A small run of the differential fuzzer, and the fuzzer tested against itself."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from tests.fuzz import load
from tests.fuzz.arrays import LAYOUTS, array
from tests.fuzz.family import DATA
from tests.fuzz.generate import generate
from tests.fuzz.runner import differing, run
from tests.fuzz.shrink import shrink

SEEDS = 300
PARTS = 20
# Programs that once differed, as text: what a seed draws changes with the generator.
ONCE_WRONG = sorted((Path(__file__).parent / "corpus").glob("*.txt"))


@pytest.fixture(autouse=True)
def quiet() -> object:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("part", range(PARTS))
def test_random_programs_do_the_same(part: int) -> None:
    assert differing(generate, "fuzz", range(0, SEEDS, DATA)[part::PARTS]) == {}


@pytest.mark.parametrize("path", ONCE_WRONG, ids=lambda path: path.stem)
def test_programs_once_wrong_do_the_same(path: Path) -> None:
    assert run(path.read_text(), f"once-{path.stem}").faults == []


def test_plain_runs_do_not_differ() -> None:
    for seed in range(40):
        report = run(generate(seed), f"plain-{seed}", load.plain_jit)
        assert report.faults == []


def test_programs_depend_on_their_seed_only() -> None:
    assert generate(7) == generate(7) != generate(8)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_hold_the_same_cells(layout: str) -> None:
    given = array((4, 5), "f8", layout, "normal", 3)
    assert given.shape == (4, 5)
    if layout != "broadcast":
        assert (given == array((4, 5), "f8", "C", "normal", 3)).all()


WRONG = """
import numpy as np
from tests.fuzz.arrays import array
@jit
def f(x, y):
    a = x * 2
    b = a + y
    if b.sum() > 0:
        b = b - 1
    return b
def make(call):
    n, m, k = [(17, 3, 2), (17, 3, 2), (5, 3, 2), (2, 2, 2)][call]
    return array((n,), 'f8', 'sliced', 'normal', 1), array((n,), 'f8', 'C', 'normal', 2)
def state():
    return ()
"""


def off_by_one(function: object) -> object:
    """A decorator that gets sums wrong."""
    return lambda *given: function(*given) + 1  # type: ignore[operator]


def test_a_wrong_compiler_is_found_and_its_program_made_small() -> None:
    assert run(WRONG, "wrong", off_by_one).faults[0][2].kind == "value"
    small = shrink(WRONG, lambda text: bool(_faults(text)))
    assert len(small) < len(WRONG) and "sliced" not in small and "b.sum()" not in small


def _faults(text: str) -> list[object]:
    try:
        return [f for _, _, f in run(text, "wrong", off_by_one).faults if f.kind == "value"]
    except Exception:
        return []
