"""Differential fuzzing: random NumPy programs, run plain and jitted, compared in everything.

Reading order: arrays, values (what programs compute with), expressions, statements, generate
(how a program is drawn), load, compare, noise (how two runs are compared), runner, shrink.
"""
