"""Recorded NumPy functions: norm, einsum, tensordot, cumsum, diagonals, stack, pad, roll; no dot."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from jitla.tracing.gather import record_pad
from jitla.tracing.lazy import LAZY, LazyArray
from jitla.tracing.tape import OP_ID

Session = Any  # the session that the arguments belong to
_NONE: Any = np._NoValue  # what NumPy's signatures use for "not given"
_DIAGONAL, _RAVEL = OP_ID["diagonal"], OP_ID["ravel"]
MAX_ROLL_SHIFT = 8  # elements; there is a plan for every shift
MAX_EINSUM_OPERANDS = 6  # operands of an einsum that is recorded
_LABELS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


@lru_cache(maxsize=1)
def _optimized_einsum_owns_memory() -> bool:
    """Return whether NumPy's optimised einsum owns the memory of its result; older versions return a view.

    Evaluated lazily: a product makes OpenBLAS allocate buffers, and abort the process if it cannot.
    """
    square = np.ones((2, 2))
    return bool(np.einsum("ij,ik->kj", square, square, optimize=True).flags.owndata)


def axes_of(axis: Any, ndim: int) -> tuple[int, ...] | None:
    """Return the normalised axes of `axis`, sorted; None if NumPy refuses it."""
    if axis is None:
        return tuple(range(ndim))
    axes = axis if type(axis) is tuple else (axis,)
    if not axes or any(type(i) is not int or not -ndim <= i < ndim for i in axes):
        return None
    normal = tuple(sorted(i % ndim for i in axes))
    return normal if len(set(normal)) == len(normal) else None


def float_array(session: Session, x: Any) -> Any:
    """Return the proxy of an array of floats; None for anything else."""
    array = session.recorder.operand(x)
    return array if type(array) is LazyArray and array.dtype.kind == "f" and array.ndim else None


def _norm(session: Session, x: Any, ord: Any = None, axis: Any = None, keepdims: Any = False) -> Any:
    array = float_array(session, x)
    if array is None or type(keepdims) is not bool or type(ord) not in (type(None), int, float, str):
        return NotImplemented
    axes = None if axis is None else axes_of(axis, array.ndim)
    if axis is not None and axes is None:
        return NotImplemented
    if axes is None and keepdims:
        return NotImplemented  # NumPy's result is a view of a scalar
    axis_count = array.ndim if axes is None else len(axes)
    if ord == "fro" and axis_count == 2 or ord == 2 and axis_count == 1:
        ord = None
    if ord not in (None, 1, math.inf) or ord is not None and (axis_count != 1 or not array.size):
        return NotImplemented
    attrs = (("axis", axes), ("keepdims", keepdims), ("order", None if ord is None else float(ord)))
    return session.recorder.try_record("norm", (array,), attrs)


def einsum(session: Session, *args: Any, out: Any = None, optimize: Any = False, **options: Any) -> Any:
    """Record sums of products of floats over labelled axes."""
    if out is not None or options or not args or type(args[0]) is not str:
        return NotImplemented
    arrays = [float_array(session, x) for x in args[1:]]
    parsed = parse_subscripts(args[0])
    if parsed is None or any(a is None for a in arrays) or not 0 < len(arrays) <= MAX_EINSUM_OPERANDS:
        return NotImplemented
    if len({a.dtype for a in arrays}) > 1 or optimize is not False and (
            len(arrays) > 2 or not _optimized_einsum_owns_memory()):
        return NotImplemented
    labels, result = parsed
    if len(arrays) == 1 and set(labels[0]) == set(result) and len(labels) == 1:
        if len(set(labels[0])) != len(labels[0]) or len(labels[0]) != arrays[0].ndim:
            return NotImplemented
        return session.reader.view(arrays[0], "transpose", (tuple(map(labels[0].index, result)),))
    return session.recorder.try_record(
        "einsum", tuple(arrays), (("subscripts", f"{','.join(labels)}->{result}"),))


@lru_cache(maxsize=256)
def parse_subscripts(subscripts: str) -> tuple[tuple[str, ...], str] | None:
    """Return the labels of operands and result of an einsum; None for an ellipsis or invalid subscripts."""
    text = subscripts.replace(" ", "")
    inputs, arrow, result = text.partition("->")
    labels = tuple(inputs.split(","))
    if not _LABELS.issuperset("".join(labels) + result):
        return None
    if not arrow:
        all_labels = "".join(labels)
        result = "".join(sorted(c for c in set(all_labels) if all_labels.count(c) == 1))
    if len(set(result)) < len(result) or not set(result) <= set("".join(labels)):
        return None
    return labels, result


def _scan(session: Session, name: str, a: Any, axis: Any, dtype: Any, out: Any) -> Any:
    array = session.recorder.operand(a)
    if dtype is not None or out is not None or type(array) is not LazyArray or not array.ndim:
        return NotImplemented
    if axis is not None and (type(axis) is not int or not -array.ndim <= axis < array.ndim):
        return NotImplemented
    if array.dtype.itemsize < 8 and array.dtype.kind in "biu" and array._v is not None \
            and 0 in array._v.strides:
        return NotImplemented  # it is cast: the copy of a repeated axis has another layout than the sums
    normal = axis if axis is None else axis % array.ndim
    if name == "cumsum" and normal == 0 and array.ndim > 1 and (
            array._v is not None or array.size >= session.site.thresholds.min_column_scan_elements):
        result = session.site.run_index_loop("running", array.size, session.closer.value(array))
        if result is not None:
            return session.boundary.wrap(result)
    return session.recorder.try_record(name, (array,), (("axis", normal),))


def _cumsum(session: Session, a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    return _scan(session, "cumsum", a, axis, dtype, out)


def _cumprod(session: Session, a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    return _scan(session, "cumprod", a, axis, dtype, out)


def _expand_dims(session: Session, a: Any, axis: Any) -> Any:
    array = session.recorder.operand(a)
    if type(array) is not LazyArray:
        return NotImplemented
    ndim = array.ndim + (len(axis) if type(axis) is tuple else 1)
    axes = axes_of(axis, ndim)
    if axis is None or axes is None:
        return NotImplemented
    return array[tuple(None if i in axes else slice(None) for i in range(ndim))]


def _ptp(session: Session, a: Any, axis: Any = None, out: Any = None, keepdims: Any = _NONE) -> Any:
    array = session.recorder.operand(a)
    if out is not None or type(array) is not LazyArray or array.dtype.kind not in "iuf" or not array.size:
        return NotImplemented
    axes = axes_of(axis, array.ndim)
    if axes is None or len(axes) == array.ndim and keepdims is not True and array.dtype.kind != "f":
        return NotImplemented  # NumPy's scalar difference wraps around without a warning, as an array's
    options = {} if keepdims is _NONE else {"keepdims": keepdims}
    return np.subtract(np.max(array, axis=axis, **options), np.min(array, axis=axis, **options))


def _diff(session: Session, a: Any, n: Any = 1, axis: Any = -1, prepend: Any = _NONE,
          append: Any = _NONE) -> Any:
    array = session.recorder.operand(a)
    is_plain = type(n) is int and n == 1 and prepend is _NONE and append is _NONE and type(axis) is int
    if not is_plain or type(array) is not LazyArray or array.dtype.kind not in "iufc" or \
            not -array.ndim <= axis < array.ndim:
        return NotImplemented
    before = (slice(None),) * (axis % array.ndim)
    return array[(*before, slice(1, None))] - array[(*before, slice(None, -1))]


def _round(session: Session, a: Any, decimals: Any = 0, out: Any = None) -> Any:
    array = float_array(session, a)
    if array is None or out is not None or type(decimals) is not int:
        return NotImplemented
    if decimals == 0:
        return np.rint(array)
    if abs(decimals) > 8 or array.ndim > 1:
        return NotImplemented  # the scale is inexact, or the layout is not that of a ufunc's result
    scale = 10.0 ** abs(decimals)
    if decimals > 0:
        return np.rint(array * scale) / scale
    return np.rint(array / scale) * scale


def _swapaxes(session: Session, a: Any, axis1: Any, axis2: Any) -> Any:
    array = session.recorder.operand(a)
    if type(array) is not LazyArray or any(
            type(i) is not int or not -array.ndim <= i < array.ndim for i in (axis1, axis2)):
        return NotImplemented
    order = list(range(array.ndim))
    order[axis1], order[axis2] = order[axis2], order[axis1]
    return session.reader.view(array, "transpose", (tuple(order),))


def _moveaxis(session: Session, a: Any, source: Any, destination: Any) -> Any:
    array = session.recorder.operand(a)
    if type(array) is not LazyArray or any(
            type(i) is not int or not -array.ndim <= i < array.ndim for i in (source, destination)):
        return NotImplemented
    order = [i for i in range(array.ndim) if i != source % array.ndim]
    order.insert(destination % array.ndim, source % array.ndim)
    return session.reader.view(array, "transpose", (tuple(order),))


def _inner(session: Session, a: Any, b: Any, /) -> Any:
    x, y = float_array(session, a), float_array(session, b)
    if x is None or y is None or x.ndim != 1 or y.ndim != 1:
        return NotImplemented
    return session.recorder.record_product("dot", x, y)


def _ravel(session: Session, a: Any, order: Any = "C") -> Any:
    array = session.recorder.operand(a)
    if type(array) is not LazyArray or not array.ndim or type(order) is not str or order != "C":
        return NotImplemented
    return session.reader.view(array, "ravel", (), _RAVEL)


def _outer(session: Session, a: Any, b: Any, out: Any = None) -> Any:
    x, y = session.recorder.operand(a), session.recorder.operand(b)
    if out is not None or type(x) is not LazyArray or type(y) is not LazyArray or x.ndim != 1 or y.ndim != 1:
        return NotImplemented
    return session.recorder.try_record("multiply", (x[:, None], y[None, :]))


def _diagonal_operand(session: Session, a: Any, offset: Any, axis1: Any, axis2: Any) -> Any:
    """Return the proxy of a matrix if its main diagonal is requested; None otherwise."""
    array = session.recorder.operand(a)
    plain = all(type(i) is int for i in (offset, axis1, axis2)) and (offset, axis1, axis2) == (0, 0, 1)
    return array if plain and type(array) is LazyArray and array.ndim == 2 else None


def _trace(session: Session, a: Any, offset: Any = 0, axis1: Any = 0, axis2: Any = 1, dtype: Any = None,
           out: Any = None) -> Any:
    matrix = _diagonal_operand(session, a, offset, axis1, axis2)
    if matrix is None or dtype is not None or out is not None:
        return NotImplemented
    return session.recorder.try_record("trace", (matrix,))


def _diagonal(session: Session, a: Any, offset: Any = 0, axis1: Any = 0, axis2: Any = 1) -> Any:
    matrix = _diagonal_operand(session, a, offset, axis1, axis2)
    return NotImplemented if matrix is None else session.reader.view(matrix, "diagonal", (), _DIAGONAL)


def _diag(session: Session, v: Any, k: Any = 0) -> Any:
    array = session.recorder.operand(v)
    if type(array) is LazyArray and array.ndim == 1 and type(k) is int and k == 0:
        return session.recorder.try_record("diag", (array,))
    return _diagonal(session, v, k)


def _column_stack(session: Session, tup: Any) -> Any:
    """Record `column_stack`: vectors become columns."""
    arrays = _array_sequence(session, tup)
    if arrays is None or any(a.ndim > 2 for a in arrays):
        return NotImplemented
    if all(a.ndim == 1 for a in arrays):
        return session.recorder.try_record("stack", tuple(arrays), (("axis", 1),))
    columns = tuple([a[:, None] if a.ndim == 1 else a for a in arrays])
    return session.recorder.try_record("concatenate", columns, (("axis", 1),))


def _dstack(session: Session, tup: Any) -> Any:
    """Record `dstack`: vectors become rows of one layer, matrices one layer."""
    arrays = _array_sequence(session, tup)
    if arrays is None:
        return NotImplemented
    layers = tuple([a[None, :, None] if a.ndim == 1 else a[:, :, None] if a.ndim == 2 else a for a in arrays])
    return session.recorder.try_record("concatenate", layers, (("axis", 2),))


def _triangle(upper: bool) -> Callable[..., Any]:
    """Return the handler of `triu` or `tril`: NumPy's selection of zeros by a mask."""
    def handler(session: Session, m: Any, k: Any = 0) -> Any:
        array = session.recorder.operand(m)
        if type(array) is not LazyArray or array.ndim < 2 or type(k) is not int:
            return NotImplemented
        rows, columns = array.shape[-2:]
        mask, zero = np.tri(rows, columns, k - upper, bool), np.zeros(1, array.dtype)
        return np.where(mask, zero, array) if upper else np.where(mask, array, zero)
    return handler


