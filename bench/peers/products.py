"""Rows of matrix products: skinny, small ones in batches, with what follows, attention."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import prange

from bench.peers.row import EXP, Array, Function, Row, normals

DEPTH = 64


def forward(X: Array, V: Array) -> Array:
    return X @ V


def backward(X: Array, Q: Array) -> Array:
    return X.T @ Q


def layer(X: Array, W: Array, b: Array) -> Array:
    return np.maximum(X @ W + b, 0.0)


def batched(A: Array, B: Array) -> Array:
    return A @ B


def batched_loop(A, B):
    n, k = A.shape[1], A.shape[2]
    out = np.empty((A.shape[0], n, B.shape[2]))
    for p in prange(A.shape[0]):
        for i in range(n):
            for j in range(B.shape[2]):
                s = 0.0
                for c in range(k):
                    s += A[p, i, c] * B[p, c, j]
                out[p, i, j] = s
    return out


def attention(Q: Array, K: Array, V: Array) -> Array:
    S = Q @ K.T / math.sqrt(DEPTH)
    E = np.exp(S - S.max(axis=1, keepdims=True))
    return (E / E.sum(axis=1, keepdims=True)) @ V


def attention_torch(torch: Any, Q: Any, K: Any, V: Any) -> Any:
    functional = torch.nn.functional
    return functional.scaled_dot_product_attention(Q[None, None], K[None, None], V[None, None])[0, 0]


def attended(n: int, dtype: str = "f8", tolerance: float = 1e-9, long: bool = False) -> Row:
    """Attention of n tokens to n tokens; n is not scaled, as it counts twice."""
    share = np.dtype(dtype).itemsize / 8
    at = "" if share == 1 else " float32"
    return Row(
        f"attention n={n}{at}", attention,
        lambda rng, scale: normals(*[(n, DEPTH)] * 3, dtype=dtype)(rng, 1.0),
        jax=lambda jax, Q, K, V: jax.nn.softmax(Q @ K.T / math.sqrt(DEPTH), axis=1) @ V,
        torch=attention_torch, work=lambda Q, K, V: share * len(Q) * len(K) * (2 * DEPTH + EXP + 3),
        tolerance=tolerance, long=long)


def product(size: int) -> Function:
    """Work of a product: rows and columns of the first, and columns of the second."""
    return lambda X, *others: float(X.size) * size


ROWS = (
    *(Row(f"X@V 4e5x100, k={k}", forward, normals((400_000, 100), (100, k)), work=product(k),
          array=lambda xp, X, V: X @ V) for k in (8, 64)),
    *(Row(f"X.T@Q 4e5x100, k={k}", backward, normals((400_000, 100), (400_000, k)), work=product(k),
          array=lambda xp, X, Q: X.T @ Q) for k in (8, 64)),
    Row("relu(X@W+b) 20000x27x64", layer, normals((20_000, 27), (27, 64), 64), work=product(64),
        jax=lambda jax, X, W, b: jax.nn.relu(X @ W + b),
        torch=lambda torch, X, W, b: torch.relu(torch.addmm(b, X, W))),
    Row("A@B 2e5 of 4x4", batched, normals((200_000, 4, 4), (200_000, 4, 4)), work=product(4),
        numba=batched_loop, array=lambda xp, A, B: A @ B),
    attended(1024), attended(4096), attended(4096, "f4", 1e-3), attended(16_384, long=True),
)
