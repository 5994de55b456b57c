"""Every rule: its fixtures, its metas, its numerics, its place on the page of rules."""

from __future__ import annotations

import re
from zlib import crc32

import numpy as np
import pytest

from jitla.errors import InternalError
from jitla.hops import (
    Hop,
    Kind,
    Meta,
    apply,
    evaluate,
    leaf,
    make,
    show,
    topo,
)
from jitla.rewrites import RULES, SUBSTITUTIONS, Rule, Var, ops, simplify
from tests.rewrites.expression import DECLARED, FEWER_VALUES, Line, Reader, fixture_lines, write
from tests.rewrites.metas import differs, rewritten
from tests.rewrites.programs import (
    close,
    evaluate_with_flags,
    operands,
    same_bits,
    signs_matter,
    values,
)
from tools.rules_table import PAGE, families, page

# Every rule fires where its fixture says so, keeps where it says so, and means the same.

LINES = fixture_lines()
every_line = pytest.mark.parametrize("line", LINES, ids=str)


@every_line
def test_the_rule_fires_or_keeps(line: Line):
    reader = Reader()
    before = reader.read(line.before)
    names = {hop: name for name, hop in reader.leaves.items()}
    fired: list[str] = []

    def note(rule, old: Hop, new: Hop) -> bool:
        fired.append(rule.name)
        return True

    after = simplify(before, RULES.only(line.name), note)
    if line.after == "keep":
        assert not fired and after == before
        return
    assert set(fired) == {line.name}
    wanted = reader.read(line.after)
    shown = [", ".join(write(r, names) for r in roots) for roots in (after, wanted)]
    assert shown[0] == shown[1] and after == wanted, show(after)


@every_line
def test_both_sides_mean_the_same(line: Line):
    if line.after == "keep":
        return
    reader = Reader()
    before, after = reader.read(line.before), reader.read(line.after)
    exact = RULES[line.name].exactness == "exact"
    rng = np.random.default_rng(crc32(line.before.encode()))
    for _ in range(8):
        given = operands(before, rng, special=exact)
        for x, y in zip(values(before, given), values(after, given), strict=True):
            same = same_bits(x, y, signs_matter(before)) if exact else close(x, y)
            assert same, (x, y)


@pytest.mark.parametrize("outcome", ["fires", "keeps"])
def test_every_rule_has_both_lines(outcome: str):
    shown = {line.name for line in LINES if (line.after == "keep") == (outcome == "keeps")}
    assert sorted({rule.name for rule in RULES} - shown) == []


def test_every_line_names_a_rule():
    assert sorted({line.name for line in LINES} - {rule.name for rule in RULES}) == []


# --------------------------------------------------------------------------- all dtypes, and warnings

EXACT = [line for line in LINES if line.after != "keep" and RULES[line.name].exactness == "exact"]
SMALL = ("b1", "i1", "u1", "i2", "u2", "i4", "u8", "f2", "f4", "f8", "c8", "c16")


def in_dtype(line: Line, dtype: str) -> tuple[Hop, ...] | None:
    """Return the left side of a line with `dtype` for that of its first leaf; None if NumPy has no such."""
    first = DECLARED.findall(line.before)[0][2] or ".f8"

    def swapped(found: re.Match[str]) -> str:
        same = (found[3] or ".f8") == first
        return f"{found[1]}[{found[2]}].{dtype}" if same else found[0]

    try:
        return Reader().read(DECLARED.sub(swapped, line.before))
    except (TypeError, ValueError, InternalError, OverflowError):
        return None


@pytest.mark.parametrize("line", EXACT, ids=str)
def test_exact_rules_are_so_for_every_dtype(line: Line):
    """Where a rule fires for other dtypes than its fixture shows, it keeps bits and warnings, too."""
    rules = RULES.only(line.name)
    rng = np.random.default_rng(7)
    for dtype in SMALL:
        before = in_dtype(line, dtype)
        after = before and simplify(before, rules)
        if not before or after == before:
            continue
        for _ in range(4):
            given = operands(before, rng, special=True)
            wanted, flags = evaluate_with_flags(before, given)
            found, others = evaluate_with_flags(after, given)
            for x, y in zip(wanted, found, strict=True):
                assert same_bits(x, y, signs_matter(before)), (dtype, x, y)
            assert line.name in FEWER_VALUES or flags & ~others == 0, (dtype, flags, others)


