"""Hands what is done for every array and operation to native methods that do the same.

Knows: which methods of a session have a native twin, and which slots and objects that needs.
Must not know: native code. Receives what installs native methods; the session's class then has them.
"""

from __future__ import annotations

from typing import Any

from jitla.tracing.array import LazyArray, LazyScalar
from jitla.tracing.closing import BASE
from jitla.tracing.session import CROWD, Session
from jitla.tracing.signature import LAYOUTS, Layout

_OF_PROXIES = ("_s", "_n", "_m", "_v", "_l", "_r")
_OF_SESSIONS = ("ops", "nodes", "leaves", "scalars", "entered", "hole", "foreigners", "crowd",
                "lines", "attentive", "views", "past", "positions", "tables", "extremes", "running")
_METHODS = ("arguments", "detach", "enter", "leave", "put", "repeats", "argument")


def quicken(native: Any) -> bool:
    """Install the native methods, unless this Python is not what they expect; whether they are."""
    objects = {f"py_{name}": getattr(Session, name) for name in _METHODS}
    objects |= {"array": LazyArray, "scalar": LazyScalar, "layouts": LAYOUTS, "minus": -1}
    numbers = {"entry": Layout._fields.index("entry"), "crowd": CROWD, "held": BASE - 1}
    slots = dict.fromkeys(_OF_PROXIES, (LazyArray, LazyScalar)) | dict.fromkeys(_OF_SESSIONS, (Session,))
    installed: bool = native.install(Session, objects, numbers, slots)
    return installed
