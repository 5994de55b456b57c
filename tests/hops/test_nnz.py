"""How many elements are other than 0, at most: never too few, and of use where that can be."""

from __future__ import annotations

import numpy as np
import pytest

from jitla.hops import Hop, Meta, apply, const, evaluate, leaf, make
from tests.hops.test_table_matrix import AGGS, CASES, FULL, MADE, axes_of
from tests.hops.test_table_sparse import CASES as SPARSE

F8 = np.dtype(float)
LABELS = np.array([2, 0, 2, 5])
TAKES = {
    "take": ([0.0, 3.0], np.array([1, 1, 0], np.int32)), "bincount": (LABELS, [0.0, 1.0, 0.0, 0.0]),
}


def sparse(shape: tuple[int, ...], density: float, rng: np.random.Generator) -> np.ndarray:
    return np.asarray(rng.integers(-3, 4, shape) * (rng.random(shape) < density), float)


def counted(arrays: list[np.ndarray]) -> list[Hop]:
    """Leaves whose nonzeros are known."""
    return [leaf(k, Meta(a.shape, a.dtype, min(int(np.count_nonzero(a)), a.size)))
            for k, a in enumerate(arrays)]


def check(hop: Hop, arrays: list[np.ndarray]) -> None:
    with np.errstate(all="ignore"):
        (found,) = evaluate([hop], arrays)
    bound, size = hop.meta.nnz, hop.meta.size
    assert bound is None or np.count_nonzero(found) <= bound <= max(size - 1, 0), hop
    assert hop.meta.nnz is None or np.shape(found) == hop.meta.shape


@pytest.mark.parametrize("name", CASES)
def test_bounds_of_calls_hold(name: str) -> None:
    rng = np.random.default_rng(3)
    for (_, attrs, shapes), density in [(c, d) for c in CASES[name] for d in (0.0, 0.1, 0.5, 1.0)]:
        arrays = [sparse(s, density, rng) for s in shapes]
        check(apply(name, *counted(arrays), **attrs), arrays)


@pytest.mark.parametrize("name", AGGS)
@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning")
def test_bounds_of_aggregates_hold(name: str) -> None:
    rng = np.random.default_rng(4)
    for shape in FULL:
        for axis in axes_of(len(shape)):
            for density in (0.0, 0.2, 0.9):
                arrays = [sparse(shape, density, rng)]
                ddof = {"ddof": int(rng.integers(3))} if name in ("var", "std") else {}
                try:
                    hop = apply(name, *counted(arrays), axis=axis, keepdims=False, **ddof)
                except ValueError:  # nothing to take the least of
                    continue
                check(hop, arrays)


@pytest.mark.parametrize("name", SPARSE)
def test_bounds_at_stored_positions_hold(name: str) -> None:
    operands, attrs, _ = SPARSE[name]
    for k in range(len(operands)):
        arrays = list(operands)
        arrays[k] = arrays[k] * 0 if arrays[k].dtype == F8 else arrays[k]
        check(apply(name, *counted(arrays), **attrs), arrays)


@pytest.mark.parametrize("name", TAKES)
def test_bounds_of_positions_and_labels_hold(name: str) -> None:
    arrays = list(map(np.asarray, TAKES[name]))
    attrs = {"shape": (9,)} if name == "bincount" else {}
    for given in (arrays, [a * (a.dtype.kind != "f") for a in arrays]):
        check(apply(name, *counted(given), **attrs), given)
    if name == "bincount":
        check(apply(name, *counted(arrays[:1]), **attrs), arrays[:1])


@pytest.mark.parametrize("attrs", [attrs for attrs, _ in MADE["eye"]])
def test_ones_of_a_diagonal_are_counted(attrs: dict) -> None:
    hop = make("eye", (), **attrs)
    assert hop.meta.nnz == (np.count_nonzero(evaluate([hop], [])[0]) if hop.meta.size else None)


def matrix(slot: int, *shape: int, nnz: int | None = None) -> Hop:
    return leaf(slot, Meta(shape, F8, nnz))


X, Y = matrix(0, 10, 20, nnz=3), matrix(1, 20, 30, nnz=4)
BATCH = matrix(2, 5, 10, 20, nnz=3)


@pytest.mark.parametrize(("hop", "nnz"), [
    (apply("matmul", X, Y), 3 * 4), (apply("dot", X, Y), 3 * 4),
    (apply("matmul", X, matrix(1, 20, 30)), 3 * 30), (apply("matmul", BATCH, Y), 3 * 4),
    (apply("matmul", BATCH, matrix(1, 20, 3)), 3 * 3),
    (apply("sum", X, axis=(1,), keepdims=False), 3), (apply("sum", X, axis=(0, 1), keepdims=False), None),
    (apply("prod", X, axis=(0, 1), keepdims=False), 0), (apply("all", make("cast", [X], dtype=bool),
                                                               axis=(1,), keepdims=False), 0),
    (apply("mean", X, axis=(0,), keepdims=False), 3),
    (apply("var", X, axis=(1,), keepdims=False, ddof=1), 3),
    (apply("var", X, axis=(1,), keepdims=False, ddof=20), None),
    (apply("concatenate", X, X, axis=0), 6), (apply("concatenate", X, matrix(1, 1, 20), axis=0), 23),
    (apply("stack", X, X, axis=1), 6), (apply("transpose", X, axes=(1, 0)), 3),
    (apply("broadcast_to", matrix(0, 20, nnz=2), shape=(7, 20)), 14),
    (apply("cumsum", X, axis=0), 30), (apply("cumsum", X, axis=None), None),
    (apply("full", const(0.0, F8), shape=(4, 5)), 0), (apply("full", const(1.0, F8), shape=(4, 5)), None),
    (apply("full", const(-0.0, F8), shape=(4, 5)), 0),
    (apply("multiply", matrix(0, 4, 5), const(0.0, F8)), 0), (const(np.nan, F8), None),
    (apply("einsum", X, matrix(1, 20, 3, nnz=0), subscripts="ij,jk->ik"), 0),
])
def test_bounds_are_of_use(hop: Hop, nnz: int | None) -> None:
    assert hop.meta.nnz == nnz