def _concatenation(across: int) -> Callable[..., Any]:
    """Return the handler of `hstack` (`across` 1) or `vstack` (0)."""
    def handler(session: Session, tup: Any, *, dtype: Any = None, casting: Any = "same_kind") -> Any:
        arrays = _array_sequence(session, tup)
        if arrays is None or dtype is not None or casting != "same_kind":
            return NotImplemented
        if across == 0:
            arrays = [a[None] if a.ndim == 1 else a for a in arrays]
        axis = across if arrays[0].ndim > 1 else 0
        return session.recorder.try_record("concatenate", tuple(arrays), (("axis", axis),))
    return handler


def _stack(session: Session, arrays: Any, axis: Any = 0, out: Any = None, *, dtype: Any = None,
           casting: Any = "same_kind") -> Any:
    operands = _array_sequence(session, arrays)
    if operands is None or out is not None or dtype is not None or casting != "same_kind":
        return NotImplemented
    ndim = operands[0].ndim + 1
    if type(axis) is not int or not -ndim <= axis < ndim:
        return NotImplemented
    return session.recorder.try_record("stack", tuple(operands), (("axis", axis % ndim),))


def _array_sequence(session: Session, sequence: Any) -> list[Any] | None:
    """Return the proxies of a list or tuple of arrays; None for anything else."""
    if type(sequence) not in (list, tuple) or not sequence or not any(type(a) in LAZY for a in sequence):
        return None
    arrays = [session.recorder.operand(a) for a in sequence]
    return arrays if all(type(a) is LazyArray and a.ndim for a in arrays) else None


