"""Background compilation: a queue of jobs in one thread, which is held to a share of the processor.

The GIL lets one thread run at a time, so a job takes time from the program. Each job therefore sleeps between
steps so that it takes no more than its `share` of the time. Jobs together take `TIME_SHARE` of it: a token
bucket holds the seconds of processor time they may take next, at most `MAX_BURST_SECONDS`, at least
-`MAX_DEBT_SECONDS`.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections import deque
from collections.abc import Callable
from time import monotonic, sleep, thread_time

from jitla.concurrency import (
    short_switch_interval,
    throttled,
    unthrottled,
)
from jitla.process.resources import start_thread

Job = Callable[[], None]

#: The share of the program's time that jobs may take, and the most processor seconds they may take at once.
TIME_SHARE, MAX_BURST_SECONDS = 0.2, 0.03
#: The largest debt of processor seconds that delays the next job. The first job loads the compiler: paying
#: back all of that would leave the program without kernels for seconds.
MAX_DEBT_SECONDS = 0.03
#: Seconds between checks whether the next job may start.
POLL_SECONDS = 0.05
#: Seconds that the end of the process, or a fork, waits for the running job.
SHUTDOWN_SECONDS = 5.0


class BackgroundQueue:
    """A FIFO of jobs and the daemon thread that runs them; the thread exists only while there are jobs."""

    def __init__(
        self, clock: Callable[[], float] = monotonic, thread_seconds: Callable[[], float] = thread_time,
        share: float = TIME_SHARE, shutdown_seconds: float = SHUTDOWN_SECONDS,
    ) -> None:
        self._shutdown_seconds = shutdown_seconds
        self._clock, self._thread_time, self._share = clock, thread_seconds, share
        self._jobs: deque[tuple[Job, bool, float]] = deque()
        self._change = threading.Condition()
        # Held while a job runs: forks wait for it, at most `shutdown_seconds`.
        self._job_lock = threading.Lock()
        self._holds_job_lock = self._holds_change = False
        self._thread: threading.Thread | None = None
        self._credit = MAX_BURST_SECONDS
        self._last_update = clock()
        self._waiters = 0
        self._ended = False
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._before_fork, after_in_parent=self._after_fork,
                                after_in_child=self._reset_in_child)
        atexit.register(self.end)

    def submit(self, job: Job, soon: bool = False, share: float = 1.0) -> None:
        """Append `job` to the queue; if `soon`, it starts however much time earlier jobs have taken.

        The job runs for `share` of the time and sleeps for the rest, unless another thread waits for it.
        """
        with self._change:
            self._jobs.append((job, soon, share))
        self.ensure_thread()

    def ensure_thread(self) -> None:
        """Start the thread if there are jobs and no thread; a fork leaves the thread behind in the parent."""
        with self._change:
            if self._thread is None and self._jobs and not self._ended:
                thread = threading.Thread(target=self._run, name="jitla compiles", daemon=True)
                self._thread = thread
                try:
                    start_thread(thread)
                except RuntimeError:  # no more threads: the next call tries again
                    self._thread = None

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until all jobs are done, without limits on their time; return whether they are done."""
        with unthrottled(), self._change:
            self._waiters += 1
            self._change.notify_all()
            try:
                return self._change.wait_for(lambda: self._thread is None, seconds)
            finally:
                self._waiters -= 1

    def end(self) -> None:
        """Drop all waiting jobs at the end of the process, and wait for the running one."""
        with unthrottled(), self._change:
            self._ended = True
            self._jobs.clear()
            self._change.notify_all()
            self._change.wait_for(lambda: self._thread is None, self._shutdown_seconds)

    @property
    def busy(self) -> bool:
        """Whether a job is waiting or running."""
        return self._thread is not None

    def _run(self) -> None:
        try:
            while self._wait_for_job():
                with self._job_lock:
                    self._run_next()
                sleep(0)
        finally:
            with self._change:
                self._thread = None
                self._change.notify_all()

    def _wait_for_job(self) -> bool:
        """Wait until the next job may start; return whether there is one."""
        with self._change:
            while not self._may_begin():
                self._change.wait(POLL_SECONDS)
            return bool(self._jobs)

    def _run_next(self) -> None:
        """Run the next job and charge its processor time to the credit."""
        with self._change:
            job, _, share = self._jobs.popleft() if self._jobs else (None, False, 1.0)
        if job is not None:
            started = self._thread_time()
            with throttled(share), short_switch_interval():
                job()
            with self._change:
                self._credit = max(-MAX_DEBT_SECONDS, self._credit - (self._thread_time() - started))

    def _may_begin(self) -> bool:
        """Return whether the next job may start, or the queue is empty."""
        now = self._clock()
        self._credit = min(MAX_BURST_SECONDS, self._credit + self._share * (now - self._last_update))
        self._last_update = now
        return not self._jobs or self._jobs[0][1] or self._credit > 0.0 or self._waiters > 0

    def _before_fork(self) -> None:
        with unthrottled():
            self._holds_job_lock = self._job_lock.acquire(timeout=self._shutdown_seconds)
        self._holds_change = self._change.acquire()

    def _after_fork(self) -> None:
        if self._holds_change:  # else this queue was created while the fork waited for others
            self._change.release()
            self._holds_change = False
        if self._holds_job_lock:
            self._job_lock.release()
            self._holds_job_lock = False

    def _reset_in_child(self) -> None:
        self._thread = None
        if self._holds_change:
            self._change.release()
            self._holds_change = False
        else:
            self._change = threading.Condition()
        # Its owner does not exist in the child; what the job was changing is protected by other locks.
        self._job_lock = threading.Lock()
