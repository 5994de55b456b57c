"""Faults put in on purpose: results stay NumPy's, nothing crashes, nothing hangs."""
