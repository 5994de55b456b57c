"""Operands of users' classes, whose operators may run any code."""

from __future__ import annotations

import ctypes
import math
import operator
import sys
from collections.abc import Callable, Set
from functools import cached_property, partial
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    FunctionType,
    GeneratorType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any
from weakref import ref

import numpy as np

from jitla.instrument import NUMBERS
from jitla.tracing.frames import bridge
from jitla.tracing.lazy import LazyArray, LazyScalar
from jitla.tracing.sparse.lazy_sparse import LazySparse

# Operators and attributes of these run nothing but Python's, NumPy's and jitla's code.
TAME = NUMBERS | {
    LazyArray, LazyScalar, type(None), bytes, slice, range, type(...), type(NotImplemented),
    *(np.dtype(c).type for c in "egGSUMm?"),
}
CONTAINERS = frozenset({list, tuple, dict, set, frozenset})
# What is no operand for anything, or only compared; steps of these are asked about by themselves.
INERT = frozenset({ModuleType, FunctionType, BuiltinFunctionType, np.ufunc, type(np.sum)})
# They call functions or step through what they were made of, when they are iterated.
STEPPING = frozenset({map, filter, zip, enumerate, reversed, partial, GeneratorType})
_HEAP = 1 << 9  # of a type: made when the program runs
# Libraries whose objects do not write into memory of users when they are asked for attributes.
_TRUSTED = (sys.stdlib_module_names | {"numpy", "scipy", "pandas"}) - {"builtins"}
# Nor when they are operands: sparse arrays sum their duplicates, and operators call functions of users.
_HARMLESS = _TRUSTED - {"scipy"}
_STILL = (
    FunctionType, BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType,
    GetSetDescriptorType, MemberDescriptorType, ClassMethodDescriptorType,
    type(type("_Slots", (tuple,), {}).__dict__["__dict__"]),
)  # fmt: skip
_MISSING: Any = object()
# Methods that are no operation on an instance, or one that has its own hook.
_QUIET = frozenset({
    "__init__", "__new__", "__class__", "__init_subclass__", "__class_getitem__", "__set_name__",
    "__call__", "__getattr__", "__getattribute__", "__setattr__", "__delattr__", "__del__",
    "__enter__", "__exit__", "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__",
    "__copy__", "__deepcopy__", "__dir__", "__sizeof__", "__post_init__", "__annotate__",
    "__annotate_func__", "__subclasshook__",
})  # fmt: skip


def is_wild(value: Any, deep: int = 2) -> bool:
    """Say whether `value` as an operand may run code of users; containers are looked into."""
    kind = type(value)
    if kind in TAME:
        return False
    if kind is np.ndarray:
        return bool(value.dtype.hasobject)
    if kind in CONTAINERS:
        parts = value.values() if kind is dict else value
        if TAME.issuperset(map(type, parts)):
            return False
        return not deep or any(is_wild(each, deep - 1) for each in parts)
    if kind in STEPPING:
        return True
    if kind in INERT or kind is type or not kind.__flags__ & _HEAP:
        return False
    return kind_of(kind).operates


# -- whether a class has changed -------------------------------------------------------------------


def _version_place() -> int:
    """Return where a type object has the number that changes with the class; 0 if it was not found."""
    size: Any = type.__basicsize__  # of the class of classes it is a number
    words = size // 4
    kind = type("Changing", (), {"x": 1})
    view = (ctypes.c_uint * words).from_address(id(kind))
    seen = []
    for n in range(3):
        kind.x  # type: ignore[attr-defined]  # noqa: B018 - a look-up gives it a number
        before = list(view)
        kind.x = n  # type: ignore[attr-defined]
        seen.append({i for i in range(words) if before[i] > 0 == view[i]})
    common = set.intersection(*seen)
    return 4 * common.pop() if len(common) == 1 else 0


_VERSION = _version_place() if sys.implementation.name == "cpython" else 0


class Kind:
    """What is known about the instances of one class, as it was when it was looked at."""

    __slots__ = ("owner", "computed", "asks", "operates", "stored", "view", "version")

    def __init__(self, kind: type, forget: Callable[[ref[type]], None]) -> None:
        self.owner = ref(kind, forget)
        # Names that are computed; None: all may be.
        self.computed = _computed(kind)
        self.operates = _operates(kind)
        # Names whose storing runs code; None: that of any does.
        self.stored = _stored(kind)
        self.asks = hasattr(kind, "__getattr__")  # for names that are nowhere
        self.view = ctypes.c_uint.from_address(id(kind) + _VERSION)
        self.version = self.view.value if _VERSION else 0


_KINDS: dict[int, Kind] = {}


def kind_of(kind: type) -> Kind:
    """Return what is known about `kind` as it is now."""
    key = id(kind)
    known = _KINDS.get(key)
    if known is None or known.view.value != known.version or not known.version:

        def forget(owner: ref[type]) -> None:
            entry = _KINDS.get(key)
            if entry is not None and entry.owner is owner:
                del _KINDS[key]

        known = _KINDS[key] = Kind(kind, forget)
    return known


