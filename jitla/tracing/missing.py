"""NumPy's functions that leave out what is no number, recorded step by step as NumPy writes them in Python.

Knows: how NumPy puts them together, in which order, in which dtypes. Must not know: how entries are recorded.
Receives a session and arguments as the user gave them; returns proxies or what NumPy returns, or
NotImplemented where NumPy would warn or raise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from jitla.tracing.compositions import plain_array, values

Session = Any  # the session that the arguments belong to
_NONE: Any = np._NoValue  # what NumPy's signatures use for "not given"


def _by_count(total: Any, count: Any) -> Any:
    """Divide as NumPy's functions without NaNs do: in the dtype of the total."""
    with np.errstate(invalid="ignore", divide="ignore"):
        if isinstance(total, np.ndarray):
            return np.divide(total, count, out=total, casting="unsafe")
        return total.dtype.type(total / count)


def _sums(session: Session, a: Any, axis: Any, dtype: Any, out: Any, keepdims: Any, more: tuple) -> Any:
    """Return the array, where it is no number, and whether options are those that are served."""
    plain = dtype is None and out is None and all(m is _NONE for m in more)
    array = plain_array(session, a) if plain and type(keepdims) in (bool, type(_NONE)) else None
    return (None, None, {}) if array is None else (
        array, np.isnan(array), {} if keepdims is _NONE else {"keepdims": keepdims})


def _nansum(session: Session, a: Any, axis: Any = None, dtype: Any = None, out: Any = None,
            keepdims: Any = _NONE, initial: Any = _NONE, where: Any = _NONE) -> Any:
    array, missing, kept = _sums(session, a, axis, dtype, out, keepdims, (initial, where))
    if array is None:
        return NotImplemented
    return np.sum(np.where(missing, 0.0, array), axis=axis, **kept)


def _nanmean(session: Session, a: Any, axis: Any = None, dtype: Any = None, out: Any = None,
             keepdims: Any = _NONE, *, where: Any = _NONE) -> Any:
    array, missing, kept = _sums(session, a, axis, dtype, out, keepdims, (where,))
    if array is None:
        return NotImplemented
    total, count = values(session, np.sum(np.where(missing, 0.0, array), axis=axis, **kept),
                           np.sum(~missing, axis=axis, **kept))
    if np.any(count == 0):
        return NotImplemented
    return session.wrap(_by_count(total, count))


def _nanvar(session: Session, a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0,
            keepdims: Any = _NONE, *, where: Any = _NONE, mean: Any = _NONE, correction: Any = _NONE) -> Any:
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
    def handler(session: Session, a: Any, axis: Any = None, out: Any = None, keepdims: Any = _NONE,
                initial: Any = _NONE, where: Any = _NONE) -> Any:
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
