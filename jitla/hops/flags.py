"""Floating-point flags: which operators can raise which, and what NumPy's calls raised.

Knows: NumPy's error state. Must not know: kernels, warnings, who asked.
Receives hops, or blocks of code to listen to; returns words of flags.
"""

from __future__ import annotations

from functools import partial
from threading import get_ident
from typing import Any

import numpy as np

from jitla.hops.node import Hop
from jitla.hops.spec import Kind

#: Bits of a word of flags. They are those of x86 processors.
INVALID, DIVIDE, OVERFLOW = 1, 4, 8
ANY = INVALID | DIVIDE | OVERFLOW
#: A Python number that its narrower dtype cannot hold: raised by programs, not by kernels.
NARROWED = 32
KINDS = {"divide by zero": DIVIDE, "overflow": OVERFLOW, "invalid value": INVALID}

# Neither the loops of these, NumPy's or SciPy's, nor their casts say anything.
_SILENT = frozenset({
    "negative", "positive", "absolute", "fabs", "sign", "copysign", "conjugate", "gcd", "lcm",
    "equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "maximum", "minimum",
    "fmax", "fmin", "clip", "where", "bitwise_and", "bitwise_or", "bitwise_xor",
    "bitwise_count", "invert", "left_shift", "right_shift", "isnan", "isinf", "isfinite", "signbit",
    "leaf", "const", "min", "max", "argmin", "argmax", "count", "transpose",
    "reshape", "ravel", "broadcast_to", "expand_dims", "squeeze", "flip", "concatenate", "stack",
    "getitem", "windows", "diagonal", "diag", "pad", "roll", "ring", "offload", "part", "take", "bincount",
    "full", "arange", "eye", "real", "imag",
    "erf", "erfc", "ndtr", "expit", "log_expit", "logit", "xlogy", "xlog1py", "sampled", "by_row",
    "by_column", "csr_product", "csr_vector", "csr_transposed_product", "csr_transposed_vector",
    "stored_add", "stored_sub", "stored_mul",
})
# These say something of signalling NaNs only: not all of NumPy's loops do, which kernels need not know.
_OF_SIGNALS = frozenset({
    "floor", "ceil", "trunc", "rint", "logical_and", "logical_or", "logical_xor", "logical_not", "any", "all",
})
# What these make of numbers is never a signalling NaN, and of one a NaN that is none, with a flag.
_QUIETING = frozenset({
    "add", "subtract", "multiply", "divide", "floor_divide", "remainder", "fmod", "power", "float_power",
    "sqrt", "square", "reciprocal", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "cbrt", "sin",
    "cos", "tan", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "arcsinh", "arccosh", "arctanh",
    "arctan2", "hypot", "logaddexp", "logaddexp2", "floor", "ceil", "trunc", "rint", "deg2rad", "rad2deg",
    "degrees", "radians", "sum", "mean", "var", "std", "prod", "matmul", "dot", "vdot", "const",
    "sign", "arange", "eye",
})
_DEEPEST = 4  # moves that are looked through
_ORDERS = frozenset({"less", "less_equal", "greater", "greater_equal"})
_SOME = {
    "add": INVALID | OVERFLOW, "subtract": INVALID | OVERFLOW, "multiply": INVALID | OVERFLOW,
    "square": OVERFLOW, "sqrt": INVALID, "exp": OVERFLOW, "exp2": OVERFLOW,
    "sum": INVALID | OVERFLOW, "prod": INVALID | OVERFLOW, "cumsum": INVALID | OVERFLOW,
    "cumprod": INVALID | OVERFLOW,
}
# Of complex numbers these raise more than of real ones.
_MORE_OF_PARTS = frozenset({"square", "exp", "exp2", "sqrt"})
_PYTHON = (np.dtype(np.float64), np.dtype(np.complex128))
_INTEGER = {"floor_divide": DIVIDE, "remainder": DIVIDE, "fmod": DIVIDE, "reciprocal": DIVIDE | INVALID}


def may_raise(hop: Hop) -> int:
    """Return the flags that computing `hop` can raise in NumPy, underflow left aside."""
    return _of_operator(hop) | (OVERFLOW if any(map(is_narrow, hop.inputs)) else 0)


def is_narrow(hop: Hop) -> bool:
    """Say whether `hop` is a Python float or complex, used in a dtype that holds fewer of them."""
    dtype = hop.meta.dtype
    weak = hop.op.kind is Kind.LEAF and dict(hop.attrs).get("form") == "weak"
    return weak and dtype.kind in "fc" and dtype not in _PYTHON


