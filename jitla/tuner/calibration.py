"""Calibration of the cost model's machine: compiled kernels are timed on data in every level of memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle
from math import inf
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jitla import runtime
from jitla.codegen import LlvmBackend
from jitla.fusion import PACK_OPERATIONS, Form, Geometry, Kernel, Layout, Schedule, structure_key
from jitla.hops import (
    Hop,
    Machine,
    MemoryLevel,
    Meta,
    Rate,
    apply,
    const,
    flops,
    leaf,
    make,
    topo,
)
from jitla.recompile import Compiler

DEFAULT_NEAR_BYTES, DEFAULT_SHARED_BYTES = 512 << 10, 16 << 20  # where the system does not report caches
PASSES, ROUNDS = 3, 12  # passes over everything, and rounds of a measurement in a pass: disturbances last
SPAN_SECONDS = 1e-4  # of one measurement: short enough to fall between interruptions
SLICE_BYTES = 4 << 20  # read or written at once: less would not be shared among threads
COLD_BYTES = 64 << 20  # of all slices: between two uses of one the others evict it from the caches
MAX_WAKE_SECONDS = 5e-6  # longer times are sleeping threads or other programs
SLEEP_SECONDS = 1e-3  # after which threads sleep
MIN_ROUSE_SECONDS, MAX_ROUSE_SECONDS = 10e-6, 200e-6  # longer times are other programs
CHUNK_BYTES = 2 << 20  # of fresh memory that is touched at once


class CacheSizes(NamedTuple):
    """Bytes of the caches: the private one of a core, and the shared one."""

    near: int
    shared: int

    def levels(self) -> tuple[tuple[str, float], ...]:
        """Return the levels of memory with their capacities; main memory is the last."""
        return ("near", self.near), ("shared", self.shared), ("memory", inf)


def cache_sizes(root: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> CacheSizes:
    """Return the cache sizes that the system reports, or defaults."""
    sizes: dict[int, int] = {}
    for entry in sorted(root.glob("index*")):
        try:
            level, size = (int((entry / name).read_text().strip().rstrip("K")) for name in ("level", "size"))
        except (OSError, ValueError):
            continue  # missing file or unknown format
        if level > 1:
            sizes[level] = size << 10
    shared = max((sizes[k] for k in sizes if k > 2), default=DEFAULT_SHARED_BYTES)
    return CacheSizes(sizes.get(2, DEFAULT_NEAR_BYTES), shared)


def measure(backend: LlvmBackend) -> Machine:
    """Measure this machine."""
    return _Calibration(backend).machine()


class _Calibration:
    """The calibration run: compilers for one thread and for all, and the kernels that are timed."""

    def __init__(self, backend: LlvmBackend) -> None:
        self.threads = runtime.threads()
        self.backend = backend
        self.compilers = [Compiler(backend, threads=n) for n in {1: None, self.threads: None}]
        self.sizes = cache_sizes()
        self.launch = 0.0  # seconds of a launch, as known so far

    def machine(self) -> Machine:
        """Measure everything in several passes and return the machine of the best values."""
        size = max(COLD_BYTES, 2 * self.sizes.shared) // 8
        source, target = np.ones(size), np.ones(size)
        quick, far = [], []
        for _ in range(PASSES):
            quick.append(self._measure_core())
            self.launch = min(q["launch"] for q in quick)
            far.append(self._measure_memory(source, target))
        best = {name: min(q[name] for q in quick) for name in quick[0]}
        near, shared, memory = (
            MemoryLevel(name, capacity, _best([f[2 * k] for f in far]), _best([f[2 * k + 1] for f in far]))
            for k, (name, capacity) in enumerate(self.sizes.levels()))
        return Machine(
            "measured", self.threads,
            (self._scale_to_all_cores(near), self._scale_to_all_cores(shared), memory),
            _best([f[-1] for f in far]), unit=best["unit"], launch=best["launch"],
            product=self.threads / best["product"], scalar=max(best["scalar"] / best["unit"], 1.0),
            wake=self._wake(), call=best["call"], fault=_fault(), rouse=self._rouse())

    def _measure_core(self) -> dict[str, float]:
        """Return the seconds of launches, units of work, calls and products, on data in the first cache."""
        x = np.ones(8)
        launch = min(_times([self._program([_negative(x)], [x])])[0])
        unit = self._unit(launch)
        return {"launch": launch, "unit": unit, "call": min(_times([_call])[0]),
                "scalar": self._scalar(), "product": _product(PACK_OPERATIONS * unit)}

    def _unit(self, launch: float) -> float:
        """Return the seconds of one unit of work: a chain of known weight on data in the first cache."""
        x = np.linspace(0.5, 1.5, 2048)
        v, one = _leaf(0, x), const(1.0, "f8")
        h = apply("exp", apply("negative", apply("multiply", v, v)))
        h = apply("add", h, apply("multiply", apply("log", apply("add", v, one)), apply("tanh", v)))
        weight = sum(flops(hop) for hop in topo((h,)))
        return (min(_times([self._program([h], [x])])[0]) - launch) / weight

    def _measure_memory(self, source: np.ndarray, target: np.ndarray) -> list[Rate]:
        """Return the rates of reads and writes in every level, and of nontemporal writes."""
        near_bytes, shared_bytes = self.sizes.near // 4, min(self.sizes.shared // 4, 2 * SLICE_BYTES)
        rates: list[Rate] = []
        for working_set, size in ((near_bytes, near_bytes), (shared_bytes, shared_bytes // 2),
                                  (source.nbytes, SLICE_BYTES)):
            rates.append(self._rates(source, None, working_set, size))
            rates.append(self._rates(source, target, working_set, size, rates[-1]))
        return [*rates, self._rates(source, target, source.nbytes, SLICE_BYTES, rates[-2], nontemporal=True)]

    def _scale_to_all_cores(self, level: MemoryLevel) -> MemoryLevel:
        """Return a level with rates that scale with cores; measuring that would need an idle machine."""
        read, write = (Rate(r.one, r.one * self.threads) for r in (level.read, level.write))
        return level._replace(read=read, write=write)

    def _rates(
        self, source: np.ndarray, target: np.ndarray | None, used: int, size: int, read: Rate | None = None,
        nontemporal: bool = False,
    ) -> Rate:
        """Return bytes per second of reads, or of writes: the time of a copy minus that of the read."""
        calls = [_slice_runner(c, source, target, used, size, nontemporal) for c in self.compilers]
        rates = []
        rounds = ROUNDS if size >= SLICE_BYTES else 4 * ROUNDS  # short ones need more
        for k, times in enumerate(_times(calls, rounds)):
            seconds = sorted(times)[len(times) // 10] - self.launch
            if read is not None:
                seconds = max(seconds - size / (read.all if k else read.one), seconds / 4)
            rates.append(size / max(seconds, 1e-9))
        return Rate(rates[0], max(rates))

    def _scalar(self) -> float:
        """Return the seconds of NumPy's scalar loops per unit of their weight in compiled kernels."""
        x = np.linspace(0.5, 1.5, 2048)
        names = ("exp", "log", "tanh", "arctan", "log1p")
        seconds = sum(min(_times([partial(getattr(np, name), x)])[0]) for name in names)
        weight = sum(flops(apply(name, _leaf(0, x))) for name in names)
        return seconds / weight

    def _wake(self) -> float:
        """Return the overhead of splitting a short kernel among awake threads."""
        x = np.linspace(0.5, 1.5, 32768)
        h = apply("log", apply("exp", _leaf(0, x)))
        timings = _times([self._program([h], [x], k) for k in range(len(self.compilers))])
        alone, shared = min(timings[0]), min(timings[-1])
        fair_share = (alone - self.launch) / self.threads + self.launch
        return min(max(shared - fair_share, self.launch), MAX_WAKE_SECONDS)

    def _rouse(self) -> float:
        """Return the overhead of splitting a kernel among sleeping threads."""
        x = np.linspace(0.5, 1.5, 1 << 18)
        h = apply("log", apply("exp", _leaf(0, x)))
        alone, shared = (self._program([h], [x], k) for k in (0, len(self.compilers) - 1))
        single, shared_seconds = [], []
        for _ in range(ROUNDS):
            single.append(_seconds(alone, 1, time.perf_counter))
            time.sleep(SLEEP_SECONDS)
            shared_seconds.append(_seconds(shared, 1, time.perf_counter))
        excess = min(shared_seconds) - min(single) / self.threads
        return min(max(excess, MIN_ROUSE_SECONDS), MAX_ROUSE_SECONDS)

    def _program(
        self, roots: Sequence[Hop], arrays: Sequence[np.ndarray], compiler: int = 0
    ) -> Callable[[], object]:
        """Return a function that runs the compiled program of `roots` on `arrays`."""
        layouts = {k: Layout(a.shape, a.strides) for k, a in enumerate(arrays)}
        program = self.compilers[compiler].build(tuple(roots), layouts)
        bound = program.bind(program.identity(), layouts)
        return lambda: bound.run(arrays)


