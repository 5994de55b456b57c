"""Products of sparse matrices, as a user of SciPy writes them, against SciPy: even and skewed rows.

`--numba` times the loops that an expert writes, beside.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

import jitla
from bench.measure import seconds

Array = np.ndarray
Matrix = sp.csr_array | sp.csc_array


def times_vector(X: Matrix, v: Array, w: Array, V: Array, P: Array) -> Array:
    return X @ v


def transposed_times_vector(X: Matrix, v: Array, w: Array, V: Array, P: Array) -> Array:
    return X.T @ w


def gram(X: Matrix, v: Array, w: Array, V: Array, P: Array) -> Array:
    return X.T @ (w * (X @ v))


def logistic(X: Matrix, v: Array, w: Array, V: Array, P: Array) -> Array:
    return X.T @ (1.0 / (1.0 + np.exp(-(X @ v))) - w)


def multinomial(X: Matrix, v: Array, w: Array, V: Array, P: Array) -> Array:
    Q = P * (X @ V)
    return X.T @ (Q - P * Q.sum(axis=1, keepdims=True))


def times_matrix(X: Matrix, v: Array, w: Array, V: Array, P: Array) -> Array:
    return X @ V


def transposed_times_matrix(X: Matrix, v: Array, w: Array, V: Array, P: Array) -> Array:
    return X.T @ P


CASES: dict[str, Callable[..., Array]] = {
    "X @ v": times_vector, "X.T @ w": transposed_times_vector, "X.T @ (w * (X @ v))": gram,
    "X.T @ (sigmoid(X @ v) - w)": logistic, "X.T @ (Q - P * rowsum(Q))": multinomial, "X @ V": times_matrix,
    "X.T @ P": transposed_times_matrix,
}


def even(entries: int, dtype: str) -> sp.csr_array:
    """Make 1,000 columns, of which every row has 20 or so."""
    return sp.csr_array(sp.random(entries // 20, 1000, 0.02, format="csr", dtype=dtype, random_state=1))


def skewed(entries: int, dtype: str) -> sp.csr_array:
    """Make what ratings look like: some users and films have a thousand times as many as others."""
    rng = np.random.default_rng(2)
    users, films = entries // 60, 10_000
    of_user, of_film = (1.0 / np.arange(1, n + 1) ** s for n, s in ((users, 0.8), (films, 0.7)))
    rows = rng.permutation(users)[rng.choice(users, entries, p=of_user / of_user.sum())]
    columns = rng.permutation(films)[rng.choice(films, entries, p=of_film / of_film.sum())]
    made = sp.csr_array((np.ones(entries, dtype), (rows, columns)), shape=(users, films))
    made.data[:] = rng.integers(1, 11, made.nnz) / 2
    return made


def one_long(entries: int, dtype: str) -> sp.csr_array:
    """Make rows of which one has half of all entries."""
    rng, short, width = np.random.default_rng(3), entries // 40, entries // 2
    columns = np.concatenate([rng.integers(0, width, 20 * short), np.arange(width)])
    rows = np.concatenate([np.repeat(np.arange(short), 20), np.full(width, short)])
    return sp.csr_array((np.ones(len(rows), dtype), (rows, columns)), shape=(short + 1, width))


MATRICES: dict[str, Callable[[int, str], sp.csr_array]] = {
    "even": even, "skewed": skewed, "one long": one_long}


def indexed(matrix: Matrix, kind: str) -> Matrix:
    """Give a matrix indices of another size."""
    matrix.indices, matrix.indptr = matrix.indices.astype(kind), matrix.indptr.astype(kind)
    return matrix


def by_numba() -> dict[str, Callable[..., Array]]:
    """Return the loops of an expert, where numba is installed."""
    numba: Any = importlib.import_module("numba")

    @numba.njit(parallel=True, fastmath=True)  # type: ignore[untyped-decorator]
    def product(data: Array, columns: Array, starts: Array, v: Array) -> Array:
        out = np.empty(len(starts) - 1, data.dtype)
        for i in numba.prange(len(starts) - 1):
            total = data.dtype.type(0)
            for k in range(starts[i], starts[i + 1]):
                total += data[k] * v[columns[k]]
            out[i] = total
        return out

    @numba.njit(parallel=True, fastmath=True)  # type: ignore[untyped-decorator]
    def one_pass(data: Array, columns: Array, starts: Array, v: Array, w: Array) -> Array:
        parts = 8
        out = np.zeros((parts, len(v)), data.dtype)
        rows = len(starts) - 1
        for p in numba.prange(parts):
            mine = out[p]
            for i in range(rows * p // parts, rows * (p + 1) // parts):
                total = data.dtype.type(0)
                for k in range(starts[i], starts[i + 1]):
                    total += data[k] * v[columns[k]]
                total *= w[i]
                for k in range(starts[i], starts[i + 1]):
                    mine[columns[k]] += data[k] * total
        return out.sum(axis=0)

    return {
        "X @ v": lambda X, v, w, V, P: product(X.data, X.indices, X.indptr, v),
        "X.T @ (w * (X @ v))": lambda X, v, w, V, P: one_pass(X.data, X.indices, X.indptr, v, w),
    }


def compared(
    calls: dict[str, Callable[[], Array]], rounds: int
) -> dict[str, tuple[float, float]]:
    """Time calls in turn: least and median milliseconds of each."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            taken[name].append(1e3 * seconds(call))
    return {name: (min(each), float(np.median(each))) for name, each in taken.items()}


