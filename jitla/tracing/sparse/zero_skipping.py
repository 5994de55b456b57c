"""Dense arrays with many zeros: when zeros are skipped, and in which format."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import partial
from math import ceil, inf
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from jitla.concurrency import relock
from jitla.config import current
from jitla.hops import Meta, Shape, Sketch, apply, error_state, estimated, leaf, of_rows
from jitla.tracing.frames import is_alone, place_of, user_frame
from jitla.tracing.hoisting import owner_of
from jitla.tracing.lazy import LazyArray
from jitla.tracing.site import Site
from jitla.tracing.sparse.lazy_sparse import Pattern
from jitla.tracing.tape import address

Rows = Any  # a csr_array or csc_array of SciPy
Factor = tuple[Rows, float]  # and the greatest magnitude of an element
# Nanoseconds: of an element read in a product and of a multiplication of elements, dense and stored; of
# a multiplication of stored elements that meet; of an element of an array written.
READ, MULTIPLIED, READ_STORED, MULTIPLIED_STORED, MET, WRITTEN = 0.25, 0.04, 1.2, 0.6, 15.0, 1.0
# The same of the compiler's loops over what is stored, on all threads; of beginning one; columns they take.
READ_LOOP, MULTIPLIED_LOOP, BEGUN, MOST_COLUMNS = 0.36, 0.1, 2e4, 32

# A quarter of the greatest number, by dtype.
_QUARTER = {char: float(np.finfo(char).max) / 4 for char in "fd"}


def pays(size: int, stored: float, columns: int, loops: bool = False) -> bool:
    """Tell whether multiplying what is stored by so many columns takes less time than all elements.

    `loops`: by the compiler's loops or SciPy's, else by SciPy's.
    """
    times = [_time_stored(stored, columns)]
    if loops and columns <= MOST_COLUMNS:
        times.append(BEGUN + stored * (READ_LOOP + MULTIPLIED_LOOP * columns))
    return min(times) < _time_dense(size, columns)


def _time_dense(size: int, columns: int) -> float:
    return size * max(READ, MULTIPLIED * columns)


def _time_stored(stored: float, columns: int) -> float:
    return stored * (READ_STORED + MULTIPLIED_STORED * columns)


def greatest(values: np.ndarray) -> float:
    """Return the greatest magnitude; NaN if there is one."""
    if not values.size:
        return 0.0
    high, low = float(np.maximum.reduce(values, None)), -float(np.minimum.reduce(values, None))
    return low if low > high else high  # where one is NaN, both are


# An error state, kept so that its id stays its own, and whether it ignores numbers that become too small.
_asked: tuple[Any, bool] = (None, False)


def _ignores_underflow() -> bool:
    global _asked
    state, ignored = _asked
    if error_state() is not state:
        state, ignored = error_state(), np.geterr()["under"] == "ignore"
        _asked = state, ignored
    return ignored


def is_silent(x: float, y: float, inner: int, dtype: np.dtype) -> bool:
    """Tell whether no sum of products overflows, nothing is NaN, and NumPy's own bits are not asked for."""
    if not x * y * inner < _QUARTER[dtype.char]:  # NaN is not
        return False
    return current().numerics != "strict" and _ignores_underflow()


