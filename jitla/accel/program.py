"""Programs for the device: stream builder, container and disassembly."""

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
    dangling,
    decode,
    decode_uops,
    encode,
    encode_uops,
    from_immediate,
    noop,
    pops,
    pushes,
    unit_of,
)
from jitla.accel.spec import PAGE, Memory, Spec
from jitla.classes import cached_property, dataclass
from jitla.errors import DeviceError

Image = NDArray[np.uint8]  # all of DRAM that a program uses, by byte address; the first page is never used


@dataclass(frozen=True)
class Region:
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
        """The address behind the last byte."""
        return self.address + self.nbytes


class Layout:
    """Regions one behind the other, each from a page of its own."""

    def __init__(self) -> None:
        self.regions: list[Region] = []
        self.end = PAGE

    def add(self, name: str, shape: tuple[int, ...], dtype: Any, role: str) -> Region:
        """Return the next region."""
        region = Region(name, self.end, shape, np.dtype(dtype), role)
        self.end += -(-max(region.nbytes, 1) // PAGE) * PAGE
        self.regions.append(region)
        return region


@dataclass(frozen=True, eq=False)
class Program:
    """A stream with what it reads: the table of micro-ops lies at `uop_address` in DRAM."""

    spec: Spec
    instructions: tuple[Instruction, ...]
    uops: UopWords = field(default_factory=lambda: np.zeros(0, np.uint32))
    uop_address: int = PAGE
    regions: tuple[Region, ...] = ()

    @property
    def dram_bytes(self) -> int:
        """Bytes of DRAM, up to the last that has a name."""
        return max([self.uop_address + self.uops.nbytes, *(region.end for region in self.regions)])

    @cached_property
    def words(self) -> Words:
        """The stream as the device reads it."""
        return encode(self.spec, self.instructions)

    def region(self, name: str) -> Region:
        """Return the region called `name`."""
        for region in self.regions:
            if region.name == name:
                return region
        raise DeviceError(f"no region is called {name!r}: there are {[r.name for r in self.regions]}")

    def image(self, arrays: Mapping[str, ArrayLike] | None = None) -> Image:
        """Return DRAM with the micro-ops and `arrays`, by name of their region, in it; zeros elsewhere."""
        image = np.zeros(self.dram_bytes, np.uint8)
        image[self.uop_address:self.uop_address + self.uops.nbytes] = self.uops.view(np.uint8)
        for name, array in (arrays or {}).items():
            self.view(image, name)[...] = array
        return image

    def view(self, image: Image, name: str) -> NDArray[Any]:
        """Return the region called `name` in `image`, as an array."""
        region = self.region(name)
        return image[region.address:region.end].view(region.dtype).reshape(region.shape)


def from_words(spec: Spec, words: Words, uops: UopWords, uop_address: int = PAGE,
               regions: Iterable[Region] = ()) -> Program:
    """Return the program whose stream is `words`."""
    return Program(spec, decode(spec, words), np.asarray(uops, np.uint32), uop_address, tuple(regions))


PLACE = 88  # the column where tokens begin
_OTHER_END = {  # of a queue, seen from the unit that pops, and from the one that pushes
    Queue.LOAD_TO_COMPUTE: ("load", "compute"), Queue.COMPUTE_TO_LOAD: ("compute", "load"),
    Queue.COMPUTE_TO_STORE: ("compute", "store"), Queue.STORE_TO_COMPUTE: ("store", "compute"),
}


def disassemble(program: Program) -> str:
    """Return the micro-ops and the stream of `program` as text."""
    spec = program.spec
    head = [f"; {spec.name} {spec.tag}: {len(program.instructions)} instructions, "
            f"{len(program.uops)} micro-ops at {program.uop_address:#x}"]
    regions = [f"; {r.role} {r.name}: {r.dtype}{list(r.shape)} at {r.address:#x}" for r in program.regions]
    uops = [f"uop {at}: acc[{u.dst}] src[{u.src}] wgt[{u.wgt}]"
            for at, u in enumerate(decode_uops(spec, program.uops))]
    lines = [f"{at:5} {show(spec, i)}" for at, i in enumerate(program.instructions)]
    return "\n".join([*head, *regions, *uops, *lines]) + "\n"


def show(spec: Spec, instruction: Instruction) -> str:
    """Return one instruction as text: its unit, what it does, its tokens."""
    line = f"{unit_of(instruction).name.lower():7} {_body(spec, instruction)}"
    tokens = " ".join(_tokens(instruction))
    return f"{line:{PLACE}}{' ' if tokens else ''}{tokens}".rstrip()


def _tokens(instruction: Instruction) -> Iterator[str]:
    for queue in pops(instruction):
        yield f"pop {_OTHER_END[queue][0]}"
    for queue in pushes(instruction):
        yield f"push {_OTHER_END[queue][1]}"
    for name in dangling(instruction):
        yield f"{name} of no queue"


def _body(spec: Spec, instruction: Instruction) -> str:
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


def _dram(spec: Spec, transfer: Load | Store) -> str:
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
    """How far each operand advances in the outer and in the inner loop."""
    parts = [f"acc +{loop.dst_factor_out} +{loop.dst_factor_in}"]
    if isinstance(loop, Gemm) and not loop.reset:
        parts += [f"inp +{loop.src_factor_out} +{loop.src_factor_in}",
                  f"wgt +{loop.wgt_factor_out} +{loop.wgt_factor_in}"]
    elif isinstance(loop, Alu) and not loop.use_imm:
        parts.append(f"src +{loop.src_factor_out} +{loop.src_factor_in}")
    return ", ".join(parts)


RESIDENT = 2048  # micro-ops that every implementation has room for
DRAM = "dram"
Place = Hashable  # a part of a memory, which it begins with; that is read and written as a whole


def memory_of(place: Place) -> Hashable:
    """Return the memory that a place is in."""
    return place[0] if isinstance(place, tuple) else place


@dataclass(slots=True)
class _Entry:
    """An instruction and what it has to wait for: the number of an entry per unit, -1 for nothing."""

    instruction: Instruction
    unit: Unit
    after: dict[Unit, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Kernels:
    """How the memory of micro-ops was used: sets of them asked for, found there, loaded, and their sizes."""

    asked: int
    found: int
    loaded: int
    uops: int


class Stream:
    """Statements of one program; the table of micro-ops comes behind the arrays that `layout` has in DRAM."""

    def __init__(self, spec: Spec, layout: Layout) -> None:
        self.spec = spec
        self.layout = layout
        self._entries: list[_Entry] = []
        # Of each memory and unit, the last that used it, and what first uses of places wait for.
        self._last: dict[Hashable, dict[Unit, int]] = {}
        self._floor: dict[Hashable, dict[Unit, int]] = {}
        self._written: dict[Place, int] = {}
        self._read: dict[Place, dict[Unit, int]] = {}
        self.stored: dict[str, list[tuple[Any, int]]] = {}  # of arrays, which parts were stored by what
        self._table: list[Uop] = []
        self._known: dict[tuple[Uop, ...], int] = {}  # where in the table
        self._resident: dict[int, tuple[int, int]] = {}  # of sets, by place in the table: from, to
        self._free = 0
        self._room = min(RESIDENT, spec.element(Memory.UOP).depth)
        self._fits = True  # whether all micro-ops have been on the chip at the same time
        self._asked = self._found = 0

    # ------------------------------------------------------------------ statements

    def put(self, instruction: Instruction, reads: Sequence[Place] = (), writes: Sequence[Place] = (),
            after: Sequence[int] = ()) -> int:
        """Append an instruction, which waits for those numbered `after`, too; return its number."""
        entry = _Entry(instruction, unit_of(instruction))
        for other in after:
            self._wait(entry, other)
        for place in (*reads, *writes):
            if place not in self._written and place not in self._read:
                for other in self._floor.get(memory_of(place), {}).values():
                    self._wait(entry, other)
            self._wait(entry, self._written.get(place, -1))
        for place in writes:
            for other in self._read.get(place, {}).values():
                self._wait(entry, other)
        at = len(self._entries)
        self._entries.append(entry)
        for place in (*reads, *writes):
            self._last.setdefault(memory_of(place), {})[entry.unit] = at
        for place in reads:
            self._read.setdefault(place, {})[entry.unit] = at
        for place in writes:
            self._written[place] = at
            self._read[place] = {}
        return at

    def fence(self) -> None:
        """From here on memories on the chip are parted in another way.

        What uses a place first waits for all that used its memory before; arrays in DRAM stay what they are.
        """
        self._floor = {memory: dict(last) for memory, last in self._last.items() if memory != DRAM}
        self._written = {p: at for p, at in self._written.items() if memory_of(p) == DRAM}
        self._read = {p: by for p, by in self._read.items() if memory_of(p) == DRAM}

    def _wait(self, entry: _Entry, other: int) -> None:
        if other >= 0:
            unit = self._entries[other].unit
            if unit is not entry.unit:
                entry.after[unit] = max(entry.after.get(unit, -1), other)

    def run(self, uops: Sequence[Uop], loop: Gemm | Alu, reads: Sequence[Place] = (),
            writes: Sequence[Place] = ()) -> int:
        """Append a loop over `uops`, behind a load of these where they are not in their memory."""
        begin = self._bring(tuple(uops))
        loop = replace(loop, uop_bgn=begin, uop_end=begin + len(uops))
        return self.put(loop, reads, writes)

    def _bring(self, uops: tuple[Uop, ...]) -> int:
        self._asked += 1
        at = self._known.get(uops)
        if at is None:
            at = self._known[uops] = len(self._table)
            self._table += uops
        found = self._resident.get(at)
        if found is not None:
            self._found += 1
            return found[0]
        if self._free + len(uops) > self._room:
            self._free, self._fits = 0, False
        begin, self._free = self._free, self._free + len(uops)
        self._resident = {k: (a, b) for k, (a, b) in self._resident.items()
                          if b <= begin or a >= self._free}
        self._resident[at] = begin, self._free
        self.put(self._uop_load(begin, at, len(uops)))
        return begin

    def _uop_load(self, begin: int, at: int, count: int) -> Load:
        base = self.layout.end // self.spec.element(Memory.UOP).nbytes
        return Load(memory=Memory.UOP, sram_base=begin, dram_base=base + at, y_size=1, x_size=count,
                    x_stride=count)

    # ------------------------------------------------------------------ the end

    def finish(self) -> Program:
        """Return the program: tokens planned, everything stored before its end.

        Micro-ops that all have room are loaded once, at the beginning, where others wait for data.
        """
        planner = _Planner()
        together = self._fits and bool(self._table)
        if together:
            planner.begin(self._uop_load(0, 0, len(self._table)))
        for entry in self._entries:
            planner.take(entry, together)
        made = planner.done()
        return Program(self.spec, tuple(made), encode_uops(self.spec, self._table), self.layout.end,
                       tuple(self.layout.regions))

    @property
    def kernels(self) -> Kernels:
        """How often micro-ops had to be loaded."""
        return Kernels(self._asked, self._found, self._asked - self._found, len(self._table))


# The flags by which a unit gives to another and takes from it.
_PUSH = {(Unit.LOAD, Unit.COMPUTE): "push_next", (Unit.COMPUTE, Unit.LOAD): "push_prev",
         (Unit.COMPUTE, Unit.STORE): "push_next", (Unit.STORE, Unit.COMPUTE): "push_prev"}
_POP = {(Unit.LOAD, Unit.COMPUTE): "pop_prev", (Unit.COMPUTE, Unit.LOAD): "pop_next",
        (Unit.COMPUTE, Unit.STORE): "pop_prev", (Unit.STORE, Unit.COMPUTE): "pop_next"}


class _Planner:
    """Tokens, entry by entry in program order."""

    def __init__(self) -> None:
        self.made: list[Instruction] = []
        self.flags: list[set[str]] = []
        self.place: list[int] = []  # of entries among what is made
        self.seen: dict[tuple[Unit, Unit], int] = {}  # the last of one unit that another has waited for
        # Of each unit, what the compute unit has waited for, and where it did.
        self.relays: dict[Unit, list[tuple[int, int]]] = {Unit.LOAD: [], Unit.STORE: []}
        self.last_store = -1

    def begin(self, instruction: Instruction) -> None:
        """Append an instruction that nobody waits for."""
        self._append(instruction, set())

    def take(self, entry: _Entry, loaded: bool) -> None:
        """Append an entry behind what relays it needs; no loads of micro-ops if these are `loaded`."""
        if loaded and isinstance(entry.instruction, Load) and entry.instruction.memory is Memory.UOP:
            self.place.append(-1)
            return
        givers: dict[Unit, int] = {}
        for unit, other in entry.after.items():
            at = self.place[other]
            if {unit, entry.unit} == {Unit.LOAD, Unit.STORE}:
                unit, at = Unit.COMPUTE, self._relay(unit, at)
            givers[unit] = max(givers.get(unit, -1), at)
        pops = set[str]().union(*(self._wait(unit, entry.unit, at) for unit, at in givers.items()))
        self.place.append(self._append(entry.instruction, pops))
        if entry.unit is Unit.STORE:
            self.last_store = self.place[-1]

    def _wait(self, giver: Unit, taker: Unit, at: int) -> set[str]:
        if at <= self.seen.get((giver, taker), -1):
            return set()
        self.seen[giver, taker] = at
        self.flags[at].add(_PUSH[giver, taker])
        if taker is Unit.COMPUTE:
            self.relays[giver].append((at, len(self.made)))
        return {_POP[giver, taker]}

    def _relay(self, giver: Unit, at: int) -> int:
        """Return an instruction of the compute unit that comes after one of another unit."""
        for other, waited in self.relays[giver]:
            if other >= at:
                return waited
        return self._append(noop(Unit.COMPUTE), self._wait(giver, Unit.COMPUTE, at))

    def _append(self, instruction: Instruction, flags: set[str]) -> int:
        self.made.append(instruction)
        self.flags.append(set(flags))
        return len(self.made) - 1

    def done(self) -> list[Instruction]:
        """Return all instructions with their tokens, behind the last store an end."""
        if self.last_store >= 0:
            pops = self._wait(Unit.STORE, Unit.COMPUTE, self.last_store)
            if pops:
                self._append(noop(Unit.COMPUTE), pops)
        self._append(Finish(), set())
        return [_flagged(i, f) if f else i for i, f in zip(self.made, self.flags, strict=True)]


def _flagged(instruction: Instruction, flags: set[str]) -> Instruction:
    values: dict[str, Any] = dict.fromkeys(flags, True)
    return replace(instruction, **values)
