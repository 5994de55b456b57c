"""Where the steps of a GEMM or ALU instruction read and write.

Knows: two loops around micro-ops, and how their indices advance. Must not know: values, or time.
Receives an instruction and the columns of its micro-ops; returns indices, step by step.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jitla.accel.encoding import uop_columns
from jitla.accel.isa import Alu, Gemm
from jitla.accel.spec import Memory, Spec
from jitla.errors import DeviceError

Indices = NDArray[np.int64]


class Steps(NamedTuple):
    """Indices of each step in the order of execution; `wgt` is empty for the ALU."""

    dst: Indices
    src: Indices
    wgt: Indices


def steps_of(instruction: Gemm | Alu, columns: Indices) -> Steps:
    """Return the steps of `instruction`; `columns` are destination, source, weight of its micro-ops."""
    out = np.arange(instruction.iter_out, dtype=np.int64)[:, None, None]
    inner = np.arange(instruction.iter_in, dtype=np.int64)[None, :, None]

    def walk(column: Indices, factor_out: int, factor_in: int) -> Indices:
        return (column + out * factor_out + inner * factor_in).reshape(-1)

    dst = walk(columns[0], instruction.dst_factor_out, instruction.dst_factor_in)
    src = walk(columns[1], instruction.src_factor_out, instruction.src_factor_in)
    if isinstance(instruction, Alu):
        return Steps(dst, src, dst[:0])
    return Steps(dst, src, walk(columns[2], instruction.wgt_factor_out, instruction.wgt_factor_in))


@lru_cache(maxsize=4096)
def bare(instruction: Gemm | Alu) -> Gemm | Alu:
    """Return `instruction` without what does not decide its indices, so that more of them are alike."""
    values = {name: getattr(instruction, name) for name in _SHAPE}
    if isinstance(instruction, Alu):
        return Alu(op=instruction.op, use_imm=instruction.use_imm, **values)
    return Gemm(reset=instruction.reset, wgt_factor_out=instruction.wgt_factor_out,
                wgt_factor_in=instruction.wgt_factor_in, **values)


_SHAPE = ("uop_bgn", "uop_end", "iter_out", "iter_in", "dst_factor_out", "dst_factor_in", "src_factor_out",
          "src_factor_in")


@lru_cache(maxsize=128)
def known_steps(spec: Spec, loop: Gemm | Alu, words: bytes) -> Steps:
    """Return the steps of `loop`, an instruction made bare, over the micro-ops `words`."""
    return steps_of(loop, uop_columns(spec, np.frombuffer(words, np.uint32)))


def operands(instruction: Gemm | Alu, steps: Steps) -> tuple[tuple[Memory, Indices], ...]:
    """Return which elements of which memory are named: the destinations first, then what is read."""
    named = [(Memory.ACC, steps.dst)]
    if isinstance(instruction, Gemm) and not instruction.reset:
        named += [(Memory.INP, steps.src), (Memory.WGT, steps.wgt)]
    elif isinstance(instruction, Alu) and not instruction.use_imm:
        named += [(Memory.ACC, steps.src)]
    return tuple(named)


def check_bounds(spec: Spec, instruction: Gemm | Alu, steps: Steps) -> None:
    """Raise DeviceError if a step names an element that its memory does not have."""
    for memory, indices in operands(instruction, steps):
        depth = spec.element(memory).depth
        if len(indices) and int(indices.max()) >= depth:
            raise DeviceError(f"{memory.name} has {depth} elements, and {int(indices.max())} is named")


def independent_runs(steps: Steps, reads_src: bool) -> tuple[slice, ...]:
    """Return runs of steps in which none reads or writes what an earlier one of the run wrote."""
    dst = steps.dst.tolist()
    src = steps.src.tolist() if reads_src else dst
    runs, begin, written = [], 0, set[int]()
    if len(np.unique(steps.dst)) == len(dst) and not (reads_src and np.isin(steps.src, steps.dst).any()):
        return (slice(0, len(dst)),)
    for step, (to, of) in enumerate(zip(dst, src, strict=True)):
        if to in written or of in written:
            runs.append(slice(begin, step))
            begin, written = step, set()
        written.add(to)
    return (*runs, slice(begin, len(dst)))
