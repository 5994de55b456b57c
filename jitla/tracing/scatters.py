"""NumPy's functions that read, count or add up where indices say, done at once by loops of their own.

Knows: NumPy's signatures, which calls there may be loops for. Must not know: the loops.
Receives a session and arguments as the user gave them; returns proxies or arrays, or NotImplemented.

Which calls there is an entry for depends on the arguments' kinds only: where there are too few elements,
or they lie in another way, NumPy does the same, which is no fallback.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from jitla.tracing.array import LazyArray
from jitla.tracing.picking import LEAST_LATER
from jitla.tracing.places import call_here
from jitla.tracing.signature import TRACED

Session = Any  # the session that the arguments belong to
_DOUBLE, _WORD = np.dtype(np.float64), np.dtype(np.int64)
_ENDS = {_DOUBLE: (int, float, np.float64), np.dtype(np.float32): (int, float)}
_EXACT = 1 << 53
_UNSAFE = frozenset("LQ")  # labels that NumPy does not cast to its own
MOST_LABELS = 1 << 13  # whose sums stay in the first cache


def _take(
    session: Session, a: Any, indices: Any, axis: Any = None, out: Any = None, mode: Any = "raise",
) -> Any:
    table, index = session.plain(a), session.plain(indices)
    if out is not None or mode != "raise" or not _are_arrays(table, index) or index.dtype == np.uint64:
        return NotImplemented
    if (axis is not None or table.ndim != 1) and (type(axis) is not int or axis != 0):
        return NotImplemented
    if not _are_known(table) or not _are_labels(index) or not index.ndim:
        return NotImplemented
    made = session.site.at_once("take", index.size, table, index)
    return session.wrap(call_here(np.take, table, index, axis) if made is None else made)


def _bincount(session: Session, x: Any, /, weights: Any = None, minlength: Any = 0) -> Any:
    made = _tallied(session, x, weights, minlength)
    if made is not NotImplemented:
        return made
    labels, factors = session.plain(x), session.plain(weights)
    if not _are_arrays(labels) or type(minlength) is not int or minlength < 0:
        return NotImplemented
    weighted = _are_arrays(factors) and _are_known(factors) and factors.dtype.kind != "c"
    if not _are_labels(labels) or labels.ndim != 1 or factors is not None and not weighted:
        return NotImplemented
    made = session.site.at_once("bincount", labels.size, labels, factors, minlength)
    return session.wrap(call_here(np.bincount, labels, factors, minlength) if made is None else made)


def _tallied(session: Session, x: Any, weights: Any, minlength: Any) -> Any:
    """Record sums by label, if what is added up is still to be computed; NotImplemented if not.

    Their number has to be known: labels that are read elsewhere are among those there.
    """
    if type(x) is not LazyArray or x.ndim != 1 or x.dtype.kind not in "iu" or x.dtype.char in _UNSAFE:
        return NotImplemented
    if type(minlength) is not int or minlength < 0 or x.size < LEAST_LATER:
        return NotImplemented
    parts = (x,) if weights is None else (x, weights)
    if any(type(p) is not LazyArray or p.shape != x.shape or p.dtype.kind == "c" for p in parts):
        return NotImplemented
    if all(p._v is not None for p in parts):
        return NotImplemented
    labels = session.source(x)
    if labels is None:
        return NotImplemented
    bounds = session.extremes.get(id(labels)) or session.site.at_once("bounds", labels.size, labels)
    if bounds is None or bounds[0] < 0 or bounds[1] >= max(minlength, MOST_LABELS):
        return NotImplemented
    if bounds[1] >= minlength and labels is not x._v:
        return NotImplemented  # how many there are depends on which of them are read
    shape = (max(bounds[1] + 1, minlength),)
    made = session.traced("bincount", parts, (("shape", shape),))
    if made is not NotImplemented:
        session.extremes[id(labels)] = bounds  # from now on they are on the tape
    return made


def _histogram(
    session: Session, a: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None
) -> Any:
    values, weighted = session.plain(a), weights is not None or density not in (None, False)
    if weighted or type(bins) is not int or not _are_arrays(values):
        return NotImplemented
    ends = session.plain(range)
    if ends is not None:
        known = _ENDS.get(values.dtype, ())
        if type(ends) not in (tuple, list) or len(ends) != 2 or any(type(e) not in known for e in ends):
            return NotImplemented
        if any(type(e) is int and not -_EXACT < e < _EXACT for e in ends):
            return NotImplemented
    if values.dtype not in _ENDS or bins < 1:
        return NotImplemented
    made = session.site.at_once("histogram", values.size, values, bins, ends)
    if made is None:
        made = call_here(np.histogram, values, bins, ends)
    return tuple(map(session.wrap, made))


def add_at(session: Session, target: Any, index: Any, values: Any) -> bool:
    """Do ``np.add.at(target, index, values)``, if there is a loop for it."""
    memory, places, given = session.plain(target), session.plain(index), session.plain(values)
    if not _are_arrays(memory, places):
        return False
    added = given if type(given) is np.ndarray else _single(given, memory.dtype)
    if added is None:
        return False
    session.before_write(memory)
    return session.site.at_once("add_at", places.size, memory, places, added) is True


def _single(value: Any, dtype: np.dtype) -> np.ndarray | None:
    """Return a number as an array of `dtype`, if that is what NumPy adds."""
    kind = type(value)
    if kind is int and dtype in (_DOUBLE, _WORD) and -_EXACT < value < _EXACT:
        return np.array(value, dtype)
    return np.array(value, dtype) if dtype == _DOUBLE and kind in (float, np.float64) else None


def _are_arrays(*values: Any) -> bool:
    return all(map(operator.is_, map(type, values), [np.ndarray] * len(values)))


def _are_known(array: np.ndarray) -> bool:
    return array.dtype in TRACED


def _are_labels(array: np.ndarray) -> bool:
    """Tell whether they are integers that all convert to indices."""
    return array.dtype.kind in "iu" and array.dtype in TRACED and array.dtype != np.uint64


SCATTERS: dict[Any, Callable[..., Any]] = {
    np.take: _take, np.bincount: _bincount, np.histogram: _histogram,
}
