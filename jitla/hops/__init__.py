"""High-level operators (HOPs): the DAG that a computation is recorded as, and the table of its operators.

`opspec` says what an operator is; the tables `ops_*` register all of them. `node` has the nodes of the DAG,
`meta` their shapes and dtypes, `sparsity` their numbers of nonzeros, `cost` their work, `interpreter` values.
"""

from jitla.hops.cost import (
    NUMPY_CALL,
    REFERENCE,
    Level,
    Machine,
    Rate,
    bytes_of,
    expressible,
    flops,
    from_record,
    given,
    numpy_work,
)
from jitla.hops.interpreter import (
    ANY,
    DIVIDE,
    HEARD,
    INVALID,
    KINDS,
    NARROWED,
    OVERFLOW,
    Evaluation,
    Flagged,
    NumpyBuilder,
    error_state,
    evaluate,
    heard,
    hush,
    is_exact,
    is_narrow,
    leaf_value,
    listen,
    may_raise,
    may_signal,
    meaning,
)
from jitla.hops.meta import (
    Meta,
    Shape,
    broadcast,
    reduced_shape,
)
from jitla.hops.node import (
    WHOLE,
    Hop,
    Margins,
    Section,
    Weak,
    apply,
    const,
    const_value,
    leaf,
    make,
    margins,
    sections,
    substitute,
    taken_by,
    topo,
    uses,
    verify,
)
from jitla.hops.ops_elementwise import (
    Body,
    Compiled,
    Step,
    adopt,
    approximate,
    common_dtype,
    enter,
)
from jitla.hops.ops_matrix import (
    POSITION,
    Widths,
    index_key,
    is_turn,
    parsed,
)
from jitla.hops.ops_sparse import STORED
from jitla.hops.opspec import (
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
from jitla.hops.sparsity import (
    ESTIMATORS,
    Sketch,
    estimated,
    nnz_of_product,
)
from jitla.hops.sparsity import (
    of_rows_sketch as of_rows,
)
from jitla.hops.text import (
    Rows,
    Unwritable,
    hops_of,
    parse,
    place,
    show,
    value_of,
    words_of,
)

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
