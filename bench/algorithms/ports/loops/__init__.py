"""Loops over elements for Numba, as experts write them: parallel, and of strict floating-point arithmetic."""