def _pad(session: Session, array: Any, pad_width: Any, mode: Any = "constant", **options: Any) -> Any:
    """Record padding of an array; widths are one number, a pair, or a pair for every axis."""
    operand = session.recorder.operand(array)
    if type(operand) is not LazyArray or not operand.ndim or options:
        return NotImplemented
    if type(mode) is not str:
        return NotImplemented
    try:
        widths = np.broadcast_to(np.asarray(pad_width), (operand.ndim, 2))
    except ValueError:
        return NotImplemented
    if widths.dtype.kind != "i" or widths.min() < 0:
        return NotImplemented
    if mode != "constant":
        return record_pad(session, operand, widths, mode)
    return session.recorder.try_record("pad", (operand,), (("widths", tuple(map(tuple, widths.tolist()))),))


def _roll(session: Session, a: Any, shift: Any, axis: Any = None) -> Any:
    """Record an array rolled by a few elements, as in stencils."""
    array = session.recorder.operand(a)
    if type(array) is not LazyArray or not (shape := array.shape) or 0 in shape:
        return NotImplemented
    if array._v is not None and min(array._v.strides) <= 0:
        return NotImplemented  # a consumer of the copy would have another layout
    if axis is None:  # NumPy rolls the ravelled array and returns a reshaped view
        result = _roll(session, array, shift, 0) if len(shape) == 1 else NotImplemented
        return result if result is NotImplemented else result.reshape(shape)
    arguments = (shift, axis)
    if type(shift) is not int or type(axis) is not int:
        axes = axis if type(axis) is tuple else (axis,)
        shifts = shift if type(shift) is tuple else (shift,)
        if not all(isinstance(n, (int, np.integer)) for n in (*shifts, *axes)):
            return NotImplemented
        arguments = tuple(map(int, shifts)), tuple(map(int, axes))
    attrs = _roll_attributes(*arguments, len(shape))
    return NotImplemented if attrs is None else session.recorder.try_record("roll", (array,), attrs)


