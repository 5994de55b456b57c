"""Handlers that record calls of NumPy functions: reductions, comparisons, reshape, take, compositions.

Composed functions are those that NumPy implements in Python: statistics, polynomials, selections, NaN
reductions. Each handler repeats the operations of NumPy's implementation in its order: results have the same
bits.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from inspect import Parameter, signature
from math import isfinite
from typing import Any

import numpy as np

from jitla.tracing.frames import call_here
from jitla.tracing.gather import GATHERS
from jitla.tracing.lazy import (
    LAZY,
    ORDERED_REDUCTIONS,
    LazyArray,
    LazyScalar,
    append_entry,
    is_chunked,
)
from jitla.tracing.numpy_api.linalg import ARRAY_FUNCTIONS, CONTRACTIONS, axes_of, float_array
from jitla.tracing.tape import TRACED

# ----------------------------------------------------------------- functions that NumPy implements in Python


Session = Any  # the session that the arguments belong to
_NONE: Any = np._NoValue  # what NumPy's signatures use for "not given"
MAX_TERMS = 32  # coefficients of a polynomial, or choices of `select`
_PYTHON_NUMBERS = (int, float, complex)  # Python scalars, whose dtype depends on the other operands


def plain_float_array(session: Session, x: Any) -> Any:
    """Return the proxy of a non-empty array of floats without zero strides; None for anything else.

    A copy of such an array has the same memory layout.
    """
    array = float_array(session, x)
    if array is None or not array.size or array._v is not None and 0 in array._v.strides:
        return None
    return array


def _is_c_contiguous(session: Session, array: LazyArray) -> bool:
    """Return whether an array is certainly C-contiguous."""
    if array._v is not None:
        return bool(array._v.flags.c_contiguous)
    return bool(session.tape.is_in_c_order(array._n))


def evaluate(session: Session, *proxies: Any) -> list[Any]:
    """Return the values of proxies, computed in one pass."""
    return [session.closer.value(p) if type(p) in LAZY else p for p in proxies]


# ------------------------------------------------------------------ statistics and polynomials


def _average(session: Session, a: Any, axis: Any = None, weights: Any = None, returned: Any = False, *,
             keepdims: Any = _NONE) -> Any:
    array = plain_float_array(session, a)
    if array is None or returned is not False or type(keepdims) not in (bool, type(_NONE)):
        return NotImplemented
    axes = axis if type(axis) is tuple else () if axis is None else (axis,)
    if any(type(i) is not int or not -array.ndim <= i < array.ndim for i in axes) or \
            len({i % array.ndim for i in axes}) < len(axes):
        return NotImplemented  # NumPy raises the error
    options = {} if keepdims is _NONE else {"keepdims": keepdims}
    if weights is None:
        return np.mean(array, axis=axis, **options)
    factors = plain_float_array(session, weights)
    if factors is None or factors.dtype != array.dtype:
        return NotImplemented
    if factors.shape != array.shape:
        if factors.ndim != 1 or type(axis) is not int or not 0 <= axis < array.ndim or \
                factors.shape[0] != array.shape[axis]:
            return NotImplemented
        factors = factors[tuple(slice(None) if i == axis else None for i in range(array.ndim))]
    scale, total = evaluate(session, np.sum(factors, axis=axis, **options),
                            np.sum(array * factors, axis=axis, **options))
    if np.any(scale == 0.0):
        return NotImplemented
    return session.boundary.wrap(total / scale)


def _cov(session: Session, m: Any, y: Any = None, rowvar: Any = True, bias: Any = False, ddof: Any = None,
         fweights: Any = None, aweights: Any = None, *, dtype: Any = None) -> Any:
    """Record the covariance of the rows or columns of one matrix, by one product, or of two vectors."""
    plain = (type(rowvar) is bool and bias is False and dtype is None
             and ddof is None and fweights is None and aweights is None)
    array = plain_float_array(session, m) if plain else None
    if array is None or array.dtype != np.float64:
        return NotImplemented
    if y is not None:
        return _cov_of_two(session, array, y)
    if array.ndim != 2 or min(array.shape) < 2:
        return NotImplemented
    rows: Any = array if rowvar else array.T
    centred = rows - np.mean(rows, axis=1)[:, None]
    return np.dot(centred, centred.T) * np.true_divide(1, rows.shape[1] - 1)


def _cov_of_two(session: Session, x: Any, y: Any) -> Any:
    """Record the covariance of two vectors: all products in one pass.

    NumPy computes them by one call that warns once; where a result is not finite, that call is made here.
    """
    other = plain_float_array(session, y)
    if other is None or other.dtype != x.dtype or x.ndim != 1 or other.shape != x.shape or x.size < 2:
        return NotImplemented
    u, v = x - np.mean(x), other - np.mean(other)
    uu, uv, vv = evaluate(session, *(
        session.recorder.record_product("vdot", *pair) for pair in ((u, u), (u, v), (v, v))))
    covariances = np.array([[uu, uv], [uv, vv]])
    if not np.isfinite(covariances).all():
        rows = np.array(evaluate(session, x, other))
        with np.errstate(all="ignore"):  # these operations have already warned
            rows -= np.average(rows, axis=1)[:, None]
        covariances = call_here(np.dot, rows, rows.T)
    return session.boundary.wrap(covariances * np.true_divide(1, x.size - 1))


def _corrcoef(session: Session, x: Any, y: Any = None, rowvar: Any = True, *, dtype: Any = None) -> Any:
    """Divide covariances by the standard deviations of their diagonal, in place and in NumPy's order."""
    result = _cov(session, x, y, rowvar, dtype=dtype)
    if result is NotImplemented:
        return result
    (correlations,) = evaluate(session, result)
    spread = np.sqrt(np.diag(correlations))
    correlations /= spread[:, None]
    correlations /= spread[None, :]
    np.clip(correlations, -1, 1, out=correlations)
    return session.boundary.wrap(correlations)


