"""What a GEMM instruction computes, many steps at a time.

Knows: that steps onto one element add up, and in which order that matters. Must not know: streams, DRAM.
Receives steps and on-chip arrays; changes the accumulator.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jitla.accel.spec import Spec
from jitla.accel.steps import Indices, Steps

Array = NDArray[Any]
# Up to these all integers are floats.
EXACT: dict[np.dtype[Any], int] = {np.dtype(np.float32): 1 << 24, np.dtype(np.float64): 1 << 53}
CHUNK = 512  # destinations whose products are in memory at once, on the machine with floats


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
    _, kinds = np.unique(rows, axis=0, return_inverse=True)
    order = np.argsort(kinds.reshape(-1), kind="stable")
    return np.split(order, np.flatnonzero(np.diff(kinds.reshape(-1)[order])) + 1)


def _shares(group: Group) -> tuple[Share, ...]:
    """The fewer products of matrices, by equal weights or by equal inputs."""
    if len(group.dst) == 0:
        return ()
    by_wgt, by_src = _alike(group.wgt), _alike(group.src)
    if len(by_src) < len(by_wgt):
        return tuple(Share(rows, False) for rows in by_src)
    return tuple(Share(rows, True) for rows in by_wgt)


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
            continue
        for share in shares:
            _add_integers(spec, group, share, acc, inp, wgt)


def _add_integers(spec: Spec, group: Group, share: Share, acc: Array, inp: Array, wgt: Array) -> None:
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
    # adding wraps in the accumulator's width: bits above it are dropped
    acc[group.dst[rows]] = (acc[group.dst[rows]] + sums.astype(np.int64)).astype(acc.dtype)


def _product(left: Array, right: Array, dtype: np.dtype[Any]) -> Array:
    product: Array = np.matmul(left.astype(dtype, copy=False), right.astype(dtype, copy=False))
    return product


def _add_floats(group: Group, acc: Array, inp: Array, wgt: Array) -> None:
    """Step after step; the products of a step are added by halves, every sum rounded."""
    for begin in range(0, len(group.dst), CHUNK):
        part = slice(begin, begin + CHUNK)
        dst = group.dst[part]
        sums = acc[dst]
        for step in range(group.src.shape[1]):
            terms = inp[group.src[part, step]][..., None] * wgt[group.wgt[part, step]][:, None]
            while terms.shape[2] > 1:
                half = terms.shape[2] // 2
                terms = terms[:, :, :half] + terms[:, :, half:]
            sums += terms[:, :, 0]
        acc[dst] = sums
