"""Functions of arrays in compiled loops that NumPy computes by its own loops over rows."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.loopjit.test_loop_coverage import compare, compiled


def loop_over_rows(expression: str) -> Callable[..., Any]:
    """Return a function that stores an expression of the row `x`, the vector `y` and the counter `i`."""
    text = ("def function(table, out, y):\n    for i in range(len(table)):\n        x = table[i]\n"
            f"        out[i] = {expression}\n    return out\n")
    name = f"<rows {expression}>"
    linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name
    space: dict[str, Any] = {"np": np}
    exec(compile(text, name, "exec"), space)
    function: Callable[..., Any] = space["function"]
    return function


def table(dtype: str, *shape: int) -> Callable[[], tuple[Any, ...]]:
    """Return a function that makes a table of positive numbers, an array of its shape, and a row."""
    def make() -> tuple[Any, ...]:
        x = (np.random.default_rng(3).random((30, *shape)) * 9 + 0.2).astype(dtype)
        if x.dtype.kind == "c":
            x = x + 1j * x[::-1]
        return x, np.zeros_like(x), np.random.default_rng(4).random(shape)

    return make


POWERS = ("x ** 2", "x ** 2.0", "x ** 3", "x ** -1", "x ** -1.5", "x ** 0.5", "x ** 0", "x ** 1", "x ** True")


@pytest.mark.parametrize("dtype", ["f8", "f4", "c16", "c8"])
@pytest.mark.parametrize("expression", POWERS)
def test_constant_powers(dtype: str, expression: str) -> None:
    """NumPy has functions of their own for some exponents, depending on their types."""
    compiled(loop_over_rows(expression), table(dtype, 23))


@pytest.mark.parametrize("expression", [
    "x ** y", "y ** x", "x ** (y * 0 + 2)", "np.power(x, 2)", "np.power(x, -1.5)", "2.0 ** x",
    "np.power(x[:1], y[:1] * 0 + 2)", "x[:1] ** (y * 0 + 0.5)", "x ** (y[3] + 1)", "np.float64(2) ** y"])
def test_powers(expression: str) -> None:
    """Arrays of exponents, also of one element, and exponents that are variables."""
    compiled(loop_over_rows(expression), table("f8", 23))


@pytest.mark.parametrize("shape", [(4, 5), (5, 1), (1, 5), (2, 3, 4)])
@pytest.mark.parametrize("expression", ["x ** (y * 0 + 2)", "x ** (y[0] * 0 + 2)", "np.exp(x) + np.sin(y)"])
def test_rows_of_matrices(shape: tuple[int, ...], expression: str) -> None:
    """Rows of one element, and arrays whose axes are in another order in memory."""
    compare(loop_over_rows(expression), table("f8", *shape))
    compare(loop_over_rows(expression), lambda: tuple(
        np.asfortranarray(x) for x in table("f8", *shape)()))


def test_powers_of_integers() -> None:
    """Integers wrap; negative exponents raise."""
    for expression in ("x ** 2", "x ** 3", "x ** 2.0", "x ** i"):
        compare(loop_over_rows(expression), table("i8", 23))
    compare(loop_over_rows("x ** -1"), table("i8", 23))


@pytest.mark.parametrize(("function", "dtype"), [
    *((name, "f8") for name in ("exp", "log", "sin", "tanh", "arctan", "cbrt", "log1p")),
    *((name, "f4") for name in ("exp", "cos", "log"))])
def test_functions_over_rows(function: str, dtype: str) -> None:
    """Rows that are contiguous, reversed, have gaps, or are expressions; results that are used again."""
    def f(argument: str) -> str:
        return f"np.{function}({argument})"

    compiled(loop_over_rows(f"{f('x')} + {f('x[::-1]')} - {f('80 - x * x * 0.9')}"), table(dtype, 23))
    compiled(loop_over_rows(f"{f(f('x * 0.1 + 1') + ' + 1')} * {f('x[::2]')}.sum()"), table(dtype, 23))
    compiled(loop_over_rows(f"({f('x')} > 1).any() + {f('x[3:3]')}.sum()"), table(dtype, 23))


def test_results_in_the_order_of_operands() -> None:
    """A result that a variable refers to has the axes of its operands in memory."""
    def function(a: Any, n: int) -> Any:
        b = a
        for _ in range(n):
            b = np.exp(a)
        return b.strides, b

    for a in (np.random.default_rng(1).random((4, 5)), np.random.default_rng(1).random((4, 5)).T):
        compare(function, lambda a=a: (a, 20))


def test_operands_that_are_overwritten() -> None:
    """A row is computed before its result is stored in the same memory."""
    def function(a: Any) -> Any:
        for _ in range(20):
            a[1:] = np.sin(a[:-1]) * 0.9
            a[:] = np.exp(-a)
            np.cos(a[::-1], out=a)
        return a

    compiled(function, lambda: (np.linspace(0, 1, 40),))


def test_powers_of_single_precision() -> None:
    """Powers of single numbers of float32 are those of the C library in that precision."""
    def function(x: Any, e: Any) -> Any:
        s = np.float32(0)
        for i in range(len(x)):
            s += x[i] ** 2 + x[i] ** 1.5 + x[i] ** -1 + 2 ** x[i] + x[i] ** 0.5 + x[i] ** x[-i] + x[i] ** e
        return s

    for e in (3, -2.5, np.float32(2.2), np.float64(1.7), np.int32(3), True):
        compare(function, lambda e=e: ((np.random.default_rng(3).random(200) * 9).astype("f4"), e))
    compiled(function, lambda: ((np.random.default_rng(3).random(200) * 9 + 0.1).astype("f4"), 2))
