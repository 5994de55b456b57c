"""What a program means: DRAM before to DRAM after, without time.

Knows: the memories on the chip, the three units and their tokens. Must not know: cycles.
Receives a program and an image of DRAM; returns the image after it, and what was counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jitla.accel.alu import apply, from_immediate, refusal
from jitla.accel.gemm import Plan, accumulate, factor_dtype, plan_of
from jitla.accel.isa import (
    Alu,
    Finish,
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
from jitla.accel.program import Image, Program
from jitla.accel.spec import Memory, Spec
from jitla.accel.steps import Steps, bare, check_bounds, independent_runs, known_steps
from jitla.classes import dataclass
from jitla.errors import DeviceError

Array = NDArray[Any]


@dataclass
class Counters:
    """What moved and what was computed; padding and resets are not counted."""

    inp_load_bytes: int = 0
    wgt_load_bytes: int = 0
    acc_load_bytes: int = 0
    uop_load_bytes: int = 0
    out_store_bytes: int = 0
    gemm_steps: int = 0
    alu_steps: int = 0


class Outcome(NamedTuple):
    """DRAM after a run, what was counted, and the tokens left in each queue."""

    image: Image
    counters: Counters
    tokens: tuple[int, ...]


class _Walk(NamedTuple):
    """What follows from an instruction and its micro-ops alone."""

    steps: Steps
    plan: Plan | None
    runs: tuple[slice, ...]


@lru_cache(maxsize=128)
def _walk(spec: Spec, loop: Gemm | Alu, words: bytes) -> _Walk:
    """Tiles of one shape have the same loops over the same micro-ops: what follows from them is kept."""
    steps = known_steps(spec, loop, words)
    check_bounds(spec, loop, steps)
    if isinstance(loop, Alu):
        return _Walk(steps, None, independent_runs(steps, not loop.use_imm))
    return _Walk(steps, None if loop.reset else plan_of(steps), ())


def _rows(image: Image, base: int, height: int, width: int, pitch: int) -> Array:
    """A view of `height` rows of `width` bytes that lie `pitch` bytes apart."""
    if height and base + (height - 1) * pitch + width > len(image):
        raise DeviceError(f"DRAM has {len(image)} bytes; more are named from {base}")
    return np.lib.stride_tricks.as_strided(image[base:], (height, width), (pitch, 1))


class Chip:
    """The memories, and what each instruction does to them."""

    def __init__(self, spec: Spec, image: Image) -> None:
        self.spec, self.image, self.counters = spec, image, Counters()
        kept = factor_dtype(spec)
        wgt, inp, acc = (spec.element(m) for m in (Memory.WGT, Memory.INP, Memory.ACC))
        self.uop = np.zeros(spec.element(Memory.UOP).depth, np.uint32)
        self.wgt = np.zeros((wgt.depth, *wgt.shape), kept)  # the inputs' lanes first, so that it is a factor
        self.inp = np.zeros((inp.depth, *inp.shape), kept)
        self.acc = np.zeros((acc.depth, *acc.shape), acc.dtype)

    def execute(self, instruction: Instruction) -> None:
        """Do what `instruction` says; tokens are the caller's."""
        match instruction:
            case Load():
                self._load(instruction)
            case Store():
                self._store(instruction)
            case Gemm():
                self._gemm(instruction)
            case Alu():
                self._alu(instruction)
            case Finish():
                pass

    def _memory(self, memory: Memory) -> Array:
        return {Memory.UOP: self.uop, Memory.WGT: self.wgt, Memory.INP: self.inp}.get(memory, self.acc)

    def _load(self, load: Load) -> None:
        if load.is_noop:
            return
        element = self.spec.element(load.memory)
        target = self._memory(load.memory)
        if load.memory is Memory.OUT or (load.memory is Memory.ACC8 and self.spec.dialect != "extended"):
            raise DeviceError(f"{load.memory.name} is not loaded in the {self.spec.dialect} dialect")
        if load.sram_base + load.count > len(target):
            raise DeviceError(f"{load.memory.name} has {len(target)} elements; "
                              f"{load.sram_base + load.count} are needed")
        size = element.nbytes
        rows = _rows(self.image, load.dram_base * size, load.y_size, load.x_size * size, load.x_stride * size)
        values = np.ascontiguousarray(rows).view(element.dtype)
        values = values.reshape(load.y_size, load.x_size, *element.shape)
        self._count_load(load.memory, rows.size)
        tile = target[load.sram_base:load.sram_base + load.count]
        tile = tile.reshape(load.height, load.width, *tile.shape[1:])
        tile[...] = 0
        inside = tile[load.y_pad_0:load.y_pad_0 + load.y_size, load.x_pad_0:load.x_pad_0 + load.x_size]
        if load.memory is Memory.WGT:
            inside[...] = values.swapaxes(-1, -2)
        else:
            inside[...] = values.reshape(inside.shape)

    def _count_load(self, memory: Memory, nbytes: int) -> None:
        name = {Memory.ACC8: "acc"}.get(memory, memory.name.lower()) + "_load_bytes"
        setattr(self.counters, name, getattr(self.counters, name) + nbytes)

    def _store(self, store: Store) -> None:
        if store.is_noop:
            return
        if store.memory is not Memory.OUT:
            raise DeviceError(f"{store.memory.name} is not stored")
        count = store.y_size * store.x_size
        if store.width != store.x_size or store.height != store.y_size:
            raise DeviceError("a store has no padding")
        if store.sram_base + count > len(self.acc):
            raise DeviceError(f"OUT has {len(self.acc)} elements; {store.sram_base + count} are needed")
        element = self.spec.element(Memory.OUT)
        size = element.nbytes
        rows = _rows(self.image, store.dram_base * size, store.y_size, store.x_size * size,
                     store.x_stride * size)
        low = np.ascontiguousarray(self.acc[store.sram_base:store.sram_base + count].astype(element.dtype))
        values = low.view(np.uint8).reshape(store.y_size, -1)
        if store.x_stride >= store.x_size:
            rows[...] = values
        else:
            for row, value in zip(rows, values, strict=True):  # rows overlap: the later one stays
                row[...] = value
        self.counters.out_store_bytes += rows.size

    def _walk_of(self, instruction: Gemm | Alu) -> _Walk:
        if instruction.uop_end > len(self.uop):
            raise DeviceError(f"UOP has {len(self.uop)} elements, and {instruction.uop_end} are needed")
        words = self.uop[instruction.uop_bgn:instruction.uop_end].tobytes()
        return _walk(self.spec, bare(instruction), words)

    def _gemm(self, gemm: Gemm) -> None:
        walk = self._walk_of(gemm)
        if walk.plan is None:
            self.acc[walk.steps.dst] = 0
            return
        accumulate(self.spec, walk.plan, self.acc, self.inp, self.wgt)
        self.counters.gemm_steps += gemm.steps

    def _alu(self, alu: Alu) -> None:
        refused = refusal(self.spec, alu)
        if refused:
            raise DeviceError(refused)
        walk = self._walk_of(alu)
        for run in walk.runs:
            dst = walk.steps.dst[run]
            second = from_immediate(self.spec, alu.imm) if alu.use_imm else self.acc[walk.steps.src[run]]
            self.acc[dst] = apply(self.spec, alu, self.acc[dst], second)
        self.counters.alu_steps += alu.steps


