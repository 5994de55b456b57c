"""Bounds and estimates of the number of nonzeros, by metadata and by sketches.

Bounds are functions ``(metas, shape, attrs) -> int | None`` of op-table entries: an upper bound on the
nonzeros of the result, None if there is none. Sketches count nonzeros by row and column, as in the MNC
estimator (Sommer et al., "MNC: Structure-Exploiting Sparsity Estimation for Matrix Expressions", 2019).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import log1p, prod
from typing import Any, NamedTuple

import numpy as np

from jitla.classes import dataclass
from jitla.hops.node import (
    Attrs,
    Hop,
    Kind,
    Meta,
    Shape,
    Zeros,
    topo,
)

Bound = Callable[[tuple[Meta, ...], Shape, Attrs], int | None]


def max_nnz(x: Meta) -> int:
    """Return an upper bound on the nonzeros of `x`."""
    return x.size if x.nnz is None else x.nnz


def with_nnz_bound(meta: Meta, nnz: int | None) -> Meta:
    """Return `meta` with the bound `nnz` if it is below the size."""
    return Meta(meta.shape, meta.dtype, nnz if nnz is not None and nnz < meta.size else None)


def cell_bound(zeros: Zeros) -> Bound:
    """Return the bound of an element-wise result; a broadcast operand repeats its nonzeros."""

    def bound(metas: tuple[Meta, ...], shape: Shape, attrs: Attrs) -> int | None:
        size = prod(shape)
        repeated = [max_nnz(m) * (size // max(m.size, 1)) for m in metas]
        return min(repeated) if zeros is Zeros.ANY else sum(repeated) if zeros is Zeros.ALL else None

    return bound


def subset_bound(metas: tuple[Meta, ...], shape: Shape, attrs: Attrs) -> int | None:
    """Bound a result that holds each element of its first operand at most once."""
    return metas[0].nnz


def broadcast_bound(metas: tuple[Meta, ...], shape: Shape, attrs: Attrs) -> int | None:
    """Bound a result that repeats every element of its operand equally often."""
    x = metas[0]
    return max_nnz(x) * (prod(shape) // x.size) if x.size else None


def concatenation_bound(metas: tuple[Meta, ...], shape: Shape, attrs: Attrs) -> int | None:
    """Bound a result that holds all elements of all operands."""
    return sum(map(max_nnz, metas))


def gather_bound(metas: tuple[Meta, ...], shape: Shape, attrs: Attrs) -> int | None:
    """Bound a gather from the first operand: zero if that is all zeros."""
    return 0 if metas[0].nnz == 0 else None


def sampled_product_bound(metas: tuple[Meta, ...], shape: Shape, attrs: Attrs) -> int | None:
    """Bound sums of products whose factors are the first two operands."""
    return 0 if 0 in (metas[0].nnz, metas[1].nnz) else None


def csr_product_bound(metas: tuple[Meta, ...], shape: Shape, attrs: Attrs) -> int | None:
    """Bound the product of a CSR matrix, given by its entries, with the last operand.

    A row without entries gives a zero row, and a zero column of the operand a zero column.
    """
    data, x = metas[0], metas[-1]
    return min(shape[0], max_nnz(data)) * min(prod(shape[1:]), max_nnz(x))


def csr_row_sums_bound(metas: tuple[Meta, ...], shape: Shape, attrs: Attrs) -> int | None:
    """Bound the row sums of a CSR matrix, whose rows may be empty."""
    return max_nnz(metas[0])


def sum_bound(metas: tuple[Meta, ...], shape: Shape, attrs: Attrs) -> int | None:
    """Bound a reduction that is zero if all reduced elements are; not if only `ddof` or fewer are reduced."""
    x = metas[0]
    reduced = x.size // max(prod(shape), 1)
    return max_nnz(x) if reduced > attrs.get("ddof", 0) else None


def product_bound(metas: tuple[Meta, ...], shape: Shape, attrs: Attrs) -> int | None:
    """Bound a reduction that is zero if any reduced element is."""
    x = metas[0]
    reduced = x.size // max(prod(shape), 1)
    return max_nnz(x) // reduced if reduced else None


def scan_bound(metas: tuple[Meta, ...], shape: Shape, attrs: Attrs) -> int | None:
    """Bound a running sum along an axis: a nonzero affects all elements after it."""
    x, axis = metas[0], attrs["axis"]
    return max_nnz(x) * (x.size if axis is None or not x.ndim else x.shape[axis])


def matmul_bound(metas: tuple[Meta, ...], shape: Shape, attrs: Attrs) -> int | None:
    """Bound a product over one axis: a zero row of x gives a zero row, a zero column of y a zero column."""
    x, y = metas
    size = prod(shape)
    if not x.ndim or not y.ndim:
        return cell_bound(Zeros.ANY)(metas, shape, attrs)
    rows = prod(x.shape[:-1])
    columns = prod(y.shape) // max(y.shape[-2 if y.ndim > 1 else 0], 1)
    if rows * columns == size:
        return min(rows, max_nnz(x)) * min(columns, max_nnz(y))
    rows_per_batch, columns_per_batch = x.shape[-2] if x.ndim > 1 else 1, y.shape[-1] if y.ndim > 1 else 1
    batch = size // max(rows_per_batch * columns_per_batch, 1)
    repeats_x = batch // max(prod(x.shape[:-2]), 1)
    repeats_y = batch // max(prod(y.shape[:-2]), 1)
    return min(max_nnz(x) * repeats_x * columns_per_batch, max_nnz(y) * repeats_y * rows_per_batch)


def einsum_bound(metas: tuple[Meta, ...], shape: Shape, attrs: Attrs) -> int | None:
    """Bound sums of products with a factor from every operand."""
    return 0 if any(m.nnz == 0 for m in metas) else None


def bincount_bound(metas: tuple[Meta, ...], shape: Shape, attrs: Attrs) -> int | None:
    """Bound sums by label: each weight is added to one element."""
    return max_nnz(metas[1]) if len(metas) > 1 else metas[0].size


def eye_bound(metas: tuple[Meta, ...], shape: Shape, attrs: Attrs) -> int | None:
    """Return the number of ones of an `eye`."""
    n, m = shape
    k: int = attrs["k"]
    return max(min(n, m - k) if k >= 0 else min(n + k, m), 0)


Counts = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


@dataclass(frozen=True, slots=True, eq=False)
class Sketch:
    """Counts of nonzeros by row and by column of a matrix; `fullest_*` are bounds on their maxima.

    `lone_rows`: for every row, the number of its nonzeros that are the only ones in their column;
    `lone_columns`: for every column, the number that are the only ones in their row; None if unknown.
    `diagonal`: the matrix is diagonal, without zeros on the diagonal.
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
        """The shape of the matrix."""
        return len(self.rows), len(self.columns)

    @property
    def nnz(self) -> float:
        """The number of nonzeros of the matrix."""
        return float(self.rows.sum())

    @property
    def T(self) -> Sketch:
        """The sketch of the transposed matrix."""
        return Sketch(self.columns, self.rows, self.fullest_column, self.fullest_row,
                      self.lone_columns, self.lone_rows, self.diagonal)


