"""The state of tracing in each thread: the session under way."""

from __future__ import annotations

import threading
from typing import Any


class ThreadState(threading.local):
    """What the current thread is doing."""

    #: The session whose function is running; None outside of traced code.
    session: Any = None
    #: Whether a call is under way that is timed as the plain function.
    timing: bool = False


LOCAL = ThreadState()
