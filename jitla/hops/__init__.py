"""High-level operators (hops): the DAG of recorded operations, and the table of operators.

- `node` has the interned nodes of the DAG, their metadata and the specifications of their operators; `text`
  is their text form.
- The `ops_*` files register all operators.
- `sparsity` bounds and estimates nonzeros; `cost` counts operations and bytes, and models the machine.
- `interpreter` evaluates DAGs by NumPy calls and predicts floating-point flags.

Entry points: `make`, `apply`, `leaf`, `const`, `topo`, `evaluate`, `lookup`. The package depends on no
other compiler stage; rewrites, fusion and code generation are built on it.
"""

from typing import TYPE_CHECKING

from jitla.hops.cost import (
    NUMPY_CALL_SECONDS,
    REFERENCE_MACHINE,
    Machine,
    MemoryLevel,
    Rate,
    bytes_of,
    flops,
    has_recipe,
    machine_from_record,
    numpy_seconds,
    replace_by_leaves,
)
from jitla.hops.interpreter import (
    ALL_FLAGS,
    DIVIDE,
    FLAG_BY_KIND,
    FLAGS_BY_THREAD,
    INVALID,
    OVERFLOW,
    SCALAR_NARROWED,
    Evaluation,
    FlagsRaised,
    NumpyBuilder,
    depends_on_position,
    error_state,
    evaluate,
    has_exact_flags,
    implementation_of,
    is_narrowed_scalar,
    leaf_value,
    may_hold_signalling_nan,
    possible_flags,
    start_recording,
    stop_recording,
    take_flags,
)
from jitla.hops.node import (
    WHOLE_AXIS,
    Hop,
    Kind,
    Margins,
    Meta,
    OpSpec,
    ScalarBuilder,
    Section,
    Shape,
    WeakScalar,
    Zeros,
    ZeroSafety,
    all_ops,
    apply,
    broadcast,
    by_numpy,
    const,
    const_value,
    leaf,
    lookup,
    make,
    margins,
    reduced_shape,
    register,
    sections,
    sections_of_index,
    substitute,
    topo,
    uses,
    verify,
)
from jitla.hops.ops_elementwise import (
    Body,
    Step,
    UserFunction,
    common_dtype,
    is_approximate,
    register_scipy_ufunc,
    register_user_function,
)
from jitla.hops.ops_matrix import (
    POSITION_DTYPE,
    RingWidths,
    index_key,
    is_roll_of_ring,
    parse_subscripts,
)
from jitla.hops.ops_sparse import SPARSE_KERNEL_OPS
from jitla.hops.sparsity import (
    ESTIMATORS,
    Sketch,
    csr_sketch,
    estimate_nnz,
    nnz_of_product,
)
from jitla.process.loading import lazy_exports

if TYPE_CHECKING:
    from jitla.hops.text import (
        HopRows,
        NotSerialisable,
        block_digest,
        decode_value,
        format_line,
        hops_from_rows,
        parse,
        show,
    )
else:  # its file imports JSON, and loops need no text
    __getattr__ = lazy_exports(
        __name__,
        text="HopRows NotSerialisable block_digest decode_value format_line hops_from_rows parse show",
    )

__all__ = [
    "register_scipy_ufunc", "all_ops", "ALL_FLAGS", "apply", "is_approximate", "Body", "broadcast",
    "by_numpy", "bytes_of",
    "common_dtype", "UserFunction", "const", "const_value", "depends_on_position", "DIVIDE",
    "register_user_function", "error_state",
    "estimate_nnz",
    "ESTIMATORS", "evaluate", "Evaluation", "has_recipe", "FlagsRaised", "hops_from_rows", "flops",
    "machine_from_record",
    "replace_by_leaves", "FLAGS_BY_THREAD", "take_flags", "Hop", "stop_recording", "index_key", "INVALID",
    "has_exact_flags", "is_narrowed_scalar", "is_roll_of_ring",
    "Kind", "FLAG_BY_KIND", "leaf", "leaf_value", "MemoryLevel", "start_recording", "lookup", "Machine",
    "make", "Margins",
    "margins", "possible_flags", "may_hold_signalling_nan", "implementation_of", "Meta", "SCALAR_NARROWED",
    "nnz_of_product",
    "NUMPY_CALL_SECONDS", "numpy_seconds", "NumpyBuilder", "csr_sketch", "OpSpec", "OVERFLOW", "parse",
    "parse_subscripts", "format_line",
    "POSITION_DTYPE", "Rate",
    "reduced_shape", "REFERENCE_MACHINE", "register", "HopRows", "ZeroSafety", "ScalarBuilder", "Section",
    "sections",
    "Shape", "show", "Sketch", "Step", "SPARSE_KERNEL_OPS", "substitute", "sections_of_index", "topo",
    "NotSerialisable", "uses",
    "decode_value", "verify", "WeakScalar", "WHOLE_AXIS", "RingWidths", "block_digest", "Zeros",
]
