"""Lazy arrays and scalars, and their operators."""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from jitla.hops import Kind, all_ops, broadcast, register_scipy_ufunc
from jitla.tracing.tape import (
    KIND_CODE,
    LAYOUT_ID,
    LAYOUTS,
    METAS,
    OP_ID,
    OPERATORS,
    SCALAR,
    enroll,
    layout_id,
)

__all__ = ["match_like_arrays"]


_SEQUENCE = 1 << 5


def match_like_arrays(kind: type) -> None:
    """Let patterns of sequences match instances of `kind` if they match arrays.

    Registering the class with `collections.abc.Sequence` would do so, too, but `isinstance` says that arrays
    are none.
    """
    flags = kind.__flags__
    if flags & _SEQUENCE == np.ndarray.__flags__ & _SEQUENCE:
        return
    size: Any = type.__basicsize__  # of the class of classes it is a number
    words = (ctypes.c_ulong * (size // ctypes.sizeof(ctypes.c_ulong))).from_address(id(kind))
    places = [i for i, word in enumerate(words) if word == flags]
    if len(places) == 1:
        words[places[0]] ^= _SEQUENCE


_WARNING = frozenset({np.complex64, np.complex128, np.ndarray})  # they may warn when they become a number
# ufunc -> function that records a plain call of it; the operands may be anything. Filled by the operators.
UFUNCS: dict[Any, Callable[..., Any]] = {}
# NumPy's reduction -> function that records it over all axes of an array. Filled by the operators.
TOTALS: dict[Any, Callable[[Any, Any], Any]] = {}
SUMS = frozenset({"sum", "mean", "var", "std"})  # reductions whose bits depend on the order
PIECE = np.getbufsize()  # elements that NumPy copies at a time


class Gone:
    """Stands on the tape for a value that has no proxy of its own."""

    __slots__ = ("_m", "_n", "_v", "_l")

    def __init__(self, meta: int) -> None:
        self._m = meta
        self._v = None


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
        if not kwargs and method == "__call__" and ufunc in UFUNCS:
            return UFUNCS[ufunc](*inputs)
        return self._s.ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func in TOTALS and not kwargs and len(args) == 1 and type(args[0]) is LazyArray:
            return TOTALS[func](args[0], func)
        return self._s.function(func, args, kwargs)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self._s.value(self), dtype=dtype, copy=copy)

    def __bool__(self) -> bool:
        return bool(self._s.value(self))

    def __float__(self) -> float:
        value = self._s.value(self)
        return float(value) if type(value) not in _WARNING else self._s.called(float, value)

    def __int__(self) -> int:
        value = self._s.value(self)
        return int(value) if type(value) not in _WARNING else self._s.called(int, value)

    def __complex__(self) -> complex:
        value = self._s.value(self)
        return complex(value) if type(value) not in _WARNING else self._s.called(complex, value)

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

    def __reduce__(self) -> Any:
        return self._s.value(self).__reduce__()

    def __sizeof__(self) -> int:
        return int(self._s.value(self).__sizeof__())

    def __dir__(self) -> list[str]:
        return dir(self._s.value(self))

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


class LazyScalar(Lazy):
    """A proxy of a NumPy scalar: immutable, hashable, with scalar semantics."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__array"):
            raise AttributeError(name)
        return getattr(self._s.value(self), name)

    __iter__ = None  # has __getitem__, as NumPy's scalars, but is no sequence

    @property
    def __class__(self) -> type:
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
    """A proxy of an ndarray.

    It has no ``__getattr__``, which would make every look-up of an attribute six times as slow.
    """

    __slots__ = ()

    @property
    def __class__(self) -> type:
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


def _forwarded(name: str) -> property:
    return property(lambda self: self._s.attribute(self, name))


for _name in {*dir(np.ndarray)} - {*dir(LazyArray)}:
    if not _name.startswith("__") or _name == "__setstate__":
        setattr(LazyArray, _name, _forwarded(_name))
LazyArray.__name__ = "numpy.ndarray"  # so Python calls the type that lacks an attribute
LazyArray.__module__, LazyArray.__qualname__ = "numpy", "ndarray"  # or, since 3.14, is no key
match_like_arrays(LazyArray)


def pending(session: Any, entry: tuple, meta: int, *scalars: Any) -> Lazy:
    """Append `entry` and its scalars to the session's tape and return the proxy of its value."""
    made: Lazy = session.put(LazyArray if METAS[meta].shape else LazyScalar, entry, meta, *scalars)
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


def view_of(array: Any, method: str | Callable[..., Any], args: tuple) -> Any:
    """Return what a method, or a function, makes of an array."""
    return getattr(array, method)(*args) if isinstance(method, str) else method(array, *args)


def is_cut(array: LazyArray) -> bool:
    """Tell whether NumPy adds up an array in pieces: what is not aligned is copied before, piece by piece."""
    memory, known = array._v, METAS[array._m]
    return known.size > PIECE and known.dtype.kind in "fc" and memory is not None and not memory.flags.aligned


def scalar_entry(session: Any, proxy: LazyScalar) -> int:
    """Put the value of a scalar proxy that is in memory on the tape; return its entry."""
    value = proxy._v
    entry = SCALAR, KIND_CODE[type(value)]
    proxy._n = n = session.append(entry, session.hole, scalars=(value,), entered=(proxy,))
    return n


LAZY = frozenset({LazyArray, LazyScalar})


#: Exponents of which there is something better than a power, if plans know them.
_KNOWN = frozenset({2.0, 0.5, -1.0, 1.0, 3.0, 4.0})
_POWER = OP_ID["power"]


class _Asked(np.ndarray):
    """An array of which every operation is the ufunc that NumPy would have used."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return ufunc


def _shortcuts() -> dict[tuple[str, type, Any], Any]:
    found: dict[tuple[str, type, Any], Any] = {}
    for char in "lLdD":
        base = np.ones(1, char).view(_Asked)
        for exponent in (2, -1, 1, 0.5, 2.0, -1.0, 1.0):
            ufunc = base**exponent
            if isinstance(ufunc, np.ufunc) and ufunc is not np.power:
                found[base.dtype.kind, type(exponent), exponent] = ufunc
    return found


#: The ufunc that ``x ** exponent`` is, by kind of x, type and value of the exponent, if not `np.power`.
SHORTCUTS = _shortcuts()


def is_paired(x: Any, exponent: Any) -> bool:
    """Say whether every exponent is for one element: NumPy looks what one for many of them is."""
    if not isinstance(exponent, (LazyArray, np.ndarray)):
        return True
    memory: Any = exponent._v if type(exponent) is LazyArray else exponent
    spread = memory is not None and any(
        by == 0 and n > 1 for by, n in zip(memory.strides, memory.shape, strict=True))
    return not spread and exponent.size != 1 and exponent.shape == broadcast((np.shape(x), exponent.shape))


def of_constant(x: Any, exponent: Any) -> LazyArray | None:
    """Record ``np.power(x, exponent)`` with an exponent that is part of the plan; None: it is not."""
    if type(x) is not LazyArray or type(exponent) not in (int, float) or exponent not in _KNOWN:
        return None
    meta = METAS[x._m]
    if meta.dtype.char not in "fd" or not meta.shape:
        return None
    session = x._s
    i = x._n if x._n >= 0 else session.enter(x)
    value = meta.dtype.type(exponent)
    j = session.append((SCALAR, KIND_CODE[type(value)], float(exponent)), session.hole, scalars=(value,))
    made: LazyArray = session.put(LazyArray, (_POWER, i, j), x._m)
    return made


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
    op = register_scipy_ufunc(ufunc)
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