def may_signal(hop: Hop, depth: int = _DEEPEST) -> bool:
    """Say whether a value may have signalling NaNs: what is in memory may, whatever it was moved by."""
    name = hop.op.name
    if hop.meta.dtype.kind not in "fc" or name in _QUIETING:
        return False
    if name == "cast" and hop.inputs[0].meta.dtype != hop.meta.dtype:
        return False
    return not depth or hop.op.kind is Kind.LEAF or any(may_signal(i, depth - 1) for i in hop.inputs)


def _of_operator(hop: Hop) -> int:
    """Return the flags of any operands."""
    flags, name = _of_numbers(hop), hop.op.name
    if flags & INVALID or hop.op.kind is Kind.LEAF:
        return flags
    if name == "cast" and hop.inputs[0].meta.dtype != hop.meta.dtype or flags and name not in _SILENT:
        signalled = any(map(may_signal, hop.inputs))
    else:
        signalled = name in _OF_SIGNALS and any(may_signal(_uncast(given)) for given in hop.inputs)
    return flags | INVALID if signalled else flags


def _uncast(hop: Hop) -> Hop:
    """Return what was cast to bool, as operands of logic are."""
    return hop.inputs[0] if hop.op.name == "cast" and hop.meta.dtype.kind == "b" else hop


def _of_numbers(hop: Hop) -> int:
    """Return the flags of operands that are no signalling NaNs."""
    name, dtype = hop.op.name, hop.meta.dtype
    if any(i.meta.dtype.kind == "c" for i in hop.inputs):
        if name in _ORDERS:
            return INVALID  # a NaN in one part: the loops of reals are silent, these are not
        if name in _MORE_OF_PARTS:
            return ANY
    if name in _SILENT or name in _OF_SIGNALS:
        return 0
    if name == "cast":
        given = hop.inputs[0].meta.dtype
        if given.kind not in "fc":
            return 0
        if dtype.kind in "biu":
            return INVALID
        sizes = [d.itemsize // (2 if d.kind == "c" else 1) for d in (given, dtype)]
        return OVERFLOW | INVALID if sizes[1] < sizes[0] else 0
    if dtype.kind in "biu" and hop.op.kind is not Kind.LEAF:
        if name == "floor_divide" and dtype.kind == "i":
            return DIVIDE | OVERFLOW  # the least integer over -1
        return _INTEGER.get(name, 0)
    return _SOME.get(name, ANY)


# Operators of which kernels raise the flags that NumPy's loops raise, and no others: of reals, and
# of complex numbers.
_EXACT = {
    "f": frozenset({"add", "subtract", "multiply", "divide", "sqrt", "square", "reciprocal", "cast",
                    "sum", "prod", "mean"}),
    "c": frozenset({"add", "subtract", "multiply", "square", "cast", "sum"}),
}


def is_exact(hop: Hop) -> bool:
    """Say whether a kernel that computes `hop` raises no flag that NumPy's loop does not raise."""
    kind = hop.meta.dtype.kind
    if kind in "iu":
        return kind == "i"  # unsigned ones take detours where processors have no conversion
    return hop.op.name in _EXACT.get(kind, ())


_heard: dict[int, int] = {}


def _hear(kind: str, status: int) -> None:
    thread = get_ident()
    _heard[thread] = _heard.get(thread, 0) | KINDS[kind]


_STATE = np._core.umath._extobj_contextvar  # type: ignore[attr-defined]
_LISTENING = np._core.umath._make_extobj(  # type: ignore[attr-defined]
    divide="call", over="call", invalid="call", under="ignore", call=_hear)

#: ``token = listen()`` … ``hush(token)``: between them NumPy says nothing; what it would have said
#: is in `HEARD`, until ``heard()`` takes this thread's part of it.
listen: Any = partial(_STATE.set, _LISTENING)
hush: Any = _STATE.reset
HEARD = _heard


def heard() -> int:
    """Return and forget the flags that NumPy raised in this thread while it was listened to."""
    return _heard.pop(get_ident(), 0)


#: ``error_state()``: an object that stands for NumPy's error state in this context.
error_state: Any = _STATE.get


class Flagged(Exception):
    """A program ran well, and elements of it raised floating-point flags.

    `values` are its results. `saved` holds, by slot, copies of leaves as they were before the
    program wrote into them; large leaves that kernels write while they run may not be among them.
    Then `exact` says whether NumPy would have raised each of the flags, too.
    """

    def __init__(
        self, values: tuple[Any, ...], flags: int, saved: dict[int, np.ndarray], exact: bool = True,
    ) -> None:
        super().__init__(flags)
        self.values = values
        self.flags = flags
        self.saved = saved
        self.exact = exact
