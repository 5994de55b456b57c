"""Loop IR: loop nests that are scheduled by primitives, verified, interpreted, and compiled to kernels.

A nest states in loops, buffers and single elements what a kernel computes. A schedule is a sequence of
primitives, each a function from nest to nest that refuses to change a single bit of a result. So nests can
be printed, parsed back and interpreted after every primitive.

- `nodes`: immutable nodes, and affine indices in normal form.
- `analysis`: traversal, rewriting, and dependences between pairs of accesses.
- `verifier`: the invariants of nests (`LAWS`), proven by interval arithmetic, and the interpreter.
- `schedule_loops`, `schedule_stages`: the primitives, in two files that are apart for their size;
  `apply_schedule` runs them by name.
- `text`: printer and parser.

A loop program (`program`) is what a loop of a Python function is lowered to: scalars and views that change,
control flow, checks and exits. `program_verifier`, `program_interpreter` and `program_text` are for it what
the others are for nests; `program_state` is how it is given operands. `loop_fusion` joins loops of programs,
`vector_loops` finds those whose iterations are computed several at a time.

Sizes are constants: a nest describes one binding. What cannot be proven legal is refused. The package uses
the op table (`hops`) only; code generation, the accelerator and the tuner use it.
"""

from typing import TYPE_CHECKING

from jitla.process.loading import lazy_exports

if TYPE_CHECKING:
    from jitla.loopir.analysis import (
        accesses,
        all_loops,
        allocated_buffers,
        buffers_of,
        carried_dependence,
        intrinsics_of,
        rewrite_body,
        substitute_variables,
    )
    from jitla.loopir.loop_fusion import (
        fuse_loops,
    )
    from jitla.loopir.nodes import (
        Alloc,
        Apply,
        Buffer,
        Guard,
        Index,
        Intrinsic,
        Invoke,
        Load,
        Loop,
        LoopKind,
        Minimum,
        Nest,
        Number,
        Quotient,
        Remainder,
        Scope,
        Statement,
        Store,
        Update,
        Value,
        Window,
        minimum,
        number,
        quotient,
        remainder,
        value_range,
        variable,
    )
    from jitla.loopir.program import (
        INT64,
        Address,
        Allocate,
        Assign,
        AxisMap,
        BindMemory,
        BindView,
        Block,
        Break,
        Check,
        Checked,
        Continue,
        Dot,
        Element,
        ExitKind,
        ExitPoint,
        Expires,
        Extent,
        For,
        Foreign,
        If,
        InnerLoop,
        Leave,
        LoopProgram,
        Operand,
        Place,
        Pointer,
        ProgramStatement,
        ProgramValue,
        Read,
        Repeat,
        ScalarVariable,
        Sort,
        StateLayout,
        StoreElement,
        Stride,
        ViewVariable,
        constant,
        dtype_of_value,
        program_nodes,
        state_layout,
        uses_expiry,
        variables_in,
    )
    from jitla.loopir.program_facts import (
        ProgramFacts,
    )
    from jitla.loopir.program_interpreter import (
        run_program,
    )
    from jitla.loopir.program_state import (
        Outcome,
        core_axes,
        find_ufunc,
        pack_state,
        read_memory,
        unpack_state,
    )
    from jitla.loopir.program_text import (
        parse_program,
        show_program,
    )
    from jitla.loopir.program_uses import (
        assigned_in,
        is_pure,
        may_leave,
        operands_of,
        variables_of_value,
    )
    from jitla.loopir.program_verifier import (
        PROGRAM_LAWS,
        verify_program,
    )
    from jitla.loopir.schedule_stages import (
        PRIMITIVES,
        apply_schedule,
    )
    from jitla.loopir.text import (
        apply,
        parse,
        show,
    )
    from jitla.loopir.vector_loops import (
        Linear,
        LinearAccess,
        Reduction,
        VectorLoop,
        find_vector_loop,
        show_vector_loop,
    )
    from jitla.loopir.verifier import (
        LAWS,
        run,
        verify,
    )
else:
    __getattr__ = lazy_exports(
        __name__,
        analysis=(
            "accesses all_loops allocated_buffers buffers_of carried_dependence intrinsics_of "
            "rewrite_body substitute_variables"
        ),
        loop_fusion="fuse_loops",
        nodes=(
            "Alloc Apply Buffer Guard Index Intrinsic Invoke Minimum Load Loop LoopKind Nest "
            "Number Quotient Remainder Scope Statement Store Update Value Window minimum number "
            "quotient value_range remainder variable"
        ),
        program=(
            "Address Allocate Assign AxisMap BindMemory BindView Block Break Check Checked Continue Dot "
            "Element ExitKind ExitPoint Expires Extent For Foreign If InnerLoop Leave LoopProgram Operand "
            "Place Pointer ProgramStatement ProgramValue Read Repeat ScalarVariable Sort StateLayout "
            "StoreElement Stride ViewVariable constant dtype_of_value program_nodes state_layout uses_expiry "
            "variables_in INT64"
        ),
        program_interpreter="run_program",
        program_state="Outcome core_axes find_ufunc pack_state read_memory unpack_state",
        program_text="parse_program show_program",
        program_uses="assigned_in is_pure may_leave operands_of variables_of_value",
        program_verifier="PROGRAM_LAWS verify_program",
        program_facts="ProgramFacts",
        schedule_stages="PRIMITIVES apply_schedule",
        text="apply parse show",
        vector_loops="Linear LinearAccess Reduction VectorLoop find_vector_loop show_vector_loop",
        verifier="LAWS run verify",
    )

__all__ = [
    "Address", "Alloc", "Allocate", "Apply", "Assign", "AxisMap", "BindMemory", "BindView", "Block",
    "Break", "Buffer", "Check", "Checked", "Continue", "Dot", "Element", "ExitKind", "ExitPoint", "Expires",
    "Extent", "For", "Foreign", "Guard", "INT64", "If", "Index", "InnerLoop", "Intrinsic", "Invoke", "LAWS",
    "Leave",
    "Linear", "LinearAccess", "Load", "Loop", "LoopKind", "LoopProgram", "Minimum", "Nest", "Number",
    "Operand", "Outcome", "PRIMITIVES", "PROGRAM_LAWS", "Place", "Pointer", "ProgramFacts",
    "ProgramStatement", "ProgramValue", "Quotient", "Read", "Reduction", "Remainder", "Repeat",
    "ScalarVariable", "Scope", "Sort", "StateLayout", "Statement", "Store", "StoreElement", "Stride",
    "Update", "Value", "VectorLoop", "ViewVariable", "Window", "accesses", "all_loops", "allocated_buffers",
    "apply", "apply_schedule", "assigned_in", "buffers_of", "carried_dependence", "constant", "core_axes",
    "dtype_of_value", "find_ufunc", "find_vector_loop", "fuse_loops", "intrinsics_of", "is_pure",
    "may_leave", "minimum", "number", "operands_of", "pack_state", "parse", "parse_program",
    "program_nodes", "quotient", "read_memory", "remainder", "rewrite_body", "run", "run_program", "show",
    "show_program", "show_vector_loop", "state_layout", "substitute_variables", "unpack_state",
    "uses_expiry", "value_range", "variable", "variables_in", "variables_of_value", "verify",
    "verify_program",
]
