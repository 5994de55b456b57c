"""The operators of proxies: one entry on the tape, inferred once for each pair of metas.

Knows: Python's operators, plain ufunc calls, their fast path. Must not know: how blocks are closed.
Receives proxies and scalars; returns proxies. Everything unusual goes to the session.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from jitla.hops import Kind, adopt, all_ops
from jitla.tracing.array import (
    LAZY,
    SUMS,
    TOTALS,
    UFUNCS,
    Lazy,
    LazyArray,
    LazyScalar,
    is_cut,
    pending,
)
from jitla.tracing.enacting import OPERATORS
from jitla.tracing.powers import is_paired, of_constant
from jitla.tracing.tape import KIND_CODE, OP_ID, enroll

# A Python int up to this size converts to any float without question.
SMALL_INT = 1 << 62


def _binary(name: str, slow: Any, reflected: bool) -> Callable[[Any, Any], Any]:
    """Make the method that records the binary operator `name`; the fast path looks metas up by ids.

    `slow` is what NumPy does where nothing can be recorded: the operator, or the function called by name.
    """
    op = OP_ID[name]
    alike: dict[int, tuple[int, type]] = {}
    # By meta (or scalar code) of the other operand, then by that of the proxy itself.
    metas: dict[int, dict[int, tuple[int, type]]] = {}
    remembered = (alike, metas)
    _INFERRED.extend(remembered)

    def method(self: Any, other: Any) -> Any:
        session = self._s
        i = self._n
        m = self._m
        kind = type(other)
        try:
            if kind is LazyArray or kind is LazyScalar:
                if other._s is not session:
                    return session.binary(name, slow, self, other, reflected, remembered)
                if i < 0:
                    i = session.enter(self)
                j = other._n
                if j < 0:
                    j = session.enter(other)
                n = other._m
                meta, cls = alike[m] if m == n else metas[n][m]
            else:
                j = KIND_CODE[kind]
                meta, cls = metas[j][m]
                if j == _INT and not -SMALL_INT < other < SMALL_INT:
                    return session.binary(name, slow, self, other, reflected, remembered)
                if i < 0:
                    i = session.enter(self)
        except KeyError:
            cls = None
        if cls is None:  # outside of the handler: what NumPy raises has no context
            return session.binary(name, slow, self, other, reflected, remembered)
        entry = (op, j, i) if reflected else (op, i, j)
        return session.put(cls, entry, meta, other) if j < 0 else session.put(cls, entry, meta)

    return method


def _unary(name: str, slow: Any) -> Callable[[Any], Any]:
    """Make the method that records the unary operator `name`; `slow` as of `_binary`."""
    op = OP_ID[name]
    metas: dict[int, tuple[int, type]] = {}
    _INFERRED.append(metas)

    def method(self: Any) -> Any:
        session = self._s
        i = self._n
        if i < 0:
            i = session.enter(self)
        try:
            meta, cls = metas[self._m]
        except KeyError:
            cls = None
        if cls is None:
            return session.unary(name, slow, self, metas)
        return session.put(cls, (op, i), meta)

    return method


def _reduction(name: str) -> Callable[..., Any]:
    """Make the method of arrays that records the reduction `name`."""
    op = OP_ID[name]
    known: dict[tuple, tuple[tuple, int]] = {}
    totals: dict[int, tuple[tuple, int]] = {}
    _INFERRED.extend((known, totals))
    ordered = name in SUMS

    def total(self: Any, function: Any = None) -> Any:
        found = totals.get(self._m)
        if found is None or ordered and self._v is not None and is_cut(self):
            return learn(self, function)
        attrs, meta = found
        session = self._s
        i = self._n
        if i < 0:
            i = session.enter(self)
        return session.put(LazyScalar, (op, i, attrs), meta)

    def learn(self: Any, function: Any) -> Any:
        session = self._s
        if function is None:
            made = session.reduced(self, name, (), {})
        else:  # what NumPy has to do is done, and warns, as the function does
            made = session.function(function, (self,), {})
        if type(made) is LazyScalar and made._v is None:
            totals[self._m] = (session.ops[made._n][-1], made._m)
        return made

    def method(self: Any, axis: Any = None, *more: Any, keepdims: Any = False, **options: Any) -> Any:
        if axis is None and keepdims is False and not more and not options:
            return total(self)
        session = self._s
        plain = not more and not options and (axis is None or type(axis) is int)
        if not plain or type(keepdims) is not bool:
            if keepdims is not False:
                options["keepdims"] = keepdims
            return session.reduced(self, name, (axis, *more), options)
        found = known.get((self._m, axis, keepdims))
        if found is None or ordered and self._v is not None and is_cut(self):
            made = session.reduced(self, name, (axis,), {"keepdims": keepdims})
            if type(made) in LAZY and made._v is None:
                known[self._m, axis, keepdims] = (session.ops[made._n][-1], made._m)
            return made
        attrs, meta = found
        i = self._n if self._n >= 0 else session.enter(self)
        return pending(session, (op, i, attrs), meta)

    TOTALS[getattr(np, name)] = total
    return method


def _inplace(ufunc: Any) -> Callable[[Any, Any], Any]:
    return lambda self, other: self._s.inplace(self, ufunc, other)


_INT = KIND_CODE[int]
_INFERRED: list[dict] = []
_MATMUL = OP_ID["matmul"]
_products: dict[tuple[int, int], int] = {}
_INFERRED.append(_products)

_BINARY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.divide,
    "floordiv": np.floor_divide, "mod": np.remainder, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor, "lshift": np.left_shift, "rshift": np.right_shift,
}
_COMPARE = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal,
}
_UNARY = {"neg": np.negative, "pos": np.positive, "abs": np.absolute, "invert": np.invert}
_MORE_BINARY = (
    np.maximum, np.minimum, np.fmax, np.fmin, np.logical_and, np.logical_or, np.logical_xor,
    np.arctan2, np.copysign, np.fmod, np.hypot, np.logaddexp, np.logaddexp2,
    np.power, np.float_power,
)
_MORE_UNARY = (
    np.sqrt, np.square, np.reciprocal, np.sign, np.floor, np.ceil, np.trunc, np.rint, np.exp,
    np.exp2, np.expm1, np.log, np.log2, np.log10, np.log1p, np.sin, np.cos, np.tan, np.arcsin,
    np.arccos, np.arctan, np.sinh, np.cosh, np.tanh, np.arcsinh, np.arccosh, np.arctanh, np.cbrt,
    np.logical_not, np.isnan, np.isinf, np.isfinite, np.signbit, np.deg2rad, np.rad2deg, np.fabs,
    np.conjugate,
)


def _binary_call(ufunc: Any) -> Callable[..., Any]:
    forward, backward = (_binary(ufunc.__name__, ufunc, reflected) for reflected in (False, True))

    def record(x: Any, y: Any) -> Any:
        if type(x) is LazyArray or type(x) is LazyScalar:
            return forward(x, y)
        return backward(y, x)

    return record


def meet(ufunc: Any) -> bool:
    """Record plain calls of `ufunc` from now on, if it is one of SciPy's that the op table knows."""
    op = adopt(ufunc)
    if op is None:
        return False
    enroll(op)
    UFUNCS[ufunc] = _unary(op.name, ufunc) if ufunc.nin == 1 else _binary_call(ufunc)
    return True


