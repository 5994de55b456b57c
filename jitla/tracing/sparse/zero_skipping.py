"""Cost model and cache of alternative matrix formats: dense arrays without their zeros, narrower indices.

A matrix that is multiplied again and again and not written may get another form: compressed rows of a dense
one, narrower indices or the other compression axis of a sparse one. A form is made once the time lost without
it equals the time to make it (ski rental), and dropped when the memory is written or freed.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import partial
from math import ceil, inf
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from jitla.concurrency import fork_safe_lock
from jitla.config import current
from jitla.hops import Meta, Shape, Sketch, apply, csr_sketch, error_state, estimate_nnz, leaf
from jitla.tracing.frames import is_alone, place_of, user_frame
from jitla.tracing.hoisting import owner_of
from jitla.tracing.lazy import LazyArray
from jitla.tracing.site import Site
from jitla.tracing.sparse.lazy_sparse import Pattern
from jitla.tracing.tape import data_address

Rows = Any  # a csr_array or csc_array of SciPy
Factor = tuple[Rows, float]  # and the maximum magnitude of its elements
# Times of a product: reading an element and multiplying one, dense and stored; multiplying a pair of stored
# elements with equal inner index; writing an element of a dense result.
DENSE_READ_NS, DENSE_MULTIPLY_NS, STORED_READ_NS, STORED_MULTIPLY_NS = 0.25, 0.04, 1.2, 0.6
PAIR_MULTIPLY_NS, WRITE_NS = 15.0, 1.0
# The same of compiled loops over stored elements, on all threads; starting one; columns that they support.
LOOP_READ_NS, LOOP_MULTIPLY_NS, LOOP_START_NS, MAX_LOOP_COLUMNS = 0.36, 0.1, 2e4, 32

# A quarter of the greatest number, by dtype.
_QUARTER = {char: float(np.finfo(char).max) / 4 for char in "fd"}


def skipping_pays(size: int, stored: float, columns: int, loops: bool = False) -> bool:
    """Return whether multiplying only the stored elements by `columns` columns is faster than all `size`.

    `loops`: compiled loops are available beside SciPy's.
    """
    times = [_stored_ns(stored, columns)]
    if loops and columns <= MAX_LOOP_COLUMNS:
        times.append(LOOP_START_NS + stored * (LOOP_READ_NS + LOOP_MULTIPLY_NS * columns))
    return min(times) < _dense_ns(size, columns)


def _dense_ns(size: int, columns: int) -> float:
    return size * max(DENSE_READ_NS, DENSE_MULTIPLY_NS * columns)


def _stored_ns(stored: float, columns: int) -> float:
    return stored * (STORED_READ_NS + STORED_MULTIPLY_NS * columns)


def max_magnitude(values: np.ndarray) -> float:
    """Return the maximum magnitude; NaN if there is one."""
    if not values.size:
        return 0.0
    highest, lowest = float(np.maximum.reduce(values, None)), -float(np.minimum.reduce(values, None))
    return lowest if lowest > highest else highest  # where one is NaN, both are


# An error state, held so that its id stays unique, and whether it ignores underflow.
_underflow_memo: tuple[Any, bool] = (None, False)


def _ignores_underflow() -> bool:
    global _underflow_memo
    state, ignored = _underflow_memo
    if error_state() is not state:
        state, ignored = error_state(), np.geterr()["under"] == "ignore"
        _underflow_memo = state, ignored
    return ignored


def is_silent(x: float, y: float, inner: int, dtype: np.dtype) -> bool:
    """Return whether a product can neither overflow nor see NaN, and bits may differ from NumPy's."""
    if not x * y * inner < _QUARTER[dtype.char]:  # NaN is not
        return False
    return current().numerics != "strict" and _ignores_underflow()


