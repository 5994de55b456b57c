"""The search over real plans: the optimum of small DAGs, its effect on programs, its settings."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

import jitla
from jitla.engine import ENGINE
from jitla.fusion import Call, Layout, is_view
from jitla.hops import REFERENCE_MACHINE, Hop, substitute, topo
from jitla.recompile.pipeline import PlanningContext, SearchCosts
from jitla.rewrites import SUBSTITUTIONS, SearchBudget, moves, simplify
from jitla.rewrites.search import search
from tests.rewrites.expression import Reader

# The search over real plans: the optimum of small DAGs, its effect on programs, its settings.

ALL = SearchBudget(bound=inf, expansions=10_000, seconds=inf, min_seconds=0.0)
RIGHT, LEFT = "product-to-the-right", "product-to-the-left"
SMALL = {
    "matmul(matmul(A[300,40], B[40,300]), v[300])": [r.name for r in SUBSTITUTIONS],
    "matmul(transpose(multiply(X[400,50], w[400,1])), matmul(X, v[50]))":
        ["t-of-weighted", "weights-out-of-left"],
    "exp(transpose(multiply(matmul(A[90,80], B[80,70]), s[()])))": [r.name for r in SUBSTITUTIONS],
    "multiply(matmul(multiply(A[200,30], s[30]), B[30,50]), c[200,1])": [r.name for r in SUBSTITUTIONS],
    "exp(matmul(A[60,400], B[400,30])), exp(matmul(A, C[400,20]))": ["products-side-by-side"],
    "matmul(A[100,100], matmul(B[100,90], matmul(C[90,80], v[80])))": [RIGHT, LEFT],
    "transpose(X[1700,1700]), add(X, w[1700]), matmul(transpose(X), v[1700])": ["vector-in-front"],
    "add(matmul(matmul(A[80,70], B[70,60]), v[60]), matmul(A, w[70]))": [RIGHT, LEFT, "common-left-plus"],
}
every_small = pytest.mark.parametrize("text", SMALL)


def supports(hop: Hop) -> str | None:
    return None if hop.op.kind.value in ("cell", "agg") else "left to NumPy"


def appraisals(roots: tuple[Hop, ...], outs=None, layouts=None) -> SearchCosts:
    context = PlanningContext(
        layouts or {}, supports, REFERENCE_MACHINE, ("Cell", "MAgg", "Row"), "cost", 0, None)
    return SearchCosts(roots, outs or (None,) * len(roots), context)


def allowed_states(roots: tuple[Hop, ...], costs, rules) -> set[tuple[Hop, ...]]:
    found, stack = {roots}, [roots]
    while stack:
        state = stack.pop()
        for _, joint in moves(state, rules, frozenset()):
            new = substitute(state, joint)
            if new not in found and costs.floor(new) < inf:
                found.add(new)
                stack.append(new)
    return found


@every_small
def test_exhaustive_search_confirms_the_optimum(text: str):
    roots, rules = Reader().read(text), SUBSTITUTIONS.only(*SMALL[text])
    costs = appraisals(roots).of(roots, {})
    states = allowed_states(roots, costs, rules)
    found = search(roots, rules, costs, ALL)
    assert len([h for h in topo(roots) if h.inputs]) <= 8 and len(states) > 1
    assert found.after <= min(map(costs.price, states)) / 0.98
    usual = search(roots, rules, costs, SearchBudget(seconds=inf, min_seconds=0.0))
    assert usual.after <= min(map(costs.price, states)) / 0.95


@every_small
def test_no_plan_goes_below_the_floor(text: str):
    roots = Reader().read(text)
    costs = appraisals(roots).of(roots, {})
    for state in allowed_states(roots, costs, SUBSTITUTIONS.only(*SMALL[text])):
        assert costs.floor(state) <= costs.price(state)


def test_results_lie_where_numpys_do():
    """In Fortran order, as A.T @ B does not: that is no state of a result, but of what is stored."""
    reader = Reader()
    roots = reader.read("transpose(matmul(A[4,5], B[5,6]))")
    other = reader.read("matmul(transpose(B), transpose(A))")
    assert appraisals(roots).of(roots, {}).floor(other) == inf
    assert appraisals(roots, (1,)).of(roots, {}).floor(other) < inf


def test_leaves_of_parts_lie_as_the_values_they_stand_for():
    reader = Reader()
    roots = reader.read("exp(transpose(X[400,300]))")
    (value,) = roots[0].inputs
    lent = reader.read("Y[300,400]")[0]
    part = (substitute(roots, {value: lent})[0],)
    costs = appraisals(roots, layouts={0: Layout((400, 300), (2400, 8))}).of(part, {lent: value})
    assert costs.floor(part) < inf and costs.price(part) > 0


# --------------------------------------------------------------------------- better than greedy

UPHILL = {
    "low rank both ways": "matmul(matmul(U[4000,10], transpose(V[800,10])), x[800]), "
                          "matmul(transpose(matmul(U, transpose(V))), y[4000])",
    "two directions": "matmul(matmul(T[100,4000], X[4000,100]), v[100]), matmul(matmul(T, X), w[100])",
    "canonical correlation": "matmul(matmul(transpose(X[4000,100]), Y[4000,60]), b[60]), "
                             "matmul(transpose(matmul(transpose(X), Y)), a[100])",
}
BETTER = {
    **UPHILL,
    "projected out": "matmul(matmul(Q[2000,20], transpose(Q)), Y[2000,5]), "
                     "matmul(matmul(Q, transpose(Q)), z[2000])",
    "siamese": "sum(absolute(subtract(tanh(matmul(x[4,800], W[800,800])), tanh(matmul(z[4,800], W)))), "
               "axis=(1,))",
    "two chains": "matmul(p[16,1600], P[1600,1600]), matmul(q[16,1600], P)",
}


def found_with(text: str, bound: float):
    """Return what rules that always pay leave, and what a search from there comes to."""
    greedy = simplify(Reader().read(text))
    costs = appraisals(greedy).of(greedy, {})
    effort = SearchBudget(bound=bound, seconds=inf, min_seconds=0.0)
    return search(greedy, SUBSTITUTIONS.at("numpy"), costs, effort)


@pytest.mark.parametrize("name", BETTER)
def test_a_search_finds_what_rules_that_always_pay_do_not(name: str):
    found = found_with(BETTER[name], 1.05)
    assert found.after < 0.8 * found.before


@pytest.mark.parametrize("name", UPHILL)
def test_the_way_there_leads_uphill(name: str):
    """One use of a product goes another way, for nothing yet; when the other does, too, the product goes."""
    downhill, uphill = (found_with(UPHILL[name], bound) for bound in (1.0, 1.05))
    assert uphill.after < 0.5 * downhill.after


# --------------------------------------------------------------------------- programs


def last_program(**options):
    with jitla.options(**options) as config:
        return ENGINE.compiler(config).programs()[-1]


def hessian(X, w, v):
    return (X.T * w) @ (X @ v)


def data(n: int = 3000, k: int = 60) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal((n, k)), rng.random(n), rng.standard_normal(k)]


def run(function, arguments, **options):
    fast = jitla.jit(function, compile="sync")
    with jitla.options(search_from_us=0, **options):
        result = fast(*arguments)
        fast(*arguments)
    return result, last_program(search_from_us=0, **options)


def test_the_search_runs_and_is_told_of():
    given = data()
    result, program = run(hessian, given, search_ms=1000, without_rules="scaled-columns-times")
    assert np.allclose(result, hessian(*given))
    assert "weights-out-of-left" in program.fired
    assert "us after" in program.text() and program.stages[-1].draft.outcome.after > 0
    assert max(h.meta.size for h in topo(program.plan.outputs) if h.op.name == "multiply") == 3000


@pytest.mark.parametrize("options", [{"search_ms": 0}, {"rewrites": False}, {"numerics": "strict"},
                                     {"fusion": "all"}])
def test_it_can_be_switched_off(options: dict):
    given = data()
    result, program = run(hessian, given, **options)
    assert np.allclose(result, hessian(*given))
    assert "weights-out-of-left" not in program.fired


def test_rewrites_can_be_switched_off():
    def chain(A, B, v):
        return A @ B @ v

    a = np.ones((50, 40))
    assert run(chain, [a, a.T, np.ones(50)], rewrites=False)[1].fired == ()
    assert "matmul-chain" in run(chain, [a, a.T, np.ones(50)])[1].fired


def test_pagerank_forms_no_square_matrix():
    def pagerank(G, p, e, u):
        return 0.85 * (G @ p) + (1 - 0.85) * (e @ u @ p)

    def with_outer(G, p, e, u):
        return 0.85 * (G @ p) + (1 - 0.85) * (np.outer(e[:, 0], u[0]) @ p)

    n = 500
    given = [np.eye(n), np.arange(n) / n, np.ones((n, 1)), np.full((1, n), 1 / n)]
    for function in (pagerank, with_outer):
        result, program = run(function, given)
        assert np.allclose(result, pagerank(*given))
        assert not [h for h in topo(program.plan.outputs) if h.inputs and h.meta.size > n]


SPELLINGS = {
    "in front": lambda X, w, v: X.T @ (w * (X @ v)),
    "behind": lambda X, w, v: (w * (X @ v)) @ X,
    "turned": lambda X, w, v: X.T @ (w * (v @ X.T)),
    "weighted": hessian,
    "diagonal": lambda X, w, v: (X.T * w) @ X @ v,
    "rows": lambda X, w, v: (X * w[:, None]).T @ (X @ v),
    "inner rows": lambda X, w, v: X.T @ (w[:, None] * X) @ v,
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_spellings_of_a_weighted_gram_product_are_one_plan(name: str):
    """One kernel over blocks of rows, nothing of the size of X in memory."""
    given = data()
    result, program = run(SPELLINGS[name], given, search_ms=2000)
    assert np.allclose(result, SPELLINGS["in front"](*given))
    called = [s.hop.op.name for s in program.plan.steps if isinstance(s, Call) and not is_view(s.hop)]
    assert program.kernels == 1 and not called
    assert not [h for h in topo(program.plan.outputs) if h.op.name == "multiply" and h.meta.ndim == 2]


COLUMNS = {
    "in front": lambda X, w, v: X.T @ (w * (X @ v)),
    "called": lambda X, w, v: np.dot(X.T, np.multiply(X.dot(v), w)),
    "lying": lambda X, w, v: (w * (X @ v)).T @ X,
    "taken out": lambda X, w, v: (X.T @ (w[:, 0][:, None] * (X @ v[:, 0][:, None]))).ravel(),
}


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("spread", [1, 3])
def test_vectors_written_as_columns_are_one_plan_too(name: str, spread: int):
    """As those who come from other languages write them; `spread` columns lie beside each other."""
    X, w, v = data()
    w, v = (np.repeat(x[:, None], spread, axis=1)[:, :1] for x in (w, v))
    result, program = run(COLUMNS[name], (X, w, v))
    expected = COLUMNS[name](X, w, v)
    assert np.allclose(result, expected) and result.strides == expected.strides
    assert program.kernels == 1 and not [
        s for s in program.plan.steps if isinstance(s, Call) and not is_view(s.hop)]


def test_merged_products_serve_other_sizes():
    """A program that cuts a product in two is bound to its sizes: others get a program of their own."""
    def pair(A, B, C):
        return (A @ B).sum(axis=0), np.exp(0.01 * (A @ C))

    fast = jitla.jit(pair, compile="sync")
    rng = np.random.default_rng(1)
    with jitla.options(search_from_us=0, search_ms=1000):
        for n, k, m, p in [(40, 30, 7, 9), (44, 33, 8, 10), (50, 20, 16, 5), (40, 30, 7, 9), (60, 30, 9, 7)]:
            given = rng.random((n, k)), rng.random((k, m)), rng.random((k, p))
            assert all(map(np.allclose, fast(*given), pair(*given)))


def test_sizes_of_another_shape_get_an_order_of_their_own():
    def chain(A, B, C):
        return A @ B @ C

    fast = jitla.jit(chain, compile="sync")
    rng = np.random.default_rng(2)

    def order(*lengths: int) -> list[int]:
        given = [rng.random(s) for s in zip(lengths, lengths[1:], strict=False)]
        with jitla.options() as config:
            assert np.allclose(fast(*given), chain(*given))
            first = ENGINE.compiler(config).programs()[-1]
        programs = [first, *[variant for variant, _ in first.variants]]
        last = [next(h for h in reversed(topo(p.plan.outputs)) if h.op.name == "matmul") for p in programs]
        return [product.inputs[0].op.name == "leaf" for product in last]

    assert order(60, 5, 70, 6) == [True]
    assert order(5, 61, 7, 71) == [True, False]
    assert order(66, 6, 77, 7) == [True, False]
