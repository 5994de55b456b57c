"""Lazy arrays and scalars: proxies of values on the tape or in memory, whose operators record entries.

The methods of operators look up the meta of a result by the metas of the operands; on a miss the session
infers it.
"""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from jitla.hops import Kind, all_ops, broadcast, register_scipy_ufunc
from jitla.introspection import hide_module
from jitla.tracing.frames import call_here, hide_function
from jitla.tracing.tape import (
    KIND_CODE,
    LAYOUT_ID,
    LAYOUTS,
    METAS,
    OP_ID,
    OPERATORS,
    SCALAR,
    layout_id,
    register_op,
)

__all__ = ["copy_sequence_flag"]


_SEQUENCE_FLAG = 1 << 5


def copy_sequence_flag(kind: type) -> None:
    """Give class `kind` the flag by which `match` takes instances for sequences, if ndarray has it.

    Registering the class with `collections.abc.Sequence` would set the flag as well, but arrays are not
    instances of that.
    """
    flags = kind.__flags__
    if flags & _SEQUENCE_FLAG == np.ndarray.__flags__ & _SEQUENCE_FLAG:
        return
    size: Any = type.__basicsize__  # a number, not a descriptor, on the metaclass
    words = (ctypes.c_ulong * (size // ctypes.sizeof(ctypes.c_ulong))).from_address(id(kind))
    matches = [i for i, word in enumerate(words) if word == flags]
    if len(matches) == 1:
        words[matches[0]] ^= _SEQUENCE_FLAG


# Types whose conversion to a number may warn.
_MAY_WARN = frozenset({np.complex64, np.complex128, np.ndarray})
# ufunc -> function that records a call without keywords; the operands may be anything. Filled below.
UFUNC_RECORDERS: dict[Any, Callable[..., Any]] = {}
# NumPy's reduction -> function that records it over all axes of an array. Filled below.
TOTAL_RECORDERS: dict[Any, Callable[[Any, Any], Any]] = {}
ORDERED_REDUCTIONS = frozenset({"sum", "mean", "var", "std"})  # rounding depends on the order of additions
BUFFER_ELEMENTS = np.getbufsize()  # elements that NumPy's buffered iterator copies at a time


class Placeholder:
    """The node of an entry whose value has no proxy."""

    __slots__ = ("_m", "_n", "_v", "_l")

    def __init__(self, meta: int) -> None:
        self._m = meta
        self._v = None


class Lazy:
    """Base class of array and scalar proxies.

    Slots: `_s` session, `_n` entry on its tape (-1: none), `_m` meta id, `_v` value (None: pending), `_l`
    layout id of the value, `_r` recipe of a rematerialisable value (block, entry, key of the exact block).
    """

    __slots__ = ("_s", "_n", "_m", "_v", "_l", "_r", "__weakref__")

    _s: Any
    _n: int
    _m: int
    _v: Any
    _l: int
    _r: Any

    # Without this NumPy would convert a proxy that is an operand to an object array.
    __array_priority__ = 1e6

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if not kwargs and method == "__call__" and ufunc in UFUNC_RECORDERS:
            return UFUNC_RECORDERS[ufunc](*inputs)
        return self._s.dispatch.ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func in TOTAL_RECORDERS and not kwargs and len(args) == 1 and type(args[0]) is LazyArray:
            return TOTAL_RECORDERS[func](args[0], func)
        return self._s.dispatch.function(func, args, kwargs)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self._s.closer.value(self), dtype=dtype, copy=copy)

    def __bool__(self) -> bool:
        return bool(self._s.closer.value(self))

    def __float__(self) -> float:
        value = self._s.closer.value(self)
        return float(value) if type(value) not in _MAY_WARN else call_here(float, value)

    def __int__(self) -> int:
        value = self._s.closer.value(self)
        return int(value) if type(value) not in _MAY_WARN else call_here(int, value)

    def __complex__(self) -> complex:
        value = self._s.closer.value(self)
        return complex(value) if type(value) not in _MAY_WARN else call_here(complex, value)

    def __index__(self) -> int:
        return operator.index(self._s.closer.value(self))

    def __repr__(self) -> str:
        return repr(self._s.closer.value(self))

    def __str__(self) -> str:
        return str(self._s.closer.value(self))

    def __format__(self, spec: str) -> str:
        return format(self._s.closer.value(self), spec)

    def __divmod__(self, other: Any) -> Any:
        return self._s.dispatch.function(divmod, (self, other), {})

    def __rdivmod__(self, other: Any) -> Any:
        return self._s.dispatch.function(divmod, (other, self), {})

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._s.closer.value(self).__reduce_ex__(protocol)

    def __reduce__(self) -> Any:
        return self._s.closer.value(self).__reduce__()

    def __sizeof__(self) -> int:
        return int(self._s.closer.value(self).__sizeof__())

    def __dir__(self) -> list[str]:
        return dir(self._s.closer.value(self))

    def __copy__(self) -> Any:
        return self._s.dispatch.method(self, "copy", (), {})

    def __deepcopy__(self, memo: Any) -> Any:
        return self._s.dispatch.method(self, "copy", (), {})

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape; needs no materialisation."""
        return METAS[self._m].shape

    @property
    def dtype(self) -> np.dtype:
        """Dtype; needs no materialisation."""
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
            return self._s.reader.view(self, "transpose", ())
        view = value.T
        layout = LAYOUT_ID.get((view.dtype, view.shape, view.strides))
        return proxy_in_memory(self._s, view, layout_id(view) if layout is None else layout)


class LazyScalar(Lazy):
    """A proxy of a NumPy scalar: immutable, hashable, with scalar semantics."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__array"):
            raise AttributeError(name)
        return getattr(self._s.closer.value(self), name)

    __iter__ = None  # has __getitem__, as NumPy's scalars, but is no sequence

    @property
    def __class__(self) -> type:
        return METAS[self._m].dtype.type

    def __hash__(self) -> int:
        return hash(self._s.closer.value(self))

    def __round__(self, digits: int | None = None) -> Any:
        return round(self._s.closer.value(self), *(() if digits is None else (digits,)))

    def __trunc__(self) -> int:
        return self._s.closer.value(self).__trunc__()

    def __floor__(self) -> Any:
        return self._s.closer.value(self).__floor__()

    def __ceil__(self) -> Any:
        return self._s.closer.value(self).__ceil__()

    def __getitem__(self, key: Any) -> Any:
        return self._s.closer.value(self)[key]


