"""The state of tracing in each thread: the current session."""

from __future__ import annotations

import threading
from typing import Any

from jitla.process.resources import has_shallow_stack


class ThreadState(threading.local):
    """The state of the current thread."""

    #: The session of the innermost traced call; None outside of traced code.
    session: Any = None
    #: Whether a plain call is running that is timed.
    timing: bool = False

    def __init__(self) -> None:
        #: Whether the thread's stack is too small for tracing.
        self.shallow = has_shallow_stack()


LOCAL = ThreadState()
