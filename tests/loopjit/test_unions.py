"""Variables of several types in compiled loops: None, numbers, arrays and tuples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.loopjit.test_loop_coverage import compare, compiled, random


def table() -> tuple[Any, ...]:
    """Return the argument of the functions below."""
    return (random(20, 5),)


def row_of_largest_sum(a: Any) -> Any:
    """A view is found, or None."""
    best = None
    score = 0.0
    for i in range(len(a)):
        s = a[i].sum()
        if best is None or s > score:
            best = a[i]
            score = s
    return best, score


def copy_of_row(a: Any) -> Any:
    """A copy lives through many iterations."""
    best = None
    for i in range(len(a)):
        if best is None or a[i, 0] > best[0]:
            best = a[i].copy()
    return best


def sum_of_rows(a: Any) -> Any:
    """A sum begins with a number."""
    acc = 0
    for i in range(len(a)):
        acc = acc + a[i]
    return acc


def sum_in_place(a: Any) -> Any:
    """The array that the first iteration makes is changed by the others."""
    acc = 0.0
    for row in a:
        acc += row
        acc *= 1.5
    return acc


def sums_in_inner_loops(a: Any) -> Any:
    """A sum begins with a number in each iteration."""
    total = 0.0
    for k in range(10):
        acc = 0
        for i in range(len(a)):
            acc = acc + a[i] * k
        total += acc[0]
    return total


def rows_in_inner_loops(a: Any) -> Any:
    """A row is found in each iteration."""
    total = 0.0
    for k in range(10):
        best = None
        for i in range(len(a)):
            if best is None or a[i, k % 5] < best[k % 5]:
                best = a[i]
        total += best[1]
    return total


def largest_step(a: Any) -> Any:
    """The variable is that of the iteration before, if there was one."""
    before = None
    largest = 0.0
    for row in a:
        if before is not None:
            largest = max(largest, np.abs(row - before).max())
        before = row
    return largest


def fixed_point(a: Any) -> Any:
    """An array that an iteration makes is that of the iteration before in the next one."""
    before = None
    n = 0
    x = np.zeros(5)
    while n < 20:
        x = 0.3 * x + a[n]
        if before is not None and abs(x - before).max() < 0.2:
            break
        before = x
        n += 1
    return before, n


def smallest_element(a: Any) -> Any:
    """A tuple is found, or None."""
    best = None
    for i in range(len(a)):
        for j in range(5):
            if best is None or a[i, j] < best[0]:
                best = (a[i, j], i, j)
    return best


def tuple_of_array(a: Any) -> Any:
    """Arrays in tuples live through many iterations."""
    best = None
    for i in range(len(a)):
        row = a[i] * 2
        if best is None or row[0] > best[0][0]:
            best = (row, i)
    return best


def items_of_tuple(a: Any) -> Any:
    """An item of a tuple is of several types."""
    state = (None, 0)
    for i in range(len(a)):
        if state[0] is None or a[i, 1] > state[0][1]:
            state = (a[i], i)
    return state


def nothing_found(a: Any) -> Any:
    """The variable is None at the end."""
    best = None
    for i in range(len(a)):
        if a[i, 0] > 2:
            best = a[i]
    return best


def skipped(a: Any) -> Any:
    """A type ends the iteration."""
    before = None
    n = 0
    for i in range(len(a)):
        if before is None:
            before = a[i] if i > 2 else None
            continue
        before = before + a[i]
        n += 1
    return before, n


def text_of_state(a: Any) -> Any:
    """A variable is one of several texts."""
    state = "low"
    changes = 0
    for i in range(len(a)):
        if state == "low":
            if a[i, 0] > 0.5:
                state = "high"
                changes += 1
        elif a[i, 0] < 0.5:
            state = "low"
            changes += 1
    return state, changes


def search_by_while(a: Any) -> Any:
    """The test of a loop reads the variable."""
    found = None
    i = 0
    while found is None and i < len(a):
        if a[i, 1] > 0.7:
            found = a[i]
        i += 1
    return found, i


def several_ranks(a: Any) -> Any:
    """The variable is an array with one or two axes."""
    x = a
    total = 0.0
    for i in range(10):
        x = a[i] if i % 2 else a
        total += x.sum()
    return total, x


PROGRAMS = [
    row_of_largest_sum, copy_of_row, sum_of_rows, sum_in_place, sums_in_inner_loops,
    rows_in_inner_loops, largest_step, fixed_point, smallest_element, tuple_of_array,
    items_of_tuple, nothing_found, skipped, text_of_state, search_by_while, several_ranks,
]


@pytest.mark.parametrize("function", PROGRAMS)
def test_variables_of_several_types(function: Any) -> None:
    """Programs whose variables change their types are compiled."""
    compiled(function, table, failures=int(function is search_by_while))  # its check ends the loop


def test_operations_that_a_type_does_not_have() -> None:
    """Python raises where the variable is still None or a number."""
    def item_of_none(a: Any) -> Any:
        best = None
        for i in range(len(a)):
            if i > 4:
                best = best[0] + a[i]
        return best

    def sum_with_none(a: Any) -> Any:
        best = a[0]
        for i in range(len(a)):
            if a[i, 0] > 0.9:
                best = None
            best = best + a[i]
        return best

    compare(item_of_none, table)
    compare(sum_with_none, table)


def test_identity_of_operands() -> None:
    """An array that is handed in is the same object afterwards; a view of it is another."""
    def function(a: Any, whole: bool) -> Any:
        found = None
        for i in range(20):
            if a[i, 0] > 0.5:
                found = a if whole else a[:]
        return found is a, found

    compiled(function, lambda: (random(20, 5), True))
    compiled(function, lambda: (random(20, 5), False))


def test_warnings_behind_the_first_true_element() -> None:
    """An expression is computed for all elements, those that decide nothing included."""
    def function(a: Any, b: Any) -> Any:
        n = 0
        for i in range(40):
            if (a * b[i]).any():
                n += 1
        return n

    compare(function, lambda: (np.array([1.0, 1e300, 2.0]), np.where(np.arange(40) > 20, 1e300, 1.0)))
