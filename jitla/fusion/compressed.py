"""Products of matrices of compressed rows, and of their transposes, as loops over rows.

Knows: the operators of the op table, which sizes pay. Must not know: prices, backends.
Receives hops and facts; returns `Product` records.

The matrix is three operands: its entries, their columns, and where rows begin. Only the last lies by rows;
of the others every block of rows reads what is its own.
"""

from __future__ import annotations

from jitla.fusion.kernel import COMPRESSED, NARROW, Product
from jitla.fusion.layout import contiguous
from jitla.fusion.templates import Facts
from jitla.hops import Hop

MIN_BYTES = 1 << 16  # of all entries: fewer stay in the cache anyway
SHARE = 4  # entries for an element of a sum, at least: every unit has a sum of its own


def compressed_of(hop: Hop, facts: Facts) -> Product | None:
    """Return `hop` as a product over compressed rows, if its operands lie in one run each."""
    data, _, starts, x = hop.inputs
    found = Product(COMPRESSED[hop.op.name], hop, data, False, x)
    runs = all(facts.layouts[i] == contiguous(i.meta.shape, i.meta.dtype.itemsize) for i in hop.inputs)
    if not runs or data.meta.nbytes < MIN_BYTES or starts.meta.size < 3 or found.columns > NARROW:
        return None
    pays = found.form == "dot" or hop.meta.size * SHARE <= data.meta.size * found.columns
    return found if pays else None
