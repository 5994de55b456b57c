"""Sixty expressions of real programs that rewrites make cheaper, or leave as they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray

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


def low_rank_both_ways(U: Array, V: Array, x: Array, y: Array) -> tuple[Array, Array]:
    P = U @ V.T
    return P @ x, P.T @ y


def two_directions(X: Array, v: Array, w: Array) -> tuple[Array, Array]:
    H = X.T @ X
    return H @ v, H @ w


def canonical_correlation(X: Array, Y: Array, a: Array, b: Array) -> tuple[Array, Array]:
    C = X.T @ Y
    return C @ b, C.T @ a


def projected_out(Q: Array, Y: Array, z: Array) -> tuple[Array, Array]:
    H = Q @ Q.T
    return Y - H @ Y, z - H @ z


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


def two_curvatures(X: Array, v: Array, w: Array) -> tuple[float, float]:
    F = X.T @ X
    return v @ F @ v, w @ F @ w


def siamese(W: Array, x: Array, z: Array) -> Array:
    return np.abs(np.tanh(x @ W) - np.tanh(z @ W)).sum(axis=1)


def two_chains(P: Array, p: Array, q: Array) -> tuple[Array, Array]:
    return p @ P, q @ P


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


def low_rank_update(A: Array, U: Array, V: Array, x: Array) -> Array:
    return (A + U @ V.T) @ x


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
    Case(low_rank_both_ways, [(N, 10), (S, 10), SV, Y1]), Case(two_directions, [X, K1, K1]),
    Case(canonical_correlation, [X, (N, 60), K1, (60,)]),
    Case(projected_out, [(2000, 20), (2000, 5), (2000,)]), Case(two_curvatures, [X, K1, K1]),
    Case(siamese, [SQ, (4, S), (4, S)]), Case(two_chains, [(2 * S, 2 * S), (16, 2 * S), (16, 2 * S)]),
    Case(low_rank_update, [SQ, (S, 5), (S, 5), SV], "relaxed"),
]
