"""Which operands, attributes and stores may run user code, and wrappers that call them as foreign code.

Operands that may run user code are wrapped (`UserOperand`) before an operator is applied: the wrapper ends
the open block, replaces proxies by arrays, and calls the operator as foreign code. Classes are analysed once
and again after each change (`ClassFacts`).
"""

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

from jitla.instrument import SCALAR_TYPES
from jitla.introspection import hide_module
from jitla.tracing.frames import bridge, hide_function
from jitla.tracing.lazy import LazyArray, LazyScalar
from jitla.tracing.sparse.lazy_sparse import LazySparse

# Types whose operators and attributes run only code of Python, NumPy and jitla.
SAFE_TYPES = SCALAR_TYPES | {
    LazyArray, LazyScalar, type(None), bytes, slice, range, type(...), type(NotImplemented),
    *(np.dtype(c).type for c in "egGSUMm?"),
}
CONTAINER_TYPES = frozenset({list, tuple, dict, set, frozenset})
# Types that have no operators but comparison.
NON_OPERANDS = frozenset({ModuleType, FunctionType, BuiltinFunctionType, np.ufunc, type(np.sum)})
# Iterators that call functions or advance other iterators.
LAZY_ITERATORS = frozenset({map, filter, zip, enumerate, reversed, partial, GeneratorType})
_HEAP_TYPE_FLAG = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a type created at run time
# Modules whose classes do not write into users' memory when their attributes are read.
_TRUSTED_MODULES = (sys.stdlib_module_names | {"numpy", "scipy", "pandas"}) - {"builtins"}
# Nor when they are operands: sparse arrays sum their duplicates, and linear operators call user functions.
_TRUSTED_OPERAND_MODULES = _TRUSTED_MODULES - {"scipy"}
_PLAIN_DESCRIPTORS = (
    FunctionType, BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType,
    GetSetDescriptorType, MemberDescriptorType, ClassMethodDescriptorType,
    type(type("_Slots", (tuple,), {}).__dict__["__dict__"]),
)  # fmt: skip
_MISSING: Any = object()
# Special methods that are no operators, or have separate hooks.
_NON_OPERATORS = frozenset({
    "__init__", "__new__", "__class__", "__init_subclass__", "__class_getitem__", "__set_name__",
    "__call__", "__getattr__", "__getattribute__", "__setattr__", "__delattr__", "__del__",
    "__enter__", "__exit__", "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__",
    "__copy__", "__deepcopy__", "__dir__", "__sizeof__", "__post_init__", "__annotate__",
    "__annotate_func__", "__subclasshook__",
})  # fmt: skip


def may_run_user_code(value: Any, deep: int = 2) -> bool:
    """Return whether `value` as an operand may run user code; containers are searched `deep` levels."""
    kind = type(value)
    if kind in SAFE_TYPES:
        return False
    if kind is np.ndarray:
        return bool(value.dtype.hasobject)
    if kind in CONTAINER_TYPES:
        parts = value.values() if kind is dict else value
        if SAFE_TYPES.issuperset(map(type, parts)):
            return False
        return not deep or any(may_run_user_code(each, deep - 1) for each in parts)
    if kind in LAZY_ITERATORS:
        return True
    if kind in NON_OPERANDS or kind is type or not kind.__flags__ & _HEAP_TYPE_FLAG:
        return False
    return facts_of(kind).has_operators


# -- changes of classes ----------------------------------------------------------------------------


def _version_offset() -> int:
    """Return the offset of the version tag in type objects, found by experiment; 0 if it was not found.

    CPython assigns a new version tag at the first attribute look-up after each change of a class.
    """
    size: Any = type.__basicsize__  # of `type` it is an integer, not a descriptor
    words = size // 4
    kind = type("Changing", (), {"x": 1})
    version_view = (ctypes.c_uint * words).from_address(id(kind))
    candidates = []
    for n in range(3):
        kind.x  # type: ignore[attr-defined]  # noqa: B018 - the look-up assigns a version tag
        before = list(version_view)
        kind.x = n  # type: ignore[attr-defined]
        candidates.append({i for i in range(words) if before[i] > 0 == version_view[i]})
    common = set.intersection(*candidates)
    return 4 * common.pop() if len(common) == 1 else 0


