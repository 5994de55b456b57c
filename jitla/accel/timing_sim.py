"""The timing simulator, a discrete-event model of instruction queues, units and memory; views of its runs.

Views are SVG, a trace for Perfetto or chrome://tracing, and a text timeline.
"""

from __future__ import annotations

import heapq
import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from enum import IntEnum
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

import numpy as np
from numpy.typing import NDArray

from jitla.accel.isa import (
    INSTRUCTION_BYTES,
    Alu,
    Gemm,
    Instruction,
    Load,
    Queue,
    Store,
    Unit,
    pops,
    pushes,
    unit_of,
)
from jitla.accel.program import AccelProgram, show
from jitla.accel.spec import PAGE, AccelSpec, Memory
from jitla.accel.verifier import CONSUMER
from jitla.classes import dataclass
from jitla.errors import DeviceError

# --------------------------------------------------------------------------- simulator


@dataclass(frozen=True)
class CycleCosts:
    """The cost model, in cycles unless stated otherwise; sources are in parentheses."""

    name: str
    first_beat: int = 16  # latency of a request at an idle channel (RTL memory)
    next_burst: int = 1  # latency of a queued request (RTL memory: one turnaround cycle)
    beat: int = 1  # a beat of the bus (RTL memory)
    gemm_step: int = 1  # one micro-op a cycle (RTL, HLS)
    gemm_fill: int = 7  # pipeline fill, drain and dispatch (RTL: 6 to 8)
    alu_immediate: int = 1  # a step with an immediate (RTL; HLS: 2)
    alu_tensor: int = 2  # a step with two operands of one memory (RTL, HLS)
    alu_fill: int = 7  # (RTL)
    store_read: int = 1  # to read an element before its beats (RTL)
    store_burst: int = 6  # command, address and acknowledgement, nothing overlapped (RTL: 5 to 6)
    noop: int = 2  # an instruction that only moves tokens, and FINISH (RTL: 1 to 2)
    fetch_burst: int = 128  # instructions of one fetch; the next starts after their dispatch (RTL)
    commands: int = 512  # capacity of the instruction queue of a unit (RTL, HLS)


RTL = CycleCosts("rtl")
BOARD = replace(RTL, name="board", first_beat=50)  # an estimate for real memory behind an interconnect
HLS = replace(RTL, name="hls", alu_immediate=2)
# Only computation takes time: a lower bound.
IDEAL = CycleCosts("ideal", 0, 0, 0, gemm_fill=0, alu_fill=0, store_read=0, store_burst=0, noop=0)
COSTS = {costs.name: costs for costs in (RTL, BOARD, HLS, IDEAL)}


def bus_bytes(spec: AccelSpec) -> int:
    """Return the bytes of a bus beat."""
    return spec.board.bus_bits // 8


def bursts(spec: AccelSpec, transfer: Load | Store) -> list[int]:
    """Return the beats of each burst of a transfer; bursts cross neither rows nor burst boundaries."""
    size = spec.element(transfer.memory).nbytes
    beats: list[int] = []
    for row in range(transfer.y_size):
        begin = (transfer.dram_base + row * transfer.x_stride) * size
        beats += split(spec, begin, begin + transfer.x_size * size)
    return beats


