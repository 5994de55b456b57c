"""Explicit loops over elements: detected, compiled by Numba in another process, and swapped in.

`detect` finds loops, `translator` writes them as a typed function (`expressions`, `statements`, `types`),
`compiler` has it compiled, `native_entry` calls it, `policy` decides which version a call takes.
"""

from jitla.loopjit.function import (
    Looping,
    Loops,
    NestRecord,
)

__all__ = ["Looping", "Loops", "NestRecord"]
