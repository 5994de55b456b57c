"""A writer of straight-line LLVM IR in which vector math reads like arithmetic."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence

import numpy as np

from jitla.classes import dataclass

__all__ = ["DOUBLE", "SINGLE", "CodeBuilder", "Format", "SSAValue"]


@dataclass(frozen=True)
class Format:
    """The numbers that describe one binary floating-point format."""

    real: str
    whole: str
    bits: int
    mantissa: int
    bias: int

    @property
    def sign(self) -> int:
        """Bit pattern of the sign bit."""
        return 1 << (self.bits - 1)

    @property
    def magic(self) -> float:
        """1.5 * 2**mantissa: adding it rounds to an integer that sits in the low bits."""
        return 1.5 * 2.0**self.mantissa

    @property
    def tiny(self) -> float:
        """The smallest normal number."""
        return 2.0 ** (1 - self.bias)

    def pattern(self, value: float) -> int:
        """Bit pattern of a number of this format."""
        if self.bits == 64:
            return int(struct.unpack("<q", struct.pack("<d", value))[0])
        return int(struct.unpack("<i", struct.pack("<f", value))[0])


ONE_REGISTER = 256  # bits that are tested at once

DOUBLE = Format("double", "i64", 64, 52, 1023)
SINGLE = Format("float", "i32", 32, 23, 127)


@dataclass(frozen=True)
class SSAValue:
    """One SSA value: kind "f" is real, "i" an integer of the same width, "m" a mask."""

    code: CodeBuilder
    name: str
    kind: str

    def __add__(self, other: SSAValue | float) -> SSAValue:
        return self.code.arith("fadd" if self.kind == "f" else "add", self, other)

    def __radd__(self, other: float) -> SSAValue:
        return self.code.arith("fadd" if self.kind == "f" else "add", self, other)

    def __sub__(self, other: SSAValue | float) -> SSAValue:
        return self.code.arith("fsub" if self.kind == "f" else "sub", self, other)

    def __rsub__(self, other: float) -> SSAValue:
        return self.code.value(other, self.kind) - self

    def __mul__(self, other: SSAValue | float) -> SSAValue:
        return self.code.arith("fmul" if self.kind == "f" else "mul", self, other)

    def __rmul__(self, other: float) -> SSAValue:
        return self * other

    def __truediv__(self, other: SSAValue | float) -> SSAValue:
        return self.code.arith("fdiv", self, other)

    def __rtruediv__(self, other: float) -> SSAValue:
        return self.code.value(other, self.kind) / self

    def __neg__(self) -> SSAValue:
        return self.code.unary("fneg", self)

    def __and__(self, other: SSAValue | int) -> SSAValue:
        return self.code.arith("and", self, other)

    def __or__(self, other: SSAValue | int) -> SSAValue:
        return self.code.arith("or", self, other)

    def __xor__(self, other: SSAValue | int) -> SSAValue:
        return self.code.arith("xor", self, other)

    def __lshift__(self, other: int) -> SSAValue:
        return self.code.arith("shl", self, other)

    def __rshift__(self, other: int) -> SSAValue:
        """Logical shift: AVX2 has no arithmetic one for 64 bits."""
        return self.code.arith("lshr", self, other)

    def __lt__(self, other: SSAValue | float) -> SSAValue:
        return self.code.compare("olt", self, other)

    def __le__(self, other: SSAValue | float) -> SSAValue:
        return self.code.compare("ole", self, other)

    def __gt__(self, other: SSAValue | float) -> SSAValue:
        return self.code.compare("ogt", self, other)

    def __ge__(self, other: SSAValue | float) -> SSAValue:
        return self.code.compare("oge", self, other)

    def equals(self, other: SSAValue | float) -> SSAValue:
        """Mask of the lanes that are equal (false on NaN)."""
        return self.code.compare("oeq", self, other)

    def bits(self) -> SSAValue:
        """The bit pattern as an integer."""
        return self.code.cast(self, "i")

    def real(self) -> SSAValue:
        """The number that has this bit pattern."""
        return self.code.cast(self, "f")


class CodeBuilder:
    """Collects the instructions of one inlined function."""

    def __init__(self, form: Format, width: int, fresh: Callable[[str], str]) -> None:
        self.form = form
        self.width = width
        self.fresh = fresh
        self.lines: list[str] = []

    def type(self, kind: str, form: Format | None = None) -> str:
        """LLVM type of a kind of value."""
        form = form or self.form
        scalar = {"f": form.real, "i": form.whole, "m": "i1"}[kind]
        return scalar if self.width == 1 else f"<{self.width} x {scalar}>"

    def value(self, number: SSAValue | float, kind: str) -> SSAValue:
        """The operand itself, or a constant in every lane."""
        if isinstance(number, SSAValue):
            assert number.kind == kind, (number, kind)
            return number
        if kind == "f":
            exact = np.float32(number) if self.form.bits == 32 else np.float64(number)
            assert exact == number or math.isnan(number), (number, self.form)
            text = f"0x{struct.unpack('<Q', struct.pack('<d', float(exact)))[0]:016X}"
        else:
            text = str(int(number))
        if self.width > 1:
            scalar = self.form.real if kind == "f" else self.form.whole
            text = f"splat ({scalar} {text})"
        return SSAValue(self, text, kind)

    def nearest(self, number: float) -> float:
        """The number rounded to the format."""
        return float(np.float32(number)) if self.form.bits == 32 else number

    def push(self, text: str, kind: str, hint: str = "v") -> SSAValue:
        """Append one instruction and name its result."""
        name = self.fresh(hint)
        self.lines.append(f"{name} = {text}")
        return SSAValue(self, name, kind)

    def arith(self, op: str, a: SSAValue, b: SSAValue | float) -> SSAValue:
        """A binary instruction on two values of one kind."""
        other = self.value(b, a.kind)
        return self.push(f"{op} {self.type(a.kind)} {a.name}, {other.name}", a.kind)

    def unary(self, op: str, a: SSAValue) -> SSAValue:
        """A unary instruction."""
        return self.push(f"{op} {self.type(a.kind)} {a.name}", a.kind)

    def compare(self, how: str, a: SSAValue, b: SSAValue | float) -> SSAValue:
        """A comparison of reals, giving a mask."""
        other = self.value(b, "f")
        return self.push(f"fcmp {how} {self.type('f')} {a.name}, {other.name}", "m")

    def negative(self, a: SSAValue) -> SSAValue:
        """Mask of the lanes whose sign bit is set: what a blend instruction reads."""
        zero = self.value(0, "i")
        return self.push(f"icmp slt {self.type('i')} {a.name}, {zero.name}", "m")

    def cast(self, a: SSAValue, kind: str) -> SSAValue:
        """Reinterpret the bits."""
        return self.push(f"bitcast {self.type(a.kind)} {a.name} to {self.type(kind)}", kind)

    def select(self, mask: SSAValue, yes: SSAValue | float, no: SSAValue | float) -> SSAValue:
        """Lane by lane: ``yes`` where the mask is set, else ``no``."""
        kind = yes.kind if isinstance(yes, SSAValue) else no.kind if isinstance(no, SSAValue) else "f"
        a, b, t = self.value(yes, kind), self.value(no, kind), self.type(kind)
        return self.push(
            f"select {self.type('m')} {mask.name}, {t} {a.name}, {t} {b.name}", kind
        )

    def sqrt(self, a: SSAValue) -> SSAValue:
        """The correctly rounded square root (an instruction on every target)."""
        suffix = f"f{self.form.bits}" if self.width == 1 else f"v{self.width}f{self.form.bits}"
        t = self.type("f")
        return self.push(f"call {t} @llvm.sqrt.{suffix}({t} {a.name})", "f")

    def convert(self, a: SSAValue) -> SSAValue:
        """A real of another code's format as one of this; both write to the same lines."""
        other = a.code.form
        op = "fpext" if other.bits < self.form.bits else "fptrunc"
        return self.push(f"{op} {self.type('f', other)} {a.name} to {self.type('f')}", "f")

    def sibling(self, form: Format) -> CodeBuilder:
        """A writer to the same lines in another format."""
        code = CodeBuilder(form, self.width, self.fresh)
        code.lines = self.lines
        return code

    def abs(self, a: SSAValue) -> SSAValue:
        """The absolute value."""
        return (a.bits() & (self.form.sign - 1)).real()

    def sign_of(self, a: SSAValue) -> SSAValue:
        """The sign bit alone, as an integer."""
        return a.bits() & -self.form.sign

    def with_sign(self, a: SSAValue, sign: SSAValue) -> SSAValue:
        """Set the sign bit of a non-negative number where ``sign`` has it."""
        return (a.bits() | sign).real()

    def upper_half(self, a: SSAValue) -> SSAValue:
        """a cut to half its bits, so that products with another half are exact."""
        return (a.bits() & -(1 << (self.form.mantissa // 2 + 1))).real()

    def some_negative(self, values: Sequence[SSAValue]) -> str:
        """Name an i1: whether a lane of these integers is negative."""
        found = values[0]
        for v in values[1:]:
            found = found | v
        name, width = found.name, self.width
        while width * self.form.bits > ONE_REGISTER:
            half, t = width // 2, f"<{width} x {self.form.whole}>"
            parts = []
            for start in (0, half):
                lanes = ", ".join(f"i32 {k}" for k in range(start, start + half))
                parts.append(self.push(
                    f"shufflevector {t} {name}, {t} poison, <{half} x i32> <{lanes}>", "i").name)
            width = half
            name = self.push(f"or <{width} x {self.form.whole}> {parts[0]}, {parts[1]}", "i").name
        if width == 1:
            return self.push(f"icmp slt {self.form.whole} {name}, 0", "m").name
        mask = self.push(f"icmp slt <{width} x {self.form.whole}> {name}, zeroinitializer", "m").name
        word = self.push(f"bitcast <{width} x i1> {mask} to i{width}", "m").name
        return self.push(f"icmp ne i{width} {word}, 0", "m").name

    def poly(self, x: SSAValue, coefficients: Sequence[float]) -> SSAValue:
        """Sum of c[i] * x**i by Estrin's scheme: short chains, the scheduler is the limit."""
        terms: list[SSAValue | float] = list(coefficients)
        while len(terms) > 1:
            pairs = zip(terms[::2], terms[1::2], strict=False)
            odd = terms[-1:] if len(terms) % 2 else []
            terms = [*(x * high + low for low, high in pairs), *odd]
            if len(terms) > 1:
                x = x * x
        total = terms[0]
        assert isinstance(total, SSAValue)
        return total

    def paired(self, x: SSAValue, coefficients: Sequence[float]) -> SSAValue:
        """Sum of c[i] * x**i by Horner's rule on pairs: fewer products than Estrin takes, half the chain."""
        terms = [x * high + low for low, high in zip(coefficients[::2], coefficients[1::2], strict=False)]
        square = x * x
        total: SSAValue | float = coefficients[-1] if len(coefficients) % 2 else terms.pop()
        for term in reversed(terms):
            total = square * total + term
        assert isinstance(total, SSAValue)
        return total