@pytest.mark.parametrize("line", [line for line in LINES if line.after != "keep"], ids=str)
def test_no_rule_makes_arithmetic_of_single_integers(line: Line):
    """NumPy's operators warn where single integers wrap around; counts are too small for that."""
    reader = Reader()
    before, after = reader.read(line.before), reader.read(line.after)
    for hop in set(topo(after)) - set(topo(before)):
        single = hop.op.kind is Kind.CELL and hop.meta.shape == () and hop.meta.dtype.kind in "iu"
        wraps = single and hop.op.name in ("add", "subtract", "multiply", "negative", "absolute", "square")
        assert not wraps or any(i.op.name == "count" for i in hop.inputs), hop


# Both sides of every rule have one shape and dtype, and mean the same, for many dtypes and shapes.

X, Y = Var("X"), Var("Y")


def faults(rule: Rule, each: int) -> list[str]:
    rng = np.random.default_rng(sum(map(ord, rule.name)))
    found = (differs(rule, before, after, rng) for before, after in rewritten(rule, rng, each))
    return [text for text in found if text is not None]


@pytest.mark.parametrize("rule", [*RULES, *SUBSTITUTIONS], ids=lambda r: r.name)
def test_both_sides_have_one_shape_and_dtype(rule: Rule):
    assert not faults(rule, 8)


@pytest.mark.parametrize("rule", [
    Rule("no-cast", ops.logical_xor(ops.logical_not(X), ops.logical_not(Y)), ops.logical_xor(X, Y), doc="d"),
    Rule("other-shape", ops.add(X, Y), ops.add(X, X), doc="d"),
    Rule("other-dtype", ops.absolute(X), ops.positive(X), doc="d"),
    Rule("other-value", ops.subtract(X, Y), ops.subtract(Y, X), doc="d"),
], ids=lambda r: r.name)
def test_rules_without_their_conditions_are_found(rule: Rule):
    assert faults(rule, 60)


def test_a_matrix_product_beside_a_stack_is_summed_as_it_stands():
    """The sum is broadcast: sums of the product alone would be summed once too seldom."""
    a, b, c = (leaf(n, Meta(s, np.dtype("f8"))) for n, s in enumerate([(3, 2), (2, 4), (5, 3, 4)]))
    whole = make("sum", (make("add", (make("matmul", (a, b)), c)),), axis=(0,), keepdims=False)
    assert not list(RULES["sum-of-product-plus"].candidates(whole, lambda hop: False))


@pytest.mark.parametrize("dtype", ["u1", "i8", "b1"])
def test_integers_that_wrap_around_are_searched_shifted(dtype: str):
    x, s = leaf(0, Meta((5,), np.dtype(dtype))), leaf(1, Meta((), np.dtype(dtype)), "scalar")
    for name in ("argmin", "argmax"):
        found = make(name, (make("add", (x, s)),), axis=0, keepdims=False)
        assert not list(RULES[f"{name}-of-shifted-sum"].candidates(found, lambda hop: False))


def test_logarithms_of_complex_exponentials_are_of_one_turn():
    z = leaf(0, Meta((5,), np.dtype("c16")))
    assert not list(RULES["log-of-exp"].candidates(make("log", (make("exp", (z,)),)), lambda hop: False))
    with np.errstate(all="ignore"):
        assert not same_bits(np.log(np.exp(np.array([4j]))), np.array([4j]))


# What rewrites of products may change at inf, NaN and overflow, and what not.

PRODUCTS = [
    "sum(matmul(A[5,4], B[4,6]))", "sum(matmul(A[5,4], B[4,6]), axis=(0,))",
    "sum(matmul(A[5,4], B[4,6]), axis=(1,))", "matmul(matmul(A[9,5], B[5,6]), v[6])",
    "matmul(v[9], matmul(A[9,5], B[5,6]))", "matmul(matmul(A[9,2], B[2,9]), C[9,2])",
    "matmul(A[5,1], B[1,4])",
]


@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("text", PRODUCTS)
def test_results_are_finite_where_numpys_are(text: str, special: float):
    """An inf may become a NaN, or the other way round; a number stays a number."""
    roots = Reader().read(text)
    after = simplify(roots)
    assert after != roots
    rng = np.random.default_rng(3)
    for _ in range(30):
        given = operands(roots, rng, special=False)
        hit = given[int(rng.integers(len(given)))]
        hit.flat[int(rng.integers(hit.size))] = special
        before, rewritten = values(roots, given)[0], values(after, given)[0]
        assert np.array_equal(np.isfinite(before), np.isfinite(rewritten))
        assert np.allclose(before[np.isfinite(before)], rewritten[np.isfinite(rewritten)])


