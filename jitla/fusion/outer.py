"""The template Outer: products with wide matrices, and what is done with their rows, in blocks of rows.

Knows: which products gain from cells on blocks that are still in the cache. Must not know: prices.
Receives products over rows; returns verdicts.

The template Outer of Boehm et al., On Optimizing Operator Fusion Plans, PVLDB 11(12), 2018, with
driver operands that are dense: a product is never written to memory, only what is made of it.
"""

from __future__ import annotations

from math import prod

from jitla.fusion.kernel import Product
from jitla.hops import Hop, Kind

MIN_RESULT = 1 << 17  # bytes of what a row kernel makes piece by piece: less stays in the cache anyway
MAX_DEPTH = 384  # of a product: beyond, arithmetic hides whatever is done with its results
MAX_ROW = 1 << 18  # bytes of a row of results: of longer ones no block stays in the caches
MIN_SHRUNK, SHRINKS = 4 << 20, 4  # bytes of a matrix whose rows are made so many times shorter, at least
SPARSE = 0.3  # part of a value that may be other than 0 for the rest to be passed over
MAX_SUM = 1 << 20  # bytes of a sum over rows: every thread has its own

def takes_wide(product: Product) -> bool:
    """Tell whether a product with a wide matrix is worth being made in blocks of rows."""
    shape, hop = product.matrix.meta.shape, product.hop
    if hop.meta.ndim < 2 or not product.wide:
        return False
    rows, length = shape[::-1] if product.turned else (prod(shape[:-1]), shape[-1])
    size = product.columns * hop.meta.dtype.itemsize
    if product.form == "sum":
        return rows * size >= MIN_RESULT and length * size <= MAX_SUM
    shallow = length <= MAX_DEPTH or is_shrunk(product)
    return rows * size >= MIN_RESULT and 4 <= length and shallow and size <= MAX_ROW


def is_shrunk(product: Product) -> bool:
    """Tell whether long rows are made, too large a matrix for the caches, that the product makes short.

    Then it pays to make few of them at a time, however deep the product is.
    """
    matrix = product.matrix
    made = matrix.op.kind is not Kind.LEAF and matrix.meta.nbytes >= MIN_SHRUNK
    return made and SHRINKS * product.columns <= matrix.meta.shape[-1]


def is_sparse(hop: Hop) -> bool:
    """Tell whether most of a value is known to be 0."""
    return hop.meta.nnz is not None and hop.meta.nnz < SPARSE * hop.meta.size


def keeps_driver(hop: Hop, operand: Hop) -> bool:
    """Tell whether `hop` needs no more products of rows than `operand`: none where that is 0.

    A sum with a dense matrix stays outside of a kernel that a sparse one drives.
    """
    return hop.meta.shape != operand.meta.shape or not is_sparse(operand) or is_sparse(hop)
