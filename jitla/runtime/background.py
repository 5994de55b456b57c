"""Work that is done behind the program: one job after the other, in a thread that ends when none is left.

Python runs one thread at a time, so what a job takes the program lacks: a job rests again and again, so that
it takes a share of the time that its asker names; jobs together take `SHARE` of it, and what they took too
much they wait for, though not for long.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections import deque
from collections.abc import Callable
from time import monotonic, sleep, thread_time

from jitla.concurrency import (
    hurry,
    resting,
    short_turns,
)
from jitla.process.resources import start

Job = Callable[[], None]

#: Of the program's time that jobs may take, and the seconds that they may take at once.
SHARE, AT_ONCE = 0.2, 0.03
#: Seconds taken too much that are waited for. The first job loads the compiler, once: were all of that waited
#: for, the program would go without its kernels for seconds.
OWED = 0.03
# Seconds that a thread sleeps at most before it looks again whether it may go on.
NAP = 0.05
# Seconds that the end of the process, or a fork, waits for the job under way.
LAST = 5.0


class Behind:
    """A queue of jobs and the thread that does them, if there is one."""

    def __init__(
        self, clock: Callable[[], float] = monotonic, spent: Callable[[], float] = thread_time,
        share: float = SHARE,
    ) -> None:
        self._clock, self._spent, self._share = clock, spent, share
        self._jobs: deque[tuple[Job, bool, float]] = deque()
        self._change = threading.Condition()
        # Held while a job is under way: forks wait for that, if it does not take too long.
        self._working = threading.Lock()
        self._waited = self._held = False
        self._thread: threading.Thread | None = None
        self._credit = AT_ONCE
        self._since = clock()
        self._hurry = 0
        self._ended = False
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._before_fork, after_in_parent=self._after_fork,
                                after_in_child=self._in_child)
        atexit.register(self.end)

    def ask(self, job: Job, soon: bool = False, share: float = 1.0) -> None:
        """Do `job` when the others are done; `soon`: whatever of the program's time jobs have taken.

        It works in `share` of the time and rests in what is left, unless somebody waits for it.
        """
        with self._change:
            self._jobs.append((job, soon, share))
        self.nudge()

    def nudge(self) -> None:
        """See to it that there is a thread if there are jobs; a fork has left it behind."""
        with self._change:
            if self._thread is None and self._jobs and not self._ended:
                thread = threading.Thread(target=self._run, name="jitla compiles", daemon=True)
                self._thread = thread
                try:
                    start(thread)
                except RuntimeError:  # no more threads: later, perhaps
                    self._thread = None

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until all jobs are done, without regard to their share; say whether they are."""
        with hurry(), self._change:
            self._hurry += 1
            self._change.notify_all()
            try:
                return self._change.wait_for(lambda: self._thread is None, seconds)
            finally:
                self._hurry -= 1

    def end(self) -> None:
        """Do nothing any more: the process ends. The job under way is waited for."""
        with hurry(), self._change:
            self._ended = True
            self._jobs.clear()
            self._change.notify_all()
            self._change.wait_for(lambda: self._thread is None, LAST)

    @property
    def busy(self) -> bool:
        """Whether a job is waiting or under way."""
        return self._thread is not None

    def _run(self) -> None:
        try:
            while self._goes_on():
                with self._working:
                    self._work()
                sleep(0)
        finally:
            with self._change:
                self._thread = None
                self._change.notify_all()

    def _goes_on(self) -> bool:
        """Wait until a job may begin; say whether there is one."""
        with self._change:
            while not self._may_begin():
                self._change.wait(NAP)
            return bool(self._jobs)

    def _work(self) -> None:
        """Do the next job and note what it took."""
        with self._change:
            job, _, share = self._jobs.popleft() if self._jobs else (None, False, 1.0)
        if job is not None:
            begun = self._spent()
            with resting(share), short_turns():
                job()
            with self._change:
                self._credit = max(-OWED, self._credit - (self._spent() - begun))

    def _may_begin(self) -> bool:
        """Say whether the next job may begin, or there is none."""
        now = self._clock()
        self._credit = min(AT_ONCE, self._credit + self._share * (now - self._since))
        self._since = now
        return not self._jobs or self._jobs[0][1] or self._credit > 0.0 or self._hurry > 0

    def _before_fork(self) -> None:
        with hurry():
            self._waited = self._working.acquire(timeout=LAST)
        self._held = self._change.acquire()

    def _after_fork(self) -> None:
        if self._held:  # else it was made while this fork waited for others
            self._change.release()
            self._held = False
        if self._waited:
            self._working.release()
            self._waited = False

    def _in_child(self) -> None:
        self._thread = None
        if self._held:
            self._change.release()
            self._held = False
        else:
            self._change = threading.Condition()
        # The thread that had it is not here; what it was in the midst of is locked, or made anew.
        self._working = threading.Lock()
