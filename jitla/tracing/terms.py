"""What sums of products are written with; some of it is recorded only where terms stay together.

Knows: NumPy's signatures and what it computes. Must not know: how entries are recorded, any machine.
Receives a session and arguments as the user gave them; returns proxies, or NotImplemented.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from jitla.tracing.array import LazyArray
from jitla.tracing.spellings import einsum, explicit
from jitla.tracing.tape import OP_ID

Session = Any  # the session that the arguments belong to
_WINDOWS = OP_ID["windows"]
_SLIDING = np.lib.stride_tricks.sliding_window_view


def _einsum(session: Session, *args: Any, optimize: Any = False, **options: Any) -> Any:
    if session.site.unrolls and optimize is False and len(args) == 3:
        made = _integer_einsum(session, *args, **options)
        if made is not NotImplemented:
            return made
    return einsum(session, *args, optimize=optimize, **options)


def _integer_einsum(session: Session, subscripts: Any, x: Any, y: Any, out: Any = None, dtype: Any = None,
                    **options: Any) -> Any:
    """Record sums of products of two arrays of integers, which are cast before to `dtype`."""
    arrays = [session.operand(a) for a in (x, y)]
    given = explicit(subscripts) if type(subscripts) is str else None
    if out is not None or options or given is None or len(given[0]) != 2 or not given[1] or any(
            type(a) is not LazyArray or a.dtype.kind != "i" for a in arrays):
        return NotImplemented
    labels, result = given
    if dtype is not None:
        wanted = np.dtype(dtype)
        if wanted.kind != "i" or any(a.dtype.itemsize >= wanted.itemsize for a in arrays):
            return NotImplemented
        arrays = [a.astype(wanted) for a in arrays]
    if any(type(a) is not LazyArray or len(own) != a.ndim or len(set(own)) < len(own)
           for a, own in zip(arrays, labels, strict=True)) or arrays[0].dtype != arrays[1].dtype:
        return NotImplemented
    return session.traced("einsum", tuple(arrays), (("subscripts", f"{','.join(labels)}->{result}"),))


def _tensordot(session: Session, a: Any, b: Any, axes: Any = 2) -> Any:
    """Record a product over several axes as NumPy makes it: of two matrices."""
    x, y = (session.operand(z) for z in (a, b))
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
    return session.product("dot", left, right).reshape(shape)


def _windows(session: Session, x: Any, window_shape: Any, axis: Any = None, *, subok: Any = False,
             writeable: Any = False) -> Any:
    """Record windows along axes, of arrays in memory, too: what adds them up has to see what they are of."""
    array = session.operand(x)
    if type(array) is not LazyArray or subok or writeable:
        return NotImplemented
    sizes = window_shape if type(window_shape) is tuple else (window_shape,)
    along = tuple(range(array.ndim)) if axis is None else axis if type(axis) is tuple else (axis,)
    if len(along) != len(sizes) or any(type(n) is not int or n < 1 for n in sizes) or \
            any(type(a) is not int or not -array.ndim <= a < array.ndim for a in along):
        return NotImplemented
    along = tuple([a % array.ndim for a in along])
    if len(set(along)) < len(along) or any(array.shape[a] < n for a, n in zip(along, sizes, strict=True)):
        return NotImplemented
    return session.view(array, _SLIDING, (sizes, along), _WINDOWS, (("axis", along), ("sizes", sizes)),
                        always=True)


def zeros(session: Session, shape: Any = None, dtype: Any = float, order: Any = "C", **options: Any) -> Any:
    """Record a new array of zeros, which sums begin with whose terms stay together."""
    sizes = shape if type(shape) is tuple else (shape,)
    if options or type(order) is not str or order != "C" or any(type(n) is not int or n < 1 for n in sizes):
        return NotImplemented
    wanted = np.dtype(dtype) if isinstance(dtype, (type, np.dtype)) else None
    if wanted is None or wanted.kind not in "if" or not sizes:
        return NotImplemented
    return session.recorded("full", (wanted.type(0),), (("shape", sizes),))


TERMS: dict[Any, Callable[..., Any]] = {
    np.einsum: _einsum, np.tensordot: _tensordot, _SLIDING: _windows,
}
