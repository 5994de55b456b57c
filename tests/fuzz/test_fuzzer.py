"""A small run of the differential fuzzer; layers, noise and reductions; the fuzzer tested against itself."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jitla.codegen.backend
import jitla.codegen.module
from jitla.engine import ENGINE
from jitla.rewrites import RULES, Rule, RuleSet, Var, ops
from tests.fuzz import layers, load
from tests.fuzz.arrays import LAYOUTS, array
from tests.fuzz.family import DATA
from tests.fuzz.generate import generate
from tests.fuzz.noise import Noisy
from tests.fuzz.runner import differing, run
from tests.fuzz.shrink import shrink
from tests.fuzz.sums import THREADS, cases, differences

# A small run of the differential fuzzer, and the fuzzer tested against itself.

SEEDS = 300
PARTS = 20
# Programs that once differed, as text: what a seed draws changes with the generator.
ONCE_WRONG = sorted((Path(__file__).parent / "corpus").glob("*.txt"))


@pytest.fixture
def quiet() -> object:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.threads
@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("part", range(PARTS))
def test_random_programs_do_the_same(part: int) -> None:
    assert differing(generate, "fuzz", range(0, SEEDS, DATA)[part::PARTS]) == {}


@pytest.mark.threads
@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("path", ONCE_WRONG, ids=lambda path: path.stem)
def test_programs_once_wrong_do_the_same(path: Path) -> None:
    assert run(path.read_text(), f"once-{path.stem}").faults == []


@pytest.mark.threads
@pytest.mark.usefixtures("quiet")
def test_plain_runs_do_not_differ() -> None:
    for seed in range(40):
        report = run(generate(seed), f"plain-{seed}", load.plain_jit)
        assert report.faults == []


@pytest.mark.usefixtures("quiet")
def test_programs_depend_on_their_seed_only() -> None:
    assert generate(7) == generate(7) != generate(8)


@pytest.mark.usefixtures("quiet")
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


@pytest.mark.threads
@pytest.mark.timing
@pytest.mark.usefixtures("quiet")
def test_a_wrong_compiler_is_found_and_its_program_made_small() -> None:
    assert run(WRONG, "wrong", off_by_one).faults[0][2].kind == "value"
    small = shrink(WRONG, lambda text: bool(_faults(text)))
    assert len(small) < len(WRONG) and "sliced" not in small and "b.sum()" not in small


def _faults(text: str) -> list[object]:
    try:
        return [f for _, _, f in run(text, "wrong", off_by_one).faults if f.kind == "value"]
    except Exception:
        return []


# The layer that is to blame is named: one is made wrong, and found.

SOURCE = """
import numpy as np
from tests.fuzz.arrays import array
CALLS = [(0, 1)]
@jit
def f(x, y):
    return np.floor(x) + y * 0.25
def make(call):
    return array((19,), 'f8', 'C', 'normal', 1), array((19,), 'f8', 'C', 'normal', 2)
def state():
    return ()
"""


@pytest.fixture
def own_compilers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ENGINE, "_compilers", {})


@pytest.mark.threads
@pytest.mark.usefixtures("own_compilers")
def test_a_wrong_tracer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "the_jit", lambda: lambda function: lambda *given: function(*given) + 1)
    assert layers.guilty(SOURCE, "wrong", "value") == "tracing"


@pytest.mark.threads
@pytest.mark.usefixtures("own_compilers")
def test_a_wrong_rule_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    x = Var("X")
    wrong = Rule("floor-is-ceil", ops.floor(x), ops.ceil(x), doc="it is not")
    monkeypatch.setattr(layers, "RULES", RULES + RuleSet([wrong]))
    assert layers.guilty(SOURCE, "wrong", "value") == "rewrites"


@pytest.mark.threads
@pytest.mark.usefixtures("own_compilers")
def test_wrong_machine_code_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    # else the kernel would not be used
    monkeypatch.setattr("jitla.recompile.compiler.numpy_difference", lambda *given: "")
    real = jitla.codegen.module.module_text
    monkeypatch.setattr(
        jitla.codegen.module, "module_text", lambda *given: real(*given).replace(" fadd ", " fsub ")
    )
    assert layers.guilty(SOURCE, "wrong", "value") == "codegen"


@pytest.mark.threads
@pytest.mark.usefixtures("own_compilers")
def test_nothing_is_named_where_nothing_is_wrong() -> None:
    assert layers.guilty(SOURCE, "right", "value") == "process"


# Decisions by the last bits of inexact functions are rounding; anything else is a difference.

NOISE_SOURCE = """
import numpy as np


@jit
def f(x):
    steep = np.tanh(x) == 1
    return 1e6 * np.average(x, weights=1.0 + steep)


CALLS = ((0, 1),)


def make(call):
    return (np.linspace(8.9, 9.1, 2001, dtype="f4"),)


