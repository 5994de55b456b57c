"""Nineteen unchanged functions: identical results, types, dtypes and arguments afterwards."""

from __future__ import annotations

import linecache

import numpy as np
import pytest

import jitla
from jitla.dispatch.verify_mode import divergences
from tests.behaviour.nineteen import ARGUMENTS, FUNCTIONS
from tests.fuzz.compare import compare, outcome

FILE = FUNCTIONS["softmax"].__code__.co_filename
every_function = pytest.mark.parametrize("name", FUNCTIONS)


def test_there_are_nineteen():
    assert len(FUNCTIONS) == 19 and FUNCTIONS.keys() == ARGUMENTS.keys()
    assert "jitla" not in "".join(linecache.getlines(FILE)[8:])


@every_function
def test_strictly_identical(name):
    fast = jitla.jit(numerics="strict")(FUNCTIONS[name])
    for _ in range(3):
        plain = outcome(FUNCTIONS[name], ARGUMENTS[name](), tuple, FILE)
        made = outcome(fast, ARGUMENTS[name](), tuple, FILE)
        assert compare(plain, made) == []
    assert fast.stats().failures == 0


@every_function
def test_identical_but_for_the_last_bits(name):
    fast = jitla.jit(FUNCTIONS[name])
    with np.errstate(invalid="ignore"):  # a row of `clipped` is all zeros
        plain = FUNCTIONS[name](*(wanted := ARGUMENTS[name]()))
        result = fast(*(given := ARGUMENTS[name]()))
    assert list(divergences((result, given), (plain, wanted), exact=False)) == []
    assert fast.stats().failures == 0
