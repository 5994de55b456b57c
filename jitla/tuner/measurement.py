"""Running schedules where they can do no harm: in another process, which is ended if it takes too long."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Sequence
from threading import Timer
from typing import Any

from jitla.fusion import Values
from jitla.tuner.stopwatch import Timing
from jitla.tuner.transport import (
    Job,
    head_of,
    receive,
    send,
    send_job,
)

__all__ = ["Guard", "Lost", "command"]

PROGRAM = "from jitla.cli.tuning_workers import measure; measure()"
MOST_LOST = 4  # processes that may end before nothing more is tried of a kernel
# Seconds in which the process has to be ready, and a schedule made; of its first run, and times the untuned
# one; and times what timing it would take if every run were as slow as one that is still timed.
READY, MADE, RAN, TIMES, TOOK = 60.0, 30.0, 0.25, 20.0, 4.0


class Lost(Exception):
    """No process runs schedules of this kernel any more."""


def command(program: str) -> Sequence[str]:
    """Return how to run a few lines in a process that imports what this one does, or raise `Lost`."""
    if not sys.executable:
        raise Lost("no other process can be had")
    first = "import sys, json; sys.path[:] = json.loads(sys.argv[1]); "
    return sys.executable, "-c", first + program, json.dumps([str(p) for p in sys.path])


class Guard:
    """The process that runs schedules of one kernel; a new one takes the place of one that was lost.

    `patience` is what limits are multiplied by, where other things come first; `share` the part of a
    processor that the process may take.
    """

    def __init__(self, job: Job, patience: float = 1.0, share: float = 1.0) -> None:
        self._head, self._memory = head_of(job), job.memory
        self._patience = patience
        slow = f"from jitla.tuner.throttle import slowly; slowly({share}); " if share < 1.0 else ""
        self._program = slow + PROGRAM
        self._process: subprocess.Popen[bytes] | None = None
        self.once, self._repeats = 0.0, 1
        self.lost = 0

    def untuned(self) -> float:
        """Return the seconds of the untuned schedule."""
        self._there()
        return self.once

    def time(self, values: Values, rounds: int) -> Timing | str:
        """Return what knobs take beside the untuned ones, in `rounds` turns.

        A word says that there is no timing: refused, differs, late, crashed.
        """
        self._there()
        slowest = TOOK * max(self._repeats, 1) * self.once
        limits = {"made": MADE, "ran": max(RAN, TIMES * self.once),
                  "took": RAN + 2.0 * TOOK * (rounds + 2) * slowest}
        total = self._patience * sum(limits.values())
        try:
            self._send(pickle.dumps((dict(values), rounds, total)))
            for word, limit in limits.items():
                said = self._answer(limit)
                if said[0] != word:
                    return str(said[0])
            return Timing(*said[1:])
        except _Gone as gone:
            self.lost += 1
            return gone.word
        except BaseException:
            self.close()
            raise

    def _there(self) -> None:
        """See to it that there is a process, unless too many were lost."""
        if self._process is not None:
            return
        if self.lost >= MOST_LOST:
            raise Lost(f"{self.lost} schedules ended the process that ran them")
        self._process = subprocess.Popen(command(self._program), stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            assert self._process.stdin is not None
            send_job(self._process.stdin, self._head, self._memory)
            _, self.once, self._repeats = self._answer(READY)
        except (_Gone, OSError) as gone:
            self.close()
            self.lost = MOST_LOST
            raise Lost("the untuned kernel does not run in another process") from gone
        except BaseException:
            self.close()
            raise

    def _send(self, data: bytes) -> None:
        assert self._process is not None and self._process.stdin is not None
        try:
            send(self._process.stdin, data)
        except OSError:
            self.close()
            raise _Gone("crashed") from None

    def _answer(self, limit: float) -> Any:
        """Return what the process says next; end it if it says nothing in time."""
        assert self._process is not None and self._process.stdout is not None
        late: list[bool] = []

        def end(process: subprocess.Popen[bytes]) -> None:
            late.append(True)
            process.kill()

        timer = Timer(limit * self._patience, end, (self._process,))
        timer.daemon = True
        timer.start()
        try:
            return pickle.loads(receive(self._process.stdout))
        except (EOFError, OSError, ValueError):
            self.close()
            raise _Gone("late" if late else "crashed") from None
        finally:
            timer.cancel()

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    try:
                        pipe.close()
                    except OSError:  # what was not sent any more
                        continue


class _Gone(Exception):
    """The process is no more: `word` says why."""

    def __init__(self, word: str) -> None:
        super().__init__(word)
        self.word = word
