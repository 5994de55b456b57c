"""Handlers that record calls of NumPy functions as operators of the tape.

`functions.FUNCTIONS` maps a NumPy function to its handler. A handler takes the session and the arguments of
the call and returns proxies, or `NotImplemented` for the NumPy fallback: options, dtypes or layouts that no
operator supports. `functions` handles most of them, `linalg` contractions, scans, stacks and views. The
recorder and the callees of `jitla.tracing` use this package.
"""
