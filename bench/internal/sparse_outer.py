"""Outer products at the stored positions of a sparse matrix: jitla, NumPy by hand, a Numba loop.

`headline`: the plain SciPy expression as jitla runs it, beside the expert's gathered rows and einsum, and
Numba's loop over the entries. `densities`: nanoseconds per entry. `forms`: other expressions.

Inner part used: memory kept for reuse is given back before a peak is measured.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import importlib.util
import json
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import jitla
from jitla import runtime

EPS = 1e-15
BLOCK = 1 << 16  # entries whose factors the expert gathers at once
DENSITIES = (1e-4, 1e-3, 1e-2, 3e-2, 1e-1)
KEPT = 256 << 20  # bytes, as is usual
STATUS = Path("/proc/self/status")


def of_matrix(X: Any, U: Any, V: Any) -> Any:
    return X.multiply(np.log(U @ V.T + EPS)).sum()


def of_array(X: Any, U: Any, V: Any) -> Any:
    return (X * np.log(U @ V.T + EPS)).sum()


def masked_right(X: Any, U: Any, V: Any) -> Any:
    return (X != 0).multiply(U @ V.T) @ V


def masked_left(X: Any, U: Any, V: Any) -> Any:
    return (X != 0).multiply(U @ V.T).T @ U


def squared_loss(X: Any, U: Any, V: Any) -> Any:
    return (X - (X != 0).multiply(U @ V.T)).power(2).sum()


def divergence(X: Any, U: Any, V: Any) -> Any:
    return X.multiply(np.log(U @ V.T)).sum() - (U.sum(axis=0) * V.sum(axis=0)).sum()


def quotient(X: Any, U: Any, V: Any) -> Any:
    return X.multiply(1 / (U @ V.T)) @ V


FORMS = (of_matrix, masked_right, masked_left, squared_loss, divergence, quotient)


def expert(X: Any, U: Any, V: Any) -> Any:
    """Gather the factors of some entries at a time."""
    rows, total = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr)), 0.0
    for k in range(0, X.nnz, BLOCK):
        part = slice(k, k + BLOCK)
        found = np.einsum("ij,ij->i", U[rows[part]], V[X.indices[part]])
        total += (X.data[part] * np.log(found + EPS)).sum()
    return total


def numba_loop() -> Callable[..., Any] | None:
    """Return Numba's loop over the rows, on all threads; None if Numba is not there."""
    if importlib.util.find_spec("numba") is None:
        return None
    numba = importlib.import_module("numba")

    def loop(starts: Any, columns: Any, data: Any, U: Any, V: Any) -> Any:
        total = 0.0
        for i in numba.prange(len(starts) - 1):
            for k in range(starts[i], starts[i + 1]):
                product = U[i, 0] * V[columns[k], 0]
                for j in range(1, U.shape[1]):
                    product += U[i, j] * V[columns[k], j]
                total += data[k] * math.log(product + EPS)
        return total

    compiled = numba.njit(parallel=True, fastmath=True)(loop)
    return lambda X, U, V: compiled(X.indptr, X.indices, X.data, U, V)


def matrix(rng: np.random.Generator, n: int, density: float, dtype: np.dtype) -> Any:
    """Return n x n compressed rows of random positions, in order and none of them twice."""
    rows = [np.flatnonzero(rng.random(n, np.float32) < density).astype(np.int32) for _ in range(n)]
    starts = np.cumsum([0, *map(len, rows)]).astype(np.int32)
    columns = np.concatenate(rows)
    return sp.csr_matrix((rng.random(len(columns)).astype(dtype), columns, starts), shape=(n, n))


