"""Behaviour of compiled loops: exits, roll-back, unions of kinds, aliasing, programs that the fuzzer found.

Each function runs plain and with rewritten loops in several ways: as machine code from the first part,
checked, in small parts with exits planted in the program, entered in the midst of the loop, and by the
interpreter.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tests.loop_fuzz.runner import Plan, compare

WAYS = {
    "machine": ("first", True, False),
    "checked": ("checked", True, False),
    "exits": ("parts", False, True),
    "midway": ("midway", False, False),
    "exits in machine code": ("parts", True, True),
}
Make = Callable[[], Sequence[Any]]


def check(
    function: Callable[..., Any], *makes: Make, compiled: bool = True, errors: str = "warn"
) -> None:
    """Assert that a function with rewritten loops does what it does without, however its loops are run."""
    for way, (mode, machine, forced) in WAYS.items():
        for seed in range(3 if forced and not machine else 1):
            plan = Plan(seed, mode, machine, forced, errors, random.Random(seed))
            report = compare(function, function, [make for make in makes for _ in range(3)], plan)
            assert not report.crashes, report.crashes[0]
            assert not report.differences, f"{way}: {report.differences[0]}"
            if compiled and mode == "first":
                assert report.runs, (report.refused, report.failures)


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    """Return random floats."""
    return np.random.default_rng(seed).standard_normal(shape)


# --------------------------------------------------------------------------- what loops go through


def over_ranges(n, log):
    s = 0
    for i in range(2, n):
        s += i
    for i in range(n, -3, -2):
        s = 3 * s - i
    for i in range(n):
        log[i] = i
    for i in range(5, 5):
        s = -1
    return s, i


def over_arrays(a, b, m):
    s = 0.0
    for x in a:
        s += x
    for i, x in enumerate(a[::2], 3):
        s += i * x
    for x, y in zip(a, b):  # noqa: B905
        s -= x * y
    for k, (x, row) in enumerate(zip(a, m)):  # noqa: B905
        s += row[k % 2] * x
    for row in m:
        row[0] = row[1] * 2
    return s, x, k


def nested_sources(a, n):
    s = 0
    for i in range(n):
        for d in (-1, 0, 1):
            for j in reversed(range(i)):
                s += d * j
        for x, y in zip((1, 2.5), (a[0], i)):  # noqa: B905
            s += x * y
        for k, v in enumerate((i, 3)):
            s += k * v
    return s


def while_loops(n, a):
    k = steps = 0
    while n != 1 and steps < 100:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    while True:
        k += 1
        if a[k % len(a)] > 1.5 or k > 20:
            break
    return n, k, steps


def test_sources_of_loops():
    check(over_ranges, lambda: (7, np.zeros(9)), lambda: (3, np.zeros(9)))
    check(
        over_arrays,
        lambda: (floats(6), floats(6, seed=1), floats(6, 2)),
        lambda: (floats(6)[::-1], floats(4), floats(6, 3)),
    )
    check(nested_sources, lambda: (floats(2), 5))
    check(while_loops, lambda: (27, floats(9)), lambda: (1, floats(3)))


# --------------------------------------------------------------------------- exits


def found(a, limit):
    for i, x in enumerate(a):
        if x > limit:
            return i, x
        if x == -99:
            raise ValueError(i)
        if x < -limit:
            break
        if i % 2:
            continue
        a[i] = 0
    return -1, None, i


def test_jumps_out_of_loops():
    check(
        found,
        lambda: (floats(20), 1.2),
        lambda: (floats(20), 9.0),
        lambda: (np.array([1.0, -99.0, 3]), 200.0),
        lambda: (np.array([0.0, -3, 1]), 2.0),
    )


def out_of_bounds(a, b, n):
    for i in range(n):
        b[i] = a[i + 2] + a[-i]
    return b


def zero_divisors(c, d):
    s = 0
    for i in range(len(c)):
        s += 7 // int(c[i]) + 5 % int(d[i])
    return s


def test_exceptions_are_raised_at_their_line_with_the_state_of_arrays():
    check(out_of_bounds, lambda: (floats(6), np.zeros(6), 4), lambda: (floats(6), np.zeros(6), 6))
    check(
        zero_divisors,
        lambda: (np.array([1, 2, -3]), np.array([2, -3, 1])),
        lambda: (np.array([1, 0]), np.array([1, 1])),
        lambda: (np.array([1, 2]), np.array([1, 0])),
    )


def numpy_warnings(a, b):
    s = np.float64(0)
    for i in range(len(a)):
        b[i] = a[i] / b[i]
        s += np.log(a[i])
        b[i] += 1
    return s


def integer_overflow(c, k):
    t = np.int32(5)
    for x in c:
        t = t * x + np.int32(1)
        k = k * 3 + 1
    return t, k


def underflow(a, n):
    with np.errstate(all="raise"):
        for i in range(n):
            a[i] = a[i] * 1e-300
    return a


def test_underflow_is_reported_where_numpy_is_told_to():
    check(underflow, lambda: (np.full(5, 1e-200), 5), compiled=False)


@pytest.mark.parametrize("errors", ["warn", "ignore", "raise"])
def test_warnings_of_iterations_that_are_undone(errors):
    check(
        numpy_warnings,
        lambda: (np.array([1.0, 0, 2, -1, 3, 0]), np.array([1.0, 0, 2, 1, 0, 1])),
        errors=errors,
    )
    check(integer_overflow, lambda: (np.full(30, 7, np.int32), 2), errors=errors)


def unsupported_at_times(a, names):
    for i in range(len(a)):
        if a[i] > 1:
            names.append(str(i))
        a[i] += len(names)
    return a


def test_statements_that_programs_do_not_have_are_done_by_python():
    check(unsupported_at_times, lambda: (floats(30), []), compiled=False)


def unbound(a, flag):
    for x in a:
        if flag:
            y = x
    return y


def deleted(a):
    s = 1
    for x in a:
        if x > 1:
            del s
        s += x
    return s


def read_behind_a_loop(a):
    for x in a:
        pass
    return x


def test_variables_without_a_value():
    check(unbound, lambda: (floats(5), True), lambda: (floats(5), False), compiled=False)
    check(
        deleted, lambda: (np.array([0.5, 0.1]),), lambda: (np.array([0.5, 3, 0.1]),), compiled=False
    )
    check(read_behind_a_loop, lambda: (floats(0),), lambda: (floats(2),), compiled=False)


# --------------------------------------------------------------------------- kinds of scalars


def accumulated(a):
    s = 0
    for x in a:
        s += x
    return s


def swapped(k, z, n):
    s, t = k, z
    for _ in range(n):
        s, t = t, s
    return s, t


def of_two_kinds(a, k):
    s = k
    for i in range(len(a)):
        if a[i] > 0:
            s = a[i]
        s = s * 2 + 1
        t = s < 3
    return s, t, -s, abs(s)


def narrow(y, a, n):
    s = y
    for j in range(n):
        if j == 20:
            s %= a[j]
        s = s * 3
    return s


def large_integers(k, n):
    for _ in range(3):
        for i in range(n):
            k = k * 2 + i
    return k, k // 3, k % 7, k << 1 if k > 0 else 0


@pytest.mark.parametrize(
    "start",
    [
        0,
        True,
        2**31 - 1,
        2**53 + 1,
        -(2**62),
        2**63 - 1,
        2**63,
        2.5,
        1j,
        np.bool_(True),
        np.int8(5),
        np.uint16(7),
        np.int64(-(2**63)),
        np.uint64(2**63),
        np.float32(0.1),
        np.complex64(2 + 1j),
    ],
)
def test_scalars_of_several_kinds(start):
    check(
        swapped,
        lambda: (start, 0.5, 5),
        lambda: (start, np.float64(-0.0), 5),
        lambda: (start, 7, 4),
        compiled=False,
    )
    if not isinstance(start, (complex, np.complexfloating)):
        check(of_two_kinds, lambda: (floats(8), start), compiled=False)
    if not isinstance(start, (bool, np.bool_, float, complex, np.inexact)):
        check(large_integers, lambda: (start, 9), lambda: (start, 2), compiled=False)
    check(narrow, lambda: (start, floats(8), 6), compiled=False) if isinstance(
        start, np.generic
    ) else None


def test_sums_begin_with_an_integer():
    check(
        accumulated,
        lambda: (floats(9),),
        lambda: (np.arange(9),),
        lambda: (floats(9).astype(np.float32),),
        lambda: (np.arange(9, dtype=np.uint8),),
        lambda: (np.array([True, False, True]),),
        lambda: (floats(0),),
        compiled=False,
    )


def complex_products(z, w):
    s, t = z[0], 1j
    for i in range(len(z)):
        s = s * w[i] + z[i]
        t = t * 1.5 - complex(0.1, 0)
        z[i] *= w[i]
        z[i] += abs(w[i]) / (1 + abs(s))
    return s, t, z * w


def test_products_and_magnitudes_of_complex_scalars_are_those_of_python():
    check(
        complex_products,
        lambda: (floats(7) + 1j * floats(7, seed=2), floats(7, seed=3) - 1j * floats(7)),
        compiled=False,
    )


def powers(e, u, a):
    s = 0
    t = 0.0
    for i in range(len(e)):
        s += int(e[i]) ** 2
        t += e[i] ** 0.5 if e[i] >= 0 else a[i] ** 2
        u[i] = u[i] ** 3
    return s, t, a**2


def negative_powers(e, b):
    for i in range(3):
        b[:] = e**e
    return b


def test_powers():
    check(powers, lambda: (np.arange(6) - 2, np.arange(6), floats(6)))
    check(
        negative_powers,
        lambda: (np.arange(5), np.zeros(5)),
        lambda: (np.arange(5) - 2, np.zeros(5)),
        compiled=False,
    )


def roots_of_integers(c, y):
    for u in c:
        y += u**0.5
    return y


def test_functions_of_the_c_library_raise_flags():
    check(roots_of_integers, lambda: (np.array([4, -2, 9, -1]), np.float64(0)), compiled=False)


def real_functions(z, n):
    s = 0.0
    for i in range(n):
        s += math.isnan(z[i])
    return s


def test_complex_numbers_where_reals_are_needed():
    check(real_functions, lambda: (floats(4) + 0j, 4), compiled=False)


def functions_of_small_integers(c, n):
    s = 0.0
    for i in range(n):
        s += np.sqrt(c[i])
    return s


def test_results_of_dtypes_that_programs_do_not_have():
    check(functions_of_small_integers, lambda: (np.arange(6, dtype=np.int8), 6), compiled=False)


def python_math(a, n):
    s = 0.0
    for i in range(n):
        s += math.sqrt(a[i]) + math.log(a[i] + 1) + math.floor(a[i]) + math.hypot(a[i], 1)
    return s


def rounding(a):
    s = k = 0
    for x in a:
        s += round(x) + int(x) + math.ceil(x)
        k ^= int(x * 1000) & 0xFF
        s = max(s, k, -s)
    return s, k, divmod(s, 7), s >> 2, ~k


def test_functions_of_python():
    check(python_math, lambda: (abs(floats(8)), 8), lambda: (floats(8), 8), compiled=False)
    check(
        rounding,
        lambda: (10 * floats(9),),
        lambda: (np.array([1.5, 2.5, -0.5, float("nan"), 1e300]),),
        compiled=False,
    )


# --------------------------------------------------------------------------- arrays


def shifted(a, n):
    for i in range(n):
        a[1:] = a[:-1] + 1
        a[:-1] -= a[1:]
        a[::-1] = a
        a[i:] *= 2
        a[:i] = a[i - 3 : i - 3 + i] if i < 3 else a[n - i : n]
    return a


def rows_and_columns(m, p):
    for i in range(m.shape[0]):
        m[i] += m[i - 1]
        m[:, i % 2] = p[i % 3, :] * 2
        p[...] = p[::-1]
        m[i, ::-1] = m[0]
    return m, p


def two_names(a, b, x):
    for i in range(len(b) - 1):
        a[i] = b[i + 1] * x
        b[i] += a[-1 - i]
        b[1:] = a[: len(b) - 1]
    return a, b


def test_overlapping_slices_and_arguments_that_share_memory():
    check(shifted, lambda: (floats(9), 9))
    check(
        rows_and_columns,
        lambda: (floats(4, 3), floats(3, 4)),
        lambda: (floats(3, 4).T, floats(3, 4)),
    )

    def same() -> tuple[Any, ...]:
        a = floats(8)
        return a, a, 0.5

    def views() -> tuple[Any, ...]:
        a = floats(9)
        return a[:-1], a[1:], 0.5

    def reversed_views() -> tuple[Any, ...]:
        a = floats(8)
        return a, a[::-1], 1.5

    def read_only() -> tuple[Any, ...]:
        a = floats(8)
        b = a[:]
        b.flags.writeable = False
        return b, a, 1.5

    check(two_names, same, views, reversed_views, lambda: (floats(8), floats(8, seed=1), 2))
    check(two_names, read_only, compiled=False)


def filled(a, b, n):
    for i in range(n):
        a[i] = b[n - 1 - i]
    return a


def test_a_read_only_view_of_a_written_array():
    def make() -> tuple[Any, ...]:
        a = floats(8)
        b = a[:]
        b.flags.writeable = False
        return a, b, 8

    check(filled, make)


def kept_views(a, b):
    v = w = b
    for i in range(len(a)):
        if a[i] > 0:
            v = a[i:]
        w = v[::-1]
        v[0] = i
    w[-1] = 77
    return v, w


def made_in_the_loop(a, n):
    v = np.zeros(n)
    total = 0.0
    for i in range(n):
        u = v
        v = u + a * i
        if i == 3:
            u[0] = -1
        total += np.sum(v)
    return v, total


def of_other_dtypes(a, c, n):
    v = a
    for i in range(n):
        if i == n - 1:
            v = c * 2
    return v


def views_of_made(a, n):
    v = w = u = a
    for i in range(n):
        v = a * i
        w = v[1:]
        u = (a + i)[::-2]
        w[0] = 99
    w[1] = 5
    return v, w, u


def exchanged(a, b, n):
    for i in range(n):
        b[1:] = a[:-1] + 1
        a, b = b, a
    return a, b


def untouched(d, n):
    v = d
    s = 0
    for i in range(n):
        s += i
        v = d
    return v, s


def in_a_tuple(t, a, b, n):
    for i in range(n):
        b[1:] = a[:-1]
        t[1][0] = a[2]
        t = t
    return b, t


def test_views_and_arrays_that_outlive_an_iteration():
    check(views_of_made, lambda: (floats(6), 4), lambda: (floats(3), 1), compiled=False)
    check(exchanged, lambda: (floats(6), floats(6), 5))
    check(
        untouched,
        *(
            lambda d=d: (d + 0, 5)
            for d in (np.zeros(3, np.float16), np.ones(3, np.float16), np.array(2.0), np.array(3.0))
        ),
        compiled=False,
    )
    check(
        untouched,
        lambda: ([1], 5),
        lambda: ([2], 5),
        lambda: ("a", 3),
        lambda: (tuple(range(12)), 4),
        lambda: (tuple(range(13)), 4),
        compiled=False,
    )

    def shared(count: int) -> tuple[Any, ...]:
        a = floats(6)
        return tuple(floats(2) for _ in range(count)), a, a, 4

    check(in_a_tuple, lambda: shared(3), lambda: shared(12), compiled=False)
    check(
        kept_views,
        lambda: (floats(6), floats(6)),
        lambda: (np.array([-1.0, 2, 3]), np.zeros(3)),
        compiled=False,
    )
    check(made_in_the_loop, lambda: (floats(6), 6), compiled=False)
    check(of_other_dtypes, lambda: (floats(6), np.arange(6), 4), compiled=False)


def views_of_read_only(a, b, n):
    v = a
    for i in range(n):
        v = b[i:] if i % 2 else a[i:]
    return v


def test_results_are_read_only_like_the_arrays_that_they_are_views_of():
    def make() -> tuple[Any, ...]:
        b = floats(6)
        b.flags.writeable = False
        return floats(6), b, 4

    check(views_of_read_only, make, compiled=False)


def broadcast(m, a, b, n):
    for i in range(n):
        m += a
        m *= b[:, None]
        m[i] = np.where(m[i] > 0.5, a, i)
        m[m < -1] = i
        m[:, 0] = 3
    return m


def test_broadcasting():
    check(
        broadcast,
        lambda: (floats(4, 3), floats(3), floats(4), 4),
        lambda: (floats(4, 3), floats(1), floats(4), 4),
        lambda: (floats(4, 3), floats(2), floats(4), 4),
    )


def axes_of_one_element(m, row, column, n):
    total = 0.0
    for i in range(n):
        mean = m.mean(axis=1, keepdims=True)
        m -= mean * 0.25
        m += row * column
        ones = np.ones((1, 3))
        m[:] = m * ones + row[:1, :3] * column[-1:]
        m += m[:, i:i + 1] * m[i:i + 1, :]
        column = column[:2] if i == 2 else column
        total += (m[0:1] - m).sum()
    return m, total, column


def test_axes_of_one_element_are_repeated():
    def make(rows: int, columns: int) -> Make:
        return lambda: (floats(rows, columns), floats(1, columns, seed=1), floats(rows, 1, seed=2), 3)

    check(axes_of_one_element, make(4, 3))
    check(axes_of_one_element, make(4, 3), make(1, 3), make(5, 3))
    check(axes_of_one_element, lambda: (floats(4, 3), floats(4, 3, seed=1), floats(1, 1), 3), compiled=False)
    check(axes_of_one_element, lambda: (floats(4, 3), floats(2, 3, seed=1), floats(4, 1), 3), compiled=False)


def sizes_that_vary(a, b, n):
    for i in range(n):
        a[: i + 1] += b[:1] * 2
        b[i:] = a[i:] + a[i:i + 1]
        c = b[-3:] * 2
        b[1:-1] = 0.5 * (b[:-2] + b[2:])
        b = b[1:]
        a[:3] -= c[:i + 1].sum()
    return a, b


def test_slices_beyond_the_ends_of_arrays():
    check(sizes_that_vary, lambda: (floats(6), floats(6), 3), compiled=False)
    check(sizes_that_vary, lambda: (floats(6), floats(6), 5), lambda: (floats(3), floats(3), 3),
          lambda: (floats(1), floats(1), 1), lambda: (floats(0), floats(0), 2), compiled=False)


def shapes_by_path(a, b, n):
    for i in range(n):
        c = a if i % 2 else a[:1]
        b += c
        if i == 2:
            a = np.zeros(1)
        b *= a + 1
    return a, b


def test_sizes_that_depend_on_the_path():
    check(shapes_by_path, lambda: (floats(4), floats(4), 6), lambda: (floats(1), floats(1), 6),
          lambda: (floats(1), floats(4), 6), compiled=False)


def repeated_checks(a, n):
    for i in range(n):
        x = a[2:] + a[:-2]
        if i % 3 == 1:
            a = a[:-1]
        y = a[2:] + a[:-2]
        for k in range(2):
            a = a[k:]
            y = y[:len(a) - 2] + a[2:] * a[:-2]
        a[0] = x.sum() + y.sum()
    return a, x, y


def test_values_are_computed_again_when_their_variables_change():
    check(repeated_checks, lambda: (floats(20), 6), lambda: (floats(6), 4), lambda: (floats(5), 3),
          compiled=False)


def reduced(m, a, b, n):
    s, k = 0.0, 0
    for i in range(n):
        s += np.sum(a[i:]) + (a[:i] @ b[:i]) + m[i].mean() + np.max(m[:, i % 3]) - a.min()
        k += int(np.argmax(a)) + int((a > s).sum()) + np.any(m > 2) + len(a[i:])
        a[:] = m @ m[i] if n == 3 else a * 0.5
    return s, k


def test_reductions_and_products():
    check(
        reduced,
        lambda: (floats(4, 3), floats(4), floats(4), 4),
        lambda: (floats(3, 3), floats(3), floats(3), 3),
        lambda: (floats(4, 3)[::-1], floats(8)[::2], floats(4)[::-1], 4),
    )


def three_operands(a, b, c):
    for i in range(3):
        np.maximum(a, b, c)
        np.add(a, b, c)
    return c


def test_third_operands_of_ufuncs():
    check(three_operands, lambda: (floats(4), floats(4, seed=1), np.zeros(4)), compiled=False)


def layouts(a, b, n):
    s = 0.0
    for i in range(n):
        s += a[i] + b[i, i]
        b[i, 0] = a[-1 - i]
        a[i] = 2 * s
    return s


def test_layouts_of_arrays():
    def unaligned() -> np.ndarray:
        return np.zeros(65, np.uint8)[1:].view(np.float64)

    def frozen() -> np.ndarray:
        a = floats(6)
        a.flags.writeable = False
        return a

    check(
        layouts,
        lambda: (floats(6), np.asfortranarray(floats(6, 6)), 6),
        lambda: (floats(12)[::2], floats(12, 6)[::-2], 6),
        lambda: (floats(6).astype(">f8"), floats(6, 6), 6),
        lambda: (unaligned(), floats(8, 8), 8),
        lambda: (frozen(), floats(6, 6), 6),
        lambda: (floats(6), floats(6, 6).T, 6),
        compiled=False,
    )


# --------------------------------------------------------------------------- functions of the program


def clipped(x, low=0.0, high=1):
    if x < low:
        return low
    if x > high:
        return high
    return x


def store(a, i, x):
    a[i] = x


def none_at_times(x):
    if x > 0:
        return x


def calls(a, n):
    s = 0
    for i in range(n):
        s += clipped(a[i]) + clipped(i, high=2)
        store(a, i, s)
        if none_at_times(a[i]) is None:
            s -= 1
    return s


def test_functions_that_are_inlined():
    check(calls, lambda: (floats(7), 7), lambda: (floats(7).astype(np.float32), 7), compiled=False)


# --------------------------------------------------------------------------- programs of several features


def by_mode(a, mode, step=None):
    s = 0
    for x in a:
        if mode == "add":
            s += x
        elif mode in ("sub", "mul"):
            s -= x
        if step is None:
            s += 1
        if mode != "x" and step is not None:
            s += step
    return s


def test_texts_are_compared_when_loops_are_compiled():
    check(
        by_mode,
        lambda: (floats(5), "add"),
        lambda: (floats(5), "sub", 3),
        lambda: (floats(5), "x", 2.5),
    )


def rounded(a, n):
    s = 0
    for i in range(n):
        s += round(a[i] * 10) + round(float(a[i]), 2) + round(i, 0)
    return s


def test_arguments_that_programs_do_not_have():
    check(rounded, lambda: (floats(6), 6), compiled=False)


def ahead(a, b, n):
    s = 0
    for i, x in enumerate(a):
        if i + 1 < n:
            b[i + 1] = x * 2
        s += x
    for i in range(n):
        i += 5
        s += i
    return s, i


def test_loops_over_arrays_that_their_bodies_change():
    def same() -> tuple[Any, ...]:
        a = floats(8)
        return a, a, 8

    check(ahead, same, lambda: (floats(8), floats(8), 8))


def slices(a, b, n):
    for i in range(n):
        b[: len(a[10:2:-1])] = a[10:2:-1]
        b[: len(a[-100:100:3])] += a[-100:100:3]
        b[: len(a[5:-100:-2])] -= a[5:-100:-2]
        b[i : i + 3] = b[i + 1 : i + 4]
        b[:] = b[::-1]
        b[-1:-4:-1] = b[:3]
        b[i - 2 : i + 2] *= 2
        b[3:3] = 7
    return b


def transposed(m, n):
    for i in range(n):
        m[:] = m.T
        m[i] = m[:, i]
        m[1:, :] = m[:-1, ::-1]
        m += m.T
        m[1:, 1:] = m[:-1, :-1]
        m *= 0.5
        m[::-1] = m
    return m


def test_slices_with_any_bounds():
    check(slices, lambda: (floats(12), floats(12), 8), lambda: (floats(4), floats(12), 3))
    check(transposed, lambda: (floats(6, 6), 6), lambda: (np.asfortranarray(floats(5, 5)), 5))


def else_clauses(a, n):
    s = 0
    for i in range(n):
        for x in a:
            if x > i:
                break
            s += 1
        else:
            s += 100
        k = 0
        while k < 3:
            k += 1
            if k == i:
                continue
            if s > 500:
                break
        else:
            s += 7
    return s, k


def signs(a, n):
    lo = hi = 0.0
    z, w = 0, 0.0
    for i in range(n):
        lo, hi = min(lo, a[i]), max(a[i], hi)
        z = z * -1.0
        w += -0.0
        a[i] = min(a[i], float("nan")) if i % 2 else max(0.0, -a[i])
    return lo, hi, z, w


def quotients(a, b, n):
    t, u = 0.0, 0
    for i in range(n):
        x, y = float(a[i]), float(b[i])
        t, b[i] = x // y, x % y
        u += int(x) // -3 + int(x) % -3
        a[i] = t
    return t, u


def test_else_clauses_signs_and_quotients():
    check(else_clauses, lambda: (floats(6), 9))
    check(signs, lambda: (np.array([1.0, np.nan, -2, 3, np.nan, 0, -0.0]), 7))
    check(
        quotients,
        lambda: (
            np.array([5.0, -5, 0, -0.0, 7.5, 1e200, -7]),
            np.array([3.0, 3, -2, 2, -2.5, 1e-5, np.inf]),
            7,
        ),
    )


def elements(c, k, n):
    for i in range(n):
        c[i] += 1
        c[i] = c[i] * 2
        c[-1 - i] = k * i
        k = k * 3
    return c, k


@pytest.mark.parametrize("dtype", ["i1", "u1", "i4", "i8", "u8", "f4", "?"])
def test_stores_of_numbers_that_do_not_fit(dtype):
    check(
        elements,
        lambda: (np.arange(6).astype(dtype), 7, 6),
        lambda: (np.zeros(6, dtype), -(2**50), 6),
        lambda: (np.zeros(6, dtype), 0.1, 6),
        compiled=False,
    )


def partly_stored(a, b, n):
    for i in range(n):
        a[i], b[i + 3] = i + 1, 2
    return a


def test_statements_that_fail_after_their_first_store():
    check(
        partly_stored,
        lambda: (floats(6), floats(6), 6),
        lambda: (floats(6), floats(9), 6),
        compiled=False,
    )


def scaled(x, by=2.0):
    return x * by


def all_scaled(a):
    s = 0.0
    for x in a:
        s += scaled(x)
    return s


def test_defaults_of_inlined_functions_that_change():
    def make() -> tuple[Any, ...]:
        scaled.__defaults__ = (len(made) // 2 + 2.0,)
        made.append(0)
        return (floats(5),)

    made: list[int] = []
    check(all_scaled, make, make)
    assert made


def whole_view(a, n):
    c = a
    for i in range(n):
        c = a[:]
        c[0] = i
    is_object, has_base = c is a, c.base is a
    c.shape = (2, -1)
    return is_object, has_base, a.shape


def last_of_two(a, n):
    c = d = a
    for i in range(n):
        c = a[:] if i % 2 else a
        d = a[1:][:-1]
    return c is a, d is a, d.base is a, d


def test_views_of_whole_arrays_are_not_the_arrays():
    check(whole_view, lambda: (floats(8), 40), lambda: (floats(8), 0))
    check(last_of_two, lambda: (floats(8), 40), lambda: (floats(8), 41))
