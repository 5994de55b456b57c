"""What is counted at one place of a decorated function: operations that are no part of a plan.

Knows: the op table, by which it says why. Must not know: sites, sessions.
Receives NumPy's functions; holds counts, times, bytes; says why one is not traced.
"""

from __future__ import annotations

import linecache
from typing import Any

import numpy as np

from jitla.hops import by_numpy


class Fallback:
    """Calls of one NumPy function at one place that were not traced, and why."""

    __slots__ = ("count", "seconds", "reason")

    def __init__(self, func: Any) -> None:
        self.count = 0
        self.seconds = 0.0
        known = by_numpy(func) or by_numpy(vars(np).get(getattr(func, "__name__", "")))
        self.reason = "not in this form, or not of these dtypes" if known else "not in the op table"


class Loop:
    """What was done at one place when it was met: runs of a loop of its own, and NumPy's instead."""

    __slots__ = ("count", "by_numpy", "seconds", "nbytes", "title")

    def __init__(self) -> None:
        self.count = self.by_numpy = self.nbytes = 0
        self.seconds = 0.0
        self.title = ""

    def ran(self, title: str, seconds: float, values: tuple[Any, ...]) -> None:
        """Count a run that read and made `values`."""
        self.title = title
        self.count += 1
        self.seconds += seconds
        self.nbytes += sum(x.nbytes for x in values if isinstance(x, np.ndarray))


def refusal(place: Any, func: Any) -> str:
    """Say at which line of the user's `func` is not traced, why, and what to do."""
    line = linecache.getline(place.file, place.line).strip()
    return (f"{place.file}:{place.line}: {name_of(func)} is not traced by jitla ({Fallback(func).reason})\n"
            f"    {line}\n"
            "remove strict=True to let NumPy run it, or write the line with what docs/supported.md lists")


def name_of(func: Any) -> str:
    """Return what a function is called."""
    return str(getattr(func, "__qualname__", None) or getattr(func, "_name_of__", repr(func)))
