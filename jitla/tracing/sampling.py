"""Products of sparse matrices with dense arrays, element by element, recorded.

Knows: how SciPy spreads a dense operand over the stored positions. Must not know: sums, matrix products.
Receives a session and operands; returns proxies, or NotImplemented where SciPy has to do it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jitla.tracing.array import LazyArray
from jitla.tracing.entries import (
    Entries,
    dense_operand,
    indices_of,
    is_scalar,
    scaled,
    whole_entries,
)
from jitla.tracing.pattern import Pattern
from jitla.tracing.stored import LazySparse

Session = Any  # the session that the arguments belong to


def sampled_product(session: Session, x: Any, y: Any, inverted: bool = False) -> Any:
    """Do ``x.multiply(y)`` with a dense `y`: coordinates, in the order in which `x` has its entries.

    If it is `inverted`, entries are multiplied by the reciprocals.
    """
    dense, given = dense_operand(session, y), whole_entries(session, x)
    if dense is None or given is None or given.values.dtype.kind not in "biufc":
        return NotImplemented
    if given.pattern.format == "coo":
        given = _as_rows(session, given)
    if given is None or 1 in given.pattern.shape or dense.size == 1:
        return NotImplemented
    found = at_positions(session, given.pattern, dense)
    if type(found) is not LazyArray:
        return NotImplemented
    flag = not given.pattern.axis and given.stay()
    values = np.multiply(given.values, np.divide(1, found) if inverted else found)
    if type(values) is not LazyArray:
        return NotImplemented
    return LazySparse(session, given.pattern.coordinates(flag), values)


def _as_rows(session: Session, given: Entries) -> Entries | None:
    """Return coordinates as the compressed rows that SciPy makes of them first."""
    if given.memory is not None:
        return whole_entries(session, given.memory.tocsr())
    pattern = given.pattern
    if pattern.starts is None or pattern.axis or not pattern.canonical:
        return None
    return Entries(pattern.compressed(), given.values, None, None)


def at_positions(session: Session, pattern: Pattern, dense: LazyArray) -> Any:
    """Return the elements of a dense operand, a line of it repeated, at the stored positions."""
    if (indices := indices_of(session, pattern)) is None:
        return NotImplemented
    starts, places = indices
    shape, turned = dense.shape, bool(pattern.axis)
    if shape == pattern.shape:
        return session.traced("sampled", (dense.T if turned else dense, starts, places))
    if shape not in ((pattern.shape[1],), (1, pattern.shape[1]), (pattern.shape[0], 1)):
        return NotImplemented
    across = shape[-1] == 1  # a column: an element for every row
    line = dense if dense.ndim == 1 else session.traced("reshape", (dense,), (("shape", (dense.size,)),))
    if across == turned:
        return session.traced("by_column", (line, places))
    return session.traced("by_row", (line, starts, places))


def multiplied(session: Session, x: Any, y: Any) -> Any:
    """Do ``x.multiply(y)`` with a number or a dense array."""
    return scaled(session, x, y) if is_scalar(y) else sampled_product(session, x, y)


def quotient(session: Session, x: Any, y: Any) -> Any:
    """Do ``x / y`` with a dense array, which SciPy multiplies by the reciprocals."""
    return sampled_product(session, x, y, inverted=True)
