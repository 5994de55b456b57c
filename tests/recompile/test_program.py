"""Programs against the interpreter: bits, strides, floating-point flags, stores into leaves."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest

import jitla
from jitla.codegen import Jit, LlvmBackend
from jitla.codegen.native.loader import load_native
from jitla.fusion import InterpretedBackend, Layout
from jitla.hops import (
    FLAG_BY_KIND,
    FlagsRaised,
    Hop,
    Meta,
    all_ops,
    apply,
    leaf,
    make,
    possible_flags,
    show,
)
from jitla.recompile import Compiler
from tests.recompile import dags
from tests.recompile.dags import (
    OTHER_SYMBOLS,
    SYMBOLS,
    binding,
    difference,
    expected,
    layouts_of,
    run,
    sample,
)

# Programs give what the interpreter gives: bits, dtypes, types, strides; for every binding.


def compiler(**options: object) -> Compiler:
    return Compiler(InterpretedBackend(), rules=None, check=True, **options)


def check(bound, roots, leaves, note="") -> None:
    for got, want in zip(run(bound, leaves), expected(roots, leaves), strict=True):
        wrong = difference(got, want)
        assert not wrong, f"{note} {wrong}\n{show(roots)}\n{bound.program.text()}"


@pytest.mark.parametrize("block", range(20))
def test_random_dags(block):
    build = compiler()
    for seed in range(100 * block, 100 * block + 20):
        dag = sample(seed, SYMBOLS, plain=seed % 2 == 0)
        layouts = layouts_of(dag.leaves)
        program = build.build(dag.roots, layouts)
        check(program.bind(program.identity(), layouts), dag.roots, dag.leaves, f"seed {seed}")


@pytest.mark.parametrize("block", range(20))
def test_rebound_programs_give_the_interpreters_results(block):
    build = compiler()
    for seed in range(100 * block, 100 * block + 20):
        dag = sample(seed, SYMBOLS, plain=seed % 3 == 0)
        other = sample(seed, OTHER_SYMBOLS, plain=seed % 3 == 0, layout_seed=seed % 2)
        dims = binding(dag, other)
        if dims is None:
            continue
        program = build.build(dag.roots, layouts_of(dag.leaves))
        bound = program.bind(dims, layouts_of(other.leaves))
        check(bound, other.roots, other.leaves, f"seed {seed}")
        check(program.bind(program.identity(), layouts_of(dag.leaves)), dag.roots, dag.leaves)


@pytest.mark.parametrize("function", (
    lambda v: np.fmin(v, v).astype(float),
    lambda v: np.positive(v).astype(float),
))
def test_a_rewrite_leaves_results_of_broadcast_operands_where_they_lie(function):
    jitted = jitla.jit(function)
    for given in (np.ones((5, 3), int), np.broadcast_to(np.arange(3), (5, 3)), np.ones((3, 5), int).T):
        assert jitted(given).strides == function(given).strides


# The random DAGs of this room through LLVM: the same bits, strides and types.


@pytest.fixture(scope="module")
def llvm_compiler() -> Compiler:
    return Compiler(LlvmBackend(load_native(Jit().load), 2), rules=None, check=True)


@pytest.fixture
def exact_operators(monkeypatch):
    """Leave out what may differ in the last bit, and the sign of NaN, which no standard fixes."""
    monkeypatch.setattr(dags, "UNARY", tuple(n for n in dags.UNARY if n not in ("exp", "tanh")))
    monkeypatch.setattr(
        dags, "BINARY", tuple(n for n in dags.BINARY if n not in ("hypot", "copysign")))


@pytest.mark.usefixtures("exact_operators")
@pytest.mark.parametrize("block", range(4))
def test_random_dags_by_llvm(llvm_compiler, block):
    for seed in range(1000 * block, 1000 * block + 12):
        dag = dags.sample(seed, dags.SYMBOLS, plain=seed % 2 == 0)
        layouts = layouts_of(dag.leaves)
        program = llvm_compiler.build(dag.roots, layouts)
        found = run(program.bind(program.identity(), layouts), dag.leaves)
        for got, want in zip(found, expected(dag.roots, dag.leaves), strict=True):
            assert not difference(got, want), f"seed {seed}\n{program.text()}"


# Stores: results written into the memory of leaves that the same plan reads.

F8 = np.dtype("f8")


def build(roots, leaves, outs, aliases=()):
    return Compiler(InterpretedBackend(), rules=None, check=True).build(
        tuple(roots), layouts_of(leaves), tuple(outs), frozenset(aliases))


def bound(program):
    return program.bind(program.identity(), program.layouts)


def leaf_of(slot: int, array: np.ndarray) -> Hop:
    return leaf(slot, Meta(array.shape, array.dtype))


def test_in_place_is_direct():
    x, y = np.arange(6.0), np.ones(6)
    a, b = leaf_of(0, x), leaf_of(1, y)
    program = build([apply("add", a, b)], [x, y], [0])
    assert bound(program).run([x, y])[0] is x
    assert x.tolist() == [1, 2, 3, 4, 5, 6]
    assert program.materialised == 0


def test_result_may_be_aggregated_too():
    x, y = np.arange(6.0), np.ones(6)
    new = apply("add", leaf_of(0, x), leaf_of(1, y))
    total = apply("sum", new, axis=(0,), keepdims=False)
    program = build([new, total], [x, y], [0, None])
    assert program.materialised == 0
    assert bound(program).run([x, y])[1] == 21.0


def test_overlapping_read_takes_a_temporary():
    base = np.arange(6.0)
    x, y = base[1:], base[:-1]
    program = build([apply("add", leaf_of(0, x), leaf_of(1, y))], [x, y], [0], {(0, 1, -1)})
    bound(program).run([x, y])
    assert base.tolist() == [0, 1, 3, 5, 7, 9]
    assert program.materialised == 1


def test_read_through_a_view_takes_a_temporary():
    x = np.arange(4.0)
    a = leaf_of(0, x)
    program = build([apply("add", a, make("flip", (a,), axis=(0,)))], [x], [0])
    bound(program).run([x])
    assert x.tolist() == [3, 3, 3, 3]


def test_broadcast_read_takes_a_temporary():
    x = np.arange(6.0).reshape(2, 3)
    a = leaf_of(0, x)
    row = make("getitem", (a,), index=(("i", 0),))
    program = build([apply("subtract", a, row)], [x], [0])
    bound(program).run([x])
    assert x.tolist() == [[0, 0, 0], [3, 3, 3]]


def test_old_value_is_returned_as_copy():
    x = np.arange(4.0)
    a = leaf_of(0, x)
    program = build([apply("multiply", a, a), a], [x], [0, None])
    new, old = bound(program).run([x])
    assert new is x and x.tolist() == [0, 1, 4, 9] and old.tolist() == [0, 1, 2, 3]


def test_stores_swap_two_arrays():
    x, y = np.zeros(3), np.ones(3)
    program = build([leaf_of(1, y), leaf_of(0, x)], [x, y], [0, 1])
    bound(program).run([x, y])
    assert x.tolist() == [1, 1, 1] and y.tolist() == [0, 0, 0]


def test_two_kernels_that_store():
    x, y = np.arange(3.0), np.arange(8.0)
    a, b = leaf_of(0, x), leaf_of(1, y)
    total = apply("sum", b, axis=(0,), keepdims=False)
    program = build([apply("add", a, total), apply("multiply", b, b)], [x, y], [0, 1])
    bound(program).run([x, y])
    assert x.tolist() == [28, 29, 30] and y[7] == 49


def test_dtype_of_the_target():
    x = np.arange(3, dtype="f4")
    program = build([apply("multiply", leaf_of(0, x), leaf(1, Meta((), F8), "scalar"))],
                    [x, np.float64(0.1)], [0])
    bound(program).run([x, np.float64(0.1)])
    assert x.dtype == "f4" and x[2] == np.float32(np.float64(2) * 0.1)


def test_no_store_before_everything_is_computed():
    x, square = np.arange(4.0), np.zeros((2, 2))
    a, b = leaf_of(0, x), leaf_of(1, square)
    program = build([apply("add", a, a), apply("matmul", b, b)], [x, square], [0, None])
    with pytest.raises(ValueError, match="matmul"):
        bound(program).run([x, np.zeros((2, 3))])  # the call fails
    assert x.tolist() == [0, 1, 2, 3]


def _views(rng: random.Random, base: np.ndarray) -> list[np.ndarray]:
    views = [base[:6], base[1:7], base[6:12], base[5::-1], base[7:19:2], base[12:18]]
    return rng.sample(views, 4)


def _pairs(leaves: list[np.ndarray]) -> set[tuple[int, int, int]]:
    return {(i, j, -1) for i in range(len(leaves)) for j in range(len(leaves))
            if i != j and np.shares_memory(leaves[i], leaves[j])}


@pytest.mark.parametrize("seed", range(300))
def test_random_stores(seed):
    rng = random.Random(seed)
    base = np.arange(20.0)
    leaves = _views(rng, base)
    hops = [leaf_of(i, x) for i, x in enumerate(leaves)]
    for _ in range(rng.randint(1, 6)):
        a, b = rng.choice(hops), rng.choice(hops)
        match rng.choice(("add", "multiply", "flip", "sum", "sub")):
            case "flip" if a.meta.shape:
                hops.append(make("flip", (a,), axis=(0,)))
            case "sum" if a.meta.shape:
                hops.append(apply("add", apply("sum", a, axis=(0,), keepdims=False), b))
            case "sub":
                hops.append(apply("subtract", a, b))
            case _:
                hops.append(apply("add", a, b))
    arrays = [h for h in hops if h.meta.shape == (6,)]
    roots = [rng.choice(arrays[-4:]) for _ in range(rng.randint(1, 3))]
    outs = [None] * len(roots)
    for i, slot in enumerate(rng.sample(range(4), rng.randint(1, len(roots)))):
        outs[i] = slot
    want = expected(tuple(roots), leaves)
    program = build(roots, leaves, outs, _pairs(leaves))
    want = [w.copy() for w in want]
    after = base.copy()
    for out, value in zip(outs, want, strict=True):
        if out is not None:
            np.lib.stride_tricks.as_strided(
                after[(leaves[out].__array_interface__["data"][0] - base.ctypes.data) // 8:],
                leaves[out].shape, leaves[out].strides)[...] = value
    got = run(bound(program), leaves)
    note = f"{show(roots)}{outs} {_pairs(leaves)}\n{program.text()}"
    assert base.tobytes() == after.tobytes(), note
    for g, w, out in zip(got, want, outs, strict=True):
        if out is None:
            assert g.tobytes() == w.tobytes(), note
        else:
            assert g is leaves[out]


def test_layout_of_target_does_not_matter():
    x = np.asfortranarray(np.arange(12.0).reshape(3, 4))
    y = np.ones((3, 4))
    new = apply("add", leaf_of(0, x), leaf_of(1, y))
    total = apply("sum", new, axis=(0, 1), keepdims=False)
    program = build([new, total], [x, y], [0, None])
    want = expected((new, total), [x.copy("K"), y])
    got = run(bound(program), [x, y])
    assert not difference(got[1], want[1])
    assert x.tolist() == want[0].tolist()
    assert isinstance(program.layouts[0], Layout)


# Programs tell of floating-point flags where NumPy warns, and of few others.

nan, inf = np.nan, np.inf
VALUES = {
    "f8": [1.5, -1.5, 0.0, -0.0, nan, inf, -inf, 1e308, -1e308, 5e-324, 710.0, -800.0, 0.5, -1.0],
    "f4": [1.5, -1.5, 0.0, nan, inf, -inf, 3e38, -3e38, 1e-44, 100.0, -120.0, 0.5, -1.0],
    "i8": [1, -1, 0, 5, -(2**63)], "i4": [1, -1, 0, 5, -(2**31)], "i2": [1, -1, 0, 7],
    "u8": [0, 1, 7], "u4": [0, 1, 7],
}
COMPILERS = {"llvm": Compiler(LlvmBackend(threads=1)), "interpreted": Compiler(InterpretedBackend())}
UNARY = ["sqrt", "square", "reciprocal", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin",
         "cos", "tan", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "arcsinh", "arccosh",
         "arctanh", "cbrt", "floor", "sign", "rint", "isnan", "negative", "absolute"]
BINARY = ["add", "subtract", "multiply", "divide", "floor_divide", "remainder", "fmod", "power",
          "maximum", "fmin", "arctan2", "hypot", "logaddexp", "logaddexp2", "float_power", "copysign", "less",
          "greater_equal"]


def leaves_of(arrays: list[np.ndarray]) -> list[Hop]:
    return [leaf(i, Meta(x.shape, x.dtype)) for i, x in enumerate(arrays)]


def raised(name: str, root: Hop, arrays: list[np.ndarray]) -> int:
    """Flags of a program that computes `root`."""
    program = COMPILERS[name].program(
        (name, root), lambda: ((root,), layouts_of(arrays), (None,), frozenset()))
    bound = program.bind(program.identity(), program.layouts)
    bound.reports_flags = True
    try:
        bound.run(list(arrays))
    except FlagsRaised as hit:
        return hit.flags
    return 0


def warned(root: Hop, arrays: list[np.ndarray]) -> int:
    """Flags that NumPy would warn of."""
    seen: list[int] = []
    with np.errstate(all="call", under="ignore", call=lambda kind, _: seen.append(FLAG_BY_KIND[kind])):
        root.op.ref(*arrays, **dict(root.attrs))
    return sum(set(seen))


def sides(name: str, dtypes: tuple[str, ...], n: int) -> list[tuple[Any, int, int]]:
    """Values in one element among ones -> flags of program and of NumPy."""
    found = []
    for values in itertools.product(*(VALUES[d] for d in dtypes)):
        arrays = [np.ones(n, d) for d in dtypes]
        for x, v in zip(arrays, values, strict=True):
            x[n // 2] = v
        root = apply(name, *leaves_of(arrays))
        found.append((values, raised("llvm", root, arrays), warned(root, arrays)))
    return found


def is_harmless(values: tuple[Any, ...]) -> bool:
    """A flag for nothing is allowed at infinities, at the ends of the range and in the last multiple."""
    return any(abs(float(v)) > 1e30 or 0 < abs(float(v)) < 1e-30 for v in values) or values[-1] == -1


@pytest.mark.parametrize("n", [3, 9, 16])
@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("name", UNARY)
def test_flags_of_unary_operators(name: str, dtype: str, n: int) -> None:
    for values, flags, wanted in sides(name, (dtype,), n):
        assert flags or not wanted, f"{name}{values} raises nothing"
        assert wanted or not flags or is_harmless(values), f"{name}{values} raises {flags} for nothing"


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("name", BINARY)
def test_binary(name: str, dtype: str) -> None:
    for values, flags, wanted in sides(name, (dtype, dtype), 9):
        assert flags or not wanted, f"{name}{values} raises nothing"
        assert wanted or not flags or is_harmless(values), f"{name}{values} raises {flags} for nothing"


@pytest.mark.parametrize("dtype", ["i8", "i4", "i2", "u8", "u4"])
@pytest.mark.parametrize("name", ["floor_divide", "remainder", "fmod", "add", "multiply"])
def test_integers(name: str, dtype: str) -> None:
    for values, flags, wanted in sides(name, (dtype, dtype), 9):
        assert flags or not wanted, f"{name}{values} raises nothing"
        assert wanted or not flags or is_harmless(values), f"{name}{values} raises {flags} for nothing"


@pytest.mark.parametrize("target", ["i8", "i4", "i2", "u8", "f4", "?"])
@pytest.mark.parametrize("source", ["f8", "f4"])
def test_flags_of_casts(source: str, target: str) -> None:
    for n, value in itertools.product((3, 9, 16), VALUES[source]):
        x = np.ones(n, source)
        x[n // 2] = value
        root = apply("cast", *leaves_of([x]), dtype=np.dtype(target))
        flags, wanted = raised("llvm", root, [x]), warned(root, [x])
        assert flags or not wanted, value
        assert wanted or not flags or is_harmless((value,)), value


@pytest.mark.parametrize("name", ["sum", "mean", "var", "std", "max", "prod"])
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_reductions_and_calls(name: str, dtype: str) -> None:
    for n, value, other in itertools.product((3, 9, 130), VALUES[dtype], VALUES[dtype]):
        x = np.ones(n, dtype)
        x[n // 2], x[0] = value, other
        options = {"ddof": 0} if name in ("var", "std") else {}
        root = apply(name, *leaves_of([x]), axis=(0,), keepdims=False, **options)
        flags, wanted = raised("llvm", root, [x]), warned(root, [x])
        assert flags or not wanted, (value, other)
        assert wanted or not flags or is_harmless((value, other)), (value, other)


@pytest.mark.parametrize("compiler", COMPILERS)
def test_calls_and_both_backends(compiler: str) -> None:
    x, zero = np.ones((3, 3)), np.zeros((3, 3))
    a, b = leaves_of([x, zero])
    for root, wanted in (
        (apply("divide", a, b), 4), (apply("divide", b, b), 1), (apply("add", a, b), 0),
        (apply("matmul", apply("divide", a, b), b), 5),
        (apply("sqrt", apply("sum", apply("subtract", b, a), axis=(0, 1), keepdims=False)), 1),
    ):
        assert raised(compiler, root, [x, zero]) == wanted


def test_without_alert_values_come_back_as_usual() -> None:
    x = np.zeros(5)
    (a,) = leaves_of([x])
    program = COMPILERS["llvm"].build((apply("divide", a, a),), layouts_of([x]))
    (value,) = program.bind(program.identity(), program.layouts).run([x])
    assert np.isnan(value).all()


def test_what_a_store_overwrites_is_saved() -> None:
    x = np.array([1.0, -4.0, 9.0, 16.0])
    a, tail = leaf(0, Meta((4,), x.dtype)), leaf(1, Meta((3,), x.dtype))
    program = COMPILERS["llvm"].build(
        (apply("sqrt", tail),), {0: ((3,), (8,)), 1: ((3,), (8,))}, (0,), frozenset({(0, 1, -1)}))
    bound = program.bind(program.identity(), program.layouts)
    bound.reports_flags = True
    with pytest.raises(FlagsRaised) as hit:
        bound.run([x[1:], x[:-1]])
    assert hit.value.flags == 1 and a.meta.shape == (4,)
    assert {k: v.tolist() for k, v in hit.value.saved.items()} == {0: [-4, 9, 16], 1: [1, -4, 9]}
    assert np.isnan(x[2]) and x[3] == 3.0


def test_every_operator_that_can_raise_is_known_to() -> None:
    """A value of another dtype never makes a silent operator of one that speaks."""
    for op in all_ops():
        if op.name in UNARY:
            (a,) = leaves_of([np.ones(3)])
            silent = possible_flags(apply(op.name, a)) == 0
            speaks = any(warned(apply(op.name, a), [np.full(3, v)]) for v in VALUES["f8"])
            assert not (silent and speaks), op.name


@pytest.mark.parametrize("dtype", ["i8", "i4", "i2", "i1", "u8", "u4"])
@pytest.mark.parametrize("name", ["floor_divide", "remainder", "fmod"])
def test_kinds_of_flags_of_integers(name: str, dtype: str) -> None:
    """The least integer over -1 overflows, and only as a quotient; also by a divisor that is the same."""
    info = np.iinfo(dtype)
    dividends, divisors = (info.min, 0, 1, info.max), ((-1, 0, 1, 3) if info.min else (0, 1, 3))
    for n, x, y in itertools.product((3, 16), dividends, divisors):
        for size in (n, 1):
            arrays = [np.ones(n, dtype), np.full(size, y, dtype)]
            arrays[0][n // 2] = x
            if size == 1:
                arrays[1] = arrays[1][0]
            kinds = [leaf(i, Meta(np.shape(a), a.dtype), "array" if np.shape(a) else "scalar")
                     for i, a in enumerate(arrays)]
            root = apply(name, *kinds)
            flags = raised("llvm", root, arrays)
            if dtype != "u4":  # whose conversions take detours
                assert not flags & ~possible_flags(root)
            assert flags & possible_flags(root) == warned(root, arrays), (n, x, y, size)


@pytest.mark.parametrize("name", ["less", "less_equal", "greater", "greater_equal", "equal", "maximum"])
def test_order_of_complex_numbers(name: str) -> None:
    parts = (0.0, 1.0, nan, inf)
    values = [complex(a, b) for a, b in itertools.product(parts, parts)]
    for x, y in itertools.product(values, values):
        arrays = [np.full(5, x), np.full(5, y)]
        root = apply(name, *leaves_of(arrays))
        assert raised("llvm", root, arrays) == warned(root, arrays), (x, y)


@pytest.mark.parametrize("name", ["divide", "reciprocal"])
def test_quotients_of_complex_numbers_with_nan(name: str) -> None:
    for x, y in itertools.product((1 + 1j, complex(1, nan)), (2 + 1j, complex(nan, 1), complex(0, nan))):
        arrays = [np.full(5, x), np.full(5, y)][: 2 if name == "divide" else 1]
        root = apply(name, *leaves_of(arrays))
        assert raised("llvm", root, arrays) == warned(root, arrays), (x, y)


def test_reciprocals_of_integers() -> None:
    for n, value in itertools.product((3, 16), (0, 1, -1, 5)):
        x = np.ones(n, "i4")
        x[n // 2] = value
        root = apply("reciprocal", *leaves_of([x]))
        assert raised("llvm", root, [x]) == warned(root, [x]), value


def test_large_leaves_are_saved_where_flags_say_too_little() -> None:
    """exp raises flags for nothing: its operand is needed. A product's flags are NumPy's own."""
    x = np.full((1 << 10, 1 << 8), 1000.0).T
    for name, kept, exact in (("exp", True, False), ("square", False, True)):
        (a,) = leaves_of([x])
        program = COMPILERS["llvm"].build((apply(name, a),), layouts_of([x]), (0,))
        bound = program.bind(program.identity(), program.layouts)
        bound.reports_flags = True
        given = x.copy("K") * (1.0 if kept else 1e200)
        before = given.copy("K")
        with pytest.raises(FlagsRaised) as hit:
            bound.run([given])
        assert (0 in hit.value.saved, hit.value.exact) == (kept, exact)
        if kept:
            np.testing.assert_array_equal(hit.value.saved[0], before)
            assert hit.value.saved[0].strides == before.strides
