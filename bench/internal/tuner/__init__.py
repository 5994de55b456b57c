"""The tuner against others, on tables in which every point of a space was measured once.

Reading order: tables, functions, kernels, neural, contest, report, confirm, live, halide, __main__.
"""
