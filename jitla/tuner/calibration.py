"""Measuring the machine once: kernels of the compiler's own on data in every level of memory."""

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

NEAR, SHARED = 512 << 10, 16 << 20  # bytes, where the system does not say how large caches are
PASSES, ROUNDS = 3, 12  # of everything, and of one measurement in a pass: what disturbs it may last
SPAN = 1e-4  # seconds that one measurement lasts: short enough to fall between interruptions
LONG = 4 << 20  # bytes read or written at once: of less, threads would not share the work
COLD = 64 << 20  # bytes of all slices: between two uses of one, the caches have seen the others
MAX_WAKE = 5e-6  # seconds; what takes longer is a thread that slept, or another program
ASLEEP = 1e-3  # seconds after which threads sleep
MIN_ROUSE, MAX_ROUSE = 10e-6, 200e-6  # seconds; what takes longer is another program
PAGE = 2 << 20  # bytes of fresh memory used at once


class Sizes(NamedTuple):
    """Bytes of the caches: that of one thread, and the one all share."""

    near: int
    shared: int

    def named(self) -> tuple[tuple[str, float], ...]:
        """Return the levels of memory, the largest being memory itself."""
        return ("near", self.near), ("shared", self.shared), ("memory", inf)


def cache_sizes(root: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> Sizes:
    """Return what the system says of its caches; usual sizes where it says nothing."""
    found: dict[int, int] = {}
    for entry in sorted(root.glob("index*")):
        try:
            level, size = (int((entry / name).read_text().strip().rstrip("K")) for name in ("level", "size"))
        except (OSError, ValueError):
            continue  # no such file, or written otherwise: as if nothing were said
        if level > 1:
            found[level] = size << 10
    return Sizes(found.get(2, NEAR), max((found[k] for k in found if k > 2), default=SHARED))


def measure(backend: LlvmBackend) -> Machine:
    """Measure this machine."""
    return _Measuring(backend).machine()


class _Measuring:
    """Compilers for one thread and for all, and the kernels that are timed."""

    def __init__(self, backend: LlvmBackend) -> None:
        self.threads = runtime.threads()
        self.backend = backend
        self.compilers = [Compiler(backend, threads=n) for n in {1: None, self.threads: None}]
        self.sizes = cache_sizes()
        self.launch = 0.0  # of a kernel, as far as it is known

    def machine(self) -> Machine:
        """Measure everything in several passes; the best of each is the machine's."""
        size = max(COLD, 2 * self.sizes.shared) // 8
        source, target = np.ones(size), np.ones(size)
        quick, far = [], []
        for _ in range(PASSES):
            quick.append(self._quick())
            self.launch = min(q["launch"] for q in quick)
            far.append(self._memory(source, target))
        best = {name: min(q[name] for q in quick) for name in quick[0]}
        near, shared, memory = (
            MemoryLevel(name, capacity, _best([f[2 * k] for f in far]), _best([f[2 * k + 1] for f in far]))
            for k, (name, capacity) in enumerate(self.sizes.named()))
        return Machine(
            "measured", self.threads, (self._alike(near), self._alike(shared), memory),
            _best([f[-1] for f in far]), unit=best["unit"], launch=best["launch"],
            product=self.threads / best["product"], scalar=max(best["scalar"] / best["unit"], 1.0),
            wake=self._wake(), call=best["call"], fault=_fault(), rouse=self._rouse())

    def _quick(self) -> dict[str, float]:
        """Seconds, measured in a few milliseconds each, of what stays next to the processor."""
        x = np.ones(8)
        launch = min(_times([self._program([_negative(x)], [x])])[0])
        unit = self._unit(launch)
        return {"launch": launch, "unit": unit, "call": min(_times([_call])[0]),
                "scalar": self._scalar(), "product": _product(PACK_OPERATIONS * unit)}

    def _unit(self, launch: float) -> float:
        """Time a chain of known weight; what is read and written stays next to the processor."""
        x = np.linspace(0.5, 1.5, 2048)
        v, one = _leaf(0, x), const(1.0, "f8")
        h = apply("exp", apply("negative", apply("multiply", v, v)))
        h = apply("add", h, apply("multiply", apply("log", apply("add", v, one)), apply("tanh", v)))
        weight = sum(flops(hop) for hop in topo((h,)))
        return (min(_times([self._program([h], [x])])[0]) - launch) / weight

    def _memory(self, source: np.ndarray, target: np.ndarray) -> list[Rate]:
        """Measure reading and writing in every level, and writing around them."""
        near, part = self.sizes.near // 4, min(self.sizes.shared // 4, 2 * LONG)
        found: list[Rate] = []
        for used, size in ((near, near), (part, part // 2), (source.nbytes, LONG)):
            found.append(self._rates(source, None, used, size))
            found.append(self._rates(source, target, used, size, found[-1]))
        return [*found, self._rates(source, target, source.nbytes, LONG, found[-2], nontemporal=True)]

    def _alike(self, level: MemoryLevel) -> MemoryLevel:
        """Every core has its own way to a cache; measuring that takes an idle machine."""
        read, write = (Rate(r.one, r.one * self.threads) for r in (level.read, level.write))
        return level._replace(read=read, write=write)

    def _rates(
        self, source: np.ndarray, target: np.ndarray | None, used: int, size: int, read: Rate | None = None,
        nontemporal: bool = False,
    ) -> Rate:
        """Bytes per second of adding up slices, or of writing: the time of a copy without that of reading."""
        calls = [_slices(c, source, target, used, size, nontemporal) for c in self.compilers]
        found = []
        rounds = ROUNDS if size >= LONG else 4 * ROUNDS  # short ones are measured long enough, too
        for k, times in enumerate(_times(calls, rounds)):
            spent = sorted(times)[len(times) // 10] - self.launch
            if read is not None:
                spent = max(spent - size / (read.all if k else read.one), spent / 4)
            found.append(size / max(spent, 1e-9))
        return Rate(found[0], max(found))

    def _scalar(self) -> float:
        """Seconds that NumPy's loops of functions take, over the weight they have in the compiler's."""
        x = np.linspace(0.5, 1.5, 2048)
        names = ("exp", "log", "tanh", "arctan", "log1p")
        spent = sum(min(_times([partial(getattr(np, name), x)])[0]) for name in names)
        weight = sum(flops(apply(name, _leaf(0, x))) for name in names)
        return spent / weight

    def _wake(self) -> float:
        """What sharing a short kernel costs over its fair part of the time."""
        x = np.linspace(0.5, 1.5, 32768)
        h = apply("log", apply("exp", _leaf(0, x)))
        found = _times([self._program([h], [x], k) for k in range(len(self.compilers))])
        alone, shared = min(found[0]), min(found[-1])
        fair = (alone - self.launch) / self.threads + self.launch
        return min(max(shared - fair, self.launch), MAX_WAKE)

    def _rouse(self) -> float:
        """What sharing a kernel costs over its fair part of the time where the other threads sleep."""
        x = np.linspace(0.5, 1.5, 1 << 18)
        h = apply("log", apply("exp", _leaf(0, x)))
        alone, shared = (self._program([h], [x], k) for k in (0, len(self.compilers) - 1))
        usual, found = [], []
        for _ in range(ROUNDS):
            usual.append(_seconds(alone, 1, time.perf_counter))
            time.sleep(ASLEEP)
            found.append(_seconds(shared, 1, time.perf_counter))
        over = min(found) - min(usual) / self.threads
        return min(max(over, MIN_ROUSE), MAX_ROUSE)

    def _program(
        self, roots: Sequence[Hop], arrays: Sequence[np.ndarray], compiler: int = 0
    ) -> Callable[[], object]:
        """Return what runs the program of `roots`."""
        places = {k: Layout(a.shape, a.strides) for k, a in enumerate(arrays)}
        program = self.compilers[compiler].build(tuple(roots), places)
        bound = program.bind(program.identity(), places)
        return lambda: bound.run(arrays)


def _slices(
    compiler: Compiler, source: np.ndarray, target: np.ndarray | None, used: int, size: int,
    nontemporal: bool,
) -> Callable[[], object]:
    """Return what adds up a slice of `source`, or copies it to `target`, the next one every time."""
    # products of two halves of a slice are added up: kernels mostly read several arrays
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
    places = range(0, used // 8 - size // 8 + 1, size // 8)
    if target is not None:
        arrays = [(source[at:at + n], target[at:at + n]) for at in places]
    else:
        result = np.empty(1)
        arrays = [(*np.split(source[at:at + 2 * n], 2), result) for at in places]
    turns = cycle(arrays)

    def run(keeps: object = executable) -> object:  # the block does not keep its code
        return launch(block, *next(turns))

    return run


def _leaf(slot: int, x: np.ndarray) -> Hop:
    return leaf(slot, Meta(x.shape, x.dtype))


def _negative(x: np.ndarray) -> Hop:
    return apply("negative", _leaf(0, x))


def _times(calls: Sequence[Callable[[], object]], rounds: int = ROUNDS) -> list[list[float]]:
    """Seconds of each call, `rounds` times in turn; short ones are repeated.

    The first is timed by the processor's clock for this thread, which stands still while others run.
    """
    repeats = []
    for call in calls:
        call()
        repeats.append(max(1, int(SPAN / max(_seconds(call, 1), 1e-9))))
    found: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for k, call in enumerate(calls):
            found[k].append(_seconds(call, repeats[k], time.perf_counter if k else time.thread_time))
    return found


def _seconds(
    call: Callable[[], object], times: int, clock: Callable[[], float] = time.thread_time
) -> float:
    start = clock()
    for _ in range(times):
        call()
    return (clock() - start) / times


_SMALL, _RESULT = np.ones((2, 2)), np.empty((2, 2))


def _best(rates: Sequence[Rate]) -> Rate:
    """Return the highest of all rates."""
    return Rate(max(r.one for r in rates), max(r.all for r in rates))


def _product(packed: float) -> float:
    """Seconds that one thread takes for an operation of a product; `packed` are those per element besides."""
    n = 64
    x, out = np.ones((n, n)), np.empty((n, n))
    spent = min(_times([partial(np.matmul, x, x, out)])[0])
    return max(spent - 3 * n * n * packed, spent / 4) / (2.0 * n**3)


def _call() -> object:
    return np.matmul(_SMALL, _SMALL, _RESULT)


def _fault() -> float:
    """Seconds per byte of memory that the system hands out once more, over writing it again.

    Before, it is given back: what no program has used since the machine started may take far longer.
    """
    found = []
    for _ in range(2):
        pages = np.split(np.empty(16 * PAGE // 8), 16)
        first, again = (sorted(_seconds(partial(p.fill, 1.0), 1) for p in pages) for _ in range(2))
        found.append(max(first[4] - again[4], 0.0) / PAGE)
        del pages
    return min(found)
