"""Reference interpreter of hops by NumPy calls, and the floating-point flags that operators raise."""

from __future__ import annotations

import gc
import operator
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from threading import get_ident
from typing import Any

import numpy as np

from jitla.errors import InternalError
from jitla.hops.node import (
    Hop,
    Kind,
    OpSpec,
    const_value,
    lookup,
    topo,
)
from jitla.hops.ops_elementwise import as_scalar


def evaluate(roots: Iterable[Hop], leaves: Sequence[Any]) -> list[Any]:
    """Return the values of `roots`, 0-d ones as NumPy scalars; `leaves` are the objects by slot."""
    return Evaluation(roots)(leaves)


class Evaluation:
    """A reusable evaluation of `roots`; values are released after their last use."""

    def __init__(self, roots: Iterable[Hop]) -> None:
        self._roots = tuple(roots)
        self._order = topo(self._roots)
        last_use: dict[Hop, int] = {}
        for position, hop in enumerate(self._order):
            for i in hop.inputs:
                last_use[i] = position
                if i.op.name == "cast":
                    last_use[i.inputs[0]] = position  # see `_read_operand`
        self._dropped: list[list[Hop]] = [[] for _ in self._order]
        for hop in last_use.keys() - set(self._roots):
            self._dropped[last_use[hop]].append(hop)

    def __call__(self, leaves: Sequence[Any]) -> list[Any]:
        """Return the values of the roots; `leaves` are the objects by slot."""
        values: dict[Hop, Any] = {}
        for hop, dropped in zip(self._order, self._dropped, strict=True):
            match hop.op.name:
                case "leaf":
                    values[hop] = leaf_value(hop, leaves[hop.attr("slot")])
                case "const":
                    values[hop] = const_value(hop)
                case _:
                    operands = [_read_operand(i, values) for i in hop.inputs]
                    function = implementation_of(hop.op, operands)
                    values[hop] = function(*operands, **dict(hop.attrs))
                    del operands
            for unused in dropped:
                del values[unused]
        return [values[r] for r in self._roots]


def _read_operand(operand: Hop, values: dict[Hop, Any]) -> Any:
    """Return the value of `operand` as a ufunc that casts while reading sees it.

    Axes broadcast before the cast have stride 0 again: the strides determine the memory order of the result.
    """
    value = values[operand]
    if operand.op.name != "cast" or operand.meta.ndim < 2:
        return value
    strides = getattr(values[operand.inputs[0]], "strides", ())
    unbroadcast = tuple(slice(0, 1) if stride == 0 else slice(None) for stride in strides)
    return np.broadcast_to(value[unbroadcast], value.shape) if 0 in strides else value


# NumPy computes products and magnitudes of complex scalars with other code than arrays, which rounds
# differently; comparisons of scalars ignore a NaN in the other part.
_COMPLEX_SCALAR_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "multiply": operator.mul, "absolute": operator.abs, "less": operator.lt, "less_equal": operator.le,
    "greater": operator.gt, "greater_equal": operator.ge,
}


def implementation_of(op: OpSpec, operands: Sequence[Any]) -> Callable[..., Any]:
    """Return the function that computes `op`: its reference, or Python's operator for complex scalars."""
    scalars = op.name in _COMPLEX_SCALAR_FUNCTIONS and all(isinstance(x, np.complexfloating)
                                                           for x in operands)
    return _COMPLEX_SCALAR_FUNCTIONS[op.name] if scalars else op.ref


def leaf_value(hop: Hop, argument: Any) -> Any:
    """Return the object passed for leaf `hop`, converted to the leaf's dtype if it is a weak scalar."""
    return hop.meta.dtype.type(argument) if hop.attr("form") == "weak" else argument


def _checked_verb(ufunc: np.ufunc) -> Any:
    """Make a builder verb of `ufunc` that checks dtypes: all equal, and bools only for bitwise verbs."""
    bitwise = ufunc in (np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.invert)

    def verb(*xs: Any) -> Any:
        if xs[0].dtype == np.bool_ and not bitwise:
            raise InternalError(f"{ufunc.__name__}: a recipe does arithmetic on bools")
        if any(x.dtype != xs[0].dtype for x in xs):
            raise InternalError(f"{ufunc.__name__}: a recipe mixes {[str(x.dtype) for x in xs]}")
        return ufunc(*xs)

    return staticmethod(verb)


