"""Verifier of instruction streams: hazards, order of tokens, and rules of operands."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import gcd
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jitla.accel.functional_sim import Indices, Steps, bare, known_steps, operands
from jitla.accel.isa import (
    INSTRUCTION_BYTES,
    OPCODES,
    Alu,
    AluOp,
    Finish,
    Gemm,
    Instruction,
    Load,
    Queue,
    Store,
    Unit,
    dangling,
    fields,
    pops,
    pushes,
    refusal,
    unit_of,
)
from jitla.accel.program import Program, Region
from jitla.accel.spec import ADDRESS_BITS, TRANSFER, Memory, Spec

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


RESIDENT = 2048  # micro-ops on the chip: the smallest memory an implementation has
DISTANCE = 3  # number of consecutive steps that must write different elements
# Every rule, and what breaks it.
RULES: dict[str, str] = {
    "encoding": "a number does not fit into its field",
    "flags": "a token flag names no queue of the unit",
    "deadlock": "a unit waits for a token that never comes",
    "finish": "FINISH is missing, not last, takes tokens, or comes before something is done",
    "token-leak": "tokens stay in a queue at the end",
    "token-depth": "more than eight tokens can be in a queue",
    "race": "two units touch one element, one of them writes, and no token orders them",
    "unwritten": "what is read was never written",
    "overflow": "a transfer passes the end of a memory",
    "index": "a step names an element that its memory does not have",
    "stale-out": "what is stored was last written by a load or a reset",
    "shift": "a shift is by a tensor, or by more than fifteen",
    "dialect": "the machine does not have the operation",
    "padding": "zeros are loaded around something other than inputs",
    "uop-load": "micro-ops are loaded in more than one row",
    "hazard": "steps close to each other write one element, or one reads what another wrote",
    "resident-uops": "more micro-ops are on the chip than every implementation has room for",
    "transfer-size": "stream or micro-ops are larger than a transfer",
    "address-zero": "address zero is used",
    "alignment": "a buffer is not aligned to the elements it is addressed by",
    "region": "a transfer leaves its buffer, or writes into what is only read",
    "uop-source": "micro-ops are loaded from where there are none",
}


class Fault(NamedTuple):
    """A rule that is broken, and by which instruction; -1 for the stream as a whole."""

    rule: str
    at: int
    text: str

    def __str__(self) -> str:
        where = f"instruction {self.at}: " if self.at >= 0 else ""
        return f"{where}{self.rule}: {self.text}"


Broken = Iterator[tuple[str, str]]


def by_itself(spec: Spec, instruction: Instruction) -> Broken:
    """Yield rules that `instruction` breaks whatever micro-ops say."""
    for field in fields(spec, OPCODES[type(instruction)])[1:]:
        value = int(getattr(instruction, field.name))
        if not field.accepts(value):
            yield "encoding", f"{field.name}={value} has more than {field.width} bits"
    for name in dangling(instruction):
        yield "flags", name
    if isinstance(instruction, (Load, Store)) and not instruction.is_noop:
        yield from _transfer(spec, instruction)
    elif isinstance(instruction, Alu):
        refused = refusal(spec, instruction)
        if refused:
            yield "shift" if instruction.op is AluOp.SHR else "dialect", refused


def _transfer(spec: Spec, transfer: Load | Store) -> Broken:
    memory, element = transfer.memory, spec.element(transfer.memory)
    if isinstance(transfer, Store) != (memory is Memory.OUT):
        yield "dialect", f"{memory.name} is not what a {type(transfer).__name__.lower()} moves"
    if memory is Memory.ACC8 and spec.dialect != "extended":
        yield "dialect", "ACC8 is not in the dialect"
    if memory is not Memory.INP and transfer.count != transfer.x_size * transfer.y_size:
        yield "padding", f"of {memory.name}"
    if memory is Memory.UOP and transfer.y_size != 1:
        yield "uop-load", f"{transfer.y_size} rows"
    depth = spec.element(Memory.ACC if memory is Memory.ACC8 else memory).depth
    end = transfer.sram_base + transfer.count
    if end > depth:
        yield "overflow", f"{memory.name} has {depth} elements, and {end} are needed"
    if memory is Memory.UOP and end > RESIDENT:
        yield "resident-uops", f"{end} of {RESIDENT}"
    if transfer.dram_base == 0:
        yield "address-zero", f"{memory.name} is moved from or to address zero"
    last = transfer.dram_base + max(transfer.y_size - 1, 0) * transfer.x_stride + transfer.x_size
    if last * element.nbytes > 1 << ADDRESS_BITS:
        yield "region", "addresses have 32 bits"
    if isinstance(transfer, Store) and transfer.y_size > 1 and transfer.x_stride < transfer.x_size:
        yield "region", "rows that are stored overlap"


@lru_cache(maxsize=512)
def by_steps(spec: Spec, loop: Gemm | Alu, words: bytes) -> tuple[tuple[str, str], ...]:
    """Return rules that the steps of `loop`, an instruction made bare, break over micro-ops `words`."""
    return tuple(_by_steps(spec, loop, known_steps(spec, loop, words)))


def _by_steps(spec: Spec, instruction: Gemm | Alu, steps: Steps) -> Broken:
    for memory, indices in operands(instruction, steps):
        depth = spec.element(memory).depth
        if len(indices) and int(indices.max()) >= depth:
            yield "index", f"{memory.name} has {depth} elements, and {int(indices.max())} is named"
            return
    for apart in range(1, DISTANCE):
        if (steps.dst[apart:] == steps.dst[:-apart]).any():
            yield "hazard", f"steps {apart} apart write one element"
            return
    if isinstance(instruction, Alu) and _feeds_itself(instruction, steps):
        yield "hazard", "a step of the ALU reads what an earlier one of the instruction wrote"


def _feeds_itself(alu: Alu, steps: Steps) -> bool:
    """Whether an operand of a step is the destination of one before it."""
    order = np.argsort(steps.dst, kind="stable")
    sorted_dst = steps.dst[order]
    if (sorted_dst[1:] == sorted_dst[:-1]).any():
        return True  # the destination is an operand, too
    if alu.use_imm or not len(order):
        return False
    place = np.minimum(np.searchsorted(sorted_dst, steps.src), len(order) - 1)
    return bool(((sorted_dst[place] == steps.src) & (order[place] < np.arange(len(order)))).any())


TOKENS = 8  # that may be in a queue at once
WRITABLE = ("output", "scratch")
NEVER = -1
Places = NDArray[np.int64]


class _Written:
    """Of each element of something, the last instruction of each unit that read it and that wrote it."""

    def __init__(self, count: int) -> None:
        self.read: dict[Unit, Places] = {unit: np.full(count, NEVER, np.int64) for unit in Unit}
        self.wrote: dict[Unit, Places] = {unit: np.full(count, NEVER, np.int64) for unit in Unit}

    def unordered(self, cells: Indices | slice, unit: Unit, done: NDArray[np.int64], writes: bool) -> bool:
        """Whether another unit's access is not surely done.

        Units are in order themselves, so only the last access of each has to be looked at.
        """
        others = [other for other in Unit if other is not unit]
        tables = [(self.wrote[other], other) for other in others]
        if writes:
            tables += [(self.read[other], other) for other in others]
        return any(table[cells].max(initial=NEVER) >= done[other] for table, other in tables)

    def note(self, cells: Indices | slice, unit: Unit, place: int, writes: bool) -> None:
        """Remember an access."""
        (self.wrote if writes else self.read)[unit][cells] = place

    def unwritten(self, cells: Indices | slice) -> bool:
        """Whether something in `cells` has not been written by anybody."""
        last = np.maximum.reduce([table[cells] for table in self.wrote.values()])
        return bool((last == NEVER).any())


class _Dram:
    """DRAM, as far as it is written: cells of as many bytes as divide all addresses."""

    def __init__(self, program: Program) -> None:
        spec, stores = program.spec, [i for i in program.instructions
                                      if isinstance(i, Store) and not i.is_noop]
        size = spec.element(Memory.OUT).nbytes
        self.low = min((s.dram_base for s in stores), default=0) * size
        self.high = max((_last(s) for s in stores), default=0) * size
        self.cell = gcd(size, *(spec.element(m).nbytes for m in (Memory.WGT, Memory.INP, Memory.ACC)))
        self.low -= self.low % self.cell
        self.table = _Written(-(-(self.high - self.low) // self.cell))

    def cells(self, transfer: Load | Store, size: int) -> Indices:
        """Return the cells of `transfer`, of elements of `size` bytes, as far as anybody stores there."""
        first = transfer.dram_base * size // self.cell
        row = np.arange(transfer.x_size * size // self.cell, dtype=np.int64)
        starts = first + np.arange(transfer.y_size, dtype=np.int64) * (transfer.x_stride * size // self.cell)
        cells = (starts[:, None] + row).reshape(-1) - self.low // self.cell
        return cells[(cells >= 0) & (cells < len(self.table.wrote[Unit.STORE]))]


def _last(transfer: Load | Store) -> int:
    """The element behind the last one in DRAM."""
    return transfer.dram_base + max(transfer.y_size - 1, 0) * transfer.x_stride + transfer.x_size


class _Check:
    """One walk along a legal execution; a race shows in any."""

    def __init__(self, program: Program, order: Order) -> None:
        self.program, self.spec, self.order = program, program.spec, order
        self.faults: list[Fault] = []
        depth = {memory: self.spec.element(memory).depth for memory in Memory}
        self.chip = {m: _Written(depth[m]) for m in (Memory.UOP, Memory.WGT, Memory.INP, Memory.ACC)}
        self.uop = np.zeros(depth[Memory.UOP], np.uint32)
        self.computed = np.zeros(depth[Memory.ACC], bool)  # last written by what also fills OUT
        self.dram = _Dram(program)

    def fault(self, rule: str, at: int, text: str) -> None:
        """Note a broken rule."""
        self.faults.append(Fault(rule, at, text))

    def walk(self, skip: set[int]) -> None:
        """Follow the execution; instructions in `skip` are broken by themselves, and touch nothing."""
        for at in self.order.sequence:
            instruction = self.program.instructions[at]
            if at in skip:
                continue
            match instruction:
                case Load() | Store() if not instruction.is_noop:
                    self._transfer(at, instruction)
                case Gemm() | Alu():
                    self._loop(at, instruction)

    def _touch(self, at: int, memory: Memory, cells: Indices | slice, writes: bool) -> None:
        """Check an access on the chip against those of other units, then remember it."""
        table, unit = self.chip[memory], unit_of(self.program.instructions[at])
        if table.unordered(cells, unit, self.order.done[at], writes):
            self.fault("race", at, f"{'writes' if writes else 'reads'} {memory.name}")
        if not writes and table.unwritten(cells):
            self.fault("unwritten", at, f"{memory.name} is read")
        table.note(cells, unit, int(self.order.places[at]), writes)

    def _transfer(self, at: int, transfer: Load | Store) -> None:
        memory = Memory.ACC if transfer.memory in (Memory.OUT, Memory.ACC8) else transfer.memory
        cells = slice(transfer.sram_base, transfer.sram_base + transfer.count)
        writes = isinstance(transfer, Load)
        self._touch(at, memory, cells, writes)
        self._touch_dram(at, transfer)
        if isinstance(transfer, Store):
            if not self.computed[cells].all():
                self.fault("stale-out", at, "what is stored was loaded or reset, not computed")
        elif memory is Memory.ACC:
            self.computed[cells] = False
        elif memory is Memory.UOP:
            self._load_uops(at, transfer)

    def _load_uops(self, at: int, load: Load) -> None:
        table, begin = self.program.uops, load.dram_base - self.program.uop_address // 4
        if begin < 0 or begin + load.x_size > len(table):
            self.fault("uop-source", at, f"the table has {len(table)}, from {begin} are loaded {load.x_size}")
            return
        self.uop[load.sram_base:load.sram_base + load.x_size] = table[begin:begin + load.x_size]

    def _touch_dram(self, at: int, transfer: Load | Store) -> None:
        size = self.spec.element(transfer.memory).nbytes
        region = _region_of(self.program, transfer, size)
        if self.program.regions and transfer.memory is not Memory.UOP:
            self._in_region(at, transfer, region, size)
        if isinstance(transfer, Load) and transfer.memory is Memory.UOP:
            if transfer.dram_base * size < self.dram.high and _last(transfer) * size > self.dram.low:
                self._over_uops(at, transfer, size)
            return
        cells, unit, writes = self.dram.cells(transfer, size), unit_of(transfer), isinstance(transfer, Store)
        if self.dram.table.unordered(cells, unit, self.order.done[at], writes):
            self.fault("race", at, f"{'writes' if writes else 'reads'} DRAM")
        if not writes and region is not None and region.role in WRITABLE:
            expected = transfer.y_size * transfer.x_size * size // self.dram.cell
            if len(cells) < expected or self.dram.table.unwritten(cells):
                self.fault("unwritten", at, f"{region.name} is loaded before it is stored")
        self.dram.table.note(cells, unit, int(self.order.places[at]), writes)

    def _over_uops(self, at: int, load: Load, size: int) -> None:
        if len(self.dram.cells(load, max(size, self.dram.cell))):
            self.fault("region", at, "micro-ops lie where results are stored")

    def _in_region(self, at: int, transfer: Load | Store, region: Region | None, size: int) -> None:
        if region is None:
            self.fault("region", at, f"rows at {transfer.dram_base * size:#x} leave their buffer")
            return
        if region.address % size:
            self.fault("alignment", at, f"{region.name} is addressed by elements of {size} bytes")
        if isinstance(transfer, Store) and region.role not in WRITABLE:
            self.fault("region", at, f"{region.name} is not written by the device")

    def _loop(self, at: int, instruction: Gemm | Alu) -> None:
        depth = len(self.uop)
        if instruction.uop_end > depth or instruction.uop_end < instruction.uop_bgn:
            self.fault("index", at, f"micro-ops {instruction.uop_bgn} to {instruction.uop_end} of {depth}")
            return
        self._touch(at, Memory.UOP, slice(instruction.uop_bgn, instruction.uop_end), writes=False)
        words = self.uop[instruction.uop_bgn:instruction.uop_end].tobytes()
        loop = bare(instruction)
        broken = by_steps(self.spec, loop, words)
        for rule, text in broken:
            self.fault(rule, at, text)
        if any(rule == "index" for rule, _ in broken):
            return
        (_, dst), *read = _touched(self.spec, loop, words)
        keeps = not (isinstance(instruction, Gemm) and instruction.reset)
        for memory, cells in read:
            self._touch(at, memory, cells, writes=False)
        if keeps and self.chip[Memory.ACC].unwritten(dst):
            self.fault("unwritten", at, "ACC is added to before it has a value")
        self._touch(at, Memory.ACC, dst, writes=True)
        self.computed[dst] = keeps


@lru_cache(maxsize=256)
def _touched(spec: Spec, loop: Gemm | Alu, words: bytes) -> tuple[tuple[Memory, Indices], ...]:
    """Which elements of which memory, each once; what is written comes first."""
    return tuple((memory, np.unique(indices))
                 for memory, indices in operands(loop, known_steps(spec, loop, words)))


def _region_of(program: Program, transfer: Load | Store, size: int) -> Region | None:
    """The region that all bytes of `transfer` are in."""
    begin, end = transfer.dram_base * size, _last(transfer) * size
    for region in program.regions:
        if region.address <= begin and end <= region.end:
            return region
    return None


def _ending(program: Program, order: Order) -> list[Fault]:
    """FINISH is the last instruction, takes no token, and all others are done before it."""
    found = [at for at, i in enumerate(program.instructions) if isinstance(i, Finish)]
    last = len(program.instructions) - 1
    if found != [last]:
        return [Fault("finish", found[0] if found else -1, "there is one FINISH, at the end of the stream")]
    finish = program.instructions[last]
    faults = [Fault("finish", last, "takes a token")] if pops(finish) else []
    for unit in (Unit.LOAD, Unit.STORE):
        of_unit = [at for at, i in enumerate(program.instructions) if unit_of(i) is unit]
        if of_unit and not order.stuck and not order.before(of_unit[-1], unit, last):
            faults.append(Fault("finish", last, f"may come before {unit.name} is done"))
    return faults


def _tokens(order: Order) -> list[Fault]:
    """Deadlock, tokens left over, and queues that get too long."""
    faults = [Fault("deadlock", at, text) for at, text in order.stuck]
    for queue in Queue:
        peak, at = order.peaks[queue]
        if peak > TOKENS:
            faults.append(Fault("token-depth", at, f"{peak} tokens in {queue.name}"))
        if order.left[queue]:
            faults.append(Fault("token-leak", -1, f"{order.left[queue]} tokens stay in {queue.name}"))
    return faults


def _sizes(program: Program) -> list[Fault]:
    """Whole transfers to the device, and where the table of micro-ops is."""
    faults = []
    for name, nbytes in (("stream", len(program.instructions) * INSTRUCTION_BYTES),
                         ("micro-ops", program.uops.nbytes)):
        if nbytes > TRANSFER:
            faults.append(Fault("transfer-size", -1, f"{name}: {nbytes} of {TRANSFER} bytes"))
    if program.uop_address % 4:
        faults.append(Fault("alignment", -1, "micro-ops are addressed by elements of 4 bytes"))
    if len(program.uops) and program.uop_address == 0:
        faults.append(Fault("address-zero", -1, "micro-ops lie at address zero"))
    return faults


def _alone(spec: Spec, instructions: tuple[Instruction, ...]) -> list[Fault]:
    return [Fault(rule, at, text) for at, instruction in enumerate(instructions)
            for rule, text in by_itself(spec, instruction)]


def verify(program: Program) -> tuple[Fault, ...]:
    """Return the rules that `program` breaks, by their place in the stream."""
    order = order_of(program.instructions)
    alone = _alone(program.spec, program.instructions)
    check = _Check(program, order)
    check.walk({fault.at for fault in alone})
    faults = [*_sizes(program), *_tokens(order), *_ending(program, order), *alone, *check.faults]
    return tuple(sorted(faults, key=lambda fault: fault.at))
