"""Prints what calls take at their peak over arguments and results: rows of the comparison, and indices."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import jitla
from bench.peers import ROWS, pipelines
from bench.peers.row import Row
from jitla import runtime

N, FEW = 10_000_000, 100_000
WORD = 8


def met(table, index, w):
    return table[index] * w + 1.0


def met_and_summed(table, index, w):
    return (table[index] * w).sum()


def met_in_rows(rows, few, u):
    return (rows[few] * u[:, None]).sum(axis=1)


def added_up(index, v, w):
    return np.bincount(index, weights=v * w - 1.0, minlength=FEW)


def added(target, index, v, w):
    np.add.at(target, index, v * 2.0 + w)
    return target


def stored(target, index, v, w):
    target[index] = v * 2.0 + w
    return target


def counted(v, w):
    return np.histogram(v * w + 0.5, bins=100, range=(0.0, 1.0))[0]


def some(v, w, mask):
    return v[mask] * 2.0 - w[mask]


def some_summed(v, w, mask):
    return (v[mask] * w[mask]).sum()


def some_stored(v, w, mask):
    v[mask] = w[mask] * 2.0
    return v


def given(rng: np.random.Generator, scale: float) -> dict[str, np.ndarray]:
    """Arguments by name."""
    n = int(N * scale)
    return {
        "table": rng.random(FEW), "index": rng.integers(0, FEW, n), "v": rng.random(n), "w": rng.random(n),
        "target": rng.random(40 * FEW), "mask": rng.random(n) < 0.5, "rows": rng.random((FEW // 100, 100)),
        "few": rng.integers(0, FEW // 100, n // 100), "u": rng.random(n // 100),
    }


def _made(function: Callable[..., Any]) -> Callable[[np.random.Generator, float], Sequence[np.ndarray]]:
    return lambda rng, scale: [given(rng, scale)[name] for name in function.__code__.co_varnames]


#: What indices, masks and labels say, done in plans and between them: each with the share of all its elements
#: that lies in memory as the result of one plan and the argument of what comes next, in NumPy as well.
INDEXED = {Row(f.__name__, f, _made(f)): share for f, share in (
    (met, 0.0), (met_and_summed, 0.0), (met_in_rows, 1.0), (added_up, 0.0), (added, 1.0),
    (stored, 1.0), (counted, 1.0), (some, 0.0), (some_summed, 0.0), (some_stored, 0.5))}


def status(key: str) -> int:
    """Bytes of this process that the system tells under `key`."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(key))


def size(value: Any, arguments: Sequence[Any] = ()) -> int:
    """Bytes of all arrays in `value`, of those that are none of the arguments."""
    if type(value) is tuple:
        return sum(size(each, arguments) for each in value)
    there = any(isinstance(a, np.ndarray) and np.may_share_memory(a, value) for a in arguments)
    return 0 if there else getattr(value, "nbytes", 0)


def served(function: Any) -> bool:
    """Whether any part of what was called ran in a kernel, or in a loop that follows indices."""
    loops = jitla.explain(function).record.loops
    return bool(function.stats()["kernels"] or any(loop.count > loop.by_numpy for loop in loops))


def taken(row: Row, largest: float) -> int | None:
    """Bytes over arguments and results at the peak of a warm call, and over what NumPy has between calls."""
    few = row.make(np.random.default_rng(5), 0.01)
    scale = min(1.0, 0.01 * largest / max(map(size, few)))
    arguments, function = row.make(np.random.default_rng(5), scale), jitla.jit(row.plain)
    function(*arguments)
    if not served(function):
        return None
    runtime.set_reuse_limit(0)
    gc.collect()
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    before = status("VmRSS")
    result = function(*arguments)
    over = status("VmHWM") - before - size(result, arguments)
    runtime.set_reuse_limit(256 << 20)
    return over - int(INDEXED.get(row, 0.0) * N * scale * WORD)


if __name__ == "__main__":
    large, *names = sys.argv[1:]
    for row in (*ROWS, *INDEXED):
        # the intermediates of pipelines are the user's, whose plans are many
        if row not in pipelines.ROWS and not row.long and (not names or row.name in names):
            print(row.name, taken(row, float(large)), sep="\t", flush=True)
