"""`jitla.sparsify`: an array that is mostly zero, with compressed rows for products.

Positions that are not stored hold 0.0, not -0.0. Products skip them if multiplying the stored elements alone
is predicted to be faster by a cost model, all factors are finite and no sum can overflow: NumPy would add
zeros without a warning. Elementwise operations with numbers skip them if they map 0.0 to 0.0, which is tried
first.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from jitla.config import current
from jitla.errors import TraceError
from jitla.hops import Meta, Sketch, apply, csr_sketch, error_state, estimate_nnz, leaf
from jitla.introspection import hide_module
from jitla.process.loading import load
from jitla.tracing.frames import call_at, hide_function, place_of, user_frame
from jitla.tracing.lazy import LAZY, LazyArray
from jitla.tracing.sparse.operations import record_sparse_call

# --------------------------------------------------------------------------- when products skip zeros


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


# --------------------------------------------------------------------------- sparsified arrays


PRODUCT_FUNCTIONS = frozenset({operator.matmul, np.matmul, np.dot})
_UFUNCS: dict[Any, np.ufunc] = {
    operator.add: np.add, operator.sub: np.subtract, operator.mul: np.multiply,
    operator.truediv: np.true_divide, operator.floordiv: np.floor_divide, operator.mod: np.remainder,
    operator.pow: np.power, operator.lt: np.less, operator.le: np.less_equal, operator.gt: np.greater,
    operator.ge: np.greater_equal, operator.eq: np.equal, operator.ne: np.not_equal,
    operator.neg: np.negative, operator.pos: np.positive, operator.abs: np.absolute,
    abs: np.absolute,
}
_NUMBERS = (int, float, np.number, np.bool_)


class Sparsified:
    """A proxy of an array; `rows` holds its elements other than 0.0 until the array may be written.

    A read-only one has its array from the start. Others make it at the first request, whose caller may write
    to it: then the rows are dropped.
    """

    __slots__ = ("_rows", "_array", "_is_read_only", "_max_magnitude", "__weakref__")
    __array_priority__ = 1e5
    ndim = 2

    def __init__(self, rows: Rows, array: np.ndarray | None = None) -> None:
        self._rows = rows
        self._array = array
        self._is_read_only = array is not None
        self._max_magnitude: float | None = None

    @property
    def __class__(self) -> type:
        return np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return tuple(self._rows.shape if self._array is None else self._array.shape)

    @property
    def dtype(self) -> np.dtype:
        """Dtype of the array."""
        dtype: np.dtype = self._rows.dtype if self._array is None else self._array.dtype
        return dtype

    @property
    def T(self) -> Any:
        """The transposed matrix."""
        if not self._is_read_only or self._array is None:
            return array_of(self).T
        return Sparsified(self._rows.T, self._array.T)

    def dot(self, other: Any) -> Any:
        """Return the dot product with `other`."""
        return _apply(np.dot, self, other)

    def __getattr__(self, name: str) -> Any:
        return getattr(array_of(self), name)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(array_of(self), dtype, copy=copy)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if method == "__call__" and not options:
            return _apply(ufunc, *inputs)
        return _call_numpy(getattr(ufunc, method), inputs, options)

    def __array_function__(self, function: Any, types: Any, args: tuple, options: dict) -> Any:
        if function is np.dot and len(args) == 2 and not options:
            return _apply(function, *args)
        return _call_numpy(function, args, options)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return array_of(self).__reduce_ex__(protocol)


def array_of(x: Sparsified) -> np.ndarray:
    """Return the dense array of a proxy, made at the first request; the rows are dropped then."""
    if x._array is None:
        x._array = _to_dense(x._rows)
        x._rows = None
    return x._array


def _to_dense(rows: Rows) -> np.ndarray:
    """Return the dense array of stored elements; stored zeros keep their signs."""
    if rows.format == "csc":
        return _to_dense(rows.T).T
    dense = np.zeros(rows.shape, rows.dtype)
    dense[np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr)), rows.indices] = rows.data
    return dense


# --------------------------------------------------------------------------- outside of sessions


def _apply(function: Any, *operands: Any) -> Any:
    """Apply an operation to stored elements if that is equivalent and pays, else to arrays."""
    for each in operands:
        if type(each) in LAZY:
            return apply_in_session(each._s, function, operands, {})
    if function in PRODUCT_FUNCTIONS and len(operands) == 2:
        result = _product(*operands)
    else:
        ufunc = function if type(function) is np.ufunc else _UFUNCS.get(function)
        result = NotImplemented if ufunc is None else _map_stored(ufunc, operands)
    return _call_numpy(function, operands, {}) if result is NotImplemented else result


def _call_numpy(function: Any, args: tuple, options: dict[str, Any]) -> Any:
    """Call `function` with dense arrays, as if from the user's line."""
    user_line = place_of(user_frame())
    return call_at(user_line, function, _to_arrays(args), {k: _to_arrays(v) for k, v in options.items()})


