"""Recording of advanced indexing by integer arrays as gathers.

A gather reads elements of a contiguous table at linear positions: the sum of a contribution of each axis,
index times stride. Indices are checked before: those in memory by their minimum and maximum (`Bounds`), or
all elements. ``np.pad``, ``np.repeat`` and ``np.tile`` are recorded as gathers, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, reduce
from itertools import takewhile
from math import prod
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from jitla.hops import POSITION_DTYPE, Shape
from jitla.tracing.lazy import LazyArray, append_entry
from jitla.tracing.mutation import lazy_array
from jitla.tracing.tape import METAS, OP_ID, TRACED, meta_id, scalars_of

Session = Any  # the session that the arrays belong to
_SIGNS = {OP_ID["add"]: 1, OP_ID["subtract"]: -1}


class Bounds(NamedTuple):
    """Minimum and maximum of an array in memory, valid until it is written."""

    array: Callable[[], Any]  # a weak reference
    least: int
    greatest: int

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """The arrays whose writes invalidate these bounds."""
        array = self.array()
        return () if array is None else (array,)


def bounds_of(session: Session, index: LazyArray) -> tuple[int, int] | None:
    """Return the minimum and maximum of `index` if it is in memory, or an array in memory plus a constant."""
    found = shifted(session, index)
    if found is None:
        return None
    memory, plus = found
    if not memory.flags.c_contiguous or not memory.size:
        return None
    known = session.memory_facts.get(id(memory))
    if type(known) is not Bounds or known.array() is not memory:
        known = _looked_up(session, memory)
    least, greatest = known.least + plus, known.greatest + plus
    limits = np.iinfo(METAS[index._m].dtype)
    return (least, greatest) if limits.min <= least and greatest <= limits.max else None


def few_of(session: Session, index: LazyArray) -> np.ndarray:
    """Return the elements of a small index, without ending the block where that is possible."""
    found = shifted(session, index) if index._v is None else None
    if found is None:
        memory: np.ndarray = session.value(index)
        return memory
    made = found[0].astype(METAS[index._m].dtype)
    if found[1]:
        with np.errstate(all="ignore"):
            made += np.array(found[1]).astype(made.dtype)  # wraps around as the recorded addition does
    return made


def _looked_up(session: Session, memory: np.ndarray) -> Bounds:
    """Compute and record the bounds of an array."""
    found = session.site.run_index_loop("bounds", memory.size, memory.reshape(-1))
    least, greatest = (int(memory.min()), int(memory.max())) if found is None else found
    key, remembered = id(memory), session.memory_facts
    made = Bounds(ref(memory, lambda _: remembered.pop(key, None)), least, greatest)
    remembered[key] = made
    return made


def shifted(session: Session, index: LazyArray) -> tuple[np.ndarray, int] | None:
    """Return an array in memory and the constant that `index` adds to it; None if it is no such sum."""
    if index._v is not None:
        return index._v, 0
    if index._n < 0:
        return None
    entry = session.ops[index._n]
    sign = _SIGNS.get(entry[0])
    if sign is None or len(entry) != 3:
        return None
    a, b = entry[1:]
    if a < 0 <= b and sign > 0:
        a, b = b, a
    if a < 0 or b >= 0:
        return None
    base = next((p for p in reversed(session.entered) if p._n == a), None)
    plus = session.scalars[len(session.scalars) - scalars_of(session.ops[index._n:])]
    if type(base) is not LazyArray or type(plus) is not int or METAS[base._m].shape != METAS[index._m].shape:
        return None
    return base._v, sign * plus


Part = np.ndarray | LazyArray  # the contribution of some axes to positions

LEAST = 1 << 15  # elements read: for fewer, NumPy is as fast
FEW = 1 << 13  # indices of a leading axis: for more, NumPy's loop that copies rows is faster
LOOKED_AT = 1 << 16  # indices that are checked when they are recorded, not by operations of the block
JOINED = 1 << 16  # positions of a contribution that several axes share
MOST = 1 << 31  # elements of a table: positions are 32-bit
_TAKE = OP_ID["take"]
_PART = -2  # in keys of `positions`, instead of a number of elements: the entry is a contribution
_WORDS = np.dtype(np.int64)
_AROUND = frozenset({"edge", "reflect", "symmetric", "wrap"})


def gathered(session: Session, table: Any, key: Any) -> Any:
    """Record ``table[key]`` as a gather; None if NumPy has to read it now."""
    given = key if type(key) is tuple else (key,)
    lead = next((k for k, each in enumerate(given) if not _is_whole(each)), len(given))
    indices = [*takewhile(_is_index, given[lead:])]
    if not indices or session.ended or session.site.unroll_limit:
        return None  # the call continues untraced, or unrolls loops, whose operands have to stay views
    rest = given[lead + len(indices):]
    if not _may_be_read(table) or len(given) > table.ndim or not all(map(_is_whole, rest)):
        return None
    if len(indices) == 1 and _size(indices[0]) > (LOOKED_AT if lead else FEW):
        return None
    try:
        middle = np.broadcast_shapes(*[each.shape for each in indices])
    except ValueError:
        return None
    before, behind = table.shape[:lead], table.shape[lead + len(indices):]
    shape = before + middle + behind
    if not LEAST <= prod(shape) < MOST:
        return None
    parts = _parts(session, indices, table.shape[lead:], len(middle), behind)
    if parts is None:
        return None
    if lead:
        step = prod(table.shape[lead:])
        parts.append(_counted(before, step).reshape(before + (1,) * (len(shape) - lead)))
    # the result has the axes of the indices first in memory
    inner = range(lead, lead + len(middle))
    axes = (*inner, *range(lead), *range(lead + len(middle), len(shape))) if lead else ()
    return _taken(session, table, parts, shape, axes)


def padded(session: Session, array: LazyArray, widths: np.ndarray, mode: str) -> Any:
    """Record ``np.pad`` in a mode that pads with elements of the array."""
    if mode not in _AROUND or (widths > LOOKED_AT).any() or 0 in array.shape:  # NumPy's error names an axis
        return NotImplemented
    around: Any = mode
    return _along(session, array, lambda shape: [
        np.pad(np.arange(n), pair, around) for n, pair in zip(shape, widths.tolist(), strict=True)])


def _repeat(session: Session, a: Any, repeats: Any, axis: Any = None) -> Any:
    array = session.operand(a)
    if type(axis) is not int or type(repeats) is not int or not 0 < repeats <= LOOKED_AT:
        return NotImplemented
    if type(array) is not LazyArray or not -array.ndim <= axis < array.ndim:
        return NotImplemented
    along = axis % array.ndim
    return _along(session, array, lambda shape: [
        np.repeat(np.arange(n), repeats) if k == along else None for k, n in enumerate(shape)])


def _tile(session: Session, A: Any, reps: Any) -> Any:
    array = session.operand(A)
    times = reps if type(reps) is tuple else (reps,)
    if type(array) is not LazyArray or len(times) > array.ndim or not all(
            type(n) is int and 0 < n <= LOOKED_AT for n in times):
        return NotImplemented
    every = (1,) * (array.ndim - len(times)) + times
    return _along(session, array, lambda shape: [
        np.tile(np.arange(n), m) if m > 1 else None for n, m in zip(shape, every, strict=True)],
        tuple(range(array.ndim)) if max(times) > 1 else ())  # NumPy's result is a reshaped view


def _along(
    session: Session, array: LazyArray, indices: Callable[[Shape], list[np.ndarray | None]], axes: Shape = (),
) -> Any:
    """Record a gather by one index per axis, as ``np.ix_`` does; None stands for all of an axis."""
    small = array.shape
    if not small or max(small) > LOOKED_AT:
        return NotImplemented
    found = indices(small)
    shape = tuple([n if i is None else len(i) for n, i in zip(small, found, strict=True)])
    if not LEAST <= prod(shape) < MOST or max(shape) > LOOKED_AT:
        return NotImplemented
    table = session.value(array)
    if not _may_be_read(table):
        return NotImplemented
    parts: list[Part] = []
    for axis, (n, index) in enumerate(zip(shape, found, strict=True)):
        step = prod(table.shape[axis + 1:])
        part = _counted((n,), step) if index is None else (index * step).astype(POSITION_DTYPE)
        parts.append(part.reshape((1,) * axis + (n,) + (1,) * (len(shape) - axis - 1)))
    while len(parts) > 1 and prod(shape[len(parts) - 2:]) <= JOINED:  # join the innermost axes
        parts[-2:] = [np.asarray(parts[-2]) + parts[-1]]
    return _taken(session, table, parts, shape, axes)


def _may_be_read(table: Any) -> bool:
    """Return whether elements of `table` can be addressed by 32-bit linear positions."""
    return type(table) is np.ndarray and table.ndim > 0 and 0 < table.size < MOST and \
        table.flags.c_contiguous and table.dtype in TRACED


def _is_whole(part: Any) -> bool:
    """Return whether a part of a key selects all of an axis."""
    return type(part) is slice and part.start is None and part.stop is None and part.step is None


def _is_index(index: Any) -> bool:
    """Return whether `index` is an array of integers, in C order if it is in memory."""
    if type(index) is LazyArray:
        meta = METAS[index._m]
        return meta.dtype.kind in "iu" and meta.dtype != np.uint64 and bool(meta.shape) and (
            index._v is None or index._v.flags.c_contiguous)
    return type(index) is np.ndarray and index.dtype.kind in "iu" and index.dtype in TRACED and \
        index.dtype != np.uint64 and index.ndim > 0 and bool(index.flags.c_contiguous)


def _size(index: Any) -> int:
    return prod(index.shape)


def _parts(
    session: Session, indices: Sequence[Any], sizes: Shape, ndim: int, behind: Shape
) -> list[Part] | None:
    """Return the contributions to positions of indices on axes of `sizes`, and of the axes `behind` these.

    The broadcast indices have `ndim` dimensions. None: an index is out of bounds or cannot be recorded.
    """
    steps = [prod(sizes[k + 1:]) for k in range(len(indices))]
    few: dict[Shape, np.ndarray] = {}
    many: list[tuple[Any, int, int]] = []
    for index, n, step in zip(indices, sizes, steps, strict=False):
        if _size(index) > LOOKED_AT:
            many.append((index, n, step))
            continue
        found = few_of(session, index) if type(index) is LazyArray else index
        if found.size and (found.min() < -n or found.max() >= n):
            return None
        part = (np.where(found < 0, found + _WORDS.type(n), found) * step).astype(POSITION_DTYPE)
        shape = (1,) * (ndim - part.ndim) + part.shape + (1,) * len(behind)
        few[shape] = part.reshape(shape) + few.get(shape, POSITION_DTYPE.type(0))
    parts: list[Part] = list(few.values())
    if many:
        computed = _looked_at(session, many, ndim + len(behind), ndim)
        if computed is None:
            return None
        parts.append(computed)
    if behind:
        rest = _counted(behind, 1).reshape((1,) * ndim + behind)
        if len(parts) == 1 and not many and rest.size * _size(parts[0]) <= JOINED:
            parts[0] = np.asarray(parts[0]) + rest
        else:
            parts.append(rest)
    return parts


def _looked_at(
    session: Session, many: Sequence[tuple[Any, int, int]], ndim: int, own: int
) -> LazyArray | None:
    """Return the contribution of large indices to positions; None if an element is out of bounds."""
    total: Any = None
    wrong: Any = None
    later = ndim == own and all(index.ndim == own for index, _, _ in many)
    for index, n, step in many:
        known = session.operand(index)
        if type(known) is not LazyArray:
            return None
        bounds = bounds_of(session, known) if later else None
        if bounds is None:
            part, beyond = _compared(known, n)
            wrong = beyond if wrong is None else wrong | beyond
        elif bounds[0] < -n or bounds[1] >= n:
            return None
        else:
            total = _sum(total, _within(session, known, n, step, bounds[0] < 0))
            continue
        total = _sum(total, part * step)
    if wrong is None:
        made: LazyArray = total
        return made
    if session.value(wrong.any()) or total._v is None or not total._v.flags.c_contiguous:
        return None
    shape = (1,) * (own - total.ndim) + total.shape + (1,) * (ndim - own)
    return total if shape == total.shape else lazy_array(session, total._v.reshape(shape))


def _compared(index: Any, n: int) -> tuple[Any, Any]:
    """Return the normalised elements of `index` on an axis of size `n`, and a mask of those out of bounds."""
    wide = _WORDS if index.dtype.itemsize == 8 or index.dtype == np.uint32 else POSITION_DTYPE
    places = index if index.dtype == wide else index.astype(wide)
    places = np.where(places < 0, places + n, places)
    beyond = (places < 0) | (places >= n)
    return places if wide == POSITION_DTYPE else places.astype(POSITION_DTYPE), beyond


def _sum(total: Any, part: Any) -> Any:
    return part if total is None else total + part


def _within(session: Session, index: Any, n: int, step: int, turned: bool) -> Any:
    """Return the contribution to positions of an `index` with known bounds on an axis of size `n`.

    It is clamped: if a thread of the user writes the index meanwhile, the result is wrong, but no read is out
    of bounds.
    """
    memory, plus = shifted(session, index)
    key = id(memory), (plus, n, step, index.dtype)
    known = session.positions.get(key)
    if known is not None:
        return session.nodes[known[1]]
    places = index if index.dtype == POSITION_DTYPE else index.astype(POSITION_DTYPE)
    if turned:
        places = np.where(places < 0, places + n, places)
    made = np.minimum(np.maximum(places, 0), n - 1) * step
    session.positions[key] = memory, made._n  # a reference to the proxy would make the value live
    return made


def _taken(session: Session, table: np.ndarray, parts: Sequence[Part], shape: Shape, axes: tuple) -> Any:
    """Record the read of the elements at positions that are the sum of `parts`."""
    added = [p if type(p) is LazyArray else _once(session, np.asarray(p)) for p in parts]
    places = reduce(lambda a, b: session.call_ufunc(np.add, a, b), added)
    known = session.positions.get((id(table), -1))
    if known is None:
        known = session.positions[id(table), -1] = table, lazy_array(session, table.reshape(-1))
    operands = [p._n if p._n >= 0 else session.enter(p) for p in (known[1], places)]
    entry = (_TAKE, *operands, (("axes", axes),)) if axes else (_TAKE, *operands)
    return append_entry(session, entry, meta_id(shape, table.dtype))


def _once(session: Session, part: np.ndarray) -> LazyArray:
    """Return the proxy of a contribution, shared by all gathers of a block with equal contributions."""
    for (_, kind), (known, proxy) in session.positions.items():
        if kind == _PART and known.shape == part.shape and np.array_equal(known, part):
            same: LazyArray = proxy
            return same
    made = lazy_array(session, part)
    session.positions[id(part), _PART] = part, made
    return made


GATHERS: dict[Any, Callable[..., Any]] = {np.repeat: _repeat, np.tile: _tile}


@lru_cache(maxsize=32)
def _counted(shape: Shape, step: int) -> np.ndarray:
    """Return the positions of contiguous elements of `shape`, each of which has `step` positions."""
    made = (np.arange(prod(shape), dtype=np.int64) * step).astype(POSITION_DTYPE).reshape(shape)
    made.flags.writeable = False
    return made
