"""Small networks for scikit-learn's digits, trained by NumPy; ``python -m tests.accel.digits`` shows them.

A perceptron with one hidden layer, and two convolutions with a pooling between and a product behind.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

import jitla

_PLACES = ([0, 1, 2], [0, 1, 2])
TRAINED = 1200  # images; the others are looked at for accuracy


class Digits(NamedTuple):
    images: Any  # [n, 8, 8, 1], from 0 to 1
    labels: Any


def digits() -> tuple[Digits, Digits]:
    """Return what to train with, and what to test with."""
    given = import_module("sklearn.datasets").load_digits()  # not there for every Python
    images = (given.images / 16.0).astype(np.float32)[..., None]
    return Digits(images[:TRAINED], given.target[:TRAINED]), Digits(images[TRAINED:], given.target[TRAINED:])


def perceptron(x, w1, b1, w2, b2):
    hidden = np.maximum(x.reshape(len(x), -1) @ w1 + b1, 0)
    return hidden @ w2 + b2


def convolution(x, w):
    rows, columns = x.shape[1], x.shape[2]
    around = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    total = None
    for i in range(3):
        for j in range(3):
            part = around[:, i:i + rows, j:j + columns] @ w[i, j]
            total = part if total is None else total + part
    return total


def convolutions(x, w1, b1, w2, b2, w3, b3):
    y = np.maximum(convolution(x, w1) + b1, 0)
    y = y.reshape(len(y), 4, 2, 4, 2, -1).max(axis=(2, 4))
    y = np.maximum(convolution(y, w2) + b2, 0)
    return y.reshape(len(y), -1) @ w3 + b3


def accuracy(scores: Any, data: Digits) -> float:
    return float((scores.argmax(1) == data.labels).mean())


def slopes(scores: Any, labels: Any) -> Any:
    """Return the slope of the cross entropy."""
    found = np.exp(scores - scores.max(1, keepdims=True))
    found /= found.sum(1, keepdims=True)
    found[np.arange(len(labels)), labels] -= 1
    return found / len(labels)


def start(rng: np.random.Generator, *shape: int) -> Any:
    return (rng.normal(size=shape) * np.sqrt(2 / np.prod(shape[:-1]))).astype(np.float32)


def train_perceptron(data: Digits, epochs: int = 40, rate: float = 0.5) -> list[Any]:
    rng = np.random.default_rng(1)
    w1, w2 = start(rng, 64, 48), start(rng, 48, 10)
    b1, b2 = np.zeros(48, np.float32), np.zeros(10, np.float32)
    flat = data.images.reshape(len(data.images), -1)
    for _ in range(epochs):
        order = rng.permutation(len(flat))
        for at in range(0, len(flat), 50):
            x, t = flat[order[at:at + 50]], data.labels[order[at:at + 50]]
            hidden = np.maximum(x @ w1 + b1, 0)
            out = slopes(hidden @ w2 + b2, t)
            back = (out @ w2.T) * (hidden > 0)
            for weight, slope in ((w2, hidden.T @ out), (b2, out.sum(0)),
                                  (w1, x.T @ back), (b1, back.sum(0))):
                weight -= rate * slope
    return [w1, b1, w2, b2]


def _around(x: Any) -> Any:
    """Return the nine pixels around each, side by side."""
    n, h, w, _ = x.shape
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    return np.concatenate([padded[:, i:i + h, j:j + w] for i in range(3) for j in range(3)], axis=-1)


def _back(slope: Any, channels: int) -> Any:
    """Return the slope of pixels, of that of `_around`."""
    n, h, w, _ = slope.shape
    total = np.zeros((n, h + 2, w + 2, channels), np.float32)
    for k in range(9):
        total[:, k // 3:k // 3 + h, k % 3:k % 3 + w] += slope[..., k * channels:(k + 1) * channels]
    return total[:, 1:-1, 1:-1]


def train_convolutions(data: Digits, epochs: int = 6, rate: float = 0.1) -> list[Any]:
    rng = np.random.default_rng(2)
    w1, w2, w3 = start(rng, 3, 3, 1, 16), start(rng, 3, 3, 16, 32), start(rng, 512, 10)
    b1, b2, b3 = (np.zeros(n, np.float32) for n in (16, 32, 10))
    for _ in range(epochs):
        order = rng.permutation(len(data.images))
        for at in range(0, len(order), 50):
            x, t = data.images[order[at:at + 50]], data.labels[order[at:at + 50]]
            c1 = _around(x)
            y1 = np.maximum(c1 @ w1.reshape(9, 16) + b1, 0)
            parts = y1.reshape(len(x), 4, 2, 4, 2, 16)
            p1 = parts.max(axis=(2, 4), keepdims=True)
            c2 = _around(p1.reshape(len(x), 4, 4, 16))
            y2 = np.maximum(c2 @ w2.reshape(144, 32) + b2, 0)
            flat = y2.reshape(len(x), -1)
            out = slopes(flat @ w3 + b3, t)
            d2 = (out @ w3.T).reshape(y2.shape) * (y2 > 0)
            d1 = _back(d2 @ w2.reshape(144, 32).T, 16).reshape(p1.shape)
            d1 = ((parts == p1) * d1).reshape(y1.shape) * (y1 > 0)
            for weight, slope in (
                    (w3, flat.T @ out), (b3, out.sum(0)),
                    (w2.reshape(144, 32), np.tensordot(c2, d2, _PLACES)), (b2, d2.sum((0, 1, 2))),
                    (w1.reshape(9, 16), np.tensordot(c1, d1, _PLACES)), (b1, d1.sum((0, 1, 2)))):
                weight -= rate * slope
    return [w1, b1, w2, b2, w3, b3]


NETWORKS = {"perceptron": (perceptron, train_perceptron), "convolutions": (convolutions, train_convolutions)}


def main() -> None:
    known, unknown = digits()
    for name, (network, train) in NETWORKS.items():
        weights = train(known)
        plain = network(unknown.images, *weights)
        print(f"{name}: {accuracy(plain, unknown):.2%} with floats")
        for per_channel in (False, True):
            made = jitla.quantize(network, [(known.images[:200], *weights)], per_channel=per_channel)
            host = made(unknown.images, *weights)
            with jitla.options(accelerator="vta-pynq", placement="forced"):
                device = made(unknown.images, *weights)
            print(f"  {'by column' if per_channel else 'one scale'}: {accuracy(device, unknown):.2%} on "
                  f"bytes, device and host {'equal' if np.array_equal(host, device) else 'DIFFER'}")
            print("    " + str(made.report).replace("\n", "\n    "))


if __name__ == "__main__":
    main()