@lru_cache(maxsize=1024)
def _roll_attributes(shift: Any, axis: Any, ndim: int) -> tuple | None:
    """Return the shift of each axis as attributes; None if one is too large or NumPy refuses them."""
    amounts = shift if type(shift) is tuple else (shift,)
    axes = axis if type(axis) is tuple else (axis,)
    count = max(len(amounts), len(axes))
    amounts, axes = (t * count if len(t) == 1 else t for t in (amounts, axes))
    if len(amounts) != len(axes) or any(not -ndim <= i < ndim for i in axes):
        return None
    shifts = [0] * ndim
    for n, i in zip(amounts, axes, strict=True):
        shifts[i] += n
    return (("shifts", tuple(shifts)),) if max(map(abs, shifts)) <= MAX_ROLL_SHIFT else None


ARRAY_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.linalg.norm: _norm, np.einsum: einsum, np.cumsum: _cumsum, np.cumprod: _cumprod,
    np.expand_dims: _expand_dims, np.swapaxes: _swapaxes, np.moveaxis: _moveaxis,
    np.ptp: _ptp, np.diff: _diff, np.round: _round, np.around: _round,
    np.inner: _inner, np.outer: _outer, np.ravel: _ravel, np.trace: _trace, np.diagonal: _diagonal,
    np.diag: _diag,
    np.column_stack: _column_stack, np.pad: _pad, np.roll: _roll,
    np.hstack: _concatenation(1), np.vstack: _concatenation(0), np.stack: _stack, np.dstack: _dstack,
    np.tril: _triangle(upper=False), np.triu: _triangle(upper=True),
}


