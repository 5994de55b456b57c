"""Predicted seconds of kernels and calls, and peak memory of plans."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import NamedTuple

from jitla.fusion.iteration import BEGIN, Ends
from jitla.fusion.kernel import (
    ARG_REDUCTIONS,
    MAX_NARROW_COLUMNS,
    MIN_STREAMED_BYTES,
    Call,
    Kernel,
    Product,
    RowKernel,
    Step,
    WindowKernel,
    block_height,
    blocks_per_unit,
    data_inputs,
    is_packed_once,
    panel_bytes,
    reduces_rows,
    window_height,
)
from jitla.fusion.layout import Layout, is_view
from jitla.hops import Hop, Kind, Machine, Meta, Shape, bytes_of, flops

Resize = Callable[[Shape], Shape]


def peak_bytes(
    steps: Sequence[Step], outputs: Sequence[Hop], threads: int = 1, stored: Collection[Hop] = (),
    resize: Resize = lambda shape: shape, waiting: Mapping[Hop, int] | None = None,
) -> int:
    """Return the most bytes that are taken at a time; `stored` are written into memory that exists.

    `resize` gives the shapes of the binding in question for those of the plan; `waiting` are the bytes
    of those rows of stored values that wait until what they overwrite has been read.
    """
    late = waiting or {}
    last: dict[Hop, int] = {}
    for at, step in enumerate(steps):
        last |= {owner(h): at for h in step.inputs}
    kept = {owner(h) for h in outputs}
    # a result that is asked for twice is two arrays
    live = sum(_bytes(h, resize) for h in set(outputs) for _ in range(outputs.count(h) - 1))
    most = live
    for at, step in enumerate(steps):
        live += sum(_bytes(h, resize) for h in step.outputs if h not in stored)
        beside = scratch(step, threads, resize) + sum(late.get(h, 0) for h in step.outputs)
        most = max(most, live + beside)
        read = {owner(h) for h in step.inputs}
        live -= sum(_bytes(h, resize) for h in read if last[h] == at and h not in kept)
    return most


def owner(hop: Hop) -> Hop:
    """Return the value whose memory `hop` lies in."""
    while is_view(hop):
        hop = hop.inputs[0]
    return hop


def _bytes(hop: Hop, resize: Resize) -> int:
    """Return the bytes of the array that making `hop` allocates."""
    if hop.meta.shape == () or hop.op.kind is Kind.LEAF or is_view(hop):
        return 0
    return prod(resize(hop.meta.shape)) * hop.meta.dtype.itemsize


def scratch(step: Step, threads: int, resize: Resize = lambda shape: shape) -> int:
    """Return the bytes that a step needs beside its results: the blocks and sums of a row kernel."""
    if isinstance(step, WindowKernel):
        return _windows(step, threads, resize)
    if not isinstance(step, RowKernel):
        return 0
    rows = resize(step.shape)[0] if step.stages else step.rows
    each = row_bytes(step, resize)
    wide = [s for s in step.stages if isinstance(s, Product) and s.wide]
    matrices = dict.fromkeys(s.vector for s in wide if s.form == "dot")
    panels = sum(panel_bytes(resize(h.meta.shape), h.meta.dtype.itemsize) for h in matrices)
    if not is_packed_once(rows, panels):
        panels = 0
    packed = panels > 0 and all(s.form == "dot" for s in wide)
    height = block_height(each, rows, bool(wide), bool(step.ordered_outputs), packed, step.columnwise)
    sums = {s.hop for s in step.stages if isinstance(s, Product) and s.form == "sum"}
    seen = {*step.inputs, *step.outputs, *sums}
    inner = sum(_row(h, 0, resize) for s in step.stages for h in s.outputs if h not in seen)
    part = sum(prod(resize(h.meta.shape)) * h.meta.dtype.itemsize for h in sums)
    blocks = -(-rows // height)
    units = blocks if step.ordered_outputs else -(-blocks // blocks_per_unit(blocks, each * height, part))
    return (units - 1) * part + min(threads, units) * inner * height + panels


def _windows(step: WindowKernel, threads: int, resize: Resize) -> int:
    """Return the bytes of what all threads keep between the stages of a window that slides."""
    rows, ahead, rate = resize(step.shape)[0], step.lookahead_rows(resize), step.rows_per_result
    each = sum(rate[h] * _row(h, 0, resize) for h in step.intermediates)
    return threads * each * (window_height(window_row_bytes(step, resize), rows, ahead) + ahead)


def window_row_bytes(kernel: WindowKernel, resize: Resize = lambda shape: shape) -> int:
    """Return the bytes of all that one row of the results is computed from, through and to."""
    given = (h for h, axis in zip(kernel.inputs, kernel.axes, strict=True) if axis == 0)
    rate = kernel.rows_per_result
    return sum(rate[h] * _row(h, 0, resize) for h in (*given, *kernel.intermediates, *kernel.outputs))


def row_bytes(kernel: RowKernel, resize: Resize = lambda shape: shape) -> int:
    """Return the bytes of one row of every value that a row kernel reads or makes by rows."""
    sums = {s.hop for s in kernel.stages if isinstance(s, Product) and s.form == "sum"}
    axes = {h: 0 for s in kernel.stages for h in s.outputs if h not in sums and not reduces_rows(h)}
    axes |= {h: a for h, a in zip(kernel.inputs, kernel.axes, strict=True) if a is not None}
    entries = dict.fromkeys(
        h for s in kernel.stages if isinstance(s, Product) and s.compressed for h in s.inputs[:2])
    whole = sum(prod(resize(h.meta.shape)) * h.meta.dtype.itemsize for h in entries)
    each = whole // max(resize(kernel.shape)[0], 1) if entries else 0
    return max(sum(_row(h, a, resize) for h, a in axes.items()) + each, 1)


def _row(hop: Hop, axis: int, resize: Resize) -> int:
    shape = resize(hop.meta.shape) if hop.meta.shape else ()
    return prod(n for i, n in enumerate(shape) if i != axis) * hop.meta.dtype.itemsize


LINE = 64  # bytes that memory moves at a time
KEPT = 256 << 20  # larger ones are given back to the system, and got anew
# Weights of an element: of a matrix in a product of a row kernel, and in BLAS's packing.
ALONG, PACK_OPERATIONS = 1.0, 8.0
SCAN = 5.0  # of an element in running sums of several rows at once
SEEN, FOUND = 2.5, 50.0  # of an element that is compared with its row's extreme, of finding that in the row
APART = 8.0  # of an element that is copied into a row of its own
PANELS, REPACK = 1.03, 6.0  # of products in panels: time over that of BLAS; of copying one, in rows
# Additions that beginning a stage takes at every block of rows. Blocks of 8 rows against 512 gave none for
# products, up to 400 for loops; with 200 and more, plans were split that are faster as one kernel.
STAGE = 100.0
TRIANGLE = 0.6  # part of a product of rows with themselves that is computed, BLAS's likewise
# Additions that NumPy takes to begin with a pair of matrices, and for a product in it; the same of integers.
PAIR, PRODUCT, INTEGER_PAIR, INTEGER_PRODUCT = 1500.0, 1.0, 200.0, 15.0
NUMPY_BYTES = 1.5  # seconds per byte of NumPy's loops over those of the compiler's


class Cost(NamedTuple):
    """Seconds of one step by what they are spent on; `total` is less than their sum where they overlap."""

    read: float
    write: float
    compute: float
    launch: float
    total: float


class CostModel:
    """Predicted seconds on `machine` of what is computed from the leaves in `layouts`."""

    def __init__(self, machine: Machine, layouts: Mapping[Hop, Layout], threads: int = 0) -> None:
        self.machine = machine.with_threads(threads)
        self._threads, self._launch, self._wake = (
            self.machine.concurrent_threads, self.machine.launch, self.machine.wake)
        self._unit = self.machine.unit / self.machine.concurrent_threads
        self.layouts = layouts
        leaves = [h for h in layouts if h.op.kind is Kind.LEAF]
        #: Bytes used between two uses of a leaf, as far as plans do not matter.
        self.footprint = float(sum(touched(h, layouts.get(h)) for h in leaves))
        self._known: dict[tuple[str, Hop], float] = {}
        self._rates: dict[tuple[bool, float], float] = {}
        self._ends = Ends(self._unit)

    def _once(self, kind: str, hop: Hop, find: Callable[[Hop], float]) -> float:
        key = (kind, hop)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = find(hop)
        return found

    # ------------------------------------------------------------------ terms of single hops

    def _per_byte(self, writing: bool, footprint: float) -> float:
        """Seconds per byte of what was last used `footprint` bytes ago."""
        found = self._rates.get((writing, footprint))
        if found is None:
            rate = self.machine.writing if writing else self.machine.reading
            found = self._rates[writing, footprint] = rate(1.0, footprint)
        return found

    def work(self, hop: Hop) -> float:
        """Return the seconds that all threads compute for the values of `hop`, once, in a kernel."""
        return self._once("work", hop, self._work)

    def _work(self, hop: Hop) -> float:
        if hop.op.name in ("matmul", "dot"):
            return self._along(hop)
        if hop.op.name == "cumsum":
            return SCAN * hop.meta.size * self._element(hop)
        if hop.op.name in ARG_REDUCTIONS:
            matrix = hop.inputs[0]
            return SEEN * matrix.meta.size * self._element(matrix) + FOUND * hop.meta.size * self._unit
        if hop.op.name in ("concatenate", "stack"):
            return self._unit * sum(_copying(i.meta, hop.meta.ndim) for i in hop.inputs)
        return flops(hop) * self.machine.unit / self.machine.concurrent_threads

    def _along(self, hop: Hop) -> float:
        """Return the seconds of a product in a row kernel: with many vectors, in panels of these."""
        m, k, n = _sides(hop)
        if n <= MAX_NARROW_COLUMNS:
            return ALONG * m * k * n * self._element(hop)
        left, size = self.layouts.get(hop.inputs[0]), hop.meta.dtype.itemsize
        arithmetic = 2.0 * m * k * n * size / 8 / self.machine.product
        part = TRIANGLE if _with_itself(hop) else 1.0
        if hop.inputs[0].op.name == "transpose" or left is not None and left.strides[-1] != size:
            busy = self._busy(k, (m + n) * size, m * n * size)
            return part * arithmetic * (PANELS + REPACK / max(m, 1)) * busy
        # rows of the matrix and of results; of others, made of these, nothing is known here
        height = block_height((k + n) * size, m, wide=True)
        if left is not None and left.strides[-1] == size and is_packed_once(m, panel_bytes((k, n), size)):
            height = m  # each row meets panels that are made once
        return part * arithmetic * (PANELS + REPACK / max(height, 1))

    def _busy(self, rows: int, row_bytes: int, aside: int) -> float:
        """Return how much longer a sum over `rows` takes than if all threads ended together."""
        if not rows:
            return 1.0
        height = block_height(row_bytes, rows, wide=True)
        blocks = -(-rows // height)
        each = blocks_per_unit(blocks, row_bytes * height, aside)
        turns = -(-blocks // (each * self.machine.concurrent_threads))
        return max(turns * each * self.machine.concurrent_threads / blocks, 1.0)

    def begins(self, stages: int, rows: int, nbytes: float, wide: bool, turns: bool) -> float:
        """Return the seconds for beginning so many stages anew at every block of rows.

        `nbytes` are those of all values that lie by rows; see `block_height` for `wide` and `turns`.
        """
        height = block_height(int(nbytes / max(rows, 1)), rows, wide, turns)
        return STAGE * self._unit * stages * -(-rows // max(height, 1))

    def _element(self, hop: Hop) -> float:
        return self.machine.unit * hop.meta.dtype.itemsize / 8 / self.machine.concurrent_threads

    def ends(self, hops: Iterable[Hop], apart: bool = False) -> float:
        """Return the seconds that loops over `hops` lose at the ends of rows; `apart`: as stages of rows."""
        return self._ends.lost(hops, apart)

    def reads(self, hop: Hop) -> float:
        """Return the seconds for reading the values of `hop` once, from where they then lie."""
        return self._once("reads", hop, self._reads)

    def _reads(self, hop: Hop) -> float:
        nbytes = touched(hop, self.layouts.get(hop))
        return nbytes * self._per_byte(False, self._distance(hop, nbytes))

    def writes(self, hop: Hop) -> float:
        """Return the seconds for writing the values of `hop` once, to fresh memory."""
        return self._once("writes", hop, self._writes)

    def _writes(self, hop: Hop) -> float:
        nbytes = hop.meta.nbytes
        if nbytes >= MIN_STREAMED_BYTES:
            seconds = nbytes / self.machine.stream.at(self.machine.concurrent_threads)
            return seconds + (self.machine.fault * nbytes if nbytes > KEPT else 0.0)
        return nbytes * self._per_byte(True, self.footprint + nbytes)

    def _distance(self, hop: Hop, nbytes: float) -> float:
        """Bytes used since `hop` was: a leaf waits for the next call, a value for the next step."""
        return self.footprint if hop.op.kind is Kind.LEAF else 2.0 * nbytes

    def passes(self, hop: Hop) -> float:
        """Return the seconds for leaving the values of `hop` to later stages of a row kernel."""
        return self._once("passes", hop, self._passes)

    def _passes(self, hop: Hop) -> float:
        return hop.meta.nbytes / self.machine.levels[0].write.at(self.machine.concurrent_threads)

    def again(self, hop: Hop) -> float:
        """Return the seconds for reading in one stage of a row kernel what an earlier one read or left."""
        return self._once("again", hop, self._again)

    def _again(self, hop: Hop) -> float:
        nbytes = touched(hop, self.layouts.get(hop))
        return nbytes / self.machine.levels[0].read.at(self.machine.concurrent_threads)

    # ------------------------------------------------------------------ whole steps

    def kernel(self, read: float, write: float, work: float, launched: int = 1) -> float:
        """Return the seconds of a kernel; the terms are sums over its hops.

        For a row kernel `read` is what `reads` and `again` say of every stage, `write` what `writes`
        says of results and `passes` of other values. `launched` is 0 for terms that are added to those
        of a kernel that is counted elsewhere.
        """
        busy = write + (read if read > work else work)
        return self._launch + self.busy(busy) if launched else busy

    def busy(self, seconds: float) -> float:
        """Return what one kernel takes that keeps all threads busy for so long; several take no less."""
        alone, shared = self._threads * seconds, self._wake + seconds
        return alone if alone < shared or self._threads == 1 else shared

    def terms(self, read: float, write: float, work: float, launched: int = 1) -> Cost:
        """Return the seconds of a kernel with what they are spent on."""
        total = self.kernel(read, write, work, launched)
        if not launched:
            return Cost(read, write, work, 0.0, total)
        n = self._threads
        if n == 1 or n * (busy := write + max(read, work)) < self._wake + busy:
            return Cost(n * read, n * write, n * work, self._launch, total)
        return Cost(read, write, work, self._launch + self._wake, total)

    def step(self, step: Step) -> Cost:
        """Return the seconds of one step of a plan with what they are spent on."""
        if isinstance(step, Call):
            seconds = self.call(step.hop)
            launch = min(seconds, self.machine.call)
            return Cost(0.0, 0.0, seconds - launch, launch, seconds)
        if isinstance(step, WindowKernel):
            return self._windows(step)
        if isinstance(step, RowKernel):
            return self._rows(step)
        read = sum(self.reads(h) for h in step.inputs)
        write = sum(self.writes(h) for h in step.outputs)
        return self.terms(read, write, sum(map(self.work, step.body)) + self.ends(step.body))

    def _windows(self, kernel: WindowKernel) -> Cost:
        """Stages one after the other on blocks of rows, which begin with the last rows of another."""
        ahead = kernel.lookahead_rows()
        height = window_height(window_row_bytes(kernel), kernel.rows, ahead)
        inside = {*kernel.views, *kernel.intermediates}
        read = sum(self.reads(h) for h in kernel.inputs)
        read += sum(self.again(h) for s in kernel.stages for h in s.inputs if h in inside)
        write = sum(map(self.writes, kernel.outputs))
        write += sum(self.passes(h) * (1.0 + 2.0 * ahead / height) for h in kernel.intermediates)
        work = sum(sum(map(self.work, s.body)) + self.ends(s.body) for s in kernel.stages)
        stages = len(kernel.stages) + len(kernel.intermediates)
        work += STAGE * self._unit * stages * -(-kernel.rows // height)
        return self.terms(read, write, work)

    def _rows(self, kernel: RowKernel) -> Cost:
        """Stages one after the other: what an earlier one has read or left is near."""
        read = write = work = 0.0
        near: set[Hop] = set()
        by_rows = {h for h, axis in zip(kernel.inputs, kernel.axes, strict=True) if axis is not None}
        for stage in kernel.stages:
            body = stage.body if isinstance(stage, Kernel) else stage.outputs
            read += sum(self.again(h) if h in near else self.reads(h) for h in stage.inputs)
            write += sum(self.writes(h) if h in kernel.outputs else self.passes(h) for h in stage.outputs)
            work += sum(map(self.work, body)) + self.ends(body)
            near.update((*stage.inputs, *stage.outputs))
            by_rows.update(h for h in stage.outputs if h.meta.shape[:1] == (kernel.rows,))
        work += self.begins(
            len(kernel.stages), kernel.rows, sum(h.meta.nbytes for h in by_rows),
            kernel.template == "Outer", bool(kernel.ordered_outputs))
        return self.terms(read, write, work)

    def call(self, hop: Hop) -> float:
        """Return the seconds of one NumPy call; views cost nothing."""
        return self._once("call", hop, self._call)

    def _call(self, hop: Hop) -> float:
        if hop.op.kind is Kind.LEAF or is_view(hop):
            return 0.0
        if hop.inputs and not data_inputs(hop):
            return self.machine.call
        if hop.op.name in ("matmul", "dot"):
            return self.machine.call + self._product(hop)
        if hop.op.name == "offload":
            return float(hop.attr("part").seconds)
        moved = bytes_of(hop)
        distance = max(self.footprint, moved)
        slow = NUMPY_BYTES * self.machine.reading(moved, distance, 1)
        work = flops(hop) * self.machine.unit
        if hop.op.transcendental:
            work *= self.machine.scalar
        return self.machine.call + max(slow, work)

    def _product(self, hop: Hop) -> float:
        """BLAS: arithmetic, behind packing of the operands; with a vector it only reads."""
        m, k, n = _sides(hop)
        stack = hop.meta.shape[:max(i.meta.ndim for i in hop.inputs) - 2] if hop.op.name == "matmul" else ()
        if stack:
            return self._pairs(hop, prod(stack))
        moved = sum(map(self.reads, hop.inputs))
        if 1 in (m, n):
            return NUMPY_BYTES * moved
        if hop.meta.dtype.kind not in "fc":  # NumPy's own loops
            work = INTEGER_PRODUCT * m * k * n * hop.meta.dtype.itemsize / 8
            return NUMPY_BYTES * moved + work * self.machine.unit
        arithmetic = 2.0 * m * k * n * hop.meta.dtype.itemsize / 8 / self.machine.product
        if _with_itself(hop):
            arithmetic *= TRIANGLE
        packed = sum(i.meta.size for i in hop.inputs) + hop.meta.size
        return arithmetic + 2.0 * moved + PACK_OPERATIONS * packed * self._element(hop)

    def _pairs(self, hop: Hop, count: int) -> float:
        """NumPy's product of stacks: one pair after the other, on one thread."""
        m, k, n = _sides(hop)
        begin, each = (PAIR, PRODUCT) if hop.meta.dtype.kind in "fc" else (INTEGER_PAIR, INTEGER_PRODUCT)
        moved = sum(map(self.reads, hop.inputs)) + self.writes(hop)
        work = begin * count + each * m * k * n * hop.meta.dtype.itemsize / 8
        return NUMPY_BYTES * moved + work * self.machine.unit


