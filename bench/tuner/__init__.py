"""The tuner against others, on tables in which every point of a space was measured once.

Reading order: tables, kernels, contest, confirm, live, __main__.
"""
