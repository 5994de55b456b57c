"""NumPy's functions that compare whole arrays, recorded step by step as NumPy writes them in Python.

Knows: how NumPy puts them together, and which of its warnings they keep quiet. Must not know: how entries are
recorded. Receives a session and arguments as the user gave them; returns proxies, or Python's booleans, or
NotImplemented where NumPy would warn or raise.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any

import numpy as np

from jitla.tracing.array import LazyArray

Session = Any  # the session that the arguments belong to
_NUMBERS = (int, float)
_FLOATS = frozenset("f")
_KINDS = frozenset("biuf")


def _compared(session: Session, x: Any) -> Any:
    """Return the proxy of an array of real numbers, or a finite Python number; None for anything else."""
    if type(x) in _NUMBERS:
        return x if abs(x) < 2 ** 53 else None
    array = session.operand(x)
    if type(array) is not LazyArray or array.dtype.kind not in _KINDS or not array.ndim:
        return None
    return array


def _near(session: Session, a: Any, b: Any, rtol: Any, atol: Any, equal_nan: Any) -> Any:
    """Do isclose. What is infinite, or may be a signalling NaN, is replaced before the difference.

    NumPy keeps quiet about both.
    """
    x: Any = _compared(session, a)
    y: Any = _compared(session, b)
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
        tame = np.where(finite, y, 0.0)
        near = (np.abs(quiet - tame) <= atol + rtol * np.abs(tame)) & finite
    made = near | (x == y)
    if equal_nan and all(type(v) is LazyArray and v.dtype.kind in _FLOATS for v in (x, y)):
        made = made | np.isnan(x) & np.isnan(y)
    return made


def _isclose(session: Session, a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8,
             equal_nan: Any = False) -> Any:
    made = _near(session, a, b, rtol, atol, equal_nan)
    return made if made is NotImplemented else made[:]  # NumPy's is a view, too


def _allclose(session: Session, a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8,
              equal_nan: Any = False) -> Any:
    made = _near(session, a, b, rtol, atol, equal_nan)
    return made if made is NotImplemented else bool(np.all(made))


def _equal(alike: bool) -> Callable[..., Any]:
    """Do array_equal, or array_equiv, for which shapes need not be alike."""
    def handler(session: Session, a1: Any, a2: Any, equal_nan: Any = False) -> Any:
        x, y = _compared(session, a1), _compared(session, a2)
        if type(x) is not LazyArray or type(y) is not LazyArray or equal_nan is not False:
            return NotImplemented
        if x.shape != y.shape:
            return False if alike else NotImplemented
        return bool(np.all(x == y))
    return handler


CLOSENESS: dict[Any, Callable[..., Any]] = {
    np.isclose: _isclose, np.allclose: _allclose, np.array_equal: _equal(True), np.array_equiv: _equal(False),
}
