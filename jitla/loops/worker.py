"""The process that compiles: Numba is loaded here, not where the user's program runs.

Knows: Numba. Must not know: programs of users; it is sent texts that were made of numbers and places.
Receives a text and types on standard input; writes names and object bytes to standard output.
"""

from __future__ import annotations

import json
import math
import os
import platform
import sys
from collections.abc import Callable
from typing import Any

import numba
import numba.extending
import numpy as np
from llvmlite import ir

# none of these says what it takes and returns
types: Any = numba.types
njit: Any = numba.njit
def intrinsic(code: Callable[..., Any]) -> Any:
    """Make a function that the texts may call, written in LLVM's instructions."""
    made: Any = numba.extending.intrinsic(code)
    return made


_declared: Any = numba.core.cgutils.get_or_insert_function
_reserved: Any = numba.core.cgutils.alloca_once

_OPTIONS = {"error_model": "numpy", "fastmath": False, "boundscheck": False,
            "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
_LIBRARY = {name: 1 for name in (
    "sin", "cos", "tan", "exp", "log", "log10", "log2", "atan", "asin", "acos", "sinh", "cosh", "tanh")}
_LIBRARY |= {"atan2": 2, "pow": 2}
_HIDING = {"x86_64": "=x,0", "AMD64": "=x,0", "aarch64": "=w,0", "arm64": "=w,0"}


def _checked(name: str) -> Any:
    """Make an operation on integers that says whether its result was lost."""
    def typed(context: Any, a: Any, b: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            made = getattr(builder, name)(*args)
            parts = [builder.extract_value(made, k) for k in range(2)]
            return context.make_tuple(builder, signature.return_type, parts)
        return types.Tuple((types.int64, types.boolean))(types.int64, types.int64), code
    return intrinsic(typed)


@intrinsic
def _rare(context: Any, test: Any) -> Any:
    """Return a truth value that is false nearly always."""
    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        truth = ir.IntType(1)
        found = _declared(
            builder.module, ir.FunctionType(truth, [truth, truth]), "llvm.expect.i1")
        return builder.call(found, [args[0], truth(0)])
    return types.boolean(types.boolean), code


@intrinsic
def _either(context: Any, a: Any, b: Any) -> Any:
    """Return whether any of two is true, both of them computed."""
    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.or_(*args)
    return types.boolean(types.boolean, types.boolean), code


@intrinsic
def _room(context: Any, pointer: Any) -> Any:
    """Return memory of the function's own for 256 elements of what a pointer points to."""
    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _reserved(builder, args[0].type.pointee, 256)
    return pointer(pointer), code


@intrinsic
def _probed(context: Any, value: Any, total: Any) -> Any:
    """Add nothing to a sum, or what is no number if a value is not finite."""
    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        # not in one step: of what comes round only the sum is waited for
        nothing = ir.DoubleType()(0.0)
        return builder.fadd(builder.fmul(args[0], nothing), args[1])
    return types.float64(types.float64, types.float64), code


def _library(name: str, count: int) -> Any:
    """Make a call of a function of the C library that the compiler does not see through."""
    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        double = ir.DoubleType()
        kind = ir.FunctionType(double, [double])
        hidden = [builder.asm(kind, "", _HIDING[platform.machine()], [arg], False) for arg in args]
        found = _declared(
            builder.module, ir.FunctionType(double, [double] * count), name)
        return builder.call(found, hidden)

    def one(context: Any, a: Any) -> Any:
        return types.float64(types.float64), code

    def two(context: Any, a: Any, b: Any) -> Any:
        return types.float64(types.float64, types.float64), code
    return intrinsic(one if count == 1 else two)


def _float_mod(a: float, b: float) -> float:
    """Do ``a % b`` as CPython and NumPy do; `b` is not zero."""
    rest = math.fmod(a, b)
    if rest != 0.0:
        if (b < 0.0) != (rest < 0.0):
            rest += b
    else:
        rest = math.copysign(0.0, b)
    return rest


def _float_div(a: float, b: float) -> float:
    """Do ``a // b`` as CPython and NumPy do; `b` is not zero."""
    rest = math.fmod(a, b)
    quotient = (a - rest) / b
    if rest != 0.0 and (b < 0.0) != (rest < 0.0):
        quotient -= 1.0
    if quotient != 0.0:
        whole: float = np.floor(quotient)  # that of `math` makes an integer
        if quotient - whole > 0.5:
            whole += 1.0
        return whole
    return math.copysign(0.0, a / b)


def _flagged(a: float, b: float, made: float) -> bool:
    """Say whether an operation that made no finite number of `a` and `b` has set a flag."""
    if made != made:
        return a == a and b == b
    return math.isfinite(a) and math.isfinite(b)


def _names() -> dict[str, Any]:
    """Return what the texts refer to."""
    options = {"error_model": "numpy", "inline": "never"}
    make = njit(**options)
    double = types.float64
    found: dict[str, Any] = {
        "int64": types.int64, "float64": double, "float32": types.float32, "bool_": types.boolean,
        "MIN": -(1 << 63), "INF": math.inf, "NAN": math.nan, "sqrt": math.sqrt, "isnan": math.isnan,
        "isinf": math.isinf, "isfinite": math.isfinite,
        "ratio": make(lambda a, b: a / b), "shift": make(lambda a, b: a << b),
        "floor_div": make(lambda a, b: a // b),
        "floor_mod": make(lambda a, b: a % b),
        "wide": make(lambda a: (a > 9007199254740992) | (a < -9007199254740992)),
        "huge": make(lambda a: (a > 4611686018427387904) | (a < -4611686018427387904)),
        "lost": make(lambda wide, single: math.isinf(single) and not math.isinf(wide)),
        "outside": make(lambda place, length: types.uint64(place) >= types.uint64(length)),
        "flagged": make(_flagged), "float_mod": make(_float_mod), "float_div": make(_float_div),
    }
    found |= {f"{short}{8 * size}": getattr(types, f"{short}{8 * size}")
              for short in ("int", "uint") for size in (1, 2, 4, 8)}
    found |= {f"{name}_checked": _checked(f"s{name}_with_overflow") for name in ("add", "sub", "mul")}
    found |= {f"lib_{name}": _library(name, count) for name, count in _LIBRARY.items()}
    found |= {"rare": _rare, "either": _either, "probed": _probed, "room256": _room}
    found["power"] = found["lib_pow"]
    found["floor"], found["ceil"] = make(lambda a: np.floor(a)), make(lambda a: np.ceil(a))
    return found


def compiled(text: str, pointers: list[str], names: dict[str, Any]) -> tuple[str, bytes]:
    """Return the name of the function that was made of a text, and its object."""
    space = dict(names)
    exec(compile(text, "<loop>", "exec"), space)
    space["body"] = njit(**_OPTIONS)(space["body"])
    made = njit(**_OPTIONS)(space["kernel"])
    memory = types.CPointer(types.int64), types.CPointer(types.float64)
    signature = (*memory, *(types.CPointer(getattr(types, name)) for name in pointers))
    made.compile(signature)
    result = made.overloads[signature]
    library = result.library
    data: bytes = library._codegen._tm.emit_object(library._final_module)
    return result.fndesc.llvm_func_name, data


def main() -> int:
    """Compile what comes in until nothing does any more."""
    os.nice(5)
    answers, sys.stdout = sys.stdout.buffer, sys.stderr  # what libraries say is no answer
    names: dict[str, Any] = {}
    for line in sys.stdin.buffer:
        asked = json.loads(line)
        try:
            names = names or _names()
            name, data = compiled(asked["text"], asked["pointers"], names)
            reply = {"name": name, "bytes": len(data)}
        except Exception as error:
            reply, data = {"error": f"{type(error).__name__}: {error}"}, b""
        answers.write(json.dumps(reply).encode() + b"\n" + data)
        answers.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