def _to_arrays(value: Any) -> Any:
    """Replace proxies by dense arrays, in lists and tuples too."""
    kind = type(value)
    if kind is Sparsified:
        return array_of(value)
    if kind in (list, tuple) and any(type(v) in (Sparsified, list, tuple) for v in value):
        return kind(map(_to_arrays, value))
    return value


# --------------------------------------------------------------------------- on stored elements


def _product(x: Any, y: Any) -> Any:
    """Multiply stored elements; NotImplemented if that is slower or could differ."""
    if type(x) is type(y):
        return _multiply_sparse(x, y)
    left = type(x) is Sparsified
    pair = _factors(x, y, traced=False)
    return NotImplemented if pair is None else multiply_stored(*pair, left)


def _factors(x: Any, y: Any, traced: bool) -> tuple[Rows, np.ndarray] | None:
    """Return rows and array to multiply; None if zeros cannot be skipped."""
    left = type(x) is Sparsified
    factor = _factor(x if left else y)
    return None if factor is None else zero_skipping_factors(factor, y if left else x, left, traced)


def _factor(x: Sparsified) -> Factor | None:
    if x._rows is None:
        return None
    if x._max_magnitude is None:
        x._max_magnitude = max_magnitude(x._rows.data)
    return x._rows, x._max_magnitude


def _multiply_sparse(x: Sparsified, y: Sparsified) -> Any:
    """Multiply stored elements of both factors; the result is a dense array if it has many nonzeros."""
    a, b = _factor(x), _factor(y)
    rows = None if a is None or b is None else product_of_sparse(a, b)
    if rows is None:
        return NotImplemented
    product = Sparsified(rows)
    return product if skipping_pays(rows.shape[0] * rows.shape[1], rows.nnz, 1) else array_of(product)


def _map_stored(ufunc: np.ufunc, operands: tuple[Any, ...]) -> Any:
    """Apply `ufunc` to stored elements and numbers if it maps 0.0 to 0.0 without a warning."""
    positions = [i for i, each in enumerate(operands) if type(each) is Sparsified]
    if len(positions) != 1 or ufunc.nout != 1 or ufunc.nin != len(operands) or \
            operands[positions[0]]._rows is None:
        return NotImplemented
    if any(not isinstance(v, _NUMBERS) for i, v in enumerate(operands) if i != positions[0]):
        return NotImplemented
    rows = operands[positions[0]]._rows
    try:
        with np.errstate(all="raise"):
            zero_result = ufunc(*_with_operand(operands, positions[0], np.zeros(1, rows.dtype)))
            # A warning is left to the call with the dense array, at the user's line.
            data = ufunc(*_with_operand(operands, positions[0], rows.data))
    except (FloatingPointError, OverflowError):
        return NotImplemented
    if zero_result.dtype.kind not in "bf" or any(zero_result.tobytes()):
        return NotImplemented
    return Sparsified(type(rows)((data, rows.indices, rows.indptr), shape=rows.shape))


def _with_operand(operands: tuple[Any, ...], position: int, value: Any) -> tuple[Any, ...]:
    return (*operands[:position], value, *operands[position + 1:])


# --------------------------------------------------------------------------- in a session


