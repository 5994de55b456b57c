"""The verifier: correct programs pass, planted faults are found, orders agree with brute force."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from jitla.accel import (
    RULES,
    AccelProgram,
    Alu,
    AluOp,
    Finish,
    Gemm,
    Load,
    Memory,
    Queue,
    Store,
    Unit,
    Uop,
    decode_uops,
    encode_uops,
    noop,
    order_of,
    pops,
    preset,
    pushes,
    run,
    unit_of,
    verify,
)
from jitla.errors import DeviceError
from tests.accel.programs import draw
from tests.accel.streams import FLAGS, PYNQ, all_mutants, conv, matmul

# The verifier: right programs pass, planted faults are found, and it agrees with brute force on order.

RIGHT = {
    "two threads": matmul(), "one thread": matmul(threads=1), "one tile": matmul(rows=8, chunk=4),
    "convolutions": conv(), "ultra96": matmul(preset("vta-ultra96")), "floats": matmul(preset("vta-f32")),
}


@pytest.mark.parametrize("program", RIGHT.values(), ids=RIGHT)
def test_right_programs_break_no_rule(program):
    assert verify(program) == ()


MUTANTS = [mutant for program in (matmul(), conv()) for mutant in all_mutants(program)]


def test_there_are_many_mutants():
    assert len(MUTANTS) >= 200
    named = set().union(*(mutant.rules for mutant in MUTANTS))
    # the two that need longer streams have tests of their own below
    assert set(RULES) - named <= {"token-depth", "deadlock"}


def test_every_mutant_is_caught():
    missed = [(mutant.what, sorted(mutant.rules), [str(f) for f in verify(mutant.program)])
              for mutant in MUTANTS
              if not mutant.rules & {fault.rule for fault in verify(mutant.program)}]
    assert not missed, (len(missed), len(MUTANTS), missed[:12])


def test_faults_say_where():
    fault = verify(replace(matmul(), instructions=(Load(memory=Memory.ACC, x_size=1, x_pad_0=1), Finish())))
    assert [str(f) for f in fault] == ["instruction 0: padding: of ACC",
                                       "instruction 0: address-zero: ACC is transferred at address zero"]


def touched(program: AccelProgram, at: int) -> tuple[set, set]:
    """What an instruction of a small program reads and writes, one element at a time."""
    i, spec = program.instructions[at], program.spec
    if isinstance(i, (Load, Store)):
        if i.is_noop:
            return set(), set()
        size = spec.element(i.memory).nbytes
        dram = {("dram", (i.dram_base + y * i.x_stride + x) * size + b)
                for y in range(i.y_size) for x in range(i.x_size) for b in range(0, size, 4)}
        name = Memory.ACC if i.memory in (Memory.OUT, Memory.ACC8) else i.memory
        chip = {(name, i.sram_base + n) for n in range(i.count)}
        return (dram, chip) if isinstance(i, Load) else (chip, dram)
    if isinstance(i, Finish):
        return set(), set()
    reads, writes = set(), set()
    for outer in range(i.iter_out):
        for inner in range(i.iter_in):
            for u in decode_uops(spec, program.uops)[i.uop_bgn:i.uop_end]:
                dst = u.dst + outer * i.dst_factor_out + inner * i.dst_factor_in
                src = u.src + outer * i.src_factor_out + inner * i.src_factor_in
                writes.add((Memory.ACC, dst))
                if isinstance(i, Alu):
                    reads |= {(Memory.ACC, dst)} | (set() if i.use_imm else {(Memory.ACC, src)})
                elif not i.reset:
                    wgt = u.wgt + outer * i.wgt_factor_out + inner * i.wgt_factor_in
                    reads |= {(Memory.ACC, dst), (Memory.INP, src), (Memory.WGT, wgt)}
    return reads, writes


def brute_force_races(program: AccelProgram) -> bool:
    """Whether two instructions of different units meet, and no path of tokens leads from one to the other."""
    stream = program.instructions
    count = len(stream)
    after = np.zeros((count, count), bool)
    for unit in Unit:
        own = [at for at in range(count) if unit_of(stream[at]) is unit]
        for first, then in zip(own, own[1:], strict=False):
            after[first, then] = True
    for queue in Queue:
        given = [at for at in range(count) if queue in pushes(stream[at])]
        taken = [at for at in range(count) if queue in pops(stream[at])]
        for giver, taker in zip(given, taken, strict=False):
            after[giver, taker] = True
    for middle in range(count):
        after |= after[:, middle:middle + 1] & after[middle]
    access = [touched(program, at) for at in range(count)]
    return any(
        unit_of(stream[a]) is not unit_of(stream[b]) and not after[a, b] and not after[b, a]
        and (access[a][1] & (access[b][0] | access[b][1]) or access[a][0] & access[b][1])
        for a in range(count) for b in range(a))


def without_pair(program: AccelProgram, rng: np.random.Generator) -> AccelProgram:
    """`program` with one token neither given nor taken."""
    queue = Queue(int(rng.integers(4)))
    stream = list(program.instructions)
    given = [at for at, i in enumerate(stream) if queue in pushes(i)]
    taken = [at for at, i in enumerate(stream) if queue in pops(i)]
    if not given:
        return program
    which = int(rng.integers(len(given)))
    for at, kind in ((given[which], "push"), (taken[which], "pop")):
        for side in ("prev", "next"):
            flag = f"{kind}_{side}"
            cleared = replace(stream[at], **{flag: False})
            table = pushes if kind == "push" else pops
            if queue in table(stream[at]) and queue not in table(cleared):
                stream[at] = cleared
    return replace(program, instructions=tuple(stream))


def test_races_are_those_of_brute_force():
    seen = {True: 0, False: 0}
    for seed in range(60):
        rng = np.random.default_rng(seed)
        program = without_pair(draw(seed, 10)[0] if seed % 3 else (matmul(), conv(3, 4))[seed % 2], rng)
        rules = {fault.rule for fault in verify(program)}
        if rules & {"deadlock", "index", "region"}:
            continue
        racing = brute_force_races(program)
        assert ("race" in rules) == racing, seed
        seen[racing] += 1
    assert min(seen.values()) >= 5, seen


def chain(count: int, *, prompt: bool) -> AccelProgram:
    """`count` tokens from load to compute; with `prompt`, each is awaited before the next is given."""
    stream = []
    for _ in range(count):
        stream.append(replace(noop(Unit.LOAD), push_next=True, pop_next=prompt and bool(stream)))
        stream.append(replace(noop(Unit.COMPUTE), pop_prev=True, push_prev=prompt))
    if prompt:
        stream.append(replace(noop(Unit.LOAD), pop_next=True, push_next=True))
        stream.append(replace(noop(Unit.COMPUTE), pop_prev=True))
    return AccelProgram(PYNQ, (*stream, Finish()))


def test_more_than_eight_tokens_may_be_in_a_queue():
    assert {f.rule for f in verify(chain(8, prompt=False))} == set()
    assert {f.rule for f in verify(chain(9, prompt=False))} == {"token-depth"}
    assert {f.rule for f in verify(chain(40, prompt=True))} == set()


def test_fetch_stands_before_a_full_queue():
    """Loads that all wait for a token which comes behind them in the stream."""
    waits = [replace(noop(Unit.LOAD), pop_next=True)] + [noop(Unit.LOAD)] * 520
    gives = [replace(noop(Unit.COMPUTE), push_prev=True)]
    faults = verify(AccelProgram(PYNQ, (*waits, *gives, Finish())))
    assert [f.text for f in faults if f.rule == "deadlock"] == [
        "LOAD waits for COMPUTE_TO_LOAD", "fetch waits for a free entry of 512 commands"]


def test_what_was_stored_may_be_loaded_once_tokens_say_so():
    program = conv()
    order = order_of(program.instructions)
    stores = [at for at, i in enumerate(program.instructions) if isinstance(i, Store) and not i.is_noop]
    loads = [at for at, i in enumerate(program.instructions) if isinstance(i, Load) and i.memory is Memory.INP
             and not i.is_noop]
    assert order.before(stores[0], Unit.STORE, loads[1])
    assert not order.before(loads[1], Unit.LOAD, stores[0])
    bare = [replace(i, **dict.fromkeys(FLAGS, False)) for i in program.instructions]
    rules = {f.rule for f in verify(replace(program, instructions=tuple(bare)))}
    assert {"race", "finish"} <= rules


def test_a_buffer_of_inputs_may_not_be_aligned_worse_than_its_elements():
    program = matmul()
    regions = [replace(r, address=r.address + 16) if r.name == "B" else r for r in program.regions]
    stream = [replace(i, dram_base=i.dram_base + 1) if isinstance(i, Load) and i.memory is Memory.WGT
              and i.x_size else i for i in program.instructions]
    rules = {f.rule for f in verify(replace(program, regions=tuple(regions), instructions=tuple(stream)))}
    assert rules & {"region", "alignment"}


FIRST = {"push_prev": True}  # of a store, and those that come after it
THEN = (replace(noop(Unit.COMPUTE), pop_next=True), Finish())


@pytest.mark.parametrize("instructions, message", [
    ((replace(noop(Unit.LOAD), pop_next=True), Finish()), "deadlock: LOAD at 0 for COMPUTE_TO_LOAD"),
    ((Finish(), noop(Unit.COMPUTE)), "instruction 1 runs after FINISH at 0"),
    ((noop(Unit.COMPUTE),), "does not end with FINISH"),
    ((Load(memory=Memory.INP, sram_base=2048, x_size=1, dram_base=300), Finish()),
     "instruction 0, Load: INP has 2048 elements; 2049 are needed"),
    ((Load(memory=Memory.INP, x_size=1, dram_base=1 << 20), Finish()), "DRAM has"),
    ((Load(memory=Memory.ACC8, x_size=1, dram_base=300), Finish()), "ACC8 is not loaded in the strict"),
    ((Load(memory=Memory.OUT, x_size=1, dram_base=300), Finish()), "OUT is not loaded"),
    ((Store(memory=Memory.ACC, x_size=1, dram_base=300, **FIRST), *THEN), "ACC is not stored"),
    ((Store(x_size=1, x_pad_0=1, dram_base=300, **FIRST), *THEN), "a store has no padding"),
    ((Store(sram_base=2048, x_size=1, dram_base=300, **FIRST), *THEN), "OUT has 2048"),
    ((noop(Unit.COMPUTE), Gemm(uop_end=1, iter_in=3, dst_factor_in=2000), Finish()),
     "instruction 1, Gemm: ACC has 2048 elements; index 4000 is out of bounds"),
    ((Gemm(uop_end=9000), Finish()), "UOP has 8192"),
    ((Alu(op=AluOp.MUL, uop_end=1), Finish()), "MUL is not in the strict dialect"),
    ((Alu(op=AluOp.SHR, uop_end=1), Finish()), "shifts by a tensor"),
    ((Alu(op=AluOp.SHR, use_imm=True, imm=16, uop_end=1), Finish()), "shifts are by at most 15"),
])
def test_the_simulator_refuses(instructions, message):
    program = AccelProgram(PYNQ, instructions, encode_uops(PYNQ, [Uop(0)]))
    with pytest.raises(DeviceError, match=message):
        run(program, np.zeros(1 << 14, np.uint8))


def test_what_is_not_defined_is_refused():
    extended = preset("vta-extended")
    program = AccelProgram(extended, (Alu(op=AluOp.SHR, use_imm=True, imm=32, uop_end=1), Finish()))
    with pytest.raises(DeviceError, match="a shift by 32 bits or more is undefined"):
        run(program, program.image())
    floats = preset("vta-f32")
    program = AccelProgram(floats, (Alu(op=AluOp.SHR, use_imm=True, imm=1, uop_end=1), Finish()))
    with pytest.raises(DeviceError, match="floats are not shifted"):
        run(program, program.image())


def test_the_page_lists_every_rule():
    page = (Path(__file__).parents[2] / "docs" / "accelerator.md").read_text(encoding="utf-8")
    rules = page.split("## Rules")[1].split("## ")[0]
    assert dict(re.findall(r"^\| `([\w-]+)` \| (.*) \|$", rules, re.MULTILINE)) == RULES
