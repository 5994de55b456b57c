"""Constants in loops: NumPy warns of operations on them in each iteration."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

from tests.loopjit import programs
from tests.loopjit.compiled import loop_function
from tests.loopjit.test_loop_programs import check

LARGE, BYTE, UNSIGNED, LEAST = np.float32(1e30), np.int8(100), np.uint8(5), np.int8(-128)
ZERO, TEN = np.float64(0.0), 10


def casts_of_scalars(y, n):
    s = y
    for _ in range(n):
        s = -(s * 1e308)
        s = s * 0 + np.float32(2)
    return s


def casts_of_elements(a, n):
    for i in range(n):
        a[i] = 1e300
        a += 1e300
        a[:] = 1e308
        a[0] = 1e-300
    return a


def casts_of_arguments(y, n):
    s = y
    q = False
    for _ in range(n):
        s = np.float32(1e300) + np.maximum(y, 1e200)
        s = np.float32(1e-300) + s
        q = y > 1e300
    return s, q


def products(n):
    s = 0
    for _ in range(n):
        s = LARGE * LARGE
    return s


def integers(n):
    s = t = u = 0
    for _ in range(n):
        s = BYTE + BYTE
        t = -UNSIGNED
        u = abs(LEAST)
    return s, t, u


def quotients(n):
    s = t = 0
    for _ in range(n):
        s = BYTE / ZERO
        t = ZERO / ZERO
    return s, t


@pytest.mark.parametrize("errors", ["warn", "ignore", "raise", "strict"])
def test_operations_on_constants_warn_in_each_iteration(errors):
    for function in (casts_of_scalars, casts_of_arguments):
        check(function, lambda: (np.float32(2), 4), compiled=False, errors=errors)
    check(casts_of_elements, lambda: (np.zeros(4, np.float32), 4), compiled=False, errors=errors)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the compiler itself does not warn
        for function in (products, integers, quotients):
            check(function, lambda: (4,), compiled=False, errors=errors)


def large_powers(n):
    s = 0
    for i in range(n):
        if i > 50:
            s = TEN**1000000000
        if i > 60:
            s = 1 << TEN**12
        s = s + 1
    return s


def test_large_powers_that_are_never_needed():
    check(large_powers, lambda: (5,))


def added_limit(a):
    for i in range(len(a)):
        a[i] += programs.LIMIT
    return a


def test_attributes_of_modules_may_change(monkeypatch):
    fast = loop_function(added_limit)
    for limit in (3, 3, 3, 3, 7, 2.5, 7):
        monkeypatch.setattr(programs, "LIMIT", limit)
        assert (fast.version(np.zeros(9)) == limit).all()
    assert sum(record.runs for record in fast.records())


def functions_of_infinities(x, y, n):
    s = t = 0.0
    for i in range(n):
        if i == 1:
            s = math.cos(x)
        if i == 2:
            t = math.fmod(x, y) + math.pow(y, 0.5) + math.atan2(x, y)
        s = s + math.exp(-y) + t
    return s, t


def compared(z, n):
    for _ in range(n):
        z[z > 0] = 1
    return z


@pytest.mark.parametrize("errors", ["warn", "ignore", "raise"])
def test_errors_of_math_and_of_comparisons_are_those_of_python(errors):
    values = (1.5, -2.0, math.inf, -math.inf, math.nan)
    for x in values:
        check(functions_of_infinities, *(lambda x=x, y=y: (x, y, 4) for y in values), compiled=False,
              errors=errors)
    check(compared, lambda: (np.array([math.nan, 1j, 2]), 3), compiled=False, errors=errors)


def reads_the_counter(n):
    i = s = 0

    def doubled():
        return i * 2

    for i in range(n):
        s += doubled()
    return s


def reads_the_sum(n):
    s = 0

    def added(x):
        return x + s

    for i in range(n):
        s = s + added(i)
    return s


def reads_a_constant(n, k):
    s = 0

    def added(x):
        return x + k

    for i in range(n):
        s = s * 2 + added(i)
    return s


def test_functions_within_the_function_read_its_variables():
    check(reads_the_counter, lambda: (6,), compiled=False)
    check(reads_the_sum, lambda: (6,), compiled=False)
    check(reads_a_constant, lambda: (6, 3), lambda: (6, 4))


def zeros_of_fmin(a, b, n):
    for _ in range(n):
        b[1:-1] = np.fmin(0, a[:-2])
        a[1:] = np.fmax(b[:-1], -a[1:])
    return b


def test_signs_of_zeros_are_those_of_rows():
    zeros = np.array([0.0, -0.0, 1, -0.0, 0.0, -1, 0, -0.0, 2, 3] * 3)
    check(zeros_of_fmin, lambda: (zeros.copy(), zeros.copy(), 4),
          lambda: (zeros[2:9].copy(), zeros[:7].copy(), 4))
