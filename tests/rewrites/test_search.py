"""The rewrite search: optimal on small graphs, within its effort; its substitutions."""

from __future__ import annotations

from itertools import count
from math import inf

import numpy as np
import pytest

from jitla.hops import Hop, Kind, Meta, apply, bytes_of, flops, leaf, make, substitute, topo
from jitla.rewrites import RULES, SUBSTITUTIONS, SearchBudget, minimise_cost, moves
from jitla.rewrites.search import partition, search
from tests.rewrites.expression import FOLDER, Line, Reader, fixture_lines
from tests.rewrites.programs import close, operands, values

# The search: as good as looking at everything, no worse than what was given, within its effort.

F8 = np.dtype("f8")
ALL = SearchBudget(bound=inf, expansions=10_000, seconds=inf, min_seconds=0.0)
Roots = tuple[Hop, ...]


class Additive:
    """Every operator costs its operations and its bytes."""

    def __init__(self, forbidden: Roots | None = None) -> None:
        self.forbidden = forbidden
        self.priced: list[Roots] = []

    def total(self, roots: Roots) -> float:
        return inf if roots == self.forbidden else sum(flops(h) + bytes_of(h) for h in topo(roots))

    floor = guess = ceiling = total

    def price(self, roots: Roots) -> float:
        self.priced.append(roots)
        return self.total(roots)


