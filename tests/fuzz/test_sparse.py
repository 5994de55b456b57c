"""A small run of the sparse fuzzer, and what its judge sees."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import scipy.sparse as sp

import jitla
from jitla.config import TracingThresholds
from tests.fuzz import load, sparse_noise
from tests.fuzz.__main__ import one_worker
from tests.fuzz.compare import Fault, Outcome
from tests.fuzz.family import DATA
from tests.fuzz.matrices import TRAITS, alike, matrix, parts
from tests.fuzz.runner import _within, differing, run
from tests.fuzz.sparse import ALIASES, CLASSES, generate
from tests.fuzz.sparse_noise import placed
from tests.fuzz.tally import Tally

SEEDS = 200
PARTS = 10


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> object:
    """Record operations on matrices of any size; say nothing."""
    monkeypatch.setattr("scipy.sparse._compressed.np", np)
    load.settle_indices()
    with warnings.catch_warnings(), jitla.options(thresholds=TracingThresholds(min_sparse_elements=0)):
        warnings.simplefilter("ignore")
        yield


@pytest.mark.threads
@pytest.mark.parametrize("part", range(PARTS))
def test_random_programs_do_the_same(part: int) -> None:
    assert differing(generate, "sparse", range(0, SEEDS, DATA)[part::PARTS]) == {}


@pytest.mark.threads
def test_plain_runs_do_not_differ() -> None:
    for seed in range(0, 600, 30):
        assert run(generate(seed), f"sparse-plain-{seed}", load.plain_jit).faults == []


@pytest.mark.process
@pytest.mark.timing
@pytest.mark.parametrize("lines, failed, undrawn", [
    (['{"end": 1}'], [40], []), (['{"drawing": [40, 45]}', '{"start": 40}', '{"end": -6}'], [40], []),
    (['{"start": 43}', '{"end": 1}'], [43], []), (['{"drawing": [40, 45]}', '{"end": 1}'], [], [(40, 45)]),
])
def test_a_program_that_cannot_be_drawn_or_does_not_end_is_named(
    lines: list[str], failed: list[int], undrawn: list[tuple[int, int]], tmp_path: Path
) -> None:
    state = tmp_path / "state"
    tally, forks = Tally(tmp_path, state=str(state)), SimpleNamespace(stdin=StringIO(), stdout=lines)
    left = one_worker(40, 50, tally, cast(Any, forks), [])
    with state.open("a") as file:
        file.write('{"seed": 4')  # the run is killed
    for each in tally, Tally(tmp_path, state=str(state)):
        assert [seed for seed, _ in each.failing] == failed and each.undrawn == undrawn
        assert each.counts["programs"] == len(failed) and list(each.left(left - 1, 50, 50)) == [(left, 50)]
    assert state.read_text().endswith("}\n")


def test_programs_depend_on_their_seed_only() -> None:
    assert generate(7) == generate(7) != generate(8)


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("trait", ["", *TRAITS])
def test_matrices_are_what_is_asked_for(kind: str, trait: str) -> None:
    made = matrix(kind, (9, 7), "f4", "i8", "uniform", 0.4, trait, 3)
    assert type(made) is getattr(sp, kind) and made.shape == (9, 7) and made.dtype == np.float32
    if kind[:3] in ("csr", "csc"):
        assert made.indices.dtype == made.indptr.dtype == np.int64
        assert made.has_sorted_indices == (trait not in ("unsorted",))
        assert made.has_canonical_format == (trait not in ("unsorted", "duplicates"))
        assert made.data.flags.writeable == (trait != "readonly")
        assert bool((made.data == 0).any()) == (trait == "zeros")


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("text", ALIASES)
def test_aliases_are_there_for_every_class(kind: str, text: str) -> None:
    held = matrix(kind, (6, 6), "f8", "i4", "uniform", 0.4, "", 3)
    made = eval(text, {"X0": held, "alike": alike, "call": 1})
    assert sp.issparse(made) and made.shape == (6, 6)


PROGRAM = """
import numpy as np
import scipy.sparse as sp
from tests.fuzz.arrays import window
from tests.fuzz.matrices import alike, matrix
@jit
def f(X0, x0, log):
    return {}
def make(call):
    X0 = matrix('{}', (9, 7), 'f8', 'i4', 'normal', 0.4, '{}', 100 + call)
    return X0, window((9, 7), 'f8', 'C', 'normal', 5), []
def state():
    return ()
