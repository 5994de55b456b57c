"""How NumPy programs become hops: proxies, sessions, instrumented functions.

Reading order: frames, places, alarms, signature, tape, enacting, signs, effects, array, powers,
operators, replay, site, closing, memory, picking, indexing, spellings, scatters, functions, kinds, dispatch,
session, quick, callees, twins, wild, hooks.
"""

from jitla.tracing.hooks import HOOKS, TWINS
from jitla.tracing.places import call_here
from jitla.tracing.quick import quicken
from jitla.tracing.replay import Replay, Request
from jitla.tracing.session import LOCAL, drive, run
from jitla.tracing.signature import SIGHT
from jitla.tracing.site import Fallback, Site

__all__ = [
    "Fallback", "HOOKS", "LOCAL", "Replay", "Request", "SIGHT", "Site", "TWINS", "call_here",
    "drive", "quicken", "run",
]
