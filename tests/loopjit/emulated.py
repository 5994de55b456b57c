"""Kernels of loops run by Python instead of by a compiler: what their texts mean, said once more.

Everything but the compiler is the product's: translation, packing, versions, resuming, trials.
"""

from __future__ import annotations

import ctypes
import math
import operator
import sys
from typing import Any

import numpy as np

from jitla.engine import ENGINE
from jitla.loopjit import (
    Loops,
)
from jitla.loopjit import compiler as making_module
from jitla.loopjit import function as function_module
from jitla.loopjit import policy as entry_module
from jitla.loopjit import (
    slice_loops as lane_shares,
)
from jitla.loopjit import writer as parts_module
from jitla.profiling import call_classes as outlook
from jitla.tracing import can_defer_warnings

_C = {"int8": ctypes.c_int8, "int16": ctypes.c_int16, "int32": ctypes.c_int32, "int64": ctypes.c_int64,
      "uint8": ctypes.c_uint8, "uint16": ctypes.c_uint16, "uint32": ctypes.c_uint32,
      "float32": ctypes.c_float, "float64": ctypes.c_double}
_LOW, _HIGH = -(1 << 63), (1 << 63) - 1


class Memory:
    """A pointer to elements of one type."""

    def __init__(self, name: str, address: int) -> None:
        self.address = address
        self.pointer = ctypes.cast(address, ctypes.POINTER(_C[name]))
        self.single = name == "float32"

    def __getitem__(self, place: int) -> Any:
        found = self.pointer[place]
        return np.float32(found) if self.single else found

    def __setitem__(self, place: int, value: Any) -> None:
        self.pointer[place] = float(value) if self.single else value


def _int64(value: Any) -> int:
    made = int(value)
    if NOTED:  # nothing of it is kept
        return (made - _LOW) % (1 << 64) + _LOW
    assert _LOW <= made <= _HIGH, "64 bits are too few, and nobody noticed"
    return made


def _either(a: Any, b: Any) -> bool:
    if a or b:
        NOTED.append(True)
    return bool(a) | bool(b)


def _quiet(*_: Any) -> None:
    RAISED.clear()
    NOTED.clear()


def _shared(quick: Any, units: int, grain: int, _: int, *given: Any) -> None:
    for low in range(0, units, grain):
        quick(*given, low, min(low + grain, units))


def _wrapped(bits: int, signed: bool):
    def make(value: Any) -> int:
        made = int(value) & ((1 << bits) - 1)
        return made - (1 << bits) if signed and made >> (bits - 1) else made
    return make


def _checked(operation):
    def make(a: int, b: int) -> tuple[int, bool]:
        made = operation(a, b)
        return (made, False) if _LOW <= made <= _HIGH else (0, True)
    return make


def _float32(value: Any) -> Any:
    with np.errstate(all="ignore"):
        return np.float32(value)


def _library(name: str):
    def call(*args: float) -> float:
        try:
            return float(getattr(math, name)(*args))
        except OverflowError:
            return math.inf
        except ValueError:
            return math.nan if args[0] else -math.inf
    return call


def _power(a: float, b: float) -> float:
    with np.errstate(all="ignore"):
        return float(np.float64(a) ** np.float64(b))


def _tangled(a: int, step: int, b: int, other: int, count: int) -> bool:
    ones, others = ([at + 8 * by * k for k in range(count)] for at, by in ((a, step), (b, other)))
    return len({*ones}) < count or ones != others and not {*ones}.isdisjoint(others)


def _row(p: Memory, first: int, step: int, count: int) -> Any:
    return np.array([p[first + step * k] for k in range(count)], np.float64)


def _reduced(how: str):
    def make(p: Memory, a: int, s: int, q: Memory, b: int, t: int, n: int) -> float:
        with np.errstate(all="ignore"):
            row = _row(p, a, s, n) * (_row(q, b, t, n) if how == "product" else 1.0)
            if how in ("sum", "product"):
                return float(row.sum())
            if not n or np.isnan(row).any():
                return math.nan
            made = float(getattr(row, how)())
            return math.nan if made == 0 and np.signbit(row[row == 0]).any() else made
    return make


def _woven(ahead: int, step: int, other: int, item: int, its: int) -> bool:
    count = 8
    ones = {ahead + step * k + byte for k in range(count) for byte in range(item)}
    others = {other * k + byte for k in range(-4 * count, 4 * count) for byte in range(its)}
    return step == other != 0 and abs(ahead) < count * abs(step) and ones.isdisjoint(others)


def _flagged(a: Any, b: Any, made: Any) -> bool:
    if made != made:
        return bool(a == a and b == b)
    return math.isfinite(a) and math.isfinite(b)


RAISED: list[bool] = []
# What kernels have noted, and will ask for.
NOTED: list[bool] = []


def _flagging(operation):
    def make(a: Any, b: Any) -> Any:
        with np.errstate(all="ignore"):
            made = operation(a, b) if isinstance(a, np.float32) else float(operation(np.float64(a), b))
        if _flagged(a, b, made) and not math.isfinite(made) or operation is operator.truediv and not b:
            RAISED.append(True)
        return made
    return make