def test_sums_of_factors_may_overflow_where_products_do_not():
    """The written exception: column sums past the largest number, met by a zero."""
    roots = Reader().read("sum(matmul(A[2,1], B[1,2]))")
    given = [np.full((2, 1), 1e308), np.zeros((1, 2))]
    after = simplify(roots, RULES.only("sum-of-product"))
    assert values(roots, given)[0] == 0.0 and np.isnan(values(after, given)[0])


@pytest.mark.parametrize("size", [1e200, 1e-200])
def test_rows_that_are_scaled_afterwards_may_overflow_or_vanish(size: float):
    """The next one: what is divided into the usual range by NumPy is not yet when it is summed."""
    roots = Reader().read("matmul(divide(A[5,4], C[5,1]), B[4,2])")
    given = [np.full((5, 4), size), np.full((5, 1), size), np.full((4, 2), size)]
    after = simplify(roots, RULES.only("divided-rows-times"))
    assert after != roots
    with np.errstate(all="ignore"):
        before, rewritten = values(roots, given)[0], values(after, given)[0]
    assert np.allclose(before, 4 * size, atol=0)
    assert np.isinf(rewritten).all() if size > 1 else not rewritten.any()


@pytest.mark.parametrize("special", [np.inf, np.nan])
@pytest.mark.parametrize("text", ["matmul(X[5,4], diag(v[4]))", "matmul(diag(v[5]), X[5,4])"])
def test_a_diagonal_matrix_that_is_not_made_spreads_nothing(text: str, special: float):
    """The other written exception: NumPy multiplies infinity and NaN by the zeros beside the diagonal."""
    roots = Reader().read(text)
    after = simplify(roots)
    assert after != roots
    given = operands(roots, np.random.default_rng(6), special=False)
    for hit in given:
        kept, hit.flat[1] = hit.flat[1], special
        before, rewritten = values(roots, given)[0], values(after, given)[0]
        finite = np.isfinite(before)
        more = np.isfinite(rewritten).sum() - finite.sum()
        assert not finite.all() and (more > 0 if hit.ndim == 2 else more == 0)
        assert np.allclose(before[finite], rewritten[finite])
        hit.flat[1] = kept


def test_strict_does_none_of_it():
    for text in PRODUCTS:
        roots = Reader().read(text)
        assert simplify(roots, RULES.at("strict")) == roots


@pytest.mark.parametrize("text", PRODUCTS)
def test_errors_stay_within_the_bound_of_products(text: str):
    """Against float64 summed in extended precision: no worse than a few roundings per term."""
    roots = Reader().read(text)
    (after,) = simplify(roots)
    rng = np.random.default_rng(4)
    terms = max(sum(h.meta.shape) for h in topo(roots) if h.op.name == "leaf") ** 2
    for _ in range(20):
        given = operands(roots, rng, special=False)
        wide = [g.astype(np.longdouble) for g in given]
        size = [np.abs(g) for g in wide]
        exact, bound = values(roots, wide)[0], values(roots, size)[0]
        error = np.abs(values((after,), given)[0] - exact)
        assert np.all(error <= terms * np.finfo(float).eps * bound)


# Statistics spelled out are NumPy's own, bit for bit; counts keep nothing alive.

STATISTICS = [("mean", {}), ("var", {}), ("var", {"ddof": 1}), ("std", {}), ("std", {"ddof": 1.5})]
EXACT_DTYPES = ["f8", "f4", "i1", "u1", "i2", "u2", "?"]
ALL = [*EXACT_DTYPES, "i4", "u4", "i8", "u8", "f2"]


