"""Small programs that are right, made by hand: what tests run, time, print and break."""

from __future__ import annotations

from dataclasses import replace

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
    Store,
    Unit,
    Uop,
    encode_uops,
    noop,
    preset,
    unit_of,
)

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
