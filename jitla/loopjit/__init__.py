"""Explicit loops: rewritten so that compiled code runs their iterations, lowered to loop programs, and compiled.

`loop_functions` rewrites functions (`rewriting`, `liveness`); `loop_sites` runs loops, by Python and by compiled
code in turns (`sources`, `operands`). `loop_compiler` compiles in the background: `lowering` interprets syntax
trees over abstract `values` (`scalars`, `arrays`, `reductions`, `calls`, `flow`) and builds loop programs
(`builder`), whose variables `state` writes and reads. Above are `dispatch` and `tracing`, below `codegen`.
"""

from typing import TYPE_CHECKING

from jitla.loopjit.loop_functions import LoopFunction, LoopRecord, Loops
from jitla.loopjit.loop_sites import LoopSite, Specialisation
from jitla.loopjit.sources import Source
from jitla.process.loading import lazy_modules

if TYPE_CHECKING:
    from jitla.loopjit import loop_compiler
else:
    __getattr__ = lazy_modules(__name__, "jitla.loopjit.loop_compiler")

__all__ = ["LoopFunction", "LoopRecord", "LoopSite", "Loops", "Source", "Specialisation", "loop_compiler"]
