"""Timing of schedules in another process, beside a reference, with restarts after hangs and crashes."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from threading import Timer
from time import perf_counter
from typing import Any, NamedTuple

from jitla.classes import dataclass
from jitla.fusion import Values
from jitla.tuner.transport import Job, packed_header, receive, send, send_job

ROUNDS = 8
SPAN_SECONDS = 0.002  # of one measurement
MAX_RATIO = 4.0  # to the reference; slower functions are timed by a few runs only
PREEMPTION_SECONDS = 0.02  # preemption may last so long; slow runs within it are repeated
SINGLE_ROUND_NOISE = 1.0  # noise of a single round: no gain exceeds it


class Timing(NamedTuple):
    """Minimum seconds of a run and of the reference; the relative difference of two halves of the rounds."""

    seconds: float
    reference: float
    noise: float

    @property
    def ratio(self) -> float:
        """The time relative to the reference."""
        return self.seconds / self.reference


class Stopwatch:
    """Times candidates against one reference."""

    def __init__(self, reference: Callable[[], object], clock: Callable[[], float] = perf_counter,
                 rounds: int = ROUNDS) -> None:
        self.reference, self.clock, self.rounds = reference, clock, rounds
        reference()
        self.reference_seconds = min(self._seconds_per_run(reference, 1) for _ in range(3))
        self.repeats = max(1, min(1000, round(SPAN_SECONDS / max(self.reference_seconds, 1e-7))))

    def _seconds_per_run(self, run: Callable[[], object], repeats: int) -> float:
        start = self.clock()
        for _ in range(repeats):
            run()
        return (self.clock() - start) / repeats

    def time(self, run: Callable[[], object], rounds: int = 0) -> Timing:
        """Time `run` against the reference; a much slower one is run a few times only."""
        run()
        end, first, runs = self.clock() + PREEMPTION_SECONDS, self._seconds_per_run(run, 1), 1
        while first > MAX_RATIO * self.reference_seconds:
            if runs > 1 and self.clock() > end:
                return Timing(first, self.reference_seconds, 0.0)
            first, runs = min(first, self._seconds_per_run(run, 1)), runs + 1
        pairs = [(self._seconds_per_run(run, self.repeats),
                  self._seconds_per_run(self.reference, self.repeats))
                 for _ in range(rounds or self.rounds)]
        # Disturbances only add time: the minimum is the undisturbed time if both halves of the rounds agree.
        minimum = min(a for a, _ in pairs), min(b for _, b in pairs)
        if len(pairs) == 1:
            return Timing(*minimum, SINGLE_ROUND_NOISE)
        first_half, second_half = (_ratio(pairs[k::2]) for k in (0, 1))
        return Timing(*minimum, abs(first_half - second_half) / _ratio(pairs))


def _ratio(pairs: Sequence[tuple[float, float]]) -> float:
    return min(a for a, _ in pairs) / min(b for _, b in pairs)


@dataclass(frozen=True)
class MeasurementSettings:
    """The program of measurement processes, and how many of one kernel may end before its tuning does."""

    program: str = "from jitla.cli.tuning_workers import measure; measure()"
    max_ended_processes: int = 4


# Limits: until the process is ready; of compiling a schedule; of its first run, in seconds and in ratio to
# the untuned one; of timing it, in ratio to the slowest schedule that is still timed in full.
READY_SECONDS, COMPILE_SECONDS, FIRST_RUN_SECONDS = 60.0, 30.0, 0.25
FIRST_RUN_RATIO, TIMED_RUN_RATIO = 20.0, 4.0


class MeasurementUnavailable(Exception):
    """Schedules of this kernel cannot be measured any more."""


def python_command(program: str) -> Sequence[str]:
    """Return the command that runs a Python program with the import path of this process.

    Raises `MeasurementUnavailable` if there is no Python executable.
    """
    if not sys.executable:
        raise MeasurementUnavailable("there is no Python executable for another process")
    set_path = "import sys, json; sys.path[:] = json.loads(sys.argv[1]); "
    return sys.executable, "-c", set_path + program, json.dumps([str(p) for p in sys.path])


class MeasurementProcess:
    """The process that runs schedules of one kernel; one that ended is replaced.

    `patience` multiplies time limits of a throttled process; `share` is the share of a processor it may take.
    """

    def __init__(
        self, job: Job, patience: float = 1.0, share: float = 1.0,
        settings: MeasurementSettings = MeasurementSettings(),
    ) -> None:
        self._max_ended_processes = settings.max_ended_processes
        self._head, self._memory = packed_header(job), job.memory
        self._patience = patience
        throttling = ""
        if share < 1.0:
            throttling = f"from jitla.tuner.throttle import limit_share; limit_share({share}); "
        self._program = throttling + settings.program
        self._process: subprocess.Popen[bytes] | None = None
        self.reference_seconds, self._repeats = 0.0, 1
        self.ended_processes = 0

    def untuned(self) -> float:
        """Return the seconds of the untuned schedule."""
        self._ensure_started()
        return self.reference_seconds

    def time(self, values: Values, rounds: int) -> Timing | str:
        """Return the timing of knobs against the untuned schedule, in `rounds` rounds.

        A failure returns its name instead: refused, differs, late, crashed.
        """
        self._ensure_started()
        slowest = TIMED_RUN_RATIO * max(self._repeats, 1) * self.reference_seconds
        limits = {"made": COMPILE_SECONDS,
                  "ran": max(FIRST_RUN_SECONDS, FIRST_RUN_RATIO * self.reference_seconds),
                  "took": FIRST_RUN_SECONDS + 2.0 * TIMED_RUN_RATIO * (rounds + 2) * slowest}
        total = self._patience * sum(limits.values())
        try:
            self._send(pickle.dumps((dict(values), rounds, total)))
            for word, limit in limits.items():
                message = self._receive(limit)
                if message[0] != word:
                    return str(message[0])
            return Timing(*message[1:])
        except _ProcessEnded as error:
            self.ended_processes += 1
            return error.word
        except BaseException:
            self.close()
            raise

    def _ensure_started(self) -> None:
        """Start a process if there is none; raise if too many have ended."""
        if self._process is not None:
            return
        if self.ended_processes >= self._max_ended_processes:
            raise MeasurementUnavailable(
                f"{self.ended_processes} schedules crashed or blocked the process that ran them")
        self._process = subprocess.Popen(python_command(self._program), stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            assert self._process.stdin is not None
            send_job(self._process.stdin, self._head, self._memory)
            _, self.reference_seconds, self._repeats = self._receive(READY_SECONDS)
        except (_ProcessEnded, OSError) as error:
            self.close()
            self.ended_processes = self._max_ended_processes
            raise MeasurementUnavailable("the untuned kernel does not run in another process") from error
        except BaseException:
            self.close()
            raise

    def _send(self, data: bytes) -> None:
        assert self._process is not None and self._process.stdin is not None
        try:
            send(self._process.stdin, data)
        except OSError:
            self.close()
            raise _ProcessEnded("crashed") from None

    def _receive(self, limit: float) -> Any:
        """Return the next message of the process; kill it if there is none in time."""
        assert self._process is not None and self._process.stdout is not None
        timed_out: list[bool] = []

        def end(process: subprocess.Popen[bytes]) -> None:
            timed_out.append(True)
            process.kill()

        timer = Timer(limit * self._patience, end, (self._process,))
        timer.daemon = True
        timer.start()
        try:
            return pickle.loads(receive(self._process.stdout))
        except (EOFError, OSError, ValueError):
            self.close()
            raise _ProcessEnded("late" if timed_out else "crashed") from None
        finally:
            timer.cancel()

    def close(self) -> None:
        """Kill the process and close its pipes."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    try:
                        pipe.close()
                    except OSError:  # unsent data
                        continue


class _ProcessEnded(Exception):
    """The process has ended; `word` is the reason."""

    def __init__(self, word: str) -> None:
        super().__init__(word)
        self.word = word
