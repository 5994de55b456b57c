"""Tracing: lazy arrays record the operations of a call on a tape, which is cut into blocks that are compiled.

`hooks` and `callees` are called by instrumented code; `session` is one traced call; `lazy` and `recorder`
record operations on the `tape`; `force` ends a block and delivers its values; `site` has the compiled blocks
of a function.
"""

from jitla.tracing.fallback import (
    Alike,
    Patience,
    Replay,
    Request,
    Standby,
    abandon,
)
from jitla.tracing.fp_warnings import calm
from jitla.tracing.frames import call_here, user_traceback
from jitla.tracing.guards import (
    ASKED,
    NEW,
    Guard,
    Journal,
    Recompilation,
)
from jitla.tracing.hoisting import Keeper
from jitla.tracing.hooks import (
    HOOKS,
    INSTRUMENTED,
)
from jitla.tracing.profile import Kind, Rising
from jitla.tracing.session import (
    install_native_methods,
    run_generator,
    run_loops,
    run_traced,
)
from jitla.tracing.site import Fallback, Site
from jitla.tracing.sparse.sparsify import Sparsified
from jitla.tracing.sparse.zero_skipping import skipping_pays
from jitla.tracing.tape import LAYOUT_CACHE
from jitla.tracing.thread_state import LOCAL
from jitla.tracing.uncounted import UNCOUNTED

__all__ = [
    "ASKED", "Alike", "Fallback", "Guard", "HOOKS", "Journal", "Keeper", "Kind", "LAYOUT_CACHE", "LOCAL",
    "NEW", "Patience", "Recompilation", "Replay", "Request", "Rising", "Site", "Sparsified", "Standby",
    "INSTRUMENTED", "UNCOUNTED", "abandon", "call_here", "calm", "install_native_methods", "run_generator",
    "run_loops", "run_traced", "skipping_pays", "user_traceback",
]
