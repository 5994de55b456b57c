"""The functional simulator: executes programs bit-exactly, without timing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jitla.accel.isa import (
    Alu,
    Finish,
    Gemm,
    Instruction,
    Load,
    Queue,
    Store,
    Unit,
    apply_alu,
    from_immediate,
    pops,
    pushes,
    refusal,
    unit_of,
    uop_columns,
)
from jitla.accel.program import AccelProgram, DramRegion, Image, from_words
from jitla.accel.spec import AccelSpec, Memory, loads
from jitla.classes import dataclass
from jitla.errors import DeviceError

Indices = NDArray[np.int64]


class StepIndices(NamedTuple):
    """The operand indices of each step in execution order; `wgt` is empty for the ALU."""

    dst: Indices
    src: Indices
    wgt: Indices


def steps_of(instruction: Gemm | Alu, columns: Indices) -> StepIndices:
    """Return the step indices of `instruction`; `columns` are dst, src and wgt of its micro-ops."""
    out = np.arange(instruction.iter_out, dtype=np.int64)[:, None, None]
    inner = np.arange(instruction.iter_in, dtype=np.int64)[None, :, None]

    def walk(column: Indices, factor_out: int, factor_in: int) -> Indices:
        return (column + out * factor_out + inner * factor_in).reshape(-1)

    dst = walk(columns[0], instruction.dst_factor_out, instruction.dst_factor_in)
    src = walk(columns[1], instruction.src_factor_out, instruction.src_factor_in)
    if isinstance(instruction, Alu):
        return StepIndices(dst, src, dst[:0])
    return StepIndices(dst, src, walk(columns[2], instruction.wgt_factor_out, instruction.wgt_factor_in))


@lru_cache(maxsize=4096)
def index_key(instruction: Gemm | Alu) -> Gemm | Alu:
    """Return `instruction` with only the fields that determine its indices, as a memo key."""
    values = {name: getattr(instruction, name) for name in _SHAPE}
    if isinstance(instruction, Alu):
        return Alu(op=instruction.op, use_imm=instruction.use_imm, **values)
    return Gemm(reset=instruction.reset, wgt_factor_out=instruction.wgt_factor_out,
                wgt_factor_in=instruction.wgt_factor_in, **values)


_SHAPE = ("uop_bgn", "uop_end", "iter_out", "iter_in", "dst_factor_out", "dst_factor_in", "src_factor_out",
          "src_factor_in")


@lru_cache(maxsize=128)
def cached_steps(spec: AccelSpec, loop: Gemm | Alu, words: bytes) -> StepIndices:
    """Return the memoised step indices of `loop`, an `index_key`, over the micro-ops `words`."""
    return steps_of(loop, uop_columns(spec, np.frombuffer(words, np.uint32)))


def operands(instruction: Gemm | Alu, steps: StepIndices) -> tuple[tuple[Memory, Indices], ...]:
    """Return the accessed elements by memory: the destinations first, then the operands that are read."""
    accesses = [(Memory.ACC, steps.dst)]
    if isinstance(instruction, Gemm) and not instruction.reset:
        accesses += [(Memory.INP, steps.src), (Memory.WGT, steps.wgt)]
    elif isinstance(instruction, Alu) and not instruction.use_imm:
        accesses += [(Memory.ACC, steps.src)]
    return tuple(accesses)


def check_bounds(spec: AccelSpec, instruction: Gemm | Alu, steps: StepIndices) -> None:
    """Raise `DeviceError` if an index is out of bounds."""
    for memory, indices in operands(instruction, steps):
        depth = spec.element(memory).depth
        if len(indices) and int(indices.max()) >= depth:
            raise DeviceError(f"{memory.name} has {depth} elements; "
                              f"index {int(indices.max())} is out of bounds")


def independent_runs(steps: StepIndices, reads_src: bool) -> tuple[slice, ...]:
    """Split steps into runs without dependences: no step accesses an element written earlier in its run."""
    dst = steps.dst.tolist()
    src = steps.src.tolist() if reads_src else dst
    runs, begin, written = [], 0, set[int]()
    if len(np.unique(steps.dst)) == len(dst) and not (reads_src and np.isin(steps.src, steps.dst).any()):
        return (slice(0, len(dst)),)
    for step, (destination, source) in enumerate(zip(dst, src, strict=True)):
        if destination in written or source in written:
            runs.append(slice(begin, step))
            begin, written = step, set()
        written.add(destination)
    return (*runs, slice(begin, len(dst)))


Array = NDArray[Any]
# The largest magnitudes up to which all integers are exact.
EXACT_INTEGER_LIMITS: dict[np.dtype[Any], int] = {
    np.dtype(np.float32): 1 << 24, np.dtype(np.float64): 1 << 53}
CHUNK_STEPS = 4096  # steps whose operands are gathered together
MIN_SHARED_DESTINATIONS = 4  # per shared operand on average, for one matrix product to pay
_HASH_WEIGHTS = np.random.default_rng(1).integers(1, 1 << 40, 1 << 12)  # of columns, to hash rows


class StepGroup(NamedTuple):
    """Destinations with equal numbers of steps: the products of `src[i]` and `wgt[i]` add to `dst[i]`."""

    dst: Indices
    src: Indices
    wgt: Indices


class SharedOperand(NamedTuple):
    """Rows of a group that share one operand, so that they are one matrix product."""

    rows: Indices
    by_wgt: bool


class GemmPlan(NamedTuple):
    """The evaluation plan of a GEMM instruction: groups of destinations, each with its shared operands."""

    groups: tuple[tuple[StepGroup, tuple[SharedOperand, ...]], ...]


def plan_of(steps: StepIndices) -> GemmPlan:
    """Return the plan of steps: grouped by destination in stable order, with shared operands."""
    order = np.argsort(steps.dst, kind="stable")
    dst, starts, counts = np.unique(steps.dst[order], return_index=True, return_counts=True)
    groups = []
    for count in np.unique(counts):
        selected = counts == count
        rows = order[starts[selected][:, None] + np.arange(count)]
        group = StepGroup(dst[selected], steps.src[rows], steps.wgt[rows])
        groups.append((group, _shared_operands(group)))
    return GemmPlan(tuple(groups))


def _equal_rows(rows: Indices) -> list[Indices]:
    """Return the positions of equal rows, grouped."""
    keys = rows @ _HASH_WEIGHTS[:rows.shape[1]] if rows.shape[1] <= len(_HASH_WEIGHTS) else rows[:, 0]
    _, firsts, kinds = np.unique(keys, return_index=True, return_inverse=True)
    if not np.array_equal(rows[firsts][kinds], rows):  # a hash collision
        _, kinds = np.unique(rows, axis=0, return_inverse=True)
    kinds = kinds.reshape(-1)
    order = np.argsort(kinds, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(kinds[order])) + 1)


def _shared_operands(group: StepGroup) -> tuple[SharedOperand, ...]:
    """Return the sharing, by weights or inputs, with fewer matrix products; empty if these are small."""
    if len(group.dst) == 0:
        return ()
    by_wgt, by_src = _equal_rows(group.wgt), _equal_rows(group.src)
    fewer, is_wgt = (by_src, False) if len(by_src) < len(by_wgt) else (by_wgt, True)
    if len(fewer) * MIN_SHARED_DESTINATIONS > len(group.dst):
        return ()
    return tuple(SharedOperand(rows, is_wgt) for rows in fewer)


def factor_dtype(spec: AccelSpec) -> np.dtype[Any]:
    """Return the dtype that holds inputs and weights, in which products and short sums are exact."""
    if spec.is_float:
        return np.dtype(np.float32)
    bits = (1 << spec.log_inp_width) + (1 << spec.log_wgt_width)
    return np.dtype(np.float32 if bits <= 16 else np.float64 if bits <= 48 else np.int64)


def _exact_dtype(spec: AccelSpec, terms: int, minimum: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype in which a sum of `terms` products is exact; int64 wraps as the accumulator."""
    largest = terms << ((1 << spec.log_inp_width) + (1 << spec.log_wgt_width) - 2)
    for dtype, limit in EXACT_INTEGER_LIMITS.items():
        if largest <= limit and dtype.itemsize >= minimum.itemsize:
            return dtype
    return np.dtype(np.int64)


