"""How NumPy programs become hops: proxies, sessions, instrumented functions.

Reading order: thread_state, frames, places, callers, alarms, signature, tape, narrowing, enacting, signs,
effects, matching, array, kinds, powers, operators, script, replay, interpreter, served, records, guards,
journal, literals, site, alone, parts, keeping, retreat, closed, learning, closing, turns, pattern, stored,
memory, picking, together, bounded, gathers, indexing, spellings, compositions, instructions, rowwise,
compiled, missing, closeness, terms, scatters, functions, skipping, forms, nonzeros, recording, dispatch,
session, onset, payoff, quick, entries, sampling, turned, contracting, unions, merging, compressed,
sparsified, callees, twins, wild, lifting, hooks, uncounted.
"""

from jitla.tracing.alarms import calm
from jitla.tracing.frames import user_traceback
from jitla.tracing.guards import NEW, Guard
from jitla.tracing.hooks import HOOKS, TWINS
from jitla.tracing.journal import Journal, Recompilation
from jitla.tracing.literals import ASKED
from jitla.tracing.onset import Rising
from jitla.tracing.parts import Keeper
from jitla.tracing.payoff import Kind
from jitla.tracing.places import call_here
from jitla.tracing.quick import quicken
from jitla.tracing.records import Fallback
from jitla.tracing.replay import Alike, Patience, Replay, Request, Standby
from jitla.tracing.served import abandon
from jitla.tracing.session import drive, looped, run
from jitla.tracing.signature import SIGHT
from jitla.tracing.site import Site
from jitla.tracing.skipping import pays
from jitla.tracing.sparsified import Sparsified
from jitla.tracing.thread_state import LOCAL
from jitla.tracing.uncounted import UNCOUNTED

__all__ = [
    "ASKED", "Alike", "Fallback", "Guard", "HOOKS", "Journal", "Keeper", "Kind", "LOCAL", "NEW",
    "Patience", "Recompilation", "Replay", "Request", "Rising", "SIGHT", "Site", "Sparsified", "Standby",
    "TWINS", "UNCOUNTED", "abandon", "call_here", "calm", "drive", "looped", "pays", "quicken", "run",
    "user_traceback",
]
