"""Every element-wise entry is honest: recipe = reference, zeros = measured, meta = actual."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest

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
    evaluate,
    has_recipe,
    leaf,
    lookup,
    make,
)

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
