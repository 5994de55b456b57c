"""Fusion of statements over arrays in compiled loops: temporaries that vanish, dependences that forbid it."""

from __future__ import annotations

from jitla.loopir import For, StoreElement, program_nodes
from jitla.loopjit import Loops
from jitla.loopjit.loop_compiler import lower_specialisation
from jitla.loopjit.loop_sites import State
from tests.loopjit.test_loop_programs import check, floats


def program_of(function, *args):
    """Return the program that the first loop of a function is lowered to."""
    programs = []

    def request(site, specialisation, values, source, groups):
        specialisation.state = State.REFUSED
        programs.append(lower_specialisation(site, values, source, groups)[0].program)

    made = Loops(request).version(function)
    for site in made.entries:
        site.hot_seconds = 0
    made.version(*args)
    return programs[0]


def counts(function, *args):
    """Return the numbers of loops over elements, and of stores, of a program."""
    nodes = program_nodes(program_of(function, *args).body)
    return (sum(isinstance(node, For) and node.independent for node in nodes),
            sum(isinstance(node, StoreElement) for node in nodes))


def chain(x, out):
    for i in range(len(x)):
        a = x[i] * 2.0
        b = a + 1.0
        c = b * a
        out[i] = c - x[i]
    return out


def test_temporaries_that_are_read_once_are_not_stored():
    args = floats(5, 7), floats(5, 7, seed=1)
    assert counts(chain, *args) == (1, 1)
    check(chain, lambda: (floats(5, 7), floats(5, 7, seed=1)), lambda: (floats(5, 0), floats(5, 0)),
          lambda: (floats(5, 1), floats(5, 1)), lambda: (floats(5, 6).T[:, ::-1], floats(6, 5)))


def kept(x, out):
    for i in range(len(x)):
        a = x[i] * 2.0
        out[i] = a + 1.0
    return a, out


def used_by_a_sum(x, out):
    total = 0.0
    for i in range(len(x)):
        a = x[i] * 2.0
        out[i] = a + 1.0
        total += a.sum()
    return total, out


def test_temporaries_that_are_read_later_are_stored():
    assert counts(kept, floats(5, 7), floats(5, 7)) == (2, 3)  # one moves what lives on
    assert counts(used_by_a_sum, floats(5, 7), floats(5, 7))[1] == 2
    for function in (kept, used_by_a_sum):
        check(function, lambda: (floats(5, 7), floats(5, 7)))


def neighbours(a, b, n):
    for i in range(n):
        b[1:-1] = a[:-2] + a[2:]
        a[1:-1] = b[:-2] + b[2:]
    return a, b


def read_before(a, b, n):
    for i in range(n):
        b[1:] = a[:-1] * 2
        a[1:] = b[1:] + 1
    return a, b


def test_elements_of_other_iterations_are_not_fused():
    assert counts(neighbours, floats(9), floats(9), 3)[0] == 2
    assert counts(read_before, floats(9), floats(9), 3)[0] == 2
    for function in (neighbours, read_before):
        check(function, lambda: (floats(30), floats(30, seed=1), 4))


def columns(m, q, n):
    for j in range(1, n):
        m[:, j] = m[:, j - 1] * 0.5 + q
        q[:] = m[:, j] - m[:, j - 1]
    return m, q


def other_columns(m, q, k, n):
    for j in range(n):
        m[:, j] = m[:, k] * 0.5 + q
        q[:] = m[:, k] + m[:, j]
    return m, q


def test_columns():
    assert counts(columns, floats(8, 6), floats(8), 6)[0] == 1
    check(columns, lambda: (floats(8, 6), floats(8), 6), lambda: (floats(8, 6)[::-1, ::-1], floats(8), 6))
    check(other_columns, lambda: (floats(8, 6), floats(8), 2, 6), lambda: (floats(8, 6), floats(8), -1, 6))


def rebound(x, out):
    a = x[0]
    for i in range(len(x)):
        b = a + x[i]
        a = x[i] * 2
        c = b * a
        a = a + c
        out[i] = a - b
    return a, out


def by_path(x, out, n):
    for i in range(n):
        a = x[i] + 1
        if i % 2:
            a = x[i - 1] * 3
        out[i] = a * 2
        b = out[i] - a
        out[i] = b + x[i]
    return out, b


def of_other_sizes(x, y, n):
    for i in range(n):
        a = x[i] + 1
        y[:i] = a[:i] * 2
        b = a[:i] + y[:i]
        y[:i] = b * b
    return y


def test_variables_and_sizes_that_change():
    check(rebound, lambda: (floats(6, 9), floats(6, 9)))
    check(by_path, lambda: (floats(6, 9), floats(6, 9), 6))
    check(of_other_sizes, lambda: (floats(6, 9), floats(9), 6))


def overlapping(a, b, n):
    for i in range(n):
        t = a * 2
        b[:] = t + a
        a += b
        b -= a
    return a, b


def test_arrays_that_share_memory():
    def shifted(offset):
        def make():
            data = floats(40)
            return data[:20], data[offset:offset + 20], 3
        return make

    check(overlapping, shifted(20), shifted(1))
    check(overlapping, shifted(1))
    check(overlapping, shifted(0))


def warned(x, y):
    for i in range(len(x)):
        a = 1.0 / x[i]
        b = a - a
        y[i] = b + 1.0
    return y


def test_warnings_of_what_is_not_stored():
    def make():
        x = floats(6, 9) + 10
        x[3, 8] = 0.0
        return x, floats(6, 9)

    check(warned, make)
    check(warned, lambda: (floats(6, 9) + 10, floats(6, 9)))