_VERSION_OFFSET = _version_offset() if sys.implementation.name == "cpython" else 0


class ClassFacts:
    """Facts about the instances of one class at one version of the class."""

    __slots__ = (
        "owner", "computed_loads", "has_getattr", "has_operators", "computed_stores", "version_view",
        "version")

    def __init__(self, kind: type, forget: Callable[[ref[type]], None]) -> None:
        self.owner = ref(kind, forget)
        # Attributes whose load runs user code; None: any may.
        self.computed_loads = _computed_loads(kind)
        self.has_operators = _has_operators(kind)
        # Attributes whose store runs code; None: any may.
        self.computed_stores = _computed_stores(kind)
        self.has_getattr = hasattr(kind, "__getattr__")  # called for missing attributes
        self.version_view = ctypes.c_uint.from_address(id(kind) + _VERSION_OFFSET)
        self.version = self.version_view.value if _VERSION_OFFSET else 0


_CLASS_FACTS: dict[int, ClassFacts] = {}


def facts_of(kind: type) -> ClassFacts:
    """Return the facts about the class `kind` in its current version."""
    key = id(kind)
    facts = _CLASS_FACTS.get(key)
    if facts is None or facts.version_view.value != facts.version or not facts.version:

        def forget(owner: ref[type]) -> None:
            entry = _CLASS_FACTS.get(key)
            if entry is not None and entry.owner is owner:
                del _CLASS_FACTS[key]

        facts = _CLASS_FACTS[key] = ClassFacts(kind, forget)
    return facts


def _computed_loads(kind: type) -> frozenset[str] | None:
    getter = kind.__getattribute__
    if isinstance(getter, FunctionType) and not _is_trusted(getter):
        return None
    attributes: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if base.__flags__ & _HEAP_TYPE_FLAG:
            attributes.update(vars(base))
    return frozenset(name for name, value in attributes.items() if _runs_user_code(value))


def _has_operators(kind: type) -> bool:
    """Return whether operators or protocols of Python or NumPy run user code of the class `kind`."""
    for base in kind.__mro__:
        if base.__flags__ & _HEAP_TYPE_FLAG and not _is_trusted(base, _TRUSTED_OPERAND_MODULES):
            for name, value in vars(base).items():
                if name[:2] == "__" == name[-2:] and name not in _NON_OPERATORS and callable(value):
                    return True
    return False


def _is_trusted(function: Any, libraries: Set[str] = _TRUSTED_MODULES) -> bool:
    module = getattr(function, "__module__", None)
    return isinstance(module, str) and module.partition(".")[0] in libraries


def _runs_user_code(value: Any) -> bool:
    """Return whether loading the class attribute `value` from an instance runs user code."""
    kind = type(value)
    if kind in _PLAIN_DESCRIPTORS or not hasattr(kind, "__get__"):
        return False
    if kind is staticmethod:
        return False
    if kind is classmethod:
        return hasattr(type(value.__func__), "__get__") and type(value.__func__) not in _PLAIN_DESCRIPTORS
    if kind is property:
        return not _is_trusted(value.fget)
    if kind is cached_property:
        return True
    return bool(kind.__flags__ & _HEAP_TYPE_FLAG) and isinstance(kind.__get__, FunctionType) and not (
        _is_trusted(kind.__get__) and not hasattr(value, "func"))


# -- attributes ------------------------------------------------------------------------------------


def load_runs_user_code(obj: Any, kind: type, name: str) -> bool:
    """Return whether loading the attribute `name` of `obj`, of type `kind`, runs user code."""
    if kind in SAFE_TYPES or kind is np.ndarray or kind in CONTAINER_TYPES:
        return False
    if isinstance(obj, type):
        return _class_load_runs_user_code(obj, kind, name)
    if kind is super:
        mro = obj.__self_class__.__mro__
        return _runs_user_code(_first_in_mro(mro[mro.index(obj.__thisclass__) + 1 :], name))
    facts = facts_of(kind)
    if facts.computed_loads is None:
        return True
    if name in facts.computed_loads:
        attribute = _first_in_mro(kind.__mro__, name)
        return hasattr(type(attribute), "__set__") or name not in _instance_dict(obj)
    return facts.has_getattr and _first_in_mro(kind.__mro__, name) is _MISSING \
        and name not in _instance_dict(obj) and not (
            _is_trusted(kind.__getattr__))  # type: ignore[attr-defined]


