"""Programs with one thing wrong, each with the rules that one of must be named."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import NamedTuple

import numpy as np

from jitla.accel import (
    AccelProgram,
    Alu,
    AluOp,
    Finish,
    Gemm,
    Instruction,
    Load,
    Memory,
    Queue,
    Store,
    Unit,
    noop,
    pops,
    pushes,
    unit_of,
)

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
