"""SciPy's sparse matrices, and results of `jitla.sparsify`, in traced code.

`operations.record_sparse_call` records a call on sparse matrices as operators on their stored entries and
returns a `LazySparse`, a proxy of the result; NotImplemented is the SciPy fallback. `sparsify` is the public
`jitla.sparsify`, whose products skip zeros where a cost model says that this is faster. The package records
on the session of `jitla.tracing`.
"""
