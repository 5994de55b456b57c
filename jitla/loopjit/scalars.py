"""Arithmetic of scalars in loops: the operators, conversions and functions of Python's and NumPy's numbers.

Where Python raises an exception, or NumPy warns of integers, the program is left before the statement, so
that Python does it. Floating-point warnings are found by the processor's flags when a part of the loop is
done.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import product
from typing import Any

import numpy as np

from jitla.hops import Meta, lookup
from jitla.loopir import program as ir
from jitla.loopjit import hypotenuse
from jitla.loopjit.builder import (
    ProgramBuilder,
    apply,
    both,
    cast,
    choose,
    compare,
    either,
    integer_constant,
    negated,
)
from jitla.loopjit.values import (
    EXACT_FLOAT64,
    INT64_HIGH,
    INT64_LOW,
    NONE,
    PYTHON_KINDS,
    STORAGE,
    TAG_DTYPE,
    TAGS,
    UNBOUND,
    LoweringRefused,
    Num,
    fold,
    kind_range,
    number,
    of_kind,
    result_kind,
    storage_of,
)

FLOAT64, COMPLEX128 = np.dtype(np.float64), np.dtype(np.complex128)
UFUNCS = {"Add": "add", "Sub": "subtract", "Mult": "multiply", "Div": "divide", "FloorDiv": "floor_divide",
          "Mod": "remainder", "Pow": "power", "BitAnd": "bitwise_and", "BitOr": "bitwise_or",
          "BitXor": "bitwise_xor", "LShift": "left_shift", "RShift": "right_shift", "Lt": "less",
          "LtE": "less_equal", "Gt": "greater", "GtE": "greater_equal", "Eq": "equal", "NotEq": "not_equal",
          "USub": "negative", "UAdd": "positive", "Invert": "invert"}
COMPARISONS = frozenset({"Lt", "LtE", "Gt", "GtE", "Eq", "NotEq"})
_CHECKED = {"Add": "add", "Sub": "sub", "Mult": "mul", "FloorDiv": "floordiv", "Mod": "mod", "LShift": "shl"}
# kinds that float64 holds and computes with like its own
_EXACT_KINDS = frozenset({"int", "i8", "float", "f8"})
_BITWISE = frozenset({"BitAnd", "BitOr", "BitXor"})
MAX_BRANCHES = 9  # for combinations of kinds of the operands of an operator
MAX_POWER = 16  # exponents that are written as products
OVERFLOW = "an integer that needs more than its bits"
ZERO_DIVISION = "a division by zero"
TAG_OF_NONE = ir.constant(TAGS[NONE], TAG_DTYPE)


# --------------------------------------------------------------------------- kinds and storage


def assigned(b: ProgramBuilder, x: Num) -> Num:
    """Return `x`, whose variable has a value; where it has none Python raises UnboundLocalError."""
    if UNBOUND not in x.kinds:
        return x
    kinds = x.kinds - {UNBOUND}
    if x.tag is None:
        raise LoweringRefused("a variable is read that has no value")
    b.check(compare("equal", x.tag, ir.constant(0, TAG_DTYPE)), "a variable without a value")
    return Num(kinds, x.value, x.tag if len(kinds) > 1 else None, x.low, x.high, x.known)


def is_none_now(x: Num) -> ir.Value:
    """Return whether a number that is None at times is None."""
    assert x.tag is not None
    return compare("equal", x.tag, TAG_OF_NONE)


def bound(b: ProgramBuilder, x: Num) -> Num:
    """Return `x`, whose variable has a value that is a number; where it has none Python raises."""
    x = assigned(b, x)
    if NONE not in x.kinds:
        return x
    kinds = x.kinds - {NONE}
    assert x.tag is not None
    b.check(is_none_now(x), "None instead of a number")
    return Num(kinds, x.value, x.tag if len(kinds) > 1 else None, x.low, x.high, x.known)


def tag_of(x: Num) -> ir.Value:
    """Return the tag of the kind of `x`."""
    return x.tag if x.tag is not None else ir.constant(TAGS[x.kind], TAG_DTYPE)


def stored_as(b: ProgramBuilder, x: Num, storage: np.dtype) -> ir.Value:
    """Return the value of `x` in a variable of dtype `storage`, without loss; else Python goes on."""
    if x.dtype == storage:
        return x.value
    if x.dtype.kind == "c" and storage.kind != "c":
        raise LoweringRefused("a complex number where a real number is needed")
    if storage.kind in "fc" and x.dtype.kind in "iu" and not is_exact(x):
        value = b.temporary(x.value)
        outside = either(compare("less", value, cast(ir.constant(-EXACT_FLOAT64), x.dtype))
                         if x.dtype.kind == "i"
                         else ir.constant(False, ir.BOOL),
                         compare("greater", value, cast(ir.constant(EXACT_FLOAT64), x.dtype)))
        b.check(outside, "an integer of more than 53 bits")
        return cast(value, storage)
    return cast(x.value, storage)


def is_exact(x: Num) -> bool:
    """Return whether an integer is certainly exact as float64."""
    return -EXACT_FLOAT64 <= x.low and x.high <= EXACT_FLOAT64


def _operand(b: ProgramBuilder, x: Num, dtype: np.dtype) -> ir.Value:
    """Return `x` as the operand of a NumPy operation in `dtype`; a Python integer must be in its range."""
    if x.dtype == dtype:
        return x.value
    if x.kinds == {"int"} and dtype.kind in "iu":
        low, high = kind_range(dtype.str[1:])
        if x.low < low or x.high > high:
            return ir.Checked("cast", (x.value,), dtype,
                              b.undo("a Python integer out of the bounds of a dtype"))
    if x.kinds == {"int"} and dtype.kind in "fc" and not is_exact(x):
        return cast(stored_as(b, x, FLOAT64), dtype)
    if x.kinds == {"int"} and dtype == np.float32 and not (-(1 << 24) <= x.low and x.high <= 1 << 24):
        return cast(cast(x.value, FLOAT64), dtype)
    return cast(x.value, dtype)


def convert(b: ProgramBuilder, x: Num, dtype: np.dtype) -> ir.Value:
    """Return `x` as an element of an array of `dtype`, as an assignment to an element converts it."""
    if x.dtype == dtype:
        return x.value
    if x.dtype.kind == "c" and dtype.kind != "c":
        raise LoweringRefused("a complex number is stored in an array of reals")
    if dtype.kind in "iu":
        if x.dtype.kind == "f":
            trunc = apply("trunc", x.value)
            return ir.Checked("cast", (trunc,), dtype, b.undo("a float that is no integer of the dtype"))
        if x.is_python:
            return _operand(b, Num(frozenset({"int"}), cast(x.value, ir.INT64), None, x.low, x.high), dtype)
    if x.kinds == {"int"}:
        return _operand(b, x, dtype)
    return cast(x.value, dtype)


def as_element(b: ProgramBuilder, x: Num, dtype: np.dtype) -> ir.Value:
    """Return `x` as a single element of an array of `dtype` that it is assigned to.

    NumPy raises `OverflowError` if an integer does not fit into signed integers, and wraps others.
    """
    if dtype.kind in "iu" and x.dtype.kind in "iu" and not x.is_python and (dtype.kind == "i"
                                                                            or "int" in x.kinds):
        low, high = kind_range(dtype.str[1:])
        if x.low < low or x.high > high:
            return ir.Checked("cast", (x.value,), dtype, b.undo("an integer out of the bounds of a dtype"))
    return convert(b, x, dtype)


# --------------------------------------------------------------------------- operators


def binary(b: ProgramBuilder, name: str, x: Num, y: Num) -> Num:
    """Return the result of a binary operator or comparison."""
    x, y = bound(b, x), bound(b, y)
    if x.known and y.known:
        try:
            folded = fold(name, x.known[0], y.known[0])
            if folded is not None:
                return number(folded)
        except (ArithmeticError, ValueError, TypeError) as error:
            raise LoweringRefused(f"Python raises {type(error).__name__}") from error
    if len(x.kinds) == 1 and len(y.kinds) == 1:
        return _single(b, name, x, y)
    return _several(b, name, x, y)


def _single(b: ProgramBuilder, name: str, x: Num, y: Num) -> Num:
    """Apply an operator to operands of one kind each."""
    kind = result_kind(name, x.kind, y.kind) if name != "Pow" else _power_kind(x, y)
    if name == "Pow":
        return _power(b, x, y, kind)
    if x.is_python and y.is_python:
        return _python(b, name, x, y, kind)
    return _numpy(b, name, x, y, kind)


def _several(b: ProgramBuilder, name: str, x: Num, y: Num) -> Num:
    """Apply an operator to operands one of which has several kinds; all its results are held in one storage.

    Integers are computed as float64, exactly, where the other kinds are floats. For other kinds there is a
    branch for each combination.
    """
    letters = {STORAGE[kind].kind for kind in x.kinds | y.kinds}
    narrow = any(STORAGE[k] == np.float32 for k in x.kinds | y.kinds)
    limited = {kind for kind in x.kinds | y.kinds if STORAGE[kind].kind in "biu"} - {"int", "bool", "i8"}
    if name not in {"Add", "Sub", "Mult", "Div"} | COMPARISONS or not letters <= set("biuf") or narrow \
            or limited and name not in COMPARISONS \
            or name == "Mult" and "f" in letters and letters & set("biu") \
            or "f" not in letters and not (letters == {"i"} and name in ("Add", "Sub", "Mult")
                                           and x.kinds | y.kinds <= {"int", "i8"}) \
            and not (letters <= {"i", "b"} and name in COMPARISONS):
        return by_kinds(b, [x, y], lambda operands: _single(b, name, *operands))
    pairs = {(i, j): result_kind(name, i, j) for i, j in product(sorted(x.kinds), sorted(y.kinds))}
    kinds = frozenset(pairs.values())
    if "f" not in letters:
        if name in COMPARISONS:
            return Num(kinds, compare(UFUNCS[name], cast(x.value, ir.INT64), cast(y.value, ir.INT64)),
                       _joint_tag(b, pairs, x, y), 0, 1)
        value: ir.Value = ir.Checked(_CHECKED[name], (x.value, y.value), ir.INT64, b.undo(OVERFLOW))
        return Num(kinds, value, _joint_tag(b, pairs, x, y))
    left, right = stored_as(b, x, FLOAT64), stored_as(b, y, FLOAT64)
    if name in COMPARISONS:
        return Num(kinds, compare(UFUNCS[name], left, right), _joint_tag(b, pairs, x, y), 0, 1)
    if name == "Div":
        if x.kinds & PYTHON_KINDS and y.kinds & PYTHON_KINDS:
            b.check(compare("equal", right, ir.constant(0.0, FLOAT64)), ZERO_DIVISION)
        return Num(kinds, apply("divide", left, right), _joint_tag(b, pairs, x, y))
    value = b.temporary(apply(UFUNCS[name], left, right))
    if "int" in kinds or any(STORAGE[kind].kind in "iu" for kind in kinds):
        magnitude = apply("absolute", value)
        b.check(compare("greater_equal", magnitude, ir.constant(float(EXACT_FLOAT64), FLOAT64)),
                "an integer of more than 53 bits")
    return Num(kinds, value, _joint_tag(b, pairs, x, y))


def by_kinds(b: ProgramBuilder, operands: Sequence[Num], compute: Callable[[list[Num]], Num]) -> Num:
    """Return the result of `compute` for operands of one kind each, by a branch for each combination of
    kinds.
    """
    held = [b.evaluated(x) for x in operands]
    combinations = list(product(*(sorted(x.kinds) for x in held)))
    if len(combinations) == 1:
        return compute(held)
    if len(combinations) > MAX_BRANCHES:
        raise LoweringRefused("operands of many kinds")
    branches: list[tuple[ir.Value | None, list[Any], Num | None]] = []
    reason = ""
    for kinds in combinations:
        tests = [compare("equal", x.tag, ir.constant(TAGS[kind], TAG_DTYPE))
                 for x, kind in zip(held, kinds, strict=True) if x.tag is not None]
        result: Num | None = None
        with b.into([]) as statements:
            try:
                result = compute([_of_one_kind(x, kind) for x, kind in zip(held, kinds, strict=True)])
            except LoweringRefused as refused:
                reason = refused.reason
                b.leave(reason)
        branches.append((reduce(both, tests) if tests else None, statements, result))
    results = [result for _, _, result in branches if result is not None]
    if not results:
        raise LoweringRefused(reason)
    kinds_of_results = frozenset[str]().union(*(result.kinds for result in results))
    storage = storage_of(kinds_of_results)
    value = b.scalar(b.fresh("s"), storage)
    tag = b.scalar(b.fresh("s.tag"), TAG_DTYPE) if len(kinds_of_results) > 1 else None
    otherwise: list[Any] = []
    for test, statements, result in reversed(branches):
        with b.into(statements):
            if result is not None:
                b.assign(value.name, stored_as(b, result, storage))
                if tag is not None:
                    b.assign(tag.name, tag_of(result))
        otherwise = statements if not otherwise or test is None else [
            ir.If(test, statements, otherwise)]  # type: ignore[arg-type]
    for statement in otherwise:
        b.emit(statement)
    return Num(kinds_of_results, value, tag, min(r.low for r in results), max(r.high for r in results))


def _of_one_kind(x: Num, kind: str) -> Num:
    """Return a number of several kinds as one of them, which its tag says that it is."""
    if len(x.kinds) == 1:
        return x
    storage = STORAGE[kind]
    if storage.kind in "iu" and x.dtype.kind in "fc":
        exact = x.value if x.dtype.kind == "f" else ir.Apply("real", (x.value,), FLOAT64)
        return of_kind(kind, cast(cast(exact, ir.INT64), storage), max(x.low, -EXACT_FLOAT64),
                       min(x.high, EXACT_FLOAT64))
    if x.dtype.kind == "c" and storage.kind != "c":
        return of_kind(kind, cast(ir.Apply("real", (x.value,), FLOAT64), storage))
    if storage.kind == "b" and x.dtype.kind != "b":
        return of_kind(kind, compare("not_equal", x.value, cast(ir.constant(0), x.dtype)))
    bounds = (x.low, x.high) if storage.kind in "iu" else (None, None)
    return of_kind(kind, cast(x.value, storage), *bounds)


def _joint_tag(b: ProgramBuilder, pairs: dict[tuple[str, str], str], x: Num, y: Num) -> ir.Value | None:
    """Return the tag of the results of `pairs` of kinds."""
    kinds = sorted(set(pairs.values()))
    if len(kinds) == 1:
        return None
    tag: ir.Value = ir.constant(TAGS[kinds[-1]], TAG_DTYPE)
    for (i, j), kind in pairs.items():
        if kind != kinds[-1]:
            tests = [compare("equal", side.tag, ir.constant(TAGS[k], TAG_DTYPE))
                     for side, k in ((x, i), (y, j)) if side.tag is not None]
            test = tests[0] if len(tests) == 1 else both(*tests)
            tag = choose(test, ir.constant(TAGS[kind], TAG_DTYPE), tag)
    return b.temporary(tag)


# -- Python's scalars


def _python(b: ProgramBuilder, name: str, x: Num, y: Num, kind: str) -> Num:
    storages = {STORAGE[x.kind].kind, STORAGE[y.kind].kind}
    if name in COMPARISONS:
        return _python_comparison(b, name, x, y)
    if "c" in storages:
        return _python_complex(b, name, x, y)
    if "f" in storages:
        return _python_float(b, name, stored_as(b, x, FLOAT64), stored_as(b, y, FLOAT64), y)
    if kind == "bool":
        return of_kind("bool", apply(UFUNCS[name], x.value, y.value))
    left = Num(frozenset({"int"}), cast(x.value, ir.INT64), None, x.low, x.high)
    right = Num(frozenset({"int"}), cast(y.value, ir.INT64), None, y.low, y.high)
    if name == "Div":
        if not 0 < y.low and not y.high < 0:
            b.check(compare("equal", right.value, ir.constant(0)), ZERO_DIVISION)
        quotient = apply("divide", stored_as(b, left, FLOAT64), stored_as(b, right, FLOAT64))
        return of_kind("float", quotient)
    return integer(b, name, left, right, "int")


def _python_comparison(b: ProgramBuilder, name: str, x: Num, y: Num) -> Num:
    storage = storage_of(x.kinds | y.kinds)
    if storage.kind == "c" and name not in ("Eq", "NotEq"):
        raise LoweringRefused("complex numbers are compared")
    if storage.kind == "b":
        storage = ir.INT64
    left, right = stored_as(b, x, storage), stored_as(b, y, storage)
    if name in ("Lt", "GtE") and storage == ir.INT64 and x.high < y.low:
        return number(name == "Lt")
    return of_kind("bool", compare(UFUNCS[name], left, right))


def _python_float(b: ProgramBuilder, name: str, left: ir.Value, right: ir.Value, divisor: Num) -> Num:
    if name in ("Div", "FloorDiv", "Mod") and not (divisor.known and divisor.known[0]):
        b.check(compare("equal", right, ir.constant(0.0, FLOAT64)), ZERO_DIVISION)
    if name not in UFUNCS or name in _BITWISE or name in ("LShift", "RShift"):
        raise LoweringRefused(f"{name} of floats")
    return of_kind("float", apply(UFUNCS[name], left, right))


def _python_complex(b: ProgramBuilder, name: str, x: Num, y: Num) -> Num:
    if name not in ("Add", "Sub", "Mult", "Div"):
        raise LoweringRefused(f"{name} of Python's complex numbers")
    if x.kind != y.kind and sys.version_info >= (3, 14):
        raise LoweringRefused("a complex and a real number of Python")  # no part is added to the real number
    left, right = stored_as(b, x, COMPLEX128), stored_as(b, y, COMPLEX128)
    if name == "Div":
        return _complex_quotient(b, b.temporary(left), b.temporary(right))
    if name == "Mult":
        return of_kind("complex", ir.Apply("multiply", (left, right), COMPLEX128, (("rounded", True),)))
    return of_kind("complex", apply(UFUNCS[name], left, right))


def part(value: ir.Value, name: str) -> ir.Value:
    """Return the real or imaginary part, `name`, of a complex number."""
    dtype = ir.dtype_of_value(value)
    return ir.Apply(name, (value,), np.dtype(f"f{dtype.itemsize // 2}"))


def _complex_quotient(b: ProgramBuilder, x: ir.Value, y: ir.Value) -> Num:
    """Return ``x / y`` of Python's complex numbers, by the formula of `_Py_c_quot` (Smith)."""
    xr, xi, yr, yi = (b.temporary(part(z, name)) for z in (x, y) for name in ("real", "imag"))
    b.check(both(compare("equal", yr, ir.constant(0.0, FLOAT64)), compare(
        "equal", yi, ir.constant(0.0, FLOAT64))), ZERO_DIVISION)
    wide = b.temporary(compare("greater_equal", apply("absolute", yr), apply("absolute", yi)))
    ratio = b.temporary(apply("divide", choose(wide, yi, yr), choose(wide, yr, yi)))
    narrow = apply("multiply", choose(wide, yi, yr), ratio)
    divisor = b.temporary(apply("add", choose(wide, yr, narrow), choose(wide, narrow, yi)))
    scaled_r, scaled_i = b.temporary(apply("multiply", xr, ratio)), b.temporary(apply("multiply", xi, ratio))
    real = apply("divide", choose(wide, apply("add", xr, scaled_i), apply("add", scaled_r, xi)), divisor)
    imag = apply("divide", choose(wide, apply("subtract", xi, scaled_r), apply("subtract", scaled_i, xr)),
                 divisor)
    return complex_of(b, real, imag)


