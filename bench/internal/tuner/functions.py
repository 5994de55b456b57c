"""The functions whose kernels are tuned, and what they are called with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

RNG = np.random.default_rng(1)


def hypot(x, y):
    return np.sqrt(x * x + y * y)


def gelu(x):
    return 0.5 * x * (1.0 + np.tanh(0.79788456 * (x + 0.044715 * x * x * x)))


def turned(x, y):
    return x + 2.0 * y.T


def blur(a):
    rows = (a[:, :-2] + a[:, 1:-1] + a[:, 2:]) * np.float32(1 / 3)
    return (rows[:-2] + rows[1:-1] + rows[2:]) * np.float32(1 / 3)


def laps(a):
    b = a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:] - 4 * a[1:-1, 1:-1]
    return b[:-2, 1:-1] + b[2:, 1:-1] + b[1:-1, :-2] + b[1:-1, 2:] - 4 * b[1:-1, 1:-1]


def corners(a):
    x, y = a[1:-1, 2:] - a[1:-1, :-2], a[2:, 1:-1] - a[:-2, 1:-1]

    def around(v):
        rows = v[:-2] + v[1:-1] + v[2:]
        return rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]

    xx, xy, yy = around(x * x), around(x * y), around(y * y)
    return xx * yy - xy * xy - np.float32(0.04) * (xx + yy) * (xx + yy)


def softmax(x):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def normed(x, g):
    m = x.mean(axis=1, keepdims=True)
    d = x - m
    return d / np.sqrt((d * d).mean(axis=1, keepdims=True) + 1e-5) * g


def weights(x, w, y):
    return x.T @ (1.0 / (1.0 + np.exp(-(x @ w))) - y)


def dot(x, y):
    return (x * y).sum()


def logsum(x):
    m = x.max(axis=1, keepdims=True)
    return np.log(np.exp(x - m).sum(axis=1)) + m[:, 0]


def multinomial(x, w, y):
    z = x @ w
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return x.T @ (e / e.sum(axis=1, keepdims=True) - y)


def nearest(x, c):
    return ((x * x).sum(axis=1, keepdims=True) - 2 * (x @ c.T) + (c * c).sum(axis=1)).argmin(axis=1)


def gauss(a):
    r = a[:, :-4] + 4 * a[:, 1:-3] + 6 * a[:, 2:-2] + 4 * a[:, 3:-1] + a[:, 4:]
    return (r[:-4] + 4 * r[1:-3] + 6 * r[2:-2] + 4 * r[3:-1] + r[4:]) * np.float32(1 / 256)


def diffusion(a):
    c = 4 * a[1:-1, 1:-1] - (a[2:, 1:-1] + a[:-2, 1:-1] + a[1:-1, 2:] + a[1:-1, :-2])
    x, y = c[1:] - c[:-1], c[:, 1:] - c[:, :-1]
    x = np.where(x * (a[2:-1, 1:-1] - a[1:-2, 1:-1]) > 0, 0, x)
    y = np.where(y * (a[1:-1, 2:-1] - a[1:-1, 1:-2]) > 0, 0, y)
    return a[2:-2, 2:-2] - 0.1 * (x[1:, 1:-1] - x[:-1, 1:-1] + y[1:-1, 1:] - y[1:-1, :-1])


FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str]] = {
    "hypot": (hypot, tuple(RNG.random((2, 600, 500))), "numpy"),
    "gelu": (gelu, (RNG.random((400, 500), np.float32),), "numpy"),
    "turned": (turned, (RNG.random((600, 700)), RNG.random((700, 600))), "numpy"),
    "blur": (blur, (RNG.random((700, 900), np.float32),), "numpy"),
    "laps": (laps, (RNG.random((600, 700)),), "numpy"),
    "corners": (corners, (RNG.random((500, 800), np.float32),), "numpy"),
    "softmax": (softmax, (RNG.random((4000, 60)),), "numpy"),
    "normed": (normed, (RNG.random((3000, 100), np.float32), np.ones(100, np.float32)), "numpy"),
    "weights": (weights, (RNG.random((20_000, 20)), np.ones(20), np.ones(20_000)), "relaxed"),
    "dot": (dot, tuple(RNG.random((2, 400_000))), "relaxed"),
    "logsum": (logsum, (RNG.random((4000, 80)),), "numpy"),
    "multinomial": (multinomial, (RNG.random((10_000, 20)), RNG.random((20, 8)), RNG.random((10_000, 8))),
                    "relaxed"),
    "nearest": (nearest, (RNG.random((6000, 16)), RNG.random((20, 16))), "numpy"),
    "gauss": (gauss, (RNG.random((700, 900), np.float32),), "numpy"),
    "diffusion": (diffusion, (RNG.random((400, 600)),), "numpy"),
}
# The same functions of other sizes: what was measured at one size is history at another.
SHAPES: dict[str, tuple[str, tuple[Any, ...]]] = {
    "softmax-long": ("softmax", (RNG.random((1500, 300)),)),
    "gauss-wide": ("gauss", (RNG.random((300, 2400), np.float32),)),
    "nearest-long": ("nearest", (RNG.random((20_000, 16)), RNG.random((20, 16)))),
    "diffusion-tall": ("diffusion", (RNG.random((900, 300)),)),
    "logsum-long": ("logsum", (RNG.random((1000, 400)),)),
}
FUNCTIONS |= {name: (FUNCTIONS[of][0], args, FUNCTIONS[of][2]) for name, (of, args) in SHAPES.items()}