class LazyArray(Lazy):
    """A proxy of an ndarray.

    Attributes of ndarray are properties: ``__getattr__`` would make every attribute lookup six times as slow.
    """

    __slots__ = ()

    @property
    def __class__(self) -> type:
        return np.ndarray

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        shape = METAS[self._m].shape
        return shape[0] if shape else len(self._s.closer.value(self))

    def __iter__(self) -> Iterator[Any]:
        return self._s.reader.iterate(self)

    def __contains__(self, item: Any) -> bool:
        return self._s.boundary.plain(item) in self._s.closer.value(self)

    def __getitem__(self, key: Any) -> Any:
        return self._s.reader.getitem(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._s.writer.setitem(self, key, value)

    def __delitem__(self, key: Any) -> None:
        del self._s.closer.value(self)[key]

    def __buffer__(self, flags: int) -> memoryview:
        return memoryview(self._s.closer.value(self))

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self._s.closer.value(self).__dlpack__(**kwargs)

    def __dlpack_device__(self) -> Any:
        return self._s.closer.value(self).__dlpack_device__()


def _forwarding_property(name: str) -> property:
    return property(lambda self: self._s.dispatch.attribute(self, name))


for _name in {*dir(np.ndarray)} - {*dir(LazyArray)}:
    if not _name.startswith("__") or _name == "__setstate__":
        setattr(LazyArray, _name, _forwarding_property(_name))
LazyArray.__name__ = "numpy.ndarray"  # as in the message of Python's AttributeError
LazyArray.__module__, LazyArray.__qualname__ = "numpy", "ndarray"  # and, since 3.14, of TypeErrors about keys
copy_sequence_flag(LazyArray)


def append_entry(session: Any, entry: tuple, meta: int, *scalars: Any) -> Lazy:
    """Append `entry` and its scalars to the session's tape and return the proxy of its value."""
    proxy: Lazy = session.tape.put(LazyArray if METAS[meta].shape else LazyScalar, entry, meta, *scalars)
    return proxy


def proxy_in_memory(session: Any, value: np.ndarray, layout: int) -> LazyArray:
    """Return a new proxy of the ndarray `value`, whose layout id is `layout`."""
    proxy = LazyArray()
    proxy._s = session
    proxy._n = -1
    proxy._v = value
    proxy._l = layout
    proxy._m = LAYOUTS[layout].meta
    return proxy


def lazy_array(session: Any, array: np.ndarray) -> LazyArray:
    """Return a new proxy of `array`, which has to be traceable."""
    return proxy_in_memory(session, array, layout_id(array))


def apply_view(array: Any, method: str | Callable[..., Any], args: tuple) -> Any:
    """Return the view that `method`, a method name or a function, makes of `array`."""
    return getattr(array, method)(*args) if isinstance(method, str) else method(array, *args)


def is_chunked(array: LazyArray) -> bool:
    """Return whether NumPy sums an array in chunks: it copies unaligned elements through a buffer."""
    memory, meta = array._v, METAS[array._m]
    is_long = meta.size > BUFFER_ELEMENTS and meta.dtype.kind in "fc"
    return is_long and memory is not None and not memory.flags.aligned


LAZY = frozenset({LazyArray, LazyScalar})


#: Exponents that rewrites replace by cheaper operations; they are recorded as constants.
_RECORDED_EXPONENTS = frozenset({2.0, 0.5, -1.0, 1.0, 3.0, 4.0})
_POWER = OP_ID["power"]


class _UfuncProbe(np.ndarray):
    """An array whose operators return the ufunc that NumPy would have called."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return ufunc


def _shortcuts() -> dict[tuple[str, type, Any], Any]:
    shortcuts: dict[tuple[str, type, Any], Any] = {}
    for char in "lLdD":
        base = np.ones(1, char).view(_UfuncProbe)
        for exponent in (2, -1, 1, 0.5, 2.0, -1.0, 1.0):
            ufunc = base**exponent
            if isinstance(ufunc, np.ufunc) and ufunc is not np.power:
                shortcuts[base.dtype.kind, type(exponent), exponent] = ufunc
    return shortcuts


#: The ufunc that NumPy calls for ``x ** exponent`` if not `np.power`: by kind of x, type and value of
#: exponent.
POWER_SHORTCUTS = _shortcuts()


def is_pairwise(x: Any, exponent: Any) -> bool:
    """Return whether each exponent is for one element of `x`; NumPy has shortcuts for broadcast exponents."""
    if not isinstance(exponent, (LazyArray, np.ndarray)):
        return True
    memory: Any = exponent._v if type(exponent) is LazyArray else exponent
    repeats = memory is not None and any(
        by == 0 and n > 1 for by, n in zip(memory.strides, memory.shape, strict=True))
    return not repeats and exponent.size != 1 and exponent.shape == broadcast((np.shape(x), exponent.shape))


def record_constant_power(x: Any, exponent: Any) -> LazyArray | None:
    """Record ``np.power(x, exponent)`` with a constant exponent; None if it may not be one."""
    if type(x) is not LazyArray or type(exponent) not in (int, float) or exponent not in _RECORDED_EXPONENTS:
        return None
    meta = METAS[x._m]
    if meta.dtype.char not in "fd" or not meta.shape:
        return None
    tape = x._s.tape
    i = x._n if x._n >= 0 else tape.enter(x)
    value = meta.dtype.type(exponent)
    j = tape.append((SCALAR, KIND_CODE[type(value)], float(exponent)), tape.hole, scalars=(value,))
    proxy: LazyArray = tape.put(LazyArray, (_POWER, i, j), x._m)
    return proxy


# Python ints of smaller magnitude convert to any float dtype without overflow.
SMALL_INT = 1 << 62


def _binary(name: str, fallback: Any, reflected: bool) -> Callable[[Any, Any], Any]:
    """Return the method that records the binary operator `name`; its fast path looks up metas by ids.

    `fallback` is called where nothing can be recorded: the operator, or the function that user code named.
    """
    op = OP_ID[name]
    same_meta: dict[int, tuple[int, type]] = {}
    # By meta (or scalar code) of the other operand, then by that of the proxy itself.
    metas: dict[int, dict[int, tuple[int, type]]] = {}
    caches = (same_meta, metas)
    _META_CACHES.extend(caches)

    def method(self: Any, other: Any) -> Any:
        session = self._s
        tape = session.tape
        i = self._n
        m = self._m
        kind = type(other)
        try:
            if kind is LazyArray or kind is LazyScalar:
                if other._s is not session:
                    return session.recorder.binary(name, fallback, self, other, reflected, caches)
                if i < 0:
                    i = tape.enter(self)
                j = other._n
                if j < 0:
                    j = tape.enter(other)
                n = other._m
                meta, cls = same_meta[m] if m == n else metas[n][m]
            else:
                j = KIND_CODE[kind]
                meta, cls = metas[j][m]
                if j == _INT and not -SMALL_INT < other < SMALL_INT:
                    return session.recorder.binary(name, fallback, self, other, reflected, caches)
                if i < 0:
                    i = tape.enter(self)
        except KeyError:
            cls = None
        if cls is None:  # outside of the handler, so that exceptions of NumPy have no context
            return session.recorder.binary(name, fallback, self, other, reflected, caches)
        entry = (op, j, i) if reflected else (op, i, j)
        return tape.put(cls, entry, meta, other) if j < 0 else tape.put(cls, entry, meta)

    return method


def _unary(name: str, fallback: Any) -> Callable[[Any], Any]:
    """Return the method that records the unary operator `name`; `fallback` as in `_binary`."""
    op = OP_ID[name]
    metas: dict[int, tuple[int, type]] = {}
    _META_CACHES.append(metas)

    def method(self: Any) -> Any:
        session = self._s
        tape = session.tape
        i = self._n
        if i < 0:
            i = tape.enter(self)
        try:
            meta, cls = metas[self._m]
        except KeyError:
            cls = None
        if cls is None:
            return session.recorder.unary(name, fallback, self, metas)
        return tape.put(cls, (op, i), meta)

    return method


def _reduction(name: str) -> Callable[..., Any]:
    """Return the method of arrays that records the reduction `name`."""
    op = OP_ID[name]
    by_axis: dict[tuple, tuple[tuple, int]] = {}
    totals: dict[int, tuple[tuple, int]] = {}
    _META_CACHES.extend((by_axis, totals))
    ordered = name in ORDERED_REDUCTIONS

    def total(self: Any, function: Any = None) -> Any:
        cached = totals.get(self._m)
        if cached is None or ordered and self._v is not None and is_chunked(self):
            return record_and_cache(self, function)
        attrs, meta = cached
        tape = self._s.tape
        i = self._n
        if i < 0:
            i = tape.enter(self)
        return tape.put(LazyScalar, (op, i, attrs), meta)

    def record_and_cache(self: Any, function: Any) -> Any:
        session = self._s
        if function is None:
            result = session.dispatch.call_reduction(self, name, (), {})
        else:  # if NumPy has to do it, it warns as the function does
            result = session.dispatch.function(function, (self,), {})
        if type(result) is LazyScalar and result._v is None:
            totals[self._m] = (session.tape.ops[result._n][-1], result._m)
        return result

    def method(self: Any, axis: Any = None, *more: Any, keepdims: Any = False, **options: Any) -> Any:
        if axis is None and keepdims is False and not more and not options:
            return total(self)
        session = self._s
        is_plain = not more and not options and (axis is None or type(axis) is int)
        if not is_plain or type(keepdims) is not bool:
            if keepdims is not False:
                options["keepdims"] = keepdims
            return session.dispatch.call_reduction(self, name, (axis, *more), options)
        cached = by_axis.get((self._m, axis, keepdims))
        if cached is None or ordered and self._v is not None and is_chunked(self):
            result = session.dispatch.call_reduction(self, name, (axis,), {"keepdims": keepdims})
            if type(result) in LAZY and result._v is None:
                by_axis[self._m, axis, keepdims] = (session.tape.ops[result._n][-1], result._m)
            return result
        attrs, meta = cached
        i = self._n if self._n >= 0 else session.tape.enter(self)
        return append_entry(session, (op, i, attrs), meta)

    TOTAL_RECORDERS[getattr(np, name)] = total
    return method


def _inplace(ufunc: Any) -> Callable[[Any, Any], Any]:
    return lambda self, other: self._s.writer.inplace(self, ufunc, other)


_INT = KIND_CODE[int]
_META_CACHES: list[dict] = []
_MATMUL = OP_ID["matmul"]
_matmul_metas: dict[tuple[int, int], int] = {}
_META_CACHES.append(_matmul_metas)

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


def adopt_ufunc(ufunc: Any) -> bool:
    """Record calls of `ufunc` from now on, if it is one of SciPy's in the op table; return whether it is."""
    op = register_scipy_ufunc(ufunc)
    if op is None:
        return False
    register_op(op)
    UFUNC_RECORDERS[ufunc] = _unary(op.name, ufunc) if ufunc.nin == 1 else _binary_call(ufunc)
    return True


def _install_operators() -> None:
    UFUNC_RECORDERS.clear()  # a failed import may have left entries
    ufunc: Any
    for name, ufunc in {**_BINARY, **_COMPARE}.items():
        _set_method(Lazy, f"__{name}__", _binary(ufunc.__name__, OPERATORS[ufunc], False))
        if name in _BINARY:
            _set_method(Lazy, f"__r{name}__", _binary(ufunc.__name__, OPERATORS[ufunc], True))
            _set_method(LazyArray, f"__i{name}__", _inplace(ufunc))
    for ufunc in (*_BINARY.values(), *_COMPARE.values(), *_MORE_BINARY):
        UFUNC_RECORDERS[ufunc] = _binary_call(ufunc)
    for name, ufunc in _UNARY.items():
        _set_method(Lazy, f"__{name}__", _unary(ufunc.__name__, OPERATORS[ufunc]))
    for ufunc in (*_UNARY.values(), *_MORE_UNARY):
        if ufunc.__name__ in OP_ID:
            UFUNC_RECORDERS[ufunc] = _unary(ufunc.__name__, ufunc)
    for op in all_ops():  # ops that the code generator can emit need nothing else
        for ufunc in op.numpy if op.kind is Kind.CELL and op.emit else ():
            if isinstance(ufunc, np.ufunc) and ufunc.nin < 3 and ufunc not in UFUNC_RECORDERS:
                UFUNC_RECORDERS[ufunc] = _unary(op.name, ufunc) if ufunc.nin == 1 else _binary_call(ufunc)
    UFUNC_RECORDERS[np.power] = _power_call(UFUNC_RECORDERS[np.power])
    for name in ("sum", "mean", "min", "max", "any", "all", "prod"):
        _set_method(LazyArray, name, _reduction(name))
    _set_method(LazyArray, "__ipow__", _inplace(np.power))
    _set_method(LazyArray, "__imatmul__", _inplace(np.matmul))
    method: Any
    for name, method in {"pow": _power, "rpow": _rpower, "matmul": _matmul, "rmatmul": _rmatmul}.items():
        _set_method(Lazy, f"__{name}__", method)


def _set_method(cls: type, name: str, method: Callable[..., Any]) -> None:
    """Set `method` as method `name` of a class; bound methods are recognised by their names."""
    method.__name__ = method.__qualname__ = name
    setattr(cls, name, method)


def _power_call(general: Callable[..., Any]) -> Callable[..., Any]:
    def record(x: Any, y: Any) -> Any:
        if not is_pairwise(x, y):
            return (x if type(x) in LAZY else y)._s.boundary.eager(np.power, (x, y), {})
        proxy = record_constant_power(x, y)
        return general(x, y) if proxy is None else proxy

    return record


def _power(self: Any, exponent: Any, modulo: Any = None) -> Any:
    if modulo is not None:
        return self._s.boundary.eager(pow, (self, exponent, modulo), {})
    return self._s.recorder.power(self, exponent)


def _rpower(self: Any, base: Any) -> Any:
    return self._s.dispatch.function(operator.pow, (base, self), {})


def _matmul(self: Any, other: Any) -> Any:
    session = self._s
    if type(other) is not LazyArray or type(self) is not LazyArray or other._s is not session:
        return session.recorder.matmul(self, other)
    meta = _matmul_metas.get((self._m, other._m))
    if meta is None:
        result = session.recorder.matmul(self, other)
        if type(result) in LAZY and result._v is None and session.tape.ops[result._n][0] == _MATMUL:
            _matmul_metas[self._m, other._m] = result._m
        return result
    i = self._n if self._n >= 0 else session.tape.enter(self)
    j = other._n if other._n >= 0 else session.tape.enter(other)
    return append_entry(session, (_MATMUL, i, j), meta)


def _rmatmul(self: Any, other: Any) -> Any:
    return self._s.recorder.matmul(other, self)


_install_operators()


def clear_operator_caches() -> None:
    """Empty the caches of the fast paths, whose meta ids are invalid after `tape.forget`."""
    for metas in _META_CACHES:
        metas.clear()


hide_module(__name__, hide_function)
