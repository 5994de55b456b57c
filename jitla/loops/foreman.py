"""What is compiled in the background: one process that compiles, one thread that waits for it.

Knows: processes and queues. Must not know: loops, what the texts mean.
Receives tasks; calls them in a thread of its own, with what asks the other process.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from jitla.events import log
from jitla.rests import short_turns
from jitla.stacks import start

# Seconds without work after which thread and process end.
IDLE = 20.0
# Processes that may die.
MOST_LOST = 3


class Unavailable(Exception):
    """No process can be had, or it did not answer."""


class Foreman:
    """Does tasks one after the other, in a thread that lives as long as there are any."""

    def __init__(self, program: str) -> None:
        # it is given no folder of this package to import from: it needs none of it
        self.program = program
        self._command = [sys.executable, "-P", program]
        self._tasks: SimpleQueue[Callable[[], None]]
        self._lock: threading.Lock
        self._thread: threading.Thread | None
        self._process: subprocess.Popen[bytes] | None
        self.lost = 0
        os.register_at_fork(after_in_child=self._begin)
        self._begin()

    def _begin(self) -> None:
        """Begin without thread and process: a child has neither."""
        self._lock = threading.Lock()
        self._tasks = SimpleQueue()
        self._thread = None
        self._process = None

    @property
    def ready(self) -> bool:
        """Whether a process is there already."""
        return self._process is not None

    def submit(self, task: Callable[[], None]) -> None:
        """Let the thread do `task`, soon."""
        with self._lock:
            self._tasks.put(task)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="jitla-loops", daemon=True)
                start(self._thread)

    def _work(self) -> None:
        while True:
            try:
                task = self._tasks.get(timeout=IDLE)
            except Empty:
                with self._lock:
                    if self._tasks.empty():
                        self._thread = None
                        self._dismiss()
                        return
                continue
            try:
                with short_turns():
                    task()
            except Exception as error:
                log.debug("a loop was not compiled: %r", error)
            del task

    def ask(self, text: str, pointers: tuple[str, ...]) -> tuple[str, bytes]:
        """Return the name and the object of what is made of `text`."""
        if self.lost >= MOST_LOST or not sys.executable:
            raise Unavailable("no process compiles loops")
        try:
            process = self._hired()
            assert process.stdin is not None and process.stdout is not None
            asked = json.dumps({"text": text, "pointers": pointers})
            process.stdin.write(asked.encode() + b"\n")
            process.stdin.flush()
            reply: dict[str, Any] = json.loads(process.stdout.readline())
            if "error" in reply:
                raise Unavailable(f"Numba does not compile it: {reply['error']}")
            data = process.stdout.read(reply["bytes"])
        except (OSError, ValueError) as error:
            self.lost += 1
            self._dismiss()
            raise Unavailable(f"the process that compiles loops has ended: {error}") from error
        return reply["name"], data

    def _hired(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL)
            atexit.register(self._process.kill)
        return self._process

    def _dismiss(self) -> None:
        """Let the process end: it does when nothing can come in any more."""
        process, self._process = self._process, None
        if process is not None:
            atexit.unregister(process.kill)
        if process is not None and process.stdin is not None:
            try:
                process.stdin.close()
                process.wait(timeout=5.0)
            except (OSError, subprocess.TimeoutExpired):
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
