"""What a simulated run took, and where its time went.

Knows: cycles of each instruction, units, and the roofline. Must not know: how they were simulated.
Receives the record of a run; returns shares, reasons and text. Cycles are simulated, never measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jitla.accel.costs import bus_bytes
from jitla.accel.encoding import INSTRUCTION_BYTES
from jitla.accel.isa import Gemm, Instruction, Load, Queue, Store, Unit, unit_of
from jitla.accel.program import Program
from jitla.classes import dataclass

Cycles = NDArray[np.int64]
FETCH, END = "fetch", "end"  # waits for an instruction; has nothing left to do


class UnitTime(NamedTuple):
    """Cycles of a unit: at work, of that without data, and idle by what it waited for."""

    busy: int
    channel: int
    idle: Mapping[str, int]


class Roofline(NamedTuple):
    """Multiply-accumulates by byte and by cycle: of the program, and at most on the machine.

    Reads and writes have channels of their own; the bytes are those of the channel that has more of them, the
    stream of instructions included.
    """

    intensity: float
    attained: float
    roof: float
    peak: float

    @property
    def bound(self) -> str:
        """What limits the program: the array, or the way to memory."""
        return "compute" if self.roof >= self.peak else "memory"


@dataclass(frozen=True, eq=False)
class Timing:
    """Cycles of a program by instruction: when it was there, had its tokens, began and ended."""

    program: Program
    serial: bool
    fetches: tuple[tuple[int, int], ...]  # when each burst of the stream was asked for, and was there
    fetched: Cycles
    tokens: Cycles  # when the last token came
    last: NDArray[np.int8]  # the queue of that token, -1 for none
    begin: Cycles
    end: Cycles
    moving: Cycles  # cycles in which data moved

    @property
    def cycles(self) -> int:
        """Cycles from the first fetch to the end of the last instruction."""
        return int(self.end.max(initial=0))

    @property
    def seconds(self) -> float:
        """Simulated seconds at the board's clock."""
        return self.cycles / (self.program.spec.board.clock_mhz * 1e6)

    def of_unit(self, unit: Unit) -> NDArray[np.int64]:
        """Return the instructions of `unit`, in order."""
        units = [unit_of(i) for i in self.program.instructions]
        return np.flatnonzero(np.array(units, np.int64) == unit)

    @property
    def gemm_steps(self) -> int:
        """Steps of GEMM that multiply."""
        return sum(i.steps for i in self.program.instructions if isinstance(i, Gemm) and not i.reset)

    @property
    def utilisation(self) -> float:
        """The share of cycles in which the array multiplies."""
        return self.gemm_steps / max(self.cycles, 1)

    @property
    def bytes_read(self) -> int:
        """Bytes that loads read; the stream is not counted."""
        return sum(_nbytes(self.program, i) for i in self.program.instructions if isinstance(i, Load))

    @property
    def bytes_written(self) -> int:
        """Bytes that stores write."""
        return sum(_nbytes(self.program, i) for i in self.program.instructions if isinstance(i, Store))

    def unit_time(self, unit: Unit) -> UnitTime:
        """Return where the time of `unit` went."""
        at = self.of_unit(unit)
        idle: dict[str, int] = {}
        free = 0
        for i in at.tolist():
            here, begin = max(free, int(self.fetched[i])), int(self.begin[i])
            _add(idle, FETCH, here - free)
            _add(idle, _reason(int(self.last[i])), begin - here)
            free = int(self.end[i])
        _add(idle, END, self.cycles - free)
        busy = int((self.end[at] - self.begin[at]).sum())
        moved = [i for i in at.tolist() if isinstance(self.program.instructions[i], (Load, Store))]
        channel = int((self.end[moved] - self.begin[moved] - self.moving[moved]).sum())
        return UnitTime(busy, channel, idle)

    @property
    def fetch_time(self) -> UnitTime:
        """Where the time of fetch went: it reads a burst, then hands instructions out or waits for room."""
        busy = sum(end - begin for begin, end in self.fetches)
        beats = -(-INSTRUCTION_BYTES * len(self.program.instructions) // bus_bytes(self.program.spec))
        return UnitTime(busy, max(busy - beats, 0), {"dispatch": self.cycles - busy} if self.cycles else {})

    @property
    def roofline(self) -> Roofline:
        """Where the program stands under the machine's roof."""
        spec = self.program.spec
        macs = self.gemm_steps * spec.macs_per_step
        moved = max(self.bytes_read + INSTRUCTION_BYTES * len(self.program.instructions), self.bytes_written)
        intensity, peak = macs / max(moved, 1), float(spec.macs_per_step)
        return Roofline(intensity, macs / max(self.cycles, 1), min(peak, intensity * bus_bytes(spec)), peak)

    def summary(self) -> dict[str, Any]:
        """Return the figures as plain values."""
        units = {name: time._asdict() for name, time in self._times()}
        return {"machine": self.program.spec.name, "instructions": len(self.program.instructions),
                "simulated cycles": self.cycles, "simulated seconds": self.seconds,
                "utilisation": self.utilisation, "bytes read": self.bytes_read,
                "bytes written": self.bytes_written, "roofline": self.roofline._asdict(), "units": units}

    def _times(self) -> list[tuple[str, UnitTime]]:
        return [("fetch", self.fetch_time), *((unit.name.lower(), self.unit_time(unit)) for unit in Unit)]

    def _share(self, cycles: int) -> str:
        return f"{cycles / max(self.cycles, 1):.1%}"

    def __str__(self) -> str:
        spec, roof = self.program.spec, self.roofline
        lines = [f"{spec.name}: {self.cycles} simulated cycles at {spec.board.clock_mhz} MHz, "
                 f"{self.seconds * 1e3:.3f} ms simulated{', one at a time' if self.serial else ''}",
                 f"array {self.utilisation:.1%} used; {roof.intensity:.1f} MAC/B, "
                 f"{roof.attained:.1f} of {roof.roof:.1f} MAC/cycle, bound by {roof.bound}; "
                 f"{self.bytes_read} bytes read, {self.bytes_written} written"]
        for name, time in self._times():
            waits = ", ".join(f"{why} {self._share(cycles)}" for why, cycles in time.idle.items())
            lines.append(f"{name:8} busy {self._share(time.busy)} (without data "
                         f"{self._share(time.channel)}); waits: {waits or 'never'}")
        return "\n".join(lines)


def _nbytes(program: Program, transfer: Load | Store) -> int:
    return transfer.x_size * transfer.y_size * program.spec.element(transfer.memory).nbytes


def _reason(queue: int) -> str:
    return Queue(queue).name.lower() if queue >= 0 else "turn"


def _add(idle: dict[str, int], why: str, cycles: int) -> None:
    if cycles > 0:
        idle[why] = idle.get(why, 0) + cycles


def kind_of(instruction: Instruction) -> str:
    """Return the word for `instruction` in pictures."""
    if isinstance(instruction, (Load, Store)):
        if instruction.is_noop:
            return "wait"
        return f"{type(instruction).__name__.lower()} {instruction.memory.name.lower()}"
    if isinstance(instruction, Gemm):
        return "reset" if instruction.reset else "gemm"
    return type(instruction).__name__.lower()
