"""Functions that a function with loops defines: they are inlined, with the variables around them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.loopjit.test_objects import check, trusted, without_judgement

__all__ = ["without_judgement"]


def closures(n, k):
    def scaled(x, by=2.0):
        return x * by + offset + k

    def distance(a, b):
        dx, dy = a[0] - b[0], a[1] - b[1]
        return math.sqrt(dx * dx + dy * dy)

    square = lambda x: x * x  # noqa: E731
    offset = 0.0
    total = 0.0
    for i in range(n):
        offset = i * 0.5
        total += scaled(float(i)) + scaled(1.0, by=0.25) + square(i)
        total += distance((i, 1.0), (0.5, i))
    return total, offset


def nested(n):
    def inner(x):
        return x + step

    def outer(x):
        found = inner(x)
        for k in range(3):
            found += inner(k)
        return found

    step = 1
    values = []
    for i in range(n):
        step = i % 4
        values.append(outer(i))
    return values


def as_arguments(n):
    def applied(f, x):
        return f(x) + 1

    def twice(x):
        return 2 * x

    total = 0
    for i in range(n):
        total += applied(twice, i)
    return total


def with_arrays(a, n):
    def put(i, x):
        a[i] += x
        seen.append(i)

    seen = []
    for i in range(n):
        put(i % len(a), i * 0.5)
    return seen


@pytest.mark.parametrize(("function", "make"), [
    (closures, lambda: (40, 3)), (nested, lambda: (30,)), (as_arguments, lambda: (30,)),
    (with_arrays, lambda: (np.arange(7.0), 30))], ids=lambda value: getattr(value, "__name__", ""))
def test_local_functions(function, make):
    trusted(function, make)


def test_functions_that_are_bound_again_or_assign_are_left_to_python():
    """Functions that change variables around them, are bound twice, or call themselves."""
    def counted(n):
        def count():
            nonlocal total
            total += 1

        total = 0
        for _ in range(n):
            count()
        return total

    def chosen(n, flag):
        def f(x):
            return x

        if flag:
            def f(x):
                return -x

        total = 0
        for i in range(n):
            total += f(i)
        return total

    def recursive(n):
        def factorial(k):
            return 1 if k < 2 else k * factorial(k - 1)

        total = 0
        for i in range(n):
            total += factorial(i % 5)
        return total

    check(counted, lambda: (20,))
    check(chosen, lambda: (20, True))
    check(chosen, lambda: (20, False))
    check(recursive, lambda: (20,))
