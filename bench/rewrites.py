"""Rewrites on and off: forty expressions of real programs, what they take by the model and by the clock.

Knows: the public interface, and the stages of compiled programs. Must not know: any rule.
Receives names of cases; prints a table, then how many cases are slower, and the mean speed-up.
"""

from __future__ import annotations

import argparse
import linecache
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import jitla
from bench.measure import repeats, seconds, settle
from jitla.gate import GATE
from jitla.hops import bytes_of, flops, topo
from jitla.recompile import Program

Array = np.ndarray
LEAST = 2e-3  # seconds that a batch lasts at least
TURN, TURNS = 10, 300  # calls in a row, and how many times, of what is small
SLOWER = 1.03  # bar: nothing takes longer by more

# ------------------------------------------------------------------------------ least squares and kin


def normal_equations(X: Array, y: Array, b: Array) -> Array:
    return X.T @ X @ b - X.T @ y


def ridge_gradient(X: Array, y: Array, b: Array) -> Array:
    return X.T @ (X @ b - y) + 0.1 * b


def ridge_step(X: Array, b: Array) -> Array:
    return b - 0.001 * (X.T @ X @ b + 0.1 * b)


def gauss_newton(J: Array, p: Array, d: Array) -> Array:
    return J.T @ np.multiply(d[:, None], J) @ p


def weighted_least_squares(X: Array, w: Array, b: Array) -> Array:
    return (X.T * w) @ X @ b


def weighted_front(X: Array, w: Array, b: Array) -> Array:
    return X.T @ (w * (X @ b))


def weighted_rows(X: Array, w: Array, b: Array) -> Array:
    return (X * w[:, None]).T @ (X @ b)


def weighted_behind(X: Array, w: Array, b: Array) -> Array:
    return (w * (X @ b)) @ X


def weighted_turned(X: Array, w: Array, b: Array) -> Array:
    return X.T @ (w * (b @ X.T))


def weighted_cross(X: Array, w: Array, Y: Array) -> Array:
    return (X * w[:, None]).T @ Y


def scaled_gradient(X: Array, s: Array, r: Array) -> Array:
    return (X * s).T @ r


def hat_diagonal(X: Array, G: Array) -> Array:
    return ((X @ G) * X).sum(axis=1)


def residual_norm(X: Array, Y: Array, B: Array) -> float:
    return ((Y - X @ B) ** 2).sum()


# ------------------------------------------------------------------------------ components, factors


def pca_project(X: Array, V: Array) -> Array:
    return (X - X.mean(axis=0)) @ V


def pca_power(X: Array, v: Array) -> Array:
    w = X.T @ X @ v
    return w / np.sqrt((w * w).sum())


def pca_rebuild(X: Array, V: Array, W: Array) -> Array:
    return X @ V @ V.T @ W


def whitened(X: Array, V: Array, s: Array, w: Array) -> Array:
    return X @ (V * s) @ V.T @ w


def nmf_h(X: Array, W: Array, H: Array) -> Array:
    return H * (W.T @ X) / (W.T @ W @ H + 1e-9)


def nmf_h_spelled(X: Array, W: Array, H: Array) -> Array:
    return H * (W.T @ X) / (W.T @ (W @ H) + 1e-9)


def nmf_w_spelled(X: Array, W: Array, H: Array) -> Array:
    return W * (X @ H.T) / ((W @ H) @ H.T + 1e-9)


def als_gradient(R: Array, U: Array, V: Array) -> Array:
    return (U @ V.T - R) @ V + 0.1 * U


def als_objective(U: Array, V: Array) -> float:
    return ((U @ V.T) ** 2).sum()


def low_rank_apply(U: Array, V: Array, w: Array) -> Array:
    return U @ V.T @ w


def low_rank_turned(U: Array, V: Array, w: Array) -> Array:
    return (U @ V.T).T @ w


def low_rank_total(U: Array, V: Array) -> float:
    return (U @ V.T).sum()


def low_rank_rows(U: Array, V: Array) -> Array:
    return (U @ V.T).sum(axis=1)


# ------------------------------------------------------------------------------ probabilities


def gmm_quadratic(X: Array, L: Array, v: Array) -> Array:
    return X @ L @ L.T @ v


def gmm_moments(R: Array, X: Array) -> tuple[Array, Array]:
    return R.T @ X, R.T @ (X * X)


def gp_mean(K: Array, L: Array, y: Array) -> Array:
    return K @ L.T @ L @ y


def gp_quadratic(y: Array, L: Array) -> float:
    return y @ (L.T @ L) @ y


def gp_gradient(A: Array, dK: Array, a: Array) -> float:
    return (np.outer(a, a) * dK).sum() - (A * dK.T).sum()


