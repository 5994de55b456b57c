"""Order of evaluation in loops: values are those of the moment when Python evaluates their expressions."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.loopjit.test_loop_programs import check, floats


def numbers(n=5):
    return n, 3


def vectors():
    return np.arange(6) * 0.5, np.ones(6), 4


# --------------------------------------------------------------------------- what loops go through


def over_a_tuple(n, k):
    s = 0
    for i in range(n):
        for x in (k, s, i):
            k = k + 1
            s = s * 2 + x
    return s


def over_pairs_of_tuples(n, k):
    s = t = 0
    for i in range(n):
        for x, y in zip((s, t), (i, k)):  # noqa: B905
            s, t = t + x, y
        for j, x in enumerate((k, s, 3)):
            k = k + 1
            s = s * 2 + j + x
    return s, t


def over_a_tuple_of_arrays(v, w, n):
    s = 0.0
    for _ in range(n):
        for a in (v, w):
            w = v
            s = s * 3 + a[0]
    return s, w is v


def over_a_range_in_a_variable(n, k):
    s = 0
    for _ in range(n):
        r = range(k)
        k = k + 1
        for j in r:
            s += j
        for j in reversed(r):
            s = s * 3 + j
    return s


def over_an_iterator_in_a_variable(a, b, n):
    s = 0.0
    for _ in range(n):
        z = zip(a, b)  # noqa: B905
        a, b = b, a
        for x, y in z:
            s = s * 2 + x - y
        for x, _ in z:
            s += x
    return s


def over_an_array_in_another_variable_then(m, p, n):
    s = 0.0
    for _ in range(n):
        for row in m:
            s = s * 2 + row[0]
            m = p
        for k, x in enumerate(p[0]):
            p = p * 2
            s = s + k * x
    return s


def test_loops_go_through_what_there_was_when_they_began():
    check(over_a_tuple, numbers)
    check(over_pairs_of_tuples, numbers)
    check(over_a_tuple_of_arrays, vectors)
    check(over_a_range_in_a_variable, numbers)
    check(over_an_iterator_in_a_variable, vectors, compiled=False)
    check(over_an_array_in_another_variable_then, lambda: (floats(3, 2), floats(3, 2, seed=1), 3))


def exchanged(v, w, n):
    s = 0.0
    for _ in range(n):
        v, w = w, v
        s = s * 3 + v[0]
    return s, v[1], w[1]


def exchanged_matrices(m, v, n):
    s = 0.0
    for _ in range(n):
        m, v = v, m
        s = s * 3 + m[0, 0]
    return s, m[1, 0], v


def test_arrays_are_exchanged_whatever_their_names_are():
    check(exchanged, vectors)
    check(exchanged_matrices, lambda: (floats(3, 2), floats(3, 2, seed=1), 3))


# --------------------------------------------------------------------------- functions that change arrays


def increased(r, k):
    r[k] += 1
    return r[k]


def doubled(r):
    r *= 2
    return r


def added(a, b, n):
    s = 0.0
    for i in range(n):
        s = s * 2 + (a[0] + np.add(a, b, out=a)[0])
        s = s * 2 + (a * 1 - np.add(a, b, out=a)).sum()
        s -= i
    return s


def in_comparisons(a, b, n):
    s = 0.0
    for i in range(n):
        if a[i] < increased(a, i):
            s += 1
        if a[i] * 2 == doubled(a)[i]:
            s += 4
        if 1 < a[0] < increased(a, 0):
            s += 16
        s += max(a[0], np.add(a, 1, a)[0]) - min(increased(b, i), a[0])
    return s


def in_tuples_and_arguments(a, b, n):
    t = (0.0, 0.0, 0.0)
    for i in range(n):
        t = (a[0], increased(a, 0), a[0])
        b[i], b[i - 1] = a[i], increased(a, i)
        np.maximum(b * 2, doubled(a), out=b)
        b[i] += increased(b, i)
    return t


def in_subscripts(a, b, n):
    for i in range(n):
        a[int(increased(b, 0)) % 6] = b[0] * 2
        a[int(increased(a, i)) % 6] = a[i]
        b[i] = a[i] + (a + b)[int(increased(a, 0)) % 6]
        a[: int(increased(b, i)) % 5] *= 0.5
    return a


def in_conditions(a, b, n):
    s = 0.0
    for i in range(n):
        s += a[0] if increased(a, 0) > 2 else increased(b, 0)
        if a[1] > 1 and increased(a, 1) > 1.5 or doubled(b)[0] > 30:
            s += a[1]
        while increased(a, 2) < i:
            s += 1
    return s


def in_expressions(a, b, n):
    s = 0.0
    for i in range(n):
        s += 2 * increased(a, i) + increased(a, i) * 3
        s = increased(a, 0) - s
        np.sqrt(np.add(a, b, out=a), out=a)
        np.add(a, np.multiply(a, 2, out=b), out=a)
    return s


def test_functions_change_arrays_when_they_are_called():
    for function in (added, in_comparisons, in_tuples_and_arguments, in_subscripts, in_conditions):
        check(function, vectors, compiled=False)
    check(in_expressions, vectors)


def views(a, n):
    u = v = w = x = a
    for _ in range(n):
        u, v, w, x = a.ravel(), np.ravel(a), np.asarray(a), a.reshape(-1)
        u[0] += 1
    return u is a, v is a, w is a, x is a, u, v


def test_functions_that_return_views_or_their_argument():
    def make() -> tuple[Any, ...]:
        return floats(5), 3

    check(views, make)
