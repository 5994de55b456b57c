"""Rows of functions such as exp and sin: what arithmetic bounds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import prange
from scipy.special import erf

from bench.peers.row import DIVIDE, ERF, EXP, LOG, SIN, TANH, Array, Function, Row, normals

SIZE = 10_000_000


def sigmoid(x: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-x))


def log_loss(x: Array, y: Array) -> float:
    return -(y * np.log(sigmoid(x)) + (1.0 - y) * np.log(sigmoid(-x))).sum()


def log_loss_array(xp: Any, x: Any, y: Any) -> Any:
    def sigmoid(x: Any) -> Any:
        return 1.0 / (1.0 + xp.exp(-x))
    return -(y * xp.log(sigmoid(x)) + (1.0 - y) * xp.log(sigmoid(-x))).sum()


def log_loss_loop(x, y):
    total = 0.0
    for i in prange(x.size):  # one exp and one log: log(sigmoid(x)) = log(sigmoid(-x)) + x
        t = math.log(1.0 + math.exp(-abs(x[i])))
        total += t + max(x[i], 0.0) - x[i] * y[i]
    return total


def gaussian(x: Array, y: Array) -> Array:
    return np.exp(-0.5 * (x - y) * (x - y)) * 0.3989422804014327


def gaussian_loop(x, y):
    out = np.empty_like(x)
    half, scale = x.dtype.type(-0.5), x.dtype.type(0.3989422804014327)
    for i in prange(x.size):
        out[i] = math.exp(half * (x[i] - y[i]) * (x[i] - y[i])) * scale
    return out


def log_ratio(x: Array, y: Array) -> Array:
    return np.log(x * x + 1.0) - np.log(y * y + 1.0)


def log_ratio_loop(x, y):
    out = np.empty_like(x)
    for i in prange(x.size):
        out[i] = math.log((x[i] * x[i] + 1.0) / (y[i] * y[i] + 1.0))
    return out


def squash(x: Array, y: Array) -> Array:
    return 0.5 * np.tanh(0.5 * (x + y)) + 0.5


def squash_loop(x, y):
    out = np.empty_like(x)
    for i in prange(x.size):
        out[i] = 0.5 * math.tanh(0.5 * (x[i] + y[i])) + 0.5
    return out


def wave(x: Array, y: Array) -> Array:
    return x * np.sin(x + y) + y


def wave_loop(x, y):
    out = np.empty_like(x)
    for i in prange(x.size):
        out[i] = x[i] * math.sin(x[i] + y[i]) + y[i]
    return out


def normal_cdf(x: Array, y: Array) -> Array:
    return 0.5 * (1.0 + erf((x - y) * 0.7071067811865476))


def normal_cdf_loop(x, y):
    out = np.empty_like(x)
    for i in prange(x.size):
        out[i] = 0.5 * (1.0 + math.erf((x[i] - y[i]) * 0.7071067811865476))
    return out


def labelled(rng: np.random.Generator, scale: float) -> list[Array]:
    size = int(SIZE // 2 * scale)
    return [rng.standard_normal(size), (rng.random(size) < 0.5).astype("f8")]


def each(cost: float) -> Function:
    """Work of so many instructions for every element."""
    return lambda x, *others: cost * x.size * x.itemsize / 8


PAIR = normals(SIZE, SIZE)
ROWS = (
    Row("log-loss, two sigmoids", log_loss, labelled, numba=log_loss_loop, array=log_loss_array,
        numexpr="sum(-(y * log(1 / (1 + exp(-x))) + (1 - y) * log(1 / (1 + exp(x)))))",
        work=each(EXP + LOG + 2 * DIVIDE + 8)),
    Row("exp chain", gaussian, PAIR, numba=gaussian_loop, work=each(EXP + 4),
        numexpr="exp(-0.5 * (x - y) * (x - y)) * 0.3989422804014327",
        array=lambda xp, x, y: xp.exp(-0.5 * (x - y) * (x - y)) * 0.3989422804014327),
    Row("log chain", log_ratio, PAIR, numba=log_ratio_loop, work=each(2 * LOG + 3),
        numexpr="log(x * x + 1) - log(y * y + 1)",
        array=lambda xp, x, y: xp.log(x * x + 1.0) - xp.log(y * y + 1.0)),
    Row("tanh chain", squash, PAIR, numba=squash_loop, work=each(TANH + 3),
        numexpr="0.5 * tanh(0.5 * (x + y)) + 0.5",
        array=lambda xp, x, y: 0.5 * xp.tanh(0.5 * (x + y)) + 0.5),
    Row("sin chain", wave, PAIR, numba=wave_loop, numexpr="x * sin(x + y) + y", work=each(SIN + 2),
        array=lambda xp, x, y: x * xp.sin(x + y) + y),
    Row("erf chain", normal_cdf, PAIR, numba=normal_cdf_loop, work=each(ERF + 3),
        jax=lambda jax, x, y: 0.5 * (1.0 + jax.scipy.special.erf((x - y) * 0.7071067811865476)),
        torch=lambda torch, x, y: 0.5 * (1.0 + torch.erf((x - y) * 0.7071067811865476))),
    Row("exp chain float32", gaussian, normals(SIZE, SIZE, dtype="f4"), numba=gaussian_loop,
        work=each(EXP + 4), tolerance=1e-5,
        numexpr="exp(-0.5 * (x - y) * (x - y)) * 0.3989422804014327",
        array=lambda xp, x, y: xp.exp(-0.5 * (x - y) * (x - y)) * 0.3989422804014327),
)
