"""Per-thread statistics of compilation, and the error raised where compilation is disabled.

Decorating a function needs this file, so it imports little.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import NamedTuple

from jitla.classes import dataclass

__all__ = ["COMPILING", "CompileStats", "CompilationDisabled", "Reason", "count_compilations"]


class Reason(NamedTuple):
    """Why a block is recompiled: the guard that failed, the expected value, and the actual one."""

    guard: str
    expected: str
    actual: str


class CompilationDisabled(Exception):
    """A plan or kernel would have to be made where that is disabled; `reason` is the failed guard."""

    reason: Reason | None = None


@dataclass(slots=True)
class CompileStats:
    """Statistics of one request: plans, kernels compiled and reused, bytes of code, seconds.

    `allowed`: whether anything may be planned or compiled.
    """

    allowed: bool = True
    plans: int = 0
    compiled: int = 0
    reused: int = 0
    nbytes: int = 0
    seconds: float = 0.0

    def count_plan(self) -> None:
        """Count a plan; raise `CompilationDisabled` if none may be made."""
        if not self.allowed:
            raise CompilationDisabled
        self.plans += 1

    def count_kernel(self, nbytes: int | None) -> None:
        """Count a kernel that was compiled to `nbytes` of code, or reused (None)."""
        self.compiled += nbytes is not None
        self.reused += nbytes is None
        self.nbytes += nbytes or 0

    def require_allowed(self) -> None:
        """Raise `CompilationDisabled` if nothing may be compiled."""
        if not self.allowed:
            raise CompilationDisabled


class _ThreadStats(threading.local):
    """The statistics that this thread adds to; by default one that all threads share."""

    current: CompileStats = CompileStats()


COMPILING = _ThreadStats()


@contextmanager
def count_compilations(allowed: bool = True) -> Iterator[CompileStats]:
    """Collect the statistics of the ``with`` block in this thread."""
    outer, start = COMPILING.current, perf_counter()
    stats = COMPILING.current = CompileStats(allowed and outer.allowed)
    try:
        yield stats
    finally:
        stats.seconds = perf_counter() - start
        COMPILING.current = outer
