"""Which form of a sparse matrix its product with a vector is fastest with, and how it is made.

Knows: what an entry takes in each form, measured. Must not know: when a form is made, loops, plans.
Receives compressed lines that are about to be multiplied; returns those to multiply instead.

Lines along which a product goes are read in order; across them an entry finds its element of the vector,
or of the result. In caches that is nothing, beyond them it is what a product takes. Indices of eight bytes
are a fourth of what is read.
"""

from __future__ import annotations

import math
import sys
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from jitla.tracing.forms import Way, form_of
from jitla.tracing.pattern import Pattern

#: Nanoseconds of an entry, on all threads, that reads an element of a vector near and far, or adds to one.
READ, ADDED = (0.38, 0.55), (0.48, 0.88)
NEAR = 1 << 18  # bytes
WIDE = 0.12  # more with indices of eight bytes
TURNED, NARROWED = 9.0, 1.5  # to make a form
ENOUGH = 0.09  # less is not known to be saved
_NARROW, _MOST = np.dtype(np.int32), int(np.iinfo(np.int32).max)


Arrays = tuple[Any, ...]


class Lines(NamedTuple):
    """Compressed lines along `axis` (0: rows)."""

    data: Any
    places: Any
    starts: Any
    axis: int


def other_form(session: Any, pattern: Pattern, values: Any, is_vector: bool) -> Lines | None:
    """Return proxies of the same matrix in a form to multiply instead; None where it stays as it is."""
    data, places, starts, axis = values._v, pattern.places, pattern.starts, pattern.axis
    if data is None or session.site.keeper is None or pattern.format == "coo":
        return None
    wide = places.dtype != _NARROW and max(pattern.shape) <= _MOST and len(data) <= _MOST
    if not wide and not is_vector:
        return None
    ways = _ways(Lines(data, places, starts, axis), pattern.shape, wide, is_vector)
    if not ways or (form := form_of(session.site, (data, places, starts), ways)) is None:
        return None
    other, *indices = form.value  # which another direction of the product may have asked for
    data, places, starts = map(session.argument, (data if other is None else other, *indices))
    return Lines(data, places, starts, axis if other is None else 1 - axis)


def _ways(lines: Lines, shape: tuple[int, int], wide: bool, is_vector: bool) -> list[Way]:
    """Return the forms that are faster than `lines`, whose indices fit into four bytes."""
    entries, axis = len(lines.data), lines.axis
    size = lines.data.itemsize
    more = WIDE if wide else 0.0
    here = _entry(axis, shape, size)
    turned = here + more - _entry(1 - axis, shape, size)
    found = []
    if wide:
        make = partial(_narrowed, lines, shape[1 - axis])
        found.append(Way("narrow", entries * more, entries * NARROWED, make, "narrower indices of", shape))
    if is_vector and turned > more:
        # One that is made for other products is used.
        price = entries * TURNED if turned >= more + ENOUGH else math.inf
        found.append(Way("turned", entries * turned, price, partial(_turned, lines, shape),
                         f"compressed {'rows' if axis else 'columns'} of", shape))
    return found


def _entry(axis: int, shape: tuple[int, int], size: int) -> float:
    """Return what an entry takes in lines along `axis`, which finds an element of a vector."""
    return (ADDED if axis else READ)[shape[1 - axis] * size > NEAR]


def _narrowed(lines: Lines, across: int) -> tuple[Arrays, int] | None:
    """Return indices of four bytes; None stands for the entries, which stay where they are."""
    least, most = lines.places.min(), lines.places.max()
    if least < 0 or most >= across or lines.starts.min() < 0 or lines.starts.max() > len(lines.data):
        return None
    places, starts = (x.astype(_NARROW) for x in (lines.places, lines.starts))
    return (None, places, starts), places.nbytes + starts.nbytes


def _turned(lines: Lines, shape: tuple[int, int]) -> tuple[Arrays, int]:
    """Return entries and indices of lines along the other axis; duplicates stay."""
    sparse: Any = sys.modules["scipy.sparse"]
    kind = sparse.csc_array if lines.axis else sparse.csr_array
    given = kind((lines.data, lines.places, lines.starts), shape=shape)
    given.check_format(full_check=True)
    made = given.tocsr() if lines.axis else given.tocsc()
    arrays = made.data, *(x.astype(_NARROW, copy=False) for x in (made.indices, made.indptr))
    return arrays, sum(x.nbytes for x in arrays)
