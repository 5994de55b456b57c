"""Benchmarks of parts of the compiler, which import its packages; those of `bench/` import public names only.

- plans and their search: enumeration, ranks, prediction, plans, products, rewrites, estimators
- code and calls: compiling, overhead, growth
- memory and background compilation: lasting, recompilation, sparse_algorithms, sparse_outer, windows
- the machine's limits: machine; the simulated accelerator: accelerator; the tuner: tuner
"""
