"""How NumPy programs become hops: proxies, sessions, instrumented functions.

Reading order: frames, signature, tape, array, site, closing, indexing, functions, dispatch, session,
twins, hooks.
"""

from jitla.tracing.hooks import HOOKS, TWINS
from jitla.tracing.session import LOCAL, drive, run
from jitla.tracing.site import Fallback, Request, Site

__all__ = ["Fallback", "HOOKS", "LOCAL", "Request", "Site", "TWINS", "drive", "run"]
