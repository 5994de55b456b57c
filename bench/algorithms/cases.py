"""What is run: a script on so many rows, of a type, dense or sparse, drawn or real."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from bench.algorithms import DENSE, frames, real
from bench.algorithms.sparse import ALGORITHMS, Algorithm, drawn

DENSITIES = (0.1, 0.01, 0.001)
COLUMNS = 1000  # of sparse matrices
MADE = {script.name: script for script in (*DENSE, *frames.FRAMES)}
OF_SPARSE = {f"{algorithm.name}, sparse": algorithm for algorithm in ALGORITHMS}
NAMES = (*MADE, *OF_SPARSE)


@dataclass(frozen=True)
class Case:
    """A script, and what it runs on: "dense", a density, or the name of real data."""

    script: str
    rows: int
    dtype: str
    data: str

    @property
    def key(self) -> str:
        """The case as a line of text."""
        return f"{self.script} | {self.rows} | {self.dtype} | {self.data}"

    def record(self) -> dict[str, Any]:
        """The case as JSON has it."""
        return asdict(self)


@dataclass(frozen=True)
class Work:
    """A function of NumPy with its arguments."""

    plain: Callable[..., Any]
    arguments: tuple[Any, ...]


def cases(rows: list[int], dtypes: list[str], densities: list[float], real_too: bool) -> list[Case]:
    """Return all cases, the small ones first; real data have the rows they have, which is written as 0."""
    dense = [Case(name, n, dtype, "dense") for n in sorted(rows) for name in MADE for dtype in dtypes]
    thin = [Case(name, n, "float64", f"{density:g}")
            for n in sorted(rows) for name in OF_SPARSE for density in densities]
    found = [Case(name, 0, "float64", data) for name, data in real.REAL] if real_too else []
    return dense + thin + found


def work(case: Case) -> Work:
    """Return the function of `case` and its arguments; nothing but the case decides what is drawn."""
    rng = np.random.default_rng(zlib.crc32(case.key.encode()))
    if (case.script, case.data) in real.REAL:
        made = real.REAL[case.script, case.data](rng)
        return Work(_plain(case.script), made)
    if case.script in OF_SPARSE:
        X = drawn(case.rows, COLUMNS, float(case.data), rng, sp.csr_array)
        return _of_sparse(OF_SPARSE[case.script], X, rng)
    script = MADE[case.script]
    return Work(script.plain, script.make(case.rows, np.dtype(case.dtype), rng))


def _plain(name: str) -> Callable[..., Any]:
    return OF_SPARSE[name].plain if name in OF_SPARSE else MADE[name].plain


def _of_sparse(algorithm: Algorithm, X: Any, rng: np.random.Generator) -> Work:
    return Work(algorithm.plain, (*algorithm.arguments(X, rng), algorithm.steps))


def objective(result: Any) -> float:
    """Return the number that says how good a result is."""
    return float(result.objective if hasattr(result, "objective") else result[-1])


def iterations(result: Any) -> int | None:
    """Return how many iterations a result took, where it says so."""
    return int(result.outer) if hasattr(result, "outer") else None