def complex_of(b: ProgramBuilder, real: ir.Value, imag: ir.Value) -> Num:
    """Return the complex number of Python with these parts; zeros with a sign and infinities are left to
    Python.
    """
    parts = [b.temporary(real), b.temporary(imag)]
    for value in parts:
        zero = both(compare("equal", value, ir.constant(0.0, FLOAT64)),
                    ir.Apply("signbit", (value,), ir.BOOL))
        b.check(either(zero, negated(_is_finite(value))),
                "a part of a complex number that is -0.0 or not finite")
    unit = ir.constant(1j, COMPLEX128)
    product_of_unit = ir.Apply("multiply", (cast(parts[1], COMPLEX128), unit), COMPLEX128,
                               (("rounded", True),))
    return of_kind("complex", apply("add", cast(parts[0], COMPLEX128), product_of_unit))


def integer(b: ProgramBuilder, name: str, x: Num, y: Num, kind: str) -> Num:
    """Apply an operator to integers of one dtype, with a check where the result may not fit."""
    least, most = kind_range(kind)
    low, high = least, most
    value: ir.Value
    if name in ("Add", "Sub", "Mult"):
        ends = [fold(name, i, j) for i in (x.low, x.high) for j in (y.low, y.high)]
        low, high = min(ends), max(ends)
        if least <= low and high <= most:
            return of_kind(kind, apply(UFUNCS[name], x.value, y.value), low, high)
        value = ir.Checked(_CHECKED[name], (x.value, y.value), STORAGE[kind], b.undo(OVERFLOW))
        return of_kind(kind, value, max(low, least), min(high, most))
    if name in ("FloorDiv", "Mod"):
        return _integer_division(b, name, x, y, kind)
    if name == "BitAnd" and kind == "int" and (x.low >= 0 or y.low >= 0):
        for one, mask in ((x, y), (y, x)):
            value = unchecked(one.value)
            if mask.low >= 0 and value != one.value:
                return of_kind(kind, apply("bitwise_and", value, mask.value), 0, mask.high)
    if name in _BITWISE:
        if name == "BitAnd" and (x.low >= 0 or y.low >= 0):
            low, high = 0, min(side.high for side in (x, y) if side.low >= 0)
        elif x.low >= 0 and y.low >= 0:
            low, high = 0, (1 << max(x.high, y.high).bit_length()) - 1
        return of_kind(kind, apply(UFUNCS[name], x.value, y.value), low, high)
    if name == "RShift" and kind == "int":
        b_check_shift(b, y)
        count = y.value if y.high <= 63 else apply("minimum", y.value, ir.constant(63))
        shift = min(y.low, 63) if y.low >= 0 else 0
        return of_kind(kind, apply("right_shift", x.value, count), min(x.low >> shift, x.low, 0)
                       if x.low < 0 else 0,
                       max(x.high >> shift, 0))
    if name == "LShift" and kind == "int":
        b_check_shift(b, y)
        if x.low >= 0 and 0 <= y.low and y.high < 62 and x.high << y.high <= INT64_HIGH:
            return of_kind(kind, apply("left_shift", x.value, y.value), x.low << y.low, x.high << y.high)
        return of_kind(kind, ir.Checked("shl", (x.value, y.value), ir.INT64, b.undo(OVERFLOW)),
                       0 if x.low >= 0 else None)
    return of_kind(kind, apply(UFUNCS[name], x.value, y.value))


