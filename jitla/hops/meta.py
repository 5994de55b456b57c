"""What is known of a value without computing it: shape, dtype, number of nonzeros."""

from __future__ import annotations

from math import prod

import numpy as np

from jitla.classes import dataclass

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Meta:
    """What an array is, logically: `shape`, `dtype`, and `nnz`.

    `nnz`: how many elements are other than 0, at most, if no operand was infinite or NaN; None if
    that may be all. What is to be expected is estimated elsewhere.
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
    """Shape that `shapes` broadcast to; raises NumPy's ufunc error where they do not."""
    first = shapes[0]
    if all(s == first for s in shapes):
        return first
    out = [1] * max(map(len, shapes))
    for shape in shapes:
        for i, n in enumerate(shape, len(out) - len(shape)):
            if n != 1:
                if out[i] not in (1, n):
                    raise ValueError(_MISMATCH.format(" ".join(map(_plain, shapes))))
                out[i] = n
    return tuple(out)


_MISMATCH = "operands could not be broadcast together with shapes {} "


def _plain(shape: Shape) -> str:
    """Write a shape as NumPy's messages do: no space after the comma."""
    return str(shape).replace(" ", "")


def reduced_shape(shape: Shape, axis: tuple[int, ...], keepdims: bool) -> Shape:
    """Shape after reducing over `axis` (sorted, non-negative)."""
    if keepdims:
        return tuple(1 if i in axis else n for i, n in enumerate(shape))
    return tuple(n for i, n in enumerate(shape) if i not in axis)
