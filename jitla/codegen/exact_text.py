"""LLVM text of the verbs of `ScalarBuilder` with exact floating-point flags, for scalars and for vectors.

Where flags matter every operation that may raise one is a constrained intrinsic, which LLVM neither drops
nor moves over a branch, folds or computes twice; comparisons are the quiet ones, as NumPy's raise nothing.
"""

from __future__ import annotations

import numpy as np

from jitla.codegen.ir import BOOL, Value, element_type, part_of, whole
from jitla.codegen.ir_elementwise import LlvmBuilder, MathCall
from jitla.codegen.native.symbols import fuses
from jitla.errors import BackendError

__all__ = ["ExactText", "VectorLoopText"]

_BITS = {"float": "f32", "double": "f64"}
_ORDERED = frozenset({"lt", "le", "gt", "ge"})
# Two numbers whose quotient raises the flag.
_RAISING = {"invalid": ("0x0000000000000000", "0x0000000000000000"),
            "divide": ("0x3FF0000000000000", "0x0000000000000000"),
            "overflow": ("0x7FE0000000000000", "0x0010000000000000")}
_ONE = "0x3FF0000000000000"
EXACT = 'metadata !"round.tonearest", metadata !"fpexcept.strict"'


class ExactText(LlvmBuilder):
    """Verbs over IR text whose operations raise the flags of what they compute, and of nothing else.

    Without `flags` nobody looks at them.
    """

    def __init__(self, lines: list[str], width: int, math_call: MathCall | None, flags: bool,
                 prefix: str = "t") -> None:
        super().__init__(lines, width, math_call, prefix)
        self.flags = flags
        #: Whether products of complex numbers are rounded once where NumPy's loops do so; its scalars do not.
        self.fuses = fuses()

    def raise_if(self, kind: str, c: Value) -> None:
        """Raise the flag `kind` if the scalar `c` holds, by a division that is exact otherwise."""
        if not self.flags or c.text == "false":
            return
        dividend, divisor = (
            self.line(f"select i1 {c.text}, double {number}, double {_ONE}") for number in _RAISING[kind])
        self.line(f"call double @llvm.experimental.constrained.fdiv.f64(double {dividend}, double {divisor}, "
                  f"{EXACT})")

    # -- operations that may raise flags --------------------------------------------------------

    def _constrained(self, name: str, suffix: str, dtype: np.dtype, how: str, *xs: Value) -> Value:
        args = ", ".join(f"{self.type(x.dtype)} {x.text}" for x in xs)
        return Value(dtype, self.line(
            f"call {self.type(dtype)} @llvm.experimental.constrained.{name}.{suffix}({args}, {how})"))

    def _suffix(self, dtype: np.dtype) -> str:
        kind = element_type(part_of(dtype))
        kind = _BITS.get(kind, kind)
        return f"v{self.width}{kind}" if self.type(dtype).startswith("<") else kind

    def _exact(self, name: str, *xs: Value) -> Value:
        """Return an operation of floats that raises its flags wherever it is written, and only there."""
        return self._constrained(name, self._suffix(xs[0].dtype), xs[0].dtype, EXACT, *xs)

    def _arith(self, name: str, x: Value, y: Value) -> Value:
        if x.dtype.kind == "f" and self.flags:
            return self._exact(f"f{name}", x, y)
        return super()._arith(name, x, y)

    def div(self, x: Value, y: Value) -> Value:
        """Return x / y of floats."""
        if x.dtype.kind == "f" and self.flags:
            return self._exact("fdiv", x, y)
        return super().div(x, y)

    def sqrt(self, x: Value) -> Value:
        """Return the correctly rounded root."""
        return self._exact("sqrt", x) if self.flags else super().sqrt(x)

    def _float_rest(self, x: Value, y: Value) -> Value:
        return self._exact("frem", x, y) if self.flags else self._op("frem", x.dtype, x, y)

    def _conv(self, text: str, x: Value, dtype: np.dtype) -> Value:
        if text == "fptrunc" and self.flags:
            return self._constrained(text, f"{self._suffix(dtype)}.{self._suffix(x.dtype)}", dtype, EXACT, x)
        return super()._conv(text, x, dtype)

    def _to_signed(self, x: Value, dtype: np.dtype) -> Value:
        if self.flags:
            suffix = f"{self._suffix(dtype)}.{self._suffix(x.dtype)}"
            return self._constrained("fptosi", suffix, dtype, 'metadata !"fpexcept.strict"', x)
        return super()._to_signed(x, dtype)

    def to_integer(self, x: Value, dtype: np.dtype) -> Value:
        """Return a float, which fits, as an integer."""
        name = "fptosi" if dtype.kind == "i" else "fptoui"
        if not self.flags:
            return self._conv(name, x, dtype)
        suffix = f"{self._suffix(dtype)}.{self._suffix(x.dtype)}"
        return self._constrained(name, suffix, dtype, 'metadata !"fpexcept.strict"', x)

    def _compare(self, name: str, x: Value, y: Value) -> Value:
        if x.dtype.kind == "f" and self.flags and name in _ORDERED:
            how = f'metadata !"o{name}", metadata !"fpexcept.ignore"'
            return self._constrained("fcmp", self._suffix(x.dtype), BOOL, how, x, y)
        return super()._compare(name, x, y)

    def muladd(self, x: Value, y: Value, z: Value) -> Value:
        """Return x * y + z, rounded once where NumPy's complex loops do so."""
        if not self.fuses:
            return self.add(self.mul(x, y), z)
        return self._exact("fma", x, y, z) if self.flags else self._intrinsic("fma", x, y, z)

    # -- division -----------------------------------------------------------------------------

    def _quotient(self, x: Value, y: Value) -> Value:
        return self._op("sdiv" if x.dtype.kind == "i" else "udiv", x.dtype, x, y)

    def _divmod(self, x: Value, y: Value) -> tuple[Value, Value]:
        if x.dtype.kind == "f":
            return self._float_divmod(x, y)
        q, r = self._int_divide(x, y)
        if x.dtype.kind != "i":
            return q, r
        zero = self.const(0, x.dtype)
        off = self.and_(self.ne(r, zero), self.lt(self.xor(r, y), zero))
        floored = self.select(off, self.sub(q, self.const(1, x.dtype)), q)
        return floored, self.select(off, self.add(r, y), r)

    def floordiv(self, x: Value, y: Value) -> Value:
        """Return NumPy's floor_divide; a zero divisor of floats raises what the quotient raises, only."""
        if x.dtype.kind != "f" or not self.flags:
            return super().floordiv(x, y)
        zero, one = self.const(0, x.dtype), self.const(1, x.dtype)
        void = self.eq(y, zero)
        ratio = self.div(x, y)
        dividend, divisor = self.select(void, zero, x), self.select(void, one, y)
        mod = self._float_rest(dividend, divisor)
        div = self.div(self.sub(dividend, mod), divisor)
        wrong = self.and_(self.ne(mod, zero), self.xor(self.lt(divisor, zero), self.lt(mod, zero)))
        div = self.select(wrong, self.sub(div, one), div)
        low = self.floor(div)
        above = self.gt(self.sub(div, low), self.const(0.5, x.dtype))
        near = self.select(above, self.add(low, one), low)
        quotient = self.select(self.ne(div, zero), near, self.copysign(zero, ratio))
        return self.select(void, ratio, quotient)

    def rem(self, x: Value, y: Value) -> Value:
        """Return NumPy's remainder; a zero divisor of floats raises what C's fmod raises, only."""
        if x.dtype.kind != "f" or not self.flags:
            return super().rem(x, y)
        zero = self.const(0, y.dtype)
        void = self.eq(y, zero)
        mod = self._float_rest(x, y)
        uneven = self.ne(mod, zero)
        wrong = self.and_(uneven, self.xor(self.lt(y, zero), self.lt(mod, zero)))
        # only where it is wrong: the sum with the other sign may overflow
        raised = self.add(mod, self.select(wrong, y, self.const(-0.0, y.dtype)))
        fixed = self.select(uneven, raised, self.copysign(zero, y))
        return self.select(void, mod, fixed)


