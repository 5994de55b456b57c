"""Recording of advanced indexing, np.repeat, np.tile and np.pad as gathers, with checks of the indices.

A gather reads elements of a contiguous table at linear positions: the sum of a contribution of each axis,
index times stride. Indices are checked before: those in memory by their minimum and maximum (`Bounds`), or
all elements. ``np.pad``, ``np.repeat`` and ``np.tile`` are recorded as gathers, too. `read_at` records reads
of vectors by long masks and indices.
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
from jitla.tracing.lazy import LazyArray, append_entry, lazy_array
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


def index_bounds(session: Session, index: LazyArray) -> tuple[int, int] | None:
    """Return the minimum and maximum of `index` if it is in memory, or an array in memory plus a constant."""
    base = as_shifted_memory(session, index)
    if base is None:
        return None
    memory, constant = base
    if not memory.flags.c_contiguous or not memory.size:
        return None
    bounds = session.memory.facts.get(id(memory))
    if type(bounds) is not Bounds or bounds.array() is not memory:
        bounds = _compute_bounds(session, memory)
    least, greatest = bounds.least + constant, bounds.greatest + constant
    limits = np.iinfo(METAS[index._m].dtype)
    return (least, greatest) if limits.min <= least and greatest <= limits.max else None


def read_small_index(session: Session, index: LazyArray) -> np.ndarray:
    """Return the elements of a small index, without ending the block where that is possible."""
    base = as_shifted_memory(session, index) if index._v is None else None
    if base is None:
        memory: np.ndarray = session.closer.value(index)
        return memory
    elements = base[0].astype(METAS[index._m].dtype)
    if base[1]:
        with np.errstate(all="ignore"):
            elements += np.array(base[1]).astype(elements.dtype)  # wraps around as the recorded addition does
    return elements


def _compute_bounds(session: Session, memory: np.ndarray) -> Bounds:
    """Compute and record the bounds of an array."""
    extremes = session.site.run_index_loop("bounds", memory.size, memory.reshape(-1))
    least, greatest = (int(memory.min()), int(memory.max())) if extremes is None else extremes
    key, facts = id(memory), session.memory.facts
    bounds = Bounds(ref(memory, lambda _: facts.pop(key, None)), least, greatest)
    facts[key] = bounds
    return bounds


def as_shifted_memory(session: Session, index: LazyArray) -> tuple[np.ndarray, int] | None:
    """Return an array in memory and the constant that `index` adds to it; None if it is no such sum."""
    if index._v is not None:
        return index._v, 0
    if index._n < 0:
        return None
    entry = session.tape.ops[index._n]
    sign = _SIGNS.get(entry[0])
    if sign is None or len(entry) != 3:
        return None
    a, b = entry[1:]
    if a < 0 <= b and sign > 0:
        a, b = b, a
    if a < 0 or b >= 0:
        return None
    base = next((p for p in reversed(session.tape.entered) if p._n == a), None)
    constant = session.tape.scalars[len(session.tape.scalars) - scalars_of(session.tape.ops[index._n:])]
    if type(base) is not LazyArray or type(constant) is not int \
            or METAS[base._m].shape != METAS[index._m].shape:
        return None
    return base._v, sign * constant


Contribution = np.ndarray | LazyArray  # the contribution of some axes to positions

MAX_LEADING_INDICES = 1 << 13  # indices of a leading axis: for more, NumPy's loop that copies rows is faster
MAX_JOINED_POSITIONS = 1 << 16  # positions of a contribution that several axes share
MAX_TABLE_ELEMENTS = 1 << 31  # elements of a table: positions are 32-bit
_TAKE = OP_ID["take"]
_CONTRIBUTION = -2  # in keys of `positions`, instead of a number of elements: the entry is a contribution
_INT64 = np.dtype(np.int64)
_PAD_MODES = frozenset({"edge", "reflect", "symmetric", "wrap"})


def record_gather(session: Session, table: Any, key: Any) -> Any:
    """Record ``table[key]`` as a gather; None if NumPy has to read it now."""
    key_parts = key if type(key) is tuple else (key,)
    leading = next((k for k, each in enumerate(key_parts) if not _is_full_slice(each)), len(key_parts))
    indices = [*takewhile(_is_index, key_parts[leading:])]
    if not indices or session.ended or session.site.unroll_limit:
        return None  # the call continues untraced, or unrolls loops, whose operands have to stay views
    trailing_key = key_parts[leading + len(indices):]
    if not _is_table(table) or len(key_parts) > table.ndim or not all(map(_is_full_slice, trailing_key)):
        return None
    thresholds = session.site.thresholds
    if len(indices) == 1 and _size(indices[0]) > (
            thresholds.max_checked_indices if leading else MAX_LEADING_INDICES):
        return None
    try:
        index_shape = np.broadcast_shapes(*[each.shape for each in indices])
    except ValueError:
        return None
    outer, trailing = table.shape[:leading], table.shape[leading + len(indices):]
    shape = outer + index_shape + trailing
    if not thresholds.min_gather_elements <= prod(shape) < MAX_TABLE_ELEMENTS:
        return None
    contributions = _contributions(session, indices, table.shape[leading:], len(index_shape), trailing)
    if contributions is None:
        return None
    if leading:
        step = prod(table.shape[leading:])
        contributions.append(_strided_positions(outer, step).reshape(outer + (1,) * (len(shape) - leading)))
    # the result has the axes of the indices first in memory
    inner = range(leading, leading + len(index_shape))
    axes = (*inner, *range(leading), *range(leading + len(index_shape), len(shape))) if leading else ()
    return _record_take(session, table, contributions, shape, axes)


def record_pad(session: Session, array: LazyArray, widths: np.ndarray, mode: str) -> Any:
    """Record ``np.pad`` in a mode that pads with elements of the array."""
    most = session.site.thresholds.max_checked_indices
    if mode not in _PAD_MODES or (widths > most).any() or 0 in array.shape:  # NumPy's error names an axis
        return NotImplemented
    around: Any = mode
    return _record_per_axis(session, array, lambda shape: [
        np.pad(np.arange(n), pair, around) for n, pair in zip(shape, widths.tolist(), strict=True)])


def _record_repeat(session: Session, a: Any, repeats: Any, axis: Any = None) -> Any:
    array = session.recorder.operand(a)
    most = session.site.thresholds.max_checked_indices
    if type(axis) is not int or type(repeats) is not int or not 0 < repeats <= most:
        return NotImplemented
    if type(array) is not LazyArray or not -array.ndim <= axis < array.ndim:
        return NotImplemented
    repeated_axis = axis % array.ndim
    return _record_per_axis(session, array, lambda shape: [
        np.repeat(np.arange(n), repeats) if k == repeated_axis else None for k, n in enumerate(shape)])


def _record_tile(session: Session, A: Any, reps: Any) -> Any:
    array = session.recorder.operand(A)
    times = reps if type(reps) is tuple else (reps,)
    most = session.site.thresholds.max_checked_indices
    if type(array) is not LazyArray or len(times) > array.ndim or not all(
            type(n) is int and 0 < n <= most for n in times):
        return NotImplemented
    repetitions = (1,) * (array.ndim - len(times)) + times
    return _record_per_axis(session, array, lambda shape: [
        np.tile(np.arange(n), m) if m > 1 else None for n, m in zip(shape, repetitions, strict=True)],
        tuple(range(array.ndim)) if max(times) > 1 else ())  # NumPy's result is a reshaped view


def _record_per_axis(
    session: Session, array: LazyArray, indices: Callable[[Shape], list[np.ndarray | None]], axes: Shape = (),
) -> Any:
    """Record a gather by one index per axis, as ``np.ix_`` does; None stands for all of an axis."""
    shape_in, thresholds = array.shape, session.site.thresholds
    if not shape_in or max(shape_in) > thresholds.max_checked_indices:
        return NotImplemented
    axis_indices = indices(shape_in)
    shape = tuple([n if i is None else len(i) for n, i in zip(shape_in, axis_indices, strict=True)])
    if not thresholds.min_gather_elements <= prod(shape) < MAX_TABLE_ELEMENTS \
            or max(shape) > thresholds.max_checked_indices:
        return NotImplemented
    table = session.closer.value(array)
    if not _is_table(table):
        return NotImplemented
    contributions: list[Contribution] = []
    for axis, (n, index) in enumerate(zip(shape, axis_indices, strict=True)):
        step = prod(table.shape[axis + 1:])
        part = _strided_positions((n,), step) if index is None else (index * step).astype(POSITION_DTYPE)
        contributions.append(part.reshape((1,) * axis + (n,) + (1,) * (len(shape) - axis - 1)))
    # join the innermost axes
    while len(contributions) > 1 and prod(shape[len(contributions) - 2:]) <= MAX_JOINED_POSITIONS:
        contributions[-2:] = [np.asarray(contributions[-2]) + contributions[-1]]
    return _record_take(session, table, contributions, shape, axes)


def _is_table(table: Any) -> bool:
    """Return whether elements of `table` can be addressed by 32-bit linear positions."""
    return type(table) is np.ndarray and table.ndim > 0 and 0 < table.size < MAX_TABLE_ELEMENTS and \
        table.flags.c_contiguous and table.dtype in TRACED


def _is_full_slice(part: Any) -> bool:
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


def _contributions(
    session: Session, indices: Sequence[Any], sizes: Shape, ndim: int, trailing: Shape
) -> list[Contribution] | None:
    """Return the contributions to positions of indices on axes of `sizes`, and of the axes `trailing` these.

    The broadcast indices have `ndim` dimensions. None: an index is out of bounds or cannot be recorded.
    """
    most = session.site.thresholds.max_checked_indices
    steps = [prod(sizes[k + 1:]) for k in range(len(indices))]
    small: dict[Shape, np.ndarray] = {}
    large: list[tuple[Any, int, int]] = []
    for index, n, step in zip(indices, sizes, steps, strict=False):
        if _size(index) > most:
            large.append((index, n, step))
            continue
        elements = read_small_index(session, index) if type(index) is LazyArray else index
        if elements.size and (elements.min() < -n or elements.max() >= n):
            return None
        part = (np.where(elements < 0, elements + _INT64.type(n), elements) * step).astype(POSITION_DTYPE)
        shape = (1,) * (ndim - part.ndim) + part.shape + (1,) * len(trailing)
        small[shape] = part.reshape(shape) + small.get(shape, POSITION_DTYPE.type(0))
    contributions: list[Contribution] = list(small.values())
    if large:
        computed = _checked_contribution(session, large, ndim + len(trailing), ndim)
        if computed is None:
            return None
        contributions.append(computed)
    if trailing:
        trailing_part = _strided_positions(trailing, 1).reshape((1,) * ndim + trailing)
        if len(contributions) == 1 and not large \
                and trailing_part.size * _size(contributions[0]) <= MAX_JOINED_POSITIONS:
            contributions[0] = np.asarray(contributions[0]) + trailing_part
        else:
            contributions.append(trailing_part)
    return contributions


def _checked_contribution(
    session: Session, large: Sequence[tuple[Any, int, int]], ndim: int, index_ndim: int
) -> LazyArray | None:
    """Return the contribution of large indices to positions; None if an element is out of bounds."""
    total: Any = None
    invalid: Any = None
    is_deferrable = ndim == index_ndim and all(index.ndim == index_ndim for index, _, _ in large)
    for index, n, step in large:
        proxy = session.recorder.operand(index)
        if type(proxy) is not LazyArray:
            return None
        bounds = index_bounds(session, proxy) if is_deferrable else None
        if bounds is None:
            part, out_of_bounds = _normalise(proxy, n)
            invalid = out_of_bounds if invalid is None else invalid | out_of_bounds
        elif bounds[0] < -n or bounds[1] >= n:
            return None
        else:
            total = _add(total, _clamped_contribution(session, proxy, n, step, bounds[0] < 0))
            continue
        total = _add(total, part * step)
    if invalid is None:
        contribution: LazyArray = total
        return contribution
    if session.closer.value(invalid.any()) or total._v is None or not total._v.flags.c_contiguous:
        return None
    shape = (1,) * (index_ndim - total.ndim) + total.shape + (1,) * (ndim - index_ndim)
    return total if shape == total.shape else lazy_array(session, total._v.reshape(shape))


def _normalise(index: Any, n: int) -> tuple[Any, Any]:
    """Return the normalised elements of `index` on an axis of size `n`, and a mask of those out of bounds."""
    wide = _INT64 if index.dtype.itemsize == 8 or index.dtype == np.uint32 else POSITION_DTYPE
    places = index if index.dtype == wide else index.astype(wide)
    places = np.where(places < 0, places + n, places)
    out_of_bounds = (places < 0) | (places >= n)
    return places if wide == POSITION_DTYPE else places.astype(POSITION_DTYPE), out_of_bounds


def _add(total: Any, part: Any) -> Any:
    return part if total is None else total + part


def _clamped_contribution(session: Session, index: Any, n: int, step: int, has_negative: bool) -> Any:
    """Return the contribution to positions of an `index` with known bounds on an axis of size `n`.

    It is clamped: if a thread of the user writes the index meanwhile, the result is wrong, but no read is out
    of bounds.
    """
    memory, constant = as_shifted_memory(session, index)
    key = id(memory), (constant, n, step, index.dtype)
    entry = session.tape.positions.get(key)
    if entry is not None:
        return session.tape.nodes[entry[1]]
    places = index if index.dtype == POSITION_DTYPE else index.astype(POSITION_DTYPE)
    if has_negative:
        places = np.where(places < 0, places + n, places)
    contribution = np.minimum(np.maximum(places, 0), n - 1) * step
    # a reference to the proxy would make the value live
    session.tape.positions[key] = memory, contribution._n
    return contribution


def _record_take(
    session: Session, table: np.ndarray, contributions: Sequence[Contribution], shape: Shape, axes: tuple,
) -> Any:
    """Record the read of the elements at positions that are the sum of `contributions`."""
    proxies = [p if type(p) is LazyArray else _shared_proxy(session, np.asarray(p)) for p in contributions]
    places = reduce(lambda a, b: session.recorder.call_ufunc(np.add, a, b), proxies)
    source = session.tape.positions.get((id(table), -1))
    if source is None:
        source = session.tape.positions[id(table), -1] = table, lazy_array(session, table.reshape(-1))
    operands = [p._n if p._n >= 0 else session.tape.enter(p) for p in (source[1], places)]
    entry = (_TAKE, *operands, (("axes", axes),)) if axes else (_TAKE, *operands)
    return append_entry(session, entry, meta_id(shape, table.dtype))


def _shared_proxy(session: Session, part: np.ndarray) -> LazyArray:
    """Return the proxy of a contribution, shared by all gathers of a block with equal contributions."""
    for (_, kind), (shared, proxy) in session.tape.positions.items():
        if kind == _CONTRIBUTION and shared.shape == part.shape and np.array_equal(shared, part):
            proxy_found: LazyArray = proxy
            return proxy_found
    new_proxy = lazy_array(session, part)
    session.tape.positions[id(part), _CONTRIBUTION] = part, new_proxy
    return new_proxy


# For short masks that select fewer than 1 in `SPARSE_MASK_RATIO` elements, or all, NumPy is as fast.
SPARSE_MASK_RATIO = 32


def read_at(session: Session, table: Any, key: np.ndarray) -> Any:
    """Record ``table[key]``; None if NumPy has to read it now."""
    if key.ndim != 1 or type(table) is not np.ndarray:
        return None
    if key.size < session.site.thresholds.min_deferred_key_elements:
        if key.dtype != bool or key.shape != table.shape or table.dtype not in TRACED:
            return None
        selected = np.count_nonzero(key)
        return session.boundary.wrap(table[key]) \
            if selected < key.size // SPARSE_MASK_RATIO or selected == key.size else None
    if table.ndim != 1 or table.dtype not in TRACED or not table.flags.c_contiguous:
        return None
    positions = _selected_positions(session, key, len(table))
    if type(positions) is not LazyArray:
        return None if positions is None else session.boundary.wrap(table[positions])
    source = session.tape.tables.get(id(table))
    if source is None:
        source = session.tape.tables[id(table)] = lazy_array(session, table)
    operands = [p._n if p._n >= 0 else session.tape.enter(p) for p in (source, positions)]
    return append_entry(session, (_TAKE, *operands), meta_id(METAS[positions._m].shape, table.dtype))


def _selected_positions(session: Session, key: np.ndarray, length: int) -> Any:
    """Return the positions that `key` selects from an array of `length`: a proxy, if few an ndarray."""
    cached = session.tape.positions.get((id(key), length))
    if cached is not None:
        return cached[1]
    selected = session.site.run_index_loop("positions", key.size, key, length)
    if selected is None or selected.size < session.site.thresholds.min_positions:
        return selected
    proxy = lazy_array(session, selected)
    session.tape.positions[id(key), length] = key, proxy
    return proxy


GATHERS: dict[Any, Callable[..., Any]] = {np.repeat: _record_repeat, np.tile: _record_tile}


@lru_cache(maxsize=32)
def _strided_positions(shape: Shape, step: int) -> np.ndarray:
    """Return the positions of contiguous elements of `shape`, each of which has `step` positions."""
    positions = (np.arange(prod(shape), dtype=np.int64) * step).astype(POSITION_DTYPE).reshape(shape)
    positions.flags.writeable = False
    return positions
