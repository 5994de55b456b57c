"""NumPy functions that are written in Python, and those that ignore missing values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from jitla.tracing.lazy import LAZY, LazyArray
from jitla.tracing.numpy_api.linalg import floats

Session = Any  # the session that the arguments belong to
_NONE: Any = np._NoValue  # what NumPy's signatures use for "not given"
MOST_TERMS = 32  # of a polynomial, and of choices
_NUMBERS = (int, float, complex)  # whose dtype depends on what they meet


def plain_array(session: Session, x: Any) -> Any:
    """Return the proxy of an array of floats whose copies lie as it does; None for anything else."""
    array = floats(session, x)
    if array is None or not array.size or array._v is not None and 0 in array._v.strides:
        return None
    return array


def _in_order(session: Session, array: LazyArray) -> bool:
    """Tell whether an array is sure to lie in memory in the order of its axes."""
    if array._v is not None:
        return bool(array._v.flags.c_contiguous)
    return bool(session.lies_in_order(array._n))


def values(session: Session, *proxies: Any) -> list[Any]:
    """Return what proxies mean; one pass makes them all."""
    return [session.value(p) if type(p) in LAZY else p for p in proxies]


# ------------------------------------------------------------------ statistics and polynomials


def _average(session: Session, a: Any, axis: Any = None, weights: Any = None, returned: Any = False, *,
             keepdims: Any = _NONE) -> Any:
    array = plain_array(session, a)
    if array is None or returned is not False or type(keepdims) not in (bool, type(_NONE)):
        return NotImplemented
    given = axis if type(axis) is tuple else () if axis is None else (axis,)
    if any(type(i) is not int or not -array.ndim <= i < array.ndim for i in given) or \
            len({i % array.ndim for i in given}) < len(given):
        return NotImplemented  # NumPy says of which argument it complains
    kept = {} if keepdims is _NONE else {"keepdims": keepdims}
    if weights is None:
        return np.mean(array, axis=axis, **kept)
    given = plain_array(session, weights)
    if given is None or given.dtype != array.dtype:
        return NotImplemented
    if given.shape != array.shape:
        if given.ndim != 1 or type(axis) is not int or not 0 <= axis < array.ndim or \
                given.shape[0] != array.shape[axis]:
            return NotImplemented
        given = given[tuple(slice(None) if i == axis else None for i in range(array.ndim))]
    scale, total = values(session, np.sum(given, axis=axis, **kept), np.sum(array * given, axis=axis, **kept))
    if np.any(scale == 0.0):
        return NotImplemented
    return session.wrap(total / scale)


def _cov(session: Session, m: Any, y: Any = None, rowvar: Any = True, bias: Any = False, ddof: Any = None,
         fweights: Any = None, aweights: Any = None, *, dtype: Any = None) -> Any:
    """Do the covariance of the columns or rows of one matrix, by one product, or of two vectors."""
    plain = (type(rowvar) is bool and bias is False and dtype is None
             and ddof is None and fweights is None and aweights is None)
    array = plain_array(session, m) if plain else None
    if array is None or array.dtype != np.float64:
        return NotImplemented
    if y is not None:
        return _cov_of_two(session, array, y)
    if array.ndim != 2 or min(array.shape) < 2:
        return NotImplemented
    rows: Any = array if rowvar else array.T
    apart = rows - np.mean(rows, axis=1)[:, None]
    return np.dot(apart, apart.T) * np.true_divide(1, rows.shape[1] - 1)


def _cov_of_two(session: Session, x: Any, y: Any) -> Any:
    """Do the covariance of two vectors: all four products in one pass.

    NumPy makes them at once, and warns once of what happens in them: then it does them itself.
    """
    other = plain_array(session, y)
    if other is None or other.dtype != x.dtype or x.ndim != 1 or other.shape != x.shape or x.size < 2:
        return NotImplemented
    one, two = x - np.mean(x), other - np.mean(other)
    squares, both, others = values(session, *(
        session.product("vdot", *pair) for pair in ((one, one), (one, two), (two, two))))
    found = np.array([[squares, both], [both, others]])
    if not np.isfinite(found).all():
        rows = np.array(values(session, x, other))
        with np.errstate(all="ignore"):  # this has been done before
            rows -= np.average(rows, axis=1)[:, None]
        found = session.called(np.dot, rows, rows.T)
    return session.wrap(found * np.true_divide(1, x.size - 1))


def _corrcoef(session: Session, x: Any, y: Any = None, rowvar: Any = True, *, dtype: Any = None) -> Any:
    """Divide covariances by what their diagonal says, as NumPy does in place."""
    made = _cov(session, x, y, rowvar, dtype=dtype)
    if made is NotImplemented:
        return made
    (found,) = values(session, made)
    spread = np.sqrt(np.diag(found))
    found /= spread[:, None]
    found /= spread[None, :]
    np.clip(found, -1, 1, out=found)
    return session.wrap(found)


def _polyval(session: Session, p: Any, x: Any) -> Any:
    """Do Horner's rule, from a zero on: what is infinite makes NaNs as it does for NumPy."""
    array = plain_array(session, x)
    if array is None or type(p) in (list, tuple) and not LAZY.isdisjoint(map(type, p)):
        return NotImplemented
    (known,) = values(session, p)
    terms = np.asarray(known)
    if terms.ndim != 1 or not 0 < terms.size <= MOST_TERMS or terms.dtype.kind not in "if":
        return NotImplemented
    made = array.dtype.type(0) * array + terms[0]
    for term in terms[1:]:
        made = made * array + term
    return made


