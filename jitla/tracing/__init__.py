"""How NumPy programs become hops: proxies, sessions, instrumented functions.

Reading order: frames, signature, tape, array, site, closing, indexing, functions, dispatch, session,
hooks.
"""

from jitla.tracing.hooks import HOOKS, TWINS, twin_of
from jitla.tracing.session import LOCAL, drive, run
from jitla.tracing.signature import SIGHT
from jitla.tracing.site import Fallback, Replay, Request, Site

__all__ = ["Fallback", "HOOKS", "LOCAL", "Replay", "Request", "SIGHT", "Site", "TWINS", "drive", "run", "twin_of"]
