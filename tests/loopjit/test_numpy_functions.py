"""Functions of NumPy in compiled loops: sorting, searching, LAPACK, and those that are written in Python."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from jitla.loopjit import calls
from tests.loopjit.test_loop_coverage import compare, compiled


def loop(*statements: str) -> Any:
    """Return a function with statements in a loop over the rows `x` of a table."""
    body = "".join(f"        {statement}\n" for statement in statements)
    text = ("def function(table, m, s, y, c, w, z, out):\n    for i in range(len(table)):\n"
            f"        x = table[i]\n{body}    return out, m, table, c\n")
    name = f"<numpy {statements}>"
    linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name
    space: dict[str, Any] = {"np": np}
    exec(compile(text, name, "exec"), space)
    return space["function"]


def sums(*expressions: str) -> Any:
    """Return a function that adds the results of expressions."""
    return loop(*(f"out[i] += {expression}" for expression in expressions))


def operands(change: Callable[[Any], None] = lambda table: None) -> Callable[[], tuple[Any, ...]]:
    """Return a function that makes the operands; `change` may put other elements into the table."""
    def make() -> tuple[Any, ...]:
        r = np.random.default_rng(3)
        m = r.random((6, 6)) + np.eye(6)
        table = r.random((40, 6))
        change(table)
        return (table, m, m @ m.T, r.random(6), r.integers(0, 5, 6), np.sort(r.random(6)),
                r.random(6) + 1j * r.random(6), np.zeros(40))

    return make


GROUPS = [
    ("np.unique(c).sum()", "np.unique(x).sum()", "len(np.unique(c))"),
    ("np.median(x)", "np.median(m)", "np.median(x[:5])", "np.median(c)"),
    ("np.percentile(x, 30)", "np.quantile(x, 0.3)", "np.quantile(x, 1)", "np.percentile(c, 0)"),
    ("np.linalg.solve(m, x)[0]", "np.linalg.solve(m, s)[0, 1]", "np.linalg.solve(m.T, x[::-1])[2]"),
    ("np.linalg.inv(m)[0, 0]", "np.linalg.det(m)", "np.linalg.cholesky(s)[1, 0]"),
    ("np.linalg.eigh(s)[0][0]", "np.linalg.eigvalsh(s)[0]", "np.linalg.eigh(s)[1][0, 1]"),
    ("np.linalg.norm(x)", "np.linalg.norm(m, axis=1)[0]", "np.linalg.norm(m)", "np.linalg.norm(c)"),
    ("np.linalg.norm(x, 1)", "np.linalg.norm(x, np.inf)", "np.linalg.norm(m, axis=0, keepdims=True)[0, 1]",
     "np.linalg.norm(x - y, ord=2)", "np.linalg.norm(x, -np.inf)"),
    ("np.cross(x[:3], y[:3])[0]", "np.cross(m[:, :3], y[:3])[0, 0]", "np.cross(m[:, :3], s[:, 3:]).sum()"),
    ("np.clip(x, 0.2, None).sum()", "np.clip(x, None, 0.5).sum()", "np.clip(x[0], 0.2, 0.6)"),
    ("np.argsort(x)[1]", "x.argsort()[2]", "np.argsort(-x)[0]", "np.argsort(c, kind='stable')[1]"),
    ("np.sort(x)[1]", "np.sort(m, axis=0)[0, 0]", "np.sort(c)[2]", "np.sort(m)[:, 0].sum()",
     "np.argsort(m, axis=0)[0, 1]"),
    ("np.searchsorted(w, x[0])", "np.searchsorted(w, x).sum()", "w.searchsorted(x[0], side='right')",
     "np.searchsorted(c, 2)", "np.searchsorted(c, x[1])", "np.searchsorted(x, y).sum()"),
    ("np.digitize(x, w).sum()", "np.digitize(x[0], w, right=True)"),
    ("np.interp(x[0], w, y)", "np.interp(x, w, y).sum()", "np.interp(3, w, y)", "np.interp(x, c, y).sum()"),
    ("np.diff(x, n=2).sum()", "np.roll(m, 7)[0, 0]", "np.gradient(x)[0]", "np.gradient(x, 0.1).sum()"),
    ("np.tile(x, 2)[7]", "np.tile(c, (2, 3))[1, 8]", "np.meshgrid(x, c)[1][2, 0]",
     "np.meshgrid(x, y, indexing='ij')[0][3, 2]"),
    ("np.append(x, 3)[-1]", "np.append(m, x)[-2]", "np.insert(x, 2, 5.0)[2]", "np.delete(c, -2)[4]",
     "np.column_stack((x, m))[0, 1]"),
    ("np.trace(m)", "m.trace()", "np.diag(m)[1]", "np.diag(x)[1].sum()", "m.diagonal().sum()"),
    ("np.cumsum(m, axis=0)[-1, 0]", "m.cumsum(axis=1)[0, -1]", "np.cumsum(m)[-1]", "np.cumprod(c)[-1]",
     "np.add.accumulate(x)[3]", "np.maximum.accumulate(x)[-1]"),
    ("np.argmax(m, axis=1)[0]", "np.argmax(m)", "m.argmin(axis=0)[2]", "np.argmin(m > 0.5)"),
    ("np.ptp(x)", "np.nansum(x)", "np.nanmean(x)", "np.average(x)", "np.average(x, weights=y)"),
    ("np.polyval(x, 2.0)", "np.polyval(x, y).sum()", "np.trapezoid(x, w)", "np.trapezoid(x, dx=0.5)"),
    ("np.inner(x, y)", "np.vdot(x, y[::-1])", "np.linalg.matrix_power(m, 2)[0, 0]"),
    ("np.isclose(x, y, atol=0.1).sum()", "float(np.allclose(x, x))", "float(np.array_equal(x, y))",
     "np.isclose(x, 0.5, 0.3).sum()", "np.isclose(c, c).sum()"),
    ("x.round(1).sum()", "round(x[0], 3)", "x.take(c).sum()", "x.round().sum()", "x.take([1, -2])[0]"),
    ("np.around(x, 2).sum()", "np.round(x[0], 2)", "np.round(x).sum()"),
    ("(z.real ** 2 + z.imag ** 2).sum()", "(z.conj() * z).real.sum()", "np.angle(z).sum()", "z.real[2]"),
    ("np.flip(m)[0, 1]", "np.fliplr(m)[0, 1]", "np.flip(m, axis=0)[1, 0]", "np.take(x, [1, 2]).sum()",
     "np.take(x, (3,))[0]", "np.full_like(x, 2).sum()"),
    ("np.convolve(x, y)[2]", "np.convolve(y[:3], x, 'same')[1]", "np.correlate(x, w[:2])[1]",
     "np.convolve(table[:, 0], table[:13, 1], mode='valid').sum()", "np.convolve(x[::-1], w[::2]).sum()"),
    ("np.linalg.svd(m)[1][0]", "np.linalg.svd(m[:3])[0][0, 1]", "np.linalg.pinv(m[:, :4])[0, 1]",
     "np.linalg.svd(m, compute_uv=False)[2]"),
    ("np.sum(x[0])", "np.mean(2.5)", "np.max(x[1])", "np.linalg.slogdet(m)[1]"),
]


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group[0])
def test_functions(group: tuple[str, ...]) -> None:
    """All of them are compiled, and their results are NumPy's."""
    compiled(sums(*group), operands())