class NumpyBuilder:
    """A `ScalarBuilder` that evaluates a recipe on NumPy arrays and scalars."""

    add, sub, mul, div = map(_checked_verb, (np.add, np.subtract, np.multiply, np.divide))
    floordiv, rem, fmod = map(_checked_verb, (np.floor_divide, np.remainder, np.fmod))
    neg, abs, sqrt = map(_checked_verb, (np.negative, np.absolute, np.sqrt))
    floor, ceil, trunc, rint = map(_checked_verb, (np.floor, np.ceil, np.trunc, np.rint))
    copysign = _checked_verb(np.copysign)
    minimum, maximum, fmin, fmax = map(_checked_verb, (np.minimum, np.maximum, np.fmin, np.fmax))
    eq, ne, lt = map(_checked_verb, (np.equal, np.not_equal, np.less))
    le, gt, ge = map(_checked_verb, (np.less_equal, np.greater, np.greater_equal))
    and_, or_, xor, not_ = map(_checked_verb, (np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.invert))
    shl, shr = map(_checked_verb, (np.left_shift, np.right_shift))

    def const(self, value: Any, dtype: np.dtype) -> Any:
        """Return the scalar `as_scalar` of `dtype`."""
        return dtype.type(value)

    def cast(self, x: Any, dtype: np.dtype) -> Any:
        """Return `x` converted as ``astype`` does."""
        return x.astype(dtype)

    def select(self, c: Any, x: Any, y: Any) -> Any:
        """Return `x` where `c` holds, else `y`."""
        if c.dtype != np.bool_ or x.dtype != y.dtype:
            raise InternalError(f"select: a recipe mixes {c.dtype}, {x.dtype}, {y.dtype}")
        return as_scalar(np.where(c, x, y))

    def real(self, x: Any) -> Any:
        """Return the real part."""
        return x.real

    def imag(self, x: Any) -> Any:
        """Return the imaginary part."""
        return x.imag

    def pair(self, re: Any, im: Any) -> Any:
        """Return the complex number of two parts."""
        if re.dtype != im.dtype:
            raise InternalError(f"pair: a recipe mixes {re.dtype}, {im.dtype}")
        result = np.empty(np.broadcast_shapes(re.shape, im.shape), np.result_type(re, np.complex64))
        result.real, result.imag = re, im
        return as_scalar(result)

    def muladd(self, x: Any, y: Any, z: Any) -> Any:
        """Return x * y + z, rounded as inside NumPy's complex product."""
        product = np.multiply(self.pair(x, -z), self.pair(y, np.ones_like(y)))
        return as_scalar(np.asarray(product).real)

    def flag(self, kind: str, c: Any) -> None:
        """Raise the floating-point flag `kind` if `c` holds anywhere."""
        dividend, divisor = {"invalid": (0.0, 0.0), "divide": (1.0, 0.0), "overflow": (1e300, 1e-300)}[kind]
        if np.any(c):
            np.divide(dividend, divisor)

    def math(self, name: str, *xs: Any) -> Any:
        """Return the transcendental function `name` of `xs`."""
        return lookup(name).ref(*xs)


#: Bits of a flags word, as in the x86 MXCSR register.
INVALID, DIVIDE, OVERFLOW = 1, 4, 8
ALL_FLAGS = INVALID | DIVIDE | OVERFLOW
#: A Python scalar overflowed its narrower dtype: raised by programs, not by kernels.
SCALAR_NARROWED = 32
FLAG_BY_KIND = {"divide by zero": DIVIDE, "overflow": OVERFLOW, "invalid value": INVALID}

