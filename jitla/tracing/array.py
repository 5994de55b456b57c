"""The proxies user code holds instead of arrays and NumPy scalars.

Knows: the states of a proxy, which attributes need memory. Must not know: how a block is closed,
compiled or run (the session is asked). Receives entries and values; returns proxies.

A proxy is in one of three states: *pending* (``_n >= 0``: entry of the open block), *in memory*
(``_n < 0`` and ``_v`` set) or a *ghost* (``_n < 0``, ``_v`` None, ``_r`` a recipe).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from jitla.tracing.matching import match_like_arrays
from jitla.tracing.signature import LAYOUT_ID, LAYOUTS, METAS, layout_id
from jitla.tracing.tape import KIND_CODE, SCALAR

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
