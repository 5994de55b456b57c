"""Explicit loops over elements: found, handed to Numba in another process, and swapped in.

Reading order: kinds, values, writer, arithmetic, given, calls, names, lanes, nests, within, helpers,
alone, again, redone, needs, ahead, elements, expressions, statements, rows, reductions, counting, parts,
translate, kernel, lane_shares, lane_turns, laned, versions, foreman, keeping, seen, door, call, opening,
variants, entry, making, function, worker.
"""

from jitla.loops.function import Looping, Loops, Record

__all__ = ["Looping", "Loops", "Record"]