_WRAPPING = {"add": "add", "sub": "subtract", "mul": "multiply", "neg": "negative"}


def unchecked(value: ir.Value) -> ir.Value:
    """Return an integer whose low bits only are needed: those of sums and products are right if they
    overflow.
    """
    match value:
        case ir.Checked(op, args, dtype) if dtype == ir.INT64 and op in _WRAPPING:
            return ir.Apply(_WRAPPING[op], tuple(map(unchecked, args)), dtype)
        case ir.Checked("shl", (x, count), dtype) if dtype == ir.INT64 and 0 <= (integer_constant(count)
                                                                                 or 0) < 64 \
                and integer_constant(count) is not None:
            return ir.Apply("left_shift", (unchecked(x), count), dtype)
        case ir.Apply(op, args, dtype) if dtype == ir.INT64 and op in (
                "add", "subtract", "multiply", "negative", "invert", "bitwise_and", "bitwise_or",
                "bitwise_xor"):
            return ir.Apply(op, tuple(map(unchecked, args)), dtype)
    return value


def b_check_shift(b: ProgramBuilder, count: Num) -> None:
    """Leave to Python shifts by negative counts."""
    if count.low < 0:
        b.check(compare("less", count.value, ir.constant(0)), "a negative shift")


def _integer_division(b: ProgramBuilder, name: str, x: Num, y: Num, kind: str) -> Num:
    low, high = kind_range(kind)
    if name == "Mod" and y.low > 0:
        low, high = 0, y.high - 1
    elif name == "FloorDiv" and y.low > 0:
        low, high = min(x.low, x.low // y.low), max(x.high // y.low, x.high if x.high < 0 else 0)
    constant = y.low == y.high and y.low > 0
    if constant and (x.low >= 0 or name == "Mod") and y.low & (y.low - 1) == 0:
        if name == "Mod":
            value = unchecked(x.value) if kind == "int" else x.value
            return of_kind(kind, apply("bitwise_and", value, ir.constant(y.low - 1, STORAGE[kind])), low,
                           high)
        shift = ir.constant(y.low.bit_length() - 1, STORAGE[kind])
        return of_kind(kind, apply("right_shift", x.value, shift), low, high)
    exit_number = b.undo(ZERO_DIVISION)
    return of_kind(kind, ir.Checked(_CHECKED[name], (x.value, y.value), STORAGE[kind], exit_number), low,
                   high)


def _power_kind(x: Num, y: Num) -> str:
    kind = result_kind("Pow", x.kind, y.kind)
    if x.kind in ("int", "bool") and y.kind in ("int", "bool") and not (y.known and y.known[0] >= 0):
        if y.high < 0 and y.kind == "int":
            return "float"
    return kind


def _complex_power(b: ProgramBuilder, x: ir.Value, exponent: int) -> Num:
    """Return a positive power of a complex number of Python, by the squares of CPython's `c_powu`."""
    result: ir.Value = ir.constant(1, COMPLEX128)
    square = b.temporary(x)
    while exponent:
        if exponent & 1:
            result = b.temporary(ir.Apply("multiply", (result, square), COMPLEX128, (("rounded", True),)))
        square = b.temporary(ir.Apply("multiply", (square, square), COMPLEX128, (("rounded", True),)))
        exponent >>= 1
    finite = both(_is_finite(part(result, "real")), _is_finite(part(result, "imag")))
    b.check(negated(finite), "a power of a complex number that is not finite")
    return of_kind("complex", result)


def _power(b: ProgramBuilder, x: Num, y: Num, kind: str) -> Num:
    storage = STORAGE[kind]
    if x.kinds == {"complex"} and y.kinds == {"int"} and y.known and 0 < y.known[0] <= MAX_POWER:
        return _complex_power(b, x.value, y.known[0])
    if storage.kind in "iu" and y.known and 0 <= int(y.known[0]) <= MAX_POWER:
        base = Num(frozenset({kind}), _operand(b, x, storage), None, x.low, x.high)
        result = of_kind(kind, ir.constant(1, storage), 1, 1)
        base = b.evaluated(base)
        for _ in range(int(y.known[0])):
            result = integer(b, "Mult", result, base, kind)
        return result
    if storage.kind in "iu" and x.dtype.kind in "biu" and y.dtype.kind in "biu" and storage != np.uint64:
        return _integer_power(b, _operand(b, x, storage), _operand(b, y, storage), y.low >= 0, kind)
    if storage == np.float32:
        operands = tuple(b.temporary(_operand(b, operand, storage)) for operand in (x, y))
        return of_kind(kind, b.temporary(ir.Foreign("powf", operands)))
    if storage != FLOAT64 or x.dtype.kind == "c" or y.dtype.kind == "c":
        raise LoweringRefused(f"a power of {x.kind} and {y.kind}")
    left, right = b.temporary(stored_as(b, x, FLOAT64)), b.temporary(stored_as(b, y, FLOAT64))
    power = b.temporary(ir.Foreign("pow", (left, right)))
    if x.is_python and y.is_python:
        wrong = either(negated(_is_finite(power)), compare("not_equal", power, power))
        b.check(wrong, "a power that is infinite or complex")
        if kind != "float":
            raise LoweringRefused(f"a power of {x.kind} and {y.kind}")
    return of_kind(kind, power)


def _integer_power(b: ProgramBuilder, base: ir.Value, exponent: ir.Value, is_positive: bool,
                   kind: str) -> Num:
    """Return an integer to the power of an integer, by squares; what does not fit is left to Python."""
    storage = STORAGE[kind]
    zero, one = ir.constant(0, storage), ir.constant(1, storage)
    square, left = b.assign(b.fresh("base"), base), b.assign(b.fresh("exponent"), exponent)
    result = b.assign(b.fresh("power"), one)
    if not is_positive:
        b.check(compare("less", left, zero), "a negative power of an integer")
    label, block = b.fresh("loop"), b.fresh("block")
    overflow = b.undo(OVERFLOW)
    b.emit(ir.Block(block, (ir.Repeat(label, (
        ir.If(compare("not_equal", apply("bitwise_and", left, one), zero), (
            ir.Assign(result.name, ir.Checked("mul", (result, square), storage, overflow)),)),
        ir.Assign(left.name, apply("right_shift", left, one)),
        ir.If(compare("equal", left, zero), (ir.Break(block),)),
        ir.Assign(square.name, ir.Checked("mul", (square, square), storage, overflow)))),)))
    return of_kind(kind, result)


def _is_finite(value: ir.Value) -> ir.Value:
    return compare("less", apply("absolute", value), ir.constant(math.inf, ir.dtype_of_value(value)))


# -- NumPy's scalars


def _numpy(b: ProgramBuilder, name: str, x: Num, y: Num, kind: str) -> Num:
    """Apply an operator one of whose operands is a NumPy scalar."""
    ufunc = UFUNCS[name]
    ins = resolve(ufunc, [x, y])
    if name in COMPARISONS:
        if ins[0].kind in "iu" and ins[0] != ins[1]:
            raise LoweringRefused("a signed and an unsigned integer are compared")
        return of_kind("b1", compare(ufunc, _operand(b, x, ins[0]), _operand(b, y, ins[1])))
    left, right = _operand(b, x, ins[0]), _operand(b, y, ins[1])
    storage = STORAGE[kind]
    if storage.kind in "iu" and name not in ("LShift", "RShift"):
        return integer(b, name, Num(frozenset({kind}), left, None, *_bounds(x, kind)),
                       Num(frozenset({kind}), right, None, *_bounds(y, kind)), kind)
    if storage.kind == "c" and name not in ("Add", "Sub", "Mult", "Div"):
        raise LoweringRefused(f"{name} of complex numbers")
    if storage.kind == "f" and name in ("FloorDiv", "Mod"):
        b.check(compare("equal", right, cast(ir.constant(0.0, FLOAT64), storage)), ZERO_DIVISION)
    attrs = (("rounded", True),) if storage.kind == "c" and name == "Mult" else ()
    return of_kind(kind, ir.Apply(ufunc, (left, right), storage, attrs))


def _bounds(x: Num, kind: str) -> tuple[int, int]:
    low, high = kind_range(kind)
    return max(low, x.low), min(high, x.high)


def resolve(ufunc: str, operands: Sequence[Num]) -> tuple[np.dtype, ...]:
    """Return the dtypes in which a ufunc computes; Python's scalars are weak."""
    kinds = [x.kind for x in operands]
    dtypes = tuple({"int": int, "float": float, "complex": complex, "bool": bool}.get(kind) or STORAGE[kind]
                   for kind in kinds)
    if all(isinstance(dtype, type) for dtype in dtypes):
        dtypes = tuple(STORAGE[kind] for kind in kinds)
    try:
        found: tuple[np.dtype, ...] = lookup(ufunc).resolve(dtypes, {})
    except TypeError as error:
        raise LoweringRefused(f"Python raises TypeError: {error}") from error
    return found


def call_ufunc(b: ProgramBuilder, ufunc: str, operands: Sequence[Num]) -> Num:
    """Return what a ufunc of the op table returns for scalars, as NumPy's function is called."""
    operands = [bound(b, x) for x in operands]
    if any(len(x.kinds) > 1 for x in operands):
        return by_kinds(b, operands, lambda single: call_ufunc(b, ufunc, single))
    ins = resolve(ufunc, operands)
    if ufunc == "power" and ins[0].kind in "iu" and operands[1].low < 0:
        raise LoweringRefused("a power of integers that may be negative")
    args = tuple(_operand(b, x, dtype) for x, dtype in zip(operands, ins, strict=True))
    return of_kind(*_result_of(ufunc, args, ins))


def _result_of(ufunc: str, args: tuple[ir.Value, ...], ins: tuple[np.dtype, ...]) -> tuple[str, ir.Value]:
    out = result_dtype(ufunc, ins)
    return out.str[1:], ir.Apply(ufunc, args, out)


def result_dtype(ufunc: str, dtypes: Sequence[np.dtype]) -> np.dtype:
    """Return the dtype of the result of an operator of the op table for operands of these dtypes."""
    result = lookup(ufunc).meta(tuple(Meta((), dtype) for dtype in dtypes), {}).dtype
    for dtype in (*dtypes, result):
        if dtype.str[1:] not in STORAGE:
            raise LoweringRefused(f"{ufunc} of {dtype}")
    return result


def unary(b: ProgramBuilder, name: str, x: Num) -> Num:
    """Return the result of ``-x``, ``+x`` or ``~x``."""
    x = bound(b, x)
    folded = fold(name, x.known[0]) if x.known else None
    if folded is not None:
        return number(folded)
    if len(x.kinds) > 1:
        if name == "USub" and x.kinds <= _EXACT_KINDS and x.dtype == FLOAT64:
            if any(STORAGE[kind].kind in "iu" for kind in x.kinds):
                b.check(compare("equal", x.value, ir.constant(0.0, FLOAT64)), "a zero, an integer or a float")
            return Num(x.kinds, apply("negative", x.value), x.tag)
        return by_kinds(b, [x], lambda operands: unary(b, name, *operands))
    kind = result_kind(name, x.kind)
    storage = STORAGE[kind]
    value = cast(x.value, storage)
    if name == "UAdd":
        return of_kind(kind, value, x.low, x.high)
    if storage.kind in "iu" and name == "USub":
        if x.low > kind_range(kind)[0] and storage.kind == "i":
            return of_kind(kind, apply("negative", value), -x.high, -x.low)
        return of_kind(kind, ir.Checked("neg", (value,), storage, b.undo(OVERFLOW)))
    if name == "Invert" and storage.kind in "iu":
        return of_kind(kind, apply("invert", value))
    if name == "Invert" and storage.kind == "b":
        return of_kind(kind, negated(value))
    return of_kind(kind, apply(UFUNCS[name], value))


def truth(b: ProgramBuilder, x: Num) -> ir.Value:
    """Return the truth value of a number as a bool."""
    if NONE in x.kinds:
        x = assigned(b, x)
        number_only = Num(x.kinds - {NONE}, x.value, x.tag, x.low, x.high)
        return both(negated(is_none_now(x)), truth(b, number_only))
    x = bound(b, x)
    if x.known:
        return ir.constant(bool(x.known[0]), ir.BOOL)
    if x.dtype.kind == "b":
        return x.value
    return compare("not_equal", x.value, cast(ir.constant(0), x.dtype))


def static_truth(value: ir.Value) -> bool | None:
    """Return the truth of a constant bool, else None."""
    return bool(value.bits[0]) if isinstance(value, ir.Number) and value.dtype.kind == "b" else None


# --------------------------------------------------------------------------- Python's functions


def to_int(b: ProgramBuilder, x: Num) -> Num:
    """Return ``int(x)``."""
    x = bound(b, x)
    if x.dtype.kind in "biu":
        if x.dtype == np.uint64:
            return of_kind("int", ir.Checked("cast", (x.value,), ir.INT64, b.undo(OVERFLOW)), 0)
        return of_kind("int", cast(x.value, ir.INT64), x.low, x.high)
    if x.dtype.kind == "f":
        return _whole(b, apply("trunc", x.value))
    raise LoweringRefused("int of a complex number")


def _whole(b: ProgramBuilder, value: ir.Value) -> Num:
    return of_kind("int", ir.Checked("cast", (value,), ir.INT64, b.undo("a float that no int64 is equal to")))


def to_float(b: ProgramBuilder, x: Num) -> Num:
    """Return ``float(x)``."""
    x = bound(b, x)
    if x.dtype.kind == "c":
        raise LoweringRefused("float of a complex number")
    return of_kind("float", stored_as(b, x, FLOAT64))


def absolute(b: ProgramBuilder, x: Num) -> Num:
    """Return ``abs(x)``."""
    x = bound(b, x)
    folded = fold("abs", x.known[0]) if x.known else None
    if folded is not None:
        return number(folded)
    if len(x.kinds) > 1 and x.kinds <= _EXACT_KINDS and x.dtype == FLOAT64:
        return Num(x.kinds, apply("absolute", x.value), x.tag)
    if len(x.kinds) > 1:
        return by_kinds(b, [x], lambda operands: absolute(b, *operands))
    kind = {"bool": "int"}.get(x.kind, x.kind)
    if x.dtype.kind == "c":
        if x.kind == "complex":
            result = b.temporary(ir.Foreign("hypot",
                                            tuple(b.temporary(part(x.value, p)) for p in ("real", "imag"))))
            b.check(negated(_is_finite(result)), "the absolute value of a complex number that is not finite")
            return of_kind("float", result)
        if x.kind != "c16":
            raise LoweringRefused("abs of a complex64")
        value = b.temporary(x.value)  # the loop of arrays rounds otherwise
        return of_kind("f8", b.temporary(ir.Foreign("hypot", (part(value, "real"), part(value, "imag")))))
    if x.dtype.kind in "iub":
        value = cast(x.value, STORAGE[kind])
        if x.low >= 0:
            return of_kind(kind, value, x.low, x.high)
        value = b.temporary(value)
        opposite = unary(b, "USub", Num(frozenset({kind}), value, None, x.low, x.high))
        test = compare("less", value, ir.constant(0, STORAGE[kind]))
        return of_kind(kind, choose(test, opposite.value, value), 0, max(-x.low, x.high))
    return of_kind(kind, apply("absolute", x.value))


def extremum(b: ProgramBuilder, name: str, x: Num, y: Num) -> Num:
    """Return ``min(x, y)`` or ``max(x, y)``: the first unless the second is beyond it."""
    x, y = b.evaluated(bound(b, x)), b.evaluated(bound(b, y))
    beyond = truth(b, binary(b, "Lt" if name == "min" else "Gt", y, x))
    result = select(b, beyond, y, x)
    ends = min if name == "min" else max
    return Num(result.kinds, result.value, result.tag, ends(x.low, y.low), ends(x.high, y.high))


def select(b: ProgramBuilder, test: ir.Value, x: Num, y: Num) -> Num:
    """Return `x` where `test` holds, else `y`; both are computed."""
    kinds = x.kinds | y.kinds
    storage = storage_of(kinds)
    test = b.temporary(test)
    value = choose(test, stored_as(b, x, storage), stored_as(b, y, storage))
    tag = None if len(kinds) == 1 else choose(test, tag_of(x), tag_of(y))
    return Num(kinds, b.temporary(value), tag if tag is None else b.temporary(tag), min(x.low, y.low),
               max(x.high, y.high))


def rounded(b: ProgramBuilder, x: Num) -> Num:
    """Return ``round(x)``."""
    x = bound(b, x)
    if x.dtype.kind == "f" and x.kind in ("float", "f8"):
        return _whole(b, apply("rint", x.value))
    if x.kinds == {"int"}:
        return x
    raise LoweringRefused(f"round of a {x.kind}")


#: Functions of `math` that are functions of the C library, with their number of arguments.
MATH_FUNCTIONS: dict[Any, tuple[str, int]] = {
    getattr(math, name): (c_name, count) for name, c_name, count in (
        ("sin", "sin", 1), ("cos", "cos", 1), ("tan", "tan", 1), ("asin", "asin", 1), ("acos", "acos", 1),
        ("atan", "atan", 1), ("sinh", "sinh", 1), ("cosh", "cosh", 1), ("tanh", "tanh", 1), ("exp", "exp", 1),
        ("expm1", "expm1", 1), ("log1p", "log1p", 1), ("log", "log", 1), ("log2", "log2", 1),
        ("log10", "log10", 1), ("asinh", "asinh", 1), ("acosh", "acosh", 1), ("atanh", "atanh", 1),
        ("erf", "erf", 1), ("erfc", "erfc", 1), ("atan2", "atan2", 2), ("pow", "pow", 2),
        ("fmod", "fmod", 2))}


def call_math(b: ProgramBuilder, function: Any, args: Sequence[Num]) -> Num | None:
    """Return the result of a function of `math`; None if it is not known. Errors are left to Python."""
    args = [bound(b, x) for x in args]
    if function in (math.floor, math.ceil) and len(args) == 1:
        if args[0].dtype.kind in "iub":
            return to_int(b, args[0])
        return _whole(b, apply("floor" if function is math.floor else "ceil", stored_as(b, args[0], FLOAT64)))
    if function is math.trunc and len(args) == 1:
        return to_int(b, args[0])
    if function is math.fabs and len(args) == 1:
        return of_kind("float", apply("absolute", stored_as(b, args[0], FLOAT64)))
    if function in (math.isnan, math.isinf, math.isfinite) and len(args) == 1:
        x = b.temporary(stored_as(b, args[0], FLOAT64))
        nan = compare("not_equal", x, x)
        finite = _is_finite(x)
        test = nan if function is math.isnan else finite if function is math.isfinite else \
            negated(either(nan, finite))
        return of_kind("bool", test)
    if function is math.copysign and len(args) == 2:
        return of_kind("float", apply("copysign", *(stored_as(b, x, FLOAT64) for x in args)))
    values = [b.temporary(stored_as(b, x, FLOAT64)) for x in args] if function in (math.sqrt, math.hypot) \
        or function in MATH_FUNCTIONS else []
    if function is math.hypot and len(args) > 1 and hypotenuse.is_exact_here():
        return of_kind("float", hypotenuse.hypotenuse(b, values))
    if function is math.sqrt and len(args) == 1:
        b.check(compare("less", values[0], ir.constant(0.0, FLOAT64)), "the square root of a negative number")
        return of_kind("float", apply("sqrt", values[0]))
    found = MATH_FUNCTIONS.get(function)
    if found is None or len(args) != found[1]:
        return None
    if function is math.log and args[0].kinds & {"int"} and not is_exact(args[0]):
        raise LoweringRefused("the logarithm of a large integer")
    result = b.temporary(ir.Foreign(found[0], tuple(values)))
    wrong = both(negated(_is_finite(result)), reduce(both, map(_is_finite, values)))
    nan, numbers = compare("not_equal", result, result), [compare("equal", x, x) for x in values]
    wrong = either(wrong, both(nan, reduce(both, numbers)))
    b.check(wrong, "an error of a function of math")
    return of_kind("float", result)


def constant_integer(x: Num) -> int | None:
    """Return the Python integer that a number is known to be, or None."""
    if x.known and isinstance(x.known[0], (int, np.integer)):
        return int(x.known[0])
    return integer_constant(x.value)


def index_value(b: ProgramBuilder, x: Num) -> Num:
    """Return an integer as an index: int64, with its bounds."""
    x = bound(b, x)
    if x.dtype.kind not in "iu" and not x.kinds <= {"bool"}:
        raise LoweringRefused(f"an index that is {' or '.join(sorted(x.kinds))}")
    if x.dtype == np.uint64:
        return of_kind("int", ir.Checked("cast", (x.value,), ir.INT64, b.undo(OVERFLOW)), 0)
    return Num(frozenset({"int"}), cast(x.value, ir.INT64), None, max(x.low, INT64_LOW),
               min(x.high, INT64_HIGH),
               x.known)


Function = Callable[..., Num]
