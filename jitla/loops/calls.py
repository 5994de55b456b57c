"""Functions that loops may call: those of `math`, of Python, and of NumPy that are exact.

Knows: what they return for which kinds, and when they complain. Must not know: syntax trees.
Receives a function and values; writes what computes it, and returns the value.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from jitla.loops.arithmetic import Arithmetic
from jitla.loops.kinds import BITS, HELD, PYTHON, RANGES, TYPES, Refused
from jitla.loops.values import EXACT, WIDE, Value, held_by

# Both CPython and machine code call the same functions of the C library.
_LIBRARY = {getattr(math, name): name for name in (
    "sin", "cos", "tan", "exp", "log", "log10", "log2", "atan", "asin", "acos", "sinh", "cosh", "tanh")}
_ROUNDING = {math.floor: "floor", math.ceil: "ceil", math.trunc: "trunc", int: "trunc"}
_TWO: dict[Any, str] = {math.atan2: "atan2", math.pow: "pow"}
_ROOTS = {np.sqrt: "f8", math.sqrt: "float"}
_ABSOLUTE = {abs, math.fabs, np.abs, np.absolute, np.fabs}
_ASKING = {math.isnan: "isnan", math.isinf: "isinf", np.isnan: "isnan", np.isinf: "isinf",
           math.isfinite: "isfinite", np.isfinite: "isfinite"}
_MAKING = {made: kind for kind, made in TYPES.items() if kind != "int"}
CALLS: frozenset[Any] = frozenset(
    {min, max, *_LIBRARY, *_ROUNDING, *_TWO, *_ROOTS, *_ABSOLUTE, *_ASKING, *_MAKING})


# What makes a number of a row.
REDUCTIONS: dict[Any, str] = {np.sum: "sum", np.max: "max", np.min: "min"}


def callable_in_nests(function: Any, of_row: bool) -> bool:
    """Say whether nests may call `function` with numbers, or with a row."""
    try:
        return function in (REDUCTIONS if of_row else (*CALLS, len, range))
    except TypeError:
        return False


def called(writer: Arithmetic, function: Any, name: str, values: list[Value]) -> Value:
    """Return what `function` makes of `values`."""
    if any(not value.kinds for value in values):
        return Value("0", frozenset(), "i")
    if function in (min, max):
        return _extreme(writer, "Lt" if function is min else "Gt", values)
    if len(values) == 2 and function in _TWO:
        a, b = (_double(writer, value) for value in values)
        return _floating(writer, "float", f"lib_{_TWO[function]}({a}, {b})", a, b)
    if len(values) != 1:
        raise Refused(f"{name} of {len(values)} arguments")
    value = values[0]
    if function in _LIBRARY:
        a = _double(writer, value)
        return _floating(writer, "float", f"lib_{_LIBRARY[function]}({a})", a, a)
    if function in _ROOTS:
        return _root(writer, _ROOTS[function], value)
    if function in _ABSOLUTE:
        return _absolute(writer, function, value)
    if function in _ROUNDING:
        if function is not int and value.held == "i" and value.kinds != {"int"} and value.bits > EXACT:
            writer.bail(f"wide({value.text})")  # NumPy's integers are rounded as floats
        return _rounded(writer, _ROUNDING[function], value)
    if function in _ASKING:
        kind = "bool" if getattr(function, "__module__", "") == "math" else "b1"
        text = writer.fresh(f"{_ASKING[function]}({_double(writer, value)})")
        return Value(text, frozenset({kind}), "b", "", 1, True)
    return _hidden(writer, value, _made(writer, _MAKING[function], value))


def _double(writer: Arithmetic, value: Value) -> str:
    """Return a number as the functions of the library take it."""
    text = writer.held(value, "d")
    return f"float64({text})" if value.held == "s" else text


def _floating(writer: Arithmetic, kind: str, text: str, a: str, b: str) -> Value:
    made = writer.fresh(text)
    return writer.judged(Value(made, frozenset({kind}), "d", "", WIDE, False, ((a, b, made),)))


def _root(writer: Arithmetic, kind: str, value: Value) -> Value:
    if kind == "f8" and value.kinds - {"f8", "float", "int", "i8", "i4"}:
        raise Refused(f"np.sqrt of {' or '.join(sorted(value.kinds))}")
    a = _double(writer, value)
    writer.bail(f"{a} < 0")
    made = writer.fresh(f"sqrt({a})")
    return _hidden(writer, value, Value(made, frozenset({kind}), "d"))


def _absolute(writer: Arithmetic, function: Any, value: Value) -> Value:
    if function is abs or (function in (np.abs, np.absolute) and value.kinds <= {"f8", "f4"}):
        return writer.unary("Abs", value)
    if function is not math.fabs and value.kinds != {"f8"}:
        raise Refused(f"an absolute value by NumPy of {' or '.join(sorted(value.kinds))}")
    kind = "float" if function is math.fabs else "f8"
    return Value(writer.fresh(f"abs({_double(writer, value)})"), frozenset({kind}), "d")


def _rounded(writer: Arithmetic, how: str, value: Value) -> Value:
    """Make an integer of Python."""
    if value.held in "ib":
        text = writer.held(value, "i")
        return Value(text, frozenset({"int"}), "i", "", value.bits, value.positive)
    a = _double(writer, value)
    writer.bail(f"not (abs({a}) < 9007199254740992.0)", hard=True)
    whole = a if how == "trunc" else f"{how}({a})"
    return Value(writer.fresh(f"int64({whole})"), frozenset({"int"}), "i", "", EXACT)


def _hidden(writer: Arithmetic, given: Value, made: Value) -> Value:
    """Return a number of NumPy that was made of one of Python so that compilers do not know it.

    What they compute themselves of constants does not set the processor's flags.
    """
    if made.held == "b" or made.kinds <= PYTHON or not given.kinds & PYTHON:
        return made
    return replace(made, text=writer.fresh(f"hidden_{made.held}({made.text})"))


def _made(writer: Arithmetic, kind: str, value: Value) -> Value:
    """Make a number of another type."""
    how = HELD[kind]
    if how == "b":
        return Value(writer.fresh(writer.truth(value)), frozenset({kind}), "b", "", 1, True)
    if how == "d":
        return Value(_double(writer, value), frozenset({kind}), "d")
    if how == "s":
        if value.held == "i" and value.bits > EXACT:
            raise Refused("a float32 of a large integer")
        return Value(writer.held(value, "s"), frozenset({kind}), "s")
    whole = value if value.held == "i" else _rounded(writer, "trunc", value)
    if value.kinds != {kind}:
        writer.in_range(whole.text, kind, whole)
    positive = whole.positive or RANGES[kind][0] == 0
    return Value(whole.text, frozenset({kind}), "i", "", min(BITS[kind], whole.bits), positive)


def _extreme(writer: Arithmetic, name: str, values: list[Value]) -> Value:
    """Return the first of the smallest, or of the largest."""
    if len(values) < 2:
        raise Refused("an extreme of what is no number")
    kinds = frozenset[str]().union(*(value.kinds for value in values))
    best = values[0]
    for value in values[1:]:
        test = writer.compare(name, value, best).text
        held = held_by(kinds)
        (text, code), (other, its) = (writer.united(each, kinds, held) for each in (value, best))
        made = writer.fresh(f"{text} if {test} else {other}")
        tag = writer.fresh(f"int64({code}) if {test} else int64({its})") if len(kinds) > 1 else ""
        best = Value(made, kinds, held, tag, max(value.bits, best.bits), value.positive and best.positive)
    return best
