"""Networks for torch."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional


def perceptron(X: Any, weights: Any, biases: Any) -> Any:
    """Three layers with rectifiers and a softmax."""
    h = X
    for W, b in zip(weights[:-1], biases[:-1], strict=True):
        h = torch.relu(torch.addmm(b, h, W))
    p = torch.softmax(torch.addmm(biases[-1], h, weights[-1]), dim=1)
    return p, (p ** 2).sum()


def convolution(images: Any, filters: Any, bias: Any, dense: Any) -> Any:
    """One layer of 3 x 3 filters, pooling by two, and scores."""
    maps = torch.relu(functional.conv2d(images[:, None], filters.permute(2, 0, 1)[:, None], bias))
    pooled = functional.max_pool2d(maps, 2).permute(0, 2, 3, 1)
    scores = pooled.reshape(len(images), -1) @ dense
    return scores, scores.sum()


def lstm(X: Any, Wx: Any, Wh: Any, b: Any) -> Any:
    """A cell over a sequence."""
    n = Wh.shape[0]
    h = torch.zeros((X.shape[1], n), dtype=X.dtype)
    c = torch.zeros((X.shape[1], n), dtype=X.dtype)
    for x in X:
        z = x @ Wx + h @ Wh + b
        i = torch.sigmoid(z[:, :n])
        f = torch.sigmoid(z[:, n:2 * n])
        o = torch.sigmoid(z[:, 2 * n:3 * n])
        c = f * c + i * torch.tanh(z[:, 3 * n:])
        h = o * torch.tanh(c)
    return h, h.sum()


def attention(X: Any, Wq: Any, Wk: Any, Wv: Any, Wo: Any) -> Any:
    """One head of attention, its residual and layer normalisation."""
    Q, K, V = X @ Wq, X @ Wk, X @ Wv
    A = functional.scaled_dot_product_attention(Q[None], K[None], V[None])[0]
    out = functional.layer_norm(X + A @ Wo, X.shape[1:], eps=1e-5)
    return out, out.abs().sum()


def step(x: Any, parameters: Any, moved: Any, rate: float) -> Any:
    """One step on one batch, in place."""
    W1, b1, W2, b2, W3, b3 = parameters
    n = len(x)
    h1 = torch.tanh(x @ W1 + b1)
    h2 = torch.tanh(h1 @ W2 + b2)
    error = h2 @ W3 + b3 - x
    d3 = error / n
    d2 = (d3 @ W3.T) * (1 - h2 ** 2)
    d1 = (d2 @ W2.T) * (1 - h1 ** 2)
    gradients = (x.T @ d1, d1.sum(0), h1.T @ d2, d2.sum(0), h2.T @ d3, d3.sum(0))
    for p, v, g in zip(parameters, moved, gradients, strict=True):
        v.mul_(0.9).sub_(rate * g)
        p.add_(v)
    return 0.5 * (error ** 2).sum()


def autoencoder(X: Any, layers: Any, batch: int = 512, epochs: int = 1, rate: float = 0.05) -> Any:
    """Two hidden layers."""
    parameters = [p for W in layers for p in (W.clone(), torch.zeros(W.shape[1], dtype=W.dtype))]
    moved = [torch.zeros_like(p) for p in parameters]
    loss = torch.zeros((), dtype=X.dtype)
    for _ in range(epochs):
        loss = torch.zeros((), dtype=X.dtype)
        for at in range(0, len(X), batch):
            loss = loss + step(X[at:at + batch], parameters, moved, rate)
    return parameters, loss / len(X)
