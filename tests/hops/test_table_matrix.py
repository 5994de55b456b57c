"""Every aggregate and call evaluates to what NumPy gives, and its inferred meta is the actual."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from jitla.errors import InternalError
from jitla.hops import Kind, Meta, all_ops, apply, by_numpy, const, evaluate, flops, leaf, make
from tests.hops.test_table_sparse import CASES as SPARSE

DTYPES = [np.dtype(c) for c in "? i1 i4 i8 u1 u2 u8 f2 f4 f8 c8 c16".split()]
FULL = [(), (1,), (7,), (3, 4), (1, 5), (2, 3, 4), (0,), (3, 0), (2, 1, 3)]
AGGS = {
    "sum": np.sum, "prod": np.prod, "min": np.min, "max": np.max, "any": np.any, "all": np.all,
    "mean": np.mean, "var": np.var, "std": np.std,
}

# op name -> (NumPy expression of the operands, attributes, shapes of the operands)
Case = tuple[Callable[..., Any], dict[str, Any], list[tuple[int, ...]]]
CASES: dict[str, list[Case]] = {
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


def hop_of(name: str, arrays: list[Any], **attrs: Any) -> Any:
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
                    hop_of(name, [x], **attrs)
                assert str(caught.value) == str(error)
            else:
                check(hop_of(name, [x], **attrs), [x], wanted)


def test_var_takes_ddof() -> None:
    x = sample((3, 4), np.dtype("f8"))
    attrs = {"axis": (1,), "keepdims": False, "ddof": 1}
    check(hop_of("var", [x], **attrs), [x], x.var(1, ddof=1))
    check(hop_of("std", [x], **attrs), [x], x.std(1, ddof=1))


@pytest.mark.parametrize("name", CASES)
def test_calls(name: str) -> None:
    for (wanted, attrs, shapes), dtype in itertools.product(CASES[name], DTYPES):
        arrays = [sample(s, dtype, i) for i, s in enumerate(shapes)]
        check(hop_of(name, arrays, **attrs), arrays, wanted(*arrays))


@pytest.mark.parametrize("name", ["matmul", "dot", "concatenate", "stack"])
def test_calls_promote(name: str) -> None:
    numpy, attrs, _ = CASES[name][0]
    for d, e in itertools.product(DTYPES, DTYPES):
        arrays = [sample((2, 2), d), sample((2, 2), e)]
        if attrs.get("axis") == 1 and name == "concatenate":
            arrays.append(arrays[0])
        check(hop_of(name, arrays, **attrs), arrays, numpy(*arrays))


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


def test_part() -> None:
    for shape, start, length in [((5,), 0, 2), ((5,), 3, 2), ((5, 2), 1, 4), ((5, 2), 5, 0)]:
        x = sample(shape, np.dtype("f8"))
        hop = make("part", (hop_of("positive", [x]), const(start, "i8")), shape=(length, *shape[1:]))
        check(hop, [x], x[start:start + length])


def test_offload() -> None:
    class Doubled:
        meta = Meta((3,), np.dtype("f8"))

        def __call__(self, x: Any) -> Any:
            return 2 * x

    x = sample((3,), np.dtype("f8"))
    check(make("offload", (leaf(0, Meta(x.shape, x.dtype)),), part=Doubled()), [x], 2 * x)


def test_every_op_has_a_case() -> None:
    tested = {*AGGS, *CASES, *MADE, *SPARSE, "linspace", "part", "offload"}
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
        hop_of(name, arrays, **attrs)
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
        check(hop_of("getitem", [x], index=tuple(index)), [x], x[key(index)])


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
