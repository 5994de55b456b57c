"""A query over columns: filter, new columns, sums and counts by group, in three styles.

Contestant "numpy" materialises every step, "blocks" is the same per block that fits into the cache,
"jitla" compiles it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import get_num_threads, prange

from bench.peers.row import Array, Function, Row

SIZE, GROUPS, LAST = 10_000_000, 6, 90.0
BLOCK = 16_384  # rows: their columns and temporaries fit into the second cache


def masked(
    group: Array, day: Array, price: Array, discount: Array, tax: Array,
) -> tuple[Array, Array, Array]:
    keep = day <= LAST
    group, price, discount, tax = group[keep], price[keep], discount[keep], tax[keep]
    paid = price * (1.0 - discount)
    return (np.bincount(group, weights=paid, minlength=GROUPS),
            np.bincount(group, weights=paid * (1.0 + tax), minlength=GROUPS),
            np.bincount(group, minlength=GROUPS))


def selected(
    group: Array, day: Array, price: Array, discount: Array, tax: Array,
) -> tuple[Array, Array, Array]:
    keep = day <= LAST
    paid = np.where(keep, price * (1.0 - discount), 0.0)
    return (np.bincount(group, weights=paid, minlength=GROUPS),
            np.bincount(group, weights=paid * (1.0 + tax), minlength=GROUPS),
            np.bincount(group, weights=keep, minlength=GROUPS))


def by_block(query: Function) -> Function:
    """The same query, block by block."""
    def blocked(*columns: Array) -> tuple[Array, ...]:
        parts = [query(*[c[k:k + BLOCK] for c in columns]) for k in range(0, len(columns[0]), BLOCK)]
        return tuple(np.sum(found, axis=0) for found in zip(*parts, strict=True))
    return blocked


def query_loop(group, day, price, discount, tax):
    parts = get_num_threads()
    sums = np.zeros((parts, 3, GROUPS))
    for p in prange(parts):
        for i in range(p * group.size // parts, (p + 1) * group.size // parts):
            if day[i] <= LAST:
                paid = price[i] * (1.0 - discount[i])
                sums[p, 0, group[i]] += paid
                sums[p, 1, group[i]] += paid * (1.0 + tax[i])
                sums[p, 2, group[i]] += 1.0
    total = sums.sum(axis=0)
    return total[0], total[1], total[2]


def query_jax(jax: Any, group: Any, day: Any, price: Any, discount: Any, tax: Any) -> Any:
    keep = day <= LAST
    paid = jax.numpy.where(keep, price * (1.0 - discount), 0.0)
    return tuple(jax.numpy.bincount(group, w, length=GROUPS)
                 for w in (paid, paid * (1.0 + tax), keep * 1.0))


def query_torch(torch: Any, group: Any, day: Any, price: Any, discount: Any, tax: Any) -> Any:
    keep = day <= LAST
    paid = torch.where(keep, price * (1.0 - discount), 0.0)
    return tuple(torch.bincount(group, w, GROUPS) for w in (paid, paid * (1.0 + tax), keep.double()))


def columns(rng: np.random.Generator, scale: float) -> list[Array]:
    size = int(SIZE * scale)
    return [rng.integers(0, GROUPS, size), rng.random(size) * 100.0, rng.random(size) * 1000.0,
            rng.random(size) * 0.1, rng.random(size) * 0.08]


ROWS = tuple(
    Row(f"query of 1e7 rows, by {name}", query, columns, blocked=by_block(query), numba=query_loop,
        jax=query_jax, torch=query_torch)
    for name, query in (("mask", masked), ("where", selected)))
