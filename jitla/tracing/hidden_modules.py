"""The list of tracer modules whose frames `warnings` and `logging` skip; importing this file marks them.

These modules have functions whose frames are between a user's function and the functions that it calls.
"""

from __future__ import annotations

from jitla.introspection import hide_module
from jitla.tracing import (
    callees,
    callers,
    frames,
    hooks,
    lazy,
    profile,
    recorder,
    session,
    site,
    user_types,
)
from jitla.tracing.frames import hide_function
from jitla.tracing.sparse import sparsify

__all__ = ["HIDDEN_MODULES"]

HIDDEN_MODULES = (
    callees, callers, frames, hooks, lazy, profile, recorder, session, site, sparsify, user_types)

for _module in HIDDEN_MODULES:
    hide_module(_module.__name__, hide_function)
