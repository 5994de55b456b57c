"""Instrumentation: rewrites users' functions so that operations call hooks, and analyses their bytecode.

`Instrumenter` compiles instrumented functions (`instrumented`): it finds the syntax tree of one (`source`),
has it rewritten, compiles it and binds it to the cells of the original. `scope` resolves names and infers
which values run no user code, `expressions` and `statements` insert calls of hooks; `statements` is used by
`instrumented` only and apart for its size. `live_locals` of `bytecode` is a liveness analysis of local
variables. The hooks are methods of an object that the caller supplies: `jitla.tracing.hooks`, the package
above. The loop compiler uses `source` only. Below is `jitla.introspection`.
"""

from typing import TYPE_CHECKING

from jitla.process.loading import lazy_exports

if TYPE_CHECKING:
    from jitla.instrument.bytecode import CodeCache, live_locals
    from jitla.instrument.expressions import BARRIER, SCALAR_TYPES
    from jitla.instrument.instrumented import (
        Instrumenter,
        instrument,
        is_instrumented,
    )
    from jitla.instrument.scope import (
        MISSING,
        NON_ARRAY_TYPES,
        NOT_ARRAY,
        loops_in_python,
    )
    from jitla.instrument.source import (
        compile_changed,
        lambda_of,
        syntax_tree_of,
        walk_tree,
    )
else:
    __getattr__ = lazy_exports(
        __name__,
        bytecode="CodeCache live_locals",
        expressions="BARRIER SCALAR_TYPES",
        instrumented="Instrumenter instrument is_instrumented",
        scope="MISSING NON_ARRAY_TYPES NOT_ARRAY loops_in_python",
        source="compile_changed lambda_of syntax_tree_of walk_tree",
    )

__all__ = [
    "BARRIER", "CodeCache", "Instrumenter", "MISSING", "NON_ARRAY_TYPES", "NOT_ARRAY", "SCALAR_TYPES",
    "compile_changed", "instrument", "is_instrumented", "lambda_of", "live_locals", "loops_in_python",
    "syntax_tree_of", "walk_tree",
]
