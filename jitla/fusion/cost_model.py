"""Predicted seconds of kernels and calls, and peak memory of plans."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import NamedTuple

from jitla.fusion.iteration import ROW_START_OPERATIONS, RowEnds
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
    panel_bytes,
    prepacks_panels,
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
    """Return the peak memory of `steps` in bytes; `stored` values are written into existing memory.

    `resize` maps shapes of the plan to those of a binding. `waiting` are the bytes of rows of stored values
    that are buffered until the operands they overwrite have been read.
    """
    pending_bytes = waiting or {}
    last_use: dict[Hop, int] = {}
    for at, step in enumerate(steps):
        last_use |= {memory_owner(h): at for h in step.inputs}
    results = {memory_owner(h) for h in outputs}
    # a result that occurs twice is two arrays
    live = sum(_allocated_bytes(h, resize) for h in set(outputs) for _ in range(outputs.count(h) - 1))
    peak = live
    for at, step in enumerate(steps):
        live += sum(_allocated_bytes(h, resize) for h in step.outputs if h not in stored)
        extra = scratch_bytes(step, threads, resize) + sum(pending_bytes.get(h, 0) for h in step.outputs)
        peak = max(peak, live + extra)
        read = {memory_owner(h) for h in step.inputs}
        live -= sum(_allocated_bytes(h, resize) for h in read if last_use[h] == at and h not in results)
    return peak


def memory_owner(hop: Hop) -> Hop:
    """Return the value whose memory `hop` is a view of, `hop` itself if it is no view."""
    while is_view(hop):
        hop = hop.inputs[0]
    return hop


def _allocated_bytes(hop: Hop, resize: Resize) -> int:
    """Return the bytes of the array that computing `hop` allocates."""
    if hop.meta.shape == () or hop.op.kind is Kind.LEAF or is_view(hop):
        return 0
    return prod(resize(hop.meta.shape)) * hop.meta.dtype.itemsize


def scratch_bytes(step: Step, threads: int, resize: Resize = lambda shape: shape) -> int:
    """Return the bytes that a step needs beside its results: the blocks and partial sums of a row kernel."""
    if isinstance(step, WindowKernel):
        return _window_scratch_bytes(step, threads, resize)
    if not isinstance(step, RowKernel):
        return 0
    rows = resize(step.shape)[0] if step.stages else step.rows
    bytes_per_row = row_bytes(step, resize)
    wide = [s for s in step.stages if isinstance(s, Product) and s.wide]
    matrices = dict.fromkeys(s.vector for s in wide if s.form == "dot")
    panels = sum(panel_bytes(resize(h.meta.shape), h.meta.dtype.itemsize) for h in matrices)
    if not prepacks_panels(rows, panels):
        panels = 0
    packed = panels > 0 and all(s.form == "dot" for s in wide)
    height = block_height(
        bytes_per_row, rows, bool(wide), bool(step.ordered_outputs), packed, step.columnwise)
    sums = {s.hop for s in step.stages if isinstance(s, Product) and s.form == "sum"}
    stored = {*step.inputs, *step.outputs, *sums}
    inner = sum(_row_slice_bytes(h, 0, resize) for s in step.stages for h in s.outputs if h not in stored)
    partial = sum(prod(resize(h.meta.shape)) * h.meta.dtype.itemsize for h in sums)
    blocks = -(-rows // height)
    units = blocks
    if not step.ordered_outputs:
        units = -(-blocks // blocks_per_unit(blocks, bytes_per_row * height, partial))
    return (units - 1) * partial + min(threads, units) * inner * height + panels


def _window_scratch_bytes(step: WindowKernel, threads: int, resize: Resize) -> int:
    """Return the bytes that all threads keep between the stages of a sliding window."""
    rows, ahead, rate = resize(step.shape)[0], step.lookahead_rows(resize), step.rows_per_result
    bytes_per_row = sum(rate[h] * _row_slice_bytes(h, 0, resize) for h in step.intermediates)
    return threads * bytes_per_row * (window_height(window_row_bytes(step, resize), rows, ahead) + ahead)


def window_row_bytes(kernel: WindowKernel, resize: Resize = lambda shape: shape) -> int:
    """Return the bytes of inputs, intermediates and results for one row of the results."""
    row_inputs = (h for h, axis in zip(kernel.inputs, kernel.axes, strict=True) if axis == 0)
    rate = kernel.rows_per_result
    values = (*row_inputs, *kernel.intermediates, *kernel.outputs)
    return sum(rate[h] * _row_slice_bytes(h, 0, resize) for h in values)


def row_bytes(kernel: RowKernel, resize: Resize = lambda shape: shape) -> int:
    """Return the bytes of one row of every value that a row kernel reads or writes by rows."""
    sums = {s.hop for s in kernel.stages if isinstance(s, Product) and s.form == "sum"}
    axes = {h: 0 for s in kernel.stages for h in s.outputs if h not in sums and not reduces_rows(h)}
    axes |= {h: a for h, a in zip(kernel.inputs, kernel.axes, strict=True) if a is not None}
    entries = dict.fromkeys(
        h for s in kernel.stages if isinstance(s, Product) and s.compressed for h in s.inputs[:2])
    whole = sum(prod(resize(h.meta.shape)) * h.meta.dtype.itemsize for h in entries)
    each = whole // max(resize(kernel.shape)[0], 1) if entries else 0
    return max(sum(_row_slice_bytes(h, a, resize) for h, a in axes.items()) + each, 1)


def _row_slice_bytes(hop: Hop, axis: int, resize: Resize) -> int:
    shape = resize(hop.meta.shape) if hop.meta.shape else ()
    return prod(n for i, n in enumerate(shape) if i != axis) * hop.meta.dtype.itemsize


CACHE_LINE_BYTES = 64
MAX_REUSED_BYTES = 256 << 20  # larger blocks are returned to the system and page-faulted again
# `..._OPERATIONS` are additions that take as long as one element, unless said otherwise.
# An element of a matrix in a product of a row kernel, and one that BLAS packs.
ROW_PRODUCT_OPERATIONS, PACK_OPERATIONS = 1.0, 8.0
SCAN_OPERATIONS = 5.0  # of running sums of several rows at once
COMPARE_OPERATIONS, ARG_SEARCH_OPERATIONS = 2.5, 50.0  # of argmin: comparing; per row, locating the extreme
SCATTERED_COPY_OPERATIONS = 8.0  # of a copy with other elements between
PANEL_SLOWDOWN, REPACK_ROWS = 1.03, 6.0  # of products in panels: over BLAS; packing a panel, in rows
# Per stage and block of rows. Blocks of 8 rows against 512 gave none for products, up to 400 for loops; with
# 200 and more, plans were split that are faster as one kernel.
STAGE_START_OPERATIONS = 100.0
TRIANGLE_FRACTION = 0.6  # of a symmetric product that is computed, as by BLAS
# NumPy's product of a pair of matrices: to start, and per multiplication; the same of integers.
PAIR_START_OPERATIONS, PAIR_OPERATIONS = 1500.0, 1.0
INTEGER_PAIR_START_OPERATIONS, INTEGER_OPERATIONS = 200.0, 15.0
NUMPY_SLOWDOWN = 1.5  # seconds per byte of NumPy's loops over those of compiled loops


class Cost(NamedTuple):
    """Seconds of one step by cause; `total` is less than their sum where they overlap."""

    read: float
    write: float
    compute: float
    launch: float
    total: float


class CostModel:
    """Predicted seconds on `machine` of values computed from leaves with these `layouts`."""

    def __init__(self, machine: Machine, layouts: Mapping[Hop, Layout], threads: int = 0) -> None:
        self.machine = machine.with_threads(threads)
        self._threads, self._launch, self._wake = (
            self.machine.concurrent_threads, self.machine.launch, self.machine.wake)
        self._unit = self.machine.unit / self.machine.concurrent_threads
        self.layouts = layouts
        leaves = [h for h in layouts if h.op.kind is Kind.LEAF]
        #: Bytes used between two uses of a leaf, independent of the plan.
        self.footprint = float(sum(touched_bytes(h, layouts.get(h)) for h in leaves))
        self._memo: dict[tuple[str, Hop], float] = {}
        self._rates: dict[tuple[bool, float], float] = {}
        self._ends = RowEnds(self._unit)

    def _memoised(self, kind: str, hop: Hop, find: Callable[[Hop], float]) -> float:
        key = (kind, hop)
        seconds = self._memo.get(key)
        if seconds is None:
            seconds = self._memo[key] = find(hop)
        return seconds

    # ------------------------------------------------------------------ terms of single hops

    def _per_byte(self, writing: bool, footprint: float) -> float:
        """Return the seconds per byte of memory last used `footprint` bytes ago."""
        seconds = self._rates.get((writing, footprint))
        if seconds is None:
            rate = self.machine.writing if writing else self.machine.reading
            seconds = self._rates[writing, footprint] = rate(1.0, footprint)
        return seconds

    def work(self, hop: Hop) -> float:
        """Return the seconds for computing the values of `hop` once in a kernel, on all threads."""
        return self._memoised("work", hop, self._work)

    def _work(self, hop: Hop) -> float:
        if hop.op.name in ("matmul", "dot"):
            return self._panel_product(hop)
        if hop.op.name == "cumsum":
            return SCAN_OPERATIONS * hop.meta.size * self._operation_seconds(hop)
        if hop.op.name in ARG_REDUCTIONS:
            matrix = hop.inputs[0]
            return COMPARE_OPERATIONS * matrix.meta.size * self._operation_seconds(matrix) + \
                ARG_SEARCH_OPERATIONS * hop.meta.size * self._unit
        if hop.op.name in ("concatenate", "stack"):
            return self._unit * sum(_copy_operations(i.meta, hop.meta.ndim) for i in hop.inputs)
        return flops(hop) * self.machine.unit / self.machine.concurrent_threads

    def _panel_product(self, hop: Hop) -> float:
        """Return the seconds of a product in a row kernel: with many vectors, in panels of these."""
        m, k, n = _product_sizes(hop)
        if n <= MAX_NARROW_COLUMNS:
            return ROW_PRODUCT_OPERATIONS * m * k * n * self._operation_seconds(hop)
        left, size = self.layouts.get(hop.inputs[0]), hop.meta.dtype.itemsize
        arithmetic = 2.0 * m * k * n * size / 8 / self.machine.product
        fraction = TRIANGLE_FRACTION if _is_symmetric_product(hop) else 1.0
        if hop.inputs[0].op.name == "transpose" or left is not None and left.strides[-1] != size:
            imbalance = self._imbalance(k, (m + n) * size, m * n * size)
            return fraction * arithmetic * (PANEL_SLOWDOWN + REPACK_ROWS / max(m, 1)) * imbalance
        # rows of the matrix and of the result; other values of the kernel are unknown here
        height = block_height((k + n) * size, m, wide=True)
        if left is not None and left.strides[-1] == size and prepacks_panels(m, panel_bytes((k, n), size)):
            height = m  # panels are packed once
        return fraction * arithmetic * (PANEL_SLOWDOWN + REPACK_ROWS / max(height, 1))

    def _imbalance(self, rows: int, row_bytes: int, private_bytes: int) -> float:
        """Return the factor by which a sum over `rows` takes longer than with perfectly balanced threads."""
        if not rows:
            return 1.0
        height = block_height(row_bytes, rows, wide=True)
        blocks = -(-rows // height)
        per_unit = blocks_per_unit(blocks, row_bytes * height, private_bytes)
        rounds = -(-blocks // (per_unit * self.machine.concurrent_threads))
        return max(rounds * per_unit * self.machine.concurrent_threads / blocks, 1.0)

    def stage_starts(self, stages: int, rows: int, nbytes: float, wide: bool, ordered: bool) -> float:
        """Return the seconds for starting `stages` stages at every block of rows.

        `nbytes` are those of all values stored by rows; see `block_height` for `wide` and `ordered`.
        """
        height = block_height(int(nbytes / max(rows, 1)), rows, wide, ordered)
        return STAGE_START_OPERATIONS * self._unit * stages * -(-rows // max(height, 1))

    def _operation_seconds(self, hop: Hop) -> float:
        return self.machine.unit * hop.meta.dtype.itemsize / 8 / self.machine.concurrent_threads

    def row_ends(self, hops: Iterable[Hop], as_stages: bool = False) -> float:
        """Return the seconds that loops over `hops`, or stages of a row kernel, lose at row ends."""
        return self._ends.row_end_seconds(hops, as_stages)

    def reads(self, hop: Hop) -> float:
        """Return the seconds for reading the values of `hop` once, from wherever they are cached."""
        return self._memoised("reads", hop, self._reads)

    def _reads(self, hop: Hop) -> float:
        nbytes = touched_bytes(hop, self.layouts.get(hop))
        return nbytes * self._per_byte(False, self._reuse_distance(hop, nbytes))

    def writes(self, hop: Hop) -> float:
        """Return the seconds for writing the values of `hop` once, to fresh memory."""
        return self._memoised("writes", hop, self._writes)

    def _writes(self, hop: Hop) -> float:
        nbytes = hop.meta.nbytes
        if nbytes >= MIN_STREAMED_BYTES:
            seconds = nbytes / self.machine.stream.at(self.machine.concurrent_threads)
            return seconds + (self.machine.fault * nbytes if nbytes > MAX_REUSED_BYTES else 0.0)
        return nbytes * self._per_byte(True, self.footprint + nbytes)

    def _reuse_distance(self, hop: Hop, nbytes: float) -> float:
        """Return the bytes used since `hop`: the next call reuses a leaf, the next step a value."""
        return self.footprint if hop.op.kind is Kind.LEAF else 2.0 * nbytes

    def cached_writes(self, hop: Hop) -> float:
        """Return the seconds for leaving the values of `hop` in the cache, for later stages."""
        return self._memoised("cached_writes", hop, self._cached_writes)

    def _cached_writes(self, hop: Hop) -> float:
        return hop.meta.nbytes / self.machine.levels[0].write.at(self.machine.concurrent_threads)

    def cached_reads(self, hop: Hop) -> float:
        """Return the seconds for reading in a stage of a row kernel what an earlier stage read or left."""
        return self._memoised("cached_reads", hop, self._cached_reads)

    def _cached_reads(self, hop: Hop) -> float:
        nbytes = touched_bytes(hop, self.layouts.get(hop))
        return nbytes / self.machine.levels[0].read.at(self.machine.concurrent_threads)

    # ------------------------------------------------------------------ whole steps

    def kernel(self, read: float, write: float, work: float, launched: int = 1) -> float:
        """Return the seconds of a kernel, given the sums of its hops' terms.

        For a row kernel `read` is the sum of `reads` and `cached_reads` over all stages, `write` that of
        `writes` for results and `cached_writes` for other values. `launched` is 0 for terms added to a kernel
        costed elsewhere.
        """
        busy = write + (read if read > work else work)
        return self._launch + self.elapsed(busy) if launched else busy

    def elapsed(self, seconds: float) -> float:
        """Return the elapsed seconds of `seconds` of work per thread, or on one thread if that is faster."""
        single_threaded, multi_threaded = self._threads * seconds, self._wake + seconds
        return single_threaded if single_threaded < multi_threaded or self._threads == 1 else multi_threaded

    def terms(self, read: float, write: float, work: float, launched: int = 1) -> Cost:
        """Return the cost of a kernel by cause."""
        total = self.kernel(read, write, work, launched)
        if not launched:
            return Cost(read, write, work, 0.0, total)
        n = self._threads
        if n == 1 or n * (busy := write + max(read, work)) < self._wake + busy:
            return Cost(n * read, n * write, n * work, self._launch, total)
        return Cost(read, write, work, self._launch + self._wake, total)

    def step(self, step: Step) -> Cost:
        """Return the cost of one step of a plan by cause."""
        if isinstance(step, Call):
            seconds = self.call(step.hop)
            launch = min(seconds, self.machine.call)
            return Cost(0.0, 0.0, seconds - launch, launch, seconds)
        if isinstance(step, WindowKernel):
            return self._window_cost(step)
        if isinstance(step, RowKernel):
            return self._row_cost(step)
        read = sum(self.reads(h) for h in step.inputs)
        write = sum(self.writes(h) for h in step.outputs)
        return self.terms(read, write, sum(map(self.work, step.body)) + self.row_ends(step.body))

    def _window_cost(self, kernel: WindowKernel) -> Cost:
        """Return the cost of a window kernel: stages on blocks of rows that begin with rows carried over."""
        ahead = kernel.lookahead_rows()
        height = window_height(window_row_bytes(kernel), kernel.rows, ahead)
        cached = {*kernel.views, *kernel.intermediates}
        read = sum(self.reads(h) for h in kernel.inputs)
        read += sum(self.cached_reads(h) for s in kernel.stages for h in s.inputs if h in cached)
        write = sum(map(self.writes, kernel.outputs))
        write += sum(self.cached_writes(h) * (1.0 + 2.0 * ahead / height) for h in kernel.intermediates)
        work = sum(sum(map(self.work, s.body)) + self.row_ends(s.body) for s in kernel.stages)
        stages = len(kernel.stages) + len(kernel.intermediates)
        work += STAGE_START_OPERATIONS * self._unit * stages * -(-kernel.rows // height)
        return self.terms(read, write, work)

    def _row_cost(self, kernel: RowKernel) -> Cost:
        """Return the cost of a row kernel: later stages find in the cache what earlier ones read or left."""
        read = write = work = 0.0
        cached: set[Hop] = set()
        by_rows = {h for h, axis in zip(kernel.inputs, kernel.axes, strict=True) if axis is not None}
        for stage in kernel.stages:
            body = stage.body if isinstance(stage, Kernel) else stage.outputs
            read += sum(self.cached_reads(h) if h in cached else self.reads(h) for h in stage.inputs)
            write += sum(
                self.writes(h) if h in kernel.outputs else self.cached_writes(h) for h in stage.outputs)
            work += sum(map(self.work, body)) + self.row_ends(body)
            cached.update((*stage.inputs, *stage.outputs))
            by_rows.update(h for h in stage.outputs if h.meta.shape[:1] == (kernel.rows,))
        work += self.stage_starts(
            len(kernel.stages), kernel.rows, sum(h.meta.nbytes for h in by_rows),
            kernel.template == "Outer", bool(kernel.ordered_outputs))
        return self.terms(read, write, work)

    def call(self, hop: Hop) -> float:
        """Return the seconds of one NumPy call; views are free."""
        return self._memoised("call", hop, self._call)

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
        slow = NUMPY_SLOWDOWN * self.machine.reading(moved, distance, 1)
        work = flops(hop) * self.machine.unit
        if hop.op.transcendental:
            work *= self.machine.scalar
        return self.machine.call + max(slow, work)

    def _product(self, hop: Hop) -> float:
        """Return the seconds of a BLAS product: packing and arithmetic; with a vector, reading."""
        m, k, n = _product_sizes(hop)
        stack = hop.meta.shape[:max(i.meta.ndim for i in hop.inputs) - 2] if hop.op.name == "matmul" else ()
        if stack:
            return self._pairs(hop, prod(stack))
        moved = sum(map(self.reads, hop.inputs))
        if 1 in (m, n):
            return NUMPY_SLOWDOWN * moved
        if hop.meta.dtype.kind not in "fc":  # NumPy's own loops
            work = INTEGER_OPERATIONS * m * k * n * hop.meta.dtype.itemsize / 8
            return NUMPY_SLOWDOWN * moved + work * self.machine.unit
        arithmetic = 2.0 * m * k * n * hop.meta.dtype.itemsize / 8 / self.machine.product
        if _is_symmetric_product(hop):
            arithmetic *= TRIANGLE_FRACTION
        packed = sum(i.meta.size for i in hop.inputs) + hop.meta.size
        return arithmetic + 2.0 * moved + PACK_OPERATIONS * packed * self._operation_seconds(hop)

    def _pairs(self, hop: Hop, count: int) -> float:
        """Return the seconds of NumPy's product of stacks: one pair after the other, on one thread."""
        m, k, n = _product_sizes(hop)
        start, per_element = PAIR_START_OPERATIONS, PAIR_OPERATIONS
        if hop.meta.dtype.kind not in "fc":
            start, per_element = INTEGER_PAIR_START_OPERATIONS, INTEGER_OPERATIONS
        moved = sum(map(self.reads, hop.inputs)) + self.writes(hop)
        work = start * count + per_element * m * k * n * hop.meta.dtype.itemsize / 8
        return NUMPY_SLOWDOWN * moved + work * self.machine.unit


