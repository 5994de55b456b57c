"""A kernel in one layout as the text of an LLVM module.

Knows: which functions a module has. Must not know: how text becomes code.
Receives kernel, form, schedule, target; returns IR text that depends on neither sizes nor identities.
"""

from __future__ import annotations

import numpy as np

from jitla.codegen.cell import cell_kernel
from jitla.codegen.layout import Loop, Target, operands
from jitla.codegen.reduce import columns_kernel, full_kernel, rows_kernel
from jitla.codegen.scalar import MathCall
from jitla.fusion import Form, Kernel, Schedule

MAX_LANES = 64


def has_float_sum(kernel: Kernel) -> bool:
    """Tell whether a sum of `kernel` depends on the order of its terms."""
    return any(h.op.name == "sum" and h.meta.dtype.kind == "f" for h in kernel.outputs)


def lay_out(kernel: Kernel, form: Form, schedule: Schedule, target: Target) -> Loop:
    """Choose the vector length of `kernel`."""
    hops = (*kernel.inputs, *kernel.body)
    widest = max(h.meta.dtype.itemsize for h in hops)
    lanes = target.lanes(widest) * max(1, schedule.unroll)
    if form.mode in ("full", "rows"):
        # NumPy's pairwise sum keeps eight accumulators; without one more chains hide the latency.
        lanes = 8 if has_float_sum(kernel) else 4 * target.lanes(widest)
    ops = operands(kernel, form)
    return Loop(kernel, form, schedule, target, ops, min(lanes, MAX_LANES))


class MathFunctions:
    """The vector functions a module calls; `emit(name, dtype, width, target)` writes one."""

    def __init__(self, loop: Loop, emit: object) -> None:
        self._loop = loop
        self._emit = emit
        self._found: dict[tuple[str, np.dtype], str] = {}
        self.text = ""

    def __call__(self, name: str, dtype: np.dtype) -> tuple[str, int]:
        """Return the function called `name` on vectors of `dtype`, and its width."""
        key = (name, dtype)
        width = self._loop.lanes
        if key not in self._found:
            function, text = self._emit(name, dtype, width, self._loop.target)
            self._found[key] = function.lstrip("@")
            self.text += text
        return self._found[key], width


def module_text(loop: Loop, math: MathFunctions) -> str:
    """Return the module of `loop`."""
    code = _skeleton(loop, math)
    nontemporal = "!0 = !{i32 1}\n" if "!nontemporal" in code else ""
    return f'target triple = "{loop.target.triple}"\n{math.text}{code}{nontemporal}'


def _skeleton(loop: Loop, math: MathCall) -> str:
    if loop.form.mode == "cell":
        return cell_kernel(loop, math)
    if loop.form.mode == "full":
        return full_kernel(loop, math)
    return rows_kernel(loop, math) if loop.form.mode == "rows" else columns_kernel(loop, math)

