"""Operations on SciPy's matrices of compressed rows that only stored positions matter for, recorded.

Knows: what SciPy's methods and operators compute. Must not know: loops, plans.
Receives a session, a function and arguments as the user gave them; returns proxies, or NotImplemented
where SciPy has to do it.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from types import BuiltinFunctionType, MethodType
from typing import Any

import numpy as np

from jitla.tracing.array import UFUNCS, LazyArray
from jitla.tracing.stored import LazySparse

Session = Any  # the session that the arguments belong to
_FLOATS = frozenset({np.dtype(np.float32), np.dtype(np.float64)})
WORTH = 1 << 16  # elements, or products of entries: for fewer SciPy is as fast
_INDICES = frozenset({np.dtype(np.int32), np.dtype(np.int64)})


def recorded(session: Session, function: Any, args: tuple, kwargs: dict) -> Any:
    """Record a call of `function`, if it is one of SciPy's that only stored positions matter for."""
    scipy = sys.modules.get("scipy.sparse")
    if scipy is None or kwargs:
        return NotImplemented
    if type(function) is MethodType and type(function.__self__) in _kinds(scipy):
        function, args = function.__name__, (function.__self__, *args)
    elif type(function) is not BuiltinFunctionType:
        return NotImplemented
    handler = _HANDLERS.get(function)
    if handler is None or len(args) != 2:
        return NotImplemented
    return handler(session, scipy, *args)


def _multiply(session: Session, scipy: Any, x: Any, y: Any) -> Any:
    """Do ``x.multiply(y)``: the entries of `x` times what a dense `y` has at their positions."""
    if type(x) is LazyArray:
        x, y = y, x
    return _product(session, x, y) if type(x) in _kinds(scipy) else NotImplemented


def _operator(session: Session, scipy: Any, x: Any, y: Any) -> Any:
    """Do ``x * y``, which is the product of matrices for ``csr_matrix``."""
    if type(x) is scipy.csr_matrix:
        return _matmul(session, scipy, x, y)
    if type(x) is LazyArray:
        x, y = y, x
    return _product(session, x, y) if type(x) is scipy.csr_array else NotImplemented


def _product(session: Session, x: Any, y: Any) -> Any:
    if type(y) is not LazyArray or y._s is not session or y.shape != x.shape or y.dtype not in _FLOATS:
        return NotImplemented
    if y.size < WORTH:
        return NotImplemented
    parts = parts_of(session, x)
    if parts is None or x.shape[0] == 1 or x.shape[1] == 1:
        return NotImplemented
    starts, columns, data = parts
    found = session.traced("sampled", (y, starts, columns))
    if found is NotImplemented:
        return NotImplemented
    values = UFUNCS[np.multiply](data, found)
    return LazySparse(session, x, values) if type(values) is LazyArray else NotImplemented


def parts_of(session: Session, x: Any) -> tuple[Any, Any, Any] | None:
    """Return proxies of where rows begin, columns and entries; None if they are no plain arrays."""
    parts = x.indptr, x.indices, x.data
    if any(type(p) is not np.ndarray or p.ndim != 1 or not p.flags.c_contiguous for p in parts):
        return None
    starts, columns, data = parts
    if starts.dtype != columns.dtype or columns.dtype not in _INDICES or data.dtype not in _FLOATS:
        return None
    if not len(data) or len(data) != len(columns) or starts[-1] != len(data) or starts[0] or \
            len(starts) != x.shape[0] + 1:
        return None
    starts, columns, data = map(session.argument, parts)
    proxied = all(type(p) is LazyArray for p in (starts, columns, data))
    return (starts, columns, data) if proxied else None


def _matmul(session: Session, scipy: Any, x: Any, y: Any) -> Any:
    """Do ``x @ y`` with a dense matrix on the right."""
    if type(x) not in _kinds(scipy) or type(y) is not LazyArray or y._s is not session or y.ndim != 2:
        return NotImplemented
    if y.shape[0] != x.shape[1] or y.dtype != x.data.dtype or len(x.data) * y.shape[1] < WORTH:
        return NotImplemented
    parts = parts_of(session, x)
    if parts is None:
        return NotImplemented
    starts, columns, data = parts
    return session.traced("csr_product", (data, columns, starts, y))


def _kinds(scipy: Any) -> tuple[type, type]:
    return scipy.csr_array, scipy.csr_matrix


_HANDLERS: dict[Any, Callable[..., Any]] = {
    "multiply": _multiply, operator.mul: _operator, operator.matmul: _matmul, "dot": _matmul,
}