def timed(calls: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, tuple[float, float]]:
    """Return the least and the median milliseconds of calls that take turns, warm."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for at in range(rounds + 2):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            times[name] += [time.perf_counter() - start] if at > 1 else []
    return {name: (min(t) * 1e3, float(np.median(t)) * 1e3) for name, t in times.items()}


def peak(call: Callable[[], Any]) -> float:
    """Return the megabytes that a call takes over what there was; nothing kept from before is reused."""
    def status(key: str) -> int:
        return next(int(x.split()[1]) for x in STATUS.read_text().splitlines() if x.startswith(key))

    runtime.set_reuse_limit(0)
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    (STATUS.parent / "clear_refs").write_text("5")
    before = status("VmRSS")
    call()
    over = (status("VmHWM") - before) / 1024
    runtime.set_reuse_limit(KEPT)
    return over


def headline(n: int, depth: int, rounds: int, dtype: np.dtype, density: float = 1e-2) -> dict[str, Any]:
    """Run the expression in both spellings, beside what is written by hand."""
    rng = np.random.default_rng(0)
    X = matrix(rng, n, density, dtype)
    U, V = ((rng.random((n, depth)) + 0.1).astype(dtype) for _ in range(2))
    ours = [jitla.jit(f, compile="sync") for f in (of_matrix, of_array)]
    A = sp.csr_array(X)
    found = ours[0](X, U, V)
    calls = {"csr_matrix": lambda: ours[0](X, U, V), "csr_array": lambda: ours[1](A, U, V)}
    report: dict[str, Any] = {k: v for k, v in timed(calls, rounds).items()}
    if (loop := numba_loop()) is not None:  # its threads still spin when the next call begins: not in turns
        assert abs(loop(X, U, V) / found - 1) < 1e-4
        report["Numba"] = timed({"": lambda: loop(X, U, V)}, rounds)[""]
    report["expert"] = timed({"": lambda: expert(X, U, V)}, 1)[""]
    assert abs(expert(X, U, V) / found - 1) < 1e-4
    report["extra MB"] = peak(calls["csr_matrix"]) if STATUS.exists() else None
    return report


def per_entry(n: int, depth: int, rounds: int, dtype: np.dtype) -> dict[str, Any]:
    """Return milliseconds and nanoseconds per entry for several densities."""
    report = {}
    for density in DENSITIES:
        rng = np.random.default_rng(1)
        X = matrix(rng, n, density, dtype)
        U, V = ((rng.random((n, depth)) + 0.1).astype(dtype) for _ in range(2))
        ours = jitla.jit(of_matrix, compile="sync")
        least, _ = timed({"": lambda ours=ours, X=X, U=U, V=V: ours(X, U, V)}, rounds)[""]
        report[f"{density:g}"] = (X.nnz, least, least * 1e6 / X.nnz)
    return report


def forms(n: int, depth: int, rounds: int, dtype: np.dtype) -> dict[str, Any]:
    """Return milliseconds of jitla and of SciPy, which forms the product, for each form and format."""
    rng = np.random.default_rng(2)
    rows = matrix(rng, n, 1e-2, dtype)
    U, V = ((rng.random((n, depth)) + 0.1).astype(dtype) for _ in range(2))
    report = {}
    for X in (rows, rows.tocsc()):
        for form in FORMS:
            ours = jitla.jit(form, compile="sync")
            calls = {"jitla": lambda f=ours, X=X: f(X, U, V), "SciPy": lambda f=form, X=X: f(X, U, V)}
            best = timed(calls, max(rounds // 4, 1))
            report[f"{X.format} {form.__name__}"] = (best["jitla"][0], best["SciPy"][0])
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=20_000)
    parser.add_argument("--depth", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--parts", default="headline,densities,forms")
    options = parser.parse_args()
    report: dict[str, Any] = {"bench": "sparse_outer"}
    for dtype in map(np.dtype, ("f8", "f4")):
        given = options.depth, options.rounds, dtype
        print(f"== {dtype.name}, {options.size} x {options.size}, rank {options.depth}")
        if "headline" in options.parts:
            report[f"headline {dtype}"] = found = headline(options.size, *given)
            for name, value in found.items():
                numbers = value if type(value) is tuple else (value or 0.0,)
                print(f"  {name:12}" + "  ".join(f"{x:8.1f}" for x in numbers), flush=True)
        if "densities" in options.parts:
            report[f"densities {dtype}"] = found = per_entry(options.size, *given)
            for name, (count, least, each) in found.items():
                print(f"  density {name:8}{count:10}{least:10.2f} ms{each:8.1f} ns", flush=True)
        if "forms" in options.parts:
            report[f"forms {dtype}"] = found = forms(min(options.size, 4000), *given)
            for name, (ours, theirs) in found.items():
                print(f"  {name:20}{ours:10.2f}{theirs:10.2f} ms{theirs / ours:8.1f}", flush=True)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