def zero_skipping_factors(
    factor: Factor, other: Any, left: bool, traced: bool
) -> tuple[Rows, np.ndarray] | None:
    """Return both factors in the dtype of the product if skipping zeros is safe and pays; else None.

    `left`: the sparse rows are the left factor. `traced`: the product is recorded if there are loops for it.
    """
    rows, magnitude = factor
    if type(other) is not np.ndarray or other.ndim not in (1, 2) or not other.size:
        return None
    stored, other_dtype = rows.data, other.dtype
    result_length, inner = rows.shape if left else rows.shape[::-1]
    dtype = stored.dtype if stored.dtype is other_dtype else np.result_type(stored.dtype, other_dtype)
    if other.shape[0 if left else -1] != inner or dtype.char not in _QUARTER or \
            other_dtype.char not in _QUARTER:
        return None
    loops = traced and other_dtype == dtype and has_loops(other, left)
    if not skipping_pays(result_length * inner, len(stored), other.size // inner, loops):
        return None
    if not is_silent(magnitude, max_magnitude(other), inner, dtype):
        return None
    if stored.dtype != dtype:
        rows = rows.astype(dtype)
    return rows, other if other_dtype == dtype else other.astype(dtype)


def has_loops(other: np.ndarray, left: bool) -> bool:
    """Return whether there are compiled loops for stored elements and this dense factor."""
    return other.ndim == 1 or left and other.shape[1] > 1


def multiply_stored(rows: Rows, other: np.ndarray, left: bool) -> np.ndarray:
    """Return the product in NumPy's memory layout."""
    if left:
        product = rows @ other
    else:
        product = rows.T @ other if other.ndim == 1 else (rows.T @ other.T).T
    return product if product.flags.owndata else np.array(product, order="C")


def product_of_sparse(a: Factor, b: Factor) -> Rows | None:
    """Return the sparse product of two sparse factors; None if that is slower or could warn."""
    (x, magnitude_x), (y, magnitude_y) = a, b
    dtype = np.result_type(x.dtype, y.dtype)
    if x.shape[1] != y.shape[0] or dtype.char not in "fd":
        return None
    left, right = sketch_of(x), sketch_of(y)
    pair_count = float(left.columns @ right.rows)
    m, n = x.shape[0], y.shape[1]
    alternative_ns = min(_dense_ns(m * x.shape[1], n), _stored_ns(x.nnz, n), _stored_ns(y.nnz, m))
    pairs_ns = pair_count * PAIR_MULTIPLY_NS
    if not pairs_ns < alternative_ns or not is_silent(magnitude_x, magnitude_y, x.shape[1], dtype):
        return None
    stored = estimated_nonzeros(left, right)
    if pairs_ns + (0.0 if skipping_pays(m * n, stored, 1) else m * n * WRITE_NS) >= alternative_ns:
        return None
    return x.astype(dtype, copy=False).tocsr() @ y.astype(dtype, copy=False).tocsr()


def sketch_of(rows: Rows) -> Sketch:
    """Return the sketch of a sparse matrix: its counts per row and column."""
    if rows.format == "csc":
        return sketch_of(rows.T).T
    return csr_sketch(rows.indptr, rows.indices, rows.shape)


def estimated_nonzeros(left: Sketch, right: Sketch) -> float:
    """Estimate the nonzeros of a product by the configured estimator."""
    dtype = np.dtype(float)
    x, y = (leaf(k, Meta(s.shape, dtype, int(s.nnz))) for k, s in enumerate((left, right)))
    product = apply("matmul", x, y)
    return estimate_nnz([product], current().estimator, {x: left, y: right})[product]


MIN_SAVING_NS = 1e5  # of a use: checking memory for writes takes a fifth of that
MIN_USES = 2  # uses before a form is made if costs are ignored
MAX_MATRICES = 64  # matrices in memory with a history

Arrays = tuple[np.ndarray, ...]
Key = tuple[Any, ...]


class FormCandidate(NamedTuple):
    """A possible form of a matrix: the time that a use saves and the time to make it.

    ``make()`` returns the arrays and their bytes, or None if there is no form; `explain` shows the title.
    """

    name: str
    saving_ns: float
    cost_ns: float
    make: Callable[[], tuple[Any, int] | None]
    title: str
    shape: Shape


class Form(NamedTuple):
    """A form of a matrix. It holds no reference to the memory it was made from."""

    value: Any
    nbytes: int


class FormRecord:
    """The record of a form for `explain`, in the shape of the records of hoisted values."""

    __slots__ = ("candidate", "line", "bound", "computations", "uses", "nbytes")

    def __init__(self, candidate: FormCandidate) -> None:
        self.candidate = candidate._replace(make=_no_form)
        place = place_of(user_frame())
        self.line = place.file, place.line
        self.bound: Any = None
        self.computations = self.uses = self.nbytes = 0

    def description(self) -> tuple[str, Shape, list[tuple[str, Any]]]:
        """Return the title, the shape, and the operation with the user's line that it was made for."""
        return self.candidate.title, self.candidate.shape, [("product", self.line)]


class MatrixHistory:
    """The uses of a matrix in memory, its forms and its write watch."""

    __slots__ = ("owners", "lost_ns", "patience", "watch", "forms", "rejected")

    def __init__(self, owners: tuple[Any, ...]) -> None:
        self.owners = owners  # weak references; the history dies with the first
        self.lost_ns: dict[str, float] = {}
        self.patience = 1.0
        self.watch: Any = None
        self.forms: dict[str, Form] = {}
        self.rejected: set[str] = set()

    def invalidate(self) -> None:
        """Drop forms and counts after a write; the next form needs twice the lost time."""
        self.lost_ns.clear()
        self.forms.clear()
        self.watch = None
        self.patience *= 2

    @property
    def nbytes(self) -> int:
        """Bytes of all forms."""
        return sum(form.nbytes for form in self.forms.values())


_histories: dict[Key, MatrixHistory] = {}
_lock = fork_safe_lock()


def form_of(site: Site, arrays: Arrays, candidates: list[FormCandidate]) -> Form | None:
    """Return the form of `arrays` that saves most, made now if it is due; None if there is none."""
    if site.keeper is None or not candidates:
        return None
    key = tuple([(data_address(x), x.shape, x.strides, x.dtype.char) for x in arrays])
    with _lock:
        history = _histories.get(key)
        if history is None:
            _start_history(key, arrays, candidates, site)
            return None
        if history.watch is not None and not history.watch.is_same():
            history.invalidate()
        best = max((w for w in candidates if w.name in history.forms), key=_saving_ns, default=None)
        threshold_ns = MIN_SAVING_NS if best is None else MIN_SAVING_NS + best.saving_ns
        for candidate in candidates:
            if candidate.name in history.forms or candidate.name in history.rejected:
                continue
            if (site.keeper.ignore_costs or candidate.saving_ns >= threshold_ns) and \
                    _make_if_due(history, candidate, arrays, site):
                best = candidate
        if best is None:
            return None
        _record_of(site, best).uses += 1
        return history.forms[best.name]


def clear_forms() -> None:
    """Drop all histories and forms."""
    with _lock:
        _histories.clear()


def _start_history(key: Key, arrays: Arrays, candidates: list[FormCandidate], site: Site) -> None:
    """Start the history of a matrix if a candidate would save enough."""
    every = site.keeper.ignore_costs
    if not every and max(map(_saving_ns, candidates)) < MIN_SAVING_NS:
        return
    owners = [owner_of(x) for x in arrays]
    if any(type(x) is not np.ndarray or x.base is not None or not x.flags.owndata for x in owners):
        return  # writes through other owners would go unnoticed
    while len(_histories) >= MAX_MATRICES:
        del _histories[next(iter(_histories))]
    drop: Callable[[Any], Any] = lambda _: _histories.pop(key, None)  # noqa: E731
    history = _histories[key] = MatrixHistory(tuple(ref(x, drop) for x in owners))
    history.lost_ns = {candidate.name: 1.0 if every else candidate.saving_ns for candidate in candidates}


def _make_if_due(history: MatrixHistory, candidate: FormCandidate, arrays: Arrays, site: Site) -> bool:
    """Count a use without the form, make the form if it is due, and return whether it exists."""
    every = site.keeper.ignore_costs  # then uses are counted instead of nanoseconds
    saving = 1.0 if every else candidate.saving_ns
    threshold = (MIN_USES if every else candidate.cost_ns) * history.patience
    lost = history.lost_ns[candidate.name] = history.lost_ns.get(candidate.name, 0.0) + saving
    site.awaited = 0
    if 2 * lost >= threshold and history.watch is None:
        history.watch = site.keeper.watch(arrays) if is_alone() else None
        if history.watch is None:
            history.invalidate()
            return False
    if lost < threshold:
        if threshold < inf:
            site.awaited = ceil((threshold - lost) / saving) + 1
        return False
    try:
        form = candidate.make()
    except Exception as error:
        site.note_failure(error)
        form = None
    if form is None or not history.watch.is_same() or \
            not _evict_other_forms(history, form[1], site.keeper.max_bytes):
        history.rejected.add(candidate.name)
        return False
    history.forms[candidate.name] = Form(*form)
    record = _record_of(site, candidate)
    record.computations, record.nbytes = record.computations + 1, form[1]
    site.most_kept = max(site.most_kept, _total_form_bytes())
    return True


def _record_of(site: Site, candidate: FormCandidate) -> FormRecord:
    record: FormRecord | None = site.parts.get((candidate.title, candidate.shape))
    if record is None:
        record = site.parts[candidate.title, candidate.shape] = FormRecord(candidate)
    return record


def _evict_other_forms(history: MatrixHistory, nbytes: int, limit: int) -> bool:
    """Evict forms of other matrices until `nbytes` fit into `limit`; return whether they fit."""
    for other in list(_histories.values()):
        if _total_form_bytes() + nbytes <= limit:
            break
        if other is not history:
            other.invalidate()
    return _total_form_bytes() + nbytes <= limit


def _total_form_bytes() -> int:
    """Return the bytes of all forms; histories may disappear meanwhile."""
    return sum(each.nbytes for each in list(_histories.values()))


def _saving_ns(candidate: FormCandidate) -> float:
    return candidate.saving_ns


def _no_form() -> None:
    """Replace `FormCandidate.make`, which refers to the memory of the matrix."""


#: A product with a smaller matrix takes less time than checking its zeros.
MIN_DENSE_ELEMENTS = 1 << 19
SAMPLED_ELEMENTS, GOLDEN_RATIO = 512, 0.6180339887498949  # elements, and their distance as a fraction of all
SCATTER_ADD_NS = 0.5  # extra time of an element that is added to a scattered result
#: Time to compress a matrix, per element and per nonzero.
SCAN_NS, COMPRESS_NS = 2.6, 10.0
SCIPY_LOAD_NS = 1e8  # to import scipy.sparse
SHARED_READ_FRACTION = 0.5  # of a matrix per product: two products read it once
_BITS = {np.dtype(np.float32): np.int32, np.dtype(np.float64): np.int64}
_MAX_INT32 = int(np.iinfo(np.int32).max)

# By memory: a reference to its owner, the number of uses, the estimated density.
_density_memo: dict[tuple[Any, ...], tuple[Any, int, float]] = {}


def record_zero_skipping_product(session: Any, x: LazyArray, y: LazyArray) -> Any:
    """Record ``x @ y`` without the zeros of a dense factor if that pays and gives the same result."""
    if session.site.keeper is None or session.site.bitwise:
        return NotImplemented
    left = x.ndim == 2 and x._v is not None and (
        y.ndim == 1 or y.ndim == 2 and 1 < y.shape[1] <= MAX_LOOP_COLUMNS)
    if not left and (y.ndim != 2 or x.ndim != 1 or y._v is None):
        return NotImplemented
    matrix, other = (x._v, y) if left else (y._v.T, x)
    if matrix.size < MIN_DENSE_ELEMENTS or matrix.dtype not in _BITS or matrix.dtype != other.dtype or \
            matrix.shape[1] != other.shape[0] or not matrix.flags.forc or matrix.size > _MAX_INT32:
        return NotImplemented
    form = _compressed_form(session.site, matrix, other.size // max(matrix.shape[1], 1))
    if form is None or not is_silent(
            form[3], max_magnitude(session.value(other)), matrix.shape[1], matrix.dtype):
        return NotImplemented
    data, indices, indptr = map(session.argument, form[:3])
    operands = data, indices, indptr, other
    if matrix.flags.c_contiguous:
        return session.try_record("csr_vector" if other.ndim == 1 else "csr_product", operands)
    name = "csr_transposed_vector" if other.ndim == 1 else "csr_transposed_product"
    return session.try_record(name, operands, (("width", matrix.shape[0]),))


def _compressed_form(site: Any, matrix: np.ndarray, columns: int) -> tuple[Any, ...] | None:
    """Return data, indices, indptr and the maximum magnitude of a matrix if its form exists or is due."""
    density = _nonzero_share(matrix)
    by_columns = not matrix.flags.c_contiguous
    entry_ns = LOOP_READ_NS + SCATTER_ADD_NS * by_columns + LOOP_MULTIPLY_NS * columns
    # the density up to which skipping zeros pays
    break_even = max(SHARED_READ_FRACTION * DENSE_READ_NS, DENSE_MULTIPLY_NS * columns) / entry_ns
    saving_ns = matrix.size * (break_even - density) * entry_ns - LOOP_START_NS
    if saving_ns <= 0.0:
        return None
    lines = matrix.T if by_columns else matrix
    load_ns = SCIPY_LOAD_NS * ("scipy.sparse" not in sys.modules)
    cost_ns = matrix.size * (SCAN_NS + density * COMPRESS_NS) + load_ns
    make = partial(_compress, lines, break_even * matrix.size, site.keeper.ready)
    candidate = FormCandidate("nonzeros", saving_ns, cost_ns, make, "compressed rows of dense", lines.shape)
    form = form_of(site, (lines,), [candidate])
    return None if form is None else form.value


def _nonzero_share(matrix: np.ndarray) -> float:
    """Return the estimated density of a matrix, 1.0 at its first use.

    It is sampled again whenever the number of uses has doubled.
    """
    key, owner = (data_address(matrix), matrix.shape, matrix.strides, matrix.dtype.char), owner_of(matrix)
    reference, uses, density = _density_memo.get(key, (None, 0, 1.0))
    if reference is None or reference() is not owner:
        if reference is None and len(_density_memo) >= MAX_MATRICES:
            del _density_memo[next(iter(_density_memo))]
        reference, uses, density = ref(owner), 0, 1.0
    uses += 1
    if uses > 1 and not uses & uses - 1:
        elements = matrix.ravel("K")
        sample = (np.arange(SAMPLED_ELEMENTS) * GOLDEN_RATIO % 1.0 * elements.size).astype(np.intp)
        density = np.count_nonzero(elements[sample].view(_BITS[matrix.dtype])) / SAMPLED_ELEMENTS
    _density_memo[key] = reference, uses, density
    return density


def _compress(
    lines: np.ndarray, limit: float, prepare: Callable[[], Any]
) -> tuple[tuple[Any, ...], int] | None:
    """Return compressed rows of a C-contiguous matrix and their bytes; None if too dense or not finite."""
    elements = lines.reshape(-1)
    bits = elements.view(_BITS[lines.dtype])
    if np.count_nonzero(bits) > limit:
        return None
    positions = np.flatnonzero(bits)
    data = elements[positions]
    magnitude = max_magnitude(data)
    if not np.isfinite(magnitude):
        return None
    prepare()
    rows, columns = lines.shape
    indptr = np.searchsorted(positions, np.arange(rows + 1) * columns).astype(np.int32)
    indices = (positions - np.repeat(np.arange(rows) * columns, np.diff(indptr))).astype(np.int32)
    return (data, indices, indptr, magnitude), data.nbytes + indices.nbytes + indptr.nbytes


#: Time of an entry, on all threads, that gathers from or scatters to a vector in near and in far memory.
GATHER_ENTRY_NS, SCATTER_ENTRY_NS = (0.38, 0.55), (0.48, 0.88)
NEAR_BYTES = 1 << 18  # larger vectors are far
WIDE_INDEX_NS = 0.12  # extra time of an entry with indices of eight bytes
TRANSPOSE_ENTRY_NS, NARROW_ENTRY_NS = 9.0, 1.5  # to make a form, per entry
MIN_ENTRY_SAVING_NS = 0.09  # smaller savings are below the model's accuracy
_NARROW = np.dtype(np.int32)


FormArrays = tuple[Any, ...]


class CompressedLines(NamedTuple):
    """Compressed lines along `axis` (0: rows)."""

    data: Any
    indices: Any
    indptr: Any
    axis: int


def faster_form(session: Any, pattern: Pattern, values: Any, is_vector: bool) -> CompressedLines | None:
    """Return proxies of the same matrix in a faster form; None if there is none."""
    data, indices, indptr, axis = values._v, pattern.indices, pattern.indptr, pattern.axis
    if data is None or session.site.keeper is None or pattern.format == "coo":
        return None
    is_wide = indices.dtype != _NARROW and max(pattern.shape) <= _MAX_INT32 and len(data) <= _MAX_INT32
    if not is_wide and not is_vector:
        return None
    lines = CompressedLines(data, indices, indptr, axis)
    candidates = _form_candidates(lines, pattern.shape, is_wide, is_vector)
    if not candidates or (form := form_of(session.site, (data, indices, indptr), candidates)) is None:
        return None
    data_or_none, *indices = form.value  # made for this product or one of the transposed matrix
    data, indices, indptr = map(session.argument, (data if data_or_none is None else data_or_none, *indices))
    return CompressedLines(data, indices, indptr, axis if data_or_none is None else 1 - axis)


def _form_candidates(
    lines: CompressedLines, shape: tuple[int, int], is_wide: bool, is_vector: bool
) -> list[FormCandidate]:
    """Return the forms that are faster than `lines`; indices fit into four bytes."""
    entries, axis = len(lines.data), lines.axis
    size = lines.data.itemsize
    wide_ns = WIDE_INDEX_NS if is_wide else 0.0
    entry_ns = _entry_ns(axis, shape, size)
    saved_ns = entry_ns + wide_ns - _entry_ns(1 - axis, shape, size)
    candidates = []
    if is_wide:
        make = partial(_narrow_indices, lines, shape[1 - axis])
        candidates.append(FormCandidate(
            "narrow", entries * wide_ns, entries * NARROW_ENTRY_NS, make, "narrower indices of", shape))
    if is_vector and saved_ns > wide_ns:
        # A small saving does not pay for a form, but one made for other products is used.
        cost_ns = entries * TRANSPOSE_ENTRY_NS if saved_ns >= wide_ns + MIN_ENTRY_SAVING_NS else math.inf
        candidates.append(FormCandidate(
            "transposed", entries * saved_ns, cost_ns, partial(_transpose_lines, lines, shape),
            f"compressed {'rows' if axis else 'columns'} of", shape))
    return candidates


def _entry_ns(axis: int, shape: tuple[int, int], size: int) -> float:
    """Return the time of an entry of lines along `axis` in a product with a vector."""
    return (SCATTER_ENTRY_NS if axis else GATHER_ENTRY_NS)[shape[1 - axis] * size > NEAR_BYTES]


def _narrow_indices(lines: CompressedLines, width: int) -> tuple[FormArrays, int] | None:
    """Return int32 indices with None for the unchanged data; None if an index is out of bounds."""
    lowest, highest = lines.indices.min(), lines.indices.max()
    if lowest < 0 or highest >= width or lines.indptr.min() < 0 or lines.indptr.max() > len(lines.data):
        return None
    indices, indptr = (x.astype(_NARROW) for x in (lines.indices, lines.indptr))
    return (None, indices, indptr), indices.nbytes + indptr.nbytes


def _transpose_lines(lines: CompressedLines, shape: tuple[int, int]) -> tuple[FormArrays, int]:
    """Return data and indices compressed along the other axis; duplicates are not summed."""
    sparse: Any = sys.modules["scipy.sparse"]
    kind = sparse.csc_array if lines.axis else sparse.csr_array
    source = kind((lines.data, lines.indices, lines.indptr), shape=shape)
    source.check_format(full_check=True)
    transposed = source.tocsr() if lines.axis else source.tocsc()
    indices = (x.astype(_NARROW, copy=False) for x in (transposed.indices, transposed.indptr))
    arrays = transposed.data, *indices
    return arrays, sum(x.nbytes for x in arrays)