def accumulate(spec: AccelSpec, plan: GemmPlan, acc: Array, inp: Array, wgt: Array) -> None:
    """Accumulate the products of `plan`; `wgt` is stored with the inputs' lanes first."""
    for group, shares in plan.groups:
        if spec.is_float:
            _add_floats(group, acc, inp, wgt)
        elif shares:
            for share in shares:
                _add_shared(spec, group, share, acc, inp, wgt)
        else:
            _add_each(spec, group, acc, inp, wgt)


def _add_shared(
    spec: AccelSpec, group: StepGroup, share: SharedOperand, acc: Array, inp: Array, wgt: Array
) -> None:
    """Compute one matrix product for all rows of `share`; wrapping sums are independent of order."""
    rows, lanes = share.rows, spec.block
    count, terms = len(rows), group.src.shape[1]
    dtype = _exact_dtype(spec, terms * lanes, inp.dtype)
    if share.by_wgt:
        left = inp[group.src[rows]].swapaxes(1, 2).reshape(count * spec.batch, terms * lanes)
        right = wgt[group.wgt[rows[0]]].reshape(terms * lanes, lanes)
        sums = _product(left, right, dtype).reshape(count, spec.batch, lanes)
    else:
        left = inp[group.src[rows[0]]].swapaxes(0, 1).reshape(spec.batch, terms * lanes)
        right = wgt[group.wgt[rows]].reshape(count, terms * lanes, lanes)
        sums = _product(left, right, dtype)
    _add_wrapping(acc, group.dst[rows], sums)


