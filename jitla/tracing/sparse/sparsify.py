"""A matrix that is mostly zero: compressed rows for products, an array for everything else.

Positions that are not stored hold 0.0, not -0.0. They are left out of products if all factors are
finite and so small that no sum can overflow, for then NumPy says nothing and adds zeros; and element by
element with numbers if 0.0 gives 0.0, which is tried out.
"""


from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from jitla.errors import TraceError
from jitla.process.loading import load
from jitla.tracing.frames import call_at, place_of, user_frame
from jitla.tracing.lazy import LAZY, LazyArray
from jitla.tracing.sparse.products import recorded
from jitla.tracing.sparse.zero_skipping import (
    Factor,
    Rows,
    factors,
    greatest,
    has_loops,
    multiplied,
    of_both,
    pays,
)

PRODUCTS = frozenset({operator.matmul, np.matmul, np.dot})
_CELLS: dict[Any, np.ufunc] = {
    operator.add: np.add, operator.sub: np.subtract, operator.mul: np.multiply,
    operator.truediv: np.true_divide, operator.floordiv: np.floor_divide, operator.mod: np.remainder,
    operator.pow: np.power, operator.lt: np.less, operator.le: np.less_equal, operator.gt: np.greater,
    operator.ge: np.greater_equal, operator.eq: np.equal, operator.ne: np.not_equal,
    operator.neg: np.negative, operator.pos: np.positive, operator.abs: np.absolute,
    abs: np.absolute,
}
_NUMBERS = (int, float, np.number, np.bool_)


class Sparsified:
    """Stands for an array; `rows` holds its elements that are not 0.0, until the array is written to.

    One that is `kept` is read-only. Of others the array is made when it is asked for, and what asked
    may write to it: from then on there are no rows.
    """

    __slots__ = ("_rows", "_array", "_kept", "_greatest", "__weakref__")
    __array_priority__ = 1e5
    ndim = 2

    def __init__(self, rows: Rows, array: np.ndarray | None = None) -> None:
        self._rows = rows
        self._array = array
        self._kept = array is not None
        self._greatest: float | None = None

    @property
    def __class__(self) -> type:
        return np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return tuple(self._rows.shape if self._array is None else self._array.shape)

    @property
    def dtype(self) -> np.dtype:
        """Dtype of the array."""
        found: np.dtype = self._rows.dtype if self._array is None else self._array.dtype
        return found

    @property
    def T(self) -> Any:
        """The transposed matrix."""
        if not self._kept or self._array is None:
            return array_of(self).T
        return Sparsified(self._rows.T, self._array.T)

    def dot(self, other: Any) -> Any:
        """Return the product with `other`."""
        return _operated(np.dot, self, other)

    def __getattr__(self, name: str) -> Any:
        return getattr(array_of(self), name)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(array_of(self), dtype, copy=copy)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if method == "__call__" and not options:
            return _operated(ufunc, *inputs)
        return _called(getattr(ufunc, method), inputs, options)

    def __array_function__(self, function: Any, types: Any, args: tuple, options: dict) -> Any:
        if function is np.dot and len(args) == 2 and not options:
            return _operated(function, *args)
        return _called(function, args, options)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return array_of(self).__reduce_ex__(protocol)


def array_of(x: Sparsified) -> np.ndarray:
    """Return the array that `x` stands for."""
    if x._array is None:
        x._array = _filled(x._rows)
        x._rows = None
    return x._array


def _filled(rows: Rows) -> np.ndarray:
    """Return the array of what is stored; zeros keep their signs."""
    if rows.format == "csc":
        return _filled(rows.T).T
    found = np.zeros(rows.shape, rows.dtype)
    found[np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr)), rows.indices] = rows.data
    return found


# --------------------------------------------------------------------------- outside of sessions