"""


def as_array(x: Any) -> Any:
    """The other class."""
    return sp.csr_array(x)


def as_long(x: Any) -> Any:
    """Other indices."""
    found = x.copy()
    found.indices, found.indptr = found.indices.astype(np.int64), found.indptr.astype(np.int64)
    return found


def without_zeros(x: Any) -> Any:
    """No explicit zeros."""
    found = x.copy()
    found.eliminate_zeros()
    return found


def in_order(x: Any) -> Any:
    """Sorted indices."""
    return x.copy() if x.has_sorted_indices else x.sorted_indices()


def last_bit(x: Any) -> Any:
    """One entry is the next number."""
    found = x.copy()
    found.data[-1] = np.nextafter(found.data[-1], np.inf)
    return found


@pytest.mark.threads
@pytest.mark.parametrize("change, traits", [
    (as_array, ""), (as_long, ""), (without_zeros, "zeros"), (in_order, "unsorted"), (last_bit, ""),
])
def test_what_is_wrong_with_a_matrix_is_found(change: Callable[[Any], Any], traits: str) -> None:
    text = PROGRAM.format("X0 * 2", "csr_matrix", traits)
    assert run(text, "right", load.plain_jit).faults == []
    faults = run(text, "wrong", lambda f: lambda *given: change(f(*given))).faults
    assert faults, parts(sp.eye_array(2, format="csr"))


def times(x: Any, factor: float) -> Any:
    """Multiply; what is a view stays one."""
    return (x * factor).view() if isinstance(x, np.ndarray) and not x.flags.owndata else x * factor


@pytest.mark.threads
@pytest.mark.parametrize("text, off, found", [
    ("X0 @ x0.T", 1e-15, False), ("X0 @ x0.T", 1e-12, True), ("X0.multiply(x0).toarray()", 3e-16, True),
    ("(X0 @ x0.T).sum() + X0.sum()", 1e-15, False), ("X0.sum(axis=1)", 3e-15, True),
    ("X0.sum(axis=0)", 3e-15, False), ("X0.sum(axis=0)", 1e-12, True), ("X0.mean(axis=1)", 3e-15, False),
    ("X0.mean(axis=1)", 1e-12, True), ("X0.sum()", 3e-15, True), ("X0.mean()", 3e-15, True),
    ("X0.log1p().toarray()", 2e-16, False), ("X0.log1p().toarray()", 1e-14, True),
])
def test_what_is_rounding_is_no_difference(text: str, off: float, found: bool) -> None:
    for kind in ("csr_array", "csr_matrix"):
        source = PROGRAM.format(text, kind, "").replace("normal", "uniform")
        faults = run(source, "off", lambda f: lambda *given: times(f(*given), 1 + off)).faults
        assert bool(faults) is found


@pytest.mark.threads
@pytest.mark.parametrize("text, off, traits, found", [
    ("X0.sum()", 3e-15, "unsorted", False), ("X0.mean()", 3e-15, "duplicates", False),
    ("X0.mean()", 1e-12, "unsorted", True), ("X0.sum()", 3e-15, "zeros", True),
    ("(abs(X0) - X0 * 2).sum()", 3e-15, "zeros", False), ("(X0 - X0 * 2).sum()", 1e-12, "zeros", True),
])
def test_sums_of_entries_out_of_order_are_rounding(text: str, off: float, traits: str, found: bool) -> None:
    source = PROGRAM.format(text, "csr_array", traits).replace("normal", "uniform")
    faults = run(source, "off", lambda f: lambda *given: f(*given) * (1 + off)).faults
    assert bool(faults) is found


@pytest.mark.parametrize("off, rounding", [(1e-15, True), (1e-9, False)])
def test_entries_that_are_not_finite_leave_the_others_judged(off: float, rounding: bool) -> None:
    data = np.array([1.5, np.inf, np.nan, -4.0])
    outcomes = [Outcome(leaves=[("result.data", x)]) for x in (data, data * (1 + off), data[1:])]
    fault = Fault("value", "result.data[0]", "", "")
    assert _within(fault, outcomes[0], outcomes[1], outcomes[2:]) is rounding


@pytest.mark.threads
def test_an_argument_left_otherwise_is_found() -> None:
    def sorts(f: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given: (f(*given), given[0].sort_indices())[0]

    assert run(PROGRAM.format("X0 * 2", "csr_array", "unsorted"), "sorts", sorts).faults


@pytest.mark.threads
def test_a_result_that_shares_memory_is_found() -> None:
    def shares(f: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given: type(given[0])(given[0])

    source = PROGRAM.format("X0.copy()", "csr_array", "")
    assert [fault.kind for _, _, fault in run(source, "shares", shares).faults] == ["alias"]


@pytest.mark.threads
def test_products_of_products_are_rounding() -> None:
    source = PROGRAM.format("X0.T @ (X0 @ x0.T)", "csc_array", "")
    assert run(source, "twice", lambda f: lambda *given: f(*given) * (1 + 4e-15)).faults == []


def test_entries_at_one_position_that_cancel_are_as_large_as_they_are() -> None:
    x = sp.csr_matrix((np.array([3.0, -3.0 + 1e-3]), [0, 0], [0, 2]), shape=(1, 1))
    found = sparse_noise.product(x, np.array([1.0]), np.ones)
    assert abs(found - x @ np.array([1.0])) > 1e-15


def test_a_dot_with_a_number_is_no_product_of_matrices() -> None:
    x = sp.csr_array(np.eye(3) / 3)
    found = sparse_noise.product(x, 2, np.ones, lambda left, right: left.dot(right))
    assert (found.data == x.data * 2).all()


@pytest.mark.threads
@pytest.mark.parametrize("stored, found", [("3", False), ("4", True)])
def test_what_cannot_be_shown_is_compared(stored: str, found: bool) -> None:
    def otherwise(f: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            result = f(*given)
            if stored == "4":
                result.data = np.array([list(row) for row in ([1.0],) * 9], dtype=object)
            return result

        return call

    source = PROGRAM.format("(setattr(X0, 'data', X0.data.copy()), X0.data.__setitem__(0, 3), X0)[2]",
                            "lil_array", "")
    faults = run(source, "broken", otherwise).faults
    assert bool(faults) is found


def test_entries_that_vanish_by_noise_leave_the_others_judged() -> None:
    def told(X: Any) -> dict[str, Any]:
        return {f"r[0].{name}": value for name, value in parts(X)}

    mine = sp.random(9, 7, 0.4, "csr", random_state=1)
    other = mine.copy()
    other.data = other.data + 1
    other[0, mine.indices[0]] = 0
    other.eliminate_zeros()
    other[8, 0] = 4  # a position that the first does not have, or has another value at
    for kind in "csr", "csc", "coo":
        a, b = mine.asformat(kind), other.asformat(kind)
        found = placed("r[0].data[2]", told(a), told(b))
        expected = b.toarray()[a.tocoo().row, a.tocoo().col]
        assert found is not None and (found == expected).all()
    assert placed("r[0].indices[2]", told(mine), told(other)) is None
