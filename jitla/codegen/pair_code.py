"""Instructions that products of small matrices are made of, and the addresses of their elements.

Knows: element types, vectors, strides. Must not know: in which order products are made.
Receives names of values; writes lines and returns names.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jitla.codegen.layout import Target
from jitla.codegen.vector import element_type, part_of

__all__ = ["PairCode", "PairMatrix"]

Step = int | str


class PairCode:
    """Lines of IR for vectors of one dtype; complex numbers are two lanes side by side."""

    def __init__(self, dtype: np.dtype, target: Target) -> None:
        part = part_of(dtype)
        self.real = element_type(part)
        self.size = part.itemsize
        self.lanes = 2 if dtype.kind == "c" else 1  # of an element
        self.most = max(target.lanes(dtype.itemsize), 1)  # elements of a vector
        self.is_float = part.kind == "f"
        self.lines: list[str] = []
        self._made = 0
        self._used: set[str] = set()

    def kind(self, lanes: int) -> str:
        """Return the type of a vector."""
        return f"<{lanes} x {self.real}>"

    def put(self, expression: str) -> str:
        """Write an instruction and return the name of its value."""
        self._made += 1
        name = f"%t{self._made}"
        self.lines.append(f"  {name} = {expression}")
        return name

    def moved(self, base: str, by: Step) -> str:
        """Write the address `by` bytes behind `base`."""
        return base if by == 0 else self.put(f"getelementptr i8, ptr {base}, i64 {by}")

    def load(self, at: str, lanes: int) -> str:
        """Write the load of neighbours."""
        return self.put(f"load {self.kind(lanes)}, ptr {at}, align {self.size}")

    def store(self, x: str, at: str, lanes: int) -> None:
        """Write the store of neighbours."""
        self.lines.append(f"  store {self.kind(lanes)} {x}, ptr {at}, align {self.size}")

    def pick(self, x: str, y: str, lanes: int, chosen: Sequence[int]) -> str:
        """Write a vector of the `chosen` lanes of `x` and, counted on, of `y`; both have `lanes`."""
        kind = self.kind(lanes)
        mask = ", ".join(f"i32 {c}" for c in chosen)
        return self.put(f"shufflevector {kind} {x}, {kind} {y}, <{len(chosen)} x i32> <{mask}>")

    def spread(self, at: str, lanes: int) -> str:
        """Write a vector of what lies at an address, in all lanes."""
        x = self.load(at, 1)
        return x if lanes == 1 else self.pick(x, "poison", 1, [0] * lanes)

    def add_product(self, x: str, y: str, z: str, lanes: int) -> str:
        """Write ``x * y + z``, of floats rounded once where the processor can."""
        kind = self.kind(lanes)
        if self.is_float:
            name = f"llvm.fmuladd.v{lanes}f{8 * self.size}"
            self._used.add(f"declare {kind} @{name}({kind}, {kind}, {kind})\n")
            return self.put(f"call {kind} @{name}({kind} {x}, {kind} {y}, {kind} {z})")
        return self.put(f"add {kind} {z}, " + self.put(f"mul {kind} {x}, {y}"))

    def joined(self, reals: str, imaginaries: str, lanes: int) -> str:
        """Write the complex numbers that products with real and with imaginary parts add up to."""
        kind = self.kind(lanes)
        turned = self.pick(imaginaries, "poison", lanes, [i ^ 1 for i in range(lanes)])
        less = self.put(f"fsub {kind} {reals}, {turned}")
        more = self.put(f"fadd {kind} {reals}, {turned}")
        return self.pick(less, more, lanes, [i + lanes * (i & 1) for i in range(lanes)])

    def declared(self) -> str:
        """Declarations of the intrinsics."""
        return "".join(sorted(self._used))


class PairMatrix:
    """Where the elements of one matrix of every pair lie; the names of its addresses begin with `name`."""

    def __init__(self, code: PairCode, name: str, letter: str, shape: tuple[int, int], size: int) -> None:
        rows, columns = shape
        self.code, self.name, self.shape, self.size = code, name, shape, size
        self.down: Step = {"c": columns * size, "t": size}.get(letter, f"%{name}.down")
        self.across: Step = {"c": size, "r": size, "t": rows * size}.get(letter, f"%{name}.across")
        self.in_runs = letter in "cr"

    def scaled(self) -> list[str]:
        """Return lines of how far rows and columns are from the first, where only the block knows."""
        return [f"  {step}.{i} = mul i64 {step}, {i}"
                for step, count in zip((self.down, self.across), self.shape, strict=True)
                if isinstance(step, str) for i in range(count)]

    def at(self, base: str, row: int, column: int) -> str:
        """Write the address of an element, counted from `base`."""
        fixed = 0
        for step, i in ((self.down, row), (self.across, column)):
            if isinstance(step, int):
                fixed += step * i
            elif i:
                base = self.code.moved(base, f"{step}.{i}")
        return self.code.moved(base, fixed)
