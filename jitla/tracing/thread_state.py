"""The state of tracing in each thread: the session under way, and whether it is closing a block."""

from __future__ import annotations

import threading
from typing import Any


class ThreadState(threading.local):
    """What the current thread is doing."""

    #: The session whose function is running; None outside of traced code.
    session: Any = None
    #: Whether a call is under way that is timed as the plain function.
    timing: bool = False
    #: Whether a block is being closed. Signal handlers and finalizers can run meanwhile: decorated functions
    #: that they call run plainly, as compiler and caches may be in the middle of a change.
    closing: bool = False


LOCAL = ThreadState()
