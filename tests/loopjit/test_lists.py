"""Lists in compiled loops: items, growth, identity, and what is left to Python."""

from __future__ import annotations

import copy
import sys
import threading

import numpy as np
import pytest

from jitla.loopjit import loop_sites, specialisations
from jitla.loopjit.specialisations import State
from tests.loopjit import list_programs
from tests.loopjit.compiled import loop_function
from tests.loopjit.list_programs import ARGUMENTS


@pytest.fixture(autouse=True)
def without_judgement(monkeypatch):
    """Let no loop be left to Python because its compiled code is slower, as on a busy machine."""
    monkeypatch.setattr(specialisations, "WIN", 1e9)
    monkeypatch.setattr(loop_sites, "MIN_TRACED_SECONDS", 1e9)
    monkeypatch.setattr(loop_sites, "MAX_SKIPPED", 0)


def same(a, b):
    """Return whether two values have the same types and bits."""
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.tobytes() == b.tobytes()
    return repr(a) == repr(b)


def outcome(function, args):
    """Return the result of a call, or the type and text of its exception."""
    try:
        return function(*args)
    except Exception as error:
        return type(error), str(error)


def check(function, make, calls=4):
    """Hold a function with compiled loops against the plain one; return its specialisations."""
    compiled = loop_function(function)
    for _ in range(calls):
        args, others = make(), make()
        assert same(outcome(function, args), outcome(compiled.version, others))
        assert same(args, others)
    return [x for site in compiled.entries for x in site.specialisations.values()]


def trusted(function, make, calls=4):
    """Hold a function against the plain one, and assert that all its loops are compiled and used."""
    found = check(function, make, calls)
    assert found
    for x in found:
        assert x.state is State.READY and x.runs, (x.state, x.reason, x.line, x.failure)
    return found


@pytest.mark.parametrize("name", ARGUMENTS)
def test_programs(name):
    found = check(getattr(list_programs, name), lambda: copy.deepcopy(ARGUMENTS[name]()))
    assert any(x.runs for x in found), [(x.state, x.reason, x.line, x.failure) for x in found]


# --------------------------------------------------------------------------- growth


def test_a_list_that_grows_is_the_same_object():
    """Other names, and arguments, see the items that are appended."""
    def function(n, out):
        other = out
        for i in range(n):
            out.append(i * 0.5)
        return other is out, len(other)

    trusted(function, lambda: (20, [1.5]))


def test_items_have_the_types_of_python_and_numpy():
    """Items of several kinds keep their types."""
    def function(a, n, out):
        for i in range(n):
            if i % 4 == 0:
                out.append(a[i])
            elif i % 4 == 1:
                out.append(i)
            elif i % 4 == 2:
                out.append(i > 5)
            else:
                out.append(float(a[i]))
        return out

    trusted(function, lambda: (np.arange(20.0), 20, []))
    trusted(function, lambda: (np.arange(20, dtype=np.int16), 20, [None]))


@pytest.mark.parametrize("dtype", ["f4", "u1", "u2", "i4", "u8", "c8", "c16", "?"])
def test_items_of_each_dtype(dtype):
    """Scalars of NumPy are read from lists, and appended."""
    def function(values, a, out):
        for i in range(len(values)):
            out.append(values[i])
            out.append(a[i])
        return out

    a = np.arange(12).astype(dtype)
    trusted(function, lambda: (list(a), a, [a[0]]))


def test_a_list_that_gets_longer_than_the_memory_for_it():
    """The part is undone, and done with more memory."""
    def function(n):
        out = []
        for i in range(n):
            for k in range(200):
                out.append((i, k * 0.5))
        return out

    trusted(function, lambda: (400,), calls=3)