def _trapezoid(session: Session, y: Any, x: Any = None, dx: Any = 1.0, axis: Any = -1) -> Any:
    heights = plain_array(session, y)
    places = None if x is None else plain_array(session, x)
    if heights is None or heights.ndim != 1 or type(axis) is not int or axis not in (0, -1):
        return NotImplemented
    if x is None and type(dx) not in (int, float):
        return NotImplemented
    if x is not None and (places is None or places.shape != heights.shape):
        return NotImplemented
    steps = dx if places is None else places[1:] - places[:-1]
    return np.sum(steps * (heights[1:] + heights[:-1]) / 2.0, axis=0)


# ------------------------------------------------------------------ choices, new arrays, other shapes


def _select(session: Session, condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    if type(condlist) is not list or type(choicelist) is not list or \
            not 0 < len(condlist) == len(choicelist) <= MOST_TERMS:
        return NotImplemented
    conditions = [session.operand(c) for c in condlist]
    choices = [c if type(c) in _NUMBERS else session.operand(c) for c in (*choicelist, default)]
    first = conditions[0]
    arrays = [c for c in (*conditions, *choices) if type(c) not in _NUMBERS]
    if any(type(c) is not LazyArray or c.shape != first.shape or not c.size or not _in_order(session, c)
           for c in arrays) or not first.ndim or any(c.dtype.kind != "b" for c in conditions):
        return NotImplemented
    dtype = np.result_type(*(c if type(c) in _NUMBERS else c.dtype for c in choices))
    if any(type(c) is LazyArray and c.dtype != dtype for c in choices) or not all(
            _fits(c, dtype, "same_kind") for c in choices[:-1]) or not _fits(choices[-1], dtype, "unsafe"):
        return NotImplemented
    *choices, made = [dtype.type(c) if type(c) in _NUMBERS else c for c in choices]
    for condition, choice in zip(reversed(conditions), reversed(choices), strict=True):
        made = np.where(condition, choice, made)
    return made


def _fits(number: Any, dtype: np.dtype, casting: Any) -> bool:
    """Tell whether NumPy, which makes an array of a Python number, casts that as it is."""
    if type(number) not in _NUMBERS:
        return True
    if dtype.kind not in "iufc" or not np.can_cast(np.asarray(number).dtype, dtype, casting):
        return False
    limits = np.iinfo(dtype) if dtype.kind in "iu" else np.finfo(dtype)
    parts = (number,) if type(number) is not complex else (number.real, number.imag)
    return all(limits.min <= n <= limits.max or n != n or abs(n) == np.inf for n in parts)


def _like(function: Callable[..., Any]) -> Callable[..., Any]:
    """Do what makes an array like another one, of which nothing but its form is read."""
    def handler(session: Session, a: Any, *args: Any, **options: Any) -> Any:
        array = session.operand(a)
        if type(array) is not LazyArray or any(type(x) in LAZY for x in (*args, *options.values())):
            return NotImplemented
        if array._v is None and not _in_order(session, array):
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
    """Do flip, or fliplr and flipud, which know their axes."""
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
    x, y = plain_array(session, a), plain_array(session, b)
    if x is None or y is None or x.ndim != 1 or x.shape != y.shape or x.dtype != y.dtype:
        return NotImplemented
    return session.product("vdot", x, y)


def _cross(session: Session, a: Any, b: Any, axisa: Any = -1, axisb: Any = -1, axisc: Any = -1,
           axis: Any = None) -> Any:
    """Do the cross products of rows of three."""
    x, y = plain_array(session, a), plain_array(session, b)
    if x is None or y is None or x.dtype != y.dtype or axis not in (None, -1) \
            or (axisa, axisb, axisc) != (-1, -1, -1) or x.ndim != 2 or x.shape != y.shape or x.shape[1] != 3:
        return NotImplemented
    (a0, a1, a2), (b0, b1, b2) = ([v[:, k] for k in range(3)] for v in (x, y))
    made = np.stack([a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0], axis=-1)
    return made[:]  # NumPy's is a view, too


def _sinc(session: Session, x: Any) -> Any:
    array = plain_array(session, x)
    if array is None:
        return NotImplemented
    turned = np.pi * array
    turned = np.where(turned == 0, np.finfo(array.dtype).eps, turned)
    return np.sin(turned) / turned


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
    np.zeros_like: _like(np.zeros_like), np.ones_like: _like(np.ones_like),
    np.empty_like: _like(np.empty_like), np.full_like: _like(np.full_like),
    np.squeeze: _squeeze, np.flip: _flip(None), np.fliplr: _flip((1,)), np.flipud: _flip((0,)),
    np.vdot: _vdot, np.split: _split, np.cross: _cross, np.sinc: _sinc,
}


  # the session that the arguments belong to