def touched(hop: Hop, layout: Layout | None) -> float:
    """Return the bytes that memory moves when every element is read: whole lines of it, once."""
    if layout is None or layout.shape == ():
        return float(hop.meta.nbytes)
    return _lines(layout, hop.meta.dtype.itemsize)


@lru_cache(maxsize=4096)
def _lines(layout: Layout, size: int) -> float:
    walked = [(abs(s), n) for s, n in zip(layout.strides, layout.shape, strict=True) if s and n != 1]
    step = min((s for s, _ in walked), default=size)
    return float(prod(n for _, n in walked) * min(max(step, size), max(LINE, size)))


def _copying(part: Meta, ndim: int) -> float:
    """Return the additions that copying rows takes to where others lie between them."""
    if part.ndim < ndim or part.shape[-1] == 1:
        return APART * part.size
    return part.size + BEGIN * part.size / max(part.shape[-1], 1)


def _with_itself(hop: Hop) -> bool:
    """Tell whether a product is the same above and below its diagonal."""
    left, right = hop.inputs
    return left.op.name == "transpose" and left.inputs[0] is right


def _sides(hop: Hop) -> tuple[int, int, int]:
    """Return m, k, n of a product; a batch counts as rows."""
    left, right = (i.meta for i in hop.inputs)
    k = left.shape[-1] if left.ndim and right.ndim else 1
    n = right.shape[-1] if right.ndim > 1 else 1
    return hop.meta.size // max(n, 1), k, n
