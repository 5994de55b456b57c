"""The files whose frames may stand between a user's function and what it calls: they are not counted."""

from __future__ import annotations

from jitla.introspection.frames import hide_module
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
from jitla.tracing.frames import conceal
from jitla.tracing.sparse import sparsify

__all__ = ["UNCOUNTED"]

UNCOUNTED = (callees, callers, frames, hooks, lazy, profile, recorder, session, site, sparsify, user_types)

for _module in UNCOUNTED:
    hide_module(_module.__name__, conceal)