def _computed(kind: type) -> frozenset[str] | None:
    getter = kind.__getattribute__
    if isinstance(getter, FunctionType) and not _is_trusted(getter):
        return None
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if base.__flags__ & _HEAP:
            found.update(vars(base))
    return frozenset(name for name, value in found.items() if _runs(value))


def _operates(kind: type) -> bool:
    """Say whether a protocol of Python or NumPy, used on a `kind`, runs code of users."""
    for base in kind.__mro__:
        if base.__flags__ & _HEAP and not _is_trusted(base, _HARMLESS):
            for name, value in vars(base).items():
                if name[:2] == "__" == name[-2:] and name not in _QUIET and callable(value):
                    return True
    return False


def _is_trusted(function: Any, libraries: Set[str] = _TRUSTED) -> bool:
    module = getattr(function, "__module__", None)
    return isinstance(module, str) and module.partition(".")[0] in libraries


def _runs(value: Any) -> bool:
    """Say whether `value`, found in a class, runs code of users when an instance is asked for it."""
    kind = type(value)
    if kind in _STILL or not hasattr(kind, "__get__"):
        return False
    if kind is staticmethod:
        return False
    if kind is classmethod:
        return hasattr(type(value.__func__), "__get__") and type(value.__func__) not in _STILL
    if kind is property:
        return not _is_trusted(value.fget)
    if kind is cached_property:
        return True
    return bool(kind.__flags__ & _HEAP) and isinstance(kind.__get__, FunctionType) and not (
        _is_trusted(kind.__get__) and not hasattr(value, "func"))


# -- attributes ------------------------------------------------------------------------------------


def runs_code(obj: Any, kind: type, name: str) -> bool:
    """Say whether asking `obj`, a `kind`, for `name` runs code of users."""
    if kind in TAME or kind is np.ndarray or kind in CONTAINERS:
        return False
    if isinstance(obj, type):
        return _class_runs(obj, kind, name)
    if kind is super:
        above = obj.__self_class__.__mro__
        return _runs(_first(above[above.index(obj.__thisclass__) + 1 :], name))
    known = kind_of(kind)
    if known.computed is None:
        return True
    if name in known.computed:
        found = _first(kind.__mro__, name)
        return hasattr(type(found), "__set__") or name not in _own(obj)
    return known.asks and _first(kind.__mro__, name) is _MISSING and name not in _own(obj) and not (
        _is_trusted(kind.__getattr__))  # type: ignore[attr-defined]


def still(kind: type, uses: tuple[str, ...]) -> bool:
    """Say whether no instance of the class `kind` runs code when it is asked for these attributes."""
    if kind is type or kind is super or issubclass(kind, (type, ModuleType)):
        return False
    known = kind_of(kind)
    return not known.asks and known.computed is not None and known.computed.isdisjoint(uses)


def _class_runs(obj: type, kind: type, name: str) -> bool:
    if kind is not type and not _is_trusted(kind):
        known = kind_of(kind)
        if known.computed is None or name in known.computed or known.asks:
            return True
    found = _first(obj.__mro__, name)
    return type(found) not in (property, cached_property) and _runs(found)


def _own(obj: Any) -> Any:
    try:
        return object.__getattribute__(obj, "__dict__")
    except AttributeError:
        return ()


def _first(bases: tuple[type, ...], name: str) -> Any:
    for base in bases:
        found = base.__dict__.get(name, _MISSING)
        if found is not _MISSING:
            return found
    return _MISSING


def getter_of(kind: type, name: str) -> Any:
    """Return the function behind the property `name` of `kind`; None if there is none."""
    found = _first(kind.__mro__, name)
    plain = type(found) is property and not hasattr(kind, "__getattr__")
    return found.fget if plain and kind.__getattribute__ is object.__getattribute__ else None


def setter_of(kind: type, name: str) -> Any:
    """Return the function that setting the property `name` of a `kind` calls; None if there is none."""
    found = _first(kind.__mro__, name)
    return found.fset if type(found) is property and kind.__setattr__ is object.__setattr__ else None


def stores_plainly(kind: type, name: str) -> bool:
    """Say whether setting `name` on a `kind` only stores the value."""
    stored = kind_of(kind).stored
    return stored is not None and name not in stored


def _stored(kind: type) -> frozenset[str] | None:
    if kind.__setattr__ is not object.__setattr__:
        return None
    names = {name for base in kind.__mro__ for name in vars(base)} - {"__class__"}
    return frozenset(n for n in names if hasattr(type(_first(kind.__mro__, n)), "__set__"))


def deletes_plainly(kind: type, name: str) -> bool:
    """Say whether deleting `name` of a `kind` runs no code of its class."""
    return kind.__delattr__ is object.__delattr__ and not hasattr(
        type(_first(kind.__mro__, name)), "__delete__")


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