def touched_bytes(hop: Hop, layout: Layout | None) -> float:
    """Return the bytes of all cache lines that reading every element once transfers."""
    if layout is None or layout.shape == ():
        return float(hop.meta.nbytes)
    return _line_bytes(layout, hop.meta.dtype.itemsize)


@lru_cache(maxsize=4096)
def _line_bytes(layout: Layout, size: int) -> float:
    axes = [(abs(s), n) for s, n in zip(layout.strides, layout.shape, strict=True) if s and n != 1]
    step = min((s for s, _ in axes), default=size)
    return float(prod(n for _, n in axes) * min(max(step, size), max(CACHE_LINE_BYTES, size)))


def _copy_operations(operand: Meta, ndim: int) -> float:
    """Return the additions that copying rows takes, to strided destinations."""
    if operand.ndim < ndim or operand.shape[-1] == 1:
        return SCATTERED_COPY_OPERATIONS * operand.size
    return operand.size + ROW_START_OPERATIONS * operand.size / max(operand.shape[-1], 1)


def _is_symmetric_product(hop: Hop) -> bool:
    """Return whether a product is of a matrix's transpose with itself."""
    left, right = hop.inputs
    return left.op.name == "transpose" and left.inputs[0] is right


def _product_sizes(hop: Hop) -> tuple[int, int, int]:
    """Return m, k, n of a product; batch dimensions count as rows."""
    left, right = (i.meta for i in hop.inputs)
    k = left.shape[-1] if left.ndim and right.ndim else 1
    n = right.shape[-1] if right.ndim > 1 else 1
    return hop.meta.size // max(n, 1), k, n