def kernel_regression(K: Array, Y: Array, v: Array) -> Array:
    return (K @ Y @ v) / K.sum(axis=1)


def logistic_hessian(X: Array, p: Array, v: Array) -> Array:
    return X.T @ ((p * (1 - p))[:, None] * X) @ v


def logistic_hessian_columns(X: Array, p: Array, V: Array) -> Array:
    return (X.T * (p * (1 - p))) @ X @ V


def softmax_hessian(X: Array, P: Array, V: Array) -> Array:
    Q = P * (X @ V)
    return X.T @ (Q - P * Q.sum(axis=1, keepdims=True))


# ------------------------------------------------------------------------------ graphs, traces, forms


def pagerank(G: Array, p: Array, e: Array, u: Array) -> Array:
    return 0.85 * (G @ p) + 0.15 * (e @ u @ p)


def laplacian(G: Array, d: Array, x: Array) -> Array:
    return d * x - (d[:, None] * G) @ x


def walk_back(G: Array, d: Array, x: Array) -> Array:
    return (d[:, None] * G).T @ x


def normalised_walk(G: Array, d: Array, X: Array) -> Array:
    return (d[:, None] * G * d) @ X


def trace_of_product(A: Array, B: Array) -> float:
    return np.einsum("ij,ji->", A, B)


def bilinear(x: Array, A: Array, B: Array, y: Array) -> float:
    return x @ (A @ B) @ y


def three_factors(A: Array, B: Array, C: Array) -> Array:
    return np.einsum("ij,jk,kl->il", A, B, C)


def krylov(A: Array, v: Array) -> tuple[Array, Array]:
    w = A @ A @ v
    return w, A @ v


def attention_scores(Q: Array, K: Array, V: Array) -> Array:
    return Q @ K.T @ V * 0.125


def scaled_products(A: Array, B: Array, v: Array) -> Array:
    return (2.0 * A) @ (0.5 * B) @ v


def shared_factor(A: Array, B: Array, C: Array) -> tuple[Array, Array]:
    return A @ B @ C, B @ C


def sum_of_products(A: Array, B: Array, C: Array) -> Array:
    return A @ B + A @ C


def difference_applied(A: Array, B: Array, x: Array) -> Array:
    return A @ x - B @ x


def deep_common(A: Array, B: Array, C: Array, D: Array) -> Array:
    return A @ B @ C + A @ D


def cross_moments(X: Array, W: Array, Y: Array, Z: Array) -> Array:
    H = np.tanh(X @ W)
    return np.tanh(H.T @ Y + (Z.T @ H).T)


def mixed_steps(A: Array, x: Array, y: Array) -> Array:
    return 0.3 * (A @ x) + 0.7 * (A @ y)


@dataclass
class Case:
    """A function, shapes of its arguments, the level of numerics."""

    function: Callable[..., Any]
    shapes: list[tuple[int, ...]]
    numerics: str = "numpy"

    @property
    def name(self) -> str:
        """Name of the case; what needs more freedom is marked."""
        return self.function.__name__ + "*" * (self.numerics == "relaxed")


