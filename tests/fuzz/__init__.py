"""Differential fuzzing: random NumPy programs, run plain and jitted, compared in everything.

Reading order: arrays, others, draft, operators, expressions, statements, unusual, mixed, functions,
trouble, regions, blocks, frame, vary, generate (how a program is drawn); noise, load, compare, modes,
placed, runner, layers (how two runs are compared); shrink, tally; sums (a fuzzer of its own).
"""
