"""One nest for one kind of values: what became of it; and one run of it by Python.

Knows: clocks. Must not know: when a nest is compiled, or trusted.
Receives what was found out; returns how often compiled code ran, and how long.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from time import perf_counter
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

from jitla.classes import dataclass

if TYPE_CHECKING:  # what most functions need never
    from jitla.loops.call import Code
    from jitla.loops.opening import Door


@dataclass(eq=False)
class Variant:
    """One nest for one kind of values: cold, waiting, tried, trusted, or left to Python."""

    state: str = "cold"
    reason: str = ""
    line: int = 0
    element: bool = True
    given: tuple[Any, ...] = ()
    code: Code | None = None
    # Names outside of the function, and what they were.
    assumed: list[tuple[Mapping[str, Any], str, Any]] = field(default_factory=list)
    # Functions that are written out in its code, and what they were.
    helpers: dict[FunctionType, CodeType] = field(default_factory=dict)
    key: Any = None
    # What is called instead of Python's way once it is trusted.
    door: Door | None = None
    # Runs by Python and their seconds; by compiled code; those that Python finished.
    plain: int = 0
    seconds: float = 0.0
    runs: int = 0
    compiled: float = 0.0
    left: int = 0
    # Runs that were the same; the seconds of those by Python, and by compiled code.
    same: int = 0
    matched: float = 0.0
    tried: float = 0.0
    kinds: str = ""

    def unchanged(self) -> bool:
        """Say whether all functions that are written out do what they did."""
        return all(function.__code__ is code for function, code in self.helpers.items())

    @property
    def all_runs(self) -> int:
        """Runs of compiled code, whoever began them."""
        return self.runs + (self.door.runs if self.door is not None else 0)

    @property
    def all_compiled(self) -> float:
        """Seconds of them."""
        return self.compiled + (self.door.seconds if self.door is not None else 0.0)

    def refuse(self, reason: str, line: int = 0, element: bool = True) -> None:
        """Leave it to Python from now on."""
        self.state, self.reason, self.line, self.element = "refused", reason, line, element
        self.code = None


class Run:
    """One run by Python that is timed, and compared if compiled code was tried before."""

    __slots__ = ("variant", "start", "found", "copies", "tried")

    def __init__(self, variant: Variant) -> None:
        self.variant = variant
        self.found: tuple[Any, ...] | None = None
        self.tried = 0.0
        self.copies: list[tuple[np.ndarray, np.ndarray]] = []
        self.start = perf_counter()