def show(
    label: str, case: str, matrix: Matrix, rounds: int,
    loops: dict[str, Callable[..., Array]], warm: int,
) -> None:
    """Time one case on one matrix, after so many calls, and print a line."""
    rng, dtype = np.random.default_rng(0), matrix.dtype
    m, n = matrix.shape
    operands = [rng.random(s).astype(dtype) for s in (n, m, (n, 4), (m, 4))]
    plain = CASES[case]
    fast = jitla.jit(plain, compile="sync")
    calls = {"jitla": lambda: fast(matrix, *operands), "scipy": lambda: plain(matrix, *operands)}
    if case in loops and isinstance(matrix, sp.csr_array):
        calls["numba"] = lambda: loops[case](matrix, *operands)
    wanted = plain(matrix, *operands)
    for call in calls.values():
        call()
        np.testing.assert_allclose(call(), wanted, rtol=2e-3 if dtype.itemsize == 4 else 1e-9)
    for _ in range(warm):
        fast(matrix, *operands)
    found = compared(calls, rounds)
    (least, median), (plain_least, plain_median) = found["jitla"], found["scipy"]
    others = "".join(f"  numba {found['numba'][0]:7.2f}" for _ in range("numba" in found))
    print(f"{label:24} {case:28} {least:7.2f} {plain_least:8.2f} {plain_least / least:6.2f} "
          f"{plain_median / median:6.2f}{others}", flush=True)


def main() -> None:
    """Print the table."""
    ask = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    ask.add_argument("--rounds", type=int, default=15)
    ask.add_argument("--entries", type=int, default=4_000_000)
    ask.add_argument("--case", choices=list(CASES), action="append")
    ask.add_argument("--matrix", choices=[*MATRICES], action="append")
    ask.add_argument("--warm", type=int, default=40, help="calls before any is timed")
    ask.add_argument("--numba", action="store_true", help="time loops written by an expert, too")
    given = ask.parse_args()
    loops = by_numba() if given.numba else {}
    print(f"{'matrix':24} {'case':28} {'jitla':>7} {'scipy':>8} {'least':>6} {'median':>6}   (ms; ratios)")
    for name in given.matrix or MATRICES:
        for dtype in ("f8", "f4"):
            rows = MATRICES[name](given.entries, dtype)
            kinds = {f"{name} {dtype}": rows}
            if name == "even" and dtype == "f8":
                kinds["even f8 csc"] = sp.csc_array(rows)
                kinds["even f8 int64"] = indexed(rows.copy(), "i8")
            for label, matrix in kinds.items():
                for case in given.case or CASES:
                    show(label, case, matrix, given.rounds, loops, given.warm)


if __name__ == "__main__":
    main()
