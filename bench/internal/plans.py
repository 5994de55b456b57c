"""Plans by cost against plans by rule of thumb, and NumPy: inner loops of machine learning, side by side.

A rule that leads to the same steps as cost is not timed: its code is the same. Memory is that of arrays and
the scratch memory that kernels take from the system: predictions are of both.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

import jitla
from bench.measure import Estimate, estimate, repeats, seconds, settle
from jitla.engine import ENGINE
from jitla.recompile import Program

Array = np.ndarray

RULES = ("none", "patterns", "all", "no-redundancy")
LEAST = 4e-3  # seconds that a batch lasts at least
SLOWER, FASTER = 0.95, 1.5  # bars: a rule nowhere takes less than this of cost's time, somewhere so much

# ------------------------------------------------------------------------------ cases


def l2svm_inner(Xw: Array, Xd: Array, y: Array, step: float, wd: float, dd: float) -> tuple[float, float]:
    out = 1.0 - y * (Xw + step * Xd)
    sv = out > 0
    out = out * sv
    return wd + step * dd - (out * y * Xd).sum(), dd + (Xd * sv * Xd).sum()


def l2svm_gradient(X: Array, y: Array, w: Array) -> tuple[float, Array]:
    out = 1.0 - y * (X @ w)
    out = out * (out > 0)
    return 0.5 * (out * out).sum(), X.T @ (out * y) - w


def hinge(X: Array, y: Array, w: Array) -> tuple[float, Array]:
    out = np.maximum(1.0 - y * (X @ w), 0.0)
    return 0.5 * (out * out).sum(), -(X.T @ (out * y))


def logistic(X: Array, y: Array, w: Array) -> tuple[float, Array]:
    p = 1.0 / (1.0 + np.exp(-(X @ w)))
    return -(y * np.log(p) + (1.0 - y) * np.log(1.0 - p)).sum(), X.T @ (p - y)


def logistic_hessian(X: Array, w: Array, v: Array) -> Array:
    p = 1.0 / (1.0 + np.exp(-(X @ w)))
    return X.T @ (p * (1.0 - p) * (X @ v)) + 0.1 * v


def multinomial(X: Array, Y: Array, W: Array) -> Array:
    z = X @ W
    p = np.exp(z - z.max(axis=1, keepdims=True))
    p = p / p.sum(axis=1, keepdims=True)
    return X.T @ (p - Y)


def multinomial_hessian(X: Array, P: Array, V: Array) -> Array:
    q = P * (X @ V)
    return X.T @ (q - P * q.sum(axis=1, keepdims=True))


def distances(X: Array, C: Array) -> Array:
    return (X * X).sum(axis=1, keepdims=True) - 2.0 * (X @ C.T) + (C * C).sum(axis=1)


def kmeans(X: Array, C: Array) -> tuple[Array, float]:
    d = distances(X, C)
    least = d.min(axis=1, keepdims=True)
    p = (d <= least).astype(float)
    p = p / p.sum(axis=1, keepdims=True)
    return p.T @ X / p.sum(axis=0)[:, None], least.sum()


def glm_poisson(X: Array, y: Array, w: Array) -> tuple[Array, float]:
    eta = X @ w
    mu = np.exp(eta)
    return X.T @ (mu - y), (mu - y * eta).sum()


def glm_weights(y: Array, eta: Array) -> tuple[Array, Array]:
    mu = 1.0 / (1.0 + np.exp(-eta))
    w = mu * (1.0 - mu)
    return w, eta + (y - mu) / w


def pnmf(X: Array, W: Array, H: Array) -> Array:
    return H * (W.T @ (X / (W @ H))) / W.sum(axis=0)[:, None]


def pnmf_loss(X: Array, W: Array, H: Array) -> float:
    V = W @ H
    return V.sum() - (X * np.log(V)).sum()


def autoencoder(X: Array, W1: Array, b1: Array, W2: Array, b2: Array) -> tuple[Array, Array, Array, Array]:
    h = np.tanh(X @ W1 + b1)
    y = 1.0 / (1.0 + np.exp(-(h @ W2 + b2)))
    e = (y - X) * y * (1.0 - y)
    f = (e @ W2.T) * (1.0 - h * h)
    return X.T @ f, f.sum(axis=0), h.T @ e, e.sum(axis=0)


def softmax(X: Array) -> Array:
    e = np.exp(X - X.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def logsumexp(X: Array) -> Array:
    m = X.max(axis=1, keepdims=True)
    return m[:, 0] + np.log(np.exp(X - m).sum(axis=1))


def standardise(X: Array) -> Array:
    mu = X.mean(axis=0)
    return (X - mu) / np.sqrt(((X - mu) ** 2).mean(axis=0))


def normal_equations(X: Array, mu: Array, sd: Array, y: Array) -> tuple[Array, Array]:
    Xs = (X - mu) / sd
    return Xs.T @ Xs, Xs.T @ y


def gram(X: Array, v: Array) -> Array:
    return X.T @ (X @ v)


def weighted(X: Array, w: Array, v: Array) -> Array:
    return X.T @ (w * (X @ v))


def column_statistics(X: Array) -> tuple[Array, Array, Array, Array]:
    return X.sum(axis=0), (X * X).sum(axis=0), X.min(axis=0), X.max(axis=0)


def totals(X: Array, Y: Array) -> tuple[float, float, float, float]:
    return (X * Y).sum(), (X * X).sum(), (Y * Y).sum(), np.abs(X - Y).max()


def norm_rows(X: Array) -> Array:
    return X / np.sqrt((X * X).sum(axis=1, keepdims=True))


def adam(g: Array, m: Array, v: Array, w: Array) -> tuple[Array, Array, Array]:
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    return m, v, w - 0.01 * m / (np.sqrt(v) + 1e-8)


def consumers(A: Array, B: Array, s: float) -> tuple[Array, Array, Array]:
    C = A + s * B
    return C, (C / 2) ** (C - 1), np.exp(C - 1)


def shared_exp(x: Array, a: Array, b: Array) -> tuple[float, Array, float]:
    e = np.exp(x)
    return (e * a).sum(), (e + b)[None, :].sum(axis=0), (e - e.mean()).max()


def outer_scale(x: Array, y: Array, u: Array) -> Array:
    """A value over a small space that many elements of a large one read: not to be computed for each."""
    return np.exp(u * 0.5) * x + np.tanh(u) * y


def chain_of_rows(X: Array) -> tuple[Array, Array]:
    """An expensive value with a reader by rows and one by columns."""
    L = np.log1p(np.exp(X))
    return L.sum(axis=0), L.sum(axis=1)


def gaussian_mixture(X: Array, mu: Array, iv: Array, logw: Array) -> Array:
    q = -0.5 * ((X * X) @ iv.T - 2.0 * (X @ (mu * iv).T) + (mu * mu * iv).sum(axis=1)) + logw
    m = q.max(axis=1, keepdims=True)
    e = np.exp(q - m)
    return e / e.sum(axis=1, keepdims=True)


def polynomial(x: Array) -> tuple[Array, Array]:
    z = 0.5 * x * (1.0 + 0.044715 * x * x)
    t = np.tanh(z)
    return 0.5 * x * (1.0 + t), 0.5 * (1.0 + t) + x * (1.0 - t * t)


def als_residual(X: Array, U: Array, V: Array) -> float:
    return ((X - U @ V.T) ** 2).sum()


def mlp_layer(X: Array, W: Array, b: Array) -> Array:
    return np.maximum(X @ W + b, 0.0)


def pagerank(G: Array, p: Array, e: Array) -> Array:
    return 0.85 * (G @ p) + 0.15 * e * p.sum()


@dataclass
class Case:
    """A function with its arguments; times of the plans by name."""

    name: str
    function: Callable[..., object]
    arguments: list[object]
    plans: dict[str, Callable[..., object]] = field(default_factory=dict)
    same: dict[str, str] = field(default_factory=dict)
    samples: dict[str, list[float]] = field(default_factory=dict)
    times: int = 1
    peaks: tuple[int, int] = (0, 0)  # bytes of the plan by cost: predicted, allocated

    def prepare(self) -> None:
        """Compile one function per rule; those whose steps are the same are one."""
        known: dict[object, str] = {}
        for rule in ("cost", *RULES):
            plan = jitla.jit(self.function, fusion=rule, compile="sync")
            for _ in range(2):
                plan(*self.arguments)
            programs = jitla.explain(plan).record.programs
            key = tuple((p.steps, p.name) for p in programs)
            self.same[rule] = known.setdefault(key, rule)
            if self.same[rule] == rule:
                self.plans[rule] = plan
        programs = jitla.explain(self.plans["cost"]).record.programs
        self.peaks = max(p.cost.peak for p in programs), allocated(self.function, self.arguments)
        self.plans["NumPy"] = self.function
        self.same["NumPy"] = "NumPy"
        self.times = repeats(lambda: self.plans["cost"](*self.arguments), LEAST)

    def measure(self, at: int, clock: Callable[[], float]) -> None:
        """Time all plans once, in an order drawn anew every time: a plan feels what ran before it."""
        for name in np.random.default_rng(at).permutation(list(self.plans)):
            times = max(1, self.times // (4 if name == "NumPy" else 1))
            if clock is not time.thread_time:
                settle()
            self.plans[name](*self.arguments)  # what another plan left in the caches is not its own
            taken = seconds(lambda name=name: self.plans[name](*self.arguments), times, clock)
            self.samples.setdefault(name, []).append(taken)

    def ratio(self, rule: str) -> Estimate:
        """Seconds by `rule` over those by cost, of the same round each."""
        pairs = zip(self.samples[self.same[rule]], self.samples["cost"], strict=True)
        return estimate([a / b for a, b in pairs])


SCRATCH = slice(40, 48)  # where an argument block says how much scratch memory its kernel takes


@contextmanager
def traced_scratch() -> Iterator[None]:
    """Have kernels that are bound meanwhile take their scratch memory where the tracer of memory sees it."""
    made = Program._bind_kernel

    def block(*given: Any) -> tuple[bytes, Callable[..., object]]:
        argument, launch = made(*given)
        return argument, partial(_launch, launch)

    Program._bind_kernel = block  # type: ignore[method-assign, assignment]
    ENGINE._compilers.clear()
    try:
        yield
    finally:
        Program._bind_kernel = made  # type: ignore[method-assign]
        ENGINE._compilers.clear()


def _launch(launch: Callable[..., object], block: bytes, *operands: object) -> object:
    scratch = np.empty(int.from_bytes(block[SCRATCH], "little"), np.uint8)
    flags = launch(block, *operands)
    del scratch
    return flags


def allocated(function: Callable[..., object], arguments: list[object]) -> int:
    """The most bytes that a call has at a time: arrays, as NumPy tells the tracer of memory, and scratch."""
    with traced_scratch():
        call = jitla.jit(function, compile="sync")
        for _ in range(2):
            call(*arguments)
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            result = call(*arguments)
            return tracemalloc.get_traced_memory()[1] - before if result is not None else 0
        finally:
            tracemalloc.stop()


def cases(scale: float) -> Iterator[Case]:
    """All cases; `scale` is the number of elements of their matrices, more or less."""
    rng = np.random.default_rng(3)
    n, k = int(scale / 50), 50

    def real(*shape: int) -> Array:
        return rng.normal(size=shape)

    def positive(*shape: int) -> Array:
        return rng.random(shape) + 0.1

    X, v, w = real(n, k), real(k) * 0.1, real(k) * 0.1
    y = np.sign(real(n))
    b = (y + 1.0) / 2.0
    C, W = real(8, k), real(k, 8) * 0.1
    Y = np.eye(8)[rng.integers(0, 8, n)]
    long = int(scale / 4)
    yield Case("l2svm inner", l2svm_inner, [real(long), real(long), np.sign(real(long)), 0.3, 0.1, 0.2])
    yield Case("l2svm gradient", l2svm_gradient, [X, y, w])
    yield Case("hinge", hinge, [X, y, w])
    yield Case("logistic", logistic, [X, b, w])
    yield Case("logistic hessian", logistic_hessian, [X, w, v])
    yield Case("multinomial", multinomial, [X, Y, W])
    yield Case("multinomial hessian", multinomial_hessian, [X, softmax(real(n, 8)), W])
    yield Case("k-means distances", distances, [X, C])
    yield Case("k-means", kmeans, [X, C])
    yield Case("glm poisson", glm_poisson, [X, np.abs(b), w])
    yield Case("glm weights", glm_weights, [real(long), real(long)])
    wide = [positive(n // 10, k * 10), positive(n // 10, 10), positive(10, k * 10)]
    yield Case("pnmf step", pnmf, wide)
    yield Case("pnmf loss", pnmf_loss, wide)
    yield Case("autoencoder", autoencoder, [
        positive(n // 4, k), real(k, 20) * 0.1, real(20), real(20, k) * 0.1, real(k)])
    yield Case("softmax", softmax, [X])
    yield Case("logsumexp", logsumexp, [X])
    yield Case("standardise", standardise, [X])
    yield Case("normal equations", normal_equations, [X, v, np.abs(w) + 1.0, y])
    yield Case("gram", gram, [X, v])
    yield Case("weighted", weighted, [X, np.abs(y), v])
    yield Case("column statistics", column_statistics, [X])
    yield Case("totals", totals, [X, real(n, k)])
    yield Case("norm rows", norm_rows, [X])
    yield Case("adam", adam, [real(long), real(long), positive(long), real(long)])
    yield Case("consumers", consumers, [positive(long) + 2.0, positive(long), 0.5])
    yield Case("shared exp", shared_exp, [real(long), real(long), real(long)])
    yield Case("outer scale", outer_scale, [X, real(n, k), v])
    yield Case("rows and columns", chain_of_rows, [X])
    yield Case("gaussian mixture", gaussian_mixture, [X, C, positive(8, k), real(8)])
    yield Case("gelu", polynomial, [real(long)])
    yield Case("als residual", als_residual, [real(n // 10, k * 10), real(n // 10, 10), real(k * 10, 10)])
    yield Case("mlp layer", mlp_layer, [X, real(k, 64), real(64)])
    yield Case("pagerank", pagerank, [positive(700, 700), positive(700), positive(700)])


# ------------------------------------------------------------------------------ report


def line(case: Case) -> str:
    """Milliseconds by cost, the ratios, and the plan's memory."""
    words = []
    for name in (*RULES, "NumPy"):
        same = case.same[name] == "cost"
        words.append(f"{'=' if same else case.ratio(name).show():>21}")
    memory = "/".join(f"{n / 1e6:.2f}" for n in case.peaks)
    return f"{case.name:21}{estimate(case.samples['cost']).value * 1e3:9.3f}{''.join(words)}{memory:>14}"