def _polyval(session: Session, p: Any, x: Any) -> Any:
    """Record Horner's rule. It starts with 0 * x as NumPy's does, so that infinities become NaNs."""
    array = plain_float_array(session, x)
    if array is None or type(p) in (list, tuple) and not LAZY.isdisjoint(map(type, p)):
        return NotImplemented
    (coefficients,) = evaluate(session, p)
    terms = np.asarray(coefficients)
    if terms.ndim != 1 or not 0 < terms.size <= MAX_TERMS or terms.dtype.kind not in "if":
        return NotImplemented
    result = array.dtype.type(0) * array + terms[0]
    for term in terms[1:]:
        result = result * array + term
    return result


def _trapezoid(session: Session, y: Any, x: Any = None, dx: Any = 1.0, axis: Any = -1) -> Any:
    heights = plain_float_array(session, y)
    positions = None if x is None else plain_float_array(session, x)
    if heights is None or heights.ndim != 1 or type(axis) is not int or axis not in (0, -1):
        return NotImplemented
    if x is None and type(dx) not in (int, float):
        return NotImplemented
    if x is not None and (positions is None or positions.shape != heights.shape):
        return NotImplemented
    steps = dx if positions is None else positions[1:] - positions[:-1]
    return np.sum(steps * (heights[1:] + heights[:-1]) / 2.0, axis=0)


# ------------------------------------------------------------------ choices, new arrays, other shapes