def split(spec: AccelSpec, begin: int, end: int) -> list[int]:
    """Return the beats of the bursts for the bytes from `begin` to `end`."""
    bus = bus_bytes(spec)
    boundary = spec.board.burst_beats * bus
    beats = []
    while begin < end:
        stop = min(end, (begin // boundary + 1) * boundary)
        beats.append(-(-stop // bus) - begin // bus)
        begin = stop
    return beats


def loop_cycles(costs: CycleCosts, loop: Gemm | Alu) -> int:
    """Return the cycles of `loop`: its steps and the pipeline fill."""
    if isinstance(loop, Gemm):
        return loop.steps * costs.gemm_step + costs.gemm_fill
    step = costs.alu_immediate if loop.use_imm else costs.alu_tensor
    return loop.steps * step + costs.alu_fill


def store_cycles(spec: AccelSpec, costs: CycleCosts, store: Store) -> int:
    """Return the cycles of `store`: reads and bursts are not overlapped."""
    beats = bursts(spec, store)
    elements = store.x_size * store.y_size
    return len(beats) * costs.store_burst + sum(beats) * costs.beat + elements * costs.store_read


def padding_cycles(load: Load) -> int:
    """Return the cycles that write padding, one element each."""
    return load.count - load.x_size * load.y_size


Cycles = NDArray[np.int64]
FETCH, END = "fetch", "end"  # idle reasons: no instruction fetched; nothing left


class UnitTime(NamedTuple):
    """The cycles of a unit: busy, of these stalled on the memory channel, and idle by reason."""

    busy: int
    channel: int
    idle: Mapping[str, int]


class Roofline(NamedTuple):
    """The roofline of a program: multiply-accumulates per byte and per cycle, attained and maximum.

    Reads and writes have separate channels; the bytes are those of the busier one, with the instruction
    stream.
    """

    intensity: float
    attained: float
    roof: float
    peak: float

    @property
    def bound(self) -> str:
        """The limit of the program: "compute" or "memory"."""
        return "compute" if self.roof >= self.peak else "memory"


@dataclass(frozen=True, eq=False)
class ProgramTiming:
    """The timing of a program: per instruction the cycles of fetch, last token, begin and end."""

    program: AccelProgram
    serial: bool
    fetches: tuple[tuple[int, int], ...]  # request and arrival of each fetch
    fetched: Cycles
    tokens: Cycles  # arrival of the last token
    last: NDArray[np.int8]  # the queue of the last token, -1 for none
    begin: Cycles
    end: Cycles
    moving: Cycles  # cycles of data transfer

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
        """The fraction of cycles in which the array multiplies."""
        return self.gemm_steps / max(self.cycles, 1)

    @property
    def bytes_read(self) -> int:
        """Bytes read by loads, without the instruction stream."""
        return sum(_nbytes(self.program, i) for i in self.program.instructions if isinstance(i, Load))

    @property
    def bytes_written(self) -> int:
        """Bytes written by stores."""
        return sum(_nbytes(self.program, i) for i in self.program.instructions if isinstance(i, Store))

    def unit_time(self, unit: Unit) -> UnitTime:
        """Return the time breakdown of `unit`."""
        instructions = self.of_unit(unit)
        idle: dict[str, int] = {}
        free = 0
        for i in instructions.tolist():
            ready, begin = max(free, int(self.fetched[i])), int(self.begin[i])
            _add_cycles(idle, FETCH, ready - free)
            _add_cycles(idle, _reason(int(self.last[i])), begin - ready)
            free = int(self.end[i])
        _add_cycles(idle, END, self.cycles - free)
        busy = int((self.end[instructions] - self.begin[instructions]).sum())
        moved = [i for i in instructions.tolist() if isinstance(self.program.instructions[i], (Load, Store))]
        channel = int((self.end[moved] - self.begin[moved] - self.moving[moved]).sum())
        return UnitTime(busy, channel, idle)

    @property
    def fetch_time(self) -> UnitTime:
        """The time breakdown of fetch, which alternates between reading and dispatching."""
        busy = sum(end - begin for begin, end in self.fetches)
        beats = -(-INSTRUCTION_BYTES * len(self.program.instructions) // bus_bytes(self.program.spec))
        return UnitTime(busy, max(busy - beats, 0), {"dispatch": self.cycles - busy} if self.cycles else {})

    @property
    def roofline(self) -> Roofline:
        """The roofline of the program."""
        spec = self.program.spec
        macs = self.gemm_steps * spec.macs_per_step
        moved = max(self.bytes_read + INSTRUCTION_BYTES * len(self.program.instructions), self.bytes_written)
        intensity, peak = macs / max(moved, 1), float(spec.macs_per_step)
        return Roofline(intensity, macs / max(self.cycles, 1), min(peak, intensity * bus_bytes(spec)), peak)

    def summary(self) -> dict[str, Any]:
        """Return the figures as plain dictionaries."""
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


def _nbytes(program: AccelProgram, transfer: Load | Store) -> int:
    return transfer.x_size * transfer.y_size * program.spec.element(transfer.memory).nbytes


def _reason(queue: int) -> str:
    return Queue(queue).name.lower() if queue >= 0 else "turn"


def _add_cycles(idle: dict[str, int], why: str, cycles: int) -> None:
    if cycles > 0:
        idle[why] = idle.get(why, 0) + cycles


def activity_of(instruction: Instruction) -> str:
    """Return the activity name of `instruction` in traces."""
    if isinstance(instruction, (Load, Store)):
        if instruction.is_noop:
            return "wait"
        return f"{type(instruction).__name__.lower()} {instruction.memory.name.lower()}"
    if isinstance(instruction, Gemm):
        return "reset" if instruction.reset else "gemm"
    return type(instruction).__name__.lower()


Event = Callable[[int], None]


class _Priority(IntEnum):
    """The arbitration priority of read requests (RTL)."""

    FETCH = 0
    UOP = 1
    INP = 2
    WGT = 3
    ACC = 4


_PRIORITIES = {Memory.UOP: _Priority.UOP, Memory.INP: _Priority.INP, Memory.WGT: _Priority.WGT,
               Memory.ACC: _Priority.ACC,
               Memory.ACC8: _Priority.ACC}


class _EventQueue:
    """An event queue ordered by time; events of one cycle run in insertion order."""

    def __init__(self) -> None:
        self.events: list[tuple[int, int, Event]] = []
        self.count = 0

    def at(self, time: int, event: Event) -> None:
        """Schedule `event` at `time`."""
        heapq.heappush(self.events, (time, self.count, event))
        self.count += 1

    def run(self) -> None:
        """Run events until none is left."""
        while self.events:
            time, _, event = heapq.heappop(self.events)
            event(time)


class _ReadChannel:
    """The DRAM read channel: serves one burst at a time, by priority of waiting requests.

    Units have one instruction in flight each, so the hardware's limit of 16 requests is never reached.
    """

    def __init__(self, clock: _EventQueue, costs: CycleCosts) -> None:
        self.clock, self.costs = clock, costs
        self.waiting: dict[_Priority, tuple[deque[int], Event]] = {}
        self.is_busy = False

    def read(self, now: int, priority: _Priority, beats: list[int], done: Event) -> None:
        """Queue bursts of `beats` at a priority without other requests; call `done` after the last."""
        if not beats:
            self.clock.at(now, done)
            return
        self.waiting[priority] = deque(beats), done
        if not self.is_busy:
            self._serve(now, self.costs.first_beat)

    def _serve(self, now: int, delay: int) -> None:
        priority = min(self.waiting)
        beats, done = self.waiting[priority]
        self.is_busy = True
        end = now + delay + beats.popleft() * self.costs.beat
        finished = None if beats else done
        if not beats:
            del self.waiting[priority]
        self.clock.at(end, lambda time: self._served(time, finished))

    def _served(self, now: int, done: Event | None) -> None:
        self.is_busy = False
        if self.waiting:  # a request that is queued already has paid the latency
            self._serve(now, self.costs.next_burst)
        if done is not None:
            done(now)


class _UnitState:
    """The state of a unit: its instruction queue, and whether an instruction runs."""

    def __init__(self) -> None:
        self.queue: deque[int] = deque()
        self.is_running = False


class _TimingModel:
    """The simulation state; its columns become those of the `ProgramTiming`."""

    def __init__(self, program: AccelProgram, costs: CycleCosts, serial: bool) -> None:
        self.program, self.costs, self.serial = program, costs, serial
        self.instructions, self.spec = program.instructions, program.spec
        count = len(self.instructions)
        self.clock = _EventQueue()
        self.channel = _ReadChannel(self.clock, costs)
        self.units = {unit: _UnitState() for unit in Unit}
        self.unit_of = [unit_of(i) for i in self.instructions]
        self.tokens: dict[Queue, deque[int]] = {queue: deque() for queue in Queue}
        self.fetched, self.token_time, self.begin, self.end, self.moving = (np.zeros(count, np.int64)
                                                                            for _ in range(5))
        self.last = np.full(count, -1, np.int8)
        self.completed, self.dispatched = 0, 0
        self.fetches: list[tuple[int, int]] = []
        self.resume: Event | None = None  # continues dispatch after a full queue

    def run(self) -> ProgramTiming:
        """Simulate the whole program."""
        self.clock.at(0, self._fetch)
        self.clock.run()
        if self.completed < len(self.instructions):
            raise DeviceError(f"deadlock: {len(self.instructions) - self.completed} instructions never run")
        return ProgramTiming(self.program, self.serial, tuple(self.fetches), self.fetched, self.token_time,
                             self.last,
                             self.begin, self.end, self.moving)

    def _fetch(self, now: int) -> None:
        """Fetch the next burst of instructions."""
        begin, count = self.dispatched, len(self.instructions)
        end = min(begin + self.costs.fetch_burst, count)
        if begin == count:
            return
        first = PAGE + begin * INSTRUCTION_BYTES  # the stream is page-aligned
        beats = split(self.spec, first, PAGE + end * INSTRUCTION_BYTES)

        def arrived(time: int) -> None:
            self.fetches.append((now, time))
            self._dispatch(time, end)

        self.channel.read(now, _Priority.FETCH, beats, arrived)

    def _dispatch(self, now: int, end: int) -> None:
        """Dispatch fetched instructions, one per cycle, until a queue is full."""
        number = self.dispatched
        unit = self.units[self.unit_of[number]]
        if len(unit.queue) >= self.costs.commands:
            self.resume = lambda time: self._dispatch(time, end)
            return
        unit.queue.append(number)
        self.fetched[number] = now
        self.dispatched += 1
        self._try_start(self.unit_of[number], now)
        if self.dispatched < end:
            self.clock.at(now + min(self.costs.beat, 1), lambda time: self._dispatch(time, end))
        else:
            self._fetch(now)

    def _try_start(self, unit: Unit, now: int) -> None:
        """Start the front instruction of `unit` if the unit is idle and its tokens are there."""
        state = self.units[unit]
        if state.is_running or not state.queue:
            return
        number = state.queue[0]
        instruction = self.instructions[number]
        popped = pops(instruction)
        if self.serial:
            if number != self.completed:
                return
        elif not all(self.tokens[queue] for queue in popped):
            return
        else:
            self._pop(number, popped)
        state.queue.popleft()
        state.is_running = True
        self.begin[number] = now
        if self.resume is not None:
            resume, self.resume = self.resume, None
            self.clock.at(now, resume)
        self._execute(unit, number, instruction, now)

    def _pop(self, number: int, popped: tuple[Queue, ...]) -> None:
        for queue in popped:
            time = self.tokens[queue].popleft()
            if time >= self.token_time[number]:
                self.token_time[number], self.last[number] = time, queue

    def _execute(self, unit: Unit, number: int, instruction: Instruction, now: int) -> None:
        def done(time: int) -> None:
            self._done(unit, number, time)

        match instruction:
            case Gemm() | Alu():
                self.clock.at(now + loop_cycles(self.costs, instruction), done)
            case Load() if not instruction.is_noop:
                self._load(number, instruction, now, done)
            case Store() if not instruction.is_noop:
                cycles = store_cycles(self.spec, self.costs, instruction)
                self.moving[number] = cycles - self.costs.store_burst * len(bursts(self.spec, instruction))
                self.clock.at(now + cycles, done)
            case _:
                self.clock.at(now + self.costs.noop, done)

    def _load(self, number: int, load: Load, now: int, done: Event) -> None:
        beats = bursts(self.spec, load)
        self.moving[number] = sum(beats) * self.costs.beat
        # padding is written in cycles without data
        earliest_end = now + (sum(beats) + padding_cycles(load)) * self.costs.beat

        def arrived(time: int) -> None:
            if time >= earliest_end:
                done(time)
            else:
                self.clock.at(earliest_end, done)

        self.channel.read(now, _PRIORITIES[load.memory], beats, arrived)

    def _done(self, unit: Unit, number: int, now: int) -> None:
        self.end[number] = now
        self.units[unit].is_running = False
        self.completed += 1
        woken = set(Unit) if self.serial else {unit}
        for queue in pushes(self.instructions[number]):
            self.tokens[queue].append(now)
            woken.add(CONSUMER[queue])
        for other in sorted(woken):
            self._try_start(other, now)


def measure(program: AccelProgram, costs: CycleCosts = RTL, serial: bool = False) -> ProgramTiming:
    """Simulate the timing of `program`; with `serial`, one instruction at a time in stream order."""
    return _TimingModel(program, costs, serial).run()


# --------------------------------------------------------------------------- views of a run


WIDTH, ROW_HEIGHT, LEFT, TOP = 1000, 34, 70, 26  # of the picture, in pixels
LEGEND = 20
MIN_TICKS = 4  # minimum number, on the time axis
FETCH_ROW = 0
ROWS = ("fetch", *(unit.name.lower() for unit in Unit))
COLOURS = {"fetch": "#d8c27a", "load inp": "#4c8bc0", "load wgt": "#7fb2d9", "load uop": "#b9a3d0",
           "load acc": "#8f78b8", "load acc8": "#8f78b8", "gemm": "#3f9b63", "reset": "#a5d6b4",
           "alu": "#e0a33a", "store out": "#c7584f", "wait": "#bbbbbb", "finish": "#444444"}
MERGE_PIXELS = 0.4  # gap below which spans of one kind are drawn as one


class Span(NamedTuple):
    """An activity of the unit in `row` from cycle `begin` to `end`."""

    row: int
    begin: int
    end: int
    kind: str


def _spans(timing: ProgramTiming, first: int, last: int) -> Iterator[Span]:
    """Yield the spans between two cycles, clipped, unit by unit."""
    spans = [Span(FETCH_ROW, begin, end, "fetch") for begin, end in timing.fetches]
    for unit in Unit:
        spans += [Span(FETCH_ROW + 1 + unit, int(timing.begin[at]), int(timing.end[at]),
                       activity_of(timing.program.instructions[at])) for at in timing.of_unit(unit).tolist()]
    for span in spans:
        if span.begin < last and span.end > first:
            yield span._replace(begin=max(span.begin, first), end=min(span.end, last))


def _merge_spans(spans: Iterator[Span], gap: float) -> Iterator[Span]:
    """Merge adjacent spans of one unit and kind, to keep pictures of long runs small."""
    current: Span | None = None
    for span in spans:
        if current is None:
            current = span
        elif (span.row, span.kind) == (current.row, current.kind) and span.begin - current.end <= gap:
            current = current._replace(end=span.end)
        else:
            yield current
            current = span
    if current is not None:
        yield current


def svg(timing: ProgramTiming, first: int = 0, last: int | None = None) -> str:
    """Return an SVG picture of the cycles from `first` to `last`: a row for fetch and each unit."""
    stop = max(timing.cycles if last is None else min(last, timing.cycles), first + 1)
    scale = WIDTH / (stop - first)
    height = TOP + ROW_HEIGHT * len(ROWS) + 2 * LEGEND
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 10}" height="{height}" '
             'font-family="sans-serif" font-size="11">',
             f'<text x="{LEFT}" y="14">{escape(_title(timing, first, stop))}</text>']
    for row, name in enumerate(ROWS):
        y = TOP + ROW_HEIGHT * row
        parts.append(f'<text x="4" y="{y + ROW_HEIGHT / 2 + 4:g}">{name}</text>')
        parts.append(f'<rect x="{LEFT}" y="{y + 3}" width="{WIDTH}" height="{ROW_HEIGHT - 6}" '
                     'fill="#f4f4f4"/>')
    kinds: dict[str, None] = {}
    for span in _merge_spans(_spans(timing, first, stop), MERGE_PIXELS / scale):
        kinds[span.kind] = None
        parts.append(_bar(span, first, scale))
    parts += [*_axis(first, stop, scale), *_legend(list(kinds)), "</svg>"]
    return "\n".join(parts) + "\n"


def _title(timing: ProgramTiming, first: int, last: int) -> str:
    return (f"{timing.program.spec.name}: cycles {first} to {last} of {timing.cycles} simulated, "
            f"array {timing.utilisation:.1%} used")


def _bar(span: Span, first: int, scale: float) -> str:
    x, width = LEFT + (span.begin - first) * scale, max((span.end - span.begin) * scale, 0.3)
    return (f'<rect x="{x:.2f}" y="{TOP + ROW_HEIGHT * span.row + 3}" width="{width:.2f}" '
            f'height="{ROW_HEIGHT - 6}" '
            f'fill="{COLOURS[span.kind]}"><title>{span.kind}, cycles {span.begin} to {span.end}</title>'
            '</rect>')


def _axis(first: int, last: int, scale: float) -> Iterator[str]:
    step = 10 ** (len(str(last - first)) - 1)
    if (last - first) // step < MIN_TICKS:
        step = max(step // 5, 1)
    y = TOP + ROW_HEIGHT * len(ROWS) + 12
    for tick in range(-(-first // step) * step, last + 1, step):
        yield f'<text x="{LEFT + (tick - first) * scale:.2f}" y="{y}" fill="#666666">{tick}</text>'


def _legend(kinds: list[str]) -> Iterator[str]:
    y = TOP + ROW_HEIGHT * len(ROWS) + LEGEND
    for place, kind in enumerate(kinds):
        x = LEFT + place * 95
        yield f'<rect x="{x}" y="{y}" width="12" height="12" fill="{COLOURS[kind]}"/>'
        yield f'<text x="{x + 16}" y="{y + 10}">{kind}</text>'


def perfetto(timing: ProgramTiming) -> str:
    """Return a JSON trace: a thread per unit, an arrow per token; a cycle is a microsecond."""
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": timing.program.spec.name}}]
    events += [{"ph": "M", "name": "thread_name", "pid": 1, "tid": row, "args": {"name": name}}
               for row, name in enumerate(ROWS)]
    events += [{"ph": "X", "name": "fetch", "pid": 1, "tid": FETCH_ROW, "ts": begin, "dur": end - begin}
               for begin, end in timing.fetches]
    for unit in Unit:
        events += [_slice(timing, unit, at) for at in timing.of_unit(unit).tolist()]
    events += _arrows(timing)
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms",
                       "otherData": {"unit": "a microsecond here is a simulated cycle"}})


def _slice(timing: ProgramTiming, unit: Unit, at: int) -> dict[str, Any]:
    instruction, begin = timing.program.instructions[at], int(timing.begin[at])
    return {"ph": "X", "name": activity_of(instruction), "pid": 1, "tid": FETCH_ROW + 1 + unit, "ts": begin,
            "dur": int(timing.end[at]) - begin,
            "args": {"at": at, "text": " ".join(show(timing.program.spec, instruction).split())}}


def _arrows(timing: ProgramTiming) -> Iterator[dict[str, Any]]:
    """Yield arrows from the n-th push of a token queue to its n-th pop."""
    if timing.serial:
        return
    instructions = timing.program.instructions
    rows = [FETCH_ROW + 1 + unit_of(i) for i in instructions]
    for queue in Queue:
        pushed = [at for at, i in enumerate(instructions) if queue in pushes(i)]
        popped = [at for at, i in enumerate(instructions) if queue in pops(i)]
        for number, (producer, consumer) in enumerate(zip(pushed, popped, strict=False)):
            common = {"name": queue.name.lower(), "cat": "token", "pid": 1, "id": f"{queue.name}{number}"}
            yield {**common, "ph": "s", "tid": rows[producer], "ts": max(int(timing.end[producer]) - 1, 0)}
            yield {**common, "ph": "f", "bp": "e", "tid": rows[consumer], "ts": int(timing.begin[consumer])}


def text_timeline(timing: ProgramTiming, width: int = 64) -> list[str]:
    """Return a text timeline, a line per unit: busy most of a cell (#), some of it (+), or idle."""
    lines = []
    step = max(timing.cycles, 1) / width
    for unit in Unit:
        busy = np.zeros(width)
        for at in timing.of_unit(unit):
            begin, end = timing.begin[at] / step, timing.end[at] / step
            cells = np.arange(width)
            busy += np.clip(np.minimum(cells + 1, end) - np.maximum(cells, begin), 0, None)
        marks = "".join("#" if b > 0.5 else "+" if b > 0.02 else " " for b in busy)
        lines.append(f"{unit.name.lower():8}|{marks}|")
    return lines
