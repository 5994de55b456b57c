"""The native run time made with this room's own compiler.

Knows: that the run time needs a loader. Must not know: what is in it.
Receives nothing; returns `launch`.
"""

from __future__ import annotations

from collections.abc import Callable

from jitla.codegen.jit import Jit
from jitla.codegen.native import load_native


def start() -> Callable[..., None]:
    """Compile and install pool, memory handler and launch entry, once in a process."""
    jit = Jit()
    return load_native(jit.load, f'target triple = "{jit.target.triple}"\n')
