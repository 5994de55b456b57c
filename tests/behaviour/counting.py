"""What a decorated function counted, in one place, and running it against its plain self."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.fuzz.compare import compare_leaf, leaves


@dataclass(frozen=True)
class Counts:
    """The counters that these tests look at."""

    plans: int
    programs: int
    kernels: int
    kernel_runs: int
    numpy_calls: int
    materialised: int
    fallbacks: int
    forces: int
    failures: int

    def __sub__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, n) - getattr(other, n) for n in self.__dataclass_fields__))


def counts(function: Any) -> Counts:
    """Return the counters of a decorated function; those of the functions it calls are theirs."""
    counted = function.stats()
    return Counts(*(int(counted.get(name, 0)) for name in Counts.__dataclass_fields__))


def during(function: Any, call: Callable[[], Any]) -> Counts:
    """Return what was counted during a call."""
    before = counts(function)
    call()
    return counts(function) - before


def assert_same(plain: Any, jitted: Any, digits: int = 12) -> None:
    """Fail if two results differ by more than rounding."""
    a, b = leaves(plain, "result"), leaves(jitted, "result")
    assert [p for p, _ in a] == [p for p, _ in b]
    for (path, x), (_, y) in zip(a, b, strict=True):
        for fault in compare_leaf(path, x, y):
            assert fault.kind == "value", fault
            assert abs(y - x).max() <= 10.0**-digits * (abs(x).max() + 1), fault
