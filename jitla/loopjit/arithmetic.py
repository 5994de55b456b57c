"""Arithmetic in translated loops: types and text of operators and of calls of functions."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from jitla.loopjit.types import (
    BITS,
    CODES,
    EXACT,
    INTEGERS,
    LONGEST,
    PYTHON,
    RANGES,
    STEP,
    STORAGE,
    TRUTHS,
    TYPES,
    WIDE,
    Refused,
    Span,
    TypedNumber,
    endless,
    result,
    storage_of,
)
from jitla.loopjit.writer import LoopWriter

_SIGN = {"Add": "+", "Sub": "-", "Mult": "*", "Div": "/", "BitAnd": "&", "BitOr": "|", "BitXor": "^",
         "Lt": "<", "LtE": "<=", "Gt": ">", "GtE": ">=", "Eq": "==", "NotEq": "!="}
_CHECKED = {"Add": "add", "Sub": "sub", "Mult": "mul"}
_FLAGGING = _CHECKED | {"Div": "div"}
COMPARED = frozenset({"Lt", "LtE", "Gt", "GtE", "Eq", "NotEq"})
# A constant that is not zero.
_NUMBER = re.compile(r"(int|float)64\((?!0(\.0)?\))-?[0-9.e+-]+\)")
_FACTOR = re.compile(r"int64\((-?[0-9]+)\)")
# The kind of a result for each pair of kinds of operands.
Pairs = dict[tuple[str, str], str]


def spanned(name: str, left: Span, right: Span) -> Span:
    """Return the bounds of a sum, a difference, or a multiple."""
    if left is None or right is None:
        return None
    (a, b), (c, d) = left, right
    if name == "Add":
        made = f"({a} + {c})", f"({b} + {d})"
    elif name == "Sub":
        made = f"({a} - {d})", f"({b} - {c})"
    elif name == "Mult":
        if c != d:
            (a, b), (c, d) = (c, d), (a, b)
        if c != d:
            return None
        made = (f"min({a} * {c}, {b} * {c})", f"max({a} * {c}, {b} * {c})")
    elif name == "FloorDiv" and c == d and not c.startswith("-") and c[:-2].isdigit():
        made = f"floor({a} / {c})", f"floor({b} / {c})"
    elif name == "Mod" and c == d and not c.startswith("-") and c[:-2].isdigit():
        made = "0.0", f"({c} - 1.0)"
    else:
        return None
    return made if len(made[0]) + len(made[1]) < LONGEST else None


class Arithmetic(LoopWriter):
    """Writes operations."""

    def pairs(self, name: str, left: TypedNumber, right: TypedNumber) -> Pairs:
        """Return the kind of the result for each kind that the operands may have."""
        return {(a, b): result(name, a, b) for a, b in product(sorted(left.kinds), sorted(right.kinds))}

    def _tag(self, made: Pairs, left: TypedNumber, right: TypedNumber) -> str:
        """Return the text of the code of a result."""
        if len(set(made.values())) == 1:
            return ""
        if left.kinds == right.kinds and left.tag == right.tag and left.tag:
            made = {pair: kind for pair, kind in made.items() if pair[0] == pair[1]}
        name = self.own(f"{CODES[max(made.values())]}")
        for (a, b), kind in made.items():
            if kind != max(made.values()):
                asked = [f"{side.tag} == {CODES[each]}" for side, each in ((left, a), (right, b)) if side.tag]
                self.put(f"if {' and '.join(asked)}: {name} = {CODES[kind]}")
        return name

    def compare(self, name: str, left: TypedNumber, right: TypedNumber) -> TypedNumber:
        """Compare two values."""
        left, right = self.settled(left), self.settled(right)
        if not left.kinds or not right.kinds:
            return TypedNumber("bool_(0)", frozenset(), "b", "", 1, True)
        made = self.pairs(name, left, right)
        holders = {self._common(a, b) for a, b in made}
        how = holders.pop() if len(holders) == 1 else "d"
        if "s" in holders | {how} and len(holders):
            raise Refused("a float32 at times, and another float")
        a, b = self.converted(left, how), self.converted(right, how)
        text = self.fresh(f"{a} {_SIGN[name]} {b}")
        return TypedNumber(text, frozenset(made.values()), "b", self._tag(made, left, right), 1, True)

    def _common(self, a: str, b: str) -> str:
        """Return what two numbers are held in to be compared or computed with."""
        if {a, b} <= INTEGERS | TRUTHS:
            return "i"
        return STORAGE[result("Add", a, b)]

    def binary(self, name: str, left: TypedNumber, right: TypedNumber) -> TypedNumber:
        """Do an operation of two operands."""
        if not left.kinds or not right.kinds:
            return TypedNumber("0", frozenset(), "i")
        made = self.pairs(name, left, right)
        holders = {STORAGE[kind] for kind in made.values()}
        if name in ("BitAnd", "BitOr", "BitXor", "LShift", "RShift"):
            return self._bits(name, left, right, made)
        if holders == {"i"}:
            return self._integer(name, left, right, made)
        if "b" in holders:
            raise Refused("arithmetic of truth values")
        if holders == {"s"} or holders == {"d"}:
            return self._float(name, left, right, made, holders.pop())
        if holders == {"i", "d"} and name in _CHECKED:
            return self._mixed(name, left, right, made)
        raise Refused(f"{name} of values of several kinds")

    def _mixed(self, name: str, left: TypedNumber, right: TypedNumber, made: Pairs) -> TypedNumber:
        """Compute what is an integer at times as a float: exact, and without a sign of zero."""
        if set(made.values()) & INTEGERS != {"int"}:
            raise Refused(f"{name} of values of several kinds")
        value = self._float(name, left, right, made, "d")
        self.bail(f"{value.tag} == {CODES['int']} and not (abs({value.text}) < 9007199254740992.0)")
        if name != "Mult":
            return value
        value = self.settled(value)
        text = self.fresh(f"{value.text} + 0.0 if {value.tag} == {CODES['int']} else {value.text}")
        return TypedNumber(text, value.kinds, value.storage, value.tag)

    def _narrow(self, value: TypedNumber, other: TypedNumber) -> None:
        """An integer of Python that NumPy's type has no room for is an error."""
        if "int" in value.kinds:
            for kind in sorted(other.kinds & RANGES.keys()):
                self.in_range(value.text, kind, value)

    def in_range(self, text: str, kind: str, value: TypedNumber, lapses: bool = False) -> str:
        """A result that its type has no room for is a warning; return what NumPy makes if it `lapses`."""
        low, high = RANGES[kind]
        surely = value.bits < BITS[kind] and (low < 0 or value.positive)
        if kind == "i8" or surely:
            return text
        self.bail(f"{'lapped' if lapses else 'either'}({text} < {low}, {text} > {high})")
        held = f"{'u' if kind[0] == 'u' else ''}int{8 * int(kind[1])}"
        return self.fresh(f"int64({held}({text}))") if lapses else text

    def _integer(self, name: str, left: TypedNumber, right: TypedNumber, made: Pairs) -> TypedNumber:
        self._narrow(left, right)
        self._narrow(right, left)
        a, b = self.converted(left, "i"), self.converted(right, "i")
        if name in ("FloorDiv", "Mod"):
            value = self._divided(name, a, b, left, right)
        elif name in _CHECKED:
            value = self._checked(name, a, b, left, right)
        else:
            raise Refused(f"{name} of integers")
        kinds = frozenset(made.values())
        lapses = self.quick and len(kinds) == 1 and name in _CHECKED
        for kind in kinds & RANGES.keys():
            value = replace(value, text=self.in_range(value.text, kind, value, lapses))
        bits = value.bits
        if kinds <= RANGES.keys():
            bits = min(bits, max(BITS[kind] for kind in kinds))
        positive = value.positive or all(kind in RANGES and not RANGES[kind][0] for kind in kinds)
        near = endless(left.span) and right.bits <= STEP and right.text.startswith("int64(")
        span = spanned(name, left.span, right.span) if bits <= EXACT or near else None
        return TypedNumber(value.text, kinds, "i", self._tag(made, left, right), bits, positive, (), span)

    def _checked(self, name: str, a: str, b: str, left: TypedNumber, right: TypedNumber) -> TypedNumber:
        """Add, subtract or multiply; where 64 bits are too few the interpreter goes on."""
        both = left.positive and right.positive
        bits = left.bits + right.bits if name == "Mult" else max(left.bits, right.bits) + 1
        # of 2**62 and 2**61 there is a sum
        if bits < WIDE or name != "Mult" and bits == WIDE and min(left.bits, right.bits) < WIDE - 1:
            text = self.fresh(f"{a} {_SIGN[name]} {b}")
            return TypedNumber(text, frozenset(), "i", "", bits, both and name != "Sub")
        factor = next((abs(int(found[1])) for found in map(_FACTOR.fullmatch, (a, b)) if found), 0)
        if name == "Mult" and 0 < factor < 1 << 31:  # one comparison, and a sum of it needs none
            what, text = (right, b) if _FACTOR.fullmatch(a) else (left, a)
            most = (1 << WIDE - 1) // factor
            # compilers that know the number compute the next one in each turn
            self.bail(f"past({text}, hidden_i(int64({most})))" if what.positive
                      else f"beyond({text}, int64({most}))")
            return TypedNumber(self.fresh(f"{a} * {b}"), frozenset(), "i", "", WIDE - 1, both)
        self._count += 1
        made, lost = f"t{self._count}", f"o{self._count}"
        self.put(f"{made}, {lost} = {_CHECKED[name]}_checked({a}, {b})")
        self.bail(lost)
        return TypedNumber(made, frozenset(), "i", "", WIDE, both and name != "Sub")

    def _divided(self, name: str, a: str, b: str, left: TypedNumber, right: TypedNumber) -> TypedNumber:
        if not (right.text.startswith("int64(") and right.text not in ("int64(0)", "int64(-1)")):
            self.bail(f"{b} == 0 or {b} == -1", hard=True)
        known = right.text.removeprefix("int64(").removesuffix(")")
        text = f"{'floor_div' if name == 'FloorDiv' else 'floor_mod'}({a}, {b})"
        if known.isdigit() and int(known).bit_count() == 1:  # bits of negative numbers are those of the floor
            text = f"{a} >> int64({int(known).bit_length() - 1})" if name == "FloorDiv" \
                else f"{a} & int64({int(known) - 1})"
        text = self.fresh(text)
        bits = left.bits if name == "FloorDiv" else right.bits
        if name == "Mod" and known.isdigit():
            bits = (int(known) - 1).bit_length()
        positive = right.positive and (name == "Mod" or left.positive)
        return TypedNumber(text, frozenset(), "i", "", bits, positive)

    def _bits(self, name: str, left: TypedNumber, right: TypedNumber, made: Pairs) -> TypedNumber:
        kinds = frozenset(made.values())
        how = storage_of(kinds)
        if how == "b":
            a, b = self.converted(left, "b"), self.converted(right, "b")
            text = self.fresh(f"{a} {_SIGN[name]} {b}")
            return TypedNumber(text, kinds, "b", self._tag(made, left, right), 1, True)
        if how != "i":
            raise Refused(f"{name} of floats")
        self._narrow(left, right)
        self._narrow(right, left)
        a, b = self.converted(left, "i"), self.converted(right, "i")
        both = left.positive and right.positive
        if name in _SIGN:
            bits, positive = max(left.bits, right.bits), both
            if name == "BitAnd" and (left.positive or right.positive):
                bits = min(x.bits for x in (left, right) if x.positive)
                positive = True
            text = self.fresh(f"{a} {_SIGN[name]} {b}")
        else:
            self.bail(f"{b} < 0 or {b} > 62", hard=True)
            text, bits, positive = self._shifted(name, a, b, left, right)
        value = TypedNumber(text, kinds, how, self._tag(made, left, right), bits, positive)
        for kind in kinds & RANGES.keys():
            self.in_range(text, kind, value)
        return value

    def _shifted(self, name: str, a: str, b: str, left: TypedNumber, right: TypedNumber) -> tuple[str, int,
                                                                                                  bool]:
        if name == "RShift":
            return self.fresh(f"{a} >> {b}"), left.bits, left.positive
        text = self.fresh(f"shift({a}, {b})")
        self.bail(f"({text} >> {b}) != {a}")
        known = right.text.removeprefix("int64(").removesuffix(")")
        bits = left.bits + int(known) if known.isdigit() else WIDE
        return text, min(bits, WIDE), left.positive

    def _float(self, name: str, left: TypedNumber, right: TypedNumber, made: Pairs, how: str) -> TypedNumber:
        kinds = frozenset(made.values())
        if name in ("FloorDiv", "Mod") or name == "Pow" and how == "s":
            left, right = self.settled(left), self.settled(right)
            if how == "s":
                raise Refused(f"{name} of float32")
        if name == "Div":
            right = self.settled(right)
        a, b = self.converted(left, how), self.converted(right, how)
        if name in ("Div", "FloorDiv", "Mod") and not _NUMBER.fullmatch(right.text):
            self.bail(f"{b} == 0")
        if name == "Pow":
            left, right = self.settled(left), self.settled(right)
            text = self.fresh(f"power({a}, {b})")
        elif name in ("FloorDiv", "Mod"):
            text = self.fresh(f"{'float_div' if name == 'FloorDiv' else 'float_mod'}({a}, {b})")
        else:
            return self.step(name, left, right, made, (a, b, how))
        steps = (*left.steps, *right.steps, (a, b, text))
        value = TypedNumber(text, kinds, how, self._tag(made, left, right), WIDE, False, steps)
        return self.judged(value)

    def step(self, name: str, left: TypedNumber, right: TypedNumber, made: Pairs,
             operands: tuple[str, str, str]) -> TypedNumber:
        """Add, subtract, multiply or divide floats; what sets flags is looked at now or later."""
        (a, b, how), kinds = operands, frozenset(made.values())
        steps = (*left.steps, *right.steps)
        # numbers of Python overflow in silence; of integers there is a ratio that is finite
        whole = left.storage in "ib" and right.storage in "ib"
        silent = whole if name == "Div" else kinds <= PYTHON
        if self.watched and not silent:
            sure = name != "Div" or how == "d" and not self.unsure  # others are done for nothing at times
            text = self.fresh(f"{'loud' if sure else 'flag'}_{_FLAGGING[name]}({a}, {b})")
            steps = ((a, b, text),)
        else:
            text = self.fresh(f"ratio({a}, {b})" if name == "Div" else f"{a} {_SIGN[name]} {b}")
            steps = steps if silent else (*steps, (a, b, text))
        value = TypedNumber(text, kinds, how, self._tag(made, left, right), WIDE, False, steps)
        return value if len(steps) < 9 else self.settled(value)

    def unary(self, name: str, operand: TypedNumber) -> TypedNumber:
        """Do an operation of one operand."""
        if not operand.kinds:
            return operand
        made = {(kind,): result(name, kind) for kind in sorted(operand.kinds)}
        kinds = frozenset(made.values())
        tag = operand.tag if kinds == operand.kinds else ""
        if len(kinds) > 1 and not tag or "b" in {STORAGE[k] for k in kinds}:
            raise Refused(f"{name} of truth values, or of values of several kinds")
        how = storage_of(kinds)
        text = self.converted(operand, how)
        if how != "i":
            if kinds & INTEGERS:
                self.bail(f"{text} == 0")  # of integers zero has no sign
            sign = {"USub": f"-{text}", "UAdd": text, "Abs": f"abs({text})"}
            return TypedNumber(self.fresh(sign[name]), kinds, how, tag, WIDE, False, operand.steps)
        if name != "Invert" and operand.bits >= WIDE:
            self.bail(f"{text} == MIN")
        sign = {"USub": f"-{text}", "UAdd": text, "Abs": f"abs({text})", "Invert": f"~{text}"}
        positive = name == "Abs" or name == "UAdd" and operand.positive
        # what is at most 2**k away is 2**k at most if it was the least; others are less than that
        larger = name in ("USub", "Abs") and not operand.positive
        bits = min(operand.bits + larger, WIDE)
        value = TypedNumber(self.fresh(sign[name]), kinds, how, tag, bits, positive)
        for kind in kinds & RANGES.keys():
            self.in_range(value.text, kind, TypedNumber(value.text, kinds, how, "", WIDE))
        return value


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


