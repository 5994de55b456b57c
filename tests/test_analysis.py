"""Which matrices are kept as compressed rows."""

from __future__ import annotations

import numpy as np
import pytest

import jitla
from jitla.errors import TraceError
from jitla.tracing import Sparsified


def matrix(density: float, dtype: str = "f8") -> np.ndarray:
    x = np.zeros((400, 300), dtype)
    x.ravel()[np.random.default_rng(0).choice(x.size, int(density * x.size), replace=False)] = 1.5
    return x


@pytest.mark.parametrize(("x", "kept"), [
    (matrix(0.01), True), (matrix(0.0), True), (matrix(0.01, "f4"), True), (matrix(0.01).T, True),
    (np.asfortranarray(matrix(0.01)), True), (matrix(0.01)[::2, ::-1], False), (matrix(0.5), False),
    (matrix(0.01)[:9], False), (matrix(0.01).astype(int), False), (matrix(0.01).astype(complex), False),
    (matrix(0.01).ravel(), False), (matrix(0.01) - 0.0, True), (matrix(0.01) * -1, False),
    (np.where(matrix(0.01) > 0, np.nan, 0), False), (np.where(matrix(0.01) > 0, np.inf, 0), False),
    (np.asmatrix(matrix(0.01)), False), (np.ma.array(matrix(0.01)), False),
    (matrix(0.01).astype(">f8"), False),
])
def test_kept_where_it_pays_and_is_the_same(x: np.ndarray, kept: bool) -> None:
    found = jitla.sparsify(x)
    assert (type(found) is Sparsified) == kept
    if not kept:
        assert found is x
        return
    assert found is jitla.sparsify(found) and not found.flags.writeable and found.strides == x.strides
    assert np.asarray(found).tobytes("A") == x.tobytes("A")
    v = np.random.default_rng(1).random(x.shape[1]).astype(x.dtype)
    np.testing.assert_allclose(found @ v, x @ v, rtol=1e-5)


def test_strided_matrices_are_copied() -> None:
    x = np.zeros((1200, 900))[::3, ::3]
    x[5, 7] = 2.0
    found = jitla.sparsify(x)
    assert type(found) is Sparsified and (found == x).all()
    x[5, 7] = 3.0
    assert found[5, 7] == 2.0


def test_only_arrays_can_be_looked_at() -> None:
    for wrong in ([[0.0]], "x", None):
        with pytest.raises(TraceError, match="sparsify needs an ndarray"):
            jitla.sparsify(wrong)  # type: ignore[arg-type]


def test_inside_of_a_decorated_function() -> None:
    @jitla.jit
    def f(x: np.ndarray, v: np.ndarray) -> tuple:
        y = jitla.sparsify(x * 2)
        return y @ v, type(y) is np.ndarray

    x, v = matrix(0.01), np.arange(300.0)
    np.testing.assert_allclose(f(x, v)[0], (x * 2) @ v)
