"""SciPy's sparse matrices, and dense arrays with many zeros, in traced code.

`products.record_sparse_call` records a call on sparse matrices as operators on their stored entries and
returns a `LazySparse`, a proxy of the result; NotImplemented is the SciPy fallback. `elementwise` has the
operators of entries, `zero_skipping` decides by a cost model whether products skip the zeros of a dense
matrix or read another format, `sparsify` is the public `jitla.sparsify`. The package records on the session
of `jitla.tracing`.
"""
