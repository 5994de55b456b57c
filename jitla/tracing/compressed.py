"""Calls of SciPy on sparse matrices that only stored positions matter for: which of them are recorded.

Knows: SciPy's methods, operators and functions by name, from which size on they are worth it.
Must not know: loops, plans, what an operation does to entries.
Receives a session, a function and arguments as the user gave them; returns proxies, or NotImplemented
where SciPy has to do it.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import numpy as np

from jitla.cold import kinds
from jitla.tracing import contracting, entries, merging, sampling
from jitla.tracing.array import LazyArray
from jitla.tracing.entries import is_scalar, is_sparse
from jitla.tracing.pattern import LARGE
from jitla.tracing.stored import RECORDERS, LazySparse, install

Session = Any  # the session that the arguments belong to
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
        return sampling.sampled_product(session, x, y)
    return contracting.matmul(session, y, x) if turned else contracting.matmul(session, x, y)


def _multiply_by_name(session: Session, x: Any, y: Any) -> Any:
    """Do ``np.multiply(x, y)``: with an array NumPy multiplies every element of it with the whole matrix."""
    single = all(is_sparse(each) or is_scalar(each) for each in (x, y))
    return _multiply(session, x, y) if single else NotImplemented


def _divide(session: Session, x: Any, y: Any) -> Any:
    """Do ``x / y``."""
    if not is_sparse(x) or is_sparse(y):
        return NotImplemented
    return entries.divided(session, x, y) if is_scalar(y) else sampling.quotient(session, x, y)


def _multiplied(session: Session, x: Any, y: Any) -> Any:
    """Do ``x.multiply(y)``."""
    return merging.merged(session, "multiply", x, y) if is_sparse(y) else sampling.multiplied(session, x, y)


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
    "multiply": _multiplied, "dot": contracting.dot, "sum": contracting.total, "mean": contracting.mean,
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
    np.multiply: _multiply_by_name, operator.matmul: contracting.matmul, operator.truediv: _divide,
    operator.neg: entries.negative, np.negative: entries.negative,
    abs: entries.absolute, operator.abs: entries.absolute, np.absolute: entries.absolute,
    operator.pow: entries.operator_power, round: entries.rounded,
    np.sum: contracting.total, np.mean: contracting.mean,
}

install(_METHODS)
RECORDERS[__name__] = recorded
