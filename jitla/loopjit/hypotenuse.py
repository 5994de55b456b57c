"""`math.hypot` in loops, with the bits of Python's own algorithm.

Python scales the coordinates by a power of two, adds their squares without rounding errors (by halves, as
Veltkamp and Dekker do), and corrects the root once; ``hypot`` of the C library gives other last bits. Other
releases of Python compute it otherwise: a self-test says whether this one does it so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, reduce
from typing import Any

import numpy as np

from jitla.classes import dataclass
from jitla.loopir import program as ir
from jitla.loopjit.builder import ProgramBuilder, apply, both, choose, compare, either, negated

FLOAT64 = np.dtype(np.float64)
SPLITTER = 134217729.0  # 2**27 + 1, which splits a float into two halves
#: Largest coordinates below and above which Python goes on: a scale or a result may be no normal number.
LEAST, MOST = 2.0**-1000, 2.0**1000
SAMPLES = 100  # of the self-test


@dataclass(frozen=True, slots=True)
class _Term:
    """A value of a program under construction, with the operators of floats."""

    b: ProgramBuilder
    value: ir.Value

    def _with(self, op: str, other: _Term) -> _Term:
        return _Term(self.b, self.b.temporary(apply(op, self.value, other.value)))

    def __add__(self, other: _Term) -> _Term:
        return self._with("add", other)

    def __sub__(self, other: _Term) -> _Term:
        return self._with("subtract", other)

    def __mul__(self, other: _Term) -> _Term:
        return self._with("multiply", other)

    def __truediv__(self, other: _Term) -> _Term:
        return self._with("divide", other)


def norm_of(coordinates: Sequence[Any], scale: Any, constant: Callable[[float], Any],
            root: Callable[[Any], Any]) -> Any:
    """Return the root of the sum of squares; `scale` makes the largest coordinate at least 0.5, less than 1.

    Coordinates, scale and constants are floats or `_Term`.
    """
    one, splitter = constant(1.0), constant(SPLITTER)
    total, rests = one, [constant(0.0)] * 3

    def add(term: Any, part: int) -> None:
        nonlocal total
        before = total
        total = before + term
        rests[part] = rests[part] + ((before - total) + term)

    def halves(x: Any) -> tuple[Any, Any]:
        split = x * splitter
        high = split - (split - x)
        return high, x - high

    for coordinate in coordinates:
        high, low = halves(coordinate * scale)
        add(high * high, 0)
        add(constant(2.0) * high * low, 1)
        rests[2] = rests[2] + low * low
    found = root(total - one + (rests[0] + rests[1] + rests[2]))
    high, low = halves(found)
    add(constant(-1.0) * high * high, 0)
    add(constant(-2.0) * high * low, 1)
    add(constant(-1.0) * low * low, 2)
    error = total - one + (rests[0] + rests[1] + rests[2])
    return (found + error / (constant(2.0) * found)) / scale


@cache
def is_exact_here() -> bool:
    """Return whether `math.hypot` of this interpreter computes as `norm_of` does."""
    generator = np.random.Generator(np.random.PCG64(1))
    samples = generator.standard_normal((SAMPLES, 3)) * 10.0 ** generator.uniform(-4, 4, (SAMPLES, 3))
    return all(
        norm_of(x, math.ldexp(1.0, -math.frexp(max(map(abs, x)))[1]), float, math.sqrt) == math.hypot(*x)
        for sample in samples.tolist() for x in (sample, sample[:2]))


def hypotenuse(b: ProgramBuilder, coordinates: Sequence[ir.Value]) -> ir.Value:
    """Return `math.hypot` of floats; Python goes on with coordinates of extreme magnitude."""
    sizes = [b.temporary(apply("absolute", x)) for x in coordinates]
    largest = b.temporary(reduce(lambda x, y: choose(compare("less", x, y), y, x), sizes))
    is_zero = b.temporary(compare("equal", largest, ir.constant(0.0, FLOAT64)))
    is_usual = both(compare("greater", largest, ir.constant(LEAST, FLOAT64)),
                    reduce(both, (compare("less", x, ir.constant(MOST, FLOAT64)) for x in sizes)))
    b.check(negated(either(is_zero, is_usual)), "the hypotenuse of very small or large numbers")
    some = b.temporary(choose(is_zero, ir.constant(1.0, FLOAT64), largest))
    exponent = apply("add", ir.Foreign("logb", (some,)), ir.constant(1.0, FLOAT64))
    scale = ir.Foreign("exp2", (b.temporary(apply("negative", exponent)),))
    found = norm_of([_Term(b, x) for x in sizes], _Term(b, b.temporary(scale)),
                    lambda x: _Term(b, ir.constant(x, FLOAT64)),
                    lambda x: _Term(b, b.temporary(apply("sqrt", x.value))))
    return choose(is_zero, ir.constant(0.0, FLOAT64), found.value)