def state():
    return ()
"""


def saturated(x: np.ndarray) -> np.ndarray:
    return np.tanh(x)


def wrong(function: Any) -> Any:
    """Compile, and be wrong by a tenth."""
    fast = load.the_jit()(function)
    return lambda *args: fast(*args) * 1.1


@pytest.mark.threads
@pytest.mark.parametrize("jit, faults", [(None, 0), (wrong, 1)])
def test_decisions_by_last_bits_are_rounding(jit: Any, faults: int) -> None:
    x = np.linspace(8.9, 9.1, 2001, dtype="f4")
    assert np.any((np.tanh(x) == 1) != (load.the_jit()(saturated)(x) == 1))
    assert len(run(NOISE_SOURCE, "last-bits", jit).faults) == faults


FAR = """
import numpy as np


@jit
def f(x):
    kept = np.zeros(7, "u4")
    kept[:] = x * 2
    return kept


CALLS = ((0, 1),)


def make(call):
    return (np.full(7, {}),)


def state():
    return ()
"""


def changed(function: Any) -> Any:
    """Compile, and be wrong in one element."""
    fast = load.the_jit()(function)

    def call(*args: Any) -> Any:
        result = fast(*args)
        result[3] += 1
        return result

    return call


@pytest.mark.threads
@pytest.mark.parametrize("x, undefined", [(2.0**32 + 1, 1), (2.0**30, 0)])
def test_what_integers_cannot_hold_is_left_out_though_numpy_does_not_warn(
    x: float, undefined: int,
) -> None:
    report = run(FAR.format(x), "far", changed)
    assert (report.undefined, len(report.faults)) == (undefined, 1 - undefined)


def test_what_vanishes_in_every_digit_does_so_with_noise() -> None:
    made = [getattr(Noisy(seed), name)(np.array([at, 0.5])) for seed in range(20)
            for name, at in (("log", 1.0), ("sin", 0.0), ("arccos", 1.0))]
    assert all(found[0] == 0 for found in made) and len({found[1] for found in made}) > 6


TAILS = """
import numpy as np
from scipy import special


@jit
def f(x, y):
    tails = special.erfc(x), special.ndtr(-x), special.expit(-30 * x)
    return *tails, np.logaddexp(y, -1.0), special.xlogy.outer(x[:3], y + 2)


CALLS = ((0, 1),)


def make(call):
    return np.linspace(0, 27, 999), np.linspace(-0.6, -0.3, 999)


def state():
    return ()
"""


def off(function: Any) -> Any:
    """Be wrong by little."""
    return lambda *args: tuple(t * (1 + 1e-12) for t in function(*args))


@pytest.mark.threads
@pytest.mark.parametrize("jit, faults", [(None, 0), (off, 1)])
def test_tails_that_scipy_loses_and_sums_that_cancel_are_rounding(jit: Any, faults: int) -> None:
    assert bool(run(TAILS, "tails", jit).faults) is bool(faults)


PIECES = """
import numpy as np


@jit
def f(x):
    return np.mean(x.sum(axis=1)), (x * 2).sum(axis=0).sum()


CALLS = ((0, 1),)


def make(call):
    return (np.random.default_rng(call).normal(size=(37, 211, 2)).view("c16")[..., 0],)


def state():
    return ()
"""


def far_off(function: Any) -> Any:
    """Be wrong by more than sums are."""
    return lambda *args: tuple(t * (1 + 1e-6) for t in function(*args))


@pytest.mark.threads
@pytest.mark.parametrize("jit, faults", [(None, 0), (far_off, 1)])
def test_sums_of_complex_sums_are_rounding(jit: Any, faults: int) -> None:
    assert bool(run(PIECES, "pieces", jit).faults) is bool(faults)


LOST = """
import numpy as np


@jit
def f(x):
    return (np.tan(np.exp(x) * 1e18),)


CALLS = ((0, 1),)


def make(call):
    return (np.linspace(1, 9, 1300),)


def state():
    return ()
"""


def larger(function: Any) -> Any:
    """Be wrong by orders of magnitude."""
    return lambda *args: tuple(t * 1e9 for t in function(*args))


@pytest.mark.threads
@pytest.mark.parametrize("jit, faults", [(None, 0), (larger, 1)])
def test_where_noise_leaves_nothing_any_value_of_that_size_will_do(jit: Any, faults: int) -> None:
    assert bool(run(LOST, "lost", jit).faults) is bool(faults)


# Sums and means have NumPy's bits, whatever the shape, layout, dtype and number of threads.

CASES = list(cases(504))


@pytest.mark.parametrize("part", range(24))
@pytest.mark.parametrize("threads", THREADS)
def test_sums_have_numpys_bits(part: int, threads: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wrong = {case: found for case in CASES[part::24] if (found := differences(case, threads))}
    assert wrong == {}
