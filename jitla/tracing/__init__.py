"""How NumPy programs become hops: proxies, sessions, instrumented functions.

Reading order: frames, places, alarms, signature, tape, enacting, signs, effects, array, powers,
operators, replay, records, site, closing, pattern, stored, memory, picking, indexing, spellings,
scatters, functions, kinds, recording, dispatch, session, payoff, quick, entries, sampling, contracting,
unions, merging, compressed, callees, twins, wild, lifting, hooks.
"""

from jitla.tracing.hooks import HOOKS, TWINS
from jitla.tracing.payoff import Bypass, Payoff
from jitla.tracing.places import call_here
from jitla.tracing.quick import quicken
from jitla.tracing.records import Fallback
from jitla.tracing.replay import Replay, Request
from jitla.tracing.session import LOCAL, drive, run
from jitla.tracing.signature import SIGHT
from jitla.tracing.site import Site

__all__ = [
    "Bypass", "Fallback", "HOOKS", "LOCAL", "Payoff", "Replay", "Request", "SIGHT", "Site", "TWINS",
    "call_here", "drive", "quicken", "run",
]
