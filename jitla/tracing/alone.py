"""Can code that jitla does not see run between two operations: other threads, handlers, tracers?

Knows: Python's threads, signals and trace functions. Must not know: sessions, arrays, what is kept.
Returns whether a value in memory is still the one that was there, as long as nobody was handed control.
"""

from __future__ import annotations

import sys
import threading
from _signal import (  # type: ignore[import-not-found]
    default_int_handler,
    getsignal,  # that of `signal` makes enumerations
)
from _thread import _count
from signal import Handlers, valid_signals
from threading import Thread
from typing import Any

#: Libraries whose own threads have no arrays of users: this one, those of notebooks, and of progress bars.
_HARMLESS = frozenset({"jitla", "ipykernel", "IPython", "zmq", "tqdm"})
_QUIET: frozenset[Any] = frozenset({None, Handlers.SIG_DFL, Handlers.SIG_IGN, default_int_handler})
_SIGNALS = tuple(map(int, valid_signals()))


def threads() -> int:
    """Return how many threads of Python run besides the main one; it takes next to no time."""
    return _count()


def is_alone() -> bool:
    """Say whether no code can write into arrays but what this thread calls."""
    if sys.gettrace() is not None or sys.getprofile() is not None or _is_debugged():
        return False
    if any(getsignal(number) not in _QUIET for number in _SIGNALS):
        return False
    count, mine = _count(), threading.current_thread()
    if not count:
        return True
    others = [t for t in threading.enumerate() if t is not mine]
    return len(others) == count and all(map(_is_harmless, others))


def _is_harmless(thread: Thread) -> bool:
    kind = type(thread)
    owner = getattr(thread, "_target", None) if kind is Thread else kind
    return str(getattr(owner, "__module__", "")).partition(".")[0] in _HARMLESS


def _is_debugged() -> bool:
    monitoring = getattr(sys, "monitoring", None)  # since Python 3.12
    return monitoring is not None and monitoring.get_tool(monitoring.DEBUGGER_ID) is not None
