"""Tracing: lazy arrays record the operations of a call on a tape, whose blocks are compiled and run.

Entry points are `run_traced`, `run_generator` and `run_loops`. Instrumented code calls `hooks` and
`callees`. A `session` has the parts that run one traced call: proxies (`lazy`), `recorder`, `indexing` and
`numpy_dispatch` append entries to the `open_tape`; `force` closes a block and delivers its values; `mutation`
tracks the values that depend on memory; `boundary` converts values that enter or leave traced code. A `site`
has the compiled blocks of one function. `fallback` runs blocks by NumPy while programs are compiled;
`jitla.tiering` decides which calls are traced at all.

The package is below `dispatch`, which wraps user functions and supplies the compiler, and above `hops` and
`instrument`.
"""

from jitla.tracing.fallback import (
    InterimReplay,
    InterimSeconds,
    ProgramState,
    Replay,
    Request,
    TracingBudget,
    abandon_program,
)
from jitla.tracing.fp_warnings import can_defer_warnings
from jitla.tracing.frames import LOCAL, call_here, user_traceback
from jitla.tracing.guards import (
    LITERAL_VALUES,
    NEW,
    PlanGuard,
    Recompilation,
    RecompilationLog,
)
from jitla.tracing.hoisting import HoistingPolicy
from jitla.tracing.hooks import (
    HOOKS,
    INSTRUMENTED,
)
from jitla.tracing.session import (
    install_native_methods,
    run_generator,
    run_loops,
    run_traced,
    run_untraced,
)
from jitla.tracing.site import FallbackCounter, Site
from jitla.tracing.sparse.sparsify import Sparsified, skipping_pays, sparsify
from jitla.tracing.tape import LAYOUT_CACHE

__all__ = [
    "FallbackCounter", "PlanGuard", "HOOKS", "INSTRUMENTED", "InterimReplay",
    "InterimSeconds", "HoistingPolicy", "LAYOUT_CACHE", "LITERAL_VALUES", "LOCAL", "NEW", "ProgramState",
    "Recompilation", "RecompilationLog", "Replay", "Request", "Site", "Sparsified",
    "TracingBudget", "abandon_program", "call_here", "can_defer_warnings", "install_native_methods",
    "run_generator", "run_loops", "run_traced", "run_untraced", "skipping_pays", "sparsify", "user_traceback",
]
