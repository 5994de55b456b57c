"""What a DAG of hops means: evaluation by NumPy, and recipes run on NumPy values.

Knows: NumPy. Must not know: plans, kernels, any optimisation.
Receives roots and the objects at the leaf positions; returns NumPy values.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from jitla.errors import InternalError
from jitla.hops.node import Hop, const_value, topo
from jitla.hops.spec import OpSpec, lookup
from jitla.hops.table_cell import value


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
