"""Instrumentation of functions of users, and what their source and bytecode say.

`source_lookup` finds the source of a function, `scope` analyses its names, `expressions` and `statements`
rewrite it (`hook_nodes`), and `instrumented` makes a function of that. `bytecode` has liveness of variables.
"""

from jitla.instrument.bytecode import PerCode, live_locals
from jitla.instrument.hook_nodes import (
    BARRIER,
    NUMBERS,
)
from jitla.instrument.instrumented import (
    Twins,
    changed_code,
    instrument,
    is_twin,
    tree_of,
)
from jitla.instrument.scope import (
    IMMUTABLE,
    MISSING,
    NOT_ARRAY,
    loops_in_python,
)

__all__ = [
    "BARRIER", "IMMUTABLE", "MISSING", "NOT_ARRAY", "NUMBERS", "PerCode", "Twins", "changed_code",
    "instrument", "is_twin", "live_locals", "loops_in_python", "tree_of",
]
