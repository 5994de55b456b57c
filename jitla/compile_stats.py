"""Counts of what each thread compiles, and the refusal where nothing may be compiled.

Decorating a function needs this file, so it imports little.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import NamedTuple

from jitla.classes import dataclass

__all__ = ["MAKING", "Made", "NothingNew", "Reason", "making"]


class Reason(NamedTuple):
    """Why a block is compiled once more: the guard that failed, what it expected, and what it saw."""

    guard: str
    expected: str
    actual: str


class NothingNew(Exception):
    """Something would have to be planned or compiled where that is switched off; `reason` says why."""

    reason: Reason | None = None


@dataclass(slots=True)
class Made:
    """What was made for one request: plans, kernels compiled and found, and their bytes.

    `allowed`: whether anything may be made.
    """

    allowed: bool = True
    plans: int = 0
    compiled: int = 0
    reused: int = 0
    nbytes: int = 0
    seconds: float = 0.0

    def plan(self) -> None:
        """Note that a plan is made; raise `NothingNew` if none may be."""
        if not self.allowed:
            raise NothingNew
        self.plans += 1

    def kernel(self, nbytes: int | None) -> None:
        """Note that code of `nbytes` was compiled, or was there (None)."""
        self.compiled += nbytes is not None
        self.reused += nbytes is None
        self.nbytes += nbytes or 0

    def check(self) -> None:
        """Raise `NothingNew` where nothing may be compiled."""
        if not self.allowed:
            raise NothingNew


class _Making(threading.local):
    """What the running thread makes now; what nobody asked about is counted together."""

    now: Made = Made()


MAKING = _Making()


@contextmanager
def making(allowed: bool = True) -> Iterator[Made]:
    """Count what the ``with`` block makes in this thread."""
    outer, start = MAKING.now, perf_counter()
    made = MAKING.now = Made(allowed and outer.allowed)
    try:
        yield made
    finally:
        made.seconds = perf_counter() - start
        MAKING.now = outer
