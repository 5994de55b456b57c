"""Inspection of Python functions and frames, used while functions are decorated and called.

- `callables`: the function behind a callable, and kinds of functions that cannot be traced.
- `frames`: hiding of jitla's frames, and detection of functions that inspect the stack.
- `recursion`: detection of deep recursions, which run the plain function.

The package imports nothing heavy and depends on `jitla.errors` only.
"""
