"""Small correct programs made by hand, and mutants of them that break one rule each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import NamedTuple

import numpy as np

from jitla.accel import (
    AccelProgram,
    AccelSpec,
    Alu,
    AluOp,
    DramAllocator,
    Finish,
    Gemm,
    Instruction,
    Load,
    Memory,
    Queue,
    Store,
    Unit,
    Uop,
    encode_uops,
    noop,
    pops,
    preset,
    pushes,
    unit_of,
)

# Correct programs: tests run, time, print and break them.

PYNQ = preset("vta-pynq")
_FLAGS = {(0, 1): "push_next", (1, 0): "push_prev", (1, 2): "push_next", (2, 1): "push_prev"}
_TAKES = {(0, 1): "pop_prev", (1, 0): "pop_next", (1, 2): "pop_prev", (2, 1): "pop_next"}


class Stream:
    """Appends instructions; tokens are put on the last and on the next instruction of a unit."""

    def __init__(self) -> None:
        self.instructions: list[Instruction] = []
        self.owed: dict[Unit, list[str]] = {unit: [] for unit in Unit}

    def add(self, instruction: Instruction) -> None:
        unit = unit_of(instruction)
        owed, self.owed[unit] = self.owed[unit], []
        self.instructions.append(replace(instruction, **dict.fromkeys(owed, True)))

    def push(self, giver: Unit, taker: Unit) -> None:
        flag = _FLAGS[giver, taker]
        for at in reversed(range(len(self.instructions))):
            if unit_of(self.instructions[at]) is giver:
                if not getattr(self.instructions[at], flag) and not self.owed[giver]:
                    self.instructions[at] = replace(self.instructions[at], **{flag: True})
                    return
                break
        self.add(replace(noop(giver), **{flag: True}))

    def pop(self, giver: Unit, taker: Unit) -> None:
        flag = _TAKES[giver, taker]
        if flag in self.owed[taker]:
            self.add(noop(taker))
        self.owed[taker].append(flag)

    def sync(self, giver: Unit, taker: Unit) -> None:
        """What `taker` does from here on waits for what `giver` did so far."""
        if Unit.COMPUTE not in (giver, taker):
            self.sync(giver, Unit.COMPUTE)
            self.add(noop(Unit.COMPUTE))
            giver = Unit.COMPUTE
        self.push(giver, taker)
        self.pop(giver, taker)

    def finish(self) -> tuple[Instruction, ...]:
        for unit in (Unit.LOAD, Unit.STORE):
            if self.owed[unit]:
                self.add(noop(unit))
            self.sync(unit, Unit.COMPUTE)
            self.add(noop(Unit.COMPUTE))
        return (*self.instructions, Finish())


def matmul(spec: AccelSpec = PYNQ, rows: int = 16, blocks: int = 2, depth: int = 4, tile: int = 8,
           chunk: int = 2,
           threads: int = 2, shift: int = 6) -> AccelProgram:
    """C = clip(A @ B.T >> shift), in tiles of `tile` rows by all blocks, K in chunks."""
    lay = DramAllocator()
    b, lanes = spec.batch, spec.block
    inp, wgt, out = (spec.element(m) for m in (Memory.INP, Memory.WGT, Memory.OUT))
    a = lay.add("A", (rows // b, depth, b, lanes), inp.dtype, "input")
    w = lay.add("B", (blocks, depth, lanes, lanes), wgt.dtype, "constant")
    c = lay.add("C", (rows // b, blocks, b, lanes), out.dtype, "output")
    u = lay.add("uops", (2 * blocks * threads,), np.uint32, "constant")
    tile_rows = tile // b
    acc_half, inp_half, wgt_half = tile_rows * blocks, tile_rows * chunk, blocks * chunk
    uops = [Uop(h * acc_half + n, h * inp_half, h * wgt_half + n * chunk)
            for h in range(threads) for n in range(blocks)]
    s = Stream()
    L, G, S = Unit.LOAD, Unit.COMPUTE, Unit.STORE
    s.add(Load(memory=Memory.UOP, dram_base=u.address // 4, x_size=len(uops), x_stride=len(uops)))
    for _ in range(threads):
        s.push(G, L)
        s.push(S, G)
    step = 0
    for t in range(rows // tile):
        h = t % threads
        acc_loop = dict(uop_bgn=h * blocks, uop_end=(h + 1) * blocks, iter_out=1, iter_in=tile_rows,
                        dst_factor_in=blocks)
        s.pop(S, G)
        s.add(Gemm(reset=True, **acc_loop))
        for k in range(0, depth, chunk):
            p = step % threads
            s.pop(G, L)
            s.add(Load(memory=Memory.INP, sram_base=p * inp_half, x_size=chunk, y_size=tile_rows,
                       x_stride=depth, dram_base=a.address // inp.nbytes + t * tile_rows * depth + k))
            s.add(Load(memory=Memory.WGT, sram_base=p * wgt_half, x_size=chunk, y_size=blocks,
                       x_stride=depth, dram_base=w.address // wgt.nbytes + k))
            s.push(L, G)
            s.pop(L, G)
            mixed = [Uop(h * acc_half + n, p * inp_half, p * wgt_half + n * chunk) for n in range(blocks)]
            begin = _place(uops, mixed)
            s.add(Gemm(uop_bgn=begin, uop_end=begin + blocks, iter_out=chunk, iter_in=tile_rows,
                       dst_factor_in=blocks, src_factor_in=chunk, src_factor_out=1, wgt_factor_out=1))
            s.push(G, L)
            step += 1
        if not spec.is_float:
            s.add(Alu(op=AluOp.SHR, use_imm=True, imm=shift, **acc_loop))
            s.add(Alu(op=AluOp.MAX, use_imm=True, imm=-128, **acc_loop))
            s.add(Alu(op=AluOp.MIN, use_imm=True, imm=127, **acc_loop))
        s.push(G, S)
        s.pop(G, S)
        s.add(Store(sram_base=h * acc_half, x_size=acc_half, x_stride=acc_half,
                    dram_base=c.address // out.nbytes + t * acc_half))
        s.push(S, G)
    for _ in range(threads):
        s.pop(G, L)
        s.pop(S, G)
    instructions = list(s.finish())
    instructions[0] = replace(instructions[0], x_size=len(uops), x_stride=len(uops))
    regions = [*lay.regions[:-1], replace(u, shape=(len(uops),))]
    return AccelProgram(spec, tuple(instructions), encode_uops(spec, uops), u.address, tuple(regions))


def _place(uops: list[Uop], wanted: list[Uop]) -> int:
    """Where in `uops` the run `wanted` is; it is appended if it is not there."""
    for at in range(len(uops) - len(wanted) + 1):
        if uops[at:at + len(wanted)] == wanted:
            return at
    uops.extend(wanted)
    return len(uops) - len(wanted)


def matmul_data(program: AccelProgram, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Random operands for `matmul`, laid out as its regions."""
    return {name: _random(rng, program.region(name)) for name in ("A", "B")}