def laid_out(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Random values in a random memory layout."""
    layout = rng.integers(0, 4)
    size = tuple(2 * n for n in shape) if layout == 2 else shape
    if dtype == "?":
        values = rng.random(size) < 0.5
    elif np.dtype(dtype).kind == "f":
        values = (rng.standard_normal(size) + rng.choice([0.0, 1e3])).astype(dtype)
    else:
        info = np.iinfo(dtype)
        values = rng.integers(max(info.min, -(2**31)), min(info.max, 2**31), size).astype(dtype)
    if layout == 1:
        return np.asfortranarray(values)
    if layout == 2:
        return values[tuple(slice(None, None, 2) for _ in shape)]
    return values[::-1] if layout == 3 and shape else values


def spelled_out(name: str, data: np.ndarray, axis: tuple[int, ...], keepdims: bool, extra: dict):
    hop = make(name, (leaf(0, Meta(data.shape, data.dtype)),), axis=axis, keepdims=keepdims, **extra)
    (after,) = simplify((hop,))
    assert name not in [h.op.name for h in topo((after,))]
    with np.errstate(all="ignore"):
        mine = evaluate((after,), [data])[0]
        numpys = getattr(np, name)(data, axis=axis, keepdims=keepdims, **extra)
    return mine, numpys


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize(("name", "extra"), STATISTICS)
def test_statistics_have_numpys_bits(name: str, extra: dict, dtype: str):
    rng = np.random.default_rng(5)
    for _ in range(60):
        shape = tuple(int(n) for n in rng.integers(2, 14, rng.integers(1, 4)))
        axis = tuple(i for i in range(len(shape)) if rng.random() < 0.6) or (0,)
        data = laid_out(rng, shape, dtype)
        mine, numpys = spelled_out(name, data, axis, bool(rng.random() < 0.3), extra)
        assert type(mine) is type(numpys) and same_bits(mine, numpys), (shape, axis, mine, numpys)


@pytest.mark.parametrize("dtype", EXACT_DTYPES)
@pytest.mark.parametrize(("name", "extra"), STATISTICS)
def test_statistics_of_large_operands_have_numpys_bits(name: str, extra: dict, dtype: str):
    rng = np.random.default_rng(6)
    for shape, axis in (((40000,), (0,)), ((200, 300), (0,)), ((200, 300), (1,)), ((200, 300), (0, 1)),
                        ((3, 9000), (1,)), ((9000, 3), (0,))):
        mine, numpys = spelled_out(name, laid_out(rng, shape, dtype), axis, False, extra)
        assert same_bits(mine, numpys), (shape, axis)


def test_large_float32_counts_divide_in_float64():
    """2**24 + 1 is no float32: the quotient must be NumPy's, by way of float64."""
    data = np.broadcast_to(np.float32(3), (2**24 + 1,))
    mine, numpys = spelled_out("mean", data, (0,), False, {})
    assert same_bits(mine, numpys)


def test_nan_and_inf_go_through():
    for special in (np.nan, np.inf, -0.0):
        data = np.full((3, 4), special)
        for name, extra in STATISTICS:
            mine, numpys = spelled_out(name, data, (0,), False, extra)
            assert same_bits(mine, numpys)


@pytest.mark.parametrize("dtype", ["i4", "i8", "f2"])
def test_strict_leaves_to_numpy_what_numpy_casts_in_pieces(dtype: str):
    hop = make("mean", (leaf(0, Meta((30,), np.dtype(dtype))),), axis=(0,), keepdims=False)
    assert simplify((hop,), RULES.at("strict")) == (hop,)


def test_strict_would_be_wrong_otherwise():
    """The counterexample: int64 values past 2**53, more than 8192 of them."""
    rng = np.random.default_rng(1)
    data = [rng.integers(-(2**62), 2**62, 30000) for _ in range(20)]
    assert any(d.mean() != d.astype(float).sum() / d.size for d in data)
    assert all(np.isclose(d.mean(), d.astype(float).sum() / d.size, rtol=1e-12) for d in data)


def test_a_count_does_not_keep_the_value_it_counts():
    x, y = leaf(0, Meta((30, 1), np.dtype("f8"))), leaf(1, Meta((40,), np.dtype("f8")))
    value = apply("exp", apply("subtract", x, y))
    (after,) = simplify((make("mean", (value,), axis=(0, 1), keepdims=False),))
    counted = [h.inputs[0] for h in topo((after,)) if h.op.name == "count"]
    assert counted and all(h in (x, y) for h in counted)
    data = [np.ones((30, 1)), np.zeros(40)]
    assert evaluate((after,), data)[0] == np.mean(np.exp(data[0] - data[1]))


def test_one_pass_over_the_operand_serves_mean_and_std():
    x = leaf(0, Meta((30, 40), np.dtype("f8")))
    mean = make("mean", (x,), axis=(0,), keepdims=True)
    std = make("std", (x,), axis=(0,), keepdims=True, ddof=0)
    after = simplify((mean, std))
    assert sum(h.op.name == "sum" for h in topo(after)) == 2


# The page of rules is what the rules say; each family of them has one file of fixtures.


def test_the_page_is_made_from_the_rules():
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tools.rules_table"


def test_every_rule_is_in_one_family():
    named = [rule.name for _, members in families().values() for rule in members]
    assert sorted(named) == sorted(rule.name for rule in RULES)


def test_there_are_many_of_them():
    assert len(RULES) >= 150
