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
- `program`: loop programs, the loops of Python functions with scalars, control flow and exits; sizes are not
  known. `program_verifier`, `program_interpreter` and `program_state` are those of programs.

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
    from jitla.loopir.program import LoopProgram
    from jitla.loopir.schedule_stages import (
        PRIMITIVES,
        apply_schedule,
    )
    from jitla.loopir.text import (
        apply,
        parse,
        show,
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
        nodes=(
            "Alloc Apply Buffer Guard Index Intrinsic Invoke Minimum Load Loop LoopKind Nest "
            "Number Quotient Remainder Scope Statement Store Update Value Window minimum number "
            "quotient value_range remainder variable"
        ),
        program="LoopProgram",
        schedule_stages="PRIMITIVES apply_schedule",
        text="apply parse show",
        verifier="LAWS run verify",
    )

__all__ = [
    "LAWS", "PRIMITIVES", "Alloc", "Apply", "Buffer", "Guard", "Index", "Intrinsic", "Invoke", "Minimum",
    "Load", "Loop", "LoopKind", "LoopProgram", "Nest", "Number", "Quotient", "Remainder", "Scope", "Statement", "Store",
    "Update", "Value", "Window", "accesses", "all_loops", "allocated_buffers", "apply", "buffers_of",
    "carried_dependence",
    "intrinsics_of", "minimum", "number", "parse", "quotient", "value_range", "rewrite_body",
    "substitute_variables", "remainder",
    "run", "apply_schedule", "show", "variable", "verify",
]
