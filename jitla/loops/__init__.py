"""Explicit loops over elements: found, handed to Numba in another process, and swapped in.

Reading order: kinds, values, arithmetic, given, calls, nests, alone, again, needs, elements, expressions,
statements, counting, translate, kernel, versions, foreman, keeping, door, call, opening, entry, function,
worker.
"""

from jitla.loops.function import Looping, Loops, Record

__all__ = ["Looping", "Loops", "Record"]