# --------------------------------------------------------------------------- of matrices


def csr_sketch(starts: Any, columns: Any, shape: Shape) -> Sketch:
    """Sketch a CSR matrix, given by its row starts and column indices."""
    by_row = np.diff(starts)
    by_column = np.bincount(columns, minlength=shape[1])
    fullest = float(by_row.max(initial=0)), float(by_column.max(initial=0))
    if max(fullest) <= 1:
        on_diagonal = columns == np.flatnonzero(by_row) if len(columns) == shape[0] == shape[1] else False
        return Sketch(_as_counts(by_row), _as_counts(by_column), *fullest, diagonal=bool(np.all(on_diagonal)))
    alone = np.repeat(by_row == 1, by_row)
    lone_columns = np.bincount(columns[alone], minlength=shape[1])
    sums = np.zeros(len(columns) + 1, np.int64)
    np.cumsum((by_column == 1)[columns], out=sums[1:])
    lone_rows = np.diff(sums[starts])
    return Sketch(_as_counts(by_row), _as_counts(by_column), *fullest, _as_counts(lone_rows),
                  _as_counts(lone_columns))


def uniform_sketch(shape: Shape, nnz: float) -> Sketch:
    """Sketch a matrix with `nnz` nonzeros spread evenly over rows and columns."""
    m, n = shape
    return Sketch(np.full(m, nnz / max(m, 1)), np.full(n, nnz / max(n, 1)), min(nnz, n), min(nnz, m))


def diagonal_sketch(n: int) -> Sketch:
    """Sketch a diagonal matrix without zeros on the diagonal."""
    ones = np.ones(n)
    return Sketch(ones, ones, 1.0, 1.0, diagonal=True)


def _as_counts(counts: Any) -> Counts:
    return np.asarray(counts, np.float64)


