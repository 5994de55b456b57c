"""Random reductions, jitted and plain, compared in every bit: `python -m tests.fuzz.sums --cases N`."""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import jitla
from tests.fuzz.arrays import LAYOUTS, array
from tests.fuzz.compare import compare_leaf

LENGTHS = (
    0,
    1,
    2,
    3,
    7,
    8,
    9,
    15,
    16,
    17,
    31,
    33,
    63,
    64,
    65,
    127,
    128,
    129,
    200,
    255,
    257,
    1000,
    1023,
    8191,
    8193,
)
MOST_CELLS = 40_000
DTYPES = ("f8", "f8", "f8", "f4", "f4", "f4", "i8", "i4", "i2", "i1", "u1", "u4", "?")
VALUES = ("normal", "normal", "wide", "wide", "special", "uniform", "nice")
THREADS = (1, 2, 7)


@dataclass(frozen=True)
class Case:
    """One reduction of one array, or of a fused product of two."""

    form: str
    shape: tuple[int, ...]
    dtype: str
    layout: str
    values: str
    axis: Any
    keepdims: bool
    seed: int

    def operands(self) -> tuple[np.ndarray, np.ndarray]:
        """Make the two arrays."""
        return (
            array(self.shape, self.dtype, self.layout, self.values, self.seed),
            array(self.shape, self.dtype, self.layout, self.values, self.seed + 1),
        )


def total(x, y, axis, keepdims):
    """np.sum."""
    return np.sum(x)


def along(x, y, axis, keepdims):
    """Sum along an axis."""
    return x.sum(axis=axis, keepdims=keepdims)


def mean(x, y, axis, keepdims):
    """Mean along an axis."""
    return x.mean(axis=axis, keepdims=keepdims)


def product(x, y, axis, keepdims):
    """Sum of a product: one kernel."""
    return (x * y).sum()


def product_along(x, y, axis, keepdims):
    """Sum of a product along an axis."""
    return (x * y).sum(axis=axis, keepdims=keepdims)


def shifted(x, y, axis, keepdims):
    """Mean of a chain with a broadcast operand."""
    return ((x - y.mean()) * 2).mean(axis=axis, keepdims=keepdims)


def several(x, y, axis, keepdims):
    """Several aggregates of the same arrays."""
    return x.sum(axis=axis), (x * y).sum(axis=axis), np.max(x + y, axis=axis, initial=0)


FORMS: dict[str, Callable[..., Any]] = {
    f.__name__: f for f in (total, along, mean, product, product_along, shifted, several)
}
JITTED = {name: jitla.jit(f) for name, f in FORMS.items()}


def cases(count: int, seed: int = 0) -> Iterator[Case]:
    """Yield random cases."""
    rng = random.Random(seed)
    for at in range(count):
        shape = _shape(rng)
        axes = [None, *range(-len(shape), len(shape))]
        if len(shape) > 1:
            axes += [(0, 1), (len(shape) - 2, len(shape) - 1)]
        yield Case(
            rng.choice(list(FORMS)),
            shape,
            rng.choice(DTYPES),
            rng.choice(("C", "C", *LAYOUTS)),
            rng.choice(VALUES),
            rng.choice(axes),
            rng.random() < 0.3,
            2 * at + seed,
        )


def _shape(rng: random.Random) -> tuple[int, ...]:
    while True:
        shape = tuple(rng.choice(LENGTHS) for _ in range(rng.choice((1, 1, 2, 2, 2, 3))))
        if np.prod(shape) <= MOST_CELLS:
            return shape


def differences(case: Case, threads: int) -> list[str]:
    """Return what differs between the jitted and the plain function."""
    x, y = case.operands()
    given = (x, y, case.axis, case.keepdims)
    with np.errstate(all="ignore"):
        expected = _outcome(FORMS[case.form], given)
        with jitla.options(num_threads=threads):
            actual = _outcome(JITTED[case.form], given)
    if isinstance(expected, tuple) and isinstance(actual, tuple):
        pairs = list(zip(expected, actual, strict=True))
    else:
        pairs = [(expected, actual)]
    return [str(fault) for a, b in pairs for fault in compare_leaf("result", a, b)]


def _outcome(function: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    try:
        return function(*given)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def main() -> int:
    """Run many cases and count those that differ."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.sums")
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    wrong = 0
    for case in cases(given.cases, given.seed):
        for threads in THREADS:
            found = differences(case, threads)
            if found:
                wrong += 1
                sys.stdout.write(f"{threads} threads, {case}: {found[0]}\n")
                break
    sys.stdout.write(f"{given.cases} cases with {THREADS} threads: {wrong} differ\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