def _install() -> None:
    UFUNCS.clear()  # of what an import that failed has left
    ufunc: Any
    for name, ufunc in {**_BINARY, **_COMPARE}.items():
        _give(Lazy, f"__{name}__", _binary(ufunc.__name__, OPERATORS[ufunc], False))
        if name in _BINARY:
            _give(Lazy, f"__r{name}__", _binary(ufunc.__name__, OPERATORS[ufunc], True))
            _give(LazyArray, f"__i{name}__", _inplace(ufunc))
    for ufunc in (*_BINARY.values(), *_COMPARE.values(), *_MORE_BINARY):
        UFUNCS[ufunc] = _binary_call(ufunc)
    for name, ufunc in _UNARY.items():
        _give(Lazy, f"__{name}__", _unary(ufunc.__name__, OPERATORS[ufunc]))
    for ufunc in (*_UNARY.values(), *_MORE_UNARY):
        if ufunc.__name__ in OP_ID:
            UFUNCS[ufunc] = _unary(ufunc.__name__, ufunc)
    for op in all_ops():  # what has an entry with a recipe needs nothing else
        for ufunc in op.numpy if op.kind is Kind.CELL and op.emit else ():
            if isinstance(ufunc, np.ufunc) and ufunc.nin < 3 and ufunc not in UFUNCS:
                UFUNCS[ufunc] = _unary(op.name, ufunc) if ufunc.nin == 1 else _binary_call(ufunc)
    UFUNCS[np.power] = _power_call(UFUNCS[np.power])
    for name in ("sum", "mean", "min", "max", "any", "all", "prod"):
        _give(LazyArray, name, _reduction(name))
    _give(LazyArray, "__ipow__", _inplace(np.power))
    _give(LazyArray, "__imatmul__", _inplace(np.matmul))
    method: Any
    for name, method in {"pow": _power, "rpow": _rpower, "matmul": _matmul, "rmatmul": _rmatmul}.items():
        _give(Lazy, f"__{name}__", method)


def _give(kind: type, name: str, method: Callable[..., Any]) -> None:
    """Make `method` the method `name`: a bound one is known by its name where a value is wanted."""
    method.__name__ = method.__qualname__ = name
    setattr(kind, name, method)


def _power_call(general: Callable[..., Any]) -> Callable[..., Any]:
    def record(x: Any, y: Any) -> Any:
        if not is_paired(x, y):
            return (x if type(x) in LAZY else y)._s.eager(np.power, (x, y), {})
        made = of_constant(x, y)
        return general(x, y) if made is None else made

    return record


def _power(self: Any, exponent: Any, modulo: Any = None) -> Any:
    if modulo is not None:
        return self._s.eager(pow, (self, exponent, modulo), {})
    return self._s.power(self, exponent)


def _rpower(self: Any, base: Any) -> Any:
    return self._s.function(operator.pow, (base, self), {})


def _matmul(self: Any, other: Any) -> Any:
    session = self._s
    if type(other) is not LazyArray or type(self) is not LazyArray or other._s is not session:
        return session.matmul(self, other)
    meta = _products.get((self._m, other._m))
    if meta is None:
        made = session.matmul(self, other)
        if type(made) in LAZY and made._v is None and session.ops[made._n][0] == _MATMUL \
                and not session.is_read(self, other):
            _products[self._m, other._m] = made._m
        return made
    i = self._n if self._n >= 0 else session.enter(self)
    j = other._n if other._n >= 0 else session.enter(other)
    return pending(session, (_MATMUL, i, j), meta)


def _rmatmul(self: Any, other: Any) -> Any:
    return self._s.matmul(other, self)


_install()


def forget_metas() -> None:
    """Drop what the fast paths remember; sizes that keep changing would grow it for ever."""
    for metas in _INFERRED:
        metas.clear()
