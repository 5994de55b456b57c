"""The operator table: recipes, references, declared zeros and inferred metas of every entry."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from jitla.errors import InternalError
from jitla.hops import (
    Hop,
    Kind,
    Meta,
    NumpyBuilder,
    OpSpec,
    WeakScalar,
    Zeros,
    ZeroSafety,
    all_ops,
    apply,
    broadcast,
    by_numpy,
    const,
    evaluate,
    flops,
    has_recipe,
    leaf,
    lookup,
    make,
)

# Every element-wise entry is honest: recipe = reference, zeros = measured, meta = actual.

REAL = [np.dtype(c) for c in "? i1 i2 i4 i8 u1 u2 u4 u8 f4 f8".split()]
COMPLEX = [np.dtype(c) for c in "c8 c16".split()]
NUMBERS = [*REAL, *COMPLEX]
EVERY = [*NUMBERS, np.dtype("f2")]
CELLS = [op for op in all_ops() if op.kind is Kind.CELL]
RECIPES = [op for op in CELLS if op.emit is not None]

# NumPy itself gives either zero here, by position and layout.
EITHER_ZERO = {"maximum", "minimum", "fmax", "fmin", "clip"}


def leaves(arrays: list[np.ndarray]) -> list[Hop]:
    return [leaf(i, Meta(a.shape, a.dtype)) for i, a in enumerate(arrays)]


def by_name(op: OpSpec) -> str:
    return op.name


def special(dtype: np.dtype) -> np.ndarray:
    """Values of `dtype` that tell wrong implementations from right ones."""
    if dtype.kind == "c":
        return special_pairs(dtype)
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        near = [0, 1, 2, 3, 5, 7, 8, 31, 32, 63, 64, 100, info.max - 1, info.max]
        below = [info.min, info.min + 1, -1, -2, -3, -7, -64] if dtype.kind == "i" else []
        return np.array(near + below, dtype)
    info = np.finfo(dtype)
    values = [
        0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 7.0, 0.1, np.pi, 1e-3, 88.7, 709.0, 1e5, 2.0**31,
        2.0**52,
        float(info.max), float(info.tiny), float(info.smallest_subnormal), float(info.eps), np.inf,
    ]
    with np.errstate(over="ignore"):
        return np.array([*values, *(-v for v in values), np.nan, -np.nan], dtype)


def special_pairs(dtype: np.dtype) -> np.ndarray:
    """Complex numbers of special parts, infinite and NaN ones too, and some ordinary ones."""
    real = dtype.type(0).real.dtype
    info = np.finfo(real)
    rest = [1.0, -3.0, 0.1, float(info.max), -float(info.tiny), float(info.smallest_subnormal)]
    ends = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, *rest], real)
    pairs = np.empty((len(ends), len(ends)), dtype)
    pairs.real, pairs.imag = ends[:, None], ends
    rng = np.random.default_rng(3)
    plain = rng.standard_normal((2, 80)).astype(real)
    return np.concatenate([pairs.ravel(), plain[0] + dtype.type(1j) * plain[1]])


def attr_sets(op: OpSpec) -> list[dict]:
    return [{"dtype": d} for d in NUMBERS] if op.name == "cast" else [{}]


def loops(op: OpSpec, dtypes: list[np.dtype]) -> list[tuple[np.dtype, ...]]:
    """Every tuple of dtypes that the op computes in, for operands of `dtypes`."""
    found = {}
    for given in itertools.product(dtypes, repeat=op.arity):
        try:
            found[op.resolve(given, {"dtype": given[0]})] = None
        except TypeError:
            continue
    return list(found)


def grid(dtypes: tuple[np.dtype, ...], thin: int = 1) -> list[np.ndarray]:
    """Every combination of special values, flat."""
    axes = [special(d)[:: thin if d.kind != "b" else 1] for d in dtypes]
    return [a.ravel() for a in np.meshgrid(*axes, indexing="ij")]


def same(actual: np.ndarray, wanted: np.ndarray, either_zero: bool = False) -> np.ndarray:
    """Element by element: equal bits, NaN equal to NaN."""
    assert actual.dtype == wanted.dtype, (actual.dtype, wanted.dtype)
    if wanted.dtype.kind == "c":
        return same(actual.real, wanted.real) & same(actual.imag, wanted.imag)
    equal = (actual == wanted) | ((actual != actual) & (wanted != wanted))
    if wanted.dtype.kind == "f" and not either_zero:
        equal &= (np.signbit(actual) == np.signbit(wanted)) | (wanted != wanted)
    return equal


@pytest.mark.parametrize("op", RECIPES, ids=by_name)
def test_recipe_is_the_reference(op: OpSpec) -> None:
    tried = 0
    for dtypes in loops(op, NUMBERS):
        values = grid(dtypes, thin=3 if op.arity == 3 else 1)
        for attrs in attr_sets(op):
            with np.errstate(all="ignore"):
                actual = op.emit(NumpyBuilder(), *values, attrs)
                if actual is None:
                    continue
                wanted = op.ref(*values, **attrs)
            equal = same(np.broadcast_to(actual, wanted.shape), wanted, op.name in EITHER_ZERO)
            assert equal.all(), [(*(v[~equal][:5] for v in values), actual[~equal][:5])]
            tried += 1
    assert tried, "no dtype is expressible"


@pytest.mark.parametrize("op", RECIPES, ids=by_name)
def test_recipe_works_on_scalars(op: OpSpec) -> None:
    for dtypes in {loops(op, REAL)[-1], loops(op, NUMBERS)[-1]}:
        values = [d.type(1) for d in dtypes]
        for attrs in attr_sets(op):
            with np.errstate(all="ignore"):
                actual = op.emit(NumpyBuilder(), *values, attrs)
                if actual is not None:
                    assert same(actual, op.ref(*values, **attrs)).all()


def test_what_is_left_to_numpy() -> None:
    assert {op.name for op in CELLS if op.emit is None} == {
        "nextafter", "spacing", "ldexp", "gcd", "lcm", "bitwise_count",
    }
    refused = {
        op.name for op in RECIPES for dtypes in loops(op, REAL) for attrs in attr_sets(op)
        if not has_recipe(make(op.name, leaves([np.ones(3, d) for d in dtypes]), **attrs))
    }
    # of integers; of float16
    assert refused == {"power", "reciprocal", "deg2rad", "radians", "rad2deg", "degrees"}
    assert not has_recipe(make("add", [leaf(0, Meta((3,), np.dtype("G")))] * 2))


def test_what_of_complex_numbers_is_left_to_numpy() -> None:
    refused = {
        op.name for op in RECIPES for dtypes in loops(op, COMPLEX) if op.name != "cast"
        and not has_recipe(make(op.name, leaves([np.ones(3, d) for d in dtypes])))
    }
    assert refused == {
        "power", "float_power", "sqrt", "sign", "clip", "rint", "exp", "exp2", "expm1", "log",
        "log2", "log10", "log1p", "sin", "cos", "tan", "arcsin", "arccos", "arctan", "sinh", "cosh",
        "tanh", "arcsinh", "arccosh", "arctanh",
    }
    for x, y in itertools.product(NUMBERS, COMPLEX):
        there, back = (
            make("cast", leaves([np.ones(3, d)]), dtype=e) for d, e in ((x, y), (y, x)))
        assert has_recipe(there) and has_recipe(back) == (x.kind in "bc")


@pytest.mark.parametrize("dtype", COMPLEX, ids=str)
def test_complex_products_keep_their_order(dtype: np.dtype) -> None:
    x, y = leaves([np.ones(3, dtype)] * 2)
    assert make("multiply", [x, y]) is not make("multiply", [y, x])
    assert make("add", [x, y]) is make("add", [y, x])


def finite(dtype: np.dtype) -> np.ndarray:
    values = special(dtype)
    return values[np.isfinite(values)]


def measured_zeros(op: OpSpec) -> Zeros:
    """The strongest promise that holds for all finite operands of all dtypes."""
    any_holds = all_holds = True
    for dtypes in loops(op, REAL):
        axes = [finite(d)[:: 2 if op.arity == 3 and d.kind != "b" else 1] for d in dtypes]
        values = [a.ravel() for a in np.meshgrid(*axes, indexing="ij")]
        zero = [v == 0 for v in values]
        for attrs in attr_sets(op):
            with np.errstate(all="ignore"):
                try:
                    out = op.ref(*values, **attrs) == 0
                except ValueError:  # integers to negative powers
                    continue
            any_holds &= bool(out[np.any(zero, axis=0)].all())
            all_holds &= bool(out[np.all(zero, axis=0)].all())
    return Zeros.ANY if any_holds else Zeros.ALL if all_holds else Zeros.NONE


@pytest.mark.parametrize("op", CELLS, ids=by_name)
def test_declared_zeros_are_measured(op: OpSpec) -> None:
    assert measured_zeros(op) is op.zeros


def loop_result(op: OpSpec, dtypes: tuple[np.dtype, ...]) -> np.dtype:
    return make(op.name, leaves([np.ones(1, d) for d in dtypes])).meta.dtype


@pytest.mark.parametrize("op", [op for op in CELLS if op.commutes], ids=by_name)
def test_commuting_is_exact(op: OpSpec) -> None:
    for dtypes in loops(op, REAL) + loops(op, COMPLEX):
        if not op.commutes_in(loop_result(op, dtypes)):
            continue
        x, y = grid(dtypes)
        with np.errstate(all="ignore"):
            assert same(op.ref(x, y), op.ref(y, x)).all()


@pytest.mark.parametrize("op", CELLS, ids=by_name)
def test_meta_is_the_actual_shape_and_dtype(op: OpSpec) -> None:
    rng = np.random.default_rng(7)
    for dtypes in loops(op, EVERY):
        full = tuple(rng.integers(0, 4, rng.integers(0, 4)).tolist())
        shapes = [
            tuple(1 if rng.random() < 0.3 else n for n in full[rng.integers(0, len(full) + 1):])
            for _ in dtypes
        ]
        values = [np.ones(s, d) for s, d in zip(shapes, dtypes, strict=True)]
        attrs = attr_sets(op)[0]
        hop = make(op.name, leaves(values), **attrs)
        with np.errstate(all="ignore"):
            wanted = op.ref(*values, **attrs)
            (actual,) = evaluate([hop], values)
        assert (hop.meta.shape, hop.meta.dtype) == (np.shape(wanted), wanted.dtype)
        assert type(actual) is (np.ndarray if hop.meta.shape else hop.meta.dtype.type)


# ----------------------------------------------------------------------------- promotion

WEAK = {bool: True, int: 3, float: 1.5, complex: 1.5j}


def operands(arity: int) -> list[tuple]:
    """Arrays, NumPy scalars and Python scalars of every dtype, at least one not a Python scalar."""
    arrays = [np.array([0, 1, 3]).astype(d) for d in EVERY]
    scalars = [d.type(1) for d in EVERY]
    weak = list(WEAK.values())
    if arity == 1:
        return [(x,) for x in arrays + scalars]
    strong = list(itertools.product(arrays, arrays + scalars + weak))
    strong += list(itertools.product(scalars + weak, arrays))
    return strong + list(itertools.product(scalars, weak))


def lazily(op: OpSpec, given: tuple) -> Hop:
    hops = [
        WeakScalar(i, type(v)) if type(v) in WEAK
        else leaf(i, Meta(np.shape(v), v.dtype), "array" if isinstance(v, np.ndarray) else "scalar")
        for i, v in enumerate(given)
    ]
    return apply(op.name, *hops)


def outcome(fn, *args) -> tuple:
    """Value, dtype, shape, or the exception, of a call."""
    with np.errstate(all="ignore"):
        try:
            out = fn(*args)
        except Exception as error:
            return type(error), str(error)
    return np.shape(out), out.dtype, out.tobytes()


@pytest.mark.parametrize(
    "op", [op for op in CELLS if op.arity < 3 and op.name != "cast"], ids=by_name,
)
def test_promotion_is_numpys(op: OpSpec) -> None:
    for given in operands(op.arity):
        wanted = outcome(op.ref, *given)
        actual = outcome(lambda given=given: evaluate([lazily(op, given)], given)[0])
        assert actual == wanted, given


@pytest.mark.parametrize("name", ["where", "clip"])
def test_promotion_of_three_operands(name: str) -> None:
    op = lookup(name)
    x = np.array([0, 1, 3])
    for a, b in operands(2)[::3]:
        given = (x > 0, a, b) if name == "where" else (x.astype(np.int16), a, b)
        wanted = outcome(getattr(np, name), *given)
        actual = outcome(lambda given=given: evaluate([lazily(op, given)], given)[0])
        assert actual == wanted, given


def test_cast_is_astype() -> None:
    for d, e in itertools.product(EVERY, EVERY):
        if d.kind == "c" and e.kind != "c":
            continue
        x = np.array([0, 1, 3]).astype(d)
        (out,) = evaluate([apply("cast", leaf(0, Meta(x.shape, d)), dtype=e)], [x])
        assert out.dtype == e and (out == x.astype(e)).all()


def test_by_numpy_knows_the_aliases() -> None:
    assert by_numpy(np.mod).name == "remainder"
    assert by_numpy(np.degrees).name == "degrees"
    assert by_numpy(np.clip).name == "clip"
    assert by_numpy(np.sort) is None


@pytest.mark.parametrize("shapes", [
    ((3, 1, 2), (4,)), ((2,), (3,)), ((2, 3), (3, 2)), ((0,), (2,)),
])
def test_shapes_that_do_not_fit_raise_numpys_error(shapes: tuple) -> None:
    with pytest.raises(ValueError) as wanted:
        np.add(*map(np.ones, shapes))
    with pytest.raises(ValueError) as actual:
        broadcast(shapes)
    assert str(actual.value) == str(wanted.value)


def test_nnz_follows_zeros() -> None:
    f8 = np.dtype("f8")
    x, y = leaf(0, Meta((4, 5), f8, 3)), leaf(1, Meta((5,), f8, 2))
    assert make("multiply", [x, y]).meta.nnz == 3
    assert make("add", [x, y]).meta.nnz == 3 + 2 * 4
    assert make("exp", [x]).meta.nnz is None
    assert make("multiply", [x, leaf(2, Meta((4, 5), f8))]).meta.nnz == 3
    assert make("add", [x, leaf(2, Meta((4, 5), f8))]).meta.nnz is None


def test_nnz_bounds_hold_on_random_programs() -> None:
    rng = np.random.default_rng(11)
    names = [op.name for op in CELLS if op.arity == 2 and op.zeros is not Zeros.NONE]
    for _ in range(300):
        shapes = [(4, 5), (5,), (4, 1), (4, 5)]
        arrays = [(rng.integers(-3, 4, s) * (rng.random(s) < 0.2)).astype(float) for s in shapes]
        counts = [int(np.count_nonzero(a)) for a in arrays]
        hops = [leaf(i, Meta(s, np.dtype("f8"), counts[i])) for i, s in enumerate(shapes)]
        for _ in range(3):
            x, y = (hops[i] for i in rng.integers(len(hops), size=2))
            try:
                hops.append(apply(names[rng.integers(len(names))], x, y))
            except TypeError:
                continue
        hops.append(apply("where", hops[-1], hops[0], hops[-2]))
        with np.errstate(all="ignore"):
            values = evaluate(hops, arrays)
        for hop, out in zip(hops, values, strict=True):
            assert hop.meta.nnz is None or np.count_nonzero(out) <= hop.meta.nnz, hop


@pytest.mark.parametrize("op", [op for op in CELLS if op.zeros is not Zeros.NONE], ids=by_name)
def test_declared_zeros_hold_for_complex_numbers(op: OpSpec) -> None:
    for dtypes in loops(op, [*COMPLEX, np.dtype(bool)]):
        values = [v.ravel() for v in np.meshgrid(*map(finite, dtypes), indexing="ij")]
        zero = [v == 0 for v in values]
        for attrs in attr_sets(op):
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                out = op.ref(*(v[::7] for v in values), **attrs) == 0
            asked = np.any(zero, axis=0) if op.zeros is Zeros.ANY else np.all(zero, axis=0)
            assert out[asked[::7]].all()


def measured_safe(op: OpSpec, at: int) -> ZeroSafety:
    """What the other operands have to be for a zero in operand `at` to give zero, in all real dtypes."""
    allowed = {ZeroSafety.ALWAYS: True, ZeroSafety.FINITE: True, ZeroSafety.NONZERO: True}
    for dtypes in loops(op, REAL):
        axes = [special(d) for d in dtypes]
        axes[at] = axes[at][axes[at] == 0]
        values = [a.ravel() for a in np.meshgrid(*axes, indexing="ij")]
        others = [v for i, v in enumerate(values) if i != at]
        for attrs in attr_sets(op):
            with np.errstate(all="ignore"):
                try:
                    zero = np.broadcast_to(op.ref(*values, **attrs) == 0, values[0].shape)
                except ValueError:  # integers to negative powers
                    return ZeroSafety.NEVER
            allowed[ZeroSafety.ALWAYS] &= bool(zero.all())
            allowed[ZeroSafety.FINITE] &= bool(zero[np.all([np.isfinite(v) for v in others], axis=0)].all())
            known = np.all([(v != 0) & (v == v) for v in others], axis=0)
            allowed[ZeroSafety.NONZERO] &= bool(zero[known].all())
    return next((safe for safe, holds in allowed.items() if holds), ZeroSafety.NEVER)


@pytest.mark.parametrize("op", CELLS, ids=by_name)
def test_declared_sparse_safety_is_measured(op: OpSpec) -> None:
    assert tuple(measured_safe(op, at) for at in range(op.arity)) == op.safe


# Operators at stored positions mean what SciPy's matrices say.

DENSE = np.random.default_rng(0).random((9, 6))
DENSE[np.random.default_rng(1).random((9, 6)) < 0.6] = 0
ROWS = sp.csr_array(DENSE)
S, C, D = ROWS.indptr, ROWS.indices, ROWS.data
AT = ROWS.tocoo().coords

X, LONG, WIDE = (np.random.default_rng(2).random(s) for s in ((9, 6), 9, 6))
A, B = (np.random.default_rng(3).random(s) for s in ((9, 4), (6, 4)))
# op name -> operands, attributes, what they give
CASES: dict[str, tuple[tuple[Any, ...], dict[str, Any], np.ndarray]] = {
    "sampled": ((X, S, C), {}, X[AT]),
    "by_row": ((LONG, S, C), {}, LONG[AT[0]]),
    "by_column": ((WIDE, C), {}, WIDE[AT[1]]),
    "sampled_product": ((A, B, S, C), {}, (A @ B.T)[AT]),
    "csr_product": ((D, C, S, B), {}, ROWS @ B),
    "csr_vector": ((D, C, S, WIDE), {}, ROWS @ WIDE),
    "csr_transposed_vector": ((D, C, S, LONG), {"width": 6}, ROWS.T @ LONG),
    "csr_transposed_product": ((D, C, S, A), {"width": 6}, ROWS.T @ A),
    "csr_row_sums": ((D, S), {}, ROWS.sum(axis=1)),
}


def hop_of(name: str, operands: Any, **attrs: Any) -> Any:
    return apply(name, *[leaf(k, Meta(x.shape, x.dtype)) for k, x in enumerate(operands)], **attrs)


@pytest.mark.parametrize("name", CASES)
def test_they_mean_what_scipy_says(name: str) -> None:
    operands, attrs, wanted = CASES[name]
    hop = hop_of(name, operands, **attrs)
    (found,) = evaluate([hop], list(operands))
    assert (hop.meta.shape, hop.meta.dtype) == (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    np.testing.assert_allclose(found, wanted, rtol=1e-14)
    assert found.flags.owndata and flops(hop) > 0


@pytest.mark.parametrize(("name", "change"), [
    ("sampled", lambda x, s, c: (x[:-1], s, c)), ("by_row", lambda x, s, c: (x[:-1], s, c)),
    ("by_column", lambda x, c: (x, c[None])), ("sampled_product", lambda a, b, s, c: (a, b[:, :3], s, c)),
    ("csr_product", lambda d, c, s, x: (d[None], c, s, x)),
    ("csr_vector", lambda d, c, s, x: (d[:-1], c, s, x)),
    ("csr_vector", lambda d, c, s, x: (d, c, s, x[None])),
    ("csr_transposed_vector", lambda d, c, s, x: (d, c, s, x[:-1])),
    ("csr_transposed_vector", lambda d, c, s, x: (d[:-1], c, s, x)),
    ("csr_transposed_product", lambda d, c, s, x: (d, c, s, x[0])),
    ("csr_row_sums", lambda d, s: (d, s[:0])), ("csr_row_sums", lambda d, s: (d[None], s)),
])
def test_operands_that_do_not_fit(name: str, change: Callable[..., Any]) -> None:
    operands, attrs, _ = CASES[name]
    with pytest.raises(Exception, match=r".") as caught:
        hop_of(name, change(*operands), **attrs)
    assert not isinstance(caught.value, AssertionError)


@pytest.mark.parametrize("kind", ["?", "i1", "u4", "f4", "f8", "c16"])
def test_results_have_the_dtypes_of_scipy(kind: str) -> None:
    rows = ROWS.astype(kind)
    for name, x, wanted in (
        ("csr_vector", WIDE, rows @ WIDE), ("csr_vector", WIDE.astype("f4"), rows @ WIDE.astype("f4")),
        ("csr_transposed_vector", LONG, rows.T @ LONG), ("csr_transposed_product", A, rows.T @ A),
        ("csr_row_sums", None, rows.sum(axis=1)),
    ):
        operands = (rows.data, S) if x is None else (rows.data, C, S, x)
        attrs = {"width": 6} if "transposed" in name else {}
        hop = hop_of(name, operands, **attrs)
        (found,) = evaluate([hop], list(operands))
        assert hop.meta.dtype == found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_rows_that_are_long_or_empty_are_added_as_scipy_does() -> None:
    counts = np.array([0, 700, 0, 0, 3, 9, 129, 0])
    starts = np.concatenate([[0], np.cumsum(counts)])
    data = np.random.default_rng(4).normal(size=counts.sum()).astype("f4")
    rows = sp.csr_array((data, np.arange(counts.sum()), starts), shape=(8, counts.sum()))
    assert evaluate([hop_of("csr_row_sums", (data, starts))], [data, starts])[0].tobytes() == \
        rows.sum(axis=1).tobytes()


# Every aggregate and call evaluates to what NumPy gives, and its inferred meta is the actual.

DTYPES = [np.dtype(c) for c in "? i1 i4 i8 u1 u2 u8 f2 f4 f8 c8 c16".split()]
FULL = [(), (1,), (7,), (3, 4), (1, 5), (2, 3, 4), (0,), (3, 0), (2, 1, 3)]
AGGS = {
    "sum": np.sum, "prod": np.prod, "min": np.min, "max": np.max, "any": np.any, "all": np.all,
    "mean": np.mean, "var": np.var, "std": np.std,
}

# op name -> (NumPy expression of the operands, attributes, shapes of the operands)
Case = tuple[Callable[..., Any], dict[str, Any], list[tuple[int, ...]]]
MATRIX_CASES: dict[str, list[Case]] = {
    "matmul": [
        (np.matmul, {}, shapes) for shapes in (
            [(3, 4), (4, 5)], [(4,), (4,)], [(4,), (4, 5)], [(3, 4), (4,)], [(2, 3, 4), (4, 5)],
            [(2, 1, 3, 4), (6, 4, 5)], [(4,), (2, 4, 5)], [(2, 3, 4), (4,)], [(3, 0), (0, 2)],
        )
    ],
    "dot": [
        (np.dot, {}, shapes) for shapes in (
            [(3, 4), (4, 5)], [(4,), (4,)], [(4,), (4, 5)], [(3, 4), (4,)], [(2, 3, 4), (6, 4, 5)],
            [(), (3,)], [(2, 3), ()], [(), ()], [(2, 3, 4), (4,)],
        )
    ],
    "vdot": [(np.vdot, {}, [(4,), (4,)])],
    "transpose": [(lambda x: x.T, {"axes": (1, 0)}, [(3, 4)]), (lambda x: x, {"axes": ()}, [()]),
                  (lambda x: x.transpose(2, 0, 1), {"axes": (2, 0, 1)}, [(2, 3, 4)])],
    "reshape": [(lambda x: x.reshape(2, 6), {"shape": (2, 6)}, [(3, 4)]),
                (lambda x: x.reshape(()), {"shape": ()}, [(1, 1)])],
    "ravel": [(np.ravel, {}, [(3, 4)]), (np.ravel, {}, [()])],
    "broadcast_to": [
        (lambda x: np.broadcast_to(x, (2, 3, 4)), {"shape": (2, 3, 4)}, [(3, 1)]),
        (lambda x: np.broadcast_to(x, (2,)), {"shape": (2,)}, [()]),
    ],
    "windows": [
        (lambda x: np.lib.stride_tricks.sliding_window_view(x, (2, 3), (2, 0)),
         {"sizes": (2, 3), "axis": (2, 0)}, [(3, 4, 5)]),
        (lambda x: np.lib.stride_tricks.sliding_window_view(x, 4, 0), {"sizes": (4,), "axis": (0,)}, [(9,)]),
    ],
    "concatenate": [
        (lambda *xs: np.concatenate(xs, 1), {"axis": 1}, [(3, 2), (3, 1), (3, 4)]),
        (lambda *xs: np.concatenate(xs), {"axis": 0}, [(2,), (0,)]),
    ],
    "stack": [(lambda *xs: np.stack(xs, 1), {"axis": 1}, [(3,), (3,)]),
              (lambda *xs: np.stack(xs), {"axis": 0}, [(), ()])],
    "getitem": [
        (lambda x: x[1, ..., 2:0:-1], {"index": (("i", 1), ("e",), ("s", 2, 0, -1))}, [(3, 2, 4)]),
        (lambda x: x[None, -1], {"index": (("n",), ("i", -1))}, [(3, 4)]),
        (lambda x: x[1, 2], {"index": (("i", 1), ("i", 2))}, [(3, 4)]),
        (lambda x: x[...], {"index": (("e",),)}, [()]),
        (lambda x: x[()], {"index": ()}, [(2,)]),
        (lambda x: x[5:2, :, None], {"index": (("s", 5, 2, None), ("s", None, None, None), ("n",))},
         [(3, 4)]),
    ],
    "pad": [(lambda x: np.pad(x, ((1, 0), (2, 3))), {"widths": ((1, 0), (2, 3))}, [(3, 4)]),
            (lambda x: np.pad(x, 2), {"widths": ((2, 2),)}, [(3,)])],
    "roll": [(lambda x: np.roll(x, (1, -6), (0, 1)), {"shifts": (1, -6)}, [(3, 4)]),
             (lambda x: np.roll(x, 2), {"shifts": (2,)}, [(3,)])],
    "expand_dims": [(lambda x: np.expand_dims(x, (0, 2)), {"axis": (0, 2)}, [(3, 4)])],
    "squeeze": [(lambda x: np.squeeze(x, (0, 2)), {"axis": (0, 2)}, [(1, 4, 1)]),
                (lambda x: np.squeeze(x), {"axis": (0,)}, [(1,)])],
    "trace": [(np.trace, {}, [(3, 4)]), (np.trace, {}, [(0, 0)])],
    "diagonal": [(np.diagonal, {}, [(3, 4)]), (np.diagonal, {}, [(4, 4)])],
    "diag": [(np.diag, {}, [(3,)]), (np.diag, {}, [(0,)])],
    "flip": [(np.flip, {"axis": (0, 1)}, [(3, 4)]), (np.fliplr, {"axis": (1,)}, [(3, 4)])],
    "cumsum": [(lambda x: np.cumsum(x, 1), {"axis": 1}, [(3, 4)]),
               (np.cumsum, {"axis": None}, [(3, 4)]), (np.cumsum, {"axis": None}, [()]),
               (np.cumsum, {"axis": 0}, [()])],
    "cumprod": [(lambda x: np.cumprod(x, 1), {"axis": 1}, [(3, 4)]), (np.cumprod, {"axis": None}, [(3, 4)])],
    "argmin": [(np.argmin, {"axis": None, "keepdims": False}, [(3, 4)]),
               (lambda x: np.argmin(x, 1, keepdims=True), {"axis": 1, "keepdims": True}, [(3, 4)])],
    "argmax": [(np.argmax, {"axis": None, "keepdims": False}, [()]),
               (lambda x: np.argmax(x, 0), {"axis": 0, "keepdims": False}, [(3, 4)])],
    "count": [(lambda x: np.intp(12), {"axis": (0, 2)}, [(3, 2, 4)]),
              (lambda x: np.intp(1), {"axis": ()}, [(3,)])],
    "norm": [
        (np.linalg.norm, {"order": None, "axis": None, "keepdims": False}, [(3, 4)]),
        (lambda x: np.linalg.norm(x, axis=1), {"order": None, "axis": (1,), "keepdims": False}, [(3, 4)]),
        (lambda x: np.linalg.norm(x, axis=(0, 1), keepdims=True),
         {"order": None, "axis": (0, 1), "keepdims": True}, [(3, 4)]),
        (lambda x: np.linalg.norm(x, np.inf, 0), {"order": np.inf, "axis": (0,), "keepdims": False},
         [(3, 4)]),
    ],
    "einsum": [
        (lambda x, y: np.einsum("ij,j->i", x, y), {"subscripts": "ij,j->i"}, [(3, 4), (4,)]),
        (lambda x: np.einsum("ij->", x), {"subscripts": "ij->"}, [(3, 4)]),
        (lambda x, y: np.einsum("ij,jk->ki", x, y), {"subscripts": "ij,jk->ki"}, [(3, 4), (4, 2)]),
    ],
    "full": [(lambda x: np.full((2, 3), x), {"shape": (2, 3)}, [()]),
             (lambda x: np.full((), x)[()], {"shape": ()}, [()])],
}
MADE: dict[str, list[tuple[dict[str, Any], Any]]] = {
    "arange": [
        ({"start": a, "stop": b, "step": c, "dtype": d}, np.arange(a, b, c, d))
        for a, b, c, d in [(0, 5, 1, "i8"), (0, 1, 0.1, "f8"), (5, 0, -2, "i4"), (3, 3, 1, "i8"),
                           (1, 7, 2, "f4"), (5, 0, 1, "i8"), (1.0, 2.0, 0.3, "f8")]
    ],
    "eye": [({"n": n, "m": m, "k": k, "dtype": "f4"}, np.eye(n, m, k, "f4"))
            for n, m, k in [(3, 3, 0), (2, 4, 1), (4, 2, -1), (0, 2, 0)]],
}


def sample(shape: tuple[int, ...], dtype: np.dtype, seed: int = 0) -> Any:
    values = np.random.default_rng(seed).integers(0, 5, shape)
    return np.asarray(values).astype(dtype)


def check(hop: Any, arrays: list[Any], wanted: Any) -> None:
    (actual,) = evaluate([hop], arrays)
    assert (hop.meta.shape, hop.meta.dtype) == (np.shape(wanted), wanted.dtype)
    assert (actual.shape, actual.dtype) == (np.shape(wanted), wanted.dtype)
    np.testing.assert_array_equal(actual, wanted, strict=False)
    assert isinstance(actual, np.ndarray) == bool(hop.meta.shape)


def hop_of_arrays(name: str, arrays: list[Any], **attrs: Any) -> Any:
    return apply(name, *[leaf(i, Meta(a.shape, a.dtype)) for i, a in enumerate(arrays)], **attrs)


def axes_of(ndim: int) -> list[tuple[int, ...]]:
    return [c for n in range(ndim + 1) for c in itertools.combinations(range(ndim), n)]


@pytest.mark.filterwarnings("ignore:Degrees of freedom|Mean of empty slice")
@pytest.mark.parametrize("name", AGGS)
def test_reductions(name: str) -> None:
    rng = np.random.default_rng(3)
    for shape, dtype in itertools.product(FULL, DTYPES):
        x = sample(shape, dtype)
        axis = axes_of(len(shape))[rng.integers(2 ** len(shape))]
        attrs: dict[str, Any] = {"axis": axis, "keepdims": bool(rng.integers(2))}
        with np.errstate(all="ignore"):
            try:
                wanted = AGGS[name](x, **attrs)
            except ValueError as error:
                with pytest.raises(ValueError) as caught:
                    hop_of_arrays(name, [x], **attrs)
                assert str(caught.value) == str(error)
            else:
                check(hop_of_arrays(name, [x], **attrs), [x], wanted)


def test_var_takes_ddof() -> None:
    x = sample((3, 4), np.dtype("f8"))
    attrs = {"axis": (1,), "keepdims": False, "ddof": 1}
    check(hop_of_arrays("var", [x], **attrs), [x], x.var(1, ddof=1))
    check(hop_of_arrays("std", [x], **attrs), [x], x.std(1, ddof=1))


@pytest.mark.parametrize("name", MATRIX_CASES)
def test_calls_evaluate_to_numpys_results(name: str) -> None:
    for (wanted, attrs, shapes), dtype in itertools.product(MATRIX_CASES[name], DTYPES):
        arrays = [sample(s, dtype, i) for i, s in enumerate(shapes)]
        check(hop_of_arrays(name, arrays, **attrs), arrays, wanted(*arrays))


@pytest.mark.parametrize("name", ["matmul", "dot", "concatenate", "stack"])
def test_calls_promote(name: str) -> None:
    numpy, attrs, _ = MATRIX_CASES[name][0]
    for d, e in itertools.product(DTYPES, DTYPES):
        arrays = [sample((2, 2), d), sample((2, 2), e)]
        if attrs.get("axis") == 1 and name == "concatenate":
            arrays.append(arrays[0])
        check(hop_of_arrays(name, arrays, **attrs), arrays, numpy(*arrays))


@pytest.mark.parametrize("name", MADE)
def test_new_arrays(name: str) -> None:
    for attrs, wanted in MADE[name]:
        check(make(name, (), **attrs), [], wanted)


def test_linspace() -> None:
    for a, b, num, endpoint in [(0.0, 1.0, 5, True), (1.0, 0.0, 4, False), (2.0, 2.0, 1, True)]:
        hop = apply("linspace", const(a, "f8"), const(b, "f8"), num=num, endpoint=endpoint)
        check(hop, [], np.linspace(a, b, num, endpoint))
    for d, e in itertools.product(["i4", "f4", "f8", "?"], repeat=2):
        x, y = np.dtype(d).type(0), np.dtype(e).type(1)
        hop = apply("linspace", const(x, d), const(y, e), num=3, endpoint=True)
        check(hop, [], np.linspace(x, y, 3))


def test_part_is_a_slice() -> None:
    for shape, start, length in [((5,), 0, 2), ((5,), 3, 2), ((5, 2), 1, 4), ((5, 2), 5, 0)]:
        x = sample(shape, np.dtype("f8"))
        hop = make("part", (hop_of_arrays("positive", [x]), const(start, "i8")), shape=(length, *shape[1:]))
        check(hop, [x], x[start:start + length])


def test_offload_calls_its_program() -> None:
    class Doubled:
        meta = Meta((3,), np.dtype("f8"))

        def __call__(self, x: Any) -> Any:
            return 2 * x

    x = sample((3,), np.dtype("f8"))
    check(make("offload", (leaf(0, Meta(x.shape, x.dtype)),), part=Doubled()), [x], 2 * x)


def test_every_op_has_a_case() -> None:
    tested = {*AGGS, *MATRIX_CASES, *MADE, *CASES, "linspace", "part", "offload"}
    assert tested == {op.name for op in all_ops() if op.kind in (Kind.AGG, Kind.CALL)}


@pytest.mark.parametrize(("name", "attrs", "shapes"), [
    ("matmul", {}, [(3, 4), (3, 4)]), ("matmul", {}, [(), (3,)]),
    ("matmul", {}, [(2, 3, 4), (3, 4, 5)]), ("dot", {}, [(3, 4), (3, 4)]),
    ("reshape", {"shape": (5, 5)}, [(3, 4)]), ("broadcast_to", {"shape": (3, 5)}, [(3, 4)]),
    ("windows", {"sizes": (4,), "axis": (0,)}, [(3, 4)]),
    ("windows", {"sizes": (2,), "axis": (2,)}, [(3, 4)]),
    ("transpose", {"axes": (0, 0)}, [(3, 4)]), ("squeeze", {"axis": (0,)}, [(3, 4)]),
    ("getitem", {"index": (("i", 3),)}, [(3, 4)]),
    ("argmax", {"axis": 0, "keepdims": False}, [(0, 2)]),
    ("sum", {"axis": (2,), "keepdims": False}, [(3, 4)]),
    ("mean", {"axis": (0, 2), "keepdims": True}, [(3, 4)]), ("cumsum", {"axis": 1}, [(3,)]),
    ("argmax", {"axis": 2, "keepdims": False}, [(3, 2)]), ("flip", {"axis": (1,)}, [(3,)]),
    ("getitem", {"index": (("i", 0), ("i", 0), ("i", 0))}, [(3, 4)]),
    ("concatenate", {"axis": 0}, [(3, 4), (3, 5)]), ("concatenate", {"axis": 0}, [(3,), (3, 5)]),
    ("stack", {"axis": 0}, [(3, 4), (3, 5)]), ("concatenate", {"axis": 0}, [(), ()]),
    ("argmin", {"axis": None, "keepdims": False}, [(0,)]),
])
def test_misfits_raise_numpys_error(name: str, attrs: dict, shapes: list) -> None:
    arrays = [np.zeros(s) for s in shapes]
    op = next(op for op in all_ops() if op.name == name)
    with pytest.raises((ValueError, IndexError)) as wanted:
        op.ref(*arrays, **attrs)
    with pytest.raises(type(wanted.value)) as actual:
        hop_of_arrays(name, arrays, **attrs)
    assert str(actual.value) == str(wanted.value)


def test_unnormalised_axes_are_refused() -> None:
    for axis in [(-1,), (1, 0)]:
        with pytest.raises(InternalError):
            make("sum", [leaf(0, Meta((3, 4), np.dtype("f8")))], axis=axis, keepdims=False)


def test_random_getitem() -> None:
    rng = np.random.default_rng(5)

    def item(n: int) -> tuple:
        if rng.random() < 0.3 and n:
            return ("i", int(rng.integers(-n, n)))
        bounds = [None if rng.random() < 0.3 else int(rng.integers(-7, 8)) for _ in range(2)]
        return ("s", *bounds, [None, 1, 2, -1, -3][rng.integers(5)])

    for _ in range(300):
        x = sample(tuple(rng.integers(0, 6, rng.integers(0, 4)).tolist()), np.dtype("f8"))
        index = [item(n) for n in x.shape[:rng.integers(0, x.ndim + 1)]]
        for extra in [("n",)] * int(rng.integers(3)) + [("e",)] * int(rng.integers(2)):
            index.insert(rng.integers(len(index) + 1), extra)
        if ("e",) in index[:-1]:  # the items after the ellipsis index other axes
            index = [i for i in index if i[0] != "i"]
        check(hop_of_arrays("getitem", [x], index=tuple(index)), [x], x[key(index)])


def key(index: list[tuple]) -> tuple:
    """The same index written independently of the table."""
    words = {"n": None, "e": Ellipsis}
    return tuple(
        i[1] if i[0] == "i" else slice(*i[1:]) if i[0] == "s" else words[i[0]] for i in index
    )


def test_products_cost_two_operations_per_pair() -> None:
    f8 = np.dtype("f8")
    x, y = leaf(0, Meta((3, 4), f8)), leaf(1, Meta((4, 5), f8))
    assert flops(make("matmul", [x, y])) == 2 * 3 * 4 * 5
    assert flops(make("transpose", [x], axes=(1, 0))) == 0


def test_by_numpy_knows_functions_and_reductions() -> None:
    for fn, name in [(np.sum, "sum"), (np.add.reduce, "sum"), (np.amax, "max"), (np.dot, "dot"),
                     (np.concatenate, "concatenate"), (np.logical_or.reduce, "any")]:
        found = by_numpy(fn)
        assert found is not None and found.name == name
