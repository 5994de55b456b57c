"""Vectors of one element type, as IR: tails under a mask, products added up, sums of lanes.

Knows: types and intrinsics. Must not know: what is computed with them.
Receives names of values; returns lines.
"""

from __future__ import annotations

__all__ = ["Lanes"]


class Lanes:
    """Names of types and operations for one element type and vector width."""

    def __init__(self, real: str, size: int, width: int) -> None:
        self.real, self.size, self.width = real, size, width
        self.vector = f"<{width} x {real}>"
        self.code = f"v{width}{'f64' if size == 8 else 'f32'}"
        self.mask = f"<{width} x i1>"
        self.shift = width.bit_length() - 1

    def tail_mask(self) -> str:
        """Lines of %mask, true for the first %rest lanes."""
        lanes = ", ".join(f"i64 {i}" for i in range(self.width))
        i64s = f"<{self.width} x i64>"
        return (f"  %rest.0 = insertelement {i64s} poison, i64 %rest, i64 0\n"
                f"  %rest.v = shufflevector {i64s} %rest.0, {i64s} poison, "
                f"<{self.width} x i32> zeroinitializer\n"
                f"  %mask = icmp ult {i64s} <{lanes}>, %rest.v\n")

    def masked(self, name: str, at: str) -> str:
        """Line that loads the lanes of %mask, zeros elsewhere."""
        return (f"  {name} = call {self.vector} @llvm.masked.load.{self.code}.p0(ptr align "
                f"{self.size} {at}, {self.mask} %mask, {self.vector} zeroinitializer)\n")

    def fma(self, name: str, a: str, b: str, c: str) -> str:
        """Line of ``a * b + c``, rounded once where the processor can."""
        v = self.vector
        return f"  {name} = call {v} @llvm.fmuladd.{self.code}({v} {a}, {v} {b}, {v} {c})\n"

    def fold(self, name: str, x: str) -> str:
        """Lines that add up the lanes of `x`, halves first."""
        text, width = "", self.width
        while width > 1:
            half = width // 2
            pair = f"<{width} x {self.real}> {x}, <{width} x {self.real}> poison"
            low = ", ".join(f"i32 {i}" for i in range(half))
            high = ", ".join(f"i32 {i + half}" for i in range(half))
            text += (f"  {name}.l{half} = shufflevector {pair}, <{half} x i32> <{low}>\n"
                     f"  {name}.h{half} = shufflevector {pair}, <{half} x i32> <{high}>\n"
                     f"  {name}.s{half} = fadd <{half} x {self.real}> {name}.l{half}, {name}.h{half}\n")
            x, width = f"{name}.s{half}", half
        return text + f"  {name} = extractelement <1 x {self.real}> {x}, i64 0\n"

    def folds(self, name: str, given: list[str]) -> tuple[str, list[str]]:
        """Lines that add up the lanes of each of several vectors, as `fold` does, and where sums are.

        There are as many as a power of two. Sums lie next to each other, in one vector if they fit.
        """
        text, held, lanes, groups = "", list(given), self.width, 1
        while lanes > 1:
            half = lanes // 2
            pairs = [(a, b) for a, b in zip(held[::2], held[1::2], strict=True)] if len(held) > 1 else \
                [(held[0], "poison")]
            both = 2 if len(held) > 1 else 1
            starts = [lanes * g for g in range(both * groups)]
            held = []
            for a, b in pairs:
                made = f"{name}.{lanes}.{len(held)}"
                for part, shift in (("l", 0), ("h", half)):
                    picked = ", ".join(f"i32 {s + shift + i}" for s in starts for i in range(half))
                    v = f"<{groups * lanes} x {self.real}>"
                    text += (f"  {made}{part} = shufflevector {v} {a}, {v} {b}, "
                             f"<{len(starts) * half} x i32> <{picked}>\n")
                text += f"  {made} = fadd <{len(starts) * half} x {self.real}> {made}l, {made}h\n"
                held.append(made)
            lanes, groups = half, groups * both
        return text, held

    def declared(self) -> str:
        """Declarations of the intrinsics."""
        v = self.vector
        return (f"declare {v} @llvm.masked.load.{self.code}.p0(ptr, {self.mask}, {v})\n"
                f"declare void @llvm.masked.store.{self.code}.p0({v}, ptr, {self.mask})\n"
                f"declare {v} @llvm.fmuladd.{self.code}({v}, {v}, {v})\n"
                "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)\n"
                "declare i64 @llvm.umin.i64(i64, i64)\n")
