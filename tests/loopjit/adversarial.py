"""Loops with corner cases: calls of functions, indices that count down, sums that overflow.

Calls are compared with plain Python in results, types, warnings, errors and contents of arrays.
"""

from __future__ import annotations

import copy
import traceback
import warnings
from typing import Any

import numpy as np

FACTOR, BIAS = 3, -1.5


def _scaled(x, y):
    return x * FACTOR + y


def _chosen(x, y):
    """Numbers of three kinds."""
    if x > y:
        return x
    return 0 if x == y else y * 0.5


def _ratio(x, y):
    r = x - y
    r /= y
    return r


def _twice(x, y):
    return _scaled(_scaled(x, y), BIAS)


def _bent(x, y):
    s = x if x < y else y
    if s < 0:
        s = -s
        s += 1
    return s * s


def _maybe(x, y):
    if x > y:
        return y


def _changed(x, y):
    x, z = y, x
    return x - z


def _place(x, y):
    return int(x + y)


def each_scaled(a, n, k):
    for i in range(n):
        a[i] = _scaled(a[i], k)
    return a[0]


def each_chosen(a, n, k):
    s = 0
    for i in range(n):
        s = _chosen(a[i], s)
    return s


def summed_ratios(a, n, k):
    s = 0.0
    for i in range(n):
        s += _ratio(a[i], k)
    return s


def each_twice(a, n, k):
    for i in range(1, n):
        a[i] = _twice(a[i - 1], k)
    return a


def each_bent(a, n, k):
    s = k
    for i in range(n):
        for j in range(i):
            s = _bent(a[i], a[j]) - s
    return s


def none_at_times(a, n, k):
    s = 0
    for i in range(n):
        s = _maybe(a[i], k)
    return s


def each_changed(a, n, k):
    for i in range(n):
        a[i] = _changed(a[i], k)
    return i


def called_places(a, n, k):
    for i in range(n):
        a[_place(i, k)] = i
    return a


def in_tests(a, n, k):
    i = 0
    while _scaled(i, k) < n and i < 99:
        a[i] = _chosen(a[i], k)
        i += 1
    return i


def in_bounds_of_ranges(a, n, k):
    s = 0
    for i in range(n):
        for j in range(_place(i, k), _place(i, n)):
            s += j
            a[j % n] = s & 7
    return s


def sorted_by_insertion(a, n, k):
    for i in range(1, n):
        key = a[i]
        j = i - 1
        while j >= 0 and a[j] > key:
            a[j + 1] = a[j]
            j -= 1
        a[j + 1] = key
    return a


def down_beyond_the_first(a, n, k):
    s = 0
    for i in range(n):
        j = i
        while j > -n - 3 and s < 50:
            s += 1
            a[j] = a[j - 2]
            j -= 1
    return s


def down_from_beyond(a, n, k):
    j = 0
    for i in range(n):
        j = i + k
        while j > i:
            a[j] = i
            j -= 2
    return j


def down_and_up(a, n, k):
    j, s = 0, 0
    for i in range(n):
        j = i
        for _ in range(3):
            j -= 1
            if a[j] > k:
                j += 2
        s = a[j] + s
    return s, j


def down_over_turns(a, n, k):
    j = n - 1
    for i in range(n):
        a[j] = k
        j -= 1
        if j < -2:
            j = i
    return j


def bytes_added(a, n, k):
    s = k
    for i in range(n):
        for j in range(i):
            s += int(a[j])
    return s


def begun_anew(a, n, k):
    t = 0
    for i in range(n):
        s = int(k)
        for j in range(n):
            s -= int(a[j])
        t = s
        s = t * 2
    return s, t


def begun_large(a, n, k):
    s = 2 ** 61
    t = 0
    for i in range(n):
        for j in range(n):
            s += int(a[i]) & 255
            s += s & 1023
        t = s
    return t


def doubled_meanwhile(a, n, k):
    s = 1
    for i in range(n):
        for j in range(9):
            s += int(a[i]) & 127
            s = s + s
    return s


def grown_and_checked(a, n, k):
    m = 1
    for i in range(n):
        m = 3 * m + 1 if m % 2 else m // 2 + i
        m = m * 9
        a[i % 12] = m & 7
    return m


PROGRAMS = (
    each_scaled, each_chosen, summed_ratios, each_twice, each_bent, none_at_times, each_changed,
    called_places, in_tests, in_bounds_of_ranges, sorted_by_insertion, down_beyond_the_first,
    down_from_beyond, down_and_up, down_over_turns, bytes_added, begun_anew, begun_large, doubled_meanwhile,
    grown_and_checked)
KINDS = ("float64", "int64", "uint8", "float32", "int16")


def values(kind: str, number: int) -> tuple[Any, ...]:
    """Return what a program is called with: an array, how far it goes, and a number."""
    g = np.random.default_rng(number)
    a = (g.integers(-9, 30, 12) if kind != "uint8" else g.integers(0, 255, 12)).astype(kind)
    if number % 5 == 3:
        a[g.integers(12)] = np.nan if kind[0] == "f" else np.iinfo(kind).max
    if number % 7 == 4:
        a = np.repeat(a, 2)[::2]
    n = 12 if number % 6 != 5 else 14
    return a, n, (2, 1, 0, 3, -1)[number % 5]


def outcome(function: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return all that can be seen of a call."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            made = function(*args)
            result = [(type(x).__name__, str(getattr(x, "dtype", "")), repr(x))
                      for x in (made if type(made) is tuple else (made,))]
        except Exception as error:
            lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__)
                     if frame.filename == __file__]
            result = [type(error).__name__, str(error), lines[1:]]
    return result, [(str(each.message), each.lineno, each.filename) for each in caught], args[0].tobytes()


def compared(plain: Any, fast: Any, kind: str, calls: int) -> str:
    """Return how calls of both differ; nothing if they do not."""
    for number in range(calls):
        args = values(kind, number)
        wanted, found = outcome(plain, copy.deepcopy(args)), outcome(fast, copy.deepcopy(args))
        if wanted != found:
            return f"{plain.__name__} {kind} {number}: {wanted}\nbut {found}"
    return ""