def _operated(function: Any, *operands: Any) -> Any:
    """Do an operation: on what is stored if that is the same and pays, else on arrays."""
    for each in operands:
        if type(each) in LAZY:
            return analysed(each._s, function, operands, {})
    if function in PRODUCTS and len(operands) == 2:
        found = _product(*operands)
    else:
        ufunc = function if type(function) is np.ufunc else _CELLS.get(function)
        found = NotImplemented if ufunc is None else _cells(ufunc, operands)
    return _called(function, operands, {}) if found is NotImplemented else found


def _called(function: Any, args: tuple, options: dict[str, Any]) -> Any:
    """Call `function` with arrays, as if from the user's line."""
    place = place_of(user_frame())
    return call_at(place, function, _arrays(args), {k: _arrays(v) for k, v in options.items()})


def _arrays(value: Any) -> Any:
    """Put arrays in place of what stands for them, in lists and tuples too."""
    kind = type(value)
    if kind is Sparsified:
        return array_of(value)
    if kind in (list, tuple) and any(type(v) in (Sparsified, list, tuple) for v in value):
        return kind(map(_arrays, value))
    return value


# --------------------------------------------------------------------------- without looking at zeros


def _product(x: Any, y: Any) -> Any:
    """Multiply what is stored; NotImplemented where that is slower, or not sure to be the same."""
    if type(x) is type(y):
        return _of_both(x, y)
    left = type(x) is Sparsified
    pair = _factors(x, y, traced=False)
    return NotImplemented if pair is None else multiplied(*pair, left)


def _factors(x: Any, y: Any, traced: bool) -> tuple[Rows, np.ndarray] | None:
    """Return rows and array to be multiplied, None if zeros cannot be left out."""
    left = type(x) is Sparsified
    given = _factor(x if left else y)
    return None if given is None else factors(given, y if left else x, left, traced)


def _factor(x: Sparsified) -> Factor | None:
    if x._rows is None:
        return None
    if x._greatest is None:
        x._greatest = greatest(x._rows.data)
    return x._rows, x._greatest


def _of_both(x: Sparsified, y: Sparsified) -> Any:
    """Multiply what is stored on both sides; the result is an array if it is not mostly zero."""
    a, b = _factor(x), _factor(y)
    rows = None if a is None or b is None else of_both(a, b)
    if rows is None:
        return NotImplemented
    found = Sparsified(rows)
    return found if pays(rows.shape[0] * rows.shape[1], rows.nnz, 1) else array_of(found)



def _cells(ufunc: np.ufunc, operands: tuple[Any, ...]) -> Any:
    """Do `ufunc` to what is stored, the other operands being numbers, if it makes 0.0 of 0.0 silently."""
    at = [i for i, each in enumerate(operands) if type(each) is Sparsified]
    if len(at) != 1 or ufunc.nout != 1 or ufunc.nin != len(operands) or operands[at[0]]._rows is None:
        return NotImplemented
    if any(not isinstance(v, _NUMBERS) for i, v in enumerate(operands) if i != at[0]):
        return NotImplemented
    rows = operands[at[0]]._rows
    try:
        with np.errstate(all="raise"):
            tried = ufunc(*_instead(operands, at[0], np.zeros(1, rows.dtype)))
            # What warns does so for the array, whose line it names.
            data = ufunc(*_instead(operands, at[0], rows.data))
    except (FloatingPointError, OverflowError):
        return NotImplemented
    if tried.dtype.kind not in "bf" or any(tried.tobytes()):
        return NotImplemented
    return Sparsified(type(rows)((data, rows.indices, rows.indptr), shape=rows.shape))


def _instead(operands: tuple[Any, ...], at: int, value: Any) -> tuple[Any, ...]:
    return (*operands[:at], value, *operands[at + 1:])


# --------------------------------------------------------------------------- in a session