_MISSING_NONE: Any = np._NoValue  # what NumPy's signatures use for "not given"


def _by_count(total: Any, count: Any) -> Any:
    """Divide as NumPy's functions without NaNs do: in the dtype of the total."""
    with np.errstate(invalid="ignore", divide="ignore"):
        if isinstance(total, np.ndarray):
            return np.divide(total, count, out=total, casting="unsafe")
        return total.dtype.type(total / count)


def _sums(session: Session, a: Any, axis: Any, dtype: Any, out: Any, keepdims: Any, more: tuple) -> Any:
    """Return the array, where it is no number, and whether options are those that are served."""
    plain = dtype is None and out is None and all(m is _MISSING_NONE for m in more)
    array = plain_array(session, a) if plain and type(keepdims) in (bool, type(_MISSING_NONE)) else None
    return (None, None, {}) if array is None else (
        array, np.isnan(array), {} if keepdims is _MISSING_NONE else {"keepdims": keepdims})


def _nansum(session: Session, a: Any, axis: Any = None, dtype: Any = None, out: Any = None,
            keepdims: Any = _MISSING_NONE, initial: Any = _MISSING_NONE, where: Any = _MISSING_NONE) -> Any:
    array, missing, kept = _sums(session, a, axis, dtype, out, keepdims, (initial, where))
    if array is None:
        return NotImplemented
    return np.sum(np.where(missing, 0.0, array), axis=axis, **kept)


