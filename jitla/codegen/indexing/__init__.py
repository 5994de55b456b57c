"""Kernels of indexed reads and writes: `kernels` launches them; `gather`, `scatter` and `compress` write IR.

Only `kernels` uses `scatter` and `compress`, which are apart for their size.
"""