_Queues = tuple[Queue, ...]


class Units:
    """Three queues of instructions and four of tokens: who can go on, and going on."""

    def __init__(self, instructions: Sequence[Instruction]) -> None:
        self.queues: tuple[list[tuple[int, Instruction, _Queues, _Queues]], ...] = ([], [], [])
        for at, instruction in enumerate(instructions):
            entry = (at, instruction, pops(instruction), pushes(instruction))
            self.queues[unit_of(instruction)].append(entry)
        self.next = [0, 0, 0]
        self.tokens = [0] * len(Queue)

    def ready(self, unit: Unit) -> bool:
        """Whether the front instruction of `unit` has all its tokens."""
        queue, at = self.queues[unit], self.next[unit]
        return at < len(queue) and all(self.tokens[q] for q in queue[at][2])

    def take(self, unit: Unit) -> tuple[int, Instruction]:
        """Return the front instruction of `unit` and its place in the stream; its tokens are moved."""
        at, instruction, taken, given = self.queues[unit][self.next[unit]]
        self.next[unit] += 1
        for queue in taken:
            self.tokens[queue] -= 1
        for queue in given:
            self.tokens[queue] += 1
        return at, instruction

    def waiting(self) -> list[str]:
        """Say what each unit that is not done waits for."""
        found = []
        for unit in Unit:
            if self.next[unit] < len(self.queues[unit]):
                at, _, taken, _ = self.queues[unit][self.next[unit]]
                lacking = [queue.name for queue in taken if not self.tokens[queue]]
                found.append(f"{unit.name} at {at} for {' and '.join(lacking)}")
        return found


def run(program: Program, image: Image, order: Sequence[int] = (0, 1, 2),
        shuffle: np.random.Generator | None = None) -> Outcome:
    """Return what `program` makes of `image`, which stays as it is.

    Units go on in turns, in `order`, each as far as its tokens reach; with `shuffle`, one instruction of a
    unit drawn by lot at a time. Where tokens order all that must be, results are the same.
    """
    chip, units = Chip(program.spec, image.copy()), Units(program.instructions)
    finished: int | None = None
    turns = [Unit(unit) for unit in order]
    while any(units.ready(unit) for unit in turns):
        if shuffle is not None:
            ready = [unit for unit in turns if units.ready(unit)]
            turn = [ready[int(shuffle.integers(len(ready)))]]
        else:
            turn = turns
        for unit in turn:
            while units.ready(unit):
                at, instruction = units.take(unit)
                if finished is not None:
                    raise DeviceError(f"instruction {at} runs after FINISH at {finished}")
                finished = at if isinstance(instruction, Finish) else None
                _execute(chip, at, instruction)
                if shuffle is not None:
                    break
    waiting = units.waiting()
    if waiting:
        raise DeviceError("deadlock: " + ", ".join(waiting))
    if finished is None:
        raise DeviceError("the stream does not end with FINISH")
    return Outcome(chip.image, chip.counters, tuple(units.tokens))


def _execute(chip: Chip, at: int, instruction: Instruction) -> None:
    """Execute, and say in errors where in the stream it was."""
    try:
        chip.execute(instruction)
    except DeviceError as error:
        raise DeviceError(f"instruction {at}, {type(instruction).__name__}: {error}") from error
