"""Operations on two sparse matrices that are merged element by element, recorded.

Knows: what SciPy's loops do with two entries, and with one. Must not know: how positions are found.
Receives a session and operands; returns proxies, or NotImplemented where SciPy has to do it.

SciPy takes what is not stored for 0 and stores no result that is 0, so an entry that is 0 because it is
not kept may stand for itself. The class is that of the left operand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from jitla.tracing.array import LazyArray
from jitla.tracing.entries import Entries, entries_of
from jitla.tracing.memory import lazy_array
from jitla.tracing.stored import LazySparse
from jitla.tracing.unions import Unions

Session = Any  # the session that the arguments belong to
Operation = Callable[[Session, Any, Any], Any]
_FLOATS = frozenset({np.dtype(np.float32), np.dtype(np.float64)})
_INT = np.dtype(np.int32)


def _cell(name: str) -> Operation:
    return lambda session, x, y: session.traced(name, (x, y))


def _larger(session: Session, x: Any, y: Any) -> Any:
    return np.where(np.less(x, y), y, x)


def _smaller(session: Session, x: Any, y: Any) -> Any:
    return np.where(np.less(y, x), y, x)


OPERATIONS: dict[str, Operation] = {
    "add": _cell("stored_add"), "sub": _cell("stored_sub"), "multiply": _cell("stored_mul"),
    "maximum": _larger, "minimum": _smaller,
}


def merged(session: Session, name: str, x: Any, y: Any) -> Any:
    """Do the operation `name` with two sparse matrices of one shape."""
    if x.shape != y.shape or len(x.shape) != 2 or not {x.dtype, y.dtype} <= _FLOATS:
        return NotImplemented
    form = x.format if x.format != "coo" else "csr"
    left, right = _compressed(session, x, form), _compressed(session, y, form)
    if left is None or right is None:
        return NotImplemented
    if not left.pattern.is_array and {_INT} != {g.pattern.places.dtype for g in (left, right)}:
        return NotImplemented  # SciPy looks whether they fit, also at what is no index
    made = _aligned(session, left, right)
    if made is None:
        return NotImplemented
    pattern, a, b = made
    dtype = np.result_type(a.dtype, b.dtype)
    a, b = (z if z.dtype == dtype else z.astype(dtype) for z in (a, b))
    values = OPERATIONS[name](session, a, b)
    if type(values) is not LazyArray:
        return NotImplemented
    return LazySparse(session, pattern, values, values)


def _compressed(session: Session, x: Any, form: str) -> Entries | None:
    """Return the entries of `x` in the format `form`; None if they are others there, or not plain."""
    given = entries_of(session, x)
    if given is None:
        return None
    pattern = given.pattern
    if given.memory is None and not pattern.is_array and {_INT} != {x.dtype for x in pattern.arrays}:
        return None  # SciPy makes indices narrow on the way, if they fit
    if pattern.format != form:
        if given.memory is not None:
            given = entries_of(session, getattr(given.memory, f"to{form}")())
        elif pattern.starts is not None and pattern.axis == (form == "csc") and pattern.canonical:
            given = given._replace(pattern=pattern.compressed())
        else:
            return None
    return given


def _aligned(session: Session, x: Entries, y: Entries) -> Any:
    """Return the pattern of both and their entries there, 0 where there is none; None if out of order."""
    if x.pattern.is_at(y.pattern):
        return (x.pattern.copied(), x.values, y.values) if x.pattern.canonical else None
    if session.site.unions is None:
        session.site.unions = Unions()
    union = session.site.unions.of(x.pattern, y.pattern)
    if union is None:
        return None
    tables = [session.value(each.values) if at is not None else None
              for each, at in zip((x, y), union.at, strict=True)]
    a, b = (each.values if table is None else _taken(session, table, at)
            for each, table, at in zip((x, y), tables, union.at, strict=True))
    return x.pattern.placed(union.starts, union.places), a, b


def _taken(session: Session, table: np.ndarray, at: tuple[np.ndarray, np.ndarray]) -> Any:
    """Return the elements of `table` at the positions where there are some, and 0 elsewhere."""
    source = session.tables.get(id(table))
    if source is None:
        source = session.tables[id(table)] = lazy_array(session, table)
    places, here = (lazy_array(session, x) for x in at)
    return np.where(here, session.traced("take", (source, places)), table.dtype.type(0))