# --------------------------------------------------------------------------- products


def product_sketch(a: Sketch, b: Sketch, weighted: bool = False) -> Sketch:
    """Sketch the product of two matrices.

    `weighted`: longer rows and columns collide more often. The paper's estimate takes all that are not empty
    as equally likely.
    """
    if a.diagonal or b.diagonal:
        return b if a.diagonal else a
    m, n = a.shape[0], b.shape[1]
    fullest = min(n, a.fullest_row * b.fullest_row), min(m, a.fullest_column * b.fullest_column)
    nnz, rows, columns = _product_counts(a, b, weighted)
    return Sketch(_scale_to_total(rows, nnz, n), _scale_to_total(columns, nnz, m), *fullest)


def nnz_of_product(a: Sketch, b: Sketch, weighted: bool = False) -> float:
    """Estimate the nonzeros of a product."""
    return product_sketch(a, b, weighted).nnz


def _product_counts(a: Sketch, b: Sketch, weighted: bool) -> tuple[float, Counts, Counts]:
    """Return the estimated nonzeros of a product, and the proportions of its rows and columns.

    Exact if the rows of `a` or the columns of `b` have at most one nonzero; entries that are alone in their
    row or column are counted exactly, too.
    """
    paired = float(a.columns @ b.rows)
    if not paired or a.fullest_row <= 1 or b.fullest_column <= 1:
        return paired, a.rows, b.columns
    rows, columns, left, right, certain = a.rows, b.columns, a.columns, b.rows, 0.0
    if a.lone_columns is not None and b.lone_rows is not None:
        rows, columns = np.where(rows == 1, 0.0, rows), np.where(columns == 1, 0.0, columns)
        left, right = a.columns - a.lone_columns, b.rows - b.lone_rows
        certain = float(a.lone_columns @ b.rows + left @ b.lone_rows)
    cells = _nonempty_count(rows) * _nonempty_count(columns)
    tries = _expected_tries(left * right / cells) if cells else 0.0
    if not weighted:
        return _clamp_product_nnz(certain - cells * float(np.expm1(-tries)), a, b), a.rows, b.columns
    by_row, by_column = _hits_by_line(rows, columns, tries)
    nnz = _clamp_product_nnz(certain + float(by_row.sum()), a, b)
    return nnz, by_row + a.rows * (certain / a.nnz), by_column + b.columns * (certain / b.nnz)


def _clamp_product_nnz(nnz: float, a: Sketch, b: Sketch) -> float:
    """Clamp `nnz` to its bounds: rows and columns more than half full must overlap, empty ones never do."""
    certain = float(np.count_nonzero(2 * a.rows > a.shape[1]) * np.count_nonzero(2 * b.columns > b.shape[0]))
    return min(max(nnz, certain), _nonempty_count(a.rows) * _nonempty_count(b.columns))


def _expected_tries(shares: Counts) -> float:
    """Return the expected tries t of a cell, such that it is hit with probability ``1 - exp(-t)``.

    `shares`: the share of all cells that each outer product of a column and a row covers.
    """
    if shares.max(initial=0.0) >= 1.0:
        return np.inf
    return -float(np.log1p(-shares).sum())


_CLASSES_PER_OCTAVE = 4.0
_MAX_OCTAVES_BELOW_ONE = 30.0  # smaller expected counts share one class


def _hits_by_line(rows: Counts, columns: Counts, tries: float) -> tuple[Counts, Counts]:
    """Return the expected number of hit cells of every row and column, in proportion to their lengths.

    A cell in a row and a column that are not empty is tried `tries` times on average.
    """
    height, width = _nonempty_count(rows), _nonempty_count(columns)
    if not tries or tries == np.inf:
        full = float(bool(tries))
        return np.minimum(rows, 1.0) * (full * width), np.minimum(columns, 1.0) * (full * height)
    down, across = _classify_counts(rows), _classify_counts(columns)
    weight = tries * height * width / (float(rows.sum()) * float(columns.sum()))
    hit = -np.expm1(-weight * np.outer(down.mean, across.mean))
    return (hit @ across.members)[down.class_of], (down.members @ hit)[across.class_of]


class _CountClasses(NamedTuple):
    """Counts grouped by size: the class of each, and for every class its mean and its number of members."""

    class_of: np.ndarray
    mean: Counts
    members: Counts


