"""Element-wise functions that users have compiled with Numba: what they compute, as entries of the op table.

Knows: how such a function is called, which of its loops serves. Must not know: instructions, tapes, hooks.
Receives a function and arguments; returns a proxy, or NotImplemented where the function has to be called.

The first call is the function's: what was read of it has to agree with its values.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from jitla.hops import Body, Compiled, NumpyBuilder, enter, lookup
from jitla.tracing.array import LAZY
from jitla.tracing.instructions import Reader, Unread
from jitla.tracing.rowwise import Elementwise, read, rows_of
from jitla.tracing.signature import METAS
from jitla.tracing.tape import enroll

SAMPLE = 1 << 14  # elements that are compared
# A function whose kernels raise flags so often is called: only that tells what it says of them.
MOST_ALARMS = 8
NEAR = {"d": 1e-9, "f": 1e-3}  # how far from each other approximations may be at most, relatively


class Met:
    """One function: the operator for the types that it was called with, or None; and why it is called."""

    __slots__ = ("loops", "operators", "why")

    def __init__(self) -> None:
        self.loops = -1
        self.operators: dict[tuple[Any, ...], str | None] = {}
        self.why = ""

    def keep(self, given: tuple[Any, ...], why: str) -> None:
        """Note that it is called for these types, and why."""
        self.operators[given], self.why = None, why


_KINDS = frozenset({"DUFunc", "GUFunc"})  # what `numba.vectorize` and `numba.guvectorize` make
_MET: WeakKeyDictionary[Any, Met] = WeakKeyDictionary()


def is_numba(function: Any) -> bool:
    """Say whether a user has compiled a function with Numba."""
    return type(function).__module__.startswith("numba.")


def through(session: Any, function: Any, args: tuple[Any, ...]) -> Any:
    """Record what a compiled element-wise function computes, or call it; NotImplemented: call it."""
    if type(function).__name__ not in _KINDS or len(args) != function.nin \
            or _is_of_rows(function) and not _of_rows(function, args):
        return NotImplemented
    given = tuple([METAS[x._m].dtype if type(x) in LAZY else x.dtype if type(x) is np.ndarray else type(x)
                   for x in args])
    met = _MET.get(function)
    if met is None:
        met = _MET[function] = Met()
    if met.loops != function.ntypes:  # which of them serves may have changed
        met.loops = function.ntypes
        met.operators.clear()
    if given not in met.operators:
        return _first(session, function, args, given, met)
    name = met.operators[given]
    if name is None:
        return NotImplemented
    made = lookup(name).ref
    if isinstance(made, Compiled) and made.alarms > MOST_ALARMS:
        met.keep(given, "it warns too often")
        return NotImplemented
    return session.traced(name, args)


def _is_of_rows(function: Any) -> bool:
    return type(function).__name__ == "GUFunc"


def _of_rows(function: Any, args: tuple[Any, ...]) -> bool:
    """Say whether operands that are rows have one shape, and the others are numbers."""
    try:
        rows = rows_of(function)
    except (Unread, AttributeError, ValueError, TypeError):  # of Numba's insides nothing is promised
        return False
    shapes = [METAS[x._m].shape if type(x) in LAZY else x.shape if type(x) is np.ndarray else ()
              for x in args]
    found = {shape for shape, row in zip(shapes, rows, strict=True) if row}
    return len(found) == 1 and () not in found and not any(
        shape for shape, row in zip(shapes, rows, strict=True) if not row)


def title_of(function: Any) -> str:
    """Return what an account says of calls of a function that a user has compiled."""
    met = _MET.get(function) if type(function).__name__ in _KINDS else None
    why = f" ({met.why})" if met is not None and met.why else ""
    return f"{getattr(function, '__name__', 'a function')}, compiled with Numba{why}"


def _first(session: Any, function: Any, args: tuple[Any, ...], given: tuple[Any, ...], met: Met) -> Any:
    """Call a function, and compare what was read of it."""
    try:
        ins, out, body = _read(function, given)
    except (Unread, AttributeError, KeyError, TypeError) as why:  # of Numba's insides nothing is promised
        met.keep(given, str(why) if isinstance(why, Unread) else "its loop is not known yet")
        return NotImplemented
    result = session.outside(function, args, {})
    wanted = session.plain(result)
    operands = [np.asarray(each) for each in session.plain(args)]
    if np.asarray(wanted).size and np.asarray(wanted).dtype == out:
        if _agrees(body, ins, operands, np.asarray(wanted)):
            called = Elementwise(function, rows_of(function)) if _is_of_rows(function) else function
            made = enter(called, function.__name__, ins, out, body)
            enroll(made)
            met.operators[given] = made.name
        else:
            met.keep(given, "other values than expected")
    return result


def _read(function: Any, given: tuple[Any, ...]) -> tuple[tuple[np.dtype, ...], np.dtype, Body]:
    """Return what the loop for operands of these types reads, writes, and computes."""
    if _is_of_rows(function):
        return read(function, given)
    options = {**function.targetoptions}
    if options.pop("nopython", True) is not True or any(options.values()):
        raise Unread(f"options {options}")
    known = [each if each in (int, float) else np.dtype(each) for each in given]
    *ins, out = function.ufunc.resolve_dtypes((*known, None))
    if out.kind != "f":
        raise Unread(f"a result of {out}")
    for signature, made in function._dispatcher.overloads.items():
        names = [str(each) for each in signature.args]
        if names == [each.name for each in ins] and str(made.signature.return_type) == out.name:
            reader = Reader(made.type_annotation, tuple(ins), out)
            return tuple(ins), out, reader.body()
    raise Unread("its instructions are not kept")


def _agrees(body: Body, ins: tuple[np.dtype, ...], operands: list[np.ndarray], wanted: np.ndarray) -> bool:
    """Say whether some elements are the same in all bits, but for those of NaN; or near."""
    step = max(wanted.size // SAMPLE, 1)
    some = [np.broadcast_to(each, wanted.shape).flat[::step].astype(dtype)
            for each, dtype in zip(operands, ins, strict=True)]
    with np.errstate(all="ignore"):
        made = np.broadcast_to(body.emit(NumpyBuilder(), *some, {}), some[0].shape)
    found = wanted.flat[::step]
    if body.approximate:
        return bool(np.isclose(made, found, NEAR[found.dtype.char], 0.0, equal_nan=True).all())
    same = (made == found) & (np.signbit(made) == np.signbit(found)) | np.isnan(made) & np.isnan(found)
    return bool(same.all())
