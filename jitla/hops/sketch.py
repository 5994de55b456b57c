"""Sketches of matrices: how many elements of every row and column are other than 0.

Knows: what operators on matrices make of such counts. Must not know: operators' names, hops.
Receives counts or the positions of nonzeros; returns sketches.

The sketch MNC of Sommer et al., MNC: Structure-Exploiting Sparsity Estimation for Matrix Expressions,
SIGMOD 2019. Other than there, counts of intermediates stay fractions, so that estimates repeat; what
has to be whole for a result to be exact is bounded beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from jitla.classes import dataclass
from jitla.hops.meta import Shape

Counts = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


@dataclass(frozen=True, slots=True, eq=False)
class Sketch:
    """Nonzeros by row and by column; `fullest_*` bound them.

    `lone_rows`: of every row, how many nonzeros are in a column without others; `lone_columns`: of
    every column, how many are in a row without others; None where that is not known. `diagonal`: all
    nonzeros are on the diagonal, and no place there is empty.
    """

    rows: Counts
    columns: Counts
    fullest_row: float
    fullest_column: float
    lone_rows: Counts | None = None
    lone_columns: Counts | None = None
    diagonal: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the matrix."""
        return len(self.rows), len(self.columns)

    @property
    def nnz(self) -> float:
        """Nonzeros of the matrix."""
        return float(self.rows.sum())

    @property
    def T(self) -> Sketch:
        """The sketch of the transposed matrix."""
        return Sketch(self.columns, self.rows, self.fullest_column, self.fullest_row,
                      self.lone_columns, self.lone_rows, self.diagonal)


# --------------------------------------------------------------------------- of matrices


def of_rows(starts: Any, columns: Any, shape: Shape) -> Sketch:
    """Sketch a matrix of compressed rows: where the entries of rows begin, and the column of each."""
    by_row = np.diff(starts)
    by_column = np.bincount(columns, minlength=shape[1])
    most = float(by_row.max(initial=0)), float(by_column.max(initial=0))
    if max(most) <= 1:
        there = columns == np.flatnonzero(by_row) if len(columns) == shape[0] == shape[1] else False
        return Sketch(_floats(by_row), _floats(by_column), *most, diagonal=bool(np.all(there)))
    alone = np.repeat(by_row == 1, by_row)
    lone_columns = np.bincount(columns[alone], minlength=shape[1])
    sums = np.zeros(len(columns) + 1, np.int64)
    np.cumsum((by_column == 1)[columns], out=sums[1:])
    lone_rows = np.diff(sums[starts])
    return Sketch(_floats(by_row), _floats(by_column), *most, _floats(lone_rows), _floats(lone_columns))


def of_total(shape: Shape, nnz: float) -> Sketch:
    """Sketch a matrix of which only the number of nonzeros is known: rows and columns are alike."""
    m, n = shape
    return Sketch(np.full(m, nnz / max(m, 1)), np.full(n, nnz / max(n, 1)), min(nnz, n), min(nnz, m))


def of_diagonal(n: int) -> Sketch:
    """Sketch a diagonal matrix without zeros on the diagonal."""
    ones = np.ones(n)
    return Sketch(ones, ones, 1.0, 1.0, diagonal=True)


def _floats(counts: Any) -> Counts:
    return np.asarray(counts, np.float64)


# --------------------------------------------------------------------------- products


def product(a: Sketch, b: Sketch, weighted: bool = False) -> Sketch:
    """Sketch the product of two matrices.

    `weighted`: long rows and columns are hit more often than others, and more often twice. The paper's
    estimate takes all that are not empty as equal.
    """
    if a.diagonal or b.diagonal:
        return b if a.diagonal else a
    m, n = a.shape[0], b.shape[1]
    fullest = min(n, a.fullest_row * b.fullest_row), min(m, a.fullest_column * b.fullest_column)
    nnz, rows, columns = _product(a, b, weighted)
    return Sketch(_scaled(rows, nnz, n), _scaled(columns, nnz, m), *fullest)


def nnz_of_product(a: Sketch, b: Sketch, weighted: bool = False) -> float:
    """Estimate the nonzeros of a product."""
    return product(a, b, weighted).nnz


def _product(a: Sketch, b: Sketch, weighted: bool) -> tuple[float, Counts, Counts]:
    """Return nonzeros, and how they are shared out to rows and columns.

    It is exact if one side has one nonzero in a row or column at most; and for rows and columns that do.
    """
    paired = float(a.columns @ b.rows)
    if not paired or a.fullest_row <= 1 or b.fullest_column <= 1:
        return paired, a.rows, b.columns
    rows, columns, left, right, sure = a.rows, b.columns, a.columns, b.rows, 0.0
    if a.lone_columns is not None and b.lone_rows is not None:
        rows, columns = np.where(rows == 1, 0.0, rows), np.where(columns == 1, 0.0, columns)
        left, right = a.columns - a.lone_columns, b.rows - b.lone_rows
        sure = float(a.lone_columns @ b.rows + left @ b.lone_rows)
    cells = _filled(rows) * _filled(columns)
    tries = _tries(left * right / cells) if cells else 0.0
    if not weighted:
        return _limited(sure - cells * float(np.expm1(-tries)), a, b), a.rows, b.columns
    by_row, by_column = _hit(rows, columns, tries)
    nnz = _limited(sure + float(by_row.sum()), a, b)
    return nnz, by_row + a.rows * (sure / a.nnz), by_column + b.columns * (sure / b.nnz)


