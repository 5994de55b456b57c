"""When everything happens: fetch, three units, their tokens, and one channel to memory, event by event.

Knows: who waits for whom. Must not know: values, or what memory holds.
Receives a program and costs; returns its `Timing`.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from enum import IntEnum

import numpy as np

from jitla.accel.costs import (
    RTL,
    Costs,
    bursts,
    bus_bytes,
    loop_cycles,
    padding_cycles,
    split,
    store_cycles,
)
from jitla.accel.encoding import INSTRUCTION_BYTES
from jitla.accel.isa import Alu, Gemm, Instruction, Load, Queue, Store, Unit, pops, pushes, unit_of
from jitla.accel.order import CONSUMER
from jitla.accel.program import Program
from jitla.accel.spec import PAGE, Memory, Spec
from jitla.accel.timing import Timing
from jitla.errors import DeviceError

Event = Callable[[int], None]


class _Rank(IntEnum):
    """Who is served first when several wait for the channel (RTL)."""

    FETCH = 0
    UOP = 1
    INP = 2
    WGT = 3
    ACC = 4


_RANKS = {Memory.UOP: _Rank.UOP, Memory.INP: _Rank.INP, Memory.WGT: _Rank.WGT, Memory.ACC: _Rank.ACC,
          Memory.ACC8: _Rank.ACC}


class _Clock:
    """Events in the order of time; those of one cycle in the order they were set."""

    def __init__(self) -> None:
        self.events: list[tuple[int, int, Event]] = []
        self.count = 0

    def at(self, time: int, event: Event) -> None:
        """Call `event` at `time`."""
        heapq.heappush(self.events, (time, self.count, event))
        self.count += 1

    def run(self) -> None:
        """Go on until nothing is left to happen."""
        while self.events:
            time, _, event = heapq.heappop(self.events)
            event(time)


class _Channel:
    """The way from DRAM: one burst at a time, by rank of those who wait.

    Units have one instruction under way each, so the sixteen requests that hardware keeps are never too few.
    """

    def __init__(self, clock: _Clock, costs: Costs) -> None:
        self.clock, self.costs = clock, costs
        self.waiting: dict[_Rank, tuple[deque[int], Event]] = {}
        self.is_busy = False

    def read(self, now: int, rank: _Rank, beats: list[int], done: Event) -> None:
        """Move bursts of `beats` for `rank`, which has no others; then call `done`."""
        if not beats:
            self.clock.at(now, done)
            return
        self.waiting[rank] = deque(beats), done
        if not self.is_busy:
            self._serve(now, self.costs.first_beat)

    def _serve(self, now: int, delay: int) -> None:
        rank = min(self.waiting)
        beats, done = self.waiting[rank]
        self.is_busy = True
        end = now + delay + beats.popleft() * self.costs.beat
        finished = None if beats else done
        if not beats:
            del self.waiting[rank]
        self.clock.at(end, lambda time: self._served(time, finished))

    def _served(self, now: int, done: Event | None) -> None:
        self.is_busy = False
        if self.waiting:  # whoever waits has a request in the queue, and pays no latency again
            self._serve(now, self.costs.next_burst)
        if done is not None:
            done(now)


class _Unit:
    """A queue of instructions, and whether one of them runs."""

    def __init__(self) -> None:
        self.queue: deque[int] = deque()
        self.is_running = False


class _Device:
    """All that moves; its columns become those of the `Timing`."""

    def __init__(self, program: Program, costs: Costs, serial: bool) -> None:
        self.program, self.costs, self.serial = program, costs, serial
        self.instructions, self.spec = program.instructions, program.spec
        count = len(self.instructions)
        self.clock = _Clock()
        self.channel = _Channel(self.clock, costs)
        self.units = {unit: _Unit() for unit in Unit}
        self.unit_of = [unit_of(i) for i in self.instructions]
        self.tokens: dict[Queue, deque[int]] = {queue: deque() for queue in Queue}
        self.fetched, self.tokened, self.begin, self.end, self.moving = (np.zeros(count, np.int64)
                                                                         for _ in range(5))
        self.last = np.full(count, -1, np.int8)
        self.completed, self.dispatched = 0, 0
        self.fetches: list[tuple[int, int]] = []
        self.resume: Event | None = None  # dispatching, where it stands before a full queue

    def run(self) -> Timing:
        """Simulate the whole program."""
        self.clock.at(0, self._fetch)
        self.clock.run()
        if self.completed < len(self.instructions):
            raise DeviceError(f"deadlock: {len(self.instructions) - self.completed} instructions never run")
        return Timing(self.program, self.serial, tuple(self.fetches), self.fetched, self.tokened, self.last,
                      self.begin, self.end, self.moving)

    def _fetch(self, now: int) -> None:
        """Read the next instructions of the stream."""
        begin, count = self.dispatched, len(self.instructions)
        end = min(begin + self.costs.fetch_burst, count)
        if begin == count:
            return
        first = PAGE + begin * INSTRUCTION_BYTES  # the stream lies at the beginning of a page
        beats = split(self.spec, first, PAGE + end * INSTRUCTION_BYTES)

        def arrived(time: int) -> None:
            self.fetches.append((now, time))
            self._dispatch(time, end)

        self.channel.read(now, _Rank.FETCH, beats, arrived)

    def _dispatch(self, now: int, end: int) -> None:
        """Hand out what was read, one a cycle, as far as queues have room."""
        at = self.dispatched
        unit = self.units[self.unit_of[at]]
        if len(unit.queue) >= self.costs.commands:
            self.resume = lambda time: self._dispatch(time, end)
            return
        unit.queue.append(at)
        self.fetched[at] = now
        self.dispatched += 1
        self._try(self.unit_of[at], now)
        if self.dispatched < end:
            self.clock.at(now + min(self.costs.beat, 1), lambda time: self._dispatch(time, end))
        else:
            self._fetch(now)

    def _try(self, unit: Unit, now: int) -> None:
        """Start the front instruction of `unit` if it may."""
        state = self.units[unit]
        if state.is_running or not state.queue:
            return
        at = state.queue[0]
        instruction = self.instructions[at]
        needed = pops(instruction)
        if self.serial:
            if at != self.completed:
                return
        elif not all(self.tokens[queue] for queue in needed):
            return
        else:
            self._pop(at, needed)
        state.queue.popleft()
        state.is_running = True
        self.begin[at] = now
        if self.resume is not None:
            resume, self.resume = self.resume, None
            self.clock.at(now, resume)
        self._execute(unit, at, instruction, now)

    def _pop(self, at: int, needed: tuple[Queue, ...]) -> None:
        for queue in needed:
            time = self.tokens[queue].popleft()
            if time >= self.tokened[at]:
                self.tokened[at], self.last[at] = time, queue

    def _execute(self, unit: Unit, at: int, instruction: Instruction, now: int) -> None:
        def done(time: int) -> None:
            self._done(unit, at, time)

        match instruction:
            case Gemm() | Alu():
                self.clock.at(now + loop_cycles(self.costs, instruction), done)
            case Load() if not instruction.is_noop:
                self._load(at, instruction, now, done)
            case Store() if not instruction.is_noop:
                cycles = store_cycles(self.spec, self.costs, instruction)
                self.moving[at] = cycles - self.costs.store_burst * len(bursts(self.spec, instruction))
                self.clock.at(now + cycles, done)
            case _:
                self.clock.at(now + self.costs.noop, done)

    def _load(self, at: int, load: Load, now: int, done: Event) -> None:
        beats = bursts(self.spec, load)
        self.moving[at] = sum(beats) * self.costs.beat
        # zeros are written in cycles in which no data comes
        floor = now + (sum(beats) + padding_cycles(load)) * self.costs.beat

        def arrived(time: int) -> None:
            if time >= floor:
                done(time)
            else:
                self.clock.at(floor, done)

        self.channel.read(now, _RANKS[load.memory], beats, arrived)

    def _done(self, unit: Unit, at: int, now: int) -> None:
        self.end[at] = now
        self.units[unit].is_running = False
        self.completed += 1
        woken = set(Unit) if self.serial else {unit}
        for queue in pushes(self.instructions[at]):
            self.tokens[queue].append(now)
            woken.add(CONSUMER[queue])
        for other in sorted(woken):
            self._try(other, now)


def measure(program: Program, costs: Costs = RTL, serial: bool = False) -> Timing:
    """Return the simulated time of `program`; with `serial`, one instruction at a time, in stream order."""
    return _Device(program, costs, serial).run()


def peak_seconds(spec: Spec, macs: int) -> float:
    """Return the seconds that `macs` take where the array is never idle."""
    return macs / spec.macs_per_step / (spec.board.clock_mhz * 1e6)


def transfer_seconds(spec: Spec, nbytes: int) -> float:
    """Return the seconds that `nbytes` take at the bus's full width."""
    return -(-nbytes // bus_bytes(spec)) / (spec.board.clock_mhz * 1e6)
