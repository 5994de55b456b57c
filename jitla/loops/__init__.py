"""Explicit loops over elements: found, handed to Numba in another process, and swapped in.

Reading order: kinds, values, writer, arithmetic, given, calls, names, nests, alone, again, needs, ahead,
elements, expressions, statements, rows, counting, translate, kernel, versions, foreman, keeping, door, call,
opening, entry, function, worker.
"""

from jitla.loops.function import Looping, Loops, Record

__all__ = ["Looping", "Loops", "Record"]