def test_methods():
    """Each method of lists that programs have."""
    def function(n, out):
        for i in range(n):
            out.append(i)
            out.extend((i + 1, i + 2))
            out += [i + 3]
            out.insert(1, i * 10)
            out.insert(-1, i * 100)
            out.insert(1000, -i)
            if i % 3 == 0:
                out.pop(0)
                out.pop()
                out.pop(-2)
            if i % 4 == 1:
                out.remove(i + 1)
            if i % 5 == 4:
                out.reverse()
            if i == 7:
                out.clear()
                out.append(out.count(3))
            out.append(out.index(out[-1]) + out.count(i))
            out.extend(out[::2])
            out.extend(out.copy()[:2])
        return out

    trusted(function, lambda: (12, [5, 6, 7]))


def test_errors_are_those_of_python():
    """An iteration that raises an exception is done by Python."""
    def popped(n, values):
        for i in range(n):
            values.pop()
        return values

    def indexed(n, values):
        for i in range(n):
            values[i] = values[-i - 1] + 1
        return values

    def removed(n, values):
        for i in range(n):
            values.remove(i * 2)
        return values

    for function in (popped, indexed, removed):
        found = check(function, lambda: (8, [0, 1, 2, 3, 4, 5]))
        assert any(x.runs for x in found)


# --------------------------------------------------------------------------- items, slices, operators


def test_slices_sums_and_products():
    """New lists that operators make."""
    def function(n, values):
        total = 0
        for i in range(n):
            part = values[i:i + 3] + values[-2:] + [i]
            part = part * 2 + [0] * i + part[::-1]
            total += len(part) + part[i] + max(part) - min(part)
            values[i] = total % 7
        return total, values

    trusted(function, lambda: (9, [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]))


def test_sorting():
    """Lists are sorted in place, and copied in order; equal items stay in their order."""
    def function(n, values, floats):
        total = 0.0
        for i in range(n):
            values.append(i * 7 % 5)
            floats.append(-0.0 if i % 2 else 0.0)
            values.sort()
            floats.sort(reverse=True)
            part = sorted(x * 3 % 7 for x in values)
            total += part[0] + sorted(floats, reverse=True)[-1] + sorted((i, 3, 1))[1]
        return total

    trusted(function, lambda: (12, [3, 1, 2], [0.5, -0.0, 0.0, -1.5]))
    check(function, lambda: (12, [3, 1, 2], [0.5, float("nan"), 0.0, -1.5]))


def test_membership_and_truth():
    """Questions about lists."""
    def function(n, values):
        stack = []
        count = 0
        for i in range(n):
            if i in values:
                stack.append(i)
            if i not in values and stack:
                count += stack.pop()
            if not stack:
                count += 100
        return count, stack

    trusted(function, lambda: (30, [2, 3, 5, 7, 11, 13]))


def test_lists_of_lists_share_rows():
    """A row that is in a list twice is one list."""
    def function(n, m):
        rows = [[0] * m] * n
        other = [[0] * m for _ in range(n)]
        for i in range(n):
            rows[i][i] += 1
            other[i][i] += 1
            other[0] = rows[i]
            other[1][0] = 5
        return rows, other, other[0] is rows[n - 1], rows[0] is rows[1]

    trusted(function, lambda: (5, 6))


def test_operands_that_are_one_list():
    """Two arguments that are one list, and a row that is an argument, too."""
    def function(a, b, rows, row):
        for i in range(len(a)):
            a[i] = b[i - 1] + 1
            row[i] += b[i]
            rows[1][i] = row[i] * 2
            b.append(i)
        return a is b, rows[0] is row

    def make():
        a = [1, 2, 3, 4]
        rows = [[0] * 4, [1] * 4]
        return a, a, rows, rows[0]

    trusted(function, make)
    trusted(function, lambda: ([1, 2, 3, 4], [5, 6, 7, 8], [[1, 2, 3, 4], [0, 0, 0, 0]], [9, 9, 9, 9]))


def test_lists_that_are_exchanged():
    """Names of lists are exchanged in each iteration."""
    def function(n):
        a, b = [0.0, 1.0], [2.0]
        for i in range(n):
            a, b = b, a
            a.append(b[-1] + i)
        return a, b

    trusted(function, lambda: (11,))