def called(writer: Arithmetic, function: Any, name: str, values: list[TypedNumber]) -> TypedNumber:
    """Return what `function` makes of `values`."""
    if any(not value.kinds for value in values):
        return TypedNumber("0", frozenset(), "i")
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
        if function is not int and value.storage == "i" and value.kinds != {"int"} and value.bits > EXACT:
            writer.bail(f"wide({value.text})")  # NumPy's integers are rounded as floats
        return _rounded(writer, _ROUNDING[function], value)
    if function in _ASKING:
        kind = "bool" if getattr(function, "__module__", "") == "math" else "b1"
        text = writer.fresh(f"{_ASKING[function]}({_double(writer, value)})")
        return TypedNumber(text, frozenset({kind}), "b", "", 1, True)
    return _hidden(writer, value, _made(writer, _MAKING[function], value))


def _double(writer: Arithmetic, value: TypedNumber) -> str:
    """Return a number as the functions of the library take it."""
    text = writer.converted(value, "d")
    return f"float64({text})" if value.storage == "s" else text


def _floating(writer: Arithmetic, kind: str, text: str, a: str, b: str) -> TypedNumber:
    made = writer.fresh(text)
    return writer.judged(TypedNumber(made, frozenset({kind}), "d", "", WIDE, False, ((a, b, made),)))