def _select(session: Session, condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    if type(condlist) is not list or type(choicelist) is not list or \
            not 0 < len(condlist) == len(choicelist) <= MAX_TERMS:
        return NotImplemented
    conditions = [session.recorder.operand(c) for c in condlist]
    choices = [c if type(c) in _PYTHON_NUMBERS else session.recorder.operand(c)
               for c in (*choicelist, default)]
    first = conditions[0]
    arrays = [c for c in (*conditions, *choices) if type(c) not in _PYTHON_NUMBERS]
    if any(type(c) is not LazyArray or c.shape != first.shape or not c.size or
           not _is_c_contiguous(session, c) for c in arrays) or \
            not first.ndim or any(c.dtype.kind != "b" for c in conditions):
        return NotImplemented
    dtype = np.result_type(*(c if type(c) in _PYTHON_NUMBERS else c.dtype for c in choices))
    if any(type(c) is LazyArray and c.dtype != dtype for c in choices) or not all(
            _fits(c, dtype, "same_kind") for c in choices[:-1]) or not _fits(choices[-1], dtype, "unsafe"):
        return NotImplemented
    *choices, result = [dtype.type(c) if type(c) in _PYTHON_NUMBERS else c for c in choices]
    for condition, choice in zip(reversed(conditions), reversed(choices), strict=True):
        result = np.where(condition, choice, result)
    return result


def _fits(number: Any, dtype: np.dtype, casting: Any) -> bool:
    """Return whether NumPy, which converts a Python number to an array, casts it without changing it."""
    if type(number) not in _PYTHON_NUMBERS:
        return True
    if dtype.kind not in "iufc" or not np.can_cast(np.asarray(number).dtype, dtype, casting):
        return False
    limits = np.iinfo(dtype) if dtype.kind in "iu" else np.finfo(dtype)
    parts = (number,) if type(number) is not complex else (number.real, number.imag)
    return all(limits.min <= n <= limits.max or n != n or abs(n) == np.inf for n in parts)


def _creation_like(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the handler of a function like `zeros_like`, which reads only layout and dtype of an array."""
    def handler(session: Session, a: Any, *args: Any, **options: Any) -> Any:
        array = session.recorder.operand(a)
        if type(array) is not LazyArray or any(type(x) in LAZY for x in (*args, *options.values())):
            return NotImplemented
        if array._v is None and not _is_c_contiguous(session, array):
            return NotImplemented
        form = array._v if array._v is not None else np.broadcast_to(array.dtype.type(0), array.shape)
        order = {} if array._v is not None else {"order": "C"}
        return session.boundary.wrap(function(form, *args, **{**order, **options}))
    return handler


def _squeeze(session: Session, a: Any, axis: Any = None) -> Any:
    array = session.recorder.operand(a)
    if type(array) is not LazyArray or axis is not None or array.size == 1 or 1 not in array.shape:
        return NotImplemented
    return array[tuple(0 if n == 1 else slice(None) for n in array.shape)]


def _flip(axes: tuple[int, ...] | None) -> Callable[..., Any]:
    """Return the handler of `flip` (None), or of `fliplr` and `flipud`, whose axes are fixed."""
    def handler(session: Session, m: Any, axis: Any = None) -> Any:
        array = session.recorder.operand(m)
        if type(array) is not LazyArray or not array.ndim or axes is not None and array.ndim <= axes[0]:
            return NotImplemented
        if axes is None and axis is not None and (
                type(axis) is not int or not -array.ndim <= axis < array.ndim):
            return NotImplemented
        along = axes or (range(array.ndim) if axis is None else (axis % array.ndim,))
        return array[tuple(slice(None, None, -1) if i in along else slice(None) for i in range(array.ndim))]
    return handler


def _vdot(session: Session, a: Any, b: Any, /) -> Any:
    x, y = plain_float_array(session, a), plain_float_array(session, b)
    if x is None or y is None or x.ndim != 1 or x.shape != y.shape or x.dtype != y.dtype:
        return NotImplemented
    return session.recorder.record_product("vdot", x, y)


def _cross(session: Session, a: Any, b: Any, axisa: Any = -1, axisb: Any = -1, axisc: Any = -1,
           axis: Any = None) -> Any:
    """Record the cross products of rows of three elements."""
    x, y = plain_float_array(session, a), plain_float_array(session, b)
    if x is None or y is None or x.dtype != y.dtype or axis not in (None, -1) \
            or (axisa, axisb, axisc) != (-1, -1, -1) or x.ndim != 2 or x.shape != y.shape or x.shape[1] != 3:
        return NotImplemented
    (a0, a1, a2), (b0, b1, b2) = ([v[:, k] for k in range(3)] for v in (x, y))
    result = np.stack([a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0], axis=-1)
    return result[:]  # NumPy's result is a view, too


def _sinc(session: Session, x: Any) -> Any:
    array = plain_float_array(session, x)
    if array is None:
        return NotImplemented
    scaled = np.pi * array
    scaled = np.where(scaled == 0, np.finfo(array.dtype).eps, scaled)
    return np.sin(scaled) / scaled


def _split(session: Session, ary: Any, indices_or_sections: Any, axis: Any = 0) -> Any:
    array = session.recorder.operand(ary)
    if type(array) is not LazyArray or type(axis) is not int or not 0 <= axis < array.ndim:
        return NotImplemented
    length = array.shape[axis]
    if type(indices_or_sections) is int and indices_or_sections > 0 and not length % indices_or_sections:
        step = length // indices_or_sections
        ends = [step * i for i in range(indices_or_sections + 1)]
    elif type(indices_or_sections) in (list, tuple) and all(type(i) is int for i in indices_or_sections):
        ends = [0, *indices_or_sections, length]
    else:
        return NotImplemented
    before = (slice(None),) * axis
    return [array[(*before, slice(a, b))] for a, b in zip(ends, ends[1:], strict=False)]


COMPOSITIONS: dict[Any, Callable[..., Any]] = {
    np.average: _average, np.cov: _cov, np.corrcoef: _corrcoef,
    np.polyval: _polyval,
    np.trapezoid: _trapezoid, np.select: _select,
    np.zeros_like: _creation_like(np.zeros_like), np.ones_like: _creation_like(np.ones_like),
    np.empty_like: _creation_like(np.empty_like), np.full_like: _creation_like(np.full_like),
    np.squeeze: _squeeze, np.flip: _flip(None), np.fliplr: _flip((1,)), np.flipud: _flip((0,)),
    np.vdot: _vdot, np.split: _split, np.cross: _cross, np.sinc: _sinc,
}


def _divide_by_count(total: Any, count: Any) -> Any:
    """Divide as NumPy's NaN-ignoring functions do: in the dtype of the total."""
    with np.errstate(invalid="ignore", divide="ignore"):
        if isinstance(total, np.ndarray):
            return np.divide(total, count, out=total, casting="unsafe")
        return total.dtype.type(total / count)


def _nan_operands(
    session: Session, a: Any, dtype: Any, out: Any, keepdims: Any, more: tuple
) -> Any:
    """Return the array, its NaN mask and the options of its reductions; (None, None, {}) if unsupported."""
    plain = dtype is None and out is None and all(m is _NONE for m in more)
    array = plain_float_array(session, a) if plain and type(keepdims) in (bool, type(_NONE)) else None
    return (None, None, {}) if array is None else (
        array, np.isnan(array), {} if keepdims is _NONE else {"keepdims": keepdims})


def _nansum(session: Session, a: Any, axis: Any = None, dtype: Any = None, out: Any = None,
            keepdims: Any = _NONE, initial: Any = _NONE, where: Any = _NONE) -> Any:
    array, missing, options = _nan_operands(session, a, dtype, out, keepdims, (initial, where))
    if array is None:
        return NotImplemented
    return np.sum(np.where(missing, 0.0, array), axis=axis, **options)


def _nanmean(session: Session, a: Any, axis: Any = None, dtype: Any = None, out: Any = None,
             keepdims: Any = _NONE, *, where: Any = _NONE) -> Any:
    array, missing, options = _nan_operands(session, a, dtype, out, keepdims, (where,))
    if array is None:
        return NotImplemented
    total, count = evaluate(session, np.sum(np.where(missing, 0.0, array), axis=axis, **options),
                            np.sum(~missing, axis=axis, **options))
    if np.any(count == 0):
        return NotImplemented
    return session.boundary.wrap(_divide_by_count(total, count))


def _nanvar(session: Session, a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0,
            keepdims: Any = _NONE, *, where: Any = _NONE, mean: Any = _NONE,
            correction: Any = _NONE) -> Any:
    array, missing, options = _nan_operands(session, a, dtype, out, keepdims, (where, mean, correction))
    if array is None or type(ddof) is not int:
        return NotImplemented
    filled = np.where(missing, 0.0, array)
    total, count = evaluate(session, np.sum(filled, axis=axis, keepdims=True),
                            np.sum(~missing, axis=axis, keepdims=True))
    if np.any(count <= ddof):
        return NotImplemented
    centred = np.where(missing, 0.0, filled - _divide_by_count(total, count))
    (total,) = evaluate(session, np.sum(centred * centred, axis=axis, **options))
    if total.ndim < count.ndim:
        count = count.squeeze(axis)
    return session.boundary.wrap(_divide_by_count(total, count - ddof))


def _nanstd(session: Session, a: Any, *args: Any, **options: Any) -> Any:
    lazy_variance = _nanvar(session, a, *args, **options)
    if lazy_variance is NotImplemented:
        return lazy_variance
    (variance,) = evaluate(session, lazy_variance)
    if isinstance(variance, np.ndarray):
        return session.boundary.wrap(np.sqrt(variance, out=variance))
    return variance.dtype.type(np.sqrt(variance))


def _nan_extreme(name: str, identity: float) -> Callable[..., Any]:
    """Return the handler of `nanmin` or `nanmax`.

    NumPy's choice between zeros of different signs is unspecified: such calls fall back to it.
    """
    def handler(session: Session, a: Any, axis: Any = None, out: Any = None, keepdims: Any = _NONE,
                initial: Any = _NONE, where: Any = _NONE) -> Any:
        array, missing, options = _nan_operands(session, a, None, out, keepdims, (initial, where))
        if array is None:
            return NotImplemented
        function = np.min if name == "min" else np.max
        extreme, all_missing = evaluate(
            session, function(np.where(missing, identity, array), axis=axis, **options),
            np.all(missing, axis=axis, **options))
        if np.any(all_missing) or np.any(extreme == 0) and bool(np.any(np.signbit(array) & (array == 0))):
            return NotImplemented
        return session.boundary.wrap(extreme)
    return handler


def _nan_to_num(session: Session, x: Any, copy: Any = True, nan: Any = 0.0, posinf: Any = None,
                neginf: Any = None) -> Any:
    array = plain_float_array(session, x)
    replacements = [nan, *(v for v in (posinf, neginf) if v is not None)]
    if array is None or copy is not True or any(type(v) not in (int, float) for v in replacements):
        return NotImplemented
    limits = np.finfo(array.dtype)
    scalar = array.dtype.type
    result = np.where(np.isnan(array), scalar(nan), array)
    result = np.where(array == np.inf, scalar(limits.max if posinf is None else posinf), result)
    return np.where(array == -np.inf, scalar(limits.min if neginf is None else neginf), result)


NAN_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.nansum: _nansum, np.nanmean: _nanmean, np.nanvar: _nanvar, np.nanstd: _nanstd,
    np.nanmin: _nan_extreme("min", np.inf), np.nanmax: _nan_extreme("max", -np.inf),
    np.nan_to_num: _nan_to_num,
}


# ------------------------------------------------------------------- functions with an operator of their own


  # the session that the arguments belong to
_NUMBERS = (int, float)
_FLOATS = frozenset("f")
_KINDS = frozenset("biuf")


def _comparison_operand(session: Session, x: Any) -> Any:
    """Return the proxy of an array of real numbers, or a finite Python number; None for anything else."""
    if type(x) in _NUMBERS:
        return x if abs(x) < 2 ** 53 else None
    array = session.recorder.operand(x)
    if type(array) is not LazyArray or array.dtype.kind not in _KINDS or not array.ndim:
        return None
    return array


def _isclose_mask(session: Session, a: Any, b: Any, rtol: Any, atol: Any, equal_nan: Any) -> Any:
    """Record `isclose`. Infinities and possible signalling NaNs are replaced before the difference is taken.

    NumPy ignores the warnings of both.
    """
    x: Any = _comparison_operand(session, a)
    y: Any = _comparison_operand(session, b)
    tolerances = all(type(t) in _NUMBERS and isfinite(t) for t in (rtol, atol))
    if x is None or y is None or type(x) is type(y) is not LazyArray or not tolerances \
            or type(equal_nan) is not bool:
        return NotImplemented
    quiet = x
    if type(x) is LazyArray and x.dtype.kind in _FLOATS:
        quiet = np.where(np.isnan(x), np.nan, x)
    if type(y) in _NUMBERS:
        y = float(y)
        near = np.abs(quiet - y) <= atol + rtol * abs(y)
    else:
        y = y if y.dtype.kind in _FLOATS else y.astype(np.result_type(y.dtype, 1.0))
        finite = np.isfinite(y)
        finite_y = np.where(finite, y, 0.0)
        near = (np.abs(quiet - finite_y) <= atol + rtol * np.abs(finite_y)) & finite
    mask = near | (x == y)
    if equal_nan and all(type(v) is LazyArray and v.dtype.kind in _FLOATS for v in (x, y)):
        mask = mask | np.isnan(x) & np.isnan(y)
    return mask


def _isclose(session: Session, a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8,
             equal_nan: Any = False) -> Any:
    mask = _isclose_mask(session, a, b, rtol, atol, equal_nan)
    return mask if mask is NotImplemented else mask[:]  # NumPy's result is a view, too


def _allclose(session: Session, a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8,
              equal_nan: Any = False) -> Any:
    mask = _isclose_mask(session, a, b, rtol, atol, equal_nan)
    return mask if mask is NotImplemented else bool(np.all(mask))


def _array_equality(same_shape: bool) -> Callable[..., Any]:
    """Return the handler of `array_equal`, or of `array_equiv`, which broadcasts."""
    def handler(session: Session, a1: Any, a2: Any, equal_nan: Any = False) -> Any:
        x, y = _comparison_operand(session, a1), _comparison_operand(session, a2)
        if type(x) is not LazyArray or type(y) is not LazyArray or equal_nan is not False:
            return NotImplemented
        if x.shape != y.shape:
            return False if same_shape else NotImplemented
        return bool(np.all(x == y))
    return handler


CLOSENESS: dict[Any, Callable[..., Any]] = {
    np.isclose: _isclose, np.allclose: _allclose,
    np.array_equal: _array_equality(True), np.array_equiv: _array_equality(False),
}


_DOUBLE, _WORD = np.dtype(np.float64), np.dtype(np.int64)
_RANGE_TYPES = {_DOUBLE: (int, float, np.float64), np.dtype(np.float32): (int, float)}
_MAX_EXACT_INT = 1 << 53
_UNSAFE_LABEL_CHARS = frozenset("LQ")  # label dtypes that NumPy does not cast to intp safely
MAX_LABELS = 1 << 13  # their sums fit into the L1 cache


def _take(
    session: Session, a: Any, indices: Any, axis: Any = None, out: Any = None, mode: Any = "raise",
) -> Any:
    table, index = session.boundary.plain(a), session.boundary.plain(indices)
    if out is not None or mode != "raise" or not _are_arrays(table, index) or index.dtype == np.uint64:
        return NotImplemented
    if (axis is not None or table.ndim != 1) and (type(axis) is not int or axis != 0):
        return NotImplemented
    if not _has_traced_dtype(table) or not _is_index_array(index) or not index.ndim:
        return NotImplemented
    result = session.site.run_index_loop("take", index.size, table, index)
    return session.boundary.wrap(call_here(np.take, table, index, axis) if result is None else result)


def _bincount(session: Session, x: Any, /, weights: Any = None, minlength: Any = 0) -> Any:
    result = _record_bincount(session, x, weights, minlength)
    if result is not NotImplemented:
        return result
    labels, factors = session.boundary.plain(x), session.boundary.plain(weights)
    if not _are_arrays(labels) or type(minlength) is not int or minlength < 0:
        return NotImplemented
    weighted = _are_arrays(factors) and _has_traced_dtype(factors) and factors.dtype.kind != "c"
    if not _is_index_array(labels) or labels.ndim != 1 or factors is not None and not weighted:
        return NotImplemented
    result = session.site.run_index_loop("bincount", labels.size, labels, factors, minlength)
    if result is None:
        result = call_here(np.bincount, labels, factors, minlength)
    return session.boundary.wrap(result)


def _record_bincount(session: Session, x: Any, weights: Any, minlength: Any) -> Any:
    """Record `bincount` if an operand is still pending; NotImplemented otherwise.

    The number of bins has to be known: the labels are elements of an array in memory, whose bounds are found.
    """
    if type(x) is not LazyArray or x.ndim != 1 or x.dtype.kind not in "iu" or \
            x.dtype.char in _UNSAFE_LABEL_CHARS:
        return NotImplemented
    if type(minlength) is not int or minlength < 0 \
            or x.size < session.site.thresholds.min_deferred_key_elements:
        return NotImplemented
    operands = (x,) if weights is None else (x, weights)
    if any(type(p) is not LazyArray or p.shape != x.shape or p.dtype.kind == "c" for p in operands):
        return NotImplemented
    if all(p._v is not None for p in operands):
        return NotImplemented
    labels = session.tape.source(x)
    if labels is None:
        return NotImplemented
    bounds = session.tape.extremes.get(id(labels)) \
        or session.site.run_index_loop("bounds", labels.size, labels)
    if bounds is None or bounds[0] < 0 or bounds[1] >= max(minlength, MAX_LABELS):
        return NotImplemented
    if bounds[1] >= minlength and labels is not x._v:
        return NotImplemented  # the number of bins depends on which labels are read
    shape = (max(bounds[1] + 1, minlength),)
    result = session.recorder.try_record("bincount", operands, (("shape", shape),))
    if result is not NotImplemented:
        session.tape.extremes[id(labels)] = bounds  # bounds of an array that the tape reads
    return result


def _histogram(
    session: Session, a: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None
) -> Any:
    values, weighted = session.boundary.plain(a), weights is not None or density not in (None, False)
    if weighted or type(bins) is not int or not _are_arrays(values):
        return NotImplemented
    ends = session.boundary.plain(range)
    if ends is not None:
        end_types = _RANGE_TYPES.get(values.dtype, ())
        if type(ends) not in (tuple, list) or len(ends) != 2 or any(type(e) not in end_types for e in ends):
            return NotImplemented
        if any(type(e) is int and not -_MAX_EXACT_INT < e < _MAX_EXACT_INT for e in ends):
            return NotImplemented
    if values.dtype not in _RANGE_TYPES or bins < 1:
        return NotImplemented
    result = session.site.run_index_loop("histogram", values.size, values, bins, ends)
    if result is None:
        result = call_here(np.histogram, values, bins, ends)
    return tuple(map(session.boundary.wrap, result))


def add_at(session: Session, target: Any, index: Any, values: Any) -> bool:
    """Run ``np.add.at(target, index, values)`` by a compiled loop; return False if there is none."""
    memory, positions, addend = map(session.boundary.plain, (target, index, values))
    if not _are_arrays(memory, positions):
        return False
    addends = addend if type(addend) is np.ndarray else _scalar_addend(addend, memory.dtype)
    if addends is None:
        return False
    session.memory.before_write(memory)
    return session.site.run_index_loop("add_at", positions.size, memory, positions, addends) is True


def _scalar_addend(value: Any, dtype: np.dtype) -> np.ndarray | None:
    """Return a number as an array of `dtype` if NumPy would add it in that dtype; else None."""
    kind = type(value)
    if kind is int and dtype in (_DOUBLE, _WORD) and -_MAX_EXACT_INT < value < _MAX_EXACT_INT:
        return np.array(value, dtype)
    return np.array(value, dtype) if dtype == _DOUBLE and kind in (float, np.float64) else None


def _are_arrays(*values: Any) -> bool:
    return all(map(operator.is_, map(type, values), [np.ndarray] * len(values)))


def _has_traced_dtype(array: np.ndarray) -> bool:
    return array.dtype in TRACED


def _is_index_array(array: np.ndarray) -> bool:
    """Return whether an array has integers that convert safely to indices."""
    return array.dtype.kind in "iu" and array.dtype in TRACED and array.dtype != np.uint64


SCATTERS: dict[Any, Callable[..., Any]] = {
    np.take: _take, np.bincount: _bincount, np.histogram: _histogram,
}


# (name, meta id, options) of a reduction -> operator, attributes, meta id of its result.
_reduction_memo: dict[Any, tuple[int, tuple, int]] = {}
_AXIS_TYPES = (type(None), int, tuple)
_MAX_REDUCTION_MEMO = 100_000

_IS_SCALAR = isinstance(np.count_nonzero(np.zeros(1)), np.integer)  # the type of a full count


def clear_reductions() -> None:
    """Clear the memo of reductions: the ids of metas are no longer valid."""
    _reduction_memo.clear()


def reduction(
    session: Session, name: str, a: Any, axis: Any = None, dtype: Any = None, out: Any = None,
    keepdims: Any = False, initial: Any = _NONE, where: Any = _NONE, ddof: Any = None,
) -> Any:
    """Record a reduction; NotImplemented for options that need the NumPy fallback."""
    plain = dtype is None and out is None and initial is _NONE and where is _NONE
    plain = plain and type(axis) in _AXIS_TYPES and type(a) is LazyArray and a._s is session
    key = (name, a._m, axis, keepdims, ddof) if plain else None
    entry_memo = _reduction_memo.get(key)
    if entry_memo is not None and not (name in ORDERED_REDUCTIONS and is_chunked(a)):
        op, attrs, meta = entry_memo
        return append_entry(session, (op, a._n if a._n >= 0 else session.tape.enter(a), attrs), meta)
    result = _checked_reduction(session, name, a, axis, dtype, out, keepdims, initial, where, ddof)
    if plain and result is not NotImplemented and result._v is None:
        entry = session.tape.ops[result._n]
        if len(_reduction_memo) > _MAX_REDUCTION_MEMO:
            _reduction_memo.clear()
        _reduction_memo[key] = (entry[0], entry[-1], result._m)
    return result


def _checked_reduction(
    session: Session, name: str, a: Any, axis: Any, dtype: Any, out: Any, keepdims: Any,
    initial: Any, where: Any, ddof: Any,
) -> Any:
    if dtype is not None or out is not None or initial is not _NONE or where is not _NONE:
        return NotImplemented
    array = session.recorder.operand(a)
    if type(array) is not LazyArray or array.ndim == 0 or name in ORDERED_REDUCTIONS and is_chunked(array):
        return NotImplemented
    axes = axes_of(axis, array.ndim)
    if axes is None:
        return NotImplemented
    keep_dims = False if keepdims is _NONE else keepdims
    if type(keep_dims) is not bool or (name in ("min", "max", "mean", "var", "std") and array.size == 0):
        return NotImplemented
    attrs: tuple = (("axis", axes), ("keepdims", keep_dims))
    if ddof is not None:
        if type(ddof) is not int:
            return NotImplemented
        count = 1
        for i in axes:
            count *= array.shape[i]
        if ddof >= count:
            return NotImplemented
        attrs = (("axis", axes), ("ddof", ddof), ("keepdims", keep_dims))
    return session.recorder.try_record(name, (array,), attrs)


def _sum_like(name: str) -> Callable[..., Any]:
    def handler(session: Session, a: Any, axis: Any = None, dtype: Any = None, out: Any = None,
                keepdims: Any = False, initial: Any = _NONE, where: Any = _NONE) -> Any:
        return reduction(session, name, a, axis, dtype, out, keepdims, initial, where)
    return handler


def _min_like(name: str) -> Callable[..., Any]:
    def handler(session: Session, a: Any, axis: Any = None, out: Any = None, keepdims: Any = False,
                initial: Any = _NONE, where: Any = _NONE) -> Any:
        return reduction(session, name, a, axis, None, out, keepdims, initial, where)
    return handler


def _any_like(name: str) -> Callable[..., Any]:
    def handler(session: Session, a: Any, axis: Any = None, out: Any = None, keepdims: Any = False,
                *, where: Any = _NONE) -> Any:
        return reduction(session, name, a, axis, None, out, keepdims, _NONE, where)
    return handler


def _count_nonzero(session: Session, a: Any, axis: Any = None, *, keepdims: Any = False) -> Any:
    """Record the sum of ``a != 0``; older versions of NumPy return a Python int for a full count."""
    array = session.recorder.operand(a)
    if type(array) is not LazyArray or type(keepdims) is not bool:
        return NotImplemented
    if array._v is not None and axis is not None and 0 in array._v.strides:
        return NotImplemented  # the boolean copy of a repeated axis has another layout
    if array.dtype.kind != "b":
        array = session.recorder.try_record("not_equal", (array, 0))
    elif array._v is not None:
        return NotImplemented  # NumPy counts booleans in memory as fast as it reads them
    if array is NotImplemented:
        return NotImplemented
    total = reduction(session, "sum", array, axis, keepdims=keepdims)
    return total if type(total) is not LazyScalar or axis is not None or _IS_SCALAR else int(total)


def _mean(session: Session, a: Any, axis: Any = None, dtype: Any = None, out: Any = None,
          keepdims: Any = False, *, where: Any = _NONE) -> Any:
    return reduction(session, "mean", a, axis, dtype, out, keepdims, _NONE, where)


def _var_like(name: str) -> Callable[..., Any]:
    def handler(session: Session, a: Any, axis: Any = None, dtype: Any = None, out: Any = None,
                ddof: Any = 0, keepdims: Any = False, *, where: Any = _NONE) -> Any:
        return reduction(session, name, a, axis, dtype, out, keepdims, _NONE, where, ddof)
    return handler


def _arg_like(name: str) -> Callable[..., Any]:
    def handler(session: Session, a: Any, axis: Any = None, out: Any = None,
                *, keepdims: Any = False) -> Any:
        array = session.recorder.operand(a)
        keep_dims = False if keepdims is _NONE else keepdims
        if out is not None or type(array) is not LazyArray or array.size == 0 or type(keep_dims) is not bool:
            return NotImplemented
        if axis is not None and (type(axis) is not int or not -array.ndim <= axis < array.ndim):
            return NotImplemented
        normal = axis if axis is None else axis % array.ndim
        return session.recorder.try_record(name, (array,), (("axis", normal), ("keepdims", keep_dims)))
    return handler


def _array_result(result: Any) -> Any:
    """Return a recorded array; NotImplemented for a scalar, where NumPy returns a 0-d array."""
    return NotImplemented if type(result) is LazyScalar else result


def _where(session: Session, condition: Any, x: Any = _NONE, y: Any = _NONE, /) -> Any:
    if x is _NONE or y is _NONE:
        return NotImplemented
    return _array_result(session.recorder.try_record("where", (condition, x, y)))


def _clip(session: Session, a: Any, a_min: Any = None, a_max: Any = None, out: Any = None) -> Any:
    if a_min is None or a_max is None or out is not None or any(map(_has_repeated_axis, (a, a_min, a_max))):
        return NotImplemented
    result = session.recorder.try_record("clip", (a, a_min, a_max))
    if type(result) is LazyArray and result.dtype.kind == "f" and any(
            _is_elementwise_bound(session.recorder.operand(bound), result) for bound in (a_min, a_max)):
        # Of equal zeros the bound's sign wins here. Without casts each pair would be promoted alone.
        x, low, high = (_cast_like(session, each, result) for each in (a, a_min, a_max))
        record = session.recorder.try_record
        return record("minimum", (record("maximum", (x, low)), high))
    return result


def _cast_like(session: Session, x: Any, result: LazyArray) -> Any:
    """Return an operand cast to the dtype of the result; Python scalars stay as they are."""
    operand = session.recorder.operand(x)
    if type(operand) not in LAZY or operand.dtype == result.dtype:
        return x
    return session.recorder.try_record("cast", (x,), (("dtype", result.dtype),))


def _has_repeated_axis(x: Any) -> bool:
    """Return whether `x` has a zero stride, so that other operands decide the layout of a result."""
    return type(x) is LazyArray and x._v is not None and x._v.ndim > 1 and any(
        by == 0 and n > 1 for by, n in zip(x._v.strides, x._v.shape, strict=True))


def _is_elementwise_bound(bound: Any, result: LazyArray) -> bool:
    """Return whether a bound of `clip` is read elementwise; NumPy has a separate loop for scalar bounds."""
    return type(bound) is LazyArray and bound.ndim > 0 and (bound.size > 1 or result.size == 1)


def _dot(session: Session, a: Any, b: Any, out: Any = None) -> Any:
    return NotImplemented if out is not None else session.recorder.record_product("dot", a, b)


def _concatenate(session: Session, arrays: Any, /, axis: Any = 0, out: Any = None) -> Any:
    if out is not None or type(arrays) not in (list, tuple) or type(axis) is not int or not arrays:
        return NotImplemented
    operands = [session.recorder.operand(a) for a in arrays]
    if any(type(a) is not LazyArray for a in operands):
        return NotImplemented
    ndim = operands[0].ndim
    if any(a.ndim != ndim for a in operands) or not -ndim <= axis < ndim:
        return NotImplemented
    return session.recorder.try_record("concatenate", tuple(operands), (("axis", axis % ndim),))


def _transpose(session: Session, a: Any, axes: Any = None, *more: Any) -> Any:
    """Record the function, or the method, which also takes axes as separate arguments."""
    array = session.recorder.operand(a)
    if type(array) is not LazyArray:
        return NotImplemented
    axes = (axes, *more) if more or type(axes) is int else axes
    return session.reader.view(array, "transpose", () if axes is None else (tuple(axes),))


def _reshape(session: Session, a: Any, *shape: Any, **options: Any) -> Any:
    array = session.recorder.operand(a)
    if type(array) is not LazyArray or options or not shape:
        return NotImplemented
    return session.reader.view(array, "reshape", shape)


def _astype(session: Session, a: Any, dtype: Any, **options: Any) -> Any:
    array = session.recorder.operand(a)
    wanted = np.dtype(dtype)
    if options or type(array) is not LazyArray or wanted not in TRACED or wanted == array.dtype:
        return NotImplemented
    if array.dtype.kind == "c" and wanted.kind not in "bc":
        return NotImplemented  # NumPy warns about the discarded imaginary part, at the user's line
    if array._v is not None and 0 in array._v.strides:
        return NotImplemented  # a copy of a repeated axis has another layout than a ufunc's result
    return _array_result(session.recorder.try_record("cast", (array,), (("dtype", wanted),)))


def _part(name: str) -> Callable[..., Any]:
    def handler(session: Session, val: Any) -> Any:
        array = session.recorder.operand(val)
        return session.reader.complex_part(array, name) if type(array) is LazyArray else NotImplemented
    return handler


def _conjugate(session: Session, a: Any, *args: Any, **options: Any) -> Any:
    """Record the method; of a real array it returns the array itself."""
    if args or options or type(a) is not LazyArray:
        return NotImplemented
    return np.conjugate(a) if a.dtype.kind == "c" else a


def _angle(session: Session, z: Any, deg: Any = False) -> Any:
    array = session.recorder.operand(z)
    if deg is not False or type(array) is not LazyArray or array.dtype.kind != "c":
        return NotImplemented
    return np.arctan2(session.reader.complex_part(array, "imag"), session.reader.complex_part(array, "real"))


def _is_complex(wanted: bool) -> Callable[..., Any]:
    def handler(session: Session, x: Any) -> Any:
        return (x.dtype.kind == "c") is wanted if type(x) in LAZY else NotImplemented
    return handler


def _shape(session: Session, a: Any) -> Any:
    return a.shape if type(a) in LAZY else NotImplemented


FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.sum: _sum_like("sum"), np.prod: _sum_like("prod"), np.min: _min_like("min"),
    np.max: _min_like("max"), np.amin: _min_like("min"), np.amax: _min_like("max"),
    np.any: _any_like("any"), np.all: _any_like("all"), np.mean: _mean, np.var: _var_like("var"),
    np.std: _var_like("std"), np.argmin: _arg_like("argmin"), np.argmax: _arg_like("argmax"),
    np.where: _where, np.clip: _clip, np.dot: _dot, np.concatenate: _concatenate,
    np.transpose: _transpose, np.reshape: _reshape, np.shape: _shape, np.ndarray.astype: _astype,
    np.real: _part("real"), np.imag: _part("imag"), np.angle: _angle, np.ndarray.conj: _conjugate,
    np.ndarray.conjugate: _conjugate, np.iscomplexobj: _is_complex(True),
    np.isrealobj: _is_complex(False), np.count_nonzero: _count_nonzero,
    **ARRAY_FUNCTIONS, **CONTRACTIONS, **SCATTERS, **GATHERS, **COMPOSITIONS, **NAN_FUNCTIONS, **CLOSENESS,
}
# Functions that always write to their first argument.
MUTATING = frozenset({np.copyto, np.put, np.place, np.putmask, np.fill_diagonal, np.put_along_axis})
_DESTINATION = ("dst", "a", "arr")
_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_output_positions: dict[Any, int] = {}
_MAX_OUTPUT_POSITIONS = 1000


