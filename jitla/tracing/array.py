"""The proxies user code holds instead of arrays and NumPy scalars.

Knows: how an operator on proxies becomes one entry of the tape, and which attributes need memory.
Must not know: how a block is closed, compiled or run (the session is asked). Receives operands; returns proxies.

A proxy is in one of three states: *pending* (``_n >= 0``: entry of the open block), *in memory*
(``_n < 0`` and ``_v`` set) or a *ghost* (``_n < 0``, ``_v`` None, ``_r`` a recipe).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from jitla.tracing.signature import INTEGRAL, LAYOUT_ID, LAYOUTS, METAS, layout_id
from jitla.tracing.tape import KIND_CODE, OP_ID, SCALAR

# A Python int up to this many bits converts to any float without question.
SMALL_INT = 1 << 62


class Gone:
    """Stands on the tape for a value that has no proxy of its own."""

    __slots__ = ("_m", "_n", "_v", "_l")

    def __init__(self, meta: int) -> None:
        self._m = meta


class Lazy:
    """What array and scalar proxies share: `_s` session, `_n` entry, `_m` meta id, `_v` value."""

    __slots__ = ("_s", "_n", "_m", "_v", "_l", "_r", "__weakref__")

    _s: Any
    _n: int
    _m: int
    _v: Any
    _l: int
    _r: Any

    # Without this NumPy would try to build an object array out of a proxy that is an operand.
    __array_priority__ = 1e6

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method == "__call__" and not kwargs:
            record = UFUNCS.get(ufunc)
            if record is not None:
                return record(*inputs)
        return self._s.ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return self._s.function(func, args, kwargs)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self._s.value(self), dtype=dtype, copy=copy)

    def __bool__(self) -> bool:
        return bool(self._s.value(self))

    def __float__(self) -> float:
        return float(self._s.value(self))

    def __int__(self) -> int:
        return int(self._s.value(self))

    def __complex__(self) -> complex:
        return complex(self._s.value(self))

    def __index__(self) -> int:
        return operator.index(self._s.value(self))

    def __repr__(self) -> str:
        return repr(self._s.value(self))

    def __str__(self) -> str:
        return str(self._s.value(self))

    def __format__(self, spec: str) -> str:
        return format(self._s.value(self), spec)

    def __divmod__(self, other: Any) -> Any:
        return self._s.function(divmod, (self, other), {})

    def __rdivmod__(self, other: Any) -> Any:
        return self._s.function(divmod, (other, self), {})

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._s.value(self).__reduce_ex__(protocol)

    def __copy__(self) -> Any:
        return self._s.method(self, "copy", (), {})

    def __deepcopy__(self, memo: Any) -> Any:
        return self._s.method(self, "copy", (), {})

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape, known without computing."""
        return METAS[self._m].shape

    @property
    def dtype(self) -> np.dtype:
        """Dtype, known without computing."""
        return METAS[self._m].dtype

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(METAS[self._m].shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return METAS[self._m].size

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return METAS[self._m].nbytes

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return METAS[self._m].dtype.itemsize

    @property
    def T(self) -> Any:
        """Transposed view."""
        value = self._v
        if value is None or type(self) is LazyScalar:
            return self._s.view(self, "transpose", ())
        view = value.T
        layout = LAYOUT_ID.get((view.dtype, view.shape, view.strides))
        return in_memory(self._s, view, layout_id(view) if layout is None else layout)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__array"):
            raise AttributeError(name)
        return self._s.attribute(self, name)


class LazyScalar(Lazy):
    """A proxy of a NumPy scalar: immutable, hashable, with scalar semantics."""

    __slots__ = ()

    @property
    def __class__(self) -> type:  # type: ignore[override]
        return METAS[self._m].dtype.type

    def __hash__(self) -> int:
        return hash(self._s.value(self))

    def __round__(self, digits: int | None = None) -> Any:
        return round(self._s.value(self), *(() if digits is None else (digits,)))

    def __trunc__(self) -> int:
        return self._s.value(self).__trunc__()

    def __floor__(self) -> Any:
        return self._s.value(self).__floor__()

    def __ceil__(self) -> Any:
        return self._s.value(self).__ceil__()

    def __getitem__(self, key: Any) -> Any:
        return self._s.value(self)[key]


class LazyArray(Lazy):
    """A proxy of an ndarray."""

    __slots__ = ()

    @property
    def __class__(self) -> type:  # type: ignore[override]
        return np.ndarray

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        shape = METAS[self._m].shape
        return shape[0] if shape else len(self._s.value(self))

    def __iter__(self) -> Iterator[Any]:
        return self._s.iterate(self)

    def __contains__(self, item: Any) -> bool:
        return self._s.plain(item) in self._s.value(self)

    def __getitem__(self, key: Any) -> Any:
        return self._s.getitem(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._s.setitem(self, key, value)

    def __delitem__(self, key: Any) -> None:
        del self._s.value(self)[key]

    def __buffer__(self, flags: int) -> memoryview:
        return memoryview(self._s.value(self))

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self._s.value(self).__dlpack__(**kwargs)

    def __dlpack_device__(self) -> Any:
        return self._s.value(self).__dlpack_device__()


def pending(session: Any, entry: tuple, meta: int) -> Lazy:
    """Append `entry` to the session's tape and return the proxy of its value."""
    ops = session.ops
    made = LazyArray() if METAS[meta].shape else LazyScalar()
    made._s = session
    made._n = len(ops)
    made._m = meta
    made._v = None
    ops.append(entry)
    session.nodes.append(made)
    return made


def in_memory(session: Any, value: np.ndarray, layout: int) -> LazyArray:
    """Return a proxy of the ndarray `value`, whose layout id is `layout`."""
    made = LazyArray()
    made._s = session
    made._n = -1
    made._v = value
    made._l = layout
    made._m = LAYOUTS[layout].meta
    return made


def scalar_entry(session: Any, proxy: LazyScalar) -> int:
    """Put the value of a scalar proxy that is in memory on the tape; return its entry."""
    value = proxy._v
    proxy._n = n = len(session.ops)
    session.ops.append((SCALAR, KIND_CODE[type(value)]))
    session.nodes.append(session.hole)
    session.scalars.append(value)
    session.entered.append(proxy)
    return n


def _binary(name: str, ufunc: Any, reflected: bool) -> Callable[[Any, Any], Any]:
    """Make the method that records the binary operator `name`; the fast path is one dict look-up."""
    op = OP_ID[name]
    alike: dict[int, tuple[int, type]] = {}
    metas: dict[tuple[int, int], tuple[int, type]] = {}
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
                    return session.binary(name, ufunc, self, other, reflected, remembered)
                if i < 0:
                    i = session.enter(self)
                j = other._n
                if j < 0:
                    j = session.enter(other)
                n = other._m
                meta, cls = alike[m] if m == n else metas[m, n]
            else:
                j = KIND_CODE[kind]
                meta, cls = metas[m, j]
                if j == _INT and not -SMALL_INT < other < SMALL_INT:
                    return session.binary(name, ufunc, self, other, reflected, remembered)
                if i < 0:
                    i = session.enter(self)
                session.scalars.append(other)
        except KeyError:
            cls = None
        if cls is None:  # outside of the handler: what NumPy raises has no context
            return session.binary(name, ufunc, self, other, reflected, remembered)
        ops = session.ops
        made = cls()
        made._s = session
        made._n = len(ops)
        made._m = meta
        made._v = None
        ops.append((op, j, i) if reflected else (op, i, j))
        session.nodes.append(made)
        return made

    method.__name__ = method.__qualname__ = f"{'r' if reflected else ''}{name}"
    return method


def _unary(name: str, ufunc: Any) -> Callable[[Any], Any]:
    """Make the method that records the unary operator `name`."""
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
            return session.unary(name, ufunc, self, metas)
        ops = session.ops
        made = cls()
        made._s = session
        made._n = len(ops)
        made._m = meta
        made._v = None
        ops.append((op, i))
        session.nodes.append(made)
        return made

    method.__name__ = method.__qualname__ = name
    return method


def _inplace(name: str, ufunc: Any) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any) -> Any:
        return self._s.inplace(self, ufunc, other)

    method.__name__ = method.__qualname__ = f"i{name}"
    return method


_INT = KIND_CODE[int]
_INFERRED: list[dict] = []
_MATMUL = OP_ID["matmul"]
_products: dict[tuple[int, int], int] = {}
_INFERRED.append(_products)
# ufunc -> function that records a plain call of it; the operands may be anything.
UFUNCS: dict[Any, Callable[..., Any]] = {}

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
    np.arctan2, np.copysign, np.fmod, np.hypot, np.logaddexp, np.power,
)
_MORE_UNARY = (
    np.sqrt, np.square, np.reciprocal, np.sign, np.floor, np.ceil, np.trunc, np.rint, np.exp,
    np.exp2, np.expm1, np.log, np.log2, np.log10, np.log1p, np.sin, np.cos, np.tan, np.arcsin,
    np.arccos, np.arctan, np.sinh, np.cosh, np.tanh, np.arcsinh, np.arccosh, np.arctanh, np.cbrt,
    np.logical_not, np.isnan, np.isinf, np.isfinite, np.signbit, np.deg2rad, np.rad2deg, np.fabs,
)


