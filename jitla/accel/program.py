"""Programs for the device: the container, the stream builder that inserts tokens, and the disassembler."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jitla.accel.isa import (
    Alu,
    Finish,
    Gemm,
    Instruction,
    Load,
    Queue,
    Store,
    Unit,
    Uop,
    UopWords,
    Words,
    decode,
    decode_uops,
    encode,
    encode_uops,
    from_immediate,
    noop,
    pops,
    pushes,
    unconnected_flags,
    unit_of,
)
from jitla.accel.spec import PAGE, AccelSpec, Memory
from jitla.classes import cached_property, dataclass
from jitla.errors import DeviceError

Image = NDArray[np.uint8]  # the DRAM of a program by byte address; the first page is unused


@dataclass(frozen=True)
class DramRegion:
    """A named array in DRAM: `role` is "input", "constant", "output" or "scratch"."""

    name: str
    address: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    role: str

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return prod(self.shape) * self.dtype.itemsize

    @property
    def end(self) -> int:
        """The address past the last byte."""
        return self.address + self.nbytes


class DramAllocator:
    """A bump allocator of page-aligned DRAM regions."""

    def __init__(self) -> None:
        self.regions: list[DramRegion] = []
        self.end = PAGE

    def add(self, name: str, shape: tuple[int, ...], dtype: Any, role: str) -> DramRegion:
        """Allocate the next region."""
        region = DramRegion(name, self.end, shape, np.dtype(dtype), role)
        self.end += -(-max(region.nbytes, 1) // PAGE) * PAGE
        self.regions.append(region)
        return region


@dataclass(frozen=True, eq=False)
class AccelProgram:
    """A program: instruction stream, micro-op table (at `uop_address` in DRAM) and regions."""

    spec: AccelSpec
    instructions: tuple[Instruction, ...]
    uops: UopWords = field(default_factory=lambda: np.zeros(0, np.uint32))
    uop_address: int = PAGE
    regions: tuple[DramRegion, ...] = ()

    @property
    def dram_bytes(self) -> int:
        """Bytes of DRAM up to the end of the last region."""
        return max([self.uop_address + self.uops.nbytes, *(region.end for region in self.regions)])

    @cached_property
    def words(self) -> Words:
        """The encoded instruction stream."""
        return encode(self.spec, self.instructions)

    def region(self, name: str) -> DramRegion:
        """Return the region called `name`."""
        for region in self.regions:
            if region.name == name:
                return region
        raise DeviceError(f"unknown region {name!r}; the regions are {[r.name for r in self.regions]}")

    def image(self, arrays: Mapping[str, ArrayLike] | None = None) -> Image:
        """Return a DRAM image with the micro-ops and `arrays` by region name; zeros elsewhere."""
        image = np.zeros(self.dram_bytes, np.uint8)
        image[self.uop_address:self.uop_address + self.uops.nbytes] = self.uops.view(np.uint8)
        for name, array in (arrays or {}).items():
            self.view(image, name)[...] = array
        return image

    def view(self, image: Image, name: str) -> NDArray[Any]:
        """Return the region called `name` in `image`, as an array."""
        region = self.region(name)
        return image[region.address:region.end].view(region.dtype).reshape(region.shape)


def from_words(spec: AccelSpec, words: Words, uops: UopWords, uop_address: int = PAGE,
               regions: Iterable[DramRegion] = ()) -> AccelProgram:
    """Return the program of an encoded stream."""
    return AccelProgram(spec, decode(spec, words), np.asarray(uops, np.uint32), uop_address, tuple(regions))


TOKEN_COLUMN = 88  # the text column of tokens
_OTHER_END = {  # of a queue, seen from the unit that pops, and from the one that pushes
    Queue.LOAD_TO_COMPUTE: ("load", "compute"), Queue.COMPUTE_TO_LOAD: ("compute", "load"),
    Queue.COMPUTE_TO_STORE: ("compute", "store"), Queue.STORE_TO_COMPUTE: ("store", "compute"),
}


def disassemble(program: AccelProgram) -> str:
    """Return micro-ops and instructions of `program` as text."""
    spec = program.spec
    head = [f"; {spec.name} {spec.tag}: {len(program.instructions)} instructions, "
            f"{len(program.uops)} micro-ops at {program.uop_address:#x}"]
    regions = [f"; {r.role} {r.name}: {r.dtype}{list(r.shape)} at {r.address:#x}" for r in program.regions]
    uops = [f"uop {number}: acc[{u.dst}] src[{u.src}] wgt[{u.wgt}]"
            for number, u in enumerate(decode_uops(spec, program.uops))]
    lines = [f"{number:5} {show(spec, i)}" for number, i in enumerate(program.instructions)]
    return "\n".join([*head, *regions, *uops, *lines]) + "\n"


def show(spec: AccelSpec, instruction: Instruction) -> str:
    """Return one instruction as text: its unit, operation and tokens."""
    line = f"{unit_of(instruction).name.lower():7} {_body(spec, instruction)}"
    tokens = " ".join(_tokens(instruction))
    return f"{line:{TOKEN_COLUMN}}{' ' if tokens else ''}{tokens}".rstrip()


def _tokens(instruction: Instruction) -> Iterator[str]:
    for queue in pops(instruction):
        yield f"pop {_OTHER_END[queue][0]}"
    for queue in pushes(instruction):
        yield f"push {_OTHER_END[queue][1]}"
    for name in unconnected_flags(instruction):
        yield f"{name} of no queue"


def _body(spec: AccelSpec, instruction: Instruction) -> str:
    match instruction:
        case Load() | Store() if instruction.is_noop:
            return f"nop {instruction.memory.name.lower()}"
        case Load():
            return (f"load {_chip(instruction)} <- {_dram(spec, instruction)}{_rows(instruction)}"
                    f"{_pads(instruction)}")
        case Store():
            return f"store {_chip(instruction)} -> {_dram(spec, instruction)}{_rows(instruction)}"
        case Gemm():
            factors = _factors(instruction)
            return f"gemm{' reset' if instruction.reset else ''} {_loops(instruction)}, {factors}"
        case Alu():
            second = f" {from_immediate(spec, instruction.imm)}" if instruction.use_imm else " acc"
            return f"{instruction.op.name.lower()}{second}, {_loops(instruction)}, {_factors(instruction)}"
        case Finish():
            return "finish"


def _chip(transfer: Load | Store) -> str:
    memory = Memory.ACC if transfer.memory is Memory.ACC8 else transfer.memory
    return f"{memory.name.lower()}[{transfer.sram_base}:{transfer.sram_base + transfer.count}]"


def _dram(spec: AccelSpec, transfer: Load | Store) -> str:
    size = spec.element(transfer.memory).nbytes
    bytes_of = "bytes " if transfer.memory is Memory.ACC8 else ""
    return f"{bytes_of}{transfer.dram_base * size:#x}"


def _rows(transfer: Load | Store) -> str:
    if transfer.y_size == 1 or transfer.x_stride == transfer.x_size:
        return "" if transfer.y_size == 1 else f", {transfer.y_size} rows of {transfer.x_size}"
    return f", {transfer.y_size} rows of {transfer.x_size} every {transfer.x_stride}"


def _pads(load: Load) -> str:
    pads = {"top": load.y_pad_0, "bottom": load.y_pad_1, "left": load.x_pad_0, "right": load.x_pad_1}
    named = [f"{name} {count}" for name, count in pads.items() if count]
    return f", zeros {' '.join(named)}" if named else ""


def _loops(loop: Gemm | Alu) -> str:
    return f"uop[{loop.uop_bgn}:{loop.uop_end}] x {loop.iter_out} x {loop.iter_in}"


def _factors(loop: Gemm | Alu) -> str:
    """Return the strides of operands in the outer and inner loop as text."""
    parts = [f"acc +{loop.dst_factor_out} +{loop.dst_factor_in}"]
    if isinstance(loop, Gemm) and not loop.reset:
        parts += [f"inp +{loop.src_factor_out} +{loop.src_factor_in}",
                  f"wgt +{loop.wgt_factor_out} +{loop.wgt_factor_in}"]
    elif isinstance(loop, Alu) and not loop.use_imm:
        parts.append(f"src +{loop.src_factor_out} +{loop.src_factor_in}")
    return ", ".join(parts)


MAX_RESIDENT_UOPS = 2048  # micro-ops that fit into the memory of all implementations
DRAM = "dram"
MemoryPart = Hashable  # a part of a memory, the unit of dependences; it starts with its memory


def memory_of(part: MemoryPart) -> Hashable:
    """Return the memory of a part."""
    return part[0] if isinstance(part, tuple) else part


@dataclass(slots=True)
class _Entry:
    """An instruction with its dependences: per unit, the last entry to wait for."""

    instruction: Instruction
    unit: Unit
    after: dict[Unit, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UopStatistics:
    """Statistics of the micro-op cache: requests of sets, hits, misses, and the size of the table."""

    requests: int
    hits: int
    misses: int
    uops: int


class Stream:
    """A builder of an instruction stream that tracks dependences and caches micro-ops.

    The micro-op table is placed after the arrays of `layout` in DRAM.
    """

    def __init__(self, spec: AccelSpec, layout: DramAllocator) -> None:
        self.spec = spec
        self.layout = layout
        self._entries: list[_Entry] = []
        # Per memory and unit: the last user, and the users that first uses after a fence wait for.
        self._last: dict[Hashable, dict[Unit, int]] = {}
        self._floor: dict[Hashable, dict[Unit, int]] = {}
        self._written: dict[MemoryPart, int] = {}
        self._read: dict[MemoryPart, dict[Unit, int]] = {}
        self.stored: dict[str, list[tuple[Any, int]]] = {}  # by array: stored parts and their stores
        self._table: list[Uop] = []
        self._uop_offsets: dict[tuple[Uop, ...], int] = {}  # offsets in the table
        # resident sets by table offset: begin and end in UOP memory
        self._resident: dict[int, tuple[int, int]] = {}
        self._free = 0
        self._capacity = min(MAX_RESIDENT_UOPS, spec.element(Memory.UOP).depth)
        self._fits = True  # whether all micro-ops fit at the same time
        self._requests = self._hits = 0

    # ------------------------------------------------------------------ statements

    def put(self, instruction: Instruction, reads: Sequence[MemoryPart] = (),
            writes: Sequence[MemoryPart] = (),
            after: Sequence[int] = ()) -> int:
        """Append an instruction that also depends on the entries `after`; return its number."""
        entry = _Entry(instruction, unit_of(instruction))
        for other in after:
            self._wait(entry, other)
        for part in (*reads, *writes):
            if part not in self._written and part not in self._read:
                for other in self._floor.get(memory_of(part), {}).values():
                    self._wait(entry, other)
            self._wait(entry, self._written.get(part, -1))
        for part in writes:
            for other in self._read.get(part, {}).values():
                self._wait(entry, other)
        number = len(self._entries)
        self._entries.append(entry)
        for part in (*reads, *writes):
            self._last.setdefault(memory_of(part), {})[entry.unit] = number
        for part in reads:
            self._read.setdefault(part, {})[entry.unit] = number
        for part in writes:
            self._written[part] = number
            self._read[part] = {}
        return number

    def fence(self) -> None:
        """Start a new partition of the on-chip memories.

        First uses of parts wait for all earlier uses of the memory; DRAM arrays are unaffected.
        """
        self._floor = {memory: dict(last) for memory, last in self._last.items() if memory != DRAM}
        self._written = {p: at for p, at in self._written.items() if memory_of(p) == DRAM}
        self._read = {p: by for p, by in self._read.items() if memory_of(p) == DRAM}

    def _wait(self, entry: _Entry, other: int) -> None:
        if other >= 0:
            unit = self._entries[other].unit
            if unit is not entry.unit:
                entry.after[unit] = max(entry.after.get(unit, -1), other)

    def run(self, uops: Sequence[Uop], loop: Gemm | Alu, reads: Sequence[MemoryPart] = (),
            writes: Sequence[MemoryPart] = ()) -> int:
        """Append a loop over `uops`, after a load of these on a cache miss."""
        begin = self._load_uops(tuple(uops))
        loop = replace(loop, uop_bgn=begin, uop_end=begin + len(uops))
        return self.put(loop, reads, writes)

    def _load_uops(self, uops: tuple[Uop, ...]) -> int:
        self._requests += 1
        offset = self._uop_offsets.get(uops)
        if offset is None:
            offset = self._uop_offsets[uops] = len(self._table)
            self._table += uops
        resident = self._resident.get(offset)
        if resident is not None:
            self._hits += 1
            return resident[0]
        if self._free + len(uops) > self._capacity:
            self._free, self._fits = 0, False
        begin, self._free = self._free, self._free + len(uops)
        self._resident = {k: (a, b) for k, (a, b) in self._resident.items()
                          if b <= begin or a >= self._free}
        self._resident[offset] = begin, self._free
        self.put(self._uop_load(begin, offset, len(uops)))
        return begin

    def _uop_load(self, begin: int, offset: int, count: int) -> Load:
        base = self.layout.end // self.spec.element(Memory.UOP).nbytes
        return Load(memory=Memory.UOP, sram_base=begin, dram_base=base + offset, y_size=1, x_size=count,
                    x_stride=count)

    # ------------------------------------------------------------------ the end

    def finish(self) -> AccelProgram:
        """Return the program with tokens; all stores are done before its end.

        If all micro-ops fit they are loaded once at the beginning.
        """
        planner = _TokenPlanner()
        preloaded = self._fits and bool(self._table)
        if preloaded:
            planner.begin(self._uop_load(0, 0, len(self._table)))
        for entry in self._entries:
            planner.take(entry, preloaded)
        instructions = planner.done()
        return AccelProgram(self.spec, tuple(instructions), encode_uops(self.spec, self._table),
                            self.layout.end,
                            tuple(self.layout.regions))

    @property
    def uop_statistics(self) -> UopStatistics:
        """The statistics of the micro-op cache."""
        return UopStatistics(self._requests, self._hits, self._requests - self._hits, len(self._table))


# The token flags by (producer, consumer).
_PUSH = {(Unit.LOAD, Unit.COMPUTE): "push_next", (Unit.COMPUTE, Unit.LOAD): "push_prev",
         (Unit.COMPUTE, Unit.STORE): "push_next", (Unit.STORE, Unit.COMPUTE): "push_prev"}
_POP = {(Unit.LOAD, Unit.COMPUTE): "pop_prev", (Unit.COMPUTE, Unit.LOAD): "pop_next",
        (Unit.COMPUTE, Unit.STORE): "pop_prev", (Unit.STORE, Unit.COMPUTE): "pop_next"}


class _TokenPlanner:
    """Inserts tokens for dependences, entry by entry in program order."""

    def __init__(self) -> None:
        self.stream: list[Instruction] = []
        self.flags: list[set[str]] = []
        self.positions: list[int] = []  # positions of entries in the stream
        # By (producer, consumer): the last synchronised entry.
        self.synchronised: dict[tuple[Unit, Unit], int] = {}
        # Per unit: the entries that the compute unit has waited for, and its positions after that.
        self.relays: dict[Unit, list[tuple[int, int]]] = {Unit.LOAD: [], Unit.STORE: []}
        self.last_store = -1

    def begin(self, instruction: Instruction) -> None:
        """Append an instruction without dependences."""
        self._append(instruction, set())

    def take(self, entry: _Entry, loaded: bool) -> None:
        """Append an entry after the relays that it needs; micro-op loads are dropped if all are `loaded`."""
        if loaded and isinstance(entry.instruction, Load) and entry.instruction.memory is Memory.UOP:
            self.positions.append(-1)
            return
        producers: dict[Unit, int] = {}
        for unit, other in entry.after.items():
            position = self.positions[other]
            if {unit, entry.unit} == {Unit.LOAD, Unit.STORE}:
                unit, position = Unit.COMPUTE, self._relay(unit, position)
            producers[unit] = max(producers.get(unit, -1), position)
        pops = set[str]().union(*(self._wait(unit, entry.unit, last) for unit, last in producers.items()))
        self.positions.append(self._append(entry.instruction, pops))
        if entry.unit is Unit.STORE:
            self.last_store = self.positions[-1]

    def _wait(self, producer: Unit, consumer: Unit, position: int) -> set[str]:
        if position <= self.synchronised.get((producer, consumer), -1):
            return set()
        self.synchronised[producer, consumer] = position
        self.flags[position].add(_PUSH[producer, consumer])
        if consumer is Unit.COMPUTE:
            self.relays[producer].append((position, len(self.stream)))
        return {_POP[producer, consumer]}

    def _relay(self, producer: Unit, position: int) -> int:
        """Return an instruction of the compute unit after `position`: load and store share no queue."""
        for other, position_after in self.relays[producer]:
            if other >= position:
                return position_after
        return self._append(noop(Unit.COMPUTE), self._wait(producer, Unit.COMPUTE, position))

    def _append(self, instruction: Instruction, flags: set[str]) -> int:
        self.stream.append(instruction)
        self.flags.append(set(flags))
        return len(self.stream) - 1

    def done(self) -> list[Instruction]:
        """Return all instructions with their token flags, ended by a FINISH after the last store."""
        if self.last_store >= 0:
            pops = self._wait(Unit.STORE, Unit.COMPUTE, self.last_store)
            if pops:
                self._append(noop(Unit.COMPUTE), pops)
        self._append(Finish(), set())
        return [_with_flags(i, f) if f else i for i, f in zip(self.stream, self.flags, strict=True)]


def _with_flags(instruction: Instruction, flags: set[str]) -> Instruction:
    flag_values: dict[str, Any] = dict.fromkeys(flags, True)
    return replace(instruction, **flag_values)
