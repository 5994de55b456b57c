"""LLVM text for vectors of NumPy dtypes: types, constants, loads, stores and shuffles of lanes.

Operators are in `ir_elementwise`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from jitla.classes import dataclass

__all__ = ["Lanes"]


BOOL = np.dtype(bool)
_FLOATS = {4: "float", 8: "double"}


@dataclass(frozen=True, slots=True)
class Value:
    """An IR operand `text` of vectors of `dtype`; `fixed` if it is the same in every turn of the loop.

    Of complex numbers `text` has the real parts, `imag` the imaginary ones.
    """

    dtype: np.dtype
    text: str
    fixed: bool = False
    imag: str = ""

    @property
    def parts(self) -> tuple[Value, ...]:
        """The vectors of reals that it consists of."""
        if self.dtype.kind != "c":
            return (self,)
        part = part_of(self.dtype)
        return Value(part, self.text, self.fixed), Value(part, self.imag, self.fixed)


def part_of(dtype: np.dtype) -> np.dtype:
    """Return the dtype of one register: of a part, if numbers are complex."""
    return np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype


def whole(dtype: np.dtype, parts: Sequence[Value]) -> Value:
    """Return the value of `dtype` that consists of `parts`."""
    fixed = all(p.fixed for p in parts)
    return Value(dtype, parts[0].text, fixed, parts[1].text if len(parts) > 1 else "")


def named(dtype: np.dtype, name: str) -> Value:
    """Return the value of `dtype` whose registers are called after `name`."""
    return Value(dtype, name, imag=f"{name}.im" if dtype.kind == "c" else "")


def memory_type(dtype: np.dtype) -> str:
    """Return the IR type of one element in memory; an integer of their size for complex numbers."""
    if dtype.kind == "c":
        return f"i{8 * dtype.itemsize}"
    return "i8" if dtype == BOOL else element_type(dtype)


def element_type(dtype: np.dtype) -> str:
    """Return the IR type of one element in a register."""
    if dtype == BOOL:
        return "i1"
    if dtype.kind == "f":
        return _FLOATS[dtype.itemsize]
    return f"i{8 * dtype.itemsize}"


def refuse(dtype: np.dtype) -> str | None:
    """Return why elements of `dtype` cannot be in a kernel, or None."""
    if not dtype.isnative:
        return "byte-swapped"
    if dtype.kind in "biu" or (dtype.kind in "fc" and part_of(dtype).itemsize in _FLOATS):
        return None
    return f"no kernels for {dtype}"


def literal(value: Any, dtype: np.dtype) -> str:
    """Return `value` as an IR constant of one element; floats by their bits."""
    if dtype == BOOL:
        return "true" if value else "false"
    if dtype.kind == "f":
        wide = np.array(value, dtype).astype(np.float64)
        return f"0x{struct.unpack('<Q', wide.tobytes())[0]:016X}"
    return str(int(value))


_WHOLE = re.compile(r"splat \(i\d+ (-?\d+)\)")


def whole_number(x: Value) -> int | None:
    """Return the integer that is written into the code in every lane of `x`; None if it is not known here."""
    found = _WHOLE.fullmatch(x.text)
    return int(found[1]) if found else None


def _code(kind: str) -> str:
    """Return how names of intrinsics call an IR type."""
    return {"float": "f32", "double": "f64"}.get(kind, kind)


class VectorText:
    """IR text under construction whose values are vectors of `width` lanes.

    `lines` grows; `prefix` keeps the names of several builders in one function apart.
    """

    def __init__(self, lines: list[str], width: int, prefix: str = "t") -> None:
        self.lines = lines
        self.width = width
        self._prefix = prefix
        self._count = 0

    def type(self, dtype: np.dtype) -> str:
        """Return the IR type of a value of `dtype`."""
        return f"<{self.width} x {element_type(dtype)}>"

    def line(self, text: str) -> str:
        """Append the instruction `text` under a fresh name and return the name."""
        name = f"%{self._prefix}{self._count}"
        self._count += 1
        self.lines.append(f"  {name} = {text}")
        return name

    # -- memory -------------------------------------------------------------------------------

    def phi(self, name: str, before: tuple[Value, str], after: tuple[Value, str]) -> list[str]:
        """Return the lines that give `name` what it has where the loop is entered, and in later turns."""
        pairs = zip(named(before[0].dtype, name).parts, before[0].parts, after[0].parts, strict=True)
        return [
            f"  {n.text} = phi {self.type(n.dtype)} [ {x.text}, %{before[1]} ], [ {y.text}, %{after[1]} ]"
            for n, x, y in pairs
        ]

    def load(self, pointer: str, dtype: np.dtype) -> Value:
        """Load consecutive elements at `pointer`."""
        if dtype.kind == "c":
            kind = f"<{2 * self.width} x {element_type(part_of(dtype))}>"
            return self._apart(self.line(f"load {kind}, ptr {pointer}, align 1"), dtype)
        kind = f"<{self.width} x {memory_type(dtype)}>"
        return self._loaded(self.line(f"load {kind}, ptr {pointer}, align 1"), dtype)

    def load_some(self, pointer: str, count: str, dtype: np.dtype) -> Value:
        """Load `count` consecutive elements at `pointer`; the last of them fills the other lanes."""
        kind = memory_type(dtype)
        end = self.line(f"sub i64 {count}, 1")
        last = self.line(f"getelementptr {kind}, ptr {pointer}, i64 {end}")
        vec, one = f"<{self.width} x {kind}>", self.line(f"load {kind}, ptr {last}, align 1")
        first = self.line(f"insertelement {vec} poison, {kind} {one}, i64 0")
        zeros = f"<{self.width} x i32> zeroinitializer"
        fill = self.line(f"shufflevector {vec} {first}, {vec} poison, {zeros}")
        lanes, index = f"<{self.width} x i64>", ", ".join(f"i64 {i}" for i in range(self.width))
        many = self.line(f"insertelement {lanes} poison, i64 {count}, i64 0")
        many = self.line(f"shufflevector {lanes} {many}, {lanes} poison, {zeros}")
        mask = self.line(f"icmp ult {lanes} <{index}>, {many}")
        code = f"v{self.width}{_code(kind)}"
        text = self.line(f"call {vec} @llvm.masked.load.{code}.p0(ptr align 1 {pointer}, "
                         f"<{self.width} x i1> {mask}, {vec} {fill})")
        if dtype.kind != "c":
            return self._loaded(text, dtype)
        part = element_type(part_of(dtype))
        return self._apart(self.line(f"bitcast {vec} {text} to <{2 * self.width} x {part}>"), dtype)

    def store(self, x: Value, pointer: str, nontemporal: bool = False) -> None:
        """Store consecutive elements at `pointer` (aligned to the vector, or a line, if `nontemporal`)."""
        kind, text = self._stored(x)
        align = min(self.width * x.dtype.itemsize, 64)
        tail = f"align {align}, !nontemporal !0" if nontemporal else "align 1"
        self.lines.append(f"  store {kind} {text}, ptr {pointer}, {tail}")

    def splat(self, pointer: str, dtype: np.dtype) -> Value:
        """Load one element at `pointer` into every lane."""
        if dtype.kind == "c":
            part = part_of(dtype)
            second = self.line(f"getelementptr {element_type(part)}, ptr {pointer}, i64 1")
            return whole(dtype, (self.splat(pointer, part), self.splat(second, part)))
        kind = memory_type(dtype)
        one = self.line(f"load {kind}, ptr {pointer}, align 1")
        vec = f"<{self.width} x {kind}>"
        first = self.line(f"insertelement {vec} poison, {kind} {one}, i64 0")
        mask = f"<{self.width} x i32> zeroinitializer"
        found = self._loaded(self.line(f"shufflevector {vec} {first}, {vec} poison, {mask}"), dtype)
        return replace(found, fixed=True)

    def gather(self, pointer: str, stride: str, dtype: np.dtype) -> Value:
        """Load elements that are `stride` bytes apart."""
        if dtype.kind == "c":
            pair = f"<2 x {element_type(part_of(dtype))}>"
            pairs = [self.line(f"load {pair}, ptr {at}, align 1")
                     for at in self._lane_pointers(pointer, stride)]
            return self._apart(self._joined(pairs, element_type(part_of(dtype))), dtype)
        kind = memory_type(dtype)
        vec, text = f"<{self.width} x {kind}>", "poison"
        for lane, at in enumerate(self._lane_pointers(pointer, stride)):
            one = self.line(f"load {kind}, ptr {at}, align 1")
            text = self.line(f"insertelement {vec} {text}, {kind} {one}, i64 {lane}")
        return self._loaded(text, dtype)

    def words(self, pointer: str, dtype: np.dtype) -> list[str]:
        """Load consecutive integers one by one."""
        kind, found = element_type(dtype), []
        for lane in range(self.width):
            at = self.line(f"getelementptr {kind}, ptr {pointer}, i64 {lane}")
            found.append(self.line(f"load {kind}, ptr {at}, align {dtype.itemsize}"))
        return found

    def lanes(self, x: Value) -> list[str]:
        """Take the elements of integers apart."""
        kind, text = self._stored(x)
        return [self.line(f"extractelement {kind} {text}, i64 {lane}") for lane in range(self.width)]

    def pick(self, table: str, positions: Sequence[str], dtype: np.dtype) -> Value:
        """Load elements of `table` at as many `positions`, words of 32 bits that are not negative."""
        kind = element_type(part_of(dtype))
        element = f"<2 x {kind}>" if dtype.kind == "c" else memory_type(dtype)
        vec, text, pairs = f"<{self.width} x {element}>", "poison", []
        for near in positions:
            far = self.line(f"zext i32 {near} to i64")
            there = self.line(f"getelementptr {element}, ptr {table}, i64 {far}")
            pairs.append(self.line(f"load {element}, ptr {there}, align 1"))
        if dtype.kind == "c":
            return self._apart(self._joined(pairs, kind), dtype)
        for lane, one in enumerate(pairs):
            text = self.line(f"insertelement {vec} {text}, {element} {one}, i64 {lane}")
        return self._loaded(text, dtype)

    def every_second(self, pointer: str, dtype: np.dtype) -> Value:
        """Load elements between which one other lies each; nothing behind the last one is touched."""
        kind, n = memory_type(dtype), self.width
        vec = f"<{n} x {kind}>"
        near = self.line(f"load {vec}, ptr {pointer}, align 1")
        at = self.line(f"getelementptr {kind}, ptr {pointer}, i64 {n - 1}")
        far = self.line(f"load {vec}, ptr {at}, align 1")
        lanes = ", ".join(f"i32 {2 * i if 2 * i < n else 2 * i + 1}" for i in range(n))
        both = self.line(f"shufflevector {vec} {near}, {vec} {far}, <{n} x i32> <{lanes}>")
        return self._loaded(both, dtype)

    def scatter(self, x: Value, pointer: str, stride: str) -> None:
        """Store elements `stride` bytes apart."""
        kind, text = self._stored(x)
        if x.dtype.kind == "c":
            for lane, at in enumerate(self._lane_pointers(pointer, stride)):
                lanes = f"<2 x i32> <i32 {2 * lane}, i32 {2 * lane + 1}>"
                one = self.line(f"shufflevector {kind} {text}, {kind} poison, {lanes}")
                pair = f"<2 x {element_type(part_of(x.dtype))}>"
                self.lines.append(f"  store {pair} {one}, ptr {at}, align 1")
            return
        for lane, at in enumerate(self._lane_pointers(pointer, stride)):
            one = self.line(f"extractelement {kind} {text}, i64 {lane}")
            self.lines.append(f"  store {memory_type(x.dtype)} {one}, ptr {at}, align 1")

    def _lane_pointers(self, pointer: str, stride: str) -> list[str]:
        pointers = [pointer]
        for _ in range(1, self.width):
            pointers.append(self.line(f"getelementptr i8, ptr {pointers[-1]}, i64 {stride}"))
        return pointers

    def _loaded(self, text: str, dtype: np.dtype) -> Value:
        if dtype != BOOL:
            return Value(dtype, text)
        return Value(BOOL, self.line(f"icmp ne <{self.width} x i8> {text}, zeroinitializer"))

    def _apart(self, text: str, dtype: np.dtype) -> Value:
        """Take numbers as they lie in memory apart into their parts."""
        pairs = Value(part_of(dtype), text)
        return whole(dtype, self._every_second(pairs, 2 * self.width))

    def _every_second(self, x: Value, width: int) -> tuple[Value, Value]:
        """Return the even and the odd lanes of a vector of `width`."""
        kind, found = f"<{width} x {element_type(x.dtype)}>", []
        for odd in (0, 1):
            lanes = ", ".join(f"i32 {i}" for i in range(odd, width, 2))
            mask = f"<{width // 2} x i32> <{lanes}>"
            found.append(Value(x.dtype, self.line(f"shufflevector {kind} {x.text}, {kind} poison, {mask}")))
        return found[0], found[1]

    def _joined(self, pairs: list[str], element: str) -> str:
        """Return one vector of vectors of two, a power of two of them."""
        size = 2
        while len(pairs) > 1:
            lanes = ", ".join(f"i32 {i}" for i in range(2 * size))
            kind, mask = f"<{size} x {element}>", f"<{2 * size} x i32> <{lanes}>"
            both = zip(pairs[::2], pairs[1::2], strict=True)
            pairs = [self.line(f"shufflevector {kind} {x}, {kind} {y}, {mask}") for x, y in both]
            size *= 2
        return pairs[0]

    def _stored(self, x: Value) -> tuple[str, str]:
        if x.dtype.kind == "c":
            kind, n = self.type(part_of(x.dtype)), self.width
            lanes = ", ".join(f"i32 {i}, i32 {n + i}" for i in range(n))
            mask = f"<{2 * n} x i32> <{lanes}>"
            text = self.line(f"shufflevector {kind} {x.text}, {kind} {x.imag}, {mask}")
            return f"<{2 * n} x {element_type(part_of(x.dtype))}>", text
        kind = f"<{self.width} x {memory_type(x.dtype)}>"
        if x.dtype != BOOL:
            return kind, x.text
        return kind, self.line(f"zext {self.type(BOOL)} {x.text} to {kind}")

    def halves(self, x: Value, narrow: VectorText) -> tuple[Value, Value]:
        """Return the even and the odd lanes of `x` as values of `narrow`."""
        even, odd = zip(*(self._every_second(p, 2 * narrow.width) for p in x.parts), strict=True)
        return whole(x.dtype, even), whole(x.dtype, odd)

    def fresh(self, hint: str) -> str:
        """Return an unused name for code that others write into `lines`."""
        self._count += 1
        return f"%{self._prefix}{self._count - 1}.{hint}"

    def resized(self, x: Value, wide: VectorText) -> Value:
        """Return the lanes of `x` that `wide` has, the first one repeated where it has more."""
        lanes = ", ".join(f"i32 {i if i < self.width else 0}" for i in range(wide.width))
        kind, mask = self.type(x.dtype), f"<{wide.width} x i32> <{lanes}>"
        return Value(x.dtype, self.line(f"shufflevector {kind} {x.text}, {kind} poison, {mask}"))


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