# Operators whose loops in NumPy or SciPy raise no flag.
_SILENT_OPS = frozenset({
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
# Operators that raise a flag for signalling NaNs only. Not all of NumPy's loops do; kernels may ignore that.
_SIGNALLING_NAN_OPS = frozenset({
    "floor", "ceil", "trunc", "rint", "logical_and", "logical_or", "logical_xor", "logical_not", "any", "all",
})
# Operators whose results are never signalling NaNs: a signalling operand raises a flag and becomes quiet.
_QUIETING_OPS = frozenset({
    "add", "subtract", "multiply", "divide", "floor_divide", "remainder", "fmod", "power", "float_power",
    "sqrt", "square", "reciprocal", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "cbrt", "sin",
    "cos", "tan", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "arcsinh", "arccosh", "arctanh",
    "arctan2", "hypot", "logaddexp", "logaddexp2", "floor", "ceil", "trunc", "rint", "deg2rad", "rad2deg",
    "degrees", "radians", "sum", "mean", "var", "std", "prod", "matmul", "dot", "vdot", "const",
    "sign", "arange", "eye",
})
_MAX_DEPTH = 4  # rearranging operators that `may_hold_signalling_nan` looks through
_ORDER_COMPARISONS = frozenset({"less", "less_equal", "greater", "greater_equal"})
_FLOAT_FLAGS = {
    "add": INVALID | OVERFLOW, "subtract": INVALID | OVERFLOW, "multiply": INVALID | OVERFLOW,
    "square": OVERFLOW, "sqrt": INVALID, "exp": OVERFLOW, "exp2": OVERFLOW,
    "sum": INVALID | OVERFLOW, "prod": INVALID | OVERFLOW, "cumsum": INVALID | OVERFLOW,
    "cumprod": INVALID | OVERFLOW,
}
# Operators that can raise all flags for complex operands.
_ALL_FLAGS_IF_COMPLEX = frozenset({"square", "exp", "exp2", "sqrt"})
_PYTHON_DTYPES = (np.dtype(np.float64), np.dtype(np.complex128))
_INTEGER_FLAGS = {"floor_divide": DIVIDE, "remainder": DIVIDE, "fmod": DIVIDE, "reciprocal": DIVIDE | INVALID}


def possible_flags(hop: Hop) -> int:
    """Return the flags that computing `hop` can raise in NumPy, except underflow."""
    return _flags_of_any_operands(hop) | (OVERFLOW if any(map(is_narrowed_scalar, hop.inputs)) else 0)


def depends_on_position(hop: Hop) -> bool:
    """Return whether `hop` is a cast whose results may depend on positions: floats out of integer range."""
    to_integer = hop.op.name == "cast" and hop.meta.dtype.kind in "iu"
    return to_integer and hop.inputs[0].meta.dtype.kind in "fc"


def is_narrowed_scalar(hop: Hop) -> bool:
    """Return whether `hop` is a Python float or complex converted to a narrower dtype, which may overflow."""
    dtype = hop.meta.dtype
    weak = hop.op.kind is Kind.LEAF and dict(hop.attrs).get("form") == "weak"
    return weak and dtype.kind in "fc" and dtype not in _PYTHON_DTYPES


def may_hold_signalling_nan(hop: Hop, depth: int = _MAX_DEPTH) -> bool:
    """Return whether `hop` may hold signalling NaNs: values from memory may, even when rearranged."""
    name = hop.op.name
    if hop.meta.dtype.kind not in "fc" or name in _QUIETING_OPS:
        return False
    if name == "cast" and hop.inputs[0].meta.dtype != hop.meta.dtype:
        return False
    return not depth or hop.op.kind is Kind.LEAF or any(may_hold_signalling_nan(i, depth - 1)
                                                        for i in hop.inputs)


def _flags_of_any_operands(hop: Hop) -> int:
    """Return the possible flags of `hop` for any operands, signalling NaNs included."""
    flags, name = _flags_of_quiet_operands(hop), hop.op.name
    if flags & INVALID or hop.op.kind is Kind.LEAF:
        return flags
    if name == "cast" and hop.inputs[0].meta.dtype != hop.meta.dtype or flags and name not in _SILENT_OPS:
        signalled = any(map(may_hold_signalling_nan, hop.inputs))
    else:
        signalled = name in _SIGNALLING_NAN_OPS and any(may_hold_signalling_nan(_before_bool_cast(operand))
                                                        for operand in hop.inputs)
    return flags | INVALID if signalled else flags


def _before_bool_cast(hop: Hop) -> Hop:
    """Return the operand of a cast to bool (operands of logical operators), else `hop` itself."""
    return hop.inputs[0] if hop.op.name == "cast" and hop.meta.dtype.kind == "b" else hop


def _flags_of_quiet_operands(hop: Hop) -> int:
    """Return the possible flags of `hop` for operands without signalling NaNs."""
    name, dtype = hop.op.name, hop.meta.dtype
    if any(i.meta.dtype.kind == "c" for i in hop.inputs):
        if name in _ORDER_COMPARISONS:
            return INVALID  # for a NaN in one part; the real loops are silent
        if name in _ALL_FLAGS_IF_COMPLEX:
            return ALL_FLAGS
    if name in _SILENT_OPS or name in _SIGNALLING_NAN_OPS:
        return 0
    if name == "cast":
        source = hop.inputs[0].meta.dtype
        if source.kind not in "fc":
            return 0
        if dtype.kind in "biu":
            return INVALID
        sizes = [d.itemsize // (2 if d.kind == "c" else 1) for d in (source, dtype)]
        return OVERFLOW | INVALID if sizes[1] < sizes[0] else 0
    if dtype.kind in "biu" and hop.op.kind is not Kind.LEAF:
        if name == "floor_divide" and dtype.kind == "i":
            return DIVIDE | OVERFLOW  # overflow: the least integer divided by -1
        return _INTEGER_FLAGS.get(name, 0)
    return _FLOAT_FLAGS.get(name, ALL_FLAGS)


# Operators whose kernels raise exactly the flags of NumPy's loops, by kind of dtype.
_EXACT_FLAG_OPS = {
    "f": frozenset({"add", "subtract", "multiply", "divide", "sqrt", "square", "reciprocal", "cast",
                    "sum", "prod", "mean"}),
    "c": frozenset({"add", "subtract", "multiply", "square", "cast", "sum"}),
}


def has_exact_flags(hop: Hop) -> bool:
    """Return whether a kernel that computes `hop` raises no flag that NumPy's loop does not raise."""
    kind = hop.meta.dtype.kind
    if kind in "iu":
        return kind == "i"  # unsigned conversions are emulated where processors have none
    return hop.op.name in _EXACT_FLAG_OPS.get(kind, ())


_flags_by_thread: dict[int, int] = {}


def _record_flag(kind: str, status: int) -> None:
    """Add the flag that NumPy reports to this thread's recorded flags."""
    thread = get_ident()
    _flags_by_thread[thread] = _flags_by_thread.get(thread, 0) | FLAG_BY_KIND[kind]


_ERROR_STATE = np._core.umath._extobj_contextvar  # type: ignore[attr-defined]
_RECORDING_STATE = np._core.umath._make_extobj(  # type: ignore[attr-defined]
    divide="call", over="call", invalid="call", under="ignore", call=_record_flag)

#: Between ``token = start_recording()`` and ``stop_recording(token)`` NumPy emits no warnings: it records
#: flags in `FLAGS_BY_THREAD`, until ``take_flags()`` removes those of this thread.
start_recording: Any = partial(_ERROR_STATE.set, _RECORDING_STATE)
stop_recording: Any = _ERROR_STATE.reset


def _without_collection(change: Any) -> Any:
    """Wrap `change`, of a context variable, so that the garbage collector does not run meanwhile.

    Before Python 3.12 the collector runs at any allocation. A finalizer that changes a context variable
    during such a change frees the object being copied, which crashes the process.
    """
    def changed(*args: Any) -> Any:
        collects = gc.isenabled()
        gc.disable()
        try:
            return change(*args)
        finally:
            if collects:
                gc.enable()
    return changed


if sys.version_info < (3, 12):
    start_recording = _without_collection(start_recording)
    stop_recording = _without_collection(stop_recording)
FLAGS_BY_THREAD = _flags_by_thread


def take_flags() -> int:
    """Return and clear the flags recorded in this thread."""
    return _flags_by_thread.pop(get_ident(), 0)


#: ``error_state()``: an opaque object that identifies NumPy's error state in this context.
error_state: Any = _ERROR_STATE.get


class FlagsRaised(Exception):
    """Raised by a program that completed, when elements of its results raised floating-point flags.

    `values` are its results. `saved` maps slots to copies of leaves as they were before the program wrote
    into them; large leaves that kernels write while they run may be missing. `exact`: NumPy would have raised
    each of the flags, too.
    """

    def __init__(
        self, values: tuple[Any, ...], flags: int, saved: dict[int, np.ndarray], exact: bool = True,
    ) -> None:
        super().__init__(flags)
        self.values = values
        self.flags = flags
        self.saved = saved
        self.exact = exact
