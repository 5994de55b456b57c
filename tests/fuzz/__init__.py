"""Differential fuzzing: random NumPy programs, run plain and jitted, compared in everything.

Reading order: arrays, draft, operators, expressions, statements, blocks, generate (how a program is
drawn); noise, load, compare, runner (how two runs are compared); shrink; sums (a fuzzer of its own).
"""
