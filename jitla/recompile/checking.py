"""Kernels against NumPy before anybody uses them: on a few elements, in short rows and in longer ones.

Knows: what a kernel means, argument blocks. Must not know: how kernels are compiled.
Receives a compiled kernel and what runs it; returns how its results differ.

Kernels hold for all sizes, so few elements show what many would: a wrong instruction, constant or operand, a
store past the end of a row. It is no proof, and where functions without an exact result are involved it only
finds what is far off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import numpy as np

from jitla.fusion import (
    Executable,
    Form,
    Geometry,
    Interpreted,
    InterpretedBackend,
    Kernel,
    Schedule,
)
from jitla.hops import Hop, Kind, approximate
from jitla.recompile.choices import Launch
from jitla.runtime import allocator

__all__ = ["difference"]

# Elements walked in one run: one more than a block of a sum, and than whole vectors of every width. The last
# two dimensions of rows: long ones, those that share vectors, and columns that are added up.
ELEMENTS, ROWS, SHORT, DOWN = 129, (3, 131), (19, 3), (19, 37)
# What functions without an exact result may be off, in units of the last place of the largest; how many of
# the elements by more than that: where a value decides, or is at the border of what is defined.
LOOSE, ODD = 1e5, 0.2


def difference(
    kernel: Kernel, form: Form, schedule: Schedule, executable: Executable, launch: Launch, exact: bool,
) -> str:
    """Return how a compiled kernel differs from what it means; nothing if not, or if nobody looks."""
    known = form.mode in ("cell", "full", "rows", "cols") and not set(form.inner) - set("cbsfr")
    if not known or schedule.delayed:
        return ""
    inputs = [h for h in kernel.inputs if h.op.name != "const"]
    arrays = [h for h in inputs if h.meta.shape != ()] + list(kernel.outputs)
    # What comes from another kernel's aggregate is an array like others.
    modes = [form.mode if h in kernel.body and h.op.kind is Kind.AGG else "cell" for h in arrays]
    for dims in _sizes(form, schedule):
        strides = tuple(_strides(h.meta.dtype.itemsize, letter, dims, mode)
                        for h, letter, mode in zip(arrays, form.inner, modes, strict=True))
        found = _differs(kernel, form, inputs, Geometry(dims, strides), executable, launch, exact)
        if found:
            return found
    return ""


def _sizes(form: Form, schedule: Schedule) -> Iterator[tuple[int, ...]]:
    """Yield sizes to run a kernel of a form for."""
    if form.ndim == 1:
        yield (ELEMENTS,)
    else:
        outer = (2,) * (form.ndim - 2)
        yield (*outer, *(DOWN if form.mode == "cols" else ROWS))
        if schedule.crosswise:
            yield (*outer, *SHORT)


def _strides(size: int, letter: str, dims: tuple[int, ...], mode: str) -> tuple[int, ...]:
    """Return how an operand lies, aggregated as `mode` says or not ("cell"): rows have a gap between them."""
    n = dims[-1]
    if mode == "full":
        return (0,) * len(dims)
    if letter == "r":
        return (*[0] * (len(dims) - 1), size)
    last, row = {"c": (size, (n + 1) * size), "f": (size, n * size), "b": (0, size)}.get(
        letter, (2 * size, (2 * n + 1) * size))
    strides = [row * prod(dims[at:-1]) for at in range(1, len(dims))] + [last]
    if mode == "cols":
        strides[0] = 0
    return tuple(strides)


def _differs(
    kernel: Kernel, form: Form, inputs: list[Hop], geometry: Geometry, executable: Executable, launch: Launch,
    exact: bool,
) -> str:
    """Return how results differ for these sizes."""
    empty = allocator()
    lying = iter(geometry.strides)
    given = [_value(h, at, () if h.meta.shape == () else next(lying), geometry.dims, empty)
             for at, h in enumerate(inputs)]
    room = [_elements(h, strides, geometry.dims) for h, strides in zip(kernel.outputs, lying, strict=True)]
    by_numpy = Interpreted(kernel, form), InterpretedBackend().launch
    wanted, found = (_run(kernel, given, room, what, how, geometry, empty)
                     for what, how in (by_numpy, (executable, launch)))
    smooth = not exact or any(approximate(h.op) for h in kernel.body)
    # Rows that are parts of products are added up in another order.
    sums = form.ndim > 1 and any(h.op.kind is Kind.AGG for h in kernel.body)
    units = [float(np.finfo(h.meta.dtype).eps) for h in kernel.body if h.meta.dtype.kind in "fc"]
    unit = max(units, default=0.0)
    for hop, a, b in zip(kernel.outputs, wanted, found, strict=True):
        floats = a.dtype.kind in "fc"
        same = _near(a, b, unit, ODD if smooth else 0.0) if smooth or sums and floats else \
            np.array_equal(a, b, equal_nan=floats)
        if not same:
            return f"{hop.op.name} of {hop.meta.dtype}: {a[:3].tolist()} in NumPy, {b[:3].tolist()} compiled"
    return ""


def _elements(hop: Hop, strides: tuple[int, ...], dims: tuple[int, ...]) -> int:
    """Return how many elements there are from the first to the last of an operand."""
    return 1 + sum((n - 1) * s for n, s in zip(dims, strides, strict=True)) // hop.meta.dtype.itemsize


def _run(
    kernel: Kernel, given: list[Any], room: list[int], executable: Any, launch: Launch, geometry: Geometry,
    empty: Callable[..., np.ndarray],
) -> list[np.ndarray]:
    """Run a kernel on small arrays; return its results, with what lies between their rows."""
    made = []
    for hop, elements in zip(kernel.outputs, room, strict=True):
        result = empty((elements,), hop.meta.dtype)
        result[...] = 0
        made.append(result)
    launch(executable.template(geometry), *given, *made)
    return made


def _value(
    hop: Hop, at: int, strides: tuple[int, ...], dims: tuple[int, ...], empty: Callable[..., np.ndarray],
) -> Any:
    """Return an operand: on both sides of 0, small, not the same as the one before."""
    dtype = hop.meta.dtype
    elements = _elements(hop, strides, dims) if strides else ELEMENTS
    steps = (np.arange(elements) * (5 + 2 * at) + at) % 23
    values = {"b": steps % 2 == 0, "u": steps % 7, "i": steps % 7 - (0 if at else 2)}.get(
        dtype.kind, steps / 11.5 - 0.4)
    if dtype.kind == "c":
        values = values + 1j * values[::-1]
    if hop.meta.shape == ():  # as kernels are given scalars
        scalar = dtype.type(values[3 + at % 5])
        return {"d": float, "D": complex}.get(dtype.char, lambda x: x)(scalar)
    made = empty((elements,), dtype)
    made[...] = values
    return made


def _near(a: np.ndarray, b: np.ndarray, unit: float, odd: float) -> bool:
    """Say whether results are alike but for rounding, and for the part `odd` of them where that decides.

    `unit` is what the least precise value on the way is rounded to: results may be more precise.
    """
    if a.dtype.kind not in "fc":
        return True
    finite = np.isfinite(a) & np.isfinite(b)
    if not finite.any():
        return True
    a, b = a[finite], b[finite]
    bound = LOOSE * unit * max(float(np.abs(a).max()), 1.0)
    return float(np.mean(np.abs(a - b) > bound)) <= (odd if len(a) > 1 else 0.0)