def _root(writer: Arithmetic, kind: str, value: TypedNumber) -> TypedNumber:
    if kind == "f8" and value.kinds - {"f8", "float", "int", "i8", "i4"}:
        raise Refused(f"np.sqrt of {' or '.join(sorted(value.kinds))}")
    a = _double(writer, value)
    writer.bail(f"{a} < 0")
    made = writer.fresh(f"sqrt({a})")
    return _hidden(writer, value, TypedNumber(made, frozenset({kind}), "d"))


def _absolute(writer: Arithmetic, function: Any, value: TypedNumber) -> TypedNumber:
    if function is abs or (function in (np.abs, np.absolute) and value.kinds <= {"f8", "f4"}):
        return writer.unary("Abs", value)
    if function is not math.fabs and value.kinds != {"f8"}:
        raise Refused(f"an absolute value by NumPy of {' or '.join(sorted(value.kinds))}")
    kind = "float" if function is math.fabs else "f8"
    return TypedNumber(writer.fresh(f"abs({_double(writer, value)})"), frozenset({kind}), "d")


def _rounded(writer: Arithmetic, how: str, value: TypedNumber) -> TypedNumber:
    """Make an integer of Python."""
    if value.storage in "ib":
        text = writer.converted(value, "i")
        return TypedNumber(text, frozenset({"int"}), "i", "", value.bits, value.positive)
    a = _double(writer, value)
    writer.bail(f"not (abs({a}) < 9007199254740992.0)", hard=True)
    whole = a if how == "trunc" else f"{how}({a})"
    return TypedNumber(writer.fresh(f"int64({whole})"), frozenset({"int"}), "i", "", EXACT)


