"""The verbs of cell recipes as LLVM IR text on vectors, with NumPy's exact meaning.

Knows: LLVM's vector instructions and NumPy's element semantics. Must not know: loops, operands.
Receives IR values; appends lines to a body and returns new IR values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jitla.codegen.vector import (
    BOOL,
    Value,
    VectorText,
    element_type,
    literal,
    part_of,
    refuse,
    whole,
    whole_number,
)
from jitla.errors import BackendError


class LlvmBuilder(VectorText):
    """`ScalarBuilder` over IR text; `math_call(builder, name, xs)` writes what is no verb."""

    def __init__(
        self, lines: list[str], width: int, math_call: MathCall | None = None, prefix: str = "t"
    ) -> None:
        super().__init__(lines, width, prefix)
        self._math_call = math_call
        #: Where to note which lanes are not for the short code of functions; None: that is not asked for.
        self.far: list[tuple[np.dtype, str]] | None = None
        self.calls = False  # whether functions are called, even if others are written in place

    @property
    def _has_functions(self) -> bool:
        return self.width > 1 and self._math_call is not None

    def _op(self, text: str, dtype: np.dtype, *xs: Value) -> Value:
        args = ", ".join(x.text for x in xs)
        return Value(dtype, self.line(f"{text} {self.type(xs[0].dtype)} {args}"))

    def _intrinsic(self, name: str, *xs: Value) -> Value:
        d = xs[0].dtype
        suffix = f"v{self.width}{'f' if d.kind == 'f' else 'i'}{8 * d.itemsize}"
        args = ", ".join(f"{self.type(x.dtype)} {x.text}" for x in xs)
        return Value(d, self.line(f"call {self.type(d)} @llvm.{name}.{suffix}({args})"))

    def _conv(self, text: str, x: Value, dtype: np.dtype) -> Value:
        source, target = self.type(x.dtype), self.type(dtype)
        return Value(dtype, self.line(f"{text} {source} {x.text} to {target}"))

    # -- constants and casts ------------------------------------------------------------------

    def const(self, value: Any, dtype: Any) -> Value:
        """Return `value` in every lane."""
        dtype = np.dtype(dtype)
        self._known(dtype)
        if dtype.kind == "c":
            number = dtype.type(value)
            return whole(dtype, [self.const(p, part_of(dtype)) for p in (number.real, number.imag)])
        return Value(dtype, f"splat ({element_type(dtype)} {literal(value, dtype)})", True)

    def cast(self, x: Value, dtype: Any) -> Value:
        """Convert as ``astype(casting="unsafe")`` does."""
        src, dtype = x.dtype, np.dtype(dtype)
        self._known(dtype)
        if src == dtype:
            return x
        if element_type(src) == element_type(dtype):
            return Value(dtype, x.text)
        if dtype == BOOL:
            return self.ne(x, self.const(0, src))
        if src.kind == "f":
            if dtype.kind != "f":
                return self._float_to_int(x, dtype)
            return self._conv("fpext" if dtype.itemsize > src.itemsize else "fptrunc", x, dtype)
        if dtype.kind == "f":
            if src == BOOL and self.width == 1:
                return self._one_or_zero(x, dtype)
            return self._conv("sitofp" if src.kind == "i" else "uitofp", x, dtype)
        if dtype.itemsize < src.itemsize:
            return self._conv("trunc", x, dtype)
        return self._conv("sext" if src.kind == "i" else "zext", x, dtype)

    def _one_or_zero(self, x: Value, dtype: np.dtype) -> Value:
        """Return a bool as a float, by its bits: LLVM makes `1.0 / float(x)` a choice that sets no flag."""
        word = np.dtype(f"i{dtype.itemsize}")
        one = self.const(dtype.type(1).view(word), word)
        bits = self._op("and", word, self._conv("sext", x, word), one)
        return self._conv("bitcast", bits, dtype)

    def _known(self, dtype: np.dtype) -> None:
        reason = refuse(dtype)
        if reason:
            raise BackendError(reason)

    def _float_to_int(self, x: Value, dtype: np.dtype) -> Value:
        # NumPy's casts are the processor's: x86 converts to i32 or i64 and gives the smallest integer
        # for what does not fit; narrower results are cut from i32. NumPy's float -> u4 depends on
        # the position in the array.
        if dtype == np.uint32:
            raise BackendError("NumPy's cast of a float to uint32 is not reproducible")
        if dtype == np.uint64:
            top = self.const(2.0**63, x.dtype)
            big = self.ge(x, top)
            low = self._to_signed(self.select(big, self.sub(x, top), x), np.dtype(np.int64))
            zero = self.const(0, np.dtype(np.int64))
            flip = self.select(big, self.const(-(2**63), np.dtype(np.int64)), zero)
            return Value(dtype, self.xor(low, flip).text)
        wide = np.dtype(np.int64 if dtype.itemsize == 8 else np.int32)
        return self.cast(self._to_signed(x, wide), dtype)

    def _to_signed(self, x: Value, dtype: np.dtype) -> Value:
        if dtype.itemsize == 8 and self._has_functions:
            return self.math("whole", self.cast(x, np.float64))
        if not x.fixed:
            return Value(dtype, self._frozen(self._conv("fptosi", x, dtype)))
        # What LLVM knows it folds, and has no smallest integer for what does not fit.
        limit = 2 ** (8 * dtype.itemsize - 1)
        above = self.ge(x, self.const(-limit, x.dtype))
        fits = self.and_(above, self.lt(x, self.const(limit, x.dtype)))
        safe = self.select(fits, x, self.const(0, x.dtype))
        return self.select(fits, self._conv("fptosi", safe, dtype), self.const(-limit, dtype))

    def _frozen(self, x: Value) -> str:
        return self.line(f"freeze {self.type(x.dtype)} {x.text}")

    # -- arithmetic ---------------------------------------------------------------------------

    def _arith(self, name: str, x: Value, y: Value) -> Value:
        return self._op(("f" if x.dtype.kind == "f" else "") + name, x.dtype, x, y)

    def add(self, x: Value, y: Value) -> Value:
        """Return x + y; bools: or; complex numbers by part, for sums of them."""
        if x.dtype.kind == "c":
            return whole(x.dtype, [self.add(p, q) for p, q in zip(x.parts, y.parts, strict=True)])
        return self.or_(x, y) if x.dtype == BOOL else self._arith("add", x, y)

    def sub(self, x: Value, y: Value) -> Value:
        """Return x - y."""
        return self._arith("sub", x, y)

    def mul(self, x: Value, y: Value) -> Value:
        """Return x * y; bools: and."""
        return self.and_(x, y) if x.dtype == BOOL else self._arith("mul", x, y)

    def div(self, x: Value, y: Value) -> Value:
        """Return x / y of floats."""
        if x.dtype.kind != "f":
            raise BackendError("true division of integers")
        return self._op("fdiv", x.dtype, x, y)

    def floordiv(self, x: Value, y: Value) -> Value:
        """Return NumPy's floor_divide."""
        if x.dtype.kind == "i":
            least = self.eq(x, self.const(np.iinfo(x.dtype).min, x.dtype))
            self.flag("overflow", self.and_(least, self.eq(y, self.const(-1, x.dtype))))
        return self._divmod(x, y)[0]

    def rem(self, x: Value, y: Value) -> Value:
        """Return NumPy's remainder, which has the divisor's sign."""
        return self._divmod(x, y)[1]

    def fmod(self, x: Value, y: Value) -> Value:
        """Return the remainder with the dividend's sign; 0 for integers over 0."""
        if x.dtype.kind == "f":
            return self._float_rest(x, y)
        return self._int_divide(x, y)[1]

    def _divmod(self, x: Value, y: Value) -> tuple[Value, Value]:
        if x.dtype.kind == "f":
            return self._float_divmod(x, y)
        known = whole_number(y)
        if known is not None and known > 0 and x.dtype.itemsize <= 4:
            return self._divmod_by_number(x, y)
        if y.fixed and x.dtype.kind in "iu" and (x.dtype.itemsize < 8 or self._has_functions):
            return self._divmod_by_fixed(x, y)
        q, r = self._int_divide(x, y)
        if x.dtype.kind != "i":
            return q, r
        zero = self.const(0, x.dtype)
        off = self.and_(self.ne(r, zero), self.lt(self.xor(r, y), zero))
        q_floor = self.select(off, self.sub(q, self.const(1, x.dtype)), q)
        return q_floor, self.select(off, self.add(r, y), r)

    def _int_divide(self, x: Value, y: Value) -> tuple[Value, Value]:
        """Quotient towards zero and remainder; 0, 0 for a zero divisor; never traps."""
        d = x.dtype
        if d == BOOL:
            raise BackendError("division of bools")
        zero, one = self.const(0, d), self.const(1, d)
        void = self.eq(y, zero)
        safe = self.select(void, one, y)
        if d.kind == "i":
            # The least integer over -1 traps: over -1 the quotient is a negation.
            minus = self.eq(y, self.const(-1, d))
            safe = self.select(minus, one, safe)
        self.flag("divide", void)
        q = self._quotient(x, safe)
        if d.kind == "i":
            q = self.select(minus, self.neg(x), q)
        r = self.sub(x, self.mul(q, y))
        return self.select(void, zero, q), self.select(void, zero, r)

    def flag(self, kind: str, c: Value) -> None:
        """Raise the flag `kind` if `c` holds in any lane, by a division that is exact otherwise."""
        f = np.dtype(np.float32)
        bits = self.line(f"bitcast {self.type(BOOL)} {c.text} to i{self.width}")
        some = self.line(f"icmp ne i{self.width} {bits}, 0")
        dividend, divisor = (
            self.line(f"select i1 {some}, float {literal(n, f)}, float {literal(1, f)}")
            for n in _RAISING[kind])
        self.line(
            f"call float @llvm.experimental.constrained.fdiv.f32(float {dividend}, float {divisor}, "
            "metadata !\"round.dynamic\", metadata !\"fpexcept.strict\")")

    def _quotient(self, x: Value, y: Value) -> Value:
        d = x.dtype
        signed = d.kind == "i"
        if d.itemsize == 8:
            if self._has_functions:
                return self.math("quotient", x, y)
            return self._op("sdiv" if signed else "udiv", d, x, y)
        # Vectors have no integer division. The nearest float of a quotient of n-bit integers
        # truncates to the right integer as soon as it has 2n/2 + 1 bits: 24 for 16, 53 for 32.
        wide = np.dtype(np.int32 if d.itemsize < 4 else d)
        f = np.dtype(np.float32 if d.itemsize < 4 else np.float64)
        xf, yf = self.cast(self.cast(x, wide), f), self.cast(self.cast(y, wide), f)
        how = "fptosi" if wide.kind == "i" else "fptoui"
        return self.cast(self._conv(how, self.div(xf, yf), wide), d)

    def _divmod_by_number(self, x: Value, y: Value) -> tuple[Value, Value]:
        """Floor quotient and remainder by a positive number that LLVM knows, and multiplies for.

        Lanes stay as narrow as they are. Of a negative x the complement is divided: it is no less than 0.
        """
        d = x.dtype
        if d.kind == "i":
            sign = self._op("ashr", d, x, self.const(8 * d.itemsize - 1, d))
            q = self.xor(self._op("udiv", d, self.xor(x, sign), y), sign)
        else:
            q = self._op("udiv", d, x, y)
        return q, self.sub(x, self.mul(q, y))

    def _divmod_by_fixed(self, x: Value, y: Value) -> tuple[Value, Value]:
        """Floor quotient and remainder of integers by a divisor that does not vary.

        The reciprocal is then computed once. (x + 1/2) / y, for a positive y, is 1 / 2y away from
        the integers around it, and the float product only x / y / 2**22 from it (2**51 for doubles).
        """
        d = x.dtype
        zero, one = self.const(0, d), self.const(1, d)
        void = self.eq(y, zero)
        safe, minus = self.select(void, one, y), None
        if d == np.uint16 and self.width > 1:
            return self._divmod_in_words(x, y, void, safe)
        if d.kind == "i" and d.itemsize >= 4:
            # The least integer over -1 is out of range.
            minus = self.eq(y, self.const(-1, d))
            safe = self.select(minus, one, safe)
        wide = np.dtype(np.int32 if d.itemsize < 4 else d)
        f = np.dtype(np.float32 if d.itemsize < 4 else np.float64)
        yf = self.cast(self.cast(y, wide), f)  # not `safe`: 1 / 0 raises the flag NumPy tells of
        half = self.copysign(self.const(0.5, f), yf)
        over = self.select(void, self.const(0, f), self.div(self.const(1, f), yf))
        if minus is not None:
            over = self.select(minus, self.const(0, f), over)
        if d.itemsize == 8:
            q = self.math("floored", x, safe, half, over)
        else:
            ratio = self.mul(self.add(self.cast(self.cast(x, wide), f), half), over)
            how = "fptosi" if wide.kind == "i" else "fptoui"
            q = self.cast(self._conv(how, self.floor(ratio), wide), d)
        if minus is not None:
            q = self.select(minus, self.neg(x), q)
        return q, self.select(void, zero, self.sub(x, self.mul(q, y)))

    def _divmod_in_words(self, x: Value, y: Value, void: Value, safe: Value) -> tuple[Value, Value]:
        """Quotient and remainder, in lanes of 16 bits: the upper half of a product is at most one short."""
        d, f, wide = x.dtype, np.dtype(np.float32), np.dtype(np.uint32)
        given = self.cast(y, f)  # not `safe`: 1 / 0 raises the flag NumPy tells of
        over = self.div(self.const(65535, f), given)
        most = self.cast(self._conv("fptoui", self.select(void, self.const(0, f), over), wide), d)
        product = self.mul(self.cast(x, wide), self.cast(most, wide))
        q = self.cast(self._op("lshr", wide, product, self.const(16, wide)), d)
        r = self.sub(x, self.mul(q, safe))
        short = self.and_(self.ge(r, safe), self.ne(y, self.const(0, d)))
        q = self.select(short, self.add(q, self.const(1, d)), q)
        r = self.select(short, self.sub(r, safe), r)
        return q, self.select(void, self.const(0, d), r)

    def _float_rest(self, x: Value, y: Value) -> Value:
        if self._has_functions:
            return self.math("fmod", x, y)
        return self._op("frem", x.dtype, x, y)

    def _float_divmod(self, x: Value, y: Value) -> tuple[Value, Value]:
        d = x.dtype
        zero, one, half = self.const(0, d), self.const(1, d), self.const(0.5, d)
        ratio = self.div(x, y)
        mod = self._float_rest(x, y)
        div = self.div(self.sub(x, mod), y)
        uneven = self.ne(mod, zero)
        wrong = self.and_(uneven, self.xor(self.lt(y, zero), self.lt(mod, zero)))
        mod_up = self.select(wrong, self.add(mod, y), mod)
        div = self.select(wrong, self.sub(div, one), div)
        mod_fixed = self.select(uneven, mod_up, self.copysign(zero, y))
        low = self.floor(div)
        near = self.select(self.gt(self.sub(div, low), half), self.add(low, one), low)
        quotient = self.select(self.ne(div, zero), near, self.copysign(zero, ratio))
        void = self.eq(y, zero)
        return self.select(void, ratio, quotient), self.select(void, mod, mod_fixed)

    def neg(self, x: Value) -> Value:
        """Return -x."""
        if x.dtype.kind == "f":
            return self._op("fneg", x.dtype, x)
        return self.sub(self.const(0, x.dtype), x)

    def abs(self, x: Value) -> Value:
        """Return the magnitude; the smallest integer stays."""
        if x.dtype.kind == "f":
            return self._intrinsic("fabs", x)
        if x.dtype.kind != "i":
            return x
        return self.select(self.lt(x, self.const(0, x.dtype)), self.neg(x), x)

    def sqrt(self, x: Value) -> Value:
        """Return the correctly rounded root."""
        return self._intrinsic("sqrt", x)

    def _round(self, name: str, x: Value) -> Value:
        return self._intrinsic(name, x) if x.dtype.kind == "f" else x

    def floor(self, x: Value) -> Value:
        """Round down."""
        return self._round("floor", x)

    def ceil(self, x: Value) -> Value:
        """Round up."""
        return self._round("ceil", x)

    def trunc(self, x: Value) -> Value:
        """Round towards zero."""
        return self._round("trunc", x)

    def rint(self, x: Value) -> Value:
        """Round to nearest, ties to even."""
        return self._round("rint", x)

    def copysign(self, x: Value, y: Value) -> Value:
        """Return the magnitude of x with the sign of y."""
        return self._intrinsic("copysign", x, y)

    # -- order --------------------------------------------------------------------------------

    def _extreme(self, ordered: str, x: Value, y: Value, nan_from: Value | None) -> Value:
        if x.dtype == BOOL:
            return self.and_(x, y) if ordered == "lt" else self.or_(x, y)
        best = self.select(self._compare(ordered, x, y), x, y)
        if x.dtype.kind != "f" or nan_from is None:
            return best
        return self.select(self._op("fcmp uno", BOOL, nan_from, nan_from), x, best)

    def minimum(self, x: Value, y: Value) -> Value:
        """Return the smaller, NaN if either is."""
        return self._extreme("lt", x, y, x)

    def maximum(self, x: Value, y: Value) -> Value:
        """Return the larger, NaN if either is."""
        return self._extreme("gt", x, y, x)

    def fmin(self, x: Value, y: Value) -> Value:
        """Return the smaller, ignoring a NaN."""
        return self._extreme("lt", x, y, y)

    def fmax(self, x: Value, y: Value) -> Value:
        """Return the larger, ignoring a NaN."""
        return self._extreme("gt", x, y, y)

    def _compare(self, name: str, x: Value, y: Value) -> Value:
        if x.dtype.kind == "f":
            return self._op(f"fcmp {'une' if name == 'ne' else 'o' + name}", BOOL, x, y)
        sign = "" if name in ("eq", "ne") else "s" if x.dtype.kind == "i" else "u"
        return self._op(f"icmp {sign}{name}", BOOL, x, y)

    def eq(self, x: Value, y: Value) -> Value:
        """Return x == y."""
        return self._compare("eq", x, y)

    def ne(self, x: Value, y: Value) -> Value:
        """Return x != y."""
        return self._compare("ne", x, y)

    def lt(self, x: Value, y: Value) -> Value:
        """Return x < y."""
        return self._compare("lt", x, y)

    def le(self, x: Value, y: Value) -> Value:
        """Return x <= y."""
        return self._compare("le", x, y)

    def gt(self, x: Value, y: Value) -> Value:
        """Return x > y."""
        return self._compare("gt", x, y)

    def ge(self, x: Value, y: Value) -> Value:
        """Return x >= y."""
        return self._compare("ge", x, y)

    # -- bits and choice ----------------------------------------------------------------------

    def and_(self, x: Value, y: Value) -> Value:
        """Return the bitwise and."""
        return self._op("and", x.dtype, x, y)

    def or_(self, x: Value, y: Value) -> Value:
        """Return the bitwise or."""
        return self._op("or", x.dtype, x, y)

    def xor(self, x: Value, y: Value) -> Value:
        """Return the bitwise exclusive or."""
        return self._op("xor", x.dtype, x, y)

    def not_(self, x: Value) -> Value:
        """Return the complement; bools: logical not."""
        return self.xor(x, self.const(True if x.dtype == BOOL else -1, x.dtype))

    def _shift(self, name: str, x: Value, y: Value, beyond: Value) -> Value:
        width = self.const(8 * x.dtype.itemsize, x.dtype)
        fits = self._op("icmp ult", BOOL, y, width)
        safe = self.select(fits, y, self.const(0, x.dtype))
        return self.select(fits, self._op(name, x.dtype, x, safe), beyond)

    def shl(self, x: Value, y: Value) -> Value:
        """Shift left; 0 from the width on."""
        return self._shift("shl", x, y, self.const(0, x.dtype))

    def shr(self, x: Value, y: Value) -> Value:
        """Shift right; the sign from the width on."""
        if x.dtype.kind != "i":
            return self._shift("lshr", x, y, self.const(0, x.dtype))
        top = self.const(8 * x.dtype.itemsize - 1, x.dtype)
        return self._shift("ashr", x, y, self._op("ashr", x.dtype, x, top))

    def select(self, c: Value, x: Value, y: Value) -> Value:
        """Return x where c, else y; also of complex numbers."""
        if x.dtype.kind == "c":
            pairs = zip(x.parts, y.parts, strict=True)
            return whole(x.dtype, [self.select(c, p, q) for p, q in pairs])
        kind = self.type(x.dtype)
        cond = f"{self.type(BOOL)} {c.text}"
        return Value(x.dtype, self.line(f"select {cond}, {kind} {x.text}, {kind} {y.text}"))

    def real(self, x: Value) -> Value:
        """Return the real parts."""
        return x.parts[0]

    def imag(self, x: Value) -> Value:
        """Return the imaginary parts."""
        return x.parts[1]

    def pair(self, re: Value, im: Value) -> Value:
        """Return complex numbers."""
        return whole(np.dtype(f"c{2 * re.dtype.itemsize}"), (re, im))

    def muladd(self, x: Value, y: Value, z: Value) -> Value:
        """Return x * y + z, rounded once where the processor can."""
        return self.math("muladd", x, y, z)

    def math(self, name: str, *xs: Value) -> Value:
        """Return the transcendental called `name` in NumPy."""
        if self._math_call is None:
            raise BackendError(f"no vector code for {name} of {xs[0].dtype}")
        return self._math_call(self, name, xs)


# Two numbers whose quotient raises the flag.
_RAISING = {"invalid": (0.0, 0.0), "divide": (1.0, 0.0), "overflow": (1e30, 1e-30)}

MathCall = Callable[[LlvmBuilder, str, Sequence[Value]], Value]