def _classify_counts(counts: Counts) -> _CountClasses:
    """Group `counts` on a logarithmic scale, which bounds the number of cells `_hits_by_line` computes."""
    position = np.log2(np.maximum(counts,
        2.0**-_MAX_OCTAVES_BELOW_ONE)) * _CLASSES_PER_OCTAVE + _MAX_OCTAVES_BELOW_ONE * _CLASSES_PER_OCTAVE
    numbers = position.astype(np.intp)
    members = np.bincount(numbers)
    used = np.flatnonzero(members)
    class_of = np.zeros(len(members), np.intp)
    class_of[used] = np.arange(len(used))
    mean = np.bincount(numbers, counts)[used] / members[used]
    return _CountClasses(class_of[numbers], mean, _as_counts(members[used]))


def _nonempty_count(counts: Counts) -> float:
    """Return the number of rows or columns that are not empty."""
    return float(np.minimum(counts, 1.0).sum())


def _scale_to_total(counts: Counts, total: float, limit: int) -> Counts:
    """Return `counts` scaled to add up to `total`, each limited to `limit`."""
    sum_before = float(counts.sum())
    return np.minimum(counts * (total / sum_before), limit) if sum_before else counts


# --------------------------------------------------------------------------- element by element


def intersection_sketch(a: Sketch, b: Sketch) -> Sketch:
    """Sketch the positions that are nonzero in both matrices."""
    nnz = a.nnz * b.nnz
    if not nnz:
        return uniform_sketch(a.shape, 0.0)
    rows = a.rows * b.rows * (float(a.columns @ b.columns) / nnz)
    columns = a.columns * b.columns * (float(a.rows @ b.rows) / nnz)
    rows = np.minimum(rows, np.minimum(a.rows, b.rows))
    columns = np.minimum(columns, np.minimum(a.columns, b.columns))
    return _with_equal_totals(rows, columns, min(a.fullest_row, b.fullest_row),
                              min(a.fullest_column, b.fullest_column))


def union_sketch(a: Sketch, b: Sketch) -> Sketch:
    """Sketch the positions that are nonzero in at least one of two matrices."""
    both = intersection_sketch(a, b)
    m, n = a.shape
    return _with_equal_totals(a.rows + b.rows - both.rows, a.columns + b.columns - both.columns,
                   min(n, a.fullest_row + b.fullest_row), min(m, a.fullest_column + b.fullest_column))


def _with_equal_totals(rows: Counts, columns: Counts, fullest_row: float, fullest_column: float) -> Sketch:
    """Return a sketch whose column counts are scaled to the total of the row counts."""
    row_total, column_total = float(rows.sum()), float(columns.sum())
    return Sketch(rows, columns * (row_total / column_total) if column_total else columns,
                  fullest_row, fullest_column)


# --------------------------------------------------------------------------- reorganisation


def concatenation_sketch(parts: Sequence[Sketch], axis: int) -> Sketch:
    """Sketch matrices stacked vertically (axis 0) or horizontally (axis 1)."""
    if axis:
        return concatenation_sketch([p.T for p in parts], 0).T
    return Sketch(
        np.concatenate([p.rows for p in parts]), np.sum([p.columns for p in parts], axis=0),
        max(p.fullest_row for p in parts), sum(p.fullest_column for p in parts))


def slice_sketch(a: Sketch, rows: slice, columns: slice) -> Sketch:
    """Sketch a rectangle of a matrix: counts shrink by the share of the other axis that is cut off."""
    high, wide = a.rows[rows], a.columns[columns]
    total = max(a.nnz, 1e-300)
    column_share, row_share = float(wide.sum()) / total, float(high.sum()) / total
    return Sketch(high * column_share, wide * row_share,
                  min(a.fullest_row, len(wide)), min(a.fullest_column, len(high)))


def reshape_sketch(a: Sketch, shape: Shape) -> Sketch:
    """Sketch a row-major reshape: rows are merged or split if lengths divide each other, else uniform."""
    n, (high, wide) = len(a.columns), shape
    if not prod(shape):
        return uniform_sketch(shape, 0.0)
    if wide % n == 0:
        k = wide // n
        return Sketch(a.rows.reshape(high, k).sum(1), np.tile(a.columns / k, k),
                      min(wide, k * a.fullest_row), min(high, a.fullest_column))
    if n % wide == 0:
        k = n // wide
        return Sketch(np.repeat(a.rows / k, k), a.columns.reshape(k, wide).sum(0),
                      min(wide, a.fullest_row), min(high, k * a.fullest_column))
    return uniform_sketch(shape, a.nnz)


