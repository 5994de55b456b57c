"""Products of stacks of small matrices, one pair after the other: which of them loops take.

Knows: shapes, layouts. Must not know: prices, backends.
Receives products and facts; returns `Product` records, and the sizes and strides of `Pairs`.

What a pair is computed from stays in registers, so that BLAS, which is called for every pair, is left behind.
"""

from __future__ import annotations

from math import prod

from jitla.fusion.blocks import Pairs
from jitla.fusion.kernel import PAIRS, Product
from jitla.fusion.layout import Layout, Strides, contiguous, spread
from jitla.fusion.templates import Facts
from jitla.hops import Hop, Shape

MIN_BYTES = 1 << 12  # of the results: of less, NumPy is done before a kernel is launched
MAX_SIDE, MAX_ROWS = 32, 64  # of the matrices: BLAS is as fast with larger ones
MAX_COMPLEX = 16  # the same for complex numbers, of which there are two


def pairs_of(hop: Hop, facts: Facts) -> Product | None:
    """Return a product of stacks as pairs of small matrices, if it is one; the stack may be one's alone."""
    left, right = hop.inputs
    stacked = hop.op.name == "matmul" and max(left.meta.ndim, right.meta.ndim) > 2
    if not stacked or hop.meta.nbytes < MIN_BYTES or hop.meta.shape[0] < 2:
        return None
    most = MAX_COMPLEX if hop.meta.dtype.kind == "c" else MAX_SIDE
    m, k, n = sizes(left.meta.shape, right.meta.shape)
    if not (0 < k <= most and n <= most and m <= MAX_ROWS):
        return None
    places = facts.layouts
    found = pairs_in(places[left], places[right], places[hop], hop.meta.dtype.itemsize)
    return Product(PAIRS, hop, left, False, right) if found else None


def by_pairs(operand: Hop, hop: Hop) -> bool:
    """Tell whether every pair along the first axis has its own matrix of `operand`."""
    return operand.meta.ndim == max(i.meta.ndim for i in hop.inputs) and \
        operand.meta.shape[0] == hop.meta.shape[0]


def sizes(left: Shape, right: Shape) -> tuple[int, int, int]:
    """Return m, k, n: matrices of m times k elements meet such of k times n; a vector is one of one row."""
    return left[-2] if len(left) > 1 else 1, left[-1], right[-1] if len(right) > 1 else 1


def pairs_in(left: Layout, right: Layout, result: Layout, itemsize: int) -> Pairs | None:
    """Return how stacks of pairs lie; None if a loop over the first axis and one more do not reach all."""
    batch = result.shape[:max(len(left.shape), len(right.shape)) - 2]
    if result != contiguous(result.shape, itemsize):
        return None
    steps = [_steps(batch, operand) for operand in (left, right)]
    if steps[0] is None or steps[1] is None:
        return None
    cores = left.strides[-2:] if len(left.shape) > 1 else (0, *left.strides), \
        right.strides[-2:] if len(right.shape) > 1 else (*right.strides, 0)
    return Pairs(
        batch[0], prod(batch[1:]), sizes(left.shape, right.shape),
        (*steps[0], cores[0][0], cores[0][1]), (*steps[1], cores[1][0], cores[1][1]))


def _steps(batch: Shape, operand: Layout) -> tuple[int, int] | None:
    """Return the bytes between matrices along the first axis, and along all others taken as one."""
    stack = Layout(operand.shape[:-2], operand.strides[:-2])
    first, *inner = spread(batch, stack)
    return None if (step := _one_step(batch[1:], tuple(inner))) is None else (first, step)


def _one_step(shape: Shape, strides: Strides) -> int | None:
    """Return the bytes between neighbours over several axes; None if they are not the same everywhere."""
    step, length = 0, 1
    for n, stride in zip(reversed(shape), reversed(strides), strict=True):
        if n == 1:
            continue
        if length == 1:
            step = stride
        elif stride != step * length:
            return None
        length *= n
    return step
