"""How long the vectors of a kernel are, and the pieces that its units are cut into.

Knows: kernels in one layout, sizes. Must not know: texts. Receives kernels and geometries; returns numbers.
"""

from __future__ import annotations

from jitla.codegen.layout import BLOCK, Loop, Operand, Target, operands
from jitla.codegen.vector import part_of
from jitla.fusion import Form, Geometry, Kernel, Schedule
from jitla.hops import Hop

MAX_LANES = 64
SHORT = 64  # elements of rows
SHORTEST = {"exp"}  # transcendentals of few instructions
# Those whose instructions mostly wait for the one before: two registers of AVX-512 at a time instead of one
# take 1.1 to 1.35 times less, alone; those of erf and log1p do not fit then, and take more.
CHAINED = {"arccosh", "arcsinh", "float_power", "log_expit", "logaddexp", "logaddexp2", "power"}
LINE = 64  # bytes
COLUMNS = 1024  # most columns of one unit
STRIP = 2048  # bytes of a row of the smallest unit: of less, threads would fetch each other's cache lines
WIDE, HIGH = 512, 128  # columns and rows of a tile: pages in use are few enough, and much of each is used
KEPT = 384  # lines that the first-level cache holds besides others,
PAGE, MEETING = 4096, 32  # bytes apart: these many of them do not meet in the same places of it


def has_float_sum(kernel: Kernel) -> bool:
    """Tell whether a sum of `kernel` depends on the order of its terms."""
    return any(h.op.name == "sum" and h.meta.dtype.kind in "fc" for h in kernel.outputs)


def accumulators(kernel: Kernel) -> int:
    """Return how many partial sums NumPy keeps: eight, and it counts both parts of complex numbers."""
    sums = [h for h in kernel.outputs if h.op.name == "sum"]
    return 4 if any(h.meta.dtype.kind == "c" for h in sums) else 8


def lay_out(kernel: Kernel, form: Form, schedule: Schedule, target: Target) -> Loop:
    """Choose the vector length of `kernel`."""
    hops = (*kernel.inputs, *kernel.body)
    widest = max(_width(h) for h in hops)
    # Two vectors of a polynomial at a time: one alone leaves the processor waiting for its chain; four
    # of the shortest, whose values then still fit into registers.
    names = {h.op.name for h in kernel.body if h.op.transcendental}
    chains = 4 if names == SHORTEST and widest == 8 else 2 if names else 1
    if form.mode == "cell" and names & CHAINED and "avx512f" in target.features:
        chains = 4
    if chains == 1 and form.mode in ("cell", "tally"):
        # Whole vectors of the narrow operands, as far as the wide ones then fit into registers.
        narrowest = min(_width(h) for h in (*kernel.inputs, *kernel.outputs) if h.meta.shape)
        chains = min(widest // narrowest, 8 if len(kernel.body) <= 3 else 4)
        if form.ndim > 1 and kernel.shape[-1] >= SHORT and "s" not in form.inner:
            chains = max(chains, 2)  # rows of such kernels are read in many places: fewer turns
    lanes = max(target.lanes(widest) * max(chains, schedule.unroll) // schedule.part, 1)
    if form.mode in ("full", "rows"):
        # NumPy's pairwise sum keeps eight accumulators; without one more chains hide the latency.
        # Rows shorter than a few of these would be left to the loop over single elements.
        many = 4 if form.mode == "full" or kernel.shape[-1] >= SHORT else 1
        usual = accumulators(kernel) if has_float_sum(kernel) else many * target.lanes(widest)
        lanes = usual * schedule.unroll  # more partial sums are added up in another order
    ops = operands(kernel, form)
    return Loop(kernel, form, schedule, target, ops, min(lanes, MAX_LANES))


def _width(hop: Hop) -> int:
    """Return the bytes of one lane."""
    return part_of(hop.meta.dtype).itemsize


def column_step(inner: int, workers: int, itemsize: int) -> int:
    """Return how many columns make a unit: as many units as share the work evenly."""
    blocks = -(-inner // COLUMNS)
    blocks += -blocks % workers
    blocks = max(1, min(blocks, inner * itemsize // STRIP))
    step, line = -(-inner // blocks), max(1, LINE // itemsize)
    return max(1, min(step + -step % line, inner))


def is_tiled(loop: Loop) -> bool:
    """Tell whether cells may read an operand across its rows."""
    crossed = any(o.role == "in" and o.letter == "s" for o in loop.operands)
    return loop.form.mode == "cell" and loop.rank > 0 and crossed and not loop.polynomials \
        and not loop.schedule.delayed


def tile_sizes(loop: Loop, geometry: Geometry) -> tuple[int, int, int]:
    """Return columns and rows of a tile, and columns of the smaller ones.

    If no operand's neighbours lie in different rows of the walk, or if the lines that a row reads stay near
    until the next one, tiles are whole rows, or parts of one.
    """
    strides = iter(geometry.strides)
    walked = [(o, next(strides)) for o in loop.operands if o.letter != "v"]
    columns = max(geometry.dims[-1], 1)
    turned = [s[-1] for o, s in walked if o.role == "in" and 0 < abs(s[-2]) < abs(s[-1])]
    if not any(columns > (MEETING if s % PAGE == 0 else KEPT) for s in turned):
        step = BLOCK if columns >= 2 * BLOCK else columns
        return step, max(1, BLOCK // step), step
    narrow = max(loop.lanes, *map(line_of, (o for o in loop.operands if o.role == "out")))
    return min(max(WIDE, narrow), columns), HIGH, narrow


def line_of(op: Operand) -> int:
    """Return how many elements share a line."""
    return LINE // op.dtype.itemsize
