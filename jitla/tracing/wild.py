"""Stands for an object of a user's class in the one operation that uses it: there, its code runs.

Knows: Python's operators and protocols, in which order they are asked. Must not know: twins, blocks.
Receives operands and what to call foreign code with; returns what the operation returns.

A `Wild` is made by the hook before an operator and is gone after it. When the operator asks for one of
its methods, every operand is there: what is pending is computed, and the operation is done anew with
the objects themselves, as any call that jitla does not see into.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from types import FunctionType
from typing import Any

from jitla.tracing.frames import bridge
from jitla.tracing.kinds import CONTAINERS, TAME, is_wild
from jitla.tracing.stored import LazySparse

Foreign = Callable[[Any], Callable[..., Any]]
Lift = Callable[[Any, str], Any]


class Wild:
    """An operand whose methods may run any code; see the module for `ways`."""

    __slots__ = ("_wild_value", "_wild_ways", "_wild_hooks")

    __array_priority__ = 2e6

    def __init__(self, value: Any, ways: str, hooks: Any) -> None:
        self._wild_value = value
        self._wild_ways = ways
        self._wild_hooks = hooks

    def _done(self, function: Any, *args: Any) -> Any:
        """Do the operation with what the operands are; what results may be the next operand."""
        hooks = self._wild_hooks
        result = hooks.foreign(function)(*map(tamed, args))
        rest = self._wild_ways[1:]
        return hooks.lift(result, rest) if rest else result

    @bridge
    def __getitem__(self, key: Any) -> Any:
        value, rest, hooks = self._wild_value, self._wild_ways[1:], self._wild_hooks
        key = tamed(key)
        method = getattr(type(value), "__getitem__", None)
        if type(value) in CONTAINERS and not is_wild(key):
            result = value[key]
        elif type(method) is FunctionType and type(value) is not LazySparse:
            result = hooks.call(method)(value, key)
        else:
            result = hooks.foreign(operator.getitem)(value, key)
        return hooks.lift(result, rest) if rest else result

    @property
    def __class__(self) -> type:
        kind: type = self.__getattr__("__class__")
        return kind

    @bridge
    def __getattr__(self, name: str) -> Any:
        return self._wild_hooks.attribute(self._wild_value, name, self._wild_ways[1:])

    def __contains__(self, item: Any) -> bool:
        value = self._wild_value
        if type(value) in CONTAINERS and type(item) in TAME and (
            type(value) in (dict, set, frozenset) or not is_wild(value)
        ):
            return item in value
        return bool(self._done(operator.contains, value, item))

    def __iter__(self) -> Any:
        return iter(self._wild_hooks.iterate(self._wild_value))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        function = ufunc if method == "__call__" else getattr(ufunc, method)
        return self._called(function, inputs, options)

    def __array_function__(self, func: Any, types: Any, args: tuple, options: dict) -> Any:
        return self._called(func, args, options)

    def _called(self, function: Any, args: tuple, options: dict) -> Any:
        hooks = self._wild_hooks
        result = hooks.foreign(function)(
            *map(tamed, args), **{k: tamed(v) for k, v in options.items()})
        rest = self._wild_ways[1:]
        return hooks.lift(result, rest) if rest else result


class Right(Wild):
    """A right operand, also of ``divmod``: arrays of every kind on the left leave the operation to it."""

    __slots__ = ()

    __array_ufunc__ = None  # type: ignore[assignment]


def wild(value: Any, ways: str, hooks: Any) -> Wild:
    """Return what stands for `value`, used in these `ways`."""
    return (Right if ways[0] in "rf" else Wild)(value, ways, hooks)


def tamed(value: Any) -> Any:
    """Return what `value` stands for, inside of lists and tuples too."""
    kind = type(value)
    if kind is Wild or kind is Right:
        return value._wild_value
    if kind in (list, tuple) and any(issubclass(type(each), Wild) for each in value):
        return kind(map(tamed, value))
    return value


def _binary(function: Any, reflected: bool) -> Callable[[Wild, Any], Any]:
    def method(self: Wild, other: Any) -> Any:
        pair = (other, self) if reflected else (self, other)
        return self._done(function, *pair)

    return method


def _comparison(function: Any, mirrored: Any) -> Callable[[Wild, Any], Any]:
    def method(self: Wild, other: Any) -> Any:
        if self._wild_ways[0] == "r":  # the left operand did not know what to do
            return self._done(mirrored, other, self)
        return self._done(function, self, other)

    return method


def _unary(function: Any) -> Callable[..., Any]:
    def method(self: Wild, *more: Any) -> Any:
        return self._done(function, self, *more)

    return method


def _install() -> None:
    binary = {
        "add": operator.add, "sub": operator.sub, "mul": operator.mul, "matmul": operator.matmul,
        "truediv": operator.truediv, "floordiv": operator.floordiv, "mod": operator.mod,
        "pow": operator.pow, "divmod": divmod, "and": operator.and_, "or": operator.or_,
        "xor": operator.xor, "lshift": operator.lshift, "rshift": operator.rshift,
    }
    function: Any
    for name, function in binary.items():
        setattr(Wild, f"__{name}__", _binary(function, False))
        setattr(Wild, f"__r{name}__", _binary(function, True))
    for name, mirrored in {
        "lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne",
    }.items():
        setattr(Wild, f"__{name}__", _comparison(getattr(operator, name), getattr(operator, mirrored)))
    for name, function in {
        "neg": operator.neg, "pos": operator.pos, "invert": operator.invert, "abs": abs,
        "bool": bool, "int": int, "float": float, "complex": complex, "index": operator.index,
        "len": len, "str": str, "repr": repr, "format": format, "hash": hash, "round": round,
        "trunc": math.trunc, "reversed": reversed,
    }.items():
        setattr(Wild, f"__{name}__", _unary(function))


_install()