def test_a_table_that_is_replaced_by_a_new_one():
    """Each iteration makes a table of tables."""
    def function(cells, n):
        for _ in range(n):
            new = [[0] * len(row) for row in cells]
            for i, row in enumerate(cells):
                for j, x in enumerate(row):
                    new[i][j] = x + cells[i - 1][j - 1]
            cells = new
        return cells

    trusted(function, lambda: ([[1, 2, 3], [4, 5, 6], [7, 8, 9]], 6))


def test_loops_over_lists_that_change():
    """A loop goes through items that are appended meanwhile, and ends where the list ends."""
    def growing(queue, limit):
        done = []
        for x in queue:
            if x < limit:
                queue.append(x * 2)
                queue.append(x * 2 + 1)
            done.append(x)
        return queue, done

    def inner(n):
        total = 0
        for i in range(n):
            queue = [1]
            for k, x in enumerate(queue):
                if x < i:
                    queue.append(x + k)
                    queue.append(x * 2)
                if x % 7 == 3:
                    queue.pop()
            total += len(queue)
        return total

    check(growing, lambda: ([1], 40))
    trusted(inner, lambda: (25,))


def test_iterables():
    """Lists are zipped, enumerated, reversed and unpacked."""
    def function(a, b, pairs):
        total = 0.0
        for k, (x, y) in enumerate(zip(a, b, strict=False)):
            total += x * y + k
            for u, v in pairs:
                total += u * v
            for z in reversed(b):
                total -= z
            first, second = pairs[k]
            total += first * second
        return total

    trusted(function, lambda: ([1.0, 2.5, 3.0], [4, 5, 6, 7], [(1, 0.5), (2, 0.25), (3, 0.125)]))


def test_comprehensions():
    """Comprehensions, with conditions, several loops, and names that the function has, too."""
    def function(n, values):
        x = 100
        total = 0
        for i in range(n):
            squares = [x * x for x in values if x % 2 == i % 2]
            pairs = [(x, y) for x in values for y in squares if x < y]
            table = [[j * k for k in range(3)] for j in range(i)]
            total += len(pairs) + sum([len(row) for row in table]) + x
            for x_, y_ in pairs:
                total += x_ - y_
        return total, x

    trusted(function, lambda: (6, [1, 2, 3, 4, 5, 6, 7]))


def test_functions_of_lists_and_generators():
    """Python's functions over lists, and over generators."""
    def function(n, a, b, c):
        total = 0.0
        for i in range(n):
            a.append(i)
            total += sum(a) + sum(x * i for x in a) + max(b) + min(x - i for x in b)
            total += len(list(range(i)))
            c.append(any(x > i + 3 for x in a))
            c.append(all(x < i + 3 for x in b))
            c.append(any([x == i for x in a if x]))
            c.append(all(x == y for x in a for y in list(b)))
            c.append(bool(list(x for x in a if x > 7)))
        return total

    trusted(function, lambda: (8, [1, 2, 3], [1.5, 2.5], []))


def test_sums_of_floats():
    """Newer releases of Python compensate for rounding, which programs do not."""
    def function(n, values):
        total = 0.0
        for i in range(n):
            total += sum(values) + sum(x * 0.1 for x in values)
        return total

    found = check(function, lambda: (8, [0.1] * 10))
    assert sys.version_info >= (3, 12) or all(x.state is State.READY for x in found)


def test_lists_become_arrays():
    """Functions of NumPy take lists of numbers."""
    def function(n, values):
        total = 0.0
        for i in range(n):
            values[i] += 0.5
            total += np.array(values).sum() + np.max(values)
        return total

    trusted(function, lambda: (4, [1.0, 2.0, 3.0, 4.0]))


# --------------------------------------------------------------------------- types


