"""NumPy functions composed of recorded operators: statistics, polynomials, selections, NaN reductions.

Each handler repeats the operations of NumPy's Python implementation in its order: results have the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from jitla.tracing.lazy import LAZY, LazyArray
from jitla.tracing.numpy_api.linalg import float_array

Session = Any  # the session that the arguments belong to
_NONE: Any = np._NoValue  # what NumPy's signatures use for "not given"
MAX_TERMS = 32  # coefficients of a polynomial, or choices of `select`
_NUMBERS = (int, float, complex)  # Python scalars, whose dtype depends on the other operands


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
    return bool(session.is_in_c_order(array._n))


def evaluate(session: Session, *proxies: Any) -> list[Any]:
    """Return the values of proxies, computed in one pass."""
    return [session.value(p) if type(p) in LAZY else p for p in proxies]


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
    return session.wrap(total / scale)


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
        session.record_product("vdot", *pair) for pair in ((u, u), (u, v), (v, v))))
    covariances = np.array([[uu, uv], [uv, vv]])
    if not np.isfinite(covariances).all():
        rows = np.array(evaluate(session, x, other))
        with np.errstate(all="ignore"):  # these operations have already warned
            rows -= np.average(rows, axis=1)[:, None]
        covariances = session.call_at_user_line(np.dot, rows, rows.T)
    return session.wrap(covariances * np.true_divide(1, x.size - 1))


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
    return session.wrap(correlations)


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
    conditions = [session.operand(c) for c in condlist]
    choices = [c if type(c) in _NUMBERS else session.operand(c) for c in (*choicelist, default)]
    first = conditions[0]
    arrays = [c for c in (*conditions, *choices) if type(c) not in _NUMBERS]
    if any(type(c) is not LazyArray or c.shape != first.shape or not c.size or
           not _is_c_contiguous(session, c) for c in arrays) or \
            not first.ndim or any(c.dtype.kind != "b" for c in conditions):
        return NotImplemented
    dtype = np.result_type(*(c if type(c) in _NUMBERS else c.dtype for c in choices))
    if any(type(c) is LazyArray and c.dtype != dtype for c in choices) or not all(
            _fits(c, dtype, "same_kind") for c in choices[:-1]) or not _fits(choices[-1], dtype, "unsafe"):
        return NotImplemented
    *choices, result = [dtype.type(c) if type(c) in _NUMBERS else c for c in choices]
    for condition, choice in zip(reversed(conditions), reversed(choices), strict=True):
        result = np.where(condition, choice, result)
    return result


def _fits(number: Any, dtype: np.dtype, casting: Any) -> bool:
    """Return whether NumPy, which converts a Python number to an array, casts it without changing it."""
    if type(number) not in _NUMBERS:
        return True
    if dtype.kind not in "iufc" or not np.can_cast(np.asarray(number).dtype, dtype, casting):
        return False
    limits = np.iinfo(dtype) if dtype.kind in "iu" else np.finfo(dtype)
    parts = (number,) if type(number) is not complex else (number.real, number.imag)
    return all(limits.min <= n <= limits.max or n != n or abs(n) == np.inf for n in parts)


def _creation_like(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the handler of a function like `zeros_like`, which reads only layout and dtype of an array."""
    def handler(session: Session, a: Any, *args: Any, **options: Any) -> Any:
        array = session.operand(a)
        if type(array) is not LazyArray or any(type(x) in LAZY for x in (*args, *options.values())):
            return NotImplemented
        if array._v is None and not _is_c_contiguous(session, array):
            return NotImplemented
        form = array._v if array._v is not None else np.broadcast_to(array.dtype.type(0), array.shape)
        order = {} if array._v is not None else {"order": "C"}
        return session.wrap(function(form, *args, **{**order, **options}))
    return handler


def _squeeze(session: Session, a: Any, axis: Any = None) -> Any:
    array = session.operand(a)
    if type(array) is not LazyArray or axis is not None or array.size == 1 or 1 not in array.shape:
        return NotImplemented
    return array[tuple(0 if n == 1 else slice(None) for n in array.shape)]


def _flip(axes: tuple[int, ...] | None) -> Callable[..., Any]:
    """Return the handler of `flip` (None), or of `fliplr` and `flipud`, whose axes are fixed."""
    def handler(session: Session, m: Any, axis: Any = None) -> Any:
        array = session.operand(m)
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
    return session.record_product("vdot", x, y)


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
    array = session.operand(ary)
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
    session: Session, a: Any, axis: Any, dtype: Any, out: Any, keepdims: Any, more: tuple
) -> Any:
    """Return the array, its NaN mask and the options of its reductions; (None, None, {}) if unsupported."""
    plain = dtype is None and out is None and all(m is _NONE for m in more)
    array = plain_float_array(session, a) if plain and type(keepdims) in (bool, type(_NONE)) else None
    return (None, None, {}) if array is None else (
        array, np.isnan(array), {} if keepdims is _NONE else {"keepdims": keepdims})


def _nansum(session: Session, a: Any, axis: Any = None, dtype: Any = None, out: Any = None,
            keepdims: Any = _NONE, initial: Any = _NONE, where: Any = _NONE) -> Any:
    array, missing, options = _nan_operands(session, a, axis, dtype, out, keepdims, (initial, where))
    if array is None:
        return NotImplemented
    return np.sum(np.where(missing, 0.0, array), axis=axis, **options)


def _nanmean(session: Session, a: Any, axis: Any = None, dtype: Any = None, out: Any = None,
             keepdims: Any = _NONE, *, where: Any = _NONE) -> Any:
    array, missing, options = _nan_operands(session, a, axis, dtype, out, keepdims, (where,))
    if array is None:
        return NotImplemented
    total, count = evaluate(session, np.sum(np.where(missing, 0.0, array), axis=axis, **options),
                            np.sum(~missing, axis=axis, **options))
    if np.any(count == 0):
        return NotImplemented
    return session.wrap(_divide_by_count(total, count))


def _nanvar(session: Session, a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0,
            keepdims: Any = _NONE, *, where: Any = _NONE, mean: Any = _NONE,
            correction: Any = _NONE) -> Any:
    array, missing, options = _nan_operands(session, a, axis, dtype, out, keepdims, (where, mean, correction))
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
    return session.wrap(_divide_by_count(total, count - ddof))


def _nanstd(session: Session, a: Any, *args: Any, **options: Any) -> Any:
    lazy_variance = _nanvar(session, a, *args, **options)
    if lazy_variance is NotImplemented:
        return lazy_variance
    (variance,) = evaluate(session, lazy_variance)
    if isinstance(variance, np.ndarray):
        return session.wrap(np.sqrt(variance, out=variance))
    return variance.dtype.type(np.sqrt(variance))


def _nan_extreme(name: str, identity: float) -> Callable[..., Any]:
    """Return the handler of `nanmin` or `nanmax`.

    NumPy's choice between zeros of different signs is unspecified: such calls fall back to it.
    """
    def handler(session: Session, a: Any, axis: Any = None, out: Any = None, keepdims: Any = _NONE,
                initial: Any = _NONE, where: Any = _NONE) -> Any:
        array, missing, options = _nan_operands(session, a, axis, None, out, keepdims, (initial, where))
        if array is None:
            return NotImplemented
        function = np.min if name == "min" else np.max
        extreme, all_missing = evaluate(
            session, function(np.where(missing, identity, array), axis=axis, **options),
            np.all(missing, axis=axis, **options))
        if np.any(all_missing) or np.any(extreme == 0) and bool(np.any(np.signbit(array) & (array == 0))):
            return NotImplemented
        return session.wrap(extreme)
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
