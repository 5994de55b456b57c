"""Bounds and estimates of the number of nonzeros, by metadata and by sketches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import log1p, prod
from typing import Any, NamedTuple

import numpy as np

from jitla.classes import dataclass
from jitla.hops.meta import Meta, Shape
from jitla.hops.node import Hop, topo
from jitla.hops.opspec import Attrs, Kind, Zeros

Bound = Callable[[tuple[Meta, ...], Shape, Attrs], int | None]


def count(x: Meta) -> int:
    """Return at most how many elements of `x` are other than 0."""
    return x.size if x.nnz is None else x.nnz


def bounded(meta: Meta, nnz: int | None) -> Meta:
    """Return `meta` with a bound, if it says anything."""
    return Meta(meta.shape, meta.dtype, nnz if nnz is not None and nnz < meta.size else None)


def of_cell(zeros: Zeros) -> Bound:
    """Return the bound of an element-wise result; a broadcast operand repeats its nonzeros."""

    def bound(metas: tuple[Meta, ...], shape: Shape, attrs: Attrs) -> int | None:
        size = prod(shape)
        repeated = [count(m) * (size // max(m.size, 1)) for m in metas]
        return min(repeated) if zeros is Zeros.ANY else sum(repeated) if zeros is Zeros.ALL else None

    return bound


def kept(metas: tuple[Meta, ...], shape: Shape, attrs: Attrs) -> int | None:
    """Bound a result that has elements of its first operand, each once at most."""
    return metas[0].nnz


def repeated(metas: tuple[Meta, ...], shape: Shape, attrs: Attrs) -> int | None:
    """Bound a result in which all elements of its operand are as often."""
    x = metas[0]
    return count(x) * (prod(shape) // x.size) if x.size else None


def joined(metas: tuple[Meta, ...], shape: Shape, attrs: Attrs) -> int | None:
    """Bound a result that has all elements of all operands."""
    return sum(map(count, metas))


def of_nothing(metas: tuple[Meta, ...], shape: Shape, attrs: Attrs) -> int | None:
    """Bound a result that is 0 if there is nothing in the operand that it takes elements of."""
    return 0 if metas[0].nnz == 0 else None


def of_factors(metas: tuple[Meta, ...], shape: Shape, attrs: Attrs) -> int | None:
    """Bound sums of products of which only the first two operands are factors."""
    return 0 if 0 in (metas[0].nnz, metas[1].nnz) else None


def of_rows(metas: tuple[Meta, ...], shape: Shape, attrs: Attrs) -> int | None:
    """Bound the product of a matrix, given by its entries, with what the last operand is.

    A row without entries is 0, and so is a column of the result where the operand's is.
    """
    data, x = metas[0], metas[-1]
    return min(shape[0], count(data)) * min(prod(shape[1:]), count(x))


def of_lines_of_entries(metas: tuple[Meta, ...], shape: Shape, attrs: Attrs) -> int | None:
    """Bound sums of vectors that lie one after the other, some of them empty."""
    return count(metas[0])


def of_lines(metas: tuple[Meta, ...], shape: Shape, attrs: Attrs) -> int | None:
    """Bound a reduction that is 0 where all that it joins is; `ddof` elements are not enough."""
    x = metas[0]
    joins = x.size // max(prod(shape), 1)
    return count(x) if joins > attrs.get("ddof", 0) else None


def of_full_lines(metas: tuple[Meta, ...], shape: Shape, attrs: Attrs) -> int | None:
    """Bound a reduction that is 0 where something that it joins is."""
    x = metas[0]
    joins = x.size // max(prod(shape), 1)
    return count(x) // joins if joins else None


def running(metas: tuple[Meta, ...], shape: Shape, attrs: Attrs) -> int | None:
    """Bound running sums along an axis: what is not 0 is in all that follow."""
    x, axis = metas[0], attrs["axis"]
    return count(x) * (x.size if axis is None or not x.ndim else x.shape[axis])


def of_product(metas: tuple[Meta, ...], shape: Shape, attrs: Attrs) -> int | None:
    """Bound a product over one axis: a row of x with nothing in it gives a row of nothing."""
    x, y = metas
    size = prod(shape)
    if not x.ndim or not y.ndim:
        return of_cell(Zeros.ANY)(metas, shape, attrs)
    rows = prod(x.shape[:-1])
    columns = prod(y.shape) // max(y.shape[-2 if y.ndim > 1 else 0], 1)
    if rows * columns == size:
        return min(rows, count(x)) * min(columns, count(y))
    high, wide = x.shape[-2] if x.ndim > 1 else 1, y.shape[-1] if y.ndim > 1 else 1
    batch = size // max(high * wide, 1)
    often_x = batch // max(prod(x.shape[:-2]), 1)
    often_y = batch // max(prod(y.shape[:-2]), 1)
    return min(count(x) * often_x * wide, count(y) * often_y * high)


def of_terms(metas: tuple[Meta, ...], shape: Shape, attrs: Attrs) -> int | None:
    """Bound sums of products that have a factor of every operand."""
    return 0 if any(m.nnz == 0 for m in metas) else None


def of_tally(metas: tuple[Meta, ...], shape: Shape, attrs: Attrs) -> int | None:
    """Bound sums by label: what is added to one place at least, or nothing."""
    return count(metas[1]) if len(metas) > 1 else metas[0].size


def of_diagonal(metas: tuple[Meta, ...], shape: Shape, attrs: Attrs) -> int | None:
    """Count the ones of an `eye`."""
    n, m = shape
    k: int = attrs["k"]
    return max(min(n, m - k) if k >= 0 else min(n + k, m), 0)


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


def of_rows_sketch(starts: Any, columns: Any, shape: Shape) -> Sketch:
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


def of_diagonal_sketch(n: int) -> Sketch:
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


def joined_sketch(parts: Sequence[Sketch], axis: int) -> Sketch:
    """Sketch matrices below each other (axis 0) or side by side."""
    if axis:
        return joined_sketch([p.T for p in parts], 0).T
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


ESTIMATORS = ("meta", "worst", "mnc", "weighted")
State = Any  # what a method knows of a hop: a number of nonzeros, or a sketch
Rule = Callable[[Hop, list[State]], "State | None"]
_MOVED = frozenset({
    "transpose", "reshape", "ravel", "broadcast_to", "expand_dims", "squeeze", "flip", "getitem", "full",
})
_PRODUCTS = frozenset({"matmul", "dot"})
_JOINED = frozenset({"concatenate", "stack"})


def estimated(
    roots: Iterable[Hop], method: str, known: Mapping[Hop, Sketch] | None = None,
) -> dict[Hop, float]:
    """Return how many elements of every hop below `roots` are other than 0, as far as can be said.

    `known` gives sketches of leaves; of the others, metas say how many nonzeros there are.
    """
    known = known or {}
    states: dict[Hop, State] = {}
    for hop in topo(roots):
        if hop in known:
            states[hop] = known[hop] if method in ("mnc", "weighted") else known[hop].nnz
        else:
            states[hop] = _METHODS[method](hop, [states[i] for i in hop.inputs])
    return {hop: total(state) for hop, state in states.items()}


def total(state: State) -> float:
    """Return the number of nonzeros that `state` says."""
    return state.nnz if isinstance(state, Sketch) else float(state)


# --------------------------------------------------------------------------- at most


def _worst(hop: Hop, given: list[State]) -> float:
    if hop.op.kind is Kind.LEAF:
        return count(hop.meta)
    metas = tuple(Meta(i.meta.shape, i.meta.dtype, min(int(n), i.meta.size))
                  for i, n in zip(hop.inputs, given, strict=True))
    return count(hop.op.meta(metas, dict(hop.attrs)))


# --------------------------------------------------------------------------- spread evenly


def _average(hop: Hop, given: list[State]) -> float:
    if hop.op.kind is Kind.LEAF or not hop.meta.size:
        return count(hop.meta)
    shares = [total(n) / max(i.meta.size, 1) for i, n in zip(hop.inputs, given, strict=True)]
    return min(_density(hop, shares) * hop.meta.size, _worst(hop, [np.ceil(total(n)) for n in given]))


def _density(hop: Hop, shares: list[float]) -> float:
    """Return the part of a result that is other than 0, from those of the operands."""
    name, zeros = hop.op.name, hop.op.zeros
    if name in _MOVED:
        return shares[0]
    if name in _PRODUCTS and all(i.meta.ndim for i in hop.inputs):
        return _hit_estimate(shares[0] * shares[1], hop.inputs[0].meta.shape[-1])
    if name in _JOINED:
        return sum(s * i.meta.size for s, i in zip(shares, hop.inputs, strict=True)) / hop.meta.size
    if name == "where":
        return shares[0] * shares[1] + (1.0 - shares[0]) * shares[2]
    if hop.op.kind is Kind.CELL:
        if zeros is Zeros.ANY:
            return prod(shares)
        return 1.0 if zeros is Zeros.NONE else 1.0 - prod(1.0 - s for s in shares)
    if len(hop.inputs) == 1 and hop.inputs[0].meta.size:
        joins = hop.inputs[0].meta.size // hop.meta.size
        if zeros is Zeros.ANY:
            return shares[0] ** joins
        return _hit_estimate(shares[0], joins) if zeros is Zeros.ALL else 1.0
    return 1.0


def _hit_estimate(share: float, times: int) -> float:
    """Return how likely one of so many tries with this chance succeeds."""
    return 1.0 if share >= 1.0 else -float(np.expm1(times * log1p(-share)))


# --------------------------------------------------------------------------- by sketches


def _weighted(hop: Hop, given: list[State]) -> State:
    return _sketched(hop, given, _SKETCHES | dict.fromkeys(_PRODUCTS, _of_weighted))


def _sketched(hop: Hop, given: list[State], rules: Mapping[str, Rule] | None = None) -> State:
    """Return the sketch of a matrix; a number of what is none."""
    found = None
    if hop.meta.ndim == 2 or any(isinstance(s, Sketch) for s in given):
        rule = (rules or _SKETCHES).get(hop.op.name) or _BY_KIND.get(hop.op.kind)
        found = rule(hop, given) if rule is not None and all(hop.meta.shape) else None
    if found is None:
        found = _average(hop, given)
    if hop.meta.ndim == 2 and not isinstance(found, Sketch):
        return of_total(hop.meta.shape, found)
    return found


def _of_matmul(hop: Hop, given: list[State], weighted: bool = False) -> State | None:
    a, b = given
    if not isinstance(a, Sketch):
        return None
    if isinstance(b, Sketch):
        return product(a, b, weighted)
    if hop.inputs[1].meta.ndim == 1:
        return nnz_of_product(a, of_total((a.shape[1], 1), b), weighted)
    return None


def _of_weighted(hop: Hop, given: list[State]) -> State | None:
    return _of_matmul(hop, given, True)


def _of_transpose(hop: Hop, given: list[State]) -> State | None:
    return given[0].T if hop.attr("axes") == (1, 0) else given[0]


def _of_joined(hop: Hop, given: list[State]) -> State | None:
    return joined_sketch(given, hop.attr("axis")) if hop.meta.ndim == 2 else None


def _of_reshape(hop: Hop, given: list[State]) -> State | None:
    a = given[0]
    return reshaped(a, hop.meta.shape) if isinstance(a, Sketch) and hop.meta.ndim == 2 else None


def _of_getitem(hop: Hop, given: list[State]) -> State | None:
    """Know slices of matrices, in order."""
    kinds = [item[0] for item in hop.attr("index")]
    if not isinstance(given[0], Sketch) or set(kinds) != {"s"} or hop.meta.ndim != 2:
        return None
    rows, columns = ([slice(*item[1:]) for item in hop.attr("index")] + [slice(None)])[:2]
    return part(given[0], rows, columns)


def _of_eye(hop: Hop, given: list[State]) -> State | None:
    n, m = hop.meta.shape
    return of_diagonal_sketch(n) if n == m and not hop.attr("k") else None


def _of_cell(hop: Hop, given: list[State]) -> State | None:
    zeros = hop.op.zeros
    if zeros is Zeros.NONE or hop.op.name == "where":
        return None
    sketches = [_spread(hop, i, s) for i, s in zip(hop.inputs, given, strict=True)]
    found = sketches[0]
    for other in sketches[1:]:
        found = intersection(found, other) if zeros is Zeros.ANY else union(found, other)
    return found


def _spread(hop: Hop, operand: Hop, state: State) -> Sketch:
    """Return the sketch of an operand, repeated in the shape of the result."""
    if isinstance(state, Sketch) and operand.meta.shape == hop.meta.shape:
        return state
    return of_total(hop.meta.shape, total(state) / max(operand.meta.size, 1) * hop.meta.size)


def _of_sums(hop: Hop, given: list[State]) -> State | None:
    """Know which rows or columns are empty."""
    a, axis = given[0], hop.attr("axis")
    if hop.op.zeros is not Zeros.ALL or len(axis) != 1 or hop.meta.ndim != 1:
        return None
    return float(np.minimum(a.rows if axis[0] else a.columns, 1.0).sum())


_SKETCHES: dict[str, Rule] = {
    "matmul": _of_matmul, "dot": _of_matmul, "transpose": _of_transpose, "concatenate": _of_joined,
    "reshape": _of_reshape, "getitem": _of_getitem, "eye": _of_eye,
}
_BY_KIND = {Kind.CELL: _of_cell, Kind.AGG: _of_sums}
_METHODS: dict[str, Callable[[Hop, list[State]], State]] = {
    "worst": _worst, "meta": _average, "mnc": _sketched, "weighted": _weighted,
}
