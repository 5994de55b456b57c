"""Places of the values between stages: what may lie in place of what, and that results are right."""

from __future__ import annotations

import numpy as np
import pytest

import jitla
from jitla.fusion import Kernel
from jitla.hops import Meta, apply, leaf, make
from jitla.recompile.rooms import rooms

WIDE = Meta((100, 50), np.dtype("f8"))
X = leaf(0, WIDE)


def cells(*outputs):
    inputs = tuple(dict.fromkeys(i for o in outputs for i in o.inputs))
    return Kernel("Cell", WIDE.shape, inputs, outputs, outputs)


def over_rows(hop):
    found = make("max", (hop,), axis=(1,), keepdims=True)
    return Kernel("MAgg", WIDE.shape, (hop,), (found,), (found,)), found


def test_cells_lie_where_their_operand_was():
    a = apply("negative", X)
    b = apply("absolute", a)
    c = apply("sqrt", b)
    assert rooms([cells(a), cells(b), cells(c)], dict.fromkeys((a, b, c), 64), ()) == (
        {a: 0, b: 0, c: 0}, 64)


def test_what_is_read_later_keeps_its_place():
    a = apply("negative", X)
    b = apply("absolute", a)
    c = apply("add", a, b)
    found, size = rooms([cells(a), cells(b), cells(c)], dict.fromkeys((a, b, c), 64), ())
    assert found[a] != found[b] and size == 128


def test_rows_of_another_length_lie_aside_and_leave_their_place():
    a = apply("negative", X)
    stage, top = over_rows(a)
    b = apply("subtract", a, top)
    again, low = over_rows(b)
    found, size = rooms([cells(a), stage, cells(b), again], {a: 640, top: 64, b: 640, low: 64}, ())
    assert found[b] == found[a] and found[top] not in range(640) and size == 704
    assert found[low] == found[top]


def test_a_view_of_an_operand_keeps_it():
    a = apply("negative", X)
    stage, top = over_rows(a)
    view = make("expand_dims", (top,), axis=(2,))
    b = apply("subtract", a, top)
    c = Kernel("Cell", WIDE.shape, (b, view), (apply("exp", b),), (apply("exp", b),))
    found, _ = rooms([cells(a), stage, cells(b), c], dict.fromkeys((a, top, b, *c.outputs), 640), (view,))
    assert found[b] != found[top]


def test_an_aggregate_does_not_lie_where_its_operand_is():
    a = apply("negative", X)
    stage, top = over_rows(a)
    found, _ = rooms([cells(a), stage], {a: 640, top: 640}, ())
    assert found[a] != found[top]


@pytest.mark.parametrize("width", [3, 64, 101])
def test_chains_over_rows_give_what_numpy_gives(width):
    def chain(A, V):
        S = A @ V
        E = np.exp(S - S.max(axis=1, keepdims=True))
        P = E / E.sum(axis=1, keepdims=True)
        return P - S * P, (P * E).sum(axis=1)

    rng = np.random.default_rng(width)
    A, V = rng.normal(size=(5000, 40)), rng.normal(size=(40, width))
    for got, wanted in zip(jitla.jit(chain, compile="sync")(A, V), chain(A, V), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-10, atol=1e-12)
