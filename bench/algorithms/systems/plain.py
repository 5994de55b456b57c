"""The scripts as they are; and on numbers that differ in their last bits and lie in another order in memory,
which says what roundings and the order of sums can do.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.algorithms.systems.entered import Entered


def enter(name: str, script: str, plain: Any, arguments: tuple[Any, ...]) -> Entered:
    """Return the plain call."""
    if name == "numpy-nudged":
        rng = np.random.default_rng(0)
        arguments = tuple(nudged(a, rng) for a in arguments)
    return Entered(lambda: plain(*arguments))


def nudged(value: Any, rng: np.random.Generator) -> Any:
    """Return an array of floats, columns together, with every element moved by its last place."""
    if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
        return value
    towards = np.where(rng.random(value.shape) < 0.5, -np.inf, np.inf).astype(value.dtype)
    return np.asfortranarray(np.nextafter(value, towards))