def _random(rng: np.random.Generator, region) -> np.ndarray:
    if region.dtype.kind == "f":
        return rng.standard_normal(region.shape).astype(region.dtype)
    info = np.iinfo(region.dtype)
    return rng.integers(info.min, info.max + 1, region.shape).astype(region.dtype)


def matmul_expected(data: dict[str, np.ndarray], shift: int = 6) -> np.ndarray:
    """What `matmul` computes, in the layout of C."""
    a, b = data["A"], data["B"]
    rows = a.transpose(0, 2, 1, 3).reshape(a.shape[0] * a.shape[2], -1)
    columns = b.transpose(0, 2, 1, 3).reshape(b.shape[0] * b.shape[2], -1)
    if a.dtype.kind == "f":
        full = rows.astype(np.float64) @ columns.astype(np.float64).T
    else:
        wide = rows.astype(np.int64) @ columns.astype(np.int64).T
        full = np.clip(wide.astype(np.int32) >> shift, -128, 127)
    return full.reshape(a.shape[0], a.shape[2], b.shape[0], -1).transpose(0, 2, 1, 3)


def conv(height: int = 6, width: int = 7, shift: int = 5) -> AccelProgram:
    """A 3 by 3 convolution of one block of channels, zeros around the image, then ReLU and a second
    pass over the first one's result, which never leaves the device."""
    lay = DramAllocator()
    pixels = height * width
    x = lay.add("x", (height, width, 1, 16), np.int8, "input")
    k = lay.add("k", (9, 16, 16), np.int8, "constant")
    mid = lay.add("mid", (height, width, 1, 16), np.int8, "scratch")
    y = lay.add("y", (height, width, 1, 16), np.int8, "output")
    wide = width + 2
    taps = [Uop(0, dy * wide + dx, dy * 3 + dx) for dy in range(3) for dx in range(3)]
    u = lay.add("uops", (len(taps),), np.uint32, "constant")
    s = Stream()
    L, G, S = Unit.LOAD, Unit.COMPUTE, Unit.STORE
    loop = dict(uop_bgn=0, uop_end=1, iter_out=height, iter_in=width, dst_factor_out=width, dst_factor_in=1)
    s.add(Load(memory=Memory.UOP, dram_base=u.address // 4, x_size=len(taps), x_stride=len(taps)))
    s.add(Load(memory=Memory.WGT, dram_base=k.address // 256, x_size=9, x_stride=9))
    for source, target in ((x, mid), (mid, y)):
        s.add(Load(memory=Memory.INP, dram_base=source.address // 16, y_size=height, x_size=width,
                   x_stride=width, y_pad_0=1, y_pad_1=1, x_pad_0=1, x_pad_1=1))
        s.sync(L, G)
        s.add(Gemm(reset=True, **loop))
        for tap in range(9):  # one tap at a time: steps close to each other write different elements
            s.add(Gemm(uop_bgn=tap, uop_end=tap + 1, iter_out=height, iter_in=width, dst_factor_out=width,
                       dst_factor_in=1, src_factor_out=wide, src_factor_in=1))
        s.add(Alu(op=AluOp.SHR, use_imm=True, imm=shift, **loop))
        s.add(Alu(op=AluOp.MAX, use_imm=True, imm=0, **loop))
        s.add(Alu(op=AluOp.MIN, use_imm=True, imm=127, **loop))
        s.sync(G, S)
        s.add(Store(x_size=pixels, x_stride=pixels, dram_base=target.address // 16))
        s.sync(S, L)
        s.sync(S, G)
    return AccelProgram(PYNQ, s.finish(), encode_uops(PYNQ, taps), u.address, tuple(lay.regions))


def conv_expected(x: np.ndarray, k: np.ndarray, shift: int = 5) -> np.ndarray:
    """What `conv` computes, in NumPy."""
    image = x.reshape(*x.shape[:2], 16)
    for _ in range(2):
        padded = np.pad(image, ((1, 1), (1, 1), (0, 0))).astype(np.int32)
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(0, 1))
        sums = np.einsum("yxiab,aboi->yxo", windows, k.reshape(3, 3, 16, 16).astype(np.int32))
        image = np.clip(sums >> shift, 0, 127).astype(np.int8)
    return image.reshape(x.shape)


# Mutants, each with the rules of which one must be named

FLAGS = ("pop_prev", "pop_next", "push_prev", "push_next")
ORDER = {"deadlock", "token-leak", "race", "finish", "unwritten", "token-depth"}


class Mutant(NamedTuple):
    """A wrong program, what was done to it, and the rules of which one must be broken."""

    program: AccelProgram
    what: str
    rules: set[str]


def _with(program: AccelProgram, at: int, *instead: Instruction) -> AccelProgram:
    """`program` with the instruction `at` replaced."""
    stream = program.instructions
    return replace(program, instructions=(*stream[:at], *instead, *stream[at + 1:]))


def all_mutants(program: AccelProgram) -> Iterator[Mutant]:
    """Everything below, on every instruction it can be done to."""
    for make in (tokens, pairs, sizes, numbers, operations, order, places, loops):
        yield from make(program)


def tokens(program: AccelProgram) -> Iterator[Mutant]:
    """One flag too few or too many."""
    for at, i in enumerate(program.instructions):
        for flag in FLAGS:
            had = getattr(i, flag)
            wrong = replace(i, **{flag: not had})
            rules = {"deadlock", "token-leak", "flags", "finish"}
            yield Mutant(_with(program, at, wrong), f"{at}: {flag} {'dropped' if had else 'added'}", rules)


def pairs(program: AccelProgram) -> Iterator[Mutant]:
    """A token that is neither given nor taken: what it ordered is a race, or reads too early.

    Only of tokens that carry data forwards: such a pair is never implied by the others.
    """
    for queue in (Queue.LOAD_TO_COMPUTE, Queue.COMPUTE_TO_STORE):
        given = [at for at, i in enumerate(program.instructions) if queue in pushes(i)]
        taken = [at for at, i in enumerate(program.instructions) if queue in pops(i)]
        for giver, taker in zip(given, taken, strict=True):
            if isinstance(program.instructions[giver], Load) and program.instructions[giver].is_noop:
                continue
            wrong = _with(program, giver, replace(program.instructions[giver], push_next=False))
            wrong = _with(wrong, taker, replace(wrong.instructions[taker], pop_prev=False))
            yield Mutant(wrong, f"{giver} and {taker}: no {queue.name}", ORDER)


def sizes(program: AccelProgram) -> Iterator[Mutant]:
    """Past the end of a memory, or of a buffer, by one element."""
    for at, i in enumerate(program.instructions):
        if not isinstance(i, (Load, Store)) or i.is_noop:
            continue
        depth = program.spec.element(Memory.ACC if i.memory is Memory.ACC8 else i.memory).depth
        last = depth - i.count + 1
        yield Mutant(_with(program, at, replace(i, sram_base=last)), f"{at}: past the end",
                     {"overflow", "resident-uops"})
        yield Mutant(_with(program, at, replace(i, x_size=65535, x_stride=65535)), f"{at}: too wide",
                     {"overflow"})
        if i.memory is not Memory.UOP:
            element = program.spec.element(i.memory).nbytes
            region = next(r for r in program.regions if r.address <= i.dram_base * element < r.end)
            end = region.address // element + region.nbytes // element
            begin = end - (i.y_size - 1) * i.x_stride - i.x_size + 1
            yield Mutant(_with(program, at, replace(i, dram_base=begin)), f"{at}: past its buffer",
                         {"region"})
            yield Mutant(_with(program, at, replace(i, dram_base=region.address // element - 1)),
                         f"{at}: before its buffer", {"region"})
        else:
            yield Mutant(_with(program, at, replace(i, dram_base=i.dram_base + 1)), f"{at}: other micro-ops",
                         {"uop-source"})
        yield Mutant(_with(program, at, replace(i, dram_base=0)), f"{at}: address zero", {"address-zero"})


def numbers(program: AccelProgram) -> Iterator[Mutant]:
    """Numbers that do not fit into their fields."""
    for at, i in enumerate(program.instructions):
        for field in fields(i):
            value = getattr(i, field.name)
            if isinstance(value, int) and not isinstance(value, (bool, Memory, AluOp)):
                wrong = replace(i, **{field.name: 1 << 33 if field.name == "dram_base" else 1 << 16})
                yield Mutant(_with(program, at, wrong), f"{at}: {field.name} too large", {"encoding"})
                break


def operations(program: AccelProgram) -> Iterator[Mutant]:
    """What not every implementation does, or does alike."""
    for at, i in enumerate(program.instructions):
        if isinstance(i, Alu):
            yield Mutant(_with(program, at, replace(i, op=AluOp.MUL)), f"{at}: MUL", {"dialect"})
            yield Mutant(_with(program, at, replace(i, op=AluOp.SHR, imm=16)), f"{at}: by 16", {"shift"})
            yield Mutant(_with(program, at, replace(i, op=AluOp.SHR, imm=-16)), f"{at}: by -16", {"shift"})
            yield Mutant(_with(program, at, replace(i, op=AluOp.SHR, use_imm=False)), f"{at}: by a tensor",
                         {"shift"})
            still = replace(i, dst_factor_in=0, dst_factor_out=0, iter_in=max(i.iter_in, 3))
            yield Mutant(_with(program, at, still), f"{at}: feeds itself", {"hazard"})
            shifted = replace(i, use_imm=False, op=AluOp.ADD, src_factor_in=i.dst_factor_in,
                              src_factor_out=i.dst_factor_out, uop_end=i.uop_bgn + 1)
            if i.op is not AluOp.SHR:
                continue
            yield Mutant(_with(program, at, replace(shifted, dst_factor_in=0, dst_factor_out=0)),
                         f"{at}: a sum onto one element", {"hazard"})
        elif isinstance(i, Load) and not i.is_noop:
            if i.memory is not Memory.INP:
                for pad in ("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1"):
                    yield Mutant(_with(program, at, replace(i, **{pad: 1})), f"{at}: {pad}", {"padding"})
            if i.memory is Memory.UOP:
                yield Mutant(_with(program, at, replace(i, y_size=2)), f"{at}: two rows", {"uop-load"})
                yield Mutant(_with(program, at, replace(i, sram_base=2048)), f"{at}: far",
                             {"resident-uops"})
            yield Mutant(_with(program, at, replace(i, memory=Memory.ACC8)), f"{at}: ACC8", {"dialect"})
            yield Mutant(_with(program, at, replace(i, memory=Memory.OUT)), f"{at}: loads OUT", {"dialect"})
        elif isinstance(i, Store) and not i.is_noop:
            yield Mutant(_with(program, at, replace(i, memory=Memory.ACC)), f"{at}: stores ACC", {"dialect"})
            yield Mutant(_with(program, at, replace(i, x_pad_0=1)), f"{at}: padded store", {"padding"})
            yield Mutant(_with(program, at, replace(i, y_size=2, x_stride=1)), f"{at}: rows overlap",
                         {"region", "overflow"})
            role = [replace(r, role="constant") if r.role in ("output", "scratch") else r
                    for r in program.regions]
            yield Mutant(replace(program, regions=tuple(role)), "nothing is written", {"region"})
            moved = [replace(r, address=r.address + 8) if r.role == "output" else r for r in program.regions]
            yield Mutant(replace(program, regions=tuple(moved)), "the result is not aligned",
                         {"alignment", "region"})


def order(program: AccelProgram) -> Iterator[Mutant]:
    """Instructions that are missing, twice, or elsewhere."""
    stream = program.instructions
    for at, i in enumerate(stream):
        if isinstance(i, Finish):
            yield Mutant(_with(program, at), "no FINISH", {"finish"})
            yield Mutant(_with(program, at, i, i), "FINISH twice", {"finish"})
            yield Mutant(_with(program, at, i, noop(Unit.COMPUTE)), "something after FINISH", {"finish"})
            yield Mutant(_with(program, at, replace(i, pop_prev=True)), "FINISH pops a token",
                         {"finish", "deadlock"})
            continue
        if pops(i) or pushes(i):
            yield Mutant(_with(program, at), f"{at}: missing", ORDER)
            yield Mutant(_with(program, at, i, i), f"{at}: twice", ORDER)
        elif isinstance(i, (Load, Gemm)):
            kept = isinstance(i, Gemm) and not i.reset and any(
                isinstance(other, Gemm) and not other.reset for other in (stream[at - 1], stream[at + 1]))
            if not kept:  # one of several sums is a wrong result, and breaks no rule
                yield Mutant(_with(program, at), f"{at}: missing", {"unwritten", "stale-out"})
    for at, i in enumerate(stream):
        bare = [other for other in stream if unit_of(other) is Unit.COMPUTE and isinstance(other, Alu)]
        if isinstance(i, Gemm) and not i.reset and bare:
            no_alu = [replace(noop(Unit.COMPUTE), **{f: getattr(other, f) for f in FLAGS})
                      if isinstance(other, Alu) else other for other in stream]
            no_alu[at] = replace(i, reset=True)
            last = max(n for n, other in enumerate(stream) if isinstance(other, Gemm) and not other.reset)
            if at == last:
                yield Mutant(replace(program, instructions=tuple(no_alu)), f"{at}: a reset is stored",
                             {"stale-out"})


def places(program: AccelProgram) -> Iterator[Mutant]:
    """Both halves of a buffer in one place: the next load comes before the last is used."""
    stream = program.instructions
    for memory in (Memory.INP, Memory.WGT):
        loads = [at for at, i in enumerate(stream) if isinstance(i, Load) and i.memory is memory
                 and not i.is_noop and i.sram_base]
        for at in loads:
            yield Mutant(_with(program, at, replace(stream[at], sram_base=0)), f"{at}: into the other half",
                         {"race", "unwritten"})
    stores = [at for at, i in enumerate(stream) if isinstance(i, Store) and not i.is_noop and i.sram_base]
    for at in stores:
        moved = replace(stream[at], sram_base=stream[at].sram_base + stream[at].count)
        yield Mutant(_with(program, at, moved), f"{at}: stores what nobody computed",
                     {"unwritten", "stale-out"})


def loops(program: AccelProgram) -> Iterator[Mutant]:
    """Loops that leave a memory, micro-ops that are not there, and steps too close to each other."""
    for at, i in enumerate(program.instructions):
        if not isinstance(i, (Gemm, Alu)):
            continue
        largest = (1 << program.spec.element(Memory.ACC).index_bits) - 1
        yield Mutant(_with(program, at, replace(i, iter_in=3, dst_factor_in=largest)), f"{at}: far",
                     {"index"})
        yield Mutant(_with(program, at, replace(i, uop_end=i.uop_end + 100)), f"{at}: other micro-ops",
                     {"unwritten"})
        yield Mutant(_with(program, at, replace(i, uop_bgn=i.uop_end, uop_end=i.uop_bgn)),
                     f"{at}: backwards", {"index"})
        close = replace(i, iter_in=max(i.iter_in, 4), dst_factor_in=0, dst_factor_out=0,
                        uop_end=i.uop_bgn + 1)
        yield Mutant(_with(program, at, close), f"{at}: too close", {"hazard"})
        if isinstance(i, Gemm) and not i.reset:
            yield Mutant(_with(program, at, replace(i, src_factor_in=500, iter_in=8)), f"{at}: far inputs",
                         {"index", "unwritten"})
            yield Mutant(_with(program, at, replace(i, wgt_factor_in=700, iter_in=8)), f"{at}: far weights",
                         {"index", "unwritten"})
    uops = np.concatenate([program.uops, program.uops[:1]])
    yield Mutant(replace(program, uops=uops, uop_address=program.uop_address + 2), "odd micro-ops",
                 {"alignment"})
    large = np.zeros((1 << 23) + 1, np.uint32)
    large[:len(program.uops)] = program.uops
    yield Mutant(replace(program, uops=large), "too many micro-ops", {"transfer-size"})
