"""Kernels against NumPy before anybody uses them: on a few elements, those walked in flat order.

Knows: what a kernel means, argument blocks. Must not know: how kernels are compiled.
Receives a compiled kernel and what runs it; returns how its results differ.

Kernels hold for all sizes, so few elements show what many would: a wrong instruction, constant or operand. It
is no proof, and where functions without an exact result are involved it only finds what is far off.
"""

from __future__ import annotations

from collections.abc import Callable
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
from jitla.hops import Hop, Kind
from jitla.recompile.choices import Launch
from jitla.runtime import allocator

__all__ = ["difference"]

ELEMENTS = 129  # one more than a block of a sum, and than whole vectors of every width
# What functions without an exact result may be off, in units of the last place of the largest; how many of
# the elements by more than that: where a value decides, or is at the border of what is defined.
LOOSE, ODD = 1e5, 0.2


def difference(
    kernel: Kernel, form: Form, schedule: Schedule, executable: Executable, launch: Launch, exact: bool,
) -> str:
    """Return how a compiled kernel differs from what it means; nothing if not, or if nobody looks."""
    flat = form.ndim == 1 and form.mode in ("cell", "full") and not set(form.inner) - {"c", "b"}
    if not flat or schedule.delayed:
        return ""
    empty = allocator()
    inputs = [h for h in kernel.inputs if h.op.name != "const"]
    given = [_value(h, at, empty) for at, h in enumerate(inputs)]
    letters = iter(form.inner)
    arrays = [h for h in inputs if h.meta.shape != ()] + list(kernel.outputs)
    strides = tuple((h.meta.dtype.itemsize * (next(letters) == "c"),) for h in arrays)
    geometry = Geometry((ELEMENTS,), strides)
    by_numpy = Interpreted(kernel, form), InterpretedBackend().launch
    wanted, found = (_run(kernel, given, what, how, geometry, empty)
                     for what, how in (by_numpy, (executable, launch)))
    smooth = not exact or any(h.op.transcendental for h in kernel.body)
    units = [float(np.finfo(h.meta.dtype).eps) for h in kernel.body if h.meta.dtype.kind in "fc"]
    unit = max(units, default=0.0)
    for hop, a, b in zip(kernel.outputs, wanted, found, strict=True):
        if not (_near(a, b, unit) if smooth else np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")):
            return f"{hop.op.name} of {hop.meta.dtype}: {a[:3].tolist()} in NumPy, {b[:3].tolist()} compiled"
    return ""


def _run(
    kernel: Kernel, given: list[Any], executable: Any, launch: Launch, geometry: Geometry,
    empty: Callable[..., np.ndarray],
) -> list[np.ndarray]:
    """Run a kernel on small arrays; return its results."""
    made = []
    for hop in kernel.outputs:
        result = empty((1 if hop.op.kind is Kind.AGG else ELEMENTS,), hop.meta.dtype)
        result[...] = 0
        made.append(result)
    launch(executable.template(geometry), *given, *made)
    return made


def _value(hop: Hop, at: int, empty: Callable[..., np.ndarray]) -> Any:
    """Return an operand: on both sides of 0, small, not the same as the one before."""
    dtype = hop.meta.dtype
    steps = (np.arange(ELEMENTS) * (5 + 2 * at) + at) % 23
    values = {"b": steps % 2 == 0, "u": steps % 7, "i": steps % 7 - (0 if at else 2)}.get(
        dtype.kind, steps / 11.5 - 0.4)
    if dtype.kind == "c":
        values = values + 1j * values[::-1]
    if hop.meta.shape == ():  # as kernels are given scalars
        scalar = dtype.type(values[3 + at % 5])
        return {"d": float, "D": complex}.get(dtype.char, lambda x: x)(scalar)
    made = empty((ELEMENTS,), dtype)
    made[...] = values
    return made


def _near(a: np.ndarray, b: np.ndarray, unit: float) -> bool:
    """Say whether results are alike but for rounding, and for elements where that decides.

    `unit` is what the least precise value on the way is rounded to: results may be more precise.
    """
    if a.dtype.kind not in "fc":
        return True
    finite = np.isfinite(a) & np.isfinite(b)
    if not finite.any():
        return True
    a, b = a[finite], b[finite]
    bound = LOOSE * unit * max(float(np.abs(a).max()), 1.0)
    return float(np.mean(np.abs(a - b) > bound)) <= (ODD if len(a) > 1 else 0.0)
