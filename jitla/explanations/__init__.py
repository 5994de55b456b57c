"""Explanations of decorated functions: what was compiled, what ran in NumPy and why, and what it took.

`collect` gathers records (`records`) from sites and programs; `text`, `html`, `graph` and `trace_events`
render them, and `advice` derives suggestions. `Explanation` (`explanation`), the object that
`jitla.explain` returns, combines these. The package is above all packages that compile and run, and loaded
only on demand.
"""