def factors(given: Factor, other: Any, left: bool, traced: bool) -> tuple[Rows, np.ndarray] | None:
    """Return both factors in the dtype of the product, if zeros can be left out and that pays.

    `left`: the rows are the left one of them. `traced`: the product is recorded if there are loops for it.
    """
    rows, most = given
    if type(other) is not np.ndarray or other.ndim not in (1, 2) or not other.size:
        return None
    stored, given_dtype = rows.data, other.dtype
    here, there = rows.shape if left else rows.shape[::-1]
    dtype = stored.dtype if stored.dtype is given_dtype else np.result_type(stored.dtype, given_dtype)
    if other.shape[0 if left else -1] != there or dtype.char not in _QUARTER or \
            given_dtype.char not in _QUARTER:
        return None
    loops = traced and given_dtype == dtype and has_loops(other, left)
    if not pays(here * there, len(stored), other.size // there, loops):
        return None
    if not is_silent(most, greatest(other), there, dtype):
        return None
    if stored.dtype != dtype:
        rows = rows.astype(dtype)
    return rows, other if given_dtype == dtype else other.astype(dtype)


def has_loops(other: np.ndarray, left: bool) -> bool:
    """Tell whether the compiler has loops for stored elements and this factor."""
    return other.ndim == 1 or left and other.shape[1] > 1


def multiplied(rows: Rows, other: np.ndarray, left: bool) -> np.ndarray:
    """Return the product, as NumPy lays it out."""
    if left:
        found = rows @ other
    else:
        found = rows.T @ other if other.ndim == 1 else (rows.T @ other.T).T
    return found if found.flags.owndata else np.array(found, order="C")


def of_both(a: Factor, b: Factor) -> Rows | None:
    """Return the rows of a product of which neither factor's zeros are looked at; None if that is slower."""
    (x, most_x), (y, most_y) = a, b
    dtype = np.result_type(x.dtype, y.dtype)
    if x.shape[1] != y.shape[0] or dtype.char not in "fd":
        return None
    left, right = sketched(x), sketched(y)
    met = float(left.columns @ right.rows)
    m, n = x.shape[0], y.shape[1]
    others = min(_time_dense(m * x.shape[1], n), _time_stored(x.nnz, n), _time_stored(y.nnz, m))
    if not met * MET < others or not is_silent(most_x, most_y, x.shape[1], dtype):
        return None
    stored = nonzeros(left, right)
    if met * MET + (0.0 if pays(m * n, stored, 1) else m * n * WRITTEN) >= others:
        return None
    return x.astype(dtype, copy=False).tocsr() @ y.astype(dtype, copy=False).tocsr()


def sketched(rows: Rows) -> Sketch:
    """Return the sketch of a matrix."""
    if rows.format == "csc":
        return sketched(rows.T).T
    return of_rows(rows.indptr, rows.indices, rows.shape)


def nonzeros(left: Sketch, right: Sketch) -> float:
    """Estimate the nonzeros of a product by the method that the options say."""
    dtype = np.dtype(float)
    x, y = (leaf(k, Meta(s.shape, dtype, int(s.nnz))) for k, s in enumerate((left, right)))
    product = apply("matmul", x, y)
    return estimated([product], current().estimator, {x: left, y: right})[product]


LEAST = 1e5  # nanoseconds that a use has to save: to see whether memory was written takes a fifth of that
FEW = 2  # uses before a form is made where costs do not matter
MOST = 64  # matrices in memory that are remembered

Arrays = tuple[np.ndarray, ...]
Key = tuple[Any, ...]


class Way(NamedTuple):
    """A form that there may be: what a use of it saves and what making it takes, in nanoseconds.

    ``make()`` returns arrays and how many bytes they take, None if there is no form; the title says what it
    is.
    """

    name: str
    saves: float
    costs: float
    make: Callable[[], tuple[Any, int] | None]
    title: str
    shape: Shape


class Form(NamedTuple):
    """A form that was made, which refers to nothing of the memory it was made of."""

    value: Any
    nbytes: int


class Told:
    """What is told of a form that products of a function use, like of other values that are kept."""

    __slots__ = ("way", "line", "bound", "made", "used", "nbytes")

    def __init__(self, way: Way) -> None:
        self.way = way._replace(make=_unmade)
        place = place_of(user_frame())
        self.line = place.file, place.line
        self.bound: Any = None
        self.made = self.used = self.nbytes = 0

    def description(self) -> tuple[str, Shape, list[tuple[str, Any]]]:
        """Return what it is, the shape, and what it was made for, with the user's line."""
        return self.way.title, self.way.shape, [("product", self.line)]


class Remembered:
    """What is known of memory that was multiplied."""

    __slots__ = ("owners", "lost", "patience", "watch", "forms", "never")

    def __init__(self, owners: tuple[Any, ...]) -> None:
        self.owners = owners  # references: when one is gone, so is this
        self.lost: dict[str, float] = {}
        self.patience = 1.0
        self.watch: Any = None
        self.forms: dict[str, Form] = {}
        self.never: set[str] = set()

    def was_written(self) -> None:
        """Begin anew, more patiently."""
        self.lost.clear()
        self.forms.clear()
        self.watch = None
        self.patience *= 2

    @property
    def nbytes(self) -> int:
        """Bytes of all forms."""
        return sum(form.nbytes for form in self.forms.values())


_known: dict[Key, Remembered] = {}
_lock = relock()


def form_of(site: Site, arrays: Arrays, ways: list[Way]) -> Form | None:
    """Return the form of `arrays` that saves most, where it exists or it is time to make it."""
    if site.keeper is None or not ways:
        return None
    key = tuple([(address(x), x.shape, x.strides, x.dtype.char) for x in arrays])
    with _lock:
        found = _known.get(key)
        if found is None:
            _note(key, arrays, ways, site)
            return None
        if found.watch is not None and not found.watch.is_same():
            found.was_written()
        best = max((w for w in ways if w.name in found.forms), key=_saves, default=None)
        least = LEAST if best is None else LEAST + best.saves
        for way in ways:
            if way.name in found.forms or way.name in found.never:
                continue
            if (site.keeper.every or way.saves >= least) and _is_time(found, way, arrays, site):
                best = way
        if best is None:
            return None
        _told(site, best).used += 1
        return found.forms[best.name]


def forget_forms() -> None:
    """Forget all memory."""
    with _lock:
        _known.clear()


def _note(key: Key, arrays: Arrays, ways: list[Way], site: Site) -> None:
    """Remember memory from now on, if something would save enough."""
    every = site.keeper.every
    if not every and max(map(_saves, ways)) < LEAST:
        return
    owners = [owner_of(x) for x in arrays]
    if any(type(x) is not np.ndarray or x.base is not None or not x.flags.owndata for x in owners):
        return  # others may write where the system does not see it
    while len(_known) >= MOST:
        del _known[next(iter(_known))]
    gone: Callable[[Any], Any] = lambda _: _known.pop(key, None)  # noqa: E731
    made = _known[key] = Remembered(tuple(ref(x, gone) for x in owners))
    made.lost = {way.name: 1.0 if every else way.saves for way in ways}


def _is_time(found: Remembered, way: Way, arrays: Arrays, site: Site) -> bool:
    """Count a use without a form; make the form if it is time, and say whether it is there."""
    every = site.keeper.every
    price = (FEW if every else way.costs) * found.patience
    lost = found.lost[way.name] = found.lost.get(way.name, 0.0) + (1.0 if every else way.saves)
    site.awaited = 0
    if 2 * lost >= price and found.watch is None:
        found.watch = site.keeper.watch(arrays) if is_alone() else None
        if found.watch is None:
            found.was_written()
            return False
    if lost < price:
        if price < inf:
            site.awaited = ceil((price - lost) / (1.0 if every else way.saves)) + 1
        return False
    try:
        made = way.make()
    except Exception as error:
        site.failed(error)
        made = None
    if made is None or not found.watch.is_same() or not _make_room(found, made[1], site.keeper.room):
        found.never.add(way.name)
        return False
    found.forms[way.name] = Form(*made)
    told = _told(site, way)
    told.made, told.nbytes = told.made + 1, made[1]
    site.most_kept = max(site.most_kept, _taken())
    return True


def _told(site: Site, way: Way) -> Told:
    told: Told | None = site.parts.get((way.title, way.shape))
    if told is None:
        told = site.parts[way.title, way.shape] = Told(way)
    return told


def _make_room(found: Remembered, nbytes: int, room: int) -> bool:
    """Drop forms of other memory until there are `nbytes` left of `room`; say whether there are."""
    for other in list(_known.values()):
        if _taken() + nbytes <= room:
            break
        if other is not found:
            other.was_written()
    return _taken() + nbytes <= room


def _taken() -> int:
    """Return the bytes of all forms; memory may be freed meanwhile."""
    return sum(each.nbytes for each in list(_known.values()))


def _saves(way: Way) -> float:
    return way.saves


def _unmade() -> None:
    """Stand for what makes a form: that refers to the memory it is made of."""


#: Elements: smaller matrices are multiplied before they are looked at.
LARGE = 1 << 19
LOOKED, GOLDEN = 512, 0.6180339887498949  # elements that are looked at, and how far apart, of all of them
ADDED = 0.5  # nanoseconds more of an element that is added to what is elsewhere
#: Nanoseconds of an element, and of one that is not 0, that finding them takes.
FOUND, KEPT = 2.6, 10.0
LOADED = 1e8  # nanoseconds that loading SciPy's matrices takes
SHARED = 0.5  # part of the reading of a matrix that a product pays: two of them read it once
_BITS = {np.dtype(np.float32): np.int32, np.dtype(np.float64): np.int64}
_MOST = int(np.iinfo(np.int32).max)

# By memory: who owns it, how often it was used, the share found to be other than 0.
_seen: dict[tuple[Any, ...], tuple[Any, int, float]] = {}


def product_of_nonzeros(session: Any, x: LazyArray, y: LazyArray) -> Any:
    """Record ``x @ y`` without the zeros of one, if that is worth it and sure to be the same."""
    if session.site.keeper is None or session.site.bitwise:
        return NotImplemented
    left = x.ndim == 2 and x._v is not None and (
        y.ndim == 1 or y.ndim == 2 and 1 < y.shape[1] <= MOST_COLUMNS)
    if not left and (y.ndim != 2 or x.ndim != 1 or y._v is None):
        return NotImplemented
    matrix, other = (x._v, y) if left else (y._v.T, x)
    if matrix.size < LARGE or matrix.dtype not in _BITS or matrix.dtype != other.dtype or \
            matrix.shape[1] != other.shape[0] or not matrix.flags.forc or matrix.size > _MOST:
        return NotImplemented
    found = _found(session.site, matrix, other.size // max(matrix.shape[1], 1))
    if found is None or not is_silent(
            found[3], greatest(session.value(other)), matrix.shape[1], matrix.dtype):
        return NotImplemented
    data, places, starts = map(session.argument, found[:3])
    operands = data, places, starts, other
    if matrix.flags.c_contiguous:
        return session.traced("csr_vector" if other.ndim == 1 else "csr_product", operands)
    name = "csr_transposed_vector" if other.ndim == 1 else "csr_transposed_product"
    return session.traced(name, operands, (("width", matrix.shape[0]),))


def _found(site: Any, matrix: np.ndarray, columns: int) -> tuple[Any, ...] | None:
    """Return entries, places, starts and the greatest of a matrix, if they are kept or made now."""
    share = _share(matrix)
    across = not matrix.flags.c_contiguous
    each = READ_LOOP + ADDED * across + MULTIPLIED_LOOP * columns
    most = max(SHARED * READ, MULTIPLIED * columns) / each  # of which leaving out zeros pays
    saves = matrix.size * (most - share) * each - BEGUN
    if saves <= 0.0:
        return None
    lines = matrix.T if across else matrix
    costs = matrix.size * (FOUND + share * KEPT) + LOADED * ("scipy.sparse" not in sys.modules)
    make = partial(_made, lines, most * matrix.size, site.keeper.ready)
    way = Way("nonzeros", saves, costs, make, "compressed rows of dense", lines.shape)
    form = form_of(site, (lines,), [way])
    return None if form is None else form.value


def _share(matrix: np.ndarray) -> float:
    """Return about which part of the elements is not 0: all of a matrix that is met for the first time.

    Some are looked at whenever it has been met twice as often.
    """
    key, owner = (address(matrix), matrix.shape, matrix.strides, matrix.dtype.char), owner_of(matrix)
    known, met, share = _seen.get(key, (None, 0, 1.0))
    if known is None or known() is not owner:
        if known is None and len(_seen) >= MOST:
            del _seen[next(iter(_seen))]
        known, met, share = ref(owner), 0, 1.0
    met += 1
    if met > 1 and not met & met - 1:
        elements = matrix.ravel("K")
        at = (np.arange(LOOKED) * GOLDEN % 1.0 * elements.size).astype(np.intp)
        share = np.count_nonzero(elements[at].view(_BITS[matrix.dtype])) / LOOKED
    _seen[key] = known, met, share
    return share


def _made(
    lines: np.ndarray, limit: float, ready: Callable[[], Any]
) -> tuple[tuple[Any, ...], int] | None:
    """Return what is stored of a matrix in C order, and its bytes; None if it is too much, or not finite."""
    elements = lines.reshape(-1)
    bits = elements.view(_BITS[lines.dtype])
    if np.count_nonzero(bits) > limit:
        return None
    at = np.flatnonzero(bits)
    data = elements[at]
    most = greatest(data)
    if not np.isfinite(most):
        return None
    ready()
    rows, columns = lines.shape
    starts = np.searchsorted(at, np.arange(rows + 1) * columns).astype(np.int32)
    places = (at - np.repeat(np.arange(rows) * columns, np.diff(starts))).astype(np.int32)
    return (data, places, starts, most), data.nbytes + places.nbytes + starts.nbytes


#: Nanoseconds of an entry, on all threads, that reads an element of a vector near and far, or adds to one.
TURNED_READ, TURNED_ADDED = (0.38, 0.55), (0.48, 0.88)
NEAR = 1 << 18  # bytes
WIDE = 0.12  # more with indices of eight bytes
TURNED, NARROWED = 9.0, 1.5  # to make a form
ENOUGH = 0.09  # less is not known to be saved
_NARROW = np.dtype(np.int32)


TurnedArrays = tuple[Any, ...]


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
    return (TURNED_ADDED if axis else TURNED_READ)[shape[1 - axis] * size > NEAR]


def _narrowed(lines: Lines, across: int) -> tuple[TurnedArrays, int] | None:
    """Return indices of four bytes; None stands for the entries, which stay where they are."""
    least, most = lines.places.min(), lines.places.max()
    if least < 0 or most >= across or lines.starts.min() < 0 or lines.starts.max() > len(lines.data):
        return None
    places, starts = (x.astype(_NARROW) for x in (lines.places, lines.starts))
    return (None, places, starts), places.nbytes + starts.nbytes


def _turned(lines: Lines, shape: tuple[int, int]) -> tuple[TurnedArrays, int]:
    """Return entries and indices of lines along the other axis; duplicates stay."""
    sparse: Any = sys.modules["scipy.sparse"]
    kind = sparse.csc_array if lines.axis else sparse.csr_array
    given = kind((lines.data, lines.places, lines.starts), shape=shape)
    given.check_format(full_check=True)
    made = given.tocsr() if lines.axis else given.tocsc()
    arrays = made.data, *(x.astype(_NARROW, copy=False) for x in (made.indices, made.indptr))
    return arrays, sum(x.nbytes for x in arrays)
