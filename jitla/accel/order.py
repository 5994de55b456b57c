"""What must be done before an instruction starts, whatever pace the units have.

Knows: units run their own instructions in order, and the n-th token taken is the n-th given. Must not know:
what instructions read and write. Receives a stream; returns an `Order`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jitla.accel.isa import Instruction, Queue, Unit, pops, pushes, unit_of

COMMANDS = 512  # instructions that wait for a unit; fetch stands still before a full queue
CONSUMER = {Queue.LOAD_TO_COMPUTE: Unit.COMPUTE, Queue.COMPUTE_TO_LOAD: Unit.LOAD,
            Queue.COMPUTE_TO_STORE: Unit.STORE, Queue.STORE_TO_COMPUTE: Unit.COMPUTE}


class Order(NamedTuple):
    """Of each instruction, its place in its unit, and how many of each unit are done before it starts.

    `sequence` is one legal execution, cut short at a deadlock, where `stuck` says who waits for what. `peaks`
    has the most tokens that can ever be in each queue, and which push reaches that; `left` what stays there.
    """

    sequence: tuple[int, ...]
    places: NDArray[np.int64]
    done: NDArray[np.int64]
    stuck: tuple[tuple[int, str], ...]
    peaks: tuple[tuple[int, int], ...]
    left: tuple[int, ...]

    def before(self, first: int, unit: Unit, then: int) -> bool:
        """Whether instruction `first`, of `unit`, is always done when `then` starts."""
        return bool(self.places[first] < self.done[then, unit])


class _Run:
    """One execution: any will do, since every token has one giver and one taker."""

    def __init__(self, instructions: Sequence[Instruction]) -> None:
        self.instructions = instructions
        count = len(instructions)
        self.units = [unit_of(i) for i in instructions]
        self.pops, self.pushes = [pops(i) for i in instructions], [pushes(i) for i in instructions]
        self.places, self.done = np.zeros(count, np.int64), np.zeros((count, len(Unit)), np.int64)
        self.waiting: dict[Unit, deque[int]] = {unit: deque() for unit in Unit}
        self.tokens: dict[Queue, deque[int]] = {queue: deque() for queue in Queue}
        self.given = dict.fromkeys(Queue, 0)
        self.taken: dict[Queue, list[int]] = {queue: [] for queue in Queue}  # places of who took them
        self.peaks = dict.fromkeys(Queue, (0, -1))
        self.last = dict.fromkeys(Unit, (0, 0, 0))
        self.ran = dict.fromkeys(Unit, 0)
        self.sequence: list[int] = []
        self.fetched = 0

    def go(self) -> None:
        """Run until nobody can go on."""
        moved = True
        while moved:
            moved = self._fetch()
            for unit in Unit:
                queue = self.waiting[unit]
                while queue and all(self.tokens[q] for q in self.pops[queue[0]]):
                    self._start(unit, queue.popleft())
                    moved = True

    def _fetch(self) -> bool:
        begin = self.fetched
        while self.fetched < len(self.instructions):
            queue = self.waiting[self.units[self.fetched]]
            if len(queue) >= COMMANDS:
                break
            queue.append(self.fetched)
            self.fetched += 1
        return self.fetched > begin

    def _start(self, unit: Unit, at: int) -> None:
        place = self.ran[unit]
        clock = list(self.last[unit])
        clock[unit] = place
        for queue in self.pops[at]:
            giver = self.tokens[queue].popleft()
            known = self.done[giver].tolist()
            known[self.units[giver]] = int(self.places[giver]) + 1
            clock = [max(pair) for pair in zip(clock, known, strict=True)]
            self.taken[queue].append(place)
        self.places[at], self.done[at] = place, clock
        self.last[unit], self.ran[unit] = (clock[0], clock[1], clock[2]), place + 1
        self.sequence.append(at)
        for queue in self.pushes[at]:
            self._give(queue, at, clock)

    def _give(self, queue: Queue, at: int, clock: list[int]) -> None:
        self.tokens[queue].append(at)
        self.given[queue] += 1
        # tokens surely taken by now are those whose takers are done before this instruction starts
        taken = int(np.searchsorted(self.taken[queue], clock[CONSUMER[queue]]))
        self.peaks[queue] = max(self.peaks[queue], (self.given[queue] - taken, at))

    def stuck(self) -> tuple[tuple[int, str], ...]:
        """Who stands first in a queue that does not move, and what it waits for."""
        found = []
        for unit in Unit:
            if self.waiting[unit]:
                at = self.waiting[unit][0]
                lacking = [queue.name for queue in self.pops[at] if not self.tokens[queue]]
                found.append((at, f"{unit.name} waits for {' and '.join(lacking)}"))
        if self.fetched < len(self.instructions):
            found.append((self.fetched, f"fetch waits for a place among {COMMANDS} commands"))
        return tuple(found)


def order_of(instructions: Sequence[Instruction]) -> Order:
    """Return what is ordered in the stream `instructions`."""
    run = _Run(instructions)
    run.go()
    return Order(tuple(run.sequence), run.places, run.done, run.stuck(), tuple(run.peaks[q] for q in Queue),
                 tuple(len(run.tokens[q]) for q in Queue))