def _binary_call(ufunc: Any, forward: Any, backward: Any) -> Callable[..., Any]:
    def record(x: Any, y: Any) -> Any:
        if type(x) is LazyArray or type(x) is LazyScalar:
            return forward(x, y)
        return backward(y, x)

    return record


def _install() -> None:
    for name, ufunc in {**_BINARY, **_COMPARE}.items():
        forward = _binary(ufunc.__name__, ufunc, False)
        backward = _binary(ufunc.__name__, ufunc, True)
        setattr(Lazy, f"__{name}__", forward)
        if name in _BINARY:
            setattr(Lazy, f"__r{name}__", backward)
            setattr(LazyArray, f"__i{name}__", _inplace(name, ufunc))
        UFUNCS[ufunc] = _binary_call(ufunc, forward, backward)
    for ufunc in _MORE_BINARY:
        forward = _binary(ufunc.__name__, ufunc, False)
        UFUNCS[ufunc] = _binary_call(ufunc, forward, _binary(ufunc.__name__, ufunc, True))
    for name, ufunc in _UNARY.items():
        UFUNCS[ufunc] = method = _unary(ufunc.__name__, ufunc)
        setattr(Lazy, f"__{name}__", method)
    for ufunc in _MORE_UNARY:
        if ufunc.__name__ in OP_ID:
            UFUNCS[ufunc] = _unary(ufunc.__name__, ufunc)
    LazyArray.__ipow__ = _inplace("pow", np.power)  # type: ignore[attr-defined]
    LazyArray.__imatmul__ = _inplace("matmul", np.matmul)  # type: ignore[attr-defined]


def _power(self: Any, exponent: Any, modulo: Any = None) -> Any:
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
        if type(made) in LAZY and made._v is None and session.ops[made._n][0] == _MATMUL:
            _products[self._m, other._m] = made._m
        return made
    i = self._n if self._n >= 0 else session.enter(self)
    j = other._n if other._n >= 0 else session.enter(other)
    return pending(session, (_MATMUL, i, j), meta)


def _rmatmul(self: Any, other: Any) -> Any:
    return self._s.matmul(other, self)


_install()
Lazy.__pow__ = _power  # type: ignore[attr-defined]
Lazy.__rpow__ = _rpower  # type: ignore[attr-defined]
Lazy.__matmul__ = _matmul  # type: ignore[attr-defined]
Lazy.__rmatmul__ = _rmatmul  # type: ignore[attr-defined]
LAZY = frozenset({LazyArray, LazyScalar})


def forget_metas() -> None:
    """Drop what the fast paths remember; sizes that keep changing would grow it for ever."""
    for metas in _INFERRED:
        metas.clear()


def integral(proxy: Lazy) -> bool:
    """Say whether `proxy` holds integers or bools."""
    return METAS[proxy._m].dtype.kind in INTEGRAL
