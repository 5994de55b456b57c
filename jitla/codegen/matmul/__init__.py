"""Kernels of matrix products, by shape: `wide`, `narrow`, `matvec`, and `argmin` for rows reduced at once.

`packing` copies matrices into panels. The files are apart because each is loaded when the first product of
its shape is compiled.
"""
