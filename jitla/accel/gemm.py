"""What a GEMM instruction computes, many steps at a time.

Knows: that steps onto one element add up, and in which order that matters. Must not know: streams, DRAM.
Receives steps and on-chip arrays; changes the accumulator.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jitla.accel.spec import Spec
from jitla.accel.steps import Indices, Steps

Array = NDArray[Any]
# Up to these all integers are floats.
EXACT: dict[np.dtype[Any], int] = {np.dtype(np.float32): 1 << 24, np.dtype(np.float64): 1 << 53}
CHUNK = 4096  # steps whose operands are gathered at once
FEW = 4  # destinations that share an operand, on average, from which one product of matrices pays
_WEIGHTS = np.random.default_rng(1).integers(1, 1 << 40, 1 << 12)  # of places, so that unequal rows differ


class Group(NamedTuple):
    """Destinations with the same number of steps: `src[i]` and `wgt[i]` add to `dst[i]`."""

    dst: Indices
    src: Indices
    wgt: Indices


class Share(NamedTuple):
    """Rows of a group in which one operand is the same: a product of matrices."""

    rows: Indices
    by_wgt: bool


class Plan(NamedTuple):
    """All that follows from the indices of an instruction alone."""

    groups: tuple[tuple[Group, tuple[Share, ...]], ...]


def plan_of(steps: Steps) -> Plan:
    """Sort steps by destination, keeping their order, and find which share an operand."""
    order = np.argsort(steps.dst, kind="stable")
    dst, starts, counts = np.unique(steps.dst[order], return_index=True, return_counts=True)
    groups = []
    for count in np.unique(counts):
        here = counts == count
        rows = order[starts[here][:, None] + np.arange(count)]
        group = Group(dst[here], steps.src[rows], steps.wgt[rows])
        groups.append((group, _shares(group)))
    return Plan(tuple(groups))


def _alike(rows: Indices) -> list[Indices]:
    """Positions of equal rows, together."""
    keys = rows @ _WEIGHTS[:rows.shape[1]] if rows.shape[1] <= len(_WEIGHTS) else rows[:, 0]
    _, firsts, kinds = np.unique(keys, return_index=True, return_inverse=True)
    if not np.array_equal(rows[firsts][kinds], rows):  # different rows with one key
        _, kinds = np.unique(rows, axis=0, return_inverse=True)
    kinds = kinds.reshape(-1)
    order = np.argsort(kinds, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(kinds[order])) + 1)


def _shares(group: Group) -> tuple[Share, ...]:
    """The fewer products of matrices, by equal weights or by equal inputs; none if most would be small."""
    if len(group.dst) == 0:
        return ()
    by_wgt, by_src = _alike(group.wgt), _alike(group.src)
    fewer, is_wgt = (by_src, False) if len(by_src) < len(by_wgt) else (by_wgt, True)
    if len(fewer) * FEW > len(group.dst):
        return ()
    return tuple(Share(rows, is_wgt) for rows in fewer)


def factor_dtype(spec: Spec) -> np.dtype[Any]:
    """Return what inputs and weights are kept as: one product and some sums of it are exact."""
    if spec.is_float:
        return np.dtype(np.float32)
    bits = (1 << spec.log_inp_width) + (1 << spec.log_wgt_width)
    return np.dtype(np.float32 if bits <= 16 else np.float64 if bits <= 48 else np.int64)


def _wide_enough(spec: Spec, terms: int, kept: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype in which a sum of `terms` products is exact; int64 wraps, as the accumulator does."""
    largest = terms << ((1 << spec.log_inp_width) + (1 << spec.log_wgt_width) - 2)
    for dtype, limit in EXACT.items():
        if largest <= limit and dtype.itemsize >= kept.itemsize:
            return dtype
    return np.dtype(np.int64)


def accumulate(spec: Spec, plan: Plan, acc: Array, inp: Array, wgt: Array) -> None:
    """Add what `plan` names; `wgt` is kept with the inputs' lanes first."""
    for group, shares in plan.groups:
        if spec.is_float:
            _add_floats(group, acc, inp, wgt)
        elif shares:
            for share in shares:
                _add_shared(spec, group, share, acc, inp, wgt)
        else:
            _add_each(spec, group, acc, inp, wgt)


def _add_shared(spec: Spec, group: Group, share: Share, acc: Array, inp: Array, wgt: Array) -> None:
    """One product of matrices for all rows of `share`; sums wrap, so their order does not matter."""
    rows, lanes = share.rows, spec.block
    count, terms = len(rows), group.src.shape[1]
    dtype = _wide_enough(spec, terms * lanes, inp.dtype)
    if share.by_wgt:
        left = inp[group.src[rows]].swapaxes(1, 2).reshape(count * spec.batch, terms * lanes)
        right = wgt[group.wgt[rows[0]]].reshape(terms * lanes, lanes)
        sums = _product(left, right, dtype).reshape(count, spec.batch, lanes)
    else:
        left = inp[group.src[rows[0]]].swapaxes(0, 1).reshape(spec.batch, terms * lanes)
        right = wgt[group.wgt[rows]].reshape(count, terms * lanes, lanes)
        sums = _product(left, right, dtype)
    _wrap_onto(acc, group.dst[rows], sums)


def _add_each(spec: Spec, group: Group, acc: Array, inp: Array, wgt: Array) -> None:
    """A product for each destination."""
    lanes, terms = spec.block, group.src.shape[1]
    dtype = _wide_enough(spec, terms * lanes, inp.dtype)
    for part in _parts(group):
        left = inp[group.src[part]].swapaxes(1, 2).reshape(-1, spec.batch, terms * lanes)
        right = wgt[group.wgt[part]].reshape(-1, terms * lanes, lanes)
        _wrap_onto(acc, group.dst[part], _product(left, right, dtype))


def _parts(group: Group) -> Iterator[slice]:
    """Runs of destinations whose operands fit into little memory."""
    run = max(CHUNK // max(group.src.shape[1], 1), 1)
    for begin in range(0, len(group.dst), run):
        yield slice(begin, begin + run)


def _wrap_onto(acc: Array, dst: Indices, sums: Array) -> None:
    """Add in the accumulator's width: bits above it are dropped."""
    acc[dst] = (acc[dst] + sums.astype(np.int64)).astype(acc.dtype)


def _product(left: Array, right: Array, dtype: np.dtype[Any]) -> Array:
    product: Array = np.matmul(left.astype(dtype, copy=False), right.astype(dtype, copy=False))
    return product


def _add_floats(group: Group, acc: Array, inp: Array, wgt: Array) -> None:
    """Step after step; the products of a step are added by halves, every sum rounded."""
    for part in _parts(group):
        sums = acc[group.dst[part]]
        for step in range(group.src.shape[1]):
            terms = inp[group.src[part, step]][..., None] * wgt[group.wgt[part, step]][:, None]
            while terms.shape[2] > 1:
                half = terms.shape[2] // 2
                terms = terms[:, :, :half] + terms[:, :, half:]
            sums += terms[:, :, 0]
        acc[group.dst[part]] = sums
