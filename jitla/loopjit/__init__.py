"""Explicit loops over elements: detected, compiled by Numba in another process, and swapped in.

`detect` finds loops, `translator` writes them as a typed function (`expressions`, `statements`, `types`),
`compiler` has it compiled, `native_entry` calls it, `policy` decides which version a call takes. `statements`
and `slice_loops` are apart for their size.
"""

from typing import TYPE_CHECKING

from jitla.loopjit.function import (
    Looping,
    Loops,
    NestRecord,
)
from jitla.process.loading import lazy_modules

if TYPE_CHECKING:
    from jitla.loopjit import compiler
else:
    __getattr__ = lazy_modules(__name__, "jitla.loopjit.compiler")

__all__ = ["Looping", "Loops", "NestRecord", "compiler"]