_WINDOWS = OP_ID["windows"]
_SLIDING = np.lib.stride_tricks.sliding_window_view


def _einsum(session: Session, *args: Any, optimize: Any = False, **options: Any) -> Any:
    if session.site.unroll_limit and optimize is False and len(args) == 3:
        result = _integer_einsum(session, *args, **options)
        if result is not NotImplemented:
            return result
    return einsum(session, *args, optimize=optimize, **options)


def _integer_einsum(session: Session, subscripts: Any, x: Any, y: Any, out: Any = None, dtype: Any = None,
                    **options: Any) -> Any:
    """Record an einsum of two arrays of integers, cast to `dtype` first."""
    arrays = [session.recorder.operand(a) for a in (x, y)]
    parsed = parse_subscripts(subscripts) if type(subscripts) is str else None
    if out is not None or options or parsed is None or len(parsed[0]) != 2 or not parsed[1] or any(
            type(a) is not LazyArray or a.dtype.kind != "i" for a in arrays):
        return NotImplemented
    labels, result = parsed
    if dtype is not None:
        accumulator = np.dtype(dtype)
        if accumulator.kind != "i" or any(a.dtype.itemsize >= accumulator.itemsize for a in arrays):
            return NotImplemented
        arrays = [a.astype(accumulator) for a in arrays]
    if any(type(a) is not LazyArray or len(axis_labels) != a.ndim or len(set(axis_labels)) < len(axis_labels)
           for a, axis_labels in zip(arrays, labels, strict=True)) or arrays[0].dtype != arrays[1].dtype:
        return NotImplemented
    return session.recorder.try_record(
        "einsum", tuple(arrays), (("subscripts", f"{','.join(labels)}->{result}"),))