def random_products(rng: np.random.Generator, operators: int, sizes: tuple[int, ...] = (3, 5, 17)) -> Roots:
    """Products, sums, weights and transposes of matrices and vectors of three lengths, all used."""
    pool = [leaf(i, Meta(tuple(int(n) for n in rng.choice(sizes, 2)), F8)) for i in range(4)]
    pool += [leaf(4 + i, Meta((n,), F8)) for i, n in enumerate(sizes)]
    unused: list[Hop] = []
    made = 0
    while made < operators:
        x, y = (pool[int(i)] for i in rng.integers(0, len(pool), 2))
        if unused and rng.random() < 0.6:
            x = unused[-1]
        try:
            match rng.integers(0, 5):
                case 0 | 1 | 2:
                    hop = make("matmul", (x, y) if rng.random() < 0.5 else (y, x))
                case 3:
                    hop = apply(str(rng.choice(["add", "subtract", "multiply"])), x, y)
                case _:
                    hop = make("transpose", (x,), axes=tuple(range(x.meta.ndim))[::-1])
        except (ValueError, TypeError):
            continue
        if hop in pool or hop.meta.size > 400 * (sizes[-1] // 17) ** 2 or not hop.meta.ndim:
            continue
        made += 1
        unused = [u for u in unused if u not in hop.inputs] + [hop]
        pool.append(hop)
    return tuple(unused)


def everything(roots: Roots, rules, limit: int) -> set[Roots] | None:
    """All states that substitutions lead to; None if there are too many."""
    found, stack = {roots}, [roots]
    while stack:
        state = stack.pop()
        for _, joint in moves(state, rules, frozenset()):
            new = substitute(state, joint)
            if new not in found:
                if len(found) == limit:
                    return None
                found.add(new)
                stack.append(new)
    return found


@pytest.mark.parametrize("seed", range(40))
def test_it_finds_the_best_of_all_states(seed: int):
    rng = np.random.default_rng(seed)
    roots = random_products(rng, int(rng.integers(3, 9)))
    states = everything(roots, SUBSTITUTIONS, 150)
    if states is None:
        pytest.skip("too many states to look at")
    costs = Additive()
    found = search(roots, SUBSTITUTIONS, costs, ALL)
    best = min(map(costs.total, states))
    assert found.after <= best / 0.98  # what is better by less than a hundredth is not taken
    assert found.before == costs.total(roots) >= found.after == costs.total(found.roots)


@pytest.mark.parametrize("seed", range(15))
def test_what_it_finds_means_the_same_and_costs_no_more(seed: int):
    rng = np.random.default_rng(1000 + seed)
    roots = random_products(rng, int(rng.integers(3, 25)))
    costs = Additive()
    effort = SearchBudget(expansions=5, seconds=inf, min_seconds=0.0)
    found = minimise_cost(roots, SUBSTITUTIONS, lambda part, leaf_values: costs, effort)
    assert costs.total(found.roots) <= costs.total(roots) * 1.0001
    given = operands(roots, rng, special=False)
    before, after = values(roots, given), values(found.roots, given)
    scale = [np.max(np.abs(x), initial=1.0) for x in before]
    assert all(close(x / s, y / s) for x, y, s in zip(before, after, scale, strict=True))


UPHILL = "add(matmul(matmul(A[39,20], B[20,20]), C[20,40]), matmul(A, D[20,40]))"


def test_the_way_to_the_best_may_lead_uphill():
    """A @ B @ C is cheapest from the left; from the right it has a factor in common with A @ D."""
    roots = Reader().read(UPHILL)
    costs = Additive()
    efforts = [SearchBudget(bound=bound, seconds=inf, min_seconds=0.0) for bound in (1.0, 1.05)]
    greedy, relaxed = (search(roots, SUBSTITUTIONS, costs, effort) for effort in efforts)
    assert relaxed.after < 0.8 * greedy.after
    assert [rule.name for rule in relaxed.fired] == ["product-to-the-right", "common-left-plus"]
    one_step = substitute(roots, next(j for r, j in moves(roots, SUBSTITUTIONS, frozenset())
                                      if r.name == "product-to-the-right"))
    assert costs.total(roots) < costs.total(one_step) < 1.05 * costs.total(roots)


def test_states_that_are_not_allowed_are_not_taken():
    reader = Reader()
    roots = reader.read("matmul(matmul(A[30,20], B[20,10]), v[10])")
    wanted = reader.read("matmul(A, matmul(B, v))")
    free = search(roots, SUBSTITUTIONS, Additive(), ALL)
    assert free.after < Additive().total(roots)
    found = search(roots, SUBSTITUTIONS.only("product-to-the-right"), Additive(wanted), ALL)
    assert found.roots == roots and not found.fired


def test_cheap_dags_are_not_even_priced():
    roots = Reader().read("matmul(matmul(A[3,4], B[4,5]), v[5])")
    costs = Additive()
    found = search(roots, SUBSTITUTIONS, costs, SearchBudget(min_seconds=costs.total(roots) + 1))
    assert found.roots == roots and not costs.priced


def test_where_nothing_can_be_substituted_nobody_is_asked():
    roots = Reader().read("exp(add(X[3], Y[3]))")
    found = minimise_cost(roots, SUBSTITUTIONS, lambda part, leaf_values: pytest.fail("asked"), ALL)
    assert found.roots == roots and found.priced == 0


def test_a_part_is_priced_only_if_a_neighbour_looks_better():
    reader = Reader()
    best = reader.read("matmul(A[30,20], matmul(B[20,10], v[10]))")
    other = reader.read("matmul(matmul(A, B), v)")
    effort = SearchBudget(seconds=inf, min_seconds=0.0, price_start=False)
    rules = SUBSTITUTIONS.only("product-to-the-right", "product-to-the-left")
    for roots, better in ((best, False), (other, True)):
        costs = Additive()
        found = search(roots, rules, costs, effort)
        assert found.roots == best and bool(costs.priced) == better


def test_time_ends_the_search():
    """Every look at the clock is a second."""
    roots = random_products(np.random.default_rng(5), 12)
    ticks = count()
    costs = Additive()
    effort = SearchBudget(seconds=20.0, min_seconds=0.0)
    found = search(roots, SUBSTITUTIONS, costs, effort, clock=lambda: float(next(ticks)))
    assert found.exhausted and next(ticks) < 60


def test_the_first_plan_counts():
    """Pricing it takes all the time there is."""
    roots = Reader().read("matmul(matmul(A[30,20], B[20,10]), v[10])")
    costs, now = Additive(), [0.0]

    def slowly(given: Roots) -> float:
        now[0] += 30.0
        return Additive.price(costs, given)

    costs.price = slowly
    budget = SearchBudget(seconds=20.0, min_seconds=0.0)
    found = search(roots, SUBSTITUTIONS, costs, budget, clock=lambda: now[0])
    assert found.exhausted and found.priced == 1 and found.roots == roots and not found.expanded


@pytest.mark.parametrize("took", [0.0, 15.0])
def test_large_dags_are_searched_in_the_time_that_a_second_plan_leaves(took: float):
    """The first plan takes so many of twenty seconds; a better state takes as long to plan once more."""
    roots = Reader().read(text_of_three())
    now = [0.0]

    class Slow(Additive):
        def price(self, roots: Roots) -> float:
            now[0] += took
            return super().price(roots)

    effort = SearchBudget(seconds=20.0, min_seconds=0.0, max_operators=4)
    found = minimise_cost(
        roots, SUBSTITUTIONS, lambda part, leaf_values: Slow() if part is roots else Additive(), effort,
        clock=lambda: now[0])
    assert found.exhausted == (took > 0) == (found.roots == roots)
    assert now[0] <= 20.0


def test_results_stay_memory_of_their_own():
    """A transposed product is a view: as a result it must not take the place of a product."""
    roots = Reader().read("matmul(transpose(A[4,3]), B[4,5])")
    found = search(roots, SUBSTITUTIONS.only("product-as-t"), Additive(), ALL)
    assert found.expanded and found.roots == roots and found.priced == 1


# --------------------------------------------------------------------------- parts


class Whole(Additive):
    """Parts become cheaper; as one, anything new is dearer by so much."""

    def __init__(self, given: Roots, more: float) -> None:
        super().__init__()
        self.given, self.more = given, more

    def price(self, roots: Roots) -> float:
        return self.total(self.given) * (1.0 if roots == self.given else self.more)


def text_of_three() -> str:
    """Parts that are cheaper from the right, one in another."""
    text = "matmul(matmul(A[30,20], B[20,10]), v[10])"
    for n in range(3):
        text = f"exp(add({text}, matmul(matmul(A{n}[30,20], B{n}[20,10]), v{n}[10])))"
    return text


@pytest.mark.parametrize("more", [0.5, 1.0, 2.0, inf])
def test_what_parts_come_to_is_taken_only_if_the_whole_is_cheaper(more: float):
    roots = Reader().read(text_of_three())
    whole = Whole(roots, more)
    effort = SearchBudget(seconds=inf, min_seconds=0.0, max_operators=4)
    found = minimise_cost(
        roots, SUBSTITUTIONS, lambda part, leaf_values: whole if part is roots else Additive(), effort)
    if more < 1.0:
        assert found.roots != roots and found.fired and found.after == 0.5 * found.before
    else:
        assert found.roots == roots and not found.fired and found.after == found.before


@pytest.mark.parametrize("seed", range(30))
def test_parts_are_small_convex_and_put_back_as_they_were(seed: int):
    rng = np.random.default_rng(seed)
    roots = random_products(rng, 40)
    weights = {(i, h): 1 + int(rng.integers(4)) for h in topo(roots) for i in h.inputs if rng.random() < 0.7}
    parts = partition(roots, weights, 8)
    assert parts
    seen: set[Hop] = set()
    for part in parts:
        inside = [h for h in topo(part.roots) if h.op.kind is not Kind.LEAF]
        assert len(inside) <= 8
        whole = substitute(roots, part.replacements(part.roots))  # operands that commute may change places
        given = operands(roots, rng, special=False)
        assert all(map(np.array_equal, values(roots, given), values(whole, given)))
        assert not seen.intersection(part.outputs)
        seen.update(part.outputs)
        below = set(topo(part.leaf_values.values()))
        assert not below.intersection(part.outputs), "a part waits for itself"


# Every substitution of the search leads where its fixture says, and means the same.

LINES = fixture_lines(FOLDER / "search")
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