N, K, S = 4000, 100, 800
X, Y1, K1, N1 = (N, K), (N,), (K,), (N,)
SQ, SV = (S, S), (S,)
CASES = [
    Case(normal_equations, [X, Y1, K1]), Case(ridge_gradient, [X, Y1, K1]), Case(ridge_step, [X, K1]),
    Case(gauss_newton, [X, K1, Y1]), Case(weighted_least_squares, [X, Y1, K1]),
    Case(weighted_front, [X, Y1, K1]), Case(weighted_rows, [X, Y1, K1]), Case(weighted_behind, [X, Y1, K1]),
    Case(weighted_turned, [X, Y1, K1]), Case(weighted_cross, [(N, 4 * K), Y1, (N, 5)]),
    Case(scaled_gradient, [(N, 4 * K), (4 * K,), Y1]), Case(hat_diagonal, [X, (K, K)]),
    Case(residual_norm, [X, (N, 20), (K, 20)]),
    Case(pca_project, [X, (K, 10)]), Case(pca_power, [X, K1]), Case(pca_rebuild, [X, (K, 10), (K, K)]),
    Case(whitened, [X, (K, 20), (20,), (K,)]),
    Case(nmf_h, [X, (N, 10), (10, K)]), Case(nmf_h_spelled, [X, (N, 10), (10, K)]),
    Case(nmf_w_spelled, [X, (N, 10), (10, K)]), Case(als_gradient, [X, (N, 10), (K, 10)]),
    Case(als_objective, [(N, 10), (S, 10)], "relaxed"),
    Case(low_rank_apply, [(N, 10), (S, 10), (S,)]), Case(low_rank_turned, [(N, 10), (S, 10), (N,)]),
    Case(low_rank_total, [(N, 10), (S, 10)]), Case(low_rank_rows, [(N, 10), (S, 10)]),
    Case(gmm_quadratic, [X, (K, K), K1]), Case(gmm_moments, [(N, 8), X]),
    Case(gp_mean, [SQ, SQ, SV]), Case(gp_quadratic, [SV, SQ]), Case(gp_gradient, [SQ, SQ, SV]),
    Case(kernel_regression, [SQ, (S, 50), (50,)]), Case(logistic_hessian, [X, Y1, K1]),
    Case(logistic_hessian_columns, [X, Y1, (K, 3)]), Case(softmax_hessian, [X, (N, 5), (K, 5)]),
    Case(pagerank, [SQ, SV, (S, 1), (1, S)]), Case(laplacian, [SQ, SV, SV]),
    Case(walk_back, [SQ, SV, SV]), Case(normalised_walk, [SQ, SV, (S, 4)]), Case(trace_of_product, [SQ, SQ]),
    Case(bilinear, [SV, SQ, SQ, SV]), Case(three_factors, [(60, 50), (50, 40), (40, 30)]),
    Case(krylov, [SQ, SV]), Case(attention_scores, [(S, 64), (S, 64), (S, 64)]),
    Case(scaled_products, [SQ, SQ, SV]), Case(shared_factor, [(S, 60), (60, S), SQ]),
    Case(sum_of_products, [SQ, SQ, SQ], "relaxed"), Case(difference_applied, [SQ, SQ, SV], "relaxed"),
    Case(deep_common, [(S - 20, 400), (400, 400), (400, S), (400, S)], "relaxed"),
    Case(cross_moments, [X, (K, 60), X, X], "relaxed"),
    Case(mixed_steps, [SQ, SV, SV], "relaxed"),
]

# ------------------------------------------------------------------------------ measuring


@dataclass
class Row:
    """What a case takes without and with rewrites; `path` is what the search did."""

    name: str
    flops: tuple[float, float]
    nbytes: tuple[float, float]
    model: tuple[float, float]
    times: tuple[float, float]
    path: str

    @property
    def ratio(self) -> float:
        """How many times faster it is with rewrites."""
        return self.times[0] / self.times[1]


def arguments_of(case: Case) -> list[Array]:
    """Return the arguments, the same every time."""
    rng = np.random.default_rng(5)
    return [rng.standard_normal(shape) + 0.1 for shape in case.shapes]


def compiled(case: Case, arguments: list[Array], **options: Any) -> tuple[Callable[[], Any], Program]:
    """Return a call of the function with `options`, and the last program that was compiled for it."""
    fast = jitla.jit(case.function, compile="sync")

    def call() -> Any:
        with jitla.options(numerics=case.numerics, **options):
            return fast(*arguments)

    call()
    call()
    with jitla.options(numerics=case.numerics, **options) as config:
        return call, GATE.compiler(config).programs()[-1]


def work(program: Program) -> tuple[float, float]:
    """Return the operations of a program, and the bytes that its operators move one by one."""
    hops = topo(program.plan.outputs)
    return sum(map(flops, hops)), float(sum(map(bytes_of, hops)))


def predicted(program: Program) -> float:
    """Return the seconds that the planner expects."""
    assert program.weigh is not None
    return program.weigh().seconds


def measure(case: Case, rounds: int) -> Row:
    """Compile a case both ways, compare the results, and time both in turn."""
    arguments = arguments_of(case)
    made = [compiled(case, arguments, rewrites=on) for on in (False, True)]
    for one, other in zip(*(_flat(call()) for call, _ in made), strict=True):
        scale = float(np.max(np.abs(one))) or 1.0
        assert np.allclose(one, other, rtol=1e-9, atol=1e-9 * scale), case.name
    amounts = [work(program) for _, program in made]
    if made[0][1].plan.outputs == made[1][1].plan.outputs:
        made = made[:1] * 2  # its code is the same
    least = [math.inf, math.inf]
    calls = [call for call, _ in made]
    times = [repeats(call, LEAST) for call in calls]
    for turn in range(rounds):
        for way in ((0, 1) if turn % 2 else (1, 0)) if calls[0] is not calls[1] else (0,):
            settle()
            calls[way]()
            least[way] = min(least[way], min(seconds(calls[way]) for _ in range(times[way])))
    if calls[0] is calls[1]:
        least[1] = least[0]
    model = [predicted(program) for _, program in made]
    found = made[1][1].stages[-1].draft.outcome
    path = " > ".join(made[1][1].fired) if found is None or not found.fired else " > ".join(
        rule.name for rule in found.fired)
    (f0, b0), (f1, b1) = amounts
    return Row(case.name, (f0, f1), (b0, b1), (model[0], model[1]), (least[0], least[1]), path)