def test_an_empty_list_gets_items_of_any_type():
    """Types of items follow from what is appended, in earlier iterations too."""
    def function(n):
        stack = []
        total = 0.0
        for i in range(n):
            while len(stack) >= 2 and stack[-1][0] > i % 5:
                total += stack.pop()[1]
            stack.append((i % 7, i * 0.25))
        return stack, total

    trusted(function, lambda: (40,))


def test_lists_with_other_items_than_before():
    """The loop is compiled again for wider types."""
    def function(values):
        total = 0
        for x in values:
            total += x
        return total

    compiled = loop_function(function)
    for values in ([1, 2, 3], [1.5, 2.5], [1, 2.5, True], [np.float64(3)], [1, 2], ["a"], [], [2 ** 70]) * 3:
        assert same(outcome(function, (values,)), outcome(compiled.version, (values,)))


def test_tuples_of_several_lengths_are_left_to_python():
    """Tuples in a list have one length."""
    def function(n, out):
        for i in range(n):
            if i % 2:
                out.append((i, i))
            else:
                out.append((i,))
        return out

    found = check(function, lambda: (6, []))
    assert any(x.reason or x.failure for x in found)


def test_large_integers():
    """Integers beyond 64 bits are left to Python."""
    def function(n, values):
        for i in range(n):
            values.append(values[-1] * 3)
        return values

    found = check(function, lambda: (60, [1]))
    assert any(x.runs for x in found)
    check(function, lambda: (3, [1 << 70]))


def test_constant_lists_that_are_operands():
    """A list at module level that is changed through an argument is no constant."""
    def function(n, values):
        total = 0
        for i in range(n):
            values[0] += 1
            total += CONSTANTS[0]
        return total

    compiled = loop_function(function)
    for values in ([5, 6], CONSTANTS, [7, 8], CONSTANTS):
        before = list(CONSTANTS)
        expected = function(5, list(values) if values is not CONSTANTS else CONSTANTS)
        CONSTANTS[:] = before
        assert compiled.version(5, values) == expected
        CONSTANTS[:] = before


CONSTANTS = [1, 2, 3]


def test_short_lists_that_are_read_only_and_changed_by_another_name():
    """A list that one name only reads is changed through another."""
    def function(n, a, b):
        total = 0
        for i in range(n):
            b[0] += 1
            total += a[0]
        return total

    def make():
        values = [1, 2]
        return 5, values, values

    compiled = loop_function(function)
    for _ in range(3):
        assert function(*make()) == compiled.version(*make())
        assert function(5, [1, 2], [3]) == compiled.version(5, [1, 2], [3])


def test_nan_is_found_by_identity():
    """Membership of NaN depends on the object."""
    def function(n, values, x):
        found = 0
        for i in range(n):
            found += x in values
            values.append(float(i))
        return found

    nan = float("nan")
    compiled = loop_function(function)
    for values in ([nan], [float("nan")], [1.0]):
        assert function(4, list(values), nan) == compiled.version(4, list(values), nan)


def test_items_that_are_not_assigned_remain_the_same_objects():
    """Only items that have changed are replaced."""
    def function(n, values):
        for i in range(n):
            values[2 * i] += 1.0
        return values

    compiled = loop_function(function)
    for _ in range(3):
        values = [k + 0.5 for k in range(40)]
        before = list(values)
        compiled.version(3, values)
        assert all(a is b for a, b in zip(before[5:], values[5:], strict=True))


def test_another_thread_ends_a_loop():
    """A list is read again in each part, so that a change by another thread is seen."""
    def function(stop):
        count = 0
        while not stop[0]:
            count += 1
        return count

    compiled = loop_function(function)
    for _ in range(4):
        stop = [False]
        timer = threading.Timer(0.05, stop.__setitem__, (0, True))
        timer.start()
        assert compiled.version(stop) >= 0  # it ends
        timer.join()


def test_lists_of_other_objects_are_left_to_python():
    """Texts in lists have no program."""
    def function(words, n):
        total = 0
        for i in range(n):
            total += len(words[i])
        return total

    check(function, lambda: (["a", "bc", "def"] * 9, 20))