def apply_in_session(session: Any, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Apply an operation with a `Sparsified` operand in a session; NotImplemented if there is none."""
    if not any(type(a) is Sparsified for a in args):
        return NotImplemented
    if kwargs or not (function in PRODUCT_FUNCTIONS or function in _UFUNCS or type(function) is np.ufunc):
        return NotImplemented
    if function in PRODUCT_FUNCTIONS and len(args) == 2:
        result = _record_product(session, args)
    elif any(type(a) in LAZY for a in args):
        result = NotImplemented
    else:
        ufunc = function if type(function) is np.ufunc else _UFUNCS[function]
        result = _map_stored(ufunc, args)
    if result is NotImplemented:
        argument = session.boundary.argument
        return function(*(argument(array_of(a)) if type(a) is Sparsified else a for a in args))
    return result


def _record_product(session: Any, args: tuple[Any, ...]) -> Any:
    """Record a product of stored elements; the other factor is computed, as it has to be finite."""
    if session.site.bitwise:
        return NotImplemented
    x, y = args
    if type(x) is LazyArray:
        x = session.closer.value(x)
    if type(y) is LazyArray:
        y = session.closer.value(y)
    if type(x) is type(y):
        return _multiply_sparse(x, y)
    pair = _factors(x, y, traced=True)
    if pair is None:
        return NotImplemented
    left, (rows, other) = type(x) is Sparsified, pair
    if other is (y if left else x) and has_loops(other, left):
        product = record_sparse_call(
            session, operator.matmul, (rows if left else rows.T, session.boundary.argument(other)), {})
        if product is not NotImplemented:
            return product
    return session.boundary.result(multiply_stored(rows, other, left), (), ())


# --------------------------------------------------------------------------- operators


def _operator(function: Callable[..., Any], reflected: bool = False) -> Callable[..., Any]:
    def method(self: Sparsified, *others: Any) -> Any:
        return _apply(function, *others, self) if reflected else _apply(function, self, *others)

    return method


def _install_operators() -> None:
    for name in ("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow"):
        function = getattr(operator, name)
        setattr(Sparsified, f"__{name}__", _operator(function))
        setattr(Sparsified, f"__r{name}__", _operator(function, True))
        setattr(Sparsified, f"__i{name}__", _operator(getattr(operator, f"i{name}")))
    for name in ("lt", "le", "gt", "ge", "eq", "ne", "neg", "pos", "abs", "getitem", "setitem",
                 "contains"):
        setattr(Sparsified, f"__{name}__", _operator(getattr(operator, name)))
    builtins: dict[str, Callable[..., Any]] = {
        "bool": bool, "len": len, "iter": iter, "repr": repr, "str": str, "hash": hash, "divmod": divmod,
        "float": float, "int": int, "complex": complex,
    }
    for name, function in builtins.items():
        setattr(Sparsified, f"__{name}__", _operator(function))


_install_operators()


_BITS = {np.dtype(np.float32): np.int32, np.dtype(np.float64): np.int64}
MIN_ELEMENTS = 1 << 16  # a smaller product takes as long as the decision
MAX_INT32_ELEMENTS = 1 << 31  # elements that int32 can index


def sparsify(x: Any) -> Any:
    """Return a proxy of a copy of `x` if a product with a vector is faster without its zeros; else `x`."""
    if type(x) is Sparsified:
        return x
    if not isinstance(x, np.ndarray):
        raise TraceError(f"sparsify needs an ndarray, not {type(x).__name__}")
    if type(x) is not np.ndarray or x.ndim != 2 or x.dtype not in _BITS or x.size < MIN_ELEMENTS:
        return x
    if x.flags.f_contiguous:
        rows = sparsified_rows(x.T)
        return x if rows is None else rows.T
    rows = sparsified_rows(x)
    return x if rows is None else rows


def sparsified_rows(x: np.ndarray) -> Sparsified | None:
    """Return a proxy of a copy of `x`; None if it is too dense or not finite."""
    bits = x.view(_BITS[x.dtype])  # -0.0 is stored
    if not skipping_pays(x.size, int(np.count_nonzero(bits)), 1, loops=True):
        return None
    positions = np.nonzero(bits)
    data = x[positions]
    if not np.isfinite(data).all():
        return None
    if x.size < MAX_INT32_ELEMENTS:  # narrow indices are read faster
        positions = tuple(each.astype(np.int32) for each in positions)
    rows = load("scipy.sparse").csr_array((data, positions), shape=x.shape)
    copy = np.zeros(x.shape, x.dtype)  # untouched zero pages take no memory
    copy[positions] = data
    copy.flags.writeable = False
    return Sparsified(rows, copy.view())  # a view of read-only memory stays read-only


hide_module(__name__, hide_function)