CHANGES = [
    "np.add.at(out, c, x[c])", "np.subtract.at(m, (c, c), x)", "np.maximum.at(out, c + i % 30, x[0])",
    "np.add.at(c, c % 6, 1)", "np.fill_diagonal(m, x[0])", "np.fill_diagonal(m[1:], 2)", "x.sort()",
    "m.sort(axis=0)", "table[:, 0].sort()", "x[::-1].sort()"]


@pytest.mark.parametrize("statement", CHANGES)
def test_functions_that_change_their_argument(statement: str) -> None:
    """Elements that are selected twice are changed twice; views are changed in place."""
    compiled(loop(statement), operands())


def not_a_number(table: Any) -> None:
    """Put NaN, infinities, zeros of both signs and equal elements into a table."""
    table[::3, 1] = np.nan
    table[1::4, 2] = np.inf
    table[::2, 3] = 0.0
    table[::2, 4] = -0.0
    table[5:9] = table[5, 0]


@pytest.mark.parametrize("group", [group for group in GROUPS if any(word in group[0] for word in (
    "unique", "median", "percentile", "sort", "searchsorted", "interp", "clip", "norm", "isclose", "argmax",
    "cumsum", "around", "digitize", "solve", "ptp"))], ids=lambda group: group[0])
@pytest.mark.filterwarnings("ignore")
def test_elements_that_are_no_numbers(group: tuple[str, ...]) -> None:
    """Orders of NaN, signs of zeros, and warnings are those of NumPy."""
    for expression in group:
        compare(sums(expression), operands(not_a_number))