def _tensordot(session: Session, a: Any, b: Any, axes: Any = 2) -> Any:
    """Record a product over several axes as NumPy's: reshaped to one product of matrices."""
    x, y = (session.recorder.operand(z) for z in (a, b))
    if type(x) is not LazyArray or type(y) is not LazyArray:
        return NotImplemented
    if type(axes) is int and 0 < axes <= min(x.ndim, y.ndim):
        axes = tuple(range(x.ndim - axes, x.ndim)), tuple(range(axes))
    if type(axes) not in (tuple, list) or len(axes) != 2:
        return NotImplemented
    pairs = [each if type(each) in (tuple, list) else (each,) for each in axes]
    over = [tuple(i % z.ndim for i in each if type(i) is int and -z.ndim <= i < z.ndim)
            for each, z in zip(pairs, (x, y), strict=True)]
    if not len(over[0]) == len(over[1]) == len(pairs[0]) == len(pairs[1]) == len(set(over[0])) == \
            len(set(over[1])) or [x.shape[i] for i in over[0]] != [y.shape[i] for i in over[1]]:
        return NotImplemented
    rows, columns = (tuple(i for i in range(z.ndim) if i not in o) for z, o in zip((x, y), over, strict=True))
    shape = tuple([x.shape[i] for i in rows] + [y.shape[i] for i in columns])
    if not shape or not x.size or not y.size or not over[0]:
        return NotImplemented
    inner = math.prod(x.shape[i] for i in over[0])
    left = np.transpose(x, (*rows, *over[0])).reshape((x.size // inner, inner))
    right = np.transpose(y, (*over[1], *columns)).reshape((inner, y.size // inner))
    return session.recorder.record_product("dot", left, right).reshape(shape)


def _windows(session: Session, x: Any, window_shape: Any, axis: Any = None, *, subok: Any = False,
             writeable: Any = False) -> Any:
    """Record sliding windows, of arrays in memory, too: a later reduction matches on the array below them."""
    array = session.recorder.operand(x)
    if type(array) is not LazyArray or subok or writeable:
        return NotImplemented
    sizes = window_shape if type(window_shape) is tuple else (window_shape,)
    axes = tuple(range(array.ndim)) if axis is None else axis if type(axis) is tuple else (axis,)
    if len(axes) != len(sizes) or any(type(n) is not int or n < 1 for n in sizes) or \
            any(type(a) is not int or not -array.ndim <= a < array.ndim for a in axes):
        return NotImplemented
    axes = tuple([a % array.ndim for a in axes])
    if len(set(axes)) < len(axes) or any(array.shape[a] < n for a, n in zip(axes, sizes, strict=True)):
        return NotImplemented
    return session.reader.view(array, _SLIDING, (sizes, axes), _WINDOWS, (("axis", axes), ("sizes", sizes)),
                        always=True)


def zeros(session: Session, shape: Any = None, dtype: Any = float, order: Any = "C", **options: Any) -> Any:
    """Record a new array of zeros, the start of an accumulation that is then recorded as a whole."""
    sizes = shape if type(shape) is tuple else (shape,)
    if options or type(order) is not str or order != "C" or any(type(n) is not int or n < 1 for n in sizes):
        return NotImplemented
    element_type = np.dtype(dtype) if isinstance(dtype, (type, np.dtype)) else None
    if element_type is None or element_type.kind not in "if" or not sizes:
        return NotImplemented
    return session.recorder.try_record_operands("full", (element_type.type(0),), (("shape", sizes),))


CONTRACTIONS: dict[Any, Callable[..., Any]] = {
    np.einsum: _einsum, np.tensordot: _tensordot, _SLIDING: _windows,
}
