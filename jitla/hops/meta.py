"""Metadata of a value: shape, dtype, and a bound on the number of nonzeros."""

from __future__ import annotations

from math import prod

import numpy as np

from jitla.classes import dataclass

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Meta:
    """The metadata of an array: `shape`, `dtype`, and `nnz`.

    `nnz` is an upper bound on the number of nonzeros, valid if no operand was infinite or NaN; None means no
    bound. Expected numbers are estimated in `sparsity`.
    """

    shape: Shape
    dtype: np.dtype
    nnz: int | None = None

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of a dense array with this meta."""
        return self.size * self.dtype.itemsize


def broadcast(shapes: tuple[Shape, ...]) -> Shape:
    """Return the shape that `shapes` broadcast to; raise NumPy's ufunc error if they do not."""
    first = shapes[0]
    if all(s == first for s in shapes):
        return first
    out = [1] * max(map(len, shapes))
    for shape in shapes:
        for i, n in enumerate(shape, len(out) - len(shape)):
            if n != 1:
                if out[i] not in (1, n):
                    raise ValueError(_MISMATCH.format(" ".join(map(_format_shape, shapes))))
                out[i] = n
    return tuple(out)


_MISMATCH = "operands could not be broadcast together with shapes {} "


def _format_shape(shape: Shape) -> str:
    """Format a shape as NumPy's messages do: without spaces."""
    return str(shape).replace(" ", "")


def reduced_shape(shape: Shape, axis: tuple[int, ...], keepdims: bool) -> Shape:
    """Return the shape after reducing over `axis` (sorted, non-negative)."""
    if keepdims:
        return tuple(1 if i in axis else n for i, n in enumerate(shape))
    return tuple(n for i, n in enumerate(shape) if i not in axis)