def are_loads_plain(kind: type, uses: tuple[str, ...]) -> bool:
    """Return whether loads of these attributes run no user code on any instance of the class `kind`."""
    if kind is type or kind is super or issubclass(kind, (type, ModuleType)):
        return False
    facts = facts_of(kind)
    loads = facts.computed_loads
    return not facts.has_getattr and loads is not None and loads.isdisjoint(uses)


def _class_load_runs_user_code(obj: type, kind: type, name: str) -> bool:
    if kind is not type and not _is_trusted(kind):
        facts = facts_of(kind)
        if facts.computed_loads is None or name in facts.computed_loads or facts.has_getattr:
            return True
    attribute = _first_in_mro(obj.__mro__, name)
    return type(attribute) not in (property, cached_property) and _runs_user_code(attribute)


def _instance_dict(obj: Any) -> Any:
    try:
        return object.__getattribute__(obj, "__dict__")
    except AttributeError:
        return ()


def _first_in_mro(bases: tuple[type, ...], name: str) -> Any:
    for base in bases:
        attribute = base.__dict__.get(name, _MISSING)
        if attribute is not _MISSING:
            return attribute
    return _MISSING


def getter_of(kind: type, name: str) -> Any:
    """Return the getter of the property `name` of the class `kind`; None if there is none."""
    attribute = _first_in_mro(kind.__mro__, name)
    plain = type(attribute) is property and not hasattr(kind, "__getattr__")
    return attribute.fget if plain and kind.__getattribute__ is object.__getattribute__ else None


def setter_of(kind: type, name: str) -> Any:
    """Return the setter of the property `name` of the class `kind`; None if there is none."""
    attribute = _first_in_mro(kind.__mro__, name)
    return attribute.fset if type(attribute) is property and kind.__setattr__ is object.__setattr__ else None


def is_store_plain(kind: type, name: str) -> bool:
    """Return whether setting the attribute `name` on an instance of `kind` only stores the value."""
    computed_stores = facts_of(kind).computed_stores
    return computed_stores is not None and name not in computed_stores


def _computed_stores(kind: type) -> frozenset[str] | None:
    if kind.__setattr__ is not object.__setattr__:
        return None
    names = {name for base in kind.__mro__ for name in vars(base)} - {"__class__"}
    return frozenset(n for n in names if hasattr(type(_first_in_mro(kind.__mro__, n)), "__set__"))


def is_delete_plain(kind: type, name: str) -> bool:
    """Return whether deleting the attribute `name` of an instance of `kind` runs no user code."""
    return kind.__delattr__ is object.__delattr__ and not hasattr(
        type(_first_in_mro(kind.__mro__, name)), "__delete__")



class UserOperand:
    """Wrapper of an operand whose operators may run user code, for one usage.

    The usage `usage` is described in `jitla.instrument.expressions`.
    """

    __slots__ = ("_jitla_value", "_jitla_usage", "_jitla_hooks")

    __array_priority__ = 2e6

    def __init__(self, value: Any, usage: str, hooks: Any) -> None:
        self._jitla_value = value
        self._jitla_usage = usage
        self._jitla_hooks = hooks

    def _apply(self, function: Any, *args: Any) -> Any:
        """Call the operator with unwrapped operands as foreign code; lift the result for its usage."""
        hooks = self._jitla_hooks
        result = hooks.foreign(function)(*map(unwrap_operand, args))
        rest_of_usage = self._jitla_usage[1:]
        return hooks.lift(result, rest_of_usage) if rest_of_usage else result

    @bridge
    def __getitem__(self, key: Any) -> Any:
        value, rest_of_usage, hooks = self._jitla_value, self._jitla_usage[1:], self._jitla_hooks
        key = unwrap_operand(key)
        method = getattr(type(value), "__getitem__", None)
        if type(value) in CONTAINER_TYPES and not may_run_user_code(key):
            result = value[key]
        elif type(method) is FunctionType and type(value) is not LazySparse:
            result = hooks.call(method)(value, key)
        else:
            result = hooks.foreign(operator.getitem)(value, key)
        return hooks.lift(result, rest_of_usage) if rest_of_usage else result

    @property
    def __class__(self) -> type:
        kind: type = self.__getattr__("__class__")
        return kind

    @bridge
    def __getattr__(self, name: str) -> Any:
        return self._jitla_hooks.attribute(self._jitla_value, name, self._jitla_usage[1:])

    def __contains__(self, item: Any) -> bool:
        value = self._jitla_value
        if type(value) in CONTAINER_TYPES and type(item) in SAFE_TYPES and (
            type(value) in (dict, set, frozenset) or not may_run_user_code(value)
        ):
            return item in value
        return bool(self._apply(operator.contains, value, item))

    def __iter__(self) -> Any:
        return iter(self._jitla_hooks.iterate(self._jitla_value))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        function = ufunc if method == "__call__" else getattr(ufunc, method)
        return self._call_numpy(function, inputs, options)

    def __array_function__(self, func: Any, types: Any, args: tuple, options: dict) -> Any:
        return self._call_numpy(func, args, options)

    def _call_numpy(self, function: Any, args: tuple, options: dict) -> Any:
        hooks = self._jitla_hooks
        result = hooks.foreign(function)(
            *map(unwrap_operand, args), **{k: unwrap_operand(v) for k, v in options.items()})
        rest_of_usage = self._jitla_usage[1:]
        return hooks.lift(result, rest_of_usage) if rest_of_usage else result


