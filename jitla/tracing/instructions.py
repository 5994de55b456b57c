"""The typed instructions that Numba compiled for one loop of a function, read as steps of a recipe.

Knows: Numba's instructions, by their names, and what each does to numbers. Must not know: Numba, tapes.
Receives what Numba keeps of a loop and its dtypes; returns the steps, or says what is not known of it.

Numba's own types are followed, which are not NumPy's: every operand is cast as Numba casts it. Only what
has the same bits in a kernel is read: sums, differences, products, quotients and roots of floats,
comparisons, choices; and functions that kernels compute as exactly as NumPy's.
"""

from __future__ import annotations

import math
import operator
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from jitla.hops import Body, Step

MOST_STATEMENTS = 200  # on all ways through a function
_BOOL, _FLOAT, _INT = (np.dtype(kind) for kind in (np.bool_, np.float64, np.int64))
_DTYPES = {dtype.name: dtype for dtype in (_BOOL, _FLOAT, _INT, np.dtype(np.float32))}
_ARITHMETIC = {operator.add: "add", operator.sub: "sub", operator.mul: "mul"}
_ORDERS = {operator.lt: "lt", operator.le: "le", operator.gt: "gt", operator.ge: "ge"}
_COMPARING = {**_ORDERS, operator.eq: "eq", operator.ne: "ne"}
_LOGIC = {operator.and_: "and_", operator.or_: "or_", operator.xor: "xor"}
_ROOTS = (math.sqrt, np.sqrt)
_ABSOLUTE = (abs, math.fabs, np.abs, np.fabs)
_EXTREMES = {min: "lt", max: "gt"}
_MODULES = (math, np)
# What kernels have polynomials of.
_FUNCTIONS: dict[Any, str] = {getattr(module, name): name for module in _MODULES for name in (
    "exp", "expm1", "log", "log1p", "log2", "log10", "sin", "cos", "tan", "sinh", "cosh", "tanh")}
_FUNCTIONS |= {getattr(module, f"{arc}{name}"): f"arc{name}"
               for module, arc in ((math, "a"), (np, "arc")) for name in ("sin", "cos", "tan")}
_POWERS = (1, 2, 3, 4)


class Unread(Exception):
    """A function does what is not known to be the same in a kernel."""


class Held(NamedTuple):
    """What a variable stands for if it is no number: a function, a module, a truth value that is known."""

    value: Any


Found = int | Held