def _slice_runner(
    compiler: Compiler, source: np.ndarray, target: np.ndarray | None, used: int, size: int,
    nontemporal: bool,
) -> Callable[[], object]:
    """Return a function that sums the next slice of `source`, or copies it to `target`, at every call."""
    # the sum is over products of both halves of a slice: kernels mostly read several arrays
    n = size // 8 if target is not None else size // 16
    inputs = [leaf(k, Meta((n,), source.dtype)) for k in range(1 if target is not None else 2)]
    if target is None:
        root = make("sum", [apply("multiply", *inputs)], axis=(0,), keepdims=False)
        form, geometry = Form("full", 1, "ccb"), Geometry((n,), ((8,), (8,), (0,)))
    else:
        root, form = apply("negative", inputs[0]), Form("cell", 1, "cc")
        geometry = Geometry((n,), ((8,),) * 2)
    body = tuple(h for h in topo((root,)) if h.inputs)
    kernel = Kernel("Cell" if target is not None else "MAgg", (n,), tuple(inputs), body, (root,))
    schedule = Schedule(threads=compiler.threads, nontemporal=nontemporal)
    executable, launch = compiler.executable(kernel, structure_key(kernel), form, schedule)
    block = executable.template(geometry)
    arrays: list[tuple[np.ndarray, ...]]
    offsets = range(0, used // 8 - size // 8 + 1, size // 8)
    if target is not None:
        arrays = [(source[offset:offset + n], target[offset:offset + n]) for offset in offsets]
    else:
        result = np.empty(1)
        arrays = [(*np.split(source[offset:offset + 2 * n], 2), result) for offset in offsets]
    slices = cycle(arrays)

    # keeps the code alive, as the block does not
    def run(executable_reference: object = executable) -> object:
        return launch(block, *next(slices))

    return run


def _leaf(slot: int, x: np.ndarray) -> Hop:
    return leaf(slot, Meta(x.shape, x.dtype))


def _negative(x: np.ndarray) -> Hop:
    return apply("negative", _leaf(0, x))


def _times(calls: Sequence[Callable[[], object]], rounds: int = ROUNDS) -> list[list[float]]:
    """Return the seconds of each call, timed alternately in `rounds` rounds; short ones are repeated.

    The first is timed by the thread's processor clock, which excludes preemption.
    """
    repeats = []
    for call in calls:
        call()
        repeats.append(max(1, int(SPAN_SECONDS / max(_seconds(call, 1), 1e-9))))
    timings: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for k, call in enumerate(calls):
            timings[k].append(_seconds(call, repeats[k], time.perf_counter if k else time.thread_time))
    return timings


def _seconds(
    call: Callable[[], object], times: int, clock: Callable[[], float] = time.thread_time
) -> float:
    start = clock()
    for _ in range(times):
        call()
    return (clock() - start) / times


_SMALL, _RESULT = np.ones((2, 2)), np.empty((2, 2))


def _best(rates: Sequence[Rate]) -> Rate:
    """Return the maximum of rates."""
    return Rate(max(r.one for r in rates), max(r.all for r in rates))


def _product(packed: float) -> float:
    """Return the seconds per operation of a product on one thread; `packed`: of packing, per element."""
    n = 64
    x, out = np.ones((n, n)), np.empty((n, n))
    seconds = min(_times([partial(np.matmul, x, x, out)])[0])
    return max(seconds - 3 * n * n * packed, seconds / 4) / (2.0 * n**3)


def _call() -> object:
    return np.matmul(_SMALL, _SMALL, _RESULT)


def _fault() -> float:
    """Return the extra seconds per byte of writing fresh pages instead of touched ones.

    The memory is freed once before: pages that were never used since the machine started take far longer.
    """
    samples = []
    for _ in range(2):
        pages = np.split(np.empty(16 * CHUNK_BYTES // 8), 16)
        first, second = (sorted(_seconds(partial(p.fill, 1.0), 1) for p in pages) for _ in range(2))
        samples.append(max(first[4] - second[4], 0.0) / CHUNK_BYTES)
        del pages
    return min(samples)
