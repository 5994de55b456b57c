"""A stream in the making: statements in order, what they touch, and the tokens that follow from that.

Knows: which unit runs what, queues, the memory of micro-ops. Must not know: tiles, layers.
Receives instructions without tokens and the places they read and write; returns a `Program`.

A token is put where a statement needs what another unit does before it, and nothing nearer says so
already: the last such statement of the other unit pushes, the one that waits pops. Pushes and pops
of a queue are then in the same order. The first uses of a buffer wait for nobody, so credits for empty
buffers need no instructions; every push has its pop, so all queues end empty.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import field, replace
from typing import Any

from jitla.accel.encoding import encode_uops
from jitla.accel.isa import Alu, Finish, Gemm, Instruction, Load, Unit, Uop, noop, unit_of
from jitla.accel.program import Layout, Program
from jitla.accel.spec import Memory, Spec
from jitla.classes import dataclass

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
