"""Random programs: the simulators do what the plain interpreter does, in every order of units.

`python -m tests.accel.programs --count 10000` runs many; the tests run some.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np

from jitla.accel import (
    BOARD,
    HLS,
    PAGE,
    RTL,
    AccelProgram,
    AccelSpec,
    Alu,
    AluOp,
    DramAllocator,
    Gemm,
    Instruction,
    Load,
    Memory,
    Store,
    Unit,
    Uop,
    check_encoding,
    encode_uops,
    measure,
    run,
    unit_of,
    verify,
)
from jitla.errors import ConfigError
from tests.accel.reference import interpret
from tests.accel.streams import PYNQ, Stream

NEAR = 12  # indices are drawn from so few elements that instructions meet
# Rules that random programs may break: they are about what some implementations do with values.
HARMLESS = {"hazard", "stale-out", "unwritten", "padding", "uop-load", "shift", "dialect", "region"}


def random_spec(rng: np.random.Generator, dialect: str | None = None) -> AccelSpec:
    """Some machine that can be built."""
    while True:
        kind = dialect or ["strict", "extended", "float"][int(rng.choice(3, p=[0.6, 0.25, 0.15]))]
        widths = (5, 5, 5) if kind == "float" else (int(rng.integers(3, 5)), int(rng.integers(3, 5)), 5)
        try:
            spec = AccelSpec("random", "sim", "0.0.2", *widths, log_batch=int(rng.integers(0, 3)),
                             log_block=int(rng.integers(1, 6)), log_uop_buff_size=int(rng.integers(8, 16)),
                             log_inp_buff_size=int(rng.integers(10, 17)),
                             log_wgt_buff_size=int(rng.integers(12, 20)),
                             log_acc_buff_size=int(rng.integers(11, 19)), dialect=kind)
            check_encoding(spec)
        except ConfigError:
            continue
        return spec


class Draw:
    """Draws a program whose tokens order all that must be, and no more than it sees the need for."""

    def __init__(self, rng: np.random.Generator, spec: AccelSpec) -> None:
        self.rng, self.spec, self.stream = rng, spec, Stream()
        layout = DramAllocator()
        near = [min(NEAR, self.depth(m)) for m in (Memory.ACC, Memory.INP, Memory.WGT)]
        self.uops = [Uop(*map(self.below, near)) for _ in range(8)]
        self.uops = [u._replace(src=min(u.src, self.depth(Memory.ACC) - 1)) for u in self.uops]
        self.uops.append(Uop(0))
        self.near = min(NEAR, self.depth(Memory.ACC))
        self.table = layout.add("uops", (len(self.uops),), np.uint32, "constant")
        self.data = layout.add("data", (6 * PAGE,), np.uint8, "scratch")
        self.seen = layout.add("seen", (5 * self.near, spec.element(Memory.OUT).nbytes), np.uint8, "output")
        self.layout = layout
        # what each unit read and wrote that another one does not know to be done
        self.since: dict[tuple[Unit, Unit], tuple[set, set]] = {
            (a, b): (set(), set()) for a in Unit for b in Unit if a is not b}

    def below(self, limit: int) -> int:
        return int(self.rng.integers(limit))

    def depth(self, memory: Memory) -> int:
        return self.spec.element(memory).depth

    def program(self, count: int) -> AccelProgram:
        self.emit(Load(memory=Memory.UOP, dram_base=self.table.address // 4, x_size=len(self.uops),
                       x_stride=len(self.uops)))
        for memory in (Memory.INP, Memory.WGT, Memory.ACC):
            self.fill(memory)
        makers = [self.load, self.load, self.gemm, self.alu, self.store]
        for _ in range(count):
            instruction = makers[self.below(len(makers))]()
            if instruction is not None:
                self.emit(instruction)
        self.show()
        return AccelProgram(self.spec, self.stream.finish(), encode_uops(self.spec, self.uops),
                            self.table.address,
                            tuple(self.layout.regions))

    def fill(self, memory: Memory) -> None:
        """Load what most instructions name, so that little is zero."""
        size = self.spec.element(memory).nbytes
        first = -(-self.data.address // size)
        count = min(self.near, self.depth(memory), self.data.end // size - first)
        if count > 0:
            self.emit(Load(memory=memory, dram_base=first, x_size=count, x_stride=count))

    def show(self) -> None:
        """Store what most instructions wrote, all bits of it."""
        out = self.spec.element(Memory.OUT)
        last = len(self.uops) - 1
        first = -(-self.seen.address // out.nbytes)
        for byte in range(1 if self.spec.is_float else 4):
            if byte:
                self.emit(Alu(op=AluOp.SHR, use_imm=True, imm=8, uop_bgn=last, uop_end=last + 1,
                              iter_in=self.near, dst_factor_in=1))
            self.emit(Store(x_size=self.near, x_stride=self.near, dram_base=first + byte * self.near))

    def load(self) -> Instruction | None:
        kinds = [Memory.INP, Memory.WGT, Memory.ACC] + [Memory.ACC8] * (self.spec.dialect == "extended")
        memory = kinds[self.below(len(kinds))]
        pads = dict(zip(("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1"),
                        self.rng.integers(0, 3, 4).tolist(), strict=True)) if self.below(3) == 0 else {}
        return self.transfer(Load, memory, pads)

    def store(self) -> Instruction | None:
        return self.transfer(Store, Memory.OUT, {})

    def transfer(self, kind, memory: Memory, pads: dict[str, int]) -> Instruction | None:
        size = self.spec.element(memory).nbytes
        y, x = 1 + self.below(3), self.below(4)
        stride = x + self.below(3)
        first = -(-self.data.address // size)
        room = self.data.end // size - first - (y - 1) * stride - x
        depth = self.depth(Memory.ACC if memory in (Memory.ACC8, Memory.OUT) else memory)
        made = kind(memory=memory, y_size=y, x_size=x, x_stride=stride, **pads)
        if room <= 0 or made.count > depth:
            return None
        sram = self.below(min(NEAR, depth - made.count + 1))
        return kind(memory=memory, y_size=y, x_size=x, x_stride=stride, sram_base=sram,
                    dram_base=first + self.below(min(NEAR, room)), **pads)

    def loop(self, limits: dict[str, int]) -> dict[str, int] | None:
        """Loops and factors such that no index passes its limit."""
        bgn = self.below(len(self.uops))
        end = bgn + 1 + self.below(len(self.uops) - bgn)
        outer, inner = 1 + self.below(3), 1 + self.below(3)
        values = dict(uop_bgn=bgn, uop_end=end, iter_out=outer, iter_in=inner)
        for name, limit in limits.items():
            largest = max(getattr(u, name) for u in self.uops[bgn:end])
            steps = outer + inner - 2
            if largest >= limit:
                return None
            most = min((limit - 1 - largest) // steps if steps else 0, 6)
            values[f"{name}_factor_out"] = self.below(most + 1)
            values[f"{name}_factor_in"] = self.below(most + 1)
        return values

    def gemm(self) -> Instruction | None:
        values = self.loop({"dst": self.depth(Memory.ACC), "src": self.depth(Memory.INP),
                            "wgt": self.depth(Memory.WGT)})
        return values and Gemm(reset=self.below(6) == 0, **values)

    def alu(self) -> Instruction | None:
        values = self.loop({"dst": self.depth(Memory.ACC), "src": self.depth(Memory.ACC)})
        if values is None:
            return None
        allowed = [AluOp.MIN, AluOp.MAX, AluOp.ADD]
        allowed += [AluOp.SHR] * (not self.spec.is_float) + [AluOp.MUL] * (self.spec.dialect != "strict")
        op = allowed[self.below(len(allowed))]
        imm = int(self.rng.integers(-15, 16)) if op is AluOp.SHR else int(self.rng.integers(-32768, 32768))
        if self.spec.is_float:
            imm = int(self.rng.choice([0, 0x3F80, 0x4000, -0x4080, 0x3E80]))
        return Alu(op=op, use_imm=op is AluOp.SHR or self.below(2) == 0, imm=imm, **values)

    def emit(self, instruction: Instruction) -> None:
        """Append `instruction`, after tokens from every unit whose work it meets."""
        unit = unit_of(instruction)
        reads, writes = self.cells(instruction)
        for other in Unit:
            if other is unit:
                continue
            read, wrote = self.since[other, unit]
            if wrote & (reads | writes) or read & writes:
                self.stream.sync(other, unit)
                self.since[other, unit] = (set(), set())
        self.stream.add(instruction)
        for other in Unit:
            if other is not unit:
                self.since[unit, other][0].update(reads)
                self.since[unit, other][1].update(writes)

    def cells(self, instruction: Instruction) -> tuple[set, set]:
        """What `instruction` reads and writes; ranges of indices are taken whole."""
        if isinstance(instruction, (Load, Store)):
            size = self.spec.element(instruction.memory).nbytes
            first, memory = instruction.dram_base, instruction.memory
            last = first + (instruction.y_size - 1) * instruction.x_stride + instruction.x_size
            dram = {("dram", b) for b in range(first * size // 4, -(-last * size // 4))}
            name = {Memory.OUT: Memory.ACC, Memory.ACC8: Memory.ACC}.get(memory, memory)
            chip = {(name, instruction.sram_base + at) for at in range(instruction.count)}
            if instruction.is_noop:
                return set(), set()
            return (dram, chip) if isinstance(instruction, Load) else (chip, dram)
        uops = self.uops[instruction.uop_bgn:instruction.uop_end]

        def span(name: str, memory: Memory) -> set:
            values = [getattr(u, name) for u in uops]
            more = ((instruction.iter_out - 1) * getattr(instruction, f"{name}_factor_out")
                    + (instruction.iter_in - 1) * getattr(instruction, f"{name}_factor_in"))
            return {(memory, at) for at in range(min(values), max(values) + more + 1)}

        written = span("dst", Memory.ACC)
        if isinstance(instruction, Gemm):
            return span("src", Memory.INP) | span("wgt", Memory.WGT) | written, written
        return span("src", Memory.ACC) | written, written


def draw(seed: int, count: int = 14) -> tuple[AccelProgram, np.ndarray]:
    """The program and the DRAM of a seed; every third machine is the standard one."""
    rng = np.random.default_rng(seed)
    spec = PYNQ if seed % 3 == 0 else random_spec(rng)
    draw = Draw(rng, spec)
    program = draw.program(count)
    image = program.image()
    data = image[draw.data.address:draw.data.end]
    if spec.is_float:
        data.view(np.float32)[...] = rng.standard_normal(data.size // 4).astype(np.float32)
    else:
        data[...] = rng.integers(0, 256, data.size)
    return program, image


def faults_of(seed: int) -> list[str]:
    """What is wrong with the simulators on the program of `seed`."""
    program, image = draw(seed)
    expected = interpret(program.spec.record(), program.words, image)
    found = []
    rng = np.random.default_rng(seed)
    for order in ((0, 1, 2), (1, 2, 0), (2, 1, 0)):  # each unit first once
        if not _same(program.spec, run(program, image, order).image, expected):
            found.append(f"order {order} differs")
    if not _same(program.spec, run(program, image, shuffle=rng).image, expected):
        found.append("an order by lot differs")
    if set(run(program, image).tokens) != {0}:
        found.append("tokens stay")
    found += [str(fault) for fault in verify(program) if fault.rule not in HARMLESS]
    costs = (RTL, BOARD, HLS)[seed % 3]
    pipelined, serial = measure(program, costs), measure(program, costs, serial=True)
    if pipelined.cycles > serial.cycles:
        found.append(f"{pipelined.cycles} cycles in parallel, {serial.cycles} one at a time")
    return found


def _same(spec: AccelSpec, image: np.ndarray, expected: np.ndarray) -> bool:
    """Equal bytes; of floats the sign and payload of NaN are nobody's promise."""
    if not spec.is_float:
        return np.array_equal(image, expected)
    size = len(image) // 4 * 4
    return np.array_equal(image[:size].view(np.float32), expected[:size].view(np.float32), equal_nan=True)


def main() -> int:
    """Run programs; exit with 1 if one fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    args = parser.parse_args()
    begin, bad = time.perf_counter(), 0
    for seed in range(args.first, args.first + args.count):
        for fault in faults_of(seed):
            bad += 1
            print(f"seed {seed}: {fault}")
    print(f"{args.count} programs in {time.perf_counter() - begin:.0f} s, {bad} faults")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
