"""A kernel in one layout as the text of an LLVM module.

Knows: which functions a module has. Must not know: how text becomes code.
Receives kernel, form, schedule, target; returns IR text that no size or identity is in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from jitla.codegen.cell import cell_kernel
from jitla.codegen.columns import columns_kernel
from jitla.codegen.division import division, result_dtype
from jitla.codegen.flags import quiet
from jitla.codegen.host import fuses
from jitla.codegen.layout import Loop
from jitla.codegen.lines import rows_kernel
from jitla.codegen.parts import parted
from jitla.codegen.reduce import full_kernel
from jitla.codegen.scalar import LlvmBuilder, MathCall
from jitla.codegen.tallies import tally_kernel
from jitla.codegen.vecmath import (
    NEAR,
    NUMPY,
    OPTIMISED,
    definitions,
    emit_math,
    family,
    inline_math,
    length,
    near_math,
    supports,
)
from jitla.codegen.vector import Value
from jitla.errors import BackendError
from jitla.fusion import Form, Kernel
from jitla.hops import Hop, may_raise

SEVERAL = 3  # transcendentals
INLINE = 200  # instructions of transcendentals that a loop may hold
DIVISIONS = ("fmod", "quotient", "floored", "whole")


def _calls(kernel: Kernel, form: Form) -> bool:
    """Tell whether transcendentals are functions, whose machine code all kernels share."""
    found = [h.op.name for h in kernel.body if h.op.transcendental]
    names = set(found)
    if form.mode not in ("cell", "tally") and (form.mode != "full" or len(found) < SEVERAL):
        # Code around aggregates needs a function twice, for vectors and for single elements. Only of
        # several the chains hide behind each other so much that this pays.
        return bool(names)
    # In long bodies calls cost a hundredth, and LLVM takes more than its share of time.
    return not names & OPTIMISED and math_lines(kernel) > INLINE


def math_lines(kernel: Kernel) -> int:
    """Estimate how long the transcendentals of `kernel` are when written in place."""
    # LLVM does the work that functions of one family have in common once per argument.
    longest: dict[tuple[str, Hop], int] = {}
    for hop in kernel.body:
        if hop.op.transcendental and supports(hop.op.name, hop.meta.dtype, defines=True):
            key = (family(hop.op.name), hop.inputs[0])
            longest[key] = max(longest.get(key, 0), length(hop.op.name, hop.meta.dtype))
    return sum(longest.values())


def kernel_text(loop: Loop) -> str:
    """Return the module of a kernel that is laid out."""
    loop = replace(loop, calls=_calls(loop.kernel, loop.form))
    return module_text(loop, MathFunctions(loop.lanes, "fma" in loop.target.features))


class MathFunctions:
    """Writes the transcendentals of one module: in place, or calls of functions on vectors of `lanes`."""

    def __init__(self, lanes: int, fma: bool) -> None:
        self._lanes = lanes
        self._fma = fma
        self._found: dict[tuple[str, np.dtype], str] = {}
        self._defined: dict[str, str] = {}

    @property
    def text(self) -> str:
        """Functions and tables that the written code refers to."""
        return "".join(self._defined.values())

    def __call__(self, b: LlvmBuilder, name: str, xs: Sequence[Value]) -> Value:
        """Write `name` of `xs` into `b`."""
        dtype = xs[0].dtype
        if name in DIVISIONS:
            return self._divide(b, name, xs)
        if name == "muladd":
            return self._muladd(b, *xs)
        refuse_math(name, dtype)
        if b.width != self._lanes:
            return self._widened(b, name, xs)
        if b.calls or name in NUMPY:
            return self.call(b, name, xs)
        args = [x.text for x in xs]
        if name in NEAR and b.far is not None:
            lines, result, far = near_math(name, dtype, b.width, args[0], b.fresh)
            b.far.append(far)
            b.lines += [f"  {line}" for line in lines]
            return Value(dtype, result)
        self._defined |= definitions(name, dtype, self._lanes)
        lines, result = inline_math(name, dtype, b.width, self._fma, args, b.fresh)
        b.lines += [f"  {line}" for line in lines]
        return Value(dtype, result)

    def _divide(self, b: LlvmBuilder, name: str, xs: Sequence[Value]) -> Value:
        if name == "fmod" and not self._fma:
            x, y = xs
            return Value(x.dtype, b.line(f"frem {b.type(x.dtype)} {x.text}, {y.text}"))
        return self.call(b, name, xs) if b.width == self._lanes else self._widened(b, name, xs)

    def _widened(self, b: LlvmBuilder, name: str, xs: Sequence[Value]) -> Value:
        """Call `name` with other lanes than `b` has: functions have one width in a module."""
        wide = LlvmBuilder(b.lines, self._lanes, prefix=b.fresh("w")[1:])
        full = self.call(wide, name, [b.resized(x, wide) for x in xs])
        return wide.resized(full, b)

    def _muladd(self, b: LlvmBuilder, x: Value, y: Value, z: Value) -> Value:
        if not fuses():  # processors without the instruction call the C library's function
            return b.add(b.mul(x, y), z)
        kind = b.type(x.dtype)
        args = ", ".join(f"{kind} {v.text}" for v in (x, y, z))
        name = f"llvm.fma.v{b.width}f{8 * x.dtype.itemsize}"
        return Value(x.dtype, b.line(f"call {kind} @{name}({args})"))

    def call(self, b: LlvmBuilder, name: str, xs: Sequence[Value]) -> Value:
        """Write a call of the function `name`, which the module then contains."""
        key = (name, xs[0].dtype)
        if key not in self._found:
            if name in DIVISIONS:
                symbol, text = division(*key, self._lanes)
            else:
                self._defined |= definitions(*key, self._lanes)
                symbol, text = emit_math(*key, self._lanes, self._fma)
            self._found[key] = symbol
            self._defined[symbol] = text
        dtype = result_dtype(*key)
        args = ", ".join(f"{b.type(x.dtype)} {x.text}" for x in xs)
        return Value(dtype, b.line(f"call {b.type(dtype)} @{self._found[key]}({args})"))


def refuse_math(name: str, dtype: np.dtype) -> None:
    """Raise if there is no vector code for `name`."""
    if not supports(name, dtype, defines=True):
        raise BackendError(f"no vector code for {name} of {dtype}")


def module_text(loop: Loop, math: MathFunctions) -> str:
    """Return the modules of `loop`, one behind the other."""
    code = _skeleton(loop, math)
    nontemporal = "!0 = !{i32 1}\n" if "!nontemporal" in code else ""
    text = math.text + code + nontemporal
    if any(map(may_raise, loop.kernel.body)):
        text = quiet(text, loop.target.features)
    return parted(text, f'target triple = "{loop.target.triple}"\n')


def _skeleton(loop: Loop, math: MathCall) -> str:
    if loop.form.mode == "cell":
        return cell_kernel(loop, math)
    if loop.form.mode == "tally":
        return tally_kernel(loop, math)
    if loop.form.mode == "full":
        return full_kernel(loop, math)
    return rows_kernel(loop, math) if loop.form.mode == "rows" else columns_kernel(loop, math)

