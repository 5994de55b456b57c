"""Entries of the tape done by NumPy, one after the other, as the user's code would have done them.

Knows: which NumPy call an entry was. Must not know: blocks' fates, warnings, sessions.
Receives entries with leaves and scalars; returns values, computed by whoever is handed the calls.
"""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Callable, Container, Mapping
from typing import Any

import numpy as np

from jitla.hops import by_numpy, lookup
from jitla.tracing.narrowing import stored, within
from jitla.tracing.tape import LEAF, OPS, SCALAR, Entry, split

#: In place of a value that nobody has any more.
LOST: Any = type("Lost", (), {})()

# Operators whose form on scalars and arrays differs from the ufunc.
OPERATORS = {
    np.add: operator.add, np.subtract: operator.sub, np.multiply: operator.mul,
    np.divide: operator.truediv, np.floor_divide: operator.floordiv, np.remainder: operator.mod,
    np.bitwise_and: operator.and_, np.bitwise_or: operator.or_, np.bitwise_xor: operator.xor,
    np.left_shift: operator.lshift, np.right_shift: operator.rshift, np.equal: operator.eq,
    np.not_equal: operator.ne, np.less: operator.lt, np.less_equal: operator.le,
    np.greater: operator.gt, np.greater_equal: operator.ge, np.negative: operator.neg,
    np.positive: operator.pos, np.absolute: operator.abs, np.invert: operator.invert,
}
# The address follows an array object's header.
_number_at, _HEADER = ctypes.c_size_t.from_address, object.__basicsize__
METHODS = frozenset({"sum", "prod", "min", "max", "any", "all", "mean", "var", "std", "cumsum", "cumprod"})

#: What is handed a call: the entry's index, the callable, its arguments.
Run = Callable[[int, Any, list[Any], dict[str, Any]], Any]


def enact(
    entries: list[Entry] | tuple[Entry, ...], leaves: list[Any], scalars: list[Any],
    wanted: Container[int], called: Mapping[int, Any], run: Run,
) -> dict[int, Any]:
    """Return the values of the entries in `wanted`, each from ``run(entry, callable, args, kwargs)``.

    `called` holds the NumPy callables that the user's code named; other entries are operators and
    methods.
    """
    values: dict[int, Any] = {}
    leaf, scalar = iter(leaves), iter(scalars)
    for i, entry in enumerate(entries):
        if entry[0] == LEAF or entry[0] == SCALAR:
            values[i] = next(leaf if entry[0] == LEAF else scalar)
            continue
        refs, attrs = split(entry)
        args = [values.get(r) if r >= 0 else next(scalar) for r in refs]
        if i in wanted:
            part = within(attrs)
            if part and args[0] is not LOST:
                values[i] = run(i, *stored(part, args[0], dict(attrs)["dtype"]))
                continue
            function, rest = spelled(OPS[entry[0]], args, called.get(i))
            values[i] = run(i, function, rest, dict(attrs))
    return values


def spelled(name: str, args: list[Any], called: Any) -> tuple[Any, list[Any]]:
    """Return how the user's code called operator `name`: the callable, and its arguments.

    The callable is C code or NumPy's, so that the caller's line is the one NumPy finds; None if an
    argument that it would be a method of is lost. `called` may stand for more than this entry, or for
    what made a value of an earlier block pending again.
    """
    meant = by_numpy(called) if called is not None else None
    if meant is None or meant.name != name:
        called = None
    if name in METHODS:
        return (called, args) if called is not None else (getattr(args[0], name, None), args[1:])
    if name == "cast":
        return getattr(type(args[0]), "astype", None), args
    op = lookup(name)
    if not op.numpy or not isinstance(op.numpy[0], np.ufunc):
        return (op.numpy[0] if name == "dot" else op.ref), args
    ufunc = op.numpy[0]
    if called is None and not any(isinstance(a, np.ndarray) for a in args):
        return OPERATORS.get(ufunc, ufunc), args
    return ufunc, args


def same_view(a: np.ndarray, b: np.ndarray) -> bool:
    """Say whether two arrays are the same elements in the same order."""
    return (
        a.shape == b.shape and a.strides == b.strides and a.dtype == b.dtype
        and address(a) == address(b)
    )


def address(array: np.ndarray) -> int:
    """Return where the array's first element lies: what NumPy says with a dictionary, thirty times faster."""
    return _number_at(id(array) + _HEADER).value