ESTIMATORS = ("meta", "worst", "mnc", "weighted")
Estimate = Any  # the number of nonzeros, or a sketch
Rule = Callable[[Hop, list[Estimate]], "Estimate | None"]
_REARRANGING_OPS = frozenset({
    "transpose", "reshape", "ravel", "broadcast_to", "expand_dims", "squeeze", "flip", "getitem", "full",
})
_PRODUCT_OPS = frozenset({"matmul", "dot"})
_CONCATENATING_OPS = frozenset({"concatenate", "stack"})


def estimate_nnz(
    roots: Iterable[Hop], method: str, known: Mapping[Hop, Sketch] | None = None,
) -> dict[Hop, float]:
    """Estimate the number of nonzeros of every hop below `roots` by one of `ESTIMATORS`.

    `known` gives sketches of leaves; the metadata of other leaves gives their number of nonzeros.
    """
    known = known or {}
    states: dict[Hop, Estimate] = {}
    for hop in topo(roots):
        if hop in known:
            states[hop] = known[hop] if method in ("mnc", "weighted") else known[hop].nnz
        else:
            states[hop] = _ESTIMATOR_FUNCTIONS[method](hop, [states[i] for i in hop.inputs])
    return {hop: nnz_of_estimate(state) for hop, state in states.items()}


def nnz_of_estimate(state: Estimate) -> float:
    """Return the number of nonzeros of an estimate."""
    return state.nnz if isinstance(state, Sketch) else float(state)


# --------------------------------------------------------------------------- at most


def _worst_case(hop: Hop, operands: list[Estimate]) -> float:
    """Propagate upper bounds through the op table's metadata inference."""
    if hop.op.kind is Kind.LEAF:
        return max_nnz(hop.meta)
    metas = tuple(Meta(i.meta.shape, i.meta.dtype, min(int(n), i.meta.size))
                  for i, n in zip(hop.inputs, operands, strict=True))
    return max_nnz(hop.op.meta(metas, dict(hop.attrs)))


# --------------------------------------------------------------------------- spread evenly


def _uniform_estimate(hop: Hop, operands: list[Estimate]) -> float:
    """Estimate the nonzeros from the densities of the operands, assuming evenly spread nonzeros."""
    if hop.op.kind is Kind.LEAF or not hop.meta.size:
        return max_nnz(hop.meta)
    shares = [nnz_of_estimate(n) / max(i.meta.size, 1) for i, n in zip(hop.inputs, operands, strict=True)]
    return min(_result_density(hop, shares) * hop.meta.size,
               _worst_case(hop, [np.ceil(nnz_of_estimate(n)) for n in operands]))


def _result_density(hop: Hop, shares: list[float]) -> float:
    """Return the expected density of a result, given those of the operands."""
    name, zeros = hop.op.name, hop.op.zeros
    if name in _REARRANGING_OPS:
        return shares[0]
    if name in _PRODUCT_OPS and all(i.meta.ndim for i in hop.inputs):
        return _hit_probability(shares[0] * shares[1], hop.inputs[0].meta.shape[-1])
    if name in _CONCATENATING_OPS:
        return sum(s * i.meta.size for s, i in zip(shares, hop.inputs, strict=True)) / hop.meta.size
    if name == "where":
        return shares[0] * shares[1] + (1.0 - shares[0]) * shares[2]
    if hop.op.kind is Kind.CELL:
        if zeros is Zeros.ANY:
            return prod(shares)
        return 1.0 if zeros is Zeros.NONE else 1.0 - prod(1.0 - s for s in shares)
    if len(hop.inputs) == 1 and hop.inputs[0].meta.size:
        reduced = hop.inputs[0].meta.size // hop.meta.size
        if zeros is Zeros.ANY:
            return shares[0] ** reduced
        return _hit_probability(shares[0], reduced) if zeros is Zeros.ALL else 1.0
    return 1.0


def _hit_probability(share: float, times: int) -> float:
    """Return the probability that at least one of `times` tries with probability `share` succeeds."""
    return 1.0 if share >= 1.0 else -float(np.expm1(times * log1p(-share)))


# --------------------------------------------------------------------------- by sketches


def _weighted_sketch_estimate(hop: Hop, operands: list[Estimate]) -> Estimate:
    return _sketch_estimate(hop, operands, _RULES | dict.fromkeys(_PRODUCT_OPS, _weighted_matmul_rule))