SPACE: dict[str, Any] = {
    "int64": _int64, "float64": float, "float32": _float32, "bool_": bool, "MIN": _LOW, "INF": math.inf,
    "NAN": math.nan, "sqrt": lambda a: math.nan if a < 0 else math.sqrt(a),
    "isnan": math.isnan, "isinf": math.isinf, "isfinite": math.isfinite,
    "ratio": lambda a, b: a / b if b else a * math.inf if a and a == a else math.nan,
    "shift": lambda a, b: ((a << b) + (1 << 63)) % (1 << 64) - (1 << 63),
    "floor_div": lambda a, b: a // b, "floor_mod": lambda a, b: a % b,
    "wide": lambda a: abs(a) > 1 << 53, "huge": lambda a: abs(a) > 1 << 61,
    "beyond": lambda a, most: abs(a) > most, "past": lambda a, most: a > most,
    "lost": lambda wide, single: math.isinf(single) and not math.isinf(wide),
    "outside": lambda place, length: not 0 <= place < length, "flagged": _flagged,
    "float_mod": lambda a, b: a % b if b else math.nan, "float_div": lambda a, b: a // b if b else math.nan,
    "add_checked": _checked(lambda a, b: a + b), "sub_checked": _checked(lambda a, b: a - b),
    "mul_checked": _checked(lambda a, b: a * b), "power": _power,
    "where": lambda pointer: pointer.address, "tangled": _tangled, "woven": _woven,
    "rare": bool, "either": _either, "lapped": _either,
    "spare": lambda pointer, count: {}, "release": lambda room: None,
    "nowhere": lambda room: False, "raised": lambda seen: bool(RAISED), "quiet": _quiet, "shared": _shared,
    "floor": lambda a: float(math.floor(a)), "ceil": lambda a: float(math.ceil(a)),
}
SPACE |= {f"{'' if signed else 'u'}int{8 * size}": _wrapped(8 * size, signed)
          for signed in (True, False) for size in (1, 2, 4)}
SPACE |= {f"{how}_{name}": _flagging(operation) for how in ("flag", "loud") for name, operation in (
    ("add", operator.add), ("sub", operator.sub), ("mul", operator.mul), ("div", operator.truediv))}
SPACE |= {f"row_{how}": _reduced(how) for how in ("sum", "product", "max", "min")}
SPACE |= {"bits_d": lambda a: 0, "bits_s": lambda a: 0} | {f"hidden_{how}": lambda a: a for how in "ids"}
SPACE |= {f"lib_{name}": _library(name) for name in (
    "sin", "cos", "tan", "exp", "log", "log10", "log2", "atan", "asin", "acos", "sinh", "cosh", "tanh",
    "atan2", "pow")}


class Foreman:
    """Does tasks at once; what is made of a text is the text."""

    program = __file__
    ready = False

    def submit(self, task) -> None:
        task()

    def ask(self, text: str, pointers: tuple[str, ...]) -> tuple[str, bytes]:
        return " ".join(pointers), text.encode()


def _link(name: str, data: bytes) -> tuple[Any, int]:
    space = dict(SPACE)
    exec(compile(data.decode(), "<loop>", "exec"), space)
    pointers = name.split()

    def call(back: int, _: int, whole: int, floats: int, *addresses: int) -> int:
        arrays = [Memory(kind, at) for kind, at in zip(pointers, addresses, strict=True)]
        try:
            with np.errstate(all="ignore"):
                label = space["kernel"](Memory("int64", whole), Memory("float64", floats), *arrays)
        except BaseException as error:
            FAULTS.append(error)
            label = 0
        ctypes.c_int64.from_address(back).value = label
        return 0

    kind = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * (4 + len(pointers)))
    made = kind(lambda *args: call(*(arg or 0 for arg in args)))
    address = ctypes.cast(made, ctypes.c_void_p).value
    assert address is not None
    return made, address


# What kernels have raised; they must not.
FAULTS: list[BaseException] = []


def at_once(then: Any) -> None:
    """Do what is done when that which compiles loops is loaded."""
    then(making_module)


def unwatched() -> bool:
    """Say whether nobody watches."""
    return can_defer_warnings()


def version(function: Any) -> Any:
    """Return the version of a function whose nests are compiled after their first run."""
    loops = Loops(_link, ENGINE._load_loop_text, at_once, lambda: unwatched)
    loops._foreman = Foreman()  # type: ignore[assignment]
    return loops.version(function)


def eager(patch: Any) -> None:
    """Let nests be compiled however short they are; `patch` is what sets attributes."""
    patch(entry_module, "WORTH", 0.0)
    patch(entry_module, "SHORT", 0.0)
    patch(entry_module, "SHORTER", 0.0)
    patch(sys.modules[__name__], "can_defer_warnings", lambda: True)
    patch(outlook, "SHORT_CALL_SECONDS", -1.0)
    patch(entry_module, "SLOWER", math.inf)
    patch(function_module, "ENOUGH", math.inf)
    patch(parts_module, "PART", 4)
    patch(lane_shares, "WORTH", -1)
    patch(lane_shares, "BESIDE", 3)


assert sys.maxsize == _HIGH
