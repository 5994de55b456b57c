"""Differential fuzzing: random NumPy programs, run plain and jitted, compared in everything.

Reading order: arrays, draft, operators, expressions, statements, unusual, blocks, frame, vary,
generate (how a program is drawn); noise, load, compare, runner, layers (how two runs are compared);
shrink, tally; sums (a fuzzer of its own).
"""