def _sketch_estimate(hop: Hop, operands: list[Estimate], rules: Mapping[str, Rule] | None = None) -> Estimate:
    """Return the sketch of a matrix, or a number of nonzeros for any other value."""
    estimate = None
    if hop.meta.ndim == 2 or any(isinstance(s, Sketch) for s in operands):
        rule = (rules or _RULES).get(hop.op.name) or _RULES_BY_KIND.get(hop.op.kind)
        estimate = rule(hop, operands) if rule is not None and all(hop.meta.shape) else None
    if estimate is None:
        estimate = _uniform_estimate(hop, operands)
    if hop.meta.ndim == 2 and not isinstance(estimate, Sketch):
        return uniform_sketch(hop.meta.shape, estimate)
    return estimate


def _matmul_rule(hop: Hop, operands: list[Estimate], weighted: bool = False) -> Estimate | None:
    a, b = operands
    if not isinstance(a, Sketch):
        return None
    if isinstance(b, Sketch):
        return product_sketch(a, b, weighted)
    if hop.inputs[1].meta.ndim == 1:
        return nnz_of_product(a, uniform_sketch((a.shape[1], 1), b), weighted)
    return None


def _weighted_matmul_rule(hop: Hop, operands: list[Estimate]) -> Estimate | None:
    return _matmul_rule(hop, operands, True)


def _transpose_rule(hop: Hop, operands: list[Estimate]) -> Estimate | None:
    return operands[0].T if hop.attr("axes") == (1, 0) else operands[0]


def _concatenate_rule(hop: Hop, operands: list[Estimate]) -> Estimate | None:
    return concatenation_sketch(operands, hop.attr("axis")) if hop.meta.ndim == 2 else None


def _reshape_rule(hop: Hop, operands: list[Estimate]) -> Estimate | None:
    a = operands[0]
    return reshape_sketch(a, hop.meta.shape) if isinstance(a, Sketch) and hop.meta.ndim == 2 else None


def _getitem_rule(hop: Hop, operands: list[Estimate]) -> Estimate | None:
    """Sketch slices of matrices with ascending steps."""
    kinds = [item[0] for item in hop.attr("index")]
    if not isinstance(operands[0], Sketch) or set(kinds) != {"s"} or hop.meta.ndim != 2:
        return None
    rows, columns = ([slice(*item[1:]) for item in hop.attr("index")] + [slice(None)])[:2]
    return slice_sketch(operands[0], rows, columns)


def _eye_rule(hop: Hop, operands: list[Estimate]) -> Estimate | None:
    n, m = hop.meta.shape
    return diagonal_sketch(n) if n == m and not hop.attr("k") else None


def _cell_rule(hop: Hop, operands: list[Estimate]) -> Estimate | None:
    zeros = hop.op.zeros
    if zeros is Zeros.NONE or hop.op.name == "where":
        return None
    sketches = [_broadcast_sketch(hop, i, s) for i, s in zip(hop.inputs, operands, strict=True)]
    result = sketches[0]
    for other in sketches[1:]:
        result = intersection_sketch(result, other) if zeros is Zeros.ANY else union_sketch(result, other)
    return result


def _broadcast_sketch(hop: Hop, operand: Hop, state: Estimate) -> Sketch:
    """Return the sketch of an operand broadcast to the shape of the result."""
    if isinstance(state, Sketch) and operand.meta.shape == hop.meta.shape:
        return state
    return uniform_sketch(hop.meta.shape, nnz_of_estimate(state) / max(operand.meta.size, 1) * hop.meta.size)


def _sums_rule(hop: Hop, operands: list[Estimate]) -> Estimate | None:
    """Count the rows or columns that are not empty."""
    a, axis = operands[0], hop.attr("axis")
    if hop.op.zeros is not Zeros.ALL or len(axis) != 1 or hop.meta.ndim != 1:
        return None
    return float(np.minimum(a.rows if axis[0] else a.columns, 1.0).sum())


_RULES: dict[str, Rule] = {
    "matmul": _matmul_rule, "dot": _matmul_rule, "transpose": _transpose_rule,
    "concatenate": _concatenate_rule,
    "reshape": _reshape_rule, "getitem": _getitem_rule, "eye": _eye_rule,
}
_RULES_BY_KIND = {Kind.CELL: _cell_rule, Kind.AGG: _sums_rule}
_ESTIMATOR_FUNCTIONS: dict[str, Callable[[Hop, list[Estimate]], Estimate]] = {
    "worst": _worst_case, "meta": _uniform_estimate, "mnc": _sketch_estimate,
    "weighted": _weighted_sketch_estimate,
}
