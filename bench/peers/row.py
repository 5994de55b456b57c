"""What a row of the comparison is: a NumPy function, its arguments, and how peers write the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray
Function = Callable[..., Any]
BLOCK = 1 << 17  # elements that are compared at a time
LONG = 2000  # from here on, dimensions are scaled

# Instructions that one element takes in the shortest vector code known for it, divisions as the eight
# that could be issued meanwhile; no polynomial of the right accuracy gets by with fewer.
EXP, LOG, TANH, SIN, ERF, DIVIDE = 20, 25, 30, 22, 60, 8


@dataclass(frozen=True)
class Row:
    """A kernel as NumPy writes it, and as its peers do.

    Functions of peers take the arguments of `plain`; `array` has the namespace before them, jax.numpy
    or torch, and serves both; `jax`, `torch` and `halide` have the module before them; `numba` is a
    plain function to be compiled; `numexpr` is the expression, or one for each result, or a function
    with the module before the arguments; `blocked` is NumPy itself, but block by block.
    torch runs its function `torch_steps` times, as loops take it too long to compile.
    `work` counts vector instructions of float64 elements, a multiply-add as one.
    `writes` is the argument that is written into, where there is no result; `rereads` tells whether
    it is read as well. `long` rows are run only if asked for.
    """

    name: str
    plain: Function
    make: Callable[[np.random.Generator, float], Sequence[Any]]
    numba: Function | None = None
    array: Function | None = None
    jax: Function | None = None
    torch: Function | None = None
    torch_steps: int = 1
    halide: Function | None = None
    numexpr: str | tuple[str, ...] | Function | None = None
    blocked: Function | None = None
    work: Callable[..., float] | None = None
    passes: int = 1
    writes: int | None = None
    rereads: bool = True
    tolerance: float = 1e-9
    long: bool = False

    def bytes(self, arguments: Sequence[Any], results: Sequence[Array]) -> tuple[int, int]:
        """Bytes that must be read and written: arguments `passes` times, results once.

        What is written into is written in every pass.
        """
        read = sum(a.nbytes for a in arguments if isinstance(a, Array))
        written = sum(r.nbytes for r in results)
        if self.writes is not None and not self.rereads:
            read -= arguments[self.writes].nbytes
        return self.passes * read, (1 if self.writes is None else self.passes) * written


def results_of(result: Any) -> list[Array]:
    """What a function returned, as arrays."""
    several = result if isinstance(result, tuple | list) else (result,)
    return [np.asarray(r) for r in several]


def differs(found: Sequence[Array], wanted: Sequence[Array], tolerance: float) -> str:
    """Say how far `found` is from `wanted`, or nothing where it is near enough."""
    if [f.shape for f in found] != [w.shape for w in wanted]:
        return f"shapes {[f.shape for f in found]} instead of {[w.shape for w in wanted]}"
    for f, w in zip(found, wanted, strict=True):
        error = farthest(f.reshape(-1), w.reshape(-1))
        if not error <= tolerance:
            return f"wrong by {error:.3g}, allowed {tolerance:.3g}"
    return ""


def farthest(found: Array, wanted: Array) -> float:
    """Largest error relative to the largest value; of whole numbers, the share that is another."""
    size, real = wanted.size, wanted.dtype.kind in "fc"
    error = top = 0.0
    for k in range(0, size, BLOCK):  # whole arrays would take as much memory again
        f, w = found[k:k + BLOCK], wanted[k:k + BLOCK]
        if real:
            error = np.maximum(error, np.abs(f - w).max())  # keeps nan
            top = max(top, np.abs(w).max())
        else:
            error += np.count_nonzero(f != w) / size
    return float(error / max(top, 1e-300)) if real else error


def normals(*shapes: Sequence[int] | int, dtype: str = "f8") -> Function:
    """Maker of arrays of normal numbers."""
    def make(rng: np.random.Generator, scale: float) -> list[Array]:
        return [rng.standard_normal(scaled(s, scale)).astype(dtype, copy=False) for s in shapes]
    return make


def scaled(shape: Sequence[int] | int, scale: float) -> tuple[int, ...]:
    """`shape` with its first dimension scaled, where that is long."""
    first, *others = (shape,) if isinstance(shape, int) else shape
    return (max(int(first * scale), 3) if first >= LONG else first, *others)
