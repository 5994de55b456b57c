"""Predicted against measured seconds: is the cost model true where the machine's constants are?

Inner parts used: `ENGINE` of jitla, whose blocks are noted as they are bound, `CostModel` of jitla.fusion.
Times are least of many rounds over all cases in turn: what else runs on the machine only adds time.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np

import jitla
from bench.peers import cells as memory_bound
from bench.peers import chains
from jitla.config import current
from jitla.engine import ENGINE
from jitla.fusion import Cost, CostModel, Layout, all_layouts
from jitla.hops import Machine

Array = np.ndarray
LEAST = 3e-4  # seconds that the runs of one round last together
SINGLE = 2e-5  # from here on every run is timed by itself: the shorter, the fewer are interrupted


@dataclass
class Case:
    """A function with its arguments; then the blocks that it ran, and their least seconds."""

    kind: str
    name: str
    function: Callable[..., object]
    arguments: Sequence[Any]
    threads: int = 0
    runs: list[Callable[[], object]] = field(default_factory=list)
    costs: list[Cost] = field(default_factory=list)
    least: float = inf
    repeats: int = 1

    @property
    def predicted(self) -> float:
        """Seconds of all blocks."""
        return sum(c.total for c in self.costs)

    @property
    def factor(self) -> float:
        """Predicted over measured seconds."""
        return self.predicted / self.least

    def prepare(self, machine: Machine) -> None:
        """Run the function decorated, note its blocks, and price their plans."""
        noted: list[tuple[Any, Any, list[Any]]] = []
        bind = ENGINE.bind

        def noting(*given: Any) -> Any:
            bound, reason = bind(*given)
            run = bound.run

            def once(leaves: Sequence[Any]) -> Any:
                noted.append((bound, run, list(leaves)))
                return run(leaves)

            bound.run = once
            return bound, reason

        ENGINE.bind = noting  # type: ignore[method-assign]
        try:
            with jitla.options(num_threads=self.threads):
                ENGINE.compiler(current()).clear()  # plans are for the sizes they were first made for
                jitla.jit(self.function, compile="sync")(*self.arguments)
        finally:
            ENGINE.bind = bind  # type: ignore[method-assign]
        for bound, run, leaves in noted:
            self.runs.append(lambda run=run, leaves=leaves: run(leaves))
            self.costs += self.evaluate(bound.program, leaves, machine)

    def evaluate(self, program: Any, leaves: Sequence[Any], machine: Machine) -> list[Cost]:
        """Predict every step of a program."""
        places = {
            k: Layout(x.shape, x.strides) for k, x in enumerate(leaves) if isinstance(x, Array)}
        cost_model = CostModel(machine, all_layouts(program.plan.outputs, places), self.threads)
        return [cost_model.step(step) for step in program.plan.steps]

    def measure(self) -> None:
        """Run all blocks once more, with what they read in the caches as far as it fits."""
        for run in self.runs:
            run()
        # with one thread, only the processor's time counts, not that of other programs
        clock = time.thread_time if self.threads == 1 else time.perf_counter
        batch = self.repeats if self.least < SINGLE else 1
        for _ in range(self.repeats // batch):
            start = clock()
            for _ in range(batch):
                for run in self.runs:
                    run()
            self.least = min(self.least, (clock() - start) / batch)


# ------------------------------------------------------------------------------ cases


SUMS: dict[int, Callable[..., Array]] = {
    1: lambda a: a * 2.0,
    3: lambda a, b, c: a * b + c,
    8: lambda a, b, c, d, e, f, g, h: a + b - c * d + e - f * g + h,
}


def cells(size: int, rng: np.random.Generator) -> Iterator[Case]:
    """Cells of 1 to 8 inputs at growing sizes, and chains of functions."""
    for n in (1_000, 10_000, 100_000, 1_000_000, size):
        for k in (1, 3, 8) if n < size else (1, 3):
            yield Case("cell", f"{k} inputs, {n:,}", SUMS[k], [rng.random(n) for _ in range(k)])
    for n in (1_000, 30_000, 1_000_000):
        yield Case("functions", f"exp(-x*x), {n:,}", lambda x: np.exp(-x * x), [rng.random(n)])
        yield Case("functions", f"log(x+1)*tanh(x), {n:,}", lambda x: np.log(x + 1.0) * np.tanh(x),
                   [rng.random(n)])
    yield Case("functions", "sin(x)/sqrt(y), 200,000", lambda x, y: np.sin(x) / np.sqrt(y + 1.0),
               [rng.random(200_000) for _ in range(2)])
    yield Case("functions", "exp(x) float32, 1,000,000", lambda x: np.exp(x) + x,
               [rng.random(1_000_000).astype("f4")])
    yield Case("cell", "float32 a*b+c, 1,000,000", lambda a, b, c: a * b + c,
               [rng.random(1_000_000).astype("f4") for _ in range(3)])
    yield Case("cell", "int64 a*b+c, 1,000,000", lambda a, b, c: a * b + c,
               [rng.integers(0, 99, 1_000_000) for _ in range(3)])
    yield Case("cell", "where(x>y,x,0), 1,000,000", lambda x, y: np.where(x > y, x, 0.0),
               [rng.random(1_000_000) for _ in range(2)])
    yield Case("cell", "row vector, 2,000x500", lambda x, v: x * v + 1.0,
               [rng.random((2000, 500)), rng.random(500)])


def aggregates(size: int, rng: np.random.Generator) -> Iterator[Case]:
    """Sums and extremes over rows, columns and everything, of matrices in the caches and beyond."""
    for shape in ((300, 50), (3000, 100), (size // 100, 100)):
        x, y = rng.random(shape), rng.random(shape)
        at = "x".join(map(str, shape))
        yield Case("aggregate", f"sum(x*y) {at}", lambda x, y: (x * y).sum(), [x, y])
        yield Case("aggregate", f"sum(x*y, 0) {at}", lambda x, y: (x * y).sum(axis=0), [x, y])
        yield Case("aggregate", f"sum(x*y, 1) {at}", lambda x, y: (x * y).sum(axis=1), [x, y])
        yield Case("aggregate", f"max(x, 1) {at}", lambda x: x.max(axis=1), [x])
    x = rng.random((3000, 100))
    yield Case("aggregate", "sum, sum of squares, max", lambda x: (x.sum(), (x * x).sum(), x.max()), [x])
    yield Case("aggregate", "rows of 8: sum(x, 1)", lambda x: x.sum(axis=1), [rng.random((40_000, 8))])
    yield Case("aggregate", "softmax rows 2000x100", softmax, [rng.random((2000, 100))])
    yield Case("aggregate", "x - mean(x, 0), 3000x100", lambda x: x - x.mean(axis=0), [x])


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def weighted(x: Array, w: Array, v: Array) -> Array:
    return x.T @ (w * (x @ v))


def logistic(x: Array, y: Array, v: Array) -> Array:
    return x.T @ (1.0 / (1.0 + np.exp(-(x @ v))) - y)


def rows(size: int, rng: np.random.Generator) -> Iterator[Case]:
    """Row kernels: two products of one matrix and what lies between."""
    for m, n in ((500, 50), (5_000, 100), (40_000, 20), (size // 100, 100), (size // 1000, 1000)):
        x, v = rng.random((m, n)), rng.random(n)
        yield Case("row", f"X.T@(w*(X@v)) {m}x{n}", weighted, [x, rng.random(m), v])
    x, v = rng.random((20_000, 60)), rng.random(60)
    yield Case("row", "logistic 20000x60", logistic, [x, rng.random(20_000), v])


def calls(size: int, rng: np.random.Generator) -> Iterator[Case]:
    """BLAS and other calls of NumPy."""
    for m, k, n in ((50, 50, 50), (300, 300, 300), (1000, 500, 200), (20_000, 100, 5)):
        yield Case("call", f"A@B {m}x{k}x{n}", lambda a, b: a @ b, [rng.random((m, k)), rng.random((k, n))])
    for m, n in ((200, 100), (2_000, 500), (size // 100, 100)):
        yield Case("call", f"X@v {m}x{n}", lambda a, b: a @ b, [rng.random((m, n)), rng.random(n)])
        yield Case("call", f"X.T@v {m}x{n}", lambda a, b: a.T @ b, [rng.random((m, n)), rng.random(m)])
    x = rng.random(200_000)
    yield Case("call", "concatenate 200,000", lambda x: np.concatenate((x, x)), [x])
    yield Case("call", "cumsum 200,000", lambda x: np.cumsum(x) + 1.0, [x])
    yield Case("call", "argmax 200,000", lambda x: np.argmax(x), [x])
    yield Case("call", "arctan2 100,000", lambda x: np.arctan2(x, x), [x[:100_000]])


def large(size: int, rng: np.random.Generator) -> Iterator[Case]:
    """Kernels of `bench.kernels`."""
    for row in (*memory_bound.ROWS[:3], *chains.ROWS[1:4]):
        arguments = row.make(rng, size / memory_bound.LARGE)
        for threads in (0, 1):
            at = f"{row.name}, {threads or 'all'} threads"
            yield Case("large", at, row.plain, arguments, threads)


WEIGHED: dict[str, Callable[..., object]] = {
    "add": lambda x, y: x + y + x + y, "multiply": lambda x, y: x * y * x * y,
    "divide": lambda x, y: x / y, "sqrt": lambda x, y: np.sqrt(x),
    "floor_divide": lambda x, y: x // y, "remainder": lambda x, y: x % y,
    "maximum": lambda x, y: np.maximum(x, y), "where": lambda x, y: np.where(x > y, x, y),
    "compare": lambda x, y: (x > y) & (x < 2 * y), "to int64": lambda x, y: x.astype("i8"),
    "to int32": lambda x, y: x.astype("i4"), "absolute": lambda x, y: np.abs(x),
    "floor": lambda x, y: np.floor(x),
    **{f: (lambda x, y, f=getattr(np, f): f(x)) for f in (
        "exp", "expm1", "log", "log10", "log1p", "cbrt", "sin", "cos", "tan", "arcsin", "arctan",
        "sinh", "tanh", "arcsinh", "arctanh")},
}


def weights(size: int, rng: np.random.Generator) -> Iterator[Case]:
    """What single operators weigh: one thread, next to the processor."""
    x, y = (rng.random(4096) * 0.9 + 0.05 for _ in range(2))
    for name, function in WEIGHED.items():
        for dtype in ("f8", "f4"):
            yield Case("weight", f"{name} {dtype}", function, [x.astype(dtype), y.astype(dtype)], 1)
    for name in ("add", "multiply", "divide", "floor_divide", "remainder", "maximum", "where"):
        for dtype in ("i8", "i4", "i2", "u1"):
            whole = [(v * 90 + 3).astype(dtype) for v in (x, y)]
            yield Case("weight", f"{name} {dtype}", WEIGHED[name], whole, 1)
    for name in ("add", "multiply", "divide", "absolute"):
        yield Case("weight", f"{name} c16", WEIGHED[name], [x + 1j * y, y - 1j * x], 1)


FAMILIES = (cells, aggregates, rows, calls, large, weights)

# ------------------------------------------------------------------------------ report


def run(cases: Sequence[Case], machine: Machine, rounds: int) -> None:
    """Measure `cases` in turn."""
    for case in cases:
        case.prepare(machine)
        case.measure()
        case.repeats = max(1, int(LEAST / case.least))
    for _ in range(rounds):
        for case in cases:
            case.measure()


def summary(cases: Sequence[Case]) -> tuple[float, float]:
    """Median and 90th percentile of the error factors."""
    errors = [max(c.predicted, c.least) / max(min(c.predicted, c.least), 1e-9) for c in cases]
    return float(np.median(errors)), float(np.percentile(errors, 90))


def show(cases: Sequence[Case]) -> None:
    """Print a line per case and the errors per class."""
    print(f"{'':48}{'predicted us':>13}{'measured us':>13}{'factor':>8}   read, write, compute, launch us")
    for c in cases:
        parts = [sum(getattr(t, k) for t in c.costs) for k in ("read", "write", "compute", "launch")]
        terms = ", ".join(f"{part * 1e6:.1f}" for part in parts)
        print(f"{c.kind + ': ' + c.name:48}{c.predicted * 1e6:13.1f}{c.least * 1e6:13.1f}"
              f"{c.factor:8.2f}   {terms}")
    for kind in dict.fromkeys(c.kind for c in cases):
        some = [c for c in cases if c.kind == kind]
        middle, high = summary(some)
        print(f"{kind:12} {len(some):3} cases  median error {middle:.2f}, 90th percentile {high:.2f}")
    cases = [c for c in cases if c.kind != "weight"] or cases
    middle, high = summary(cases)
    print(f"{'all plans':12} {len(cases):3} cases  median error {middle:.2f} (bar 1.3), "
          f"90th percentile {high:.2f} (bar 2)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=4_000_000, help="elements of the large arrays")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--threads", type=int, default=0, help="of kernels; BLAS has its own variable")
    parser.add_argument("--only", default="", help="families, separated by commas")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, jitla.options(cache_dir=directory):
        machine = jitla.calibrate()
    print(machine)
    rng = np.random.default_rng(7)
    cases = []
    for family in FAMILIES:
        if not options.only or family.__name__ in options.only.split(","):
            some = list(family(options.size, rng))
            for case in some:
                case.threads = case.threads or options.threads
            run(some, machine, options.rounds)
            cases += some
    show(cases)
    print(json.dumps({"bench": "prediction", "cases": {
        f"{c.kind}: {c.name}": [c.predicted, c.least] for c in cases}}))


if __name__ == "__main__":
    main()
