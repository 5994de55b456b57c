"""`evaluate` on whole programs is NumPy on the same programs."""

from __future__ import annotations

import numpy as np
import pytest

from jitla.errors import InternalError
from jitla.hops import Meta, NumpyBuilder, WeakScalar, apply, const, evaluate, leaf, make

F8 = np.dtype("f8")


def test_a_program() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(5, 3)), rng.normal(size=3).astype("f4")
    x, y = leaf(0, Meta(a.shape, a.dtype)), leaf(1, Meta(b.shape, b.dtype))
    z = apply("tanh", apply("add", apply("multiply", x, y), WeakScalar(2, float)))
    total = apply("sum", z, axis=(0, 1), keepdims=False)
    gram = apply("matmul", apply("transpose", z, axes=(1, 0)), z)
    wanted = np.tanh(a * b + 0.5)
    got_z, got_total, got_gram = evaluate([z, total, gram], [a, b, 0.5])
    assert got_z.tobytes() == wanted.tobytes()
    assert got_total == wanted.sum() and type(got_total) is np.float64
    assert got_gram.tobytes() == (wanted.T @ wanted).tobytes()


def test_leaves_come_as_given_and_weak_ones_converted() -> None:
    boxed = np.array(2.0)
    array, scalar = leaf(0, Meta((), F8)), leaf(1, Meta((), F8), "scalar")
    weak = leaf(2, Meta((), np.dtype("f4")), "weak")
    values = evaluate([array, scalar, weak], [boxed, np.float64(3), 4])
    assert values[0] is boxed
    assert type(values[1]) is np.float64 and type(values[2]) is np.float32
    assert type(evaluate([make("negative", [array])], [boxed])[0]) is np.float64


def test_zero_d_results_are_scalars() -> None:
    x = leaf(0, Meta((1,), F8))
    for hop in (make("reshape", [x], shape=()), make("squeeze", [x], axis=(0,)),
                make("getitem", [x], index=(("i", 0),)),
                make("sum", [x], axis=(0,), keepdims=False)):
        assert type(evaluate([hop], [np.ones(1)])[0]) is np.float64


def test_the_builder_refuses_mixed_dtypes_and_arithmetic_on_bools() -> None:
    b = NumpyBuilder()
    with pytest.raises(InternalError):
        b.add(np.float32(1), np.float64(1))
    with pytest.raises(InternalError):
        b.add(np.True_, np.True_)
    with pytest.raises(InternalError):
        b.select(np.True_, np.float32(1), np.float64(1))
    with pytest.raises(InternalError):
        b.select(np.float64(1), np.float64(1), np.float64(1))


def test_casts_leave_repeated_operands_repeated() -> None:
    """A ufunc that casts orders the dimensions of its result by its operand, not by the cast."""
    repeated = np.broadcast_to(np.arange(5, dtype="i4"), (3, 5))
    x = leaf(0, Meta((3, 5), np.dtype("i4")))
    (found,) = evaluate([apply("multiply", make("cast", (x,), dtype="f8"), const(0.5, F8))], [repeated])
    assert found.strides == (repeated * 0.5).strides
    assert (found == repeated * 0.5).all()