def test_views_of_a_diagonal() -> None:
    """The diagonal is a view that is read only; so are the parts of complex numbers."""
    compiled(loop("d = np.diag(m)", "m[0, 0] += 1", "out[i] = d[0]"), operands())
    compare(loop("d = np.diag(m)", "d[0] = 1"), operands())
    compare(loop("q = z.real", "z[0] = 1j", "out[i] = q[0]"), operands())
    compare(loop("d = np.diag(m.T)", "m[0, 0] += 1", "out[i] = d[0]"), operands())


@pytest.mark.filterwarnings("ignore")
def test_matrices_that_lapack_cannot_do() -> None:
    """Python raises for singular and other matrices, also where flags are ignored."""
    for statement in ("out[i] = np.linalg.solve(m * 0, x)[0]", "out[i] = np.linalg.inv(m * 0)[0, 0]",
                      "out[i] = np.linalg.cholesky(-s)[0, 0]", "out[i] = np.linalg.det(m * 0)",
                      "out[i] = np.linalg.solve(m, x[:4])[0]", "out[i] = np.linalg.inv(m[:3])[0, 0]"):
        compare(loop(statement), operands())
        with np.errstate(all="ignore"):
            compare(loop(statement), operands())


def test_precision_of_lapack() -> None:
    """Single precision is computed in double precision, and integers are converted."""
    for statement in ("out[i] = np.linalg.solve(m.astype(np.float32), x.astype(np.float32))[0]",
                      "out[i] = np.linalg.inv(m.astype(np.float32))[0, 1]",
                      "out[i] = np.linalg.solve((m * 9).astype(np.int64), c)[0]"):
        compiled(loop(statement), operands())
    compiled(loop("b = np.linalg.solve(m, s)", "out[i] = b[0, 1]", "m[:] = b * 0.1 + np.eye(6)"), operands())


def test_long_vectors() -> None:
    """Vectors that are sorted in other ways than short ones."""
    def function(a: Any, keys: Any) -> Any:
        total = 0.0
        for i in range(len(a)):
            total += np.sort(a[i])[i] + np.argsort(a[i])[i] + np.median(a[i]) + np.interp(
                a[i], keys, keys * 2).sum() + np.unique(keys[i:]).sum() + np.searchsorted(keys, a[i]).sum()
        return total

    for dtype in ("f8", "i2"):
        compare(function, lambda dtype=dtype: (
            (np.random.default_rng(1).random((20, 300)) * 200).astype(dtype), np.linspace(0, 200, 77)))


def test_each_function_is_lowered_by_one_table():
    functions = [function for table in calls._TABLES for function in table]
    assert len(functions) == len(set(functions))
