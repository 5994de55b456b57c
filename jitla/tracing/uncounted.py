"""The files whose frames may stand between a user's function and what it calls: they are not counted."""

from __future__ import annotations

from jitla.internal import hide_module
from jitla.tracing import (
    array,
    callees,
    callers,
    dispatch,
    hooks,
    lifting,
    onset,
    payoff,
    places,
    session,
    site,
    sparsified,
    wild,
)
from jitla.tracing.frames import conceal

__all__ = ["UNCOUNTED"]

UNCOUNTED = (
    array, callees, callers, dispatch, hooks, lifting, onset, payoff, places, session, site, sparsified, wild)

for _module in UNCOUNTED:
    hide_module(_module.__name__, conceal)
