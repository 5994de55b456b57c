"""Interpreter of hops by NumPy, with the floating-point flags that operations raise."""

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
from jitla.hops.node import Hop, const_value, topo
from jitla.hops.ops_elementwise import value
from jitla.hops.opspec import Kind, OpSpec, lookup


def evaluate(roots: Iterable[Hop], leaves: Sequence[Any]) -> list[Any]:
    """Return the values of `roots`, 0-d ones as NumPy scalars; `leaves` are the objects by slot."""
    return Evaluation(roots)(leaves)


class Evaluation:
    """The evaluation of `roots` for any leaves; values that nobody reads any more are dropped."""

    def __init__(self, roots: Iterable[Hop]) -> None:
        self._roots = tuple(roots)
        self._order = topo(self._roots)
        last: dict[Hop, int] = {}
        for at, hop in enumerate(self._order):
            for i in hop.inputs:
                last[i] = at
                if i.op.name == "cast":
                    last[i.inputs[0]] = at  # see `_read`
        self._dropped: list[list[Hop]] = [[] for _ in self._order]
        for hop in last.keys() - set(self._roots):
            self._dropped[last[hop]].append(hop)

    def __call__(self, leaves: Sequence[Any]) -> list[Any]:
        """Return the values; `leaves` are the objects by slot."""
        values: dict[Hop, Any] = {}
        for hop, dropped in zip(self._order, self._dropped, strict=True):
            match hop.op.name:
                case "leaf":
                    values[hop] = leaf_value(hop, leaves[hop.attr("slot")])
                case "const":
                    values[hop] = const_value(hop)
                case _:
                    operands = [_read(i, values) for i in hop.inputs]
                    run = meaning(hop.op, operands)
                    values[hop] = run(*operands, **dict(hop.attrs))
                    del operands
            for done in dropped:
                del values[done]
        return [values[r] for r in self._roots]


def _read(operand: Hop, values: dict[Hop, Any]) -> Any:
    """Return the value of `operand` as a ufunc that casts while it reads would find it: as often
    repeated in memory as before the cast, which orders the dimensions of the result.
    """
    found = values[operand]
    if operand.op.name != "cast" or operand.meta.ndim < 2:
        return found
    strides = getattr(values[operand.inputs[0]], "strides", ())
    once = tuple(slice(0, 1) if step == 0 else slice(None) for step in strides)
    return np.broadcast_to(found[once], found.shape) if 0 in strides else found


# Complex scalars are multiplied and measured by other code than arrays, and rounded otherwise; their
# order does not ask whether the other part is NaN.
_OF_SCALARS: dict[str, Callable[..., Any]] = {
    "multiply": operator.mul, "absolute": operator.abs, "less": operator.lt, "less_equal": operator.le,
    "greater": operator.gt, "greater_equal": operator.ge,
}


def meaning(op: OpSpec, operands: Sequence[Any]) -> Callable[..., Any]:
    """Return what computes `op`: its reference, but for operators on complex scalars."""
    scalars = op.name in _OF_SCALARS and all(isinstance(x, np.complexfloating) for x in operands)
    return _OF_SCALARS[op.name] if scalars else op.ref


def leaf_value(hop: Hop, given: Any) -> Any:
    """Return the object `given` for leaf `hop` as its users see it: weak scalars are converted."""
    return hop.meta.dtype.type(given) if hop.attr("form") == "weak" else given


def _verb(ufunc: np.ufunc) -> Any:
    """Make a verb of `ufunc`: operands of one dtype, and bools only where it is bitwise."""
    bitwise = ufunc in (np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.invert)

    def verb(*xs: Any) -> Any:
        if xs[0].dtype == np.bool_ and not bitwise:
            raise InternalError(f"{ufunc.__name__}: a recipe does arithmetic on bools")
        if any(x.dtype != xs[0].dtype for x in xs):
            raise InternalError(f"{ufunc.__name__}: a recipe mixes {[str(x.dtype) for x in xs]}")
        return ufunc(*xs)

    return staticmethod(verb)


class NumpyBuilder:
    """A `ScalarBuilder` whose values are NumPy arrays and scalars."""

    add, sub, mul, div = map(_verb, (np.add, np.subtract, np.multiply, np.divide))
    floordiv, rem, fmod = map(_verb, (np.floor_divide, np.remainder, np.fmod))
    neg, abs, sqrt = map(_verb, (np.negative, np.absolute, np.sqrt))
    floor, ceil, trunc, rint = map(_verb, (np.floor, np.ceil, np.trunc, np.rint))
    copysign = _verb(np.copysign)
    minimum, maximum, fmin, fmax = map(_verb, (np.minimum, np.maximum, np.fmin, np.fmax))
    eq, ne, lt = map(_verb, (np.equal, np.not_equal, np.less))
    le, gt, ge = map(_verb, (np.less_equal, np.greater, np.greater_equal))
    and_, or_, xor, not_ = map(_verb, (np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.invert))
    shl, shr = map(_verb, (np.left_shift, np.right_shift))

    def const(self, value: Any, dtype: np.dtype) -> Any:
        """Return the scalar `value` of `dtype`."""
        return dtype.type(value)

    def cast(self, x: Any, dtype: np.dtype) -> Any:
        """Return `x` as ``astype`` converts it."""
        return x.astype(dtype)

    def select(self, c: Any, x: Any, y: Any) -> Any:
        """Return `x` where `c` holds, else `y`."""
        if c.dtype != np.bool_ or x.dtype != y.dtype:
            raise InternalError(f"select: a recipe mixes {c.dtype}, {x.dtype}, {y.dtype}")
        return value(np.where(c, x, y))

    def real(self, x: Any) -> Any:
        """Return the real part."""
        return x.real

    def imag(self, x: Any) -> Any:
        """Return the imaginary part."""
        return x.imag

    def pair(self, re: Any, im: Any) -> Any:
        """Return the complex number of these parts."""
        if re.dtype != im.dtype:
            raise InternalError(f"pair: a recipe mixes {re.dtype}, {im.dtype}")
        whole = np.empty(np.broadcast_shapes(re.shape, im.shape), np.result_type(re, np.complex64))
        whole.real, whole.imag = re, im
        return value(whole)

    def muladd(self, x: Any, y: Any, z: Any) -> Any:
        """Return x * y + z as the real part of a product that NumPy computes."""
        product = np.multiply(self.pair(x, -z), self.pair(y, np.ones_like(y)))
        return value(np.asarray(product).real)

    def flag(self, kind: str, c: Any) -> None:
        """Let NumPy raise the flag `kind` if `c` holds anywhere."""
        dividend, divisor = {"invalid": (0.0, 0.0), "divide": (1.0, 0.0), "overflow": (1e300, 1e-300)}[kind]
        if np.any(c):
            np.divide(dividend, divisor)

    def math(self, name: str, *xs: Any) -> Any:
        """Return the transcendental called `name`."""
        return lookup(name).ref(*xs)


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


def _uncollected(change: Any) -> Any:
    """Return `change`, of a context variable, without the garbage collector running meanwhile.

    Before Python 3.12 it runs wherever memory is allocated. A finalizer that changes a context variable in
    the midst of such a change frees what is being copied, which ends the process.
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
    listen, hush = _uncollected(listen), _uncollected(hush)
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
