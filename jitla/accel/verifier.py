"""Verifier of accelerator instruction streams: encoding, token synchronisation, hazards and memory bounds.

Vector clocks over one execution give the happens-before order of units; every race shows in any execution,
since each token has one producer and one consumer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import gcd
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jitla.accel.functional_sim import Indices, StepIndices, cached_steps, index_key, operands
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
    fields,
    pops,
    pushes,
    refusal,
    unconnected_flags,
    unit_of,
)
from jitla.accel.program import AccelProgram, DramRegion
from jitla.accel.spec import ADDRESS_BITS, MAX_TRANSFER_BYTES, AccelSpec, Memory

QUEUE_COMMANDS = 512  # capacity of a unit's instruction queue; fetch stalls on a full one
CONSUMER = {Queue.LOAD_TO_COMPUTE: Unit.COMPUTE, Queue.COMPUTE_TO_LOAD: Unit.LOAD,
            Queue.COMPUTE_TO_STORE: Unit.STORE, Queue.STORE_TO_COMPUTE: Unit.COMPUTE}


class HappensBefore(NamedTuple):
    """The happens-before order: each instruction's position in its unit, and its vector clock `done`.

    `sequence` is one legal execution, ended by a deadlock if any, which `deadlocks` describes. `peaks` has
    the maximum number of tokens in each queue and the push that reaches it; `leftover` the leftover tokens.
    """

    sequence: tuple[int, ...]
    positions: NDArray[np.int64]
    done: NDArray[np.int64]
    deadlocks: tuple[tuple[int, str], ...]
    peaks: tuple[tuple[int, int], ...]
    leftover: tuple[int, ...]

    def before(self, first: int, unit: Unit, then: int) -> bool:
        """Return whether instruction `first`, of `unit`, is always done when `then` starts."""
        return bool(self.positions[first] < self.done[then, unit])


class _Execution:
    """One execution with vector clocks; any will do, as each token has one producer and one consumer."""

    def __init__(self, instructions: Sequence[Instruction]) -> None:
        self.instructions = instructions
        count = len(instructions)
        self.units = [unit_of(i) for i in instructions]
        self.pops, self.pushes = [pops(i) for i in instructions], [pushes(i) for i in instructions]
        self.positions, self.done = np.zeros(count, np.int64), np.zeros((count, len(Unit)), np.int64)
        self.waiting: dict[Unit, deque[int]] = {unit: deque() for unit in Unit}
        self.tokens: dict[Queue, deque[int]] = {queue: deque() for queue in Queue}
        self.pushed = dict.fromkeys(Queue, 0)
        self.taken: dict[Queue, list[int]] = {queue: [] for queue in Queue}  # positions of their consumers
        self.peaks = dict.fromkeys(Queue, (0, -1))
        self.last = dict.fromkeys(Unit, (0, 0, 0))
        self.started = dict.fromkeys(Unit, 0)
        self.sequence: list[int] = []
        self.fetched = 0

    def go(self) -> None:
        """Run until no unit can continue."""
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
            if len(queue) >= QUEUE_COMMANDS:
                break
            queue.append(self.fetched)
            self.fetched += 1
        return self.fetched > begin

    def _start(self, unit: Unit, number: int) -> None:
        position = self.started[unit]
        clock = list(self.last[unit])
        clock[unit] = position
        for queue in self.pops[number]:
            producer = self.tokens[queue].popleft()
            producer_clock = self.done[producer].tolist()
            producer_clock[self.units[producer]] = int(self.positions[producer]) + 1
            clock = [max(pair) for pair in zip(clock, producer_clock, strict=True)]
            self.taken[queue].append(position)
        self.positions[number], self.done[number] = position, clock
        self.last[unit], self.started[unit] = (clock[0], clock[1], clock[2]), position + 1
        self.sequence.append(number)
        for queue in self.pushes[number]:
            self._push(queue, number, clock)

    def _push(self, queue: Queue, number: int, clock: list[int]) -> None:
        self.tokens[queue].append(number)
        self.pushed[queue] += 1
        # tokens certainly popped are those whose consumers are done before this instruction starts
        popped = int(np.searchsorted(self.taken[queue], clock[CONSUMER[queue]]))
        self.peaks[queue] = max(self.peaks[queue], (self.pushed[queue] - popped, number))

    def deadlocks(self) -> tuple[tuple[int, str], ...]:
        """Return the front instruction of each blocked queue, and the tokens that it waits for."""
        blocked = []
        for unit in Unit:
            if self.waiting[unit]:
                number = self.waiting[unit][0]
                missing = [queue.name for queue in self.pops[number] if not self.tokens[queue]]
                blocked.append((number, f"{unit.name} waits for {' and '.join(missing)}"))
        if self.fetched < len(self.instructions):
            blocked.append((self.fetched, f"fetch waits for a free entry of {QUEUE_COMMANDS} commands"))
        return tuple(blocked)


def order_of(instructions: Sequence[Instruction]) -> HappensBefore:
    """Return the happens-before order of `instructions`."""
    run = _Execution(instructions)
    run.go()
    peaks = tuple(run.peaks[q] for q in Queue)
    return HappensBefore(tuple(run.sequence), run.positions, run.done, run.deadlocks(), peaks,
                         tuple(len(run.tokens[q]) for q in Queue))


MAX_RESIDENT_UOPS = 2048  # micro-ops: the smallest UOP memory of any implementation
MIN_WRITE_DISTANCE = 3  # steps between two writes of one element: the pipeline latency
# Every rule, and its violation.
RULES: dict[str, str] = {
    "encoding": "a value does not fit into its field",
    "flags": "a token flag has no queue at the unit",
    "deadlock": "a unit waits for a token that never comes",
    "finish": "FINISH is missing, not last, pops tokens, or may run before another unit is done",
    "token-leak": "tokens are left in a queue at the end",
    "token-depth": "more than eight tokens can be in a queue",
    "race": "two units access one element, one of them writes, and no token orders them",
    "unwritten": "an element is read that was never written",
    "overflow": "a transfer exceeds the size of a memory",
    "index": "an index of a step is out of bounds",
    "stale-out": "a stored element was last written by a load or a reset",
    "shift": "a shift is by a tensor, or by more than 15",
    "dialect": "the machine does not have the operation",
    "padding": "a load of a memory other than INP has padding",
    "uop-load": "a load of micro-ops has more than one row",
    "hazard": "steps within the latency write one element, or one reads the result of another",
    "resident-uops": "more micro-ops are resident than the smallest implementation holds",
    "transfer-size": "the stream or the micro-ops exceed the size of a transfer",
    "address-zero": "address zero is used",
    "alignment": "a buffer is not aligned to its elements",
    "region": "a transfer leaves its buffer, or writes to a read-only one",
    "uop-source": "micro-ops are loaded from outside their table",
}


class Fault(NamedTuple):
    """A violated rule and its instruction; -1 for the stream as a whole."""

    rule: str
    at: int
    text: str

    def __str__(self) -> str:
        where = f"instruction {self.at}: " if self.at >= 0 else ""
        return f"{where}{self.rule}: {self.text}"


FaultTexts = Iterator[tuple[str, str]]


def instruction_faults(spec: AccelSpec, instruction: Instruction) -> FaultTexts:
    """Yield the rules that `instruction` violates independently of micro-ops."""
    for field in fields(spec, OPCODES[type(instruction)])[1:]:
        value = int(getattr(instruction, field.name))
        if not field.accepts(value):
            yield "encoding", f"{field.name}={value} has more than {field.width} bits"
    for name in unconnected_flags(instruction):
        yield "flags", name
    if isinstance(instruction, (Load, Store)) and not instruction.is_noop:
        yield from _transfer(spec, instruction)
    elif isinstance(instruction, Alu):
        reason = refusal(spec, instruction)
        if reason:
            yield "shift" if instruction.op is AluOp.SHR else "dialect", reason


def _transfer(spec: AccelSpec, transfer: Load | Store) -> FaultTexts:
    memory, element = transfer.memory, spec.element(transfer.memory)
    if isinstance(transfer, Store) != (memory is Memory.OUT):
        yield "dialect", f"{memory.name} cannot be accessed by a {type(transfer).__name__.lower()}"
    if memory is Memory.ACC8 and spec.dialect != "extended":
        yield "dialect", "ACC8 is not in the dialect"
    if memory is not Memory.INP and transfer.count != transfer.x_size * transfer.y_size:
        yield "padding", f"of {memory.name}"
    if memory is Memory.UOP and transfer.y_size != 1:
        yield "uop-load", f"{transfer.y_size} rows"
    depth = spec.element(Memory.ACC if memory is Memory.ACC8 else memory).depth
    end = transfer.sram_base + transfer.count
    if end > depth:
        yield "overflow", f"{memory.name} has {depth} elements; {end} are needed"
    if memory is Memory.UOP and end > MAX_RESIDENT_UOPS:
        yield "resident-uops", f"{end} of {MAX_RESIDENT_UOPS}"
    if transfer.dram_base == 0:
        yield "address-zero", f"{memory.name} is transferred at address zero"
    last = transfer.dram_base + max(transfer.y_size - 1, 0) * transfer.x_stride + transfer.x_size
    if last * element.nbytes > 1 << ADDRESS_BITS:
        yield "region", "addresses have 32 bits"
    if isinstance(transfer, Store) and transfer.y_size > 1 and transfer.x_stride < transfer.x_size:
        yield "region", "stored rows overlap"


@lru_cache(maxsize=512)
def loop_faults(spec: AccelSpec, loop: Gemm | Alu, words: bytes) -> tuple[tuple[str, str], ...]:
    """Return the rules that the steps of `loop`, an `index_key`, violate over micro-ops `words`."""
    return tuple(_loop_faults(spec, loop, cached_steps(spec, loop, words)))


def _loop_faults(spec: AccelSpec, instruction: Gemm | Alu, steps: StepIndices) -> FaultTexts:
    for memory, indices in operands(instruction, steps):
        depth = spec.element(memory).depth
        if len(indices) and int(indices.max()) >= depth:
            yield "index", f"{memory.name} has {depth} elements; index {int(indices.max())} is out of bounds"
            return
    for distance in range(1, MIN_WRITE_DISTANCE):
        if (steps.dst[distance:] == steps.dst[:-distance]).any():
            yield "hazard", f"steps {distance} apart write one element"
            return
    if isinstance(instruction, Alu) and _feeds_itself(instruction, steps):
        yield "hazard", "an ALU step reads the result of an earlier step of the instruction"


def _feeds_itself(alu: Alu, steps: StepIndices) -> bool:
    """Return whether a step reads the destination of an earlier one."""
    order = np.argsort(steps.dst, kind="stable")
    sorted_dst = steps.dst[order]
    if (sorted_dst[1:] == sorted_dst[:-1]).any():
        return True  # the destination is an operand, too
    if alu.use_imm or not len(order):
        return False
    position = np.minimum(np.searchsorted(sorted_dst, steps.src), len(order) - 1)
    return bool(((sorted_dst[position] == steps.src) & (order[position] < np.arange(len(order)))).any())


MAX_TOKENS = 8  # capacity of a token queue
WRITABLE = ("output", "scratch")
NEVER = -1
Positions = NDArray[np.int64]


class _AccessTable:
    """A table of the last reader and writer of each element, per unit."""

    def __init__(self, count: int) -> None:
        self.read: dict[Unit, Positions] = {unit: np.full(count, NEVER, np.int64) for unit in Unit}
        self.wrote: dict[Unit, Positions] = {unit: np.full(count, NEVER, np.int64) for unit in Unit}

    def unordered(self, cells: Indices | slice, unit: Unit, done: NDArray[np.int64], writes: bool) -> bool:
        """Return whether a conflicting access of another unit is not ordered before.

        Units execute in order, so only the last access of each is compared.
        """
        others = [other for other in Unit if other is not unit]
        tables = [(self.wrote[other], other) for other in others]
        if writes:
            tables += [(self.read[other], other) for other in others]
        return any(table[cells].max(initial=NEVER) >= done[other] for table, other in tables)

    def record(self, cells: Indices | slice, unit: Unit, position: int, writes: bool) -> None:
        """Record an access."""
        (self.wrote if writes else self.read)[unit][cells] = position

    def unwritten(self, cells: Indices | slice) -> bool:
        """Return whether some element of `cells` was never written."""
        last = np.maximum.reduce([table[cells] for table in self.wrote.values()])
        return bool((last == NEVER).any())


class _Dram:
    """The written range of DRAM as cells: the largest size that divides all addresses."""

    def __init__(self, program: AccelProgram) -> None:
        spec, stores = program.spec, [i for i in program.instructions
                                      if isinstance(i, Store) and not i.is_noop]
        size = spec.element(Memory.OUT).nbytes
        self.low = min((s.dram_base for s in stores), default=0) * size
        self.high = max((_dram_end(s) for s in stores), default=0) * size
        self.cell = gcd(size, *(spec.element(m).nbytes for m in (Memory.WGT, Memory.INP, Memory.ACC)))
        self.low -= self.low % self.cell
        self.table = _AccessTable(-(-(self.high - self.low) // self.cell))

    def cells(self, transfer: Load | Store, size: int) -> Indices:
        """Return the cells of `transfer` within the written range; elements have `size` bytes."""
        first = transfer.dram_base * size // self.cell
        row = np.arange(transfer.x_size * size // self.cell, dtype=np.int64)
        starts = first + np.arange(transfer.y_size, dtype=np.int64) * (transfer.x_stride * size // self.cell)
        cells = (starts[:, None] + row).reshape(-1) - self.low // self.cell
        return cells[(cells >= 0) & (cells < len(self.table.wrote[Unit.STORE]))]


def _dram_end(transfer: Load | Store) -> int:
    """Return the DRAM element past the last one of a transfer."""
    return transfer.dram_base + max(transfer.y_size - 1, 0) * transfer.x_stride + transfer.x_size


class _HazardChecker:
    """Checks memory accesses along one legal execution."""

    def __init__(self, program: AccelProgram, order: HappensBefore) -> None:
        self.program, self.spec, self.order = program, program.spec, order
        self.faults: list[Fault] = []
        depth = {memory: self.spec.element(memory).depth for memory in Memory}
        self.chip = {m: _AccessTable(depth[m]) for m in (Memory.UOP, Memory.WGT, Memory.INP, Memory.ACC)}
        self.uop = np.zeros(depth[Memory.UOP], np.uint32)
        # last written by a GEMM or ALU instruction, which also fills OUT
        self.computed = np.zeros(depth[Memory.ACC], bool)
        self.dram = _Dram(program)

    def fault(self, rule: str, at: int, text: str) -> None:
        """Record a violation."""
        self.faults.append(Fault(rule, at, text))

    def walk(self, skip: set[int]) -> None:
        """Check the execution; instructions in `skip` are malformed and have no effect."""
        for at in self.order.sequence:
            instruction = self.program.instructions[at]
            if at in skip:
                continue
            match instruction:
                case Load() | Store() if not instruction.is_noop:
                    self._transfer(at, instruction)
                case Gemm() | Alu():
                    self._loop(at, instruction)

    def _access(self, at: int, memory: Memory, cells: Indices | slice, writes: bool) -> None:
        """Check an on-chip access against those of other units, then record it."""
        table, unit = self.chip[memory], unit_of(self.program.instructions[at])
        if table.unordered(cells, unit, self.order.done[at], writes):
            self.fault("race", at, f"{'writes' if writes else 'reads'} {memory.name}")
        if not writes and table.unwritten(cells):
            self.fault("unwritten", at, f"{memory.name} is read")
        table.record(cells, unit, int(self.order.positions[at]), writes)

    def _transfer(self, at: int, transfer: Load | Store) -> None:
        memory = Memory.ACC if transfer.memory in (Memory.OUT, Memory.ACC8) else transfer.memory
        cells = slice(transfer.sram_base, transfer.sram_base + transfer.count)
        writes = isinstance(transfer, Load)
        self._access(at, memory, cells, writes)
        self._access_dram(at, transfer)
        if isinstance(transfer, Store):
            if not self.computed[cells].all():
                self.fault("stale-out", at, "a stored element was loaded or reset, not computed")
        elif memory is Memory.ACC:
            self.computed[cells] = False
        elif memory is Memory.UOP:
            self._load_uops(at, transfer)

    def _load_uops(self, at: int, load: Load) -> None:
        table, begin = self.program.uops, load.dram_base - self.program.uop_address // 4
        if begin < 0 or begin + load.x_size > len(table):
            self.fault("uop-source", at,
                       f"the table has {len(table)} micro-ops; {load.x_size} are loaded from {begin}")
            return
        self.uop[load.sram_base:load.sram_base + load.x_size] = table[begin:begin + load.x_size]

    def _access_dram(self, at: int, transfer: Load | Store) -> None:
        size = self.spec.element(transfer.memory).nbytes
        region = _region_of(self.program, transfer, size)
        if self.program.regions and transfer.memory is not Memory.UOP:
            self._check_region(at, transfer, region, size)
        if isinstance(transfer, Load) and transfer.memory is Memory.UOP:
            if transfer.dram_base * size < self.dram.high and _dram_end(transfer) * size > self.dram.low:
                self._check_uop_overlap(at, transfer, size)
            return
        cells, unit, writes = self.dram.cells(transfer, size), unit_of(transfer), isinstance(transfer, Store)
        if self.dram.table.unordered(cells, unit, self.order.done[at], writes):
            self.fault("race", at, f"{'writes' if writes else 'reads'} DRAM")
        if not writes and region is not None and region.role in WRITABLE:
            expected = transfer.y_size * transfer.x_size * size // self.dram.cell
            if len(cells) < expected or self.dram.table.unwritten(cells):
                self.fault("unwritten", at, f"{region.name} is loaded before it is stored")
        self.dram.table.record(cells, unit, int(self.order.positions[at]), writes)

    def _check_uop_overlap(self, at: int, load: Load, size: int) -> None:
        if len(self.dram.cells(load, max(size, self.dram.cell))):
            self.fault("region", at, "the micro-op table overlaps stored results")

    def _check_region(self, at: int, transfer: Load | Store, region: DramRegion | None, size: int) -> None:
        if region is None:
            self.fault("region", at, f"rows at {transfer.dram_base * size:#x} leave their buffer")
            return
        if region.address % size:
            self.fault("alignment", at, f"{region.name} is not aligned to elements of {size} bytes")
        if isinstance(transfer, Store) and region.role not in WRITABLE:
            self.fault("region", at, f"{region.name} is read-only")

    def _loop(self, at: int, instruction: Gemm | Alu) -> None:
        depth = len(self.uop)
        if instruction.uop_end > depth or instruction.uop_end < instruction.uop_bgn:
            self.fault("index", at, f"micro-ops {instruction.uop_bgn} to {instruction.uop_end} of {depth}")
            return
        self._access(at, Memory.UOP, slice(instruction.uop_bgn, instruction.uop_end), writes=False)
        words = self.uop[instruction.uop_bgn:instruction.uop_end].tobytes()
        loop = index_key(instruction)
        broken = loop_faults(self.spec, loop, words)
        for rule, text in broken:
            self.fault(rule, at, text)
        if any(rule == "index" for rule, _ in broken):
            return
        (_, dst), *read = _accessed_elements(self.spec, loop, words)
        keeps = not (isinstance(instruction, Gemm) and instruction.reset)
        for memory, cells in read:
            self._access(at, memory, cells, writes=False)
        if keeps and self.chip[Memory.ACC].unwritten(dst):
            self.fault("unwritten", at, "ACC is accumulated to before it is written")
        self._access(at, Memory.ACC, dst, writes=True)
        self.computed[dst] = keeps


@lru_cache(maxsize=256)
def _accessed_elements(spec: AccelSpec, loop: Gemm | Alu, words: bytes) -> tuple[tuple[Memory, Indices], ...]:
    """Return the distinct accessed elements by memory; the destinations come first."""
    return tuple((memory, np.unique(indices))
                 for memory, indices in operands(loop, cached_steps(spec, loop, words)))


def _region_of(program: AccelProgram, transfer: Load | Store, size: int) -> DramRegion | None:
    """Return the region that contains all bytes of `transfer`."""
    begin, end = transfer.dram_base * size, _dram_end(transfer) * size
    for region in program.regions:
        if region.address <= begin and end <= region.end:
            return region
    return None


def _finish_faults(program: AccelProgram, order: HappensBefore) -> list[Fault]:
    """Check that FINISH is last, pops no token, and runs after all other units are done."""
    finishes = [at for at, i in enumerate(program.instructions) if isinstance(i, Finish)]
    last = len(program.instructions) - 1
    if finishes != [last]:
        return [Fault("finish", finishes[0] if finishes else -1,
                      "there is one FINISH, at the end of the stream")]
    finish = program.instructions[last]
    faults = [Fault("finish", last, "pops a token")] if pops(finish) else []
    for unit in (Unit.LOAD, Unit.STORE):
        of_unit = [at for at, i in enumerate(program.instructions) if unit_of(i) is unit]
        if of_unit and not order.deadlocks and not order.before(of_unit[-1], unit, last):
            faults.append(Fault("finish", last, f"may come before {unit.name} is done"))
    return faults


def _token_faults(order: HappensBefore) -> list[Fault]:
    """Check for deadlocks, leftover tokens and token queue overflow."""
    faults = [Fault("deadlock", at, text) for at, text in order.deadlocks]
    for queue in Queue:
        peak, at = order.peaks[queue]
        if peak > MAX_TOKENS:
            faults.append(Fault("token-depth", at, f"{peak} tokens in {queue.name}"))
        if order.leftover[queue]:
            faults.append(Fault("token-leak", -1, f"{order.leftover[queue]} tokens are left in {queue.name}"))
    return faults


def _size_faults(program: AccelProgram) -> list[Fault]:
    """Check the sizes of stream and micro-op table, and the table's address."""
    faults = []
    for name, nbytes in (("stream", len(program.instructions) * INSTRUCTION_BYTES),
                         ("micro-ops", program.uops.nbytes)):
        if nbytes > MAX_TRANSFER_BYTES:
            faults.append(Fault("transfer-size", -1, f"{name}: {nbytes} of {MAX_TRANSFER_BYTES} bytes"))
    if program.uop_address % 4:
        faults.append(Fault("alignment", -1, "micro-ops are not aligned to 4 bytes"))
    if len(program.uops) and program.uop_address == 0:
        faults.append(Fault("address-zero", -1, "the micro-op table is at address zero"))
    return faults


def _encoding_faults(spec: AccelSpec, instructions: tuple[Instruction, ...]) -> list[Fault]:
    return [Fault(rule, at, text) for at, instruction in enumerate(instructions)
            for rule, text in instruction_faults(spec, instruction)]


def verify(program: AccelProgram) -> tuple[Fault, ...]:
    """Return the rules that `program` violates, in stream order."""
    order = order_of(program.instructions)
    alone = _encoding_faults(program.spec, program.instructions)
    check = _HazardChecker(program, order)
    check.walk({fault.at for fault in alone})
    faults = [*_size_faults(program), *_token_faults(order), *_finish_faults(program, order), *alone,
              *check.faults]
    return tuple(sorted(faults, key=lambda fault: fault.at))