class Reader:
    """Reads the instructions of one loop: every way through it, from which values are chosen at the end."""

    def __init__(self, annotation: Any, ins: tuple[np.dtype, ...], out: np.dtype) -> None:
        self.blocks, self.types, self.calls = annotation.blocks, annotation.typemap, annotation.calltypes
        self.out = out
        self.steps: list[Step] = []
        self.known: dict[Step, int] = {}
        self.odd = -1
        self.count = 0
        self.ins = [self.step("arg", dtype, value=k) for k, dtype in enumerate(ins)]

    def body(self) -> Body:
        """Return what the loop computes."""
        result = self.way(min(self.blocks), {}, frozenset())
        if self.steps[result].verb == "const":
            raise Unread("a constant")
        return Body(tuple(self.steps), result, self.odd)

    def step(self, verb: str, dtype: np.dtype, *operands: int, value: Any = None) -> int:
        """Return the number of a step, which is done once."""
        made = Step(verb, operands, dtype, value)
        key = made if verb != "const" else made._replace(value=repr(value))  # zeros have signs
        if key not in self.known:
            self.known[key] = len(self.steps)
            self.steps.append(made)
        return self.known[key]

    def dtype(self, found: Found) -> np.dtype:
        """Return the dtype of a number."""
        if isinstance(found, Held):
            raise Unread("no number")
        return self.steps[found].dtype

    def of(self, kind: Any) -> np.dtype:
        """Return the dtype that Numba's type is."""
        dtype = _DTYPES.get(str(getattr(kind, "literal_type", kind)))
        if dtype is None:
            raise Unread(f"a number of type {kind}")
        return dtype

    def cast(self, found: Found, dtype: np.dtype) -> int:
        """Return a number as another type."""
        given = self.dtype(found)
        assert isinstance(found, int)
        if given == dtype:
            return found
        if dtype.kind != "f":
            raise Unread(f"a {given} as a {dtype}")
        return self.step("cast", dtype, found)

    # ------------------------------------------------------------------ statements

    def way(self, label: int, held: dict[str, Found], above: frozenset[int]) -> int:
        """Return what is returned from a block on."""
        if label in above:
            raise Unread("a loop")
        above |= {label}
        for statement in self.blocks[label].body:
            self.count += 1
            if self.count > MOST_STATEMENTS:
                raise Unread("too many statements")
            match type(statement).__name__:
                case "Assign":
                    name = statement.target.name
                    held[name] = self.assigned(name, statement.value, held)
                case "Jump":
                    return self.way(statement.target, held, above)
                case "Branch":
                    test = held[statement.cond.name]
                    if isinstance(test, Held) and type(test.value) is bool:
                        return self.way(statement.truebr if test.value else statement.falsebr, held, above)
                    if self.dtype(test) != _BOOL:
                        raise Unread("a condition that is no truth value")
                    assert isinstance(test, int)
                    ways = [self.way(to, dict(held), above) for to in (statement.truebr, statement.falsebr)]
                    return ways[0] if ways[0] == ways[1] else self.step("select", self.out, test, *ways)
                case "Return":
                    return self.cast(held[statement.value.name], self.out)
                case "SetItem":
                    self.stored(statement, held)
                case "Del":
                    pass
                case other:
                    raise Unread(other)
        raise Unread("a block without an end")

    def stored(self, statement: Any, held: dict[str, Found]) -> None:
        """Note what is stored in an element; functions of numbers store none."""
        raise Unread("a stored element")

    def assigned(self, name: str, value: Any, held: dict[str, Found]) -> Found:
        """Return what is assigned to a variable, as the type that it has."""
        found: Found
        match type(value).__name__:
            case "Arg":
                found = self.ins[value.index]
            case "Const" | "Global" | "FreeVar":
                found = self.named(name, value.value)
            case "Var":
                found = held[value.name]
            case "Expr":
                found = self.expression(name, value, held)
            case other:
                raise Unread(other)
        return found if isinstance(found, Held) else self.cast(found, self.of(self.types[name]))

    def named(self, name: str, value: Any) -> Found:
        """Return a constant, or a function or module by its name."""
        if type(value) not in (int, float):
            return Held(value)
        dtype = self.of(self.types[name])
        return self.step("const", dtype, value=dtype.type(value).item())

    def expression(self, name: str, node: Any, held: dict[str, Found]) -> Found:
        """Return the value of an expression."""
        match node.op:
            case "cast":
                return held[node.value.name]
            case "getattr":
                owner = held[node.value.name]
                module = owner.value if isinstance(owner, Held) else None
                if isinstance(module, ModuleType) and module in _MODULES:
                    return self.named(name, getattr(module, node.attr))
            case "binop" | "inplace_binop":
                function = node.fn if node.op == "binop" else node.immutable_fn
                power = getattr(self.types[node.rhs.name], "literal_value", None)
                return self.binary(function, node, held[node.lhs.name], held[node.rhs.name], power)
            case "unary":
                return self.unary(node.fn, held[node.value.name])
            case "call":
                called = held[node.func.name]
                given = [held[each.name] for each in node.args]
                if isinstance(called, Held) and not node.kws and node.vararg is None:
                    known = called.value is bool and isinstance(given[0], Held)
                    return given[0] if known else self.call(called.value, given, name)
        raise Unread(node.op)

    # ------------------------------------------------------------------ operations

    def binary(self, function: Any, node: Any, left: Found, right: Found, power: Any) -> int:
        """Do an operation of two numbers, cast as Numba casts them."""
        signature = self.calls[node]
        made = self.of(signature.return_type)
        if function is operator.pow:
            return self.power(self.cast(left, made), power)
        if function is operator.truediv:
            return self.step("div", self.floating(made), self.cast(left, made), self.cast(right, made))
        dtype = self.of(signature.args[0])
        if self.of(signature.args[1]) != dtype:
            raise Unread("operands of two types")
        a, b = self.cast(left, dtype), self.cast(right, dtype)
        if function in _COMPARING:
            return self.compare(_COMPARING[function], a, b)
        if function in _ARITHMETIC and dtype == made != _BOOL:
            return self.step(_ARITHMETIC[function], dtype, a, b)
        if function in _LOGIC and dtype == made == _BOOL:
            return self.step(_LOGIC[function], dtype, a, b)
        raise Unread(f"{getattr(function, '__name__', function)} of {dtype}")

    def floating(self, dtype: np.dtype) -> np.dtype:
        """Return a dtype of floats."""
        if dtype.kind != "f":
            raise Unread(f"a {dtype} where a float is needed")
        return dtype

    def compare(self, verb: str, a: int, b: int) -> int:
        """Compare; vectors that are put in order raise `invalid` for what is NaN, as Numba has it."""
        if verb in _ORDERS.values() and self.dtype(a).kind == "f":
            for each in (a, b):
                if self.steps[each].verb != "const":
                    odd = self.step("ne", _BOOL, each, each)
                    self.odd = odd if self.odd in (-1, odd) else self.step("or_", _BOOL, self.odd, odd)
        if self.dtype(a) == _BOOL:
            raise Unread("truth values compared")
        return self.step(verb, _BOOL, a, b)

    def power(self, base: int, exponent: Any) -> int:
        """Multiply as often as a small constant says, in Numba's order."""
        if type(exponent) is not int or exponent not in _POWERS or self.dtype(base) == _BOOL:
            raise Unread("a power")
        dtype = self.dtype(base)
        made, square = -1, base
        while exponent:
            if exponent & 1:
                made = square if made < 0 else self.step("mul", dtype, made, square)
            exponent >>= 1
            if exponent:
                square = self.step("mul", dtype, square, square)
        return made

    def unary(self, function: Any, operand: Found) -> int:
        """Do an operation of one number."""
        dtype = self.dtype(operand)
        assert isinstance(operand, int)
        if function is operator.not_ and dtype == _BOOL:
            return self.step("not_", dtype, operand)
        if function is operator.neg and dtype != _BOOL:
            return self.step("neg", dtype, operand)
        raise Unread(f"{getattr(function, '__name__', function)} of {dtype}")

    def call(self, function: Any, given: list[Found], name: str) -> int:
        """Call one of the functions that are known."""
        dtypes = [self.dtype(each) for each in given]
        numbers = [each for each in given if isinstance(each, int)]
        made = self.of(self.types[name])
        if len(given) == 1:
            if function is bool and dtypes[0] == _BOOL:
                return numbers[0]
            if function is float:
                return self.cast(numbers[0], self.floating(made))
            if any(function is each for each in _ROOTS):
                return self.step("sqrt", made, self.cast(numbers[0], self.floating(made)))
            if function in _FUNCTIONS and dtypes[0] == self.floating(made):
                return self.step("math", made, numbers[0], value=_FUNCTIONS[function])
            if any(function is each for each in _ABSOLUTE) and dtypes[0] == self.floating(made):
                return self.step("abs", made, numbers[0])
        elif len(given) == 2 and any(function is each for each in _EXTREMES):
            best, other = (self.cast(each, self.floating(made)) for each in numbers)
            return self.step("select", made, self.compare(_EXTREMES[function], other, best), other, best)
        raise Unread(f"a call of {getattr(function, '__name__', function)}")