def verdict(all_cases: list[Case]) -> dict[str, object]:
    """Say which bars are met; an interval that holds 1 is no difference."""
    slower, gained = [], {}
    for rule in RULES:
        own = [(c.ratio(rule), c.name) for c in all_cases if c.same[rule] != "cost"]
        slower += [(rule, name, r.value, r.high) for r, name in own if r.value < SLOWER and r.high < 1.0]
        gained[rule] = sum(r.value >= FASTER for r, _ in own)
    return {"slower": slower, "gained": gained}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=float, default=1e6, help="elements of the matrices")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default="", help="parts of the names of cases, separated by commas")
    parser.add_argument("--threads", type=int, default=0, help="with 1, the processor's time is taken, so "
                        "that other programs matter less; OPENBLAS_NUM_THREADS=1 belongs to it")
    parser.add_argument("--reference", action="store_true", help="plan with the constants of no machine")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        jitla.configure(cache_dir=directory, num_threads=options.threads)
        if not options.reference:
            jitla.calibrate()
        wanted = [w for w in options.only.split(",") if w]
        some = [c for c in cases(options.size) if not wanted or any(w in c.name for w in wanted)]
        clock = time.thread_time if options.threads == 1 else time.perf_counter
        report = run(some, options.rounds, clock)
    print(json.dumps(report))


