"""The directories of public suites, which are not part of this repository."""

from __future__ import annotations

import os
from pathlib import Path

SOURCES = {
    "BENCH_NPBENCH": "github.com/spcl/npbench",
    "BENCH_POLYBENCH": "github.com/UDC-GAC/polybench-python",
    "BENCH_NUMBA_BENCHMARK": "github.com/numba/numba-benchmark",
    "BENCH_NUMBA_EXAMPLES": "github.com/numba/numba-examples",
    "BENCH_PYTHRAN": "github.com/serge-sans-paille/pythran",
    "BENCH_NUMPY_BENCHMARKS": "github.com/serge-sans-paille/numpy-benchmarks",
}


def folder_of(variable: str) -> Path | None:
    """Return the directory of a checkout named by an environment variable, or None if it is not set."""
    text = os.environ.get(variable)
    if not text:
        return None
    folder = Path(text)
    if not folder.is_dir():
        raise NotADirectoryError(f"{variable}={text}: no checkout of {SOURCES[variable]}")
    return folder
