"""LLVM modules: functions they contain, how they are split, and which operators can be compiled."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from jitla.codegen.ir import Value, named, refuse
from jitla.codegen.ir_elementwise import LlvmBuilder, MathCall, division, quiet, result_dtype
from jitla.codegen.kernel_abi import KernelLoop
from jitla.codegen.kernels.body import emit_hop
from jitla.codegen.kernels.cell import cell_kernel
from jitla.codegen.kernels.reduce_all import full_kernel
from jitla.codegen.kernels.reduce_axis import columns_kernel, rows_kernel
from jitla.codegen.kernels.tally import tally_kernel
from jitla.codegen.native.symbols import fuses
from jitla.codegen.target import PART
from jitla.codegen.vecmath.library import (
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
from jitla.errors import BackendError
from jitla.fusion import COMPRESSED_FORMS, Form, Kernel
from jitla.hops import Hop, Kind, possible_flags

__all__ = ["reason_of"]


_DEFINED = re.compile(r"define (?:internal )?(\S.*) @([\w.]+)\((.*)\) ?(.*)\{$", re.M)
_CONSTANT = re.compile(r"^(@[\w.]+) = (?:internal|external) constant .*\n", re.M)
_CALLED = re.compile(r"@([\w.]+)")
_NAME = re.compile(r" %[\w.]+")
ENTRIES = ("k", "fin")
_LIBRARY = re.compile(r"jitla_[a-z0-9]+")


def parted(text: str, prefix: str) -> str:
    """Return the module `text` in parts, each of them begun with `prefix`.

    Functions marked cold cost a fifth when they are not optimised. Those for one operation are the
    same in many kernels, and a part of their own.
    """
    functions, around = _functions(text)
    parts: dict[tuple[str, int], list[str]] = {("", 2): []}
    for name, (_, defined) in functions.items():
        level = 0 if "cold" in defined[4].split() else 2
        shared = _LIBRARY.match(name)
        parts.setdefault((shared[0] if shared else "", level), []).append(name)
    heads = {name: _head(name, defined) for name, (_, defined) in functions.items()}
    constants = {m[1]: m[0] for m in _CONSTANT.finditer(around)}
    rest = _CONSTANT.sub("", around)
    out = []
    for (_, level), names in parts.items():
        body = "".join(_opened(name, *functions[name]) for name in names)
        called = dict.fromkeys(_CALLED.findall(body))
        others = "".join(f"declare {heads[c]}\n" for c in called if c in heads and c not in names)
        data = "".join(constants[f"@{c}"] for c in called if f"@{c}" in constants)
        tail = rest if "!0" in body else ""
        out.append((level, f"{prefix}{data}{others}{body}{tail}"))
    return out[0][1] + "".join(PART.format(level) + part for level, part in out[1:])


def _functions(text: str) -> tuple[dict[str, tuple[str, re.Match[str]]], str]:
    """Return what follows the head of each function, with that head, by name; and what is around them."""
    text = f"\n{text}"
    found: dict[str, tuple[str, re.Match[str]]] = {}
    around, done, at = "", 1, text.find("\ndefine ")
    while at >= 0:
        defined = _DEFINED.match(text, at + 1)
        assert defined is not None, text[at:]
        around += text[done : at + 1]
        done = text.index("\n}\n", defined.end()) + 3
        found[defined[2]] = text[defined.end() : done], defined
        at = text.find("\ndefine ", done - 1)
    return found, around + text[done:]


def _head(name: str, defined: re.Match[str]) -> str:
    """Return the declaration of a function."""
    return f"hidden {defined[1]} @{name}({_NAME.sub('', defined[3])})"


def _opened(name: str, body: str, defined: re.Match[str]) -> str:
    """Return a function that other parts can call; none unwinds, so no tables are made for it."""
    scope = "" if name in ENTRIES else "hidden "
    attributes = dict.fromkeys(("nounwind", *defined[4].split()))
    attributes.pop("cold", None)
    head = f"define {scope}{defined[1]} @{name}({defined[3]}) {' '.join(attributes)} {{"
    return head + body


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


def kernel_text(loop: KernelLoop) -> str:
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
        lines, result = inline_math(name, dtype, b.width, args, b.fresh)
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
                symbol, text = emit_math(*key, self._lanes)
            self._found[key] = symbol
            self._defined[symbol] = text
        dtype = result_dtype(*key)
        args = ", ".join(f"{b.type(x.dtype)} {x.text}" for x in xs)
        return Value(dtype, b.line(f"call {b.type(dtype)} @{self._found[key]}({args})"))


def refuse_math(name: str, dtype: np.dtype) -> None:
    """Raise if there is no vector code for `name`."""
    if not supports(name, dtype, defines=True):
        raise BackendError(f"no vector code for {name} of {dtype}")


def module_text(loop: KernelLoop, math: MathFunctions) -> str:
    """Return the modules of `loop`, one behind the other."""
    code = _skeleton(loop, math)
    nontemporal = "!0 = !{i32 1}\n" if "!nontemporal" in code else ""
    text = math.text + code + nontemporal
    if any(map(possible_flags, loop.kernel.body)):
        text = quiet(text, loop.target.features)
    return parted(text, f'target triple = "{loop.target.triple}"\n')


def _skeleton(loop: KernelLoop, math: MathCall) -> str:
    if loop.form.mode == "cell":
        return cell_kernel(loop, math)
    if loop.form.mode == "tally":
        return tally_kernel(loop, math)
    if loop.form.mode == "full":
        return full_kernel(loop, math)
    return rows_kernel(loop, math) if loop.form.mode == "rows" else columns_kernel(loop, math)


def _is_product(hop: Hop) -> bool:
    """Tell whether `hop` is a product there are loops for: of a matrix of floats, or of stacks."""
    if hop.op.name in COMPRESSED_FORMS:
        data, columns, starts, x = (i.meta.dtype for i in hop.inputs)
        return data == x and data.char in "fd" and columns == starts and columns.char in "il"
    if hop.op.name == "cumsum":  # the running sums of every row
        matrix = hop.inputs[0].meta
        return matrix.ndim > 1 and hop.attr("axis") == matrix.ndim - 1 and \
            matrix.dtype == hop.meta.dtype and hop.meta.dtype.kind == "f"
    if hop.op.name in ("argmin", "argmax"):  # where every row has its extreme
        matrix = hop.inputs[0].meta
        return matrix.ndim > 1 and hop.attr("axis") == matrix.ndim - 1 and matrix.dtype.kind in "biuf"
    if hop.op.name in ("concatenate", "stack"):  # rows side by side
        return 1 < hop.meta.ndim == hop.attr("axis") + 1 and \
            all(i.meta.dtype == hop.meta.dtype for i in hop.inputs)
    ranks = tuple([i.meta.ndim for i in hop.inputs])
    kinds = {i.meta.dtype for i in (hop, *hop.inputs)}
    if hop.op.name not in ("matmul", "dot") or max(ranks) < 2 or not min(ranks) or len(kinds) > 1:
        return False
    stacked = max(ranks) > 2 and hop.op.name == "matmul" and hop.meta.dtype.kind != "b"
    return stacked or max(ranks) == 2 and hop.meta.dtype.kind == "f"


def _probe_math(b: LlvmBuilder, name: str, xs: Sequence[Value]) -> Value:
    if name not in (*DIVISIONS, "muladd"):
        refuse_math(name, xs[0].dtype)
    return Value(result_dtype(name, xs[0].dtype), "%math")


def reason_of(hop: Hop) -> str | None:
    """Return why `hop` cannot be in a kernel, or None.

    Dtypes, numbers of dimensions and attributes matter, sizes do not.
    """
    for dtype in (hop.meta.dtype, *(i.meta.dtype for i in hop.inputs)):
        reason = refuse(dtype)
        if reason:
            return reason
    if hop.op.kind is Kind.AGG:
        return _refuse_aggregate(hop)
    if hop.op.kind in (Kind.TAKE, Kind.TALLY):
        return None
    if hop.op.kind is not Kind.CELL:
        return None if _is_product(hop) else "not element-wise"
    b = LlvmBuilder([], 2, _probe_math)
    try:
        emit_hop(b, hop, [named(i.meta.dtype, f"%x{k}") for k, i in enumerate(hop.inputs)])
    except BackendError as error:
        return str(error)
    return None


def _refuse_aggregate(hop: Hop) -> str | None:
    if hop.op.name == "prod" and hop.meta.dtype.kind in "fc":
        return "NumPy multiplies floats one after the other"
    if hop.op.name in ("min", "max") and hop.meta.dtype.kind == "c":
        return "NumPy keeps the first of several NaNs, which differ in their other part"
    return None