def run(some: list[Case], rounds: int, clock: Callable[[], float]) -> dict[str, object]:
    """Measure, and print a line per case and what came of the bars."""
    heads = "".join(f"{name:>21}" for name in (*RULES, "NumPy"))
    print(f"{'':21}{'cost ms':>9}{heads}{'peak MB':>14}   (times slower than cost, '=': the same steps; "
          "memory predicted/allocated)")
    for case in some:
        start = time.perf_counter()
        case.prepare()
        for at in range(rounds):
            case.measure(at, clock)
        print(f"{line(case)}   {time.perf_counter() - start:.0f} s", flush=True)
    found = verdict(some)
    print(f"slower than a rule by more than 5 %: {found['slower'] or 'nowhere'}")
    print(f"at least {FASTER} times faster than: {found['gained']}")
    large = [max(c.peaks) / max(min(c.peaks), 1) for c in some if max(c.peaks) >= 1e6]
    if large:
        print(f"predicted against allocated memory beyond 1 MB: {len(large)} plans, median factor "
              f"{np.median(large):.3f}, at most {max(large):.3f}")
    return {"bench": "plans", **found, "cases": {c.name: {
        "peaks": c.peaks, **{r: [*vars(c.ratio(r)).values()] for r in c.same}} for c in some}}


if __name__ == "__main__":
    main()