def _hidden(writer: Arithmetic, given: TypedNumber, made: TypedNumber) -> TypedNumber:
    """Return a number of NumPy that was made of one of Python so that compilers do not know it.

    What they compute themselves of constants does not set the processor's flags.
    """
    if made.storage == "b" or made.kinds <= PYTHON or not given.kinds & PYTHON:
        return made
    return replace(made, text=writer.fresh(f"hidden_{made.storage}({made.text})"))


def _made(writer: Arithmetic, kind: str, value: TypedNumber) -> TypedNumber:
    """Make a number of another type."""
    how = STORAGE[kind]
    if how == "b":
        return TypedNumber(writer.fresh(writer.truth(value)), frozenset({kind}), "b", "", 1, True)
    if how == "d":
        return TypedNumber(_double(writer, value), frozenset({kind}), "d")
    if how == "s":
        if value.storage == "i" and value.bits > EXACT:
            raise Refused("a float32 of a large integer")
        return TypedNumber(writer.converted(value, "s"), frozenset({kind}), "s")
    whole = value if value.storage == "i" else _rounded(writer, "trunc", value)
    if value.kinds != {kind}:
        writer.in_range(whole.text, kind, whole)
    positive = whole.positive or RANGES[kind][0] == 0
    return TypedNumber(whole.text, frozenset({kind}), "i", "", min(BITS[kind], whole.bits), positive)


def _extreme(writer: Arithmetic, name: str, values: list[TypedNumber]) -> TypedNumber:
    """Return the first of the smallest, or of the largest."""
    if len(values) < 2:
        raise Refused("an extreme of what is no number")
    kinds = frozenset[str]().union(*(value.kinds for value in values))
    best = values[0]
    for value in values[1:]:
        test = writer.compare(name, value, best).text
        held = storage_of(kinds)
        (text, code), (other, its) = (writer.united(each, kinds, held) for each in (value, best))
        made = writer.fresh(f"{text} if {test} else {other}")
        tag = writer.fresh(f"int64({code}) if {test} else int64({its})") if len(kinds) > 1 else ""
        best = TypedNumber(made, kinds, held, tag, max(value.bits, best.bits),
                           value.positive and best.positive)
    return best
