"""Loop nests that can be read, changed, and run by NumPy: what stands between a kernel and its code.

A room of its own at the rank of planning, because several rooms above it are to read nests - code generation,
the accelerator's lowering, a tuner - and none of those may import another. It knows operators by the op
table alone.

*What is computed* is a nest in its plainest form: one run of loops after the other, each storing a buffer
element by element. *When and where* is the schedule: primitives, each a function from nest to nest, which
refuse what would change a single bit. So a nest needs no record of how it came about: it can be printed
after every primitive, parsed back, and run by the interpreter, which is what it means.

- **Nodes** (`nodes`) are one page of immutable records. Loops count from 0 and have a kind; buffers have a
  scope; statements store an element, update it by an operator, guard, allocate, or invoke an intrinsic,
  which is itself declared by a nest. The order of a reduction is the order of its loops' turns.
- **Indices** (`index`) are sums of multiples of loop variables, of quotients and rests of them (loops that
  were joined, buffers used in a ring), and of the smaller of two (tails shifted inwards), in one normal form.
- **Laws** (`laws`) have names. That no index leaves its buffer and that turns that are not serial are
  independent is proven from ranges, not tried out.
- **Dependence** (`dependence`) is asked for pairs of elements: whether they differ wherever two turns do.
  Updates of whole numbers may change places, as they wrap; those of floats may not.
- **Regions** (`regions`) are bounds inference: what part of a buffer a loop reads. With it values are
  computed at a loop (with the halo that overlaps), or kept over its turns in a sliding window.
- **Schedules** (`schedule`) are lines of primitives by name, for pins, tuners and listings.

Sizes are numbers: a nest is the picture of one binding. Legality is judged with care: what cannot be
proven is refused, with the name of the reason.

"""

from typing import TYPE_CHECKING

from jitla.process.loading import door

if TYPE_CHECKING:
    from jitla.loopir.analysis import (
        accesses,
        all_loops,
        allocated,
        buffers_of,
        carried,
        intrinsics_of,
        rebuilt,
        renamed,
    )
    from jitla.loopir.nodes import (
        Alloc,
        Apply,
        Buffer,
        Guard,
        Index,
        Intrinsic,
        Invoke,
        Least,
        Load,
        Loop,
        LoopKind,
        Nest,
        Number,
        Quotient,
        Rest,
        Scope,
        Statement,
        Store,
        Update,
        Value,
        Window,
        least,
        number,
        quotient,
        reach,
        rest,
        variable,
    )
    from jitla.loopir.schedule_stages import (
        PRIMITIVES,
        scheduled,
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
    __getattr__ = door(
        __name__,
        analysis="accesses all_loops allocated buffers_of carried intrinsics_of rebuilt renamed",
        nodes=(
            "Alloc Apply Buffer Guard Index Intrinsic Invoke Least Load Loop LoopKind Nest "
            "Number Quotient Rest Scope Statement Store Update Value Window least number "
            "quotient reach rest variable"
        ),
        schedule_stages="PRIMITIVES scheduled",
        text="apply parse show",
        verifier="LAWS run verify",
    )

__all__ = [
    "LAWS", "PRIMITIVES", "Alloc", "Apply", "Buffer", "Guard", "Index", "Intrinsic", "Invoke", "Least",
    "Load", "Loop", "LoopKind", "Nest", "Number", "Quotient", "Rest", "Scope", "Statement", "Store",
    "Update", "Value", "Window", "accesses", "all_loops", "allocated", "apply", "buffers_of", "carried",
    "intrinsics_of", "least", "number", "parse", "quotient", "reach", "rebuilt", "renamed", "rest",
    "run", "scheduled", "show", "variable", "verify",
]
