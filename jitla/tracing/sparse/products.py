"""Products with sparse matrices, and products sampled at stored positions."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable
from functools import lru_cache
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import numpy as np

from jitla.profiling.call_classes import kinds
from jitla.tracing.lazy import LazyArray
from jitla.tracing.sparse import elementwise as entries
from jitla.tracing.sparse import elementwise as merging
from jitla.tracing.sparse.elementwise import (
    Entries,
    dense_operand,
    entries_of,
    indices_of,
    is_scalar,
    is_sparse,
    scaled,
    whole_entries,
)
from jitla.tracing.sparse.lazy_sparse import LARGE, RECORDERS, LazySparse, Pattern, Product, install
from jitla.tracing.sparse.zero_skipping import other_form

Session = Any  # the session that the arguments belong to


def sampled_product(session: Session, x: Any, y: Any, inverted: bool = False) -> Any:
    """Do ``x.multiply(y)`` with a dense `y`: coordinates, in the order in which `x` has its entries.

    If it is `inverted`, entries are multiplied by the reciprocals.
    """
    dense, given = dense_operand(session, y), whole_entries(session, x)
    if dense is None or given is None or given.values.dtype.kind not in "biufc":
        return NotImplemented
    if given.pattern.format == "coo":
        given = _as_rows(session, given)
    if given is None or 1 in given.pattern.shape or dense.size == 1:
        return NotImplemented
    found = at_positions(session, given.pattern, dense)
    if type(found) is not LazyArray:
        return NotImplemented
    flag = not given.pattern.axis and given.stay()
    values = np.multiply(given.values, np.divide(1, found) if inverted else found)
    if type(values) is not LazyArray:
        return NotImplemented
    return LazySparse(session, given.pattern.coordinates(flag), values)


def _as_rows(session: Session, given: Entries) -> Entries | None:
    """Return coordinates as the compressed rows that SciPy makes of them first."""
    if given.memory is not None:
        return whole_entries(session, given.memory.tocsr())
    pattern = given.pattern
    if pattern.starts is None or pattern.axis or not pattern.canonical:
        return None
    return Entries(pattern.compressed(), given.values, None, None)


def at_positions(session: Session, pattern: Pattern, dense: LazyArray) -> Any:
    """Return the elements of a dense operand, a line of it repeated, at the stored positions."""
    if (indices := indices_of(session, pattern)) is None:
        return NotImplemented
    starts, places = indices
    shape, turned = dense.shape, bool(pattern.axis)
    if shape == pattern.shape:
        return session.traced("sampled", (dense.T if turned else dense, starts, places))
    if shape not in ((pattern.shape[1],), (1, pattern.shape[1]), (pattern.shape[0], 1)):
        return NotImplemented
    across = shape[-1] == 1  # a column: an element for every row
    line = dense if dense.ndim == 1 else session.traced("reshape", (dense,), (("shape", (dense.size,)),))
    if across == turned:
        return session.traced("by_column", (line, places))
    return session.traced("by_row", (line, starts, places))


def multiplied(session: Session, x: Any, y: Any) -> Any:
    """Do ``x.multiply(y)`` with a number or a dense array."""
    return scaled(session, x, y) if is_scalar(y) else sampled_product(session, x, y)


def quotient(session: Session, x: Any, y: Any) -> Any:
    """Do ``x / y`` with a dense array, which SciPy multiplies by the reciprocals."""
    return sampled_product(session, x, y, inverted=True)


_FLOATS = frozenset({np.dtype(np.float32), np.dtype(np.float64)})
_AXES = {0: 0, -2: 0, 1: 1, -1: 1}

# -- sums ------------------------------------------------------------------------------------------


def total(session: Session, x: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    """Do ``x.sum(axis)``."""
    if dtype is not None or out is not None:
        return NotImplemented
    given = entries_of(session, x)
    if given is None:
        return NotImplemented
    if axis is None:
        return _sum_of_all(session, x, given)
    if type(axis) is not int or axis not in _AXES or given.values.dtype not in _FLOATS:
        return NotImplemented
    return _in_lines(session, given, _AXES[axis])


def _sum_of_all(session: Session, x: Any, given: Entries) -> Any:
    alone = given.memory is None and x._whole is None and not _is_seen(session, x)
    if alone and given.values.dtype in _FLOATS:
        x._summed = True  # whoever asks for more than the sum finds no duplicates
    elif not given.stay():
        return NotImplemented
    return given.values.sum()


def _is_seen(session: Session, x: LazySparse) -> bool:
    """Tell whether there is a pending view of `x`."""
    alive = [each() for each in session.stored]
    return any(each is not None and each._whole is x for each in alive)


def _in_lines(session: Session, given: Entries, axis: int, multiplied: bool = False) -> Any:
    """Add up along `axis`: within compressed lines, or across them; `multiplied`: as SciPy's products do."""
    pattern, values = given.pattern, given.values
    if pattern.starts is None:
        return NotImplemented
    if (indices := indices_of(session, pattern)) is None:
        return NotImplemented
    starts, places = indices
    within = axis != pattern.axis
    # Of coordinates SciPy makes products with ones.
    reduced = within and not multiplied and pattern.format != "coo"
    if session.site.bitwise and not reduced:
        return NotImplemented  # loops add up in another order
    if reduced:
        found = session.traced("csr_row_sums", (values, starts))
    else:
        ones = session.argument(np.ones(pattern.shape[axis], values.dtype))
        width = () if within else (("width", pattern.shape[1 - axis]),)
        name = "csr_vector" if within else "csr_transposed_vector"
        found = session.traced(name, (values, places, starts, ones), width)
    if type(found) is not LazyArray or pattern.is_array:
        return found
    return _as_matrix(session.value(found), axis, reduced)


