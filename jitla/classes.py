"""Dataclasses whose methods are generated on first call, and cached properties without a lock.

The standard library generates and compiles five methods for each dataclass: a sixth of the time of importing
the classes for a first call. Most of these methods are never called.

Before Python 3.12 `functools.cached_property` has a lock, which stays locked forever in a process forked
while another thread computes. Here two threads may compute a value twice: the results are equal.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

__all__ = ["cached_property", "dataclass"]

_MISSING = dataclasses.MISSING
_FIELD_ATTRIBUTES = ("__dataclass_fields__", "__dataclass_params__", "__match_args__")


def _compile_method(cls: type, name: str, parameters: str, lines: list[str], globals_: dict[str, Any]) -> Any:
    """Compile method `name` of `cls`, set it in the class, and return it."""
    namespace: dict[str, Any] = {}
    body = "\n ".join(lines or ["pass"])
    exec(f"def {name}(self{parameters}):\n {body}", globals_, namespace)
    method = namespace[name]
    method.__qualname__, method.__module__ = f"{cls.__qualname__}.{name}", cls.__module__
    setattr(cls, name, method)
    return method


def _field_tuple(cls: type, of: str) -> str:
    """Return the source of a tuple of the compared fields of the variable `of`."""
    names = [f"{of}.{f.name}" for f in dataclasses.fields(cls) if f.compare]
    return f"({', '.join(names)},)" if names else "()"


def _write_init(cls: type, frozen: bool) -> Any:
    """Generate `__init__`."""
    globals_: dict[str, Any] = {"_set": object.__setattr__, "_MISSING": _MISSING}
    parameters: dict[bool, list[str]] = {False: [], True: []}
    lines = []
    for i, f in enumerate(dataclasses.fields(cls)):
        value = f.name
        if f.default_factory is not _MISSING:
            globals_[f"_f{i}"] = f.default_factory
            value = f"_f{i}() if {f.name} is _MISSING else {f.name}" if f.init else f"_f{i}()"
            parameter = f"{f.name}=_MISSING"
        elif f.default is not _MISSING:
            globals_[f"_d{i}"] = f.default
            parameter = f"{f.name}=_d{i}"
        else:
            parameter = f.name
        if f.init:
            parameters[bool(f.kw_only)].append(parameter)
        elif f.default is not _MISSING:
            value = f"_d{i}"
        elif f.default_factory is _MISSING:
            continue  # `__post_init__` sets it
        lines.append(f"_set(self, {f.name!r}, {value})" if frozen else f"self.{f.name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    signature = parameters[False] + (["*", *parameters[True]] if parameters[True] else [])
    return _compile_method(cls, "__init__", "".join(f", {parameter}" for parameter in signature), lines,
                           globals_)


def _write_eq(cls: type) -> Any:
    """Generate `__eq__`."""
    lines = ["if other.__class__ is self.__class__:", f"    return {_field_tuple(cls, 'self')} == "
             f"{_field_tuple(cls, 'other')}", "return NotImplemented"]
    return _compile_method(cls, "__eq__", ", other", lines, {})


def _write_hash(cls: type) -> Any:
    """Generate `__hash__`."""
    return _compile_method(cls, "__hash__", "", [f"return hash({_field_tuple(cls, 'self')})"], {})


def _repr(self: Any) -> str:
    words = [f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if f.repr]
    return f"{self.__class__.__qualname__}({', '.join(words)})"


def _get_state(self: Any) -> list[Any]:
    return [getattr(self, f.name) for f in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for f, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, f.name, value)


def _freeze(cls: Any, own: list[str]) -> None:
    """Reject attribute assignment, except of additional attributes in subclasses that are not frozen."""
    def __setattr__(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in own:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in own:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    cls.__setattr__, cls.__delattr__ = __setattr__, __delattr__


class _LazyFieldInfo:
    """The dataclass metadata of a class (`__dataclass_fields__` ...), computed on first access."""

    def __init__(self, cls: type, kw_only: bool) -> None:
        self.holder = cls
        self._bases, self._kw_only = cls.__bases__, kw_only
        annotations = cls.__annotations__
        self._content = {"__annotations__": annotations, "__module__": cls.__module__, "__doc__": cls.__doc__,
                         **{k: v for k, v in cls.__dict__.items() if k in annotations}}

    def compute(self) -> type:
        """Compute the metadata, set it in the class, and return a class that has it."""
        stand_in = type(self.holder)(self.holder.__name__, self._bases, self._content)
        info: Any = dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=self._kw_only)(stand_in)
        for name in _FIELD_ATTRIBUTES:
            setattr(self.holder, name, getattr(info, name))
        result: type = info
        return result


class _LazyClassAttribute:
    """A metadata attribute of a class that is computed on first access."""

    def __init__(self, name: str, info: _LazyFieldInfo) -> None:
        self._name, self._info = name, info

    def __get__(self, it: Any, cls: type) -> Any:
        return getattr(self._info.compute(), self._name)


def _with_slots(cls: type, names: list[str]) -> type:
    """Return a copy of a class with slots for the fields `names`."""
    inherited = {name for c in cls.__mro__[1:-1] for name in _slots(c)}
    content = {k: v for k, v in cls.__dict__.items() if k not in (*names, "__dict__", "__weakref__")}
    result = type(cls)(cls.__name__, cls.__bases__,
                       {**content, "__slots__": tuple(n for n in names if n not in inherited)})
    result.__qualname__ = cls.__qualname__
    return result


def _slots(cls: type) -> tuple[str, ...]:
    slots = cls.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _process_class(original: type, frozen: bool, slots: bool, eq: bool, kw_only: bool) -> type:
    namespace = original.__dict__
    names = [k for k, v in original.__annotations__.items() if not str(v).startswith("ClassVar")]
    info = _LazyFieldInfo(original, kw_only)
    cls: Any = _with_slots(original, names) if slots else original
    info.holder = cls
    for name in _FIELD_ATTRIBUTES:
        setattr(cls, name, _LazyClassAttribute(name, info))
    for name in () if slots else names:
        value = namespace.get(name)
        if isinstance(value, dataclasses.Field):
            if value.default is _MISSING:
                delattr(cls, name)
            else:
                setattr(cls, name, value.default)

    def __init__(self: Any, *args: Any, **named: Any) -> None:
        _write_init(cls, frozen)(self, *args, **named)

    if "__init__" not in namespace:
        cls.__init__ = __init__
    if "__repr__" not in namespace:
        cls.__repr__ = _repr
    if eq and "__eq__" not in namespace:
        cls.__eq__ = lambda self, other: _write_eq(cls)(self, other)
    if eq and (namespace.get("__hash__") is None and "__eq__" in namespace or "__hash__" not in namespace):
        cls.__hash__ = (lambda self: _write_hash(cls)(self)) if frozen else None
    if frozen:
        _freeze(cls, names)
    if frozen and slots and "__getstate__" not in namespace:
        cls.__getstate__, cls.__setstate__ = _get_state, _set_state
    result: type = cls
    return result


if TYPE_CHECKING:
    from dataclasses import dataclass
    from functools import cached_property
else:
    class cached_property:
        """A property computed on first access and cached in the object's dictionary."""

        def __init__(self, compute: Callable[[Any], Any]) -> None:
            self._compute = compute
            self.__doc__ = compute.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self._name = name

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            value = instance.__dict__[self._name] = self._compute(instance)
            return value

    def dataclass(
        cls: type | None = None, /, *, frozen: bool = False, slots: bool = False, eq: bool = True,
        kw_only: bool = False,
    ) -> type | Callable[[type], type]:
        """Add the methods of a dataclass, as `dataclasses.dataclass` does."""
        if cls is None:
            return lambda decorated: _process_class(decorated, frozen, slots, eq, kw_only)
        return _process_class(cls, frozen, slots, eq, kw_only)
