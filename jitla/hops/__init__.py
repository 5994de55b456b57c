"""What a computation is: the DAG of high-level operators.

Reading order: meta, spec, node.
"""

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

__all__ = [
    "Hop", "Kind", "Meta", "OpSpec", "ScalarBuilder", "Shape", "Weak", "Zeros",
    "all_ops", "apply", "by_numpy", "const", "const_value", "leaf", "lookup", "make",
    "reduced_shape", "register", "substitute", "topo", "uses",
]