def _as_matrix(sums: np.ndarray, axis: int, reduced: bool) -> np.matrix:
    """Return sums along `axis` as SciPy's matrices do; `reduced`: by NumPy, line by line."""
    if reduced:
        made: Any = sums.view(np.matrix)
        return (made.T if axis else made).sum(axis=())
    return sums.reshape((-1, 1) if axis else (1, -1)).view(np.matrix)


def mean(session: Session, x: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    """Do ``x.mean(axis)``: SciPy adds up entries times the reciprocal of how many elements there are."""
    given = whole_entries(session, x)
    if given is None or dtype is not None or out is not None or given.values.dtype.kind not in "f":
        return NotImplemented
    if axis is not None and (type(axis) is not int or axis not in _AXES):
        return NotImplemented
    shape = given.pattern.shape
    scale = 1.0 / (math.prod(shape) if axis is None else shape[_AXES[axis]])
    made = scaled(session, x, scale)
    if made is NotImplemented or axis is None:
        return made if made is NotImplemented else total(session, made)
    summed = entries_of(session, made)
    return NotImplemented if summed is None else _in_lines(session, summed, _AXES[axis], True)


# -- products --------------------------------------------------------------------------------------


def matmul(session: Session, x: Any, y: Any) -> Any:
    """Do ``x @ y``, one of them sparse."""
    if is_sparse(x):
        if is_sparse(y):
            return _product_of(session, x, y)
        if type(x) is LazySparse and type(x._whole) is Product and x._made is None and not x._seen:
            return _in_chain(session, x, y)
        return _times(session, whole_entries(session, x), y)
    if not is_sparse(y) or (dense := dense_operand(session, x)) is None:
        return NotImplemented
    given = whole_entries(session, y)
    if given is None:
        return NotImplemented
    turned = Entries(given.pattern.turned(), given.values, None, None)
    made = _times(session, turned, dense if dense.ndim == 1 else dense.T)
    return made.T if type(made) is LazyArray else NotImplemented


def _product_of(session: Session, x: Any, y: Any) -> Any:
    """Do ``x @ y``, both sparse: what comes next may be a product with the right one first."""
    left, right = whole_entries(session, x), whole_entries(session, y)
    if left is None or right is None or session.site.bitwise:
        return NotImplemented
    patterns = left.pattern, right.pattern
    if patterns[0].shape[1] != patterns[1].shape[0]:
        return NotImplemented
    dtype = left.values.dtype
    if any(p.starts is None or p.format == "coo" or p.narrowed for p in patterns) or dtype not in _FLOATS \
            or dtype != right.values.dtype or not _is_finite(left.values) or not _is_finite(right.values):
        return NotImplemented
    shape = patterns[0].shape[0], patterns[1].shape[1]
    both = Product(*(each._replace(memory=None) for each in (left, right)))
    return LazySparse(session, patterns[0].of_shape(shape), left.values, None, both)


def _in_chain(session: Session, x: LazySparse, y: Any) -> Any:
    """Do ``(a @ b) @ y`` as ``a @ (b @ y)``, once: a product that is used again is made.

    Where y is not finite they differ, so that it has to be in memory.
    """
    dense = dense_operand(session, y)
    if dense is None or session.value(dense) is None or not _is_finite(dense):
        return NotImplemented
    x._seen = "multiplied"
    right = _times(session, x._whole.right, y)
    return NotImplemented if right is NotImplemented else _times(session, x._whole.left, right)


def dot(session: Session, x: Any, y: Any) -> Any:
    """Do ``x.dot(y)``: with a number it is ``x * y``."""
    return scaled(session, x, y) if is_scalar(y) else matmul(session, x, y)


def _times(session: Session, given: Entries | None, y: Any) -> Any:
    dense = dense_operand(session, y)
    if given is None or dense is None or given.pattern.starts is None:
        return NotImplemented
    shape, pattern, values = dense.shape, given.pattern, given.values
    if len(shape) not in (1, 2) or shape[0] != pattern.shape[1]:
        return NotImplemented
    if values._m != dense._m and values.dtype is not dense.dtype or values.dtype not in _FLOATS:
        dtype = _common(values.dtype, dense.dtype)
        if dtype is None:
            return NotImplemented
        values, dense = (z if z.dtype == dtype else z.astype(dtype) for z in (values, dense))
    if session.site.bitwise and (pattern.axis or len(shape) == 1 or shape[1] == 1):
        return NotImplemented  # loops add up in another order
    rows = len(shape) > 1 and shape[1] > 1 and pattern.format == "coo"
    if rows and not _is_finite(dense):
        return NotImplemented  # of coordinates SciPy leaves out entries that are 0
    if len(shape) == 2 and shape[1] == 1:
        made = _product(session, given, values, dense.reshape(-1))
        return NotImplemented if made is NotImplemented else made.reshape(-1, 1)
    made = _product(session, given, values, dense)
    return made[...] if rows and type(made) is LazyArray else made  # SciPy returns a view


@lru_cache(maxsize=64)
def _common(a: np.dtype, b: np.dtype) -> np.dtype | None:
    """Return the dtype of a product, if there are loops for it."""
    dtype = np.result_type(a, b)
    return dtype if dtype in _FLOATS and a.kind == b.kind == "f" else None


def _is_finite(dense: LazyArray) -> bool:
    """Tell whether a matrix is in memory and finite; one whose sum overflows need not be found so."""
    with np.errstate(all="ignore"):
        return dense._v is not None and bool(np.isfinite(np.add.reduce(dense._v, axis=None)))


def _product(session: Session, given: Entries, values: Any, dense: Any) -> Any:
    pattern, axis = given.pattern, given.pattern.axis
    if (other := other_form(session, pattern, values, dense.ndim == 1)) is not None:
        values, places, starts, axis = other
    elif (indices := indices_of(session, pattern)) is None:
        return NotImplemented
    else:
        starts, places = indices
    operands = values, places, starts, dense
    if axis:
        name = "csr_transposed_vector" if dense.ndim == 1 else "csr_transposed_product"
        return session.traced(name, operands, (("width", pattern.shape[0]),))
    return session.traced("csr_vector" if dense.ndim == 1 else "csr_product", operands)


WORTH = LARGE

_OF_NUMBERS = frozenset({"floor", "ceil", "trunc", "sign"})  # NumPy does not ask the matrix for them
_CALLED = frozenset({BuiltinFunctionType, FunctionType, np.ufunc, type(np.sum), type})


def recorded(session: Session, function: Any, args: tuple, kwargs: dict) -> Any:
    """Record a call of `function`, if it is one of SciPy's that only stored positions matter for."""
    scipy = sys.modules.get("scipy.sparse")
    if scipy is None:
        return NotImplemented
    if type(function) is MethodType:
        if type(function.__self__) not in kinds(scipy):
            return NotImplemented
        function, args = function.__name__, (function.__self__, *args)
    elif type(function) not in _CALLED and type(function) is not str:
        return NotImplemented
    handler = _HANDLERS.get(function)
    if handler is None or not args or not _is_worth_it(args):
        return NotImplemented
    try:
        return handler(session, *args, **kwargs)
    except TypeError:
        return NotImplemented  # SciPy refuses it in its own words


def _is_worth_it(args: tuple) -> bool:
    """Tell whether a sparse matrix is among operands, and one of them is large or pending."""
    known = kinds(sys.modules["scipy.sparse"])
    sparse = large = False
    for x in args:
        kind = type(x)
        if kind is LazySparse:
            return True
        if kind in known:
            sparse, large = True, large or len(x.data) >= WORTH
        elif kind is LazyArray or kind is np.ndarray:
            large = large or x.size >= WORTH
    return sparse and large


def _multiply(session: Session, x: Any, y: Any) -> Any:
    """Do ``x * y``, which is the product of matrices for those that are no arrays."""
    if not is_sparse(x):
        x, y, turned = y, x, True
    else:
        turned = False
    if is_scalar(y):
        return entries.scaled(session, x, y)
    if is_sparse(y) and x.__class__.__name__.endswith("array"):
        return merging.merged(session, "multiply", x, y)
    if is_sparse(y):
        return NotImplemented
    if x.__class__.__name__.endswith("array"):
        return sampled_product(session, x, y)
    return matmul(session, y, x) if turned else matmul(session, x, y)


def _multiply_by_name(session: Session, x: Any, y: Any) -> Any:
    """Do ``np.multiply(x, y)``: with an array NumPy multiplies every element of it with the whole matrix."""
    single = all(is_sparse(each) or is_scalar(each) for each in (x, y))
    return _multiply(session, x, y) if single else NotImplemented


def _divide(session: Session, x: Any, y: Any) -> Any:
    """Do ``x / y``."""
    if not is_sparse(x) or is_sparse(y):
        return NotImplemented
    return entries.divided(session, x, y) if is_scalar(y) else quotient(session, x, y)


def _multiplied(session: Session, x: Any, y: Any) -> Any:
    """Do ``x.multiply(y)``."""
    return merging.merged(session, "multiply", x, y) if is_sparse(y) else multiplied(session, x, y)


def _merged(name: str) -> Callable[..., Any]:
    """Make what does an operation on two sparse matrices."""
    def handler(session: Session, x: Any, y: Any) -> Any:
        both = is_sparse(x) and is_sparse(y)
        return merging.merged(session, name, x, y) if both else NotImplemented

    return handler


def _extreme(name: str) -> Callable[..., Any]:
    """Make ``x.maximum(y)`` or ``x.minimum(y)``, with another sparse matrix or a number."""
    def handler(session: Session, x: Any, y: Any) -> Any:
        both = is_sparse(x) and is_sparse(y)
        return merging.merged(session, name, x, y) if both else entries.COMPARISONS[name](session, x, y)

    return handler


def _issparse(session: Session, x: Any) -> Any:
    """Do ``issparse(x)`` of a pending matrix."""
    return True if type(x) is LazySparse else NotImplemented


_METHODS: dict[Any, Callable[..., Any]] = {
    "multiply": _multiplied, "dot": dot, "sum": total, "mean": mean,
    "power": entries.power, "astype": entries.astype, "copy": entries.copied,
    "conjugate": entries.conjugate, "conj": entries.conjugate, "transpose": entries.transposed,
    "maximum": _extreme("maximum"), "minimum": _extreme("minimum"),
    **entries.UNARY_METHODS, **entries.CONVERSIONS,
}
_HANDLERS: dict[Any, Callable[..., Any]] = {
    **_METHODS,
    **{getattr(np, name): entries.UNARY_METHODS[name] for name in entries.UNARY if name not in _OF_NUMBERS},
    **{getattr(operator, name): entries.COMPARISONS[name] for name in ("ne", "lt", "gt", "le", "ge", "eq")},
    operator.add: _merged("add"), operator.sub: _merged("sub"), operator.mul: _multiply,
    np.multiply: _multiply_by_name, operator.matmul: matmul, operator.truediv: _divide,
    operator.neg: entries.negative, np.negative: entries.negative,
    abs: entries.absolute, operator.abs: entries.absolute, np.absolute: entries.absolute,
    operator.pow: entries.operator_power, round: entries.rounded,
    np.sum: total, np.mean: mean,
}

install(_METHODS)
RECORDERS[__name__] = recorded
