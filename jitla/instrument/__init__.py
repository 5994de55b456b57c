"""Instrumentation: rewrites users' functions so that operations call hooks, and analyses their bytecode.

`Instrumenter` compiles instrumented functions (`instrumented`): it finds the syntax tree of one, has it
rewritten, compiles it and binds it to the cells of the original. `scope` resolves names and infers which
values run no user code, `expressions` and `statements` insert calls of hooks; `statements` is used by
`instrumented` only and apart for its size. `live_locals` of `bytecode` is a liveness analysis of local
variables. The hooks are methods of an object that the caller supplies: `jitla.tracing.hooks`, the package
above. Below is `jitla.introspection`.
"""

from jitla.instrument.bytecode import CodeCache, live_locals
from jitla.instrument.expressions import BARRIER, SCALAR_TYPES
from jitla.instrument.instrumented import (
    Instrumenter,
    compile_changed,
    instrument,
    is_instrumented,
    lambda_of,
    syntax_tree_of,
)
from jitla.instrument.scope import (
    MISSING,
    NON_ARRAY_TYPES,
    NOT_ARRAY,
    loops_in_python,
)

__all__ = [
    "BARRIER", "CodeCache", "Instrumenter", "MISSING", "NON_ARRAY_TYPES", "NOT_ARRAY", "SCALAR_TYPES",
    "compile_changed", "instrument", "is_instrumented", "lambda_of", "live_locals", "loops_in_python",
    "syntax_tree_of",
]
