"""Whether a program keeps all rules, at whatever pace its units run.

Knows: what each instruction touches, and which accesses tokens order. Must not know: values, cycles.
Receives a program; returns the rules it breaks, none for one that every implementation runs alike.
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd

import numpy as np
from numpy.typing import NDArray

from jitla.accel.encoding import INSTRUCTION_BYTES
from jitla.accel.isa import Alu, Finish, Gemm, Instruction, Load, Queue, Store, Unit, pops, unit_of
from jitla.accel.order import Order, order_of
from jitla.accel.program import Program, Region
from jitla.accel.rules import Fault, by_itself, by_steps
from jitla.accel.spec import TRANSFER, Memory, Spec
from jitla.accel.steps import Indices, bare, known_steps, operands

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
