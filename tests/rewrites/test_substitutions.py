"""Every substitution of the search leads where its fixture says, and means the same."""

from __future__ import annotations

import numpy as np
import pytest

from jitla.hops import Hop, substitute
from jitla.rewrites import RULES, SUBSTITUTIONS, moves
from tests.rewrites.data import close, operands, values
from tests.rewrites.expression import Reader
from tests.rewrites.test_rules import FOLDER, Line, lines

LINES = lines(FOLDER / "search")
every_line = pytest.mark.parametrize("line", LINES, ids=str)


def after_one(before: tuple[Hop, ...], name: str) -> list[tuple[Hop, ...]]:
    """All that one step by a substitution leads to."""
    return [substitute(before, joint) for _, joint in moves(before, SUBSTITUTIONS.only(name), frozenset())]


@every_line
def test_it_leads_there_or_nowhere(line: Line):
    reader = Reader()
    before = reader.read(line.before)
    found = after_one(before, line.name)
    if line.after == "keep":
        assert not found
    else:
        assert reader.read(line.after) in found


@every_line
def test_all_it_leads_to_means_the_same(line: Line):
    before = Reader().read(line.before)
    rng = np.random.default_rng(len(line.before))
    for after in after_one(before, line.name):
        given = operands(before, rng, special=False)
        assert all(map(close, values(before, given), values(after, given)))


FACTORS = [line for line in LINES if line.after != "keep" and SUBSTITUTIONS[line.name].exactness != "relaxed"]


@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("line", FACTORS, ids=str)
def test_results_are_finite_where_numpys_are(line: Line, special: float):
    """An inf may become a NaN, or the other way round; a number stays a number."""
    before = Reader().read(line.before)
    rng = np.random.default_rng(3)
    for after in after_one(before, line.name):
        for _ in range(10):
            given = operands(before, rng, special=False)
            given = [np.array(g) for g in given]
            hit = given[int(rng.integers(len(given)))]
            hit.flat[int(rng.integers(hit.size))] = special
            for x, y in zip(values(before, given), values(after, given), strict=True):
                assert np.array_equal(np.isfinite(x), np.isfinite(y))


@pytest.mark.parametrize("line", FACTORS, ids=str)
def test_errors_stay_within_the_bound_of_products(line: Line):
    before = Reader().read(line.before)
    rng = np.random.default_rng(4)
    for after in after_one(before, line.name):
        given = operands(before, rng, special=False)
        wide = [np.asarray(g, np.longdouble) for g in given]
        exact, bound = values(before, wide), values(before, [np.abs(g) for g in wide])
        for got, right, size in zip(values(after, given), exact, bound, strict=True):
            assert np.all(np.abs(got - right) <= 40 * np.finfo(float).eps * size)


@pytest.mark.parametrize("outcome", ["leads", "keeps"])
def test_every_substitution_has_both_lines(outcome: str):
    shown = {line.name for line in LINES if (line.after == "keep") == (outcome == "keeps")}
    assert sorted({rule.name for rule in SUBSTITUTIONS} - shown) == []


def test_names_are_unique_among_all_rules():
    assert len(RULES + SUBSTITUTIONS) == len(RULES) + len(SUBSTITUTIONS)


def test_what_distributes_is_relaxed():
    relaxed = {rule.name for rule in SUBSTITUTIONS} - {rule.name for rule in SUBSTITUTIONS.at("numpy")}
    assert {n for n in (r.name for r in SUBSTITUTIONS) if "plus" in n or "minus" in n} <= relaxed
    assert "squares-of-product" in relaxed


def test_lengths_with_a_meaning_are_not_made_anew():
    """Programs are bound to sizes by what these stand for: 5 + 2 columns, where 7 is a length already."""
    before = Reader().read("matmul(A[3,4], B[4,5]), matmul(A, C[4,2])")
    merge = SUBSTITUTIONS.only("products-side-by-side")
    assert list(moves(before, merge, frozenset({3, 4, 5, 2})))
    assert not list(moves(before, merge, frozenset({3, 4, 5, 2, 7})))