def analysed(session: Any, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Do an operation with an operand that is mostly zero; NotImplemented where none is."""
    if not any(type(a) is Sparsified for a in args):
        return NotImplemented
    if kwargs or not (function in PRODUCTS or function in _CELLS or type(function) is np.ufunc):
        return NotImplemented
    if function in PRODUCTS and len(args) == 2:
        found = _traced_product(session, args)
    elif any(type(a) in LAZY for a in args):
        found = NotImplemented
    else:
        ufunc = function if type(function) is np.ufunc else _CELLS[function]
        found = _cells(ufunc, args)
    if found is NotImplemented:
        return function(*(session.argument(array_of(a)) if type(a) is Sparsified else a for a in args))
    return found


def _traced_product(session: Any, args: tuple[Any, ...]) -> Any:
    """Record a product of what is stored: the other factor is computed, for it has to be finite."""
    if session.site.bitwise:
        return NotImplemented
    x, y = args
    if type(x) is LazyArray:
        x = session.value(x)
    if type(y) is LazyArray:
        y = session.value(y)
    if type(x) is type(y):
        return _of_both(x, y)
    pair = _factors(x, y, traced=True)
    if pair is None:
        return NotImplemented
    left, (rows, other) = type(x) is Sparsified, pair
    if other is (y if left else x) and has_loops(other, left):
        found = recorded(
            session, operator.matmul, (rows if left else rows.T, session.argument(other)), {})
        if found is not NotImplemented:
            return found
    return session.result(multiplied(rows, other, left), (), ())


# --------------------------------------------------------------------------- operators


def _operator(function: Callable[..., Any], reflected: bool = False) -> Callable[..., Any]:
    def method(self: Sparsified, *others: Any) -> Any:
        return _operated(function, *others, self) if reflected else _operated(function, self, *others)

    return method


def _install() -> None:
    for name in ("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow"):
        function = getattr(operator, name)
        setattr(Sparsified, f"__{name}__", _operator(function))
        setattr(Sparsified, f"__r{name}__", _operator(function, True))
        setattr(Sparsified, f"__i{name}__", _operator(getattr(operator, f"i{name}")))
    for name in ("lt", "le", "gt", "ge", "eq", "ne", "neg", "pos", "abs", "getitem", "setitem",
                 "contains"):
        setattr(Sparsified, f"__{name}__", _operator(getattr(operator, name)))
    asked: dict[str, Callable[..., Any]] = {
        "bool": bool, "len": len, "iter": iter, "repr": repr, "str": str, "hash": hash, "divmod": divmod,
        "float": float, "int": int, "complex": complex,
    }
    for name, function in asked.items():
        setattr(Sparsified, f"__{name}__", _operator(function))


_install()


_BITS = {np.dtype(np.float32): np.int32, np.dtype(np.float64): np.int64}
SMALL = 1 << 16  # elements: a product with fewer takes as long as deciding how to do it
NARROW = 1 << 31  # elements that indices of four bytes can number


def sparsify(x: Any) -> Any:
    """Return what stands for a copy of `x` if a product with a vector is faster without its zeros."""
    if type(x) is Sparsified:
        return x
    if not isinstance(x, np.ndarray):
        raise TraceError(f"sparsify needs an ndarray, not {type(x).__name__}")
    if type(x) is not np.ndarray or x.ndim != 2 or x.dtype not in _BITS or x.size < SMALL:
        return x
    if x.flags.f_contiguous:
        found = _sparse_rows(x.T)
        return x if found is None else found.T
    found = _sparse_rows(x)
    return x if found is None else found


def _sparse_rows(x: np.ndarray) -> Sparsified | None:
    """Return what stands for a copy of `x`, None if too much is other than 0.0 or not finite."""
    bits = x.view(_BITS[x.dtype])  # -0.0 is stored
    if not pays(x.size, int(np.count_nonzero(bits)), 1, loops=True):
        return None
    at = np.nonzero(bits)
    data = x[at]
    if not np.isfinite(data).all():
        return None
    if x.size < NARROW:  # such indices are read faster
        at = tuple(each.astype(np.int32) for each in at)
    rows = load("scipy.sparse").csr_array((data, at), shape=x.shape)
    copy = np.zeros(x.shape, x.dtype)  # pages without elements take no memory
    copy[at] = data
    copy.flags.writeable = False
    return Sparsified(rows, copy.view())  # a view of read-only memory stays read-only
