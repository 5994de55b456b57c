"""Rows that read or write where indices say."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import get_num_threads, prange

from bench.peers.row import Array, Row

GROUPS, BINS, SLOTS = 1000, 100, 100_000
SIZE = 10_000_000


def sums_by_label(labels: Array, weights: Array) -> Array:
    return np.bincount(labels, weights=weights, minlength=GROUPS)


def sums_by_label_loop(labels, weights):
    parts = get_num_threads()
    sums = np.zeros((parts, GROUPS))
    for p in prange(parts):
        for i in range(p * labels.size // parts, (p + 1) * labels.size // parts):
            sums[p, labels[i]] += weights[i]
    return sums.sum(axis=0)


def histogram(x: Array) -> Array:
    return np.histogram(x, bins=BINS, range=(0.0, 1.0))[0]


def histogram_loop(x):
    parts = get_num_threads()
    counts = np.zeros((parts, BINS), np.int64)
    for p in prange(parts):
        for i in range(p * x.size // parts, (p + 1) * x.size // parts):
            counts[p, min(int(x[i] * BINS), BINS - 1)] += 1
    return counts.sum(axis=0)


def looked_up(lut: Array, image: Array) -> Array:
    return lut[image]


def looked_up_loop(lut, image):
    out = np.empty(image.shape, lut.dtype)
    for i in prange(image.shape[0]):
        for j in range(image.shape[1]):
            out[i, j] = lut[image[i, j]]
    return out


def named(table: Array, index: Array) -> Array:
    return table[index]


def named_loop(table, index):
    out = np.empty(index.size)
    for i in prange(index.size):
        out[i] = table[index[i]]
    return out


def sum_of_some(x: Array, mask: Array) -> Any:
    return x[mask].sum()


def sum_of_some_loop(x, mask):
    total = 0.0
    for i in prange(x.size):
        if mask[i]:
            total += x[i]
    return total


def scattered(target: Array, at: Array, values: Array) -> None:
    np.add.at(target, at, values)


def scattered_loop(target, at, values):
    parts = get_num_threads()
    sums = np.zeros((parts, target.size))
    for p in prange(parts):
        for i in range(p * at.size // parts, (p + 1) * at.size // parts):
            sums[p, at[i]] += values[i]
    for i in prange(target.size):
        for p in range(parts):
            target[i] += sums[p, i]


def labels_and_weights(rng: np.random.Generator, scale: float) -> list[Array]:
    size = int(SIZE * scale)
    return [rng.integers(0, GROUPS, size), rng.random(size)]


def uniform(rng: np.random.Generator, scale: float) -> list[Array]:
    return [rng.random(int(SIZE * scale))]


def table_and_image(rng: np.random.Generator, scale: float) -> list[Array]:
    shape = (int(4000 * scale), 4000)
    return [rng.integers(0, 256, 256, dtype="u1"), rng.integers(0, 256, shape, dtype="u1")]


def table_and_index(rng: np.random.Generator, scale: float) -> list[Array]:
    return [rng.random(SLOTS), rng.integers(0, SLOTS, int(SIZE * scale))]


def values_and_mask(rng: np.random.Generator, scale: float) -> list[Array]:
    size = int(SIZE * scale)
    return [rng.random(size), rng.random(size) < 0.5]


def target_and_values(rng: np.random.Generator, scale: float) -> list[Array]:
    size = int(SIZE // 2 * scale)
    return [np.zeros(SLOTS), rng.integers(0, SLOTS, size), rng.random(size)]


ROWS = (
    Row("bincount of 1e7, 1000 sums", sums_by_label, labels_and_weights, numba=sums_by_label_loop,
        jax=lambda jax, i, w: jax.numpy.bincount(i, w, length=GROUPS),
        torch=lambda torch, i, w: torch.bincount(i, w, GROUPS)),
    Row("histogram of 1e7, 100 bins", histogram, uniform, numba=histogram_loop, tolerance=0.02,
        jax=lambda jax, x: jax.numpy.histogram(x, bins=BINS, range=(0.0, 1.0))[0],
        torch=lambda torch, x: torch.histc(x, BINS, 0.0, 1.0).long()),
    Row("lut[image] 4000x4000 uint8", looked_up, table_and_image, numba=looked_up_loop,
        jax=lambda jax, lut, image: lut[image], torch=lambda torch, lut, image: lut[image.int()]),
    Row("x[index], 1e7 of 1e5", named, table_and_index, numba=named_loop,
        jax=lambda jax, table, index: table[index], torch=lambda torch, table, index: table[index]),
    Row("sum(x[mask]) of 1e7", sum_of_some, values_and_mask, numba=sum_of_some_loop,
        jax=lambda jax, x, mask: jax.numpy.where(mask, x, 0.0).sum(),
        torch=lambda torch, x, mask: torch.where(mask, x, 0.0).sum()),
    Row("add.at of 5e6 into 1e5", scattered, target_and_values, numba=scattered_loop, writes=0,
        jax=lambda jax, target, at, values: target.at[at].add(values),
        torch=lambda torch, target, at, values: target.index_add_(0, at, values)),
)