def _nanmean(session: Session, a: Any, axis: Any = None, dtype: Any = None, out: Any = None,
             keepdims: Any = _MISSING_NONE, *, where: Any = _MISSING_NONE) -> Any:
    array, missing, kept = _sums(session, a, axis, dtype, out, keepdims, (where,))
    if array is None:
        return NotImplemented
    total, count = values(session, np.sum(np.where(missing, 0.0, array), axis=axis, **kept),
                           np.sum(~missing, axis=axis, **kept))
    if np.any(count == 0):
        return NotImplemented
    return session.wrap(_by_count(total, count))


def _nanvar(session: Session, a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0,
            keepdims: Any = _MISSING_NONE, *, where: Any = _MISSING_NONE, mean: Any = _MISSING_NONE,
            correction: Any = _MISSING_NONE) -> Any:
    array, missing, kept = _sums(session, a, axis, dtype, out, keepdims, (where, mean, correction))
    if array is None or type(ddof) is not int:
        return NotImplemented
    filled = np.where(missing, 0.0, array)
    total, count = values(session, np.sum(filled, axis=axis, keepdims=True),
                           np.sum(~missing, axis=axis, keepdims=True))
    if np.any(count <= ddof):
        return NotImplemented
    apart = np.where(missing, 0.0, filled - _by_count(total, count))
    (total,) = values(session, np.sum(apart * apart, axis=axis, **kept))
    if total.ndim < count.ndim:
        count = count.squeeze(axis)
    return session.wrap(_by_count(total, count - ddof))


def _nanstd(session: Session, a: Any, *args: Any, **options: Any) -> Any:
    found = _nanvar(session, a, *args, **options)
    if found is NotImplemented:
        return found
    (variance,) = values(session, found)
    if isinstance(variance, np.ndarray):
        return session.wrap(np.sqrt(variance, out=variance))
    return variance.dtype.type(np.sqrt(variance))


def _nan_extreme(name: str, worst: float) -> Callable[..., Any]:
    """Do nanmin or nanmax. Of zeros of both signs NumPy takes any: then it is asked."""
    def handler(session: Session, a: Any, axis: Any = None, out: Any = None, keepdims: Any = _MISSING_NONE,
                initial: Any = _MISSING_NONE, where: Any = _MISSING_NONE) -> Any:
        array, missing, kept = _sums(session, a, axis, None, out, keepdims, (initial, where))
        if array is None:
            return NotImplemented
        function = np.min if name == "min" else np.max
        found, bad = values(session, function(np.where(missing, worst, array), axis=axis, **kept),
                             np.all(missing, axis=axis, **kept))
        if np.any(bad) or np.any(found == 0) and bool(np.any(np.signbit(array) & (array == 0))):
            return NotImplemented
        return session.wrap(found)
    return handler


def _nan_to_num(session: Session, x: Any, copy: Any = True, nan: Any = 0.0, posinf: Any = None,
                neginf: Any = None) -> Any:
    array = plain_array(session, x)
    given = [nan, *(v for v in (posinf, neginf) if v is not None)]
    if array is None or copy is not True or any(type(v) not in (int, float) for v in given):
        return NotImplemented
    limits = np.finfo(array.dtype)
    of = array.dtype.type
    made = np.where(np.isnan(array), of(nan), array)
    made = np.where(array == np.inf, of(limits.max if posinf is None else posinf), made)
    return np.where(array == -np.inf, of(limits.min if neginf is None else neginf), made)


MISSING: dict[Any, Callable[..., Any]] = {
    np.nansum: _nansum, np.nanmean: _nanmean, np.nanvar: _nanvar, np.nanstd: _nanstd,
    np.nanmin: _nan_extreme("min", np.inf), np.nanmax: _nan_extreme("max", -np.inf),
    np.nan_to_num: _nan_to_num,
}
