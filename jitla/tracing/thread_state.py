"""The state of tracing in each thread: the session under way."""

from __future__ import annotations

import threading
from typing import Any

from jitla.process.resources import is_shallow


class ThreadState(threading.local):
    """What the current thread is doing."""

    #: The session whose function is running; None outside of traced code.
    session: Any = None
    #: Whether a call is under way that is timed as the plain function.
    timing: bool = False

    def __init__(self) -> None:
        #: Whether the thread's stack is so small that nothing is traced in it.
        self.shallow = is_shallow()


LOCAL = ThreadState()
