"""Loops over elements for Numba, as experts write them: parallel, and without reassociation where NumPy has none."""