def written_arrays(func: Any, args: tuple, kwargs: dict) -> list[np.ndarray]:
    """Return the arrays that a call of a NumPy function may write to; `args` contain no proxies."""
    candidates: list[Any] = list(args[_first_output_position(func):])
    out = kwargs.get("out")
    candidates += out if type(out) is tuple else (out,)
    overwrites = kwargs.get("overwrite_input") or (func is np.nan_to_num and (args[1:] or kwargs))
    if func in MUTATING or overwrites or getattr(func, "__name__", "") == "at":
        candidates.append(args[0] if args else next((kwargs[k] for k in _DESTINATION if k in kwargs), None))
    return [array for array in candidates if isinstance(array, np.ndarray)]


def _first_output_position(func: Any) -> int:
    """Return the position of the first argument that may be an output array."""
    if isinstance(func, np.ufunc):
        return int(func.nin)
    position = _output_positions.get(func)
    if position is None:
        try:
            names = [p.name for p in signature(func).parameters.values() if p.kind in _POSITIONAL]
        except (TypeError, ValueError):
            names = ["", "", "out"]  # functions without a signature have no output before that
        position = names.index("out") if "out" in names else len(names) + 255
        if len(_output_positions) > _MAX_OUTPUT_POSITIONS:  # the keys keep functions alive
            _output_positions.clear()
        _output_positions[func] = position
    return position


METHOD_NAMES = {
    np.sum: "sum", np.prod: "prod", np.min: "min", np.max: "max", np.any: "any", np.all: "all",
    np.mean: "mean", np.var: "var", np.std: "std", np.argmin: "argmin", np.argmax: "argmax",
    np.clip: "clip", np.cumsum: "cumsum", np.cumprod: "cumprod", np.dot: "dot", np.transpose: "transpose",
    np.reshape: "reshape", np.round: "round", np.take: "take", np.trace: "trace", np.diagonal: "diagonal",
    np.ravel: "ravel",
    np.ndarray.astype: "astype", np.ndarray.conj: "conj", np.ndarray.conjugate: "conjugate",
}