class RightUserOperand(UserOperand):
    """Wrapper of a right operand, also of ``divmod``: arrays on the left leave the operation to it."""

    __slots__ = ()

    __array_ufunc__ = None  # type: ignore[assignment]


def wrap_operand(value: Any, usage: str, hooks: Any) -> UserOperand:
    """Return the wrapper of `value` for the usage `usage`."""
    return (RightUserOperand if usage[0] in "rf" else UserOperand)(value, usage, hooks)


def unwrap_operand(value: Any) -> Any:
    """Return `value` without wrappers, also inside lists and tuples."""
    kind = type(value)
    if kind is UserOperand or kind is RightUserOperand:
        return value._jitla_value
    if kind in (list, tuple) and any(issubclass(type(each), UserOperand) for each in value):
        return kind(map(unwrap_operand, value))
    return value


def _binary(function: Any, reflected: bool) -> Callable[[UserOperand, Any], Any]:
    def method(self: UserOperand, other: Any) -> Any:
        pair = (other, self) if reflected else (self, other)
        return self._apply(function, *pair)

    return method


def _comparison(function: Any, mirrored: Any) -> Callable[[UserOperand, Any], Any]:
    def method(self: UserOperand, other: Any) -> Any:
        if self._jitla_usage[0] == "r":  # the left operand returned NotImplemented
            return self._apply(mirrored, other, self)
        return self._apply(function, self, other)

    return method


def _unary(function: Any) -> Callable[..., Any]:
    def method(self: UserOperand, *more: Any) -> Any:
        return self._apply(function, self, *more)

    return method


def _install_operators() -> None:
    binary = {
        "add": operator.add, "sub": operator.sub, "mul": operator.mul, "matmul": operator.matmul,
        "truediv": operator.truediv, "floordiv": operator.floordiv, "mod": operator.mod,
        "pow": operator.pow, "divmod": divmod, "and": operator.and_, "or": operator.or_,
        "xor": operator.xor, "lshift": operator.lshift, "rshift": operator.rshift,
    }
    function: Any
    for name, function in binary.items():
        setattr(UserOperand, f"__{name}__", _binary(function, False))
        setattr(UserOperand, f"__r{name}__", _binary(function, True))
    for name, mirrored in {
        "lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne",
    }.items():
        setattr(UserOperand, f"__{name}__", _comparison(getattr(operator, name), getattr(operator, mirrored)))
    for name, function in {
        "neg": operator.neg, "pos": operator.pos, "invert": operator.invert, "abs": abs,
        "bool": bool, "int": int, "float": float, "complex": complex, "index": operator.index,
        "len": len, "str": str, "repr": repr, "format": format, "hash": hash, "round": round,
        "trunc": math.trunc, "reversed": reversed,
    }.items():
        setattr(UserOperand, f"__{name}__", _unary(function))


_install_operators()


hide_module(__name__, hide_function)