def _flat(result: Any) -> list[Array]:
    return [np.asarray(r) for r in (result if isinstance(result, tuple) else (result,))]


def show(rows: list[Row]) -> str:
    """Write the table."""
    head = (f"{'case':<26}{'Mflop':>9}{'after':>9}{'MB':>8}{'after':>8}{'model us':>10}{'after':>8}"
            f"{'us':>9}{'after':>8}{'ratio':>7}  rules")
    lines = [head]
    for r in rows:
        lines.append(
            f"{r.name:<26}{r.flops[0] / 1e6:>9.2f}{r.flops[1] / 1e6:>9.2f}{r.nbytes[0] / 1e6:>8.2f}"
            f"{r.nbytes[1] / 1e6:>8.2f}{r.model[0] * 1e6:>10.1f}{r.model[1] * 1e6:>8.1f}"
            f"{r.times[0] * 1e6:>9.1f}{r.times[1] * 1e6:>8.1f}{r.ratio:>7.2f}  {r.path}")
    mean = math.exp(sum(math.log(r.ratio) for r in rows) / len(rows))
    costlier = [r.name for r in rows if r.model[1] > r.model[0] * 1.001]
    slower = [r.name for r in rows if r.ratio * SLOWER < 1]
    lines.append(f"geometric mean {mean:.2f}; costlier by the model: {costlier}; slower: {slower}")
    return "\n".join(lines)


def bounds(case: Case, tried: tuple[float, ...]) -> str:
    """Say what searches with other bounds come to: predicted microseconds, states expanded and priced."""
    arguments = arguments_of(case)
    words = [f"{case.name:<26}"]
    for bound in tried:
        _, program = compiled(case, arguments, search_bound=bound, search_ms=1000, search_steps=300)
        found = program.stages[-1].draft.outcome
        words.append(f"{bound:>6}: {found.after * 1e6:8.1f} us {found.expanded:4} {found.priced:3}")
    return "  ".join(words)


def small(chains: int) -> str:
    """Compare orders of small products, of 2 to 49 rows and columns, by their least times.

    These calls take microseconds, so they are timed in many short turns.
    """
    rng = np.random.default_rng(8)
    worst, ratios = [], []
    for _ in range(chains):
        lengths = [int(i) for i in rng.integers(2, 50, rng.integers(4, 7))]
        shapes = [(a, b) for a, b in zip(lengths, lengths[1:], strict=False)]
        if rng.random() < 0.5:
            shapes[-1] = shapes[-1][:1]
        case = Case(_chain_of(len(shapes)), list(shapes))
        arguments = arguments_of(case)
        made = [compiled(case, arguments, rewrites=on) for on in (False, True)]
        if made[1][1].fired:
            least = [min(taken) for taken in zip(*(
                [seconds(call, TURN) for call, _ in made] for _ in range(TURNS)), strict=True)]
            ratios.append(least[0] / least[1])
            worst.append((ratios[-1], f"{ratios[-1]:.2f} {shapes}"))
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    least = "\n".join(text for _, text in sorted(worst)[:5])
    return f"{len(ratios)} of {chains} chains reordered, geometric mean {mean:.2f}; the worst:\n{least}"


def _chain_of(count: int) -> Callable[..., Any]:
    """Return a function that multiplies so many factors from the left."""
    names = [f"a{n}" for n in range(count)]
    scope: dict[str, Any] = {}
    source = f"def chain({', '.join(names)}):\n    return {' @ '.join(names)}\n"
    place = f"<chain of {count}>"
    linecache.cache[place] = (len(source), None, source.splitlines(True), place)
    exec(compile(source, place, "exec"), scope)
    return scope["chain"]


def main() -> None:
    """Measure the cases named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bounds", action="store_true", help="search with several bounds, measure nothing")
    parser.add_argument("--small", type=int, default=0, help="compare so many chains of small products")
    given = parser.parse_args()
    if given.small:
        print(small(given.small))
        return
    chosen = [c for c in CASES if not given.names or c.name.rstrip("*") in given.names]
    if given.bounds:
        for case in chosen:
            print(bounds(case, (1.0, 1.01, 1.05, 1.1, 1.3)), flush=True)
        return
    print(show([measure(case, given.rounds) for case in chosen]))


if __name__ == "__main__":
    main()
