"""The native table of layouts: it recognises exactly what it was shown."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from jitla.codegen import LlvmBackend
from jitla.runtime import layout_table

assert LlvmBackend().launch is not None
TABLE = layout_table()
assert TABLE is not None
find, remember, forget = TABLE


@pytest.fixture(autouse=True)
def empty_table():
    forget()
    yield
    forget()


def arrays():
    """Arrays that own their memory, all of different dtype, shape or strides."""
    for dtype, shape, order in itertools.product(
            ("f8", "f4", "i8", "u1", "?"), ((3,), (4,), (3, 4), (4, 3), (2, 3, 4), (2, 1, 3, 2)), "CF"):
        if order == "C" or len(shape) > 1:
            yield np.zeros(shape, dtype, order)


def test_finds_what_it_was_shown():
    kept = [(a, (i, i)) for i, a in enumerate(arrays())]
    for a, mark in kept:
        assert find(a) is None
        remember(a, mark)
    for a, mark in kept:
        assert find(a) is mark
        assert find(np.empty_like(a)) is mark


def test_looks_at_owners_only():
    a = np.zeros((4, 5))
    mark = (1, 2)
    remember(a, mark)
    assert find(a[:]) is None
    assert find(a.T) is None
    assert find([1.0]) is None
    assert find(np.ma.zeros((4, 5))) is None


def test_a_new_shape_is_seen():
    a = np.zeros((4, 5))
    mark = (1, 2)
    remember(a, mark)
    a.shape = (5, 4)
    assert find(a) is None
    a.shape = (4, 5)
    assert find(a) is mark


def test_more_than_four_dimensions_are_not_remembered():
    a = np.zeros((1, 2, 1, 2, 1))
    remember(a, (0,))
    assert find(a) is None


def test_a_full_table_refuses_and_stays_right():
    marks = {}
    for n in range(1, 6000):
        a = np.zeros(n, "i1")
        marks[n] = (n,)
        remember(a, marks[n])
    found = [n for n in marks if find(np.zeros(n, "i1")) is not None]
    assert 2000 < len(found) <= 4096
    assert all(find(np.zeros(n, "i1")) is marks[n] for n in found)


def test_misuse_is_an_error():
    for call in (lambda: find(), lambda: find(1, 2), lambda: remember(1), lambda: remember(1, 2)):
        with pytest.raises(TypeError):
            call()