class VectorLoopText(ExactText):
    """`ExactText` of vectors of a loop: what would be computed for one element at a time is refused."""

    def __init__(self, lines: list[str], width: int, flags: bool, prefix: str) -> None:
        super().__init__(lines, width, None, flags, prefix)

    def flag(self, kind: str, c: Value) -> None:
        """Raise the flag `kind` if `c` holds in any lane."""
        self.raise_if(kind, Value(BOOL, self.any_lane(c)))

    def any_lane(self, c: Value) -> str:
        """Return whether a bool holds in any lane."""
        bits = self.line(f"bitcast {self.type(BOOL)} {c.text} to i{self.width}")
        return self.line(f"icmp ne i{self.width} {bits}, 0")

    def splat_of(self, x: Value) -> Value:
        """Return a scalar in every lane."""
        parts = []
        for part in x.parts:
            kind, vector = element_type(part.dtype), self.type(part.dtype)
            first = self.line(f"insertelement {vector} poison, {kind} {part.text}, i64 0")
            text = self.line(f"shufflevector {vector} {first}, {vector} poison, "
                             f"<{self.width} x i32> zeroinitializer")
            parts.append(Value(part.dtype, text))
        return whole(x.dtype, parts)

    def _float_rest(self, x: Value, y: Value) -> Value:
        raise BackendError("remainders of floats have no vectors")
