"""LLVM text of scalars: the verbs of `ScalarBuilder` on plain types, with exact floating-point flags."""

from __future__ import annotations

from typing import Any

import numpy as np

from jitla.codegen.exact_text import ExactText
from jitla.codegen.ir import BOOL, Value, element_type, literal, memory_type, part_of, whole
from jitla.codegen.ir_elementwise import MathCall
from jitla.errors import BackendError

__all__ = ["ScalarText"]


class ScalarText(ExactText):
    """`ScalarBuilder` over IR text whose values are scalars; `flags` keeps floating-point flags exact.

    `x86` says whether the processor's conversions of floats may be called by name.
    """

    def __init__(self, lines: list[str], math_call: MathCall, flags: bool, x86: bool) -> None:
        super().__init__(lines, 1, math_call, flags)
        self._x86 = x86

    def type(self, dtype: np.dtype) -> str:
        """Return the IR type of a value of `dtype`; of a part, if it is complex."""
        return element_type(part_of(dtype))

    def const(self, value: Any, dtype: Any) -> Value:
        """Return the constant `value`."""
        dtype = np.dtype(dtype)
        self._known(dtype)
        if dtype.kind == "c":
            number = dtype.type(value)
            return whole(dtype, [self.const(p, part_of(dtype)) for p in (number.real, number.imag)])
        return Value(dtype, literal(value, dtype), True)

    # -- memory -------------------------------------------------------------------------------

    def load(self, pointer: str, dtype: np.dtype) -> Value:
        """Load the element at `pointer`."""
        if dtype.kind == "c":
            part = part_of(dtype)
            second = self.line(f"getelementptr i8, ptr {pointer}, i64 {part.itemsize}")
            return whole(dtype, (self.load(pointer, part), self.load(second, part)))
        text = self.line(f"load {memory_type(dtype)}, ptr {pointer}, align 1")
        return Value(dtype, self.line(f"icmp ne i8 {text}, 0") if dtype == BOOL else text)

    def store(self, x: Value, pointer: str, nontemporal: bool = False) -> None:
        """Store the element at `pointer`."""
        if x.dtype.kind == "c":
            size = part_of(x.dtype).itemsize
            second = self.line(f"getelementptr i8, ptr {pointer}, i64 {size}")
            for part, place in zip(x.parts, (pointer, second), strict=True):
                self.store(part, place)
            return
        text = self.line(f"zext i1 {x.text} to i8") if x.dtype == BOOL else x.text
        self.lines.append(f"  store {memory_type(x.dtype)} {text}, ptr {pointer}, align 1")

    # -- operations -----------------------------------------------------------------------------

    def _intrinsic(self, name: str, *xs: Value) -> Value:
        d = xs[0].dtype
        args = ", ".join(f"{self.type(x.dtype)} {x.text}" for x in xs)
        return Value(d, self.line(f"call {self.type(d)} @llvm.{name}.{self._suffix(d)}({args})"))

    def _to_signed(self, x: Value, dtype: np.dtype) -> Value:
        if not self.flags and self._x86:  # LLVM folds the plain conversion of what does not fit to anything
            kind = self.type(x.dtype)
            name = f"llvm.x86.{'sse2.cvttsd2si' if kind == 'double' else 'sse.cvttss2si'}"
            lanes = 16 // x.dtype.itemsize
            vector = self.line(f"insertelement <{lanes} x {kind}> zeroinitializer, {kind} {x.text}, i64 0")
            wide = "64" if dtype.itemsize == 8 else ""
            return Value(dtype, self.line(
                f"call {self.type(dtype)} @{name}{wide}(<{lanes} x {kind}> {vector})"))
        return super()._to_signed(x, dtype)

    def flag(self, kind: str, c: Value) -> None:
        """Raise the flag `kind` if `c` holds."""
        self.raise_if(kind, c)

    def math(self, name: str, *xs: Value) -> Value:
        """Return the transcendental called `name` in NumPy."""
        if self._math_call is None:
            raise BackendError(f"no function {name}")
        return self._math_call(self, name, xs)
