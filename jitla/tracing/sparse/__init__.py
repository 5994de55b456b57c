"""SciPy's sparse matrices, and results of `jitla.sparsify`, in traced code.

`products.record_sparse_call` records a call on sparse matrices as operators on their stored entries and
returns a `LazySparse`, a proxy of the result; NotImplemented is the SciPy fallback. `elementwise` has the
operators of entries, `sparsify` is the public `jitla.sparsify`, and `zero_skipping` decides by a cost model
whether its products skip zeros. The package records on the session of `jitla.tracing`.
"""
