"""What a computation is: the DAG of high-level operators.

Reading order: meta, spec, nnz, node, slices, parts, table_cell, table_matrix, table_made, table_sums,
table_sparse, table_special, table_user, table_take, table_rings, sketch, estimate, interp, flags, cost,
exchange, machine, text, coded.
"""

from jitla.hops import table_made as table_made  # its entries are registered
from jitla.hops.coded import Rows, Unwritable, hops_of, value_of, words_of
from jitla.hops.cost import NUMPY_CALL, bytes_of, expressible, flops, numpy_work
from jitla.hops.estimate import ESTIMATORS, estimated
from jitla.hops.exchange import given
from jitla.hops.flags import (
    ANY,
    DIVIDE,
    HEARD,
    INVALID,
    KINDS,
    NARROWED,
    OVERFLOW,
    Flagged,
    error_state,
    heard,
    hush,
    is_exact,
    is_narrow,
    listen,
    may_raise,
    may_signal,
)
from jitla.hops.interp import Evaluation, NumpyBuilder, evaluate, leaf_value, meaning
from jitla.hops.machine import REFERENCE, Level, Machine, Rate, from_record
from jitla.hops.meta import Meta, Shape, broadcast, reduced_shape
from jitla.hops.node import (
    Hop,
    Weak,
    apply,
    const,
    const_value,
    leaf,
    make,
    substitute,
    topo,
    uses,
    verify,
)
from jitla.hops.sketch import Sketch, nnz_of_product, of_rows
from jitla.hops.slices import WHOLE, Margins, Section, margins, sections, taken_by
from jitla.hops.spec import (
    Kind,
    OpSpec,
    Safe,
    ScalarBuilder,
    Zeros,
    all_ops,
    by_numpy,
    lookup,
    register,
)
from jitla.hops.table_cell import common_dtype
from jitla.hops.table_matrix import index_key
from jitla.hops.table_rings import Widths, is_turn
from jitla.hops.table_sparse import STORED
from jitla.hops.table_special import adopt
from jitla.hops.table_sums import parsed
from jitla.hops.table_take import POSITION
from jitla.hops.table_user import Body, Compiled, Step, approximate, enter
from jitla.hops.text import parse, place, show

__all__ = [
    "adopt", "all_ops", "ANY", "apply", "approximate", "Body", "broadcast", "by_numpy", "bytes_of",
    "common_dtype", "Compiled", "const", "const_value", "DIVIDE", "enter", "error_state", "estimated",
    "ESTIMATORS", "evaluate", "Evaluation", "expressible", "Flagged", "hops_of", "flops", "from_record",
    "given", "HEARD", "heard", "Hop", "hush", "index_key", "INVALID", "is_exact", "is_narrow", "is_turn",
    "Kind", "KINDS", "leaf", "leaf_value", "Level", "listen", "lookup", "Machine", "make", "Margins",
    "margins", "may_raise", "may_signal", "meaning", "Meta", "NARROWED", "nnz_of_product",
    "NUMPY_CALL", "numpy_work", "NumpyBuilder", "of_rows", "OpSpec", "OVERFLOW", "parse", "parsed", "place",
    "POSITION", "Rate",
    "reduced_shape", "REFERENCE", "register", "Rows", "Safe", "ScalarBuilder", "Section", "sections",
    "Shape", "show", "Sketch", "Step", "STORED", "substitute", "taken_by", "topo", "Unwritable", "uses",
    "value_of", "verify", "Weak", "WHOLE", "Widths", "words_of", "Zeros",
]
