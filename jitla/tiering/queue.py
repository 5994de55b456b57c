"""The compile queue: jobs by gain per cost, run by one background thread at the priority of the program.

Jobs run one at a time. LLVM works without the interpreter lock; the Python part of a job shares it with the
program, at a short switch interval. Jobs together take at most `COMPILE_SHARE` of the time of the process
once `COMPILE_FIXED_SECONDS` are used up, except those of a priority of at least `URGENT_PRIORITY`.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from time import monotonic, thread_time

from jitla.concurrency import background_work
from jitla.process.resources import start_thread
from jitla.tiering.policy import (
    COMPILE_FIXED_SECONDS,
    COMPILE_SHARE,
    MAX_WAITING_SECONDS,
    URGENT_PRIORITY,
)

Job = Callable[[], None]

POLL_SECONDS = 0.05  # between checks whether the next job may start
SHUTDOWN_SECONDS = 5.0  # that the end of the process, or a fork, waits for the running job
CROWDING_WEIGHT = 0.25  # of the last job in the ratio of wall time to processor time


class CompileQueue:
    """Jobs ordered by priority, and the daemon thread that runs them; it exists only while there are jobs."""

    def __init__(
        self, clock: Callable[[], float] = monotonic, thread_seconds: Callable[[], float] = thread_time,
        shutdown_seconds: float = SHUTDOWN_SECONDS,
    ) -> None:
        self._shutdown_seconds = shutdown_seconds
        self._clock, self._thread_seconds = clock, thread_seconds
        self._jobs: list[tuple[Job, float, float]] = []  # with priority, and when it was submitted
        self._change = threading.Condition()
        # Held while a job runs: forks wait for it, at most `shutdown_seconds`.
        self._job_lock = threading.Lock()
        self._holds_job_lock = self._holds_change = False
        self._thread: threading.Thread | None = None
        self._credit = COMPILE_FIXED_SECONDS
        self._last_update = clock()
        self._waiters = 0
        self._ended = False
        self.crowding = 1.0  # seconds that a second of processor time takes the thread, of late
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._before_fork, after_in_parent=self._after_fork,
                                after_in_child=self._reset_in_child)
        atexit.register(self.end)

    def submit(self, job: Job, priority: float = URGENT_PRIORITY) -> None:
        """Add `job`; `priority` is the seconds that it is predicted to save per second of compiling."""
        with self._change:
            self._jobs.append((job, priority, self._clock()))
            self._change.notify_all()
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
        """Wait until all jobs are done, whatever their share of the time; return whether they are."""
        with self._change:
            self._waiters += 1
            self._change.notify_all()
            try:
                return self._change.wait_for(lambda: self._thread is None, seconds)
            finally:
                self._waiters -= 1

    def end(self) -> None:
        """Drop all waiting jobs at the end of the process, and wait for the running one."""
        with self._change:
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
            while (job := self._next_job()) is not None:
                with self._job_lock:
                    self._run_job(job)
        finally:
            with self._change:
                self._thread = None
                self._change.notify_all()

    def _next_job(self) -> Job | None:
        """Remove and return the job to run next, when it may start; None if there is none left."""
        with self._change:
            while self._jobs:
                self._update_credit()
                index = self._first()
                job, priority, _ = self._jobs[index]
                if priority >= URGENT_PRIORITY or self._credit > 0.0 or self._waiters > 0:
                    del self._jobs[index]
                    return job
                self._change.wait(POLL_SECONDS)
            return None

    def _first(self) -> int:
        """Return the index of the job to run next: one that has waited too long, or that of highest priority.
        """
        now = self._clock()
        for index, (_, _, since) in enumerate(self._jobs):
            if now - since > MAX_WAITING_SECONDS:
                return index
        return max(range(len(self._jobs)), key=lambda index: (self._jobs[index][1], -index))

    def _run_job(self, job: Job) -> None:
        """Run a job, charge its processor time to the credit, and measure how crowded the machine is."""
        started, worked = self._clock(), self._thread_seconds()
        try:
            with background_work():
                job()
        finally:
            seconds = self._thread_seconds() - worked
            wall = self._clock() - started
            with self._change:
                self._credit = max(-COMPILE_FIXED_SECONDS, self._credit - seconds)
                if seconds > 0.0:
                    self.crowding += CROWDING_WEIGHT * (max(wall / seconds, 1.0) - self.crowding)

    def _update_credit(self) -> None:
        now = self._clock()
        self._credit = min(COMPILE_FIXED_SECONDS, self._credit + COMPILE_SHARE * (now - self._last_update))
        self._last_update = now

    def _before_fork(self) -> None:
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