def _limited(nnz: float, a: Sketch, b: Sketch) -> float:
    """Return `nnz`: all cells where more than half full rows and columns meet, none where empty ones do."""
    sure = float(np.count_nonzero(2 * a.rows > a.shape[1]) * np.count_nonzero(2 * b.columns > b.shape[0]))
    return min(max(nnz, sure), _filled(a.rows) * _filled(b.columns))


def _tries(shares: Counts) -> float:
    """Return how often a cell is tried, in terms of ``1 - exp(-tries)``, if terms hit these shares of all."""
    if shares.max(initial=0.0) >= 1.0:
        return np.inf
    return -float(np.log1p(-shares).sum())


_STEPS = 4.0  # classes of counts in an octave
_DEPTH = 30.0  # octaves below one nonzero; there they are all the same


def _hit(rows: Counts, columns: Counts, tries: float) -> tuple[Counts, Counts]:
    """Return of every row and column how many cells are hit, each as often as both are long.

    On average a cell that is not in an empty row or column is tried `tries` times.
    """
    high, wide = _filled(rows), _filled(columns)
    if not tries or tries == np.inf:
        whole = float(bool(tries))
        return np.minimum(rows, 1.0) * (whole * wide), np.minimum(columns, 1.0) * (whole * high)
    down, across = _classes(rows), _classes(columns)
    weight = tries * high * wide / (float(rows.sum()) * float(columns.sum()))
    hit = -np.expm1(-weight * np.outer(down.mean, across.mean))
    return (hit @ across.often)[down.of], (down.often @ hit)[across.of]


class _Classes(NamedTuple):
    """Counts of about one size: the class of each, and of every class the mean and how many are in it."""

    of: np.ndarray
    mean: Counts
    often: Counts


def _classes(counts: Counts) -> _Classes:
    place = np.log2(np.maximum(counts, 2.0**-_DEPTH)) * _STEPS + _DEPTH * _STEPS
    numbers = place.astype(np.intp)
    often = np.bincount(numbers)
    used = np.flatnonzero(often)
    of = np.zeros(len(often), np.intp)
    of[used] = np.arange(len(used))
    mean = np.bincount(numbers, counts)[used] / often[used]
    return _Classes(of[numbers], mean, _floats(often[used]))


def _filled(counts: Counts) -> float:
    """Return how many rows or columns are not empty."""
    return float(np.minimum(counts, 1.0).sum())


def _scaled(counts: Counts, total: float, most: int) -> Counts:
    """Return counts in these proportions that add up to `total`, unless rows are full."""
    before = float(counts.sum())
    return np.minimum(counts * (total / before), most) if before else counts


# --------------------------------------------------------------------------- element by element


def intersection(a: Sketch, b: Sketch) -> Sketch:
    """Sketch what is other than 0 in both matrices."""
    nnz = a.nnz * b.nnz
    if not nnz:
        return of_total(a.shape, 0.0)
    rows = a.rows * b.rows * (float(a.columns @ b.columns) / nnz)
    columns = a.columns * b.columns * (float(a.rows @ b.rows) / nnz)
    rows = np.minimum(rows, np.minimum(a.rows, b.rows))
    columns = np.minimum(columns, np.minimum(a.columns, b.columns))
    return _agreed(rows, columns, min(a.fullest_row, b.fullest_row), min(a.fullest_column, b.fullest_column))


def union(a: Sketch, b: Sketch) -> Sketch:
    """Sketch what is other than 0 in one of two matrices."""
    both = intersection(a, b)
    m, n = a.shape
    return _agreed(a.rows + b.rows - both.rows, a.columns + b.columns - both.columns,
                   min(n, a.fullest_row + b.fullest_row), min(m, a.fullest_column + b.fullest_column))


def _agreed(rows: Counts, columns: Counts, fullest_row: float, fullest_column: float) -> Sketch:
    """Return a sketch whose rows and columns have as many nonzeros: those of the rows."""
    here, there = float(rows.sum()), float(columns.sum())
    return Sketch(rows, columns * (here / there) if there else columns,
                  fullest_row, fullest_column)


# --------------------------------------------------------------------------- reorganisation


def joined(parts: Sequence[Sketch], axis: int) -> Sketch:
    """Sketch matrices below each other (axis 0) or side by side."""
    if axis:
        return joined([p.T for p in parts], 0).T
    return Sketch(
        np.concatenate([p.rows for p in parts]), np.sum([p.columns for p in parts], axis=0),
        max(p.fullest_row for p in parts), sum(p.fullest_column for p in parts))


def part(a: Sketch, rows: slice, columns: slice) -> Sketch:
    """Sketch a rectangle of a matrix: what is cut off takes its share of the other direction."""
    high, wide = a.rows[rows], a.columns[columns]
    total = max(a.nnz, 1e-300)
    there, below = float(wide.sum()) / total, float(high.sum()) / total
    return Sketch(high * there, wide * below, min(a.fullest_row, len(wide)), min(a.fullest_column, len(high)))


def reshaped(a: Sketch, shape: Shape) -> Sketch:
    """Sketch the elements in row-major order in another shape: rows are joined or cut, or anything."""
    n, (high, wide) = len(a.columns), shape
    if not prod(shape):
        return of_total(shape, 0.0)
    if wide % n == 0:
        k = wide // n
        return Sketch(a.rows.reshape(high, k).sum(1), np.tile(a.columns / k, k),
                      min(wide, k * a.fullest_row), min(high, a.fullest_column))
    if n % wide == 0:
        k = n // wide
        return Sketch(np.repeat(a.rows / k, k), a.columns.reshape(k, wide).sum(0),
                      min(wide, a.fullest_row), min(high, k * a.fullest_column))
    return of_total(shape, a.nnz)
