"""What a computation is: the DAG of high-level operators.

Reading order: meta, spec, node, table_cell, table_matrix, interp.
"""

from jitla.hops.interp import NumpyBuilder, evaluate
from jitla.hops.meta import Meta, Shape, reduced_shape
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
)
from jitla.hops.spec import (
    Kind,
    OpSpec,
    ScalarBuilder,
    Zeros,
    all_ops,
    by_numpy,
    lookup,
    register,
)
from jitla.hops.table_cell import common_dtype
from jitla.hops.table_matrix import index_key

__all__ = [
    "Hop", "Kind", "Meta", "NumpyBuilder", "OpSpec", "ScalarBuilder", "Shape", "Weak", "Zeros",
    "all_ops", "apply", "by_numpy", "common_dtype", "const", "const_value", "evaluate",
    "index_key", "leaf", "lookup", "make", "reduced_shape", "register", "substitute", "topo", "uses",
]