def _add_each(spec: AccelSpec, group: StepGroup, acc: Array, inp: Array, wgt: Array) -> None:
    """Compute a matrix product for each destination."""
    lanes, terms = spec.block, group.src.shape[1]
    dtype = _exact_dtype(spec, terms * lanes, inp.dtype)
    for part in _parts(group):
        left = inp[group.src[part]].swapaxes(1, 2).reshape(-1, spec.batch, terms * lanes)
        right = wgt[group.wgt[part]].reshape(-1, terms * lanes, lanes)
        _add_wrapping(acc, group.dst[part], _product(left, right, dtype))


def _parts(group: StepGroup) -> Iterator[slice]:
    """Yield chunks of destinations whose operands fit into a small buffer."""
    run = max(CHUNK_STEPS // max(group.src.shape[1], 1), 1)
    for begin in range(0, len(group.dst), run):
        yield slice(begin, begin + run)


def _add_wrapping(acc: Array, dst: Indices, sums: Array) -> None:
    """Add to accumulators, truncated to their width."""
    acc[dst] = (acc[dst] + sums.astype(np.int64)).astype(acc.dtype)


def _product(left: Array, right: Array, dtype: np.dtype[Any]) -> Array:
    product: Array = np.matmul(left.astype(dtype, copy=False), right.astype(dtype, copy=False))
    return product


def _add_floats(group: StepGroup, acc: Array, inp: Array, wgt: Array) -> None:
    """Accumulate floats step by step; the products of a step are summed pairwise, every sum rounded."""
    for part in _parts(group):
        sums = acc[group.dst[part]]
        for step in range(group.src.shape[1]):
            terms = inp[group.src[part, step]][..., None] * wgt[group.wgt[part, step]][:, None]
            while terms.shape[2] > 1:
                half = terms.shape[2] // 2
                terms = terms[:, :, :half] + terms[:, :, half:]
            sums += terms[:, :, 0]
        acc[group.dst[part]] = sums


@dataclass
class Counters:
    """Counts of transferred bytes and executed steps, without padding and resets."""

    inp_load_bytes: int = 0
    wgt_load_bytes: int = 0
    acc_load_bytes: int = 0
    uop_load_bytes: int = 0
    out_store_bytes: int = 0
    gemm_steps: int = 0
    alu_steps: int = 0


class RunResult(NamedTuple):
    """The result of a run: DRAM, counters, and the tokens left in each queue."""

    image: Image
    counters: Counters
    tokens: tuple[int, ...]


class _LoopIndices(NamedTuple):
    """The memoised analysis of a loop instruction: step indices, GEMM plan, independent runs of the ALU."""

    steps: StepIndices
    plan: GemmPlan | None
    runs: tuple[slice, ...]


@lru_cache(maxsize=128)
def _loop_indices(spec: AccelSpec, loop: Gemm | Alu, words: bytes) -> _LoopIndices:
    """Return the analysis of a loop; tiles of one shape share it."""
    steps = cached_steps(spec, loop, words)
    check_bounds(spec, loop, steps)
    if isinstance(loop, Alu):
        return _LoopIndices(steps, None, independent_runs(steps, not loop.use_imm))
    return _LoopIndices(steps, None if loop.reset else plan_of(steps), ())


def _dram_rows(image: Image, base: int, height: int, width: int, pitch: int) -> Array:
    """Return a view of `height` rows of `width` bytes with a distance of `pitch` bytes."""
    if height and base + (height - 1) * pitch + width > len(image):
        raise DeviceError(f"DRAM has {len(image)} bytes; a transfer from {base} exceeds them")
    return np.lib.stride_tricks.as_strided(image[base:], (height, width), (pitch, 1))


class Datapath:
    """The memories of the device and the execution of instructions on them."""

    def __init__(self, spec: AccelSpec, image: Image) -> None:
        self.spec, self.image, self.counters = spec, image, Counters()
        dtype = factor_dtype(spec)
        wgt, inp, acc = (spec.element(m) for m in (Memory.WGT, Memory.INP, Memory.ACC))
        self.uop = np.zeros(spec.element(Memory.UOP).depth, np.uint32)
        self.wgt = np.zeros((wgt.depth, *wgt.shape), dtype)  # the inputs' lanes first, as a right factor
        self.inp = np.zeros((inp.depth, *inp.shape), dtype)
        self.acc = np.zeros((acc.depth, *acc.shape), acc.dtype)

    def execute(self, instruction: Instruction) -> None:
        """Execute `instruction`; tokens are handled by the caller."""
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
        rows = _dram_rows(self.image, load.dram_base * size, load.y_size, load.x_size * size,
                          load.x_stride * size)
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
        rows = _dram_rows(self.image, store.dram_base * size, store.y_size, store.x_size * size,
                          store.x_stride * size)
        low = np.ascontiguousarray(self.acc[store.sram_base:store.sram_base + count].astype(element.dtype))
        values = low.view(np.uint8).reshape(store.y_size, -1)
        if store.x_stride >= store.x_size:
            rows[...] = values
        else:
            for row, value in zip(rows, values, strict=True):  # rows overlap: the later one stays
                row[...] = value
        self.counters.out_store_bytes += rows.size

    def _indices_of(self, instruction: Gemm | Alu) -> _LoopIndices:
        if instruction.uop_end > len(self.uop):
            raise DeviceError(f"UOP has {len(self.uop)} elements, and {instruction.uop_end} are needed")
        words = self.uop[instruction.uop_bgn:instruction.uop_end].tobytes()
        return _loop_indices(self.spec, index_key(instruction), words)

    def _gemm(self, gemm: Gemm) -> None:
        walk = self._indices_of(gemm)
        if walk.plan is None:
            self.acc[walk.steps.dst] = 0
            return
        accumulate(self.spec, walk.plan, self.acc, self.inp, self.wgt)
        self.counters.gemm_steps += gemm.steps

    def _alu(self, alu: Alu) -> None:
        refused = refusal(self.spec, alu)
        if refused:
            raise DeviceError(refused)
        walk = self._indices_of(alu)
        for run in walk.runs:
            dst = walk.steps.dst[run]
            second = from_immediate(self.spec, alu.imm) if alu.use_imm else self.acc[walk.steps.src[run]]
            self.acc[dst] = apply_alu(alu, self.acc[dst], second)
        self.counters.alu_steps += alu.steps


_Queues = tuple[Queue, ...]


class UnitQueues:
    """The instruction queues of the three units and the four token queues."""

    def __init__(self, instructions: Sequence[Instruction]) -> None:
        self.queues: tuple[list[tuple[int, Instruction, _Queues, _Queues]], ...] = ([], [], [])
        for position, instruction in enumerate(instructions):
            entry = (position, instruction, pops(instruction), pushes(instruction))
            self.queues[unit_of(instruction)].append(entry)
        self.next = [0, 0, 0]
        self.tokens = [0] * len(Queue)

    def ready(self, unit: Unit) -> bool:
        """Return whether the front instruction of `unit` has all its tokens."""
        queue, position = self.queues[unit], self.next[unit]
        return position < len(queue) and all(self.tokens[q] for q in queue[position][2])

    def take(self, unit: Unit) -> tuple[int, Instruction]:
        """Dequeue the front instruction of `unit` with its position; pops and pushes its tokens."""
        position, instruction, popped, pushed = self.queues[unit][self.next[unit]]
        self.next[unit] += 1
        for queue in popped:
            self.tokens[queue] -= 1
        for queue in pushed:
            self.tokens[queue] += 1
        return position, instruction

    def waiting(self) -> list[str]:
        """Describe the tokens that unfinished units wait for."""
        descriptions = []
        for unit in Unit:
            if self.next[unit] < len(self.queues[unit]):
                position, _, taken, _ = self.queues[unit][self.next[unit]]
                missing = [queue.name for queue in taken if not self.tokens[queue]]
                descriptions.append(f"{unit.name} at {position} for {' and '.join(missing)}")
        return descriptions


def run(program: AccelProgram, image: Image, order: Sequence[int] = (0, 1, 2),
        shuffle: np.random.Generator | None = None) -> RunResult:
    """Run `program` on a copy of `image`.

    Units run round-robin in `order`, each as far as its tokens allow; with `shuffle`, one instruction of a
    random unit at a time. Results are equal if tokens order all dependences.
    """
    chip, units = Datapath(program.spec, image.copy()), UnitQueues(program.instructions)
    finished: int | None = None
    unit_order = [Unit(unit) for unit in order]
    while any(units.ready(unit) for unit in unit_order):
        if shuffle is not None:
            ready = [unit for unit in unit_order if units.ready(unit)]
            candidates = [ready[int(shuffle.integers(len(ready)))]]
        else:
            candidates = unit_order
        for unit in candidates:
            while units.ready(unit):
                position, instruction = units.take(unit)
                if finished is not None:
                    raise DeviceError(f"instruction {position} runs after FINISH at {finished}")
                finished = position if isinstance(instruction, Finish) else None
                _execute(chip, position, instruction)
                if shuffle is not None:
                    break
    waiting = units.waiting()
    if waiting:
        raise DeviceError("deadlock: " + ", ".join(waiting))
    if finished is None:
        raise DeviceError("the stream does not end with FINISH")
    return RunResult(chip.image, chip.counters, tuple(units.tokens))


def _execute(chip: Datapath, at: int, instruction: Instruction) -> None:
    """Execute an instruction; errors name its position."""
    try:
        chip.execute(instruction)
    except DeviceError as error:
        raise DeviceError(f"instruction {at}, {type(instruction).__name__}: {error}") from error


class Dump(NamedTuple):
    """A test case: a program, the initial DRAM image, and the expected one."""

    program: AccelProgram
    image: Image
    expected: Image


def save_dump(path: str | Path, program: AccelProgram, image: Image) -> Path:
    """Write `program`, `image` and the resulting image to a file; return its path."""
    file_path = Path(path)
    regions = [{"name": r.name, "address": r.address, "shape": list(r.shape), "dtype": r.dtype.str,
                "role": r.role} for r in program.regions]
    with file_path.open("wb") as file:
        np.savez_compressed(
            file, name=np.array(program.spec.name), config=np.array(program.spec.dumps()),
            instructions=program.words, uops=program.uops, uop_address=np.array(program.uop_address),
            dram=image, expected=run(program, image).image, regions=np.array(json.dumps(regions)))
    return file_path


def load_dump(path: str | Path) -> Dump:
    """Read the file that `save_dump` wrote."""
    with np.load(path, allow_pickle=False) as entries:
        spec = loads(str(entries["config"]), str(entries["name"]))
        regions = [DramRegion(r["name"], r["address"], tuple(r["shape"]), np.dtype(r["dtype"]), r["role"])
                   for r in json.loads(str(entries["regions"]))]
        program = from_words(spec, entries["instructions"], entries["uops"], int(entries["uop_address"]),
                             regions)
        return Dump(program, entries["dram"], entries["expected"])
