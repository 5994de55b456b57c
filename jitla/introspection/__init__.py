"""What jitla reads of Python functions and frames: the function behind a callable, frames, recursion.

Used while functions are decorated and called, so that it loads nothing else.
"""
