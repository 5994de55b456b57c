"""Explicit loops: rewritten so that compiled code runs their iterations, lowered to loop programs, compiled.

- `loop_functions`: functions with rewritten loops (`rewriting`, `liveness`, `callees`), and their records.
- `loop_sites`: loops at run time: profiles, `specialisations`, and parts that Python or compiled code runs
  (`sources` that loops go through, `operands`); `native_entry` enters short runs without Python.
- `loop_compiler`: lowering and compilation for operands, in the background; `records` of it on disk.
- `lowering`: a loop as a program (`builder`), by `statements`, `nested_loops`, `expressions`, `inlining`;
  `calls`, `shapes`, `arrays`, `selections`, `reductions`, `scalars`, `lists` lower operations, `flow` meeting
  points of paths, `bounds` hoists checks; `values` are abstract values, `state` writes and reads them.

Files with one user are apart for their size. Above are `dispatch` and `tracing`, below `loopir`; machine code
comes from `codegen`, which `engine` hands over.
"""

from typing import TYPE_CHECKING

from jitla.loopjit.loop_functions import LoopFunction, Loops, LoopSiteRecord
from jitla.loopjit.loop_sites import LoopSite
from jitla.loopjit.sources import Source
from jitla.loopjit.specialisations import Specialisation
from jitla.process.loading import lazy_modules

if TYPE_CHECKING:
    from jitla.loopjit import loop_compiler, records
else:
    __getattr__ = lazy_modules(__name__, "jitla.loopjit.loop_compiler", "jitla.loopjit.records")

__all__ = ["LoopFunction", "LoopSiteRecord", "LoopSite", "Loops", "Source", "Specialisation", "loop_compiler",
           "records"]
